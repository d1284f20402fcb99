//! What a server says when it does not serve, as bounded words: each with what it means and what to do about it.

use std::fmt;

/// Why a server that answers does not serve. It has executed nothing, and its answer is never a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// `NOSCRIPT`
    NoScript,
    /// `READONLY`, `MASTERDOWN`, or a role that is not master.
    ReadOnly,
    /// `LOADING`
    Loading,
    /// `OOM`. etcd: `mvcc: database space exceeded`. PostgreSQL: its disk is full.
    OutOfMemory,
    /// `MISCONF`
    Misconf,
    /// `BUSY`
    Busy,
    /// `NOREPLICAS`
    NoReplicas,
    /// `NOAUTH`
    NoAuth,
    /// `WRONGPASS`
    WrongPass,
    /// `NOPERM` for a command, or for the keys of ours.
    NoPerm,
    /// `NOPERM` for a key that is not ours: with raw keys.
    NoKey,
    /// `CLUSTERDOWN`
    ClusterDown,
    /// `MOVED`, `ASK`, `CROSSSLOT`, `TRYAGAIN`, or cluster mode with raw keys.
    Moved,
    /// It evicts keys.
    Evicts,
    /// It is too old, or of 32 bits.
    Version,
    /// All its connections are taken.
    Clients,
    /// It does not have the database of this number.
    Database,
    /// `WRONGTYPE`: a key of ours holds what is none of ours.
    WrongType,
    /// Another node of the fleet has led to it.
    Twin,
    /// A part of what it remembers is out of range or gone: only what needs that part is refused.
    Damaged,
    /// PostgreSQL: the tables of ours are missing.
    Tables,
    /// PostgreSQL: they are of another layout.
    Layout,
    /// PostgreSQL: it does not wait for its disk.
    NotDurable,
}

// === impl Refusal ===

impl Refusal {
    /// A bounded word for metrics and logs.
    #[doc(hidden)] // for the commands
    #[must_use]
    pub fn cause(self) -> &'static str {
        match self {
            Self::NoScript => "noscript",
            Self::ReadOnly => "readonly",
            Self::Loading => "loading",
            Self::OutOfMemory => "oom",
            Self::Misconf => "misconf",
            Self::Busy => "busy",
            Self::NoReplicas => "noreplicas",
            Self::NoAuth => "noauth",
            Self::WrongPass => "wrongpass",
            Self::NoPerm => "noperm",
            Self::NoKey => "nokey",
            Self::ClusterDown => "clusterdown",
            Self::Moved => "moved",
            Self::Evicts => "evicts",
            Self::Version => "version",
            Self::Clients => "maxclients",
            Self::Database => "database",
            Self::WrongType => "wrongtype",
            Self::Twin => "twin",
            Self::Damaged => "damaged",
            Self::Tables => "tables",
            Self::Layout => "layout",
            Self::NotDurable => "notdurable",
        }
    }

    /// What it means and what to do.
    #[doc(hidden)] // for the commands
    #[must_use]
    pub fn remedy(self) -> &'static str {
        match self {
            Self::NoScript => "it forgot our scripts and is sent them again: nothing to do",
            Self::ReadOnly => {
                "only a master, or a primary of PostgreSQL, can keep locks: give the address of one, independent of the other nodes"
            }
            Self::Loading => {
                "it reads its data after a start and is used when it has: nothing to do but wait"
            }
            Self::OutOfMemory => {
                "it is full, and is used again by itself when it has room. Redis: raise maxmemory or move other data away (leases \
                 are still extended and released meanwhile). PostgreSQL: make room on its disk. etcd: compact and defragment it, \
                 then disarm its alarm (etcdctl compact, defrag --cluster, alarm disarm), and set --auto-compaction-retention"
            }
            Self::Misconf => {
                "it cannot save its data and refuses every change: look at its disk and its log, or set \
                 stop-writes-on-bgsave-error no"
            }
            Self::Busy => {
                "a client's script keeps it busy: look for it there (SCRIPT KILL ends one that has written nothing)"
            }
            Self::NoReplicas => {
                "it wants replicas that it does not have: bring one back, or set min-replicas-to-write 0, as locks need none"
            }
            Self::NoAuth => {
                "it wants a password: set locks.redis.username and locks.redis.password"
            }
            Self::WrongPass => {
                "user and password do not fit: compare locks.redis.username and locks.redis.password with its ACL LIST"
            }
            Self::NoPerm => "allow it with ACL SETUSER; the documentation has the whole line",
            Self::NoKey => "allow this user the keys in question with ACL SETUSER and ~PATTERN",
            Self::ClusterDown => {
                "its cluster is broken: mend it (redis-cli --cluster check), or use independent masters without cluster mode"
            }
            Self::Moved => {
                "it is a part of a Redis Cluster and not in charge of these keys: write cluster:// with all its nodes, or use masters without \
                 cluster mode"
            }
            Self::Evicts => "locks must not be evicted: set maxmemory-policy noeviction",
            Self::Version => {
                "upgrade it: to Redis 6.2 or later, or Valkey, of 64 bits; PostgreSQL to 13 or later; etcd to 3.4 or later"
            }
            Self::Clients => {
                "all its connections are taken: raise maxclients (max_connections of PostgreSQL), or look who takes them"
            }
            Self::Database => {
                "give a database that it has, or make this one (CREATE DATABASE in PostgreSQL); number 0 of Redis is always there"
            }
            Self::WrongType => {
                "this key is not what watchkeeper writes there: look who wrote it, and delete it (DEL; of etcd's key `node` only with all workers stopped)"
            }
            Self::Twin => {
                "a majority needs independent servers: look where the addresses of both nodes lead"
            }
            Self::Damaged => {
                "a part of its memory was changed or deleted by something else: look by whom. Of several Redis servers empty it as a \
                 whole, and the others bring it back; one at a time, when the one before votes again. Where there are no others, \
                 as with PostgreSQL and etcd, remove what it names at most: the rest is the memory of all ticks. The embedded \
                 store mends itself but for bodies (see its page)"
            }
            Self::Tables => {
                "`watchkeeper locks schema` prints what makes them: run it as an owner of the database, or allow our user \
                 CREATE on it"
            }
            Self::Layout => {
                "another version made them, and nothing was changed: use that version, or give this one a schema of its own \
                 (locks.postgres.schema) and carry the ledgers over (`watchkeeper move --out FILE` of that version, `move --in FILE` \
                 of this one), see docs/operations/upgrading.md"
            }
            Self::NotDurable => {
                "it forgets in a power cut what it has granted: set fsync = on in postgresql.conf"
            }
        }
    }

    /// Whether it refuses everything, so that asking again has to wait, and the node counts as down. Otherwise it
    /// refuses what was asked, and may well do other things: a full server still releases.
    #[must_use]
    pub(crate) fn refuses_everything(self) -> bool {
        match self {
            Self::NoScript
            | Self::OutOfMemory
            | Self::Misconf
            | Self::NoReplicas
            | Self::NoKey
            | Self::Damaged => false,
            Self::ReadOnly
            | Self::Loading
            | Self::Busy
            | Self::NoAuth
            | Self::WrongPass
            | Self::NoPerm
            | Self::ClusterDown
            | Self::Moved
            | Self::Evicts
            | Self::Version
            | Self::Clients
            | Self::Database
            | Self::WrongType
            | Self::Twin
            | Self::Tables
            | Self::Layout
            | Self::NotDurable => true,
        }
    }

    /// Whether it lasts until a person changes the server or our configuration.
    #[doc(hidden)] // for the commands
    #[must_use]
    pub fn needs_a_person(self) -> bool {
        matches!(
            self,
            Self::NoAuth
                | Self::WrongPass
                | Self::NoPerm
                | Self::Evicts
                | Self::Version
                | Self::Database
                | Self::WrongType
                | Self::Twin
                | Self::Tables
                | Self::Layout
                | Self::NotDurable
        )
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.remedy())
    }
}
