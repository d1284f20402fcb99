//! What one run has said of itself.

use super::{item::Items, pace::Progress};
use crate::clock::Moment;

/// How far it is, text to read, and items by what became of them.
pub(super) struct RunReport {
    pub(super) progress: Progress,
    pub(super) output: Option<String>,
    /// How often it has left text.
    pub(super) texts: u64,
    pub(super) items: Items,
}

impl RunReport {
    pub(super) fn begun(at: Moment) -> Self {
        Self {
            progress: Progress::begun(at),
            output: None,
            texts: 0,
            items: Items::default(),
        }
    }
}
