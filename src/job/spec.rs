//! How a job is scheduled, coordinated and limited: the same in code and as `[jobs.NAME]`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

use super::definition::Disagreement;
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
    /// Cron (5 to 7 fields), `@daily` and friends, `@every 30s`, `at TIME`, `continuous` or `manual`; or a list of these.
    pub schedule: Option<Expressions>,
    /// How a numeric weekday is read; with six or seven fields it must be said.
    pub dialect: Option<Dialect>,
    /// The time zone of the schedule.
    pub zone: String,
    /// No tick before this: in RFC 3339, or civil time of the zone.
    pub starting: Option<String>,
    /// No tick after this; a date alone is the end of that day.
    pub until: Option<String>,
    /// Days of the zone's calendar without ticks: `2026-12-25`, `12-24` (every year), `Sun`, `Sat-Sun`.
    pub except: Vec<String>,
    /// Each start is delayed by less than this, so that jobs due at the same instant do not all start at it.
    #[serde(with = "crate::human::optional")]
    pub jitter: Option<Duration>,
    /// Which replicas do the work.
    pub coordination: Coordination,
    /// How long the job's lease lasts without an extension; `locks.ttl` unless set.
    #[serde(with = "crate::human::optional")]
    pub ttl: Option<Duration>,
    /// How long one run may take; no limit unless set.
    #[serde(with = "crate::human::optional")]
    pub timeout: Option<Duration>,
    /// How long a run that was told to stop may take to end before it is dropped.
    #[serde(with = "crate::human::duration")]
    pub grace: Duration,
    /// What happens when a run fails.
    pub retry: Retry,
    /// Which of the ticks found too late run.
    pub misfire: Misfire,
    /// How many of them run with `misfire = "all"`: the latest ones.
    pub misfire_limit: usize,
    /// None older than this runs; no limit unless set.
    #[serde(with = "crate::human::optional")]
    pub misfire_window: Option<Duration>,
    /// What happens to a run whose replica died.
    pub interrupted: Interrupted,
    /// What happens to a tick that falls due while all places are taken.
    pub overlap: Overlap,
    /// How many runs of the job may go on at a time, under one leader; one unless set, and with [`Overlap::Allow`] as many
    /// as a ledger holds open.
    pub concurrency: Option<usize>,
    /// How long a run may say nothing by [`Run::progress`](crate::Run::progress) before it counts as stuck, is stopped,
    /// and the job goes to another replica; no limit unless set.
    #[serde(with = "crate::human::optional")]
    pub progress_deadline: Option<Duration>,
    /// How long one replica leads before the fleet may move the job to another one, for its share or its priority.
    #[serde(with = "crate::human::duration")]
    pub min_term: Duration,
    /// How long one replica leads before it hands over, if another candidate stands by.
    #[serde(with = "crate::human::duration")]
    pub max_term: Duration,
    /// What happens when a run that was told to stop does not end within its grace.
    pub unstoppable: Unstoppable,
    /// Whether every effect of a run is refused to an old fencing token, so that two runs at a time do no harm.
    pub fenced: bool,
    /// Whose definition of the job counts while replicas disagree on it.
    pub definition: Disagreement,
    /// Whether the job runs at all.
    pub enabled: bool,
    /// The job's own parameters.
    #[serde(deserialize_with = "table")]
    pub params: Value,
}

/// Which replicas do the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Coordination {
    /// One replica leads the job and runs it; the others stand by.
    #[default]
    Leader,
    /// The job's lock is taken for each tick, by whichever replica comes first.
    Tick,
    /// Every replica runs it; batches of work are claimed.
    Batch,
    /// Every replica runs it, without a lock.
    Everywhere,
}

/// How often and how soon a failed run is attempted again. `retry = 3` is short for `retry = { attempts = 3 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Retry {
    /// Attempts in all, the first included.
    pub attempts: u32,
    /// The pause after the first failure; it doubles with each further one.
    #[serde(with = "crate::human::duration")]
    pub backoff: Duration,
    /// The longest pause.
    #[serde(with = "crate::human::duration")]
    pub max_backoff: Duration,
}

impl std::fmt::Display for Coordination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Leader => "leader",
            Self::Tick => "tick",
            Self::Batch => "batch",
            Self::Everywhere => "everywhere",
        })
    }
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
            jitter: None,
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

    /// A job that runs at every multiple of `interval` since the epoch.
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
    pub fn merge(&self, overrides: &Map<String, Value>) -> Result<Self, serde_json::Error> {
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

    /// The instants at which the job is due, without its jitter. A spec without a schedule has an empty one, which is an
    /// error.
    ///
    /// # Errors
    /// When schedule, dialect, zone, starting, until and except make no schedule; [`ScheduleError::key`] says which.
    pub fn parse_schedule(&self) -> Result<Schedule, ScheduleError> {
        self.written().parse()
    }

    /// The same, with everything that is wrong and not the first of it alone.
    ///
    /// # Errors
    /// At least one; as [`Spec::parse_schedule`].
    pub fn read_schedule(&self) -> Result<Schedule, Vec<ScheduleError>> {
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

    /// The schedule of the job of this name, with its jitter, which depends on the name.
    ///
    /// # Errors
    /// As [`Spec::parse_schedule`].
    pub fn schedule_of(&self, job: &str) -> Result<Schedule, ScheduleError> {
        let jitter = self.jitter.unwrap_or_default();
        Ok(self.parse_schedule()?.with_jitter(job, jitter))
    }

    /// The rules by which ticks are decided.
    #[must_use]
    pub fn policy(&self) -> Policy {
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

    /// How many runs of the job may go on at a time.
    #[must_use]
    pub fn places(&self) -> usize {
        let unset = self.overlap.default_concurrency();
        self.concurrency.unwrap_or(unset)
    }

    /// The time zone of the schedule: `"Europe/Rome"`.
    #[must_use]
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = zone.into();
        self
    }

    /// No tick before this: `"2026-12-24T18:00:00Z"`, or `"2026-12-24T18:00"` or `"2026-12-24"` in the job's zone.
    #[must_use]
    pub fn starting(mut self, time: impl Into<String>) -> Self {
        self.starting = Some(time.into());
        self
    }

    /// No tick after this, written as for [`starting`](Spec::starting); a date alone is the end of that day.
    #[must_use]
    pub fn until(mut self, time: impl Into<String>) -> Self {
        self.until = Some(time.into());
        self
    }

    /// Days of the zone's calendar without ticks: `["2026-12-25", "12-24", "Sat-Sun"]`.
    #[must_use]
    pub fn except<T: Into<String>>(mut self, days: impl IntoIterator<Item = T>) -> Self {
        self.except = days.into_iter().map(Into::into).collect();
        self
    }

    /// Delays each start by less than this, so that jobs due at the same instant do not all start at it. The delay is a
    /// function of the job's name and the tick, the same on every replica, and shorter than the time to the next tick; the
    /// tick keeps its instant in the ledger and in [`Run::tick`](crate::Run::tick).
    #[must_use]
    pub fn jitter(mut self, most: Duration) -> Self {
        self.jitter = Some(most);
        self
    }

    /// How a numeric weekday is read.
    #[must_use]
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = Some(dialect);
        self
    }

    /// Which replicas do the work.
    #[must_use]
    pub fn coordination(mut self, coordination: Coordination) -> Self {
        self.coordination = coordination;
        self
    }

    /// How long the job's lease lasts without an extension.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long one run may take.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How long a run that was told to stop may take to end.
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// What happens when a run fails: `3` attempts, or a whole [`Retry`].
    #[must_use]
    pub fn retry(mut self, retry: impl Into<Retry>) -> Self {
        self.retry = retry.into();
        self
    }

    /// Which of the ticks found too late run.
    #[must_use]
    pub fn misfire(mut self, misfire: Misfire) -> Self {
        self.misfire = misfire;
        self
    }

    /// How many of them run with [`Misfire::All`]: the latest ones.
    #[must_use]
    pub fn misfire_limit(mut self, limit: usize) -> Self {
        self.misfire_limit = limit;
        self
    }

    /// None older than this runs.
    #[must_use]
    pub fn misfire_window(mut self, window: Duration) -> Self {
        self.misfire_window = Some(window);
        self
    }

    /// What happens to a run whose replica died.
    #[must_use]
    pub fn interrupted(mut self, interrupted: Interrupted) -> Self {
        self.interrupted = interrupted;
        self
    }

    /// What happens to a tick that falls due while as many runs go on as may at a time.
    #[must_use]
    pub fn overlap(mut self, overlap: Overlap) -> Self {
        self.overlap = overlap;
        self
    }

    /// How many runs of the job may go on at a time, under one leader: 1 to 16. A retry that waits takes no place; the run
    /// of a trigger takes one, and waits for it.
    #[must_use]
    pub fn concurrency(mut self, runs: usize) -> Self {
        self.concurrency = Some(runs);
        self
    }

    /// How long a run may say nothing by [`Run::progress`](crate::Run::progress) before it counts as stuck: it is told to
    /// stop while its lease is renewed, and the job goes to another replica. Its start counts; time in which the process
    /// was frozen does not.
    #[must_use]
    pub fn progress_deadline(mut self, limit: Duration) -> Self {
        self.progress_deadline = Some(limit);
        self
    }

    /// How long one replica leads before the fleet may move the job, between two runs, to a replica that leads fewer jobs
    /// or has a larger priority: a minute unless set. A drain, `resign`, unfitness and `max_term` do not wait for it.
    /// Without effect in failover mode, and for jobs without a leader, those of [`Coordination::Tick`] among them.
    #[must_use]
    pub fn min_term(mut self, limit: Duration) -> Self {
        self.min_term = limit;
        self
    }

    /// How long one replica leads before it hands over: 24 hours unless set. Only if another candidate of its priority, or
    /// of a larger one, stands by, as far as the replicas have told each other; else the time begins anew, and the work goes on. A run in flight gets the
    /// worker's drain timeout to end by itself; a `continuous` one is told to stop. Without effect in failover mode, and
    /// for jobs without a leader.
    #[must_use]
    pub fn max_term(mut self, limit: Duration) -> Self {
        self.max_term = limit;
        self
    }

    /// What happens when a run that was told to stop does not end within its grace: [`Unstoppable::Abort`] unless set.
    /// [`Unstoppable::Abandon`] is for jobs that are [`fenced`](Spec::fenced) alone. In failover mode the lock of the
    /// replica stands above it, and that one aborts.
    #[must_use]
    pub fn unstoppable(mut self, what: Unstoppable) -> Self {
        self.unstoppable = what;
        self
    }

    /// Declares that every effect of a run goes where its fencing token is compared, so that two runs at a time do no
    /// harm: what the older one does is refused. See [`crate::fence`].
    #[must_use]
    pub fn fenced(mut self) -> Self {
        self.fenced = true;
        self
    }

    /// Whose definition of the job counts while the replicas of the fleet disagree on it: [`Disagreement::Newest`] unless
    /// set. Without effect in failover mode, where the active replica's does.
    #[must_use]
    pub fn definition(mut self, rule: Disagreement) -> Self {
        self.definition = rule;
        self
    }

    /// Whether the job runs at all.
    #[must_use]
    pub fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = enabled;
        self
    }

    /// The job's own parameters.
    #[must_use]
    pub fn params(mut self, params: Value) -> Self {
        self.params = params;
        self
    }
}

// === impl Retry ===

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: Policy::default().attempts,
            backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(60),
        }
    }
}

impl Retry {
    /// The pause after attempt `attempt` (1 is the first) has failed; `None` when it was the last.
    #[must_use]
    pub fn pause_after(&self, attempt: u32) -> Option<Duration> {
        if attempt >= self.attempts {
            return None;
        }
        let doublings = attempt.saturating_sub(1).min(31);
        Some(
            self.backoff
                .saturating_mul(1 << doublings)
                .min(self.max_backoff),
        )
    }
}

impl From<u32> for Retry {
    fn from(attempts: u32) -> Self {
        Self {
            attempts,
            ..Self::default()
        }
    }
}

impl<'de> Deserialize<'de> for Retry {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields, default)]
        struct Table {
            attempts: u32,
            #[serde(with = "crate::human::duration")]
            backoff: Duration,
            #[serde(with = "crate::human::duration")]
            max_backoff: Duration,
        }

        impl Default for Table {
            fn default() -> Self {
                let Retry {
                    attempts,
                    backoff,
                    max_backoff,
                } = Retry::default();
                Self {
                    attempts,
                    backoff,
                    max_backoff,
                }
            }
        }

        struct NumberOrTable;

        impl<'de> serde::de::Visitor<'de> for NumberOrTable {
            type Value = Retry;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of attempts or { attempts, backoff, max_backoff }")
            }

            fn visit_u64<E: serde::de::Error>(self, attempts: u64) -> Result<Retry, E> {
                u32::try_from(attempts).map(Retry::from).map_err(E::custom)
            }

            fn visit_i64<E: serde::de::Error>(self, attempts: i64) -> Result<Retry, E> {
                u32::try_from(attempts).map(Retry::from).map_err(E::custom)
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<Retry, A::Error> {
                let table = Table::deserialize(serde::de::value::MapAccessDeserializer::new(map))?;
                let Table {
                    attempts,
                    backoff,
                    max_backoff,
                } = table;
                Ok(Retry {
                    attempts,
                    backoff,
                    max_backoff,
                })
            }
        }

        from.deserialize_any(NumberOrTable)
    }
}

// === helpers ===

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
