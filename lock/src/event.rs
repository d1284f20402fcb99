//! What the locks of a process tell of themselves, as one stream: tests, metrics and logs read it.
//!
//! An observer can neither block nor fail the keeper: a slow one misses events and is told how many.

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::broadcast;

use crate::lease::Loss;

/// Something happened to the locks of this process.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// An attempt to acquire ended. `outcome` is one of `acquired`, `held`, `no_quorum`, `too_slow`.
    Acquire {
        /// Job name or lock family, bounded.
        resource: String,
        /// A bounded word.
        outcome: &'static str,
        /// From the first byte to the verdict.
        took: Duration,
    },
    /// A renewal round of one lease ended.
    Renewed {
        /// Job name or lock family.
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
        /// Job name or lock family.
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
}

/// The stream's entrance; cheap to clone.
#[derive(Clone)]
pub struct Events {
    observers: broadcast::Sender<Event>,
    forward: Option<Arc<dyn Fn(Event) + Send + Sync>>,
}

// === impl Events ===

impl Default for Events {
    fn default() -> Self {
        Self {
            observers: broadcast::Sender::new(4096),
            forward: None,
        }
    }
}

impl Events {
    /// A stream that hands every event on to `forward` as well, on the keeper's thread, which it must not keep.
    #[must_use]
    pub fn forwarded(forward: impl Fn(Event) + Send + Sync + 'static) -> Self {
        Self {
            forward: Some(Arc::new(forward)),
            ..Self::default()
        }
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

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}
