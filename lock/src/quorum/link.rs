//! The way to one node: a queue that is sent as whole calls, the node's clock, and a breaker.
//!
//! - Everything queued goes out as one atomic call of at most 250 operations (R1); up to [`IN_FLIGHT`] calls are under
//!   way, in the order in which they were queued. Extensions go first: what is held comes before what is wanted.
//! - A node has its timeout from when a call is sent. What waits in our own queue is not held against it: a request waits
//!   there for [`PATIENCE`] timeouts at most, and then nothing is sent.   (our_own_queue_is_not_held_against_the_node)
//! - A call carries the time on the node's own clock from which on it may act no more, so that a request stuck in a
//!   frozen server does nothing after its sender gave up (R1). Senders wait for longer than that, never shorter. It is never
//!   later than the shortest ttl that the call asks for, from when that was asked (N2), whatever is known of the node's clock.
//!   (n2_no_call_acts_a_ttl_after_it_was_asked_for)
//! - A release never shares a call with a later attempt: claimers would livelock (R5).
//! - An extension shares a call with extensions only: what a server refuses of all that is wanted costs nothing that is
//!   held. (what_is_held_shares_no_call_with_what_is_wanted)
//! - One operation's refusal is not that of the others in its call: each sender is sent for once more, alone, and has an
//!   answer of its own. (a_refusal_is_that_of_its_sender_alone)
//! - A node that timed out, refused its connection or refuses everything is *down*: requests fail at once, while a probe
//!   asks in the background whether it is back (R2).

mod queue;
mod repeat;
#[cfg(test)]
mod tests;

pub(crate) use queue::MOST_OPS;

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use futures_util::{Future, StreamExt, stream::FuturesUnordered};
use tokio::sync::{Notify, oneshot, watch};

use super::wall::FleetClock;
use crate::{
    backoff::Backoff,
    chance::Chance,
    clock::{Clock, Moment},
    event::{Event, Events},
    node::{Answer, Call, Eligibility, Node, NodeError, NodeMs, Op, Reply, guard::closed_since},
};
use queue::{MOST_UNDER_WAY, PATIENCE, Queue, Queued, next_window, share_out};
use repeat::{is_about_a_key, is_about_an_operation, of_a_repeat};

/// Calls under way to one node.
const IN_FLIGHT: usize = 4;
/// A node that is back is noticed within this time: a probe of one that is not costs nearly nothing.
const LONGEST_PROBE_PAUSE: Duration = Duration::from_millis(250);
/// The way to one node. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Link(Arc<Inner>);

struct Inner {
    node: Arc<dyn Node>,
    clock: Clock,
    chance: Chance,
    events: Events,
    timeout: Duration,
    /// Whether any node of the process has ever answered.
    reached: Arc<AtomicBool>,
    queue: Mutex<Queue>,
    bell: Notify,
    fallen: Notify,
    down: watch::Sender<bool>,
    trouble: Mutex<Option<NodeError>>,
    /// Whether it votes, by its latest reply.
    eligibility: watch::Sender<Eligibility>,
    /// The nomination that this process watches, and when its votes count again.
    watched: Mutex<Option<(String, Moment)>>,
    last_round_trip: Mutex<Option<Duration>>,
    skew: Mutex<Option<Skew>>,
    /// The fleet's wall clock, and which of its nodes this is.
    wall: (FleetClock, usize),
}

/// What is known of a node's clock: node time = our time + offset, give or take `error`.
#[derive(Clone, Copy)]
struct Skew {
    offset_ms: i128,
    error: Duration,
    learned: Moment,
}

impl Link {
    pub(crate) fn new(
        (number, node, wall): (usize, Arc<dyn Node>, FleetClock),
        timeout: Duration,
        clock: Clock,
        chance: Chance,
        events: Events,
        reached: Arc<AtomicBool>,
    ) -> Self {
        Self(Arc::new(Inner {
            node,
            clock,
            chance,
            events,
            timeout,
            reached,
            queue: Mutex::default(),
            bell: Notify::new(),
            fallen: Notify::new(),
            down: watch::Sender::new(false),
            trouble: Mutex::new(None),
            eligibility: watch::Sender::new(Eligibility::Unguarded),
            watched: Mutex::new(None),
            last_round_trip: Mutex::new(None),
            skew: Mutex::new(None),
            wall: (wall, number),
        }))
    }

    pub(crate) fn name(&self) -> &str {
        self.0.node.name()
    }

    pub(crate) fn node(&self) -> &Arc<dyn Node> {
        &self.0.node
    }

    pub(crate) fn is_down(&self) -> bool {
        *self.0.down.borrow()
    }

    /// Waits until the node is not known to be down.
    pub(crate) async fn up(&self) {
        // Its sender lives as long as `self`.
        let _ = self.0.down.subscribe().wait_for(|down| !down).await;
    }

    /// The last trouble with this node; `None` while it answers.
    pub(crate) fn trouble(&self) -> Option<NodeError> {
        self.0
            .trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Whether the node votes, by its latest reply.
    pub(crate) fn eligibility(&self) -> watch::Receiver<Eligibility> {
        self.0.eligibility.subscribe()
    }

    /// Takes note of which nomination is watched, and of when its votes count again.
    pub(crate) fn set_watched(&self, watched: Option<(String, Moment)>) {
        let mut place = self
            .0
            .watched
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *place = watched;
    }

    /// The nomination that this process watches, and how much longer.
    pub(crate) fn watched(&self) -> Option<(String, Duration)> {
        let place = self
            .0
            .watched
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (nonce, until) = place.clone()?;
        Some((nonce, until.since(self.0.clock.now())))
    }

    /// How long until its votes count again; `None` when this process has not watched it.
    pub(crate) fn counts_in(&self) -> Option<Duration> {
        self.watched().map(|(_, left)| left)
    }

    /// How long the last call took that was answered.
    pub(crate) fn last_round_trip(&self) -> Option<Duration> {
        let last = self.0.last_round_trip.lock();
        *last.unwrap_or_else(PoisonError::into_inner)
    }

    /// How far the node's wall clock is ahead of this machine's.
    pub(crate) fn ahead_ms(&self) -> Option<i64> {
        let (wall, number) = &self.0.wall;
        wall.ahead_ms(*number)
    }

    /// Why its votes do not count; `None` while they do.
    pub(crate) fn no_vote(&self) -> Option<NodeError> {
        match &*self.0.eligibility.borrow() {
            Eligibility::Unguarded | Eligibility::Admitted => None,
            Eligibility::Unadmitted => Some(NodeError::Unadmitted {
                left: self.counts_in(),
            }),
            Eligibility::Configured(theirs) if closed_since(theirs).is_some() => {
                Some(NodeError::Unadmitted {
                    left: self.counts_in(),
                })
            }
            Eligibility::Configured(theirs) => Some(NodeError::Configured {
                theirs: theirs.clone(),
            }),
        }
    }

    /// As [`Link::send`], with what else the node says of itself.
    pub(crate) fn ask(
        &self,
        ops: Vec<Op>,
    ) -> impl Future<Output = Result<Reply, NodeError>> + Send + 'static {
        self.queue(ops, false)
    }

    /// Queues the operations at once, in order; the future only waits. Dropping it does not take them back.
    pub(crate) fn send(
        &self,
        ops: Vec<Op>,
    ) -> impl Future<Output = Result<Vec<Answer>, NodeError>> + Send + 'static {
        let reply = self.queue(ops, false);
        async move { Ok(reply.await?.answers) }
    }

    fn queue(
        &self,
        ops: Vec<Op>,
        probe: bool,
    ) -> impl Future<Output = Result<Reply, NodeError>> + Send + 'static {
        let limit = self.0.timeout;
        let now = self.0.clock.now();
        let give_up = now + limit * PATIENCE;
        let (reply, answer) = oneshot::channel();
        let refused = if self.is_down() && !probe {
            Some(self.known_trouble())
        } else if self.waiting().push(ops, (now, give_up), reply) {
            self.0.bell.notify_one();
            None
        } else {
            Some(NodeError::Overload)
        };
        let clock = self.0.clock.clone();
        async move {
            if let Some(trouble) = refused {
                return Err(trouble);
            }
            match clock.timeout_at(give_up + limit, answer).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err(NodeError::Unreachable("the keeper has ended".to_owned())),
                Err(_) => Err(NodeError::Timeout(limit)),
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Queue> {
        // The queue is changed by short, complete steps.
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_trouble(&self) -> NodeError {
        self.trouble()
            .unwrap_or_else(|| NodeError::Unreachable("known to be down".to_owned()))
    }

    /// Sends what is queued, for ever.
    pub(crate) async fn pump(self) {
        type InFlight = Pin<Box<dyn Future<Output = (usize, Duration)> + Send>>;
        let mut under_way: FuturesUnordered<InFlight> = FuturesUnordered::new();
        let (mut ops_under_way, mut window) = (0, MOST_UNDER_WAY);
        loop {
            while under_way.len() < IN_FLIGHT {
                self.meet().await;
                // One call may always be under way, whatever its size.
                let room = match ops_under_way {
                    0 => MOST_OPS.max(window),
                    some => usize::saturating_sub(window, some),
                };
                let batch = self.waiting().next_batch(room, self.0.clock.now());
                let Some(batch) = batch else { break };
                let ops: usize = batch.iter().map(|queued| queued.ops.len()).sum();
                let carried = self.clone().carry(batch);
                let mut call: InFlight = Box::pin(async move { (ops, carried.await) });
                // Polled here first: the node sees calls in the order in which they were queued.
                let done =
                    std::future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready()));
                if !done.await {
                    ops_under_way += ops;
                    under_way.push(call);
                }
            }
            tokio::select! {
                biased;
                Some((ops, took)) = under_way.next(), if !under_way.is_empty() => {
                    ops_under_way -= ops;
                    let waited = took.saturating_sub(self.round_trip());
                    window = next_window(window, waited, self.0.timeout);
                }
                () = self.0.bell.notified(), if under_way.len() < IN_FLIGHT => {}
            }
        }
    }

    /// Learns the node's clock before anything is sent that must not act too late (N2).
    async fn meet(&self) {
        if self.not_after(Moment::ZERO, None).is_some() || !self.waiting().is_bound() {
            return;
        }
        let sent = self.0.clock.now();
        let met = self.call(Vec::new(), sent, None).await;
        self.learn(sent, &met);
    }

    /// Asks a node that is down whether it is back, for ever.
    pub(crate) async fn probe(self) {
        let mut backoff = Backoff::new(self.0.timeout, LONGEST_PROBE_PAUSE);
        loop {
            self.0.fallen.notified().await;
            backoff.reset();
            while self.is_down() {
                self.0.clock.sleep(backoff.next(&self.0.chance)).await;
                // Its outcome is learned where every other call's is.
                let _ = self.queue(Vec::new(), true).await;
            }
        }
    }

    /// Sends what is in the batch as one call, and gives each sender its answer. How long the call took; of several,
    /// the slowest.
    async fn carry(self, mut batch: Vec<Queued>) -> Duration {
        let sent = self.0.clock.now();
        let ends = batch.iter().filter_map(|queued| queued.ends).min();
        let ops = match &mut batch[..] {
            // Sent once, whatever becomes of it.
            [only] => std::mem::take(&mut only.ops),
            all => all.iter().flat_map(|queued| queued.ops.clone()).collect(),
        };
        let result = self.call(ops, sent, ends).await;
        let took = self.0.clock.now().since(sent);
        match result {
            Err(refused) if batch.len() > 1 && is_about_an_operation(&refused) => {
                took.max(self.each_alone(batch, &refused).await)
            }
            result => {
                self.learn(sent, &result);
                share_out(batch, result);
                took
            }
        }
    }

    /// After a call that was refused for one of its operations: the batch once more, one sender after the other, as far as
    /// their time allows. What is sent again may have been executed: a script that a server ends midway is not rolled back.
    /// That does no harm, because every operation is compared with what stands there:
    /// - an attempt of this owner finds its own grant; it is refused where its owner has been released since (N4);
    /// - releasing, confirming, breaking, leaving, removing twice is the same as once;
    /// - what has a version, a revision or a nonce is stored once; behind a newer one it is refused or ignored;
    /// - of an extension's round nothing is done a second time, see [`of_a_repeat`].
    async fn each_alone(&self, batch: Vec<Queued>, refused: &NodeError) -> Duration {
        let (mut slowest, mut down) = (Duration::ZERO, None);
        for queued in batch {
            let sent = self.0.clock.now();
            let result = match &down {
                Some(trouble) => Err(NodeError::clone(trouble)),
                // Its sender waits for one timeout more, and no longer.
                None if sent >= queued.give_up => Err(refused.clone()),
                None => {
                    let result = self.call(queued.ops.clone(), sent, queued.ends).await;
                    slowest = slowest.max(self.0.clock.now().since(sent));
                    self.learn(sent, &result);
                    down = result.as_ref().err().filter(|e| e.is_down()).cloned();
                    result.map(|reply| of_a_repeat(&queued.ops, reply))
                }
            };
            share_out(vec![queued], result);
        }
        slowest
    }

    /// One call, which has its timeout from `sent` on, and acts no more from `ends` on.
    async fn call(
        &self,
        ops: Vec<Op>,
        sent: Moment,
        ends: Option<Moment>,
    ) -> Result<Reply, NodeError> {
        let give_up = sent + self.0.timeout;
        let expected = ops.len();
        let call = Call {
            not_after: self.not_after(give_up, ends),
            ops,
        };
        match self
            .0
            .clock
            .timeout_at(give_up, self.0.node.call(call))
            .await
        {
            Ok(Ok(reply)) if reply.answers.len() != expected => Err(NodeError::Protocol(format!(
                "{} answers to {expected} operations",
                reply.answers.len()
            ))),
            Ok(result) => result,
            Err(_) => Err(NodeError::Timeout(self.0.timeout)),
        }
    }

    /// Learns the node's clock and eligibility from the outcome of a call.
    fn learn(&self, sent: Moment, result: &Result<Reply, NodeError>) {
        let now = self.0.clock.now();
        let (up, at) = match result {
            Ok(reply) => (Some(true), Some(reply.at)),
            // It answers, but its clock is not what we thought.
            Err(NodeError::Late { at }) => (Some(true), Some(*at)),
            Err(trouble) if trouble.is_down() => (Some(false), None),
            // It answers and may do other things: what was asked was refused.
            Err(_) => (None, None),
        };
        if let Some(NodeMs(at)) = at {
            let round_trip = now.since(sent);
            let middle = (sent + round_trip / 2).since_boot().as_millis();
            let fresh = Skew {
                offset_ms: i128::from(at) - i128::try_from(middle).unwrap_or(0),
                error: round_trip / 2,
                learned: now,
            };
            let mut skew = self.0.skew.lock().unwrap_or_else(PoisonError::into_inner);
            let keep = matches!((&*skew, result), (Some(old), Ok(_))
                if old.error < fresh.error && now.since(old.learned) < Duration::from_secs(10));
            if !keep {
                *skew = Some(fresh);
            }
        }
        if let Ok(reply) = result {
            let (wall, number) = &self.0.wall;
            wall.learn(*number, sent, reply.wall_ms);
            let last = self.0.last_round_trip.lock();
            *last.unwrap_or_else(PoisonError::into_inner) = Some(now.since(sent));
        }
        *self
            .0
            .trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = result
            .as_ref()
            .err()
            .filter(|e| !matches!(e, NodeError::Late { .. }) && !is_about_a_key(e))
            .cloned();
        if let Ok(reply) = result {
            self.0.eligibility.send_if_modified(|eligibility| {
                let changed = *eligibility != reply.eligibility;
                if changed {
                    eligibility.clone_from(&reply.eligibility);
                }
                changed
            });
        }
        if up == Some(true) {
            self.0.reached.store(true, Ordering::SeqCst);
        }
        if let Some(up) = up
            && self.0.down.send_if_modified(|down| {
                let changed = *down == up;
                *down = !up;
                changed
            })
        {
            let cause = result.as_ref().err().map_or("", NodeError::cause);
            self.0.events.tell(Event::NodeUp {
                node: self.name().to_owned(),
                up,
                cause,
            });
            if !up {
                // What still waits to be sent is answered now.
                let trouble = self.known_trouble();
                self.waiting().refuse_all(&trouble);
                self.0.fallen.notify_one();
            }
        }
    }

    /// The quickest way there and back of late.
    fn round_trip(&self) -> Duration {
        let skew = self.0.skew.lock().unwrap_or_else(PoisonError::into_inner);
        skew.as_ref().map_or(Duration::ZERO, |skew| skew.error * 2)
    }

    /// From when on a call may act no more, on the node's clock: surely not before `give_up`, and surely before `ends`.
    fn not_after(&self, give_up: Moment, ends: Option<Moment>) -> Option<NodeMs> {
        let skew = (*self.0.skew.lock().unwrap_or_else(PoisonError::into_inner))?;
        let there = |at: Moment| {
            let ms = i128::try_from(at.since_boot().as_millis()).ok()?;
            Some(ms + skew.offset_ms)
        };
        let slack = i128::try_from(skew.error.as_millis()).ok()? + 2;
        let patience = there(give_up)? + slack;
        let bound = ends.and_then(there).map(|end| end - slack);
        let ms = bound.map_or(patience, |bound| bound.min(patience));
        u64::try_from(ms.max(0)).ok().map(NodeMs)
    }
}
