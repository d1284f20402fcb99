//! Whether the search for unsent rows goes by an index, as the server itself plans it.

use tokio_postgres::types::Type;

use super::{
    session::{STATEMENT, Session},
    table::{IdType, Ordered, Repeats, Table},
};
use crate::notifications::source::{Result, table::quoted};

/// Rows from which it matters.
const LARGE: f64 = 100_000.0;

/// The statements that make the indexes, where the table is large and searches would read rows that were sent. Fails where
/// the filter is none, whatever the size.
pub(super) async fn missing(session: &Session, table: &Table) -> Result<Option<String>> {
    let mut missing = Vec::new();
    if !is_quick(session, table).await? {
        missing.push(of_unsent(table));
    }
    if let Some(repeats) = &table.repeats
        && !begins_with(session, table, repeats.number).await?
    {
        missing.push(of_messages(table, repeats));
    }
    if let Some(order) = asked_by_recipient(table)
        && !begins_with(session, table, order.number).await?
    {
        missing.push(of_recipients(table, order));
    }
    if missing.is_empty() || rows(session, table).await? < LARGE {
        return Ok(None);
    }
    Ok(Some(missing.join("\n")))
}

/// The indexes, for those who make them before there is anything to search.
pub(super) fn ddl(table: &Table) -> String {
    let messages = table.repeats.iter();
    let messages = messages.map(|repeats| format!("\n{}", of_messages(table, repeats)));
    let recipients = asked_by_recipient(table).into_iter();
    let recipients = recipients.map(|order| format!("\n{}", of_recipients(table, order)));
    of_unsent(table) + &messages.chain(recipients).collect::<String>()
}

/// By what rows keep their order: each batch asks what else their recipients have. Where that is the message, its index will do.
fn asked_by_recipient(table: &Table) -> Option<&Ordered> {
    let by_message = table.repeats.as_ref().map(|repeats| repeats.number);
    let order = table.order.as_ref();
    order.filter(|order| by_message != Some(order.number))
}

/// By which it is known what a recipient waits for.
fn of_recipients(table: &Table, order: &Ordered) -> String {
    format!(
        "CREATE INDEX {}{} ON {} ({}) WHERE {} IS NULL;",
        concurrently(table),
        quoted(&format!("{}_recipients", short(&table.name))),
        table.sql_name,
        order.sql_column,
        table.sql_sent_at
    )
}

/// By which it is known what was sent.
fn of_messages(table: &Table, repeats: &Repeats) -> String {
    format!(
        "CREATE INDEX {}{} ON {} ({});",
        concurrently(table),
        quoted(&format!("{}_messages", short(&table.name))),
        table.sql_name,
        repeats.sql_column
    )
}

fn of_unsent(table: &Table) -> String {
    let filter = match &table.filter {
        None => String::new(),
        Some(filter) => format!(" AND (\n{filter}\n)"),
    };
    format!(
        "CREATE INDEX {}{} ON {} ({}) WHERE {} IS NULL{filter};",
        concurrently(table),
        quoted(&format!("{}_unsent", short(&table.name))),
        table.sql_name,
        table.sql_id,
        table.sql_sent_at
    )
}

/// Of a partitioned table an index cannot be made beside writers in one statement.
const fn concurrently(table: &Table) -> &'static str {
    match table.partitioned {
        true => "",
        false => "CONCURRENTLY ",
    }
}

/// Whether there is an index that begins with this column.
async fn begins_with(session: &Session, table: &Table, column: i16) -> Result<bool> {
    let found = session
        .value(
            "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_index AS i
             WHERE i.indrelid = $1::oid AND i.indisvalid AND i.indkey[0] = $2)",
            &[(&table.oid, Type::OID), (&column, Type::INT2)],
        )
        .await?;
    Ok(found.unwrap_or(false))
}

/// A name has 63 bytes at most.
fn short(name: &str) -> &str {
    let mut end = name.len().min(50);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// Rows of the table, as the server estimates them.
async fn rows(session: &Session, table: &Table) -> Result<f64> {
    let estimate: Option<Option<f64>> = session
        .value(
            "SELECT sum(CASE WHEN c.reltuples >= 0 THEN c.reltuples::float8
                    -- Never counted: so many rows of a hundred bytes.
                    ELSE pg_catalog.pg_relation_size(c.oid) / 100.0 END)
             FROM pg_catalog.pg_class AS c WHERE c.oid = $1::oid OR c.oid IN
             (SELECT relid FROM pg_catalog.pg_partition_tree($1::oid::regclass) WHERE isleaf)",
            &[(&table.oid, Type::OID)],
        )
        .await?;
    Ok(estimate.flatten().unwrap_or(0.0))
}

/// Whether the plan goes along an index that holds unsent rows alone, or finds them by it.
async fn is_quick(session: &Session, table: &Table) -> Result<bool> {
    let behind = match table.id {
        IdType::Int => "0",
        IdType::Uuid => "'00000000-0000-0000-0000-000000000000'",
        IdType::Text => "''",
    };
    session.begin_to_read(STATEMENT).await?;
    let plan = session
        .lines(&format!(
            "EXPLAIN (COSTS OFF) SELECT n.{id} FROM {} WHERE n.{sent} IS NULL AND n.{id} >= {behind} ORDER BY n.{id} LIMIT 1",
            table.sql_rows,
            id = table.sql_id,
            sent = table.sql_sent_at,
        ))
        .await?;
    session.commit().await?;
    let reads_sent_rows = |line: &String| {
        let unquoted = line.replace('"', "");
        let unsent = format!("{} IS NULL", table.sql_sent_at.replace('"', ""));
        line.contains("Seq Scan")
            || line.contains("Sort Key")
            || line.contains("Filter:") && unquoted.contains(&unsent)
    };
    Ok(!plan.iter().any(reads_sent_rows))
}
