//! A table of notifications to send: for the demonstration, for tests, and as the example to copy.

use std::path::Path;

use rusqlite::{Connection, params};

/// The table and the index that keeps the search for unsent rows quick however many were sent. No id comes back when rows are
/// deleted: receivers would take a new row for one that they have.
pub const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS notifications (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    recipient  TEXT NOT NULL,
    body       TEXT NOT NULL,
    created_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    sent_at    TEXT
);
CREATE INDEX IF NOT EXISTS notifications_unsent ON notifications (id) WHERE sent_at IS NULL;
";

/// Makes the table in the file at `path`, which may be new, and adds `n` unsent rows in one transaction.
///
/// # Errors
/// Those of SQLite.
pub fn create_demo_table(path: &Path, n: usize) -> rusqlite::Result<()> {
    let mut db = Connection::open(path)?;
    db.busy_timeout(std::time::Duration::from_secs(5))?;
    // Readers and the writer do not wait for each other.
    db.pragma_update(None, "journal_mode", "wal")?;
    db.execute_batch(SCHEMA)?;
    let all = db.transaction()?;
    {
        let mut add = all.prepare("INSERT INTO notifications (recipient, body) VALUES (?1, ?2)")?;
        for i in 1..=n {
            add.execute(params![
                format!("user{i}@example.org"),
                format!("Notification {i}")
            ])?;
        }
    }
    all.commit()
}

/// How many rows of the table at `path` are not sent.
///
/// # Errors
/// Those of SQLite.
pub fn unsent(path: &Path) -> rusqlite::Result<u64> {
    let db = Connection::open(path)?;
    db.busy_timeout(std::time::Duration::from_secs(5))?;
    db.query_row(
        "SELECT count(*) FROM notifications WHERE sent_at IS NULL",
        [],
        |row| row.get::<_, i64>(0),
    )
    .map(i64::unsigned_abs)
}
