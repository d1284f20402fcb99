//! Acquiring one named lock, with waiting.
//!
//! The first attempt goes to all nodes at once: one round trip without contention. A waiter that is refused takes a
//! place in the lock's queue. It wakes when it is called, with the end of the holder's life, or by a slow poll,
//! whichever is first (R7). Announcements come while the nodes know that it waits, and may be lost; polling is the truth. A foreign
//! client announces nothing, so what it wrote is looked at more often (W7). From the second attempt on the lock's
//! primary is asked first, and the other nodes only when it granted (R6). When attempts of several clients have split
//! the vote, each tries again after a random, growing time.

use std::time::Duration;

use super::{
    Locks,
    wait_queue::{QueueTicket, Woken},
};
use crate::{
    backoff::Backoff,
    clock::Moment,
    expiry::LockState,
    human::Brief,
    keeper::Releases,
    lease::Lease,
    quorum::{Claim, LockError, claim::AttemptMode},
};

/// A waiter asks at least so often: announcements may be lost, and holders change unseen.
const POLL: Duration = Duration::from_secs(2);

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

    /// Sets the time to live of the lease, which is extended in the background every third of it.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.claim.ttl = Some(ttl);
        self
    }

    /// Waits up to `limit` for the present holder; the default is not to wait. `Duration::MAX` waits as long as it
    /// takes, also for nodes that do not answer. When the limit is over, an attempt that is under way is not waited for
    /// longer than a few node timeouts.
    #[must_use]
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = limit;
        self
    }

    /// Acquires the lock. Cancel-safe: a cancelled acquire leaves nothing behind.
    ///
    /// With observed expiry a lock whose holder died looks held for one ttl longer than its key stands. Without a
    /// wait this call does not wait for a living holder, but it does wait for a dead one, and logs it: programs that
    /// run once would otherwise never see the time of a dead holder run out. With a wait that time counts towards the
    /// limit. What has been watched is remembered as long as this process lives.
    ///
    /// # Errors
    /// [`LockError`] of the last attempt, when the wait was over.
    pub async fn acquire(self) -> Result<Lease, LockError> {
        if self.wait.is_zero() {
            self.at_once().await
        } else {
            self.in_queue().await
        }
    }

    async fn at_once(&self) -> Result<Lease, LockError> {
        let (claimed, seen, _) = self
            .locks
            .attempt(&self.claim, AttemptMode::default())
            .await?;
        match claimed.into_lease() {
            Err(why) if seen.is_orphaned() => self.sit_out(seen, why).await,
            done => done,
        }
    }

    /// Watches an orphan until it may be taken, and takes it. A holder that turns out to live ends this with `why`.
    async fn sit_out(&self, mut seen: LockState, why: LockError) -> Result<Lease, LockError> {
        let (clock, slow) = (self.locks.clock(), self.locks.timing().node_timeout);
        let Some(rest) = seen.free_in() else {
            return Err(why);
        };
        let until = clock.now() + rest + slow * 4;
        tracing::info!(
            key = self.claim.key,
            "its last holder has gone without releasing it: it is watched for another {}",
            Brief(rest)
        );
        loop {
            if seen.looks_free() {
                let again = AttemptMode {
                    one_first: true,
                    ..AttemptMode::default()
                };
                let (claimed, now, _) = self.locks.attempt(&self.claim, again).await?;
                match claimed.into_lease() {
                    Err(_) if now.is_orphaned() && clock.now() < until => {}
                    done => return done,
                }
            } else if !seen.is_orphaned() || clock.now() >= until {
                return Err(why);
            }
            clock.sleep(while_held(&seen, slow)).await;
            seen = self.look().await?;
        }
    }

    async fn in_queue(&self) -> Result<Lease, LockError> {
        let (clock, chance) = (self.locks.clock(), self.locks.chance());
        let slow = self.locks.timing().node_timeout;
        let until = clock.now() + self.wait;
        let mut releases = self.locks.releases_of(&self.claim.key);
        let mut backoff = Backoff::new((slow / 5).min(RETRY.0), (slow * 4).min(RETRY.1));
        let mut ticket = QueueTicket::new(&self.locks, &self.claim.key);
        let mut mode = ticket.first();
        loop {
            let (claimed, seen, position) = self.locks.attempt(&self.claim, mode).await?;
            let why = match claimed.into_lease() {
                Ok(lease) => {
                    ticket.taken(&position);
                    return Ok(lease);
                }
                Err(why) => why,
            };
            ticket.refused(position);
            let now = clock.now();
            if now >= until {
                // A limit is a limit, also where the holder has gone: the next call of this process goes on watching it.
                return Err(why);
            }
            mode = match why {
                LockError::Held { .. } if !ticket.is_queued() => ticket.queue(),
                why => {
                    let held = matches!(why, LockError::Held { .. });
                    let again =
                        self.until_another_try(&mut ticket, &mut releases, seen, held, until);
                    match again.await? {
                        Some(mode) => {
                            backoff.reset();
                            mode
                        }
                        // Attempts of several have stood in each other's way, or too few nodes answer.
                        None => {
                            let pause = backoff.next(chance);
                            clock.sleep_until((clock.now() + pause).min(until)).await;
                            ticket.queue()
                        }
                    }
                }
            };
        }
    }

    /// Waits in the queue until there is a reason to try again; `None` when only time can help.
    async fn until_another_try(
        &self,
        ticket: &mut QueueTicket,
        releases: &mut Releases,
        mut seen: LockState,
        held: bool,
        until: Moment,
    ) -> Result<Option<AttemptMode>, LockError> {
        let (clock, chance) = (self.locks.clock(), self.locks.chance());
        let slow = self.locks.timing().node_timeout;
        if ticket.was_called_in_vain(seen.holder().as_deref()) || !held {
            return Ok(None);
        }
        // Free, and refused all the same: it is the turn of a waiter before us.
        let mut turn_of_another = seen.looks_free();
        if turn_of_another && ticket.is_first() {
            return Ok(None);
        }
        loop {
            let now = clock.now();
            let pause = if turn_of_another {
                ticket.patience()
            } else if let Some(pause) = ticket.beside_foreign(&seen) {
                pause.min(while_held(&seen, slow))
            } else {
                let pause = while_held(&seen, slow);
                match seen.free_in() {
                    Some(end) if end <= pause && ticket.leads() => pause,
                    // Waiters for the same end should not ask in the same moment.
                    Some(end) if end <= pause => pause + chance.up_to(slow / 5),
                    // Waiters that only look should: what is asked together is one call.
                    _ => on_the_beat(now, pause),
                }
            };
            let pause = pause.min(ticket.longest_sleep());
            let holder = seen.holder();
            let timer = clock.sleep_until((now + pause).min(until));
            let woken = ticket.wait(releases, holder.as_deref(), timer).await;
            match woken {
                Woken::Called => return Ok(Some(ticket.called())),
                Woken::Released => {
                    // Waiters that wake together split the vote.
                    clock.sleep(chance.up_to(slow / 10)).await;
                    return Ok(Some(ticket.queue()));
                }
                Woken::Time if turn_of_another => return Ok(Some(ticket.impatient())),
                Woken::Time if clock.now() >= until => return Ok(Some(ticket.queue())),
                Woken::Time | Woken::Gap => {}
            }
            // Every waiter watches all nodes: what one of them shows stands for no other, and a holder that is first
            // seen when it has died is watched for a ttl from then on.
            seen = self.look().await?;
            if seen.looks_free() {
                if ticket.leads() {
                    return Ok(Some(ticket.called()));
                }
                if ticket.is_first() {
                    return Ok(Some(ticket.impatient()));
                }
                turn_of_another = true;
            } else if ticket.fades() {
                return Ok(Some(ticket.renew(&seen)));
            }
        }
    }

    async fn look(&self) -> Result<LockState, LockError> {
        let seen = self.locks.look(vec![self.claim.key.clone()]).await?;
        seen.into_iter().next().ok_or(LockError::Closed)
    }
}

/// How long a waiter sleeps that hears of no release: to the end of the holder's life as far as it is seen, to its next
/// sign of life, or to the slow poll. `slow` is the node timeout.
pub(super) fn while_held(seen: &LockState, slow: Duration) -> Duration {
    let poll = (slow * 40).min(POLL);
    let poll = seen.look_in().map_or(poll, |look| look.min(poll));
    // A millisecond more: the key lives to the end of its last one.
    let life = seen.free_in().unwrap_or(poll);
    let life = life.saturating_add(Duration::from_millis(1));
    life.min(poll).max((slow / 5).min(POLL))
}

/// A pause that is longer by a quarter at most, and ends where those of this process' other waiters do.
fn on_the_beat(now: Moment, pause: Duration) -> Duration {
    let mut beat = POLL / 4;
    while beat > pause / 4 && beat > Duration::from_millis(1) {
        beat /= 2;
    }
    let (end, beat) = (
        (now + pause).since_boot().as_micros(),
        beat.as_micros().max(1),
    );
    let rest = (beat - end % beat) % beat;
    pause + Duration::from_micros(u64::try_from(rest).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::View;

    const MS: Duration = Duration::from_millis(1);

    fn held(life: Option<u64>) -> LockState {
        let view = View {
            holder: Some("a".into()),
            remaining_ms: life,
            ..View::default()
        };
        LockState::new("k", vec![Ok(view)])
    }

    #[test]
    fn those_who_only_look_do_so_together() {
        let boot = Moment::ZERO;
        for late in [0, 1, 130, 249] {
            let now = boot + 7_000 * MS + late * MS;
            let end = now + on_the_beat(now, 1_000 * MS);
            let expected = if late == 0 { 8_000 } else { 8_250 };
            assert_eq!(end, boot + expected * MS);
            let short = on_the_beat(now, 10 * MS);
            assert!(10 * MS <= short && short <= 13 * MS, "{short:?}");
        }
    }

    #[test]
    fn a_waiter_wakes_with_the_end_of_the_holders_life_or_by_the_slow_poll() {
        let slow = 50 * MS;
        assert_eq!(while_held(&held(Some(300)), slow), 301 * MS);
        assert_eq!(while_held(&held(Some(10_000)), slow), POLL);
        assert_eq!(while_held(&held(Some(0)), slow), 10 * MS);
        assert_eq!(while_held(&held(None), 10 * MS), 400 * MS);
        assert_eq!(while_held(&held(Some(u64::MAX)), 1_000 * MS), POLL);
    }
}
