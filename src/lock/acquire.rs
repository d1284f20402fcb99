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
    /// With observed expiry a lock whose holder has gone without a word looks held for one ttl of it longer than its key
    /// stands. Whoever asks without waiting does not wait for a living holder, but sits that time out, and it is logged:
    /// otherwise programs that run once would never see a dead holder's time run out.
    ///
    /// # Errors
    /// [`LockError`] of the last attempt, when the wait was over.
    pub async fn acquire(self) -> Result<Lease, LockError> {
        let clock = self.locks.clock().clone();
        let mut until = clock.now() + self.wait;
        let mut releases = self.locks.releases();
        let slow = self.locks.timing().node_timeout;
        let mut backoff = Backoff::new((slow / 5).min(RETRY.0), (slow * 4).min(RETRY.1));
        let mut sits_out = false;
        loop {
            let why = match self.attempt().await? {
                Ok(lease) => return Ok(lease),
                Err(why) => why,
            };
            let held = matches!(why, LockError::Held { .. });
            let mut watched = false;
            loop {
                if clock.now() >= until && (sits_out || !held) {
                    return Err(why);
                }
                // Look first: an attempt of ours would only stand in the way of the holder and of other waiters.
                let seen = self.look().await?;
                let now = clock.now();
                if now >= until || sits_out {
                    match seen.free_in() {
                        _ if sits_out && (seen.is_orphaned() || seen.looks_free()) => {}
                        Some(rest) if seen.is_orphaned() => {
                            sits_out = true;
                            until = now + rest + slow * 2;
                            tracing::info!(
                                key = self.claim.key,
                                "its last holder has gone without releasing it: watching for another {rest:?}"
                            );
                        }
                        _ => return Err(why),
                    }
                }
                if seen.looks_free() {
                    if !watched {
                        // Who was in the way is another loser of a split vote, gone by now.
                        let pause = backoff.next(self.locks.chance());
                        clock.sleep_until((now + pause).min(until)).await;
                    }
                    break;
                }
                watched = true;
                backoff.reset();
                let holder = seen.holder();
                let pause = while_held(&seen, slow) + self.locks.chance().up_to(slow / 5);
                let at = (now + pause).min(until);
                tokio::select! {
                    biased;
                    () = released(&mut releases, &self.claim.key, holder.as_deref()), if holder.is_some() => {
                        // Waiters that wake together split the vote.
                        clock.sleep(self.locks.chance().up_to(slow / 10)).await;
                        break;
                    }
                    () = clock.sleep_until(at) => {}
                }
            }
        }
    }

    /// One attempt. The outer error is one that trying again cannot cure.
    async fn attempt(&self) -> Result<Result<Lease, LockError>, LockError> {
        let claimed = self.locks.claim(vec![self.claim.clone()]).await?;
        Ok(match claimed.into_iter().next() {
            Some(Claimed::Acquired(lease)) => Ok(lease),
            Some(Claimed::Held { by, for_at_most }) => Err(LockError::Held { by, for_at_most }),
            Some(Claimed::NoQuorum(troubles)) => Err(LockError::NoQuorum(troubles)),
            Some(Claimed::TooSlow) => Err(LockError::TooSlow),
            None => Err(LockError::Closed),
        })
    }

    async fn look(&self) -> Result<Sighting, LockError> {
        let seen = self.locks.look(vec![self.claim.key.clone()]).await?;
        seen.into_iter().next().ok_or(LockError::Closed)
    }
}

/// How long a waiter sleeps who hears of no release: to the end of the holder's life as far as it is seen, to its next
/// sign of life, or to the slow poll. `slow` is the node timeout.
fn while_held(seen: &Sighting, slow: Duration) -> Duration {
    let poll = (slow * 20).min(POLL);
    let poll = seen.look_in().map_or(poll, |look| look.min(poll));
    // A millisecond more: the key lives to the end of its last one.
    let life = seen.free_in().unwrap_or(poll);
    let life = life.saturating_add(Duration::from_millis(1));
    life.min(poll).max((slow / 5).min(POLL))
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
    use crate::node::View;

    const MS: Duration = Duration::from_millis(1);

    fn held(life: Option<u64>) -> Sighting {
        let view = View {
            holder: Some("a".into()),
            remaining_ms: life,
            ..View::default()
        };
        Sighting::new("k", vec![Ok(view)])
    }

    #[test]
    fn a_waiter_wakes_with_the_end_of_the_holders_life_or_by_the_slow_poll() {
        let slow = 50 * MS;
        assert_eq!(while_held(&held(Some(300)), slow), 301 * MS);
        assert_eq!(while_held(&held(Some(10_000)), slow), 1_000 * MS);
        assert_eq!(while_held(&held(Some(0)), slow), 10 * MS);
        assert_eq!(while_held(&held(None), 10 * MS), 200 * MS);
        assert_eq!(while_held(&held(Some(u64::MAX)), 1_000 * MS), POLL);
    }
}
