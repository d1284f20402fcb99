//! Runs one job: stands for election, decides which ticks are due, runs them, keeps the ledger.
//!
//! # States            waiting for the gate -> campaigning -> leading (-> running) -> winding down -> standing by
//! # Invariants
//! - P4 A tick is started at most once per attempt: the start is written to q nodes before it happens.
//!   (a_tick_is_written_before_it_runs)
//! - A term's first act is to write back what it found, so that a minority write of a dead leader is decided for good.
//!   (a_new_leader_writes_back_what_it_found)
//! - Work goes first, then the lease: a term is resigned after its runs have ended.   (a_term_is_resigned_after_its_run,
//!   a_term_is_resigned_after_all_its_runs)
//! - The lock of every job that this replica may come to lead is watched, whatever keeps it from being a candidate now: a closed
//!   gate, unfitness, another definition.   (a_failover_standby_takes_over_within_one_ttl_and_a_third,
//!   whoever_gets_well_after_the_leaders_death_takes_over_at_once)
//! - D3 Never more than `concurrency` runs of a job at a time, whoever leads.
//!   (whatever_overlaps_starts_once_beside_no_more_than_may_and_nothing_is_lost)
//! # When things fail
//! A ledger that cannot be written starts nothing. An outcome that cannot be written leaves the run open: the next leader
//! finds it interrupted and says so.

mod acts;
mod ahead;
mod alarm;
mod balance;
mod blank;
mod board;
mod by_tick;
mod changed;
pub(crate) mod context;
mod definitions;
mod departure;
pub(crate) mod execute;
mod flight;
mod gate;
mod history;
pub(crate) mod intents;
mod lead;
mod limits;
mod orders;
mod pad;
mod place;
mod recall;
#[cfg(test)]
mod sizes;
mod span;
mod spread;
mod successor;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

pub(crate) use balance::{Given, balance};
pub(crate) use board::Board;
pub(crate) use context::Context;
pub(crate) use gate::{Gate, Pass};
pub(crate) use history::{Author, History};
pub(crate) use intents::Intents;
use jiff::{SignedDuration, Timestamp};
pub(crate) use limits::stuck_at;
pub(crate) use place::Place;
pub(crate) use recall::Recall;
pub(crate) use spread::WHOLE_REPLICA;
pub(crate) use successor::{Definition, Successor};
use tokio_util::sync::CancellationToken;

use crate::{
    due::{Policy, WithoutSpans},
    election::{Elected, Elector},
    event::Event,
    job::{Job, Spec, definition::Fingerprint},
    lease::{Care, LeaseView, Loss, Unstoppable},
    ledger::Ledger,
    lock::Watching,
    schedule::Schedule,
    status::Standing,
    term::Term,
};
use lead::{Ended, Lead};
use pad::Pad;

/// One job of this replica.
pub(crate) struct Engine {
    pub(crate) name: String,
    pub(crate) job: Arc<dyn Job>,
    pub(crate) spec: Arc<Spec>,
    pub(crate) schedule: Arc<Schedule>,
    pub(crate) policy: Policy,
    /// Of the spec.
    pub(crate) print: Fingerprint,
    /// When it was loaded, by the fleet's time.
    pub(crate) loaded: Timestamp,
    /// What it is to be next.
    pub(crate) successor: Successor,
    /// Whether its ledger is ahead of the clock.
    pub(crate) ahead: Mutex<ahead::Ahead>,
    pub(crate) ctx: Context,
}

impl Engine {
    /// Runs the job in one replica at a time, until the worker drains.
    pub(crate) async fn run_led(&mut self) {
        let ctx = &self.ctx.clone();
        // Whatever keeps this replica from being a candidate now: when it becomes one, the leader may be dead already.
        let _watching = self.keep_watching();
        let mut stood_back = None;
        while let Some(pass) = ctx.gate.pass().await {
            self.take_up();
            let elector = self.elector();
            let elector = elector.hesitating(ctx.hesitation(&self.name, self.spec.ttl));
            ctx.board.stands(&self.name, Standing::StandingBy);
            tokio::select! {
                biased;
                () = pass.over() => continue,
                () = Box::pin(self.wait_until_fit(&pass)) => {}
            }
            if Box::pin(self.stand_back_for_definition(&pass)).await {
                continue;
            }
            // Boxed, here and below: whoever leads needs no room for a campaign.
            let campaign = Box::pin(elector.campaign_timed());
            let elected = tokio::select! {
                biased;
                () = pass.over() => continue,
                asked = self.stands_back(stood_back.as_ref()) => {
                    Box::pin(self.stand_back(&asked, &pass)).await;
                    stood_back = Some(asked);
                    continue;
                }
                () = self.outvoted() => continue,
                elected = campaign => elected,
            };
            let elected = match elected {
                Ok(elected) => elected,
                Err(error) => {
                    tracing::error!(job = self.name, %error, "cannot stand for election");
                    ctx.clock.sleep(Duration::from_secs(1)).await;
                    continue;
                }
            };
            let (why, ended) = Box::pin(self.lead(elected, &pass)).await;
            if Self::lets_others_go_first(&why, ended) {
                drop(pass);
                ctx.clock.sleep(ctx.locks.timing().ttl / 2).await;
            }
        }
        ctx.board.stands(&self.name, Standing::Off);
    }

    /// The job's lock.
    fn key(&self) -> String {
        format!("job/{}", self.name)
    }

    /// Watches the job's lock, so that whoever holds it is known to be over in time should this replica need it.
    /// What it sees of the ledger is remembered, too: a spare replica of a failover fleet never looks at it otherwise.
    fn keep_watching(&self) -> Watching {
        let (recall, job) = (self.ctx.recall.clone(), self.name.clone());
        let watching = self.ctx.locks.keep_watching(&self.key(), self.spec.ttl);
        watching.showing(move |seen| recall.saw(&job, seen))
    }

    fn elector(&self) -> Elector {
        let (recall, job) = (self.ctx.recall.clone(), self.name.clone());
        let elector = Elector::for_key(&self.ctx.locks, self.key())
            .showing(move |seen| recall.saw(&job, seen));
        match self.spec.ttl {
            Some(ttl) => elector.ttl(ttl),
            None => elector,
        }
    }

    /// Whoever has just shown to be unfit, has led for long, or was told to go.
    fn lets_others_go_first(why: &Loss, ended: Ended) -> bool {
        matches!(why, Loss::Unfit(_) | Loss::MaxTerm) || ended == Ended::Resigned
    }

    /// The last tick that is decided; none when that is only where the job was seen first.
    fn last_tick(&self, ledger: &Ledger) -> Option<Timestamp> {
        let upto = ledger.decided_upto()?;
        let before = upto.checked_sub(SignedDuration::from_nanos(1)).ok()?;
        let is_tick = self.schedule.next_after(before) == Some(upto);
        (is_tick || self.schedule.is_continuous()).then_some(upto)
    }

    /// The tick after those that are decided or due.
    fn next_tick(&self, ledger: &Ledger, now: Timestamp) -> Option<Timestamp> {
        let decided = ledger.decided_upto().unwrap_or_default();
        let schedule = self.schedule.without_spans(ledger);
        schedule.next_after(decided.max(schedule.due_upto(now)))
    }

    async fn lead(&mut self, elected: Elected, pass: &Pass) -> (Loss, Ended) {
        let Elected { term, leaderless } = elected;
        // Others may have led since it was seen.
        *self.ahead.get_mut().unwrap_or_else(|e| e.into_inner()) = ahead::Ahead::default();
        let (job, token) = (self.name.clone(), term.lease().token());
        self.ctx.events.tell(Event::Leading {
            job,
            token,
            leaderless,
        });
        self.hold_term(term, pass, false).await
    }

    /// A term for the work that is due. It is told by its runs alone: a change of leadership with every tick would be
    /// no news.
    async fn lead_by_tick(&mut self, term: Term, pass: &Pass) -> (Loss, Ended) {
        self.hold_term(term, pass, true).await
    }

    async fn hold_term(&mut self, term: Term, pass: &Pass, brief: bool) -> (Loss, Ended) {
        let ctx = &self.ctx.clone();
        let lease = term.lease().clone();
        ctx.board.leads(&self.name, lease.clone(), ctx.locks.wall());
        let pad = Pad::under(ctx, &self.name, lease.clone(), &term.record().body);
        // Once for each definition under which this term is held.
        let ended = loop {
            lease.take_care(Care {
                grace: Some(self.spec.grace),
                unstoppable: self.spec.unstoppable,
            });
            let watch = watch_health(self.job.clone(), lease.clone(), ctx.clone());
            let health = ctx.spawn.spawn(watch);
            let lead = Lead {
                engine: self,
                pad: &pad,
                lease: Some(lease.clone()),
                pass,
                brief,
                unfit: CancellationToken::new(),
            };
            // Boxed: whoever stands by for a thousand jobs needs no room for leading them.
            let ended = Box::pin(lead.run()).await;
            health.abort();
            if ended != Ended::Changed || !self.keeps_term(&lease, &pad) {
                break ended;
            }
        };
        if self.spec.unstoppable == Unstoppable::Hold {
            // The run was dropped, and part of it goes on: nobody else may start beside it.
            while lease.work_in_flight() > 0 && lease.is_held() {
                lease.work_changed().await;
            }
        }
        let why = match (lease.loss(), lease.cordoned(), ended) {
            (Some(loss), _, _) => loss,
            (None, Some(why), _) => Loss::Unfit(why),
            (None, None, Ended::MaxTerm) => Loss::MaxTerm,
            (
                None,
                None,
                Ended::Over | Ended::Resigned | Ended::Idle | Ended::Changed | Ended::Outdated,
            ) => Loss::Released,
        };
        ctx.board.stands(&self.name, Standing::StandingBy);
        if brief {
            if why != Loss::Released {
                tracing::warn!(
                    job = self.name,
                    ?why,
                    "the lock was lost in the middle of a tick's work"
                );
            }
        } else {
            ctx.events.tell(Event::StandingBy {
                job: self.name.clone(),
                why: why.clone(),
            });
        }
        term.resign().await;
        (why, ended)
    }

    /// Takes up the next definition of the job, and says whether this term goes on under it.
    fn keeps_term(&mut self, lease: &LeaseView, pad: &Pad) -> bool {
        self.take_up();
        let ttl = self.spec.ttl.unwrap_or(self.ctx.locks.timing().ttl);
        let may = pad.found().is_ok_and(|ledger| self.may_lead_after(&ledger));
        // A lease keeps the ttl that it was granted with.
        ttl == lease.ttl() && may
    }

    /// Runs the job in every replica, without a lock and without a ledger that outlives the process.
    pub(crate) async fn run_everywhere(&mut self) {
        let ctx = &self.ctx.clone();
        let pad = Pad::local();
        while let Some(pass) = ctx.gate.pass().await {
            self.take_up();
            tokio::select! {
                biased;
                () = pass.over() => continue,
                () = async {
                    ctx.locks.fitness().fit().await;
                    self.wait_until_fit(&pass).await;
                } => {}
            }
            ctx.board.stands(&self.name, Standing::Working);
            let unfit = CancellationToken::new();
            let watch = watch_without_lock(
                self.job.clone(),
                self.name.clone(),
                ctx.clone(),
                unfit.clone(),
            );
            let watch = ctx.spawn.spawn(watch);
            Lead {
                engine: self,
                pad: &pad,
                lease: None,
                pass: &pass,
                brief: false,
                unfit,
            }
            .run()
            .await;
            watch.abort();
        }
        ctx.board.stands(&self.name, Standing::Off);
    }

    /// A job that says it is unfit is asked again until it is not.
    async fn wait_until_fit(&self, pass: &Pass) {
        let ctx = &self.ctx;
        let mut said = false;
        while !pass.is_over() {
            let asked = ctx.why_unfit(|| self.job.health(), ctx.locks.timing().ttl / 2);
            let Some(why) = asked.await else { break };
            if !said {
                ctx.board.stands(&self.name, Standing::Off);
                ctx.events.tell(Event::Fitness {
                    job: self.name.clone(),
                    unfit: Some(why),
                });
                said = true;
            }
            ctx.clock.sleep(ctx.health_every()).await;
        }
        if said {
            ctx.board.stands(&self.name, Standing::StandingBy);
            ctx.events.tell(Event::Fitness {
                job: self.name.clone(),
                unfit: None,
            });
        }
    }
}

/// Asks the job whether this replica is fit for it, as long as it leads.
async fn watch_health(job: Arc<dyn Job>, lease: LeaseView, ctx: Context) {
    while lease.is_open() {
        ctx.clock.sleep(ctx.health_every()).await;
        let Some(why) = ctx.why_unfit(|| job.health(), lease.ttl() / 2).await else {
            continue;
        };
        // From here the keeper's ladder leads: nothing new starts, the run is told to stop, then the lease is released.
        lease.cordon(&why);
        let job = Event::Fitness {
            job: resource(&lease),
            unfit: Some(why),
        };
        ctx.events.tell(job);
    }
}

/// The same for a job without a lock, where no keeper watches the replica's own fitness.
async fn watch_without_lock(
    job: Arc<dyn Job>,
    name: String,
    ctx: Context,
    unfit: CancellationToken,
) {
    loop {
        ctx.clock.sleep(ctx.health_every()).await;
        let replica = ctx.locks.fitness().unfit().map(|(why, _)| why);
        let why = match replica {
            Some(why) => why,
            None => match ctx
                .why_unfit(|| job.health(), ctx.locks.timing().ttl / 2)
                .await
            {
                Some(why) => why,
                None => continue,
            },
        };
        tracing::warn!(job = name, why, "not fit: nothing new starts here");
        unfit.cancel();
        return;
    }
}

fn resource(lease: &LeaseView) -> String {
    lease.key().trim_start_matches("job/").to_owned()
}
