//! What starts next where a place is free.

use super::Table;
use crate::{
    due::{
        plan::{Decision, Facts},
        policy::Overlap,
    },
    ledger::{self, MAX_OPEN, Refused, ids::trigger_floor},
};

impl Table<'_> {
    /// Starts at most one run; says whether it did.
    pub(super) fn start(&mut self) -> Result<bool, Refused> {
        let Facts {
            policy,
            token,
            now,
            triggers,
            ..
        } = *self.facts;
        let room = self.ledger.open().len() < MAX_OPEN;
        let queued = self.ledger.queued().first().copied().filter(|_| room);
        let waiting = self.ledger.waiting().first().copied().filter(|_| room);
        let waiting = waiting.into_iter().chain(queued).min();
        let retry = self
            .retries()
            .filter(|(at, ..)| *at <= now)
            .min()
            .map(|(at, _, id)| (at, id.to_owned()));
        let new =
            |id: &&String| room && ledger::is_trigger_id(id) && !self.ledger.knows_trigger(id);
        let trigger = triggers.iter().find(new);
        // A tick on time goes first; late ones that wait before it keep their order behind the retries.
        let prompt = waiting.filter(|tick| queued != Some(*tick) && self.on_time(*tick));
        // A tick that has stopped a run is what that place was made for, but an attempt or a trigger that has waited for longer goes ahead: with
        // runs that outlast the interval there is a queued tick whenever a place is free.
        let made = queued.filter(|_| policy.overlap == Overlap::CancelPrevious);
        let (retry, trigger) = match made {
            Some(tick) => (
                retry.filter(|(at, ..)| *at <= tick),
                trigger.filter(|id| **id < trigger_floor(tick)),
            ),
            None => (retry, trigger),
        };
        let prompt = match retry.is_some() || trigger.is_some() {
            true => prompt,
            false => made.or(prompt),
        };
        let run = if let Some(tick) = prompt {
            self.ledger.start_tick(tick, token)?
        } else if let Some((_, id)) = retry {
            self.ledger.start_again(&id, token)?
        } else if let Some(id) = trigger {
            self.ledger.start_trigger(id, now, token)?
        } else if let Some(tick) = waiting {
            self.ledger.start_tick(tick, token)?
        } else if self.restart_at().is_some_and(|at| at <= now) {
            self.ledger.start_tick(now, token)?
        } else {
            return Ok(false);
        };
        let run = run.clone();
        self.started += 1;
        // It has the place that a run was stopped for: the tick that was to have it stops no second one.
        if let Some(last) = self.without_a_place().last() {
            self.ledger.goes_ahead_of(&run.key(), *last)?;
        }
        self.decisions.push(Decision::Start {
            id: run.id.clone(),
            tick: run.tick,
            attempt: run.attempt,
            interrupted: run.interrupted,
            checkpoint: run.checkpoint.clone(),
        });
        Ok(true)
    }
}
