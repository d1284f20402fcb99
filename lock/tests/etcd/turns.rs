//! Programs that take turns at one lock, and one that keeps another, while their servers suffer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use watchkeeper_lock::{
    Locks,
    clock::Clock,
    lock::Timing,
    node::{Node, etcd::EtcdNodeSettings},
    spawn::Spawn,
};

use crate::{
    scene::{node, over, run_beside},
    server::pause,
};

const TTL: Duration = Duration::from_secs(3);
/// A member that stands still is left so soon.
const NODE_TIMEOUT: Duration = Duration::from_millis(150);
/// How long ten turns may take, with an election in between.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the programs have in common: each believes in its own lease, and this knows of all.
#[derive(Clone, Default)]
pub(crate) struct Turns {
    held: Arc<AtomicU64>,
    last: Arc<AtomicU64>,
    count: Arc<AtomicU64>,
}

/// Takes turns at these members while `faults` go on. Whether a lease that was held all the time still is.
pub(crate) fn beside(urls: &[String], faults: impl FnOnce(&Turns)) -> bool {
    run_beside(async {
        let (turns, is_over) = (Turns::default(), Arc::new(AtomicBool::new(false)));
        let keeper = locks(urls);
        let kept = keeper.lock("kept").wait(PATIENCE).acquire().await.unwrap();
        let mut programs = Vec::new();
        for _ in 0..4 {
            let (locks, turns, is_over) = (locks(urls), turns.clone(), is_over.clone());
            programs.push(Spawn::system().spawn(async move {
                while !is_over.load(Ordering::SeqCst) {
                    turns.take_one(&locks).await;
                }
            }));
        }
        // This thread waits for servers, and the others go on.
        faults(&turns);
        is_over.store(true, Ordering::SeqCst);
        for program in programs {
            program.await.unwrap();
        }
        println!("[etcd] {} turns", turns.count());
        kept.is_held()
    })
}

fn locks(urls: &[String]) -> Locks {
    let settings = EtcdNodeSettings {
        node_timeout: NODE_TIMEOUT,
        ..over(urls, "n")
    };
    let timing = Timing {
        ttl: TTL,
        max_ttl: TTL,
        node_timeout: NODE_TIMEOUT,
        ..Timing::default()
    };
    let nodes: Vec<Arc<dyn Node>> = vec![Arc::new(node(settings))];
    Locks::over(nodes).timing(timing).start().unwrap()
}

// === impl Turns ===

impl Turns {
    async fn take_one(&self, locks: &Locks) {
        let taken = locks.lock("k").wait(TTL).acquire().await;
        let Ok(lease) = taken else { return };
        let others = self.held.fetch_add(1, Ordering::SeqCst);
        assert_eq!(others, 0, "two hold it");
        let token = lease.token().0;
        let before = self.last.fetch_max(token, Ordering::SeqCst);
        assert!(before < token, "tokens rise: {before} {token}");
        // Long enough for another one to come in, if it could.
        Clock::system().sleep(Duration::from_millis(20)).await;
        self.held.fetch_sub(1, Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::SeqCst);
        lease.release().await;
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Waits until ten more turns were taken.
    pub(crate) fn go_on(&self, when: &str) {
        let clock = Clock::system();
        let (enough, end) = (self.count() + 10, clock.now() + PATIENCE);
        while self.count() < enough {
            assert!(clock.now() < end, "nobody has a turn {when}");
            pause(Duration::from_millis(10));
        }
    }
}
