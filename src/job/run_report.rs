//! What one run has said of itself.

use super::{item::Items, pace::Progress};
use crate::clock::Moment;

/// How far it is, text to read, and items by what became of them.
pub(super) struct RunReport {
    pub(super) progress: Progress,
    pub(super) output: Option<String>,
    pub(super) items: Items,
}

impl RunReport {
    pub(super) fn begun(at: Moment) -> Self {
        Self {
            progress: Progress::begun(at),
            output: None,
            items: Items::default(),
        }
    }
}
