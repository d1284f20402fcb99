//! How a job is scheduled, coordinated and limited: the same in code and as `[jobs.NAME]`.

mod setters;

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::{
    coordination::{Coordination, Disagreement},
    retry::Retry,
};
use crate::{
    due::{Interrupted, Misfire, MisfirePolicy, Overlap, Policy},
    human::Span,
    lease::Unstoppable,
    schedule::{Definition, Dialect, Expressions, Schedule, ScheduleError},
};

/// Schedule, coordination and limits of one job. What code gives, `[jobs.NAME]` overrides key by key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spec {
    /// Which stock or registered kind of job this is; none for a job that code registers under this name.
    pub kind: Option<String>,
    /// Cron (5 to 7 fields), `@daily` and friends, `@every 30s` (also `offset 10s` or `offset auto` after it), `at TIME`,
    /// `continuous` or `manual`; or a list of these.
    pub schedule: Option<Expressions>,
    /// How a numeric weekday is read; with six or seven fields it must be said.
    pub dialect: Option<Dialect>,
    /// The time zone of the schedule: `UTC` unless set.
    pub zone: String,
    /// No tick before this, in RFC 3339 or civil time of the zone; no such limit unless set.
    pub starting: Option<String>,
    /// No tick after this; a date alone is the end of that day. No such limit unless set.
    pub until: Option<String>,
    /// Days of the zone's calendar without ticks: `2026-12-25`, `12-24` (every year), `Sun`, `Sat-Sun`. None unless set.
    pub except: Vec<String>,
    /// One job for each of so many parts of the work, with a lock and a leader of its own; one job for all of it
    /// unless set.
    pub shards: Option<usize>,
    /// Each start is delayed by less than this, so that jobs due at the same instant do not all start at it. No delay unless
    /// set.
    #[serde(with = "crate::human::optional")]
    pub jitter: Option<Duration>,
    /// Which of the runs that are due together starts first, where the lock nodes cannot take all of them at once: the one with the
    /// larger number; 0 unless set.
    pub priority: i32,
    /// Which replicas do the work: [`Coordination::Leader`] unless set.
    pub coordination: Coordination,
    /// How long the job's lease lasts without an extension; `locks.ttl` unless set.
    #[serde(with = "crate::human::optional")]
    pub ttl: Option<Duration>,
    /// How long one run may take; no limit unless set.
    #[serde(with = "crate::human::optional")]
    pub timeout: Option<Duration>,
    /// How long a run that was told to stop may take to end before it is dropped: ten seconds unless set.
    #[serde(with = "crate::human::duration")]
    pub grace: Duration,
    /// What happens when a run fails. Unless set, three attempts in all, with a pause of one second after the first, which
    /// doubles up to a minute.
    pub retry: Retry,
    /// Which of the ticks found too late run: [`Misfire::Once`] unless set.
    pub misfire: Misfire,
    /// How many of them run with `misfire = "all"`: the latest ones, 24 unless set.
    pub misfire_limit: usize,
    /// None older than this runs; no limit unless set.
    #[serde(with = "crate::human::optional")]
    pub misfire_window: Option<Duration>,
    /// What happens to a run whose replica died: [`Interrupted::Rerun`] unless set.
    pub interrupted: Interrupted,
    /// What happens to a tick that falls due while all places are taken: [`Overlap::Skip`] unless set.
    pub overlap: Overlap,
    /// How many runs of the job may go on at a time, under one leader; one unless set, and with [`Overlap::Allow`] as many
    /// as a ledger holds open, 16.
    pub concurrency: Option<usize>,
    /// How long a run may say nothing by [`Run::progress`](crate::Run::progress) before it counts as stuck, is stopped,
    /// and the job goes to another replica; no limit unless set.
    #[serde(with = "crate::human::optional")]
    pub progress_deadline: Option<Duration>,
    /// How long one replica leads before the fleet may move the job to another one, for its share or its priority: a minute
    /// unless set.
    #[serde(with = "crate::human::duration")]
    pub min_term: Duration,
    /// How long one replica leads before it hands over, if another candidate stands by: 24 hours unless set.
    #[serde(with = "crate::human::duration")]
    pub max_term: Duration,
    /// What happens when a run that was told to stop does not end within its grace: [`Unstoppable::Abort`] unless set.
    pub unstoppable: Unstoppable,
    /// Whether every effect of a run is refused to an old fencing token, so that two runs at a time do no harm; `false` unless
    /// set.
    pub fenced: bool,
    /// Whose definition of the job counts while replicas disagree on it: [`Disagreement::Newest`] unless set.
    pub definition: Disagreement,
    /// Receivers that are told when the job breaks and when it is well again: names of `[notices.NAME]`. Those of `worker.notify`
    /// unless set; none with an empty list.
    pub notify: Option<Vec<String>>,
    /// Whether the job runs at all; `true` unless set.
    pub enabled: bool,
    /// The job's own parameters; an empty table unless set.
    #[serde(deserialize_with = "table")]
    pub params: Value,
}

// === impl Spec ===

impl Default for Spec {
    fn default() -> Self {
        let policy = Policy::default();
        Self {
            kind: None,
            schedule: None,
            dialect: None,
            zone: "UTC".to_owned(),
            starting: None,
            until: None,
            except: Vec::new(),
            shards: None,
            jitter: None,
            priority: 0,
            coordination: Coordination::Leader,
            ttl: None,
            timeout: None,
            grace: Duration::from_secs(10),
            retry: Retry::default(),
            misfire: policy.misfire.mode,
            misfire_limit: policy.misfire.limit,
            misfire_window: policy.misfire.window,
            interrupted: policy.interrupted,
            overlap: policy.overlap,
            concurrency: None,
            progress_deadline: None,
            min_term: Duration::from_secs(60),
            max_term: Duration::from_secs(24 * 3600),
            unstoppable: Unstoppable::Abort,
            fenced: false,
            definition: Disagreement::Newest,
            notify: None,
            enabled: true,
            params: Value::Object(Map::new()),
        }
    }
}

impl Spec {
    /// A job with this schedule, as `schedule` is written in configuration; several expressions as a list of them.
    #[must_use]
    pub fn on(schedule: impl Into<Expressions>) -> Self {
        Self {
            schedule: Some(schedule.into()),
            ..Self::default()
        }
    }

    /// A job that runs at the instants of a cron expression with 5, 6 or 7 fields, or of several:
    /// `["0 8 * * Mon-Fri", "0 10 * * Sat,Sun"]`. An instant that two of them name is one tick.
    #[must_use]
    pub fn cron(expression: impl Into<Expressions>) -> Self {
        Self::on(expression)
    }

    /// A job that runs at every multiple of `interval` since the epoch. One outside of 100 ms to 366 days, zero among them, is
    /// refused when the worker loads its configuration.
    #[must_use]
    pub fn every(interval: Duration) -> Self {
        Self::on(format!("@every {}", Span(interval)))
    }

    /// A service: one run for as long as the replica leads.
    #[must_use]
    pub fn continuous() -> Self {
        Self::on("continuous")
    }

    /// This spec with the keys of `overrides` in place of its own, as `[jobs.NAME]` does it.
    ///
    /// # Errors
    /// When a key is unknown or a value does not fit it.
    pub(crate) fn merge(&self, overrides: &Map<String, Value>) -> Result<Self, serde_json::Error> {
        let mut merged = serde_json::to_value(self)?;
        for (key, value) in overrides {
            match (key.as_str(), value) {
                // `retry = 3` leaves the pauses alone.
                ("retry", Value::Number(_)) => merged["retry"]["attempts"] = value.clone(),
                _ => overlay(&mut merged[key], value),
            }
        }
        serde_json::from_value(merged)
    }

    /// The instants at which the job is due, without what depends on its name. A spec without a schedule has an empty one, which is an
    /// error.
    ///
    /// # Errors
    /// When schedule, dialect, zone, starting, until and except make no schedule; [`ScheduleError::key`] says which.
    pub(crate) fn parse_schedule(&self) -> Result<Schedule, ScheduleError> {
        self.written().parse()
    }

    /// The same, with everything that is wrong and not the first of it alone.
    ///
    /// # Errors
    /// At least one; as `parse_schedule`.
    pub(crate) fn read_schedule(&self) -> Result<Schedule, Vec<ScheduleError>> {
        self.written().read()
    }

    fn written(&self) -> Definition<'_> {
        Definition {
            expressions: self.schedule.as_ref().map_or(&[], Expressions::as_slice),
            dialect: self.dialect,
            zone: Some(&self.zone),
            starting: self.starting.as_deref(),
            until: self.until.as_deref(),
            except: &self.except,
        }
    }

    /// The schedule of the job of this name, with its jitter and its automatic offsets, which depend on the name.
    ///
    /// # Errors
    /// As `parse_schedule`.
    #[doc(hidden)] // for a bench, which asks it for ticks
    pub fn schedule_of(&self, job: &str) -> Result<Schedule, ScheduleError> {
        let jitter = self.jitter.unwrap_or_default();
        Ok(self.parse_schedule()?.of_job(job, jitter))
    }

    /// The rules by which ticks are decided.
    #[must_use]
    pub(crate) fn policy(&self) -> Policy {
        Policy {
            misfire: MisfirePolicy {
                mode: self.misfire,
                limit: self.misfire_limit,
                window: self.misfire_window,
            },
            interrupted: self.interrupted,
            overlap: self.overlap,
            concurrency: self.places(),
            attempts: self.retry.attempts,
        }
    }

    /// What decides on its ticks and runs, by the keys of a configuration, and whatever else is not as usual. Its parameters are no part
    /// of that: they may hold what is secret.
    #[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
    pub(crate) fn rules(&self) -> Vec<(String, String)> {
        let usual = serde_json::to_value(Self::default()).unwrap_or_default();
        let Ok(Value::Object(own)) = serde_json::to_value(self) else {
            return Vec::new();
        };
        let rule = |(key, value): (String, Value)| {
            let is_told = TELLING.contains(&key.as_str())
                || (value != usual[&key] && !ELSEWHERE.contains(&key.as_str()));
            is_told.then(|| (key, in_words(&value)))
        };
        own.into_iter().filter_map(rule).collect()
    }

    /// How many runs of the job may go on at a time.
    #[must_use]
    pub(crate) fn places(&self) -> usize {
        let unset = self.overlap.default_concurrency();
        self.concurrency.unwrap_or(unset)
    }
}

// === helpers ===

/// Keys that are always told.
const TELLING: [&str; 7] = [
    "coordination",
    "interrupted",
    "max_term",
    "misfire",
    "overlap",
    "retry",
    "timeout",
];
/// Keys that are told elsewhere, or not at all.
const ELSEWHERE: [&str; 4] = ["notify", "params", "schedule", "zone"];

fn in_words(value: &Value) -> String {
    match value {
        Value::Null => "none".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(all) => {
            let all: Vec<String> = all.iter().map(in_words).collect();
            all.join(", ")
        }
        Value::Object(all) => {
            let all: Vec<String> = all
                .iter()
                .map(|(key, value)| format!("{key} {}", in_words(value)))
                .collect();
            all.join(", ")
        }
        other => other.to_string(),
    }
}

fn overlay(at: &mut Value, value: &Value) {
    match (at, value) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                overlay(under.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (at, value) => *at = value.clone(),
    }
}

fn table<'de, D: Deserializer<'de>>(from: D) -> Result<Value, D::Error> {
    Map::deserialize(from).map(Value::Object)
}
