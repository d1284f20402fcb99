//! What is said of nodes that do not vote: its beginning once, its end once (G5).

use std::time::Duration;

use super::{candidate::Next, roster::Picture};
use crate::{
    clock::Moment,
    node::Admission,
    quorum::{cluster::Cluster, link::Link},
    settings::FleetConfig,
};

/// For so long changes of the roster are counted.
const CHANGES: Duration = Duration::from_secs(60);

/// What was said of one node's absence.
#[derive(Default)]
pub(super) struct NodeLogState {
    nonce: Option<String>,
    other: bool,
}

/// What was said of the fleet as a whole.
#[derive(Default)]
pub(super) struct FleetLogState {
    waits_for: Vec<String>,
    renamed: bool,
    displaced: Vec<usize>,
    changes: Changes,
}

/// How often the roster is changed.
#[derive(Default)]
struct Changes {
    /// Its generation at that time.
    since: Option<(Moment, u64)>,
    said: bool,
}

// === impl NodeLogState ===

impl NodeLogState {
    pub(super) fn tell(
        &mut self,
        (node, nodes, fleet): (&str, usize, &FleetConfig),
        shown: &Admission,
        (next, other): (&Next, Option<&str>),
        left: Option<Duration>,
    ) {
        let theirs = match next {
            Next::Other(theirs, _) => fleet.differs_from(theirs),
            _ => other.map(str::to_owned),
        };
        if let Some(differs) = theirs {
            let elsewhere = matches!(next, Next::Other(..))
                && fleet.stranger(shown).is_none()
                && fleet.rival(shown).is_none();
            if !self.other && elsewhere {
                self.other = true;
                tracing::warn!(
                    node,
                    differs,
                    "node is left alone: it keeps no locks, and may be one that a fleet has lost which is configured differently and \
                     has others of these nodes"
                );
            } else if !self.other {
                self.other = true;
                tracing::error!(
                    node,
                    differs,
                    "node does not vote for us: it keeps locks for a fleet that is configured differently; \
                     configure all alike, or stop all and see `doctor --reconfigure`"
                );
            }
            return;
        }
        match next {
            Next::Rest if self.nonce.is_some() || self.other => {
                *self = Self::default();
                tracing::info!(node, "node votes again");
            }
            Next::Look(_) if self.nonce != shown.nonce && left.is_some() => {
                self.nonce.clone_from(&shown.nonce);
                let why = if shown.admitted {
                    "its vote was taken away, to configure the fleet anew"
                } else if shown.inc.is_empty() {
                    "it is new or has lost its memory"
                } else {
                    "it was started again, or its data was replaced"
                };
                let alone = match nodes {
                    1 => "; until then no lock is granted",
                    _ => "",
                };
                let left_ms = left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
                tracing::warn!(
                    node,
                    why,
                    left_ms,
                    "node does not vote before every lease that it may have forgotten is over{alone}"
                );
            }
            _ => {}
        }
    }
}

// === impl Changes ===

impl Changes {
    /// Whether it is to be said that two programs undo each other's changes. Each loss of memory is a change; many more of them
    /// than there are nodes, within a minute, are no losses.
    fn are_contested(&mut self, generation: u64, nodes: usize, now: Moment) -> bool {
        let since = self.since.filter(|(since, _)| now < *since + CHANGES);
        let since = since.unwrap_or((now, generation));
        self.since = Some(since);
        let most = 2 * u64::try_from(nodes).unwrap_or(u64::MAX) + 2;
        let contested = generation.saturating_sub(since.1) > most;
        let was_said = std::mem::replace(&mut self.said, contested);
        contested && !was_said
    }
}

// === impl FleetLogState ===

impl FleetLogState {
    pub(super) fn tell(
        &mut self,
        picture: &Picture,
        cluster: &Cluster,
        shown: &[Option<Admission>],
    ) {
        let renamed = picture.is_renamed();
        if renamed && !self.renamed {
            tracing::warn!(
                "the nodes of this fleet were given with other addresses before: they vote, but one that loses its memory \
                 does not come back; give the addresses of before, or stop all and see `doctor --reconfigure`"
            );
        }
        self.renamed = renamed;
        let displaced = picture.displaced();
        for node in displaced.iter().filter(|n| !self.displaced.contains(n)) {
            tracing::warn!(
                node = cluster.links.get(*node).map(Link::name),
                "the fleet has another node in the place of this one, which has its memory: its address leads to another server \
                 for some program, or it has come back with an older memory; it is taken in again like a new one"
            );
        }
        self.displaced = displaced;
        let (nodes, now) = (cluster.links.len(), cluster.clock.now());
        let generation = picture.generation();
        if generation.is_some_and(|of| self.changes.are_contested(of, nodes, now)) {
            tracing::error!(
                "the nodes of this fleet change again and again: either its servers lose their memory as often, or an address leads \
                 two programs to different servers, and each undoes what the other one writes; see that each address leads to one \
                 server, from every machine"
            );
        }
        let waits_for = picture.waits_for().into_iter().filter_map(|node| {
            let compares = |shown: &Admission| !shown.incarnation.is_empty();
            let counts = shown.get(node)?.as_ref().is_none_or(compares);
            Some(cluster.links.get(node)?.name().to_owned()).filter(|_| counts)
        });
        let waits_for: Vec<String> = waits_for.collect();
        if waits_for != self.waits_for && !waits_for.is_empty() {
            tracing::warn!(
                waits_for = waits_for.join(", "),
                "this fleet is new, or most of its nodes have lost their memory: it is founded when all of its nodes answer, and \
                 none is of another fleet; start what does not answer, or an empty server at its address"
            );
        }
        for link in cluster.links.iter() {
            link.set_waits_for(waits_for.clone());
        }
        self.waits_for = waits_for;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_undo_each_others_changes_are_told_of_once() {
        let at = |seconds| Moment::ZERO + Duration::from_secs(seconds);
        let mut changes = Changes::default();
        // Every node loses its memory once, and once more.
        let losses = (1..=7).map(|n| changes.are_contested(n, 3, at(n)));
        assert!(losses.into_iter().all(|said| !said));
        let said: Vec<bool> = (8..=20)
            .map(|n| changes.are_contested(n, 3, at(10)))
            .collect();
        assert_eq!(said.iter().filter(|said| **said).count(), 1, "{said:?}");
        let later = (21..=28).map(|n| changes.are_contested(n, 3, at(100 * n)));
        assert!(later.into_iter().all(|said| !said), "one at a time");
    }
}
