//! What the user's table looks like, and how it is named in SQL.

use jiff::Timestamp;
use tokio_postgres::{
    Row,
    types::{ToSql, Type},
};

use super::session::{Session, get};
use crate::notifications::{
    cell::{Cell, ItemId, Layout, digest_key, idempotency_key},
    digest,
    params::{Behind, Dedupe, Digest, Lanes, NotificationsParams},
    source::{
        Item, Result, SourceError,
        table::{Payload, list, quoted, rows_of, source_name},
    },
    times::Times,
};

/// What is asked for; names as configured.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    schema: Option<String>,
    table: String,
    id: String,
    sent_at: String,
    payload: Option<String>,
    /// Columns for the sink, each with the key that names it.
    for_sink: Vec<(&'static str, String)>,
    /// Those of them that are not sent.
    hidden: Vec<String>,
    /// Whether what would be sent of a row as it is has to be read.
    needs_payload: bool,
    /// The column for the sink that is sent as it stands there.
    whole: Option<String>,
    filter: Option<String>,
    send_after: Option<String>,
    lanes: Option<Lanes>,
    dedupe: Option<Dedupe>,
    digest: Option<Digest>,
    times: Times,
    in_texts: usize,
    side_schema: Option<String>,
    /// The side tables are ours to make.
    pub(super) create: bool,
    /// The channel on which others announce rows.
    pub(super) listen: Option<String>,
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
    pub(super) id: IdType,
    /// The id may be null.
    pub(super) id_may_be_null: bool,
    /// Rows of one recipient keep their order.
    pub(super) order: Option<Ordered>,
    /// Which rows are one message.
    pub(super) repeats: Option<Repeats>,
    /// Rows of one recipient go as one message.
    pub(super) digest: Option<Collected>,
    /// The value of `sent_at` at `$1`, Unix milliseconds.
    sql_sent_value: String,
    /// What is sent of a row.
    pub(super) payload: Payload,
    /// Columns for the sink, as it names them.
    pub(super) for_sink: Vec<String>,
    /// Each column of the payload of a row `n`, then each for the sink, as the text of its JSON.
    pub(super) sql_values: Vec<String>,
    /// Bytes of all of them.
    pub(super) sql_size: String,
    /// The division into cells that the parameters ask for.
    pub(super) layout: Layout,
    /// Rows of one batch at most.
    pub(super) batch_size: u32,
    /// The schema of the side tables, as it is called, and the tables.
    pub(super) side_schema: String,
    pub(super) delivery: String,
    pub(super) intent: String,
    pub(super) sources: String,
    /// The side tables are ours to make.
    pub(super) create: bool,
    /// Partitioned: some statements about indexes have another form.
    pub(super) partitioned: bool,
    pub(super) oid: u32,
}

/// Which rows are one message.
#[derive(Clone, Debug)]
pub(super) struct Repeats {
    /// The column, and what SQL calls it.
    pub(super) number: i16,
    pub(super) sql_column: String,
    sql: String,
    sql_sent_value: String,
}

/// Rows of one recipient that go as one message.
#[derive(Clone, Debug)]
pub(super) struct Collected {
    pub(super) digest: Digest,
    times: Times,
    /// How often the texts of a message hold its rows.
    in_texts: usize,
    /// Whether a row `m` is old enough. `$2` is now.
    sql_is_old: String,
}

/// By what rows keep their order.
#[derive(Clone, Debug)]
pub(super) struct Ordered {
    /// The column, as the parameters name it, and as it is called.
    named: String,
    column: String,
    pub(super) number: i16,
    pub(super) sql_column: String,
    /// The rows that are ours, as `m`.
    sql_rows: String,
    behind: Behind,
}

/// What ids are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdType {
    Int,
    Uuid,
    Text,
}

struct Column {
    number: i16,
    name: String,
    /// Of the type below all domains.
    kind: String,
    /// Characters that it takes, where that is said.
    most: Option<i32>,
    not_null: bool,
    readable: bool,
    writable: bool,
}

/// Characters of a time that is written as text.
const TIME_AS_TEXT: i32 = 24;

// === impl Wanted ===

impl Wanted {
    pub(super) fn new(params: &NotificationsParams) -> Self {
        let (schema, table) = match params.table.split_once('.') {
            Some((schema, table)) => (Some(schema.to_owned()), table.to_owned()),
            None => (None, params.table.clone()),
        };
        Self {
            schema,
            table,
            id: params.columns.id.clone(),
            sent_at: params.columns.sent_at.clone(),
            payload: params.columns.payload.clone(),
            for_sink: params.columns_read(),
            hidden: params.columns_hidden(),
            needs_payload: params.needs_payload(),
            whole: params.whole_column(),
            filter: params.filter().map(str::to_owned),
            send_after: params.columns.send_after.clone(),
            lanes: params.lanes(),
            dedupe: params.dedupe.clone(),
            digest: params.digest.clone(),
            times: Times::new(&params.columns),
            in_texts: params.items_in_texts(),
            side_schema: params.side_tables.schema.clone(),
            create: params.side_tables.create,
            listen: params.listen.clone(),
            batch_size: params.batch_size.max(1),
            buckets: params.buckets.max(1),
        }
    }
}

/// Finds the table and its columns, or says what is there instead.
pub(super) async fn inspect(session: &Session, wanted: &Wanted) -> Result<Table> {
    let (oid, schema, name, kind) = find_table(session, wanted).await?;
    let shown = format!("{schema}.{name}");
    let unfit = |why: String| SourceError::Unfit {
        table: shown.clone(),
        why,
    };
    if kind != "r" && kind != "p" {
        let why = "it is a view or a foreign table; name the table behind it";
        return Err(unfit(why.to_owned()));
    }
    let columns = columns(session, oid).await?;
    let find = |key, column: &str| find_column(&columns, &shown, key, column);
    let (id, sent_at) = (
        find("columns.id", &wanted.id)?,
        find("columns.sent_at", &wanted.sent_at)?,
    );
    let id_type = IdType::of(&id.kind).ok_or_else(|| {
        unfit(format!(
            "column `{}` (`columns.id`) is of the type {}; ids are smallint, integer, bigint, uuid, text or varchar",
            id.name, id.kind
        ))
    })?;
    if let Some(most) = sent_at.most
        && most < TIME_AS_TEXT
    {
        return Err(unfit(format!(
            "column `{}` (`columns.sent_at`) takes {most} characters, and a time has {TIME_AS_TEXT}",
            sent_at.name
        )));
    }
    let sent_value = time_value(&sent_at.kind, "$1").ok_or_else(|| {
        unfit(format!(
            "column `{}` (`columns.sent_at`) is of the type {}; it must be a time, a date, text, or an integer for Unix seconds",
            sent_at.name, sent_at.kind
        ))
    })?;
    if sent_at.not_null {
        let why = format!(
            "column `{}` (`columns.sent_at`) must be able to be null: that is what tells unsent rows",
            sent_at.name
        );
        return Err(unfit(why));
    }
    if !is_unique(session, oid, id.number).await? {
        return Err(unfit(format!(
            "column `{}` is neither its primary key nor unique, so two rows could be one notification; \
             add a unique index or name another column as `columns.id`",
            id.name
        )));
    }
    let mut due = None;
    if let Some(column) = &wanted.send_after {
        let column = find("columns.send_after", column)?;
        due = Some(is_due(&quoted(&column.name), &column.kind).ok_or_else(|| {
            unfit(format!(
                "column `{}` (`columns.send_after`) is of the type {}; it must be a time, a date, or an integer for Unix seconds",
                column.name, column.kind
            ))
        })?);
    }
    let filter = wanted.filter.as_deref();
    let order = match &wanted.lanes {
        None => None,
        Some(lanes) => {
            let named = lanes.column.clone();
            let found = find(lanes.key, &lanes.column)?;
            let column = &found.name;
            Some(Ordered {
                named,
                column: column.clone(),
                number: found.number,
                sql_column: quoted(column),
                sql_rows: rows_of(&qualified(&schema, &name), filter, due.as_deref(), "m"),
                behind: lanes.behind,
            })
        }
    };
    let repeats = match &wanted.dedupe {
        None => None,
        Some(dedupe) => {
            let column = find("dedupe.column", &dedupe.column)?;
            let rows = rows_of(&qualified(&schema, &name), filter, None, "s");
            let same = format!("s.{0} = n.{0}", quoted(&column.name));
            let recipient = order.as_ref().filter(|order| order.column != column.name);
            let recipient = recipient.map_or(String::new(), |order| {
                format!(" AND s.{0}::text = n.{0}::text", order.sql_column)
            });
            let since = format!("($2::bigint - {})", dedupe.within.0.as_millis());
            let since = time_value(&sent_at.kind, &since).unwrap_or_default();
            let (id, sent) = (quoted(&id.name), quoted(&sent_at.name));
            let others = format!("FROM {rows} WHERE {same}{recipient} AND s.{id} <> n.{id}");
            Some(Repeats {
                sql: format!("EXISTS (SELECT 1 {others} AND s.{sent} >= {since})"),
                sql_sent_value: format!("coalesce((SELECT max(s.{sent}) {others}), {sent_value})"),
                number: column.number,
                sql_column: quoted(&column.name),
            })
        }
    };
    let digest = match &wanted.digest {
        None => None,
        Some(digest) => {
            let since = find("digest.since", &digest.since)?;
            let until = format!("($2::bigint - {})", digest.every.0.as_millis());
            let until = time_value(&since.kind, &until).ok_or_else(|| {
                unfit(format!(
                    "column `{}` (`digest.since`) is of the type {}; it must be a time, a date, text, or an integer for Unix seconds",
                    since.name, since.kind
                ))
            })?;
            Some(Collected {
                digest: digest.clone(),
                times: wanted.times.clone(),
                in_texts: wanted.in_texts,
                sql_is_old: format!("(m.{0} IS NULL OR m.{0} <= {until})", quoted(&since.name)),
            })
        }
    };
    let mut for_sink = Vec::new();
    for (key, column) in &wanted.for_sink {
        for_sink.push((column.clone(), find(key, column)?));
    }
    let sent: Vec<&Column> = match &wanted.payload {
        _ if !wanted.needs_payload => Vec::new(),
        Some(column) => vec![find("columns.payload", column)?],
        None => {
            let mut others = vec![id.number, sent_at.number];
            for column in &wanted.hidden {
                others.push(find("columns", column)?.number);
            }
            columns
                .iter()
                .filter(|c| !others.contains(&c.number))
                .collect()
        }
    };
    let mut read = sent.clone();
    read.extend(for_sink.iter().map(|(_, column)| *column));
    let unreadable = read.iter().chain([&id, &sent_at]).find(|c| !c.readable);
    if let Some(column) = unreadable {
        return Err(unfit(format!(
            "column `{}` may not be read by the user of `source`: GRANT SELECT ON {} TO …",
            column.name,
            qualified(&schema, &name)
        )));
    }
    if !sent_at.writable {
        let (column, table) = (quoted(&sent_at.name), qualified(&schema, &name));
        let why = format!(
            "column `{}` may not be written by the user of `source`: GRANT UPDATE ({column}) ON {table} TO …",
            sent_at.name
        );
        return Err(unfit(why));
    }
    let whole = match &wanted.whole {
        Some(column) => Some(find("body", column)?.number),
        None => None,
    };
    let names = || sent.iter().map(|c| c.name.clone());
    let side_schema = wanted.side_schema.clone().unwrap_or_else(|| schema.clone());
    let side = |table: &str| qualified(&side_schema, table);
    Ok(Table {
        source: source_name(delivery(&schema, &name, &sent_at.name), filter),
        sql_name: qualified(&schema, &name),
        sql_rows: rows_of(&qualified(&schema, &name), filter, due.as_deref(), "n"),
        sql_id: quoted(&id.name),
        sql_sent_at: quoted(&sent_at.name),
        filter: wanted.filter.clone(),
        id: id_type,
        id_may_be_null: !id.not_null,
        sql_sent_value: sent_value,
        payload: match wanted.payload {
            Some(_) if wanted.needs_payload => Payload::Column(names().collect()),
            _ => Payload::Fields(names().collect()),
        },
        sql_values: read
            .iter()
            .map(|c| c.sql_json(whole == Some(c.number)))
            .collect(),
        for_sink: for_sink.into_iter().map(|(name, _)| name).collect(),
        sql_size: size(&read),
        layout: match (&order, id_type) {
            (Some(order), _) => Layout::by_column(&order.column, wanted.buckets),
            (None, IdType::Int) => Layout::Range(wanted.batch_size),
            (None, IdType::Uuid | IdType::Text) => Layout::Opaque(wanted.buckets),
        },
        order,
        repeats,
        digest,
        batch_size: wanted.batch_size,
        delivery: side("watchkeeper_delivery"),
        intent: side("watchkeeper_delivery_intent"),
        sources: side("watchkeeper_delivery_source"),
        side_schema,
        create: wanted.create,
        partitioned: kind == "p",
        oid,
        name,
    })
}

/// Schema and marked column are a part of the name where they are not the usual ones: two tables that share side tables do
/// not share a name.
fn delivery(schema: &str, table: &str, sent_at: &str) -> String {
    match (schema, sent_at) {
        ("public", "sent_at") => table.to_owned(),
        (schema, "sent_at") => format!("{schema}.{table}"),
        (schema, sent_at) => format!("{schema}.{table}.{sent_at}"),
    }
}

/// Whether a row is due, by a column of this type.
fn is_due(column: &str, kind: &str) -> Option<String> {
    let now = match kind {
        "timestamptz" => "now()",
        "timestamp" => "(now() AT TIME ZONE 'UTC')",
        "date" => "(now() AT TIME ZONE 'UTC')::date",
        "int2" | "int4" | "int8" => "extract(epoch FROM now())",
        _ => return None,
    };
    Some(format!("({column} IS NULL OR {column} <= {now})"))
}

/// What can be marked: the expression of a value of this type, from this one of Unix milliseconds.
fn time_value(kind: &str, ms: &str) -> Option<String> {
    let time = format!("to_timestamp({ms}::bigint / 1000.0)");
    Some(match kind {
        "timestamptz" => time,
        "timestamp" => format!("({time} AT TIME ZONE 'UTC')"),
        "date" => format!("({time} AT TIME ZONE 'UTC')::date"),
        "int8" => format!("({ms}::bigint / 1000)"),
        "int4" => format!("({ms}::bigint / 1000)::int"),
        "text" | "varchar" => {
            format!("to_char({time} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')")
        }
        _ => return None,
    })
}

fn size(columns: &[&Column]) -> String {
    let each = columns.iter().map(|c| {
        let name = quoted(&c.name);
        match c.kind.as_str() {
            "bytea" => format!("coalesce(octet_length(n.{name}) * 2::bigint, 0)"),
            _ => format!("coalesce(octet_length(n.{name}::text)::bigint, 0)"),
        }
    });
    match columns.is_empty() {
        true => "0::bigint".to_owned(),
        false => each.collect::<Vec<_>>().join(" + "),
    }
}

pub(super) fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", quoted(schema), quoted(name))
}

async fn find_table(session: &Session, wanted: &Wanted) -> Result<(u32, String, String, String)> {
    // As written, or else as PostgreSQL reads what is not in quotes.
    let found = session
        .query(
            "SELECT c.oid, n.nspname::text, c.relname::text, c.relkind::text
             FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
             WHERE c.relname IN ($1, lower($1)) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
             AND CASE WHEN $2::text IS NULL THEN pg_catalog.pg_table_is_visible(c.oid) ELSE n.nspname IN ($2, lower($2)) END
             AND n.nspname NOT IN ('pg_catalog', 'information_schema')
             ORDER BY n.nspname = $2 DESC, c.relname = $1 DESC LIMIT 1",
            &[(&wanted.table, Type::TEXT), (&wanted.schema, Type::TEXT)],
        )
        .await?;
    if let Some(row) = found.first() {
        return Ok((get(row, 0)?, get(row, 1)?, get(row, 2)?, get(row, 3)?));
    }
    let names = session
        .query(
            "SELECT CASE WHEN pg_catalog.pg_table_is_visible(c.oid) THEN c.relname::text
                    ELSE n.nspname || '.' || c.relname END
             FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
             WHERE c.relkind IN ('r', 'p') AND n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'
             AND c.relname !~ '^watchkeeper_' AND NOT c.relispartition ORDER BY 1 LIMIT 20",
            &[],
        )
        .await?;
    let names: Vec<String> = names.iter().map(|row| get(row, 0)).collect::<Result<_>>()?;
    let table = match &wanted.schema {
        Some(schema) => format!("{schema}.{}", wanted.table),
        None => wanted.table.clone(),
    };
    Err(SourceError::NoTable {
        database: session.server.clone(),
        table,
        found: list(&names),
    })
}

async fn columns(session: &Session, oid: u32) -> Result<Vec<Column>> {
    let rows = session
        .query(
            "SELECT a.attnum, a.attname::text, k.typname::text, a.attnotnull,
                    has_column_privilege($1::oid, a.attnum, 'SELECT'), has_column_privilege($1::oid, a.attnum, 'UPDATE'),
                    CASE WHEN k.typname = 'varchar' AND k.modifier >= 4 THEN k.modifier - 4 END
             FROM pg_catalog.pg_attribute AS a JOIN LATERAL (
                 WITH RECURSIVE t AS (
                     SELECT oid, typname, typtype, typbasetype, typtypmod, a.atttypmod AS modifier
                     FROM pg_catalog.pg_type WHERE oid = a.atttypid
                     UNION ALL
                     SELECT b.oid, b.typname, b.typtype, b.typbasetype, b.typtypmod, t.typtypmod
                     FROM pg_catalog.pg_type AS b JOIN t ON t.typtype = 'd' AND b.oid = t.typbasetype)
                 SELECT typname, modifier FROM t WHERE typtype <> 'd') AS k ON true
             WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            &[(&oid, Type::OID)],
        )
        .await?;
    let column = |row: &Row| {
        Ok(Column {
            number: get(row, 0)?,
            name: get(row, 1)?,
            kind: get(row, 2)?,
            not_null: get(row, 3)?,
            readable: get(row, 4)?,
            writable: get(row, 5)?,
            most: get(row, 6)?,
        })
    };
    rows.iter().map(column).collect()
}

fn find_column<'c>(
    columns: &'c [Column],
    table: &str,
    key: &'static str,
    name: &str,
) -> Result<&'c Column> {
    let exact = columns.iter().find(|c| c.name == name);
    let found = exact.or_else(|| columns.iter().find(|c| c.name == name.to_lowercase()));
    found.ok_or_else(|| SourceError::NoColumn {
        key,
        table: table.to_owned(),
        column: name.to_owned(),
        found: list(&columns.iter().map(|c| c.name.clone()).collect::<Vec<_>>()),
    })
}

async fn is_unique(session: &Session, oid: u32, column: i16) -> Result<bool> {
    let found = session
        .value(
            "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_index AS i
             WHERE i.indrelid = $1::oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
             AND i.indnkeyatts = 1 AND i.indkey[0] = $2)",
            &[(&oid, Type::OID), (&column, Type::INT2)],
        )
        .await?;
    Ok(found.unwrap_or(false))
}

// === impl Column ===

impl Column {
    /// Its value in a row `n`, as the text of its JSON. Numbers of any length are texts: none of their digits is lost. `whole`: what
    /// is JSON already is a text that is sent as it is.
    fn sql_json(&self, whole: bool) -> String {
        let name = quoted(&self.name);
        match self.kind.as_str() {
            "bytea" => format!("to_json(encode(n.{name}, 'hex'))::text"),
            "numeric" => format!("to_json(n.{name}::text)::text"),
            "json" | "jsonb" if whole => format!("to_json(n.{name}::text)::text"),
            _ => format!("to_json(n.{name})::text"),
        }
    }
}

// === impl IdType ===

impl IdType {
    fn of(kind: &str) -> Option<Self> {
        match kind {
            "int2" | "int4" | "int8" => Some(Self::Int),
            "uuid" => Some(Self::Uuid),
            "text" | "varchar" => Some(Self::Text),
            _ => None,
        }
    }

    /// What an id is cast to when it is read.
    pub(super) const fn read_as(self) -> &'static str {
        match self {
            Self::Int => "bigint",
            Self::Uuid | Self::Text => "text",
        }
    }

    /// What a parameter that holds one is cast to.
    pub(super) const fn written_as(self) -> &'static str {
        match self {
            Self::Int => "bigint",
            Self::Uuid => "text::uuid",
            Self::Text => "text",
        }
    }

    /// The type of an array of them.
    pub(super) const fn array(self) -> Type {
        match self {
            Self::Int => Type::INT8_ARRAY,
            Self::Uuid | Self::Text => Type::TEXT_ARRAY,
        }
    }

    /// An id in the column `at`.
    pub(super) fn get(self, row: &Row, at: usize) -> Result<ItemId> {
        Ok(match self {
            Self::Int => ItemId::Int(get(row, at)?),
            Self::Uuid | Self::Text => ItemId::Text(get(row, at)?),
        })
    }

    /// These ids as a parameter; those that cannot be ids of this table are left out.
    pub(super) fn many(self, ids: &[ItemId]) -> Box<dyn ToSql + Sync + Send> {
        let fits = |id: &&ItemId| self.read(&id.to_string()).as_ref() == Some(*id);
        match self {
            Self::Int => {
                let number = |id: &ItemId| match id {
                    ItemId::Int(id) => Some(*id),
                    ItemId::Text(_) => None,
                };
                Box::new(ids.iter().filter_map(number).collect::<Vec<i64>>())
            }
            Self::Uuid | Self::Text => {
                let texts = ids.iter().filter(fits).map(ToString::to_string);
                Box::new(texts.collect::<Vec<String>>())
            }
        }
    }

    /// The id that a word means, as the database writes it; none when no id of this type looks like that.
    pub(super) fn read(self, word: &str) -> Option<ItemId> {
        match self {
            Self::Int => word.parse().ok().map(ItemId::Int),
            Self::Text => (!word.contains('\0')).then(|| ItemId::Text(word.to_owned())),
            Self::Uuid => {
                let digits: String = word.chars().filter(|c| *c != '-').collect();
                let is_one = digits.len() == 32 && digits.chars().all(|c| c.is_ascii_hexdigit());
                let digits = digits.to_ascii_lowercase();
                is_one.then(|| {
                    let parts = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)];
                    let parts = parts.map(|(from, to)| &digits[from..to]);
                    ItemId::Text(parts.join("-"))
                })
            }
        }
    }
}

// === impl Table ===

impl Table {
    /// The name of the batch of a cell.
    pub(super) fn batch(&self, layout: Layout, number: i64) -> String {
        let cell = Cell {
            source: self.source.clone(),
            layout,
            number,
        };
        cell.to_string()
    }

    /// The id of a row `n`, as it is read.
    pub(super) fn sql_read_id(&self) -> String {
        format!("n.{}::{}", self.sql_id, self.id.read_as())
    }

    /// The id of a row `n` as the side tables have it. Its collation is theirs, so that their key is used.
    pub(super) fn sql_item(&self) -> String {
        format!("(n.{}::text COLLATE \"default\")", self.sql_id)
    }

    /// One of the ids in the parameter of this number.
    pub(super) fn sql_any(&self, parameter: u8) -> String {
        match self.id {
            IdType::Uuid => format!("ANY (${parameter}::uuid[])"),
            IdType::Int | IdType::Text => format!("ANY (${parameter})"),
        }
    }

    /// The ids in the parameter of this number, one in a row.
    pub(super) fn sql_each(&self, parameter: u8) -> String {
        match self.id {
            IdType::Uuid => format!("unnest(${parameter}::uuid[])"),
            IdType::Int | IdType::Text => format!("unnest(${parameter})"),
        }
    }

    /// The item of a row `d` of the side table, in the type of ids; null for what is none.
    pub(super) fn sql_id_of_item(&self) -> &'static str {
        match self.id {
            IdType::Int => "d.number",
            IdType::Text => "d.item",
            IdType::Uuid => {
                "(CASE WHEN d.item ~ '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$' THEN d.item::uuid END)"
            }
        }
    }

    /// Whether an item `d` of the side table has to wait: for its time, or for a replica that makes messages of several rows, as it may have
    /// been received in one. `$2` is now.
    pub(super) fn sql_waits(&self) -> &'static str {
        match self.digest {
            Some(_) => "d.not_before > $2",
            None => "(d.not_before > $2 OR d.digest IS NOT NULL)",
        }
    }

    /// Whether the side table holds a row `n` back. `$1` is the source, `$2` now.
    pub(super) fn sql_held(&self) -> String {
        let held = format!(
            "EXISTS (SELECT 1 FROM {} AS d WHERE d.source = $1 AND d.item = {}
             AND (d.state IN ('dead', 'parked') OR {}))",
            self.delivery,
            self.sql_item(),
            self.sql_waits(),
        );
        let Some(order) = &self.order else {
            return held;
        };
        let (id, sent_at, column) = (&self.sql_id, &self.sql_sent_at, &order.sql_column);
        let states = order.behind.sql_states();
        let collected = self.sql_is_collected(order);
        format!(
            "({held} OR NOT {collected} OR EXISTS (SELECT 1 FROM {delivery} AS d JOIN {rows} ON m.{id} = {item}
             WHERE d.source = $1 AND d.recipient = {recipient} AND m.{column}::text = n.{column}::text
             AND (d.state IN ('retry', 'in_doubt') AND {waits} OR d.state IN ({states}))
             AND m.{sent_at} IS NULL AND m.{id} < n.{id}))",
            waits = self.sql_waits(),
            delivery = self.delivery,
            rows = order.sql_rows,
            item = self.sql_id_of_item(),
            recipient = hash_of(&format!("n.{column}")),
        )
    }

    /// The same for those who read rows from one id on, the parameter `from`: an earlier one of the recipient that is not sent keeps
    /// a row back whatever is known of it, because it is not in their sight. What waits for a person is passed where that may be.
    pub(super) fn sql_held_from(&self, from: &str) -> String {
        let held = self.sql_held();
        let Some(order) = &self.order else {
            return held;
        };
        format!(
            "({held} OR EXISTS (SELECT 1 FROM {rows} WHERE m.{column} = n.{column} AND m.{sent} IS NULL AND m.{id} < {from}
             AND NOT EXISTS (SELECT 1 FROM {delivery} AS d WHERE d.source = $1
                 AND d.item = (m.{id}::text COLLATE \"default\") AND d.state IN ('dead', 'parked'))))",
            rows = order.sql_rows,
            column = order.sql_column,
            sent = self.sql_sent_at,
            id = self.sql_id,
            delivery = self.delivery,
        )
    }

    /// Whether the recipient of a row `n` gets a message now: the oldest row of it is old enough, there are enough of them, or this
    /// one has waited already.
    fn sql_is_collected(&self, order: &Ordered) -> String {
        let Some(collected) = &self.digest else {
            return "true".to_owned();
        };
        let column = &order.sql_column;
        let waiting = format!(
            "SELECT 1 FROM {rows} WHERE m.{column} = n.{column} AND m.{sent} IS NULL AND NOT EXISTS
             (SELECT 1 FROM {delivery} AS d WHERE d.source = $1 AND d.item = (m.{id}::text COLLATE \"default\")
              AND d.state IN ('dead', 'parked'))",
            rows = order.sql_rows,
            sent = self.sql_sent_at,
            delivery = self.delivery,
            id = self.sql_id,
        );
        let most = collected.digest.at_most;
        format!(
            "(n.{column} IS NULL
              OR EXISTS (SELECT 1 FROM {delivery} AS d WHERE d.source = $1 AND d.item = {item})
              OR EXISTS ({waiting} AND {is_old})
              OR (SELECT count(*) FROM ({waiting} LIMIT {most}) AS w) = {most})",
            delivery = self.delivery,
            item = self.sql_item(),
            is_old = collected.sql_is_old,
        )
    }

    /// What is sent of these rows of a batch.
    pub(super) fn folded(&self, mut items: Vec<Item>, database: &str, now_ms: i64) -> Vec<Item> {
        for item in &mut items {
            item.key = idempotency_key(database, &self.source, &item.id);
        }
        let (Some(collected), Some(order)) = (&self.digest, &self.order) else {
            return items;
        };
        let now = Timestamp::from_millisecond(now_ms).unwrap_or(Timestamp::UNIX_EPOCH);
        let is_kept = |item: &Item| collected.times.keep(&item.columns, now).is_some();
        let key = |name: &str| digest_key(database, &self.source, name);
        digest::fold(items, &order.named, is_kept, collected.in_texts, key)
    }

    /// Whether what is dead keeps back those behind it.
    pub(super) fn keeps_back_what_is_dead(&self) -> bool {
        let held = |order: &Ordered| order.behind == Behind::Held;
        self.order.as_ref().is_some_and(held)
    }

    /// Whether the message of a row `n` was sent already, lately enough. `$2` is now.
    pub(super) fn sql_is_repeat(&self) -> &str {
        self.repeats
            .as_ref()
            .map_or("false", |repeats| &repeats.sql)
    }

    /// What marks a row `n`, at `$1` in Unix milliseconds. One that is a message which was sent is marked with the time at which that
    /// was: the window does not move on with each repeat.
    pub(super) fn sql_mark(&self, is_repeat: bool) -> &str {
        match &self.repeats {
            Some(repeats) if is_repeat => &repeats.sql_sent_value,
            _ => &self.sql_sent_value,
        }
    }

    /// The column of recipients, as the sink names it, where this layout goes by it.
    pub(super) fn ordered_column(&self, layout: Layout) -> Option<&str> {
        let order = self.order.as_ref()?;
        layout.buckets_by(&order.column)?;
        Some(&order.named)
    }

    /// Whom a row `n` is for, where this layout goes by that. A row without a recipient stands for itself.
    pub(super) fn sql_recipient(&self, layout: Layout) -> Option<String> {
        let order = self.order.as_ref()?;
        layout.buckets_by(&order.column)?;
        Some(format!(
            "coalesce('r' || n.{}::text, 'i' || n.{}::text)",
            order.sql_column, self.sql_id
        ))
    }

    /// The bucket of a row `n`; none where this layout has no buckets, or goes by a column that the parameters do not name.
    pub(super) fn sql_bucket(&self, layout: Layout) -> Option<String> {
        let id = format!("n.{}", self.sql_id);
        let (buckets, hash) = match (layout, &self.order) {
            (Layout::Range(_), _) => return None,
            (Layout::Hash(buckets) | Layout::Opaque(buckets), _) => (buckets, hash_of(&id)),
            (Layout::Key(..), None) => return None,
            (Layout::Key(..), Some(order)) => {
                let buckets = layout.buckets_by(&order.column)?;
                let of = format!("coalesce(n.{}::text, {id}::text)", order.sql_column);
                (buckets, hash_of(&of))
            }
        };
        Some(format!("(({hash} % {buckets} + {buckets}) % {buckets})"))
    }

    /// The hash of the recipient of an item `d` of the side table.
    pub(super) fn sql_recipient_of_item(&self) -> String {
        match &self.order {
            None => "NULL::bigint".to_owned(),
            Some(order) => format!(
                "(SELECT {} FROM {} AS r WHERE r.{} = {})",
                hash_of(&format!("r.{}", order.sql_column)),
                self.sql_name,
                self.sql_id,
                self.sql_id_of_item()
            ),
        }
    }
}

/// A hash of a value's text, as the database computes it.
fn hash_of(value: &str) -> String {
    format!("hashtextextended({value}::text COLLATE \"C\", 0)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_tables_that_share_side_tables_share_a_name() {
        assert_eq!(delivery("public", "mails", "sent_at"), "mails");
        assert_eq!(delivery("app", "mails", "sent_at"), "app.mails");
        assert_eq!(delivery("public", "app", "mails"), "public.app.mails");
    }

    #[test]
    fn a_word_is_an_id_as_the_database_writes_it() {
        let text = |word: &str| Some(ItemId::Text(word.to_owned()));
        assert_eq!(IdType::Int.read("-7"), Some(ItemId::Int(-7)));
        assert_eq!(IdType::Int.read("x"), None);
        assert_eq!(IdType::Text.read("7"), text("7"));
        assert_eq!(IdType::Text.read("a\0"), None);
        let canonical = "0190b5a4-1c2d-7e3f-8a9b-0c1d2e3f4a5b";
        assert_eq!(IdType::Uuid.read(canonical), text(canonical));
        assert_eq!(
            IdType::Uuid.read(&canonical.to_uppercase()),
            text(canonical)
        );
        for none in ["", "0190b5a4", "zz90b5a4-1c2d-7e3f-8a9b-0c1d2e3f4a5b"] {
            assert_eq!(IdType::Uuid.read(none), None, "{none}");
        }
    }
}
