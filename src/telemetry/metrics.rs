//! The numbers of one replica, for Prometheus.
//!
//! # Invariants
//! - M1 Labels are bounded: jobs, lock families, nodes and fixed words; never a run, a batch or an error text.
//! - M2 What a replica leads is asked at the moment of the scrape when a source of terms is given, so missed events
//!   do not leave a dead term on the page.          (a_scrape_asks_who_leads)
//! - M3 Both text formats show the same samples.    (both_formats_show_the_same_samples)
#![cfg_attr(
    not(feature = "admin"),
    allow(dead_code, reason = "the page alone shows them")
)]

use std::{
    collections::BTreeSet,
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use jiff::Timestamp;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::families::Families;
use super::Seen;
use crate::{
    clock::Clock,
    event::{Event, Events},
    lease::Loss,
    node::Token,
    spawn::Spawn,
};

mod exposition;
mod families;
mod histogram;
mod process;
#[cfg(test)]
mod tests;

pub(crate) use exposition::Exposition;

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

/// What is asked at every scrape; nothing until somewhere to ask is known.
struct Asked<T>(RwLock<Option<Ask<T>>>);

type Ask<T> = Box<dyn Fn() -> Vec<T> + Send + Sync>;

struct Inner {
    families: Families,
    terms: Asked<HeldTerm>,
    /// Jobs, and how long the next tick that this replica knew of has passed without a decision; zero when it has not.
    overdue: Asked<(String, Duration)>,
    /// Jobs, and whether they are paused.
    paused: Asked<(String, bool)>,
    /// Jobs, and how far their ticks are decided ahead of the clock.
    ahead: Asked<(String, Duration)>,
    /// Jobs that have a `watchkeeper_leader` sample.
    jobs: Mutex<BTreeSet<String>>,
}

// === impl Metrics ===

impl Metrics {
    /// A registry of its own, for a program of this `version`.
    #[must_use]
    pub(crate) fn new(version: &str) -> Self {
        Self(Arc::new(Inner {
            families: Families::new(version),
            terms: Asked::default(),
            overdue: Asked::default(),
            paused: Asked::default(),
            ahead: Asked::default(),
            jobs: Mutex::new(BTreeSet::new()),
        }))
    }

    /// Asks `terms` at every scrape for what this replica leads; it must answer at once.
    pub(crate) fn terms_from(&self, terms: impl Fn() -> Vec<HeldTerm> + Send + Sync + 'static) {
        self.0.terms.of(terms);
    }

    /// Asks `overdue` at every scrape for the jobs whose ticks are this replica's business, and how long the next tick that it
    /// knew of has passed without a decision, zero when it has not. It must answer at once.
    pub(crate) fn overdue_from(
        &self,
        overdue: impl Fn() -> Vec<(String, Duration)> + Send + Sync + 'static,
    ) {
        self.0.overdue.of(overdue);
    }

    /// Asks `paused` at every scrape for this replica's jobs, and whether it knows them to be paused. It must answer at once.
    pub(crate) fn paused_from(
        &self,
        paused: impl Fn() -> Vec<(String, bool)> + Send + Sync + 'static,
    ) {
        self.0.paused.of(paused);
    }

    /// Shows a lock node from now on, unless an event has told of it already.
    pub(crate) fn declare_node(&self, node: &str, up: bool) {
        self.0.families.declare_node(node, up);
    }

    /// Asks `ahead` at every scrape for the jobs whose ticks are decided further than the clock shows, and by how much. It must
    /// answer at once.
    pub(crate) fn ahead_from(
        &self,
        ahead: impl Fn() -> Vec<(String, Duration)> + Send + Sync + 'static,
    ) {
        self.0.ahead.of(ahead);
    }

    /// Shows a job from now on, with zeros: a series that begins at its first failure hides that failure from
    /// `rate()`. Those of its lock (job names are also the `resource` of their locks) begin with the first attempt at it
    /// and the first extension: a job that others lead has few.
    pub(crate) fn declare_job(&self, job: &str, has_leader: bool) {
        if has_leader && self.jobs().insert(job.to_owned()) {
            self.0.families.leader(job, false);
        }
        self.0.families.declare(job);
    }

    /// Shows that the job, which has ticks, has never succeeded here: as a success at the beginning of Unix time.
    pub(crate) fn expect_success(&self, job: &str) {
        self.0.families.expect_success(job);
    }

    /// Counts one event that happened at `wall`.
    pub(crate) fn on(&self, event: &Event, wall: Timestamp) {
        let f = &self.0.families;
        match event {
            Event::Acquire {
                resource,
                outcome,
                took,
            } => {
                f.waited(resource, outcome, *took);
                // Losing to another replica is an ordinary value, not a failure.
                if !matches!(*outcome, "acquired" | "held") {
                    f.failed(resource, "acquire", outcome);
                }
            }
            Event::Renewed {
                resource, took, ok, ..
            } => {
                f.renewed(resource, *took);
                if !ok {
                    f.failed(resource, "renew", "no_quorum");
                }
            }
            Event::LeaseEnded {
                resource,
                loss,
                held,
            } => {
                f.held(resource, *held);
                if matches!(loss, Loss::Expired | Loss::Taken) {
                    f.failed(resource, "renew", loss_word(loss));
                }
            }
            Event::NodeUp { node, up, .. } => f.node_up(node, *up),
            Event::Leading {
                job,
                token,
                leaderless,
            } => {
                self.jobs().insert(job.clone());
                f.leader(job, true);
                f.token(job, *token);
                f.changed(job, "elected");
                if let Some(gap) = leaderless {
                    f.leaderless(job, *gap);
                }
            }
            Event::StandingBy { job, why } => {
                self.jobs().insert(job.clone());
                f.leader(job, false);
                f.changed(job, loss_word(why));
            }
            Event::RunStarted { job, delay, .. } => f.run_started(job, *delay),
            Event::RunEnded {
                job, outcome, took, ..
            } => f.run_ended(job, outcome, *took, wall),
            Event::TicksSkipped {
                job, why, count, ..
            } => f.ticks_skipped(job, why, *count),
            Event::BatchEnded {
                job, outcome, took, ..
            } => f.batch_ended(job, outcome, *took),
            Event::Items {
                job,
                outcome,
                count,
            } => f.items(job, outcome, *count),
            Event::EngineDied { job, .. } => f.engine_died(job),
            Event::Backlog { job, items } => f.backlog(job, *items),
            Event::HeldItems {
                job,
                retry,
                dead,
                in_doubt,
                parked,
            } => {
                let states = [
                    ("retry", retry),
                    ("dead", dead),
                    ("in_doubt", in_doubt),
                    ("parked", parked),
                ];
                for (state, items) in states {
                    f.held_items(job, state, *items);
                }
            }
            Event::Definitions { job, count } => f.definitions(job, *count),
            Event::Reloaded { ok, at } => f.reloaded(*ok, *at),
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
            Seen::Missed(count) => metrics.0.families.missed(count),
        }))
    }

    /// Everything, as text.
    #[must_use]
    pub(crate) fn render(&self, exposition: Exposition) -> String {
        let Inner { families, .. } = &*self.0;
        self.ask_terms();
        self.0.overdue.ask(|jobs| families.overdue(jobs));
        self.0.ahead.ask(|jobs| families.ahead(jobs));
        self.0.paused.ask(|jobs| families.paused(jobs));
        exposition.render(&families.registry)
    }

    fn ask_terms(&self) {
        self.0.terms.ask(|held| {
            let mut jobs = self.jobs();
            jobs.extend(held.iter().map(|term| term.job.clone()));
            for job in jobs.iter() {
                let term = held.iter().find(|term| &term.job == job);
                self.0.families.leader(job, term.is_some());
                self.0.families.remaining(job, term.map(|t| t.remaining));
                self.0.families.margin(job, term.map(|t| t.margin));
                if let Some(term) = term {
                    self.0.families.token(job, term.token);
                }
            }
        });
    }

    fn jobs(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Asked ===

impl<T> Asked<T> {
    fn of(&self, ask: impl Fn() -> Vec<T> + Send + Sync + 'static) {
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
