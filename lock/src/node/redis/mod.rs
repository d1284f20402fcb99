//! A Redis (or Valkey) master as a node.
//!
//! One hash, the *table*, has all that safety rests on, so that a server has all of it or none. Four Lua scripts execute a
//! whole [`Call`] in one round trip. With raw keys a lock is also what the Redlock algorithm makes it: a string key, set if
//! absent with a time to live to its owner's random value, removed by compare-and-delete. So other Redlock clients on the
//! same key exclude us and are excluded.
//!
//! # Keys (layout version 2; `{NS}` is a literal hash tag)
//! | key | content |
//! | --- | --- |
//! | `{NS}:2:t` | hash: the table |
//! | `{NS}:2:b` | hash: bodies by `KEY`, of which the table knows version and length: one that does not fit was damaged |
//! | `{NS}:2:doc:NAME` | hash: a document |
//! | `{NS}:2:docs:DIR` | sorted set: names of the documents of one directory by the end of their life |
//! | `{NS}:2:revs:DIR` | hash: revisions of the same by name, and what they come to; of directories that are asked which documents live, for a minute |
//! | `{NS}:2:w:KEY` | sorted set: the tickets of those who queue for a lock, in order |
//! | `{NS}:2:we:KEY` | sorted set: the same by the time until which each place is kept |
//! | `{NS}:2:ch` | channel: `OWNER KEY` at a release for which a client waits; `OWNER>TICKET KEY` where one queues |
//! | `KEY`, with raw keys | string: the holder's value, with its time to live, beside the row of the table |
//!
//! | field of the table | content |
//! | --- | --- |
//! | `lKEY` | the row of a lock: a record or a claim |
//! | `eKEY` | until when its body is kept, the body's version and length |
//! | `c` | the largest counter of all that was forgotten |
//! | `m`, `mw`, `mc`, `ml` | the marker: incarnation, server, configuration, loss of memory |
//! | `n`, `nw`, `nc` | the standing nomination: nonce, server, configuration |
//! | `i` | when the server was last asked which life it is in |
//!
//! Rows are texts of fields with fixed widths, which the scripts compare and cut without a number or a table being made:
//!
//! | record | state `H` held, `R` released, `B` broken | counter | grant | until | waits | ttl | version (token, revision) | round | incarnation | owner |
//! | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |
//! | from | 1 | 2 | 18 | 34 | 47 | 60 | 70 | 102 | 118 | 134 |
//!
//! A claim has `C` 1, grant 2, until 18, incarnation 31, owner 47; of a body until 1 (all nines: it does not end), version 14,
//! length 46. An incarnation has 16 letters, filled up with `-`. A row that makes no sense costs its lock alone: it is shown as held by
//! `(malformed)`. A table that is no hash costs the node: it is refused by name.
//!
//! # Modules in reading order
//! `script` and `ops/*.lua` (what is sent and what it does), `link` (the connection and its breaker), `preflight`
//! (which servers are refused), `rights` (what the user must be allowed), `trouble` (what an error means), `announce`
//! (release announcements), `inspect` (what a server tells of itself), `endless` (raw keys without a time to live), `tls` (certificates).
//!
//! # How long a server is held
//! Redis runs one script at a time. A call has [`MAX_OPS`] operations at most, and a page of a walk looks at 25 rows or so,
//! whatever it was asked for: either takes a fraction of a millisecond, or two at most. Bodies may be large: no walk meets them,
//! they are read where one is inherited or asked for, and written where a holder writes one. What a stranger has put into a raw
//! key is cut in the server.
//!
//! # What a node says is input
//! A call is executed in memory and written at its end. What cannot be done is refused operation by operation
//! ([`crate::node::Answer::Failed`]), and the others of the call are done: what needs a counter that is out of range or at its
//! end, a body that is gone, or room in a memory that is full. A marker that is none of ours counts as none. Numbers are checked
//! once more where they are read.
//!
//! # The restart guard
//! `who` names the life of a server's memory: its run id, the number of the database, and the history that it was promoted from
//! (`master_replid2`; zeros where it never was, and again when it has had no replica for `repl-backlog-ttl`, which is no new
//! life). A process that ends takes its connections with it, so the run id is read when a connection is made. The rest is asked
//! for by `INFO replication` inside the scripts, until the connection has seen the marker of this life (`Connection`), which is
//! then only compared with what stands there; with `Call` also once in each millisecond: a call that has asked and writes leaves
//! the time in the table (`i`). A marker of another history is taken away by the first call that sees it, so that it does not
//! count again when the history is forgotten. A server that becomes a replica has no vote, refuses to write, and is looked at
//! anew. The book has all events in a table.
//! On a busy server that costs nothing that can be measured: acquiring and releasing take 7 microseconds each in all modes, where
//! to ask with every call took 17 (Redis 7.0, 6.2, 8.2 and Valkey 8.1 on a busy machine with 2 cores, least of 10 series by
//! `commandstats`, 256 locks at once); an extension takes 13. A server that is asked less than once a millisecond pays 4 a call.
//!
//! A connection in use looks at its server again every few seconds, and as soon as the marker is gone: eviction may have been
//! switched on. Nodes of one [`crate::Locks`] tell each other which server they have reached, at every connection.
//!
//! Without the guard a marker stands as well (`m` is `-` and a hash of `mc`): the first call that votes writes it, and each call
//! compares it. So programs with the guard and programs without it refuse each other by name, like all that are configured
//! differently.
//!
//! # When a server refuses
//! [`crate::node::Refusal`] has them all. A server that refuses everything counts as down, as one that is silent does:
//! it is asked again in the background, and costs the others nothing. A server that refuses what was asked stays up: full
//! memory (`OOM`) refuses new locks, while those that are held are still extended and released: after a script's first write
//! Redis lets the others pass, so a script that is told `OOM` begins with one that is always allowed and changes nothing. None is
//! a vote.
//!
//! # Not promised
//! Unguarded, a server that loses its memory forgets its locks; with `Take::Server`, clocks of servers that jump end
//! leases early or late. One such server of N is outvoted.
//!
//! # Example
//! ```no_run
//! use std::{sync::Arc, time::Duration};
//! use watchkeeper_lock::{
//!     Locks,
//!     clock::Clock,
//!     node::{
//!         GuardSettings, Node,
//!         redis::{RedisNode, RedisNodeSettings, SetupError, TlsFiles},
//!     },
//!     spawn::Spawn,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = |address: &str| -> Result<Arc<dyn Node>, SetupError> {
//!     let settings = RedisNodeSettings {
//!         url: format!("redis://{address}").into(),
//!         username: None,
//!         password: None,
//!         tls: TlsFiles::default(),
//!         node_timeout: Duration::from_millis(500),
//!         namespace: "shop".to_owned(),
//!         raw_keys: false,
//!         guard: GuardSettings::default(),
//!     };
//!     Ok(Arc::new(RedisNode::new(&settings, Clock::system(), Spawn::system())?))
//! };
//! let nodes = vec![node("lock-a:6379")?, node("lock-b:6379")?, node("lock-c:6379")?];
//! let locks = Locks::over(nodes).start()?;
//! # let _ = locks;
//! # Ok(())
//! # }
//! ```

mod announce;
mod endless;
pub(crate) mod failover;
mod inspect;
mod link;
mod preflight;
mod rights;
mod route;
mod script;
#[cfg(test)]
mod tests;
#[doc(hidden)] // for the worker
#[cfg(feature = "redis-tls")]
pub mod tls;
mod trouble;

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use deadpool_redis::redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo};
use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};

pub use self::preflight::Identity;
use self::{
    announce::Listener,
    failover::{Failover, fails_over},
    link::{Link, Parts},
    route::{Finder, LEAST_CONNECT_LIMIT, Reach, Route},
    script::{Layout, Prepared},
    trouble::Scrub,
};
use super::{
    Announcements, Call, Expiry, GuardSettings, Node, NodeError, NodeFacts, NodeMs, Reply,
    RestartGuard, Servers, guard::FAILOVER, rules,
};
use crate::{clock::Clock, spawn::Spawn};

/// The most operations that one call may carry: a script occupies the whole server while it runs.
#[doc(hidden)] // for the tests
pub const MAX_OPS: usize = 250;

/// Where a Redis is, and how it is used.
#[derive(Clone, Debug)]
pub struct RedisNodeSettings {
    /// `redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]`, the same with `rediss://` for TLS,
    /// `unix:///PATH[?db=DB&user=USER&pass=PASSWORD]`, or a master that others replace:
    /// `sentinel://[USER[:PASSWORD]@]HOST[:PORT],…/MASTER[?db=DB&sentinel_user=USER&sentinel_password=PASSWORD]` and
    /// `cluster://[USER[:PASSWORD]@]HOST[:PORT],…`, with an `s` after the first word for TLS.
    pub url: SecretString,
    /// Overrides the URL's user.
    pub username: Option<String>,
    /// Overrides the URL's password.
    pub password: Option<SecretString>,
    /// What `rediss://` addresses are verified with; nothing for others.
    pub tls: TlsFiles,
    /// How long a call waits for its answer.
    pub node_timeout: Duration,
    /// Prefix of all keys of ours; fleets with different namespaces do not meet.
    pub namespace: String,
    /// Every lease also shows in a plain key of the lock's name, shared with other Redlock clients.
    pub raw_keys: bool,
    /// Which incarnations of the server may vote; the default guards nothing, and compares what [`crate::Locks`] says of its
    /// times.
    pub guard: GuardSettings,
}

/// PEM files for TLS, read when a node is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The CAs one of which has signed the server's certificate; those of the system when `None`.
    pub ca: Option<PathBuf>,
    /// The client's certificate, with the chain that leads to its CA, for servers that want one.
    pub cert: Option<PathBuf>,
    /// Its private key, not encrypted.
    pub key: Option<PathBuf>,
}

/// A Redis master that votes. Connects at the first call, on the runtime of its caller.
pub struct RedisNode {
    name: String,
    layout: Arc<Layout>,
    link: Link,
    route: Route,
    limit: Duration,
    scrub: Scrub,
    clock: Clock,
    spawn: Spawn,
}

/// Why no node can be made of these settings. Never shows the URL, which may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// Not an address of a Redis.
    #[error(
        "not a Redis address ({0}): write `redis://HOST:PORT/DB` or `unix:///PATH?db=DB`, with special characters of a password percent-encoded"
    )]
    Url(String),
    /// `rediss://` in a build without TLS.
    #[error(
        "`rediss://` needs TLS, which this build does not have: build with the feature `redis-tls`, or use `redis://` inside a trusted network"
    )]
    Tls,
    /// `#insecure` behind an address.
    #[error(
        "certificates are always verified: leave `#insecure` out, and name the CA that has signed the server's"
    )]
    Insecure,
    /// A file for TLS cannot be used.
    #[error("{0}")]
    TlsFile(String),
    /// An empty namespace, or one with braces or spaces.
    #[error("namespace `{0}` must not be empty nor contain braces or white space")]
    Namespace(String),
    /// Others take the place of a server, and the settings would trust each of them at once.
    #[doc(hidden)] // `LockSettings` are refused before
    #[error(
        "what is behind Sentinel or in a Cluster wants the guard of `LockSettings::guard`, in the mode `call`, and no raw keys"
    )]
    Failover,
    /// The pool could not be made.
    #[error("no connection pool: {0}")]
    Pool(String),
}

// === impl RedisNode ===

impl RedisNode {
    /// A node at this address. Does not connect yet.
    ///
    /// # Errors
    /// [`SetupError`] when the settings make no sense.
    pub fn new(
        settings: &RedisNodeSettings,
        clock: Clock,
        spawn: Spawn,
    ) -> Result<Self, SetupError> {
        Self::made(settings, clock, spawn, true)
    }

    /// The same, also where [`SetupError::Failover`] refuses it.
    ///
    /// # Errors
    /// [`SetupError`] when the settings make no sense.
    #[cfg(feature = "testing")]
    #[doc(hidden)] // for the tests: what the guard is needed for
    pub fn without_the_guard(
        settings: &RedisNodeSettings,
        clock: Clock,
        spawn: Spawn,
    ) -> Result<Self, SetupError> {
        Self::made(settings, clock, spawn, false)
    }

    fn made(
        settings: &RedisNodeSettings,
        clock: Clock,
        spawn: Spawn,
        wants_guard: bool,
    ) -> Result<Self, SetupError> {
        let namespace = &settings.namespace;
        let spoils_tag = |c: char| c == '{' || c == '}' || c.is_whitespace();
        if namespace.is_empty() || namespace.contains(spoils_tag) {
            return Err(SetupError::Namespace(namespace.clone()));
        }
        let limit = settings.node_timeout;
        let connect_limit = limit.max(LEAST_CONNECT_LIMIT);
        let layout = Layout::new(namespace, settings.raw_keys, settings.guard.clone());
        let layout = Arc::new(layout);
        let (name, db, scrub, route) = way(settings, &layout, &clock, wants_guard)?;
        let link = Link::new(Parts {
            name: name.clone(),
            route: route.clone(),
            db,
            layout: layout.clone(),
            limit,
            connect_limit,
            scrub: scrub.clone(),
            clock: clock.clone(),
            spawn: spawn.clone(),
        });
        Ok(Self {
            name,
            layout,
            link,
            route,
            limit,
            scrub,
            clock,
            spawn,
        })
    }

    /// The server at the other end: connects if need be. Endpoints of one fleet must show different run ids.
    ///
    /// # Errors
    /// [`NodeError`]: why there is no connection, with the remedy when the server is not fit to keep locks.
    #[doc(hidden)] // for the tests
    pub async fn identity(&self) -> Result<Identity, NodeError> {
        self.link.identity().await
    }

    /// The run id of the server now connected.
    #[doc(hidden)] // for the tests
    #[must_use]
    pub fn run_id(&self) -> Option<String> {
        self.link.last_identity().map(|identity| identity.run_id)
    }

    fn prepare(&self, call: Arc<Call>) -> Result<Prepared, NodeError> {
        if call.ops.len() > MAX_OPS {
            return Err(NodeError::Protocol(format!(
                "{} operations in one call, {MAX_OPS} at most",
                call.ops.len()
            )));
        }
        // Numbers out of range are refused here; whether the call is late only the server knows.
        rules::admit(NodeMs::default(), &call)?;
        script::check(&call)?;
        Ok(Prepared::new(&self.layout, call))
    }
}

#[async_trait]
impl Node for RedisNode {
    fn name(&self) -> &str {
        &self.name
    }

    fn agree(&self, config: &str) -> bool {
        self.layout.agree(config)
    }

    fn raw_keys(&self) -> bool {
        self.layout.raw
    }

    async fn identity(&self) -> Option<String> {
        let identity = RedisNode::identity(self).await.ok()?;
        Some(identity.run_id)
    }

    fn join(&self, servers: &Servers, place: usize) {
        self.layout.join(servers, place);
    }

    /// Keys end by the server's wall clock, which may jump.
    fn expiry(&self) -> Expiry {
        Expiry::Observed
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        self.link.run(self.prepare(Arc::new(call))?).await
    }

    fn carry(self: Arc<Self>, call: Arc<Call>) -> BoxFuture<'static, Result<Reply, NodeError>> {
        Box::pin(async move { self.link.carry(self.prepare(call)?).await })
    }

    fn another(&self) -> Option<Arc<dyn Node>> {
        Some(Arc::new(Self {
            name: self.name.clone(),
            layout: self.layout.clone(),
            link: self.link.another(),
            route: self.route.clone(),
            limit: self.limit,
            scrub: self.scrub.clone(),
            clock: self.clock.clone(),
            spawn: self.spawn.clone(),
        }))
    }

    async fn inspect(&self) -> Result<NodeFacts, NodeError> {
        let limit = self.limit.max(LEAST_CONNECT_LIMIT);
        let asked = async {
            let reach = self.route.another().reach().await?;
            inspect::inspect(&reach.client, limit, &self.scrub).await
        };
        let asked = self.clock.timeout(limit * 2, asked);
        let route = self.route.another();
        let (facts, members) = futures_util::future::join(asked, route.members()).await;
        match facts.unwrap_or(Err(NodeError::Timeout(limit * 2))) {
            Ok(facts) => Ok(NodeFacts { members, ..facts }),
            Err(why) if members.is_empty() => Err(why),
            // Most of all then: who names no master.
            Err(_) => Ok(NodeFacts {
                members,
                ..NodeFacts::default()
            }),
        }
    }

    async fn endless(&self) -> Result<Vec<String>, NodeError> {
        // What stands in the table has no life of its own.
        if !self.layout.raw {
            return Ok(Vec::new());
        }
        let limit = self.limit.max(LEAST_CONNECT_LIMIT);
        let walked = async {
            let reach = self.route.another().reach().await?;
            endless::endless(&reach.client, &self.layout.table, limit, &self.scrub).await
        };
        match self.clock.timeout(endless::PATIENCE, walked).await {
            Ok(keys) => keys,
            Err(_) => Err(NodeError::Timeout(endless::PATIENCE)),
        }
    }

    async fn announcements(&self) -> Option<Announcements> {
        let listener = Listener {
            name: self.name.clone(),
            route: self.route.another(),
            channel: self.layout.channel.clone(),
            limit: self.limit,
            scrub: self.scrub.clone(),
            clock: self.clock.clone(),
            spawn: self.spawn.clone(),
        };
        Some(listener.start().await)
    }
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisNode")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

// === addresses ===

/// The node's name, the number of its database, what its texts must not show, and the way to its server.
fn way(
    settings: &RedisNodeSettings,
    layout: &Layout,
    clock: &Clock,
    wants_guard: bool,
) -> Result<(String, i64, Scrub, Route), SetupError> {
    let (url, limit) = (settings.url.expose_secret(), settings.node_timeout);
    if fails_over(url) {
        let mut address = Failover::parse(url).map_err(|why| SetupError::Url(why.to_owned()))?;
        let guard = &settings.guard;
        let of_failover = guard.config.ends_with(FAILOVER);
        let fits = guard.mode == RestartGuard::Call && of_failover && !settings.raw_keys;
        if wants_guard && !fits {
            return Err(SetupError::Failover);
        }
        address.sign_in(|info| signed_in(info, settings));
        let (name, data) = (address.name(), address.servers.redis_settings());
        let (db, scrub) = (data.db(), Scrub::new(data.password()));
        let open = |info| open(info, settings, &scrub);
        let finder = Finder::new(address, &layout.table, limit, open, clock.clone())?;
        return Ok((name, db, scrub.clone(), Route::Asked(Arc::new(finder))));
    }
    let address = address(settings)?;
    let scrub = Scrub::new(address.redis_settings().password());
    let (name, db) = (name(&address), address.redis_settings().db());
    let reach = Reach::new(open(address, settings, &scrub)?, 0, limit, &scrub);
    let reach = reach.map_err(SetupError::Pool)?;
    Ok((name, db, scrub, Route::Fixed(Arc::new(reach))))
}

fn address(settings: &RedisNodeSettings) -> Result<ConnectionInfo, SetupError> {
    let url = settings.url.expose_secret();
    let tls = url.starts_with("rediss:") || url.starts_with("valkeys:");
    if tls && cfg!(not(feature = "redis-tls")) {
        return Err(SetupError::Tls);
    }
    if tls && url.contains('#') {
        return Err(SetupError::Insecure);
    }
    // The library's detail may quote the URL: only its fixed category is passed on.
    let info = url
        .into_connection_info()
        .map_err(|e| SetupError::Url(e.category().to_lowercase()))?;
    Ok(signed_in(info, settings))
}

/// With the user and the password that stand beside the address.
fn signed_in(info: ConnectionInfo, settings: &RedisNodeSettings) -> ConnectionInfo {
    let mut redis = info.redis_settings().clone();
    if let Some(username) = &settings.username {
        redis = redis.set_username(username);
    }
    if let Some(password) = &settings.password {
        redis = redis.set_password(password.expose_secret());
    }
    info.set_redis_settings(redis)
}

/// A client, which alone knows the certificates.
#[cfg(feature = "redis-tls")]
fn open(
    address: ConnectionInfo,
    settings: &RedisNodeSettings,
    scrub: &Scrub,
) -> Result<Client, SetupError> {
    if !matches!(address.addr(), ConnectionAddr::TcpTls { .. }) {
        return open_plain(address, scrub);
    }
    tls::provide();
    let files = tls::read(&settings.tls).map_err(|fault| SetupError::TlsFile(fault.to_string()))?;
    Client::build_with_tls(address, files)
        .map_err(|e| SetupError::TlsFile(scrub.clean(&e.to_string())))
}

#[cfg(not(feature = "redis-tls"))]
fn open(
    address: ConnectionInfo,
    _: &RedisNodeSettings,
    scrub: &Scrub,
) -> Result<Client, SetupError> {
    open_plain(address, scrub)
}

fn open_plain(address: ConnectionInfo, scrub: &Scrub) -> Result<Client, SetupError> {
    Client::open(address).map_err(|e| SetupError::Pool(scrub.clean(&e.to_string())))
}

/// A client of a server that keeps no locks, reached and verified as those are that do; with its name for people.
///
/// # Errors
/// [`SetupError`] when the address makes no sense.
#[doc(hidden)] // for the stock jobs
pub fn client(url: &str, tls: TlsFiles) -> Result<(Client, String), SetupError> {
    let settings = RedisNodeSettings {
        url: url.into(),
        username: None,
        password: None,
        tls,
        node_timeout: Duration::ZERO,
        namespace: String::new(),
        raw_keys: false,
        guard: GuardSettings::default(),
    };
    let address = address(&settings)?;
    let scrub = Scrub::new(address.redis_settings().password());
    let name = name(&address);
    Ok((open(address, &settings, &scrub)?, name))
}

fn name(address: &ConnectionInfo) -> String {
    match address.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }
            if host.contains(':') =>
        {
            format!("[{host}]:{port}")
        }
        other => other.to_string(),
    }
}
