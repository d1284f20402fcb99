//! Connections: to the first server of an address that takes writes, with what is known of the way there.

use std::{future::poll_fn, sync::Arc, time::Duration};

use futures_util::{
    future::join3,
    stream::{FuturesUnordered, StreamExt},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::oneshot,
};
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Error, NoTls, Notification};

use super::{
    address::{PgAddress, Server},
    error, tls,
};
use crate::{
    chance::Chance,
    clock::{Clock, Moment},
    spawn::Spawn,
};

/// A setting of the connection's own.
const SETTING: &str = "watchkeeper.session";
/// Takes it back to what it was at first.
const RESET: &str = "BEGIN; RESET watchkeeper.session";
/// What shows it.
const SHOWN: &str = "SELECT current_setting('watchkeeper.session', true), pg_backend_pid()";

/// Told of what others announce, and with nothing when the connection has broken.
pub type Heard = Arc<dyn Fn(Option<&Notification>) + Send + Sync>;

/// Why there is no connection.
#[derive(Debug)]
pub enum NoConnection {
    /// Files that the address names are at fault.
    Setup(String),
    /// The server, or the way there.
    Server(Error),
}

/// A connection as it was made.
pub struct Greeted {
    /// To speak with.
    pub client: Client,
    /// It leads to one process of the server, which was started for it. A pooler that passes its client's greeting on may give that
    /// process to others afterwards (pgagroal up to 1.6 does): who must know compares [`Greeted::process`].
    pub is_direct: bool,
    /// Number of the server's process that was met.
    pub process: i32,
    /// The connection is given up at once when this is dropped, whatever is under way.
    pub alive: oneshot::Sender<()>,
}

/// Greets one server.
///
/// The greeting asks for a setting of its own. A process of the server that has it was started for that greeting; a pooler refuses
/// it, or leaves it out: then the server is greeted without.
///
/// # Errors
/// [`NoConnection`], of the last attempt.
pub async fn greet(
    server: &Server,
    address: &PgAddress,
    spawn: &Spawn,
    heard: Option<Heard>,
) -> Result<Greeted, NoConnection> {
    let own: String = Chance::system().id().chars().take(16).collect();
    let asking = own_setting(&server.config, &own);
    let (client, alive) = match open(server, &asking, address, spawn, heard.clone()).await {
        // As a pooler does that knows no such greeting.
        Err(NoConnection::Server(error))
            if error::is_of_greeting(error.code().map_or("", |state| state.code())) =>
        {
            open(server, &server.config, address, spawn, heard).await?
        }
        opened => opened?,
    };
    // What a pooler has set for its client goes with RESET; what the process was started with comes back.
    let reset = client.batch_execute(RESET);
    let asked = client.query_typed(SHOWN, &[]);
    let ended = client.batch_execute("ROLLBACK");
    // A pooler may know no such setting.
    let (_, shown, ended) = join3(reset, asked, ended).await;
    ended.map_err(NoConnection::Server)?;
    let shown = shown.unwrap_or_default();
    let row = shown.first();
    let shown: Option<String> = row.and_then(|row| row.try_get(0).ok().flatten());
    Ok(Greeted {
        client,
        is_direct: shown.is_some_and(|shown| shown == own),
        process: row.and_then(|row| row.try_get(1).ok()).unwrap_or(0),
        alive,
    })
}

/// Connects to one server, without a question.
pub(super) async fn open(
    server: &Server,
    config: &Config,
    address: &PgAddress,
    spawn: &Spawn,
    heard: Option<Heard>,
) -> Result<(Client, oneshot::Sender<()>), NoConnection> {
    let (alive, gone) = oneshot::channel();
    if server.tls {
        let tls = tls::connector(&address.tls).map_err(NoConnection::Setup)?;
        let made = config.connect(tls).await;
        let (client, connection) = made.map_err(NoConnection::Server)?;
        spawn.spawn(drive(connection, heard, gone));
        return Ok((client, alive));
    }
    let made = config.connect(NoTls).await;
    let (client, connection) = made.map_err(NoConnection::Server)?;
    spawn.spawn(drive(connection, heard, gone));
    Ok((client, alive))
}

/// The same greeting with a setting of its own.
fn own_setting(config: &Config, value: &str) -> Config {
    let mut config = config.clone();
    let own = format!("-c {SETTING}={value}");
    config.options(match config.get_options() {
        Some(options) => format!("{options} {own}"),
        None => own,
    });
    config
}

/// Moves what is asked and answered until the connection ends, or no caller needs it.
async fn drive<S, T>(
    mut connection: Connection<S, T>,
    heard: Option<Heard>,
    gone: oneshot::Receiver<()>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let moving = async {
        while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
            if let (AsyncMessage::Notification(news), Some(heard)) = (message, &heard) {
                heard(Some(&news));
            }
        }
    };
    tokio::select! {
        () = moving => {}
        _ = gone => {}
    }
    if let Some(heard) = heard {
        heard(None);
    }
}

/// A connection, greetings included, takes no longer.
pub const CONNECT: Duration = Duration::from_secs(10);
/// For so long the other servers of an address are waited for.
const OTHERS: Duration = Duration::from_secs(1);

/// What all servers of an address answer, in their order; nothing of one that is silent within `limit`. With one that takes part the
/// others are waited for only a while: what does not answer then may be down, and a fleet waits.
pub async fn all<T, E>(
    asked: impl Iterator<Item = impl Future<Output = Result<T, E>>>,
    clock: &Clock,
    limit: Duration,
    takes_part: impl Fn(&T) -> bool,
) -> Vec<Option<Result<T, E>>> {
    let within = asked.enumerate().map(|(place, asking)| async move {
        let answer = clock.timeout(limit, asking).await;
        (place, answer.ok())
    });
    let mut asking: FuturesUnordered<_> = within.collect();
    let mut answers: Vec<_> = (0..asking.len()).map(|_| None).collect();
    let mut until = Moment::NEVER;
    while let Ok(Some((place, answer))) = clock.timeout_at(until, asking.next()).await {
        let takes_part = matches!(&answer, Some(Ok(answer)) if takes_part(answer));
        if takes_part && until == Moment::NEVER {
            until = clock.now() + OTHERS;
        }
        answers[place] = answer;
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_the_address_stay() {
        let mut config = Config::new();
        assert_eq!(
            own_setting(&config, "x").get_options(),
            Some("-c watchkeeper.session=x")
        );
        config.options("-c search_path=app");
        assert_eq!(
            own_setting(&config, "x").get_options(),
            Some("-c search_path=app -c watchkeeper.session=x")
        );
    }
}
