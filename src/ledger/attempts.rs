//! Attempts: how they start, what they leave for the next one, and how they end.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::params::TriggerParams;
use super::{
    Ledger, OpenRun, Refused, RunKey, RunState,
    limits::{MAX_CHECKPOINT, MAX_OPEN},
    triggers::is_trigger_id,
};
use crate::node::Token;

/// Between the instants of two triggers that start together.
const APART: SignedDuration = SignedDuration::from_millis(1);

impl Ledger {
    /// What is open counts as started under this token: the ledger has come from a store whose tokens are others.
    #[cfg(feature = "cli")]
    pub(crate) fn open_under(&mut self, token: Token) {
        for run in &mut self.open {
            run.token = token;
        }
    }

    /// A newer tick takes the place of this running attempt: it is told to stop, and no other follows.
    ///
    /// # Errors
    /// [`Refused::NotOpen`], [`Refused::Moved`] when it is not running, or in another attempt.
    pub(crate) fn replace(&mut self, key: &RunKey) -> Result<(), Refused> {
        self.attempt(key)?.replaced = true;
        Ok(())
    }

    /// This attempt was started in a place that the queued ticks up to `tick` had asked for.
    ///
    /// # Errors
    /// [`Refused::NotOpen`], [`Refused::Moved`].
    pub(crate) fn goes_ahead_of(&mut self, key: &RunKey, tick: Timestamp) -> Result<(), Refused> {
        self.attempt(key)?.ahead_of = Some(tick);
        Ok(())
    }

    /// Attempt 1 of a tick starts. Undecided ticks before it are decided with it: report them first.
    ///
    /// # Errors
    /// [`Refused::Decided`], [`Refused::Full`], [`Refused::Unseen`].
    pub(crate) fn start_tick(
        &mut self,
        tick: Timestamp,
        token: Token,
    ) -> Result<&OpenRun, Refused> {
        let upto = self.seen()?;
        let waits = self.waiting.contains(&tick) || self.queued.contains(&tick);
        if (tick <= upto || self.has_run_ahead(tick)) && !waits {
            return Err(Refused::Decided { tick, upto });
        }
        self.has_room()?;
        self.waiting.retain(|waiting| *waiting != tick);
        self.queued.retain(|queued| *queued != tick);
        self.decide_upto(tick)?;
        Ok(self.open_run(tick.to_string(), tick, token))
    }

    /// Attempt 1 of a trigger starts: now, or a moment later where another run has this instant.
    ///
    /// # Errors
    /// [`Refused::KnownTrigger`], [`Refused::NotATrigger`], [`Refused::Full`], [`Refused::Unseen`].
    pub(crate) fn start_trigger(
        &mut self,
        id: &str,
        now: Timestamp,
        token: Token,
    ) -> Result<&OpenRun, Refused> {
        self.seen()?;
        if !is_trigger_id(id) {
            return Err(Refused::NotATrigger { id: id.to_owned() });
        }
        if self.knows_trigger(id) {
            return Err(Refused::KnownTrigger { id: id.to_owned() });
        }
        self.has_room()?;
        self.remember_trigger(id);
        // Of several that start together each has an instant of its own: receivers and commands know works by it. There is no room for
        // so many that this would lead far from now.
        let mut tick = now;
        while self.open.iter().any(|run| run.tick == tick) {
            let Ok(later) = tick.checked_add(APART) else {
                break;
            };
            tick = later;
        }
        Ok(self.open_run(id.to_owned(), tick, token))
    }

    /// The next attempt of a run in state `retry` starts.
    ///
    /// # Errors
    /// [`Refused::NotOpen`], [`Refused::Moved`] when it is running, [`Refused::Outranked`].
    pub(crate) fn start_again(&mut self, id: &str, token: Token) -> Result<&OpenRun, Refused> {
        let seq = self.runs + 1;
        let run = self.run(id)?;
        outranked(run, token)?;
        if run.state != RunState::Retry {
            return Err(moved(run));
        }
        run.seq = seq;
        run.attempt += 1;
        run.state = RunState::Running;
        run.token = token;
        run.not_before = None;
        run.ahead_of = None;
        self.runs = seq;
        self.run(id).map(|run| &*run)
    }

    /// This attempt, started under `token`, has ended and another one follows, no earlier than `not_before`.
    ///
    /// # Errors
    /// [`Refused::NotOpen`], [`Refused::Moved`], [`Refused::Replaced`].
    pub(crate) fn retry_later(
        &mut self,
        key: &RunKey,
        token: Token,
        not_before: Timestamp,
    ) -> Result<(), Refused> {
        let run = self.running(key, token)?;
        another_may_follow(run)?;
        run.state = RunState::Retry;
        run.not_before = Some(not_before);
        run.interrupted = false;
        Ok(())
    }

    /// This attempt, started under `token`, has ended and no other follows, however it ended: done, skipped, failed for good.
    ///
    /// # Errors
    /// [`Refused::NotOpen`], [`Refused::Moved`].
    pub(crate) fn finish(&mut self, key: &RunKey, token: Token) -> Result<(), Refused> {
        self.running(key, token)?;
        self.open.retain(|run| run.id != key.id);
        Ok(())
    }

    /// This attempt, started under `token`, leaves something for the next one.
    ///
    /// # Errors
    /// [`Refused::NotOpen`], [`Refused::Moved`], [`Refused::CheckpointTooLarge`].
    pub(crate) fn save_checkpoint(
        &mut self,
        key: &RunKey,
        token: Token,
        checkpoint: Value,
    ) -> Result<(), Refused> {
        let size = checkpoint.to_string().len();
        if size > MAX_CHECKPOINT {
            return Err(Refused::CheckpointTooLarge { size });
        }
        self.running(key, token)?.checkpoint = Some(checkpoint);
        Ok(())
    }

    /// The attempt died with its holder; the next one may start from `not_before`. Said by a holder with `token`.
    ///
    /// # Errors
    /// [`Refused::NotOpen`], [`Refused::Moved`], [`Refused::Outranked`], [`Refused::Replaced`].
    pub(crate) fn interrupt(
        &mut self,
        key: &RunKey,
        token: Token,
        not_before: Timestamp,
    ) -> Result<(), Refused> {
        let run = self.dead(key, token)?;
        another_may_follow(run)?;
        run.state = RunState::Retry;
        run.not_before = Some(not_before);
        run.interrupted = true;
        Ok(())
    }

    /// The attempt died with its holder and no other follows. Said by a holder with `token`.
    ///
    /// # Errors
    /// [`Refused::NotOpen`], [`Refused::Moved`], [`Refused::Outranked`].
    pub(crate) fn give_up(&mut self, key: &RunKey, token: Token) -> Result<(), Refused> {
        self.dead(key, token)?;
        self.open.retain(|run| run.id != key.id);
        Ok(())
    }

    /// Every attempt of this run gets these parameters. Nothing happens when it is not open.
    pub(crate) fn keep_given(&mut self, id: &str, given: &TriggerParams) {
        if let Some(run) = self.open.iter_mut().find(|run| run.id == id) {
            run.given = given.clone();
        }
    }

    /// The checkpoint of this attempt was saved at that time. Nothing happens when it is not open.
    pub(crate) fn note_checkpoint(&mut self, key: &RunKey, at: Timestamp) {
        if let Some(run) = self.open.iter_mut().find(|run| run.key() == *key) {
            run.checkpoint_at = Some(at);
        }
    }

    fn has_room(&self) -> Result<(), Refused> {
        if self.open.len() < MAX_OPEN {
            Ok(())
        } else {
            Err(Refused::Full)
        }
    }

    fn open_run(&mut self, id: String, tick: Timestamp, token: Token) -> &OpenRun {
        let place = self.open.len();
        self.runs += 1;
        self.open.push(OpenRun::first(id, tick, token, self.runs));
        &self.open[place]
    }

    fn run(&mut self, id: &str) -> Result<&mut OpenRun, Refused> {
        let run = self.open.iter_mut().find(|run| run.id == id);
        run.ok_or_else(|| Refused::NotOpen { id: id.to_owned() })
    }

    /// The run, when exactly this attempt of it is running.
    fn attempt(&mut self, key: &RunKey) -> Result<&mut OpenRun, Refused> {
        let run = self.run(&key.id)?;
        if run.attempt != key.attempt || run.state != RunState::Running {
            return Err(moved(run));
        }
        Ok(run)
    }

    /// The same, when it was started under this token.
    fn running(&mut self, key: &RunKey, token: Token) -> Result<&mut OpenRun, Refused> {
        let run = self.attempt(key)?;
        if run.token != token {
            return Err(moved(run));
        }
        Ok(run)
    }

    /// The same, when it was started under a token that is not newer than `token`.
    fn dead(&mut self, key: &RunKey, token: Token) -> Result<&mut OpenRun, Refused> {
        outranked(self.run(&key.id)?, token)?;
        self.attempt(key)
    }
}

fn another_may_follow(run: &OpenRun) -> Result<(), Refused> {
    match run.replaced {
        true => Err(Refused::Replaced { id: run.id.clone() }),
        false => Ok(()),
    }
}

fn outranked(run: &OpenRun, token: Token) -> Result<(), Refused> {
    match run.token > token {
        true => Err(Refused::Outranked {
            id: run.id.clone(),
            token: run.token,
        }),
        false => Ok(()),
    }
}

fn moved(run: &OpenRun) -> Refused {
    Refused::Moved {
        id: run.id.clone(),
        attempt: run.attempt,
        state: run.state,
        token: run.token,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_trigger_gives_is_kept_for_every_attempt_and_shown_by_name() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut ledger = Ledger::default();
        ledger.first_sight(at(100)).unwrap();
        let key = ledger.start_trigger("t", at(110), Token(1)).unwrap().key();
        let given = TriggerParams::read(None, &["password=hunter2".to_owned()]).unwrap();
        ledger.keep_given("t", &given);
        ledger.save_checkpoint(&key, Token(1), json!(7)).unwrap();
        ledger.note_checkpoint(&key, at(115));
        ledger.interrupt(&key, Token(2), at(120)).unwrap();
        let mut read = Ledger::from_body(&ledger.to_body()).unwrap();
        assert_eq!(read, ledger);
        let again = read.start_again("t", Token(2)).unwrap();
        assert_eq!(
            again.given.over(&Value::Null),
            json!({"password": "hunter2"})
        );
        assert_eq!(again.checkpoint_at, Some(at(115)));
        assert!(!format!("{read:?}").contains("hunter2"));
    }
}
