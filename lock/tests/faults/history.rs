//! Who believed to hold the lock from when to when, and what is wrong with it: one plain function of all beliefs, on
//! the one boot clock of this machine.

use std::{fmt, time::Duration};

use watchkeeper_lock::{clock::Moment, lease::Lease};

/// One lease, as its holder believed in it.
#[derive(Clone, Debug)]
pub(crate) struct Belief {
    pub(crate) who: String,
    pub(crate) token: u64,
    pub(crate) from: Moment,
    pub(crate) to: Moment,
}

/// What must not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// Two believe at once.
    TwoHolders {
        earlier: String,
        later: String,
        together: Duration,
    },
    /// A token that is not above all earlier ones.
    FallenToken { who: String, token: u64, after: u64 },
    /// The lock of a dead holder stays taken.
    Stuck { why: String },
}

// === impl Belief ===

impl Belief {
    /// That of a lease whose holder is not driven any more: it believes to the deadline that it knows.
    pub(crate) fn of(who: &str, lease: &Lease) -> Self {
        Self {
            who: who.to_owned(),
            token: lease.token().0,
            from: lease.view().since(),
            to: lease.view().valid_until(),
        }
    }
}

/// Everything that is wrong with these beliefs, in the order of time.
pub(crate) fn violations(mut beliefs: Vec<Belief>) -> Vec<Violation> {
    beliefs.sort_by_key(|belief| belief.from);
    let mut found = Vec::new();
    for (n, later) in beliefs.iter().enumerate() {
        for earlier in &beliefs[..n] {
            let together = earlier.to.min(later.to).since(later.from);
            if !together.is_zero() {
                found.push(Violation::TwoHolders {
                    earlier: earlier.to_string(),
                    later: later.to_string(),
                    together,
                });
            }
        }
        let after = beliefs[..n].iter().map(|belief| belief.token).max();
        if let Some(after) = after.filter(|after| later.token <= *after) {
            found.push(Violation::FallenToken {
                who: later.who.clone(),
                token: later.token,
                after,
            });
        }
    }
    found
}

impl fmt::Display for Belief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with token {}", self.who, self.token)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoHolders {
                earlier,
                later,
                together,
            } => write!(f, "{earlier} and {later} hold it together for {together:?}"),
            Self::FallenToken { who, token, after } => {
                write!(f, "{who} gets token {token} after {after}")
            }
            Self::Stuck { why } => write!(f, "nobody gets it: {why}"),
        }
    }
}

// === what the checker sees ===

fn belief(who: &str, token: u64, from: u64, to: u64) -> Belief {
    let at = |ms| Moment::ZERO + Duration::from_millis(ms);
    Belief {
        who: who.to_owned(),
        token,
        from: at(from),
        to: at(to),
    }
}

pub(crate) fn leases_one_after_the_other_are_right() {
    let ok = vec![belief("b", 2, 10, 20), belief("a", 1, 0, 10)];
    assert_eq!(violations(ok), []);
}

pub(crate) fn leases_that_overlap_are_seen_in_pairs() {
    let three = vec![
        belief("a", 1, 0, 10),
        belief("b", 2, 5, 20),
        belief("c", 3, 9, 12),
    ];
    let seen = violations(three);
    assert_eq!(seen.len(), 3);
    assert_eq!(
        seen[0].to_string(),
        "a with token 1 and b with token 2 hold it together for 5ms"
    );
}

pub(crate) fn a_token_that_is_repeated_or_falls_is_seen() {
    let seen = violations(vec![
        belief("a", 7, 0, 1),
        belief("b", 7, 2, 3),
        belief("c", 6, 4, 5),
        belief("d", 8, 6, 7),
    ]);
    let fallen = |who: &str, token| Violation::FallenToken {
        who: who.into(),
        token,
        after: 7,
    };
    assert_eq!(seen, [fallen("b", 7), fallen("c", 6)]);
}
