//! Workers as parts of a program: several in one process, stopped by it.
#![allow(clippy::disallowed_methods, reason = "a program spawns as it likes")]

use std::time::Duration;

use tokio::sync::mpsc;
use watchkeeper::{
    DurationExt, Outcome, Spec, Worker,
    config::{AdminSettings, LoadOptions, LockSettings, TelemetrySettings},
};

/// Much longer than a hand-over, and much shorter than the lease that would end otherwise.
const SOON: Duration = Duration::from_secs(15);

/// A worker over the store in this folder.
fn worker(
    name: &'static str,
    folder: &std::path::Path,
    told: &mpsc::UnboundedSender<(&'static str, u64)>,
) -> Worker {
    let worker = Worker::builder()
        .name(name)
        .locks(LockSettings::embedded(folder.join("store.db")).ttl(30.secs()))
        .admin(AdminSettings::off())
        .telemetry(TelemetrySettings::log("off"));
    telling(name, worker.build(), told)
}

/// With a job that tells of each run who it is, and what `params` says.
fn telling(
    name: &'static str,
    worker: Worker,
    told: &mpsc::UnboundedSender<(&'static str, u64)>,
) -> Worker {
    #[derive(serde::Deserialize)]
    struct Params {
        step: String,
    }
    let told = told.clone();
    let spec = Spec::every(1.secs()).params(serde_json::json!({ "step": "7" }));
    worker.job_fn("tell", spec, move |run| {
        let told = told.clone();
        async move {
            let Params { step } = run.params()?;
            told.send((name, step.parse()?))?;
            Ok(Outcome::Done)
        }
    })
}

async fn next_of(name: &str, runs: &mut mpsc::UnboundedReceiver<(&'static str, u64)>) -> u64 {
    let looking = async {
        loop {
            let (who, step) = runs.recv().await.unwrap();
            if who == name {
                return step;
            }
        }
    };
    within(looking).await
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    let clock = watchkeeper::clock::Clock::system();
    clock.timeout(SOON, work).await.expect("it takes too long")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_workers_in_one_process_one_follows_the_other_when_its_handle_stops_it() {
    let folder = tempfile::tempdir().unwrap();
    let (told, mut runs) = mpsc::unbounded_channel();
    let (one, other) = (
        worker("one", folder.path(), &told),
        worker("other", folder.path(), &told),
    );
    let (stop_one, stop_other) = (one.handle(), other.handle());
    let one = tokio::spawn(one.run());
    assert_eq!(next_of("one", &mut runs).await, 7);
    let other = tokio::spawn(other.run());
    stop_one.stop();
    within(one).await.unwrap().unwrap();
    assert_eq!(next_of("other", &mut runs).await, 7);
    stop_other.stop();
    within(other).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_future_is_dropped_hands_over() {
    let folder = tempfile::tempdir().unwrap();
    let (told, mut runs) = mpsc::unbounded_channel();
    let one = tokio::spawn(worker("one", folder.path(), &told).run());
    next_of("one", &mut runs).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let until = async { drop(stopped.await) };
    let other = worker("other", folder.path(), &told);
    let other = tokio::spawn(async move { other.run_until(until).await });
    one.abort();
    // Long before the lease of thirty seconds would have ended.
    next_of("other", &mut runs).await;
    stop.send(()).unwrap();
    within(other).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_is_reloaded_by_its_handle() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("watchkeeper.toml");
    let write = |step: u64| {
        let fixed =
            "[locks]\nbackend = \"memory\"\n[admin]\nlisten = \"off\"\n[telemetry]\nlog = \"off\"";
        let text = format!("{fixed}\n[jobs.tell]\nparams = {{ step = \"{step}\" }}\n");
        std::fs::write(&file, text).unwrap();
    };
    write(7);
    let options = LoadOptions {
        file: Some(file.clone()),
        ..LoadOptions::default()
    };
    let (told, mut runs) = mpsc::unbounded_channel();
    let worker = telling("one", Worker::with(options), &told);
    let handle = worker.handle();
    let running = tokio::spawn(worker.run());
    assert_eq!(next_of("one", &mut runs).await, 7);
    write(8);
    handle.reload();
    while next_of("one", &mut runs).await != 8 {}
    handle.stop();
    within(running).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_worker_that_is_stopped_before_it_runs_drains_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let (told, _runs) = mpsc::unbounded_channel();
    let worker = worker("one", folder.path(), &told);
    worker.handle().stop();
    within(worker.run()).await.unwrap();
}

#[tokio::test]
async fn a_fault_of_settings_in_code_names_the_key_as_in_the_file() {
    let worker = Worker::builder()
        .namespace("a b")
        .locks(LockSettings::memory().ttl(40.secs()))
        .build();
    let error = worker
        .job_fn("nothing", Spec::every(1.secs()), |_run| async {
            Ok(Outcome::Done)
        })
        .run()
        .await
        .unwrap_err();
    let said = format!("{error:?}");
    for fault in [
        "2 errors; nothing was started\n",
        "\ncode: worker.namespace: \"a b\" cannot begin the keys of a store",
        "\ncode: locks.ttl: 40s is longer than max_ttl (30s)",
    ] {
        assert!(said.contains(fault), "{said}");
    }
}
