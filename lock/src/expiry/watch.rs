//! Which holders are over, as far as this client has seen: the watch behind observed expiry.
//!
//! Redis ends a key's life by its wall clock, so a clock that jumps ends a living lease. Therefore the record beside
//! a named lock keeps its holder and the number of the holder's last round. A contender takes over a record that it
//! has watched standing still on its *own* clock. A node believes nothing of this: what is expected is sent with the
//! call, and the node compares it with what stands there, in one atomic step (O1).
//!
//! # Invariants
//! - O2 A record may be taken when exactly it stood still for *its own* ttl, with an allowance for clock rates, from the
//!   arrival of the first reply that showed it.          (a_holder_is_over_after_standing_still_for_its_ttl)
//! - O2 Or when its owner is known to be over: it was seen released anywhere, or it is an attempt of our own that was given
//!   up.                                                 (whoever_was_released_anywhere_is_over_everywhere)
//! - An announcement proves nothing of an owner: one node that has forgotten a record which stood still there announces the same
//!   as one that was told of a release.                  (a_record_that_one_node_forgets_costs_its_living_holder_nothing)
//! - Silence proves nothing: a node that does not answer is taken by what it showed last, and compares.
//! - A foreign client's value is waited for, never taken.  (a_foreign_value_is_waited_for)

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use crate::{
    clock::Moment,
    node::{Expiry, Seen, Take, View},
    settings::Timing,
};

/// Owners remembered as over, at most: forgetting one costs a wait, never safety.
const MOST_OVER: usize = 8192;

/// A record that was not looked at for so long is forgotten.
const UNUSED: Duration = Duration::from_secs(600);

/// With records of more locks than this they are forgotten sooner: that costs a wait as well.
const MANY: usize = 20_000;
const UNUSED_OF_MANY: Duration = Duration::from_secs(30);

/// What this client has seen of other holders.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// By key: of each node what it showed. There are a few nodes, and a hundred thousand keys.
    records: BTreeMap<String, Vec<(usize, Watched)>>,
    /// Lock and owner: one owner value may stand for several claims of one attempt.
    over: BTreeSet<(String, String)>,
    /// In the order in which they were learned.
    order: VecDeque<(String, String)>,
    swept: Moment,
}

/// One node's record of one lock.
#[derive(Debug)]
struct Watched {
    seen: Seen,
    ttl: Duration,
    /// When the first reply that showed exactly this had arrived.
    since: Moment,
    /// When the last one had.
    last: Moment,
}

// === impl Watch ===

impl Watch {
    /// Takes note of what a node showed; `at` was read when its reply had arrived.
    pub(crate) fn note(&mut self, node: usize, view: &View, at: Moment) {
        let owner = view.owner.as_deref().unwrap_or_default();
        if view.released {
            self.is_over(&view.key, owner);
        }
        if owner.is_empty() || view.released || !view.named {
            if let Some(nodes) = self.records.get_mut(&view.key) {
                nodes.retain(|(of, _)| *of != node);
                if nodes.is_empty() {
                    self.records.remove(&view.key);
                }
            }
            return;
        }
        let nodes = self.records.entry(view.key.clone()).or_default();
        let known = nodes.iter_mut().find(|(of, _)| *of == node);
        let known = known.map(|(_, watched)| watched);
        match known {
            Some(known) if known.seen.is(view) => known.last = at,
            known => {
                let watched = Watched {
                    seen: Seen {
                        inc: view.inc.clone(),
                        owner: owner.to_owned(),
                        seq: view.seq,
                    },
                    ttl: Duration::from_millis(view.ttl_ms),
                    since: at,
                    last: at,
                };
                match known {
                    Some(known) => *known = watched,
                    None => {
                        nodes.reserve_exact(1);
                        nodes.push((node, watched));
                    }
                }
            }
        }
        self.sweep(at);
    }

    /// This owner's lease of the lock, or attempt at it, is over on all nodes.
    pub(crate) fn is_over(&mut self, key: &str, owner: &str) {
        let over = (key.to_owned(), owner.to_owned());
        if owner.is_empty() || !self.over.insert(over.clone()) {
            return;
        }
        self.order.push_back(over);
        if self.order.len() > MOST_OVER
            && let Some(oldest) = self.order.pop_front()
        {
            self.over.remove(&oldest);
        }
    }

    fn watched(&self, node: usize, key: &str) -> Option<&Watched> {
        let nodes = self.records.get(key)?;
        let found = nodes.iter().find(|(of, _)| *of == node);
        found.map(|(_, watched)| watched)
    }

    /// Whether a record of this lock was seen.
    pub(crate) fn knows(&self, key: &str) -> bool {
        self.records.contains_key(key)
    }

    /// What to send along when a node's record may be taken at `now`: what is expected to stand there.
    pub(crate) fn expected(
        &self,
        node: usize,
        key: &str,
        now: Moment,
        timing: &Timing,
    ) -> Option<Seen> {
        let watched = self.watched(node, key)?;
        let ripe = self.ripe_in(key, watched, now, timing).is_zero();
        ripe.then(|| watched.seen.clone())
    }

    /// How long until this node looks takable, when nothing changes there; `None` when only its holder can tell.
    pub(crate) fn wait(
        &self,
        node: usize,
        view: &View,
        now: Moment,
        timing: &Timing,
        expiry: Expiry,
    ) -> Option<Duration> {
        let life = view.remaining_ms.map(Duration::from_millis);
        let held = view.holder.is_some();
        let barred = held && view.holder != view.owner;
        if barred || expiry == Expiry::Server {
            return if held { life } else { Some(Duration::ZERO) };
        }
        if view.owner.is_none() || view.released || !view.named {
            return Some(Duration::ZERO);
        }
        let watched = self.watched(node, &view.key);
        match watched.filter(|watched| watched.seen.is(view)) {
            Some(watched) => Some(self.ripe_in(&view.key, watched, now, timing)),
            None => Some(timing.watch_time(Duration::from_millis(view.ttl_ms))),
        }
    }

    /// Whether nothing that was seen of this node says that the lock is held there.
    pub(crate) fn looks_takable(
        &self,
        node: usize,
        key: &str,
        now: Moment,
        timing: &Timing,
    ) -> bool {
        let watched = self.watched(node, key);
        watched.is_none_or(|watched| self.ripe_in(key, watched, now, timing).is_zero())
    }

    fn ripe_in(&self, key: &str, watched: &Watched, now: Moment, timing: &Timing) -> Duration {
        let known = (key.to_owned(), watched.seen.owner.clone());
        if self.over.contains(&known) {
            return Duration::ZERO;
        }
        (watched.since + timing.watch_time(watched.ttl)).since(now)
    }

    fn sweep(&mut self, now: Moment) {
        let unused = match self.records.len() {
            0..MANY => UNUSED,
            _ => UNUSED_OF_MANY,
        };
        if now.since(self.swept) < unused {
            return;
        }
        self.swept = now;
        self.records.retain(|_, nodes| {
            nodes.retain(|(_, w)| now.since(w.last) < unused.max(w.ttl * 4));
            !nodes.is_empty()
        });
    }
}

/// How this node's record is to be taken at `now`.
pub(crate) fn take(expiry: Expiry, expected: impl FnOnce() -> Option<Seen>) -> Take {
    match expiry {
        Expiry::Server => Take::Server,
        Expiry::Observed => Take::Observed(expected()),
    }
}

// === impl Seen ===

impl Seen {
    /// Whether a view shows exactly this.
    pub(crate) fn is(&self, view: &View) -> bool {
        view.owner.as_deref() == Some(&self.owner) && view.seq == self.seq && view.inc == self.inc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn at(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    fn shows(owner: &str, seq: u64) -> View {
        View {
            key: "k".into(),
            holder: Some(owner.into()),
            remaining_ms: Some(9_000),
            owner: Some(owner.into()),
            seq,
            ttl_ms: 10_000,
            named: true,
            ..View::default()
        }
    }

    fn expected(watch: &Watch, node: usize, ms: u64) -> Option<u64> {
        let seen = watch.expected(node, "k", at(ms), &Timing::default());
        seen.map(|seen| seen.seq)
    }

    #[test]
    fn a_holder_is_over_after_standing_still_for_its_ttl() {
        let mut watch = Watch::default();
        watch.note(0, &shows("a", 3), at(1_000));
        watch.note(0, &shows("a", 3), at(6_000));
        // The record's ttl, one percent of it, and a granule of clocks.
        assert_eq!(expected(&watch, 0, 11_101), None);
        assert_eq!(expected(&watch, 0, 11_102), Some(3));
        assert_eq!(
            expected(&watch, 1, 11_102),
            None,
            "another node was not seen"
        );
        watch.note(0, &shows("a", 4), at(11_000));
        assert_eq!(expected(&watch, 0, 11_102), None, "it has moved");
        assert_eq!(expected(&watch, 0, 21_102), Some(4));
    }

    #[test]
    fn another_owner_or_incarnation_starts_anew() {
        let mut watch = Watch::default();
        watch.note(0, &shows("a", 3), at(0));
        let reborn = View {
            inc: "x".into(),
            ..shows("a", 3)
        };
        watch.note(0, &reborn, at(10_000));
        assert_eq!(expected(&watch, 0, 10_102), None);
        watch.note(0, &shows("b", 0), at(15_000));
        assert_eq!(expected(&watch, 0, 20_102), None);
        let unnamed = View {
            named: false,
            ..shows("b", 0)
        };
        watch.note(0, &unnamed, at(16_000));
        assert_eq!(expected(&watch, 0, 90_000), None, "no owner is named there");
    }

    #[test]
    fn whoever_was_released_anywhere_is_over_everywhere() {
        let mut watch = Watch::default();
        watch.note(0, &shows("a", 3), at(0));
        watch.note(1, &shows("a", 2), at(0));
        let released = View {
            released: true,
            ..shows("a", 3)
        };
        watch.note(2, &released, at(5));
        assert_eq!(expected(&watch, 0, 5), Some(3));
        assert_eq!(expected(&watch, 1, 5), Some(2));
    }

    #[test]
    fn a_broken_holder_is_watched_like_a_silent_one() {
        let mut watch = Watch::default();
        let broken = View {
            broken: true,
            ..shows("a", 3)
        };
        watch.note(0, &broken, at(0));
        assert_eq!(expected(&watch, 0, 5_000), None);
        assert_eq!(expected(&watch, 0, 10_102), Some(3));
    }

    #[test]
    fn a_foreign_value_is_waited_for() {
        let watch = Watch::default();
        let wait = |view: &View, expiry| watch.wait(0, view, at(0), &Timing::default(), expiry);
        let foreign = View {
            holder: Some("theirs".into()),
            foreign: true,
            ..shows("a", 3)
        };
        for expiry in [Expiry::Server, Expiry::Observed] {
            assert_eq!(wait(&foreign, expiry), Some(Duration::from_secs(9)));
        }
        let endless = View {
            remaining_ms: None,
            ..foreign
        };
        assert_eq!(wait(&endless, Expiry::Observed), None);
    }

    #[test]
    fn the_key_decides_nothing_when_expiry_is_observed() {
        let mut watch = Watch::default();
        let vanished = View {
            holder: None,
            remaining_ms: None,
            ..shows("a", 3)
        };
        let timing = Timing::default();
        watch.note(0, &vanished, at(0));
        let wait = |watch: &Watch, ms, expiry| watch.wait(0, &vanished, at(ms), &timing, expiry);
        assert_eq!(wait(&watch, 0, Expiry::Server), Some(Duration::ZERO));
        let whole = timing.watch_time(TTL);
        assert_eq!(wait(&watch, 0, Expiry::Observed), Some(whole));
        assert_eq!(vanished.holder_by(Expiry::Observed), Some("a"));
        assert_eq!(vanished.holder_by(Expiry::Server), None);
        watch.is_over("k", "a");
        assert_eq!(wait(&watch, 0, Expiry::Observed), Some(Duration::ZERO));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut watch = Watch::default();
        for n in 0..MOST_OVER + 10 {
            watch.is_over("k", &format!("o{n}"));
        }
        assert_eq!(
            (watch.over.len(), watch.order.len()),
            (MOST_OVER, MOST_OVER)
        );
        watch.note(0, &shows("a", 1), at(0));
        let later = View {
            key: "other".into(),
            ..shows("b", 1)
        };
        watch.note(0, &later, at(700_000));
        assert_eq!(watch.records.len(), 1);
        for n in 0..=MANY {
            let one = View {
                key: n.to_string(),
                ..shows("c", 1)
            };
            watch.note(0, &one, at(701_000));
        }
        watch.note(0, &later, at(742_000));
        assert_eq!(watch.records.len(), 1, "of many after four ttls");
    }
}
