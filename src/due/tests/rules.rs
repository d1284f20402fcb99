//! One test for each cell of the table of rules in `docs/how-it-works/ticks.md`: what happens, by the name that the table gives it.

use super::*;
use crate::ledger::Decided;

/// A tick every ten seconds, seen first at 1000, with this rule about ticks that fall due while all places are taken.
fn busy(overlap: Overlap, concurrency: usize) -> Bench {
    let mut job = Bench::new(Misfire::Once);
    job.policy.overlap = overlap;
    job.policy.concurrency = concurrency;
    job
}

fn overlap(from: i64, to: i64, count: u64) -> Decision {
    let ticks = ticks(from, to, count);
    Decision::Overlap { ticks }
}

fn queued(from: i64, to: i64, count: u64) -> Decision {
    let ticks = ticks(from, to, count);
    Decision::Queued { ticks }
}

fn fresh(second: i64) -> Decision {
    start(second, 1, false, None)
}

fn interrupted(second: i64, attempt: u32, action: Interrupted, exhausted: bool) -> Decision {
    Decision::Interrupted {
        id: id(second),
        tick: at(second),
        attempt,
        action,
        exhausted,
    }
}

/// The id of a trigger that was asked for at this second.
fn asked(second: i64) -> String {
    format!(
        "{}-0000",
        crate::ledger::ids::trigger_floor(at(second)).trim_end_matches('~')
    )
}

// === misfire

#[test]
fn first_sight_runs_nothing_before_now() {
    let mut job = Bench::new(Misfire::All);
    job.ledger = Ledger::default();
    let seen = Decision::FirstSight { upto: at(5005) };
    assert_eq!(job.at(5005), (vec![seen], 5010));
    assert_eq!(job.at(5010).0, [fresh(5010)]);
}

#[test]
fn misfire_skip_runs_none_of_them() {
    let mut job = Bench::new(Misfire::Skip);
    let missed = missed(1010, 1040, 4, WhySkipped::Misfire);
    assert_eq!(job.at(1045), (vec![missed], 1050));
    assert_eq!(job.at(1050).0, [fresh(1050)]);
}

#[test]
fn misfire_once_runs_the_latest_for_all() {
    let mut job = Bench::new(Misfire::Once);
    let missed = missed(1010, 1030, 3, WhySkipped::Limit);
    assert_eq!(job.at(1045).0, [missed, fresh(1040)]);
    job.finish();
    assert_eq!(job.at(1046), (vec![], 1050));
}

#[test]
fn misfire_all_runs_each_in_order_within_limit_and_window() {
    let mut job = Bench::new(Misfire::All);
    job.policy.misfire.limit = 2;
    job.policy.misfire.window = Some(Duration::from_secs(45));
    assert_eq!(
        job.at(1095).0,
        [
            missed(1010, 1040, 4, WhySkipped::Window),
            missed(1050, 1070, 3, WhySkipped::Limit),
            fresh(1080)
        ]
    );
    job.finish();
    assert_eq!(job.at(1096).0, [fresh(1090)]);
}

#[test]
fn the_window_counts_from_the_delayed_start_of_a_tick() {
    let mut job = Bench::new(Misfire::Once);
    let hours = Schedule::parse("@every 1h", None, None).unwrap();
    job.schedule = hours.of_job("job", Duration::from_secs(3000));
    job.policy.misfire.window = Some(Duration::from_secs(60));
    let delay = |tick: i64| job.schedule.starts(at(tick)).duration_since(at(tick));
    let tick = (1..)
        .map(|n| n * 3600)
        .find(|tick| delay(*tick).as_secs() > 600);
    let tick = tick.unwrap();
    job.ledger = Ledger::default();
    job.ledger.first_sight(at(tick - 1)).unwrap();
    let started = job.schedule.starts(at(tick)).as_second() + 1;
    assert_eq!(job.ask(at(started + 8)).unwrap().decisions, [fresh(tick)]);
    assert_eq!(
        job.ask(at(started + 61)).unwrap().decisions,
        [missed(tick, tick, 1, WhySkipped::Window)]
    );
}

#[test]
fn a_leader_that_may_start_nothing_is_woken_by_nothing_that_is_due() {
    let mut job = busy(Overlap::Allow, 2);
    job.at(1010);
    job.at(1020);
    job.retry(1025);
    job.may_start = false;
    assert_eq!(job.at(1026), (vec![], 1030));
    assert_eq!(job.at(1031), (vec![], 1040));
    job.may_start = true;
    assert_eq!(job.ask(at(1026)).unwrap().decisions.len(), 1);
}

#[test]
fn paused_ticks_do_not_run_whatever_waits() {
    let mut job = busy(Overlap::Queue, 1);
    job.at(1010);
    assert_eq!(job.at(1020).0, [queued(1020, 1020, 1)]);
    job.paused_upto = Some(Timestamp::MAX);
    let single = |second| missed(second, second, 1, WhySkipped::Paused);
    assert_eq!(job.at(1031).0, [single(1030), single(1020)]);
    assert!(job.ledger.queued().is_empty());
}

// === overlap

#[test]
fn overlap_skip_does_not_run_it() {
    let mut job = busy(Overlap::Skip, 1);
    job.at(1010);
    assert_eq!(job.at(1020), (vec![overlap(1020, 1020, 1)], 1030));
    assert_eq!(job.at(1055).0, [overlap(1030, 1050, 3)]);
    let row = &job.ledger.skipped()[0];
    assert_eq!((row.why.as_str(), row.count), ("overlap", 4));
    job.finish();
    assert_eq!(job.at(1056), (vec![], 1060));
}

#[test]
fn overlap_queue_runs_it_in_order_when_a_place_is_free() {
    let mut job = busy(Overlap::Queue, 1);
    job.at(1010);
    assert_eq!(job.at(1035).0, [queued(1020, 1030, 2)]);
    job.finish();
    assert_eq!(job.at(1036).0, [fresh(1020)]);
    // Falls due when a place was free, but others were there before it.
    job.finish();
    assert_eq!(job.at(1040).0, [queued(1040, 1040, 1), fresh(1030)]);
    job.finish();
    assert_eq!(job.at(1041).0, [fresh(1040)]);
    job.finish();
    assert_eq!(job.at(1042), (vec![], 1050));
}

#[test]
fn overlap_queue_survives_its_holder_and_takes_up_what_fell_due_meanwhile() {
    for mode in [Misfire::Skip, Misfire::Once, Misfire::All] {
        let mut job = busy(Overlap::Queue, 1);
        job.policy.misfire.mode = mode;
        job.at(1010);
        assert_eq!(job.at(1020).0, [queued(1020, 1020, 1)]);
        job.next_holder();
        let (decisions, _) = job.at(1045);
        assert_eq!(
            decisions,
            [
                interrupted(1010, 1, Interrupted::Rerun, false),
                queued(1030, 1040, 2),
                start(1010, 2, true, None)
            ],
            "{mode:?}"
        );
        // Also those that fall due while the run is made up for.
        assert_eq!(job.at(1050).0, [queued(1050, 1050, 1)]);
        for tick in [1020, 1030, 1040, 1050] {
            job.finish();
            assert_eq!(job.at(1051).0, [fresh(tick)]);
        }
    }
}

#[test]
fn overlap_queue_keeps_a_weekend_without_a_leader_within_limit_and_window() {
    let mut job = busy(Overlap::Queue, 1);
    job.policy.misfire.limit = 3;
    job.at(1010);
    job.next_holder();
    let (decisions, _) = job.at(201_000);
    assert_eq!(
        decisions[1..],
        [
            missed(1020, 200_970, COUNT_LIMIT, WhySkipped::Limit),
            queued(200_980, 201_000, 3),
            start(1010, 2, true, None)
        ]
    );
}

#[test]
fn overlap_queue_reports_what_it_has_no_room_for() {
    let mut job = busy(Overlap::Queue, 1);
    job.at(1010);
    let last = 1010 + 10 * 103;
    assert_eq!(
        job.at(last).0,
        [queued(1020, 2010, 100), overlap(2020, last, 3)]
    );
    job.finish();
    assert_eq!(job.at(last + 1).0, [fresh(1020)]);
    assert_eq!(job.at(last + 10).0, [queued(last + 10, last + 10, 1)]);
}

#[test]
fn overlap_cancel_previous_stops_the_oldest_run_first() {
    let mut job = busy(Overlap::CancelPrevious, 1);
    job.at(1010);
    let replaced = |second, by| Decision::Replaced {
        key: key(second, 1),
        by: at(by),
    };
    assert_eq!(
        job.at(1020),
        (vec![queued(1020, 1020, 1), replaced(1010, 1020)], 1030)
    );
    assert_eq!(job.at(1025), (vec![], 1030), "nothing beside it");
    // The later one takes the place of the one that has waited in vain.
    assert_eq!(
        job.at(1030).0,
        [overlap(1020, 1020, 1), queued(1030, 1030, 1)]
    );
    let refused = job
        .ledger
        .clone()
        .retry_later(&key(1010, 1), TERM, at(1031));
    assert_eq!(refused, Err(Refused::Replaced { id: id(1010) }));
    job.finish();
    assert_eq!(job.at(1031).0, [fresh(1030)]);
}

#[test]
fn overlap_cancel_previous_lets_what_has_waited_longer_go_first() {
    let mut job = busy(Overlap::CancelPrevious, 1);
    job.at(1010);
    job.retry(1025);
    job.at(1020);
    let earlier = asked(1028);
    let later = asked(1031);
    job.triggers = vec![earlier.clone(), later.clone()];
    let ids = |job: &mut Bench, second| -> Vec<String> {
        let (decisions, _) = job.at(second);
        let ids = decisions.iter().filter_map(|decision| match decision {
            Decision::Start { id, .. } => Some(id.clone()),
            _ => None,
        });
        ids.collect()
    };
    // A tick has made this place; the retry of 1025 and the trigger of 1028 have waited for longer than that of 1030.
    job.at(1030);
    job.finish();
    assert_eq!(ids(&mut job, 1032), [id(1010)]);
    assert_eq!(job.at(1033).0, [], "the tick waits, and stops nothing more");
    job.finish();
    assert_eq!(ids(&mut job, 1034), vec![earlier.clone()]);
    // A newer tick stops it like any other run, and takes the place of the one that waited.
    let (decisions, _) = job.at(1040);
    assert_eq!(
        decisions[..2],
        [overlap(1030, 1030, 1), queued(1040, 1040, 1)]
    );
    assert!(
        matches!(&decisions[2], Decision::Replaced { key, by } if key.id == earlier && *by == at(1040))
    );
    job.finish();
    assert_eq!(ids(&mut job, 1041), [later]);
    job.finish();
    assert_eq!(ids(&mut job, 1042), [id(1040)]);
}

#[test]
fn overlap_cancel_previous_stops_one_run_for_each_tick_at_most() {
    let mut job = busy(Overlap::CancelPrevious, 2);
    job.at(1010);
    job.at(1020);
    // Both are stopped for newer ticks, and end one after the other.
    job.at(1030);
    job.at(1040);
    let people = asked(1025);
    job.triggers = vec![people.clone()];
    job.end(&id(1010));
    let started = |decisions: &[Decision]| -> Vec<String> {
        let ids = decisions.iter().filter_map(|decision| match decision {
            Decision::Start { id, .. } => Some(id.clone()),
            _ => None,
        });
        ids.collect()
    };
    assert_eq!(started(&job.at(1041).0), std::slice::from_ref(&people));
    job.end(&id(1020));
    assert_eq!(started(&job.at(1042).0), [id(1030)]);
    // The next one stops the run that went ahead, and no other, also when the older tick takes that place.
    let (decisions, _) = job.at(1050);
    let replaced = |decisions: &[Decision]| -> Vec<String> {
        let ids = decisions.iter().filter_map(|decision| match decision {
            Decision::Replaced { key, .. } => Some(key.id.clone()),
            _ => None,
        });
        ids.collect()
    };
    assert_eq!(replaced(&decisions), std::slice::from_ref(&people));
    job.end(&people);
    let (decisions, _) = job.at(1051);
    assert_eq!(started(&decisions), [id(1040)]);
    assert_eq!(job.at(1052).0, [], "the tick of 1050 waits for one of them");
}

/// Runs that take three intervals: a trigger has its run all the same.
#[test]
fn overlap_cancel_previous_starves_nobody() {
    let mut job = busy(Overlap::CancelPrevious, 1);
    // The first has found a free place.
    let mut ticks = 1;
    let mut by_people = Vec::new();
    for second in (1010..1310).step_by(10) {
        if second % 30 == 0 {
            by_people.push(asked(second - 5));
            job.triggers.clone_from(&by_people);
        }
        job.at(second);
        // It is told to stop, and ends.
        job.finish();
        let (decisions, _) = job.at(second + 1);
        ticks += decisions
            .iter()
            .filter(|d| matches!(d, Decision::Start { id, .. } if !by_people.contains(id)))
            .count();
    }
    assert!(by_people.iter().all(|id| job.ledger.knows_trigger(id)));
    assert_eq!(ticks, 20, "every third place is a trigger's");
}

#[test]
fn overlap_cancel_previous_is_final_also_when_the_holder_dies() {
    let mut job = busy(Overlap::CancelPrevious, 1);
    job.at(1010);
    job.at(1020);
    job.next_holder();
    assert_eq!(
        job.at(1021).0,
        [interrupted(1010, 1, Interrupted::Skip, false), fresh(1020)]
    );
    // Also when the tick was found by the next holder alone.
    job.next_holder();
    assert_eq!(
        job.at(1035).0,
        [interrupted(1020, 1, Interrupted::Skip, false), fresh(1030)]
    );
    // Without a newer tick it is made up for.
    job.next_holder();
    assert_eq!(job.at(1036).0[1], start(1030, 2, true, None));
}

#[test]
fn overlap_cancel_previous_replaces_as_many_as_it_must() {
    let mut job = busy(Overlap::CancelPrevious, 2);
    job.at(1010);
    assert_eq!(job.at(1020).0, [fresh(1020)]);
    let (decisions, _) = job.at(1030);
    assert_eq!(
        decisions[1..],
        [Decision::Replaced {
            key: key(1010, 1),
            by: at(1030)
        }]
    );
    let (decisions, _) = job.at(1040);
    assert_eq!(
        decisions[1..],
        [Decision::Replaced {
            key: key(1020, 1),
            by: at(1040)
        }]
    );
}

#[test]
fn overlap_allow_runs_it_beside_the_others() {
    let mut job = busy(Overlap::Allow, Overlap::Allow.default_concurrency());
    for n in 1..=16 {
        assert_eq!(job.at(1000 + 10 * n).0, [fresh(1000 + 10 * n)]);
    }
    assert_eq!(job.alive.len(), 16);
    assert_eq!(job.at(1170).0, [overlap(1170, 1170, 1)]);
    job.alive.remove(0);
    job.ledger.finish(&key(1010, 1), TERM).unwrap();
    assert_eq!(job.at(1180).0, [fresh(1180)]);
}

#[test]
fn beside_runs_that_go_on_a_ledger_full_of_retries_makes_overlap_and_no_misfire() {
    let mut job = busy(Overlap::Allow, 16);
    for n in 1..=15 {
        job.at(1000 + 10 * n);
        job.retry(9000);
    }
    job.at(1160);
    assert_eq!(job.at(1170), (vec![overlap(1170, 1170, 1)], 1180));
}

#[test]
fn concurrency_lets_as_many_runs_go_on_at_a_time() {
    let mut job = busy(Overlap::Skip, 3);
    job.policy.misfire.mode = Misfire::All;
    // Late ones take several places at once.
    assert_eq!(job.at(1025).0, [fresh(1010), fresh(1020)]);
    assert_eq!(job.at(1030), (vec![fresh(1030)], 1040));
    assert_eq!(job.at(1040).0, [overlap(1040, 1040, 1)]);
    job.finish();
    assert_eq!(job.at(1050).0, [fresh(1050)]);
}

#[test]
fn a_trigger_takes_a_place_and_waits_for_one() {
    let mut job = busy(Overlap::Skip, 2);
    job.at(1010);
    job.triggers = vec!["t1".to_owned(), "t2".to_owned()];
    let (decisions, wake) = job.at(1011);
    assert!(matches!(&decisions[..], [Decision::Start { id, .. }] if id == "t1"));
    assert_eq!(wake, 1020);
    assert_eq!(job.at(1020).0, [overlap(1020, 1020, 1)]);
    job.finish();
    let (decisions, _) = job.at(1021);
    assert!(matches!(&decisions[..], [Decision::Start { id, .. }] if id == "t2"));
}

#[test]
fn a_retry_that_waits_takes_no_place() {
    let mut job = busy(Overlap::Skip, 1);
    job.at(1010);
    job.retry(1025);
    assert_eq!(job.at(1020).0, [fresh(1020)]);
    job.finish();
    assert_eq!(job.at(1026).0, [start(1010, 2, false, None)]);
}

// === interrupted

#[test]
fn interrupted_rerun_starts_the_next_attempt_with_its_checkpoint() {
    let mut job = Bench::new(Misfire::Once);
    job.policy.attempts = 2;
    job.at(1010);
    job.ledger
        .save_checkpoint(&key(1010, 1), job.token, json!("half"))
        .unwrap();
    job.next_holder();
    assert_eq!(
        job.at(1015).0,
        [
            interrupted(1010, 1, Interrupted::Rerun, false),
            start(1010, 2, true, Some(json!("half")))
        ]
    );
    job.next_holder();
    let left = interrupted(1010, 2, Interrupted::Skip, true);
    assert_eq!(job.at(1016), (vec![left], 1020));
}

#[test]
fn interrupted_skip_leaves_it_and_reports_it() {
    let mut job = Bench::new(Misfire::Once);
    job.policy.interrupted = Interrupted::Skip;
    job.at(1010);
    job.next_holder();
    let left = interrupted(1010, 1, Interrupted::Skip, false);
    assert_eq!(job.at(1015), (vec![left], 1020));
    assert!(job.ledger.open().is_empty());
}

#[test]
fn retry_starts_the_next_attempt_after_its_pause() {
    let mut job = Bench::new(Misfire::Once);
    job.at(1010);
    job.retry(1013);
    assert_eq!(job.at(1012), (vec![], 1013));
    assert_eq!(job.at(1013).0, [start(1010, 2, false, None)]);
}

#[test]
fn a_ledger_that_is_ahead_for_long_is_taken_back_and_nothing_runs_twice() {
    let mut job = Bench::new(Misfire::Once);
    // By a clock that is a day ahead the latest tick has run.
    let jumped = missed(1010, 87_400, 8640, WhySkipped::Limit);
    assert_eq!(job.at(87_415).0, [jumped, fresh(87_410)]);
    job.finish();
    assert_eq!(job.at(1020).0, [], "decided");
    let back = take_back(&job.ledger, &job.schedule, at(1015)).unwrap();
    assert_eq!(back.ran, [ticks(87_410, 87_410, 1)]);
    job.ledger = back.ledger;
    assert_eq!(job.at(1020).0, [fresh(1020)]);
    job.finish();
    // A day later: the one before is the latest that has not run.
    let passed = missed(1030, 87_390, 8637, WhySkipped::Limit);
    assert_eq!(job.at(87_412).0, [passed, fresh(87_400)]);
}

#[test]
fn what_all_nodes_have_forgotten_is_reported_as_unknown() {
    let mut job = Bench::new(Misfire::All);
    job.at(1010);
    let known = job.ledger.clone();
    let loss = Loss {
        known: Some(&known),
        before: Some(at(1035)),
        now: at(1065),
    };
    let lost = account_for_loss(&Ledger::default(), &job.schedule, &loss).unwrap();
    let unknown = missed(1020, 1030, 2, WhySkipped::Unknown);
    assert_eq!(lost.decisions[1..], [unknown]);
    (job.ledger, job.alive) = (lost.ledger, vec![]);
    // What fell due while no node voted is late.
    assert_eq!(job.at(1065).0, [fresh(1040)]);
    job.finish();
    assert_eq!(job.at(1066).0, [fresh(1050)]);
}

#[test]
fn a_clock_that_went_back_makes_nothing_due() {
    let mut job = Bench::new(Misfire::All);
    job.at(1010);
    job.finish();
    let plan = job.ask(at(900)).unwrap();
    assert_eq!((plan.decisions.len(), plan.wake), (0, Some(at(1020))));
    assert_eq!(plan.ahead, Some(Duration::from_secs(110)));
}

#[test]
fn a_changed_schedule_fires_nothing_before_the_change() {
    let by = |ticks: &str| Decided {
        ticks: ticks.to_owned(),
        whole: ticks.to_owned(),
    };
    let mut ledger = Ledger::default();
    ledger.first_sight(at(1000)).unwrap();
    ledger.decide_by(by("every ten seconds"));
    let new = Schedule::parse("@every 7s", None, None).unwrap();
    let changed = account_for_change(&ledger, &new, &by("every seven"), at(1030)).unwrap();
    assert_eq!(changed.ledger.decided_upto(), Some(at(1030)));
    assert_eq!(changed.gap.map(|gap| gap.count), Some(5));
}

// === the table

/// Every row of the book's table names its test, which is one of this file.
#[test]
fn each_row_of_the_book_has_its_test() {
    let page = include_str!("../../../docs/how-it-works/ticks.md");
    let header = "| What happened | Setting | What is done | Test |";
    let rows: Vec<Vec<&str>> = page
        .lines()
        .skip_while(|line| *line != header)
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    let tests = include_str!("rules.rs");
    for row in &rows {
        let name = row[4].trim_matches('`');
        let test = format!("#[test]\nfn {name}() {{");
        assert!(tests.contains(&test), "no test of the name {name:?}");
    }
    // And every value of each rule has its row.
    let mut cells = Vec::new();
    for value in [Misfire::Skip, Misfire::Once, Misfire::All] {
        cells.push(("misfire", serde_json::to_string(&value).unwrap()));
    }
    for value in [
        Overlap::Skip,
        Overlap::Queue,
        Overlap::CancelPrevious,
        Overlap::Allow,
    ] {
        cells.push(("overlap", serde_json::to_string(&value).unwrap()));
    }
    for value in [Interrupted::Rerun, Interrupted::Skip] {
        cells.push(("interrupted", serde_json::to_string(&value).unwrap()));
    }
    for (key, value) in cells {
        let setting = format!("`{key} = {value}`");
        let has = |row: &&Vec<&str>| row[2].starts_with(&setting);
        assert!(rows.iter().any(|row| has(&row)), "no row for {setting}");
    }
}
