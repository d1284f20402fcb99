//! Reading and marking the user's rows. None of them is locked while it is read or sent, and marking waits for no other
//! transaction: what another program holds at that moment is left for later.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::{join, join3};
use serde_json::Value;
use tokio_postgres::{
    Row,
    types::{FromSql, Type},
};

use super::{
    session::{Session, get},
    side::{count, exception},
    table::{Collected, Table},
};
use crate::notifications::{
    cell::{Cell, ItemId, Layout},
    delivery::{Exception, State},
    digest,
    params::MOST_ROWS,
    source::{
        Backlog, Item, Result,
        table::{BATCH_BYTES, BODY_BYTES, body},
    },
};

/// What is known of one row.
#[derive(Clone, Debug, Default)]
pub(super) struct RowLookup {
    /// It is there and not marked.
    pub(super) unsent: bool,
    /// It is there.
    pub(super) there: bool,
    /// What the side table says of it.
    pub(super) prior: Option<Exception>,
}

/// Text of a database of any encoding.
struct Lossy(String);

/// Rows that are found out in one transaction to be refused: each takes a few statements.
const REFUSED: usize = 100;

/// Unsent rows that are looked at in search of those of one bucket.
const WINDOW: i64 = 50_000;

impl<'a> FromSql<'a> for Lossy {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(String::from_utf8_lossy(raw).into_owned()))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::TEXT
    }
}

/// Rows to send, and those that are too large to be sent, with their bytes.
type Due = (Vec<Item>, Vec<(ItemId, u64)>);

/// Rows of one bucket among which a batch is picked, so many times what it takes: recipients have their turns.
const BREADTH: i64 = 8;
/// With fewer recipients in a full batch, all rows of the window are looked at.
const FEW: usize = 8;

/// The cell's rows that may go now, at most one batch of them, without their keys, and those that are too large to be sent.
/// `from` is where rows of a bucket were seen; without it all rows are looked at, and for a bucket that keeps an order the first ones alone.
pub(super) async fn due(
    session: &Session,
    table: &Table,
    cell: &Cell,
    from: Option<&ItemId>,
    now_ms: i64,
) -> Result<Due> {
    let batch = i64::from(table.batch_size);
    if table.digest.is_some() {
        // Whole messages: a row of one may be far behind the others.
        let due = due_among(session, table, cell, from, now_ms, WINDOW).await?;
        return with_rest_of_digests(session, table, due, now_ms).await;
    }
    let due = due_among(session, table, cell, from, now_ms, batch * BREADTH).await?;
    let is_full = due.0.len() + due.1.len() >= usize::try_from(batch).unwrap_or(usize::MAX);
    let Some(column) = table.ordered_column(cell.layout).filter(|_| is_full) else {
        return Ok(due);
    };
    let recipients: BTreeSet<String> = due
        .0
        .iter()
        .map(|item| match item.columns.get(column) {
            None | Some(Value::Null) => format!("i{}", item.id),
            Some(recipient) => format!("r{recipient}"),
        })
        .collect();
    if recipients.len() >= FEW {
        return Ok(due);
    }
    due_among(session, table, cell, from, now_ms, WINDOW).await
}

async fn due_among(
    session: &Session,
    table: &Table,
    cell: &Cell,
    from: Option<&ItemId>,
    now_ms: i64,
    among: i64,
) -> Result<Due> {
    let (id, rows, sent_at) = (&table.sql_id, &table.sql_rows, &table.sql_sent_at);
    let unsent = format!("n.{sent_at} IS NULL");
    let (held, size) = (table.sql_held(), &table.sql_size);
    let (first, last) = match cell.layout {
        Layout::Range(size) => Layout::ids_of(size, cell.number),
        _ => (cell.number, cell.number),
    };
    let written_as = table.id.written_as();
    let here = match cell.layout {
        Layout::Range(_) => format!(
            "SELECT n.{id} AS id, {size} AS size FROM {rows}
             WHERE {unsent} AND n.{id} BETWEEN $3 AND $4 AND NOT {held} ORDER BY n.{id} LIMIT $5"
        ),
        Layout::Key(..) => {
            // Rows of a column that this replica is not told of are left to those that are.
            let (Some(bucket), Some(recipient)) = (
                table.sql_bucket(cell.layout),
                table.sql_recipient(cell.layout),
            ) else {
                return Ok(Due::default());
            };
            let (behind, held) = match from {
                None => (String::new(), table.sql_held()),
                Some(_) => {
                    let from = format!("$8::{written_as}");
                    (format!("AND n.{id} >= {from}"), table.sql_held_from(&from))
                }
            };
            let here = format!(
                "SELECT n.{id} AS id, {recipient} AS recipient FROM (
                     SELECT n.* FROM {rows} WHERE {unsent} {behind} ORDER BY n.{id} LIMIT {WINDOW}) AS n
                 WHERE {bucket} BETWEEN $3 AND $4 AND NOT {held} ORDER BY n.{id} LIMIT {among}"
            );
            let turns = "row_number() OVER (PARTITION BY recipient ORDER BY id) AS turn";
            let picked = match &table.digest {
                None => format!(
                    "SELECT id FROM (SELECT id, {turns} FROM ({here}) AS w) AS t ORDER BY turn, id LIMIT $5"
                ),
                Some(Collected { digest, .. }) => format!(
                    "SELECT id FROM (SELECT id, turn, dense_rank() OVER (ORDER BY first) AS place FROM (
                         SELECT id, {turns}, first_value(id) OVER (PARTITION BY recipient ORDER BY id) AS first
                         FROM ({here}) AS w) AS r) AS t
                     WHERE turn <= {} AND place <= {} LIMIT $5",
                    digest.at_most,
                    digest.recipients(table.batch_size)
                ),
            };
            format!(
                "SELECT n.{id} AS id, {size} AS size FROM {rows} WHERE {unsent} AND n.{id} IN ({picked})"
            )
        }
        Layout::Hash(_) | Layout::Opaque(_) => {
            let bucket = table.sql_bucket(cell.layout).unwrap_or_default();
            let window = match from {
                None => String::new(),
                Some(_) => format!(
                    "AND n.{id} IN (SELECT n.{id} FROM {rows}
                     WHERE {unsent} AND n.{id} >= $8::{written_as} ORDER BY n.{id} LIMIT {WINDOW})"
                ),
            };
            format!(
                "SELECT n.{id} AS id, {size} AS size FROM {rows}
                 WHERE {unsent} AND {bucket} BETWEEN $3 AND $4 {window} AND NOT {held} LIMIT $5"
            )
        }
    };
    // All rows of a range, also where another size is in force than this replica is configured with.
    let most = match cell.layout {
        Layout::Range(size) => i64::from(size),
        _ if table.digest.is_some() => i64::from(MOST_ROWS),
        _ => i64::from(table.batch_size),
    };
    let (bytes, largest) = (whole(BATCH_BYTES), whole(BODY_BYTES));
    let from = from.map(ToString::to_string);
    let mut params: Vec<super::session::Param<'_>> = vec![
        (&table.source, Type::TEXT),
        (&now_ms, Type::INT8),
        (&first, Type::INT8),
        (&last, Type::INT8),
        (&most, Type::INT8),
        (&bytes, Type::INT8),
        (&largest, Type::INT8),
    ];
    if let Some(from) = from
        .as_ref()
        .filter(|_| !matches!(cell.layout, Layout::Range(_)))
    {
        params.push((from, Type::TEXT));
    }
    rows_of(session, table, &here, &params).await
}

/// These, and of digests in doubt that are not whole among them the other rows that may go now: what may have been received goes again
/// whole, whatever room there is.
async fn with_rest_of_digests(
    session: &Session,
    table: &Table,
    due: Due,
    now_ms: i64,
) -> Result<Due> {
    let (items, mut too_large) = due;
    let cut = digest::cut(&items);
    if cut.is_empty() {
        return Ok((items, too_large));
    }
    // All of them in one answer: the order of ids, which names a digest, is the database's. One list of ids, which is joined: with
    // `OR` each unsent row is held against it.
    let here = format!(
        "SELECT n.{id} AS id, {size} AS size FROM {rows} WHERE n.{sent} IS NULL AND n.{id} IN
             (SELECT {there} UNION SELECT {item} FROM {delivery} AS d
              WHERE d.source = $1 AND d.digest = ANY ($3) AND d.state = 'in_doubt' AND d.not_before <= $2)",
        id = table.sql_id,
        size = table.sql_size,
        delivery = table.delivery,
        rows = table.sql_rows,
        item = table.sql_id_of_item(),
        sent = table.sql_sent_at,
        there = table.sql_each(4),
    );
    let there: Vec<ItemId> = items.iter().map(|item| item.id.clone()).collect();
    let (bytes, largest) = (i64::MAX, whole(BODY_BYTES));
    let params: [super::session::Param<'_>; 7] = [
        (&table.source, Type::TEXT),
        (&now_ms, Type::INT8),
        (&cut, Type::TEXT_ARRAY),
        (&*table.id.many(&there), table.id.array()),
        (&0_i64, Type::INT8),
        (&bytes, Type::INT8),
        (&largest, Type::INT8),
    ];
    let (items, larger) = rows_of(session, table, &here, &params).await?;
    too_large.extend(larger);
    Ok((items, too_large))
}

/// What is read of the rows that `here` finds, by id and size. $1 is the source, $6 the bytes that are read, $7 those of the largest row.
async fn rows_of(
    session: &Session,
    table: &Table,
    here: &str,
    params: &[super::session::Param<'_>],
) -> Result<Due> {
    let values: String = table
        .sql_values
        .iter()
        .map(|value| format!(", CASE WHEN f.size <= $7 THEN {value} END"))
        .collect();
    let sql = format!(
        "WITH here AS MATERIALIZED ({here}),
              f AS (SELECT id, size, sum(size) OVER (ORDER BY id) - size AS before FROM here)
         SELECT {read}, f.size, d.state, d.attempts, d.not_before, d.reason, {repeat}, d.digest{values}
         FROM f JOIN {rows} ON n.{id} = f.id
         LEFT JOIN {delivery} AS d ON d.source = $1 AND d.item = {item}
         WHERE f.before <= $6 ORDER BY f.id",
        rows = table.sql_rows,
        id = table.sql_id,
        read = table.sql_read_id(),
        repeat = table.sql_is_repeat(),
        delivery = table.delivery,
        item = table.sql_item(),
    );
    let found = session.query(&sql, params).await?;
    let (mut items, mut too_large) = (Vec::with_capacity(found.len()), Vec::new());
    let is_strict = table.keeps_back_what_is_dead();
    for row in &found {
        let id = table.id.get(row, 0)?;
        let size = get::<i64>(row, 1)?.unsigned_abs();
        if size > BODY_BYTES {
            too_large.push((id, size));
            // It keeps back rows of its recipient: the next batch knows which.
            if is_strict {
                break;
            }
            continue;
        }
        let values = (0..table.sql_values.len()).map(|i| value(row, 8 + i));
        let mut values = values.collect::<Result<Vec<_>>>()?;
        let of_payload = values.len() - table.for_sink.len();
        let for_sink = values.split_off(of_payload);
        items.push(Item {
            key: String::new(),
            body: body(&table.payload, values, &table.name, &id),
            columns: table.for_sink.iter().cloned().zip(for_sink).collect(),
            prior: exception(row, 2)?,
            is_repeat: get(row, 6)?,
            members: Vec::new(),
            digest: get::<Option<String>>(row, 7)?.filter(|_| table.digest.is_some()),
            id,
        });
    }
    Ok((items, too_large))
}

/// JSON that no reader takes, as of numbers without end, is sent as the text that it is.
fn value(row: &Row, at: usize) -> Result<Value> {
    Ok(match get::<Option<Lossy>>(row, at)? {
        None => Value::Null,
        Some(Lossy(text)) => serde_json::from_str(&text).unwrap_or(Value::String(text)),
    })
}

/// What is known of these rows, by id, whether they are ours to send now or not.
pub(super) async fn look_up(
    session: &Session,
    table: &Table,
    ids: &[ItemId],
) -> Result<BTreeMap<ItemId, RowLookup>> {
    let written_as = match table.id {
        super::table::IdType::Uuid => "uuid",
        id => id.read_as(),
    };
    let found = session
        .query(
            &format!(
                "SELECT i.id, n.{id} IS NOT NULL, n.{id} IS NOT NULL AND n.{sent} IS NULL,
                        d.state, d.attempts, d.not_before, d.reason
                 FROM unnest($2) AS i(id) LEFT JOIN {name} AS n ON n.{id} = i.id::{written_as}
                 LEFT JOIN {delivery} AS d ON d.source = $1 AND d.item = i.id::text",
                id = table.sql_id,
                sent = table.sql_sent_at,
                name = table.sql_name,
                delivery = table.delivery,
            ),
            &[
                (&table.source, Type::TEXT),
                (&*table.id.many(ids), table.id.array()),
            ],
        )
        .await?;
    let mut all: BTreeMap<_, _> = ids
        .iter()
        .map(|id| (id.clone(), RowLookup::default()))
        .collect();
    for row in &found {
        let lookup = RowLookup {
            there: get(row, 1)?,
            unsent: get(row, 2)?,
            prior: exception(row, 3)?,
        };
        all.insert(table.id.get(row, 0)?, lookup);
    }
    Ok(all)
}

/// Whether a row is unsent; none when it is not there. Asks the user's table alone.
pub(super) async fn is_there(
    session: &Session,
    table: &Table,
    id: &ItemId,
) -> Result<Option<bool>> {
    let any = table.sql_any(1);
    session
        .value(
            &format!(
                "SELECT n.{} IS NULL FROM {} AS n WHERE n.{} = {any}",
                table.sql_sent_at, table.sql_name, table.sql_id
            ),
            &[(&*table.id.many(std::slice::from_ref(id)), table.id.array())],
        )
        .await
}

/// Marks rows as sent, all that are not marked and that no other program holds, in one statement. Says which are left: held
/// by others at this moment, or kept as they are by the table, whatever number of rows it says were changed.
pub(super) async fn mark_sent(
    session: &Session,
    table: &Table,
    ids: &[ItemId],
    are_repeats: bool,
    now_ms: i64,
) -> Result<Vec<ItemId>> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let (name, id, sent) = (&table.sql_name, &table.sql_id, &table.sql_sent_at);
    let many = table.id.many(ids);
    let many: super::session::Param<'_> = (&*many, table.id.array());
    let mark = format!(
        "UPDATE {name} AS n SET {sent} = {value} FROM
         (SELECT {id} FROM {name} WHERE {id} = {any} AND {sent} IS NULL FOR NO KEY UPDATE SKIP LOCKED) AS free
         WHERE n.{id} = free.{id}",
        value = table.sql_mark(are_repeats),
        any = table.sql_any(2),
    );
    let unsent = format!(
        "SELECT {} FROM {name} AS n WHERE n.{id} = {any} AND n.{sent} IS NULL",
        table.sql_read_id(),
        any = table.sql_any(1),
    );
    let marking: [super::session::Param<'_>; 2] = [(&now_ms, Type::INT8), many.clone()];
    let asking = [many];
    // A trigger may take the mark back: the row is asked, and not the number of rows. In one way there and back.
    let (marked, left) = join(
        session.execute(&mark, &marking),
        session.query(&unsent, &asking),
    )
    .await;
    // What comes behind a statement that fails fails for that: whichever is heard of first, the first one says why.
    marked?;
    let left = left?;
    left.iter().map(|row| table.id.get(row, 0)).collect()
}

/// What became of rows that were marked in parts.
#[derive(Debug, Default)]
pub(super) struct InParts {
    /// Held by others, or kept as they are.
    pub(super) left: Vec<ItemId>,
    /// Refused, each with what the database says.
    pub(super) refused: Vec<(ItemId, String)>,
    /// Not tried yet: enough were refused for one transaction.
    pub(super) untried: Vec<ItemId>,
}

/// The same, by halves of what is refused, down to single rows: a refused one keeps no other from being marked, and is found in a few
/// steps among many.
pub(super) async fn mark_in_parts(
    session: &Session,
    table: &Table,
    ids: &[ItemId],
    are_repeats: bool,
    now_ms: i64,
) -> Result<InParts> {
    // What would be refused at the end of the transaction is refused here.
    session.batch("SET CONSTRAINTS ALL IMMEDIATE").await?;
    let most = match table.digest {
        None => REFUSED,
        // Rows of one message that are refused together stay one message.
        Some(_) => usize::MAX,
    };
    let (mut done, mut parts) = (InParts::default(), vec![ids]);
    while let Some(part) = parts.pop().filter(|part| !part.is_empty()) {
        if done.refused.len() >= most {
            done.untried.extend_from_slice(part);
            continue;
        }
        let (saved, marked, released) = join3(
            session.batch("SAVEPOINT part"),
            mark_sent(session, table, part, are_repeats, now_ms),
            session.batch("RELEASE part"),
        )
        .await;
        saved?;
        match marked.and_then(|left| released.map(|()| left)) {
            Ok(left) => done.left.extend(left),
            Err(error) if error.is_of_marking() => {
                session.batch("ROLLBACK TO part; RELEASE part").await?;
                match part {
                    [one] => done.refused.push((one.clone(), error.said())),
                    many => {
                        let (first, second) = many.split_at(many.len() / 2);
                        parts.extend([second, first]);
                    }
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Unsent rows, whatever is known of them.
pub(super) async fn unsent(session: &Session, table: &Table) -> Result<u64> {
    let count: Option<i64> = session
        .value(
            &format!(
                "SELECT count(*) FROM {} WHERE n.{} IS NULL",
                table.sql_rows, table.sql_sent_at
            ),
            &[],
        )
        .await?;
    Ok(count.unwrap_or(0).unsigned_abs())
}

/// Unsent rows that are neither dead nor parked nor discarded.
pub(super) async fn backlog(session: &Session, table: &Table) -> Result<Backlog> {
    let held: Option<i64> = session
        .value(
            &format!(
                "SELECT count(*) FROM {} AS d JOIN {} ON n.{} = {} AND n.{} IS NULL
                 WHERE d.source = $1 AND d.state IN ({})",
                table.delivery,
                table.sql_rows,
                table.sql_id,
                table.sql_id_of_item(),
                table.sql_sent_at,
                State::AT_REST,
            ),
            &[(&table.source, Type::TEXT)],
        )
        .await?;
    let unsent = unsent(session, table).await?;
    Ok(Backlog {
        items: unsent.saturating_sub(held.unwrap_or(0).unsigned_abs()),
        oldest_ms: oldest_ms(session, table).await?,
    })
}

/// Since when the oldest of those rows could go, where the table tells.
async fn oldest_ms(session: &Session, table: &Table) -> Result<Option<i64>> {
    let Some(since) = &table.sql_waits_since else {
        return Ok(None);
    };
    let oldest: Option<Option<i64>> = session
        .value(
            &format!(
                "SELECT min(CASE WHEN {since} BETWEEN 0 AND 253402300799 THEN ({since} * 1000)::bigint END)
                 FROM {} WHERE n.{} IS NULL AND NOT EXISTS (SELECT 1 FROM {} AS d
                 WHERE d.source = $1 AND d.item = {} AND d.state IN ({}))",
                table.sql_rows,
                table.sql_sent_at,
                table.delivery,
                table.sql_item(),
                State::AT_REST,
            ),
            &[(&table.source, Type::TEXT)],
        )
        .await?;
    Ok(oldest.flatten())
}

/// Whether there are unsent rows without an id.
pub(super) async fn any_without_id(session: &Session, table: &Table) -> Result<bool> {
    if !table.id_may_be_null {
        return Ok(false);
    }
    let found = session
        .query(
            &format!(
                "SELECT 1 FROM {} WHERE n.{} IS NULL AND n.{} IS NULL LIMIT $1",
                table.sql_rows, table.sql_id, table.sql_sent_at
            ),
            &[(&count(1), Type::INT8)],
        )
        .await?;
    Ok(!found.is_empty())
}

fn whole(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
