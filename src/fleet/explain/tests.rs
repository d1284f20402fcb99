use super::*;
use crate::{ledger::Skipped, node::Token};

fn at(text: &str) -> Timestamp {
    format!("2026-05-04T{text}:00Z").parse().unwrap()
}

struct Case {
    schedule: Schedule,
    ledger: Ledger,
    runs: Vec<RunRecord>,
    pause: Option<Pause>,
    leader: Option<&'static str>,
}

impl Case {
    /// Hourly, first seen at 06:30.
    fn new() -> Self {
        let mut ledger = Ledger::default();
        ledger.first_sight(at("06:30")).unwrap();
        Self {
            schedule: Schedule::parse("@hourly", None, None).unwrap(),
            ledger,
            runs: Vec::new(),
            pause: None,
            leader: Some("b"),
        }
    }

    fn ask(&self, when: &str) -> Explanation {
        explain(&Facts {
            job: "report",
            coordination: "leader",
            enabled: true,
            schedule: &self.schedule,
            ledger: Some(&self.ledger),
            runs: &self.runs,
            pause: self.pause.as_ref(),
            leader: self.leader,
            at: at(when),
            now: at("12:30"),
        })
    }

    fn skip(&mut self, from: &str, to: &str, count: u64, why: &str) {
        let (from, to) = (at(from), at(to));
        let why = why.to_owned();
        self.ledger
            .skip_upto(Skipped {
                from,
                to,
                count,
                why,
            })
            .unwrap();
    }
}

#[test]
fn a_run_says_who_ran_it_and_how_it_ended() {
    let mut case = Case::new();
    case.runs.push(RunRecord {
        tick: at("07:00"),
        attempt: 1,
        token: Some(Token(4)),
        replica_name: "a".to_owned(),
        outcome: "failed".to_owned(),
        detail: "no\ndisk".to_owned(),
        ..RunRecord::default()
    });
    let said = case.ask("07:20");
    assert_eq!(
        (said.verdict.as_str(), said.tick),
        ("failed", Some(at("07:00")))
    );
    let text = said.sentences.join(" ");
    for part in [
        "is no tick of report",
        "started by a, under token 4",
        "failed: no disk.",
        "The next tick is",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_run_that_jitter_delayed_is_not_called_late() {
    let minutes = |n: u64| std::time::Duration::from_secs(60 * n);
    let mut case = Case::new();
    case.schedule = case.schedule.of_job("report", minutes(50));
    let starts = case.schedule.starts(at("07:00"));
    assert!(
        at("07:01") < starts,
        "the job's name gives a delay: {starts}"
    );
    let mut ask = |started| {
        case.runs = vec![RunRecord {
            tick: at("07:00"),
            attempt: 1,
            started: Some(started),
            outcome: "done".to_owned(),
            ..RunRecord::default()
        }];
        case.ask("07:00").sentences.join(" ")
    };
    let said = ask(starts);
    let delayed = format!(
        "Its start was delayed by jitter until {}, on every replica.",
        crate::human::At(starts)
    );
    assert!(said.starts_with(&delayed), "{said}");
    assert!(!said.contains("late"), "{said}");
    // From its start on, not from its tick.
    let said = ask(starts + std::time::Duration::from_secs(7));
    assert!(said.contains("It started 7 s late"), "{said}");
}

#[test]
fn a_skipped_tick_says_by_which_rule() {
    let mut case = Case::new();
    case.skip("07:00", "08:00", 2, "paused");
    case.ledger.start_tick(at("09:00"), Token(1)).unwrap();
    case.skip("10:00", "10:00", 1, "overlap");
    for (when, verdict, part) in [
        ("07:00", "paused", "the job was paused (2 ticks"),
        ("08:00", "paused", "the job was paused"),
        (
            "09:00",
            "running",
            "Attempt 1 was started and has not ended.",
        ),
        ("10:00", "overlap", "as many runs of the job went on as may"),
        ("11:00", "undecided", "b leads and is about to"),
        ("06:00", "forgotten", "before the job was first seen"),
    ] {
        let said = case.ask(when);
        assert_eq!(said.verdict, verdict, "{when}: {said:?}");
        assert!(
            said.sentences.iter().any(|s| s.contains(part)),
            "{when}: {said:?}"
        );
    }
    case.leader = None;
    assert!(case.ask("11:00").sentences[0].contains("no replica leads report"));
    case.pause = Some(Pause {
        paused: true,
        reason: "migration".to_owned(),
        by: "eve".to_owned(),
        ..Pause::default()
    });
    let said = case.ask("12:00");
    assert!(said.sentences[0].contains("will not run"), "{said:?}");
    assert!(
        said.sentences
            .iter()
            .any(|s| s.contains("by eve: migration"))
    );
}

#[test]
fn a_job_that_nobody_ever_led_says_so() {
    let mut case = Case::new();
    case.ledger = Ledger::default();
    assert_eq!(case.ask("07:00").verdict, "unseen");
}

#[test]
fn a_service_has_no_ticks() {
    let mut case = Case::new();
    case.schedule = Schedule::parse("continuous", None, None).unwrap();
    assert_eq!(case.ask("07:00").verdict, "no-ticks");
}

#[test]
fn a_job_in_batches_says_what_its_replicas_did_last() {
    let mut case = Case::new();
    case.schedule = Schedule::parse("continuous", None, None).unwrap();
    case.runs.push(RunRecord {
        tick: at("07:00"),
        started: Some(at("07:00")),
        ended: Some(at("07:01")),
        outcome: "failed".to_owned(),
        detail: "t/50/3 timeout".to_owned(),
        replica_name: "a".to_owned(),
        batches: Some(crate::fleet::history::BatchCounts {
            done: 12,
            failed: 1,
            ..Default::default()
        }),
        items: [("sent".to_owned(), 600)].into(),
        ..RunRecord::default()
    });
    let said = case.ask("08:00");
    assert_eq!(said.verdict, "failed");
    let line = "From 2026-05-04T07:00:00Z to 2026-05-04T07:01:00Z a worked on it, failed: \
                batches: 12 done, 1 failed; items: 600 sent (t/50/3 timeout).";
    assert!(said.sentences.iter().any(|s| s == line), "{said:?}");
}

#[test]
fn a_run_says_what_it_resumed_from_and_what_it_was_given_by_name() {
    let mut case = Case::new();
    case.runs.push(RunRecord {
        tick: at("07:00"),
        attempt: 2,
        outcome: "done".to_owned(),
        replica_name: "b".to_owned(),
        params: vec!["day".to_owned(), "pages".to_owned()],
        resumed: Some(crate::fleet::history::Resumed {
            bytes: 24,
            saved: Some(at("07:03")),
        }),
        ..RunRecord::default()
    });
    let said = case.ask("07:20").sentences.join(" ");
    assert!(
        said.contains("It resumed from a checkpoint of 24 bytes, saved at 2026-05-04T07:03:00Z."),
        "{said}"
    );
    assert!(said.contains("parameters day, pages."), "{said}");
}

#[test]
fn a_tick_from_before_the_nodes_knew_anything_is_nobodys_to_tell() {
    let mut case = Case::new();
    let said = |case: &Case, when| case.ask(when).sentences.join(" ");
    assert!(!said(&case, "06:00").contains("memory"));
    case.ledger.note_memory_losses(&[at("06:29")]);
    let before = case.ask("06:00");
    assert_eq!(before.verdict, "forgotten");
    let text = before.sentences.join(" ");
    assert!(text.contains("Lock nodes were new at"), "{text}");
    assert!(text.contains("is unknown"), "{text}");
    case.skip("07:00", "09:00", 3, "paused");
    assert!(!said(&case, "08:00").contains("memory"), "that is known");
    assert!(!said(&case, "10:00").contains("memory"), "after it");
}
