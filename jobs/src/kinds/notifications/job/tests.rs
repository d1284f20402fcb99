//! A database that fails between sending and marking.

use std::{collections::VecDeque, sync::Mutex};

use serde_json::Map;
use watchkeeper::job::{FailureKind, RunFacts};

use super::*;
use crate::notifications::source::{Backlog, Item, Work};

type Finished = Result<Finish, SourceError>;

/// One row, and what is answered to those who mark it.
#[derive(Clone)]
struct Failing(Arc<Mutex<(VecDeque<Finished>, Vec<Token>)>>);

impl Failing {
    fn with<const N: usize>(answers: [Finished; N]) -> Self {
        Self(Arc::new(Mutex::new((answers.into(), Vec::new()))))
    }

    /// The outcome of a batch, and the tokens under which it was marked.
    async fn work(&self) -> (Result<Outcome, FailureKind>, Vec<Token>) {
        let mut job = Notifications::new(NotificationsParams::default(), None);
        job.ends = OnceCell::new_with(Some(Ends {
            source: Arc::new(self.clone()),
            sink: Arc::new(Takes),
        }));
        let outcome = job.process_under(Token(7), "t/50/0", &run()).await;
        let tokens = self.0.lock().unwrap().1.clone();
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
        assert_eq!(marks, [(ItemId::Int(1), Mark::Sent)]);
        let (answers, tokens) = &mut *self.0.lock().unwrap();
        tokens.push(token);
        answers.pop_front().unwrap()
    }

    async fn exceptions(&self) -> Result<Exceptions, SourceError> {
        Ok(Exceptions::default())
    }

    async fn backlog(&self) -> Result<Backlog, SourceError> {
        Ok(Backlog::default())
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
        source.0.lock().unwrap().0.extend(answers);
        assert_eq!(source.work().await.0, lost);
    }
    let wrong = SourceError::NoBatch("t/50/0".to_owned());
    let source = Failing::with([Err(wrong)]);
    assert_eq!(source.work().await.0, Err(FailureKind::Fatal));
}
