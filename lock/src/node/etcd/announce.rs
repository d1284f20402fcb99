//! Release announcements: a watch of one key, begun again as often as it breaks. While it stands, nothing is missed.

use std::{sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot};
use tracing::{debug, warn};

use super::{
    error::Trouble,
    shared::Shared,
    wire::{Done, Header, Range, Step, Txn, Watch, WatchFrom, Watched},
};
use crate::{
    backoff::Backoff,
    node::{
        Announcement, Announcements, NodeError,
        announce::{Told, read},
    },
};

/// Announcements that wait for a slow listener; what comes on top is dropped, and polling finds it.
const QUEUE: usize = 1024;
/// Not in a hurry, as polling finds what is not announced.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// A member that tells nothing for so long is asked whether it still lives.
const SILENCE: Duration = Duration::from_secs(5);
/// So often in a row a memory may seem to be one from before.
const LAGS: u32 = 3;
/// No line of a watch is longer.
const LONGEST: usize = 64 << 20;

/// What is needed to listen, and to listen again.
pub(super) struct Listener {
    shared: Arc<Shared>,
    /// The revision after the last one that was heard of; 0 before the first.
    next: i64,
    /// The cluster that is listened to.
    cluster: u64,
    /// How often a watch has begun.
    created: u64,
    /// How often in a row it was to begin in a memory that is not as far.
    lagged: u32,
}

// === impl Listener ===

impl Listener {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            next: 0,
            cluster: 0,
            created: 0,
            lagged: 0,
        }
    }

    /// Starts listening; returns when it does, or after the node's time limit, still trying.
    pub(super) async fn start(self) -> Option<Announcements> {
        let (announce, announcements) = mpsc::channel(QUEUE);
        let (ready, is_ready) = oneshot::channel();
        let (clock, spawn) = (self.shared.clock.clone(), self.shared.spawn.clone());
        let limit = self.shared.settings.node_timeout;
        spawn.spawn(self.listen(announce, ready));
        // Not listening yet costs only latency.
        _ = clock.timeout(limit, is_ready).await;
        Some(announcements)
    }

    async fn listen(mut self, announce: mpsc::Sender<Announcement>, ready: oneshot::Sender<()>) {
        let shared = Arc::clone(&self.shared);
        let mut ready = Some(ready);
        let mut member = shared.client.member();
        let mut pauses = Backoff::new(PAUSES.0, PAUSES.1);
        let mut told = Told::default();
        loop {
            let was = self.created;
            let hearing = self.hear(member, &announce, &mut ready);
            tokio::select! {
                () = announce.closed() => return,
                left = hearing => match left {
                    Ok(()) => {}
                    Err(why) => {
                        let (at, cause) = (shared.client.name_of(member), why.cause());
                        match told.is_news(&why) {
                            true => warn!(
                                node = %shared.name, member = at, cause, %why,
                                "no announcements: releases are found by looking"
                            ),
                            false => debug!(
                                node = %shared.name, member = at, cause, %why, "no announcements"
                            ),
                        }
                        // Another one may tell more.
                        member = (member + 1) % shared.client.members();
                    }
                },
            }
            if self.created > was {
                pauses.reset();
                told.heard();
            }
            tokio::select! {
                () = announce.closed() => return,
                () = shared.clock.sleep(pauses.next(&shared.chance)) => {}
            }
        }
    }

    /// Listens to one member until the stream breaks.
    async fn hear(
        &mut self,
        member: usize,
        announce: &mpsc::Sender<Announcement>,
        ready: &mut Option<oneshot::Sender<()>>,
    ) -> Result<(), NodeError> {
        let shared = Arc::clone(&self.shared);
        let watch = Watch {
            create_request: WatchFrom {
                key: shared.keys.news(),
                start_revision: self.next,
            },
        };
        let limit = shared.patience();
        let opened = shared.client.open(member, "/v3/watch", &watch, limit).await;
        let mut stream = opened.map_err(Trouble::error)?;
        let mut text = Vec::new();
        loop {
            let Ok(more) = shared.clock.timeout(SILENCE, stream.chunk()).await else {
                self.is_alive(member, limit).await?;
                continue;
            };
            let more = more.map_err(|why| Trouble::of(&why.without_url(), limit).error())?;
            let Some(more) = more else { return Ok(()) };
            text.extend_from_slice(&more);
            if text.len() > LONGEST {
                return Err(NodeError::Protocol("a line without an end".to_owned()));
            }
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                self.heard(&line, announce, ready)?;
            }
        }
    }

    /// A line of the stream.
    fn heard(
        &mut self,
        line: &[u8],
        announce: &mpsc::Sender<Announcement>,
        ready: &mut Option<oneshot::Sender<()>>,
    ) -> Result<(), NodeError> {
        let watched: Watched = serde_json::from_slice(line)
            .map_err(|why| NodeError::Protocol(format!("no line of a watch: {why}")))?;
        let Some(result) = watched.result else {
            let said = watched.error.map(|error| error.to_string());
            return Err(NodeError::Unfit(said.unwrap_or_default()));
        };
        if result.canceled {
            // What it was to go on from is not there any more.
            self.next = 0;
            return Err(NodeError::Unfit(format!(
                "the watch was ended: {}",
                result.cancel_reason
            )));
        }
        if result.created {
            let Header {
                cluster_id,
                revision,
                ..
            } = result.header;
            // Of another memory, or of one from before: it would wait for a revision that is far away.
            let goes_on = self.next > 0;
            if goes_on && (cluster_id != self.cluster || revision.saturating_add(1) < self.next) {
                // A member may also be behind by a moment: then the next one is not.
                self.lagged += 1;
                if self.lagged > LAGS {
                    self.next = 0;
                    _ = announce.try_send(Announcement::gap());
                }
                return Err(NodeError::Unfit("the memory is another one".to_owned()));
            }
            self.lagged = 0;
            // What it goes on with is still to come.
            if !goes_on {
                self.next = revision.saturating_add(1);
            }
            self.cluster = cluster_id;
            self.created += 1;
            // Late, or again and not from where it was: what came before was not heard.
            let in_time = ready.take().is_some_and(|ready| ready.send(()).is_ok());
            if !in_time && !goes_on {
                _ = announce.try_send(Announcement::gap());
            }
        }
        for event in result.events {
            let after = event.kv.mod_revision.saturating_add(1);
            self.next = self.next.max(after);
            // A full queue drops it: polling is the truth.
            read(&String::from_utf8_lossy(&event.kv.value.0))
                .into_iter()
                .for_each(|news| _ = announce.try_send(news));
        }
        Ok(())
    }

    /// Asks a member that has told nothing for a while.
    async fn is_alive(&self, member: usize, limit: Duration) -> Result<(), NodeError> {
        let shared = &self.shared;
        let anything = Txn {
            success: vec![Step::Range(Range {
                key: shared.keys.news(),
                ..Range::default()
            })],
            ..Txn::default()
        };
        let asked = shared
            .client
            .post_to(member, "/v3/kv/txn", &anything, limit);
        let _: Done = asked.await.map_err(Trouble::error)?;
        Ok(())
    }
}
