//! The rules of the lock, switched off one at a time, to show that the simulation notices.
#![allow(
    clippy::unwrap_used,
    reason = "for tests alone, which may fail by panic"
)]

use std::{
    cell::Cell,
    collections::HashMap,
    sync::{Arc, Mutex},
};

use super::{
    claim::Claim,
    tally::{Tally, Vote},
};

thread_local! {
    /// L2: a share of a rate may be used as soon as it is had, by what runs on this thread.
    pub static SHARES_WITHOUT_PAUSE: Cell<bool> = const { Cell::new(false) };
}

/// Which rule is broken; none by default.
#[derive(Clone, Debug, Default)]
pub struct Mutant {
    /// T2: believe the largest grant without confirming it.
    pub skip_confirm: bool,
    /// R3: count the deadline from the replies.
    pub deadline_from_reply: bool,
    /// R4: keep the grants of the last round, and do not undo them.
    pub sum_rounds: bool,
    /// B6: a break with `now` releases at once.
    pub break_now: bool,
    /// G4: without the guard, ask the nodes that another fleet may have lost.
    pub never_bar: bool,
    /// What it remembers of its last attempts.
    #[doc(hidden)] // for the tests
    pub memory: Arc<Mutex<HashMap<String, (String, Tally)>>>,
}

impl Mutant {
    /// The same broken rules with a memory of its own, for another client.
    pub fn for_client(&self) -> Self {
        Self {
            memory: Arc::default(),
            ..self.clone()
        }
    }

    pub(crate) fn last_owner(&self, claims: &[Claim]) -> Option<String> {
        let memory = self.memory.lock().unwrap();
        self.sum_rounds
            .then(|| memory.get(&claims.first()?.key).map(|(o, _)| o.clone()))?
    }

    pub(crate) fn remember(&self, claims: &[Claim], owner: &str, tallies: &[Tally]) {
        if !self.sum_rounds {
            return;
        }
        for (claim, tally) in claims.iter().zip(tallies) {
            self.memory
                .lock()
                .unwrap()
                .insert(claim.key.clone(), (owner.into(), tally.clone()));
        }
    }

    pub(crate) fn carry_over(&self, claims: &[Claim], mut fresh: Vec<Tally>) -> Vec<Tally> {
        if self.sum_rounds {
            for (claim, tally) in claims.iter().zip(&mut fresh) {
                if let Some((_, old)) = self.memory.lock().unwrap().get(&claim.key) {
                    for (node, vote) in old.votes().iter().enumerate() {
                        if let Some(vote @ Vote::Granted(_)) = vote {
                            tally.count(node, vote.clone());
                        }
                    }
                }
            }
        }
        fresh
    }
}
