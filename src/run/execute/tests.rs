use std::sync::Mutex;

use async_trait::async_trait;

use super::*;
use crate::{job::RunFacts, sim_clock::SimTime};

const GRACE: Duration = Duration::from_secs(2);

/// What hooks were told, in order.
type Notes = Arc<Mutex<Vec<String>>>;

/// Takes notes under its name, and does what its mood says.
struct Hook {
    name: &'static str,
    notes: Notes,
    mood: Mood,
}

#[derive(Clone, Copy, PartialEq)]
enum Mood {
    Calm,
    Refuses,
    PanicsBefore,
    PanicsAfter,
    HangsAfter,
    BombAfter,
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("tick");
    }
}

/// An error whose text panics.
#[derive(Debug)]
struct Unspeakable;

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("no words")
    }
}

impl std::error::Error for Unspeakable {}

#[async_trait]
impl RunHook for Hook {
    async fn before(&self, _: &Run) -> Result<(), JobError> {
        self.note("before");
        match self.mood {
            Mood::Refuses => Err(JobError::fatal("not today")),
            Mood::PanicsBefore => panic!("before"),
            _ => Ok(()),
        }
    }

    async fn after(&self, run: &Run, end: &RunEnd) {
        self.note(&format!("after {}", end.outcome));
        match self.mood {
            Mood::PanicsAfter => panic!("after"),
            Mood::HangsAfter => std::future::pending().await,
            Mood::BombAfter => {
                let _bomb = Bomb;
                std::future::pending().await
            }
            _ => drop(run.check()),
        }
    }
}

impl Hook {
    fn note(&self, what: &str) {
        let mut notes = self.notes.lock().unwrap();
        notes.push(format!("{} {what}", self.name));
    }
}

/// A run whose time is up after ten seconds.
fn run(clock: &Clock) -> Run {
    let facts = RunFacts {
        job: "job".to_owned(),
        id: String::new(),
        tick: clock.wall(),
        attempt: 1,
        replica: String::new(),
        batch: None,
        shard: 0,
        shards: 1,
        params: serde_json::Value::Null,
        checkpoint: None,
    };
    let until = clock.now() + Duration::from_secs(10);
    Run::new(facts, clock.clone(), None, Duration::ZERO, until)
}

fn limits(hooks: Hooks) -> Limits {
    Limits {
        grace: GRACE,
        abort_margin: Duration::ZERO,
        also: None,
        hooks,
    }
}

fn hooks(moods: [Mood; 2]) -> (Hooks, Notes) {
    let notes = Notes::default();
    let hook = |(name, mood)| {
        let notes = notes.clone();
        Arc::new(Hook { name, notes, mood }) as Arc<dyn RunHook>
    };
    let hooks = ["a", "b"].into_iter().zip(moods).map(hook);
    (Hooks::new(hooks), notes)
}

/// Runs it with two hooks; answers with the end, what they were told, and how long it all took.
async fn with_hooks(
    moods: [Mood; 2],
    work: impl Future<Output = Result<Outcome, JobError>> + Send,
) -> (Ended, String, Duration) {
    let clock = SimTime::new().clock();
    let (hooks, notes) = hooks(moods);
    let began = clock.now();
    let ended = execute(work, &run(&clock), limits(hooks), &clock).await;
    let took = clock.now().since(began);
    let notes = notes.lock().unwrap().join(", ");
    (ended, notes, took)
}

#[tokio::test]
async fn a_run_that_is_over_does_not_begin() {
    let clock = Clock::system();
    let run = run(&clock);
    run.stop("it was frozen for too long");
    let (hooks, notes) = hooks([Mood::Calm; 2]);
    let work = async { panic!("it has begun") };
    let ended = execute(work, &run, limits(hooks), &clock).await;
    assert_eq!(
        ended,
        Ended::Cancelled("it was frozen for too long".to_owned())
    );
    assert!(notes.lock().unwrap().is_empty(), "nor do its hooks");
}

#[tokio::test(start_paused = true)]
async fn whatever_becomes_of_a_run_its_hooks_are_called_after_it() {
    type Work = futures_util::future::BoxFuture<'static, Result<Outcome, JobError>>;
    let cases: [(&str, Work); 6] = [
        ("done", Box::pin(async { Ok(Outcome::Done) })),
        (
            "skipped",
            Box::pin(async { Ok(Outcome::Skip("no".to_owned())) }),
        ),
        ("retry", Box::pin(async { Ok(Outcome::RetryAfter(GRACE)) })),
        ("failed", Box::pin(async { Err(JobError::retry("broken")) })),
        ("panicked", Box::pin(async { panic!("work") })),
        // It does not end, and is dropped.
        ("timeout", Box::pin(std::future::pending())),
    ];
    for (word, work) in cases {
        let (ended, notes, _) = with_hooks([Mood::Calm; 2], work).await;
        assert_eq!(ended.word(), word);
        let told = format!("a before, b before, b after {word}, a after {word}");
        assert_eq!(notes, told);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_may_refuse_a_run_and_later_ones_are_not_called() {
    let work = || async { panic!("it has begun") };
    let (ended, notes, _) = with_hooks([Mood::Refuses, Mood::Calm], work()).await;
    let why = "not today".to_owned();
    assert_eq!(ended, Ended::Failed { retry: false, why });
    assert_eq!(notes, "a before, a after failed");
    let (ended, notes, _) = with_hooks([Mood::Calm, Mood::PanicsBefore], work()).await;
    assert_eq!(ended, Ended::Panicked("before".to_owned()));
    assert_eq!(
        notes,
        "a before, b before, b after panicked, a after panicked"
    );
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_fails_after_a_run_changes_nothing_of_it() {
    let done = || async { Ok(Outcome::Done) };
    let (ended, notes, took) = with_hooks([Mood::Calm, Mood::PanicsAfter], done()).await;
    assert_eq!(ended, Ended::Done);
    assert_eq!(notes, "a before, b before, b after done, a after done");
    assert!(took < GRACE);
    // All of them share one grace.
    let (ended, notes, took) = with_hooks([Mood::HangsAfter; 2], done()).await;
    assert_eq!(ended, Ended::Done);
    assert_eq!(notes, "a before, b before, b after done, a after done");
    assert!(took >= GRACE && took < GRACE * 2, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_what_a_run_leaves_behind_is_its_end() {
    let calm = [Mood::Calm; 2];
    let told = "a before, b before, b after panicked, a after panicked";
    let work = async { Err(JobError::fatal(Unspeakable)) };
    let (ended, notes, _) = with_hooks(calm, work).await;
    assert_eq!(ended, Ended::Panicked("no words".to_owned()));
    assert_eq!(notes, told);
    let work = async {
        let _bomb = Bomb;
        std::future::pending().await
    };
    let (ended, notes, took) = with_hooks(calm, work).await;
    assert_eq!(ended, Ended::Panicked("tick".to_owned()));
    assert_eq!(notes, told);
    assert_eq!(took, Duration::from_secs(10) + GRACE);
    let work = async { Ok(Outcome::Done) };
    let (ended, notes, _) = with_hooks([Mood::Calm, Mood::BombAfter], work).await;
    assert_eq!(ended, Ended::Done);
    assert_eq!(notes, "a before, b before, b after done, a after done");
}

#[test]
fn a_wish_for_another_attempt_is_a_failure_of_the_last_one() {
    let wish = || Ended::RetryAfter(GRACE);
    assert_eq!(wish().of_last_attempt(false), wish());
    let last = wish().of_last_attempt(true);
    assert_eq!(last.word(), "failed");
    assert!(last.detail().contains("retry.attempts"), "{last:?}");
    assert_eq!(Ended::Done.of_last_attempt(true), Ended::Done);
}

#[tokio::test]
async fn a_run_is_over_when_its_blocking_work_is() {
    let clock = Clock::system();
    let run = run(&clock);
    let limits = Limits {
        grace: Duration::ZERO,
        ..limits(Hooks::default())
    };
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let (end, may_end) = std::sync::mpsc::channel();
    let work = async {
        let blocking = run.blocking(move |_| {
            begun.send(()).unwrap();
            // Without a look at the run.
            may_end.recv().unwrap();
            Ok(Outcome::Done)
        });
        blocking.await
    };
    let let_go = Mutex::new(false);
    let executing = async {
        let ended = execute(work, &run, limits, &clock).await;
        assert!(*let_go.lock().unwrap(), "its work still goes on");
        ended
    };
    let stopping = async {
        has_begun.await.unwrap();
        run.stop("enough");
        // Long enough to drop it.
        clock.sleep(Duration::from_millis(50)).await;
        *let_go.lock().unwrap() = true;
        end.send(()).unwrap();
    };
    let (ended, ()) = futures_util::join!(executing, stopping);
    assert_eq!(ended, Ended::Cancelled("enough".to_owned()));
}
