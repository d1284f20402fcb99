//! Counting votes: plain functions of what the nodes answered.
//!
//! # Invariants
//! - Q1 The majority is one of the *configured* nodes, whatever number answered.   (majority_is_of_the_configured_nodes)
//! - Q2 A round is won at q grants and lost as soon as q is impossible.             (answers_at_the_majority)
//! - Q3 A token is handed out only when q nodes granted that very number or confirmed it. (differing_grants_need_a_confirm)
//! - Q4 A tally counts one round; there is no way to add the votes of another.      (a_tally_is_one_round)
//! - Q5 A number far above all others counts only where a majority tells such ones, so that a node whose memory was damaged
//!   does not spread it.                                            (a_number_far_above_the_others_is_no_grant)

pub use crate::node::majority;
use crate::node::{NodeError, Token, View, rules::DOUBTED};

/// One node's vote in an acquire round.
#[derive(Clone, Debug, PartialEq)]
pub enum Vote {
    /// Granted, with this number.
    Granted(Token),
    /// Another owner holds it.
    Refused(Box<View>),
    /// No answer, or none that counts.
    Failed(NodeError),
}

/// The state of an acquire round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not decided yet.
    Open,
    /// q nodes granted the same number: that is the token.
    Won(Token),
    /// q nodes granted, with different numbers: the largest must be confirmed.
    Confirm(Token),
    /// q grants have become impossible.
    Lost,
}

/// The votes of one acquire round for one lock.
#[derive(Clone, Debug)]
pub struct Tally {
    votes: Vec<Option<Vote>>,
}

impl Tally {
    /// An empty round over `configured` nodes.
    #[must_use]
    pub fn new(configured: usize) -> Self {
        Self {
            votes: vec![None; configured],
        }
    }

    /// Counts a node's vote; the first vote of a node stays.
    pub fn count(&mut self, node: usize, vote: Vote) {
        if let Some(slot @ None) = self.votes.get_mut(node) {
            *slot = Some(vote);
        }
    }

    /// Nodes that granted so far.
    #[must_use]
    pub fn granted(&self) -> usize {
        self.grants().count()
    }

    /// Which nodes these are.
    pub(crate) fn granted_by(&self) -> Vec<usize> {
        let votes = self.votes.iter().enumerate();
        let granted = votes.filter(|(_, vote)| matches!(vote, Some(Vote::Granted(_))));
        granted.map(|(node, _)| node).collect()
    }

    /// Where the round stands.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let q = majority(self.votes.len());
        let open = self.votes.iter().filter(|v| v.is_none()).count();
        let granted = self.granted();
        if granted.max(self.doubted()) + open < q {
            return Verdict::Lost;
        }
        if granted < q {
            return Verdict::Open;
        }
        // T1: one same number from q nodes is the token; no further round trip.
        if let Some(token) = self
            .grants()
            .find(|t| self.grants().filter(|g| g == t).count() >= q)
        {
            return Verdict::Won(token);
        }
        Verdict::Confirm(self.grants().max().unwrap_or_default())
    }

    /// The votes so far, by node.
    #[must_use]
    pub fn votes(&self) -> &[Option<Vote>] {
        &self.votes
    }

    /// Grants that count (Q5).
    fn grants(&self) -> impl Iterator<Item = Token> + '_ {
        let believed = self.doubted() >= majority(self.votes.len());
        self.told()
            .filter(move |token| believed || *token < DOUBTED)
    }

    fn told(&self) -> impl Iterator<Item = Token> + '_ {
        self.votes.iter().filter_map(|v| match v {
            Some(Vote::Granted(token)) => Some(*token),
            _ => None,
        })
    }

    fn doubted(&self) -> usize {
        self.told().filter(|token| *token >= DOUBTED).count()
    }
}

/// One node's answer to a confirm, an extension or a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ballot {
    /// Not answered yet.
    Open,
    /// Counts.
    Yes,
    /// The node granted this attempt a larger number (confirm only).
    Larger(Token),
    /// Written anew: counts from the next round on (extend only).
    Healed,
    /// Not ours here.
    No,
    /// No answer that says anything.
    Failed,
}

/// The state of a yes-or-no round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoundResult {
    /// Not decided yet.
    Open,
    /// q nodes said yes.
    Carried,
    /// A majority says that it is not ours.
    Denied,
    /// Neither can be reached any more.
    Failed,
}

/// Where a yes-or-no round stands.
#[must_use]
pub fn round_result(ballots: &[Ballot]) -> RoundResult {
    let q = majority(ballots.len());
    let count = |what: fn(&Ballot) -> bool| ballots.iter().filter(|b| what(b)).count();
    let yes = count(|b| *b == Ballot::Yes);
    let no = count(|b| *b == Ballot::No);
    let open = count(|b| *b == Ballot::Open);
    if yes >= q {
        RoundResult::Carried
    } else if no >= q {
        RoundResult::Denied
    } else if yes + open < q && no + open < q {
        RoundResult::Failed
    } else {
        RoundResult::Open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted(n: u64) -> Vote {
        Vote::Granted(Token(n))
    }
    fn refused() -> Vote {
        Vote::Refused(Box::default())
    }
    fn tally(n: usize, votes: &[(usize, Vote)]) -> Tally {
        let mut tally = Tally::new(n);
        for (node, vote) in votes {
            tally.count(*node, vote.clone());
        }
        tally
    }

    #[test]
    fn majority_is_of_the_configured_nodes() {
        assert_eq!([1, 2, 3, 4, 5].map(majority), [1, 2, 2, 3, 3]);
        let down = Vote::Failed(NodeError::Unreachable(String::new()));
        let t = tally(
            5,
            &[
                (0, granted(1)),
                (1, granted(1)),
                (2, down.clone()),
                (3, down),
            ],
        );
        assert_eq!(
            t.verdict(),
            Verdict::Open,
            "two of two answers are not three of five"
        );
    }

    #[test]
    fn answers_at_the_majority() {
        assert_eq!(
            tally(3, &[(0, granted(4)), (2, granted(4))]).verdict(),
            Verdict::Won(Token(4))
        );
        assert_eq!(
            tally(3, &[(0, refused()), (1, refused())]).verdict(),
            Verdict::Lost
        );
        assert_eq!(
            tally(3, &[(0, refused()), (1, granted(4))]).verdict(),
            Verdict::Open
        );
        assert_eq!(
            tally(1, &[(0, granted(1))]).verdict(),
            Verdict::Won(Token(1))
        );
    }

    #[test]
    fn a_number_far_above_the_others_is_no_grant() {
        let far = || granted(DOUBTED.0);
        let t = tally(3, &[(0, far()), (1, granted(6))]);
        assert_eq!((t.verdict(), t.granted()), (Verdict::Open, 1));
        let t = tally(3, &[(0, far()), (1, granted(6)), (2, granted(6))]);
        assert_eq!(t.verdict(), Verdict::Won(Token(6)));
        let t = tally(3, &[(0, far()), (1, refused()), (2, granted(6))]);
        assert_eq!(t.verdict(), Verdict::Lost);
        // What a majority tells is so.
        let t = tally(3, &[(0, far()), (1, refused())]);
        assert_eq!(t.verdict(), Verdict::Open);
        let t = tally(3, &[(0, far()), (1, granted(6)), (2, far())]);
        assert_eq!((t.verdict(), t.granted()), (Verdict::Won(DOUBTED), 3));
        assert_eq!(tally(1, &[(0, far())]).verdict(), Verdict::Won(DOUBTED));
    }

    #[test]
    fn differing_grants_need_a_confirm() {
        let t = tally(3, &[(0, granted(4)), (1, granted(6))]);
        assert_eq!(t.verdict(), Verdict::Confirm(Token(6)));
        let t = tally(
            5,
            &[
                (0, granted(4)),
                (1, granted(6)),
                (2, granted(4)),
                (3, granted(4)),
            ],
        );
        assert_eq!(
            t.verdict(),
            Verdict::Won(Token(4)),
            "q nodes returned one same number"
        );
    }

    #[test]
    fn a_tally_is_one_round() {
        let mut t = tally(3, &[(0, granted(4))]);
        t.count(0, granted(5));
        t.count(9, granted(4));
        assert_eq!((t.granted(), t.verdict()), (1, Verdict::Open));
    }

    #[test]
    fn a_healed_node_is_neither_for_nor_against() {
        use Ballot::*;
        assert_eq!(round_result(&[Yes, Yes, Failed]), RoundResult::Carried);
        assert_eq!(round_result(&[Yes, Healed, Healed]), RoundResult::Failed);
        assert_eq!(round_result(&[No, No, Open]), RoundResult::Denied);
        assert_eq!(round_result(&[Yes, No, Open]), RoundResult::Open);
        assert_eq!(
            round_result(&[Larger(Token(3)), Yes, Failed]),
            RoundResult::Failed
        );
    }
}
