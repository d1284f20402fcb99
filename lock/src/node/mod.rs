//! One lock server, seen as a machine that executes short lists of operations atomically.
//!
//! Every store is a [`Node`]: a Redis master ([`redis`]), a PostgreSQL database ([`postgres`]), an etcd cluster ([`etcd`]), an
//! embedded SQLite file ([`sqlite`]) or memory ([`memory`]). [`crate::lock`] turns N of them into one lock service; N = 1 is the
//! single-instance case, so the database, the cluster, the embedded file and a single Redis need no second implementation.
//!
//! # What a node keeps
//! - per lock at most one row: of a named lock a *record* `{ state, owner, seq, ttl, grant, counter, inc, version, until,
//!   waits }`, which is held, released or broken; of a batch or a message a *claim* `{ owner, grant, inc, until }`;
//! - per lock a *body*, what its holders leave for their successors, from its first write until `retention` after the last
//!   lease;
//! - `c`, the *forgotten* counter: the largest of all rows that are gone (fencing tokens come from a record's counter, or from
//!   this where none stands);
//! - *documents*: small named values with a lifetime and a revision. They lie in *directories*: that of a document is
//!   its name up to the last `/` (`presence/` of `presence/a`, empty without one). A listing reads one directory, so that
//!   it costs what it shows, however many documents lie elsewhere;
//! - guarded, the *marker* of the incarnation that was admitted, and the *nomination* of one that is watched.
//!
//! Nothing is remembered of owners that are over. What arrives late for one of them can make others wait, and can let no
//! other in. Where clients of other makes use the same locks (raw keys), a *plain key* stands beside the row, its value the
//! owner's and with a time to live: their wire format.
//!
//! # Who is over
//! The caller says with each operation what ends the lease of a silent holder ([`Expiry`]). `Server`: its end by the node's
//! clock. `Observed`: the node's clock decides nothing; a contender takes what it has watched unchanged for the record's ttl
//! by its own clock, and sends what it has watched ([`Seen`]), so that the node can compare it in the same step. Claims end by
//! the node's clock.
//!
//! # Rules every implementation keeps (`src/conformance` holds them)
//! The letters are those of the model, `tests/model`, which also has the rules of the clients.
//! - N1 The operations of one [`Call`] run in order and atomically: nothing of another call comes between.
//! - N2 A call that arrives when the node's clock is at `not_after`, or past it, changes nothing and answers
//!   [`NodeError::Late`].
//! - N3 The take rule, for acquiring and healing alike. Free is what has no row, a row of another incarnation, a release, or a
//!   claim that has ended; with [`Take::Server`] what has ended by the node's clock, with [`Take::Observed`] exactly what was
//!   seen.
//! - A1 An `Acquire` is refused where its own owner stands released or broken.
//! - A2 An `Acquire` that finds itself held writes nothing, and is answered the grant that stands there.
//! - E1 An `Extend` keeps only what shows its owner and the present incarnation.
//! - E2 An `Extend` that finds its own owner released or broken is refused. A claim is never healed.
//! - E3 What does not show the holder is healed by the take rule, and over a record of this incarnation only if that counter is
//!   not above the lease's token.
//! - C1 A record of another incarnation counts together with `c`.
//! - C2 What is healed has the larger of the lock's counter and the lease's token.
//! - C3 What is forgotten raises `c` in the same step.
//! - C4 Where no record stands, a grant is above `c`.
//! - N5 So counters never fall, also over release, expiry and forgetting of a record.
//! - N6 `Release`, `Confirm`, `Write`, `Extend` and `Break` compare the owner before they touch anything.
//! - N7 A broken owner is over, and does not know: `Break` leaves its plain key to run out, unless it is to go now. A claim is not
//!   broken: it has no record that would refuse its holder.
//! - B1 What is broken is watched for its ttl like what is held.
//! - B2 `Break` is also written where nothing of its target stands: else its next round would heal this node, and the one after
//!   it count it.
//! - B3 A node without a vote is told of no break: its mark would be of an incarnation that will not count.
//! - B4 With `now` the release is written there as well.
//! - B5 What is broken is taken when its time is up.
//! - N8 `seq` must grow. Where a plain key stands, nothing is taken, kept or broken but what its value is the owner of.
//! - N9 A row names its owner only in the incarnation (`inc`) it was written under. Its counter and its body count on.
//! - N10 A refused `Acquire` cuts what lives longer than `clamp`, because a clock was set back: also where others watch it,
//!   for clients that try once and leave while a holder is shown. A foreign key is never touched.
//! - N11 A guarded node votes (`Acquire`, `Confirm`, `Extend`, `Write`, `Break`, `Forget`) only while the marker names its
//!   present incarnation and the caller's configuration; it answers [`Answer::Unadmitted`] otherwise and does everything
//!   else, but does not sweep. The marker is written for the standing nomination only, and what is merged before it makes no
//!   client an owner.
//! - S0 A release is kept for as long as its sender says.
//! - S1 `Sweep` judges in the step that deletes, and by the clock deletes only releases, rows without an owner, and claims.
//! - S2 `Forget` compares what was watched.
//! - W1 Whatever takes the place of a record keeps it told that clients wait.
//! - W3 A refusal tells it so in the same step.
//! - W4 `Forget`, and `Break` with `now`, are announced where a client waits.
//! - W6 So is a release, and only there.
//!
//! # Example
//! ```
//! use std::sync::Arc;
//! use watchkeeper_lock::{Locks, clock::Clock, node::{Node, memory::MemoryNode}};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Three nodes are one lock service: a lease needs two of them.
//! let node = |name| Arc::new(MemoryNode::new(name, Clock::system())) as Arc<dyn Node>;
//! let locks = Locks::over(["a", "b", "c"].map(node).to_vec()).start()?;
//! let lease = locks.lock("report").acquire().await?;
//! assert!(lease.is_held());
//! # Ok(())
//! # }
//! ```

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

#[cfg(any(feature = "postgres", feature = "etcd"))]
mod announce;
#[cfg(all(test, any(feature = "sqlite", feature = "postgres", feature = "etcd")))]
mod calls;
#[cfg(any(feature = "postgres", feature = "etcd"))]
mod certificates;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "etcd"))]
mod columns;
#[doc(hidden)] // for the command `doctor`
pub mod damage;
mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
pub(crate) mod expiry;
pub(crate) mod facts;
pub(crate) mod guard;
pub mod memory;
mod op;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
mod refusal;
#[cfg(any(feature = "postgres", feature = "etcd"))]
mod remote;
#[doc(hidden)] // for the worker and the tests
pub mod rules;
#[doc(hidden)] // for the worker
pub mod scoped;
mod servers;
#[cfg(any(feature = "postgres", feature = "etcd"))]
mod sheet;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[doc(hidden)] // for the worker
pub mod tag;

pub use error::NodeError;
pub(crate) use error::{LAYOUT_OF_KEYS, unfounded};
pub use expiry::{Expiry, Seen, Take};
#[doc(hidden)] // for the command `doctor`
pub use facts::MemberFacts;
pub use facts::NodeFacts;
pub use guard::{Admission, Card, Eligibility, GuardSettings, RestartGuard};
#[doc(hidden)] // for the command `doctor`
pub use guard::{closed, closed_since};
pub use op::{Cursor, Kind, Op};
pub use refusal::Refusal;
#[doc(hidden)] // between the lock and its nodes
pub use servers::Servers;

/// Operations that every node takes in one call.
pub(crate) const MOST_OPS: usize = 250;

/// Documents of one directory that are known of one node at most: the first in the order of their names.
#[doc(hidden)] // for the worker
pub const MOST_NAMES: usize = 64_000;

/// Documents that [`Op::Living`] tells of at most.
#[doc(hidden)] // for the worker
pub const MOST_LIVING: usize = 10_000;

/// Stands for documents of these revisions, whichever comes first. Revisions of different documents begin at different times:
/// one that takes the place of another changes the sum.
#[doc(hidden)] // for the tests
#[must_use]
pub fn sum_of(revisions: impl IntoIterator<Item = u64>) -> u64 {
    // Half of what Lua counts exactly, so that no addition is beyond that.
    const END: u64 = 1 << 52;
    let all = revisions.into_iter();
    all.fold(0, |sum, rev| (sum + rev % END + 1) % END)
}

/// Adds what a page shows of a directory, by name: what comes or goes meanwhile may be on two pages, and the last one counts.
pub(crate) fn gather(all: &mut BTreeMap<String, Doc>, docs: impl IntoIterator<Item = Doc>) {
    all.extend(docs.into_iter().map(|doc| (doc.name.clone(), doc)));
    while all.len() > MOST_NAMES {
        all.pop_last();
    }
}

/// `floor(n / 2) + 1` of the configured nodes.
#[doc(hidden)] // for the worker
#[must_use]
pub fn majority(configured: usize) -> usize {
    configured / 2 + 1
}

/// Milliseconds on a node's own clock; comparable only with times of the same node.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeMs(pub u64);

/// A fencing token. Tokens of one resource grow with every acquisition; always below 2^53.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Token(pub u64);

/// One lock server.
///
/// What passes between a node and the lock is hidden, and may change with any release. A store of your own is possible all the same:
/// `lock/examples/zookeeper` in the repository is a whole one, and the feature `testing` brings the cases that every node must pass
/// (`watchkeeper_lock::conformance!`).
///
/// Cancellation: a dropped call may or may not have been executed; a caller that drops one must treat the node as
/// "maybe granted" and release. Calls of one client are executed in the order in which they were first polled.
#[async_trait]
pub trait Node: Send + Sync + 'static {
    /// A name for logs and metrics, without credentials: `redis-1`, `10.0.0.7:6379`, `embedded`.
    fn name(&self) -> &str;

    /// Executes the operations in order, atomically. `Ok` holds one answer per operation, in the same order.
    ///
    /// Must not wait longer than the store's own timeout; the caller has one of its own as well.
    ///
    /// # Errors
    /// [`NodeError`]: whether anything was executed is unknown, unless the variant says otherwise.
    async fn call(&self, call: Call) -> Result<Reply, NodeError>;

    /// As [`Node::call`], for a link, which watches the time itself: it polls the future to its end, or drops it when the call
    /// has no time left. The store may give up the connection then, and needs no timer of its own.
    #[doc(hidden)] // between the lock and its nodes
    fn carry(self: Arc<Self>, call: Arc<Call>) -> BoxFuture<'static, Result<Reply, NodeError>> {
        Box::pin(async move { self.call(Arc::unwrap_or_clone(call)).await })
    }

    /// How many extensions one call may carry, if it carries nothing else. More than others take where a call costs most by itself.
    #[doc(hidden)] // between the lock and its nodes
    fn most_extensions(&self) -> usize {
        MOST_OPS
    }

    /// The same node over a connection of its own; `None` where one way serves all. So what callers ask and what the keeper
    /// asks do not wait for each other.
    #[doc(hidden)] // between the lock and its nodes
    fn another(&self) -> Option<Arc<dyn Node>> {
        None
    }

    /// Tells it what all programs of its fleet have in common, where its maker has named nothing: it votes for those alone
    /// that were told the same. Whether it compares that.
    #[doc(hidden)] // between the lock and its nodes
    fn agree(&self, _config: &str) -> bool {
        false
    }

    /// Whether every lease also shows in a plain key, shared with foreign clients.
    #[doc(hidden)] // between the lock and its nodes
    fn raw_keys(&self) -> bool {
        false
    }

    /// What tells this server from every other (a run id), when the store has such a thing: two addresses with one
    /// identity must not count as two nodes.
    async fn identity(&self) -> Option<String> {
        None
    }

    /// Gives it its place in a fleet, whose nodes find out here that two of them lead to one server, also when that happens
    /// while they are in use. The first place counts.
    #[doc(hidden)] // between the lock and its nodes
    fn join(&self, _servers: &Servers, _place: usize) {}

    /// What ends the lease of a silent holder of a named lock, unless the user of this node says otherwise:
    /// [`Expiry::Server`] only where the node's clock never jumps. The default believes no clock.
    fn expiry(&self) -> Expiry {
        Expiry::Observed
    }

    /// Whether its counter grows with whatever is written there, and its time is known to about a second alone: of a store that has
    /// neither of its own. Its tokens leave numbers out, and what ends by its clock ends late by as much.
    #[doc(hidden)] // for those who write a node
    fn is_approximate(&self) -> bool {
        false
    }

    /// What the server tells of itself, for a person who looks for faults. Not bound to the time limit of calls; also of
    /// a server that is refused as a lock server. The default knows nothing.
    ///
    /// # Errors
    /// [`NodeError`] when it cannot be asked.
    async fn inspect(&self) -> Result<NodeFacts, NodeError> {
        Ok(NodeFacts::default())
    }

    /// Locks in whose keys a value without a time to live stands, also of which the node knows nothing else: they
    /// never end by themselves. Found by walking the store in small steps that keep no other caller waiting;
    /// [`MOST_ENDLESS`] at most. Not bound to the time limit of calls. The default has no keys but those that
    /// [`Op::List`] shows.
    ///
    /// # Errors
    /// [`NodeError`] when the store cannot be walked, or not to its end in a few seconds.
    async fn endless(&self) -> Result<Vec<String>, NodeError> {
        Ok(Vec::new())
    }

    /// Opens this client's stream of release announcements. A stream that ends or loses messages costs only
    /// latency: polling stays the truth. `None` when the node has no announcements.
    async fn announcements(&self) -> Option<Announcements>;
}

/// Keys without a time to live that [`Node::endless`] tells of.
#[doc(hidden)] // for stores
pub const MOST_ENDLESS: usize = 1000;

/// Release announcements of one node: keys that have just become free. Lagging or closed is not an error.
#[doc(hidden)] // between the lock and its nodes
pub type Announcements = tokio::sync::mpsc::Receiver<Announcement>;

/// A place in a lock's queue, in whose order its waiters are woken. The queue is a courtesy and decides nothing: an
/// impatient client takes a lock that is free past all waiters.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Random, and the same for as long as its owner waits.
    pub id: String,
    /// How long the node keeps the place of a waiter that does not come back.
    pub life: Duration,
    /// Refuse while another waiter is at the head of the queue, although the lock could be taken.
    pub polite: bool,
}

/// A lock has just been released on a node.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The lock's key; empty where the stream was interrupted, or has begun late: its server may have been started again.
    pub key: String,
    /// The owner whose lease is over.
    pub owner: String,
    /// The ticket at the head of the lock's queue on this node: it is asked to come now, the others to stay.
    pub next: Option<String>,
}

impl Announcement {
    /// The stream was interrupted, or has begun late: what was announced before was not heard.
    pub(crate) fn gap() -> Self {
        Self {
            key: String::new(),
            owner: String::new(),
            next: None,
        }
    }

    pub(crate) fn is_gap(&self) -> bool {
        self.key.is_empty()
    }
}

/// Everything queued for a node, executed as one atomic step.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The latest time on the *node's* clock at which this call may still act (N2); `None` when its clock is unknown.
    pub not_after: Option<NodeMs>,
    /// What to do, in order.
    pub ops: Vec<Op>,
}

/// Order of a record's bodies: by token, then by the holder's revision.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[doc(hidden)] // between the lock and its nodes
pub struct Version {
    /// Token of the lease that wrote it.
    pub token: Token,
    /// Grows with every write of that lease, starting at 1.
    pub rev: u64,
}

/// A record's user part: what the holders of a lock leave for their successors.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Record {
    /// Order of writes.
    pub version: Version,
    /// The content; empty when never written.
    pub body: String,
}

/// What a node shows of one lock.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct View {
    /// The lock's key.
    pub key: String,
    /// Whose lease stands by the node's clock; where there is a plain key, its value, ours or a foreign client's. `None` when
    /// free.
    pub holder: Option<String>,
    /// What is left of it in milliseconds; `None` when free or without a time to live.
    pub remaining_ms: Option<u64>,
    /// The record's owner (of the present or of the last lease).
    pub owner: Option<String>,
    /// The record's round.
    pub seq: u64,
    /// Whether the record's owner has released.
    pub released: bool,
    /// The record's counter, or the claim's grant.
    pub token: Token,
    /// The body's version, and in answers to `Read` the body.
    pub record: Record,
    /// The record's ttl.
    pub ttl_ms: u64,
    /// Whether the record or claim names its owner: only in the incarnation under which it was written.
    pub named: bool,
    /// The incarnation of the record, for [`Seen`].
    pub inc: String,
    /// Broken by force: over for its holder, but not free before it has let go or was watched unchanged for its ttl.
    pub broken: bool,
    /// The value in the plain key is not the row's owner's: it is waited for, never taken.
    pub foreign: bool,
    /// In a refusal of a waiter with a ticket: how many are before it in the queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u32>,
}

/// The holder of a lock whose row makes no sense: it counts as held.
pub(crate) const MALFORMED: &str = "(malformed)";

impl View {
    /// What a row that makes no sense shows.
    pub(crate) fn malformed(key: &str) -> Self {
        Self {
            key: key.to_owned(),
            holder: Some(MALFORMED.to_owned()),
            ..Self::default()
        }
    }

    /// Whether its row makes no sense.
    pub(crate) fn is_malformed(&self) -> bool {
        self.owner.is_none() && !self.foreign && self.holder.as_deref() == Some(MALFORMED)
    }

    /// The holder it shows: by the node's clock; observed, also a record's owner whose time is up by that clock.
    #[doc(hidden)] // for the worker
    pub fn holder_by(&self, expiry: Expiry) -> Option<&str> {
        let recorded = self
            .owner
            .as_deref()
            .filter(|_| expiry == Expiry::Observed && self.named && !self.released);
        self.holder.as_deref().or(recorded)
    }
}

/// A document.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doc {
    /// Its name.
    pub name: String,
    /// The writer's revision.
    pub rev: u64,
    /// The content.
    pub body: String,
}

/// A document that lives: what tells that it was stored or touched, and whether it is another one than before.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Life {
    /// Its name.
    pub name: String,
    /// The writer's revision.
    pub rev: u64,
    /// How much longer it lives, unless it is touched.
    pub left_ms: u64,
}

/// The answers of one call.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The node's clock when it executed the call (the one `not_after` is compared with).
    pub at: NodeMs,
    /// The node's wall clock in Unix milliseconds.
    pub wall_ms: i64,
    /// Whether the node may vote.
    pub eligibility: Eligibility,
    /// One answer per operation.
    pub answers: Vec<Answer>,
}

/// A part of a node's memory.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Page {
    /// Where the next page begins; `None` after the last.
    pub next: Option<Cursor>,
    /// Locks and claims, their bodies empty.
    pub views: Vec<View>,
    /// Bodies by their locks; only of [`Op::Records`].
    pub bodies: Vec<(String, Record)>,
    /// Documents; only of [`Op::Docs`] and [`Op::DocNames`].
    pub docs: Vec<Doc>,
    /// Locks and documents whose bodies are too large for a page: they are read one by one ([`Op::Read`], [`Op::Doc`]).
    pub large: Vec<String>,
    /// How many rows and bodies were forgotten; only of [`Op::Sweep`].
    pub forgotten: u32,
}

/// A node's answer to one operation.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The lock is this owner's; `grant` is this attempt's number on this node.
    Granted {
        /// Above the lock's counter and the floor, remembered as this attempt's grant.
        grant: Token,
        /// What the predecessors left.
        record: Record,
    },
    /// The lease was still here and counts until now + ttl.
    Kept {
        /// Version of the body that stands here, so that the holder can bring it up to date.
        version: Version,
    },
    /// The lease was gone here and has been written anew: no vote in this round (R9).
    Healed {
        /// Version of the body that stands here.
        version: Version,
    },
    /// This node's own grant of this attempt is larger than the token to confirm.
    Larger(Token),
    /// Another owner holds it, or the attempt is over here.
    Refused(View),
    /// The write's `not_before` lies in the node's future.
    TooEarly {
        /// The node's wall clock in Unix milliseconds.
        wall_ms: i64,
    },
    /// Done as asked.
    Done,
    /// The lease is over here; what stood here before.
    Broken(View),
    /// Answer to `Read`.
    View(View),
    /// This operation votes, and the node may not: see [`Reply::eligibility`]. Also: not the standing nomination.
    Unadmitted,
    /// Answer to `Admission` and `Nominate`.
    Admission(Admission),
    /// Answer to `List`, `Records`, `Sweep`, `Docs` and `DocNames`.
    Page(Page),
    /// Answer to `Doc`: one or none. Answer to `TouchDoc`: none, where it has to be stored anew.
    Docs(Vec<Doc>),
    /// Answer to `Living`.
    Lives {
        /// Stands for all names and revisions.
        sum: u64,
        /// The parts that are named, where its sender knows several.
        parts: Vec<u64>,
        /// Those that are named, in any order.
        docs: Vec<Life>,
    },
    /// This operation alone was not done, and this is no vote: why. The others of its call were.
    Failed(NodeError),
}

/// Why nothing of a request was done, where each of its operations was refused for itself.
pub(crate) fn all_failed(answers: &[Answer]) -> Option<&NodeError> {
    let mut failed = answers.iter().map(|answer| match answer {
        Answer::Failed(trouble) => Some(trouble),
        _ => None,
    });
    let first = failed.next()??;
    failed.all(|other| other.is_some()).then_some(first)
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_documents_the_first_by_name_are_known() {
        let doc = |n: usize| Doc {
            name: format!("{n:06}"),
            rev: 1,
            body: String::new(),
        };
        let mut all = BTreeMap::new();
        for page in (0..=MOST_NAMES).rev().collect::<Vec<_>>().chunks(500) {
            gather(&mut all, page.iter().copied().map(doc));
        }
        assert_eq!(all.len(), MOST_NAMES);
        assert!(all.contains_key("000000") && !all.contains_key(&format!("{MOST_NAMES:06}")));
    }
}
