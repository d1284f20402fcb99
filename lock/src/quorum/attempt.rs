//! One attempt to acquire locks on a majority of the nodes.
//!
//! # Invariants (held by the simulation in `src/sim`, each with a mutant that it must catch)
//! - R3 The deadline counts from before this attempt's first byte.                 (deadline_counts_from_before_the_first_byte)
//! - R4 Votes are summed within one round; a retry starts from zero.               (votes_of_two_rounds_are_never_summed)
//! - R5 A lost attempt is undone on all nodes at once, also where no answer came.  (`r5_a_lost_attempt_is_undone`)
//! - One that never left is not: its undoing would wait for the nodes.  (`attempts_that_never_left_are_not_undone`)
//! - A caller that goes away during its attempt leaves nothing, either.  (an_acquire_that_is_cancelled_leaves_nothing)
//! - T2 Differing grants are confirmed by q nodes before a token is handed out.    (tokens_rise_although_nodes_differ)

use super::{
    claim::{Attempt, AttemptMode, Claim, QueuePosition, Tried, Win},
    cluster::{Cluster, Progress},
    link::Link,
    round::Round,
};
use crate::node::{Expiry, Op, tag::tagged};

// === impl Cluster ===

impl Cluster {
    /// One attempt at every claim under one owner value; all nodes in parallel, unless the mode says otherwise. Dropped before
    /// its end it is undone.
    pub(crate) async fn attempt(&self, claims: &[Claim], mode: &AttemptMode) -> Vec<Tried> {
        if !self.members().known {
            // Once in the life of a process; it takes no room in the future of every attempt.
            Box::pin(self.known_members()).await;
        }
        let members = self.members();
        #[cfg(any(test, feature = "testing"))]
        let barred = members.barred && !self.mutant.never_bar;
        #[cfg(not(any(test, feature = "testing")))]
        let barred = members.barred;
        if barred {
            return self.barred(claims);
        }
        // Read before the first byte leaves: the nodes count their ttl from later on (R3).
        let start = self.clock.now();
        let owner = self.new_owner(claims);
        let mut unfinished = Unfinished {
            cluster: self,
            claims,
            owner: &owner,
            over: false,
        };
        let mut round = Round::begin(self, claims, &owner, mode, members);
        round.collect().await;
        let tokens = round.confirm(start).await;
        #[cfg(any(test, feature = "testing"))]
        let start = if self.mutant.deadline_from_reply {
            self.clock.now()
        } else {
            start
        };

        if tokens.iter().all(Option::is_none) {
            round.hear_who_is_away();
        }

        // The last thing before a lease is handed out: is enough of it left?
        let now = self.clock.now();
        let mut undo = Vec::new();
        let ends = claims
            .iter()
            .zip(tokens)
            .enumerate()
            .map(|(i, (claim, token))| {
                let ttl = claim.ttl_or(&self.timing);
                let valid_until = self.timing.valid_until(start, ttl);
                match token {
                    Some(token) if now + self.timing.min_validity(ttl) <= valid_until => {
                        self.has_seen(token);
                        let kept = round.tallies[i].granted();
                        let record = round.record(i);
                        let owner = owner.clone();
                        return round.won(
                            i,
                            Win {
                                owner,
                                token,
                                valid_until,
                                kept,
                                granted_by: round.tallies[i].granted_by(),
                                record,
                            },
                        );
                    }
                    // Every node that was asked has refused, or could not be: there is nothing to undo. An undo would call the head
                    // of the queue, which would try and be refused, again and again; and undoings wait for a node that is away, as
                    // many as there were attempts meanwhile, to ask it all at once when it is back.
                    _ if round.is_refused_by_the_first() || round.left_nothing(i) => {}
                    _ => undo.push(self.release_op(&claim.key, &owner, claim.kind)),
                }
                let attempt = if token.is_some() {
                    Attempt::TooSlow
                } else {
                    round.refusal(i)
                };
                round.tried(i, attempt)
            });
        let ends: Vec<_> = ends.collect();
        #[cfg(any(test, feature = "testing"))]
        self.mutant.remember(claims, &owner, &round.tallies);
        unfinished.over = true;
        self.undo(undo);
        ends
    }

    /// Nothing is sent: see [`Members::unguarded`].
    fn barred(&self, claims: &[Claim]) -> Vec<Tried> {
        let why = |(node, link): (usize, &Link)| {
            let trouble = link.trouble();
            (node, trouble.unwrap_or_else(|| self.no_vote(node)))
        };
        let nodes = || self.links.iter().enumerate().map(why);
        let failed = || nodes().map(|(node, why)| (self.links[node].name().to_owned(), why));
        let tried = |claim: &Claim| Tried {
            attempt: Attempt::NoQuorum(failed().collect()),
            seen: self.judge(
                claim.key.clone(),
                nodes().map(|(node, why)| (node, Err(why))).collect(),
            ),
            position: QueuePosition::default(),
        };
        claims.iter().map(tried).collect()
    }

    /// The node to ask first: in the key's order the first that is up, and looks takable if any does.
    pub(super) fn first(&self, key: &str, mode: &AttemptMode) -> usize {
        let (nodes, primary) = (self.links.len(), self.primary(key));
        let up = |node: &usize| {
            let link = self.links.get(*node);
            link.is_some_and(|link| !link.is_down() && link.no_vote().is_none())
        };
        let order = || (0..nodes).map(|n| (primary + n) % nodes).filter(up);
        // All waiters queue on the same node.
        let queues = mode.ticket.as_ref().is_some_and(|ticket| ticket.polite);
        let takable = if queues {
            None
        } else {
            let now = self.clock.now();
            let watch = self.watch();
            order().find(|node| watch.looks_takable(*node, key, now, &self.timing))
        };
        takable.or_else(|| order().next()).unwrap_or(primary)
    }

    fn new_owner(&self, claims: &[Claim]) -> String {
        #[cfg(any(test, feature = "testing"))]
        if let Some(owner) = self.mutant.last_owner(claims) {
            return owner;
        }
        let _ = claims;
        tagged(self.chance.id(), self.tag.as_deref())
    }

    /// Undoes a lost attempt on all nodes, sent behind its acquires, in the background.
    fn undo(&self, ops: Vec<Op>) {
        #[cfg(any(test, feature = "testing"))]
        if self.mutant.sum_rounds {
            return;
        }
        if ops.is_empty() {
            return;
        }
        if self.expiry == Expiry::Observed {
            let mut watch = self.watch();
            for op in &ops {
                if let Op::Release { key, owner, .. } = op {
                    // Believed never again from here on (O2).
                    watch.is_over(key, owner);
                }
            }
        }
        let (told, mut progress) = tokio::sync::watch::channel(Progress::default());
        let quiet = self.quiet_after(self.clock.now());
        let work = self.tell_until_known(ops, told, None, quiet);
        self.spawn.spawn(work);
        // Only the end of the process waits for it: what a lost attempt leaves behind, others would watch for a ttl.
        let (cluster, busy) = (self.clone(), self.busy());
        self.spawn.spawn(async move {
            let limit = cluster.clock.now() + cluster.timing.node_timeout * 2;
            let asked = progress.wait_for(|told| told.asked);
            let _ = cluster.clock.timeout_at(limit, asked).await;
            drop(busy);
        });
    }
}

/// An attempt whose caller may go away: what it has asked for is undone then.
struct Unfinished<'a> {
    cluster: &'a Cluster,
    claims: &'a [Claim],
    owner: &'a str,
    over: bool,
}

impl Drop for Unfinished<'_> {
    fn drop(&mut self) {
        if !self.over {
            let release = |claim: &Claim| {
                let Claim { key, kind, .. } = claim;
                self.cluster.release_op(key, self.owner, *kind)
            };
            self.cluster.undo(self.claims.iter().map(release).collect());
        }
    }
}
