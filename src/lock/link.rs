//! The way to one node: a queue that is sent as whole calls, the node's clock, and a breaker.
//!
//! - Everything queued goes out as one atomic call of at most 250 operations (R1); up to [`IN_FLIGHT`] calls are under
//!   way, in the order in which they were queued. Extensions go first: what is held comes before what is wanted.
//! - A node has its timeout from when a call is sent. What waits in our own queue is not held against it: a request waits
//!   there for [`PATIENCE`] timeouts at most, and then nothing is sent.   (our_own_queue_is_not_held_against_the_node)
//! - A call carries the latest time on the node's own clock at which it may still act, so that a request stuck in a
//!   frozen server does nothing after its sender gave up (R1). Senders wait for longer than that, never shorter.
//! - A release never shares a call with a later attempt: claimers would livelock (R5).
//! - An extension shares a call with extensions only: what a server refuses of all that is wanted costs nothing that is
//!   held. (what_is_held_shares_no_call_with_what_is_wanted)
//! - One operation's refusal is not that of the others in its call: each sender is sent for once more, alone, and has an
//!   answer of its own. (a_refusal_is_that_of_its_sender_alone)
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
    node::{
        Answer, Call, Node, NodeError, NodeMs, Op, Refusal, Reply, Standing, guard::closed_since,
    },
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

    /// Sends what is in the batch as one call, and gives each sender his answer. How long the call took; of several, the
    /// slowest.
    async fn carry(self, mut batch: Vec<Queued>) -> Duration {
        let sent = self.0.clock.now();
        let ops = match &mut batch[..] {
            // Sent once, whatever becomes of it.
            [only] => std::mem::take(&mut only.ops),
            all => all.iter().flat_map(|queued| queued.ops.clone()).collect(),
        };
        let result = self.call(ops, sent).await;
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
                    let result = self.call(queued.ops.clone(), sent).await;
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

    /// One call, which has its timeout from `sent` on.
    async fn call(&self, ops: Vec<Op>, sent: Moment) -> Result<Reply, NodeError> {
        let give_up = sent + self.0.timeout;
        let expected = ops.len();
        let call = Call {
            not_after: self.node_time(give_up),
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
            .filter(|e| !matches!(e, NodeError::Late { .. }) && !is_about_a_key(e))
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

/// Whether the node has answered and refused something that was asked, so that it may well do the rest. A script that it
/// has forgotten is no such thing: behind younger calls it is refused to keep the order.
fn is_about_an_operation(trouble: &NodeError) -> bool {
    match trouble {
        NodeError::Refused { refusal, .. } => {
            !refusal.refuses_everything() && *refusal != Refusal::NoScript
        }
        trouble => matches!(trouble, NodeError::Protocol(_)),
    }
}

/// Whether a key was refused that is not ours: that is no trouble of the node, for nobody else is concerned.
fn is_about_a_key(trouble: &NodeError) -> bool {
    matches!(
        trouble,
        NodeError::Refused {
            refusal: Refusal::NoKey,
            ..
        }
    )
}

/// What the answers to operations say that were sent a second time. A round of an extension that had come through is
/// refused as an old one, which says nothing against the lease; whether it was kept or written anew nobody knows any
/// more, so it is no vote for it either: [`Answer::Done`].
fn of_a_repeat(ops: &[Op], mut reply: Reply) -> Reply {
    for (op, answer) in ops.iter().zip(&mut reply.answers) {
        if let (Op::Extend { owner, seq, .. }, Answer::Refused(shown)) = (op, &*answer)
            && shown.owner.as_ref() == Some(owner)
            && shown.seq >= *seq
            && shown.holder.as_ref().is_none_or(|holder| holder == owner)
            && !shown.released
            && !shown.broken
        {
            *answer = Answer::Done;
        }
    }
    reply
}

/// Gives each sender what is his. One that has given up is no longer listening.
fn share_out(batch: Vec<Queued>, result: Result<Reply, NodeError>) {
    match result {
        Ok(Reply {
            at,
            wall_ms,
            standing,
            answers,
        }) => {
            let alone = batch.len() == 1;
            let mut answers = answers.into_iter();
            for queued in batch {
                let length = if alone {
                    answers.len()
                } else {
                    queued.ops.len()
                };
                let _ = queued.reply.send(Ok(Reply {
                    at,
                    wall_ms,
                    standing: standing.clone(),
                    answers: answers.by_ref().take(length).collect(),
                }));
            }
        }
        Err(trouble) => {
            for queued in batch {
                let _ = queued.reply.send(Err(trouble.clone()));
            }
        }
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
            if held && !batch.is_empty() {
                break;
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

    /// What stands before a forbidden key in a call is executed, and the whole call refused: as by a server whose script
    /// ends midway.
    struct Strict {
        node: MemoryNode,
        calls: Arc<Mutex<Vec<Vec<Op>>>>,
    }

    const FORBIDDEN: &str = "theirs";

    fn forbidden() -> NodeError {
        NodeError::Refused {
            refusal: Refusal::NoKey,
            said: "NOPERM".into(),
        }
    }

    #[async_trait::async_trait]
    impl Node for Strict {
        fn name(&self) -> &str {
            "strict"
        }

        async fn call(&self, mut call: Call) -> Result<Reply, NodeError> {
            self.calls.lock().unwrap().push(call.ops.clone());
            let stops = call.ops.iter().position(|op| {
                matches!(op, Op::Acquire { key, .. } | Op::Extend { key, .. } if key == FORBIDDEN)
            });
            let Some(stops) = stops else {
                return self.node.call(call).await;
            };
            call.ops.truncate(stops);
            self.node.call(call).await.and(Err(forbidden()))
        }

        async fn announcements(&self) -> Option<crate::node::Announcements> {
            None
        }
    }

    fn strict() -> (Link, Arc<Mutex<Vec<Vec<Op>>>>) {
        let time = SimTime::new();
        let calls = Arc::default();
        let node = Strict {
            node: MemoryNode::new("strict", time.clock()),
            calls: Arc::clone(&calls),
        };
        (link(Arc::new(node), time.clock()), calls)
    }

    fn acquire(key: &str) -> Op {
        Op::Acquire {
            key: key.into(),
            owner: format!("owner of {key}"),
            kind: Kind::Lock,
            ttl: TIMEOUT * 20,
            floor: Token(0),
            take: Take::Server,
            clamp: TIMEOUT * 20,
            ticket: None,
        }
    }

    fn extend(key: &str, seq: u64) -> Op {
        Op::Extend {
            key: key.into(),
            owner: format!("owner of {key}"),
            kind: Kind::Lock,
            seq,
            ttl: TIMEOUT * 20,
            token: Token(1),
            take: Take::Server,
        }
    }

    fn release(key: &str) -> Op {
        Op::Release {
            key: key.into(),
            owner: format!("owner of {key}"),
            kind: Kind::Lock,
            retention: TIMEOUT * 20,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_that_of_its_sender_alone() {
        let (link, _) = strict();
        let ready = link.send(vec![acquire("a"), acquire("b")]).await;
        assert!(ready.is_ok(), "{ready:?}");
        // Queued together: one call.
        let first = link.send(vec![acquire("c")]);
        let refused = link.send(vec![acquire(FORBIDDEN)]);
        let released = link.send(vec![release("b")]);
        let read = link.send(vec![Op::Read { key: "b".into() }]);
        assert!(matches!(
            first.await.as_deref(),
            Ok([Answer::Granted { .. }])
        ));
        assert_eq!(refused.await, Err(forbidden()));
        assert_eq!(released.await, Ok(vec![Answer::Done]));
        let read = read.await.unwrap();
        assert!(
            matches!(&read[..], [Answer::View(view)] if view.holder.is_none()),
            "{read:?}"
        );
        // Alone it is no trouble of the node either.
        assert!(link.send(vec![acquire(FORBIDDEN)]).await.is_err());
        assert!(!link.is_down() && link.trouble().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_held_shares_no_call_with_what_is_wanted() {
        let (link, calls) = strict();
        let ready = link.send(vec![acquire("a")]).await;
        assert!(ready.is_ok(), "{ready:?}");
        for seq in 1..4 {
            let refused = link.send(vec![acquire(FORBIDDEN)]);
            let kept = link.send(vec![extend("a", seq)]).await;
            assert!(
                matches!(kept.as_deref(), Ok([Answer::Kept { .. }])),
                "{kept:?}"
            );
            assert_eq!(refused.await, Err(forbidden()));
        }
        let calls = calls.lock().unwrap();
        let extends = |op: &Op| matches!(op, Op::Extend { .. });
        assert!(
            calls
                .iter()
                .all(|ops| ops.iter().all(extends) || !ops.iter().any(extends))
        );
        assert_eq!(calls.len(), 1 + 3 * 2, "and nothing is sent twice");
    }

    /// A majority of refusals would end a lease that is in the best of health.
    #[tokio::test(start_paused = true)]
    async fn a_round_that_had_come_through_is_no_vote_against_the_lease() {
        let (link, calls) = strict();
        let ready = link.send(vec![acquire("a")]).await;
        assert!(ready.is_ok(), "{ready:?}");
        let (ours, refused) = (
            link.send(vec![extend("a", 1)]),
            link.send(vec![extend(FORBIDDEN, 1)]),
        );
        assert_eq!(ours.await, Ok(vec![Answer::Done]), "neither for it");
        assert_eq!(refused.await, Err(forbidden()));
        assert_eq!(calls.lock().unwrap()[1].len(), 2, "one call at first");
        let next = link.send(vec![extend("a", 2)]).await;
        assert!(
            matches!(next.as_deref(), Ok([Answer::Kept { .. }])),
            "{next:?}"
        );
        // What somebody else holds by now is refused, whatever is sent how often.
        assert_eq!(link.send(vec![release("a")]).await, Ok(vec![Answer::Done]));
        let (ours, refused) = (
            link.send(vec![extend("a", 3)]),
            link.send(vec![extend(FORBIDDEN, 2)]),
        );
        assert!(matches!(ours.await.as_deref(), Ok([Answer::Refused(_)])));
        assert_eq!(refused.await, Err(forbidden()));
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
        link(Arc::new(node), clock)
    }

    fn link(node: Arc<dyn Node>, clock: Clock) -> Link {
        let (chance, events) = (Chance::seeded(1), Events::default());
        let wall = FleetClock::new(clock.clone(), TIMEOUT, 1);
        let link = Link::new(
            (0, node, wall),
            TIMEOUT,
            clock,
            chance,
            events,
            Arc::default(),
        );
        drop(Spawn::system().spawn(link.clone().pump()));
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
