//! Asks the jobs that this replica leads whether it is fit for them: one timer for all, a short task for some dozens of questions,
//! and one for each job that does not answer at once.
//!
//! # Invariants
//! - H1 A job is asked again and again while it is led, and the same time after each answer.
//!   (a_led_job_is_asked_as_often_as_it_is_to_be)
//! - H2 A check that panics or does not answer makes its job unfit here, and delays no other.
//!   (a_check_that_does_not_answer_delays_no_other)
//! - H3 What is led no more is not asked, and an answer that comes too late says nothing.
//!   (what_is_led_no_more_is_not_asked)

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use tokio::{sync::Notify, task::AbortHandle};

use crate::{
    clock::{Clock, Moment},
    event::{Event, Events},
    job::{Health, Job},
    lease::LeaseView,
    panics::{bury, caught_later},
    spawn::Spawn,
};

/// Jobs that are asked in one task. One that blocks its thread, against the rules, delays no more than these.
const ASKED_TOGETHER: usize = 32;

/// What is due within this part of the time between two questions goes along.
const SOON: u32 = 64;

/// The led jobs of a replica, and when each is asked. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct HealthRounds(Arc<Inner>);

#[derive(Default)]
struct Inner {
    rounds: Mutex<Rounds>,
    /// One of them is due sooner than all that were known.
    bell: Notify,
}

#[derive(Default)]
struct Rounds {
    last: u64,
    led: BTreeMap<u64, Led>,
    /// Those that have answered.
    due: BTreeSet<(Moment, u64)>,
}

struct Led {
    job: Arc<dyn Job>,
    lease: LeaseView,
    due: Moment,
    /// The question under way.
    asked: Option<AbortHandle>,
}

/// A job is asked as long as this lives.
pub(super) struct Asking {
    health: HealthRounds,
    id: u64,
}

/// The jobs of which it was told that they are unfit here, and not yet that they are fit again. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ToldUnfit(Arc<Mutex<BTreeSet<String>>>);

/// What every question needs.
#[derive(Clone)]
pub(crate) struct Asks {
    pub(crate) clock: Clock,
    pub(crate) spawn: Spawn,
    pub(crate) events: Events,
    pub(crate) told_unfit: ToldUnfit,
    /// From an answer to the next question.
    pub(crate) every: Duration,
}

/// Why a job says that this replica is not fit for it; no answer in time and a panic are answers, too. An answer that could not
/// come because this process was frozen is waited for once more.
pub(super) async fn why_unfit<F>(
    clock: &Clock,
    health: impl FnOnce() -> F + Send,
    within: Duration,
) -> Option<String>
where
    F: Future<Output = Health> + Send,
{
    let mut asked = Box::pin(caught_later(health));
    let began = clock.now();
    // Nearly all answer at once, and need no timer.
    let answer = match (&mut asked).now_or_never() {
        Some(answer) => Ok(answer),
        None => {
            let answer = clock.timeout(within, &mut asked).await;
            let took = clock.now().since(began);
            // A timer that is so late itself has not measured the job.
            match answer.is_err() && took > within + within / 4 {
                true => clock.timeout(within, &mut asked).await,
                false => answer,
            }
        }
    };
    // The engine goes on, whatever becomes of a check that is given up.
    bury(asked);
    match answer {
        Ok(Ok(Health::Fit)) => None,
        Ok(Ok(Health::Unfit(why))) => Some(why),
        Ok(Err(panic)) => Some(format!("the health check panicked: {panic}")),
        Err(_) => Some("the health check does not answer".to_owned()),
    }
}

// === impl HealthRounds ===

impl HealthRounds {
    /// Asks the job from `first` on, as long as this lease is open and the answer lives.
    #[must_use]
    pub(super) fn ask(&self, job: Arc<dyn Job>, lease: LeaseView, first: Moment) -> Asking {
        let mut rounds = self.rounds();
        rounds.last += 1;
        let id = rounds.last;
        let sooner = rounds.next() > first;
        let led = Led {
            job,
            lease,
            due: first,
            asked: None,
        };
        rounds.led.insert(id, led);
        rounds.due.insert((first, id));
        drop(rounds);
        if sooner {
            self.0.bell.notify_one();
        }
        let health = self.clone();
        Asking { health, id }
    }

    /// Asks those that are due, until the task is dropped.
    pub(crate) async fn follow(self, asks: Asks) {
        loop {
            let next = self.rounds().next();
            tokio::select! {
                biased;
                () = self.0.bell.notified() => {}
                () = asks.clock.sleep_until(next) => self.ask_due(&asks),
            }
        }
    }

    fn ask_due(&self, asks: &Asks) {
        let mut rounds = self.rounds();
        let soon = asks.clock.now() + asks.every / SOON;
        let mut due = Vec::new();
        while let Some((at, id)) = rounds.due.first().copied().filter(|(at, _)| *at <= soon) {
            rounds.due.remove(&(at, id));
            due.push(id);
        }
        drop(rounds);
        for some in due.chunks(ASKED_TOGETHER) {
            let asking = self.clone().ask_some(some.to_vec(), asks.clone());
            asks.spawn.spawn(asking);
        }
    }

    /// Asks these jobs. Nearly all answer at once; what does not is waited for in a task of its own.
    async fn ask_some(self, ids: Vec<u64>, asks: Asks) {
        for id in ids {
            let asked = self.rounds().led.get(&id).map(Led::parts);
            let Some((job, lease)) = asked else {
                continue;
            };
            let mut asking = Box::pin(self.clone().ask_once(id, job, lease, asks.clone()));
            if (&mut asking).now_or_never().is_some() {
                continue;
            }
            let led_no_more = {
                // Held until the task is known: it waits for that with its answer.
                let mut rounds = self.rounds();
                match rounds.led.get_mut(&id) {
                    Some(led) => {
                        led.asked = Some(asks.spawn.spawn(asking).abort_handle());
                        None
                    }
                    None => Some(asking),
                }
            };
            bury(led_no_more);
        }
    }

    async fn ask_once(self, id: u64, job: Arc<dyn Job>, lease: LeaseView, asks: Asks) {
        let answer = why_unfit(&asks.clock, || job.health(), lease.ttl() / 2).await;
        self.answered(id, answer, &asks);
    }

    fn answered(&self, id: u64, unfit: Option<String>, asks: &Asks) {
        let mut rounds = self.rounds();
        let Some(led) = rounds.led.get_mut(&id) else {
            return;
        };
        led.asked = None;
        let lease = led.lease.clone();
        let Some(why) = unfit else {
            if lease.is_open() {
                let due = asks.clock.now() + asks.every;
                led.due = due;
                let sooner = rounds.next() > due;
                rounds.due.insert((due, id));
                drop(rounds);
                if sooner {
                    self.0.bell.notify_one();
                }
            }
            return;
        };
        drop(rounds);
        // From here the keeper's ladder leads: nothing new starts, the run is told to stop, then the lease is released.
        lease.cordon(&why);
        let job = lease.key().trim_start_matches("job/").to_owned();
        asks.told_unfit.told(&job, true);
        let unfit = Some(why);
        asks.events.tell(Event::Fitness { job, unfit });
    }

    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        // Every change is complete before the lock is given back.
        self.0.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ToldUnfit ===

impl ToldUnfit {
    /// It was told of a job that it is unfit, or fit again.
    pub(super) fn told(&self, job: &str, unfit: bool) {
        let mut jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match unfit {
            true => _ = jobs.insert(job.to_owned()),
            false => _ = jobs.remove(job),
        }
    }

    /// The job is no more.
    pub(crate) fn forget(&self, job: &str) {
        self.told(job, false);
    }

    /// Whether the last that was told of it is that it is unfit.
    pub(super) fn has(&self, job: &str) -> bool {
        let jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        jobs.contains(job)
    }
}

impl Led {
    fn parts(&self) -> (Arc<dyn Job>, LeaseView) {
        (self.job.clone(), self.lease.clone())
    }
}

impl fmt::Debug for HealthRounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HealthRounds")
    }
}

// === impl Rounds ===

impl Rounds {
    fn next(&self) -> Moment {
        self.due.first().map_or(Moment::NEVER, |(due, _)| *due)
    }
}

// === impl Asking ===

impl Drop for Asking {
    fn drop(&mut self) {
        let mut rounds = self.health.rounds();
        let Some(led) = rounds.led.remove(&self.id) else {
            return;
        };
        rounds.due.remove(&(led.due, self.id));
        drop(rounds);
        if let Some(asked) = &led.asked {
            asked.abort();
        }
        bury(led);
    }
}

#[cfg(test)]
mod tests;
