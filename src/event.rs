//! Everything worth knowing, as one stream: the tests, the metrics, the log and the status page read it.
//!
//! An observer can neither block nor fail the teller: a slow one misses events and is told how many.
//!
//! ```
//! use watchkeeper::{Worker, event::Event};
//!
//! # fn watched(worker: &Worker) {
//! let mut events = worker.events().observe();
//! tokio::spawn(async move {
//!     while let Ok(event) = events.recv().await {
//!         if let Event::Draining = event {
//!             println!("this replica is about to go");
//!         }
//!     }
//! });
//! # }
//! ```

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::sync::broadcast;

use crate::{lease::Loss, node::Token};

use watchkeeper_lock::event::Event as LockEvent;

/// Something happened in this replica.
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
    /// A part of what a node remembers was found changed or deleted by something else: only what needs that part is refused
    /// there. Told once until the node has been away.
    NodeDamaged {
        /// The node's name.
        node: String,
        /// The first that was found.
        what: String,
    },
    /// This replica leads a job from now on.
    Leading {
        /// The job, or `replica` for the failover gate.
        job: String,
        /// The term's token.
        token: Token,
        /// How long no replica led, as far as this replica has seen: see [`Elected`](crate::election::Elected::leaderless).
        leaderless: Option<Duration>,
    },
    /// This replica no longer leads a job.
    StandingBy {
        /// The job.
        job: String,
        /// Why the term ended.
        why: Loss,
    },
    /// A run has started.
    RunStarted {
        /// The job.
        job: String,
        /// The run.
        run_id: String,
        /// The scheduled instant.
        tick: Timestamp,
        /// 1 for the first.
        attempt: u32,
        /// The lease's token.
        token: Token,
        /// How late it started.
        delay: Duration,
    },
    /// A run has ended.
    RunEnded {
        /// The job.
        job: String,
        /// The run.
        run_id: String,
        /// The scheduled instant.
        tick: Timestamp,
        /// 1 for the first.
        attempt: u32,
        /// A bounded word: `done`, `skipped`, `retry`, `failed`, `timeout`, `cancelled`, `panicked`, `lost_lease`.
        outcome: &'static str,
        /// Reason or error text, empty when done.
        detail: String,
        /// How long it ran.
        took: Duration,
    },
    /// Ticks that will not run, and why: `misfire`, `overlap`, `interrupted`, `window`, `limit`, `unknown`,
    /// `paused`, `changed`, `ahead`.
    TicksSkipped {
        /// The job.
        job: String,
        /// The first of them.
        first: Timestamp,
        /// The last of them.
        last: Timestamp,
        /// How many.
        count: u64,
        /// A bounded word.
        why: &'static str,
    },
    /// A batch was claimed.
    BatchClaimed {
        /// The job.
        job: String,
        /// The batch.
        batch: String,
        /// The claim's token.
        token: Token,
    },
    /// A batch was processed or given up.
    BatchEnded {
        /// The job.
        job: String,
        /// The batch.
        batch: String,
        /// As in `RunEnded`.
        outcome: &'static str,
        /// How long it took.
        took: Duration,
    },
    /// Items of a batch were delivered, repeated, refused …
    Items {
        /// The job.
        job: String,
        /// A bounded word: `sent`, `duplicate`, `retry`, `dead`, `in_doubt`, `parked`.
        outcome: &'static str,
        /// How many.
        count: u64,
    },
    /// A job's engine has died here of a panic that nothing caught; it begins again after the pause.
    EngineDied {
        /// The job.
        job: String,
        /// What the panic said.
        why: String,
        /// Until it begins again.
        pause: Duration,
    },
    /// What is still to be done, as last seen by this replica.
    Backlog {
        /// The job.
        job: String,
        /// Items.
        items: u64,
        /// Since when the oldest of them could go, where that is known.
        since: Option<Timestamp>,
    },
    /// Items that do not go by themselves, or not at once, as last seen by this replica.
    HeldItems {
        /// The job.
        job: String,
        /// To be sent again when their time has come.
        retry: u64,
        /// Given up.
        dead: u64,
        /// May have been received, and are repeated.
        in_doubt: u64,
        /// Left to a person.
        parked: u64,
    },
    /// This replica became unfit or fit again.
    Fitness {
        /// The job, or `replica`.
        job: String,
        /// Why unfit; `None` when fit.
        unfit: Option<String>,
    },
    /// The replicas of the fleet have begun or ceased to disagree on the definition of a job, as far as this one knows.
    Definitions {
        /// The job.
        job: String,
        /// How many definitions there are; 1 when they agree.
        count: usize,
    },
    /// A notice of a job has reached its receiver (`sent`), was given up (`failed`), or found no room (`dropped`).
    Notice {
        /// The receiver's name in the configuration.
        notice: String,
        /// The job.
        job: String,
        /// A bounded word: `failed`, `missed`, `recovered`, `ended`.
        about: &'static str,
        /// A bounded word.
        outcome: &'static str,
        /// Why; empty when it was sent.
        why: String,
    },
    /// The configuration was read again.
    Reloaded {
        /// Whether it is in effect; nothing has changed otherwise.
        ok: bool,
        /// When.
        at: Timestamp,
    },
    /// The worker drains: nothing new starts.
    Draining,
}

/// The stream's entrance; cheap to clone.
#[derive(Clone, Debug)]
pub struct Events(Arc<broadcast::Sender<Event>>);

impl Default for Events {
    fn default() -> Self {
        Self(Arc::new(broadcast::Sender::new(4096)))
    }
}

impl Events {
    /// Tells every observer; there need be none.
    #[doc(hidden)] // for the stock jobs
    pub fn tell(&self, event: Event) {
        let _ = self.0.send(event);
    }

    /// Observes from now on.
    #[must_use]
    pub fn observe(&self) -> broadcast::Receiver<Event> {
        self.0.subscribe()
    }

    /// The same stream for the locks of this process: what they tell comes here.
    #[doc(hidden)] // for the command
    #[must_use]
    pub fn of_locks(&self) -> watchkeeper_lock::event::Events {
        let stream = self.clone();
        let forwarded = watchkeeper_lock::event::Events::forwarded(move |event| {
            if let Some(event) = of_lock(event) {
                stream.tell(event);
            }
        });
        forwarded.naming(resource)
    }
}

/// What events call the lock of this key: the job or batch job that it belongs to, else the lock's family.
fn resource(key: &str) -> String {
    match key.split('/').collect::<Vec<_>>()[..] {
        ["job" | "batch" | "once", name, ..] => name.to_owned(),
        [family, _, ..] => family.to_owned(),
        _ => "raw".to_owned(),
    }
}

/// What a lock tells, in the words of this stream; `None` for what a later version of the lock may add.
fn of_lock(event: LockEvent) -> Option<Event> {
    Some(match event {
        LockEvent::Acquire {
            resource,
            outcome,
            took,
        } => Event::Acquire {
            resource,
            outcome,
            took,
        },
        LockEvent::Renewed {
            resource,
            took,
            ok,
            margin,
        } => Event::Renewed {
            resource,
            took,
            ok,
            margin,
        },
        LockEvent::LeaseEnded {
            resource,
            loss,
            held,
        } => Event::LeaseEnded {
            resource,
            loss,
            held,
        },
        LockEvent::NodeUp { node, up, cause } => Event::NodeUp { node, up, cause },
        LockEvent::NodeDamaged { node, what } => Event::NodeDamaged { node, what },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_jobs_are_called_by_the_jobs_name() {
        let keys = [
            "job/report",
            "batch/mail/7",
            "once/orders/1-0",
            "lock/a/b",
            "k",
        ];
        let names = ["report", "mail", "orders", "lock", "raw"];
        assert_eq!(keys.map(resource), names);
    }
}
