//! What one node answers to a person who looks for faults.

use std::time::Duration;

use serde::Serialize;

use crate::{
    chance::Chance,
    clock::Clock,
    node::{
        Call, Node, NodeError, NodeFacts, Op, Reply,
        damage::{self, Damage},
    },
};

/// All nodes together are looked at for at most about this long.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A node that is just being connected to, or was slow once, gets another chance for so long.
const TO_ANSWER: Duration = Duration::from_millis(1_500);
const AGAIN: Duration = Duration::from_millis(60);

/// Calls that are timed.
const CALLS: usize = 9;

/// One node as it is now: an entry of `nodes` in `doctor --json`.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct NodeState {
    pub(super) name: String,
    /// Whether it answers calls.
    pub(super) up: bool,
    /// Why not.
    pub(super) error: Option<String>,
    /// Why a probing document could not be written.
    pub(super) write_error: Option<String>,
    /// Whether that is a matter of rights.
    #[serde(skip)]
    pub(super) denied: bool,
    /// What a server that answers and does not serve wants.
    pub(super) wants: Option<&'static str>,
    /// The median of a few calls.
    pub(super) latency_us: Option<u64>,
    /// The slowest of them.
    pub(super) slowest_us: Option<u64>,
    /// Its wall clock minus ours.
    pub(super) offset_ms: Option<i64>,
    /// Half of the quickest round trip: how wrong the offset can be.
    pub(super) offset_error_ms: Option<i64>,
    /// What of its memory was changed or deleted by something else.
    #[serde(skip)]
    pub(super) damage: Damage,
    #[serde(flatten)]
    pub(super) facts: NodeFacts,
}

impl NodeState {
    fn refused_by(&mut self, trouble: &NodeError) {
        use crate::node::Refusal::{NoAuth, NoKey, NoPerm, WrongPass};
        match trouble {
            NodeError::Auth(_) => self.denied = true,
            NodeError::Refused { refusal, .. } => {
                self.denied = matches!(refusal, NoAuth | NoKey | NoPerm | WrongPass);
                self.wants = Some(refusal.remedy());
            }
            _ => {}
        }
    }
}

/// Looks at a node: asks what it is, times a few calls, and writes a document that ends at once.
pub(super) async fn look(node: &dyn Node, clock: &Clock) -> NodeState {
    let mut state = NodeState {
        name: node.name().to_owned(),
        ..NodeState::default()
    };
    if let Ok(Ok(facts)) = clock.timeout(PATIENCE / 2, node.inspect()).await {
        state.facts = facts;
    }
    match first_answer(node, clock).await {
        Ok(()) => state.up = true,
        Err(trouble) => {
            state.refused_by(&trouble);
            state.error = Some(trouble.to_string());
            return state;
        }
    }
    time(node, clock, &mut state).await;
    if let Err(trouble) = write(node, clock).await {
        state.refused_by(&trouble);
        state.write_error = Some(trouble.to_string());
    }
    // What was found stands, although time is up; a node that falls silent now is found out by others.
    let search = damage::search(&mut state.damage, |ops| ask(node, clock, ops));
    let _ = clock.timeout(PATIENCE / 2, search).await;
    state
}

async fn first_answer(node: &dyn Node, clock: &Clock) -> Result<(), NodeError> {
    let until = clock.now() + TO_ANSWER;
    loop {
        match ask(node, clock, Vec::new()).await {
            Ok(_) => return Ok(()),
            Err(passing @ (NodeError::Unreachable(_) | NodeError::Timeout(_))) => {
                if clock.now() >= until {
                    return Err(passing);
                }
            }
            Err(other) => return Err(other),
        }
        clock.sleep(AGAIN).await;
    }
}

async fn time(node: &dyn Node, clock: &Clock, state: &mut NodeState) {
    let mut trips: Vec<Duration> = Vec::new();
    for _ in 0..CALLS {
        let (start, wall) = (clock.now(), clock.wall().as_millisecond());
        let Ok(reply) = ask(node, clock, Vec::new()).await else {
            continue;
        };
        let trip = clock.now().since(start);
        // The quickest answer tells the clock best.
        if trips.iter().all(|other| trip < *other) {
            let half = i64::try_from(trip.as_millis() / 2).unwrap_or(i64::MAX);
            state.offset_ms = Some(reply.wall_ms.saturating_sub(wall.saturating_add(half)));
            state.offset_error_ms = Some(half + 1);
        }
        trips.push(trip);
    }
    trips.sort_unstable();
    let micros = |trip: &Duration| u64::try_from(trip.as_micros()).unwrap_or(u64::MAX);
    state.latency_us = trips.get(trips.len() / 2).map(micros);
    state.slowest_us = trips.last().map(micros);
}

/// Whether this user may do what locks need: the same script, and writing.
async fn write(node: &dyn Node, clock: &Clock) -> Result<(), NodeError> {
    let name = format!("doctor/{}", Chance::system().id());
    let put = Op::PutDoc {
        name: name.clone(),
        rev: 1,
        ttl: Duration::from_secs(1),
        body: "{}".to_owned(),
    };
    let probe = ask(node, clock, vec![put, Op::RemoveDoc { name }]);
    probe.await.map(drop)
}

async fn ask(node: &dyn Node, clock: &Clock, ops: Vec<Op>) -> Result<Reply, NodeError> {
    let call = Call {
        not_after: None,
        ops,
    };
    let answer = clock.timeout(TO_ANSWER, node.call(call)).await;
    answer.unwrap_or(Err(NodeError::Timeout(TO_ANSWER)))
}
