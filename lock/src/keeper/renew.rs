//! One renewal round: all due leases, all nodes. How often: `settings/timing.rs`.

use std::time::Duration;

use futures_util::{StreamExt, stream};

use super::{lease_table::next_renewal, shared::Shared};
use crate::{
    admission::one_node::at_once,
    clock::Moment,
    event::Event,
    lease::{LeaseView, Loss},
    node::{Answer, Kind, NodeError, Op},
    quorum::{
        cluster::Cluster,
        tally::{Ballot, RoundResult, round_result},
    },
};

/// Calls of one round under way at a time: the next is ready when a node has answered, and waits no longer than one
/// call takes. All at once, those at the end would run out of their time in the queue.
const PARTS: usize = 2;

/// Extends these leases on all nodes, then says when the next round is due.
pub(crate) async fn round(shared: Shared, leases: Vec<(u64, LeaseView)>) {
    stream::iter(leases.chunks(shared.cluster.most_extensions()))
        .for_each_concurrent(PARTS, |part| extend_part(&shared, part))
        .await;
}

/// As many leases as fit into one call; they count from its own first byte.
async fn extend_part(shared: &Shared, part: &[(u64, LeaseView)]) {
    let cluster = &shared.cluster;
    // Read before the first byte leaves (R8).
    let start = cluster.clock.now();
    // The parts before this one took their time: a lease that is over by now is not extended, also with work under
    // it.
    let (leases, over): (Vec<_>, Vec<_>) = part.iter().partition(|(_, view)| view.loss().is_none());
    for (id, _) in over {
        shared.table().round_over(*id, Moment::NEVER);
    }
    if leases.is_empty() {
        shared.ring();
        return;
    }
    let seqs: Vec<u64> = leases.iter().map(|(_, view)| view.next_seq()).collect();
    let ops = |node| {
        let rounds = leases.iter().zip(&seqs);
        rounds
            .map(|((_, view), seq)| extend(cluster, node, view, *seq))
            .collect()
    };
    let mut ballots = vec![vec![Ballot::Open; cluster.links.len()]; leases.len()];
    let mut settled = vec![RoundResult::Open; leases.len()];
    let mut decided_at = vec![None; leases.len()];
    let before: Vec<isize> = leases.iter().map(|(_, view)| view.margin()).collect();
    let mut sent = cluster.send_each(ops);
    while let Some((node, result)) = sent.next().await {
        let now = cluster.clock.now();
        if let Ok(answers) = &result {
            bring_up_to_date(shared, node, &leases, answers);
        }
        for (i, (_, view)) in leases.iter().enumerate() {
            let answer = result.as_ref().ok().and_then(|answers| answers.get(i));
            ballots[i][node] = match &result {
                // Not silence: no other process sees there what it granted.
                Err(NodeError::Gone(_)) => Ballot::No,
                _ => ballot(answer),
            };
            if let Some(Answer::Refused(shown)) = answer {
                // What a dead owner left behind is taken when it is ripe (R10).
                cluster.saw(node, shown);
            }
            // Judged at every answer: the end check is made when the round completes, not when the last node has
            // answered; later answers still count for the margin.
            settled[i] = match round_result(&ballots[i]) {
                RoundResult::Carried => {
                    let kept = ballots[i].iter().filter(|b| **b == Ballot::Yes).count();
                    let until = cluster.timing.valid_until(start, view.ttl());
                    if view.extended(now, until, cluster.margin(kept)) {
                        // q nodes have just kept it: no read says more.
                        view.trust(start);
                        RoundResult::Carried
                    } else {
                        RoundResult::Failed
                    }
                }
                RoundResult::Denied => {
                    view.end(Loss::Taken);
                    RoundResult::Denied
                }
                open => open,
            };
            // The time to the rest of the answers is not part of the round.
            if settled[i] != RoundResult::Open && decided_at[i].is_none() {
                decided_at[i] = Some(now);
            }
        }
    }
    for (i, (_, view)) in leases.iter().enumerate() {
        if settled[i] != RoundResult::Carried {
            let kept = ballots[i].iter().filter(|b| **b == Ballot::Yes).count();
            view.stands_on(cluster.margin(kept));
        }
    }
    if cluster.links.len() > 1 {
        for ((_, view), before) in leases.iter().zip(before) {
            say_margin(view, before);
        }
    }
    let end = cluster.clock.now();
    let mut table = shared.table();
    for (((id, view), round_result), decided) in leases.iter().zip(settled).zip(decided_at) {
        let took = decided.unwrap_or(end).since(start);
        let ok = round_result == RoundResult::Carried;
        let resource = cluster.events.resource(view.key());
        cluster.events.tell(Event::Renewed {
            resource,
            took,
            ok,
            margin: view.margin(),
        });
        let ttl = view.ttl();
        let next = if ok {
            let early = cluster.chance.up_to(cluster.timing.renew_early(ttl));
            next_renewal(start, ttl, &cluster.timing, early)
        } else {
            // Trouble with a renewal is not illness: again, inside the lease.
            let pause = cluster.timing.renew_again(ttl);
            cluster.clock.now() + pause / 2 + cluster.chance.up_to(pause / 2)
        };
        table.round_over(*id, next.max(start + Duration::from_millis(1)));
    }
    drop(table);
    shared.ring();
}

/// R10: a lease that stands on no node more than it needs is lost with the next one.
fn say_margin(view: &LeaseView, before: isize) {
    let (key, margin) = (view.key(), view.margin());
    if !view.is_held() {
        return;
    }
    match margin_news(before, margin, view.rounds()) {
        Some(MarginNews::Short) => tracing::warn!(
            key,
            margin,
            "too few lock nodes keep the lease: it ends unless enough of them are back before"
        ),
        Some(MarginNews::NoneToSpare) => tracing::warn!(
            key,
            margin,
            "no lock node to spare: the lease is lost with the next one"
        ),
        Some(MarginNews::ToSpare) => {
            tracing::info!(key, margin, "lock nodes to spare again");
        }
        None => {}
    }
}

/// What a person must hear of a margin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MarginNews {
    /// The round failed for want of nodes.
    Short,
    /// The next node that is lost is one too many.
    NoneToSpare,
    /// One may be lost again.
    ToSpare,
}

/// What is new about a lease's margin after this many rounds: each fall and the recovery once, not round by round.
fn margin_news(before: isize, margin: isize, rounds: u64) -> Option<MarginNews> {
    // What was granted was counted at the majority: the first round shows where the lease really stands.
    let first = rounds == 1;
    if margin < 0 {
        (before >= 0).then_some(MarginNews::Short)
    } else if margin == 0 {
        (before > 0 || first).then_some(MarginNews::NoneToSpare)
    } else {
        (before <= 0 && !first).then_some(MarginNews::ToSpare)
    }
}

fn extend(cluster: &Cluster, node: usize, view: &LeaseView, seq: u64) -> Op {
    Op::Extend {
        key: view.key().to_owned(),
        owner: view.owner().to_owned(),
        kind: view.kind(),
        seq,
        ttl: view.ttl(),
        token: view.token(),
        take: cluster.take(node, view.key(), view.kind()),
    }
}

fn ballot(answer: Option<&Answer>) -> Ballot {
    match answer {
        Some(Answer::Kept { .. }) => Ballot::Yes,
        Some(Answer::Healed { .. }) => Ballot::Healed,
        Some(Answer::Refused(_)) => Ballot::No,
        // Also where this round had come through before, with an outcome that is not known: [`Answer::Done`].
        Some(_) | None => Ballot::Failed,
    }
}

/// A node that was away or is new shows older record bodies: send it the newest.
fn bring_up_to_date(
    shared: &Shared,
    node: usize,
    leases: &[&(u64, LeaseView)],
    answers: &[Answer],
) {
    let expiry = shared.cluster.expiry_of(Kind::Lock);
    let table = shared.table();
    let behind = leases.iter().zip(answers).filter_map(|((id, _), answer)| {
        let (Answer::Kept { version } | Answer::Healed { version }) = answer else {
            return None;
        };
        let held = table.get(*id)?;
        let is_behind = held.view.kind() == Kind::Lock && held.record.version > *version;
        is_behind.then(|| Op::Write {
            key: held.view.key().to_owned(),
            owner: held.view.owner().to_owned(),
            version: held.record.version,
            body: held.record.body.clone(),
            not_before: None,
            expiry,
        })
    });
    let mut behind: Vec<Op> = behind.collect();
    drop(table);
    if behind.is_empty() {
        return;
    }
    // As much as arrives in time, from anywhere among it: the next round finds the rest behind, and one that never arrives keeps
    // back no other.
    let first = shared.cluster.chance.below(behind.len() as u64);
    behind.rotate_left(usize::try_from(first).unwrap_or(0));
    behind.truncate(at_once(&behind));
    let sent = shared.cluster.send_to(node, &behind);
    // Best effort: the next round sees whether it arrived.
    shared.cluster.spawn.spawn(async move { drop(sent.await) });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fall_of_the_margin_and_its_recovery_is_said_once() {
        use MarginNews::{NoneToSpare, Short, ToSpare};
        let told = |margins: &[isize]| -> Vec<_> {
            let rounds = 1_u64..;
            let pairs = margins.windows(2).zip(rounds);
            pairs
                .filter_map(|(pair, round)| margin_news(pair[0], pair[1], round))
                .collect()
        };
        assert_eq!(told(&[0, 1, 1]), [], "a grant is counted at the majority");
        assert_eq!(told(&[0, 0, 0, 1, 1]), [NoneToSpare, ToSpare]);
        assert_eq!(told(&[0, 1, 0, 0, 1]), [NoneToSpare, ToSpare]);
        assert_eq!(told(&[0, 1, -1, -1, 1]), [Short, ToSpare]);
        let falls = [NoneToSpare, Short, ToSpare];
        assert_eq!(
            told(&[0, 1, 0, -1, 0, 1]),
            falls,
            "back on the way up is no fall"
        );
    }
}
