//! A job that says that it ran, and nothing else.
//!
//! Every run logs one line. With `file` it also appends one JSON line per event (`started`, `ended`, `cancelled`), each
//! in a single write to a file opened for appending, so that many replicas can share one file and its reader
//! knows which tick was started where, how often and under which token.
//!
//! ```
//! use watchkeeper::{DurationExt, Spec, Worker};
//! use watchkeeper_jobs::{Heartbeat, HeartbeatParams};
//!
//! let params = HeartbeatParams { file: Some("beats.jsonl".into()), ..HeartbeatParams::default() };
//! let worker = Worker::builder().build().job("beat", Heartbeat::new(params), Spec::every(5.secs()));
//! # let _ = worker;
//! ```

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::json;
use tracing::info;
use watchkeeper::{
    clock::Clock,
    config::Findings,
    files,
    human::Span,
    job::{Job, JobError, Outcome, Run},
};

use super::kind::{Kind, read};

/// What the worker is told of it.
pub(super) const KIND: Kind = Kind {
    name: "heartbeat",
    make: |worker| worker.kind("heartbeat", Heartbeat::new),
    check: |params| read(params, HeartbeatParams::check),
    look: None,
    items: None,
    fixed: &["file"],
    tells_progress: false,
};

/// Parameters of a heartbeat.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HeartbeatParams {
    /// Where each run appends its lines; may be shared by several processes.
    pub file: Option<PathBuf>,
    /// How long a run pretends to work.
    pub work: Option<Span>,
}

/// The job.
#[derive(Debug)]
pub struct Heartbeat {
    params: HeartbeatParams,
    clock: Clock,
}

// === impl HeartbeatParams ===

impl HeartbeatParams {
    /// What is wrong with these parameters.
    #[must_use]
    pub(crate) fn check(&self) -> Findings {
        let mut found = Findings::default();
        if let Some(file) = &self.file {
            match file.parent() {
                None => found.error(&["file"], "is a folder; name a file", ""),
                Some(folder) if folder.as_os_str().is_empty() || folder.is_dir() => {}
                Some(folder) => {
                    let message = format!("the folder {} does not exist", folder.display());
                    found.error(&["file"], message, "");
                }
            }
        }
        found
    }
}

// === impl Heartbeat ===

impl Heartbeat {
    /// A heartbeat on the machine's clocks.
    #[must_use]
    pub fn new(params: HeartbeatParams) -> Self {
        Self {
            params,
            clock: Clock::system(),
        }
    }

    async fn tell(&self, event: &str, run: &Run) -> io::Result<()> {
        let Some(file) = self.params.file.clone() else {
            return Ok(());
        };
        let mut line = json!({
            "event": event,
            "job": run.job(),
            "tick": run.tick().to_string(),
            "attempt": run.attempt(),
            "token": run.token().0,
            "replica": run.facts().replica,
            "run_id": run.id(),
            "at": self.clock.wall().to_string(),
        });
        if event == "cancelled" {
            line["why"] = run.why().into();
        }
        let line = format!("{line}\n");
        tokio::task::spawn_blocking(move || append(&file, line.as_bytes()))
            .await
            .map_err(io::Error::other)?
    }
}

#[async_trait]
impl Job for Heartbeat {
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        self.tell("started", &run).await?;
        info!(job = run.job(), tick = %run.tick(), attempt = run.attempt(), token = run.token().0, "heartbeat");
        let Some(work) = self.params.work else {
            return Ok(Outcome::Done);
        };
        tokio::select! {
            // A run that was frozen past its lease must hear of that before it believes that it is done.
            biased;
            () = run.cancelled() => {
                self.tell("cancelled", &run).await?;
                run.check()?;
            }
            () = self.clock.sleep(work.0) => self.tell("ended", &run).await?,
        }
        Ok(Outcome::Done)
    }
}

/// Appends `line` in one write, so that lines of several processes do not mix.
fn append(file: &Path, line: &[u8]) -> io::Result<()> {
    let mut file = files::append(file)?;
    let written = file.write(line)?;
    if written < line.len() {
        return Err(io::Error::new(io::ErrorKind::WriteZero, "the line was cut"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use watchkeeper::{clock::Moment, job::RunFacts};

    fn run() -> Run {
        let facts = RunFacts {
            job: "beat".to_owned(),
            id: "r-1".to_owned(),
            tick: "2026-01-02T03:04:05Z".parse().unwrap(),
            attempt: 2,
            replica: "a".to_owned(),
            batch: None,
            shard: 0,
            shards: 1,
            params: Value::Null,
            checkpoint: None,
        };
        Run::new(
            facts,
            Clock::system(),
            None,
            std::time::Duration::ZERO,
            Moment::NEVER,
        )
    }

    fn lines(file: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(file).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[tokio::test]
    async fn a_run_leaves_one_line_with_its_tick_and_attempt() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("beats");
        let params = HeartbeatParams {
            file: Some(file.clone()),
            work: None,
        };
        let job = Heartbeat::new(params);
        assert_eq!(job.run(run()).await.unwrap(), Outcome::Done);
        let lines = lines(&file);
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["event"], "started");
        assert_eq!(lines[0]["tick"], "2026-01-02T03:04:05Z");
        assert_eq!(lines[0]["attempt"], 2);
        assert_eq!(lines[0]["run_id"], "r-1");
    }

    #[tokio::test]
    async fn a_cancelled_run_says_so_and_does_not_end() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("beats");
        let params = HeartbeatParams {
            file: Some(file.clone()),
            work: Some(Span::default()),
        };
        let run = run();
        run.stop("the lease is over");
        assert!(Heartbeat::new(params).run(run).await.is_err());
        let lines = lines(&file);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1]["event"], "cancelled");
        assert_eq!(lines[1]["why"], "the lease is over");
    }

    #[tokio::test]
    async fn a_run_with_work_says_when_it_ended() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("beats");
        let params = HeartbeatParams {
            file: Some(file.clone()),
            work: Some(Span(std::time::Duration::from_millis(1))),
        };
        Heartbeat::new(params).run(run()).await.unwrap();
        assert_eq!(lines(&file)[1]["event"], "ended");
    }

    #[test]
    fn a_file_in_a_folder_that_is_not_there_is_found_by_check() {
        let params = HeartbeatParams {
            file: Some("/nowhere/at/all/beats".into()),
            work: None,
        };
        let found = params.check().into_iter().next().unwrap();
        assert_eq!(found.keys, ["file"]);
    }
}
