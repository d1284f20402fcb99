//! Whose spans they are, and what became of them.

use std::time::Duration;

/// Whose traces they are.
#[derive(Clone, Debug)]
pub struct Origin {
    /// All programs of one namespace and store are one fleet.
    pub namespace: String,
    /// This process: unique among all there ever were.
    pub replica: String,
    /// Its machine.
    pub host: String,
}

/// What became of spans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Became {
    /// The receiver has taken them.
    Sent,
    /// They are gone; a word says why: `full`, `failed`, `ended`.
    Dropped(&'static str),
}

/// Why spans are dropped.
pub(crate) const DROPPED: [&str; 3] = [FULL, FAILED, ENDED];
pub(super) const FULL: &str = "full";
pub(super) const FAILED: &str = "failed";
pub(super) const ENDED: &str = "ended";

/// How long the end of the process waits for a receiver.
pub const LAST: Duration = Duration::from_secs(2);

/// Hears what became of spans, and how many. Called by the thread that sends.
pub type Count = Box<dyn Fn(Became, u64) + Send>;
