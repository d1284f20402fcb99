//! Reading and marking the user's rows.
//!
//! The side table is compared with `+n.id`: the sign takes the column's affinity away, without which SQLite could not
//! use the side table's index and would read it once per row.

use std::collections::{BTreeSet, VecDeque};

use rusqlite::{
    Connection, OptionalExtension, Row, ToSql, params,
    types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef},
};
use serde_json::{Map, Value};

use super::{
    super::table::{BATCH_BYTES, BODY_BYTES, Payload, body, hexadecimal, quoted},
    schema::{Ordered, Table},
    side::{exception_of, text_time},
};
use crate::notifications::{
    cell::{Cell, ItemId, Layout, bucket_of, idempotency_key},
    delivery::Exception,
    digest,
    order::Fair,
    source::{Item, Result},
};

/// Rows to send, and those that are too large to be sent, with their bytes.
type Due = (Vec<Item>, Vec<(ItemId, u64)>);

/// Numbers of cells with rows that may go now.
pub(super) fn cells_with_work(
    conn: &Connection,
    table: &Table,
    layout: Layout,
    now_ms: i64,
    limit: usize,
) -> Result<Vec<i64>> {
    let (name, id, due) = (&table.sql_rows, &table.sql_id, due_rows(table));
    match layout {
        Layout::Range(size) => {
            // Division truncates; the comparison makes it a floor for negative ids.
            let mut cells = conn.prepare_cached(&format!(
                "SELECT DISTINCT n.{id} / ?3 - (n.{id} % ?3 < 0) FROM {name}
                 WHERE {due} AND typeof(n.{id}) = 'integer' LIMIT ?4"
            ))?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let cells =
                cells.query_map(params![table.source, now_ms, size, limit], |row| row.get(0))?;
            Ok(cells.collect::<Result<_, _>>()?)
        }
        Layout::Key(..) => {
            // Rows of a column that this replica is not told of are left to those that are.
            let Some((order, buckets)) = table.ordered_in(layout) else {
                return Ok(Vec::new());
            };
            let mut cells = BTreeSet::new();
            walk(conn, table, order, now_ms, |id, recipient| {
                cells.insert(bucket_of(recipient.unwrap_or(&id.to_string()), buckets));
                cells.len() < limit
            })?;
            Ok(cells.into_iter().collect())
        }
        Layout::Hash(_) | Layout::Opaque(_) => {
            let mut ids = conn.prepare_cached(&format!("SELECT n.{id} FROM {name} WHERE {due}"))?;
            let mut rows = ids.query(params![table.source, now_ms])?;
            let mut cells = BTreeSet::new();
            while cells.len() < limit
                && let Some(row) = rows.next()?
            {
                cells.extend(usable_id(row)?.and_then(|id| layout.cell_of(&id)));
            }
            Ok(cells.into_iter().collect())
        }
    }
}

/// The cell's rows that may go now, at most one batch of them.
pub(super) fn due(
    tx: &Connection,
    table: &Table,
    cell: &Cell,
    database: &str,
    now_ms: i64,
) -> Result<Due> {
    let ids = due_ids(tx, table, cell, now_ms)?;
    let columns: Vec<String> = match &table.payload {
        Payload::Column(column) => vec![column.clone()],
        Payload::Fields(fields) => fields.clone(),
    };
    let for_sink = table.for_sink.iter().map(|(_, column)| column);
    let list: String = columns
        .iter()
        .chain(for_sink)
        .map(|c| format!(", n.{}", quoted(c)))
        .collect();
    let mut row_of = tx.prepare_cached(&format!(
        "SELECT d.state, d.attempts, d.not_before, d.reason, {}, d.digest{list} FROM {}
         LEFT JOIN watchkeeper_delivery AS d ON d.source = ?1 AND d.item = ?2
         WHERE n.{} = ?2",
        table.sql_is_repeat(),
        table.sql_rows,
        table.sql_id
    ))?;
    let repeats = table.repeats.as_ref();
    let since_ms = repeats.map(|repeats| repeats.dedupe.since_ms(now_ms));
    let (mut items, mut too_large, mut read) = (Vec::with_capacity(ids.len()), Vec::new(), 0);
    let is_strict = table.keeps_back_what_is_dead();
    let (mut ids, mut looked) = (VecDeque::from(ids), table.digest.is_none());
    let mut grown = false;
    loop {
        if ids.is_empty() && !looked {
            looked = true;
            // What may have been received goes again whole, whatever room there is.
            let there: BTreeSet<&ItemId> = items.iter().map(|item: &Item| &item.id).collect();
            let rest = rest_of_digests(tx, table, &digest::cut(&items), now_ms)?;
            ids.extend(rest.into_iter().filter(|id| !there.contains(id)));
            (read, grown) = (0, !ids.is_empty());
        }
        let Some(id) = ids.pop_front() else { break };
        if read > BATCH_BYTES {
            ids.clear();
            continue;
        }
        let mut rows = match since_ms {
            None => row_of.query(params![table.source, id])?,
            Some(since_ms) => row_of.query(params![table.source, id, since_ms])?,
        };
        let Some(row) = rows.next()? else { continue };
        let bytes =
            (0..columns.len() + table.for_sink.len()).map(|i| Ok(bytes_of(row.get_ref(6 + i)?)));
        let bytes = bytes.sum::<Result<u64>>()?;
        if bytes > BODY_BYTES {
            too_large.push((id, bytes));
            // It keeps back rows of its recipient: the next batch knows which.
            if is_strict {
                ids.clear();
            }
            continue;
        }
        read += bytes;
        let values = (0..columns.len()).map(|i| Ok(json(row.get_ref(6 + i)?)));
        let values = values.collect::<Result<Vec<_>>>()?;
        let mut for_sink = Map::new();
        for (i, (name, _)) in table.for_sink.iter().enumerate() {
            let value = json(row.get_ref(6 + columns.len() + i)?);
            for_sink.insert(name.clone(), value);
        }
        items.push(Item {
            key: idempotency_key(database, &table.source, &id),
            body: body(&table.payload, values, &table.name, &id),
            columns: for_sink,
            prior: exception_of(row, 0)?,
            is_repeat: row.get(4)?,
            members: Vec::new(),
            digest: row
                .get::<_, Option<String>>(5)?
                .filter(|_| table.digest.is_some()),
            id,
        });
    }
    if grown {
        // As they are picked.
        items.sort_by(|a, b| a.id.cmp(&b.id));
    }
    Ok((items, too_large))
}

/// Rows in doubt of these digests that may go now.
fn rest_of_digests(
    tx: &Connection,
    table: &Table,
    names: &[String],
    now_ms: i64,
) -> Result<Vec<ItemId>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    // One look for all: what is in doubt is read each time, whatever digest it is of.
    let names = Value::from(names).to_string();
    let mut found = tx.prepare_cached(&format!(
        "SELECT n.{id} FROM watchkeeper_delivery AS e CROSS JOIN {rows} ON n.{id} = e.item
         WHERE e.source = ?1 AND e.digest IN (SELECT value FROM json_each(?3)) AND e.state = 'in_doubt'
         AND e.not_before <= ?2 AND n.{sent} IS NULL",
        id = table.sql_id,
        rows = table.sql_rows,
        sent = table.sql_sent_at,
    ))?;
    let ids = found.query_map(params![table.source, now_ms, names], |row| row.get(0))?;
    Ok(ids.collect::<Result<_, _>>()?)
}

fn due_ids(tx: &Connection, table: &Table, cell: &Cell, now_ms: i64) -> Result<Vec<ItemId>> {
    let (name, id, due) = (&table.sql_rows, &table.sql_id, due_rows(table));
    let most = usize::try_from(table.batch_size).unwrap_or(usize::MAX);
    let mut ids = Vec::new();
    match cell.layout {
        Layout::Range(size) => {
            let (first, last) = Layout::ids_of(size, cell.number);
            let mut found = tx.prepare_cached(&format!(
                "SELECT n.{id} FROM {name}
                 WHERE n.{id} BETWEEN ?3 AND ?4 AND {due} AND typeof(n.{id}) = 'integer' ORDER BY n.{id}"
            ))?;
            let found =
                found.query_map(params![table.source, now_ms, first, last], |row| row.get(0))?;
            for id in found {
                ids.push(id?);
            }
        }
        Layout::Key(..) => {
            let Some((order, buckets)) = table.ordered_in(cell.layout) else {
                return Ok(Vec::new());
            };
            let mut fair = match &table.digest {
                None => Fair::new(most),
                Some(collected) => collected.fair(table.batch_size),
            };
            walk(tx, table, order, now_ms, |id, recipient| {
                if bucket_of(recipient.unwrap_or(&id.to_string()), buckets) == cell.number {
                    fair.add(recipient, id);
                }
                !fair.is_full()
            })?;
            ids = fair.pick();
        }
        Layout::Hash(_) | Layout::Opaque(_) => {
            let mut found = tx.prepare_cached(&format!("SELECT n.{id} FROM {name} WHERE {due}"))?;
            let mut rows = found.query(params![table.source, now_ms])?;
            while ids.len() < most
                && let Some(row) = rows.next()?
            {
                let here = |id: &ItemId| cell.layout.cell_of(id) == Some(cell.number);
                ids.extend(usable_id(row)?.filter(here));
            }
        }
    }
    Ok(ids)
}

/// Goes through the rows that may go now, in the order of their ids, each with its recipient; as long as `on` says so.
fn walk(
    conn: &Connection,
    table: &Table,
    order: &Ordered,
    now_ms: i64,
    mut on: impl FnMut(ItemId, Option<&str>) -> bool,
) -> Result<()> {
    let mut found = conn.prepare_cached(&format!(
        "SELECT n.{id}, n.{recipient} FROM {name} WHERE {due} ORDER BY n.{id}",
        id = table.sql_id,
        recipient = order.sql_column,
        name = table.sql_rows,
        due = due_rows(table),
    ))?;
    let mut rows = found.query(params![table.source, now_ms])?;
    while let Some(row) = rows.next()? {
        let Some(id) = usable_id(row)? else { continue };
        let recipient = match json(row.get_ref(1)?) {
            Value::Null => None,
            Value::String(recipient) => Some(recipient),
            number => Some(number.to_string()),
        };
        if !on(id, recipient.as_deref()) {
            break;
        }
    }
    Ok(())
}

/// Condition on a row `n`: unsent, and nothing in the side table holds it back. ?1 is the source, ?2 now.
fn due_rows(table: &Table) -> String {
    format!(
        "n.{} IS NULL AND NOT EXISTS (SELECT 1 FROM watchkeeper_delivery AS d
         WHERE d.source = ?1 AND d.item = +n.{}
         AND (d.state IN ('dead', 'parked') OR {})){}{}",
        table.sql_sent_at,
        table.sql_id,
        table.sql_waits("d"),
        table.sql_is_next(),
        table.sql_is_collected()
    )
}

/// Whether a row is there and unsent, ours to send now or not, and what the side table says of it.
pub(super) fn standing(
    tx: &Connection,
    table: &Table,
    id: &ItemId,
) -> Result<(bool, Option<Exception>)> {
    let unsent = is_unsent(tx, table, id)?;
    let mut prior = tx.prepare_cached(
        "SELECT state, attempts, not_before, reason FROM watchkeeper_delivery
         WHERE source = ?1 AND item = ?2",
    )?;
    let mut rows = prior.query(params![table.source, id])?;
    match rows.next()? {
        Some(row) => Ok((unsent, exception_of(row, 0)?)),
        None => Ok((unsent, None)),
    }
}

fn is_unsent(tx: &Connection, table: &Table, id: &ItemId) -> Result<bool> {
    let mut unsent = tx.prepare_cached(&format!(
        "SELECT 1 FROM {} AS n WHERE n.{} = ?1 AND n.{} IS NULL",
        table.sql_name, table.sql_id, table.sql_sent_at
    ))?;
    Ok(unsent.exists([id])?)
}

/// Marks a row as sent, unless it is marked already. Says whether nothing is left to be marked: a trigger may keep a row as it is, or
/// take the mark back.
pub(super) fn mark_sent(
    tx: &Connection,
    table: &Table,
    id: &ItemId,
    is_repeat: bool,
    now_ms: i64,
) -> Result<bool> {
    let mut mark = tx.prepare_cached(&format!(
        "UPDATE {} AS n SET {sent} = {} WHERE {} = ?1 AND {sent} IS NULL",
        table.sql_name,
        table.sql_mark(is_repeat),
        table.sql_id,
        sent = table.sql_sent_at
    ))?;
    if table.sent_at_is_integer {
        mark.execute(params![id, now_ms.div_euclid(1000)])?;
    } else {
        mark.execute(params![id, text_time(now_ms)])?;
    }
    Ok(!is_unsent(tx, table, id)?)
}

/// Unsent rows that are neither dead nor parked.
pub(super) fn backlog(conn: &Connection, table: &Table) -> Result<u64> {
    let count: i64 = conn
        .prepare_cached(&format!(
            "SELECT count(*) FROM {} WHERE n.{} IS NULL AND NOT EXISTS
             (SELECT 1 FROM watchkeeper_delivery AS d WHERE d.source = ?1 AND d.item = +n.{}
              AND d.state IN ('dead', 'parked'))",
            table.sql_rows, table.sql_sent_at, table.sql_id
        ))?
        .query_row([&table.source], |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

/// Rows that are counted at a time.
const COUNTED: usize = 100_000;

/// The same of a portion of the rows, those behind one; and behind which row to go on, if there may be more.
pub(super) fn backlog_behind(
    conn: &Connection,
    table: &Table,
    behind: Option<&ItemId>,
) -> Result<(u64, Option<ItemId>)> {
    let id = &table.sql_id;
    let from = match behind {
        Some(_) => format!("n.{id} > ?2"),
        None => "?2 IS NULL".to_owned(),
    };
    let mut found = conn.prepare_cached(&format!(
        "SELECT n.{id}, NOT EXISTS (SELECT 1 FROM watchkeeper_delivery AS d WHERE d.source = ?1 AND d.item = +n.{id}
             AND d.state IN ('dead', 'parked'))
         FROM {} WHERE n.{} IS NULL AND typeof(n.{id}) IN ('integer', 'text') AND {from} ORDER BY n.{id} LIMIT {COUNTED}",
        table.sql_rows, table.sql_sent_at
    ))?;
    let mut found = found.query(params![table.source, behind])?;
    let (mut rows, mut open, mut last) = (0, 0, None);
    while let Some(row) = found.next()? {
        rows += 1;
        open += u64::from(row.get::<_, bool>(1)?);
        if rows == COUNTED {
            last = usable_id(row)?;
        }
    }
    Ok((open, last))
}

/// Unsent rows, whatever is known of them.
pub(super) fn unsent(conn: &Connection, table: &Table) -> Result<u64> {
    let count: i64 = conn.query_row(
        &format!(
            "SELECT count(*) FROM {} WHERE n.{} IS NULL",
            table.sql_rows, table.sql_sent_at
        ),
        [],
        |row| row.get(0),
    )?;
    Ok(count.unsigned_abs())
}

/// The id of a row as the database has it: a column of integers takes the text of one.
pub(super) fn id_of_row(conn: &Connection, table: &Table, id: &ItemId) -> Result<Option<ItemId>> {
    let mut found = conn.prepare_cached(&format!(
        "SELECT n.{id} FROM {} AS n WHERE n.{id} = ?1",
        table.sql_name,
        id = table.sql_id
    ))?;
    let mut found = found.query([id])?;
    match found.next()? {
        Some(row) => usable_id(row),
        None => Ok(None),
    }
}

/// Unsent rows with ids that no cell can hold.
pub(super) fn unusable_ids(conn: &Connection, table: &Table) -> Result<i64> {
    let usable = match table.layout {
        Layout::Range(_) => "('integer')",
        Layout::Hash(_) | Layout::Opaque(_) | Layout::Key(..) => "('integer', 'text')",
    };
    let count = conn
        .query_row(
            &format!(
                "SELECT count(*) FROM {} WHERE n.{} IS NULL AND typeof(n.{}) NOT IN {usable}",
                table.sql_rows, table.sql_sent_at, table.sql_id
            ),
            [],
            |row| row.get(0),
        )
        .optional()?;
    Ok(count.unwrap_or(0))
}

/// Rows from which an index matters.
const LARGE: i64 = 100_000;

/// Whether the table has so many rows, sent or not, that reading all of them takes long.
pub(super) fn is_large(conn: &Connection, table: &Table) -> Result<bool> {
    let counted = format!(
        "SELECT count(*) FROM (SELECT 1 FROM {} LIMIT ?1)",
        table.sql_name
    );
    let count: i64 = conn.query_row(&counted, [LARGE], |row| row.get(0))?;
    Ok(count == LARGE)
}

/// Whether the search for unsent rows goes by an index, and not through the rows that were sent.
pub(super) fn is_quickly_searched(conn: &Connection, table: &Table) -> Result<bool> {
    let sql = format!(
        "EXPLAIN QUERY PLAN SELECT n.{} FROM {} WHERE n.{} IS NULL",
        table.sql_id, table.sql_rows, table.sql_sent_at
    );
    let mut plan = conn.prepare(&sql)?;
    let plan = plan.query_map([], |row| row.get::<_, String>(3))?;
    let plan = plan.collect::<Result<Vec<_>, _>>()?;
    let mut partial = conn.prepare("SELECT name FROM pragma_index_list(?1) WHERE partial = 1")?;
    let partial = partial.query_map([&table.name], |row| row.get::<_, String>(0))?;
    let partial = partial.collect::<Result<Vec<_>, _>>()?;
    let by = |line: &str, index: &String| line.split_whitespace().any(|word| word == index);
    let through_all =
        |line: &&String| line.starts_with("SCAN ") && !partial.iter().any(|index| by(line, index));
    Ok(!plan.iter().any(|line| through_all(&line)))
}

/// Whether there is an index that begins with this column.
pub(super) fn has_index_of(conn: &Connection, table: &Table, column: &str) -> Result<bool> {
    let mut found = conn.prepare(
        "SELECT 1 FROM pragma_index_list(?1) AS i, pragma_index_info(i.name) AS c WHERE c.seqno = 0 AND c.name = ?2",
    )?;
    Ok(found.exists(params![table.name, column])?)
}

fn usable_id(row: &Row<'_>) -> Result<Option<ItemId>> {
    match row.get_ref(0)? {
        value @ (ValueRef::Integer(_) | ValueRef::Text(_)) => {
            // Text that is not UTF-8 cannot be named in an intent.
            Ok(ItemId::column_result(value).ok())
        }
        _ => Ok(None),
    }
}

/// A value as JSON; bytes as hexadecimal text.
fn json(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(n) => Value::from(n),
        ValueRef::Real(x) => Value::from(x),
        ValueRef::Text(text) => Value::from(String::from_utf8_lossy(text)),
        ValueRef::Blob(bytes) => hexadecimal(bytes),
    }
}

fn bytes_of(value: ValueRef<'_>) -> u64 {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len() as u64,
        _ => 8,
    }
}

impl ToSql for ItemId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        match self {
            Self::Int(id) => id.to_sql(),
            Self::Text(id) => id.to_sql(),
        }
    }
}

impl FromSql for ItemId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value {
            ValueRef::Integer(id) => Ok(Self::Int(id)),
            ValueRef::Text(_) => value.as_str().map(|id| Self::Text(id.to_owned())),
            _ => Err(FromSqlError::InvalidType),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        demo_table::SCHEMA,
        notifications::{
            params::NotificationsParams,
            source::sqlite::schema::{Wanted, inspect, make_side_tables},
        },
    };

    #[test]
    fn the_search_for_work_uses_the_partial_index_and_the_key_of_the_side_table() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(SCHEMA).unwrap();
        let params = NotificationsParams {
            table: "notifications".to_owned(),
            ..NotificationsParams::default()
        };
        let table = inspect(&db, &Wanted::new("x".into(), &params)).unwrap();
        make_side_tables(&db, &table).unwrap();
        let mut plan = db
            .prepare(&format!(
                "EXPLAIN QUERY PLAN SELECT DISTINCT n.id / 50 FROM notifications AS n WHERE {}",
                due_rows(&table)
            ))
            .unwrap();
        let plan: Vec<String> = plan
            .query_map(params!["notifications", 0], |row| row.get(3))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let plan = plan.join("\n");
        assert!(plan.contains("notifications_unsent"), "{plan}");
        assert!(
            plan.contains("SEARCH d USING PRIMARY KEY (source=? AND item=?)"),
            "{plan}"
        );
    }

    #[test]
    fn a_search_through_rows_that_were_sent_is_known() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(SCHEMA).unwrap();
        let mut params = NotificationsParams {
            table: "notifications".to_owned(),
            ..NotificationsParams::default()
        };
        for (filter, index) in [
            (
                None,
                "CREATE INDEX i ON notifications (id) WHERE sent_at IS NULL",
            ),
            (
                Some("recipient = 'a'"),
                "CREATE INDEX i ON notifications (sent_at)",
            ),
        ] {
            params.filter = filter.map(str::to_owned);
            let table = inspect(&db, &Wanted::new("x".into(), &params)).unwrap();
            assert!(is_quickly_searched(&db, &table).unwrap());
            db.execute_batch("DROP INDEX notifications_unsent").unwrap();
            assert!(!is_quickly_searched(&db, &table).unwrap());
            db.execute_batch(index).unwrap();
            assert!(is_quickly_searched(&db, &table).unwrap());
            db.execute_batch(&format!("DROP INDEX i; {SCHEMA}"))
                .unwrap();
            assert!(!is_large(&db, &table).unwrap());
        }
    }
}
