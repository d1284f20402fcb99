//! What can go wrong with a node and with the connections to it, as verbs.

use std::{fmt, sync::Arc, time::Duration};

use super::{Delay, Hub, NodeState};
use crate::{clock::Moment, node::NodeError, node::NodeMs, node::rules};

/// The verbs for one node.
#[derive(Clone)]
pub struct Faults(Arc<Hub>);

/// One connection of one client.
#[derive(Clone)]
pub struct Link {
    hub: Arc<Hub>,
    id: u64,
}

/// How a caller meets a cut connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// At once, with [`NodeError::Unreachable`].
    Refuse,
    /// Not at all: it waits until its own timeout.
    Hang,
}

/// What is wrong at present.
#[derive(Debug, Default)]
pub(super) struct Weather {
    pub(super) frozen: bool,
    pub(super) partition: Option<Cut>,
    pub(super) lose_requests: f64,
    pub(super) lose_replies: f64,
    pub(super) duplicate: f64,
    pub(super) request_delay: Delay,
    pub(super) reply_delay: Delay,
    pub(super) clock_offset_ms: i64,
    pub(super) fail: Option<NodeError>,
}

// === impl Faults ===

impl Faults {
    pub(super) fn of(hub: &Arc<Hub>) -> Self {
        Self(Arc::clone(hub))
    }

    /// The node stops working, as a stopped process does: what arrives waits.
    pub fn freeze(&self) {
        self.0.lock().weather.frozen = true;
    }

    /// A frozen node goes on, first with what has arrived meanwhile, in order, also for callers that have gone.
    pub fn thaw(&self) {
        self.0.lock().weather.frozen = false;
        self.0.wake();
    }

    /// Nothing reaches the node or comes back, over any connection; what is under way is lost.
    pub fn partition(&self, how: Cut) {
        let now = self.0.clock.now();
        let mut shared = self.0.lock();
        shared.weather.partition = Some(how);
        shared.lose_what_is_under_way(now, None);
    }

    /// Ends a [`Faults::partition`]; connections that were cut on their own stay cut.
    pub fn heal(&self) {
        self.0.lock().weather.partition = None;
    }

    /// Every request is lost with probability `p`: not executed, the caller waits until its own timeout.
    pub fn lose_requests(&self, p: f64) {
        self.0.lock().weather.lose_requests = p;
    }

    /// Every reply and announcement is lost with probability `p`: executed, and the caller never hears of it.
    pub fn lose_replies(&self, p: f64) {
        self.0.lock().weather.lose_replies = p;
    }

    /// Every request arrives a second time with probability `p`, after another delay.
    pub fn duplicate(&self, p: f64) {
        self.0.lock().weather.duplicate = p;
    }

    /// Requests take between `min` and `max`.
    pub fn delay_requests(&self, min: Duration, max: Duration) {
        self.0.lock().weather.request_delay = Delay { min, max };
    }

    /// Replies and announcements take between `min` and `max`.
    pub fn delay_replies(&self, min: Duration, max: Duration) {
        self.0.lock().weather.reply_delay = Delay { min, max };
    }

    /// The node restarts with nothing in its memory. Connections break: requests that were not executed fail with
    /// [`NodeError::Unreachable`], announcement streams end. A guarded node is another incarnation from then on.
    pub fn crash(&self) {
        self.restart_keeping_data();
        self.flush();
    }

    /// The node forgets everything and goes on, as after `FLUSHALL`: same process, same connections.
    pub fn flush(&self) {
        self.0.lock().state = NodeState::default();
    }

    /// A copy of everything the node knows, as a file on its disk or a replica would have it.
    #[must_use]
    pub fn snapshot(&self) -> NodeState {
        self.0.lock().state.clone()
    }

    /// The node restarts, as in [`Faults::crash`], with what it knew when `snapshot` was taken.
    pub fn restart_with(&self, snapshot: NodeState) {
        self.restart_keeping_data();
        self.0.lock().state = snapshot;
    }

    /// The node restarts with everything it knew; connections break as in [`Faults::crash`]. Whether it lost anything
    /// cannot be told from outside: a guarded node is another incarnation.
    pub fn restart_keeping_data(&self) {
        let mut shared = self.0.lock();
        shared.run += 1;
        shared.weather.frozen = false;
        self.0.disconnect(&mut shared);
    }

    /// The node's own clock and wall clock are `ms` off from its [`crate::clock::Clock`]; a change is a step.
    pub fn clock_offset(&self, ms: i64) {
        self.0.lock().weather.clock_offset_ms = ms;
    }

    /// Every call fails with `error` and executes nothing.
    pub fn fail_all_with(&self, error: NodeError) {
        self.0.lock().weather.fail = Some(error);
    }

    /// Every call fails with [`NodeError::Unfit`] and executes nothing.
    pub fn fail_all(&self) {
        self.fail_all_with(NodeError::Unfit("told to fail".to_owned()));
    }

    /// Ends [`Faults::fail_all`].
    pub fn fail_none(&self) {
        self.0.lock().weather.fail = None;
    }

    /// Ends every fault but the clock's offset; a frozen node thaws. Single connections stay cut.
    pub fn clear(&self) {
        let mut shared = self.0.lock();
        let clock_offset_ms = shared.weather.clock_offset_ms;
        shared.weather = Weather {
            clock_offset_ms,
            ..Weather::default()
        };
        drop(shared);
        self.0.wake();
    }

    /// Writes a key as a foreign client would; without `ttl` it stays.
    pub fn plant(&self, key: &str, value: &str, ttl: Option<Duration>) {
        let mut shared = self.0.lock();
        let (now, _) = self.0.time(&shared.weather);
        let until: Option<NodeMs> = ttl.map(|ttl| rules::later(now, ttl));
        shared.state.plant(
            key,
            super::Key {
                value: value.to_owned(),
                until,
            },
        );
    }
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Faults")
            .field(&self.0.name)
            .field(&self.0.lock().weather)
            .finish()
    }
}

// === impl Link ===

impl Link {
    pub(super) fn of(hub: &Arc<Hub>, id: u64) -> Self {
        Self {
            hub: Arc::clone(hub),
            id,
        }
    }

    /// The number of this connection in [`super::Executed`].
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// This client alone cannot reach the node; what is under way is lost.
    pub fn cut(&self, how: Cut) {
        let now: Moment = self.hub.clock.now();
        let mut shared = self.hub.lock();
        shared.links.entry(self.id).or_default().cut = Some(how);
        shared.lose_what_is_under_way(now, Some(self.id));
    }

    /// Ends a [`Link::cut`].
    pub fn mend(&self) {
        self.hub.lock().links.entry(self.id).or_default().cut = None;
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("node", &self.hub.name)
            .field("id", &self.id)
            .finish()
    }
}
