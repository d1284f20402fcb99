//! What a server tells of itself, also one that is refused as a lock server.

use std::time::Duration;

use futures_util::future::join_all;
use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use super::{
    address::Server,
    error,
    history::{History, TIMELINE},
    layout::LACKING,
    shared::Shared,
};
use crate::node::{NodeError, NodeFacts};

/// It may take so long.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks all servers for the primary that keeps locks. Where there is none, the first that answers is shown.
pub(super) async fn inspect(shared: &Shared) -> Result<NodeFacts, NodeError> {
    let servers = shared.settings.address.servers();
    let servers = servers.map_err(NodeError::Auth)?;
    let asked = servers.iter().map(async |server| {
        let asked = shared.clock.timeout(PATIENCE, ask(server, shared)).await;
        asked.unwrap_or(Err(NodeError::Timeout(PATIENCE)))
    });
    let told = join_all(asked).await;
    let primaries = || {
        told.iter()
            .flatten()
            .filter_map(|(_, history)| history.as_ref())
    };
    let at = told.iter().position(|told| {
        let history = told.as_ref().ok().and_then(|(_, history)| history.as_ref());
        history.is_some_and(|history| !history.has_successor_among(primaries()))
    });
    let outlived = servers.iter().zip(&told).find(|(_, told)| {
        let history = told.as_ref().ok().and_then(|(_, history)| history.as_ref());
        history.is_some_and(|history| history.has_successor_among(primaries()))
    });
    let beside = outlived.map(|(server, _)| format!("primary beside {}", server.name));
    let first = told.iter().position(Result::is_ok);
    let mut told = told.into_iter();
    let Some(at) = at.or(first) else {
        let none = NodeError::Unreachable("it names no server".to_owned());
        return Err(told.find_map(Result::err).unwrap_or(none));
    };
    let (mut facts, _) = told
        .nth(at)
        .unwrap_or_else(|| Err(NodeError::Protocol("no server".to_owned())))?;
    facts.role = beside.or(facts.role);
    Ok(facts)
}

async fn ask(server: &Server, shared: &Shared) -> Result<(NodeFacts, Option<History>), NodeError> {
    let greeted = shared.greet(server).await?;
    let facts = format!(
        "SELECT CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE 'primary' END, \
         current_setting('server_version'), \
         (SELECT system_identifier::text FROM pg_control_system()) || ':' || \
             (SELECT timeline_id::text FROM pg_control_checkpoint()), \
         extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::int8, \
         current_setting('fsync') || ', synchronous_commit ' || current_setting('synchronous_commit'), \
         (SELECT count(*) FROM pg_stat_replication), \
         current_setting('synchronous_standby_names'), \
         pg_database_size(current_database()), \
         (SELECT system_identifier::text FROM pg_control_system()), \
         {TIMELINE}, ({LACKING})"
    );
    let schema = &shared.settings.schema;
    let params: [(&(dyn ToSql + Sync), Type); 1] = [(schema, Type::TEXT)];
    let rows = greeted.client.query_typed(&facts, &params).await;
    let rows = rows.map_err(|e| error::of(&e))?;
    let row = rows.first();
    let row = row.ok_or_else(|| NodeError::Protocol("no row".to_owned()))?;
    let text = |at: usize| row.try_get::<_, Option<String>>(at).ok().flatten();
    let history = text(8).zip(text(9));
    let history = history.map(|(system, timeline)| History { system, timeline });
    Ok((facts_of(row, greeted.is_direct), history))
}

fn facts_of(row: &Row, is_direct: bool) -> NodeFacts {
    let text = |at: usize| row.try_get::<_, Option<String>>(at).ok().flatten();
    let number = |at: usize| {
        let number: Option<i64> = row.try_get(at).ok().flatten();
        number.and_then(|number| u64::try_from(number).ok())
    };
    NodeFacts {
        role: text(0),
        version: text(1),
        run_id: text(2),
        uptime_s: number(3),
        fsync: text(4),
        replicas: number(5),
        synchronous_standbys: text(6).filter(|names| !names.is_empty()),
        size: number(7),
        lacks: text(10),
        pooler: Some(!is_direct),
        ..NodeFacts::default()
    }
}
