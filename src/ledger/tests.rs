use std::time::Duration;

use jiff::SignedDuration;
use serde_json::json;

use super::*;
use crate::{lock::Timing, node::Token};

const OLD: Token = Token(3);
const NEW: Token = Token(4);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn key(second: i64, attempt: u32) -> RunKey {
    RunKey {
        id: at(second).to_string(),
        attempt,
    }
}

/// Seen at 100.
fn ledger() -> Ledger {
    let mut ledger = Ledger::default();
    ledger.first_sight(at(100)).unwrap();
    ledger
}

fn decided(tick: i64, upto: i64) -> Refused {
    Refused::Decided {
        tick: at(tick),
        upto: at(upto),
    }
}

#[test]
fn nothing_starts_before_the_first_sight_is_recorded() {
    let mut ledger = Ledger::default();
    assert_eq!(ledger.start_tick(at(1), OLD), Err(Refused::Unseen));
    assert_eq!(ledger.start_trigger("t", at(1), OLD), Err(Refused::Unseen));
    assert_eq!(ledger.decide_upto(at(1)), Err(Refused::Unseen));
    ledger.first_sight(at(100)).unwrap();
    assert_eq!(
        ledger.first_sight(at(200)),
        Err(Refused::Seen { upto: at(100) })
    );
    assert_eq!(ledger.start_tick(at(100), OLD), Err(decided(100, 100)));
}

#[test]
fn a_decided_tick_is_never_started_again() {
    let mut ledger = ledger();
    ledger.start_tick(at(110), OLD).unwrap();
    assert_eq!(ledger.start_tick(at(110), OLD), Err(decided(110, 110)));
    assert_eq!(ledger.start_tick(at(105), NEW), Err(decided(105, 110)));
    ledger.finish(&key(110, 1), OLD).unwrap();
    assert_eq!(ledger.start_tick(at(110), NEW), Err(decided(110, 110)));

    ledger.wait(at(120)).unwrap();
    ledger.decide_upto(at(150)).unwrap();
    assert_eq!(ledger.wait(at(130)), Err(decided(130, 150)));
    ledger.start_tick(at(120), NEW).unwrap();
    assert_eq!(ledger.start_tick(at(120), NEW), Err(decided(120, 150)));
    assert_eq!(ledger.waiting(), []);
}

#[test]
fn an_attempt_is_started_once() {
    let mut ledger = ledger();
    let id = key(110, 1).id;
    ledger.start_tick(at(110), OLD).unwrap();
    assert!(matches!(
        ledger.start_again(&id, OLD),
        Err(Refused::Moved { attempt: 1, .. })
    ));
    ledger.retry_later(&key(110, 1), OLD, at(130)).unwrap();
    let second = ledger.start_again(&id, NEW).unwrap();
    assert_eq!(
        (second.attempt, second.token, second.not_before),
        (2, NEW, None)
    );
    assert!(matches!(
        ledger.start_again(&id, NEW),
        Err(Refused::Moved { attempt: 2, .. })
    ));
}

#[test]
fn the_watermark_never_goes_back() {
    let mut ledger = ledger();
    ledger.decide_upto(at(50)).unwrap();
    assert_eq!(ledger.decided_upto(), Some(at(100)));
    ledger.wait(at(200)).unwrap();
    ledger.decide_upto(at(300)).unwrap();
    ledger.start_tick(at(200), OLD).unwrap();
    assert_eq!(ledger.decided_upto(), Some(at(300)));
}

#[test]
fn old_news_changes_nothing() {
    let mut ledger = ledger();
    ledger.start_tick(at(110), OLD).unwrap();
    ledger.interrupt(&key(110, 1), NEW, at(120)).unwrap();
    ledger.start_again(&key(110, 1).id, NEW).unwrap();
    let before = ledger.clone();
    // The holder that was thought dead comes back.
    assert!(matches!(
        ledger.finish(&key(110, 1), OLD),
        Err(Refused::Moved { attempt: 2, .. })
    ));
    assert!(matches!(
        ledger.finish(&key(110, 2), OLD),
        Err(Refused::Moved { token: NEW, .. })
    ));
    assert!(ledger.retry_later(&key(110, 1), OLD, at(1)).is_err());
    assert!(ledger.save_checkpoint(&key(110, 1), OLD, json!(1)).is_err());
    assert!(matches!(
        ledger.give_up(&key(110, 2), OLD),
        Err(Refused::Outranked { .. })
    ));
    assert!(matches!(
        ledger.finish(&key(999, 1), OLD),
        Err(Refused::NotOpen { .. })
    ));
    assert_eq!(ledger, before);
}

#[test]
fn an_interrupted_run_keeps_its_checkpoint() {
    let mut ledger = ledger();
    ledger.start_tick(at(110), OLD).unwrap();
    ledger
        .save_checkpoint(&key(110, 1), OLD, json!({"page": 7}))
        .unwrap();
    let large = json!("x".repeat(MAX_CHECKPOINT));
    let refused = ledger.save_checkpoint(&key(110, 1), OLD, large);
    assert_eq!(
        refused,
        Err(Refused::CheckpointTooLarge {
            size: MAX_CHECKPOINT + 2
        })
    );
    ledger.interrupt(&key(110, 1), NEW, at(120)).unwrap();
    let again = ledger.start_again(&key(110, 1).id, NEW).unwrap();
    assert_eq!(again.checkpoint, Some(json!({"page": 7})));
    assert!(again.interrupted);
}

#[test]
fn every_attempt_has_a_number_of_its_own() {
    let mut ledger = ledger();
    let first = ledger.start_tick(at(110), OLD).unwrap().seq;
    assert_eq!(first, 100_001, "from the first sight on, in milliseconds");
    let second = ledger.start_trigger("t", at(111), OLD).unwrap().seq;
    ledger.retry_later(&key(110, 1), OLD, at(120)).unwrap();
    let third = ledger.start_again(&key(110, 1).id, NEW).unwrap().seq;
    assert_eq!(
        (second, third, ledger.runs()),
        (first + 1, first + 2, third)
    );
    // What is refused takes no number.
    assert!(ledger.start_again(&key(110, 1).id, NEW).is_err());
    assert_eq!(ledger.runs(), third);
    let read = Ledger::from_body(&ledger.to_body()).unwrap();
    assert_eq!(read.runs(), third);

    let mut forgotten = Ledger::default();
    forgotten.first_sight(at(200)).unwrap();
    assert!(forgotten.start_tick(at(201), NEW).unwrap().seq > third);
    // A ledger from before there were numbers.
    let old = r#"{"v":1,"decided_upto":"1970-01-01T00:01:40Z","open":[]}"#;
    let mut old = Ledger::from_body(old).unwrap();
    assert_eq!(old.start_tick(at(201), NEW).unwrap().seq, 1);
}

/// A service that is called knows works by it, and a command writes a file of this name.
#[test]
fn triggers_that_start_together_have_instants_of_their_own() {
    let mut ledger = ledger();
    let ticks: Vec<Timestamp> = ["t1", "t2", "t3"]
        .iter()
        .map(|id| ledger.start_trigger(id, at(110), OLD).unwrap().tick)
        .collect();
    let later = |ms| at(110) + SignedDuration::from_millis(ms);
    assert_eq!(ticks, [at(110), later(1), later(2)]);
}

#[test]
fn a_trigger_is_started_once_and_remembered() {
    let mut ledger = ledger();
    ledger.start_trigger("t1", at(110), OLD).unwrap();
    ledger
        .finish(
            &RunKey {
                id: "t1".to_owned(),
                attempt: 1,
            },
            OLD,
        )
        .unwrap();
    let known = Err(Refused::KnownTrigger {
        id: "t1".to_owned(),
    });
    assert_eq!(ledger.start_trigger("t1", at(120), NEW), known);
    for bad in ["", "2026-01-01T00:00:00Z"] {
        assert!(matches!(
            ledger.start_trigger(bad, at(1), OLD),
            Err(Refused::NotATrigger { .. })
        ));
    }
    assert_eq!(ledger.decided_upto(), Some(at(100)));
}

#[test]
fn a_full_ledger_refuses_and_stays_as_it_is() {
    let mut ledger = ledger();
    for n in 0..16 {
        ledger.start_tick(at(200 + n), OLD).unwrap();
    }
    assert_eq!(ledger.start_tick(at(300), OLD), Err(Refused::Full));
    assert_eq!(ledger.decided_upto(), Some(at(215)));
    assert_eq!(ledger.start_trigger("t", at(300), OLD), Err(Refused::Full));
    assert!(!ledger.knows_trigger("t"));
}

#[test]
fn a_body_reads_back_as_it_was_written() {
    assert_eq!(Ledger::from_body("").unwrap(), Ledger::default());
    let unseen = r#"{"decided_upto":null,"open":[],"recent":[],"v":1}"#;
    assert_eq!(Ledger::default().to_body(), unseen);
    let mut ledger = ledger();
    ledger.start_tick(at(110), OLD).unwrap();
    ledger
        .save_checkpoint(&key(110, 1), OLD, json!([1, null]))
        .unwrap();
    ledger.retry_later(&key(110, 1), OLD, at(130)).unwrap();
    ledger.wait(at(140)).unwrap();
    ledger.start_trigger("t", at(141), OLD).unwrap();
    assert_eq!(Ledger::from_body(&ledger.to_body()).unwrap(), ledger);
}

#[test]
fn fields_of_a_newer_version_are_kept() {
    let body = json!({
        "v": 1, "decided_upto": "1970-01-01T00:01:40Z", "recent": ["t"], "colour": {"deep": [9007199254740991u64]},
        "open": [{"id": "t", "tick": "1970-01-01T00:01:50Z", "attempt": 1, "state": "running", "token": 3,
                  "not_before": null, "mood": "good"}],
    });
    let ledger = Ledger::from_body(&body.to_string()).unwrap();
    assert_eq!(ledger.to_body(), body.to_string());
}

#[test]
fn a_body_that_is_not_understood_is_an_error() {
    let newer = Ledger::from_body(r#"{"v":3,"decided_upto":{"new":"shape"}}"#).unwrap_err();
    assert_eq!(
        newer.to_string(),
        "the ledger has version 3, this program knows 2: update this replica"
    );
    for body in ["{", "{}", "[]", r#"{"v":1,"decided_upto":"soon"}"#] {
        assert!(
            matches!(Ledger::from_body(body), Err(LedgerError::Malformed(_))),
            "{body}"
        );
    }
}

#[test]
fn a_trigger_that_was_forgotten_is_not_started_again() {
    let mut ledger = Ledger::default();
    let now = Timestamp::from_second(100).unwrap();
    ledger.first_sight(now).unwrap();
    let id = |n: usize| format!("t{n:04}");
    for n in 0..MAX_RECENT + 3 {
        let key = ledger.start_trigger(&id(n), now, Token(1)).unwrap().key();
        ledger.finish(&key, Token(1)).unwrap();
    }
    assert_eq!(ledger.recent().len(), MAX_RECENT);
    let ledger = Ledger::from_body(&ledger.to_body()).unwrap();
    assert!((0..MAX_RECENT + 3).all(|n| ledger.knows_trigger(&id(n))));
    assert!(!ledger.knows_trigger(&id(MAX_RECENT + 3)));
}

#[test]
fn the_last_skipped_ticks_are_remembered_in_rows() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let row = |from, to, why: &str| Skipped {
        from: at(from),
        to: at(to),
        count: 1,
        why: why.to_owned(),
    };
    let mut ledger = Ledger::default();
    ledger.first_sight(at(100)).unwrap();
    ledger.skip_upto(row(110, 110, "paused")).unwrap();
    ledger.skip_upto(row(120, 120, "paused")).unwrap();
    ledger.start_tick(at(130), Token(1)).unwrap();
    ledger.skip_upto(row(140, 140, "paused")).unwrap();
    assert_eq!(ledger.decided_upto(), Some(at(140)));
    let rows: Vec<_> = ledger
        .skipped()
        .iter()
        .map(|s| (s.from, s.to, s.count))
        .collect();
    assert_eq!(rows, [(at(110), at(120), 2), (at(140), at(140), 1)]);
    for n in 0..100 {
        ledger.note_skipped(row(200 + n, 200 + n, "limit"));
    }
    assert_eq!(ledger.skipped().len(), MAX_SKIPPED);
}

#[test]
fn a_replaced_run_has_no_further_attempt() {
    let mut ledger = ledger();
    ledger.start_tick(at(110), OLD).unwrap();
    let first = key(110, 1);
    assert!(ledger.replace(&key(110, 2)).is_err(), "another attempt");
    ledger.replace(&first).unwrap();
    let replaced = Err(Refused::Replaced {
        id: first.id.clone(),
    });
    assert_eq!(ledger.retry_later(&first, OLD, at(120)), replaced);
    assert_eq!(ledger.interrupt(&first, NEW, at(120)), replaced);
    assert_eq!(ledger.give_up(&first, NEW), Ok(()));
}

#[test]
fn a_queued_tick_starts_once_and_is_no_late_one() {
    let mut ledger = ledger();
    ledger.queue(at(110)).unwrap();
    ledger.queue(at(120)).unwrap();
    assert_eq!(ledger.queue(at(115)), Err(decided(115, 120)));
    assert!(ledger.waiting().is_empty());
    ledger.start_tick(at(110), OLD).unwrap();
    assert_eq!(ledger.start_tick(at(110), OLD), Err(decided(110, 120)));
    assert_eq!(ledger.queued(), [at(120)]);
    ledger.leave_queue(at(120)).unwrap();
    assert_eq!(ledger.start_tick(at(120), OLD), Err(decided(120, 120)));
}

#[test]
fn a_ledger_of_an_older_version_has_no_queue() {
    let body = r#"{"v":1,"decided_upto":"2026-01-01T00:00:00Z","open":[]}"#;
    let mut ledger = Ledger::from_body(body).unwrap();
    assert!(ledger.queued().is_empty());
    assert!(!ledger.to_body().contains("queued"), "nor writes one");
    let tick = "2026-01-01T00:01:00Z".parse().unwrap();
    ledger.queue(tick).unwrap();
    assert_eq!(Ledger::from_body(&ledger.to_body()).unwrap(), ledger);
}

#[test]
fn a_withdrawn_trigger_is_known_and_takes_no_other_with_it() {
    let mut ledger = Ledger::default();
    ledger
        .first_sight(Timestamp::from_second(100).unwrap())
        .unwrap();
    let id = |n: usize| format!("t{n:04}");
    for n in 1..=MAX_WITHDRAWN {
        assert!(ledger.withdraw_trigger(&id(n), Some(&id(0))));
    }
    // One that waits is older than all of them: the next is not withdrawn yet.
    let full = ledger.clone();
    assert!(!ledger.withdraw_trigger(&id(500), Some(&id(0))));
    assert_eq!(ledger, full);
    assert!(!ledger.knows_trigger(&id(0)));
    assert!(!ledger.knows_trigger(&id(500)));
    let refused = ledger.start_trigger(&id(7), Timestamp::from_second(101).unwrap(), Token(1));
    assert!(matches!(refused, Err(Refused::KnownTrigger { .. })));
    // Nothing waits before them: the floor takes in the smallest.
    assert!(ledger.withdraw_trigger(&id(500), Some(&id(300))));
    assert!(ledger.knows_trigger(&id(1)) && !ledger.knows_trigger(&id(300)));
    assert_eq!(Ledger::from_body(&ledger.to_body()).unwrap(), ledger);
    ledger.forget_withdrawn_before(&id(500));
    assert!(ledger.has_withdrawn(&id(500)) && !ledger.has_withdrawn(&id(7)));
}

#[test]
fn a_jobs_ledger_outlasts_what_other_locks_leave() {
    let day = Duration::from_secs(24 * 3600);
    let timing = |retention| Timing {
        retention,
        kept_longer: KEPT_LONGER,
        ..Timing::default()
    };
    assert_eq!(timing(day).retention_of("lock/report"), day);
    assert_eq!(timing(day).retention_of("job/report"), day * 400);
    // A longer retention of all locks is that of ledgers, too.
    assert_eq!(timing(day * 500).retention_of("job/report"), day * 500);
}
