//! How long things are believed, and how long things may take.

use std::time::Duration;

use super::{Backend, LockSettings};
use crate::{clock::Moment, node::rules::LONGEST_TTL_MS};

/// The times that the lock core works with. The configuration is turned into this once, after its checks.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// Default time to live of a lease.
    pub ttl: Duration,
    /// No lease may be longer.
    pub max_ttl: Duration,
    /// An acquisition that leaves less than this is a loss; `None` for half the lease's ttl.
    pub min_validity: Option<Duration>,
    /// How much two machines' clock rates may differ, as a fraction.
    pub drift: f64,
    /// How long one node may take to answer.
    pub node_timeout: Duration,
    /// How far in a node's future a tick's `not_before` may lie.
    pub skew: Duration,
    /// How long what was settled is remembered after a release: the body of the record.
    pub retention: Duration,
    /// Families of locks whose records are remembered for at least so long: what their keys begin with, and the time.
    pub kept_longer: &'static [(&'static str, Duration)],
    /// How long cancelled work may take to end.
    pub grace: Duration,
    /// Whether the nodes see to it that all programs have the same `max_ttl`.
    #[doc(hidden)] // for the tests
    pub agreed: bool,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(10),
            max_ttl: Duration::from_secs(30),
            min_validity: None,
            drift: 0.01,
            node_timeout: Duration::from_millis(50),
            skew: Duration::from_secs(1),
            retention: Duration::from_secs(24 * 3600),
            kept_longer: &[],
            grace: Duration::from_secs(10),
            agreed: true,
        }
    }
}

impl Timing {
    /// What these settings say.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn of(settings: &LockSettings) -> Self {
        // One file on one machine: an answer may wait for a disk, but not for a network.
        let of_a_disk = (settings.ttl / 6).clamp(Duration::from_millis(50), Duration::from_secs(1));
        Self {
            ttl: settings.ttl,
            max_ttl: settings.max_ttl,
            min_validity: settings.min_validity,
            drift: settings.drift,
            node_timeout: settings.node_timeout().unwrap_or(of_a_disk),
            skew: settings.skew,
            retention: settings.retention,
            agreed: settings.backend != Backend::Embedded,
            ..Self::default()
        }
    }

    /// R3: `start + ttl - (ttl x drift + 2 ms)`, where `start` was read before the first byte left.
    #[doc(hidden)] // for the tests
    #[must_use]
    pub fn valid_until(&self, start: Moment, ttl: Duration) -> Moment {
        let allowance = ttl.mul_f64(self.drift) + Duration::from_millis(2);
        start + ttl.saturating_sub(allowance)
    }

    /// O2: how long a record of `ttl` must stand still, on the clock of the process that watches it, before its
    /// holder is over. The holder's own deadline is earlier by both allowances.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn watch_time(&self, ttl: Duration) -> Duration {
        ttl + ttl.mul_f64(self.drift) + Duration::from_millis(2)
    }

    /// S0: how long the mark of a release stays at least, by the node's clock: no round of its owner is under way any more, and
    /// every watcher has heard of it.
    pub(crate) fn marked(&self) -> Duration {
        self.watch_time(self.max_ttl)
    }

    /// N10: no claim of any program lives longer. Where programs need not agree it may be one of those that have a larger `max_ttl`
    /// than this, and its row does not say how long it is.
    pub(crate) fn longest_claim(&self) -> Duration {
        match self.agreed {
            true => self.max_ttl,
            false => Duration::from_millis(LONGEST_TTL_MS),
        }
    }

    /// The least validity worth having for a lease of `ttl`.
    #[must_use]
    pub(crate) fn min_validity(&self, ttl: Duration) -> Duration {
        // Configured for the default ttl; a lease with another ttl keeps the proportion.
        match self.min_validity {
            Some(least) if !self.ttl.is_zero() => {
                ttl.mul_f64((least.as_secs_f64() / self.ttl.as_secs_f64()).clamp(0.0, 1.0))
            }
            _ => ttl / 2,
        }
    }

    /// How long the body of this lock is kept after a release.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn retention_of(&self, key: &str) -> Duration {
        let families = self.kept_longer.iter();
        let longer = families.filter(|(prefix, _)| key.starts_with(prefix));
        longer.fold(self.retention, |kept, (_, least)| kept.max(*least))
    }

    /// How long before the end of a lease its work is told to stop: `grace`, and at least so much that work which does not hear is
    /// dropped before the process is ended for it.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn cancel_margin(&self, ttl: Duration, grace: Duration) -> Duration {
        grace.max(abort_margin(ttl) * 2).min(ttl / 4)
    }

    /// How long before the end of a lease a process that still works under it is ended.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn abort_margin(&self, ttl: Duration) -> Duration {
        abort_margin(ttl)
    }

    /// Time between renewals: a third of the ttl.
    #[must_use]
    pub(crate) fn renew_every(&self, ttl: Duration) -> Duration {
        ttl / 3
    }

    /// How much earlier than that a renewal may come, by chance: leases of one moment drift apart.
    #[must_use]
    pub(crate) fn renew_early(&self, ttl: Duration) -> Duration {
        ttl / 60
    }

    /// The longest pause after a renewal that has failed; the shortest is half of it.
    #[must_use]
    pub(crate) fn renew_again(&self, ttl: Duration) -> Duration {
        self.node_timeout.min(ttl / 20)
    }
}

/// How long before the end of a lease of this ttl work that cannot be stopped is cut off.
#[must_use]
pub fn abort_margin(ttl: Duration) -> Duration {
    (ttl / 20).max(Duration::from_millis(100)).min(ttl / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_told_before_the_process_is_ended_for_it_however_small_its_grace_is() {
        let timing = Timing::default();
        for ms in [800, 2_000, 10_000, 30_000, 600_000] {
            let ttl = Duration::from_millis(ms);
            for grace in [0, 100, 300, 1_000, 10_000].map(Duration::from_millis) {
                let (told, ended) = (timing.cancel_margin(ttl, grace), timing.abort_margin(ttl));
                // What does not hear is dropped when half of that is left beyond the end of the process.
                assert!(told >= ended * 2, "{ttl:?} {grace:?}: {told:?} {ended:?}");
                assert!(told >= grace.min(ttl / 4));
            }
        }
    }
}
