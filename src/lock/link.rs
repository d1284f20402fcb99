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

use super::FleetClock;
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
/// Operations under way to one node, at most and at least: what waits behind too many on the server runs out of its time
/// there. How many that are depends on the server, see [`next_window`].
const MOST_UNDER_WAY: usize = 2 * MOST_OPS;
const LEAST_UNDER_WAY: usize = 16;
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
    /// The fleet's wall clock, and which of its nodes this is.
    wall: (FleetClock, usize),
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
            standing: watch::Sender::new(Standing::Unguarded),
            counts_at: Mutex::new(None),
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
        type InFlight = Pin<Box<dyn Future<Output = (usize, Duration)> + Send>>;
        let mut under_way: FuturesUnordered<InFlight> = FuturesUnordered::new();
        let (mut ops_under_way, mut window) = (0, MOST_UNDER_WAY);
        loop {
            while under_way.len() < IN_FLIGHT {
                // One call may always be under way, whatever its size.
                let room = match ops_under_way {
                    0 => MOST_OPS.max(window),
                    some => usize::saturating_sub(window, some),
                };
                let batch = self.waiting().next_batch(room, self.0.clock.now());
                let Some(batch) = batch else { break };
                let ops: usize = batch.iter().map(|queued| queued.ops.len()).sum();
                let carried = self.clone().carry(batch);
                let (clock, sent) = (self.0.clock.clone(), self.0.clock.now());
                let mut call: InFlight = Box::pin(async move {
                    carried.await;
                    (ops, clock.now().since(sent))
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
                Some((ops, took)) = under_way.next(), if !under_way.is_empty() => {
                    ops_under_way -= ops;
                    let waited = took.saturating_sub(self.round_trip());
                    window = next_window(window, waited, self.0.timeout);
                }
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
        if let Ok(reply) = result {
            let (wall, number) = &self.0.wall;
            wall.learn(*number, sent, reply.wall_ms);
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

    /// The quickest way there and back of late.
    fn round_trip(&self) -> Duration {
        let skew = self.0.skew.lock().unwrap_or_else(PoisonError::into_inner);
        skew.as_ref().map_or(Duration::ZERO, |skew| skew.error * 2)
    }

    fn node_time(&self, at: Moment) -> Option<NodeMs> {
        let skew = (*self.0.skew.lock().unwrap_or_else(PoisonError::into_inner))?;
        let ms = i128::try_from(at.since_boot().as_millis()).ok()? + skew.offset_ms;
        let slack = i128::try_from(skew.error.as_millis()).ok()? + 2;
        u64::try_from(ms + slack).ok().map(NodeMs)
    }
}

/// How many operations may be under way after a call that took so much longer than the way there and back: half as many
/// when much of the node's time was spent waiting for others of ours, a few more when little was.
fn next_window(window: usize, waited: Duration, timeout: Duration) -> usize {
    if waited > timeout / 4 {
        (window / 2).max(LEAST_UNDER_WAY)
    } else if waited < timeout / 8 {
        (window + LEAST_UNDER_WAY).min(MOST_UNDER_WAY)
    } else {
        window
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
        for (held, lane) in [(true, &mut self.extensions), (false, &mut self.others)] {
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
                if ops + next.ops.len() > most {
                    if held {
                        // What is wanted would take every place that becomes free before what is held fits in.
                        self.ops -= ops;
                        return (!batch.is_empty()).then_some(batch);
                    }
                    break;
                }
                if released && acquires {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        node::{Kind, Take, Token, memory::MemoryNode},
        sim_clock::SimTime,
        spawn::Spawn,
    };

    const TIMEOUT: Duration = Duration::from_millis(50);
    const CALL: Duration = Duration::from_millis(20);

    /// One call at a time, and each takes its time.
    struct Slow {
        node: MemoryNode,
        clock: Clock,
        turn: tokio::sync::Mutex<()>,
    }

    #[async_trait::async_trait]
    impl Node for Slow {
        fn name(&self) -> &str {
            "slow"
        }

        async fn call(&self, call: Call) -> Result<Reply, NodeError> {
            let _turn = self.turn.lock().await;
            self.clock.sleep(CALL).await;
            self.node.call(call).await
        }

        async fn announcements(&self) -> Option<crate::node::Announcements> {
            None
        }
    }

    #[test]
    fn what_is_wanted_takes_no_room_that_what_is_held_waits_for() {
        let extend = Op::Extend {
            key: "k".into(),
            owner: "a".into(),
            kind: Kind::Lock,
            seq: 1,
            ttl: TIMEOUT,
            token: Token(1),
            take: Take::Server,
        };
        let mut queue = Queue::default();
        for ops in [
            vec![Op::Leave {
                key: "k".into(),
                ticket: "t".into(),
            }],
            vec![extend; MOST_OPS],
        ] {
            assert!(queue.push(ops, Moment::NEVER, oneshot::channel().0));
        }
        let mut sizes = |room| {
            let batch = queue.next_batch(room, Moment::ZERO);
            batch.map(|batch| Vec::from_iter(batch.iter().map(|queued| queued.ops.len())))
        };
        assert_eq!(
            sizes(MOST_OPS / 2),
            None,
            "what is held does not fit in yet"
        );
        assert_eq!(sizes(MOST_OPS), Some(vec![MOST_OPS]));
        assert_eq!(sizes(MOST_OPS / 2), Some(vec![1]));
    }

    fn slow(time: &SimTime) -> Link {
        let clock = time.clock();
        let node = Slow {
            node: MemoryNode::new("slow", clock.clone()),
            clock: clock.clone(),
            turn: tokio::sync::Mutex::default(),
        };
        let link = Link::new(
            (
                0,
                Arc::new(node),
                FleetClock::new(clock.clone(), TIMEOUT, 1),
            ),
            TIMEOUT,
            clock,
            Chance::seeded(1),
            Events::default(),
            Arc::default(),
        );
        let spawn = Spawn::system();
        drop(spawn.spawn(link.clone().pump()));
        link
    }

    fn full_call() -> Vec<Op> {
        let read = |n| Op::Read {
            key: format!("lock/{n}"),
        };
        (0..MOST_OPS).map(read).collect()
    }

    #[test]
    fn a_node_that_is_slow_with_much_is_asked_for_less_at_a_time() {
        let next = |window, waited| next_window(window, Duration::from_millis(waited), TIMEOUT);
        assert_eq!(next(MOST_UNDER_WAY, 13), MOST_UNDER_WAY / 2);
        assert_eq!(next(LEAST_UNDER_WAY, 50), LEAST_UNDER_WAY);
        assert_eq!(next(100, 10), 100);
        assert_eq!(next(100, 1), 116);
        assert_eq!(next(MOST_UNDER_WAY, 0), MOST_UNDER_WAY);
    }

    #[tokio::test(start_paused = true)]
    async fn our_own_queue_is_not_held_against_the_node() {
        let link = slow(&SimTime::new());
        // More than three timeouts' worth of work.
        let sent: Vec<_> = (0..8).map(|_| link.send(full_call())).collect();
        for answer in sent {
            assert_eq!(answer.await.unwrap().len(), MOST_OPS);
        }
        assert!(!link.is_down());
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_sent_in_time_is_not_sent_and_the_node_stays_up() {
        let link = slow(&SimTime::new());
        let sent: Vec<_> = (0..40).map(|_| link.send(full_call())).collect();
        let mut overload = 0;
        for answer in sent {
            match answer.await {
                Ok(answers) => assert_eq!(answers.len(), MOST_OPS),
                Err(why) => {
                    assert_eq!(why, NodeError::Overload);
                    overload += 1;
                }
            }
        }
        assert!((28..=32).contains(&overload), "{overload}");
        assert!(!link.is_down());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_is_extended_before_others_are_served() {
        let time = SimTime::new();
        let (link, clock) = (slow(&time), time.clock());
        let began = clock.now();
        let others: Vec<_> = (0..8).map(|_| link.send(full_call())).collect();
        let extension = Op::Extend {
            key: "lock/held".into(),
            owner: "me".into(),
            kind: crate::node::Kind::Lock,
            seq: 1,
            ttl: TIMEOUT * 20,
            token: crate::node::Token(1),
            take: crate::node::Take::Server,
        };
        let extended = link.send(vec![extension]).await;
        assert!(extended.is_ok());
        assert!(clock.now().since(began) <= CALL * 4);
        drop(others);
    }
}
