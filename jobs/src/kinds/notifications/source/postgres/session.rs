//! One connection to the database, and what every transaction on it begins with.
//!
//! Statements that do not depend on each other's answers are sent together, by `try_join` in the order in which they are to be
//! executed: one way there and back for all of them. What follows a statement that fails does nothing, within a transaction.
//!
//! Settings are made within each transaction, and statements are named only where that is safe ([`Statements`]): both also hold
//! behind a pooler that gives each transaction another connection.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, oneshot};
use tokio_postgres::{
    Client, Error, Row, SimpleQueryMessage, Statement,
    error::SqlState,
    types::{FromSqlOwned, Type},
};
use watchkeeper::{
    clock::{Clock, Moment},
    node::postgres::{
        address::{PgAddress, Server},
        connect::{self, Heard, NoConnection},
        history::{self, History, ServerId},
        watch,
    },
    spawn::Spawn,
};

pub(super) use super::statements::Param;
use super::{
    error,
    statements::{Statements, Value},
};
use crate::notifications::source::{Result, SourceError, table::quoted};

/// A connection to a server that takes writes.
pub(super) struct Session {
    client: Client,
    /// Where the connection leads to one process of the server.
    statements: Option<Statements>,
    /// Number of that process.
    process: i32,
    address: PgAddress,
    /// Within a transaction.
    is_open: AtomicBool,
    /// Dropped with it: whatever is under way is given up.
    _alive: oneshot::Sender<()>,
    /// How far its server has come, where it is one of several and tells.
    history: Option<History>,
    /// Without anything secret.
    pub(super) server: String,
}

/// No statement takes longer, unless it counts.
pub(super) const STATEMENT: Duration = Duration::from_secs(10);
/// Counting may.
pub(super) const COUNTING: Duration = Duration::from_secs(60);
/// No statement waits longer for another session.
const LOCK: Duration = Duration::from_secs(3);
/// A process that freezes within a transaction keeps others out no longer.
const IDLE: Duration = Duration::from_secs(5);
/// What a transaction fails with in another process.
const GIVEN_AWAY: &str = "a pooler gave the connection away";
/// To prepare statements takes no longer.
const PREPARING: Duration = Duration::from_secs(3);
/// The first version that is spoken to.
const OLDEST: i32 = 120_000;

// === impl Session ===

impl Session {
    /// Connects to the first server that takes writes, and whose place no other one has taken; says of each why it was not that one.
    pub(super) async fn connect(address: &PgAddress, clock: &Clock) -> Result<Self> {
        Self::reach(address, clock, None).await
    }

    /// The same, to be told of what others announce on a channel; and when the connection breaks. None when the connection
    /// hears nothing, as behind a pooler, which may give each transaction another session of the server.
    pub(super) async fn listen(
        address: &PgAddress,
        clock: &Clock,
        channel: &str,
        heard: &Arc<Notify>,
    ) -> Result<Option<Self>> {
        let session = Self::reach(address, clock, Some(heard)).await?;
        // Before it listens: a pooler may answer the question below by the session that has just listened, and then give it away.
        if session.statements.is_none() {
            return Ok(None);
        }
        session
            .batch(&format!("LISTEN {}", quoted(channel)))
            .await?;
        let hears = "SELECT EXISTS (SELECT 1 FROM pg_listening_channels() AS c WHERE c = $1)";
        let hears: Option<bool> = session.value(hears, &[(&channel, Type::TEXT)]).await?;
        Ok((hears == Some(true)).then_some(session))
    }

    async fn reach(
        address: &PgAddress,
        clock: &Clock,
        heard: Option<&Arc<Notify>>,
    ) -> Result<Self> {
        let failed = |server: String, why: String| SourceError::unanswered(server, why, true);
        let servers = address.servers();
        let servers = servers.map_err(|why| failed(address.to_string(), why))?;
        let is_one_of_several = servers.len() > 1;
        let began = clock.now();
        let meeting = servers.iter().map(async |server| {
            let mut session = Self::to(server, address, heard).await?;
            let history = match is_one_of_several {
                true => History::of(&session.client).await,
                false => Ok(None),
            };
            session.history = history.map_err(|error| session.refused(&error))?;
            Ok::<_, SourceError>(session)
        });
        // One that is none of a primary that takes writes has failed.
        let met = connect::all(meeting, clock, connect::CONNECT, |_| true).await;
        let histories = history::of_all(&met, |session| session.history.as_ref());
        let used = address.used();
        for (place, met) in met.iter().enumerate() {
            if let Some(Ok(session)) = met
                && let Some(history) = &session.history
            {
                let name = session.server.clone();
                used.met(history, &ServerId { place, name });
            }
        }
        let may_be_used = |history: &History| {
            !history.has_successor_among(histories.iter()) && !used.has_outlived(history)
        };
        // One that lives and lets this program not in may have been promoted in the place of the others.
        let is_mute = met.iter().flatten().any(|met| {
            let state = match met {
                Err(SourceError::Server { state, .. }) => state.as_str(),
                _ => return false,
            };
            state.starts_with("28") || ["53300", "42501"].contains(&state)
        });
        // Of several the first that says how far it has come, or else the first that takes writes.
        let (mut untold, mut said) = (None, Vec::new());
        for (place, (server, met)) in servers.into_iter().zip(met).enumerate() {
            let why = match met {
                Some(Ok(session)) => {
                    let Some(history) = &session.history else {
                        untold.get_or_insert(session);
                        continue;
                    };
                    if !may_be_used(history) {
                        failed(server.name, history.outlived(used))
                    } else if is_mute && !used.is(history) {
                        let why = "another server of the address lets this program not in, and may have been promoted in its place";
                        failed(server.name, why.to_owned())
                    } else {
                        let name = server.name;
                        used.note(history, &ServerId { place, name });
                        used.asked(began);
                        watch::begin(address, clock, &Spawn::system());
                        return Ok(session);
                    }
                }
                Some(Err(why)) => why,
                None => failed(server.name, "no answer in time".to_owned()),
            };
            said.push(why.to_string());
        }
        if let Some(session) = untold.filter(|_| !is_mute) {
            return Ok(session);
        }
        match said.len() {
            1 => Err(failed(address.to_string(), without(&said[0], address))),
            _ => Err(failed(address.to_string(), said.join("; "))),
        }
    }

    async fn to(server: &Server, address: &PgAddress, heard: Option<&Arc<Notify>>) -> Result<Self> {
        let refused = |why: String, again| SourceError::unanswered(server.name.clone(), why, again);
        let heard = heard.map(|heard| -> Heard {
            let heard = Arc::clone(heard);
            // From the end of a connection on nothing is heard: one look finds what was announced in between.
            Arc::new(move |_| heard.notify_one())
        });
        let greeted = connect::greet(server, address, &Spawn::system(), heard).await;
        let greeted = greeted.map_err(|why| match why {
            NoConnection::Setup(why) => refused(why, true),
            NoConnection::Server(why) => error::of(&server.name, &why),
        })?;
        let session = Self {
            client: greeted.client,
            statements: (greeted.is_direct && !address.is_shared()).then(Statements::default),
            address: address.clone(),
            process: greeted.process,
            is_open: AtomicBool::new(false),
            _alive: greeted.alive,
            history: None,
            server: server.name.clone(),
        };
        let facts = session
            .query(
                "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),
                    current_setting('transaction_read_only') = 'on'",
                &[],
            )
            .await?;
        let facts = facts.first().ok_or(SourceError::Unfinished)?;
        let (version, recovers, reads): (i32, bool, bool) =
            (get(facts, 0)?, get(facts, 1)?, get(facts, 2)?);
        if version < OLDEST {
            let (major, oldest) = (version / 10_000, OLDEST / 10_000);
            let why = format!("it is PostgreSQL {major}; {oldest} or later is needed");
            return Err(refused(why, false));
        }
        if recovers {
            let why = "it is a standby, which takes no writes; name the primary in `source`";
            return Err(refused(why.to_owned(), true));
        }
        if reads {
            let why = "it is read-only; name a server that takes writes in `source`";
            return Err(refused(why.to_owned(), true));
        }
        Ok(session)
    }

    /// Between two calls: prepares what they ask for again and again.
    pub(super) async fn prepare(&self, clock: &Clock) {
        let Some(statements) = &self.statements else {
            return;
        };
        let wanted = statements.wanted(clock.now());
        // In a transaction of its own, so that nothing waits for another session without an end.
        if wanted.is_empty() || self.begin_to_read(PREPARING).await.is_err() {
            return;
        }
        for (sql, types) in wanted {
            let prepared = self.client.prepare_typed(&sql, &types).await;
            let failed = prepared.is_err();
            // What was refused goes as its text, and is refused then.
            statements.is_prepared(&sql, clock.now(), prepared.ok());
            if failed {
                break;
            }
        }
        _ = self.roll_back().await;
    }

    /// The statement of this text, where it is prepared, and what its parameters are.
    fn prepared<'p>(&self, sql: &str, params: &[Param<'p>]) -> Option<(Statement, Vec<Value<'p>>)> {
        // Only where it was made sure that this is the process they were prepared in.
        if !self.is_open.load(Ordering::Relaxed) {
            return None;
        }
        let statement = self.statements.as_ref()?.of(sql, params)?;
        Some((statement, params.iter().map(|(value, _)| *value).collect()))
    }

    /// Whether it broke.
    pub(super) fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Whether another server was promoted in the place of its own, or may have been.
    pub(super) fn is_left(&self, now: Moment) -> bool {
        let used = self.address.used();
        let is_left = |history| used.is_stale(now) || used.has_outlived(history);
        self.history.as_ref().is_some_and(is_left)
    }

    /// Begins a transaction that can write, in which no statement takes longer than `limit`. `first` are statements that are
    /// sent along, without answers.
    pub(super) async fn begin(&self, limit: Duration, first: &str) -> Result<()> {
        self.open("READ COMMITTED", limit, first).await
    }

    /// The same to read, everything as it is at one moment.
    pub(super) async fn begin_to_read(&self, limit: Duration) -> Result<()> {
        self.open("REPEATABLE READ, READ ONLY", limit, "").await
    }

    async fn open(&self, mode: &str, limit: Duration, first: &str) -> Result<()> {
        self.is_open.store(true, Ordering::Relaxed);
        let process = self.statements.as_ref().map(|_| self.process);
        let opened = self
            .batch(&format!("{}{first}", opening(mode, limit, process)))
            .await;
        if opened
            .as_ref()
            .is_err_and(|why| why.to_string().contains(GIVEN_AWAY))
        {
            // From the next connection on nothing is prepared.
            self.address.set_shared();
        }
        opened
    }

    pub(super) async fn commit(&self) -> Result<()> {
        self.is_open.store(false, Ordering::Relaxed);
        self.batch("COMMIT").await
    }

    pub(super) async fn roll_back(&self) -> Result<()> {
        self.is_open.store(false, Ordering::Relaxed);
        self.batch("ROLLBACK").await
    }

    /// Statements without parameters or answers.
    pub(super) async fn batch(&self, sql: &str) -> Result<()> {
        let done = self.client.batch_execute(sql).await;
        done.map_err(|error| error::of(&self.server, &error))
    }

    pub(super) async fn query(&self, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>> {
        let rows = match self.prepared(sql, params) {
            Some((statement, values)) => self.client.query(&statement, &values).await,
            None => self.client.query_typed(sql, params).await,
        };
        rows.map_err(|error| self.refused(&error))
    }

    pub(super) async fn execute(&self, sql: &str, params: &[Param<'_>]) -> Result<u64> {
        let rows = match self.prepared(sql, params) {
            Some((statement, values)) => self.client.execute(&statement, &values).await,
            None => self.client.execute_typed(sql, params).await,
        };
        rows.map_err(|error| self.refused(&error))
    }

    /// What the server said. Where it does not know a statement any more, what was prepared was taken away between two transactions,
    /// as poolers do that clean up: from the next connection on nothing is prepared.
    fn refused(&self, error: &Error) -> SourceError {
        if error.code() == Some(&SqlState::INVALID_SQL_STATEMENT_NAME) {
            self.address.set_shared();
        }
        error::of(&self.server, error)
    }

    /// The one value of the one row, if there is one.
    pub(super) async fn value<T: FromSqlOwned>(
        &self,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Option<T>> {
        let rows = self.query(sql, params).await?;
        rows.first().map(|row| get(row, 0)).transpose()
    }

    /// The lines of an answer that is one column of text: `EXPLAIN`.
    pub(super) async fn lines(&self, sql: &str) -> Result<Vec<String>> {
        let said = self.client.simple_query(sql).await;
        let said = said.map_err(|error| error::of(&self.server, &error))?;
        let line = |message: SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => row.try_get(0).ok().flatten().map(str::to_owned),
            _ => None,
        };
        Ok(said.into_iter().filter_map(line).collect())
    }
}

/// One statement makes all the settings: each takes the server as long as a row takes to be sent.
///
/// Where statements are prepared, `process` is the one of the server that has them: the transaction fails in any other, before
/// anything is executed by a name that may stand for something else there.
fn opening(mode: &str, limit: Duration, process: Option<i32>) -> String {
    let here = match process {
        Some(process) => format!(
            ", CASE WHEN pg_backend_pid() <> {process} \
                 THEN ('{GIVEN_AWAY}, this is process ' || pg_backend_pid())::int END"
        ),
        None => String::new(),
    };
    format!(
        "BEGIN ISOLATION LEVEL {mode}; \
         SELECT set_config('statement_timeout', '{}', true), set_config('lock_timeout', '{}', true), \
             set_config('idle_in_transaction_session_timeout', '{}', true), set_config('TimeZone', 'UTC', true), \
             set_config('application_name', 'watchkeeper', true), \
             CASE WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') \
                 THEN set_config('synchronous_commit', 'on', true) END{here};",
        limit.as_millis(),
        LOCK.as_millis(),
        IDLE.as_millis(),
    )
}

/// What stands in a column of an answer.
pub(super) fn get<T: FromSqlOwned>(row: &Row, at: usize) -> Result<T> {
    let value = row.try_get(at);
    value.map_err(|error| SourceError::Unreadable(error.to_string()))
}

/// The sentence of one server, whose name stands before it anyway.
fn without(said: &str, address: &PgAddress) -> String {
    let name = format!("{address}: ");
    said.strip_prefix(&name).unwrap_or(said).to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures_util::future::try_join4;

    #[tokio::test]
    async fn what_is_sent_together_is_sent_in_its_order() {
        let sent = Mutex::new(Vec::new());
        let statement = async |number: u32| {
            sent.lock().unwrap().push(number);
            tokio::task::yield_now().await;
            Ok::<_, ()>(number)
        };
        for _ in 0..20 {
            sent.lock().unwrap().clear();
            let answers = try_join4(statement(1), statement(2), statement(3), statement(4)).await;
            assert_eq!(answers, Ok((1, 2, 3, 4)));
            assert_eq!(*sent.lock().unwrap(), [1, 2, 3, 4]);
        }
    }
}
