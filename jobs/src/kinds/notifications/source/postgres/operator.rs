//! A person's hands on the side tables in PostgreSQL, beside running senders.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use async_trait::async_trait;
use serde_json::Value;
use tokio_postgres::{Row, types::Type};
use watchkeeper::{
    clock::Clock,
    node::{Token, postgres::address::PgAddress},
};

use super::{
    index,
    rows::{self, RowLookup},
    session::{COUNTING, STATEMENT, Session, get},
    side::{self, Record, count, exception},
    table::{self, Table, Wanted},
};
use crate::notifications::{
    cell::{ItemId, Layout, idempotency_key},
    delivery::State,
    operator::{
        Change, Did, Entry, Facts, Noted, Operator, RowState, Step, TableStatus, to_discard,
        to_park, to_retry,
    },
    params::NotificationsParams,
    source::{Counts, Result, SourceError, table::quoted},
};

/// Counts, lists and changes what stands beside one table.
pub(crate) struct PgOperator {
    session: Session,
    table: Table,
    clock: Clock,
    /// The side tables are there.
    served: bool,
    to_change: bool,
}

// === impl PgOperator ===

impl PgOperator {
    /// Opens the table that `params` names. Writes nothing yet.
    pub(crate) async fn open(
        address: PgAddress,
        params: &NotificationsParams,
        to_change: bool,
    ) -> Result<Self> {
        let clock = Clock::system();
        let session = Session::connect(&address, &clock).await?;
        let table = table::inspect(&session, &Wanted::new(params)).await?;
        let served = side::are_there(&session, &table).await?;
        Ok(Self {
            session,
            table,
            clock,
            served,
            to_change,
        })
    }

    /// Begins a transaction that can write, where that was asked for. Said within it and not of the connection, which a pooler
    /// may give to others.
    async fn begin(&self, limit: Duration, first: &str) -> Result<()> {
        match self.to_change {
            true => self.session.begin(limit, first).await,
            false => self.session.begin_to_read(limit).await,
        }
    }

    /// The SQL that makes the side tables, what announces new rows where that is wanted, and the index.
    pub(crate) fn schema(&self, params: &NotificationsParams) -> String {
        let schema = &self.table.side_schema;
        let own = params
            .side_tables
            .schema
            .as_ref()
            .map(|_| side::schema_ddl(schema));
        let announces = params.listen.as_ref();
        let announces = announces.map(|channel| side::announcing_ddl(&self.table, channel));
        format!(
            "{}{}{}{}\n",
            own.unwrap_or_default(),
            side::ddl(schema),
            announces.unwrap_or_default(),
            index::ddl(&self.table)
        )
    }

    /// Carries orders out in one transaction, as `decide` says.
    async fn orders(&mut self, ids: &[ItemId], decide: fn(&Facts) -> Change) -> Result<Vec<Did>> {
        self.begin(STATEMENT, &self.table.sql_take_source()).await?;
        let dids = self.order(ids, decide).await?;
        let committed = self.session.commit().await;
        committed.map_err(SourceError::of_commit)?;
        Ok(dids)
    }

    /// What to do about side tables that take no discarded items.
    fn told_of_old(&self, error: SourceError) -> SourceError {
        let delivery = &self.table.delivery;
        match error.is_of_state() {
            true => SourceError::OldSideTables {
                place: delivery.clone(),
                remedy: format!(
                    "have its owner run: ALTER TABLE {delivery} DROP CONSTRAINT watchkeeper_delivery_state_check, \
                     ADD CONSTRAINT watchkeeper_delivery_state_check \
                     CHECK (state IN ('retry', 'dead', 'in_doubt', 'parked', 'discarded'))"
                ),
            },
            false => error,
        }
    }

    /// The same for up to `items` items of a state, those behind `after`.
    async fn step(
        &mut self,
        state: State,
        after: Option<&ItemId>,
        items: usize,
        decide: fn(&Facts) -> Change,
        stays: bool,
    ) -> Result<Step> {
        if !self.served {
            return Ok(Step::default());
        }
        self.begin(STATEMENT, &self.table.sql_take_source()).await?;
        // Others wait from here on.
        let began = self.clock.now();
        let mut step = Step::default();
        let found = self.of_state(state, after, items, "").await?;
        let ids = found.iter().map(|row| self.table.id.get(row, 0));
        let mut ids: Vec<ItemId> = ids.collect::<Result<_>>()?;
        step.last = ids.last().cloned();
        let asked = ids.len();
        ids.extend(self.rest_of_digests(&ids, state).await?);
        for (i, did) in self.order(&ids, decide).await?.into_iter().enumerate() {
            match i < asked {
                true => step.count(did),
                false => step.count_along(stays, did),
            }
        }
        let committed = self.session.commit().await;
        committed.map_err(SourceError::of_commit)?;
        step.took = self.clock.now().since(began);
        Ok(step)
    }

    /// Carries orders out within a transaction, as `decide` says.
    async fn order(&self, ids: &[ItemId], decide: fn(&Facts) -> Change) -> Result<Vec<Did>> {
        let (session, table) = (&self.session, &self.table);
        let settled = side::settle(session, table).await?;
        let sending: BTreeSet<ItemId> = side::being_sent(session, table)
            .await?
            .into_iter()
            .collect();
        let found = rows::look_up(session, table, ids).await?;
        let mut noted = self.noted(ids).await?;
        let now_ms = self.clock.wall().as_millisecond();
        let (mut dids, mut forgotten, mut written) = (Vec::new(), Vec::new(), Vec::new());
        for id in ids {
            let facts = Facts {
                sending: sending.contains(id),
                unsent: found.get(id).is_some_and(|row| row.unsent),
                noted: noted.remove(id),
            };
            let change = decide(&facts);
            dids.push(change.did());
            match change {
                Change::Leave(_) => {}
                Change::Forget => forgotten.push(id.clone()),
                Change::Write(exception) => written.push((id, exception, facts.noted)),
            }
        }
        side::forget(session, table, &forgotten).await?;
        let unbegun: Vec<ItemId> = written
            .iter()
            .filter(|(_, _, noted)| noted.is_none())
            .map(|(id, ..)| (*id).clone())
            .collect();
        let batches = self.batches_of(settled.layout, &unbegun).await?;
        let records: Vec<Record<'_>> = written
            .iter()
            .map(|(id, exception, noted)| Record {
                id,
                exception,
                token: noted.as_ref().map_or(Token(0), |noted| noted.token),
                batch: match noted {
                    Some(noted) => &noted.batch,
                    None => batches.get(id).map_or("", String::as_str),
                },
            })
            .collect();
        side::record(session, table, &records, now_ms).await?;
        let again = records
            .iter()
            .filter(|r| r.exception.state != State::Parked);
        let again: Vec<&ItemId> = again.map(|r| r.id).collect();
        side::forget_digests(session, table, &again).await?;
        Ok(dids)
    }

    async fn noted(&self, ids: &[ItemId]) -> Result<BTreeMap<ItemId, Noted>> {
        let items: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let found = self
            .session
            .query(
                &format!(
                    "SELECT state, attempts, not_before, reason, token, batch, item FROM {}
                     WHERE source = $1 AND item = ANY ($2)",
                    self.table.delivery
                ),
                &[(&self.table.source, Type::TEXT), (&items, Type::TEXT_ARRAY)],
            )
            .await?;
        let mut noted = BTreeMap::new();
        for row in &found {
            let item: String = get(row, 6)?;
            if let (Some(exception), Some(id)) = (exception(row, 0)?, self.table.id.read(&item)) {
                let (token, batch) = (side::token(row, 4)?, get(row, 5)?);
                noted.insert(
                    id,
                    Noted {
                        exception,
                        token,
                        batch,
                    },
                );
            }
        }
        Ok(noted)
    }

    /// The batches that rows belong to.
    async fn batches_of(&self, layout: Layout, ids: &[ItemId]) -> Result<BTreeMap<ItemId, String>> {
        let table = &self.table;
        let Some(bucket) = table.sql_bucket(layout) else {
            let of = |id: &ItemId| Some((id.clone(), table.batch(layout, layout.cell_of(id)?)));
            return Ok(ids.iter().filter_map(of).collect());
        };
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let any = table.sql_any(1);
        let found = self
            .session
            .query(
                &format!(
                    "SELECT {}, {bucket} FROM {} AS n WHERE n.{} = {any}",
                    table.sql_read_id(),
                    table.sql_name,
                    table.sql_id
                ),
                &[(&*table.id.many(ids), table.id.array())],
            )
            .await?;
        let of = |row: &Row| Ok((table.id.get(row, 0)?, table.batch(layout, get(row, 1)?)));
        found.iter().map(of).collect()
    }

    /// A row that comes without an id must not get one that was imported. The sequence behind a column, if there is one, goes on
    /// behind `last`, and never back.
    async fn move_sequence_past(&self, last: i64) -> Result<()> {
        let table = &self.table;
        self.session
            .query(
                "SELECT setval(s.seq, $1) FROM (SELECT pg_get_serial_sequence($2, (parse_ident($3))[1])::regclass AS seq) AS s
                 JOIN pg_catalog.pg_sequence AS q ON q.seqrelid = s.seq
                 WHERE q.seqincrement > 0 AND $1 <= q.seqmax
                 AND $1 > coalesce(pg_sequence_last_value(s.seq), q.seqstart - 1)",
                &[
                    (&last, Type::INT8),
                    (&table.sql_name, Type::TEXT),
                    (&table.sql_id, Type::TEXT),
                ],
            )
            .await?;
        Ok(())
    }

    /// Ids of a state, from the first behind `after` on; `more` columns behind them.
    async fn of_state(
        &self,
        state: State,
        after: Option<&ItemId>,
        limit: usize,
        more: &str,
    ) -> Result<Vec<Row>> {
        let (behind, place): (&str, Option<String>) = match (after, self.table.id) {
            (None, _) => ("$3::text IS NULL", None),
            (Some(id), table::IdType::Int) => ("number > $3::text::bigint", Some(id.to_string())),
            (Some(id), _) => ("item COLLATE \"C\" > $3::text", Some(id.to_string())),
        };
        // What was written by hand under something that is no id is no item.
        let usable = match self.table.id {
            table::IdType::Int => "number IS NOT NULL",
            table::IdType::Uuid => "item ~ '^[0-9a-f-]{36}$'",
            table::IdType::Text => "true",
        };
        let item = match self.table.id {
            table::IdType::Int => "number",
            _ => "item",
        };
        self.session
            .query(
                &format!(
                    "SELECT {item}{more} FROM {} WHERE source = $1 AND state = $2 AND {behind} AND {usable}
                     ORDER BY number, item COLLATE \"C\" LIMIT $4",
                    self.table.delivery
                ),
                &[
                    (&self.table.source, Type::TEXT),
                    (&state.word(), Type::TEXT),
                    (&place, Type::TEXT),
                    (&count(limit), Type::INT8),
                ],
            )
            .await
    }

    /// Other items of a state that may have been received as one message with one of these.
    async fn rest_of_digests(&self, ids: &[ItemId], state: State) -> Result<Vec<ItemId>> {
        // Without digests their rows go alone.
        if ids.is_empty() || self.table.digest.is_none() {
            return Ok(Vec::new());
        }
        let items: Vec<String> = ids.iter().map(ToString::to_string).collect();
        // They are of one recipient, by which an index finds them; where that is not known any more all of the state are read.
        let of = |by: &str| {
            format!(
                "SELECT e.item FROM {0} AS d JOIN {0} AS e ON e.source = d.source AND e.digest = d.digest AND e.state = $3 AND {by}
                 WHERE d.source = $1 AND d.item = ANY ($2) AND d.digest NOT LIKE '1-%' AND e.item <> ALL ($2)",
                self.table.delivery
            )
        };
        let found = self
            .session
            .query(
                &format!(
                    "{} UNION {}",
                    of("e.recipient = d.recipient"),
                    of("d.recipient IS NULL")
                ),
                &[
                    (&self.table.source, Type::TEXT),
                    (&items, Type::TEXT_ARRAY),
                    (&state.word(), Type::TEXT),
                ],
            )
            .await?;
        let mut rest = Vec::with_capacity(found.len());
        for row in &found {
            rest.extend(self.table.id.read(&get::<String>(row, 0)?));
        }
        Ok(rest)
    }

    async fn entries(
        &self,
        states: &[State],
        after: Option<&ItemId>,
        limit: usize,
    ) -> Result<Vec<Entry>> {
        let (session, table) = (&self.session, &self.table);
        let Some(settled) = side::settled(session, table).await? else {
            return Ok(Vec::new());
        };
        let more = ", state, attempts, not_before, reason, token, batch,
            to_char(updated_at, 'YYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')";
        let mut entries = Vec::new();
        // State by state, so that each question is a walk along an index, whatever there is of the other states.
        for state in states {
            for row in self.of_state(*state, after, limit, more).await? {
                let id = table.id.get(&row, 0)?;
                if let Some(exception) = exception(&row, 1)? {
                    entries.push(Entry {
                        key: idempotency_key(&settled.database, &table.source, &id),
                        id,
                        exception,
                        token: side::token(&row, 5)?,
                        batch: get(&row, 6)?,
                        updated: get(&row, 7)?,
                        row: RowState::Gone,
                    });
                }
            }
        }
        entries.sort_by(|a, b| a.id.cmp(&b.id));
        entries.truncate(limit);
        let ids: Vec<ItemId> = entries.iter().map(|entry| entry.id.clone()).collect();
        let found = rows::look_up(session, table, &ids).await?;
        for entry in &mut entries {
            entry.row = found.get(&entry.id).map_or(RowState::Gone, row_state);
        }
        Ok(entries)
    }
}

/// An integer, or the text of one.
fn number(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_i64(),
    }
}

fn row_state(row: &RowLookup) -> RowState {
    match (row.there, row.unsent) {
        (false, _) => RowState::Gone,
        (true, true) => RowState::Unsent,
        (true, false) => RowState::Sent,
    }
}

#[async_trait]
impl Operator for PgOperator {
    async fn status(&mut self) -> Result<TableStatus> {
        let (session, table) = (&self.session, &self.table);
        session.begin_to_read(COUNTING).await?;
        let status = if self.served {
            let doubted = side::doubted_ever(session, table).await?;
            TableStatus {
                served: doubted.is_some(),
                backlog: rows::backlog(session, table).await?.items,
                items: side::counts(session, table).await?,
                sending: side::open_batches(session, table).await?,
                doubted_ever: doubted.unwrap_or(0),
            }
        } else {
            TableStatus {
                backlog: rows::unsent(session, table).await?,
                items: Counts::default(),
                ..TableStatus::default()
            }
        };
        session.commit().await?;
        Ok(status)
    }

    async fn list(
        &mut self,
        states: &[State],
        after: Option<&ItemId>,
        limit: usize,
    ) -> Result<Vec<Entry>> {
        if !self.served {
            return Ok(Vec::new());
        }
        self.session.begin_to_read(STATEMENT).await?;
        let entries = self.entries(states, after, limit).await?;
        self.session.commit().await?;
        Ok(entries)
    }

    async fn find(&mut self, word: &str) -> Result<Option<ItemId>> {
        let Some(id) = self.table.id.read(word) else {
            return Ok(None);
        };
        let ids = [id];
        self.session.begin_to_read(STATEMENT).await?;
        let found = if self.served {
            let found = rows::look_up(&self.session, &self.table, &ids).await?;
            let known = |row: &RowLookup| row.there || row.prior.is_some();
            found.get(&ids[0]).is_some_and(known)
        } else {
            rows::is_there(&self.session, &self.table, &ids[0])
                .await?
                .is_some()
        };
        self.session.commit().await?;
        let [id] = ids;
        Ok(found.then_some(id))
    }

    async fn place(&mut self, word: &str) -> Result<ItemId> {
        let place = self.table.id.read(word);
        Ok(place.unwrap_or_else(|| ItemId::Text(word.replace('\0', ""))))
    }

    async fn retry(&mut self, ids: &[ItemId]) -> Result<Vec<Did>> {
        if self.served {
            return self.orders(ids, to_retry).await;
        }
        let mut dids = Vec::new();
        for id in ids {
            let unsent = rows::is_there(&self.session, &self.table, id).await?;
            dids.push(match unsent {
                Some(true) => Did::AsItIs,
                Some(false) | None => Did::Unknown,
            });
        }
        Ok(dids)
    }

    async fn retry_step(
        &mut self,
        state: State,
        after: Option<&ItemId>,
        items: usize,
    ) -> Result<Step> {
        self.step(state, after, items, to_retry, state == State::InDoubt)
            .await
    }

    async fn discard_step(
        &mut self,
        state: State,
        after: Option<&ItemId>,
        items: usize,
    ) -> Result<Step> {
        let step = self.step(state, after, items, to_discard, false).await;
        step.map_err(|error| self.told_of_old(error))
    }

    async fn import(&mut self, columns: &[String], rows: Vec<Value>) -> Result<u64> {
        let (session, table) = (&self.session, &self.table);
        let names = columns.iter().map(|c| quoted(c));
        let names = names.collect::<Vec<_>>().join(", ");
        let has_id = columns.iter().any(|c| quoted(c) == table.sql_id);
        let (given, known) = match has_id {
            true => (
                " OVERRIDING SYSTEM VALUE",
                format!(" ON CONFLICT ({}) DO NOTHING", table.sql_id),
            ),
            false => ("", String::new()),
        };
        // The server reads each text as its column's type does.
        let sql = format!(
            "INSERT INTO {0} ({names}){given}
             SELECT {names} FROM json_populate_recordset(NULL::{0}, $1::text::json){known}",
            table.sql_name
        );
        let last = columns
            .iter()
            .find(|c| quoted(c) == table.sql_id)
            .and_then(|id| rows.iter().filter_map(|row| number(&row[id])).max());
        let rows = Value::Array(rows).to_string();
        self.begin(COUNTING, "").await?;
        let inserting = async {
            let imported = session.execute(&sql, &[(&rows, Type::TEXT)]).await?;
            if let Some(last) = last {
                self.move_sequence_past(last).await?;
            }
            Ok(imported)
        };
        match inserting.await {
            Ok(imported) => {
                let committed = session.commit().await;
                committed.map_err(SourceError::of_commit)?;
                Ok(imported)
            }
            Err(error) => {
                // Where only a row is at fault the connection goes on with others; else the error that came first is told.
                _ = session.roll_back().await;
                Err(error)
            }
        }
    }

    async fn look(&mut self) -> Result<Option<String>> {
        side::may_be_made(&self.session, &self.table).await?;
        index::missing(&self.session, &self.table).await
    }

    async fn park(&mut self, ids: &[ItemId]) -> Result<Vec<Did>> {
        side::make(&self.session, &self.table).await?;
        self.served = true;
        self.orders(ids, to_park).await
    }

    async fn discard(&mut self, ids: &[ItemId]) -> Result<Vec<Did>> {
        side::make(&self.session, &self.table).await?;
        self.served = true;
        let orders = self.orders(ids, to_discard).await;
        orders.map_err(|error| self.told_of_old(error))
    }
}

impl std::fmt::Debug for PgOperator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PgOperator")
            .field("table", &self.table)
            .finish_non_exhaustive()
    }
}
