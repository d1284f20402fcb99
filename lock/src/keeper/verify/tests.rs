use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::*;
use crate::{
    acquire::Locks,
    chance::Chance,
    lease::Lease,
    node::{Call, Node, memory::MemoryNode},
    quorum::{Claim, Claimed},
    sim_clock::SimTime,
    spawn::Spawn,
};

const TTL: Duration = Duration::from_secs(3);

struct Scene {
    time: SimTime,
    nodes: Vec<MemoryNode>,
}

impl Scene {
    fn new() -> Self {
        let time = SimTime::new();
        let node = |n| MemoryNode::new(format!("n{n}"), time.clock());
        let nodes = (0..3).map(node).collect();
        Self { time, nodes }
    }

    fn client(&self, seed: u64) -> Locks {
        let lines = self.nodes.clone().into_iter();
        Locks::over(lines.map(|n| Arc::new(n) as Arc<dyn Node>).collect())
            .clock(self.time.clock())
            .chance(Chance::seeded(seed))
            .keeper_here(Spawn::system())
            .start()
            .unwrap()
    }

    /// How many reads the first node has executed, and in how many calls, from now on.
    fn reads(&self) -> (Arc<AtomicUsize>, Arc<AtomicUsize>) {
        let (reads, calls) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let seen = (reads.clone(), calls.clone());
        self.nodes[0].observe(move |executed| {
            let ops = executed.call.ops.iter();
            let some = ops.filter(|op| matches!(op, Op::Read { .. })).count();
            seen.0.fetch_add(some, Ordering::SeqCst);
            seen.1.fetch_add(usize::from(some > 0), Ordering::SeqCst);
        });
        (reads, calls)
    }
}

async fn lease(locks: &Locks) -> Lease {
    locks.lock("a").ttl(TTL).acquire().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_confirmed_by_a_majority_that_shows_it() {
    let scene = Scene::new();
    let locks = scene.client(1);
    let lease = lease(&locks).await;
    assert_eq!(lease.verify().await, Ok(()));
    // One node of three may be silent, or may have forgotten.
    scene.nodes[2].faults().freeze();
    assert_eq!(lease.verify().await, Ok(()));
    let start = scene.time.elapsed();
    assert_eq!(lease.verify().await, Ok(()));
    assert!(scene.time.elapsed() - start < Duration::from_millis(5));
}

#[tokio::test(start_paused = true)]
async fn too_few_answers_confirm_nothing_and_end_nothing() {
    let scene = Scene::new();
    let locks = scene.client(1);
    let lease = lease(&locks).await;
    scene.nodes[1..].iter().for_each(|n| n.faults().freeze());
    let start = scene.time.elapsed();
    let error = lease.verify().await.unwrap_err();
    let took = scene.time.elapsed() - start;
    assert!(took <= locks.timing().node_timeout + Duration::from_millis(5));
    let VerifyError::Unsure {
        confirmed,
        needed,
        failed,
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((confirmed, needed, failed.len()), (1, 2, 2));
    assert!(lease.is_held() && lease.may_start());
    scene.nodes.iter().for_each(|n| n.faults().thaw());
    while lease.verify().await.is_err() {
        scene.time.clock().sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_a_majority_gave_to_another_ends_at_once() {
    let scene = Scene::new();
    let (locks, operator) = (scene.client(1), scene.client(2));
    let lease = lease(&locks).await;
    // Two believe, as they never should.
    for node in &scene.nodes {
        let release = Op::Release {
            key: "lock/a".into(),
            owner: lease.owner().to_owned(),
            kind: Kind::Lock,
            marked: TTL,
            retention: TTL,
        };
        let call = Call {
            not_after: None,
            ops: vec![release],
        };
        node.call(call).await.unwrap();
    }
    let _other = operator.lock("a").ttl(TTL).acquire().await.unwrap();
    assert!(lease.is_held(), "it does not know yet");
    let lost = Err(VerifyError::Lost(Loss::Taken));
    assert_eq!(lease.verify().await, lost);
    assert_eq!(lease.loss(), Some(Loss::Taken));
    assert_eq!(lease.verify().await, lost, "without asking again");
}

#[tokio::test(start_paused = true)]
async fn a_broken_lease_is_not_confirmed_although_its_key_still_stands() {
    let scene = Scene::new();
    let (locks, operator) = (scene.client(1), scene.client(2));
    let lease = lease(&locks).await;
    let broken = operator.break_lease("lock/a", lease.owner(), false).await;
    broken.unwrap();
    assert_eq!(lease.verify().await, Err(VerifyError::Lost(Loss::Taken)));
}

#[tokio::test(start_paused = true)]
async fn nodes_that_forgot_neither_confirm_nor_deny() {
    let scene = Scene::new();
    let locks = scene.client(1);
    let lease = lease(&locks).await;
    scene.nodes[..2].iter().for_each(|n| n.faults().crash());
    scene.nodes[..2]
        .iter()
        .for_each(|n| n.faults().restart_keeping_data());
    let error = lease.verify().await.unwrap_err();
    assert!(matches!(error, VerifyError::Unsure { .. }), "{error}");
    assert!(lease.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_over_is_not_asked_about() {
    let scene = Scene::new();
    let locks = scene.client(1);
    let lease = lease(&locks).await;
    let view = lease.view().clone();
    lease.release().await;
    let (reads, _) = scene.reads();
    let released = Err(VerifyError::Lost(Loss::Released));
    assert_eq!(view.verify().await, released);
    assert_eq!(reads.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn many_verifications_share_their_calls() {
    let scene = Scene::new();
    let locks = scene.client(1);
    let names = (0..100).map(|n| Claim::short(format!("batch/b/{n}")));
    let claimed = locks.claim(names.collect()).await.unwrap();
    let leases: Vec<_> = claimed
        .into_iter()
        .filter_map(|claimed| match claimed {
            Claimed::Acquired(lease) => Some(lease),
            _ => None,
        })
        .collect();
    assert_eq!(leases.len(), 100);
    let (reads, calls) = scene.reads();
    // Ten askers for each.
    let asked = (0..1000).map(|n| leases[n % 100].verify());
    let answers = futures_util::future::join_all(asked).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(reads.load(Ordering::SeqCst), 100);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[test]
fn what_a_node_shows_is_for_or_against_or_neither() {
    let lease = |kind| {
        let grant = crate::lease::NewLease {
            key: "k".into(),
            owner: "me".into(),
            token: crate::node::Token(5),
            kind,
            ttl: TTL,
            valid_until: Moment::NEVER,
            margin: 0,
            granted_by: Box::default(),
        };
        LeaseView::new(
            grant,
            crate::clock::Clock::system(),
            crate::lease::KeeperHandle::detached(),
        )
    };
    let (lock, claim) = (lease(Kind::Lock), lease(Kind::Claim));
    let view = |holder: Option<&str>, owner: Option<&str>, released, token| View {
        holder: holder.map(str::to_owned),
        owner: owner.map(str::to_owned),
        released,
        named: true,
        token: crate::node::Token(token),
        ..View::default()
    };
    let by_record = |view: &View, lease: &LeaseView| ballot(view, lease, Expiry::Observed);
    let me = Some("me");
    let vanished = view(None, me, false, 5);
    let by_key = ballot(&vanished, &lock, Expiry::Server);
    assert_eq!(by_key, Ballot::Healed, "a stranger may have come and left");
    assert_eq!(by_record(&view(me, me, false, 5), &lock), Ballot::Yes);
    assert_eq!(by_record(&view(None, me, false, 5), &lock), Ballot::Yes);
    assert_eq!(by_record(&view(me, me, true, 5), &lock), Ballot::No);
    assert_eq!(by_record(&view(Some("x"), me, false, 5), &lock), Ballot::No);
    let broken = View {
        broken: true,
        ..view(me, me, false, 5)
    };
    assert_eq!(by_record(&broken, &lock), Ballot::No);
    let old_copy = View {
        named: false,
        ..view(me, me, false, 5)
    };
    assert_eq!(
        by_record(&old_copy, &lock),
        Ballot::Healed,
        "of a memory that was lost"
    );
    let gone = view(None, Some("x"), true, 6);
    assert_eq!(by_record(&gone, &lock), Ballot::No, "granted after us");
    let lagging = view(None, Some("x"), true, 4);
    assert_eq!(by_record(&lagging, &lock), Ballot::Healed, "was away");
    assert_eq!(
        by_record(&view(None, None, false, 0), &lock),
        Ballot::Healed
    );
    assert_eq!(by_record(&view(me, None, false, 5), &claim), Ballot::Yes);
    assert_eq!(by_record(&view(None, None, false, 0), &claim), Ballot::No);
}
