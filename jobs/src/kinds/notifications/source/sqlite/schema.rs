//! What the user's table looks like, and the side tables beside it.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rusqlite::{
    Connection, OpenFlags, OptionalExtension,
    functions::{Context, FunctionFlags},
    params,
    types::ValueRef,
};
use serde_json::Value;

use crate::notifications::{
    cell::{Cell, Layout, digest_key},
    digest,
    order::Fair,
    params::{Behind, Dedupe, Digest, Lanes, NotificationsParams},
    source::{
        Item, Result, SourceError,
        table::{Payload, list, quoted, rows_of, source_name},
    },
    times::{self, Times},
};

/// The side tables. `item` has no declared type, so that ids keep theirs. The first index is for counting and listing,
/// which goes without it, too: a version that did not know of it may have made the tables.
pub(crate) const SIDE_TABLES: &str = "\
CREATE TABLE IF NOT EXISTS watchkeeper_delivery (
    source     TEXT NOT NULL,
    item       NOT NULL,
    state      TEXT NOT NULL CHECK (state IN ('retry', 'dead', 'in_doubt', 'parked')),
    attempts   INTEGER NOT NULL,
    not_before INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    token      INTEGER NOT NULL,
    batch      TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    recipient, -- of the row, where rows of one recipient keep their order
    digest     TEXT, -- the name of the message of several rows that may have been received with it
    PRIMARY KEY (source, item)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS watchkeeper_delivery_state ON watchkeeper_delivery (source, state, item);
CREATE INDEX IF NOT EXISTS watchkeeper_delivery_recipient ON watchkeeper_delivery (source, recipient)
    WHERE recipient IS NOT NULL;
CREATE TABLE IF NOT EXISTS watchkeeper_delivery_intent (
    source     TEXT NOT NULL,
    batch      TEXT NOT NULL,
    job        TEXT NOT NULL,
    token      INTEGER NOT NULL,
    items      TEXT NOT NULL,
    written_at TEXT NOT NULL,
    PRIMARY KEY (source, batch)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS watchkeeper_delivery_source (
    source  TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    name    TEXT NOT NULL,
    layout  TEXT NOT NULL,
    doubted INTEGER NOT NULL
) WITHOUT ROWID;
";

/// What is asked for; names as configured.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    pub(super) path: PathBuf,
    table: String,
    id: String,
    sent_at: String,
    payload: Option<String>,
    filter: Option<String>,
    send_after: Option<String>,
    lanes: Option<Lanes>,
    dedupe: Option<Dedupe>,
    digest: Option<Digest>,
    times: Times,
    in_texts: usize,
    create: bool,
    /// Columns for the sink, each with the key that names it.
    for_sink: Vec<(&'static str, String)>,
    /// Those of them that are not sent.
    hidden: Vec<String>,
    /// Whether what would be sent of a row as it is has to be read.
    needs_payload: bool,
    batch_size: u32,
    buckets: u32,
}

/// A table that was found fit; names as the database has them, those for SQL quoted.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// Name of this delivery in side tables, batches and keys.
    pub(super) source: String,
    pub(super) name: String,
    pub(super) sql_name: String,
    /// The rows that are ours to send now, as `n`: for the search alone. What is known of a row is asked of the table.
    pub(super) sql_rows: String,
    pub(super) sql_id: String,
    pub(super) sql_sent_at: String,
    pub(super) filter: Option<String>,
    /// What is sent of a row.
    pub(super) payload: Payload,
    /// Rows of one recipient keep their order.
    pub(super) order: Option<Ordered>,
    /// Which rows are one message.
    pub(super) repeats: Option<Repeats>,
    /// Rows of one recipient go as one message.
    pub(super) digest: Option<Collected>,
    /// Columns for the sink: as it names them, and as they are called.
    pub(super) for_sink: Vec<(String, String)>,
    /// The division into cells that the parameters ask for.
    pub(super) layout: Layout,
    /// Rows of one batch at most.
    pub(super) batch_size: u32,
    /// `sent_at` holds integers: Unix seconds.
    pub(super) sent_at_is_integer: bool,
    /// The database, for those who read of it.
    database: String,
    /// The side tables are ours to make.
    create: bool,
}

/// Which rows are one message.
#[derive(Clone, Debug)]
pub(super) struct Repeats {
    pub(super) dedupe: Dedupe,
    /// The column, as it is called.
    pub(super) column: String,
    sql: String,
    sql_mark: String,
}

/// Rows of one recipient that go as one message.
#[derive(Clone, Debug)]
pub(super) struct Collected {
    pub(super) digest: Digest,
    times: Times,
    /// How often the texts of a message hold its rows.
    in_texts: usize,
    /// Whether a row's time is before one, and whether it has none; of a row `m`.
    sql_is_old: String,
}

/// By what rows keep their order.
#[derive(Clone, Debug)]
pub(super) struct Ordered {
    /// The column, as the parameters name it, and as it is called.
    named: String,
    pub(super) column: String,
    pub(super) sql_column: String,
    /// The rows that are ours, as `m`.
    sql_rows: String,
    behind: Behind,
}

impl Collected {
    /// Picks whole messages for a batch.
    pub(super) fn fair(&self, batch_size: u32) -> Fair {
        let size = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
        Fair::whole(
            size(self.digest.recipients(batch_size)),
            size(self.digest.at_most),
        )
    }
}

impl Table {
    /// By what rows keep their order, and in how many buckets, if this layout goes by that.
    pub(super) fn ordered_in(&self, layout: Layout) -> Option<(&Ordered, u32)> {
        let order = self.order.as_ref()?;
        Some((order, layout.buckets_by(&order.column)?))
    }

    /// Condition on a row `n`: its recipient gets a message now, because the oldest row of it is old enough, there are enough of
    /// them, or this one has waited already. ?1 is the source, ?2 now.
    pub(super) fn sql_is_collected(&self) -> String {
        let (Some(collected), Some(order)) = (&self.digest, &self.order) else {
            return String::new();
        };
        let (id, column) = (&self.sql_id, &order.sql_column);
        let every = collected.digest.every.0.as_millis();
        let is_old = collected
            .sql_is_old
            .replace("{until}", &format!("(?2 - {every})"));
        let waiting = format!(
            "SELECT 1 FROM {rows} WHERE m.{column} = n.{column} AND m.{sent} IS NULL AND NOT EXISTS
             (SELECT 1 FROM watchkeeper_delivery AS e WHERE e.source = ?1 AND e.item = +m.{id} AND e.state IN ('dead', 'parked'))",
            rows = order.sql_rows,
            sent = self.sql_sent_at,
        );
        let most = collected.digest.at_most;
        format!(
            " AND (n.{column} IS NULL
                OR EXISTS (SELECT 1 FROM watchkeeper_delivery AS e WHERE e.source = ?1 AND e.item = +n.{id})
                OR EXISTS ({waiting} AND {is_old})
                OR (SELECT count(*) FROM ({waiting} LIMIT {most})) = {most})"
        )
    }

    /// Whether an item of the side table has to wait: for its time, or for a replica that makes messages of several rows, as it may have
    /// been received in one. ?2 is now.
    pub(super) fn sql_waits(&self, item: &str) -> String {
        match self.digest {
            Some(_) => format!("{item}.not_before > ?2"),
            None => format!("({item}.not_before > ?2 OR {item}.digest IS NOT NULL)"),
        }
    }

    /// Condition on a row `n`: no earlier one of its recipient has to wait. ?1 is the source, ?2 now.
    pub(super) fn sql_is_next(&self) -> String {
        let Some(order) = &self.order else {
            return String::new();
        };
        let (id, sent_at, column) = (&self.sql_id, &self.sql_sent_at, &order.sql_column);
        let states = order.behind.sql_states();
        // The sign takes the column's affinity away, as elsewhere; `CROSS` keeps the order of the tables.
        format!(
            " AND NOT EXISTS (SELECT 1 FROM watchkeeper_delivery AS e CROSS JOIN {rows} ON m.{id} = e.item
             WHERE e.source = ?1 AND e.recipient = +n.{column} AND m.{column} = n.{column}
             AND (e.state IN ('retry', 'in_doubt') AND {waits} OR e.state IN ({states}))
             AND m.{sent_at} IS NULL AND m.{id} < n.{id})",
            waits = self.sql_waits("e"),
            rows = order.sql_rows,
        )
    }

    /// Whether what is dead keeps back those behind it.
    pub(super) fn keeps_back_what_is_dead(&self) -> bool {
        let held = |order: &Ordered| order.behind == Behind::Held;
        self.order.as_ref().is_some_and(held)
    }

    /// Whether the message of a row `n` was sent already, lately enough. ?3 is the time from which on that counts, in Unix
    /// milliseconds.
    pub(super) fn sql_is_repeat(&self) -> &str {
        self.repeats.as_ref().map_or("0", |repeats| &repeats.sql)
    }

    /// What marks a row `n`, with ?2 for now. One that is a message which was sent is marked with the time at which that was: the window
    /// does not move on with each repeat.
    pub(super) fn sql_mark(&self, is_repeat: bool) -> &str {
        match &self.repeats {
            Some(repeats) if is_repeat => &repeats.sql_mark,
            _ => "?2",
        }
    }

    /// The recipient of the row with the id at this place, for the side table.
    pub(super) fn sql_recipient(&self, id: &str) -> String {
        match &self.order {
            None => "NULL".to_owned(),
            Some(order) => format!(
                "(SELECT r.{} FROM {} AS r WHERE r.{} = {id})",
                order.sql_column, self.sql_name, self.sql_id
            ),
        }
    }

    /// What is sent of these rows of a batch.
    pub(super) fn folded(&self, items: Vec<Item>, database: &str, now_ms: i64) -> Vec<Item> {
        let (Some(collected), Some(order)) = (&self.digest, &self.order) else {
            return items;
        };
        let now = Timestamp::from_millisecond(now_ms).unwrap_or(Timestamp::UNIX_EPOCH);
        let is_kept = |item: &Item| collected.times.keep(&item.columns, now).is_some();
        let key = |name: &str| digest_key(database, &self.source, name);
        digest::fold(items, &order.named, is_kept, collected.in_texts, key)
    }

    /// The name of the batch of a cell.
    pub(super) fn batch(&self, layout: Layout, number: i64) -> String {
        let cell = Cell {
            source: self.source.clone(),
            layout,
            number,
        };
        cell.to_string()
    }
}

struct Column {
    name: String,
    declared: String,
    key: bool,
}

impl Wanted {
    pub(super) fn new(path: PathBuf, params: &NotificationsParams) -> Self {
        Self {
            path,
            table: params.table.clone(),
            id: params.columns.id.clone(),
            sent_at: params.columns.sent_at.clone(),
            payload: params.columns.payload.clone(),
            filter: params.filter().map(str::to_owned),
            send_after: params.columns.send_after.clone(),
            lanes: params.lanes(),
            dedupe: params.dedupe.clone(),
            digest: params.digest.clone(),
            times: Times::new(&params.columns),
            in_texts: params.items_in_texts(),
            create: params.side_tables.create,
            for_sink: params.columns_read(),
            hidden: params.columns_hidden(),
            needs_payload: params.needs_payload(),
            batch_size: params.batch_size.max(1),
            buckets: params.buckets.max(1),
        }
    }
}

/// Opens a database that exists; other programs may be writing to it.
pub(super) fn open(path: &Path) -> Result<Connection> {
    if !path.is_file() {
        return Err(SourceError::NoDatabase(path.to_owned()));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(std::time::Duration::from_secs(5))?;
    // An intent that a power cut can take back would turn doubts into silent repeats.
    db.pragma_update(None, "synchronous", "full")?;
    let flags = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    db.create_scalar_function(TIME, 1, flags, time_of)?;
    Ok(db)
}

/// Makes the side tables where they are missing and ours to make.
pub(super) fn make_side_tables(db: &Connection, table: &Table) -> Result<()> {
    let indexed = db
        .prepare("SELECT 1 FROM sqlite_schema WHERE type = 'index' AND name = 'watchkeeper_delivery_state'")?
        .exists([])?;
    may_be_made(db, table)?;
    let served = is_served(db)?;
    if table.create && !(indexed && served) {
        db.execute_batch(&format!("BEGIN IMMEDIATE;\n{SIDE_TABLES}COMMIT;"))?;
    }
    Ok(())
}

/// Refuses where the side tables are missing and not ours to make.
pub(super) fn may_be_made(db: &Connection, table: &Table) -> Result<()> {
    if table.create || is_served(db)? {
        return Ok(());
    }
    Err(SourceError::NoSideTables {
        place: table.database.clone(),
        why: ", and `side_tables.create` is false".to_owned(),
    })
}

/// Whether the side tables are there.
pub(super) fn is_served(db: &Connection) -> Result<bool> {
    let there: i64 = db.query_row(
        "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN
         ('watchkeeper_delivery', 'watchkeeper_delivery_intent', 'watchkeeper_delivery_source')",
        [],
        |row| row.get(0),
    )?;
    Ok(there == 3)
}

/// The function that reads times as rows are judged by them: SQLite itself reads fewer ways of writing one.
const TIME: &str = "watchkeeper_time";

/// Unix milliseconds of a value, null for what is no time.
fn time_of(call: &Context<'_>) -> rusqlite::Result<Option<i64>> {
    let value = match call.get_raw(0) {
        ValueRef::Integer(seconds) => Value::from(seconds),
        ValueRef::Text(text) => Value::from(String::from_utf8_lossy(text)),
        ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => Value::Null,
    };
    // A part of a millisecond counts as a whole one: no row is found before its time.
    Ok(
        times::time(&value).map(|time| match time.subsec_nanosecond() % 1_000_000 {
            1.. => time.as_millisecond().saturating_add(1),
            _ => time.as_millisecond(),
        }),
    )
}

/// Whether a row is due. What is no time at all counts as due, so that it is found: it is dead then.
fn is_due(column: &str) -> String {
    format!(
        "({column} IS NULL OR CASE typeof({column}) WHEN 'integer' THEN {column} <= unixepoch()
          ELSE coalesce({TIME}({column}), 0) <= unixepoch() * 1000 END)"
    )
}

/// Finds the table and its columns, or says what is there instead.
pub(super) fn inspect(db: &Connection, wanted: &Wanted) -> Result<Table> {
    let name = find_table(db, wanted)?;
    let columns = columns(db, &name)?;
    let find = |key, column: &str| find_column(&columns, &name, key, column);
    let (id, sent_at) = (
        find("columns.id", &wanted.id)?,
        find("columns.sent_at", &wanted.sent_at)?,
    );
    if !is_unique(db, &name, id, &columns)? {
        return Err(SourceError::Unfit {
            why: format!(
                "column `{}` is neither its primary key nor unique, so two rows could be one notification; \
                 add a unique index or name another column as `columns.id`",
                id.name
            ),
            table: name,
        });
    }
    if keeps_types(id) {
        return Err(SourceError::Unfit {
            why: format!(
                "column `{}` has no type of its own, so the number 1 and the text '1' could be two rows with one idempotency \
                 key; give it INTEGER or TEXT, or name another column as `columns.id`",
                id.name
            ),
            table: name,
        });
    }
    let due = match &wanted.send_after {
        Some(column) => Some(is_due(&quoted(&find("columns.send_after", column)?.name))),
        None => None,
    };
    let filter = wanted.filter.as_deref();
    let order = match &wanted.lanes {
        None => None,
        Some(lanes) => {
            let column = &find(lanes.key, &lanes.column)?.name;
            Some(Ordered {
                named: lanes.column.clone(),
                column: column.clone(),
                sql_column: quoted(column),
                sql_rows: rows_of(&quoted(&name), filter, due.as_deref(), "m"),
                behind: lanes.behind,
            })
        }
    };
    let repeats = match &wanted.dedupe {
        None => None,
        Some(dedupe) => {
            let column = find("dedupe.column", &dedupe.column)?.name.clone();
            let rows = rows_of(&quoted(&name), filter, None, "s");
            let same = format!("s.{0} = n.{0}", quoted(&column));
            let recipient = order.as_ref().filter(|order| order.column != column);
            let recipient = recipient.map_or(String::new(), |order| {
                format!(" AND s.{0} = n.{0}", order.sql_column)
            });
            let (id, sent) = (quoted(&id.name), format!("s.{}", quoted(&sent_at.name)));
            let lately = match holds_integers(sent_at) {
                true => format!("{sent} >= ?3 / 1000"),
                false => format!("julianday({sent}) >= julianday(?3 / 1000.0, 'unixepoch')"),
            };
            let others = format!("FROM {rows} WHERE {same}{recipient} AND s.{id} <> n.{id}");
            Some(Repeats {
                sql: format!("EXISTS (SELECT 1 {others} AND {lately})"),
                sql_mark: format!("coalesce((SELECT max({sent}) {others}), ?2)"),
                dedupe: dedupe.clone(),
                column,
            })
        }
    };
    let digest = match &wanted.digest {
        None => None,
        Some(digest) => {
            let since = find("digest.since", &digest.since)?;
            let column = format!("m.{}", quoted(&since.name));
            Some(Collected {
                digest: digest.clone(),
                times: wanted.times.clone(),
                in_texts: wanted.in_texts,
                sql_is_old: format!(
                    "({column} IS NULL OR CASE typeof({column}) WHEN 'integer' THEN {column} <= {{until}} / 1000
                      ELSE coalesce(julianday({column}), 0) <= julianday({{until}} / 1000.0, 'unixepoch') END)"
                ),
            })
        }
    };
    let mut for_sink = Vec::new();
    for (key, column) in &wanted.for_sink {
        for_sink.push((column.clone(), find(key, column)?.name.clone()));
    }
    let payload = match &wanted.payload {
        _ if !wanted.needs_payload => Payload::Fields(Vec::new()),
        Some(column) => Payload::Column(find("columns.payload", column)?.name.clone()),
        None => {
            let hidden = |name: &str| wanted.hidden.iter().any(|h| h.eq_ignore_ascii_case(name));
            let others = columns
                .iter()
                .filter(|c| c.name != id.name && c.name != sent_at.name && !hidden(&c.name));
            Payload::Fields(others.map(|c| c.name.clone()).collect())
        }
    };
    Ok(Table {
        // Two jobs that mark different columns of one table are two deliveries with keys of their own.
        source: source_name(
            match sent_at.name.eq_ignore_ascii_case("sent_at") {
                true => name.clone(),
                false => format!("{name}.{}", sent_at.name),
            },
            filter,
        ),
        sql_name: quoted(&name),
        sql_rows: rows_of(&quoted(&name), filter, due.as_deref(), "n"),
        filter: wanted.filter.clone(),
        database: wanted.path.display().to_string(),
        create: wanted.create,
        sql_id: quoted(&id.name),
        sql_sent_at: quoted(&sent_at.name),
        payload,
        for_sink,
        layout: match &order {
            Some(order) => Layout::by_column(&order.column, wanted.buckets),
            None if holds_integers(id) => Layout::Range(wanted.batch_size),
            None => Layout::Hash(wanted.buckets),
        },
        order,
        repeats,
        digest,
        batch_size: wanted.batch_size,
        sent_at_is_integer: holds_integers(sent_at),
        name,
    })
}

fn find_table(db: &Connection, wanted: &Wanted) -> Result<String> {
    let found: Option<(String, String)> = db
        .query_row(
            "SELECT name, type FROM sqlite_schema
             WHERE type IN ('table', 'view') AND name = ?1 COLLATE NOCASE",
            [&wanted.table],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    match found {
        Some((name, kind)) if kind == "table" => Ok(name),
        Some((table, _)) => Err(SourceError::Unfit {
            table,
            why: "it is a view; name the table behind it".to_owned(),
        }),
        None => {
            let mut names = db.prepare(
                "SELECT name FROM sqlite_schema WHERE type = 'table'
                 AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
                 AND name NOT LIKE 'watchkeeper\\_%' ESCAPE '\\' ORDER BY name LIMIT 20",
            )?;
            let names = names.query_map([], |row| row.get(0))?;
            Err(SourceError::NoTable {
                database: wanted.path.display().to_string(),
                table: wanted.table.clone(),
                found: list(&names.collect::<Result<Vec<String>, _>>()?),
            })
        }
    }
}

fn columns(db: &Connection, table: &str) -> Result<Vec<Column>> {
    let mut rows = db.prepare("SELECT name, type, pk FROM pragma_table_info(?1)")?;
    let rows = rows.query_map([table], |row| {
        Ok(Column {
            name: row.get(0)?,
            declared: row.get::<_, String>(1)?.to_ascii_uppercase(),
            key: row.get::<_, i64>(2)? > 0,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn find_column<'c>(
    columns: &'c [Column],
    table: &str,
    key: &'static str,
    name: &str,
) -> Result<&'c Column> {
    let found = columns.iter().find(|c| c.name.eq_ignore_ascii_case(name));
    found.ok_or_else(|| SourceError::NoColumn {
        key,
        table: table.to_owned(),
        column: name.to_owned(),
        found: list(&columns.iter().map(|c| c.name.clone()).collect::<Vec<_>>()),
    })
}

fn is_unique(db: &Connection, table: &str, id: &Column, columns: &[Column]) -> Result<bool> {
    let keys = columns.iter().filter(|c| c.key).count();
    if id.key && keys == 1 {
        return Ok(true);
    }
    let indexed: i64 = db.query_row(
        "SELECT count(*) FROM pragma_index_list(?1) AS i
         WHERE i.\"unique\" = 1 AND i.partial = 0
         AND (SELECT group_concat(c.name, char(0)) FROM pragma_index_info(i.name) AS c) = ?2",
        params![table, id.name],
        |row| row.get(0),
    )?;
    Ok(indexed > 0)
}

/// Whether the id is SQLite's own number of the row, which it gives anew once the last rows were deleted.
pub(super) fn ids_come_back(db: &Connection, table: &Table) -> Result<bool> {
    let there = db
        .prepare(
            "SELECT 1 FROM sqlite_schema AS s JOIN pragma_table_info(s.name) AS c
             WHERE s.type = 'table' AND s.name = ?1 AND '\"' || replace(c.name, '\"', '\"\"') || '\"' = ?2
             AND c.pk = 1 AND upper(c.type) = 'INTEGER' AND NOT EXISTS (SELECT 1 FROM pragma_table_info(s.name) WHERE pk > 1)
             AND s.sql NOT LIKE '%AUTOINCREMENT%' AND s.sql NOT LIKE '%WITHOUT ROWID%'",
        )?
        .exists(params![table.name, table.sql_id])?;
    Ok(there)
}

/// SQLite's own rule for a column of integers.
fn holds_integers(column: &Column) -> bool {
    column.declared.contains("INT")
}

/// A column in which numbers stay numbers and texts stay texts, whatever they look like: SQLite's affinity BLOB, and ANY of
/// strict tables.
fn keeps_types(column: &Column) -> bool {
    let has = |word: &&str| column.declared.contains(*word);
    let is_blob = column.declared.is_empty() || column.declared.contains("BLOB");
    column.declared == "ANY" || is_blob && !["INT", "CHAR", "CLOB", "TEXT"].iter().any(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inspect_as(schema: &str, table: &str, id: &str) -> Result<Table, String> {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(schema).unwrap();
        let mut params = NotificationsParams {
            table: table.to_owned(),
            ..NotificationsParams::default()
        };
        params.columns.id = id.to_owned();
        inspect(&db, &Wanted::new("app.db".into(), &params)).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_missing_is_named_beside_what_is_there() {
        let schema = "CREATE TABLE mails (id INTEGER PRIMARY KEY, sent_at TEXT)";
        let error = inspect_as(schema, "mail", "id").unwrap_err();
        assert_eq!(error, "no table `mail` in app.db; there are: mails");
        let error = inspect_as(schema, "mails", "key").unwrap_err();
        assert_eq!(
            error,
            "no column `key` in table `mails`; there are: id, sent_at"
        );
    }

    #[test]
    fn a_column_that_could_hold_one_id_twice_is_refused() {
        let of = |kind: &str| {
            let schema = format!("CREATE TABLE m (id {kind} UNIQUE, sent_at TEXT)");
            inspect_as(&schema, "m", "id")
        };
        for kind in ["", "BLOB", "ANY"] {
            let error = of(kind).err().unwrap();
            assert!(error.contains("has no type of its own"), "{kind}: {error}");
        }
        for kind in ["INTEGER", "VARCHAR(9)", "TEXT", "UUID", "BIGINT"] {
            assert!(of(kind).is_ok(), "{kind}");
        }
    }

    #[test]
    fn ids_must_be_unique() {
        let schema = "CREATE TABLE m (id INTEGER, sent_at TEXT)";
        assert!(
            inspect_as(schema, "m", "id")
                .unwrap_err()
                .contains("unique")
        );
        let partial = format!("{schema}; CREATE UNIQUE INDEX i ON m (id) WHERE sent_at IS NULL");
        assert!(inspect_as(&partial, "m", "id").is_err());
        let pair = "CREATE TABLE m (id INTEGER, n INTEGER, sent_at TEXT, PRIMARY KEY (id, n))";
        assert!(inspect_as(pair, "m", "id").is_err());
        let indexed = format!("{schema}; CREATE UNIQUE INDEX i ON m (id)");
        assert!(inspect_as(&indexed, "m", "id").is_ok());
    }

    #[test]
    fn ids_that_come_back_are_known() {
        for (table, expected) in [
            ("m (\"I\"\"d\" INTEGER PRIMARY KEY, sent_at TEXT)", true),
            (
                "m (\"I\"\"d\" integer PRIMARY KEY AUTOINCREMENT, sent_at TEXT)",
                false,
            ),
            ("m (\"I\"\"d\" BIGINT PRIMARY KEY, sent_at TEXT)", false),
            (
                "m (\"I\"\"d\" INTEGER PRIMARY KEY, sent_at TEXT) WITHOUT ROWID",
                false,
            ),
            (
                "m (\"I\"\"d\" INTEGER UNIQUE, n INTEGER PRIMARY KEY, sent_at TEXT)",
                false,
            ),
        ] {
            let db = Connection::open_in_memory().unwrap();
            db.execute_batch(&format!("CREATE TABLE {table}")).unwrap();
            let mut params = NotificationsParams {
                table: "m".to_owned(),
                ..NotificationsParams::default()
            };
            params.columns.id = "i\"d".to_owned();
            let found = inspect(&db, &Wanted::new("app.db".into(), &params)).unwrap();
            assert_eq!(ids_come_back(&db, &found).unwrap(), expected, "{table}");
        }
    }

    #[test]
    fn a_view_cannot_be_marked() {
        let schema = "CREATE TABLE m (id INTEGER PRIMARY KEY, sent_at TEXT); CREATE VIEW v AS SELECT * FROM m";
        assert!(inspect_as(schema, "v", "id").unwrap_err().contains("view"));
    }

    #[test]
    fn text_ids_go_into_buckets_and_names_are_those_of_the_database() {
        let schema = "CREATE TABLE Mails (Uid TEXT PRIMARY KEY, body TEXT, sent_at INTEGER)";
        let table = inspect_as(schema, "mails", "uid").unwrap();
        assert_eq!(
            (table.source.as_str(), table.layout),
            ("Mails", Layout::Hash(64))
        );
        assert!(table.sent_at_is_integer);
        assert!(matches!(table.payload, Payload::Fields(f) if f == ["body"]));
    }
}
