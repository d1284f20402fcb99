//! A job that is ready to run: its work, its spec and what follows from it, and the engine that runs it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use jiff::Timestamp;

use crate::{
    batch::{BatchJob, engine::BatchEngine},
    due::Policy,
    job::{Coordination, Job, Spec, shard::names_of},
    schedule::{Schedule, ScheduleError},
    scheduler::{Context, Engine, NextDefinition, Vacancy},
    status::{JobPresence, JobStanding},
};

/// What runs: one run per tick, or batches.
#[derive(Clone)]
pub(crate) enum Body {
    /// A job.
    Job(Arc<dyn Job>),
    /// A batch job.
    Batch(Arc<dyn BatchJob>),
}

/// A job, ready to run. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Ready {
    pub(crate) name: String,
    pub(crate) body: Body,
    pub(crate) spec: Arc<Spec>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) policy: Policy,
}

// === impl Body ===

impl Body {
    pub(crate) fn is_batch(&self) -> bool {
        matches!(self, Self::Batch(_))
    }
}

// === impl Ready ===

impl Ready {
    /// A configured job, or all its shards: they share its work and its definition.
    pub(crate) fn all(
        name: &str,
        body: Body,
        spec: &Arc<Spec>,
    ) -> Result<Vec<Self>, ScheduleError> {
        let written = spec.parse_schedule()?;
        let jitter = spec.jitter.unwrap_or_default();
        let own = written.depends_on_name() || !jitter.is_zero();
        let shared = Arc::new(written);
        let ready = |name: String| Self {
            body: body.clone(),
            schedule: match own {
                true => Arc::new(Schedule::clone(&shared).of_job(&name, jitter)),
                false => shared.clone(),
            },
            policy: spec.policy(),
            spec: spec.clone(),
            name,
        };
        Ok(names_of(name, spec).into_iter().map(ready).collect())
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn new(name: &str, body: Body, spec: Arc<Spec>) -> Result<Self, ScheduleError> {
        Ok(Self {
            name: name.to_owned(),
            body,
            schedule: Arc::new(spec.schedule_of(name)?),
            policy: spec.policy(),
            spec,
        })
    }

    /// Whether one replica leads it.
    pub(super) fn is_led(&self) -> bool {
        matches!(self.body, Body::Job(_)) && self.spec.coordination != Coordination::Everywhere
    }
}

/// The engine of one job. It stands in one place and is borrowed from there: moved into a task, each of its stages would
/// have room for another one.
pub(super) fn run_job(
    job: Ready,
    ctx: Context,
    next_definition: NextDefinition,
    loaded: Timestamp,
) -> BoxFuture<'static, ()> {
    let Ready {
        name,
        body,
        spec,
        schedule,
        policy,
    } = job;
    let job = match body {
        Body::Batch(job) => {
            let engine = BatchEngine {
                name,
                job,
                spec,
                ctx,
            };
            return Box::pin(engine.run());
        }
        Body::Job(job) => job,
    };
    let print = spec.fingerprint();
    let coordination = spec.coordination;
    let mut engine = Box::new(Engine {
        name,
        job,
        spec,
        schedule,
        policy,
        print,
        loaded,
        next_definition,
        ahead: std::sync::Mutex::default(),
        vacancy: Vacancy::default(),
        ctx,
    });
    match coordination {
        Coordination::Everywhere => Box::pin(async move { engine.run_everywhere().await }),
        Coordination::Tick => Box::pin(async move { engine.run_by_tick().await }),
        Coordination::Leader | Coordination::Batch => {
            Box::pin(async move { engine.run_led().await })
        }
    }
}

pub(super) fn min_terms<'a>(jobs: impl Iterator<Item = &'a Ready>) -> BTreeMap<String, Duration> {
    // A lock that is taken for a tick is given back before it could be handed over.
    let led = jobs.filter(|job| job.is_led() && job.spec.coordination != Coordination::Tick);
    led.map(|job| (job.name.clone(), job.spec.min_term))
        .collect()
}

pub(super) fn presence_of(job: &Ready) -> JobPresence {
    JobPresence {
        name: job.name.clone(),
        coordination: job.spec.coordination.to_string(),
        schedule: job.schedule.to_string(),
        zone: job.schedule.zone().map(str::to_owned),
        definition: job.spec.fingerprint().whole,
        standing: JobStanding::Standby,
        ..JobPresence::default()
    }
}
