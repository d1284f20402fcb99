//! Whose votes count together: what a round takes with it when it begins, so that all its votes are of one roster (I1).

use std::sync::Arc;

use crate::node::{Answer, Eligibility, Reply};

/// Under which marker each node votes, by one look at all of them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Members {
    /// All nodes were asked, or enough of them.
    pub(crate) known: bool,
    /// By node; nothing for one that has no vote, or is of another roster.
    pub(crate) markers: Vec<Option<Arc<str>>>,
    /// None is compared.
    pub(crate) all: bool,
}

// === impl Members ===

impl Members {
    /// Where nothing is compared.
    pub(crate) fn all() -> Self {
        Self {
            known: true,
            all: true,
            markers: Vec::new(),
        }
    }

    /// Whether what this node has answered counts as a vote.
    fn count(&self, node: usize, reply: &Reply) -> bool {
        match &reply.eligibility {
            Eligibility::Admitted(marker) if !self.all => {
                let known = self.markers.get(node).and_then(Option::as_ref);
                known == Some(marker)
            }
            // What has no vote says so itself.
            _ => true,
        }
    }

    /// The answers to what votes; none of them counts where the node is no member.
    pub(crate) fn votes_of(&self, node: usize, reply: Reply) -> Vec<Answer> {
        match self.count(node, &reply) {
            true => reply.answers,
            false => reply.answers.iter().map(|_| Answer::Unadmitted).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeMs;

    fn reply(marker: &str) -> Reply {
        Reply {
            at: NodeMs(0),
            wall_ms: 0,
            eligibility: Eligibility::Admitted(marker.into()),
            answers: vec![Answer::Done],
        }
    }

    #[test]
    fn i1_votes_count_under_the_marker_that_was_seen() {
        let members = Members {
            known: true,
            markers: vec![Some("a1".into()), None],
            all: false,
        };
        assert_eq!(members.votes_of(0, reply("a1")), [Answer::Done]);
        assert_eq!(members.votes_of(0, reply("a2")), [Answer::Unadmitted]);
        assert_eq!(members.votes_of(1, reply("b1")), [Answer::Unadmitted]);
        assert_eq!(members.votes_of(2, reply("c1")), [Answer::Unadmitted]);
        assert_eq!(Members::all().votes_of(1, reply("b1")), [Answer::Done]);
        let unguarded = Reply {
            eligibility: Eligibility::Unguarded,
            ..reply("")
        };
        assert_eq!(members.votes_of(1, unguarded), [Answer::Done]);
    }
}
