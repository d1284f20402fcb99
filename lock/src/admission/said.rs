//! What is said of nodes that do not vote: its beginning once, its end once (G5).

use std::time::Duration;

use super::{candidate::Next, roster::Picture};
use crate::{node::Admission, quorum::cluster::Cluster, settings::FleetConfig};

/// What was said of one node's absence.
#[derive(Default)]
pub(super) struct Node {
    nonce: Option<String>,
    other: bool,
}

/// What was said of the fleet as a whole.
#[derive(Default)]
pub(super) struct Said {
    waits_for: Vec<String>,
    renamed: bool,
}

// === impl Node ===

impl Node {
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
            if !self.other {
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
                    1 => "; until then nobody gets a lock",
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

// === impl Said ===

impl Said {
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
        let silent = |(link, shown): (&crate::quorum::link::Link, &Option<Admission>)| {
            shown.is_none().then(|| link.name().to_owned())
        };
        let silent = cluster.links.iter().zip(shown).filter_map(silent);
        let waits_for = match picture.waits_for_all() {
            true => silent.collect(),
            false => Vec::new(),
        };
        if waits_for != self.waits_for && !waits_for.is_empty() {
            tracing::warn!(
                waits_for = waits_for.join(", "),
                "no majority of nodes knows of this fleet: it is founded when all of its nodes answer"
            );
        }
        self.waits_for = waits_for;
    }
}
