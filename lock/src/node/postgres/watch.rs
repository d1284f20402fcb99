//! The other servers of an address, while one of them is used: its connections would not tell that another one was promoted.
//!
//! They are asked beside the calls, which never wait for them. One that is silent is asked again in the next round, over a connection
//! that is made anew.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio_postgres::Client;
use tracing::warn;

use super::{
    address::{PgAddress, Server},
    connect,
    history::History,
};
use crate::{clock::Clock, node::guard::LATE, spawn::Spawn};

/// Between two rounds.
const EVERY: Duration = Duration::from_secs(2);
/// A server that needs longer has not answered.
const LIMIT: Duration = Duration::from_secs(2);
/// A promotion is noticed within this, where both servers are within reach.
pub const NOTICED: Duration = Duration::from_secs(4);
const _: () = assert!(EVERY.as_secs() + LIMIT.as_secs() <= NOTICED.as_secs());
const _: () = assert!(NOTICED.as_secs() < LATE.as_secs());

/// A connection to a server that is not used, and what ends it.
type Beside = (Client, oneshot::Sender<()>);

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
    let mut kept = Vec::new();
    while address.is_used_elsewhere() {
        clock.sleep(EVERY).await;
        // A password in a file that cannot be read: what uses the address says so.
        let Ok(servers) = address.servers() else {
            continue;
        };
        kept.resize_with(servers.len(), || None);
        let used = address.used().server();
        let others = servers.iter().zip(&mut kept);
        let others = others.filter(|(server, _)| Some(&server.name) != used.as_ref());
        let asked = others.map(|(server, kept)| ask(server, kept, address, clock, spawn));
        join_all(asked).await;
    }
}

/// Asks one of them, over the connection of before where it lives.
async fn ask(
    server: &Server,
    kept: &mut Option<Beside>,
    address: &PgAddress,
    clock: &Clock,
    spawn: &Spawn,
) {
    let before = kept.take();
    let asked = clock.timeout(LIMIT, async {
        let beside = match before {
            Some(beside) => beside,
            None => connect::open(server, &server.config, address, spawn, None)
                .await
                .ok()?,
        };
        let history = History::of(&beside.0).await.ok()?;
        Some((beside, history))
    });
    let Ok(Some((beside, history))) = asked.await else {
        return;
    };
    *kept = Some(beside);
    if let Some(history) = history
        && address.used().note(&history, &server.name)
    {
        warn!(
            server = server.name,
            timeline = history.timeline,
            "another server was promoted: the one that was used is left"
        );
    }
}
