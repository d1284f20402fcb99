//! A table in an SQLite file, which others read and write at the same time.
//!
//! One connection, used from blocking threads and by one caller at a time; every change is one short immediate
//! transaction. A program that holds the database longer than five seconds makes a call fail, which is tried again.

mod cells;
mod operator;
mod rows;
mod schema;
mod side;

pub(crate) use schema::SIDE_TABLES;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use async_trait::async_trait;
use rusqlite::Connection;
use tracing::warn;
use watchkeeper::node::Token;

pub(crate) use self::operator::SqliteOperator;
use self::{
    schema::{Table, Wanted},
    side::{
        count_doubts, counts, exception_of, forget, immediate, intent, note_digests, record,
        remove_intent, state_of, write_intent,
    },
};
use super::{
    Backlog, Begin, Counts, Exceptions, Finish, Listed, Named, Result, Source, SourceError,
    Unmarked, Work, table::too_large as too_large_to_send,
};
use crate::notifications::{
    cell::{Cell, ItemId},
    delivery::{Exception, Mark, Policy, State},
    params::NotificationsParams,
};

/// The source.
#[derive(Debug)]
pub(crate) struct SqliteSource(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    wanted: Wanted,
    /// Opened at the first call, and again after an error.
    db: Mutex<Option<Db>>,
}

#[derive(Debug)]
struct Db {
    conn: Connection,
    table: Table,
    told_of_layout: bool,
    /// Device and inode of the file that is open.
    file: Option<(u64, u64)>,
}

// === impl SqliteSource ===

impl SqliteSource {
    /// The table that `params` names, in the file at `path`. Opened at the first call.
    #[must_use]
    pub(crate) fn new(path: PathBuf, params: &NotificationsParams) -> Self {
        Self(Arc::new(Shared {
            wanted: Wanted::new(path, params),
            db: Mutex::new(None),
        }))
    }

    /// Runs `work` on the database, off the runtime.
    async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Db) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let shared = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || {
            // A panic rolled its transaction back; the connection is as good as before.
            let mut slot = shared.db.lock().unwrap_or_else(PoisonError::into_inner);
            // A connection to a file that was moved away, or replaced by a backup, goes on without an error.
            if slot
                .as_ref()
                .is_some_and(|db| db.file != file_at(&shared.wanted.path))
            {
                *slot = None;
            }
            let named = |error: SourceError| error.in_file(&shared.wanted.path);
            let db = match &mut *slot {
                Some(db) => db,
                None => slot.insert(Db::open(&shared.wanted).map_err(named)?),
            };
            let done = work(db).map_err(named);
            if done.is_err() {
                // Look at file and table afresh next time: they may have been replaced.
                *slot = None;
            }
            done
        })
        .await
        .map_err(|_| SourceError::Unfinished)?
    }
}

#[async_trait]
impl Source for SqliteSource {
    async fn pending(&self, now_ms: i64, limit: usize) -> Result<Vec<String>> {
        self.with(move |db| db.pending(now_ms, limit)).await
    }

    async fn begin(
        &self,
        job: &str,
        batch: &str,
        token: Token,
        policy: Policy,
        now_ms: i64,
    ) -> Result<Begin> {
        let (job, batch) = (job.to_owned(), batch.to_owned());
        self.with(move |db| db.begin(&job, &batch, token, policy, now_ms))
            .await
    }

    async fn finish(
        &self,
        batch: &str,
        token: Token,
        policy: Policy,
        marks: Vec<(ItemId, Mark)>,
        now_ms: i64,
    ) -> Result<Finish> {
        let batch = batch.to_owned();
        self.with(move |db| db.finish(&batch, token, policy, &marks, now_ms))
            .await
    }

    async fn exceptions(&self) -> Result<Exceptions> {
        self.with(|db| db.exceptions()).await
    }

    /// In portions: others have their turn in between.
    async fn backlog(&self) -> Result<Backlog> {
        let (mut all, mut behind) = (Backlog::default(), None);
        loop {
            let from = behind.take();
            let counting =
                move |db: &mut Db| rows::backlog_behind(&db.conn, &db.table, from.as_ref());
            let (more, last) = self.with(counting).await?;
            all.add(more);
            match last {
                Some(last) => behind = Some(last),
                None => return Ok(all),
            }
        }
    }

    async fn counts(&self) -> Result<Counts> {
        self.with(|db| counts(&db.conn, &db.table)).await
    }
}

/// Repeats come second: they are marked as the row is that was sent.
fn in_order(marks: &[(ItemId, Mark)]) -> impl Iterator<Item = &(ItemId, Mark)> {
    let those = |repeats| {
        let is_one = move |(_, mark): &&(ItemId, Mark)| (*mark == Mark::Duplicate) == repeats;
        marks.iter().filter(is_one)
    };
    those(false).chain(those(true))
}

/// Which file lies there now.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    let facts = fs::metadata(path).ok()?;
    Some((facts.dev(), facts.ino()))
}

// === impl Db ===

impl Db {
    fn open(wanted: &Wanted) -> Result<Self> {
        // Before it is opened: one that takes its place meanwhile is noticed at the next call.
        let file = file_at(&wanted.path);
        let conn = schema::open(&wanted.path)?;
        let table = schema::inspect(&conn, wanted)?;
        schema::make_side_tables(&conn, &table)?;
        let odd = rows::unusable_ids(&conn, &table)?;
        if odd > 0 {
            warn!(
                table = table.name,
                rows = odd,
                "rows whose id is neither an integer nor text, or is text in an integer column, are not sent"
            );
        }
        Ok(Self {
            conn,
            table,
            told_of_layout: false,
            file,
        })
    }

    fn pending(&mut self, now_ms: i64, limit: usize) -> Result<Vec<String>> {
        let layout = cells::in_force(&mut self.conn, &self.table)?;
        if layout != self.table.layout && !self.told_of_layout {
            self.told_of_layout = true;
            warn!(
                table = self.table.name,
                in_force = %layout,
                configured = %self.table.layout,
                "another cell size is in force until no batch of it is open"
            );
        }
        let cells = rows::cells_with_work(&self.conn, &self.table, layout, now_ms, limit)?;
        let mut batches: Vec<String> = cells
            .into_iter()
            .map(|number| self.table.batch(layout, number))
            .collect();
        // Intents come last: those of live holders are claimed anyway, those left behind mostly have rows.
        for batch in cells::open_intents(&self.conn, &self.table, limit)? {
            if batches.len() < limit && !batches.contains(&batch) {
                batches.push(batch);
            }
        }
        Ok(batches)
    }

    fn begin(
        &mut self,
        job: &str,
        batch: &str,
        token: Token,
        policy: Policy,
        now_ms: i64,
    ) -> Result<Begin> {
        let table = &self.table;
        let cell = Cell::parse(batch).filter(|cell| cell.source == table.source);
        let cell = cell.ok_or_else(|| SourceError::NoBatch(batch.to_owned()))?;
        let tx = immediate(&mut self.conn)?;
        let (layout, name) = cells::settle(&tx, table)?;
        if layout != cell.layout {
            return Ok(Begin::OtherCells(layout.to_string()));
        }
        let mut work = Work::default();
        if let Some(last) = intent(&tx, table, batch)? {
            if let Some(other) = last.keeps_out(job, token) {
                return Ok(other);
            }
            let holder = last.token;
            for id in last.items.ids() {
                let (unsent, prior) = rows::standing(&tx, table, id)?;
                if let Some(doubt) = policy.left_behind(unsent, prior.as_ref(), holder) {
                    match doubt.state {
                        State::Parked => work.parked += 1,
                        _ => work.in_doubt += 1,
                    }
                    record(&tx, table, batch, holder, id, &doubt, now_ms)?;
                }
            }
            note_digests(&tx, table, &last.items)?;
            count_doubts(&tx, table, work.in_doubt + work.parked)?;
        }
        // After the doubts were recorded: parked items must not be read as work.
        let (items, too_large) = rows::due(&tx, table, &cell, &name, now_ms)?;
        for (id, bytes) in &too_large {
            let dead = Exception::dead(too_large_to_send(*bytes));
            record(&tx, table, batch, token, id, &dead, now_ms)?;
        }
        work.dead = too_large.len() as u64;
        work.items = table.folded(items, &name, now_ms);
        if work.items.is_empty() {
            remove_intent(&tx, table, batch)?;
        } else {
            let items = Named::of(&work.items);
            write_intent(&tx, table, batch, job, token, &items, now_ms)?;
        }
        tx.commit()?;
        Ok(Begin::Send(work))
    }

    fn finish(
        &mut self,
        batch: &str,
        token: Token,
        policy: Policy,
        marks: &[(ItemId, Mark)],
        now_ms: i64,
    ) -> Result<Finish> {
        let mut refused = BTreeMap::new();
        loop {
            let ended = self.finish_but(&mut refused, batch, token, policy, marks, now_ms)?;
            if let Some(finish) = ended {
                return Ok(finish);
            }
            // There may be more of them: one whole transaction for each would be too many.
            if refused.len() == 1 {
                self.mark_one_by_one(&mut refused, batch, token, marks, now_ms)?;
            }
        }
    }

    /// Marks those behind the first that was refused, each in a transaction of its own, and learns which are refused in a way that ends it.
    fn mark_one_by_one(
        &mut self,
        refused: &mut BTreeMap<ItemId, String>,
        batch: &str,
        token: Token,
        marks: &[(ItemId, Mark)],
        now_ms: i64,
    ) -> Result<()> {
        let table = &self.table;
        let behind: Vec<_> = in_order(marks)
            .skip_while(|(id, _)| !refused.contains_key(id))
            .collect();
        for (id, mark) in behind {
            let is_sent = matches!(mark, Mark::Sent | Mark::Duplicate);
            if !is_sent || refused.contains_key(id) {
                continue;
            }
            let tx = immediate(&mut self.conn)?;
            if intent(&tx, table, batch)?.map(|intent| intent.token) != Some(token) {
                return Ok(());
            }
            match rows::mark_sent(&tx, table, id, *mark == Mark::Duplicate, now_ms) {
                Ok(true) => {
                    forget(&tx, table, id)?;
                    tx.commit()?;
                }
                Err(error) if error.is_of_rows() && tx.is_autocommit() => {
                    refused.insert(id.clone(), error.said());
                }
                // The others are met again with all of them.
                Ok(false) => {}
                Err(error) if error.is_of_marking() && !tx.is_autocommit() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The same, but for the marks that are known to be refused. None where one more of them has ended the transaction with
    /// everything in it, as a trigger may; it is known now.
    fn finish_but(
        &mut self,
        refused: &mut BTreeMap<ItemId, String>,
        batch: &str,
        token: Token,
        policy: Policy,
        marks: &[(ItemId, Mark)],
        now_ms: i64,
    ) -> Result<Option<Finish>> {
        let table = &self.table;
        let tx = immediate(&mut self.conn)?;
        let present = intent(&tx, table, batch)?;
        let holder = present.as_ref().map(|intent| intent.token);
        let Some(present) = present.filter(|_| holder == Some(token)) else {
            return Ok(Some(Finish::Lost(holder)));
        };
        let (mut doubts, mut unmarked) = (0, Unmarked::default());
        let (keys, mut marked) = (present.items.pause_keys(), BTreeSet::new());
        let mut left = Vec::new();
        for (id, mark) in in_order(marks) {
            let refusal = match mark {
                Mark::Sent | Mark::Duplicate if refused.contains_key(id) => {
                    refused.get(id).cloned()
                }
                Mark::Sent | Mark::Duplicate => {
                    match rows::mark_sent(&tx, table, id, *mark == Mark::Duplicate, now_ms) {
                        Ok(true) => {
                            forget(&tx, table, id)?;
                            marked.insert(id);
                            continue;
                        }
                        Ok(false) => None,
                        // It costs no other row its mark, also where it has ended the whole transaction.
                        Err(error) if error.is_of_rows() && tx.is_autocommit() => {
                            refused.insert(id.clone(), error.said());
                            return Ok(None);
                        }
                        Err(error) if error.is_of_marking() && !tx.is_autocommit() => {
                            Some(error.said())
                        }
                        Err(error) => return Err(error),
                    }
                }
                // An earlier attempt may have marked it.
                Mark::Except(exception)
                    if exception.doubted && !rows::standing(&tx, table, id)?.0 =>
                {
                    continue;
                }
                Mark::Except(exception) => {
                    doubts += u64::from(exception.doubted);
                    record(&tx, table, batch, token, id, exception, now_ms)?;
                    continue;
                }
            };
            let (_, prior) = rows::standing(&tx, table, id)?;
            let key = keys.get(id).map_or("", String::as_str);
            left.push((id, prior, refusal, key));
        }
        for (id, doubt) in policy.all_unmarked(left, now_ms) {
            doubts += 1;
            unmarked.count(&doubt);
            record(&tx, table, batch, token, id, &doubt, now_ms)?;
        }
        let open = present.items.only(|id| !marked.contains(id));
        note_digests(&tx, table, &open)?;
        count_doubts(&tx, table, doubts)?;
        remove_intent(&tx, table, batch)?;
        tx.commit()?;
        Ok(Some(Finish::Written(unmarked)))
    }

    fn exceptions(&mut self) -> Result<Exceptions> {
        let table = &self.table;
        let mut all = Exceptions::default();
        let listed = format!(
            "FROM watchkeeper_delivery AS d WHERE d.source = ?1 AND EXISTS
             (SELECT 1 FROM {} AS n WHERE n.{} = d.item AND n.{} IS NULL)",
            table.sql_name, table.sql_id, table.sql_sent_at
        );
        let tx = self.conn.transaction()?;
        {
            let mut counts =
                tx.prepare(&format!("SELECT d.state, count(*) {listed} GROUP BY 1"))?;
            let mut counts = counts.query([&table.source])?;
            while let Some(row) = counts.next()? {
                let n = row.get::<_, i64>(1)?.unsigned_abs();
                *all.counts.of_mut(state_of(row.get(0)?)?) += n;
            }
            let mut items = tx.prepare(&format!(
                "SELECT d.item, d.state, d.attempts, d.not_before, d.reason {listed}
                 ORDER BY d.item LIMIT 10000"
            ))?;
            let mut items = items.query([&table.source])?;
            while let Some(row) = items.next()? {
                let id = row.get(0)?;
                if let Some(exception) = exception_of(row, 1)? {
                    all.items.push(Listed { id, exception });
                }
            }
        }
        all.doubted_ever = side::doubted_ever(&tx, table)?.unwrap_or(0);
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use rusqlite::functions::FunctionFlags;

    use super::*;
    use crate::{
        demo_table,
        notifications::params::{Backoff, InDoubt},
    };

    #[tokio::test]
    async fn marks_that_undo_everything_cost_a_few_attempts_for_each_row() {
        const ROWS: usize = 100;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.db");
        let db = Connection::open(&path).unwrap();
        db.execute_batch(demo_table::SCHEMA).unwrap();
        for _ in 0..ROWS {
            let row = "INSERT INTO notifications (recipient, body) VALUES ('r', 'b')";
            db.execute_batch(row).unwrap();
        }
        db.execute_batch(
            "CREATE TRIGGER undoes BEFORE UPDATE ON notifications WHEN attempt() AND NEW.id % 2 = 0
                 BEGIN SELECT RAISE(ROLLBACK, 'all of it'); END;",
        )
        .unwrap();
        let params = NotificationsParams {
            table: "notifications".to_owned(),
            batch_size: 200,
            ..NotificationsParams::default()
        };
        let source = SqliteSource::new(path, &params);
        let policy = Policy {
            in_doubt: InDoubt::Repeat,
            attempts: 3,
            backoff: Backoff::Doubling(Duration::from_secs(2)),
        };
        let (batch, token) = ("notifications/200/0", Token(1));
        let begun = source.begin("job", batch, token, policy, 0).await.unwrap();
        let Begin::Send(work) = begun else {
            panic!("{begun:?}");
        };
        assert_eq!(work.items.len(), ROWS);
        let attempts = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&attempts);
        let counting = move |db: &mut Db| {
            let flags = FunctionFlags::SQLITE_UTF8;
            let count = move |_: &rusqlite::functions::Context<'_>| {
                seen.fetch_add(1, Ordering::Relaxed);
                Ok(true)
            };
            Ok(db.conn.create_scalar_function("attempt", 0, flags, count)?)
        };
        source.with(counting).await.unwrap();
        let marks = work.items.into_iter().map(|item| (item.id, Mark::Sent));
        let marks: Vec<_> = marks.collect();
        let end = source.finish(batch, token, policy, marks, 0).await.unwrap();
        let Finish::Written(unmarked) = end else {
            panic!("{end:?}");
        };
        assert_eq!((unmarked.parked, unmarked.in_doubt), (50, 0));
        let attempts = attempts.load(Ordering::Relaxed);
        assert!(attempts <= 2 * ROWS, "{attempts}");
        let unsent = demo_table::unsent(&folder.path().join("app.db")).unwrap();
        assert_eq!(unsent, 50);
    }
}
