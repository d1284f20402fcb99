//! Who led a job when, and why each term ended: the last of them, as the page shows them.
//!
//! The replica that leads tells of its term in the document `terms/JOB`, which has the last [`KEPT_TERMS`] terms: when the term has
//! lasted for a moment, and when it has ended. A term without an end is the present one, or its replica could not tell: it died, or
//! did not reach the nodes. Terms for the work of a single tick are told by their runs alone.
//!
//! # Invariants
//! - T1 What is written without having seen a later term takes the place of none that a later one has written.
//!   (a_later_term_is_not_written_over)
//! - T2 However often leaders change, so many terms are kept and no more.   (the_last_terms_are_kept)
//!
//! # Not promised
//! This is news, not authority: of two that are written at one instant one may be lost.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::node::{Doc, Token};

/// Terms that are kept of each job.
pub(crate) const KEPT_TERMS: usize = 20;

/// Revisions that one term may use: of itself, and of those before it that tell their ends late.
const ROOM: u64 = 16;

/// Twenty terms with the longest words are shorter.
const LONGEST: usize = 64 * 1024;
/// No lock is granted under a higher token: terms of such ones would keep the real ones out.
const HIGHEST: Token = Token((1 << 53) - 1);

/// One term of a job.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct TermRecord {
    /// The fencing token.
    pub(crate) token: Token,
    /// The id of the replica.
    pub(crate) replica: String,
    /// Its name.
    pub(crate) name: String,
    /// When it began, by the fleet's time.
    pub(crate) began: Timestamp,
    /// How long no replica led before it, as far as this one has seen.
    pub(crate) leaderless_ms: Option<u64>,
    /// When it ended; `None` while it goes on, and where that was not told.
    pub(crate) ended: Option<Timestamp>,
    /// Why it ended: `released`, `resigned`, `drained`, `max_term`, `changed`, `outdated`, `expired`, `taken`, `unfit` or `other`.
    pub(crate) why: String,
    /// The same in the words of a check, where one has said so.
    pub(crate) detail: String,
}

/// The name of the document of a job.
pub(crate) fn document(job: &str) -> String {
    format!("terms/{job}")
}

/// The revision with which a term is told by one who has read this one.
pub(crate) fn revision(token: Token, read: Option<u64>) -> u64 {
    let own = token.0.saturating_mul(ROOM);
    own.max(read.unwrap_or(0)).saturating_add(1)
}

/// The terms that a document tells, the oldest first; `None` of one that a newer version has written in another way, or no
/// program of ours.
pub(crate) fn read(doc: &Doc) -> Option<Vec<TermRecord>> {
    if doc.body.len() > LONGEST {
        return None;
    }
    let mut terms: Vec<TermRecord> = serde_json::from_str(&doc.body).ok()?;
    terms.retain(|term| term.token <= HIGHEST);
    terms.sort_by_key(|term| term.token);
    let beyond = terms.len().saturating_sub(KEPT_TERMS);
    terms.drain(..beyond);
    Some(terms)
}

/// The same terms with this one, in the place of what was told of it before, and without the oldest ones.
pub(crate) fn with(mut terms: Vec<TermRecord>, term: &TermRecord) -> Vec<TermRecord> {
    terms.retain(|known| known.token != term.token);
    terms.push(term.clone());
    terms.sort_by_key(|term| term.token);
    let beyond = terms.len().saturating_sub(KEPT_TERMS);
    terms.drain(..beyond);
    terms
}

/// A document's content.
pub(crate) fn to_body(terms: &[TermRecord]) -> String {
    // Texts, numbers and times: always serializable.
    serde_json::to_string(terms).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(token: u64) -> TermRecord {
        TermRecord {
            token: Token(token),
            name: "a".to_owned(),
            ..TermRecord::default()
        }
    }

    #[test]
    fn the_last_terms_are_kept() {
        let mut terms = Vec::new();
        for token in 1..=50 {
            terms = with(terms, &term(token));
        }
        let tokens: Vec<u64> = terms.iter().map(|term| term.token.0).collect();
        assert_eq!(tokens, (31..=50).collect::<Vec<_>>());
        // An end that is told late is told of its own term.
        let late = TermRecord {
            why: "expired".to_owned(),
            ..term(49)
        };
        let terms = with(terms, &late);
        assert_eq!((terms.len(), &terms[18]), (KEPT_TERMS, &late));
        let doc = Doc {
            name: document("report"),
            rev: 1,
            body: to_body(&terms),
        };
        assert_eq!(read(&doc), Some(terms));
    }

    #[test]
    fn what_is_not_written_as_ours_is_not_read() {
        let read = |body: String| {
            let name = document("report");
            read(&Doc { name, rev: 1, body })
        };
        for newer in ["{\"layout\": 9}", "[{\"token\": \"7\"}]", "", "[1"] {
            assert_eq!(read(newer.to_owned()), None, "{newer}");
        }
        let large = TermRecord {
            detail: "x".repeat(LONGEST),
            ..term(1)
        };
        assert_eq!(read(to_body(&[large])), None);
        let planted: Vec<TermRecord> = (0..40).map(|n| term(u64::MAX - n)).collect();
        let mut mixed = vec![term(7), term(3)];
        mixed.extend(planted);
        assert_eq!(read(to_body(&mixed)), Some(vec![term(3), term(7)]));
    }

    #[test]
    fn a_later_term_is_not_written_over() {
        let first = revision(Token(7), None);
        assert!(first < revision(Token(7), Some(first)), "its own end");
        let second = revision(Token(8), Some(first));
        // What its predecessor tells without having seen it is older, and newer where it has.
        let mut unseen = first;
        for _ in 0..ROOM - 2 {
            unseen = revision(Token(7), Some(unseen));
            assert!(unseen < second, "{unseen}");
        }
        assert!(revision(Token(7), Some(second)) > second);
    }
}
