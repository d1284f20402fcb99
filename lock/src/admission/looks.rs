//! What all nodes have shown in one round of looks.

use crate::{clock::Moment, node::Admission};

/// What one node has shown.
#[derive(Clone, Debug)]
pub(super) struct Look {
    pub(super) shown: Admission,
    /// Its wall clock.
    pub(super) node_ms: i64,
}

/// One round of looks: none of a node that does not answer.
pub(super) struct Looks {
    pub(super) nodes: Vec<Option<Look>>,
    pub(super) began: Moment,
    pub(super) ended: Moment,
}

// === impl Looks ===

impl Looks {
    pub(super) fn shown(&self) -> Vec<Option<Admission>> {
        let shown = |look: &Option<Look>| look.as_ref().map(|look| look.shown.clone());
        self.nodes.iter().map(shown).collect()
    }

    /// Whether nothing has changed between this round and a later one: all was true at the time between them.
    pub(super) fn are_like(&self, later: &Self) -> bool {
        let same = |(a, b): (&Option<Look>, &Option<Look>)| match (a, b) {
            (Some(Look { shown: a, .. }), Some(Look { shown: b, .. })) => {
                (
                    a.card(),
                    &a.incarnation,
                    a.admitted,
                    &a.config,
                    &a.nominated_for,
                ) == (
                    b.card(),
                    &b.incarnation,
                    b.admitted,
                    &b.config,
                    &b.nominated_for,
                )
            }
            (None, None) => true,
            _ => false,
        };
        self.nodes.iter().zip(&later.nodes).all(same)
    }
}
