//! What the demonstration is told on its command line.

use std::time::Duration;

use clap::Args;
use watchkeeper::human::duration;

/// Watch three replicas elect a leader and send notifications, then lose the leader; needs no server
///
/// Starts the replicas as processes on a store in a temporary folder, a table of notifications and a local receiver.
/// When about 40 % are sent the leader is killed with SIGKILL. Ends with the tally, and with exit code 0 only when
/// nothing was lost, nothing was accepted twice and the takeover took at most the ttl and a second.
///
/// With `--store redis`, `--store sentinel`, `--store cluster`, `--store postgres`, `--store etcd` and `--source postgres` it starts
/// servers of this machine in temporary folders, and ends them.
///
/// Keys in a terminal: k kill the leader, f freeze it, u thaw it, h hand over, q quit.
#[derive(Clone, Debug, Args)]
pub(crate) struct DemoArgs {
    /// How many replicas to start
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=9))]
    pub(super) replicas: u32,
    /// How many notifications to send
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(u32).range(20..=1_000_000))]
    pub(super) notifications: u32,
    /// Go on for at least so long, such as 30s or 5m [default: until everything is sent]
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    pub(super) for_: Option<Duration>,
    /// Where the locks are: in a file, on three Redis masters, on Redis behind Sentinel or in a Cluster, in a PostgreSQL server, or in
    /// etcd, which are started for it
    #[arg(long, value_name = "STORE", default_value = "embedded")]
    pub(super) store: StoreKind,
    /// Where the notifications are: in a file, or in a PostgreSQL server, which is started for it
    #[arg(long, value_name = "SOURCE", default_value = "sqlite")]
    pub(super) source: SourceKind,
    /// End with one line of JSON on standard output; the story goes to standard error
    #[arg(long)]
    pub(super) json: bool,
}

/// Where the locks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StoreKind {
    /// In a file
    Embedded,
    /// On three Redis masters
    Redis,
    /// On a Redis master with a replica and three sentinels
    Sentinel,
    /// In a Redis Cluster of three masters
    Cluster,
    /// In a PostgreSQL server
    #[cfg(feature = "postgres")]
    Postgres,
    /// In etcd, a single member
    #[cfg(feature = "etcd")]
    Etcd,
}

/// Where the notifications are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum SourceKind {
    /// In a file
    Sqlite,
    /// In a PostgreSQL server
    #[cfg(feature = "postgres")]
    Postgres,
}
