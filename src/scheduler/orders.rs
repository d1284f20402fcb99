//! What a leader does about triggers and resignations, and what candidates do when a job is to go to one of them.
//!
//! # Invariants
//! - A trigger is started once: its id stands in the ledger before its run begins, and stays known there.
//!   (a_trigger_runs_exactly_once_also_when_the_leader_dies_at_once)
//! - A trigger is told of as withdrawn when its id stands in the ledger, so that no copy that comes back starts.
//!   (a_withdrawn_trigger_that_comes_back_does_not_run)
//! - A job that is to go to a replica which does not take it goes to another one a ttl later.
//!   (a_job_handed_to_a_dead_replica_goes_to_another_one)

use std::time::Duration;

use jiff::Timestamp;

use super::{
    Context, Engine, Pass, intents,
    lead::{Lead, Over},
};
use crate::{
    clock::Moment,
    due::{Decision, Plan},
    intent::{self, NEWS_LIFETIME, Resign, TRIGGER_LIFETIME, Trigger, TriggerParams, TriggerState},
    ledger::Ledger,
    node::Token,
    status::{PRESENCE_PREFIX, Presence, Standing},
};

/// What a leader waits for before it gives up a job that is to go to a certain replica: the others must have heard of it.
const HEARD_BY_ALL: Duration = intents::INTERVAL.saturating_mul(2);

/// Time between two looks of a candidate that stands back for another one.
const LOOK: Duration = Duration::from_millis(200);

/// How long a leader waits for the end of a run before it keeps a job that it was to give away between two runs.
const RUNS_ON: Duration = Duration::from_secs(30);

/// How a trigger ended that was not to start.
const WITHDRAWN: &str = "withdrawn";

/// A wish that this term is given up, and from when on it is done.
#[derive(Debug, Default)]
pub(super) struct Notice(Option<(Resign, Moment)>);

/// What a leader does about such a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    /// It resigns.
    Now,
    /// Not yet.
    Wait,
    /// It stays, and says so: those who stand back need not any more.
    Stay,
}

/// `since_due`: since everybody has heard of it, `None` before that.
fn leave(asked: &Resign, since_due: Option<Duration>, busy: bool, taker: bool) -> Leave {
    let Some(waited) = since_due else {
        return Leave::Wait;
    };
    match (asked.between_runs, busy) {
        (false, _) => Leave::Now,
        (true, _) if !taker => Leave::Stay,
        (true, false) => Leave::Now,
        (true, true) if waited >= RUNS_ON => Leave::Stay,
        (true, true) => Leave::Wait,
    }
}

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
        // Whoever ended it died before it could tell, or the lock nodes have forgotten.
        Fate::Ended("unknown")
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

impl Lead<'_> {
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
    /// node or replica may have of the wish.
    pub(super) async fn note_withdrawn(&self, ledger: &mut Ledger) -> Result<(), Over> {
        if self.lease.is_none() {
            return Ok(());
        }
        let now = self.wall();
        let known = self.engine.ctx.intents.triggers(&self.engine.name);
        let (mut waits, mut withdrawn) = (None, Vec::new());
        for trigger in known {
            match fate(&trigger, ledger, now) {
                Fate::Run if waits.is_none() => waits = Some(trigger.id),
                Fate::Withdrawn => withdrawn.push(trigger),
                _ => {}
            }
        }
        if withdrawn.is_empty() {
            return Ok(());
        }
        let mut next = ledger.clone();
        let over = now.checked_sub(TRIGGER_LIFETIME + NEWS_LIFETIME);
        next.forget_withdrawn_before(&intent::trigger_floor(over.unwrap_or(Timestamp::MIN)));
        // Where there is no room they stay withdrawn, and it is said later.
        withdrawn.retain(|trigger| next.withdraw_trigger(&trigger.id, waits.as_deref()));
        if withdrawn.is_empty() {
            return Ok(());
        }
        if self.write(&next, None).await.is_err() {
            return Err(Over);
        }
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
        // Nobody needs it any more, and it may hold secrets.
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

    /// Whether this term is to be given up now, as somebody wishes. `busy`: a run is in flight.
    pub(super) fn leaves(&self, notice: &mut Notice, busy: bool) -> bool {
        let Some(asked) = self.asked_to_resign() else {
            *notice = Notice::default();
            return false;
        };
        let (ctx, now) = (&self.engine.ctx, self.clock().now());
        let known = notice.0.as_ref().filter(|(known, _)| *known == asked);
        let due = known.map_or_else(
            || match asked.to {
                // Where it shall go to a certain one the others stand back first.
                Some(_) => now + HEARD_BY_ALL,
                None => now,
            },
            |(_, due)| *due,
        );
        notice.0 = Some((asked.clone(), due));
        let to = asked.to.as_deref().unwrap_or_default();
        let taker = ctx.place.stands_by(to, &self.engine.name);
        match leave(&asked, (now >= due).then(|| now.since(due)), busy, taker) {
            Leave::Now => true,
            Leave::Wait => false,
            Leave::Stay => {
                tracing::info!(job = self.engine.name, to, "keeps its term after all");
                let chance = u16::try_from(ctx.chance.below(1 << 16)).unwrap_or(0);
                let (token, to) = (Token(0), None);
                ctx.intents.ask(Resign { token, to, ..asked }, chance);
                false
            }
        }
    }

    /// The wish that this term is given up, unless this replica is the one that shall lead.
    pub(super) fn asked_to_resign(&self) -> Option<Resign> {
        let ctx = &self.engine.ctx;
        // In failover mode every job is where the replica lock is.
        let lease = self
            .lease
            .as_ref()
            .filter(|_| self.pass.lease().is_none())?;
        let asked = ctx.intents.resign(&self.engine.name)?;
        let to_me = asked.to.as_ref() == Some(&ctx.replica);
        (asked.token >= lease.token() && !to_me).then_some(asked)
    }
}

impl Notice {
    /// When there is something to decide again that no change of a run or of a wish tells of.
    pub(super) fn wake(&self, now: Moment) -> Moment {
        match &self.0 {
            Some((_, due)) if now < *due => *due,
            Some((asked, due)) if asked.between_runs && now < *due + RUNS_ON => *due + RUNS_ON,
            _ => Moment::NEVER,
        }
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

    /// Completes with a wish that another replica than this one leads next, unless it is `done` with already.
    pub(super) async fn stands_back(&self, done: Option<&Resign>) -> Resign {
        let intents = &self.ctx.intents;
        let mut seen = intents.seen();
        loop {
            let asked = intents.resign(&self.name);
            if let Some(asked) = asked
                && asked.to.as_ref().is_some_and(|to| *to != self.ctx.replica)
                && done != Some(&asked)
            {
                return asked;
            }
            intents.changed(&mut seen).await;
        }
    }

    /// Lets the one that is to lead go first: until somebody leads in a later term, or nobody has led for a ttl.
    pub(super) async fn stand_back(&self, asked: &Resign, pass: &Pass) {
        let Context { clock, locks, .. } = &self.ctx;
        let ttl = self.spec.ttl.unwrap_or(locks.timing().ttl);
        let mut free = None;
        while !pass.is_over() {
            if self.ctx.intents.resign(&self.name).as_ref() != Some(asked) {
                // Somebody has thought better of it.
                return;
            }
            let docs = locks.docs(PRESENCE_PREFIX).await.unwrap_or_default();
            let leads = leader(&Presence::from_docs(&docs), &self.name);
            match leads {
                Some(token) if token > asked.token.0 => return,
                Some(_) => free = None,
                None if clock.now().since(*free.get_or_insert(clock.now())) >= ttl => return,
                None => {}
            }
            tokio::select! {
                biased;
                () = pass.over() => {}
                () = clock.sleep(LOOK) => {}
            }
        }
    }
}

/// The largest token under which somebody says to lead the job.
fn leader(presences: &[Presence], job: &str) -> Option<u64> {
    let jobs = presences.iter().flat_map(|presence| &presence.jobs);
    let terms = jobs.filter(|j| j.name == job && j.standing == Standing::Leading);
    terms.filter_map(|j| j.token).map(|token| token.0).max()
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

    #[test]
    fn a_leader_leaves_when_all_have_heard_and_between_two_runs_where_that_is_asked() {
        let now = Some(Duration::ZERO);
        let person = Resign::default();
        assert_eq!(leave(&person, None, false, true), Leave::Wait);
        assert_eq!(leave(&person, now, true, false), Leave::Now);
        let fleet = Resign {
            between_runs: true,
            ..Resign::default()
        };
        assert_eq!(leave(&fleet, None, false, false), Leave::Wait);
        assert_eq!(leave(&fleet, now, false, true), Leave::Now);
        assert_eq!(leave(&fleet, now, true, true), Leave::Wait);
        assert_eq!(leave(&fleet, Some(RUNS_ON), true, true), Leave::Stay);
        assert_eq!(leave(&fleet, now, false, false), Leave::Stay, "it has gone");
    }

    #[test]
    fn the_latest_term_that_anybody_tells_of_counts() {
        let presence = |token: u64, standing| Presence {
            jobs: vec![crate::status::JobPresence {
                name: "job".to_owned(),
                token: Some(Token(token)),
                standing,
                ..Default::default()
            }],
            ..Presence::default()
        };
        let old = presence(3, Standing::Leading);
        let new = presence(4, Standing::Leading);
        assert_eq!(leader(&[old.clone(), new], "job"), Some(4));
        assert_eq!(leader(&[presence(3, Standing::StandingBy)], "job"), None);
        assert_eq!(leader(&[old], "mail"), None);
    }
}
