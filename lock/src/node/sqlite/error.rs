//! Why a file is not opened, with a sentence for the operator.

use std::{io, path::PathBuf};

/// Why a file cannot be the embedded store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Its folder does not exist and could not be made. Only the last folder of the path is made.
    #[error("cannot create the folder {path}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It exists and is not ours to read and write, or could not be created.
    #[error("cannot read and write {path}")]
    NoAccess {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is a folder, a socket or a device.
    #[error("{path} is not a file")]
    NotAFile {
        /// What stands there.
        path: PathBuf,
    },
    /// Locks over a network file system, or one that another machine or program serves, do not exclude.
    #[error(
        "{path} is on a network file system or one that another program serves ({kind}), where file locks are not reliable; \
         use a folder on a local disk (in a container, a volume), or redis for several machines"
    )]
    NetworkFileSystem {
        /// The file.
        path: PathBuf,
        /// Such as `NFS`.
        kind: String,
    },
    /// The file alone is mounted there, without what SQLite keeps beside it.
    #[error(
        "{path} is a mount point of its own: who reaches the file elsewhere has another -wal and -shm beside it, and both would \
         hold the same locks; mount its folder instead of the file"
    )]
    Mounted {
        /// The file, or what SQLite keeps beside it.
        path: PathBuf,
    },
    /// It has several names.
    #[error(
        "{path} has {links} names (hard links): who uses another of them has another -wal and -shm beside it, and both would hold \
         the same locks; remove the others (`find FOLDER -samefile {path}` shows them), or copy the file while it is not in use"
    )]
    Linked {
        /// The file.
        path: PathBuf,
        /// How many.
        links: u64,
    },
    /// Processes live that use another file under this name, or another part of it.
    #[error(
        "{path} is not the file that {} under this name: {what}; their leases may live. Stop them, then start again",
        those(users)
    )]
    Replaced {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: &'static str,
        /// Processes that use it, as far as they can be seen.
        users: Vec<u32>,
    },
    /// Another user could have made it, or could change it.
    #[error("{0} (locks.embedded.path)")]
    Stranger(#[from] crate::owned::Stranger),
    /// The log beside it was that of the file which stood there before.
    #[error(
        "{path} was replaced, and {path}-wal beside it belongs to the file that stood there before: remove {path}-wal and \
         {path}-shm, or put the old file back"
    )]
    OtherLog {
        /// The file.
        path: PathBuf,
    },
    /// A file of another kind.
    #[error("{path} is not a SQLite database")]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// Written by another version of this library.
    #[error(
        "{path} has layout {found}, this version knows layout {known}; {}",
        instead(*found, *known)
    )]
    OtherLayout {
        /// The file.
        path: PathBuf,
        /// The file's layout.
        found: i64,
        /// The layout known here.
        known: i64,
    },
    /// Another process is in the middle of a write, and the file must be written or recovered before it can be used.
    #[error("another process keeps {path} locked")]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// It is a database of something else.
    #[error(
        "{path} is the database of another application (it has \"{table}\"): give the locks a file of their own"
    )]
    OfAnotherApplication {
        /// The file.
        path: PathBuf,
        /// Something that it holds.
        table: String,
    },
    /// The file system does not support what a write-ahead log needs.
    #[error("{path} cannot keep a write-ahead log here (journal mode stays {mode})")]
    NoWriteAheadLog {
        /// The file.
        path: PathBuf,
        /// What SQLite offers instead.
        mode: String,
    },
    /// The boot's identity could not be read.
    #[error("cannot read /proc/sys/kernel/random/boot_id")]
    NoBootId(#[source] io::Error),
    /// The store's thread could not be started.
    #[error("cannot start the store's thread")]
    Thread(#[source] io::Error),
    /// Anything else that SQLite reports.
    #[error("cannot open {path}")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
}

/// What to do about a file of another layout.
fn instead(found: i64, known: i64) -> &'static str {
    match found < known {
        true => {
            "use the version that wrote it; or stop all that use it, write the ledgers out with that version (`watchkeeper move --out \
             FILE`), move it away, and carry them into a new one (`move --in FILE` of this version): without that locks, tokens and \
             ledgers begin anew"
        }
        false => "use the version that wrote it, or a later one",
    }
}

fn those(users: &[u32]) -> String {
    let list: Vec<String> = users.iter().map(u32::to_string).collect();
    match &list[..] {
        [] => "other processes use".to_owned(),
        [one] => format!("process {one} uses"),
        several => format!("processes {} use", several.join(", ")),
    }
}
