//! For tests: what was logged, kept to be read.
#![allow(dead_code, reason = "every suite uses its own part")]

use std::{
    io::{self, Write},
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use tracing::{
    Dispatch, Level,
    subscriber::{DefaultGuard, set_default},
};

/// What was logged. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Paper(Arc<Mutex<Vec<u8>>>);

/// While there is one subscriber alone, `tracing` asks only that of the thread which comes first to a line of the log whether the
/// line is wanted, and remembers the answer for all threads: a case that reads no log would take the line from one that does. So
/// there are always two.
static SECOND: LazyLock<Dispatch> =
    LazyLock::new(|| Dispatch::new(tracing_subscriber::fmt().with_writer(io::sink).finish()));

/// Keeps [`SECOND`] alive from now on, for who sets a subscriber that is not [`Paper::reading`]'s.
pub(crate) fn keep_a_second_subscriber() {
    LazyLock::force(&SECOND);
}

impl Paper {
    /// What this thread logs from now on, down to `level`, until the guard is dropped.
    pub(crate) fn reading(level: Level) -> (Self, DefaultGuard) {
        keep_a_second_subscriber();
        let paper = Self::default();
        let to = paper.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_ansi(false)
            .with_writer(move || to.clone())
            .finish();
        (paper, set_default(subscriber))
    }

    pub(crate) fn text(&self) -> String {
        let written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&written).into_owned()
    }

    pub(crate) fn lines_with(&self, words: &str) -> usize {
        let text = self.text();
        text.lines().filter(|line| line.contains(words)).count()
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        written.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// In suites with a harness of their own nothing is left of this.
#[test]
fn a_line_that_another_thread_came_to_first_is_read_all_the_same() {
    let say = || tracing::info!("said");
    let (paper, _reading) = Paper::reading(Level::INFO);
    std::thread::scope(|scope| _ = scope.spawn(say));
    say();
    assert_eq!(paper.lines_with("said"), 1, "{}", paper.text());
}
