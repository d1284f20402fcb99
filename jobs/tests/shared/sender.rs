//! Senders of notifications within a test: a clock that can be moved on, runs, a sender that is killed.
#![allow(dead_code, reason = "every suite uses its own part")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use watchkeeper::{
    clock::{Clock, Moment, TimeSource},
    job::{Outcome, Run, RunFacts},
    node::Token,
};
use watchkeeper_jobs::{Notifications, notifications::Exceptions, receiver::Receiver};

/// A clock that can be moved on.
#[derive(Clone, Default)]
pub(crate) struct Calendar(Arc<AtomicI64>);

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

impl Calendar {
    pub(crate) fn clock(&self) -> Clock {
        Clock::new(Shifted {
            real: Clock::system(),
            later_ms: Arc::clone(&self.0),
        })
    }

    pub(crate) fn advance(&self, by: Duration) {
        let ms = i64::try_from(by.as_millis()).unwrap();
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

/// Sends `batch` and kills the sender once the receiver has seen `n` requests in all.
pub(crate) async fn kill_after(
    receiver: &Receiver,
    n: u64,
    job: &Notifications,
    token: u64,
    batch: &str,
) {
    let mut tally = receiver.watch();
    let run = run();
    tokio::select! {
        _ = job.process_under(Token(token), batch, &run) => panic!("ended by itself"),
        seen = tally.wait_for(|t| t.requests >= n) => drop(seen.unwrap()),
    }
}

pub(crate) fn run() -> Run {
    run_of("mail")
}

pub(crate) fn run_of(job: &str) -> Run {
    let facts = RunFacts {
        job: job.to_owned(),
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
    try_send(job, token, batch).await.unwrap()
}

#[allow(dead_code, reason = "each suite uses its own part")]
pub(crate) async fn try_send(
    job: &Notifications,
    token: u64,
    batch: &str,
) -> Result<Outcome, watchkeeper::job::JobError> {
    job.process_under(Token(token), batch, &run()).await
}

pub(crate) async fn listed(job: &Notifications) -> Exceptions {
    job.exceptions().await.unwrap()
}
