//! Jobs that run in every replica, without a lock: made ready before their tick, begun at it, told of afterwards.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::sync::broadcast::Receiver;

use super::acts::{Act, Starts, ms, quick};
use crate::{
    due::Misfire,
    event::Event,
    job::{Coordination, Job, Outcome, Run, Spec},
    scheduler::intents::INTERVAL,
    testing::{cluster::Cluster, members::Member},
    worker::ready::Body,
};

const SECOND: Duration = Duration::from_secs(1);

fn join(fleet: &Cluster, job: impl Job, spec: Spec) -> Member {
    let spec = spec.coordination(Coordination::Everywhere);
    fleet.join_with("a", vec![("job", Body::Job(Arc::new(job)), spec)], false)
}

/// Waits until so long before the next tick of a job that is due every ten seconds.
async fn before_a_tick(fleet: &Cluster, early: Duration) {
    let period = SECOND * 10;
    let now = fleet.clock().wall();
    let into =
        Duration::from_nanos(now.as_nanosecond().rem_euclid(period.as_nanos() as i128) as u64);
    fleet.sleep(period - into).await;
    fleet.sleep(period - early).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_made_ready_does_not_start_when_something_happened_since() {
    let spec = || Spec::every(SECOND * 10).misfire(Misfire::Skip);
    for early in [1, 20, 100, 150, 190, 210, 400].map(ms) {
        // The replica drains.
        let (fleet, starts) = (Cluster::new(3), Starts::default());
        let member = join(&fleet, quick(&starts), spec());
        fleet.sleep(SECOND * 3).await;
        before_a_tick(&fleet, early).await;
        let before = starts.len();
        member.drain();
        fleet.sleep(SECOND * 3).await;
        assert_eq!(starts.len(), before, "drained {early:?} before the tick");

        // The process stands still, and goes on when the tick is no longer on time.
        let (fleet, starts) = (Cluster::new(3), Starts::default());
        let member = join(&fleet, quick(&starts), spec());
        fleet.sleep(SECOND * 3).await;
        before_a_tick(&fleet, early).await;
        let before = starts.len();
        member.tasks.freeze();
        fleet.sleep(SECOND * 3).await;
        member.tasks.thaw();
        fleet.sleep(SECOND * 3).await;
        assert_eq!(starts.len(), before, "frozen {early:?} before the tick");
        assert!(member.heard(|e| matches!(e, Event::TicksSkipped { why: "misfire", .. })));
        fleet.sleep(SECOND * 10).await;
        assert_eq!(starts.len(), before + 1, "the next one runs");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_was_heard_of_holds_whatever_was_made_ready() {
    for phase in 0..10 {
        let (fleet, starts) = (Cluster::new(3), Starts::default());
        let member = join(&fleet, quick(&starts), Spec::every(ms(300)));
        fleet.sleep(SECOND * 3 + ms(phase * 31)).await;
        let client = member.client();
        let asked = client.set_paused("job", true, "", Duration::ZERO).await;
        asked.unwrap();
        let heard = fleet.clock().now() + INTERVAL * 2;
        while !member.ctx.intents.is_paused("job") {
            assert!(fleet.clock().now() < heard, "phase {phase}");
            fleet.sleep(ms(1)).await;
        }
        let before = starts.len();
        fleet.sleep(SECOND * 5).await;
        assert_eq!(starts.len(), before, "phase {phase}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_without_a_lock_is_told_in_order() {
    let fleet = Cluster::new(3);
    let clock = fleet.clock();
    let slow = Act(move |run: Run| {
        let clock = clock.clone();
        Box::pin(async move {
            // Every other one ends before it was told that it has begun.
            if run.tick().as_second() % 2 == 0 {
                clock.sleep(ms(300)).await;
            }
            Ok(Outcome::Done)
        }) as _
    });
    let member = join(&fleet, slow, Spec::every(SECOND));
    fleet.sleep(SECOND * 20 + ms(600)).await;
    let told = member.told.lock().unwrap().clone();
    let runs: Vec<_> = told
        .iter()
        .filter_map(|event| match event {
            Event::RunStarted { tick, delay, .. } => {
                assert!(*delay <= ms(20), "{delay:?}");
                Some((*tick, "started"))
            }
            Event::RunEnded { tick, outcome, .. } => Some((*tick, *outcome)),
            _ => None,
        })
        .collect();
    assert!(runs.len() >= 36, "{runs:?}");
    for pair in runs.chunks(2) {
        let [(started, "started"), (ended, "done")] = pair else {
            panic!("{pair:?} of {runs:?}");
        };
        assert_eq!(started, ended);
    }
}

#[tokio::test(start_paused = true)]
async fn of_many_jobs_due_at_once_all_begin_before_any_is_told() {
    const JOBS: usize = 50;
    let fleet = Cluster::new(1);
    let told: Arc<Mutex<Option<Receiver<Event>>>> = Arc::default();
    let begun = Arc::new(Mutex::new(Vec::new()));
    let names: Vec<String> = (0..JOBS).map(|job| format!("job-{job}")).collect();
    let jobs = names.iter().map(|name| {
        let (told, begun) = (told.clone(), begun.clone());
        let job = Act(move |_: Run| {
            let waiting = told.lock().unwrap().as_ref().map_or(0, Receiver::len);
            begun.lock().unwrap().push(waiting);
            Box::pin(async { Ok(Outcome::Done) }) as _
        });
        let spec = Spec::every(SECOND * 10).coordination(Coordination::Everywhere);
        (name.as_str(), Body::Job(Arc::new(job)), spec)
    });
    let member = fleet.join_with("a", jobs.collect(), false);
    fleet.sleep(SECOND * 3).await;
    before_a_tick(&fleet, ms(500)).await;
    begun.lock().unwrap().clear();
    *told.lock().unwrap() = Some(member.ctx.events.observe());
    fleet.sleep(SECOND).await;
    let begun = begun.lock().unwrap().clone();
    assert_eq!(
        begun,
        vec![0; JOBS],
        "nothing was told before the last began"
    );
    let mut told = told.lock().unwrap().take().unwrap();
    let events = std::iter::from_fn(|| told.try_recv().ok());
    let started = events.filter(|event| matches!(event, Event::RunStarted { .. }));
    assert_eq!(started.count(), JOBS);
}
