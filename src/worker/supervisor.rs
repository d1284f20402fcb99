//! The engines of a replica, one per job, and how they change when the configuration is read again.
//!
//! # Invariants
//! - What a reload does not change does not hear of it.   (a_reload_leaves_alone_what_it_does_not_change)
//! - Of one job there is one engine at a time in this replica: what replaces another one begins when that has ended.
//!   (a_reload_leaves_alone_what_it_does_not_change)
//! - An engine that dies of a panic of its own begins again after a pause, and the others hear nothing of it.
//!   (an_engine_that_dies_begins_again_after_a_growing_pause)
//! - What was handed over is remembered for the jobs that stay.   (a_reload_forgets_nothing_of_the_jobs_that_stay)

use std::{collections::BTreeMap, time::Duration};

use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use jiff::Timestamp;
use tokio::{
    sync::mpsc,
    task::{JoinError, JoinHandle},
};

use super::{
    ready::Body,
    ready::{Ready, min_terms, presence_of, run_job},
};
use crate::{
    clock::Moment,
    event::Event,
    panics::{bury, message},
    run::Gate,
    scheduler::{Context, Definition, HandoverLog, NextDefinition, balance},
    status::JobStanding,
};

/// What a reload asks of a replica, all of it checked.
#[derive(Default)]
pub(crate) struct JobChanges {
    /// Jobs that are new, or have a new definition.
    pub(crate) begin: Vec<Ready>,
    /// Names of jobs that are no more.
    pub(crate) end: Vec<String>,
}

/// Where changes come in.
pub(crate) type Changes = mpsc::Receiver<JobChanges>;

/// The engines of one replica.
pub(crate) struct Supervisor {
    ctx: Context,
    /// Boxed: a map has room for more than it holds.
    slots: BTreeMap<String, Box<Slot>>,
    running: FuturesUnordered<BoxFuture<'static, (String, Result<(), JoinError>)>>,
    /// Pauses after deaths: the job, and which of its deaths.
    pauses: FuturesUnordered<BoxFuture<'static, (String, u32)>>,
    /// Looks at the others and hands terms over.
    looks: JoinHandle<()>,
    /// What it has handed over. A reload changes which engine looks, and not what is known.
    given: HandoverLog,
}

/// One engine.
struct Slot {
    /// The definition it has, or will have next.
    ready: Ready,
    /// When that was loaded, by the fleet's clock: an engine that begins again loads nothing.
    loaded: Timestamp,
    next_definition: NextDefinition,
    gate: Gate,
    /// Whether there is an engine: not where this replica is no candidate.
    works: bool,
    next: Next,
    death: Option<Death>,
}

/// That an engine has died here, of a panic that was not caught.
#[derive(Clone, Debug)]
struct Death {
    /// How many there were in a row.
    count: u32,
    /// Between the last one and the next beginning, and how long the engine must live then to count as well.
    pause: Duration,
    at: Moment,
    /// What the panic said.
    why: String,
}

/// The pause after the first death and the longest one.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// What becomes of a slot when its engine has ended.
enum Next {
    /// That is a defect, or the worker drains.
    Nothing,
    /// The job is no more.
    Go,
    /// Another engine.
    Begin(Box<Ready>),
}

// === impl Supervisor ===

impl Supervisor {
    pub(crate) fn begin(ctx: Context, jobs: Vec<Ready>) -> Self {
        let looks = ctx.spawn.spawn(std::future::ready(()));
        let mut supervisor = Self {
            ctx,
            slots: BTreeMap::new(),
            running: FuturesUnordered::new(),
            pauses: FuturesUnordered::new(),
            looks,
            given: HandoverLog::default(),
        };
        for job in jobs.into_iter().filter(|job| job.spec.enabled) {
            supervisor.fill(job);
        }
        supervisor.look();
        supervisor
    }

    /// Makes changes as they come, until the worker drains and every engine has ended.
    pub(crate) async fn work(mut self, mut incoming: Changes) {
        let drain = self.ctx.gate.drain().clone();
        loop {
            tokio::select! {
                biased;
                () = drain.cancelled() => break,
                Some(changes) = incoming.recv() => self.change_jobs(changes),
                Some((name, ended)) = self.running.next(), if !self.running.is_empty() => {
                    let mut again = self.ended(&name, ended);
                    // What has ended with it is looked at together: a reload may have changed ten thousand.
                    while let Some(Some((name, ended))) = self.running.next().now_or_never() {
                        again |= self.ended(&name, ended);
                    }
                    if again {
                        self.look();
                    }
                }
                Some((name, death)) = self.pauses.next(), if !self.pauses.is_empty() => {
                    self.pause_over(&name, death);
                }
            }
        }
        // A panicking engine is a defect; the others still wind down.
        while let Some((name, ended)) = self.running.next().await {
            if let Err(error) = ended {
                tracing::error!(job = name, why = why(error), "a job's engine has died");
            }
        }
        self.looks.abort();
    }

    fn change_jobs(&mut self, changes: JobChanges) {
        for name in changes.end {
            if let Some(slot) = self.slots.get_mut(&name) {
                slot.next = Next::Go;
                slot.gate.drain().cancel();
                if !slot.works {
                    self.forget(&name);
                }
            }
        }
        for job in changes.begin {
            self.change(job);
        }
        self.look();
    }

    fn change(&mut self, job: Ready) {
        let Some(slot) = self.slots.get_mut(&job.name) else {
            return self.fill(job);
        };
        if !slot.works {
            // Also where it waits after its death: the new one may live.
            bury(self.slots.remove(&job.name));
            self.ctx.local_status.engine_died(&job.name, None);
            return self.fill(job);
        }
        if slot.gate.drain().is_cancelled() {
            // It is on its way out already: the latest word counts.
            bury(std::mem::replace(
                &mut slot.next,
                Next::Begin(Box::new(job)),
            ));
            return;
        }
        let loaded = self.ctx.locks.wall();
        let mut presence = presence_of(&job);
        presence.loaded = Some(loaded);
        // The others are to know at once, also while a run goes on under the old one.
        self.ctx.local_status.redefine(presence);
        match definition(&slot.ready, &job, loaded) {
            Some(next) => {
                slot.next_definition.put(next);
                slot.loaded = loaded;
                bury(std::mem::replace(&mut slot.ready, job));
            }
            None => {
                slot.next = Next::Begin(Box::new(job));
                slot.gate.drain().cancel();
            }
        }
    }

    fn fill(&mut self, job: Ready) {
        let loaded = self.ctx.locks.wall();
        self.fill_after(job, loaded, None);
    }

    fn fill_after(&mut self, job: Ready, loaded: Timestamp, death: Option<Death>) {
        let mut presence = presence_of(&job);
        presence.loaded = Some(loaded);
        let peers = &self.ctx.peers;
        // Its jobs are the others'; what needs no leader runs here, too.
        let works = peers.candidate || !(peers.failover || job.is_led());
        if !works {
            presence.standing = JobStanding::Off;
        }
        self.ctx.local_status.add_job(presence);
        let (name, next_definition) = (job.name.clone(), NextDefinition::default());
        let gate = self.ctx.gate.of_job();
        if works {
            let ctx = self.ctx.behind(gate.clone());
            let engine = run_job(job.clone(), ctx, next_definition.clone(), loaded);
            let engine = self.ctx.spawn.spawn(engine);
            let of = name.clone();
            self.running.push(async move { (of, engine.await) }.boxed());
        }
        let slot = Box::new(Slot {
            ready: job,
            loaded,
            next_definition,
            gate,
            works,
            next: Next::Nothing,
            death,
        });
        self.slots.insert(name, slot);
    }

    /// Whether the job goes on here with another engine, so that the others are to be looked at anew.
    fn ended(&mut self, name: &str, ended: Result<(), JoinError>) -> bool {
        let Some(mut slot) = self.slots.remove(name) else {
            return false;
        };
        match (std::mem::replace(&mut slot.next, Next::Nothing), ended) {
            (Next::Nothing, Ok(())) => bury(slot),
            (Next::Nothing, Err(error)) => self.died(name, slot, &why(error)),
            (Next::Go, _) => {
                bury(slot);
                self.forget(name);
                tracing::info!(job = name, "the job has left this replica");
            }
            (Next::Begin(job), _) => {
                bury(slot);
                self.ctx.local_status.engine_died(name, None);
                self.fill(*job);
                return true;
            }
        }
        false
    }

    /// An engine is to begin again after a pause: what has killed it may be over by then.
    fn died(&mut self, name: &str, mut slot: Box<Slot>, why: &str) {
        let now = self.ctx.clock.now();
        let death = Death::after(slot.death.as_ref(), now, why);
        let (count, pause) = (death.count, death.pause);
        tracing::error!(
            job = name,
            why,
            deaths = count,
            again_in_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
            "a job's engine has died: it begins again"
        );
        self.ctx.events.tell(Event::EngineDied {
            job: name.to_owned(),
            why: why.to_owned(),
            pause,
        });
        // It is not to be handed a term.
        self.ctx.local_status.stands(name, JobStanding::Off);
        self.ctx
            .local_status
            .engine_died(name, Some(why.to_owned()));
        (slot.works, slot.death) = (false, Some(death));
        self.slots.insert(name.to_owned(), slot);
        self.pause(name, count, pause);
    }

    fn pause(&mut self, name: &str, death: u32, pause: Duration) {
        let (clock, name) = (self.ctx.clock.clone(), name.to_owned());
        let paused = async move {
            clock.sleep(pause).await;
            (name, death)
        };
        self.pauses.push(paused.boxed());
    }

    /// The engine begins again; or, when it has lived for as long, all is well.
    fn pause_over(&mut self, name: &str, count: u32) {
        let known = self.slots.get(name).and_then(|slot| slot.death.as_ref());
        let Some(death) = known.filter(|death| death.count == count).cloned() else {
            // Of an engine that is no more.
            return;
        };
        let Some(slot) = self.slots.get(name) else {
            return;
        };
        if slot.works {
            self.ctx.local_status.engine_died(name, None);
            return;
        }
        let (ready, loaded) = (slot.ready.clone(), slot.loaded);
        let (pause, why) = (death.pause, death.why.clone());
        bury(self.slots.remove(name));
        self.fill_after(ready, loaded, Some(death));
        self.look();
        // It tells that it has died until it has lived for a while.
        self.ctx.local_status.engine_died(name, Some(why));
        self.pause(name, count, pause);
    }

    fn forget(&mut self, name: &str) {
        bury(self.slots.remove(name));
        self.given.forget_job(name);
        self.ctx.local_status.forget(name);
        self.ctx.recall.forget(name);
        self.ctx.told_unfit.forget(name);
    }

    /// Looks at the others anew, for the jobs of now.
    fn look(&mut self) {
        self.looks.abort();
        let jobs = self.slots.values().map(|slot| &slot.ready);
        let bids = jobs.clone().any(Ready::is_led);
        let looks = balance(self.ctx.clone(), min_terms(jobs), bids, self.given.clone());
        self.looks = self.ctx.spawn.spawn(looks);
    }
}

/// The next definition of an engine that goes on; nothing when the job needs another engine.
fn definition(was: &Ready, next: &Ready, loaded: Timestamp) -> Option<Definition> {
    let (Body::Job(_), Body::Job(job)) = (&was.body, &next.body) else {
        return None;
    };
    (was.spec.coordination == next.spec.coordination).then(|| Definition {
        job: job.clone(),
        spec: next.spec.clone(),
        schedule: next.schedule.clone(),
        policy: next.policy.clone(),
        loaded,
    })
}

// === impl Death ===

impl Death {
    /// The next one: the pause doubles while engines die soon after they began, and begins anew when one has lived for long.
    fn after(last: Option<&Self>, at: Moment, why: &str) -> Self {
        let soon = |last: &&Self| at.since(last.at) < last.pause + PAUSE.1 * 2;
        let pause = last
            .filter(soon)
            .map_or(PAUSE.0, |last| (last.pause * 2).min(PAUSE.1));
        Self {
            count: last.map_or(0, |last| last.count).saturating_add(1),
            pause,
            at,
            why: why.to_owned(),
        }
    }
}

/// What has killed a task.
fn why(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => message(&*panic),
        Err(error) => error.to_string(),
    }
}

/// Where no change ever comes in.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn no_changes() -> Changes {
    mpsc::channel(1).1
}

/// How long a reload waits until the replica takes its changes.
pub(super) const TAKEN: Duration = Duration::from_secs(5);
