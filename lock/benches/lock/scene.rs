//! Servers, and lock services on them as workers have them.

use std::{path::Path, sync::Arc, time::Duration};

use tokio::sync::broadcast;
use watchkeeper_lock::{
    chance::Chance,
    clock::Clock,
    event::Event,
    lease::Lease,
    lock::{FleetConfig, LockError, LockSettings, Locks, Timing, admission::admit_at_once},
    node::{
        Call, Expiry, GuardSettings, Kind, Node, Op, Reply, RestartGuard, Take, Token,
        redis::{RedisNode, RedisNodeSettings, TlsFiles},
    },
    spawn::Spawn,
};

use crate::{asked::Asked, server::RedisServer};

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

/// The nodes without the keeper: what is below the public API.
#[derive(Clone)]
pub(crate) struct Nodes(Vec<Arc<RedisNode>>);

impl Scene {
    pub(crate) async fn start(nodes: usize) -> Self {
        let servers: Vec<_> = (0..nodes).map(|_| RedisServer::start()).collect();
        let urls: Vec<_> = servers.iter().map(RedisServer::url).collect();
        let locks = locks_at(&urls, Expiry::Observed);
        let scene = Self {
            servers,
            locks,
            clock: Clock::system(),
        };
        scene.all_up(&scene.locks).await;
        scene
    }

    /// Another process' locks: a keeper and connections of their own.
    pub(crate) async fn others(&self) -> Locks {
        self.others_by(Expiry::Observed).await
    }

    pub(crate) async fn others_by(&self, expiry: Expiry) -> Locks {
        let locks = locks_at(&self.urls(), expiry);
        self.all_up(&locks).await;
        locks
    }

    /// Locks whose nodes are asked in every call whether they are still those that were admitted.
    pub(crate) async fn guarded(&self) -> Locks {
        let max_ttl = Timing::default().max_ttl;
        bootstrap(&self.urls(), max_ttl).await;
        let locks = guarded_at(&self.urls(), max_ttl);
        self.all_up(&locks).await;
        locks
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.servers.iter().map(RedisServer::url).collect()
    }

    pub(crate) fn nodes(&self) -> Nodes {
        Nodes(self.urls().iter().map(|url| Arc::new(node(url))).collect())
    }

    /// What was asked so far, of all servers together.
    pub(crate) fn asked(&self) -> Asked {
        Asked::of(&self.servers)
    }

    /// Waits until nothing is asked any more: what one side left to be done must not fall upon the next.
    pub(crate) async fn quiet(&self) {
        let mut before = self.asked();
        for _ in 0..100 {
            self.clock.sleep(Duration::from_millis(30)).await;
            let now = self.asked();
            if now.scripts == before.scripts {
                return;
            }
            before = now;
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
    pub(crate) async fn all_up(&self, locks: &Locks) {
        let limit = self.clock.now() + Duration::from_secs(10);
        loop {
            // Trouble is noticed by traffic.
            _ = locks.look(vec!["lock/cycle".to_owned()]).await;
            let nodes = locks.nodes().await.unwrap();
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

/// Locks over these addresses.
pub(crate) fn locks_at(urls: &[String], expiry: Expiry) -> Locks {
    let nodes = urls.iter().map(|url| Arc::new(node(url)) as Arc<dyn Node>);
    let locks = Locks::over(nodes.collect()).expiry(expiry);
    locks.start().unwrap()
}

/// Guarded locks over these addresses, with no lease longer than this.
pub(crate) fn guarded_at(urls: &[String], max_ttl: Duration) -> Locks {
    let (fleet, guard) = guard(urls.len(), max_ttl);
    let nodes = urls.iter().map(|url| {
        let node = node_in("guarded", url, guard.clone());
        Arc::new(node) as Arc<dyn Node>
    });
    let timing = Timing {
        ttl: max_ttl.min(Timing::default().ttl),
        max_ttl,
        ..Timing::default()
    };
    let locks = Locks::over(nodes.collect()).timing(timing);
    let locks = locks.guarded(fleet).expiry(fleet.expiry);
    locks.start().unwrap()
}

/// Admits these nodes as `doctor --bootstrap` does: nothing was ever locked there.
pub(crate) async fn bootstrap(urls: &[String], max_ttl: Duration) {
    let (fleet, guard) = guard(urls.len(), max_ttl);
    let node = |url: &String| Arc::new(node_in("guarded", url, guard.clone())) as Arc<dyn Node>;
    let nodes: Vec<_> = urls.iter().map(node).collect();
    let admitted = admit_at_once(&nodes, &fleet, &Chance::system()).await;
    admitted.expect("new nodes");
}

fn guard(nodes: usize, max_ttl: Duration) -> (FleetConfig, GuardSettings) {
    let fleet = FleetConfig {
        nodes,
        max_ttl,
        expiry: Expiry::Observed,
        ..FleetConfig::of(&LockSettings::default())
    };
    let guard = GuardSettings {
        mode: RestartGuard::Call,
        config: fleet.to_string(),
    };
    (fleet, guard)
}

/// A socket beside the server's own.
pub(crate) fn url_of(socket: &Path) -> String {
    format!("unix://{}", socket.display())
}

fn node(url: &str) -> RedisNode {
    node_in("bench", url, GuardSettings::default())
}

fn node_in(namespace: &str, url: &str, guard: GuardSettings) -> RedisNode {
    let settings = RedisNodeSettings {
        url: url.to_owned().into(),
        username: None,
        password: None,
        tls: TlsFiles::default(),
        node_timeout: Timing::default().node_timeout,
        namespace: namespace.to_owned(),
        raw_keys: false,
        guard,
    };
    RedisNode::new(&settings, Clock::system(), Spawn::system()).unwrap()
}

// === impl Nodes ===

impl Nodes {
    /// Acquires and releases on all nodes, waiting for all answers: one call each, nothing shared with others.
    pub(crate) async fn cycle(&self, key: &str, kind: Kind, chance: &Chance) -> bool {
        let (key, owner) = (key.to_owned(), chance.id());
        let acquire = self.acquire(&key, &owner, kind, Duration::from_secs(10));
        if !acquire.await {
            return false;
        }
        let release = Op::Release {
            key,
            owner,
            kind,
            marked: Timing::default().max_ttl,
            retention: Timing::default().retention,
        };
        self.everywhere(&[release]).await.is_some()
    }

    /// Takes a lock that will not be extended; whether all nodes answered.
    pub(crate) async fn acquire(&self, key: &str, owner: &str, kind: Kind, ttl: Duration) -> bool {
        let acquire = Op::Acquire {
            key: key.to_owned(),
            owner: owner.to_owned(),
            kind,
            ttl,
            floor: Token(0),
            take: Take::Server,
            clamp: Duration::from_secs(30),
            ticket: None,
            waits: Duration::ZERO,
        };
        self.everywhere(&[acquire]).await.is_some()
    }

    async fn everywhere(&self, ops: &[Op]) -> Option<Vec<Reply>> {
        let asked = self.0.iter().map(|node| {
            let ops = ops.to_vec();
            node.call(Call {
                not_after: None,
                ops,
            })
        });
        let answers = futures_util::future::join_all(asked).await;
        answers.into_iter().collect::<Result<_, _>>().ok()
    }
}
