//! Keys of ours without a time to live: walked for on a connection of its own, in steps that a server does not notice.

use std::time::Duration;

use deadpool_redis::redis::{AsyncConnectionConfig, Client, cmd, pipe};

use super::trouble::{self, Scrub};
use crate::node::{MOST_ENDLESS, NodeError};

/// Keys that the server looks at in one step.
const STEP: usize = 250;

/// A walk takes no longer than this.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// The names, without `prefix`, of keys that begin with it and never end.
pub(super) async fn endless(
    client: &Client,
    prefix: &str,
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
        let mut step = cmd("SCAN");
        step.arg(cursor)
            .arg("MATCH")
            .arg(format!("{}*", literal(prefix)));
        let step = step.arg("COUNT").arg(STEP);
        let (next, keys): (u64, Vec<Vec<u8>>) =
            step.query_async(&mut connection).await.map_err(failed)?;
        if !keys.is_empty() {
            let mut lives = pipe();
            for key in &keys {
                lives.cmd("PTTL").arg(key);
            }
            let lives: Vec<i64> = lives.query_async(&mut connection).await.map_err(failed)?;
            let ends = keys.iter().zip(lives).filter(|(_, life)| *life == -1);
            let names =
                ends.filter_map(|(key, _)| std::str::from_utf8(key).ok()?.strip_prefix(prefix));
            found.extend(names.map(str::to_owned));
        }
        cursor = next;
        if cursor == 0 || found.len() >= MOST_ENDLESS {
            // A walk may meet a key twice.
            found.sort_unstable();
            found.dedup();
            found.truncate(MOST_ENDLESS);
            return Ok(found);
        }
    }
}

/// A pattern that means exactly this text.
fn literal(text: &str) -> String {
    let mut pattern = String::new();
    for c in text.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '^' | '\\') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_no_pattern() {
        assert_eq!(literal("{a*[b]?}:1:l:"), r"{a\*\[b\]\?}:1:l:");
    }
}
