//! From settings to nodes: the one way in which programs of the library, the commands and workers open a store.
//!
//! Two programs share their locks when both the store and the namespace are the same. In an SQLite file a namespace is a prefix of
//! every name, on Redis servers and in etcd that of every key; a node that was made by hand has neither the prefix nor what a fleet
//! must have in common.

use std::sync::Arc;

#[cfg(feature = "sqlite")]
use crate::node::{
    scoped::Scoped,
    sqlite::{OpenError, SqliteNode},
};
use crate::{
    acquire::{Locks, LocksBuilder},
    base::finding::{Findings, Severity},
    clock::Clock,
    node::{Node, memory::MemoryNode},
    settings::{Backend, LockSettings, Timing},
};

/// Why a store could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Settings that make no sense, a file that cannot be opened, or what is no address.
    #[error("cannot open the store {store}: {why}")]
    Unusable {
        /// Which, without credentials.
        store: String,
        /// Why, and what to do.
        why: String,
    },
    /// Another process keeps the embedded store locked that has to be made first. It may pass.
    #[error("cannot open the store {store}: another process keeps it locked")]
    Locked {
        /// The file.
        store: String,
    },
}

impl Locks {
    /// Locks where these settings say, in this namespace: the same as those of every program with the same settings and
    /// namespace, of `watchkeeper lock` and of a worker, whose namespace is `watchkeeper` unless they are told another one.
    ///
    /// Servers need not be up: they are reached when they are needed. Of an SQLite file it blocks while the disk works, and
    /// for about a second while another process keeps a file locked that has to be made first.
    ///
    /// # Errors
    /// [`StoreError`], with a sentence for the operator.
    pub fn open(settings: &LockSettings, namespace: &str) -> Result<LocksBuilder, StoreError> {
        let clock = Clock::system();
        check(settings, namespace)?;
        let nodes = nodes(settings, namespace, &clock)?;
        Ok(over(nodes, settings, &clock))
    }
}

/// A lock service over the nodes of these settings.
#[doc(hidden)] // for the worker
#[must_use]
pub fn over(nodes: Vec<Arc<dyn Node>>, settings: &LockSettings, clock: &Clock) -> LocksBuilder {
    let locks = Locks::over(nodes)
        .timing(Timing::of(settings))
        .expiry(settings.expiry())
        .clock(clock.clone());
    match settings.fleet() {
        Some(fleet) => locks.guarded(fleet),
        None => locks,
    }
}

/// Opens the nodes of the configured backend.
///
/// # Errors
/// [`StoreError`] for a file that cannot be opened or an address that makes no sense.
#[doc(hidden)] // for the worker
pub fn nodes(
    settings: &LockSettings,
    namespace: &str,
    clock: &Clock,
) -> Result<Vec<Arc<dyn Node>>, StoreError> {
    match settings.backend {
        Backend::Memory => Ok(vec![Arc::new(MemoryNode::new("memory", clock.clone()))]),
        Backend::Embedded => embedded(settings, namespace, clock),
        Backend::Redis => redis(settings, namespace, clock),
        Backend::Postgres => postgres(settings, namespace, clock),
        Backend::Etcd => etcd(settings, namespace, clock),
    }
}

/// What a configuration is refused for as well.
fn check(settings: &LockSettings, namespace: &str) -> Result<(), StoreError> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if namespace.is_empty() || namespace.len() > 100 || !namespace.chars().all(fits) {
        let store = format!("{namespace:?}");
        return Err(unusable(
            store,
            "a namespace has 1 to 100 letters, digits, '-', '_' and '.'".to_owned(),
        ));
    }
    let mut found = Findings::default();
    settings.check(&mut found);
    let mut errors = found.iter().filter(|f| f.severity == Severity::Error);
    match errors.next() {
        None => Ok(()),
        Some(first) => {
            let keys = first.keys.join(", ");
            let why = format!("{keys}: {}: {}", first.message, first.remedy);
            Err(unusable(namespace.to_owned(), why))
        }
    }
}

fn unusable(store: String, why: String) -> StoreError {
    StoreError::Unusable { store, why }
}

#[cfg(feature = "sqlite")]
fn embedded(
    settings: &LockSettings,
    namespace: &str,
    clock: &Clock,
) -> Result<Vec<Arc<dyn Node>>, StoreError> {
    let path = &settings.embedded.path;
    let node = SqliteNode::open(path, clock.clone()).map_err(|error| {
        let store = path.display().to_string();
        if matches!(error, OpenError::Locked { .. }) {
            return StoreError::Locked { store };
        }
        // The sentence says what; its cause says why.
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
        unusable(store, format!("{error}{}", cause.unwrap_or_default()))
    })?;
    let scoped = Scoped::new(node, namespace, crate::spawn::Spawn::system());
    Ok(vec![Arc::new(scoped)])
}

#[cfg(not(feature = "sqlite"))]
fn embedded(_: &LockSettings, _: &str, _: &Clock) -> Result<Vec<Arc<dyn Node>>, StoreError> {
    Err(missing("embedded", "sqlite"))
}

#[cfg(feature = "redis")]
fn redis(
    settings: &LockSettings,
    namespace: &str,
    clock: &Clock,
) -> Result<Vec<Arc<dyn Node>>, StoreError> {
    use crate::{
        base::secret::{SecretUrl, redact},
        node::redis::{RedisNode, RedisNodeSettings, TlsFiles},
    };
    let (redis, guard) = (&settings.redis, settings.guard());
    let node = |url: &SecretUrl| {
        let settings = RedisNodeSettings {
            url: url.expose().to_owned().into(),
            username: redis.username.clone(),
            password: redis
                .password
                .as_ref()
                .map(|secret| secret.expose().to_owned().into()),
            tls: TlsFiles {
                ca: redis.tls.ca.clone(),
                cert: redis.tls.cert.clone(),
                key: redis.tls.key.clone(),
            },
            node_timeout: redis.node_timeout,
            namespace: namespace.to_owned(),
            raw_keys: settings.raw_keys,
            guard: guard.clone(),
        };
        let node = RedisNode::new(&settings, clock.clone(), crate::spawn::Spawn::system());
        node.map(|node| Arc::new(node) as Arc<dyn Node>)
            .map_err(|error| unusable(redact(url.expose()), error.to_string()))
    };
    redis.nodes.iter().map(node).collect()
}

#[cfg(not(feature = "redis"))]
fn redis(_: &LockSettings, _: &str, _: &Clock) -> Result<Vec<Arc<dyn Node>>, StoreError> {
    Err(missing("redis", "redis"))
}

#[cfg(feature = "postgres")]
fn postgres(
    settings: &LockSettings,
    namespace: &str,
    clock: &Clock,
) -> Result<Vec<Arc<dyn Node>>, StoreError> {
    use crate::{
        base::secret::SecretUrl,
        node::postgres::{PostgresNode, PostgresNodeSettings},
    };
    let postgres = &settings.postgres;
    let address = |url: &SecretUrl| {
        let address = postgres.address(url);
        address.map_err(|why| unusable("postgres".to_owned(), format!("the address {why}")))
    };
    let url = postgres.url.as_ref();
    let url = url.ok_or_else(|| {
        unusable(
            "postgres".to_owned(),
            "locks.postgres.url is missing".to_owned(),
        )
    })?;
    let settings = PostgresNodeSettings {
        address: address(url)?,
        listen: postgres.listen_url.as_ref().map(address).transpose()?,
        schema: postgres.schema.clone(),
        node_timeout: postgres.node_timeout,
        namespace: namespace.to_owned(),
        guard: settings.guard(),
    };
    let node = PostgresNode::new(settings, clock.clone(), crate::spawn::Spawn::system());
    Ok(vec![Arc::new(node)])
}

#[cfg(not(feature = "postgres"))]
fn postgres(_: &LockSettings, _: &str, _: &Clock) -> Result<Vec<Arc<dyn Node>>, StoreError> {
    Err(missing("postgres", "postgres"))
}

#[cfg(feature = "etcd")]
fn etcd(
    settings: &LockSettings,
    namespace: &str,
    clock: &Clock,
) -> Result<Vec<Arc<dyn Node>>, StoreError> {
    use crate::node::etcd::{EtcdNode, EtcdNodeSettings};
    let etcd = &settings.etcd;
    if etcd.endpoints.is_empty() {
        let why = "locks.etcd.endpoints is missing".to_owned();
        return Err(unusable("etcd".to_owned(), why));
    }
    let settings = EtcdNodeSettings {
        endpoints: etcd.endpoints.clone(),
        username: etcd.username.clone(),
        password: etcd
            .password
            .as_ref()
            .map(|secret| secret.expose().to_owned().into()),
        tls: etcd.files(),
        node_timeout: etcd.node_timeout,
        namespace: namespace.to_owned(),
        guard: settings.guard(),
    };
    let node = EtcdNode::new(settings, clock.clone(), crate::spawn::Spawn::system());
    let node = node.map_err(|why| unusable("etcd".to_owned(), why))?;
    Ok(vec![Arc::new(node)])
}

#[cfg(not(feature = "etcd"))]
fn etcd(_: &LockSettings, _: &str, _: &Clock) -> Result<Vec<Arc<dyn Node>>, StoreError> {
    Err(missing("etcd", "etcd"))
}

#[cfg(not(all(
    feature = "sqlite",
    feature = "redis",
    feature = "postgres",
    feature = "etcd"
)))]
fn missing(store: &str, feature: &str) -> StoreError {
    let why = format!("it is not part of this build; build with the feature `{feature}`");
    unusable(store.to_owned(), why)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn refused(settings: &LockSettings, namespace: &str) -> String {
        match Locks::open(settings, namespace) {
            Err(why) => why.to_string(),
            Ok(_) => panic!("it was opened"),
        }
    }

    #[test]
    fn settings_that_break_a_rule_open_nothing() {
        let memory = LockSettings::memory();
        assert!(Locks::open(&memory, "shop").is_ok());
        assert!(refused(&memory, "a b").contains("a namespace has"));
        let long = memory.ttl(Duration::from_secs(60));
        let why = refused(&long, "shop");
        assert!(why.contains("ttl, max_ttl: 1m is longer"), "{why}");
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_namespace_is_one_fleet_of_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let settings = LockSettings::embedded(folder.path().join("locks.db"));
        let open = |namespace| Locks::open(&settings, namespace).unwrap().start().unwrap();
        let (one, same, other) = (open("shop"), open("shop"), open("bank"));
        let lease = one.lock("k").acquire().await.unwrap();
        assert!(same.lock("k").acquire().await.is_err());
        assert!(other.lock("k").acquire().await.is_ok());
        lease.release().await;
    }
}
