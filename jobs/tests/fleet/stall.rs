//! Work that does not end when it is told to: on every thread of its worker, on a thread of its own, or in silence. The
//! workers here are this test program, started once more with jobs of its own.

use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use watchkeeper::{
    DurationExt, Worker,
    clock::{Clock, Moment},
    config::LoadOptions,
    job::{Job, JobError, Outcome, Run},
};

use crate::{
    fleet::{Fleet, TTL},
    log::{GONE, Line},
    store::Store,
    wait::{SOON, pause},
};

/// Set for a process that is to be such a worker.
pub(crate) const WORKER: &str = "WK_STALLING_WORKER";
/// How long the work of the first run does not end.
const STALL: Duration = TTL.saturating_mul(5);
/// How often running work says so.
const BEAT: Duration = Duration::from_millis(20);

/// How it stalls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
enum How {
    /// It blocks every thread that the worker's tasks run on.
    Threads,
    /// On a thread for blocking work, without a look at `Run::check`.
    Blocking,
    /// It waits, without a word of progress, and does not listen.
    Silence,
}

#[derive(Clone, Debug, Deserialize)]
struct Params {
    folder: PathBuf,
    how: How,
}

/// One moment of a run.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Alive {
    run: String,
    /// On the boot clock, which all processes of a machine share.
    at_ms: u128,
}

/// The first run of all stalls, the others do a little.
struct Stalling(Params);

/// What a worker process does instead of testing.
pub(crate) fn worker() -> ExitCode {
    let worker = Worker::with(LoadOptions::from_process()).kind("stalling", Stalling);
    watchkeeper::cli::main(worker)
}

#[async_trait]
impl Job for Stalling {
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        let file = self.0.folder.join("alive");
        let mut first = OpenOptions::new();
        let first = first.create_new(true).write(true);
        if first.open(self.0.folder.join("stalled")).is_err() {
            work(&file, run.id(), Clock::system().now() + BEAT * 5);
            return Ok(Outcome::Done);
        }
        let (id, end) = (run.id().to_owned(), Clock::system().now() + STALL);
        match self.0.how {
            How::Threads => {
                // One for each of the worker's threads, and this one.
                for _ in 0..4 {
                    let (file, id) = (file.clone(), id.clone());
                    #[allow(clippy::disallowed_methods, reason = "a job of a user, who may")]
                    tokio::spawn(async move { work(&file, &id, end) });
                }
                work(&file, &id, end);
            }
            How::Blocking => {
                run.blocking(move |_| {
                    work(&file, &id, end);
                    Ok(())
                })
                .await?;
            }
            How::Silence => {
                work(&file, &id, Clock::system().now() + BEAT);
                Clock::system().sleep(STALL).await;
            }
        }
        Ok(Outcome::Done)
    }
}

/// Says that it goes on, until then.
fn work(file: &Path, run: &str, end: Moment) {
    let clock = Clock::system();
    while clock.now() < end {
        let at_ms = clock.now().since_boot().as_millis();
        let run = run.to_owned();
        let line = serde_json::to_string(&Alive { run, at_ms }).unwrap() + "\n";
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(file)
            .unwrap();
        file.write_all(line.as_bytes()).unwrap();
        pause(BEAT);
    }
}

fn fleet(store: Store, how: How, more: &str) -> Fleet {
    let how = serde_json::to_string(&how).unwrap();
    let config = format!(
        "[worker]\nthreads = 2\n[jobs.stall]\nkind = \"stalling\"\nschedule = \"@every 1s\"\ngrace = \"1s\"\n\
         params = {{ folder = \"$FOLDER\", how = {how} }}\n{more}\n"
    );
    let mut fleet = Fleet::new(store, &config);
    let program = std::env::current_exe().unwrap();
    for worker in 0..2 {
        fleet.start_program(&program, &[(WORKER.to_owned(), "1".to_owned())]);
        fleet.wait_until_ready(worker);
    }
    fleet
}

/// The moments of the run that stalled, and the first one of another run.
fn until_another_runs(fleet: &Fleet, limit: Duration) -> (Vec<Alive>, Alive) {
    let clock = Clock::system();
    let until = clock.now() + limit;
    loop {
        let text = std::fs::read_to_string(fleet.file("alive")).unwrap_or_default();
        // The last line may be half written.
        let lines = text.lines().map(serde_json::from_str::<Alive>);
        let all: Vec<Alive> = lines.map_while(Result::ok).collect();
        let other = all.iter().find(|alive| alive.run != all[0].run).cloned();
        if let Some(other) = other {
            let (stalled, _): (Vec<_>, Vec<_>) =
                all.into_iter().partition(|alive| alive.run != other.run);
            return (stalled, other);
        }
        assert!(clock.now() < until, "nothing else ran within {limit:?}");
        pause(BEAT);
    }
}

/// One at a time, whatever the first one does: the last sign of its life comes before the first one of the next.
fn never_two_at_once(fleet: &Fleet) -> Duration {
    let (seen, other) = until_another_runs(fleet, STALL + SOON);
    // Whatever it still writes after that is read, too.
    pause(TTL);
    let (all, _) = until_another_runs(fleet, TTL);
    let of_first = |all: &[Alive]| all.iter().filter(|a| a.run == all[0].run).count();
    assert_eq!(
        of_first(&all),
        of_first(&seen),
        "it went on beside the next one"
    );
    let (begin, end) = (seen[0].at_ms, seen[seen.len() - 1].at_ms);
    assert!(
        end < other.at_ms,
        "it ended at {end}, the next one began at {}",
        other.at_ms
    );
    Duration::from_millis(u64::try_from(end - begin).unwrap())
}

fn gone(fleet: &Fleet) -> Option<Line> {
    fleet
        .log
        .since(0)
        .into_iter()
        .find(|line| line.says() == GONE)
}

/// Every thread of the worker is blocked for five ttl: nobody is told anything there, and the process is ended before its
/// lease is over.
pub(crate) fn a_job_that_blocks_every_thread_costs_its_process_and_never_runs_twice(store: Store) {
    let fleet = fleet(store, How::Threads, "");
    let ran = never_two_at_once(&fleet);
    fleet.measured("it ran for", &ran);
    assert!(ran < STALL, "its process was to end before that");
    assert!(gone(&fleet).is_some(), "its process is gone");
}

/// The same where the lease is held as long as the work lasts: it is run to its end, and nobody else begins.
pub(crate) fn a_job_that_blocks_every_thread_keeps_a_lease_that_is_held_for_it(store: Store) {
    let fleet = fleet(store, How::Threads, "unstoppable = \"hold\"");
    let ran = never_two_at_once(&fleet);
    fleet.measured("it ran for", &ran);
    assert!(ran + BEAT * 5 >= STALL, "nothing was to end it");
    assert!(gone(&fleet).is_none(), "no process was to end");
}

/// Blocking work on a thread of its own does not hear that its time is over: nothing runs beside it.
pub(crate) fn blocking_work_that_does_not_listen_never_runs_twice(store: Store) {
    let fleet = fleet(store, How::Blocking, "timeout = \"1s\"\nretry = 1");
    let ran = never_two_at_once(&fleet);
    fleet.measured("it ran for", &ran);
    assert!(
        ran + BEAT * 5 >= STALL || gone(&fleet).is_some(),
        "it or its process was to end first"
    );
}

/// Nothing is said for longer than `progress_deadline`: the run is stopped, and another replica takes the job over in
/// time.
pub(crate) fn a_run_without_progress_is_taken_over_in_time(store: Store) {
    let deadline = 1.secs();
    let fleet = fleet(store, How::Silence, "progress_deadline = \"1s\"");
    let (stalled, other) = until_another_runs(&fleet, SOON);
    let took = Duration::from_millis(u64::try_from(other.at_ms - stalled[0].at_ms).unwrap());
    fleet.measured("taken over after", &took);
    assert!(took > deadline, "it was to have that long");
    assert!(
        took <= deadline + 1.secs() + TTL,
        "deadline, grace and ttl are over"
    );
    let leaders: Vec<usize> = fleet
        .log
        .since(0)
        .iter()
        .filter(|l| l.is("leading", "stall"))
        .map(|l| l.worker)
        .collect();
    // Its end was written while the lease was still held: whoever came next found no dead run.
    let dead = |line: &&Line| line.says().starts_with("a run was interrupted");
    assert!(fleet.log.since(0).iter().find(dead).is_none());
    assert_ne!(
        leaders[0], leaders[1],
        "the replica that got stuck was to let the other one go first"
    );
}
