//! What waits to be sent to one node: which of it goes out together, and how much at a time.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use tokio::sync::oneshot;

use super::answer_queue::AnswerSlot;
use crate::{
    clock::Moment,
    hash::fnv1a,
    node::{NodeError, Op, Reply, all_failed},
};

pub(crate) use crate::node::MOST_OPS;

/// Operations in one call of several senders that are near their node: it works on one call while the answers to another are
/// given to their senders, and neither waits for the other.
pub(super) const TOGETHER: usize = 64;
/// Operations under way to one node, at most and at least: what waits behind too many on the server runs out of its time
/// there. How many that are depends on the server, see [`next_window`].
pub(super) const MOST_UNDER_WAY: usize = 2 * MOST_OPS;
pub(super) const LEAST_UNDER_WAY: usize = 16;
/// How long a request may wait to be sent, in node timeouts. With one more for the answer that is a quarter of the
/// shortest ttl: an attempt that confirms its token still leaves enough of a lease.
pub(crate) const PATIENCE: u32 = 4;
/// Operations that wait to be sent: ten thousand leases that are released at once, and as many that are wanted.
const MOST_QUEUED: usize = 20_000;

/// What waits to be sent.
#[derive(Default)]
pub(super) struct Queue {
    extensions: VecDeque<Queued>,
    others: VecDeque<Queued>,
    ops: usize,
}

pub(super) struct Queued {
    /// Until it is sent.
    pub(super) ops: Vec<Op>,
    /// How many there are.
    pub(super) count: usize,
    /// Not sent from then on.
    pub(super) give_up: Moment,
    /// N2: what it acquires or extends may not be done from then on.
    pub(super) ends: Option<Moment>,
    reply: Return,
}

/// Where an answer goes.
pub(super) enum Return {
    One(oneshot::Sender<Result<Reply, NodeError>>),
    /// Its sender asks other nodes as well.
    At(AnswerSlot),
}

// === impl Return ===

impl Return {
    /// Whether its sender was woken. One that has given up is no longer listening.
    fn send(self, result: Result<Reply, NodeError>) -> bool {
        match self {
            Self::One(reply) => reply.send(result).is_ok(),
            Self::At(slot) => slot.answer(result),
        }
    }

    /// The answer comes in another way.
    pub(super) fn dispense(self) {
        if let Self::At(slot) = self {
            slot.dispense();
        }
    }
}

impl From<oneshot::Sender<Result<Reply, NodeError>>> for Return {
    fn from(reply: oneshot::Sender<Result<Reply, NodeError>>) -> Self {
        Self::One(reply)
    }
}

// === impl Queue ===

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.extensions.is_empty() && self.others.is_empty()
    }

    /// Operations that wait.
    pub(super) fn len(&self) -> usize {
        self.ops
    }

    /// Takes a place at the end; gives back where the answer goes when there was none.
    pub(super) fn push(
        &mut self,
        ops: Vec<Op>,
        (now, give_up): (Moment, Moment),
        reply: impl Into<Return>,
    ) -> Result<(), Return> {
        // With anything else they would not fit into a call that a node takes of extensions alone.
        let extends = !ops.is_empty() && ops.iter().all(|op| matches!(op, Op::Extend { .. }));
        // No call would ever have room for it, and what waits behind it would wait for good.
        if ops.len() > MOST_OPS && !extends {
            return Err(reply.into());
        }
        // What is held is extended whatever else is wanted.
        if self.ops + ops.len() > MOST_QUEUED && !extends {
            return Err(reply.into());
        }
        self.ops += ops.len();
        let lane = if extends {
            &mut self.extensions
        } else {
            &mut self.others
        };
        lane.push_back(Queued {
            ends: not_later_than(now, shortest_ttl(&ops)),
            count: ops.len(),
            ops,
            give_up,
            reply: reply.into(),
        });
        Ok(())
    }

    /// What goes out in one call of at most `room` operations, or extensions; of several senders, `together` at most.
    pub(super) fn next_batch(
        &mut self,
        (room, extensions): (usize, usize),
        together: usize,
        now: Moment,
    ) -> Option<Vec<Queued>> {
        let mut batch: Vec<Queued> = Vec::new();
        let (mut ops, mut released) = (0, BTreeSet::new());
        for (held, lane) in [(true, &mut self.extensions), (false, &mut self.others)] {
            let most = room.min(if held { extensions } else { MOST_OPS });
            while let Some(next) = lane.front() {
                if now >= next.give_up {
                    if let Some(late) = lane.pop_front() {
                        self.ops -= late.ops.len();
                        // Never sent. A sender that has given up is no longer listening.
                        let _ = late.reply.send(Err(NodeError::Overload));
                    }
                    continue;
                }
                let most = if batch.is_empty() {
                    most
                } else {
                    most.min(together)
                };
                if ops + next.ops.len() > most {
                    if held {
                        // What is wanted would take every place that becomes free before what is held fits in.
                        self.ops -= ops;
                        return (!batch.is_empty()).then_some(batch);
                    }
                    break;
                }
                if !released.is_empty() && next.ops.iter().any(|op| is_wanted_of(op, &released)) {
                    break;
                }
                ops += next.ops.len();
                released.extend(next.ops.iter().filter_map(released_key));
                batch.extend(lane.pop_front());
            }
            if held && !batch.is_empty() {
                break;
            }
        }
        self.ops -= ops;
        if !released.is_empty() && batch.iter().all(Queued::takes_or_leaves) {
            // What follows its like is told in fewer words; these are of different locks, so that any order of them will do.
            batch.sort_by_key(Queued::leaves);
        }
        (!batch.is_empty()).then_some(batch)
    }

    /// Whether something waits that must not act too late.
    pub(super) fn is_bound(&self) -> bool {
        let mut all = self.extensions.iter().chain(&self.others);
        all.any(|queued| queued.ends.is_some())
    }

    /// Nothing leaves of which it cannot be said how late it may act.
    pub(super) fn refuse_bound(&mut self, trouble: &NodeError) {
        for lane in [&mut self.extensions, &mut self.others] {
            for queued in std::mem::take(lane) {
                if queued.ends.is_none() {
                    lane.push_back(queued);
                } else {
                    self.ops -= queued.ops.len();
                    let _ = queued.reply.send(Err(trouble.clone()));
                }
            }
        }
    }

    pub(super) fn refuse_all(&mut self, trouble: &NodeError) {
        let all = self.extensions.drain(..).chain(self.others.drain(..));
        for queued in all {
            let _ = queued.reply.send(Err(trouble.clone()));
        }
        self.ops = 0;
    }
}

// === impl Queued ===

impl Queued {
    /// Nothing but attempts and releases.
    fn takes_or_leaves(&self) -> bool {
        let known = |op: &Op| matches!(op, Op::Acquire { .. } | Op::Release { .. });
        self.ops.iter().all(known)
    }

    fn leaves(&self) -> bool {
        let releases = |op: &Op| matches!(op, Op::Release { .. });
        self.ops.iter().any(releases)
    }
}

/// What is remembered of a lock that is released in a call: two that look alike only make two calls of one.
fn released_key(op: &Op) -> Option<u64> {
    match op {
        Op::Release { key, .. } => Some(fnv1a(key.bytes())),
        _ => None,
    }
}

fn is_wanted_of(op: &Op, released: &BTreeSet<u64>) -> bool {
    match op {
        Op::Acquire { key, .. } => released.contains(&fnv1a(key.bytes())),
        _ => false,
    }
}

/// The shortest ttl of what these operations acquire or extend.
pub(super) fn shortest_ttl(ops: &[Op]) -> Option<Duration> {
    let ttl = |op: &Op| match op {
        Op::Acquire { ttl, .. } | Op::Extend { ttl, .. } => Some(*ttl),
        _ => None,
    };
    ops.iter().filter_map(ttl).min()
}

/// N2: what is asked now for so long is not done from then on.
pub(super) fn not_later_than(now: Moment, ttl: Option<Duration>) -> Option<Moment> {
    ttl.map(|ttl| now + ttl)
}

/// Gives each sender its answers. How many of them go on with that.
pub(super) fn share_out(batch: Vec<Queued>, result: Result<Reply, NodeError>) -> usize {
    let mut woken = 0;
    match result {
        Ok(Reply {
            at,
            wall_ms,
            eligibility,
            answers,
        }) => {
            let alone = batch.len() == 1;
            let mut answers = answers.into_iter();
            for queued in batch {
                let length = if alone { answers.len() } else { queued.count };
                let woke = queued.reply.send(refused_in_all(Ok(Reply {
                    at,
                    wall_ms,
                    eligibility: eligibility.clone(),
                    answers: answers.by_ref().take(length).collect(),
                })));
                woken += usize::from(woke);
            }
        }
        Err(trouble) => {
            for queued in batch {
                woken += usize::from(queued.reply.send(Err(trouble.clone())));
            }
        }
    }
    woken
}

/// Of a request whose every operation was refused for itself nothing was done.
pub(super) fn refused_in_all(result: Result<Reply, NodeError>) -> Result<Reply, NodeError> {
    match result {
        Ok(reply) => match all_failed(&reply.answers) {
            Some(trouble) => Err(trouble.clone()),
            None => Ok(reply),
        },
        failed => failed,
    }
}

/// How many operations may be under way after a call that took so much longer than the way there and back: half as many
/// when much of the node's time was spent waiting for others of ours, a few more when little was.
pub(super) fn next_window(window: usize, waited: Duration, timeout: Duration) -> usize {
    if waited > timeout / 4 {
        (window / 2).max(LEAST_UNDER_WAY)
    } else if waited < timeout / 8 {
        (window + LEAST_UNDER_WAY).min(MOST_UNDER_WAY)
    } else {
        window
    }
}
