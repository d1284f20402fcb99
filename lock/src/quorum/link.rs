//! One connection to a node: a queue that is sent as whole calls. What they tell of the node is in [`super::node_health`].
//!
//! The keeper has a link to each node, and callers have another: what they ask at one time leaves in one call, without a
//! timer. A caller that asks alone carries its call alone; what is asked while calls are under way goes out with the next one.
//!
//! - Everything queued goes out as one atomic call of at most 250 operations, or as many extensions as the node takes (R1); up to [`IN_FLIGHT`] calls are under
//!   way, in the order in which they were queued. Extensions go first: what is held comes before what is wanted.
//! - On a link of callers a call is under way alone, unless the node is far or much is waiting: what joins a call costs
//!   less than a call. What several senders are answered is awaited by all before the next leaves.
//!   (what_is_asked_while_a_call_is_under_way_leaves_in_one)
//! - No call of several callers grows so large that a near node and its callers wait for each other.
//!   (what_many_ask_of_a_near_node_leaves_in_calls_of_some)
//! - A call that its sender carries is carried on by the pump as soon as others wait behind it, its time is up or its sender
//!   has gone: a caller that forgets a future holds up no other. (a_call_whose_sender_does_not_look_holds_up_nobody)
//! - Each link has one timer, for the call that is under way longest.
//! - A link of callers lives on the runtime of one of them, which may end or stand still. On which nothing is answered it is
//!   no longer *sound*, and callers go over the keeper's until it has an answer again.
//!   (callers_go_on_without_the_runtime_of_the_first_of_them)
//! - A node has its timeout from when a call is sent. What waits in our own queue is not held against it: a request waits
//!   there for [`PATIENCE`] timeouts at most, and then nothing is sent.   (our_own_queue_is_not_held_against_the_node)
//! - A call carries the time on the node's own clock from which on it may act no more, so that a request stuck in a
//!   frozen server does nothing after its sender gave up (R1). Senders wait for longer than that, never shorter. It is never
//!   later than the shortest ttl that the call asks for, from when that was asked (N2), and nothing of that kind leaves while
//!   nothing is known of the node's clock.
//!   (n2_no_call_acts_a_ttl_after_it_was_asked_for, n2_nothing_leaves_that_might_act_at_any_time)
//! - A release never shares a call with a later attempt at its lock: claimers would livelock (R5).
//!   (a_release_shares_no_call_with_a_later_attempt_at_its_lock)
//! - An extension shares a call with extensions only: what a server refuses of all that is wanted costs nothing that is
//!   held. (what_is_held_shares_no_call_with_what_is_wanted)
//! - One operation's refusal is not that of the others in its call: each sender is sent for once more, alone, and has an
//!   answer of its own. (a_refusal_is_that_of_its_sender_alone)

mod alone;
mod answer_queue;
mod caller_links;
mod pump;
mod queue;
pub(super) mod repeat;
#[cfg(test)]
mod tests;

pub(crate) use answer_queue::{AnswerQueue, AnswerSlot};
pub(crate) use queue::{MOST_OPS, PATIENCE};

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use futures_util::Future;
use tokio::sync::{Notify, oneshot};

use super::{
    node_health::{NodeHealth, Whose, is_silence},
    votes::Votes,
    wall::FleetClock,
};
use crate::{
    backoff::Backoff,
    chance::Chance,
    clock::{Clock, Moment},
    event::Events,
    latest,
    node::{Answer, Eligibility, Node, NodeError, Op, Refusal, Reply},
    settings::FleetConfig,
    spawn::Spawn,
};
use alone::{Alone, Looked};
use answer_queue::{ended, lost};
use caller_links::CallerLinks;
use queue::{MOST_UNDER_WAY, Queue, Return, TOGETHER, refused_in_all, shortest_ttl};

/// Calls under way to one node.
const IN_FLIGHT: usize = 4;
/// A node that is back is noticed within this time: a probe of one that is not costs nearly nothing.
const LONGEST_PROBE_PAUSE: Duration = Duration::from_millis(250);
/// A node is far when the way there and back takes longer: to wait for a call that is under way would cost more than to make one.
const FAR: Duration = Duration::from_micros(500);
/// So many operations leave although a call is under way.
const MUCH: usize = 12;

/// One connection to a node. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Link(Arc<Inner>);

struct Inner {
    node: Arc<dyn Node>,
    health: Arc<NodeHealth>,
    clock: Clock,
    chance: Chance,
    timeout: Duration,
    /// How many one call carries at most.
    extensions: usize,
    lane: Mutex<Lane>,
    bell: Notify,
    /// Of a link of callers.
    callers: Option<Callers>,
}

/// What links of callers have.
struct Callers {
    /// Where the pump comes to life, with the first request.
    spawn: Spawn,
    links: Arc<CallerLinks>,
    /// Nothing was lost on it since its last answer.
    sound: AtomicBool,
    /// When something was lost on it last, or an attempt went past it: nanoseconds of the clock.
    mixed: AtomicU64,
}

/// What waits to be sent, and what is under way.
#[derive(Default)]
struct Lane {
    queue: Queue,
    /// Calls under way, and their operations.
    calls: usize,
    ops: usize,
    /// Operations that may be under way; nothing for the most there can be.
    window: Option<usize>,
    /// The call that its sender carries.
    alone: Option<Arc<Alone>>,
    /// Something was sent past the pump since it set its timer.
    stirred: bool,
    /// The pump wakes up before any call runs out of its time.
    watched: bool,
    /// The node's clock is being asked for, and was, for what leaves next.
    meets: bool,
    met: bool,
    pumped: bool,
    closed: bool,
}

/// How a request is made.
#[derive(Clone, Copy)]
struct Order {
    /// Also to a node that is down.
    probe: bool,
    /// Its sender may carry it, and is on a runtime.
    alone: bool,
    /// How long it may wait to be sent, in node timeouts.
    patience: u32,
}

const USUAL: Order = Order {
    probe: false,
    alone: true,
    patience: PATIENCE,
};

/// An answer on its way. Dropping it does not take back what was asked.
pub(crate) enum Answering {
    Over(Option<NodeError>),
    Queued(oneshot::Receiver<Result<Reply, NodeError>>),
    Alone(Link, Arc<Alone>),
}

// === impl Link ===

impl Link {
    /// The keeper's.
    pub(crate) fn new(
        (number, node, wall): (usize, Arc<dyn Node>, FleetClock),
        timeout: Duration,
        clock: Clock,
        chance: Chance,
        events: Events,
        votes: Arc<Votes>,
    ) -> Self {
        let name = node.name().to_owned();
        let health = NodeHealth::new(name, (wall, number), clock.clone(), events, votes);
        Self(Arc::new(Inner {
            extensions: node.most_extensions().clamp(MOST_OPS, MOST_UNDER_WAY),
            node,
            health: Arc::new(health),
            clock,
            chance,
            timeout,
            lane: Mutex::default(),
            bell: Notify::new(),
            callers: None,
        }))
    }

    /// Those of callers, to the nodes of these links.
    pub(crate) fn of_callers(links: &[Self], spawn: &Spawn) -> Vec<Self> {
        let together = Arc::<CallerLinks>::default();
        let another = |link: &Self| {
            let node = link.node().another();
            Self(Arc::new(Inner {
                node: node.unwrap_or_else(|| link.node().clone()),
                health: link.0.health.clone(),
                clock: link.0.clock.clone(),
                chance: link.0.chance.clone(),
                timeout: link.0.timeout,
                extensions: link.0.extensions,
                lane: Mutex::default(),
                bell: Notify::new(),
                callers: Some(Callers {
                    spawn: spawn.clone(),
                    links: together.clone(),
                    sound: AtomicBool::new(true),
                    mixed: AtomicU64::new(0),
                }),
            }))
        };
        let all: Vec<_> = links.iter().map(another).collect();
        together.are(&all);
        all
    }

    pub(crate) fn name(&self) -> &str {
        self.0.health.name()
    }

    pub(crate) fn node(&self) -> &Arc<dyn Node> {
        &self.0.node
    }

    /// How many of these operations one call may carry: of extensions as many as the node takes, unless it is slow with much.
    pub(crate) fn most_of(&self, ops: &[Op]) -> usize {
        match ops.iter().all(|op| matches!(op, Op::Extend { .. })) {
            true => self.most_extensions(),
            false => MOST_OPS,
        }
    }

    /// The same of extensions.
    pub(crate) fn most_extensions(&self) -> usize {
        let window = self.lane().window();
        match window < self.0.extensions {
            true => MOST_OPS,
            false => self.0.extensions,
        }
    }

    pub(crate) fn is_down(&self) -> bool {
        self.0.health.is_down()
    }

    /// The quickest way there and back of late.
    pub(crate) fn round_trip(&self) -> Duration {
        self.0.health.round_trip()
    }

    /// Waits until the node is not known to be down.
    pub(crate) async fn up(&self) {
        self.0.health.up().await;
    }

    /// The last trouble with this node; `None` while it answers.
    pub(crate) fn trouble(&self) -> Option<NodeError> {
        self.0.health.trouble()
    }

    /// Whether it has voted since this was asked last.
    pub(crate) fn take_vote(&self) -> bool {
        self.0.health.take_vote()
    }

    /// Whether the node votes, by its latest reply.
    pub(crate) fn eligibility(&self) -> latest::Receiver<Eligibility> {
        self.0.health.eligibility()
    }

    /// Takes note of which nomination is watched, and of when its votes count again.
    pub(crate) fn set_watched(&self, watched: Option<(String, Moment)>) {
        self.0.health.set_watched(watched);
    }

    /// Takes note of the fleet for which it leaves this node alone.
    pub(crate) fn set_rival(&self, rival: Option<String>) {
        self.0.health.set_rival(rival);
    }

    /// Takes note of in what its fleet is another one than ours.
    pub(crate) fn set_other(&self, differs: Option<String>) {
        self.0.health.set_other(differs);
    }

    /// Takes note of the nodes without which its fleet is not founded.
    pub(crate) fn set_waits_for(&self, nodes: Vec<String>) {
        self.0.health.set_waits_for(nodes);
    }

    /// Why its vote does not count, where it does not say so itself.
    pub(crate) fn unadmitted(&self) -> NodeError {
        self.0.health.unadmitted()
    }

    /// The nomination that this process watches, and how much longer.
    pub(crate) fn watched(&self) -> Option<(String, Duration)> {
        self.0.health.watched()
    }

    /// How long until its votes count again; `None` when this process has not watched it.
    pub(crate) fn counts_in(&self) -> Option<Duration> {
        self.watched().map(|(_, left)| left)
    }

    /// How long the last call took that was answered.
    pub(crate) fn last_round_trip(&self) -> Option<Duration> {
        self.0.health.last_round_trip()
    }

    /// How far the node's wall clock is ahead of this machine's.
    pub(crate) fn ahead_ms(&self) -> Option<i64> {
        self.0.health.ahead_ms()
    }

    /// Says once that a part of this node's memory is damaged.
    pub(crate) fn doubt(&self, said: &str) {
        self.0.health.doubt(said);
    }

    /// Told once, before it is asked.
    pub(crate) fn is_of(&self, fleet: FleetConfig) {
        self.0.health.is_of(fleet);
    }

    /// Why its votes do not count; `None` while they do.
    pub(crate) fn no_vote(&self) -> Option<NodeError> {
        self.0.health.no_vote()
    }

    /// As [`Link::send`], with what else the node says of itself.
    pub(crate) fn ask(&self, ops: Vec<Op>) -> Answering {
        self.put(ops, USUAL)
    }

    /// Sends or queues the operations at once, in order; the future only waits. Dropping it does not take them back.
    pub(crate) fn send(
        &self,
        ops: Vec<Op>,
    ) -> impl Future<Output = Result<Vec<Answer>, NodeError>> + Send + 'static {
        let reply = self.ask(ops);
        async move { Ok(reply.await?.answers) }
    }

    /// As [`Link::send`], from where there may be no runtime.
    pub(crate) fn enqueue(
        &self,
        ops: Vec<Op>,
    ) -> impl Future<Output = Result<Vec<Answer>, NodeError>> + Send + 'static {
        let alone = false;
        let reply = self.put(ops, Order { alone, ..USUAL });
        async move { Ok(reply.await?.answers) }
    }

    /// As [`Link::ask`], for one who asks several nodes. The answer comes to its slot there, or to what is returned.
    pub(super) fn ask_at(&self, ops: Vec<Op>, slot: AnswerSlot) -> Option<Answering> {
        self.push(ops, USUAL, Return::At(slot))
    }

    /// The same, for a sender that waits for two timeouts at most.
    pub(super) fn ask_shortly_at(&self, ops: Vec<Op>, slot: AnswerSlot) -> Option<Answering> {
        let patience = 1;
        self.push(ops, Order { patience, ..USUAL }, Return::At(slot))
    }

    /// Whether requests over this link of callers are sent: its pump lives on the runtime of the first caller.
    pub(crate) fn is_at_work(&self) -> bool {
        self.lane().pumped
    }

    /// Whether nothing was lost on this link of callers since its last answer. It lives on the runtime of a caller, which may
    /// end or stand still.
    pub(crate) fn is_sound(&self) -> bool {
        let callers = self.0.callers.as_ref();
        callers.is_none_or(|callers| callers.sound.load(Ordering::SeqCst))
    }

    /// Something that was asked over this link of callers gets no answer.
    pub(crate) fn distrust(&self) {
        self.0.distrust();
    }

    /// An attempt goes past this link of callers. Asks whether it is sound again.
    pub(crate) fn pass_by(&self) {
        self.0.is_mixed();
        let idle = self.lane().is_idle();
        if idle && !self.is_sound() {
            drop(self.enqueue(Vec::new()));
        }
    }

    /// N4': since when whatever was asked of the node has left over this link of callers, in order.
    pub(crate) fn in_order_since(&self) -> Moment {
        let mixed = |callers: &Callers| callers.mixed.load(Ordering::SeqCst);
        Moment::from_boot(Duration::from_nanos(
            self.0.callers.as_ref().map_or(0, mixed),
        ))
    }

    /// Nothing is sent any more.
    pub(crate) fn close(&self) {
        self.lane().closed = true;
        self.0.bell.notify_one();
    }

    fn put(&self, ops: Vec<Op>, order: Order) -> Answering {
        let (reply, answer) = oneshot::channel();
        let reply = Return::One(reply);
        let elsewhere = self.push(ops, order, reply);
        elsewhere.unwrap_or(Answering::Queued(answer))
    }

    /// Sends or queues the operations. The answer goes to where it is to be returned, unless it comes from what this returns.
    fn push(&self, ops: Vec<Op>, order: Order, to: Return) -> Option<Answering> {
        let over = |to: Return, why| {
            to.dispense();
            Some(Answering::Over(Some(why)))
        };
        let now = self.0.clock.now();
        if self.is_down() && !order.probe {
            return over(to, self.known_trouble());
        }
        let mut lane = self.lane();
        if lane.closed {
            return over(to, ended());
        }
        let callers = self.0.callers.as_ref();
        if let Some(callers) = callers.filter(|_| !lane.pumped) {
            if tokio::runtime::Handle::try_current().is_err() {
                return over(to, ended());
            }
            lane.pumped = true;
            drop(callers.spawn.spawn(self.clone().pump()));
        }
        if let Some(callers) = callers
            && order.alone
            && lane.is_idle()
            && !callers.links.are_waking()
            && (self.0.health.has_a_clock() || shortest_ttl(&ops).is_none())
        {
            let alone = Arc::new(Alone::new(self, ops, now));
            lane.begin(alone.ops);
            lane.alone = Some(alone.clone());
            lane.stirred = true;
            let unwatched = !lane.watched;
            drop(lane);
            if unwatched {
                self.0.bell.notify_one();
            }
            // Its place in the order is taken when this returns.
            match alone.look(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(Looked::Here(result)) => alone.keep(self.landed(&alone, result)),
                // The pump has been quick.
                Poll::Ready(Looked::Elsewhere(result)) => alone.keep(result),
                Poll::Pending => {}
            }
            to.dispense();
            return Some(Answering::Alone(self.clone(), alone));
        }
        let give_up = now + self.0.timeout * order.patience;
        if let Err(to) = lane.queue.push(ops, (now, give_up), to) {
            return over(to, NodeError::Overload);
        }
        let wakes = self.may_send(&lane) || lane.alone.is_some();
        drop(lane);
        if wakes {
            self.0.bell.notify_one();
        }
        None
    }

    /// Whether what waits may leave.
    fn may_send(&self, lane: &Lane) -> bool {
        let Some(callers) = &self.0.callers else {
            return lane.calls < IN_FLIGHT;
        };
        // A caller that is answered just now may have more to ask.
        !callers.links.are_waking()
            && match lane.calls {
                0 => true,
                IN_FLIGHT.. => false,
                _ => lane.queue.len() >= MUCH || self.0.health.round_trip() > FAR,
            }
    }

    /// Operations in one call of several senders.
    fn together(&self) -> usize {
        match self.0.callers.is_some() && self.0.health.round_trip() <= FAR {
            true => TOGETHER,
            false => MOST_OPS,
        }
    }

    /// What a call that its sender has carried to its end has told.
    fn landed(
        &self,
        alone: &Arc<Alone>,
        result: Result<Reply, NodeError>,
    ) -> Result<Reply, NodeError> {
        let result = complete(result, alone.ops);
        let waiting = {
            let mut lane = self.lane();
            lane.end(alone.ops);
            // Not one that has begun since the pump has gone.
            lane.alone.take_if(|now| Arc::ptr_eq(now, alone));
            !lane.queue.is_empty()
        };
        self.learn(alone.sent, &result);
        if waiting {
            self.0.bell.notify_one();
        }
        refused_in_all(result)
    }

    fn lane(&self) -> MutexGuard<'_, Lane> {
        // The lane is changed by short, complete steps.
        self.0.lane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why nothing is sent there. Of a node that is silent as well: what was not sent was not executed.
    fn known_trouble(&self) -> NodeError {
        match self.trouble() {
            Some(silent @ NodeError::Timeout(_)) => NodeError::Unreachable(silent.to_string()),
            Some(trouble) => trouble,
            None => NodeError::Unreachable("known to be down".to_owned()),
        }
    }

    /// Learns from the outcome of a call.
    fn learn(&self, sent: Moment, result: &Result<Reply, NodeError>) {
        let mut answers = result.iter().flat_map(|reply| &reply.answers);
        if let Some(said) = answers.find_map(damage) {
            self.0.health.doubt(said);
        }
        let whose = match &self.0.callers {
            Some(callers) => {
                if is_silence(result) {
                    self.0.distrust();
                } else if result.is_ok() && !callers.sound.load(Ordering::SeqCst) {
                    callers.sound.store(true, Ordering::SeqCst);
                }
                Whose::Callers
            }
            None => Whose::Keeper,
        };
        if self.0.health.learn(sent, result, whose) {
            // What still waits to be sent is answered now.
            let trouble = self.known_trouble();
            self.lane().queue.refuse_all(&trouble);
        }
    }

    /// Asks a node that is down or suspected whether it is back, for ever.
    pub(crate) async fn probe(self) {
        let mut backoff = Backoff::new(self.0.timeout, LONGEST_PROBE_PAUSE);
        let order = Order {
            probe: true,
            ..USUAL
        };
        loop {
            self.0.health.suspected.notified().await;
            backoff.reset();
            if !self.is_down() {
                // Its outcome is learned where every other call's is.
                let _ = self.put(Vec::new(), order).await;
            }
            while self.is_down() {
                self.0.clock.sleep(backoff.next(&self.0.chance)).await;
                let _ = self.put(Vec::new(), order).await;
            }
        }
    }
}

// === impl Inner ===

impl Inner {
    fn distrust(&self) {
        if let Some(callers) = &self.callers {
            callers.sound.store(false, Ordering::SeqCst);
        }
        self.is_mixed();
    }

    fn is_mixed(&self) {
        if let Some(callers) = &self.callers {
            let now = self.clock.now().since_boot().as_nanos();
            let now = u64::try_from(now).unwrap_or(u64::MAX);
            callers.mixed.store(now, Ordering::SeqCst);
        }
    }
}

/// One answer to each operation, or none.
fn complete(result: Result<Reply, NodeError>, expected: usize) -> Result<Reply, NodeError> {
    match result {
        Ok(reply) if reply.answers.len() != expected => Err(NodeError::Protocol(format!(
            "{} answers to {expected} operations",
            reply.answers.len()
        ))),
        result => result,
    }
}

/// What is damaged on a node that has answered so.
fn damage(answer: &Answer) -> Option<&str> {
    match answer {
        Answer::Failed(NodeError::Refused {
            refusal: Refusal::Damaged,
            said,
        }) => Some(said),
        _ => None,
    }
}

// === impl Lane ===

impl Lane {
    fn is_idle(&self) -> bool {
        self.calls == 0 && self.queue.is_empty()
    }

    fn begin(&mut self, ops: usize) {
        self.calls += 1;
        self.ops += ops;
    }

    fn end(&mut self, ops: usize) {
        self.calls = self.calls.saturating_sub(1);
        self.ops = self.ops.saturating_sub(ops);
    }

    fn window(&self) -> usize {
        self.window.unwrap_or(MOST_UNDER_WAY)
    }
}

// === impl Answering ===

impl Future for Answering {
    type Output = Result<Reply, NodeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let result = match &mut *self {
            Self::Over(trouble) => Err(trouble.take().unwrap_or_else(ended)),
            Self::Queued(answer) => match Pin::new(answer).poll(cx) {
                Poll::Ready(result) => result.unwrap_or_else(|_| Err(lost())),
                Poll::Pending => return Poll::Pending,
            },
            Self::Alone(link, alone) => match alone.look(cx) {
                Poll::Ready(Looked::Here(result)) => link.landed(alone, result),
                Poll::Ready(Looked::Elsewhere(result)) => result,
                Poll::Pending => return Poll::Pending,
            },
        };
        *self = Self::Over(None);
        Poll::Ready(result)
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if let Self::Alone(link, alone) = self
            && alone.is_here()
        {
            alone.left.store(true, Ordering::SeqCst);
            link.0.bell.notify_one();
        }
    }
}
