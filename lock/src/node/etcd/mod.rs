//! An etcd cluster as a node: the locks of a fleet in a store that is consistent by itself.
//!
//! # How
//! etcd executes no rules of ours, but it compares and writes in one step. A call reads all that it can touch at *one* revision of
//! the store (`sheet.rs`), the rules that memory and the embedded file go by decide what becomes of it, and one transaction writes
//! what has changed if nothing that the call goes by has changed meanwhile. Otherwise it has found what stands there now, and the
//! call is decided anew. So a call costs two requests, one that only looks costs one, and of several that want the same one always
//! comes through. It is spoken to over its HTTP gateway, in JSON, which is at `/v3/` since etcd 3.4: an older one is refused.
//!
//! # Calls that write nothing
//! They rest on one read, for which the member that is asked hears from a majority first (none of our reads is `serializable`). Where
//! an old version answers from before all the same, an answer that says who holds a lock, or that it is free or over, lets no other
//! in: whatever is granted, kept or ended is written by a transaction that compares what was read. An answer that promises something
//! and finds it there already (a grant that is asked for again, a confirmation, a body that stands) writes nothing, and is compared
//! by a majority as well: by a transaction that could write, because etcd answers one that only compares by a read.
//!
//! # The counter
//! Fencing tokens come from the revision, which grows with every writing: who has found revision R, and writes only if the lock has
//! not changed since, has a larger token than any owner of the lock at or before R. There is no row that all writers share: each
//! revision leaves room for more tokens than one step can grant.
//!
//! # Time
//! Leases are observed by the clients that wait ([`Expiry::Observed`]). etcd tells no time; what goes by a node's clock goes by
//! that of the member which is asked, as the dates of its answers bound it (`civil.rs`): a second wide at first, and narrower with
//! each answer. Nothing begins early, and what was promised ends late by as much as is not known: claims, marks of releases, bodies.
//! Documents, and places in a queue, may end early by it: `allowance.rs` says why that is no promise broken. etcd's own leases are not
//! used: they are counted in whole seconds, and begin again with each new leader of the cluster.
//!
//! # Memory
//! What was written stands on a majority of the members. Members that are killed, frozen or replaced have forgotten nothing. The life
//! of the memory is named by the cluster's id and the revision at which our first key was made: a cluster that was made from a backup
//! has another id, and votes when the longest lease is over, under larger tokens. One that was made from a backup under the *same* id
//! shows by a revision that is smaller than was seen: then the answer is [`NodeError::Gone`].
//!
//! # When things fail
//! A request that could not be sent, or was refused, was not executed. When the answer to a transaction does not come, it may have
//! been ([`NodeError::Timeout`]), and what comes true late is held by what it compares. The next member is asked after one that
//! does not serve.
//!
//! # Invariants
//! - V1 A call that is written was decided on what stands when it is written.
//!   (no_update_is_lost_under_the_lock of the common suite)
//! - V2 What was deleted is not taken for what never was.       (what_was_deleted_meanwhile_is_no_absence)
//! - V3 A cluster whose members were killed has forgotten nothing and votes at once.
//!   (a_server_that_was_killed_votes_at_once_with_all_it_knew)
//! - V4 A program that has seen a later state takes no copy from before for its memory. (a_copy_from_before_is_refused)
//! - V5 A cluster that was made from a backup does not vote before the longest lease is over.
//!   (a_cluster_made_from_a_backup_does_not_vote)
//! - V6 What is promised without being written is compared by a majority.
//!   (what_is_granted_again_without_writing_is_compared)
//! - V7 What was promised ends by a member's clock no earlier than that.   (ends_that_are_promised_are_put_off_and_no_others)
//! - V8 What is too old is asked for nothing but its version.   (an_old_server_is_refused_by_its_version_and_asked_nothing_else)
//!
//! # Not promised
//! - That a call of more than 60 operations is one step: it is executed in parts, in order.
//! - That a backup restored under the same id is noticed by a program that starts afterwards, or that looks again only when it
//!   has grown past what was seen: let `etcdctl snapshot restore` have an `--initial-cluster-token` of its own.
//! - That a verification, which is a look, sees a break by force at once, where a member of etcd before 3.4.42, 3.5.28 or 3.6.9 has
//!   stood still: it may show what stood there before. No other owner holds the lock by that, and its holder's deadline stands.
//! - That a transaction whose answer did not come has ended. One that comes true late may leave a lock with an owner who has given up:
//!   then it is free when it was watched for its ttl.
//!
//! # Example
//! ```no_run
//! use watchkeeper_lock::{Locks, settings::LockSettings};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let members = ["http://etcd-a:2379", "http://etcd-b:2379", "http://etcd-c:2379"];
//! let locks = Locks::open(&LockSettings::etcd(members), "shop")?.start()?;
//! # let _ = locks;
//! # Ok(())
//! # }
//! ```

mod address;
mod allowance;
mod announce;
mod civil;
mod clean;
mod client;
mod error;
mod gone;
mod inspect;
mod keys;
mod parts;
mod session;
mod settings;
mod shared;
#[cfg(test)]
mod tests;
mod values;
mod version;
mod view;
mod wire;
mod write;

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, atomic::AtomicBool},
};

use async_trait::async_trait;
use tokio::sync::Mutex as Turnstile;

#[doc(hidden)] // for the settings
pub use self::address::{check_endpoint, check_tls};
pub use self::{address::EtcdTlsFiles, settings::EtcdNodeSettings};
use self::{
    announce::Listener,
    client::Client,
    keys::Keys,
    session::Session,
    shared::{Common, Shared},
};
use super::{
    Announcements, Call, Expiry, Node, NodeError, NodeFacts, Reply, Servers,
    remote::{Compared, Furthest, in_turn},
};
use crate::{chance::Chance, clock::Clock, spawn::Spawn};

/// The most operations that one call may carry.
const MAX_OPS: usize = 250;

/// An etcd cluster as a node.
#[doc(hidden)] // made from the settings
pub struct EtcdNode {
    shared: Arc<Shared>,
    /// Calls are executed in the order in which they come.
    session: Arc<Turnstile<Session>>,
}

// === impl EtcdNode ===

impl EtcdNode {
    /// A node over these members. Does not connect yet.
    ///
    /// # Errors
    /// A sentence: which endpoint or which file makes no sense, and why.
    pub fn new(settings: EtcdNodeSettings, clock: Clock, spawn: Spawn) -> Result<Self, String> {
        let client = Client::new(&settings, clock.clone())?;
        let common = Common {
            // Members come and go, and rosters name nodes: who it is lies in its data.
            name: "etcd".to_owned(),
            keys: Keys::new(&settings.namespace),
            compared: Compared::new(settings.guard.clone()),
            settings,
            furthest: Furthest::default(),
            joined: OnceLock::new(),
            cluster: Mutex::default(),
            clock,
            spawn,
            chance: Chance::system(),
            cleans: AtomicBool::new(false),
        };
        let shared = Shared {
            client,
            common: Arc::new(common),
        };
        Ok(Self::over(Arc::new(shared)))
    }

    fn over(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            session: Arc::default(),
        }
    }
}

#[async_trait]
impl Node for EtcdNode {
    fn name(&self) -> &str {
        &self.shared.name
    }

    /// The members' clocks may jump.
    fn expiry(&self) -> Expiry {
        Expiry::Observed
    }

    /// Its counter is the revision, and its time is the date of its answers.
    fn is_approximate(&self) -> bool {
        true
    }

    fn agree(&self, config: &str) -> bool {
        self.shared.compared.agree(config)
    }

    fn join(&self, servers: &Servers, place: usize) {
        _ = self.shared.joined.set((servers.clone(), place));
    }

    async fn identity(&self) -> Option<String> {
        let mut session = self.session.lock().await;
        let cluster = session.ready(&self.shared).await.ok()?;
        Some(cluster.to_owned())
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        if call.ops.len() > MAX_OPS {
            return Err(NodeError::Protocol(format!(
                "{} operations in one call, {MAX_OPS} at most",
                call.ops.len()
            )));
        }
        let shared = Arc::clone(&self.shared);
        let limit = shared.settings.node_timeout;
        let done = in_turn(
            &self.session,
            &self.shared.spawn,
            async move |mut session| session::call(&mut session, &shared, &call).await,
        );
        // The task died with the call in hand: it may have been executed.
        done.await.unwrap_or(Err(NodeError::Timeout(limit)))
    }

    fn another(&self) -> Option<Arc<dyn Node>> {
        Some(Arc::new(Self::over(Arc::new(self.shared.another()))))
    }

    async fn inspect(&self) -> Result<NodeFacts, NodeError> {
        inspect::inspect(&self.shared).await
    }

    async fn announcements(&self) -> Option<Announcements> {
        Listener::new(Arc::new(self.shared.another())).start().await
    }
}

impl fmt::Debug for EtcdNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdNode")
            .field("members", &self.shared.client)
            .finish_non_exhaustive()
    }
}
