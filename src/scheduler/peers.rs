//! What this replica knows of the others, and its own settings among them. Read from their presence documents again
//! and again.
//!
//! # Invariants
//! - A replica that has not written anew for [`FRESH`] counts as gone, by a clock of our own.
//!   (whoever_writes_nothing_any_more_counts_as_gone)
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
use crate::{
    clock::Moment,
    fleet::presence::{FRESH, INTERVAL, Presence},
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
}

#[derive(Debug, Default)]
struct View {
    others: Vec<Peer>,
    /// By id: the newest revision, and when it was first seen.
    heard: BTreeMap<String, (u64, Moment)>,
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
        }
    }

    pub(crate) fn mode(&self) -> &'static str {
        match self.failover {
            true => "failover",
            false => "shared",
        }
    }

    /// Takes note of what the others tell.
    pub(super) fn saw(&self, presences: &[Presence], local_status: &LocalStatus, now: Moment) {
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
        view.others = alive.map(|p| Peer::of(p, self.failover)).collect();
        view.others.sort_by(|a, b| a.id.cmp(&b.id));
        view.heard = heard;
        let mut shares = view.others.clone();
        shares.push(self.me(local_status));
        // Who would take over may change all the time.
        shares.iter_mut().for_each(|peer| peer.stands_by.clear());
        if view.calm.as_ref().is_none_or(|(was, _)| *was != shares) {
            view.calm = Some((shares, now));
        }
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
            stands_by: std::collections::BTreeSet::new(),
        }
    }

    fn view(&self) -> MutexGuard<'_, View> {
        // Every change is complete before the lock is given back.
        self.view.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
