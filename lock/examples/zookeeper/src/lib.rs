//! A ZooKeeper ensemble as a node of [`watchkeeper_lock`]: a whole example of a store that is not in that crate.
//!
//! # How
//! All that the node remembers is one value ([`NodeState`]), which lies in one znode as a text. A call reads it with its version,
//! lets the rules decide what becomes of it, and writes it if the version is still the same. If not, another was faster, and the call
//! is decided anew. There is no rule of locks in this file, and a store that reads and compares one value can be a node like this.
//!
//! A ZooKeeper server answers reads from its own memory, which may lag behind. So a call that has nothing to write ends with a
//! transaction as well, which compares the version alone: what is answered was true of the whole ensemble at that moment.
//!
//! # Time
//! Named locks need none of ZooKeeper's: a silent holder is over when those who wait have watched its record for its ttl, on their own
//! monotonic clocks ([`Expiry::Observed`], which [`Node::expiry`] says unless told otherwise). ZooKeeper tells no time without being
//! written to, so whatever goes by a node's clock goes by the wall clock of the machine that calls: short claims, documents, places in
//! a queue. A machine whose clock is ahead sees the claims of others end early. Keep the clocks of a fleet together, or use named
//! locks alone.
//!
//! # Memory
//! What was written stands on a majority of the ensemble, and servers that are killed have forgotten nothing. A program notices a
//! znode that was deleted and made again, and an ensemble that was taken back to an earlier copy: what it holds ends
//! ([`NodeError::Gone`]). A program that starts afterwards takes what it finds. So stop all programs for the longest ttl before you do
//! either.
//!
//! # When things fail
//! What is not sent, or refused, was not executed. When the answer to what was sent does not come, it may have been
//! ([`NodeError::Timeout`]); if it comes true late, then only where nothing else was written meanwhile. A connection on which anything
//! fails is left behind with its session, of which nothing depends: locks are no ephemeral znodes.
//!
//! # Not promised
//! - Room: a request of ZooKeeper holds 1 MiB (`jute.maxbuffer`), and all locks share it, at about 250 bytes each. A node that is full
//!   grants nothing more, and what is held goes on.
//! - Many at once: each call writes the whole memory, and of those that come together one comes through. Where that is too slow, share
//!   the names of the locks out over several znodes, each with [`watchkeeper_lock::Locks`] of its own. A row for each lock is more
//!   work: the nodes over PostgreSQL and etcd show it.
//! - News: clients that wait ask again and again ([`Node::announcements`] has none).
//! - Several ensembles as several nodes. One ensemble is one node, and survives its servers by itself.
//!
//! # Example
//! ```no_run
//! use std::{sync::Arc, time::Duration};
//! use watchkeeper_lock::{Locks, lock::Timing};
//! use watchkeeper_zookeeper::{Client, ZooKeeperNode};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let servers = "zk-a:2181,zk-b:2181,zk-c:2181";
//! let node_timeout = Duration::from_millis(500);
//! let node = ZooKeeperNode::new(Client::connector(), servers, "/watchkeeper/shop", node_timeout);
//! let timing = Timing { node_timeout, ..Timing::default() };
//! let locks = Locks::over(vec![Arc::new(node)]).timing(timing).start()?;
//!
//! let lease = locks.lock("report").acquire().await?;
//! println!("ours, fenced by {}", lease.token());
//! lease.release().await;
//! # Ok(()) }
//! ```

use std::{
    fmt,
    sync::{Arc, Mutex as StdMutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::sync::Mutex;
#[cfg(doc)]
use watchkeeper_lock::node::Expiry;
use watchkeeper_lock::{
    chance::Chance,
    clock::Clock,
    node::{Announcements, Call, Node, NodeError, NodeMs, Op, Refusal, Reply, memory::NodeState},
};
use zookeeper_client::{Acls, CreateMode, Error, Stat};
pub use zookeeper_client::{Client, Connector};

/// How often a call is decided while others are faster each time.
const TRIES: u32 = 8;
/// Those who want the same spread over as much more with each try.
const SPREAD: Duration = Duration::from_millis(4);
/// Bytes up to which the memory grows. A request holds some more, for those who extend and release.
const MOST: usize = 1_020_000;

/// A znode of a ZooKeeper ensemble as a node.
pub struct ZooKeeperNode {
    shared: Arc<Shared>,
    /// The connection, once there is one. Calls are executed in the order in which they come.
    connection: Mutex<Option<Client>>,
}

/// What all connections to a node have in common.
struct Shared {
    connector: Connector,
    servers: String,
    path: String,
    limit: Duration,
    clock: Clock,
    chance: Chance,
    memory: StdMutex<Memory>,
}

/// What is known of the ensemble's memory.
#[derive(Default)]
struct Memory {
    furthest: Option<Furthest>,
    /// It was met in an earlier state, or made anew. Also when that has grown again: what it knows is old.
    is_gone: bool,
}

/// Up to where it was seen.
#[derive(Clone, Copy)]
struct Furthest {
    /// The transaction that made the znode.
    made: i64,
    /// The one that changed it last.
    changed: i64,
}

// === impl ZooKeeperNode ===

impl ZooKeeperNode {
    /// The node whose memory is the znode `path` of the ensemble of these servers (`host:port`, with commas). Does not connect yet;
    /// the connector says how that is done: TLS, users, times.
    ///
    /// What is missing of the path is made, open to every user of ZooKeeper: where that is not wanted, make it yourself, empty and
    /// with rights. A call takes `limit` at most, within which the first one connects, too.
    #[must_use]
    pub fn new(
        connector: Connector,
        servers: impl Into<String>,
        path: impl Into<String>,
        limit: Duration,
    ) -> Self {
        Self::at(Arc::new(Shared {
            connector,
            servers: servers.into(),
            path: path.into(),
            limit,
            clock: Clock::system(),
            chance: Chance::system(),
            memory: StdMutex::default(),
        }))
    }

    fn at(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            connection: Mutex::default(),
        }
    }

    async fn execute(&self, call: &Call) -> Result<Reply, NodeError> {
        // Whoever asked first has it first.
        let mut connection = self.connection.lock().await;
        let client = match connection.take() {
            Some(client) => client,
            None => self.shared.connect().await?,
        };
        let done = self.shared.execute(&client, call).await;
        // One that fails, or whose caller has gone by now, is not put back.
        let failed = matches!(done, Err(NodeError::Unreachable(_) | NodeError::Timeout(_)));
        if !failed && !client.state().is_terminated() {
            *connection = Some(client);
        }
        done
    }
}

#[async_trait]
impl Node for ZooKeeperNode {
    fn name(&self) -> &str {
        "zookeeper"
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        let limit = self.shared.limit;
        let done = self.shared.clock.timeout(limit, self.execute(&call)).await;
        // It may have been sent.
        done.unwrap_or(Err(NodeError::Timeout(limit)))
    }

    fn another(&self) -> Option<Arc<dyn Node>> {
        Some(Arc::new(Self::at(Arc::clone(&self.shared))))
    }

    async fn announcements(&self) -> Option<Announcements> {
        None
    }
}

impl fmt::Debug for ZooKeeperNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ZooKeeperNode")
            .field("servers", &self.shared.servers)
            .field("path", &self.shared.path)
            .finish_non_exhaustive()
    }
}

// === impl Shared ===

impl Shared {
    async fn connect(&self) -> Result<Client, NodeError> {
        let connector = self.connector.clone();
        connector.connect(&self.servers).await.map_err(refused)
    }

    /// Executes a call in one step: reads, decides, and writes if nothing was written meanwhile.
    async fn execute(&self, client: &Client, call: &Call) -> Result<Reply, NodeError> {
        for tries in 0..TRIES {
            // Before anything is asked: what is seen meanwhile says nothing of what this call is told.
            let floor = self.furthest()?;
            let (text, stat) = self.read(client).await?;
            let mut state = NodeState::read(&text)?;
            let wall_ms = self.clock.wall().as_millisecond();
            let now = NodeMs(u64::try_from(wall_ms).unwrap_or(0));
            let reply = state.apply(now, wall_ms, call)?;
            let next = state.written()?;
            check_room(call, text.len(), next.len())?;
            let next = (next != text).then_some(next);
            if let Some(stat) = self.write(client, stat, next.as_deref()).await? {
                self.has_met(floor, &stat)?;
                return Ok(reply);
            }
            self.clock.sleep(self.chance.up_to(SPREAD * tries)).await;
        }
        Err(NodeError::Unfit("others were faster each time".to_owned()))
    }

    /// What the server knows of the memory, and which version that is.
    async fn read(&self, client: &Client) -> Result<(String, Stat), NodeError> {
        let mut found = client.get_data(&self.path).await;
        if matches!(found, Err(Error::NoNode)) {
            // With all above it. Made twice it is made once.
            let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
            client.mkdir(&self.path, &open).await.map_err(refused)?;
            found = client.get_data(&self.path).await;
        }
        let (data, stat) = found.map_err(refused)?;
        match String::from_utf8(data) {
            Ok(text) => Ok((text, stat)),
            Err(_) => Err(NodeError::Refused {
                refusal: Refusal::WrongType,
                said: format!("what lies in {} is no text", self.path),
            }),
        }
    }

    /// Writes the memory where this version of it stands, or sees to it that it does; `None` where it does not.
    async fn write(
        &self,
        client: &Client,
        stat: Stat,
        next: Option<&str>,
    ) -> Result<Option<Stat>, NodeError> {
        // After four billion writings. Newer servers leave it out.
        if stat.version == ANY_VERSION {
            let why = "the version of its znode cannot be compared: write to it by hand, once";
            return Err(NodeError::Unfit(why.to_owned()));
        }
        let done = match next {
            Some(next) => {
                let next = next.as_bytes();
                client.set_data(&self.path, next, Some(stat.version)).await
            }
            None => self.compare(client, stat).await,
        };
        match done {
            Ok(stat) => Ok(Some(stat)),
            Err(Error::BadVersion | Error::NoNode) => Ok(None),
            Err(why) if is_refusal(&why) => Err(refused(why)),
            // It was sent, and not answered.
            Err(_) => Err(NodeError::Timeout(self.limit)),
        }
    }

    /// A transaction that writes nothing: the whole ensemble agrees on it.
    async fn compare(&self, client: &Client, stat: Stat) -> Result<Stat, Error> {
        let mut writer = client.new_multi_writer();
        writer.add_check_version(&self.path, stat.version)?;
        writer.commit().await?;
        Ok(stat)
    }

    fn furthest(&self) -> Result<Option<Furthest>, NodeError> {
        let memory = self.memory();
        match memory.is_gone {
            true => Err(gone()),
            false => Ok(memory.furthest),
        }
    }

    /// What was executed counts in the memory that was seen before, and in no other, though it stands there.
    fn has_met(&self, floor: Option<Furthest>, stat: &Stat) -> Result<(), NodeError> {
        let mut memory = self.memory();
        let other = |floor: Furthest| floor.made != stat.czxid || stat.mzxid < floor.changed;
        if floor.is_some_and(other) {
            memory.is_gone = true;
            return Err(gone());
        }
        let furthest = memory.furthest.get_or_insert(Furthest {
            made: stat.czxid,
            changed: stat.mzxid,
        });
        furthest.changed = furthest.changed.max(stat.mzxid);
        Ok(())
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// To compare with this is to compare with nothing.
const ANY_VERSION: i32 = -1;

/// What is added leaves room for those who extend and release.
fn check_room(call: &Call, before: usize, after: usize) -> Result<(), NodeError> {
    let adds = |op: &Op| {
        matches!(
            op,
            Op::Acquire { .. } | Op::Write { .. } | Op::PutDoc { .. }
        )
    };
    if after <= MOST || after <= before || !call.ops.iter().any(adds) {
        return Ok(());
    }
    Err(NodeError::Refused {
        refusal: Refusal::OutOfMemory,
        said: format!("{after} bytes in one znode, {MOST} at most"),
    })
}

fn gone() -> NodeError {
    let why = "its znode was made anew, or taken back to an earlier copy";
    NodeError::Gone(why.to_owned())
}

/// Whether the ensemble says that it has done nothing.
fn is_refusal(why: &Error) -> bool {
    matches!(
        why,
        Error::NoAuth
            | Error::InvalidAcl
            | Error::BadArguments(_)
            | Error::NotReadOnly
            | Error::QuotaExceeded
            | Error::Throttled
            | Error::SessionMoved
            | Error::MarshallingError
            | Error::Unimplemented
    )
}

/// Why nothing was done.
fn refused(why: Error) -> NodeError {
    let said = why.to_string();
    match why {
        Error::NoAuth | Error::AuthFailed | Error::InvalidAcl => NodeError::Auth(said),
        Error::NotReadOnly | Error::QuotaExceeded | Error::Throttled => NodeError::Unfit(said),
        Error::BadArguments(_) | Error::MarshallingError | Error::Unimplemented => {
            NodeError::Protocol(said)
        }
        _ => NodeError::Unreachable(said),
    }
}
