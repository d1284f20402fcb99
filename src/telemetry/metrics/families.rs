//! The families of metrics: names, labels, buckets. The names are a public interface. Values are set in `../metrics.rs`.
//!
//! The registry has no prefix: the `distributed_lock_` names must come out verbatim, and units and `_total` are
//! added by the encoder, so they are missing from the names below.

use std::sync::atomic::AtomicU64;

use prometheus_client::{
    metrics::{counter, gauge, info::Info},
    registry::{Metric, Registry, Unit},
};

use super::{
    histogram::Histogram,
    process::Process,
    series::{Counter, Gauge, Sample, Seconds, Series, Words},
};

/// From one millisecond to ten seconds: a lock's round trips and waits.
const LOCK: &[f64] = &[
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
/// From ten milliseconds to a day: leases, runs, times without a leader.
const LONG: &[f64] = &[
    0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0,
];

/// What becomes of items that do not go by themselves.
pub(super) const STATES: [&str; 4] = ["retry", "dead", "in_doubt", "parked"];

/// Each family is registered where it is made, and shown in this order.
pub(super) struct Families {
    pub(super) lock_wait: Series<2, Histogram>,
    pub(super) lock_failures: Series<3, Counter>,
    pub(super) lock_hold: Series<1, Histogram>,
    pub(super) lock_renew: Series<1, Histogram>,
    pub(super) node_up: Series<1, Gauge>,
    pub(super) node_damaged: Series<1, Gauge>,
    pub(super) leader: Series<1, Gauge>,
    pub(super) shards: Series<1, Gauge>,
    pub(super) shards_led: Series<1, Gauge>,
    pub(super) leadership_changes: Series<2, Counter>,
    pub(super) leaderless: Series<1, Histogram>,
    pub(super) lease_remaining: Series<1, Seconds>,
    pub(super) lease_margin: Series<1, Gauge>,
    pub(super) tick_overdue: Series<1, Seconds>,
    pub(super) clock_ahead: Series<1, Seconds>,
    pub(super) job_paused: Series<1, Gauge>,
    pub(super) fencing_token: Series<1, Gauge>,
    pub(super) job_runs: Series<2, Counter>,
    pub(super) job_duration: Series<1, Histogram>,
    pub(super) job_start_delay: Series<1, Histogram>,
    pub(super) job_last_success: Series<1, Seconds>,
    pub(super) ticks_skipped: Series<2, Counter>,
    pub(super) engine_deaths: Series<1, Counter>,
    pub(super) batches: Series<2, Counter>,
    pub(super) batch_duration: Series<1, Histogram>,
    pub(super) notifications: Series<2, Counter>,
    pub(super) notification_backlog: Series<1, Gauge>,
    pub(super) notification_oldest: Series<1, Seconds>,
    pub(super) notification_items: Series<2, Gauge>,
    pub(super) notices: Series<2, Counter>,
    pub(super) events_missed: counter::Counter,
    pub(super) spans_sent: counter::Counter,
    pub(super) spans_dropped: Series<1, Counter>,
    pub(super) job_definitions: Series<1, Gauge>,
    pub(super) config_reload_successful: gauge::Gauge,
    pub(super) config_reload: gauge::Gauge<f64, AtomicU64>,
    pub(super) registry: Registry,
}

/// What a family is registered with as it is made.
struct Register(Registry, Words);

// === impl Families ===

impl Families {
    pub(super) fn new(version: &str) -> Self {
        let mut registry = Registry::default();
        let build = Info::new([("version", version.to_owned())]);
        registry.register("watchkeeper_build", "The running program", build);
        registry.register_collector(Box::new(Process));
        let mut r = Register(registry, Words::default());
        Self {
            lock_wait: r.seconds(
                "distributed_lock_wait",
                ["resource", "outcome"],
                short,
                "Time from the first byte of an attempt to its verdict",
            ),
            lock_failures: r.count(
                "distributed_lock_failures",
                ["resource", "op", "cause"],
                "Lock operations that failed; losing to another holder is none",
            ),
            lock_hold: r.seconds(
                "distributed_lock_hold",
                ["resource"],
                long,
                "How long leases were held",
            ),
            lock_renew: r.seconds(
                "distributed_lock_renew",
                ["resource"],
                short,
                "Time of one renewal round",
            ),
            node_up: r.count(
                "distributed_lock_node_up",
                ["node"],
                "Whether the lock node answers",
            ),
            node_damaged: r.count(
                "distributed_lock_node_damaged",
                ["node"],
                "Whether a part of the lock node's memory was found damaged, since it last began to answer",
            ),
            leader: r.count(
                "watchkeeper_leader",
                ["job"],
                "Whether this replica leads the job; not for jobs with shards",
            ),
            shards: r.count(
                "watchkeeper_shards",
                ["job"],
                "Shards that the job has by this replica's configuration; for jobs with shards that are led",
            ),
            shards_led: r.count(
                "watchkeeper_shards_led",
                ["job"],
                "Shards of the job that this replica leads",
            ),
            leadership_changes: r.count(
                "watchkeeper_leadership_changes",
                ["job", "reason"],
                "Beginnings (elected) and ends of terms on this replica",
            ),
            leaderless: r.seconds(
                "watchkeeper_leaderless",
                ["job"],
                long,
                "How long no replica led, since the release or the death of the last leader, \
                 as seen by the replica that took over",
            ),
            lease_remaining: r.seconds(
                "watchkeeper_lease_remaining",
                ["job"],
                Seconds::default,
                "Time to the local deadline of the term; absent while standing by",
            ),
            lease_margin: r.count(
                "watchkeeper_lease_margin",
                ["job"],
                "Lock nodes that may be lost without losing the term; absent while standing by",
            ),
            tick_overdue: r.seconds(
                "watchkeeper_tick_overdue",
                ["job"],
                Seconds::default,
                "How long a tick has been due without a decision; absent where another replica \
                 leads",
            ),
            clock_ahead: r.seconds(
                "watchkeeper_clock_ahead",
                ["job"],
                Seconds::default,
                "How far the job's ticks are decided ahead of the clock; absent while they are not",
            ),
            job_paused: r.count(
                "watchkeeper_job_paused",
                ["job"],
                "Whether this replica knows the job to be paused",
            ),
            fencing_token: r.count(
                "watchkeeper_fencing_token",
                ["job"],
                "Fencing token of the latest term of this replica",
            ),
            job_runs: r.count(
                "watchkeeper_job_runs",
                ["job", "outcome"],
                "Runs that ended",
            ),
            job_duration: r.seconds(
                "watchkeeper_job_duration",
                ["job"],
                long,
                "How long runs took",
            ),
            job_start_delay: r.seconds(
                "watchkeeper_job_start_delay",
                ["job"],
                short,
                "How long after their instant runs started",
            ),
            job_last_success: r.seconds(
                "watchkeeper_job_last_success_timestamp",
                ["job"],
                Seconds::default,
                "When a run last ended well, as Unix time",
            ),
            ticks_skipped: r.count(
                "watchkeeper_ticks_skipped",
                ["job", "why"],
                "Ticks that will not run",
            ),
            engine_deaths: r.count(
                "watchkeeper_engine_deaths",
                ["job"],
                "Engines of jobs that died of a panic nothing caught, and began again",
            ),
            batches: r.count(
                "watchkeeper_batches",
                ["job", "outcome"],
                "Batches processed or given up",
            ),
            batch_duration: r.seconds(
                "watchkeeper_batch_duration",
                ["job"],
                long,
                "How long batches took",
            ),
            notifications: r.count(
                "watchkeeper_notifications",
                ["job", "outcome"],
                "Items delivered, repeated or refused",
            ),
            notification_backlog: r.count(
                "watchkeeper_notification_backlog",
                ["job"],
                "Items still to be delivered, as last seen",
            ),
            notification_oldest: r.seconds(
                "watchkeeper_notification_oldest",
                ["job"],
                Seconds::default,
                "How long the oldest item still to be delivered could have gone; absent while none \
                 waits, and where it is not known",
            ),
            notification_items: r.count(
                "watchkeeper_notification_items",
                ["job", "state"],
                "Items that are dead, parked, in doubt or to be sent again, as last seen",
            ),
            notices: r.count(
                "watchkeeper_notices",
                ["notice", "outcome"],
                "Notices of jobs that broke or are well again: sent, given up (failed), or dropped because too many waited",
            ),
            events_missed: r.plain(
                "watchkeeper_events_missed",
                "Events that came too fast to be counted here",
                None,
            ),
            spans_sent: r.plain(
                "watchkeeper_spans_sent",
                "Spans of traces that their receiver has taken",
                None,
            ),
            spans_dropped: r.count(
                "watchkeeper_spans_dropped",
                ["why"],
                "Spans of traces that are gone: the queue was full, the receiver failed, or the worker ended",
            ),
            job_definitions: r.count(
                "watchkeeper_job_definitions",
                ["job"],
                "Definitions of the job among the replicas, as far as this one knows; 1 when \
                 they agree",
            ),
            config_reload_successful: r.plain(
                "watchkeeper_config_reload_successful",
                "Whether the last attempt to read the configuration was successful",
                None,
            ),
            config_reload: r.plain(
                "watchkeeper_config_reload_timestamp",
                "When the configuration in effect was read",
                Some(Unit::Seconds),
            ),
            registry: r.0,
        }
    }

    /// The zeros of what may fail from now on.
    pub(super) fn may_fail(&self, resource: &str, op: &str, causes: &[&str]) {
        for cause in causes {
            self.lock_failures.show([resource, op, cause]);
        }
    }

    /// Shows no gauge of this job. Counts stay: a series that begins anew is a jump for `rate()`.
    pub(super) fn show_no_gauge_of(&self, job: &str) {
        let counts = [
            &self.leader,
            &self.shards,
            &self.shards_led,
            &self.lease_margin,
            &self.job_paused,
            &self.fencing_token,
            &self.job_definitions,
        ];
        counts.iter().for_each(|counts| counts.remove([job]));
        let seconds = [
            &self.lease_remaining,
            &self.tick_overdue,
            &self.clock_ahead,
            &self.job_last_success,
        ];
        seconds.iter().for_each(|seconds| seconds.remove([job]));
        self.show_no_backlog_of(job);
    }

    /// Shows no work of this job that waits.
    pub(super) fn show_no_backlog_of(&self, job: &str) {
        self.notification_backlog.remove([job]);
        self.notification_oldest.remove([job]);
        for state in STATES {
            self.notification_items.remove([job, state]);
        }
    }

    pub(super) fn failed(&self, resource: &str, op: &str, cause: &str) {
        self.lock_failures.add([resource, op, cause], 1);
    }
}

// === impl Register ===

impl Register {
    /// A family of counts and other plain numbers.
    fn count<const N: usize, M: Sample + Default>(
        &mut self,
        name: &str,
        labels: [&'static str; N],
        help: &str,
    ) -> Series<N, M> {
        let series = Series::new(labels, M::default, self.1.clone());
        self.0.register(name, help, series.clone());
        series
    }

    /// A family of times.
    fn seconds<const N: usize, M: Sample>(
        &mut self,
        name: &str,
        labels: [&'static str; N],
        new: fn() -> M,
        help: &str,
    ) -> Series<N, M> {
        let series = Series::new(labels, new, self.1.clone());
        self.0
            .register_with_unit(name, help, Unit::Seconds, series.clone());
        series
    }

    /// One number without labels, shown from the start.
    fn plain<M: Metric + Clone + Default>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
    ) -> M {
        let sample = M::default();
        match unit {
            Some(unit) => self.0.register_with_unit(name, help, unit, sample.clone()),
            None => self.0.register(name, help, sample.clone()),
        }
        sample
    }
}

// === helpers ===

fn short() -> Histogram {
    Histogram::new(LOCK)
}

fn long() -> Histogram {
    Histogram::new(LONG)
}
