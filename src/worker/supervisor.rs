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
    registry::Body,
    replica::{Ready, min_terms, presence_of, run_job},
};
use crate::{
    clock::Moment,
    event::Event,
    panics::{bury, message},
    scheduler::{Context, Definition, Gate, Given, Successor, balance},
    status::Standing,
};

/// What a reload asks of a replica, all of it checked.
#[derive(Default)]
pub(crate) struct Orders {
    /// Jobs that are new, or have a new definition.
    pub(crate) begin: Vec<Ready>,
    /// Names of jobs that are no more.
    pub(crate) end: Vec<String>,
}

/// The place where orders come in.
pub(crate) type Desk = mpsc::Receiver<Orders>;

/// The engines of one replica.
pub(crate) struct Crew {
    ctx: Context,
    /// Boxed: a map has room for more than it holds.
    posts: BTreeMap<String, Box<Post>>,
    running: FuturesUnordered<BoxFuture<'static, (String, Result<(), JoinError>)>>,
    /// Pauses after deaths: the job, and which of its deaths.
    pauses: FuturesUnordered<BoxFuture<'static, (String, u32)>>,
    /// Looks at the others and hands terms over.
    looks: JoinHandle<()>,
    /// What it has handed over. A reload changes who looks, and not what is known.
    given: Given,
}

/// One engine.
struct Post {
    /// The definition it has, or will have next.
    ready: Ready,
    successor: Successor,
    gate: Gate,
    /// Whether there is an engine: not where this replica is no candidate.
    works: bool,
    next: Next,
    death: Option<Death>,
}

/// That an engine has died here, of a panic that nobody caught.
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

/// What becomes of a post when its engine has ended.
enum Next {
    /// That is a defect, or the worker drains.
    Nothing,
    /// The job is no more.
    Go,
    /// Another engine.
    Begin(Box<Ready>),
}

// === impl Crew ===

impl Crew {
    pub(crate) fn begin(ctx: Context, jobs: Vec<Ready>) -> Self {
        let looks = ctx.spawn.spawn(std::future::ready(()));
        let mut crew = Self {
            ctx,
            posts: BTreeMap::new(),
            running: FuturesUnordered::new(),
            pauses: FuturesUnordered::new(),
            looks,
            given: Given::default(),
        };
        for job in jobs.into_iter().filter(|job| job.spec.enabled) {
            crew.post(job);
        }
        crew.look();
        crew
    }

    /// Follows orders until the worker drains and every engine has ended.
    pub(crate) async fn work(mut self, mut desk: Desk) {
        let drain = self.ctx.gate.drain().clone();
        loop {
            tokio::select! {
                biased;
                () = drain.cancelled() => break,
                Some(orders) = desk.recv() => self.follow(orders),
                Some((name, ended)) = self.running.next(), if !self.running.is_empty() => {
                    self.ended(&name, ended);
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

    fn follow(&mut self, orders: Orders) {
        for name in orders.end {
            if let Some(post) = self.posts.get_mut(&name) {
                post.next = Next::Go;
                post.gate.drain().cancel();
                if !post.works {
                    self.forget(&name);
                }
            }
        }
        for job in orders.begin {
            self.change(job);
        }
        self.look();
    }

    fn change(&mut self, job: Ready) {
        let Some(post) = self.posts.get_mut(&job.name) else {
            return self.post(job);
        };
        if !post.works {
            // Also where it waits after its death: the new one may live.
            bury(self.posts.remove(&job.name));
            self.ctx.board.engine_died(&job.name, None);
            return self.post(job);
        }
        if post.gate.drain().is_cancelled() {
            // It is on its way out already: the latest word counts.
            bury(std::mem::replace(
                &mut post.next,
                Next::Begin(Box::new(job)),
            ));
            return;
        }
        let loaded = self.ctx.locks.wall();
        let mut presence = presence_of(&job);
        presence.loaded = Some(loaded);
        // The others are to know at once, also while a run goes on under the old one.
        self.ctx.board.redefine(presence);
        match definition(&post.ready, &job, loaded) {
            Some(next) => {
                post.successor.put(next);
                bury(std::mem::replace(&mut post.ready, job));
            }
            None => {
                post.next = Next::Begin(Box::new(job));
                post.gate.drain().cancel();
            }
        }
    }

    fn post(&mut self, job: Ready) {
        self.post_after(job, None);
    }

    fn post_after(&mut self, job: Ready, death: Option<Death>) {
        let loaded = self.ctx.locks.wall();
        let mut presence = presence_of(&job);
        presence.loaded = Some(loaded);
        let place = &self.ctx.place;
        // Its jobs are the others'; what needs no leader runs here, too.
        let works = place.candidate || !(place.failover || job.is_led());
        if !works {
            presence.standing = Standing::Off;
        }
        self.ctx.board.add_job(presence);
        let (name, successor) = (job.name.clone(), Successor::default());
        let gate = self.ctx.gate.of_job();
        if works {
            let ctx = Context {
                gate: gate.clone(),
                ..self.ctx.clone()
            };
            let engine = run_job(job.clone(), ctx, successor.clone(), loaded);
            let engine = self.ctx.spawn.spawn(engine);
            let of = name.clone();
            self.running.push(async move { (of, engine.await) }.boxed());
        }
        let post = Box::new(Post {
            ready: job,
            successor,
            gate,
            works,
            next: Next::Nothing,
            death,
        });
        self.posts.insert(name, post);
    }

    fn ended(&mut self, name: &str, ended: Result<(), JoinError>) {
        let Some(mut post) = self.posts.remove(name) else {
            return;
        };
        match (std::mem::replace(&mut post.next, Next::Nothing), ended) {
            (Next::Nothing, Ok(())) => bury(post),
            (Next::Nothing, Err(error)) => self.died(name, post, &why(error)),
            (Next::Go, _) => {
                bury(post);
                self.forget(name);
                tracing::info!(job = name, "the job has left this replica");
            }
            (Next::Begin(job), _) => {
                bury(post);
                self.ctx.board.engine_died(name, None);
                self.post(*job);
                self.look();
            }
        }
    }

    /// An engine is to begin again after a pause: what has killed it may be over by then.
    fn died(&mut self, name: &str, mut post: Box<Post>, why: &str) {
        let now = self.ctx.clock.now();
        let death = Death::after(post.death.as_ref(), now, why);
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
        // Nobody is to hand it a term.
        self.ctx.board.stands(name, Standing::Off);
        self.ctx.board.engine_died(name, Some(why.to_owned()));
        (post.works, post.death) = (false, Some(death));
        self.posts.insert(name.to_owned(), post);
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
        let known = self.posts.get(name).and_then(|post| post.death.as_ref());
        let Some(death) = known.filter(|death| death.count == count).cloned() else {
            // Of an engine that is no more.
            return;
        };
        let Some(post) = self.posts.get(name) else {
            return;
        };
        if post.works {
            self.ctx.board.engine_died(name, None);
            return;
        }
        let ready = post.ready.clone();
        let (pause, why) = (death.pause, death.why.clone());
        bury(self.posts.remove(name));
        self.post_after(ready, Some(death));
        self.look();
        // It tells that it has died until it has lived for a while.
        self.ctx.board.engine_died(name, Some(why));
        self.pause(name, count, pause);
    }

    fn forget(&mut self, name: &str) {
        bury(self.posts.remove(name));
        self.given.forget_job(name);
        self.ctx.board.forget(name);
        self.ctx.recall.forget(name);
    }

    /// Looks at the others anew, for the jobs of now.
    fn look(&mut self) {
        self.looks.abort();
        let jobs = self.posts.values().map(|post| &post.ready);
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

/// A desk at which nobody ever gives an order.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn closed_desk() -> Desk {
    mpsc::channel(1).1
}

/// How long a reload waits until the replica takes its orders.
pub(super) const TAKEN: Duration = Duration::from_secs(5);
