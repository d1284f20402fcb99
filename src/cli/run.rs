//! `run`: one replica, until a signal ends it.

use std::time::Duration;

use super::{Failure, load};
use crate::{
    Worker,
    config::{LogFormat, TelemetrySettings},
    telemetry::log::{self, Format, LogSettings},
};

/// Blocking work that does not end with its run cannot be stopped; the process does not wait for it longer than this.
const LEFTOVERS: Duration = Duration::from_millis(500);

pub(super) fn run(worker: Worker) -> Result<(), Failure> {
    let loaded = load(&worker)?;
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
    // Kept until the end: it writes the last lines.
    let _flush = log::init(&settings(&loaded.config.telemetry)).map_err(|e| failed(&e))?;
    for warning in &loaded.problems {
        tracing::warn!("{warning}");
    }
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = loaded.config.worker.threads {
        builder.worker_threads(threads);
    }
    let runtime = builder
        .thread_name("watchkeeper-job")
        .enable_all()
        .build()
        .map_err(|e| failed(&e))?;
    let ended = runtime.block_on(worker.run_loaded(loaded));
    runtime.shutdown_timeout(LEFTOVERS);
    Ok(ended?)
}

fn settings(telemetry: &TelemetrySettings) -> LogSettings {
    LogSettings {
        log: telemetry.log.clone(),
        format: match telemetry.format {
            LogFormat::Auto => Format::Auto,
            LogFormat::Text => Format::Text,
            LogFormat::Json => Format::Json,
        },
    }
}
