//! Before a leader decides anything, it accounts for a change of the job's schedule since the last decision.

use super::term::{Over, TermLoop};
use crate::{
    due::{self, Changed, WhySkipped},
    ledger::Ledger,
};

impl TermLoop<'_> {
    /// Writes that from here on this definition decides. What a change of the schedule has left undecided is reported, and
    /// does not fire.
    pub(super) async fn account_for_change(&self, ledger: &mut Ledger) -> Result<(), Over> {
        let engine = self.engine;
        let (by, now) = (engine.decided(), self.wall());
        let Some(Changed { ledger: next, gap }) =
            due::account_for_change(ledger, &engine.schedule, &by, now)
        else {
            return Ok(());
        };
        // A job never seen before has nothing to lose: it is written with the first sight.
        if ledger.decided_upto().is_some() {
            self.write(&next, None).await.map_err(|_| Over)?;
        }
        *ledger = next;
        let Some(gap) = gap else {
            return Ok(());
        };
        tracing::info!(
            job = engine.name, from = %gap.from, to = %gap.to, count = gap.count,
            "the schedule has changed: what was undecided until now does not fire under the new one"
        );
        if gap.count > 0 {
            engine.tell_skipped(gap, WhySkipped::Changed);
        }
        Ok(())
    }
}
