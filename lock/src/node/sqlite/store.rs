//! The open file: executes one call as one transaction.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use tracing::warn;

use super::{OpenError, inspect, open, rows::SqlRows};
use crate::{
    clock::{Clock, Moment},
    node::{Announcement, Call, NodeError, NodeFacts, NodeMs, Op, Reply, rules},
};

/// How long a call waits for other processes: well under the renewal period of a two-second lease.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_millis(400);

/// How often documents and places in queues that have ended are removed; until then they count as absent.
const CLEAN_EVERY: Duration = Duration::from_secs(5);

/// How long releases stay readable for other processes.
const RELEASES_STAY: Duration = Duration::from_secs(30);

/// One connection to the file.
pub(super) struct Store {
    path: PathBuf,
    conn: Connection,
    clock: Clock,
    boot: String,
    /// Device and inode of the file that was opened.
    identity: (u64, u64),
    clean_at: NodeMs,
}

// === impl Store ===

impl Store {
    /// What time it is by its clock.
    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(super) fn open(path: &Path, clock: Clock, boot: String) -> Result<Self, OpenError> {
        let conn = open::open(path, &boot, node_ms(&clock))?;
        let identity = identity(path).map_err(|source| OpenError::NoAccess {
            path: path.into(),
            source,
        })?;
        Ok(Self {
            path: path.into(),
            conn,
            clock,
            boot,
            identity,
            clean_at: NodeMs(0),
        })
    }

    /// Executes a call. Its time is read when the transaction has begun, so that waiting for others counts.
    pub(super) fn call(&mut self, call: &Call) -> Result<Reply, NodeError> {
        self.same_file()?;
        let writes = !call.ops.iter().all(only_looks);
        let behavior = if writes {
            TransactionBehavior::Immediate
        } else {
            TransactionBehavior::Deferred
        };
        let tx = self
            .conn
            .transaction_with_behavior(behavior)
            .map_err(|e| trouble(&e))?;
        let now = node_ms(&self.clock);
        rules::admit(now, call)?;
        let mut rows = SqlRows::new(&tx, now);
        if rows.boot().map_err(|e| trouble(&e))? != self.boot {
            return Err(NodeError::Unfit(
                "another machine uses the same file".to_owned(),
            ));
        }
        let wall_ms = self.clock.wall().as_millisecond();
        let reply = rules::execute(&mut rows, now, wall_ms, call).map_err(|e| trouble(&e))?;
        let clean = writes && now >= self.clean_at;
        if clean {
            let old = now.0.saturating_sub(rules::ceil_ms(RELEASES_STAY));
            rows.clean(NodeMs(old)).map_err(|e| trouble(&e))?;
        }
        tx.commit().map_err(|error| {
            // It may be on the disk all the same.
            warn!(node = "embedded", %error, "commit failed");
            NodeError::Timeout(BUSY_TIMEOUT)
        })?;
        if clean {
            self.clean_at = rules::later(now, CLEAN_EVERY);
        }
        Ok(reply)
    }

    /// What is known of the file.
    pub(super) fn inspect(&self) -> NodeFacts {
        let mode = "PRAGMA journal_mode";
        let journal = self.conn.query_row(mode, [], |row| row.get(0)).ok();
        NodeFacts {
            journal,
            version: Some(rusqlite::version().to_owned()),
            ..inspect::inspect(&self.path)
        }
    }

    /// A number that changes when another connection has changed the file.
    pub(super) fn data_version(&self) -> rusqlite::Result<i64> {
        self.conn
            .prepare_cached("PRAGMA data_version")?
            .query_row([], |row| row.get(0))
    }

    /// The number of the last release so far.
    pub(super) fn last_release(&self) -> rusqlite::Result<i64> {
        let last = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'wk_release'";
        self.conn
            .prepare_cached(last)?
            .query_row([], |row| row.get(0))
    }

    /// Releases after number `last`, in order, with their numbers.
    pub(super) fn releases(&self, last: i64) -> rusqlite::Result<Vec<(i64, Announcement)>> {
        let after = "SELECT id, key, owner, next FROM wk_release WHERE id > ?1 ORDER BY id";
        let mut select = self.conn.prepare_cached(after)?;
        let rows = select.query_map([last], |row| {
            Ok((
                row.get(0)?,
                Announcement {
                    key: row.get(1)?,
                    owner: row.get(2)?,
                    next: row.get(3)?,
                },
            ))
        })?;
        rows.collect()
    }

    /// Tests that compare answers need not wait for the disk.
    #[cfg(test)]
    pub(super) fn skip_the_disk(&self) {
        self.conn.pragma_update(None, "synchronous", "OFF").unwrap();
    }

    /// Locks live in the file that was opened: when another stands in its place, others cannot see ours.
    fn same_file(&self) -> Result<(), NodeError> {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            return Ok(());
        }
        let path = self.path.display();
        Err(NodeError::Unfit(format!(
            "{path} was removed or replaced while open; restart"
        )))
    }
}

fn only_looks(op: &Op) -> bool {
    matches!(
        op,
        Op::Read { .. }
            | Op::List { .. }
            | Op::Docs { .. }
            | Op::DocNames { .. }
            | Op::Doc { .. }
            | Op::Admission
            | Op::Records { .. }
    )
}

fn node_ms(clock: &Clock) -> NodeMs {
    NodeMs(u64::try_from(clock.now().since_boot().as_millis()).unwrap_or(u64::MAX))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(path).map(|file| (file.dev(), file.ino()))
}

/// What a failed statement means before anything was committed.
fn trouble(error: &rusqlite::Error) -> NodeError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            NodeError::Unfit(format!("busy for {BUSY_TIMEOUT:?}"))
        }
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            NodeError::Auth(error.to_string())
        }
        Some(_) => NodeError::Unfit(error.to_string()),
        None => NodeError::Protocol(error.to_string()),
    }
}
