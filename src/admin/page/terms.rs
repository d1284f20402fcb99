//! Which replica led a job when, and why each term ended: as its leaders have told, and as its runs tell where they have not. Pure.
//!
//! A leader tells when its term began and ended; one that dies tells no end. A term that none has told, because it was too short or lies
//! too far back, is known by its runs: it was there from its first run to its last one at least, and between two such terms no run is
//! known. That is what is said, and no more.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::times::millis;
use crate::{
    fleet::{
        history::{INTERRUPTED, RUNNING, RunRecord},
        status::LeaderStatus,
        terms::TermRecord,
    },
    node::Token,
};

/// A term, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) token: Token,
    /// The name of its replica; empty when that died before it could tell.
    pub(super) replica: String,
    /// When it was there, at the latest and at the earliest where its leader has not told.
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    /// Whether its leader has told when it began.
    pub(super) told: bool,
    pub(super) runs: usize,
    pub(super) end: End,
    /// The time before it in which no replica is known to have led; nothing before the first one.
    pub(super) gap: Option<Gap>,
    /// The same as its leader has seen it.
    seen_gap_ms: Option<u64>,
}

/// The time between two terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) ms: u64,
    /// So long it was; otherwise it was no longer.
    pub(super) is_exact: bool,
}

/// Why a term ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It has not.
    Leads,
    /// Its leader has said so: a word, and what a check has said.
    Told { why: String, detail: String },
    /// Its leader has told that it began, and no more.
    CutOff,
    /// Its last run died with its replica, or lost its lease.
    Interrupted,
    /// Its last run was told to stop: the lease was about to end, or its replica drained.
    Stopped,
    /// Nothing tells why.
    Untold,
}

// === impl End ===

impl End {
    pub(super) fn words(&self) -> &'static str {
        match self {
            Self::Leads => "leads now",
            Self::Told { why, .. } => match why.as_str() {
                "released" => "given up by its replica",
                "resigned" => "handed over: a person or another replica asked for it",
                "drained" => "its replica drained, or the job was taken from it",
                "max_term" => "it had lasted for max_term, and another candidate stood by",
                "changed" => "the definition of the job changed",
                "outdated" => "another replica has a newer definition of the job",
                "expired" => "its lease expired before it could be extended",
                "taken" => "a majority of the nodes no longer showed its lease",
                "unfit" => "its replica was not fit to go on",
                _ => "for a reason that this version does not know",
            },
            Self::CutOff => {
                "its end was not told: its replica died, or could not reach the lock nodes"
            }
            Self::Interrupted => {
                "its last run was interrupted: the replica died, or lost its lease"
            }
            Self::Stopped => {
                "its last run was told to stop: it drained, or its lease was about to end"
            }
            Self::Untold => "not told: a hand-over, a stop, or a loss between two runs",
        }
    }

    /// Whether something went wrong.
    pub(super) fn is_trouble(&self) -> bool {
        match self {
            Self::CutOff | Self::Interrupted => true,
            Self::Told { why, .. } => matches!(why.as_str(), "expired" | "taken" | "unfit"),
            Self::Leads | Self::Stopped | Self::Untold => false,
        }
    }
}

// === impl Term ===

impl Term {
    /// As it is known by something that was there from then to then.
    fn seen(token: Token, first: Timestamp, last: Timestamp) -> Self {
        Self {
            token,
            replica: String::new(),
            first,
            last,
            told: false,
            runs: 0,
            end: End::Untold,
            gap: None,
            seen_gap_ms: None,
        }
    }

    fn note_run(&mut self, run: &RunRecord, began: Timestamp, ended: Timestamp) {
        self.runs += 1;
        self.first = self.first.min(began);
        if ended >= self.last {
            self.end = match run.outcome.as_str() {
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
        self.last = self.last.max(seen);
        if !run.replica_name.is_empty() {
            self.replica.clone_from(&run.replica_name);
        }
    }

    fn note_told(&mut self, told: &TermRecord) {
        self.told = true;
        self.first = self.first.min(told.began);
        self.seen_gap_ms = told.leaderless_ms;
        let name = match told.name.as_str() {
            "" => &told.replica,
            _ => &told.name,
        };
        self.replica.clone_from(name);
        match told.ended {
            Some(ended) => {
                self.last = self.last.max(ended);
                self.end = End::Told {
                    why: told.why.clone(),
                    detail: told.detail.clone(),
                };
            }
            None if self.end == End::Interrupted => {}
            None => self.end = End::CutOff,
        }
    }

    fn note_leader(&mut self, leader: &LeaderStatus, now: Timestamp) {
        self.first = leader
            .since
            .map_or(self.first, |since| since.min(self.first));
        (self.last, self.end) = (now, End::Leads);
        leader.shown().clone_into(&mut self.replica);
    }

    /// The time between that term and this one.
    fn gap_after(&self, before: &Self) -> Gap {
        let between = millis(before.last, self.first);
        let is_exact = self.told && matches!(before.end, End::Told { .. });
        match self.seen_gap_ms {
            // Its leader has watched the lock, and the one before could not tell.
            Some(ms) if !is_exact => Gap { ms, is_exact: true },
            // It cannot be longer than what its leader has seen, whatever came between.
            seen => Gap {
                ms: seen.map_or(between, |ms| ms.min(between)),
                is_exact,
            },
        }
    }
}

/// The terms that leaders have told of, those under which these runs were started, and the present one; the oldest first.
pub(super) fn terms(
    runs: &[RunRecord],
    told: &[TermRecord],
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
        let term = found.entry(token);
        let term = term.or_insert_with(|| Term::seen(token, began, began));
        term.note_run(run, began, ended);
    }
    for told in told {
        let term = found.entry(told.token);
        let term = term.or_insert_with(|| Term::seen(told.token, told.began, told.began));
        term.note_told(told);
    }
    if let Some(leader) = leader {
        let term = found.entry(leader.token);
        let since = leader.since.unwrap_or(now);
        let term = term.or_insert_with(|| Term::seen(leader.token, since, now));
        term.note_leader(leader, now);
    }
    let mut terms: Vec<Term> = found.into_values().collect();
    for n in 1..terms.len() {
        let gap = terms[n].gap_after(&terms[n - 1]);
        terms[n].gap = Some(gap);
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

    fn told(token: u64, name: &str, from: i64, end: Option<(i64, &str)>) -> TermRecord {
        TermRecord {
            token: Token(token),
            name: name.to_owned(),
            began: at(from),
            ended: end.map(|(to, _)| at(to)),
            why: end.map_or("", |(_, why)| why).to_owned(),
            ..TermRecord::default()
        }
    }

    fn exact(seconds: u64) -> Option<Gap> {
        let ms = seconds * 1000;
        Some(Gap { ms, is_exact: true })
    }

    fn at_most(seconds: u64) -> Option<Gap> {
        Some(Gap {
            ms: seconds * 1000,
            is_exact: false,
        })
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
        let found = terms(&runs, &[], Some(&leader), at(400));
        let seen: Vec<_> = found
            .iter()
            .map(|term| (term.token.0, term.replica.as_str(), &term.end, term.gap))
            .collect();
        assert_eq!(
            seen,
            [
                (7, "a", &End::Interrupted, None),
                // From the beginning of the run that died, and not from when it was found dead.
                (9, "b", &End::Stopped, at_most(60)),
                (12, "a", &End::Leads, at_most(40)),
            ]
        );
        assert_eq!((found[2].first, found[2].last), (at(350), at(400)));
        assert_eq!((found[0].runs, found[0].told), (2, false));
    }

    #[test]
    fn what_leaders_have_told_counts_more_than_what_their_runs_tell() {
        let runs = [
            run(7, "a", (110, 120), "cancelled"),
            run(9, "b", (210, 220), "done"),
            run(11, "c", (310, 320), "done"),
        ];
        let seen = TermRecord {
            leaderless_ms: Some(5_000),
            ..told(11, "c", 300, Some((390, "unfit")))
        };
        let records = [
            told(7, "a", 100, Some((150, "drained"))),
            // It died.
            told(9, "b", 153, None),
            seen,
            told(13, "a", 391, None),
        ];
        let leader = LeaderStatus {
            name: "a".to_owned(),
            token: Token(13),
            ..LeaderStatus::default()
        };
        let found = terms(&runs, &records, Some(&leader), at(400));
        let why = |why: &str| End::Told {
            why: why.to_owned(),
            detail: String::new(),
        };
        let ends: Vec<_> = found
            .iter()
            .map(|term| (term.first, term.end.clone(), term.gap))
            .collect();
        assert_eq!(
            ends,
            [
                (at(100), why("drained"), None),
                (at(153), End::CutOff, exact(3)),
                // As its leader has seen it: when the one before died is not known.
                (at(300), why("unfit"), exact(5)),
                (at(391), End::Leads, exact(1)),
            ]
        );
        assert!(found.iter().all(|term| term.told));
        let trouble: Vec<_> = found.iter().map(|term| term.end.is_trouble()).collect();
        assert_eq!(trouble, [false, true, true, false]);
    }

    #[test]
    fn batches_and_runs_without_a_token_tell_of_no_term() {
        let mut batch = run(3, "a", (1, 2), "done");
        batch.batch = Some("cell-1".to_owned());
        let mut everywhere = run(4, "a", (1, 2), "done");
        everywhere.token = None;
        assert!(terms(&[batch, everywhere], &[], None, at(9)).is_empty());
    }
}
