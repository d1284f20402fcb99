//! A held lock: who holds it, under which token, until when.
//!
//! # States            held -> over(loss), for ever
//! # Invariants
//! - L1 A lease ends at its local deadline, whatever the network says.  (a_lease_ends_at_its_deadline)
//! - L2 A lost lease is final: no later extension revives it.           (a_lost_lease_stays_lost)
//! - L3 A lease answers from the clock, not from the last message: a process that was frozen sees the end
//!   of its lease before it is told.                                      (the_clock_ends_a_lease_before_any_message)
//! - L4 Nothing starts under a lease whose keeper was frozen, until a majority of nodes has confirmed the lease.
//!   (after_a_freeze_nothing_starts_before_the_lease_is_verified)
//!
//! # Not promised
//! Code that does not ask, or that is frozen between asking and acting, may act after the end: pass the token to
//! whatever the work changes.
//!
//! # Example
//! ```
//! # use std::sync::Arc;
//! # use watchkeeper_lock::{Locks, clock::Clock, node::memory::MemoryNode};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let node = MemoryNode::new("one", Clock::system());
//! # let locks = Locks::over(vec![Arc::new(node)]).start()?;
//! let lease = locks.lock("report").acquire().await?;
//! assert!(lease.is_held() && lease.remaining() <= lease.ttl());
//!
//! // Several parts of a program hold it together: the last one out releases.
//! let lease = lease.share();
//! lease.clone().release().await;
//! tokio::select! {
//!     loss = lease.lost() => println!("stop at once: {loss}"),
//!     () = work() => {
//!         // Before something that cannot be undone: does a majority still show this lease?
//!         lease.verify().await?;
//!         lease.release().await;
//!     }
//! }
//! # async fn work() {}
//! # Ok(())
//! # }
//! ```

mod held;
mod keeper_handle;
mod shared;
mod stop_policy;
mod verify;

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

pub use held::Lease;
pub(crate) use keeper_handle::{KeeperHandle, Note, Pulse, TakesBack};
pub use shared::{LetGo, SharedLease};
#[doc(hidden)] // for the worker
pub use stop_policy::StopPolicy;
pub use stop_policy::Unstoppable;
pub use verify::VerifyError;

use crate::{
    clock::{Clock, Moment},
    latest,
    node::{Kind, Token},
};

/// Why a lease is over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Loss {
    /// The local deadline passed before an extension succeeded.
    #[error("the lease expired before it could be extended")]
    Expired,
    /// A majority of nodes shows another holder, or none.
    #[error("a majority of nodes no longer shows this lease")]
    Taken,
    /// This replica was not fit to go on.
    #[error("given up: {0}")]
    Unfit(String),
    /// Its holder released it.
    #[error("released")]
    Released,
    /// The leader has led for `max_term`, and another candidate stands by.
    #[error("the term has lasted for max_term")]
    MaxTerm,
}

/// What the parts of a program may read of a lease: cheap to clone, answers from the clock.
#[derive(Clone)]
pub struct LeaseView(Arc<State>);

/// Marks work done under a lease: while one of these lives, the lease is not released, and the keeper aborts the
/// process if the work outlives the lease.
pub struct Work(LeaseView);

/// A lease handed back to the keeper.
pub(crate) struct Returned {
    pub(crate) view: LeaseView,
    pub(crate) done: Option<tokio::sync::oneshot::Sender<ReleaseReport>>,
}

/// How a release went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReleaseReport {
    /// Nodes that had confirmed when the release returned; the others are told again until a ttl has passed. While
    /// waiters queue for the lock, one node is told last, which calls the next of them. It is not waited for when a
    /// majority has confirmed.
    pub nodes: usize,
    /// Nodes configured.
    pub of: usize,
}

struct State {
    key: String,
    owner: String,
    token: Token,
    kind: Kind,
    ttl: Duration,
    granted_by: Box<[usize]>,
    clock: Clock,
    keeper: KeeperHandle,
    /// Its number in the keeper's lease table; zero before it stands there.
    id: AtomicU64,
    span: Mutex<Span>,
    /// Made when a part of the program first waits for news: most leases go without.
    news: OnceLock<latest::Sender<()>>,
    work: AtomicUsize,
}

struct Span {
    valid_until: Moment,
    since: Moment,
    margin: isize,
    seq: u64,
    loss: Option<Loss>,
    cordon: Option<String>,
    /// Since when a majority has to confirm the lease before anything starts under it.
    doubt: Option<Moment>,
    /// Whether it was acquired from a place in the lock's queue.
    from_queue: bool,
    stop_policy: StopPolicy,
    /// How long its record is kept after the release; as its key says unless set.
    kept: Option<Duration>,
}

/// How often work that waits to start looks whether the keeper has looked.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

// === impl LeaseView ===

impl LeaseView {
    pub(crate) fn new(grant: NewLease, clock: Clock, keeper: KeeperHandle) -> Self {
        let since = clock.now();
        Self(Arc::new(State {
            key: grant.key,
            owner: grant.owner,
            token: grant.token,
            kind: grant.kind,
            ttl: grant.ttl,
            granted_by: grant.granted_by,
            clock,
            keeper,
            id: AtomicU64::new(0),
            span: Mutex::new(Span {
                valid_until: grant.valid_until,
                since,
                margin: grant.margin,
                seq: 0,
                loss: None,
                cordon: None,
                doubt: None,
                from_queue: false,
                stop_policy: StopPolicy::default(),
                kept: None,
            }),
            news: OnceLock::new(),
            work: AtomicUsize::new(0),
        }))
    }

    /// The lock.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// The places of the nodes that granted it, among all: what its predecessor left was read from these.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn granted_by(&self) -> &[usize] {
        &self.0.granted_by
    }

    /// This lease's random owner value.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.0.owner
    }

    /// The fencing token: larger than every earlier one of this lock.
    #[must_use]
    pub fn token(&self) -> Token {
        self.0.token
    }

    /// Named lock or short claim.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The lease's time to live on the nodes.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.0.ttl
    }

    /// The clock that this lease's deadlines live on.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// When the lease was acquired.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn since(&self) -> Moment {
        self.span(|s| s.since)
    }

    /// The local deadline; after it the lease is over, whatever the network says.
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.span(|s| {
            if s.loss.is_some() {
                Moment::ZERO
            } else {
                s.valid_until
            }
        })
    }

    /// Time to the deadline; zero when over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.valid_until().since(self.0.clock.now())
    }

    /// Whether the lease is held now, by the clock.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.loss().is_none()
    }

    /// Nodes that held this lease in its last round beyond the majority it needs: how many may be lost without losing it.
    /// Negative after a round that failed: so many nodes must come back before the deadline.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn margin(&self) -> isize {
        self.span(|s| s.margin)
    }

    /// Why the lease is over; `None` while it is held. Reads the clock.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        let now = self.0.clock.now();
        self.span(|s| match &s.loss {
            Some(loss) => Some(loss.clone()),
            None if now >= s.valid_until => Some(Loss::Expired),
            None => None,
        })
    }

    /// Waits for the end of the lease and says why. Cancel-safe.
    pub async fn lost(&self) -> Loss {
        let mut news = self.news();
        loop {
            if let Some(loss) = self.loss() {
                return loss;
            }
            let deadline = self.valid_until();
            tokio::select! {
                biased;
                changed = news.changed() => if changed.is_err() { return Loss::Expired },
                () = self.0.clock.sleep_until(deadline) => {}
            }
        }
    }

    /// Waits until anything about the lease changes: work ended, cordon, loss.
    #[doc(hidden)] // for the worker
    pub async fn work_changed(&self) {
        let mut news = self.news();
        if self.work_in_flight() > 0 {
            tokio::select! {
                biased;
                _ = news.changed() => {}
                // The last piece may have ended before we listened.
                () = self.0.clock.sleep(Duration::from_millis(20)) => {}
            }
        }
    }

    /// Marks the beginning of work under this lease.
    #[must_use]
    pub fn begin_work(&self) -> Work {
        self.0.work.fetch_add(1, Ordering::SeqCst);
        Work(self.clone())
    }

    /// Pieces of work in flight under this lease.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn work_in_flight(&self) -> usize {
        self.0.work.load(Ordering::SeqCst)
    }

    /// Why nothing new may start under this lease, although it is still held and extended: the process or the work is
    /// unfit, and the work under way is to stop. Final for this lease.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn cordoned(&self) -> Option<String> {
        self.span(|s| s.cordon.clone())
    }

    /// Whether new work may start now: held, not cordoned, and not in doubt. Doubt passes: see [`LeaseView::startable`].
    #[doc(hidden)] // for the worker and the guard
    #[must_use]
    pub fn may_start(&self) -> bool {
        self.is_open() && !self.in_doubt()
    }

    /// Whether the lease is held and not cordoned: new work may start now, or as soon as doubt has passed.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_held() && self.cordoned().is_none()
    }

    /// Whether this process was frozen, or its keeper late, and no majority of nodes has confirmed the lease since.
    /// Reads the clock: work that wakes up before the keeper does is told as well.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn in_doubt(&self) -> bool {
        let now = self.0.clock.now();
        // The keeper doubts first and says then that it has looked, so ask in the other order.
        self.0.keeper.is_late(now, self.since()) || self.span(|s| s.doubt.is_some())
    }

    /// Waits until new work may start, which is at once unless the lease is in doubt. Cancel-safe.
    ///
    /// # Errors
    /// Why nothing may start under this lease any more, as from [`LeaseView::closing`].
    #[doc(hidden)] // for the worker and the guard
    pub async fn startable(&self) -> Result<(), Loss> {
        let mut news = self.news();
        loop {
            if let Some(loss) = self.loss() {
                return Err(loss);
            }
            if let Some(why) = self.cordoned() {
                return Err(Loss::Unfit(why));
            }
            if !self.in_doubt() {
                return Ok(());
            }
            tokio::select! {
                biased;
                changed = news.changed() => if changed.is_err() { return Err(Loss::Expired) },
                () = self.0.clock.sleep(LOOK_AGAIN) => {}
            }
        }
    }

    /// Waits until no new work may start, and says why.
    #[doc(hidden)] // for the worker
    pub async fn closing(&self) -> Loss {
        let mut news = self.news();
        loop {
            if let Some(loss) = self.loss() {
                return loss;
            }
            if let Some(why) = self.cordoned() {
                return Loss::Unfit(why);
            }
            let deadline = self.valid_until();
            tokio::select! {
                biased;
                changed = news.changed() => if changed.is_err() { return Loss::Expired },
                () = self.0.clock.sleep_until(deadline) => {}
            }
        }
    }

    /// As [`LeaseView::closing`], by what is told alone: for a caller that checks the deadline itself. Cancel-safe.
    #[doc(hidden)] // for the worker
    pub async fn told_to_close(&self) {
        let mut news = self.news();
        while self.is_open() && news.changed().await.is_ok() {}
    }

    /// Nothing new starts under this lease any more; the first reason stays.
    #[doc(hidden)] // for the worker
    pub fn cordon(&self, why: &str) {
        let first = self.span(|s| {
            let first = s.cordon.is_none() && s.loss.is_none();
            if first {
                s.cordon = Some(why.to_owned());
            }
            first
        });
        if first {
            self.tell();
            self.tell_keeper();
        }
    }

    /// This process was frozen until `since`: nothing starts before a majority has confirmed the lease.
    pub(crate) fn doubt(&self, since: Moment) {
        self.span(|s| s.doubt = Some(s.doubt.unwrap_or_default().max(since)));
    }

    /// Since when the lease is in doubt.
    pub(crate) fn doubted(&self) -> Option<Moment> {
        self.span(|s| s.doubt)
    }

    /// A majority has confirmed the lease, in answer to what was asked at `asked`.
    pub(crate) fn trust(&self, asked: Moment) {
        let cleared = self.span(|s| s.doubt.take_if(|since| *since <= asked).is_some());
        if cleared {
            self.tell();
        }
    }

    /// Whether it was acquired from a place in the lock's queue: others are likely to wait there.
    pub(crate) fn is_from_queue(&self) -> bool {
        self.span(|s| s.from_queue)
    }

    pub(crate) fn came_from_queue(&self) {
        self.span(|s| s.from_queue = true);
    }

    /// What is to become of work that does not end.
    pub(crate) fn stop_policy(&self) -> StopPolicy {
        self.span(|s| s.stop_policy)
    }

    #[doc(hidden)] // for the worker
    pub fn set_stop_policy(&self, stop_policy: StopPolicy) {
        self.span(|s| s.stop_policy = stop_policy);
        self.tell_keeper();
    }

    /// How long its record is kept after the release, where that is said of this lease alone.
    pub(crate) fn kept(&self) -> Option<Duration> {
        self.span(|s| s.kept)
    }

    /// Has its record kept for so long after the release, and not for as long as its key says.
    pub(crate) fn keep_record(&self, kept: Duration) {
        self.span(|s| s.kept = Some(kept));
    }

    /// Its number in the keeper's lease table.
    pub(crate) fn id(&self) -> u64 {
        self.0.id.load(Ordering::SeqCst)
    }

    pub(crate) fn enter(&self, id: u64) {
        self.0.id.store(id, Ordering::SeqCst);
    }

    /// Something about the lease has changed that the keeper judges by.
    fn tell_keeper(&self) {
        self.0.keeper.send(Note::Changed(self.id()));
    }

    /// The last deadline, also when the lease is over.
    #[doc(hidden)] // for the worker
    pub fn deadline(&self) -> Moment {
        self.span(|s| s.valid_until)
    }

    /// Changes of anything about this lease, from now on: to be listened to before its state is read.
    fn news(&self) -> latest::Receiver<()> {
        let news = self.0.news.get_or_init(|| latest::Sender::new(()));
        news.subscribe()
    }

    /// Something about the lease has changed.
    fn tell(&self) {
        if let Some(news) = self.0.news.get() {
            news.send_modify(|_| {});
        }
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Renewal rounds begun.
    pub(crate) fn rounds(&self) -> u64 {
        self.span(|s| s.seq)
    }

    pub(crate) fn next_seq(&self) -> u64 {
        self.span(|s| {
            s.seq += 1;
            s.seq
        })
    }

    /// Carries out a successful extension. A lost lease stays lost, and a deadline that has passed is not moved.
    #[doc(hidden)] // for the worker and the tests
    pub fn extended(&self, now: Moment, valid_until: Moment, margin: isize) -> bool {
        self.span(|s| {
            if s.loss.is_some() || now >= s.valid_until {
                return false;
            }
            s.valid_until = s.valid_until.max(valid_until);
            s.margin = margin;
            true
        })
    }

    /// Takes note of where the lease stands after a round that did not extend it.
    pub(crate) fn stands_on(&self, margin: isize) {
        self.span(|s| s.margin = margin);
    }

    /// Ends the lease. The first reason stays. Returns whether this call ended it.
    pub(crate) fn end(&self, loss: Loss) -> bool {
        let first = self.end_unheard(loss);
        if first {
            self.tell_keeper();
        }
        first
    }

    /// As [`LeaseView::end`], where the keeper hears of it in another way.
    pub(crate) fn end_unheard(&self, loss: Loss) -> bool {
        let now = self.0.clock.now();
        let first = self.span(|s| {
            if s.loss.is_some() {
                return false;
            }
            // A deadline that has passed is the reason, whatever was noticed later.
            s.loss = Some(if now >= s.valid_until {
                Loss::Expired
            } else {
                loss
            });
            true
        });
        if first {
            self.tell();
        }
        first
    }

    fn span<T>(&self, f: impl FnOnce(&mut Span) -> T) -> T {
        // Every change of a span is a plain assignment, so a poisoned lock holds a usable value.
        f(&mut self.0.span.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for LeaseView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", &self.key())
            .field("token", &self.token().0)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}

/// What the lock core knows of a lease at the moment of acquisition.
pub(crate) struct NewLease {
    pub(crate) key: String,
    pub(crate) owner: String,
    pub(crate) token: Token,
    pub(crate) kind: Kind,
    pub(crate) ttl: Duration,
    pub(crate) valid_until: Moment,
    pub(crate) margin: isize,
    /// The places of the nodes that granted it.
    pub(crate) granted_by: Box<[usize]>,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.0.work.fetch_sub(1, Ordering::SeqCst);
        self.0.tell();
        self.0.tell_keeper();
    }
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Work").field(&self.0).finish()
    }
}
