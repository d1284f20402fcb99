//! All nodes of a lock service, as one: what is sent to them, and what their answers mean.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{Future, StreamExt, stream::FuturesUnordered};
use tokio::sync::Notify;

use crate::{
    backoff::Backoff,
    chance::Chance,
    clock::{Clock, Moment},
    event::Events,
    expiry::{
        LockState,
        watch::{self, Watch},
    },
    hash::fnv1a,
    latest,
    lease::LeaseView,
    node::{
        Answer, Expiry, Kind, NodeError, Op, Take, Token, View,
        damage::malformed,
        rules::{self, DOUBTED},
    },
    quorum::{
        link::{Link, MOST_OPS, PATIENCE},
        members::Members,
        subscriptions::Subscriptions,
        tally::majority,
    },
    settings::Timing,
    spawn::Spawn,
};

/// What is asked has an answer within so many node timeouts, or the runtime stands still on which it is to be sent.
pub(crate) const LONGEST_CALL: u32 = PATIENCE + 3;

/// All nodes of a lock service, and what every attempt needs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Cluster(Arc<Parts>);

/// What a cluster is made of.
pub(crate) struct Parts {
    /// The keeper's links.
    pub(crate) links: Vec<Link>,
    /// Those of callers, to the same nodes.
    pub(crate) of_callers: Vec<Link>,
    pub(crate) timing: Timing,
    pub(crate) clock: Clock,
    pub(crate) chance: Chance,
    pub(crate) spawn: Spawn,
    pub(crate) events: Events,
    /// The largest token this client has seen: grants start above it, so that nodes usually answer with one number.
    pub(crate) floor: AtomicU64,
    /// What decides that a silent holder of a named lock is over. Short claims always end with their keys.
    pub(crate) expiry: Expiry,
    pub(crate) watch: Mutex<Watch>,
    /// Whose votes count together.
    pub(crate) members: latest::Sender<Arc<Members>>,
    pub(crate) subscriptions: Subscriptions,
    /// What the owner values of this process end with.
    pub(crate) tag: Option<String>,
    /// How many of [`Busy`] there are.
    pub(crate) busy: Arc<UnderWay>,
    /// What is told again and again.
    pub(crate) repeats: Arc<Repeats>,
    #[cfg(any(test, feature = "testing"))]
    pub(crate) mutant: super::mutant::Mutant,
}

/// How far telling all nodes has come.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// Nodes that know.
    pub(crate) nodes: usize,
    /// Every node has answered, or is known not to; or a majority knows, and only one is still to answer that others are
    /// told before.
    pub(crate) asked: bool,
}

/// A release is under way, or an acquisition that may end in one: the end of the process waits until this is dropped.
pub(crate) struct Busy(Arc<UnderWay>);

/// How many [`Busy`] there are.
#[derive(Default)]
pub(crate) struct UnderWay {
    count: AtomicUsize,
    none: Notify,
}

/// How much there is that a node has not heard and is told again: each is a task that lives for up to `max_ttl`.
#[derive(Default)]
pub(crate) struct Repeats(AtomicUsize);

/// One of them.
pub(crate) struct Repeat(Arc<Repeats>);

/// No more are kept: a few kilobytes each.
const MOST_REPEATS: usize = 10_000;

/// An answer on its way.
pub(crate) type Sent =
    Pin<Box<dyn Future<Output = (usize, Result<Vec<Answer>, NodeError>)> + Send>>;

/// Whether the caller is on a runtime, with whose timers and connections it can ask by itself.
pub(crate) fn is_on_a_runtime() -> bool {
    tokio::runtime::Handle::try_current().is_ok()
}

// === impl Cluster ===

impl std::ops::Deref for Cluster {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl Cluster {
    pub(crate) fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }

    pub(crate) fn busy(&self) -> Busy {
        self.busy.count.fetch_add(1, Ordering::SeqCst);
        Busy(self.busy.clone())
    }

    /// Waits until there is no [`Busy`].
    pub(crate) async fn settled(&self) {
        loop {
            let mut none = pin!(self.busy.none.notified());
            // Listens first: the last one may go at this very moment.
            none.as_mut().enable();
            if self.is_settled() {
                return;
            }
            none.await;
        }
    }

    /// Whether there is no [`Busy`].
    pub(crate) fn is_settled(&self) -> bool {
        self.busy.count.load(Ordering::SeqCst) == 0
    }

    /// Nodes beyond the majority, when `kept` of them hold the lease (R10).
    pub(crate) fn margin(&self, kept: usize) -> isize {
        let signed = |n: usize| isize::try_from(n).unwrap_or(isize::MAX);
        signed(kept) - signed(majority(self.links.len()))
    }

    /// Takes note of a token that a majority has granted. One that is far above every count and clock is that of its lock alone:
    /// above it there may be nothing left, and all locks of the process go on from here.
    pub(crate) fn has_seen(&self, token: Token) {
        if token < DOUBTED {
            self.floor.fetch_max(token.0, Ordering::SeqCst);
        }
    }

    /// Takes note of a token that one node has told. One that is far above all others is told of, and is not spread.
    pub(crate) fn was_told(&self, node: usize, token: Token) {
        if token < DOUBTED {
            self.has_seen(token);
        } else if let Some(link) = self.links.get(node) {
            link.doubt(&format!("a token of {token}, which is not taken over"));
        }
    }

    pub(crate) fn watch(&self) -> MutexGuard<'_, Watch> {
        // The watch is changed by short, complete steps.
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of what a node has just shown.
    pub(crate) fn saw(&self, node: usize, view: &View) {
        self.was_told(node, view.token);
        if view.is_malformed()
            && let Some(link) = self.links.get(node)
        {
            link.doubt(&malformed(&view.key));
        }
        if self.expiry == Expiry::Observed {
            self.watch().note(node, view, self.clock.now());
        }
    }

    /// What decides about leases of this kind.
    pub(crate) fn expiry_of(&self, kind: Kind) -> Expiry {
        match kind {
            Kind::Lock => self.expiry,
            Kind::Claim => Expiry::Server,
        }
    }

    /// How a lock may be taken on a node now (O1, O2): read just before the request leaves.
    pub(crate) fn take(&self, node: usize, key: &str, kind: Kind) -> Take {
        watch::take(self.expiry_of(kind), || {
            let watch = self.watch();
            // Of most locks nothing was seen.
            let known = watch.knows(key).then(|| self.clock.now());
            known.and_then(|now| watch.expected(node, key, now, &self.timing))
        })
    }

    /// What these views mean for us, now.
    pub(crate) fn judge(
        &self,
        key: String,
        nodes: Vec<(usize, Result<View, NodeError>)>,
    ) -> LockState {
        let now = self.clock.now();
        let watch = self.watch();
        let wait = |(node, view): &(usize, Result<View, NodeError>)| {
            let view = view.as_ref().ok()?;
            // What has no vote grants nothing, however free it looks.
            if self.links.get(*node).is_some_and(|l| l.no_vote().is_some()) {
                return None;
            }
            watch.wait(*node, view, now, &self.timing, self.expiry)
        };
        let waits = nodes.iter().map(wait).collect();
        drop(watch);
        let nodes = nodes.into_iter().map(|(_, view)| view).collect();
        LockState::judged(key, nodes, self.expiry, waits)
    }

    /// The links on which a caller asks; the keeper's where it is on no runtime, or theirs are not sound.
    pub(crate) fn lanes(&self) -> &[Link] {
        let good = |link: &Link| link.is_sound() || link.is_down();
        if is_on_a_runtime() && self.of_callers.iter().all(good) {
            return &self.of_callers;
        }
        self.of_callers.iter().for_each(Link::pass_by);
        &self.links
    }

    /// Whether an attempt has failed for the links of callers alone: over the keeper's, nodes may well answer.
    pub(crate) fn has_other_lanes(&self) -> bool {
        let up = self.links.iter().filter(|link| !link.is_down()).count();
        up >= majority(self.links.len()) && !self.of_callers.iter().all(Link::is_sound)
    }

    /// N4': whether what this node has answered now, before `quiet`, was surely asked behind every attempt.
    pub(crate) fn is_in_order(&self, node: usize, quiet: Moment) -> bool {
        let link = self.of_callers.get(node);
        self.clock.now() >= quiet || link.is_none_or(|link| self.keeps_order(link))
    }

    /// Whether nothing of what may still act has gone past this link of callers.
    fn keeps_order(&self, link: &Link) -> bool {
        let span = self.timing.node_timeout * (PATIENCE + 2) * 2;
        self.clock.now().since(link.in_order_since()) > span
    }

    /// N4': from here on nothing of an attempt that has ended now acts any more, on whichever connection it was sent.
    pub(crate) fn quiet_after(&self, ended: Moment) -> Moment {
        // What waited to be sent has one timeout more, and the estimate of a node's clock its error.
        ended + self.timing.node_timeout * (PATIENCE + 2)
    }

    /// Whose votes count together, as far as is known now. A round takes it once, when it begins.
    pub(crate) fn members(&self) -> Arc<Members> {
        self.members.borrow().clone()
    }

    /// The same; waits for the first answers of the nodes, for as long as those may take.
    pub(super) async fn known_members(&self) -> Arc<Members> {
        if !self.members.borrow().known {
            let mut members = self.members.subscribe();
            let known = members.wait_for(|members| members.known);
            let _ = self
                .clock
                .timeout(self.timing.node_timeout * 2, known)
                .await;
        }
        self.members()
    }

    /// Queues operations that vote for every node, each its own.
    pub(crate) fn send_each(&self, ops: impl Fn(usize) -> Vec<Op>) -> FuturesUnordered<Sent> {
        let members = self.members();
        (0..self.links.len())
            .map(|node| self.send(node, &ops(node), Some(members.clone())))
            .collect()
    }

    /// As [`Cluster::send_to_all`], and counts as votes, also what only reads.
    pub(crate) fn ask_members(&self, ops: &[Op]) -> FuturesUnordered<Sent> {
        self.send_each(|_| ops.to_vec())
    }

    /// The largest token this client has seen.
    pub(crate) fn seen(&self) -> Token {
        Token(self.floor.load(Ordering::SeqCst))
    }

    /// Why this node's vote does not count.
    pub(crate) fn no_vote(&self, node: usize) -> NodeError {
        let nothing = || NodeError::Unadmitted { left: None };
        let said = |link: &Link| link.no_vote().unwrap_or_else(|| link.unadmitted());
        self.links.get(node).map_or_else(nothing, said)
    }

    /// Queues the same operations for every node, now and in order, in calls of at most 250, or more extensions where the node takes them.
    pub(crate) fn send_to_all(&self, ops: &[Op]) -> FuturesUnordered<Sent> {
        let members = ops.iter().any(rules::votes).then(|| self.members());
        (0..self.links.len())
            .map(|node| self.send(node, ops, members.clone()))
            .collect()
    }

    /// How many extensions every node takes in one call now.
    pub(crate) fn most_extensions(&self) -> usize {
        let most = self.links.iter().map(Link::most_extensions).min();
        most.unwrap_or(MOST_OPS)
    }

    /// Queues operations for one node; no answer counts as a vote.
    pub(crate) fn send_to(&self, node: usize, ops: &[Op]) -> Sent {
        self.send(node, ops, None)
    }

    fn send(&self, node: usize, ops: &[Op], members: Option<Arc<Members>>) -> Sent {
        let parts: Vec<_> = match self.links.get(node) {
            Some(link) => ops
                .chunks(link.most_of(ops))
                .map(|part| link.ask(part.to_vec()))
                .collect(),
            None => Vec::new(),
        };
        Box::pin(async move {
            let mut answers = Vec::new();
            for part in parts {
                match (part.await, &members) {
                    (Ok(reply), Some(members)) => answers.extend(members.votes_of(node, reply)),
                    (Ok(reply), None) => answers.extend(reply.answers),
                    (Err(trouble), _) => return (node, Err(trouble)),
                }
            }
            (node, Ok(answers))
        })
    }

    /// The node that keeps a lock's queue. It is asked first after a split vote. While waiters queue it is told of a
    /// release last, so that the waiter it calls finds a majority free. The same for every client (FNV-1a).
    pub(crate) fn primary(&self, key: &str) -> usize {
        let nodes = self.links.len().max(1) as u64;
        usize::try_from(fnv1a(key.bytes()) % nodes).unwrap_or(0)
    }

    /// What gives a lease back. Its record is kept as the lease says, else as its key does.
    pub(crate) fn release_of(&self, lease: &LeaseView) -> Op {
        let kept = lease.kept();
        let kept = kept.unwrap_or_else(|| self.timing.retention_of(lease.key()));
        self.release(lease.key(), lease.owner(), lease.kind(), kept)
    }

    /// What undoes an attempt.
    pub(crate) fn release_op(&self, key: &str, owner: &str, kind: Kind) -> Op {
        self.release(key, owner, kind, self.timing.retention_of(key))
    }

    fn release(&self, key: &str, owner: &str, kind: Kind, retention: Duration) -> Op {
        Op::Release {
            key: key.to_owned(),
            owner: owner.to_owned(),
            kind,
            marked: self.timing.marked(),
            retention,
        }
    }

    /// As [`Cluster::send_to`], behind what callers have asked of the node; what the end of their runtime has ended is over.
    pub(crate) fn send_behind(&self, node: usize, ops: &[Op]) -> Sent {
        let good = |link: &&Link| link.is_at_work() && link.is_sound() && self.keeps_order(link);
        let behind = self.of_callers.get(node).filter(good);
        let link = behind.or_else(|| self.links.get(node));
        let sent = link.map(|link| link.enqueue(ops.to_vec()));
        let (clock, timeout) = (self.clock.clone(), self.timing.node_timeout);
        Box::pin(async move {
            let Some(sent) = sent else {
                return (node, Ok(Vec::new()));
            };
            // The runtime of callers may stand still.
            let answer = clock.timeout(timeout * LONGEST_CALL, sent).await;
            (node, answer.unwrap_or(Err(NodeError::Timeout(timeout))))
        })
    }

    /// As [`Cluster::send_behind`], for every node.
    pub(crate) fn send_behind_all(&self, ops: &[Op]) -> FuturesUnordered<Sent> {
        (0..self.links.len())
            .map(|node| self.send_behind(node, ops))
            .collect()
    }

    /// Tells all nodes, now and in order; then repeats it to those that did not answer, until a ttl has passed: by
    /// then what stands there has expired. The node `last` is told when it completes a majority, or when no majority
    /// can be told. Its answer is not waited for when a majority knows without it.
    ///
    /// N4': before `quiet` it goes where the attempt went that it ends, and what is repeated waits until then.
    pub(crate) fn tell_until_known(
        &self,
        ops: Vec<Op>,
        told: tokio::sync::watch::Sender<Progress>,
        last: Option<usize>,
        quiet: Moment,
    ) -> impl Future<Output = ()> + Send + 'static {
        let behind = self.clock.now() < quiet;
        let tell = move |cluster: &Self, node, ops: &[Op]| match behind {
            true => cluster.send_behind(node, ops),
            false => cluster.send_to(node, ops),
        };
        let sent: FuturesUnordered<Sent> = (0..self.links.len())
            .filter(|node| Some(*node) != last)
            .map(|node| tell(self, node, &ops))
            .collect();
        let cluster = self.clone();
        async move {
            let tell = |node| tell(&cluster, node, &ops);
            let missing = cluster.hear(sent, &told, (last, quiet), tell).await;
            cluster.repeat(missing, ops.clone(), told, quiet).await;
        }
    }

    /// The nodes that do not answer, of those that are told once.
    async fn hear(
        &self,
        mut sent: FuturesUnordered<Sent>,
        told: &tokio::sync::watch::Sender<Progress>,
        (mut last, quiet): (Option<usize>, Moment),
        tell: impl Fn(usize) -> Sent,
    ) -> Vec<usize> {
        let (q, in_order) = (majority(self.links.len()), last.is_some());
        let mut missing = Vec::new();
        loop {
            let enough = told.borrow().nodes + 1 >= q;
            if let Some(node) = last.take_if(|_| enough || sent.is_empty()) {
                sent.push(tell(node));
            }
            let Some((node, result)) = sent.next().await else {
                break;
            };
            if result.is_ok() {
                told.send_modify(|told| told.nodes += 1);
            }
            if result.is_err() || !self.is_in_order(node, quiet) {
                missing.push(node);
            }
            let known = told.borrow().nodes >= q;
            if in_order && known && sent.len() <= 1 {
                told.send_modify(|told| told.asked = true);
            }
        }
        told.send_modify(|told| told.asked = true);
        missing
    }

    /// Tells it again to those that did not answer, until they do or a ttl has passed.
    pub(crate) async fn repeat(
        &self,
        mut missing: Vec<usize>,
        ops: Vec<Op>,
        told: tokio::sync::watch::Sender<Progress>,
        quiet: Moment,
    ) {
        let Some(_repeat) = self.repeats.begin() else {
            // Others watch what was not told for a ttl.
            return;
        };
        let until = self.clock.now() + self.timing.max_ttl;
        let mut backoff = Backoff::new(self.timing.node_timeout, Duration::from_secs(1));
        while !missing.is_empty() && self.clock.now() < until {
            let pause = backoff.next(&self.chance);
            let again = |node| self.tell_when_up(node, &ops, pause, (quiet, until));
            let sent = missing.into_iter().map(again).collect();
            missing = self.hear(sent, &told, (None, quiet), again).await;
        }
    }

    /// Waits for a node that is down instead of asking again and again: a busy process has a great many releases to
    /// tell it, and all of them together must not keep the keeper from its work.
    fn tell_when_up(
        &self,
        node: usize,
        ops: &[Op],
        pause: Duration,
        (quiet, until): (Moment, Moment),
    ) -> Sent {
        let (cluster, ops) = (self.clone(), ops.to_vec());
        Box::pin(async move {
            if let Some(link) = cluster.links.get(node) {
                let _ = cluster.clock.timeout_at(until, link.up()).await;
            }
            // After the waiting: those that wait together must not all tell it at once.
            let at = (cluster.clock.now() + pause).max(quiet);
            cluster.clock.sleep_until(at).await;
            cluster.send_to(node, &ops).await
        })
    }
}

// === impl Repeats ===

impl Repeats {
    /// A place for one more, unless there are too many.
    pub(crate) fn begin(self: &Arc<Self>) -> Option<Repeat> {
        let repeat = Repeat(self.clone());
        let before = self.0.fetch_add(1, Ordering::SeqCst);
        (before < MOST_REPEATS).then_some(repeat)
    }
}

impl Drop for Repeat {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.none.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_again_and_again_is_bounded() {
        let repeats = Arc::new(Repeats::default());
        let mut kept: Vec<_> = (0..MOST_REPEATS).filter_map(|_| repeats.begin()).collect();
        assert_eq!(kept.len(), MOST_REPEATS);
        assert!(repeats.begin().is_none());
        kept.pop();
        assert!(repeats.begin().is_some());
    }
}
