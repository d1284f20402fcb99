//! Opening the file: access, file system, and whether others use it. What lies in it is in `layout`.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::Path,
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::{
    boot::Use,
    error::OpenError,
    layout::{Found, LAYOUT, of_another, prepare},
    place::{self, Inodes, Names, Still},
    users::{self, Entered, Users},
};
use crate::{node::NodeMs, owned};

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

/// Opens the file at `path`, makes it when it is missing, and, where nothing of another boot can live, brings it to this boot.
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
    let (conn, shown) = open_file(names, (boot, now), patience)?;
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
    patience: &mut Patience,
) -> Result<(Connection, Use), OpenError> {
    let path = &names.main;
    let sqlite = |source: rusqlite::Error| match source.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => OpenError::NotADatabase { path: path.into() },
        _ if is_busy(&source) => OpenError::Locked { path: path.into() },
        _ if is_full(&source) => OpenError::Full { path: path.into() },
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
    let found = patience.with(|| prepare(&mut conn, boot, now));
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

/// Also where what SQLite keeps beside the file has no room.
fn is_full(error: &rusqlite::Error) -> bool {
    let found = error.sqlite_error();
    found.is_some_and(|error| {
        error.code == ErrorCode::DiskFull
            || error.extended_code == rusqlite::ffi::SQLITE_IOERR_SHMSIZE
    })
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
