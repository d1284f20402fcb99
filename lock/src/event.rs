//! What the locks of a process tell of themselves, as one stream: tests, metrics and logs read it.
//!
//! An observer can neither block nor fail the keeper: a slow one misses events and is told how many.
//!
//! ```
//! # use std::sync::Arc;
//! # use watchkeeper_lock::{Locks, clock::Clock, node::memory::MemoryNode};
//! use watchkeeper_lock::event::{Event, Events};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let node = MemoryNode::new("one", Clock::system());
//! let events = Events::default();
//! let mut heard = events.observe();
//! let locks = Locks::over(vec![Arc::new(node)]).events(events).start()?;
//! let lease = locks.lock("report").acquire().await?;
//! while let Ok(event) = heard.recv().await {
//!     if let Event::Acquire { outcome, .. } = event {
//!         assert_eq!(outcome, "acquired");
//!         break;
//!     }
//! }
//! # lease.release().await;
//! # Ok(())
//! # }
//! ```

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::broadcast;

use crate::lease::Loss;

/// Something happened to the locks of this process.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// An attempt to acquire ended. `outcome` is one of `acquired`, `held`, `no_quorum`, `too_slow`.
    Acquire {
        /// What [`Events::naming`] calls the lock, a bounded word.
        resource: String,
        /// A bounded word.
        outcome: &'static str,
        /// From the first byte to the verdict.
        took: Duration,
    },
    /// A renewal round of one lease ended.
    Renewed {
        /// What the lock is called.
        resource: String,
        /// From the round's first byte to its verdict.
        took: Duration,
        /// Whether the deadline moved.
        ok: bool,
        /// Nodes held beyond the majority.
        margin: isize,
    },
    /// A lease is over after this long.
    LeaseEnded {
        /// What the lock is called.
        resource: String,
        /// Why.
        loss: Loss,
        /// How long it was held.
        held: Duration,
    },
    /// A node changed between answering and not answering.
    NodeUp {
        /// The node's name.
        node: String,
        /// Whether it answers.
        up: bool,
        /// The last error's bounded cause, empty when up.
        cause: &'static str,
    },
    /// A part of what a node remembers was found changed or deleted by something else: only what needs that part is refused
    /// there. Told once until the node has been away.
    NodeDamaged {
        /// The node's name.
        node: String,
        /// The first that was found.
        what: String,
    },
}

/// The stream's entrance; cheap to clone.
#[derive(Clone)]
pub struct Events {
    observers: broadcast::Sender<Event>,
    forward: Option<Arc<dyn Fn(Event) + Send + Sync>>,
    naming: fn(&str) -> String,
}

// === impl Events ===

impl Default for Events {
    fn default() -> Self {
        Self {
            observers: broadcast::Sender::new(4096),
            forward: None,
            naming: family,
        }
    }
}

impl Events {
    /// A stream that hands every event on to `forward` as well, on the keeper's thread or that of a caller, which it must not
    /// keep.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn forwarded(forward: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self {
            forward: Some(Arc::new(forward)),
            ..Self::default()
        }
    }

    /// Sets what events call the lock of a key. Metrics count by this word, so there must be few. Unless set it is the lock's
    /// family: its key up to the first slash, and `raw` for a key without one.
    #[doc(hidden)] // for the worker
    #[must_use]
    pub fn naming(mut self, naming: fn(&str) -> String) -> Self {
        self.naming = naming;
        self
    }

    /// What events call the lock of this key.
    pub(crate) fn resource(&self, key: &str) -> String {
        (self.naming)(key)
    }

    /// Whether there is an observer.
    pub(crate) fn are_heard(&self) -> bool {
        self.forward.is_some() || self.observers.receiver_count() > 0
    }

    /// Tells every observer; without one it is a no-op.
    pub(crate) fn tell(&self, event: Event) {
        if let Some(forward) = &self.forward {
            forward(event.clone());
        }
        let _ = self.observers.send(event);
    }

    /// Observes from now on.
    #[must_use]
    pub fn observe(&self) -> broadcast::Receiver<Event> {
        self.observers.subscribe()
    }
}

fn family(key: &str) -> String {
    key.split_once('/')
        .map_or("raw", |(family, _)| family)
        .to_owned()
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_called_by_its_family_unless_it_has_another_name() {
        let events = Events::default();
        assert_eq!(
            ["lock/a/b", "k"].map(|key| events.resource(key)),
            ["lock", "raw"]
        );
        let named = events.naming(|key| key.to_uppercase());
        assert_eq!(named.resource("lock/a"), "LOCK/A");
    }
}
