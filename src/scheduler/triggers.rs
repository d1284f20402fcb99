//! What a leader does about triggers.
//!
//! # Invariants
//! - A trigger is started once: its id stands in the ledger before its run begins, and stays known there.
//!   (a_trigger_runs_exactly_once_also_when_the_leader_dies_at_once)
//! - A trigger is told of as withdrawn when its id stands in the ledger, so that no copy that comes back starts.
//!   (a_withdrawn_trigger_that_comes_back_does_not_run)

use jiff::Timestamp;

use super::{
    engine::Engine,
    term::{Over, TermLoop},
};
use crate::{
    due::{Decision, Plan},
    intent::{self, NEWS_LIFETIME, TRIGGER_LIFETIME, Trigger, TriggerParams, TriggerState},
    ledger::Ledger,
};

/// How a trigger ended that was not to start.
const WITHDRAWN: &str = "withdrawn";

/// How a trigger ended whose leader could not tell.
const UNKNOWN: &str = "unknown";

/// What becomes of a trigger now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is to run.
    Run,
    /// Its run is open.
    Open,
    /// It is not to start; the ledger does not know that yet.
    Withdrawn,
    /// It has ended, or never begins.
    Ended(&'static str),
}

fn fate(trigger: &Trigger, ledger: &Ledger, now: Timestamp) -> Fate {
    if ledger.open().iter().any(|run| run.id == trigger.id) {
        Fate::Open
    } else if ledger.has_withdrawn(&trigger.id) {
        Fate::Ended(WITHDRAWN)
    } else if ledger.knows_trigger(&trigger.id) {
        // The leader that ended it died before it could tell, or the lock nodes have forgotten.
        Fate::Ended(UNKNOWN)
    } else if trigger.state == TriggerState::Withdrawing {
        // Written by a majority, and a leader reads a majority before it decides anything: no later one starts it either.
        match trigger.is_expired(now) {
            // So is every copy of it.
            true => Fate::Ended(WITHDRAWN),
            false => Fate::Withdrawn,
        }
    } else if trigger.is_expired(now) {
        Fate::Ended("expired")
    } else {
        Fate::Run
    }
}

/// The ledger in which triggers that are withdrawn never start, and which these are; `None` where there is none, or no room for any: they
/// stay withdrawn then, and it is said later.
fn without_withdrawn(
    ledger: &Ledger,
    known: Vec<Trigger>,
    now: Timestamp,
) -> Option<(Ledger, Vec<Trigger>)> {
    let (mut waits, mut withdrawn) = (None, Vec::new());
    for trigger in known {
        match fate(&trigger, ledger, now) {
            Fate::Run if waits.is_none() => waits = Some(trigger.id),
            Fate::Withdrawn => withdrawn.push(trigger),
            _ => {}
        }
    }
    if withdrawn.is_empty() {
        return None;
    }
    let mut next = ledger.clone();
    let over = now.checked_sub(TRIGGER_LIFETIME + NEWS_LIFETIME);
    next.forget_withdrawn_before(&intent::trigger_floor(over.unwrap_or(Timestamp::MIN)));
    withdrawn.retain(|trigger| next.withdraw_trigger(&trigger.id, waits.as_deref()));
    (!withdrawn.is_empty()).then_some((next, withdrawn))
}

impl TermLoop<'_> {
    /// The triggers that are to run, oldest first; takes note of those that are news.
    pub(super) fn triggers(&self, ledger: &Ledger) -> Vec<String> {
        let ctx = &self.engine.ctx;
        if self.lease.is_none() {
            // Every replica would run it.
            return Vec::new();
        }
        let mut asked = Vec::new();
        for trigger in ctx.intents.triggers(&self.engine.name) {
            match fate(&trigger, ledger, self.wall()) {
                Fate::Run => {
                    asked.push(trigger.id.clone());
                    if trigger.state < TriggerState::Accepted {
                        self.say(trigger, TriggerState::Accepted);
                    }
                }
                Fate::Open if trigger.state < TriggerState::Started => {
                    self.say(trigger, TriggerState::Started);
                }
                Fate::Open | Fate::Withdrawn => {}
                Fate::Ended(WITHDRAWN) => self.say_withdrawn(trigger),
                Fate::Ended(outcome) => self.say_ended(trigger, outcome, String::new()),
            }
        }
        asked
    }

    /// Writes which triggers never start, then says so: what is said of them is forgotten long before the last copy that some
    /// node or replica may have of the intent.
    pub(super) async fn note_withdrawn(&self, ledger: &mut Ledger) -> Result<(), Over> {
        if self.lease.is_none() {
            return Ok(());
        }
        let known = self.engine.ctx.intents.triggers(&self.engine.name);
        let Some((next, withdrawn)) = without_withdrawn(ledger, known, self.wall()) else {
            return Ok(());
        };
        self.write(&next, None).await.map_err(|_| Over)?;
        *ledger = next;
        for trigger in withdrawn {
            self.say_withdrawn(trigger);
        }
        Ok(())
    }

    /// What a trigger gives its run is written with the start, so that every attempt has it, wherever that runs.
    pub(super) fn keep_given(&self, plan: &mut Plan) {
        for decision in &plan.decisions {
            if let Decision::Start { id, attempt: 1, .. } = decision
                && let Some(trigger) = self.trigger(id)
            {
                plan.ledger.keep_given(id, &trigger.given);
            }
        }
    }

    /// The run of a trigger has started; nothing for that of a tick.
    pub(super) fn trigger_started(&self, id: &str, run_id: &str) {
        if let Some(mut trigger) = self.trigger(id) {
            run_id.clone_into(&mut trigger.run_id);
            self.say(trigger, TriggerState::Started);
        }
    }

    /// No attempt follows; nothing for the run of a tick.
    pub(super) fn trigger_ended(&self, id: &str, outcome: &str, detail: String) {
        if let Some(trigger) = self.trigger(id) {
            self.say_ended(trigger, outcome, detail);
        }
    }

    fn trigger(&self, id: &str) -> Option<Trigger> {
        let mut known = self
            .engine
            .ctx
            .intents
            .triggers(&self.engine.name)
            .into_iter();
        known.find(|trigger| trigger.id == id)
    }

    fn say_withdrawn(&self, trigger: Trigger) {
        let detail = match trigger.withdrawn_by.as_str() {
            // An old copy.
            "" => String::new(),
            by => format!("by {by}"),
        };
        self.say_ended(trigger, WITHDRAWN, detail);
    }

    fn say_ended(&self, mut trigger: Trigger, outcome: &str, detail: String) {
        outcome.clone_into(&mut trigger.outcome);
        trigger.detail = detail;
        // No attempt needs it any more, and it may hold secrets.
        trigger.given = TriggerParams::default();
        trigger.ended = Some(self.wall());
        self.say(trigger, TriggerState::Ended);
    }

    fn say(&self, mut trigger: Trigger, state: TriggerState) {
        let ctx = &self.engine.ctx;
        trigger.state = state;
        trigger.replica.clone_from(&ctx.replica);
        ctx.intents.say(trigger);
    }
}

impl Engine {
    /// The triggers that are to run, oldest first, as far as this ledger tells; a look that changes nothing.
    pub(super) fn triggers_to_run(&self, ledger: &Ledger) -> Vec<String> {
        let now = self.ctx.locks.wall();
        let asked = self.ctx.intents.triggers(&self.name).into_iter();
        let runs = asked.filter(|trigger| fate(trigger, ledger, now) == Fate::Run);
        runs.map(|trigger| trigger.id).collect()
    }

    /// Whether something is to be said of a trigger that none but a holder of the lock says: how it has ended, or that it never
    /// starts.
    pub(super) fn has_untold_trigger(&self, ledger: &Ledger) -> bool {
        let now = self.ctx.locks.wall();
        let known = self.ctx.intents.triggers(&self.name);
        let living = self.ctx.peers.others(self.ctx.clock.now());
        let ended = |trigger: &Trigger| match fate(trigger, ledger, now) {
            // While the replica that has run it lives, it says how that has ended, and knows better.
            Fate::Ended(UNKNOWN) => !living.contains(&trigger.replica),
            fate => matches!(fate, Fate::Ended(_)),
        };
        known.iter().any(ended) || without_withdrawn(ledger, known, now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Token;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_trigger_runs_until_the_ledger_knows_it_or_its_time_is_over() {
        let trigger = Trigger {
            id: "t-1".to_owned(),
            asked: at(1000),
            ..Trigger::default()
        };
        let mut ledger = Ledger::default();
        ledger.first_sight(at(900)).unwrap();
        assert_eq!(fate(&trigger, &ledger, at(1001)), Fate::Run);
        assert_eq!(fate(&trigger, &ledger, at(200_000)), Fate::Ended("expired"));
        let key = ledger
            .start_trigger("t-1", at(1001), Token(3))
            .unwrap()
            .key();
        assert_eq!(fate(&trigger, &ledger, at(200_000)), Fate::Open);
        ledger.finish(&key, Token(3)).unwrap();
        assert_eq!(fate(&trigger, &ledger, at(1002)), Fate::Ended("unknown"));
    }

    #[test]
    fn a_trigger_is_withdrawn_once_the_ledger_knows_it() {
        let asked = Trigger {
            id: "t-1".to_owned(),
            asked: at(1000),
            ..Trigger::default()
        };
        let withdrawing = Trigger {
            state: TriggerState::Withdrawing,
            ..asked.clone()
        };
        let mut ledger = Ledger::default();
        ledger.first_sight(at(900)).unwrap();
        assert_eq!(fate(&withdrawing, &ledger, at(1001)), Fate::Withdrawn);
        assert!(ledger.withdraw_trigger("t-1", None));
        for copy in [withdrawing, asked] {
            assert_eq!(fate(&copy, &ledger, at(1001)), Fate::Ended(WITHDRAWN));
        }
    }
}
