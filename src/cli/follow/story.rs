//! What is worth a line of what is seen of runs again and again, and how it reads. Pure.
//!
//! # Invariants
//! - A run is told when it is first seen, and again when its outcome is another one; never twice the same.
//!   (a_run_is_told_once_for_each_of_its_outcomes)
//! - Of what a run leaves each whole line is told once, and the rest of it at the end; where some of it was left out, that is told.
//!   (what_a_run_leaves_is_told_line_by_line)

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;

use super::super::{
    colours,
    history::{to_millis, words},
    status::age,
};
use crate::{
    clock::Moment,
    fleet::{
        Trigger, TriggerState,
        history::{RUNNING, RunRecord},
    },
    human::Brief,
    terminal::{Paint, cell, sentence},
};

/// Where there is no terminal, how far a run is is told so often at most.
const SELDOM: Duration = Duration::from_secs(10);

/// By so many bytes at its end a text is found again.
const ANCHOR: usize = 256;
/// The end of the line about what was left out of a long text.
const LEFT_OUT: &str = " bytes left out ...\n";

/// Job, ring and number of a run: what tells it from all others.
type Id = (String, String, u64);

/// What was told.
#[derive(Debug, Default)]
pub(in crate::cli) struct Story {
    /// The outcome with which each run was told, of those that were seen last.
    told: BTreeMap<Id, String>,
    /// What was told of what those in flight have left.
    outputs: BTreeMap<Id, String>,
}

/// How far the run is that has been under way for the longest time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) struct HowFar {
    /// In a line, with the time that it has taken.
    pub(in crate::cli) text: String,
    /// What the run says; empty when it says nothing.
    said: String,
}

/// When a line about how far a run is was told last.
#[derive(Debug, Default)]
pub(in crate::cli) struct Pace {
    last: Option<(Moment, String)>,
}

// === impl Story ===

impl Story {
    /// Which of these runs are news, by their places.
    pub(in crate::cli) fn news<'a>(
        &mut self,
        runs: impl IntoIterator<Item = &'a RunRecord>,
    ) -> Vec<usize> {
        let (mut seen, mut news) = (BTreeMap::new(), Vec::new());
        for (place, run) in runs.into_iter().enumerate() {
            let id = id_of(run);
            if self.told.get(&id) != Some(&run.outcome) {
                news.push(place);
            }
            seen.insert(id, run.outcome.clone());
        }
        // What is not seen any more does not come back: its place belongs to a newer one.
        self.told = seen;
        news
    }

    /// Whether some of what a run in flight has left was told.
    pub(in crate::cli) fn has_output(&self, run: &RunRecord) -> bool {
        self.outputs.contains_key(&id_of(run))
    }

    /// What is new of what a run has left to read; nothing where that is no whole line yet, unless the run is over.
    pub(in crate::cli) fn unseen(&mut self, run: &RunRecord, is_over: bool) -> Option<String> {
        // What cannot be read is not told as if something were missing.
        let (id, all) = (id_of(run), run.output.as_deref()?);
        let whole = match is_over {
            true => all,
            false => &all[..all.rfind('\n').map_or(0, |end| end + 1)],
        };
        let seen = self.outputs.get(&id).map_or("", String::as_str);
        let unseen = unseen(seen, whole);
        match is_over {
            true => _ = self.outputs.remove(&id),
            false if unseen.is_empty() => {}
            false => _ = self.outputs.insert(id, whole.to_owned()),
        }
        Some(unseen).filter(|unseen| !unseen.is_empty())
    }

    /// Forgets what was told of all runs but these.
    pub(in crate::cli) fn forget_outputs<'a>(
        &mut self,
        but: impl IntoIterator<Item = &'a RunRecord>,
    ) {
        let in_flight: BTreeSet<Id> = but.into_iter().map(id_of).collect();
        self.outputs.retain(|id, _| in_flight.contains(id));
    }
}

/// Lines with the name of their job before each.
pub(in crate::cli) fn named(job: &str, text: &str) -> String {
    text.lines()
        .map(|line| format!("{job}: {line}\n"))
        .collect()
}

/// What follows in `now` what was seen. Of a long text the beginning and the end are kept: where the end that was seen is not in it any
/// more, a line says that something is missing.
fn unseen(seen: &str, now: &str) -> String {
    if let Some(rest) = now.strip_prefix(seen) {
        return rest.to_owned();
    }
    let from = seen.len().saturating_sub(ANCHOR);
    let from = (from..=seen.len()).find(|at| seen.is_char_boundary(*at));
    let anchor = &seen[from.unwrap_or(seen.len())..];
    if let Some(at) = now.rfind(anchor) {
        return now[at + anchor.len()..].to_owned();
    }
    let tail = now.split_once(LEFT_OUT).map_or(now, |(_, tail)| tail);
    format!("...\n{tail}")
}

fn id_of(run: &RunRecord) -> Id {
    let ring = match run.is_of_replica() {
        true => run.replica_name.clone(),
        false => String::new(),
    };
    (run.job.clone(), ring, run.seq)
}

/// One run, in a line.
pub(in crate::cli) fn line(run: &RunRecord, paint: Paint) -> String {
    let running = run.outcome == RUNNING;
    let at = if running { run.started } else { run.ended };
    let at = at.map(to_millis).unwrap_or_default();
    let (job, replica) = (cell(&run.job), cell(&run.replica_name));
    // How far it is has a line of its own.
    let words = words(&RunRecord {
        progress: None,
        ..run.clone()
    });
    let why = match words.is_empty() {
        true => String::new(),
        false => format!(": {}", sentence(&words)),
    };
    let attempt = match run.batch_words().is_empty() {
        true => format!(", attempt {}", run.attempt),
        false => String::new(),
    };
    let outcome = paint.ink(colours::outcome(&run.outcome), &cell(&run.outcome));
    let took = run.took_ms.map(Duration::from_millis);
    let took = took.map_or(String::new(), |took| format!(" after {}", Brief(took)));
    let on = match replica.is_empty() {
        true => String::new(),
        false => format!(" on {replica}"),
    };
    format!("{at}  {job}{attempt}: {outcome}{took}{on}{why}")
}

/// How far those are that are under way; nothing where none is.
pub(in crate::cli) fn how_far<'a>(
    runs: impl IntoIterator<Item = &'a RunRecord>,
    now: Timestamp,
) -> Option<HowFar> {
    let running = runs.into_iter().filter(|run| run.outcome == RUNNING);
    let running: Vec<&RunRecord> = running.collect();
    let oldest = running.iter().min_by_key(|run| run.order())?;
    let said = oldest.progress.as_ref();
    let said = said.map(ToString::to_string).unwrap_or_default();
    let since = oldest.started.unwrap_or(oldest.tick);
    let mut text = format!(
        "{}, attempt {}, running for {} on {}",
        cell(&oldest.job),
        oldest.attempt,
        age(since, now),
        cell(&oldest.replica_name)
    );
    if !said.is_empty() {
        text += &format!(": {}", sentence(&said));
    }
    if running.len() > 1 {
        text += &format!("; and {} more", running.len() - 1);
    }
    Some(HowFar { text, said })
}

/// What a trigger has come to, where its runs do not say it.
pub(in crate::cli) fn state(trigger: &Trigger, replica: &str) -> Option<String> {
    let (job, id, replica) = (&trigger.job, &trigger.id, cell(replica));
    let by = cell(&trigger.withdrawn_by);
    let said = match trigger.state {
        TriggerState::Asked => {
            format!("{job} {id} is asked for; Ctrl-C ends this command, and not the run")
        }
        TriggerState::Accepted => {
            format!("{replica} has accepted it: it runs as soon as nothing else of {job} does")
        }
        TriggerState::Withdrawing => format!("it was withdrawn by {by}"),
        TriggerState::Started => format!("{replica} runs it"),
        TriggerState::Ended => return None,
    };
    Some(sentence(&said))
}

/// What is left of a trigger that is not followed to its end; `why` says what is known.
pub(in crate::cli) fn left(trigger: &Trigger, why: &str) -> String {
    let (job, id) = (&trigger.job, &trigger.id);
    let rest = match trigger.state {
        TriggerState::Started | TriggerState::Ended => {
            format!("its run goes on: `history {job} --follow` shows it")
        }
        _ => format!(
            "it stays asked for, and runs when its turn comes: `triggers` lists it, `triggers withdraw {id}` takes it back"
        ),
    };
    format!("{job} {id} {why}; {rest}")
}

// === impl Pace ===

impl Pace {
    /// Whether it is to be told now, where there is no terminal.
    pub(in crate::cli) fn is_due(&mut self, how_far: &HowFar, now: Moment) -> bool {
        let due = match &self.last {
            _ if how_far.said.is_empty() => false,
            Some((at, said)) => *said != how_far.said && now.since(*at) >= SELDOM,
            None => true,
        };
        if due {
            self.last = Some((now, how_far.said.clone()));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fleet::status::RunProgress, terminal};

    fn at(text: &str) -> Option<Timestamp> {
        text.parse().ok()
    }

    fn run(seq: u64, outcome: &str) -> RunRecord {
        RunRecord {
            job: "report".to_owned(),
            run_id: "r".to_owned(),
            attempt: 2,
            token: Some(crate::node::Token(7)),
            replica_name: "alpha".to_owned(),
            outcome: outcome.to_owned(),
            started: at("2026-05-04T08:00:00.012Z"),
            seq,
            ..RunRecord::default()
        }
    }

    #[test]
    fn a_run_is_told_once_for_each_of_its_outcomes() {
        let mut story = Story::default();
        assert_eq!(story.news(&[run(1, "done"), run(2, RUNNING)]), [0, 1]);
        assert_eq!(story.news(&[run(1, "done"), run(2, RUNNING)]), [0; 0]);
        assert_eq!(story.news(&[run(1, "done"), run(2, "failed")]), [1]);
        // A successor found that the end had come too late.
        let late = [run(2, "interrupted"), run(3, RUNNING)];
        assert_eq!(story.news(&late), [0, 1]);
        let mut elsewhere = run(3, RUNNING);
        elsewhere.token = None;
        // It has a ring of its own.
        assert_eq!(story.news(&[run(3, RUNNING), elsewhere]), [1]);
    }

    #[test]
    fn what_a_run_leaves_is_told_line_by_line() {
        let mut story = Story::default();
        let mut tell = |text: &str, is_over| {
            let run = RunRecord {
                output: Some(text.to_owned()),
                ..run(1, RUNNING)
            };
            story.unseen(&run, is_over).unwrap_or_default()
        };
        assert_eq!(tell("", false), "");
        assert_eq!(tell("one\ntw", false), "one\n");
        assert_eq!(tell("one\ntw", false), "");
        assert_eq!(tell("one\ntwo\nthree\nfo", false), "two\nthree\n");
        assert_eq!(tell("one\ntwo\nthree\nfour", true), "four");
        // It was forgotten: another run in its place begins anew.
        assert_eq!(tell("one\n", false), "one\n");
        // The middle is left out, and the end that was seen is still there.
        assert_eq!(
            tell("o\n... 9 bytes left out ...\none\ntwo\n", false),
            "two\n"
        );
        assert_eq!(
            tell("o\n... 99 bytes left out ...\nsix\nseven\n", false),
            "...\nsix\nseven\n"
        );
        assert_eq!(tell("o\n... 99 bytes left out ...\nsix\nseven\n", true), "");
    }

    #[test]
    fn what_cannot_be_read_is_no_gap_and_lines_of_many_have_the_name_of_their_job() {
        let mut story = Story::default();
        let with = |output: Option<&str>| RunRecord {
            output: output.map(str::to_owned),
            ..run(1, RUNNING)
        };
        assert!(story.unseen(&with(Some("one\n")), false).is_some());
        assert_eq!(story.unseen(&with(None), true), None);
        assert_eq!(named("parts.1", "a\nb"), "parts.1: a\nparts.1: b\n");
    }

    #[test]
    fn what_was_told_of_runs_that_have_gone_is_forgotten() {
        let mut story = Story::default();
        for seq in 1..=3 {
            let run = RunRecord {
                output: Some("one\n".to_owned()),
                ..run(seq, RUNNING)
            };
            assert!(story.unseen(&run, false).is_some());
        }
        story.forget_outputs([&run(2, RUNNING)]);
        assert_eq!(story.outputs.len(), 1);
    }

    #[test]
    fn a_line_says_when_where_and_how_a_run_ended() {
        let begun = RunRecord {
            params: vec!["day".to_owned()],
            progress: Some(RunProgress {
                done: Some(3),
                ..RunProgress::default()
            }),
            ..run(1, RUNNING)
        };
        assert_eq!(
            line(&begun, Paint::PLAIN),
            "2026-05-04T08:00:00.012Z  report, attempt 2: running on alpha: with day"
        );
        let ended = RunRecord {
            ended: at("2026-05-04T08:00:02Z"),
            took_ms: Some(1_988),
            detail: "exit status 1\u{1b}[2J".to_owned(),
            ..run(1, "failed")
        };
        assert_eq!(
            line(&ended, Paint::PLAIN),
            "2026-05-04T08:00:02.000Z  report, attempt 2: failed after 1s 988ms on alpha: exit status 1\\u001b[2J"
        );
        let coloured = line(&ended, Paint::COLOURED);
        assert!(coloured.contains("\u{1b}[31mfailed\u{1b}[0m"));
        assert_eq!(terminal::painted(&coloured, true), coloured);
    }

    #[test]
    fn the_run_under_way_for_longest_says_how_far_it_is() {
        let now = at("2026-05-04T08:01:30.012Z").unwrap();
        assert_eq!(how_far(&[run(1, "done")], now), None);
        let told = how_far(&[run(1, RUNNING)], now).unwrap();
        assert_eq!(told.text, "report, attempt 2, running for 1m 30s on alpha");
        let first = RunRecord {
            progress: Some(RunProgress {
                done: Some(30),
                total: Some(120),
                ..RunProgress::default()
            }),
            ..run(1, RUNNING)
        };
        let second = RunRecord {
            started: Some(now),
            ..run(2, RUNNING)
        };
        let told = how_far(&[second, first], now).unwrap();
        assert_eq!(
            told.text,
            "report, attempt 2, running for 1m 30s on alpha: 30 of 120 (25 %); and 1 more"
        );
    }

    #[test]
    fn without_a_terminal_a_run_says_seldom_how_far_it_is() {
        let of = |said: &str| HowFar {
            text: String::new(),
            said: said.to_owned(),
        };
        let after = |secs: u64| Moment::from_boot(Duration::from_secs(100 + secs));
        let mut pace = Pace::default();
        assert!(!pace.is_due(&of(""), after(0)), "it says nothing");
        assert!(pace.is_due(&of("1 done"), after(0)));
        assert!(!pace.is_due(&of("5 done"), after(9)));
        assert!(pace.is_due(&of("6 done"), after(10)));
        assert!(!pace.is_due(&of("6 done"), after(30)), "it was told");
    }

    #[test]
    fn a_trigger_that_is_left_says_what_becomes_of_it() {
        let trigger = |state| Trigger {
            job: "report".to_owned(),
            id: "t".to_owned(),
            state,
            ..Trigger::default()
        };
        let said = left(&trigger(TriggerState::Accepted), "is left");
        assert!(said.contains("`triggers withdraw t`"), "{said}");
        let said = left(&trigger(TriggerState::Started), "has not ended within 1m");
        assert_eq!(
            said,
            "report t has not ended within 1m; its run goes on: `history report --follow` shows it"
        );
        assert_eq!(state(&trigger(TriggerState::Ended), ""), None);
    }
}
