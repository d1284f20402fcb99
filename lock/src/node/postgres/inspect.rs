//! What a server tells of itself, also one that is refused as a lock server.

use std::time::Duration;

use tokio_postgres::Row;

use super::{
    connect::{self, NoConnection},
    error,
    shared::Shared,
};
use crate::node::{NodeError, NodeFacts};

/// It may take so long.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks the servers in their order for a primary, which is the one that keeps locks. Where there is none, the first that answers is
/// shown.
pub(super) async fn inspect(shared: &Shared) -> Result<NodeFacts, NodeError> {
    let address = &shared.settings.address;
    let mut failed = NodeError::Unreachable("it names no server".to_owned());
    let mut first = None;
    for server in address.servers().map_err(NodeError::Auth)? {
        let asking = async {
            let greeted = connect::greet(&server, address, &shared.spawn, None).await;
            let greeted = greeted.map_err(|why| match why {
                NoConnection::Setup(why) => NodeError::Tls(why),
                NoConnection::Server(why) => error::no_connection(&why),
            })?;
            let facts = "SELECT CASE WHEN pg_is_in_recovery() THEN 'standby' ELSE 'primary' END, \
                 current_setting('server_version'), \
                 (SELECT system_identifier::text FROM pg_control_system()) || ':' || \
                     (SELECT timeline_id::text FROM pg_control_checkpoint()), \
                 extract(epoch FROM clock_timestamp() - pg_postmaster_start_time())::int8, \
                 current_setting('fsync') || ', synchronous_commit ' || current_setting('synchronous_commit'), \
                 (SELECT count(*) FROM pg_stat_replication), \
                 current_setting('synchronous_standby_names'), \
                 pg_database_size(current_database())";
            let rows = greeted.client.query_typed(facts, &[]).await;
            let rows = rows.map_err(|e| error::of(&e))?;
            let row = rows.first();
            let row = row.ok_or_else(|| NodeError::Protocol("no row".to_owned()))?;
            Ok(facts_of(row, greeted.is_direct))
        };
        match shared.clock.timeout(PATIENCE, asking).await {
            Ok(Ok(facts)) if facts.role.as_deref() == Some("primary") => return Ok(facts),
            Ok(Ok(facts)) => first = first.or(Some(facts)),
            Ok(Err(why)) => failed = why,
            Err(_) => failed = NodeError::Timeout(PATIENCE),
        }
    }
    first.ok_or(failed)
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
        pooler: Some(!is_direct),
        ..NodeFacts::default()
    }
}
