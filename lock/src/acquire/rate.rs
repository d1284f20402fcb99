//! A rate that all programs keep together: at most so many acts a second, whatever fails.
//!
//! The rate is cut into equal shares. Each share is a slot of a semaphore, so that one program at a time has it, and no
//! act needs a call to the nodes. A program takes more shares while it uses up those that it has, and gives them back
//! when it does not. The shares of a program that dies come back when their leases are over: until then the rate is lower,
//! and it is never higher.
//!
//! # Invariants
//! - L1 In any second at most so many acts begin as the rate says, rounded up, whatever fails and whichever program holds a
//!   share.
//!   (`the_rate_holds_whatever_fails`, `a_share_keeps_its_pace_also_when_it_is_late`)
//! - L2 A share begins with a pause: what its last holder began counts.  (`a_share_begins_with_a_pause`)
//! - L3 A program that comes gets a share within seconds, or within some forty turns of a slow one, however busy the others are
//!   and however many.
//!   (`a_newcomer_gets_a_share_of_a_busy_rate`, `one_program_more_than_there_are_shares_gets_its_part`)
//! - L4 A program with nothing to do holds no share.                     (`an_idle_program_gives_back_what_it_holds`)
//! - L5 A task that waits for its turn is demand for as long as it waits, also for a share that comes late.
//!   (`who_waits_long_for_a_share_gets_it`, `a_program_goes_on_after_its_nodes_were_away`)
//!
//! # Not promised
//! - An act that was allowed and then held up, by a frozen process or a slow network, is counted when it was allowed.
//! - Programs that give one name different rates keep at most the sum of these.
//! - Seconds are those of the programs' clocks: where these run fast by a thousandth, so does the rate.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::sync::watch;

use self::pace::{Cut, Demand, Next, Share};
use super::{Locks, Slot, SlotsBuilder};
use crate::{backoff::Backoff, clock::Moment, quorum::LockError, spawn::Spawn};

mod pace;

/// What a program gives up for others it leaves to them for so long for each share that it has, and as if it had so many at
/// least: an announcement must reach them first.
const COURTESY: (Duration, u32) = (Duration::from_millis(5), 4);
/// Pauses after attempts that failed, from and to.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// The part of a rate that this program has: `locks.rate("mail", 200.0)?`, and before each act `rate.take().await`. Clones
/// share it. Its shares are given back when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Rate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    locks: Locks,
    cut: Cut,
    held: Mutex<Held>,
    /// One of this program's tasks at a time waits for its turn, in the order of their coming.
    first: tokio::sync::Mutex<()>,
    /// Shares came or went.
    news: watch::Sender<()>,
    /// There is something to do for the task that takes and gives back shares; it ends with the sender.
    wanted: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Held {
    shares: Vec<Share<Slot>>,
    demand: Demand,
}

// === impl Rate ===

impl Rate {
    pub(super) fn new(
        slots: impl FnOnce(usize) -> SlotsBuilder,
        locks: Locks,
        per_second: f64,
        spawn: &Spawn,
        news: watch::Sender<()>,
    ) -> Result<Self, LockError> {
        let cut = Cut::of(per_second).ok_or(LockError::Rate)?;
        let inner = Arc::new(Inner {
            locks,
            cut,
            held: Mutex::default(),
            first: tokio::sync::Mutex::default(),
            news,
            wanted: watch::Sender::default(),
        });
        let supply = Supply {
            slots: slots(cut.shares),
            wanted: inner.wanted.subscribe(),
            inner: Arc::downgrade(&inner),
            backoff: Backoff::new(RETRY.0, RETRY.1),
            scarce: false,
        };
        spawn.spawn(supply.run());
        Ok(Self(inner))
    }

    /// Waits until one act may begin, and counts it: as long as it takes, also for nodes that do not answer. Tasks of one
    /// program get their turns in the order in which they came. Cancel-safe: a cancelled call has counted nothing.
    pub async fn take(&self) {
        let _turn = self.0.first.lock().await;
        let mut news = self.0.news.subscribe();
        let clock = self.0.locks.clock();
        while let Err(at) = self.try_take() {
            // Who does not ask again is no demand before long, and then no share comes.
            let again = clock.now() + self.0.cut.ask_again();
            tokio::select! {
                biased;
                _ = news.changed() => {}
                () = clock.sleep_until(at.min(again)) => {}
            }
        }
    }

    /// Whether an act may begin now, without counting one; otherwise when, as [`Rate::try_take`] says it. Counts as demand.
    ///
    /// # Errors
    /// As there.
    #[doc(hidden)] // for the stock jobs
    pub fn ready(&self) -> Result<(), Moment> {
        self.turn(false)
    }

    /// Counts an act that begins now; otherwise says when one may, unless shares come or go: [`Moment::NEVER`] while this
    /// program has none. To be asked again meanwhile, as [`Rate::take`] does: without demand this program tries for no share.
    ///
    /// # Errors
    /// The moment, when it is not now.
    #[doc(hidden)] // for the stock jobs
    pub fn try_take(&self) -> Result<(), Moment> {
        self.turn(true)
    }

    fn turn(&self, take: bool) -> Result<(), Moment> {
        let mut held = self.0.held();
        // Under the lock, here and where the demand is looked at: what was looked at later has the later time.
        let now = self.0.locks.clock().now();
        let idle = held.demand.asked(&self.0.cut, now);
        let open = |slot: &Slot| slot.may_start();
        let next = pace::turn(&mut held.shares, &self.0.cut, open, now, take);
        if next.is_ok() && take {
            held.demand.taken += 1;
        }
        drop(held);
        if idle {
            self.0.wanted.send_replace(());
        }
        next
    }

    /// Changes when shares come or go.
    #[doc(hidden)] // for the stock jobs
    #[must_use]
    pub fn news(&self) -> watch::Receiver<()> {
        self.0.news.subscribe()
    }

    /// Shares that this program has now, and into how many the rate is cut.
    #[doc(hidden)] // for the stock jobs
    #[must_use]
    pub fn shares(&self) -> (usize, usize) {
        (self.0.held().shares.len(), self.0.cut.shares)
    }
}

// === impl Inner ===

impl Inner {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, slot: Slot) {
        let now = self.locks.clock().now();
        self.held().shares.push(Share::begun(slot, &self.cut, now));
        self.news.send_replace(());
    }

    /// Takes out so many shares.
    fn remove(&self, n: usize) -> Vec<Slot> {
        let mut held = self.held();
        let left = held.shares.len().saturating_sub(n);
        let gone = held.shares.split_off(left);
        drop(held);
        self.news.send_replace(());
        gone.into_iter().map(Share::into_slot).collect()
    }
}

/// Takes shares for one program and gives them back.
struct Supply {
    slots: SlotsBuilder,
    wanted: watch::Receiver<()>,
    inner: Weak<Inner>,
    backoff: Backoff,
    /// The last attempt to take a share found all of them taken.
    scarce: bool,
}

// === impl Supply ===

impl Supply {
    /// Until the last handle is dropped. What goes wrong is tried again: nothing is sent meanwhile.
    async fn run(mut self) {
        while let Some(inner) = self.inner.upgrade() {
            let clock = inner.locks.clock().clone();
            let (next, now) = {
                let mut held = inner.held();
                let now = clock.now();
                held.shares.retain(|share| share.slot().is_held());
                let n = held.shares.len();
                (held.demand.next(n, &inner.cut, self.scarce, now), now)
            };
            match next {
                Next::Rest(until) => {
                    drop(inner);
                    tokio::select! {
                        biased;
                        news = self.wanted.changed() => if news.is_err() { return },
                        () = clock.sleep_until(until) => {}
                    }
                }
                Next::More(n, until) => {
                    drop(inner);
                    let slots = self.slots.clone().wait(until.since(now));
                    for _ in 0..n {
                        let acquired = tokio::select! {
                            biased;
                            acquired = slots.clone().acquire() => acquired,
                            () = closed(&mut self.wanted) => return,
                        };
                        if !self.came(acquired).await {
                            break;
                        }
                    }
                }
                Next::Fewer(n) => {
                    for slot in inner.remove(n) {
                        slot.release().await;
                    }
                }
                Next::TurnOver => {
                    let gone = inner.remove(1);
                    let left = inner.held().shares.len();
                    drop(inner);
                    for slot in gone {
                        slot.release().await;
                    }
                    let left = u32::try_from(left).unwrap_or(u32::MAX);
                    let (each, least) = COURTESY;
                    clock.sleep(each.saturating_mul(left.max(least))).await;
                    let acquired = self.slots.clone().acquire().await;
                    self.came(acquired).await;
                }
            }
        }
    }

    /// Whether a share was got.
    async fn came(&mut self, acquired: Result<Slot, LockError>) -> bool {
        let Some(inner) = self.inner.upgrade() else {
            return false;
        };
        match acquired {
            Ok(slot) => {
                inner.add(slot);
                self.scarce = false;
                self.backoff.reset();
                return true;
            }
            Err(LockError::Held { .. }) => self.scarce = true,
            Err(error) => {
                tracing::debug!(%error, "no share of a rate was acquired");
                let (clock, chance) = (inner.locks.clock().clone(), inner.locks.chance().clone());
                let pause = self.backoff.next(&chance);
                drop(inner);
                clock.sleep(pause).await;
            }
        }
        false
    }
}

/// Completes when the last handle has been dropped.
async fn closed(wanted: &mut watch::Receiver<()>) {
    while wanted.changed().await.is_ok() {}
}

#[cfg(test)]
mod tests;
