//! What a leader does about its decisions: written first, then told, then begun; and the same for what comes of it.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    Engine,
    checkpoints::CheckpointQueue,
    start_order::StartPermit,
    term::{Over, TermLoop},
};
use crate::{
    due::{self, Decision, Facts, Interrupted, Plan, WhySkipped},
    event::Event,
    ledger::{Ledger, OpenRun, RunKey, is_trigger_id},
    lock::WriteError,
    run::{Ended, InFlight, RunInFlight},
    status::runs::INTERRUPTED,
};

/// The shortest and the longest wait for the nodes' clocks to reach a tick.
const AGREE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// What became of a plan.
pub(super) enum Carried {
    /// Written, and its runs have started.
    Written,
    /// Refused by a majority of nodes, whose clocks are so far behind.
    TooEarly(Duration),
}

impl TermLoop<'_> {
    pub(super) fn decide(
        &self,
        ledger: &Ledger,
        in_flight: &InFlight<RunKey>,
        may_start: bool,
    ) -> Result<Plan, Over> {
        self.decide_at(self.wall(), ledger, in_flight, may_start)
    }

    pub(super) fn decide_at(
        &self,
        now: Timestamp,
        ledger: &Ledger,
        in_flight: &InFlight<RunKey>,
        may_start: bool,
    ) -> Result<Plan, Over> {
        let engine = self.engine;
        let triggers = self.triggers(ledger);
        let alive = in_flight.keys();
        let facts = Facts {
            ledger,
            schedule: &engine.schedule,
            policy: &engine.policy,
            now,
            token: self.token(),
            alive: &alive,
            may_start,
            triggers: &triggers,
            paused_upto: engine.paused_upto(now),
        };
        due::decide(&facts).map_err(|refused| {
            tracing::warn!(job = engine.name, %refused, "a later leader has written the ledger");
            Over
        })
    }

    /// Writes what was decided, then reports it, then starts what is to start.
    pub(super) async fn carry_out(
        &self,
        mut plan: Plan,
        ledger: &mut Ledger,
        in_flight: &mut InFlight<RunKey>,
        checkpoints: &mut CheckpointQueue,
    ) -> Result<Carried, Over> {
        if plan.decisions.is_empty() {
            return Ok(Carried::Written);
        }
        let next = self.engine.next_tick(&plan.ledger, self.wall());
        self.keep_given(&mut plan);
        let tells = self.note_plan(&mut plan, ledger);
        let ticks = plan.starts().filter_map(|d| match d {
            // A trigger is due whatever the nodes' clocks say.
            Decision::Start { id, tick, .. } if !is_trigger_id(id) => Some(*tick),
            _ => None,
        });
        let start = ticks.max();
        let starts = plan.starts().next().is_some();
        let permit = match starts {
            true => self.turn().await?,
            false => None,
        };
        let written = {
            let begun = plan.starts().filter_map(|decision| match decision {
                Decision::Start { id, .. } => Some(id.as_str()),
                _ => None,
            });
            let begun: Vec<&str> = begun.collect();
            self.write_of(&begun, &plan.ledger, start).await
        };
        match written {
            Ok(()) => {}
            Err(WriteError::TooEarly { ahead }) => {
                tracing::warn!(
                    job = self.engine.name,
                    ahead_ms = ahead.as_millis(),
                    "this machine's clock is ahead of a majority of nodes: the tick waits"
                );
                // Decided anew, but not before they can agree; a clock may also be set back.
                return Ok(Carried::TooEarly(ahead.clamp(AGREE.0, AGREE.1)));
            }
            Err(_) => return Err(Over),
        }
        drop(permit);
        self.tell_people(tells);
        let before = std::mem::replace(ledger, plan.ledger);
        self.engine
            .ctx
            .local_status
            .ticks(&self.engine.name, self.engine.last_tick(ledger), next);
        for decision in plan.decisions {
            if let Decision::Start { id, attempt, .. } = decision {
                self.extended().await;
                // The lease may have ended while the start was written: then it does not happen here. A drain that
                // began meanwhile waits for it: left out now, it would look like a run that died.
                let lost = self.pass.is_lost();
                if lost || self.lease.as_ref().is_some_and(|l| !l.is_open()) {
                    return Err(Over);
                }
                let Some(run) = open_run(ledger, &RunKey { id, attempt }) else {
                    continue;
                };
                let now = self.clock().now();
                let begun = self.begin(run, checkpoints.sender(), now, std::future::ready(true));
                in_flight.add(self.tell(begun, now, self.wall()));
            } else {
                self.report(decision, &before, in_flight);
            }
        }
        Ok(Carried::Written)
    }

    /// Waits until this job is the next whose start is written, when many are due together. What was decided stays decided: no
    /// tick is late because it waited here.
    async fn turn(&self) -> Result<Option<StartPermit>, Over> {
        if self.lease.is_none() {
            // Nothing is asked of the nodes.
            return Ok(None);
        }
        let Engine {
            name, spec, ctx, ..
        } = self.engine;
        tokio::select! {
            biased;
            () = self.closing() => Err(Over),
            permit = ctx.start_order.turn(name, spec.priority, &ctx.clock) => Ok(Some(permit)),
        }
    }

    /// Tells what was decided, also the run whose place a newer tick takes. `before` is the ledger that it was decided from.
    pub(super) fn report(&self, decision: Decision, before: &Ledger, in_flight: &InFlight<RunKey>) {
        let engine = self.engine;
        let (ticks, why) = match decision {
            Decision::Missed { ticks, why } => (ticks, why),
            Decision::Overlap { ticks } => (ticks, WhySkipped::Overlap),
            Decision::Interrupted {
                id,
                tick,
                attempt,
                action,
                exhausted,
                ..
            } => {
                let again = action == Interrupted::Rerun;
                if !again {
                    self.trigger_ended(&id, INTERRUPTED, String::new());
                    self.tell_run(&id, tick, attempt, INTERRUPTED);
                }
                let of_trigger = is_trigger_id(&id);
                if let Some(dead) = open_run(before, &RunKey { id, attempt }) {
                    engine.ctx.history.interrupted(&engine.name, dead);
                }
                tracing::warn!(
                    job = engine.name, %tick, attempt, again, exhausted,
                    "a run was interrupted: its replica died or lost its lease"
                );
                let ticks = due::Ticks::single(tick);
                if again || of_trigger {
                    return;
                }
                (ticks, WhySkipped::Interrupted)
            }
            Decision::Replaced { key, by } => {
                let why = format!("tick {by} takes its place (overlap = \"cancel-previous\")");
                return in_flight.stop(&key, &why);
            }
            Decision::Queued { ticks } => {
                tracing::debug!(
                    job = engine.name, first = %ticks.from, last = %ticks.to,
                    "all places are taken: the tick waits in the ledger"
                );
                return;
            }
            Decision::FirstSight { .. } | Decision::Start { .. } => return,
        };
        engine.tell_skipped(ticks, why);
    }

    /// Writes how a run ended. What cannot be written stays open, and the next leader finds it interrupted.
    pub(super) async fn record(
        &self,
        ledger: &mut Ledger,
        in_flight: &mut InFlight<RunKey>,
        key: &RunKey,
        ended: Ended,
    ) -> Result<(), Over> {
        // Ticks that fell due while it ran are overlap: decided while it still counts as alive.
        let plan = self.decide(ledger, in_flight, false);
        let Some(RunInFlight {
            key,
            run,
            started,
            noted: _noted,
            ..
        }) = in_flight.remove(key)
        else {
            return Ok(());
        };
        let plan = plan?;
        let mut next = plan.ledger;
        let replaced = open_run(&next, &key).is_some_and(|run| run.replaced);
        let again = self.again(&ended, key.attempt).filter(|_| !replaced);
        let closed = match again {
            Some(at) => next.retry_later(&key, self.token(), at),
            None => next.finish(&key, self.token()),
        };
        if let Err(refused) = closed {
            tracing::warn!(job = self.engine.name, %refused, "the outcome does not fit the ledger");
            return Err(Over);
        }
        let mut tells = self.note_decisions(&mut next, ledger, &plan.decisions);
        if again.is_none() {
            let of = (&run, &key);
            tells = tells.and(self.note_end(&mut next, of, &ended, replaced));
        }
        let ctx = &self.engine.ctx;
        ctx.events.tell(Event::RunEnded {
            job: self.engine.name.clone(),
            run_id: run.id().to_owned(),
            tick: run.tick(),
            attempt: key.attempt,
            outcome: ended.word(),
            detail: ended.detail(),
            took: ctx.clock.now().since(started),
        });
        let written = self.write_of(&[key.id.as_str()], &next, None).await;
        written.map_err(|_| Over)?;
        self.tell_people(tells);
        if again.is_none() {
            self.trigger_ended(&key.id, ended.word(), ended.detail());
            self.tell_run(&key.id, run.tick(), key.attempt, ended.word());
        }
        let before = std::mem::replace(ledger, next);
        for decision in plan.decisions {
            self.report(decision, &before, in_flight);
        }
        Ok(())
    }

    /// When the next attempt may start; `None` when there is none.
    fn again(&self, ended: &Ended, attempt: u32) -> Option<Timestamp> {
        let engine = self.engine;
        let now = self.wall();
        let pause = match ended {
            Ended::Done | Ended::Skipped(_) | Ended::Failed { retry: false, .. } => return None,
            Ended::RetryAfter(pause) => engine.policy.may_follow(attempt).then_some(*pause)?,
            Ended::Failed { .. } | Ended::TimedOut | Ended::Panicked(_) => {
                engine.spec.retry.pause_after(attempt)?
            }
            // Told to stop in the middle: the same as a run whose replica died, only known in time.
            Ended::Cancelled(_) => {
                let rerun = engine.policy.interrupted == Interrupted::Rerun
                    && engine.policy.may_follow(attempt)
                    && !engine.schedule.is_continuous();
                rerun.then_some(Duration::ZERO)?
            }
        };
        now.checked_add(pause).ok()
    }
}

/// This attempt, as the ledger shows it.
pub(super) fn open_run<'a>(ledger: &'a Ledger, key: &RunKey) -> Option<&'a OpenRun> {
    ledger.open().iter().find(|run| run.key() == *key)
}
