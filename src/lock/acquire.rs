//! Acquiring one named lock, with waiting.
//!
//! A waiter wakes with the release it hears of, with the end of the holder's life, or by a slow poll, whichever is first
//! (R7). Announcements may be lost; polling is the truth. Where no majority shows a holder, the attempts of several have
//! stood in each other's way: then it is tried again after a random, growing time (R6).

use std::time::Duration;

use tokio::sync::broadcast;

use super::{Claim, Claimed, LockError, Locks, Sighting};
use crate::{backoff::Backoff, lease::Lease, node::Announcement};

/// A waiter asks at least so often: announcements may be lost, and holders change unseen.
const POLL: Duration = Duration::from_secs(1);

/// Pauses between attempts that found no holder, from and to.
const RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));

/// A lock to be acquired: `locks.lock("order:42").ttl(10.secs()).wait(2.secs()).acquire().await?`.
#[derive(Clone, Debug)]
pub struct LockBuilder {
    locks: Locks,
    claim: Claim,
    wait: Duration,
}

// === impl LockBuilder ===

impl LockBuilder {
    pub(super) fn new(locks: Locks, claim: Claim) -> Self {
        let wait = Duration::ZERO;
        Self { locks, claim, wait }
    }

    /// Sets the time to live of the lease, which is renewed every third of it.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.claim.ttl = Some(ttl);
        self
    }

    /// Waits up to `limit` for the present holder; the default is not to wait. `Duration::MAX` waits as long as it
    /// takes, also for nodes that do not answer.
    #[must_use]
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = limit;
        self
    }

    /// Acquires the lock. Cancel-safe: a cancelled acquire leaves nothing behind.
    ///
    /// # Errors
    /// [`LockError`] of the last attempt, when the wait was over.
    pub async fn acquire(self) -> Result<Lease, LockError> {
        let clock = self.locks.clock().clone();
        let until = clock.now() + self.wait;
        let mut releases = self.locks.releases();
        let slow = self.locks.timing().node_timeout;
        let mut backoff = Backoff::new((slow / 5).min(RETRY.0), (slow * 4).min(RETRY.1));
        loop {
            let claimed = self.locks.claim(vec![self.claim.clone()]).await?;
            let why = match claimed.into_iter().next() {
                Some(Claimed::Acquired(lease)) => return Ok(lease),
                Some(Claimed::Held { by, for_at_most }) => LockError::Held { by, for_at_most },
                Some(Claimed::NoQuorum(troubles)) => LockError::NoQuorum(troubles),
                Some(Claimed::TooSlow) => LockError::TooSlow,
                None => LockError::Closed,
            };
            let now = clock.now();
            if now >= until {
                return Err(why);
            }
            // Who is in the way may be another loser of a split vote, gone by now: look who holds it for good.
            let (holder, life) = match &why {
                LockError::Held { .. } => self.holder().await?,
                _ => (None, None),
            };
            let pause = if holder.is_some() {
                backoff.reset();
                while_held(life, slow) + self.locks.chance().up_to(slow / 5)
            } else {
                backoff.next(self.locks.chance())
            };
            let at = (now + pause).min(until);
            let key = &self.claim.key;
            tokio::select! {
                biased;
                () = released(&mut releases, key, holder.as_deref()), if holder.is_some() => {
                    // Waiters that wake together split the vote.
                    clock.sleep(self.locks.chance().up_to(slow / 10)).await;
                }
                () = clock.sleep_until(at) => {}
            }
        }
    }

    /// Whom a majority shows as the holder, and when his life ends unless he renews it.
    async fn holder(&self) -> Result<(Option<String>, Option<Duration>), LockError> {
        let seen = self.locks.look(vec![self.claim.key.clone()]).await?;
        let seen = seen.first();
        Ok((
            seen.and_then(Sighting::holder),
            seen.and_then(Sighting::free_in),
        ))
    }
}

/// How long a waiter sleeps who hears of no release: to the end of the holder's life, or to the slow poll. `slow` is the
/// node timeout.
pub(super) fn while_held(life: Option<Duration>, slow: Duration) -> Duration {
    let poll = (slow * 20).min(POLL);
    // A millisecond more: the key lives to the end of its last one.
    let life = life.map_or(poll, |life| life.saturating_add(Duration::from_millis(1)));
    life.clamp((slow / 5).min(poll), poll)
}

/// Completes when `owner`'s release of `key` is announced, anybody's without an owner; a closed or lagging stream never
/// completes early.
///
/// Name the owner wherever an attempt follows: one that is lost is undone, which is announced, too, and who listens to
/// anybody would be woken by his own.
pub(crate) async fn released(
    releases: &mut broadcast::Receiver<Announcement>,
    key: &str,
    owner: Option<&str>,
) {
    loop {
        match releases.recv().await {
            Ok(news) if news.key == key && owner.is_none_or(|owner| news.owner == owner) => return,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_waiter_wakes_with_the_end_of_the_holders_life_or_by_the_slow_poll() {
        let slow = 50 * MS;
        assert_eq!(while_held(Some(300 * MS), slow), 301 * MS);
        assert_eq!(while_held(Some(10_000 * MS), slow), 1_000 * MS);
        assert_eq!(while_held(Some(Duration::ZERO), slow), 10 * MS);
        assert_eq!(while_held(None, 10 * MS), 200 * MS);
        assert_eq!(while_held(Some(Duration::MAX), 1_000 * MS), POLL);
    }
}
