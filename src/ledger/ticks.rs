//! What is decided of ticks: they are seen first, skipped, wait, or are queued.

use jiff::Timestamp;

use super::{
    Ledger, Refused, Skipped,
    limits::{MAX_SKIPPED, MAX_WAITING},
};

impl Ledger {
    /// The job is seen for the first time: nothing at or before `now` will run.
    ///
    /// # Errors
    /// [`Refused::Seen`].
    pub(crate) fn first_sight(&mut self, now: Timestamp) -> Result<(), Refused> {
        match self.decided_upto {
            Some(upto) => Err(Refused::Seen { upto }),
            None => {
                self.decided_upto = Some(now);
                let since = u64::try_from(now.as_millisecond()).unwrap_or(0);
                self.runs = self.runs.max(since);
                Ok(())
            }
        }
    }

    /// Every tick up to `upto` is decided. Going back is no error and changes nothing.
    ///
    /// # Errors
    /// [`Refused::Unseen`].
    pub(crate) fn decide_upto(&mut self, upto: Timestamp) -> Result<(), Refused> {
        let decided = self.seen()?;
        self.decided_upto = Some(decided.max(upto));
        self.pass_spans();
        Ok(())
    }

    /// These ticks, the first of which is the first undecided one, will not run.
    ///
    /// # Errors
    /// [`Refused::Unseen`].
    pub(crate) fn skip_upto(&mut self, skipped: Skipped) -> Result<(), Refused> {
        let (upto, to) = (self.seen()?, skipped.to);
        match self.skipped.last_mut() {
            // Nothing was decided in between: one row.
            Some(last)
                if last.to == upto
                    && last.why == skipped.why
                    && self.ran_ahead.iter().all(|ran| ran.from > to) =>
            {
                last.to = to;
                last.count = last.count.saturating_add(skipped.count);
            }
            _ => self.note_skipped(skipped),
        }
        self.decide_upto(to)
    }

    /// Remembers that these ticks, decided already, will not run.
    pub(crate) fn note_skipped(&mut self, skipped: Skipped) {
        if self.skipped.len() >= MAX_SKIPPED {
            self.skipped.remove(0);
        }
        self.skipped.push(skipped);
    }

    /// The tick will run as soon as nothing else does. Undecided ticks before it are decided with it: report them
    /// first.
    ///
    /// # Errors
    /// [`Refused::Decided`], [`Refused::TooManyWaiting`], [`Refused::Unseen`].
    pub(crate) fn wait(&mut self, tick: Timestamp) -> Result<(), Refused> {
        self.put_off(tick, |ledger| &mut ledger.waiting)
    }

    /// The waiting tick will not run.
    ///
    /// # Errors
    /// [`Refused::NotOpen`] when it does not wait.
    pub(crate) fn wait_no_longer(&mut self, tick: Timestamp) -> Result<(), Refused> {
        take(&mut self.waiting, tick)
    }

    /// The tick will run as soon as a place is free. Undecided ticks before it are decided with it: report them first.
    ///
    /// # Errors
    /// [`Refused::Decided`], [`Refused::TooManyWaiting`], [`Refused::Unseen`].
    pub(crate) fn queue(&mut self, tick: Timestamp) -> Result<(), Refused> {
        self.put_off(tick, |ledger| &mut ledger.queued)
    }

    /// The queued tick will not run.
    ///
    /// # Errors
    /// [`Refused::NotOpen`] when it is not queued.
    pub(crate) fn leave_queue(&mut self, tick: Timestamp) -> Result<(), Refused> {
        take(&mut self.queued, tick)
    }

    fn put_off(
        &mut self,
        tick: Timestamp,
        list: impl Fn(&mut Self) -> &mut Vec<Timestamp>,
    ) -> Result<(), Refused> {
        let upto = self.seen()?;
        if tick <= upto || self.has_run_ahead(tick) {
            return Err(Refused::Decided { tick, upto });
        }
        let list = list(self);
        if list.len() >= MAX_WAITING {
            return Err(Refused::TooManyWaiting);
        }
        list.push(tick);
        self.decide_upto(tick)
    }
}

fn take(list: &mut Vec<Timestamp>, tick: Timestamp) -> Result<(), Refused> {
    let place = list.iter().position(|known| *known == tick);
    let place = place.ok_or_else(|| Refused::NotOpen {
        id: tick.to_string(),
    })?;
    list.remove(place);
    Ok(())
}
