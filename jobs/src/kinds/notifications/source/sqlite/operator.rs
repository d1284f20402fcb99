//! A person's hands on the side table of an SQLite file, beside running senders.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params, types::FromSql};
use serde_json::Value;
use watchkeeper::{clock::Clock, node::Token};

use super::{
    cells, rows,
    schema::{self, Table, Wanted},
    side::{
        counts, doubted_ever, exception_of, forget, forget_digest, immediate, intent, open_batches,
        record,
    },
};
use crate::notifications::{
    cell::{ItemId, Layout, idempotency_key},
    delivery::State,
    operator::{
        Change, Did, Entry, Facts, Noted, Operator, RowState, Step, TableStatus, to_discard,
        to_park, to_retry,
    },
    params::NotificationsParams,
    source::{Result, SourceError, table::quoted},
};

/// Counts, lists and changes what stands beside one table.
#[derive(Debug)]
pub(crate) struct SqliteOperator {
    conn: Connection,
    table: Table,
    clock: Clock,
}

/// Which items are being sent, read batch by batch within one transaction.
struct Sending<'t> {
    tx: &'t Connection,
    table: &'t Table,
    layout: Layout,
    read: BTreeMap<Option<i64>, BTreeSet<ItemId>>,
}

// === impl SqliteOperator ===

impl SqliteOperator {
    /// Opens the table that `params` names, in the file at `path`, to look: the connection cannot write.
    ///
    /// # Errors
    /// [`SourceError`], when there is no such file or table.
    pub(crate) fn look(path: &Path, params: &NotificationsParams) -> Result<Self, SourceError> {
        let operator = Self::change(path, params)?;
        operator.conn.pragma_update(None, "query_only", true)?;
        Ok(operator)
    }

    /// The same, to change something. Writes nothing yet.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn change(path: &Path, params: &NotificationsParams) -> Result<Self, SourceError> {
        let conn = schema::open(path)?;
        let table = schema::inspect(&conn, &Wanted::new(path.to_owned(), params))?;
        Ok(Self {
            conn,
            table,
            clock: Clock::system(),
        })
    }

    /// The statements that make the indexes which searches go by.
    #[must_use]
    pub(crate) fn index(&self) -> String {
        let messages = self.index_of_messages();
        let indexes = messages.into_iter().chain(self.index_of_recipients());
        let others = indexes.map(|index| format!("\n{index}"));
        self.index_of_unsent() + &others.collect::<String>()
    }

    /// By which it is known what a recipient waits for, where rows are collected.
    fn index_of_recipients(&self) -> Option<String> {
        let table = &self.table;
        let order = table.order.as_ref().filter(|_| table.digest.is_some())?;
        Some(format!(
            "CREATE INDEX IF NOT EXISTS {} ON {} ({}) WHERE {} IS NULL;",
            quoted(&format!("{}_recipients", table.name)),
            table.sql_name,
            order.sql_column,
            table.sql_sent_at
        ))
    }

    /// By which it is known what was sent.
    fn index_of_messages(&self) -> Option<String> {
        let repeats = self.table.repeats.as_ref()?;
        Some(format!(
            "CREATE INDEX IF NOT EXISTS {} ON {} ({});",
            quoted(&format!("{}_messages", self.table.name)),
            self.table.sql_name,
            quoted(&repeats.column)
        ))
    }

    fn index_of_unsent(&self) -> String {
        let table = &self.table;
        let name = quoted(&format!("{}_unsent", table.name));
        let filter = table.filter.as_deref();
        let filter = filter.map_or(String::new(), |filter| format!(" AND (\n{filter}\n)"));
        format!(
            "CREATE INDEX IF NOT EXISTS {name} ON {} ({}) WHERE {} IS NULL{filter};",
            table.sql_name, table.sql_id, table.sql_sent_at
        )
    }

    /// [`Operator::status`].
    ///
    /// # Errors
    /// [`SourceError`].
    pub(crate) fn status(&mut self) -> Result<TableStatus> {
        if !schema::is_served(&self.conn)? {
            return Ok(TableStatus {
                backlog: rows::unsent(&self.conn, &self.table)?,
                ..TableStatus::default()
            });
        }
        // One view of everything.
        let tx = self.conn.transaction()?;
        let doubted = doubted_ever(&tx, &self.table)?;
        Ok(TableStatus {
            served: doubted.is_some(),
            backlog: rows::backlog(&tx, &self.table)?.items,
            items: counts(&tx, &self.table)?,
            sending: open_batches(&tx, &self.table)?,
            doubted_ever: doubted.unwrap_or(0),
        })
    }

    /// [`Operator::list`].
    ///
    /// # Errors
    /// [`SourceError`].
    pub(crate) fn list(
        &mut self,
        states: &[State],
        after: Option<&ItemId>,
        limit: usize,
    ) -> Result<Vec<Entry>> {
        if !schema::is_served(&self.conn)? {
            return Ok(Vec::new());
        }
        let tx = self.conn.transaction()?;
        let Some((_, database)) = cells::read(&tx, &self.table)? else {
            return Ok(Vec::new());
        };
        let mut entries = Vec::new();
        // State by state, so that each question is a walk along an index, whatever there is of the other states.
        for state in states {
            let found = of_state(&tx, &self.table, *state, after, limit, |id, row| {
                let Some(exception) = exception_of(row, 1)? else {
                    return Ok(None);
                };
                Ok(Some(Entry {
                    key: idempotency_key(&database, &self.table.source, &id),
                    id,
                    exception,
                    token: token_of(row, 5)?,
                    batch: row.get(6)?,
                    updated: row.get(7)?,
                    row: RowState::Gone,
                }))
            })?;
            entries.extend(found);
        }
        entries.sort_by(|a, b| a.id.cmp(&b.id));
        entries.truncate(limit);
        for entry in &mut entries {
            entry.row = row_state(&tx, &self.table, &entry.id)?;
        }
        Ok(entries)
    }

    /// [`Operator::find`].
    ///
    /// # Errors
    /// [`SourceError`].
    pub(crate) fn find(&self, word: &str) -> Result<Option<ItemId>> {
        let number = word.parse().ok().map(ItemId::Int);
        let words = [Some(ItemId::Text(word.to_owned())), number];
        for id in words.iter().flatten() {
            if let Some(found) = rows::id_of_row(&self.conn, &self.table, id)? {
                return Ok(Some(found));
            }
        }
        if !schema::is_served(&self.conn)? {
            return Ok(None);
        }
        let mut listed = self
            .conn
            .prepare_cached("SELECT 1 FROM watchkeeper_delivery WHERE source = ?1 AND item = ?2")?;
        for id in words.into_iter().flatten() {
            if listed.exists(params![self.table.source, id])? {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// [`Operator::place`].
    ///
    /// # Errors
    /// [`SourceError`].
    pub(crate) fn place(&self, word: &str) -> Result<ItemId> {
        if let Some(found) = self.find(word)? {
            return Ok(found);
        }
        Ok(match (self.table.layout, word.parse()) {
            (Layout::Range(_), Ok(number)) => ItemId::Int(number),
            _ => ItemId::Text(word.to_owned()),
        })
    }

    /// [`Operator::retry`].
    ///
    /// # Errors
    /// [`SourceError`]; nothing was changed then.
    pub(crate) fn retry(&mut self, ids: &[ItemId]) -> Result<Vec<Did>> {
        if !schema::is_served(&self.conn)? {
            let rows = ids
                .iter()
                .map(|id| row_state(&self.conn, &self.table, id))
                .collect::<Result<Vec<_>, _>>()?;
            let did = |row| match row {
                RowState::Unsent => Did::AsItIs,
                RowState::Sent | RowState::Gone => Did::Unknown,
            };
            return Ok(rows.into_iter().map(did).collect());
        }
        self.orders(ids, to_retry)
    }

    /// [`Operator::retry_step`].
    ///
    /// # Errors
    /// [`SourceError`]; nothing was changed then.
    pub(crate) fn retry_step(
        &mut self,
        state: State,
        after: Option<&ItemId>,
        items: usize,
    ) -> Result<Step> {
        self.step(state, after, items, to_retry, state == State::InDoubt)
    }

    /// [`Operator::discard_step`].
    ///
    /// # Errors
    /// [`SourceError`]; nothing was changed then.
    pub(crate) fn discard_step(
        &mut self,
        state: State,
        after: Option<&ItemId>,
        items: usize,
    ) -> Result<Step> {
        let step = self.step(state, after, items, to_discard, false);
        step.map_err(|error| self.told_of_old(error))
    }

    /// What to do about side tables that take no discarded items.
    fn told_of_old(&self, error: SourceError) -> SourceError {
        match error.is_of_state() {
            true => SourceError::OldSideTables {
                place: self.table.name.clone(),
                remedy: "drop the table watchkeeper_delivery once `notify status` shows no items: it is made again"
                    .to_owned(),
            },
            false => error,
        }
    }

    fn step(
        &mut self,
        state: State,
        after: Option<&ItemId>,
        items: usize,
        decide: fn(&Facts) -> Change,
        stays: bool,
    ) -> Result<Step> {
        if !schema::is_served(&self.conn)? {
            return Ok(Step::default());
        }
        let clock = self.clock.clone();
        let (mut step, began) = self.within(|sending, now_ms| {
            // Others wait from here on.
            let began = clock.now();
            let mut step = Step::default();
            let ids = of_state(sending.tx, sending.table, state, after, items, |id, _| {
                Ok(Some(id))
            })?;
            let rest = rest_of_digests(sending.tx, sending.table, &ids, state)?;
            for id in &ids {
                step.count(order(sending, id, now_ms, decide)?);
            }
            for id in &rest {
                step.count_along(stays, order(sending, id, now_ms, decide)?);
            }
            step.last = ids.into_iter().next_back();
            Ok((step, began))
        })?;
        step.took = clock.now().since(began);
        Ok(step)
    }

    /// [`Operator::park`].
    ///
    /// # Errors
    /// [`SourceError`]; nothing was changed then.
    pub(crate) fn park(&mut self, ids: &[ItemId]) -> Result<Vec<Did>> {
        schema::make_side_tables(&self.conn, &self.table)?;
        self.orders(ids, to_park)
    }

    /// [`Operator::discard`].
    ///
    /// # Errors
    /// [`SourceError`]; nothing was changed then.
    pub(crate) fn discard(&mut self, ids: &[ItemId]) -> Result<Vec<Did>> {
        schema::make_side_tables(&self.conn, &self.table)?;
        let orders = self.orders(ids, to_discard);
        orders.map_err(|error| self.told_of_old(error))
    }

    fn orders(&mut self, ids: &[ItemId], decide: fn(&Facts) -> Change) -> Result<Vec<Did>> {
        self.within(|sending, now_ms| {
            let each = ids.iter().map(|id| order(sending, id, now_ms, decide));
            each.collect()
        })
    }

    /// Changes something in one transaction. Writes nothing when that fails.
    fn within<T>(&mut self, change: impl FnOnce(&mut Sending<'_>, i64) -> Result<T>) -> Result<T> {
        let now_ms = self.clock.wall().as_millisecond();
        let tx = immediate(&mut self.conn)?;
        let did = change(&mut Sending::new(&tx, &self.table)?, now_ms)?;
        tx.commit()?;
        Ok(did)
    }
}

#[async_trait]
impl Operator for SqliteOperator {
    async fn status(&mut self) -> Result<TableStatus> {
        self.status()
    }

    async fn list(
        &mut self,
        states: &[State],
        after: Option<&ItemId>,
        limit: usize,
    ) -> Result<Vec<Entry>> {
        self.list(states, after, limit)
    }

    async fn find(&mut self, word: &str) -> Result<Option<ItemId>> {
        Self::find(self, word)
    }

    async fn place(&mut self, word: &str) -> Result<ItemId> {
        Self::place(self, word)
    }

    async fn retry(&mut self, ids: &[ItemId]) -> Result<Vec<Did>> {
        self.retry(ids)
    }

    async fn retry_step(
        &mut self,
        state: State,
        after: Option<&ItemId>,
        items: usize,
    ) -> Result<Step> {
        self.retry_step(state, after, items)
    }

    async fn discard_step(
        &mut self,
        state: State,
        after: Option<&ItemId>,
        items: usize,
    ) -> Result<Step> {
        self.discard_step(state, after, items)
    }

    async fn import(&mut self, columns: &[String], rows: Vec<Value>) -> Result<u64> {
        let (table, names) = (&self.table, columns.iter().map(|c| quoted(c)));
        let names = names.collect::<Vec<_>>().join(", ");
        let places = vec!["?"; columns.len()].join(", ");
        let is_id = |column: &String| quoted(column).eq_ignore_ascii_case(&table.sql_id);
        let has_id = columns.iter().any(is_id);
        let known = match has_id {
            true => format!(" ON CONFLICT ({}) DO NOTHING", table.sql_id),
            false => String::new(),
        };
        let sql = format!(
            "INSERT INTO {} ({names}) VALUES ({places}){known}",
            table.sql_name
        );
        let tx = immediate(&mut self.conn)?;
        let mut imported = 0;
        {
            let mut insert = tx.prepare_cached(&sql)?;
            for row in &rows {
                let values = columns.iter().map(|c| in_sql(&row[c]));
                imported += insert.execute(rusqlite::params_from_iter(values))? as u64;
            }
        }
        tx.commit()?;
        Ok(imported)
    }

    async fn look(&mut self) -> Result<Option<String>> {
        schema::may_be_made(&self.conn, &self.table)?;
        if !rows::is_large(&self.conn, &self.table)? {
            return Ok(None);
        }
        let mut missing = Vec::new();
        if !rows::is_quickly_searched(&self.conn, &self.table)? {
            missing.push(self.index_of_unsent());
        }
        if let Some(repeats) = &self.table.repeats
            && !rows::has_index_of(&self.conn, &self.table, &repeats.column)?
        {
            missing.extend(self.index_of_messages());
        }
        if let Some(order) = self
            .table
            .order
            .as_ref()
            .filter(|_| self.table.digest.is_some())
            && !rows::has_index_of(&self.conn, &self.table, &order.column)?
        {
            missing.extend(self.index_of_recipients());
        }
        Ok((!missing.is_empty()).then(|| missing.join("\n")))
    }

    async fn ids_come_back(&mut self) -> Result<bool> {
        schema::ids_come_back(&self.conn, &self.table)
    }

    async fn park(&mut self, ids: &[ItemId]) -> Result<Vec<Did>> {
        self.park(ids)
    }

    async fn discard(&mut self, ids: &[ItemId]) -> Result<Vec<Did>> {
        self.discard(ids)
    }
}

/// A value of a row that is imported. What has parts is the text of its JSON.
fn in_sql(value: &Value) -> rusqlite::types::Value {
    use rusqlite::types::Value as Sql;
    match value {
        Value::Null => Sql::Null,
        Value::Bool(truth) => Sql::Integer(i64::from(*truth)),
        Value::Number(n) => match (n.as_i64(), n.as_f64()) {
            (Some(n), _) => Sql::Integer(n),
            (None, Some(x)) => Sql::Real(x),
            (None, None) => Sql::Text(n.to_string()),
        },
        Value::String(text) => Sql::Text(text.clone()),
        parts => Sql::Text(parts.to_string()),
    }
}

// === one item, within a transaction ===

/// Carries an order out, as `decide` says.
fn order(
    sending: &mut Sending<'_>,
    id: &ItemId,
    now_ms: i64,
    decide: fn(&Facts) -> Change,
) -> Result<Did> {
    let (tx, table) = (sending.tx, sending.table);
    let facts = Facts {
        sending: sending.holds(id)?,
        unsent: rows::standing(tx, table, id)?.0,
        noted: noted(tx, table, id)?,
    };
    let change = decide(&facts);
    match &change {
        Change::Leave(_) => {}
        Change::Forget => forget(tx, table, id)?,
        Change::Write(item) => {
            let (batch, token) = match facts.noted {
                Some(noted) => (noted.batch, noted.token),
                None => (sending.batch_of(id).unwrap_or_default(), Token(0)),
            };
            record(tx, table, &batch, token, id, item, now_ms)?;
            if item.state != State::Parked {
                forget_digest(tx, table, id)?;
            }
        }
    }
    Ok(change.did())
}

fn noted(tx: &Connection, table: &Table, id: &ItemId) -> Result<Option<Noted>> {
    let mut found = tx.prepare_cached(
        "SELECT state, attempts, not_before, reason, token, batch FROM watchkeeper_delivery
         WHERE source = ?1 AND item = ?2",
    )?;
    let mut found = found.query(params![table.source, id])?;
    let Some(row) = found.next()? else {
        return Ok(None);
    };
    let Some(exception) = exception_of(row, 0)? else {
        return Ok(None);
    };
    Ok(Some(Noted {
        exception,
        token: token_of(row, 4)?,
        batch: row.get(5)?,
    }))
}

fn token_of(row: &Row<'_>, at: usize) -> Result<Token> {
    Ok(Token(row.get::<_, i64>(at)?.unsigned_abs()))
}

fn row_state(conn: &Connection, table: &Table, id: &ItemId) -> Result<RowState> {
    let unsent: Option<bool> = conn
        .prepare_cached(&format!(
            "SELECT n.{} IS NULL FROM {} AS n WHERE n.{} = ?1",
            table.sql_sent_at, table.sql_name, table.sql_id
        ))?
        .query_row([id], |row| row.get(0))
        .optional()?;
    Ok(match unsent {
        Some(true) => RowState::Unsent,
        Some(false) => RowState::Sent,
        None => RowState::Gone,
    })
}

// === lists of a state ===

/// The items of a state, from the first behind `after` on: the id, and what `read` makes of its row in the columns
/// `state, attempts, not_before, reason, token, batch, updated_at` from 1 on. What another program wrote under an id that
/// is neither number nor text is no item.
fn of_state<T>(
    tx: &Connection,
    table: &Table,
    state: State,
    after: Option<&ItemId>,
    limit: usize,
    mut read: impl FnMut(ItemId, &Row<'_>) -> Result<Option<T>>,
) -> Result<Vec<T>> {
    // With a place the index is entered there, which it could not be under an `OR`.
    let behind = match after {
        Some(_) => "item > ?3",
        None => "?3 IS NULL",
    };
    let mut found = tx.prepare_cached(&format!(
        "SELECT item, state, attempts, not_before, reason, token, batch, updated_at
         FROM watchkeeper_delivery WHERE source = ?1 AND state = ?2 AND {behind}
         AND typeof(item) IN ('integer', 'text') ORDER BY item LIMIT ?4"
    ))?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut found = found.query(params![table.source, state.word(), after, limit])?;
    let mut items = Vec::new();
    while let Some(row) = found.next()? {
        if let Ok(id) = ItemId::column_result(row.get_ref(0)?) {
            items.extend(read(id, row)?);
        }
    }
    Ok(items)
}

/// Other items of a state that may have been received as one message with one of these.
fn rest_of_digests(
    tx: &Connection,
    table: &Table,
    ids: &[ItemId],
    state: State,
) -> Result<Vec<ItemId>> {
    // Without digests their rows go alone.
    if table.digest.is_none() {
        return Ok(Vec::new());
    }
    let mut digest_of = tx.prepare_cached(
        "SELECT digest, recipient FROM watchkeeper_delivery
         WHERE source = ?1 AND item = ?2 AND digest IS NOT NULL AND digest NOT LIKE '1-%'",
    )?;
    let (mut digests, mut rest) = (BTreeSet::new(), Vec::new());
    let known: BTreeSet<&ItemId> = ids.iter().collect();
    for id in ids {
        let mut found = digest_of.query(params![table.source, id])?;
        let Some(row) = found.next()? else { continue };
        let digest: String = row.get(0)?;
        let recipient: rusqlite::types::Value = row.get(1)?;
        if digests.contains(&digest) {
            continue;
        }
        // They are of one recipient, by which an index finds them; where that is not known any more all of the state are read.
        let by = match &recipient {
            rusqlite::types::Value::Null => "?4 IS NULL",
            _ => "recipient = ?4",
        };
        let mut others = tx.prepare_cached(&format!(
            "SELECT item FROM watchkeeper_delivery WHERE source = ?1 AND state = ?2 AND digest = ?3 AND {by}"
        ))?;
        let others = others.query_map(
            params![table.source, state.word(), digest, recipient],
            |row| row.get::<_, ItemId>(0),
        )?;
        for other in others {
            let other = other?;
            if !known.contains(&other) {
                rest.push(other);
            }
        }
        digests.insert(digest);
    }
    Ok(rest)
}

// === impl Sending ===

impl<'t> Sending<'t> {
    fn new(tx: &'t Connection, table: &'t Table) -> Result<Self> {
        let (layout, _) = cells::settle(tx, table)?;
        Ok(Self {
            tx,
            table,
            layout,
            read: BTreeMap::new(),
        })
    }

    /// The batch that a row belongs to.
    fn batch_of(&self, id: &ItemId) -> Option<String> {
        Some(self.table.batch(self.layout, self.layout.cell_of(id)?))
    }

    fn holds(&mut self, id: &ItemId) -> Result<bool> {
        // Where the id does not say its batch all that are open are read, once.
        let number = self.layout.cell_of(id);
        if let Some(items) = self.read.get(&number) {
            return Ok(items.contains(id));
        }
        let batches = match number {
            Some(number) => vec![self.table.batch(self.layout, number)],
            None => cells::open_intents(self.tx, self.table, usize::MAX)?,
        };
        let mut items = BTreeSet::new();
        for batch in batches {
            let open = intent(self.tx, self.table, &batch)?;
            items.extend(open.iter().flat_map(|intent| intent.items.ids().cloned()));
        }
        let holds = items.contains(id);
        self.read.insert(number, items);
        Ok(holds)
    }
}
