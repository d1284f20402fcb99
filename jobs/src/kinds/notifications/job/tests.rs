//! A database that fails between sending and marking.

use std::{collections::VecDeque, sync::Mutex};

use serde_json::Map;
use watchkeeper::job::{FailureKind, RunFacts};

use super::*;
use crate::notifications::{delivery::State, source::Work};

type Finished = Result<Finish, SourceError>;

/// One row, and what is answered to those who mark it.
#[derive(Clone)]
struct Failing(Arc<Mutex<Marking>>);

/// What is still to be answered, and what was asked.
#[derive(Default)]
struct Marking {
    answers: VecDeque<Finished>,
    tokens: Vec<Token>,
    marks: Vec<Mark>,
}

impl Failing {
    fn with<const N: usize>(answers: [Finished; N]) -> Self {
        Self(Arc::new(Mutex::new(Marking {
            answers: answers.into(),
            ..Marking::default()
        })))
    }

    fn job(&self) -> Notifications {
        let mut job = Notifications::new(NotificationsParams::default(), None);
        job.ends = OnceCell::new_with(Some(Ends {
            source: Arc::new(self.clone()),
            sink: Arc::new(Takes),
        }));
        job
    }

    /// The outcome of a batch, and the tokens under which it was marked.
    async fn work(&self) -> (Result<Outcome, FailureKind>, Vec<Token>) {
        let outcome = self.job().process_under(Token(7), "t/50/0", &run()).await;
        let tokens = self.0.lock().unwrap().tokens.clone();
        (outcome.map_err(|error| error.kind()), tokens)
    }
}

#[async_trait]
impl Source for Failing {
    async fn pending(&self, _: i64, _: usize) -> Result<Vec<String>, SourceError> {
        Ok(Vec::new())
    }

    async fn begin(
        &self,
        _: &str,
        _: &str,
        _: Token,
        _: Policy,
        _: i64,
    ) -> Result<Begin, SourceError> {
        let item = Item {
            id: ItemId::Int(1),
            key: "k".to_owned(),
            body: Map::new(),
            columns: Map::new(),
            prior: None,
            is_repeat: false,
            members: Vec::new(),
            digest: None,
        };
        Ok(Begin::Send(Work {
            items: vec![item],
            ..Work::default()
        }))
    }

    async fn finish(
        &self,
        _: &str,
        token: Token,
        _: Policy,
        marks: Vec<(ItemId, Mark)>,
        _: i64,
    ) -> Finished {
        let mut marking = self.0.lock().unwrap();
        marking.tokens.push(token);
        for (id, mark) in marks {
            assert_eq!(id, ItemId::Int(1));
            marking.marks.push(mark);
        }
        marking.answers.pop_front().unwrap()
    }

    async fn exceptions(&self) -> Result<Exceptions, SourceError> {
        Ok(Exceptions::default())
    }

    /// Does not come to its end.
    async fn backlog(&self) -> Result<u64, SourceError> {
        std::future::pending().await
    }
}

struct Takes;

#[async_trait]
impl Sink for Takes {
    fn name(&self) -> String {
        "takes all".to_owned()
    }

    async fn send(&self, _: &Item, _: Token) -> Answer {
        Answer::Accepted
    }
}

fn run() -> Run {
    let facts = RunFacts {
        job: "mail".to_owned(),
        id: "r-1".to_owned(),
        tick: jiff::Timestamp::UNIX_EPOCH,
        attempt: 1,
        replica: "a".to_owned(),
        batch: None,
        shard: 0,
        shards: 1,
        params: serde_json::Value::Null,
        checkpoint: None,
    };
    Run::new(facts, Clock::system(), None, Duration::ZERO, Moment::NEVER)
}

#[tokio::test]
async fn marks_are_tried_again_under_the_same_token() {
    let written = Ok(Finish::Written(Unmarked::default()));
    let failed = || Err(SourceError::Unfinished);
    let source = Failing::with([failed(), failed(), written]);
    assert_eq!(source.work().await, (Ok(Outcome::Done), vec![Token(7); 3]));

    // The first attempt was written, and its answer lost.
    let source = Failing::with([failed(), Ok(Finish::Lost(None))]);
    assert_eq!(source.work().await, (Ok(Outcome::Done), vec![Token(7); 2]));

    let lost = Ok(Outcome::Skip("lost to a later holder".to_owned()));
    for answers in [
        vec![Ok(Finish::Lost(None))],
        vec![failed(), Ok(Finish::Lost(Some(Token(9))))],
    ] {
        let source = Failing::with::<0>([]);
        source.0.lock().unwrap().answers.extend(answers);
        assert_eq!(source.work().await.0, lost);
    }
}

fn wrong() -> Finished {
    Err(SourceError::NoBatch("t/50/0".to_owned()))
}

#[tokio::test]
async fn what_cannot_be_marked_is_listed_as_in_doubt_in_its_place() {
    let written = Ok(Finish::Written(Unmarked::default()));
    let source = Failing::with([wrong(), written]);
    assert_eq!(source.work().await.0, Ok(Outcome::Done));
    let marks = source.0.lock().unwrap().marks.clone();
    let [Mark::Sent, Mark::Except(doubt)] = &marks[..] else {
        panic!("{marks:?}");
    };
    assert_eq!((doubt.state, doubt.attempts), (State::InDoubt, 1));
    assert!(doubt.doubted && doubt.not_before_ms > 0);
    assert!(doubt.reason.contains("t/50/0"), "{}", doubt.reason);

    let source = Failing::with([wrong(), Ok(Finish::Lost(Some(Token(9))))]);
    let lost = Ok(Outcome::Skip("lost to a later holder".to_owned()));
    assert_eq!(source.work().await.0, lost);
}

/// Where not even that can be written, nothing else would keep the rows from being sent again and again.
#[tokio::test]
async fn a_batch_whose_end_cannot_be_written_is_left_alone_for_a_growing_pause() {
    let source = Failing::with([wrong(), wrong(), wrong(), wrong()]);
    let job = source.job();
    let work = async || job.process_under(Token(7), "t/50/0", &run()).await;
    assert_eq!(work().await.unwrap_err().kind(), FailureKind::Fatal);
    let first = job.rests("t/50/0").unwrap();
    let outcome = work().await.unwrap();
    let skipped = Outcome::Skip("its last end could not be written".to_owned());
    assert_eq!(outcome, skipped);
    assert_eq!(source.0.lock().unwrap().tokens.len(), 2, "nothing was sent");

    // When the pause is over it goes again, and the next one is longer.
    let over = job.clock.now();
    job.unended().get_mut("t/50/0").unwrap().1 = over;
    assert!(work().await.is_err());
    assert!(job.rests("t/50/0").unwrap() > first);
    assert_eq!(job.rests("t/50/1"), None);
    job.ended("t/50/0", true);
    assert_eq!(job.rests("t/50/0"), None);
}

#[tokio::test]
async fn a_count_that_takes_long_holds_up_neither_a_look_nor_a_batch() {
    let source = Failing::with([Ok(Finish::Written(Unmarked::default()))]);
    let (mut job, clock) = (source.job(), Clock::system());
    job.events = Some(Events::default());
    job.named("mail");
    let soon = Duration::from_secs(10);
    let found = clock.timeout(soon, job.pending(9)).await;
    assert_eq!(found.expect("the look ends").unwrap(), [""; 0]);
    let run = run();
    let working = job.process_under(Token(7), "t/50/0", &run);
    let outcome = clock.timeout(soon, working).await;
    assert_eq!(outcome.expect("the batch ends").unwrap(), Outcome::Done);
}

/// It may be dead, and its token never be reached.
#[tokio::test]
async fn a_batch_with_a_later_holder_comes_back_after_a_pause() {
    let source = Failing::with([Ok(Finish::Lost(Some(Token(9))))]);
    let (run, now) = (run(), Clock::system().now());
    let outcome = source.job().process_under(Token(7), "t/50/0", &run).await;
    let lost = Outcome::Skip("lost to a later holder".to_owned());
    assert_eq!(outcome.unwrap(), lost);
    assert!(run.items_again().is_some_and(|at| at >= now + LOST));
}
