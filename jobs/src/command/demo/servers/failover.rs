//! A Redis in whose place another one could be put: a master with a replica that sentinels watch, or a cluster.
//!
//! These servers tell each other their addresses, and those of a cluster have two ports of a fixed distance. So each is at an address of
//! its own, with the same ports everywhere.

use std::{fs, path::Path};

use anyhow::Context;
use deadpool_redis::redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, FromRedisValue, RedisResult, cmd,
};
use tokio::net::TcpStream;

use super::{ANSWER, NO_REDIS, REDIS, Servers, folder, in_path, shown};

/// Where servers of data are asked. Those of a cluster meet 10,000 above it.
const DATA: u16 = 12389;
/// Where sentinels are asked.
const SENTINEL: u16 = 12390;
/// What the sentinels call their master.
const MASTER: &str = "demo";
/// Masters of a cluster.
const MASTERS: usize = 3;
/// What a cluster divides between its masters.
const SLOTS: usize = 16_384;

// === impl Servers ===

impl Servers {
    /// Starts a master, a replica and three sentinels, and says the address of the master.
    pub(crate) async fn sentinel(&mut self) -> anyhow::Result<String> {
        let program = in_path(&REDIS).context(NO_REDIS)?;
        let folder = folder("sentinel")?;
        let [master, replica, sentinels @ ..] = hosts::<5>();
        for host in [&master, &replica] {
            let mut more = vec!["--replica-announce-ip".to_owned(), host.clone()];
            if *host != master {
                more.extend(["--replicaof".to_owned(), master.clone(), DATA.to_string()]);
            }
            self.data(&program, host, &more, folder.path()).await?;
        }
        for host in &sentinels {
            let file = folder.path().join(format!("{host}.conf"));
            let settings = format!(
                "bind {host}\nport {SENTINEL}\nprotected-mode no\nsentinel announce-ip {host}\n\
                 sentinel monitor {MASTER} {master} {DATA} 2\nsentinel down-after-milliseconds {MASTER} 2000\n"
            );
            fs::write(&file, settings)?;
            let args = [shown(&file), "--sentinel".to_owned()];
            let log = folder.path().join(format!("{host}.log"));
            self.start(&program, &args, None, folder.path(), &log)?;
            self.wait(async || listens(host, SENTINEL).await, &log)
                .await?;
        }
        self.folders.push(folder);
        let listed = sentinels.map(|host| format!("{host}:{SENTINEL}"));
        Ok(format!("sentinel://{}/{MASTER}", listed.join(",")))
    }

    /// Starts a cluster of masters without replicas, and says its address.
    pub(crate) async fn cluster(&mut self) -> anyhow::Result<String> {
        let program = in_path(&REDIS).context(NO_REDIS)?;
        let folder = folder("cluster")?;
        let hosts = hosts::<MASTERS>();
        for (n, host) in hosts.iter().enumerate() {
            let more = [
                ("--cluster-enabled", "yes".to_owned()),
                ("--cluster-config-file", format!("{host}.nodes")),
                ("--cluster-announce-ip", host.clone()),
            ];
            let more = more.map(|(name, value)| [name.to_owned(), value]);
            self.data(&program, host, more.as_flattened(), folder.path())
                .await?;
            let slots: Vec<usize> = (n * SLOTS / MASTERS..(n + 1) * SLOTS / MASTERS).collect();
            let mut take = cmd("CLUSTER");
            ask::<()>(host, take.arg("ADDSLOTS").arg(slots)).await?;
            // Otherwise they would have to agree on them first.
            let mut number = cmd("CLUSTER");
            ask::<()>(host, number.arg("SET-CONFIG-EPOCH").arg(n + 1)).await?;
        }
        let [first, others @ ..] = &hosts;
        for other in others {
            let mut meet = cmd("CLUSTER");
            ask::<()>(first, meet.arg("MEET").arg(other).arg(DATA)).await?;
        }
        for host in &hosts {
            let log = folder.path().join(format!("{host}.log"));
            self.wait(async || is_whole(host).await.unwrap_or(false), &log)
                .await?;
        }
        self.folders.push(folder);
        let listed = hosts.map(|host| format!("{host}:{DATA}"));
        Ok(format!("cluster://{}", listed.join(",")))
    }

    /// Starts a server of data at this address.
    async fn data(
        &mut self,
        program: &Path,
        host: &str,
        more: &[String],
        folder: &Path,
    ) -> anyhow::Result<()> {
        let log = folder.join(format!("{host}.log"));
        let mut args: Vec<String> = ["--appendonly", "no", "--save", "", "--protected-mode", "no"]
            .map(str::to_owned)
            .to_vec();
        args.extend(["--bind".to_owned(), host.to_owned()]);
        args.extend(["--port".to_owned(), DATA.to_string()]);
        args.extend(["--dir".to_owned(), shown(folder)]);
        args.extend_from_slice(more);
        self.start(program, &args, None, folder, &log)?;
        self.wait(async || listens(host, DATA).await, &log).await
    }
}

/// Addresses for the servers of one demonstration. All of 127.0.0.0/8 leads to this machine, and no other program has a port there.
fn hosts<const N: usize>() -> [String; N] {
    let [_, _, high, low] = std::process::id().to_be_bytes();
    // Never 127.0.0.1, where other servers are.
    std::array::from_fn(|n| format!("127.{high}.{low}.{}", n + 2))
}

async fn listens(host: &str, port: u16) -> bool {
    TcpStream::connect((host, port)).await.is_ok()
}

/// Whether a node of a cluster knows all masters, and that each slot has one.
async fn is_whole(host: &str) -> RedisResult<bool> {
    let told: String = ask(host, cmd("CLUSTER").arg("INFO")).await?;
    let known = format!("cluster_known_nodes:{MASTERS}\r\n");
    Ok(told.contains("cluster_state:ok") && told.contains(&known))
}

/// What a server of data answers to this.
async fn ask<T: FromRedisValue>(host: &str, what: &Cmd) -> RedisResult<T> {
    let client = Client::open(ConnectionAddr::Tcp(host.to_owned(), DATA))?;
    let patience = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(ANSWER))
        .set_response_timeout(Some(ANSWER));
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&patience)
        .await?;
    what.query_async(&mut connection).await
}
