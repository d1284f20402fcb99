//! What this replica remembers of the jobs' ledgers, for a leader that finds none: when a majority of the lock nodes has lost
//! its memory, living replicas are all that is left of it.
//!
//! A leader remembers what it wrote, a standby what it was shown. While too few nodes vote each replica puts what it remembers
//! beside the lost records, as documents `known/JOB`; the nodes do not vote before every lease is over, so they stand there
//! before any replica leads. The next leader takes the newest: [`crate::due::account_for_loss`] says what becomes of it.
//!
//! # Invariants
//! - What was written under a larger token is newer, and under one token what its holder says.
//!   (the_holder_of_the_largest_token_knows_best)
//! - As long as enough nodes vote nothing is written.   (while_enough_nodes_vote_nothing_is_handed_on)
//! # Not promised
//! What only replicas knew that died together with the memory of the nodes; nor what one knew that could not reach them until
//! a replica led.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;
use jiff::Timestamp;

use crate::{
    clock::Clock,
    latest,
    ledger::Ledger,
    lock::{LockError, LockState, Locks, NodeReport, tally::majority},
    node::{NodeError, Token},
};

/// How long what was handed on is kept.
const LIFETIME: Duration = Duration::from_secs(3600);
/// Documents under way at a time.
const TOGETHER: usize = 64;

/// The ledgers that this replica remembers. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recall(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    known: Mutex<BTreeMap<String, RememberedLedger>>,
    /// Counts how often enough nodes vote again.
    back: latest::Sender<u64>,
    /// The latest loss of which it was said that no replica knows a ledger from before it.
    said: Mutex<Option<Timestamp>>,
}

/// A ledger that was once written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RememberedLedger {
    /// Under which it was.
    token: Token,
    /// By this replica.
    wrote: bool,
    body: Arc<str>,
}

// === impl Recall ===

impl Recall {
    /// This replica has written the job's ledger under this token.
    pub(crate) fn wrote(&self, job: &str, token: Token, body: Arc<str>) {
        let wrote = true;
        self.learn(job, RememberedLedger { token, wrote, body });
    }

    /// This is what the nodes show of the job's lock.
    pub(crate) fn saw(&self, job: &str, seen: &LockState) {
        let Some(record) = seen.newest() else { return };
        let known = self.known();
        let token = record.version.token;
        let same =
            |k: &RememberedLedger| k.token > token || (k.token == token && *k.body == *record.body);
        if record.body.is_empty() || known.get(job).is_some_and(same) {
            return;
        }
        drop(known);
        // One that says nothing of ticks may have been written where the other was lost.
        let read = Ledger::from_body(&record.body);
        if !read.is_ok_and(|ledger| ledger.decided_upto().is_some()) {
            return;
        }
        let body = record.body.as_str().into();
        let wrote = false;
        self.learn(job, RememberedLedger { token, wrote, body });
    }

    /// This replica has the job no more.
    pub(crate) fn forget(&self, job: &str) {
        self.known().remove(job);
    }

    /// The newest ledger of the job that this replica remembers.
    pub(crate) fn ledger(&self, job: &str) -> Option<Ledger> {
        let body = self.known().get(job)?.body.clone();
        Ledger::from_body(&body).ok()
    }

    /// No replica knows a ledger from before this loss: whether that is still to be said, once for all jobs.
    pub(super) fn is_to_be_said(&self, lost: Timestamp) -> bool {
        let mut said = self.0.said.lock().unwrap_or_else(PoisonError::into_inner);
        let new = said.is_none_or(|said| said < lost);
        if new {
            *said = Some(lost);
        }
        new
    }

    /// Hands on what is remembered while too few nodes vote, looking so often, until the task is dropped.
    pub(crate) async fn follow(self, locks: Locks, clock: Clock, every: Duration) {
        let mut lost = false;
        // Several times while they do not vote: one may lose its memory again.
        let again = (locks.timing().max_ttl / 4).max(Duration::from_millis(100));
        let every = every.min(again);
        loop {
            let Ok(nodes) = locks.nodes().await else {
                return;
            };
            let was = std::mem::replace(&mut lost, has_forgotten(&nodes));
            if lost {
                self.hand_on(&locks).await;
            } else if was {
                self.0.back.send_modify(|back| *back += 1);
            }
            clock.sleep(if lost { again } else { every }).await;
        }
    }

    /// Completes when enough nodes vote again after they did not.
    pub(crate) async fn nodes_are_back(&self) {
        let mut back = self.0.back.subscribe();
        back.mark_unchanged();
        // Its sender lives as long as `self`.
        let _ = back.changed().await;
    }

    async fn hand_on(&self, locks: &Locks) {
        let known: Vec<(String, RememberedLedger)> = self
            .known()
            .iter()
            .map(|(job, known)| (job.clone(), known.clone()))
            .collect();
        for some in known.chunks(TOGETHER) {
            let puts = some.iter().filter_map(|(job, known)| {
                let outline = Ledger::from_body(&known.body).ok()?.outline();
                let (name, rev) = (document(job), known.revision());
                Some(async move {
                    // Nodes that have it ignore it; for those that do not answer now there is a next time.
                    let _ = locks.put_doc(&name, rev, LIFETIME, outline.to_body()).await;
                })
            });
            join_all(puts).await;
        }
    }

    fn learn(&self, job: &str, news: RememberedLedger) {
        let mut known = self.known();
        let newer = known.get(job).is_none_or(|old| news.counts_beside(old));
        if newer {
            known.insert(job.to_owned(), news);
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, RememberedLedger>> {
        // Every change is complete before the lock is given back.
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RememberedLedger {
    /// What is known later under one token is newer, except that others are shown no more than its holder wrote.
    fn counts_beside(&self, old: &Self) -> bool {
        (self.token, self.wrote) >= (old.token, old.wrote)
    }

    /// Of its document.
    fn revision(&self) -> u64 {
        self.token.0.min(MOST) * 2 + u64::from(self.wrote)
    }
}

/// The newest ledger of the job that any replica has handed on.
///
/// # Errors
/// As [`Locks::doc`].
pub(super) async fn handed_on(job: &str, locks: &Locks) -> Result<Option<Ledger>, LockError> {
    let doc = locks.doc(&document(job)).await?;
    Ok(doc.and_then(|doc| {
        let read = Ledger::from_body(&doc.body);
        read.inspect_err(|error| {
            tracing::warn!(job, %error, "cannot read what others remember of a lost ledger");
        })
        .ok()
    }))
}

/// Tokens are below this: a document's revision is below 2^53.
const MOST: u64 = (1 << 52) - 1;

fn document(job: &str) -> String {
    format!("known/{job}")
}

/// Whether so few nodes vote that what all of them knew may be lost, and some of them because they have forgotten.
fn has_forgotten(nodes: &[NodeReport]) -> bool {
    let forgot = |n: &&NodeReport| {
        matches!(
            n.trouble,
            Some(NodeError::Unadmitted { .. } | NodeError::Unfounded { .. })
        )
    };
    let voters = nodes.iter().filter(|node| node.trouble.is_none()).count();
    let enough = nodes.len() - majority(nodes.len()) + 1;
    voters < enough && nodes.iter().any(|node| forgot(&node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Record, Version, View};

    fn body(second: i64) -> Arc<str> {
        let mut ledger = Ledger::default();
        let at = jiff::Timestamp::from_second(second).unwrap();
        ledger.first_sight(at).unwrap();
        ledger.to_body().into()
    }

    fn shows(token: u64, second: i64) -> LockState {
        let version = Version {
            token: Token(token),
            rev: 1,
        };
        let body = body(second).to_string();
        let view = View {
            record: Record { version, body },
            ..View::default()
        };
        LockState::new("job/report", vec![Ok(view)])
    }

    #[test]
    fn the_holder_of_the_largest_token_knows_best() {
        let recall = Recall::default();
        let known = || recall.known().get("report").unwrap().body.clone();
        recall.saw("report", &shows(4, 100));
        recall.saw("report", &shows(4, 110));
        assert_eq!(known(), body(110));
        recall.wrote("report", Token(5), body(120));
        recall.saw("report", &shows(5, 115));
        recall.saw("report", &shows(4, 300));
        assert_eq!(known(), body(120));
        // The nodes have forgotten: they show nothing.
        recall.saw(
            "report",
            &LockState::new("job/report", vec![Ok(View::default())]),
        );
        assert_eq!(known(), body(120));
        recall.saw("report", &shows(6, 90));
        assert_eq!(known(), body(90));
        recall.forget("report");
        assert!(recall.known().is_empty());
    }

    #[test]
    fn what_nobody_knows_is_said_once_for_all_jobs() {
        let recall = Recall::default();
        let at = |second| Timestamp::from_second(second).unwrap();
        assert!(recall.is_to_be_said(at(100)));
        assert!(!recall.clone().is_to_be_said(at(100)));
        assert!(recall.is_to_be_said(at(200)), "lost again");
    }

    #[test]
    fn while_enough_nodes_vote_nothing_is_handed_on() {
        let node = |trouble| NodeReport {
            name: "n".to_owned(),
            trouble,
            answers: true,
            round_trip: None,
            ahead_ms: None,
            watched: None,
        };
        let votes = || node(None);
        let lost = || node(Some(NodeError::Unadmitted { left: None }));
        let down = || node(Some(NodeError::Unreachable("test".into())));
        assert!(has_forgotten(&[lost()]));
        assert!(!has_forgotten(&[votes()]));
        assert!(!has_forgotten(&[down()]));
        assert!(!has_forgotten(&[votes(), votes(), lost()]));
        assert!(has_forgotten(&[votes(), lost(), lost()]));
        assert!(has_forgotten(&[votes(), down(), lost()]));
        assert!(!has_forgotten(&[votes(), down(), down()]));
    }
}
