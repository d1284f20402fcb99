//! The history of runs, as whole replicas write it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{
    acts::{Act, Starts, leader, ms, patient, quick},
    world::TTL,
};
use crate::{
    event::Event,
    fleet::{client::runs, terms},
    job::{Coordination, JobError, Outcome, Run, Spec},
    node::Op,
    status::{RunRecord, runs::LIVE_LIFETIME},
    testing::{cluster::Cluster, members::Member},
    worker::ready::Body,
};

const SECOND: Duration = Duration::from_secs(1);

async fn history(member: &Member) -> Vec<RunRecord> {
    runs::last(&member.ctx.locks, "job", 100).await.unwrap()
}

/// Fails the first time, leaves something to read every time.
fn second_try(starts: &Starts) -> Act<impl Fn(Run) -> super::acts::Ran + Send + Sync + 'static> {
    let starts = starts.clone();
    Act(move |run: Run| {
        starts.note(&run);
        Box::pin(async move {
            run.keep_output(format!("attempt {}\n", run.attempt()));
            match run.attempt() {
                1 => Err(JobError::from("not yet")),
                _ => Ok(Outcome::Done),
            }
        }) as _
    })
}

#[tokio::test(start_paused = true)]
async fn the_history_shows_each_run_once_per_attempt() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let spec = || Spec::every(Duration::from_secs(3)).retry(2);
    let a = fleet.join("a", second_try(&starts), spec());
    let b = fleet.join("b", second_try(&starts), spec());
    leader(&fleet, &[&a, &b]).await;
    fleet.sleep(SECOND * 20).await;
    // The leader hands over in the middle, and the other goes on with the same numbers.
    let (first, second) = if a.leads() { (&a, &b) } else { (&b, &a) };
    first.drain();
    fleet.sleep(SECOND * 20).await;
    assert!(second.leads());
    // What has just ended is written in a moment.
    fleet.sleep(ms(100)).await;

    let shown = history(second).await;
    let mut seen = BTreeMap::new();
    for run in &shown {
        *seen.entry((run.tick, run.attempt)).or_insert(0) += 1;
        let wanted = match run.attempt {
            1 => ("failed", "not yet"),
            _ => ("done", ""),
        };
        assert_eq!(
            (run.outcome.as_str(), run.detail.as_str()),
            wanted,
            "{run:?}"
        );
        let output = format!("attempt {}\n", run.attempt);
        assert_eq!(run.output, Some(output));
        assert!(run.started <= run.ended && run.took_ms.is_some(), "{run:?}");
        assert!(!run.run_id.is_empty() && run.token.is_some());
    }
    assert!(seen.values().all(|times| *times == 1), "{seen:?}");
    assert_eq!(seen.len(), starts.len());
    assert!(seen.len() >= 20, "{}", seen.len());
    let numbers: Vec<u64> = shown.iter().map(|run| run.seq).collect();
    let next = |pair: &[u64]| pair[1] == pair[0] + 1;
    assert!(numbers.windows(2).all(next), "{numbers:?}");
    for member in [first, second] {
        let name = &member.ctx.replica;
        assert!(shown.iter().any(|run| run.replica == *name), "{name}");
    }
}

/// What each leader has told of its term, and what it could not tell.
#[tokio::test(start_paused = true)]
async fn who_led_is_remembered_with_why_it_ended() {
    let fleet = Cluster::new(3);
    let starts = Starts::default();
    let join = |name| fleet.join(name, quick(&starts), Spec::every(SECOND * 3));
    let members = ["a", "b", "c"].map(join);
    let all: Vec<&Member> = members.iter().collect();
    let mut led = Vec::new();
    for n in 0..3 {
        let of: Vec<&Member> = all
            .iter()
            .copied()
            .filter(|member| !led.contains(&member.ctx.replica))
            .collect();
        let now = leader(&fleet, &of).await;
        fleet.sleep(SECOND * 10).await;
        led.push(now.ctx.replica.clone());
        match n {
            0 => now.drain(),
            1 => now.tasks.crash(),
            _ => {
                let doc = now.ctx.locks.doc("terms/job").await.unwrap().unwrap();
                let terms = terms::read(&doc).unwrap();
                let replicas: Vec<&String> = terms.iter().map(|term| &term.replica).collect();
                assert_eq!(replicas, led.iter().collect::<Vec<_>>());
                let ends: Vec<_> = terms
                    .iter()
                    .map(|term| (term.why.as_str(), term.ended.is_some()))
                    .collect();
                assert_eq!(ends, [("drained", true), ("", false), ("", false)]);
                assert!(terms.windows(2).all(|pair| pair[0].token < pair[1].token));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_run_is_marked_by_its_successor() {
    let fleet = Cluster::new(3);
    let spec = || Spec::every(SECOND * 30);
    let a = fleet.join("a", patient(), spec());
    while !a.heard(|e| matches!(e, Event::RunStarted { .. })) {
        fleet.sleep(ms(20)).await;
    }
    fleet.sleep(SECOND).await;
    let before = history(&a).await;
    assert_eq!(before.len(), 1);
    assert_eq!(
        (before[0].outcome.as_str(), before[0].ended),
        ("running", None)
    );
    a.tasks.crash();
    let b = fleet.join("b", patient(), spec());
    leader(&fleet, &[&b]).await;
    fleet.sleep(SECOND).await;

    let after = history(&b).await;
    let outcomes: Vec<_> = after
        .iter()
        .map(|run| (run.attempt, run.replica.as_str(), run.outcome.as_str()))
        .collect();
    assert_eq!(outcomes, [(1, "a", "interrupted"), (2, "b", "running")]);
    assert_eq!(after[0].run_id, before[0].run_id);
    assert!(after[0].ended.is_some() && after[0].took_ms.is_none());
    assert!(after[0].token < after[1].token);
}

#[tokio::test(start_paused = true)]
async fn what_a_run_had_left_when_its_replica_died_stays() {
    let fleet = Cluster::new(3);
    let job = || {
        Act(|run: Run| {
            Box::pin(async move {
                run.keep_output(format!("attempt {}\n", run.attempt()));
                run.cancelled().await;
                Ok(Outcome::Done)
            }) as _
        })
    };
    let spec = || Spec::every(SECOND * 30);
    let a = fleet.join("a", job(), spec());
    while !a.heard(|e| matches!(e, Event::RunStarted { .. })) {
        fleet.sleep(ms(20)).await;
    }
    // Long enough for it to be told.
    fleet.sleep(SECOND * 3).await;
    let outputs = |runs: Vec<RunRecord>| runs.into_iter().map(|run| run.output);
    let first = Some("attempt 1\n".to_owned());
    let before: Vec<_> = outputs(history(&a).await).collect();
    assert_eq!(before, std::slice::from_ref(&first));
    a.tasks.crash();
    let b = fleet.join("b", job(), spec());
    leader(&fleet, &[&b]).await;
    // What runs in flight had left is not kept for so long.
    fleet.sleep(LIVE_LIFETIME * 2).await;
    let after = history(&b).await;
    assert_eq!(after[0].outcome, "interrupted");
    let after: Vec<_> = outputs(after).collect();
    assert_eq!(after[..2], [first, Some("attempt 2\n".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_came_too_late_does_not_hide_the_interruption() {
    let fleet = Cluster::new(3);
    let spec = || Spec::every(SECOND * 30);
    let a = fleet.join("a", patient(), spec());
    let b = fleet.join("b", patient(), spec());
    let ran = |m: &Member| m.heard(|e| matches!(e, Event::RunStarted { .. }));
    while !ran(&a) && !ran(&b) {
        fleet.sleep(ms(20)).await;
    }
    let (first, second) = if ran(&a) { (&a, &b) } else { (&b, &a) };
    first.tasks.freeze();
    leader(&fleet, &[second]).await;
    fleet.sleep(TTL).await;
    // It wakes up, is told that its lease is over, and says so.
    first.tasks.thaw();
    fleet.sleep(SECOND * 2).await;
    let shown = history(second).await;
    let dead = &shown[0];
    assert_eq!((dead.attempt, &dead.replica), (1, &first.ctx.replica));
    assert_eq!(dead.outcome, "interrupted");
}

#[tokio::test(start_paused = true)]
async fn a_start_that_nobody_told_of_is_shown_as_interrupted() {
    let fleet = Cluster::new(3);
    let spec = || Spec::every(SECOND * 30);
    let a = fleet.join("a", patient(), spec());
    // It dies with the first word of its history on the way.
    let doomed = a.tasks.clone();
    for node in &fleet.nodes {
        let doomed = doomed.clone();
        node.observe(move |done| {
            let starts = |op: &Op| matches!(op, Op::Write { body, .. } if body.contains("running"));
            if done.call.ops.iter().any(starts) {
                doomed.crash();
            }
        });
    }
    while !a.tasks.is_crashed() {
        fleet.sleep(ms(20)).await;
    }
    let b = fleet.join("b", patient(), spec());
    leader(&fleet, &[&b]).await;
    fleet.sleep(SECOND).await;
    let shown = history(&b).await;
    let dead = &shown[0];
    assert_eq!((dead.attempt, dead.outcome.as_str()), (1, "interrupted"));
    assert_eq!((dead.run_id.as_str(), dead.started), ("", None));
    assert_eq!(shown[1].attempt, 2);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_drains_writes_what_its_last_run_left() {
    let fleet = Cluster::new(3);
    for node in &fleet.nodes {
        node.faults().delay_requests(ms(10), ms(20));
    }
    let job = Act(|run: Run| {
        Box::pin(async move {
            run.cancelled().await;
            run.keep_output("half of it");
            Ok(Outcome::Skip("told to stop".to_owned()))
        }) as _
    });
    let member = fleet.join("a", job, Spec::continuous());
    while !member.heard(|e| matches!(e, Event::RunStarted { .. })) {
        fleet.sleep(ms(5)).await;
    }
    member.drain();
    member.ended().await;
    // The process is gone with the end of its replica.
    member.tasks.crash();
    let onlooker = fleet.join("b", patient(), Spec::continuous().enabled(false));
    let shown = history(&onlooker).await;
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0].outcome, "skipped");
    assert_eq!(shown[0].output.as_deref(), Some("half of it"));
}

#[tokio::test(start_paused = true)]
async fn the_last_hundred_runs_are_shown() {
    let fleet = Cluster::new(1);
    let starts = Starts::default();
    let member = fleet.join("a", quick(&starts), Spec::every(SECOND));
    // Not on a tick: its run may or may not have been told.
    fleet.sleep(SECOND * 130 + ms(500)).await;
    assert!(starts.len() > 110);
    let shown = history(&member).await;
    assert_eq!(shown.len(), 100);
    let last: Vec<_> = starts.ticks().into_iter().rev().take(100).rev().collect();
    assert_eq!(shown.iter().map(|run| run.tick).collect::<Vec<_>>(), last);
    let three = runs::last(&member.ctx.locks, "job", 3).await.unwrap();
    assert_eq!(three, shown[97..]);
}

#[tokio::test(start_paused = true)]
async fn each_replica_has_its_runs_of_a_job_that_runs_everywhere() {
    let fleet = Cluster::new(3);
    let everywhere = || {
        let spec = Spec::every(SECOND * 2).coordination(Coordination::Everywhere);
        let job = Body::Job(Arc::new(quick(&Starts::default())));
        vec![("job", job, spec)]
    };
    let a = fleet.join_with("a", everywhere(), false);
    let b = fleet.join_with("b", everywhere(), false);
    fleet.sleep(SECOND * 9).await;
    let shown = history(&b).await;
    let of = |member: &Member| {
        let own = shown.iter().filter(|r| r.replica == member.ctx.replica);
        own.map(|run| run.tick).collect::<Vec<_>>()
    };
    assert!(of(&a).len() >= 3, "{shown:?}");
    assert_eq!(of(&a), of(&b));
    assert!(
        shown
            .iter()
            .all(|run| run.token.is_none() && run.outcome == "done")
    );
}
