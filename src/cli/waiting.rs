//! How long a command has been waiting already: on standard error, where that is a terminal.

use std::{future::Future, pin::pin, time::Duration};

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

/// Does the work, and shows meanwhile what is waited for, for `limit` at most.
///
/// # Cancellation
/// That of the work.
pub(super) async fn shown<T>(what: &str, limit: Duration, work: impl Future<Output = T>) -> T {
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
                let waited = clock.now().since(began);
                line.show(&bar(what, waited, limit));
                pause = BETWEEN;
            }
        }
    }
}

fn bar(what: &str, waited: Duration, limit: Duration) -> String {
    let share = waited.as_millis() * WIDTH as u128 / limit.as_millis().max(1);
    let full = usize::try_from(share).unwrap_or(WIDTH).min(WIDTH);
    let (full, rest) = ("#".repeat(full), "-".repeat(WIDTH - full));
    let waited = Span(Duration::from_secs(waited.as_secs()));
    format!("{what} [{full}{rest}] {waited} of {}", Span(limit))
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
}
