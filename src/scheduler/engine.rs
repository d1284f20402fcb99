//! One job of a replica: its definition, and what every way of running it needs.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

use super::{
    Context, NextDefinition,
    ahead::{self, Ahead, STANDS},
    spread::WHOLE_REPLICA,
    watchers::{Vacancy, Watcher},
};
use crate::{
    due::{Policy, Ticks, WhySkipped, WithoutSpans},
    election::Elector,
    event::Event,
    job::{Job, Spec, definition::Fingerprint},
    ledger::Ledger,
    lock::Watching,
    run::Pass,
    schedule::Schedule,
    status::JobStanding,
};

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
    pub(crate) next_definition: NextDefinition,
    /// Whether its ledger is ahead of the clock.
    pub(crate) ahead: Mutex<Ahead>,
    /// Whether its lock has shown no living holder.
    pub(crate) vacancy: Vacancy,
    pub(crate) ctx: Context,
}

impl Engine {
    /// The job's lock.
    pub(super) fn key(&self) -> String {
        format!("job/{}", self.name)
    }

    /// This replica's part in watching the job's lock. In failover mode the replica that is to be active needs them all.
    pub(super) fn watcher(&self) -> Watcher<'_> {
        Watcher {
            ctx: &self.ctx,
            of: match self.ctx.peers.failover {
                true => WHOLE_REPLICA,
                false => &self.name,
            },
            vacancy: &self.vacancy,
        }
    }

    /// Watches the job's lock, so that its holder is known to be over in time should this replica need it.
    /// What it sees of the ledger is remembered, too: a spare replica of a failover fleet never looks at it otherwise.
    pub(super) fn keep_watching(&self) -> Watching {
        let (recall, job) = (self.ctx.recall.clone(), self.name.clone());
        let shows = move |seen: &_| recall.saw(&job, seen);
        self.watcher()
            .keep_watching(&self.key(), self.spec.ttl, shows)
    }

    pub(super) fn elector(&self) -> Elector {
        let (recall, job) = (self.ctx.recall.clone(), self.name.clone());
        let elector = Elector::for_key(&self.ctx.locks, self.key())
            .showing(move |seen| recall.saw(&job, seen));
        match self.spec.ttl {
            Some(ttl) => elector.ttl(ttl),
            None => elector,
        }
    }

    /// The last tick that is decided; none when that is only where the job was seen first.
    pub(super) fn last_tick(&self, ledger: &Ledger) -> Option<Timestamp> {
        let upto = ledger.decided_upto()?;
        let before = upto.checked_sub(SignedDuration::from_nanos(1)).ok()?;
        let is_tick = self.schedule.next_after(before) == Some(upto);
        (is_tick || self.schedule.is_continuous()).then_some(upto)
    }

    /// The tick after those that are decided or due.
    pub(super) fn next_tick(&self, ledger: &Ledger, now: Timestamp) -> Option<Timestamp> {
        let decided = ledger.decided_upto().unwrap_or_default();
        let schedule = self.schedule.without_spans(ledger);
        schedule.next_after(decided.max(schedule.due_upto(now)))
    }

    pub(super) fn tell_skipped(&self, ticks: Ticks, why: WhySkipped) {
        self.ctx.events.tell(Event::TicksSkipped {
            job: self.name.clone(),
            first: ticks.from,
            last: ticks.to,
            count: ticks.count,
            why: why.as_str(),
        });
    }

    /// Goes on under the next definition, if there is one. Nothing of the job runs here meanwhile.
    pub(super) fn take_up(&mut self) {
        let Some(next) = self.next_definition.take() else {
            return;
        };
        self.print = next.spec.fingerprint();
        self.loaded = next.loaded;
        self.job = next.job;
        self.spec = next.spec;
        self.schedule = next.schedule;
        self.policy = next.policy;
        tracing::info!(
            job = self.name,
            definition = self.print.whole,
            "goes on under its new definition"
        );
    }

    /// Up to where undecided ticks of the job fell into a pause; the end of time while it lasts.
    pub(super) fn paused_upto(&self, now: Timestamp) -> Option<Timestamp> {
        let latest = now.checked_add(self.ctx.locks.timing().skew);
        let latest = latest.unwrap_or(Timestamp::MAX);
        self.ctx.intents.paused_upto(&self.name, latest)
    }

    /// What to do about a ledger that is so far ahead of the clock; says what is to be said.
    pub(super) fn look_ahead(&self, ahead: Option<Duration>) -> ahead::Next {
        let ctx = &self.ctx;
        let (skew, wall) = (ctx.locks.timing().skew, ctx.locks.wall());
        let next = {
            let mut state = self.ahead.lock();
            let state = state.as_mut().unwrap_or_else(|e| e.get_mut());
            state.on(ahead, (ctx.clock.now(), wall), skew)
        };
        let shown = ahead.filter(|_| next != ahead::Next::Level);
        ctx.local_status.ahead(&self.name, shown);
        if next == ahead::Next::Say {
            let ahead_s = ahead.unwrap_or_default().as_secs();
            tracing::warn!(
                job = self.name,
                ahead_s,
                stands_s = STANDS.as_secs(),
                "the job's ticks are decided further than the clock shows: a clock had jumped ahead, or this one has gone \
                 back. No tick is due before it has caught up, or the ledger is taken back because this stands"
            );
        }
        next
    }

    /// A job that says it is unfit is asked again until it is not.
    pub(super) async fn wait_until_fit(&self, pass: &Pass) {
        let ctx = &self.ctx;
        let mut said = false;
        while !pass.is_over() {
            let asked = ctx.why_unfit(|| self.job.health(), ctx.locks.timing().ttl / 2);
            let Some(why) = asked.await else {
                if !said && ctx.told_unfit.has(&self.name) {
                    // Of its last term, or tick.
                    ctx.fitness(&self.name, None);
                }
                break;
            };
            if !said {
                ctx.local_status.stands(&self.name, JobStanding::Off);
                ctx.fitness(&self.name, Some(why));
                said = true;
            }
            ctx.clock.sleep(ctx.health_every()).await;
        }
        if said {
            ctx.local_status.stands(&self.name, JobStanding::Standby);
            ctx.fitness(&self.name, None);
        }
    }
}
