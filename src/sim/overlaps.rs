//! Ticks that fall due while runs go on, and several runs at a time: each promise by its name, and all of them by chance.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use serde_json::json;

use super::{
    acts::{Act, Starts, leader, ms, quick, until},
    unrest::{Unrest, daily, play, seeds},
    world::TTL,
};
use crate::{
    chance::Chance,
    due::{Misfire, Overlap},
    event::Event,
    job::{Coordination, Job, JobError, Outcome, Run, Spec},
    lease::{LeaseView, Loss},
    ledger::Ledger,
    testing::{cluster::Cluster, members::Member},
};

const SECOND: Duration = Duration::from_secs(1);

/// Sees every start and every end of a run in a fleet: which go on at a time, as far as their leases stand.
#[derive(Clone, Default)]
pub(super) struct Going(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    runs: Vec<(Timestamp, LeaseView, Arc<AtomicBool>)>,
    most: usize,
}

/// Marks the end of a run, however it ends.
struct Ends(Arc<AtomicBool>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Going {
    fn starts(&self, run: &Run) -> Ends {
        let ended = Arc::new(AtomicBool::new(false));
        let mut seen = self.0.lock().unwrap();
        seen.runs
            .retain(|(_, lease, ended)| !ended.load(Ordering::SeqCst) && lease.is_held());
        let lease = run.lease().expect("a lease").clone();
        seen.runs.push((run.tick(), lease, ended.clone()));
        seen.most = seen.most.max(seen.runs.len());
        Ends(ended)
    }

    /// How many have gone on at a time, at most.
    pub(super) fn most(&self) -> usize {
        self.0.lock().unwrap().most
    }
}

/// Works for so long, and stops when it is told to.
pub(super) fn work<F: Fn(&Run) -> Duration + Send + Sync + 'static>(
    starts: &Starts,
    going: &Going,
    how_long: F,
) -> impl Job + use<F> {
    let (starts, going) = (starts.clone(), going.clone());
    let how_long = Arc::new(how_long);
    Act(move |run: Run| {
        starts.note(&run);
        let (ends, takes) = (going.starts(&run), how_long(&run));
        Box::pin(async move {
            let _ends = ends;
            let clock = run.lease().ok_or("no lease")?.clock().clone();
            tokio::select! {
                biased;
                () = run.cancelled() => Err(JobError::from("stopped")),
                () = clock.sleep(takes) => Ok(Outcome::Done),
            }
        }) as _
    })
}

/// How the runs ended, in the order of their ends: tick in seconds since the first one, attempt, outcome, detail.
fn ends(member: &Member) -> Vec<(i64, u32, &'static str, String)> {
    let told = member.told.lock().unwrap();
    let ended = told.iter().filter_map(|event| match event {
        Event::RunEnded {
            tick,
            attempt,
            outcome,
            detail,
            ..
        } => Some((
            tick.as_second() - 1_767_225_600,
            *attempt,
            *outcome,
            detail.clone(),
        )),
        _ => None,
    });
    ended.collect()
}

/// The ledger as the nodes show it now.
pub(super) async fn ledger(member: &Member) -> Ledger {
    let seen = member.ctx.locks.look(vec!["job/job".to_owned()]).await;
    Ledger::from_body(&seen.unwrap()[0].record().body).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_queued_tick_survives_its_leader() {
    let fleet = Cluster::new(3);
    let (starts, going) = (Starts::default(), Going::default());
    let spec = || {
        Spec::every(SECOND * 10)
            .overlap(Overlap::Queue)
            .misfire(Misfire::Skip)
    };
    let job = || work(&starts, &going, |_| SECOND * 12);
    let a = fleet.join("a", job(), spec());
    until(&fleet, 21).await;
    assert!(a.leads());
    assert_eq!(starts.ticks().len(), 1);
    a.tasks.crash();
    let b = fleet.join("b", job(), spec());
    until(&fleet, 31).await;
    // What fell due under both of them waits, and none has run beside another.
    let queued: Vec<i64> = ledger(&b)
        .await
        .queued()
        .iter()
        .map(|tick| tick.as_second() - 1_767_225_600)
        .collect();
    assert_eq!(queued, [20, 30]);
    until(&fleet, 62).await;
    let done: Vec<i64> = ends(&b).iter().map(|end| end.0).collect();
    assert_eq!(done[..3], [10, 20, 30], "{:?}", ends(&b));
    starts.assert_once();
    assert_eq!(going.most(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_newer_tick_stops_the_run_before_it_for_good() {
    let fleet = Cluster::new(3);
    let (starts, going) = (Starts::default(), Going::default());
    let (seen, went) = (starts.clone(), going.clone());
    // It takes a second to stop.
    let slow = Act(move |run: Run| {
        seen.note(&run);
        let ends = went.starts(&run);
        Box::pin(async move {
            let _ends = ends;
            let clock = run.lease().ok_or("no lease")?.clock().clone();
            if clock.timeout(SECOND * 15, run.cancelled()).await.is_ok() {
                clock.sleep(SECOND).await;
                return Err(JobError::from("stopped"));
            }
            Ok(Outcome::Done)
        }) as _
    });
    let spec = Spec::every(SECOND * 10).overlap(Overlap::CancelPrevious);
    let a = fleet.join("a", slow, spec.retry(5));
    until(&fleet, 32).await;
    a.drain();
    a.ended().await;
    let ends = ends(&a);
    assert_eq!(ends.len(), 3, "{ends:?}");
    for (n, (tick, attempt, outcome, detail)) in ends[..2].iter().enumerate() {
        assert_eq!((*tick, *attempt), (10 * (n as i64 + 1), 1));
        assert_eq!(*outcome, "cancelled");
        assert!(detail.contains("overlap = \"cancel-previous\""), "{detail}");
    }
    starts.assert_once();
    assert_eq!(starts.len(), 3, "no second attempt");
    assert_eq!(going.most(), 1, "the one before has ended first");
}

#[tokio::test(start_paused = true)]
async fn runs_go_beside_each_other_as_many_as_may() {
    let fleet = Cluster::new(3);
    let (starts, going) = (Starts::default(), Going::default());
    let job = work(&starts, &going, |_| SECOND * 25);
    let spec = Spec::every(SECOND * 10)
        .overlap(Overlap::Allow)
        .concurrency(2);
    let a = fleet.join("a", job, spec);
    until(&fleet, 33).await;
    assert_eq!((starts.len(), going.most()), (2, 2));
    assert!(a.heard(|e| matches!(e, Event::TicksSkipped { why: "overlap", .. })));
    until(&fleet, 41).await;
    assert_eq!((starts.len(), going.most()), (3, 2), "a place became free");
}

#[tokio::test(start_paused = true)]
async fn a_term_is_resigned_after_all_its_runs() {
    let fleet = Cluster::new(3);
    let (starts, going) = (Starts::default(), Going::default());
    let job = work(&starts, &going, |_| SECOND * 4);
    let spec = Spec::every(SECOND * 2).concurrency(2);
    let a = fleet.join("a", job, spec);
    until(&fleet, 5).await;
    assert_eq!(going.most(), 2);
    a.drain();
    a.ended().await;
    {
        let told = a.told.lock().unwrap();
        let ended = |e: &Event| {
            matches!(
                e,
                Event::RunEnded {
                    outcome: "done",
                    ..
                }
            )
        };
        assert_eq!(told.iter().filter(|e| ended(e)).count(), 2, "{told:?}");
        let last = told.iter().rposition(ended).unwrap();
        let released = |e: &Event| {
            matches!(
                e,
                Event::LeaseEnded {
                    loss: Loss::Released,
                    ..
                }
            )
        };
        let released = told.iter().position(released).expect("it was released");
        assert!(last < released, "{told:?}");
    }
    assert!(ledger(&a).await.open().is_empty(), "both are written");
}

#[tokio::test(start_paused = true)]
async fn each_of_several_runs_goes_on_from_its_own_checkpoint() {
    let fleet = Cluster::new(3);
    let found = Arc::new(Mutex::new(BTreeMap::new()));
    let job = || {
        let found = found.clone();
        Act(move |run: Run| {
            let found = found.clone();
            Box::pin(async move {
                let tick = run.tick().as_second();
                if run.attempt() > 1 {
                    found
                        .lock()
                        .unwrap()
                        .insert(tick, run.checkpoint().cloned());
                    return Ok(Outcome::Done);
                }
                run.save_checkpoint(json!(tick)).await?;
                run.cancelled().await;
                Err(JobError::from("stopped"))
            }) as _
        })
    };
    let spec = || Spec::every(SECOND * 10).overlap(Overlap::Allow);
    let a = fleet.join("a", job(), spec());
    until(&fleet, 31).await;
    a.tasks.crash();
    fleet.join("b", job(), spec());
    until(&fleet, 36).await;
    let found = found.lock().unwrap();
    assert_eq!(found.len(), 3, "{found:?}");
    for (tick, checkpoint) in &*found {
        assert_eq!(*checkpoint, Some(json!(tick)));
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_several_runs_that_says_nothing_makes_its_replica_hand_over() {
    let fleet = Cluster::new(3);
    let job = || {
        Act(|run: Run| {
            Box::pin(async move {
                let clock = run.lease().ok_or("no lease")?.clock().clone();
                while run.check().is_ok() {
                    if run.tick().as_second() % 20 == 0 || run.attempt() > 1 {
                        run.progress(0, 1);
                    }
                    clock.sleep(ms(100)).await;
                }
                Err(JobError::from("stopped"))
            }) as _
        })
    };
    let spec = || {
        Spec::every(SECOND * 10)
            .concurrency(2)
            .progress_deadline(SECOND * 15)
    };
    let a = fleet.join("a", job(), spec());
    leader(&fleet, &[&a]).await;
    let b = fleet.join("b", job(), spec());
    until(&fleet, 24).await;
    assert!(a.leads());
    until(&fleet, 29).await;
    assert!(b.leads() && !a.leads());
    let stopped = ends(&a);
    assert_eq!(stopped.len(), 2, "{stopped:?}");
}

async fn t1_waits_for_its_retry_while_t2_fires(coordination: Coordination) {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let seen = starts.clone();
    let job = Act(move |run: Run| {
        seen.note(&run);
        let fails = run.tick().as_second() % 20 == 10 && run.attempt() == 1;
        Box::pin(async move {
            match fails {
                true => Ok(Outcome::RetryAfter(SECOND * 15)),
                false => Ok(Outcome::Done),
            }
        }) as _
    });
    let spec = Spec::every(SECOND * 10).coordination(coordination);
    let a = fleet.join("a", job, spec);
    until(&fleet, 28).await;
    let said: Vec<_> = ends(&a)
        .into_iter()
        .map(|end| (end.0, end.1, end.2))
        .collect();
    assert_eq!(
        said,
        [(10, 1, "retry"), (20, 1, "done"), (10, 2, "done")],
        "{coordination}"
    );
    assert!(!a.heard(|e| matches!(e, Event::TicksSkipped { .. })));
    starts.assert_once();
}

#[tokio::test(start_paused = true)]
async fn a_tick_waits_for_its_retry_while_the_next_one_fires_and_both_end() {
    t1_waits_for_its_retry_while_t2_fires(Coordination::Leader).await;
    t1_waits_for_its_retry_while_t2_fires(Coordination::Tick).await;
}

#[tokio::test(start_paused = true)]
async fn a_tick_between_two_leaders_fires_once() {
    for crash in [false, true] {
        let fleet = Cluster::new(3);
        let starts = Starts::default();
        let spec = || Spec::every(SECOND * 20);
        let a = fleet.join("a", quick(&starts), spec());
        until(&fleet, 19).await;
        assert!(a.leads());
        match crash {
            true => a.tasks.crash(),
            false => {
                a.drain();
                a.ended().await;
            }
        }
        until(&fleet, 21).await;
        assert_eq!(starts.len(), 0, "no replica leads when it falls due");
        let b = fleet.join("b", quick(&starts), spec());
        leader(&fleet, &[&b]).await;
        fleet.sleep(SECOND * 3).await;
        assert_eq!(starts.len(), 1, "crash: {crash}");
        assert_eq!(ends(&b)[0].0, 20);
        starts.assert_once();
    }
}

// === by chance

/// What a schedule is about, drawn from its seed.
fn drawn(seed: u64, chance: &Chance) -> (Spec, usize) {
    let spec = Spec::every(SECOND)
        .misfire(Misfire::All)
        .misfire_limit(60)
        .retry(5)
        .grace(ms(300));
    let places = 1 + usize::try_from(chance.below(3)).unwrap();
    let spec = match seed % 6 {
        0 => spec.overlap(Overlap::Skip).concurrency(places),
        1 => spec.overlap(Overlap::Queue).concurrency(places),
        2 => spec.overlap(Overlap::CancelPrevious).concurrency(places),
        3 => spec.overlap(Overlap::Allow),
        4 => spec.coordination(Coordination::Tick),
        _ => spec
            .coordination(Coordination::Tick)
            .overlap(Overlap::Queue),
    };
    let places = spec.places();
    (spec, places)
}

/// One schedule of a fleet of three; every start is noted, every tick accounted for.
fn schedule(seed: u64, nodes: usize) {
    play(async move {
        let fleet = Cluster::seeded(nodes, seed);
        let (starts, going, chance) = (Starts::default(), Going::default(), Chance::seeded(seed));
        let (spec, places) = drawn(seed, &chance);
        println!("{:?}, {places} places, {}", spec.overlap, spec.coordination);
        let mut unrest = Unrest::begin(&fleet, &chance, |name| {
            let chance = chance.clone();
            let job = work(&starts, &going, move |_| {
                chance.up_to(ms(1300)) * u32::try_from(places.min(3)).unwrap()
            });
            fleet.join(name, job, spec.clone())
        });
        let onlooker = fleet.join("onlooker", quick(&starts), spec.clone().enabled(false));
        let mut decided: BTreeMap<Timestamp, Timestamp> = BTreeMap::new();
        while fleet.time.elapsed() < SECOND * 40 {
            fleet.sleep(chance.up_to(SECOND * 4)).await;
            // A leader that has written a row may die before it tells.
            let rows = ledger(&onlooker).await;
            decided.extend(rows.skipped().iter().map(|row| (row.from, row.to)));
            unrest.strike();
        }
        unrest.recover(TTL * 12).await;
        starts.assert_once();
        assert!(going.most() <= places, "{} at a time", going.most());
        accounted(&unrest.all, &starts, &ledger(&onlooker).await, decided);
    });
}

/// Every second between the first and the last started tick was started, waits, or is known not to run.
fn accounted(
    all: &[Member],
    starts: &Starts,
    ledger: &Ledger,
    mut decided: BTreeMap<Timestamp, Timestamp>,
) {
    let ticks = starts.ticks();
    assert!(ticks.len() > 10, "only {} ticks started", ticks.len());
    for member in all {
        for event in &*member.told.lock().unwrap() {
            if let Event::TicksSkipped { first, last, .. } = event {
                let to = decided.entry(*first).or_insert(*last);
                *to = (*to).max(*last);
            }
        }
    }
    for row in ledger.skipped() {
        let to = decided.entry(row.from).or_insert(row.to);
        *to = (*to).max(row.to);
    }
    let mut tick = ticks[0];
    while tick <= ticks[ticks.len() - 1] {
        let started = ticks.binary_search(&tick).is_ok();
        let waits = ledger.waiting().contains(&tick) || ledger.queued().contains(&tick);
        let skipped = decided
            .iter()
            .any(|(from, to)| (*from..=*to).contains(&tick));
        assert!(started || waits || skipped, "{tick} was lost");
        tick = tick.checked_add(SECOND).unwrap();
    }
}

#[test]
fn whatever_overlaps_starts_once_beside_no_more_than_may_and_nothing_is_lost() {
    for seed in seeds(daily(96)) {
        let nodes = [1, 3, 5][usize::try_from(seed / 6 % 3).unwrap()];
        println!("WATCHKEEPER_SIM_SEED={seed}, {nodes} nodes");
        schedule(seed, nodes);
    }
}
