//! Which division into cells is in force for a table: one at a time for all replicas.
//!
//! Cells of different sizes overlap, and their locks know nothing of each other. So the size in force stands beside the
//! table, a batch of another size does not begin, and the size changes only while no intent is open. Replicas that are
//! configured differently, as in a rolling change, follow the size in force meanwhile.

use rusqlite::{Connection, OptionalExtension, params};
use watchkeeper::chance::Chance;

use super::{
    schema::Table,
    side::{immediate, open_batches},
};
use crate::notifications::{
    cell::Layout,
    source::{Result, SourceError},
};

/// Version of the side tables' meaning.
const VERSION: i64 = 1;

/// The layout in force, after the configured one was put in force if it may be.
pub(super) fn in_force(conn: &mut Connection, table: &Table) -> Result<Layout> {
    if let Some((layout, _)) = read(conn, table)?
        && layout == table.layout
    {
        return Ok(layout);
    }
    let tx = immediate(conn)?;
    let (mut layout, _) = settle(&tx, table)?;
    if layout != table.layout && open_batches(&tx, table)? == 0 {
        layout = table.layout;
        tx.execute(
            "UPDATE watchkeeper_delivery_source SET layout = ?2 WHERE source = ?1",
            params![table.source, layout.to_string()],
        )?;
        // What was written before knows nothing of recipients; without an order there are none to know.
        let recipient = table.sql_recipient("watchkeeper_delivery.item");
        let which = match table.order {
            None => "AND recipient IS NOT NULL",
            Some(_) => "",
        };
        tx.execute(
            &format!(
                "UPDATE watchkeeper_delivery SET recipient = {recipient} WHERE source = ?1 {which}"
            ),
            [&table.source],
        )?;
    }
    tx.commit()?;
    Ok(layout)
}

/// The layout in force and the database's own name, written down at the first time.
pub(super) fn settle(tx: &Connection, table: &Table) -> Result<(Layout, String)> {
    if let Some(found) = read(tx, table)? {
        return Ok(found);
    }
    // One name for the whole database, whatever tables are served.
    let name: Option<String> = tx
        .query_row(
            "SELECT name FROM watchkeeper_delivery_source LIMIT 1",
            [],
            |row| row.get(0),
        )
        .optional()?;
    let name = name.unwrap_or_else(|| Chance::system().id().chars().take(16).collect());
    tx.execute(
        "INSERT INTO watchkeeper_delivery_source (source, version, name, layout, doubted)
         VALUES (?1, ?2, ?3, ?4, 0)",
        params![table.source, VERSION, name, table.layout.to_string()],
    )?;
    Ok((table.layout, name))
}

/// The layout in force and the database's own name, if the table was ever served.
pub(super) fn read(conn: &Connection, table: &Table) -> Result<Option<(Layout, String)>> {
    let found: Option<(i64, String, String)> = conn
        .prepare_cached(
            "SELECT version, layout, name FROM watchkeeper_delivery_source WHERE source = ?1",
        )?
        .query_row([&table.source], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .optional()?;
    match found {
        None => Ok(None),
        Some((VERSION, word, name)) => match Layout::parse(&word) {
            Some(layout) => Ok(Some((layout, name))),
            None => Err(SourceError::Unreadable(word)),
        },
        Some((version, ..)) => Err(SourceError::Unreadable(format!("version {version}"))),
    }
}

/// Batches in which a sender wrote an intent.
pub(super) fn open_intents(conn: &Connection, table: &Table, limit: usize) -> Result<Vec<String>> {
    let mut batches = conn.prepare_cached(
        "SELECT batch FROM watchkeeper_delivery_intent WHERE source = ?1 ORDER BY batch LIMIT ?2",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let batches = batches.query_map(params![table.source, limit], |row| row.get(0))?;
    Ok(batches.collect::<Result<_, _>>()?)
}
