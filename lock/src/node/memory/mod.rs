//! A node in memory: for single processes, for tests, and for the simulation with its faults.
//!
//! Three parts: [`NodeState`] answers calls as plain functions of the time, [`MemoryNode`] carries calls to it as a
//! network would, [`Faults`] says how badly.
//!
//! # How a call travels
//! A request leaves when the call is first polled and is from then on an event of its own: it arrives after its
//! delay, also when the caller has gone away. Requests of one connection arrive in order; every clone of a
//! [`MemoryNode`] is a connection of its own. What arrives at a frozen node waits and is executed after the thaw.
//! A lost request or reply leaves the caller waiting until its own timeout.
//!
//! # Determinism
//! All chance comes from the [`Chance`] handed in and is drawn when a request leaves, arrives or is answered. Under
//! paused time and a seed the same program sees the same node.
//!
//! # Example
//! ```
//! # use std::sync::Arc;
//! # use watchkeeper_lock::{Locks, clock::Clock, node::memory::MemoryNode};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let node = MemoryNode::new("one", Clock::system());
//! # let locks = Locks::over(vec![Arc::new(node)]).start()?;
//! assert!(locks.lock("report").acquire().await.is_ok());
//! # Ok(())
//! # }
//! ```

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};

use super::{
    Announcement, Announcements, Call, Expiry, GuardSettings, Node, NodeError, NodeMs, Reply,
    RestartGuard, rules::Guarded,
};
use crate::{
    chance::Chance,
    clock::{Clock, Moment},
    spawn::Spawn,
};

mod faults;
mod state;
#[cfg(test)]
mod tests;

pub use faults::{Cut, Faults, Link};
#[doc(hidden)] // for the tests, the testing kit, and those who write a node
pub use state::{Claim, Entry, Key, NodeState, Row, State};

/// Announcements that a slow reader may leave unread before it loses some.
const ANNOUNCEMENTS: usize = 1024;

/// One connection to a node in memory; a clone is another connection to the same node.
pub struct MemoryNode {
    hub: Arc<Hub>,
    link: u64,
    guard: GuardSettings,
}

/// What a checker is told of every executed call, in the order of execution.
#[doc(hidden)] // for the tests and the testing kit
#[derive(Debug)]
pub struct Executed<'a> {
    /// The connection it came over, see [`MemoryNode::link`].
    pub link: u64,
    /// The node's clock.
    pub at: NodeMs,
    /// What was asked.
    pub call: &'a Call,
    /// What was answered; the caller may never have heard it.
    pub result: &'a Result<Reply, NodeError>,
}

/// Sees every executed call.
type Observer = Box<dyn Fn(&Executed<'_>) + Send>;

/// The node behind its connections.
struct Hub {
    name: String,
    clock: Clock,
    chance: Chance,
    spawn: Spawn,
    shared: Mutex<Shared>,
}

#[derive(Default)]
struct Shared {
    state: NodeState,
    /// How often the node has restarted.
    run: u64,
    weather: faults::Weather,
    links: BTreeMap<u64, LinkState>,
    /// Requests that have left, by arrival; the number keeps the order of equal arrivals.
    inbox: BTreeMap<(Moment, u64), Request>,
    sent: u64,
    executed: u64,
    observer: Option<Observer>,
    readers: Vec<(u64, mpsc::Sender<Announcement>)>,
}

/// One connection, as the node's side of the network sees it.
#[derive(Clone, Copy, Default)]
struct LinkState {
    last_arrival: Moment,
    last_reply: Moment,
    cut: Option<Cut>,
}

/// The configuration of a caller's fleet, and whether that guards its nodes.
type Compared = (String, bool);

struct Request {
    link: u64,
    /// The configuration of a caller that guards the node.
    guard: Option<Compared>,
    call: Call,
    /// Where the answer goes, and when it arrives there. A duplicate has none.
    reply: Option<oneshot::Sender<(Moment, Result<Reply, NodeError>)>>,
}

type Answered = oneshot::Receiver<(Moment, Result<Reply, NodeError>)>;

// === impl MemoryNode ===

impl MemoryNode {
    /// An empty node without faults to come.
    #[must_use]
    pub fn new(name: impl Into<String>, clock: Clock) -> Self {
        Self::simulated(name, clock, Spawn::system(), Chance::seeded(0))
    }

    /// An empty node for a simulation: `clock` is the node's own, `spawn` carries delayed requests (it must outlive
    /// the replicas), `chance` decides about delays and losses.
    #[doc(hidden)] // for the tests and the testing kit
    #[must_use]
    pub fn simulated(name: impl Into<String>, clock: Clock, spawn: Spawn, chance: Chance) -> Self {
        let shared = Mutex::new(Shared::default());
        let hub = Arc::new(Hub {
            name: name.into(),
            clock,
            chance,
            spawn,
            shared,
        });
        Self::connect(&hub, GuardSettings::default())
    }

    /// This connection, guarding the node: it votes for this caller only while its incarnation is admitted. A node in
    /// memory looks with every call, in the mode `connection`, too.
    #[doc(hidden)] // for the tests and the testing kit
    #[must_use]
    pub fn guarded(mut self, guard: GuardSettings) -> Self {
        self.guard = guard;
        self
    }

    /// What can go wrong with this node, for all its connections.
    #[doc(hidden)] // for the tests and the testing kit
    #[must_use]
    pub fn faults(&self) -> Faults {
        Faults::of(&self.hub)
    }

    /// This connection, to cut and mend it alone.
    #[doc(hidden)] // for the tests and the testing kit
    #[must_use]
    pub fn link(&self) -> Link {
        Link::of(&self.hub, self.link)
    }

    /// Looks at the node's state.
    #[doc(hidden)] // for the tests and the testing kit
    pub fn inspect<T>(&self, look: impl FnOnce(&NodeState) -> T) -> T {
        look(&self.hub.lock().state)
    }

    /// The node's own clock.
    #[doc(hidden)] // for the tests and the testing kit
    #[must_use]
    pub fn time(&self) -> NodeMs {
        self.hub.time(&self.hub.lock().weather).0
    }

    /// Calls executed so far, over all connections, also those whose reply was lost.
    #[doc(hidden)] // for the tests and the testing kit
    #[must_use]
    pub fn executed(&self) -> u64 {
        self.hub.lock().executed
    }

    /// Shows every executed call to `observer`, in order, before its reply leaves. The observer must not call the
    /// node.
    #[doc(hidden)] // for the tests and the testing kit
    pub fn observe(&self, observer: impl Fn(&Executed<'_>) + Send + 'static) {
        self.hub.lock().observer = Some(Box::new(observer));
    }

    fn connect(hub: &Arc<Hub>, guard: GuardSettings) -> Self {
        let mut shared = hub.lock();
        let link = shared.links.last_key_value().map_or(0, |(id, _)| id + 1);
        shared.links.insert(link, LinkState::default());
        Self {
            hub: Arc::clone(hub),
            link,
            guard,
        }
    }

    /// What its caller compares, and whether it waits for what may be forgotten; `None` where it compares nothing.
    fn guard(&self) -> Option<Compared> {
        let GuardSettings { mode, config } = &self.guard;
        let guarded = *mode != RestartGuard::Off;
        (guarded || !config.is_empty()).then(|| (config.clone(), guarded))
    }
}

#[async_trait]
impl Node for MemoryNode {
    fn name(&self) -> &str {
        &self.hub.name
    }

    /// Its clock is that of the machine since its start.
    fn expiry(&self) -> Expiry {
        Expiry::Server
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        let Some(answered) = self.hub.send(self.link, self.guard(), call)? else {
            return std::future::pending().await;
        };
        let Ok((arrives, result)) = answered.await else {
            return std::future::pending().await;
        };
        self.hub.clock.sleep_until(arrives).await;
        if self.hub.lock().cut(self.link).is_some() {
            // The reply was under way when the connection was cut.
            return std::future::pending().await;
        }
        result
    }

    async fn announcements(&self) -> Option<Announcements> {
        let (sender, receiver) = mpsc::channel(ANNOUNCEMENTS);
        self.hub.lock().readers.push((self.link, sender));
        Some(receiver)
    }
}

impl Clone for MemoryNode {
    fn clone(&self) -> Self {
        Self::connect(&self.hub, self.guard.clone())
    }
}

impl fmt::Debug for MemoryNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryNode")
            .field("name", &self.hub.name)
            .field("link", &self.link)
            .finish()
    }
}

// === impl Hub ===

impl Hub {
    fn lock(&self) -> MutexGuard<'_, Shared> {
        // A panicking observer leaves the state as whole as it was.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The node's own clock and wall clock.
    fn time(&self, weather: &faults::Weather) -> (NodeMs, i64) {
        let ms = self.clock.now().since_boot().as_millis();
        let ms = u64::try_from(ms).unwrap_or(u64::MAX);
        let wall = self.clock.wall().as_millisecond();
        let offset = weather.clock_offset_ms;
        (
            NodeMs(ms.saturating_add_signed(offset)),
            wall.saturating_add(offset),
        )
    }

    /// Sends a request on its way; `None` when no answer will ever come.
    fn send(
        self: &Arc<Self>,
        link: u64,
        guard: Option<Compared>,
        call: Call,
    ) -> Result<Option<Answered>, NodeError> {
        let now = self.clock.now();
        let mut shared = self.lock();
        match shared.cut(link) {
            Some(Cut::Refuse) => return Err(NodeError::Unreachable("partitioned".to_owned())),
            Some(Cut::Hang) => return Ok(None),
            None => {}
        }
        if self.chance.hits(shared.weather.lose_requests) {
            return Ok(None);
        }
        let copy = self
            .chance
            .hits(shared.weather.duplicate)
            .then(|| call.clone());
        let (reply, answered) = oneshot::channel();
        let first = now + shared.weather.request_delay.draw(&self.chance);
        // One connection delivers in order, whatever the single delays are.
        let state = shared.links.entry(link).or_default();
        let arrival = first.max(state.last_arrival);
        state.last_arrival = arrival;
        self.post(
            &mut shared,
            now,
            arrival,
            Request {
                link,
                guard: guard.clone(),
                call,
                reply: Some(reply),
            },
        );
        if let Some(call) = copy {
            let again = arrival + shared.weather.request_delay.draw(&self.chance);
            self.post(
                &mut shared,
                now,
                again,
                Request {
                    link,
                    guard,
                    call,
                    reply: None,
                },
            );
        }
        self.work(&mut shared, now);
        Ok(Some(answered))
    }

    fn post(self: &Arc<Self>, shared: &mut Shared, now: Moment, arrival: Moment, request: Request) {
        shared.sent += 1;
        shared.inbox.insert((arrival, shared.sent), request);
        if arrival > now {
            let hub = Arc::clone(self);
            let _runs_alone = self.spawn.spawn(async move {
                hub.clock.sleep_until(arrival).await;
                hub.wake();
            });
        }
    }

    /// Executes what has arrived.
    fn wake(&self) {
        let now = self.clock.now();
        self.work(&mut self.lock(), now);
    }

    fn work(&self, shared: &mut Shared, now: Moment) {
        while !shared.weather.frozen
            && let Some(first) = shared.inbox.first_entry()
            && first.key().0 <= now
        {
            let request = first.remove();
            self.execute(shared, now, request);
        }
    }

    fn execute(&self, shared: &mut Shared, now: Moment, request: Request) {
        let Request {
            link,
            guard,
            call,
            reply,
        } = request;
        let (at, wall_ms) = self.time(&shared.weather);
        let result = match &shared.weather.fail {
            Some(error) => Err(error.clone()),
            None => {
                let incarnation = format!("{}/{}", self.name, shared.run);
                let guarded = guard.as_ref().map(|(config, guarded)| Guarded {
                    incarnation: if *guarded { &incarnation } else { "" },
                    config,
                });
                shared.state.apply_guarded(guarded, at, wall_ms, &call)
            }
        };
        shared.executed += 1;
        if let Some(observer) = &shared.observer {
            observer(&Executed {
                link,
                at,
                call: &call,
                result: &result,
            });
        }
        for news in shared.state.take_announced() {
            self.announce(shared, now, &news);
        }
        let lost = self.chance.hits(shared.weather.lose_replies);
        let arrives = now + shared.weather.reply_delay.draw(&self.chance);
        let state = shared.links.entry(link).or_default();
        state.last_reply = state.last_reply.max(arrives);
        if let Some(reply) = reply
            && !lost
        {
            // A caller that has gone away needs no answer.
            let _gone = reply.send((state.last_reply, result));
        }
    }

    fn announce(&self, shared: &mut Shared, now: Moment, news: &Announcement) {
        shared.readers.retain(|(_, reader)| !reader.is_closed());
        for (link, reader) in &shared.readers {
            let lost = self.chance.hits(shared.weather.lose_replies);
            if lost || shared.cut(*link).is_some() {
                continue;
            }
            let delay = shared.weather.reply_delay.draw(&self.chance);
            if delay.is_zero() {
                // A reader that lags loses announcements, as a subscriber over a network would.
                let _lagging = reader.try_send(news.clone());
                continue;
            }
            let (reader, news, clock) = (reader.clone(), news.clone(), self.clock.clone());
            let _runs_alone = self.spawn.spawn(async move {
                clock.sleep_until(now + delay).await;
                let _lagging = reader.try_send(news);
            });
        }
    }

    /// Every connection is gone, and with it every request that was not executed.
    fn disconnect(&self, shared: &mut Shared) {
        let now = self.clock.now();
        for (_, request) in std::mem::take(&mut shared.inbox) {
            if let Some(reply) = request.reply {
                let reset = NodeError::Unreachable("connection reset".to_owned());
                let _gone = reply.send((now, Err(reset)));
            }
        }
        shared.readers.clear();
    }
}

// === impl Shared ===

impl Shared {
    /// How this connection is cut, if it is.
    fn cut(&self, link: u64) -> Option<Cut> {
        self.weather
            .partition
            .or_else(|| self.links.get(&link).and_then(|state| state.cut))
    }

    /// Requests that have not arrived by `now` are lost.
    fn lose_what_is_under_way(&mut self, now: Moment, link: Option<u64>) {
        self.inbox.retain(|(arrival, _), request| {
            *arrival <= now || link.is_some_and(|link| link != request.link)
        });
    }
}

/// A delay between two bounds.
#[derive(Clone, Copy, Debug, Default)]
struct Delay {
    min: Duration,
    max: Duration,
}

impl Delay {
    fn draw(self, chance: &Chance) -> Duration {
        self.min + chance.up_to(self.max.saturating_sub(self.min))
    }
}
