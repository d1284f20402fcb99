//! Ticks that fall due while all places are taken: they do not run, are queued, or stop a run.

use jiff::Timestamp;

use super::Table;
use crate::{
    due::{
        plan::{Decision, Facts, Ticks, WhySkipped},
        policy::Overlap,
    },
    ledger::{MAX_WAITING, Refused},
    schedule::before,
};

impl Table<'_> {
    /// All places are taken, and something has become due meanwhile.
    pub(super) fn overlap(&mut self) -> Result<(), Refused> {
        let Facts {
            policy, schedule, ..
        } = *self.facts;
        let (Some(after), due) = (self.decided(), self.due()) else {
            return Ok(());
        };
        let queue = match policy.overlap {
            Overlap::Skip | Overlap::Allow => Vec::new(),
            Overlap::Queue => schedule.between(after, due, self.room_in_queue()),
            Overlap::CancelPrevious => {
                let latest = schedule.latest(after, due, policy.concurrency);
                self.skip_overlap(latest.first().and_then(|first| before(*first)))?;
                let keep = policy.concurrency - latest.len();
                while self.ledger.queued().len() > keep {
                    let tick = self.ledger.queued()[0];
                    self.ledger.leave_queue(tick)?;
                    let ticks = Ticks::single(tick);
                    self.ledger.note_skipped(ticks.skipped(WhySkipped::Overlap));
                    self.decisions.push(Decision::Overlap { ticks });
                }
                latest
            }
        };
        self.queue(&queue)?;
        self.skip_overlap(Some(due))
    }

    /// The undecided ticks up to `upto` do not run, because all places were taken.
    fn skip_overlap(&mut self, upto: Option<Timestamp>) -> Result<(), Refused> {
        while let Some(ticks) = upto.and_then(|upto| self.undecided_upto(upto)) {
            self.ledger.skip_upto(ticks.skipped(WhySkipped::Overlap))?;
            self.decisions.push(Decision::Overlap { ticks });
        }
        Ok(())
    }

    pub(super) fn room_in_queue(&self) -> usize {
        MAX_WAITING.saturating_sub(self.ledger.queued().len())
    }

    pub(super) fn queue(&mut self, ticks: &[Timestamp]) -> Result<(), Refused> {
        let (Some(from), Some(to)) = (ticks.first(), ticks.last()) else {
            return Ok(());
        };
        ticks.iter().try_for_each(|tick| self.ledger.queue(*tick))?;
        let ticks = Ticks {
            from: *from,
            to: *to,
            count: ticks.len() as u64,
        };
        self.decisions.push(Decision::Queued { ticks });
        Ok(())
    }

    /// Makes room for ticks that do not wait for the end of a run, but cause it.
    pub(super) fn replace(&mut self) -> Result<(), Refused> {
        for by in self.without_a_place() {
            let going = self
                .running()
                .filter(|run| !run.replaced && run.ahead_of < Some(by));
            let Some(oldest) = going.min_by_key(|run| run.seq) else {
                continue;
            };
            let key = oldest.key();
            self.ledger.replace(&key)?;
            self.decisions.push(Decision::Replaced { key, by });
        }
        Ok(())
    }

    /// Queued ticks for which no run was stopped yet: there is neither a free place for them, nor a run that is ending, nor one
    /// that went ahead into a place that was made for them.
    pub(super) fn without_a_place(&self) -> Vec<Timestamp> {
        if self.facts.policy.overlap != Overlap::CancelPrevious {
            return Vec::new();
        }
        let mut ahead: Vec<Timestamp> = self.running().filter_map(|run| run.ahead_of).collect();
        ahead.sort();
        let mut ending = self.running().filter(|run| run.replaced).count();
        // Those that are free now are for the oldest, at once.
        let mut queued: Vec<Timestamp> = self.ledger.queued().to_vec();
        queued.drain(..self.free().min(queued.len()));
        queued.retain(|tick| {
            if let Some(place) = ahead.iter().position(|upto| upto >= tick) {
                ahead.remove(place);
                return false;
            }
            let is_ending = ending > 0;
            ending = ending.saturating_sub(1);
            !is_ending
        });
        queued
    }
}
