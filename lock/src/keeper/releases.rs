//! Announced releases, for the waiters of a process for that lock.
//!
//! A thousand candidates of one process wait for a thousand locks, and each of them is woken by the release of its own alone: what
//! a release costs does not grow with the locks that are waited for.
//!
//! # Invariants
//! - W8 A release is told to all that listen to its key and to no others, from the moment at which they began to listen, in the
//!   order in which it came; of a listener that takes none the newest [`MOST_KEPT`] are kept.
//!   (w8_a_release_is_told_to_those_who_listen_to_its_key)

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::node::Announcement;

/// What is kept of a listener that is busy: an announcement promises nothing, polling is the truth.
const MOST_KEPT: usize = 64;

/// Which waiters listen to which locks. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct ReleaseListeners(Arc<Mutex<HashMap<String, Vec<Arc<Mailbox>>>>>);

#[derive(Default)]
struct Mailbox {
    news: Mutex<VecDeque<Announcement>>,
    bell: Notify,
}

/// Announced releases of some locks, from when it was made until it is dropped.
#[doc(hidden)] // for the worker
pub struct Releases {
    listeners: ReleaseListeners,
    keys: Vec<String>,
    mailbox: Arc<Mailbox>,
}

// === impl ReleaseListeners ===

impl ReleaseListeners {
    pub(crate) fn listen(&self, keys: Vec<String>) -> Releases {
        let mailbox = Arc::<Mailbox>::default();
        let mut all = self.all();
        for key in &keys {
            all.entry(key.clone()).or_default().push(mailbox.clone());
        }
        drop(all);
        Releases {
            listeners: self.clone(),
            keys,
            mailbox,
        }
    }

    /// Tells the waiters that listen to its key.
    pub(crate) fn tell(&self, news: &Announcement) {
        let all = self.all();
        for mailbox in all.get(&news.key).into_iter().flatten() {
            mailbox.put(news.clone());
        }
    }

    /// Some releases of locks that are `concerned` may not have been heard: those who [wait in a line](Releases::next_or_gap) for
    /// them look.
    pub(crate) fn tell_gap(&self, concerned: impl Fn(&str) -> bool) {
        for (_, mailboxes) in self.all().iter().filter(|(key, _)| concerned(key)) {
            for mailbox in mailboxes {
                mailbox.put(Announcement::gap());
            }
        }
    }

    /// Whether any waiter listens to the key.
    pub(crate) fn any(&self, key: &str) -> bool {
        self.all().contains_key(key)
    }

    fn forget(&self, keys: &[String], mailbox: &Arc<Mailbox>) {
        let mut all = self.all();
        for key in keys {
            let Some(listeners) = all.get_mut(key) else {
                continue;
            };
            listeners.retain(|other| !Arc::ptr_eq(other, mailbox));
            if listeners.is_empty() {
                all.remove(key);
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Vec<Arc<Mailbox>>>> {
        // Every change is complete before the lock is given back.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Mailbox ===

impl Mailbox {
    fn put(&self, news: Announcement) {
        let mut kept = self.kept();
        if kept.len() >= MOST_KEPT {
            kept.pop_front();
        }
        kept.push_back(news);
        drop(kept);
        self.bell.notify_one();
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<Announcement>> {
        // Every change is complete before the lock is given back.
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Releases ===

impl Releases {
    /// The next one. Cancel-safe.
    pub(crate) async fn recv(&mut self) -> Announcement {
        loop {
            if let Some(news) = self.mailbox.kept().pop_front() {
                return news;
            }
            self.mailbox.bell.notified().await;
        }
    }

    /// The next one that `wakes` the caller.
    pub(crate) async fn next(&mut self, wakes: impl Fn(&Announcement) -> bool) -> Announcement {
        loop {
            let news = self.recv().await;
            if wakes(&news) {
                return news;
            }
        }
    }

    /// The next release of `key`; nothing where some may not have been heard, of which it may be one. Cancel-safe.
    pub(crate) async fn next_or_gap(&mut self, key: &str) -> Option<Announcement> {
        let news = self.next(|news| news.key == key || news.is_gap());
        Some(news.await).filter(|news| !news.is_gap())
    }

    /// Completes when a release of `key` is announced: that of `owner`, or any when no owner is named.
    ///
    /// Name the owner wherever an attempt follows. A lost attempt is undone, which is announced as well: a client that
    /// listens to all owners would be woken by its own.
    pub(crate) async fn released(&mut self, key: &str, owner: Option<&str>) {
        let wakes =
            |news: &Announcement| news.key == key && owner.is_none_or(|owner| news.owner == owner);
        self.next(wakes).await;
    }
}

impl Drop for Releases {
    fn drop(&mut self) {
        self.listeners.forget(&self.keys, &self.mailbox);
    }
}

impl fmt::Debug for Releases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Releases")
            .field("keys", &self.keys)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn news(key: &str, owner: usize) -> Announcement {
        Announcement {
            key: key.to_owned(),
            owner: owner.to_string(),
            next: None,
        }
    }

    fn told(releases: &mut Releases) -> Vec<String> {
        let mut told = Vec::new();
        while let Some(news) = releases.recv().now_or_never() {
            told.push(format!("{} {}", news.key, news.owner));
        }
        told
    }

    #[test]
    fn w8_a_release_is_told_to_those_who_listen_to_its_key() {
        let all = ReleaseListeners::default();
        all.tell(&news("a", 0));
        let mut one = all.listen(vec!["a".to_owned()]);
        let mut both = all.listen(vec!["a".to_owned(), "b".to_owned()]);
        for (key, owner) in [("a", 1), ("b", 2), ("c", 3), ("a", 4)] {
            all.tell(&news(key, owner));
        }
        assert_eq!(told(&mut one), ["a 1", "a 4"]);
        assert_eq!(told(&mut both), ["a 1", "b 2", "a 4"]);

        drop(one);
        assert!(all.any("a"), "another one listens to it");
        drop(both);
        assert!(!all.any("a") && all.all().is_empty());
    }

    #[test]
    fn a_gap_is_told_to_those_who_wait_in_a_line_and_to_no_others() {
        let all = ReleaseListeners::default();
        let mut in_line = all.listen(vec!["a".to_owned()]);
        let mut other = all.listen(vec!["b".to_owned()]);
        let mut of_another_node = all.listen(vec!["c".to_owned()]);
        all.tell_gap(|key| key != "c");
        all.tell(&news("a", 1));
        assert_eq!(in_line.next_or_gap("a").now_or_never(), Some(None));
        let released = in_line.next_or_gap("a").now_or_never();
        assert_eq!(released, Some(Some(news("a", 1))));
        assert_eq!(in_line.next_or_gap("a").now_or_never(), None);
        assert_eq!(other.released("b", None).now_or_never(), None);
        assert_eq!(of_another_node.next_or_gap("c").now_or_never(), None);
    }

    #[test]
    fn of_a_listener_that_takes_none_the_newest_are_kept() {
        let all = ReleaseListeners::default();
        let mut one = all.listen(vec!["a".to_owned()]);
        for owner in 0..1_000 {
            all.tell(&news("a", owner));
        }
        let told = told(&mut one);
        assert_eq!(told.len(), MOST_KEPT);
        assert_eq!(told.last().map(String::as_str), Some("a 999"));
    }
}
