//! Where a fleet keeps its locks: a file, three Redis masters, a Redis whose master others replace, etcd servers of its own, or a
//! PostgreSQL database.

use std::{
    path::{Path, PathBuf},
    sync::{Mutex, OnceLock, PoisonError},
    time::Duration,
};

use rusqlite::Connection;

use tempfile::TempDir;
use watchkeeper::clock::Moment;

#[cfg(feature = "postgres")]
use crate::database::Database;
#[cfg(feature = "etcd")]
use crate::etcd::Etcd;
use crate::{
    redis_failover::{RedisFailover, WATCHED},
    server::RedisServer,
    shim::NodeClock,
};

/// The longest lease where the restart guard is on, but for servers that others replace.
const MAX_TTL: Duration = Duration::from_secs(2);

/// The store of one fleet.
pub(crate) enum Store {
    /// A SQLite file in the fleet's folder.
    Embedded(File),
    /// Three masters, and whether one of them is frozen for good.
    Masters([RedisServer; 3], bool),
    /// Three masters under the restart guard.
    Guarded([RedisServer; 3]),
    /// A single server under the restart guard, which goes by a clock of its own.
    Single(Box<Single>),
    /// A server in whose place another one is put, by Sentinel or in a Cluster.
    Failover(RedisFailover),
    /// A schema of a PostgreSQL database.
    #[cfg(feature = "postgres")]
    Postgres(Database),
    /// An etcd cluster of one member, or of three.
    #[cfg(feature = "etcd")]
    Etcd(Etcd),
}

/// One server, and its clock.
pub(crate) struct Single {
    server: RedisServer,
    clock: NodeClock,
    _folder: TempDir,
}

/// The embedded store, and what keeps the workers out of it.
#[derive(Default)]
pub(crate) struct File {
    path: OnceLock<PathBuf>,
    blocker: Mutex<Option<Connection>>,
}

// === impl Store ===

impl Store {
    pub(crate) fn embedded() -> Self {
        Self::Embedded(File::default())
    }

    /// The number of the layout in which it is written.
    pub(crate) fn layout(&self) -> i32 {
        match self {
            Self::Embedded(file) => {
                let path = file.path.get().expect("the fleet is configured");
                let file = Connection::open(path).expect("the store can be opened");
                let ask = "SELECT value FROM wk_meta WHERE name = 'layout'";
                let layout = file.query_row(ask, [], |row| row.get(0));
                layout.expect("it says its layout")
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.layout(),
            _ => unreachable!("no case asks for it"),
        }
    }

    /// As a program of another layout would have left it.
    pub(crate) fn set_layout(&self, layout: i32) {
        match self {
            Self::Embedded(file) => {
                let path = file.path.get().expect("the fleet is configured");
                let file = Connection::open(path).expect("the store can be opened");
                let set = "UPDATE wk_meta SET value = ?1 WHERE name = 'layout'";
                assert_eq!(file.execute(set, [layout]), Ok(1));
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.set_layout(layout),
            _ => unreachable!("no case does that"),
        }
    }

    /// Another one in its place: of a file under the same name, else another schema.
    pub(crate) fn put_aside(&self) -> Self {
        match self {
            Self::Embedded(file) => {
                let path = file.path.get().expect("the fleet is configured");
                std::fs::rename(path, path.with_extension("old")).expect("it can be moved");
                Self::embedded()
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Self::Postgres(Database::new()),
            _ => unreachable!("no case does that"),
        }
    }

    /// Three healthy masters.
    pub(crate) fn masters() -> Self {
        Self::Masters([(); 3].map(|()| RedisServer::start()), false)
    }

    /// Three masters, one of them frozen from the start and for good.
    pub(crate) fn masters_one_frozen() -> Self {
        let masters = [(); 3].map(|()| RedisServer::start());
        masters[1].freeze();
        Self::Masters(masters, true)
    }

    /// Three masters that may be restarted empty: they do not vote before they were watched for two seconds.
    pub(crate) fn masters_guarded() -> Self {
        Self::Guarded([(); 3].map(|()| RedisServer::start()))
    }

    /// A single server, likewise.
    pub(crate) fn masters_single() -> Self {
        let folder = TempDir::with_prefix("wk-clock-").expect("a temporary folder");
        let clock = NodeClock::new(folder.path(), "clock");
        Self::Single(Box::new(Single {
            server: RedisServer::start_under(&[], clock.env()),
            clock,
            _folder: folder,
        }))
    }

    /// A master with a replica, and three sentinels. It does not vote before it was watched for eight seconds.
    pub(crate) fn sentinel() -> Self {
        Self::Failover(RedisFailover::sentinel())
    }

    /// A Redis Cluster, likewise.
    pub(crate) fn cluster() -> Self {
        Self::Failover(RedisFailover::cluster())
    }

    /// A database.
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres() -> Self {
        Self::Postgres(Database::new())
    }

    /// A database behind a pooler that gives each transaction another connection.
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres_pooled() -> Self {
        Self::Postgres(Database::pooled())
    }

    /// The same with nothing past it.
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres_pooled_deaf() -> Self {
        Self::Postgres(Database::pooled_deaf())
    }

    /// A database that may crash.
    #[cfg(feature = "postgres")]
    pub(crate) fn postgres_own() -> Self {
        Self::Postgres(Database::own())
    }

    /// A single etcd server.
    #[cfg(feature = "etcd")]
    pub(crate) fn etcd() -> Self {
        Self::Etcd(Etcd::new())
    }

    /// Three members of an etcd cluster.
    #[cfg(feature = "etcd")]
    pub(crate) fn etcd_cluster() -> Self {
        Self::Etcd(Etcd::cluster())
    }

    /// Whether its clock is known to a second alone, and with it how long a lease still lasts.
    pub(crate) fn is_approximate(&self) -> bool {
        match self {
            #[cfg(feature = "etcd")]
            Self::Etcd(_) => true,
            _ => false,
        }
    }

    /// Whether there is no other node that answers when one does not.
    pub(crate) fn is_one_database(&self) -> bool {
        !matches!(
            self,
            Self::Embedded(_) | Self::Masters(..) | Self::Guarded(_) | Self::Single(_)
        )
    }

    /// The server ends in the middle of whatever it does, and starts again; where others may take its place, one does.
    pub(crate) fn crash(&self) {
        match self {
            Self::Failover(_) => _ = self.replace_master(),
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.crash(),
            #[cfg(feature = "etcd")]
            Self::Etcd(etcd) => etcd.crash(),
            _ => {}
        }
    }

    /// Kills the server that keeps the locks, and says when another one was named in its place, in cases that are only for those.
    pub(crate) fn replace_master(&self) -> Moment {
        match self {
            Self::Failover(failover) => failover.replace_master(),
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.replace_master(),
            _ => panic!("this case is for servers that others replace"),
        }
    }

    /// For how long a server in another one's place is refused.
    pub(crate) fn watched(&self) -> Duration {
        match self {
            Self::Failover(_) => WATCHED,
            _ => MAX_TTL,
        }
    }

    /// Sets the clock of the single server to so many seconds after the true time.
    pub(crate) fn set_clock(&self, seconds: i64) {
        if let Self::Single(single) = self {
            single.clock.set(seconds);
        }
    }

    /// All masters lose their memory at one time: they are flushed, or the single one starts anew.
    pub(crate) fn forget(&mut self) {
        match self {
            Self::Single(single) => single.server.restart(),
            _ => self.servers().iter().for_each(|server| {
                server.raw(&["FLUSHALL"]);
            }),
        }
    }

    pub(crate) fn masters_count(&self) -> usize {
        match self {
            Self::Embedded(_) | Self::Failover(_) => 0,
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => 0,
            #[cfg(feature = "etcd")]
            Self::Etcd(_) => 0,
            Self::Masters(servers, _) | Self::Guarded(servers) => servers.len(),
            Self::Single(_) => 1,
        }
    }

    /// The independent masters; none of other stores.
    pub(crate) fn servers(&self) -> &[RedisServer] {
        match self {
            Self::Embedded(_) | Self::Failover(_) => &[],
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => &[],
            #[cfg(feature = "etcd")]
            Self::Etcd(_) => &[],
            Self::Masters(servers, _) | Self::Guarded(servers) => servers,
            Self::Single(single) => std::slice::from_ref(&single.server),
        }
    }

    /// Kills a master and starts it again, empty.
    pub(crate) fn restart(&mut self, master: usize) {
        match self {
            Self::Embedded(_) | Self::Failover(_) => {}
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => {}
            #[cfg(feature = "etcd")]
            Self::Etcd(_) => {}
            Self::Masters(servers, _) | Self::Guarded(servers) => servers[master].restart(),
            Self::Single(single) => single.server.restart(),
        }
    }

    /// One more of the same sort.
    pub(crate) fn another(&self) -> Self {
        match self {
            Self::Embedded(_) => Self::embedded(),
            Self::Failover(failover) => Self::Failover(failover.another()),
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => Self::Postgres(database.another()),
            #[cfg(feature = "etcd")]
            Self::Etcd(etcd) => Self::Etcd(etcd.another()),
            Self::Masters(_, false) => Self::masters(),
            Self::Masters(_, true) => Self::masters_one_frozen(),
            Self::Guarded(_) => Self::masters_guarded(),
            Self::Single(_) => Self::masters_single(),
        }
    }

    /// Takes the majority away: two masters freeze, or the only server, or somebody keeps the file to himself.
    pub(crate) fn block(&self) {
        match self {
            Self::Masters(servers, _) | Self::Guarded(servers) => {
                servers[..2].iter().for_each(RedisServer::freeze)
            }
            Self::Single(single) => single.server.freeze(),
            Self::Failover(failover) => failover.block(),
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.block(),
            #[cfg(feature = "etcd")]
            Self::Etcd(etcd) => etcd.block(),
            Self::Embedded(file) => {
                *file.blocker.lock().unwrap_or_else(PoisonError::into_inner) = file.enter(SOON);
            }
        }
    }

    /// Gives it back: one master goes on, or the file is free.
    pub(crate) fn unblock(&self) {
        match self {
            Self::Masters(servers, _) | Self::Guarded(servers) => servers[0].thaw(),
            Self::Single(single) => single.server.thaw(),
            Self::Failover(failover) => failover.unblock(),
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.unblock(),
            #[cfg(feature = "etcd")]
            Self::Etcd(etcd) => etcd.unblock(),
            Self::Embedded(file) => {
                *file.blocker.lock().unwrap_or_else(PoisonError::into_inner) = None;
            }
        }
    }

    /// Whether a process that is frozen now stands inside a transaction of the file, and so keeps everybody out.
    pub(crate) fn is_blocked(&self) -> bool {
        match self {
            Self::Masters(..) | Self::Guarded(_) | Self::Single(_) | Self::Failover(_) => false,
            // The server ends such a transaction.
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => false,
            // There is none.
            #[cfg(feature = "etcd")]
            Self::Etcd(_) => false,
            Self::Embedded(file) => file.enter(Duration::from_millis(200)).is_none(),
        }
    }

    /// What stands in the configuration below `[locks]`.
    pub(crate) fn settings(&self, folder: &Path) -> String {
        match self {
            Self::Embedded(file) => {
                let path = file.path.get_or_init(|| folder.join("store.db"));
                format!("backend = \"embedded\"\nembedded.path = {path:?}\n")
            }
            Self::Guarded(_) | Self::Single(_) => self.redis("max_ttl = \"2s\""),
            Self::Failover(failover) => failover.settings(),
            #[cfg(feature = "postgres")]
            Self::Postgres(database) => database.settings(),
            #[cfg(feature = "etcd")]
            Self::Etcd(etcd) => etcd.settings(),
            // They have just been started, and lose nothing unless a case says so.
            Self::Masters(..) => self.redis("restart_guard = \"off\""),
        }
    }

    fn redis(&self, guard: &str) -> String {
        let urls: Vec<String> = self.servers().iter().map(RedisServer::url).collect();
        format!("backend = \"redis\"\n{guard}\nredis.nodes = {urls:?}\n")
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Embedded(_) => "embedded",
            Self::Masters(_, false) => "masters",
            Self::Masters(_, true) => "masters, one frozen",
            Self::Guarded(_) => "masters, guarded",
            Self::Single(_) => "a single master, guarded",
            Self::Failover(failover) => failover.name(),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => "postgres",
            #[cfg(feature = "etcd")]
            Self::Etcd(etcd) => etcd.name(),
        }
    }
}

// === impl File ===

/// Long enough for any worker to end its transaction.
const SOON: Duration = Duration::from_secs(5);

impl File {
    /// A connection inside a transaction that excludes all others; none when somebody else stays in one so long.
    fn enter(&self, limit: Duration) -> Option<Connection> {
        let path = self.path.get().expect("the fleet is configured");
        let file = Connection::open(path).expect("the store can be opened");
        file.busy_timeout(limit).expect("a time limit");
        file.execute_batch("BEGIN IMMEDIATE")
            .is_ok()
            .then_some(file)
    }
}
