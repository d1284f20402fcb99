//! G3: before a leader decides anything, it accounts for what the nodes have forgotten.

use jiff::Timestamp;

use super::lead::{Lead, Over};
use crate::{due, ledger::Ledger};

impl Lead<'_> {
    /// Writes that what a majority of nodes may have forgotten does not run, and reports it.
    pub(super) async fn account_for_blank(&self, ledger: &mut Ledger) -> Result<(), Over> {
        let Some(before) = self.blank_before().await else {
            return Ok(());
        };
        let accounted = due::account_for_blank(ledger, &self.engine.schedule, before);
        let Some((next, decisions)) = accounted else {
            return Ok(());
        };
        if self.write(&next, None).await.is_err() {
            return Err(Over);
        }
        tracing::warn!(
            job = self.engine.name, %before,
            "a majority of lock nodes had lost its memory: what was due before then counts as decided"
        );
        let before = std::mem::replace(ledger, next);
        for decision in decisions {
            self.report(decision, &before);
        }
        Ok(())
    }

    /// The latest blank of any node: whatever was decided earlier may be missing.
    async fn blank_before(&self) -> Option<Timestamp> {
        let locks = &self.engine.ctx.locks;
        if self.lease.is_none() || !locks.is_guarded() {
            return None;
        }
        let nodes = locks.admissions().await.ok()?;
        let latest = nodes.iter().filter_map(|node| node.blank_before).max()?;
        Timestamp::from_millisecond(latest).ok()
    }
}
