//! Who leads a job, by the record of its lock. Pure: what the nodes show in, what it means out.
//!
//! # Invariants
//! - L1 A replica leads where a majority of the configured nodes shows its value; so no other does.
//!   (whoever_a_majority_shows_holds_the_lock)
//! - L2 That no replica leads is said only where the silent nodes could not make a majority of any value.
//!   (what_too_few_nodes_answer_is_not_known)
//! - L3 A record whose key has gone names its owner only while that one's own document says that it leads: its time is
//!   over, or a node's clock has jumped.           (an_orphaned_record_is_believed_with_its_owners_word)

use std::collections::BTreeMap;

use super::locks::tally;
use crate::node::{Expiry, NodeError, Token, View, tag::tag_of};

/// What a job's lock says.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) enum Reading {
    /// A majority shows this holder.
    Held(Holding),
    /// No majority can show any owner.
    Nobody {
        /// Some nodes that show no owner have forgotten what they granted: the leader that was believed before may still lead.
        forgotten: bool,
    },
    /// Too few nodes answer to say.
    #[default]
    Unknown,
}

/// A lock that is held.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Holding {
    /// The holder's value.
    pub(crate) owner: String,
    /// Its token is this, or larger.
    pub(crate) token: Token,
    /// Its token is this, or smaller.
    pub(crate) at_most: Token,
    /// What remains of the lease on a majority.
    pub(crate) remaining_ms: Option<u64>,
    /// Nodes beyond the majority that show it.
    pub(crate) margin: i64,
    /// It stands in records alone.
    pub(crate) orphaned: bool,
    /// The value is none of ours: another Redlock client's.
    pub(crate) foreign: bool,
}

impl Reading {
    /// What the holder's value says of its process.
    pub(crate) fn tag(&self) -> Option<&str> {
        match self {
            Self::Held(held) => tag_of(&held.owner),
            Self::Nobody { .. } | Self::Unknown => None,
        }
    }

    /// What `nodes`, in the order of the configuration, show of one lock. Those of them with a `memory_loss` have lost their
    /// memory, or are new.
    pub(crate) fn of(
        nodes: &[Result<View, NodeError>],
        expiry: Expiry,
        memory_loss: &[bool],
    ) -> Self {
        let needed = nodes.len() / 2 + 1;
        let silent = nodes.iter().filter(|node| node.is_err()).count();
        let views = || nodes.iter().flatten();
        let over = |owner: &str| {
            let mut of_owner = views().filter(|v| v.owner.as_deref() == Some(owner));
            expiry == Expiry::Observed && of_owner.any(|v| v.released)
        };
        let mut shown: BTreeMap<&str, Vec<&View>> = BTreeMap::new();
        for view in views() {
            // What was released anywhere is over everywhere.
            if let Some(owner) = view.holder_by(expiry).filter(|owner| !over(owner)) {
                shown.entry(owner).or_default().push(view);
            }
        }
        let most = shown.iter().max_by_key(|(owner, by)| (by.len(), **owner));
        let count = most.map_or(0, |(_, by)| by.len());
        if let Some((owner, by)) = most.filter(|_| count >= needed) {
            return Self::Held(Holding::of(owner, by, needed));
        }
        if count + silent >= needed {
            return Self::Unknown;
        }
        let forgot = memory_loss
            .iter()
            .zip(nodes)
            .filter(|(b, n)| **b && n.is_ok());
        Self::Nobody {
            forgotten: count + silent + forgot.count() >= needed,
        }
    }
}

impl Holding {
    /// `by` are the views that show the owner, `needed` of them at least.
    fn of(owner: &str, by: &[&View], needed: usize) -> Self {
        let mut tokens: Vec<Token> = by.iter().map(|view| view.token).collect();
        // A majority has confirmed the token. A node that granted late may show a smaller one, and one that has granted to
        // another candidate since, in vain, a larger one.
        tokens.sort_unstable_by_key(|token| std::cmp::Reverse(*token));
        let keys: Vec<&&View> = by.iter().filter(|v| v.holder.is_some()).collect();
        let lives = keys.iter().filter_map(|view| view.remaining_ms);
        Self {
            owner: owner.to_owned(),
            token: tokens.get(needed - 1).copied().unwrap_or_default(),
            at_most: tokens.first().copied().unwrap_or_default(),
            remaining_ms: tally(lives, needed),
            margin: signed(keys.len()) - signed(needed),
            orphaned: keys.len() < needed,
            foreign: by.iter().filter(|view| view.foreign).count() >= needed,
        }
    }
}

fn signed(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shows(owner: &str, token: u64) -> Result<View, NodeError> {
        Ok(View {
            holder: Some(owner.into()),
            owner: Some(owner.into()),
            remaining_ms: Some(token * 100),
            token: Token(token),
            named: true,
            ..View::default()
        })
    }
    fn record(owner: &str, released: bool) -> Result<View, NodeError> {
        shows(owner, 5).map(|view| View {
            holder: None,
            remaining_ms: None,
            released,
            ..view
        })
    }
    fn free() -> Result<View, NodeError> {
        Ok(View::default())
    }
    fn down() -> Result<View, NodeError> {
        Err(NodeError::Unreachable("test".into()))
    }
    fn read(nodes: [Result<View, NodeError>; 3]) -> Reading {
        Reading::of(&nodes, Expiry::Observed, &[false; 3])
    }
    const NOBODY: Reading = Reading::Nobody { forgotten: false };

    #[test]
    fn whoever_a_majority_shows_holds_the_lock() {
        let Reading::Held(held) = read([shows("b", 6), shows("b", 6), shows("a", 9)]) else {
            panic!("held");
        };
        assert_eq!(
            (held.owner.as_str(), held.token, held.margin),
            ("b", Token(6), 0)
        );
        assert_eq!(held.remaining_ms, Some(600));
        // One node granted late, another one has granted in vain since.
        for (third, at_most) in [(3, 6), (8, 8)] {
            let Reading::Held(held) = read([shows("b", 6), shows("b", 6), shows("b", third)])
            else {
                panic!("held");
            };
            assert_eq!((held.token, held.at_most), (Token(6), Token(at_most)));
        }
        assert!(matches!(
            read([shows("b", 6), down(), shows("b", 6)]),
            Reading::Held(_)
        ));
    }

    #[test]
    fn what_too_few_nodes_answer_is_not_known() {
        assert_eq!(read([down(), down(), shows("a", 5)]), Reading::Unknown);
        assert_eq!(read([down(), free(), shows("a", 5)]), Reading::Unknown);
        assert_eq!(read([down(), down(), down()]), Reading::Unknown);
        assert_eq!(read([down(), down(), free()]), Reading::Unknown);
        assert_eq!(read([down(), free(), free()]), NOBODY);
        assert_eq!(read([free(), free(), shows("a", 5)]), NOBODY);
        assert_eq!(read([shows("a", 1), shows("b", 2), shows("c", 3)]), NOBODY);
        let memory_loss = Reading::of(
            &[shows("a", 5), free(), free()],
            Expiry::Observed,
            &[false, true, true],
        );
        assert_eq!(memory_loss, Reading::Nobody { forgotten: true });
    }

    #[test]
    fn a_released_lock_is_nobodys() {
        assert_eq!(
            read([record("a", false), record("a", true), record("a", false)]),
            NOBODY
        );
        let Reading::Held(held) = read([record("a", false), record("a", false), free()]) else {
            panic!("nobody has seen its end");
        };
        assert!(held.orphaned);
        let foreign = || {
            shows("theirs", 1).map(|view| View {
                foreign: true,
                ..view
            })
        };
        let Reading::Held(held) = read([foreign(), foreign(), free()]) else {
            panic!("held");
        };
        assert!(held.foreign && !held.orphaned);
        let by_keys = [record("a", false), record("a", false), free()];
        assert_eq!(Reading::of(&by_keys, Expiry::Server, &[]), NOBODY);
    }
}
