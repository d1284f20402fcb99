//! Acquiring locks: the lock service of a process, named locks with and without waiting, and semaphores.
//!
//! [`Locks`] is the handle of a process: it starts one keeper, which owns every lease. A
//! [`LockBuilder`] acquires one named lock, a [`SlotsBuilder`] one slot of a semaphore.
//!
//! # Not promised
//! Fairness. The queue orders the waiters of one lock; a client that does not queue may take a free lock before them.

mod builder;
mod foreign;
mod slots;
mod start;
mod wait_queue;

use std::{
    collections::BTreeMap,
    fmt,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{mpsc, oneshot};

pub(crate) use crate::keeper::Releases;
pub use builder::LockBuilder;
pub use slots::{Slot, SlotsBuilder};
pub use start::LocksBuilder;

#[cfg(any(test, feature = "testing"))]
use crate::quorum::mutant;
use crate::{
    admission::AdmissionReport,
    chance::Chance,
    clock::{Clock, Moment},
    event::Events,
    expiry::LockState,
    keeper::{
        self, Command, DocsRead, Fitness, Front, Lives, NodeReport, ReleaseListeners, Watching,
        Watchlist, Which,
    },
    lease::{LeaseView, Note},
    node::{Doc, Node, NodeError, View},
    quorum::{
        BreakReport, Claim, Claimed, FleetClock, LockError, Votes, WriteError,
        claim::{AttemptMode, QueuePosition},
    },
    settings::Timing,
};

/// The lock service of one process. Cheap to clone; the keeper ends when the last clone and the last lease are gone.
#[derive(Clone)]
pub struct Locks(Arc<Handle>);

struct Handle {
    commands: mpsc::Sender<Command>,
    front: Arc<Front>,
    notes: mpsc::UnboundedSender<Note>,
    releases: ReleaseListeners,
    timing: Timing,
    clock: Clock,
    chance: Chance,
    events: Events,
    fitness: Fitness,
    watchlist: Arc<Watchlist>,
    votes: Arc<Votes>,
    wall: FleetClock,
    guarded: bool,
    tag: Option<String>,
    /// Locks with a queue, as far as this process knows.
    contended: Until,
    /// Locks whose nodes have been told that this process waits.
    told: Until,
    /// Places for bids of candidates.
    bids: tokio::sync::Semaphore,
}

/// Something that is true of locks until a moment, each its own.
#[derive(Default)]
struct Until(Mutex<BTreeMap<String, Moment>>);

/// Documents read by name at one time.
const DOCS_AT_ONCE: usize = 16;

/// More locks than this are not remembered without looking whether it is still true of them.
const MOST_REMEMBERED: usize = 1024;

// === impl Locks ===

impl Locks {
    /// Locks over these nodes.
    #[must_use]
    pub fn over(nodes: Vec<Arc<dyn Node>>) -> LocksBuilder {
        LocksBuilder {
            nodes,
            timing: Timing::default(),
            expiry: None,
            clock: Clock::system(),
            chance: Chance::system(),
            events: Events::default(),
            seat: keeper::Seat::Thread,
            on_unstoppable: None,
            fleet: None,
            token_floor: None,
            bystander: false,
            look_every: None,
            tag: None,
            #[cfg(any(test, feature = "testing"))]
            mutant: mutant::Mutant::default(),
        }
    }

    /// The named lock `lock/NAME`, with a record and a counter of its own.
    #[must_use]
    pub fn lock(&self, name: &str) -> LockBuilder {
        LockBuilder::new(self.clone(), Claim::named(format!("lock/{name}")))
    }

    /// A semaphore with `of` slots, each held by one client at a time as a numbered [`Slot`]. All programs that use
    /// the name must give the same number. A semaphore shares no key with a named lock.
    #[must_use]
    pub fn slots(&self, name: &str, of: usize) -> SlotsBuilder {
        SlotsBuilder::new(self.clone(), name, of)
    }

    /// The named lock of exactly this key, without the `lock/` of [`Locks::lock`]: with `raw_keys` it is the key on the
    /// nodes, to be shared with other Redlock clients. Keys that begin with `job/`, `batch/`, `elect/`, `lock/` or
    /// `slots/` are those of jobs, electors, named locks and semaphores, which it then excludes.
    #[doc(hidden)] // for the worker and the commands
    #[must_use]
    pub fn lock_key(&self, key: &str) -> LockBuilder {
        LockBuilder::new(self.clone(), Claim::named(key))
    }

    /// One attempt at many claims at once: one round trip per node in the usual case. One answer per claim, in order.
    ///
    /// Cancel-safe: what a cancelled call acquired is released.
    ///
    /// # Errors
    /// [`LockError::Closed`], [`LockError::TtlTooLong`].
    pub async fn claim(&self, claims: Vec<Claim>) -> Result<Vec<Claimed>, LockError> {
        self.claim_by(claims, AttemptMode::default()).await
    }

    /// As [`Locks::claim`], in this mode.
    pub(crate) async fn claim_by(
        &self,
        claims: Vec<Claim>,
        mode: AttemptMode,
    ) -> Result<Vec<Claimed>, LockError> {
        self.check_ttl(claims.iter().filter_map(|c| c.ttl).max())?;
        if claims.is_empty() {
            return Ok(Vec::new());
        }
        self.check_open()?;
        Ok(Box::pin(self.0.front.acquire(&claims, &mode)).await)
    }

    /// Waits until a candidate may bid. Ten thousand that bid at one instant, when a worker starts or another one has died, would
    /// wait for each other longer than for a node, take that for silence, and begin again; so they go in the order in which they
    /// came, as many at a time as one call carries. Cancel-safe.
    pub(crate) async fn turn_to_bid(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        // It is never closed.
        self.0.bids.acquire().await.ok()
    }

    /// Candidates that may bid at once now.
    #[cfg(test)]
    pub(crate) fn bids_left(&self) -> usize {
        self.0.bids.available_permits()
    }

    /// One attempt at a named lock; what it showed, also of the queue.
    pub(crate) async fn attempt(
        &self,
        claim: &Claim,
        mode: AttemptMode,
    ) -> Result<(Claimed, LockState, QueuePosition), LockError> {
        self.check_ttl(claim.ttl)?;
        self.check_open()?;
        Ok(Box::pin(self.0.front.try_once(claim, &mode)).await)
    }

    /// What nothing would renew is not acquired.
    fn check_open(&self) -> Result<(), LockError> {
        match self.0.commands.is_closed() {
            true => Err(LockError::Closed),
            false => Ok(()),
        }
    }

    /// Gives up a place in a lock's queue, in the background and however many commands are waiting. A place whose end
    /// no node hears of ends by itself.
    pub(crate) fn leave(&self, key: &str, ticket: &str) {
        let (key, ticket) = (key.to_owned(), ticket.to_owned());
        let _ = self.0.notes.send(Note::Leave { key, ticket });
    }

    /// Whether clients of this process have lately queued for this lock.
    pub(crate) fn is_contended(&self, key: &str) -> bool {
        self.0.contended.is(key, self.0.clock.now())
    }

    /// For `span`, clients of this process that want the lock had better queue at once.
    pub(crate) fn contend(&self, key: &str, span: Duration) {
        let now = self.0.clock.now();
        self.0.contended.set(key, now, now + span);
    }

    /// Whether the nodes know that this process waits for the lock's end.
    pub(crate) fn has_told(&self, key: &str) -> bool {
        self.0.told.is(key, self.0.clock.now())
    }

    /// For `span`, the nodes know that this process waits.
    pub(crate) fn told(&self, key: &str, span: Duration) {
        let now = self.0.clock.now();
        self.0.told.set(key, now, now + span);
    }

    /// The lock is free: what its nodes were told may be forgotten with its record.
    pub(crate) fn told_no_more(&self, key: &str) {
        self.0.told.entries().remove(key);
    }

    fn check_ttl(&self, ttl: Option<Duration>) -> Result<(), LockError> {
        let max_ttl = self.0.timing.max_ttl;
        match ttl.filter(|ttl| *ttl > max_ttl) {
            Some(ttl) => Err(LockError::TtlTooLong { ttl, max_ttl }),
            None => Ok(()),
        }
    }

    /// What the nodes show of these locks; changes nothing.
    ///
    /// # Errors
    /// [`LockError::Closed`]; a node's trouble stands in its place in the lock's state.
    #[doc(hidden)] // for the worker and the commands
    pub async fn look(&self, keys: Vec<String>) -> Result<Vec<LockState>, LockError> {
        self.ask(|reply| Command::Look { keys, reply }).await
    }

    /// Watches a lock that may be wanted later, as long as the answer lives. When its holder has died meanwhile, an
    /// attempt may take over at once instead of watching it for a ttl first. `ttl` is that of our own lease.
    #[doc(hidden)] // for the worker and the programs of the command
    pub fn keep_watching(&self, key: &str, ttl: Option<Duration>) -> Watching {
        let handle = &self.0;
        let ttl = ttl.unwrap_or(handle.timing.ttl);
        handle.watchlist.watch(key, ttl, handle.clock.now())
    }

    /// What is watched at a pace of its own may have another one now.
    #[doc(hidden)] // for the worker
    pub fn watch_anew(&self) {
        self.0.watchlist.anew(self.0.clock.now());
    }

    /// Ends `owner`'s lease of the lock by force. In its next round its holder is refused by a majority and stops
    /// with [`crate::lease::Loss::Taken`]. The lock is free when the holder has released it, or for a client that has watched
    /// it for the ttl of that lease. With `now` it is also released in the holder's name when nothing of the lease can act any
    /// more: this call waits for that, a ttl of the lease, so that clients which come later need not. Another owner's lease
    /// is not touched, nor what a foreign client wrote.
    ///
    /// What the nodes show is in [`Locks::look`]. Cancellation: a dropped call may have broken the lease.
    ///
    /// # Errors
    /// [`LockError::Closed`]; a node's trouble stands in its place in the report.
    pub async fn break_lease(
        &self,
        key: &str,
        owner: &str,
        now: bool,
    ) -> Result<BreakReport, LockError> {
        let (key, owner) = (key.to_owned(), owner.to_owned());
        self.ask(|reply| Command::Break {
            key,
            owner,
            now,
            reply,
        })
        .await
    }

    /// Every named lock and claim whose key starts with `prefix`, as each node shows it.
    ///
    /// # Errors
    /// [`LockError::Closed`], or [`LockError::NoQuorum`] when no node answered.
    #[doc(hidden)] // for the worker and the commands
    pub async fn list(&self, prefix: &str) -> Result<Vec<Vec<View>>, LockError> {
        let prefix = prefix.to_owned();
        self.ask(|reply| Command::List { prefix, reply }).await?
    }

    /// Replaces the body of a lock's record on a majority of nodes. Retried while the lease is held.
    ///
    /// # Errors
    /// [`WriteError`]: nothing is known about what the nodes hold, except that q of them did not confirm.
    #[doc(hidden)] // for the worker and the commands
    pub async fn write(
        &self,
        lease: &LeaseView,
        body: String,
        not_before: Option<jiff::Timestamp>,
    ) -> Result<(), WriteError> {
        let view = lease.clone();
        let not_before = not_before.map(|t| t.as_millisecond());
        self.ask(|reply| Command::Write {
            view,
            body,
            not_before,
            reply,
        })
        .await
        .map_err(|_| WriteError::Closed)?
    }

    /// Stores a document on every node that answers, unless it has one of the same or a larger revision.
    ///
    /// # Errors
    /// [`LockError::NoQuorum`] when no node took it.
    #[doc(hidden)] // for the worker and the commands
    pub async fn put_doc(
        &self,
        name: &str,
        rev: u64,
        ttl: Duration,
        body: String,
    ) -> Result<(), LockError> {
        self.spread_doc(name, rev, ttl, body).await.map(drop)
    }

    /// As [`Locks::put_doc`], and says how many nodes answered.
    #[doc(hidden)] // for the worker
    pub async fn spread_doc(
        &self,
        name: &str,
        rev: u64,
        ttl: Duration,
        body: String,
    ) -> Result<usize, LockError> {
        let name = name.to_owned();
        self.ask(|reply| Command::PutDoc {
            name,
            rev,
            ttl,
            body,
            reply,
        })
        .await?
    }

    /// Lets documents live on, each of which stands at this revision: which of them do not stand on a node that has answered,
    /// and have to be stored anew.
    ///
    /// # Errors
    /// [`LockError::NoQuorum`] when no node answered.
    #[doc(hidden)] // for the worker
    pub async fn touch_docs(
        &self,
        docs: Vec<(String, u64)>,
        ttl: Duration,
    ) -> Result<Vec<usize>, LockError> {
        self.ask(|reply| Command::TouchDocs { docs, ttl, reply })
            .await?
    }

    /// Which documents of a directory live for so much longer, after what was known of it. At rest it costs a number, however
    /// many there are.
    ///
    /// # Errors
    /// [`LockError::NoQuorum`] when no node answered.
    #[doc(hidden)] // for the worker and the commands
    pub async fn living(
        &self,
        dir: &str,
        life: Range<Duration>,
        known: Lives,
    ) -> Result<Lives, LockError> {
        let dir = dir.to_owned();
        self.ask(|reply| Command::Living {
            dir,
            life,
            known,
            reply,
        })
        .await?
    }

    /// Removes a document from every node that answers.
    ///
    /// # Errors
    /// [`LockError::NoQuorum`] when no node answered.
    #[doc(hidden)] // for the worker and the commands
    pub async fn remove_doc(&self, name: &str) -> Result<(), LockError> {
        let name = name.to_owned();
        self.ask(|reply| Command::RemoveDoc { name, reply }).await?
    }

    /// The living documents of one directory, such as `presence/`, without those of directories below it: read from
    /// all nodes, the newest revision wins. In the order of their names.
    ///
    /// # Errors
    /// [`LockError::NoQuorum`] when no node answered.
    #[doc(hidden)] // for the worker and the commands
    pub async fn docs(&self, dir: &str) -> Result<Vec<Doc>, LockError> {
        let read = self.read_docs(Which::Directory(dir.to_owned())).await?;
        Ok(read.docs.into_iter().map(|(doc, _)| doc).collect())
    }

    /// Names and revisions alone, and on how many nodes each was found: of each node
    /// [`MOST_NAMES`](crate::node::MOST_NAMES) at most, the first in the order of their names.
    #[doc(hidden)] // for the worker
    pub async fn doc_names(&self, dir: &str) -> Result<DocsRead, LockError> {
        self.read_docs(Which::Names(dir.to_owned())).await
    }

    /// As [`Locks::doc`], and says how many nodes answered.
    #[doc(hidden)] // for the worker
    pub async fn read_doc(&self, name: &str) -> Result<DocsRead, LockError> {
        self.read_docs(Which::One(name.to_owned())).await
    }

    async fn read_docs(&self, which: Which) -> Result<DocsRead, LockError> {
        self.ask(|reply| Command::Docs { which, reply }).await?
    }

    /// The documents of these names, as far as they live: some at a time, so that no answer is as large as all of them.
    #[doc(hidden)] // for the worker
    pub async fn docs_of(&self, names: &[String]) -> Result<Vec<Doc>, LockError> {
        let mut found = Vec::new();
        for some in names.chunks(DOCS_AT_ONCE) {
            let read: Vec<_> = some.iter().map(|name| self.doc(name)).collect();
            for doc in futures_util::future::join_all(read).await {
                found.extend(doc?);
            }
        }
        Ok(found)
    }

    /// One document: read from all nodes, the newest revision wins; `None` when it does not live anywhere.
    ///
    /// # Errors
    /// [`LockError::NoQuorum`] when no node answered.
    #[doc(hidden)] // for the worker and the commands
    pub async fn doc(&self, name: &str) -> Result<Option<Doc>, LockError> {
        let found = self.read_doc(name).await?;
        Ok(found.docs.into_iter().next().map(|(doc, _)| doc))
    }

    /// How each node does, in the order of the configuration.
    ///
    /// # Errors
    /// [`LockError::Closed`].
    #[doc(hidden)] // for the worker and the commands
    pub async fn nodes(&self) -> Result<Vec<NodeReport>, LockError> {
        self.ask(|reply| Command::Nodes { reply }).await
    }

    /// Which nodes vote, in the order of the configuration: asks each of them. Cancel-safe.
    ///
    /// # Errors
    /// [`LockError::Closed`]; a node's trouble stands in its place.
    #[doc(hidden)] // for the worker and the commands
    pub async fn admissions(&self) -> Result<Vec<AdmissionReport>, LockError> {
        self.ask(|reply| Command::Admissions { reply }).await
    }

    /// What this process's leases carry in their owner values, see [`LocksBuilder::tag`].
    #[doc(hidden)] // for the worker and the commands
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.0.tag.as_deref()
    }

    /// Whether the nodes can lose their memory, and are guarded against it.
    #[doc(hidden)] // for the worker
    pub fn is_guarded(&self) -> bool {
        self.0.guarded
    }

    /// What tells each node's server from every other, where it can be told now. Asked by the keeper, whose
    /// connections are its own.
    #[doc(hidden)] // for the worker and the tests
    pub async fn identities(&self) -> Result<Vec<Option<String>>, LockError> {
        self.ask(|reply| Command::Identities { reply }).await
    }

    /// For each node, in the order of the configuration, the locks in whose keys a value without a time to live stands, see
    /// [`Node::endless`].
    ///
    /// # Errors
    /// [`LockError::Closed`]; a node's trouble stands in its place.
    #[doc(hidden)] // for the worker and the commands
    pub async fn endless(&self) -> Result<Vec<Result<Vec<String>, NodeError>>, LockError> {
        self.ask(|reply| Command::Endless { reply }).await
    }

    /// Announced releases of one lock, from now on: of all nodes, where a client of any process has said that it waits. They
    /// promise nothing: polling is the truth.
    #[doc(hidden)] // for the worker and the commands
    #[must_use]
    pub fn releases_of(&self, key: &str) -> Releases {
        self.0.releases.listen(vec![key.to_owned()])
    }

    /// Waits until every lease that was handed back is released, or could not be.
    #[doc(hidden)] // for the tests and the programs of the command
    pub async fn settle(&self) {
        let _ = self.ask(|reply| Command::Settle { reply }).await;
    }

    /// Which nodes vote.
    pub(crate) fn votes(&self) -> &Votes {
        &self.0.votes
    }

    /// Whether so many nodes answer, and give their votes, that a lock can be taken: by what was heard of each of them last.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn enough_vote(&self) -> bool {
        self.0.votes.are_enough()
    }

    /// Whether any node has ever answered.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn reached(&self) -> bool {
        self.0.votes.has_answered()
    }

    /// What time it is for the fleet: the median of the nodes' wall clocks when a majority of them was read within a minute,
    /// else, or when the difference is too small to be seen over the network, this machine's. Ticks go by it. Says in the
    /// log when this machine's clock is off by more than [`Timing::skew`].
    #[doc(hidden)] // for the worker and the commands
    #[must_use]
    pub fn wall(&self) -> jiff::Timestamp {
        self.0.wall.wall()
    }

    /// The fitness of this replica, which the keeper watches.
    #[must_use]
    pub fn fitness(&self) -> &Fitness {
        &self.0.fitness
    }

    /// The times this lock service works with.
    #[doc(hidden)] // for the worker and the commands
    #[must_use]
    pub fn timing(&self) -> &Timing {
        &self.0.timing
    }

    /// The clock behind every deadline.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.0.clock
    }

    /// The source of randomness.
    #[doc(hidden)] // for the worker and the commands
    #[must_use]
    pub fn chance(&self) -> &Chance {
        &self.0.chance
    }

    /// The event stream.
    #[must_use]
    pub fn events(&self) -> &Events {
        &self.0.events
    }

    async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, LockError> {
        // A permit first: a waiting caller then holds no command, and a thousand wait at a time.
        let permit = self.0.commands.reserve().await;
        let permit = permit.map_err(|_| LockError::Closed)?;
        let (reply, answer) = oneshot::channel();
        permit.send(command(reply));
        answer.await.map_err(|_| LockError::Closed)
    }
}

// === impl Until ===

impl Until {
    fn is(&self, key: &str, now: Moment) -> bool {
        self.entries().get(key).is_some_and(|until| now < *until)
    }

    fn set(&self, key: &str, now: Moment, until: Moment) {
        let mut entries = self.entries();
        if entries.len() >= MOST_REMEMBERED {
            entries.retain(|_, until| now < *until);
        }
        entries.insert(key.to_owned(), until);
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Moment>> {
        // Changed by short, complete steps.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Locks")
    }
}
