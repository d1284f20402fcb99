//! Runs a command: a cron job in any language, in one replica at a time.
//!
//! The command runs under a [`guard`](crate::guard), so that it ends before its lease does, also when the worker was
//! killed or frozen. It has no input; the beginning and the end of what it writes are kept with the run. While it runs, its last
//! line is what the run says of itself, once a second at most, and counts as progress.
//!
//! # Environment
//! That of the worker, without its own `WATCHKEEPER_*` variables, which may hold secrets; or nothing, with
//! `inherit_env = false`. On top come `env` and, of the run, `WATCHKEEPER_JOB`, `_TICK` (RFC 3339, UTC), `_ATTEMPT`,
//! `_TOKEN` (the fencing token), `_RUN_ID`, `_REPLICA`, `_SHARD` (from 0) and `_SHARDS` (1 without shards), and `_KEY` (the lock,
//! where there is one), and `TRACEPARENT` (W3C Trace Context) where traces are sent.
//!
//! # Outcomes
//! | the command | the run |
//! | --- | --- |
//! | exits with a status in `done_on` (0) | done |
//! | exits with a status in `skip_on` | skipped |
//! | exits with a status in `fatal_on` | failed, and not tried again |
//! | exits with any other, or a signal ends it | failed, and tried again as `retry` says |
//! | is missing, cannot be run, or its directory cannot be entered | failed, and not tried again |
//! | is told to stop: SIGTERM, and SIGKILL at the end of `grace` | cancelled, or timed out |
//!
//! # Example
//! ```
//! use watchkeeper::{Spec, Worker};
//! use watchkeeper_jobs::{Exec, ExecParams};
//!
//! let backup = ExecParams {
//!     command: ["pg_dump", "--file", "/backup/shop"].map(str::to_owned).to_vec(),
//!     ..ExecParams::default()
//! };
//! let worker = Worker::builder().build().job("backup", Exec::new(backup), Spec::cron("0 3 * * *"));
//! # let _ = worker;
//! ```

use std::{collections::BTreeMap, env, ffi::OsString, fmt, path::PathBuf, time::Duration};

use async_trait::async_trait;
use serde::Deserialize;
use watchkeeper::{
    clock::Clock,
    config::Findings,
    job::{Job, JobError, Outcome, Run},
};

use super::kind::{Kind, read};
use crate::guard::{Cause, Command, End, Guarded, Output, StartError, Status};

mod program;

/// What the worker is told of it.
pub(super) const KIND: Kind = Kind {
    name: "exec",
    make: |worker| worker.kind("exec", Exec::new),
    check: |params| read(params, ExecParams::check),
    look: None,
    items: None,
    fixed: &["command", "cwd", "env", "inherit_env"],
    tells_progress: true,
};

/// Parameters of a command.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExecParams {
    /// The program and its arguments; no shell reads them.
    pub command: Vec<String>,
    /// Where it runs; the worker's directory unless set.
    pub cwd: Option<PathBuf>,
    /// Variables set for it.
    pub env: BTreeMap<String, String>,
    /// Whether it gets the worker's other variables, too.
    pub inherit_env: bool,
    /// Exit statuses that mean: done.
    pub done_on: Vec<u8>,
    /// Exit statuses that mean: there was nothing to do.
    pub skip_on: Vec<u8>,
    /// Exit statuses that mean: another attempt would fail the same way.
    pub fatal_on: Vec<u8>,
}

/// The job.
#[derive(Debug)]
pub struct Exec {
    params: ExecParams,
}

/// Bytes of output that are kept with a run.
const KEPT: usize = 8 * 1024;
/// Between two looks at what it has written.
const LOOK: Duration = Duration::from_secs(1);
/// What programs know of the trace that they are a part of.
const TRACEPARENT: &str = "TRACEPARENT";
/// What of a run's grace is left for the command; the rest is for taking note of its end.
const GRACE_SHARE: (u32, u32) = (9, 10);

// === impl ExecParams ===

impl Default for ExecParams {
    fn default() -> Self {
        Self {
            command: Vec::new(),
            cwd: None,
            env: BTreeMap::new(),
            inherit_env: true,
            done_on: vec![0],
            skip_on: Vec::new(),
            fatal_on: Vec::new(),
        }
    }
}

impl ExecParams {
    /// What is wrong with these parameters, on this machine.
    #[must_use]
    pub(crate) fn check(&self) -> Findings {
        let mut found = Findings::default();
        let mut wrong = |key: &str, message: String| found.error(&[key], message, "");
        match self.command.first() {
            None => wrong(
                "command",
                "is missing; write command = [\"program\", \"argument\"]".to_owned(),
            ),
            Some(_) if self.command.iter().any(|part| part.contains('\0')) => {
                wrong("command", "holds a zero byte".to_owned());
            }
            Some(name) => {
                if let Err(why) = program::find(name, &self.search_path(), self.cwd.as_deref()) {
                    wrong("command", why);
                }
            }
        }
        if let Some(cwd) = &self.cwd
            && !cwd.is_dir()
        {
            wrong("cwd", format!("{} is no directory", cwd.display()));
        }
        for (name, value) in &self.env {
            if name.is_empty() || name.contains(['=', '\0']) {
                wrong("env", format!("{name:?} cannot be the name of a variable"));
            } else if value.contains('\0') {
                wrong(&format!("env.{name}"), "holds a zero byte".to_owned());
            }
        }
        let lists = [
            ("done_on", &self.done_on),
            ("skip_on", &self.skip_on),
            ("fatal_on", &self.fatal_on),
        ];
        for (n, (key, list)) in lists.iter().enumerate() {
            for (other, earlier) in &lists[..n] {
                if let Some(both) = list.iter().find(|code| earlier.contains(code)) {
                    wrong(key, format!("{both} stands in {other}, too; remove one"));
                }
            }
        }
        found
    }

    /// Where the program is looked for, as the command itself will see it.
    fn search_path(&self) -> OsString {
        let given = self.env.get("PATH").map(OsString::from);
        let inherited = || env::var_os("PATH").filter(|_| self.inherit_env);
        given
            .or_else(inherited)
            .unwrap_or_else(|| "/bin:/usr/bin".into())
    }
}

impl fmt::Debug for ExecParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Arguments and variables may be secrets.
        f.debug_struct("ExecParams")
            .field("program", &self.command.first())
            .field("cwd", &self.cwd)
            .finish_non_exhaustive()
    }
}

// === impl Exec ===

impl Exec {
    /// A job that runs this command.
    #[must_use]
    pub fn new(params: ExecParams) -> Self {
        Self { params }
    }

    /// Runs the command, with further variables: those win over the ones of the configuration.
    pub(crate) async fn run_with(
        &self,
        run: &Run,
        more: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Outcome, JobError> {
        let mut command = self.command(run);
        command.env.extend(more);
        let command = command.start(run.leases()).await;
        let command = command.map_err(|error| match error {
            // A later attempt may find these well.
            StartError::LeaseOver | StartError::Guard(_) => JobError::retry(error),
            _ => JobError::fatal(error),
        })?;
        let end = Self::end(run, &command).await;
        if !end.output.is_empty() {
            run.keep_output(end.output.clone());
        }
        if end.left_behind > 0 {
            tracing::warn!(
                job = run.job(),
                processes = end.left_behind,
                "the command has ended and left processes behind: they were ended, too"
            );
        }
        if end.cause != Cause::Itself {
            // Whatever status it ended with: it was not its own end.
            run.check()?;
            return Err(JobError::retry(described("stopped before its lease", &end)));
        }
        self.outcome(&end)
    }

    fn command(&self, run: &Run) -> Command {
        let params = &self.params;
        let mut parts = params.command.iter().map(OsString::from);
        let program = parts.next().unwrap_or_default();
        let mut command = Command::new(program, parts);
        command.cwd.clone_from(&params.cwd);
        command.clear_env = !params.inherit_env;
        command.without_env = own_variables(env::vars_os().map(|(name, _)| name));
        // That of whoever started the worker is not the trace of this run.
        command.without_env.push(TRACEPARENT.into());
        command.env = params
            .env
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .chain(facts(run))
            .collect();
        command.output = Output::Capture(KEPT);
        command.grace = run.grace();
        command
    }

    /// Waits for the end, and brings it about when the run is to stop. Meanwhile the run says what the command wrote last, and leaves
    /// what it has written so far.
    async fn end(run: &Run, command: &Guarded) -> End {
        let clock = Clock::system();
        let mut told = 0;
        loop {
            tokio::select! {
                biased;
                end = command.ended() => {
                    // All of it is in the history now.
                    if told > 0 {
                        run.message("");
                    }
                    return end;
                }
                () = run.cancelled() => break,
                () = clock.sleep(LOOK) => {
                    if command.written() > told {
                        let (written, line) = command.last_line();
                        told = written;
                        run.message(&line.unwrap_or_default());
                        run.keep_output(command.text());
                    }
                }
            }
        }
        let (share, of) = GRACE_SHARE;
        command.terminate(run.grace() * share / of);
        command.ended().await
    }

    fn outcome(&self, end: &End) -> Result<Outcome, JobError> {
        let code = match end.status {
            Status::Code(code) => code,
            Status::Signal(signal) => {
                return Err(JobError::retry(described(
                    &format!("ended by signal {signal}"),
                    end,
                )));
            }
        };
        let is_in = |list: &[u8]| list.iter().any(|listed| i32::from(*listed) == code);
        if is_in(&self.params.done_on) {
            return Ok(Outcome::Done);
        }
        let text = described(&format!("exit status {code}"), end);
        if is_in(&self.params.skip_on) {
            return Ok(Outcome::Skip(text));
        }
        if is_in(&self.params.fatal_on) {
            return Err(JobError::fatal(text));
        }
        Err(JobError::retry(text))
    }
}

#[async_trait]
impl Job for Exec {
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        self.run_with(&run, []).await
    }
}

// === helpers ===

/// The run, as the command's environment.
fn facts(run: &Run) -> impl Iterator<Item = (OsString, OsString)> {
    let key = run.lease().map(|lease| lease.key().to_owned());
    let facts = [
        ("WATCHKEEPER_JOB", Some(run.job().to_owned())),
        ("WATCHKEEPER_TICK", Some(run.tick().to_string())),
        ("WATCHKEEPER_ATTEMPT", Some(run.attempt().to_string())),
        ("WATCHKEEPER_TOKEN", Some(run.token().0.to_string())),
        ("WATCHKEEPER_RUN_ID", Some(run.id().to_owned())),
        ("WATCHKEEPER_REPLICA", Some(run.facts().replica.clone())),
        ("WATCHKEEPER_SHARD", Some(run.facts().shard.to_string())),
        ("WATCHKEEPER_SHARDS", Some(run.facts().shards.to_string())),
        ("WATCHKEEPER_KEY", key),
        (TRACEPARENT, run.traceparent()),
    ];
    let some = |(name, value): (&str, Option<String>)| Some((name.into(), value?.into()));
    facts.into_iter().filter_map(some)
}

/// The worker's own variables: they may hold the passwords of its stores.
fn own_variables(names: impl Iterator<Item = OsString>) -> Vec<OsString> {
    names
        .filter(|name| name.to_string_lossy().starts_with("WATCHKEEPER_"))
        .collect()
}

/// What happened, and the last line that the command wrote.
fn described(what: &str, end: &End) -> String {
    let last = end
        .output
        .lines()
        .rev()
        .find(|line| !line.trim().is_empty());
    match last {
        Some(line) => {
            let short: String = line.trim().chars().take(200).collect();
            format!("{what}: {short}")
        }
        None => what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use serde_json::json;
    use watchkeeper::job::FailureKind;

    fn params(value: serde_json::Value) -> ExecParams {
        serde_json::from_value(value).unwrap()
    }

    fn end(status: Status, output: &str) -> End {
        End {
            status,
            cause: Cause::Itself,
            left_behind: 0,
            overran: Duration::ZERO,
            output: output.to_owned(),
            written: output.len() as u64,
        }
    }

    #[test]
    fn a_status_means_what_the_parameters_say() {
        let job = Exec::new(params(json!({
            "command": ["x"], "done_on": [0, 24], "skip_on": [75], "fatal_on": [64],
        })));
        let outcome = |code| job.outcome(&end(Status::Code(code), "one\ntwo\n\n"));
        assert_eq!(outcome(0).unwrap(), Outcome::Done);
        assert_eq!(outcome(24).unwrap(), Outcome::Done);
        assert_eq!(
            outcome(75).unwrap(),
            Outcome::Skip("exit status 75: two".to_owned())
        );
        assert_eq!(outcome(64).unwrap_err().kind(), FailureKind::Fatal);
        let error = outcome(1).unwrap_err();
        assert_eq!(error.kind(), FailureKind::Retry);
        assert_eq!(error.to_string(), "exit status 1: two");
        let error = job.outcome(&end(Status::Signal(11), "")).unwrap_err();
        assert_eq!(error.kind(), FailureKind::Retry);
        assert_eq!(error.to_string(), "ended by signal 11");
    }

    #[test]
    fn every_fault_is_found_at_once() {
        let faulty = params(json!({
            "command": ["no-such-program-here"], "cwd": "/no/such/folder", "env": {"A=B": "1"},
            "done_on": [0, 3], "skip_on": [3],
        }));
        let found = faulty.check();
        let found: Vec<_> = found.into_iter().collect();
        let keys: Vec<_> = found.iter().map(|f| f.keys[0].as_str()).collect();
        assert_eq!(keys, ["command", "cwd", "env", "skip_on"]);
        assert!(found[0].message.contains("PATH"), "{}", found[0].message);
        let missing = params(json!({})).check().into_iter().next().unwrap();
        assert!(missing.message.contains("missing"));
        assert!(params(json!({"command": ["true"]})).check().is_empty());
    }

    #[test]
    fn a_program_is_looked_for_where_the_command_will_look() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let own = params(json!({"command": ["true"], "env": {"PATH": path}}));
        let missing = own.check().into_iter().next().unwrap();
        assert_eq!(missing.keys, ["command"]);
        std::os::unix::fs::symlink("/bin/true", folder.path().join("true")).unwrap();
        assert!(own.check().is_empty());
        let cleared = params(json!({"command": ["true"], "inherit_env": false}));
        assert!(cleared.check().is_empty());
        let relative = params(json!({"command": ["./true"], "cwd": path}));
        assert!(relative.check().is_empty());
    }

    #[test]
    fn the_workers_own_variables_stay_with_it() {
        let names = [
            "HOME",
            "WATCHKEEPER_LOCKS__REDIS__PASSWORD",
            "WATCHKEEPER_CONFIG",
        ];
        let taken = own_variables(names.into_iter().map(OsString::from));
        assert_eq!(
            taken,
            ["WATCHKEEPER_LOCKS__REDIS__PASSWORD", "WATCHKEEPER_CONFIG"]
        );
    }
}
