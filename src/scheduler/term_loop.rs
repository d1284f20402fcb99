//! One term of a job: gather facts, decide, write, act, wait.

use std::time::Duration;

use futures_util::{FutureExt, future::BoxFuture};
use jiff::Timestamp;
use tokio::sync::SemaphorePermit;
use tokio_util::sync::CancellationToken;

use super::{
    Engine,
    acts::Carried,
    ahead, by_tick,
    checkpoints::{CheckpointQueue, Saving},
    limits::LOOK_AT_LEASE,
    notices::NO_PROGRESS,
    resign::Notice,
    rest::{LOOK_AGAIN, News, Until},
    term::{Over, TermEnd, TermLoop},
};
use crate::{
    clock::Moment,
    due::Plan,
    lease::LeaseView,
    ledger::{Ledger, RunKey},
    run::{Ended, InFlight, WindDown},
};

/// So rarely a job at rest decides again that all is as it was. Nothing depends on it.
const LOOK_AT_REST: Duration = Duration::from_secs(60);

/// What has come while a term waited.
enum Woken {
    /// Something may be decided.
    Look,
    /// The run has ended.
    Ended(RunKey, Ended),
    /// A run has left a checkpoint.
    Saving(Box<Saving>),
    /// One of the runs says nothing any more.
    Stuck,
}

impl TermLoop<'_> {
    /// Leads until nothing new may start, then winds down. Each step has its room only while it goes on: a thousand leaders
    /// are nearly always between two of them, at rest.
    pub(super) async fn run(self) -> TermEnd {
        let job = &self.engine.name;
        let mut ledger = match self.store.found() {
            Ok(ledger) => ledger,
            Err(error) => {
                // Writing over it would lose what a newer version knows, and holding the lock would keep out those who can read it.
                tracing::error!(job, %error, "cannot read the ledger: leaving the job to others");
                return TermEnd::Unread;
            }
        };
        if !self.engine.may_lead_after(&ledger) {
            return TermEnd::Outdated;
        }
        let Ok(mut begins) = Box::pin(self.turn_to_begin()).await else {
            return TermEnd::Over;
        };
        let Ok(()) = Box::pin(self.prepare(&mut ledger)).await else {
            return TermEnd::Over;
        };
        // Of the last term, if there was one, until something is decided in this one.
        let next = self.engine.next_tick(&ledger, self.wall());
        let local_status = &self.engine.ctx.local_status;
        local_status.ticks(job, self.engine.last_tick(&ledger), next);
        let mut checkpoints = CheckpointQueue::default();
        let mut in_flight = InFlight::default();
        let mut end = TermEnd::Over;
        let mut term_end = self.term_end();
        let mut notice = Notice::default();
        let mut ready = None;
        while self.is_open() {
            // Before anything is decided by it.
            let news = self.news();
            if self.clock().now() >= term_end {
                if self.engine.ctx.peers.has_standby(job) {
                    end = TermEnd::MaxTerm;
                    break;
                }
                // No candidate to hand over to: the time begins anew, and the work goes on.
                term_end = self.clock().now() + self.engine.spec.max_term;
            }
            self.settle(&mut ready, &mut ledger, &mut in_flight);
            if self.leaves(&mut notice, !in_flight.is_empty()) {
                end = TermEnd::Resigned;
                break;
            }
            let leaving = self.leaving();
            if let Some(why) = leaving {
                if in_flight.is_empty() {
                    end = why;
                    break;
                }
                if self.engine.schedule.is_continuous() {
                    // It would never end by itself.
                    in_flight.stop_all("the definition of the job has changed");
                }
            }
            if Box::pin(self.note_withdrawn(&mut ledger)).await.is_err() {
                break;
            }
            let Ok(plan) = self.decide(&ledger, &in_flight, leaving.is_none()) else {
                break;
            };
            let is_ahead = self.engine.look_ahead(plan.ahead);
            if let ahead::Next::TakeBack(upto) = is_ahead {
                drop(plan);
                if Box::pin(self.take_back(&mut ledger, upto)).await.is_err() {
                    break;
                }
                continue;
            }
            let mut wake = plan.wake;
            let mut held_back = false;
            let acted = match self.acts(plan, &mut ledger, &mut in_flight, &mut checkpoints) {
                Err(done) => Ok(done),
                Ok(acts) => acts.await,
            };
            match acted {
                Ok(Carried::Written) => {}
                Ok(Carried::TooEarly(ahead)) => {
                    held_back = true;
                    wake = self.wall().checked_add(ahead).ok();
                }
                Err(Over) => break,
            }
            // What was due has begun: it does not wait for what is written of notices.
            let seen_to = self.see_to_notices(&mut ledger, &in_flight);
            if Box::pin(seen_to).await.is_err() {
                break;
            }
            let idle = !held_back && in_flight.is_empty() && by_tick::is_done(&ledger, self.wall());
            if self.brief && idle {
                end = TermEnd::Idle;
                break;
            }
            if !held_back && leaving.is_none() {
                ready = self.make_ready(&ledger, &in_flight, &mut checkpoints, &mut wake);
            }
            drop(begins.take());
            let mut at = term_end.min(notice.wake(self.clock().now()));
            at = at.min(self.sound_at(&ledger, &in_flight).unwrap_or(at));
            let told = self.told_people(&ledger);
            let woken = if in_flight.is_empty() && ready.is_none() {
                checkpoints.close();
                let calm = !held_back && is_ahead == ahead::Next::Level && self.is_calm(&ledger);
                self.rest(wake, at, (calm, told), news).await;
                Woken::Look
            } else {
                let watch = (&mut in_flight, &mut checkpoints);
                Box::pin(self.watch(watch, wake, at, (news, told))).await
            };
            match woken {
                Woken::Look => {}
                Woken::Ended(key, ended) => {
                    let record = self.record(&mut ledger, &mut in_flight, &key, ended);
                    if Box::pin(record).await.is_err() {
                        break;
                    }
                }
                Woken::Saving(saving) => {
                    self.settle(&mut ready, &mut ledger, &mut in_flight);
                    Box::pin(self.save(&mut ledger, &in_flight, saving)).await;
                }
                Woken::Stuck => self.give_up(NO_PROGRESS),
            }
        }
        self.settle(&mut ready, &mut ledger, &mut in_flight);
        Box::pin(self.wind_down(&mut ledger, in_flight, checkpoints, end)).await;
        end
    }

    /// Carries the plan out, unless there is nothing to do or what is to start would start too late. The future is made before it is
    /// waited for: a job at rest has no room for a plan.
    fn acts<'b>(
        &'b self,
        plan: Plan,
        ledger: &'b mut Ledger,
        in_flight: &'b mut InFlight<RunKey>,
        checkpoints: &'b mut CheckpointQueue,
    ) -> Result<BoxFuture<'b, Result<Carried, Over>>, Carried> {
        if self.starts_too_late(&plan) {
            return Err(Carried::TooEarly(LOOK_AT_LEASE));
        }
        if plan.decisions.is_empty() {
            return Err(Carried::Written);
        }
        let acts = self.carry_out(plan, ledger, in_flight, checkpoints);
        Ok(acts.boxed())
    }

    /// What may be asked of the job, or told of its definition, up to now.
    fn news(&self) -> News {
        let ctx = &self.engine.ctx;
        News::seen(&ctx.intents, &ctx.peers.definitions)
    }

    /// Whether nothing of the job is open or asked for: then its wake-up says all that time alone will bring.
    fn is_calm(&self, ledger: &Ledger) -> bool {
        let Engine { name, ctx, .. } = self.engine;
        ledger.open().is_empty() && ctx.intents.triggers(name).is_empty()
    }

    /// Waits with nothing of the job under way, until there may be something to decide.
    async fn rest(
        &self,
        wake: Option<Timestamp>,
        at: Moment,
        (calm, told): (bool, BoxFuture<'static, ()>),
        news: News,
    ) {
        let look = match calm {
            true => LOOK_AT_REST,
            false => LOOK_AGAIN,
        };
        let until = Until {
            wall: wake,
            moment: at.min(self.clock().now() + look),
            lease: self.lease.clone(),
        };
        let told_to_close = async {
            match &self.lease {
                Some(lease) => lease.told_to_close().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.pass.over() => {}
            () = self.unfit() => {}
            () = told_to_close => {}
            () = self.engine.next_definition.there() => {}
            () = told => {}
            () = self.engine.ctx.resting.until(until, news, || self.news()) => {}
        }
    }

    /// Waits while anything of the job is under way.
    async fn watch(
        &self,
        (in_flight, checkpoints): (&mut InFlight<RunKey>, &mut CheckpointQueue),
        wake: Option<Timestamp>,
        at: Moment,
        (news, told): (News, BoxFuture<'static, ()>),
    ) -> Woken {
        let runs: Vec<_> = in_flight.runs().cloned().collect();
        let leaving = self.leaving().is_some();
        let (intents, mut asked) = (&self.engine.ctx.intents, news.intents);
        tokio::select! {
            biased;
            () = self.closing() => Woken::Look,
            (key, ended) = in_flight.next_end() => Woken::Ended(key, ended),
            saving = checkpoints.next() => Woken::Saving(saving),
            () = self.stuck(&runs) => Woken::Stuck,
            () = self.to_leave(), if !leaving => Woken::Look,
            () = intents.changed(&mut asked) => Woken::Look,
            () = told => Woken::Look,
            () = self.clock().sleep_until(at) => Woken::Look,
            () = self.sleep_until(wake) => Woken::Look,
        }
    }

    /// Waits for a place among the terms that begin; one for a tick's work is begun at once.
    async fn turn_to_begin(&self) -> Result<Option<SemaphorePermit<'_>>, Over> {
        if self.lease.is_none() || self.brief {
            return Ok(None);
        }
        tokio::select! {
            biased;
            () = self.closing() => Err(Over),
            // It is never closed.
            place = self.engine.ctx.beginnings.acquire() => Ok(place.ok()),
        }
    }

    /// Accounts for what happened before this term.
    async fn prepare(&self, ledger: &mut Ledger) -> Result<(), Over> {
        // Before anything is written: that is newer than whatever is remembered.
        let own = self.engine.ctx.recall.ledger(&self.engine.name);
        let memory_losses = self.memory_losses().await?;
        // First of all: a minority write of the last leader becomes the truth, or is gone, for all replicas.
        if *ledger != Ledger::default() {
            self.write(ledger, None).await.map_err(|_| Over)?;
        }
        self.account_for_memory_loss(ledger, own, memory_losses)
            .await?;
        self.account_for_change(ledger).await?;
        // Also after it: the pause of a job must be known to its next leader.
        self.knows_intents().await.ok_or(Over)
    }

    /// This replica does not do the job as it should: nothing new starts, and the work is to stop.
    fn give_up(&self, why: &str) {
        let unfit = Some(why.to_owned());
        self.engine.ctx.fitness(&self.engine.name, unfit);
        match &self.lease {
            // From here the keeper's ladder leads.
            Some(lease) => lease.cordon(why),
            None => self.unfit.iter().for_each(CancellationToken::cancel),
        }
    }

    /// Reads what is asked of the job. Nothing when the term is over before that.
    async fn knows_intents(&self) -> Option<()> {
        let ctx = &self.engine.ctx;
        let known = ctx.intents.known_to_majority(&ctx.locks, &ctx.clock);
        if self.lease.is_none() {
            // Nothing is shared: a store that does not answer keeps no replica from its own work.
            let _ = ctx
                .clock
                .timeout(ctx.locks.timing().node_timeout * 2, known)
                .await;
            return Some(());
        }
        tokio::select! {
            biased;
            () = self.closing() => None,
            () = known => Some(()),
        }
    }

    /// Nothing new starts. Runs go on while their lease is renewed: to their end when the worker drains, or until their
    /// grace is over; each outcome is written before the lease goes.
    async fn wind_down(
        &self,
        ledger: &mut Ledger,
        mut in_flight: InFlight<RunKey>,
        mut checkpoints: CheckpointQueue,
        end: TermEnd,
    ) {
        let ctx = &self.engine.ctx;
        let calm = (self.pass.is_draining() || end != TermEnd::Over)
            && !self.pass.is_lost()
            && !self.is_unfit()
            && self.lease.as_ref().is_none_or(LeaseView::is_open)
            && !self.engine.schedule.is_continuous();
        let patience = if calm {
            ctx.drain_timeout
        } else {
            Duration::ZERO
        };
        let mut wind_down = WindDown::until(ctx.clock.now() + patience);
        while !in_flight.is_empty() {
            tokio::select! {
                biased;
                (key, ended) = in_flight.next_end() => {
                    if self.record(ledger, &mut in_flight, &key, ended).await.is_err() {
                        tracing::warn!(
                            job = self.engine.name,
                            "the outcome of the last run could not be written"
                        );
                    }
                }
                saving = checkpoints.next() => self.save(ledger, &in_flight, saving).await,
                () = self.abandoned() => return,
                why = wind_down.over(self.pass, &ctx.clock) => {
                    let unfit = self.lease.as_ref().and_then(LeaseView::cordoned);
                    in_flight.stop_all(match (why, &unfit) {
                        (Some(why), _) => why,
                        _ if self.pass.is_draining() => self.pass.why_draining(),
                        (None, Some(why)) => why,
                        (None, None) => "the term ends",
                    });
                }
            }
        }
    }
}
