//! Who is let in by real workers, and what others may know of them.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::{
    fleet::Fleet,
    store::Store,
    wait::{SOON, soon},
};

/// Leaves something to read behind, then waits.
const JOBS: &str = r#"
[jobs.talks]
kind = "exec"
schedule = "@every 1s"
params = { command = ["sh", "-c", "echo the answer is 42"] }
"#;

const RUNS: &str = "/api/v1/runs?job=talks";

/// The user that is nobody.
const NOBODY: &str = "65534";

pub(crate) fn whoever_lacks_the_token_sees_no_output_and_orders_nothing(store: Store) {
    let fleet = Fleet::of(2, store, JOBS);
    let ended = |l: &crate::log::Line| l.is("run ended", "talks");
    fleet.log.wait(0, SOON, "end of a run", ended);
    let (token, pages) = (fleet.token(), [fleet.page(0), fleet.page(1)]);
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let wrong = format!("Authorization: Bearer {}\r\n", "0".repeat(token.len()));
    for page in &pages {
        // One token for both, and every output behind it.
        soon("an output", || {
            let (status, shown) = fleet.says(page, "GET", RUNS, &bearer);
            assert_eq!(status, 200, "{shown}");
            shown.contains("the answer is 42")
        });
        for said in ["", &wrong] {
            let (status, shown) = fleet.says(page, "GET", RUNS, said);
            assert_eq!(status, 401, "{shown}");
            assert!(!shown.contains("answer is"), "{shown}");
            for order in [
                "/api/v1/jobs/talks/pause",
                "/api/v1/jobs/talks/trigger",
                "/api/v1/replicas/w0/drain",
            ] {
                assert_eq!(fleet.says(page, "POST", order, said).0, 401, "{order}");
            }
            for list in ["/", "/api/v1/fleet", "/api/v1/locks", "/metrics", "/livez"] {
                let (status, shown) = fleet.says(page, "GET", list, said);
                // Lists of locks may be late, on a busy machine.
                assert!(matches!(status, 200 | 503), "{list}: {status}");
                assert!(!shown.contains("answer is"), "{list}: {shown}");
                assert!(!shown.contains(&token), "{list}: {shown}");
            }
        }
    }
    let file = token_file(&fleet);
    let found = fs::metadata(&file).expect("the log names it");
    assert_eq!(found.mode() & 0o777, 0o600);
    let log = fleet.log.tail(usize::MAX);
    assert!(
        !log.contains(&token),
        "the log tells the file, not the token"
    );
    // Root can be anybody else.
    if found.uid() == 0 {
        let read = Command::new("setpriv")
            .args([
                "--reuid",
                NOBODY,
                "--regid",
                NOBODY,
                "--clear-groups",
                "cat",
            ])
            .arg(&file)
            .output()
            .expect("util-linux");
        assert!(!read.status.success() && read.stdout.is_empty(), "{read:?}");
    }
}

/// Measured at what the process ever had, against what it had before.
pub(crate) fn two_thousand_large_bodies_of_strangers_cost_no_memory(store: Store) {
    const BODIES: usize = 2_000;
    const SIZE: usize = 2_000_000;
    /// More than the server takes at a time.
    const SENDERS: usize = 160;
    let fleet = Fleet::of(1, store, JOBS);
    let page = fleet.page(0);
    assert_eq!(fleet.says(&page, "GET", "/", "").0, 200);
    let before = kib(&fleet, "VmRSS:");
    let (begun, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let body = vec![b' '; SIZE];
    std::thread::scope(|scope| {
        for _ in 0..SENDERS {
            scope.spawn(|| {
                while begun.fetch_add(1, Ordering::Relaxed) < BODIES {
                    if send(&page, &body).starts_with("HTTP/1.1 401 ") {
                        refused.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let grown = kib(&fleet, "VmHWM:").saturating_sub(before);
    fleet.measured("refused", &refused);
    fleet.measured("growth in KiB", &grown);
    assert!(grown < 20_000, "{grown} KiB");
    // Some are sent away for those who come after them.
    assert!(refused.into_inner() > BODIES / 2);
    assert_eq!(fleet.says(&page, "GET", "/readyz", "").0, 200);
}

/// What is answered to an order without a token, as far as the body can be sent.
fn send(page: &str, body: &[u8]) -> String {
    let Ok(mut stream) = TcpStream::connect(page) else {
        return String::new();
    };
    stream.set_read_timeout(Some(SOON)).expect("a time limit");
    stream.set_write_timeout(Some(SOON)).expect("a time limit");
    let head = format!(
        "POST /api/v1/jobs/talks/pause HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    // Whoever is refused is not read to the end.
    let _ = stream.write_all(head.as_bytes());
    let _ = stream.write_all(body);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

pub(crate) fn commands_and_their_guards_have_none_of_our_secrets(store: Store) {
    const SECRET: &str = "hunter2-of-the-worker";
    const LONG: &str = r#"
[jobs.long]
kind = "exec"
schedule = "@every 1s"
params = { command = ["sleep", "600"] }
"#;
    let mut fleet = Fleet::new(store, LONG);
    let own = |name: &str| (name.to_owned(), SECRET.to_owned());
    let variables = [
        own("WATCHKEEPER_LOCKS__REDIS__PASSWORD"),
        own("WATCHKEEPER_ADMIN__TOKEN"),
    ];
    let worker = fleet.start_with(&variables);
    fleet.wait_until_ready(worker);
    let pid = fleet.pid(worker);
    soon("a command", || descendants(pid).len() >= 2);
    for process in descendants(pid) {
        let environment = fs::read(process.join("environ")).unwrap_or_default();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        assert!(!environment.contains(SECRET), "{process:?}: {environment}");
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        assert!(
            !String::from_utf8_lossy(&line).contains(SECRET),
            "{process:?}"
        );
    }
    // What is no dump for others is none for other programs of this user either.
    let owner = fs::metadata(format!("/proc/{pid}/environ")).expect("it lives");
    assert_eq!(owner.uid(), 0, "whoever runs the worker");
}

// === helpers ===

fn token_file(fleet: &Fleet) -> PathBuf {
    let told = |l: &crate::log::Line| l.says() == "this file holds the token of the status page";
    let line = fleet.log.wait(0, SOON, "file of the token", told);
    fleet.folder().join(line.text("file"))
}

fn kib(fleet: &Fleet, what: &str) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", fleet.pid(0))).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix(what));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.expect("a number of KiB")
}

/// The folders in `/proc` of all that descends from a process.
fn descendants(pid: u32) -> Vec<PathBuf> {
    let children = |pid: u32| -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"));
        let tasks = tasks.into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let lists: Vec<String> = lists.collect();
        let numbers = lists.iter().flat_map(|list| list.split_whitespace());
        numbers.filter_map(|number| number.parse().ok()).collect()
    };
    let (mut found, mut parents) = (Vec::new(), vec![pid]);
    while let Some(parent) = parents.pop() {
        for child in children(parent) {
            found.push(Path::new("/proc").join(child.to_string()));
            parents.push(child);
        }
    }
    found
}
