//! The end of a command that goes on until it is told to end.

use crate::signals::{Signal, Signals};

/// Completes when a signal asks for the end of this process: Ctrl-C, SIGTERM, or a terminal that closes. A second one of the first
/// two ends it at once. Cancel-safe.
pub(super) async fn told_to_end(signals: &mut Signals) {
    loop {
        match signals.recv().await {
            Some(Signal::Drain | Signal::Hangup) => return,
            Some(Signal::Dump) => {}
            None => std::future::pending().await,
        }
    }
}
