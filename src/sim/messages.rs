//! Batches that are messages: each handled once although every replica reads all of them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

use super::{acts::ms, world::TTL};
use crate::{
    batch::{BatchJob, BatchLimits},
    clock::Moment,
    job::{JobError, Outcome, Retry, Run, Spec},
    testing::{cluster::Cluster, members::Member},
    worker::ready::Body,
};

/// What became of a message: which attempt, when, where.
type Handled = Arc<Mutex<BTreeMap<String, Vec<(u32, Moment, String)>>>>;

/// What one replica has read of the messages, and how many first attempts at each fail.
struct Reader {
    unsettled: Mutex<BTreeMap<String, Timestamp>>,
    refused: Mutex<Vec<String>>,
    handled: Handled,
    failures: u32,
    source: &'static str,
    limits: BatchLimits,
}

#[async_trait]
impl BatchJob for Reader {
    async fn pending(&self, limit: usize) -> Result<Vec<String>, JobError> {
        let unsettled = self.unsettled.lock().unwrap();
        Ok(unsettled.keys().take(limit).cloned().collect())
    }

    async fn process(&self, batch: &str, run: Run) -> Result<Outcome, JobError> {
        let clock = run.lease().ok_or("no claim")?.clock().clone();
        let seen = (run.attempt(), clock.now(), run.facts().replica.clone());
        {
            let mut handled = self.handled.lock().unwrap();
            handled.entry(batch.to_owned()).or_default().push(seen);
        }
        if batch.starts_with("hangs") && run.attempt() <= self.failures {
            run.cancelled().await;
            return Err("it was stopped".into());
        }
        if batch.starts_with("waits") {
            return Ok(Outcome::RetryAfter(Duration::from_secs(1800)));
        }
        match run.attempt() > self.failures {
            true => Ok(Outcome::Done),
            false => Err("not this time".into()),
        }
    }

    fn limits(&self) -> BatchLimits {
        self.limits
    }

    fn retention(&self) -> Option<Duration> {
        Some(Duration::from_secs(3600))
    }

    fn source(&self) -> &str {
        self.source
    }

    fn produced_at(&self, batch: &str) -> Timestamp {
        let dates = self.unsettled.lock().unwrap();
        dates.get(batch).copied().unwrap_or_default()
    }

    async fn refused(&self, batch: &str, _run: Run) -> Result<Outcome, JobError> {
        self.refused.lock().unwrap().push(batch.to_owned());
        Ok(Outcome::Done)
    }

    fn settled(&self, batch: &str) {
        self.unsettled.lock().unwrap().remove(batch);
    }
}

fn reader(messages: &BTreeMap<String, Timestamp>, handled: &Handled, failures: u32) -> Arc<Reader> {
    Arc::new(Reader {
        unsettled: Mutex::new(messages.clone()),
        refused: Mutex::default(),
        handled: handled.clone(),
        failures,
        source: "",
        limits: BatchLimits::default(),
    })
}

/// A replica for each of them.
fn join(fleet: &Cluster, readers: &[Arc<Reader>], spec: &Spec) -> Vec<Member> {
    let named = ["a", "b", "c"].into_iter().zip(readers);
    let member = |(name, reader): (&'static str, &Arc<Reader>)| {
        let body = Body::Batch(reader.clone());
        fleet.join_with(name, vec![("job", body, spec.clone())], false)
    };
    named.map(member).collect()
}

async fn until_all_is_settled(fleet: &Cluster, readers: &[Arc<Reader>]) {
    for _ in 0..1_000 {
        fleet.sleep(ms(50)).await;
        if readers
            .iter()
            .all(|r| r.unsettled.lock().unwrap().is_empty())
        {
            return;
        }
    }
    panic!(
        "some messages were never settled: {:?}",
        readers[0].handled.lock().unwrap()
    );
}

#[tokio::test(start_paused = true)]
async fn a_message_is_handled_once_by_all_replicas() {
    let fleet = Cluster::new(3);
    let now = fleet.clock().wall();
    let messages = (0..60).map(|n| (format!("m{n:02}"), now)).collect();
    let handled = Handled::default();
    let readers = ["a", "b", "c"].map(|_| reader(&messages, &handled, 0));
    let _members = join(&fleet, &readers, &Spec::continuous());
    until_all_is_settled(&fleet, &readers).await;
    let handled = handled.lock().unwrap();
    assert_eq!(handled.len(), 60);
    assert!(handled.values().all(|seen| seen.len() == 1), "{handled:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_too_old_is_refused_by_one_replica() {
    let fleet = Cluster::new(3);
    let old = |n: usize| (format!("old{n}"), Timestamp::UNIX_EPOCH);
    let messages = (0..5).map(old).collect();
    let handled = Handled::default();
    let readers = ["a", "b", "c"].map(|_| reader(&messages, &handled, 0));
    let _members = join(&fleet, &readers, &Spec::continuous());
    until_all_is_settled(&fleet, &readers).await;
    assert!(handled.lock().unwrap().is_empty());
    let mut refused: Vec<String> = Vec::new();
    for reader in &readers {
        refused.append(&mut reader.refused.lock().unwrap());
    }
    refused.sort();
    assert_eq!(refused, (0..5).map(|n| old(n).0).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn equal_ids_of_another_source_are_other_messages() {
    let fleet = Cluster::new(3);
    let messages = BTreeMap::from([("m".to_owned(), fleet.clock().wall())]);
    let handled = Handled::default();
    for (n, (name, source)) in [("a", "one"), ("b", "two"), ("c", "one")]
        .into_iter()
        .enumerate()
    {
        let reader = Arc::new(Reader {
            unsettled: Mutex::new(messages.clone()),
            refused: Mutex::default(),
            handled: handled.clone(),
            failures: 0,
            source,
            limits: BatchLimits::default(),
        });
        let body = Body::Batch(reader.clone());
        let _member = fleet.join_with(name, vec![("job", body, Spec::continuous())], false);
        until_all_is_settled(&fleet, &[reader]).await;
        assert_eq!(handled.lock().unwrap()["m"].len(), (n + 1).min(2));
    }
}

#[tokio::test(start_paused = true)]
async fn batches_that_wait_do_not_hide_those_behind_them() {
    let fleet = Cluster::new(3);
    let now = fleet.clock().wall();
    let mut messages: BTreeMap<_, _> = (0..80).map(|n| (format!("waits{n:02}"), now)).collect();
    messages.insert("z".to_owned(), now);
    let handled = Handled::default();
    let reader = Arc::new(Reader {
        unsettled: Mutex::new(messages),
        refused: Mutex::default(),
        handled: handled.clone(),
        failures: 0,
        source: "",
        limits: BatchLimits {
            claim: 1,
            concurrency: 4,
        },
    });
    let body = Body::Batch(reader.clone());
    let _member = fleet.join_with("a", vec![("job", body, Spec::continuous())], false);
    for _ in 0..1_000 {
        fleet.sleep(ms(50)).await;
        if handled.lock().unwrap().contains_key("z") {
            return;
        }
    }
    panic!("{} were found", handled.lock().unwrap().len());
}

#[tokio::test(start_paused = true)]
async fn a_message_that_is_dated_too_far_ahead_is_told() {
    let fleet = Cluster::new(3);
    let now = fleet.clock().wall();
    let ahead = now + SignedDuration::from_hours(100);
    let messages = BTreeMap::from([("ahead".to_owned(), ahead), ("now".to_owned(), now)]);
    let handled = Handled::default();
    let reader = reader(&messages, &handled, 0);
    let body = Body::Batch(reader.clone());
    let a = fleet.join_with("a", vec![("job", body, Spec::continuous())], false);
    let trouble = async || {
        fleet.sleep(TTL * 3).await;
        a.publish();
        fleet.sleep(TTL).await;
        let shown = a.client().each().await.unwrap();
        shown.job("job").unwrap().trouble.clone()
    };
    let told = trouble().await.unwrap().to_string();
    assert!(told.contains("ahead is dated"), "{told}");
    assert!(handled.lock().unwrap().keys().eq(["now"]));
    // For as long as the message is there.
    reader.settled("ahead");
    assert_eq!(trouble().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_message_that_fails_waits_on_every_replica() {
    let fleet = Cluster::new(3);
    let messages = BTreeMap::from([("m".to_owned(), fleet.clock().wall())]);
    let handled = Handled::default();
    let readers = ["a", "b", "c"].map(|_| reader(&messages, &handled, 2));
    let backoff = Duration::from_secs(4);
    let spec = Spec::continuous().retry(Retry {
        backoff,
        ..Retry::default()
    });
    let _members = join(&fleet, &readers, &spec);
    until_all_is_settled(&fleet, &readers).await;
    let handled = handled.lock().unwrap();
    let attempts = &handled["m"];
    let numbers: Vec<u32> = attempts.iter().map(|(n, ..)| *n).collect();
    assert_eq!(numbers, [1, 2, 3], "{attempts:?}");
    for (two, least) in attempts.windows(2).zip([backoff, backoff * 2]) {
        let pause = two[1].1.since(two[0].1);
        assert!(pause + ms(50) >= least, "{attempts:?}");
    }
}

/// Else it would go round the replicas for ever, each time as if for the first time.
#[tokio::test(start_paused = true)]
async fn a_message_that_is_stopped_for_want_of_progress_has_failed() {
    let fleet = Cluster::new(3);
    let messages = BTreeMap::from([("hangs".to_owned(), fleet.clock().wall())]);
    let handled = Handled::default();
    let readers = ["a", "b"].map(|_| reader(&messages, &handled, 2));
    let spec = Spec::continuous().progress_deadline(Duration::from_secs(2));
    let _members = join(&fleet, &readers, &spec);
    until_all_is_settled(&fleet, &readers).await;
    let handled = handled.lock().unwrap();
    let numbers: Vec<u32> = handled["hangs"].iter().map(|(n, ..)| *n).collect();
    assert_eq!(numbers, [1, 2, 3], "{:?}", handled["hangs"]);
}
