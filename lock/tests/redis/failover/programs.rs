//! Programs of ours: clients of a master that others replace.

use std::{sync::Arc, time::Duration};

use watchkeeper_lock::{
    Locks,
    chance::Chance,
    clock::Clock,
    lease::Lease,
    lock::{LockError, admission::admit_at_once},
    node::{
        Answer, Call, Node, Op, RestartGuard,
        redis::{RedisNode, RedisNodeSettings, SetupError, TlsFiles},
    },
    open,
    settings::LockSettings,
    spawn::Spawn,
};

use super::{BRISK, LEASE, NAME, PATIENCE, PATIENT, Server, in_time};
use crate::bench::{read, send};

/// A namespace of its own: a server votes for one fleet in each.
const UNGUARDED: &str = "unguarded";

/// The next holder has the lock so soon after its server was killed: noticed, replaced and watched.
const TAKEOVER: Duration = Duration::from_secs(40);

/// Settings of a program that goes to this address, with leases of so long.
pub(crate) fn through(url: &str, lease: Duration) -> LockSettings {
    let mut settings = LockSettings::redis([url.to_owned()])
        .ttl(lease)
        .max_ttl(lease);
    settings.redis.node_timeout = lease / 20;
    settings
}

pub(crate) fn locks(settings: &LockSettings) -> Locks {
    Locks::open(settings, "app").unwrap().start().unwrap()
}

/// The same without the guard, which is refused here, and with why it is.
pub(crate) fn without_the_guard(mut settings: LockSettings) -> (LockSettings, String) {
    settings.restart_guard = RestartGuard::Off;
    let refused = Locks::open(&settings, UNGUARDED).err();
    let why = refused.expect("settings that are refused").to_string();
    (settings, why)
}

/// A program with such settings, which only tests can make. Its locks are none of those of a fleet with the guard.
pub(crate) fn unguarded(settings: &LockSettings) -> Locks {
    let clock = Clock::system();
    let of_node = RedisNodeSettings {
        url: settings.redis.nodes[0].expose().to_owned().into(),
        username: None,
        password: None,
        tls: TlsFiles::default(),
        node_timeout: settings.redis.node_timeout,
        namespace: UNGUARDED.to_owned(),
        raw_keys: false,
        guard: settings.guard(),
    };
    let refused = RedisNode::new(&of_node, clock.clone(), Spawn::system());
    assert!(matches!(refused, Err(SetupError::Failover)), "{refused:?}");
    let node = RedisNode::without_the_guard(&of_node, clock.clone(), Spawn::system());
    let nodes: Vec<Arc<dyn Node>> = vec![Arc::new(node.unwrap())];
    open::over(nodes, settings, &clock).start().unwrap()
}

/// A client of the fleet that [`through`] makes, to be asked itself.
pub(crate) fn client(url: &str) -> RedisNode {
    client_with(url, TlsFiles::default()).unwrap()
}

/// The same with files for TLS.
pub(crate) fn client_with(url: &str, tls: TlsFiles) -> Result<RedisNode, SetupError> {
    let settings = RedisNodeSettings {
        url: url.to_owned().into(),
        username: None,
        password: None,
        tls,
        node_timeout: BRISK,
        namespace: "app".to_owned(),
        raw_keys: false,
        guard: through(url, LEASE).guard(),
    };
    RedisNode::new(&settings, Clock::system(), Spawn::system())
}

/// Founds the fleet of these settings, whose server has never kept a lock: it votes at once.
pub(crate) async fn found(settings: &LockSettings) {
    let mut patient = settings.clone();
    patient.redis.node_timeout = PATIENT;
    let nodes = open::nodes(&patient, "app", &Clock::system()).unwrap();
    in_time("the master", async || {
        let asked = Call {
            not_after: None,
            ops: Vec::new(),
        };
        nodes[0].call(asked).await.is_ok()
    })
    .await;
    let fleet = settings.fleet().unwrap();
    let admitted = admit_at_once(&nodes, &fleet, &Chance::system()).await;
    admitted.expect("a fresh server");
}

/// Settings of a program that goes to this address, behind which a fleet was founded.
pub(crate) async fn founded(url: &str, lease: Duration) -> LockSettings {
    let settings = through(url, lease);
    found(&settings).await;
    settings
}

/// Founds the fleet of these settings: two programs of it, and the lease of the first, which the other is refused.
pub(crate) async fn rivals(settings: &LockSettings) -> (Locks, Locks, Lease) {
    found(settings).await;
    let (one, other) = (locks(settings), locks(settings));
    let lease = taken(&one).await;
    is_refused(&other).await;
    (one, other, lease)
}

/// The lock, as soon as it can be had.
pub(crate) async fn taken(locks: &Locks) -> Lease {
    locks.lock(NAME).wait(PATIENCE).acquire().await.unwrap()
}

/// The lock is held by another program, and so this one is told.
pub(crate) async fn is_refused(locks: &Locks) {
    in_time("a refusal", async || {
        match locks.lock(NAME).acquire().await {
            Ok(lease) => panic!("two hold it: {lease:?}"),
            Err(LockError::Held { .. }) => true,
            Err(_) => false,
        }
    })
    .await;
}

/// The lease that follows `before`, whose holder is not told: asked for all the time, and granted when the other is over.
pub(crate) async fn next_after(before: &Lease, locks: &Locks) -> Lease {
    let clock = Clock::system();
    let began = clock.now();
    // Of a lease that is over no deadline is told.
    let mut deadline = before.valid_until();
    let next = loop {
        deadline = deadline.max(before.valid_until());
        match locks.lock(NAME).acquire().await {
            Ok(next) => break next,
            Err(why) => {
                let waited = clock.now().since(began);
                assert!(waited < TAKEOVER, "not within {waited:?}: {why}");
            }
        }
        clock.sleep(Duration::from_millis(10)).await;
    };
    assert!(!before.is_held(), "two hold it");
    let early = deadline.since(next.since());
    assert!(early.is_zero(), "granted {early:?} too early");
    let (last, token) = (before.token(), next.token());
    assert!(last < token, "tokens rise: {last} {token}");
    let took = next.since().since(began);
    println!("[failover] the next holder had it after {took:.1?}");
    next
}

/// The first answer, however often it takes a connection to another server.
pub(crate) async fn answer(node: &RedisNode, op: Op) -> Answer {
    let mut first = None;
    in_time("an answer", async || {
        let answered = send(node, vec![op.clone()]).await;
        first = answered.ok().map(|mut reply| reply.answers.remove(0));
        first.is_some()
    })
    .await;
    first.unwrap()
}

/// What is asked of this client reaches that server.
pub(crate) async fn leads_to(node: &RedisNode, server: &Server) {
    answer(node, read(NAME)).await;
    assert_eq!(node.run_id(), Some(server.run_id()));
}

/// Waits until calls fail with these words; the whole sentence.
pub(crate) async fn trouble(node: &RedisNode, words: &str) -> String {
    let clock = Clock::system();
    let end = clock.now() + PATIENCE;
    loop {
        let answered = send(node, vec![read(NAME)]).await;
        match answered {
            Err(why) if why.to_string().contains(words) => return why.to_string(),
            other => assert!(clock.now() < end, "not \"{words}\": {other:?}"),
        }
        clock.sleep(Duration::from_millis(10)).await;
    }
}
