//! Elections, terms and their ends, each promise by its name.

use std::{sync::Arc, time::Duration};

use super::world::{TTL, World};
use crate::{
    election::Elector,
    event::Event,
    job::Spec,
    lease::Loss,
    lock::{Claim, Claimed},
    testing::cluster::Cluster,
};

use super::acts::{Starts, holder, leader, ms, patient, quick};

#[tokio::test(start_paused = true)]
async fn term_ends_with_its_lease() {
    let fleet = Cluster::new(3);
    let member = fleet.join("a", patient(), Spec::continuous());
    leader(&fleet, &[&member]).await;
    fleet.nodes.iter().for_each(|n| n.faults().freeze());
    let (_, lease) = member.ctx.local_status.leases().remove(0);
    fleet.sleep(TTL).await;
    assert_eq!(lease.loss(), Some(Loss::Expired));
    assert!(!member.leads());
    assert_eq!(*member.aborts.lock().unwrap(), 0, "the run ended in time");
}

#[tokio::test(start_paused = true)]
async fn a_lease_ends_at_its_deadline() {
    let fleet = Cluster::new(3);
    let member = fleet.join("a", patient(), Spec::continuous());
    let lease = member.ctx.locks.lock("x").acquire().await.unwrap();
    fleet.nodes.iter().for_each(|n| n.faults().freeze());
    let deadline = lease.valid_until();
    assert_eq!(lease.lost().await, Loss::Expired);
    let now = member.ctx.clock.now();
    assert!(now >= deadline, "not before");
    assert!(now.since(deadline) <= ms(2), "{:?}", now.since(deadline));
}

#[tokio::test(start_paused = true)]
async fn the_clock_ends_a_lease_before_any_message() {
    let fleet = Cluster::new(3);
    let member = fleet.join("a", patient(), Spec::continuous());
    leader(&fleet, &[&member]).await;
    let (_, lease) = member.ctx.local_status.leases().remove(0);
    member.tasks.freeze();
    fleet.sleep(TTL).await;
    // Nothing of the process has run since, and still no code is told that it leads.
    assert!(!lease.is_held() && lease.remaining().is_zero());
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_stays_lost() {
    let fleet = Cluster::new(3);
    let member = fleet.join("a", patient(), Spec::continuous());
    let lease = member.ctx.locks.lock("x").acquire().await.unwrap();
    fleet.nodes.iter().for_each(|n| n.faults().freeze());
    assert_eq!(lease.lost().await, Loss::Expired);
    fleet.nodes.iter().for_each(|n| n.faults().thaw());
    fleet.sleep(TTL).await;
    assert_eq!(lease.loss(), Some(Loss::Expired));
    let now = member.ctx.clock.now();
    assert!(
        !lease.view().extended(now, now + TTL, 0),
        "no extension revives it"
    );
}

#[tokio::test(start_paused = true)]
async fn an_extension_counts_from_its_first_byte() {
    let fleet = Cluster::new(3);
    let member = fleet.join("a", patient(), Spec::continuous());
    let lease = member.ctx.locks.lock("x").acquire().await.unwrap();
    for node in &fleet.nodes {
        node.faults().delay_replies(ms(30), ms(30));
    }
    let mut events = member.ctx.events.observe();
    loop {
        if let Event::Renewed {
            resource, took, ok, ..
        } = events.recv().await.unwrap()
            && resource == "lock"
        {
            assert!(ok && took >= ms(30));
            break;
        }
    }
    // The replies took 30 ms: so much of the new lease is gone already.
    let most = World::timing().valid_until(member.ctx.clock.now(), TTL);
    assert!(
        lease.valid_until() <= most.back(ms(30)),
        "{:?}",
        lease.remaining()
    );
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_released_after_its_work() {
    let fleet = Cluster::new(3);
    let member = fleet.join("a", patient(), Spec::continuous());
    let lease = member.ctx.locks.lock("x").acquire().await.unwrap();
    let view = lease.view().clone();
    let work = lease.begin_work();
    drop(lease);
    fleet.sleep(ms(100)).await;
    assert_eq!(view.loss(), Some(Loss::Released), "the belief ends at once");
    let held = || fleet.nodes.iter().any(|n| holder(n).is_some());
    assert!(held(), "the nodes are told when the work has gone");
    drop(work);
    fleet.sleep(ms(100)).await;
    assert!(!held());
}

#[tokio::test(start_paused = true)]
async fn work_that_cannot_be_stopped_ends_the_process_before_its_lease() {
    let fleet = Cluster::new(3);
    let member = fleet.join("a", patient(), Spec::continuous());
    let lease = member.ctx.locks.lock("x").acquire().await.unwrap();
    let _work = lease.begin_work();
    fleet.nodes.iter().for_each(|n| n.faults().freeze());
    let deadline = lease.valid_until();
    while *member.aborts.lock().unwrap() == 0 {
        fleet.sleep(ms(1)).await;
    }
    let left = deadline - member.ctx.clock.now();
    assert!(left > Duration::ZERO, "aborted after the lease had ended");
    assert!(
        left <= World::timing().abort_margin(TTL),
        "aborted too early: {left:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_attempt_leaves_nothing() {
    let fleet = Cluster::new(3);
    let member = fleet.join("a", patient(), Spec::continuous());
    // Two nodes are held by another owner; the third grants, and its reply is lost.
    for node in &fleet.nodes[..2] {
        node.faults().plant("lock/x", "foreign", None);
    }
    fleet.nodes[2].faults().lose_replies(1.0);
    let error = member.ctx.locks.lock("x").acquire().await.unwrap_err();
    assert!(error.to_string().contains("held by foreign"), "{error}");
    fleet.nodes[2].faults().lose_replies(0.0);
    fleet.sleep(TTL / 4).await;
    let node = &fleet.nodes[2];
    assert_eq!(holder(node), None);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_acquire_leaves_nothing() {
    let fleet = Cluster::new(3);
    let member = fleet.join("a", patient(), Spec::continuous());
    for node in &fleet.nodes {
        node.faults().delay_replies(ms(20), ms(20));
    }
    let acquire = member.ctx.locks.lock("x").acquire();
    assert!(member.ctx.clock.timeout(ms(5), acquire).await.is_err());
    // A process that ends now waits for this much, and no longer.
    member.ctx.locks.settle().await;
    for node in &fleet.nodes {
        assert_eq!(holder(node), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_loop_never_ends() {
    let fleet = Cluster::new(3);
    let (a, b) = (
        fleet.join("a", patient(), Spec::continuous()),
        fleet.join("b", patient(), Spec::continuous()),
    );
    leader(&fleet, &[&a, &b]).await;
    // Every store call fails, for long.
    fleet.nodes.iter().for_each(|n| n.faults().fail_all());
    fleet.sleep(TTL).await;
    let calls = |fleet: &Cluster| fleet.nodes.iter().map(|n| n.executed()).sum::<u64>();
    assert!(!a.leads() && !b.leads(), "no leader without a store");
    let before = calls(&fleet);
    fleet.sleep(TTL * 60).await;
    assert!(!a.leads() && !b.leads());
    // No busy loop: two replicas, three nodes, sixty ttl.
    assert!(
        calls(&fleet) - before < 60 * 200,
        "{} calls",
        calls(&fleet) - before
    );
    fleet.nodes.iter().for_each(|n| n.faults().fail_none());
    let start = fleet.time.elapsed();
    leader(&fleet, &[&a, &b]).await;
    assert!(fleet.time.elapsed() - start <= TTL + ms(1000));
}

#[tokio::test(start_paused = true)]
async fn an_unfit_replica_does_not_campaign() {
    let fleet = Cluster::new(3);
    let member = fleet.join("a", patient(), Spec::continuous());
    leader(&fleet, &[&member]).await;
    let fitness = member.ctx.locks.fitness();
    fitness.report("disk", Err("full".to_owned()));
    fleet.sleep(TTL * 5).await;
    assert!(!member.leads());
    assert!(member.heard(
        |e| matches!(e, Event::StandingBy { why: Loss::Unfit(why), .. } if why.contains("full"))
    ));
    fitness.report("disk", Ok(()));
    leader(&fleet, &[&member]).await;
}

#[tokio::test(start_paused = true)]
async fn a_stalled_runtime_hands_over_although_its_keeper_lives() {
    let fleet = Cluster::new(3);
    let (a, b) = (
        fleet.join("a", patient(), Spec::continuous()),
        fleet.join("b", patient(), Spec::continuous()),
    );
    let first = leader(&fleet, &[&a, &b]).await;
    let other = if first.leads() && std::ptr::eq(first, &a) {
        &b
    } else {
        &a
    };
    let fitness = first.ctx.locks.fitness();
    // One beat, then none.
    fitness.expect_beats(Some(TTL / 4));
    fitness.beat();
    let start = fleet.time.elapsed();
    leader(&fleet, &[other]).await;
    // Sooner than the lease alone would end: it was released when its work had ended.
    assert!(
        fleet.time.elapsed() - start < TTL,
        "{:?}",
        fleet.time.elapsed() - start
    );
}

#[tokio::test(start_paused = true)]
async fn standby_takes_over_within_one_ttl() {
    let fleet = Cluster::new(3);
    let (a, b) = (
        fleet.join("a", patient(), Spec::continuous()),
        fleet.join("b", patient(), Spec::continuous()),
    );
    let first = leader(&fleet, &[&a, &b]).await;
    let other = if std::ptr::eq(first, &a) { &b } else { &a };
    first.tasks.crash();
    let start = fleet.time.elapsed();
    leader(&fleet, &[other]).await;
    assert!(
        fleet.time.elapsed() - start <= TTL + ms(50),
        "{:?}",
        fleet.time.elapsed() - start
    );
}

#[tokio::test(start_paused = true)]
async fn a_failover_gate_keeps_the_standby_from_every_job() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let body = || crate::worker::ready::Body::Job(Arc::new(quick(&starts)));
    let spec =
        || Spec::every(Duration::from_secs(1)).coordination(crate::job::Coordination::Everywhere);
    let a = fleet.join_with("a", vec![("job", body(), spec())], true);
    fleet.sleep(ms(200)).await;
    let b = fleet.join_with("b", vec![("job", body(), spec())], true);
    fleet.sleep(Duration::from_secs(4)).await;
    assert!(
        !b.heard(|e| matches!(e, Event::RunStarted { .. })),
        "the standby runs nothing"
    );
    a.drain();
    fleet.sleep(Duration::from_secs(3)).await;
    assert!(
        b.heard(|e| matches!(e, Event::RunStarted { .. })),
        "it takes over"
    );
    starts.assert_once();
}

#[tokio::test(start_paused = true)]
async fn a_claimer_gets_no_lock_that_a_majority_refuses() {
    let fleet = Cluster::new(5);
    let member = fleet.join("a", patient(), Spec::continuous());
    for node in &fleet.nodes[..3] {
        node.faults().plant("lock/x", "foreign", Some(TTL));
    }
    let claimed = member
        .ctx
        .locks
        .claim(vec![Claim::named("lock/x")])
        .await
        .unwrap();
    assert!(matches!(&claimed[..], [Claimed::Held { by: Some(by), .. }] if by == "foreign"));
    let elected = Elector::for_key(&member.ctx.locks, "lock/x".to_owned())
        .campaign()
        .await
        .unwrap();
    assert!(elected.is_leading(), "it waited for the foreign key to end");
}

#[tokio::test(start_paused = true)]
async fn an_active_replica_that_loses_its_store_stands_down_and_lives() {
    let fleet = Cluster::new(3);
    let body = || crate::worker::ready::Body::Job(Arc::new(patient()));
    let everywhere = || Spec::continuous().coordination(crate::job::Coordination::Everywhere);
    let jobs = vec![
        ("led", body(), Spec::continuous()),
        ("each", body(), everywhere()),
    ];
    let member = fleet.join_with("a", jobs, true);
    leader(&fleet, &[&member]).await;
    fleet.sleep(ms(100)).await;
    fleet.nodes.iter().for_each(|n| n.faults().freeze());
    fleet.sleep(TTL * 5).await;
    assert_eq!(
        *member.aborts.lock().unwrap(),
        0,
        "everything was stopped in time"
    );
    assert!(!member.leads());
    fleet.nodes.iter().for_each(|n| n.faults().thaw());
    leader(&fleet, &[&member]).await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_named_twice_in_one_call_is_acquired_once() {
    let fleet = Cluster::new(3);
    let member = fleet.join("a", patient(), Spec::continuous());
    let twice = vec![
        Claim::named("lock/x"),
        Claim::named("lock/y"),
        Claim::named("lock/x"),
    ];
    let claimed = member.ctx.locks.claim(twice).await.unwrap();
    assert!(
        matches!(
            &claimed[..],
            [Claimed::Acquired(x), Claimed::Acquired(y), Claimed::Held { .. }]
                if x.key() == "lock/x" && y.key() == "lock/y"
        ),
        "{claimed:?}"
    );
}
