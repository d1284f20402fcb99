//! Opening the file: access, file system, layout, boot.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, TransactionBehavior};

use super::{OpenError, store::BUSY_TIMEOUT};
use crate::{node::NodeMs, owned};

/// The layout known here.
const LAYOUT: i64 = 3;

/// How often, and at what pace, a file is tried that another process keeps locked: under a second for all of it. A
/// caller that may wait longer opens it again.
const TRIES: u32 = 32;
const BETWEEN_TRIES: Duration = Duration::from_millis(25);

/// Times are milliseconds of CLOCK_BOOTTIME in the boot that `wk_node` names. In `wk_lease`, `H` is a held record, `R` a released
/// and `B` a broken one, `C` a claim, which has no more than its first columns. A body that ends is kept for `kept` after its
/// last change.
const TABLES: &str = "
    CREATE TABLE wk_meta (
        name  TEXT PRIMARY KEY NOT NULL,
        value INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE wk_node (
        id        INTEGER PRIMARY KEY CHECK (id = 1),
        forgotten INTEGER NOT NULL,
        boot      TEXT NOT NULL
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
        body  TEXT NOT NULL,
        until INTEGER,
        kept  INTEGER NOT NULL
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

/// Opens the file at `path`, makes it when it is missing, and brings it to this layout and this boot.
pub(super) fn open(path: &Path, boot: &str, now: NodeMs) -> Result<Connection, OpenError> {
    let sqlite = |source: rusqlite::Error| match source.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::NotADatabase { path: path.into() },
        _ if is_busy(&source) => OpenError::Locked { path: path.into() },
        _ => OpenError::Sqlite {
            path: path.into(),
            source,
        },
    };
    make_file(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut conn = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    conn.set_prepared_statement_cache_capacity(64);
    // One patience for all steps, and it is ours.
    conn.busy_timeout(Duration::ZERO).map_err(sqlite)?;
    let mut patience = Patience(TRIES);
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
    let found = patience.with(|| prepare(&mut conn, boot, now));
    let found = found.map_err(sqlite)?;
    if found != LAYOUT {
        return Err(OpenError::OtherLayout {
            path: path.into(),
            found,
            known: LAYOUT,
        });
    }
    conn.busy_timeout(BUSY_TIMEOUT).map_err(sqlite)?;
    Ok(conn)
}

/// The folder, the file and what they lie on. The file is never opened here: closing it again would drop the locks
/// that SQLite holds on it for another store of this process.
fn make_file(path: &Path) -> Result<(), OpenError> {
    let no_access = |source: io::Error| OpenError::NoAccess {
        path: path.into(),
        source,
    };
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if !folder.is_dir() => {
            return Err(OpenError::Folder {
                path: folder.into(),
                source: error,
            });
        }
        _ => {}
    }
    refuse_network(path, folder)?;
    // Before anything is made, and after it: what was there already may be any user's.
    owned::store(path)?;
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
    // Again: another file system may be mounted on the file.
    refuse_network(path, path)
}

/// FUSE and 9p are let through: container roots are made of them. Should two machines share one, they have
/// different boots, which the store refuses.
fn refuse_network(path: &Path, place: &Path) -> Result<(), OpenError> {
    let Ok(stat) = rustix::fs::statfs(place) else {
        // The next step fails with a better reason than this one.
        return Ok(());
    };
    match network_kind(stat.f_type as u64 & 0xffff_ffff) {
        Some(kind) => Err(OpenError::NetworkFileSystem {
            path: path.into(),
            kind,
        }),
        None => Ok(()),
    }
}

/// The name of a network file system by its magic number in statfs(2).
pub(super) fn network_kind(magic: u64) -> Option<&'static str> {
    match magic {
        0x6969 => Some("NFS"),
        0x517b => Some("SMB"),
        0xff53_4d42 => Some("CIFS"),
        0xfe53_4d42 => Some("SMB 2"),
        0x5346_414f | 0x6b41_4653 => Some("AFS"),
        0x00c3_6400 => Some("Ceph"),
        0x7375_7245 => Some("Coda"),
        0x564c => Some("NCP"),
        0x0bd0_0bd0 => Some("Lustre"),
        0x0116_1970 => Some("GFS2"),
        0x7461_636f => Some("OCFS2"),
        0x4750_4653 => Some("GPFS"),
        0x1983_0326 => Some("BeeGFS"),
        _ => None,
    }
}

/// Makes the tables of a new file and voids the leases of an earlier boot. Answers the file's layout. Of a file that is as it
/// should be it only reads, which no writer prevents.
fn prepare(conn: &mut Connection, boot: &str, now: NodeMs) -> rusqlite::Result<i64> {
    if let Some((layout, before)) = layout_and_boot(conn)?
        && (layout != LAYOUT || before == boot)
    {
        return Ok(layout);
    }
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Again: another process may have been quicker.
    let (layout, before) = match layout_and_boot(&tx)? {
        Some(found) => found,
        None => {
            tx.execute_batch(TABLES)?;
            tx.execute("INSERT INTO wk_meta VALUES ('layout', ?1)", [LAYOUT])?;
            tx.execute("INSERT INTO wk_node VALUES (1, 0, ?1)", [boot])?;
            (LAYOUT, boot.to_owned())
        }
    };
    if layout != LAYOUT {
        return Ok(layout);
    }
    if before != boot {
        let now = i64::try_from(now.0).unwrap_or(i64::MAX);
        // Who held anything died with the boot. What has a lifetime lives it anew: the old clock is gone.
        tx.execute_batch(
            "DELETE FROM wk_lease WHERE state = 'C'; DELETE FROM wk_release; DELETE FROM wk_line;",
        )?;
        // A record of an earlier boot names no owner: no contender has to watch it. A release that nothing late can follow
        // needs no mark.
        tx.execute(
            "UPDATE wk_lease SET inc = ?2, until = ?1, waits = 0",
            (now, &before),
        )?;
        tx.execute(
            "UPDATE wk_body SET until = ?1 + min(kept, 9223372036854775807 - ?1)
             WHERE until IS NOT NULL",
            [now],
        )?;
        tx.execute(
            "UPDATE wk_doc SET until = ?1 + min(ttl, 9223372036854775807 - ?1)",
            [now],
        )?;
        tx.execute("UPDATE wk_node SET boot = ?1", [boot])?;
    }
    tx.commit()?;
    Ok(layout)
}

/// The file's layout, and the boot it belongs to; `None` of a new one.
fn layout_and_boot(conn: &Connection) -> rusqlite::Result<Option<(i64, String)>> {
    let known = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'wk_meta'";
    if conn.query_row(known, [], |_| Ok(())).optional()?.is_none() {
        return Ok(None);
    }
    // Not in one statement: of another layout nothing but its number is known.
    let layout = "SELECT value FROM wk_meta WHERE name = 'layout'";
    let layout: i64 = conn.query_row(layout, [], |row| row.get(0))?;
    if layout != LAYOUT {
        return Ok(Some((layout, String::new())));
    }
    let boot = conn.query_row("SELECT boot FROM wk_node", [], |row| row.get(0))?;
    Ok(Some((layout, boot)))
}

/// The tries that are left for a file that other processes are busy with. SQLite's own patience would be for each step
/// anew, and changing the journal mode knows none.
struct Patience(u32);

impl Patience {
    #[allow(
        clippy::disallowed_methods,
        reason = "before the store's thread exists; a second at most"
    )]
    fn with<T>(&mut self, mut step: impl FnMut() -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        loop {
            match step() {
                Err(error) if self.0 > 0 && (is_busy(&error) || is_left(&error)) => {
                    self.0 -= 1;
                    std::thread::sleep(BETWEEN_TRIES);
                }
                done => return done,
            }
        }
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
