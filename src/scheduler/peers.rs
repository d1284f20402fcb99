//! What this replica knows of the others, and its own settings among them. Read from their presence documents again
//! and again.
//!
//! # Invariants
//! - What this replica does not know of the others makes it watch, and what it has not read for [`LIFETIME`] it does not
//!   know.   (what_is_not_known_is_watched)
//! - A replica that has not written anew for [`FRESH`] counts as gone, by a clock of our own.
//!   (whoever_writes_nothing_any_more_counts_as_gone)
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
use crate::{
    clock::Moment,
    fleet::presence::{FRESH, INTERVAL, LIFETIME, Presence},
    latest,
    status::Standing,
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
}

#[derive(Debug, Default)]
struct View {
    others: Vec<Peer>,
    /// When the others were last heard of; `None` before the first time, and when that is too long ago.
    read: Option<Moment>,
    /// The jobs whose locks are taken for each tick, and held by one of them now.
    held: BTreeSet<String>,
    /// By id: the newest revision, and when it was first seen.
    heard: BTreeMap<String, (u64, Moment)>,
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
        }
    }

    pub(crate) fn mode(&self) -> &'static str {
        match self.failover {
            true => "failover",
            false => "shared",
        }
    }

    /// Takes note of what the others tell; says whether it is news who leads what and who stands by.
    pub(super) fn saw(
        &self,
        presences: &[Presence],
        local_status: &LocalStatus,
        now: Moment,
    ) -> bool {
        let mut view = self.view();
        let mut heard = BTreeMap::new();
        for presence in presences.iter().filter(|p| p.id != self.replica) {
            let last = view.heard.get(&presence.id).copied();
            let fresh = last.filter(|(rev, _)| *rev >= presence.rev);
            heard.insert(presence.id.clone(), fresh.unwrap_or((presence.rev, now)));
        }
        let alive = |p: &&Presence| {
            let last = heard.get(&p.id);
            last.is_some_and(|(_, at)| now.since(*at) < FRESH)
        };
        let alive = presences.iter().filter(alive);
        self.definitions.saw(alive.clone());
        view.held = held(alive.clone());
        let mut others: Vec<Peer> = alive.map(|p| Peer::of(p, self.failover)).collect();
        others.sort_by(|a, b| a.id.cmp(&b.id));
        let is_news = view.read.is_none() || view.others != others;
        let lives = |was: &Peer| others.iter().any(|other| other.id == was.id);
        let have_gone = !view.others.iter().all(lives);
        (view.others, view.read) = (others, Some(now));
        view.heard = heard;
        let mut shares = view.others.clone();
        shares.push(self.me(local_status));
        // Who would take over may change all the time.
        shares.iter_mut().for_each(|peer| peer.stands_by.clear());
        if view.calm.as_ref().is_none_or(|(was, _)| *was != shares) {
            view.calm = Some((shares, now));
        }
        drop(view);
        if is_news {
            self.news.send_modify(|news| *news += 1);
        }
        if have_gone {
            self.gone.send_modify(|gone| *gone += 1);
        }
        is_news
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

    /// How long until the next look: sooner when a peer would count as gone before that.
    pub(super) fn look_after(&self, now: Moment) -> Duration {
        let view = self.view();
        let ends = view.heard.values().map(|(_, at)| *at + FRESH);
        let next = ends.filter(|end| *end > now).min();
        next.map_or(INTERVAL, |end| end.since(now).min(INTERVAL))
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

fn held<'a>(alive: impl Iterator<Item = &'a Presence>) -> BTreeSet<String> {
    let jobs = alive.flat_map(|presence| &presence.jobs);
    let held = jobs.filter(|job| spread::is_by_tick(job) && job.standing == Standing::Leading);
    held.map(|job| job.name.clone()).collect()
}

// === impl View ===

impl View {
    fn knows(&self, now: Moment) -> bool {
        self.read.is_some_and(|at| now.since(at) < LIFETIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{JobPresence, Role};

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
            place.saw(&[other], &LocalStatus::default(), Moment::ZERO);
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
        assert!(watches(100), "no other is known");
        assert!(place.saw(&[], &local_status, at(100)));
        assert!(watches(100), "there is no other");
        assert!(place.saw(&fleet, &local_status, at(102)));
        assert!(!place.saw(&fleet, &local_status, at(104)));
        assert!(!watches(104));
        // The documents cannot be read: for a while what is known counts.
        assert!(!place.saw_nothing(at(106)));
        assert!(!watches(110));
        assert!(watches(111), "also where nobody has said so");
        assert!(place.saw_nothing(at(111)));
        assert!(!place.saw_nothing(at(113)));
        // They can, but they are those of before.
        assert!(place.saw(&fleet, &local_status, at(114)));
        assert!(watches(114));
        let mut again = fleet.clone();
        again.iter_mut().for_each(|presence| presence.rev += 1);
        assert!(place.saw(&again, &local_status, at(116)));
        assert!(!watches(116));
        again[0].rev += 1;
        again[0].draining = true;
        assert!(place.saw(&again, &local_status, at(117)));
        assert!(watches(117), "one of three goes");
    }

    #[test]
    fn whoever_writes_nothing_any_more_counts_as_gone() {
        let place = Peers::new("a", 0, true, false);
        let local_status = LocalStatus::default();
        let at = |secs| Moment::from_boot(Duration::from_secs(secs));
        let other = |rev| Presence {
            id: "b".to_owned(),
            rev,
            ..Presence::default()
        };
        place.saw(&[other(1)], &local_status, at(100));
        assert_eq!(place.others().len(), 1);
        place.saw(&[other(1)], &local_status, at(104));
        assert_eq!(place.calm_for(at(104)), Duration::from_secs(4));
        place.saw(&[other(1)], &local_status, at(105));
        assert_eq!(place.others(), []);
        place.saw(&[other(2)], &local_status, at(106));
        assert_eq!(place.others().len(), 1);
        assert_eq!(place.calm_for(at(107)), Duration::from_secs(1));
    }

    #[test]
    fn whoever_is_about_to_count_as_gone_is_looked_at_in_time() {
        let place = Peers::new("a", 0, true, false);
        let local_status = LocalStatus::default();
        let at = |secs| Moment::from_boot(Duration::from_secs(secs));
        let other = Presence {
            id: "b".to_owned(),
            rev: 1,
            ..Presence::default()
        };
        assert_eq!(place.look_after(at(100)), INTERVAL);
        place.saw(std::slice::from_ref(&other), &local_status, at(100));
        assert_eq!(place.look_after(at(100)), INTERVAL);
        place.saw(std::slice::from_ref(&other), &local_status, at(104));
        assert_eq!(place.look_after(at(104)), Duration::from_secs(1));
        place.saw(&[other], &local_status, at(105));
        assert_eq!(place.look_after(at(105)), INTERVAL, "it is gone already");
    }
}
