//! Batches and their claims, each promise by its name.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use jiff::Timestamp;

use super::{
    acts::{Moody, Ran, ms},
    world::TTL,
};
use crate::{
    batch::BatchJob,
    clock::Moment,
    event::Event,
    fleet::client::runs,
    job::{ItemOutcome, JobError, Outcome, Run, Spec},
    node::memory::MemoryNode,
    status::{JobStanding, RunRecord},
    testing::{cluster::Cluster, members::Member},
    worker::ready::Body,
};

/// Batches that are pending until they are done, and a closure that works on one.
pub(super) struct Sheaf<F> {
    pub(super) left: Arc<Mutex<BTreeSet<String>>>,
    pub(super) work: F,
}

#[async_trait]
impl<F: Fn(Run) -> Ran + Send + Sync + 'static> BatchJob for Sheaf<F> {
    async fn pending(&self, limit: usize) -> Result<Vec<String>, JobError> {
        Ok(self
            .left
            .lock()
            .unwrap()
            .iter()
            .take(limit)
            .cloned()
            .collect())
    }

    async fn process(&self, batch: &str, run: Run) -> Result<Outcome, JobError> {
        let outcome = (self.work)(run).await?;
        self.left.lock().unwrap().remove(batch);
        Ok(outcome)
    }
}

pub(super) fn batches(
    names: impl IntoIterator<Item = impl ToString>,
) -> Arc<Mutex<BTreeSet<String>>> {
    let names = names.into_iter().map(|name| name.to_string());
    Arc::new(Mutex::new(names.collect()))
}

fn join<F: Fn(Run) -> Ran + Send + Sync + 'static>(
    fleet: &Cluster,
    name: &str,
    left: &Arc<Mutex<BTreeSet<String>>>,
    work: F,
    spec: Spec,
) -> Member {
    let left = left.clone();
    let body = Body::Batch(Arc::new(Sheaf { left, work }));
    fleet.join_with(name, vec![("job", body, spec)], false)
}

/// On how many nodes this owner holds the claim of a batch.
fn holding(nodes: &[MemoryNode], batch: &str, owner: &str) -> usize {
    let key = format!("batch/job/{batch}");
    let held = |node: &&MemoryNode| {
        let now = node.time();
        node.inspect(|state| state.holder(&key, now) == Some(owner))
    };
    nodes.iter().filter(held).count()
}

/// The claim behind a run, on how many nodes it stands now.
fn claimed(nodes: &[MemoryNode], run: &Run) -> usize {
    let owner = run.lease().map_or("", |lease| lease.owner());
    holding(nodes, run.batch().unwrap_or_default(), owner)
}

/// Notes, when the work it is part of is gone, on how many nodes the claim still stood.
struct LastSight {
    run: Run,
    nodes: Vec<MemoryNode>,
    seen: Arc<Mutex<Vec<usize>>>,
}

impl Drop for LastSight {
    fn drop(&mut self) {
        let seen = claimed(&self.nodes, &self.run);
        self.seen.lock().unwrap().push(seen);
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_processed_under_its_claim() {
    let fleet = Cluster::new(3);
    let left = batches(0..40);
    let (busy, seen) = (
        Arc::new(Mutex::new(BTreeSet::new())),
        Arc::new(Mutex::new(BTreeMap::new())),
    );
    let members = ["a", "b", "c"].map(|name| {
        let (nodes, busy, seen) = (fleet.nodes.clone(), busy.clone(), seen.clone());
        let work = move |run: Run| {
            let (nodes, busy, seen) = (nodes.clone(), busy.clone(), seen.clone());
            Box::pin(async move {
                let batch = run.batch().unwrap_or_default().to_owned();
                assert!(
                    busy.lock().unwrap().insert(batch.clone()),
                    "{batch}: two at once"
                );
                let clock = run.lease().ok_or("no claim")?.clock().clone();
                // Longer than a claim lives by itself.
                for _ in 0..4 {
                    let on = claimed(&nodes, &run);
                    assert!(
                        on >= 2,
                        "{batch} is worked on with a claim on {on} of 3 nodes"
                    );
                    clock.sleep(TTL / 3).await;
                }
                busy.lock().unwrap().remove(&batch);
                *seen.lock().unwrap().entry(batch).or_insert(0) += 1;
                Ok(Outcome::Done)
            }) as Ran
        };
        join(&fleet, name, &left, work, Spec::continuous())
    });
    for _ in 0..600 {
        fleet.sleep(ms(50)).await;
        if left.lock().unwrap().is_empty() {
            break;
        }
    }
    assert!(left.lock().unwrap().is_empty(), "everything was worked on");
    for member in &members {
        let panicked = |e: &Event| matches!(e, Event::BatchEnded { outcome, .. } if *outcome != "done" && *outcome != "skipped");
        assert!(!member.heard(panicked), "{:?}", member.told.lock().unwrap());
        assert!(
            member.heard(|e| matches!(e, Event::BatchClaimed { .. })),
            "all take part"
        );
    }
    assert_eq!(seen.lock().unwrap().len(), 40);
}

/// A job whose table is not there, or is.
struct Blind(Arc<AtomicBool>);

#[async_trait]
impl BatchJob for Blind {
    async fn pending(&self, _limit: usize) -> Result<Vec<String>, JobError> {
        match self.0.load(Ordering::SeqCst) {
            true => Err("no such table: mail".into()),
            false => Ok(Vec::new()),
        }
    }

    async fn process(&self, _batch: &str, _run: Run) -> Result<Outcome, JobError> {
        Ok(Outcome::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_cannot_look_for_work_says_so_until_it_can() {
    let fleet = Cluster::new(3);
    let blind = Arc::new(AtomicBool::new(true));
    let body = Body::Batch(Arc::new(Blind(blind.clone())));
    let a = fleet.join_with("a", vec![("job", body, Spec::continuous())], false);
    let trouble = async || {
        fleet.sleep(TTL * 3).await;
        a.publish();
        fleet.sleep(TTL).await;
        let shown = a.client().each().await.unwrap();
        shown.job("job").unwrap().trouble.clone()
    };
    let told = trouble().await.unwrap();
    assert_eq!(
        told.to_string(),
        "a cannot look for work: no such table: mail"
    );
    blind.store(false, Ordering::SeqCst);
    assert_eq!(trouble().await, None);
}

/// A job that is told of work, and counts how often it is asked for it.
#[derive(Default)]
struct Told {
    bell: tokio::sync::Notify,
    always: AtomicBool,
    looks: AtomicUsize,
}

#[async_trait]
impl BatchJob for Told {
    async fn pending(&self, _limit: usize) -> Result<Vec<String>, JobError> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        Ok(Vec::new())
    }

    async fn process(&self, _batch: &str, _run: Run) -> Result<Outcome, JobError> {
        Ok(Outcome::Done)
    }

    async fn woken(&self) {
        if !self.always.load(Ordering::SeqCst) {
            self.bell.notified().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_told_of_work_looks_at_once_and_not_without_a_pause() {
    let fleet = Cluster::new(3);
    let told = Arc::new(Told::default());
    let body = Body::Batch(told.clone());
    let _a = fleet.join_with("a", vec![("job", body, Spec::continuous())], false);
    let looks = || told.looks.load(Ordering::SeqCst);
    fleet.sleep(ms(5000)).await;
    let before = looks();
    fleet.sleep(ms(1000)).await;
    assert!(looks() - before <= 4, "it is at rest");
    let before = looks();
    for _ in 0..20 {
        told.bell.notify_one();
        fleet.sleep(ms(20)).await;
    }
    assert!(looks() - before >= 20, "{} looks", looks() - before);
    told.always.store(true, Ordering::SeqCst);
    let before = looks();
    fleet.sleep(ms(1000)).await;
    assert!(looks() - before <= 101, "{} looks", looks() - before);
}

#[tokio::test(start_paused = true)]
async fn a_lost_claim_cancels_one_batch() {
    let fleet = Cluster::new(3);
    let left = batches(["lost", "kept"]);
    let runs = Arc::new(Mutex::new(BTreeMap::new()));
    let notes = runs.clone();
    let work = move |run: Run| {
        let batch = run.batch().unwrap_or_default().to_owned();
        notes.lock().unwrap().insert(batch, run.clone());
        Box::pin(async move {
            run.cancelled().await;
            Err(JobError::from("stopped"))
        }) as Ran
    };
    let member = join(&fleet, "a", &left, work, Spec::continuous());
    while runs.lock().unwrap().len() < 2 {
        fleet.sleep(ms(5)).await;
    }
    for node in &fleet.nodes {
        node.faults().plant("batch/job/lost", "foreign", None);
    }
    fleet.sleep(TTL * 3).await;
    let ended = |name: &str| {
        member.heard(|e| matches!(e, Event::BatchEnded { batch, .. } if batch == name))
    };
    assert!(ended("lost"));
    assert!(!ended("kept"));
    let runs = runs.lock().unwrap();
    assert!(runs["lost"].check().is_err());
    assert_eq!(runs["kept"].check(), Ok(()));
    assert!(claimed(&fleet.nodes, &runs["kept"]) >= 2);
    assert_eq!(*member.aborts.lock().unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_claim_outlives_its_work() {
    let fleet = Cluster::new(3);
    let left = batches(["deaf", "willing"]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (nodes, notes) = (fleet.nodes.clone(), seen.clone());
    let work = move |run: Run| {
        let (nodes, seen) = (nodes.clone(), notes.clone());
        Box::pin(async move {
            let clock = run.lease().ok_or("no claim")?.clock().clone();
            let deaf = run.batch() == Some("deaf");
            let _sight = LastSight {
                run: run.clone(),
                nodes,
                seen,
            };
            clock.sleep(TTL * 2).await;
            if deaf {
                std::future::pending::<()>().await;
            }
            Ok(Outcome::Done)
        }) as Ran
    };
    let spec = Spec::continuous().grace(ms(200));
    let member = join(&fleet, "a", &left, work, spec);
    let claims = |e: &Event| matches!(e, Event::BatchClaimed { batch, .. } if batch == "deaf");
    while !member.heard(claims) {
        fleet.sleep(ms(5)).await;
    }
    // One ends by itself, the other is dropped after its grace: the claim is there until either has gone.
    member.drain();
    fleet.sleep(TTL * 8).await;
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 2, "both are over");
    assert!(seen.iter().all(|on| *on >= 2), "{seen:?}");
    for batch in ["deaf", "willing"] {
        for node in &fleet.nodes {
            let (key, now) = (format!("batch/job/{batch}"), node.time());
            assert!(node.inspect(|state| state.holder(&key, now).is_none()));
        }
    }
    assert_eq!(*member.aborts.lock().unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_claimed_once_the_worker_drains() {
    let fleet = Cluster::new(3);
    let left = batches(["late"]);
    let work = |_: Run| Box::pin(async { Ok(Outcome::Done) }) as Ran;
    for node in &fleet.nodes {
        node.faults().delay_replies(ms(20), ms(20));
    }
    let member = join(&fleet, "a", &left, work, Spec::continuous());
    // Its first claim is under way.
    fleet.sleep(ms(5)).await;
    member.drain();
    fleet.sleep(TTL).await;
    assert!(!member.heard(|e| matches!(e, Event::BatchClaimed { .. })));
    for node in &fleet.nodes {
        let now = node.time();
        assert!(node.inspect(|state| state.holder("batch/job/late", now).is_none()));
    }
}

#[tokio::test(start_paused = true)]
async fn an_unfit_replica_ends_the_batches_it_works_on() {
    let fleet = Cluster::new(3);
    // More than it can work on at once: it has no room to look for others, and is asked all the same.
    let left = batches(0..40);
    let (unfit, stopped) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(0)));
    let count = stopped.clone();
    let work = move |run: Run| {
        let count = count.clone();
        Box::pin(async move {
            run.cancelled().await;
            assert!(run.why().contains("no network"), "{}", run.why());
            *count.lock().unwrap() += 1;
            Err(JobError::from("stopped"))
        }) as Ran
    };
    let moody = Moody {
        job: Sheaf { left, work },
        unfit: unfit.clone(),
    };
    let body = Body::Batch(Arc::new(moody));
    let member = fleet.join_with("a", vec![("job", body, Spec::continuous())], false);
    while !member.heard(|e| matches!(e, Event::BatchClaimed { .. })) {
        fleet.sleep(ms(5)).await;
    }
    fleet.sleep(TTL).await;
    assert_eq!(*stopped.lock().unwrap(), 0);
    *unfit.lock().unwrap() = Some("no network".to_owned());
    fleet.sleep(TTL).await;
    assert!(*stopped.lock().unwrap() > 0);
    let now = member.told.lock().unwrap().len();
    fleet.sleep(TTL * 3).await;
    let later = member.told.lock().unwrap()[now..].to_vec();
    let claims = |e: &Event| matches!(e, Event::BatchClaimed { .. });
    assert!(
        !later.iter().any(claims),
        "nothing new while it is unfit: {later:?}"
    );
}

/// Tells of a backlog, as a job does it, and lets it come through.
async fn tell_backlog(fleet: &Cluster, member: &Member, items: u64) {
    let job = || "job".to_owned();
    member.ctx.events.tell(Event::Backlog {
        job: job(),
        items,
        since: Some(Timestamp::UNIX_EPOCH),
    });
    member.ctx.events.tell(Event::HeldItems {
        job: job(),
        retry: 0,
        dead: items,
        in_doubt: 0,
        parked: 0,
    });
    fleet.sleep(ms(5)).await;
}

/// Backlog, dead items and trouble, as a member tells them.
fn waits(member: &Member) -> (Option<u64>, Option<u64>, bool) {
    let jobs = member.ctx.local_status.jobs();
    let job = &jobs[0];
    assert_eq!(job.backlog.is_some(), job.backlog_since.is_some());
    let dead = job.held.map(|held| held.dead);
    (job.backlog, dead, job.trouble.is_some())
}

const NOTHING: (Option<u64>, Option<u64>, bool) = (None, None, false);

#[tokio::test(start_paused = true)]
async fn an_unfit_replica_tells_no_backlog() {
    let fleet = Cluster::new(3);
    let unfit = Arc::new(Mutex::new(None));
    let moody = Moody {
        job: Sheaf {
            left: batches(0..0),
            work: |_: Run| Box::pin(async { Ok(Outcome::Done) }) as Ran,
        },
        unfit: unfit.clone(),
    };
    let body = Body::Batch(Arc::new(moody));
    let member = fleet.join_with("a", vec![("job", body, Spec::continuous())], false);
    fleet.sleep(TTL).await;
    tell_backlog(&fleet, &member, 7).await;
    assert_eq!(waits(&member), (Some(7), Some(7), false));
    let why = "no table".to_owned();
    member.ctx.local_status.trouble("job", Some(why));
    *unfit.lock().unwrap() = Some("no network".to_owned());
    fleet.sleep(TTL).await;
    assert_eq!(waits(&member), NOTHING);
    // What was counted before comes late.
    tell_backlog(&fleet, &member, 8).await;
    assert_eq!(waits(&member), NOTHING);
    *unfit.lock().unwrap() = None;
    fleet.sleep(TTL).await;
    tell_backlog(&fleet, &member, 9).await;
    assert_eq!(waits(&member), (Some(9), Some(9), false));
}

#[tokio::test(start_paused = true)]
async fn what_was_the_active_replica_tells_no_backlog() {
    let fleet = Cluster::new(3);
    let [a, b] = ["a", "b"].map(|name| {
        let work = |_: Run| Box::pin(async { Ok(Outcome::Done) }) as Ran;
        let left = batches(0..0);
        let body = Body::Batch(Arc::new(Sheaf { left, work }));
        fleet.join_with(name, vec![("job", body, Spec::continuous())], true)
    });
    let working = |member: &Member| {
        let jobs = member.ctx.local_status.jobs();
        let first = jobs.first();
        first.is_some_and(|job| job.standing == JobStanding::Working)
    };
    while !working(&a) && !working(&b) {
        fleet.sleep(ms(5)).await;
    }
    let (was, is) = if working(&a) { (a, b) } else { (b, a) };
    fleet.sleep(TTL).await;
    tell_backlog(&fleet, &was, 7).await;
    assert_eq!(waits(&was), (Some(7), Some(7), false));
    was.tasks.freeze();
    while !working(&is) {
        fleet.sleep(ms(5)).await;
    }
    was.tasks.thaw();
    fleet.sleep(TTL * 2).await;
    assert!(working(&is));
    assert_eq!(waits(&was), NOTHING);
    tell_backlog(&fleet, &is, 3).await;
    assert_eq!(waits(&is), (Some(3), Some(3), false));
}

#[tokio::test(start_paused = true)]
async fn the_history_tells_of_every_batch_in_few_records() {
    let fleet = Cluster::new(3);
    let left = batches(0..600);
    let members = ["a", "b"].map(|name| {
        let work = |run: Run| {
            Box::pin(async move {
                run.count_items("sent", 10);
                match run.batch() {
                    Some("7" | "8") => Err(JobError::from("no disk")),
                    _ => Ok(Outcome::Done),
                }
            }) as Ran
        };
        join(&fleet, name, &left, work, Spec::continuous())
    });
    while left.lock().unwrap().len() > 2 {
        fleet.sleep(ms(50)).await;
    }
    members.iter().for_each(Member::drain);
    fleet.sleep(TTL * 4).await;
    let observer = &members[0];
    let told = runs::last(&observer.ctx.locks, "job", 1000).await.unwrap();
    let ended: usize = members
        .iter()
        .map(|member| {
            let told = member.told.lock().unwrap();
            let ended = told
                .iter()
                .filter(|e| matches!(e, Event::BatchEnded { .. }));
            ended.count()
        })
        .sum();
    let of = |run: &RunRecord| {
        let counts = run.batches.unwrap_or_default();
        u64::from(run.batch.is_some()) + counts.done + counts.skipped + counts.failed
    };
    assert_eq!(told.iter().map(of).sum::<u64>(), ended as u64, "{told:?}");
    assert!(ended >= 600, "{ended}");
    assert!(told.len() <= 30, "{} records", told.len());
    let single = told.iter().find(|run| run.batch.as_deref() == Some("7"));
    let single = single.expect("what failed is told singly");
    assert_eq!(
        (single.outcome.as_str(), single.detail.as_str()),
        ("failed", "no disk")
    );
    assert!(single.token.is_some() && single.took_ms.is_some());
    let sent: u64 = told.iter().filter_map(|run| run.items.get("sent")).sum();
    assert_eq!(sent, 10 * ended as u64);
}

/// Work that is pending until all of it has been tried twice, with the times of the attempts.
struct Mails(Arc<Mutex<Vec<Moment>>>);

#[async_trait]
impl BatchJob for Mails {
    async fn pending(&self, _limit: usize) -> Result<Vec<String>, JobError> {
        let done = self.0.lock().unwrap().len() >= 2;
        Ok(if done {
            Vec::new()
        } else {
            vec!["7".to_owned()]
        })
    }

    async fn process(&self, _batch: &str, run: Run) -> Result<Outcome, JobError> {
        let now = run.lease().unwrap().clock().now();
        self.0.lock().unwrap().push(now);
        run.item("one", ItemOutcome::Done);
        let busy = |pause| ItemOutcome::RetryAfter(pause, "busy".to_owned());
        run.item("two", busy(TTL * 9));
        run.item("three", busy(TTL * 3));
        run.item("four", ItemOutcome::Dead("no such address".to_owned()));
        Ok(Outcome::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_comes_back_for_items_that_are_to_be_tried_again() {
    let fleet = Cluster::new(3);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let body = Body::Batch(Arc::new(Mails(seen.clone())));
    let a = fleet.join_with("a", vec![("job", body, Spec::continuous())], false);
    fleet.sleep(TTL * 6).await;
    let times = seen.lock().unwrap().clone();
    let [first, second] = times[..] else {
        panic!("{times:?}")
    };
    let pause = second.since(first);
    assert!((TTL * 3..TTL * 4).contains(&pause), "{pause:?}");
    a.drain();
    fleet.sleep(TTL * 4).await;
    let told = runs::last(&a.ctx.locks, "job", 10).await.unwrap();
    let mut told = told.iter().filter(|run| run.batch.as_deref() == Some("7"));
    let of_batch = told
        .next()
        .expect("a batch with a dead item is told singly");
    assert_eq!(
        of_batch.detail,
        "two retry: busy; three retry: busy; four dead: no such address"
    );
    let counts = [("dead", 1), ("done", 1), ("retry", 2)];
    let counts = counts.map(|(word, n)| (word.to_owned(), n));
    assert_eq!(of_batch.items, BTreeMap::from(counts));
}

/// One batch, which is left to others each time, for a while.
struct LeftToOthers(Arc<Mutex<Vec<Moment>>>);

#[async_trait]
impl BatchJob for LeftToOthers {
    async fn pending(&self, _limit: usize) -> Result<Vec<String>, JobError> {
        Ok(vec!["7".to_owned()])
    }

    async fn process(&self, _batch: &str, run: Run) -> Result<Outcome, JobError> {
        let now = run.lease().unwrap().clock().now();
        self.0.lock().unwrap().push(now);
        run.comes_back(TTL * 3);
        Ok(Outcome::Skip("a later holder has it".to_owned()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_skipped_for_a_while_is_left_alone_for_it() {
    let fleet = Cluster::new(3);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let body = Body::Batch(Arc::new(LeftToOthers(seen.clone())));
    let _a = fleet.join_with("a", vec![("job", body, Spec::continuous())], false);
    fleet.sleep(TTL * 6).await;
    let times = seen.lock().unwrap().clone();
    let [first, second] = times[..] else {
        panic!("{times:?}")
    };
    let pause = second.since(first);
    assert!((TTL * 3..TTL * 4).contains(&pause), "{pause:?}");
}

/// Batches that are to wait while their receiver is busy, and how many are worked on at a time.
struct Slow {
    left: Arc<Mutex<BTreeSet<String>>>,
    busy: Arc<AtomicBool>,
    /// Now, and at most since that was asked last.
    at_work: Arc<Mutex<(usize, usize)>>,
}

#[async_trait]
impl BatchJob for Slow {
    async fn pending(&self, limit: usize) -> Result<Vec<String>, JobError> {
        let left = self.left.lock().unwrap();
        Ok(left.iter().take(limit).cloned().collect())
    }

    async fn process(&self, batch: &str, run: Run) -> Result<Outcome, JobError> {
        {
            let mut at_work = self.at_work.lock().unwrap();
            at_work.0 += 1;
            at_work.1 = at_work.1.max(at_work.0);
        }
        run.lease().unwrap().clock().sleep(ms(200)).await;
        self.at_work.lock().unwrap().0 -= 1;
        if self.busy.load(Ordering::SeqCst) {
            return Ok(Outcome::RetryAfter(ms(100)));
        }
        self.left.lock().unwrap().remove(batch);
        Ok(Outcome::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn batches_that_are_to_wait_slow_the_engine_down_until_they_are_done() {
    let fleet = Cluster::new(3);
    let (busy, at_work) = (Arc::new(AtomicBool::new(true)), Arc::default());
    let slow = Slow {
        left: batches(0..400),
        busy: busy.clone(),
        at_work: Arc::clone(&at_work),
    };
    let body = Body::Batch(Arc::new(slow));
    let _a = fleet.join_with("a", vec![("job", body, Spec::continuous())], false);
    let most = async |pause| {
        fleet.sleep(pause).await;
        let mut at_work: std::sync::MutexGuard<'_, (usize, usize)> = at_work.lock().unwrap();
        let most = at_work.1;
        at_work.1 = at_work.0;
        most
    };
    assert_eq!(most(TTL * 3).await, 4, "at first");
    assert_eq!(most(TTL * 3).await, 1, "while all are to wait");
    busy.store(false, Ordering::SeqCst);
    assert_eq!(most(TTL * 5).await, 4, "when they are done again");
}

/// Batches that are done as soon as they are claimed, and how often this replica has asked for them.
struct Quick {
    left: Arc<Mutex<BTreeSet<String>>>,
    looks: Arc<AtomicUsize>,
}

#[async_trait]
impl BatchJob for Quick {
    async fn pending(&self, limit: usize) -> Result<Vec<String>, JobError> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        let left = self.left.lock().unwrap();
        Ok(left.iter().take(limit).cloned().collect())
    }

    async fn process(&self, batch: &str, _run: Run) -> Result<Outcome, JobError> {
        match self.left.lock().unwrap().remove(batch) {
            true => Ok(Outcome::Done),
            false => Ok(Outcome::Skip("done meanwhile".to_owned())),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn many_claims_are_made_of_one_look() {
    const BATCHES: usize = 1000;
    let fleet = Cluster::new(3);
    let (left, looks) = (batches(0..BATCHES), Arc::new(AtomicUsize::new(0)));
    let members = ["a", "b"].map(|name| {
        let (left, looks) = (left.clone(), looks.clone());
        let body = Body::Batch(Arc::new(Quick { left, looks }));
        fleet.join_with(name, vec![("job", body, Spec::continuous())], false)
    });
    for _ in 0..1200 {
        fleet.sleep(ms(50)).await;
        if left.lock().unwrap().is_empty() {
            break;
        }
    }
    assert!(left.lock().unwrap().is_empty(), "everything was worked on");
    let looks = looks.load(Ordering::SeqCst);
    // Four are claimed at a time, at most: without what is kept there are as many looks as claims.
    assert!(looks < BATCHES / 12, "{looks} looks");
    let ended = |member: &Member| {
        let told = member.told.lock().unwrap();
        let ended = told.iter().filter_map(|event| match event {
            Event::BatchEnded { outcome, .. } => Some(*outcome),
            _ => None,
        });
        let (done, not): (Vec<_>, Vec<_>) = ended.partition(|outcome| *outcome == "done");
        (done.len(), not.len())
    };
    let [a, b] = members.each_ref().map(ended);
    assert!(a.0.min(b.0) > BATCHES / 4, "both take part: {a:?}, {b:?}");
    assert!(a.1 + b.1 < BATCHES / 10, "few for nothing: {a:?}, {b:?}");
}

/// Its receiver asks every sender to wait, and then nothing is pending for a while.
struct Busy {
    asked: Arc<AtomicUsize>,
}

#[async_trait]
impl BatchJob for Busy {
    async fn pending(&self, _limit: usize) -> Result<Vec<String>, JobError> {
        Ok(match self.asked.load(Ordering::SeqCst) {
            0 => (0..200).map(|n| n.to_string()).collect(),
            _ => Vec::new(),
        })
    }

    async fn process(&self, _batch: &str, _run: Run) -> Result<Outcome, JobError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Ok(Outcome::RetryAfter(ms(60_000)))
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_look_has_found_is_left_when_a_batch_is_to_wait() {
    let fleet = Cluster::new(3);
    let asked = Arc::new(AtomicUsize::new(0));
    let body = Body::Batch(Arc::new(Busy {
        asked: asked.clone(),
    }));
    let _member = fleet.join_with("a", vec![("job", body, Spec::continuous())], false);
    fleet.sleep(ms(30_000)).await;
    let asked = asked.load(Ordering::SeqCst);
    // Four are claimed at a time.
    assert!(
        (1..=8).contains(&asked),
        "{asked} of 200 met a receiver that wants to rest"
    );
}

#[tokio::test(start_paused = true)]
async fn the_pause_of_a_batch_that_fails_grows_on_every_replica() {
    let fleet = Cluster::new(3);
    let left = batches(["poison"]);
    let members = ["a", "b"].map(|name| {
        let work = |run: Run| {
            Box::pin(async move {
                // Longer than the first pauses: the other replica finds its claim.
                let clock = run.lease().ok_or("no claim")?.clock().clone();
                clock.sleep(ms(5_000)).await;
                Err(JobError::from("no disk"))
            }) as Ran
        };
        join(&fleet, name, &left, work, Spec::continuous())
    });
    fleet.sleep(ms(600_000)).await;
    for member in &members {
        let told = member.told.lock().unwrap();
        let failed = told
            .iter()
            .filter(|event| matches!(event, Event::BatchEnded { .. }));
        let failed = failed.count();
        // Pauses of 1 s, 2 s and so on to a minute; without them one begins as soon as the other has ended, 50 times.
        assert!((8..=20).contains(&failed), "{failed} times");
    }
}
