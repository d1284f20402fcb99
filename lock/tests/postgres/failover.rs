//! A database whose server is killed, replaced, copied or set read-only.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio_postgres::Client;
use watchkeeper_lock::{
    Locks,
    clock::{Clock, Moment, TimeSource},
    lock::Timing,
    node::{
        Answer, Eligibility, Kind, Node, NodeError, Op, Refusal, RestartGuard,
        postgres::{PostgresNode, PostgresNodeSettings},
    },
    settings::LockSettings,
    spawn::Spawn,
};

use crate::{
    it::conformance::{
        LONG,
        admission::{admitted, eligibility},
        ask, granted, refused, release, take, waiting,
    },
    node::{DURABLE, PATIENT, client, fresh, guarded, node, run, send, settings, until, url},
    server::{PostgresServer, USER},
};

/// [`crate::node::run`] where tasks go on while the case stands still.
fn run_beside<T>(case: impl Future<Output = T>) -> T {
    let case: Pin<&mut dyn Future<Output = T>> = pin!(case);
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(case)
}

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

/// Waits until a standby has the lease of `k`, and speaks to it.
async fn with_the_lease(standby: &PostgresServer) -> Client {
    let copy = client(&url(standby)).await;
    until("the copy", async || {
        let found = "SELECT FROM watchkeeper.lease WHERE key = 'k'";
        let rows = copy.query(found, &[]).await;
        rows.is_ok_and(|rows| rows.len() == 1)
    })
    .await;
    copy
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
        let copy = with_the_lease(&standby).await;
        primary.stop();
        copy.batch_execute("SELECT pg_promote()").await.unwrap();
        until("the successor", async || send(&node, vec![]).await.is_ok()).await;
        assert_eq!(eligibility(&node).await, Eligibility::Unadmitted);
        assert_eq!(ask(&node, take("k", "b")).await, Answer::Unadmitted);
    });
}

/// It was stopped before the other one was promoted, and does not know of that. Named first, it takes writes.
pub(crate) fn an_old_primary_that_starts_again_is_not_used(_: &PostgresServer) {
    let mut primary = PostgresServer::start_with(&DURABLE, |_| {});
    let standby = primary.standby();
    run(async {
        let both = [primary.host(), standby.host()].join(",");
        let both = format!("postgres://{USER}@{both}/postgres");
        let first = node(&settings(&both, "n"));
        granted(&first, take("k", "a")).await;
        let copy = with_the_lease(&standby).await;
        primary.stop();
        copy.batch_execute("SELECT pg_promote()").await.unwrap();
        until("the successor", async || send(&first, vec![]).await.is_ok()).await;
        granted(&first, take("l", "a")).await;
        primary.start_again();
        let alone = node(&settings(&url(&primary), "n"));
        granted(&alone, take("l", "of those who reach it alone")).await;
        for key in ["k", "l"] {
            let other = node(&settings(&both, "n"));
            let Answer::Refused(view) = ask(&other, take(key, "b")).await else {
                panic!("{key}: two hold it")
            };
            assert_eq!(view.owner.as_deref(), Some("a"), "{key}");
        }
        // It hears what is told on the one that is used.
        let later = node(&settings(&both, "n"));
        let mut heard = later.announcements().await.expect("no pooler");
        granted(&first, take("m", "a")).await;
        refused(&later, waiting(take("m", "b"), LONG)).await;
        ask(&first, release(Kind::Lock, "m", "a")).await;
        let mut told = String::new();
        while told != "m" {
            let news = Clock::system().timeout(PATIENT * 3, heard.recv()).await;
            told = news.expect("it is told").expect("it goes on").key;
        }
        let role = first.inspect().await.unwrap().role.unwrap();
        let left = role.strip_prefix("primary beside ");
        assert!(left.is_some_and(|left| !left.is_empty()), "{role}");
    });
}

/// Nothing breaks: who speaks to it would never be told that another one was promoted.
pub(crate) fn an_old_primary_that_lives_on_is_left_before_its_successor_grants(_: &PostgresServer) {
    let mut primary = PostgresServer::start_with(&DURABLE, |_| {});
    let standby = primary.standby();
    run(async {
        let both = [primary.host(), standby.host()].join(",");
        let both = format!("postgres://{USER}@{both}/postgres");
        let longest = Duration::from_secs(8);
        let mut settings = LockSettings::postgres(both)
            .ttl(Duration::from_secs(2))
            .max_ttl(longest);
        settings.postgres.node_timeout = Duration::from_millis(100);
        let locks = || Locks::open(&settings, "n").unwrap().start().unwrap();
        let wait = longest * 4;
        let old = locks();
        let held = old.lock("k").wait(wait).acquire().await.unwrap();
        let copy = client(&url(&standby)).await;
        until("the copy", async || {
            let found = "SELECT FROM watchkeeper.lease WHERE convert_from(key, 'UTF8') LIKE '%k'";
            let rows = copy.query(found, &[]).await;
            rows.is_ok_and(|rows| rows.len() == 1)
        })
        .await;
        let clock = Clock::system();
        copy.batch_execute("SELECT pg_promote()").await.unwrap();
        let promoted = clock.now();
        // It knows the later one alone.
        let another = locks();
        let watching = async {
            let lost = clock.timeout(longest, held.lost()).await;
            lost.map(|_| clock.now().since(promoted))
        };
        let waiting = another.lock("k").wait(wait);
        let (left, again) = tokio::join!(watching, waiting.acquire());
        let after = clock.now().since(promoted);
        let _again = again.unwrap();
        println!("[postgres] left {left:.1?} and granted again {after:.1?} after the promotion");
        assert!(left.is_ok() && longest <= after, "{left:?} {after:?}");
        // What is asked from now on goes to the later one.
        assert!(old.lock("k").acquire().await.is_err());
        let alone = node(&crate::node::settings(&url(&primary), "m"));
        granted(&alone, take("k", "of those who reach it alone")).await;
    });
}

/// Time goes on while a process is stopped, and nothing in it has asked.
#[derive(Clone)]
struct Stopped(Arc<AtomicU64>);

impl TimeSource for Stopped {
    fn now(&self) -> Moment {
        Clock::system().now() + Duration::from_secs(self.0.load(Ordering::SeqCst))
    }

    fn wall(&self) -> jiff::Timestamp {
        Clock::system().wall()
    }

    fn sleep_until(&self, _: Moment) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

pub(crate) fn a_process_that_was_stopped_meanwhile_leaves_an_old_primary_at_once(
    _: &PostgresServer,
) {
    let mut primary = PostgresServer::start_with(&DURABLE, |_| {});
    let standby = primary.standby();
    run(async {
        let both = [primary.host(), standby.host()].join(",");
        let both = format!("postgres://{USER}@{both}/postgres");
        let time = Stopped(Arc::default());
        let clock = Clock::new(time.clone());
        let node = PostgresNode::new(settings(&both, "n"), clock, Spawn::system());
        granted(&node, take("k", "a")).await;
        let copy = with_the_lease(&standby).await;
        copy.batch_execute("SELECT pg_promote()").await.unwrap();
        granted(&node, take("l", "a")).await;
        time.0.store(60, Ordering::SeqCst);
        granted(&node, take("m", "a")).await;
        let there = "SELECT convert_from(key, 'UTF8') FROM watchkeeper.lease ORDER BY key";
        let there = copy.query(there, &[]).await.unwrap();
        let there: Vec<String> = there.iter().map(|row| row.get(0)).collect();
        assert_eq!(there, ["k", "m"]);
    });
}

/// It answers, and tells nothing of itself to those that it does not let in.
pub(crate) fn a_server_that_refuses_may_be_the_successor(_: &PostgresServer) {
    let mut primary = PostgresServer::start_with(&DURABLE, |_| {});
    let standby = primary.standby();
    run(async {
        let owner = client(&url(&primary)).await;
        let made = "CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO app";
        owner.batch_execute(made).await.unwrap();
        let both = [primary.host(), standby.host()].join(",");
        let both = format!("postgres://app@{both}/postgres");
        let first = node(&settings(&both, "n"));
        // Until the standby knows this user it refuses it, too.
        until("both", async || send(&first, Vec::new()).await.is_ok()).await;
        granted(&first, take("k", "a")).await;
        let copy = with_the_lease(&standby).await;
        primary.stop();
        copy.batch_execute("SELECT pg_promote()").await.unwrap();
        let limit = async |most: i32| {
            let set = format!("ALTER ROLE app CONNECTION LIMIT {most}");
            copy.batch_execute(&set).await.unwrap();
        };
        limit(0).await;
        primary.start_again();
        // What another program has used is not known to it.
        let newcomer = node(&settings(&both, "n"));
        let refused = send(&newcomer, vec![take("k", "b")]).await;
        let Err(NodeError::Refused { refusal, said }) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(refusal, Refusal::Clients);
        let why = "may have been promoted in the place of the others";
        assert!(said.contains(why), "{said}");
        limit(-1).await;
        until("the successor", async || {
            send(&newcomer, Vec::new()).await.is_ok()
        })
        .await;
        let Answer::Refused(view) = ask(&newcomer, take("k", "b")).await else {
            panic!("two hold it")
        };
        assert_eq!(view.owner.as_deref(), Some("a"));
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
        let [node, watcher] = [(), ()].map(|()| node(&settings(&url, "n")));
        for node in [&node, &watcher] {
            ask(node, take("k", "a")).await;
        }
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
        // One that only looks, by a connection of its own, is not told that all is well.
        let looks = async || {
            let sent = send(&watcher, vec![Op::Read { key: "k".into() }]).await;
            sent.is_ok()
        };
        // A server reads its settings again some time after it was told to.
        until("a refusal", is_refused).await;
        assert!(is_refused().await, "a new connection is refused, too");
        until("a look refused", async || !looks().await).await;
        assert!(!looks().await);
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
