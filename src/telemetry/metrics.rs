//! The numbers of one replica, for Prometheus.
//!
//! # Invariants
//! - M1 Labels are bounded: jobs, lock families, nodes and fixed words; never a run, a batch or an error text.
//! - M2 What a replica leads is asked at the moment of the scrape when a source of terms is given, so missed events
//!   do not leave a dead term on the page.          (a_scrape_asks_who_leads)
//! - M3 Both text formats show the same samples.    (both_formats_show_the_same_samples)
//! - M4 A job that has left this replica keeps no gauge, and one that has no leader any more none of its terms. Its engine's last
//!   events come late, so that is looked at with every scrape.
//!   (a_job_that_has_left_keeps_no_gauge, a_job_without_a_leader_any_more_is_not_shown_as_unled)
//! - M5 However many jobs there are, [`MOST_NAMED`] at most have series of their own; all others share those of [`OTHER`].
//!   (a_hundred_thousand_jobs_have_no_more_series_than_ten_thousand)
#![cfg_attr(
    not(feature = "admin"),
    allow(dead_code, reason = "the page alone shows them")
)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::families::{Families, STATES};
use super::{
    Seen,
    traces::{Became, DROPPED},
};
use crate::{
    clock::Clock,
    event::{Event, Events},
    job::shard::shard_of,
    lease::Loss,
    node::Token,
    spawn::Spawn,
};

mod exposition;
mod families;
mod histogram;
mod process;
mod series;
#[cfg(test)]
mod tests;

pub(crate) use exposition::Exposition;

/// Jobs and families of locks that have series of their own: the first that were heard of.
const MOST_NAMED: usize = 10_000;
/// What all others are called together.
const OTHER: &str = "_other";

/// The metrics of one replica; cheap to clone.
#[derive(Clone)]
pub(crate) struct Metrics(Arc<Inner>);

/// A term that this replica holds right now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeldTerm {
    /// The job.
    pub(crate) job: String,
    /// The term's token.
    pub(crate) token: Token,
    /// Time to the local deadline.
    pub(crate) remaining: Duration,
    /// Lock nodes beyond the majority that the term's lease needs, as of its last round.
    pub(crate) margin: isize,
}

/// All that is asked at every scrape.
#[derive(Default)]
pub(crate) struct Asks {
    /// What this replica leads.
    pub(crate) terms: Asked<HeldTerm>,
    /// The jobs whose ticks are this replica's business, and how long the next tick that it knew of has passed without a decision;
    /// zero when it has not.
    pub(crate) overdue: Asked<(String, Duration)>,
    /// This replica's jobs, and whether it knows them to be paused.
    pub(crate) paused: Asked<(String, bool)>,
    /// The jobs that are this replica's, or were once, and whether they have left it.
    pub(crate) left: Asked<(String, bool)>,
    /// This replica's jobs, and whether it looks for no work of them.
    pub(crate) resting: Asked<(String, bool)>,
    /// The jobs whose ticks are decided further than the clock shows, and by how much.
    pub(crate) ahead: Asked<(String, Duration)>,
    /// The jobs with items that wait, and for how long the oldest of them could have gone, where that is known.
    pub(crate) waiting: Asked<(String, Duration)>,
}

/// What is asked at every scrape; nothing until somewhere to ask is known.
pub(crate) struct Asked<T>(RwLock<Option<Ask<T>>>);

type Ask<T> = Box<dyn Fn() -> Vec<T> + Send + Sync>;

struct Inner {
    families: Families,
    asks: Asks,
    /// Jobs that have a `watchkeeper_leader` sample.
    jobs: Mutex<BTreeSet<String>>,
    /// Jobs with shards, whose series are those of all their shards together: a thousand shards would be thirty thousand series.
    sharded: Mutex<BTreeSet<String>>,
    /// Jobs that are declared without a leader.
    unled: Mutex<BTreeSet<String>>,
    /// What has series of its own.
    named: Mutex<BTreeSet<String>>,
}

// === impl Metrics ===

impl Metrics {
    /// A registry of its own, for a program of this `version`.
    #[must_use]
    pub(crate) fn new(version: &str) -> Self {
        Self(Arc::new(Inner {
            families: Families::new(version),
            asks: Asks::default(),
            jobs: Mutex::new(BTreeSet::new()),
            sharded: Mutex::new(BTreeSet::new()),
            unled: Mutex::new(BTreeSet::new()),
            named: Mutex::new(BTreeSet::new()),
        }))
    }

    /// What is asked at every scrape: it must answer at once.
    pub(crate) fn asks(&self) -> &Asks {
        &self.0.asks
    }

    /// Shows a lock node from now on, unless an event has told of it already.
    pub(crate) fn declare_node(&self, node: &str, up: bool) {
        let shown = &self.0.families.node_up;
        if !shown.has([node]) {
            shown.set([node], up);
        }
        let damaged = &self.0.families.node_damaged;
        if !damaged.has([node]) {
            damaged.set([node], false);
        }
    }

    /// Shows a job from now on, with zeros: a series that begins at its first failure hides that failure from
    /// `rate()`. Those of its lock (job names are also the `resource` of their locks) begin with the first attempt at it
    /// and the first extension: a job that others lead has few.
    pub(crate) fn declare_job(&self, job: &str, has_leader: bool) {
        let families = &self.0.families;
        let shard = shard_of(job);
        let whole = shard.map_or(job, |(whole, _)| whole);
        if !self.is_named(whole) {
            self.show_zeros(OTHER);
            return;
        }
        match has_leader {
            true => self.unled().remove(whole),
            false => self.unled().insert(whole.to_owned()),
        };
        if let Some((whole, number)) = shard {
            if self.sharded().insert(whole.to_owned()) {
                families.leader.remove([whole]);
            }
            if has_leader {
                // They are declared in order: the last one tells their number, also after a reload.
                families.shards.set([whole], number + 1);
                families.shards_led.show([whole]);
            }
        } else {
            if !has_leader {
                self.jobs().remove(job);
                families.leader.remove([job]);
            }
            if self.sharded().remove(job) {
                families.shards.remove([job]);
                families.shards_led.remove([job]);
                if has_leader {
                    families.leader.show([job]);
                }
            }
            if has_leader && self.jobs().insert(job.to_owned()) {
                families.leader.show([job]);
            }
        }
        self.show_zeros(self.series(job));
    }

    fn show_zeros(&self, job: &str) {
        let families = &self.0.families;
        // The zeros of what alerts are made on: a counter that begins with its first event has not risen for Prometheus.
        for outcome in ["done", "failed", "timeout", "panicked"] {
            families.job_runs.show([job, outcome]);
        }
        families.ticks_skipped.show([job, "unknown"]);
        families.engine_deaths.show([job]);
    }

    /// Shows that the job, which has ticks, has never succeeded here: as a success at the beginning of Unix time.
    pub(crate) fn expect_success(&self, job: &str) {
        let job = self.series(job);
        self.0.families.job_last_success.show([job]);
    }

    /// Counts one event that happened at `wall`.
    pub(crate) fn on(&self, event: &Event, wall: Timestamp) {
        let f = &self.0.families;
        let series = |name| self.series(name);
        match event {
            Event::Acquire {
                resource,
                outcome,
                took,
            } => {
                let resource = series(resource);
                if f.lock_wait.took([resource, outcome], *took) {
                    f.may_fail(resource, "acquire", &["no_quorum"]);
                }
                // Losing to another replica is an ordinary value, not a failure.
                if !matches!(*outcome, "acquired" | "held") {
                    f.failed(resource, "acquire", outcome);
                }
            }
            Event::Renewed {
                resource, took, ok, ..
            } => {
                let resource = series(resource);
                if f.lock_renew.took([resource], *took) {
                    f.may_fail(resource, "renew", &["no_quorum", "expired"]);
                }
                if !ok {
                    f.failed(resource, "renew", "no_quorum");
                }
            }
            Event::LeaseEnded {
                resource,
                loss,
                held,
            } => {
                let resource = series(resource);
                f.lock_hold.took([resource], *held);
                if matches!(loss, Loss::Expired | Loss::Taken) {
                    f.failed(resource, "renew", loss_word(loss));
                }
            }
            Event::NodeUp { node, up, .. } => {
                f.node_up.set([node], *up);
                if *up {
                    f.node_damaged.set([node], false);
                }
            }
            Event::NodeDamaged { node, .. } => f.node_damaged.set([node], true),
            Event::Leading {
                job,
                token,
                leaderless,
            } => {
                let of = series(job);
                // Of shards it is counted when it is asked for.
                if of == job {
                    self.jobs().insert(of.to_owned());
                    f.leader.set([of], 1);
                    f.fencing_token.set([of], token.0);
                }
                let job = of;
                f.leadership_changes.add([job, "elected"], 1);
                if let Some(gap) = leaderless {
                    f.leaderless.took([job], *gap);
                }
            }
            Event::StandingBy { job, why } => {
                let of = series(job);
                if of == job {
                    self.jobs().insert(of.to_owned());
                    f.leader.set([of], 0);
                }
                let job = of;
                f.leadership_changes.add([job, loss_word(why)], 1);
            }
            Event::RunStarted { job, delay, .. } => {
                f.job_start_delay.took([series(job)], *delay);
            }
            Event::RunEnded {
                job, outcome, took, ..
            } => {
                let job = series(job);
                f.job_runs.add([job, outcome], 1);
                f.job_duration.took([job], *took);
                if *outcome == "done" {
                    let at = wall.as_duration().as_secs_f64();
                    f.job_last_success.set([job], at);
                }
            }
            Event::TicksSkipped {
                job, why, count, ..
            } => f.ticks_skipped.add([series(job), why], *count),
            Event::BatchEnded {
                job, outcome, took, ..
            } => {
                let job = series(job);
                f.batches.add([job, outcome], 1);
                f.batch_duration.took([job], *took);
            }
            Event::Items {
                job,
                outcome,
                count,
            } => f.notifications.add([series(job), outcome], *count),
            Event::EngineDied { job, .. } => f.engine_deaths.add([series(job)], 1),
            // What one of many jobs has last seen says nothing of the others.
            Event::Backlog { job, .. }
            | Event::HeldItems { job, .. }
            | Event::Definitions { job, .. }
                if series(job) == OTHER => {}
            Event::Backlog { job, items, .. } => f.notification_backlog.set([series(job)], *items),
            Event::HeldItems {
                job,
                retry,
                dead,
                in_doubt,
                parked,
            } => {
                let items = [retry, dead, in_doubt, parked];
                for (state, items) in STATES.into_iter().zip(items) {
                    f.notification_items.set([job, state], *items);
                }
            }
            Event::Definitions { job, count } => f.job_definitions.set([series(job)], *count),
            Event::Notice {
                notice, outcome, ..
            } => f.notices.add([notice.as_str(), outcome], 1),
            Event::Reloaded { ok, at } => {
                f.config_reload_successful.set((*ok).into());
                if *ok {
                    f.config_reload.set(at.as_duration().as_secs_f64());
                }
            }
            _ => {}
        }
    }

    /// Counts everything that is told from now on, until `stop`.
    pub(crate) fn follow(
        &self,
        events: &Events,
        clock: &Clock,
        spawn: &Spawn,
        stop: CancellationToken,
    ) -> JoinHandle<()> {
        let (metrics, clock) = (self.clone(), clock.clone());
        spawn.spawn(super::observe(events, stop, move |seen| match seen {
            Seen::Event(event) => metrics.on(&event, clock.wall()),
            Seen::Missed(count) => {
                metrics.0.families.events_missed.inc_by(count);
            }
        }))
    }

    /// Shows a receiver of notices from now on, with zeros.
    pub(crate) fn declare_notice(&self, notice: &str) {
        for outcome in ["sent", "failed", "dropped"] {
            self.0.families.notices.show([notice, outcome]);
        }
    }

    /// Shows what becomes of spans from now on.
    pub(crate) fn declare_spans(&self) {
        for why in DROPPED {
            self.0.families.spans_dropped.show([why]);
        }
    }

    /// Counts spans that were sent, or are gone.
    pub(crate) fn spans(&self, became: Became, count: u64) {
        let families = &self.0.families;
        match became {
            Became::Sent => {
                families.spans_sent.inc_by(count);
            }
            Became::Dropped(why) => families.spans_dropped.add([why], count),
        }
    }

    /// Everything, as text.
    #[must_use]
    pub(crate) fn render(&self, exposition: Exposition) -> String {
        let Inner { families, asks, .. } = &*self.0;
        self.ask_terms();
        let longest = |jobs: &[(String, Duration)]| self.gathered(jobs, Duration::max);
        asks.overdue
            .ask(|jobs| families.tick_overdue.only(&longest(jobs)));
        asks.ahead
            .ask(|jobs| families.clock_ahead.only(&longest(jobs)));
        asks.waiting
            .ask(|jobs| families.notification_oldest.only(&longest(jobs)));
        asks.paused.ask(|jobs| {
            families
                .job_paused
                .only(&self.gathered(jobs, |a, b| a && b))
        });
        asks.resting.ask(|jobs| {
            let jobs = self.gathered(jobs, |a, b| a && b);
            for (job, _) in jobs.iter().filter(|(_, rests)| *rests) {
                families.show_no_backlog_of(job);
            }
        });
        asks.left.ask(|jobs| {
            let jobs = self.gathered(jobs, |a, b| a && b);
            for (job, _) in jobs.iter().filter(|(_, left)| *left) {
                self.jobs().remove(job);
                families.show_no_gauge_of(job);
            }
        });
        exposition.render(&families.registry)
    }

    fn ask_terms(&self) {
        let f = &self.0.families;
        self.0.asks.terms.ask(|held| {
            let mut terms: BTreeMap<&str, Vec<&HeldTerm>> = BTreeMap::new();
            for term in held {
                terms.entry(self.series(&term.job)).or_default().push(term);
            }
            let sharded = self.sharded().clone();
            let unled = self.unled().clone();
            let mut jobs = self.jobs();
            let led = terms.keys().copied();
            let led = led.filter(|job| *job != OTHER && !sharded.contains(*job));
            jobs.extend(led.map(str::to_owned));
            for job in jobs.iter().chain(&sharded).map(String::as_str) {
                let terms = terms.get(job).map_or(&[][..], Vec::as_slice);
                let has_leader = !terms.is_empty() || !unled.contains(job);
                match sharded.contains(job) {
                    true => {
                        f.shards_led.set([job], terms.len());
                        f.leader.remove([job]);
                    }
                    false if has_leader => f.leader.set([job], !terms.is_empty()),
                    false => {
                        f.leader.remove([job]);
                        f.fencing_token.remove([job]);
                    }
                }
                self.show_leases(job, terms);
                if let Some(token) = terms.iter().map(|term| term.token.0).max() {
                    f.fencing_token.set([job], token);
                }
            }
            drop(jobs);
            if let Some(terms) = terms.get(OTHER) {
                self.show_leases(OTHER, terms);
            } else if f.lease_remaining.has([OTHER]) {
                self.show_leases(OTHER, &[]);
            }
        });
    }

    /// Those of a job, or of all shards of one: the first that would end counts.
    fn show_leases(&self, job: &str, terms: &[&HeldTerm]) {
        let f = &self.0.families;
        let remaining = terms.iter().map(|term| term.remaining).min();
        let margin = terms.iter().map(|term| term.margin).min();
        if let Some((remaining, margin)) = remaining.zip(margin) {
            f.lease_remaining.set([job], remaining.as_secs_f64());
            f.lease_margin.set([job], margin);
        } else {
            // Absent, not zero: an alert on a small remainder must not fire for every standby, and a margin of zero means that
            // the next node is one too many.
            f.lease_remaining.remove([job]);
            f.lease_margin.remove([job]);
        }
    }

    /// The job in whose series something is counted: of a shard the one that it is a part of.
    fn series<'a>(&self, name: &'a str) -> &'a str {
        let name = match shard_of(name) {
            // A lock of the program may have a dot in its name, too.
            Some((whole, _)) if self.sharded().contains(whole) => whole,
            _ => name,
        };
        match self.is_named(name) {
            true => name,
            false => OTHER,
        }
    }

    /// Whether it has series of its own: those that come first have, and keep them.
    fn is_named(&self, name: &str) -> bool {
        let named = self.0.named.lock();
        let mut named = named.unwrap_or_else(PoisonError::into_inner);
        if !named.contains(name) && named.len() < MOST_NAMED {
            named.insert(name.to_owned());
        }
        named.contains(name)
    }

    /// One value for each series.
    fn gathered<T: Copy>(&self, jobs: &[(String, T)], add: impl Fn(T, T) -> T) -> Vec<(String, T)> {
        let mut all: BTreeMap<&str, T> = BTreeMap::new();
        for (job, value) in jobs {
            let known = all.entry(self.series(job));
            known
                .and_modify(|known| *known = add(*known, *value))
                .or_insert(*value);
        }
        all.into_iter()
            .map(|(job, value)| (job.to_owned(), value))
            .collect()
    }

    fn sharded(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.0
            .sharded
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn unled(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.0.unled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn jobs(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Asked ===

impl<T> Asked<T> {
    pub(crate) fn of(&self, ask: impl Fn() -> Vec<T> + Send + Sync + 'static) {
        let mut place = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *place = Some(Box::new(ask));
    }

    fn ask(&self, show: impl FnOnce(&[T])) {
        let ask = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = ask.as_ref().map(|ask| ask()) {
            drop(ask);
            show(&answer);
        }
    }
}

impl<T> Default for Asked<T> {
    fn default() -> Self {
        Self(RwLock::new(None))
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

/// A bounded word for why a lease ended.
pub(crate) fn loss_word(loss: &Loss) -> &'static str {
    match loss {
        Loss::Expired => "expired",
        Loss::Taken => "taken",
        Loss::Unfit(_) => "unfit",
        Loss::Released => "released",
        Loss::MaxTerm => "max_term",
        _ => "other",
    }
}
