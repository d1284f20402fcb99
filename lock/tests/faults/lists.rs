//! Programs that were given different nodes, or whose addresses lead to different ones: no two of them ever hold the lock, and
//! what is refused says why. Costs about ten seconds.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::future::{BoxFuture, join};
use watchkeeper_lock::{
    chance::Chance,
    clock::Clock,
    lease::Lease,
    lock::{AdmissionState, Locks, LocksBuilder, Timing, admission::admit_at_once},
    node::{
        Announcements, Call, Expiry, Node, NodeError, NodeFacts, Reply, RestartGuard, Servers,
        redis::{RedisNode, RedisNodeSettings},
    },
    spawn::Spawn,
};

use crate::{
    client::{Client, KEY, block_on, locks, patient},
    history::{Belief, Violation, violations},
    masters::Masters,
    rules::{ALL_ON, Rules},
};

const TTL: Duration = Duration::from_secs(4);
/// Servers do not know each other: what happens without rosters.
const UNGUARDED: Rules = Rules {
    guard: RestartGuard::Off,
    ..ALL_ON
};

/// A node under the address that a program knows it by, wherever that leads.
struct At {
    address: &'static str,
    node: Arc<dyn Node>,
}

/// Servers, and programs that are given some of them.
struct Scene {
    masters: Masters,
    timing: Timing,
    rules: Rules,
}

// === impl At ===

#[async_trait]
impl Node for At {
    fn name(&self) -> &str {
        self.address
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        self.node.call(call).await
    }

    fn carry(self: Arc<Self>, call: Arc<Call>) -> BoxFuture<'static, Result<Reply, NodeError>> {
        self.node.clone().carry(call)
    }

    fn another(&self) -> Option<Arc<dyn Node>> {
        let (address, node) = (self.address, self.node.another()?);
        Some(Arc::new(Self { address, node }))
    }

    fn agree(&self, config: &str) -> bool {
        self.node.agree(config)
    }

    async fn identity(&self) -> Option<String> {
        self.node.identity().await
    }

    fn join(&self, servers: &Servers, place: usize) {
        self.node.join(servers, place);
    }

    fn expiry(&self) -> Expiry {
        self.node.expiry()
    }

    async fn inspect(&self) -> Result<NodeFacts, NodeError> {
        self.node.inspect().await
    }

    async fn announcements(&self) -> Option<Announcements> {
        self.node.announcements().await
    }
}

// === impl Scene ===

impl Scene {
    fn new(servers: usize) -> Self {
        Self::under(ALL_ON, servers)
    }

    fn under(rules: Rules, servers: usize) -> Self {
        Self {
            masters: Masters::start(servers),
            timing: patient(TTL),
            rules,
        }
    }

    fn settings(&self, list: &[usize]) -> Vec<RedisNodeSettings> {
        let all = self.masters.settings(self.timing.node_timeout, false);
        list.iter().map(|n| all[*n].clone()).collect()
    }

    fn nodes(&self, list: &[usize]) -> Vec<Arc<dyn Node>> {
        let settings = self.rules.guard(&self.settings(list), &self.timing);
        let node = |settings| RedisNode::new(settings, Clock::system(), Spawn::system());
        let nodes = settings.iter().map(|settings| node(settings).unwrap());
        nodes.map(|node| Arc::new(node) as Arc<dyn Node>).collect()
    }

    /// The same under addresses of their own: `a`, `b`, `c`.
    fn at(&self, list: &[usize]) -> Vec<Arc<dyn Node>> {
        let nodes = self.nodes(list).into_iter().zip(["a", "b", "c"]);
        let at = |(node, address)| Arc::new(At { address, node }) as Arc<dyn Node>;
        nodes.map(at).collect()
    }

    /// Founds the fleet of these nodes, as `doctor --bootstrap` does; without the guard there is nothing to be founded.
    async fn found(&self, nodes: &[Arc<dyn Node>]) {
        let Some(fleet) = self.rules.fleet(nodes.len(), self.timing.max_ttl) else {
            return;
        };
        let founded = admit_at_once(nodes, &fleet, &Chance::system()).await;
        founded.expect("new servers");
    }

    fn program(&self, list: &[usize]) -> Locks {
        locks(&self.settings(list), self.rules, self.timing.clone(), None)
    }

    fn program_at(&self, list: &[usize]) -> Locks {
        self.builder_at(list).start().unwrap()
    }

    fn builder_at(&self, list: &[usize]) -> LocksBuilder {
        let locks = self
            .rules
            .apply(Locks::over(self.at(list)), list.len(), &self.timing);
        locks.timing(self.timing.clone()).chance(Chance::system())
    }

    async fn gets_it(&self, locks: &Locks) -> bool {
        let wait = locks.lock_key(KEY).wait(TTL * 3);
        match wait.acquire().await {
            Ok(lease) => {
                lease.release().await;
                true
            }
            Err(why) => {
                println!("{why}");
                false
            }
        }
    }
}

/// What a program is told that does not get the lock within this time.
async fn refused(locks: &Locks, within: Duration) -> String {
    match locks.lock_key(KEY).wait(within).acquire().await {
        Err(why) => why.to_string(),
        Ok(lease) => panic!("it holds the lock: {lease:?}"),
    }
}

/// What it is told in the end: an attempt is lost when a majority is out of reach, whatever the last node would have said.
async fn is_told(locks: &Locks, what: &[&str]) {
    let mut why = String::new();
    for _ in 0..500 {
        why = refused(locks, Duration::ZERO).await;
        if what.iter().all(|what| why.contains(what)) {
            return;
        }
        Clock::system().sleep(Duration::from_millis(10)).await;
    }
    named(&why, what);
}

fn named(why: &str, what: &[&str]) {
    for what in what {
        assert!(why.contains(what), "{what}: {why}");
    }
}

/// Both want it all the time: what they believed, from when to when.
async fn both_want_it(programs: [&Locks; 2], time: Duration) -> Vec<Belief> {
    let clock = Clock::system();
    let end = clock.now() + time;
    let clock = &clock;
    let wants = |locks: &'static str, program: Locks| async move {
        let mut beliefs = Vec::new();
        while clock.now() < end {
            let Ok(lease) = program.lock_key(KEY).wait(TTL / 4).acquire().await else {
                clock.sleep(Duration::from_millis(20)).await;
                continue;
            };
            clock.sleep(Duration::from_millis(50)).await;
            let mut belief = Belief::of(&format!("{locks} ({})", beliefs.len()), &lease);
            belief.to = belief.to.min(clock.now());
            beliefs.push(belief);
            lease.release().await;
        }
        beliefs
    };
    let [one, two] = programs;
    let (mut one, two) = join(wants("one", one.clone()), wants("two", two.clone())).await;
    one.extend(two);
    one
}

/// A3: {a, b, c} beside {c, d, e}.
pub(crate) fn a_list_that_shares_a_node_with_a_fleet_is_refused_by_name() {
    let scene = Scene::new(5);
    block_on(async {
        scene.found(&scene.nodes(&[0, 1, 2])).await;
        let fleet = scene.program(&[0, 1, 2]);
        let lease = fleet.lock_key(KEY).wait(TTL).acquire().await.unwrap();
        let other = scene.program(&[2, 3, 4]);
        refused(&other, TTL * 2).await;
        is_told(
            &other,
            &[
                "its fleet has 3 nodes, of which 1 here: redis.nodes is another list there",
                "doctor --reconfigure",
                "is founded when all of its nodes answer, and none is of another fleet; it waits for",
            ],
        )
        .await;
        assert!(lease.is_held());
        lease.release().await;
        assert!(scene.gets_it(&fleet).await);
        let shown = fleet.admissions().await.unwrap();
        assert!(shown.iter().all(|node| node.state.votes()), "{shown:?}");
    });
}

/// The same with servers that are all new: one fleet comes up, or none.
pub(crate) fn of_two_new_lists_that_share_a_node_one_comes_up_at_most() {
    let scene = Scene::new(5);
    block_on(async {
        let (one, two) = (scene.program(&[0, 1, 2]), scene.program(&[2, 3, 4]));
        let beliefs = both_want_it([&one, &two], TTL * 4).await;
        let of = |who: &str| beliefs.iter().any(|belief| belief.who.starts_with(who));
        assert!(!(of("one") && of("two")), "{beliefs:?}");
        for (who, program) in [("one", &one), ("two", &two)] {
            if !of(who) {
                is_told(program, &["redis.nodes is another list there"]).await;
            }
        }
    });
}

/// {a, b, c}, of which a loses its memory, beside {a, d, e}, of which all are new now.
pub(crate) fn a_node_that_lost_its_memory_is_not_taken_by_another_list() {
    let mut scene = Scene::new(5);
    block_on(async {
        scene.found(&scene.nodes(&[0, 1, 2])).await;
        let fleet = scene.program(&[0, 1, 2]);
        let lease = fleet.lock_key(KEY).wait(TTL).acquire().await.unwrap();
        let other = scene.program(&[0, 3, 4]);
        let known = other.admissions().await.unwrap();
        assert!(!known[0].state.votes(), "{known:?}");
        scene.masters.forget(0);
        let why = refused(&other, TTL * 3).await;
        assert!(lease.is_held(), "{why}");
        lease.release().await;
        for _ in 0..1000 {
            let shown = fleet.admissions().await.unwrap();
            if shown.iter().all(|node| node.state.votes()) {
                return is_told(&other, &["redis.nodes is another list there"]).await;
            }
            Clock::system().sleep(Duration::from_millis(10)).await;
        }
        panic!("not back again: {:?}", fleet.admissions().await);
    });
}

/// {a, b, c} beside {a, b, c, d, e}.
pub(crate) fn a_longer_list_is_refused_by_name() {
    let scene = Scene::new(5);
    block_on(async {
        scene.found(&scene.nodes(&[0, 1, 2])).await;
        let fleet = scene.program(&[0, 1, 2]);
        let longer = scene.program(&[0, 1, 2, 3, 4]);
        let why = refused(&longer, TTL * 2).await;
        assert!(!why.contains("makes no sense"), "{why}");
        is_told(
            &longer,
            &[
                "the number of nodes is 3 there and 5 here",
                "doctor --reconfigure",
            ],
        )
        .await;
        assert!(scene.gets_it(&fleet).await);
    });
}

/// The order is no part of a list.
pub(crate) fn a_list_in_another_order_is_the_same() {
    let scene = Scene::new(3);
    block_on(async {
        scene.found(&scene.nodes(&[0, 1, 2])).await;
        let (one, two) = (scene.program(&[0, 1, 2]), scene.program(&[2, 0, 1]));
        let lease = one.lock_key(KEY).wait(TTL).acquire().await.unwrap();
        named(&refused(&two, Duration::ZERO).await, &["held"]);
        lease.release().await;
        assert!(scene.gets_it(&two).await);
        let shown = two.admissions().await.unwrap();
        let admitted = |state: &AdmissionState| *state == AdmissionState::Admitted;
        assert!(shown.iter().all(|node| admitted(&node.state)), "{shown:?}");
    });
}

/// {a, b} under three addresses.
pub(crate) fn two_addresses_of_one_server_found_no_fleet() {
    let scene = Scene::new(3);
    scene.masters.lead_to(2, 0);
    block_on(async {
        let program = scene.program(&[0, 1, 2]);
        refused(&program, TTL * 3).await;
        is_told(&program, &["it is the same server as", "it waits for"]).await;
    });
}

/// The address of one node leads to another server for one of both programs, on which the fleet stands or not.
fn swapped(found: bool) {
    let scene = Scene::new(4);
    block_on(async {
        if found {
            scene.found(&scene.at(&[0, 1, 2])).await;
        }
        let (one, two) = (scene.program_at(&[0, 1, 2]), scene.program_at(&[0, 1, 3]));
        let beliefs = both_want_it([&one, &two], TTL * 5).await;
        let seen = violations(beliefs.clone());
        assert!(seen.is_empty(), "{seen:?}");
        let shown = [one.admissions().await, two.admissions().await];
        println!("swapped: {} leases; {shown:?}", beliefs.len());
        let of = |who: &str| beliefs.iter().any(|belief| belief.who.starts_with(who));
        for (who, program) in [("one", &one), ("two", &two)] {
            if found {
                assert!(
                    of(who),
                    "the two that are shared vote for both: {beliefs:?}"
                );
            } else if !of(who) {
                is_told(program, &["a: has lost its memory or is new; votes again"]).await;
            }
        }
    });
}

pub(crate) fn an_address_that_leads_elsewhere_for_one_program_gives_no_two_holders() {
    swapped(true);
}

pub(crate) fn an_address_that_leads_elsewhere_while_a_fleet_is_founded_gives_no_two_holders() {
    swapped(false);
}

/// Several locks, so that it does not matter which node is asked first.
const KEYS: [&str; 4] = ["order:1", "order:2", "order:3", "order:4"];

/// What is wrong with what both believe of these locks when the other wants those that the holder has.
fn when_another_wants(holder: &[Lease], other: &Locks) -> Vec<Violation> {
    let mut seen = Vec::new();
    for (key, lease) in KEYS.iter().zip(holder) {
        let mut beliefs = vec![Belief::of("holder", lease)];
        if let Ok(lease) = block_on(other.lock_key(key).acquire()) {
            beliefs.push(Belief::of("other", &lease));
        }
        seen.extend(violations(beliefs));
    }
    let held = holder.iter().all(|lease| lease.is_held());
    assert!(held, "too slow to show anything");
    seen
}

/// The holder has its locks of the two last of its nodes. The other finds another server in the place of the last: with the
/// first that would be a majority, too.
fn other_half(rules: Rules) -> Vec<Violation> {
    let scene = Scene::under(rules, 4);
    block_on(scene.found(&scene.at(&[0, 1, 2])));
    // Nothing drives it behind its calls: it does not ask the first again.
    let start = |spawn| scene.builder_at(&[0, 1, 2]).keeper_here(spawn).start();
    let holder = Client::of(|spawn| start(spawn).unwrap());
    scene.masters.tell(0, &["CONFIG", "SET", "maxmemory", "1"]);
    let acquire = |key: &str| holder.run(holder.locks.lock_key(key).wait(TTL).acquire());
    let leases = KEYS.map(|key| acquire(key).unwrap());
    scene.masters.tell(0, &["CONFIG", "SET", "maxmemory", "0"]);
    when_another_wants(&leases, &scene.program_at(&[0, 1, 3]))
}

pub(crate) fn a_server_that_one_program_alone_is_led_to_has_no_vote() {
    assert_eq!(other_half(ALL_ON), []);
}

/// What the case above shows, it would not show by itself.
pub(crate) fn without_rosters_a_server_that_one_program_alone_is_led_to_makes_two_holders() {
    let seen = other_half(UNGUARDED);
    assert!(two_hold(&seen), "{seen:?}");
}

/// Nor do lists that overlap exclude each other by themselves.
pub(crate) fn without_rosters_lists_that_share_a_node_have_two_holders() {
    let scene = Scene::under(UNGUARDED, 5);
    let (one, two) = (scene.program(&[0, 1, 2]), scene.program(&[2, 3, 4]));
    let acquire = |key: &str| block_on(one.lock_key(key).acquire());
    let leases = KEYS.map(|key| acquire(key).unwrap());
    let seen = when_another_wants(&leases, &two);
    assert!(two_hold(&seen), "{seen:?}");
}

fn two_hold(seen: &[Violation]) -> bool {
    let two = |seen: &Violation| matches!(seen, Violation::TwoHolders { .. });
    seen.iter().any(two)
}
