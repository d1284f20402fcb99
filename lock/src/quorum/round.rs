//! One round of an attempt: votes are asked for, counted, and where grants differ confirmed.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{
    claim::{Attempt, AttemptMode, Claim, QueuePosition, Tried, Win},
    cluster::Cluster,
    link::Link,
    members::Members,
    pending_answers::PendingAnswers,
};
use crate::{
    clock::Moment,
    expiry::LockState,
    node::{Answer, Kind, NodeError, Op, Record, Refusal, Ticket, Token, View, rules::DOUBTED},
    quorum::tally::{Ballot, RoundResult, Tally, Verdict, Vote, majority, round_result},
};

/// The votes of one attempt.
pub(super) struct Round<'a> {
    cluster: &'a Cluster,
    claims: &'a [Claim],
    owner: &'a str,
    mode: &'a AttemptMode,
    pub(super) tallies: Vec<Tally>,
    records: Vec<Record>,
    /// The node that is asked first, while the others have not been asked.
    first: Option<usize>,
    /// The links on which it asks.
    lanes: &'a [Link],
    /// Whose votes count in it (I1).
    members: Arc<Members>,
    pending: PendingAnswers,
}

impl<'a> Round<'a> {
    pub(super) fn begin(
        cluster: &'a Cluster,
        claims: &'a [Claim],
        owner: &'a str,
        mode: &'a AttemptMode,
        members: Arc<Members>,
    ) -> Self {
        let nodes = cluster.links.len();
        let tallies = claims.iter().map(|_| Tally::new(nodes)).collect();
        #[cfg(any(test, feature = "testing"))]
        let tallies = cluster.mutant.carry_over(claims, tallies);
        let records = vec![Record::default(); claims.len()];
        let first = match claims {
            [claim] if mode.one_first && nodes > 1 => Some(cluster.first(&claim.key, mode)),
            _ => None,
        };
        let mut pending = PendingAnswers::of(members.clone());
        if first.is_none() {
            // Fewer grants are no majority, and fewer refusals leave one.
            pending.want(nodes - majority(nodes) + 1);
        }
        let mut round = Self {
            cluster,
            claims,
            owner,
            mode,
            tallies,
            records,
            first,
            lanes: cluster.lanes(),
            members,
            pending,
        };
        let asked: Vec<_> = (0..nodes).map(|node| round.is_meant(node)).collect();
        round.ask(|node| match first {
            Some(first) => node == first,
            None => asked[node],
        });
        round
    }

    /// Whether the attempt is meant for this node.
    fn is_meant(&self, node: usize) -> bool {
        let queues = || match self.claims {
            [claim] => self.mode.ticket.is_some() && self.cluster.primary(&claim.key) == node,
            _ => false,
        };
        let only = self.mode.only.as_ref();
        only.is_none_or(|only| only.contains(&node) || queues())
    }

    /// Sends the attempt to these nodes.
    pub(super) fn ask(&mut self, which: impl Fn(usize) -> bool) {
        let cluster = self.cluster;
        let floor = Token(cluster.floor.load(Ordering::SeqCst));
        let lanes = self.lanes.iter().enumerate();
        for (node, link) in lanes.filter(|(node, _)| which(*node)) {
            let acquire = |claim: &Claim| Op::Acquire {
                key: claim.key.clone(),
                owner: self.owner.to_owned(),
                kind: claim.kind,
                ttl: claim.ttl_or(&cluster.timing),
                floor,
                take: cluster.take(node, &claim.key, claim.kind),
                clamp: match claim.kind {
                    Kind::Claim => cluster.timing.longest_claim(),
                    Kind::Lock => cluster.timing.max_ttl,
                },
                ticket: self.ticket_for(node, claim),
                waits: self.mode.waits,
            };
            let ops = self.claims.iter().map(acquire).collect();
            self.pending.ask(node, link, ops);
        }
    }

    fn ticket_for(&self, node: usize, claim: &Claim) -> Option<Ticket> {
        let ticket = self.mode.ticket.clone()?;
        // An impatient waiter may ask another node first, which keeps no queue for this lock.
        let first = self.first.filter(|_| ticket.polite);
        let keeps_the_line = first.unwrap_or_else(|| self.cluster.primary(&claim.key));
        (keeps_the_line == node).then_some(ticket)
    }

    /// Whether the attempt stands nowhere, also not late: every node that was asked has refused, or was not reached.
    pub(super) fn left_nothing(&self, claim: usize) -> bool {
        let mut votes = self.tallies[claim].votes().iter().enumerate();
        votes.all(|(node, vote)| match vote {
            Some(Vote::Refused(_)) => true,
            Some(Vote::Failed(trouble)) => trouble.left_nothing(),
            None => !self.is_meant(node),
            Some(_) => false,
        })
    }

    pub(super) fn is_refused_by_the_first(&self) -> bool {
        let votes = self.tallies.first().map(Tally::votes).unwrap_or_default();
        let refused = |first: usize| matches!(votes.get(first), Some(Some(Vote::Refused(_))));
        self.first.is_some_and(refused)
    }

    /// Won: what the nodes have shown is not needed.
    pub(super) fn won(&self, claim: usize, win: Win) -> Tried {
        let key = &self.claims[claim].key;
        let votes = self.tallies[claim].votes();
        let primary = votes.get(self.cluster.primary(key));
        Tried {
            attempt: Attempt::Won(win),
            seen: LockState::new(String::new(), Vec::new()),
            position: QueuePosition {
                left: matches!(primary, Some(Some(Vote::Granted(_)))),
                ..QueuePosition::default()
            },
        }
    }

    /// What this round has shown of a claim.
    pub(super) fn tried(&self, claim: usize, attempt: Attempt) -> Tried {
        let key = &self.claims[claim].key;
        let votes = self.tallies[claim].votes();
        let mut ahead = None;
        let asked = self.first.filter(|_| self.is_refused_by_the_first());
        let view = |vote: &Option<Vote>| match vote {
            Some(Vote::Granted(_)) => Ok(View {
                key: key.clone(),
                ..View::default()
            }),
            Some(Vote::Refused(view)) => Ok((**view).clone()),
            Some(Vote::Failed(trouble)) => Err(trouble.clone()),
            None => Err(NodeError::Unreachable("it was not waited for".to_owned())),
        };
        let all = votes.iter().map(view).enumerate();
        // Where one node alone was asked and refused, it stands for all.
        let nodes: Vec<_> = all.filter(|(n, _)| asked.is_none_or(|a| a == *n)).collect();
        for (_, view) in &nodes {
            ahead = ahead.or(view.as_ref().ok().and_then(|view| view.ahead));
        }
        let primary = votes.get(self.cluster.primary(key));
        let position = QueuePosition {
            ahead,
            left: matches!(primary, Some(Some(Vote::Granted(_)))),
            told: is_told(votes),
            owner: self.owner.to_owned(),
        };
        Tried {
            attempt,
            seen: self.cluster.judge(key.clone(), nodes),
            position,
        }
    }

    /// Counts votes until every claim is decided; never waits for the slowest node (R2).
    pub(super) async fn collect(&mut self) {
        while self.tallies.iter().any(|tally| self.is_open(tally)) {
            let Some((node, result)) = self.pending.next().await else {
                return;
            };
            let first = self.first;
            for i in 0..self.claims.len() {
                let vote = match &result {
                    Ok(answers) => self.vote(node, i, answers.get(i)),
                    Err(trouble) => Vote::Failed(trouble.clone()),
                };
                self.tallies[i].count(node, vote);
            }
            if first == Some(node) {
                if self.is_refused_by_the_first() {
                    return;
                }
                // It granted, or it does not answer and the other nodes have to decide.
                self.first = None;
                self.ask(|other| other != node);
            }
        }
    }

    /// Takes note of the nodes that were not reached, of those that were not waited for: nothing of it is a vote.
    pub(super) fn hear_who_is_away(&mut self) {
        while let Some((node, result)) = self.pending.by_now() {
            if let Err(trouble) = result {
                let failed = |tally: &mut Tally| tally.count(node, Vote::Failed(trouble.clone()));
                self.tallies.iter_mut().for_each(failed);
            }
        }
    }

    /// Whether there is anything to wait for. What is lost by refusals of some and the silence of others is lost at once; but a
    /// client that goes to sleep waits until enough of the others have been told (W2).
    fn is_open(&self, tally: &Tally) -> bool {
        let untold = || {
            let votes = tally.votes();
            let sleeps = !self.mode.waits.is_zero() && tally.granted() == 0;
            let failed = |vote: &&Option<Vote>| matches!(vote, Some(Vote::Failed(_)));
            let failed = votes.iter().filter(failed).count();
            sleeps && !is_told(votes) && failed < majority(votes.len())
        };
        match tally.verdict() {
            Verdict::Open => true,
            Verdict::Lost => untold(),
            Verdict::Won(_) | Verdict::Confirm(_) => false,
        }
    }

    fn vote(&mut self, node: usize, claim: usize, answer: Option<&Answer>) -> Vote {
        match answer {
            Some(Answer::Granted { grant, record }) => {
                let far = record.version.token.max(*grant);
                if far >= DOUBTED {
                    // Counted only where a majority tells such numbers (Q5).
                    self.cluster.was_told(node, far);
                    if far > *grant {
                        // No lease of this lock has written it.
                        return Vote::Failed(NodeError::Refused {
                            refusal: Refusal::Damaged,
                            said: format!("a body of token {far}, where {grant} was granted"),
                        });
                    }
                }
                // The largest version of q nodes: a write that counted reached one of them.
                if record.version >= self.records[claim].version {
                    self.records[claim] = record.clone();
                }
                Vote::Granted(*grant)
            }
            Some(Answer::Refused(view)) => {
                self.cluster.saw(node, view);
                Vote::Refused(Box::new(view.clone()))
            }
            Some(Answer::Unadmitted) => Vote::Failed(self.cluster.no_vote(node)),
            Some(Answer::Failed(trouble)) => Vote::Failed(trouble.clone()),
            other => Vote::Failed(NodeError::Protocol(format!("answer to acquire: {other:?}"))),
        }
    }

    /// T2: where the grants differ, raises the token on q nodes that granted before it is believed.
    pub(super) async fn confirm(&mut self, start: Moment) -> Vec<Option<Token>> {
        let mut tokens = vec![None; self.claims.len()];
        let mut open: Vec<(usize, Token)> = Vec::new();
        for (i, tally) in self.tallies.iter().enumerate() {
            match tally.verdict() {
                Verdict::Won(token) => tokens[i] = Some(token),
                Verdict::Confirm(token) => open.push((i, token)),
                Verdict::Lost | Verdict::Open => {}
            }
        }
        #[cfg(any(test, feature = "testing"))]
        if self.cluster.mutant.skip_confirm {
            for (i, token) in open.drain(..) {
                tokens[i] = Some(token);
            }
        }
        while !open.is_empty() {
            let mut again = Vec::new();
            for ((i, token), ballots) in open.iter().zip(confirm_round(self, &open).await) {
                let larger = ballots.iter().filter_map(|b| match b {
                    Ballot::Larger(t) => Some(*t),
                    _ => None,
                });
                let ttl = self.claims[*i].ttl_or(&self.cluster.timing);
                let end = self.cluster.timing.valid_until(start, ttl);
                match (round_result(&ballots), larger.max()) {
                    (RoundResult::Carried, _) => tokens[*i] = Some(*token),
                    (_, Some(larger)) if self.cluster.clock.now() < end => {
                        again.push((*i, larger.max(*token)));
                    }
                    _ => {}
                }
            }
            open = again;
        }
        tokens
    }

    pub(super) fn record(&self, claim: usize) -> Record {
        self.records[claim].clone()
    }

    /// Why a claim was not won: another owner holds it, or too few nodes answered.
    pub(super) fn refusal(&self, claim: usize) -> Attempt {
        let votes = self.tallies[claim].votes();
        let views: Vec<&View> = votes
            .iter()
            .filter_map(|v| match v {
                Some(Vote::Refused(view)) => Some(&**view),
                _ => None,
            })
            .collect();
        let failed: Vec<_> = votes
            .iter()
            .zip(&self.cluster.links)
            .filter_map(|(vote, link)| match vote {
                Some(Vote::Failed(trouble)) => Some((link.name().to_owned(), trouble.clone())),
                _ => None,
            })
            .collect();
        if failed.len() > votes.len() - majority(votes.len()) {
            return Attempt::NoQuorum(failed);
        }
        Attempt::Held {
            by: most_seen(&views),
            for_at_most: views
                .iter()
                .filter_map(|v| v.remaining_ms)
                .max()
                .map(Duration::from_millis),
        }
    }
}

/// W2: whether so many nodes have refused that every majority has one of them. What has no vote has failed, and is none.
fn is_told(votes: &[Option<Vote>]) -> bool {
    let refused = |vote: &&Option<Vote>| matches!(vote, Some(Vote::Refused(_)));
    votes.iter().filter(refused).count() > votes.len() - majority(votes.len())
}

/// The holder that most views show.
fn most_seen(views: &[&View]) -> Option<String> {
    let holders = || views.iter().filter_map(|v| v.holder.as_deref());
    holders()
        .max_by_key(|h| (holders().filter(|o| o == h).count(), *h))
        .map(str::to_owned)
}

/// Asks all nodes to confirm these tokens; one row of ballots per token.
async fn confirm_round(round: &Round<'_>, open: &[(usize, Token)]) -> Vec<Vec<Ballot>> {
    let Round {
        cluster,
        claims,
        owner,
        lanes,
        members,
        ..
    } = round;
    let ops: Vec<_> = open
        .iter()
        .map(|(i, token)| Op::Confirm {
            key: claims[*i].key.clone(),
            owner: (*owner).to_owned(),
            kind: claims[*i].kind,
            token: *token,
            expiry: cluster.expiry_of(claims[*i].kind),
        })
        .collect();
    let mut ballots = vec![vec![Ballot::Open; cluster.links.len()]; open.len()];
    let mut pending = PendingAnswers::of(members.clone());
    for (node, link) in lanes.iter().enumerate() {
        pending.ask(node, link, ops.clone());
    }
    while ballots.iter().any(|b| round_result(b) == RoundResult::Open) {
        let Some((node, result)) = pending.next().await else {
            break;
        };
        for (i, row) in ballots.iter_mut().enumerate() {
            row[node] = match result.as_ref().map(|answers| answers.get(i)) {
                Ok(Some(Answer::Done)) => Ballot::Yes,
                // A grant that did not count is confirmed no number, and tells none (Q5).
                Ok(Some(Answer::Larger(token)))
                    if *token < DOUBTED || open.get(i).is_some_and(|(_, of)| *of >= DOUBTED) =>
                {
                    Ballot::Larger(*token)
                }
                Ok(Some(Answer::Refused(_))) => Ballot::No,
                Ok(_) | Err(_) => Ballot::Failed,
            };
        }
    }
    ballots
}
