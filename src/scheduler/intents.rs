//! What people ask of the fleet, as this replica knows it: read from all nodes again and again.
//!
//! # Invariants
//! - What this replica knows it writes again on every node that does not show it, so that an intent outlives a rolling restart
//!   of all nodes.   (a_paused_job_stays_paused_through_a_rolling_restart_of_all_masters)
//! - A leader has read the intents from a majority before it decides anything.   (a_new_leader_knows_of_a_pause_at_once)

mod refresh;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicBool},
    time::Duration,
};

use jiff::Timestamp;
use tokio::sync::Notify;

use crate::{
    intent::{self, Drain, Intent, Pause, Resign, Trigger, TriggerState},
    job::shard::shard_of,
    latest,
};

/// Time between two looks at the nodes.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// The intents that this replica knows. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Intents(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    known: Mutex<BTreeMap<String, KnownIntent>>,
    /// Revisions of documents that were read and say nothing: of another version, or over.
    in_vain: Mutex<BTreeMap<String, InVain>>,
    /// Revisions of which the last look found the name alone.
    missed: Mutex<BTreeMap<String, u64>>,
    /// Counts the changes.
    news: latest::Sender<u64>,
    /// Something was said here that the nodes do not know.
    said: Notify,
    /// More stands on the nodes than is read.
    cut: AtomicBool,
    /// Time between two looks at the nodes, where it is not [`INTERVAL`].
    every: Option<Duration>,
}

/// The revisions of what is asked of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct About {
    pause: Option<u64>,
    /// Of all shards.
    pause_of_all: Option<u64>,
    resign: Option<u64>,
    triggers: Vec<(String, u64)>,
}

/// The revision of a document that says nothing.
#[derive(Clone, Copy, Debug)]
struct InVain {
    rev: u64,
    /// When it was over; `None` where it cannot be read at all.
    over_at: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct KnownIntent {
    rev: u64,
    intent: Intent,
    /// It was said here.
    ours: bool,
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

    /// Completes at the next change after `seen`, which it moves on.
    pub(crate) async fn changed(&self, seen: &mut u64) {
        let mut news = self.0.news.subscribe();
        if news.wait_for(|now| now != seen).await.is_ok() {
            *seen = *news.borrow();
        }
    }

    /// The count of changes until now.
    pub(crate) fn seen(&self) -> u64 {
        *self.0.news.borrow()
    }

    /// What is asked of the job now: see [`changed_about`](Self::changed_about).
    pub(crate) fn about(&self, job: &str) -> About {
        let known = self.known();
        let of = |name: String| known.get(&name).map(|known| known.rev);
        let triggers = intent::trigger_document(job, "");
        let triggered = known.range(triggers.clone()..);
        let triggered = triggered.take_while(|(name, _)| name.starts_with(&triggers));
        About {
            pause: of(intent::pause_document(job)),
            pause_of_all: shard_of(job).and_then(|(whole, _)| of(intent::pause_document(whole))),
            resign: of(intent::resign_document(job)),
            triggers: triggered
                .map(|(name, known)| (name.clone(), known.rev))
                .collect(),
        }
    }

    /// Completes when something else is asked of the job than `known`, which it moves on. What is asked of other jobs is no news:
    /// where each job asks the nodes something then, one order would cost as much as there are jobs. Cancel-safe.
    pub(crate) async fn changed_about(&self, job: &str, known: &mut About) {
        // Before it is read: what comes meanwhile is seen in the next turn.
        let mut seen = self.seen();
        loop {
            let about = self.about(job);
            if about != *known {
                *known = about;
                return;
            }
            self.changed(&mut seen).await;
        }
    }

    /// What was said last about pausing any job.
    #[cfg(any(test, feature = "admin"))]
    pub(crate) fn pauses(&self) -> Vec<Pause> {
        let (known, first) = (self.known(), intent::pause_document(""));
        let said = known.range(first.clone()..);
        let said = said.take_while(|(name, _)| name.starts_with(&first));
        let pauses = said.filter_map(|(_, known)| match &known.intent {
            Intent::Pause(pause) => Some(pause.clone()),
            _ => None,
        });
        pauses.collect()
    }

    /// What was said last about pausing the job.
    pub(crate) fn pause(&self, job: &str) -> Option<Pause> {
        match self.get(&intent::pause_document(job))?.intent {
            Intent::Pause(pause) => Some(pause),
            _ => None,
        }
    }

    /// A shard is paused by its own name, or by that of its job.
    pub(crate) fn is_paused(&self, job: &str) -> bool {
        self.paused_upto(job, Timestamp::MAX) == Some(Timestamp::MAX)
    }

    /// Up to where undecided ticks of the job fell into a pause; the end of time while it lasts. One that has ended after `latest`
    /// was ended by a clock that had jumped ahead: when that was is not known, and it pauses nothing before that time comes.
    pub(crate) fn paused_upto(&self, job: &str, latest: Timestamp) -> Option<Timestamp> {
        let all = shard_of(job).and_then(|(whole, _)| self.pause(whole));
        let pauses = self.pause(job).into_iter().chain(all);
        let upto = pauses.filter_map(|pause| reaches(&pause, latest));
        upto.max()
    }

    /// The triggers of the job that have not ended, in the order of their ids.
    pub(crate) fn triggers(&self, job: &str) -> Vec<Trigger> {
        let known = self.known();
        let first = intent::trigger_document(job, "");
        let of_job = known.range(first.clone()..);
        let of_job = of_job.take_while(|(name, _)| name.starts_with(&first));
        let all = of_job.filter_map(|(_, known)| match &known.intent {
            Intent::Trigger(trigger) => Some(trigger),
            _ => None,
        });
        all.filter(|t| t.job == job && t.state != TriggerState::Ended)
            .cloned()
            .collect()
    }

    /// The last intent that the job's leader resigns.
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
        if self.learn(rev, Intent::Trigger(trigger), true) {
            self.0.news.send_modify(|news| *news += 1);
            self.0.said.notify_one();
        }
    }

    /// Asks that a leader resigns, on behalf of this replica; the nodes are told in the background.
    pub(crate) fn ask(&self, resign: Resign, chance: u16) {
        let known = self.get(&intent::resign_document(&resign.job));
        let rev = intent::next_revision(known.map(|known| known.rev), chance);
        if self.learn(rev, Intent::Resign(resign), true) {
            self.0.news.send_modify(|news| *news += 1);
            self.0.said.notify_one();
        }
    }

    /// Whether it was news.
    fn learn(&self, rev: u64, intent: Intent, ours: bool) -> bool {
        let mut known = self.known();
        let name = intent.document();
        let newer = known.get(&name).is_none_or(|known| known.rev < rev);
        if newer {
            known.insert(name, KnownIntent { rev, intent, ours });
        }
        newer
    }

    fn get(&self, name: &str) -> Option<KnownIntent> {
        self.known().get(name).cloned()
    }

    fn in_vain(&self) -> MutexGuard<'_, BTreeMap<String, InVain>> {
        // As with what is known.
        self.0
            .in_vain
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, KnownIntent>> {
        // Every change is complete before the lock is given back.
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Up to where a pause reaches, as long as it was not ended after `latest`.
fn reaches(pause: &Pause, latest: Timestamp) -> Option<Timestamp> {
    match pause.paused {
        true => Some(Timestamp::MAX),
        false => (pause.at <= latest).then_some(pause.at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_that_was_ended_by_a_clock_ahead_pauses_nothing() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let pause = |paused, second| Pause {
            paused,
            at: at(second),
            ..Pause::default()
        };
        assert_eq!(reaches(&pause(true, 9000), at(100)), Some(Timestamp::MAX));
        assert_eq!(reaches(&pause(false, 100), at(100)), Some(at(100)));
        assert_eq!(reaches(&pause(false, 101), at(100)), None);
    }
}
