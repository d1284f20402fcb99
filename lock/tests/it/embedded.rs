//! The embedded store under real processes that die.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use watchkeeper_lock::{
    Locks,
    chance::Chance,
    clock::Clock,
    conformance::{release, take_for},
    event::{Event, Events},
    lease::{Loss, VerifyError},
    lock::{Claim, Claimed, Timing},
    node::{
        Answer, Call, Kind, Node,
        sqlite::{OpenError, SqliteNode},
    },
    settings::LockSettings,
};

/// Where a child process finds the folder of its test.
const FOLDER: &str = "WATCHKEEPER_TEST_FOLDER";

const TTL: Duration = Duration::from_millis(300);
const PROCESSES: usize = 3;
const KILLS: usize = 6;

/// Takes the lock and notes its token, again and again until killed. Runs only as a child of the test below.
#[tokio::test]
#[ignore = "a process of killed_processes_leave_a_whole_file_and_rising_tokens"]
async fn worker_process() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    let (clock, chance) = (Clock::system(), Chance::system());
    let node = SqliteNode::open(folder.join("locks.db"), clock.clone()).unwrap();
    loop {
        let (owner, start) = (chance.id(), clock.now());
        let call = Call {
            not_after: None,
            ops: vec![take_for("k", &owner, TTL)],
        };
        let answer = node
            .call(call)
            .await
            .map(|mut reply| reply.answers.remove(0));
        let Ok(Answer::Granted { grant, .. }) = answer else {
            clock.sleep(chance.up_to(Duration::from_millis(10))).await;
            continue;
        };
        // A holder that was not scheduled in time does nothing.
        if clock.now() < start + TTL / 2 {
            let path = folder.join("tokens");
            let mut notes = OpenOptions::new()
                .append(true)
                .create(true)
                .open(path)
                .unwrap();
            notes.write_all(format!("{grant}\n").as_bytes()).unwrap();
        }
        let call = Call {
            not_after: None,
            ops: vec![release(Kind::Lock, "k", &owner)],
        };
        let _unfit_is_waited_out = node.call(call).await;
    }
}

#[tokio::test]
async fn killed_processes_leave_a_whole_file_and_rising_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::system();
    let seed = u64::from(std::process::id());
    let chance = Chance::seeded(seed);
    let mut children: Vec<Worker> = (0..PROCESSES)
        .map(|_| Worker::start(folder.path()))
        .collect();
    for _ in 0..KILLS {
        let before = tokens(folder.path()).len();
        let patience = clock.now() + Duration::from_secs(20);
        while tokens(folder.path()).len() < before + 5 {
            assert!(clock.now() < patience, "seed {seed}: nobody works");
            clock.sleep(Duration::from_millis(5)).await;
        }
        clock.sleep(chance.up_to(Duration::from_millis(20))).await;
        let victim = usize::try_from(chance.below(PROCESSES as u64)).unwrap();
        children[victim] = Worker::start(folder.path());
    }
    drop(children);
    let tokens = tokens(folder.path());
    assert!(tokens.is_sorted_by(|a, b| a < b), "seed {seed}: {tokens:?}");
    let file = rusqlite::Connection::open(folder.path().join("locks.db")).unwrap();
    let whole: String = file
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(whole, "ok", "seed {seed}");
}

/// A process that dies by SIGKILL when dropped.
struct Worker(Child);

impl Worker {
    fn start(folder: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "embedded::worker_process", "--ignored"])
            .env(FOLDER, folder);
        Self(
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn tokens(folder: &Path) -> Vec<u64> {
    let notes = fs::read_to_string(folder.join("tokens")).unwrap_or_default();
    notes.lines().map(|line| line.parse().unwrap()).collect()
}

/// Locks with leases that are long enough for a test to hear of their end before their deadline.
fn locks_over(path: &Path) -> Locks {
    let node = SqliteNode::open(path, Clock::system()).unwrap();
    let timing = Timing {
        ttl: Duration::from_secs(6),
        ..Timing::default()
    };
    let locks = Locks::over(vec![Arc::new(node)]).timing(timing);
    locks.start().unwrap()
}

#[tokio::test]
async fn a_lease_is_not_confirmed_by_a_file_that_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let locks = locks_over(&path);
    let lease = locks.lock("k").acquire().await.unwrap();
    lease.verify().await.unwrap();
    fs::rename(&path, folder.path().join("old.db")).unwrap();
    let refused = lease.verify().await;
    assert!(
        matches!(refused, Err(VerifyError::Lost(Loss::Taken))),
        "{refused:?}"
    );
    assert!(!lease.is_held());
}

#[tokio::test]
async fn a_lease_ends_when_its_file_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let locks = locks_over(&path);
    let lease = locks.lock("k").acquire().await.unwrap();
    fs::remove_file(&path).unwrap();
    // Another process could be granted the same lock with the same token now, and is not.
    let refused = SqliteNode::open(&path, Clock::system()).unwrap_err();
    assert!(matches!(refused, OpenError::Replaced { .. }), "{refused}");
    // Told at the next renewal, and not by its end.
    assert_eq!(lease.lost().await, Loss::Taken);
    let again = locks.lock("k").acquire().await.unwrap_err();
    assert!(again.to_string().contains("locks.db"), "{again}");
}

/// Programs need not agree on `max_ttl` over a file, and the row of a claim does not say how long it is.
#[tokio::test]
async fn a_program_with_a_smaller_max_ttl_cuts_no_living_claim() {
    let folder = tempfile::tempdir().unwrap();
    let second = Duration::from_secs(1);
    let of = |max_ttl| {
        let settings = LockSettings::embedded(folder.path().join("locks.db"));
        let settings = settings.ttl(second).max_ttl(max_ttl);
        Locks::open(&settings, "n").unwrap().start().unwrap()
    };
    let (one, other) = (of(second * 600), of(second));
    let claim = |ttl| Claim {
        ttl: Some(ttl),
        ..Claim::short("batch/1")
    };
    let claimed = one.claim(vec![claim(second * 300)]).await.unwrap();
    assert!(matches!(claimed[..], [Claimed::Acquired(_)]), "{claimed:?}");
    for _ in 0..2 {
        let refused = other.claim(vec![claim(second)]).await.unwrap();
        let [Claimed::Held { for_at_most, .. }] = &refused[..] else {
            panic!("{refused:?}");
        };
        assert!(*for_at_most > Some(second * 200), "{for_at_most:?}");
    }
}

/// The longest lease that the file knows of, and not the longest that there can be.
#[tokio::test]
async fn a_damaged_claim_comes_free_when_the_longest_lease_is_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let ttl = TTL * 2;
    let settings = LockSettings::embedded(&path).ttl(ttl).max_ttl(ttl);
    let locks = || Locks::open(&settings, "n").unwrap().start().unwrap();
    let (one, other) = (locks(), locks());
    let claimed = one.claim(vec![Claim::short("batch/1")]).await.unwrap();
    assert!(matches!(claimed[..], [Claimed::Acquired(_)]), "{claimed:?}");
    let conn = rusqlite::Connection::open(&path).unwrap();
    let damaged = conn.execute("UPDATE wk_lease SET owner = CAST(x'ff' AS TEXT)", []);
    assert_eq!(damaged.unwrap(), 1);
    let clock = Clock::system();
    let end = clock.now() + ttl * 10;
    loop {
        let claimed = other.claim(vec![Claim::short("batch/1")]).await.unwrap();
        if let [Claimed::Acquired(_)] = &claimed[..] {
            break;
        }
        assert!(clock.now() < end, "{claimed:?}");
        clock.sleep(ttl / 10).await;
    }
}

#[tokio::test]
async fn a_damaged_row_is_told_of_and_its_lock_comes_free() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let timing = Timing {
        ttl: TTL,
        max_ttl: TTL,
        ..Timing::default()
    };
    let node = SqliteNode::open(&path, Clock::system()).unwrap();
    let (events, locks) = (Events::default(), Locks::over(vec![Arc::new(node)]));
    let mut heard = events.observe();
    let locks = locks.timing(timing).events(events).start().unwrap();
    let lease = locks.lock("k").acquire().await.unwrap();
    let first = lease.token();
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute("UPDATE wk_lease SET owner = CAST(x'ff' AS TEXT)", [])
        .unwrap();
    let begun = Clock::system().now();
    let patient = Duration::from_secs(20);
    let next = locks.lock("k").wait(patient).acquire().await.unwrap();
    assert!(next.token() > first && !lease.is_held());
    assert!(Clock::system().now().since(begun) >= TTL);
    let told = std::iter::from_fn(|| heard.try_recv().ok());
    let told: Vec<_> = told
        .filter(|event| matches!(event, Event::NodeDamaged { .. }))
        .collect();
    assert!(
        matches!(&told[..], [Event::NodeDamaged { node, what }] if node == "embedded" && what.contains("k` is malformed")),
        "{told:?}"
    );
}
