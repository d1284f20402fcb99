//! What the tests stand on: a table, a receiver, a calendar that can be moved on, a sender that can be killed.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use rusqlite::Connection;
use serde_json::{Value, json};
use watchkeeper::{
    clock::{Clock, Moment, TimeSource},
    job::{Outcome, Run, RunFacts},
    node::Token,
    spawn::Spawn,
};
use watchkeeper_jobs::{
    Notifications, NotificationsParams,
    demo_table::create_demo_table,
    notifications::Exceptions,
    receiver::{Receiver, Tally},
};

/// A table of `n` rows, a receiver, and a clock that can be moved on.
pub(crate) struct Scene {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) receiver: Receiver,
    later_ms: Arc<AtomicI64>,
}

struct Shifted {
    real: Clock,
    later_ms: Arc<AtomicI64>,
}

impl TimeSource for Shifted {
    fn now(&self) -> Moment {
        self.real.now() + self.later()
    }
    fn wall(&self) -> Timestamp {
        self.real.wall() + SignedDuration::from_millis(self.later_ms.load(Ordering::SeqCst))
    }
    fn sleep_until(&self, deadline: Moment) -> BoxFuture<'static, ()> {
        let (real, deadline) = (self.real.clone(), deadline.back(self.later()));
        Box::pin(async move { real.sleep_until(deadline).await })
    }
}

impl Shifted {
    fn later(&self) -> Duration {
        let ms = self.later_ms.load(Ordering::SeqCst);
        Duration::from_millis(u64::try_from(ms).unwrap())
    }
}

impl Scene {
    pub(crate) async fn with_rows(n: usize) -> Self {
        let scene = Self {
            folder: tempfile::tempdir().unwrap(),
            receiver: Receiver::start(&Spawn::system()).await.unwrap(),
            later_ms: Arc::default(),
        };
        create_demo_table(&scene.db(), n).unwrap();
        scene
    }

    pub(crate) fn db(&self) -> PathBuf {
        self.folder.path().join("app.db")
    }

    pub(crate) fn sql(&self, sql: &str) {
        let db = Connection::open(self.db()).unwrap();
        db.busy_timeout(Duration::from_secs(5)).unwrap();
        db.execute_batch(sql).unwrap();
    }

    pub(crate) fn number(&self, sql: &str) -> i64 {
        let db = Connection::open(self.db()).unwrap();
        db.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    pub(crate) fn params(&self, changes: Value) -> NotificationsParams {
        let mut params = json!({
            "source": format!("sqlite://{}", self.db().display()),
            "table": "notifications",
            "sink": self.receiver.url(),
            "backoff": "10s",
            "in_doubt": "repeat",
        });
        let changes = changes.as_object().unwrap().clone();
        params.as_object_mut().unwrap().extend(changes);
        serde_json::from_value(params).unwrap()
    }

    pub(crate) fn job(&self, changes: Value) -> Notifications {
        Notifications::new(self.params(changes), None).on_clock(self.clock())
    }

    pub(crate) fn clock(&self) -> Clock {
        Clock::new(Shifted {
            real: Clock::system(),
            later_ms: Arc::clone(&self.later_ms),
        })
    }

    pub(crate) fn advance(&self, by: Duration) {
        let ms = i64::try_from(by.as_millis()).unwrap();
        self.later_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sends `batch` and kills the sender once the receiver has seen `n` requests in all.
    pub(crate) async fn kill_after(&self, n: u64, job: &Notifications, token: u64, batch: &str) {
        let mut tally = self.receiver.watch();
        let run = run();
        tokio::select! {
            _ = job.process_under(Token(token), batch, &run) => panic!("ended by itself"),
            seen = tally.wait_for(|t| t.requests >= n) => drop(seen.unwrap()),
        }
    }

    pub(crate) fn tally(&self) -> Tally {
        self.receiver.tally()
    }
}

pub(crate) fn run() -> Run {
    let facts = RunFacts {
        job: "mail".to_owned(),
        id: "r-1".to_owned(),
        tick: Timestamp::UNIX_EPOCH,
        attempt: 1,
        replica: "a".to_owned(),
        batch: None,
        shard: 0,
        shards: 1,
        params: Value::Null,
        checkpoint: None,
    };
    Run::new(facts, Clock::system(), None, Duration::ZERO, Moment::NEVER)
}

pub(crate) async fn send(job: &Notifications, token: u64, batch: &str) -> Outcome {
    job.process_under(Token(token), batch, &run())
        .await
        .unwrap()
}

pub(crate) async fn listed(job: &Notifications) -> Exceptions {
    job.exceptions().await.unwrap()
}
