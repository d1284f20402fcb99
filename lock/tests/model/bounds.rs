//! The two ways to end a lease, as small bounds to start from, and what the tests ask of a search.

use crate::{
    node::{Expiry, Law},
    rules::{Rule, Rules},
    search::Within,
    shared::{expect_breaks, expect_holds},
    world::{Bounds, CLIENTS, Step},
};

/// Enough for every search that must visit all states; what needs more is too large for its bounds.
const LIMIT: usize = 60_000_000;

/// Two clients of ours, an attempt each, keys that live as long as the nodes' clocks say.
pub(crate) const SERVER: Bounds = Bounds {
    law: Law {
        rules: Rules::ALL,
        expiry: Expiry::Server,
        ttls: [2; CLIENTS],
        foreign: false,
        claim: false,
        memory: true,
    },
    clients: 2,
    attempts: [1, 1, 0],
    total: 2,
    extensions: [0, 0, 0],
    losses: 0,
    guard: true,
    saves: 0,
    jumps: 0,
    back: false,
    vanish: false,
    forgets: 0,
    breaks: false,
    now: false,
    verifies: false,
    parts: false,
    restarts: false,
    lost: true,
    late: true,
    twice: false,
    tokens: false,
    floors: false,
    reads: false,
    exclusion: true,
    liveness: true,
};

/// The same with records, and keys that may vanish at any moment.
pub(crate) const OBSERVED: Bounds = Bounds {
    law: Law {
        expiry: Expiry::Observed,
        ..SERVER.law
    },
    vanish: true,
    ..SERVER
};

// === impl Bounds ===

impl Bounds {
    pub(crate) const fn without(self, rule: Rule) -> Self {
        let law = Law {
            rules: Rules::without(rule),
            ..self.law
        };
        Self { law, ..self }
    }

    /// Three attempts in all, at most two of a client.
    pub(crate) const fn three(self) -> Self {
        Self {
            attempts: [2, 2, 0],
            total: 3,
            ..self
        }
    }

    pub(crate) const fn extending(self, first: u8, second: u8) -> Self {
        Self {
            extensions: [first, second, 0],
            ..self
        }
    }

    pub(crate) const fn ticks(self, ttl: u8) -> Self {
        self.with_ttls([ttl; CLIENTS])
    }

    /// Each client's leases have a ttl of their own.
    pub(crate) const fn with_ttls(self, ttls: [u8; CLIENTS]) -> Self {
        let law = Law { ttls, ..self.law };
        Self { law, ..self }
    }

    /// Three clients of ours, an attempt each.
    pub(crate) const fn three_clients(self) -> Self {
        Self {
            clients: 3,
            attempts: [1, 1, 1],
            total: 3,
            ..self
        }
    }

    /// A short claim of a batch or a message.
    pub(crate) const fn claiming(self) -> Self {
        let law = Law {
            claim: true,
            ..self.law
        };
        Self { law, ..self }
    }

    /// An operator breaks a lease.
    pub(crate) const fn breaking(self) -> Self {
        Self {
            breaks: true,
            ..self
        }
    }

    /// Late messages may have been executed before.
    pub(crate) const fn twice(self) -> Self {
        Self {
            twice: true,
            ..self
        }
    }

    /// One client of ours beside a foreign one.
    pub(crate) const fn beside_a_stranger(self) -> Self {
        let law = Law {
            foreign: true,
            ..self.law
        };
        Self {
            law,
            clients: 1,
            attempts: [1, 0, 1],
            ..self
        }
    }

    pub(crate) const fn counting(self) -> Self {
        Self {
            tokens: true,
            ..self
        }
    }

    pub(crate) const fn losing(self, losses: u8) -> Self {
        Self { losses, ..self }
    }

    /// No message of a finished round arrives.
    pub(crate) const fn never_late(self) -> Self {
        Self {
            late: false,
            ..self
        }
    }

    /// Every reply arrives that was waited for; messages may be late.
    pub(crate) const fn heard(self) -> Self {
        Self {
            lost: false,
            ..self
        }
    }

    /// Replies arrive, and so does nothing late.
    pub(crate) const fn in_time(self) -> Self {
        Self {
            late: false,
            lost: false,
            ..self
        }
    }

    /// Late messages come later than the nodes remember releases.
    pub(crate) const fn forgetful(self) -> Self {
        let law = Law {
            memory: false,
            ..self.law
        };
        Self { law, ..self }
    }
}

/// Every state within the bounds keeps every promise.
pub(crate) fn holds(name: &str, bounds: &Bounds) {
    holds_after::<3>(name, bounds, &[]);
}

/// Every state that can follow the prefix keeps every promise.
pub(crate) fn holds_after<const N: usize>(name: &str, bounds: &Bounds, prefix: &[Step]) {
    expect_holds(name, &Within::<N>(bounds), prefix, LIMIT);
}

/// The promise breaks, and the trace is a short one.
pub(crate) fn breaks(name: &str, bounds: &Bounds, promise: &str) {
    breaks_after::<3>(name, bounds, &[], promise);
}

/// The promise breaks in what can follow the prefix.
pub(crate) fn breaks_after<const N: usize>(
    name: &str,
    bounds: &Bounds,
    prefix: &[Step],
    promise: &str,
) {
    expect_breaks(name, &Within::<N>(bounds), prefix, LIMIT, promise);
}

/// Searches with the rule off and asks which promise breaks.
pub(crate) fn caught(rule: Rule, bounds: Bounds, promise: &str) {
    breaks(&format!("without {rule:?}"), &bounds.without(rule), promise);
}

/// Client `c` has its message executed on these nodes, and hears of it.
pub(crate) fn asks(c: usize, nodes: &[usize]) -> Vec<Step> {
    nodes.iter().map(|i| Step::Asks(c, *i, true)).collect()
}
