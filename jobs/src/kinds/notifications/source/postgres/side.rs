//! The side tables: what makes them, what stands in them, and the order in which sessions of ours change them.
//!
//! Who begins or ends a batch holds the batch; who does something about items of any batch, or about the division into cells,
//! holds the source. Both are advisory locks of the transaction: no row of any program waits for them, and they go with the
//! transaction, also with that of a process that froze.
//!
//! # Invariants
//! - S1 Of two holders of one batch the second sees all that the first has written.
//!   (a_successor_waits_for_the_open_transaction_of_the_last_holder)
//! - S2 An item is not changed by a person between the reading of its cell and the intent.
//!   (a_person_waits_for_a_batch_that_begins)
//! - S3 Nothing begins where a right is missing without which it could not be ended.
//!   (a_right_that_is_missing_on_the_side_tables_is_said_with_its_grant)
//! - S4 A change of the division comes to an end, however many items there are, and rewrites none that stays as it is.
//!   (a_change_of_the_division_rewrites_what_differs_in_portions)

use tokio_postgres::{Row, types::Type};
use watchkeeper::{chance::Chance, hash::fnv1a, node::Token};

use super::{
    session::{Session, get},
    table::{Table, qualified},
};
use crate::notifications::{
    cell::{ItemId, Layout},
    delivery::{Exception, State},
    digest_name,
    source::{
        Counts, Intent, Named, Result, SourceError,
        table::{list, quoted},
    },
};

/// Version of the side tables' meaning.
const VERSION: i32 = 1;

/// The three tables.
const NAMES: [&str; 3] = [
    "watchkeeper_delivery",
    "watchkeeper_delivery_intent",
    "watchkeeper_delivery_source",
];

/// Items of the side table that are brought up in one transaction.
const PORTION: i64 = 5_000;

/// What senders do with each of them.
const RIGHTS: [&[&str]; 3] = [
    &["SELECT", "INSERT", "UPDATE", "DELETE"],
    &["SELECT", "INSERT", "UPDATE", "DELETE"],
    &["SELECT", "INSERT", "UPDATE"],
];

/// The function, and the trigger, that announce new rows.
const ANNOUNCE: &str = "watchkeeper_delivery_announce";

/// A row for the side table.
#[derive(Debug)]
pub(super) struct Record<'r> {
    pub(super) id: &'r ItemId,
    pub(super) exception: &'r Exception,
    pub(super) token: Token,
    pub(super) batch: &'r str,
}

/// What a source is divided into, and the name that its keys begin with.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    pub(super) layout: Layout,
    pub(super) database: String,
}

/// What makes the side tables in a schema. May be run again.
pub(super) fn ddl(schema: &str) -> String {
    let of = |name: &str| qualified(schema, name);
    let [delivery, intent, source] = NAMES.map(of);
    format!(
        "CREATE TABLE IF NOT EXISTS {delivery} (
    source     text NOT NULL,
    item       text NOT NULL,
    number     bigint, -- the item, where ids are integers
    state      text NOT NULL CHECK (state IN ('retry', 'dead', 'in_doubt', 'parked')),
    attempts   integer NOT NULL,
    not_before bigint NOT NULL, -- Unix milliseconds
    reason     text NOT NULL,
    token      bigint NOT NULL,
    batch      text NOT NULL,
    updated_at timestamptz NOT NULL,
    recipient  bigint, -- a hash of the row's, where rows of one recipient keep their order
    digest     text, -- the name of the message of several rows that may have been received with it
    PRIMARY KEY (source, item)
);
CREATE INDEX IF NOT EXISTS watchkeeper_delivery_state ON {delivery} (source, state, number, item COLLATE \"C\");
CREATE INDEX IF NOT EXISTS watchkeeper_delivery_due ON {delivery} (source, not_before) WHERE state IN ('retry', 'in_doubt');
CREATE INDEX IF NOT EXISTS watchkeeper_delivery_recipient ON {delivery} (source, recipient) WHERE recipient IS NOT NULL;
CREATE TABLE IF NOT EXISTS {intent} (
    source     text NOT NULL,
    batch      text NOT NULL,
    job        text NOT NULL,
    token      bigint NOT NULL,
    items      jsonb NOT NULL,
    written_at timestamptz NOT NULL,
    PRIMARY KEY (source, batch)
);
CREATE TABLE IF NOT EXISTS {source} (
    source  text NOT NULL PRIMARY KEY,
    version integer NOT NULL,
    name    text NOT NULL,
    layout  text NOT NULL,
    doubted bigint NOT NULL
);
"
    )
}

/// Whether the side tables are there.
pub(super) async fn are_there(session: &Session, table: &Table) -> Result<bool> {
    Ok(missing(session, table).await?.is_empty())
}

async fn missing(session: &Session, table: &Table) -> Result<Vec<String>> {
    let there = session
        .query(
            "SELECT c.relname::text FROM pg_catalog.pg_class AS c
             JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
             WHERE n.nspname = $1 AND c.relname = ANY ($2) AND c.relkind IN ('r', 'p')",
            &[
                (&table.side_schema, Type::TEXT),
                (&NAMES.map(str::to_owned).to_vec(), Type::TEXT_ARRAY),
            ],
        )
        .await?;
    let there: Vec<String> = there.iter().map(|row| get(row, 0)).collect::<Result<_>>()?;
    let missing = NAMES
        .iter()
        .filter(|name| !there.iter().any(|t| t == *name));
    Ok(missing.map(|name| (*name).to_owned()).collect())
}

/// Refuses where the user of `source` may not do with the side tables what senders do: what is begun there could not be ended, and
/// would be sent again and again.
async fn may_be_used(session: &Session, table: &Table) -> Result<()> {
    let place = || format!("schema `{}` of {}", table.side_schema, session.server);
    let found = session
        .query(
            "SELECT quote_ident(current_user), has_schema_privilege(oid, 'USAGE') FROM pg_catalog.pg_namespace WHERE nspname = $1",
            &[(&table.side_schema, Type::TEXT)],
        )
        .await?;
    let found = found.first().ok_or(SourceError::Unfinished)?;
    let (user, may_enter): (String, bool) = (get(found, 0)?, get(found, 1)?);
    if !may_enter {
        let schema = quoted(&table.side_schema);
        return Err(SourceError::NoRights {
            place: place(),
            grants: format!("GRANT USAGE ON SCHEMA {schema} TO {user};"),
        });
    }
    let needed = NAMES.iter().zip(RIGHTS);
    let needed = needed.flat_map(|(name, rights)| rights.iter().map(move |right| (*name, *right)));
    let (names, rights): (Vec<&str>, Vec<&str>) = needed.unzip();
    let lacking = session
        .query(
            "SELECT w.name, string_agg(w.what, ', ' ORDER BY w.place)
             FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS w(name, what, place)
             JOIN pg_catalog.pg_class AS c ON c.relname = w.name AND c.relkind IN ('r', 'p')
             JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace AND n.nspname = $1
             WHERE NOT has_table_privilege(c.oid, w.what) GROUP BY w.name ORDER BY w.name",
            &[
                (&table.side_schema, Type::TEXT),
                (&names, Type::TEXT_ARRAY),
                (&rights, Type::TEXT_ARRAY),
            ],
        )
        .await?;
    let mut grants = Vec::new();
    for row in &lacking {
        let (name, rights): (String, String) = (get(row, 0)?, get(row, 1)?);
        let name = qualified(&table.side_schema, &name);
        grants.push(format!("GRANT {rights} ON {name} TO {user};"));
    }
    match grants.is_empty() {
        true => Ok(()),
        false => Err(SourceError::NoRights {
            place: place(),
            grants: grants.join(" "),
        }),
    }
}

/// Makes the side tables where they are missing and ours to make.
pub(super) async fn make(session: &Session, table: &Table) -> Result<()> {
    let missing = missing(session, table).await?;
    if missing.is_empty() {
        return may_be_used(session, table).await;
    }
    if !table.create {
        return Err(without(session, table, NOT_OURS.to_owned()));
    }
    // One after the other: two that make a table at the same time would get in each other's way, `IF NOT EXISTS` or not.
    let lock = lock_of(&format!("schema/{}", table.side_schema));
    let begin = format!("SELECT pg_advisory_xact_lock({lock});");
    session.begin(super::session::STATEMENT, &begin).await?;
    let made = session.batch(&ddl(&table.side_schema)).await;
    match made {
        Ok(()) => session.commit().await,
        Err(SourceError::Server { why, .. }) => {
            let why = format!(
                "; missing are {}, and they could not be made: {why}",
                list(&missing)
            );
            Err(without(session, table, why))
        }
        Err(error) => Err(error),
    }
}

/// Refuses where the side tables are missing and cannot be made, or may not be used.
pub(super) async fn may_be_made(session: &Session, table: &Table) -> Result<()> {
    if are_there(session, table).await? {
        return may_be_used(session, table).await;
    }
    if !table.create {
        return Err(without(session, table, NOT_OURS.to_owned()));
    }
    let may: Option<bool> = session
        .value(
            "SELECT has_schema_privilege(oid, 'CREATE') FROM pg_catalog.pg_namespace WHERE nspname = $1",
            &[(&table.side_schema, Type::TEXT)],
        )
        .await?;
    let why = match may {
        Some(true) => return Ok(()),
        Some(false) => "; the user of `source` may not make them there",
        None => "; there is no such schema",
    };
    Err(without(session, table, why.to_owned()))
}

const NOT_OURS: &str = ", and `side_tables.create` is false";

fn without(session: &Session, table: &Table, why: String) -> SourceError {
    SourceError::NoSideTables {
        place: format!("schema `{}` of {}", table.side_schema, session.server),
        why,
    }
}

// === who comes first ===

impl Table {
    /// Begins a transaction about one batch: takes the source together with others, and the batch alone.
    pub(super) fn sql_take_batch(&self, batch: &str) -> String {
        let (source, batch) = (self.lock(), lock_of(&format!("{}/{batch}", self.intent)));
        format!(
            "SELECT pg_advisory_xact_lock_shared({source}); SELECT pg_advisory_xact_lock({batch});"
        )
    }

    /// Begins a transaction about a whole source.
    pub(super) fn sql_take_source(&self) -> String {
        format!("SELECT pg_advisory_xact_lock({});", self.lock())
    }

    fn lock(&self) -> i64 {
        lock_of(&format!("{}/{}", self.sources, self.source))
    }
}

/// The number of a lock. Two names with one number wait for each other, which does no harm.
fn lock_of(name: &str) -> i64 {
    let name = format!("watchkeeper/{name}");
    i64::from_be_bytes(fnv1a(name.bytes()).to_be_bytes())
}

// === the source ===

/// The layout in force and the database's own name, if the table was ever served.
pub(super) async fn settled(session: &Session, table: &Table) -> Result<Option<Settled>> {
    let found = session
        .query(
            &format!(
                "SELECT version, layout, name FROM {} WHERE source = $1",
                table.sources
            ),
            &[(&table.source, Type::TEXT)],
        )
        .await?;
    let Some(row) = found.first() else {
        return Ok(None);
    };
    let (version, word): (i32, String) = (get(row, 0)?, get(row, 1)?);
    if version != VERSION {
        return Err(SourceError::Unreadable(format!("version {version}")));
    }
    match Layout::parse(&word) {
        Some(layout) => Ok(Some(Settled {
            layout,
            database: get(row, 2)?,
        })),
        None => Err(SourceError::Unreadable(word)),
    }
}

/// The same, written down at the first time. Within a transaction.
pub(super) async fn settle(session: &Session, table: &Table) -> Result<Settled> {
    if let Some(settled) = settled(session, table).await? {
        return Ok(settled);
    }
    // One name for all that is in these side tables: whoever comes first gives it.
    let lock = lock_of(&format!("schema/{}", table.side_schema));
    session
        .batch(&format!("SELECT pg_advisory_xact_lock({lock})"))
        .await?;
    let name: String = Chance::system().id().chars().take(16).collect();
    session
        .execute(
            &format!(
                "INSERT INTO {0} (source, version, name, layout, doubted)
                 VALUES ($1, $2, coalesce((SELECT name FROM {0} LIMIT 1), $3), $4, 0) ON CONFLICT (source) DO NOTHING",
                table.sources
            ),
            &[
                (&table.source, Type::TEXT),
                (&VERSION, Type::INT4),
                (&name, Type::TEXT),
                (&table.layout.to_string(), Type::TEXT),
            ],
        )
        .await?;
    let settled = settled(session, table).await?;
    settled.ok_or(SourceError::Unfinished)
}

/// The layout in force, and whether the configured one is to take its place now: while no batch is open. Within a transaction that holds
/// the source.
pub(super) async fn is_to_change(session: &Session, table: &Table) -> Result<(Settled, bool)> {
    let settled = settle(session, table).await?;
    let is_another = settled.layout != table.layout;
    let changes = is_another && open_batches(session, table).await? == 0;
    Ok((settled, changes))
}

/// What the side table says of recipients is brought up to the parameters, a portion from the item `from` on. Where it goes on; none at
/// the end. Within a transaction that holds the source.
pub(super) async fn bring_up(
    session: &Session,
    table: &Table,
    from: &str,
) -> Result<Option<String>> {
    let recipient = table.sql_recipient_of_item();
    let which = match table.order {
        // An index has those that name one, and what is brought up is not among them any more.
        None => "AND recipient IS NOT NULL",
        Some(_) => "ORDER BY item",
    };
    let found = session
        .query(
            &format!(
                "WITH portion AS MATERIALIZED (SELECT item FROM {delivery} WHERE source = $1 AND item >= $2 {which} LIMIT {PORTION}),
                 changed AS (UPDATE {delivery} AS d SET recipient = {recipient} FROM portion AS p
                     WHERE d.source = $1 AND d.item = p.item AND d.recipient IS DISTINCT FROM {recipient})
                 SELECT max(item), count(*) FROM portion",
                delivery = table.delivery,
            ),
            &[(&table.source, Type::TEXT), (&from, Type::TEXT)],
        )
        .await?;
    let found = found.first().ok_or(SourceError::Unfinished)?;
    let (last, items): (Option<String>, i64) = (get(found, 0)?, get(found, 1)?);
    Ok(match table.order {
        _ if items < PORTION => None,
        None => Some(String::new()),
        Some(_) => last,
    })
}

/// Puts the configured layout in force while no batch is open; says which is. Within a transaction that holds the source.
pub(super) async fn put_in_force(session: &Session, table: &Table) -> Result<Settled> {
    let (settled, changes) = is_to_change(session, table).await?;
    if !changes {
        return Ok(settled);
    }
    session
        .execute(
            &format!("UPDATE {} SET layout = $2 WHERE source = $1", table.sources),
            &[
                (&table.source, Type::TEXT),
                (&table.layout.to_string(), Type::TEXT),
            ],
        )
        .await?;
    // What was written since the portions: few rows, if any.
    let which = match table.order {
        None => "IS NOT NULL".to_owned(),
        Some(_) => format!("IS DISTINCT FROM {}", table.sql_recipient_of_item()),
    };
    session
        .execute(
            &format!(
                "UPDATE {} AS d SET recipient = {} WHERE d.source = $1 AND d.recipient {which}",
                table.delivery,
                table.sql_recipient_of_item()
            ),
            &[(&table.source, Type::TEXT)],
        )
        .await?;
    Ok(Settled {
        layout: table.layout,
        ..settled
    })
}

pub(super) async fn count_doubts(session: &Session, table: &Table, doubts: u64) -> Result<()> {
    if doubts > 0 {
        let doubts = i64::try_from(doubts).unwrap_or(i64::MAX);
        session
            .execute(
                &format!(
                    "UPDATE {} SET doubted = doubted + $2 WHERE source = $1",
                    table.sources
                ),
                &[(&table.source, Type::TEXT), (&doubts, Type::INT8)],
            )
            .await?;
    }
    Ok(())
}

/// Doubts recorded since the table was first served; none when it never was.
pub(super) async fn doubted_ever(session: &Session, table: &Table) -> Result<Option<u64>> {
    let doubted: Option<i64> = session
        .value(
            &format!("SELECT doubted FROM {} WHERE source = $1", table.sources),
            &[(&table.source, Type::TEXT)],
        )
        .await?;
    Ok(doubted.map(i64::unsigned_abs))
}

// === intents ===

/// Who is about to send which items of a batch.
pub(super) async fn intent(
    session: &Session,
    table: &Table,
    batch: &str,
) -> Result<Option<Intent>> {
    let found = session
        .query(
            &format!(
                "SELECT token, items::text, job FROM {} WHERE source = $1 AND batch = $2",
                table.intent
            ),
            &[(&table.source, Type::TEXT), (&batch, Type::TEXT)],
        )
        .await?;
    let Some(row) = found.first() else {
        return Ok(None);
    };
    Ok(Some(Intent {
        job: get(row, 2)?,
        token: token(row, 0)?,
        items: named(get(row, 1)?)?,
    }))
}

/// All items that stand in an intent.
pub(super) async fn being_sent(session: &Session, table: &Table) -> Result<Vec<ItemId>> {
    let found = session
        .query(
            &format!("SELECT items::text FROM {} WHERE source = $1", table.intent),
            &[(&table.source, Type::TEXT)],
        )
        .await?;
    let mut all = Vec::new();
    for row in &found {
        all.extend(named(get(row, 0)?)?.ids().cloned());
    }
    Ok(all)
}

fn named(text: String) -> Result<Named> {
    serde_json::from_str(&text).map_err(|_| SourceError::Unreadable(text))
}

pub(super) async fn write_intent(
    session: &Session,
    table: &Table,
    batch: &str,
    job: &str,
    token: Token,
    items: &Named,
    now_ms: i64,
) -> Result<()> {
    let items = serde_json::to_string(items).map_err(|_| SourceError::Unfinished)?;
    session
        .execute(
            &format!(
                "INSERT INTO {} (source, batch, job, token, items, written_at)
                 VALUES ($1, $2, $6, $3, $4::text::jsonb, to_timestamp($5::bigint / 1000.0))
                 ON CONFLICT (source, batch) DO UPDATE SET job = excluded.job,
                     token = excluded.token, items = excluded.items, written_at = excluded.written_at",
                table.intent
            ),
            &[
                (&table.source, Type::TEXT),
                (&batch, Type::TEXT),
                (&integer(token), Type::INT8),
                (&items, Type::TEXT),
                (&now_ms, Type::INT8),
                (&job, Type::TEXT),
            ],
        )
        .await?;
    Ok(())
}

/// From now on the intent of a batch names these alone.
pub(super) async fn narrow_intent(
    session: &Session,
    table: &Table,
    batch: &str,
    items: &Named,
) -> Result<()> {
    let items = serde_json::to_string(items).map_err(|_| SourceError::Unfinished)?;
    session
        .execute(
            &format!(
                "UPDATE {} SET items = $3::text::jsonb WHERE source = $1 AND batch = $2",
                table.intent
            ),
            &[
                (&table.source, Type::TEXT),
                (&batch, Type::TEXT),
                (&items, Type::TEXT),
            ],
        )
        .await?;
    Ok(())
}

pub(super) async fn remove_intent(session: &Session, table: &Table, batch: &str) -> Result<()> {
    session
        .execute(
            &format!(
                "DELETE FROM {} WHERE source = $1 AND batch = $2",
                table.intent
            ),
            &[(&table.source, Type::TEXT), (&batch, Type::TEXT)],
        )
        .await?;
    Ok(())
}

/// Batches that are being sent, or whose sender died in the act.
pub(super) async fn open_batches(session: &Session, table: &Table) -> Result<u64> {
    let open: Option<i64> = session
        .value(
            &format!("SELECT count(*) FROM {} WHERE source = $1", table.intent),
            &[(&table.source, Type::TEXT)],
        )
        .await?;
    Ok(open.unwrap_or(0).unsigned_abs())
}

/// Names of batches in which a sender wrote an intent.
pub(super) async fn open_intents(
    session: &Session,
    table: &Table,
    limit: usize,
) -> Result<Vec<String>> {
    let found = session
        .query(
            &format!(
                "SELECT batch FROM {} WHERE source = $1 ORDER BY batch LIMIT $2",
                table.intent
            ),
            &[(&table.source, Type::TEXT), (&count(limit), Type::INT8)],
        )
        .await?;
    found.iter().map(|row| get(row, 0)).collect()
}

// === exceptions ===

/// Writes rows of the side table, one for each item.
pub(super) async fn record(
    session: &Session,
    table: &Table,
    records: &[Record<'_>],
    now_ms: i64,
) -> Result<()> {
    if records.is_empty() {
        return Ok(());
    }
    let number = |id: &ItemId| match id {
        ItemId::Int(id) => Some(*id),
        ItemId::Text(_) => None,
    };
    let each = || records.iter();
    let items: Vec<String> = each().map(|r| r.id.to_string()).collect();
    let numbers: Vec<Option<i64>> = each().map(|r| number(r.id)).collect();
    let states: Vec<&str> = each().map(|r| r.exception.state.word()).collect();
    let attempts = each().map(|r| i32::try_from(r.exception.attempts).unwrap_or(i32::MAX));
    let attempts: Vec<i32> = attempts.collect();
    let not_before: Vec<i64> = each().map(|r| r.exception.not_before_ms).collect();
    // The one character that the database takes in no text.
    let reasons: Vec<String> = each()
        .map(|r| r.exception.reason.replace('\0', "\u{fffd}"))
        .collect();
    let tokens: Vec<i64> = each().map(|r| integer(r.token)).collect();
    let batches: Vec<&str> = each().map(|r| r.batch).collect();
    session
        .execute(
            &format!(
                "INSERT INTO {} AS w (source, item, number, state, attempts, not_before, reason, token, batch, updated_at, recipient)
                 SELECT $1, d.*, to_timestamp($10::bigint / 1000.0), {recipient} FROM unnest
                     ($2::text[], $3::bigint[], $4::text[], $5::int[], $6::bigint[], $7::text[], $8::bigint[], $9::text[])
                     AS d(item, number, state, attempts, not_before, reason, token, batch)
                 ON CONFLICT (source, item) DO UPDATE SET
                     number = excluded.number, recipient = excluded.recipient, state = excluded.state, attempts = excluded.attempts,
                     digest = CASE WHEN excluded.state IN ('in_doubt', 'parked') THEN w.digest END,
                     not_before = excluded.not_before, reason = excluded.reason, token = excluded.token,
                     batch = excluded.batch, updated_at = excluded.updated_at",
                table.delivery,
                recipient = table.sql_recipient_of_item(),
            ),
            &[
                (&table.source, Type::TEXT),
                (&items, Type::TEXT_ARRAY),
                (&numbers, Type::INT8_ARRAY),
                (&states, Type::TEXT_ARRAY),
                (&attempts, Type::INT4_ARRAY),
                (&not_before, Type::INT8_ARRAY),
                (&reasons, Type::TEXT_ARRAY),
                (&tokens, Type::INT8_ARRAY),
                (&batches, Type::TEXT_ARRAY),
                (&now_ms, Type::INT8),
            ],
        )
        .await?;
    Ok(())
}

/// Notes which rows may have been received as one message: those of them that are in doubt now, or parked.
pub(super) async fn note_digests(session: &Session, table: &Table, named: &Named) -> Result<()> {
    for ids in named.digests() {
        let items: Vec<String> = ids.iter().map(ToString::to_string).collect();
        session
            .execute(
                &format!(
                    "UPDATE {} SET digest = $3 WHERE source = $1 AND item = ANY ($2) AND state IN ('in_doubt', 'parked')",
                    table.delivery
                ),
                &[
                    (&table.source, Type::TEXT),
                    (&items, Type::TEXT_ARRAY),
                    (&digest_name::name_of(ids), Type::TEXT),
                ],
            )
            .await?;
    }
    Ok(())
}

/// From now on each of these goes alone, where there are no messages of several rows.
pub(super) async fn forget_digests(
    session: &Session,
    table: &Table,
    ids: &[&ItemId],
) -> Result<()> {
    if ids.is_empty() || table.digest.is_some() {
        return Ok(());
    }
    let items: Vec<String> = ids.iter().map(ToString::to_string).collect();
    session
        .execute(
            &format!(
                "UPDATE {} SET digest = NULL WHERE source = $1 AND item = ANY ($2) AND digest IS NOT NULL",
                table.delivery
            ),
            &[(&table.source, Type::TEXT), (&items, Type::TEXT_ARRAY)],
        )
        .await?;
    Ok(())
}

pub(super) async fn forget(session: &Session, table: &Table, ids: &[ItemId]) -> Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let items: Vec<String> = ids.iter().map(ToString::to_string).collect();
    session
        .execute(
            &format!(
                "DELETE FROM {} WHERE source = $1 AND item = ANY ($2)",
                table.delivery
            ),
            &[(&table.source, Type::TEXT), (&items, Type::TEXT_ARRAY)],
        )
        .await?;
    Ok(())
}

/// Items of the side table by state. Asks nothing of the user's table.
pub(super) async fn counts(session: &Session, table: &Table) -> Result<Counts> {
    let found = session
        .query(
            &format!(
                "SELECT state, count(*) FROM {} WHERE source = $1 GROUP BY state",
                table.delivery
            ),
            &[(&table.source, Type::TEXT)],
        )
        .await?;
    counted(&found)
}

/// What was counted: a state and a number in each row.
pub(super) fn counted(rows: &[Row]) -> Result<Counts> {
    let mut counts = Counts::default();
    for row in rows {
        let n: i64 = get(row, 1)?;
        *counts.of_mut(state_of(get(row, 0)?)?) += n.unsigned_abs();
    }
    Ok(counts)
}

/// The exception that starts at column `at` of a row: state, attempts, not_before, reason. None where there is none.
pub(super) fn exception(row: &Row, at: usize) -> Result<Option<Exception>> {
    let Some(word) = get::<Option<String>>(row, at)? else {
        return Ok(None);
    };
    let attempts: i32 = get(row, at + 1)?;
    Ok(Some(Exception {
        state: state_of(word)?,
        attempts: u32::try_from(attempts.max(0)).unwrap_or(u32::MAX),
        not_before_ms: get(row, at + 2)?,
        reason: get(row, at + 3)?,
        doubted: false,
    }))
}

fn state_of(word: String) -> Result<State> {
    State::parse(&word).ok_or(SourceError::Unreadable(word))
}

pub(super) fn token(row: &Row, at: usize) -> Result<Token> {
    Ok(Token(get::<i64>(row, at)?.unsigned_abs()))
}

/// Tokens stay far below 2^63.
fn integer(token: Token) -> i64 {
    i64::try_from(token.0).unwrap_or(i64::MAX)
}

/// For a `LIMIT`.
pub(super) fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// What makes the schema of the side tables, where that is not the table's own.
pub(super) fn schema_ddl(schema: &str) -> String {
    format!("CREATE SCHEMA IF NOT EXISTS {};\n", quoted(schema))
}

/// What announces new rows on a channel. Printed alone: the user's table gets no trigger from here.
pub(super) fn announcing_ddl(table: &Table, channel: &str) -> String {
    let function = qualified(&table.side_schema, ANNOUNCE);
    format!(
        "CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_notify(TG_ARGV[0], ''''); RETURN NULL; END';
DROP TRIGGER IF EXISTS {ANNOUNCE} ON {table};
CREATE TRIGGER {ANNOUNCE} AFTER INSERT ON {table} FOR EACH STATEMENT
    EXECUTE FUNCTION {function}('{channel}');
",
        table = table.sql_name,
    )
}
