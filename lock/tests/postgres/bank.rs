//! What the cases share: an account in a schema of its own, and sessions that write to it.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use tokio::net::UnixStream;
use tokio_postgres::{Client, Config, Error, NoTls, error::SqlState};
use watchkeeper_lock::{
    clock::Clock,
    fence::{Fence, FenceError, postgres},
    node::{Token, sqlite::SqliteNode},
    spawn::Spawn,
};

use crate::{
    holders::{self, ACCOUNT, Holders},
    server::{PostgresServer, USER},
};

/// An account of 100, and the side table.
pub(crate) struct Bank<'a> {
    server: &'a PostgresServer,
    schema: String,
    /// Of the leases.
    folder: tempfile::TempDir,
}

/// One client. What it does outside of a transaction is one by itself.
pub(crate) struct Session(Client);

/// Runs a case on a runtime of its own.
/// One kind of future for all cases, or the runtime would be built once for each.
pub(crate) fn run<T>(case: impl Future<Output = T>) -> T {
    let case: Pin<&mut dyn Future<Output = T>> = pin!(case);
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(case)
}

// === impl Bank ===

impl<'a> Bank<'a> {
    /// `schema`: the name of the case.
    pub(crate) async fn open(server: &'a PostgresServer, schema: &str) -> Self {
        let bank = Self {
            server,
            schema: schema.to_owned(),
            folder: tempfile::tempdir().unwrap(),
        };
        let session = bank.session().await;
        session.execute(&format!("CREATE SCHEMA {schema}")).await;
        session
            .execute(
                "CREATE TABLE account (
                    id BIGINT PRIMARY KEY, balance BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0);
                 INSERT INTO account (id, balance) VALUES (7, 100)",
            )
            .await;
        // Twice does no harm.
        session.execute(postgres::CREATE_TABLE).await;
        session.execute(postgres::CREATE_TABLE).await;
        bank
    }

    pub(crate) async fn session(&self) -> Session {
        let stream = UnixStream::connect(self.server.socket()).await.unwrap();
        let (client, connection) = Config::new()
            .user(USER)
            .dbname("postgres")
            .options(format!("-c search_path={}", self.schema))
            .connect_raw(stream, NoTls)
            .await
            .unwrap();
        Spawn::system().spawn(async move {
            // Some cases end the session from outside; the others notice at their next statement.
            _ = connection.await;
        });
        Session(client)
    }

    /// Two holders, the first frozen past the end of its lease.
    pub(crate) async fn frozen(&self) -> Holders {
        holders::after_expiry(self.store()).await
    }

    /// Two holders, the first with a write under way when it released.
    pub(crate) async fn released(&self) -> Holders {
        holders::after_release(self.store()).await
    }

    fn store(&self) -> Arc<SqliteNode> {
        let file = self.folder.path().join("locks.db");
        Arc::new(SqliteNode::open(file, Clock::system()).unwrap())
    }
}

// === impl Session ===

impl Session {
    pub(crate) async fn execute(&self, sql: &str) {
        self.0.batch_execute(sql).await.unwrap();
    }

    pub(crate) async fn number(&self, sql: &str) -> i64 {
        self.0.query_one(sql, &[]).await.unwrap().get(0)
    }

    pub(crate) async fn balance(&self) -> i64 {
        self.number("SELECT balance FROM account WHERE id = 7")
            .await
    }

    /// The check alone, with any number: how many rows it has changed.
    pub(crate) async fn rows(&self, resource: &str, token: i64) -> Result<u64, Error> {
        self.0.execute(postgres::CHECK, &[&resource, &token]).await
    }

    /// The check, inside a transaction that is open already.
    pub(crate) async fn check(&self, token: Token) -> Result<Result<(), FenceError>, Error> {
        let fence = Fence::new(ACCOUNT, token).unwrap();
        let rows = self.rows(fence.resource(), fence.token()).await?;
        Ok(fence.accepted(rows).map_err(FenceError::from))
    }

    /// Sets the balance behind the side table.
    pub(crate) async fn set(&mut self, token: Token, balance: i64) -> Result<(), FenceError> {
        let fence = Fence::new(ACCOUNT, token)?;
        let tx = self.0.transaction().await.unwrap();
        let rows = tx
            .execute(postgres::CHECK, &[&fence.resource(), &fence.token()])
            .await
            .unwrap();
        fence.accepted(rows)?;
        tx.execute("UPDATE account SET balance = $1 WHERE id = 7", &[&balance])
            .await
            .unwrap();
        tx.commit().await.unwrap();
        Ok(())
    }

    /// Sets it behind the row's own column.
    pub(crate) async fn set_by_column(
        &mut self,
        token: Token,
        balance: i64,
    ) -> Result<(), FenceError> {
        let sql = "UPDATE account SET balance = $2, fence = $3 WHERE id = $1 AND fence <= $3";
        self.by_column(sql, token, balance).await
    }

    /// The same, where the row may be missing.
    pub(crate) async fn put_by_column(
        &mut self,
        token: Token,
        balance: i64,
    ) -> Result<(), FenceError> {
        let sql = "INSERT INTO account (id, balance, fence) VALUES ($1, $2, $3)
            ON CONFLICT (id) DO UPDATE SET balance = excluded.balance, fence = excluded.fence
                                 WHERE account.fence <= excluded.fence";
        self.by_column(sql, token, balance).await
    }

    async fn by_column(&self, sql: &str, token: Token, balance: i64) -> Result<(), FenceError> {
        let fence = Fence::new(ACCOUNT, token)?;
        let rows = self
            .0
            .execute(sql, &[&7_i64, &balance, &fence.token()])
            .await
            .unwrap();
        Ok(fence.accepted(rows)?)
    }

    pub(crate) async fn pid(&self) -> i64 {
        self.number("SELECT pg_backend_pid()::bigint").await
    }

    /// Waits until the session of that pid waits for another.
    pub(crate) async fn until_blocked(&self, pid: i64) {
        let clock = Clock::system();
        let start = clock.now();
        let blocked = format!("SELECT cardinality(pg_blocking_pids({pid}))::bigint");
        while self.number(&blocked).await == 0 {
            let waited = clock.now().since(start);
            assert!(waited < Duration::from_secs(10), "nobody waits");
            clock.sleep(Duration::from_millis(2)).await;
        }
    }
}

pub(crate) fn assert_stale(refused: &FenceError, by: Token) {
    assert!(
        matches!(refused, FenceError::Stale(stale) if stale.token == by && stale.resource == ACCOUNT),
        "{refused:?}"
    );
}

/// Whether the server asks for another attempt at the whole transaction.
pub(crate) fn assert_serialization_failure(refused: &Error) {
    assert_eq!(
        refused.code(),
        Some(&SqlState::T_R_SERIALIZATION_FAILURE),
        "{refused:?}"
    );
}
