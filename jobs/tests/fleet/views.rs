//! What people are shown while leaders die: the page, its JSON, and `status --json`.

use std::{
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use jiff::Timestamp;
use serde_json::Value;
use watchkeeper::clock::{Clock, Moment};

use crate::{
    fleet::{Fleet, TTL, pulse},
    log::Line,
    store::Store,
    wait::{SOON, pause, soon},
};

/// Time between two looks of one who looks.
const LOOK: Duration = Duration::from_millis(50);

/// One answer: whom it names as leader.
#[derive(Clone, Debug)]
struct Shown {
    from: String,
    asked: Timestamp,
    leaders: Vec<String>,
    /// It says that it does not know who leads, or who that is.
    unknown: bool,
}

/// Those who look, and what they saw. They stop with it.
struct Watchers {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<Shown>>>,
    threads: Vec<JoinHandle<()>>,
}

/// Two takeovers in the daily run, twenty in the long one, four seconds each; `WATCHKEEPER_TAKEOVERS` says how many.
fn takeovers() -> usize {
    let said = std::env::var("WATCHKEEPER_TAKEOVERS").ok();
    let long = std::env::var_os("WATCHKEEPER_LONG").is_some();
    let usual = if long { 20 } else { 2 };
    said.and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// However often leaders die, no answer names two, none names the dead one once its successor has run, and whoever has
/// been named stays named.
pub(crate) fn no_view_names_two_leaders_or_a_dead_one(store: Store) {
    let mut fleet = Fleet::of(2, store, &pulse());
    let mut led = fleet.leader("pulse");
    let (mut answers, mut late) = (0, Duration::ZERO);
    for _ in 0..takeovers() {
        fleet.join();
        let (dead, name) = (fleet.replica(led.worker), format!("w{}", led.worker));
        fleet.beats().wait(SOON, "run", |b| b.token == led.token);
        let watchers = Watchers::of(&fleet);
        pause(LOOK * 4);
        let mark = fleet.log.mark();
        fleet.kill(led.worker);
        let next = fleet.next_leader(mark, "pulse");
        let ran = fleet
            .beats()
            .wait(SOON, "run of the successor", |b| b.token == next.token);
        let (heir, heirs_name) = (fleet.replica(next.worker), format!("w{}", next.worker));
        // For as long as anybody believed the dead one's documents, and longer.
        pause(TTL * 2);
        let seen = watchers.stop();
        answers += seen.len();
        // A lease that a busy machine did not let it extend ends with its name.
        let ends = |l: &Line| l.worker == next.worker && l.is("standing by", "pulse");
        let ended = fleet.log.since(mark).iter().any(ends);
        let mut named = None;
        for shown in &seen {
            assert!(shown.leaders.len() <= 1, "{shown:?}");
            let leader = shown.leaders.first();
            let is = |one: &String| leader.is_some_and(|l| l == one);
            if shown.asked > ran.at {
                assert!(!is(&dead) && !is(&name), "{shown:?}, although {ran:?}");
                assert!(
                    is(&heir) || is(&heirs_name) || shown.unknown || ended,
                    "{shown:?} after {ran:?}"
                );
            }
            if is(&heir) || is(&heirs_name) {
                named.get_or_insert(shown.asked);
            }
        }
        let named = named.expect("somebody was shown the successor");
        let gap = Duration::try_from(named.duration_since(next.said)).unwrap_or_default();
        late = late.max(gap);
        assert!(seen.iter().any(|shown| shown.from == "status"), "{answers}");
        led = match ended {
            true => fleet.leader("pulse"),
            false => next,
        };
    }
    fleet.measured("answers", &answers);
    fleet.measured("a successor was named at the latest after", &late);
}

/// Who cannot reach the lock nodes does not know who leads, and says so: nobody leads is what nodes say.
pub(crate) fn a_view_without_nodes_says_that_it_does_not_know(store: Store) {
    let fleet = Fleet::of(2, store, &pulse());
    let led = fleet.leader("pulse");
    let other = 1 - led.worker;
    let job = |worker: usize| -> Value {
        let body = get(&fleet.page(worker), "/api/v1/jobs").unwrap_or_default();
        let jobs: Value = serde_json::from_str(&body).unwrap_or_default();
        jobs["items"][0].clone()
    };
    soon("the leader on the other's page", || {
        job(other)["leader"]["name"] == format!("w{}", led.worker)
    });
    // As those who stand by read it, every few seconds.
    pause(TTL * 2);
    fleet.store.block();
    soon("a page that does not know", || {
        job(other)["leader_known"] == false
    });
    let shown = job(other);
    assert_eq!(shown["leader"], Value::Null);
    assert_eq!(
        shown["last_seen"]["name"],
        format!("w{}", led.worker),
        "{shown}"
    );
    let page = get(&fleet.page(other), "/").unwrap_or_default();
    assert!(
        page.contains("unknown</strong>") && !page.contains("NO LEADER"),
        "{page}"
    );
    fleet.store.unblock();
    soon("the leader again", || job(other)["leader_known"] == true);
    let nodes = nodes_of(&fleet, other);
    for node in nodes.as_array().into_iter().flatten() {
        assert!(
            node["rtt_us"].is_u64() && node["offset_ms"].is_i64(),
            "{node}"
        );
    }
    let metrics = get(&fleet.page(other), "/metrics").unwrap_or_default();
    let up = metrics
        .lines()
        .filter(|l| l.starts_with("distributed_lock_node_up{"));
    assert_eq!(
        up.count(),
        nodes.as_array().map_or(0, Vec::len),
        "{metrics}"
    );
    assert!(
        metrics.contains("watchkeeper_job_paused{job=\"pulse\"} 0"),
        "{metrics}"
    );
}

/// A master that was started again has no vote for a while; everybody says for how long, and the same.
pub(crate) fn a_master_without_a_vote_is_shown_with_the_time_left(store: Store) {
    let mut fleet = Fleet::of(2, store, &pulse());
    fleet.leader("pulse");
    let mut seen = None;
    // On a busy machine the two seconds may be over before all were asked.
    for _ in 0..5 {
        fleet.store.restart(1);
        seen = all_show_a_wait(&fleet);
        if seen.is_some() {
            break;
        }
        soon("its vote", || nodes_of(&fleet, 0)[1]["votes"] == true);
    }
    let seen = seen.expect("a master that waits for its vote");
    let left: Vec<u64> = seen
        .iter()
        .filter_map(|all| all[1]["votes_in_ms"].as_u64())
        .collect();
    fleet.measured("votes again in", &left);
    for all in &seen {
        assert_eq!(
            (&all[1]["up"], &all[0]["votes"]),
            (&true.into(), &true.into()),
            "{all}"
        );
        let said = all[1]["error"].as_str().unwrap_or_default();
        assert!(said.contains("votes again in"), "{all}");
    }
    // What the replica that has watched it for longest has told, to the second: no figure lies further above the whole watch.
    assert!(left.iter().all(|ms| *ms <= 2_600), "{left:?}");
    soon("its vote", || nodes_of(&fleet, 0)[1]["votes"] == true);
}

/// What two pages and the command show of the nodes, once each of them knows that the second one waits.
fn all_show_a_wait(fleet: &Fleet) -> Option<[Value; 3]> {
    let clock = Clock::system();
    let until = clock.now() + TTL * 2;
    while clock.now() < until {
        let status = fleet.status();
        let shown = [
            nodes_of(fleet, 0),
            nodes_of(fleet, 1),
            status["nodes"].clone(),
        ];
        if shown.iter().all(|all| all[1]["votes_in_ms"].is_u64()) {
            return Some(shown);
        }
    }
    None
}

fn nodes_of(fleet: &Fleet, worker: usize) -> Value {
    let body = get(&fleet.page(worker), "/api/v1/nodes").unwrap_or_default();
    let page: Value = serde_json::from_str(&body).unwrap_or_default();
    page["items"].clone()
}

// === impl Watchers ===

impl Watchers {
    /// Of every worker's page and JSON, and of the command.
    fn of(fleet: &Fleet) -> Self {
        let mut watchers = Self {
            stop: Arc::default(),
            seen: Arc::default(),
            threads: Vec::new(),
        };
        for worker in fleet.workers() {
            let at = fleet.page(worker);
            let json = at.clone();
            watchers.watch("JSON", move || by_json(&get(&json, "/api/v1/fleet")?));
            watchers.watch("page", move || by_page(&get(&at, "/")?));
        }
        let (file, folder) = (fleet.file("fleet.toml"), fleet.folder().to_owned());
        watchers.watch("status", move || {
            let done = Command::new(env!("CARGO_BIN_EXE_watchkeeper"))
                .args(["status", "--json", "--config"])
                .arg(&file)
                .current_dir(&folder)
                .output()
                .expect("the command runs");
            by_json(&String::from_utf8_lossy(&done.stdout))
        });
        watchers
    }

    fn watch(
        &mut self,
        from: &str,
        look: impl Fn() -> Option<(Vec<String>, bool)> + Send + 'static,
    ) {
        let (stop, seen, from) = (self.stop.clone(), self.seen.clone(), from.to_owned());
        self.threads.push(std::thread::spawn(move || {
            let clock = Clock::system();
            let mut next: Moment = clock.now();
            while !stop.load(Ordering::SeqCst) {
                let asked = clock.wall();
                if let Some((leaders, unknown)) = look() {
                    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                    seen.push(Shown {
                        from: from.clone(),
                        asked,
                        leaders,
                        unknown,
                    });
                }
                next = (next + LOOK).max(clock.now());
                pause(next.since(clock.now()).max(LOOK / 10));
            }
        }));
    }

    fn stop(self) -> Vec<Shown> {
        self.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().expect("whoever looks does not fail");
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *seen)
    }
}

// === helpers ===

/// The ids of all that are called leader: of the job, and among the replicas.
fn by_json(body: &str) -> Option<(Vec<String>, bool)> {
    let fleet: Value = serde_json::from_str(body).ok()?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let replicas = fleet["replicas"].as_array()?.iter();
    let called = replicas.filter(|replica| replica["role"] == "leader");
    let mut leaders: Vec<String> = called.map(|replica| text(&replica["id"])).collect();
    let job = &fleet["jobs"][0];
    let leader = text(&job["leader"]["replica"]);
    let unnamed = !job["leader"].is_null() && leader.is_empty();
    leaders.extend(Some(leader).filter(|id| !id.is_empty()));
    leaders.sort();
    leaders.dedup();
    Some((leaders, unnamed || job["leader_known"] == false))
}

/// The names in the leader's column, and of replicas that are called leader.
fn by_page(page: &str) -> Option<(Vec<String>, bool)> {
    let (_, job) = page.split_once("<td data-label=\"Leader\">")?;
    let (cell, _) = job.split_once("<td")?;
    let mut leaders = Vec::new();
    let unnamed = cell.starts_with("<b>a replica not yet heard of");
    if let Some(name) = cell.strip_prefix("<b>").filter(|_| !unnamed) {
        leaders.push(name.split('<').next().unwrap_or_default().to_owned());
    }
    let rows = page.split("<td data-label=\"Replica\">").skip(1);
    for row in rows.filter(|row| row.contains("<td data-label=\"Role\"><b>leader</b>")) {
        // A link, with the name in it.
        let (_, name) = row.split_once('>')?;
        leaders.push(name.split('<').next().unwrap_or_default().to_owned());
    }
    leaders.sort();
    leaders.dedup();
    Some((leaders, unnamed || cell.contains("unknown")))
}

/// The body of an answer; `None` when there is none, as from the dead.
fn get(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(SOON)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.contains(" 200 ").then(|| body.to_owned())
}
