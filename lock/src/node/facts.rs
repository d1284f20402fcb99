//! What a lock server tells of itself, for a person who looks for faults: [`super::Node::inspect`]. No vote depends on
//! any of it.

use serde::{Deserialize, Serialize};

/// What is known of one server; what its kind does not have, or does not let us see, is absent.
#[doc(hidden)] // for the command `doctor`
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeFacts {
    /// Redis: `master` or `slave`. PostgreSQL: `primary`, `standby`, or `primary beside` the name of another one that it has outlived. etcd: `leader`, `follower`,
    /// `learner` or `without a leader`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Version of the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// New with every start of the server process. PostgreSQL: system identifier and timeline, new with every promotion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// Seconds since the server process started, by its own clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uptime_s: Option<u64>,
    /// Redis: `maxmemory-policy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eviction: Option<String>,
    /// Bytes in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used: Option<u64>,
    /// Bytes that may be used; 0 without a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<u64>,
    /// Redis: `appendonly`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_only: Option<bool>,
    /// Redis: `appendfsync`. PostgreSQL: `fsync`, and `synchronous_commit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fsync: Option<String>,
    /// Redis: whether the last write to the append-only file went well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_ok: Option<bool>,
    /// Replicas, or standbys, that follow this server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u64>,
    /// PostgreSQL: `synchronous_standby_names`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synchronous_standbys: Option<String>,
    /// PostgreSQL: the rights on our tables that this user does not have, as `INSERT on queue`, with commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
    /// PostgreSQL: whether a pooler stands before it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pooler: Option<bool>,
    /// Embedded store: the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Embedded store: kind of the file system, a number of statfs(2) in hexadecimal when it has no name here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_system: Option<String>,
    /// Embedded store: bytes of the file and its write-ahead log. PostgreSQL and etcd: of the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// etcd: bytes in use of them; what is left is given back when it is defragmented.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_use: Option<u64>,
    /// etcd: the alarms that it has raised (`NOSPACE`, `CORRUPT`), and what else it complains of, with commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alarms: Option<String>,
    /// Embedded store: bytes free on its file system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
    /// Embedded store: SQLite's journal mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub journal: Option<String>,
    /// Embedded store: a stopped process that keeps it locked, so that no other process can write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped_writer: Option<u32>,
    /// etcd: each of the first 32 endpoints, in the order of the configuration. Redis behind Sentinel, or in a Cluster: each of those
    /// that name the master.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberFacts>,
}

/// What is known of one member of a cluster that is one node.
#[doc(hidden)] // for the command `doctor`
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MemberFacts {
    /// Where it is, without user and password.
    pub address: String,
    /// Why it does not tell; then nothing else is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// etcd: `leader`, `follower`, `learner` or `without a leader`. Of those that name the master of a Redis: `sentinel`,
    /// or `node of the cluster`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Its id, the same under whatever address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The server that it names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<String>,
    /// How many of its kind there are, by its own count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<usize>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The cluster of which it is a member.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// Whether that is another one than that of most endpoints.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stranger: bool,
    /// Bytes of its database.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Bytes in use of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_use: Option<u64>,
    /// The alarms that it has raised, and what else it complains of, with commas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alarms: Option<String>,
}
