//! All nodes of a lock service, and one attempt to acquire on them.
//!
//! # Invariants (held by the simulation in `src/sim`, each with a mutant that it must catch)
//! - R3 The deadline counts from before this attempt's first byte.                 (deadline_counts_from_before_the_first_byte)
//! - R4 Votes are summed within one round; a retry starts from zero.               (votes_of_two_rounds_are_never_summed)
//! - R5 A lost attempt is undone on all nodes at once, also where no answer came.  (a_lost_attempt_leaves_nothing)
//! - T2 Differing grants are confirmed by q nodes before a token is handed out.    (tokens_rise_although_nodes_differ)

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{Future, StreamExt, stream::FuturesUnordered};

use super::round::Round;
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
    node::{Answer, Expiry, Kind, NodeError, Op, Record, Take, Ticket, Token, View, tag::tagged},
    quorum::{
        Claim, Heard,
        link::{Link, MOST_OPS},
        tally::majority,
    },
    settings::Timing,
    spawn::Spawn,
};

/// All nodes of a lock service, and what every attempt needs. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Cluster(Arc<Parts>);

/// What a cluster is made of.
pub(crate) struct Parts {
    pub(crate) links: Vec<Link>,
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
    pub(crate) heard: Heard,
    /// What the owner values of this process end with.
    pub(crate) tag: Option<String>,
    /// Releases under way, and acquisitions that may end in one.
    pub(crate) releasing: tokio::sync::watch::Sender<usize>,
    #[cfg(any(test, feature = "testing"))]
    pub(crate) mutant: super::mutant::Mutant,
}

/// How an attempt at a single named lock goes about asking the nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct AttemptMode {
    /// Ask one node first, and the others only when it granted: those who contend for a lock then split no votes (R6).
    pub(crate) one_first: bool,
    /// A place in the lock's line, which its primary keeps.
    pub(crate) ticket: Option<Ticket>,
}

/// How an attempt at one lock ended, and what it showed.
#[derive(Debug)]
pub(crate) struct Tried {
    pub(crate) attempt: Attempt,
    /// What the nodes that were asked have shown; those that granted show a free lock.
    pub(crate) seen: LockState,
    pub(crate) position: QueuePosition,
}

/// What an attempt has shown of the lock's line.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueuePosition {
    /// How many are before us; `None` without a place in it.
    pub(crate) ahead: Option<u32>,
    /// The place went with the grant of the node that keeps the line.
    pub(crate) left: bool,
    /// The attempt: when it is undone, that is announced, too.
    pub(crate) owner: String,
}

/// How an attempt at one lock ended.
#[derive(Debug)]
pub(crate) enum Attempt {
    /// Held, until then.
    Won(Win),
    /// Somebody else holds it.
    Held {
        by: Option<String>,
        for_at_most: Option<Duration>,
    },
    /// Too few nodes answered.
    NoQuorum(Vec<(String, NodeError)>),
    /// Won, but so late that too little of the lease was left.
    TooSlow,
}

/// A won attempt.
#[derive(Debug)]
pub(crate) struct Win {
    pub(crate) owner: String,
    pub(crate) token: Token,
    pub(crate) valid_until: Moment,
    pub(crate) kept: usize,
    pub(crate) record: Record,
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

/// Whether nobody waits for an attempt any more.
pub(crate) type Gone<'a> = &'a (dyn Fn() -> bool + Send + Sync);

/// An answer on its way.
pub(crate) type Sent =
    Pin<Box<dyn Future<Output = (usize, Result<Vec<Answer>, NodeError>)> + Send>>;

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

    /// Nodes beyond the majority, when `kept` of them hold the lease (R10).
    pub(crate) fn margin(&self, kept: usize) -> isize {
        let signed = |n: usize| isize::try_from(n).unwrap_or(isize::MAX);
        signed(kept) - signed(majority(self.links.len()))
    }

    pub(crate) fn has_seen(&self, token: Token) {
        self.floor.fetch_max(token.0, Ordering::SeqCst);
    }

    pub(crate) fn watch(&self) -> MutexGuard<'_, Watch> {
        // The watch is changed by short, complete steps.
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of what a node has just shown.
    pub(crate) fn saw(&self, node: usize, view: &View) {
        self.has_seen(view.token);
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
        let now = self.clock.now();
        watch::take(self.expiry_of(kind), || {
            self.watch().expected(node, key, now, &self.timing)
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

    /// Queues operations for every node, each its own.
    pub(crate) fn send_each(&self, ops: impl Fn(usize) -> Vec<Op>) -> FuturesUnordered<Sent> {
        (0..self.links.len())
            .map(|node| self.send_to(node, &ops(node)))
            .collect()
    }

    /// The largest token this client has seen.
    pub(crate) fn seen(&self) -> Token {
        Token(self.floor.load(Ordering::SeqCst))
    }

    /// Why this node's vote does not count, when it says so itself.
    pub(super) fn no_vote(&self, node: usize) -> NodeError {
        let said = self.links.get(node).and_then(Link::no_vote);
        said.unwrap_or(NodeError::Unadmitted { left: None })
    }

    /// Queues the same operations for every node, now and in order, in calls of at most 250.
    pub(crate) fn send_to_all(&self, ops: &[Op]) -> FuturesUnordered<Sent> {
        (0..self.links.len())
            .map(|node| self.send_to(node, ops))
            .collect()
    }

    /// Queues operations for one node.
    pub(crate) fn send_to(&self, node: usize, ops: &[Op]) -> Sent {
        let parts: Vec<_> = match self.links.get(node) {
            Some(link) => ops
                .chunks(MOST_OPS)
                .map(|part| link.send(part.to_vec()))
                .collect(),
            None => Vec::new(),
        };
        Box::pin(async move {
            let mut answers = Vec::new();
            for part in parts {
                match part.await {
                    Ok(some) => answers.extend(some),
                    Err(trouble) => return (node, Err(trouble)),
                }
            }
            (node, Ok(answers))
        })
    }

    /// One attempt at every claim under one owner value; all nodes in parallel, unless the way is another. Once its caller
    /// is `gone` no further node is asked.
    pub(crate) async fn attempt(
        &self,
        claims: &[Claim],
        mode: &AttemptMode,
        gone: Gone<'_>,
    ) -> Vec<Tried> {
        // Read before the first byte leaves: the nodes count their ttl from later on (R3).
        let start = self.clock.now();
        let owner = self.new_owner(claims);
        let mut round = Round::begin(self, claims, &owner, mode);
        round.collect(gone).await;
        let tokens = round.confirm(start).await;
        #[cfg(any(test, feature = "testing"))]
        let start = if self.mutant.deadline_from_reply {
            self.clock.now()
        } else {
            start
        };

        // The last thing before a lease is handed out: is enough of it left?
        let now = self.clock.now();
        let mut undo = Vec::new();
        let ends = claims
            .iter()
            .zip(tokens)
            .enumerate()
            .map(|(i, (claim, token))| {
                let ttl = claim.ttl_or(&self.timing);
                let valid_until = self.timing.valid_until(start, ttl);
                match token {
                    Some(token) if now + self.timing.min_validity(ttl) <= valid_until => {
                        self.has_seen(token);
                        let kept = round.tallies[i].granted();
                        let record = round.record(i);
                        return round.tried(
                            i,
                            Attempt::Won(Win {
                                owner: owner.clone(),
                                token,
                                valid_until,
                                kept,
                                record,
                            }),
                        );
                    }
                    // Whoever was asked has refused: there is nothing to undo anywhere. An undo would call the head of the
                    // line, which would try and be refused, again and again.
                    _ if round.is_refused_by_the_first() || round.is_refused_by_all(i) => {}
                    _ => undo.push(self.release_op(&claim.key, &owner, claim.kind)),
                }
                let attempt = if token.is_some() {
                    Attempt::TooSlow
                } else {
                    round.refusal(i)
                };
                round.tried(i, attempt)
            });
        let ends: Vec<_> = ends.collect();
        #[cfg(any(test, feature = "testing"))]
        self.mutant.remember(claims, &owner, &round.tallies);
        self.undo(undo);
        ends
    }

    /// The node that keeps a lock's line, is asked first after a split, and with others in line is told of a release last:
    /// whoever is called there finds a majority free. The same for every client (FNV-1a).
    pub(crate) fn primary(&self, key: &str) -> usize {
        let nodes = self.links.len().max(1) as u64;
        usize::try_from(fnv1a(key.bytes()) % nodes).unwrap_or(0)
    }

    /// The node to ask first: in the key's order the first that is up, and looks takable if any does.
    pub(super) fn first(&self, key: &str, mode: &AttemptMode) -> usize {
        let (nodes, primary) = (self.links.len(), self.primary(key));
        let up = |node: &usize| {
            let link = self.links.get(*node);
            link.is_some_and(|link| !link.is_down() && link.no_vote().is_none())
        };
        let order = || (0..nodes).map(|n| (primary + n) % nodes).filter(up);
        // Whoever queues does so where all others do.
        let queues = mode.ticket.as_ref().is_some_and(|ticket| ticket.polite);
        let takable = if queues {
            None
        } else {
            let now = self.clock.now();
            let watch = self.watch();
            order().find(|node| watch.looks_takable(*node, key, now, &self.timing))
        };
        takable.or_else(|| order().next()).unwrap_or(primary)
    }

    fn new_owner(&self, claims: &[Claim]) -> String {
        #[cfg(any(test, feature = "testing"))]
        if let Some(owner) = self.mutant.last_owner(claims) {
            return owner;
        }
        let _ = claims;
        tagged(self.chance.id(), self.tag.as_deref())
    }

    pub(crate) fn release_op(&self, key: &str, owner: &str, kind: Kind) -> Op {
        let retention = self.timing.retention_of(key);
        let (key, owner) = (key.to_owned(), owner.to_owned());
        Op::Release {
            key,
            owner,
            kind,
            retention,
        }
    }

    /// Undoes a lost attempt on all nodes, queued behind its acquires; nobody waits for it.
    fn undo(&self, ops: Vec<Op>) {
        #[cfg(any(test, feature = "testing"))]
        if self.mutant.sum_rounds {
            return;
        }
        if ops.is_empty() {
            return;
        }
        if self.expiry == Expiry::Observed {
            let mut watch = self.watch();
            for op in &ops {
                if let Op::Release { key, owner, .. } = op {
                    // Believed never again from here on (O2).
                    watch.is_over(key, owner);
                }
            }
        }
        let (told, mut progress) = tokio::sync::watch::channel(Progress::default());
        let work = self.tell_until_known(ops, told, None);
        self.spawn.spawn(work);
        // Nobody waits for it but whoever ends the process: what a lost attempt left would be watched for a ttl by others.
        self.releasing.send_modify(|n| *n += 1);
        let cluster = self.clone();
        self.spawn.spawn(async move {
            let limit = cluster.clock.now() + cluster.timing.node_timeout * 2;
            let asked = progress.wait_for(|told| told.asked);
            let _ = cluster.clock.timeout_at(limit, asked).await;
            cluster.releasing.send_modify(|n| *n -= 1);
        });
    }

    /// Tells all nodes, now and in order; then repeats it to those that did not answer, until a ttl has passed: by
    /// then whatever stands there has expired. The node `last` is told when a majority knows with it, or cannot, and nobody
    /// waits for it when a majority knows without it.
    pub(crate) fn tell_until_known(
        &self,
        ops: Vec<Op>,
        told: tokio::sync::watch::Sender<Progress>,
        mut last: Option<usize>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let mut sent: FuturesUnordered<Sent> = (0..self.links.len())
            .filter(|node| Some(*node) != last)
            .map(|node| self.send_to(node, &ops))
            .collect();
        let cluster = self.clone();
        let until = self.clock.now() + self.timing.max_ttl;
        let in_order = last.is_some();
        async move {
            let mut backoff = Backoff::new(cluster.timing.node_timeout, Duration::from_secs(1));
            loop {
                let mut missing = Vec::new();
                loop {
                    let enough = told.borrow().nodes + 1 >= majority(cluster.links.len());
                    if let Some(node) = last.take_if(|_| enough || sent.is_empty()) {
                        sent.push(cluster.send_to(node, &ops));
                    }
                    let Some((node, result)) = sent.next().await else {
                        break;
                    };
                    match result {
                        Ok(_) => told.send_modify(|told| told.nodes += 1),
                        Err(_) => missing.push(node),
                    }
                    let known = told.borrow().nodes >= majority(cluster.links.len());
                    if in_order && known && sent.len() <= 1 {
                        told.send_modify(|told| told.asked = true);
                    }
                }
                told.send_modify(|told| told.asked = true);
                if missing.is_empty() || cluster.clock.now() >= until {
                    return;
                }
                let pause = backoff.next(&cluster.chance);
                sent = missing
                    .into_iter()
                    .map(|node| cluster.tell_when_up(node, &ops, pause, until))
                    .collect();
            }
        }
    }

    /// Waits for a node that is down instead of asking again and again: a busy process has a great many releases to
    /// tell it, and all of them together must not keep the keeper from its work.
    fn tell_when_up(&self, node: usize, ops: &[Op], pause: Duration, until: Moment) -> Sent {
        let (cluster, ops) = (self.clone(), ops.to_vec());
        Box::pin(async move {
            if let Some(link) = cluster.links.get(node) {
                let _ = cluster.clock.timeout_at(until, link.up()).await;
            }
            // After the waiting: those that wait together must not all tell it at once.
            cluster.clock.sleep(pause).await;
            cluster.send_to(node, &ops).await
        })
    }
}
