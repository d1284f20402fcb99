//! Whose votes count together: what a round takes with it when it begins, so that all its votes are of one roster (I1).

use std::sync::Arc;

use crate::{
    node::{Admission, Answer, Eligibility, Reply, majority},
    settings::FleetConfig,
};

/// Under which marker each node votes, by one look at all of them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Members {
    /// All nodes were asked, or enough of them.
    pub(crate) known: bool,
    /// By node; nothing for one that has no vote, or is of another roster.
    pub(crate) markers: Vec<Option<Arc<str>>>,
    /// None is compared.
    pub(crate) all: bool,
    /// Nothing is asked for: the first vote would mark a node that another fleet has lost.
    pub(crate) barred: bool,
}

// === impl Members ===

impl Members {
    /// Where nothing is compared.
    pub(crate) fn all() -> Self {
        Self {
            known: true,
            all: true,
            ..Self::default()
        }
    }

    /// Without the guard, by what each node has shown last: a program one of whose nodes keeps locks for another fleet, or is about
    /// to, asks for none unless most are marked as its own. The others may be that fleet's, and have forgotten it; so it asks for
    /// none, either, while that fleet has time to say so of all of them (`waits`). So nothing is asked for before all were looked
    /// at: the first call would mark what is lost. What is silent then cannot say whose it is.
    pub(crate) fn unguarded(
        shown: &[Option<Admission>],
        fleet: &FleetConfig,
        all_asked: bool,
        waits: bool,
    ) -> Self {
        let own = shown.iter().flatten();
        let own = own.filter(|s| s.admitted && fleet.stranger(s).is_none());
        let most = own.count() >= majority(shown.len());
        let open = all_asked && !waits && others(shown, fleet).next().is_none();
        Self {
            known: most || all_asked,
            barred: !most && !open,
            ..Self::all()
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

/// The configurations of other fleets that keep these nodes, or are about to.
pub(crate) fn others<'a>(
    shown: &'a [Option<Admission>],
    fleet: &'a FleetConfig,
) -> impl Iterator<Item = &'a str> {
    let nodes = shown.iter().flatten();
    nodes.filter_map(|s| fleet.stranger(s).or_else(|| fleet.rival(s)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        node::{Expiry, NodeMs, RestartGuard},
        settings::Timing,
    };

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
            ..Members::default()
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

    #[test]
    fn g4_without_the_guard_the_lost_nodes_of_another_fleet_are_left_alone() {
        let timing = Timing::default();
        let ours = FleetConfig::unguarded(3, &timing, Expiry::Observed, false);
        let theirs = FleetConfig {
            guard: RestartGuard::Call,
            ..ours
        };
        let marked = |fleet: Option<&FleetConfig>| {
            Some(Admission {
                admitted: fleet.is_some(),
                config: fleet.map(ToString::to_string),
                ..Admission::default()
            })
        };
        let barred = |nodes: [Option<&FleetConfig>; 3]| {
            let shown: Vec<_> = nodes.into_iter().map(marked).collect();
            Members::unguarded(&shown, &ours, true, false).barred
        };
        assert!(!barred([None, None, None]));
        assert!(!barred([Some(&ours), None, None]));
        assert!(barred([Some(&theirs), None, None]));
        assert!(barred([Some(&theirs), Some(&ours), None]));
        // A fleet that is at work goes on.
        assert!(!barred([Some(&theirs), Some(&ours), Some(&ours)]));
        // It has lost all of them, and has nominated one so far.
        let new = Some(Admission::default());
        let nominated = Some(Admission {
            nominated_for: Some(theirs.to_string()),
            ..Admission::default()
        });
        let lost = [new.clone(), nominated, new.clone()];
        assert!(Members::unguarded(&lost, &ours, true, false).barred);
        // It has not come to that yet.
        let lost = [new.clone(), new.clone(), new];
        assert!(Members::unguarded(&lost, &ours, true, true).barred);
        assert!(!Members::unguarded(&lost, &ours, true, false).barred);
    }

    #[test]
    fn g4_without_the_guard_nothing_is_asked_for_before_all_nodes_were_looked_at() {
        let timing = Timing::default();
        let ours = FleetConfig::unguarded(3, &timing, Expiry::Observed, false);
        let new = Some(Admission::default());
        let own = Some(Admission {
            admitted: true,
            config: Some(ours.to_string()),
            ..Admission::default()
        });
        let members = |shown: &[Option<Admission>], all_asked| {
            let members = Members::unguarded(shown, &ours, all_asked, false);
            (members.known, members.barred)
        };
        assert_eq!(members(&[None, None, None], false), (false, true));
        assert_eq!(
            members(&[new.clone(), new.clone(), None], false),
            (false, true)
        );
        assert_eq!(members(&[own.clone(), None, None], false), (false, true));
        // A fleet that is at work waits for no node, and a new one not for long: a node that is down costs no locks.
        assert_eq!(members(&[own.clone(), own, None], false), (true, false));
        assert_eq!(members(&[new.clone(), new, None], true), (true, false));
    }
}
