//! Fences in PostgreSQL: SQL for any driver. The library itself has none.
//!
//! Placeholders are `$1` and `$2`, each once and in this order (tokio-postgres, sqlx, `PREPARE`); for psycopg write
//! `%s` for both. PostgreSQL 9.5 or later; tested on real servers.
//!
//! # Table form
//! [`CREATE_TABLE`] once, [`CHECK`] as the first statement of every transaction that writes to the resource:
//!
//! ```no_run
//! # use watchkeeper_lock::{fence::{self, Fence}, lease::Lease};
//! # async fn withdraw(client: &mut tokio_postgres::Client, lease: &Lease) -> Result<(), Box<dyn std::error::Error>> {
//! let fence = Fence::new("account:7", lease.token())?;
//! let tx = client.transaction().await?;
//! let rows = tx.execute(fence::postgres::CHECK, &[&fence.resource(), &fence.token()]).await?;
//! fence.accepted(rows)?; // an early return drops `tx`, which rolls back
//! tx.execute("UPDATE account SET balance = balance - 10 WHERE id = 7", &[]).await?;
//! tx.commit().await?;
//! # Ok(())
//! # }
//! ```
//!
//! First, because it locks the resource's row to the end of the transaction: until then no other writer of the
//! resource gets past its own check, and what the transaction reads later is what the writer before it has left.
//! Outside of a transaction it holds for one statement and guards nothing.
//!
//! # Column form
//! ```sql
//! ALTER TABLE account ADD COLUMN fence BIGINT NOT NULL DEFAULT 0;
//!
//! UPDATE account SET balance = $2, fence = $3
//!  WHERE id = $1 AND fence <= $3;                    -- no row: a later holder was here, or no such account
//!
//! INSERT INTO account (id, balance, fence) VALUES ($1, $2, $3)
//!     ON CONFLICT (id) DO UPDATE SET balance = excluded.balance, fence = excluded.fence
//!                          WHERE account.fence <= excluded.fence;
//! ```
//! Do not delete such rows: a stale holder could insert them anew. Mark them as deleted, or use the table form.
//! `NOT NULL` is needed: compared with a null every write is refused.
//!
//! # Isolation levels
//! - `READ COMMITTED` (the default): a check that meets an open transaction of another writer waits for its end, then
//!   compares with what that one has left. The larger token wins in whatever order they come.
//! - `REPEATABLE READ` and `SERIALIZABLE`: as before, but if the row was changed since this transaction's snapshot the
//!   check fails with SQLSTATE 40001 (`serialization_failure`). Nothing was written; run the whole transaction again,
//!   as these levels always ask for: a current holder then passes, a stale one changes no row and is refused.
//!
//! A check that is refused holds the row's lock, too: roll back at once.
//!
//! # A holder frozen inside its transaction
//! It holds the row's lock, and its successor waits at its check, safe but idle, until the server ends the session.
//! Set `idle_in_transaction_session_timeout` to about the ttl for sessions that write, and `lock_timeout` for
//! sessions that wait.

/// Creates the side table where it is missing. Belongs into a migration: `IF NOT EXISTS` alone does not order two
/// sessions that create it at the same time.
///
/// The constraint refuses token 0, of work without a lock, also from programs that do not use [`Fence`](super::Fence).
pub const CREATE_TABLE: &str = "\
CREATE TABLE IF NOT EXISTS watchkeeper_fence (
    resource TEXT PRIMARY KEY,
    token BIGINT NOT NULL CHECK (token > 0)
)";

/// Checks and raises the fence of a resource: `$1` its name (`TEXT`), `$2` the token (`BIGINT`). One affected row is
/// accepted; none is stale: see [`Fence::accepted`](super::Fence::accepted).
pub const CHECK: &str = "\
INSERT INTO watchkeeper_fence (resource, token) VALUES ($1, $2)
    ON CONFLICT (resource) DO UPDATE SET token = excluded.token
                               WHERE watchkeeper_fence.token <= excluded.token";
