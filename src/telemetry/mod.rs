//! What is told to the outside while the worker works: metrics and log lines, both made from [`Events`].
//!
//! `metrics`: counters, gauges, histograms · `event_log`: a line per change · `log`: where lines go (feature `log`) · `traces`: where
//! spans go (feature `otel`).
//!
//! ```
//! use watchkeeper::{
//!     Worker,
//!     telemetry::{LogFormat, TelemetrySettings},
//! };
//!
//! let log = TelemetrySettings::log("info,watchkeeper=debug").format(LogFormat::Json);
//! let worker = Worker::builder().telemetry(log).build();
//! # let _ = worker;
//! ```

use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio_util::sync::CancellationToken;

use crate::event::{Event, Events};

// For the command, whose programs write the log of workers without being any.
#[doc(hidden)] // for the command, whose programs write the log of workers
pub mod event_log;
#[cfg(feature = "log")]
#[doc(hidden)] // for the command, whose programs write the log of workers
pub mod log;
pub(crate) mod metrics;
// As the lock's own tests read what was logged.
#[cfg(test)]
#[path = "../../lock/src/base/paper.rs"]
pub(crate) mod paper;
mod settings;
#[doc(hidden)] // for the command, whose programs have traces, too
pub mod traces;

#[cfg(feature = "admin")]
pub(crate) use settings::TRACE_ID;
pub use settings::{LogFormat, TelemetrySettings};

/// What an observer sees of the stream of events.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Seen {
    /// The next event.
    Event(Event),
    /// The observer was too slow: this many events are gone.
    Missed(u64),
}

/// Shows `observer` every event that is told after this call, until the teller is gone or `stop`; what was told
/// before `stop` is still shown. The caller spawns the future that this returns.
pub(crate) fn observe(
    events: &Events,
    stop: CancellationToken,
    mut observer: impl FnMut(Seen) + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    // Subscribed here and not at the first poll: events told meanwhile would be lost.
    let mut stream = events.observe();
    async move {
        loop {
            let next = tokio::select! {
                biased;
                next = stream.recv() => next,
                () = stop.cancelled() => break,
            };
            match next {
                Ok(event) => observer(Seen::Event(event)),
                Err(RecvError::Lagged(missed)) => observer(Seen::Missed(missed)),
                Err(RecvError::Closed) => return,
            }
        }
        // At most one buffer full: a teller that goes on must not keep a stopped observer alive.
        for _ in 0..stream.len() {
            match stream.try_recv() {
                Ok(event) => observer(Seen::Event(event)),
                Err(TryRecvError::Lagged(missed)) => observer(Seen::Missed(missed)),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn an_observer_that_lags_is_told_how_many_it_missed_and_goes_on() {
        let events = Events::default();
        let (tx, rx) = mpsc::channel();
        let stop = CancellationToken::new();
        let watching = observe(&events, stop.clone(), move |seen| tx.send(seen).unwrap());
        for _ in 0..4_100 {
            events.tell(Event::Draining);
        }
        stop.cancel();
        watching.await;
        let seen: Vec<_> = rx.try_iter().collect();
        assert_eq!(seen[0], Seen::Missed(4));
        assert_eq!(seen.len(), 1 + 4_096);
        assert_eq!(seen[4_096], Seen::Event(Event::Draining));
    }

    #[tokio::test]
    async fn an_observer_ends_with_the_teller() {
        let events = Events::default();
        let watching = observe(&events, CancellationToken::new(), |_| {});
        drop(events);
        watching.await;
    }
}
