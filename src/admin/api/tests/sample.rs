//! A worker that is made up: a thousand jobs, and one of everything with everything that it can tell.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use axum::{
    body::{Body, to_bytes},
    extract::Request,
    http::{HeaderMap, Method},
};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{
    admin::{
        Admin, AdminSource, Asked, Done, Order, OrderError, What,
        api::{Client, answer},
        listener::Stay,
        rights::Seen,
        routes,
        shared::Shared,
        source::RecentAsked,
    },
    clock::Clock,
    event::Events,
    fleet::{
        RunFilter,
        audit::AuditEntry,
        client::recent::RecentRuns,
        history::RunRecord,
        items::{HeldItem, ItemPage, ItemsAsked, ItemsChanged, LeftAlone},
        status::{FleetStatus, JobStatus, LockStatus},
    },
    secret::Secret,
    spawn::Spawn,
    telemetry::metrics::Metrics,
};

/// When everything has happened.
pub(super) const AT: &str = "2026-11-26T08:00:00Z";

pub(super) struct Sample {
    pub(super) fleet: Mutex<FleetStatus>,
    pub(super) locks: usize,
    pub(super) runs: Vec<RunRecord>,
    pub(super) orders: usize,
    pub(super) items: usize,
    pub(super) down: bool,
    /// Whether orders are heard at once.
    pub(super) heard: bool,
}

/// What was answered.
pub(super) struct Answered {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

// === impl Sample ===

impl Default for Sample {
    fn default() -> Self {
        let fleet = FleetStatus {
            replicas: vec![read(replica())],
            jobs: vec![read(job("report"))],
            nodes: vec![read(node())],
        };
        Self {
            fleet: Mutex::new(fleet),
            locks: 3,
            runs: (1..=100).map(|seq| read(run(seq))).collect(),
            orders: 3,
            items: 4,
            down: false,
            heard: true,
        }
    }
}

impl Sample {
    pub(super) fn of_jobs(names: impl Iterator<Item = String>) -> Self {
        let jobs = names.map(|name| JobStatus {
            name,
            ..JobStatus::default()
        });
        let sample = Self::default();
        sample.fleet.lock().unwrap().jobs = jobs.collect();
        sample
    }

    pub(super) fn shared(self) -> (Arc<Self>, Shared) {
        self.timed_by(Clock::system())
    }

    pub(super) fn timed_by(self, clock: Clock) -> (Arc<Self>, Shared) {
        let sample = Arc::new(self);
        let admin = Admin {
            source: sample.clone(),
            metrics: Metrics::new("1.2.3"),
            clock,
            spawn: Spawn::system(),
            events: Events::default(),
            token: Some(Secret::new("open sesame")),
            hosts: Vec::new(),
            proxies: Vec::new(),
            user_header: None,
            read_only: false,
        };
        (sample, routes::shared(admin, true))
    }

    fn ask(&self) -> Result<(), String> {
        match self.down {
            true => Err("no majority".to_owned()),
            false => Ok(()),
        }
    }

    /// Names of jobs, replicas and triggers say what becomes of orders.
    fn ordered(&self, of: &str, answer: Value) -> Result<Done, OrderError> {
        let why = || format!("{of}: it was asked for");
        match of {
            "unknown" => Err(OrderError::Unknown(why())),
            "misfit" => Err(OrderError::Misfit(why())),
            "not-possible" => Err(OrderError::NotPossible(why())),
            "too-many" => Err(OrderError::TooMany(why())),
            "unavailable" => Err(OrderError::Unavailable(why())),
            "not-known" => Err(OrderError::NotKnown(why())),
            "dies" => panic!("the order dies, as it was to"),
            _ => {
                let heard = self.heard;
                Ok(Done { answer, heard })
            }
        }
    }
}

#[async_trait]
impl AdminSource for Sample {
    fn replica(&self) -> String {
        "h-7-a".to_owned()
    }
    fn wall(&self) -> Timestamp {
        AT.parse().unwrap()
    }
    async fn fleet(&self) -> FleetStatus {
        self.fleet.lock().unwrap().clone()
    }
    async fn some(&self, names: &BTreeSet<String>) -> FleetStatus {
        let mut fleet = self.fleet().await;
        fleet.jobs.retain(|job| names.contains(&job.name));
        fleet
    }
    fn known(&self) -> FleetStatus {
        FleetStatus::default()
    }
    fn jobs(&self) -> usize {
        0
    }
    async fn locks(&self) -> Result<Vec<LockStatus>, String> {
        self.ask()?;
        Ok((0..self.locks).map(|n| read(lock(n))).collect())
    }
    async fn some_runs(
        &self,
        job: &str,
        filter: &RunFilter,
        limit: usize,
    ) -> Result<Option<Vec<RunRecord>>, String> {
        self.ask()?;
        if job != "report" {
            return Ok(None);
        }
        let mut wanted = self.runs.clone();
        wanted.retain(|run| filter.wants(run));
        wanted.sort_by_key(RunRecord::place);
        wanted.drain(..wanted.len().saturating_sub(limit));
        Ok(Some(wanted))
    }
    async fn recent(&self, asked: RecentAsked) -> Result<RecentRuns, String> {
        self.ask()?;
        let mut runs = self.runs.clone();
        runs.retain(|run| run.job.contains(&asked.job_has) && asked.filter.wants(run));
        runs.sort_by_key(|run| Reverse(run.place()));
        runs.truncate(asked.most);
        Ok(RecentRuns { runs, unread: 3 })
    }
    fn live(&self) -> Result<(), String> {
        Ok(())
    }
    fn ready(&self) -> Result<(), String> {
        Ok(())
    }
    fn leads(&self, job: &str) -> Option<bool> {
        (job == "report").then_some(true)
    }
    fn leads_any(&self) -> bool {
        true
    }
    async fn order(&self, job: &str, order: Order) -> Result<Done, OrderError> {
        let answer = match order {
            Order::Pause { reason } => paused(job, true, &reason),
            Order::Resume => paused(job, false, ""),
            Order::Trigger { .. } => trigger(),
            Order::Resign { to } => json!({
                "job": job, "from": "alpha", "token": 41, "leader": to, "leader_token": 42,
            }),
        };
        self.ordered(job, answer)
    }
    async fn triggers(&self, job: Option<&str>) -> Result<Value, String> {
        self.ask()?;
        let row = |n: usize| {
            json!({
                "id": format!("t{n:03}"), "job": job.unwrap_or("report"), "by": "ann", "asked": AT,
                "state": "accepted", "why": "waits", "params": ["pages"], "run_id": "",
            })
        };
        Ok((0..30).map(row).collect())
    }
    async fn audit(&self) -> Result<Vec<AuditEntry>, String> {
        self.ask()?;
        let entry = |n: usize| AuditEntry {
            id: format!("a{n:03}"),
            at: AT.parse().unwrap(),
            who: if n.is_multiple_of(2) { "ann" } else { "bob" }.to_owned(),
            by: "http to w0".to_owned(),
            order: "pause".to_owned(),
            of: "report".to_owned(),
            items: "all that are dead".to_owned(),
            owner: "o".to_owned(),
            to: "beta".to_owned(),
            reason: "it moves".to_owned(),
            result: "heard".to_owned(),
        };
        Ok((0..self.orders).map(entry).collect())
    }
    async fn withdraw(&self, id: &str) -> Result<Done, OrderError> {
        self.ordered(id, trigger())
    }
    async fn drain(&self, replica: &str) -> Result<Done, OrderError> {
        let answer = json!({"replica": "h-7-a", "name": replica, "heard": true, "gone": false});
        self.ordered(replica, answer)
    }
    async fn items(&self, job: &str, asked: ItemsAsked) -> Result<ItemPage, OrderError> {
        if self.down {
            return Err(OrderError::NoItems("no database".to_owned()));
        }
        self.ordered(job, Value::Null)?;
        let after: usize = asked.after.map_or(0, |id| id.parse().unwrap());
        let wanted = (after + 1..=self.items).map(|n| read::<HeldItem>(item(n)));
        let wanted = wanted.filter(|item| asked.states.contains(&item.state));
        let mut items: Vec<HeldItem> = wanted.take(asked.limit + 1).collect();
        let more = items.len() > asked.limit;
        items.truncate(asked.limit);
        Ok(ItemPage { items, more })
    }
    async fn give(&self, asked: Asked) -> Result<Done, OrderError> {
        match asked.what {
            What::Job(job, order) => self.order(&job, order).await,
            What::Drain(replica) => self.drain(&replica).await,
            What::Withdraw(id) => self.withdraw(&id).await,
            What::Break { key, owner } => {
                let answer = json!({
                    "key": key, "owner": owner.as_deref().unwrap_or("o"), "token": 42,
                    "remaining_ms": 900, "said": "it has ended",
                });
                let done = self.ordered(&key, answer)?;
                Ok(Done {
                    heard: true,
                    ..done
                })
            }
            What::PauseAll { .. } => self.ordered("jobs", all_paused(true)),
            What::ResumeAll => self.ordered("jobs", all_paused(false)),
            What::Items { job, order, which } => {
                let changed = ItemsChanged {
                    changed: 6,
                    left_alone: vec![LeftAlone {
                        id: which.in_words(),
                        why: "it is being sent".to_owned(),
                    }],
                    ..ItemsChanged::default()
                };
                let mut answer = serde_json::to_value(&changed).unwrap();
                answer["job"] = json!(job);
                answer["order"] = json!(order.word());
                answer["said"] = json!(changed.in_words(order));
                let done = self.ordered(&job, answer)?;
                // It stands in the database: there is nobody to hear of it.
                Ok(Done {
                    heard: true,
                    ..done
                })
            }
        }
    }
}

// === asking ===

/// The answer to a client that has the token.
pub(super) async fn ask(
    shared: &Shared,
    method: Method,
    path: &str,
    said: &[(&str, &str)],
    body: &str,
) -> Answered {
    let response = send(shared, method, path, said, body).await;
    let (head, body) = response.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap();
    Answered {
        status: head.status.as_u16(),
        headers: head.headers,
        body: String::from_utf8(body.to_vec()).unwrap(),
    }
}

/// The same, whose body is not read.
pub(super) async fn send(
    shared: &Shared,
    method: Method,
    path: &str,
    said: &[(&str, &str)],
    body: &str,
) -> axum::response::Response {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in said {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(body.to_owned())).unwrap();
    let client = Client {
        seen: Seen { token: true },
        who: "ann".to_owned(),
        stay: Stay::default(),
    };
    answer(shared.clone(), client, request).await
}

pub(super) async fn get(shared: &Shared, path: &str) -> Answered {
    ask(shared, Method::GET, path, &[], "").await
}

impl Answered {
    pub(super) fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|why| panic!("{why}: {}", self.body))
    }
}

// === one of everything, with everything that it can tell ===

/// Reads what is written here by hand, and makes sure that nothing of it was passed over: a field that is not told would be none
/// that is tried.
fn read<T: DeserializeOwned + serde::Serialize>(told: Value) -> T {
    let value: T = serde_json::from_value(told.clone()).unwrap();
    assert_eq!(serde_json::to_value(&value).unwrap(), told);
    value
}

fn replica() -> Value {
    json!({
        "id": "h-7-a", "name": "alpha", "host": "h", "pid": 7, "version": "1.2.3", "mode": "shared",
        "role": "leader", "priority": -1, "draining": false, "fit": false, "unfit": "disk: full",
        "started": AT, "seen_ms_ago": 12, "admin": "127.0.0.1:8787",
        "reload": {"at": AT, "ok": false, "error": "a fault", "needs_restart": ["locks.ttl"]},
        "notices": [{"name": "ops", "waiting": 3, "sent": AT, "failing": AT}],
    })
}

fn node() -> Value {
    json!({
        "name": "redis-1", "up": true, "votes": false, "votes_in_ms": 900, "cause": "waits",
        "error": "votes again in 1s at most", "rtt_us": 240, "offset_ms": -7,
    })
}

fn job(name: &str) -> Value {
    let mut whole = one_job(name);
    whole["shards"] = 1.into();
    whole["by_shard"] = json!([one_job(&format!("{name}.0"))]);
    whole
}

fn one_job(name: &str) -> Value {
    json!({
        "name": name, "coordination": "leader", "schedule": "@every 10s", "zone": "Europe/Rome",
        "definitions": [{
            "definition": "d1", "replicas": ["alpha"], "loaded": AT, "leads": true,
            "stands_back": "it is older",
        }],
        "leader": {
            "replica": "h-7-a", "name": "alpha", "host": "h", "pid": 7, "token": 41, "since": AT,
            "remaining_ms": 9000, "margin": -1,
        },
        "leader_known": true,
        "last_seen": {
            "replica": "h-7-a", "name": "alpha", "host": "h", "pid": 7, "token": 41, "at": AT,
            "ms_ago": 12,
        },
        "last_tick": AT, "next_tick": AT, "last_outcome": "done", "last_ended": AT, "paused": true,
        "paused_why": "it moves", "paused_by": "ann", "paused_since": AT, "backlog": 7,
        "backlog_since": AT,
        "held": {"retry": 1, "dead": 2, "in_doubt": 3, "parked": 4},
        "trouble": {"replicas": ["alpha"], "why": "no table"},
        "running": [{
            "run_id": "r1", "replica": "h-7-a", "tick": AT, "attempt": 1, "token": 41, "started": AT,
            "batch": "cell-9", "done": 3, "total": 10, "per_second": 2.5, "left_ms": 2800,
            "message": "sending",
        }],
        "shards": 0, "shards_led": 1, "shards_failing": 1, "shards_paused": 1,
    })
}

fn lock(n: usize) -> Value {
    json!({
        "key": format!("lock/{n:03}"), "owner": "o", "token": 41, "remaining_ms": 900, "held": n.is_multiple_of(2),
        "nodes": 3, "released": false, "replica": "h-7-a",
        "holder": {
            "id": "h-7-a", "name": "alpha", "host": "h", "pid": 7, "command": "backup", "since": AT,
        },
    })
}

/// Two of each ten begin at the same instant, and every tenth has failed.
fn run(seq: u64) -> Value {
    let started = format!("2026-11-26T08:{:02}:00Z", seq / 2);
    json!({
        "run_id": format!("r{seq}"), "job": "report", "tick": AT, "attempt": 1, "token": 41,
        "replica": "h-7-a", "replica_name": "alpha",
        "outcome": if seq.is_multiple_of(10) { "failed" } else { "done" },
        "detail": "why", "started": started, "ended": AT, "took_ms": 7, "output": "42",
        "output_bytes": 2, "params": ["pages"], "resumed": {"bytes": 7, "saved": AT},
        "progress": {
            "done": 3, "total": 10, "per_second": 2.5, "left_ms": 2800, "message": "sending",
        },
        "seq": seq, "batch": "cell-9", "batches": {"done": 1, "skipped": 2, "failed": 3},
        "items": {"sent": 7}, "trace_id": "0af7651916cd43dd8448eb211c80319c",
    })
}

/// Every fourth goes by itself.
fn item(n: usize) -> Value {
    let state = ["dead", "in_doubt", "parked", "retry"][(n - 1) % 4];
    json!({
        "id": n.to_string(), "state": state, "attempts": 3, "since": AT, "reason": "it answered 400",
        "key": "db/letters/1", "row": "unsent",
    })
}

fn paused(job: &str, paused: bool, reason: &str) -> Value {
    json!({
        "job": job, "paused": paused, "changed": true, "reason": reason, "heard_by": ["alpha"],
        "unheard_by": ["beta"],
    })
}

fn all_paused(paused: bool) -> Value {
    json!({
        "paused": paused, "changed": 2, "unchanged": 1, "left": 1, "why": "it is too late",
        "heard_by": ["alpha"], "unheard_by": ["beta"], "said": "2 jobs are paused now",
    })
}

fn trigger() -> Value {
    json!({
        "job": "report", "id": "t1", "by": "ann", "params": ["pages"], "asked": AT,
        "withdrawn_by": "bob", "state": "ended", "replica": "h-7-a", "run_id": "r1",
        "outcome": "done", "detail": "", "ended": AT,
    })
}
