//! Many who want something at once: whoever is overtaken decides anew, and each has its turn.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::task::JoinHandle;
use watchkeeper_lock::{
    Locks,
    clock::Clock,
    lock::Timing,
    node::{Answer, Kind::Lock, Node, NodeError, Op, etcd::EtcdNodeSettings},
    spawn::Spawn,
};

use crate::{
    it::conformance::{extend, granted, release, take},
    scene::{fresh, node, run_beside, send, settings},
    server::EtcdServer,
};

const MANY: usize = 32;

/// All of them have had their turns by then.
const BOUND: Duration = Duration::from_secs(60);

/// Calls that were overtaken until they gave up.
#[derive(Clone, Default)]
struct Conflicts(Arc<AtomicU64>);

impl Conflicts {
    fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Asks until it is answered.
    async fn ask(&self, node: &dyn Node, op: &Op) -> Answer {
        let clock = Clock::system();
        let end = clock.now() + BOUND;
        loop {
            match send(node, vec![op.clone()]).await {
                Ok(mut reply) => return reply.answers.remove(0),
                Err(NodeError::Unfit(_)) => self.0.fetch_add(1, Ordering::SeqCst),
                Err(why) => panic!("{why}"),
            };
            assert!(clock.now() < end, "overtaken again and again: {op:?}");
        }
    }
}

/// Waits for all, within the bound, and says how long it took.
async fn all_of(tasks: Vec<JoinHandle<()>>) -> Duration {
    let clock = Clock::system();
    let began = clock.now();
    for task in tasks {
        let left = BOUND.saturating_sub(clock.now().since(began));
        let done = clock.timeout(left, task).await;
        done.expect("each has its turn within a minute").unwrap();
    }
    clock.now().since(began)
}

pub(crate) fn of_many_who_wait_for_one_lock_each_has_its_turns(server: &EtcdServer) {
    run_beside(async {
        let namespace = fresh();
        let (held, last) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let timing = Timing {
            ttl: Duration::from_secs(20),
            node_timeout: Duration::from_secs(1),
            ..Timing::default()
        };
        let mut tasks = Vec::new();
        for _ in 0..MANY {
            let of_one = EtcdNodeSettings {
                node_timeout: timing.node_timeout,
                ..settings(&server.url(), &namespace)
            };
            let nodes: Vec<Arc<dyn Node>> = vec![Arc::new(node(of_one))];
            let locks = Locks::over(nodes).timing(timing.clone()).start().unwrap();
            let (held, last) = (held.clone(), last.clone());
            tasks.push(Spawn::system().spawn(async move {
                for _ in 0..3 {
                    let lease = locks.lock("k").wait(BOUND).acquire().await.unwrap();
                    let others = held.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(others, 0, "two hold it");
                    let token = lease.token().0;
                    let before = last.fetch_max(token, Ordering::SeqCst);
                    assert!(before < token, "tokens rise: {before} {token}");
                    held.fetch_sub(1, Ordering::SeqCst);
                    lease.release().await;
                }
            }));
        }
        let took = all_of(tasks).await;
        println!("[etcd] {MANY} had three turns each within {took:.1?}");
    });
}

/// Without a queue, and without any patience.
pub(crate) fn of_many_who_ask_for_one_lock_all_the_time_each_has_it_once(server: &EtcdServer) {
    run_beside(async {
        let namespace = fresh();
        let conflicts = Conflicts::default();
        let mut tasks = Vec::new();
        for n in 0..MANY {
            let node = node(settings(&server.url(), &namespace));
            let conflicts = conflicts.clone();
            tasks.push(Spawn::system().spawn(async move {
                let owner = format!("o{n}");
                loop {
                    match conflicts.ask(&node, &take("k", &owner)).await {
                        Answer::Granted { .. } => break,
                        Answer::Refused(_) => {
                            Clock::system().sleep(Duration::from_millis(5)).await;
                        }
                        other => panic!("{other:?}"),
                    }
                }
                let done = conflicts.ask(&node, &release(Lock, "k", &owner)).await;
                assert_eq!(done, Answer::Done);
            }));
        }
        let took = all_of(tasks).await;
        let conflicts = conflicts.count();
        println!("[etcd] {MANY} had it within {took:.1?}, {conflicts} calls gave up");
    });
}

/// Nothing that all write is in the way.
pub(crate) fn many_who_want_locks_of_their_own_overtake_nobody(server: &EtcdServer) {
    run_beside(async {
        let namespace = fresh();
        let conflicts = Conflicts::default();
        // The first key of a namespace is made once.
        let first = node(settings(&server.url(), &namespace));
        granted(&first, take("first", "a")).await;
        let mut tasks = Vec::new();
        for n in 0..MANY {
            let node = node(settings(&server.url(), &namespace));
            let conflicts = conflicts.clone();
            tasks.push(Spawn::system().spawn(async move {
                let key = format!("k{n}");
                for round in 0..10 {
                    let owner = format!("o{round}");
                    let taken = conflicts.ask(&node, &take(&key, &owner)).await;
                    let Answer::Granted { grant, .. } = taken else {
                        panic!("{taken:?}")
                    };
                    let on = extend(Lock, &key, &owner, 1, grant.0);
                    let kept = conflicts.ask(&node, &on).await;
                    assert!(matches!(kept, Answer::Kept { .. }), "{kept:?}");
                    let done = conflicts.ask(&node, &release(Lock, &key, &owner)).await;
                    assert_eq!(done, Answer::Done);
                }
            }));
        }
        let took = all_of(tasks).await;
        println!("[etcd] {MANY} locks had ten rounds each within {took:.1?}");
        assert_eq!(conflicts.count(), 0);
    });
}
