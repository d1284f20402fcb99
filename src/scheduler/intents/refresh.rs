//! Reads what is asked of the fleet from all nodes, and writes it again where it is missing.
//!
//! Each look lists names and revisions; a document is read when its revision is news. So what waits costs little, however
//! much it says, and a look is bounded: see [`crate::intent`].
//!
//! # Invariants
//! - A document is read once per revision.   (what_waits_is_read_once)
//! - Every pause and trigger is read, however many there are.   (many_pauses_hide_neither_pauses_nor_triggers)
//! # When things fail
//! Nodes that do not answer are asked again a second later; what is known stands until then.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{PoisonError, atomic::Ordering},
    time::Duration,
};

use jiff::Timestamp;

use super::{super::Context, InVain, Intents, KnownIntent};
use crate::{
    clock::Clock,
    intent::{self, Intent, Outstanding, TriggerState},
    lock::{LockError, Locks, MOST_NAMES},
    node::Doc,
};

/// Documents written again, or removed, in one look: after a node has lost its memory there may be many.
const MOST_WRITES: usize = 64;

impl Intents {
    /// Reads and writes until the task is dropped.
    pub(crate) async fn follow(self, ctx: Context) {
        let mut told = 0;
        loop {
            let _ = self.refresh(&ctx.locks).await;
            let seen = self.seen();
            if std::mem::replace(&mut told, seen) != seen {
                // The other replicas, and the client that asked, read in the presence documents which replicas know.
                ctx.local_status.told();
            }
            tokio::select! {
                biased;
                () = self.0.said.notified() => {}
                () = ctx.clock.sleep_until(ctx.beat(self.pace())) => {}
            }
        }
    }

    /// Reads what the nodes show and writes what they lack; says how many answered.
    pub(crate) async fn refresh(&self, locks: &Locks) -> Result<usize, LockError> {
        let read = locks.doc_names(intent::DIRECTORY).await?;
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
        self.pass_over(&shown, &docs, now);
        if self.fell_behind(&shown, &news) {
            // What is known is older than what a majority has told of: a leader looks again before it decides.
            return Err(LockError::TooSlow);
        }
        let mut writes = 0;
        let mut living = self.living(now);
        // A client waits for what was said here.
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
            if read.max(in_vain.get(name).map(|it| it.rev)) >= Some(rev) {
                return false;
            }
            // The end of a trigger that was never known is no news.
            intent::trigger_of(name).is_none() || read.is_some() || follow.contains(name)
        };
        let shown = shown.iter();
        let news = shown.filter(|(name, (rev, _))| wanted(name, *rev));
        news.map(|(name, _)| (*name).to_owned()).collect()
    }

    /// Takes note of what was read and says nothing, for as long as it is shown. What was over by a clock that has gone back since is
    /// read again.
    fn pass_over(&self, shown: &BTreeMap<&str, (u64, usize)>, read: &[Doc], now: Timestamp) {
        let (known, mut in_vain) = (self.known(), self.in_vain());
        in_vain.retain(|name, it| {
            shown.contains_key(name.as_str()) && it.over_at.is_none_or(|at| at <= now)
        });
        let unknown = |doc: &&Doc| known.get(&doc.name).is_none_or(|known| known.rev < doc.rev);
        for doc in read.iter().filter(unknown) {
            let over_at = Intent::from_doc(doc).map(|_| now);
            let rev = doc.rev;
            in_vain.insert(doc.name.clone(), InVain { rev, over_at });
        }
    }

    /// Whether the name of a pause was shown with a revision that could not be read just now: the only node that has it may have
    /// been silent for a moment. What is missed twice in a row is gone, or is never told, and is not waited for. Triggers come and
    /// go; of them the ledger knows.
    fn fell_behind(&self, shown: &BTreeMap<&str, (u64, usize)>, news: &[String]) -> bool {
        let (known, in_vain) = (self.known(), self.in_vain());
        let read = |name: &String| {
            let read = known.get(name).map(|known| known.rev);
            read.max(in_vain.get(name).map(|it| it.rev))
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
        let cut = names >= MOST_NAMES;
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

    /// Everything that is still asked for, and for how long; what is over is forgotten.
    fn living(&self, now: Timestamp) -> Vec<(KnownIntent, Duration)> {
        let mut known = self.known();
        known.retain(|_, known| known.intent.remaining(now).is_some());
        let living = known.values().cloned();
        living
            .filter_map(|known| Some((known.intent.remaining(now)?, known)))
            .map(|(left, known)| (known, left))
            .collect()
    }
}

// === impl KnownIntent ===

impl KnownIntent {
    /// Whether it is written again where it is missing. What became of a trigger is told by the replica that knows it first hand, for as long
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
        let unread = InVain {
            rev: 5,
            over_at: None,
        };
        intents.in_vain().insert(pause.to_owned(), unread);
        let read = BTreeMap::from([(pause, (5, 2))]);
        assert!(!intents.fell_behind(&read, &news));
    }

    #[test]
    fn what_was_over_by_a_clock_that_has_gone_back_is_read_again() {
        let intents = Intents::default();
        let at = |hour: i64| Timestamp::from_second(hour * 3600).unwrap();
        let trigger = Intent::Trigger(intent::Trigger {
            id: "t-1".to_owned(),
            job: "report".to_owned(),
            asked: at(1000),
            ..intent::Trigger::default()
        });
        let doc = trigger.to_doc(3);
        let shown = BTreeMap::from([(doc.name.as_str(), (3, 2))]);
        let follow = BTreeSet::from([doc.name.as_str()]);
        let docs = std::slice::from_ref(&doc);
        assert_eq!(intents.news_of(&shown, &follow).len(), 1);
        // Days ahead.
        intents.take(docs.iter(), at(1100));
        intents.pass_over(&shown, docs, at(1100));
        assert!(intents.news_of(&shown, &follow).is_empty());
        // Once it is right again.
        intents.pass_over(&shown, &[], at(1000));
        assert_eq!(intents.news_of(&shown, &follow).len(), 1);
        intents.take(docs.iter(), at(1000));
        assert_eq!(intents.triggers("report").len(), 1);
    }
}
