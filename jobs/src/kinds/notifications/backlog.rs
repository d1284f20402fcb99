//! Counts what is left, beside the work: with many rows that takes a minute, and no look and no batch waits for it.
//!
//! # Invariants
//! - K1 A count holds up neither a look nor the end of a batch.       (a_count_that_takes_long_holds_up_neither_a_look_nor_a_batch)
//! - K2 One count at a time, at most once a second, and so seldom that counting takes no more than a fiftieth of the time.
//!   (one_count_follows_another_after_a_pause)
//! - K3 It ends with the job.                                                             (a_count_ends_with_its_job)

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::task::JoinHandle;
use tracing::debug;
use watchkeeper::{
    clock::{Clock, Moment},
    event::{Event, Events},
    spawn::Spawn,
};

use super::source::{self, Counts, Source, SourceError};

/// The counts of one job.
#[derive(Debug, Default)]
pub(crate) struct Backlog(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    task: Option<JoinHandle<()>>,
    /// When it may be counted again.
    next: Arc<Mutex<Option<Moment>>>,
}

/// It is counted at most this often, and so seldom that counting takes no more than this part of the time.
const EVERY: Duration = Duration::from_secs(1);
const SHARE: u32 = 50;

// === impl Backlog ===

impl Backlog {
    /// Counts what is left in `source`, and tells `events` under the name of the `job`; unless it is being counted, or was lately.
    pub(crate) fn tell(
        &self,
        source: &Arc<dyn Source>,
        clock: &Clock,
        events: Events,
        job: String,
    ) {
        let mut state = self.state();
        let is_counting = state.task.as_ref().is_some_and(|task| !task.is_finished());
        if is_counting || locked(&state.next).is_some_and(|next| clock.now() < next) {
            return;
        }
        let (source, clock) = (Arc::clone(source), clock.clone());
        let next = Arc::clone(&state.next);
        state.task = Some(Spawn::system().spawn(async move {
            let began = clock.now();
            match counted(&*source).await {
                Ok((held, backlog)) => {
                    events.tell(Event::HeldItems {
                        job: job.clone(),
                        retry: held.retry,
                        dead: held.dead,
                        in_doubt: held.in_doubt,
                        parked: held.parked,
                    });
                    events.tell(Event::Backlog {
                        job,
                        items: backlog.items,
                        since: backlog.since(),
                    });
                }
                Err(error) => debug!(job, %error, "the backlog was not counted"),
            }
            let now = clock.now();
            let pause = (now.since(began) * SHARE).max(EVERY);
            *locked(&next) = Some(now + pause);
        }));
    }

    /// Nothing more is told.
    pub(crate) fn stop(&self) {
        if let Some(task) = self.state().task.take() {
            task.abort();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.0)
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn counted(source: &dyn Source) -> Result<(Counts, source::Backlog), SourceError> {
    Ok((source.counts().await?, source.backlog().await?))
}

fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use async_trait::async_trait;
    use watchkeeper::node::Token;

    use super::*;
    use crate::notifications::{
        cell::ItemId,
        delivery::{Mark, Policy},
        source::{Begin, Exceptions, Finish},
    };

    /// Says how often it was asked; or nothing, for ever.
    #[derive(Default)]
    struct Asked {
        times: AtomicU64,
        hangs: bool,
    }

    #[async_trait]
    impl Source for Asked {
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
            Err(SourceError::Unfinished)
        }

        async fn finish(
            &self,
            _: &str,
            _: Token,
            _: Policy,
            _: Vec<(ItemId, Mark)>,
            _: i64,
        ) -> Result<Finish, SourceError> {
            Err(SourceError::Unfinished)
        }

        async fn exceptions(&self) -> Result<Exceptions, SourceError> {
            Ok(Exceptions::default())
        }

        async fn backlog(&self) -> Result<source::Backlog, SourceError> {
            if self.hangs {
                std::future::pending::<()>().await;
            }
            Ok(source::Backlog {
                items: self.times.fetch_add(1, Ordering::SeqCst) + 1,
                oldest_ms: None,
            })
        }
    }

    #[tokio::test]
    async fn one_count_follows_another_after_a_pause() {
        let (clock, events) = (Clock::system(), Events::default());
        let source: Arc<dyn Source> = Arc::new(Asked::default());
        let (backlog, mut seen) = (Backlog::default(), events.observe());
        let tell = || backlog.tell(&source, &clock, events.clone(), "mail".to_owned());
        for items in 1..=2 {
            let before = clock.now();
            tell();
            tell();
            assert!(matches!(seen.recv().await, Ok(Event::HeldItems { .. })));
            let told = Event::Backlog {
                job: "mail".to_owned(),
                items,
                since: None,
            };
            assert_eq!(seen.recv().await, Ok(told));
            let task = backlog.state().task.take().unwrap();
            task.await.unwrap();
            let next = locked(&backlog.state().next).expect("a pause");
            assert!(next >= before + EVERY);
            // So soon it is not counted again, however long this thread stood still.
            *locked(&backlog.state().next) = Some(clock.now() + EVERY * 60);
            tell();
            assert!(backlog.state().task.is_none());
            *locked(&backlog.state().next) = Some(clock.now());
        }
    }

    #[tokio::test]
    async fn a_count_ends_with_its_job() {
        let (clock, backlog) = (Clock::system(), Backlog::default());
        let asked = Arc::new(Asked {
            hangs: true,
            ..Asked::default()
        });
        let source: Arc<dyn Source> = asked.clone();
        backlog.tell(&source, &clock, Events::default(), "mail".to_owned());
        drop(source);
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&asked), 2, "it is being counted");
        drop(backlog);
        let ending = async {
            while Arc::strong_count(&asked) > 1 {
                tokio::task::yield_now().await;
            }
        };
        let ended = clock.timeout(Duration::from_secs(10), ending).await;
        assert!(ended.is_ok());
    }
}
