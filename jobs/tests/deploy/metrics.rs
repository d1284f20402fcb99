//! What a worker answers at `/metrics` once it has run jobs of every kind that needs no server, as promtool judges it. Costs about
//! two seconds.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::Value;
use watchkeeper_jobs::demo_table::create_demo_table;

use crate::{
    command::watchkeeper,
    run,
    wait::{SOON, until},
};

/// Every way of coordination, work that ends well and work that fails, and a store that is there.
const JOBS: &str = r#"
[admin]
listen = "127.0.0.1:0"
[telemetry]
format = "json"
[locks]
backend = "embedded"
embedded.path = "store.db"
[jobs.led]
kind = "heartbeat"
schedule = "@every 1s"
[jobs.by-tick]
kind = "heartbeat"
schedule = "@every 1s"
coordination = "tick"
[jobs.everywhere]
kind = "heartbeat"
schedule = "@every 1s"
coordination = "everywhere"
[jobs.service]
kind = "heartbeat"
schedule = "continuous"
[jobs.sharded]
kind = "heartbeat"
schedule = "@every 1s"
shards = 2
[jobs.command]
kind = "exec"
schedule = "@every 1s"
params = { command = ["true"] }
[jobs.failing]
kind = "exec"
schedule = "@every 1s"
params = { command = ["false"] }
[jobs.call]
kind = "http"
schedule = "@every 1s"
params = { url = "http://127.0.0.1:1/" }
[jobs.mail]
kind = "notifications"
schedule = "continuous"
coordination = "batch"
params = { source = "sqlite://app.db", table = "notifications", sink = "file://sent", batch_size = 2 }
"#;

/// Killed when the case ends, well or not.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

pub(crate) fn promtool_has_no_complaint_about_what_a_worker_answers() {
    let folder = tempfile::tempdir().unwrap();
    let text = answer(folder.path());
    let complaints = |text: &str| {
        let file = folder.path().join("metrics");
        fs::write(&file, text).unwrap();
        run(Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(fs::File::open(&file).unwrap()))
    };
    assert_eq!(complaints(&text), (true, String::new()), "{text}");
    // What is wrong is seen.
    let is_help = |line: &&str| line.starts_with("# HELP");
    let bare: String = text
        .lines()
        .filter(|line| !is_help(line))
        .map(|line| format!("{line}\n"))
        .collect();
    for (wrong, said) in [
        (bare, "no help text"),
        (
            text.replace("watchkeeper_job_runs_total", "watchkeeper_job_runs"),
            "should have \"_total\" suffix",
        ),
    ] {
        let (fine, told) = complaints(&wrong);
        assert!(!fine && told.contains(said), "{told}");
    }
}

/// The answer, once each job has run.
fn answer(folder: &Path) -> String {
    fs::write(folder.join("watchkeeper.toml"), JOBS).unwrap();
    create_demo_table(&folder.join("app.db"), 20).unwrap();
    let mut command = watchkeeper(folder);
    let child = command.arg("run").stderr(Stdio::piped()).spawn().unwrap();
    let mut worker = Running(child);
    let pipe = worker.0.stderr.take().unwrap();
    let lines = BufReader::new(pipe).lines().map_while(Result::ok);
    let (tell, told) = std::sync::mpsc::channel();
    // What it says afterwards has to go somewhere, too.
    std::thread::spawn(move || lines.for_each(|line| _ = tell.send(line)));
    let mut address = None;
    let listens = until(|| {
        let lines = told.try_iter();
        let lines = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        let mut pages = lines.filter(|line| line["message"] == "status page listens");
        address = pages.next();
        address.is_some()
    });
    assert!(listens, "the worker has no page");
    let address = address.unwrap_or_default();
    let address = address["address"].as_str().unwrap();
    let jobs: Vec<&str> = JOBS
        .lines()
        .filter_map(|line| line.strip_prefix("[jobs.")?.strip_suffix(']'))
        .collect();
    assert_eq!(jobs.len(), 9, "{jobs:?}");
    let mut text = String::new();
    let all_ran = until(|| {
        text = get(address, "/metrics");
        jobs.iter().all(|job| has_run(&text, job))
    });
    assert!(all_ran, "not every job has run: {text}");
    text
}

/// Whether a counter of its runs or batches is above zero.
fn has_run(text: &str, job: &str) -> bool {
    let counters = ["watchkeeper_job_runs_total{", "watchkeeper_batches_total{"];
    let label = format!("job=\"{job}\"");
    text.lines().any(|line| {
        counters.iter().any(|counter| line.starts_with(counter))
            && line.contains(&label)
            && !line.ends_with(" 0")
    })
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, text) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(" 200 "), "{head}");
    text.to_owned()
}
