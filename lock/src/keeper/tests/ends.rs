//! How a process ends that cannot be trusted with its leases any more: in processes of their own, by their real end.

use std::{
    os::unix::process::ExitStatusExt,
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use jiff::Timestamp;

use crate::{
    acquire::{Locks, LocksBuilder},
    clock::{Clock, Moment, TimeSource},
    node::memory::MemoryNode,
    quorum::LockError,
    settings::Timing,
};

/// Names, in a child process, the end that it is to come to.
const CHILD: &str = "WATCHKEEPER_TEST_KEEPER_ENDS";
const TTL: Duration = Duration::from_secs(1);
const SIGABRT: i32 = 6;
const LAST_WORDS: &str = "the last words";

/// This very test binary again.
fn child_that(ends: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "keeper::tests::ends::child", "--nocapture"])
        .env(CHILD, ends)
        .output()
        .unwrap()
}

/// Runs only in a child process of the tests below, and does not return there.
#[test]
fn child() {
    let Some(ends) = std::env::var_os(CHILD) else {
        return;
    };
    // What is wanted here needs no core dump.
    let none = rustix::process::Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    rustix::process::setrlimit(rustix::process::Resource::Core, none).unwrap();
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    crate::keeper::before_abort(|limit| {
        // Half of the ttl at most is half of what is left.
        if limit < TTL / 2 {
            eprintln!("{LAST_WORDS}");
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let locks = match ends.to_str() {
        #[cfg(feature = "sqlite")]
        Some("outlived") => {
            let file = folder.path().join("locks.db");
            let node = crate::node::sqlite::SqliteNode::open(file, Clock::system()).unwrap();
            Locks::over(vec![Arc::new(node)])
        }
        Some("panicked") => {
            let node = MemoryNode::new("n", Clock::system());
            Locks::over(vec![Arc::new(node)]).on_unstoppable(|_| panic!("as it was told to"))
        }
        other => panic!("{other:?}"),
    };
    work_without_end(locks);
    // The parent shows this.
    std::process::exit(3);
}

/// Work on a thread that cannot be stopped, under a lease that is renewed until it is declared unfit.
fn work_without_end(locks: LocksBuilder) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let timing = Timing {
            grace: TTL / 4,
            ..Timing::default()
        };
        let locks = locks.timing(timing).start().unwrap();
        let lease = locks.lock("a").ttl(TTL).acquire().await.unwrap();
        let work = lease.begin_work();
        std::thread::spawn(move || {
            let _work = work;
            loop {
                std::thread::park();
            }
        });
        locks.fitness().report("disk", Err("gone".to_owned()));
        // Nothing but the end of the process ends this before.
        Clock::system().sleep(TTL * 30).await;
    });
}

#[cfg(feature = "sqlite")]
#[test]
fn work_that_outlives_its_lease_aborts_the_process() {
    let output = child_that("outlived");
    assert_eq!(output.status.signal(), Some(SIGABRT), "{output:?}");
    says(&output, "work outlives its lease");
}

#[test]
fn a_keeper_that_panics_over_a_lease_aborts_the_process() {
    let output = child_that("panicked");
    assert_eq!(output.status.signal(), Some(SIGABRT), "{output:?}");
    says(&output, "the lock keeper has panicked");
}

#[test]
fn the_last_words_take_half_of_what_is_left_of_the_lease() {
    let at = |ms| Moment::from_boot(Duration::from_millis(ms));
    let words = |now| crate::keeper::last_words_until(at(10_000), at(now)).as_millis();
    assert_eq!([9000, 9500, 9998].map(words), [500, 250, 1]);
    // Work of a process that was frozen: its lease is over already.
    assert_eq!([10_000, 60_000].map(words), [20, 20]);
}

fn says(output: &Output, why: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains(why), "{text}");
    // A log that is written behind is written out.
    assert!(text.contains(LAST_WORDS), "{text}");
}

/// The machine's clock, which the keeper cannot read any more when it is broken.
struct Breaking(Arc<AtomicBool>);

impl TimeSource for Breaking {
    fn now(&self) -> Moment {
        let keeper = std::thread::current().name() == Some("watchkeeper-keeper");
        assert!(
            !(keeper && self.0.load(Ordering::SeqCst)),
            "as it was told to"
        );
        Clock::system().now()
    }

    fn wall(&self) -> Timestamp {
        Clock::system().wall()
    }

    fn sleep_until(&self, deadline: Moment) -> BoxFuture<'static, ()> {
        Box::pin(async move { Clock::system().sleep_until(deadline).await })
    }
}

#[tokio::test]
async fn without_leases_a_keeper_that_panics_leaves_locks_that_are_closed() {
    let broken = Arc::new(AtomicBool::new(false));
    let node = MemoryNode::new("n", Clock::system());
    let locks = Locks::over(vec![Arc::new(node)])
        .clock(Clock::new(Breaking(Arc::clone(&broken))))
        .start()
        .unwrap();
    let lease = locks.lock("a").acquire().await.unwrap();
    assert_eq!(lease.release().await.nodes, 1);
    broken.store(true, Ordering::SeqCst);
    // With this it looks.
    while locks.nodes().await.is_ok() {}
    let closed = locks.lock("a").acquire().await;
    assert!(matches!(closed, Err(LockError::Closed)), "{closed:?}");
}

/// Over the links of callers, and over the keeper's.
#[tokio::test]
async fn an_attempt_under_way_ends_when_the_keeper_panics_without_leases() {
    for away in [false, true] {
        let broken = Arc::new(AtomicBool::new(false));
        let node = MemoryNode::new("n", Clock::system());
        let locks = Locks::over(vec![Arc::new(node.clone())])
            .clock(Clock::new(Breaking(Arc::clone(&broken))))
            .start()
            .unwrap();
        locks.look(vec!["a".to_owned()]).await.unwrap();
        let slow = Duration::from_millis(200);
        node.faults().delay_requests(slow, slow);
        let attempt = locks.clone();
        let attempt = async move { attempt.lock("a").acquire().await };
        let (done, ended) = tokio::sync::oneshot::channel();
        match away {
            // Where there is no runtime, it goes over the keeper's.
            true => drop(std::thread::spawn(move || {
                done.send(super::fronts::alone(attempt))
            })),
            false => drop(crate::spawn::Spawn::system().spawn(async move {
                let _ = done.send(attempt.await);
            })),
        }
        let clock = Clock::system();
        clock.sleep(slow / 4).await;
        broken.store(true, Ordering::SeqCst);
        let _ = clock.timeout(slow, locks.nodes()).await;
        let ended = clock.timeout(slow * 30, ended).await.unwrap().unwrap();
        assert!(ended.is_err(), "{away}: {ended:?}");
    }
}
