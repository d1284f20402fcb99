use std::{
    collections::BTreeSet,
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use axum::{body::Body, extract::ConnectInfo, routing::get};
use futures_util::stream::once;
use jiff::{SignedDuration, Timestamp};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Semaphore,
    task::JoinHandle,
};

use super::*;

mod access;
mod crowds;
mod forms;
mod lists;
mod pages;
mod reference;
mod streams;

use crate::{
    clock::Clock,
    event::{Event, Events},
    fleet::{
        JobFacts, RunFilter,
        audit::{AuditEntry, InForce},
        client::recent::RecentRuns,
        history::RunRecord,
        items::{HeldItem, ItemPage, ItemState, ItemsAsked, ItemsChanged, WhichItems},
        status::{
            FleetStatus, HeldItems, JobPresence, JobStanding, JobStatus, JobTrouble, LastSeen,
            LeaderStatus, LockDetail, LockStatus, NodeStatus, Presence, ReplicaStatus, Role,
            RunStatus,
        },
    },
    node::Token,
    secret::Secret,
    spawn::Spawn,
    telemetry::metrics::Metrics,
};

#[derive(Default)]
pub(super) struct Fake {
    fleet: FleetStatus,
    no_locks: bool,
    stalled: bool,
    draining: AtomicBool,
    unready: Option<&'static str>,
    hangs: bool,
    no_token: bool,
    read_only: bool,
    /// As if other machines could reach it, too.
    reachable: bool,
    hosts: &'static [&'static str],
    proxies: &'static [&'static str],
    /// How far the fleet's time is ahead of this machine's.
    ahead: SignedDuration,
    events: Events,
    /// What the store tells of each job.
    facts: JobFacts,
    user_header: Option<&'static str>,
    /// What was ordered by people, and how much of it was carried out.
    given: Mutex<Vec<Asked>>,
    carried_out: AtomicUsize,
    /// What each order of a job waits for.
    gate: Option<Arc<Semaphore>>,
    /// What the fleet has become, once that is set.
    later: Mutex<Option<FleetStatus>>,
    /// What this replica knows of it by itself.
    own: FleetStatus,
    /// How long the fleet takes to be read.
    slow_fleet: Option<(Clock, Duration)>,
    /// How often the fleet was read, and items of it.
    pub(super) readings: AtomicUsize,
    /// How many jobs were looked at by themselves, each time.
    pub(super) looks: Mutex<Vec<usize>>,
    /// How long items take to be listed.
    slow: Option<(Clock, Duration)>,
    metrics: Option<Metrics>,
    in_force: Vec<InForce>,
    /// The orders that are remembered, the latest first.
    orders: Vec<AuditEntry>,
    /// Every lock; that of one job where none is given.
    known_locks: Vec<LockStatus>,
    trace_link: Option<&'static str>,
}

impl Fake {
    pub(super) fn of(fleet: FleetStatus) -> Self {
        Self {
            fleet,
            ..Self::default()
        }
    }

    /// A fleet that takes so long to be read, and of which the replica knows this much by itself.
    pub(super) fn slowly(
        fleet: FleetStatus,
        own: FleetStatus,
        (clock, by): (Clock, Duration),
    ) -> Self {
        Self {
            own,
            slow_fleet: Some((clock, by)),
            ..Self::of(fleet)
        }
    }

    /// From now on the fleet is this.
    pub(super) fn becomes(&self, fleet: FleetStatus) {
        *self.later.lock().unwrap() = Some(fleet);
    }

    fn now(&self) -> FleetStatus {
        let later = self.later.lock().unwrap().clone();
        later.unwrap_or_else(|| self.fleet.clone())
    }

    /// Whose databases are gone, which takes so long to be known.
    pub(super) fn without_items(clock: Clock, after: Duration) -> Self {
        Self {
            no_locks: true,
            slow: Some((clock, after)),
            ..Self::default()
        }
    }
}

#[async_trait]
impl AdminSource for Fake {
    fn replica(&self) -> String {
        "host-7-a".into()
    }
    fn wall(&self) -> Timestamp {
        Clock::system().wall() + self.ahead
    }
    async fn fleet(&self) -> FleetStatus {
        self.readings.fetch_add(1, Ordering::SeqCst);
        if self.hangs {
            std::future::pending::<()>().await;
        }
        if let Some((clock, by)) = &self.slow_fleet {
            clock.sleep(*by).await;
        }
        self.now()
    }
    async fn some(&self, names: &BTreeSet<String>) -> FleetStatus {
        self.looks.lock().unwrap().push(names.len());
        let mut fleet = self.now();
        fleet.jobs.retain(|job| names.contains(&job.name));
        fleet
    }
    fn known(&self) -> FleetStatus {
        self.own.clone()
    }
    fn jobs(&self) -> usize {
        self.own.jobs.len()
    }
    async fn locks(&self) -> Result<Vec<LockStatus>, String> {
        if self.no_locks {
            return Err("no majority".into());
        }
        if !self.known_locks.is_empty() {
            return Ok(self.known_locks.clone());
        }
        Ok(vec![LockStatus {
            key: "job/report".into(),
            ..LockStatus::default()
        }])
    }
    async fn some_runs(
        &self,
        job: &str,
        filter: &RunFilter,
        limit: usize,
    ) -> Result<Option<Vec<RunRecord>>, String> {
        if self.no_locks {
            return Err("no majority".into());
        }
        let run = |n: u64| RunRecord {
            job: job.to_owned(),
            seq: n,
            ..RunRecord::default()
        };
        let known = job == "report";
        let wanted = (0..100).map(run).filter(|run| filter.wants(run));
        let wanted: Vec<RunRecord> = wanted.collect();
        let last = wanted.len().saturating_sub(limit);
        Ok(known.then(|| wanted[last..].to_vec()))
    }
    async fn recent(&self, asked: RecentAsked) -> Result<RecentRuns, String> {
        if self.no_locks {
            return Err("no majority".into());
        }
        let run = |job: &str, outcome: &str, replica: &str, took_ms: u64| RunRecord {
            job: job.to_owned(),
            outcome: outcome.to_owned(),
            replica_name: replica.to_owned(),
            detail: "a secret of a run".to_owned(),
            took_ms: Some(took_ms),
            ..RunRecord::default()
        };
        let all = [
            run("report", "failed", "alpha", 20),
            run("mail", "done", "beta", 50),
        ];
        let runs = all
            .into_iter()
            .filter(|run| run.job.contains(&asked.job_has) && asked.filter.wants(run));
        let runs = runs.take(asked.most).collect();
        Ok(RecentRuns { runs, unread: 7 })
    }
    async fn in_force(&self) -> Result<Vec<InForce>, String> {
        Ok(self.in_force.clone())
    }
    async fn audit(&self) -> Result<Vec<AuditEntry>, String> {
        Ok(self.orders.clone())
    }
    fn live(&self) -> Result<(), String> {
        if self.stalled {
            return Err("the keeper stands still".into());
        }
        Ok(())
    }
    fn ready(&self) -> Result<(), String> {
        if self.draining.load(Ordering::SeqCst) {
            return Err("draining".into());
        }
        match self.unready {
            Some(why) => Err(why.into()),
            None => Ok(()),
        }
    }
    fn leads(&self, job: &str) -> Option<bool> {
        match job {
            "report" => Some(true),
            "mail" => Some(false),
            _ => None,
        }
    }
    fn leads_any(&self) -> bool {
        true
    }
    async fn order(&self, job: &str, order: Order) -> Result<Done, OrderError> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        if let Some(gate) = &self.gate {
            gate.acquire().await.unwrap().forget();
        }
        if job != "report" {
            return Err(OrderError::Unknown(format!("there is no job {job}")));
        }
        if order == Order::Resume {
            return Err(OrderError::NotPossible("not now".to_owned()));
        }
        Ok(Done {
            answer: format!("{order:?}").into(),
            heard: !matches!(order, Order::Trigger { .. }),
        })
    }
    async fn triggers(&self, job: Option<&str>) -> Result<serde_json::Value, String> {
        Ok(serde_json::json!([{"id": "t", "job": job}]))
    }
    async fn withdraw(&self, id: &str) -> Result<Done, OrderError> {
        match id {
            "t" => Ok(Done {
                answer: "withdrawn".into(),
                heard: true,
            }),
            "many" => Err(OrderError::TooMany("too many".to_owned())),
            _ => Err(OrderError::NotPossible("it has started".to_owned())),
        }
    }
    fn trace_link(&self) -> Option<String> {
        self.trace_link.map(str::to_owned)
    }
    fn told_of(&self, job: &str) -> Vec<String> {
        match job {
            "report" => vec!["ops".to_owned(), "<pager>".to_owned()],
            _ => Vec::new(),
        }
    }
    fn rules_of(&self, job: &str) -> Vec<(String, String)> {
        match job {
            "report" => vec![("misfire".to_owned(), "<once>".to_owned())],
            _ => Vec::new(),
        }
    }
    async fn facts(&self, job: &str) -> Result<Option<JobFacts>, String> {
        if self.no_locks {
            return Err("no majority".into());
        }
        let known = job == "report" || self.fleet.job(job).is_some();
        let mut facts = self.facts.clone();
        if self.later.lock().unwrap().is_some() {
            facts.runs.push(RunRecord {
                job: job.to_owned(),
                run_id: "run-later".to_owned(),
                ..RunRecord::default()
            });
        }
        Ok(known.then_some(facts))
    }
    async fn run(&self, _job: &str, run_id: &str) -> Result<Option<RunRecord>, String> {
        let found = self.facts.runs.iter().find(|run| run.run_id == run_id);
        Ok(found.cloned())
    }
    async fn lock(&self, key: &str) -> Result<LockDetail, String> {
        Ok(LockDetail {
            key: key.to_owned(),
            owner: Some("its value".into()),
            nodes: 2,
            ..LockDetail::default()
        })
    }
    async fn give(&self, asked: Asked) -> Result<Done, OrderError> {
        self.given.lock().unwrap().push(asked.clone());
        let given = match asked.what {
            What::Job(job, order) => self.order(&job, order).await,
            What::Drain(replica) => self.drain(&replica).await,
            What::Withdraw(id) => self.withdraw(&id).await,
            What::Break { key, .. } => Ok(Done {
                answer: serde_json::json!({ "said": format!("the lease of {key} has ended") }),
                heard: true,
            }),
            What::PauseAll { .. } | What::ResumeAll => Ok(Done {
                answer: serde_json::json!({ "said": "2 jobs are paused now; not heard yet by beta" }),
                heard: false,
            }),
            What::Items { order, which, .. } => {
                // Of a state there are always more.
                let next = match which {
                    WhichItems::Named(_) => None,
                    WhichItems::All { .. } => Some("149".to_owned()),
                };
                let changed = ItemsChanged {
                    changed: 6,
                    more: next.is_some(),
                    next,
                    ..ItemsChanged::default()
                };
                let said = changed.in_words(order);
                Ok(Done {
                    answer: serde_json::json!({ "said": said, "next": changed.next }),
                    heard: true,
                })
            }
        };
        self.carried_out.fetch_add(1, Ordering::SeqCst);
        given
    }
    async fn items(&self, job: &str, asked: ItemsAsked) -> Result<ItemPage, OrderError> {
        self.readings.fetch_add(1, Ordering::SeqCst);
        if let Some((clock, by)) = &self.slow {
            clock.sleep(*by).await;
        }
        if self.no_locks {
            return Err(OrderError::NoItems("no database at /data/app.db".into()));
        }
        if job != "mail" {
            return Err(OrderError::NotPossible(format!("{job} has no items")));
        }
        let item = |id: &str, state| HeldItem {
            id: id.into(),
            state,
            attempts: 3,
            since: Some(self.wall() - SignedDuration::from_secs(300)),
            reason: "a secret of a <b>receiver".into(),
            key: format!("db/letters/{id}"),
            row: "unsent".into(),
        };
        let all = [
            item("17", ItemState::Dead),
            item("\"><b>&\n", ItemState::InDoubt),
            item("a b/c?d=e&f", ItemState::Parked),
            item("later", ItemState::Retry),
            item("done with", ItemState::Discarded),
        ];
        // All of them are on the first page, and there is another one.
        let first = asked.after.is_none();
        let wanted = |item: &HeldItem| first && asked.states.contains(&item.state);
        Ok(ItemPage {
            items: all.into_iter().filter(wanted).collect(),
            more: first,
        })
    }
    async fn drain(&self, replica: &str) -> Result<Done, OrderError> {
        match replica {
            "w0" => Ok(Done {
                answer: "drains".into(),
                heard: true,
            }),
            _ => Err(OrderError::Unknown("there is no such replica".to_owned())),
        }
    }
}

/// What must be said.
const TOKEN: &str = "open sesame";

/// A server on a free port; stopped by the token.
struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

async fn serving(source: Fake) -> Server {
    serving_shared(Arc::new(source)).await
}

async fn serving_shared(source: Arc<Fake>) -> Server {
    let ip = if source.reachable {
        [0, 0, 0, 0]
    } else {
        [127, 0, 0, 1]
    };
    let listener = bind(SocketAddr::from((ip, 0))).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let admin = Admin {
        metrics: (source.metrics.clone()).unwrap_or_else(|| Metrics::new("1.2.3")),
        clock: Clock::system(),
        spawn: Spawn::system(),
        events: source.events.clone(),
        token: (!source.no_token).then(|| Secret::new(TOKEN)),
        hosts: source.hosts.iter().map(|host| (*host).to_owned()).collect(),
        proxies: source
            .proxies
            .iter()
            .map(|at| at.parse().unwrap())
            .collect(),
        user_header: source.user_header.map(str::to_owned),
        read_only: source.read_only,
        source,
    };
    let stop = CancellationToken::new();
    let serving = serve(listener, admin, stop.clone());
    let task = Spawn::system().spawn(async move { serving.await.unwrap() });
    Server {
        address,
        stop,
        task,
    }
}

fn said() -> String {
    format!("Authorization: Bearer {TOKEN}\r\n")
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Server {
    /// By a client that has the token.
    async fn get(&self, path: &str) -> Answer {
        self.look(path, &said()).await
    }

    /// By a client that says these headers.
    async fn look(&self, path: &str, more: &str) -> Answer {
        self.send(&format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n"
        ))
        .await
    }

    /// By a client that has the token.
    async fn post(&self, path: &str, more: &str, body: &str) -> Answer {
        self.ask(path, &format!("{}{more}", said()), body).await
    }

    /// By a client that says these headers.
    async fn ask(&self, path: &str, more: &str, body: &str) -> Answer {
        let length = body.len();
        self.send(&format!(
            "POST /api/v1/jobs/{path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n{more}\r\n{body}"
        ))
        .await
    }

    async fn send(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        Answer {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }
}

fn fleet() -> FleetStatus {
    let now = Clock::system().wall();
    let job = |name: &str, coordination: &str, standing| JobPresence {
        name: name.into(),
        coordination: coordination.into(),
        schedule: "@every 10s".into(),
        standing,
        token: Some(Token(41)),
        remaining_ms: Some(60_500),
        ..JobPresence::default()
    };
    let mut batches = job("mail", "batch", JobStanding::Working);
    batches.running.push(RunStatus {
        batch: Some("cell-9".into()),
        done: Some(3),
        total: Some(10),
        per_second: Some(crate::fleet::status::Rate::new(2.0)),
        left_ms: Some(3500),
        message: Some("<b>sending".into()),
        ..RunStatus::default()
    });
    let presence = Presence {
        id: "host-7-a".into(),
        name: "alpha".into(),
        host: "host".into(),
        pid: 7,
        role: Role::Leader,
        written_at: now,
        started: now,
        jobs: vec![
            job("report", "leader", JobStanding::Leading),
            job("orphan", "leader", JobStanding::Standby),
            job("unseen", "leader", JobStanding::Standby),
            batches,
        ],
        ..Presence::default()
    };
    let node = |up| NodeStatus {
        name: "redis-1".into(),
        up,
        votes: up,
        ..NodeStatus::default()
    };
    let nodes = vec![node(true), node(true), node(false)];
    let mut fleet = FleetStatus::from_presences([presence], nodes, now);
    let job = |name: &str| fleet.jobs.iter().position(|job| job.name == name).unwrap();
    let (report, orphan, unseen) = (job("report"), job("orphan"), job("unseen"));
    fleet.jobs[report].leader = Some(LeaderStatus {
        replica: "host-7-a".into(),
        name: "alpha".into(),
        host: "host".into(),
        pid: 7,
        token: Token(41),
        remaining_ms: Some(60_500),
        ..LeaderStatus::default()
    });
    fleet.jobs[report].leader_known = true;
    fleet.jobs[orphan].leader_known = true;
    fleet.jobs[unseen].last_seen = Some(LastSeen {
        name: "beta".into(),
        ms_ago: 12_000,
        ..LastSeen::default()
    });
    fleet
}

#[tokio::test]
async fn health_speaks_for_the_process_and_for_its_part() {
    let source = Arc::new(Fake::default());
    let server = serving_shared(source.clone()).await;
    assert_eq!(server.get("/livez").await.status, 200);
    assert_eq!(server.get("/readyz").await.status, 200);
    source.draining.store(true, Ordering::SeqCst);
    let answer = server.get("/readyz").await;
    assert_eq!((answer.status, answer.body.as_str()), (503, "draining\n"));
    assert_eq!(
        server.get("/livez").await.status,
        200,
        "draining is no illness"
    );

    let stalled = serving(Fake {
        stalled: true,
        ..Fake::default()
    });
    assert_eq!(stalled.await.get("/livez").await.status, 503);
}

#[tokio::test]
async fn leaderz_answers_for_a_job_or_for_any() {
    let server = serving(Fake::default()).await;
    for (path, status) in [
        ("/leaderz?job=report", 200),
        ("/leaderz?job=mail", 503),
        ("/leaderz?job=nobody", 404),
        ("/leaderz?job=", 404),
        ("/leaderz", 200),
    ] {
        assert_eq!(server.get(path).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn metrics_come_in_the_format_that_is_accepted() {
    let server = serving(Fake::default()).await;
    let plain = server.get("/metrics").await;
    assert!(
        plain
            .head
            .contains("content-type: text/plain; version=0.0.4")
    );
    assert!(!plain.body.contains("# EOF"));
    let open = server
        .send("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n")
        .await;
    assert!(
        open.head
            .contains("content-type: application/openmetrics-text; version=1.0.0")
    );
    assert!(open.body.ends_with("# EOF\n"));
    assert!(
        open.body
            .contains("watchkeeper_build_info{version=\"1.2.3\"} 1")
    );
}

#[tokio::test]
async fn answers_that_are_not_read_share_one_text() {
    let metrics = Metrics::new("1.2.3");
    let renderings = Arc::new(AtomicUsize::new(0));
    metrics.asks().paused.of({
        let renderings = renderings.clone();
        move || {
            renderings.fetch_add(1, Ordering::SeqCst);
            Vec::new()
        }
    });
    let server = serving(Fake {
        metrics: Some(metrics),
        ..Fake::default()
    })
    .await;
    let mut unread = Vec::new();
    for _ in 0..40 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).await.unwrap();
        unread.push(stream);
    }
    let clock = Clock::system();
    let begun = clock.now();
    for stream in &unread {
        stream.readable().await.unwrap();
    }
    let renderings = renderings.load(Ordering::SeqCst);
    // One, unless the machine is so slow that a moment passes meanwhile.
    let moments = clock.now().since(begun).as_millis() / 900;
    assert!(renderings as u128 <= 2 + moments, "{renderings}");
}

#[tokio::test]
async fn the_api_shows_the_fleet_as_json() {
    let server = serving(Fake {
        fleet: fleet(),
        ..Fake::default()
    })
    .await;
    let answer = server.get("/api/v1/fleet").await;
    assert!(answer.head.contains("content-type: application/json"));
    let shown: FleetStatus = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(shown, fleet_with_times_of(&shown));
    let jobs: Vec<JobStatus> = items(&server.get("/api/v1/jobs").await);
    assert_eq!(jobs, shown.jobs);
    let nodes: Vec<NodeStatus> = items(&server.get("/api/v1/nodes").await);
    assert_eq!(nodes.len(), 3);
    let locks: Vec<LockStatus> = items(&server.get("/api/v1/locks").await);
    assert_eq!(locks[0].key, "job/report");
}

/// What stands on a page of a list.
fn items<T: serde::de::DeserializeOwned>(answer: &Answer) -> Vec<T> {
    let mut page: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    serde_json::from_value(page["items"].take()).unwrap()
}

fn fleet_with_times_of(shown: &FleetStatus) -> FleetStatus {
    let mut expected = fleet();
    expected.replicas[0].started = shown.replicas[0].started;
    expected.replicas[0].seen_ms_ago = shown.replicas[0].seen_ms_ago;
    for (job, shown) in expected.jobs.iter_mut().zip(&shown.jobs) {
        job.last_seen.clone_from(&shown.last_seen);
    }
    expected
}

#[tokio::test]
async fn locks_that_cannot_be_listed_are_an_error_not_an_empty_list() {
    let server = serving(Fake {
        no_locks: true,
        ..Fake::default()
    })
    .await;
    let answer = server.get("/api/v1/locks").await;
    assert_eq!(answer.status, 503);
    assert!(answer.body.contains("\"detail\":\"no majority\""));
}

#[tokio::test]
async fn the_page_shows_who_leads_and_that_nobody_does() {
    let server = serving(Fake {
        fleet: fleet(),
        ..Fake::default()
    })
    .await;
    let page = server.get("/").await.body;
    for part in [
        "<b>alpha</b>",
        "pid 7",
        "<small>token 41",
        "60 s",
        "<strong class=\"bad\">NO LEADER</strong>",
        "batch cell-9",
        "<progress value=\"3\" max=\"10\" aria-label=\"done\">",
        "2 of 3 nodes up, <strong class=\"warn\">may lose none</strong>",
        "<b>3</b><strong class=\"bad\">1 down</strong></a>",
        "<strong class=\"warn\">unknown</strong><small>last seen beta 12 s ago",
        "http-equiv=\"refresh\"",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    assert_eq!(page.matches("NO LEADER").count(), 1);
    assert!(!page.contains("<script>") && !page.contains("style=\""));
    let style = server.get("/style.css").await;
    assert!(style.head.contains("content-type: text/css"));
}

/// Three shards: one without a leader, one that fails and says why.
fn sharded() -> FleetStatus {
    let shard = |n: usize| JobStatus {
        name: format!("mail.{n}"),
        coordination: "leader".into(),
        leader: (n != 1).then(LeaderStatus::default),
        leader_known: true,
        last_outcome: (n == 2).then(|| "failed".to_owned()),
        running: vec![RunStatus {
            message: Some("a secret of a run".into()),
            ..RunStatus::default()
        }],
        ..JobStatus::default()
    };
    let fleet = FleetStatus {
        jobs: (0..3).map(shard).collect(),
        ..FleetStatus::default()
    };
    fleet.gathered()
}

#[tokio::test]
async fn shards_are_one_line_and_each_is_shown_where_that_is_asked_for() {
    let server = serving(Fake {
        fleet: sharded(),
        ..Fake::default()
    })
    .await;
    let page = server.get("/").await.body;
    let line =
        "<a href=\"/?shards=mail\"><strong class=\"bad\">3 shards, 2 led, 1 failing</strong></a>";
    assert!(page.contains(line), "{page}");
    assert!(
        !page.contains("mail.1") && !page.contains("NO LEADER"),
        "{page}"
    );
    let page = server.get("/?shards=mail").await.body;
    assert!(
        page.contains("mail.1") && page.contains("NO LEADER"),
        "{page}"
    );
    let page = server.get("/?shards=%22%3Cb%3E").await.body;
    assert!(!page.contains("\"<b>"), "{page}");
    let jobs = async |path: &str| -> Vec<JobStatus> { items(&server.get(path).await) };
    let shown = jobs("/api/v1/jobs").await;
    assert_eq!(
        (shown.len(), shown[0].shards, shown[0].by_shard.len()),
        (1, Some(3), 0)
    );
    assert_eq!(jobs("/api/v1/jobs?shards=true").await[0].by_shard.len(), 3);
    let stranger = server.look("/api/v1/fleet?shards=true", "").await.body;
    assert!(
        stranger.contains("mail.1") && !stranger.contains("a secret"),
        "{stranger}"
    );
}

#[tokio::test]
async fn the_page_tells_pauses_runs_and_what_nodes_are_at() {
    let now = Clock::system().wall();
    let ago = |seconds| now - SignedDuration::from_secs(seconds);
    let mut fleet = fleet();
    let job = &mut fleet.jobs[1];
    job.paused = true;
    job.paused_by = Some("root@h<".into());
    job.paused_why = Some("the masters move".into());
    job.paused_since = Some(ago(300));
    (job.last_outcome, job.last_ended) = (Some("done".into()), Some(ago(240)));
    job.running.push(RunStatus {
        started: ago(30),
        ..RunStatus::default()
    });
    fleet.nodes[2] = NodeStatus {
        name: "redis-3".into(),
        up: true,
        votes: false,
        error: Some("votes again in 12s at most".into()),
        rtt_us: Some(240),
        offset_ms: Some(-7),
        ..NodeStatus::default()
    };
    let server = serving(Fake {
        fleet,
        ..Fake::default()
    });
    let page = server.await.get("/").await.body;
    for part in [
        "paused</strong> <span class=\"note\">by root@h&lt;, <time",
        ">5 min ago</time></span><small>the masters move</small>",
        "<span class=\"now\">running</span> <span class=\"note\">for <time",
        ">30 s</time></span><small>before: done <span class=\"note\"><time",
        ">4 min ago</time></span></small>",
        "up, no vote</strong><small>votes again in 12s at most</small>",
        "240 µs",
        "-7 ms",
        "3 of 3 nodes up, 1 without a vote yet, <strong class=\"warn\">may lose none</strong>",
        "<strong class=\"warn\">1 without a vote</strong></a>",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
}

#[tokio::test]
async fn ages_on_the_page_go_by_the_fleets_time() {
    let ahead = SignedDuration::from_hours(30);
    let mut fleet = fleet();
    // As this replica tells it, by the fleet's time.
    fleet.replicas[0].started = Clock::system().wall() + ahead - SignedDuration::from_mins(5);
    let server = serving(Fake {
        fleet,
        ahead,
        ..Fake::default()
    });
    let page = server.await.get("/").await.body;
    assert!(page.contains(", up <time"), "{page}");
    assert!(page.contains(">5 min</time>"), "{page}");
}

#[tokio::test]
async fn a_hostile_name_stays_text() {
    let evil = "<script>alert('x')</script>\"&";
    let mut fleet = fleet();
    fleet.replicas[0].unfit = Some(evil.into());
    fleet.replicas[0].name = evil.into();
    fleet.replicas[0].admin = Some(evil.into());
    fleet.nodes[2].error = Some(evil.into());
    for job in &mut fleet.jobs {
        job.name = evil.into();
        job.schedule = evil.into();
        job.zone = Some(evil.into());
        job.last_outcome = Some(evil.into());
        for run in &mut job.running {
            run.batch = Some(evil.into());
        }
        if let Some(leader) = &mut job.leader {
            leader.name = evil.into();
            leader.host = evil.into();
        }
    }
    let server = serving(Fake {
        fleet,
        ..Fake::default()
    })
    .await;
    let page = server.get("/").await.body;
    assert!(page.contains("&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;"));
    assert!(!page.contains("<script>"));
}

#[tokio::test]
async fn every_answer_carries_the_security_headers() {
    let server = serving(Fake::default()).await;
    let strange = "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    for answer in [
        server.get("/").await,
        server.get("/nothing").await,
        server.get("/leaderz?job=nobody").await,
        server
            .send("POST /readyz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
            .await,
        server.send(strange).await,
    ] {
        for header in [
            // The whole of it: a word more lets something in.
            "content-security-policy: default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
             base-uri 'none'; form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
             trusted-types watchkeeper\r\n",
            "x-content-type-options: nosniff",
            "cache-control: no-store",
        ] {
            assert!(answer.head.contains(header), "{header}\n{}", answer.head);
        }
    }
}

#[tokio::test]
async fn nothing_else_changes_state() {
    let server = serving(Fake::default()).await;
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        for path in ["/", "/api/v1/jobs", "/readyz"] {
            let request = format!(
                "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n{}\r\n",
                said()
            );
            assert_eq!(server.send(&request).await.status, 405, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn silent_clients_do_not_keep_others_out() {
    let server = serving(Fake::default()).await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(b"GET / HT").await.unwrap();
        silent.push(stream);
    }
    assert_eq!(server.get("/livez").await.status, 200);
    // The first one has been sent away, or its connection was reset.
    let mut byte = [0];
    assert!(!matches!(silent[0].read(&mut byte).await, Ok(1..)));
}

#[tokio::test]
async fn silent_clients_end_no_stream() {
    let events = Events::default();
    let server = serving(Fake {
        events: events.clone(),
        ..Fake::default()
    })
    .await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = format!(
        "GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n{}\r\n",
        said()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut seen = String::new();
    read_until(&mut stream, &mut seen, "retry: 2000").await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    // All of them were welcomed before this one.
    assert_eq!(server.get("/livez").await.status, 200);
    events.tell(Event::Draining);
    read_until(&mut stream, &mut seen, "\"type\":\"draining\"").await;
}

#[tokio::test]
async fn a_connection_ends_when_its_life_is_over() {
    let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    let clock = Clock::system();
    let listener = listener::Listener::with_limits(listener, clock, 8, Duration::from_millis(20));
    let router = axum::Router::new();
    let server = axum::serve(listener, router).into_future();
    let client = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HT").await.unwrap();
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text).await;
    };
    tokio::select! {
        _ = server => unreachable!("a server does not end"),
        () = client => {}
    }
}

#[tokio::test]
async fn a_stream_outlives_the_life_of_other_connections() {
    let listener = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (clock, life) = (Clock::system(), Duration::from_millis(20));
    let listener = listener::Listener::with_limits(listener, clock.clone(), 8, life);
    let streams = move |ConnectInfo(peer): ConnectInfo<routes::Peer>| {
        let clock = clock.clone();
        async move {
            peer.stay().for_a_stream();
            Body::from_stream(once(async move {
                clock.sleep(life * 5).await;
                Ok::<_, Infallible>("still there")
            }))
        }
    };
    let router = axum::Router::new().route("/", get(streams));
    let service = router.into_make_service_with_connect_info::<routes::Peer>();
    let server = axum::serve(listener, service).into_future();
    let client = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert!(text.contains("still there"), "{text}");
    };
    tokio::select! {
        _ = server => unreachable!("a server does not end"),
        () = client => {}
    }
}

#[tokio::test]
async fn events_are_told_as_they_happen_and_end_with_the_server() {
    let events = Events::default();
    let server = serving(Fake {
        events: events.clone(),
        ..Fake::default()
    })
    .await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = format!("Host: localhost\r\n{}\r\n", said());
    let request = format!("GET /api/v1/events HTTP/1.1\r\n{head}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut seen = String::new();
    // It follows from now on: what was told before is not its affair.
    read_until(&mut stream, &mut seen, "retry: 2000").await;
    let head = seen.to_ascii_lowercase();
    for line in [
        "content-type: text/event-stream",
        "cache-control: no-store",
        "x-content-type-options: nosniff",
    ] {
        assert!(head.contains(line), "{head}");
    }
    events.tell(Event::Draining);
    read_until(&mut stream, &mut seen, "\"type\":\"draining\"").await;
    assert!(seen.contains("id: host-7-a-1\nevent: draining\n"), "{seen}");
    server.stop.cancel();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "an end, and no break: {rest}");
    server.task.await.unwrap();
}

async fn read_until(stream: &mut TcpStream, seen: &mut String, wanted: &str) {
    let mut part = [0; 1024];
    while !seen.contains(wanted) {
        let read = stream.read(&mut part).await.unwrap();
        assert!(read > 0, "it ends before {wanted}: {seen}");
        *seen += std::str::from_utf8(&part[..read]).unwrap();
    }
}

#[tokio::test]
async fn every_refusal_is_a_problem() {
    let open = serving(Fake::default()).await;
    let shut = serving(Fake {
        read_only: true,
        ..Fake::default()
    })
    .await;
    let mute = serving(Fake {
        no_token: true,
        ..Fake::default()
    })
    .await;
    let (ours, said) = ("Host: localhost\r\n", said());
    let pause = "POST /api/v1/jobs/report/pause";
    let long = format!("GET /jobs/{}", "x".repeat(513));
    for (server, line, head, status, kind) in [
        (
            &open,
            "GET /",
            "Host: evil.example\r\n".to_owned(),
            421,
            "wrong-host",
        ),
        (
            &open,
            "GET /api/v1/fleet",
            format!("{ours}Origin: http://evil.example\r\n"),
            403,
            "foreign-origin",
        ),
        (
            &open,
            "GET /api/v1/audit",
            ours.to_owned(),
            401,
            "token-needed",
        ),
        (&mute, "GET /api/v1/audit", ours.to_owned(), 403, "no-token"),
        (&shut, pause, format!("{ours}{said}"), 403, "read-only"),
        (
            &open,
            "GET /nothing",
            format!("{ours}{said}"),
            404,
            "no-such-path",
        ),
        (
            &open,
            "GET /api/",
            format!("{ours}{said}"),
            404,
            "no-such-path",
        ),
        // What is no text names nothing, and neither does what is longer than any name.
        (
            &open,
            "GET /jobs/%FF",
            format!("{ours}{said}"),
            404,
            "no-such-path",
        ),
        (
            &open,
            "GET /orders/%FF",
            format!("{ours}{said}"),
            404,
            "no-such-path",
        ),
        (
            &open,
            long.as_str(),
            format!("{ours}{said}"),
            404,
            "no-such-path",
        ),
        (
            &open,
            "GET /api/v1/later",
            format!("{ours}{said}"),
            404,
            "no-such-path",
        ),
        (
            &open,
            "DELETE /api/v1/jobs",
            format!("{ours}{said}"),
            405,
            "no-such-method",
        ),
        (
            &open,
            "DELETE /",
            format!("{ours}{said}"),
            405,
            "no-such-method",
        ),
    ] {
        let request = format!("{line} HTTP/1.1\r\n{head}Content-Length: 0\r\n\r\n");
        let answer = server.send(&request).await;
        let expected = format!("urn:watchkeeper:problem:{kind}");
        let told: serde_json::Value = serde_json::from_str(&answer.body).unwrap_or_default();
        assert_eq!(
            (answer.status, &told["type"], &told["status"]),
            (status, &expected.into(), &status.into()),
            "{line}\n{}\n{}",
            answer.head,
            answer.body
        );
        assert!(
            answer
                .head
                .contains("content-type: application/problem+json")
        );
        assert!(answer.head.contains("cache-control: no-store"));
        assert_eq!(answer.head.contains("\r\nallow: get,"), status == 405);
        for field in ["title", "detail", "remedy"] {
            assert!(told[field].as_str().is_some_and(|text| !text.is_empty()));
        }
    }
}

#[tokio::test]
async fn a_server_that_stops_lets_answers_finish_but_does_not_wait_for_ever() {
    let server = serving(Fake {
        hangs: true,
        ..Fake::default()
    })
    .await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(server.get("/livez").await.status, 200);
    server.stop.cancel();
    server.task.await.unwrap();
    let mut rest = String::new();
    let _ = stream.read_to_string(&mut rest).await;
    assert_eq!(rest, "");
}

#[tokio::test]
async fn only_the_default_port_moves_when_it_is_taken() {
    let first = bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
    let taken = first.local_addr().unwrap();
    let error = bind(taken).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);

    let moved = listener::bind_or_next(taken).await.unwrap();
    assert!(moved.local_addr().unwrap().port() > taken.port());
    assert!(bind(listener::DEFAULT_LISTEN).await.is_ok());
}

#[tokio::test]
async fn the_runs_of_a_job_are_listed() {
    let server = serving(Fake::default()).await;
    let list = |answer: Answer| -> Vec<RunRecord> { items(&answer) };
    let runs = list(server.get("/api/v1/runs?job=report").await);
    assert_eq!((runs.len(), runs[0].seq), (20, 99), "the newest first");
    let runs = list(server.get("/api/v1/runs?job=report&limit=3").await);
    assert_eq!(runs.len(), 3);
    for (query, status, word) in [
        ("?job=reprot", 404, "no such job"),
        ("?job=report&name=rep", 400, "name: either this or job"),
        (
            "?job=report&limit=many",
            400,
            "limit: a number from 1 to 100",
        ),
    ] {
        let answer = server.get(&format!("/api/v1/runs{query}")).await;
        assert_eq!(answer.status, status, "{query}");
        assert!(answer.body.contains(word), "{}", answer.body);
    }
    let blind = Fake {
        no_locks: true,
        ..Fake::default()
    };
    let answer = serving(blind).await.get("/api/v1/runs?job=report").await;
    assert_eq!(
        (answer.status, answer.body.contains("no majority")),
        (503, true)
    );
}

#[tokio::test]
async fn a_job_is_asked_by_post() {
    let server = serving(Fake::default()).await;
    for (path, body, status, says) in [
        ("report/pause", "{\"reason\": \"move\"}", 200, "move"),
        ("report/pause", "", 200, "Pause"),
        ("report/trigger", "", 202, "Trigger"),
        ("report/resign", "{\"to\": \"b\"}", 200, "Resign"),
        ("report/resume", "", 409, "not now"),
        ("reprot/pause", "", 404, "no job"),
        ("report/burn", "", 404, "there is no path"),
        ("report/pause", "{\"reasons\": 1}", 400, "the body"),
    ] {
        let answer = server.post(path, "", body).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.body.contains(says), "{path}: {}", answer.body);
    }
}

/// Those that wait for the store have all turns; a request that comes then has asked for nothing, and is told when to come again.
#[tokio::test]
async fn an_order_that_gets_no_turn_is_to_come_again() {
    let server = serving(Fake {
        hangs: true,
        ..Fake::default()
    })
    .await;
    let trigger = || server.post("report/trigger", "", "");
    let orders = futures_util::future::join_all((0..5).map(|_| trigger()));
    let answers = orders.await;
    for answer in &answers {
        assert_eq!(answer.status, 503, "{}", answer.body);
        let head = answer.head.to_ascii_lowercase();
        assert!(head.contains("retry-after: 2"), "{head}");
    }
    let busy = answers
        .iter()
        .filter(|a| a.body.contains("nothing was asked for"));
    assert_eq!(busy.count(), 1);
}

#[tokio::test]
async fn triggers_are_listed_and_withdrawn() {
    let server = serving(Fake::default()).await;
    let listed = server.get("/api/v1/triggers?job=report").await;
    assert_eq!(
        (listed.status, listed.body.as_str()),
        (200, r#"{"items":[{"id":"t","job":"report"}],"next":null}"#)
    );
    for (id, status) in [("t", 200), ("many", 429), ("gone", 409)] {
        let line = format!(
            "POST /api/v1/triggers/{id}/withdraw HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n{}\r\n",
            said()
        );
        assert_eq!(server.send(&line).await.status, status, "{id}");
    }
}

#[tokio::test]
async fn a_replica_is_asked_to_drain_by_post() {
    let server = serving(Fake::default()).await;
    for (replica, said, status) in [
        ("w0", "", 200),
        ("w9", "", 404),
        ("w0", "Origin: http://evil.example\r\n", 403),
    ] {
        let answer = server
            .send(&format!(
                "POST /api/v1/replicas/{replica}/drain HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n{}{said}\r\n",
                self::said()
            ))
            .await;
        assert_eq!(answer.status, status, "{replica} {said}");
    }
}

#[tokio::test]
async fn a_trigger_takes_parameters_and_nothing_else_does() {
    let server = serving(Fake::default()).await;
    let body = r#"{"params": {"token": "hunter2"}}"#;
    let answer = server.post("report/trigger", "", body).await;
    assert_eq!(answer.status, 202);
    assert!(
        answer.body.contains("TriggerParams([\\\"token\\\"])"),
        "{}",
        answer.body
    );
    let answer = server.post("report/pause", "", body).await;
    assert_eq!(answer.status, 400);
    let large = format!(r#"{{"params": {{"a": "{}"}}}}"#, "x".repeat(5000));
    let answer = server.post("report/trigger", "", &large).await;
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("4096 are allowed"), "{}", answer.body);
}
