//! Ending another owner's lease by force, and what came of it.
//!
//! # Why the key stays
//! Its holder does not know yet. It goes on believing until a round of its own is refused by a majority (a third of a
//! ttl later, unless it is frozen or cut off), or until its deadline. Were the key removed, a successor could be
//! granted meanwhile, and two would believe in the same lock. So a break takes away the future of a lease and not its
//! present: on a majority its extensions, writes and confirmations are refused from now on. The lock is granted again
//! when its key has run out, or when its holder, being told, has ended its work and released it. Every key of a lease
//! ends after the holder's own deadline (R3, R8), so at most one believes, as without the break.
//!
//! With `now` it is also released in the holder's name, when nothing of the lease can act any more: a ttl after the nodes were
//! told (B6). By then the holder believes no more. A client that comes then need not watch the lease first, and a waiter is
//! told.
//!
//! With observed expiry a lease may be believed in although its keys have gone, because a clock jumped: there the record
//! stands for the key, and its ttl for the key's life.
//!
//! # Invariants
//! - B1 A broken lease is never extended or written again, whatever its holder does. (a_broken_lease_is_final_for_its_holder)
//! - B2 No other owner is granted while the holder may believe.                       (a_break_lets_nobody_in_early)
//! - B3 The next token is larger than the one that the break took.                    (a_broken_lease_is_final_for_its_holder)
//! - B4 A successor is not touched by a break of its predecessor.                     (a_late_break_does_not_touch_the_successor)
//! - B6 `now` waits until nothing of the lease can act any more.           (b6_now_waits_until_nothing_of_the_lease_can_act)

use std::time::Duration;

use super::tally::majority;
use crate::node::{Expiry, NodeError, Token, View};

/// What came of a break, node by node.
#[derive(Clone, Debug, PartialEq)]
pub struct BreakReport {
    /// The lock.
    pub key: String,
    /// Whose lease.
    pub owner: String,
    /// The token that the break took: above the broken holder's. A receiver that is told this token refuses that
    /// holder.
    pub token: Token,
    /// What decides that the lock's silent holder is over.
    pub expiry: Expiry,
    /// Each node's name and answer, in the order of the configuration.
    pub nodes: Vec<(String, BreakVote)>,
    /// With `now`: the same of the release in the holder's name, which came when nothing of the lease could act any more. `None`
    /// also where too few nodes knew of the break.
    pub released: Option<Vec<(String, BreakVote)>>,
}

/// One node's answer to a break.
#[derive(Clone, Debug, PartialEq)]
pub enum BreakVote {
    /// The lease is over there; what stood there before.
    Over(View),
    /// Another value stands in the key, or a value of a foreign client; nothing was changed.
    Refused(View),
    /// No answer: it may be over there or not.
    Failed(NodeError),
}

/// What a break amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A majority knows that the lease is over: its holder cannot extend it.
    Final,
    /// A majority knows, and none of the nodes still had the lease: it had ended by itself.
    Gone,
    /// So many nodes show another owner that the lease cannot be held any more. Nothing of that owner was changed.
    ChangedHands,
    /// Too few nodes answered. It may be broken or not: break it again.
    Unsure,
}

// === impl BreakReport ===

impl BreakReport {
    /// Whether a majority knows that the lease is over.
    pub(crate) fn is_told(&self) -> bool {
        matches!(self.outcome(), Broken::Final | Broken::Gone)
    }

    /// Whether a majority has released it in the holder's name, or has a new holder, which had watched it by then.
    #[must_use]
    pub fn is_released(&self) -> bool {
        let votes = self.released.iter().flatten();
        let knows = |vote: &BreakVote| !matches!(vote, BreakVote::Failed(_));
        votes.filter(|(_, vote)| knows(vote)).count() >= majority(self.nodes.len())
    }

    /// The longest ttl of the lease that a node showed.
    pub(crate) fn ttl(&self) -> Option<Duration> {
        let shown = self.nodes.iter().filter_map(|(_, vote)| match vote {
            BreakVote::Over(view) if view.owner.as_ref() == Some(&self.owner) => Some(view.ttl_ms),
            _ => None,
        });
        shown.max().map(Duration::from_millis)
    }

    /// What it amounts to.
    #[must_use]
    pub fn outcome(&self) -> Broken {
        let q = majority(self.nodes.len());
        let count = |what: fn(&BreakVote) -> bool| {
            let votes = self.nodes.iter().map(|(_, vote)| vote);
            votes.filter(|vote| what(vote)).count()
        };
        if count(|v| matches!(v, BreakVote::Refused(_))) > self.nodes.len() - q {
            Broken::ChangedHands
        } else if count(|v| matches!(v, BreakVote::Over(_))) < q {
            Broken::Unsure
        } else if self.stood().next().is_some() {
            Broken::Final
        } else {
            Broken::Gone
        }
    }

    /// How long the broken holder could still believe when it was broken, at most: the longest life that a node showed, with observed expiry the
    /// ttl of a record whose key has vanished. `None` when a node showed a key without an end, or none showed it.
    #[doc(hidden)] // for the commands
    #[must_use]
    pub fn remaining(&self) -> Option<Duration> {
        let life = |view: &View| match view.holder {
            Some(_) => view.remaining_ms,
            None => Some(view.ttl_ms),
        };
        let lives: Option<Vec<u64>> = self.stood().map(life).collect();
        lives?.into_iter().max().map(Duration::from_millis)
    }

    /// Views of the nodes on which the lease stood: in its key, or observed in the record alone.
    fn stood(&self) -> impl Iterator<Item = &View> {
        let over = self.nodes.iter().filter_map(|(_, vote)| match vote {
            BreakVote::Over(view) => Some(view),
            _ => None,
        });
        let recorded = |view: &View| view.owner.as_ref() == Some(&self.owner);
        // An owner that has released on any node is over on all of them (O2): the others have not heard of it.
        let released = over.clone().any(|view| recorded(view) && view.released);
        let expiry = if released {
            Expiry::Server
        } else {
            self.expiry
        };
        over.filter(move |view| view.holder_by(expiry) == Some(self.owner.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(holder: &str, ms: u64) -> View {
        View {
            holder: Some(holder.into()),
            remaining_ms: Some(ms),
            ..View::default()
        }
    }

    fn report(votes: [BreakVote; 3]) -> BreakReport {
        BreakReport {
            key: "k".into(),
            owner: "a".into(),
            token: Token(2),
            expiry: Expiry::Server,
            nodes: votes.into_iter().map(|vote| ("n".into(), vote)).collect(),
            released: None,
        }
    }

    #[test]
    fn a_break_is_final_when_a_majority_knows() {
        let over = |ms| BreakVote::Over(view("a", ms));
        let down = || BreakVote::Failed(NodeError::Unreachable("test".into()));
        let other = || BreakVote::Refused(view("b", 9));
        let gone = || BreakVote::Over(View::default());
        let two = report([over(10), down(), over(30)]);
        assert_eq!(two.outcome(), Broken::Final);
        assert_eq!(two.remaining(), Some(Duration::from_millis(30)));
        assert_eq!(report([over(10), down(), down()]).outcome(), Broken::Unsure);
        assert_eq!(
            report([over(10), other(), down()]).outcome(),
            Broken::Unsure
        );
        assert_eq!(
            report([over(1), other(), other()]).outcome(),
            Broken::ChangedHands
        );
        assert_eq!(report([gone(), gone(), down()]).outcome(), Broken::Gone);
    }

    #[test]
    fn a_lease_without_its_keys_stood_where_records_decide() {
        let record = |released| {
            BreakVote::Over(View {
                owner: Some("a".into()),
                named: true,
                ttl_ms: 900,
                released,
                ..View::default()
            })
        };
        let key = |ms| BreakVote::Over(view("a", ms));
        let observed = |votes| BreakReport {
            expiry: Expiry::Observed,
            ..report(votes)
        };
        let ms = |ms| Some(Duration::from_millis(ms));
        let vanished = observed([record(false), record(false), record(false)]);
        assert_eq!(vanished.outcome(), Broken::Final);
        assert_eq!(vanished.remaining(), ms(900));
        let some = observed([key(10), record(false), key(20)]);
        assert_eq!(some.remaining(), ms(900));
        // Released on a node, it is over on all; otherwise its keys decide.
        let released = observed([record(false), record(true), record(false)]);
        let by_keys = report([record(false), record(false), record(false)]);
        for gone in [released, by_keys] {
            assert_eq!((gone.outcome(), gone.remaining()), (Broken::Gone, None));
        }
    }
}
