//! A client of ours that goes on only while a case drives it: between its calls it is as frozen as a process in a long
//! pause, so nothing depends on how quick the machine is.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};

use tokio::runtime::Runtime;
use watchkeeper_lock::{
    chance::Chance,
    clock::Clock,
    lease::Lease,
    lock::{LockError, Locks, LocksBuilder, Timing, admission::admit_at_once},
    node::{
        Node, NodeError, View,
        redis::{RedisNode, RedisNodeSettings},
    },
    spawn::Spawn,
};

use crate::{masters::Masters, rules::Rules};

/// The lock that all clients want.
pub(crate) const KEY: &str = "order:42";

pub(crate) struct Client {
    pub(crate) locks: Locks,
    runtime: Runtime,
}

/// Times for cases that are driven: long enough for two restarts on a busy machine, short enough to sit out.
pub(crate) fn patient(ttl: Duration) -> Timing {
    Timing {
        ttl,
        max_ttl: ttl,
        node_timeout: Duration::from_millis(500),
        retention: Duration::from_secs(600),
        ..Timing::default()
    }
}

/// Locks on these nodes with these rules; the keeper lives where `place` says.
pub(crate) fn locks(
    settings: &[RedisNodeSettings],
    rules: Rules,
    timing: Timing,
    place: Option<Spawn>,
) -> Locks {
    let locks = builder(settings, rules, timing);
    let locks = match place {
        Some(spawn) => locks.keeper_here(spawn),
        None => locks,
    };
    locks.start().expect("the locks start")
}

/// One that only looks.
pub(crate) fn watcher(settings: &[RedisNodeSettings], rules: Rules, timing: Timing) -> Locks {
    let locks = builder(settings, rules, timing).bystander();
    locks.start().expect("the locks start")
}

pub(crate) fn builder(
    settings: &[RedisNodeSettings],
    rules: Rules,
    timing: Timing,
) -> LocksBuilder {
    let node = |settings: &RedisNodeSettings| -> Arc<dyn Node> {
        Arc::new(RedisNode::new(settings, Clock::system(), Spawn::system()).expect("a node"))
    };
    let nodes: Vec<_> = rules.guard(settings, &timing).iter().map(node).collect();
    let count = nodes.len();
    let locks = rules.apply(Locks::over(nodes), count, &timing);
    locks.timing(timing).chance(Chance::system())
}

/// Lets fresh masters in without a watch, as `doctor --bootstrap` does: they have never kept a lock.
pub(crate) fn admit(masters: &Masters, rules: Rules, timing: &Timing) {
    admit_among(masters.len(), masters, rules, timing);
}

/// As [`admit`], for a fleet of so many nodes.
pub(crate) fn admit_among(nodes: usize, masters: &Masters, rules: Rules, timing: &Timing) {
    let Some(fleet) = rules.fleet(nodes, timing.max_ttl) else {
        return;
    };
    let settings = masters.settings(Duration::from_secs(2), false);
    let settings = rules.guard_among(nodes, &settings, timing);
    let node = |settings| -> Arc<dyn Node> {
        Arc::new(RedisNode::new(settings, Clock::system(), Spawn::system()).expect("a node"))
    };
    block_on(async {
        let nodes: Vec<_> = settings.iter().map(node).collect();
        let admitted = admit_at_once(&nodes, &fleet, &Chance::system()).await;
        admitted.expect("fresh masters");
    });
}

/// Drives it on this thread, as far as it goes.
pub(crate) fn block_on<T>(act: impl Future<Output = T>) -> T {
    drive(&runtime(), act)
}

/// One kind of future for all acts, or the runtime would be built once for each.
fn drive<T>(runtime: &Runtime, act: impl Future<Output = T>) -> T {
    let act: Pin<&mut dyn Future<Output = T>> = pin!(act);
    runtime.block_on(act)
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}

// === impl Client ===

impl Client {
    pub(crate) fn new(masters: &Masters, rules: Rules, ttl: Duration) -> Self {
        let timing = patient(ttl);
        let settings = masters.settings(timing.node_timeout, false);
        Self::of(|spawn| locks(&settings, rules, timing, Some(spawn)))
    }

    /// Of locks whose keeper lives where it is told.
    pub(crate) fn of(start: impl FnOnce(Spawn) -> Locks) -> Self {
        let runtime = runtime();
        let locks = runtime.block_on(async { start(Spawn::system()) });
        Self { locks, runtime }
    }

    /// Drives it as far as this goes.
    pub(crate) fn run<T>(&self, act: impl Future<Output = T>) -> T {
        drive(&self.runtime, act)
    }

    /// Goes on until every node answers it.
    pub(crate) fn meets_all(&self) {
        let silent = |view: &Result<_, NodeError>| {
            matches!(
                view,
                Err(NodeError::Unreachable(_) | NodeError::Timeout(_) | NodeError::Late { .. })
            )
        };
        self.run(async {
            for _ in 0..1000 {
                let seen = self.locks.look(vec![KEY.to_owned()]).await.unwrap();
                if !seen[0].nodes.iter().any(silent) {
                    return;
                }
                Clock::system().sleep(Duration::from_millis(10)).await;
            }
            panic!("the nodes do not answer");
        });
    }

    /// Goes on until so many nodes show its lease: it had it with the votes of a majority.
    pub(crate) fn holds_on(&self, lease: &Lease, nodes: usize) {
        self.run(async {
            for _ in 0..1000 {
                let seen = self.locks.look(vec![KEY.to_owned()]).await.unwrap();
                let views = seen[0].nodes.iter().flatten();
                let ours = |view: &&View| view.holder.as_deref() == Some(lease.view().owner());
                if views.filter(ours).count() == nodes {
                    return;
                }
                Clock::system().sleep(Duration::from_millis(10)).await;
            }
            panic!("not so many nodes show it");
        });
    }

    /// Gets the lock, within `limit`.
    pub(crate) fn acquires_within(&self, limit: Duration) -> Result<Lease, LockError> {
        self.run(self.locks.lock_key(KEY).wait(limit).acquire())
    }

    /// Gets the lock, however long nodes that it meets for the first time are kept from voting.
    pub(crate) fn acquires(&self) -> Lease {
        self.acquires_within(Duration::from_secs(60))
            .expect("the lock is to be had")
    }

    /// Gets the lock on every node, and gives it back: now all of them vote, and the lock is free.
    pub(crate) fn settles(&self) {
        let lease = self.acquires();
        self.run(async {
            for _ in 0..1000 {
                if usize::try_from(lease.view().margin()) == Ok(1) {
                    lease.release().await;
                    self.locks.settle().await;
                    return;
                }
                Clock::system().sleep(Duration::from_millis(10)).await;
            }
            panic!("not every node grants: {:?}", self.locks.nodes().await);
        });
    }
}
