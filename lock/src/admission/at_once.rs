//! Nodes that are admitted by a person, or by a test: without a watch, in one go.

use std::sync::Arc;

use super::roster::{List, Picture, Step};
use crate::{
    chance::Chance,
    node::{Admission, Answer, Call, Node, NodeError, Op, Token},
    settings::FleetConfig,
};

/// Why nodes were not admitted: of which one, and why.
#[doc(hidden)] // for the command `doctor` and tests
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAdmitted {
    /// The node's name.
    pub node: String,
    /// Why.
    pub why: String,
}

/// Founds a fleet of nodes that never kept a lock, and admits them without a watch.
///
/// # Errors
/// [`NotAdmitted`], where a node does not answer, or another program has begun to do the same.
#[doc(hidden)] // for the command `doctor` and tests
pub async fn admit_at_once(
    nodes: &[Arc<dyn Node>],
    fleet: &FleetConfig,
    chance: &Chance,
) -> Result<(), NotAdmitted> {
    let nonces: Vec<String> = nodes.iter().map(|_| chance.nonce()).collect();
    let mut looks = Vec::new();
    for (node, nonce) in nodes.iter().zip(&nonces) {
        let (nonce, over) = (nonce.clone(), None);
        let shown = ask(node, vec![Op::Nominate { nonce, over }]).await?;
        looks.push(Some(shown));
    }
    let list = List::of(nodes.iter().map(|node| node.name()));
    let picture = Picture::of(&looks, &list, fleet);
    let mut rosters = Vec::new();
    for (n, (node, nonce)) in nodes.iter().zip(&nonces).enumerate() {
        match picture.step(n) {
            Step::Enrol(was, roster) if was.nonce == *nonce => {
                rosters.push(roster.clone());
                done(node, Op::Enrol { was, roster }).await?;
            }
            _ => return Err(not(node, "another program has begun to watch it")),
        }
    }
    for ((node, nonce), roster) in nodes.iter().zip(nonces).zip(rosters) {
        let admit = Op::Admit {
            nonce,
            config: fleet.to_string(),
            roster,
            counter: Token(0),
            memory_loss: None,
        };
        done(node, admit).await?;
    }
    Ok(())
}

fn not(node: &Arc<dyn Node>, why: &str) -> NotAdmitted {
    NotAdmitted {
        node: node.name().to_owned(),
        why: why.to_owned(),
    }
}

async fn answer(node: &Arc<dyn Node>, ops: Vec<Op>) -> Result<Option<Answer>, NotAdmitted> {
    let not_after = None;
    let reply: Result<_, NodeError> = node.call(Call { not_after, ops }).await;
    let mut reply = reply.map_err(|trouble| not(node, &trouble.to_string()))?;
    Ok(reply.answers.pop())
}

async fn ask(node: &Arc<dyn Node>, ops: Vec<Op>) -> Result<Admission, NotAdmitted> {
    match answer(node, ops).await? {
        Some(Answer::Admission(shown)) => Ok(shown),
        _ => Err(not(node, "it gives no sensible answer")),
    }
}

async fn done(node: &Arc<dyn Node>, op: Op) -> Result<(), NotAdmitted> {
    match answer(node, vec![op]).await? {
        Some(Answer::Done) => Ok(()),
        _ => Err(not(node, "it has lost its memory just now")),
    }
}

/// What the rosters say of one node of a fleet.
#[doc(hidden)] // for the command `doctor`
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Membership {
    /// Nothing that is not to be seen at the node itself.
    Own,
    /// Its fleet was given other addresses for the same nodes.
    Elsewhere,
    /// It is configured alike, and none of this fleet's.
    Other {
        /// In what its fleet is another one.
        differs: String,
    },
    /// There is no fleet before these nodes answer.
    Waits {
        /// Their names.
        waits_for: Vec<String>,
    },
}

/// What the rosters say of each node, by all that is shown.
#[doc(hidden)] // for the command `doctor`
#[must_use]
pub fn memberships(
    names: &[&str],
    shown: &[Option<Admission>],
    fleet: &FleetConfig,
) -> Vec<Membership> {
    if !fleet.is_guarded() {
        return vec![Membership::Own; names.len()];
    }
    let list = List::of(names.iter().copied());
    let picture = Picture::of(shown, &list, fleet);
    let waits_for = picture.waits_for();
    let membership = |node| match picture.differs(node) {
        Some(differs) => Membership::Other { differs },
        None if picture.is_elsewhere(node) || picture.is_renamed() => Membership::Elsewhere,
        None if waits_for.is_empty() || waits_for.contains(&node) => Membership::Own,
        None => Membership::Waits {
            waits_for: waits_for.iter().map(|n| names[*n].to_owned()).collect(),
        },
    };
    (0..names.len()).map(membership).collect()
}
