//! One listing, and one admission, beside many leases: what they cost the leases of others, and what many leases cost a node.

use std::{
    io::{BufRead, BufReader, Read, Write},
    ops::Range,
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use deadpool_redis::redis::{Value, cmd};
use serde_json::json;
use watchkeeper_lock::{
    clock::Clock,
    lease::Lease,
    lock::{Claim, Claimed, Locks},
};

use crate::{
    Plan,
    raw::connect,
    scene::{Scene, bootstrap, guarded_at},
    server::RedisServer,
    table::{Goal, Row, Table, micros, p50, percentile, time},
};

/// Says to this program that it plants leases: from which number to which, for how long in milliseconds, and where.
pub(crate) const PLANT: &str = "--plant";

const NODES: usize = 3;
/// Leases that are renewed meanwhile.
const BESIDE: usize = 100;
const BRISK: Duration = Duration::from_secs(2);
/// Longer than everything takes: of what is listed nothing is extended meanwhile.
const LONG: Duration = Duration::from_secs(600);
/// Leases that one process plants: it has gone before it would extend the first.
const PLANTER: usize = 20_000;
/// Claims of one call, and how many calls in a row may be in vain.
const AT_ONCE: usize = 1_000;
const TRIES: usize = 100;
/// Until a node that was admitted must vote.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long others are watched at least, and at most, while nothing happens.
const CALM: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// The longest stop of a server, in milliseconds, over what the pings show while nothing happens.
const LONGEST_MS: f64 = 2.0;
/// The most memory of a node for 200,000 leases, in MB of 1,000,000 bytes.
const MOST_MB: (usize, f64) = (200_000, 60.0);

pub(crate) async fn measure(plan: Plan, table: &mut Table) {
    if plan.nodes([NODES]).next().is_none() {
        return;
    }
    let planting = one_listing(plan, table).await;
    one_admission(plan, planting, table).await;
}

/// How long the planting took.
async fn one_listing(plan: Plan, table: &mut Table) -> Duration {
    let scene = Scene::start(NODES).await;
    bootstrap(&scene.urls(), LONG).await;
    let (holder, lister) = (guarded(&scene, LONG).await, guarded(&scene, LONG).await);
    let beside = hold(&scene, &holder).await;
    let before = memory(&scene.servers);
    let (planting, planted) = scene
        .timed(async { plant(&scene, plan.leases, LONG) })
        .await;
    // The connections of the clients that have gone, and the tables that grew, are put in order.
    scene.clock.sleep(Duration::from_millis(500)).await;
    let each = memory(&scene.servers).into_iter().zip(before);
    let most = each.map(|(after, before)| after.saturating_sub(before));
    let most = most.max().unwrap_or_default();
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let (mb, each) = (most as f64 / 1e6, most as f64 / planted as f64);
    let row = Row::new(format!("memory of a node for {planted} leases, MB"), NODES)
        .ours(format!("{each:.0} bytes each"))
        .beside(format!("planted in {}", time(planting)))
        .figure(mb);
    table.add(if planted == MOST_MB.0 {
        row.goal(Goal::AtMost(MOST_MB.1))
    } else {
        row
    });

    let watch = Watch::begin(&scene).await;
    let (took, listed) = scene.timed(lister.list("")).await;
    let seen = watch.end(&scene, took).await;
    let (said, whole) = match listed {
        Ok(listed) => {
            let all = planted + BESIDE;
            let said = format!("{} of {all} listed in {}", listed.len(), time(took));
            (said, listed.len() == all && planted == plan.leases)
        }
        Err(why) => (format!("no list after {}: {why}", time(took)), false),
    };
    seen.show("one listing", &said, whole, &beside, table);
    planting
}

async fn one_admission(plan: Plan, planting: Duration, table: &mut Table) {
    let mut scene = Scene::start(NODES).await;
    let watched = plan.max_ttl;
    bootstrap(&scene.urls(), watched).await;
    let holder = guarded(&scene, watched).await;
    let beside = hold(&scene, &holder).await;
    // It has forgotten everything, and is watched for the longest lease before it is told. What is planted on the others
    // late enough, lives then.
    scene.servers[NODES - 1].restart();
    let admitted = scene.clock.now() + watched;
    let ahead = planting.mul_f64(1.3) + watched / 10;
    let wait = watched.saturating_sub(ahead);
    scene.clock.sleep(wait).await;
    let planted = plant(&scene, plan.leases, watched);
    scene.clock.sleep_until(admitted).await;

    let watch = Watch::begin(&scene).await;
    let start = scene.clock.now();
    let mut votes = false;
    while !votes && scene.clock.now().since(start) < PATIENCE {
        scene.clock.sleep(Duration::from_millis(20)).await;
        let nodes = holder.admissions().await.unwrap_or_default();
        votes = nodes.last().is_some_and(|node| node.state.votes());
    }
    let took = scene.clock.now().since(start);
    let seen = watch.end(&scene, took).await;
    let said = if votes {
        format!("beside {planted}: votes {} after its watch", time(took))
    } else {
        format!("beside {planted}: no vote after {}", time(took))
    };
    let done = votes && planted == plan.leases;
    seen.show("one admission", &said, done, &beside, table);
}

async fn guarded(scene: &Scene, max_ttl: Duration) -> Locks {
    let locks = guarded_at(&scene.urls(), max_ttl);
    scene.all_up(&locks).await;
    locks
}

/// Leases that live for two seconds, and are renewed.
async fn hold(scene: &Scene, locks: &Locks) -> Vec<Lease> {
    let mut held = Vec::new();
    for i in 0..BESIDE {
        let lock = locks.lock(&format!("beside-{i}")).ttl(BRISK);
        held.push(lock.wait(Duration::from_secs(10)).acquire().await.unwrap());
    }
    scene.quiet().await;
    held
}

// === what is planted ===

/// Leases whose holders have vanished: processes of their own take them, one after the other, and are killed. How many could
/// be had.
fn plant(scene: &Scene, leases: usize, ttl: Duration) -> usize {
    let mut planted = 0;
    for first in (0..leases).step_by(PLANTER) {
        let numbers = [first, leases.min(first + PLANTER)].map(|n| n.to_string());
        let child = Command::new(std::env::current_exe().unwrap())
            .arg(PLANT)
            .args(numbers)
            .arg(ttl.as_millis().to_string())
            .args(scene.urls())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut child = Planter(child);
        let mut said = String::new();
        let stdout = child.0.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut said).unwrap();
        planted += said.trim().parse::<usize>().unwrap();
    }
    planted
}

/// Killed and reaped on drop.
struct Planter(Child);

impl Drop for Planter {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The planter's part.
pub(crate) fn planter(words: &[String]) -> ExitCode {
    let [first, end, ttl_ms, urls @ ..] = words else {
        return ExitCode::from(2);
    };
    let numbers = first.parse().unwrap()..end.parse().unwrap();
    let ttl = Duration::from_millis(ttl_ms.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let (_locks, held) = runtime.unwrap().block_on(take(urls, numbers, ttl));
    println!("{}", held.len());
    // Until the parent kills it, or has gone: nothing is released either way.
    _ = std::io::stdin().read(&mut [0]);
    std::process::abort()
}

async fn take(urls: &[String], numbers: Range<usize>, ttl: Duration) -> (Locks, Vec<Lease>) {
    let locks = guarded_at(urls, ttl);
    let claim = |i: usize| Claim {
        ttl: Some(ttl),
        ..Claim::named(format!("lock/planted-{i}"))
    };
    let (mut held, mut in_vain) = (Vec::new(), 0);
    let mut wanted: Vec<usize> = numbers.collect();
    while !wanted.is_empty() && in_vain < TRIES {
        let now = wanted.split_off(wanted.len().saturating_sub(AT_ONCE));
        let claims = now.iter().map(|i| claim(*i)).collect();
        let claimed = locks.claim(claims).await.unwrap();
        let before = held.len();
        for (i, claimed) in now.into_iter().zip(claimed) {
            match claimed {
                Claimed::Acquired(lease) => held.push(lease),
                // On a busy machine a node may take longer than it may: then again.
                _ => wanted.push(i),
            }
        }
        in_vain = if held.len() > before { 0 } else { in_vain + 1 };
        if in_vain > 0 {
            locks.clock().sleep(Duration::from_millis(50)).await;
        }
    }
    (locks, held)
}

/// What each server says that it uses, in bytes.
fn memory(servers: &[RedisServer]) -> Vec<u64> {
    let used = |server: &RedisServer| {
        let info = server.raw(&["INFO", "memory"]);
        let used = info.lines().find_map(|l| l.strip_prefix("used_memory:"));
        used.unwrap().trim().parse().unwrap()
    };
    servers.iter().map(used).collect()
}

// === what others notice ===

/// Watches whether servers answer, from outside.
struct Watch(Pings);

/// What was noticed while something happened, and while nothing did.
struct Seen {
    during: Vec<Duration>,
    calm: Vec<Duration>,
    /// The longest of the servers' calls meanwhile, as they count it, and what it was.
    slowest: (Duration, String),
    /// How many took longer than a server may stop.
    overlong: usize,
}

impl Watch {
    async fn begin(scene: &Scene) -> Self {
        for server in &scene.servers {
            let mut link = connect(&server.url()).await;
            for (name, value) in [("slowlog-log-slower-than", 500), ("slowlog-max-len", 2_000)] {
                let set = cmd("CONFIG").arg("SET").arg(name).arg(value).clone();
                set.exec_async(&mut link).await.unwrap();
            }
            let reset = cmd("SLOWLOG").arg("RESET").clone();
            reset.exec_async(&mut link).await.unwrap();
        }
        Self(Pings::begin(scene))
    }

    /// After what took so long; then as long while nothing happens.
    async fn end(self, scene: &Scene, took: Duration) -> Seen {
        let during = self.0.end();
        let (mut slowest, mut overlong) = ((Duration::ZERO, String::new()), 0);
        for server in &scene.servers {
            let mut link = connect(&server.url()).await;
            let get = cmd("SLOWLOG").arg("GET").arg(2_000).clone();
            let calls: Vec<Vec<Value>> = get.query_async(&mut link).await.unwrap();
            for call in calls {
                let Some(Value::Int(us)) = call.get(2) else {
                    continue;
                };
                let took = Duration::from_micros(us.unsigned_abs());
                overlong += usize::from(micros(took) / 1e3 > LONGEST_MS);
                if took > slowest.0 {
                    slowest = (took, what(call.get(3)));
                }
            }
        }
        scene.quiet().await;
        let calm = Pings::begin(scene);
        scene.clock.sleep(took.clamp(CALM.0, CALM.1)).await;
        Seen {
            during,
            calm: calm.end(),
            slowest,
            overlong,
        }
    }
}

impl Seen {
    fn show(&self, what: &str, said: &str, done: bool, beside: &[Lease], table: &mut Table) {
        let text = |pings: &[Duration]| {
            let longest = percentile(pings, 100);
            format!("p50 {}, longest {}", time(p50(pings)), time(longest))
        };
        let longest = |pings: &[Duration]| micros(percentile(pings, 100)) / 1e3;
        let stop = (longest(&self.during) - longest(&self.calm)).max(0.0);
        let row = Row::new(
            format!("longest stop of a server, {what}, over the calm, ms"),
            NODES,
        )
        .ours(format!(
            "{said}; pings {}; slowest call {} ({}), {} longer than {LONGEST_MS} ms",
            text(&self.during),
            time(self.slowest.0),
            self.slowest.1,
            self.overlong
        ))
        .beside(format!("calm: {}", text(&self.calm)))
        // What was not done stopped nobody, but is no success.
        .figure(if done { stop } else { f64::NAN })
        .goal(Goal::AtMost(LONGEST_MS))
        .more(json!({
            "longest_ms": longest(&self.during), "calm_longest_ms": longest(&self.calm),
            "slowest_call_us": micros(self.slowest.0), "slowest_call": self.slowest.1,
            "overlong_calls": self.overlong, "pings": self.during.len(), "done": done,
        }));
        table.add(row);
        let lost = beside.iter().filter(|lease| !lease.is_held()).count();
        #[allow(clippy::cast_precision_loss, reason = "a hundred")]
        let row = Row::new(format!("leases lost beside {what}, ttl 2 s"), NODES)
            .ours(format!("{lost} of {}", beside.len()))
            .figure(lost as f64)
            .goal(Goal::AtMost(0.0));
        table.add(row);
    }
}

/// What a call in the log of slow ones was: the command, and of a script of ours its first operation.
fn what(words: Option<&Value>) -> String {
    let Some(Value::Array(words)) = words else {
        return String::from("?");
    };
    let words = words.iter().filter_map(|word| match word {
        Value::BulkString(word) => std::str::from_utf8(word).ok(),
        _ => None,
    });
    let is_name = |word: &&str| word.len() > 3 && word.bytes().all(|b| b.is_ascii_lowercase());
    let words: Vec<&str> = words.collect();
    let of_script = words.iter().skip(1).copied().find(is_name);
    let all = words.first().copied().into_iter().chain(of_script);
    all.collect::<Vec<_>>().join(" ")
}

/// A ping every millisecond on a connection of its own to each server, from a thread of its own.
struct Pings {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Duration>>>,
}

impl Pings {
    fn begin(scene: &Scene) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let threads = scene.servers.iter().map(|server| {
            let (over, socket) = (over.clone(), server.socket());
            std::thread::spawn(move || ping(&over, &socket))
        });
        Self {
            threads: threads.collect(),
            over,
        }
    }

    /// How long each took, once the last has been answered.
    fn end(self) -> Vec<Duration> {
        self.over.store(true, Ordering::SeqCst);
        let threads = self.threads.into_iter();
        threads.flat_map(|pings| pings.join().unwrap()).collect()
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "no runtime: what is late is the server"
)]
fn ping(over: &AtomicBool, socket: &Path) -> Vec<Duration> {
    let (clock, mut took) = (Clock::system(), Vec::new());
    let mut stream = UnixStream::connect(socket).unwrap();
    while !over.load(Ordering::SeqCst) {
        let start = clock.now();
        stream.write_all(b"PING\r\n").unwrap();
        stream.read_exact(&mut [0; "+PONG\r\n".len()]).unwrap();
        took.push(clock.now().since(start));
        std::thread::sleep(Duration::from_millis(1));
    }
    took
}
