//! What this replica knows of the others, and its own settings among them. Their summaries are looked at again and again, and
//! of their details what this replica needs.
//!
//! # Invariants
//! - A replica that has not touched its summary for [`FRESH`] counts as gone.   (whoever_touches_nothing_any_more_counts_as_gone)
//! - What a dead replica has said of a job keeps no replica from it for longer than [`INTERVAL`] and [`FRESH`] together.
//!   (a_definition_that_died_with_its_leader_counts_for_seven_seconds_at_most)

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    LocalStatus,
    definitions::Definitions,
    spread::{self, Peer},
};
#[cfg(doc)]
use crate::fleet::presence::INTERVAL;
use crate::{
    clock::Moment,
    fleet::presence::{
        FRESH, LIFETIME, Presence,
        roster::{Roster, Wanted},
    },
    lock::{LockError, Locks},
    node::Token,
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
    roster: Arc<tokio::sync::Mutex<Roster>>,
}

#[derive(Debug, Default)]
struct View {
    others: Vec<Peer>,
    /// For which own definitions that is so.
    hash: String,
    /// Since when the shares are what they are.
    calm: Option<(Vec<Peer>, Moment)>,
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

    /// Reads what has moved of what the others tell, and takes note of it.
    ///
    /// # Errors
    /// [`LockError`] while no node answers: nothing has changed then.
    pub(super) async fn look(&self, locks: &Locks, mine: &LocalStatus) -> Result<(), LockError> {
        let mut roster = self.roster.lock().await;
        let hash = mine.definitions_hash();
        let looked = roster.look(locks, Wanted::Standings(&hash)).await;
        // What was read before a node stopped to answer is news at the next look.
        let changed = looked.inspect_err(|_| self.view().hash.clear())?;
        let now = locks.wall();
        if changed || self.view().hash != hash || self.definitions.seen() == 0 {
            let disagree = roster.differs_from(&hash);
            let own = mine.facts();
            self.saw(roster.peers(now, &hash, &own), disagree, mine);
            self.view().hash = hash;
        }
        mine.heard_again(&roster.ids(), now);
        self.calm(mine, locks.clock().now());
        Ok(())
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

    /// Takes note of what the others tell that are there; of their definitions where any `disagree`.
    fn saw(
        &self,
        presences: impl IntoIterator<Item = Presence>,
        disagree: bool,
        mine: &LocalStatus,
    ) {
        let (mut others, mut definitions) = (Vec::new(), BTreeMap::new());
        for presence in presences {
            mine.heard(&presence);
            if presence.id == self.replica {
                continue;
            }
            if disagree {
                Definitions::note(&presence, &mut definitions);
            }
            others.push(Peer::of(&presence, self.failover));
        }
        mine.heard_all();
        self.definitions.saw(definitions);
        others.sort_by(|a, b| a.id.cmp(&b.id));
        self.view().others = others;
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
            stands_by: std::collections::BTreeSet::new(),
        }
    }

    fn view(&self) -> MutexGuard<'_, View> {
        // Every change is complete before the lock is given back.
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
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
    use crate::status::{JobPresence, Role, Standing};

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
}
