//! Rows of the side tables: intents, exceptions, and the count of doubts.

use jiff::Timestamp;
use rusqlite::{
    Connection, OptionalExtension, Transaction, TransactionBehavior, params, types::ValueRef,
};
use watchkeeper::node::Token;

use super::schema::Table;
use crate::notifications::{
    cell::ItemId,
    delivery::{Exception, State},
    digest_name,
    source::{Counts, Intent, Named, Result, SourceError},
};

/// Takes the write lock at once: a transaction that reads first could not become a writer beside others.
pub(super) fn immediate(conn: &mut Connection) -> Result<Transaction<'_>> {
    Ok(conn.transaction_with_behavior(TransactionBehavior::Immediate)?)
}

pub(super) fn intent(tx: &Connection, table: &Table, batch: &str) -> Result<Option<Intent>> {
    let found: Option<(String, i64, String)> = tx
        .prepare_cached(
            "SELECT job, token, items FROM watchkeeper_delivery_intent WHERE source = ?1 AND batch = ?2",
        )?
        .query_row(params![table.source, batch], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    let Some((job, token, items)) = found else {
        return Ok(None);
    };
    Ok(Some(Intent {
        job,
        token: Token(token.unsigned_abs()),
        items: serde_json::from_str::<Named>(&items).map_err(|_| SourceError::Unreadable(items))?,
    }))
}

pub(super) fn write_intent(
    tx: &Connection,
    table: &Table,
    batch: &str,
    job: &str,
    token: Token,
    items: &Named,
    now_ms: i64,
) -> Result<()> {
    let items = serde_json::to_string(items).map_err(|_| SourceError::Unfinished)?;
    tx.prepare_cached(
        "INSERT OR REPLACE INTO watchkeeper_delivery_intent (source, batch, job, token, items, written_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?
    .execute(params![table.source, batch, job, integer(token), items, text_time(now_ms)])?;
    Ok(())
}

pub(super) fn remove_intent(tx: &Connection, table: &Table, batch: &str) -> Result<()> {
    tx.prepare_cached("DELETE FROM watchkeeper_delivery_intent WHERE source = ?1 AND batch = ?2")?
        .execute(params![table.source, batch])?;
    Ok(())
}

pub(super) fn record(
    tx: &Connection,
    table: &Table,
    batch: &str,
    token: Token,
    id: &ItemId,
    exception: &Exception,
    now_ms: i64,
) -> Result<()> {
    tx.prepare_cached(&format!(
        "INSERT OR REPLACE INTO watchkeeper_delivery
         (source, item, recipient, state, attempts, not_before, reason, token, batch, updated_at, digest)
         VALUES (?1, ?2, {}, ?3, ?4, ?5, ?6, ?7, ?8, ?9, CASE WHEN ?3 IN ('in_doubt', 'parked') THEN
             (SELECT digest FROM watchkeeper_delivery WHERE source = ?1 AND item = ?2) END)",
        table.sql_recipient("?2")
    ))?
    .execute(params![
        table.source,
        id,
        exception.state.word(),
        exception.attempts,
        exception.not_before_ms,
        exception.reason,
        integer(token),
        batch,
        text_time(now_ms),
    ])?;
    Ok(())
}

/// Notes which rows may have been received as one message: those of them that are in doubt now, or parked.
pub(super) fn note_digests(tx: &Connection, table: &Table, named: &Named) -> Result<()> {
    for ids in named.digests() {
        let name = digest_name::name_of(ids);
        for id in ids {
            tx.prepare_cached(
                "UPDATE watchkeeper_delivery SET digest = ?3
                 WHERE source = ?1 AND item = ?2 AND state IN ('in_doubt', 'parked')",
            )?
            .execute(params![table.source, id, name])?;
        }
    }
    Ok(())
}

/// From now on it goes alone, where there are no messages of several rows.
pub(super) fn forget_digest(tx: &Connection, table: &Table, id: &ItemId) -> Result<()> {
    if table.digest.is_none() {
        tx.prepare_cached(
            "UPDATE watchkeeper_delivery SET digest = NULL WHERE source = ?1 AND item = ?2 AND digest IS NOT NULL",
        )?
        .execute(params![table.source, id])?;
    }
    Ok(())
}

pub(super) fn forget(tx: &Connection, table: &Table, id: &ItemId) -> Result<()> {
    tx.prepare_cached("DELETE FROM watchkeeper_delivery WHERE source = ?1 AND item = ?2")?
        .execute(params![table.source, id])?;
    Ok(())
}

/// Items of the side table by state. Asks nothing of the user's table: an item whose row was deleted counts until a person
/// has it sent again.
pub(super) fn counts(conn: &Connection, table: &Table) -> Result<Counts> {
    let mut found = conn.prepare_cached(
        "SELECT state, count(*) FROM watchkeeper_delivery WHERE source = ?1 GROUP BY state",
    )?;
    let mut found = found.query([&table.source])?;
    let mut counts = Counts::default();
    while let Some(row) = found.next()? {
        *counts.of_mut(state_of(row.get(0)?)?) = row.get::<_, i64>(1)?.unsigned_abs();
    }
    Ok(counts)
}

pub(super) fn count_doubts(tx: &Connection, table: &Table, doubts: u64) -> Result<()> {
    if doubts > 0 {
        tx.execute(
            "UPDATE watchkeeper_delivery_source SET doubted = doubted + ?2 WHERE source = ?1",
            params![table.source, i64::try_from(doubts).unwrap_or(i64::MAX)],
        )?;
    }
    Ok(())
}

/// The exception that starts at column `at` of a row: state, attempts, not_before, reason.
pub(super) fn exception_of(row: &rusqlite::Row<'_>, at: usize) -> Result<Option<Exception>> {
    let Some(word) = row.get::<_, Option<String>>(at)? else {
        return Ok(None);
    };
    // One row that was written by hand must not keep its whole cell from being sent.
    let attempts = row.get_ref(at + 1)?.as_i64().unwrap_or(0);
    let reason = match row.get_ref(at + 3)? {
        ValueRef::Text(text) | ValueRef::Blob(text) => String::from_utf8_lossy(text).into_owned(),
        _ => String::new(),
    };
    Ok(Some(Exception {
        state: state_of(word)?,
        attempts: u32::try_from(attempts.max(0)).unwrap_or(u32::MAX),
        not_before_ms: row.get_ref(at + 2)?.as_i64().unwrap_or(0),
        reason,
        doubted: false,
    }))
}

pub(super) fn state_of(word: String) -> Result<State> {
    State::parse(&word).ok_or(SourceError::Unreadable(word))
}

/// Tokens stay far below 2^63.
fn integer(token: Token) -> i64 {
    i64::try_from(token.0).unwrap_or(i64::MAX)
}

pub(super) fn text_time(ms: i64) -> String {
    Timestamp::from_millisecond(ms)
        .unwrap_or(Timestamp::UNIX_EPOCH)
        .to_string()
}

/// Batches that are being sent, or whose sender died in the act.
pub(super) fn open_batches(tx: &Connection, table: &Table) -> Result<u64> {
    let open: i64 = tx.query_row(
        "SELECT count(*) FROM watchkeeper_delivery_intent WHERE source = ?1",
        [&table.source],
        |row| row.get(0),
    )?;
    Ok(open.unsigned_abs())
}

/// Doubts recorded since the table was first served; none when it never was.
pub(super) fn doubted_ever(tx: &Connection, table: &Table) -> Result<Option<u64>> {
    let doubted: Option<i64> = tx
        .query_row(
            "SELECT doubted FROM watchkeeper_delivery_source WHERE source = ?1",
            [&table.source],
            |row| row.get(0),
        )
        .optional()?;
    Ok(doubted.map(i64::unsigned_abs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_was_written_by_hand_keeps_no_other_from_being_sent() {
        let db = Connection::open_in_memory().unwrap();
        for (attempts, read) in [
            ("7", 7),
            ("-5", 0),
            ("99999999999", u32::MAX),
            ("'many'", 0),
        ] {
            let row = format!("SELECT 'retry', {attempts}, 'soon', x'ff'");
            let of_row = |row: &rusqlite::Row<'_>| Ok(exception_of(row, 0));
            let found = db.query_row(&row, [], of_row).unwrap().unwrap().unwrap();
            assert_eq!((found.attempts, found.not_before_ms), (read, 0));
            assert_eq!(found.reason, "\u{fffd}");
        }
    }
}
