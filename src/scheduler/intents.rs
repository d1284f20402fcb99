//! What people ask of the fleet, as this replica knows it: read from all nodes again and again, and written again where it
//! is missing.
//!
//! Each look lists names and revisions; a document is read when its revision is news. So what waits costs little, however
//! much it says, and a look is bounded: see [`crate::intent`].
//!
//! # Invariants
//! - A document is read once per revision.   (what_waits_is_read_once)
//! - Every pause and trigger is read, however many there are.   (many_pauses_hide_neither_pauses_nor_triggers)
//! - What this replica knows it writes again on every node that does not show it, so that an intent outlives a rolling restart
//!   of all nodes.   (a_paused_job_stays_paused_through_a_rolling_restart_of_all_masters)
//! - A leader has read the intents from a majority before it decides anything.   (a_new_leader_knows_of_a_pause_at_once)
//! # When things fail
//! Nodes that do not answer are asked again a second later; what is known stands until then.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use tokio::sync::{Notify, watch};

use super::LocalStatus;
use crate::{
    clock::Clock,
    intent::{self, Drain, Intent, Outstanding, Pause, Resign, Trigger, TriggerState},
    lock::{LockError, Locks, MOST_NAMES},
    node::Doc,
};

/// Time between two looks at the nodes.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);

/// Documents written again, or removed, in one look: after a node has lost its memory there may be many.
const MOST_WRITES: usize = 64;

/// The intents that this replica knows. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Intents(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    known: Mutex<BTreeMap<String, Known>>,
    /// Revisions of documents that were read and say nothing: of another version, or over.
    in_vain: Mutex<BTreeMap<String, u64>>,
    /// Revisions of which the last look found the name alone.
    missed: Mutex<BTreeMap<String, u64>>,
    /// Counts the changes.
    news: watch::Sender<u64>,
    /// Something was said here that the nodes do not know.
    said: Notify,
    /// More stands on the nodes than is read.
    cut: AtomicBool,
    /// Time between two looks at the nodes, where it is not [`INTERVAL`].
    every: Option<Duration>,
}

#[derive(Clone, Debug)]
struct Known {
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

    /// Reads and writes until the task is dropped.
    pub(crate) async fn follow(self, locks: Locks, clock: Clock, board: LocalStatus) {
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
        let read = locks.all_doc_names(intent::DIRECTORY).await?;
        self.say_if_cut(read.docs.len());
        let shown: BTreeMap<&str, (u64, usize)> = read
            .docs
            .iter()
            .map(|(doc, nodes)| (doc.name.as_str(), (doc.rev, *nodes)))
            .collect();
        let triggers = Outstanding::of(shown.iter().map(|(name, (rev, _))| (*name, *rev)));
        let news = self.news_of(&shown, &triggers.to_follow());
        let docs = locks.docs_of(&news).await?;
        // By the fleet's time: what was asked through a replica whose clock is wrong ends when it should.
        let now = locks.wall();
        self.take(docs.iter(), now);
        self.pass_over(&shown, &docs);
        if self.fell_behind(&shown, &news) {
            // What is known is older than what a majority has told of: whoever decides by it looks again.
            return Err(LockError::TooSlow);
        }
        let mut writes = 0;
        let mut living = self.living(now);
        // Somebody waits for what was said here.
        living.sort_by_key(|(known, _)| !known.ours);
        for (known, left) in living {
            let name = known.intent.document();
            let complete = shown
                .get(name.as_str())
                .is_some_and(|(rev, nodes)| *rev >= known.rev && *nodes >= read.answered);
            if !complete && known.is_to_be_kept() && writes < MOST_WRITES {
                writes += 1;
                let Doc { name, rev, body } = known.intent.to_doc(known.rev);
                // Nodes that have it ignore it; for those that do not answer now there is a next time.
                let _ = locks.put_doc(&name, rev, left, body).await;
            }
        }
        let over: Vec<&str> = triggers
            .to_forget()
            .filter(|name| self.is_ours(name))
            .collect();
        for name in over.into_iter().take(MOST_WRITES) {
            self.known().remove(name);
            let _ = locks.remove_doc(name).await;
        }
        Ok(read.answered)
    }

    /// Names of the documents that are to be read: what is followed, where the revision is none that was read.
    fn news_of(
        &self,
        shown: &BTreeMap<&str, (u64, usize)>,
        follow: &BTreeSet<&str>,
    ) -> Vec<String> {
        let (known, in_vain) = (self.known(), self.in_vain());
        let wanted = |name: &str, rev: u64| {
            let read = known.get(name).map(|known| known.rev);
            if read.max(in_vain.get(name).copied()) >= Some(rev) {
                return false;
            }
            // The end of a trigger that was never known is no news.
            intent::trigger_of(name).is_none() || read.is_some() || follow.contains(name)
        };
        let shown = shown.iter();
        let news = shown.filter(|(name, (rev, _))| wanted(name, *rev));
        news.map(|(name, _)| (*name).to_owned()).collect()
    }

    /// Takes note of what was read and says nothing, for as long as it is shown.
    fn pass_over(&self, shown: &BTreeMap<&str, (u64, usize)>, read: &[Doc]) {
        let (known, mut in_vain) = (self.known(), self.in_vain());
        in_vain.retain(|name, _| shown.contains_key(name.as_str()));
        let unknown = |doc: &&Doc| known.get(&doc.name).is_none_or(|known| known.rev < doc.rev);
        for doc in read.iter().filter(unknown) {
            in_vain.insert(doc.name.clone(), doc.rev);
        }
    }

    /// Whether the name of a pause was shown with a revision that could not be read just now: the only node that has it may have
    /// been silent for a moment. What is missed twice in a row is gone, or is never told, and keeps nobody up. Triggers come and
    /// go; of them the ledger knows.
    fn fell_behind(&self, shown: &BTreeMap<&str, (u64, usize)>, news: &[String]) -> bool {
        let (known, in_vain) = (self.known(), self.in_vain());
        let read = |name: &String| {
            let read = known.get(name).map(|known| known.rev);
            read.max(in_vain.get(name).copied())
        };
        let revisions = news
            .iter()
            .filter_map(|name| Some((name.clone(), shown.get(name.as_str())?.0)));
        let missed: BTreeMap<String, u64> = revisions
            .filter(|(name, rev)| intent::trigger_of(name).is_none() && read(name) < Some(*rev))
            .collect();
        let missed_before = self.0.missed.lock();
        let mut missed_before = missed_before.unwrap_or_else(PoisonError::into_inner);
        let news = missed
            .iter()
            .any(|(name, rev)| missed_before.get(name) != Some(rev));
        *missed_before = missed;
        news
    }

    /// What is behind the last name that was read is unknown here: pauses before triggers, in the order of their names.
    fn say_if_cut(&self, names: usize) {
        let cut = names >= usize::try_from(MOST_NAMES).unwrap_or(usize::MAX);
        if self.0.cut.swap(cut, Ordering::SeqCst) != cut && cut {
            tracing::error!(
                names,
                "more is asked of the fleet than is read: pauses and triggers of the jobs that come last by name are not seen; \
                 use another namespace, or fewer jobs in this one"
            );
        }
    }

    fn is_ours(&self, name: &str) -> bool {
        self.known().get(name).is_some_and(|known| known.ours)
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

    fn take<'a>(&self, docs: impl Iterator<Item = &'a Doc>, now: Timestamp) {
        let mut any = false;
        for doc in docs {
            if let Some(intent) = Intent::from_doc(doc)
                && intent.remaining(now).is_some()
            {
                any |= self.learn(doc.rev, intent, false);
            }
        }
        if any {
            self.0.news.send_modify(|news| *news += 1);
        }
    }

    /// Whether it was news.
    fn learn(&self, rev: u64, intent: Intent, ours: bool) -> bool {
        let mut known = self.known();
        let name = intent.document();
        let newer = known.get(&name).is_none_or(|known| known.rev < rev);
        if newer {
            known.insert(name, Known { rev, intent, ours });
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

    fn in_vain(&self) -> MutexGuard<'_, BTreeMap<String, u64>> {
        // As with what is known.
        self.0
            .in_vain
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        // Every change is complete before the lock is given back.
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Known ===

impl Known {
    /// Whether it is written again where it is missing. What became of a trigger is told by who knows it first hand, for as long
    /// as that is worth telling.
    fn is_to_be_kept(&self) -> bool {
        let ended = matches!(&self.intent, Intent::Trigger(trigger) if trigger.state == TriggerState::Ended);
        self.ours || !ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_of_which_only_the_name_was_read_is_looked_for_again() {
        let intents = Intents::default();
        let news = [
            intent::pause_document("report"),
            intent::trigger_document("report", "1"),
        ];
        let [pause, trigger] = news.each_ref().map(String::as_str);
        let shown = BTreeMap::from([(pause, (3, 2)), (trigger, (1, 2))]);
        assert!(intents.fell_behind(&shown, &news), "its body is unknown");
        assert!(!intents.fell_behind(&shown, &news), "it is never told");
        let newer = BTreeMap::from([(pause, (4, 2))]);
        assert!(intents.fell_behind(&newer, &news), "another revision");
        // Read, and of another version.
        intents.in_vain().insert(pause.to_owned(), 5);
        let read = BTreeMap::from([(pause, (5, 2))]);
        assert!(!intents.fell_behind(&read, &news));
    }
}
