//! G3: before a leader decides anything, it accounts for what the nodes have forgotten.

use jiff::Timestamp;

use super::{
    flight::Flights,
    lead::{Lead, Over},
    recall,
};
use crate::{
    due::{self, Accounted, Loss},
    intent,
    ledger::Ledger,
    lock::{AdmissionReport, AdmissionState, tally::majority},
};

impl Lead<'_> {
    /// Writes that what a majority of nodes may have forgotten does not run, by what living replicas remember of it, and
    /// reports it.
    pub(super) async fn account_for_blank(
        &self,
        ledger: &mut Ledger,
        own: Option<Ledger>,
    ) -> Result<(), Over> {
        if self.lease.is_none() {
            return Ok(());
        }
        let before = self.blank_before().await?;
        let decided = ledger.decided_upto();
        let told = match before {
            Some(_) if decided < before => self.handed_on().await?,
            _ => None,
        };
        let known = own.into_iter().chain(told).max_by_key(Ledger::decided_upto);
        let loss = Loss {
            known: known.as_ref(),
            before,
            now: self.wall(),
        };
        let accounted = due::account_for_loss(ledger, &self.engine.schedule, &loss);
        let Some(Accounted {
            ledger: next,
            was,
            decisions,
            upto,
        }) = accounted
        else {
            return self.forget_triggers(ledger, before).await;
        };
        if self.write(&next, None).await.is_err() {
            return Err(Over);
        }
        tracing::warn!(
            job = self.engine.name, %upto,
            decided_upto = was.decided_upto().map(tracing::field::display),
            "the lock nodes had lost the job's ledger, or a part of it: what was due before then and is not known to be \
             decided counts as decided, although nobody knows how"
        );
        *ledger = next;
        for decision in decisions {
            self.report(decision, &was, &Flights::default());
        }
        Ok(())
    }

    /// What was asked for before may have run.
    async fn forget_triggers(
        &self,
        ledger: &mut Ledger,
        before: Option<Timestamp>,
    ) -> Result<(), Over> {
        let Some(before) = before else {
            return Ok(());
        };
        let mut next = ledger.clone();
        if next.forget_triggers_upto(&intent::trigger_floor(before)) {
            if self.write(&next, None).await.is_err() {
                return Err(Over);
            }
            *ledger = next;
        }
        Ok(())
    }

    /// The newest ledger that other replicas have handed on while the nodes did not vote.
    async fn handed_on(&self) -> Result<Option<Ledger>, Over> {
        let (ctx, job) = (&self.engine.ctx, &self.engine.name);
        while self.is_open() {
            match recall::handed_on(job, &ctx.locks).await {
                Ok(known) => return Ok(known),
                Err(error) => tracing::debug!(job, %error, "cannot read what others remember"),
            }
            self.clock().sleep(ctx.locks.timing().node_timeout).await;
        }
        Err(Over)
    }

    /// The latest blank of any node: whatever was decided earlier may be missing. Asked until a majority of those that
    /// vote has told: whoever is silent may be the one that knows of it.
    async fn blank_before(&self) -> Result<Option<Timestamp>, Over> {
        let locks = &self.engine.ctx.locks;
        if !locks.is_guarded() {
            return Ok(None);
        }
        while self.is_open() {
            let nodes = locks.admissions().await.map_err(|_| Over)?;
            if let Some(latest) = latest_blank(&nodes) {
                return Ok(latest.and_then(|at| Timestamp::from_millisecond(at).ok()));
            }
            self.clock().sleep(locks.timing().node_timeout).await;
        }
        Err(Over)
    }
}

// === decisions ===

/// The latest blank that any node tells of, once a majority of those that vote has told; `None` before.
fn latest_blank(nodes: &[AdmissionReport]) -> Option<Option<i64>> {
    let votes = |node: &&AdmissionReport| node.state == AdmissionState::Admitted;
    let told = nodes.iter().filter(votes).count() >= majority(nodes.len());
    told.then(|| nodes.iter().filter_map(|node| node.blank_before).max())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeError;

    fn node(state: AdmissionState, blank_before: Option<i64>) -> AdmissionReport {
        AdmissionReport {
            nomination: None,
            name: "n".to_owned(),
            state,
            blank_before,
        }
    }

    #[test]
    fn a_blank_is_known_when_a_majority_of_those_that_vote_has_told() {
        let votes = |blank| node(AdmissionState::Admitted, blank);
        let silent = || {
            node(
                AdmissionState::Silent(NodeError::Unreachable("test".into())),
                None,
            )
        };
        let watched = |blank| node(AdmissionState::Watched { left: None }, blank);
        assert_eq!(
            latest_blank(&[votes(None), votes(Some(5)), silent()]),
            Some(Some(5))
        );
        assert_eq!(
            latest_blank(&[votes(None), votes(None), silent()]),
            Some(None)
        );
        // The silent ones may know of one.
        assert_eq!(latest_blank(&[votes(None), silent(), silent()]), None);
        // Whoever does not vote may have forgotten it with all else.
        assert_eq!(
            latest_blank(&[votes(None), watched(None), watched(None)]),
            None
        );
        assert_eq!(
            latest_blank(&[votes(Some(3)), votes(None), watched(Some(7))]),
            Some(Some(7))
        );
    }
}
