//! Keys of a job that have no effect beside its others. They are told, because their author believed in them.
//!
//! What is said here follows what the engines do. A job that runs everywhere keeps a ledger, too, for as long as its
//! replica lives: rules for late ticks and interrupted runs hold there as well.

use crate::{
    config::{Mode, WorkFacts},
    due::{Interrupted, Misfire, Overlap},
    finding::Findings,
    human::Span,
    job::{Coordination, Spec},
    schedule::Schedule,
};

/// One job, seen with a view to what its keys do.
struct Effects<'a> {
    spec: &'a Spec,
    /// What holds where nothing is said.
    default: Spec,
    failover: bool,
    /// Whether it has terms that could be bounded.
    has_terms: bool,
}

/// Why a key has no effect on a job without a lock.
const NO_LOCK: &str = "it has no effect: a job that runs everywhere takes no lock";

/// Adds what has no effect. `schedule` is the job's, when it can be read; `work` is what the program knows of its work. Keys
/// are those of the job.
pub(super) fn check(
    spec: &Spec,
    schedule: Option<&Schedule>,
    mode: Mode,
    work: Option<WorkFacts>,
    found: &mut Findings,
) {
    let effects = Effects {
        spec,
        default: Spec::default(),
        failover: mode == Mode::Failover,
        has_terms: has_terms(spec, mode),
    };
    effects.coordination(found);
    effects.terms(found);
    effects.attempts(found);
    effects.progress(work, found);
    // A schedule that cannot be read, and ticks of batches, are told elsewhere.
    if let Some(schedule) = schedule {
        match (schedule.has_ticks(), spec.coordination) {
            (true, Coordination::Batch) => {}
            (true, _) => {
                effects.late(found);
                effects.calendar(found);
            }
            (false, _) => effects.without_ticks(schedule, found),
        }
    }
}

/// Whether the job has a leader of its own, whom another replica may follow.
pub(super) fn has_terms(spec: &Spec, mode: Mode) -> bool {
    spec.coordination == Coordination::Leader && mode == Mode::Shared
}

// === impl Effects ===

impl Effects<'_> {
    fn coordination(&self, found: &mut Findings) {
        let (spec, default) = (self.spec, &self.default);
        let everywhere = spec.coordination == Coordination::Everywhere;
        let unstoppable = spec.unstoppable != default.unstoppable;
        if everywhere {
            let set = [
                ("ttl", spec.ttl.is_some()),
                ("unstoppable", unstoppable),
                ("fenced", spec.fenced),
            ];
            for key in those_set(set) {
                found.warn(&[key, "coordination"], NO_LOCK, leave_out(key));
            }
        } else if self.failover && unstoppable {
            found.warn(
                &["unstoppable"],
                "the lock of the replica stands above it in failover mode, and that one aborts the process",
                "leave unstoppable out, or write worker.mode = \"shared\"",
            );
        }
        if everywhere && self.failover {
            found.warn(
                &["coordination"],
                "in failover mode the active replica alone runs it, and the others do not",
                "write worker.mode = \"shared\" if each replica is to run it, else leave coordination out",
            );
        }
        let a_lock_of_its_own =
            matches!(spec.coordination, Coordination::Leader | Coordination::Tick);
        if spec.priority != default.priority && !a_lock_of_its_own {
            found.warn(
                &["priority", "coordination"],
                "it has no effect: its runs wait for no lock node, and begin when they are due",
                leave_out("priority"),
            );
        }
        if spec.definition != default.definition && (!a_lock_of_its_own || self.failover) {
            found.warn(
                &["definition"],
                "it has no effect: only a candidate for a lock of the job's own can stand back from it",
                "leave definition out",
            );
        }
    }

    fn terms(&self, found: &mut Findings) {
        let (spec, default) = (self.spec, &self.default);
        if self.has_terms {
            return;
        }
        let why = match spec.coordination {
            Coordination::Tick => {
                "it has no effect: with coordination = \"tick\" no replica leads for longer than a tick's work takes"
            }
            _ => "it has no effect: this job has no sole leader that another replica could follow",
        };
        let set = [
            ("min_term", spec.min_term != default.min_term),
            ("max_term", spec.max_term != default.max_term),
        ];
        for key in those_set(set) {
            found.warn(&[key], why, leave_out(key));
        }
    }

    fn attempts(&self, found: &mut Findings) {
        let (retry, default) = (&self.spec.retry, &self.default.retry);
        if self.spec.coordination == Coordination::Batch {
            if retry.attempts != default.attempts {
                found.warn(
                    &["retry.attempts", "retry"],
                    "it has no effect: a batch that fails is tried again until it is done",
                    "leave retry.attempts out; some kinds count attempts at each item by a parameter of their own",
                );
            }
            if self.spec.interrupted != Interrupted::Rerun {
                found.warn(
                    &["interrupted"],
                    "it has no effect: a batch whose replica died is claimed by another one",
                    leave_out("interrupted"),
                );
            }
            return;
        }
        let set = [
            ("retry.backoff", retry.backoff != default.backoff),
            (
                "retry.max_backoff",
                retry.max_backoff != default.max_backoff,
            ),
        ];
        if retry.attempts == 1 {
            for key in those_set(set) {
                let why = "it has no effect: with one attempt there is no pause before another";
                let remedy = format!("leave {key} out, or raise retry.attempts");
                found.warn(&[key, "retry"], why, remedy);
            }
        }
    }

    fn progress(&self, work: Option<WorkFacts>, found: &mut Findings) {
        let spec = self.spec;
        let Some(limit) = spec.progress_deadline.filter(|limit| !limit.is_zero()) else {
            return;
        };
        if let Some(kind) = spec.kind.as_deref()
            && work.is_some_and(|work| work.tells_nothing)
        {
            let message = format!(
                "jobs of the kind \"{kind}\" tell no progress: every run that takes longer is stopped, and goes elsewhere"
            );
            let remedy = "write timeout instead";
            found.warn(&["progress_deadline", "kind"], message, remedy);
        } else if let Some(timeout) = spec.timeout.filter(|timeout| *timeout <= limit) {
            let message = format!(
                "it has no effect: a run is over after its timeout ({}), before it can say nothing for {}",
                Span(timeout),
                Span(limit)
            );
            found.warn(
                &["progress_deadline", "timeout"],
                message,
                "lower progress_deadline or raise timeout",
            );
        }
    }

    /// Rules for late ticks that the other rules never ask. A queue asks them for what fell due behind a dead run, whatever
    /// `misfire` says.
    fn late(&self, found: &mut Findings) {
        let (spec, default) = (self.spec, &self.default);
        if spec.overlap == Overlap::Queue {
            return;
        }
        let limited = spec.misfire_limit != default.misfire_limit && spec.misfire_limit > 0;
        if limited && spec.misfire != Misfire::All {
            let which = match spec.misfire {
                Misfire::Skip => "with misfire = \"skip\" no late tick runs",
                _ => "with misfire = \"once\" one tick runs for all late ones",
            };
            found.warn(
                &["misfire_limit", "misfire"],
                format!("it has no effect: {which}"),
                "leave misfire_limit out, or write misfire = \"all\"",
            );
        }
        if spec.misfire_window.is_some() && spec.misfire == Misfire::Skip {
            found.warn(
                &["misfire_window", "misfire"],
                "it has no effect: with misfire = \"skip\" no late tick runs",
                "leave misfire_window out, or write misfire = \"once\" or \"all\"",
            );
        }
    }

    /// Keys that say how expressions are read, beside expressions that are not read so.
    fn calendar(&self, found: &mut Findings) {
        let spec = self.spec;
        let written = spec.schedule.iter().flat_map(|s| s.as_slice());
        let expressions = || written.clone().map(|expression| expression.trim());
        let fields = |expression: &str| !expression.starts_with('@') && !is_instant(expression);
        if spec.dialect.is_some() && !expressions().any(fields) {
            found.warn(
                &["dialect", "schedule"],
                "it has no effect: no weekday is given by its number here",
                leave_out("dialect"),
            );
        }
        let by_days = spec.starting.is_some() || spec.until.is_some() || !spec.except.is_empty();
        let plain = expressions().all(|expression| expression.starts_with("@every"));
        if spec.zone != self.default.zone && plain && !by_days {
            found.warn(
                &["zone", "schedule"],
                "it moves no tick: \"@every\" counts from 1970 in UTC",
                "leave zone out, or write fields such as \"0 8 * * *\" for a time of day",
            );
        }
    }

    /// Keys about ticks of a job that has none.
    fn without_ticks(&self, schedule: &Schedule, found: &mut Findings) {
        let (spec, default) = (self.spec, &self.default);
        let set = [
            ("dialect", spec.dialect.is_some()),
            ("zone", spec.zone != default.zone),
            ("starting", spec.starting.is_some()),
            ("until", spec.until.is_some()),
            ("except", !spec.except.is_empty()),
            ("jitter", spec.jitter.is_some()),
            ("misfire", spec.misfire != default.misfire),
            ("misfire_limit", spec.misfire_limit != default.misfire_limit),
            ("misfire_window", spec.misfire_window.is_some()),
        ];
        for key in those_set(set) {
            let why = format!("it has no effect: {schedule} has no ticks");
            found.warn(&[key], why, leave_out(key));
        }
    }
}

// === helpers ===

fn those_set<const N: usize>(
    keys: [(&'static str, bool); N],
) -> impl Iterator<Item = &'static str> {
    keys.into_iter().filter(|(_, set)| *set).map(|(key, _)| key)
}

fn leave_out(key: &str) -> String {
    format!("leave {key} out")
}

/// `at TIME`
fn is_instant(expression: &str) -> bool {
    expression.split_whitespace().next() == Some("at")
}
