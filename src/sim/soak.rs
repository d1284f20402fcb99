//! What a fleet leaves behind in a day: as much as in a quarter of it. Virtual hours, with ticks, runs, renewals, documents and their
//! touches, and a replica that is replaced every now and then.
//!
//! What grows on purpose is the history of runs, up to its last hundred of each job, and what is told of terms, up to the last twenty;
//! they are counted for themselves.

use std::{process::Command, sync::Arc, time::Duration};

use super::{
    acts::{Starts, quick},
    unrest::play,
};
use crate::{
    chance::Chance,
    fleet::{history::KEPT_RUNS, terms::KEPT_TERMS},
    job::Spec,
    lock::{LockSettings, settings::Backend},
    node::Expiry,
    scheduler::Intents,
    sim_clock::SimTime,
    testing::{
        cluster::Cluster,
        members::ready,
        process::{Plan, Process},
    },
    worker::{assemble::Setup, presence::Pace, ready::Body, store, supervisor::no_changes},
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
/// How often replicas tell of themselves: a day of real chatter would cost minutes.
const CHATTER: Duration = Duration::from_secs(60);
/// Bytes of what is told of one term.
const BYTES_OF_TERM: usize = 256;

/// What one node has.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stored {
    locks: usize,
    bytes_of_locks: usize,
    documents: usize,
    bytes_of_documents: usize,
    /// Of the history of runs.
    runs: usize,
    bytes_of_runs: usize,
    /// Of what is told of terms: one for each job.
    terms: usize,
    bytes_of_terms: usize,
}

impl Stored {
    fn on(cluster: &Cluster) -> Self {
        cluster.nodes[0].inspect(|state| {
            let of_runs = ["history/", "output/", "live/"];
            let is_run = |name: &str| of_runs.iter().any(|of| name.starts_with(of));
            let is_term = |name: &str| name.starts_with("terms/");
            let (terms, all): (Vec<_>, Vec<_>) =
                state.documents().partition(|(name, _)| is_term(name));
            let bytes = |of: bool| {
                let these = all.iter().filter(|(name, _)| is_run(name) == of);
                these.map(|(name, size)| name.len() + size).sum::<usize>()
            };
            let runs = all.iter().filter(|(name, _)| is_run(name)).count();
            let bodies: usize = state.bodies().map(|(key, size)| key.len() + size).sum();
            Self {
                locks: state.rows().count(),
                bytes_of_locks: bodies,
                documents: all.len() - runs,
                bytes_of_documents: bytes(false),
                runs,
                bytes_of_runs: bytes(true),
                terms: terms.len(),
                bytes_of_terms: terms.iter().map(|(_, size)| size).sum(),
            }
        })
    }

    /// Within a few percent: the ids of runs that a record names, and numbers, have more digits now and then.
    fn is_like(&self, before: &Self) {
        let near = |now: usize, then: usize, what: &str| {
            assert!(
                now * 100 <= then * 103,
                "{what}: {before:?} became {self:?}"
            );
        };
        near(self.locks, before.locks, "locks");
        near(self.bytes_of_locks, before.bytes_of_locks, "bytes of locks");
        near(self.documents, before.documents, "documents");
        near(
            self.bytes_of_documents,
            before.bytes_of_documents,
            "bytes of documents",
        );
    }
}

fn start(cluster: &Cluster, name: &str, nonce: usize, jobs: usize) -> Process {
    let (id, time) = (format!("{name}-{nonce}"), cluster.time.sibling());
    let seed = id.bytes().fold(7, |n: u64, b| n * 31 + u64::from(b));
    let jobs = (0..jobs).map(|n| {
        let spec = match n % 6 {
            // So often that a part of a day fills its history.
            0 => Spec::every(SECOND * 180),
            _ => Spec::cron(format!("{} * * * *", n % 60)),
        };
        let body = Body::Job(Arc::new(quick(&Starts::default())) as _);
        ready((&format!("job-{n}"), body, spec))
    });
    let setup = Setup {
        intents: Intents::every(CHATTER),
        ..Setup::of(&id, name, &time, jobs.collect())
    };
    let plan = Plan {
        setup,
        time,
        chance: Chance::seeded(seed),
        changes: no_changes(),
        pace: Some(Pace {
            interval: CHATTER,
            lifetime: CHATTER * 3,
        }),
        look_every: Some(SECOND * 3),
        told: Box::new(|_| ()),
        aborted: Box::new(|| panic!("aborted")),
    };
    Process::start(cluster, plan).unwrap()
}

/// A day of so many jobs on so many replicas; in kilobytes, what the process had after a quarter of it and at its end.
async fn a_day(jobs: usize, replicas: usize) -> [usize; 2] {
    let settings = LockSettings {
        backend: Backend::Redis,
        ttl: SECOND * 60,
        max_ttl: SECOND * 60,
        ..LockSettings::default()
    };
    let timing = store::timing(&settings, SECOND * 10);
    let cluster = Cluster::over(SimTime::new(), 3, 7, timing, Expiry::Observed);
    let names: Vec<String> = (0..replicas).map(|n| format!("r{n}")).collect();
    let begin = |name: &String| start(&cluster, name, 0, jobs);
    let mut fleet: Vec<Process> = names.iter().map(begin).collect();
    let mut after = Vec::new();
    for hour in 1..=24 {
        cluster.clock().sleep(HOUR - SECOND * 300).await;
        // One goes and comes back as another process.
        let n = hour % replicas;
        fleet[n].ctx.gate.drain().cancel();
        fleet[n].ended().await;
        fleet[n].tasks.crash();
        fleet[n] = start(&cluster, &names[n], hour, jobs);
        // What it has left ends by itself.
        cluster.clock().sleep(SECOND * 295).await;
        if hour % 6 == 0 {
            let (stored, kilobytes) = (Stored::on(&cluster), resident());
            println!("after {hour} hours: {stored:?}, {kilobytes} kB");
            after.push((stored, kilobytes));
        }
    }
    let (first, last) = (after[0], after[3]);
    last.0.is_like(&first.0);
    let rings = jobs * usize::try_from(KEPT_RUNS).unwrap();
    assert!(
        last.0.runs <= rings && last.0.runs > first.0.runs,
        "{last:?}"
    );
    // Leaders change with every hour, and no more of them are remembered than that.
    assert!(last.0.terms <= jobs, "{last:?}");
    let most = jobs * KEPT_TERMS * BYTES_OF_TERM;
    assert!(last.0.bytes_of_terms <= most, "{last:?}");
    // In a day those of a job in six have come round: nothing of them is added any more.
    let due = jobs.div_ceil(6) * 100 + (jobs - jobs.div_ceil(6)) * 25;
    assert!(last.0.runs <= due, "{} of {due} runs", last.0.runs);
    [first.1, last.1]
}

/// Of this process.
fn resident() -> usize {
    let told = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = told
        .split(' ')
        .nth(1)
        .and_then(|pages| pages.parse::<usize>().ok());
    pages.unwrap_or(0) * 4
}

#[tokio::test(start_paused = true)]
#[ignore = "minutes: a day"]
async fn a_day_leaves_no_more_behind_than_a_quarter_of_it() {
    a_day(30, 3).await;
}

/// A process of its own tells how much memory it has. `WATCHKEEPER_SOAK=1000x10` names other numbers of jobs and replicas.
#[test]
#[ignore = "minutes: a day of many jobs"]
fn a_day_of_many_jobs_leaves_no_more_behind_and_takes_no_more_memory() {
    const NAME: &str =
        "sim::soak::a_day_of_many_jobs_leaves_no_more_behind_and_takes_no_more_memory";
    const ALONE: &str = "WATCHKEEPER_TEST_SOAK";
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        alone.args([NAME, "--exact", "--ignored", "--nocapture"]);
        let alone = alone.env(ALONE, "1").status().unwrap();
        assert!(alone.success(), "{alone}");
        return;
    }
    let size = std::env::var("WATCHKEEPER_SOAK").unwrap_or("300x5".to_owned());
    let (jobs, replicas) = size.split_once('x').unwrap();
    let [early, late] = play(a_day(jobs.parse().unwrap(), replicas.parse().unwrap()));
    // The history of runs lies in the memory of this process, too.
    assert!(late * 10 <= early * 15, "{early} kB became {late} kB");
}
