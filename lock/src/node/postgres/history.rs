//! Which of the servers of an address may keep the locks, where several take writes. Pure.
//!
//! A primary that was stopped before another one took its place does not know of that when it is started again. Its history is the
//! shorter one: every promotion begins a timeline with a larger number. So all servers of an address are asked before one is used.
//!
//! # Invariants
//! - H1 A server is not used whose successor answers, wherever it stands in the address, nor one that comes before what this program has used.
//!   (a_server_that_another_has_outlived_is_not_used, an_old_primary_that_starts_again_is_not_used)

use std::sync::{Mutex, PoisonError};

/// Shows how far a server has come; nothing of a standby, which follows another one.
pub(super) const TIMELINE: &str = "CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END";

/// Of a cluster of servers, and how far one of them has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct History {
    /// The same for all copies.
    pub(super) system: String,
    /// Eight hexadecimal digits; a larger number after every promotion.
    pub(super) timeline: String,
}

/// The latest history that a program has used.
#[derive(Default)]
pub(super) struct Used(Mutex<Option<History>>);

// === impl History ===

impl History {
    fn is_outlived_by(&self, other: &Self) -> bool {
        self.system == other.system && self.timeline < other.timeline
    }

    /// Whether one of these servers, which are those that take part, has taken its place.
    pub(super) fn has_successor_among<'a>(&self, mut met: impl Iterator<Item = &'a Self>) -> bool {
        met.any(|other| self.is_outlived_by(other))
    }
}

// === impl Used ===

impl Used {
    /// Whether a later one was used.
    pub(super) fn has_outlived(&self, history: &History) -> bool {
        let used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let used = used.as_ref();
        used.is_some_and(|used| history.is_outlived_by(used))
    }

    pub(super) fn note(&self, history: &History) {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_later = used
            .as_ref()
            .is_none_or(|used| !history.is_outlived_by(used));
        if is_later {
            *used = Some(history.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(system: &str, timeline: &str) -> History {
        History {
            system: system.to_owned(),
            timeline: timeline.to_owned(),
        }
    }

    #[test]
    fn a_server_that_another_has_outlived_is_not_used() {
        let met = [
            of("a", "00000001"),
            of("a", "0000000A"),
            of("b", "000000FF"),
        ];
        let outlived = met
            .each_ref()
            .map(|one| one.has_successor_among(met.iter()));
        assert_eq!(outlived, [true, false, false]);
        let used = Used::default();
        used.note(&met[1]);
        // Two connections may be made at a time.
        used.note(&met[0]);
        assert!(used.has_outlived(&met[0]));
        assert!(!used.has_outlived(&met[1]) && !used.has_outlived(&met[2]));
    }
}
