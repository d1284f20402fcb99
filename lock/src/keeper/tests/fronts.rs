//! What runs where the caller is, and what of it is left to the keeper.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::Thread,
    time::Duration,
};

use tokio::{
    runtime::Runtime,
    sync::{mpsc, oneshot},
};

use crate::{
    acquire::Locks,
    chance::Chance,
    clock::Clock,
    node::{
        Announcements, Call, Kind, Node, NodeError, Op, Reply, Take, Token, memory::MemoryNode,
    },
    quorum::Claim,
    settings::Timing,
    sim_clock::SimTime,
    spawn::Spawn,
};

const MS: Duration = Duration::from_millis(1);

/// A node with a connection for callers.
struct Doubled(MemoryNode);

#[async_trait::async_trait]
impl Node for Doubled {
    fn name(&self) -> &str {
        self.0.name()
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        self.0.call(call).await
    }

    fn another(&self) -> Option<Arc<dyn Node>> {
        Some(Arc::new(Self(self.0.clone())))
    }

    async fn announcements(&self) -> Option<Announcements> {
        self.0.announcements().await
    }
}

/// Over which connection what was asked of one node.
type Seen = Arc<Mutex<Vec<(u64, &'static str)>>>;

struct Scene {
    time: SimTime,
    nodes: Vec<MemoryNode>,
    locks: Locks,
    seen: Seen,
}

impl Scene {
    fn new() -> Self {
        let time = SimTime::new();
        let nodes: Vec<_> = (0..3)
            .map(|n| MemoryNode::new(format!("n{n}"), time.clock()))
            .collect();
        let seen = Seen::default();
        let told = Arc::clone(&seen);
        nodes[0].observe(move |executed| {
            for op in &executed.call.ops {
                let what = match op {
                    Op::Acquire { .. } => "acquire",
                    Op::Extend { .. } => "extend",
                    Op::Release { .. } => "release",
                    _ => continue,
                };
                told.lock().unwrap().push((executed.link, what));
            }
        });
        let lines = nodes
            .iter()
            .map(|n| Arc::new(Doubled(n.clone())) as Arc<dyn Node>);
        let locks = Locks::over(lines.collect())
            .clock(time.clock())
            .chance(Chance::seeded(7))
            .keeper_here(Spawn::system())
            .start()
            .unwrap();
        Self {
            time,
            nodes,
            locks,
            seen,
        }
    }

    /// With nodes whose clocks are known: an attempt is on its way at once.
    async fn ready() -> Self {
        let scene = Self::new();
        scene.locks.look(vec!["a".to_owned()]).await.unwrap();
        scene
    }

    /// From now on requests are under way for a while.
    fn delay(&self) {
        for node in &self.nodes {
            node.faults().delay_requests(MS * 5, MS * 5);
        }
    }

    fn held(&self) -> Vec<usize> {
        let held = |node: &MemoryNode| node.inspect(|state| state.held().count());
        self.nodes.iter().map(held).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_leaves_behind_its_acquire_and_renewals_do_not_wait_for_either() {
    let scene = Scene::new();
    let lock = scene.locks.lock("a").ttl(MS * 2_000);
    let lease = lock.acquire().await.unwrap();
    scene.time.clock().sleep(MS * 1_000).await;
    assert!(lease.is_held());
    assert_eq!(lease.release().await.nodes, 3);
    let seen = scene.seen.lock().unwrap().clone();
    let over = |what: &str| {
        let of = seen.iter().filter(|(_, op)| *op == what);
        Vec::from_iter(of.map(|(link, _)| *link))
    };
    assert_eq!(over("acquire"), over("release"), "{seen:?}");
    let extended = over("extend");
    assert!(
        !extended.is_empty() && !extended.contains(&over("acquire")[0]),
        "{seen:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn what_one_node_has_missed_of_a_release_the_keeper_repeats() {
    let scene = Scene::new();
    let lease = scene.locks.lock("a").acquire().await.unwrap();
    // The acquire has reached all by now.
    scene.time.clock().sleep(MS * 20).await;
    scene.nodes[1]
        .faults()
        .partition(crate::node::memory::Cut::Hang);
    let report = lease.release().await;
    assert_eq!((report.nodes, report.of), (2, 3));
    assert_eq!(scene.held(), [0, 1, 0]);
    scene.nodes[1].faults().heal();
    scene.time.clock().sleep(MS * 2_000).await;
    assert_eq!(scene.held(), [0; 3]);
}

/// What reads much ends with the question: a page that is asked for again and again keeps no lease from being extended.
#[tokio::test(start_paused = true)]
async fn a_list_ends_with_its_caller() {
    let scene = Scene::ready().await;
    let claims = (0..2_600).map(|n| Claim::named(format!("lock/{n}")));
    let _held = scene.locks.claim(claims.collect()).await.unwrap();
    let lists = Arc::new(AtomicUsize::new(0));
    let counted = lists.clone();
    scene.nodes[0].observe(move |executed| {
        let ops = executed.call.ops.iter();
        let some = ops.filter(|op| matches!(op, Op::List { .. })).count();
        counted.fetch_add(some, Ordering::SeqCst);
    });
    let all = scene.locks.list("").await.unwrap();
    let whole = lists.swap(0, Ordering::SeqCst);
    assert!(all.len() >= 2_600 && whole > 4, "{} {whole}", all.len());
    scene.delay();
    let clock = scene.time.clock();
    assert!(clock.timeout(MS * 8, scene.locks.list("")).await.is_err());
    clock.sleep(MS * 500).await;
    // What was under way is not taken back, and nothing follows it.
    let asked = lists.load(Ordering::SeqCst);
    assert!((1..=2).contains(&asked), "{asked} of {whole}");
}

#[tokio::test(start_paused = true)]
async fn a_release_goes_on_without_its_caller() {
    let scene = Scene::ready().await;
    let lease = scene.locks.lock("a").acquire().await.unwrap();
    let view = lease.view().clone();
    scene.delay();
    {
        let mut release = pin!(lease.release());
        let polled = release
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        assert!(!view.is_held(), "nobody believes in what is being released");
    }
    scene.locks.settle().await;
    assert_eq!(scene.held(), [0; 3]);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_its_caller_leaves_is_undone_behind_its_acquire() {
    let scene = Scene::ready().await;
    scene.delay();
    {
        let mut acquire = pin!(scene.locks.lock("a").acquire());
        let polled = acquire
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }
    scene.locks.settle().await;
    scene.time.clock().sleep(MS * 50).await;
    assert_eq!(scene.held(), [0; 3]);
    let seen = scene.seen.lock().unwrap().clone();
    let [(first, "acquire"), (second, "release")] = seen[..] else {
        panic!("{seen:?}")
    };
    assert_eq!(first, second);
}

/// A node whose connection of callers is lost with every acquire, which arrives a while later all the same.
struct Resetting {
    node: MemoryNode,
    clock: Clock,
    resets: bool,
}

#[async_trait::async_trait]
impl Node for Resetting {
    fn name(&self) -> &str {
        self.node.name()
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        let acquires = |op: &Op| matches!(op, Op::Acquire { .. });
        if !self.resets || !call.ops.iter().any(acquires) {
            return self.node.call(call).await;
        }
        let (node, clock) = (self.node.clone(), self.clock.clone());
        drop(Spawn::system().spawn(async move {
            clock.sleep(MS * 20).await;
            let _ = node.call(call).await;
        }));
        Err(NodeError::Unreachable("connection reset".to_owned()))
    }

    fn another(&self) -> Option<Arc<dyn Node>> {
        Some(Arc::new(Self {
            node: self.node.clone(),
            clock: self.clock.clone(),
            resets: true,
        }))
    }

    async fn announcements(&self) -> Option<Announcements> {
        self.node.announcements().await
    }
}

#[tokio::test(start_paused = true)]
async fn n4_a_release_over_another_connection_is_repeated_when_its_acquire_can_act_no_more() {
    let time = SimTime::new();
    let nodes = [0, 1, 2].map(|n| MemoryNode::new(format!("n{n}"), time.clock()));
    let line = |n: usize| -> Arc<dyn Node> {
        let node = nodes[n].clone();
        match n {
            2 => Arc::new(Resetting {
                node,
                clock: time.clock(),
                resets: false,
            }),
            _ => Arc::new(Doubled(node)),
        }
    };
    let locks = Locks::over((0..3).map(line).collect())
        .clock(time.clock())
        .chance(Chance::seeded(7))
        .keeper_here(Spawn::system())
        .start()
        .unwrap();
    locks.look(vec!["a".to_owned()]).await.unwrap();
    let lease = locks.lock("a").acquire().await.unwrap();
    time.clock().sleep(MS * 5).await;
    lease.release().await;
    time.clock().sleep(MS * 20).await;
    let held = || {
        nodes
            .each_ref()
            .map(|n| n.inspect(|state| state.held().count()))
    };
    assert_eq!(held(), [0, 0, 1], "it has come behind its release");
    time.clock().sleep(MS * 1_000).await;
    assert_eq!(held(), [0; 3]);
}

type Asked = (Call, oneshot::Sender<Result<Reply, NodeError>>);

/// A node whose connections live on the runtimes that use them first, as those to a server do.
struct Driven {
    node: MemoryNode,
    line: Mutex<Option<mpsc::UnboundedSender<Asked>>>,
}

impl Driven {
    fn new(node: MemoryNode) -> Self {
        let line = Mutex::default();
        Self { node, line }
    }

    fn line(&self) -> mpsc::UnboundedSender<Asked> {
        let mut line = self.line.lock().unwrap();
        if let Some(line) = line.as_ref().filter(|line| !line.is_closed()) {
            return line.clone();
        }
        let (to, mut calls) = mpsc::unbounded_channel::<Asked>();
        let node = self.node.clone();
        drop(Spawn::system().spawn(async move {
            while let Some((call, reply)) = calls.recv().await {
                let _ = reply.send(node.call(call).await);
            }
        }));
        *line = Some(to.clone());
        to
    }
}

#[async_trait::async_trait]
impl Node for Driven {
    fn name(&self) -> &str {
        self.node.name()
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        let (reply, answer) = oneshot::channel();
        let _ = self.line().send((call, reply));
        let lost = |_| Err(NodeError::Unreachable("connection lost".to_owned()));
        answer.await.unwrap_or_else(lost)
    }

    fn another(&self) -> Option<Arc<dyn Node>> {
        Some(Arc::new(Self::new(self.node.clone())))
    }

    async fn announcements(&self) -> Option<Announcements> {
        None
    }
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

fn driven() -> (Locks, [MemoryNode; 3]) {
    let nodes = [0, 1, 2].map(|n| MemoryNode::new(format!("n{n}"), Clock::system()));
    let lines = nodes
        .each_ref()
        .map(|n| Arc::new(Driven::new(n.clone())) as Arc<dyn Node>);
    let timing = Timing {
        node_timeout: MS * 40,
        ..Timing::default()
    };
    let locks = Locks::over(lines.to_vec()).timing(timing).start().unwrap();
    (locks, nodes)
}

#[test]
fn callers_go_on_without_the_runtime_of_the_first_of_them() {
    for ends in [true, false] {
        let (locks, _) = driven();
        let mut first = Some(runtime());
        let use_it = |runtime: &Runtime, key: &str| {
            runtime.block_on(async {
                let lease = locks.lock(key).acquire().await.unwrap();
                assert_eq!(lease.release().await.nodes, 3, "{key}");
            });
        };
        use_it(first.as_ref().unwrap(), "a");
        if ends {
            first = None;
        }
        let second = runtime();
        for key in ["b", "c", "d"] {
            use_it(&second, key);
        }
        drop(first);
        use_it(&second, "e");
    }
}

#[test]
#[allow(
    clippy::disallowed_methods,
    reason = "the keeper's own thread lives on the system's clock"
)]
fn a_lease_is_released_although_its_runtime_stands_still() {
    let (locks, nodes) = driven();
    let (still, other) = (runtime(), runtime());
    let lease = still.block_on(locks.lock("a").acquire()).unwrap();
    drop(lease);
    let clock = Clock::system();
    let began = clock.now();
    while nodes
        .iter()
        .any(|n| n.inspect(|state| state.held().next().is_some()))
    {
        assert!(clock.now().since(began) < MS * 5_000, "half its ttl");
        other.block_on(clock.sleep(MS * 10));
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Without a runtime.
pub(super) fn alone<T>(work: impl Future<Output = T>) -> T {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut work = pin!(work);
    loop {
        if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
            return done;
        }
        std::thread::park();
    }
}

#[tokio::test(start_paused = true)]
async fn an_attempt_over_which_the_process_was_frozen_is_made_once_more() {
    for (delay, thaws_at) in [(MS * 5, MS * 2), (MS, MS * 2)] {
        let scene = Scene::ready().await;
        for node in &scene.nodes {
            node.faults().delay_requests(delay, delay);
            node.faults().delay_replies(MS * 3, MS * 3);
        }
        let time = scene.time.clone();
        let freeze = async move {
            time.clock().sleep(thaws_at).await;
            time.set_offset(60_000);
        };
        let lock = scene.locks.lock("a");
        let (lease, ()) = tokio::join!(lock.acquire(), freeze);
        // On its way there, or back.
        assert!(lease.unwrap().is_held(), "{delay:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_near_its_end_is_that_of_its_lock_alone() {
    let scene = Scene::ready().await;
    let lease = scene.locks.lock_key("a").acquire().await.unwrap();
    lease.release().await;
    let last = (1 << 53) - 4;
    for node in &scene.nodes {
        let [take, release] = far("a", last);
        let call = Call {
            not_after: None,
            ops: vec![take, release],
        };
        node.call(call).await.unwrap();
    }
    let far = scene.locks.lock_key("a").acquire().await.unwrap();
    assert!(far.token().0 > last, "{}", far.token());
    for key in ["b", "c", "d"] {
        let lease = scene.locks.lock_key(key).acquire().await.unwrap();
        assert!(lease.token().0 < 1_000, "{key}: {}", lease.token());
    }
}

/// What leaves a lock with a number that is hardly to be counted on from.
fn far(key: &str, floor: u64) -> [Op; 2] {
    let (key, owner) = (key.to_owned(), "x".to_owned());
    [
        Op::Acquire {
            key: key.clone(),
            owner: owner.clone(),
            kind: Kind::Lock,
            ttl: MS * 1_000,
            floor: Token(floor),
            take: Take::Server,
            clamp: MS * 1_000,
            ticket: None,
            waits: Duration::ZERO,
        },
        Op::Release {
            key,
            owner,
            kind: Kind::Lock,
            marked: MS * 30_000,
            retention: MS * 30_000,
        },
    ]
}

#[test]
fn a_runtime_without_timers_is_refused_at_the_start() {
    let builder = || tokio::runtime::Builder::new_current_thread();
    let start = || {
        let node = MemoryNode::new("n", Clock::system());
        Locks::over(vec![Arc::new(node)]).start()
    };
    let without = builder().build().unwrap();
    let refused = without.block_on(async { start() }).err().unwrap();
    assert!(refused.to_string().contains("enable_time"), "{refused}");
    let with = builder().enable_time().build().unwrap();
    assert!(with.block_on(async { start() }).is_ok());
    assert!(start().is_ok(), "the keeper's runtime has timers");
}

#[test]
fn callers_without_a_runtime_go_over_the_keepers_links() {
    let (locks, _) = driven();
    let use_it = async |key: &str| {
        let lease = locks.lock(key).acquire().await.unwrap();
        assert_eq!(lease.release().await.nodes, 3, "{key}");
    };
    alone(use_it("a"));
    // Also while those of other callers stand still.
    let runtime = runtime();
    runtime.block_on(use_it("b"));
    alone(use_it("c"));
    runtime.block_on(use_it("d"));
}
