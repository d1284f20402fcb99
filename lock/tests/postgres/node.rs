//! PostgreSQL as a lock server: what every store must do, what it tells, and what it keeps.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio_postgres::{Client, NoTls};
use watchkeeper_lock::{
    clock::Clock,
    node::{
        Answer, Call, Expiry, GuardSettings, Node, NodeError, Op, Refusal, Reply, RestartGuard,
        postgres::{PostgresNode, PostgresNodeSettings, address::PgAddress},
    },
    spawn::Spawn,
};

use crate::{
    it::{
        conformance::{LONG, Lab, admission, ask, ask_all, granted, take},
        locks::{Scene, Stage, Time},
    },
    pooler::Pooler,
    server::{PostgresServer, USER},
};

/// Longer than any pause of a busy machine: most cases are about answers, not about time.
pub(crate) const PATIENT: Duration = Duration::from_secs(3);

/// What a lock server waits for its disk with; in memory it is quick.
pub(crate) const DURABLE: [&str; 3] = ["fsync=on", "synchronous_commit=on", "full_page_writes=on"];

/// Runs a case on a runtime of its own.
/// One kind of future for all cases, or the runtime would be built once for each.
pub(crate) fn run<T>(case: impl Future<Output = T>) -> T {
    let case: Pin<&mut dyn Future<Output = T>> = pin!(case);
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(case)
}

/// A namespace that no other case has.
pub(crate) fn fresh() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("n{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(crate) fn settings(url: &str, namespace: &str) -> PostgresNodeSettings {
    PostgresNodeSettings {
        address: PgAddress::parse(url).unwrap(),
        listen: None,
        schema: "watchkeeper".to_owned(),
        node_timeout: PATIENT,
        namespace: namespace.to_owned(),
        guard: GuardSettings::default(),
    }
}

pub(crate) fn node(settings: &PostgresNodeSettings) -> PostgresNode {
    PostgresNode::new(settings.clone(), Clock::system(), Spawn::system())
}

pub(crate) fn url(server: &PostgresServer) -> String {
    server.url(USER, "postgres")
}

/// An empty namespace for each case.
pub(crate) fn lab(server: &PostgresServer) -> Lab {
    let settings = settings(&url(server), &fresh());
    Lab::new((), move || {
        let client: Arc<dyn Node> = Arc::new(node(&settings));
        Box::pin(async move { client })
    })
}

/// The same behind a pooler, which lives as long as the case.
pub(crate) fn pooled_lab(server: &PostgresServer) -> Lab {
    let pooler = Pooler::start(server);
    // Releases are heard of past it.
    let settings = PostgresNodeSettings {
        listen: Some(PgAddress::parse(&url(server)).unwrap()),
        ..settings(&pooler.url("postgres"), &fresh())
    };
    Lab::new(pooler, move || {
        let client: Arc<dyn Node> = Arc::new(node(&settings));
        Box::pin(async move { client })
    })
}

pub(crate) fn guarded(
    url: &str,
    namespace: &str,
    mode: RestartGuard,
    config: &str,
) -> PostgresNode {
    let config = config.to_owned();
    node(&PostgresNodeSettings {
        guard: GuardSettings { mode, config },
        ..settings(url, namespace)
    })
}

pub(crate) async fn send(node: &dyn Node, ops: Vec<Op>) -> Result<Reply, NodeError> {
    let not_after = None;
    node.call(Call { not_after, ops }).await
}

/// The server itself, past our node.
pub(crate) async fn client(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    Spawn::system().spawn(async move { _ = connection.await });
    client
}

pub(crate) async fn until(what: &str, mut done: impl AsyncFnMut() -> bool) {
    let clock = Clock::system();
    let end = clock.now() + Duration::from_secs(15);
    while !done().await {
        assert!(clock.now() < end, "waited in vain for {what}");
        clock.sleep(Duration::from_millis(10)).await;
    }
}

// === the suites of every store ===

pub(crate) fn every_rule_of_admission(server: &PostgresServer) {
    run(async {
        admission::every_rule(|| {
            let (url, namespace) = (url(server), fresh());
            Box::new(move |config| {
                let mode = match config.starts_with("off") {
                    true => RestartGuard::Off,
                    false => RestartGuard::Call,
                };
                Arc::new(guarded(&url, &namespace, mode, config)) as Arc<dyn Node>
            })
        })
        .await;
    });
}

struct Database {
    settings: PostgresNodeSettings,
    _pooler: Option<Pooler>,
}

impl Stage for Database {
    fn count(&self) -> usize {
        1
    }

    fn connect(&self, _node: usize) -> Arc<dyn Node> {
        Arc::new(node(&self.settings))
    }
}

pub(crate) fn scene(server: &PostgresServer, expiry: Expiry) -> Scene {
    let settings = PostgresNodeSettings {
        node_timeout: Duration::from_millis(500),
        ..settings(&url(server), &fresh())
    };
    let stage = Database {
        settings,
        _pooler: None,
    };
    Scene::new(Box::new(stage), Time::real()).expiring(expiry)
}

pub(crate) fn pooled_scene(server: &PostgresServer) -> Scene {
    let pooler = Pooler::start(server);
    // Without it waiters poll, which is slower than the cases allow.
    let settings = PostgresNodeSettings {
        node_timeout: Duration::from_millis(500),
        listen: Some(PgAddress::parse(&url(server)).unwrap()),
        ..settings(&pooler.url("postgres"), &fresh())
    };
    let stage = Database {
        settings,
        _pooler: Some(pooler),
    };
    Scene::new(Box::new(stage), Time::real()).expiring(Expiry::Observed)
}

pub(crate) fn nothing_is_heard_behind_a_pooler_and_so_it_is_asked(server: &PostgresServer) {
    let pooler = Pooler::start(server);
    run(async {
        let behind = settings(&pooler.url("postgres"), &fresh());
        assert!(node(&behind).announcements().await.is_none());
        let past = PostgresNodeSettings {
            listen: Some(PgAddress::parse(&url(server)).unwrap()),
            ..behind
        };
        assert!(node(&past).announcements().await.is_some());
    });
}

/// What was announced before is not heard: those who wait for it look then.
pub(crate) fn a_listener_that_begins_late_says_so(server: &PostgresServer) {
    run(async {
        let late = PostgresNodeSettings {
            node_timeout: Duration::from_nanos(1),
            ..settings(&url(server), &fresh())
        };
        let mut heard = node(&late).announcements().await.expect("it is direct");
        let news = Clock::system().timeout(PATIENT, heard.recv()).await;
        let news = news.expect("it listens").expect("it goes on");
        assert_eq!(news.key, "");
    });
}

/// Releases are heard of through a connection of their own.
pub(crate) fn other_clients_hear_of_a_release(server: &PostgresServer) {
    use crate::it::conformance::{release, waiting};
    use watchkeeper_lock::node::Kind;

    run(async {
        let settings = settings(&url(server), &fresh());
        let (holder, other) = (node(&settings), node(&settings));
        let mut heard = other.announcements().await.expect("it is direct");
        granted(&holder, take("it's \"k\"", "a")).await;
        // A waiter asks to be told.
        let refused = ask(&other, waiting(take("it's \"k\"", "b"), LONG)).await;
        assert!(matches!(refused, Answer::Refused(_)), "{refused:?}");
        ask(&holder, release(Kind::Lock, "it's \"k\"", "a")).await;
        let news = Clock::system().timeout(PATIENT, heard.recv()).await;
        let news = news.expect("it is told").expect("it goes on");
        assert_eq!((&*news.key, &*news.owner), ("it's \"k\"", "a"));
    });
}

/// A user without rights is told what makes the tables; nothing is left half made.
pub(crate) fn a_user_without_rights_is_told_what_makes_the_tables(_: &PostgresServer) {
    let server = PostgresServer::start_with(&DURABLE, |_| {});
    run(async {
        let owner = client(&url(&server)).await;
        owner
            .batch_execute(
                "CREATE ROLE worker LOGIN; REVOKE CREATE ON DATABASE postgres FROM PUBLIC",
            )
            .await
            .unwrap();
        let node = node(&settings(&server.url("worker", "postgres"), "n"));
        let refused = send(&node, vec![take("k", "a")]).await;
        let Err(NodeError::Refused { refusal, said }) = &refused else {
            panic!("{refused:?}")
        };
        assert_eq!(*refusal, Refusal::Tables);
        assert!(said.contains("\"watchkeeper\" is not there"), "{said}");
        assert!(refusal.remedy().contains("locks schema"));
        let made = watchkeeper_lock::node::postgres::ddl("watchkeeper");
        owner.batch_execute(&made).await.unwrap();
        let denied = send(&node, vec![take("k", "a")]).await;
        assert!(matches!(denied, Err(NodeError::Auth(_))), "{denied:?}");
        owner
            .batch_execute(
                "GRANT USAGE ON SCHEMA watchkeeper TO worker; \
                 GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA watchkeeper TO worker",
            )
            .await
            .unwrap();
        // A connection that was refused is not tried again at once.
        until("a vote", async || send(&node, Vec::new()).await.is_ok()).await;
        granted(&node, take("k", "a")).await;
        let lacks = async || node.inspect().await.unwrap().lacks;
        assert_eq!(lacks().await, None);
        // A part of them is found without a call that needs it.
        let some = "REVOKE INSERT ON watchkeeper.queue FROM worker; REVOKE UPDATE, DELETE ON watchkeeper.lease FROM worker";
        owner.batch_execute(some).await.unwrap();
        let named = "DELETE on lease, UPDATE on lease, INSERT on queue";
        assert_eq!(lacks().await.as_deref(), Some(named));
        // People read it as it is.
        let rows = owner
            .query(
                "SELECT lock, state, owner, token FROM watchkeeper.locks",
                &[],
            )
            .await
            .unwrap();
        let text = |at: usize| rows[0].get::<_, String>(at);
        assert_eq!(
            (text(0), text(1), text(2)),
            ("k".into(), "held".into(), "a".into())
        );
        assert_eq!(rows[0].get::<_, i64>(3), 1);
    });
}

/// A lease is on the disk before it is told, whatever other transactions of the user wait for; one that waits for standbys goes on to
/// do so.
pub(crate) fn what_is_granted_waits_for_the_disk_whatever_the_database_is_set_to(
    _: &PostgresServer,
) {
    let server = PostgresServer::start_with(&DURABLE, |_| {});
    run(waits_for_the_disk(&server, || (url(&server), None)));
}

/// The same where nothing is kept of a connection: each transaction says it.
pub(crate) fn behind_a_pooler_it_waits_for_the_disk_too() {
    let server = PostgresServer::start_with(&DURABLE, |_| {});
    run(waits_for_the_disk(&server, || {
        let pooler = Pooler::start(&server);
        (pooler.url("postgres"), Some(pooler))
    }));
}

/// What the transactions that write a lease wait for, as a trigger in them sees it, on a way that is made anew each time.
async fn waits_for_the_disk(server: &PostgresServer, way: impl Fn() -> (String, Option<Pooler>)) {
    use crate::it::conformance::{extend, release};
    use watchkeeper_lock::node::Kind;

    let owner = client(&url(server)).await;
    let made = watchkeeper_lock::node::postgres::ddl("watchkeeper");
    owner.batch_execute(&made).await.unwrap();
    owner
        .batch_execute(
            "CREATE TABLE public.seen (waits text NOT NULL); \
             CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 INSERT INTO public.seen VALUES (current_setting('synchronous_commit')); RETURN NULL; \
             END $$; \
             CREATE TRIGGER note AFTER INSERT OR UPDATE ON watchkeeper.lease \
                 FOR EACH STATEMENT EXECUTE FUNCTION public.note()",
        )
        .await
        .unwrap();
    for (set, waits) in [
        ("off", "on"),
        ("local", "on"),
        ("remote_write", "on"),
        ("on", "on"),
        ("remote_apply", "remote_apply"),
    ] {
        let setting = format!("ALTER DATABASE postgres SET synchronous_commit = {set}");
        owner.batch_execute(&setting).await.unwrap();
        owner.batch_execute("TRUNCATE public.seen").await.unwrap();
        let (address, _pooler) = way();
        let node = node(&settings(&address, "n"));
        let (token, _) = granted(&node, take(set, "a")).await;
        ask(&node, extend(Kind::Lock, set, "a", 1, token.0)).await;
        ask(&node, release(Kind::Lock, set, "a")).await;
        let seen = "SELECT waits, count(*) FROM public.seen GROUP BY waits";
        let seen = owner.query(seen, &[]).await.unwrap();
        let seen: Vec<(String, i64)> = seen.iter().map(|row| (row.get(0), row.get(1))).collect();
        // Taken, extended, released.
        let is_right = matches!(&seen[..], [(seen, 3..)] if seen == waits);
        assert!(is_right, "where it is {set}: {seen:?}");
    }
}

/// As people read it: when a lease ends by the server's clock unless it is extended, and under which token. Of a row that makes no
/// sense there is no time.
pub(crate) fn the_view_says_until_when_a_lease_lasts(server: &PostgresServer) {
    use crate::it::conformance::{claim_for, extend, release, take_for};
    use watchkeeper_lock::node::Kind;

    const SHORTER: Duration = Duration::from_secs(10);
    run(async {
        let namespace = fresh();
        let node = node(&settings(&url(server), &namespace));
        let person = client(&url(server)).await;
        let shown = async |key: &str| {
            let shown = "SELECT state, token, extract(epoch FROM until - clock_timestamp())::float8 \
                         FROM watchkeeper.locks WHERE namespace = $1 AND lock = $2";
            let row = person.query_one(shown, &[&namespace, &key]).await.unwrap();
            let (state, token, left): (String, i64, Option<f64>) =
                (row.get(0), row.get(1), row.get(2));
            (state, token, left)
        };
        let lasts = |left: Option<f64>, ttl: Duration| {
            let left = left.expect("a time");
            let most = ttl.as_secs_f64();
            let least = most - PATIENT.as_secs_f64();
            assert!(least < left && left <= most, "{left} s of {ttl:?}");
        };
        let number = |token: watchkeeper_lock::node::Token| i64::try_from(token.0).unwrap();

        let (token, _) = granted(&node, take_for("k", "a", SHORTER)).await;
        let (state, under, left) = shown("k").await;
        assert_eq!((&*state, under), ("held", number(token)));
        lasts(left, SHORTER);
        ask(&node, extend(Kind::Lock, "k", "a", 1, token.0)).await;
        lasts(shown("k").await.2, LONG);
        let (token, _) = granted(&node, claim_for("c", "a", SHORTER)).await;
        let (state, under, left) = shown("c").await;
        assert_eq!((&*state, under), ("claimed", number(token)));
        lasts(left, SHORTER);
        ask(&node, release(Kind::Lock, "k", "a")).await;
        assert_eq!(shown("k").await.0, "released");
        let damage = "UPDATE watchkeeper.lease SET until = 9223372036854775807 WHERE namespace = $1 AND key = 'k'";
        assert_eq!(person.execute(damage, &[&namespace]).await.unwrap(), 1);
        assert_eq!(shown("k").await.2, None);
    });
}

pub(crate) fn a_server_that_forgets_in_a_power_cut_is_refused(_: &PostgresServer) {
    let server = PostgresServer::start();
    run(async {
        let refused = send(&node(&settings(&url(&server), "n")), vec![]).await;
        let Err(NodeError::Refused { refusal, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(refusal, Refusal::NotDurable);
    });
}

/// What something else has written costs its own lock.
pub(crate) fn a_damaged_row_costs_its_lock_alone(server: &PostgresServer) {
    run(async {
        let namespace = fresh();
        let node = node(&settings(&url(server), &namespace));
        for key in ["k", "l"] {
            granted(&node, take(key, "a")).await;
        }
        let other = client(&url(server)).await;
        let damage = format!(
            "UPDATE watchkeeper.lease SET state = 'X', until = -1 WHERE namespace = '{namespace}' AND key = 'k'"
        );
        other.batch_execute(&damage).await.unwrap();
        let Answer::View(view) = ask(&node, Op::Read { key: "k".into() }).await else {
            panic!("a view")
        };
        assert_eq!(view.holder.as_deref(), Some("(malformed)"));
        let Answer::View(view) = ask(&node, Op::Read { key: "l".into() }).await else {
            panic!("a view")
        };
        assert_eq!(view.owner.as_deref(), Some("a"));
    });
}

/// A name that no index takes costs itself alone.
pub(crate) fn a_name_that_is_too_long_costs_itself_alone(server: &PostgresServer) {
    run(async {
        let node = node(&settings(&url(server), &fresh()));
        let long = "x".repeat(3_000);
        let reply = ask_all(
            &node,
            vec![take("k", "a"), take(&long, "a"), take("l", "a")],
        )
        .await;
        assert!(matches!(reply.answers[0], Answer::Granted { .. }));
        assert!(matches!(reply.answers[1], Answer::Failed(_)), "{reply:?}");
        assert!(matches!(reply.answers[2], Answer::Granted { .. }));
    });
}
