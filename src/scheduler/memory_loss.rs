//! G3: before a leader decides anything, it accounts for what the nodes have forgotten.
//!
//! A loss bears the time of the clocks then, which may have been ahead: until that time has come every ledger is older than it.
//! So the ledger notes which losses it has accounted for. When every node tells what it knows, and of no other loss, the
//! ledger was written after all of them. While one is silent, or does not vote, that cannot be known, and the latest stamp
//! counts whatever is noted.

use jiff::Timestamp;

use super::{
    recall,
    term::{Over, TermLoop},
};
use crate::{
    due::{self, Accounted, Loss},
    intent,
    ledger::Ledger,
    lock::{AdmissionReport, AdmissionState, tally::majority},
    run::InFlight,
};

/// A node that has granted a term is asked for its losses so often, a node's timeout each.
const TELLS: u32 = 10;

impl TermLoop<'_> {
    /// Writes that what a majority of nodes may have forgotten does not run, by what living replicas remember of it, and
    /// reports it.
    pub(super) async fn account_for_memory_loss(
        &self,
        ledger: &mut Ledger,
        own: Option<Ledger>,
        memory_losses: MemoryLosses,
    ) -> Result<(), Over> {
        if self.lease.is_none() {
            return Ok(());
        }
        let before = memory_losses.unaccounted(ledger);
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
            ledger: mut next,
            was,
            decisions,
            upto,
        }) = accounted
        else {
            return self.forget_triggers(ledger, before, &memory_losses).await;
        };
        next.note_memory_losses(&memory_losses.stamps);
        let tells = self.note_decisions(&mut next, &was, &decisions);
        self.write(&next, None).await.map_err(|_| Over)?;
        self.tell_people(tells);
        tracing::warn!(
            job = self.engine.name, %upto,
            decided_upto = was.decided_upto().map(tracing::field::display),
            "the lock nodes had lost the job's ledger, or a part of it: what was due before then and is not known to be \
             decided counts as decided, although it is unknown how"
        );
        *ledger = next;
        for decision in decisions {
            self.report(decision, &was, &InFlight::default());
        }
        Ok(())
    }

    /// What was asked for before may have run.
    async fn forget_triggers(
        &self,
        ledger: &mut Ledger,
        before: Option<Timestamp>,
        memory_losses: &MemoryLosses,
    ) -> Result<(), Over> {
        let Some(before) = before else {
            return Ok(());
        };
        let mut next = ledger.clone();
        // A clock may have been ahead when that was stamped.
        let upto = before.min(self.wall());
        let recall = &self.engine.ctx.recall;
        if ledger.decided_upto().is_none() && recall.is_to_be_said(before) {
            // A new fleet looks the same.
            tracing::info!(
                job = self.engine.name, before = %upto,
                "no ledger of this job from before then is known: the lock nodes were new or had lost their memory, and no \
                 replica remembers. Jobs of which nothing is known count as never seen: nothing of them before now runs"
            );
        }
        if next.forget_triggers_upto(&intent::trigger_floor(upto)) {
            next.note_memory_losses(&memory_losses.stamps);
            self.write(&next, None).await.map_err(|_| Over)?;
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

    /// The losses of all nodes: whatever was decided before one of them may be missing. Asked until a majority of those that
    /// vote has told, and every node that has granted this term: what was left was read from these, and the one that has forgotten
    /// may have granted although one that remembers was only slower. When such a node has gone silent since, the term is over: the
    /// next one reads from those that answer. So it is asked before anything is written under this term.
    pub(super) async fn memory_losses(&self) -> Result<MemoryLosses, Over> {
        let locks = &self.engine.ctx.locks;
        let Some(lease) = self.lease.as_ref().filter(|_| locks.is_guarded()) else {
            return Ok(MemoryLosses::default());
        };
        // What it has written since stands on a majority.
        let granted_by = match self.is_first {
            true => lease.granted_by(),
            false => &[],
        };
        let pause = locks.timing().node_timeout;
        let until = self.clock().now() + pause * TELLS;
        while self.is_open() {
            let nodes = locks.admissions().await.map_err(|_| Over)?;
            if let Some(memory_losses) = MemoryLosses::told(&nodes, granted_by) {
                return Ok(memory_losses);
            }
            if self.clock().now() >= until && MemoryLosses::told(&nodes, &[]).is_some() {
                tracing::warn!(
                    job = self.engine.name,
                    "a lock node that has granted the term is silent since, and may have forgotten what others know: the term ends"
                );
                return Err(Over);
            }
            self.clock().sleep(pause).await;
        }
        Err(Over)
    }
}

// === decisions ===

/// What the nodes tell of what they have forgotten.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct MemoryLosses {
    stamps: Vec<Timestamp>,
    /// Every node votes and has told.
    of_all: bool,
}

impl MemoryLosses {
    /// Once a majority of those that vote has told, and all that have granted; `None` before.
    fn told(nodes: &[AdmissionReport], granted_by: &[usize]) -> Option<Self> {
        let votes = |node: &AdmissionReport| {
            matches!(
                node.state,
                AdmissionState::Admitted | AdmissionState::Elsewhere
            )
        };
        let told = nodes.iter().filter(|node| votes(node)).count();
        let all = granted_by
            .iter()
            .all(|place| nodes.get(*place).is_some_and(votes));
        let stamps = nodes.iter().filter_map(|node| node.memory_loss);
        let stamps = stamps.filter_map(|at| Timestamp::from_millisecond(at).ok());
        (told >= majority(nodes.len()) && all).then(|| Self {
            stamps: stamps.collect(),
            of_all: told == nodes.len(),
        })
    }

    /// The latest loss that this ledger may not have seen: whatever was decided before may be missing from it.
    fn unaccounted(&self, ledger: &Ledger) -> Option<Timestamp> {
        let noted = |stamp: &Timestamp| self.of_all && ledger.memory_losses().contains(stamp);
        self.stamps.iter().copied().filter(|s| !noted(s)).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::NodeError;

    fn node(state: AdmissionState, memory_loss: Option<i64>) -> AdmissionReport {
        AdmissionReport {
            nomination: None,
            name: "n".to_owned(),
            state,
            memory_loss,
        }
    }

    #[test]
    fn a_memory_loss_is_known_when_a_majority_of_those_that_vote_has_told() {
        let votes = |memory_loss| node(AdmissionState::Admitted, memory_loss);
        let silent = || {
            node(
                AdmissionState::Silent(NodeError::Unreachable("test".into())),
                None,
            )
        };
        let watched = |memory_loss| node(AdmissionState::Watched { left: None }, memory_loss);
        let latest = |nodes: &[AdmissionReport]| {
            let memory_losses = MemoryLosses::told(nodes, &[])?;
            let latest = memory_losses.unaccounted(&Ledger::default());
            Some(latest.map(Timestamp::as_millisecond))
        };
        assert_eq!(
            latest(&[votes(None), votes(Some(5)), silent()]),
            Some(Some(5))
        );
        assert_eq!(latest(&[votes(None), votes(None), silent()]), Some(None));
        // Programs that were given other addresses for the same nodes.
        let elsewhere = || node(AdmissionState::Elsewhere, None);
        assert_eq!(latest(&[elsewhere(), elsewhere(), silent()]), Some(None));
        // The silent ones may know of one.
        assert_eq!(latest(&[votes(None), silent(), silent()]), None);
        // A node that does not vote may have forgotten it with all else.
        assert_eq!(latest(&[votes(None), watched(None), watched(None)]), None);
        assert_eq!(
            latest(&[votes(Some(3)), votes(None), watched(Some(7))]),
            Some(Some(7))
        );
    }

    /// It has forgotten what one of the others, which was only slower, would have shown.
    #[test]
    fn a_memory_loss_is_not_known_before_every_node_that_granted_has_told() {
        let votes = |memory_loss| node(AdmissionState::Admitted, memory_loss);
        let down = NodeError::Unreachable("test".into());
        let nodes = [
            node(AdmissionState::Silent(down), None),
            votes(None),
            votes(None),
        ];
        assert_eq!(MemoryLosses::told(&nodes, &[0, 1]), None);
        let told = MemoryLosses::told(&nodes, &[1, 2]).unwrap();
        assert_eq!(told.unaccounted(&Ledger::default()), None);
    }

    #[test]
    fn a_loss_is_accounted_for_once_when_every_node_tells_of_no_other() {
        let votes = |memory_loss| node(AdmissionState::Admitted, memory_loss);
        let silent = || {
            let down = NodeError::Unreachable("test".into());
            node(AdmissionState::Silent(down), None)
        };
        let at = |ms| Timestamp::from_millisecond(ms).unwrap();
        let mut ledger = Ledger::default();
        ledger.note_memory_losses(&[at(5), at(9)]);
        let left = |nodes: &[AdmissionReport]| {
            MemoryLosses::told(nodes, &[]).unwrap().unaccounted(&ledger)
        };
        assert_eq!(left(&[votes(Some(5)), votes(Some(9)), votes(None)]), None);
        // Lost again, by a clock that is right by now.
        let again = [votes(Some(5)), votes(Some(7)), votes(Some(9))];
        assert_eq!(left(&again), Some(at(7)));
        // A silent node may know of another loss.
        assert_eq!(
            left(&[votes(Some(5)), votes(Some(9)), silent()]),
            Some(at(9))
        );
    }
}
