//! What lies in the file: its tables, its layout, its boot, and how long the longest lease of that boot was.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior};

use super::{
    boot::Use,
    rows::{self, boot_of, noted, number},
};
use crate::node::{
    NodeMs,
    rules::{LONGEST_TTL_MS, ceil_ms},
};

/// The layout known here.
pub(super) const LAYOUT: i64 = 5;

/// Times are milliseconds of CLOCK_BOOTTIME in the boot that `wk_node` names. `wk_meta` says the layout, and how long the longest lease
/// was that was granted in this boot: twice, the second time below zero, so that damage of one is seen. In `wk_lease`, `H` is a held record, `R` a released
/// and `B` a broken one, `C` a claim, which has no more than its first columns. A body that ends has a row in `wk_kept`, and is
/// kept for `kept` after its last change; so its text is not written again with every lease. `changes` counts the calls that
/// changed the file, `seen` is the time of the last.
const TABLES: &str = "
    CREATE TABLE wk_meta (
        name  TEXT PRIMARY KEY NOT NULL,
        value INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE wk_node (
        id        INTEGER PRIMARY KEY CHECK (id = 1),
        forgotten INTEGER NOT NULL,
        boot      TEXT NOT NULL,
        seen      INTEGER NOT NULL,
        changes   INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE wk_lease (
        key     TEXT PRIMARY KEY NOT NULL,
        state   TEXT NOT NULL CHECK (state IN ('H', 'R', 'B', 'C')),
        owner   TEXT NOT NULL,
        granted INTEGER NOT NULL,
        inc     TEXT NOT NULL,
        until   INTEGER NOT NULL,
        seq     INTEGER NOT NULL,
        ttl     INTEGER NOT NULL,
        counter INTEGER NOT NULL,
        token   INTEGER NOT NULL,
        rev     INTEGER NOT NULL,
        waits   INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE wk_body (
        key   TEXT PRIMARY KEY NOT NULL,
        token INTEGER NOT NULL,
        rev   INTEGER NOT NULL,
        body  TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE wk_kept (
        key   TEXT PRIMARY KEY NOT NULL,
        until INTEGER NOT NULL,
        kept  INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE wk_doc (
        name  TEXT PRIMARY KEY NOT NULL,
        rev   INTEGER NOT NULL,
        ttl   INTEGER NOT NULL,
        until INTEGER NOT NULL,
        body  TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX wk_doc_until ON wk_doc (until);
    CREATE TABLE wk_release (
        id    INTEGER PRIMARY KEY AUTOINCREMENT,
        key   TEXT NOT NULL,
        owner TEXT NOT NULL,
        at    INTEGER NOT NULL,
        next  TEXT
    ) STRICT;
    CREATE TABLE wk_line (
        key     TEXT PRIMARY KEY NOT NULL,
        waiters TEXT NOT NULL,
        until   INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
";

/// What an open file is found to be.
pub(super) enum Found {
    Ours(Use),
    /// Of another layout.
    Layout(i64),
}

/// Makes the tables of a new file, and voids leases of another boot when none of them can live. Of a file that is as it should
/// be it only reads, which no writer prevents.
pub(super) fn prepare(conn: &mut Connection, boot: &str, now: NodeMs) -> rusqlite::Result<Found> {
    match layout(conn)? {
        Some(LAYOUT) => {
            let shown = shown(conn)?;
            if shown.boot == boot || !shown.longest.is_zero() {
                return Ok(Found::Ours(shown));
            }
        }
        Some(other) => return Ok(Found::Layout(other)),
        None => {}
    }
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Again: another process may have been quicker.
    match layout(&tx)? {
        Some(LAYOUT) => {}
        Some(other) => return Ok(Found::Layout(other)),
        None => {
            tx.execute_batch(TABLES)?;
            tx.execute("INSERT INTO wk_meta VALUES ('layout', ?1)", [LAYOUT])?;
            tx.execute("INSERT INTO wk_node VALUES (1, 0, ?1, 0, 0)", [boot])?;
        }
    }
    let before = shown(&tx)?;
    if before.boot != boot && before.longest.is_zero() {
        take_over(&tx, &before, boot, now)?;
    }
    let after = shown(&tx)?;
    tx.commit()?;
    Ok(Found::Ours(after))
}

/// Voids the leases of another boot. What has a lifetime lives it anew: the old clock is gone.
pub(super) fn take_over(
    tx: &Connection,
    before: &Use,
    boot: &str,
    now: NodeMs,
) -> rusqlite::Result<()> {
    let now = i64::try_from(now.0).unwrap_or(i64::MAX);
    tx.execute_batch(
        "DELETE FROM wk_lease WHERE state = 'C'; DELETE FROM wk_release; DELETE FROM wk_line;
         DELETE FROM wk_meta WHERE name IN ('longest', 'longest again');",
    )?;
    // A record of an earlier boot names no owner: no contender has to watch it. A release that nothing late can follow
    // needs no mark.
    tx.execute(
        "UPDATE wk_lease SET inc = ?2, until = ?1, waits = 0",
        (now, &before.boot),
    )?;
    tx.execute(
        "UPDATE wk_kept SET until = ?1 + min(kept, 9223372036854775807 - ?1)",
        [now],
    )?;
    tx.execute(
        "UPDATE wk_doc SET until = ?1 + min(ttl, 9223372036854775807 - ?1)",
        [now],
    )?;
    let taken = "UPDATE wk_node SET boot = ?1, seen = ?2, changes = changes + 1";
    tx.execute(taken, (boot, now)).map(|_| ())
}

/// The file's layout; `None` of a new one.
fn layout(conn: &Connection) -> rusqlite::Result<Option<i64>> {
    let known = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'wk_meta'";
    if conn.query_row(known, [], |_| Ok(())).optional()?.is_none() {
        return Ok(None);
    }
    let layout = "SELECT value FROM wk_meta WHERE name = 'layout'";
    conn.query_row(layout, [], |row| row.get(0)).map(Some)
}

/// A table of a file that has none of ours.
pub(super) fn of_another(conn: &Connection) -> rusqlite::Result<Option<String>> {
    if layout(conn)?.is_some() {
        return Ok(None);
    }
    let table =
        "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' LIMIT 1";
    conn.query_row(table, [], |row| row.get(0)).optional()
}

/// What the file says of its use.
pub(super) fn shown(conn: &Connection) -> rusqlite::Result<Use> {
    let most = noted(conn)?.unwrap_or(LONGEST);
    let shown = format!(
        "SELECT boot, changes, CAST(max(0, coalesce((SELECT max(min(?1, {LIFE})) FROM wk_lease WHERE {STANDS}), 0)) AS INTEGER)
         FROM wk_node"
    );
    conn.query_row(&shown, [ms(most)], |row| {
        Ok(Use {
            boot: boot_of(row, 0)?,
            changes: number(row, 1)?,
            longest: Duration::from_millis(number(row, 2)?),
        })
    })
}

/// No lease is longer.
const LONGEST: Duration = Duration::from_millis(LONGEST_TTL_MS);

/// What names another incarnation was voided before.
const STANDS: &str = "state <> 'R' AND inc = ''";

/// How long a row of `wk_lease` could live after the last change: its ttl at most, if it is a record. An end that lies further away
/// was written by something else.
const LIFE: &str = "min(
    CASE typeof(until) WHEN 'integer' THEN until - (SELECT seen FROM wk_node) ELSE 9999999999 END,
    CASE WHEN state <> 'C' AND typeof(ttl) = 'integer' AND ttl >= 0 THEN ttl ELSE 9999999999 END)";

/// Notes that a lease so long was granted, in the same transaction. What is noted then.
pub(super) fn note(tx: &Connection, granted: Duration) -> rusqlite::Result<Duration> {
    let before = noted(tx)?;
    if let Some(before) = before.filter(|before| *before >= granted) {
        return Ok(before);
    }
    // Leases that stand may be longer than what was granted now.
    let least = match before {
        Some(_) => Duration::ZERO,
        None => shown(tx)?.longest,
    };
    let longest = granted.max(least).min(LONGEST);
    tx.execute(
        "INSERT OR REPLACE INTO wk_meta VALUES ('longest', ?1), ('longest again', -?1)",
        [ms(longest)],
    )?;
    Ok(longest)
}

/// A lease that says of itself that it is longer than any that was granted, or does not say it: damage.
pub(super) fn overlong(conn: &Connection) -> rusqlite::Result<Option<String>> {
    let most = noted(conn)?.unwrap_or(LONGEST);
    let overlong = format!(
        "SELECT key FROM wk_lease WHERE {STANDS} AND ({LIFE} > ?1 OR {LIFE} >= ?2) LIMIT 1"
    );
    conn.query_row(&overlong, [ms(most), ms(LONGEST)], |row| {
        rows::shown(row, "the lease of")
    })
    .optional()
}

fn ms(time: Duration) -> i64 {
    i64::try_from(ceil_ms(time)).unwrap_or(i64::MAX)
}
