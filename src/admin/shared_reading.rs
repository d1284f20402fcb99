//! One reading of the store for all who ask for the same at one time.
//!
//! A task of its own makes it: a client that asked for it may go, and those who come meanwhile get what it finds. Where a moment's
//! age does no harm, and reading takes more than a tenth of a second, a client gets what was read last while it is read anew, and does
//! not wait for that.
//!
//! # Invariants
//! - W6 Of one thing one reading is under way at a time, and where a moment's age does no harm it is read for a tenth of the time at
//!   most, or the share that is set for it, however many ask.   (one_reading_serves_all_who_ask, a_reading_goes_on_without_its_client)
//! - W7 Nothing that was read is kept for longer than it serves.   (what_was_read_is_not_kept)
//! - W8 Where a moment's age does no harm, and reading takes long, a client that comes soon after another waits for no reading.
//!   (what_was_read_last_serves_while_it_is_read_anew)
//! - W12 What is at hand is had at once, however long reading takes.   (what_is_at_hand_is_had_at_once)

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::sync::{OwnedMutexGuard, Semaphore, oneshot};

use crate::{
    clock::{Clock, Moment},
    spawn::Spawn,
};

/// A reading serves for so long, or for nine times as long as it took; then once more as long, while it is read anew.
const SERVES: Duration = Duration::from_millis(900);
const TIMES: u32 = 9;

/// What readings are made with.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) clock: Clock,
    pub(super) spawn: Spawn,
    /// The turns at the store.
    pub(super) turns: Arc<Semaphore>,
}

/// What was read last of one thing, for all who ask for it. Clones are the same one.
pub(super) struct SharedReading<T>(Arc<Shared<T>>);

struct Shared<T> {
    last: Mutex<Option<Found<T>>>,
    /// Held while it is read.
    reading: Arc<tokio::sync::Mutex<()>>,
    /// For how long a reading serves at least, and how many times as long as it took.
    least: Duration,
    times: fn(&T) -> u32,
}

struct Found<T> {
    what: Arc<T>,
    began: Moment,
    /// From then on it is read anew when a client asks; and from then on when there is news of it.
    renew_at: Moment,
    news_at: Moment,
    ends_at: Moment,
}

// === impl SharedReading ===

impl<T> Default for SharedReading<T> {
    fn default() -> Self {
        Self::serving(SERVES, |_| TIMES)
    }
}

impl<T> Clone for SharedReading<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> SharedReading<T> {
    /// Whose readings serve for so long at least, and for so many times as long as they took.
    pub(super) fn serving(least: Duration, times: fn(&T) -> u32) -> Self {
        Self(Arc::new(Shared {
            last: Mutex::new(None),
            reading: Arc::default(),
            least,
            times,
        }))
    }
}

impl<T: Send + Sync + 'static> SharedReading<T> {
    /// What was found a moment ago, where that `serves`, as it is told whether it is time to read it anew; else what a reading finds
    /// that begins from now on.
    pub(super) async fn get(
        &self,
        reader: &Reader,
        serves: impl Fn(&T, bool) -> bool,
        read: impl Fn() -> BoxFuture<'static, T>,
    ) -> Arc<T> {
        let clock = &reader.clock;
        let asked = clock.now();
        let begin = |turn| self.begin(reader, turn, read());
        loop {
            if let Some((what, is_old)) = self.found(asked, clock.now(), &serves) {
                if is_old && let Ok(turn) = self.0.reading.clone().try_lock_owned() {
                    drop(begin(turn));
                }
                return what;
            }
            // Those who ask while it is read wait for the same reading.
            let turn = self.0.reading.clone().lock_owned().await;
            if let Some((what, false)) = self.found(asked, clock.now(), &serves) {
                return what;
            }
            if let Ok(what) = begin(turn).await {
                return what;
            }
            // It has died, and is not begun again at once.
            clock.sleep(SERVES).await;
        }
    }

    /// What was found last, where that is kept, however long it takes to read it anew: that begins where it is time, and nothing
    /// waits for it.
    pub(super) fn at_hand(
        &self,
        reader: &Reader,
        read: impl FnOnce() -> BoxFuture<'static, T>,
    ) -> Option<Arc<T>> {
        let now = reader.clock.now();
        let found = self.found(now, now, |_, _| true);
        let is_due = found.as_ref().is_none_or(|(_, is_old)| *is_old);
        if is_due && let Ok(turn) = self.0.reading.clone().try_lock_owned() {
            drop(self.begin(reader, turn, read()));
        }
        found.map(|(what, _)| what)
    }

    /// There is news of it: it is read anew sooner, at a tenth of the time at most.
    pub(super) fn has_news(&self) {
        if let Some(last) = self.last().as_mut() {
            last.renew_at = last.renew_at.min(last.news_at);
        }
    }

    fn begin(
        &self,
        reader: &Reader,
        turn: OwnedMutexGuard<()>,
        read: BoxFuture<'static, T>,
    ) -> oneshot::Receiver<Arc<T>> {
        let (tell, told) = oneshot::channel();
        let reading = self.clone().read(turn, reader.clone(), read, tell);
        drop(reader.spawn.spawn(reading));
        told
    }

    /// What was found, where it serves a client that asked then, and whether it is time to read it anew.
    fn found(
        &self,
        asked: Moment,
        now: Moment,
        serves: impl Fn(&T, bool) -> bool,
    ) -> Option<(Arc<T>, bool)> {
        let last = self.last();
        let found = last.as_ref()?;
        let (is_new, is_old) = (asked <= found.began, now >= found.renew_at);
        let served = is_new || now < found.ends_at && serves(&found.what, is_old);
        served.then(|| (found.what.clone(), is_old && !is_new))
    }

    async fn read(
        self,
        turn: OwnedMutexGuard<()>,
        reader: Reader,
        read: BoxFuture<'static, T>,
        tell: oneshot::Sender<Arc<T>>,
    ) {
        let Reader { clock, turns, .. } = reader;
        let (began, what) = {
            // Closed never: the semaphore lives as long as the router.
            let _turn = turns.acquire().await;
            (clock.now(), Arc::new(read.await))
        };
        let now = clock.now();
        let (took, least) = (now.since(began), self.0.least);
        let by_cost = took * (self.0.times)(&what);
        let renew_at = now + by_cost.max(least);
        let news_at = now + (took * TIMES).max(least);
        // What is quickly read is worth the wait.
        let spare = if by_cost > least {
            by_cost
        } else {
            Duration::ZERO
        };
        let ends_at = renew_at + spare;
        *self.last() = Some(Found {
            what: what.clone(),
            began,
            renew_at,
            news_at,
            ends_at,
        });
        drop(turn);
        drop(tell.send(what));
        clock.sleep_until(ends_at).await;
        let mut last = self.last();
        if last
            .as_ref()
            .is_some_and(|last| last.ends_at <= clock.now())
        {
            *last = None;
        }
    }

    fn last(&self) -> MutexGuard<'_, Option<Found<T>>> {
        // Changed in one step.
        self.0.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is read, or waits to be.
    pub(super) fn is_under_way(&self) -> bool {
        self.0.reading.try_lock().is_err()
    }

    /// Whether anything is kept, or a reader asks.
    pub(super) fn is_used(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::{FutureExt, future::join_all};

    use super::*;
    use crate::sim_clock::SimTime;

    /// Something whose reading takes half a second, and how often it was read.
    struct Scene {
        reader: Reader,
        reading: SharedReading<usize>,
        reads: Arc<AtomicUsize>,
    }

    impl Scene {
        fn new() -> Self {
            Self {
                reader: Reader {
                    clock: SimTime::new().clock(),
                    spawn: Spawn::system(),
                    turns: Arc::new(Semaphore::new(4)),
                },
                reading: SharedReading::default(),
                reads: Arc::default(),
            }
        }

        async fn get(&self, old_serves: bool) -> Arc<usize> {
            let read = || {
                let (clock, reads) = (self.reader.clock.clone(), self.reads.clone());
                async move {
                    clock.sleep(Duration::from_millis(500)).await;
                    reads.fetch_add(1, Ordering::SeqCst) + 1
                }
                .boxed()
            };
            self.reading
                .get(&self.reader, |_, _| old_serves, read)
                .await
        }

        async fn pause(&self, ms: u64) {
            self.reader.clock.sleep(Duration::from_millis(ms)).await;
        }

        fn reads(&self) -> usize {
            self.reads.load(Ordering::SeqCst)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_reading_serves_all_who_ask() {
        let scene = Scene::new();
        let found = join_all((0..20).map(|_| scene.get(true))).await;
        assert!(found.iter().all(|one| Arc::ptr_eq(one, &found[0])));
        assert_eq!(scene.reads(), 1);
        // What takes half a second is read every five.
        scene.pause(4_000).await;
        assert_eq!(*scene.get(true).await, 1);
        scene.pause(1_000).await;
        assert_eq!(*scene.get(true).await, 1);
        scene.pause(600).await;
        assert_eq!(*scene.get(true).await, 2);
        // Where the present is wanted, those who come while it is read share the next reading.
        scene.pause(1_000).await;
        let late = async {
            scene.pause(100).await;
            join_all((0..20).map(|_| scene.get(false))).await
        };
        let (first, others) = tokio::join!(scene.get(false), late);
        assert_eq!(*first, 3);
        assert!(others.iter().all(|one| **one == 4), "{others:?}");
        assert_eq!(scene.reads(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_read_last_serves_while_it_is_read_anew() {
        let scene = Scene::new();
        assert_eq!(*scene.get(true).await, 1);
        // It serves for four and a half seconds, and as long again.
        scene.pause(8_900).await;
        let clock = &scene.reader.clock;
        let asked = clock.now();
        let found = join_all((0..20).map(|_| scene.get(true))).await;
        assert!(found.iter().all(|one| **one == 1), "{found:?}");
        assert_eq!(clock.now(), asked);
        // One reading for all of them, which those who want the present share.
        scene.pause(400).await;
        assert_eq!(*scene.get(true).await, 2, "too old by now");
        assert_eq!(
            (scene.reads(), clock.now().since(asked).as_millis()),
            (2, 500)
        );
        scene.pause(9_100).await;
        assert_eq!(*scene.get(true).await, 3);
        assert_eq!(clock.now().since(asked).as_millis(), 10_100);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_at_hand_is_had_at_once() {
        let scene = Scene::new();
        // What takes half a second serves for twenty.
        let reading = SharedReading::serving(Duration::ZERO, |_: &usize| 40);
        let at_hand = || {
            let read = || {
                let (clock, reads) = (scene.reader.clock.clone(), scene.reads.clone());
                async move {
                    clock.sleep(Duration::from_millis(500)).await;
                    reads.fetch_add(1, Ordering::SeqCst) + 1
                }
                .boxed()
            };
            reading.at_hand(&scene.reader, read).map(|what| *what)
        };
        let asked = scene.reader.clock.now();
        for _ in 0..20 {
            assert_eq!(at_hand(), None, "one reading is under way");
        }
        assert_eq!(scene.reader.clock.now(), asked);
        scene.pause(600).await;
        assert_eq!((at_hand(), scene.reads()), (Some(1), 1));
        scene.pause(19_000).await;
        assert_eq!((at_hand(), scene.reads()), (Some(1), 1));
        // It is old, and had while it is read anew.
        scene.pause(1_000).await;
        assert_eq!(at_hand(), Some(1));
        scene.pause(600).await;
        assert_eq!((at_hand(), scene.reads()), (Some(2), 2));
        // News of it counts once a tenth of the time was not spent on it.
        scene.pause(4_000).await;
        reading.has_news();
        assert_eq!(at_hand(), Some(2));
        scene.pause(600).await;
        assert_eq!(scene.reads(), 2, "too soon");
        assert_eq!(at_hand(), Some(2));
        scene.pause(600).await;
        assert_eq!((at_hand(), scene.reads()), (Some(3), 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reading_goes_on_without_its_client() {
        let scene = Scene::new();
        let limit = Duration::from_millis(100);
        for _ in 0..3 {
            let given_up = scene.reader.clock.timeout(limit, scene.get(true)).await;
            assert!(given_up.is_err());
        }
        assert_eq!(*scene.get(true).await, 1);
        assert_eq!(scene.reads(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reading_that_dies_is_made_anew() {
        let scene = Scene::new();
        let first = AtomicUsize::new(0);
        let read = || {
            let dies = first.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                assert!(!dies, "as it is meant to");
                7
            }
            .boxed()
        };
        let found = scene.reading.get(&scene.reader, |_, _| true, read).await;
        assert_eq!((*found, first.load(Ordering::SeqCst)), (7, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_read_is_not_kept() {
        let scene = Scene::new();
        let found = Arc::downgrade(&scene.get(true).await);
        assert!(found.upgrade().is_some() && scene.reading.is_used());
        scene.pause(8_900).await;
        assert!(found.upgrade().is_some());
        scene.pause(200).await;
        assert!(found.upgrade().is_none() && !scene.reading.is_used());
    }
}
