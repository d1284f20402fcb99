use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::{
    ledger::{Ledger, RunKey},
    node::Token,
    schedule::Schedule,
};

mod fleet;
mod jumps;
mod rules;

const TERM: Token = Token(5);

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn id(second: i64) -> String {
    at(second).to_string()
}

fn key(second: i64, attempt: u32) -> RunKey {
    RunKey {
        id: id(second),
        attempt,
    }
}

fn key_of(start: &Decision) -> RunKey {
    match start {
        Decision::Start { id, attempt, .. } => RunKey {
            id: id.clone(),
            attempt: *attempt,
        },
        other => panic!("{other:?}"),
    }
}

fn ticks(from: i64, to: i64, count: u64) -> Ticks {
    Ticks {
        from: at(from),
        to: at(to),
        count,
    }
}

fn start(second: i64, attempt: u32, interrupted: bool, checkpoint: Option<Value>) -> Decision {
    Decision::Start {
        id: id(second),
        tick: at(second),
        attempt,
        interrupted,
        checkpoint,
    }
}

fn missed(from: i64, to: i64, count: u64, why: WhySkipped) -> Decision {
    Decision::Missed {
        ticks: ticks(from, to, count),
        why,
    }
}

/// One job, one tick every ten seconds, seen first at 1000; each question answers with what was decided.
struct Bench {
    ledger: Ledger,
    schedule: Schedule,
    policy: Policy,
    token: Token,
    alive: Vec<RunKey>,
    triggers: Vec<String>,
    may_start: bool,
    paused_upto: Option<Timestamp>,
}

impl Bench {
    fn new(mode: Misfire) -> Self {
        let mut policy = Policy::default();
        policy.misfire.mode = mode;
        let mut ledger = Ledger::default();
        ledger.first_sight(at(1000)).unwrap();
        let schedule = Schedule::parse("@every 10s", None, None).unwrap();
        Self {
            ledger,
            schedule,
            policy,
            token: TERM,
            alive: vec![],
            triggers: vec![],
            may_start: true,
            paused_upto: None,
        }
    }

    fn ask(&self, now: Timestamp) -> Result<Plan, Refused> {
        let Self {
            ledger,
            schedule,
            policy,
            token,
            alive,
            triggers,
            may_start,
            paused_upto,
        } = self;
        decide(&Facts {
            ledger,
            schedule,
            policy,
            now,
            token: *token,
            alive,
            may_start: *may_start,
            triggers,
            paused_upto: *paused_upto,
        })
    }

    /// Asks at `second`, carries the plan out, and answers with decisions and wake-up second.
    fn at(&mut self, second: i64) -> (Vec<Decision>, i64) {
        let plan = self.ask(at(second)).unwrap();
        self.alive.extend(plan.starts().map(key_of));
        self.ledger = plan.ledger;
        (plan.decisions, plan.wake.map_or(-1, Timestamp::as_second))
    }

    fn finish(&mut self) {
        let key = self.alive.pop().unwrap();
        self.ledger.finish(&key, self.token).unwrap();
    }

    /// This one of several ends.
    fn end(&mut self, id: &str) {
        let place = self.alive.iter().position(|key| key.id == id).unwrap();
        let key = self.alive.remove(place);
        self.ledger.finish(&key, self.token).unwrap();
    }

    fn retry(&mut self, not_before: i64) {
        let key = self.alive.pop().unwrap();
        self.ledger
            .retry_later(&key, self.token, at(not_before))
            .unwrap();
    }

    /// The holder dies; the next one asks with a larger token.
    fn next_holder(&mut self) {
        self.alive.clear();
        self.token.0 += 1;
    }
}

#[test]
fn the_first_sight_of_a_job_runs_nothing_before_now() {
    let mut job = Bench::new(Misfire::All);
    job.ledger = Ledger::default();
    assert_eq!(
        job.at(5005),
        (vec![Decision::FirstSight { upto: at(5005) }], 5010)
    );
    assert_eq!(job.at(5006), (vec![], 5010));
    assert_eq!(job.at(5010).0, [start(5010, 1, false, None)]);
}

#[test]
fn a_tick_on_time_starts_whatever_the_rule_about_late_ones() {
    for mode in [Misfire::Skip, Misfire::Once, Misfire::All] {
        let mut job = Bench::new(mode);
        job.policy.misfire.window = Some(Duration::ZERO);
        assert_eq!(job.at(1009), (vec![], 1010));
        assert_eq!(job.at(1011), (vec![start(1010, 1, false, None)], 1020));
        job.finish();
        assert_eq!(job.at(1011), (vec![], 1020));
    }
}

#[test]
fn late_ticks_are_skipped_when_the_job_says_so() {
    let mut job = Bench::new(Misfire::Skip);
    assert_eq!(
        job.at(1045),
        (vec![missed(1010, 1040, 4, WhySkipped::Misfire)], 1050)
    );
    assert_eq!(
        job.at(1070).0,
        [
            missed(1050, 1060, 2, WhySkipped::Misfire),
            start(1070, 1, false, None)
        ]
    );
}

#[test]
fn the_latest_of_the_late_ticks_runs_once_for_all() {
    let mut job = Bench::new(Misfire::Once);
    assert_eq!(
        job.at(1045).0,
        [
            missed(1010, 1030, 3, WhySkipped::Limit),
            start(1040, 1, false, None)
        ]
    );
    job.finish();
    assert_eq!(job.at(1046), (vec![], 1050));
    job.policy.misfire.window = Some(Duration::from_secs(20));
    assert_eq!(
        job.at(1095).0,
        [
            missed(1050, 1070, 3, WhySkipped::Window),
            missed(1080, 1080, 1, WhySkipped::Limit),
            start(1090, 1, false, None)
        ]
    );
    job.finish();
    job.policy.misfire.window = Some(Duration::from_secs(4));
    assert_eq!(job.at(1105).0, [missed(1100, 1100, 1, WhySkipped::Window)]);
}

#[test]
fn each_late_tick_runs_in_order_within_limit_and_window() {
    let mut job = Bench::new(Misfire::All);
    job.policy.misfire.limit = 3;
    job.policy.misfire.window = Some(Duration::from_secs(45));
    assert_eq!(
        job.at(1100).0,
        [
            missed(1010, 1050, 5, WhySkipped::Window),
            missed(1060, 1070, 2, WhySkipped::Limit),
            start(1080, 1, false, None)
        ]
    );
    // What falls due meanwhile is overlap, not one more late tick.
    assert_eq!(
        job.at(1112).0,
        [Decision::Overlap {
            ticks: ticks(1110, 1110, 1)
        }]
    );
    job.finish();
    assert_eq!(job.at(1113), (vec![start(1090, 1, false, None)], 1120));
    job.finish();
    assert_eq!(job.at(1114).0, [start(1100, 1, false, None)]);
    job.finish();
    assert_eq!(job.at(1115), (vec![], 1120));
}

#[test]
fn waiting_ticks_survive_their_holder_and_grow_too_old() {
    let mut job = Bench::new(Misfire::All);
    job.policy.misfire.window = Some(Duration::from_secs(45));
    job.policy.interrupted = Interrupted::Skip;
    assert_eq!(job.at(1040).0, [start(1010, 1, false, None)]);
    job.next_holder();
    let (decisions, _) = job.at(1069);
    assert!(matches!(
        decisions[0],
        Decision::Interrupted {
            attempt: 1,
            exhausted: false,
            ..
        }
    ));
    // 1020 has waited too long; 1050 and 1060 were missed and wait behind 1030 and 1040.
    assert_eq!(
        decisions[1..],
        [
            missed(1020, 1020, 1, WhySkipped::Window),
            start(1030, 1, false, None)
        ]
    );
    assert_eq!(job.ledger.waiting(), [at(1040), at(1050), at(1060)]);
}

#[test]
fn a_tick_due_during_a_run_is_overlap() {
    let mut job = Bench::new(Misfire::Once);
    job.at(1010);
    assert_eq!(job.at(1015), (vec![], 1020));
    assert_eq!(
        job.at(1020),
        (
            vec![Decision::Overlap {
                ticks: ticks(1020, 1020, 1)
            }],
            1030
        )
    );
    assert_eq!(
        job.at(1055),
        (
            vec![Decision::Overlap {
                ticks: ticks(1030, 1050, 3)
            }],
            1060
        )
    );
    job.finish();
    assert_eq!(job.at(1056), (vec![], 1060));
}

#[test]
fn an_interrupted_run_starts_again_with_the_next_attempt_and_its_checkpoint() {
    let mut job = Bench::new(Misfire::Once);
    job.at(1010);
    job.ledger
        .save_checkpoint(&key(1010, 1), job.token, json!("half"))
        .unwrap();
    job.next_holder();
    let interrupted = |attempt, action, exhausted| Decision::Interrupted {
        id: id(1010),
        tick: at(1010),
        attempt,
        action,
        exhausted,
    };
    assert_eq!(
        job.at(1015).0,
        [
            interrupted(1, Interrupted::Rerun, false),
            start(1010, 2, true, Some(json!("half")))
        ]
    );
    job.next_holder();
    assert_eq!(job.at(1016).0[1], start(1010, 3, true, Some(json!("half"))));
    job.next_holder();
    assert_eq!(
        job.at(1017),
        (vec![interrupted(3, Interrupted::Skip, true)], 1020)
    );
    assert_eq!(job.ledger.open(), []);
}

#[test]
fn a_late_tick_waits_for_the_interrupted_run() {
    let mut job = Bench::new(Misfire::Once);
    job.at(1010);
    job.next_holder();
    let (decisions, _) = job.at(1038);
    assert_eq!(
        decisions[1..],
        [
            missed(1020, 1020, 1, WhySkipped::Limit),
            start(1010, 2, true, None)
        ]
    );
    job.finish();
    assert_eq!(job.at(1039).0, [start(1030, 1, false, None)]);
}

#[test]
fn a_retry_waits_without_blocking_the_next_tick_and_survives_its_holder() {
    let mut job = Bench::new(Misfire::Once);
    job.at(1010);
    job.retry(1025);
    assert_eq!(job.at(1012), (vec![], 1020));
    assert_eq!(job.at(1020).0, [start(1020, 1, false, None)]);
    assert_eq!(job.at(1026), (vec![], 1030)); // due, but something runs
    job.finish();
    assert_eq!(job.at(1027).0, [start(1010, 2, false, None)]);
    job.retry(1100);
    job.next_holder();
    assert_eq!(job.at(1028), (vec![], 1030));
    job.at(1030);
    job.finish();
    job.schedule = Schedule::parse("0 0 1 1 *", None, None).unwrap();
    assert_eq!(job.at(1031), (vec![], 1100));
    assert_eq!(job.at(1100).0, [start(1010, 3, false, None)]);
}

#[test]
fn a_trigger_runs_once() {
    let mut job = Bench::new(Misfire::Once);
    job.triggers = vec!["2026-01-01T00:00:00Z".to_owned(), "t1".to_owned()];
    let (decisions, _) = job.at(1005);
    assert!(matches!(&decisions[..], [Decision::Start { id, attempt: 1, .. }] if id == "t1"));
    job.finish();
    assert_eq!(job.at(1006), (vec![], 1010));
}

#[test]
fn a_continuous_job_starts_when_nothing_of_it_is_open() {
    let mut job = Bench::new(Misfire::Once);
    job.schedule = Schedule::parse("continuous", None, None).unwrap();
    job.ledger = Ledger::default();
    let seen = Decision::FirstSight { upto: at(1004) };
    assert_eq!(job.at(1005), (vec![seen, start(1005, 1, false, None)], -1));
    assert_eq!(job.at(1500), (vec![], -1));
    job.next_holder();
    assert_eq!(job.at(1600).0[1], start(1005, 2, true, None));
    job.finish();
    assert_eq!(job.at(1601).0, [start(1601, 1, false, None)]);
    job.finish();
    assert_eq!(job.at(1601), (vec![], 1602));
}

#[test]
fn a_clock_that_goes_back_starts_nothing_twice() {
    let mut job = Bench::new(Misfire::All);
    job.at(1050);
    job.ledger = {
        let mut ledger = Ledger::default();
        ledger.first_sight(at(1050)).unwrap();
        ledger
    };
    job.alive.clear();
    let plan = job.ask(at(1005)).unwrap();
    assert_eq!((plan.decisions, plan.wake), (vec![], Some(at(1060))));
    assert_eq!(plan.ahead, Some(Duration::from_secs(45)));
    assert_eq!(job.ask(at(1051)).unwrap().ahead, None);
}

#[test]
fn a_ledger_written_by_a_later_holder_is_left_alone() {
    let mut job = Bench::new(Misfire::Once);
    job.at(1010);
    job.token = Token(4);
    assert_eq!(
        job.ask(at(1020)),
        Err(Refused::Outranked {
            id: id(1010),
            token: TERM
        })
    );
}

#[test]
fn a_fleet_that_was_down_for_a_month_catches_up_in_bounded_work() {
    let mut job = Bench::new(Misfire::All);
    job.schedule = Schedule::parse("* * * * * *", None, Some("Europe/Berlin")).unwrap();
    job.policy.misfire.limit = 100;
    let now = 1000 + 31 * 24 * 3600;
    let (decisions, _) = job.at(now);
    let first = now - 99;
    assert_eq!(
        decisions,
        [
            missed(1001, first - 1, COUNT_LIMIT, WhySkipped::Limit),
            start(first, 1, false, None)
        ]
    );
    assert_eq!(job.ledger.waiting().len(), 99);
}

#[test]
fn a_full_ledger_keeps_the_tick_waiting() {
    let mut job = Bench::new(Misfire::Once);
    for n in 0..16 {
        job.at(1010 + 10 * n);
        job.retry(9000);
    }
    assert_eq!(job.at(1170), (vec![], 1180));
    assert_eq!(job.ledger.waiting(), [at(1170)]);
}

#[test]
fn rules_are_single_words_in_configuration() {
    let words = serde_json::to_string(&(Misfire::Once, Interrupted::Rerun)).unwrap();
    assert_eq!(words, r#"["once","rerun"]"#);
}

#[test]
fn what_falls_into_a_pause_is_missed_and_a_trigger_runs_all_the_same() {
    for mode in [Misfire::Skip, Misfire::Once, Misfire::All] {
        let mut job = Bench::new(mode);
        job.paused_upto = Some(Timestamp::MAX);
        let (decisions, wake) = job.at(1020);
        assert_eq!(
            decisions,
            [missed(1010, 1020, 2, WhySkipped::Paused)],
            "{mode:?}"
        );
        assert_eq!(wake, 1030, "ticks are collected");
        job.triggers = vec!["t1".to_owned()];
        let (decisions, _) = job.at(1021);
        assert!(matches!(&decisions[..], [Decision::Start { id, attempt: 1, .. }] if id == "t1"));
        job.finish();
        assert_eq!(job.at(1022).0, [], "once");
        // What was not decided in the pause is decided after it, up to its end.
        job.paused_upto = Some(at(1045));
        let (decisions, _) = job.at(1050);
        assert_eq!(decisions[0], missed(1030, 1040, 2, WhySkipped::Paused));
        assert_eq!(decisions[1..], [start(1050, 1, false, None)], "{mode:?}");
        let skipped = job.ledger.skipped();
        assert_eq!(skipped.len(), 1, "in a row: {skipped:?}");
        assert_eq!(
            (skipped[0].from, skipped[0].to, skipped[0].count),
            (at(1010), at(1040), 4)
        );
    }
}

#[test]
fn in_a_pause_late_ticks_go_and_retries_wait_without_a_busy_loop() {
    let mut job = Bench::new(Misfire::All);
    let (decisions, _) = job.at(1030);
    assert_eq!(decisions.last(), Some(&start(1010, 1, false, None)));
    assert_eq!(job.ledger.waiting(), [at(1020), at(1030)]);
    let key = job.alive.pop().unwrap();
    job.ledger.retry_later(&key, TERM, at(1032)).unwrap();
    job.paused_upto = Some(Timestamp::MAX);
    let (decisions, wake) = job.at(1035);
    let single = |second| missed(second, second, 1, WhySkipped::Paused);
    assert_eq!(decisions, [single(1020), single(1030)]);
    assert_eq!(wake, 1045);
    job.paused_upto = Some(at(1036));
    assert_eq!(job.at(1036).0, [start(1010, 2, false, None)], "resumed");
}

#[test]
fn a_paused_service_does_not_start_again() {
    let mut job = Bench::new(Misfire::Once);
    job.schedule = Schedule::parse("continuous", None, None).unwrap();
    job.paused_upto = Some(Timestamp::MAX);
    assert_eq!(job.at(1010), (vec![], -1));
    // Resumed by a clock that is ahead.
    job.paused_upto = Some(at(1020));
    assert_eq!(job.at(1010), (vec![], 1020));
    assert_eq!(job.at(1020).0.len(), 1);
}
