//! Waiting for the announcement of a release.

use tokio::sync::broadcast::{Receiver, error::RecvError};

use crate::node::Announcement;

/// The next release that `wakes` the caller; a closed or lagging stream never completes early.
pub(super) async fn next_release(
    releases: &mut Receiver<Announcement>,
    wakes: impl Fn(&Announcement) -> bool,
) -> Announcement {
    loop {
        match releases.recv().await {
            Ok(news) if wakes(&news) => return news,
            Ok(_) | Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Completes when a release of `key` is announced: that of `owner`, or any when no owner is named.
///
/// Name the owner wherever an attempt follows. A lost attempt is undone, which is announced as well: a client that
/// listens to all owners would be woken by its own.
pub(crate) async fn released(
    releases: &mut Receiver<Announcement>,
    key: &str,
    owner: Option<&str>,
) {
    let wakes =
        |news: &Announcement| news.key == key && owner.is_none_or(|owner| news.owner == owner);
    next_release(releases, wakes).await;
}
