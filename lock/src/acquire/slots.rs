//! A semaphore: at most so many holders at a time, each in a numbered slot.
//!
//! Every slot is a lock of its own on a majority of the nodes, with its own lease, token and record. So there are never
//! more holders than slots, whatever node fails: a counter beside one lock could not promise that.
//!
//! # Invariants
//! - M1 At most `of` holders at a time, if all contenders name the same number.   (never_more_holders_than_slots)
//! - M2 Finding all slots taken costs one call per node, and waiting for them one more every half minute, with which the nodes
//!   are told to announce releases.                                              (a_full_semaphore_costs_one_round)
//! - M3 A waiter gets the slot that is free first.                                (a_waiter_takes_the_first_free_slot)
//!
//! # Not promised
//! Fairness: the longest waiter is not first. Tokens grow within a slot, not over all of them: a receiver that
//! compares tokens must do so per slot.

use std::{collections::BTreeMap, time::Duration};

use super::{Locks, builder::while_held};
use crate::{
    backoff::Backoff,
    clock::Moment,
    expiry::LockState,
    human::Brief,
    keeper::Releases,
    lease::{Lease, LeaseView, ReleaseReport},
    node::Announcement,
    quorum::{
        Claim, Claimed, LockError, MOST_SLOTS, NodeTroubles, claim::AttemptMode, tally::majority,
    },
};

/// Where slots lie, and those that are shares of a rate: no key of a named lock, an election, a job or a batch begins so.
const FAMILY: &str = "slots/";
const RATES: &str = "rates/";
/// For how long the nodes are told that a client waits for a slot. They are told again when half of it is over.
const WAITS: Duration = Duration::from_secs(60);
/// Pauses between attempts that found free slots and got none, from and to.
const RETRY: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));

/// Slots to be acquired: `locks.slots("gpu", 4).ttl(10.secs()).wait(2.secs()).acquire().await?`.
#[derive(Clone, Debug)]
pub struct SlotsBuilder {
    locks: Locks,
    family: &'static str,
    name: String,
    of: usize,
    ttl: Option<Duration>,
    wait: Duration,
}

/// One held slot of a semaphore. Dropping it hands the release to the keeper, in the background.
#[derive(Debug)]
pub struct Slot {
    lease: Lease,
    index: usize,
}

// === impl Slot ===

impl Slot {
    /// Which slot, from 0: for whatever there is one of per slot, such as a device.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// The lease of the slot's lock.
    #[doc(hidden)] // for the programs of the command
    #[must_use]
    pub fn lease(&self) -> &LeaseView {
        self.lease.view()
    }

    /// The lease itself, for code that treats slots and locks alike.
    #[doc(hidden)] // for the programs of the command
    #[must_use]
    pub fn into_lease(self) -> Lease {
        self.lease
    }

    /// Releases the slot on all nodes and wakes waiters; reports as [`Lease::release`] does.
    ///
    /// # Cancellation
    /// A dropped call has ended the belief all the same, and the release goes on in the background.
    pub async fn release(self) -> ReleaseReport {
        self.lease.release().await
    }
}

impl std::ops::Deref for Slot {
    type Target = LeaseView;
    fn deref(&self) -> &LeaseView {
        self.lease.view()
    }
}

// === impl SlotsBuilder ===

impl SlotsBuilder {
    pub(super) fn new(locks: Locks, name: &str, of: usize) -> Self {
        Self {
            locks,
            family: FAMILY,
            name: name.to_owned(),
            of,
            ttl: None,
            wait: Duration::ZERO,
        }
    }

    /// The shares of a rate, which are no slots of a semaphore of that name.
    pub(super) fn of_rate(locks: Locks, name: &str, of: usize) -> Self {
        Self {
            family: RATES,
            ..Self::new(locks, name, of)
        }
    }

    /// Sets the time to live of the slot's lease, which is extended in the background every third of it.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// Waits up to `limit` for a slot to become free; the default is not to wait. `Duration::MAX` waits as long as it
    /// takes, also for nodes that do not answer.
    #[must_use]
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = limit;
        self
    }

    /// Acquires any slot. Cancel-safe: a cancelled acquire leaves nothing behind.
    ///
    /// # Errors
    /// [`LockError`] of the last attempt, when the wait was over: [`LockError::Held`] without an owner when all slots are
    /// taken, with the time after which the first is free unless its holder extends it. [`LockError::SlotCount`] at once
    /// for a number of slots that is not from 1 to [`MOST_SLOTS`].
    pub async fn acquire(self) -> Result<Slot, LockError> {
        if !(1..=MOST_SLOTS).contains(&self.of) {
            return Err(LockError::SlotCount { slots: self.of });
        }
        let (clock, chance) = (self.locks.clock().clone(), self.locks.chance().clone());
        let mut until = clock.now() + self.wait;
        let mut sits_out = false;
        let slow = self.locks.timing().node_timeout;
        let mut backoff = Backoff::new((slow / 5).min(RETRY.0), (slow * 4).min(RETRY.1));
        let keys: Vec<String> = (0..self.of).map(|slot| self.key(slot)).collect();
        let mut releases = self.locks.0.releases.listen(keys.clone());
        let mut tell_at = Moment::ZERO;
        loop {
            let seen = self.locks.look(keys.clone()).await?;
            // At random: contenders that come together are not to meet at one slot.
            let first = usize::try_from(chance.below(self.of as u64)).unwrap_or(0);
            let mut why = None;
            for slot in free(&seen, first) {
                // What is free may be forgotten, and with it that we wait.
                tell_at = Moment::ZERO;
                match self.bid(slot).await? {
                    Ok(slot) => return Ok(slot),
                    Err(error) => why = Some(error),
                }
            }
            let now = clock.now();
            let full = why.is_none();
            let why = match why {
                Some(why) => why,
                None => none_free(&seen, &self.names().await?),
            };
            if now >= until {
                // As a single lock does that is tried once: programs that run once would never see the time of a dead holder run out.
                let orphans = seen.iter().filter(|s| s.is_orphaned());
                match orphans.filter_map(LockState::free_in).min() {
                    Some(rest) if full && !sits_out && self.wait.is_zero() => {
                        sits_out = true;
                        until = now + rest + slow * 4;
                        tracing::info!(
                            slots = self.name,
                            "the last holder of a slot has gone without releasing it: it is watched for another {}",
                            Brief(rest)
                        );
                    }
                    _ => return Err(why),
                }
            }
            let first = seen
                .iter()
                .min_by_key(|s| s.free_in().unwrap_or(Duration::MAX));
            let pause = match (&why, first) {
                (LockError::Held { .. }, Some(first)) if full => while_held(first, slow),
                // Nodes that do not answer, or others that bid just now: again after a random, growing time.
                _ => {
                    clock
                        .sleep(backoff.next(&chance).min(until.since(now)))
                        .await;
                    continue;
                }
            };
            backoff.reset();
            // An announcement that comes meanwhile waits in the stream (W5).
            if now >= tell_at && now < until {
                if let Some(slot) = self.tell(&seen, WAITS.min(until.since(now))).await? {
                    return Ok(slot);
                }
                tell_at = now + WAITS / 2;
            }
            let pause = pause + chance.up_to(slow / 5);
            tokio::select! {
                biased;
                () = any_released(&mut releases, &seen) => {
                    // Waiters that wake together split the vote.
                    clock.sleep(chance.up_to(slow / 10)).await;
                }
                () = clock.sleep_until((now + pause).min(until)) => {}
            }
        }
    }

    async fn bid(&self, index: usize) -> Result<Result<Slot, LockError>, LockError> {
        let mut claim = Claim::named(self.key(index));
        claim.ttl = self.ttl;
        let claimed = self.locks.claim(vec![claim]).await?;
        let claimed = claimed.into_iter().next().ok_or(LockError::Closed)?;
        Ok(claimed.into_lease().map(|lease| Slot { lease, index }))
    }

    /// Tells the nodes that show a holder of every slot that a client waits for any of them: by one attempt at all, which is
    /// refused where they are held. A slot that has become free in this moment is the caller's.
    async fn tell(&self, seen: &[LockState], waits: Duration) -> Result<Option<Slot>, LockError> {
        let mut only: Vec<usize> = (0..seen.first().map_or(0, |slot| slot.nodes.len())).collect();
        for slot in seen {
            let held = slot.held_on();
            only.retain(|node| held.contains(node));
        }
        if !seen.iter().all(|slot| slot.are_enough(&only)) {
            return Ok(None);
        }
        let mode = AttemptMode {
            waits,
            only: Some(only),
            ..AttemptMode::default()
        };
        let claim = |slot| Claim {
            ttl: self.ttl,
            ..Claim::named(self.key(slot))
        };
        let claims = (0..self.of).map(claim).collect();
        let claimed = self.locks.claim_by(claims, mode).await?;
        // Whatever else has become free is released when it is dropped.
        let mut leases = claimed.into_iter().map(Claimed::into_lease).enumerate();
        Ok(leases.find_map(|(index, lease)| {
            let lease = lease.ok()?;
            Some(Slot { lease, index })
        }))
    }

    async fn names(&self) -> Result<Vec<String>, LockError> {
        let nodes = self.locks.nodes().await?;
        Ok(nodes.into_iter().map(|node| node.name).collect())
    }

    /// The last slash ends the name, so that no two semaphores share a key, whatever their names.
    fn key(&self, slot: usize) -> String {
        format!("{}{}/{slot}", self.family, self.name)
    }
}

// === decisions ===

/// The slots that a majority shows as free, in the order in which to try them.
fn free(seen: &[LockState], first: usize) -> Vec<usize> {
    let slots = seen.len();
    (0..slots)
        .map(|i| (first + i) % slots)
        .filter(|slot| seen[*slot].looks_free())
        .collect()
}

/// Why no slot looks free: all are taken, or too few nodes say anything.
fn none_free(seen: &[LockState], names: &[String]) -> LockError {
    let first = seen.first().map(|slot| &slot.nodes[..]);
    let nodes = first.unwrap_or_default();
    let needed = majority(nodes.len());
    let answered = nodes.iter().filter(|node| node.is_ok()).count();
    if answered < needed {
        return LockError::NoQuorum(NodeTroubles {
            nodes: names
                .iter()
                .zip(nodes)
                .filter_map(|(name, node)| Some((name.clone(), node.as_ref().err()?.clone())))
                .collect(),
            configured: nodes.len(),
            needed,
        });
    }
    LockError::Held {
        by: None,
        for_at_most: seen.iter().filter_map(LockState::free_in).min(),
    }
}

/// Completes when the release of a slot is announced: by the holder that was seen, or by any owner where no holder
/// was seen. A closed or lagging stream never completes early. Lost bids are undone, which is announced as well: if
/// that counted, it would wake all waiters, which would bid and undo in turn.
async fn any_released(releases: &mut Releases, seen: &[LockState]) {
    let holders: BTreeMap<&str, Option<String>> =
        seen.iter().map(|s| (s.key.as_str(), s.holder())).collect();
    let wakes = |news: &Announcement| match holders.get(news.key.as_str()) {
        Some(Some(holder)) => *holder == news.owner,
        Some(None) => true,
        None => false,
    };
    releases.next(wakes).await;
}

#[cfg(test)]
mod tests;
