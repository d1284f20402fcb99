//! What is known of the file: where it lies, how large it is, and whether a stopped process keeps it locked.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use super::place::{beside, shared_kind};
use crate::node::NodeFacts;

/// Where SQLite keeps its locks on a file with a write-ahead log, in the file `-shm`: the writer's is the first byte.
const WRITER: u64 = 120;

/// The facts about a file, apart from what only SQLite knows.
pub(super) fn inspect(path: &Path) -> NodeFacts {
    let size = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
    let stat = rustix::fs::statfs(path).ok();
    let space = rustix::fs::statvfs(path).ok();
    NodeFacts {
        path: Some(path.display().to_string()),
        file_system: stat.map(|stat| file_system(stat.f_type as u64 & 0xffff_ffff)),
        size: Some(size(path) + size(&beside(path, "-wal"))),
        free: space.map(|space| space.f_bavail.saturating_mul(space.f_frsize)),
        stopped_writer: stopped_writer(path),
        ..NodeFacts::default()
    }
}

fn file_system(magic: u64) -> String {
    let local = match magic {
        0xef53 => "ext4",
        0x5846_5342 => "XFS",
        0x9123_683e => "Btrfs",
        0x2fc1_2fc1 => "ZFS",
        0x0102_1994 => "tmpfs, which a reboot empties",
        0x794c_7630 => "overlayfs",
        _ => "",
    };
    match (shared_kind(magic, None), local) {
        (Some(shared), _) => shared,
        (None, "") => format!("file system {magic:#x}"),
        (None, local) => local.to_owned(),
    }
}

/// A stopped process that holds the writer's lock.
fn stopped_writer(path: &Path) -> Option<u32> {
    let inode = fs::metadata(beside(path, "-shm")).ok()?.ino();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    writers(&locks, inode)
        .into_iter()
        .find(|pid| is_stopped(*pid))
}

/// Processes that hold the writer's lock on the file with this inode, as /proc/locks tells.
fn writers(locks: &str, inode: u64) -> Vec<u32> {
    let writer = |line: &str| {
        // 1: POSIX  ADVISORY  WRITE 1234 08:01:5678 120 120
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, kind, _, "WRITE", pid, file, start, end] = fields[..] else {
            return None;
        };
        let (start, end): (u64, u64) = (start.parse().ok()?, end.parse().unwrap_or(u64::MAX));
        let this = file.rsplit(':').next()?.parse() == Ok(inode);
        let holds = matches!(kind, "POSIX" | "OFDLCK") && this && (start..=end).contains(&WRITER);
        if holds { pid.parse().ok() } else { None }
    };
    locks.lines().filter_map(writer).collect()
}

fn is_stopped(pid: u32) -> bool {
    // The name before it is in parentheses, and may hold anything, also what is no UTF-8.
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    let state = stat
        .rsplit(')')
        .next()
        .and_then(|rest| rest.split_whitespace().next());
    matches!(state, Some("T" | "t"))
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn the_writer_is_told_from_readers_and_waiters() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 08:01:77 120 120\n\
                     2: POSIX  ADVISORY  READ 12 08:01:77 123 123\n\
                     3: POSIX  ADVISORY  WRITE 13 08:01:78 120 120\n\
                     4: FLOCK  ADVISORY  WRITE 14 08:01:77 0 EOF\n\
                     4: -> POSIX  ADVISORY  WRITE 15 08:01:77 120 120\n";
        assert_eq!(writers(locks, 77), [11]);
    }

    #[test]
    fn a_stopped_process_is_known_whatever_it_is_called() {
        use rustix::process::{Pid, WaitOptions, waitpid};

        // Linux keeps fifteen bytes of a name, which is half of the last letter here.
        let script = r"printf 'datensicherung\303\244' > /proc/$$/comm; kill -STOP $$";
        let mut shell = std::process::Command::new("sh");
        let mut child = shell.args(["-c", script]).spawn().unwrap();
        waitpid(Some(Pid::from_child(&child)), WaitOptions::UNTRACED).unwrap();
        assert!(is_stopped(child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_stopped(child.id()));
    }

    #[test]
    fn a_process_that_writes_is_found_by_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.db");
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE t (a); BEGIN IMMEDIATE")
            .unwrap();
        let inode = fs::metadata(beside(&path, "-shm")).unwrap().ino();
        let locks = fs::read_to_string("/proc/locks").unwrap();
        assert_eq!(writers(&locks, inode), [std::process::id()], "{locks}");
        assert_eq!(stopped_writer(&path), None, "it is not stopped");
        let facts = inspect(&path);
        assert!(facts.free.is_some() && facts.size > Some(0));
    }
}
