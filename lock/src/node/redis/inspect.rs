//! What a server tells of itself, also one that is refused as a lock server: on a connection of its own, made with the
//! settings of the others.

use std::{collections::HashMap, time::Duration};

use deadpool_redis::redis::{AsyncConnectionConfig, Client, aio::MultiplexedConnection, cmd};

use super::trouble::{self, Scrub};
use crate::node::{NodeError, NodeFacts};

/// Asks the server at the other end.
pub(super) async fn inspect(
    client: &Client,
    limit: Duration,
    scrub: &Scrub,
) -> Result<NodeFacts, NodeError> {
    let patience = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(limit))
        .set_response_timeout(Some(limit));
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&patience)
        .await
        .map_err(|e| trouble::no_connection(&e, scrub))?;
    let info: String = cmd("INFO")
        .query_async(&mut connection)
        .await
        .map_err(|e| trouble::no_connection(&e, scrub))?;
    let fsync = setting(&mut connection, "appendfsync").await;
    Ok(NodeFacts {
        fsync,
        ..facts(&info)
    })
}

/// A value of the server's configuration; `None` for a user who may not read it.
async fn setting(connection: &mut MultiplexedConnection, name: &str) -> Option<String> {
    let mut ask = cmd("CONFIG");
    ask.arg("GET").arg(name);
    let pair: Result<Vec<String>, _> = ask.query_async(connection).await;
    pair.ok()?.into_iter().nth(1)
}

fn facts(info: &str) -> NodeFacts {
    let fields: HashMap<&str, &str> = info
        .lines()
        .filter_map(|line| line.trim_end().split_once(':'))
        .collect();
    let text = |name: &str| fields.get(name).map(|&value| value.to_owned());
    let number = |name: &str| fields.get(name).and_then(|value| value.parse().ok());
    NodeFacts {
        role: text("role"),
        version: text("valkey_version").or_else(|| text("redis_version")),
        run_id: text("run_id"),
        // Below zero where the clock went back: unknown.
        uptime_s: number("uptime_in_seconds"),
        eviction: text("maxmemory_policy"),
        memory_used: number("used_memory"),
        memory_limit: number("maxmemory"),
        append_only: text("aof_enabled").map(|on| on == "1"),
        append_ok: text("aof_last_write_status").map(|status| status == "ok"),
        replicas: number("connected_slaves"),
        ..NodeFacts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_does_not_tell_is_unknown() {
        let told = facts("role:slave\r\nmaxmemory:10\r\naof_enabled:0\r\nconnected_slaves:x\r\n");
        assert_eq!(told.role.as_deref(), Some("slave"));
        assert_eq!(
            (told.memory_limit, told.append_only),
            (Some(10), Some(false))
        );
        assert_eq!((told.replicas, told.version), (None, None));
    }
}
