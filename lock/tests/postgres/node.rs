//! PostgreSQL as a lock server: what every store must do, and what is its own.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio_postgres::{Client, NoTls};
use watchkeeper_lock::{
    Locks,
    clock::Clock,
    lock::Timing,
    node::{
        Answer, Call, Eligibility, Expiry, GuardSettings, Node, NodeError, Op, Refusal, Reply,
        RestartGuard,
        postgres::{PostgresNode, PostgresNodeSettings, address::PgAddress},
    },
    settings::LockSettings,
    spawn::Spawn,
};

use crate::{
    it::{
        conformance::{
            LONG, Lab,
            admission::{self, admitted, eligibility},
            ask, ask_all, granted, list, take,
        },
        locks::{Scene, Stage, Time},
    },
    pooler::Pooler,
    proxy::Proxy,
    server::{PostgresServer, USER},
};

/// Longer than any pause of a busy machine: most cases are about answers, not about time.
const PATIENT: Duration = Duration::from_secs(3);

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

/// The same where tasks go on while the case stands still.
fn run_beside<T>(case: impl Future<Output = T>) -> T {
    let case: Pin<&mut dyn Future<Output = T>> = pin!(case);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
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

fn guarded(url: &str, namespace: &str, mode: RestartGuard, config: &str) -> PostgresNode {
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

// === its own ===

pub(crate) fn a_server_that_was_killed_votes_at_once_with_all_it_knew(_: &PostgresServer) {
    let mut server = PostgresServer::start_with(&DURABLE, |_| {});
    run(async {
        let url = url(&server);
        let first = guarded(&url, "n", RestartGuard::Call, "one");
        admitted(&first, "n", "one").await;
        granted(&first, take("k", "a")).await;
        server.stop();
        let Err(why) = send(&first, vec![take("l", "a")]).await else {
            panic!("it is not there")
        };
        assert!(why.is_down(), "{why}");
        server.start_again();
        until("the server", async || send(&first, vec![]).await.is_ok()).await;
        assert!(eligibility(&first).await.is_admitted());
        let Answer::Refused(view) = ask(&first, take("k", "b")).await else {
            panic!("it has forgotten")
        };
        assert_eq!(view.owner.as_deref(), Some("a"));
    });
}

pub(crate) fn a_promoted_standby_does_not_vote(_: &PostgresServer) {
    let mut primary = PostgresServer::start_with(&DURABLE, |_| {});
    let standby = primary.standby();
    run(async {
        let both = format!(
            "postgres://{USER}@{},{}/postgres",
            primary.host(),
            standby.host()
        );
        let node = guarded(&both, "n", RestartGuard::Call, "one");
        admitted(&node, "n", "one").await;
        granted(&node, take("k", "a")).await;
        let copy = client(&url(&standby)).await;
        until("the copy", async || {
            let found = "SELECT FROM watchkeeper.lease WHERE key = 'k'";
            copy.query(found, &[])
                .await
                .is_ok_and(|rows| rows.len() == 1)
        })
        .await;
        primary.stop();
        copy.batch_execute("SELECT pg_promote()").await.unwrap();
        until("the successor", async || send(&node, vec![]).await.is_ok()).await;
        assert_eq!(eligibility(&node).await, Eligibility::Unadmitted);
        assert_eq!(ask(&node, take("k", "b")).await, Answer::Unadmitted);
    });
}

pub(crate) fn a_standby_is_refused(_: &PostgresServer) {
    let mut primary = PostgresServer::start_with(&DURABLE, |_| {});
    run(async {
        granted(&node(&settings(&url(&primary), "n")), take("k", "a")).await;
    });
    let standby = primary.standby();
    run(async {
        let node = node(&settings(&url(&standby), "n"));
        for ops in [vec![take("k", "b")], vec![Op::Read { key: "k".into() }]] {
            let refused = send(&node, ops).await;
            let Err(NodeError::Refused { refusal, .. }) = refused else {
                panic!("{refused:?}")
            };
            assert_eq!(refusal, Refusal::ReadOnly);
        }
    });
}

/// A standby that is named before its primary is no fault: the primary is the one that is in use.
pub(crate) fn of_several_servers_the_primary_is_shown(_: &PostgresServer) {
    let mut primary = PostgresServer::start_with(&DURABLE, |_| {});
    let standby = primary.standby();
    run(async {
        let role = async |hosts: &[&str]| {
            let hosts = hosts.join(",");
            let node = node(&settings(
                &format!("postgres://{USER}@{hosts}/postgres"),
                "n",
            ));
            node.inspect().await.unwrap().role
        };
        let (first, second, nowhere) = (standby.host(), primary.host(), "%2Fnowhere");
        let shown = role(&[nowhere, &first, &second]).await;
        assert_eq!(shown.as_deref(), Some("primary"));
        // Without a primary it is told what answers there.
        let shown = role(&[&first, nowhere]).await;
        assert_eq!(shown.as_deref(), Some("standby"));
    });
}

/// A server that a person turns over to another one by setting it read-only: its living connections write no more, or two would hold
/// a lock.
pub(crate) fn a_server_that_is_set_read_only_takes_no_writes_of_living_connections(
    _: &PostgresServer,
) {
    let server = PostgresServer::start_with(&DURABLE, |_| {});
    run(async {
        let url = url(&server);
        let node = node(&settings(&url, "n"));
        granted(&node, take("k", "a")).await;
        let other = client(&url).await;
        let set = async |sql: &str| {
            other.batch_execute(sql).await.unwrap();
            other
                .batch_execute("SELECT pg_reload_conf()")
                .await
                .unwrap();
        };
        set("ALTER SYSTEM SET default_transaction_read_only = on").await;
        let is_refused = async || {
            let sent = send(&node, vec![take("other", "a")]).await;
            let refused = |refusal: &Refusal| *refusal == Refusal::ReadOnly;
            matches!(&sent, Err(NodeError::Refused { refusal, .. }) if refused(refusal))
        };
        // A server reads its settings again some time after it was told to.
        until("a refusal", is_refused).await;
        assert!(is_refused().await, "a new connection is refused, too");
        set("ALTER SYSTEM RESET default_transaction_read_only").await;
        until("a vote", async || send(&node, Vec::new()).await.is_ok()).await;
        granted(&node, take("another", "a")).await;
    });
}

/// A user who may only read is refused, and is served when it may write.
pub(crate) fn a_database_that_takes_no_writes_is_refused_until_it_does(server: &PostgresServer) {
    run(async {
        let url = url(server);
        let namespace = fresh();
        let node = node(&settings(&url, &namespace));
        granted(&node, take("k", "a")).await;
        let other = client(&url).await;
        let role = format!("reader_{namespace}");
        other
            .batch_execute(&format!(
                "CREATE ROLE {role} LOGIN SUPERUSER; ALTER ROLE {role} SET default_transaction_read_only = on"
            ))
            .await
            .unwrap();
        let reader = self::node(&settings(&server.url(&role, "postgres"), &namespace));
        let refused = send(&reader, vec![take("k", "b")]).await;
        let Err(NodeError::Refused { refusal, .. }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(refusal, Refusal::ReadOnly);
        let allow = format!("ALTER ROLE {role} RESET default_transaction_read_only");
        other.batch_execute(&allow).await.unwrap();
        let Answer::Refused(_) = ask(&reader, take("k", "b")).await else {
            panic!("a holds it")
        };
    });
}

/// A copy of the disk from before has less of the log than was seen.
pub(crate) fn a_copy_from_before_is_noticed(_: &PostgresServer) {
    let mut server = PostgresServer::start_with(&DURABLE, |_| {});
    run(async {
        let node = node(&settings(&url(&server), "n"));
        granted(&node, take("k", "a")).await;
        server.stop();
        server.keep_a_copy();
        server.start_again();
        until("the server", async || send(&node, vec![]).await.is_ok()).await;
        for n in 0..20 {
            let op = Op::PutDoc {
                name: format!("d{n}"),
                rev: 1,
                ttl: LONG,
                body: "x".repeat(10_000),
            };
            ask(&node, op).await;
        }
        server.stop();
        server.bring_the_copy_back();
        server.start_again();
        let mut seen = None;
        until("the server", async || match send(&node, vec![]).await {
            Err(NodeError::Unreachable(_) | NodeError::Timeout(_)) => false,
            Err(NodeError::Refused {
                refusal: Refusal::Loading,
                ..
            }) => false,
            answered => {
                seen = Some(answered);
                true
            }
        })
        .await;
        let Some(Err(NodeError::Gone(why))) = seen else {
            panic!("{seen:?}")
        };
        assert!(why.contains("a copy from before"), "{why}");
    });
}

pub(crate) fn a_client_that_freezes_between_its_flights_delays_others_for_a_while_only(
    server: &PostgresServer,
) {
    run(async {
        let proxy = Proxy::start(&server.socket());
        let namespace = fresh();
        let limit = Duration::from_millis(200);
        let idle = limit * 4;
        let short = |url: &str| PostgresNodeSettings {
            node_timeout: limit,
            ..settings(url, &namespace)
        };
        let frozen = node(&short(&proxy.url()));
        granted(&frozen, take("k", "a")).await;
        // From here on it hears no answer: it has the row, and does not go on.
        proxy.hold();
        let stuck = Spawn::system().spawn(async move {
            let answered = send(&frozen, vec![take("l", "a")]).await;
            assert!(answered.is_err(), "{answered:?}");
        });
        let watch = client(&url(server)).await;
        until("its transaction", async || {
            let idle = "SELECT FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%clock_timestamp()%'";
            watch.query(idle, &[]).await.unwrap().len() == 1
        })
        .await;
        let clock = Clock::system();
        let began = clock.now();
        let other = node(&short(&url(server)));
        until("another client", async || {
            matches!(send(&other, vec![take("m", "b")]).await, Ok(reply)
                if matches!(reply.answers[0], Answer::Granted { .. }))
        })
        .await;
        let waited = clock.now().since(began);
        assert!(waited < idle * 2, "{waited:?}");
        // What the frozen one wanted was not done.
        let Answer::View(view) = ask(&other, Op::Read { key: "l".into() }).await else {
            panic!("a view")
        };
        assert_eq!(view.owner, None);
        proxy.go_on();
        stuck.await.unwrap();
    });
}

/// By the ways there and back that a proxy counts.
pub(crate) fn an_extension_takes_two_ways_there_and_back_and_a_cycle_four(server: &PostgresServer) {
    use crate::it::conformance::{extend, release};
    use watchkeeper_lock::node::Kind;

    run(async {
        let proxy = Proxy::start(&server.socket());
        let node = node(&settings(&proxy.url(), &fresh()));
        ask_all(&node, vec![]).await;
        let before = proxy.turns();
        let (token, _) = granted(&node, take("k", "a")).await;
        let acquired = proxy.turns() - before;
        let kept = ask(&node, extend(Kind::Lock, "k", "a", 1, token.0)).await;
        assert!(matches!(kept, Answer::Kept { .. }), "{kept:?}");
        let extended = proxy.turns() - before - acquired;
        ask(&node, release(Kind::Lock, "k", "a")).await;
        let released = proxy.turns() - before - acquired - extended;
        let looked_before = proxy.turns();
        ask(&node, Op::Read { key: "k".into() }).await;
        let looked = proxy.turns() - looked_before;
        let refused_before = proxy.turns();
        granted(&node, take("l", "a")).await;
        ask(&node, take("l", "b")).await;
        let refused = proxy.turns() - refused_before - 2;
        assert_eq!(
            (acquired, extended, released, looked, refused),
            (2, 2, 2, 1, 1),
            "acquire, extend, release, look, refused"
        );
    });
}

/// The same of whole cycles, by the client that programs use: whatever its keeper does beside them is counted, too.
pub(crate) fn ten_cycles_of_a_lock_take_forty_one_ways_at_most(server: &PostgresServer) {
    run(async {
        let proxy = Proxy::start(&server.socket());
        let node: Arc<dyn Node> = Arc::new(node(&settings(&proxy.url(), &fresh())));
        let timing = Timing {
            node_timeout: PATIENT,
            ..Timing::default()
        };
        let locks = Locks::over(vec![node]).timing(timing).start().unwrap();
        let cycle = async |name: &str| {
            let lease = locks.lock(name).ttl(LONG).acquire().await.unwrap();
            lease.release().await;
        };
        // What is asked once in the life of a client.
        cycle("first").await;
        let before = proxy.turns();
        for _ in 0..10 {
            cycle("k").await;
        }
        let turns = proxy.turns() - before;
        assert!((40..=41).contains(&turns), "{turns}");
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

/// A standby that is named first refuses to listen. The connection to the primary goes on for good.
pub(crate) fn a_release_is_heard_where_a_standby_is_named_first(_: &PostgresServer) {
    use crate::it::conformance::{release, waiting};
    use watchkeeper_lock::node::Kind;

    let mut primary = PostgresServer::start_with(&DURABLE, |_| {});
    let standby = primary.standby();
    run(async {
        let both = format!(
            "postgres://{USER}@{},{}/postgres",
            standby.host(),
            primary.host()
        );
        let settings = settings(&both, "n");
        let (holder, other) = (node(&settings), node(&settings));
        let mut heard = other.announcements().await.expect("it is direct");
        let admin = client(&url(&primary)).await;
        let listens = async || -> Vec<i32> {
            let asked = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN %'";
            let rows = admin.query(asked, &[]).await.unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        };
        let first = listens().await;
        assert_eq!(first.len(), 1, "{first:?}");
        granted(&holder, take("k", "a")).await;
        let refused = ask(&other, waiting(take("k", "b"), LONG)).await;
        assert!(matches!(refused, Answer::Refused(_)), "{refused:?}");
        ask(&holder, release(Kind::Lock, "k", "a")).await;
        let news = Clock::system().timeout(PATIENT, heard.recv()).await;
        let news = news.expect("it is told").expect("it goes on");
        assert_eq!((&*news.key, &*news.owner), ("k", "a"), "and nothing before");
        assert_eq!(listens().await, first);
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

/// What a person removes between the look and the writing: nothing is written then, and so nothing is told as done.
pub(crate) fn an_extension_of_a_row_that_has_gone_meanwhile_is_not_told_as_done(
    _: &PostgresServer,
) {
    let rows = a_person_beside_an_extension("DELETE FROM watchkeeper.lease");
    assert_eq!(rows, []);
}

/// A row is written where it was read: one that a person has changed meanwhile lies elsewhere.
pub(crate) fn an_extension_leaves_a_row_alone_that_was_changed_meanwhile(_: &PostgresServer) {
    let rows = a_person_beside_an_extension("UPDATE watchkeeper.lease SET waits = 7");
    assert_eq!(rows, [(0, 7)]);
}

/// Executes a statement between the look of an extension and its writing, of which nobody knows then what became of it. Rounds and waits
/// that stand afterwards.
fn a_person_beside_an_extension(statement: &str) -> Vec<(i64, i64)> {
    use crate::it::conformance::extend;
    use watchkeeper_lock::node::Kind;

    let server = PostgresServer::start_with(&DURABLE, |_| {});
    run(async {
        let namespace = fresh();
        let proxy = Proxy::start(&server.socket());
        let slow = node(&settings(&proxy.url(), &namespace));
        let (token, _) = granted(&slow, take("k", "a")).await;
        proxy.hold();
        let extending = Spawn::system().spawn(async move {
            let extended = send(&slow, vec![extend(Kind::Lock, "k", "a", 1, token.0)]).await;
            assert!(
                matches!(extended, Err(NodeError::Timeout(_))),
                "{extended:?}"
            );
        });
        let person = client(&url(&server)).await;
        until("its transaction", async || {
            let idle = "SELECT FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%lease%'";
            !person.query(idle, &[]).await.unwrap().is_empty()
        })
        .await;
        let which = format!("WHERE namespace = '{namespace}' AND key = 'k'");
        let changed = person.execute(&format!("{statement} {which}"), &[]).await;
        assert_eq!(changed.unwrap(), 1);
        proxy.go_on();
        extending.await.unwrap();
        let rows = format!("SELECT seq, waits FROM watchkeeper.lease {which}");
        let rows = person.query(&rows, &[]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    })
}

/// One call carries 500 extensions, and nothing else goes along; of all else 250.
pub(crate) fn a_call_carries_more_extensions_than_anything_else(server: &PostgresServer) {
    use crate::it::conformance::extend;
    use watchkeeper_lock::node::Kind;

    run(async {
        let namespace = fresh();
        let node = node(&settings(&url(server), &namespace));
        let most = node.most_extensions();
        assert_eq!(most, 500);
        let keys: Vec<String> = (0..=most).map(|n| format!("k{n:03}")).collect();
        let mut extensions = Vec::new();
        for keys in keys.chunks(250) {
            let taken = keys.iter().map(|key| take(key, "a")).collect();
            for (key, answer) in keys.iter().zip(ask_all(&node, taken).await.answers) {
                let Answer::Granted { grant, .. } = answer else {
                    panic!("{answer:?}")
                };
                extensions.push(extend(Kind::Lock, key, "a", 1, grant.0));
            }
        }
        let refused = |answer| matches!(answer, Err(NodeError::Protocol(_)));
        assert!(refused(send(&node, extensions.clone()).await));
        let mixed = Op::Read { key: "k".into() };
        let mixed = extensions.iter().take(250).cloned().chain([mixed]);
        assert!(refused(send(&node, mixed.collect()).await));
        extensions.pop();
        let extended = ask_all(&node, extensions).await.answers;
        let kept = |answer: &Answer| matches!(answer, Answer::Kept { .. });
        assert!(extended.len() == most && extended.iter().all(kept));
        let person = client(&url(server)).await;
        let rounds = "SELECT count(*) FILTER (WHERE seq = 1), count(*) FILTER (WHERE seq = 0) FROM watchkeeper.lease \
                      WHERE namespace = $1";
        let row = person.query_one(rounds, &[&namespace]).await.unwrap();
        assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), (500, 1));
    });
}

/// By the entries of indexes that the server reads: those of other locks are none of its business, however many there are.
pub(crate) fn pages_and_extensions_read_no_more_than_themselves(_: &PostgresServer) {
    use crate::it::conformance::extend;
    use watchkeeper_lock::node::Kind;

    const LISTED: i64 = 20;
    let server = PostgresServer::start_with(&DURABLE, |_| {});
    run(async {
        let node = node(&settings(&url(&server), "n"));
        let mut leases = Vec::new();
        for key in ["a/1", "a/2", "a/3"] {
            leases.push((key, granted(&node, take(key, "a")).await.0));
        }
        let other = client(&url(&server)).await;
        let fill = "INSERT INTO watchkeeper.lease SELECT 'n', ('b/' || g)::bytea, 'R', 'x', 1, '', 1, 0, 1000, 1, 0, 0, 0 \
                    FROM generate_series(1, 50000) AS g";
        other.batch_execute(fill).await.unwrap();
        let read = async || {
            let read = "SELECT coalesce(sum(idx_scan), 0)::int8, coalesce(sum(idx_tup_read), 0)::int8 \
                        FROM pg_stat_user_indexes WHERE relname = 'lease'";
            let row = other.query_one(read, &[]).await.unwrap();
            (row.get::<_, i64>(0), row.get::<_, i64>(1))
        };
        let before = read().await;
        let (mut after, mut seq) = (before, 0);
        // The server counts by and by, while it is asked.
        until("the counts", async || {
            assert_eq!(list(&node, "a/").await.len(), 3);
            seq += 1;
            let extensions = leases
                .iter()
                .map(|(key, token)| extend(Kind::Lock, key, "a", seq, token.0));
            let extended = ask_all(&node, extensions.collect()).await.answers;
            let kept = |answer: &Answer| matches!(answer, Answer::Kept { .. });
            assert!(extended.iter().all(kept), "{extended:?}");
            after = read().await;
            after.0 - before.0 >= LISTED
        })
        .await;
        let (looks, entries) = (after.0 - before.0, after.1 - before.1);
        assert!(entries < 50 * looks, "{entries} entries in {looks} looks");
    });
}

/// The whole service over a database that is killed while many take turns.
pub(crate) fn no_two_hold_a_lock_while_the_server_is_killed(_: &PostgresServer) {
    let mut server = PostgresServer::start_with(&DURABLE, |_| {});
    let url = url(&server);
    // The clients go on while the case waits for its server to end and to start.
    run_beside(async {
        let settings = PostgresNodeSettings {
            node_timeout: Duration::from_millis(200),
            ..settings(&url, "n")
        };
        let timing = Timing {
            ttl: Duration::from_secs(2),
            max_ttl: Duration::from_secs(2),
            node_timeout: Duration::from_millis(200),
            ..Timing::default()
        };
        let held = Arc::new(AtomicU64::new(0));
        let (turns, last) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let over = Arc::new(AtomicBool::new(false));
        let mut clients = Vec::new();
        for _ in 0..4 {
            let nodes: Vec<Arc<dyn Node>> = vec![Arc::new(node(&settings))];
            let locks = Locks::over(nodes).timing(timing.clone()).start().unwrap();
            let (held, turns, last) = (held.clone(), turns.clone(), last.clone());
            let over = over.clone();
            clients.push(Spawn::system().spawn(async move {
                let clock = Clock::system();
                while !over.load(Ordering::SeqCst) {
                    let taken = locks.lock("k").wait(Duration::from_secs(3)).acquire().await;
                    let Ok(lease) = taken else { continue };
                    assert_eq!(held.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                    let token = lease.token().0;
                    assert!(
                        last.fetch_max(token, Ordering::SeqCst) < token,
                        "tokens rise"
                    );
                    clock.sleep(Duration::from_millis(20)).await;
                    held.fetch_sub(1, Ordering::SeqCst);
                    turns.fetch_add(1, Ordering::SeqCst);
                    lease.release().await;
                }
            }));
        }
        let go_on = async || {
            let before = turns.load(Ordering::SeqCst);
            let enough = async || turns.load(Ordering::SeqCst) >= before + 10;
            until("turns", enough).await;
        };
        for _ in 0..3 {
            go_on().await;
            server.kill();
            server.start_again();
        }
        go_on().await;
        over.store(true, Ordering::SeqCst);
        for client in clients {
            client.await.unwrap();
        }
        let turns = turns.load(Ordering::SeqCst);
        println!("[postgres] {turns} turns beside three crashes");
    });
}

/// A lease whose commit was lost with its primary: nobody has it again before the longest lease is over, and then somebody has.
pub(crate) fn a_lease_lost_by_a_promotion_is_granted_again_when_the_longest_is_over(
    _: &PostgresServer,
) {
    let mut primary = PostgresServer::start_with(&DURABLE, |_| {});
    let standby = primary.standby();
    run(async {
        let both = format!(
            "postgres://{USER}@{},{}/postgres",
            primary.host(),
            standby.host()
        );
        let longest = Duration::from_secs(2);
        let mut settings = LockSettings::postgres(both).ttl(longest).max_ttl(longest);
        settings.postgres.node_timeout = Duration::from_millis(100);
        let locks = || Locks::open(&settings, "n").unwrap().start().unwrap();
        let (one, other) = (locks(), locks());
        let wait = Duration::from_secs(20);
        // It is founded by the first who asks.
        let first = one.lock("early").wait(wait).acquire().await.unwrap();
        let copy = client(&url(&standby)).await;
        until("the copy", async || {
            let found =
                "SELECT FROM watchkeeper.lease WHERE convert_from(key, 'UTF8') LIKE '%early'";
            copy.query(found, &[])
                .await
                .is_ok_and(|rows| rows.len() == 1)
        })
        .await;
        let alone = "ALTER SYSTEM SET primary_conninfo = ''";
        copy.batch_execute(alone).await.unwrap();
        copy.batch_execute("SELECT pg_reload_conf()").await.unwrap();
        until("an end of the copying", async || {
            let copies = "SELECT FROM pg_stat_wal_receiver";
            copy.query(copies, &[]).await.unwrap().is_empty()
        })
        .await;
        let lost = one.lock("late").wait(wait).acquire().await.unwrap();
        let token = lost.token();
        primary.stop();
        let clock = Clock::system();
        copy.batch_execute("SELECT pg_promote()").await.unwrap();
        let promoted = clock.now();
        let found = "SELECT FROM watchkeeper.lease WHERE convert_from(key, 'UTF8') LIKE '%late'";
        assert!(
            copy.query(found, &[]).await.unwrap().is_empty(),
            "it was lost"
        );
        let again = other.lock("late").wait(wait).acquire().await.unwrap();
        assert!(!lost.is_held() && !first.is_held());
        let after = clock.now().since(promoted);
        assert!(after >= longest, "{after:?}");
        println!("[postgres] granted again {after:.1?} after the promotion");
        assert!(
            again.token() > token,
            "tokens rise: {token} {}",
            again.token()
        );
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

/// A dump that is restored into new tables is another life.
pub(crate) fn tables_that_were_made_again_do_not_vote(_: &PostgresServer) {
    let server = PostgresServer::start_with(&DURABLE, |_| {});
    run(async {
        let node = guarded(&url(&server), "n", RestartGuard::Call, "one");
        admitted(&node, "n", "one").await;
        granted(&node, take("k", "a")).await;
        let other = client(&url(&server)).await;
        other
            .batch_execute(
                "BEGIN; CREATE TABLE public.kept AS SELECT * FROM watchkeeper.node; \
                 CREATE TABLE public.rows AS SELECT * FROM watchkeeper.lease; DROP SCHEMA watchkeeper CASCADE",
            )
            .await
            .unwrap();
        let made = watchkeeper_lock::node::postgres::ddl("watchkeeper");
        other.batch_execute(&made).await.unwrap();
        other
            .batch_execute(
                "INSERT INTO watchkeeper.node SELECT * FROM public.kept; \
                 INSERT INTO watchkeeper.lease SELECT * FROM public.rows; COMMIT",
            )
            .await
            .unwrap();
        until("an answer", async || send(&node, vec![]).await.is_ok()).await;
        assert_eq!(eligibility(&node).await, Eligibility::Unadmitted);
        assert_eq!(ask(&node, take("l", "b")).await, Answer::Unadmitted);
    });
}

/// What one connection has seen says nothing of what another was told before.
pub(crate) fn connections_beside_each_other_see_no_copy_from_before(server: &PostgresServer) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let node = Arc::new(node(&settings(&url(server), &fresh())));
        let mut tasks = Vec::new();
        for n in 0..6 {
            let other = node.another().unwrap();
            tasks.push(Spawn::system().spawn(async move {
                for round in 0..150_u64 {
                    let op = match n {
                        0..4 => Op::Read { key: "k".into() },
                        _ => Op::PutDoc {
                            name: format!("d{n}"),
                            rev: round + 1,
                            ttl: LONG,
                            body: "x".repeat(2_000),
                        },
                    };
                    ask(&*other, op).await;
                }
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}
