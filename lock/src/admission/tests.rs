//! Nodes that lose their memory, and what becomes of leases and tokens, in virtual time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;

use super::*;
use crate::{
    acquire::Locks,
    chance::Chance,
    lease::VerifyError,
    node::{
        Announcements, Call, Expiry, GuardSettings, Node, RestartGuard, Token,
        memory::{Cut, MemoryNode},
    },
    quorum::{Claim, Claimed, LockError},
    settings::Timing,
    sim_clock::SimTime,
    spawn::Spawn,
};

const TTL: Duration = Duration::from_secs(3);
const MAX_TTL: Duration = Duration::from_secs(10);

struct Scene {
    time: SimTime,
    nodes: Vec<MemoryNode>,
}

fn fleet(nodes: usize, max_ttl: Duration) -> FleetConfig {
    FleetConfig {
        layout: 2,
        nodes,
        max_ttl,
        expiry: Expiry::Server,
        generation: 1,
        guard: RestartGuard::Call,
        raw_keys: false,
        drift_ppm: 10_000,
        failover: false,
    }
}

impl Scene {
    fn new(nodes: usize) -> Self {
        let time = SimTime::new();
        let node = |n| MemoryNode::new(format!("n{n}"), time.clock());
        let nodes = (0..nodes).map(node).collect();
        Self { time, nodes }
    }

    fn client(&self, seed: u64) -> Locks {
        self.client_of(seed, fleet(self.nodes.len(), MAX_TTL))
    }

    fn client_of(&self, seed: u64, fleet: FleetConfig) -> Locks {
        self.client_over(self.lines(&fleet), seed, fleet)
    }

    /// The nodes as a program of this fleet reaches them.
    fn lines(&self, fleet: &FleetConfig) -> Vec<Arc<dyn Node>> {
        let guard = GuardSettings {
            mode: RestartGuard::Call,
            config: fleet.to_string(),
        };
        let line = |node: &MemoryNode| {
            let line = node.clone().guarded(guard.clone());
            Arc::new(line) as Arc<dyn Node>
        };
        self.nodes.iter().map(line).collect()
    }

    fn client_over(&self, lines: Vec<Arc<dyn Node>>, seed: u64, fleet: FleetConfig) -> Locks {
        Locks::over(lines)
            .timing(Timing {
                ttl: TTL,
                max_ttl: fleet.max_ttl,
                ..Timing::default()
            })
            .clock(self.time.clock())
            .chance(Chance::seeded(seed))
            .keeper_here(Spawn::system())
            .guarded(fleet)
            .start()
            .unwrap()
    }

    async fn pass(&self, time: Duration) {
        self.time.clock().sleep(time).await;
    }

    /// Until every node votes; how long it took.
    async fn until_admitted(&self, locks: &Locks) -> Duration {
        let start = self.time.elapsed();
        for _ in 0..10_000 {
            let nodes = locks.admissions().await.unwrap();
            if nodes.iter().all(|node| node.state.votes()) {
                return self.time.elapsed() - start;
            }
            self.pass(Duration::from_millis(20)).await;
        }
        panic!("never admitted: {:?}", locks.admissions().await);
    }
}

/// A node that shows something else whenever it is looked at, while it is `restless`.
struct Restless {
    line: Arc<dyn Node>,
    restless: Arc<AtomicBool>,
    looks: AtomicUsize,
}

#[async_trait]
impl Node for Restless {
    fn name(&self) -> &str {
        self.line.name()
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        let mut reply = self.line.call(call).await?;
        for answer in &mut reply.answers {
            if let Answer::Admission(shown) = answer
                && self.restless.load(Ordering::SeqCst)
            {
                // Nothing is decided by it on a node that votes.
                let look = self.looks.fetch_add(1, Ordering::SeqCst);
                shown.nominated_for = Some(format!("fleet {look}"));
            }
        }
        Ok(reply)
    }

    async fn announcements(&self) -> Option<Announcements> {
        self.line.announcements().await
    }
}

async fn refused(locks: &Locks, key: &str) -> String {
    match locks.lock(key).acquire().await {
        Err(error @ LockError::NoQuorum(_)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn g5_first_contact_with_new_nodes_takes_the_longest_lease_and_says_so() {
    let scene = Scene::new(3);
    let locks = scene.client(1);
    scene.pass(Duration::from_secs(2)).await;
    let why = refused(&locks, "a").await;
    assert!(
        why.contains("has lost its memory or is new; votes again in"),
        "{why}"
    );
    let took = scene.until_admitted(&locks).await + Duration::from_secs(2);
    assert!(
        took >= MAX_TTL && took < MAX_TTL + Duration::from_secs(2),
        "{took:?}"
    );
    let lease = locks.lock("a").acquire().await.unwrap();
    // No node remembers anything: tokens begin at the clock.
    assert!(lease.token().0 > 1_000_000_000_000, "{}", lease.token());
}

#[tokio::test(start_paused = true)]
async fn g2_a_node_that_lost_its_memory_is_told_what_the_others_know() {
    let scene = Scene::new(3);
    let (one, two) = (scene.client(1), scene.client(2));
    scene.until_admitted(&one).await;
    // It may have been the other one who admitted them.
    scene.pass(Duration::from_secs(1)).await;
    let lease = one.lock("a").acquire().await.unwrap();
    one.write(&lease, "remember".into(), None).await.unwrap();
    let intent = one.put_doc("intent/x", 1, Duration::from_secs(3600), "stop".into());
    intent.await.unwrap();

    scene.nodes[0].faults().crash();
    scene.pass(TTL).await;
    assert!(lease.is_held(), "two of three remember");
    let took = scene.until_admitted(&two).await + TTL;
    assert!(
        took >= MAX_TTL && took < MAX_TTL + Duration::from_secs(2),
        "{took:?}"
    );
    let shown = &two.look(vec!["lock/a".into()]).await.unwrap()[0];
    for view in shown.nodes.iter().flatten() {
        assert_eq!(view.record.body, "remember");
    }
    let seen = two.admissions().await.unwrap();
    assert_ne!(
        seen[0].memory_loss, None,
        "inherited from the first contact"
    );

    // The others forget, one after the other: what is known survives them all.
    for node in &scene.nodes[1..] {
        node.faults().flush();
        scene.pass(TTL).await;
        scene.until_admitted(&two).await;
        scene.pass(TTL).await;
    }
    assert!(lease.is_held(), "a rolling restart ends no lease");
    let docs = two.docs("intent/").await.unwrap();
    assert_eq!(docs.len(), 1);
    assert!(lease.is_held());
    let token = lease.token();
    lease.release().await;
    let next = two.lock("a").acquire().await.unwrap();
    assert!(next.token() > token);
    assert_eq!(next.record().body, "remember");
}

/// One address of a program leads to a server of another fleet, which is configured differently and has larger tokens.
#[tokio::test(start_paused = true)]
async fn i1_what_a_server_of_another_fleet_knows_is_told_to_no_node() {
    let scene = Scene::new(3);
    let fleet = fleet(3, MAX_TTL);
    let guard = GuardSettings {
        mode: RestartGuard::Call,
        config: fleet.to_string(),
    };
    let reached: Vec<_> = scene
        .nodes
        .iter()
        .map(|n| n.clone().guarded(guard.clone()))
        .collect();
    let links: Vec<_> = reached.iter().map(MemoryNode::link).collect();
    let lines = reached
        .into_iter()
        .map(|line| Arc::new(line) as Arc<dyn Node>);
    let ours = scene.client_over(lines.collect(), 1, fleet);
    scene.until_admitted(&ours).await;
    let lease = ours.lock("a").acquire().await.unwrap();
    ours.write(&lease, "ours".into(), None).await.unwrap();
    let node = |n| MemoryNode::new(format!("n{n}"), scene.time.clock());
    let other = Scene {
        time: scene.time.clone(),
        nodes: (0..3).map(node).collect(),
    };
    let theirs = other.client_of(2, self::fleet(3, MAX_TTL * 2));
    other.until_admitted(&theirs).await;
    let later = theirs.lock("a").acquire().await.unwrap();
    assert!(later.token() > lease.token());
    theirs.write(&later, "theirs".into(), None).await.unwrap();
    let intent = theirs.put_doc("intent/x", 1, Duration::from_secs(3600), "stop".into());
    intent.await.unwrap();
    // What is left of ours is a program that is told a wrong address.
    links.iter().for_each(|link| link.cut(Cut::Refuse));
    scene.nodes[0].faults().restart_keeping_data();
    let mut lines = scene.lines(&fleet);
    lines[2] = other.lines(&fleet).remove(2);
    let astray = scene.client_over(lines, 3, fleet);
    for _ in 0..10_000 {
        let nodes = astray.admissions().await.unwrap();
        if nodes[0].state.votes() {
            break;
        }
        scene.pass(Duration::from_millis(20)).await;
    }
    let nodes = astray.admissions().await.unwrap();
    assert!(nodes[0].state.votes(), "{nodes:?}");
    let shown = &astray.look(vec!["lock/a".into()]).await.unwrap()[0];
    assert_eq!(shown.nodes[0].as_ref().unwrap().record.body, "ours");
    let docs = scene.nodes[0].inspect(|state| state.written().unwrap());
    assert!(!docs.contains("intent/x"), "{docs}");
}

#[tokio::test(start_paused = true)]
async fn g2_another_loss_meanwhile_starts_it_again() {
    let scene = Scene::new(1);
    let locks = scene.client(1);
    scene.until_admitted(&locks).await;
    scene.nodes[0].faults().crash();
    scene.pass(MAX_TTL - Duration::from_secs(1)).await;
    scene.nodes[0].faults().flush();
    let took = scene.until_admitted(&locks).await;
    assert!(took >= MAX_TTL, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn g2_a_silent_node_is_brought_back_when_it_answers() {
    let scene = Scene::new(3);
    let locks = scene.client(1);
    scene.until_admitted(&locks).await;
    let faults = scene.nodes[2].faults();
    faults.crash();
    faults.partition(crate::node::memory::Cut::Refuse);
    scene.pass(MAX_TTL * 3).await;
    faults.heal();
    let took = scene.until_admitted(&locks).await;
    assert!(
        took >= MAX_TTL && took < MAX_TTL + Duration::from_secs(3),
        "{took:?}"
    );
}

/// The last of three nodes has lost its memory, and the second stands still from shortly before the end of its watch. With
/// what the last may have forgotten earlier.
async fn frozen_at_the_end_of_a_watch() -> (Scene, Locks, Option<i64>) {
    let scene = Scene::new(3);
    let locks = scene.client(1);
    scene.until_admitted(&locks).await;
    let before = locks.admissions().await.unwrap()[2].memory_loss;
    scene.nodes[2].faults().crash();
    let left = loop {
        match locks.admissions().await.unwrap()[2].state {
            AdmissionState::Watched { left: Some(left) } if left < MAX_TTL / 2 => break left,
            _ => scene.pass(Duration::from_millis(20)).await,
        }
    };
    let just_before = left.saturating_sub(Duration::from_millis(20));
    scene.pass(just_before).await;
    scene.nodes[1].faults().freeze();
    (scene, locks, before)
}

#[tokio::test(start_paused = true)]
async fn g3_a_node_that_stands_still_for_a_moment_is_waited_for() {
    for ms in [800, 1_500, 4_000] {
        let (scene, locks, before) = frozen_at_the_end_of_a_watch().await;
        scene.pass(Duration::from_millis(ms)).await;
        scene.nodes[1].faults().thaw();
        scene.until_admitted(&locks).await;
        let after = locks.admissions().await.unwrap()[2].memory_loss;
        assert_eq!(after, before, "no other node lost anything: {ms} ms");
        let first = locks.lock("a").acquire().await.unwrap().token();
        let second = locks.lock("b").acquire().await.unwrap().token();
        assert!(second.0 < first.0 + 10, "no jump to the clock");
    }
}

#[tokio::test(start_paused = true)]
async fn i5_a_node_is_not_admitted_before_most_members_show_its_roster_again() {
    let (scene, locks, before) = frozen_at_the_end_of_a_watch().await;
    scene.pass(MAX_TTL * 3).await;
    let last = locks.admissions().await.unwrap().pop().unwrap();
    assert!(!last.state.votes(), "one of three remembers: {last:?}");
    let waits = "it waits for n1";
    assert!(last.state.to_string().ends_with(waits), "{last:?}");
    let why = refused(&locks, "a").await;
    assert!(why.contains(waits), "{why}");
    scene.nodes[1].faults().thaw();
    scene.until_admitted(&locks).await;
    let last = locks.admissions().await.unwrap().pop().unwrap();
    assert_eq!(last.memory_loss, before, "nothing was forgotten by both");
}

#[tokio::test(start_paused = true)]
async fn i4_nothing_is_written_while_a_node_changes_between_two_looks() {
    let scene = Scene::new(3);
    let restless = Arc::new(AtomicBool::new(false));
    let mut lines = scene.lines(&fleet(3, MAX_TTL));
    let changing = Restless {
        line: lines[2].clone(),
        restless: restless.clone(),
        looks: AtomicUsize::default(),
    };
    lines[2] = Arc::new(changing);
    let locks = scene.client_over(lines, 1, fleet(3, MAX_TTL));
    scene.until_admitted(&locks).await;
    restless.store(true, Ordering::SeqCst);
    scene.nodes[0].faults().crash();
    scene.pass(MAX_TTL * 3).await;
    let lost = locks.admissions().await.unwrap().swap_remove(0);
    assert!(!lost.state.votes(), "{lost:?}");
    restless.store(false, Ordering::SeqCst);
    // Not even its roster stood there, without which no watch begins.
    let took = scene.until_admitted(&locks).await;
    assert!(
        took >= MAX_TTL && took < MAX_TTL + Duration::from_secs(3),
        "{took:?}"
    );
}

/// A client of one node that remembers nothing, whose tokens go on from this floor.
async fn alone(scene: &Scene, floor: impl Fn() -> Token + Send + Sync + 'static) -> Locks {
    let guard = GuardSettings {
        mode: RestartGuard::Call,
        config: fleet(1, MAX_TTL).to_string(),
    };
    let line = scene.nodes[0].clone().guarded(guard);
    let locks = Locks::over(vec![Arc::new(line)])
        .timing(Timing {
            ttl: TTL,
            max_ttl: MAX_TTL,
            ..Timing::default()
        })
        .clock(scene.time.clock())
        .keeper_here(Spawn::system())
        .guarded(fleet(1, MAX_TTL))
        .token_floor(floor)
        .start()
        .unwrap();
    scene.until_admitted(&locks).await;
    locks
}

#[tokio::test(start_paused = true)]
async fn g3_tokens_go_on_where_the_user_says_when_nobody_remembers() {
    let scene = Scene::new(1);
    let locks = alone(&scene, || Token(41)).await;
    let lease = locks.lock("a").acquire().await.unwrap();
    assert_eq!(lease.token(), Token(42));
    let blank = locks.admissions().await.unwrap()[0].memory_loss;
    assert!(blank.is_some_and(|before| before <= scene.time.clock().wall().as_millisecond()));
}

#[tokio::test(start_paused = true)]
async fn a_floor_of_tokens_that_panics_keeps_no_node_from_its_vote() {
    let scene = Scene::new(1);
    let locks = alone(&scene, || panic!("no floor")).await;
    let lease = locks.lock("a").acquire().await.unwrap();
    assert!(
        lease.token() > Token(1_000_000),
        "it goes on from the clock"
    );
}

#[tokio::test(start_paused = true)]
async fn g4_a_fleet_that_is_configured_differently_gets_no_vote() {
    let scene = Scene::new(3);
    let ours = scene.client(1);
    scene.until_admitted(&ours).await;
    let theirs = scene.client_of(2, fleet(3, MAX_TTL * 2));
    scene.pass(MAX_TTL * 5).await;
    let why = refused(&theirs, "a").await;
    assert!(why.contains("configured differently"), "{why}");
    let states = theirs.admissions().await.unwrap();
    assert!(
        states[0]
            .state
            .to_string()
            .contains("max_ttl is 10s there and 20s here"),
        "{}",
        states[0].state
    );
    ours.lock("a").acquire().await.unwrap();
}

/// The number of the layout stands first in what is compared: what one version has written is nothing to the other, and stays.
#[tokio::test(start_paused = true)]
async fn g4_a_program_of_another_layout_gets_no_vote_whichever_came_first() {
    let todays = fleet(3, MAX_TTL);
    let later = FleetConfig {
        layout: todays.layout + 1,
        ..todays
    };
    for (first, second, differs) in [
        (todays, later, "the layout of keys is 2 there and 3 here"),
        (later, todays, "the layout of keys is 3 there and 2 here"),
    ] {
        let scene = Scene::new(3);
        let ours = scene.client_of(1, first);
        scene.until_admitted(&ours).await;
        let lease = ours.lock("a").acquire().await.unwrap();
        ours.write(&lease, "remember".into(), None).await.unwrap();
        let theirs = scene.client_of(2, second);
        scene.pass(MAX_TTL * 5).await;
        let why = refused(&theirs, "b").await;
        assert!(why.contains("configured differently"), "{why}");
        assert!(theirs.lock("a").acquire().await.is_err());
        for node in theirs.admissions().await.unwrap() {
            let said = node.state.to_string();
            assert!(said.contains(differs), "{said}");
        }
        assert!(lease.is_held(), "{differs}");
        lease.release().await;
        let next = ours.lock("a").acquire().await.unwrap();
        assert_eq!(next.record().body, "remember");
    }
}

/// Nodes without memory, of which a program of the fleet `by` has closed the first for a founding of its own, and has nominated it.
/// Unless it `forgets`, that one has kept what it knew.
async fn closed_by(scene: &Scene, by: &FleetConfig, forgets: bool) {
    for node in scene.nodes.iter().skip(usize::from(!forgets)) {
        node.faults().crash();
    }
    let line = &scene.lines(by)[0];
    let ask = async |op: Op| {
        let call = Call {
            not_after: None,
            ops: vec![op],
        };
        line.call(call).await.unwrap().answers
    };
    let answers = ask(Op::Admission).await;
    let [Answer::Admission(shown)] = &answers[..] else {
        panic!("{answers:?}")
    };
    let close = Op::Close {
        was: shown.card(),
        nonce: "n-closed".into(),
        config: closed_for(10_000, &by.to_string()),
        forgets,
    };
    assert_eq!(ask(close).await, [Answer::Done]);
    let nominate = Op::Nominate {
        nonce: "n-theirs".into(),
        over: None,
    };
    ask(nominate).await;
}

/// Another fleet of the same nodes, which is configured differently.
fn another() -> FleetConfig {
    FleetConfig {
        expiry: Expiry::Observed,
        ..fleet(3, MAX_TTL)
    }
}

#[tokio::test(start_paused = true)]
async fn g4_a_founding_that_another_fleet_has_begun_and_left_shuts_no_fleet_out() {
    for (was_there, forgets) in [(false, true), (true, true), (true, false)] {
        let scene = Scene::new(3);
        let before = was_there.then(|| scene.client(1));
        if let Some(locks) = &before {
            scene.until_admitted(locks).await;
        }
        closed_by(&scene, &another(), forgets).await;
        let locks = before.unwrap_or_else(|| scene.client(1));
        let took = scene.until_admitted(&locks).await;
        // A newcomer waits first, as for a nomination.
        let most = if was_there { 12 } else { 25 };
        assert!(took >= MAX_TTL, "{took:?}");
        assert!(took < Duration::from_secs(most), "{took:?}");
        locks.lock("a").acquire().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn g4_of_two_fleets_that_are_founded_at_once_on_the_same_nodes_one_comes_to_be() {
    for seed in 0..20 {
        let scene = Scene::new(3);
        let ours = scene.client(seed);
        scene.until_admitted(&ours).await;
        let theirs = scene.client_of(100 + seed, another());
        scene.pass(Duration::from_secs(2)).await;
        closed_by(&scene, &another(), seed % 2 == 0).await;
        let took = scene.until_admitted(&ours).await;
        assert!(took < Duration::from_secs(15), "seed {seed}: {took:?}");
        refused(&theirs, "a").await;
        ours.lock("a").acquire().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn g4_nodes_that_were_closed_remember_everything() {
    let scene = Scene::new(3);
    let ours = scene.client(1);
    scene.until_admitted(&ours).await;
    let blank = ours.admissions().await.unwrap()[0].memory_loss;
    let lease = ours.lock("a").acquire().await.unwrap();
    let token = lease.token();
    lease.release().await;
    drop(ours);
    let guard = GuardSettings {
        mode: RestartGuard::Call,
        config: fleet(3, MAX_TTL * 2).to_string(),
    };
    for node in &scene.nodes {
        // As `doctor --reconfigure` does it.
        let line = node.clone().guarded(guard.clone());
        let call = |ops| crate::node::Call {
            not_after: None,
            ops,
        };
        let shown = line.call(call(vec![Op::Admission])).await.unwrap();
        let Some(Answer::Admission(shown)) = shown.answers.first() else {
            panic!("no answer");
        };
        let close = Op::Close {
            was: shown.card(),
            nonce: "c105ed0000000000".to_owned(),
            config: crate::node::guard::closed(10_000),
            forgets: false,
        };
        let reply = line.call(call(vec![close])).await.unwrap();
        assert_eq!(reply.answers, [Answer::Done]);
    }
    let theirs = scene.client_of(2, fleet(3, MAX_TTL * 2));
    scene.pass(TTL).await;
    refused(&theirs, "a").await;
    let took = scene.until_admitted(&theirs).await + TTL;
    assert!(took >= MAX_TTL * 2, "{took:?}");
    let next = theirs.lock("a").acquire().await.unwrap();
    assert!(next.token() > token && next.token().0 < token.0 + 10);
    let seen = theirs.admissions().await.unwrap();
    assert!(
        seen.iter().all(|node| node.memory_loss == blank),
        "{seen:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn g1_a_claim_is_not_confirmed_by_nodes_without_a_vote() {
    let scene = Scene::new(3);
    let locks = scene.client(1);
    scene.until_admitted(&locks).await;
    let claimed = locks.claim(vec![Claim::short("batch/b/1")]).await.unwrap();
    let Some(Claimed::Acquired(lease)) = claimed.into_iter().next() else {
        panic!("not had");
    };
    assert_eq!(lease.verify().await, Ok(()));
    // They show what they knew some time ago: the claim may have been another's since.
    for node in &scene.nodes[..2] {
        let faults = node.faults();
        faults.restart_with(faults.snapshot());
    }
    let VerifyError::Unsure { needed, failed, .. } = lease.verify().await.unwrap_err() else {
        panic!("nor denied");
    };
    assert_eq!((needed, failed), (2, Vec::new()), "they answer");
    assert!(lease.is_held());
}

#[test]
fn large_bodies_are_told_a_few_at_a_time() {
    let merge = |length: usize| Op::Merge {
        nonce: "n".into(),
        key: "k".into(),
        record: crate::node::Record {
            body: "x".repeat(length),
            ..crate::node::Record::default()
        },
        retention: Duration::from_secs(1),
    };
    let of = |lengths: &[usize]| {
        super::one_node::at_once(&lengths.iter().copied().map(merge).collect::<Vec<_>>())
    };
    assert_eq!(of(&[10, 20, 30]), 3);
    assert_eq!(of(&[60_000, 5_000, 1_000]), 2);
    assert_eq!(of(&[1_000_000, 1]), 1);
}
