//! Where the locks live, when the command line says it.

use clap::Args;

use crate::config::Flag;

/// Options that name a store in place of the configured one.
#[derive(Clone, Debug, Default, Args)]
pub struct StoreArgs {
    /// Redis masters.
    // In documentation the brackets of the address would be links.
    #[arg(
        long,
        help = "Redis masters, with commas or one option each: redis://[user:password@]host[:port][/db]; or one address of \
                sentinels, sentinel://host,host,host/master, or of a cluster, cluster://host,host,host",
        value_name = "URL",
        value_delimiter = ',',
        conflicts_with_all = ["embedded", "postgres", "etcd"]
    )]
    pub nodes: Vec<String>,
    /// A PostgreSQL database.
    #[arg(
        long,
        help = "A PostgreSQL database: postgres://user[:password@]host[:port]/database",
        value_name = "URL",
        conflicts_with_all = ["embedded", "etcd"]
    )]
    pub postgres: Option<String>,
    /// The members of an etcd cluster.
    #[arg(
        long,
        help = "A member of an etcd cluster, one option each: http://host:2379, https:// for TLS",
        value_name = "URL",
        conflicts_with = "embedded"
    )]
    pub etcd: Vec<String>,
    /// The store of one machine, a file on a local disk
    #[arg(long, value_name = "PATH")]
    pub embedded: Option<String>,
    /// Keys of the store begin with this; one fleet, one namespace (worker.namespace)
    #[arg(long, value_name = "NAME")]
    pub namespace: Option<String>,
}

// === impl StoreArgs ===

impl StoreArgs {
    /// Whether it names a store: then the configuration's jobs are of no interest.
    #[must_use]
    pub(crate) fn is_named(&self) -> bool {
        !self.nodes.is_empty()
            || self.postgres.is_some()
            || !self.etcd.is_empty()
            || self.embedded.is_some()
    }

    /// The same as values of the configuration.
    #[must_use]
    pub fn flags(&self) -> Vec<Flag> {
        let mut flags = Vec::new();
        let mut flag = |name: &str, key: &str, value: &str| {
            flags.push(Flag {
                name: name.to_owned(),
                key: key.to_owned(),
                value: value.to_owned(),
            });
        };
        if !self.nodes.is_empty() {
            flag("--nodes", "locks.backend", "redis");
            flag("--nodes", "locks.redis.nodes", &self.nodes.join(","));
        }
        if let Some(url) = &self.postgres {
            flag("--postgres", "locks.backend", "postgres");
            flag("--postgres", "locks.postgres.url", url);
        }
        if !self.etcd.is_empty() {
            flag("--etcd", "locks.backend", "etcd");
            flag("--etcd", "locks.etcd.endpoints", &self.etcd.join(","));
        }
        if let Some(path) = &self.embedded {
            flag("--embedded", "locks.backend", "embedded");
            flag("--embedded", "locks.embedded.path", path);
        }
        if let Some(name) = &self.namespace {
            flag("--namespace", "worker.namespace", name);
        }
        flags
    }
}
