//! What is known of one node, whichever of our connections to it has told: its clocks, its vote, and whether it answers.
//!
//! One breaker and one estimate for all connections: what the keeper finds down, no caller asks, and the reverse.
//!
//! A node on Redis has a breaker below this one, in each of its connections. They judge different things. This one says for every
//! kind of store whether a *node* is worth asking, from answers to calls, and its probe is such a call. That one says whether a
//! *connection* can carry a call, and its task makes the next: that takes longer than a call may (TLS, a look at the server, its
//! scripts), must be paced by server lest a fleet storms it, and must be done for each connection, also for the second of a node
//! that is up. Neither can do the work of the other, and they do not pace each other: a probe that meets a broken connection is
//! answered at once, without a connection of its own.
//!
//! A node that timed out, refused the keeper's connection or refuses everything is *down*: requests fail at once, while a
//! probe asks in the background whether it is back (R2). A connection of callers that is not there, or on which nothing is
//! answered because their runtime stands still, is no reason to believe that the node is not: the probe asks over the
//! keeper's.   (a_connection_of_callers_that_is_lost_is_no_lost_node)
//!
//! A node that refuses access (a password that was changed, a right that was taken) or has no room for more is not down: another
//! user's call, a look or a release may well be answered. It is told in the log when that begins, with what is to be done, and not
//! again with each call.   (a_node_that_refuses_access_is_told_of_once, a_full_node_is_told_of_once)

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::SignedDuration;
use tokio::sync::Notify;

use super::{
    estimate::{Estimate, FROZEN},
    link::repeat::is_about_a_key,
    votes::Votes,
    wall::FleetClock,
};
use crate::{
    clock::{Clock, Moment},
    event::{Event, Events},
    latest,
    node::{Eligibility, NodeError, NodeMs, Refusal, Reply, guard::closed_since},
    settings::FleetConfig,
};

/// What was not refused for so long is told anew when it is.
const QUIET: Duration = Duration::from_secs(600);

/// What is known of one node.
pub(crate) struct NodeHealth {
    name: String,
    clock: Clock,
    events: Events,
    /// Of all nodes of the process.
    votes: Arc<Votes>,
    /// The node is to be asked whether it answers.
    pub(super) suspected: Notify,
    down: latest::Sender<bool>,
    /// Whether it votes, by its latest reply.
    eligibility: latest::Sender<Eligibility>,
    /// It has voted since that was asked for.
    voted: AtomicBool,
    learned: Mutex<Learned>,
    /// It was said that it is damaged.
    doubted: AtomicBool,
    /// What all programs must have in common, where nodes compare it.
    fleet: OnceLock<FleetConfig>,
    /// The fleet's wall clock, and which of its nodes this is.
    wall: (FleetClock, usize),
}

#[derive(Default)]
struct Learned {
    trouble: Option<NodeError>,
    /// When it has last refused what a person has to mend, by the cause.
    refused: BTreeMap<&'static str, Moment>,
    /// The nomination that this process watches, and when its votes count again.
    watched: Option<(String, Moment)>,
    /// The configuration of another fleet that is about to admit it, or has a node beside it.
    rival: Option<String>,
    /// In what its fleet is another one, although it is configured alike.
    other: Option<String>,
    /// The nodes without which the fleet is not founded.
    waits_for: Vec<String>,
    last_round_trip: Option<Duration>,
    /// Of the node's own clock.
    own: Option<Estimate>,
}

/// Over which connection something was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose {
    Keeper,
    Callers,
}

/// What is said of a node that refuses this without being down, where a person has to mend it.
fn complaint(trouble: &NodeError) -> Option<&'static str> {
    match trouble {
        NodeError::Auth(_) => Some("node refuses access"),
        NodeError::Refused {
            refusal: Refusal::OutOfMemory | Refusal::Misconf | Refusal::NoReplicas,
            ..
        } => Some("node refuses to write"),
        _ => None,
    }
}

/// Whether a person is to be told of what is refused now. What is answered in between says nothing: a user without all rights may look,
/// and in a full store much still fits where it lies.
fn is_news(last: Option<Moment>, now: Moment) -> bool {
    last.is_none_or(|last| now.since(last) >= QUIET)
}

/// Whether a connection has led to no answer, which may be its own fault.
pub(super) fn is_silence(result: &Result<Reply, NodeError>) -> bool {
    matches!(
        result,
        Err(NodeError::Unreachable(_) | NodeError::Timeout(_) | NodeError::Tls(_))
    )
}

// === impl NodeHealth ===

impl NodeHealth {
    pub(super) fn new(
        name: String,
        wall: (FleetClock, usize),
        clock: Clock,
        events: Events,
        votes: Arc<Votes>,
    ) -> Self {
        Self {
            name,
            clock,
            events,
            votes,
            suspected: Notify::new(),
            down: latest::Sender::new(false),
            eligibility: latest::Sender::new(Eligibility::Unguarded),
            voted: AtomicBool::new(false),
            learned: Mutex::default(),
            doubted: AtomicBool::new(false),
            fleet: OnceLock::new(),
            wall,
        }
    }

    fn learned(&self) -> MutexGuard<'_, Learned> {
        // Changed by short, complete steps.
        self.learned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says once that a part of what this node remembers is damaged.
    pub(super) fn doubt(&self, said: &str) {
        if !self.doubted.swap(true, Ordering::SeqCst) {
            let remedy = Refusal::Damaged.remedy();
            tracing::error!(node = self.name, said, remedy, "node's memory is damaged");
            self.events.tell(Event::NodeDamaged {
                node: self.name.clone(),
                what: said.to_owned(),
            });
        }
    }

    pub(super) fn is_of(&self, fleet: FleetConfig) {
        // A link is of one fleet for as long as it lives.
        let _ = self.fleet.set(fleet);
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn is_down(&self) -> bool {
        *self.down.borrow()
    }

    pub(super) async fn up(&self) {
        // Its sender lives as long as `self`.
        let _ = self.down.subscribe().wait_for(|down| !down).await;
    }

    pub(super) fn trouble(&self) -> Option<NodeError> {
        self.learned().trouble.clone()
    }

    /// Whether it has voted since this was asked last.
    pub(super) fn take_vote(&self) -> bool {
        self.voted.swap(false, Ordering::SeqCst)
    }

    pub(super) fn eligibility(&self) -> latest::Receiver<Eligibility> {
        self.eligibility.subscribe()
    }

    pub(super) fn set_watched(&self, watched: Option<(String, Moment)>) {
        self.learned().watched = watched;
    }

    pub(super) fn set_rival(&self, rival: Option<String>) {
        self.learned().rival = rival;
    }

    pub(super) fn set_other(&self, differs: Option<String>) {
        self.learned().other = differs;
    }

    pub(super) fn set_waits_for(&self, nodes: Vec<String>) {
        self.learned().waits_for = nodes;
    }

    /// Why its vote does not count, where it does not say so itself.
    pub(super) fn unadmitted(&self) -> NodeError {
        let waits_for = self.learned().waits_for.clone();
        match waits_for.is_empty() {
            true => NodeError::Unadmitted {
                left: self.watched().map(|(_, left)| left),
            },
            false => NodeError::Unfounded { waits_for },
        }
    }

    pub(super) fn watched(&self) -> Option<(String, Duration)> {
        let (nonce, until) = self.learned().watched.clone()?;
        Some((nonce, until.since(self.clock.now())))
    }

    pub(super) fn last_round_trip(&self) -> Option<Duration> {
        self.learned().last_round_trip
    }

    pub(super) fn ahead_ms(&self) -> Option<i64> {
        let (wall, number) = &self.wall;
        wall.ahead_ms(*number)
    }

    pub(super) fn no_vote(&self) -> Option<NodeError> {
        let rival = || self.learned().rival.clone();
        let theirs = match &*self.eligibility.borrow() {
            Eligibility::Unguarded => return None,
            Eligibility::Admitted(_) => {
                let other = self.learned().other.clone();
                return other.map(|differs| NodeError::Configured { differs });
            }
            Eligibility::Configured(marker) => {
                let ours = self.fleet.get();
                let theirs = match ours {
                    Some(ours) => ours.other(marker),
                    None => Some(&**marker).filter(|marker| closed_since(marker).is_none()),
                };
                theirs.map(str::to_owned).or_else(rival)
            }
            Eligibility::Unadmitted => rival(),
        };
        let Some(theirs) = theirs else {
            return Some(self.unadmitted());
        };
        let differs = self.fleet.get().and_then(|ours| ours.differs_from(&theirs));
        Some(NodeError::Configured {
            differs: differs.unwrap_or_else(|| format!("\"{theirs}\" there")),
        })
    }

    /// The quickest way there and back of late.
    pub(super) fn round_trip(&self) -> Duration {
        let own = self.learned().own;
        own.map_or(Duration::ZERO, |own| own.half * 2)
    }

    /// Whether it can be said when a call may act no more.
    pub(super) fn has_a_clock(&self) -> bool {
        self.learned().own.is_some()
    }

    /// From when on a call may act no more, on the node's clock: surely not before `give_up`, and surely before `ends`.
    pub(super) fn not_after(&self, give_up: Moment, ends: Option<Moment>) -> Option<NodeMs> {
        let own = self.learned().own?;
        let there = |at: Moment| Some(own.at(at)?.as_millis());
        // Both clocks are read in whole milliseconds.
        let slack = i128::try_from(own.half.as_millis()).ok()? + 2;
        let patience = there(give_up)? + slack;
        let bound = ends.and_then(there).map(|end| end - slack);
        let ms = bound.map_or(patience, |bound| bound.min(patience));
        u64::try_from(ms.max(0)).ok().map(NodeMs)
    }

    /// Learns the node's clocks and eligibility from the outcome of a call that was sent at `sent`. Whether it has just fallen.
    pub(super) fn learn(
        &self,
        sent: Moment,
        result: &Result<Reply, NodeError>,
        whose: Whose,
    ) -> bool {
        if whose == Whose::Callers && is_silence(result) {
            self.suspected.notify_one();
            return false;
        }
        let now = self.clock.now();
        let (up, at) = match result {
            Ok(reply) => (Some(true), Some(reply.at)),
            // It answers, but its clock is not what we thought.
            Err(NodeError::Late { at }) => (Some(true), Some(*at)),
            Err(trouble) if trouble.is_down() => (Some(false), None),
            // It answers and may do other things: what was asked was refused.
            Err(_) => (None, None),
        };
        let mut learned = self.learned();
        let shown = at.and_then(|NodeMs(at)| i64::try_from(at).ok());
        let fresh = shown.and_then(|at| Estimate::read(SignedDuration::from_millis(at), sent, now));
        if let Some(fresh) = fresh {
            let keep = learned.own.is_some_and(|old| match result {
                Ok(_) => old.is_better_than(&fresh),
                // What came too late because this process stood still says nothing against what was known.
                Err(_) => fresh.half > FROZEN && old.is_better_than(&fresh),
            });
            if !keep {
                learned.own = Some(fresh);
            }
        }
        if result.is_ok() {
            learned.last_round_trip = Some(now.since(sent));
        }
        learned.trouble = result
            .as_ref()
            .err()
            .filter(|e| !matches!(e, NodeError::Late { .. }) && !is_about_a_key(e))
            .cloned();
        let refused = result.as_ref().err();
        let refused = refused.and_then(|why| Some((why, complaint(why)?)));
        let told =
            refused.filter(|(why, _)| is_news(learned.refused.insert(why.cause(), now), now));
        drop(learned);
        // It is not down, and nothing else would show it.
        if let Some((why, complaint)) = told {
            tracing::warn!(node = self.name, cause = why.cause(), %why, "{complaint}");
        }
        if let Ok(reply) = result {
            let (wall, number) = &self.wall;
            wall.learn(*number, sent, reply.wall_ms);
            if *self.eligibility.borrow() != reply.eligibility {
                if matches!(reply.eligibility, Eligibility::Admitted(_)) {
                    self.voted.store(true, Ordering::SeqCst);
                }
                self.eligibility.send_replace(reply.eligibility.clone());
                self.tell_vote();
            }
        }
        match up {
            Some(up) => self.is_up(up, result.as_ref().err()),
            None => false,
        }
    }

    /// Lets those that wait know whether it votes.
    fn tell_vote(&self) {
        let eligible = || match &*self.eligibility.borrow() {
            Eligibility::Unguarded | Eligibility::Admitted(_) => true,
            Eligibility::Unadmitted | Eligibility::Configured(_) => false,
        };
        let (_, number) = &self.wall;
        self.votes.set(*number, || eligible() && !self.is_down());
    }

    /// Whether it has just fallen.
    fn is_up(&self, up: bool, trouble: Option<&NodeError>) -> bool {
        if up {
            self.votes.answers();
        }
        // Nearly always nothing changes, and a look costs less than a change.
        let changed = *self.down.borrow() == up
            && self.down.send_if_modified(|down| {
                let changed = *down == up;
                *down = !up;
                changed
            });
        if changed {
            self.tell_vote();
            if up {
                // It may have been emptied meanwhile.
                self.doubted.store(false, Ordering::SeqCst);
            }
            self.events.tell(Event::NodeUp {
                node: self.name.clone(),
                up,
                cause: trouble.map_or("", NodeError::cause),
            });
        }
        if changed && !up {
            self.suspected.notify_one();
        }
        changed && !up
    }
}
