//! In which ink a word of the fleet is shown.

use crate::terminal::Ink;

/// How a run ended, as the history has it; one that is under way is as any other word.
pub(super) fn outcome(word: &str) -> Ink {
    match word {
        "done" | "skipped" => Ink::Good,
        "failed" | "timeout" | "panicked" | "expired" => Ink::Bad,
        "retry" | "cancelled" | "interrupted" | "withdrawn" | "unknown" => Ink::Care,
        _ => Ink::Plain,
    }
}
