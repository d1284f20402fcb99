//! Real workers on one store, with something of everything to show.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use watchkeeper_jobs::demo_table::create_demo_table;

use crate::{
    command::watchkeeper,
    http::ask,
    log::{Line, Log, Mark},
    receiver::Receiver,
    wait::{SOON, pause, soon},
};

/// What has to be said, and is the password in a browser.
pub(crate) const TOKEN: &str = "open-sesame-open-sesame";

/// No variables of its own.
const NONE: &[(&str, &str)] = &[];

/// Rows to be sent: more than are sent while a case lasts.
const ROWS: usize = 400;

/// Rows that are refused for good.
const CARDS: usize = 5;

/// Between two questions to the API, which reads the store for each answer.
const AGAIN: Duration = Duration::from_millis(50);

const SETTINGS: &str = r#"
[worker]
drain_timeout = "1s"

[admin]
listen = "127.0.0.1:0"
token = "$TOKEN"

[telemetry]
format = "json"
log = "info"

[locks]
backend = "embedded"
embedded.path = "$FOLDER/store.db"
ttl = "2s"

[jobs.pulse]
kind = "heartbeat"
schedule = "@every 1s"

[jobs.greets]
kind = "exec"
schedule = "@every 2s"
params = { command = ["echo", "hello from a command"] }

[jobs.fails]
kind = "exec"
schedule = "@every 2s"
retry = 1
params = { command = ["sh", "-c", "echo it broke; exit 3"] }

[jobs.report]
kind = "heartbeat"
schedule = "manual"
params = { work = "10ms" }

[jobs.long]
kind = "exec"
schedule = "manual"
params = { command = ["sleep", "600"] }

[jobs.parts]
kind = "heartbeat"
schedule = "@every 2s"
shards = 3

[jobs.mail]
kind = "notifications"
schedule = "continuous"
coordination = "batch"

[jobs.mail.params]
source = "sqlite://$FOLDER/app.db"
table = "notifications"
sink = "file://$FOLDER/sent"
batch_size = 2
rate = 2.0

[jobs.cards]
kind = "notifications"
schedule = "continuous"
coordination = "batch"

[jobs.cards.params]
source = "sqlite://$FOLDER/cards.db"
table = "notifications"
sink = "$RECEIVER"
"#;

/// Workers `w0`, `w1` and so on. They die with it.
pub(crate) struct Scene {
    log: Log,
    folder: TempDir,
    workers: Vec<Child>,
    /// Of what `cards` sends.
    pub(crate) receiver: Receiver,
}

// === impl Scene ===

impl Scene {
    /// So many workers, each of them ready.
    pub(crate) fn of(n: usize) -> Self {
        Self::with(&vec![NONE; n])
    }

    /// A worker for each of these, with these variables in its environment.
    pub(crate) fn with(variables: &[&[(&str, &str)]]) -> Self {
        let folder = TempDir::with_prefix("wk-browser-").expect("a temporary folder");
        create_demo_table(&folder.path().join("app.db"), ROWS).expect("a table");
        create_demo_table(&folder.path().join("cards.db"), CARDS).expect("a table");
        let receiver = Receiver::start();
        let settings = SETTINGS
            .replace("$RECEIVER", &receiver.url())
            .replace("$FOLDER", &folder.path().display().to_string())
            .replace("$TOKEN", TOKEN);
        fs::write(folder.path().join("fleet.toml"), settings).expect("a file in our own folder");
        let mut scene = Self {
            log: Log::default(),
            folder,
            workers: Vec::new(),
            receiver,
        };
        for variables in variables {
            scene.start(variables);
        }
        for worker in 0..variables.len() {
            scene.started(worker);
        }
        scene
    }

    fn start(&mut self, variables: &[(&str, &str)]) {
        let worker = self.workers.len();
        let mut child = watchkeeper(self.folder.path())
            .arg("run")
            .arg("--config")
            .arg(self.config())
            .args(["--name", &format!("w{worker}")])
            .envs(variables.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the worker starts");
        let pipe = child.stderr.take().expect("it was piped");
        self.log.follow(worker, pipe);
        self.workers.push(child);
    }

    fn started(&self, worker: usize) -> Line {
        let started = |l: &Line| l.worker == worker && l.says() == "worker started";
        self.log.wait(0, SOON, "start of a worker", started)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("fleet.toml")
    }

    /// The id of a worker's replica.
    pub(crate) fn id(&self, worker: usize) -> String {
        self.started(worker).text("replica").to_owned()
    }

    /// Where a worker answers.
    pub(crate) fn address(&self, worker: usize) -> String {
        let listens = |l: &Line| l.worker == worker && l.says() == "status page listens";
        let line = self
            .log
            .wait(0, SOON, "address of the status page", listens);
        line.text("address").to_owned()
    }

    /// A page of a worker, as a person types it.
    pub(crate) fn url(&self, worker: usize, path: &str) -> String {
        format!("http://{}{path}", self.address(worker))
    }

    // --- what the API tells ---

    /// What a worker answers with the token, unless it refuses.
    pub(crate) fn look(&self, worker: usize, path: &str) -> Option<Value> {
        let (status, body) = ask(&self.address(worker), "GET", path, &bearer(), "").ok()?;
        (status == 200).then(|| serde_json::from_str(&body).expect("JSON"))
    }

    /// The same once it does not: a busy machine may be late.
    #[track_caller]
    pub(crate) fn get(&self, worker: usize, path: &str) -> Value {
        let mut found = None;
        soon(path, || {
            found = self.look(worker, path);
            found.is_some()
        });
        found.unwrap_or_default()
    }

    /// A job, as a worker tells of it.
    #[track_caller]
    pub(crate) fn job(&self, worker: usize, job: &str) -> Value {
        self.get(worker, &format!("/api/v1/jobs/{job}"))
    }

    /// Which worker leads a job, as this one tells.
    pub(crate) fn leads(&self, worker: usize, job: &str) -> Option<usize> {
        let job = self.look(worker, &format!("/api/v1/jobs/{job}"))?;
        let name = job["leader"]["name"].as_str()?;
        name.strip_prefix('w')?.parse().ok()
    }

    /// What the workers say from now on.
    pub(crate) fn mark(&self) -> Mark {
        self.log.mark()
    }

    /// The line with which a worker says that it leads a job, once it does.
    pub(crate) fn begins_to_lead(&self, mark: Mark, worker: usize, job: &str) -> Line {
        let leads = |line: &Line| line.worker == worker && line.is("leading", job);
        self.log.wait(mark, SOON, "new leader", leads)
    }

    /// Which worker leads a job, once one does.
    pub(crate) fn leader(&self, job: &str) -> usize {
        let mut found = None;
        soon("leader", || {
            found = self.leads(0, job);
            found.is_some()
        });
        found.expect("one was found")
    }

    /// Waits until something holds that the API tells.
    #[track_caller]
    pub(crate) fn soon(&self, what: &str, mut holds: impl FnMut() -> bool) {
        soon(what, || {
            holds() || {
                pause(AGAIN);
                false
            }
        });
    }

    // --- what is asked for ---

    /// Gives an order with the token, and says what is answered. One that could not be taken is given again.
    #[track_caller]
    pub(crate) fn order(&self, path: &str, body: &Value) -> Value {
        let mut answer = Value::Null;
        self.soon("answer to an order", || {
            let asked = ask(&self.address(0), "POST", path, &bearer(), &body.to_string());
            let (status, said) = asked.expect("it answers");
            assert!(matches!(status, 200 | 202 | 503), "{path}: {status} {said}");
            answer = serde_json::from_str(&said).expect("JSON");
            status != 503
        });
        answer
    }

    /// Pauses a job, so that its row changes.
    #[track_caller]
    pub(crate) fn pause(&self, job: &str) {
        let why = json!({ "reason": "the till is counted" });
        self.order(&format!("/api/v1/jobs/{job}/pause"), &why);
    }

    #[track_caller]
    pub(crate) fn resume(&self, job: &str) {
        self.order(&format!("/api/v1/jobs/{job}/resume"), &json!({}));
    }

    /// Has a bit of everything happen: a run that goes on, one that has failed, a job that is paused.
    pub(crate) fn liven(&self) {
        self.leader("long");
        self.order("/api/v1/jobs/long/trigger", &json!({}));
        self.pause("greets");
        self.soon("run that goes on", || {
            let running = &self.job(0, "long")["running"];
            running.as_array().is_some_and(|runs| !runs.is_empty())
        });
        self.soon("run that has failed", || self.failed_run().is_some());
    }

    /// The id of a run that has failed and left something to read.
    pub(crate) fn failed_run(&self) -> Option<String> {
        let runs = self.look(0, "/api/v1/runs?job=fails&outcome=failed")?;
        let id = runs["items"][0]["run_id"].as_str()?;
        Some(id.to_owned())
    }

    // --- ends ---

    /// Kills a worker as the kernel does.
    pub(crate) fn kill(&self, worker: usize) {
        let pid = Pid::from_child(&self.workers[worker]);
        kill_process(pid, Signal::KILL).expect("our own child");
    }

    /// Waits for the end of a worker that was told to go.
    pub(crate) fn wait_until_gone(&mut self, worker: usize) {
        let child = &mut self.workers[worker];
        soon("end of a worker", || {
            child.try_wait().expect("our own child").is_some()
        });
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for child in &mut self.workers {
            _ = child.kill();
            _ = child.wait();
        }
        if std::thread::panicking() {
            let tail = self.log.tail(20);
            eprintln!("--- last lines of the workers ---\n{tail}");
        }
    }
}

/// The items of a list.
pub(crate) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list["items"].as_array().into_iter().flatten()
}

fn bearer() -> String {
    format!("Authorization: Bearer {TOKEN}\r\n")
}
