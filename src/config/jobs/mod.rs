//! The rules of `[jobs.NAME]`, one sentence each.

mod effects;
mod over;
mod places;

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use super::{
    Config, KindlessCall, LoadOptions, Problems, Source, WorkFacts, effort, words::nearest,
};
use crate::{
    clock::Clock,
    finding::Findings,
    human::Span,
    job::{Coordination, Spec, Unstoppable, shard::MOST_SHARDS},
    ledger::MAX_WAITING,
    schedule::{Schedule, ScheduleError},
    secret::redact,
};

/// From where on a schedule's intervals are looked at: the first tick after it, and so many.
const JITTER_FROM: Timestamp = Timestamp::constant(1_767_225_600, 0);
const JITTER_TICKS: usize = 1000;

/// The shortest interval of each schedule that was walked along, by what is written: a crowd with one schedule is walked along once.
type Intervals = BTreeMap<String, Option<Duration>>;

/// In the place of a sentence that would quote a password.
const UNSHOWN: &str = "this does not fit here, and looks like an address with a password";

/// Adds what is wrong with the jobs. Keys are from the top.
pub(super) fn check(config: &Config, options: &LoadOptions, found: &mut Findings) {
    let now = options.clock.as_ref().map(Clock::wall);
    let mut intervals = Intervals::new();
    for (name, spec) in &config.jobs {
        let work = options.work_of.as_ref().and_then(|of| of(name, spec));
        let at = At { name, spec, config };
        let mut here = Findings::default();
        at.name(&mut here);
        at.kind(options, &mut here);
        // Once: reading a schedule costs more than all the rules.
        effort::looked_at(1);
        let schedule = spec.read_schedule();
        at.schedule(&schedule, &mut intervals, &mut here);
        let schedule = schedule.ok();
        at.coordination(work, &mut here);
        at.shards(&mut here);
        places::check(spec, schedule.as_ref(), &mut here);
        at.times(&mut here);
        at.ends(&mut here);
        effects::check(spec, schedule.as_ref(), config.worker.mode, work, &mut here);
        if let Some((now, schedule)) = now.zip(schedule) {
            over::check(name, spec, schedule, now, &mut here);
        }
        found.nest(&format!("jobs.{name}"), here);
        if let Some(ttl) = spec.ttl {
            let mut here = Findings::default();
            let key = format!(".jobs.{name}.ttl");
            config.locks.check_ttl(ttl, &key, &mut here);
            found.nest("locks", here);
        }
    }
}

/// Adds the calls of the program about kinds that it did not know: what they say would hold for no job.
pub(super) fn refuse_kindless(options: &LoadOptions, problems: &mut Problems) {
    let known = &options.kinds;
    for KindlessCall { call, kind } in &options.kindless {
        let (message, remedy) = if known.contains(kind) {
            (
                format!("{call}(\"{kind}\", …) comes before the kind itself, and has no effect"),
                "call it after Worker::kind or Worker::batch_kind".to_owned(),
            )
        } else {
            let near = nearest(kind, known.iter().map(String::as_str));
            let remedy = match near {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => "register it first, with Worker::kind or Worker::batch_kind;".to_owned(),
            };
            let known = match known.is_empty() {
                true => "this program has no kinds".to_owned(),
                false => list(known),
            };
            (
                format!("{call}(\"{kind}\", …): there is no kind \"{kind}\""),
                format!("{remedy} {known}"),
            )
        };
        problems.error("", Source::Code, message, remedy);
    }
}

struct At<'a> {
    name: &'a str,
    spec: &'a Spec,
    config: &'a Config,
}

impl At<'_> {
    /// Names become keys of the store and parts of variables, which know no case.
    fn name(&self, found: &mut Findings) {
        let name = self.name;
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
        if name.chars().any(char::is_uppercase) {
            let remedy = format!("write {}", name.to_lowercase());
            found.error(&[""], "the name of a job has no upper case letters", remedy);
        } else if name.is_empty() || !name.chars().all(fits) || name.contains("__") {
            found.error(
                &[""],
                "this is no name for a job",
                "use lower case letters, digits, '-' and single '_'",
            );
        }
    }

    fn kind(&self, options: &LoadOptions, found: &mut Findings) {
        let in_code = options.specs.contains_key(self.name);
        let known = &options.kinds;
        let Some(kind) = self.spec.kind.as_deref() else {
            if !in_code {
                found.error(
                    &["kind", ""],
                    "the job has no kind, and the program has no job of this name",
                    list(known),
                );
            }
            return;
        };
        if in_code && options.specs[self.name].kind.is_none() {
            found.error(
                &["kind"],
                "the program registers this job itself",
                "leave kind out",
            );
        } else if !known.iter().any(|k| k == kind) {
            let near = nearest(kind, known.iter().map(String::as_str));
            let remedy = near.map_or_else(
                || list(known),
                |near| format!("did you mean \"{near}\"? {}", list(known)),
            );
            found.error(&["kind"], format!("there is no kind \"{kind}\""), remedy);
        } else if let Some(check) = &options.check_params {
            let mut here = Findings::default();
            here.nest("params", check(kind, &self.spec.params));
            for mut finding in here {
                // A parameter that is missing is shown where the parameters, or the job, stand.
                finding.keys.extend(["params".to_owned(), String::new()]);
                found.push(finding);
            }
        }
    }

    fn schedule(
        &self,
        schedule: &Result<Schedule, Vec<ScheduleError>>,
        intervals: &mut Intervals,
        found: &mut Findings,
    ) {
        if self.spec.schedule.is_none() {
            found.error(
                &["schedule", ""],
                "the job has no schedule",
                "write schedule = \"*/5 * * * *\", \"@every 30s\" or \"continuous\"",
            );
            return;
        }
        match schedule {
            Ok(schedule) => self.jitter(schedule, intervals, found),
            // These sentences say themselves what to do.
            Err(errors) => {
                for error in errors {
                    let message = match self.holds_password(error.key()) {
                        true => UNSHOWN.to_owned(),
                        false => error.to_string(),
                    };
                    found.error(&[error.key()], message, "");
                }
            }
        }
    }

    /// Whether one of the texts that make the schedule looks like an address with a password: all but `schedule` itself are
    /// quoted under their own key.
    fn holds_password(&self, key: &str) -> bool {
        let spec = self.spec;
        let texts: Vec<&str> = match key {
            "zone" => vec![&spec.zone],
            "starting" | "until" => [&spec.starting, &spec.until]
                .into_iter()
                .filter_map(|text| text.as_deref())
                .collect(),
            "except" => spec.except.iter().map(String::as_str).collect(),
            _ => {
                let written = spec.schedule.as_ref().map_or(&[][..], |s| s.as_slice());
                written.iter().map(String::as_str).collect()
            }
        };
        texts.iter().any(|text| redact(text) != **text)
    }

    /// A delay as long as the interval would run into the next tick.
    fn jitter(&self, schedule: &Schedule, intervals: &mut Intervals, found: &mut Findings) {
        let spec = self.spec;
        let Some(jitter) = spec.jitter else {
            return;
        };
        let limits = (&spec.zone, &spec.except, &spec.starting, &spec.until);
        let written = format!("{:?}", (&spec.schedule, limits));
        let shortest = *intervals.entry(written).or_insert_with(|| {
            effort::looked_at(JITTER_TICKS);
            // Judged from the same instant always: what is accepted today is not refused tomorrow.
            schedule.shortest_interval(JITTER_FROM, JITTER_TICKS)
        });
        if let Some(interval) = shortest.filter(|interval| *interval <= jitter) {
            let (jitter, interval) = (Span(jitter), Span(interval));
            found.error(
                &["jitter"],
                format!("{jitter} is not shorter than the shortest interval of the schedule ({interval})"),
                "lower jitter",
            );
        }
    }

    /// Work that is done in another way than the configuration says, or never.
    fn coordination(&self, work: Option<WorkFacts>, found: &mut Findings) {
        let spec = self.spec;
        let is = |word| spec.schedule.as_ref().is_some_and(|s| s.is(word));
        let batch = spec.coordination == Coordination::Batch;
        match work.map(|work| work.batches) {
            Some(true) if !batch => found.error(
                &["coordination", "kind", ""],
                "its work comes in batches, which every replica claims",
                "write coordination = \"batch\" and schedule = \"continuous\"",
            ),
            Some(false) if batch => found.error(
                &["coordination", "kind", ""],
                "its work does not come in batches: there is nothing to claim",
                "write coordination = \"leader\" or \"tick\" for one replica, \"everywhere\" for all",
            ),
            _ if batch && spec.schedule.is_some() && !is("continuous") => found.error(
                &["coordination", "schedule"],
                "a batch job looks for work all the time and has no ticks",
                "write schedule = \"continuous\", or coordination = \"leader\"",
            ),
            _ => {}
        }
        if spec.coordination == Coordination::Everywhere && is("manual") {
            found.error(
                &["schedule", "coordination"],
                "nothing would ever start it: a job that runs everywhere takes no triggers",
                "write a schedule with ticks, or coordination = \"leader\"",
            );
        }
        if !(1..=MAX_WAITING).contains(&spec.misfire_limit) {
            let message = format!("{} is not from 1 to {MAX_WAITING}", spec.misfire_limit);
            found.error(
                &["misfire_limit"],
                message,
                "write misfire = \"skip\" to start none",
            );
        }
    }

    /// How many jobs are made of it.
    fn shards(&self, found: &mut Findings) {
        let Some(shards) = self.spec.shards else {
            return;
        };
        if shards == 0 {
            found.error(
                &["shards"],
                "there would be no job at all",
                "write 1 to 10000, leave shards out for one job, or write enabled = false",
            );
        } else if shards > MOST_SHARDS {
            found.error(
                &["shards"],
                format!(
                    "{shards} is not from 1 to {MOST_SHARDS}: each shard has a lock and a leader"
                ),
                "keep what is done in a table, and let some hundred shards claim their parts of it",
            );
        }
        let why = match self.spec.coordination {
            Coordination::Batch => "batches are shared out among all replicas without shards",
            Coordination::Everywhere => "each replica would do every part of the work",
            Coordination::Leader | Coordination::Tick => return,
        };
        found.error(
            &["shards", "coordination"],
            why,
            "leave shards out, or write coordination = \"leader\" or \"tick\"",
        );
    }

    fn times(&self, found: &mut Findings) {
        let spec = self.spec;
        if spec.timeout.is_some_and(|timeout| timeout.is_zero()) {
            found.error(
                &["timeout"],
                "no run could end in time",
                "leave timeout out for no limit",
            );
        }
        if spec.retry.attempts == 0 {
            found.error(
                &["retry.attempts", "retry"],
                "the job would never run",
                "write 1 for no retry",
            );
        }
        if spec.retry.backoff > spec.retry.max_backoff {
            let (backoff, max) = (Span(spec.retry.backoff), Span(spec.retry.max_backoff));
            found.error(
                &["retry.backoff", "retry.max_backoff"],
                format!("{backoff} is longer than max_backoff ({max})"),
                "lower backoff or raise max_backoff",
            );
        }
        if spec.progress_deadline.is_some_and(|limit| limit.is_zero()) {
            found.error(
                &["progress_deadline"],
                "every run would count as stuck",
                "leave progress_deadline out for no limit",
            );
        }
        let ttl = spec.ttl.unwrap_or(self.config.locks.ttl);
        if !effects::has_terms(spec, self.config.worker.mode) {
            // Told as without effect.
        } else if spec.max_term < ttl {
            let (max_term, ttl) = (Span(spec.max_term), Span(ttl));
            found.error(
                &["max_term"],
                format!("{max_term} is shorter than one lease ({ttl})"),
                "raise max_term: hours, not seconds",
            );
        } else if spec.min_term > spec.max_term {
            let (min_term, max_term) = (Span(spec.min_term), Span(spec.max_term));
            found.error(
                &["min_term", "max_term"],
                format!("{min_term} is longer than max_term ({max_term})"),
                "lower min_term or raise max_term",
            );
        }
        let drain = self.config.worker.drain_timeout;
        if spec.grace > drain {
            found.warn(
                &["grace"],
                format!(
                    "{} is longer than worker.drain_timeout ({}): to end the job's runs, a drain may take {}",
                    Span(spec.grace),
                    Span(drain),
                    Span(drain.saturating_add(spec.grace))
                ),
                "give what stops the worker ten seconds more than that, or lower grace",
            );
        }
    }
}

impl At<'_> {
    /// What happens to work that does not end.
    fn ends(&self, found: &mut Findings) {
        let spec = self.spec;
        if spec.unstoppable == Unstoppable::Abandon && !spec.fenced {
            found.error(
                &["unstoppable"],
                "work that is abandoned goes on beside its successor, and this job does not say that it may",
                "write fenced = true if whatever the job changes refuses old fencing tokens, else \"abort\" or \"hold\"",
            );
        }
    }
}

fn list(kinds: &[String]) -> String {
    if kinds.is_empty() {
        return "this program has no kinds; leave the job out".to_owned();
    }
    format!("known kinds: {}", kinds.join(", "))
}
