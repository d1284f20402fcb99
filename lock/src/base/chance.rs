//! Randomness that comes in by the door: owner values, jitter, back-off.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rand::{Rng, RngExt, SeedableRng, rngs::StdRng};

/// A shared source of randomness: the operating system's entropy, or a simulation's seed.
#[derive(Clone)]
pub struct Chance(Arc<Mutex<StdRng>>);

impl Chance {
    /// Seeded from the operating system.
    #[must_use]
    #[allow(
        clippy::disallowed_methods,
        reason = "the one place where entropy is read"
    )]
    pub fn system() -> Self {
        let mut seed = [0; 32];
        rand::rng().fill_bytes(&mut seed);
        Self(Arc::new(Mutex::new(StdRng::from_seed(seed))))
    }

    /// The same values for the same seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    /// 128 random bits in lower-case hexadecimal.
    #[must_use]
    pub fn id(&self) -> String {
        format!("{:032x}", self.with(|rng| rng.random::<u128>()))
    }

    /// 64 random bits in lower-case hexadecimal: the name of a nomination, and of the incarnation that it begins. Records hold it
    /// in a field of this width.
    #[must_use]
    pub fn nonce(&self) -> String {
        format!("{:016x}", self.with(|rng| rng.random::<u64>()))
    }

    /// A number below `bound`; zero when `bound` is zero.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        if bound == 0 {
            0
        } else {
            self.with(|rng| rng.random_range(0..bound))
        }
    }

    /// A duration between zero and `most`.
    #[must_use]
    pub fn up_to(&self, most: Duration) -> Duration {
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX - 1);
        Duration::from_nanos(self.below(nanos.saturating_add(1)))
    }

    /// True with probability `p` (clamped to 0..=1).
    #[must_use]
    pub fn hits(&self, p: f64) -> bool {
        self.with(|rng| rng.random_bool(p.clamp(0.0, 1.0)))
    }

    fn with<T>(&self, f: impl FnOnce(&mut StdRng) -> T) -> T {
        // A panic while drawing a number leaves the generator usable.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Chance")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_reproduces_its_values() {
        let (a, b) = (Chance::seeded(7), Chance::seeded(7));
        assert_eq!((a.id(), a.below(10)), (b.id(), b.below(10)));
        assert_eq!(a.id().len(), 32);
        assert_eq!(a.below(0), 0);
    }
}
