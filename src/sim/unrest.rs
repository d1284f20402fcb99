//! Stories by chance: a fleet that loses processes and nodes as its seed decides, in virtual time.

use std::{ops::Range, time::Duration};

use crate::{
    chance::Chance,
    node::memory::Cut,
    testing::{cluster::Cluster, members::Member},
};

/// Plays a story in virtual time.
pub(super) fn play<T>(story: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    runtime.unwrap().block_on(story)
}

/// Of so many stories a sixth every day, and all in the long run of the tests.
pub(crate) fn daily(many: u64) -> u64 {
    match std::env::var_os("WATCHKEEPER_LONG") {
        Some(_) => many,
        None => many.div_ceil(6),
    }
}

/// The seeds of a test: so many, or the one that `WATCHKEEPER_SIM_SEED` names.
pub(super) fn seeds(many: u64) -> Range<u64> {
    number("WATCHKEEPER_SIM_SEED").map_or(0..many, |seed| seed..seed + 1)
}

/// A number in the environment.
pub(super) fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
}

/// A story for each seed and number of nodes, named before it is played.
pub(super) fn play_all(many: u64, story: impl Fn(u64, usize)) {
    for seed in seeds(daily(many)) {
        for nodes in [1, 3, 5] {
            println!("WATCHKEEPER_SIM_SEED={seed}, {nodes} nodes");
            story(seed, nodes);
        }
    }
}

/// What can happen to a member, and to the nodes.
pub(super) enum Fault {
    Crash,
    Freeze,
    Drain,
    /// One of the nodes is cut off.
    Partition,
    /// Its wall clock is wrong.
    Skew,
    /// Nodes are reached again, and frozen members go on.
    Calm,
}

/// Three processes at a time, of which one after the other is struck.
pub(super) struct Unrest<'a, J> {
    fleet: &'a Cluster,
    chance: &'a Chance,
    join: J,
    /// Those in service.
    pub(super) members: Vec<Member>,
    /// And those before them.
    pub(super) all: Vec<Member>,
}

impl<'a, J: Fn(&str) -> Member> Unrest<'a, J> {
    pub(super) fn begin(fleet: &'a Cluster, chance: &'a Chance, join: J) -> Self {
        let members: Vec<Member> = ["m1", "m2", "m3"].map(&join).into();
        Self {
            fleet,
            chance,
            join,
            all: members.clone(),
            members,
        }
    }

    /// One of the three.
    pub(super) fn any(&self) -> usize {
        usize::try_from(self.chance.below(3)).unwrap()
    }

    /// Anything, to one of the three.
    pub(super) fn strike(&mut self) {
        let victim = self.any();
        let fault = match self.chance.below(8) {
            0 | 1 => Fault::Crash,
            2 => Fault::Freeze,
            3 => Fault::Drain,
            4 => Fault::Partition,
            5 => Fault::Skew,
            _ => Fault::Calm,
        };
        self.hit(victim, fault);
    }

    /// What leaves the member behind gives it a successor; it stays around, to act late if it can.
    pub(super) fn hit(&mut self, victim: usize, fault: Fault) {
        let member = &self.members[victim];
        match fault {
            Fault::Crash => member.tasks.crash(),
            Fault::Freeze => member.tasks.freeze(),
            Fault::Drain => member.drain(),
            Fault::Partition => {
                let nodes = &self.fleet.nodes;
                let cut = self.chance.below(nodes.len() as u64);
                nodes[usize::try_from(cut).unwrap()]
                    .faults()
                    .partition(Cut::Hang);
            }
            Fault::Skew => {
                let skew = i64::try_from(self.chance.below(1600)).unwrap() - 800;
                return member.time.set_wall_offset(skew);
            }
            Fault::Calm => return self.calm(&self.members),
        }
        let fresh = (self.join)(&format!("m{}", self.all.len() + 1));
        self.all.push(fresh.clone());
        self.members[victim] = fresh;
    }

    /// Ends all faults, and gives the fleet some time.
    pub(super) async fn recover(&self, time: Duration) {
        self.calm(&self.all);
        self.fleet.sleep(time).await;
    }

    fn calm(&self, members: &[Member]) {
        self.fleet.nodes.iter().for_each(|n| n.faults().heal());
        members.iter().for_each(|m| m.tasks.thaw());
    }
}
