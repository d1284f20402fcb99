//! Servers, and a lock service on them as a worker has it.

use std::{sync::Arc, time::Duration};

use tokio::sync::broadcast;
use watchkeeper::{
    clock::Clock,
    event::Event,
    lease::Lease,
    lock::{LockError, Locks, Timing},
    node::{
        GuardSettings, Node,
        redis::{RedisNode, RedisNodeSettings, TlsFiles},
    },
    spawn::Spawn,
};

use crate::server::RedisServer;

/// Of the lease whose extensions are watched: a round every 50 ms.
const BRISK: Duration = Duration::from_millis(150);

/// Some servers and our locks on them.
pub(crate) struct Scene {
    pub(crate) servers: Vec<RedisServer>,
    pub(crate) locks: Locks,
    pub(crate) clock: Clock,
}

/// A lease that is extended as long as this lives, and the news of it.
pub(crate) struct Extended {
    lease: Lease,
    events: broadcast::Receiver<Event>,
}

impl Scene {
    pub(crate) async fn start(nodes: usize) -> Self {
        let clock = Clock::system();
        let timing = Timing::default();
        let servers: Vec<_> = (0..nodes).map(|_| RedisServer::start()).collect();
        let clients = servers.iter().map(|server| {
            let settings = RedisNodeSettings {
                url: server.url().into(),
                username: None,
                password: None,
                tls: TlsFiles::default(),
                node_timeout: timing.node_timeout,
                namespace: "bench".to_owned(),
                raw_keys: false,
                pool_size: 2,
                guard: GuardSettings::default(),
            };
            let node = RedisNode::new(&settings, clock.clone(), Spawn::system()).unwrap();
            Arc::new(node) as Arc<dyn Node>
        });
        let locks = Locks::over(clients.collect()).start().unwrap();
        Self {
            servers,
            locks,
            clock,
        }
    }

    /// Time of one piece of work.
    pub(crate) async fn timed<T>(&self, work: impl Future<Output = T>) -> (Duration, T) {
        let start = self.clock.now();
        let done = work.await;
        (self.clock.now().since(start), done)
    }

    /// Acquires and releases once; `None` when the machine was too busy for it.
    pub(crate) async fn cycle(&self) -> Option<(Duration, Duration)> {
        let (acquire, lease) = self.timed(self.locks.lock("cycle").acquire()).await;
        let (release, _) = self.timed(lease.ok()?.release()).await;
        Some((acquire, release))
    }

    /// Waits until every node answers.
    pub(crate) async fn all_up(&self) {
        let limit = self.clock.now() + Duration::from_secs(10);
        loop {
            // Trouble is noticed by traffic.
            _ = self.locks.look(vec!["lock/cycle".to_owned()]).await;
            let nodes = self.locks.nodes().await.unwrap();
            if nodes.iter().all(|node| node.trouble.is_none()) {
                return;
            }
            assert!(self.clock.now() < limit, "still in trouble: {nodes:?}");
            self.clock.sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn extended(&self) -> Extended {
        Extended {
            lease: self.brisk_lease().await.unwrap(),
            events: self.locks.events().observe(),
        }
    }

    /// How long the next extension took, from its first byte to its verdict.
    pub(crate) async fn next_extension(&self, extended: &mut Extended) -> Duration {
        // What happened before is not of this block.
        extended.events = self.locks.events().observe();
        loop {
            if !extended.lease.is_held() {
                // The machine stood still for longer than the short life of this lease.
                extended.lease = self.brisk_lease().await.unwrap();
            }
            let next = self.clock.timeout(BRISK, extended.events.recv()).await;
            if let Ok(Ok(Event::Renewed { took, ok: true, .. })) = next {
                return took;
            }
        }
    }

    async fn brisk_lease(&self) -> Result<Lease, LockError> {
        let lock = self.locks.lock("extended").ttl(BRISK);
        lock.wait(Duration::from_secs(5)).acquire().await
    }
}
