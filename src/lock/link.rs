//! The way to one node: a queue that is sent as whole calls, the node's clock, and a breaker.
//!
//! - Everything queued goes out as one atomic call of at most 250 operations (R1); up to [`IN_FLIGHT`] calls are under
//!   way, in the order in which they were queued. Extensions go first: what is held comes before what is wanted.
//! - A node has its timeout from when a call is sent. What waits in our own queue is not held against it: a request waits
//!   there for [`PATIENCE`] timeouts at most, and then nothing is sent.   (our_own_queue_is_not_held_against_the_node)
//! - A call carries the latest time on the node's own clock at which it may still act, so that a request stuck in a
//!   frozen server does nothing after its sender gave up (R1). Senders wait for longer than that, never shorter.
//! - A release never shares a call with a later attempt: claimers would livelock (R5).
//! - A node that timed out, refused its connection or refuses everything is *down*: requests fail at once, while a probe
//!   asks in the background whether it is back (R2).

use std::{
    collections::VecDeque,
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

use crate::{
    backoff::Backoff,
    chance::Chance,
    clock::{Clock, Moment},
    event::{Event, Events},
    node::{Answer, Call, Node, NodeError, NodeMs, Op, Reply, Standing, guard::closed_since},
};

/// Calls under way to one node.
const IN_FLIGHT: usize = 4;
/// A node that is back is noticed within this time: a probe of one that is not costs nearly nothing.
const LONGEST_PROBE_PAUSE: Duration = Duration::from_millis(250);
/// Operations in one call.
pub(crate) const MOST_OPS: usize = 250;
/// Operations under way to one node: what waits behind so many on the server would run out of its time there.
const MOST_UNDER_WAY: usize = 2 * MOST_OPS;
/// How long a request may wait to be sent, in node timeouts. With one more for the answer that is a quarter of the
/// shortest ttl: an attempt that confirms its token still leaves enough of a lease.
const PATIENCE: u32 = 4;
/// Operations that wait to be sent: ten thousand leases that are released at once, and as many that are wanted.
const MOST_QUEUED: usize = 20_000;

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
    standing: watch::Sender<Standing>,
    /// When its votes count again, as far as this process has watched it.
    counts_at: Mutex<Option<Moment>>,
    skew: Mutex<Option<Skew>>,
}

/// What waits to be sent.
#[derive(Default)]
struct Queue {
    extensions: VecDeque<Queued>,
    others: VecDeque<Queued>,
    ops: usize,
}

struct Queued {
    ops: Vec<Op>,
    /// Not sent from then on.
    give_up: Moment,
    reply: oneshot::Sender<Result<Reply, NodeError>>,
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
        node: Arc<dyn Node>,
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
            standing: watch::Sender::new(Standing::Unguarded),
            counts_at: Mutex::new(None),
            skew: Mutex::new(None),
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
    pub(crate) fn standing(&self) -> watch::Receiver<Standing> {
        self.0.standing.subscribe()
    }

    /// Takes note of when its votes count again.
    pub(crate) fn set_counts_at(&self, at: Option<Moment>) {
        *self
            .0
            .counts_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = at;
    }

    /// How long until its votes count again; `None` when this process has not watched it.
    pub(crate) fn counts_in(&self) -> Option<Duration> {
        let at = *self
            .0
            .counts_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Some(at?.since(self.0.clock.now()))
    }

    /// Why its votes do not count; `None` while they do.
    pub(crate) fn no_vote(&self) -> Option<NodeError> {
        match &*self.0.standing.borrow() {
            Standing::Unguarded | Standing::Admitted => None,
            Standing::Unadmitted => Some(NodeError::Unadmitted {
                left: self.counts_in(),
            }),
            Standing::Configured(theirs) if closed_since(theirs).is_some() => {
                Some(NodeError::Unadmitted {
                    left: self.counts_in(),
                })
            }
            Standing::Configured(theirs) => Some(NodeError::Configured {
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
        let give_up = self.0.clock.now() + limit * PATIENCE;
        let (reply, answer) = oneshot::channel();
        let refused = if self.is_down() && !probe {
            Some(self.known_trouble())
        } else if self.waiting().push(ops, give_up, reply) {
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
        type InFlight = Pin<Box<dyn Future<Output = usize> + Send>>;
        let mut under_way: FuturesUnordered<InFlight> = FuturesUnordered::new();
        let mut ops_under_way = 0;
        loop {
            while under_way.len() < IN_FLIGHT {
                let room = MOST_UNDER_WAY - ops_under_way;
                let batch = self.waiting().next_batch(room, self.0.clock.now());
                let Some(batch) = batch else { break };
                let ops: usize = batch.iter().map(|queued| queued.ops.len()).sum();
                let carried = self.clone().carry(batch);
                let mut call: InFlight = Box::pin(async move {
                    carried.await;
                    ops
                });
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
                Some(ops) = under_way.next(), if !under_way.is_empty() => ops_under_way -= ops,
                () = self.0.bell.notified(), if under_way.len() < IN_FLIGHT => {}
            }
        }
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

    async fn carry(self, batch: Vec<Queued>) {
        let sent = self.0.clock.now();
        let give_up = sent + self.0.timeout;
        let mut ops = Vec::new();
        let mut waiting = Vec::new();
        for queued in batch {
            waiting.push((queued.ops.len(), queued.reply));
            ops.extend(queued.ops);
        }
        let expected = ops.len();
        let call = Call {
            not_after: self.node_time(give_up),
            ops,
        };
        let result = match self
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
        };
        self.learn(sent, &result);
        match result {
            Ok(Reply {
                at,
                wall_ms,
                standing,
                answers,
            }) => {
                let mut answers = answers.into_iter();
                for (length, reply) in waiting {
                    let answers = answers.by_ref().take(length).collect();
                    // A sender that has given up is no longer listening.
                    let _ = reply.send(Ok(Reply {
                        at,
                        wall_ms,
                        standing: standing.clone(),
                        answers,
                    }));
                }
            }
            Err(trouble) => {
                for (_, reply) in waiting {
                    let _ = reply.send(Err(trouble.clone()));
                }
            }
        }
    }

    /// Learns the node's clock and standing from the outcome of a call.
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
        *self
            .0
            .trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = result
            .as_ref()
            .err()
            .filter(|e| !matches!(e, NodeError::Late { .. }))
            .cloned();
        if let Ok(reply) = result {
            self.0.standing.send_if_modified(|standing| {
                let changed = *standing != reply.standing;
                if changed {
                    standing.clone_from(&reply.standing);
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
                // Whoever still waits to be sent is answered now.
                let trouble = self.known_trouble();
                self.waiting().refuse_all(&trouble);
                self.0.fallen.notify_one();
            }
        }
    }

    fn node_time(&self, at: Moment) -> Option<NodeMs> {
        let skew = (*self.0.skew.lock().unwrap_or_else(PoisonError::into_inner))?;
        let ms = i128::try_from(at.since_boot().as_millis()).ok()? + skew.offset_ms;
        let slack = i128::try_from(skew.error.as_millis()).ok()? + 2;
        u64::try_from(ms + slack).ok().map(NodeMs)
    }
}

// === impl Queue ===

impl Queue {
    /// Takes a place at the end; whether there was one.
    fn push(
        &mut self,
        ops: Vec<Op>,
        give_up: Moment,
        reply: oneshot::Sender<Result<Reply, NodeError>>,
    ) -> bool {
        let extends = ops.iter().any(|op| matches!(op, Op::Extend { .. }));
        // What is held is extended whatever else is wanted.
        if self.ops + ops.len() > MOST_QUEUED && !extends {
            return false;
        }
        self.ops += ops.len();
        let lane = if extends {
            &mut self.extensions
        } else {
            &mut self.others
        };
        lane.push_back(Queued {
            ops,
            give_up,
            reply,
        });
        true
    }

    /// What goes out in one call of at most `room` operations.
    fn next_batch(&mut self, room: usize, now: Moment) -> Option<Vec<Queued>> {
        let mut batch: Vec<Queued> = Vec::new();
        let most = room.min(MOST_OPS);
        let (mut ops, mut released) = (0, false);
        for lane in [&mut self.extensions, &mut self.others] {
            while let Some(next) = lane.front() {
                if now >= next.give_up {
                    if let Some(late) = lane.pop_front() {
                        self.ops -= late.ops.len();
                        // Never sent. A sender that has given up is no longer listening.
                        let _ = late.reply.send(Err(NodeError::Overload));
                    }
                    continue;
                }
                let acquires = next.ops.iter().any(|op| matches!(op, Op::Acquire { .. }));
                if ops + next.ops.len() > most || released && acquires {
                    break;
                }
                ops += next.ops.len();
                released |= next.ops.iter().any(|op| matches!(op, Op::Release { .. }));
                batch.extend(lane.pop_front());
            }
        }
        self.ops -= ops;
        (!batch.is_empty()).then_some(batch)
    }

    fn refuse_all(&mut self, trouble: &NodeError) {
        let all = self.extensions.drain(..).chain(self.others.drain(..));
        for queued in all {
            let _ = queued.reply.send(Err(trouble.clone()));
        }
        self.ops = 0;
    }
}
