//! What people hear of jobs that break, over whole replicas.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;

use super::acts::{Act, Starts, leader, ms, quick};
use crate::{
    due::Misfire,
    job::{Coordination, Job, JobError, Outcome, Run, Spec},
    notice::{Notice, Posts, Receiver, Unsent},
    testing::{cluster::Cluster, members::Member},
};

const SECOND: Duration = Duration::from_secs(1);

/// Notes what it is told.
#[derive(Clone, Default)]
struct Ears {
    heard: Arc<Mutex<Vec<Notice>>>,
    /// It never answers.
    dead: Arc<AtomicBool>,
    every_end: bool,
}

#[async_trait]
impl Receiver for Ears {
    fn wants_every_end(&self) -> bool {
        self.every_end
    }

    async fn send(&self, notice: &Notice) -> Result<(), Unsent> {
        if self.dead.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.heard.lock().unwrap().push(notice.clone());
        Ok(())
    }
}

impl Ears {
    fn words(&self) -> Vec<&'static str> {
        let heard = self.heard.lock().unwrap();
        heard.iter().map(|notice| notice.what.as_str()).collect()
    }
}

/// A fleet whose jobs tell these by default.
fn fleet(ears: &Ears) -> Cluster {
    let mut fleet = Cluster::new(3);
    fleet.posts = Posts {
        namespace: "sim".to_owned(),
        usual: vec!["ops".to_owned()],
        receivers: BTreeMap::from([("ops".to_owned(), Arc::new(ears.clone()) as _)]),
    };
    fleet
}

/// Fails for as long as it is told to.
fn moody(fails: &Arc<AtomicBool>) -> impl Job + use<> {
    let fails = fails.clone();
    Act(move |_: Run| {
        let fails = fails.load(Ordering::Relaxed);
        Box::pin(async move {
            match fails {
                true => Err(JobError::from("disk full")),
                false => Ok(Outcome::Done),
            }
        }) as _
    })
}

fn often() -> Spec {
    Spec::every(SECOND).retry(1)
}

async fn until(fleet: &Cluster, what: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if what() {
            return;
        }
        fleet.sleep(ms(5)).await;
    }
    panic!("it does not come");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_told_once_whoever_leads_meanwhile() {
    let (ears, fails) = (Ears::default(), Arc::new(AtomicBool::new(true)));
    let fleet = fleet(&ears);
    let a = fleet.join("a", moody(&fails), often());
    leader(&fleet, &[&a]).await;
    let b = fleet.join("b", moody(&fails), often());
    until(&fleet, || ears.words() == ["failed"]).await;
    // Some more failures, and then the next leader's.
    fleet.sleep(SECOND * 3).await;
    a.tasks.crash();
    leader(&fleet, &[&b]).await;
    until(&fleet, || b.ended_as("failed")).await;
    fleet.sleep(SECOND * 3).await;
    assert_eq!(ears.words(), ["failed"]);
    fails.store(false, Ordering::Relaxed);
    until(&fleet, || ears.words().len() > 1).await;
    fleet.sleep(SECOND * 3).await;
    assert_eq!(ears.words(), ["failed", "recovered"]);
    let heard = ears.heard.lock().unwrap();
    assert_eq!(
        (heard[0].replica.as_str(), heard[1].replica.as_str()),
        ("a", "b")
    );
    assert_eq!(heard[0].detail, "disk full");
    assert_eq!(heard[1].since, heard[0].at);
}

#[tokio::test(start_paused = true)]
async fn the_status_tells_how_it_stands_with_receivers() {
    let (ears, fails) = (Ears::default(), Arc::new(AtomicBool::new(true)));
    ears.dead.store(true, Ordering::Relaxed);
    let fleet = fleet(&ears);
    let a = fleet.join("a", moody(&fails), often());
    a.publish();
    let told = async || {
        // What is told is looked at in each interval of presence.
        fleet.sleep(SECOND * 5).await;
        let mut shown = a.client().each().await.unwrap();
        shown.replicas.remove(0).notices.remove(0)
    };
    leader(&fleet, &[&a]).await;
    until(&fleet, || a.ended_as("failed")).await;
    // No try is answered in time.
    fleet.sleep(SECOND * 20).await;
    let silent = told().await;
    assert_eq!((silent.name.as_str(), silent.waiting), ("ops", 1));
    assert!(
        silent.failing.is_some() && silent.sent.is_none(),
        "{silent:?}"
    );
    ears.dead.store(false, Ordering::Relaxed);
    until(&fleet, || !ears.words().is_empty()).await;
    let heard = told().await;
    assert!(heard.failing.is_none() && heard.sent.is_some(), "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_leader_could_not_tell_its_successor_tells() {
    let (ears, fails) = (Ears::default(), Arc::new(AtomicBool::new(true)));
    let fleet = fleet(&ears);
    let spec = || Spec::every(SECOND * 60).retry(1).misfire(Misfire::Skip);
    ears.dead.store(true, Ordering::Relaxed);
    let a = fleet.join("a", moody(&fails), spec());
    leader(&fleet, &[&a]).await;
    until(&fleet, || a.ended_as("failed")).await;
    // It is written by now, and on its way.
    fleet.sleep(SECOND).await;
    a.tasks.crash();
    ears.dead.store(false, Ordering::Relaxed);
    let b = fleet.join("b", moody(&fails), spec());
    leader(&fleet, &[&b]).await;
    until(&fleet, || !ears.words().is_empty()).await;
    // Nor does the third tell it again.
    fleet.sleep(SECOND).await;
    b.tasks.crash();
    let c = fleet.join("c", moody(&fails), spec());
    leader(&fleet, &[&c]).await;
    fleet.sleep(SECOND * 5).await;
    assert_eq!(ears.words(), ["failed"]);
    assert_eq!(ears.heard.lock().unwrap()[0].replica, "b");
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_never_answers_delays_no_run_and_no_hand_over() {
    let (ears, starts) = (Ears::default(), Starts::default());
    ears.dead.store(true, Ordering::Relaxed);
    let fleet = fleet(&ears);
    let failing = |starts: &Starts| {
        let starts = starts.clone();
        Act(move |run: Run| {
            starts.note(&run);
            Box::pin(async { Err(JobError::from("no")) }) as _
        })
    };
    let a = fleet.join("a", failing(&starts), often());
    leader(&fleet, &[&a]).await;
    until(&fleet, || a.ended_as("failed")).await;
    let (ran, began) = (starts.len(), fleet.time.elapsed());
    let b = fleet.join("b", failing(&starts), often());
    fleet.sleep(SECOND * 20).await;
    assert!(
        starts.len() >= ran + 19,
        "every second: {}",
        starts.len() - ran
    );
    assert!(a.leads() && fleet.time.elapsed() - began < SECOND * 21);
    let drains = fleet.time.elapsed();
    a.drain();
    leader(&fleet, &[&b]).await;
    let gap = fleet.time.elapsed() - drains;
    assert!(gap < SECOND, "handed over after {gap:?}");
    a.ended().await;
    let took = fleet.time.elapsed() - drains;
    assert!(
        took < SECOND * 6,
        "the end of the process waits for a while alone: {took:?}"
    );
}

/// Ticks that no replica was there for.
#[tokio::test(start_paused = true)]
async fn ticks_that_were_missed_are_told_and_the_next_run_that_goes_well() {
    let (ears, fails) = (Ears::default(), Arc::new(AtomicBool::new(false)));
    let fleet = fleet(&ears);
    let spec = || Spec::every(SECOND * 2).retry(1).misfire(Misfire::Skip);
    let a = fleet.join("a", moody(&fails), spec());
    leader(&fleet, &[&a]).await;
    until(&fleet, || a.ended_as("done")).await;
    a.tasks.crash();
    fleet.sleep(SECOND * 60).await;
    assert_eq!(ears.words(), [""; 0]);
    let _b = fleet.join("b", moody(&fails), spec());
    until(&fleet, || ears.words().len() == 2).await;
    assert_eq!(ears.words(), ["missed", "recovered"]);
    let missed = ears.heard.lock().unwrap()[0].clone();
    assert!(
        missed.count > 20 && missed.outcome == "misfire",
        "{missed:?}"
    );
    fleet.sleep(SECOND * 10).await;
    assert_eq!(ears.words().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn every_coordination_tells_of_a_failure_and_of_its_end() {
    for coordination in [Coordination::Tick, Coordination::Everywhere] {
        let (ears, fails) = (Ears::default(), Arc::new(AtomicBool::new(true)));
        let fleet = fleet(&ears);
        let spec = || often().coordination(coordination);
        let members: Vec<Member> = ["a", "b"]
            .map(|name| fleet.join(name, moody(&fails), spec()))
            .into();
        until(&fleet, || !ears.words().is_empty()).await;
        fleet.sleep(SECOND * 5).await;
        // Each replica for itself, where each has its own runs.
        let each = match coordination {
            Coordination::Everywhere => members.len(),
            _ => 1,
        };
        assert_eq!(ears.words(), vec!["failed"; each], "{coordination:?}");
        fails.store(false, Ordering::Relaxed);
        fleet.sleep(SECOND * 5).await;
        let after = ears.words().split_off(each);
        assert_eq!(after, vec!["recovered"; each], "{coordination:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_names_nobody_is_told_to_nobody() {
    let (ears, fails) = (Ears::default(), Arc::new(AtomicBool::new(true)));
    let fleet = fleet(&ears);
    let spec = Spec {
        notify: Some(Vec::new()),
        ..often()
    };
    let a = fleet.join("a", moody(&fails), spec);
    leader(&fleet, &[&a]).await;
    until(&fleet, || a.ended_as("failed")).await;
    fleet.sleep(SECOND * 5).await;
    assert_eq!(ears.words(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn who_wants_every_end_is_told_of_each_and_of_no_change() {
    let ears = Ears {
        every_end: true,
        ..Ears::default()
    };
    let fails = Arc::new(AtomicBool::new(false));
    let fleet = fleet(&ears);
    let a = fleet.join("a", moody(&fails), often());
    leader(&fleet, &[&a]).await;
    until(&fleet, || ears.words().len() > 2).await;
    fails.store(true, Ordering::Relaxed);
    fleet.sleep(SECOND * 4).await;
    fails.store(false, Ordering::Relaxed);
    fleet.sleep(SECOND * 4).await;
    let words = ears.words();
    let failed = words.iter().filter(|word| **word == "failed").count();
    assert!(failed >= 3, "each failure: {words:?}");
    assert!(words.ends_with(&["ended", "ended"]), "{words:?}");
    assert!(!words.contains(&"recovered"), "{words:?}");
}

/// A service that goes on has no end that would say that it is well.
#[tokio::test(start_paused = true)]
async fn a_service_is_well_again_when_it_has_gone_on_for_a_while() {
    let ears = Ears::default();
    let fleet = fleet(&ears);
    let first = Arc::new(AtomicBool::new(true));
    let job = Act(move |run: Run| {
        let fails = first.swap(false, Ordering::Relaxed);
        Box::pin(async move {
            if fails {
                return Err(JobError::from("no"));
            }
            run.cancelled().await;
            Err(JobError::from("stopped"))
        }) as _
    });
    let a = fleet.join("a", job, Spec::continuous().retry(1));
    leader(&fleet, &[&a]).await;
    until(&fleet, || ears.words() == ["failed"]).await;
    fleet.sleep(SECOND * 500).await;
    assert_eq!(ears.words(), ["failed"]);
    fleet.sleep(SECOND * 200).await;
    assert_eq!(ears.words(), ["failed", "recovered"]);
}

/// The same as with no receivers: what stands in a ledger of a job that is well is nothing.
#[tokio::test(start_paused = true)]
async fn a_job_that_is_well_tells_nothing() {
    let (ears, starts) = (Ears::default(), Starts::default());
    let fleet = fleet(&ears);
    let a = fleet.join("a", quick(&starts), often());
    leader(&fleet, &[&a]).await;
    until(&fleet, || starts.len() > 3).await;
    assert_eq!(ears.words(), [""; 0]);
}
