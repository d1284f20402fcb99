//! Small bounds to start from, and what the tests ask of a search.

use crate::{
    machine::Within,
    node::{Expiry, Law},
    rules::{Rule, Rules},
    shared::{expect_breaks, expect_holds},
    world::{Bounds, CLIENTS, Step},
};

/// Enough for every search that must visit all states; what needs more is too large for its bounds.
const LIMIT: usize = 60_000_000;

/// Two clients, an attempt each. Replies arrive, and nothing is late.
pub(crate) const TABLE: Bounds = Bounds {
    law: Law {
        rules: Rules::ALL,
        expiry: Expiry::Observed,
        ttls: [2; CLIENTS],
        raw: false,
    },
    clients: 2,
    attempts: [1, 1, 0],
    total: 2,
    extensions: [0; CLIENTS],
    losses: 0,
    saves: 0,
    bumps: 0,
    crashes: 0,
    guard: true,
    jumps: 0,
    back: false,
    paged: false,
    sweeps: false,
    sweeps_held: false,
    evictions: 0,
    tables: 0,
    breaks: false,
    now: false,
    verifies: false,
    lost: false,
    late: false,
    twice: false,
    tokens: false,
    floors: false,
    restarts: false,
    reads: false,
    free: false,
    silence: 0,
    wakes: false,
    exclusion: true,
    liveness: false,
};

// === impl Bounds ===

impl Bounds {
    pub(crate) const fn without(self, rule: Rule) -> Self {
        let law = Law {
            rules: self.law.rules.without(rule),
            ..self.law
        };
        Self { law, ..self }
    }

    /// So many attempts of the first and the second client, all of them possible in one schedule.
    pub(crate) const fn trying(self, first: u8, second: u8) -> Self {
        Self {
            attempts: [first, second, 0],
            total: first + second,
            ..self
        }
    }

    /// Three attempts in all, at most two of a client.
    pub(crate) const fn three(self) -> Self {
        Self {
            total: 3,
            ..self.trying(2, 2)
        }
    }

    pub(crate) const fn three_clients(self) -> Self {
        Self {
            clients: 3,
            attempts: [1, 1, 1],
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

    /// Each client's leases have a ttl of their own.
    pub(crate) const fn with_ttls(self, ttls: [u8; CLIENTS]) -> Self {
        let law = Law { ttls, ..self.law };
        Self { law, ..self }
    }

    /// Messages of finished rounds arrive late.
    pub(crate) const fn late(self) -> Self {
        Self { late: true, ..self }
    }

    /// ... also those that were executed before.
    pub(crate) const fn twice(self) -> Self {
        Self {
            twice: true,
            ..self.late()
        }
    }

    /// Replies are lost.
    pub(crate) const fn deaf(self) -> Self {
        Self { lost: true, ..self }
    }

    pub(crate) const fn counting(self) -> Self {
        Self {
            tokens: true,
            ..self
        }
    }

    /// Leases end by the clocks of the nodes.
    pub(crate) const fn by_clock(self) -> Self {
        let law = Law {
            expiry: Expiry::Server,
            ..self.law
        };
        Self { law, ..self }
    }

    /// The clocks of so many nodes go forward.
    pub(crate) const fn forward(self, jumps: u8) -> Self {
        Self { jumps, ..self }
    }

    /// ... or back.
    pub(crate) const fn back(self, jumps: u8) -> Self {
        Self {
            back: true,
            jumps,
            ..self
        }
    }

    /// Nodes that lose their memory go on as if nothing had been.
    pub(crate) const fn unguarded(self) -> Self {
        Self {
            guard: false,
            ..self
        }
    }

    pub(crate) const fn live(self) -> Self {
        Self {
            liveness: true,
            ..self
        }
    }

    pub(crate) const fn losing(self, losses: u8) -> Self {
        Self { losses, ..self }
    }

    pub(crate) const fn copied(self) -> Self {
        Self { saves: 1, ..self }
    }

    /// Clients forget what they have seen: they are started again, or try once and leave.
    pub(crate) const fn restarting(self) -> Self {
        Self {
            restarts: true,
            ..self
        }
    }

    /// Clients remember the largest token that they have seen.
    pub(crate) const fn with_floors(self) -> Self {
        Self {
            floors: true,
            ..self
        }
    }

    /// Released records are swept.
    pub(crate) const fn swept(self) -> Self {
        Self {
            sweeps: true,
            ..self
        }
    }

    /// ... and what stood still for its ttl.
    pub(crate) const fn swept_all(self) -> Self {
        Self {
            sweeps_held: true,
            ..self.swept()
        }
    }

    pub(crate) const fn breaking(self) -> Self {
        Self {
            breaks: true,
            ..self
        }
    }

    pub(crate) const fn breaking_now(self) -> Self {
        Self {
            now: true,
            ..self.breaking()
        }
    }

    pub(crate) const fn verifying(self) -> Self {
        Self {
            verifies: true,
            ..self
        }
    }

    /// Watches are explicit reads.
    pub(crate) const fn reading(self) -> Self {
        Self {
            reads: true,
            ..self
        }
    }

    /// One client of ours beside a foreign one, on raw keys.
    pub(crate) const fn beside_a_stranger(self) -> Self {
        let law = Law {
            raw: true,
            ..self.law
        };
        Self {
            law,
            clients: 3,
            attempts: [1, 0, 1],
            ..self
        }
    }

    pub(crate) const fn freeing(self) -> Self {
        Self { free: true, ..self }
    }

    pub(crate) const fn waking(self) -> Self {
        Self {
            wakes: true,
            ..self
        }
    }
}

/// Every state within the bounds keeps every promise.
pub(crate) fn holds(name: &str, bounds: &Bounds) {
    holds_after::<3>(name, bounds, &[]);
}

/// Every state that can follow the prefix keeps every promise.
pub(crate) fn holds_after<const N: usize>(name: &str, bounds: &Bounds, prefix: &[Step]) {
    expect_holds(name, &Within::<N>::new(bounds), prefix, LIMIT);
}

/// With the rule off the promise breaks.
pub(crate) fn caught(rule: Rule, bounds: Bounds, promise: &str) {
    caught_after::<3>(rule, bounds, &[], promise);
}

/// The same in what can follow the prefix.
pub(crate) fn caught_after<const N: usize>(
    rule: Rule,
    bounds: Bounds,
    prefix: &[Step],
    promise: &str,
) {
    let name = format!("without {rule:?}");
    breaks_after::<N>(&name, &bounds.without(rule), prefix, promise);
}

/// The promise breaks in what can follow the prefix.
pub(crate) fn breaks_after<const N: usize>(
    name: &str,
    bounds: &Bounds,
    prefix: &[Step],
    promise: &str,
) {
    expect_breaks(name, &Within::<N>::new(bounds), prefix, LIMIT, promise);
}

/// With the rule off the promise breaks, and with it what can follow the same prefix holds.
pub(crate) fn decided_after<const N: usize>(
    rule: Rule,
    bounds: Bounds,
    prefix: &[Step],
    promise: &str,
) {
    caught_after::<N>(rule, bounds, prefix, promise);
    holds_after::<N>(&format!("with {rule:?}"), &bounds, prefix);
}

// === steps of a prefix ===

/// The client has its message executed on these nodes, and hears of it.
pub(crate) fn asks(c: u8, nodes: &[u8]) -> Vec<Step> {
    nodes.iter().map(|i| Step::Asks(c, *i, true)).collect()
}

/// The client acquires on these nodes; `leaves`: messages to the others are under way.
pub(crate) fn acquires(c: u8, nodes: &[u8], leaves: bool) -> Vec<Step> {
    let mut steps = vec![Step::Begins(c)];
    steps.extend(asks(c, nodes));
    steps.push(Step::Wins(c, leaves));
    steps
}

/// The client extends on these nodes.
pub(crate) fn extends(c: u8, nodes: &[u8], leaves: bool) -> Vec<Step> {
    let mut steps = vec![Step::Extends(c)];
    steps.extend(asks(c, nodes));
    steps.push(Step::Wins(c, leaves));
    steps
}
