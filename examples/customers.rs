//! A hundred thousand customers, each with a due time of its own: rows of a table, and not jobs.
//!
//! The replicas share the rows out by cells. A cell is claimed as a batch, so that one replica at a time works on it; nothing in
//! the table says so. `docs/guides/customers.md` explains it. Start this twice, in one folder, and end one of the two with SIGKILL:
//!
//! ```sh
//! cargo run --example customers
//! ```

#![allow(
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "a program of its own has no clock of ours"
)]

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use rusqlite::{Connection, TransactionBehavior, params};
use watchkeeper::{BatchJob, JobError, Outcome, Run, Spec, Worker, config::LockSettings, fence};

/// Into so many parts the customers are divided, for good: the number of a customer's part stands in its row.
pub const CELLS: i64 = 64;

/// Customers of a cell that are done in one go.
const AT_ONCE: i64 = 100;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS customers (
        id INTEGER PRIMARY KEY,
        cell INTEGER NOT NULL,
        due_at INTEGER                      -- milliseconds; null: not due any more
    );
    CREATE INDEX IF NOT EXISTS customers_due ON customers (due_at, cell) WHERE due_at IS NOT NULL;
    CREATE TABLE IF NOT EXISTS reminded (
        customer INTEGER NOT NULL,
        due_at INTEGER NOT NULL,
        at INTEGER NOT NULL,
        PRIMARY KEY (customer, due_at)      -- one that was reminded twice would be refused here
    );";

/// What time it is.
type Now = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The work: reminds each customer when it is due. Cheap to clone.
#[derive(Clone)]
pub struct Reminders {
    db: Arc<Mutex<Connection>>,
    now: Now,
    /// How long the call takes that reminds the customers of a cell.
    takes: Duration,
}

impl Reminders {
    /// Makes the tables where they are missing.
    pub fn new(db: Connection, now: Now, takes: Duration) -> rusqlite::Result<Self> {
        db.execute_batch(TABLES)?;
        db.execute_batch(fence::sqlite::CREATE_TABLE)?;
        let db = Arc::new(Mutex::new(db));
        Ok(Self { db, now, takes })
    }

    /// Adds so many customers, who are due one after another between these instants, in no order of their ids.
    pub fn add(&self, customers: i64, from: Timestamp, to: Timestamp) -> rusqlite::Result<()> {
        let (from, to) = (from.as_millisecond(), to.as_millisecond());
        self.with(|db| {
            let tx = db.transaction()?;
            for id in 0..customers {
                let due = from + (to - from) * (id * 7_919 % customers) / customers;
                tx.prepare_cached("INSERT OR IGNORE INTO customers VALUES (?1, ?2, ?3)")?
                    .execute(params![id, id % CELLS, due])?;
            }
            tx.commit()
        })
    }

    /// How long after its due time each customer was reminded, in milliseconds.
    pub fn lateness(&self) -> rusqlite::Result<Vec<i64>> {
        self.with(|db| {
            let mut late = db.prepare("SELECT at - due_at FROM reminded ORDER BY 1")?;
            late.query_map([], |row| row.get(0))?.collect()
        })
    }

    /// A statement takes microseconds here. What takes longer belongs into [`Run::blocking`].
    fn with<T>(&self, work: impl FnOnce(&mut Connection) -> T) -> T {
        work(&mut self.db.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn due_in(&self, cell: i64, now: i64) -> rusqlite::Result<Vec<(i64, i64)>> {
        self.with(|db| {
            let mut due = db.prepare_cached(
                "SELECT id, due_at FROM customers WHERE due_at <= ?1 AND cell = ?2 ORDER BY due_at LIMIT ?3",
            )?;
            let rows = due.query_map(params![now, cell, AT_ONCE], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
            rows.collect()
        })
    }
}

#[async_trait::async_trait]
impl BatchJob for Reminders {
    /// The cells in which a customer is due.
    async fn pending(&self, limit: usize) -> Result<Vec<String>, JobError> {
        let now = (self.now)().as_millisecond();
        let cells = self.with(|db| {
            let mut cells = db.prepare_cached(
                "SELECT DISTINCT cell FROM customers WHERE due_at <= ?1 LIMIT ?2",
            )?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let rows = cells.query_map(params![now, limit], |row| row.get::<_, i64>(0))?;
            rows.collect::<rusqlite::Result<Vec<i64>>>()
        })?;
        Ok(cells.iter().map(i64::to_string).collect())
    }

    async fn process(&self, cell: &str, run: Run) -> Result<Outcome, JobError> {
        let number: i64 = cell.parse().map_err(JobError::fatal)?;
        loop {
            run.check()?;
            // Read here, under the claim: what `pending` saw may have been done by the last holder.
            let due = self.due_in(number, (self.now)().as_millisecond())?;
            if due.is_empty() {
                return Ok(Outcome::Done);
            }
            // The call that reminds them, with (customer, due_at) as the key by which the receiver knows a repeat.
            tokio::time::sleep(self.takes).await;
            let at = (self.now)().as_millisecond();
            self.with(|db| -> Result<(), JobError> {
                let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
                // A replica that was frozen meanwhile, and whose cell is another's by now, is refused here.
                fence::sqlite::check(&tx, &format!("customers/{cell}"), run.token())
                    .map_err(JobError::fatal)?;
                for (customer, due_at) in &due {
                    tx.prepare_cached("INSERT INTO reminded VALUES (?1, ?2, ?3)")?
                        .execute(params![customer, due_at, at])?;
                    tx.prepare_cached("UPDATE customers SET due_at = NULL WHERE id = ?1")?
                        .execute([customer])?;
                }
                tx.commit()?;
                Ok(())
            })?;
        }
    }
}

/// Short claims: what a replica leaves behind when it dies is free again after three seconds.
pub fn spec() -> Spec {
    Spec::continuous().ttl(Duration::from_secs(3))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = Connection::open("customers.db")?;
    db.busy_timeout(Duration::from_secs(5))?;
    let now = Timestamp::now();
    let reminders = Reminders::new(db, Arc::new(Timestamp::now), Duration::from_millis(5))?;
    reminders.add(100_000, now, now + Duration::from_secs(3600))?;
    Worker::builder()
        .locks(LockSettings::embedded("customers-locks.db"))
        .build()
        .batch_job("reminders", reminders, spec())
        .run()
        .await?;
    Ok(())
}
