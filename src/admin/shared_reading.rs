//! One reading of the store for all who ask for the same at one time.
//!
//! A task of its own makes it: a client that asked for it may go, and those who come meanwhile get what it finds.
//!
//! # Invariants
//! - W6 Of one thing one reading is under way at a time, and where a moment's age does no harm it is read for a tenth of the time at
//!   most, however many ask.   (one_reading_serves_all_who_ask, a_reading_goes_on_without_its_client)
//! - W7 Nothing that was read is kept for longer than it serves.   (what_was_read_is_not_kept)

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore, oneshot};

use crate::{
    clock::{Clock, Moment},
    spawn::Spawn,
};

/// A reading serves for so long, or for nine times as long as it took.
const SERVES: Duration = Duration::from_millis(900);

/// What readings are made with.
#[derive(Clone)]
pub(super) struct Reader {
    pub(super) clock: Clock,
    pub(super) spawn: Spawn,
    /// The turns at the store.
    pub(super) turns: Arc<Semaphore>,
}

/// What was read last of one thing, for all who ask for it. Clones are the same one.
pub(super) struct SharedReading<T>(Arc<Mutex<Option<Found<T>>>>);

struct Found<T> {
    what: Arc<T>,
    began: Moment,
    until: Moment,
}

// === impl SharedReading ===

impl<T> Default for SharedReading<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(None)))
    }
}

impl<T> Clone for SharedReading<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Send + Sync + 'static> SharedReading<T> {
    /// What was found a moment ago, where that `serves`; else what a reading finds that begins from now on.
    pub(super) async fn get(
        &self,
        reader: &Reader,
        serves: impl Fn(&T) -> bool,
        read: impl Fn() -> BoxFuture<'static, T>,
    ) -> Arc<T> {
        let clock = &reader.clock;
        let asked = clock.now();
        loop {
            // Held while it is read: those who ask meanwhile wait for the same reading.
            let last = self.0.clone().lock_owned().await;
            if let Some(found) = last.as_ref()
                && (asked <= found.began || clock.now() < found.until && serves(&found.what))
            {
                return found.what.clone();
            }
            let (tell, told) = oneshot::channel();
            let reading = self.clone().read(last, reader.clone(), read(), tell);
            drop(reader.spawn.spawn(reading));
            if let Ok(what) = told.await {
                return what;
            }
            // It has died, and is not begun again at once.
            clock.sleep(SERVES).await;
        }
    }

    async fn read(
        self,
        mut last: OwnedMutexGuard<Option<Found<T>>>,
        reader: Reader,
        read: BoxFuture<'static, T>,
        tell: oneshot::Sender<Arc<T>>,
    ) {
        let Reader { clock, turns, .. } = reader;
        // Not kept beside what is read now.
        *last = None;
        let (began, what) = {
            // Closed never: the semaphore lives as long as the router.
            let _turn = turns.acquire().await;
            (clock.now(), Arc::new(read.await))
        };
        let now = clock.now();
        let until = now + SERVES.max(now.since(began) * 9);
        *last = Some(Found {
            what: what.clone(),
            began,
            until,
        });
        drop(last);
        drop(tell.send(what));
        clock.sleep_until(until).await;
        let mut last = self.0.lock().await;
        if last.as_ref().is_some_and(|last| last.until <= clock.now()) {
            *last = None;
        }
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
            self.reading.get(&self.reader, |_| old_serves, read).await
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
        let found = scene.reading.get(&scene.reader, |_| true, read).await;
        assert_eq!((*found, first.load(Ordering::SeqCst)), (7, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_read_is_not_kept() {
        let scene = Scene::new();
        let found = Arc::downgrade(&scene.get(true).await);
        assert!(found.upgrade().is_some() && scene.reading.is_used());
        scene.pause(5_000).await;
        assert!(found.upgrade().is_none() && !scene.reading.is_used());
    }
}
