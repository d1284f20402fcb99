//! Why a job ran at a time, or why it did not: an answer in sentences, from what the fleet has written down.
//!
//! A plain function over the ledger, the history, the definition and the pause. It says what is known, and where
//! nothing is known it says that: a history holds the last hundred runs, a ledger the last rows of skipped ticks.

use std::{cmp::Reverse, collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde::Serialize;

use super::{history::RunRecord, intent::Pause};
use crate::{
    due::WhySkipped,
    human::At,
    job::Spec,
    ledger::{Ledger, RunState},
    schedule::{Definition, Schedule, ScheduleError},
};

#[cfg(test)]
mod tests;
#[cfg(feature = "admin")]
pub(crate) mod ticks;

/// What the store tells of a job.
#[derive(Default)]
pub(crate) struct StoredJob {
    pub(crate) coordination: Option<String>,
    /// As its replicas tell it, with its zone.
    pub(crate) schedule: Option<(String, Option<String>)>,
    pub(crate) leader: Option<String>,
    pub(crate) ledger: Option<String>,
    pub(crate) runs: Vec<RunRecord>,
    pub(crate) pause: Option<Pause>,
    /// Of its replicas on its definition.
    pub(crate) disagreement: Vec<String>,
}

/// What the answer is made from.
#[derive(Clone, Copy, Debug)]
struct Facts<'a> {
    /// The job.
    job: &'a str,
    /// `leader`, `tick`, `batch` or `everywhere`.
    coordination: &'a str,
    /// Whether the job is enabled in the asker's configuration.
    enabled: bool,
    /// Its schedule.
    schedule: &'a Schedule,
    /// Its ledger; none when the job has no lock record.
    ledger: Option<&'a Ledger>,
    /// Its last runs, oldest first.
    runs: &'a [RunRecord],
    /// What was said last about pausing it.
    pause: Option<&'a Pause>,
    /// The name of the replica that leads it now.
    leader: Option<&'a str>,
    /// The moment that is asked about.
    at: Timestamp,
    /// Civil time now.
    now: Timestamp,
}

/// What is known about one moment of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The job.
    pub job: String,
    /// The moment that was asked about.
    pub at: Timestamp,
    /// The tick that is meant: the latest one up to then; `null` for a job without ticks.
    pub tick: Option<Timestamp>,
    /// A bounded word: an outcome as in the history, the rule by which the tick was skipped, or `disabled`, `no-ticks`,
    /// `first-sight`, `waiting`, `queued`, `undecided`, `forgotten`, `future`, `ahead`, `unseen`.
    pub verdict: String,
    /// The same in sentences.
    pub sentences: Vec<String>,
}

/// One answer for all shards of a job: what is to be said of several of them is said once, with their number.
pub(crate) fn together(job: &str, shards: Vec<Explanation>) -> Explanation {
    let mut groups: BTreeMap<String, Vec<&Explanation>> = BTreeMap::new();
    for shard in &shards {
        groups.entry(shard.verdict.clone()).or_default().push(shard);
    }
    let mut groups: Vec<(String, Vec<&Explanation>)> = groups.into_iter().collect();
    groups.sort_by_key(|(_, shards)| Reverse(shards.len()));
    let mut sentences = vec![format!("{job} has {} shards.", shards.len())];
    for (_, of) in &groups {
        let names: Vec<&str> = of.iter().take(NAMED).map(|one| one.job.as_str()).collect();
        let more = of.len() - names.len();
        let names = match more {
            0 => names.join(", "),
            more => format!("{} and {more} more", names.join(", ")),
        };
        let said = of
            .first()
            .map_or_else(String::new, |one| one.sentences.join(" "));
        sentences.push(format!(
            "{} of {} ({names}): {said}",
            of.len(),
            shards.len()
        ));
    }
    let most = groups.first().map(|(verdict, of)| (verdict.clone(), of));
    let first = most.as_ref().and_then(|(_, of)| of.first());
    Explanation {
        job: job.to_owned(),
        at: first.map(|one| one.at).unwrap_or_default(),
        tick: first.and_then(|one| one.tick),
        verdict: most.map(|(verdict, _)| verdict).unwrap_or_default(),
        sentences,
    }
}

/// Shards that are named before the others are only counted.
const NAMED: usize = 3;

/// As replicas tell it: with its expressions in one text, and without dialect and days.
fn shown_schedule(job: &str, text: &str, zone: Option<&str>) -> Result<Schedule, ScheduleError> {
    let expressions: Vec<String> = text.split(';').map(|e| e.trim().to_owned()).collect();
    let definition = Definition {
        expressions: &expressions,
        zone,
        ..Definition::default()
    };
    Ok(definition.parse()?.of_job(job, Duration::ZERO))
}

/// The answer for a job as the configuration and the store tell of it: the configuration has the first word on what it is.
/// It is about the tick at `at`, or the latest one before it; about now by default.
///
/// # Errors
/// Its schedule or its ledger cannot be read.
pub(crate) fn answer(
    job: &str,
    spec: Option<&Spec>,
    told: StoredJob,
    at: Option<Timestamp>,
    now: Timestamp,
) -> Result<Explanation, String> {
    let (text, zone) = told.schedule.unwrap_or_default();
    let schedule = match spec {
        Some(spec) => spec.schedule_of(job),
        // What its leader says must do.
        None => shown_schedule(job, &text, zone.as_deref()),
    };
    let schedule = schedule.map_err(|error| error.to_string())?;
    let ledger = told.ledger.as_deref().map(Ledger::from_body).transpose();
    let ledger = ledger.map_err(|error| error.to_string())?;
    let coordination = spec.map(|spec| spec.coordination.to_string());
    let coordination = coordination.or(told.coordination).unwrap_or_default();
    let mut answer = explain(&Facts {
        job,
        coordination: &coordination,
        enabled: spec.is_none_or(|spec| spec.enabled),
        schedule: &schedule,
        ledger: ledger.as_ref(),
        runs: &told.runs,
        pause: told.pause.as_ref(),
        leader: told.leader.as_deref(),
        at: at.unwrap_or(now),
        now,
    });
    let disagree = |line| format!("The replicas disagree on {job}: {line}.");
    let disagreement = told.disagreement.into_iter().map(disagree);
    answer.sentences.extend(disagreement);
    Ok(answer)
}

fn explain(facts: &Facts<'_>) -> Explanation {
    let mut answer = Explanation {
        job: facts.job.to_owned(),
        at: facts.at,
        tick: None,
        verdict: String::new(),
        sentences: Vec::new(),
    };
    let verdict = facts.judge(&mut answer);
    verdict.clone_into(&mut answer.verdict);
    facts.surroundings(&mut answer);
    answer
}

impl Explanation {
    fn say(&mut self, sentence: impl Into<String>) {
        self.sentences.push(sentence.into());
    }
}

impl Facts<'_> {
    fn judge(&self, answer: &mut Explanation) -> String {
        let Self {
            job, schedule, at, ..
        } = *self;
        if !self.enabled {
            answer.say(format!(
                "{job} is switched off in this configuration (enabled = false)."
            ));
            return "disabled".to_owned();
        }
        if self.coordination == "batch" || schedule.is_continuous() {
            let how = self.coordination;
            answer.say(format!(
                "{job} has no ticks: it works all the time ({how})."
            ));
            return self.last_run(answer);
        }
        answer.tick = self.tick_at();
        let Some(tick) = answer.tick else {
            answer.say(format!("{job} has no tick up to {}.", At(at)));
            return self.last_run(answer);
        };
        if tick != at {
            let (at, tick) = (At(at), At(tick));
            answer.say(format!(
                "{at} is no tick of {job}; the latest one before it is {tick}."
            ));
        }
        if tick > self.now {
            answer.say(format!("{} lies in the future.", At(tick)));
            self.say_ahead(tick, answer);
            return "future".to_owned();
        }
        if self.runs.iter().any(|run| run.tick == tick) {
            return self.of_runs(tick, answer);
        }
        let (why, verdict) = self.without_run(tick);
        answer.say(why);
        if matches!(verdict, "forgotten" | "first-sight") && self.coordination != "everywhere" {
            self.say_memory_loss(tick, answer);
        }
        verdict.to_owned()
    }

    /// A tick of the future that a clock which was ahead has decided.
    fn say_ahead(&self, tick: Timestamp, answer: &mut Explanation) {
        let Some((ledger, upto)) = self.ledger.and_then(|l| Some((l, l.decided_upto()?))) else {
            return;
        };
        if ledger.has_run_ahead(tick) {
            answer.say(RAN_AHEAD.to_owned());
        } else if tick <= upto {
            answer.say(format!(
                "It is decided already, as all ticks up to {upto} are: a clock had jumped ahead, or the clock has gone back. \
                 The job's leader takes that back when it has stood for half a minute: then the tick runs when it is due, \
                 unless it has run ahead of its time."
            ));
        }
    }

    /// What the runs of a tick tell of it.
    fn of_runs(&self, tick: Timestamp, answer: &mut Explanation) -> String {
        let mut runs = self.runs.iter().filter(|run| run.tick == tick).peekable();
        let mut outcome = String::new();
        let started = runs.peek().and_then(|run| run.started);
        let due = self.schedule.starts(tick);
        if due > tick {
            let due = At(due);
            answer.say(format!(
                "Its start was delayed by jitter until {due}, on every replica."
            ));
        }
        let late = started.map_or(0, |at| at.duration_since(due).as_secs());
        if late > 1 {
            answer.say(format!(
                "It started {late} s late: until then no replica led, or another run of the job was open."
            ));
        }
        for run in runs {
            answer.say(of_run(run));
            outcome.clone_from(&run.outcome);
        }
        if let Some((attempt, true)) = self.open(tick) {
            answer.say(format!("Attempt {} follows.", attempt + 1));
        }
        outcome
    }

    /// Why no run is known of a tick that fell due, and the word for it.
    fn without_run(&self, tick: Timestamp) -> (String, &str) {
        if self.coordination == "everywhere" {
            let text = "It runs on every replica, each with a ledger of its own, and no history tells of it: it was skipped there because of an overlap or found late, no replica was up, or it is too long ago.";
            return (text.to_owned(), "forgotten");
        }
        let Some((ledger, upto)) = self.ledger.and_then(|l| Some((l, l.decided_upto()?))) else {
            let text = "No leader was ever here: nothing was decided about it.";
            return (text.to_owned(), "unseen");
        };
        if let Some((attempt, retry)) = self.open(tick) {
            let text = match retry {
                true => format!("Attempt {attempt} has ended; the next one waits."),
                false => format!("Attempt {attempt} was started and has not ended."),
            };
            return (text, "running");
        }
        if ledger.waiting().contains(&tick) {
            let text = "It was found late, and waits until nothing else of the job runs.";
            return (text.to_owned(), "waiting");
        }
        if ledger.queued().contains(&tick) {
            let text =
                "It fell due while as many runs of the job went on as may, and waits for a place.";
            return (text.to_owned(), "queued");
        }
        let mut rows = ledger.skipped().iter().rev();
        if let Some(row) = rows.find(|row| row.from <= tick && tick <= row.to) {
            let of = match row.count {
                0 | 1 => String::new(),
                n => format!(" ({n} ticks from {} to {})", At(row.from), At(row.to)),
            };
            return (format!("It did not run: {}{of}.", rule(&row.why)), &row.why);
        }
        if ledger.has_run_ahead(tick) {
            return (RAN_AHEAD.to_owned(), WhySkipped::Ahead.as_str());
        }
        if tick > upto {
            let who = match (self.leader, self.pause.filter(|pause| pause.paused)) {
                (_, Some(_)) => "the job is paused, and it will not run".to_owned(),
                (Some(leader), None) => format!("{leader} leads and is about to"),
                (None, None) if self.coordination == "tick" => {
                    "the first replica that takes its lock decides".to_owned()
                }
                (None, None) => format!(
                    "no replica leads {}. Its next leader decides by the misfire rule",
                    self.job
                ),
            };
            return (format!("It is not decided yet: {who}."), "undecided");
        }
        if self.first_known().is_none_or(|first| tick < first) {
            let text = format!(
                "It was decided, or came before the job was first seen: no run and no row of skipped ticks reaches back \
                 so far. Ticks are decided up to {}.",
                At(upto)
            );
            return (text, "forgotten");
        }
        let text = "It is decided, and neither a run nor a reason is written down: it came before the job was first \
                    seen, or what was written is lost.";
        (text.to_owned(), "first-sight")
    }

    /// Of a tick from before the lock nodes knew anything.
    fn say_memory_loss(&self, tick: Timestamp, answer: &mut Explanation) {
        let memory_losses = self.ledger.map_or(&[][..], Ledger::memory_losses);
        // A clock may have been ahead when that was stamped.
        let memory_loss = memory_losses.last().map(|before| (*before).min(self.now));
        if let Some(before) = memory_loss.filter(|before| tick <= *before) {
            answer.say(format!(
                "Lock nodes were new at {}, or had lost their memory: whether it had run before then is unknown.",
                At(before)
            ));
        }
    }

    /// The latest tick up to the moment that is asked about.
    fn tick_at(&self) -> Option<Timestamp> {
        const BACK: [i64; 4] = [3600, 86_400, 40 * 86_400, 400 * 86_400];
        // Far enough back for a yearly job, and not over a year of seconds for others.
        BACK.into_iter().find_map(|seconds| {
            let after = self
                .at
                .checked_sub(jiff::SignedDuration::from_secs(seconds))
                .ok()?;
            self.schedule.latest_upto(after, self.at)
        })
    }

    /// The attempt of an open run, and whether it waits for the next one.
    fn open(&self, tick: Timestamp) -> Option<(u32, bool)> {
        let open = self.ledger?.open().iter().find(|run| run.tick == tick)?;
        Some((open.attempt, open.state == RunState::Retry))
    }

    /// The earliest moment of which anything is written down.
    fn first_known(&self) -> Option<Timestamp> {
        let rows = self.ledger.into_iter().flat_map(Ledger::skipped);
        let runs = self.runs.iter().map(|run| run.tick);
        rows.map(|row| row.from).chain(runs).min()
    }

    fn last_run(&self, answer: &mut Explanation) -> String {
        let before = |run: &&RunRecord| run.started.unwrap_or(run.tick) <= self.at;
        let Some(run) = self.runs.iter().rev().find(before) else {
            return "no-ticks".to_owned();
        };
        answer.say(of_run(run));
        run.outcome.clone()
    }

    /// What stands besides: who leads, whether it is paused, what comes next.
    fn surroundings(&self, answer: &mut Explanation) {
        if let Some(pause) = self.pause.filter(|pause| pause.paused) {
            let why = match pause.reason.is_empty() {
                true => String::new(),
                false => format!(": {}", pause.reason),
            };
            answer.say(format!(
                "{} is paused since {} by {}{why}.",
                self.job,
                At(pause.at),
                pause.by
            ));
        }
        if !self.enabled || self.schedule.is_continuous() {
            return;
        }
        if let Some(next) = self.schedule.next_after(self.now) {
            answer.say(format!("The next tick is {}.", At(next)));
        }
    }
}

/// What a replica did for a job that works in batches.
fn of_batches(run: &RunRecord) -> String {
    let when = match (run.started, run.ended) {
        (Some(from), Some(to)) => format!("From {from} to {to}"),
        _ => "Once".to_owned(),
    };
    let detail = run.detail.split_whitespace().collect::<Vec<_>>().join(" ");
    let detail = match detail.as_str() {
        "" => String::new(),
        why => format!(" ({why})"),
    };
    format!(
        "{when} {} worked on it, {}: {}{detail}.",
        run.replica_name,
        run.outcome,
        run.batch_words()
    )
}
/// Of a tick that was taken back with its ledger.
const RAN_AHEAD: &str = "It has run ahead of its time, or may have, while a clock had jumped ahead: it does not run again when it is due.";

fn of_run(run: &RunRecord) -> String {
    if !run.batch_words().is_empty() {
        return of_batches(run);
    }
    let by = match run.replica_name.as_str() {
        "" => "a replica that died before it could tell",
        name => name,
    };
    let token = run
        .token
        .map(|token| format!(", under token {token}"))
        .unwrap_or_default();
    let started = run
        .started
        .map(|at| format!(" at {}", At(at)))
        .unwrap_or_default();
    let detail = match run.detail.is_empty() {
        true => String::new(),
        false => format!(
            ": {}",
            run.detail.split_whitespace().collect::<Vec<_>>().join(" ")
        ),
    };
    let outcome = match run.outcome.as_str() {
        "running" => "runs".to_owned(),
        other => format!("ended as {other}"),
    };
    let mut said = format!(
        "Attempt {} was started by {by}{started}{token}; it {outcome}{detail}.",
        run.attempt
    );
    if let Some(resumed) = &run.resumed {
        let saved = resumed
            .saved
            .map(|at| format!(", saved at {}", At(at)))
            .unwrap_or_default();
        said += &format!(
            " It resumed from a checkpoint of {} bytes{saved}.",
            resumed.bytes
        );
    }
    if !run.params.is_empty() {
        let names = run.params.join(", ");
        said += &format!(" Its trigger gave it the parameters {names}.");
    }
    said
}

/// The rule behind a bounded word.
fn rule(word: &str) -> &str {
    let Some(why) = WhySkipped::of(word) else {
        return word;
    };
    match why {
        WhySkipped::Misfire => "it was found late, and misfire = \"skip\"",
        WhySkipped::Window => "it was found late, and was older than misfire_window",
        WhySkipped::Limit => {
            "it was found late, and later ticks took its place (misfire = \"once\", or misfire_limit)"
        }
        WhySkipped::Overlap => {
            "as many runs of the job went on as may when it fell due (overlap, concurrency)"
        }
        WhySkipped::Paused => "the job was paused",
        WhySkipped::Changed => {
            "the schedule of the job was changed afterwards, and fires nothing that lies before the change"
        }
        WhySkipped::Unknown => {
            "a majority of lock nodes had lost its memory, and no replica remembers whether it had run"
        }
        // In no ledger.
        WhySkipped::Interrupted | WhySkipped::Ahead => word,
    }
}
