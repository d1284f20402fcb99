//! What this replica knows of the others, and its own settings among them. Their summaries are looked at again and again, and
//! of their details what this replica needs.
//!
//! # Invariants
//! - What this replica does not know of the others makes it watch, and what it has not read for [`LIFETIME`] it does not
//!   know.   (what_is_not_known_is_watched)
//! - A replica that has not touched its summary for [`FRESH`] counts as gone.   (whoever_touches_nothing_any_more_counts_as_gone)
//! - What a dead replica has said of a job keeps no replica from it for longer than [`INTERVAL`] and [`FRESH`] together.
//!   (a_definition_that_died_with_its_leader_counts_for_seven_seconds_at_most)

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;

use super::{
    Intents, LocalStatus,
    definitions::Definitions,
    spread::{self, Attention, Peer},
};
#[cfg(doc)]
use crate::fleet::presence::INTERVAL;
use crate::{
    clock::Moment,
    fleet::presence::{
        FRESH, LIFETIME, Presence,
        roster::{Roster, Wanted},
    },
    latest,
    lock::{LockError, Locks},
    node::Token,
    status::{JobPresence, Standing},
};

/// Settings of this replica, and what it knows of the others. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Peers {
    pub(crate) replica: String,
    /// Larger is preferred.
    pub(crate) priority: i32,
    /// Whether this replica ever leads.
    pub(crate) candidate: bool,
    pub(crate) failover: bool,
    /// What they tell of their jobs.
    pub(super) definitions: Definitions,
    view: Arc<Mutex<View>>,
    /// Counts the changes of what is known of who leads and who stands by.
    news: Arc<latest::Sender<u64>>,
    /// Counts how often others were found to have gone.
    gone: Arc<latest::Sender<u64>>,
    roster: Arc<tokio::sync::Mutex<Roster>>,
}

#[derive(Debug, Default)]
struct View {
    others: Vec<Peer>,
    /// When the others were last heard of; `None` before the first time, and when that is too long ago.
    read: Option<Moment>,
    /// The jobs whose locks are taken for each tick, and held by one of them now.
    held: BTreeSet<String>,
    /// For which own definitions that is so.
    hash: String,
    /// Since when the shares are what they are.
    calm: Option<(Vec<Peer>, Moment)>,
}

/// The place of this replica among those that stand by for the work of a tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) turn: usize,
    /// The ids of those that are to come first.
    pub(super) first: Vec<String>,
}

// === impl Peers ===

impl Peers {
    pub(crate) fn new(replica: &str, priority: i32, candidate: bool, failover: bool) -> Self {
        Self {
            replica: replica.to_owned(),
            priority,
            candidate,
            failover,
            definitions: Definitions::default(),
            view: Arc::default(),
            news: Arc::default(),
            gone: Arc::default(),
            roster: roster(LIFETIME),
        }
    }

    /// In a fleet whose summaries live for so long without a touch.
    pub(crate) fn told_for(self, lifetime: Duration) -> Self {
        let roster = roster(lifetime);
        Self { roster, ..self }
    }

    pub(crate) fn mode(&self) -> &'static str {
        match self.failover {
            true => "failover",
            false => "shared",
        }
    }

    /// Reads what has moved of what the others tell, and takes note of it; says whether it is news who leads what and who stands by.
    ///
    /// # Errors
    /// [`LockError`] while no node answers: nothing has changed then.
    pub(super) async fn look(&self, locks: &Locks, mine: &LocalStatus) -> Result<bool, LockError> {
        let mut roster = self.roster.lock().await;
        let hash = mine.definitions_hash();
        // What is read before a node stops to answer, or before this is dropped, is news at the next look.
        let was = std::mem::take(&mut self.view().hash);
        let changed = roster.look(locks, Wanted::Standings(&hash)).await?;
        let (now, at) = (locks.wall(), locks.clock().now());
        let mut news = {
            let mut view = self.view();
            let knew = view.knows(at);
            view.read = Some(at);
            !knew
        };
        if changed || was != hash || self.definitions.seen() == 0 {
            let disagree = roster.differs_from(&hash);
            let own = mine.facts();
            news |= self.saw(roster.peers(now, &hash, &own), disagree, mine);
        }
        self.view().hash = hash;
        mine.heard_again(&roster.ids(), now);
        self.calm(mine, at);
        if news {
            self.news.send_modify(|news| *news += 1);
        }
        Ok(news)
    }

    /// The largest token under which another replica says to lead the job.
    pub(super) async fn leader(
        &self,
        job: &str,
        locks: &Locks,
        mine: &LocalStatus,
    ) -> Option<Token> {
        let mut roster = self.roster.lock().await;
        let hash = mine.definitions_hash();
        let looked = roster.look(locks, Wanted::Standings(&hash)).await;
        if looked.as_ref().map_or(true, |changed| *changed) {
            // The next look at all of them takes note of it.
            self.view().hash.clear();
        }
        looked.ok()?;
        roster.leader(job)
    }

    /// Takes note of what the others tell that are there; of their definitions where any `disagree`. Says whether it is news.
    fn saw(
        &self,
        presences: impl IntoIterator<Item = Presence>,
        disagree: bool,
        mine: &LocalStatus,
    ) -> bool {
        let (mut others, mut definitions) = (Vec::new(), BTreeMap::new());
        let mut held = BTreeSet::new();
        for presence in presences {
            mine.heard(&presence);
            if presence.id == self.replica {
                continue;
            }
            if disagree {
                Definitions::note(&presence, &mut definitions);
            }
            others.push(Peer::of(&presence, self.failover));
            let by_tick =
                |job: &&JobPresence| spread::is_by_tick(job) && job.standing == Standing::Leading;
            held.extend(
                presence
                    .jobs
                    .into_iter()
                    .filter(|job| by_tick(&job))
                    .map(|job| job.name),
            );
        }
        mine.heard_all();
        self.definitions.saw(definitions);
        others.sort_by(|a, b| a.id.cmp(&b.id));
        let mut view = self.view();
        let is_news = view.others != others;
        let lives = |was: &Peer| others.iter().any(|other| other.id == was.id);
        let have_gone = !view.others.iter().all(lives);
        (view.others, view.held) = (others, held);
        drop(view);
        if have_gone {
            self.gone.send_modify(|gone| *gone += 1);
        }
        is_news
    }

    /// Takes note of how long nothing has moved.
    fn calm(&self, mine: &LocalStatus, now: Moment) {
        let me = self.me(mine);
        let mut view = self.view();
        let mut shares = view.others.clone();
        shares.push(me);
        // Who would take over may change all the time.
        shares.iter_mut().for_each(|peer| peer.stands_by.clear());
        if view.calm.as_ref().is_none_or(|(was, _)| *was != shares) {
            view.calm = Some((shares, now));
        }
    }

    /// The others could not be heard of at `now`; says whether that makes what is known of them too old.
    pub(super) fn saw_nothing(&self, now: Moment) -> bool {
        let mut view = self.view();
        let known = view.knows(now);
        let was = view.read.is_some();
        if known || !was {
            return false;
        }
        view.read = None;
        drop(view);
        self.news.send_modify(|news| *news += 1);
        true
    }

    /// What this replica does about the lock of `job`, or of the whole replica, when another one holds it.
    pub(crate) fn attention(&self, job: &str, now: Moment) -> Attention {
        let view = self.view();
        match view.knows(now) {
            true => spread::attention(job, (&self.replica, self.priority), &view.others),
            false => Attention::Watches,
        }
    }

    /// The place of this replica among those that stand by for the work of this instant, of whom so many come first; `None`
    /// when it does not know them.
    pub(crate) fn turn(
        &self,
        job: &str,
        at: Timestamp,
        first: usize,
        now: Moment,
    ) -> Option<Place> {
        let view = self.view();
        if !view.knows(now) || view.others.is_empty() {
            return None;
        }
        let before = spread::turn(job, at, &self.replica, &view.others);
        let turn = before.len();
        let first = before.into_iter().take(first).map(str::to_owned);
        Some(Place {
            turn,
            first: first.collect(),
        })
    }

    /// Whether any of these replicas lives and stands by for the job, or another one holds its lock for a tick, by what was
    /// heard lately.
    pub(super) fn any_stands_by(&self, ids: &[String], job: &str, now: Moment) -> bool {
        let view = self.view();
        let stands_by = |peer: &Peer| ids.contains(&peer.id) && peer.stands_by.contains(job);
        view.knows(now) && (view.held.contains(job) || view.others.iter().any(stands_by))
    }

    /// Whether a living replica tells that it holds the lock of a job for a tick.
    pub(super) fn is_told_held(&self, job: &str, now: Moment) -> bool {
        let view = self.view();
        view.knows(now) && view.held.contains(job)
    }

    /// Completes when another replica has gone since `seen`. Cancel-safe when that was read before.
    pub(super) async fn any_gone(&self, seen: u64) {
        let mut gone = self.gone.subscribe();
        let _ = gone.wait_for(|now| *now != seen).await;
    }

    /// How often others were found to have gone.
    pub(super) fn gone(&self) -> u64 {
        *self.gone.borrow()
    }

    /// Whether this replica was named to lead the job next.
    pub(super) fn is_called(&self, job: &str, intents: &Intents) -> bool {
        let asked = intents.resign(job);
        asked.is_some_and(|asked| asked.to.as_ref() == Some(&self.replica))
    }

    /// Completes when anything is news since `seen`. Cancel-safe when that was read before.
    pub(super) async fn changed(&self, seen: u64) {
        let mut news = self.news.subscribe();
        let _ = news.wait_for(|now| *now != seen).await;
    }

    pub(super) fn seen(&self) -> u64 {
        *self.news.borrow()
    }

    /// How long all shares have been what they are.
    pub(super) fn calm_for(&self, now: Moment) -> Duration {
        let view = self.view();
        let calm = view.calm.as_ref();
        calm.map_or(Duration::ZERO, |(_, since)| now.since(*since))
    }

    pub(super) fn others(&self) -> Vec<Peer> {
        self.view().others.clone()
    }

    /// Whether this replica would take the job over, as far as it was heard of lately.
    pub(super) fn stands_by(&self, replica: &str, job: &str) -> bool {
        let view = self.view();
        let found = view.others.iter().find(|peer| peer.id == replica);
        found.is_some_and(|peer| peer.stands_by.contains(job))
    }

    /// Whether any other replica would. One of smaller priority does not count: it would give the job back.
    pub(super) fn has_standby(&self, job: &str) -> bool {
        let would = |peer: &Peer| peer.priority >= self.priority && peer.stands_by.contains(job);
        self.view().others.iter().any(would)
    }

    /// How long this replica waits before a bid for what looks free.
    pub(crate) fn bid_after(
        &self,
        job: &str,
        local_status: &LocalStatus,
        ttl: Duration,
    ) -> Duration {
        if self.view().others.is_empty() {
            // As the decision below says; what this replica leads is not looked up a thousand times for nothing.
            return Duration::ZERO;
        }
        spread::bid_after(job, &self.me(local_status), &self.view().others, ttl)
    }

    /// This replica, as it is now.
    pub(super) fn me(&self, local_status: &LocalStatus) -> Peer {
        Peer {
            id: self.replica.clone(),
            priority: self.priority,
            leads: local_status.led(),
            stands_by: BTreeSet::new(),
            is_active: false,
        }
    }

    fn view(&self) -> MutexGuard<'_, View> {
        // Every change is complete before the lock is given back.
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl View ===

impl View {
    fn knows(&self, now: Moment) -> bool {
        self.read.is_some_and(|at| now.since(at) < LIFETIME)
    }
}

/// Of replicas that have given a sign of life of late.
fn roster(lifetime: Duration) -> Arc<tokio::sync::Mutex<Roster>> {
    let life = lifetime.saturating_sub(FRESH)..lifetime;
    Arc::new(tokio::sync::Mutex::new(Roster::within(life)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Role;

    #[test]
    fn only_another_replica_that_could_take_over_stands_by() {
        let presence = |id: &str, standing| Presence {
            id: id.to_owned(),
            jobs: vec![JobPresence {
                name: "job".to_owned(),
                standing,
                ..JobPresence::default()
            }],
            ..Presence::default()
        };
        let standby = || presence("b", Standing::Standby);
        let has_standby = |me: &str, priority, other: Presence, job: &str| {
            let place = Peers::new(me, priority, true, false);
            place.saw([other], false, &LocalStatus::default());
            place.has_standby(job)
        };
        assert!(has_standby("a", 0, standby(), "job"));
        assert!(!has_standby("b", 0, standby(), "job"), "that is this one");
        assert!(!has_standby("a", 0, standby(), "another"));
        assert!(!has_standby("a", 1, standby(), "job"), "it is worth less");
        let off = presence("b", Standing::Off);
        assert!(!has_standby("a", 0, off, "job"));
        let observes = Presence {
            role: Role::Observer,
            ..standby()
        };
        assert!(!has_standby("a", 0, observes, "job"));
        let drains = Presence {
            draining: true,
            ..standby()
        };
        assert!(!has_standby("a", 0, drains, "job"));
        let ill = Presence {
            unfit: Some("disk full".to_owned()),
            ..standby()
        };
        assert!(!has_standby("a", 0, ill, "job"));
    }

    #[test]
    fn what_is_not_known_is_watched() {
        let place = Peers::new("me", 0, true, false);
        let local_status = LocalStatus::default();
        let at = |secs| Moment::from_boot(Duration::from_secs(secs));
        let watches = |now| place.attention("job", at(now)) == Attention::Watches;
        let presence = |id: &str, standing| Presence {
            id: id.to_owned(),
            priority: 1,
            jobs: vec![JobPresence {
                name: "job".to_owned(),
                standing,
                ..JobPresence::default()
            }],
            ..Presence::default()
        };
        let fleet: Vec<Presence> = ["b", "c", "d"]
            .map(|id| presence(id, Standing::Standby))
            .into_iter()
            .chain([presence("a", Standing::Leading)])
            .collect();
        let saw = |fleet: &[Presence], now| {
            place.view().read = Some(at(now));
            place.saw(fleet.to_vec(), false, &local_status)
        };
        assert!(watches(100), "no other is known");
        saw(&[], 100);
        assert!(watches(100), "there is no other");
        assert!(saw(&fleet, 102));
        assert!(!saw(&fleet, 104));
        assert!(!watches(104));
        // The documents cannot be read: for a while what is known counts.
        assert!(!place.saw_nothing(at(106)));
        assert!(!watches(110));
        assert!(watches(111), "also where nobody has said so");
        assert!(place.saw_nothing(at(111)));
        assert!(!place.saw_nothing(at(113)));
        saw(&fleet, 114);
        assert!(!watches(114));
        let mut again = fleet.clone();
        again[0].draining = true;
        assert!(saw(&again, 116));
        assert!(watches(116), "one of three goes");
    }
}
