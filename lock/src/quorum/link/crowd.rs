//! Senders that are answered together and ask again together: what they ask leaves in one call.

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{AtomicUsize, Ordering},
};

use super::{Inner, Link};

/// The links of one process' callers: while many senders of one are woken, none sends.
#[derive(Default)]
pub(super) struct Crowd {
    gathering: AtomicUsize,
    links: OnceLock<Vec<Weak<Inner>>>,
}

/// Senders are being woken, until this is dropped.
pub(super) struct Gathering<'a>(&'a Crowd);

// === impl Crowd ===

impl Crowd {
    pub(super) fn gathers(&self, links: &[Link]) {
        let links = links.iter().map(|link| Arc::downgrade(&link.0)).collect();
        // Set once, where the links are made.
        let _ = self.links.set(links);
    }

    pub(super) fn gathers_now(&self) -> bool {
        self.gathering.load(Ordering::SeqCst) > 0
    }

    pub(super) fn gather(&self) -> Gathering<'_> {
        self.gathering.fetch_add(1, Ordering::SeqCst);
        Gathering(self)
    }
}

impl Drop for Gathering<'_> {
    fn drop(&mut self) {
        if self.0.gathering.fetch_sub(1, Ordering::SeqCst) == 1 {
            let links = self.0.links.get().into_iter().flatten();
            for link in links.filter_map(Weak::upgrade) {
                let link = Link(link);
                if !link.lane().queue.is_empty() {
                    link.0.bell.notify_one();
                }
            }
        }
    }
}
