//! Which replica led a job when, as far as its runs tell. Pure.
//!
//! Nothing keeps when a term began and ended. Each run tells its token, its replica and its times: so a term was there from its first
//! run to its last one at least, and between two terms no run is known. That is what is said, and no more.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::times::millis;
use crate::{
    fleet::{
        history::{INTERRUPTED, RUNNING, RunRecord},
        status::LeaderStatus,
    },
    node::Token,
};

/// A term, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) token: Token,
    /// The name of its replica; empty when that died before it could tell.
    pub(super) replica: String,
    /// When it was there, at the latest and at the earliest.
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) runs: usize,
    pub(super) end: End,
    /// The time before it of which no term is known, in milliseconds; nothing before the first one.
    pub(super) gap_ms: Option<u64>,
}

/// Why a term ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It has not.
    Leads,
    /// Its last run died with its replica, or lost its lease.
    Interrupted,
    /// Its last run was told to stop: the lease was about to end, or its replica drained.
    Stopped,
    /// Nothing tells why.
    Untold,
}

impl End {
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Leads => "leads now",
            Self::Interrupted => {
                "its last run was interrupted: the replica died, or lost its lease"
            }
            Self::Stopped => {
                "its last run was told to stop: it drained, or its lease was about to end"
            }
            Self::Untold => "not told: a hand-over, a stop, or a loss between two runs",
        }
    }
}

/// The terms under which these runs were started, and the present one, the oldest first.
pub(super) fn terms(
    runs: &[RunRecord],
    leader: Option<&LeaderStatus>,
    now: Timestamp,
) -> Vec<Term> {
    let mut found: BTreeMap<Token, Term> = BTreeMap::new();
    for run in runs.iter().filter(|run| !run.is_of_replica()) {
        let Some(token) = run.token else {
            continue;
        };
        let began = run.started.unwrap_or(run.tick);
        let ended = match run.outcome.as_str() {
            RUNNING => now,
            _ => run.ended.unwrap_or(began),
        };
        let term = found.entry(token).or_insert_with(|| Term {
            token,
            replica: String::new(),
            first: began,
            last: began,
            runs: 0,
            end: End::Untold,
            gap_ms: None,
        });
        term.runs += 1;
        term.first = term.first.min(began);
        if ended >= term.last {
            term.end = match run.outcome.as_str() {
                INTERRUPTED => End::Interrupted,
                "cancelled" => End::Stopped,
                _ => End::Untold,
            };
        }
        // What was found interrupted was found so by its successor: when it ended is not known.
        let seen = match run.outcome.as_str() {
            INTERRUPTED => began,
            _ => ended,
        };
        term.last = term.last.max(seen);
        if !run.replica_name.is_empty() {
            term.replica.clone_from(&run.replica_name);
        }
    }
    if let Some(leader) = leader {
        let term = found.entry(leader.token).or_insert_with(|| Term {
            token: leader.token,
            replica: String::new(),
            first: leader.since.unwrap_or(now),
            last: now,
            runs: 0,
            end: End::Leads,
            gap_ms: None,
        });
        term.first = leader
            .since
            .map_or(term.first, |since| since.min(term.first));
        (term.last, term.end) = (now, End::Leads);
        leader.shown().clone_into(&mut term.replica);
    }
    let mut terms: Vec<Term> = found.into_values().collect();
    let mut before = None;
    for term in &mut terms {
        term.gap_ms = before.map(|last| millis(last, term.first));
        before = Some(term.last);
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn run(token: u64, replica: &str, (from, to): (i64, i64), outcome: &str) -> RunRecord {
        RunRecord {
            token: Some(Token(token)),
            replica_name: replica.to_owned(),
            started: Some(at(from)),
            ended: Some(at(to)),
            outcome: outcome.to_owned(),
            ..RunRecord::default()
        }
    }

    #[test]
    fn terms_are_seen_in_their_runs_with_the_gaps_between_them() {
        let runs = [
            run(7, "a", (100, 110), "done"),
            run(7, "a", (200, 290), "interrupted"),
            run(9, "b", (260, 270), "done"),
            run(9, "b", (300, 310), "cancelled"),
        ];
        let leader = LeaderStatus {
            name: "a".to_owned(),
            token: Token(12),
            since: Some(at(350)),
            ..LeaderStatus::default()
        };
        let found = terms(&runs, Some(&leader), at(400));
        let told: Vec<_> = found
            .iter()
            .map(|term| (term.token.0, term.replica.as_str(), term.end, term.gap_ms))
            .collect();
        assert_eq!(
            told,
            [
                (7, "a", End::Interrupted, None),
                // From the beginning of the run that died, and not from when it was found dead.
                (9, "b", End::Stopped, Some(60_000)),
                (12, "a", End::Leads, Some(40_000)),
            ]
        );
        assert_eq!((found[2].first, found[2].last), (at(350), at(400)));
        assert_eq!(found[0].runs, 2);
    }

    #[test]
    fn batches_and_runs_without_a_token_tell_of_no_term() {
        let mut batch = run(3, "a", (1, 2), "done");
        batch.batch = Some("cell-1".to_owned());
        let mut everywhere = run(4, "a", (1, 2), "done");
        everywhere.token = None;
        assert!(terms(&[batch, everywhere], None, at(9)).is_empty());
    }
}
