//! `run`: one replica, until a signal ends it.

use std::time::Duration;

use super::failure::Failure;
use crate::{Worker, worker::start};

/// Blocking work that does not end with its run cannot be stopped; the process does not wait for it longer than this.
const LEFTOVERS: Duration = Duration::from_millis(500);

/// On a runtime of its own.
pub(super) fn run(worker: Worker) -> Result<(), Failure> {
    let loaded = worker.load_to_run()?;
    // Kept until the end: it writes the last lines.
    let _log = start::log(&loaded.config.telemetry).map_err(Failure::of)?;
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = loaded.config.worker.threads {
        builder.worker_threads(threads);
    }
    let runtime = builder
        .thread_name("watchkeeper-job")
        .enable_all()
        .build()
        .map_err(Failure::of)?;
    let ended = runtime.block_on(worker.run_loaded(loaded));
    runtime.shutdown_timeout(LEFTOVERS);
    Ok(ended?)
}
