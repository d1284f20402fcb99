//! Lines written behind the back of their writers.
//!
//! # Invariants
//! - B1 Writing a line never waits for the reader of the lines, and the last line so long at most as it is told.
//!   (a_reader_that_stands_still_stops_nobody, the_last_line_waits_as_long_as_it_may)
//! - B2 Lines that found no room are counted, and the count is written when there is room again.
//!   (lost_lines_are_counted)

use std::{
    collections::VecDeque,
    io::{self, Write},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

/// Lines that wait at one time.
const ROOM: usize = 4096;

/// A handle for writing; cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Behind(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    lines: VecDeque<Vec<u8>>,
    lost: u64,
    /// The thread has taken lines and not finished writing them.
    writing: bool,
}

// === impl Behind ===

impl Behind {
    /// Writes to `out` from a thread of its own, which lives as long as the process.
    pub(super) fn new(out: impl Write + Send + 'static, json: bool) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        thread::Builder::new()
            .name("watchkeeper-log".into())
            .spawn(move || theirs.write_all_to(out, json))?;
        Ok(Self(shared))
    }

    /// Writes `text` as a line behind all others, and waits for it as [`Behind::flush`] does.
    pub(super) fn say(&self, text: &str, limit: Duration) -> bool {
        // Never a failure: it is taken, or counted as lost.
        let _ = self.clone().write(format!("{text}\n").as_bytes());
        self.flush(limit)
    }

    /// Waits until all lines so far are written, at most `limit`. Says whether they are.
    pub(super) fn flush(&self, limit: Duration) -> bool {
        let busy = |state: &mut State| state.writing || !state.lines.is_empty();
        let waited = self
            .0
            .changed
            .wait_timeout_while(self.0.state(), limit, busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl Write for Behind {
    /// Takes one whole line: the log writes each in a single call.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut state = self.0.state();
        if state.lines.len() < ROOM {
            state.lines.push_back(line.to_vec());
            self.0.changed.notify_all();
        } else {
            state.lost += 1;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// === impl Shared ===

impl Shared {
    fn write_all_to(&self, mut out: impl Write, json: bool) {
        loop {
            let (lines, lost) = self.take();
            // A reader that is gone is no reason to end: leases are more important than lines.
            for line in lines {
                let _ = out.write_all(&line);
            }
            if lost > 0 {
                let _ = out.write_all(farewell(lost, json).as_bytes());
            }
            let _ = out.flush();
            self.state().writing = false;
            self.changed.notify_all();
        }
    }

    fn take(&self) -> (VecDeque<Vec<u8>>, u64) {
        let nothing = |state: &mut State| state.lines.is_empty();
        let waited = self.changed.wait_while(self.state(), nothing);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.writing = true;
        (
            std::mem::take(&mut state.lines),
            std::mem::take(&mut state.lost),
        )
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn farewell(lost: u64, json: bool) -> String {
    if json {
        format!("{{\"level\":\"WARN\",\"message\":\"log lines lost\",\"count\":{lost}}}\n")
    } else {
        format!("WARN log lines lost count={lost}\n")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A reader that takes each line only when it is told to, and then shows it.
    struct Slow(Receiver<()>, Sender<String>);

    impl Write for Slow {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            let _ = self.0.recv();
            let _ = self.1.send(String::from_utf8_lossy(line).into_owned());
            Ok(line.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn slow() -> (Behind, Sender<()>, Receiver<String>) {
        let (go, wait) = channel();
        let (show, seen) = channel();
        (Behind::new(Slow(wait, show), true).unwrap(), go, seen)
    }

    #[test]
    fn a_reader_that_stands_still_stops_nobody() {
        let (mut log, go, seen) = slow();
        for n in 0..100 {
            log.write_all(format!("{n}\n").as_bytes()).unwrap();
        }
        assert!(!log.flush(Duration::from_millis(10)));
        drop(go);
        assert!(log.flush(Duration::from_secs(60)));
        let lines: Vec<_> = seen.try_iter().collect();
        assert_eq!(lines.len(), 100);
        assert_eq!(lines[99], "99\n");
    }

    #[test]
    fn the_last_line_waits_as_long_as_it_may() {
        let (mut log, go, seen) = slow();
        log.write_all(b"first\n").unwrap();
        assert!(!log.say("last", Duration::from_millis(10)));
        drop(go);
        assert!(log.flush(Duration::from_secs(60)));
        assert_eq!(seen.try_iter().collect::<Vec<_>>(), ["first\n", "last\n"]);
    }

    #[test]
    fn lost_lines_are_counted() {
        let (mut log, go, seen) = slow();
        log.write_all(b"first\n").unwrap();
        // Once the first line is taken, the queue is empty and the reader holds on to it.
        go.send(()).unwrap();
        assert_eq!(seen.recv().unwrap(), "first\n");
        log.write_all(b"second\n").unwrap();
        let taken = || log.0.state().writing && log.0.state().lines.is_empty();
        while !taken() {
            thread::yield_now();
        }
        for _ in 0..ROOM + 3 {
            log.write_all(b"more\n").unwrap();
        }
        drop(go);
        assert!(log.flush(Duration::from_secs(60)));
        let lines: Vec<_> = seen.try_iter().collect();
        assert_eq!(lines.len(), 1 + ROOM + 1);
        let last: serde_json::Value = serde_json::from_str(&lines[1 + ROOM]).unwrap();
        assert_eq!(last["count"], 3);
    }
}
