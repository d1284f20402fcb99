//! One term of a job: gather facts, decide, write, act, wait.

use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Engine,
    acts::Carried,
    ahead, by_tick,
    gate::Pass,
    ledger_store::Pad,
    limits::{LOOK_AT_LEASE, has_standby},
    orders::Notice,
};
use crate::{
    event::Event,
    lease::{LeaseView, Loss},
    ledger::Ledger,
    lock::WriteError,
    node::Token,
    run::in_flight::{Flights, Saving},
};

/// The longest sleep between two looks at the wall clock: it may be set meanwhile.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// One term.
pub(super) struct Lead<'a> {
    pub(super) engine: &'a Engine,
    pub(super) pad: &'a Pad,
    /// None for a job that runs everywhere.
    pub(super) lease: Option<LeaseView>,
    pub(super) pass: &'a Pass,
    /// Whether the term ends with its work: when nothing of the job is open and no retry is near.
    pub(super) brief: bool,
    /// Cancelled when a replica that leads without a lock is not fit to go on; a lock's keeper says so by its lease.
    pub(super) unfit: CancellationToken,
}

/// The term is over, or nothing more can be done in it.
pub(super) struct Over;

/// Why a term was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Its lease says why, or it was handed over.
    Over,
    /// It has lasted long enough, and somebody else stands by.
    MaxTerm,
    /// Somebody asked for it.
    Resigned,
    /// There is a new definition of the job, and nothing of it runs.
    Changed,
    /// Another replica has a newer definition of the job, and nothing of it runs here.
    Outdated,
    /// There is nothing to do before the next tick.
    Idle,
}

impl Lead<'_> {
    /// Leads until nothing new may start, then winds down. Each step has its room only while it goes on: a thousand leaders
    /// are nearly always between two of them.
    pub(super) async fn run(self) -> Ended {
        let job = &self.engine.name;
        let mut ledger = match self.pad.found() {
            Ok(ledger) => ledger,
            Err(error) => {
                // Writing over it would lose what a newer version knows.
                tracing::error!(job, %error, "cannot read the ledger: leaving the job to others");
                self.clock().sleep(self.engine.ctx.locks.timing().ttl).await;
                return Ended::Over;
            }
        };
        if !self.engine.may_lead_after(&ledger) {
            return Ended::Outdated;
        }
        // Before anything is written: that is newer than whatever is remembered.
        let own = self.engine.ctx.recall.ledger(job).map(Box::new);
        // First of all: a minority write of the last leader becomes the truth, or is gone, for everybody.
        if ledger != Ledger::default() && Box::pin(self.write(&ledger, None)).await.is_err() {
            return Ended::Over;
        }
        if Box::pin(self.account_for_blank(&mut ledger, own.map(|own| *own)))
            .await
            .is_err()
        {
            return Ended::Over;
        }
        if Box::pin(self.account_for_change(&mut ledger))
            .await
            .is_err()
        {
            return Ended::Over;
        }
        // Also after it: the pause of a job must be known to whoever leads it next.
        let Some(mut seen) = Box::pin(self.knows_intents()).await else {
            return Ended::Over;
        };
        // Of the last term, or of nobody, until something is decided in this one.
        let next = self.engine.next_tick(&ledger, self.wall());
        let board = &self.engine.ctx.board;
        board.ticks(job, self.engine.last_tick(&ledger), next);
        let (desk, mut saving) = mpsc::channel(4);
        let mut flights = Flights::default();
        let mut end = Ended::Over;
        let mut term_end = self.term_end();
        let mut notice = Notice::default();
        let mut ready = None;
        while self.is_open() {
            self.settle(&mut ready, &mut ledger, &mut flights);
            if self.leaves(&mut notice, !flights.is_empty()) {
                end = Ended::Resigned;
                break;
            }
            let leaving = self.leaving();
            if let Some(why) = leaving {
                if flights.is_empty() {
                    end = why;
                    break;
                }
                if self.engine.schedule.is_continuous() {
                    // It would never end by itself.
                    flights.stop_all("the definition of the job has changed");
                }
            }
            if Box::pin(self.note_withdrawn(&mut ledger)).await.is_err() {
                break;
            }
            let Ok(plan) = self.decide(&ledger, &flights, leaving.is_none()) else {
                break;
            };
            if let ahead::Next::TakeBack(upto) = self.engine.look_ahead(plan.ahead) {
                drop(plan);
                if Box::pin(self.take_back(&mut ledger, upto)).await.is_err() {
                    break;
                }
                continue;
            }
            let mut wake = plan.wake;
            let mut held_back = false;
            if self.starts_too_late(&plan) {
                held_back = true;
                wake = self.wall().checked_add(LOOK_AT_LEASE).ok();
            } else {
                match Box::pin(self.carry_out(plan, &mut ledger, &mut flights, &desk)).await {
                    Ok(Carried::Written) => {}
                    Ok(Carried::TooEarly(ahead)) => {
                        held_back = true;
                        wake = self.wall().checked_add(ahead).ok();
                    }
                    Err(Over) => break,
                }
            }
            let idle = !held_back && flights.is_empty() && by_tick::is_done(&ledger, self.wall());
            if self.brief && idle {
                end = Ended::Idle;
                break;
            }
            if !held_back && leaving.is_none() {
                ready = self.make_ready(&ledger, &flights, &desk, &mut wake);
            }
            let runs = flights.runs();
            tokio::select! {
                biased;
                () = self.closing() => break,
                (key, ended) = flights.next_end() => {
                    if Box::pin(self.record(&mut ledger, &mut flights, &key, ended)).await.is_err() {
                        break;
                    }
                }
                Some(saving) = saving.recv() => {
                    self.settle(&mut ready, &mut ledger, &mut flights);
                    Box::pin(self.save(&mut ledger, &flights, saving)).await;
                }
                () = self.stuck(&runs) => self.give_up("the run makes no progress"),
                () = self.clock().sleep_until(term_end) => {
                    let Some(standby) = Box::pin(has_standby(&self.engine.ctx, job)).await else {
                        term_end = self.clock().now() + self.engine.ctx.locks.timing().ttl;
                        continue;
                    };
                    if standby {
                        end = Ended::MaxTerm;
                        break;
                    }
                    // Nobody to hand over to: the time begins anew, and the work goes on.
                    term_end = self.clock().now() + self.engine.spec.max_term;
                }
                () = self.to_leave(), if leaving.is_none() => {}
                () = self.engine.ctx.intents.changed(&mut seen) => {}
                () = self.clock().sleep_until(notice.wake(self.clock().now())) => {}
                () = self.sleep_until(wake) => {}
            }
        }
        self.settle(&mut ready, &mut ledger, &mut flights);
        Box::pin(self.wind_down(&mut ledger, flights, &mut saving, end)).await;
        end
    }

    /// This replica does not do the job as it should: nothing new starts, and the work is to stop.
    fn give_up(&self, why: &str) {
        self.engine.ctx.events.tell(Event::Fitness {
            job: self.engine.name.clone(),
            unfit: Some(why.to_owned()),
        });
        match &self.lease {
            // From here the keeper's ladder leads.
            Some(lease) => lease.cordon(why),
            None => self.unfit.cancel(),
        }
    }

    /// Reads what is asked of the job; says at which change of it. Nothing when the term is over before that.
    async fn knows_intents(&self) -> Option<u64> {
        let ctx = &self.engine.ctx;
        let known = ctx.intents.known_to_majority(&ctx.locks, &ctx.clock);
        if self.lease.is_none() {
            // Nothing is shared: a store that does not answer keeps nobody from work of his own.
            let _ = ctx
                .clock
                .timeout(ctx.locks.timing().node_timeout * 2, known)
                .await;
            return Some(ctx.intents.seen());
        }
        tokio::select! {
            biased;
            () = self.closing() => None,
            () = known => Some(ctx.intents.seen()),
        }
    }

    /// Nothing new starts. Runs go on while their lease is renewed: to their end when the worker drains, or until their
    /// grace is over; each outcome is written before the lease goes.
    async fn wind_down(
        &self,
        ledger: &mut Ledger,
        mut flights: Flights,
        saving: &mut mpsc::Receiver<Box<Saving>>,
        end: Ended,
    ) {
        let ctx = &self.engine.ctx;
        let calm = (self.pass.is_draining() || end != Ended::Over)
            && !self.pass.is_lost()
            && !self.unfit.is_cancelled()
            && self.lease.as_ref().is_none_or(LeaseView::is_open)
            && !self.engine.schedule.is_continuous();
        let patience = if calm {
            ctx.drain_timeout
        } else {
            Duration::ZERO
        };
        let stop_at = ctx.clock.now() + patience;
        let mut stopped = false;
        while !flights.is_empty() {
            tokio::select! {
                biased;
                (key, ended) = flights.next_end() => {
                    if self.record(ledger, &mut flights, &key, ended).await.is_err() {
                        tracing::warn!(
                            job = self.engine.name,
                            "the outcome of the last run could not be written"
                        );
                    }
                }
                Some(saving) = saving.recv() => self.save(ledger, &flights, saving).await,
                () = self.abandoned() => return,
                () = self.pass.lost(), if !stopped => {
                    stopped = true;
                    flights.stop_all("this replica is no longer the active one");
                }
                () = ctx.clock.sleep_until(stop_at), if !stopped => {
                    stopped = true;
                    let unfit = self.lease.as_ref().and_then(LeaseView::cordoned);
                    flights.stop_all(match &unfit {
                        _ if self.pass.is_draining() => self.pass.why_draining(),
                        Some(why) => why,
                        None => "the term ends",
                    });
                }
            }
        }
    }

    /// Writes the ledger, as long as there is time for it: a store that does not answer must not keep the active replica
    /// from standing down before its own lease ends.
    pub(super) async fn write(
        &self,
        ledger: &Ledger,
        not_before: Option<Timestamp>,
    ) -> Result<(), WriteError> {
        tokio::select! {
            biased;
            written = self.pad.write(ledger, not_before) => written,
            () = self.out_of_time() => Err(WriteError::Lost(Loss::Expired)),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        !self.pass.is_over()
            && !self.unfit.is_cancelled()
            && self.lease.as_ref().is_none_or(LeaseView::is_open)
    }

    async fn sleep_until(&self, wake: Option<Timestamp>) {
        let left = wake.map(|at| Duration::try_from(at.duration_since(self.wall())));
        let pause = match left {
            // A timer ends on a whole millisecond after its time: never look before the tick.
            Some(left) => left.unwrap_or_default().min(LOOK_AGAIN),
            None => LOOK_AGAIN,
        };
        self.clock().sleep(pause).await;
    }

    pub(super) fn token(&self) -> Token {
        self.lease.as_ref().map_or(Token(0), LeaseView::token)
    }

    /// What time it is for ticks: by the nodes' clocks, so that it is the same wherever the job is led.
    pub(super) fn wall(&self) -> Timestamp {
        self.engine.ctx.locks.wall()
    }

    pub(super) fn clock(&self) -> &crate::clock::Clock {
        &self.engine.ctx.clock
    }
}
