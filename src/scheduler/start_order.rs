//! The order in which the runs of one replica start that are due together.
//!
//! A start is written before it happens, and lock nodes take some hundreds of writes at a time. Of ten thousand jobs that
//! are due at one instant the last ones start seconds later, and without an order they would be the same ones each time: those whose
//! timers were set last. So starts that wait have an order of their own.
//!
//! # Invariants
//! - W1 As long as no more than [`AT_ONCE`] starts are written at a time, none waits.   (few_starts_wait_for_nothing)
//! - W2 Of those that wait the job with the largest priority goes first, then the one that has waited longest; how long it waited
//!   the last time counts as well, so that the last ones of one instant are the first ones of the next.
//!   (a_priority_goes_first_and_then_the_longest_wait, those_that_were_late_are_not_late_again)
//! - W3 A start that is given up leaves neither a permit taken nor a turn in the queue.   (what_is_given_up_keeps_no_other_from_starting)
//! # When things fail
//! A permit is given back when its write has ended, however it has. A term that ends gives its turn up.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::oneshot;

use crate::clock::{Clock, Moment};

/// Starts that are written at a time: as many operations as are under way to one node at most. With fewer a far node would have
/// pauses, and what is beyond would wait in its queue, in the order of arrival.
const AT_ONCE: usize = 500;

/// Less than this is no wait, but the time that it takes to find that there is none.
const NOTED: Duration = Duration::from_millis(1);

/// Where starts wait for their turn. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct StartOrder(Arc<Mutex<StartQueue>>);

#[derive(Debug)]
struct StartQueue {
    free: usize,
    waiting: BTreeMap<Rank, oneshot::Sender<StartPermit>>,
    /// How long jobs waited the last time; none that did not wait.
    waited: HashMap<String, Duration>,
    arrivals: u64,
}

/// The smallest goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    priority: Reverse<i32>,
    /// Since when it waits, and earlier by its last wait.
    since: Moment,
    arrival: u64,
}

/// Leave to write a start, until it is dropped.
#[derive(Debug)]
pub(super) struct StartPermit(StartOrder);

/// A turn in the queue, which goes with it.
struct Turn<'a> {
    order: &'a StartOrder,
    rank: Rank,
}

// === impl StartOrder ===

impl Default for StartOrder {
    fn default() -> Self {
        Self::of(AT_ONCE)
    }
}

impl StartOrder {
    fn of(free: usize) -> Self {
        Self(Arc::new(Mutex::new(StartQueue {
            free,
            waiting: BTreeMap::new(),
            waited: HashMap::new(),
            arrivals: 0,
        })))
    }

    /// Waits for the turn of `job`. Cancel-safe.
    pub(super) async fn turn(&self, job: &str, priority: i32, clock: &Clock) -> StartPermit {
        let came = clock.now();
        let (tell, mut told) = oneshot::channel();
        let turn = self.enter(job, priority, came, tell);
        // Whatever is due at the same instant enters before the first permits are given: the timer has woken all of it.
        tokio::task::yield_now().await;
        self.admit();
        let permit = match (&mut told).await {
            Ok(permit) => permit,
            // Its sender goes with the queue, which goes with the replica.
            Err(_) => std::future::pending().await,
        };
        drop(turn);
        self.queue().note(job, clock.now().since(came));
        permit
    }

    fn enter(
        &self,
        job: &str,
        priority: i32,
        came: Moment,
        tell: oneshot::Sender<StartPermit>,
    ) -> Turn<'_> {
        let mut queue = self.queue();
        let before = queue.waited.get(job).copied().unwrap_or_default();
        queue.arrivals += 1;
        let rank = Rank {
            priority: Reverse(priority),
            since: came.back(before),
            arrival: queue.arrivals,
        };
        queue.waiting.insert(rank, tell);
        Turn { order: self, rank }
    }

    /// Gives the permits that are free to the first in the queue.
    fn admit(&self) {
        // Not under the lock: a permit whose receiver has gone comes back as soon as it is told.
        loop {
            let next = self.queue().next();
            let Some(tell) = next else { return };
            let _ = tell.send(StartPermit(self.clone()));
        }
    }

    fn queue(&self) -> MutexGuard<'_, StartQueue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl StartQueue ===

impl StartQueue {
    /// Takes a permit for the first that waits.
    fn next(&mut self) -> Option<oneshot::Sender<StartPermit>> {
        if self.free == 0 {
            return None;
        }
        let (_, tell) = self.waiting.pop_first()?;
        self.free -= 1;
        Some(tell)
    }

    fn note(&mut self, job: &str, waited: Duration) {
        if waited < NOTED {
            self.waited.remove(job);
        } else if let Some(known) = self.waited.get_mut(job) {
            *known = waited;
        } else {
            self.waited.insert(job.to_owned(), waited);
        }
    }
}

// === impl StartPermit, Turn ===

impl Drop for StartPermit {
    fn drop(&mut self) {
        self.0.queue().free += 1;
        self.0.admit();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.order.queue().waiting.remove(&self.rank);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{sim_clock::SimTime, spawn::Spawn};

    /// How long a write takes.
    const WRITE: Duration = Duration::from_millis(10);

    /// Lets these jobs, with their priorities, start at one instant; answers with the order in which they did.
    async fn starts(order: &StartOrder, clock: &Clock, jobs: &[(&str, i32)]) -> Vec<String> {
        let began: Arc<Mutex<Vec<String>>> = Arc::default();
        let tasks: Vec<_> = jobs
            .iter()
            .map(|(job, priority)| {
                let (order, clock, began) = (order.clone(), clock.clone(), began.clone());
                let (job, priority) = ((*job).to_owned(), *priority);
                Spawn::system().spawn(async move {
                    let _permit = order.turn(&job, priority, &clock).await;
                    clock.sleep(WRITE).await;
                    began.lock().unwrap().push(job);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let order = began.lock().unwrap();
        order.clone()
    }

    fn scene(permits: usize) -> (StartOrder, Clock) {
        (StartOrder::of(permits), SimTime::new().clock())
    }

    const FOUR: [(&str, i32); 4] = [("a", 0), ("b", 0), ("c", 0), ("d", 0)];

    #[tokio::test(start_paused = true)]
    async fn few_starts_wait_for_nothing() {
        let (order, clock) = scene(4);
        let began = clock.now();
        starts(&order, &clock, &FOUR).await;
        assert_eq!(clock.now(), began + WRITE);
        assert!(order.queue().waited.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_were_late_are_not_late_again() {
        let (order, clock) = scene(1);
        assert_eq!(starts(&order, &clock, &FOUR).await, ["a", "b", "c", "d"]);
        assert_eq!(starts(&order, &clock, &FOUR).await, ["d", "c", "b", "a"]);
        assert_eq!(starts(&order, &clock, &FOUR).await, ["a", "b", "c", "d"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_priority_goes_first_and_then_the_longest_wait() {
        let (order, clock) = scene(1);
        let jobs = [("a", 0), ("b", -1), ("c", 7), ("d", 0)];
        assert_eq!(starts(&order, &clock, &jobs).await, ["c", "a", "d", "b"]);
        assert_eq!(starts(&order, &clock, &jobs).await, ["c", "d", "a", "b"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_given_up_keeps_no_other_from_starting() {
        let (order, clock) = scene(1);
        let held = order.turn("a", 0, &clock).await;
        let given_up = clock.timeout(WRITE, order.turn("b", 0, &clock)).await;
        assert!(given_up.is_err());
        assert!(order.queue().waiting.is_empty());
        // Also one that was called a moment ago, and has not heard it.
        let mut called = Box::pin(order.turn("c", 0, &clock));
        assert!(futures_util::poll!(&mut called).is_pending());
        tokio::task::yield_now().await;
        assert!(futures_util::poll!(&mut called).is_pending());
        drop(held);
        drop(called);
        assert_eq!(order.queue().free, 1);
        assert_eq!(starts(&order, &clock, &FOUR).await.len(), 4);
    }
}
