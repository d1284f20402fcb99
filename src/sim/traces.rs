//! What whole replicas tell of the traces of their runs.

use std::{collections::BTreeSet, time::Duration};

use super::acts::{Act, Starts, leader, ms, quick};
use crate::{
    event::Event,
    fleet::client::runs,
    job::{Job, JobError, Retry, Run, Spec},
    testing::{cluster::Cluster, members::Member},
    trace::{Recorded, Span, Tracer, Value},
};

fn traced() -> (Cluster, Recorded) {
    let mut fleet = Cluster::new(3);
    let (tracer, recorded) = Tracer::new("sim", "all", 1.0, 10_000);
    fleet.tracer = tracer;
    (fleet, recorded)
}

fn told(recorded: &mut Recorded) -> Vec<Span> {
    std::iter::from_fn(|| recorded.spans.try_recv().ok()).collect()
}

fn failing() -> impl Job {
    Act(|_: Run| Box::pin(async { Err(JobError::from("hunter2 was refused")) }) as _)
}

fn says(span: &Span, name: &str) -> Option<Value> {
    let said = span.says.iter().find(|(said, _)| *said == name);
    said.map(|(_, value)| value.clone())
}

async fn until(fleet: &Cluster, member: &Member, what: &str) {
    while !member.ended_as(what) {
        fleet.sleep(ms(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_with_two_attempts_on_two_replicas_is_one_trace() {
    let (fleet, mut recorded) = traced();
    let spec = || {
        let retry = Retry {
            attempts: 3,
            backoff: Duration::from_secs(4),
            max_backoff: Duration::from_secs(4),
        };
        Spec::every(Duration::from_secs(60)).retry(retry)
    };
    let a = fleet.join("a", failing(), spec());
    leader(&fleet, &[&a]).await;
    let b = fleet.join("b", quick(&Starts::default()), spec());
    until(&fleet, &a, "failed").await;
    fleet.sleep(ms(200)).await;
    a.tasks.crash();
    until(&fleet, &b, "done").await;
    fleet.sleep(ms(200)).await;

    let spans = told(&mut recorded);
    let runs: Vec<&Span> = spans.iter().filter(|span| span.name == "run job").collect();
    let [run] = runs[..] else {
        panic!("one run is told once: {runs:?}");
    };
    assert_eq!(run.parent, None);
    assert_eq!(says(run, "watchkeeper.attempts"), Some(Value::Number(2)));
    assert_eq!(
        says(run, "watchkeeper.outcome"),
        Some(Value::Text("done".to_owned()))
    );
    let attempts: Vec<&Span> = spans.iter().filter(|span| span.name == "attempt").collect();
    assert_eq!(attempts.len(), 2, "{attempts:?}");
    let replicas: BTreeSet<String> = attempts
        .iter()
        .map(|span| format!("{:?}", says(span, "watchkeeper.replica")))
        .collect();
    assert_eq!(replicas.len(), 2, "{replicas:?}");
    assert_eq!(attempts[0].failure, Some("failed"));
    assert_eq!(attempts[1].failure, None);
    // The start and the outcome of each attempt.
    let writes = spans.iter().filter(|span| span.name == "ledger.write");
    assert_eq!(writes.clone().count(), 4);
    for span in attempts.into_iter().chain(writes) {
        assert_eq!(span.parent, Some(run.context), "{span:?}");
        assert_eq!(span.context.trace_id(), run.context.trace_id());
        assert!(span.end <= run.end, "{span:?}");
    }
    let kept = runs::last(&b.ctx.locks, "job", 10).await.unwrap();
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert!(
        kept.iter()
            .all(|kept| kept.trace_id == run.context.kept_id())
    );
    let lasted = run.end.duration_since(run.start).as_secs();
    assert!(lasted >= 4, "from when it was due, the pause included");
    assert!(!format!("{spans:?}").contains("hunter2"));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_died_with_its_replica_and_is_not_repeated_is_told_by_its_successor() {
    let (fleet, mut recorded) = traced();
    let spec = || {
        let spec = Spec::every(Duration::from_secs(60));
        spec.interrupted(crate::job::Interrupted::Skip)
    };
    let a = fleet.join("a", super::acts::patient(), spec());
    leader(&fleet, &[&a]).await;
    while !a.heard(|event| matches!(event, Event::RunStarted { .. })) {
        fleet.sleep(ms(5)).await;
    }
    a.tasks.crash();
    let b = fleet.join("b", quick(&Starts::default()), spec());
    leader(&fleet, &[&b]).await;
    fleet.sleep(ms(200)).await;
    let spans = told(&mut recorded);
    let runs: Vec<&Span> = spans.iter().filter(|span| span.name == "run job").collect();
    assert_eq!(runs.len(), 1, "{runs:?}");
    assert_eq!(runs[0].failure, Some("interrupted"));
    assert!(spans.iter().all(|span| span.name != "attempt"), "{spans:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_lock_the_run_of_each_replica_is_a_trace_of_its_own() {
    let (fleet, mut recorded) = traced();
    let spec = || {
        let spec = Spec::every(Duration::from_secs(2));
        spec.coordination(crate::job::Coordination::Everywhere)
    };
    let starts = Starts::default();
    let a = fleet.join("a", quick(&starts), spec());
    let b = fleet.join("b", quick(&starts), spec());
    until(&fleet, &a, "done").await;
    until(&fleet, &b, "done").await;
    fleet.sleep(ms(200)).await;
    let spans = told(&mut recorded);
    let runs: Vec<&Span> = spans.iter().filter(|span| span.name == "run job").collect();
    let traces: BTreeSet<_> = runs.iter().map(|span| span.context.trace_id()).collect();
    assert!(runs.len() >= 2);
    assert_eq!(traces.len(), runs.len(), "{runs:?}");
    assert!(spans.iter().all(|span| span.name != "ledger.write"));
}
