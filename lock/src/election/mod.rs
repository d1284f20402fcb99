//! Elects one leader per name and keeps the others ready.
//!
//! # States            standing by -> campaigning -> leading(term) -> standing by
//! # Invariants
//! - E1 A term ends no later than the lease behind it.                 (term_ends_with_its_lease)
//! - E2 A candidate's loop never ends by itself: errors of a store are waited out.   (a_standby_loop_never_ends)
//! - E3 An unfit replica does not campaign.                            (an_unfit_replica_does_not_campaign)
//! # When things fail  Unsure means not leading: a bid that fails or is late is undone and tried again, later.
//! # Not promised      Two replicas may overlap if a process is frozen past its deadline: see the fencing token.

mod state;
pub mod term;

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::broadcast;

use crate::{
    acquire::{Locks, released},
    backoff::Backoff,
    expiry::{LockState, together},
    node::{Announcement, Kind},
    quorum::{Claim, Claimed, LockError, cluster::AttemptMode},
};
use state::Next;
use term::Term;

/// The elector of one name: `Elector::new(&locks, "reconciler").campaign().await?`.
#[derive(Clone, Debug)]
pub struct Elector {
    locks: Locks,
    claim: Claim,
    hesitation: Option<Hesitation>,
    shows: Option<Shows>,
}

/// Told of what the nodes show.
#[derive(Clone)]
struct Shows(Arc<dyn Fn(&LockState) + Send + Sync>);

/// How long a candidate waits when the lock looks free, so that others may go first. Asked before the first bid of each
/// vacancy.
#[derive(Clone)]
#[doc(hidden)]
pub struct Hesitation(Arc<dyn Fn() -> Duration + Send + Sync>);

/// A term, and how long nobody led before it.
#[derive(Debug)]
pub struct Elected {
    /// The term.
    pub term: Term,
    /// How long nobody led, to this acquisition; `None` when this process has seen no holder before.
    ///
    /// It counts from the release, when the holder before has given the lock back. That of one which has died is not known:
    /// it counts from the middle between its last renewal and the next one, which has not come. So it is right to a sixth of
    /// the ttl. A holder that lived on without its nodes may have led for longer, at most to the end of its lease.
    pub leaderless: Option<Duration>,
}

impl Elector {
    /// A candidate for `elect/NAME`.
    #[must_use]
    pub fn new(locks: &Locks, name: &str) -> Self {
        Self::for_key(locks, format!("elect/{name}"))
    }

    /// A candidate for the lock of exactly this key; see [`Locks::lock_key`].
    #[must_use]
    pub fn for_key(locks: &Locks, key: impl Into<String>) -> Self {
        let claim = Claim {
            key: key.into(),
            kind: Kind::Lock,
            ttl: None,
        };
        Self {
            locks: locks.clone(),
            claim,
            hesitation: None,
            shows: None,
        }
    }

    /// Sets the ttl of the lease behind each term; the default is the lock service's.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.claim.ttl = Some(ttl);
        self
    }

    /// Lets others go first.
    #[doc(hidden)]
    pub fn hesitating(mut self, hesitation: Hesitation) -> Self {
        self.hesitation = Some(hesitation);
        self
    }

    /// Tells `to` of all that the nodes show of the lock.
    #[doc(hidden)]
    pub fn showing(mut self, to: impl Fn(&LockState) + Send + Sync + 'static) -> Self {
        self.shows = Some(Shows(Arc::new(to)));
        self
    }

    fn show(&self, seen: &LockState) {
        if let Some(Shows(to)) = &self.shows {
            to(seen);
        }
    }

    /// Watches the lock as long as the answer lives, so that a campaign that begins later need not watch a holder that has died
    /// meanwhile for a ttl first. A campaign watches by itself: this is for the time before it, or between two. It costs one
    /// look per renewal, together with whatever else this process watches, and none while this process holds the lock.
    #[must_use = "the lock is watched as long as this lives"]
    pub fn keep_watching(&self) -> impl Send + Sync + use<> {
        self.locks.keep_watching(&self.claim.key, self.claim.ttl)
    }

    /// Stands by until this replica leads. Store errors are waited out; a cancelled campaign leaves nothing behind.
    ///
    /// # Errors
    /// [`LockError::Closed`] and [`LockError::TtlTooLong`] only: those that waiting cannot cure.
    pub async fn campaign(&self) -> Result<Term, LockError> {
        Ok(self.campaign_timed().await?.term)
    }

    /// As [`Elector::campaign`], and says how long nobody led.
    ///
    /// # Errors
    /// As [`Elector::campaign`].
    pub async fn campaign_timed(&self) -> Result<Elected, LockError> {
        let locks = &self.locks;
        let (clock, chance, timing) = (locks.clock(), locks.chance(), locks.timing());
        let ttl = self.claim.ttl.unwrap_or(timing.ttl);
        // Also while this replica is unfit: once it is fit, the watch is not to begin anew.
        let _watching = self.keep_watching();
        let mut releases = locks.releases();
        let mut backoff = Backoff::new(timing.node_timeout / 5, ttl / 10);
        // The very first bid goes blind: one round trip when nobody holds it.
        let mut next = Next::Bid;
        let mut mode = AttemptMode::default();
        let mut hesitated = false;
        loop {
            if locks.fitness().unfit().is_some() {
                locks.fitness().fit().await;
            }
            let pause = match &self.hesitation {
                Some(hesitation) if next == Next::Bid && !hesitated => (hesitation.0)(),
                _ => Duration::ZERO,
            };
            hesitated |= next == Next::Bid;
            if !pause.is_zero() {
                // Then it is looked at again: whoever was to go first may have it.
                clock.sleep(pause).await;
            } else if next == Next::Bid {
                let (bid, seen, _) = locks.attempt(&self.claim, mode.clone()).await?;
                match bid {
                    Claimed::Acquired(lease) => {
                        let leaderless = seen.vacant_since.map(|at| clock.now().since(at));
                        return Ok(Elected {
                            term: Term::new(lease),
                            leaderless,
                        });
                    }
                    other => tracing::debug!(key = self.claim.key, ?other, "bid failed"),
                }
                // Candidates that bid together split the vote: ask one node first from now on, and wait a random,
                // growing time (R6).
                mode.one_first = true;
                clock.sleep(backoff.next(chance)).await;
            }
            let seen = locks.look(vec![self.claim.key.clone()]).await?;
            let Some(seen) = seen.first() else {
                continue;
            };
            self.show(seen);
            next = state::next(seen, ttl / 2);
            if let Next::Watch { pause, exact } = next {
                backoff.reset();
                mode.one_first = false;
                hesitated = false;
                let mut at = clock.now() + pause;
                if !exact {
                    at = together(at, ttl);
                }
                let holder = seen.holder();
                // As far as can be seen the holder's life ends here, unless it is renewed.
                tokio::select! {
                    biased;
                    () = released(&mut releases, &self.claim.key, holder.as_deref()) => {
                        // That of somebody whom no majority shows says nothing but: look again.
                        if holder.is_some() {
                            next = Next::Bid;
                        }
                        clock.sleep(chance.up_to(timing.node_timeout / 10)).await;
                    }
                    () = clock.sleep_until(at) => {}
                }
            }
        }
    }
}

impl Elector {
    /// What the nodes show of the lock.
    #[doc(hidden)]
    pub async fn look(&self) -> Result<LockState, LockError> {
        let seen = self.locks.look(vec![self.claim.key.clone()]).await?;
        let seen = seen.into_iter().next().ok_or(LockError::Closed)?;
        self.show(&seen);
        Ok(seen)
    }

    /// One bid; nothing when another holds the lock, or when bids have stood in each other's way. With `one_first` one node is
    /// asked before the others, so that candidates that bid together split no votes.
    #[doc(hidden)]
    pub async fn bid(&self, one_first: bool) -> Result<Option<Term>, LockError> {
        let mode = AttemptMode {
            one_first,
            ..AttemptMode::default()
        };
        let (bid, _, _) = self.locks.attempt(&self.claim, mode).await?;
        Ok(match bid {
            Claimed::Acquired(lease) => Some(Term::new(lease)),
            other => {
                tracing::debug!(key = self.claim.key, ?other, "bid failed");
                None
            }
        })
    }

    /// Waits until it makes sense to look again at a lock that somebody holds.
    #[doc(hidden)]
    pub async fn watch(&self, seen: &LockState, releases: &mut broadcast::Receiver<Announcement>) {
        let (clock, chance, timing) =
            (self.locks.clock(), self.locks.chance(), self.locks.timing());
        let ttl = self.claim.ttl.unwrap_or(timing.ttl);
        let Next::Watch { pause, exact } = state::next(seen, ttl / 2) else {
            return;
        };
        let at = clock.now() + pause;
        let at = if exact { at } else { together(at, ttl) };
        let holder = seen.holder();
        tokio::select! {
            biased;
            () = released(releases, &self.claim.key, holder.as_deref()) => {
                clock.sleep(chance.up_to(timing.node_timeout / 10)).await;
            }
            () = clock.sleep_until(at) => {}
        }
    }
}

// === impl Hesitation ===

impl Hesitation {
    #[doc(hidden)]
    pub fn new(pause: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self(Arc::new(pause))
    }
}

impl fmt::Debug for Shows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shows")
    }
}

impl fmt::Debug for Hesitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hesitation")
    }
}
