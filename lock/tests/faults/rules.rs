//! Which rules against faults of nodes are on, and where the library is told.
//!
//! [`COMBINATIONS`] lists what is run; each case names the rule that cures it, and what is expected follows: harm with the
//! rule off, none with the rule on.

use std::{fmt, time::Duration};

use watchkeeper_lock::{
    lock::{FleetConfig, LockSettings, LocksBuilder, Timing},
    node::{Expiry, GuardSettings, RestartGuard, redis::RedisNodeSettings},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Whether a node that lost its memory may vote at once.
    pub(crate) guard: RestartGuard,
    /// Whose clock ends the lease of a dead holder.
    pub(crate) expiry: Expiry,
}

/// The rule without which a fault does harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cure {
    Guard,
    Expiry,
    /// One that the library always keeps: the case itself shows what would happen.
    Always,
}

/// Plain Redlock.
pub(crate) const ALL_OFF: Rules = rules(RestartGuard::Off, Expiry::Server);
/// As the library is meant to be used.
pub(crate) const ALL_ON: Rules = rules(RestartGuard::Call, Expiry::Observed);

/// Every combination that is run.
pub(crate) const COMBINATIONS: &[Rules] = &[
    ALL_OFF,
    rules(RestartGuard::Off, Expiry::Observed),
    rules(RestartGuard::Call, Expiry::Server),
    rules(RestartGuard::Connection, Expiry::Observed),
    ALL_ON,
];

const fn rules(guard: RestartGuard, expiry: Expiry) -> Rules {
    Rules { guard, expiry }
}

// === impl Rules ===

impl Rules {
    /// Tells the nodes and the library, both as a fleet with this configuration does.
    pub(crate) fn apply(self, locks: LocksBuilder, nodes: usize, timing: &Timing) -> LocksBuilder {
        let locks = locks.expiry(self.expiry);
        match self.fleet(nodes, timing.max_ttl) {
            Some(fleet) => locks.guarded(fleet),
            None => locks,
        }
    }

    /// Each node of a fleet.
    pub(crate) fn guard(
        self,
        nodes: &[RedisNodeSettings],
        timing: &Timing,
    ) -> Vec<RedisNodeSettings> {
        self.guard_among(nodes.len(), nodes, timing)
    }

    /// Each of these nodes of a fleet of `count`.
    pub(crate) fn guard_among(
        self,
        count: usize,
        nodes: &[RedisNodeSettings],
        timing: &Timing,
    ) -> Vec<RedisNodeSettings> {
        let guard = match self.fleet(count, timing.max_ttl) {
            Some(fleet) => GuardSettings {
                mode: self.guard,
                config: fleet.to_string(),
            },
            None => GuardSettings::default(),
        };
        let guarded = |node: &RedisNodeSettings| RedisNodeSettings {
            guard: guard.clone(),
            ..node.clone()
        };
        nodes.iter().map(guarded).collect()
    }

    /// What guarded nodes are admitted for; `None` where they are not guarded.
    pub(crate) fn fleet(self, nodes: usize, max_ttl: Duration) -> Option<FleetConfig> {
        self.cure(Cure::Guard).then(|| FleetConfig {
            nodes,
            max_ttl,
            expiry: self.expiry,
            guard: self.guard,
            ..FleetConfig::of(&LockSettings::default())
        })
    }

    /// Whether these rules keep the fault from doing harm.
    pub(crate) fn cure(self, by: Cure) -> bool {
        match by {
            Cure::Guard => self.guard != RestartGuard::Off,
            Cure::Expiry => self.expiry != Expiry::Server,
            Cure::Always => true,
        }
    }

    /// Whether some rules are on and others off: what chance does then proves neither.
    pub(crate) fn are_mixed(self) -> bool {
        self.cure(Cure::Guard) != self.cure(Cure::Expiry)
    }

    /// Whether no fault at all may do harm.
    pub(crate) fn all_on(self) -> bool {
        self.cure(Cure::Guard) && self.cure(Cure::Expiry)
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "guard={:?},expiry={:?}", self.guard, self.expiry)
    }
}
