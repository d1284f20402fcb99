//! What the cases share: a server, clients on it, and short ways to say an operation.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use watchkeeper_lock::{
    Locks,
    chance::Chance,
    clock::Clock,
    lock::{Timing, admission::admit_at_once},
    node::{
        Answer, Call, Cursor, Expiry, GuardSettings, Kind, Node, NodeError, NodeMs, Op, Page,
        Reply, RestartGuard, Take, Token, Version, View,
        redis::{RedisNode, RedisNodeSettings, TlsFiles},
    },
    settings::{FleetConfig, LockSettings},
    spawn::Spawn,
};

use crate::server::RedisServer;

/// Longer than any pause of a busy machine: these cases are about answers, not about time.
pub(crate) const PATIENT: Duration = Duration::from_secs(3);
pub(crate) const TTL: Duration = Duration::from_secs(30);
pub(crate) const RETENTION: Duration = Duration::from_secs(60);

/// Runs a case on a runtime of its own.
/// One kind of future for all cases, or the runtime would be built once for each.
pub(crate) fn run<T>(case: impl Future<Output = T>) -> T {
    let case: Pin<&mut dyn Future<Output = T>> = pin!(case);
    runtime().block_on(case)
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

pub(crate) fn settings(server: &RedisServer) -> RedisNodeSettings {
    RedisNodeSettings {
        url: server.url().into(),
        username: None,
        password: None,
        tls: TlsFiles::default(),
        node_timeout: PATIENT,
        namespace: "app".to_owned(),
        raw_keys: false,
        guard: GuardSettings::default(),
    }
}

pub(crate) fn node(settings: &RedisNodeSettings) -> RedisNode {
    RedisNode::new(settings, Clock::system(), Spawn::system()).unwrap()
}

pub(crate) fn client(server: &RedisServer) -> RedisNode {
    node(&settings(server))
}

/// A fleet under the restart guard whose longest lease is short: a watch is soon over.
pub(crate) struct Fleet {
    fleet: FleetConfig,
    settings: Vec<RedisNodeSettings>,
    timing: Timing,
}

impl Fleet {
    pub(crate) fn of(servers: &[RedisServer], mode: RestartGuard) -> Self {
        let ttl = Duration::from_millis(500);
        let fleet = FleetConfig {
            nodes: servers.len(),
            max_ttl: ttl,
            expiry: Expiry::Observed,
            guard: mode,
            ..FleetConfig::of(&LockSettings::default())
        };
        let guard = GuardSettings {
            mode,
            config: fleet.to_string(),
        };
        let guarded = |server| RedisNodeSettings {
            guard: guard.clone(),
            ..settings(server)
        };
        let timing = Timing {
            ttl,
            max_ttl: ttl,
            node_timeout: Duration::from_millis(500),
            ..Timing::default()
        };
        Self {
            settings: servers.iter().map(guarded).collect(),
            fleet,
            timing,
        }
    }

    pub(crate) fn client(&self, server: usize) -> RedisNode {
        node(&self.settings[server])
    }

    fn nodes(&self) -> Vec<Arc<dyn Node>> {
        let node = |settings| Arc::new(node(settings)) as Arc<dyn Node>;
        self.settings.iter().map(node).collect()
    }

    /// Its nodes have never kept a lock: they vote at once.
    pub(crate) async fn found(&self) {
        let admitted = admit_at_once(&self.nodes(), &self.fleet, &Chance::system()).await;
        admitted.expect("fresh servers");
    }

    /// A program of this fleet.
    pub(crate) fn locks(&self) -> Locks {
        let locks = Locks::over(self.nodes()).timing(self.timing.clone());
        let locks = locks.expiry(Expiry::Observed).guarded(self.fleet);
        locks.start().unwrap()
    }
}

/// Until every node votes for this program.
pub(crate) async fn all_vote(locks: &Locks) {
    until("every vote", async || {
        let nodes = locks.admissions().await.unwrap();
        nodes.iter().all(|node| node.state.votes())
    })
    .await;
}

pub(crate) fn raw_client(server: &RedisServer) -> RedisNode {
    node(&RedisNodeSettings {
        raw_keys: true,
        ..settings(server)
    })
}

/// Executes operations with no time limit on the node's clock. What refuses all of them refuses the call, as a link has it.
pub(crate) async fn send(node: &RedisNode, ops: Vec<Op>) -> Result<Reply, NodeError> {
    let not_after = None;
    let reply = node.call(Call { not_after, ops }).await?;
    match reply.answers.first() {
        Some(Answer::Failed(trouble))
            if reply.answers.iter().all(|a| matches!(a, Answer::Failed(_))) =>
        {
            Err(trouble.clone())
        }
        _ => Ok(reply),
    }
}

/// Executes one operation that must be answered, when there is a connection.
pub(crate) async fn ask(node: &RedisNode, op: Op) -> Answer {
    let clock = Clock::system();
    for _ in 0..500 {
        match send(node, vec![op.clone()]).await {
            Err(NodeError::Unreachable(_)) => clock.sleep(Duration::from_millis(20)).await,
            reply => return reply.unwrap().answers.remove(0),
        }
    }
    panic!("no connection: {op:?}")
}

pub(crate) async fn view(node: &RedisNode, key: &str) -> View {
    match ask(node, read(key)).await {
        Answer::View(view) => view,
        other => panic!("not a view: {other:?}"),
    }
}

pub(crate) async fn now(node: &RedisNode) -> NodeMs {
    send(node, vec![]).await.unwrap().at
}

/// Waits until `done`, by polling; a server gives no other event.
pub(crate) async fn until<F: Future<Output = bool>>(
    what: &str,
    mut done: impl FnMut() -> F,
) -> Duration {
    let clock = Clock::system();
    let start = clock.now();
    while !done().await {
        let waited = clock.now().since(start);
        assert!(
            waited < Duration::from_secs(10),
            "{what}: not within {waited:?}"
        );
        clock.sleep(Duration::from_millis(5)).await;
    }
    clock.now().since(start)
}

// === operations ===

pub(crate) fn acquire_for(key: &str, owner: &str, kind: Kind, ttl: Duration, floor: u64) -> Op {
    Op::Acquire {
        key: key.into(),
        owner: owner.into(),
        kind,
        ttl,
        floor: Token(floor),
        take: Take::Server,
        clamp: Duration::from_secs(30),
        ticket: None,
        waits: Duration::ZERO,
    }
}

/// The same for a client that waits.
pub(crate) fn await_end(key: &str, owner: &str) -> Op {
    match acquire(key, owner) {
        Op::Acquire {
            key,
            owner,
            kind,
            ttl,
            floor,
            take,
            clamp,
            ticket,
            ..
        } => Op::Acquire {
            key,
            owner,
            kind,
            ttl,
            floor,
            take,
            clamp,
            ticket,
            waits: TTL,
        },
        other => other,
    }
}

pub(crate) fn acquire(key: &str, owner: &str) -> Op {
    acquire_for(key, owner, Kind::Lock, TTL, 0)
}

pub(crate) fn claim(key: &str, owner: &str) -> Op {
    acquire_for(key, owner, Kind::Claim, TTL, 0)
}

pub(crate) fn confirm(key: &str, owner: &str, kind: Kind, token: u64) -> Op {
    Op::Confirm {
        key: key.into(),
        owner: owner.into(),
        kind,
        token: Token(token),
        expiry: Expiry::Server,
    }
}

pub(crate) fn extend(key: &str, owner: &str, kind: Kind, seq: u64, token: u64) -> Op {
    Op::Extend {
        key: key.into(),
        owner: owner.into(),
        kind,
        seq,
        ttl: TTL,
        token: Token(token),
        take: Take::Server,
    }
}

pub(crate) fn release_as(key: &str, owner: &str, kind: Kind, retention: Duration) -> Op {
    Op::Release {
        key: key.into(),
        owner: owner.into(),
        kind,
        marked: retention,
        retention,
    }
}

/// Everything that a walk shows.
pub(crate) async fn walk(node: &RedisNode, op: impl Fn(Cursor) -> Op) -> Page {
    let (mut all, mut from) = (Page::default(), Some(Cursor::default()));
    while let Some(cursor) = from {
        let Answer::Page(page) = ask(node, op(cursor)).await else {
            panic!("not a page")
        };
        all.views.extend(page.views);
        all.bodies.extend(page.bodies);
        all.forgotten += page.forgotten;
        from = page.next;
    }
    all.views.sort_by(|a, b| a.key.cmp(&b.key));
    all
}

/// The names of locks and claims that are shown.
pub(crate) async fn names(node: &RedisNode, prefix: &str) -> Vec<String> {
    let list = |from| Op::List {
        prefix: prefix.to_owned(),
        from,
        count: 100,
    };
    let views = walk(node, list).await.views;
    views.into_iter().map(|view| view.key).collect()
}

/// How many rows were forgotten.
pub(crate) async fn swept(node: &RedisNode) -> u32 {
    walk(node, |from| Op::Sweep { from, count: 100 })
        .await
        .forgotten
}

pub(crate) fn release(key: &str, owner: &str) -> Op {
    release_as(key, owner, Kind::Lock, RETENTION)
}

pub(crate) fn break_lock(key: &str, owner: &str) -> Op {
    Op::Break {
        key: key.into(),
        owner: owner.into(),
        token: Token(1),
        ttl: TTL,
        marked: RETENTION,
        retention: RETENTION,
        now: false,
    }
}

pub(crate) fn write(key: &str, owner: &str, token: u64, rev: u64, body: &str) -> Op {
    Op::Write {
        key: key.into(),
        owner: owner.into(),
        version: Version {
            token: Token(token),
            rev,
        },
        body: body.into(),
        not_before: None,
        expiry: Expiry::Server,
    }
}

pub(crate) fn read(key: &str) -> Op {
    Op::Read { key: key.into() }
}

// === answers ===

pub(crate) fn granted(answer: &Answer) -> u64 {
    match answer {
        Answer::Granted { grant, .. } => grant.0,
        other => panic!("not granted: {other:?}"),
    }
}

pub(crate) fn refused(answer: &Answer) -> &View {
    match answer {
        Answer::Refused(view) => view,
        other => panic!("not refused: {other:?}"),
    }
}
