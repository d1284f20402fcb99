//! Notices that wait for their receivers, and the tasks that send them.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use jiff::Timestamp;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use super::{Notice, Receiver, Unsent, What};
use crate::{
    clock::Clock,
    event::{Event, Events},
    latest,
    ledger::{Cause, Trouble},
    panics::caught_later,
    spawn::Spawn,
};

/// Notices that may wait for one receiver. Ten thousand jobs that fail at one instant are one piece of news.
const MOST_WAITING: usize = 256;
/// Notices on their way to one receiver at a time.
const TOGETHER: usize = 8;
/// How long one try may take.
const LONGEST_TRY: Duration = Duration::from_secs(15);
/// The pauses after tries that failed: about eight minutes, in which a receiver can be started anew.
const PAUSES: [Duration; 6] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(15),
    Duration::from_secs(60),
    Duration::from_secs(120),
    Duration::from_secs(300),
];
/// A receiver that asks for a longer pause does not get it.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// To whom a replica tells, and under which name.
#[derive(Clone, Default)]
pub(crate) struct Posts {
    /// The fleet.
    pub(crate) namespace: String,
    /// Whom jobs tell that do not say it themselves.
    pub(crate) usual: Vec<String>,
    /// By the names that jobs use.
    pub(crate) receivers: BTreeMap<String, Arc<dyn Receiver>>,
}

/// The notices of one replica. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Notices(Arc<Inner>);

struct Inner {
    namespace: String,
    replica: String,
    usual: Vec<String>,
    lanes: Vec<Lane>,
    state: Mutex<State>,
    /// Notices that wait or are on their way.
    left: latest::Sender<usize>,
    clock: Clock,
    events: Events,
}

/// One receiver.
struct Lane {
    name: String,
    receiver: Arc<dyn Receiver>,
    every_end: bool,
    more: Notify,
}

#[derive(Default)]
struct State {
    /// The change of a job that is being told, or was told last.
    told: BTreeMap<String, Telling>,
    /// One for each lane.
    queues: Vec<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Notice>,
    /// Jobs of which something is on its way.
    busy: BTreeSet<String>,
    /// When the last notice was taken.
    sent: Option<Timestamp>,
    /// Since when tries fail.
    failing: Option<Timestamp>,
}

/// How it stands with one receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) name: String,
    /// Notices that wait or are on their way.
    pub(crate) waiting: usize,
    /// When it took the last one, by the clock of this process.
    pub(crate) sent: Option<Timestamp>,
    /// Since when it takes none.
    pub(crate) failing: Option<Timestamp>,
}

struct Telling {
    /// Which change.
    at: Timestamp,
    /// Receivers that neither have it nor were given up.
    left: BTreeSet<usize>,
    /// The names of the others.
    done: Vec<String>,
    /// One of them has it, as far as is known.
    heard: bool,
    /// Told of each that is done.
    news: Arc<Notify>,
}

/// How far the telling of a change is.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// Nothing was done about it here.
    Not,
    /// It waits or is on its way.
    Underway {
        /// Receivers that have it, or were given up.
        done: Vec<String>,
        /// Told of the next of them.
        news: Arc<Notify>,
    },
    /// Each receiver has it, or was given up.
    Settled {
        /// One of them has it, as far as is known.
        heard: bool,
    },
}

// === impl Notices ===

impl Notices {
    /// For the replica of this name.
    pub(crate) fn new(posts: Posts, replica: &str, clock: Clock, events: Events) -> Self {
        let lanes: Vec<Lane> = posts
            .receivers
            .into_iter()
            .map(|(name, receiver)| Lane {
                name,
                every_end: receiver.wants_every_end(),
                receiver,
                more: Notify::new(),
            })
            .collect();
        let queues = lanes.iter().map(|_| Queue::default()).collect();
        Self(Arc::new(Inner {
            namespace: posts.namespace,
            replica: replica.to_owned(),
            usual: posts.usual,
            lanes,
            state: Mutex::new(State {
                told: BTreeMap::new(),
                queues,
            }),
            left: latest::Sender::new(0),
            clock,
            events,
        }))
    }

    /// Sends until they are dropped: a task for each receiver.
    pub(crate) fn follow(&self, spawn: &Spawn) -> Vec<AbortOnDropHandle<()>> {
        let lanes = 0..self.0.lanes.len();
        lanes
            .map(|lane| AbortOnDropHandle::new(spawn.spawn(self.clone().serve(lane))))
            .collect()
    }

    /// Whether any receiver is told of the changes of a job that names these; `None` is one that says nothing.
    pub(crate) fn has_any(&self, named: Option<&[String]>) -> bool {
        self.lanes(named).any(|(_, lane)| !lane.every_end)
    }

    /// The names of all whom such a job tells.
    #[cfg(feature = "admin")]
    pub(crate) fn names(&self, named: Option<&[String]>) -> Vec<String> {
        let lanes = self.lanes(named);
        lanes.map(|(_, lane)| lane.name.clone()).collect()
    }

    /// How it stands with each of them.
    pub(crate) fn standings(&self) -> Vec<Standing> {
        let state = self.state();
        let lanes = self.0.lanes.iter().zip(&state.queues);
        let standing = |(lane, queue): (&Lane, &Queue)| Standing {
            name: lane.name.clone(),
            waiting: queue.waiting.len() + queue.busy.len(),
            sent: queue.sent,
            failing: queue.failing,
        };
        lanes.map(standing).collect()
    }

    /// Tells of a change, unless that is being done or was done, those who do not know it yet.
    pub(crate) fn tell(&self, job: &str, named: Option<&[String]>, trouble: &Trouble) {
        let lanes = self.lanes(named).filter(|(_, lane)| !lane.every_end);
        let mut lanes: Vec<usize> = lanes.map(|(at, _)| at).collect();
        if lanes.is_empty() {
            return;
        }
        {
            let mut state = self.state();
            if state.told.get(job).is_some_and(|t| t.at == trouble.at) {
                return;
            }
            let name = |lane: &usize| &self.0.lanes[*lane].name;
            lanes.retain(|lane| !trouble.done.contains(name(lane)));
            let telling = Telling {
                at: trouble.at,
                left: lanes.iter().copied().collect(),
                // Of those that an earlier leader has told nothing worse is known.
                heard: !trouble.done.is_empty(),
                done: trouble.done.clone(),
                news: Arc::new(Notify::new()),
            };
            state.told.insert(job.to_owned(), telling);
        }
        let notice = Notice::of_change(self.from(), job, trouble);
        for lane in lanes {
            if !self.add(lane, notice.clone()) {
                self.outcome(lane, &notice, "dropped", "too many wait for this receiver");
                self.settle(lane, &notice, false);
            }
        }
    }

    /// Tells of the end of a run those who are told of each.
    pub(crate) fn ended(
        &self,
        job: &str,
        named: Option<&[String]>,
        end: (bool, Timestamp),
        by: &Cause,
    ) {
        for (lane, _) in self.lanes(named).filter(|(_, lane)| lane.every_end) {
            let notice = Notice::of_end(self.from(), job, end, by);
            if !self.add(lane, notice.clone()) {
                self.outcome(lane, &notice, "dropped", "too many wait for this receiver");
            }
        }
    }

    /// How far the telling of a change is.
    pub(crate) fn told(&self, job: &str, at: Timestamp) -> Told {
        match self.state().told.get(job) {
            Some(telling) if telling.at != at => Told::Not,
            Some(telling) if telling.left.is_empty() => Told::Settled {
                heard: telling.heard,
            },
            Some(Telling { done, news, .. }) => Told::Underway {
                done: done.clone(),
                news: news.clone(),
            },
            None => Told::Not,
        }
    }

    /// Waits until all is sent, but no longer than `limit`. What is left then is told by the next leader of its job.
    pub(crate) async fn flush(&self, limit: Duration) {
        let mut left = self.0.left.subscribe();
        // Its sender is there as long as this is.
        let sent = async {
            let _ = left.wait_for(|left| *left == 0).await;
        };
        if self.0.clock.timeout(limit, sent).await.is_err() {
            let left = *self.0.left.borrow();
            tracing::warn!(
                left,
                "notices could not be sent before the worker ends; the next leaders of their jobs send them, pings and jobs without a leader aside"
            );
        }
    }

    async fn serve(self, lane: usize) {
        let mut under_way = FuturesUnordered::new();
        loop {
            while under_way.len() < TOGETHER
                && let Some(notice) = self.next(lane)
            {
                let notices = &self;
                under_way.push(async move {
                    let sent = notices.send(lane, &notice).await;
                    (notice, sent)
                });
            }
            tokio::select! {
                biased;
                Some((notice, sent)) = under_way.next() => {
                    match &sent {
                        Ok(()) => self.outcome(lane, &notice, "sent", ""),
                        Err(unsent) => self.outcome(lane, &notice, "failed", &unsent.why),
                    }
                    let heard = sent.map_or_else(|unsent| unsent.heard, |()| true);
                    self.is_over(lane, &notice, heard);
                }
                () = self.0.lanes[lane].more.notified() => {}
            }
        }
    }

    /// Sends one notice, with pauses after tries that fail; why it was given up.
    async fn send(&self, lane: usize, notice: &Notice) -> Result<(), Unsent> {
        let Lane { name, receiver, .. } = &self.0.lanes[lane];
        let clock = &self.0.clock;
        let mut pauses = PAUSES.into_iter();
        loop {
            let tried = caught_later(|| receiver.send(notice));
            let tried = clock.timeout(LONGEST_TRY, tried).await;
            let unsent = match tried {
                Ok(Ok(Ok(()))) => {
                    self.tried(lane, true);
                    return Ok(());
                }
                Ok(Ok(Err(unsent))) => unsent,
                Ok(Err(panic)) => Unsent::later(format!("the receiver's code panicked: {panic}")),
                Err(_) => Unsent::later("no answer in time"),
            };
            self.tried(lane, false);
            let Some(pause) = pauses.next().filter(|_| unsent.again) else {
                return Err(unsent);
            };
            tracing::debug!(
                notice = name,
                job = notice.job,
                why = unsent.why,
                "a notice was not sent"
            );
            let asked = unsent.after.unwrap_or_default().min(LONGEST_PAUSE);
            clock.sleep(pause.max(asked)).await;
        }
    }

    /// Takes note of what a try came to.
    fn tried(&self, lane: usize, taken: bool) {
        let now = self.0.clock.wall();
        if let Some(queue) = self.state().queues.get_mut(lane) {
            if taken {
                (queue.sent, queue.failing) = (Some(now), None);
            } else {
                queue.failing.get_or_insert(now);
            }
        }
    }

    /// The first notice of a job of which nothing is on its way.
    fn next(&self, lane: usize) -> Option<Notice> {
        let mut state = self.state();
        let queue = state.queues.get_mut(lane)?;
        let free = |notice: &Notice| !queue.busy.contains(&notice.job);
        let place = queue.waiting.iter().position(free)?;
        let notice = queue.waiting.remove(place)?;
        queue.busy.insert(notice.job.clone());
        Some(notice)
    }

    /// Whether there is room for it.
    fn add(&self, lane: usize, notice: Notice) -> bool {
        let every_end = self.0.lanes[lane].every_end;
        let mut state = self.state();
        let Some(queue) = state.queues.get_mut(lane) else {
            return false;
        };
        // Of the ends of a job that wait the last one counts, and before it the last one that failed.
        let replaces = |old: &Notice| {
            let of_job = every_end && old.job == notice.job;
            of_job && (notice.what == What::Failed || old.what != What::Failed)
        };
        if let Some(place) = queue.waiting.iter().position(replaces) {
            let before = queue.waiting.len();
            let mut at = 0..before;
            queue
                .waiting
                .retain(|old| at.next() <= Some(place) || !replaces(old));
            let gone = before - queue.waiting.len();
            queue.waiting[place] = notice;
            self.0.left.send_modify(|left| *left -= gone);
            return true;
        }
        if queue.waiting.len() >= MOST_WAITING {
            return false;
        }
        queue.waiting.push_back(notice);
        // Before it can be taken, sent and counted off.
        self.0.left.send_modify(|left| *left += 1);
        drop(state);
        self.0.lanes[lane].more.notify_one();
        true
    }

    fn is_over(&self, lane: usize, notice: &Notice, heard: bool) {
        if let Some(queue) = self.state().queues.get_mut(lane) {
            queue.busy.remove(&notice.job);
        }
        if !self.0.lanes[lane].every_end {
            self.settle(lane, notice, heard);
        }
        self.0.left.send_modify(|left| *left -= 1);
    }

    /// Nothing more is to be known of this change.
    pub(crate) fn forget(&self, job: &str, at: Timestamp) {
        let mut state = self.state();
        if state.told.get(job).is_some_and(|t| t.at == at) {
            state.told.remove(job);
        }
    }

    /// One receiver has it, or was given up.
    fn settle(&self, lane: usize, notice: &Notice, heard: bool) {
        let mut state = self.state();
        if let Some(telling) = state.told.get_mut(&notice.job)
            && telling.at == notice.at
            && telling.left.remove(&lane)
        {
            telling.done.push(self.0.lanes[lane].name.clone());
            telling.heard |= heard;
            telling.news.notify_one();
        }
    }

    fn outcome(&self, lane: usize, notice: &Notice, outcome: &'static str, why: &str) {
        self.0.events.tell(Event::Notice {
            notice: self.0.lanes[lane].name.clone(),
            job: notice.job.clone(),
            about: notice.what.as_str(),
            outcome,
            why: why.to_owned(),
        });
    }

    fn lanes<'a>(&'a self, named: Option<&'a [String]>) -> impl Iterator<Item = (usize, &'a Lane)> {
        let names = named.unwrap_or(&self.0.usual);
        let all = self.0.lanes.iter().enumerate();
        all.filter(|(_, lane)| names.contains(&lane.name))
    }

    fn from(&self) -> (&str, &str) {
        (&self.0.namespace, &self.0.replica)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is complete before the lock is given back.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Notices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.0.lanes.iter().map(|lane| &lane.name))
            .finish()
    }
}

#[cfg(test)]
mod tests;
