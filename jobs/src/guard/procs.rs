//! Processes as the kernel shows them in `/proc`.

use std::{
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    io::Errno,
    process::{Pid, PidfdFlags, Signal, getpid, kill_process, pidfd_open, pidfd_send_signal},
};

/// A process: its number, and its start, because numbers are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pid: Pid,
    start: u64,
}

/// Everything that `ancestor` has started, and that those have started, and so on; parents before their children. What
/// starts meanwhile may be missing: look again.
pub(super) fn descendants(ancestor: Pid) -> Vec<Process> {
    let mut found = Vec::new();
    let mut parents = vec![ancestor];
    while let Some(parent) = parents.pop() {
        for child in children(parent) {
            found.extend(Process::numbered(child));
            // What it has started is looked for also where it cannot be read itself.
            parents.push(child);
        }
    }
    found
}

/// Every living process whose environment holds `text`, as far as this user may look, or that is in `session`: programs
/// that show a title of their own write it over their environment.
///
/// # Errors
/// What could not be looked at, such as where no more files can be opened: there may be more of them.
pub(super) fn marked(text: &str, session: Option<Pid>) -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for pid in all()? {
        let Some(stat) = seen(look(pid))? else {
            continue;
        };
        if stat.is_over() {
            continue;
        }
        let same_session = session.is_some() && session == stat.session;
        if same_session || holds(&environ(pid, &stat)?, text) {
            let start = stat.start;
            found.push(Process { pid, start });
        }
    }
    Ok(found)
}

fn holds(environment: &[u8], text: &str) -> bool {
    let mut parts = environment.windows(text.len());
    parts.any(|part| part == text.as_bytes())
}

/// The environment with which it was started. Where its first thread has ended the others show it.
fn environ(pid: Pid, stat: &Stat) -> io::Result<Vec<u8>> {
    let of = |place: &Path| -> io::Result<Vec<u8>> {
        Ok(seen(fs::read(place.join("environ")))?.unwrap_or_default())
    };
    let process = PathBuf::from(format!("/proc/{pid}"));
    let mut found = of(&process)?;
    if stat.state == 'Z'
        && let Some(threads) = seen(fs::read_dir(process.join("task")))?
    {
        for thread in threads {
            if let Some(thread) = seen(thread)? {
                found.extend(of(&thread.path())?);
            }
        }
    }
    Ok(found)
}

/// None of a process that is gone, or that this user may not look at. Any other failure says nothing about it.
fn seen<T>(looked: io::Result<T>) -> io::Result<Option<T>> {
    match looked {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => Ok(None),
            _ => Err(error),
        },
    }
}

/// The group of this process; none where its leader is outside of our PID namespace, and getpgrp(2) gives a zero.
pub(crate) fn own_group() -> Option<Pid> {
    stat(getpid())?.group
}

/// Whether `/proc` shows the processes of our PID namespace, under our numbers.
///
/// # Errors
/// It does not, with the remedy; or it cannot be read.
pub(super) fn are_shown() -> io::Result<()> {
    let status = text("/proc/self/status")?;
    if shows(&status, getpid()) {
        return Ok(());
    }
    let why =
        "/proc shows other processes: mount one for this PID namespace (mount -t proc proc /proc)";
    Err(io::Error::other(why))
}

/// Whether this status is that of a process with the number `pid`, and with no other number above its own namespace.
fn shows(status: &str, pid: Pid) -> bool {
    let numbers = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    // A kernel that knows of no namespaces within others has the plain number alone.
    let numbers = numbers("NSpid:").or_else(|| numbers("Pid:"));
    let mut numbers = numbers.unwrap_or_default().split_whitespace();
    numbers.next().and_then(number) == Some(pid) && numbers.next().is_none()
}

/// Whether this process ignores a signal, as its parent may have wanted.
pub(super) fn ignores(signal: i32) -> bool {
    let status = text("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

// === impl Process ===

impl Process {
    fn numbered(pid: Pid) -> Option<Self> {
        let start = stat(pid)?.start;
        Some(Self { pid, start })
    }

    /// Its process group, other than these.
    pub(super) fn group_but(self, others: &[Pid]) -> Option<Pid> {
        let stat = stat(self.pid)?;
        let group = stat.group?;
        (stat.start == self.start && !others.contains(&group)).then_some(group)
    }

    /// Sends it a signal, and to no process that got its number since.
    pub(super) fn signal(self, signal: Signal) -> io::Result<()> {
        self.signal_by(pidfd_open(self.pid, PidfdFlags::empty()), signal)
    }

    /// Where a process cannot be held on to, because the kernel is old or system calls are filtered, its number has to do,
    /// looked at just before.
    fn signal_by(self, handle: rustix::io::Result<OwnedFd>, signal: Signal) -> io::Result<()> {
        let handle = match handle {
            Err(Errno::NOSYS | Errno::PERM) => None,
            handle => Some(handle?),
        };
        if Self::numbered(self.pid) != Some(self) {
            return Err(io::ErrorKind::NotFound.into());
        }
        match handle {
            Some(handle) => pidfd_send_signal(handle, signal)?,
            None => kill_process(self.pid, signal)?,
        }
        Ok(())
    }
}

// === helpers ===

struct Stat {
    state: char,
    parent: Option<Pid>,
    /// None while its parent takes note of its end: Linux gives -1 then.
    group: Option<Pid>,
    session: Option<Pid>,
    threads: u64,
    start: u64,
}

// === impl Stat ===

impl Stat {
    /// Dead, though not yet taken note of. One whose first thread has ended looks the same, but others of it run.
    fn is_over(&self) -> bool {
        match self.state {
            'X' => true,
            'Z' => self.threads <= 1,
            _ => false,
        }
    }
}

fn stat(pid: Pid) -> Option<Stat> {
    look(pid).ok()
}

fn look(pid: Pid) -> io::Result<Stat> {
    let text = text(&format!("/proc/{pid}/stat"))?;
    parse_stat(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// A file of `/proc`. Names of processes stand in them as they are: in any encoding, and cut within a letter.
fn text(path: &str) -> io::Result<String> {
    let bytes = fs::read(path)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// State, parent, group and session are the 3rd to 6th field, the number of threads and the start the 20th and the 22nd; the
/// name in brackets may hold anything.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?.chars().next()?;
    let parent = number(fields.next()?);
    let group = number(fields.next()?);
    let session = number(fields.next()?);
    let threads = fields.nth(13)?.parse().ok()?;
    let start = fields.nth(1)?.parse().ok()?;
    Some(Stat {
        state,
        parent,
        group,
        session,
        threads,
        start,
    })
}

fn children(parent: Pid) -> Vec<Pid> {
    let Ok(threads) = fs::read_dir(format!("/proc/{parent}/task")) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        match fs::read_to_string(thread.path().join("children")) {
            Ok(list) => found.extend(list.split_whitespace().filter_map(number)),
            // A kernel without these lists: look at all processes.
            Err(error) if error.kind() == io::ErrorKind::NotFound && thread.path().exists() => {
                let mut processes = all().unwrap_or_default();
                processes.retain(|pid| stat(*pid).is_some_and(|s| s.parent == Some(parent)));
                return processes;
            }
            Err(_) => {}
        }
    }
    found
}

fn all() -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        found.extend(entry?.file_name().to_str().and_then(number));
    }
    Ok(found)
}

/// A process number; zero and less name none, and signals to them reach others.
fn number(text: &str) -> Option<Pid> {
    let number = text.parse().ok().filter(|number| *number > 0)?;
    Pid::from_raw(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_confuse() {
        let line = "17 (a) b) c) S 5 16 15 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 1000 2";
        let stat = parse_stat(line).unwrap();
        let Stat {
            parent,
            group,
            session,
            start,
            ..
        } = stat;
        let numbers = [parent, group, session].map(|pid| pid.map(Pid::as_raw_pid));
        assert_eq!((numbers, start), ([Some(5), Some(16), Some(15)], 4242));
        assert!(!stat.is_over());
    }

    #[test]
    fn a_process_whose_end_is_being_noted_is_in_no_group() {
        let line = "17 (sleep) X 0 -1 -1 0 -1 4227148 26 0 0 0 0 0 0 0 20 0 0 0 2";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.parent, stat.group, stat.session), (None, None, None));
        assert!(stat.is_over());
    }

    #[test]
    fn a_group_whose_leader_is_in_another_namespace_has_no_number() {
        let line = "1 (worker) S 0 0 0 34817 7 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 1000 2";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.parent, stat.group, stat.session), (None, None, None));
    }

    #[test]
    fn another_namespaces_processes_are_known_by_our_own_numbers() {
        let pid = Pid::from_raw(7).unwrap();
        let shown = |lines: &str| shows(&format!("Name:\tPid: 7\n{lines}"), pid);
        assert!(shown("Pid:\t7\nNSpid:\t7\n"));
        assert!(shown("Pid:\t7\n"), "a kernel without these");
        // As a namespace above ours sees it, also where both numbers happen to be the same.
        assert!(!shown("Pid:\t4711\nNSpid:\t4711\t7\n"));
        assert!(!shown("Pid:\t7\nNSpid:\t7\t7\n"));
        assert!(!shown("Pid:\t4711\n") && !shown(""));
        are_shown().unwrap();
    }

    #[test]
    fn a_process_is_over_when_its_last_thread_is() {
        let over = |state: char, threads: u64| {
            let line = format!(
                "17 (a) {state} 5 16 15 0 -1 4 1 2 3 4 5 6 7 8 20 0 {threads} 0 4242 1000 2"
            );
            parse_stat(&line).unwrap().is_over()
        };
        assert!(over('Z', 1) && over('Z', 0) && over('X', 2));
        assert!(!over('Z', 2) && !over('S', 1));
    }

    #[test]
    fn what_cannot_be_looked_at_is_not_taken_for_gone() {
        let looked = |errno: Errno| seen::<()>(Err(errno.into()));
        for gone in [Errno::NOENT, Errno::SRCH, Errno::ACCESS, Errno::PERM] {
            assert_eq!(looked(gone).unwrap(), None, "{gone}");
        }
        for unknown in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::IO] {
            assert!(looked(unknown).is_err(), "{unknown}");
        }
        assert_eq!(seen(Ok(1)).unwrap(), Some(1));
    }

    #[test]
    fn a_child_is_found_and_signalled_and_only_it() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .env("WATCHKEEPER_GUARD", "mark-4711-of-a-test")
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        let found = descendants(rustix::process::getpid());
        let sleeper = found.into_iter().find(|p| p.pid == pid).unwrap();
        let other = Process {
            start: sleeper.start + 1,
            ..sleeper
        };
        assert!(other.signal(Signal::KILL).is_err());
        assert!(child.try_wait().unwrap().is_none());
        sleeper.signal(Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(sleeper.signal(Signal::KILL).is_err());
    }

    #[test]
    fn a_kernel_or_a_filter_without_handles_of_processes_hinders_no_end() {
        for errno in [Errno::NOSYS, Errno::PERM] {
            let mut child = std::process::Command::new("sleep")
                .arg("1000")
                .spawn()
                .unwrap();
            let sleeper = Process::numbered(Pid::from_child(&child)).unwrap();
            let other = Process {
                start: sleeper.start + 1,
                ..sleeper
            };
            assert!(other.signal_by(Err(errno), Signal::KILL).is_err());
            assert!(sleeper.signal_by(Err(Errno::SRCH), Signal::KILL).is_err());
            assert!(child.try_wait().unwrap().is_none());
            sleeper.signal_by(Err(errno), Signal::KILL).unwrap();
            child.wait().unwrap();
        }
    }
}
