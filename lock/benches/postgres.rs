//! What a lock costs in PostgreSQL, beside the same work written by hand, in one run on one server.
//!
//! `cargo bench -p watchkeeper-lock --features postgres --bench postgres`. The server lies in a temporary folder and waits for its disk; `TMPDIR=/dev/shm`
//! takes the disk out of it. `-- bulk` measures these sections only: `single`, `bulk`, `idle`. What is compared is interleaved. See
//! `benches/README.md` for what the figures mean. With `--strict` it fails where a goal is missed.
//!
//! Without the programs of PostgreSQL it says so and ends well.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a bench fails by panicking"
)]

use std::{fs, path::Path, process::ExitCode, time::Duration};

use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};
use watchkeeper_lock::{
    Elector, Locks,
    clock::Clock,
    node::{
        Answer, Call, GuardSettings, Kind, Node, Op, Take, Token,
        postgres::{PostgresNode, PostgresNodeSettings, address::PgAddress},
    },
    settings::LockSettings,
    spawn::Spawn,
};

#[path = "../tests/postgres/server.rs"]
mod server;

use server::{PostgresServer, USER};

const TTL: Duration = Duration::from_secs(60);
/// Leases that are extended together, as many in a call as the node takes.
const LEASES: usize = 1_000;
/// Programs that stand by for one lock, or locks that one program stands by for.
const STANDBYS: usize = 100;
/// For how long they are measured: several of their looks, and of their holder's renewals.
const IDLE: Duration = Duration::from_secs(60);
/// A thousand extensions may take so many times as long as the same by hand.
const MOST_TIMES: f64 = 3.0;
/// So much of a processor of the server a hundred programs may take that stand by, in percent.
const MOST_IDLE: f64 = 1.0;
/// Until all have seen who holds what, and ask seldom which of them sweeps.
const SETTLED: Duration = Duration::from_secs(60);
/// About as often a standby looks.
const PACE: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    if server::programs().is_none() {
        println!("ignored: {}", server::REMEDY);
        return ExitCode::SUCCESS;
    }
    // Run by anything else than `cargo bench` this is a check.
    let rounds = match std::env::args().any(|word| word == "--bench") {
        true => 200,
        false => 2,
    };
    let server = PostgresServer::start_with(
        &[
            "fsync=on",
            "synchronous_commit=on",
            "full_page_writes=on",
            "max_connections=400",
        ],
        |_| {},
    );
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let runtime = runtime.unwrap();
    let sections: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    let wanted = |section: &str| sections.is_empty() || sections.iter().any(|one| one == section);
    let mut times = Times::default();
    if wanted("single") {
        runtime.block_on(one_at_a_time(&server, rounds, &mut times));
    }
    if wanted("bulk") {
        runtime.block_on(many_at_once(&server, rounds.div_ceil(4), &mut times));
    }
    let mut missed = times.show();
    let idle = match rounds {
        2 => Duration::from_millis(10),
        _ => IDLE,
    };
    if wanted("idle") {
        missed |= runtime.block_on(stand_by(&server, idle));
    }
    // The server ends when it is dropped, and an exit at once would drop nothing.
    match missed && std::env::args().any(|word| word == "--strict") {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}

/// Says what was reached of a goal; whether it was missed.
fn judged(what: &str, reached: f64, goal: f64) -> bool {
    let missed = reached > goal;
    let word = if missed { "MISSED" } else { "met" };
    println!("{what}: {reached:.2}, the goal is {goal}: {word}");
    missed
}

/// What standbys cost the server while nothing happens: a hundred programs that wait for one lock, and one program that waits
/// for a hundred. The holder's renewals are counted before, and taken off. Whether the goal of the first was missed.
async fn stand_by(server: &PostgresServer, idle: Duration) -> bool {
    let mut missed = false;
    let url = server.url(USER, "postgres");
    let open = |namespace: &str| {
        let settings = LockSettings::postgres(url.as_str());
        Locks::open(&settings, namespace).unwrap().start().unwrap()
    };
    for (what, namespace, programs, locks) in [
        ("100 programs that wait for one lock", "many", STANDBYS, 1),
        ("one program that waits for 100 locks", "one", 1, STANDBYS),
    ] {
        let names: Vec<String> = (0..locks).map(|n| format!("idle-{n}")).collect();
        let holder = open(namespace);
        let mut terms = Vec::new();
        for name in &names {
            terms.push(Elector::new(&holder, name).campaign().await.unwrap());
        }
        let held = processor(server, idle).await;
        let mut standbys = JoinSet::new();
        for _ in 0..programs {
            let waits = open(namespace);
            for name in &names {
                let elector = Elector::new(&waits, name);
                standbys.spawn(async move { drop(elector.campaign().await) });
            }
        }
        Clock::system().sleep(SETTLED.min(idle)).await;
        let both = processor(server, idle).await;
        println!("{what}: {:.2} % of a processor of the server", both - held);
        if programs == STANDBYS {
            missed |= judged("percent of a processor", both - held, MOST_IDLE);
        }
        standbys.shutdown().await;
    }
    println!(
        "by hand: {STANDBYS} connections with a SELECT 1 every {} s: {:.2} % of a processor of the server",
        PACE.as_secs(),
        least(server, idle).await
    );
    missed
}

/// What a hundred connections cost the server that ask the least that can be asked, as often as standbys look. Programs have two and
/// more each, of which one listens.
async fn least(server: &PostgresServer, idle: Duration) -> f64 {
    let mut all = JoinSet::new();
    for nth in 0..STANDBYS {
        let client = by_hand(server).await;
        all.spawn(async move {
            let clock = Clock::system();
            let one = client.prepare("SELECT 1").await.unwrap();
            clock.sleep(PACE * u32::try_from(nth).unwrap() / 100).await;
            loop {
                client.query(&one, &[]).await.unwrap();
                clock.sleep(PACE).await;
            }
        });
    }
    Clock::system().sleep(SETTLED.min(idle)).await;
    let used = processor(server, idle).await;
    all.shutdown().await;
    used
}

/// What part of a processor the server uses for such a time, in percent.
async fn processor(server: &PostgresServer, time: Duration) -> f64 {
    let before = used(server);
    Clock::system().sleep(time).await;
    let used = used(server).saturating_sub(before);
    100.0 * used.as_secs_f64() / time.as_secs_f64()
}

/// Processor time of the server's processes so far, as the system counts it.
fn used(server: &PostgresServer) -> Duration {
    let pids = fs::read_to_string(server.folder().join("data/postmaster.pid")).unwrap();
    let first = pids.lines().next().unwrap().to_owned();
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|of| of.path());
    let mut all = Duration::ZERO;
    for process in processes {
        // One that has ended meanwhile counts no more.
        let Ok(stat) = fs::read_to_string(process.join("stat")) else {
            continue;
        };
        let Some((_, after_name)) = stat.rsplit_once(") ") else {
            continue;
        };
        let parent = after_name.split(' ').nth(1);
        let is_ours = process.file_name().is_some_and(|pid| pid == first.as_str());
        if is_ours || parent == Some(first.as_str()) {
            all += ran(&process);
        }
    }
    all
}

/// The same of the threads of this process.
fn used_here() -> Duration {
    let threads = fs::read_dir("/proc/self/task").unwrap().flatten();
    threads.map(|thread| ran(&thread.path())).sum()
}

/// Processor time of the server and of this process.
#[derive(Default)]
struct Processor {
    server: Duration,
    here: Duration,
}

impl Processor {
    /// To look takes time of its own here, which is left out.
    fn since(server: &PostgresServer) -> Self {
        let server = used(server);
        let here = used_here();
        Self { server, here }
    }

    fn add(&mut self, since: Self, server: &PostgresServer) {
        self.here += used_here().saturating_sub(since.here);
        self.server += used(server).saturating_sub(since.server);
    }
}

fn ran(task: &Path) -> Duration {
    let ran = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
    let ran = ran.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(ran.unwrap_or(0))
}

async fn one_at_a_time(server: &PostgresServer, rounds: usize, times: &mut Times) {
    let node = node(&server.url(USER, "postgres"));
    let hand = by_hand(server).await;
    for round in 0..rounds {
        let (key, owner) = (format!("k{}", round % 16), format!("o{round}"));
        let token = times.of("acquire", acquire(&node, &key, &owner)).await;
        times
            .of(
                "extend",
                extend(&node, vec![(key.clone(), token)], &owner, 1),
            )
            .await;
        times.of("release", release(&node, &key, &owner)).await;
        times.of("look", look(&node, &key)).await;
        times.of("by hand: take", take(&hand, &key, &owner)).await;
        times.of("by hand: select 1", one(&hand)).await;
    }
}

/// Also how much of the processors both ways take, on the server and here: it differs less from run to run than their time does.
async fn many_at_once(server: &PostgresServer, rounds: usize, times: &mut Times) {
    let node = node(&server.url(USER, "postgres"));
    let hand = by_hand(server).await;
    let mut leases = Vec::new();
    for n in 0..LEASES {
        let key = format!("many/{n}");
        let token = acquire(&node, &key, "holder").await;
        leases.push((key, token));
    }
    let names: Vec<String> = leases.iter().map(|(key, _)| key.clone()).collect();
    let fill = "INSERT INTO by_hand SELECT u, 'holder', now() FROM unnest($1::text[]) AS u";
    hand.execute(fill, &[&names]).await.unwrap();
    let mut processor = [Processor::default(), Processor::default()];
    for round in 0..rounds {
        let extending = async {
            for part in leases.chunks(node.most_extensions()) {
                extend(&node, part.to_vec(), "holder", round as u64 + 1).await;
            }
        };
        let ours = Processor::since(server);
        times.of("1,000 extensions", extending).await;
        processor[0].add(ours, server);
        let by_hand = Processor::since(server);
        times
            .of("by hand: 1,000 extensions", bulk(&hand, &names))
            .await;
        processor[1].add(by_hand, server);
    }
    let rounds = f64::from(u32::try_from(rounds).unwrap());
    for (what, used) in ["1,000 extensions", "by hand"].into_iter().zip(processor) {
        let ms = |time: Duration| time.as_secs_f64() * 1e3 / rounds;
        println!(
            "{what}: {:.2} ms of the server's processor, {:.2} ms of ours",
            ms(used.server),
            ms(used.here)
        );
    }
}

async fn by_hand(server: &PostgresServer) -> Client {
    let url = server.url(USER, "postgres");
    let (hand, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    Spawn::system().spawn(async move { _ = connection.await });
    hand.batch_execute(
        "CREATE TABLE IF NOT EXISTS by_hand (name text PRIMARY KEY, owner text, until timestamptz) WITH (fillfactor = 70)",
    )
    .await
    .unwrap();
    hand
}

#[derive(Default)]
struct Times(std::collections::BTreeMap<&'static str, Vec<Duration>>);

impl Times {
    async fn of<T>(&mut self, what: &'static str, work: impl Future<Output = T>) -> T {
        let clock = Clock::system();
        let began = clock.now();
        let done = work.await;
        self.0
            .entry(what)
            .or_default()
            .push(clock.now().since(began));
        done
    }

    /// Whether a goal was missed.
    fn show(mut self) -> bool {
        for (what, times) in &mut self.0 {
            times.sort();
            let at = |share: usize| times[(times.len() - 1) * share / 100].as_secs_f64() * 1e3;
            println!("{what:<28} p50 {:8.3} ms   p99 {:8.3} ms", at(50), at(99));
        }
        let median = |what: &str| {
            let times = self.0.get(what)?;
            Some(times[times.len() / 2].as_secs_f64())
        };
        let both = (
            median("1,000 extensions"),
            median("by hand: 1,000 extensions"),
        );
        match both {
            (Some(ours), Some(by_hand)) => judged(
                "1,000 extensions, times as long as by hand",
                ours / by_hand,
                MOST_TIMES,
            ),
            _ => false,
        }
    }
}

fn node(url: &str) -> PostgresNode {
    let settings = PostgresNodeSettings {
        address: PgAddress::parse(url).unwrap(),
        listen: None,
        schema: "watchkeeper".to_owned(),
        node_timeout: Duration::from_secs(2),
        namespace: "bench".to_owned(),
        guard: GuardSettings::default(),
    };
    PostgresNode::new(settings, Clock::system(), Spawn::system())
}

async fn ask(node: &PostgresNode, ops: Vec<Op>) -> Vec<Answer> {
    let not_after = None;
    node.call(Call { not_after, ops }).await.unwrap().answers
}

async fn acquire(node: &PostgresNode, key: &str, owner: &str) -> Token {
    let op = Op::Acquire {
        key: key.to_owned(),
        owner: owner.to_owned(),
        kind: Kind::Lock,
        ttl: TTL,
        floor: Token(0),
        take: Take::Observed(None),
        clamp: TTL,
        ticket: None,
        waits: Duration::ZERO,
    };
    match &ask(node, vec![op]).await[..] {
        [Answer::Granted { grant, .. }] => *grant,
        other => panic!("not granted: {other:?}"),
    }
}

async fn extend(node: &PostgresNode, leases: Vec<(String, Token)>, owner: &str, seq: u64) {
    let op = |(key, token): (String, Token)| Op::Extend {
        key,
        owner: owner.to_owned(),
        kind: Kind::Lock,
        seq,
        ttl: TTL,
        token,
        take: Take::Observed(None),
    };
    let answers = ask(node, leases.into_iter().map(op).collect()).await;
    let kept = |answer: &Answer| matches!(answer, Answer::Kept { .. });
    assert!(answers.iter().all(kept), "{answers:?}");
}

async fn release(node: &PostgresNode, key: &str, owner: &str) {
    let op = Op::Release {
        key: key.to_owned(),
        owner: owner.to_owned(),
        kind: Kind::Lock,
        marked: TTL,
        retention: TTL,
    };
    ask(node, vec![op]).await;
}

async fn look(node: &PostgresNode, key: &str) {
    ask(
        node,
        vec![Op::Read {
            key: key.to_owned(),
        }],
    )
    .await;
}

/// One row under its lock, in one statement: the least that a lock in a table can cost.
async fn take(hand: &Client, key: &str, owner: &str) {
    let take = "INSERT INTO by_hand VALUES ($1, $2, now() + interval '1 minute') \
        ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until";
    hand.execute(take, &[&key, &owner]).await.unwrap();
}

async fn one(hand: &Client) {
    hand.query_one("SELECT 1", &[]).await.unwrap();
}

/// All rows locked, then updated, in one transaction.
async fn bulk(hand: &Client, names: &[String]) {
    hand.batch_execute("BEGIN").await.unwrap();
    let lock = "SELECT FROM by_hand WHERE name = ANY ($1) FOR UPDATE";
    hand.query(lock, &[&names]).await.unwrap();
    let update = "UPDATE by_hand SET until = now() + interval '1 minute' WHERE name = ANY ($1)";
    hand.execute(update, &[&names]).await.unwrap();
    hand.batch_execute("COMMIT").await.unwrap();
}
