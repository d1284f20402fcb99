//! What the replicas find: a temporary folder with a configuration, a store to be, and a table of notifications.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;
use watchkeeper::{
    Worker,
    chance::Chance,
    config::{Config, LoadOptions},
};

use super::{
    args::{DemoArgs, SourceKind, StoreKind},
    servers::Servers,
    table::Table,
};
use crate::{NotificationsParams, add_to};

/// How long a lease lasts without an extension.
pub(crate) const TTL: Duration = Duration::from_secs(2);
/// The job that has a leader.
pub(crate) const BEAT: &str = "heartbeat";
/// The job that works in batches.
pub(crate) const SEND: &str = "notifications";

/// The folder and what is in it; removed when dropped.
#[derive(Debug)]
pub(crate) struct Scene {
    folder: tempfile::TempDir,
    /// Those that were asked for.
    pub(crate) servers: Servers,
    pub(crate) table: Table,
    /// The configuration as the replicas read it, environment aside.
    pub(crate) config: Config,
    /// Parameters of the job that sends.
    pub(crate) params: NotificationsParams,
}

impl Scene {
    /// Makes the folder, and starts the servers, with notifications for the receiver at `sink`.
    pub(crate) async fn build(args: &DemoArgs, sink: &str) -> anyhow::Result<Self> {
        let rows = args.notifications;
        let folder = tempfile::Builder::new()
            .prefix("watchkeeper-demo-")
            .tempdir()?;
        let at = |name: &str| folder.path().join(name);
        let mut servers = Servers::default();
        let locks = match args.store {
            StoreKind::Embedded => embedded(&at("store.db")),
            StoreKind::Redis => masters(&servers.redis(3).await?),
            StoreKind::Sentinel => replaced(&servers.sentinel().await?),
            StoreKind::Cluster => replaced(&servers.cluster().await?),
            #[cfg(feature = "postgres")]
            StoreKind::Postgres => database(&servers.postgres(true).await?),
            #[cfg(feature = "etcd")]
            StoreKind::Etcd => cluster(&servers.etcd().await?),
        };
        let table = match args.source {
            SourceKind::Sqlite => Table::Sqlite(at("app.db")),
            #[cfg(feature = "postgres")]
            SourceKind::Postgres => Table::Postgres(servers.postgres(false).await?),
        };
        table.make(rows).await?;
        let params = json!({
            "source": table.source(),
            "table": SEND,
            "sink": sink,
            "batch_size": (rows / 40).clamp(5, 50),
            "rate": rate(rows),
        });
        let text = configuration(folder.path(), &locks, &params);
        std::fs::write(at("demo.toml"), text)?;
        let options = LoadOptions {
            file: Some(at("demo.toml")),
            root: folder.path().to_owned(),
            ..LoadOptions::default()
        };
        let config = add_to(Worker::with(options)).load()?.config;
        let params = serde_json::from_value(params)?;
        Ok(Self {
            folder,
            servers,
            table,
            config,
            params,
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.folder().join("demo.toml")
    }

    /// What the runs of the heartbeat have written; empty when none has run.
    pub(crate) fn beats(&self) -> io::Result<String> {
        match std::fs::read_to_string(self.folder().join("beats.jsonl")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            read => read,
        }
    }
}

/// Rows a second: slow enough to watch, and to kill a replica in the middle.
fn rate(rows: u32) -> f64 {
    let seconds = (f64::from(rows) / 250.0).clamp(4.0, 12.0);
    f64::from(rows) / seconds
}

fn embedded(file: &Path) -> String {
    // A JSON text is a TOML text as well.
    let file = json!(file.display().to_string());
    format!("backend = \"embedded\"\nembedded.path = {file}")
}

fn masters(urls: &[String]) -> String {
    // New masters do not vote before every lease that they could have forgotten is over.
    let max_ttl = TTL.as_secs();
    format!(
        "backend = \"redis\"\nmax_ttl = \"{max_ttl}s\"\nredis.nodes = {}",
        json!(urls)
    )
}

fn replaced(url: &str) -> String {
    // A new one does not vote before every lease that it could have forgotten is over, and six seconds later.
    let max_ttl = TTL.as_secs();
    format!(
        "backend = \"redis\"\nmax_ttl = \"{max_ttl}s\"\nredis.nodes = {}\nredis.node_timeout = \"100ms\"",
        json!([url])
    )
}

#[cfg(feature = "postgres")]
fn database(url: &str) -> String {
    // A new one does not vote before every lease that it could have forgotten is over.
    let max_ttl = TTL.as_secs();
    format!(
        "backend = \"postgres\"\nmax_ttl = \"{max_ttl}s\"\npostgres.url = {}\npostgres.node_timeout = \"100ms\"",
        json!(url)
    )
}

#[cfg(feature = "etcd")]
fn cluster(endpoint: &str) -> String {
    // A new one does not vote before every lease that it could have forgotten is over.
    let max_ttl = TTL.as_secs();
    format!(
        "backend = \"etcd\"\nmax_ttl = \"{max_ttl}s\"\netcd.endpoints = {}\netcd.node_timeout = \"100ms\"",
        json!([endpoint])
    )
}

fn configuration(folder: &Path, locks: &str, params: &serde_json::Value) -> String {
    let path = |name: &str| json!(folder.join(name).display().to_string()).to_string();
    let ttl = TTL.as_secs();
    let token = Chance::system().id();
    format!(
        r#"[worker]
namespace = "demo"
drain_timeout = "5s"

[locks]
{locks}
ttl = "{ttl}s"

[admin]
listen = "127.0.0.1:0"
# Of its own: with masters it would be kept in a folder that outlives us.
token = "{token}"

[jobs.{BEAT}]
kind = "heartbeat"
schedule = "@every 1s"
grace = "2s"
# Ticks that fell due without a leader are made up for, so that none is missing.
misfire = "all"
misfire_limit = 60
params = {{ file = {beats} }}

[jobs.{SEND}]
kind = "notifications"
schedule = "continuous"
coordination = "batch"
grace = "2s"

[jobs.{SEND}.params]
source = {source}
table = {table}
sink = {sink}
batch_size = {batch_size}
rate = {rate:?}
"#,
        beats = path("beats.jsonl"),
        source = params["source"],
        table = params["table"],
        sink = params["sink"],
        batch_size = params["batch_size"],
        rate = params["rate"].as_f64().unwrap_or(100.0),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_configuration_of_the_demonstration_has_no_problems() {
        let args = DemoArgs {
            replicas: 3,
            notifications: 20,
            for_: None,
            store: StoreKind::Embedded,
            source: SourceKind::Sqlite,
            json: false,
        };
        let sink = "http://127.0.0.1:9/x";
        let scene = Scene::build(&args, sink).await.unwrap();
        assert_eq!(scene.config.locks.ttl, TTL);
        assert_eq!(scene.config.jobs.len(), 2);
        assert!(scene.params.check().is_empty());
    }
}
