//! Opening the file: access, file system, layout, boot.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
    time::Duration,
};

use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior, types::ValueRef,
};

use super::{
    boot::Use,
    error::OpenError,
    place::{self, Inodes, Names, Still},
    rows::{self, boot_of, number},
    users::{self, Entered, Users},
};
use crate::{
    node::{
        NodeMs,
        rules::{LONGEST_TTL_MS, ceil_ms},
    },
    owned,
};

/// The layout known here.
const LAYOUT: i64 = 5;

/// The layout before it, which is brought to this one where no other process uses the file.
const BEFORE: i64 = LAYOUT - 1;

/// How a file that was taken back from a backup is called.
pub(super) const EARLIER: &str = "it is a copy of an earlier time";

/// How long a call waits for other processes: well under the renewal period of a two-second lease.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_millis(400);

/// How a folder is called that is not the one it was.
const MOVED: &str = "its folder, or the lock file in it, was removed or moved away";

/// How often, and at what pace, a file is tried that another process keeps locked: under a second for all of it. A
/// caller that may wait longer opens it again.
const TRIES: u32 = 32;
const BETWEEN_TRIES: Duration = Duration::from_millis(25);

/// Times are milliseconds of CLOCK_BOOTTIME in the boot that `wk_node` names. `wk_meta` says the layout, and how long the longest lease
/// was that was granted in this boot: twice, the second time below zero, so that damage of one is seen. In `wk_lease`, `H` is a held record, `R` a released
/// and `B` a broken one, `C` a claim, which has no more than its first columns. A body that ends has a row in `wk_kept`, and is
/// kept for `kept` after its last change; so its text is not written again with every lease. `changes` counts the calls that
/// changed the file, `seen` is the time of the last.
const TABLES: &str = "
    CREATE TABLE wk_meta (
        name  TEXT PRIMARY KEY NOT NULL,
        value INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE wk_node (
        id        INTEGER PRIMARY KEY CHECK (id = 1),
        forgotten INTEGER NOT NULL,
        boot      TEXT NOT NULL,
        seen      INTEGER NOT NULL,
        changes   INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE wk_lease (
        key     TEXT PRIMARY KEY NOT NULL,
        state   TEXT NOT NULL CHECK (state IN ('H', 'R', 'B', 'C')),
        owner   TEXT NOT NULL,
        granted INTEGER NOT NULL,
        inc     TEXT NOT NULL,
        until   INTEGER NOT NULL,
        seq     INTEGER NOT NULL,
        ttl     INTEGER NOT NULL,
        counter INTEGER NOT NULL,
        token   INTEGER NOT NULL,
        rev     INTEGER NOT NULL,
        waits   INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE wk_body (
        key   TEXT PRIMARY KEY NOT NULL,
        token INTEGER NOT NULL,
        rev   INTEGER NOT NULL,
        body  TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE wk_doc (
        name  TEXT PRIMARY KEY NOT NULL,
        rev   INTEGER NOT NULL,
        ttl   INTEGER NOT NULL,
        until INTEGER NOT NULL,
        body  TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX wk_doc_until ON wk_doc (until);
    CREATE TABLE wk_release (
        id    INTEGER PRIMARY KEY AUTOINCREMENT,
        key   TEXT NOT NULL,
        owner TEXT NOT NULL,
        at    INTEGER NOT NULL,
        next  TEXT
    ) STRICT;
    CREATE TABLE wk_line (
        key     TEXT PRIMARY KEY NOT NULL,
        waiters TEXT NOT NULL,
        until   INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
";

/// A table of this layout alone.
const KEPT: &str = "
    CREATE TABLE wk_kept (
        key   TEXT PRIMARY KEY NOT NULL,
        until INTEGER NOT NULL,
        kept  INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
";

/// From the layout before.
const UPGRADE: &str = "
    INSERT INTO wk_kept SELECT key, until, kept FROM wk_body WHERE until IS NOT NULL;
    ALTER TABLE wk_body DROP COLUMN until;
    ALTER TABLE wk_body DROP COLUMN kept;
";

/// An open file, and that it is ours.
pub(super) struct Opened {
    pub(super) conn: Connection,
    pub(super) users: Users,
    pub(super) names: Names,
    pub(super) inodes: Inodes,
    /// Whether its times count in this boot: otherwise leases of another one may live.
    pub(super) settled: bool,
    /// How often it was changed.
    pub(super) changes: u64,
}

/// What came of one try.
enum Tried {
    Open(Opened),
    /// It may be another matter in a moment: a process that opens or closes it just now is done then.
    Again(OpenError),
}

/// Opens the file at `path`, makes it when it is missing, and brings it to this layout and, where nothing of another boot can
/// live, to this boot.
pub(super) fn open(path: &Path, boot: &str, now: NodeMs) -> Result<Opened, OpenError> {
    // Also when the program changes its folder later.
    let path = std::path::absolute(path).map_err(|source| no_access(path, source))?;
    let names = Names::of(&path);
    make_folder(&path)?;
    place::check(&names)?;
    // Before anything is made, and after it: what was there already may be any user's.
    owned::store(&path)?;
    owned::file(&Users::name(&path))?;
    let mut patience = Patience(TRIES);
    loop {
        match try_to_open(&names, boot, now, &mut patience)? {
            Tried::Open(opened) => return Ok(opened),
            Tried::Again(_) if patience.waits() => {}
            Tried::Again(why) => return Err(why),
        }
    }
}

fn try_to_open(
    names: &Names,
    boot: &str,
    now: NodeMs,
    patience: &mut Patience,
) -> Result<Tried, OpenError> {
    let path = &names.main;
    let locked = || Tried::Again(OpenError::Locked { path: path.clone() });
    let failed = |source| no_access(path, source);
    let entered = Users::enter(path).map_err(failed)?;
    let (users, used) = match entered {
        Entered::Busy => return Ok(locked()),
        Entered::Alone(users) => (users, None),
        Entered::Beside(users) => {
            let Some(used) = users.used().map_err(failed)? else {
                return Ok(locked());
            };
            (users, Some(used))
        }
    };
    // Before SQLite touches anything: what it would make beside the file is not what the others use.
    let other = |what: &'static str| {
        Tried::Again(OpenError::Replaced {
            path: path.clone(),
            what,
            users: users::pids(path),
        })
    };
    let differs = |used: &Inodes| -> Result<Option<&'static str>, OpenError> {
        match place::still(used, &names.look().map_err(failed)?) {
            Still::Gone(what) => Ok(Some(what)),
            Still::Ours | Still::Linked(_) => Ok(None),
        }
    };
    match &used {
        Some(used) => {
            if let Some(what) = differs(used)? {
                return Ok(other(what));
            }
        }
        None => match users.used().map_err(failed)? {
            // SQLite would write what stands in it into this file.
            Some(last) if is_log_of_another(&last, &names.look().map_err(failed)?) => {
                return Err(OpenError::OtherLog { path: path.clone() });
            }
            Some(_) => {}
            None => {
                // The first in this folder, or in this one.
                let users = users::of_another_folder(path);
                if !users.is_empty() {
                    return Ok(Tried::Again(OpenError::Replaced {
                        path: path.clone(),
                        what: MOVED,
                        users,
                    }));
                }
            }
        },
    }
    let noted = users.changes().map_err(failed)?;
    make_file(names)?;
    let before = names.look().map_err(failed)?;
    let (conn, shown) = open_file(names, (boot, now), used.is_none(), patience)?;
    let inodes = names.look().map_err(failed)?;
    if before.main != inodes.main {
        return Ok(locked());
    }
    let settled = match &used {
        // And after it: the last of the others may have closed it, or a person removed a part of it meanwhile.
        Some(used) => {
            if let Some(what) = differs(used)? {
                return Ok(other(what));
            }
            if shown.changes < noted {
                return Ok(other(EARLIER));
            }
            true
        }
        None => {
            users.note(path, &inodes, shown.changes).map_err(failed)?;
            users.settle(&inodes).map_err(failed)?
        }
    };
    if !settled {
        return Ok(locked());
    }
    Ok(Tried::Open(Opened {
        conn,
        users,
        names: names.clone(),
        inodes,
        settled: shown.boot == boot,
        changes: shown.changes,
    }))
}

/// Whether the log that lies there was that of another file, which stood there before: left by processes that were killed.
fn is_log_of_another(last: &Inodes, found: &Inodes) -> bool {
    let is_new = found.main.is_some() && found.main != last.main;
    is_new && found.wal.is_some() && found.wal == last.wal
}

fn open_file(
    names: &Names,
    (boot, now): (&str, NodeMs),
    alone: bool,
    patience: &mut Patience,
) -> Result<(Connection, Use), OpenError> {
    let path = &names.main;
    let sqlite = |source: rusqlite::Error| match source.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::NotADatabase { path: path.into() },
        _ if is_busy(&source) => OpenError::Locked { path: path.into() },
        _ => OpenError::Sqlite {
            path: path.into(),
            source,
        },
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    conn.set_prepared_statement_cache_capacity(64);
    // One patience for all steps, and it is ours.
    conn.busy_timeout(Duration::ZERO).map_err(sqlite)?;
    // Before anything of it is changed: tables of another application are not ours to add to.
    let others = patience.with(|| of_another(&conn));
    if let Some(table) = others.map_err(sqlite)? {
        return Err(OpenError::OfAnotherApplication {
            path: path.into(),
            table,
        });
    }
    let mode = patience.with(|| {
        conn.query_row("PRAGMA journal_mode = WAL", [], |row| {
            row.get::<_, String>(0)
        })
    });
    let mode = mode.map_err(sqlite)?;
    if mode != "wal" {
        return Err(OpenError::NoWriteAheadLog {
            path: path.into(),
            mode,
        });
    }
    // Again: what SQLite keeps beside the file is open only now.
    owned::store(path)?;
    conn.pragma_update(None, "synchronous", "FULL")
        .map_err(sqlite)?;
    let found = patience.with(|| prepare(&mut conn, boot, now, alone));
    match found.map_err(sqlite)? {
        Found::Ours(shown) => {
            conn.busy_timeout(BUSY_TIMEOUT).map_err(sqlite)?;
            Ok((conn, shown))
        }
        Found::Layout(found) => Err(OpenError::OtherLayout {
            path: path.into(),
            found,
            known: LAYOUT,
        }),
    }
}

fn no_access(path: &Path, source: io::Error) -> OpenError {
    OpenError::NoAccess {
        path: path.into(),
        source,
    }
}

fn make_folder(path: &Path) -> Result<(), OpenError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if !folder.is_dir() => Err(OpenError::Folder {
            path: folder.into(),
            source: error,
        }),
        _ => Ok(()),
    }
}

/// The file is never opened here: closing it again would drop the locks that SQLite holds on it for another store of this
/// process.
fn make_file(names: &Names) -> Result<(), OpenError> {
    let path = &names.main;
    let no_access = |source| no_access(path, source);
    let made = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    match made {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(no_access(error)),
    }
    owned::store(path)?;
    if !fs::metadata(path).map_err(no_access)?.is_file() {
        return Err(OpenError::NotAFile { path: path.into() });
    }
    let read_write = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
    rustix::fs::access(path, read_write).map_err(|error| no_access(error.into()))?;
    // Again: it is there only now.
    place::check(names)
}

/// What an open file is found to be.
enum Found {
    Ours(Use),
    /// Of another layout.
    Layout(i64),
}

/// Makes the tables of a new file, and voids leases of another boot when none of them can live. Of a file that is as it should
/// be it only reads, which no writer prevents. One of the layout before is changed only `alone`: what others know of its tables
/// would be wrong.
fn prepare(conn: &mut Connection, boot: &str, now: NodeMs, alone: bool) -> rusqlite::Result<Found> {
    match layout(conn)? {
        Some(LAYOUT) => {
            let shown = shown(conn)?;
            if shown.boot == boot || !shown.longest.is_zero() {
                return Ok(Found::Ours(shown));
            }
        }
        Some(BEFORE) if alone => {}
        Some(other) => return Ok(Found::Layout(other)),
        None => {}
    }
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Again: another process may have been quicker.
    match layout(&tx)? {
        Some(LAYOUT) => {}
        Some(BEFORE) if alone => {
            tx.execute_batch(KEPT)?;
            tx.execute_batch(UPGRADE)?;
            tx.execute(
                "UPDATE wk_meta SET value = ?1 WHERE name = 'layout'",
                [LAYOUT],
            )?;
        }
        Some(other) => return Ok(Found::Layout(other)),
        None => {
            tx.execute_batch(TABLES)?;
            tx.execute_batch(KEPT)?;
            tx.execute("INSERT INTO wk_meta VALUES ('layout', ?1)", [LAYOUT])?;
            tx.execute("INSERT INTO wk_node VALUES (1, 0, ?1, 0, 0)", [boot])?;
        }
    }
    let before = shown(&tx)?;
    if before.boot != boot && before.longest.is_zero() {
        take_over(&tx, &before, boot, now)?;
    }
    let after = shown(&tx)?;
    tx.commit()?;
    Ok(Found::Ours(after))
}

/// Voids the leases of another boot. What has a lifetime lives it anew: the old clock is gone.
pub(super) fn take_over(
    tx: &Connection,
    before: &Use,
    boot: &str,
    now: NodeMs,
) -> rusqlite::Result<()> {
    let now = i64::try_from(now.0).unwrap_or(i64::MAX);
    tx.execute_batch(
        "DELETE FROM wk_lease WHERE state = 'C'; DELETE FROM wk_release; DELETE FROM wk_line;
         DELETE FROM wk_meta WHERE name IN ('longest', 'longest again');",
    )?;
    // A record of an earlier boot names no owner: no contender has to watch it. A release that nothing late can follow
    // needs no mark.
    tx.execute(
        "UPDATE wk_lease SET inc = ?2, until = ?1, waits = 0",
        (now, &before.boot),
    )?;
    tx.execute(
        "UPDATE wk_kept SET until = ?1 + min(kept, 9223372036854775807 - ?1)",
        [now],
    )?;
    tx.execute(
        "UPDATE wk_doc SET until = ?1 + min(ttl, 9223372036854775807 - ?1)",
        [now],
    )?;
    let taken = "UPDATE wk_node SET boot = ?1, seen = ?2, changes = changes + 1";
    tx.execute(taken, (boot, now)).map(|_| ())
}

/// The file's layout; `None` of a new one.
fn layout(conn: &Connection) -> rusqlite::Result<Option<i64>> {
    let known = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'wk_meta'";
    if conn.query_row(known, [], |_| Ok(())).optional()?.is_none() {
        return Ok(None);
    }
    let layout = "SELECT value FROM wk_meta WHERE name = 'layout'";
    conn.query_row(layout, [], |row| row.get(0)).map(Some)
}

/// A table of a file that has none of ours.
fn of_another(conn: &Connection) -> rusqlite::Result<Option<String>> {
    if layout(conn)?.is_some() {
        return Ok(None);
    }
    let table =
        "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\' LIMIT 1";
    conn.query_row(table, [], |row| row.get(0)).optional()
}

/// What the file says of its use.
pub(super) fn shown(conn: &Connection) -> rusqlite::Result<Use> {
    let most = noted(conn)?.unwrap_or(LONGEST);
    let shown = format!(
        "SELECT boot, changes, CAST(max(0, coalesce((SELECT max(min(?1, {LIFE})) FROM wk_lease WHERE {STANDS}), 0)) AS INTEGER)
         FROM wk_node"
    );
    conn.query_row(&shown, [ms(most)], |row| {
        Ok(Use {
            boot: boot_of(row, 0)?,
            changes: number(row, 1)?,
            longest: Duration::from_millis(number(row, 2)?),
        })
    })
}

/// No lease is longer.
const LONGEST: Duration = Duration::from_millis(LONGEST_TTL_MS);

/// What names another incarnation was voided before.
const STANDS: &str = "state <> 'R' AND inc = ''";

/// How long a row of `wk_lease` could live after the last change: its ttl at most, if it is a record. An end that lies further away
/// was written by something else.
const LIFE: &str = "min(
    CASE typeof(until) WHEN 'integer' THEN until - (SELECT seen FROM wk_node) ELSE 9999999999 END,
    CASE WHEN state <> 'C' AND typeof(ttl) = 'integer' AND ttl >= 0 THEN ttl ELSE 9999999999 END)";

/// The longest lease that was granted in the file's boot; `None` where that is not noted, or makes no sense.
fn noted(conn: &Connection) -> rusqlite::Result<Option<Duration>> {
    let noted = "SELECT (SELECT value FROM wk_meta WHERE name = 'longest'),
        (SELECT value FROM wk_meta WHERE name = 'longest again')";
    conn.query_row(noted, [], |row| {
        let (one, again) = (row.get_ref(0)?, row.get_ref(1)?);
        let (ValueRef::Integer(one), ValueRef::Integer(again)) = (one, again) else {
            return Ok(None);
        };
        // Zeros say nothing: what is nulled on a disk is alike, too.
        let ms = u64::try_from(one)
            .ok()
            .filter(|ms| (1..=LONGEST_TTL_MS).contains(ms));
        let alike = again.checked_neg() == Some(one);
        Ok(ms.filter(|_| alike).map(Duration::from_millis))
    })
}

/// Notes that a lease so long was granted, in the same transaction. What is noted then.
pub(super) fn note(tx: &Connection, granted: Duration) -> rusqlite::Result<Duration> {
    let before = noted(tx)?;
    if let Some(before) = before.filter(|before| *before >= granted) {
        return Ok(before);
    }
    // Leases that stand may be longer than what was granted now.
    let least = match before {
        Some(_) => Duration::ZERO,
        None => shown(tx)?.longest,
    };
    let longest = granted.max(least).min(LONGEST);
    tx.execute(
        "INSERT OR REPLACE INTO wk_meta VALUES ('longest', ?1), ('longest again', -?1)",
        [ms(longest)],
    )?;
    Ok(longest)
}

/// A lease that says of itself that it is longer than any that was granted, or does not say it: damage.
pub(super) fn overlong(conn: &Connection) -> rusqlite::Result<Option<String>> {
    let most = noted(conn)?.unwrap_or(LONGEST);
    let overlong = format!(
        "SELECT key FROM wk_lease WHERE {STANDS} AND ({LIFE} > ?1 OR {LIFE} >= ?2) LIMIT 1"
    );
    conn.query_row(&overlong, [ms(most), ms(LONGEST)], |row| {
        rows::shown(row, "the lease of")
    })
    .optional()
}

fn ms(time: Duration) -> i64 {
    i64::try_from(ceil_ms(time)).unwrap_or(i64::MAX)
}

/// The tries that are left for a file that other processes are busy with. SQLite's own patience would be for each step
/// anew, and changing the journal mode knows none.
struct Patience(u32);

impl Patience {
    fn with<T>(&mut self, mut step: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        loop {
            match step() {
                Err(error) if (is_busy(&error) || is_left(&error)) && self.waits() => {}
                done => return done,
            }
        }
    }

    /// Whether there is another try; after a moment.
    #[allow(
        clippy::disallowed_methods,
        reason = "before the store's thread exists; a second at most"
    )]
    fn waits(&mut self) -> bool {
        let Some(left) = self.0.checked_sub(1) else {
            return false;
        };
        self.0 = left;
        std::thread::sleep(BETWEEN_TRIES);
        true
    }
}

/// Another connection holds the file.
pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error_code();
    matches!(
        code,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

/// The last other connection of a new file is closing it, and only now writes it whole: it is a moment later.
fn is_left(error: &rusqlite::Error) -> bool {
    let found = error.sqlite_error().map(|error| error.extended_code);
    found == Some(rusqlite::ffi::SQLITE_IOERR_SHORT_READ)
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    fn fails_once_with(code: i32) -> rusqlite::Result<u32> {
        let mut tries = 0;
        Patience(TRIES).with(|| {
            tries += 1;
            match tries {
                1 => Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)),
                tries => Ok(tries),
            }
        })
    }

    #[test]
    fn a_file_that_its_last_user_is_closing_is_tried_again() {
        for code in [ffi::SQLITE_BUSY, ffi::SQLITE_IOERR_SHORT_READ] {
            assert_eq!(fails_once_with(code), Ok(2), "{code}");
        }
        assert!(fails_once_with(ffi::SQLITE_IOERR_WRITE).is_err());
    }
}
