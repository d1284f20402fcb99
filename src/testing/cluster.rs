//! What a simulated fleet stands on: the true time, lock nodes in memory, and one way to reach them for processes and people.

use std::{sync::Arc, time::Duration};

use crate::{
    chance::Chance,
    clock::Clock,
    job::Hooks,
    lock::{FleetConfig, Locks, LocksBuilder, Timing},
    node::{Expiry, GuardSettings, Node, RestartGuard, memory::MemoryNode},
    notice::Posts,
    sim_clock::SimTime,
    spawn::Spawn,
    trace::Tracer,
};

/// A connection as it is.
pub(crate) fn straight(node: MemoryNode) -> Arc<dyn Node> {
    Arc::new(node)
}

/// Lock nodes under one true clock.
pub(crate) struct Cluster {
    pub(crate) time: SimTime,
    pub(crate) nodes: Vec<MemoryNode>,
    pub(crate) seed: u64,
    /// Called around every run of the processes that are started from now on.
    pub(crate) hooks: Hooks,
    /// What the connections of all that is started from now on go through: for programs of another version.
    pub(crate) through: fn(MemoryNode) -> Arc<dyn Node>,
    /// Told of their runs.
    pub(crate) tracer: Tracer,
    /// Whom they tell of jobs that break.
    pub(crate) posts: Posts,
    timing: Timing,
    /// What the nodes are guarded with, as masters of Redis are; `None` when they cannot lose their memory.
    guard: Option<FleetConfig>,
    /// What decides that a holder is over.
    expiry: Expiry,
}

impl Cluster {
    /// So many nodes, each with a clock of its own; the seed decides what is left to chance.
    pub(crate) fn over(
        time: SimTime,
        nodes: usize,
        seed: u64,
        timing: Timing,
        expiry: Expiry,
    ) -> Self {
        let nodes = (1..=nodes as u64).map(|number| {
            let (name, clock) = (format!("n{number}"), time.sibling().clock());
            let chance = Chance::seeded(seed.wrapping_add(number - 1));
            MemoryNode::simulated(name, clock, Spawn::system(), chance)
        });
        Self {
            nodes: nodes.collect(),
            time,
            seed,
            hooks: Hooks::default(),
            through: straight,
            tracer: Tracer::default(),
            posts: Posts::default(),
            timing,
            guard: None,
            expiry,
        }
    }

    /// Messages to a node and back take so long at most.
    pub(super) fn latency(&self, most: Duration) {
        for faults in self.nodes.iter().map(MemoryNode::faults) {
            faults.delay_requests(Duration::ZERO, most);
            faults.delay_replies(Duration::ZERO, most);
        }
    }

    /// The nodes may lose their memory, and are guarded against it.
    pub(super) fn guarded(mut self, fleet: FleetConfig) -> Self {
        self.guard = Some(fleet);
        self
    }

    /// Connections of one process to all nodes.
    pub(super) fn connections(&self) -> Vec<MemoryNode> {
        let guard = self.guard.map_or_else(GuardSettings::default, |fleet| {
            let (mode, config) = (RestartGuard::Call, fleet.to_string());
            GuardSettings { mode, config }
        });
        let nodes = self.nodes.iter();
        nodes.map(|n| n.clone().guarded(guard.clone())).collect()
    }

    /// A lock service over these connections, for a process with these clocks whose tasks are spawned there.
    pub(super) fn locks(
        &self,
        connections: Vec<MemoryNode>,
        clock: Clock,
        chance: Chance,
        spawn: Spawn,
    ) -> LocksBuilder {
        let nodes = connections.into_iter().map(self.through);
        let locks = Locks::over(nodes.collect())
            .timing(self.timing.clone())
            .expiry(self.expiry)
            .clock(clock)
            .chance(chance)
            .keeper_here(spawn);
        match self.guard {
            Some(fleet) => locks.guarded(fleet),
            None => locks,
        }
    }
}
