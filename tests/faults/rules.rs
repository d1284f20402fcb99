//! Which rules against faults of nodes are on, and where the library is told.
//!
//! [`COMBINATIONS`] lists what is run; each case names the rule that cures it, and what is expected follows: harm with the
//! rule off, none with the rule on.

use std::fmt;

use watchkeeper::lock::LocksBuilder;

/// Whether a node that lost its memory may vote at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    Off,
}

/// Whose clock ends the lease of a dead holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    Server,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rules {
    pub(crate) guard: Guard,
    pub(crate) expiry: Expiry,
}

/// The rule without which a fault does harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cure {
    Guard,
    Expiry,
}

/// Every combination that is run.
pub(crate) const COMBINATIONS: &[Rules] = &[Rules {
    guard: Guard::Off,
    expiry: Expiry::Server,
}];

// === impl Rules ===

impl Rules {
    /// Tells the library.
    pub(crate) fn apply(self, locks: LocksBuilder) -> LocksBuilder {
        // Irrefutable as long as there is no choice: a new variant has to be told here.
        let Self {
            guard: Guard::Off,
            expiry: Expiry::Server,
        } = self;
        locks
    }

    /// Whether these rules keep the fault from doing harm.
    pub(crate) fn cure(self, by: Cure) -> bool {
        match by {
            Cure::Guard => self.guard != Guard::Off,
            Cure::Expiry => self.expiry != Expiry::Server,
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
