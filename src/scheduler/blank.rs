//! G3: before a leader decides anything, it accounts for what the nodes have forgotten.

use jiff::Timestamp;

use super::lead::{Lead, Over};
use crate::{
    due, intent,
    ledger::Ledger,
    lock::{AdmissionReport, AdmissionState, tally::majority},
};

impl Lead<'_> {
    /// Writes that what a majority of nodes may have forgotten does not run, and reports it.
    pub(super) async fn account_for_blank(&self, ledger: &mut Ledger) -> Result<(), Over> {
        let Some(before) = self.blank_before().await? else {
            return Ok(());
        };
        // What was asked for before may have run.
        let mut next = ledger.clone();
        if next.forget_triggers_upto(&intent::trigger_floor(before)) {
            if self.write(&next, None).await.is_err() {
                return Err(Over);
            }
            *ledger = next;
        }
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

    /// The latest blank of any node: whatever was decided earlier may be missing. Asked until a majority of those that
    /// vote has told: whoever is silent may be the one that knows of it.
    async fn blank_before(&self) -> Result<Option<Timestamp>, Over> {
        let locks = &self.engine.ctx.locks;
        if self.lease.is_none() || !locks.is_guarded() {
            return Ok(None);
        }
        while self.is_open() {
            let nodes = locks.admissions().await.map_err(|_| Over)?;
            let votes = |node: &&AdmissionReport| node.state == AdmissionState::Admitted;
            if nodes.iter().filter(votes).count() >= majority(nodes.len()) {
                let latest = nodes.iter().filter_map(|node| node.blank_before).max();
                return Ok(latest.and_then(|at| Timestamp::from_millisecond(at).ok()));
            }
            self.clock().sleep(locks.timing().node_timeout).await;
        }
        Err(Over)
    }
}
