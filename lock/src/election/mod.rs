//! Elects one leader per name and keeps the other candidates ready.
//!
//! # States            standing by -> campaigning -> leading(term) -> standing by
//! # Invariants
//! - E1 A term ends no later than the lease behind it.                 (term_ends_with_its_lease)
//! - E2 A candidate's loop never ends by itself: errors of a store are waited out.   (a_standby_loop_never_ends)
//! - E3 An unfit replica does not campaign.                            (an_unfit_replica_does_not_campaign)
//! - E4 Candidates of one process bid in turn, as many at a time as one call carries: none waits so long for the others that it takes
//!   that for a silent node.                                            (candidates_of_one_process_bid_in_turn)
//! - W2 A candidate that stands by has told enough nodes that it waits, by a bid that N - q + 1 of them refused: the end of the
//!   lease is announced. It has looked before, and looks on all the same.   (w2_a_standby_has_told_the_nodes_that_it_waits)
//! - A candidate that waits in silence tells nothing, and looks on.   (a_silent_standby_tells_the_nodes_nothing)
//! - E5 While too few nodes vote a candidate asks them once in a ttl, and goes on as soon as enough do.
//!   (while_too_few_nodes_vote_candidates_ask_once_in_a_ttl)
//! # When things fail  Unsure means not leading: a bid that fails or is late is undone and tried again, later.
//! # Not promised      Two replicas may overlap if a process is frozen past its deadline: see the fencing token.
//!
//! # Example
//! ```
//! # use std::sync::Arc;
//! # use watchkeeper_lock::{Locks, clock::Clock, node::memory::MemoryNode};
//! # use watchkeeper_lock::Elector;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let node = MemoryNode::new("one", Clock::system());
//! # let locks = Locks::over(vec![Arc::new(node)]).start()?;
//! let term = Elector::new(&locks, "reconciler").campaign().await?;
//! tokio::select! {
//!     loss = term.lost() => println!("no longer leading: {loss}"),
//!     () = reconcile() => { term.resign().await; }
//! }
//! # async fn reconcile() {}
//! # Ok(())
//! # }
//! ```

mod state;
pub mod term;

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    acquire::{Locks, Releases},
    backoff::Backoff,
    expiry::{LockState, together},
    node::Kind,
    quorum::{Claim, Claimed, LockError, claim::AttemptMode},
};
use state::Next;
use term::Term;

/// For how long the nodes are told that a candidate waits. They are told again when half of it is over, and when the lock was seen
/// free meanwhile.
const WAITS: Duration = Duration::from_secs(600);

/// The elector of one name: `Elector::new(&locks, "reconciler").campaign().await?`.
#[derive(Clone, Debug)]
pub struct Elector {
    locks: Locks,
    claim: Claim,
    hesitation: Option<Hesitation>,
    shows: Option<Shows>,
    tells: Option<Tells>,
    looks_first: bool,
}

/// Whether the nodes are told that this candidate waits.
#[derive(Clone)]
struct Tells(Arc<dyn Fn() -> bool + Send + Sync>);

/// Told of what the nodes show.
#[derive(Clone)]
struct Shows(Arc<dyn Fn(&LockState) + Send + Sync>);

/// How long a candidate waits when the lock looks free, so that others may go first. Asked before the first bid of each
/// vacancy.
#[derive(Clone)]
#[doc(hidden)] // for the worker
pub struct Hesitation(Arc<dyn Fn() -> Duration + Send + Sync>);

/// A term, and for how long there was no leader before it.
#[doc(hidden)] // for the worker, with what it has timed
#[derive(Debug)]
pub struct Elected {
    /// The term.
    pub term: Term,
    /// For how long there was no leader before this acquisition; `None` when this process has seen no holder before.
    ///
    /// It counts from the release when the last holder has given the lock back. When a holder died is not known: then
    /// it counts from the middle between its last renewal and the next one, which has not come. So it is right to a
    /// sixth of the ttl. A holder that lived on without its nodes may have led for longer, at most to the end of its
    /// lease.
    pub leaderless: Option<Duration>,
}

impl Elector {
    /// A candidate for `elect/NAME`.
    #[must_use]
    pub fn new(locks: &Locks, name: &str) -> Self {
        Self::for_key(locks, format!("elect/{name}"))
    }

    /// A candidate for the lock of exactly this key; see [`Locks::lock_key`].
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn for_key(locks: &Locks, key: impl Into<String>) -> Self {
        let claim = Claim {
            key: key.into(),
            kind: Kind::Lock,
            ttl: None,
        };
        Self {
            locks: locks.clone(),
            claim,
            hesitation: None,
            shows: None,
            tells: None,
            looks_first: false,
        }
    }

    /// Sets the ttl of the lease behind each term; the default is the lock service's.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.claim.ttl = Some(ttl);
        self
    }

    /// Lets others go first.
    #[doc(hidden)] // for the worker
    pub fn hesitating(mut self, hesitation: Hesitation) -> Self {
        self.hesitation = Some(hesitation);
        self
    }

    /// Tells `to` of all that the nodes show of the lock.
    #[doc(hidden)] // for the worker
    pub fn showing(mut self, to: impl Fn(&LockState) + Send + Sync + 'static) -> Self {
        self.shows = Some(Shows(Arc::new(to)));
        self
    }

    /// The nodes are told that this candidate waits only while `tells` says so: others wait that are to be woken.
    #[doc(hidden)] // for the worker
    pub fn telling(mut self, tells: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.tells = Some(Tells(Arc::new(tells)));
        self
    }

    /// Looks before the first bid: another candidate leads, most likely.
    #[doc(hidden)] // for the worker
    pub fn looking_first(mut self, looks: bool) -> Self {
        self.looks_first = looks;
        self
    }

    /// Watches the lock as long as the answer lives, so that a campaign that begins later need not watch a holder that has died
    /// meanwhile for a ttl first. A campaign watches by itself: this is for the time before it, or between two. It costs one
    /// look per renewal, together with whatever else this process watches, and none while this process holds the lock.
    #[doc(hidden)] // for the worker
    #[must_use = "the lock is watched as long as this lives"]
    pub fn keep_watching(&self) -> impl Send + Sync + use<> {
        self.locks.keep_watching(&self.claim.key, self.claim.ttl)
    }

    /// Stands by until this replica leads. Store errors are waited out; a cancelled campaign leaves nothing behind.
    ///
    /// # Errors
    /// [`LockError::Closed`] and [`LockError::TtlTooLong`] only: waiting cannot cure these.
    pub async fn campaign(&self) -> Result<Term, LockError> {
        Ok(self.campaign_timed().await?.term)
    }

    /// As [`Elector::campaign`], and says for how long the lock had no leader.
    ///
    /// # Errors
    /// As [`Elector::campaign`].
    #[doc(hidden)] // for the worker
    pub async fn campaign_timed(&self) -> Result<Elected, LockError> {
        let locks = &self.locks;
        let (clock, chance, timing) = (locks.clock(), locks.chance(), locks.timing());
        // Also while this replica is unfit: once it is fit, the watch is not to begin anew.
        let _watching = self.keep_watching();
        let mut releases = locks.releases_of(&self.claim.key);
        let mut backoff = Backoff::new(timing.node_timeout / 5, self.own_ttl() / 10);
        // The very first bid goes blind: one round trip when the lock is free.
        let mut next = Next::Bid;
        let mut looks_first = self.looks_first;
        let mut one_first = false;
        let mut hesitated = false;
        loop {
            if !locks.votes().are_enough() {
                let enough = locks.votes().until_enough();
                let _ = clock.timeout(self.own_ttl().min(timing.ttl), enough).await;
            }
            if locks.fitness().unfit().is_some() {
                locks.fitness().fit().await;
            }
            let bids = next == Next::Bid && !std::mem::take(&mut looks_first);
            let pause = match &self.hesitation {
                Some(hesitation) if bids && !hesitated => (hesitation.0)(),
                _ => Duration::ZERO,
            };
            hesitated |= bids;
            if !pause.is_zero() {
                // Then it is looked at again: the candidate that was to go first may have it.
                clock.sleep(pause).await;
            } else if bids {
                let mode = AttemptMode {
                    one_first,
                    ..self.waiting()
                };
                if let Some(elected) = Box::pin(self.bid_once(mode)).await? {
                    return Ok(elected);
                }
                // Candidates that bid together split the vote: ask one node first from now on, and wait a random,
                // growing time (R6).
                one_first = true;
                clock.sleep(backoff.next(chance)).await;
            }
            let seen = self.look().await?;
            next = self.next(&seen);
            if next != Next::Bid {
                backoff.reset();
                one_first = false;
                hesitated = false;
                if self.watch(&seen, &mut releases).await {
                    next = Next::Bid;
                }
            }
        }
    }

    /// What the nodes show of the lock.
    #[doc(hidden)] // for the worker
    pub async fn look(&self) -> Result<LockState, LockError> {
        let seen = self.locks.look(vec![self.claim.key.clone()]).await?;
        let seen = seen.into_iter().next().ok_or(LockError::Closed)?;
        if seen.looks_free() {
            self.locks.told_no_more(&self.claim.key);
        }
        if let Some(Shows(to)) = &self.shows {
            to(&seen);
        }
        Ok(seen)
    }

    /// One bid; nothing when another candidate holds the lock, or when bids have stood in each other's way. With `one_first`
    /// one node is asked before the others, so that candidates that bid together split no votes.
    #[doc(hidden)] // for the worker and the programs of the command
    pub async fn bid(&self, one_first: bool) -> Result<Option<Term>, LockError> {
        let mode = AttemptMode {
            one_first,
            ..self.waiting()
        };
        let elected = self.bid_once(mode).await?;
        Ok(elected.map(|elected| elected.term))
    }

    fn waiting(&self) -> AttemptMode {
        AttemptMode {
            waits: if self.tells() { WAITS } else { Duration::ZERO },
            ..AttemptMode::default()
        }
    }

    fn tells(&self) -> bool {
        self.tells.as_ref().is_none_or(|Tells(tells)| tells())
    }

    async fn bid_once(&self, mode: AttemptMode) -> Result<Option<Elected>, LockError> {
        let waits = mode.waits;
        let (bid, seen, position) = {
            let _turn = self.locks.turn_to_bid().await;
            self.locks.attempt(&self.claim, mode).await?
        };
        if position.told && !waits.is_zero() {
            self.locks.told(&self.claim.key, WAITS / 2);
        }
        let Claimed::Acquired(lease) = bid else {
            tracing::debug!(key = self.claim.key, ?bid, "bid failed");
            return Ok(None);
        };
        let now = self.locks.clock().now();
        Ok(Some(Elected {
            leaderless: seen.vacant_since.map(|at| now.since(at)),
            term: Term::new(lease),
        }))
    }

    /// Waits until it makes sense to look again at a lock that another candidate holds, or to bid: whether its holder has
    /// released it. That is announced where a candidate has said that it waits; unless enough nodes know, this says it first,
    /// with a bid that is refused while the lock is held.
    #[doc(hidden)] // for the worker and the programs of the command
    pub async fn watch(&self, seen: &LockState, releases: &mut Releases) -> bool {
        let (clock, chance) = (self.locks.clock(), self.locks.chance());
        let Next::Watch { pause, exact } = self.next(seen) else {
            return false;
        };
        let mut at = clock.now() + pause;
        let held = seen.held_on();
        if seen.are_enough(&held) && self.tells() && !self.locks.has_told(&self.claim.key) {
            let mode = AttemptMode {
                only: Some(held),
                ..self.waiting()
            };
            // Released since it was seen, and won although its caller has not said that it bids now: it is given back.
            if matches!(Box::pin(self.bid_once(mode)).await, Ok(Some(_))) {
                return true;
            }
        }
        if !exact {
            at = together(at, self.own_ttl());
        }
        let holder = seen.holder();
        // As far as can be seen the holder's life ends here, unless it is renewed.
        tokio::select! {
            biased;
            () = releases.released(&self.claim.key, holder.as_deref()) => {
                clock.sleep(chance.up_to(self.locks.timing().node_timeout / 10)).await;
                // That of an owner that no majority shows means only that it is time to look again.
                holder.is_some()
            }
            () = clock.sleep_until(at) => false,
        }
    }

    fn next(&self, seen: &LockState) -> Next {
        state::next(seen, self.own_ttl() / 2)
    }

    fn own_ttl(&self) -> Duration {
        self.claim.ttl.unwrap_or(self.locks.timing().ttl)
    }
}

// === impl Hesitation ===

impl Hesitation {
    #[doc(hidden)] // for the worker
    pub fn new(pause: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(pause))
    }
}

impl fmt::Debug for Tells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tells")
    }
}

impl fmt::Debug for Shows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shows")
    }
}

impl fmt::Debug for Hesitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hesitation")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::{
        chance::Chance,
        node::{
            Expiry, Node, Op,
            memory::{Cut, MemoryNode},
            rules::Row,
        },
        quorum::link::MOST_OPS,
        sim_clock::SimTime,
        spawn::Spawn,
    };

    const TTL: Duration = Duration::from_secs(10);

    /// Nodes in memory, and candidates for one lock there.
    struct Scene {
        time: SimTime,
        nodes: Vec<MemoryNode>,
    }

    impl Scene {
        fn new(nodes: usize) -> Self {
            let time = SimTime::new();
            let node = |n| MemoryNode::new(format!("n{n}"), time.clock());
            Self {
                nodes: (0..nodes).map(node).collect(),
                time,
            }
        }

        fn candidate(&self, expiry: Expiry, seed: u64) -> Elector {
            let nodes = self.nodes.iter();
            let nodes = nodes.map(|node| Arc::new(node.clone()) as Arc<dyn Node>);
            let locks = Locks::over(nodes.collect())
                .expiry(expiry)
                .clock(self.time.clock())
                .chance(Chance::seeded(seed))
                .keeper_here(Spawn::system())
                .start()
                .unwrap();
            Elector::new(&locks, "x").ttl(TTL)
        }

        /// How many nodes know that a candidate waits.
        fn told(&self) -> usize {
            let waits = |node: &&MemoryNode| {
                let now = node.time();
                node.inspect(|state| match state.row("elect/x") {
                    Some(Row::Record(entry)) => entry.waits > now,
                    _ => false,
                })
            };
            self.nodes.iter().filter(waits).count()
        }

        /// How long the next one takes to lead when the term is resigned after it was `watched`.
        async fn succeeded(
            &self,
            next: Elector,
            term: Term,
            watched: impl Future<Output = ()>,
        ) -> Duration {
            let resigns = async {
                watched.await;
                let resigned = self.time.elapsed();
                term.resign().await;
                resigned
            };
            let leads = async {
                let next = next.campaign().await.unwrap();
                (next, self.time.elapsed())
            };
            let ((next, elected), resigned) = tokio::join!(leads, resigns);
            next.resign().await;
            elected - resigned
        }
    }

    #[tokio::test(start_paused = true)]
    async fn w2_a_standby_has_told_the_nodes_that_it_waits() {
        for expiry in [Expiry::Server, Expiry::Observed] {
            let scene = Scene::new(3);
            let term = scene.candidate(expiry, 1).campaign().await.unwrap();
            assert_eq!(scene.told(), 0);
            let watched = async {
                for _ in 0..40 {
                    scene.time.clock().sleep(TTL * 6).await;
                    assert!(scene.told() >= 2, "{} of 3", scene.told());
                }
            };
            let next = scene.candidate(expiry, 2);
            let took = scene.succeeded(next, term, watched).await;
            assert!(took < Duration::from_millis(100), "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn while_too_few_nodes_vote_candidates_ask_once_in_a_ttl() {
        let scene = Scene::new(3);
        for node in &scene.nodes[..2] {
            node.faults().partition(Cut::Refuse);
        }
        let looks = Arc::new(AtomicUsize::new(0));
        let counted = looks.clone();
        let candidate = scene.candidate(Expiry::Observed, 1);
        let candidate = candidate.showing(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        let leads = async {
            let term = candidate.campaign().await.unwrap();
            (term, scene.time.elapsed())
        };
        let heals = async {
            scene.time.clock().sleep(TTL * 10).await;
            let looked = looks.load(Ordering::SeqCst);
            assert!(looked <= 12, "{looked} looks in ten times the ttl");
            for node in &scene.nodes[..2] {
                node.faults().heal();
            }
            scene.time.elapsed()
        };
        let ((term, elected), healed) = tokio::join!(leads, heals);
        let took = elected - healed;
        assert!(took < Duration::from_millis(500), "{took:?}");
        term.resign().await;
    }

    #[tokio::test(start_paused = true)]
    async fn candidates_of_one_process_bid_in_turn() {
        let time = SimTime::new();
        let node = MemoryNode::new("one", time.clock());
        let locks = Locks::over(vec![Arc::new(node.clone())])
            .clock(time.clock())
            .chance(Chance::seeded(1))
            .keeper_here(Spawn::system())
            .start()
            .unwrap();
        node.faults().partition(Cut::Hang);
        let elected = Arc::new(AtomicUsize::new(0));
        let all = MOST_OPS * 3;
        for n in 0..all {
            let (elector, elected) = (Elector::new(&locks, &format!("{n}")), elected.clone());
            drop(Spawn::system().spawn(async move {
                let _term = elector.campaign().await.unwrap();
                elected.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
            }));
        }
        time.clock().sleep(Duration::from_millis(1)).await;
        assert_eq!(locks.bids_left(), 0, "the others wait");
        node.faults().heal();
        time.clock().sleep(TTL).await;
        assert_eq!(elected.load(Ordering::SeqCst), all);
        assert_eq!(locks.bids_left(), MOST_OPS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_standby_tells_the_nodes_nothing() {
        let scene = Scene::new(1);
        let bids = Arc::new(AtomicUsize::new(0));
        let term = scene.candidate(Expiry::Server, 1).campaign().await.unwrap();
        let count = bids.clone();
        scene.nodes[0].observe(move |executed| {
            let bid = |op: &&Op| matches!(op, Op::Acquire { .. });
            let these = executed.call.ops.iter().filter(bid).count();
            count.fetch_add(these, Ordering::SeqCst);
        });
        let silent = scene.candidate(Expiry::Server, 2);
        let silent = silent.telling(|| false).looking_first(true);
        let watched = async {
            scene.time.clock().sleep(TTL * 3).await;
            assert_eq!((bids.load(Ordering::SeqCst), scene.told()), (0, 0));
        };
        let took = scene.succeeded(silent, term, watched).await;
        // Nothing wakes it: it comes with its next look.
        assert!(took <= TTL / 2 + TTL / 20, "{took:?}");
    }
}
