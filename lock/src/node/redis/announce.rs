//! Release announcements: a connection of their own, made again as often as it breaks.

use std::{sync::Arc, time::Duration};

use deadpool_redis::redis::{
    Msg, RedisResult,
    aio::{PubSubSink, PubSubStream},
};
use futures_util::StreamExt;
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, warn};

use super::{
    link::{FIRST_PAUSE, LASTING},
    route::{Reach, Route},
    trouble::{self, Scrub},
};
use crate::{
    backoff::Backoff,
    chance::Chance,
    clock::Clock,
    node::{Announcement, Announcements, NodeError},
    spawn::Spawn,
};

/// Announcements that wait for a slow listener; what comes on top is dropped, and polling finds it.
const QUEUE: usize = 1024;

/// So often it is asked whether a subscription still lives, and leads to the server in charge: a vanished host says nothing.
const SILENCE: Duration = Duration::from_secs(5);

/// Not in a hurry, as polling finds what is not announced.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// What is needed to listen, and to listen again.
pub(super) struct Listener {
    pub(super) name: String,
    pub(super) route: Route,
    pub(super) channel: String,
    pub(super) limit: Duration,
    pub(super) scrub: Scrub,
    pub(super) clock: Clock,
    pub(super) spawn: Spawn,
}

// === impl Listener ===

impl Listener {
    /// Starts listening; returns when subscribed, or after the node's time limit, still trying.
    pub(super) async fn start(self) -> Announcements {
        let (announce, announcements) = mpsc::channel(QUEUE);
        let (subscribed, ready) = oneshot::channel();
        let (clock, limit, spawn) = (self.clock.clone(), self.limit, self.spawn.clone());
        spawn.spawn(self.listen(announce, subscribed));
        // Not being subscribed yet costs only latency.
        _ = clock.timeout(limit, ready).await;
        announcements
    }

    async fn listen(self, announce: mpsc::Sender<Announcement>, subscribed: oneshot::Sender<()>) {
        let mut subscribed = Some(subscribed);
        let chance = Chance::system();
        let mut pauses = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        let mut told = "";
        loop {
            let began = self.clock.now();
            match self.subscribe().await {
                Ok((reach, sink, stream)) => {
                    // Late, or again: what came before was not heard. A full queue drops it, as any other.
                    let in_time = |subscribed: oneshot::Sender<()>| subscribed.send(()).is_ok();
                    if !subscribed.take().is_some_and(in_time) {
                        _ = announce.try_send(Announcement::gap());
                    }
                    told = "";
                    self.forward(&reach, (sink, stream), &announce).await;
                    if self.clock.now().since(began) >= LASTING {
                        pauses.reset();
                    }
                }
                // Nothing else would show it: locks work without, only slower.
                Err(why @ NodeError::Refused { .. }) if why.cause() != told => {
                    told = why.cause();
                    warn!(node = %self.name, cause = told, %why, "no announcements");
                }
                Err(why) => {
                    debug!(node = %self.name, cause = why.cause(), %why, "no announcements")
                }
            }
            tokio::select! {
                () = announce.closed() => return,
                () = self.clock.sleep(pauses.next(&chance)) => {}
            }
        }
    }

    async fn subscribe(&self) -> Result<(Arc<Reach>, PubSubSink, PubSubStream), NodeError> {
        let reach = self.route.reach().await?;
        let subscribing = async {
            let (mut sink, stream) = reach.client.get_async_pubsub().await?.split();
            sink.subscribe(&self.channel).await?;
            RedisResult::Ok((reach.clone(), sink, stream))
        };
        match self.clock.timeout(self.patience(), subscribing).await {
            Ok(done) => done.map_err(|error| trouble::no_connection(&error, &self.scrub)),
            Err(_) => Err(NodeError::Unreachable("no subscription in time".to_owned())),
        }
    }

    /// Passes messages on until the listeners have gone or the connection is dead.
    async fn forward(
        &self,
        reach: &Arc<Reach>,
        (mut sink, mut stream): (PubSubSink, PubSubStream),
        announce: &mpsc::Sender<Announcement>,
    ) {
        let mut look_at = self.clock.now() + SILENCE;
        loop {
            tokio::select! {
                () = announce.closed() => return,
                message = stream.next() => match message {
                    // A full queue drops it: polling is the truth.
                    Some(message) => if let Some(it) = read(&message) { _ = announce.try_send(it) },
                    None => return,
                },
                () = self.clock.sleep_until(look_at) => {
                    let alive = self.clock.timeout(self.patience(), sink.ping::<()>()).await;
                    if !matches!(alive, Ok(Ok(()))) || !self.route.leads_to(reach).await {
                        return;
                    }
                    look_at = self.clock.now() + SILENCE;
                }
            }
        }
    }

    /// Listening is not in a hurry.
    fn patience(&self) -> Duration {
        self.limit.max(Duration::from_secs(1))
    }
}

/// `OWNER KEY`, or `OWNER>NEXT KEY` where a waiter queues; anything else on our channel is not for us.
fn read(message: &Msg) -> Option<Announcement> {
    let text: String = message.get_payload().ok()?;
    let (who, key) = text.split_once(' ')?;
    let (owner, next) = match who.split_once('>') {
        Some((owner, next)) => (owner, Some(next.to_owned())),
        None => (who, None),
    };
    Some(Announcement {
        key: key.to_owned(),
        owner: owner.to_owned(),
        next,
    })
}
