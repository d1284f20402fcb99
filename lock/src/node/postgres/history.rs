//! Which of the servers of an address may keep the locks, where several take writes.
//!
//! A primary that was stopped before another one took its place does not know of that when it is started again. Its history is the
//! shorter one: every promotion begins a timeline with a larger number. So all servers of an address are asked before one is used.
//!
//! # Invariants
//! - H1 A server is not used whose successor answers, wherever it stands in the address, nor one that comes before what this program has used.
//!   (a_server_that_another_has_outlived_is_not_used, an_old_primary_that_starts_again_is_not_used)

use std::sync::{Mutex, PoisonError};

use tokio_postgres::{Client, Error, error::SqlState};

/// Shows how far a server has come; nothing of a standby, which follows another one.
pub(super) const TIMELINE: &str = "CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END";

/// Of a cluster of servers, and how far one of them has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The same for all copies.
    pub system: String,
    /// Eight hexadecimal digits; a larger number after every promotion.
    pub timeline: String,
}

/// The latest history that a program has used.
#[derive(Debug, Default)]
pub struct Used(Mutex<Option<History>>);

// === impl History ===

impl History {
    /// Asks a server; nothing of a standby, nor where this user is not told, as of services that only look like PostgreSQL.
    ///
    /// # Errors
    /// It was not answered, for another reason.
    pub async fn of(client: &Client) -> Result<Option<Self>, Error> {
        let shown =
            format!("SELECT (SELECT system_identifier::text FROM pg_control_system()), {TIMELINE}");
        let rows = match client.query_typed(&shown, &[]).await {
            Ok(rows) => rows,
            Err(why) if why.code().is_some_and(is_untold) => return Ok(None),
            Err(why) => return Err(why),
        };
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let (system, timeline): (Option<String>, Option<String>) =
            (row.try_get(0)?, row.try_get(1)?);
        let known = system.zip(timeline);
        Ok(known.map(|(system, timeline)| Self { system, timeline }))
    }

    fn is_outlived_by(&self, other: &Self) -> bool {
        self.system == other.system && self.timeline < other.timeline
    }

    /// Whether one of these servers, which are those that take part, has taken its place.
    pub fn has_successor_among<'a>(&self, mut met: impl Iterator<Item = &'a Self>) -> bool {
        met.any(|other| self.is_outlived_by(other))
    }

    /// What a server is told that has one, or that comes before one which was used.
    #[must_use]
    pub fn outlived(&self) -> String {
        let timeline = &self.timeline;
        format!(
            "another server was promoted in its place, whose timeline is later than its own ({timeline})"
        )
    }
}

/// Whether a server that refuses in this way will never say how far it has come.
fn is_untold(state: &SqlState) -> bool {
    [
        SqlState::UNDEFINED_FUNCTION,
        SqlState::INSUFFICIENT_PRIVILEGE,
        SqlState::FEATURE_NOT_SUPPORTED,
    ]
    .contains(state)
}

// === impl Used ===

impl Used {
    /// Whether a later one was used.
    pub fn has_outlived(&self, history: &History) -> bool {
        let used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let used = used.as_ref();
        used.is_some_and(|used| history.is_outlived_by(used))
    }

    /// One that is used from now on.
    pub fn note(&self, history: &History) {
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
