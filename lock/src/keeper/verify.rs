//! Reading leases back from a majority: for a holder that asks, and for all of them after a freeze.
//!
//! # Invariants
//! - V1 A lease is confirmed by q of the configured nodes that show it and no other lease, before its deadline.
//!   (a_lease_is_confirmed_by_a_majority_that_shows_it)
//! - V2 Too few answers change nothing.                       (too_few_answers_confirm_nothing_and_end_nothing)
//! - V3 Whatever is asked at the same time is asked once.     (many_verifications_share_their_calls)

use std::collections::BTreeMap;

use futures_util::StreamExt;
use tokio::sync::oneshot;

use super::{
    freeze::{Confirmation, Next, after_confirmation},
    shared::Shared,
};
use crate::{
    clock::Moment,
    lease::{LeaseView, Loss, VerifyError},
    node::{Answer, Expiry, Kind, NodeError, Op, View},
    quorum::{
        link::MOST_OPS,
        tally::{Ballot, RoundResult, majority, round_result},
    },
};

/// A caller that waits for the answer of a majority.
pub(super) type Waiting = oneshot::Sender<Result<(), VerifyError>>;

/// What holders want verified: gathered, then asked at once.
#[derive(Default)]
pub(super) struct Asked(BTreeMap<u64, (LeaseView, Vec<Waiting>)>);

/// What one node's view says about a lease.
fn ballot(view: &View, lease: &LeaseView, expiry: Expiry) -> Ballot {
    let ours = |owner: &Option<String>| owner.as_deref() == Some(lease.owner());
    let named = lease.kind() == Kind::Lock;
    match &view.holder {
        Some(_) if !ours(&view.holder) => Ballot::No,
        // Broken by force: the key is left to run out, the lease is over.
        _ if named && ours(&view.owner) && (view.released || view.broken) => Ballot::No,
        // It has lost its memory and come back with an old copy: its word does not count.
        _ if named && ours(&view.owner) && !view.named => Ballot::Healed,
        Some(_) => Ballot::Yes,
        // Where keys decide, a stranger may have come and left while ours was gone (R8).
        None if named && ours(&view.owner) && expiry == Expiry::Server => Ballot::Healed,
        None if named && ours(&view.owner) => Ballot::Yes,
        // An owner that was granted after us stands in the record, also when it is gone by now.
        None if named && view.owner.is_some() && view.token >= lease.token() => Ballot::No,
        // A node that has forgotten, or is new, knows of no owner.
        None if named => Ballot::Healed,
        // A short claim is its key.
        None => Ballot::No,
    }
}

// === impl Asked ===

impl Asked {
    pub(super) fn add(&mut self, view: LeaseView, reply: Waiting) {
        let (_, waiting) = self.0.entry(view.id()).or_insert((view, Vec::new()));
        waiting.push(reply);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Answers all callers.
pub(super) async fn answer(shared: Shared, asked: Asked) {
    let (views, mut waiting): (Vec<_>, Vec<_>) = asked.0.into_values().unzip();
    read(&shared, &views, |i, verdict| {
        for reply in waiting[i].drain(..) {
            // A caller that has gone needs no answer.
            let _ = reply.send(verdict.clone());
        }
    })
    .await;
}

/// After a freeze: asks about these leases until each is confirmed, over, or given up.
pub(super) async fn settle(shared: Shared, mut views: Vec<LeaseView>, thawed: Moment) {
    let clock = shared.cluster.clock.clone();
    loop {
        let mut answers = vec![Confirmation::Unsure; views.len()];
        read(&shared, &views, |i, verdict| {
            answers[i] = match verdict {
                Ok(()) => Confirmation::Ours,
                Err(VerifyError::Lost(_)) => Confirmation::Over,
                Err(_) => Confirmation::Unsure,
            }
        })
        .await;
        let now = clock.now();
        let mut open = Vec::new();
        for (view, answer) in views.into_iter().zip(answers) {
            // An extension may have confirmed it meanwhile; of another freeze its own task takes care.
            if view.doubted() != Some(thawed) {
                continue;
            }
            match after_confirmation(answer, thawed, now, view.ttl()) {
                Next::Trust | Next::Ended => {}
                Next::AskAgain => open.push(view),
                Next::Unfit => {
                    view.cordon("this process was frozen, and no majority of nodes has confirmed its lease since");
                }
            }
        }
        if open.is_empty() {
            return;
        }
        views = open;
        let pause = shared.cluster.timing.node_timeout;
        clock
            .sleep(pause / 2 + shared.cluster.chance.up_to(pause / 2))
            .await;
    }
}

/// Reads the leases from all nodes and says of each what a majority shows, as soon as it does.
async fn read(
    shared: &Shared,
    views: &[LeaseView],
    mut decided: impl FnMut(usize, Result<(), VerifyError>),
) {
    // One call per node and part: what waits behind others would run out of its time in the queue.
    for (part, leases) in views.chunks(MOST_OPS).enumerate() {
        read_part(shared, leases, |i, verdict| {
            decided(part * MOST_OPS + i, verdict);
        })
        .await;
    }
}

async fn read_part(
    shared: &Shared,
    leases: &[LeaseView],
    mut decided: impl FnMut(usize, Result<(), VerifyError>),
) {
    let cluster = &shared.cluster;
    let asked = cluster.clock.now();
    let ops: Vec<_> = leases
        .iter()
        .map(|view| Op::Read {
            key: view.key().to_owned(),
        })
        .collect();
    let mut ballots = vec![vec![Ballot::Open; cluster.links.len()]; leases.len()];
    let mut open: Vec<usize> = (0..leases.len()).collect();
    let mut failed: Vec<(String, NodeError)> = Vec::new();
    let mut sent = cluster.ask_members(&ops);
    while !open.is_empty() {
        let Some((node, result)) = sent.next().await else {
            break;
        };
        let name = || cluster.links.get(node).map_or("", |l| l.name()).to_owned();
        if let Err(trouble) = &result {
            failed.push((name(), trouble.clone()));
        }
        open.retain(|i| {
            let answer = result.as_ref().ok().and_then(|answers| answers.get(*i));
            let votes = cluster
                .links
                .get(node)
                .is_some_and(|l| l.no_vote().is_none());
            ballots[*i][node] = match answer {
                // It may show what it knew before it lost its memory.
                Some(Answer::View(_)) if !votes => Ballot::Failed,
                Some(Answer::View(view)) => {
                    cluster.saw(node, view);
                    let lease = &leases[*i];
                    ballot(view, lease, cluster.expiry_of(lease.kind()))
                }
                // Not silence: no other process sees there what it granted.
                _ if matches!(result, Err(NodeError::Gone(_))) => Ballot::No,
                _ => Ballot::Failed,
            };
            let verdict = conclude(&leases[*i], &ballots[*i], &failed, asked);
            let undecided = verdict.is_none();
            if let Some(verdict) = verdict {
                decided(*i, verdict);
            }
            undecided
        });
    }
}

/// Carries out what the ballots say; `None` while they say nothing yet.
fn conclude(
    lease: &LeaseView,
    ballots: &[Ballot],
    failed: &[(String, NodeError)],
    asked: Moment,
) -> Option<Result<(), VerifyError>> {
    let round_result = round_result(ballots);
    // No answer of the nodes outlives the deadline.
    if let Some(loss) = lease.loss() {
        return Some(Err(VerifyError::Lost(loss)));
    }
    match round_result {
        RoundResult::Open => None,
        RoundResult::Carried => {
            lease.trust(asked);
            Some(Ok(()))
        }
        RoundResult::Denied => {
            lease.end(Loss::Taken);
            Some(Err(VerifyError::Lost(lease.loss().unwrap_or(Loss::Taken))))
        }
        RoundResult::Failed => Some(Err(VerifyError::Unsure {
            confirmed: ballots.iter().filter(|b| **b == Ballot::Yes).count(),
            needed: majority(ballots.len()),
            failed: failed.to_vec(),
        })),
    }
}

#[cfg(test)]
mod tests;
