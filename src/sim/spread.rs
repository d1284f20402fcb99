//! Who leads what in a fleet: shares, priorities, replicas that never lead.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use super::acts::{Act, Moody, Ran, Starts, ms, quick};
use crate::{
    due::Misfire,
    event::Event,
    fleet::{FleetError, Until},
    job::{Coordination, Outcome, Run, Spec},
    testing::{cluster::Cluster, members::Member},
    worker::ready::Body,
};

const SECOND: Duration = Duration::from_secs(1);
const JOBS: [&str; 9] = ["1", "2", "3", "4", "5", "6", "7", "8", "9"];
const MIN_TERM: Duration = Duration::from_secs(3);

/// The starts of each job.
type All = BTreeMap<&'static str, Starts>;

fn all() -> All {
    JOBS.iter().map(|job| (*job, Starts::default())).collect()
}

fn spec() -> Spec {
    // A late leader makes up for every tick: what is lost shows.
    let spec = Spec::every(SECOND * 2).misfire(Misfire::All);
    spec.min_term(MIN_TERM)
}

fn jobs(starts: &All) -> Vec<(&'static str, Body, Spec)> {
    let body = |starts| Body::Job(Arc::new(quick(starts)));
    let jobs = starts.iter();
    jobs.map(|(job, starts)| (*job, body(starts), spec()))
        .collect()
}

fn join(fleet: &Cluster, name: &str, starts: &All, priority: i32) -> Member {
    let member = fleet.join_as(name, jobs(starts), false, priority, true);
    member.publish();
    member
}

fn share(member: &Member) -> usize {
    match member.tasks.is_crashed() {
        true => 0,
        false => member.ctx.local_status.leases().len(),
    }
}

fn shares(members: &[&Member]) -> Vec<usize> {
    members.iter().map(|member| share(member)).collect()
}

fn terms(members: &[&Member]) -> usize {
    let leading = |e: &&Event| matches!(e, Event::Leading { .. });
    let count = |m: &&Member| m.told.lock().unwrap().iter().filter(leading).count();
    members.iter().map(count).sum()
}

/// Waits until the shares are these, in this order.
async fn until(fleet: &Cluster, members: &[&Member], wanted: &[usize]) {
    for _ in 0..1200 {
        if shares(members) == wanted {
            return;
        }
        fleet.sleep(ms(250)).await;
    }
    panic!("{:?} instead of {wanted:?}", shares(members));
}

/// Every tick since the first one was started, once.
fn assert_no_tick_lost(starts: &All) {
    for (job, starts) in starts {
        starts.assert_once();
        let ticks = starts.ticks();
        assert!(ticks.len() > 10, "{job}: {} ticks", ticks.len());
        for pair in ticks.windows(2) {
            let gap = pair[1].duration_since(pair[0]);
            assert_eq!(gap.as_secs(), 2, "{job}: {pair:?}");
        }
    }
}

/// The first replica leads all; those that join get their shares, and then nothing moves any more.
#[tokio::test(start_paused = true)]
async fn replicas_that_join_later_get_their_share_and_then_nothing_moves() {
    let (fleet, starts) = (Cluster::new(3), all());
    let a = join(&fleet, "a", &starts, 0);
    until(&fleet, &[&a], &[9]).await;
    let (b, c) = (join(&fleet, "b", &starts, 0), join(&fleet, "c", &starts, 0));
    let members = [&a, &b, &c];
    until(&fleet, &members, &[3, 3, 3]).await;
    let before = terms(&members);
    assert_eq!(before, 9 + 6, "each move was needed");
    fleet.sleep(SECOND * 120).await;
    assert_eq!(shares(&members), [3, 3, 3]);
    assert_eq!(terms(&members), before, "no term has moved since");
    assert_no_tick_lost(&starts);
}

/// Each replica is replaced by a new one, as a rolling deploy does it.
#[tokio::test(start_paused = true)]
async fn a_rolling_deploy_ends_with_equal_shares() {
    let (fleet, starts) = (Cluster::new(3), all());
    let mut members: Vec<Member> = ["a", "b", "c"]
        .iter()
        .map(|name| join(&fleet, name, &starts, 0))
        .collect();
    fleet.sleep(SECOND * 5).await;
    for (n, name) in ["d", "e", "f"].iter().enumerate() {
        members[n].drain();
        members[n].ended().await;
        members[n].tasks.crash();
        members[n] = join(&fleet, name, &starts, 0);
        fleet.sleep(SECOND * 10).await;
    }
    let members: Vec<&Member> = members.iter().collect();
    until(&fleet, &members, &[3, 3, 3]).await;
    let before = terms(&members);
    fleet.sleep(SECOND * 60).await;
    assert_eq!(terms(&members), before, "no term has moved since");
    assert_no_tick_lost(&starts);
}

/// Those that are left share what a dead one has led.
#[tokio::test(start_paused = true)]
async fn what_a_dead_replica_has_led_is_shared() {
    let (fleet, starts) = (Cluster::new(3), all());
    let a = join(&fleet, "a", &starts, 0);
    until(&fleet, &[&a], &[9]).await;
    let (b, c) = (join(&fleet, "b", &starts, 0), join(&fleet, "c", &starts, 0));
    fleet.sleep(ms(2500)).await;
    a.tasks.crash();
    fleet.sleep(ms(1500)).await;
    let at_once = shares(&[&b, &c]);
    assert_eq!(at_once.iter().sum::<usize>(), 9, "within ttl and a half");
    assert!(at_once.iter().all(|n| *n >= 2), "{at_once:?}");
    assert_no_double(&starts);
}

fn assert_no_double(starts: &All) {
    starts.values().for_each(Starts::assert_once);
}

#[tokio::test(start_paused = true)]
async fn the_larger_priority_leads_whoever_came_first_and_nothing_comes_back() {
    let (fleet, starts) = (Cluster::new(3), all());
    let a = join(&fleet, "a", &starts, 0);
    until(&fleet, &[&a], &[9]).await;
    let b = join(&fleet, "b", &starts, 5);
    until(&fleet, &[&a, &b], &[0, 9]).await;
    let before = terms(&[&a, &b]);
    assert_eq!(before, 18);
    fleet.sleep(SECOND * 60).await;
    assert_eq!(terms(&[&a, &b]), before, "no term has moved since");
    assert_no_tick_lost(&starts);
    b.tasks.crash();
    fleet.sleep(ms(1500)).await;
    assert_eq!(
        shares(&[&a]),
        [9],
        "a smaller priority is better than no leader"
    );
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_no_candidate_never_leads_and_does_what_needs_no_leader() {
    let fleet = Cluster::new(3);
    let (led, each) = (Starts::default(), Starts::default());
    let jobs = || {
        let body = |starts| Body::Job(Arc::new(quick(starts)));
        let each_spec = spec().coordination(Coordination::Everywhere);
        vec![
            ("led", body(&led), spec()),
            ("each", body(&each), each_spec),
        ]
    };
    let a = fleet.join_as("a", jobs(), false, 9, false);
    a.publish();
    fleet.sleep(SECOND * 10).await;
    assert_eq!((share(&a), led.len()), (0, 0), "no leader");
    assert!(each.len() > 2);
    let b = fleet.join_as("b", jobs(), false, 0, true);
    b.publish();
    fleet.sleep(SECOND * 30).await;
    assert_eq!(shares(&[&a, &b]), [0, 1]);
    let client = b.client();
    let error = client
        .hand_over("led", Some("a"), SECOND)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("worker.candidate"), "{error}");
    let idle = fleet.join_as("c", jobs(), true, 9, false);
    fleet.sleep(SECOND * 5).await;
    let acts = idle.heard(|e| matches!(e, Event::RunStarted { .. } | Event::Leading { .. }));
    assert!(!acts, "in failover mode it does nothing");
}

#[tokio::test(start_paused = true)]
async fn a_term_that_somebody_moved_stays_for_its_minimum_term() {
    let (fleet, starts) = (Cluster::new(3), all());
    let long = SECOND * 40;
    let jobs = || {
        let jobs = jobs(&starts).into_iter();
        let jobs = jobs.map(|(job, body, spec)| (job, body, spec.min_term(long)));
        jobs.take(2).collect::<Vec<_>>()
    };
    let a = fleet.join_as("a", jobs(), false, 0, true);
    a.publish();
    until(&fleet, &[&a], &[2]).await;
    let b = fleet.join_as("b", jobs(), false, 0, true);
    b.publish();
    until(&fleet, &[&a, &b], &[1, 1]).await;
    assert!(fleet.time.elapsed() >= long);
    let job = a.ctx.local_status.leases().remove(0).0;
    let client = a.client();
    let answer = client
        .hand_over(&job, Some("b"), SECOND * 20)
        .await
        .unwrap();
    assert_eq!(answer.leader.as_deref(), Some("b"));
    let moved = fleet.time.elapsed();
    let before = terms(&[&a, &b]);
    // The other one of its terms is older, and may go before.
    let (_, lease) = b
        .ctx
        .local_status
        .leases()
        .into_iter()
        .find(|(name, _)| *name == job)
        .unwrap();
    while lease.is_held() {
        fleet.sleep(ms(100)).await;
        if terms(&[&a, &b]) > before && shares(&[&a, &b]) == [1, 1] {
            break;
        }
        assert!(fleet.time.elapsed() - moved < long * 3);
    }
    assert!(lease.is_held() || fleet.time.elapsed() - moved >= long);
    assert_no_double(&starts);
}

/// A failover fleet: the standby with the larger priority becomes the active one, and what it took stays there.
#[tokio::test(start_paused = true)]
async fn among_standbys_the_larger_priority_takes_over() {
    for (first, second) in [(1, 2), (2, 1)] {
        let (fleet, starts) = (Cluster::new(3), all());
        let join = |name: &str, priority| {
            let member = fleet.join_as(name, jobs(&starts), true, priority, true);
            member.publish();
            member
        };
        let a = join("a", 0);
        until(&fleet, &[&a], &[9]).await;
        let (b, c) = (join("b", first), join("c", second));
        fleet.sleep(SECOND * 20).await;
        assert_eq!(shares(&[&a, &b, &c]), [9, 0, 0], "the active one stays");
        a.tasks.crash();
        fleet.sleep(ms(1800)).await;
        let wanted = if first > second { [9, 0] } else { [0, 9] };
        assert_eq!(shares(&[&b, &c]), wanted);
        let (next, last) = if first > second { (b, c) } else { (c, b) };
        next.tasks.crash();
        fleet.sleep(ms(1800)).await;
        assert_eq!(shares(&[&last]), [9]);
        assert_no_double(&starts);
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_asked_to_drain_goes_and_nobody_else_does() {
    let (fleet, starts) = (Cluster::new(3), all());
    let a = join(&fleet, "a", &starts, 0);
    until(&fleet, &[&a], &[9]).await;
    let b = join(&fleet, "b", &starts, 0);
    fleet.sleep(SECOND * 3).await;
    let client = b.client();
    let error = client.drain("x", Until::Heard, SECOND).await.unwrap_err();
    assert!(matches!(error, FleetError::UnknownReplica { .. }));
    assert!(error.to_string().ends_with("alive: a, b"), "{error}");
    let answer = client.drain("a", Until::Heard, SECOND * 5).await.unwrap();
    assert!(answer.heard, "{answer:?}");
    a.ended().await;
    a.tasks.crash();
    until(&fleet, &[&b], &[9]).await;
    // Its documents are still there for others to read.
    fleet.sleep(SECOND * 30).await;
    assert_eq!(share(&b), 9);
    assert_no_tick_lost(&starts);
}

/// Neither a person nor the fleet hands a job to a replica that could not lead it.
#[tokio::test(start_paused = true)]
async fn a_replica_that_is_not_fit_for_a_job_is_not_given_it() {
    let (fleet, starts) = (Cluster::new(3), Starts::default());
    let unfit = Arc::new(Mutex::new(Some("no disk".to_owned())));
    let seen = starts.clone();
    let act = Act(move |run: Run| {
        seen.note(&run);
        Box::pin(async { Ok(Outcome::Done) }) as Ran
    });
    let moody = Moody {
        job: act,
        unfit: unfit.clone(),
    };
    let a = fleet.join("a", quick(&starts), spec());
    a.publish();
    until(&fleet, &[&a], &[1]).await;
    let body = Body::Job(Arc::new(moody));
    let b = fleet.join_as("b", vec![("job", body, spec())], false, 5, true);
    b.publish();
    fleet.sleep(SECOND * 20).await;
    assert_eq!(shares(&[&a, &b]), [1, 0], "its priority is larger");
    let client = a.client();
    let error = client
        .hand_over("job", Some("b"), SECOND)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("b is not fit for job"),
        "{error}"
    );
    *unfit.lock().unwrap() = None;
    until(&fleet, &[&a, &b], &[0, 1]).await;
    starts.assert_once();
}

/// It is fit again as soon as it has lost the job: without a memory the job would go to and fro for ever.
#[tokio::test(start_paused = true)]
async fn what_comes_back_is_given_away_later_each_time() {
    let (fleet, starts) = (Cluster::new(3), Starts::default());
    let a = fleet.join("a", quick(&starts), spec());
    a.publish();
    let unfit = Arc::new(Mutex::new(None));
    let moody = Moody {
        job: Act(|_: Run| Box::pin(async { Ok(Outcome::Done) }) as Ran),
        unfit: unfit.clone(),
    };
    let body = Body::Job(Arc::new(moody));
    let b = fleet.join_as("b", vec![("job", body, spec())], false, 5, true);
    b.publish();
    until(&fleet, &[&a, &b], &[0, 1]).await;
    for times in 1..4 {
        *unfit.lock().unwrap() = Some("no disk".to_owned());
        until(&fleet, &[&a, &b], &[1, 0]).await;
        let back = fleet.time.elapsed();
        *unfit.lock().unwrap() = None;
        until(&fleet, &[&a, &b], &[0, 1]).await;
        let stayed = fleet.time.elapsed() - back + ms(500);
        assert!(stayed >= MIN_TERM * (1 << times), "{times}: {stayed:?}");
    }
}
