//! What the nodes show of a lock, and what follows for a client that wants it: plain functions.

use std::time::Duration;

use crate::{
    clock::Moment,
    node::{Expiry, NodeError, Record, Token, View, majority, rules::DOUBTED},
};

/// What each node shows of one lock, in the order of the configuration, and how long the process that looked would
/// have to wait.
#[doc(hidden)] // for the commands, and for the worker
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LockState {
    /// The lock's key.
    pub key: String,
    /// Each node's view, or why it gave none.
    pub nodes: Vec<Result<View, NodeError>>,
    expiry: Expiry,
    /// Per node: how long until it looks takable, unless anything changes there.
    waits: Vec<Option<Duration>>,
    /// Since when the lock was free, for the owner that has just acquired it; `None` when no earlier holder was seen.
    pub(crate) vacant_since: Option<Moment>,
}

impl LockState {
    /// Judged by the lives of the keys alone.
    #[must_use]
    pub fn new(key: impl Into<String>, nodes: Vec<Result<View, NodeError>>) -> Self {
        let wait = |view: &View| match view.holder {
            Some(_) => view.remaining_ms.map(Duration::from_millis),
            None => Some(Duration::ZERO),
        };
        let waits = nodes.iter().map(|n| n.as_ref().ok().and_then(wait));
        Self {
            waits: waits.collect(),
            key: key.into(),
            nodes,
            expiry: Expiry::Server,
            vacant_since: None,
        }
    }

    pub(crate) fn judged(
        key: String,
        nodes: Vec<Result<View, NodeError>>,
        expiry: Expiry,
        waits: Vec<Option<Duration>>,
    ) -> Self {
        Self {
            key,
            nodes,
            expiry,
            waits,
            vacant_since: None,
        }
    }

    /// Nodes that look takable to the process that looked: the lock is free there, or its holder is over.
    #[must_use]
    pub fn takable(&self) -> usize {
        self.waits
            .iter()
            .filter(|w| **w == Some(Duration::ZERO))
            .count()
    }

    /// Whether a majority of the configured nodes looks takable.
    #[must_use]
    pub fn looks_free(&self) -> bool {
        self.takable() >= majority(self.nodes.len())
    }

    /// The owner that a majority of the configured nodes shows: no other can be leading. With observed expiry it may
    /// have been dead for a while: only watching tells.
    #[must_use]
    pub fn holder(&self) -> Option<String> {
        let shown = || self.views().filter_map(|v| v.holder_by(self.expiry));
        let most = shown().max_by_key(|h| (shown().filter(|o| o == h).count(), *h))?;
        let votes = shown().filter(|o| *o == most).count();
        (votes >= majority(self.nodes.len())).then(|| most.to_owned())
    }

    /// When a majority would look takable unless a lease is extended: the q-th smallest of the waits. `None` when too
    /// few nodes answered, or keys without a time to live stand in the way.
    #[must_use]
    pub fn free_in(&self) -> Option<Duration> {
        let mut waits: Vec<Duration> = self.waits.iter().flatten().copied().collect();
        waits.sort_unstable();
        waits.get(majority(self.nodes.len()) - 1).copied()
    }

    /// When to look again, at the latest, so that a holder's sign of life is seen just after it is given: a watch that
    /// begins later ends later. `None` where the keys' lives decide.
    #[must_use]
    pub(crate) fn look_in(&self) -> Option<Duration> {
        if self.expiry == Expiry::Server {
            return None;
        }
        let next = |view: &View| {
            let ttl = Duration::from_millis(view.ttl_ms);
            let life = Duration::from_millis(view.remaining_ms?);
            // A third of the ttl after the last sign of life, and a little for its way. One that is overdue may come yet.
            Some(life.saturating_sub(ttl * 2 / 3).max(ttl / 16) + ttl / 100)
        };
        self.views().filter_map(next).min()
    }

    /// The holder that a majority shows, the ttl of its lease, and its last sign of life as far as any node shows it at `now`:
    /// none once its keys have run out, so that it is a ttl ago at least.
    pub(crate) fn alive(&self, now: Moment) -> Option<(String, Duration, Option<Moment>)> {
        let holder = self.holder()?;
        let its = self
            .views()
            .filter(|view| view.holder_by(self.expiry) == Some(&*holder));
        let sign = |view: &View| {
            let ttl = Duration::from_millis(view.ttl_ms);
            let left = view.remaining_ms.map(Duration::from_millis);
            let alive = match (&view.holder, left) {
                (None, _) => None,
                (Some(_), Some(left)) if view.holder == view.owner => {
                    Some(now.back(ttl.saturating_sub(left)))
                }
                // A foreign client's: how long its life was is not known.
                (Some(_), _) => Some(now),
            };
            (alive, ttl)
        };
        let (alive, ttl) = its.map(sign).max()?;
        Some((holder, ttl, alive))
    }

    /// The owners in the records, one for each node that shows any.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &str> {
        self.views().filter_map(|view| view.owner.as_deref())
    }

    /// Whether a lock that is free shows that `owner` has released it, or nothing of that owner.
    pub(crate) fn shows_over(&self, owner: &str) -> bool {
        let mut its = self
            .views()
            .filter(|view| view.owner.as_deref() == Some(owner))
            .peekable();
        match its.peek() {
            None => self.looks_free(),
            Some(_) => its.any(|view| view.released),
        }
    }

    /// Whether the lock stands only in records: no majority shows a value in its key any more, but neither does one
    /// look takable. Its holder has gone without a word, most likely.
    #[must_use]
    pub fn is_orphaned(&self) -> bool {
        let keyless = self.views().filter(|v| v.holder.is_none()).count();
        keyless >= majority(self.nodes.len()) && !self.looks_free()
    }

    /// Whether a majority shows a holder that may be alive: its keys have not run out, and it was not watched standing still.
    #[must_use]
    pub fn shows_life(&self) -> bool {
        self.holder().is_some() && !self.looks_free() && !self.is_orphaned()
    }

    /// What the process that looked goes by: the lives of the keys, or what it has watched.
    #[must_use]
    pub fn expiry(&self) -> Expiry {
        self.expiry
    }

    /// Whether so many of the nodes are among these that a client which has told them may sleep (W2).
    pub(crate) fn are_enough(&self, nodes: &[usize]) -> bool {
        nodes.len() > self.nodes.len() - majority(self.nodes.len())
    }

    /// The nodes that show a holder.
    pub(crate) fn held_on(&self) -> Vec<usize> {
        let nodes = self.nodes.iter().enumerate();
        let held = |view: &View| view.holder_by(self.expiry).is_some();
        let held = nodes.filter(|(_, shown)| shown.as_ref().is_ok_and(held));
        held.map(|(node, _)| node).collect()
    }

    /// What foreign clients have written where no owner of ours has a majority: they announce no end of it. Sorted; empty
    /// when the lock looks free, or one of ours holds it.
    pub(crate) fn foreign(&self) -> Vec<&str> {
        let holder = self.holder();
        let own = |view: &View| !view.foreign && view.holder_by(self.expiry) == holder.as_deref();
        if self.looks_free() || holder.is_some() && self.views().any(own) {
            return Vec::new();
        }
        let theirs = self.views().filter(|view| view.foreign);
        let mut theirs: Vec<&str> = theirs.filter_map(|view| view.holder.as_deref()).collect();
        theirs.sort_unstable();
        theirs.dedup();
        theirs
    }

    /// The longest ttl of this owner's lease that any node shows.
    pub(crate) fn ttl_of(&self, owner: &str) -> Option<Duration> {
        let its = self
            .views()
            .filter(|view| view.owner.as_deref() == Some(owner));
        its.map(|view| Duration::from_millis(view.ttl_ms)).max()
    }

    /// The largest token that any node shows; what is out of range only where a majority shows such tokens.
    #[must_use]
    pub fn token(&self) -> Token {
        let far = self.views().filter(|v| v.token >= DOUBTED).count();
        let believed = far >= majority(self.nodes.len());
        let tokens = self.views().map(|v| v.token);
        let tokens = tokens.filter(|token| believed || *token < DOUBTED);
        tokens.max().unwrap_or_default()
    }

    /// The newest record body that any node shows.
    #[must_use]
    pub fn record(&self) -> Record {
        self.newest().cloned().unwrap_or_default()
    }

    #[doc(hidden)] // for the worker
    pub fn newest(&self) -> Option<&Record> {
        self.views().map(|v| &v.record).max_by_key(|r| r.version)
    }

    fn views(&self) -> impl Iterator<Item = &View> {
        self.nodes.iter().filter_map(|n| n.as_ref().ok())
    }
}

/// Those of one process look at their locks at the same moments: one call per node serves them all.
pub(crate) fn together(at: Moment, ttl: Duration) -> Moment {
    let grid = (ttl / 40).max(Duration::from_millis(1)).as_micros();
    let steps = at.since_boot().as_micros().div_ceil(grid);
    let micros = u64::try_from(steps.saturating_mul(grid)).unwrap_or(u64::MAX);
    Moment::ZERO + Duration::from_micros(micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_of_one_process_look_together() {
        let ttl = Duration::from_secs(10);
        let at = |ms| Moment::ZERO + Duration::from_millis(ms);
        assert_eq!(together(at(1), ttl), at(250));
        assert_eq!(together(at(250), ttl), at(250));
        assert_eq!(together(at(251), ttl), at(500));
    }

    #[test]
    fn a_sign_of_life_is_as_old_as_the_life_that_has_gone() {
        let now = Moment::from_boot(Duration::from_secs(100));
        let ms = Duration::from_millis;
        let shows = |holder: Option<&str>, left: Option<u64>| {
            Ok(View {
                holder: holder.map(str::to_owned),
                remaining_ms: left,
                owner: Some("a".into()),
                ttl_ms: 900,
                named: true,
                ..View::default()
            })
        };
        let seen = |nodes| LockState::judged("k".into(), nodes, Expiry::Observed, Vec::new());
        let alive = |nodes| seen(nodes).alive(now).map(|(_, _, alive)| alive);
        let held = |left| shows(Some("a"), Some(left));
        assert_eq!(
            alive(vec![held(500), held(700), down()]),
            Some(Some(now.back(ms(200))))
        );
        let gone = || shows(None, None);
        assert_eq!(alive(vec![gone(), gone(), gone()]), Some(None));
        let foreign = || shows(Some("theirs"), Some(9_000));
        let theirs = alive(vec![foreign(), foreign(), held(1)]);
        assert_eq!(theirs, Some(Some(now)));
        assert_eq!(alive(vec![held(500), down(), down()]), None, "no majority");
    }

    fn held(by: &str, ms: u64) -> Result<View, NodeError> {
        Ok(View {
            holder: Some(by.into()),
            remaining_ms: Some(ms),
            ..View::default()
        })
    }
    fn free() -> Result<View, NodeError> {
        Ok(View::default())
    }
    fn down() -> Result<View, NodeError> {
        Err(NodeError::Unreachable("test".into()))
    }
    fn state(nodes: Vec<Result<View, NodeError>>) -> LockState {
        LockState::new("k", nodes)
    }

    #[test]
    fn a_lock_looks_free_only_on_a_majority_of_the_configured_nodes() {
        assert!(state(vec![free(), free(), held("a", 9)]).looks_free());
        assert!(!state(vec![free(), down(), down()]).looks_free());
        assert_eq!(state(vec![free(), down(), down()]).free_in(), None);
    }

    #[test]
    fn the_wait_is_the_remaining_life_on_the_deciding_node() {
        let s = state(vec![held("a", 900), held("a", 300), held("a", 500)]);
        assert_eq!(s.free_in(), Some(Duration::from_millis(500)));
        assert_eq!(s.holder().as_deref(), Some("a"));
        assert_eq!(
            state(vec![held("a", 1), held("b", 1), free()]).holder(),
            None
        );
    }

    #[test]
    fn a_foreign_value_bars_a_lock_unless_one_of_ours_holds_it() {
        let foreign = |value: &str| {
            held(value, 900).map(|view| View {
                foreign: true,
                ..view
            })
        };
        let barred = state(vec![foreign("x"), foreign("y"), foreign("x")]);
        assert_eq!(barred.foreign(), ["x", "y"]);
        // One node has let go already, or an attempt of ours stands there.
        assert_eq!(
            state(vec![foreign("x"), held("a", 9), free()]).foreign(),
            ["x"]
        );
        assert_eq!(state(vec![foreign("x"), down(), down()]).foreign(), ["x"]);
        let none: [&str; 0] = [];
        assert_eq!(state(vec![foreign("x"), free(), free()]).foreign(), none);
        let ours = state(vec![foreign("x"), held("a", 9), held("a", 9)]);
        assert_eq!(ours.foreign(), none);
    }

    #[test]
    fn with_observed_expiry_the_waits_decide_and_the_keys_do_not() {
        let record = |holder: Option<&str>, ms: Option<u64>| {
            Ok(View {
                holder: holder.map(str::to_owned),
                remaining_ms: ms,
                owner: Some("a".into()),
                ttl_ms: 900,
                named: true,
                ..View::default()
            })
        };
        let ms = Duration::from_millis;
        let judged = |nodes, waits: [Option<u64>; 3]| {
            let waits = waits.map(|w| w.map(ms)).into();
            LockState::judged("k".into(), nodes, Expiry::Observed, waits)
        };
        // A clock jumped: the keys are gone, the holder is not.
        let s = judged(
            vec![record(None, None); 3],
            [Some(400), Some(300), Some(909)],
        );
        assert_eq!((s.holder().as_deref(), s.looks_free()), (Some("a"), false));
        assert_eq!((s.free_in(), s.is_orphaned()), (Some(ms(400)), true));
        assert!(!s.shows_life());
        let renewed = judged(vec![record(Some("a"), Some(700)); 3], [Some(909); 3]);
        assert!(renewed.shows_life());
        assert!(
            !judged(
                vec![down(), down(), record(Some("a"), Some(700))],
                [None; 3]
            )
            .shows_life()
        );

        let living = vec![record(Some("a"), Some(700)); 3];
        let s = judged(living, [Some(0), Some(0), Some(500)]);
        assert!(s.looks_free() && !s.is_orphaned());
        // Extended 200 ms ago: the next one is due in 100.
        assert_eq!(s.look_in(), Some(ms(109)));
        assert_eq!(state(vec![held("a", 9)]).look_in(), None);
    }
}
