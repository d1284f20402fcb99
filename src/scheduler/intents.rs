//! What people ask of the fleet, as this replica knows it: read from all nodes again and again, and written again where it
//! is missing.
//!
//! # Invariants
//! - What this replica knows it writes again on every node that does not show it, so that an intent outlives a rolling restart
//!   of all nodes.   (a_paused_job_stays_paused_through_a_rolling_restart_of_all_masters)
//! - A leader has read the intents from a majority before it decides anything.   (a_new_leader_knows_of_a_pause_at_once)
//! # When things fail
//! Nodes that do not answer are asked again a second later; what is known stands until then.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use tokio::sync::{Notify, watch};

use super::Board;
use crate::{
    clock::Clock,
    intent::{self, Drain, Intent, Pause, Resign, Trigger, TriggerState},
    lock::{LockError, Locks},
    node::Doc,
};

/// Time between two looks at the nodes.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// The intents that this replica knows. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Intents(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    known: Mutex<BTreeMap<String, Known>>,
    /// Counts the changes.
    news: watch::Sender<u64>,
    /// Something was said here that the nodes do not know.
    said: Notify,
    /// Time between two looks at the nodes, where it is not [`INTERVAL`].
    every: Option<Duration>,
}

#[derive(Clone, Debug)]
struct Known {
    rev: u64,
    intent: Intent,
}

impl Intents {
    /// Looks at the nodes so often, and whenever it is told to: for simulations, in which a day of looks costs.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn every(pause: Duration) -> Self {
        let every = Some(pause);
        Self(Arc::new(Inner {
            every,
            ..Inner::default()
        }))
    }

    /// Looks now.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn look(&self) {
        self.0.said.notify_one();
    }

    /// Time between two looks at the nodes.
    pub(crate) fn pace(&self) -> Duration {
        self.0.every.unwrap_or(INTERVAL)
    }

    /// Reads and writes until the task is dropped.
    pub(crate) async fn follow(self, locks: Locks, clock: Clock, board: Board) {
        let mut told = 0;
        loop {
            let _ = self.refresh(&locks).await;
            let seen = self.seen();
            if std::mem::replace(&mut told, seen) != seen {
                // The others, and whoever asked, read in the presence documents who knows.
                board.told();
            }
            tokio::select! {
                biased;
                () = self.0.said.notified() => {}
                () = clock.sleep(self.pace()) => {}
            }
        }
    }

    /// Reads what the nodes show and writes what they lack; says how many answered.
    pub(crate) async fn refresh(&self, locks: &Locks) -> Result<usize, LockError> {
        let read = locks.read_docs(intent::DIRECTORY).await?;
        // By the fleet's time: what was asked through a replica whose clock is wrong ends when it should.
        let now = locks.wall();
        let shown: BTreeMap<String, (u64, usize)> = read
            .docs
            .iter()
            .map(|(doc, nodes)| (doc.name.clone(), (doc.rev, *nodes)))
            .collect();
        self.take(read.docs.iter().map(|(doc, _)| doc), now);
        for (known, left) in self.living(now) {
            let name = known.intent.document();
            let complete = shown
                .get(&name)
                .is_some_and(|(rev, nodes)| *rev >= known.rev && *nodes >= read.answered);
            if !complete {
                let Doc { name, rev, body } = known.intent.to_doc(known.rev);
                // Nodes that have it ignore it; for those that do not answer now there is a next time.
                let _ = locks.put_doc(&name, rev, left, body).await;
            }
        }
        Ok(read.answered)
    }

    /// As [`Intents::refresh`], again and again until a majority of the nodes has answered.
    pub(crate) async fn known_to_majority(&self, locks: &Locks, clock: &Clock) {
        loop {
            let answered = self.refresh(locks).await.unwrap_or(0);
            let Ok(nodes) = locks.nodes().await else {
                return;
            };
            if answered > nodes.len() / 2 {
                return;
            }
            clock.sleep(locks.timing().node_timeout).await;
        }
    }

    /// Completes at the next change after `seen`, which it moves on.
    pub(crate) async fn changed(&self, seen: &mut u64) {
        let mut news = self.0.news.subscribe();
        let now = news.wait_for(|now| now != seen).await;
        if let Ok(now) = now {
            *seen = *now;
        }
    }

    /// The count of changes until now.
    pub(crate) fn seen(&self) -> u64 {
        *self.0.news.borrow()
    }

    /// What was said last about pausing the job.
    pub(crate) fn pause(&self, job: &str) -> Option<Pause> {
        match self.get(&intent::pause_document(job))?.intent {
            Intent::Pause(pause) => Some(pause),
            _ => None,
        }
    }

    pub(crate) fn is_paused(&self, job: &str) -> bool {
        self.pause(job).is_some_and(|pause| pause.paused)
    }

    /// Up to where undecided ticks of the job fell into a pause; the end of time while it lasts.
    pub(crate) fn paused_upto(&self, job: &str) -> Option<Timestamp> {
        let pause = self.pause(job)?;
        Some(match pause.paused {
            true => Timestamp::MAX,
            false => pause.at,
        })
    }

    /// The triggers of the job that have not ended, in the order of their ids.
    pub(crate) fn triggers(&self, job: &str) -> Vec<Trigger> {
        let known = self.known();
        let all = known.values().filter_map(|known| match &known.intent {
            Intent::Trigger(trigger) => Some(trigger),
            _ => None,
        });
        all.filter(|t| t.job == job && t.state != TriggerState::Ended)
            .cloned()
            .collect()
    }

    /// The last wish that the job's leader resigns.
    pub(crate) fn resign(&self, job: &str) -> Option<Resign> {
        match self.get(&intent::resign_document(job))?.intent {
            Intent::Resign(resign) => Some(resign),
            _ => None,
        }
    }

    /// Completes when this replica is to drain.
    pub(crate) async fn drain(&self, replica: &str) -> Drain {
        let mut seen = self.seen();
        loop {
            let asked = self.get(&intent::drain_document(replica));
            if let Some(Intent::Drain(drain)) = asked.map(|known| known.intent) {
                return drain;
            }
            self.changed(&mut seen).await;
        }
    }

    /// Says what became of a trigger; the nodes are told in the background.
    pub(crate) fn say(&self, trigger: Trigger) {
        let rev = trigger.revision();
        if self.learn(rev, Intent::Trigger(trigger)) {
            self.0.news.send_modify(|news| *news += 1);
            self.0.said.notify_one();
        }
    }

    /// Asks that a leader resigns, on behalf of this replica; the nodes are told in the background.
    pub(crate) fn ask(&self, resign: Resign, chance: u16) {
        let known = self.get(&intent::resign_document(&resign.job));
        let rev = intent::next_revision(known.map(|known| known.rev), chance);
        if self.learn(rev, Intent::Resign(resign)) {
            self.0.news.send_modify(|news| *news += 1);
            self.0.said.notify_one();
        }
    }

    fn take<'a>(&self, docs: impl Iterator<Item = &'a Doc>, now: Timestamp) {
        let mut any = false;
        for doc in docs {
            if let Some(intent) = Intent::from_doc(doc)
                && intent.remaining(now).is_some()
            {
                any |= self.learn(doc.rev, intent);
            }
        }
        if any {
            self.0.news.send_modify(|news| *news += 1);
        }
    }

    /// Whether it was news.
    fn learn(&self, rev: u64, intent: Intent) -> bool {
        let mut known = self.known();
        let name = intent.document();
        let newer = known.get(&name).is_none_or(|known| known.rev < rev);
        if newer {
            known.insert(name, Known { rev, intent });
        }
        newer
    }

    /// Everything that is still asked for, and for how long; what is over is forgotten.
    fn living(&self, now: Timestamp) -> Vec<(Known, Duration)> {
        let mut known = self.known();
        known.retain(|_, known| known.intent.remaining(now).is_some());
        let living = known.values().cloned();
        living
            .filter_map(|known| Some((known.intent.remaining(now)?, known)))
            .map(|(left, known)| (known, left))
            .collect()
    }

    fn get(&self, name: &str) -> Option<Known> {
        self.known().get(name).cloned()
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        // Every change is complete before the lock is given back.
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
