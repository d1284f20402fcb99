//! Ticks that are found too late, and those that fell into a pause: which of them run, by the misfire rule.

use jiff::Timestamp;

use super::Table;
use crate::{
    due::{
        plan::{Decision, Ticks, WhySkipped},
        policy::{Misfire, Overlap},
    },
    ledger::{MAX_WAITING, Refused},
    schedule::before,
};

impl Table<'_> {
    /// There is room: chooses among the undecided and the waiting ticks those that will run. Behind others they queue.
    pub(super) fn late(&mut self, mode: Misfire) -> Result<(), Refused> {
        let policy = self.facts.policy;
        let in_line = policy.overlap == Overlap::Queue && !self.ledger.queued().is_empty();
        let queues = in_line || mode != policy.misfire.mode;
        if queues && self.room_in_queue() == 0 {
            return self.overlap();
        }
        let places = match mode {
            Misfire::All => policy.misfire.limit.clamp(1, MAX_WAITING),
            _ => policy.misfire.places(),
        };
        let limit = if queues {
            places.min(self.room_in_queue())
        } else {
            places
        };
        let fresh = self.before_window();
        let (last, chosen) = self.chosen(mode, limit);
        let taken = if queues { 0 } else { chosen.len() };
        self.drop_waiting(policy.misfire.places().saturating_sub(taken), fresh)?;
        // The ones before the first chosen, or all of them.
        if let Some(upto) = chosen.first().map_or(last, |first| before(*first)) {
            match (mode, fresh) {
                (Misfire::Skip, _) => self.missed(upto, WhySkipped::Misfire)?,
                (_, Some(fresh)) => {
                    self.missed(fresh.min(upto), WhySkipped::Window)?;
                    self.missed(upto, WhySkipped::Limit)?;
                }
                (_, None) => self.missed(upto, WhySkipped::Limit)?,
            }
        }
        if queues {
            return self.queue(&chosen);
        }
        chosen
            .into_iter()
            .try_for_each(|tick| self.ledger.wait(tick))
    }

    /// The latest undecided tick that is due, and those of the undecided that will run, `places` at most.
    pub(super) fn chosen(
        &self,
        mode: Misfire,
        places: usize,
    ) -> (Option<Timestamp>, Vec<Timestamp>) {
        let schedule = self.facts.schedule;
        let fresh = self.before_window();
        let last = self
            .decided()
            .and_then(|upto| schedule.latest_upto(upto, self.due()));
        let chosen = match (last, mode) {
            (None, _) => Vec::new(),
            (Some(last), Misfire::All) => {
                let after = self.decided().into_iter().chain(fresh).max();
                let mut ticks = match after {
                    Some(after) => schedule.latest(after, last, places),
                    None => Vec::new(),
                };
                if ticks.is_empty() && self.on_time(last) {
                    ticks.push(last);
                }
                ticks
            }
            (Some(last), Misfire::Once) if fresh.is_none_or(|t| last > t) => vec![last],
            (Some(last), _) if self.on_time(last) => vec![last],
            (Some(_), _) => Vec::new(),
        };
        (last, chosen)
    }

    /// Waiting ticks may have grown too old, or later ones need their places.
    fn drop_waiting(&mut self, places: usize, fresh: Option<Timestamp>) -> Result<(), Refused> {
        let waiting = self.ledger.waiting().to_vec();
        let mut left = waiting.len();
        for tick in waiting {
            let why = match self.facts.policy.misfire.mode {
                _ if left > places => WhySkipped::Limit,
                _ if self.on_time(tick) => continue,
                Misfire::Skip => WhySkipped::Misfire,
                _ if fresh.is_some_and(|fresh| tick <= fresh) => WhySkipped::Window,
                _ => continue,
            };
            left -= 1;
            self.late_no_longer(tick, why)?;
        }
        Ok(())
    }

    /// The waiting tick is missed.
    pub(super) fn late_no_longer(
        &mut self,
        tick: Timestamp,
        why: WhySkipped,
    ) -> Result<(), Refused> {
        self.ledger.wait_no_longer(tick)?;
        self.note_missed(tick, why);
        Ok(())
    }

    pub(super) fn note_missed(&mut self, tick: Timestamp, why: WhySkipped) {
        let ticks = Ticks::single(tick);
        self.ledger.note_skipped(ticks.skipped(why));
        self.decisions.push(Decision::Missed { ticks, why });
    }

    /// The undecided ticks up to `upto` are missed.
    pub(super) fn missed(&mut self, upto: Timestamp, why: WhySkipped) -> Result<(), Refused> {
        while let Some(ticks) = self.undecided_upto(upto) {
            self.ledger.skip_upto(ticks.skipped(why))?;
            self.decisions.push(Decision::Missed { ticks, why });
        }
        Ok(())
    }
}
