//! The open file: executes one call as one transaction.

use std::{collections::BTreeSet, path::Path, time::Duration};

use rusqlite::{Connection, ErrorCode, TransactionBehavior, config::DbConfig};
use tracing::{debug, error, warn};

use super::{
    boot::{Takeover, Watch},
    error::OpenError,
    inspect, layout,
    open::{self, BUSY_TIMEOUT},
    place::{self, Inodes, Names, Still},
    rows::{self, SqlRows},
    users::Users,
};
use crate::{
    clock::{Clock, Moment},
    human::Brief,
    node::{
        Announcement, Call, NodeError, NodeFacts, NodeMs, Op, Reply,
        rules::{self, only_looks},
    },
};

/// How often documents and places in queues that have ended are removed; until then they count as absent.
const CLEAN_EVERY: Duration = Duration::from_secs(5);

/// The same while there is more of it than is removed at a time.
const CLEAN_ON: Duration = Duration::from_millis(100);

/// How long releases stay readable for other processes.
const RELEASES_STAY: Duration = Duration::from_secs(30);

/// Of so many names that make no sense it is said.
const MISFITS: usize = 20;

/// One connection to the file.
pub(super) struct Store {
    // Closed before others are let in: closing may still write.
    conn: Connection,
    users: Users,
    names: Names,
    /// The files that were opened.
    inodes: Inodes,
    clock: Clock,
    boot: String,
    /// Whether the file's times count in our boot.
    settled: bool,
    /// A file of another boot, watched until its leases are over.
    watch: Option<Watch>,
    /// Why nothing is granted any more: what others find at the path is not what is open here.
    gone: Option<String>,
    /// How often the file was changed when we last changed it.
    changes: u64,
    /// How long a lease was noted to be in the file, at least.
    noted: Duration,
    clean_at: NodeMs,
    /// What was told to be none of ours.
    misfits: BTreeSet<String>,
}

/// Why a call came to nothing.
enum Failed {
    /// The memory that the file stands for is not what this process knew.
    Gone(String),
    Node(NodeError),
}

// === impl Store ===

impl Store {
    /// What time it is by its clock.
    pub(super) fn now(&self) -> Moment {
        self.clock.now()
    }

    pub(super) fn open(path: &Path, clock: Clock, boot: String) -> Result<Self, OpenError> {
        let opened = open::open(path, &boot, node_ms(&clock))?;
        Ok(Self {
            conn: opened.conn,
            users: opened.users,
            names: opened.names,
            inodes: opened.inodes,
            clock,
            boot,
            settled: opened.settled,
            watch: None,
            gone: None,
            changes: opened.changes,
            noted: Duration::ZERO,
            clean_at: NodeMs(0),
            misfits: BTreeSet::new(),
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.names.main
    }

    /// Executes a call.
    pub(super) fn call(&mut self, call: &Call) -> Result<Reply, NodeError> {
        if let Some(why) = &self.gone {
            return Err(NodeError::Gone(why.clone()));
        }
        let path = self.names.main.display().to_string();
        self.execute(call).map_err(|failed| match failed {
            Failed::Node(trouble) => trouble,
            Failed::Gone(what) => {
                // Final: while it was away, others may have been granted what is held here.
                let why = format!(
                    "{path}: {what} while it was open here; stop all processes that use it, then start them again"
                );
                error!(node = "embedded", path, what, "the store's file is no longer ours: all leases in it are over");
                self.gone = Some(why.clone());
                NodeError::Gone(why)
            }
        })
    }

    /// Its time is read when the transaction has begun, so that waiting for others counts.
    fn execute(&mut self, call: &Call) -> Result<Reply, Failed> {
        self.is_ours()?;
        // Before the transaction: what others change after it began is not seen in it.
        let noted = self.users.changes().unwrap_or(0).max(self.changes);
        if !self.settled {
            self.settle()?;
        }
        let writes = !call.ops.iter().all(only_looks);
        let behavior = if writes {
            TransactionBehavior::Immediate
        } else {
            TransactionBehavior::Deferred
        };
        let tx = self.conn.transaction_with_behavior(behavior)?;
        let now = node_ms(&self.clock);
        rules::admit(now, call).map_err(Failed::Node)?;
        let mut rows = SqlRows::new(&tx, now);
        let (boot, changes) = rows.boot_and_changes()?;
        if boot != self.boot {
            return Err(Failed::Gone(format!(
                "another machine, or a container with a clock of its own, took it over (boot {boot}, ours is {})",
                self.boot
            )));
        }
        if changes < noted {
            return Err(Failed::Gone(format!(
                "{} (change {changes}, the last here was {noted})",
                open::EARLIER
            )));
        }
        let wall_ms = self.clock.wall().as_millisecond();
        let before = tx.total_changes();
        let reply = rules::execute(&mut rows, now, wall_ms, call)?;
        let mut clean_at = self.clean_at;
        if writes && now >= clean_at {
            let old = now.0.saturating_sub(rules::ceil_ms(RELEASES_STAY));
            // Others must not wait for all of it.
            let more = rows.clean(NodeMs(old))?;
            clean_at = rules::later(now, if more { CLEAN_ON } else { CLEAN_EVERY });
        }
        // What was refused costs no disk.
        let changed = tx.total_changes() != before;
        let (mut noted, granted) = (self.noted, longest_asked(call));
        if changed {
            rows.changed(changes.saturating_add(1))?;
            if granted > noted {
                noted = layout::note(&tx, granted)?;
            }
        }
        let misfits = std::mem::take(&mut rows.misfits);
        tx.commit().map_err(|error| {
            // It may be on the disk all the same.
            warn!(node = "embedded", path = %self.names.main.display(), %error, "commit failed");
            Failed::Node(NodeError::Timeout(BUSY_TIMEOUT))
        })?;
        if changed {
            self.changes = changes.saturating_add(1);
            // After the commit: noted before it, a process that dies between both would leave a number without its change.
            if let Err(error) = self.users.changed(self.changes) {
                debug!(node = "embedded", %error, "change not noted");
            }
        }
        (self.clean_at, self.noted) = (clean_at, noted);
        misfits.into_iter().for_each(|what| self.tell_misfit(what));
        Ok(reply)
    }

    fn tell_misfit(&mut self, what: String) {
        if self.misfits.len() < MISFITS && !self.misfits.contains(&what) {
            warn!(
                node = "embedded", path = %self.names.main.display(), what,
                "not what watchkeeper writes there, and counts as absent"
            );
            self.misfits.insert(what);
        }
    }

    /// Locks live in the file that was opened: when another stands in its place, others cannot see ours.
    fn is_ours(&self) -> Result<(), Failed> {
        let path = self.names.main.display();
        let unfit = |why| Err(Failed::Node(NodeError::Unfit(why)));
        match self.names.look() {
            // Nothing is known of what others find there.
            Err(error) => unfit(format!("cannot look at {path}: {error}")),
            Ok(found) => match place::still(&self.inodes, &found) {
                Still::Ours => Ok(()),
                Still::Gone(what) => Err(Failed::Gone(what.to_owned())),
                Still::Linked(links) => unfit(format!(
                    "{path} has {links} names (hard links), and who uses another of them has a log of its own; remove the others"
                )),
            },
        }
    }

    /// Makes the file one of this boot when no lease of another can live.
    fn settle(&mut self) -> Result<(), Failed> {
        let tx = self
            .conn
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let now = node_ms(&self.clock);
        let shown = layout::shown(&tx)?;
        if shown.boot == self.boot {
            self.settled = true;
            return Ok(());
        }
        let watch = Watch::on(self.watch.take(), shown.clone(), now);
        let left = match watch.judge(now) {
            Takeover::In(left) => left,
            Takeover::Now => {
                layout::take_over(&tx, &shown, &self.boot, now)?;
                tx.commit()?;
                self.settled = true;
                return Ok(());
            }
        };
        let (path, theirs) = (self.names.main.display(), watch.boot());
        let damaged = match layout::overlong(&tx)? {
            Some(lease) => {
                format!("; {lease} is damaged, and waited for as the longest that may live")
            }
            None => String::new(),
        };
        let why = match watch.lives {
            false => format!(
                "{path} was last used before a restart, or is used by another machine (boot {theirs}): grants nothing for {} \
                 more, in which leases of that time may live{damaged}",
                Brief(left)
            ),
            true => format!(
                "{path} is used by another machine, or by a container with a clock of its own (boot {theirs}, ours is {}): an \
                 embedded store serves one machine; stop one of them, or use redis",
                self.boot
            ),
        };
        self.watch = Some(watch);
        Err(Failed::Node(NodeError::Unfit(why)))
    }

    /// What is known of the file.
    pub(super) fn inspect(&self) -> NodeFacts {
        let mode = "PRAGMA journal_mode";
        let journal = self.conn.query_row(mode, [], |row| row.get(0)).ok();
        NodeFacts {
            journal,
            version: Some(rusqlite::version().to_owned()),
            ..inspect::inspect(&self.names.main)
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
        let mut found = select.query([last])?;
        let mut news = Vec::new();
        while let Some(row) = found.next()? {
            // One that makes no sense would be in the way of all after it.
            if let Some(release) = rows::release(row) {
                news.push((row.get(0)?, release));
            }
        }
        Ok(news)
    }

    /// As on a disk that is full.
    #[cfg(test)]
    pub(super) fn let_it_grow_no_more(&self) {
        let pages = "PRAGMA page_count";
        let pages: i64 = self.conn.query_row(pages, [], |row| row.get(0)).unwrap();
        let most = format!("PRAGMA max_page_count = {}", pages + 8);
        self.conn.query_row(&most, [], |_| Ok(())).unwrap();
    }

    /// Tests that compare answers need not wait for the disk.
    #[cfg(test)]
    pub(super) fn skip_the_disk(&self) {
        self.conn.pragma_update(None, "synchronous", "OFF").unwrap();
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let found = self.names.look();
        if found.is_ok_and(|found| found.main == self.inodes.main) {
            return;
        }
        // Closing the last connection takes away `-wal` by its name, which is another file's by now.
        let keep = DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE;
        if let Err(error) = self.conn.set_db_config(keep, true) {
            debug!(node = "embedded", %error, "cannot leave the log alone");
        }
    }
}

// === impl Failed ===

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        Self::Node(trouble(&error))
    }
}

fn node_ms(clock: &Clock) -> NodeMs {
    NodeMs(u64::try_from(clock.now().since_boot().as_millis()).unwrap_or(u64::MAX))
}

/// The longest lease that a call can grant.
fn longest_asked(call: &Call) -> Duration {
    let asked = call.ops.iter().filter_map(|op| match op {
        Op::Acquire { ttl, .. } | Op::Extend { ttl, .. } | Op::Break { ttl, .. } => Some(*ttl),
        _ => None,
    });
    asked.max().unwrap_or_default()
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
