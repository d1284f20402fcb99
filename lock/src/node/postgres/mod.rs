//! A PostgreSQL database as a node: the locks of a fleet beside the data that it works on.
//!
//! # How
//! Tables of their own keep what every node keeps; one row for each namespace orders its writers. A call is one transaction of
//! two flights: the first takes that row (`FOR UPDATE`), then reads all that the call can touch (`sheet.rs`) and the server's
//! clock, in a statement of its own that begins after the row was taken. The rules that memory and the embedded file go by
//! decide what becomes of it. The second flight writes what has changed, and commits. A call that changes nothing does not wait for
//! its end, and one that only looks at locks is a single statement in a single flight: standbys never queue behind writers.
//! Nothing but the rows of ours is locked, and no function of ours lies in the server.
//!
//! # Time
//! Leases are observed by the clients that wait ([`Expiry::Observed`]): the server's clock may jump. It is read in each call, and
//! bounds how late a call may act.
//!
//! # Memory
//! What was committed is on the server's disk, so that a server which crashes and starts again has forgotten nothing, and votes at
//! once. Its life is named by the cluster's system identifier, its timeline, and the numbers of database and table: a standby that
//! is promoted begins a new timeline, and may have missed the last commits; a dump lies in new tables. It votes when the longest lease
//! is over. A copy of the disk from before shows by less written log than was seen: then the answer is [`NodeError::Gone`].
//!
//! # When things fail
//! An error before the end of a transaction is told, and nothing was executed. When the answer to `COMMIT` does not come, it may
//! have been ([`NodeError::Timeout`]). A process that freezes between its two flights holds the row of its namespace for as long as
//! four times the node's timeout: then the server ends its transaction. A server that recovers, or takes no writes, is left, and
//! the address is tried from its beginning.
//!
//! # Poolers
//! Behind a pooler that gives each transaction another connection settings are made in each transaction, statements have no names,
//! and nothing is kept in a session: all works but announcements, which [`connect`] finds out. Waiters poll then. A connection of our own
//! keeps its settings and the plans of its statements, for about two thirds of the server's work.
//!
//! # Invariants
//! - D1 What a call reads after it has its namespace's row, no other call changes before it has ended.
//!   (no_update_is_lost_under_the_lock of the common suite)
//! - D2 A promoted standby does not vote before the longest lease is over.    (a_promoted_standby_does_not_vote)
//! - D3 A server that was started again has forgotten nothing and votes at once.
//!   (a_server_that_was_killed_votes_at_once_with_all_it_knew)
//! - D4 A client that freezes between its flights delays others by less than twice the idle limit.
//!   (a_client_that_freezes_between_its_flights_delays_others_for_a_while_only)
//! - D5 A standby never grants.                                               (a_standby_is_refused)
//! - D6 Tables that were made again are another life, whatever stands in them. (tables_that_were_made_again_do_not_vote)
//! - D7 A program that has seen a later state takes no copy from before for its memory, and no living database for a copy.
//!   (a_copy_from_before_is_noticed, connections_beside_each_other_see_no_copy_from_before)
//! - D8 What has been lost with a promotion is granted again when the longest lease is over, under a larger token.
//!   (a_lease_lost_by_a_promotion_is_granted_again_when_the_longest_is_over)
//! - D9 A lease that stands is written anew where it was read: what a person has changed meanwhile stays as it is, and the call is not told as done.
//!   (an_extension_leaves_a_row_alone_that_was_changed_meanwhile)
//!
//! # Not promised
//! That a copy of the disk from before is noticed by a program which starts afterwards, or which has seen no later state. Two
//! standbys that are promoted one after the other from one timeline, without an archive in common, have equal names: the second one's
//! log may end earlier, and programs that have seen the first one answer `Gone` until they are started again.
//!
//! Exclusion against a primary that lives on, or is started again, beside its successor, with *asynchronous* replication: who
//! reaches only the old one and who reaches only the new one may both hold a lock, until whatever manages the servers stops the old
//! one. A program that reaches both, by an address with all servers, leaves the old one within five seconds ([`watch`]): before the new
//! one grants anything, where the longest lease is six seconds shorter than `max_ttl`. With a synchronous standby the old one commits
//! nothing, unless a person cancels a commit that waits for it.
//!
//! # Example
//! ```no_run
//! use watchkeeper_lock::{Locks, settings::LockSettings};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let settings = LockSettings::postgres("postgres://worker@db/app?sslmode=verify-full");
//! let locks = Locks::open(&settings, "shop")?.start()?;
//! # let _ = locks;
//! # Ok(())
//! # }
//! ```

#[doc(hidden)] // for the stock jobs
pub mod address;
mod announce;
#[doc(hidden)] // for the stock jobs
pub mod connect;
#[doc(hidden)] // for the stock jobs
pub mod error;
#[doc(hidden)] // for the stock jobs
pub mod history;
mod inspect;
mod kept;
mod layout;
mod rows;
mod session;
mod shared;
#[doc(hidden)] // for the settings
pub mod tls;
#[doc(hidden)] // for the stock jobs
pub mod watch;
mod written;

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use tokio::sync::Mutex as Turnstile;

use self::{
    announce::Listener,
    rows::Sql,
    session::Session,
    shared::{RefusedLately, Shared},
};
pub use self::{
    layout::{ddl, quoted},
    shared::PostgresNodeSettings,
};
use super::{
    Announcements, Answer, Call, Expiry, MOST_OPS, Node, NodeError, NodeFacts, Op, Reply, Servers,
    remote::{Compared, Furthest, in_turn},
};
use crate::{clock::Clock, spawn::Spawn};

/// Extensions that one call may carry: each call waits for the disk once, which takes longer than what it writes.
const MOST_EXTENSIONS: usize = 500;
/// Bytes of a name at most: an index of PostgreSQL takes somewhat more than twice as many.
const LONGEST_NAME: usize = 1_000;

/// A PostgreSQL database as a node.
#[doc(hidden)] // made from the settings
pub struct PostgresNode {
    shared: Arc<Shared>,
    /// The one connection for calls: in the order in which they come.
    session: Arc<Turnstile<Option<Session>>>,
}

// === impl PostgresNode ===

impl PostgresNode {
    /// A node at this address. Does not connect yet.
    #[must_use]
    pub fn new(settings: PostgresNodeSettings, clock: Clock, spawn: Spawn) -> Self {
        let shared = Shared {
            // Addresses change, and rosters name nodes: who it is lies in its data.
            name: "postgres".to_owned(),
            sql: Sql::new(&settings.schema),
            compared: Compared::new(settings.guard.clone()),
            settings,
            clock,
            spawn,
            furthest: Furthest::default(),
            pooled: Arc::default(),
            joined: OnceLock::new(),
            refused: RefusedLately::default(),
        };
        Self::over(Arc::new(shared))
    }

    fn over(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            session: Arc::default(),
        }
    }
}

#[async_trait]
impl Node for PostgresNode {
    fn name(&self) -> &str {
        &self.shared.name
    }

    /// The server's clock may jump.
    fn expiry(&self) -> Expiry {
        Expiry::Observed
    }

    fn agree(&self, config: &str) -> bool {
        self.shared.compared.agree(config)
    }

    fn join(&self, servers: &Servers, place: usize) {
        _ = self.shared.joined.set((servers.clone(), place));
    }

    async fn identity(&self) -> Option<String> {
        let mut session = self.session.lock().await;
        let session = session::ready(&mut session, &self.shared).await.ok()?;
        Some(session.identity.clone())
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        let extends = call.ops.iter().all(|op| matches!(op, Op::Extend { .. }));
        let most = if extends { MOST_EXTENSIONS } else { MOST_OPS };
        if call.ops.len() > most {
            return Err(NodeError::Protocol(format!(
                "{} operations in one call, {most} at most",
                call.ops.len()
            )));
        }
        let (call, refused) = without_long_names(call);
        let shared = Arc::clone(&self.shared);
        let limit = shared.settings.node_timeout;
        // It goes on when the caller has gone: no transaction is left open.
        let done = in_turn(
            &self.session,
            &self.shared.spawn,
            async move |mut session| session::call(&mut session, &shared, &call).await,
        );
        // The task died with the call in hand: it may have been executed.
        let mut reply = done.await.unwrap_or(Err(error::unknown(limit)))?;
        for (at, why) in refused {
            reply.answers.insert(at, Answer::Failed(why));
        }
        Ok(reply)
    }

    fn most_extensions(&self) -> usize {
        MOST_EXTENSIONS
    }

    fn another(&self) -> Option<Arc<dyn Node>> {
        Some(Arc::new(Self::over(Arc::clone(&self.shared))))
    }

    async fn inspect(&self) -> Result<NodeFacts, NodeError> {
        inspect::inspect(&self.shared).await
    }

    async fn announcements(&self) -> Option<Announcements> {
        Listener::new(Arc::clone(&self.shared)).start().await
    }
}

impl fmt::Debug for PostgresNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresNode")
            .field("name", &self.shared.name)
            .finish_non_exhaustive()
    }
}

/// The call without operations on names that no index takes, and why each of those is not done. It costs them alone.
fn without_long_names(mut call: Call) -> (Call, Vec<(usize, NodeError)>) {
    let mut refused = Vec::new();
    let mut at = 0;
    call.ops.retain(|op| {
        let name = match op {
            Op::Acquire { key: name, .. }
            | Op::Leave { key: name, .. }
            | Op::Confirm { key: name, .. }
            | Op::Extend { key: name, .. }
            | Op::Release { key: name, .. }
            | Op::Break { key: name, .. }
            | Op::Write { key: name, .. }
            | Op::Merge { key: name, .. }
            | Op::Forget { key: name, .. }
            | Op::PutDoc { name, .. } => name.len(),
            _ => 0,
        };
        if name > LONGEST_NAME {
            let why = format!("a name of {name} bytes, {LONGEST_NAME} at most");
            refused.push((at, NodeError::Protocol(why)));
        }
        at += 1;
        name <= LONGEST_NAME
    });
    (call, refused)
}
