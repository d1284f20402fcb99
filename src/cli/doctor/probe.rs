//! What one node answers to a person who looks for faults.

use std::time::Duration;

use futures_util::future::join;
use serde::Serialize;

use crate::{
    chance::Chance,
    clock::Clock,
    config::Backend,
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
/// The same of a store with several addresses, of which the first may be silent: so long it may take to reach the second.
const TO_REACH_THE_NEXT: Duration = Duration::from_secs(6);

/// What is written on probation has 4 KiB.
const IDS_IN_A_PROBE: usize = 128;

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

/// How long the nodes of a store may take to be reached, before anything can be said of them.
pub(super) fn to_reach(backend: Backend) -> Duration {
    match backend {
        // One node with several servers, or a name with several addresses.
        Backend::Postgres | Backend::Etcd => TO_REACH_THE_NEXT,
        Backend::Memory | Backend::Embedded | Backend::Redis => TO_ANSWER,
    }
}

/// Looks at a node: asks what it is, times a few calls, and writes a document that ends at once. One that is silent is waited for no
/// longer than `to_reach`.
pub(super) async fn look(node: &dyn Node, clock: &Clock, to_reach: Duration) -> NodeState {
    let mut state = NodeState {
        name: node.name().to_owned(),
        ..NodeState::default()
    };
    let inspecting = clock.timeout(to_reach.max(PATIENCE / 2), node.inspect());
    let (facts, answer) = join(inspecting, first_answer(node, clock, to_reach)).await;
    if let Ok(Ok(facts)) = facts {
        state.facts = facts;
    }
    match answer {
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

async fn first_answer(node: &dyn Node, clock: &Clock, to_reach: Duration) -> Result<(), NodeError> {
    let now = clock.now();
    let (until, reached) = (now + TO_ANSWER, now + to_reach);
    loop {
        match ask(node, clock, Vec::new()).await {
            Ok(_) => return Ok(()),
            // All of its addresses have been tried.
            Err(passing @ NodeError::Unreachable(_)) if clock.now() >= until => {
                return Err(passing);
            }
            Err(passing @ NodeError::Timeout(_)) if clock.now() >= reached => return Err(passing),
            Err(NodeError::Unreachable(_) | NodeError::Timeout(_)) => {}
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

/// Whether this user may do what locks need, the same script and writing; and whether there is room.
async fn write(node: &dyn Node, clock: &Clock) -> Result<(), NodeError> {
    let chance = Chance::system();
    let name = format!("doctor/{}", chance.id());
    let put = Op::PutDoc {
        name: name.clone(),
        rev: 1,
        ttl: Duration::from_secs(1),
        // Larger than what fits in where something else was, and of what does not become smaller.
        body: (0..IDS_IN_A_PROBE).map(|_| chance.id()).collect(),
    };
    ask(node, clock, vec![put]).await?;
    // In a call of its own: a store that writes what a call leaves would write nothing.
    ask(node, clock, vec![Op::RemoveDoc { name }])
        .await
        .map(drop)
}

async fn ask(node: &dyn Node, clock: &Clock, ops: Vec<Op>) -> Result<Reply, NodeError> {
    let call = Call {
        not_after: None,
        ops,
    };
    let answer = clock.timeout(TO_ANSWER, node.call(call)).await;
    answer.unwrap_or(Err(NodeError::Timeout(TO_ANSWER)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Moment,
        node::{Announcements, memory::MemoryNode},
        sim_clock::SimTime,
    };

    /// Its first address is silent: until the second one is reached, calls wait.
    struct Behind {
        node: MemoryNode,
        clock: Clock,
        reached: Moment,
    }

    #[async_trait::async_trait]
    impl Node for Behind {
        fn name(&self) -> &str {
            self.node.name()
        }
        async fn call(&self, call: Call) -> Result<Reply, NodeError> {
            self.clock.sleep_until(self.reached).await;
            self.node.call(call).await
        }
        async fn announcements(&self) -> Option<Announcements> {
            None
        }
        async fn inspect(&self) -> Result<NodeFacts, NodeError> {
            self.clock.sleep_until(self.reached).await;
            Node::inspect(&self.node).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_whose_first_address_is_silent_is_waited_for() {
        let clock = SimTime::new().clock();
        let behind = || Behind {
            node: MemoryNode::new("n", clock.clone()),
            clock: clock.clone(),
            reached: clock.now() + Duration::from_millis(5_100),
        };
        for backend in [Backend::Postgres, Backend::Etcd] {
            let state = look(&behind(), &clock, to_reach(backend)).await;
            assert_eq!((state.up, state.error), (true, None), "{backend:?}");
        }
        // A node of several is not waited for: what is wrong with it is to be said soon.
        let start = clock.now();
        let state = look(&behind(), &clock, to_reach(Backend::Redis)).await;
        assert!(!state.up);
        assert!(clock.now().since(start) < PATIENCE, "all together");
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_reached_at_none_of_its_addresses_is_told_of_soon() {
        let clock = SimTime::new().clock();
        let node = MemoryNode::new("n", clock.clone());
        let nowhere = NodeError::Unreachable("connection refused".to_owned());
        node.faults().fail_all_with(nowhere);
        let start = clock.now();
        let state = look(&node, &clock, to_reach(Backend::Postgres)).await;
        assert!(state.error.is_some_and(|why| why.contains("unreachable")));
        assert!(clock.now().since(start) < TO_ANSWER * 2);
    }
    /// Answers what would leave nothing, and takes nothing new.
    struct Full(MemoryNode);

    #[async_trait::async_trait]
    impl Node for Full {
        fn name(&self) -> &str {
            self.0.name()
        }
        async fn call(&self, call: Call) -> Result<Reply, NodeError> {
            let puts = call.ops.iter().any(|op| matches!(op, Op::PutDoc { .. }));
            let removes = call.ops.iter().any(|op| matches!(op, Op::RemoveDoc { .. }));
            match puts && !removes {
                true => Err(NodeError::Refused {
                    refusal: crate::node::Refusal::OutOfMemory,
                    said: "no space".to_owned(),
                }),
                false => self.0.call(call).await,
            }
        }
        async fn announcements(&self) -> Option<Announcements> {
            None
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_answers_and_has_no_room_is_found() {
        let clock = SimTime::new().clock();
        let node = MemoryNode::new("n", clock.clone());
        let state = look(&Full(node.clone()), &clock, TO_ANSWER).await;
        assert!(state.up && state.wants.is_some());
        assert!(
            state
                .write_error
                .is_some_and(|why| why.contains("no space"))
        );
        let state = look(&node, &clock, TO_ANSWER).await;
        assert_eq!(state.write_error, None);
    }
}
