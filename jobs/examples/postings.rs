//! Payments that are booked exactly once, because effect and mark are one transaction under the fence.
//!
//! `docs/guides/exactly-once.md` explains it. Start this twice beside one database, and end one of the two with SIGKILL:
//!
//! ```sh
//! POSTINGS_DATABASE=postgres://app@localhost/shop cargo run --package watchkeeper-jobs --example postings
//! ```

#![allow(unreachable_pub, reason = "a program of its own")]

use std::{error::Error, path::Path, time::Duration};

use tokio::sync::Mutex;
use tokio_postgres::{Client, NoTls};
use watchkeeper::{BatchJob, JobError, Outcome, Run, Spec, Worker, config::LockSettings, fence};

/// Into so many parts the payments are divided, by their ids.
pub const CELLS: i64 = 16;

/// Payments of a cell that are booked in one transaction.
const AT_ONCE: i64 = 20;

/// The tables of the application, and the side table of the fence.
pub const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS account (
        id      bigint PRIMARY KEY,
        balance bigint NOT NULL
    );
    CREATE TABLE IF NOT EXISTS payment (
        id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        account   bigint NOT NULL REFERENCES account,
        amount    bigint NOT NULL,
        posted_at timestamptz                  -- null: not booked yet
    );
    CREATE INDEX IF NOT EXISTS payment_open ON payment ((id % 16), id) WHERE posted_at IS NULL;";

/// Cells with payments that are not booked.
const PENDING: &str = "
    SELECT cell FROM generate_series(0, 15) AS cell
     WHERE EXISTS (SELECT 1 FROM payment WHERE posted_at IS NULL AND id % 16 = cell) LIMIT $1";

/// Payments of a cell that are not booked.
const OPEN: &str = "
    SELECT id FROM payment WHERE posted_at IS NULL AND id % 16 = $1 ORDER BY id LIMIT $2";

/// The effect and the mark.
const BOOK: &str = "
    WITH booked AS (
        UPDATE payment SET posted_at = now()
         WHERE id = ANY($1) AND posted_at IS NULL RETURNING account, amount
    )
    UPDATE account SET balance = balance + total
      FROM (SELECT account, sum(amount)::bigint AS total FROM booked GROUP BY account) AS sums
     WHERE account.id = sums.account";

/// The work: books payments. The connection is made when it is needed, and made anew when it is gone.
pub struct Postings {
    database: String,
    client: Mutex<Option<Client>>,
}

impl Postings {
    /// Payments in this database.
    pub fn new(database: &str) -> Self {
        Self {
            database: database.to_owned(),
            client: Mutex::new(None),
        }
    }

    async fn connected<'a>(
        &self,
        client: &'a mut Option<Client>,
    ) -> Result<&'a mut Client, JobError> {
        match client.take().filter(|client| !client.is_closed()) {
            Some(known) => Ok(client.insert(known)),
            None => {
                let (new, connection) = tokio_postgres::connect(&self.database, NoTls).await?;
                watchkeeper::lock::spawn::Spawn::system().spawn(async { drop(connection.await) });
                // A replica that is frozen in a transaction does not hold up its successor for longer than this.
                new.batch_execute("SET idle_in_transaction_session_timeout = '3s'")
                    .await?;
                Ok(client.insert(new))
            }
        }
    }
}

#[async_trait::async_trait]
impl BatchJob for Postings {
    async fn pending(&self, limit: usize) -> Result<Vec<String>, JobError> {
        let mut client = self.client.lock().await;
        let client = self.connected(&mut client).await?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let cells = client.query(PENDING, &[&limit]).await?;
        Ok(cells
            .iter()
            .map(|row| row.get::<_, i32>(0).to_string())
            .collect())
    }

    async fn process(&self, cell: &str, run: Run) -> Result<Outcome, JobError> {
        let number: i64 = cell.parse().map_err(JobError::fatal)?;
        let fence = fence::Fence::new(format!("payment/{cell}"), run.token())?;
        loop {
            run.check()?;
            let mut client = self.client.lock().await;
            let tx = self.connected(&mut client).await?.transaction().await?;
            // First: until the end of the transaction no other holder of this cell gets past its own check, and one that
            // had the cell before is refused here.
            let rows = tx
                .execute(fence::postgres::CHECK, &[&fence.resource(), &fence.token()])
                .await?;
            fence.accepted(rows)?;
            let open: Vec<i64> = tx
                .query(OPEN, &[&number, &AT_ONCE])
                .await?
                .iter()
                .map(|row| row.get(0))
                .collect();
            if open.is_empty() {
                return Ok(Outcome::Done);
            }
            tx.execute(BOOK, &[&open]).await?;
            tx.commit().await?;
        }
    }
}

/// Works on the payments of `database`, with locks in this file.
pub async fn work(database: &str, locks: &Path) -> Result<(), Box<dyn Error>> {
    // What a replica leaves behind when it dies is free again after two seconds.
    let spec = Spec::continuous().ttl(Duration::from_secs(2));
    Worker::builder()
        .locks(LockSettings::embedded(locks))
        .build()
        .batch_job("postings", Postings::new(database), spec)
        .run()
        .await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let database = std::env::var("POSTINGS_DATABASE")?;
    let (client, connection) = tokio_postgres::connect(&database, NoTls).await?;
    watchkeeper::lock::spawn::Spawn::system().spawn(async { drop(connection.await) });
    client.batch_execute(TABLES).await?;
    client.batch_execute(fence::postgres::CREATE_TABLE).await?;
    work(&database, Path::new("postings-locks.db")).await
}
