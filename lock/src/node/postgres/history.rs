//! Which of the servers of an address may keep the locks, where several take writes.
//!
//! A primary that was stopped before another one took its place does not know of that when it is started again. Its history is the
//! shorter one: every promotion begins a timeline with a larger number. So all servers of an address are asked before one is used, and
//! the others again and again while one is: see [`super::watch`].
//!
//! # Invariants
//! - H1 A server is not used whose successor answers, wherever it stands in the address, nor one that comes before what this program has used or met.
//!   (a_server_that_another_has_outlived_is_not_used, an_old_primary_that_starts_again_is_not_used)
//! - H2 While another one lets this program not in, none is used but that of before.   (a_server_that_refuses_may_be_the_successor)
//! - H3 A connection to a server is left within five seconds when another one was promoted that answers; at once by a process that was
//!   stopped meanwhile.                     (an_old_primary_that_lives_on_is_left_before_its_successor_grants,
//!   a_process_that_was_stopped_meanwhile_leaves_an_old_primary_at_once)

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio_postgres::{Client, Error, error::SqlState};

use crate::{clock::Moment, node::guard::LATE};

/// Shows how far a server has come; nothing of a standby, which follows another one.
pub(super) const TIMELINE: &str = "CASE WHEN NOT pg_is_in_recovery() THEN left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) END";

/// A promotion is noticed within this, where both servers are within reach, and so before the one that was promoted grants.
pub(super) const NOTICED: Duration = Duration::from_secs(5);
const _: () = assert!(NOTICED.as_millis() < LATE.as_millis());

/// Of a cluster of servers, and how far one of them has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// The same for all copies; empty where it is not told: then it counts as that of the others.
    pub system: String,
    /// Eight hexadecimal digits; a larger number after every promotion.
    pub timeline: String,
}

/// What a program knows of the servers of an address.
#[derive(Debug, Default)]
pub struct Used(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The latest history, and the server that has it.
    latest: Option<(History, ServerId)>,
    /// It was not only met.
    is_used: bool,
    /// When all of them were asked last; nothing where that is not done.
    asked: Option<Moment>,
}

/// One of the servers: its place in the address, and its name, without anything secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerId {
    /// Two may have one name.
    pub place: usize,
    /// For people.
    pub name: String,
}

// === impl History ===

impl History {
    /// Asks a server; nothing of a standby, nor where this user is not told, as of services that only look like PostgreSQL.
    ///
    /// # Errors
    /// It was not answered, for another reason.
    pub async fn of(client: &Client) -> Result<Option<Self>, Error> {
        let timeline = told(client, &format!("SELECT {TIMELINE}")).await?;
        let Some(timeline) = timeline else {
            return Ok(None);
        };
        // Not every user may ask for it.
        let system = "SELECT system_identifier::text FROM pg_control_system()";
        let system = told(client, system).await?.unwrap_or_default();
        Ok(Some(Self { system, timeline }))
    }

    /// Whether both are copies of one cluster: those of one address are, as far as they do not say otherwise.
    fn is_of(&self, other: &Self) -> bool {
        self.system == other.system || self.system.is_empty() || other.system.is_empty()
    }

    fn is_outlived_by(&self, other: &Self) -> bool {
        self.is_of(other) && self.timeline < other.timeline
    }

    /// Whether one of these servers, which are those that take part, has taken its place.
    pub fn has_successor_among<'a>(&self, mut met: impl Iterator<Item = &'a Self>) -> bool {
        met.any(|other| self.is_outlived_by(other))
    }

    /// What a server is told that has one, or that comes before one which was used.
    #[must_use]
    pub fn outlived(&self, used: &Used) -> String {
        let timeline = &self.timeline;
        let latest = used.latest();
        let by = latest.filter(|(latest, _)| self.is_outlived_by(latest));
        let by = by.map_or_else(|| "another server".to_owned(), |(_, server)| server.name);
        format!("{by} was promoted in its place, whose timeline is later than its own ({timeline})")
    }
}

/// The histories of those that were met.
pub fn of_all<T, E>(
    met: &[Option<Result<T, E>>],
    history: impl Fn(&T) -> Option<&History>,
) -> Vec<History> {
    let told = met.iter().flatten().flatten();
    told.filter_map(|met| history(met).cloned()).collect()
}

/// The one text that is asked for; nothing where it is not told.
async fn told(client: &Client, sql: &str) -> Result<Option<String>, Error> {
    match client.query_typed(sql, &[]).await {
        Ok(rows) => rows.first().map_or(Ok(None), |row| row.try_get(0)),
        Err(why) if why.code().is_some_and(is_untold) => Ok(None),
        Err(why) => Err(why),
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
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest history, and the server that has it.
    #[must_use]
    pub fn latest(&self) -> Option<(History, ServerId)> {
        self.known().latest.clone()
    }

    /// Whether a later one is known.
    pub fn has_outlived(&self, history: &History) -> bool {
        let known = self.known();
        let latest = known.latest.as_ref();
        latest.is_some_and(|(latest, _)| history.is_outlived_by(latest))
    }

    /// Whether this one was used last.
    pub fn is(&self, history: &History) -> bool {
        let known = self.known();
        let latest = known.latest.as_ref().filter(|_| known.is_used);
        latest
            .is_some_and(|(latest, _)| latest.is_of(history) && latest.timeline == history.timeline)
    }

    /// What a server has that was met: whether it has outlived what was known. One of another cluster takes the place of none.
    pub fn met(&self, history: &History, server: &ServerId) -> bool {
        let mut known = self.known();
        let latest = known.latest.as_ref();
        let outlives = latest.is_some_and(|(latest, _)| latest.is_outlived_by(history));
        if outlives || latest.is_none() {
            known.latest = Some((history.clone(), server.clone()));
            known.is_used = false;
        }
        outlives
    }

    /// What the server has that is used from now on.
    pub fn note(&self, history: &History, server: &ServerId) {
        let mut known = self.known();
        let latest = known.latest.as_ref();
        if latest.is_none_or(|(latest, _)| !history.is_outlived_by(latest)) {
            known.latest = Some((history.clone(), server.clone()));
            known.is_used = true;
        }
    }

    /// All of them were asked, beginning at `began`.
    pub fn asked(&self, began: Moment) {
        let mut known = self.known();
        known.asked = known.asked.max(Some(began));
    }

    /// Whether they should have been asked again: the process was stopped, or what asks does not run.
    pub fn is_stale(&self, now: Moment) -> bool {
        let asked = self.known().asked;
        asked.is_some_and(|asked| now.since(asked) > NOTICED)
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
        let server = |place| ServerId {
            place,
            name: format!("server {place}"),
        };
        assert!(!used.met(&met[0], &server(0)), "none was known");
        assert!(!used.is(&met[0]), "it was met alone");
        assert!(used.met(&met[1], &server(1)));
        // Two connections may be made at a time, and a server of another cluster may stand in the address.
        used.note(&met[0], &server(0));
        assert!(!used.met(&met[2], &server(2)));
        assert_eq!(used.latest(), Some((met[1].clone(), server(1))));
        assert!(used.has_outlived(&met[0]));
        assert!(met[0].outlived(&used).starts_with("server 1 was promoted"));
        used.note(&met[1], &server(1));
        assert!(used.is(&met[1]) && !used.is(&met[0]) && !used.is(&met[2]));
        // Where the cluster is not told, the servers of one address are taken for copies.
        let untold = of("", "00000009");
        assert!(used.has_outlived(&untold) && met[0].has_successor_among([&untold].into_iter()));
        assert!(!used.has_outlived(&met[1]) && !used.has_outlived(&met[2]));
        used.note(&met[2], &server(2));
        assert!(used.is(&met[2]), "it is used");
    }

    #[test]
    fn servers_that_were_not_asked_of_late_are_asked_again() {
        let used = Used::default();
        let at = |s| Moment::ZERO + Duration::from_secs(s);
        assert!(!used.is_stale(at(100)), "there is one alone");
        used.asked(at(100));
        used.asked(at(98));
        assert!(!used.is_stale(at(105)) && used.is_stale(at(106)));
    }
}
