//! Raw keys without a time to live, beside rows of ours: walked for on a connection of its own, in steps that a server does not
//! notice.

use std::time::Duration;

use deadpool_redis::redis::{AsyncConnectionConfig, Client, cmd, pipe};

use super::trouble::{self, Scrub};
use crate::node::{MOST_ENDLESS, NodeError};

/// Rows that the server looks at in one step.
const ROWS: usize = 100;

/// Where to go on, and fields of the table with what stands in them.
type Step = (u64, Vec<(Vec<u8>, Vec<u8>)>);

/// A walk takes no longer than this.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// The names of locks in whose keys something stands that never ends.
pub(super) async fn endless(
    client: &Client,
    table: &str,
    limit: Duration,
    scrub: &Scrub,
) -> Result<Vec<String>, NodeError> {
    let patience = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(limit))
        .set_response_timeout(Some(limit));
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&patience)
        .await
        .map_err(|e| trouble::no_connection(&e, scrub))?;
    let failed = |e| trouble::no_connection(&e, scrub);
    let (mut found, mut cursor) = (Vec::new(), 0_u64);
    loop {
        let mut step = cmd("HSCAN");
        let step = step.arg(table).arg(cursor).arg("MATCH").arg("l*");
        let step = step.arg("COUNT").arg(ROWS);
        let (next, rows): Step = step.query_async(&mut connection).await.map_err(failed)?;
        let keys: Vec<&[u8]> = rows.iter().filter_map(|(name, _)| name.get(1..)).collect();
        if !keys.is_empty() {
            let mut lives = pipe();
            for key in &keys {
                lives.cmd("PTTL").arg(*key);
            }
            let lives: Vec<i64> = lives.query_async(&mut connection).await.map_err(failed)?;
            let ends = keys.iter().zip(lives).filter(|(_, life)| *life == -1);
            let names = ends.filter_map(|(key, _)| std::str::from_utf8(key).ok());
            found.extend(names.map(str::to_owned));
        }
        cursor = next;
        if cursor == 0 || found.len() >= MOST_ENDLESS {
            // A walk may meet a row twice.
            found.sort_unstable();
            found.dedup();
            found.truncate(MOST_ENDLESS);
            return Ok(found);
        }
    }
}
