//! How long a command has been waiting already, or how much of its work is done: on standard error, where that is a terminal.

use std::{cell::Cell, future::Future, pin::pin, time::Duration};

use crate::{
    clock::Clock,
    human::Span,
    terminal::{BottomLine, Stream},
};

/// What is over sooner shows nothing.
const FIRST: Duration = Duration::from_secs(1);
/// Between two drawings.
const BETWEEN: Duration = Duration::from_millis(250);
/// Characters of the bar.
const WIDTH: usize = 20;

/// How far a command is, by its own word.
#[derive(Debug, Default)]
pub(super) struct Count(Cell<Counted>);

#[derive(Clone, Copy, Debug, Default)]
struct Counted {
    what: &'static str,
    done: usize,
    /// Zero where it is not known how many there are.
    of: usize,
}

/// Does the work, and shows meanwhile what is waited for, for `limit` at most.
///
/// # Cancellation
/// That of the work.
pub(super) async fn shown<T>(what: &str, limit: Duration, work: impl Future<Output = T>) -> T {
    drawn(|waited| bar(what, waited, limit), work).await
}

/// Does the work, and shows meanwhile what it counts.
///
/// # Cancellation
/// That of the work.
pub(super) async fn counted<T>(count: &Count, work: impl Future<Output = T>) -> T {
    drawn(|waited| count.0.get().shown(waited), work).await
}

async fn drawn<T>(text: impl Fn(Duration) -> String, work: impl Future<Output = T>) -> T {
    let mut line = BottomLine::of(Stream::Errors);
    if !line.is_seen() {
        return work.await;
    }
    let clock = Clock::system();
    let (began, mut pause) = (clock.now(), FIRST);
    let mut work = pin!(work);
    loop {
        tokio::select! {
            biased;
            done = &mut work => return done,
            () = clock.sleep(pause) => {
                line.show(&text(clock.now().since(began)));
                pause = BETWEEN;
            }
        }
    }
}

fn bar(what: &str, waited: Duration, limit: Duration) -> String {
    let full = full(waited.as_millis(), limit.as_millis());
    format!("{what} {full} {} of {}", seconds(waited), Span(limit))
}

/// So much of the bar: `[####------]`.
fn full(done: u128, of: u128) -> String {
    let share = done * WIDTH as u128 / of.max(1);
    let full = usize::try_from(share).unwrap_or(WIDTH).min(WIDTH);
    format!("[{}{}]", "#".repeat(full), "-".repeat(WIDTH - full))
}

fn seconds(waited: Duration) -> Span {
    Span(Duration::from_secs(waited.as_secs()))
}

// === impl Count ===

impl Count {
    /// Begins anew: with so many, or zero where that is not known.
    pub(super) fn begin(&self, what: &'static str, of: usize) {
        self.0.set(Counted { what, done: 0, of });
    }

    /// So many more of them are done.
    pub(super) fn more(&self, more: usize) {
        let mut counted = self.0.get();
        counted.done = counted.done.saturating_add(more);
        self.0.set(counted);
    }

    /// What was begun last, how many of it are done, and of how many.
    #[cfg(test)]
    pub(super) fn at(&self) -> (&'static str, usize, usize) {
        let Counted { what, done, of } = self.0.get();
        (what, done, of)
    }
}

impl Counted {
    fn shown(self, waited: Duration) -> String {
        let Self { what, done, of } = self;
        match of {
            0 => format!("{what}: {}", seconds(waited)),
            of => format!("{what} {} {done} of {of}", full(done as u128, of as u128)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_full_at_the_end_of_the_time() {
        let bar = |waited, limit| {
            let secs = Duration::from_secs;
            bar("waiting", secs(waited), secs(limit))
        };
        assert_eq!(bar(0, 40), "waiting [--------------------] 0s of 40s");
        assert_eq!(bar(10, 40), "waiting [#####---------------] 10s of 40s");
        assert_eq!(bar(60, 40), "waiting [####################] 1m of 40s");
        assert_eq!(bar(1, 0), "waiting [####################] 1s of 0s");
    }
    #[test]
    fn what_is_counted_is_shown_as_a_share_of_all() {
        let count = Count::default();
        let shown = || count.0.get().shown(Duration::from_millis(12_700));
        count.begin("reading the old store", 0);
        assert_eq!(shown(), "reading the old store: 12s");
        count.begin("moving ledgers", 100_000);
        assert_eq!(shown(), "moving ledgers [--------------------] 0 of 100000");
        count.more(32);
        count.more(49_968);
        assert_eq!(
            shown(),
            "moving ledgers [##########----------] 50000 of 100000"
        );
        count.more(usize::MAX);
        assert!(shown().contains("[####################]"));
    }
}
