//! Jobs with nothing to do: one timer for all of them.
//!
//! An engine that waits for its next tick rests here with an instant of the wall clock, a moment of the other one and the lease
//! that it holds. One task of the replica sleeps until the first of these, looks at the wall clock now and then because it may be
//! set meanwhile, and wakes those whose time has come. What ten thousand jobs at rest cost is a row each in three maps: no timer,
//! and no look at a clock.
//!
//! # Invariants
//! - Z1 What rests is woken when its time has come, and not before its instant of the wall clock.
//!   (a_job_at_rest_is_woken_at_its_time)
//! - Z2 A wall clock that was set is noticed within [`LOOK_AGAIN`], for all jobs at once.   (a_clock_that_was_set_wakes_all)
//! - Z3 No news is slept through: what is asked of the fleet, or told of definitions, wakes all, also where it came just before
//!   they began to rest.   (news_wakes_what_rests)
//! - Z4 A lease that is extended keeps its job at rest; a lease that is not wakes it.   (an_extended_lease_lets_its_job_rest)

use std::{
    collections::{BTreeMap, BTreeSet},
    future::poll_fn,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context as Waiting, Poll, Waker},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

use super::{Intents, definitions::Definitions};
use crate::{clock::Moment, lease::LeaseView, lock::Locks};

/// The longest sleep between two looks at the wall clock: it may be set meanwhile.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// The jobs of a replica that rest. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resting(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    sleepers: Mutex<Sleepers>,
    /// One of them is to be woken sooner than all that were known.
    bell: Notify,
}

/// Until when a job rests: whatever comes first.
#[derive(Clone, Debug)]
pub(super) struct Until {
    pub(super) wall: Option<Timestamp>,
    pub(super) moment: Moment,
    /// Until this lease is over.
    pub(super) lease: Option<LeaseView>,
}

/// What was known when it was decided to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct News {
    pub(super) intents: u64,
    pub(super) definitions: u64,
}

#[derive(Debug, Default)]
struct Sleepers {
    last: u64,
    all: BTreeMap<u64, Sleeper>,
    by_wall: BTreeSet<(Timestamp, u64)>,
    by_moment: BTreeSet<(Moment, u64)>,
}

#[derive(Debug)]
struct Sleeper {
    until: Until,
    /// When it is looked at, by the end of its lease as it was known last.
    at: Moment,
    waker: Option<Waker>,
    woken: bool,
}

/// A job at rest, until this is dropped.
struct Rest<'a> {
    resting: &'a Resting,
    id: u64,
}

/// How the wall clock stood to the other one.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    now: Moment,
    wall: Timestamp,
}

// === impl News ===

impl News {
    pub(super) fn seen(intents: &Intents, definitions: &Definitions) -> Self {
        Self {
            intents: intents.seen(),
            definitions: definitions.seen(),
        }
    }
}

// === impl Resting ===

impl Resting {
    /// Rests until then, or until there is other news than `known`, which `now` reads. It may end early. Cancel-safe.
    pub(super) async fn until(&self, until: Until, known: News, now: impl Fn() -> News) {
        let rest = self.lie_down(until);
        // Only now: what comes after this look finds it here.
        if now() != known {
            return;
        }
        poll_fn(|cx| rest.poll(cx)).await;
    }

    /// Wakes those whose time has come, and all when there is news, until the task is dropped.
    pub(crate) async fn follow(self, locks: Locks, intents: Intents, definitions: Definitions) {
        let clock = locks.clock().clone();
        let look = || Clocks {
            now: clock.now(),
            wall: locks.wall(),
        };
        let mut known = look();
        let mut news = News::seen(&intents, &definitions);
        loop {
            let shown = look();
            // Half of it: what has moved the other way since may add to this.
            let set = shown.apart(&known) > locks.timing().skew / 2;
            let told = News::seen(&intents, &definitions);
            if set {
                known = shown;
            }
            let all = set || std::mem::replace(&mut news, told) != told;
            let pause = self.wake(all, shown);
            let mut asked = news.intents;
            tokio::select! {
                biased;
                () = self.0.bell.notified() => {}
                () = intents.changed(&mut asked) => {}
                () = definitions.changed(news.definitions) => {}
                () = clock.sleep(pause) => {}
            }
        }
    }

    /// Says when to look again.
    fn wake(&self, all: bool, shown: Clocks) -> Duration {
        let (woken, pause) = {
            let mut sleepers = self.sleepers();
            let woken = match all {
                true => sleepers.wake_all(),
                false => sleepers.wake_due(shown),
            };
            (woken, sleepers.pause(shown))
        };
        woken.into_iter().for_each(Waker::wake);
        pause
    }

    fn lie_down(&self, until: Until) -> Rest<'_> {
        let mut sleepers = self.sleepers();
        let first = sleepers.first();
        let id = sleepers.add(until);
        let (wall, at) = sleepers.first();
        let sooner = at < first.1 || wall.is_some_and(|wall| first.0.is_none_or(|was| wall < was));
        drop(sleepers);
        if sooner {
            self.0.bell.notify_one();
        }
        Rest { resting: self, id }
    }

    fn sleepers(&self) -> MutexGuard<'_, Sleepers> {
        // Every change is complete before the lock is given back.
        let sleepers = self.0.sleepers.lock();
        sleepers.unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Rest ===

impl Rest<'_> {
    fn poll(&self, cx: &Waiting<'_>) -> Poll<()> {
        let mut sleepers = self.resting.sleepers();
        let Some(sleeper) = sleepers.all.get_mut(&self.id) else {
            return Poll::Ready(());
        };
        if sleeper.woken {
            return Poll::Ready(());
        }
        let same = |waker: &Waker| waker.will_wake(cx.waker());
        if !sleeper.waker.as_ref().is_some_and(same) {
            sleeper.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        self.resting.sleepers().remove(self.id);
    }
}

// === impl Sleepers ===

impl Sleepers {
    fn add(&mut self, until: Until) -> u64 {
        self.last += 1;
        let id = self.last;
        let at = until.looked_at();
        if let Some(wall) = until.wall {
            self.by_wall.insert((wall, id));
        }
        if at < Moment::NEVER {
            self.by_moment.insert((at, id));
        }
        let sleeper = Sleeper {
            until,
            at,
            waker: None,
            woken: false,
        };
        self.all.insert(id, sleeper);
        id
    }

    fn remove(&mut self, id: u64) {
        if let Some(sleeper) = self.all.remove(&id) {
            self.forget(id, sleeper.until.wall, sleeper.at);
        }
    }

    fn forget(&mut self, id: u64, wall: Option<Timestamp>, at: Moment) {
        if let Some(wall) = wall {
            self.by_wall.remove(&(wall, id));
        }
        self.by_moment.remove(&(at, id));
    }

    /// The first of each clock.
    fn first(&self) -> (Option<Timestamp>, Moment) {
        let wall = self.by_wall.first().map(|(wall, _)| *wall);
        let at = self.by_moment.first().map_or(Moment::NEVER, |(at, _)| *at);
        (wall, at)
    }

    fn wake_all(&mut self) -> Vec<Waker> {
        self.by_wall.clear();
        self.by_moment.clear();
        self.all.values_mut().filter_map(Sleeper::wake).collect()
    }

    fn wake_due(&mut self, shown: Clocks) -> Vec<Waker> {
        let by_wall = self.by_wall.range(..=(shown.wall, u64::MAX));
        let mut due: Vec<u64> = by_wall.map(|(_, id)| *id).collect();
        let by_moment = self.by_moment.range(..=(shown.now, u64::MAX));
        let looked_at: Vec<u64> = by_moment.map(|(_, id)| *id).collect();
        for id in looked_at {
            let Some(sleeper) = self.all.get_mut(&id) else {
                continue;
            };
            let at = sleeper.until.looked_at();
            if at <= shown.now {
                due.push(id);
                continue;
            }
            // Its lease was extended.
            self.by_moment.remove(&(sleeper.at, id));
            sleeper.at = at;
            self.by_moment.insert((at, id));
        }
        let mut woken = Vec::new();
        for id in due {
            let Some(sleeper) = self.all.get_mut(&id) else {
                continue;
            };
            woken.extend(sleeper.wake());
            let (wall, at) = (sleeper.until.wall, sleeper.at);
            self.forget(id, wall, at);
        }
        woken
    }

    /// How long nothing is due, as the clocks go on.
    fn pause(&self, shown: Clocks) -> Duration {
        let (wall, at) = self.first();
        let wall = wall.map(|wall| Duration::try_from(wall.duration_since(shown.wall)));
        let wall = wall.map_or(LOOK_AGAIN, Result::unwrap_or_default);
        wall.min(at.since(shown.now)).min(LOOK_AGAIN)
    }
}

impl Sleeper {
    fn wake(&mut self) -> Option<Waker> {
        self.woken = true;
        self.waker.take()
    }
}

impl Until {
    fn looked_at(&self) -> Moment {
        let lease = self.lease.as_ref().map(LeaseView::valid_until);
        lease.map_or(self.moment, |over| over.min(self.moment))
    }
}

// === impl Clocks ===

impl Clocks {
    /// How far the wall clock has moved beside the other one.
    fn apart(&self, known: &Self) -> Duration {
        let passed = self.now.since(known.now);
        let passed = SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX);
        let shown = self.wall.duration_since(known.wall);
        shown.saturating_sub(passed).unsigned_abs()
    }
}

#[cfg(test)]
mod tests;
