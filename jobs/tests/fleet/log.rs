//! What the workers of a fleet say, as it comes: one line per event, stamped on arrival.
//!
//! Every worker writes JSON lines to a pipe. A thread per worker stamps and collects them, so that a test waits for
//! events instead of asking again and again, and measures between events of different processes on one clock.

use std::{
    io::{BufRead, BufReader, Read},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use serde_json::{Value, json};
use watchkeeper::clock::{Clock, Moment};

use crate::wait::SOON;

/// One line of one worker.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// When it arrived, on the boot clock.
    pub(crate) at: Moment,
    /// Whose it is.
    pub(crate) worker: usize,
    fields: Value,
}

/// The lines of all workers, in the order of their arrival. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Shared>);

#[derive(Default)]
struct Shared {
    lines: Mutex<Vec<Line>>,
    news: Condvar,
}

/// A place in the log: what was said before it is not looked at.
pub(crate) type Mark = usize;

/// What stands in the log when a worker's process is gone.
pub(crate) const GONE: &str = "(the process is gone)";

// === impl Line ===

impl Line {
    /// The words of the line.
    pub(crate) fn says(&self) -> &str {
        self.text("message")
    }

    /// Whether it tells of work on ticks or batches.
    pub(crate) fn works(&self) -> bool {
        ["heartbeat", "run ended", "batch claimed", "batch ended"].contains(&self.says())
    }

    /// A field as text; empty when it is missing.
    pub(crate) fn text(&self, field: &str) -> &str {
        self.fields[field].as_str().unwrap_or_default()
    }

    /// A field as number; zero when it is missing.
    pub(crate) fn number(&self, field: &str) -> u64 {
        self.fields[field].as_u64().unwrap_or_default()
    }

    /// Whether it says this about the job.
    pub(crate) fn is(&self, says: &str, job: &str) -> bool {
        self.says() == says && self.text("job") == job
    }
}

// === impl Log ===

impl Log {
    /// Collects the lines of `worker` until it closes its end.
    pub(crate) fn follow(&self, worker: usize, pipe: impl Read + Send + 'static) {
        let log = self.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                let fields = serde_json::from_str(&line).unwrap_or(json!({ "message": line }));
                log.add(worker, fields);
            }
            log.add(worker, json!({ "message": GONE }));
        });
    }

    fn add(&self, worker: usize, fields: Value) {
        let at = Clock::system().now();
        let line = Line { at, worker, fields };
        self.lines().push(line);
        self.0.news.notify_all();
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.0.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the log stands now.
    pub(crate) fn mark(&self) -> Mark {
        self.lines().len()
    }

    /// Everything said since `mark`.
    pub(crate) fn since(&self, mark: Mark) -> Vec<Line> {
        self.lines().iter().skip(mark).cloned().collect()
    }

    /// The first line since `mark` for which `wanted` holds; waits for it, `limit` at most.
    pub(crate) fn wait(
        &self,
        mark: Mark,
        limit: Duration,
        what: &str,
        wanted: impl Fn(&Line) -> bool,
    ) -> Line {
        let clock = Clock::system();
        let until = clock.now() + limit;
        let mut lines = self.lines();
        let mut next = mark;
        loop {
            if let Some(line) = lines.iter().skip(next).find(|line| wanted(line)) {
                return line.clone();
            }
            next = lines.len();
            let left = until.since(clock.now());
            if left.is_zero() {
                drop(lines);
                panic!("no {what} within {limit:?}");
            }
            let waited = self.0.news.wait_timeout(lines, left);
            lines = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The place behind the last word of `worker`, whose process goes after `mark`; waits for it.
    pub(crate) fn gone(&self, mark: Mark, worker: usize) -> Mark {
        let last = |line: &Line| line.says() == GONE && line.worker == worker;
        self.wait(mark, SOON, GONE, last);
        let at = self.lines().iter().rposition(last);
        at.map_or(mark, |at| at + 1)
    }

    /// The last lines, for somebody who looks for the reason of a failure.
    pub(crate) fn tail(&self, lines: usize) -> String {
        let all = self.lines();
        let from = all.len().saturating_sub(lines);
        let line = |line: &Line| {
            let at = line.at.since_boot().as_secs_f64();
            format!("{at:.3} w{} {}\n", line.worker, line.fields)
        };
        all.iter().skip(from).map(line).collect()
    }
}
