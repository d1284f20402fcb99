//! Runs, ticks and the ledger, each promise by its name.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use super::world::TTL;
use crate::{
    event::Event,
    job::{JobError, Outcome, Run, Spec},
    lease::Loss,
    node::{Answer, Op},
    testing::cluster::Cluster,
};

use super::acts::{Act, Moody, Starts, deaf, leader, ms, patient, quick};

#[tokio::test(start_paused = true)]
async fn a_job_that_is_unfit_is_stopped_and_handed_over() {
    let fleet = Cluster::new(3);
    let unfit = Arc::new(Mutex::new(None));
    let moody = Moody {
        job: patient(),
        unfit: unfit.clone(),
    };
    let a = fleet.join("a", moody, Spec::continuous());
    leader(&fleet, &[&a]).await;
    let b = fleet.join("b", patient(), Spec::continuous());
    *unfit.lock().unwrap() = Some("no database".to_owned());
    leader(&fleet, &[&b]).await;
    assert!(!a.leads());
    assert!(a.ended_as("cancelled"));
}

#[tokio::test(start_paused = true)]
async fn a_run_sees_its_cancellation_first() {
    let fleet = Cluster::new(3);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let job = Act(move |run: Run| {
        let notes = notes.clone();
        Box::pin(async move {
            let clock = run.lease().map(|lease| lease.clock().clone());
            let clock = clock.ok_or("no lease")?;
            loop {
                // Frozen here: the timer and the end of the lease are both due at the thaw.
                clock.sleep(ms(100)).await;
                let stopped = run.cancellation_token().is_cancelled();
                notes
                    .lock()
                    .unwrap()
                    .push((run.token(), run.remaining(), stopped));
                if stopped {
                    return Err(JobError::from("stopped"));
                }
            }
        }) as _
    });
    let member = fleet.join("a", job, Spec::continuous());
    leader(&fleet, &[&member]).await;
    fleet.sleep(ms(350)).await;
    member.tasks.freeze();
    fleet.sleep(TTL * 3).await;
    let before = seen.lock().unwrap().len();
    assert!(before > 0);
    member.tasks.thaw();
    fleet.sleep(ms(30)).await;
    let seen = seen.lock().unwrap();
    assert_eq!(
        seen.len(),
        before + 1,
        "one poll, and it was told: {seen:?}"
    );
    assert!(seen[before].2 && seen[before].1.is_zero(), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_ignores_cancellation_is_dropped() {
    let fleet = Cluster::new(3);
    let member = fleet.join("a", deaf(), Spec::continuous().grace(ms(200)));
    leader(&fleet, &[&member]).await;
    let (_, lease) = member.ctx.local_status.leases().remove(0);
    fleet.sleep(ms(50)).await;
    assert_eq!(lease.work_in_flight(), 1);
    fleet.nodes.iter().for_each(|n| n.faults().freeze());
    while lease.is_held() {
        fleet.sleep(ms(1)).await;
        if lease.work_in_flight() == 0 {
            break;
        }
    }
    assert!(lease.is_held(), "dropped before the lease has ended");
    assert_eq!(*member.aborts.lock().unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_tick_is_written_before_it_runs() {
    let fleet = Cluster::new(3);
    let written = Arc::new(Mutex::new([0_u32; 3]));
    for (n, node) in fleet.nodes.iter().enumerate() {
        let written = written.clone();
        node.observe(move |executed| {
            let Ok(reply) = executed.result else { return };
            for (op, answer) in executed.call.ops.iter().zip(&reply.answers) {
                if let (Op::Write { body, .. }, Answer::Done) = (op, answer)
                    && body.contains("\"running\"")
                {
                    written.lock().unwrap()[n] += 1;
                }
            }
        });
    }
    let runs = Arc::new(Mutex::new(0));
    let (count, seen) = (runs.clone(), written.clone());
    let job = Act(move |_: Run| {
        *count.lock().unwrap() += 1;
        let runs = *count.lock().unwrap();
        let on = seen.lock().unwrap().iter().filter(|n| **n >= runs).count();
        assert!(on >= 2, "run {runs} was written to {on} of 3 nodes");
        Box::pin(async { Ok(Outcome::Done) }) as _
    });
    let member = fleet.join("a", job, Spec::every(Duration::from_secs(1)));
    fleet.sleep(Duration::from_secs(6)).await;
    assert!(*runs.lock().unwrap() >= 4);
    assert!(!member.ended_as("panicked"));
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_writes_back_what_it_found() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let every = || Spec::every(Duration::from_secs(1));
    let a = fleet.join("a", quick(&starts), every());
    fleet.sleep(Duration::from_secs(3)).await;
    a.tasks.crash();
    let onlooker = fleet.join("onlooker", quick(&starts), every().enabled(false));
    let seen = onlooker
        .ctx
        .locks
        .look(vec!["job/job".to_owned()])
        .await
        .unwrap();
    let left = seen[0].record();
    let first = Arc::new(Mutex::new(Vec::new()));
    for node in &fleet.nodes {
        let first = first.clone();
        node.observe(move |executed| {
            for op in &executed.call.ops {
                if let Op::Write { version, body, .. } = op {
                    first.lock().unwrap().push((*version, body.clone()));
                }
            }
        });
    }
    let b = fleet.join("b", quick(&starts), every());
    leader(&fleet, &[&b]).await;
    fleet.sleep(ms(50)).await;
    let first = first.lock().unwrap();
    let (version, body) = first.first().expect("it has written something");
    assert_eq!(version.rev, 1);
    assert_eq!(
        body, &left.body,
        "what was found, before anything is decided"
    );
    assert!(body.contains("decided_upto"), "{body}");
}

#[tokio::test(start_paused = true)]
async fn a_term_is_resigned_after_its_run() {
    let fleet = Cluster::new(3);
    let job = Act(|run: Run| {
        Box::pin(async move {
            let clock = run.lease().ok_or("no lease")?.clock().clone();
            clock.sleep(ms(1500)).await;
            Ok(Outcome::Done)
        }) as _
    });
    let member = fleet.join("a", job, Spec::every(Duration::from_secs(2)));
    while !member.heard(|e| matches!(e, Event::RunStarted { .. })) {
        fleet.sleep(ms(5)).await;
    }
    member.drain();
    fleet.sleep(Duration::from_secs(3)).await;
    let told = member.told.lock().unwrap();
    let at = |what: fn(&Event) -> bool| told.iter().position(what).expect("it was told");
    let ended = at(|e| {
        matches!(
            e,
            Event::RunEnded {
                outcome: "done",
                ..
            }
        )
    });
    let released = at(|e| {
        matches!(
            e,
            Event::LeaseEnded {
                loss: Loss::Released,
                ..
            }
        )
    });
    assert!(ended < released, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unfit_replica_starts_nothing_that_needs_no_lock() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let body = crate::worker::ready::Body::Job(Arc::new(quick(&starts)));
    let spec =
        Spec::every(Duration::from_secs(1)).coordination(crate::job::Coordination::Everywhere);
    let member = fleet.join_with("a", vec![("job", body, spec)], false);
    fleet.sleep(Duration::from_secs(3)).await;
    let fitness = member.ctx.locks.fitness();
    fitness.report("disk", Err("full".to_owned()));
    fleet.sleep(Duration::from_secs(2)).await;
    let before = starts.len();
    assert!(before >= 2);
    fleet.sleep(Duration::from_secs(10)).await;
    assert_eq!(starts.len(), before, "an unfit replica starts nothing");
    fitness.report("disk", Ok(()));
    fleet.sleep(Duration::from_secs(3)).await;
    assert!(starts.len() > before);
}

#[tokio::test(start_paused = true)]
async fn ticks_go_by_the_nodes_clocks_when_a_replicas_own_is_wrong() {
    for off in [3000, -3000, 3_600_000, -3_600_000] {
        ticks_by_the_nodes(off).await;
    }
}

/// One replica whose clock is so many milliseconds ahead.
async fn ticks_by_the_nodes(off: i64) {
    let fleet = Cluster::new(3);
    let late = Arc::new(Mutex::new(Vec::new()));
    let (notes, clock) = (late.clone(), fleet.clock());
    let job = Act(move |run: Run| {
        let late = clock.wall().duration_since(run.tick());
        notes.lock().unwrap().push(late.as_millis());
        Box::pin(async { Ok(Outcome::Done) }) as _
    });
    let member = fleet.join("a", job, Spec::every(Duration::from_secs(20)));
    member.time.set_wall_offset(off);
    fleet.sleep(Duration::from_secs(90)).await;
    let late = late.lock().unwrap();
    assert!(late.len() >= 3, "{late:?}");
    assert!(
        late.iter().all(|ms| (-20..=200).contains(ms)),
        "{off}: {late:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn jitter_delays_starts_and_leaves_ticks_where_they_are_whoever_leads() {
    let fleet = Cluster::new(3);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let spec = Spec::every(Duration::from_secs(20)).jitter(Duration::from_secs(15));
    let join = |name| {
        let (notes, clock) = (seen.clone(), fleet.clock());
        let job = Act(move |run: Run| {
            notes.lock().unwrap().push((run.tick(), clock.wall()));
            Box::pin(async { Ok(Outcome::Done) }) as _
        });
        fleet.join(name, job, spec.clone())
    };
    let first = join("a");
    fleet.sleep(Duration::from_secs(130)).await;
    first.drain();
    let _second = join("b");
    fleet.sleep(Duration::from_secs(130)).await;
    let seen = seen.lock().unwrap();
    let schedule = spec.schedule_of("job").unwrap();
    assert!(seen.len() >= 11, "{seen:?}");
    let mut delays = std::collections::BTreeSet::new();
    for (tick, started) in &*seen {
        assert_eq!(tick.as_second() % 20, 0, "the tick keeps its name");
        let late = started.duration_since(schedule.starts(*tick)).as_millis();
        // A hand-over takes a moment.
        assert!((-20..1500).contains(&late), "{tick} at {started}");
        delays.insert(schedule.delay(*tick));
    }
    assert!(delays.len() > 8, "{delays:?}");
    let ticks: std::collections::BTreeSet<_> = seen.iter().map(|(tick, _)| *tick).collect();
    assert_eq!(ticks.len(), seen.len(), "none twice");
}

#[tokio::test(start_paused = true)]
async fn blocking_work_holds_its_lease_although_its_run_was_dropped() {
    let fleet = Cluster::new(3);
    let member = fleet.join("a", patient(), Spec::continuous());
    leader(&fleet, &[&member]).await;
    let lease = member.ctx.locks.lock("x").acquire().await.unwrap();
    let facts = crate::job::RunFacts {
        job: "x".into(),
        id: "1".into(),
        tick: member.ctx.clock.wall(),
        attempt: 1,
        replica: "a".into(),
        batch: None,
        shard: 0,
        shards: 1,
        params: serde_json::Value::Null,
        checkpoint: None,
    };
    let clock = member.ctx.clock.clone();
    let run = Run::new(
        facts,
        clock,
        Some(lease.view().clone()),
        ms(100),
        crate::clock::Moment::NEVER,
    );
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let work = run.blocking(move |_| wait.recv().map_err(JobError::from));
    // Begun, then dropped, as a run that has used up its grace.
    let dropped = futures_util::FutureExt::now_or_never(work);
    assert!(dropped.is_none());
    assert_eq!(lease.work_in_flight(), 1);
    go_on.send(()).unwrap();
    while lease.work_in_flight() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failure_of_its_run_and_of_nothing_else() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let seen = starts.clone();
    let job = Act(move |run: Run| {
        seen.note(&run);
        // The first attempt panics before there is a future, the second within it.
        assert!(run.attempt() > 1, "first");
        Box::pin(async move {
            assert!(run.attempt() > 2, "second");
            Ok(Outcome::Done)
        }) as _
    });
    let spec = Spec::every(Duration::from_secs(20)).retry(3);
    let member = fleet.join("a", job, spec);
    let done = |e: &Event| {
        matches!(
            e,
            Event::RunEnded {
                outcome: "done",
                attempt: 3,
                ..
            }
        )
    };
    for _ in 0..600 {
        if member.heard(done) {
            break;
        }
        fleet.sleep(ms(50)).await;
    }
    assert!(member.heard(done), "{:?}", member.told.lock().unwrap());
    for text in ["first", "second"] {
        assert!(member.heard(|e| matches!(e,
            Event::RunEnded { outcome: "panicked", detail, .. } if detail == text)));
    }
    starts.assert_once();
}

#[tokio::test(start_paused = true)]
async fn a_run_that_takes_too_long_is_stopped_and_tried_again_by_whoever_leads() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let slow = || {
        let seen = starts.clone();
        Act(move |run: Run| {
            seen.note(&run);
            Box::pin(async move {
                if run.attempt() == 1 {
                    run.cancelled().await;
                    return Err(JobError::from("stopped"));
                }
                Ok(Outcome::Done)
            }) as _
        })
    };
    let spec = || {
        Spec::every(Duration::from_secs(30))
            .timeout(ms(500))
            .retry(3)
    };
    let a = fleet.join("a", slow(), spec());
    while !a.ended_as("timeout") {
        fleet.sleep(ms(20)).await;
    }
    // The retry waits in the ledger and survives its replica.
    a.tasks.crash();
    let b = fleet.join("b", slow(), spec());
    fleet.sleep(Duration::from_secs(5)).await;
    let done = |e: &Event| {
        matches!(
            e,
            Event::RunEnded {
                outcome: "done",
                attempt: 2,
                ..
            }
        )
    };
    assert!(b.heard(done), "{:?}", b.told.lock().unwrap());
    starts.assert_once();
}
