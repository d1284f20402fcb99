//! The processes that use the file: a lock file beside it, and which file they use.
//!
//! Every process keeps a shared lock of the kernel on `.NAME.lock` for as long as it has the file open, also while it is
//! stopped. A process that finds itself alone notes there which file, log and shared memory it uses; a later process must find
//! the same three. So a file that was removed, replaced, moved away or taken back from a backup is not used by a new process while an
//! old one may still believe in leases of the old one. Where the lock file is new as well, because the folder is, the open
//! files of living processes are searched for one that was opened under the same path. A process that keeps secrets shows
//! them to no other (`PR_SET_DUMPABLE`, as the stock command does, or rights of its own): so the store's thread is called
//! after the path, which every process shows.
//!
//! # Invariants
//! - U1 A process that is not alone uses exactly the file that the others use, or none.  (a_new_process_waits_for_those_of_a_removed_file)
//! - U2 So it is where the folder was removed or moved away, as far as this process sees those of others.
//!   (a_folder_that_is_moved_away_takes_its_leases_with_it, a_process_that_hides_its_files_is_found_by_its_threads_name)
//! - U3 The number of changes noted there is never ahead of the file.         (a_copy_of_an_earlier_time_is_refused)
//!
//! # Not promised
//! U2 among containers that do not see each other's processes, and where `/proc` is mounted with `hidepid` and a process
//! keeps secrets. Nor that a process that keeps secrets in another container is told from one of the old folder, where it is seen
//! and has a store under the same path: the new one is refused.

use std::{
    ffi::CString,
    fs::{self, File, OpenOptions},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
};

use super::place::{Inode, Inodes};
use crate::{files, hash::fnv1a, owned};

/// The number of changes is the first line, always of this length.
const NUMBER: usize = 20;

/// The lock file, locked.
#[derive(Debug)]
pub(super) struct Users {
    file: File,
}

/// How it was locked.
#[derive(Debug)]
pub(super) enum Entered {
    /// No other process has the file open, nor can open it before [`Users::settle`].
    Alone(Users),
    /// Others have it open.
    Beside(Users),
    /// Another process is opening it just now.
    Busy,
}

// === impl Users ===

impl Users {
    pub(super) fn name(path: &Path) -> PathBuf {
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(".lock");
        path.with_file_name(name)
    }

    pub(super) fn enter(path: &Path) -> io::Result<Entered> {
        let name = Self::name(path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600);
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        options.custom_flags(i32::try_from(flags.bits()).unwrap_or(0));
        let file = options.open(&name)?;
        let alone = locked(&file, FlockOperation::NonBlockingLockExclusive)?;
        if !alone && !locked(&file, FlockOperation::NonBlockingLockShared)? {
            return Ok(Entered::Busy);
        }
        // It may have been removed since it was opened.
        let ours = file.metadata().map(|found| (found.dev(), found.ino()))?;
        match fs::symlink_metadata(&name) {
            Ok(found) if (found.dev(), found.ino()) == ours => {}
            _ => return Ok(Entered::Busy),
        }
        Ok(match alone {
            true => Entered::Alone(Self { file }),
            false => Entered::Beside(Self { file }),
        })
    }

    /// Lets others in. `false` when it must be entered anew: between both locks another process may have been alone.
    pub(super) fn settle(&self, used: &Inodes) -> io::Result<bool> {
        Ok(locked(&self.file, FlockOperation::NonBlockingLockShared)?
            && self.used()?.is_some_and(|noted| noted.are(used)))
    }

    /// Notes what is used, and under which path.
    pub(super) fn note(&self, path: &Path, used: &Inodes, changes: u64) -> io::Result<()> {
        let text = format!("{}{path:?}\n", noted(used, changes));
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.file.set_len(text.len() as u64)
    }

    /// The three files that the processes with the store open use.
    pub(super) fn used(&self) -> io::Result<Option<Inodes>> {
        let mut text = [0; 256];
        let read = self.file.read_at(&mut text, 0)?;
        Ok(read_noted(&text[..read]).map(|(used, _)| used))
    }

    /// How many changes the file has had at least, as far as was noted. What is read while it is written may show a part of each
    /// number: the smaller one of two readings is never ahead.
    pub(super) fn changes(&self) -> io::Result<u64> {
        Ok(self.read_changes()?.min(self.read_changes()?))
    }

    fn read_changes(&self) -> io::Result<u64> {
        let mut text = [0; NUMBER];
        let read = self.file.read_at(&mut text, 0)?;
        Ok(number(&text[..read]).unwrap_or(0))
    }

    /// Notes that number after a change. When two do so at one time the smaller may stay: it is a lower bound.
    pub(super) fn changed(&self, changes: u64) -> io::Result<()> {
        self.file
            .write_all_at(format!("{changes:0NUMBER$}").as_bytes(), 0)
    }
}

/// The processes that have it open, as far as /proc/locks shows them.
pub(super) fn pids(path: &Path) -> Vec<u32> {
    let Ok(found) = fs::metadata(Users::name(path)) else {
        return Vec::new();
    };
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let us = std::process::id();
    let mut pids = holders(&locks, found.ino());
    pids.retain(|pid| *pid != us);
    pids
}

/// Processes that opened a file under this path whose folder, or whose lock file, is another one now.
pub(super) fn of_another_folder(path: &Path) -> Vec<u32> {
    let (name, us) = (Users::name(path), owned::user());
    let Ok(ours) = fs::metadata(&name) else {
        return Vec::new();
    };
    let opened_here = |fd: &Path, target: &Path| {
        let target = target.to_string_lossy();
        let target = Path::new(target.strip_suffix(" (deleted)").unwrap_or(&target));
        if target.file_name() != name.file_name() {
            return false;
        }
        // Of other users, and of other kinds, it is no lock file.
        let Ok(file) = files::open(fd) else {
            return false;
        };
        if !file.metadata().is_ok_and(|found| found.uid() == us) {
            return false;
        }
        let is_ours = |found: fs::Metadata| (found.dev(), found.ino()) == (ours.dev(), ours.ino());
        !file.metadata().is_ok_and(is_ours)
            && noted_path(&file).is_some_and(|it| it == format!("{path:?}"))
    };
    let listed = |folder: PathBuf| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path())
    };
    let processes = listed(PathBuf::from("/proc")).filter_map(|process| {
        let pid: u32 = process.file_name()?.to_str()?.parse().ok()?;
        Some((pid, process))
    });
    let thread = thread_name(path);
    let is_denied = |error: io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    let uses = |process: &Path| {
        let (mut found, mut hidden) = (false, false);
        match fs::read_dir(process.join("fd")) {
            Ok(entries) => {
                for fd in entries.flatten().map(|entry| entry.path()) {
                    match fs::read_link(&fd) {
                        Ok(target) => found = found || opened_here(&fd, &target),
                        // Of root in a container the files are listed and not shown.
                        Err(error) => hidden |= is_denied(error),
                    }
                }
            }
            Err(error) => hidden = is_denied(error),
        }
        found || hidden && has_thread(process, us, &thread)
    };
    processes
        .filter(|(_, process)| uses(process))
        .map(|(pid, _)| pid)
        .collect()
}

/// Calls this thread after the path of the store that it works on, so that this process is found by it.
pub(super) fn show(path: &Path) {
    if let Ok(name) = CString::new(thread_name(path)) {
        // It is a name of a length that Linux takes.
        let _ = rustix::thread::set_name(&name);
    }
}

/// Linux keeps fifteen bytes of it.
fn thread_name(path: &Path) -> String {
    let hash = fnv1a(path.as_os_str().as_bytes().iter().copied());
    format!("wk-{:012x}", hash & 0xffff_ffff_ffff)
}

/// Whether a process of this user has a thread with this name. Others could bear it to keep us out.
fn has_thread(process: &Path, user: u32, name: &str) -> bool {
    let text = |path: PathBuf| fs::read(path).unwrap_or_default();
    let status = text(process.join("status"));
    let status = String::from_utf8_lossy(&status);
    // Its own, and that by which it acts, which is what its files belong to.
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let acts_as = users.and_then(|users| users.split_whitespace().nth(1)?.parse().ok());
    if acts_as != Some(user) {
        return false;
    }
    let threads = fs::read_dir(process.join("task"));
    let mut threads = threads.into_iter().flatten().flatten();
    threads.any(|thread| text(thread.path().join("comm")).trim_ascii_end() == name.as_bytes())
}

fn noted_path(file: &File) -> Option<String> {
    let mut text = [0; 8 << 10];
    let read = file.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(&text[..read]).ok()?;
    text.lines().nth(2).map(str::to_owned)
}

fn holders(locks: &str, inode: u64) -> Vec<u32> {
    let holder = |line: &str| {
        // 7: FLOCK  ADVISORY  READ 1234 08:01:5678 0 EOF
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, file, ..] = fields[..] else {
            return None;
        };
        let this = file.rsplit(':').next()?.parse() == Ok(inode);
        this.then(|| pid.parse().ok()).flatten()
    };
    let mut found: Vec<u32> = locks.lines().filter_map(holder).collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn locked(file: &File, how: FlockOperation) -> io::Result<bool> {
    match flock(file, how) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn noted(used: &Inodes, changes: u64) -> String {
    let inode = |inode: Option<Inode>| inode.map_or("-".to_owned(), |(d, i)| format!("{d}:{i}"));
    format!(
        "{changes:0NUMBER$}\n{} {} {}\n",
        inode(used.main),
        inode(used.wal),
        inode(used.shm)
    )
}

/// What was noted, if it is whole.
fn read_noted(text: &[u8]) -> Option<(Inodes, u64)> {
    let text = std::str::from_utf8(text).ok()?;
    let (changes, rest) = text.split_once('\n')?;
    let (files, _) = rest.split_once('\n')?;
    let inode = |text: &str| {
        let (device, inode) = text.split_once(':')?;
        Some((device.parse().ok()?, inode.parse().ok()?))
    };
    let mut files = files.split(' ').map(inode);
    let used = Inodes {
        main: files.next()?,
        wal: files.next()?,
        shm: files.next()?,
        links: 1,
    };
    Some((used, number(changes.as_bytes())?))
}

fn number(text: &[u8]) -> Option<u64> {
    let whole = (text.len() == NUMBER).then(|| std::str::from_utf8(text).ok());
    whole.flatten()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const USED: Inodes = Inodes {
        main: Some((65_024, 11)),
        wal: Some((65_024, 12)),
        shm: None,
        links: 1,
    };

    #[test]
    fn what_is_noted_is_read_back_and_half_of_it_is_nothing() {
        let text = noted(&USED, 7);
        assert_eq!(read_noted(text.as_bytes()), Some((USED, 7)));
        for half in 0..text.len() {
            assert_eq!(read_noted(&text.as_bytes()[..half]), None, "{half}");
        }
        assert_eq!(read_noted(&[0xff; 64]), None);
    }

    #[test]
    fn the_first_is_alone_and_the_next_finds_what_it_uses() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.db");
        let Entered::Alone(first) = Users::enter(&path).unwrap() else {
            panic!("alone")
        };
        assert!(matches!(Users::enter(&path).unwrap(), Entered::Busy));
        first.note(&path, &USED, 3).unwrap();
        assert!(first.settle(&USED).unwrap());
        let Entered::Beside(second) = Users::enter(&path).unwrap() else {
            panic!("beside")
        };
        assert_eq!(second.used().unwrap(), Some(USED));
        second.changed(4).unwrap();
        assert_eq!(first.changes().unwrap(), 4);
        assert_eq!(first.used().unwrap(), Some(USED));
        assert_eq!(of_another_folder(&path), [0; 0]);
        drop((first, second));
        assert!(matches!(Users::enter(&path).unwrap(), Entered::Alone(_)));
    }

    #[test]
    fn a_thread_is_called_after_its_store() {
        let (path, other) = (Path::new("/data/a.db"), Path::new("/data/b.db"));
        assert_eq!(thread_name(path).len(), 15, "which is all that Linux keeps");
        let found = std::thread::spawn(move || {
            show(path);
            let us = owned::user();
            let has = |user, path| has_thread(Path::new("/proc/self"), user, &thread_name(path));
            [has(us, path), has(us, other), has(us + 1, path)]
        });
        assert_eq!(found.join().unwrap(), [true, false, false]);
    }

    #[test]
    fn those_who_have_it_open_are_found_by_their_locks() {
        let locks = "1: POSIX  ADVISORY  WRITE 11 08:01:77 0 EOF\n\
                     2: FLOCK  ADVISORY  READ 12 08:01:77 0 EOF\n\
                     3: FLOCK  ADVISORY  READ 12 08:01:77 0 EOF\n\
                     4: FLOCK  ADVISORY  WRITE 13 08:01:78 0 EOF\n";
        assert_eq!(holders(locks, 77), [12]);
        assert_eq!(holders("", 77), [0; 0]);
    }
}
