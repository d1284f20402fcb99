//! Settings of the lock: where it lives, how long a lease lasts, and the rules that tie the numbers together.
//!
//! # Example
//! ```
//! use watchkeeper_lock::{DurationExt, settings::{Backend, LockSettings}};
//!
//! let nodes = ["redis://lock-a:6379", "redis://lock-b:6379", "redis://lock-c:6379"];
//! // What has no method here is a field.
//! let settings = LockSettings { skew: 1.secs(), ..LockSettings::redis(nodes).ttl(5.secs()) };
//! assert_eq!(settings.backend, Backend::Redis);
//! // `Locks::open(&settings, "shop")?.start()?` opens the store.
//! ```

mod constructors;
mod etcd;
mod fleet;
mod postgres;
mod redis_nodes;
mod timing;
mod tls;

use std::{path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

#[doc(hidden)] // for the guard of the stock jobs
pub use self::timing::abort_margin;
pub use self::{
    etcd::EtcdSettings, fleet::FleetConfig, postgres::PostgresSettings, timing::Timing,
};
use crate::{
    finding::Findings,
    human::Span,
    node::{
        GuardSettings,
        guard::LATE,
        rules::{LONGEST_TTL_MS, ceil_ms},
    },
};
pub use crate::{
    node::{Expiry, RestartGuard},
    secret::{Secret, SecretUrl},
};

/// `[locks]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LockSettings {
    /// Where locks live.
    pub backend: Backend,
    /// How long a lease lasts without an extension. A dead leader is replaced after about this long.
    #[serde(with = "crate::human::duration")]
    pub ttl: Duration,
    /// The longest lease that any program of the fleet may hold.
    #[serde(with = "crate::human::duration")]
    pub max_ttl: Duration,
    /// A lease that has less than this left when it is granted counts as lost; half the ttl unless set.
    #[serde(with = "crate::human::optional")]
    pub min_validity: Option<Duration>,
    /// How far the clocks of two machines may run apart, as a share of the ttl.
    pub drift: f64,
    /// How far a node's civil time may be off before it is reported.
    #[serde(with = "crate::human::duration")]
    pub skew: Duration,
    /// What ends the lease of a dead holder; see [`LockSettings::expiry`] for what holds unless it is set.
    pub expiry: Option<Expiry>,
    /// Use lock keys as given, without the namespace, to share locks with other Redlock clients.
    pub raw_keys: bool,
    /// How long a released lock keeps what its holders left for their successors.
    #[serde(with = "crate::human::duration")]
    pub retention: Duration,
    /// How often a server is asked whether it still remembers what it has voted.
    pub restart_guard: RestartGuard,
    /// `[locks.embedded]`
    pub embedded: EmbeddedSettings,
    /// `[locks.redis]`
    pub redis: RedisSettings,
    /// `[locks.postgres]`
    pub postgres: PostgresSettings,
    /// `[locks.etcd]`
    pub etcd: EtcdSettings,
}

/// Where locks live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// One SQLite file shared by the processes of one machine.
    Embedded,
    /// This process alone: tests, and programs that run once.
    Memory,
    /// One Redis master, or a majority of several independent ones.
    Redis,
    /// A PostgreSQL database.
    Postgres,
    /// An etcd cluster, or a single member.
    Etcd,
}

/// `[locks.embedded]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EmbeddedSettings {
    /// The file, on a local disk; its directory is made when it is missing, not those above.
    pub path: PathBuf,
}

/// `[locks.redis]`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedisSettings {
    /// The independent masters: `redis://[user:password@]host[:port][/db]`, the same with `rediss://` for TLS, or
    /// `redis+unix:///path`. An odd number, and the same in every program of a namespace, in any order. Or one alone that others
    /// replace: `sentinel://[user:password@]host[:port],…/master[?db=…&sentinel_user=…&sentinel_password=…]` with all sentinels, or
    /// `cluster://[user:password@]host[:port],…` with all nodes of a Redis Cluster; `sentinels://` and `clusters://` for TLS.
    pub nodes: Vec<SecretUrl>,
    /// How long one node may take to answer.
    #[serde(with = "crate::human::duration")]
    pub node_timeout: Duration,
    /// Raised in all programs of the fleet whenever other nodes take the place of the present ones and the guard is off: with it
    /// the nodes know each other.
    pub generation: u32,
    /// The user of every node whose URL names none.
    pub username: Option<String>,
    /// The password of every node whose URL holds none.
    pub password: Option<Secret>,
    /// `[locks.redis.tls]`
    pub tls: TlsSettings,
}

/// `[locks.redis.tls]` and `[locks.etcd.tls]`: PEM files for `rediss://` and `https://` addresses, read when the program starts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsSettings {
    /// The CAs one of which has signed the servers' certificates; without it those of the system.
    pub ca: Option<PathBuf>,
    /// Our certificate, for servers that want one.
    pub cert: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
}

// === impl LockSettings ===

impl Default for LockSettings {
    fn default() -> Self {
        let timing = Timing::default();
        Self {
            backend: Backend::default(),
            ttl: timing.ttl,
            max_ttl: timing.max_ttl,
            min_validity: timing.min_validity,
            drift: timing.drift,
            skew: timing.skew,
            expiry: None,
            raw_keys: false,
            retention: timing.retention,
            restart_guard: RestartGuard::Call,
            embedded: EmbeddedSettings::default(),
            redis: RedisSettings::default(),
            postgres: PostgresSettings::default(),
            etcd: EtcdSettings::default(),
        }
    }
}

impl LockSettings {
    /// A lease of this ttl that has less than this left when it is granted counts as lost.
    fn min_validity_for(&self, ttl: Duration) -> Duration {
        self.min_validity.unwrap_or(ttl / 2)
    }

    /// What ends the lease of a dead holder. Unless it is set: for Redis, PostgreSQL and etcd the waiting client (`observed`), because
    /// the wall clocks of servers jump; for the embedded store and memory the store (`server`), because its clock does
    /// not.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn expiry(&self) -> Expiry {
        self.expiry.unwrap_or(match self.backend {
            Backend::Redis | Backend::Postgres | Backend::Etcd => Expiry::Observed,
            Backend::Embedded | Backend::Memory => Expiry::Server,
        })
    }

    /// Whether others take the place of its server, by Sentinel or in a Cluster.
    pub(crate) fn fails_over(&self) -> bool {
        self.backend == Backend::Redis && redis_nodes::fails_over(&self.redis)
    }

    /// What all programs must have in common, as the marker of each node says it; `None` for a store of this machine.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn fleet(&self) -> Option<FleetConfig> {
        match self.backend {
            Backend::Redis | Backend::Postgres | Backend::Etcd => Some(FleetConfig::of(self)),
            Backend::Embedded | Backend::Memory => None,
        }
    }

    /// How long one node may take to answer, where that is set; `None` for a store of this machine, which is no node of a
    /// network.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn node_timeout(&self) -> Option<Duration> {
        match self.backend {
            Backend::Redis => Some(self.redis.node_timeout),
            Backend::Postgres => Some(self.postgres.node_timeout),
            Backend::Etcd => Some(self.etcd.node_timeout),
            Backend::Embedded | Backend::Memory => None,
        }
    }

    /// What the nodes are told at their construction.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn guard(&self) -> GuardSettings {
        match self.fleet() {
            Some(fleet) => GuardSettings {
                mode: self.restart_guard,
                config: fleet.to_string(),
            },
            None => GuardSettings::default(),
        }
    }

    /// Adds what is wrong. Keys are relative to `[locks]`.
    #[doc(hidden)] // for the worker
    pub fn check(&self, found: &mut Findings) {
        self.check_ttl(self.ttl, "ttl", found);
        self.check_limits(found);
        self.check_backend(found);
    }

    /// The rules between a ttl and the other times, each with its sentence. `key` is the name of the setting, because a
    /// caller may have a ttl of its own.
    #[doc(hidden)] // for the worker
    pub fn check_ttl(&self, ttl: Duration, key: &str, found: &mut Findings) {
        if ttl.is_zero() {
            let message = "a lease of no length can never be held";
            found.error(&[key], message, "write a duration such as \"10s\"");
            return;
        }
        // No lease may be longer than candidates for the lock of a dead holder are told to expect.
        if ttl > self.max_ttl {
            found.error(
                &[key, "max_ttl"],
                format!(
                    "{} is longer than max_ttl ({})",
                    Span(ttl),
                    Span(self.max_ttl)
                ),
                "lower ttl or raise max_ttl",
            );
        }
        // A program whose lease is longer may still hold it when a server grants that was promoted beside the old one.
        let pauses = self.max_ttl.saturating_sub(LATE) < ttl && ttl <= self.max_ttl;
        let fails_over = self.backend == Backend::Postgres && self.postgres.names_several_hosts();
        if fails_over && pauses && self.restart_guard != RestartGuard::Off {
            found.warn(
                &[key, "max_ttl", "postgres.url"],
                format!(
                    "{} is not {} shorter than max_ttl ({}): should a server be promoted while the old one lives on, two may \
                     hold one lock for a moment",
                    Span(ttl),
                    Span(LATE),
                    Span(self.max_ttl)
                ),
                format!("raise max_ttl to {} or more", Span(ttl.saturating_add(LATE))),
            );
        }
        // An acquisition asks, retries and confirms; each step may cost a whole node_timeout.
        let node_timeout = self.node_timeout().unwrap_or_default();
        let floor = node_timeout.saturating_mul(20);
        if ttl < floor {
            let setting = match self.backend {
                Backend::Postgres => "postgres.node_timeout",
                Backend::Etcd => "etcd.node_timeout",
                // The others have none.
                Backend::Redis | Backend::Embedded | Backend::Memory => "redis.node_timeout",
            };
            found.error(
                &[key, setting],
                format!(
                    "{} is shorter than 20 times node_timeout ({})",
                    Span(ttl),
                    Span(node_timeout)
                ),
                format!("raise ttl to {} or lower node_timeout", Span(floor)),
            );
        }
        // What is granted must leave time to stop work: a quarter of the ttl to cancel it, the margin to cut it off.
        let validity = self.min_validity_for(ttl);
        let needed = ttl / 4 + abort_margin(ttl);
        if validity <= needed {
            found.error(
                &[self.validity_key(key), key],
                format!(
                    "min_validity ({}) must exceed ttl/4 + the abort margin ({}), or a fresh lease is over before its \
                     work is stopped",
                    Span(validity),
                    Span(needed),
                ),
                if self.min_validity.is_some() { "raise min_validity" } else { "raise ttl above 400ms" },
            );
        }
        // Some of the ttl is always gone when the votes are in.
        if validity >= ttl {
            found.error(
                &[self.validity_key(key), key],
                format!(
                    "min_validity ({}) is not shorter than ttl ({})",
                    Span(validity),
                    Span(ttl)
                ),
                "lower min_validity; half the ttl is the default",
            );
        }
    }

    fn check_limits(&self, found: &mut Findings) {
        if !(0.0..0.5).contains(&self.drift) {
            let message = format!("{} is not a share from 0 to 0.5", self.drift);
            found.error(&["drift"], message, "write 0.01 for one percent");
        }
        // A lease that the store cuts ends before its holder believes it.
        if self.backend != Backend::Memory && ceil_ms(self.max_ttl) > LONGEST_TTL_MS {
            let message = format!(
                "{} is longer than a store keeps a lease (115 days)",
                Span(self.max_ttl)
            );
            found.error(&["max_ttl"], message, "lower max_ttl to 2760h or less");
        }
        // What was settled must be remembered for longer than any holder can still be about to act on it.
        if self.retention < self.max_ttl {
            let (retention, max_ttl) = (Span(self.retention), Span(self.max_ttl));
            found.error(
                &["retention", "max_ttl"],
                format!("{retention} is shorter than max_ttl ({max_ttl})"),
                "raise retention; 24h is the default",
            );
        }
    }

    /// The setting to change: a min_validity that is not set follows the ttl, and another ttl has to fit a set one.
    fn validity_key<'a>(&self, ttl: &'a str) -> &'a str {
        if self.min_validity.is_some() && ttl == "ttl" {
            "min_validity"
        } else {
            ttl
        }
    }

    fn check_backend(&self, found: &mut Findings) {
        match self.backend {
            Backend::Embedded if !cfg!(feature = "sqlite") => found.error(
                &["backend"],
                "the embedded store is not part of this build",
                "build with the feature \"sqlite\" or use another backend",
            ),
            Backend::Redis if !cfg!(feature = "redis") => found.error(
                &["backend"],
                "Redis is not part of this build",
                "build with the feature \"redis\" or use another backend",
            ),
            Backend::Postgres if !cfg!(feature = "postgres") => found.error(
                &["backend"],
                "PostgreSQL is not part of this build",
                "build with the feature \"postgres\" or use another backend",
            ),
            Backend::Etcd if !cfg!(feature = "etcd") => found.error(
                &["backend"],
                "etcd is not part of this build",
                "build with the feature \"etcd\" or use another backend",
            ),
            Backend::Postgres => {
                postgres::check(&self.postgres, self.raw_keys, found);
                self.check_promises(found);
            }
            Backend::Etcd => {
                etcd::check(&self.etcd, self.raw_keys, found);
                self.check_promises(found);
            }
            Backend::Redis => {
                redis_nodes::check(&self.redis, found);
                self.check_failover(found);
                tls::check(&self.redis, found);
                self.check_promises(found);
            }
            Backend::Embedded | Backend::Memory => {}
        }
    }

    /// What cannot be had where another server takes the place of the one that was.
    fn check_failover(&self, found: &mut Findings) {
        if !self.fails_over() {
            return;
        }
        if self.redis.nodes.len() > 1 {
            found.error(
                &["redis.nodes"],
                "what is behind Sentinel or in a Cluster is one node, and the only one",
                "write its address alone, or independent masters without either",
            );
        }
        if self.restart_guard != RestartGuard::Call {
            found.error(
                &["restart_guard", "redis.nodes"],
                "a promoted server has not got all that was granted before, and might vote at once: two may hold one lock",
                "leave restart_guard out",
            );
        }
        if self.raw_keys {
            found.error(
                &["raw_keys", "redis.nodes"],
                "other clients take locks on a promoted server that were granted before",
                "leave raw_keys out, or write independent masters",
            );
        }
    }

    /// What may be set, and takes something away from what is promised.
    fn check_promises(&self, found: &mut Findings) {
        if self.restart_guard == RestartGuard::Off {
            found.warn(
                &["restart_guard"],
                "a server that has lost its memory votes at once: two may hold one lock",
                "set restart_guard = \"call\", unless no server can lose its memory",
            );
        }
        if self.expiry() == Expiry::Server && self.backend == Backend::Etcd {
            found.error(
                &["expiry", "backend"],
                "etcd tells no time, so that it cannot end leases",
                "leave expiry out or set it to \"observed\", in all programs of the fleet",
            );
        }
        // A server's clock that is set ahead ends the key of a living holder.
        else if self.expiry() == Expiry::Server {
            found.warn(
                &["expiry"],
                "leases end by the wall clocks of the servers: when those jump, two may hold one lock",
                "leave expiry out or set it to \"observed\", in all programs of the fleet; then run doctor --reconfigure",
            );
        }
    }
}

// === impl Backend ===

// Not derived: a build without the embedded store must start with its defaults, too.
#[allow(clippy::derivable_impls, reason = "the default depends on the build")]
impl Default for Backend {
    fn default() -> Self {
        if cfg!(feature = "sqlite") {
            Self::Embedded
        } else {
            Self::Memory
        }
    }
}

// === impl EmbeddedSettings ===

impl Default for EmbeddedSettings {
    fn default() -> Self {
        Self {
            path: PathBuf::from(".watchkeeper/store.db"),
        }
    }
}

// === impl RedisSettings ===

impl Default for RedisSettings {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            node_timeout: Timing::default().node_timeout,
            generation: 1,
            username: None,
            password: None,
            tls: TlsSettings::default(),
        }
    }
}
