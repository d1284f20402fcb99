//! What a connection keeps that leads to one process of the server, for as long as it stands: statements that the server has read
//! and planned once, limits that hold for all of its transactions, and which life of the server this is.
//!
//! Behind a pooler each transaction may be another process's, which knows nothing of that; there nothing is kept. A pooler that
//! was not noticed when the connection was made is noticed by the number of the process, which each call reads before it
//! writes: what it has begun is rolled back then, and nothing is kept from then on.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::{join_all, join3};
use tokio_postgres::{
    Client, Error, Row, Statement as Prepared,
    error::SqlState,
    types::{ToSql, Type},
};

use super::{
    rows::{Often, Sql},
    written::Statement,
};
use crate::node::NodeError;

/// What one connection keeps.
pub(super) struct Kept {
    prepared: HashMap<String, Prepared>,
    /// The process of the server that knows it.
    process: i32,
    /// Of the server, its database and its history.
    pub(super) life: String,
    /// How long a statement of it waits for a row.
    pub(super) limit: Duration,
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
        pooled: Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let settings = settings(limit);
        let setting = client.batch_execute(&settings);
        let life = Sql::flushed().sql;
        let asking = client.query_typed(&life, &[]);
        let preparing = often
            .iter()
            .map(|often| client.prepare_typed(&often.prepared, &often.types));
        let (set, life, made) = join3(setting, asking, join_all(preparing)).await;
        set?;
        let life = life?.first().map(|row| row.try_get(0)).transpose()?;
        let mut prepared = HashMap::new();
        for (often, made) in often.iter().zip(made) {
            prepared.insert(often.asked.clone(), made?);
        }
        Ok(Self {
            prepared,
            process,
            life: life.unwrap_or_default(),
            limit,
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
) -> Result<Vec<Row>, Error> {
    let prepared = kept.and_then(|kept| Some((kept, kept.prepared.get(&statement.sql)?)));
    let Some((kept, prepared)) = prepared else {
        let params: Vec<_> = statement.params.iter().map(typed).collect();
        return client.query_typed(&statement.sql, &params).await;
    };
    let params: Vec<&(dyn ToSql + Sync)> = statement
        .params
        .iter()
        .map(|(param, _)| &**param as &(dyn ToSql + Sync))
        .collect();
    let answer = client.query(prepared, &params).await;
    if let Err(error) = &answer
        && error.code() == Some(&SqlState::INVALID_SQL_STATEMENT_NAME)
    {
        kept.pooled.store(true, Ordering::Relaxed);
    }
    answer
}

pub(super) fn typed(param: &(Box<dyn ToSql + Send + Sync>, Type)) -> (&(dyn ToSql + Sync), Type) {
    (&*param.0, param.1.clone())
}

/// The limits of each transaction, for all of them; and plans that look into an index for each row, however small the tables were when
/// the plans were made, and however many rows of others there are.
fn settings(limit: Duration) -> String {
    format!(
        "SELECT {}, set_config('synchronous_commit', \
             CASE current_setting('synchronous_commit') WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, false), \
             set_config('plan_cache_mode', 'force_generic_plan', false), set_config('enable_seqscan', 'off', false), \
             set_config('enable_hashjoin', 'off', false), set_config('enable_mergejoin', 'off', false), \
             set_config('jit', 'off', false)",
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
