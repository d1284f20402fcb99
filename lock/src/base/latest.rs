//! A value that is replaced, and tasks that wait for the next one.
//!
//! Those that wait are woken in the order in which they began to wait. tokio's channel of this kind wakes them in a random order,
//! with which the same seed would not play the same simulation twice.
//!
//! # Invariants
//! - Receivers that wait are woken in turn.              (those_that_wait_are_woken_in_turn)
//! - No value is missed for good: the last one is seen.  (the_last_value_is_seen)
//! - Without a sender nothing is waited for.             (without_a_sender_nothing_is_waited_for)

use std::{
    fmt,
    ops::Deref,
    sync::{
        Arc, PoisonError, RwLock, RwLockReadGuard,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::Notify;

/// Replaces the value.
pub struct Sender<T>(Arc<Shared<T>>);

/// Sees the latest value, and waits for another.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

/// The value as it is now; it is not replaced while this stands.
#[derive(Debug)]
pub struct Ref<'a, T>(RwLockReadGuard<'a, T>);

/// No other value will come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

struct Shared<T> {
    value: RwLock<T>,
    /// How often it was replaced; `CLOSED` once its sender has gone.
    version: AtomicU64,
    changed: Notify,
}

const CLOSED: u64 = u64::MAX;

// === impl Sender ===

impl<T> Sender<T> {
    /// The first value.
    pub fn new(value: T) -> Self {
        Self(Arc::new(Shared {
            value: RwLock::new(value),
            version: AtomicU64::new(0),
            changed: Notify::new(),
        }))
    }

    /// A receiver that has seen what is there now.
    pub fn subscribe(&self) -> Receiver<T> {
        let shared = Arc::clone(&self.0);
        let seen = shared.version();
        Receiver { shared, seen }
    }

    /// What is there now.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.0.read()
    }

    /// Replaces the value, and returns the one before.
    pub fn send_replace(&self, value: T) -> T {
        let mut before = value;
        self.send_modify(|now| std::mem::swap(now, &mut before));
        before
    }

    /// Changes the value.
    pub fn send_modify(&self, change: impl FnOnce(&mut T)) {
        self.send_if_modified(|now| {
            change(now);
            true
        });
    }

    /// Changes the value where `change` says that it has. Whether it has.
    pub fn send_if_modified(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        {
            // What is half changed reaches no receiver: a panic leaves the version as it was.
            let value = self.0.value.write();
            let mut value = value.unwrap_or_else(PoisonError::into_inner);
            if !change(&mut value) {
                return false;
            }
            self.0.version.fetch_add(1, Ordering::SeqCst);
        }
        self.0.changed.notify_waiters();
        true
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.version.store(CLOSED, Ordering::SeqCst);
        self.0.changed.notify_waiters();
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&*self.borrow()).finish()
    }
}

// === impl Receiver ===

impl<T> Receiver<T> {
    /// What is there now, seen or not.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.shared.read()
    }

    /// The same, seen from now on.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let value = self.shared.read();
        // It does not change while `value` stands.
        self.seen = self.shared.version();
        value
    }

    /// What is there now needs not be told.
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.version();
    }

    /// Waits for a value that was not seen, and counts it as seen. Cancel-safe.
    ///
    /// # Errors
    /// When its sender has gone.
    pub async fn changed(&mut self) -> Result<(), Closed> {
        self.shared.changed(&mut self.seen).await
    }

    /// Waits for such a value, which may be there, and counts it as seen. Cancel-safe.
    ///
    /// # Errors
    /// When its sender has gone, and it is not there.
    pub async fn wait_for(&mut self, wanted: impl Fn(&T) -> bool) -> Result<(), Closed> {
        loop {
            // Before the look: a last value may have come with the end.
            let closed = self.shared.version() == CLOSED;
            if wanted(&self.borrow_and_update()) {
                return Ok(());
            }
            if closed {
                return Err(Closed);
            }
            let _ = self.changed().await;
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        let (shared, seen) = (Arc::clone(&self.shared), self.seen);
        Self { shared, seen }
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&*self.borrow()).finish()
    }
}

// === impl Shared ===

impl<T> Shared<T> {
    fn read(&self) -> Ref<'_, T> {
        Ref(self.value.read().unwrap_or_else(PoisonError::into_inner))
    }

    async fn changed(&self, seen: &mut u64) -> Result<(), Closed> {
        loop {
            // Before the look, so that what comes after it wakes.
            let changed = self.changed.notified();
            match self.version() {
                CLOSED => return Err(Closed),
                version if version != *seen => {
                    *seen = version;
                    return Ok(());
                }
                _ => changed.await,
            }
        }
    }

    fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }
}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::spawn::Spawn;

    #[tokio::test]
    async fn those_that_wait_are_woken_in_turn() {
        let sender = Sender::new(0);
        let woken = Arc::new(Mutex::new(Vec::new()));
        for n in 0..100 {
            let (mut receiver, woken) = (sender.subscribe(), Arc::clone(&woken));
            drop(Spawn::system().spawn(async move {
                let _ = receiver.wait_for(|now| *now == 1).await;
                woken.lock().unwrap().push(n);
            }));
        }
        // A runtime lets so many tasks run before it comes back to this one.
        let all_have_run = || async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        };
        all_have_run().await;
        sender.send_replace(1);
        all_have_run().await;
        let woken = woken.lock().unwrap().clone();
        assert_eq!(woken, (0..100).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn the_last_value_is_seen() {
        let sender = Sender::new(0);
        let mut receiver = sender.subscribe();
        sender.send_replace(1);
        sender.send_modify(|now| *now += 1);
        assert!(!sender.send_if_modified(|_| false));
        assert_eq!(receiver.changed().await, Ok(()));
        assert_eq!(*receiver.borrow(), 2);
        assert_eq!(sender.send_replace(3), 2);
        assert_eq!(*receiver.borrow_and_update(), 3);
        let late = receiver.clone();
        sender.send_replace(4);
        receiver.mark_unchanged();
        for (mut receiver, news) in [(receiver, false), (late, true)] {
            let changed = tokio::select! {
                biased;
                changed = receiver.changed() => changed.is_ok(),
                () = std::future::ready(()) => false,
            };
            assert_eq!(changed, news);
        }
    }

    #[tokio::test]
    async fn without_a_sender_nothing_is_waited_for() {
        let sender = Sender::new(0);
        let mut receiver = sender.subscribe();
        sender.send_replace(1);
        drop(sender);
        assert_eq!(receiver.changed().await, Err(Closed));
        assert!(receiver.wait_for(|now| *now == 1).await.is_ok());
        assert!(receiver.wait_for(|now| *now == 2).await.is_err());
    }
}
