//! What the tests stand on: a table in a file, a receiver, a clock that can be moved on, a sender that can be killed.

use std::{path::PathBuf, time::Duration};

use rusqlite::Connection;
use serde_json::{Value, json};
use watchkeeper::{clock::Clock, spawn::Spawn};
use watchkeeper_jobs::{
    Notifications, NotificationsParams,
    demo_table::{create_demo_table, unsent},
    notifications::{Operator, operator},
    receiver::{Receiver, Tally},
};

use crate::sender::{self, Calendar};

/// A table of `n` rows, a receiver, and a clock that can be moved on.
pub(crate) struct Scene {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) receiver: Receiver,
    calendar: Calendar,
}

impl Scene {
    /// Characters of the longest id that is tried.
    pub(crate) const LONG_ID: usize = 100_000;

    pub(crate) async fn with_rows(n: usize) -> Self {
        let scene = Self {
            folder: tempfile::tempdir().unwrap(),
            receiver: Receiver::start(&Spawn::system()).await.unwrap(),
            calendar: Calendar::default(),
        };
        create_demo_table(&scene.db(), n).unwrap();
        scene
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.folder.path().join("app.db")
    }

    /// The address of the database.
    pub(crate) fn source(&self) -> String {
        format!("sqlite://{}", self.db().display())
    }

    /// Takes the database away; says what is said of it then.
    pub(crate) fn take_away(&self) -> &'static str {
        std::fs::remove_file(self.db()).unwrap();
        "no database at"
    }

    /// Everything that was ever made in the database.
    pub(crate) fn things(&self) -> i64 {
        self.number("SELECT count(*) FROM sqlite_schema")
    }

    pub(crate) fn sql(&self, sql: &str) {
        let db = Connection::open(self.db()).unwrap();
        db.busy_timeout(Duration::from_secs(5)).unwrap();
        db.execute_batch(sql).unwrap();
    }

    pub(crate) fn number(&self, sql: &str) -> i64 {
        let db = Connection::open(self.db()).unwrap();
        db.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// Rows of the demonstration's table that are not marked.
    pub(crate) fn unsent(&self) -> u64 {
        unsent(&self.db()).unwrap()
    }

    /// Lists all rows as dead, every third as parked.
    pub(crate) fn note_all(&self) {
        self.sql(
            "INSERT INTO watchkeeper_delivery SELECT 'notifications', id, CASE id % 3 WHEN 0 THEN 'parked' ELSE 'dead' END,
             3, 0, 'no', 7, 'notifications/50/' || (id / 50), '2026-05-04T08:00:00Z', NULL, NULL FROM notifications",
        );
    }

    pub(crate) fn params(&self, changes: Value) -> NotificationsParams {
        let mut params = json!({
            "source": self.source(),
            "table": "notifications",
            "sink": self.receiver.url(),
            "backoff": "10s",
            "in_doubt": "repeat",
        });
        let changes = changes.as_object().unwrap().clone();
        params.as_object_mut().unwrap().extend(changes);
        serde_json::from_value(params).unwrap()
    }

    pub(crate) fn job(&self, changes: Value) -> Notifications {
        Notifications::new(self.params(changes), None).on_clock(self.clock())
    }

    /// A person's hands on the side table.
    pub(crate) async fn operator(&self, to_change: bool) -> Box<dyn Operator> {
        operator(&self.params(json!({})), to_change).await.unwrap()
    }

    pub(crate) fn clock(&self) -> Clock {
        self.calendar.clock()
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.calendar.advance(by);
    }

    /// Sends `batch` and kills the sender once the receiver has seen `n` requests in all.
    pub(crate) async fn kill_after(&self, n: u64, job: &Notifications, token: u64, batch: &str) {
        sender::kill_after(&self.receiver, n, job, token, batch).await;
    }

    pub(crate) fn tally(&self) -> Tally {
        self.receiver.tally()
    }
}
