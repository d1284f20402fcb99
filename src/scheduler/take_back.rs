//! Takes a ledger back that was decided by a clock which had jumped ahead: [`super::ahead`] says when.

use jiff::Timestamp;

use super::term::{Over, TermLoop};
use crate::{
    due::{self, WhySkipped},
    ledger::Ledger,
};

impl TermLoop<'_> {
    /// Takes the ledger back to `upto`, and tells which ticks do not run when they are due.
    pub(super) async fn take_back(&self, ledger: &mut Ledger, upto: Timestamp) -> Result<(), Over> {
        let engine = self.engine;
        let Some(back) = due::take_back(ledger, &engine.schedule, upto) else {
            return Ok(());
        };
        self.write(&back.ledger, None).await.map_err(|_| Over)?;
        *ledger = back.ledger;
        tracing::warn!(
            job = engine.name,
            decided_upto = %back.from,
            taken_back_to = %upto,
            ticks_again = back.again.map_or(0, |again| again.count),
            ticks_ran_ahead = back.ran.iter().map(|ran| ran.count).sum::<u64>(),
            "a clock had jumped ahead: ticks that it had passed over run when they are due, those that may have run ahead of \
             their time do not run again"
        );
        for ran in back.ran {
            engine.tell_skipped(ran, WhySkipped::Ahead);
        }
        Ok(())
    }
}
