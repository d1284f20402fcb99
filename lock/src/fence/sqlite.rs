//! Fences in SQLite: SQL for any driver, and [`check()`] for programs with rusqlite.
//!
//! Placeholders are `?1` and `?2`, each once and in this order. SQLite 3.24 or later.
//!
//! # Table form
//! [`CREATE_TABLE`] once, [`CHECK`] (or [`check()`]) as the first statement of every transaction that writes to the
//! resource:
#![cfg_attr(feature = "sqlite", doc = "```")]
#![cfg_attr(not(feature = "sqlite"), doc = "```ignore")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let mut db = rusqlite::Connection::open_in_memory()?;
//! # db.execute_batch("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER); INSERT INTO account VALUES (7, 50)")?;
//! use rusqlite::TransactionBehavior;
//! use watchkeeper_lock::{fence, node::Token};
//!
//! db.execute_batch(fence::sqlite::CREATE_TABLE)?;
//! let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
//! fence::sqlite::check(&tx, "account:7", Token(34))?; // dropping `tx` rolls back
//! tx.execute("UPDATE account SET balance = balance - 10 WHERE id = 7", [])?;
//! tx.commit()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Column form
//! ```sql
//! ALTER TABLE account ADD COLUMN fence INTEGER NOT NULL DEFAULT 0;
//!
//! UPDATE account SET balance = ?2, fence = ?3
//!  WHERE id = ?1 AND fence <= ?3;                    -- no row: a later holder was here, or no such account
//! ```
//! Do not delete such rows: a stale holder could insert them anew. Mark them as deleted, or use the table form.
//!
//! # Transactions
//! SQLite has one writer at a time, and the check is a write: it takes the lock of the whole file, to the end of the
//! transaction. Begin with `BEGIN IMMEDIATE`. A deferred transaction that has read before its check fails with
//! `SQLITE_BUSY` when another connection wrote in between; that says nothing about the token: roll back and run it
//! again. A holder frozen inside its transaction keeps the file locked until it goes on or is killed.
//!
//! # The dependency
//! [`check()`] takes the `Transaction` of the rusqlite that this library uses, 0.41, and a later one of ours may be
//! another: a change that breaks. It costs a program nothing that the feature `sqlite` has not: a program can link
//! SQLite only once, so its rusqlite is ours in any case. With other drivers use the texts.

/// Creates the side table where it is missing.
///
/// The constraint refuses token 0, of work without a lock, also from programs that do not use [`Fence`](super::Fence).
pub const CREATE_TABLE: &str = "\
CREATE TABLE IF NOT EXISTS watchkeeper_fence (
    resource TEXT NOT NULL PRIMARY KEY,
    token INTEGER NOT NULL CHECK (typeof(token) = 'integer' AND token > 0)
)";

/// Checks and raises the fence of a resource: `?1` its name, `?2` the token. One changed row is accepted; none is
/// stale: see [`Fence::accepted`](super::Fence::accepted).
pub const CHECK: &str = "\
INSERT INTO watchkeeper_fence (resource, token) VALUES (?1, ?2)
    ON CONFLICT (resource) DO UPDATE SET token = excluded.token
                               WHERE watchkeeper_fence.token <= excluded.token";

/// Checks and raises the fence of `resource` within the transaction that has the effect; call it first. When it fails,
/// roll back, as dropping the transaction does.
///
/// # Errors
/// [`FenceError::Stale`](super::FenceError::Stale): stop; `NoToken` and `NotAToken` for what no lock has given;
/// `Sqlite` when it could not be checked.
#[cfg(feature = "sqlite")]
pub fn check(
    tx: &rusqlite::Transaction<'_>,
    resource: &str,
    token: crate::node::Token,
) -> Result<(), super::FenceError> {
    let fence = super::Fence::new(resource, token)?;
    let rows = tx
        .prepare_cached(CHECK)
        .and_then(|mut check| check.execute((fence.resource(), fence.token())))
        .map_err(|source| super::FenceError::Sqlite {
            resource: resource.to_owned(),
            source,
        })?;
    Ok(fence.accepted(rows as u64)?)
}
