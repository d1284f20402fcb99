//! The other servers of an address, while one of them is used: its connections would not tell that another one was promoted.
//!
//! They are asked beside the calls, which do not wait for them. Where that has not happened of late, because the process was stopped or
//! the runtime of this task has ended, the connections are given up: with new ones all servers are asked ([`Used::is_stale`]).
//!
//! [`Used::is_stale`]: super::history::Used::is_stale

use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join_all};
use tokio::sync::oneshot;
use tokio_postgres::Client;
use tracing::{debug, warn};

use super::{
    address::{PgAddress, Server},
    connect::{self, NoConnection},
    history::{History, NOTICED, ServerId},
};
use crate::{
    clock::{Clock, Moment},
    spawn::Spawn,
};

/// From the beginning of a round to that of the next.
const EVERY: Duration = Duration::from_millis(1500);
/// A round takes no longer; a connection that is being made by then is waited for in the next one.
const LIMIT: Duration = Duration::from_millis(1500);
/// A connection takes no longer.
const CONNECTING: Duration = Duration::from_secs(5);
/// A server that refuses this program writes that into its log, and is asked less often.
const REFUSED: Duration = Duration::from_secs(15);
// A connection that is dead costs a round.
const _: () = assert!(EVERY.as_millis() * 2 + LIMIT.as_millis() < NOTICED.as_millis());

/// Begins to ask the other servers of this address, for as long as there are copies of it; does nothing where that is done, or where
/// there are no others.
pub fn begin(address: &PgAddress, clock: &Clock, spawn: &Spawn) {
    if let Some(turn) = address.watched() {
        let (address, clock, by) = (address.clone(), clock.clone(), spawn.clone());
        spawn.spawn(async move {
            // Ends with its runtime at the latest. Whoever connects after that begins again.
            let _turn = turn;
            rounds(&address, &clock, &by).await;
        });
    }
}

async fn rounds(address: &PgAddress, clock: &Clock, spawn: &Spawn) {
    let (mut servers, mut beside) = (Vec::new(), Vec::new());
    let mut began = Moment::ZERO;
    while address.is_used_elsewhere() {
        clock.sleep_until(began + EVERY).await;
        began = clock.now();
        // Where the password's file cannot be read now, connections that live are asked all the same.
        if let Ok(read) = address.servers() {
            servers = read;
        }
        beside.resize_with(servers.len(), Beside::default);
        let used = address.used().latest().map(|(_, server)| server.place);
        // What is used has connections of its own.
        if let Some(used) = used.and_then(|place| beside.get_mut(place)) {
            *used = Beside::default();
        }
        let others = servers.iter().zip(&mut beside).enumerate();
        let others = others.filter(|(place, _)| Some(*place) != used);
        let asked = others.map(async |(place, (server, beside))| {
            let told = clock.timeout(LIMIT, beside.history(server, (address, clock, spawn)));
            let Ok(told) = told.await else {
                beside.is_silent(server);
                return;
            };
            let server = ServerId {
                place,
                name: server.name.clone(),
            };
            if let Some(history) = told
                && address.used().met(&history, &server)
            {
                warn!(
                    server = server.name,
                    timeline = history.timeline,
                    "another server was promoted: the one that was used is left"
                );
            }
        });
        join_all(asked).await;
        address.used().asked(began);
    }
}

// === one of them ===

type Connection = (Client, oneshot::Sender<()>);
type Connecting = BoxFuture<'static, Result<Connection, NoConnection>>;

#[derive(Default)]
enum Way {
    #[default]
    None,
    Connecting(Connecting),
    Connected(Connection),
}

/// The way to a server that is not used.
#[derive(Default)]
struct Beside {
    way: Way,
    not_before: Option<Moment>,
    /// That it cannot be asked was said.
    said: bool,
}

impl Beside {
    /// How far the server has come; nothing of a standby, and of one that does not say. May be dropped at any point.
    async fn history(
        &mut self,
        server: &Server,
        (address, clock, spawn): (&PgAddress, &Clock, &Spawn),
    ) -> Option<History> {
        let mut is_new = false;
        loop {
            match &mut self.way {
                Way::None => {
                    if is_new || self.not_before.is_some_and(|at| clock.now() < at) {
                        return None;
                    }
                    is_new = true;
                    let (server, address, spawn) = (server.clone(), address.clone(), spawn.clone());
                    let clock = clock.clone();
                    let connecting = async move {
                        let open = connect::open(&server, &server.config, &address, &spawn, None);
                        let silent = || NoConnection::Setup("no connection in time".to_owned());
                        let opened = clock.timeout(CONNECTING, open).await;
                        opened.unwrap_or_else(|_| Err(silent()))
                    };
                    self.way = Way::Connecting(connecting.boxed());
                }
                Way::Connecting(connecting) => {
                    self.way = match connecting.await {
                        Ok(connection) => Way::Connected(connection),
                        Err(why) => {
                            self.is_refused(server, &why, clock);
                            Way::None
                        }
                    };
                }
                Way::Connected((client, _)) => match History::of(client).await {
                    Ok(history) => {
                        (self.not_before, self.said) = (None, false);
                        return history;
                    }
                    // It broke: once more over a new one.
                    Err(why) => {
                        debug!(server = server.name, %why, "another server did not say how far it has come");
                        self.way = Way::None;
                    }
                },
            }
        }
    }

    /// It was not answered in time.
    fn is_silent(&mut self, server: &Server) {
        if matches!(self.way, Way::Connected(_)) {
            debug!(server = server.name, "another server is silent");
            self.way = Way::None;
        }
    }

    fn is_refused(&mut self, server: &Server, why: &NoConnection, clock: &Clock) {
        let code = match why {
            NoConnection::Server(why) => why.code().map(|state| state.code().to_owned()),
            NoConnection::Setup(_) => None,
        };
        // Of one that is down or starts there is nothing to say.
        let Some(code) = code.filter(|code| !code.starts_with("57")) else {
            return;
        };
        self.not_before = Some(clock.now() + REFUSED);
        if !std::mem::replace(&mut self.said, true) {
            warn!(
                server = server.name,
                code,
                "another server of the address does not let this program in: that it was promoted would not be noticed"
            );
        }
    }
}
