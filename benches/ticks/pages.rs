//! The page of one replica of a fleet: how long it takes, what those who follow it cost, and whether many who ask delay the renewals
//! of what the replica leads.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use watchkeeper::clock::Clock;

use crate::{
    Plan,
    child::{Task, When, Who},
    process::{Done, Process},
    scene::{NODES, Scene, pause},
    table::{Goal, Row, Table, time},
};

/// Processes of replicas beside the one whose page it is.
const PROCESSES: usize = 4;
/// The pages that are asked for and followed.
const PAGES: [(&str, &str); 2] = [("the page", "/"), ("the page of a job", "/jobs/job-0007")];
/// Requests of which the slowest counts, in milliseconds.
const REQUESTS: usize = 30;
const PAGE_MS: f64 = 300.0;
/// Who follows the page, and what they cost together, in percent of a processor.
const VIEWERS: usize = 10;
const VIEWERS_COST: f64 = 5.0;
/// Clients that ask again as soon as they have an answer, and some that never end their request.
const ASKING: usize = 48;
const SLOW: usize = 16;
/// A renewal is at most so late, in milliseconds: a tenth of the ttl.
const LAG_MS: f64 = 1_000.0;
/// Between two ticks of a job.
const EVERY_MS: u64 = 60_000;

pub(crate) fn measure(plan: Plan, table: &mut Table) {
    for &(replicas, jobs) in plan.pages {
        of_fleet(replicas, jobs, plan, table);
    }
}

fn of_fleet(replicas: usize, jobs: usize, plan: Plan, table: &mut Table) {
    let scene = Scene::admitted(NODES);
    let address = free_address();
    let task = Task {
        page: Some(address),
        ..scene.task(Who::Led, When::SpreadOver(EVERY_MS), jobs, 1)
    };
    let mut page = Process::start(&task);
    let others: Vec<Process> = shares(replicas - 1)
        .map(|n| scene.replicas(Who::Led, When::SpreadOver(EVERY_MS), jobs, n))
        .collect();
    // Beside them the page's own replica has one job that watches its lease.
    scene.wait_until_led(&mut page, jobs + 1);
    wait_for_replicas(address, replicas);
    pause(plan.settle() * 2);
    let name = format!("{replicas} replicas, {jobs} jobs");

    for (what, path) in PAGES {
        let (words, slowest) = slowest(address, path);
        table.add(
            Row::new(format!("{name}: {what}, slowest of {REQUESTS}, ms"), NODES)
                .ours(words)
                .figure(slowest.as_secs_f64() * 1e3)
                .goal(Goal::AtMost(PAGE_MS)),
        );
    }

    let quiet = watch(&mut page, plan);
    for (what, path) in PAGES {
        let crowd = Crowd::of(VIEWERS, move |end, _| follow(address, path, end));
        pause(Duration::from_secs(2));
        let viewed = watch(&mut page, plan);
        drop(crowd);
        table.add(
            Row::new(
                format!("{name}: {VIEWERS} who follow {what}, percent of a processor"),
                NODES,
            )
            .ours(format!(
                "worker {:.1} % with them, {:.1} % without",
                viewed.cpu_percent(),
                quiet.cpu_percent()
            ))
            .figure(viewed.cpu_percent() - quiet.cpu_percent())
            .goal(Goal::AtMost(VIEWERS_COST)),
        );
    }

    let usual = lows(&quiet).last().copied().expect("a renewal");
    let answers = Arc::new(AtomicUsize::new(0));
    let counted = answers.clone();
    let crowd = Crowd::of(ASKING + SLOW, move |end, number| match number < ASKING {
        true => ask_on(address, end, &counted),
        false => dawdle(address, end),
    });
    let flooded = watch(&mut page, plan);
    drop(crowd);
    let all = lows(&flooded);
    let lag = usual.saturating_sub(all[0]);
    table.add(
        Row::new(
            format!("{name}: {ASKING} who ask without a pause, {SLOW} slow: latest renewal, ms"),
            NODES,
        )
        .ours(format!(
            "{} renewals, {} answers, worker {:.0} %",
            all.len(),
            answers.load(Ordering::Relaxed),
            flooded.cpu_percent()
        ))
        .figure(lag.as_secs_f64() * 1e3)
        .goal(Goal::AtMost(LAG_MS)),
    );
    drop(others);
}

/// How long the requests of a page took, in words, and the slowest of them. The first comes after a silence.
fn slowest(address: SocketAddr, path: &str) -> (String, Duration) {
    let mut took: Vec<Duration> = (0..REQUESTS)
        .map(|_| {
            pause(Duration::from_millis(200));
            let (took, bytes) = get(address, path).expect("the page answers");
            assert!(bytes > 2_000, "a page of {bytes} bytes");
            took
        })
        .collect();
    took.sort_unstable();
    let slowest = took[took.len() - 1];
    let words = format!("p50 {}, most {}", time(took[took.len() / 2]), time(slowest));
    (words, slowest)
}

/// What the page's replica does for a while.
fn watch(page: &mut Process, plan: Plan) -> Done {
    page.begin();
    pause(plan.time);
    page.end()
}

/// What was left of the lease at each renewal, the least first.
fn lows(done: &Done) -> Vec<Duration> {
    let mut lows = done.delays.clone();
    lows.sort_unstable();
    lows
}

/// So many replicas, in the processes beside.
fn shares(replicas: usize) -> impl Iterator<Item = usize> {
    let share = move |n: usize| (replicas + PROCESSES - 1 - n) / PROCESSES;
    (0..PROCESSES).map(share).filter(|share| *share > 0)
}

/// An address that is free at the moment.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap()
}

/// Until the page knows all replicas.
fn wait_for_replicas(address: SocketAddr, replicas: usize) {
    for _ in 0..600 {
        if let Ok(text) = read(address, "/api/v1/replicas?limit=100")
            && text.matches("\"pid\":").count() >= replicas
        {
            return;
        }
        pause(Duration::from_millis(200));
    }
    panic!("the page does not know {replicas} replicas after two minutes");
}

// === clients ===

/// Clients in threads of their own. They end with it.
struct Crowd {
    end: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// How long it took, and the bytes of the answer.
fn get(address: SocketAddr, path: &str) -> std::io::Result<(Duration, usize)> {
    let clock = Clock::system();
    let asked = clock.now();
    let answer = read(address, path)?;
    Ok((clock.now().since(asked), answer.len()))
}

fn read(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut client = ask(address, path)?;
    let mut answer = Vec::new();
    client.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn ask(address: SocketAddr, path: &str) -> std::io::Result<TcpStream> {
    let mut client = TcpStream::connect(address)?;
    client.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(client, "GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n")?;
    Ok(client)
}

/// As a browser with the page open does.
fn follow(address: SocketAddr, path: &str, end: &AtomicBool) {
    let mut client = ask(address, &format!("/events?path={path}")).unwrap();
    client
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let mut block = [0; 16 * 1024];
    while !end.load(Ordering::Relaxed) {
        match client.read(&mut block) {
            Ok(0) => panic!("the stream has ended"),
            Ok(_) => {}
            Err(error) => assert!(
                matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ),
                "{error}"
            ),
        }
    }
}

/// Some are sent away: there are bounds on how many are served.
fn ask_on(address: SocketAddr, end: &AtomicBool, answers: &AtomicUsize) {
    while !end.load(Ordering::Relaxed) {
        match get(address, "/") {
            Ok(_) => _ = answers.fetch_add(1, Ordering::Relaxed),
            Err(_) => pause(Duration::from_millis(5)),
        }
    }
}

/// Sends a letter of its request now and then.
fn dawdle(address: SocketAddr, end: &AtomicBool) {
    while !end.load(Ordering::Relaxed) {
        let Ok(mut client) = TcpStream::connect(address) else {
            continue;
        };
        while !end.load(Ordering::Relaxed) && client.write_all(b"G").is_ok() {
            pause(Duration::from_millis(500));
        }
    }
}

// === impl Crowd ===

impl Crowd {
    fn of(clients: usize, client: impl Fn(&AtomicBool, usize) + Clone + Send + 'static) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let start = |number| {
            let (end, client) = (end.clone(), client.clone());
            std::thread::spawn(move || client(&end, number))
        };
        Self {
            threads: (0..clients).map(start).collect(),
            end,
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("a client has panicked");
        }
    }
}
