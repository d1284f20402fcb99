//! A client of a fleet, from the fleet's configuration.

use std::time::Duration;

use crate::{
    clock::Clock,
    config::{Backend, Config, LoadOptions, load_without_jobs},
    error::{Error, Result},
    fleet::Fleet,
    lock::{LockSettings, LocksBuilder},
};

use super::store;

/// A node is given at least so long for its answer: a client holds no lease that ends meanwhile, and may be far away.
const ANSWER: Duration = Duration::from_millis(250);
/// A majority of the nodes is waited for so long; it is connected without one, too.
const CONNECTING: Duration = Duration::from_secs(5);

impl Fleet {
    /// A client of the fleet whose store the environment of this process names, as [`Worker::from_env`] reads it. What the
    /// file says of jobs is left out: a program that is no worker knows none of their kinds.
    ///
    /// # Errors
    /// [`Error::Config`] for a faulty configuration; else as [`Fleet::connect`].
    ///
    /// [`Worker::from_env`]: crate::Worker::from_env
    pub async fn from_env() -> Result<Self> {
        let loaded = load_without_jobs(&LoadOptions::from_process()).map_err(Error::Config)?;
        Self::connect(&loaded.config).await
    }

    /// A client of the fleet that is configured like this. It takes no part in the fleet: it holds no lock, stands for no
    /// election, and watches no node. Returns when a majority of the lock nodes answers, and after five seconds in any case:
    /// what is asked then says so.
    ///
    /// It runs on the runtime of the caller, which needs I/O and time.
    ///
    /// # Errors
    /// [`Error::Store`] where no worker can have been: a store in memory, which is private to its process, or a file that is
    /// not there; and for an address that makes no sense.
    pub async fn connect(config: &Config) -> Result<Self> {
        if let Some((store, why)) = unreachable(config) {
            let why = why.to_owned();
            return Err(Error::Store { store, why });
        }
        let fleet = Self::open(config)?;
        fleet.reached(CONNECTING).await;
        Ok(fleet)
    }

    /// The same without waiting for the nodes.
    pub(crate) fn open(config: &Config) -> Result<Self> {
        let locks = locks(config)?.bystander().start();
        let locks = locks.map_err(Error::Process)?;
        Ok(Self::over(&locks, whoami()).configured(config.jobs.clone()))
    }
}

/// The lock service for a question, before it starts.
fn locks(config: &Config) -> Result<LocksBuilder> {
    let locks = patient(&config.locks);
    let namespace = &config.worker.namespace;
    store::open(&locks, namespace, &Clock::system(), Duration::ZERO)
}

/// The same settings for a program that holds no lease which could end while a node takes its time.
pub(crate) fn patient(locks: &LockSettings) -> LockSettings {
    let mut locks = locks.clone();
    locks.redis.node_timeout = locks.redis.node_timeout.max(ANSWER);
    locks.postgres.node_timeout = locks.postgres.node_timeout.max(ANSWER);
    locks.etcd.node_timeout = locks.etcd.node_timeout.max(ANSWER);
    locks
}

/// Which store no worker can have used, so that asking would only leave an empty one behind; and why.
pub(crate) fn unreachable(config: &Config) -> Option<(String, &'static str)> {
    let path = &config.locks.embedded.path;
    match config.locks.backend {
        Backend::Memory => Some((
            "memory".to_owned(),
            "it is private to each process: ask its status page",
        )),
        Backend::Embedded if !path.exists() => {
            Some((path.display().to_string(), "no worker was ever here"))
        }
        Backend::Embedded | Backend::Redis | Backend::Postgres | Backend::Etcd => None,
    }
}

/// The name of the asker, where nothing else was said: the user of this process on this machine.
fn whoami() -> String {
    let host = rustix::system::uname();
    let user = std::env::var("USER").unwrap_or_else(|_| "unknown".to_owned());
    format!("{user}@{}", host.nodename().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_store_that_no_worker_can_have_used_is_not_made_by_a_question() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.locks.backend = Backend::Embedded;
        config.locks.embedded.path = folder.path().join("locks.db");
        let error = Fleet::connect(&config).await.unwrap_err();
        assert!(error.to_string().contains("no worker was ever here"));
        assert!(!config.locks.embedded.path.exists());
        config.locks.backend = Backend::Memory;
        let error = Fleet::connect(&config).await.unwrap_err();
        assert!(error.to_string().contains("private to each process"));
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_client_asks_the_fleet_that_is_configured_and_knows_its_jobs() {
        use crate::job::Spec;

        let folder = tempfile::tempdir().unwrap();
        let mut config = Config::default();
        config.locks.backend = Backend::Embedded;
        config.locks.embedded.path = folder.path().join("locks.db");
        let minute = Duration::from_secs(60);
        config.jobs.insert("report".to_owned(), Spec::every(minute));
        let _worker = locks(&config).unwrap().start().unwrap();
        let fleet = Fleet::connect(&config).await.unwrap();
        let asked = fleet.trigger("report", Default::default()).await.unwrap();
        assert!(asked.by.contains('@'), "{}", asked.by);
        let error = fleet.trigger("rapport", Default::default()).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("known jobs: report"), "{error}");
    }
}
