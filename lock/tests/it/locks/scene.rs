//! Clients over the nodes of a stage, and the look at every lease that one of them gets.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use watchkeeper_lock::{
    Locks,
    chance::Chance,
    clock::{Clock, Moment},
    lease::{Lease, LeaseView, Loss},
    lock::{LockBuilder, LockError, Timing},
    node::{Answer, Call, Expiry, Kind, Node, Op, Take, Ticket, Token, View},
    spawn::Spawn,
};

use super::{
    MAX_TTL, NAME, PATIENCE, Stage,
    stages::Faults,
    wire::{Signs, Wire},
};

/// The nodes, how their clients go about time, and what these have held.
#[derive(Clone)]
pub(crate) struct Scene {
    stage: Arc<dyn Stage>,
    pub(crate) expiry: Expiry,
    pub(crate) time: Time,
    held: Arc<Mutex<Vec<LeaseView>>>,
    /// Whether what must never be was seen.
    broken: Arc<AtomicBool>,
    clients: Arc<AtomicU64>,
    /// What the test itself looks through.
    eyes: Arc<Vec<Arc<dyn Node>>>,
}

/// How time passes.
#[derive(Clone)]
pub(crate) struct Time {
    pub(crate) clock: Clock,
    /// For leases that must end during a test.
    pub(crate) ttl: Duration,
    pub(crate) node_timeout: Duration,
    /// What may come on top of a promised time: round trips, timers, a busy machine.
    pub(crate) slack: Duration,
    /// The keepers are tasks of the test: in paused time there are no threads.
    pub(crate) here: bool,
}

/// A process with locks of its own.
pub(crate) struct Client {
    pub(crate) locks: Locks,
    signs: Signs,
    scene: Scene,
}

// === impl Time ===

impl Time {
    /// The machine's.
    pub(crate) fn real() -> Self {
        Self {
            clock: Clock::system(),
            ttl: Duration::from_millis(500),
            node_timeout: Duration::from_millis(100),
            slack: Duration::from_millis(1_000),
            here: false,
        }
    }

    /// Whether a busy machine may have been the reason, and the case is worth another round.
    pub(crate) fn may_stall(&self, rounds: usize) -> bool {
        !self.here && rounds < 8
    }
}

// === impl Scene ===

impl Scene {
    pub(crate) fn new(stage: Box<dyn Stage>, time: Time) -> Self {
        let eyes = (0..stage.count()).map(|n| stage.connect(n)).collect();
        Self {
            stage: stage.into(),
            expiry: Expiry::Server,
            time,
            held: Arc::default(),
            broken: Arc::default(),
            clients: Arc::default(),
            eyes: Arc::new(eyes),
        }
    }

    /// The same with another mode.
    pub(crate) fn expiring(mut self, expiry: Expiry) -> Self {
        self.expiry = expiry;
        self
    }

    /// The same with times that are so much longer.
    #[allow(dead_code, reason = "other suites use it")]
    pub(crate) fn slower(mut self, factor: u32) -> Self {
        self.time.ttl *= factor;
        self.time.node_timeout *= factor;
        self.time.slack *= factor;
        self
    }

    /// What says, also after the scene is over, whether that was seen which no slow machine can be the reason of: two holders,
    /// a token that does not rise, an update that is lost.
    #[allow(dead_code, reason = "other suites use it")]
    pub(crate) fn broken(&self) -> Arc<AtomicBool> {
        self.broken.clone()
    }

    /// What must hold however slow the machine is.
    pub(crate) fn never_but(&self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.broken.store(true, Ordering::SeqCst);
            panic!("{}", otherwise());
        }
    }

    /// With calls that may take longer, for cases in which no client dies: nothing is decided by a busy machine.
    pub(crate) fn patient(mut self) -> Self {
        self.time.node_timeout *= 20;
        self
    }

    /// How much longer than asked a holder may be shown: what the store does not know of its time.
    pub(crate) fn unknown_time(&self) -> Duration {
        let first = self.eyes.first();
        first.map_or(Duration::ZERO, |node| {
            watchkeeper_lock::conformance::unknown_time(&**node)
        })
    }

    pub(crate) fn nodes(&self) -> usize {
        self.stage.count()
    }

    pub(crate) fn is_observed(&self) -> bool {
        self.expiry == Expiry::Observed
    }

    pub(crate) fn faults(&self) -> &dyn Faults {
        self.stage.faults().expect("a stage for faults")
    }

    /// Another process.
    pub(crate) fn client(&self) -> Client {
        self.client_with(Signs::new())
    }

    /// One that listens to nothing before [`Client::hears`].
    pub(crate) fn deaf_client(&self) -> Client {
        let signs = Signs::new();
        signs.hears.send_replace(false);
        self.client_with(signs)
    }

    fn client_with(&self, signs: Signs) -> Client {
        let wire = |n| Arc::new(Wire::new(self.stage.connect(n), &signs)) as Arc<dyn Node>;
        let timing = Timing {
            ttl: self.time.ttl,
            max_ttl: MAX_TTL,
            node_timeout: self.time.node_timeout,
            ..Timing::default()
        };
        let mut locks = Locks::over((0..self.nodes()).map(wire).collect())
            .timing(timing)
            .expiry(self.expiry)
            .clock(self.time.clock.clone())
            .on_unstoppable(|_| {});
        if self.time.here {
            // Paused time and a seed: the same program sees the same locks.
            let number = self.clients.fetch_add(1, Ordering::SeqCst);
            let chance = Chance::seeded(number);
            locks = locks.keeper_here(Spawn::system()).chance(chance);
        }
        Client {
            locks: locks.start().unwrap(),
            signs,
            scene: self.clone(),
        }
    }

    pub(crate) fn now(&self) -> Moment {
        self.time.clock.now()
    }

    /// Waits for `work` with patience.
    pub(crate) async fn soon<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        let waited = self.time.clock.timeout(PATIENCE, work).await;
        waited.unwrap_or_else(|_| panic!("waited in vain: {what}"))
    }

    /// Asks again and again; stores give no other event.
    pub(crate) async fn until<F: Future<Output = bool>>(&self, what: &str, done: impl Fn() -> F) {
        let poll = async {
            while !done().await {
                self.time.clock.sleep(Duration::from_millis(5)).await;
            }
        };
        self.soon(what, poll).await;
    }

    /// What one node shows of a lock.
    pub(crate) async fn view(&self, node: usize, key: &str) -> View {
        let key = key.to_owned();
        match self.ask(node, Op::Read { key }).await {
            Answer::View(view) => view,
            other => panic!("not a view: {other:?}"),
        }
    }

    /// What all nodes show.
    pub(crate) async fn views(&self, key: &str) -> Vec<View> {
        let mut views = Vec::new();
        for node in 0..self.nodes() {
            views.push(self.view(node, key).await);
        }
        views
    }

    /// Waits until no key and no unreleased record is left, and looks that the queue is empty.
    pub(crate) async fn nothing_is_left(&self, key: &str) {
        let free = |view: &View| {
            view.holder.is_none() && (view.owner.is_none() || view.released || !view.named)
        };
        self.until("nothing is left", || async {
            self.views(key).await.iter().all(free)
        })
        .await;
        for node in 0..self.nodes() {
            self.until("nobody stands in line", || async {
                self.queue_is_empty(node, key).await
            })
            .await;
        }
    }

    /// Whether no other stands in the queue on a node: a polite stranger is let in, or sees that none is before it.
    async fn queue_is_empty(&self, node: usize, key: &str) -> bool {
        let owner = Chance::system().id();
        let attempt = Op::Acquire {
            key: key.to_owned(),
            owner: owner.clone(),
            kind: Kind::Lock,
            ttl: self.time.ttl,
            floor: Token(0),
            take: Take::Server,
            clamp: MAX_TTL,
            ticket: Some(Ticket {
                id: owner.clone(),
                life: self.time.ttl,
                polite: true,
            }),
            waits: Duration::ZERO,
        };
        let is_empty = match self.ask(node, attempt).await {
            Answer::Granted { .. } => true,
            Answer::Refused(view) => view.ahead == Some(0),
            other => panic!("not an answer to an attempt: {other:?}"),
        };
        let leave = Op::Leave {
            key: key.to_owned(),
            ticket: owner.clone(),
        };
        self.ask(node, leave).await;
        let release = Op::Release {
            key: key.to_owned(),
            owner,
            kind: Kind::Lock,
            marked: self.time.ttl,
            retention: self.time.ttl,
        };
        self.ask(node, release).await;
        is_empty
    }

    async fn ask(&self, node: usize, op: Op) -> Answer {
        let reply = self.eyes[node].call(call(op)).await.unwrap();
        reply.answers.into_iter().next().unwrap()
    }

    /// Every lease comes here: no other may be held, and the token is the largest.
    pub(crate) fn look_at(&self, lease: &LeaseView) {
        let mut held = self.held.lock().unwrap();
        for other in held.iter().filter(|l| l.key() == lease.key()) {
            self.never_but(!other.is_held(), || {
                format!("two are held: {other:?} and {lease:?}")
            });
            self.never_but(other.token() < lease.token(), || {
                format!("a token that does not rise: {other:?} {lease:?}")
            });
        }
        held.push(lease.clone());
    }
}

fn call(op: Op) -> Call {
    Call {
        not_after: None,
        ops: vec![op],
    }
}

// === impl Client ===

impl Client {
    pub(crate) fn lock(&self) -> LockBuilder {
        self.locks.lock(NAME)
    }

    /// Takes the lock, and looks that no other client holds it.
    pub(crate) async fn take(&self, lock: LockBuilder) -> Result<Lease, LockError> {
        let lease = lock.acquire().await?;
        // A short one may have ended on its way to us, on a machine that stood still.
        let stalled = !self.scene.time.here && lease.loss() == Some(Loss::Expired);
        assert!(lease.is_held() || stalled, "{:?}", lease.loss());
        self.scene.look_at(&lease);
        Ok(lease)
    }

    /// Takes the lock with patience.
    pub(crate) async fn hold(&self) -> Lease {
        self.hold_for(self.scene.time.ttl).await
    }

    pub(crate) async fn hold_for(&self, ttl: Duration) -> Lease {
        let lease = self.take(self.lock().ttl(ttl).wait(PATIENCE)).await;
        lease.unwrap_or_else(|why| panic!("not had: {why}"))
    }

    /// Tries once. Nodes that a busy machine keeps from answering are asked again.
    pub(crate) async fn attempt(&self) -> Result<Lease, LockError> {
        loop {
            match self.take(self.lock()).await {
                Err(LockError::NoQuorum(_) | LockError::TooSlow) => {
                    // One that is away is refused at once, and would be asked for by all that the machine has.
                    self.scene.time.clock.sleep(Duration::from_millis(5)).await;
                }
                other => return other,
            }
        }
    }

    /// The process is gone, or its network.
    pub(crate) fn dies(&self) {
        self.signs.dead.send_replace(true);
    }

    /// Waits until a node has told it its place in a line.
    pub(crate) async fn stands_in_line(&self) {
        let mut queued = self.signs.queued.subscribe();
        let told = queued.wait_for(|queued| *queued);
        self.scene.soon("a place in line", told).await.unwrap();
    }

    /// From now on it listens.
    pub(crate) fn hears(&self) {
        self.signs.hears.send_replace(true);
    }

    /// Waits until the lock is had by this many nodes more than it needs.
    pub(crate) async fn margin(&self, lease: &LeaseView, margin: usize) {
        let margin = isize::try_from(margin).unwrap();
        let scene = &self.scene;
        scene
            .until("the margin", || async { lease.margin() == margin })
            .await;
    }
}
