//! Senders that are answered together and ask again together: what they ask leaves in one call.

use std::sync::{
    Arc, OnceLock, Weak,
    atomic::{AtomicUsize, Ordering},
};

use super::{Inner, Link};

/// The links of one process' callers: while many senders of one are woken, none sends.
#[derive(Default)]
pub(super) struct CallerLinks {
    waking: AtomicUsize,
    links: OnceLock<Vec<Weak<Inner>>>,
}

/// Senders are being woken, until this is dropped.
pub(super) struct Waking<'a>(&'a CallerLinks);

// === impl CallerLinks ===

impl CallerLinks {
    pub(super) fn are(&self, links: &[Link]) {
        let links = links.iter().map(|link| Arc::downgrade(&link.0)).collect();
        // Set once, where the links are made.
        let _ = self.links.set(links);
    }

    pub(super) fn are_waking(&self) -> bool {
        self.waking.load(Ordering::SeqCst) > 0
    }

    pub(super) fn wake(&self) -> Waking<'_> {
        self.waking.fetch_add(1, Ordering::SeqCst);
        Waking(self)
    }
}

impl Drop for Waking<'_> {
    fn drop(&mut self) {
        if self.0.waking.fetch_sub(1, Ordering::SeqCst) == 1 {
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
