//! Consumers that all read the same messages, in virtual time.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use jiff::SignedDuration;

use super::*;
use crate::{
    acquire::LocksBuilder,
    chance::Chance,
    node::{
        Expiry, GuardSettings, Node, RestartGuard,
        memory::{Cut, MemoryNode},
    },
    settings::{FleetConfig, Timing},
    sim_clock::SimTime,
    spawn::Spawn,
};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(3);
const MAX_TTL: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);

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

    fn locks(&self, seed: u64, fleet: Option<FleetConfig>) -> Locks {
        let line = |node: &MemoryNode| {
            let node = node.clone();
            let node = match &fleet {
                Some(fleet) => node.guarded(GuardSettings {
                    mode: RestartGuard::Call,
                    config: fleet.to_string(),
                }),
                None => node,
            };
            Arc::new(node) as Arc<dyn Node>
        };
        let locks = self.over(self.nodes.iter().map(line).collect(), seed);
        match fleet {
            Some(fleet) => locks.guarded(fleet),
            None => locks,
        }
        .start()
        .unwrap()
    }

    fn over(&self, lines: Vec<Arc<dyn Node>>, seed: u64) -> LocksBuilder {
        Locks::over(lines)
            .timing(Timing {
                ttl: TTL,
                max_ttl: MAX_TTL,
                ..Timing::default()
            })
            .clock(self.time.clock())
            .chance(Chance::seeded(seed))
            .keeper_here(Spawn::system())
    }

    /// A consumer that keeps final records for an hour.
    fn consumer(&self, seed: u64) -> Once {
        Once::new(&self.locks(seed, None), "orders", HOUR)
    }

    fn now(&self) -> Timestamp {
        self.time.clock().wall()
    }

    /// So long ago.
    fn ago(&self, ago: Duration) -> Timestamp {
        self.now() - SignedDuration::try_from(ago).unwrap()
    }

    async fn pass(&self, time: Duration) {
        self.time.clock().sleep(time).await;
    }
}

async fn ours(once: &Once, id: &str, at: Timestamp) -> Work {
    match once.claim(id, at).await.unwrap() {
        Claim::Ours(work) => work,
        other => panic!("{other:?}"),
    }
}

/// Breaks the claim as a person does, from outside.
async fn broken(by: &Once, work: &Work) {
    let (key, owner) = (work.key().to_owned(), work.owner().to_owned());
    let report = by.locks.break_lease(&key, &owner, true).await.unwrap();
    assert!(report.is_told());
}

#[tokio::test(start_paused = true)]
async fn one_of_many_consumers_handles_a_message() {
    let scene = Scene::new();
    let at = scene.now();
    let consume = |seed: u64| {
        let once = scene.consumer(seed);
        let clock = scene.time.clock();
        async move {
            let mut handled = Vec::new();
            for n in 0..40 {
                // Each begins elsewhere, as replicas do.
                let n = (n + 8 * seed) % 40;
                let id = format!("{at}-{n}");
                loop {
                    match once.claim(&id, at).await {
                        Ok(Claim::Ours(work)) => {
                            let pause = clock.sleep(Duration::from_millis(seed));
                            let work = work.run(async {
                                pause.await;
                                Ok::<_, ()>(())
                            });
                            work.await.unwrap().unwrap();
                            handled.push(id.clone());
                        }
                        Ok(Claim::Done) => break,
                        Ok(Claim::Held { .. }) | Err(LockError::TooSlow) => {
                            clock.sleep(Duration::from_millis(5 + seed)).await;
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            handled
        }
    };
    let handled: Vec<Vec<String>> = join_all((1..=5).map(consume)).await;
    assert!(handled.iter().all(|by_one| by_one.len() < 40));
    let mut all: Vec<String> = handled.into_iter().flatten().collect();
    all.sort();
    let before = all.len();
    all.dedup();
    assert_eq!((before, all.len()), (40, 40));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_lost_writes_no_final_record() {
    let scene = Scene::new();
    let (one, two) = (scene.consumer(1), scene.consumer(2));
    let at = scene.now();
    let work = ours(&one, "a", at).await;
    broken(&two, &work).await;
    work.done().await.unwrap_err();
    ours(&two, "a", at).await.done().await.unwrap();
    assert!(matches!(one.claim("a", at).await.unwrap(), Claim::Done));
}

#[tokio::test(start_paused = true)]
async fn a_lost_claim_cancels_its_work() {
    /// Notes that it was dropped.
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let scene = Scene::new();
    let (one, two) = (scene.consumer(1), scene.consumer(2));
    let at = scene.now();
    let work = ours(&one, "a", at).await;
    let dropped = Arc::new(AtomicBool::new(false));
    let of_work = Dropped(dropped.clone());
    let (view, by) = (work.lease.view().clone(), two.clone());
    let running = work.run(async move {
        let _here = of_work;
        std::future::pending::<Result<(), ()>>().await
    });
    let breaking = async move {
        let (key, owner) = (view.key().to_owned(), view.owner().to_owned());
        by.locks.break_lease(&key, &owner, true).await.unwrap();
    };
    let (ended, ()) = tokio::join!(running, breaking);
    ended.unwrap_err();
    assert!(dropped.load(Ordering::SeqCst));
    assert_eq!(ours(&two, "a", at).await.failures(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_message_of_a_dead_consumer_is_handled_by_another() {
    let scene = Scene::new();
    let two = scene.consumer(2);
    // A clone is a connection of its own.
    let own = scene.nodes.clone();
    let links: Vec<_> = own.iter().map(MemoryNode::link).collect();
    let lines = own.into_iter().map(|node| Arc::new(node) as Arc<dyn Node>);
    let one = Once::new(
        &scene.over(lines.collect(), 1).start().unwrap(),
        "orders",
        HOUR,
    );
    let at = scene.now();
    let _work = ours(&one, "a", at).await;
    // Its process ends without a word: nothing extends the lease any more.
    links.iter().for_each(|link| link.cut(Cut::Refuse));
    let began = scene.time.elapsed();
    loop {
        match two.claim("a", at).await.unwrap() {
            Claim::Ours(work) => break work.done().await.unwrap(),
            Claim::Held { .. } if scene.time.elapsed() - began < HOUR => {
                scene.pass(SECOND / 5).await;
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_failed_is_handled_again_by_another_consumer_after_its_pause() {
    let scene = Scene::new();
    let (one, two) = (scene.consumer(1), scene.consumer(2));
    let at = scene.now();
    let work = ours(&one, "a", at).await;
    work.failed(10 * SECOND, true).await.unwrap();
    let Claim::Held { for_at_most } = two.claim("a", at).await.unwrap() else {
        panic!("its pause is not over");
    };
    assert!(for_at_most.is_some_and(|left| left <= 10 * SECOND && left > 9 * SECOND));
    scene.pass(10 * SECOND).await;
    let work = ours(&two, "a", at).await;
    assert_eq!(work.failures(), 1);
    // What says nothing of its own is tried again at once, and counts no attempt.
    let failed = work.run(async { Err::<(), _>("no") }).await.unwrap();
    assert_eq!(failed, Err("no"));
    assert_eq!(ours(&one, "a", at).await.failures(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_final_record_may_be_forgotten_is_refused_as_too_old() {
    let scene = Scene::new();
    let (one, two) = (scene.consumer(1), scene.consumer(2));
    let at = scene.now();
    ours(&one, "a", at).await.done().await.unwrap();
    scene.pass(HOUR - SECOND).await;
    assert!(matches!(two.claim("a", at).await.unwrap(), Claim::Done));
    scene.pass(2 * SECOND).await;
    assert!(matches!(two.claim("a", at).await.unwrap(), Claim::TooOld));
    scene.pass(MARGIN * 2).await;
    let seen = two.locks.look(vec!["once/orders/a".to_owned()]);
    let seen = seen.await.unwrap();
    let body = seen[0].record().body;
    assert_eq!(body, "", "nothing would keep it from being handled again");
    assert!(matches!(two.claim("a", at).await.unwrap(), Claim::TooOld));
}

#[tokio::test(start_paused = true)]
async fn who_wants_what_is_too_old_gets_it_once_and_is_told() {
    let scene = Scene::new();
    let consumer = |seed| scene.consumer(seed).claiming_what_is_too_old();
    let (one, two) = (consumer(1), consumer(2));
    let at = scene.now();
    ours(&one, "done", at).await.done().await.unwrap();
    let work = ours(&one, "failed", at).await;
    assert!(!work.is_too_old());
    // Its next attempt would come too late.
    work.failed(HOUR * 2, true).await.unwrap();
    scene.pass(HOUR + SECOND).await;
    assert!(matches!(two.claim("done", at).await.unwrap(), Claim::Done));
    for id in ["failed", "never seen"] {
        let work = ours(&two, id, at).await;
        assert!(work.is_too_old());
        let claim = one.claim(id, at).await.unwrap();
        assert!(matches!(claim, Claim::Held { .. }), "{claim:?}");
        work.done().await.unwrap();
        assert!(matches!(one.claim(id, at).await.unwrap(), Claim::Done));
    }
}

#[tokio::test(start_paused = true)]
async fn a_message_that_was_handled_late_is_remembered_for_as_long_as_it_is_accepted() {
    let scene = Scene::new();
    let (one, two) = (scene.consumer(1), scene.consumer(2));
    let at = scene.ago(HOUR - 2 * SECOND);
    ours(&one, "a", at).await.done().await.unwrap();
    scene.pass(SECOND).await;
    assert!(matches!(two.claim("a", at).await.unwrap(), Claim::Done));
    // What another's clock still takes for young enough is remembered as well.
    scene.pass(MARGIN).await;
    let seen = two.locks.look(vec!["once/orders/a".to_owned()]);
    assert_ne!(seen.await.unwrap()[0].record().body, "");
    assert!(matches!(two.claim("a", at).await.unwrap(), Claim::TooOld));
}

#[tokio::test(start_paused = true)]
async fn a_message_dated_ahead_is_accepted_for_as_long_as_its_record_can_be_kept() {
    let scene = Scene::new();
    let (one, two) = (scene.consumer(1), scene.consumer(2));
    let ahead = |hours| scene.now() + SignedDuration::from_hours(hours);
    let at = ahead(2);
    ours(&one, "a", at).await.done().await.unwrap();
    scene.pass(HOUR * 3 - SECOND).await;
    assert!(matches!(two.claim("a", at).await.unwrap(), Claim::Done));
    // Records that a dead consumer leaves are kept for a day.
    let Claim::Held { for_at_most } = one.claim("b", ahead(24)).await.unwrap() else {
        panic!("its record would be forgotten before it is too old");
    };
    assert_eq!(for_at_most, Some(HOUR + MARGIN));
}

#[tokio::test(start_paused = true)]
async fn a_retention_beyond_that_of_the_nodes_is_refused() {
    let scene = Scene::new();
    let once = Once::new(&scene.locks(1, None), "orders", HOUR * 24);
    let refused = once.claim("a", scene.now()).await.unwrap_err();
    let longest = HOUR * 24 - MARGIN;
    assert_eq!(refused, LockError::RetentionTooLong { longest });
    assert!(refused.to_string().contains("locks.retention"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn a_slash_in_a_name_is_none_of_an_id() {
    let scene = Scene::new();
    let (locks, at) = (scene.locks(1, None), scene.now());
    let (one, two) = (Once::new(&locks, "a/b", HOUR), Once::new(&locks, "a", HOUR));
    ours(&one, "c", at).await.done().await.unwrap();
    ours(&two, "b/c", at).await.done().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_shortest_retention_that_any_consumer_shows_counts() {
    let scene = Scene::new();
    let (one, at) = (scene.consumer(1), scene.now());
    let short = Once::new(&scene.locks(2, None), "orders", HOUR / 2);
    ours(&short, "a", at).await.done().await.unwrap();
    assert!(matches!(one.claim("a", at).await.unwrap(), Claim::Done));
    let older = scene.ago(HOUR / 2 + SECOND);
    assert!(matches!(
        one.claim("b", older).await.unwrap(),
        Claim::TooOld
    ));
}

#[tokio::test(start_paused = true)]
async fn a_shorter_retention_counts_until_what_was_handled_under_it_is_too_old() {
    let scene = Scene::new();
    let (one, at) = (scene.consumer(1), scene.now());
    let short = Once::new(&scene.locks(2, None), "orders", HOUR / 2);
    ours(&short, "a", at).await.done().await.unwrap();
    assert!(matches!(one.claim("a", at).await.unwrap(), Claim::Done));
    scene.pass(HOUR - SECOND).await;
    let older = || scene.ago(HOUR / 2 + SECOND);
    let claim = one.claim("b", older()).await.unwrap();
    assert!(matches!(claim, Claim::TooOld), "{claim:?}");
    // The other one was given the same retention long ago.
    scene.pass(SECOND).await;
    ours(&one, "c", older()).await.done().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_message_from_before_a_loss_of_memory_is_refused() {
    let scene = Scene::new();
    let fleet = FleetConfig {
        layout: 2,
        nodes: 3,
        max_ttl: MAX_TTL,
        expiry: Expiry::Observed,
        generation: 1,
        guard: RestartGuard::Call,
        raw_keys: false,
        drift_ppm: 10_000,
        failover: false,
    };
    let locks = scene.locks(1, Some(fleet));
    let once = Once::new(&locks, "orders", HOUR);
    let admitted = async || {
        while !locks
            .admissions()
            .await
            .unwrap()
            .iter()
            .all(|node| node.state.votes())
        {
            scene.pass(SECOND / 10).await;
        }
    };
    let before = scene.now();
    admitted().await;
    // A new store may be one that has forgotten all.
    let claim = once.claim("a", before).await.unwrap();
    assert!(matches!(claim, Claim::TooOld), "{claim:?}");
    scene.pass(2 * SECOND).await;
    let at = scene.now();
    ours(&once, "b", at).await.done().await.unwrap();
    // One node alone: the others remember.
    scene.nodes[0].faults().crash();
    scene.pass(MAX_TTL * 2).await;
    admitted().await;
    ours(&once, "c", at).await.done().await.unwrap();
    // All of them at once.
    scene.nodes.iter().for_each(|node| node.faults().crash());
    scene.pass(SECOND).await;
    admitted().await;
    for id in ["b", "c", "d"] {
        let claim = once.claim(id, at).await.unwrap();
        assert!(matches!(claim, Claim::TooOld), "{id}: {claim:?}");
    }
    scene.pass(2 * SECOND).await;
    ours(&once, "e", scene.now()).await.done().await.unwrap();
}
