//! Nodes over a server, and what cases ask of them.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::runtime::{Builder, Runtime};
use watchkeeper_lock::{
    clock::Clock,
    node::{
        Answer, Call, Expiry, GuardSettings, Node, NodeError, Op, Reply, RestartGuard,
        etcd::{EtcdNode, EtcdNodeSettings},
    },
    spawn::Spawn,
};

use crate::{
    it::{
        conformance::{LONG, Lab},
        locks::{Scene, Stage, Time},
    },
    server::EtcdServer,
};

/// Longer than any pause of a busy machine: most cases are about answers, not about time.
pub(crate) const PATIENT: Duration = Duration::from_secs(3);

/// Waiting longer than this is a failure.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs a case on a runtime of its own.
/// One kind of future for all cases, or the runtime would be built once for each.
pub(crate) fn run<T>(case: impl Future<Output = T>) -> T {
    let case: Pin<&mut dyn Future<Output = T>> = pin!(case);
    on(&mut Builder::new_current_thread()).block_on(case)
}

/// The same where tasks go on while the case stands still.
pub(crate) fn run_beside<T>(case: impl Future<Output = T>) -> T {
    let case: Pin<&mut dyn Future<Output = T>> = pin!(case);
    on(Builder::new_multi_thread().worker_threads(2)).block_on(case)
}

fn on(builder: &mut Builder) -> Runtime {
    builder.enable_all().build().unwrap()
}

/// A namespace that no other case has.
pub(crate) fn fresh() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("n{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn settings(url: &str, namespace: &str) -> EtcdNodeSettings {
    over(&[url.to_owned()], namespace)
}

/// The same over several members.
pub(crate) fn over(urls: &[String], namespace: &str) -> EtcdNodeSettings {
    EtcdNodeSettings {
        endpoints: urls.to_vec(),
        username: None,
        password: None,
        tls: Default::default(),
        node_timeout: PATIENT,
        namespace: namespace.to_owned(),
        guard: GuardSettings::default(),
    }
}

pub(crate) fn node(settings: EtcdNodeSettings) -> EtcdNode {
    EtcdNode::new(settings, Clock::system(), Spawn::system()).unwrap()
}

pub(crate) fn guarded(url: &str, namespace: &str, mode: RestartGuard, config: &str) -> EtcdNode {
    let config = config.to_owned();
    node(EtcdNodeSettings {
        guard: GuardSettings { mode, config },
        ..settings(url, namespace)
    })
}

pub(crate) async fn send(node: &dyn Node, ops: Vec<Op>) -> Result<Reply, NodeError> {
    let not_after = None;
    node.call(Call { not_after, ops }).await
}

/// Why one operation was not done, by itself or with its call.
pub(crate) async fn trouble(node: &dyn Node, op: Op) -> NodeError {
    match send(node, vec![op]).await {
        Err(trouble) => trouble,
        Ok(mut reply) => match reply.answers.pop() {
            Some(Answer::Failed(trouble)) => trouble,
            other => panic!("no trouble: {other:?}"),
        },
    }
}

/// A document of the tests.
pub(crate) fn put_doc(name: &str, rev: u64) -> Op {
    Op::PutDoc {
        name: name.to_owned(),
        rev,
        ttl: LONG,
        body: format!("of revision {rev}"),
    }
}

pub(crate) async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let clock = Clock::system();
    let end = clock.now() + PATIENCE;
    while !done().await {
        assert!(clock.now() < end, "waited in vain for {what}");
        clock.sleep(Duration::from_millis(10)).await;
    }
}

// === for the suites of every store ===

/// An empty namespace for each case.
pub(crate) fn lab(server: &EtcdServer) -> Lab {
    let (url, namespace) = (server.url(), fresh());
    Lab::new((), move || {
        let client: Arc<dyn Node> = Arc::new(node(settings(&url, &namespace)));
        Box::pin(async move { client })
    })
}

struct Member {
    url: String,
    namespace: String,
}

impl Stage for Member {
    fn count(&self) -> usize {
        1
    }

    fn connect(&self, _node: usize) -> Arc<dyn Node> {
        Arc::new(node(EtcdNodeSettings {
            node_timeout: Duration::from_millis(500),
            ..settings(&self.url, &self.namespace)
        }))
    }
}

pub(crate) fn scene(server: &EtcdServer, expiry: Expiry) -> Scene {
    let (url, namespace) = (server.url(), fresh());
    let stage = Member { url, namespace };
    Scene::new(Box::new(stage), Time::real()).expiring(expiry)
}
