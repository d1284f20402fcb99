//! Jobs whose lock is taken for each tick: who comes first, what the others ask, and what becomes of the dead.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

use super::{
    acts::{Act, Starts, ms, quick, slow, until},
    overlaps::{Going, ledger, work},
    world::TTL,
};
use crate::{
    event::Event,
    intent::TriggerState,
    job::{Coordination, Health, Job, JobError, Outcome, Run, Spec},
    node::Op,
    scheduler::intents::INTERVAL,
    status::JobStanding,
    testing::{cluster::Cluster, counts::Counters, members::Member},
    worker::ready::Body,
};

const SECOND: Duration = Duration::from_secs(1);

fn every(seconds: u32) -> Spec {
    Spec::every(SECOND * seconds).coordination(Coordination::Tick)
}

fn ran(member: &Member) -> usize {
    let told = member.told.lock().unwrap();
    let started = |e: &&Event| matches!(e, Event::RunStarted { .. });
    told.iter().filter(started).count()
}

#[tokio::test(start_paused = true)]
async fn every_tick_runs_once_and_ticks_spread_over_the_replicas() {
    for nodes in [1, 3] {
        let fleet = Cluster::new(nodes);
        let (starts, going) = (Starts::default(), Going::default());
        let members: Vec<Member> = ["a", "b", "c"]
            .iter()
            .map(|name| fleet.join(name, work(&starts, &going, |_| ms(200)), every(2)))
            .collect();
        until(&fleet, 61).await;
        starts.assert_once();
        assert_eq!(starts.ticks().len(), 30, "{nodes} nodes");
        assert_eq!(going.most(), 1);
        for member in &members {
            assert!(ran(member) >= 3, "{nodes} nodes: {}", ran(member));
            // There is no leader between ticks, and no talk of a new one thirty times.
            assert!(!member.leads());
            assert!(!member.heard(|e| matches!(e, Event::Leading { .. })));
            assert_eq!(
                member.ctx.local_status.jobs()[0].standing,
                JobStanding::Standby
            );
        }
    }
}

/// Counts how often it is asked whether it is fit. An engine that asks without end gets another answer, so that a test ends.
struct Asked<J> {
    job: J,
    times: Arc<AtomicUsize>,
}

#[async_trait]
impl<J: Job> Job for Asked<J> {
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        self.job.run(run).await
    }

    async fn health(&self) -> Health {
        match self.times.fetch_add(1, Ordering::SeqCst) {
            0..1000 => Health::Fit,
            _ => Health::Unfit("asked too often".to_owned()),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unfit_replica_leaves_its_ticks_to_others_and_waits() {
    let fleet = Cluster::new(3);
    let (starts, going) = (Starts::default(), Going::default());
    let times = Arc::new(AtomicUsize::new(0));
    let job = Asked {
        job: work(&starts, &going, |_| ms(200)),
        times: times.clone(),
    };
    let a = fleet.join("a", job, every(2));
    let b = fleet.join("b", work(&starts, &going, |_| ms(200)), every(2));
    until(&fleet, 21).await;
    assert!(ran(&a) >= 1 && ran(&b) >= 1);
    let fitness = a.ctx.locks.fitness();
    fitness.report("disk", Err("full".to_owned()));
    let (asked, before) = (times.load(Ordering::SeqCst), ran(&a));
    until(&fleet, 41).await;
    let asked = times.load(Ordering::SeqCst) - asked;
    assert!(asked < 50, "asked {asked} times");
    assert_eq!(ran(&a), before, "an unfit replica starts nothing");
    fitness.report("disk", Ok(()));
    until(&fleet, 81).await;
    assert!(ran(&a) > before, "it is fit again");
    starts.assert_once();
    assert_eq!(starts.ticks().len(), 40, "none is missing");
}

#[tokio::test(start_paused = true)]
async fn the_work_of_a_tick_is_not_cut_short_by_max_term() {
    let fleet = Cluster::new(3);
    let (starts, going) = (Starts::default(), Going::default());
    let spec = every(60).max_term(SECOND * 2);
    for name in ["a", "b"] {
        let job = work(&starts, &going, |_| SECOND * 20);
        fleet.join(name, job, spec.clone()).publish();
    }
    until(&fleet, 145).await;
    assert_eq!(starts.ticks().len(), 2);
    assert_eq!(starts.len(), 2, "one attempt each");
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_waits_for_a_tick_asks_nothing_of_the_nodes() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let asked = Arc::new(Mutex::new((0, 0)));
    let members: Vec<Member> = ["a", "b", "c"]
        .iter()
        .map(|name| fleet.join(name, quick(&starts), every(60)))
        .collect();
    for node in &fleet.nodes {
        let asked = asked.clone();
        node.observe(move |executed| {
            for op in &executed.call.ops {
                let acquires = matches!(op, Op::Acquire { key, .. } if key == "job/job");
                let mut asked = asked.lock().unwrap();
                asked.0 += u32::from(format!("{op:?}").contains("job/job"));
                asked.1 += u32::from(acquires);
            }
        });
    }
    until(&fleet, 2).await;
    let before = *asked.lock().unwrap();
    until(&fleet, 59).await;
    assert_eq!(*asked.lock().unwrap(), before, "nothing between ticks");
    until(&fleet, 119).await;
    let (all, acquired) = *asked.lock().unwrap();
    let (all, acquired) = (all - before.0, acquired - before.1);
    assert_eq!(starts.len(), 1);
    assert!(
        acquired <= 6,
        "{acquired} bids of three replicas at three nodes"
    );
    assert!(all <= 90, "{all} operations for one tick");
    drop(members);
}

#[tokio::test(start_paused = true)]
async fn the_run_of_a_dead_replica_goes_on_elsewhere() {
    let fleet = Cluster::new(3);
    let (starts, going) = (Starts::default(), Going::default());
    let members: Vec<Member> = ["a", "b", "c"]
        .iter()
        .map(|name| {
            let job = work(&starts, &going, |run| match run.attempt() {
                1 => SECOND * 8,
                _ => ms(100),
            });
            fleet.join(name, job, every(30))
        })
        .collect();
    until(&fleet, 32).await;
    let runner = members.iter().find(|m| m.leads()).expect("a run goes on");
    runner.tasks.crash();
    fleet.sleep(TTL * 2).await;
    let again = |m: &Member| {
        m.heard(|e| {
            matches!(
                e,
                Event::RunEnded {
                    attempt: 2,
                    outcome: "done",
                    ..
                }
            )
        })
    };
    assert!(members.iter().any(again));
    let alive = members.iter().find(|m| !m.tasks.is_crashed()).unwrap();
    assert!(ledger(alive).await.open().is_empty());
    starts.assert_once();
    assert_eq!(starts.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_done_by_whoever_comes_first() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let job = || {
        let seen = starts.clone();
        Act(move |run: Run| {
            seen.note(&run);
            Box::pin(async move {
                match run.attempt() {
                    1 => Err(JobError::from("not yet")),
                    _ => Ok(Outcome::Done),
                }
            }) as _
        })
    };
    let retry = crate::job::Retry {
        backoff: SECOND * 5,
        ..3.into()
    };
    let members = ["a", "b", "c"].map(|name| fleet.join(name, job(), every(30).retry(retry)));
    until(&fleet, 32).await;
    assert_eq!(starts.len(), 1);
    assert!(
        members.iter().all(|m| !m.leads()),
        "no replica waits with the lock in hand"
    );
    let first = members.iter().find(|m| ran(m) == 1).unwrap();
    first.tasks.crash();
    until(&fleet, 38).await;
    assert_eq!(starts.len(), 2);
    starts.assert_once();
}

#[tokio::test(start_paused = true)]
async fn a_pause_a_trigger_and_a_resumption_work_without_a_leader() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let members = ["a", "b", "c"].map(|name| fleet.join(name, quick(&starts), every(10)));
    until(&fleet, 12).await;
    assert_eq!(starts.len(), 1);
    let client = members[0].client();
    client
        .set_paused("job", true, "", Duration::ZERO)
        .await
        .unwrap();
    fleet.sleep(INTERVAL * 2).await;
    until(&fleet, 45).await;
    assert_eq!(starts.len(), 1);
    let trigger = client.ask_for_one("job").await.unwrap();
    let ended = client
        .follow(trigger, TriggerState::Ended, SECOND * 10)
        .await;
    assert_eq!(ended.outcome, "done");
    fleet.sleep(SECOND * 20).await;
    assert_eq!(starts.len(), 2, "once, by one of three");
    client
        .set_paused("job", false, "", Duration::ZERO)
        .await
        .unwrap();
    fleet.sleep(SECOND * 22).await;
    assert_eq!(starts.len(), 4, "the ticks since");
    let told = |m: &Member| m.heard(|e| matches!(e, Event::TicksSkipped { why: "paused", .. }));
    assert!(members.iter().any(told));
    starts.assert_once();
}

/// None but a holder of the lock may say so, and there is no tick for days.
#[tokio::test(start_paused = true)]
async fn what_became_of_a_trigger_is_told_without_a_leader_and_before_the_next_tick() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let members = ["a", "b", "c"].map(|name| fleet.join(name, quick(&starts), every(1_000_000)));
    fleet.sleep(SECOND * 5).await;
    let client = members[0].client();
    // Withdrawn before any replica has seen it.
    client.ask_for_one("job").await.unwrap();
    let asked = client.outstanding(Some("job")).await.unwrap();
    let found = client.withdraw_these(asked, SECOND * 10).await.unwrap();
    let told = (found[0].state, found[0].outcome.as_str());
    assert_eq!(told, (TriggerState::Ended, "withdrawn"));
    assert_eq!(starts.len(), 0);
    // The replica that has run it dies before it can say so.
    let trigger = client.ask_for_one("job").await.unwrap();
    let ended = |m: &Member| m.ended_as("done");
    while !members.iter().any(ended) {
        fleet.sleep(Duration::from_millis(1)).await;
    }
    let ran = members.iter().position(ended).unwrap();
    members[ran].tasks.crash();
    let other = members[(ran + 1) % 3].client();
    let known = other
        .follow(trigger, TriggerState::Ended, SECOND * 30)
        .await;
    assert_eq!(known.state, TriggerState::Ended, "{known:?}");
    assert_eq!(starts.len(), 1);
    // It is said once, and all is quiet then.
    let counters = Counters::of(&fleet);
    fleet.sleep(SECOND * 60).await;
    let before = counters.now();
    fleet.sleep(SECOND * 60).await;
    assert_eq!((counters.now() - before).acquires, 0);
}

#[tokio::test(start_paused = true)]
async fn a_failover_standby_takes_no_tick() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let join = |name| {
        let body = Body::Job(Arc::new(quick(&starts)));
        fleet.join_with(name, vec![("job", body, every(2))], true)
    };
    let a = join("a");
    fleet.sleep(ms(500)).await;
    let b = join("b");
    until(&fleet, 21).await;
    assert_eq!((ran(&a), ran(&b)), (10, 0));
    a.drain();
    until(&fleet, 31).await;
    assert!(ran(&b) >= 4);
    starts.assert_once();
}

#[tokio::test(start_paused = true)]
async fn a_record_is_kept_through_the_time_between_two_rare_ticks() {
    let fleet = Cluster::new(1);
    let starts = Starts::default();
    // Longer than a released record is kept.
    let hours = 30;
    let a = fleet.join("a", quick(&starts), every(hours * 3600));
    let first = ledger(&a).await;
    assert_eq!(first.decided_upto(), None);
    for _ in 0..2 * hours {
        fleet.sleep(SECOND * 3600).await;
    }
    let ticks: BTreeSet<_> = starts.ticks().into_iter().collect();
    assert_eq!(ticks.len(), 2, "none was a first sight");
}

/// What a replica is to the others does not change with each tick.
#[tokio::test(start_paused = true)]
async fn a_tick_is_no_news_for_other_replicas() {
    for failover in [false, true] {
        let (fleet, starts) = (Cluster::new(3), Starts::default());
        let members = ["a", "b"].map(|name| {
            let body = Body::Job(Arc::new(slow(&starts, ms(700))));
            let member = fleet.join_with(name, vec![("job", body, every(2))], failover);
            member.publish();
            member
        });
        until(&fleet, 21).await;
        let summaries = Arc::new(AtomicUsize::new(0));
        let count = summaries.clone();
        fleet.nodes[0].observe(move |executed| {
            let told =
                |op: &&Op| matches!(op, Op::PutDoc { name, .. } if name.starts_with("presence/"));
            let told = executed.call.ops.iter().filter(told).count();
            count.fetch_add(told, Ordering::SeqCst);
        });
        until(&fleet, 61).await;
        assert!(starts.len() >= 29);
        let summaries = summaries.load(Ordering::SeqCst);
        assert_eq!(summaries, 0, "failover: {failover}");
        drop(members);
    }
}

/// So many replicas that tell of themselves, with a job that takes so long.
fn fleet_of(
    fleet: &Cluster,
    replicas: usize,
    (starts, takes): (&Starts, Duration),
    spec: &Spec,
) -> Vec<Member> {
    let join = |n: usize| {
        let member = fleet.join(&format!("r{n}"), slow(starts, takes), spec.clone());
        member.publish();
        member
    };
    (0..replicas).map(join).collect()
}

#[tokio::test(start_paused = true)]
async fn ticks_cost_no_more_in_a_larger_fleet() {
    let (five_to_twenty, five_to_ten): (&[usize], &[usize]) = (&[5, 10, 20], &[5, 10]);
    for (takes, sizes) in [(ms(20), five_to_twenty), (SECOND * 8, five_to_ten)] {
        let mut reads = Vec::new();
        for &replicas in sizes {
            let (fleet, starts) = (Cluster::new(3), Starts::default());
            let members = fleet_of(&fleet, replicas, (&starts, takes), &every(10));
            until(&fleet, 18).await;
            let counters = Counters::of(&fleet);
            until(&fleet, 78).await;
            let counts = counters.now();
            println!("{replicas} replicas, six ticks of {takes:?}: {counts:?}");
            reads.push(counts.reads);
            starts.assert_once();
            assert_eq!(starts.ticks().len(), 7);
            let have_run = members.iter().filter(|m| ran(m) > 0).count();
            assert!(have_run >= 3, "{have_run} of {replicas} have run something");
        }
        for pair in reads.windows(2) {
            let exponent = (pair[1] as f64 / pair[0] as f64).log2();
            assert!(exponent <= 0.2, "{reads:?}");
        }
    }
}

/// The next tick of a period of so many seconds.
fn next_tick(fleet: &Cluster, period: i64) -> Timestamp {
    let tick = fleet.clock().wall().as_second() / period * period + period;
    Timestamp::from_second(tick).unwrap()
}

/// Sleeps until shortly before it.
async fn until_before(fleet: &Cluster, tick: Timestamp, before: Duration) {
    let before = SignedDuration::try_from(before).unwrap();
    let left = tick.duration_since(fleet.clock().wall()) - before;
    fleet.sleep(Duration::try_from(left).unwrap()).await;
}

/// The candidates for a tick in their turn.
fn in_turn(members: &[Member], tick: Timestamp) -> Vec<&Member> {
    let turn = |m: &&Member| {
        let place = m.ctx.peers.turn("job", tick, 4, m.ctx.clock.now());
        place.unwrap().turn
    };
    let mut order: Vec<&Member> = members.iter().collect();
    order.sort_by_key(turn);
    order
}

#[tokio::test(start_paused = true)]
async fn a_tick_whose_first_replicas_have_died_is_found_by_another() {
    for (dead, late) in [(3, SECOND), (4, SECOND * 7)] {
        let (fleet, starts) = (Cluster::new(3), Starts::default());
        let members = fleet_of(&fleet, 8, (&starts, ms(20)), &every(10));
        until(&fleet, 38).await;
        let tick = next_tick(&fleet, 10);
        let order = in_turn(&members, tick);
        until_before(&fleet, tick, ms(100)).await;
        for member in &order[..dead] {
            member.tasks.crash();
        }
        let started = starts.len();
        fleet.sleep(late + ms(300)).await;
        assert_eq!(starts.len(), started + 1, "{dead} have died");
        starts.assert_once();
        fleet.sleep(SECOND * 30).await;
        assert_eq!(starts.len(), started + 4);
    }
}

/// They live, and what they tell is read; a majority of the nodes does not hear them.
#[tokio::test(start_paused = true)]
async fn a_tick_whose_first_replicas_reach_too_few_nodes_is_found_by_another() {
    let (fleet, starts) = (Cluster::new(3), Starts::default());
    let members = fleet_of(&fleet, 8, (&starts, ms(20)), &every(30));
    until(&fleet, 58).await;
    let tick = next_tick(&fleet, 30);
    let order = in_turn(&members, tick);
    until_before(&fleet, tick, ms(100)).await;
    for member in &order[..5] {
        member.cut_to_a_minority();
    }
    let started = starts.len();
    fleet.sleep(SECOND * 8 + ms(300)).await;
    assert_eq!(starts.len(), started + 1, "the first tick is late");
    // The others know of it now: no tick is left to these any more.
    for n in 1..4 {
        let tick = next_tick(&fleet, 30);
        until_before(&fleet, tick, Duration::ZERO).await;
        fleet.sleep(SECOND).await;
        assert_eq!(starts.len(), started + 1 + n);
    }
    starts.assert_once();
}

#[tokio::test(start_paused = true)]
async fn a_long_run_is_watched_by_few_whatever_wakes_the_others() {
    let mut reads = Vec::new();
    for replicas in [5, 10] {
        let (fleet, starts) = (Cluster::new(3), Starts::default());
        let members = fleet_of(&fleet, replicas, (&starts, SECOND * 55), &every(60));
        fleet.sleep(SECOND * 20).await;
        until_before(&fleet, next_tick(&fleet, 60), Duration::ZERO).await;
        fleet.sleep(SECOND * 5).await;
        let runner = members.iter().position(Member::leads).expect("it runs");
        // All look when a replica has gone, and when anything is asked of the fleet.
        members[(runner + 1) % replicas].tasks.crash();
        let client = members[runner].client();
        let paused = client.set_paused("other", true, "", Duration::ZERO).await;
        paused.unwrap();
        fleet.sleep(SECOND * 15).await;
        let counters = Counters::of(&fleet);
        fleet.sleep(SECOND * 30).await;
        reads.push(counters.now().reads);
        assert_eq!(starts.len(), 1);
    }
    println!("half a minute of a run, in fleets of 5 and 10: {reads:?}");
    assert!(reads[1] * 2 <= reads[0] * 3, "{reads:?}");
}

/// Those that watched the run have died with its replica, long before the next tick.
#[tokio::test(start_paused = true)]
async fn a_run_that_all_who_watched_it_have_left_goes_on_elsewhere() {
    let (fleet, starts) = (Cluster::new(3), Starts::default());
    let members = fleet_of(&fleet, 8, (&starts, SECOND * 300), &every(600));
    fleet.sleep(SECOND * 20).await;
    let tick = next_tick(&fleet, 600);
    until_before(&fleet, tick, SECOND).await;
    let order = in_turn(&members, tick);
    fleet.sleep(SECOND * 15).await;
    assert_eq!(starts.len(), 1);
    assert!(order[0].leads(), "the first one in turn");
    for member in &order[..4] {
        member.tasks.crash();
    }
    fleet.sleep(SECOND * 10).await;
    assert_eq!(starts.len(), 2, "its second attempt");
    starts.assert_once();
}
