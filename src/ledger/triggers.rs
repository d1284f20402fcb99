//! Which triggers are known: those that were started, and those that never start.

use jiff::Timestamp;

use super::{
    Ledger,
    limits::{MAX_RECENT, MAX_WITHDRAWN},
};

impl Ledger {
    /// Whether that trigger was started before, was withdrawn, or is older than all that are remembered.
    #[must_use]
    pub(crate) fn knows_trigger(&self, id: &str) -> bool {
        id <= self.floor.as_str()
            || self.recent.iter().any(|known| known == id)
            || self.has_withdrawn(id)
    }

    /// Whether that trigger was withdrawn, and is remembered.
    #[must_use]
    pub(crate) fn has_withdrawn(&self, id: &str) -> bool {
        self.withdrawn.iter().any(|known| known == id)
    }

    /// Triggers with ids up to `id` count as started: what became of them may have been forgotten. Says whether that is new.
    pub(crate) fn forget_triggers_upto(&mut self, id: &str) -> bool {
        let raised = self.floor.as_str() < id;
        if raised {
            id.clone_into(&mut self.floor);
        }
        raised
    }

    /// That trigger never starts. `oldest`: the first of those that still wait. False when there is no room to remember it: the
    /// trigger is not to be told of as withdrawn then.
    pub(crate) fn withdraw_trigger(&mut self, id: &str, oldest: Option<&str>) -> bool {
        if self.knows_trigger(id) {
            return true;
        }
        if self.withdrawn.len() >= MAX_WITHDRAWN {
            // The floor takes in the smallest, and nothing that waits.
            let first = self.withdrawn.first();
            let first = first.filter(|first| oldest.is_none_or(|oldest| first.as_str() < oldest));
            let Some(first) = first.cloned() else {
                return false;
            };
            self.withdrawn.remove(0);
            self.forget_triggers_upto(&first);
            if self.knows_trigger(id) {
                return true;
            }
        }
        let place = self.withdrawn.partition_point(|known| known.as_str() < id);
        self.withdrawn.insert(place, id.to_owned());
        true
    }

    /// Withdrawn triggers with ids below this need not be remembered: whatever comes back of them is too old to start.
    pub(crate) fn forget_withdrawn_before(&mut self, id: &str) {
        self.withdrawn.retain(|known| known.as_str() >= id);
    }

    /// That trigger is started.
    pub(super) fn remember_trigger(&mut self, id: &str) {
        self.recent.push(id.to_owned());
        if self.recent.len() > MAX_RECENT {
            // The smallest, so that the floor keeps out as few as possible that were asked for later.
            let oldest = self.recent.iter().enumerate().min_by_key(|(_, id)| *id);
            if let Some(place) = oldest.map(|(place, _)| place) {
                let oldest = self.recent.remove(place);
                self.forget_triggers_upto(&oldest);
            }
        }
    }
}

/// Short, and not to be mistaken for a tick.
pub(crate) fn is_trigger_id(id: &str) -> bool {
    (1..=128).contains(&id.len()) && id.parse::<Timestamp>().is_err()
}
