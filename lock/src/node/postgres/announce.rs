//! Release announcements: a connection of their own that listens, made again as often as it breaks. Only where it leads to one
//! process of the server: behind a pooler nothing would be heard, or what others are to hear.

use std::{sync::Arc, time::Duration};

use tokio::sync::{Notify, mpsc, oneshot};
use tokio_postgres::Notification;
use tracing::{debug, info, warn};

use super::{
    connect::{self, CONNECT, NoConnection},
    error,
    history::{self, History},
    layout::quoted,
    shared::Shared,
};
use crate::{
    backoff::Backoff,
    chance::Chance,
    node::{
        Announcement, Announcements, NodeError, Refusal,
        announce::{Told, read},
    },
};

/// Announcements that wait for a slow listener; what comes on top is dropped, and polling finds it.
const QUEUE: usize = 1024;
/// Not in a hurry, as polling finds what is not announced.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// So often it is seen to it that the server was not left for a successor.
const GLANCE: Duration = Duration::from_secs(15);
/// After so many of these the connection is asked whether it still lives. Seldom, as that wakes a process of the server for each
/// program, and of a host that is gone the system tells by itself; more often than proxies end what is silent, most of them after
/// 50 s at the earliest.
const GLANCES: u32 = 3;
/// For so long its answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is needed to listen, and to listen again.
pub(super) struct Listener {
    shared: Arc<Shared>,
}

/// How a connection was left.
enum Left {
    /// It broke.
    Broken,
    /// It hears nothing.
    Deaf,
}

// === impl Listener ===

impl Listener {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Starts listening; returns when it does, or after the node's time limit, still trying. `None` where nothing can be heard.
    pub(super) async fn start(self) -> Option<Announcements> {
        let (announce, announcements) = mpsc::channel(QUEUE);
        let (ready, is_ready) = oneshot::channel();
        let (clock, spawn) = (self.shared.clock.clone(), self.shared.spawn.clone());
        let limit = self.shared.settings.node_timeout;
        spawn.spawn(self.listen(announce, ready));
        // Not listening yet costs only latency; a sender that has gone will never listen.
        match clock.timeout(limit, is_ready).await {
            Ok(Err(_)) => None,
            Ok(Ok(())) | Err(_) => Some(announcements),
        }
    }

    async fn listen(self, announce: mpsc::Sender<Announcement>, ready: oneshot::Sender<()>) {
        let (clock, name) = (self.shared.clock.clone(), self.shared.name.clone());
        let mut ready = Some(ready);
        let chance = Chance::system();
        let mut pauses = Backoff::new(PAUSES.0, PAUSES.1);
        let mut told = Told::default();
        let key = match &self.shared.settings.listen {
            Some(_) => "locks.postgres.listen_url",
            None => "locks.postgres.url",
        };
        loop {
            match self.hear(&announce, &mut ready).await {
                Ok(Left::Deaf) => {
                    info!(
                        node = %name,
                        "a pooler stands before the database: releases are found by looking; give locks.postgres.listen_url the \
                         address of the server itself to hear of them at once"
                    );
                    return;
                }
                Ok(Left::Broken) => {
                    pauses.reset();
                    told.heard();
                }
                Err(why) if told.is_news(&why) => {
                    // The remedy names the address for calls.
                    let said = why.to_string().replace("locks.postgres.url", key);
                    warn!(
                        node = %name, key, cause = why.cause(), why = said,
                        "no announcements: releases are found by looking"
                    );
                }
                Err(why) => {
                    debug!(node = %name, cause = why.cause(), %why, "no announcements");
                }
            }
            tokio::select! {
                () = announce.closed() => return,
                () = clock.sleep(pauses.next(&chance)) => {}
            }
        }
    }

    /// Listens on one connection until it breaks.
    async fn hear(
        &self,
        announce: &mpsc::Sender<Announcement>,
        ready: &mut Option<oneshot::Sender<()>>,
    ) -> Result<Left, NodeError> {
        let Shared {
            settings,
            clock,
            spawn,
            ..
        } = &*self.shared;
        let address = settings.listen.as_ref().unwrap_or(&settings.address);
        let servers = address.servers().map_err(NodeError::Auth)?;
        let is_one_of_several = servers.len() > 1;
        let meeting = servers.iter().map(async |server| {
            // Of this connection alone: a server that was left before it has nothing to say of this one.
            let broken = Arc::new(Notify::new());
            let heard: connect::Heard = {
                let (announce, broken) = (announce.clone(), Arc::clone(&broken));
                Arc::new(move |news: Option<&Notification>| match news {
                    // A full queue drops it: polling is the truth.
                    Some(news) => read(news.payload())
                        .into_iter()
                        .for_each(|news| _ = announce.try_send(news)),
                    None => broken.notify_one(),
                })
            };
            let greeted = connect::greet(server, address, spawn, Some(heard)).await;
            let greeted = greeted.map_err(|why| match why {
                NoConnection::Setup(why) => NodeError::Tls(why),
                NoConnection::Server(why) => error::no_connection(&why),
            })?;
            let history = match is_one_of_several {
                true => History::of(&greeted.client).await,
                false => Ok(None),
            };
            let history = history.map_err(|why| error::of(&why))?;
            Ok::<_, NodeError>((greeted, broken, history))
        });
        // That of calls is the one that is kept up to date.
        let used = settings.address.used();
        let takes_part = |(_, _, history): &(_, _, Option<History>)| history.is_some();
        let met = connect::all(meeting, clock, CONNECT, takes_part).await;
        let histories = history::of_all(&met, |(_, _, history)| history.as_ref());
        let is_outlived = |history: &History| {
            history.has_successor_among(histories.iter()) || used.has_outlived(history)
        };
        let mut failed = NodeError::Unreachable("it names no server".to_owned());
        let mut chosen = None;
        for met in met.into_iter().flatten() {
            let (greeted, broken, history) = match met {
                Ok(met) => met,
                Err(why) => {
                    failed = why;
                    continue;
                }
            };
            if !greeted.is_direct {
                return Ok(Left::Deaf);
            }
            // Nothing is told there any more.
            if let Some(history) = history.as_ref().filter(|history| is_outlived(history)) {
                failed = NodeError::Refused {
                    refusal: Refusal::ReadOnly,
                    said: history.outlived(used),
                };
                continue;
            }
            // A standby hears nothing, and refuses to listen.
            let listen = format!("LISTEN {}", quoted(&self.shared.channel()));
            match greeted.client.batch_execute(&listen).await {
                Ok(()) => chosen = Some((greeted, broken, history)),
                Err(why) => {
                    failed = error::of(&why);
                    continue;
                }
            }
            break;
        }
        let Some((greeted, broken, history)) = chosen else {
            return Err(failed);
        };
        // Late, or again: what came before was not heard.
        let in_time = ready.take().is_some_and(|ready| ready.send(()).is_ok());
        if !in_time {
            _ = announce.try_send(Announcement::gap());
        }
        let mut glances = 0;
        loop {
            tokio::select! {
                () = announce.closed() => return Ok(Left::Broken),
                () = broken.notified() => return Ok(Left::Broken),
                () = clock.sleep(GLANCE) => {
                    if history.as_ref().is_some_and(|history| used.has_outlived(history)) {
                        return Ok(Left::Broken);
                    }
                    glances = (glances + 1) % GLANCES;
                    if glances != 0 {
                        continue;
                    }
                    let alive = greeted.client.batch_execute("");
                    if !matches!(clock.timeout(PATIENCE, alive).await, Ok(Ok(()))) {
                        return Ok(Left::Broken);
                    }
                }
            }
        }
    }
}
