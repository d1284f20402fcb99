//! What a connection keeps that leads to one process of the server, for as long as it stands: statements that the server has read
//! and planned once, limits that hold for all of its transactions, and which life of the server this is.
//!
//! Behind a pooler each transaction may be another process's, which knows nothing of that; there nothing is kept. A pooler that
//! was not noticed when the connection was made is noticed by the number of the process and by a setting, which each call reads
//! before it writes: what it has begun is rolled back then, and nothing is kept from then on. What was set before stays with that process.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::{join_all, join4};
use tokio_postgres::{
    Client, Error, Row, Statement as Prepared,
    error::SqlState,
    types::{ToSql, Type},
};

use super::{error, written::Statement};
use crate::node::NodeError;

/// The process of the server, if what was set for this connection is set there still.
pub(super) const KEEPING_PROCESS: &str =
    "CASE current_setting('watchkeeper.kept', true) WHEN 'yes' THEN pg_backend_pid() ELSE 0 END";

/// A statement that nearly every call is made of.
pub(super) struct Often {
    /// As it is asked.
    pub(super) asked: String,
    /// What is prepared for it: the life of a process that is known is not asked for.
    pub(super) prepared: String,
    pub(super) types: Vec<Type>,
}

/// Of the transactions of a connection that say nothing of it.
const ISOLATION: &str = "SELECT current_setting('default_transaction_isolation')";

/// What one connection keeps.
pub(super) struct Kept {
    prepared: HashMap<String, Prepared>,
    /// The process of the server that knows it.
    process: i32,
    /// Of the server, its database and its history.
    pub(super) life: String,
    /// How long a statement of it waits for a row.
    pub(super) limit: Duration,
    /// Whether a statement without a transaction around it sees what is committed, and no conflict: unless the role or the database
    /// wants something else, which is left as it is.
    pub(super) plain: bool,
    /// Shared by all connections of a node: nothing can be kept on the way to this server.
    pooled: Arc<AtomicBool>,
}

impl Kept {
    /// Has these statements prepared, all in one flight.
    pub(super) async fn by(
        client: &Client,
        process: i32,
        limit: Duration,
        often: &[Often],
        life: &Statement,
        pooled: Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let settings = settings(limit, process);
        let setting = client.batch_execute(&settings);
        let asking = client.query_typed(&life.sql, &[]);
        let isolation = client.query_typed(ISOLATION, &[]);
        let preparing = often
            .iter()
            .map(|often| client.prepare_typed(&often.prepared, &often.types));
        let (set, life, isolation, made) =
            join4(setting, asking, isolation, join_all(preparing)).await;
        set?;
        let life = life?.first().map(|row| row.try_get(0)).transpose()?;
        let isolation = isolation?;
        let isolation: Option<&str> = isolation.first().map(|row| row.try_get(0)).transpose()?;
        let mut prepared = HashMap::new();
        for (often, made) in often.iter().zip(made) {
            prepared.insert(often.asked.clone(), made?);
        }
        Ok(Self {
            prepared,
            process,
            life: life.unwrap_or_default(),
            limit,
            plain: isolation.is_some_and(|isolation| isolation.starts_with("read ")),
            pooled,
        })
    }

    /// An error where another process has answered than the one that knows the statements.
    pub(super) fn compare(&self, process: i32) -> Result<(), NodeError> {
        match process == self.process {
            true => Ok(()),
            false => {
                self.pooled.store(true, Ordering::Relaxed);
                let why = "another process of the server has answered: a pooler stands before it";
                Err(NodeError::Unreachable(why.to_owned()))
            }
        }
    }
}

/// Asks; by a statement that is kept, where there is one.
pub(super) async fn ask(
    client: &Client,
    kept: Option<&Kept>,
    statement: &Statement,
) -> Result<Vec<Row>, NodeError> {
    let answer = match of(kept, statement) {
        Some(prepared) => client.query(prepared, &bare(statement)).await,
        None => {
            let params: Vec<_> = statement.params.iter().map(typed).collect();
            client.query_typed(&statement.sql, &params).await
        }
    };
    answer.map_err(|error| refused(kept, &error))
}

/// The same for what writes: whether it has touched as many rows as it must.
pub(super) async fn write(
    client: &Client,
    kept: Option<&Kept>,
    statement: &Statement,
) -> Result<bool, NodeError> {
    let touched = match of(kept, statement) {
        Some(prepared) => client.execute(prepared, &bare(statement)).await,
        None => {
            let params: Vec<_> = statement.params.iter().map(typed).collect();
            client.execute_typed(&statement.sql, &params).await
        }
    };
    let touched = touched.map_err(|error| refused(kept, &error))?;
    Ok(statement.touches.is_none_or(|must| must == touched))
}

fn of<'k>(kept: Option<&'k Kept>, statement: &Statement) -> Option<&'k Prepared> {
    kept.and_then(|kept| kept.prepared.get(&statement.sql))
}

/// What was refused of a connection that keeps something may have been refused because it is not what it was: another one is made.
fn refused(kept: Option<&Kept>, error: &Error) -> NodeError {
    match (kept, error.code()) {
        (Some(kept), Some(code)) if *code == SqlState::INVALID_SQL_STATEMENT_NAME => {
            kept.pooled.store(true, Ordering::Relaxed);
            NodeError::Unreachable(format!("{error}: a pooler stands before the server"))
        }
        // "cached plan must not change result type", as one of the tables was changed.
        (Some(_), Some(code)) if *code == SqlState::FEATURE_NOT_SUPPORTED => {
            NodeError::Unreachable(error::chain(error))
        }
        _ => error::of(error),
    }
}

fn bare(statement: &Statement) -> Vec<&(dyn ToSql + Sync)> {
    let params = statement.params.iter();
    params
        .map(|(param, _)| &**param as &(dyn ToSql + Sync))
        .collect()
}

pub(super) fn typed(param: &(Box<dyn ToSql + Send + Sync>, Type)) -> (&(dyn ToSql + Sync), Type) {
    (&*param.0, param.1.clone())
}

/// The limits of each transaction, for all of them; and plans that look into an index for each row, however small the tables were when
/// the plans were made, and however many rows of others there are.
fn settings(limit: Duration, process: i32) -> String {
    format!(
        "SELECT {}, set_config('synchronous_commit', \
             CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false), \
             set_config('plan_cache_mode', 'force_generic_plan', false), set_config('enable_seqscan', 'off', false), \
             set_config('enable_hashjoin', 'off', false), set_config('enable_mergejoin', 'off', false), \
             set_config('jit', 'off', false), set_config('watchkeeper.kept', 'yes', false) WHERE pg_backend_pid() = {process}",
        limits(limit, false)
    )
}

/// How long a statement waits for a row, how long it may take, and how long a transaction may be left lying: for this transaction, or
/// for all.
pub(super) fn limits(limit: Duration, of_this: bool) -> String {
    let ms = limit.as_millis();
    let idle = (limit * 4).max(Duration::from_millis(200)).as_millis();
    format!(
        "set_config('lock_timeout', '{ms}', {of_this}), set_config('statement_timeout', '{}', {of_this}), \
         set_config('idle_in_transaction_session_timeout', '{idle}', {of_this})",
        ms * 2
    )
}
