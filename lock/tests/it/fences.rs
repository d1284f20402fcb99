//! Fences in SQLite, under leases of the embedded store.

use std::{path::Path, sync::Arc};

use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use tempfile::TempDir;
use watchkeeper_lock::{
    clock::Clock,
    fence::{Fence, FenceError, sqlite},
    node::{Node, Token, sqlite::SqliteNode},
};

use crate::holders::{self, ACCOUNT, Holders};

/// An account of 100 in a file of its own.
struct Bank(TempDir);

impl Bank {
    fn open() -> Self {
        let bank = Self(tempfile::tempdir().unwrap());
        let db = bank.connect();
        db.execute_batch(
            "PRAGMA journal_mode = wal;
             CREATE TABLE account (
                id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, fence INTEGER NOT NULL DEFAULT 0);
             INSERT INTO account (id, balance) VALUES (7, 100);",
        )
        .unwrap();
        // Twice does no harm.
        db.execute_batch(sqlite::CREATE_TABLE).unwrap();
        db.execute_batch(sqlite::CREATE_TABLE).unwrap();
        bank
    }

    fn connect(&self) -> Connection {
        let db = Connection::open(self.0.path().join("bank.db")).unwrap();
        db.busy_timeout(std::time::Duration::ZERO).unwrap();
        db
    }

    fn balance(&self) -> i64 {
        self.connect()
            .query_row("SELECT balance FROM account", [], |row| row.get(0))
            .unwrap()
    }

    /// Sets the balance behind the side table.
    fn set(&self, token: Token, balance: i64) -> Result<(), FenceError> {
        let mut db = self.connect();
        let tx = db
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .unwrap();
        sqlite::check(&tx, ACCOUNT, token)?;
        tx.execute("UPDATE account SET balance = ?1", [balance])
            .unwrap();
        tx.commit().unwrap();
        Ok(())
    }

    /// Sets it behind the row's own column.
    fn set_by_column(&self, token: Token, balance: i64) -> Result<(), FenceError> {
        let fence = Fence::new(ACCOUNT, token)?;
        let rows = self.connect().execute(
            "UPDATE account SET balance = ?2, fence = ?3 WHERE id = ?1 AND fence <= ?3",
            (7, balance, fence.token()),
        );
        Ok(fence.accepted(rows.unwrap() as u64)?)
    }
}

fn store(folder: &Path) -> Arc<dyn Node> {
    Arc::new(SqliteNode::open(folder.join("locks.db"), Clock::system()).unwrap())
}

async fn frozen(bank: &Bank) -> Holders {
    holders::after_expiry(store(bank.0.path())).await
}

fn assert_stale(refused: &FenceError, by: Token) {
    assert!(
        matches!(refused, FenceError::Stale(stale) if stale.token == by && stale.resource == ACCOUNT),
        "{refused:?}"
    );
}

/// Holds of either form.
async fn refuses_the_stale(
    holders: Holders,
    bank: &Bank,
    set: impl Fn(Token, i64) -> Result<(), FenceError>,
) {
    let present = holders.present.token();
    set(holders.stale, 90).unwrap();
    set(present, 80).unwrap();
    assert_stale(&set(holders.stale, 0).unwrap_err(), holders.stale);
    assert_eq!(bank.balance(), 80);
    set(present, 70).unwrap();
    assert_eq!(bank.balance(), 70);
    holders.present.release().await;
}

#[tokio::test]
async fn a_stale_holder_is_refused() {
    let bank = Bank::open();
    refuses_the_stale(frozen(&bank).await, &bank, |token, to| bank.set(token, to)).await;
}

#[tokio::test]
async fn a_holder_that_was_stale_by_its_release_is_refused() {
    let bank = Bank::open();
    let holders = holders::after_release(store(bank.0.path())).await;
    refuses_the_stale(holders, &bank, |token, to| bank.set(token, to)).await;
}

#[tokio::test]
async fn a_stale_holder_is_refused_by_the_column() {
    let bank = Bank::open();
    refuses_the_stale(frozen(&bank).await, &bank, |token, to| {
        bank.set_by_column(token, to)
    })
    .await;
}

#[tokio::test]
async fn without_the_fence_the_stale_write_goes_through() {
    let bank = Bank::open();
    let holders = frozen(&bank).await;
    bank.set(holders.present.token(), 80).unwrap();
    // The same write, by the holder whose lease is over.
    let rows = bank
        .connect()
        .execute("UPDATE account SET balance = 0", [])
        .unwrap();
    assert_eq!((rows, bank.balance()), (1, 0));
}

#[tokio::test]
async fn a_check_keeps_other_writers_out_to_the_end_of_its_transaction() {
    let bank = Bank::open();
    let holders = frozen(&bank).await;
    let (mut one, mut other) = (bank.connect(), bank.connect());
    // The stale holder is inside; it had every right to be when it came.
    let late = one.transaction().unwrap();
    sqlite::check(&late, ACCOUNT, holders.stale).unwrap();
    late.execute("UPDATE account SET balance = 90", []).unwrap();
    let waits = other.transaction().unwrap();
    let busy = sqlite::check(&waits, ACCOUNT, holders.present.token()).unwrap_err();
    assert_busy(&busy);
    late.commit().unwrap();
    // What it left is what the present holder sees, and no write comes after.
    drop(waits);
    let tx = other.transaction().unwrap();
    sqlite::check(&tx, ACCOUNT, holders.present.token()).unwrap();
    tx.execute("UPDATE account SET balance = balance - 10", [])
        .unwrap();
    tx.commit().unwrap();
    assert_stale(&bank.set(holders.stale, 0).unwrap_err(), holders.stale);
    assert_eq!(bank.balance(), 80);
}

#[tokio::test]
async fn a_stale_holder_that_read_before_its_check_is_refused_in_the_end() {
    let bank = Bank::open();
    let holders = frozen(&bank).await;
    let mut db = bank.connect();
    let late = db.transaction().unwrap();
    let seen: i64 = late
        .query_row("SELECT balance FROM account", [], |row| row.get(0))
        .unwrap();
    bank.set(holders.present.token(), 80).unwrap();
    assert_eq!(seen, 100);
    assert_busy(&sqlite::check(&late, ACCOUNT, holders.stale).unwrap_err());
    drop(late);
    let again = db.transaction().unwrap();
    assert_stale(
        &sqlite::check(&again, ACCOUNT, holders.stale).unwrap_err(),
        holders.stale,
    );
    drop(again);
    assert_eq!(bank.balance(), 80);
}

#[test]
fn a_check_that_is_rolled_back_leaves_no_trace() {
    let bank = Bank::open();
    let mut db = bank.connect();
    let tx = db.transaction().unwrap();
    sqlite::check(&tx, ACCOUNT, Token(9)).unwrap();
    drop(tx);
    bank.set(Token(3), 80).unwrap();
}

#[test]
fn resources_are_fenced_apart() {
    let bank = Bank::open();
    let mut db = bank.connect();
    let tx = db.transaction().unwrap();
    sqlite::check(&tx, "one", Token(9)).unwrap();
    sqlite::check(&tx, "two", Token(3)).unwrap();
    assert_stale_of(&sqlite::check(&tx, "one", Token(3)).unwrap_err(), "one");
}

#[test]
fn a_job_without_a_lock_is_refused_here_and_by_the_table() {
    let bank = Bank::open();
    let refused = bank.set(Token(0), 0).unwrap_err();
    assert!(matches!(refused, FenceError::NoToken { .. }), "{refused:?}");
    let db = bank.connect();
    db.execute(sqlite::CHECK, (ACCOUNT, 5)).unwrap();
    for token in [0, -1] {
        for resource in [ACCOUNT, "new"] {
            let refused = db.execute(sqlite::CHECK, (resource, token)).unwrap_err();
            assert_eq!(
                refused.sqlite_error_code(),
                Some(ErrorCode::ConstraintViolation)
            );
        }
    }
    assert_eq!(bank.balance(), 100);
}

#[test]
fn tokens_are_compared_as_numbers_up_to_the_largest() {
    let bank = Bank::open();
    let largest = (1 << 53) - 1;
    for token in [9, 10, largest - 1, largest] {
        bank.set(Token(token), 0).unwrap();
    }
    assert_stale(
        &bank.set(Token(largest - 1), 1).unwrap_err(),
        Token(largest - 1),
    );
    // A driver that binds digits is no way around.
    let rows = bank.connect().execute(sqlite::CHECK, (ACCOUNT, "99"));
    assert_eq!(rows, Ok(0));
}

fn assert_busy(refused: &FenceError) {
    let FenceError::Sqlite { source, resource } = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(
        (source.sqlite_error_code(), resource.as_str()),
        (Some(ErrorCode::DatabaseBusy), ACCOUNT)
    );
}

fn assert_stale_of(refused: &FenceError, resource: &str) {
    assert!(
        matches!(refused, FenceError::Stale(stale) if stale.resource == resource),
        "{refused:?}"
    );
}
