//! Ids, contexts and spans: the same for all programs that compute them, and no others.

use std::{collections::HashSet, time::Duration};

use super::*;
use crate::clock::Clock;

const GIVEN: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

fn tracer(me: &str, ratio: f64, room: usize) -> (Tracer, Recorded) {
    Tracer::new("shop", me, ratio, room)
}

/// The contexts of attempts at one tick, as a replica of this name computes them.
fn attempts(me: &str) -> Vec<TraceContext> {
    let (tracer, _recorded) = tracer(me, 1.0, 1);
    let attempt = |n| tracer.attempt("report", "2026-05-04T08:00:00Z", n).unwrap();
    let run = tracer.run("report", "2026-05-04T08:00:00Z").unwrap();
    assert_eq!(attempt(1).run(), Some(run));
    assert_eq!(attempt(1).follows(), None);
    assert_eq!(attempt(2).follows(), Some(attempt(1).context()));
    vec![run, attempt(1).context(), attempt(2).context()]
}

#[test]
fn attempts_of_one_run_share_a_trace_on_all_replicas() {
    let ours = attempts("a");
    assert_eq!(ours, attempts("b"));
    let traces: HashSet<_> = ours.iter().map(|c| c.trace_id()).collect();
    let spans: HashSet<_> = ours.iter().map(|c| c.span_id()).collect();
    assert_eq!((traces.len(), spans.len()), (1, 3));
    let (tracer, _recorded) = tracer("a", 1.0, 1);
    let other = |job, id| tracer.run(job, id).unwrap().trace_id();
    assert_ne!(other("report", "2026-05-05T08:00:00Z"), ours[0].trace_id());
    assert_ne!(other("repor", "t2026-05-04T08:00:00Z"), ours[0].trace_id());
    let (elsewhere, _recorded) = Tracer::new("shop 2", "a", 1.0, 1);
    let same = elsewhere.run("report", "2026-05-04T08:00:00Z").unwrap();
    assert_ne!(same.trace_id(), ours[0].trace_id());
}

#[test]
fn all_replicas_keep_the_same_traces() {
    let (a, _recorded) = tracer("a", 0.25, 1);
    let (b, _recorded) = tracer("b", 0.25, 1);
    let mut kept = 0;
    for n in 0..4_000 {
        let id = n.to_string();
        let (here, there) = (a.run("report", &id).unwrap(), b.run("report", &id).unwrap());
        assert_eq!(here.is_sampled(), there.is_sampled());
        let attempt = a.attempt("report", &id, 1).unwrap().context();
        assert_eq!(attempt.is_sampled(), here.is_sampled());
        kept += u32::from(here.is_sampled());
    }
    assert!((900..1_100).contains(&kept), "{kept} of 4000");
    for (ratio, all) in [(0.0, false), (1.0, true)] {
        let (tracer, _recorded) = tracer("a", ratio, 1);
        let mut runs = (0..100).map(|n| tracer.run("report", &n.to_string()).unwrap());
        assert!(runs.all(|run| run.is_sampled() == all));
    }
}

#[test]
fn a_context_is_read_as_it_is_written() {
    let context = TraceContext::parse(GIVEN).unwrap();
    assert!(context.is_sampled());
    assert_eq!(context.to_string(), GIVEN);
    assert_eq!(context.kept_id().as_deref(), GIVEN.split('-').nth(1));
    let not = TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00");
    assert!(!not.unwrap().is_sampled());
    assert_eq!(not.unwrap().kept_id(), None);
    // A later version may say more; the other flags are nothing that we know.
    let later = TraceContext::parse("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-03-what");
    assert_eq!(later.unwrap().to_string(), GIVEN);
}

#[test]
fn a_context_that_makes_no_sense_is_none() {
    for text in [
        "",
        "00",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "00-\u{fc}af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ] {
        assert_eq!(TraceContext::parse(text), None, "{text}");
    }
}

#[test]
fn what_finds_no_room_is_counted() {
    let (tracer, mut recorded) = tracer("a", 1.0, 2);
    for _ in 0..5 {
        drop(tracer.begin_for(None, "program", &Clock::system()));
    }
    assert_eq!(recorded.lost(), 3);
    assert_eq!(recorded.lost(), 0, "each is counted once");
    let told: Vec<_> = std::iter::from_fn(|| recorded.spans.try_recv().ok()).collect();
    assert_eq!(told.len(), 2);
    // Nobody takes them any more.
    drop(recorded.spans);
    drop(tracer.begin_for(None, "program", &Clock::system()));
}

#[tokio::test(start_paused = true)]
async fn a_piece_tells_of_itself_when_it_has_ended() {
    let clock = crate::sim_clock::SimTime::new().clock();
    let (tracer, mut recorded) = tracer("a", 1.0, 8);
    let caller = TraceContext::parse(GIVEN).unwrap();
    let began = clock.wall();
    let mut piece = tracer.begin_for(Some(caller), "program", &clock).unwrap();
    let other = tracer.begin_for(Some(caller), "program", &clock).unwrap();
    assert_ne!(piece.context(), other.context());
    piece.say("watchkeeper.token", 7_u64);
    piece.fail("lost");
    clock.sleep(Duration::from_secs(3)).await;
    assert!(recorded.spans.try_recv().is_err(), "it goes on");
    let context = piece.context();
    drop(piece);
    let span = recorded.spans.try_recv().unwrap();
    assert_eq!((span.context, span.parent), (context, Some(caller)));
    assert_eq!(span.context.trace_id(), caller.trace_id());
    assert_eq!(span.start, began);
    assert_eq!(span.end.duration_since(span.start).as_secs(), 3);
    assert_eq!(span.says, [("watchkeeper.token", Value::Number(7))]);
    assert_eq!(span.failure, Some("lost"));
}

#[test]
fn a_trace_that_is_not_kept_is_passed_on_and_not_told() {
    let (tracer, mut recorded) = tracer("a", 1.0, 8);
    let unsampled = GIVEN.replace("-01", "-00");
    let caller = TraceContext::parse(&unsampled);
    let piece = tracer.begin_for(caller, "program", &Clock::system());
    let passed_on = piece.as_ref().unwrap().context().to_string();
    assert!(passed_on.ends_with("-00"), "{passed_on}");
    drop(piece);
    assert!(recorded.spans.try_recv().is_err());
    assert_eq!(recorded.lost(), 0);
}

#[test]
fn what_a_span_says_is_cut() {
    let Value::Text(text) = Value::from("\u{fc}".repeat(10_000)) else {
        panic!("not a text");
    };
    assert_eq!(text.chars().count(), 201);
    assert!(text.ends_with('\u{2026}'));
    assert_eq!(Value::from(u64::MAX), Value::Number(i64::MAX));
}

#[test]
fn an_attempt_that_asks_for_another_has_not_failed() {
    for well in ["done", "skipped", "retry"] {
        assert_eq!(failure(well), None);
    }
    assert_eq!(failure("panicked"), Some("panicked"));
}

#[test]
fn without_traces_nothing_is_computed() {
    let off = Tracer::default();
    assert!(off.run("report", "x").is_none());
    assert!(off.attempt("report", "x", 1).is_none());
    assert!(off.batch("mail", "x").is_none());
    assert!(off.begin_for(None, "program", &Clock::system()).is_none());
    assert_eq!(current(), None);
}

#[tokio::test]
async fn work_knows_the_span_that_it_is_a_part_of() {
    let context = TraceContext::parse(GIVEN);
    let seen = within(context, async {
        tokio::task::yield_now().await;
        current()
    });
    assert_eq!(seen.await, context);
    assert_eq!(current(), None);
}
