//! A person's hands on the side table of an SQLite file, beside running senders.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use rusqlite::{Connection, OptionalExtension, Row, params, types::FromSql};
use watchkeeper::{clock::Clock, node::Token};

use super::{
    cells, rows,
    schema::{self, Table, Wanted},
    side::{counts, doubted_ever, exception_of, forget, immediate, intent, open_batches, record},
};
use crate::notifications::{
    cell::{ItemId, Layout, idempotency_key},
    delivery::{Exception, State},
    operator::{Did, Entry, RowState, Standing, Step, again, parked},
    params::NotificationsParams,
    source::{Result, SourceError},
};

/// Counts, lists and changes what stands beside one table.
#[derive(Debug)]
pub struct SqliteOperator {
    conn: Connection,
    table: Table,
    clock: Clock,
}

/// Which items are being sent, read batch by batch within one transaction.
struct Sending<'t> {
    tx: &'t Connection,
    table: &'t Table,
    layout: Layout,
    read: BTreeMap<i64, BTreeSet<ItemId>>,
}

// === impl SqliteOperator ===

impl SqliteOperator {
    /// Opens the table that `params` names, in the file at `path`, to look: the connection cannot write.
    ///
    /// # Errors
    /// [`SourceError`], when there is no such file or table.
    pub fn look(path: &Path, params: &NotificationsParams) -> Result<Self, SourceError> {
        let operator = Self::change(path, params)?;
        operator.conn.pragma_update(None, "query_only", true)?;
        Ok(operator)
    }

    /// The same, to change something. Writes nothing yet.
    ///
    /// # Errors
    /// As there.
    pub fn change(path: &Path, params: &NotificationsParams) -> Result<Self, SourceError> {
        let conn = schema::open(path)?;
        let table = schema::inspect(&conn, &Wanted::new(path.to_owned(), params))?;
        Ok(Self {
            conn,
            table,
            clock: Clock::system(),
        })
    }

    /// How the table stands. Counts its unsent rows.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn standing(&mut self) -> Result<Standing> {
        if !schema::is_served(&self.conn)? {
            return Ok(Standing {
                backlog: rows::unsent(&self.conn, &self.table)?,
                ..Standing::default()
            });
        }
        // One view of everything.
        let tx = self.conn.transaction()?;
        let doubted = doubted_ever(&tx, &self.table)?;
        Ok(Standing {
            served: doubted.is_some(),
            backlog: rows::backlog(&tx, &self.table)?,
            items: counts(&tx, &self.table)?,
            sending: open_batches(&tx, &self.table)?,
            doubted_ever: doubted.unwrap_or(0),
        })
    }

    /// At most `limit` items in these states, in the order of their ids, from the first behind `after` on.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn list(
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

    /// The id that a person means by this word: that of a row, else of an item whose row is gone.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn find(&self, word: &str) -> Result<Option<ItemId>> {
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

    /// The id in the type that those of this table have, whether it is there or not: where a list goes on.
    ///
    /// # Errors
    /// [`SourceError`].
    pub fn place(&self, word: &str) -> Result<ItemId> {
        if let Some(found) = self.find(word)? {
            return Ok(found);
        }
        Ok(match (self.table.layout, word.parse()) {
            (Layout::Range(_), Ok(number)) => ItemId::Int(number),
            _ => ItemId::Text(word.to_owned()),
        })
    }

    /// Has these items sent again, in one transaction; says of each what became of it.
    ///
    /// # Errors
    /// [`SourceError`]; nothing was changed then.
    pub fn retry(&mut self, ids: &[ItemId]) -> Result<Vec<Did>> {
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
        self.within(|sending, now_ms| ids.iter().map(|id| retry(sending, id, now_ms)).collect())
    }

    /// Has up to `items` items of a state sent again, those behind `after`, in one transaction.
    ///
    /// # Errors
    /// [`SourceError`]; nothing was changed then.
    pub fn retry_step(
        &mut self,
        state: State,
        after: Option<&ItemId>,
        items: usize,
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
            for id in ids {
                match retry(sending, &id, now_ms)? {
                    Did::Changed => step.changed += 1,
                    Did::Forgotten => step.forgotten += 1,
                    Did::Sending => step.sending += 1,
                    Did::AsItIs | Did::Unknown => {}
                }
                step.last = Some(id);
            }
            Ok((step, began))
        })?;
        step.took = clock.now().since(began);
        Ok(step)
    }

    /// Parks these items, in one transaction, so that they are not sent until they are asked for again. Also rows that
    /// were never begun; makes the side tables where there are none.
    ///
    /// # Errors
    /// [`SourceError`]; nothing was changed then.
    pub fn park(&mut self, ids: &[ItemId]) -> Result<Vec<Did>> {
        schema::make_side_tables(&self.conn)?;
        self.within(|sending, now_ms| ids.iter().map(|id| park(sending, id, now_ms)).collect())
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

// === one item, within a transaction ===

fn retry(sending: &mut Sending<'_>, id: &ItemId, now_ms: i64) -> Result<Did> {
    let (tx, table) = (sending.tx, sending.table);
    if sending.holds(id)? {
        return Ok(Did::Sending);
    }
    let (unsent, _) = rows::standing(tx, table, id)?;
    let Some(noted) = noted(tx, table, id)? else {
        return Ok(if unsent { Did::AsItIs } else { Did::Unknown });
    };
    if !unsent {
        forget(tx, table, id)?;
        return Ok(Did::Forgotten);
    }
    match again(&noted.exception, noted.token) {
        Some(item) => record(tx, table, &noted.batch, noted.token, id, &item, now_ms)?,
        None => forget(tx, table, id)?,
    }
    Ok(Did::Changed)
}

fn park(sending: &mut Sending<'_>, id: &ItemId, now_ms: i64) -> Result<Did> {
    let (tx, table) = (sending.tx, sending.table);
    if sending.holds(id)? {
        return Ok(Did::Sending);
    }
    let (unsent, _) = rows::standing(tx, table, id)?;
    let noted = noted(tx, table, id)?;
    if !unsent {
        if noted.is_none() {
            return Ok(Did::Unknown);
        }
        forget(tx, table, id)?;
        return Ok(Did::Forgotten);
    }
    let prior = noted.as_ref().map(|noted| &noted.exception);
    if prior.is_some_and(|prior| prior.state == State::Parked) {
        return Ok(Did::AsItIs);
    }
    let (batch, token) = match &noted {
        Some(noted) => (noted.batch.clone(), noted.token),
        None => (sending.batch_of(id).unwrap_or_default(), Token(0)),
    };
    record(tx, table, &batch, token, id, &parked(prior), now_ms)?;
    Ok(Did::Changed)
}

/// A row of the side table.
struct Noted {
    exception: Exception,
    token: Token,
    batch: String,
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
        let Some(number) = self.layout.cell_of(id) else {
            return Ok(false);
        };
        if let Some(items) = self.read.get(&number) {
            return Ok(items.contains(id));
        }
        let batch = self.table.batch(self.layout, number);
        let open = intent(self.tx, self.table, &batch)?;
        let items: BTreeSet<ItemId> = open.into_iter().flat_map(|(_, items)| items).collect();
        let holds = items.contains(id);
        self.read.insert(number, items);
        Ok(holds)
    }
}
