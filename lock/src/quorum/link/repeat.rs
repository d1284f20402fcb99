//! Refusals of single operations, and what the answers to operations say that were sent a second time.

use crate::node::{Answer, NodeError, Op, Refusal, Reply};

/// Whether the node has answered and refused something that was asked, so that it may well do the rest. A script that it
/// has forgotten is no such thing: behind younger calls it is refused to keep the order.
pub(super) fn is_about_an_operation(trouble: &NodeError) -> bool {
    match trouble {
        NodeError::Refused { refusal, .. } => {
            !refusal.refuses_everything() && *refusal != Refusal::NoScript
        }
        trouble => matches!(trouble, NodeError::Protocol(_)),
    }
}

/// Whether a key was refused that is not ours. That is no trouble of the node: other keys are not concerned.
pub(crate) fn is_about_a_key(trouble: &NodeError) -> bool {
    matches!(
        trouble,
        NodeError::Refused {
            refusal: Refusal::NoKey,
            ..
        }
    )
}

/// What the answers to operations say that were sent a second time. A round of an extension that had come through is
/// refused as an old one, which says nothing against the lease; whether it was kept or written anew is not known any
/// more, so it is no vote for it either: [`Answer::Done`].
pub(super) fn of_a_repeat(ops: &[Op], mut reply: Reply) -> Reply {
    for (op, answer) in ops.iter().zip(&mut reply.answers) {
        if let (Op::Extend { owner, seq, .. }, Answer::Refused(shown)) = (op, &*answer)
            && shown.owner.as_ref() == Some(owner)
            && shown.seq >= *seq
            && shown.holder.as_ref().is_none_or(|holder| holder == owner)
            && !shown.released
            && !shown.broken
        {
            *answer = Answer::Done;
        }
    }
    reply
}
