//! The families of metrics: names, labels, buckets. The names are a public interface.
//!
//! The registry has no prefix: the `distributed_lock_` names must come out verbatim, and units and `_total` are
//! added by the encoder, so they are missing from the names below.

use std::{sync::atomic::AtomicU64, time::Duration};

use jiff::Timestamp;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, info::Info},
    registry::{Metric, Registry, Unit},
};

use super::{histogram::Histogram, process::Process};
use crate::node::Token;

type Labels<const N: usize> = [(&'static str, String); N];
type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Gauges<const N: usize> = Family<Labels<N>, Gauge>;
type Seconds<const N: usize> = Family<Labels<N>, Gauge<f64, AtomicU64>>;
type Histograms<const N: usize> = Family<Labels<N>, Histogram>;

/// From one millisecond to ten seconds: a lock's round trips and waits.
const LOCK: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
/// From ten milliseconds to a day: leases, runs, times without a leader.
const LONG: &[f64] = &[
    0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0,
];

pub(super) struct Families {
    pub(super) registry: Registry,
    lock_wait: Histograms<2>,
    lock_failures: Counters<3>,
    lock_hold: Histograms<1>,
    lock_renew: Histograms<1>,
    node_up: Gauges<1>,
    leader: Gauges<1>,
    leadership_changes: Counters<2>,
    leaderless: Histograms<1>,
    lease_remaining: Seconds<1>,
    lease_margin: Gauges<1>,
    fencing_token: Gauges<1>,
    tick_overdue: Seconds<1>,
    job_paused: Gauges<1>,
    clock_ahead: Seconds<1>,
    job_runs: Counters<2>,
    job_duration: Histograms<1>,
    job_start_delay: Histograms<1>,
    job_last_success: Seconds<1>,
    ticks_skipped: Counters<2>,
    engine_deaths: Counters<1>,
    batches: Counters<2>,
    batch_duration: Histograms<1>,
    notifications: Counters<2>,
    notification_backlog: Gauges<1>,
    notification_items: Gauges<2>,
    events_missed: Counter,
    job_definitions: Gauges<1>,
    config_reload_successful: Gauge,
    config_reload: Gauge<f64, AtomicU64>,
}

// === impl Families ===

impl Families {
    pub(super) fn new(version: &str) -> Self {
        let mut families = Self {
            registry: Registry::default(),
            lock_wait: histograms(|| Histogram::new(LOCK)),
            lock_failures: Family::default(),
            lock_hold: histograms(|| Histogram::new(LONG)),
            lock_renew: histograms(|| Histogram::new(LOCK)),
            node_up: Family::default(),
            leader: Family::default(),
            leadership_changes: Family::default(),
            leaderless: histograms(|| Histogram::new(LONG)),
            lease_remaining: Family::default(),
            lease_margin: Family::default(),
            fencing_token: Family::default(),
            tick_overdue: Family::default(),
            job_paused: Family::default(),
            clock_ahead: Family::default(),
            job_runs: Family::default(),
            job_duration: histograms(|| Histogram::new(LONG)),
            job_start_delay: histograms(|| Histogram::new(LOCK)),
            job_last_success: Family::default(),
            ticks_skipped: Family::default(),
            engine_deaths: Family::default(),
            batches: Family::default(),
            batch_duration: histograms(|| Histogram::new(LONG)),
            notifications: Family::default(),
            notification_backlog: Family::default(),
            notification_items: Family::default(),
            events_missed: Counter::default(),
            job_definitions: Family::default(),
            config_reload_successful: Gauge::default(),
            config_reload: Gauge::default(),
        };
        families.register(version);
        families
    }

    fn register(&mut self, version: &str) {
        let r = &mut self.registry;
        let build = Info::new([("version", version.to_owned())]);
        r.register("watchkeeper_build", "The running program", build);
        r.register_collector(Box::new(Process));

        seconds(
            r,
            "distributed_lock_wait",
            "Time from the first byte of an attempt to its verdict",
            &self.lock_wait,
        );
        count(
            r,
            "distributed_lock_failures",
            "Lock operations that failed; losing to another holder is none",
            &self.lock_failures,
        );
        seconds(
            r,
            "distributed_lock_hold",
            "How long leases were held",
            &self.lock_hold,
        );
        seconds(
            r,
            "distributed_lock_renew",
            "Time of one renewal round",
            &self.lock_renew,
        );
        count(
            r,
            "distributed_lock_node_up",
            "Whether the lock node answers",
            &self.node_up,
        );

        count(
            r,
            "watchkeeper_leader",
            "Whether this replica leads the job",
            &self.leader,
        );
        count(
            r,
            "watchkeeper_leadership_changes",
            "Beginnings (elected) and ends of terms on this replica",
            &self.leadership_changes,
        );
        seconds(
            r,
            "watchkeeper_leaderless",
            "How long nobody led, since the release or the death of the last leader, as seen by the replica that took over",
            &self.leaderless,
        );
        seconds(
            r,
            "watchkeeper_lease_remaining",
            "Time to the local deadline of the term; absent while standing by",
            &self.lease_remaining,
        );
        count(
            r,
            "watchkeeper_lease_margin",
            "Lock nodes that may be lost without losing the term; absent while standing by",
            &self.lease_margin,
        );
        seconds(
            r,
            "watchkeeper_tick_overdue",
            "How long a tick has been due without a decision; absent where another replica leads",
            &self.tick_overdue,
        );
        seconds(
            r,
            "watchkeeper_clock_ahead",
            "How far the job's ticks are decided ahead of the clock; absent while they are not",
            &self.clock_ahead,
        );
        count(
            r,
            "watchkeeper_job_paused",
            "Whether this replica knows the job to be paused",
            &self.job_paused,
        );
        count(
            r,
            "watchkeeper_fencing_token",
            "Fencing token of the latest term of this replica",
            &self.fencing_token,
        );

        count(r, "watchkeeper_job_runs", "Runs that ended", &self.job_runs);
        seconds(
            r,
            "watchkeeper_job_duration",
            "How long runs took",
            &self.job_duration,
        );
        seconds(
            r,
            "watchkeeper_job_start_delay",
            "How long after their instant runs started",
            &self.job_start_delay,
        );
        seconds(
            r,
            "watchkeeper_job_last_success_timestamp",
            "When a run last ended well, as Unix time",
            &self.job_last_success,
        );
        count(
            r,
            "watchkeeper_ticks_skipped",
            "Ticks that will not run",
            &self.ticks_skipped,
        );
        count(
            r,
            "watchkeeper_engine_deaths",
            "Engines of jobs that died of a panic nothing caught, and began again",
            &self.engine_deaths,
        );
        count(
            r,
            "watchkeeper_batches",
            "Batches processed or given up",
            &self.batches,
        );
        seconds(
            r,
            "watchkeeper_batch_duration",
            "How long batches took",
            &self.batch_duration,
        );
        count(
            r,
            "watchkeeper_notifications",
            "Items delivered, repeated or refused",
            &self.notifications,
        );
        count(
            r,
            "watchkeeper_notification_backlog",
            "Items still to be delivered, as last seen",
            &self.notification_backlog,
        );
        count(
            r,
            "watchkeeper_notification_items",
            "Items that are dead, parked, in doubt or to be sent again, as last seen",
            &self.notification_items,
        );
        count(
            r,
            "watchkeeper_events_missed",
            "Events that came too fast to be counted here",
            &self.events_missed,
        );
        count(
            r,
            "watchkeeper_job_definitions",
            "Definitions of the job among the replicas, as far as this one knows; 1 when they agree",
            &self.job_definitions,
        );
        count(
            r,
            "watchkeeper_config_reload_successful",
            "Whether the last attempt to read the configuration was successful",
            &self.config_reload_successful,
        );
        seconds(
            r,
            "watchkeeper_config_reload_timestamp",
            "When the configuration in effect was read",
            &self.config_reload,
        );
    }

    /// The zeros of what alerts are made on: a counter that begins with its first event has not risen for Prometheus.
    pub(super) fn declare(&self, job: &str) {
        for outcome in ["done", "failed", "timeout", "panicked"] {
            let labels = [of(job), ("outcome", outcome.into())];
            drop(self.job_runs.get_or_create(&labels));
        }
        let labels = [of(job), ("why", "unknown".into())];
        drop(self.ticks_skipped.get_or_create(&labels));
        drop(self.engine_deaths.get_or_create(&[of(job)]));
    }

    pub(super) fn expect_success(&self, job: &str) {
        drop(self.job_last_success.get_or_create(&[of(job)]));
    }

    /// The zeros of what may fail from now on.
    fn may_fail(&self, resource: &str, op: &str, causes: &[&str]) {
        for cause in causes {
            let labels = [
                named(resource),
                ("op", op.into()),
                ("cause", (*cause).into()),
            ];
            drop(self.lock_failures.get_or_create(&labels));
        }
    }

    pub(super) fn waited(&self, resource: &str, outcome: &str, took: Duration) {
        self.may_fail(resource, "acquire", &["no_quorum"]);
        self.lock_wait
            .get_or_create(&[named(resource), ("outcome", outcome.into())])
            .observe(took.as_secs_f64());
    }

    pub(super) fn failed(&self, resource: &str, op: &str, cause: &str) {
        self.lock_failures
            .get_or_create(&[named(resource), ("op", op.into()), ("cause", cause.into())])
            .inc();
    }

    pub(super) fn renewed(&self, resource: &str, took: Duration) {
        self.may_fail(resource, "renew", &["no_quorum", "expired"]);
        self.lock_renew
            .get_or_create(&[named(resource)])
            .observe(took.as_secs_f64());
    }

    pub(super) fn held(&self, resource: &str, held: Duration) {
        self.lock_hold
            .get_or_create(&[named(resource)])
            .observe(held.as_secs_f64());
    }

    pub(super) fn node_up(&self, node: &str, up: bool) {
        self.node_up
            .get_or_create(&[("node", node.into())])
            .set(up.into());
    }

    pub(super) fn leader(&self, job: &str, leads: bool) {
        self.leader.get_or_create(&[of(job)]).set(leads.into());
    }

    pub(super) fn token(&self, job: &str, token: Token) {
        let token = i64::try_from(token.0).unwrap_or(i64::MAX);
        self.fencing_token.get_or_create(&[of(job)]).set(token);
    }

    pub(super) fn changed(&self, job: &str, reason: &str) {
        self.leadership_changes
            .get_or_create(&[of(job), ("reason", reason.into())])
            .inc();
    }

    pub(super) fn leaderless(&self, job: &str, gap: Duration) {
        self.leaderless
            .get_or_create(&[of(job)])
            .observe(gap.as_secs_f64());
    }

    pub(super) fn remaining(&self, job: &str, remaining: Option<Duration>) {
        match remaining {
            Some(left) => {
                self.lease_remaining
                    .get_or_create(&[of(job)])
                    .set(left.as_secs_f64());
            }
            // Absent, not zero: an alert on a small remainder must not fire for every standby.
            None => {
                self.lease_remaining.remove(&[of(job)]);
            }
        }
    }

    pub(super) fn margin(&self, job: &str, margin: Option<isize>) {
        match margin {
            Some(spare) => {
                let spare = i64::try_from(spare).unwrap_or(i64::MAX);
                self.lease_margin.get_or_create(&[of(job)]).set(spare);
            }
            // Absent, as what remains is: zero means that the next node is one too many.
            None => {
                self.lease_margin.remove(&[of(job)]);
            }
        }
    }

    /// Of these jobs and no others.
    pub(super) fn overdue(&self, jobs: &[(String, Duration)]) {
        seconds_of(&self.tick_overdue, jobs);
    }

    /// Of these jobs and no others.
    pub(super) fn paused(&self, jobs: &[(String, bool)]) {
        self.job_paused.clear();
        for (job, paused) in jobs {
            self.job_paused
                .get_or_create(&[of(job)])
                .set((*paused).into());
        }
    }

    /// An event that has told of it already knows better.
    pub(super) fn declare_node(&self, node: &str, up: bool) {
        let labels = [("node", node.to_owned())];
        if self.node_up.get(&labels).is_none() {
            self.node_up.get_or_create(&labels).set(up.into());
        }
    }

    /// Of these jobs and no others.
    pub(super) fn ahead(&self, jobs: &[(String, Duration)]) {
        seconds_of(&self.clock_ahead, jobs);
    }

    pub(super) fn run_started(&self, job: &str, delay: Duration) {
        self.job_start_delay
            .get_or_create(&[of(job)])
            .observe(delay.as_secs_f64());
    }

    pub(super) fn run_ended(&self, job: &str, outcome: &str, took: Duration, wall: Timestamp) {
        self.job_runs
            .get_or_create(&[of(job), ("outcome", outcome.into())])
            .inc();
        self.job_duration
            .get_or_create(&[of(job)])
            .observe(took.as_secs_f64());
        if outcome == "done" {
            self.job_last_success
                .get_or_create(&[of(job)])
                .set(wall.as_duration().as_secs_f64());
        }
    }

    pub(super) fn ticks_skipped(&self, job: &str, why: &str, ticks: u64) {
        self.ticks_skipped
            .get_or_create(&[of(job), ("why", why.into())])
            .inc_by(ticks);
    }

    pub(super) fn engine_died(&self, job: &str) {
        self.engine_deaths.get_or_create(&[of(job)]).inc();
    }

    pub(super) fn batch_ended(&self, job: &str, outcome: &str, took: Duration) {
        self.batches
            .get_or_create(&[of(job), ("outcome", outcome.into())])
            .inc();
        self.batch_duration
            .get_or_create(&[of(job)])
            .observe(took.as_secs_f64());
    }

    pub(super) fn items(&self, job: &str, outcome: &str, items: u64) {
        self.notifications
            .get_or_create(&[of(job), ("outcome", outcome.into())])
            .inc_by(items);
    }

    pub(super) fn backlog(&self, job: &str, items: u64) {
        let items = i64::try_from(items).unwrap_or(i64::MAX);
        self.notification_backlog
            .get_or_create(&[of(job)])
            .set(items);
    }

    pub(super) fn held_items(&self, job: &str, state: &'static str, items: u64) {
        let items = i64::try_from(items).unwrap_or(i64::MAX);
        self.notification_items
            .get_or_create(&[of(job), ("state", state.into())])
            .set(items);
    }

    pub(super) fn definitions(&self, job: &str, definitions: usize) {
        let definitions = i64::try_from(definitions).unwrap_or(i64::MAX);
        self.job_definitions
            .get_or_create(&[of(job)])
            .set(definitions);
    }

    pub(super) fn reloaded(&self, ok: bool, at: Timestamp) {
        self.config_reload_successful.set(i64::from(ok));
        if ok {
            self.config_reload.set(at.as_duration().as_secs_f64());
        }
    }

    pub(super) fn missed(&self, events: u64) {
        self.events_missed.inc_by(events);
    }
}

// === helpers ===

fn of(job: &str) -> (&'static str, String) {
    ("job", job.into())
}

fn named(resource: &str) -> (&'static str, String) {
    ("resource", resource.into())
}

fn seconds_of(gauges: &Seconds<1>, jobs: &[(String, Duration)]) {
    gauges.clear();
    for (job, time) in jobs {
        gauges.get_or_create(&[of(job)]).set(time.as_secs_f64());
    }
}

fn histograms<const N: usize>(new: fn() -> Histogram) -> Histograms<N> {
    Family::new_with_constructor(new)
}

fn count(registry: &mut Registry, name: &str, help: &str, metric: &(impl Metric + Clone)) {
    registry.register(name, help, metric.clone());
}

fn seconds(registry: &mut Registry, name: &str, help: &str, metric: &(impl Metric + Clone)) {
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
}
