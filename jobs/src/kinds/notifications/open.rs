//! From parameters to a table: the one way in which the job and the commands open a source.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use watchkeeper::config::Findings;

#[cfg(feature = "postgres")]
use super::source::postgres::{PgOperator, PgSource, ddl, schema_ddl};
use super::{
    operator::Operator,
    params::{Database, NotificationsParams},
    source::{
        Result, Source, SourceError,
        sqlite::{SIDE_TABLES, SqliteOperator, SqliteSource},
    },
};

/// The table that `params` names. Opened at the first call.
#[must_use]
pub(crate) fn source(database: Database, params: &NotificationsParams) -> Arc<dyn Source> {
    match database {
        Database::Sqlite(path) => Arc::new(SqliteSource::new(path, params)),
        #[cfg(feature = "postgres")]
        Database::Postgres(address) => Arc::new(PgSource::new(address, params)),
    }
}

/// The same for a person: to look, with a connection that cannot write, or to change something. Writes nothing yet.
///
/// # Errors
/// When there is no such database or table.
pub(crate) async fn operator(
    database: &Database,
    params: &NotificationsParams,
    to_change: bool,
) -> Result<Box<dyn Operator>> {
    Ok(match database {
        Database::Sqlite(path) => Box::new(match to_change {
            true => SqliteOperator::change(path, params)?,
            false => SqliteOperator::look(path, params)?,
        }),
        #[cfg(feature = "postgres")]
        Database::Postgres(address) => {
            Box::new(PgOperator::open(address.clone(), params, to_change).await?)
        }
    })
}

/// The same for tests, which have no database at hand.
///
/// # Errors
/// As there.
pub async fn operator_of(
    params: &NotificationsParams,
    to_change: bool,
) -> Result<Box<dyn Operator>, SourceError> {
    let database = params.database();
    let database = database.map_err(|(_, why)| SourceError::Unreadable(why))?;
    operator(&database, params, to_change).await
}

/// The SQL that makes the side tables of the table that `params` names, and the index that the search for work goes by.
///
/// # Errors
/// When there is no such database or table.
pub(crate) async fn schema(database: &Database, params: &NotificationsParams) -> Result<String> {
    match database {
        Database::Sqlite(path) => {
            let table = SqliteOperator::look(path, params)?;
            Ok(format!("{SIDE_TABLES}{}\n", table.index()))
        }
        #[cfg(feature = "postgres")]
        Database::Postgres(address) => {
            let table = PgOperator::open(address.clone(), params, false).await?;
            let (schema, index) = table.schema();
            let own = match params.side_tables.schema {
                Some(_) => schema_ddl(&schema),
                None => String::new(),
            };
            Ok(format!("{own}{}{index}\n", ddl(&schema)))
        }
    }
}

/// What is found where the parameters lead to, for `watchkeeper check`. A database that cannot be asked is a warning: where a
/// configuration is checked it need not be there. One that answers otherwise than the parameters say is an error.
pub(crate) fn look(params: &Value) -> Findings {
    let mut found = Findings::default();
    let Ok(params) = NotificationsParams::deserialize(params) else {
        return found;
    };
    let Ok(database) = params.database() else {
        return found;
    };
    if matches!(&database, Database::Sqlite(path) if !path.is_file()) {
        return found;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else { return found };
    let looking = async { operator(&database, &params, false).await?.look().await };
    match runtime.block_on(looking) {
        Ok(None) => {}
        Ok(Some(index)) => found.warn(
            &["table"],
            "the search for unsent rows has no index, and reads rows that were sent",
            index,
        ),
        Err(error) => {
            let source = match params.source_file {
                Some(_) => "source_file",
                None => "source",
            };
            let (key, is_wrong) = match &error {
                SourceError::NoTable { .. } | SourceError::Unfit { .. } => {
                    ("table".to_owned(), true)
                }
                SourceError::NoColumn { key, .. } => (format!("columns.{key}"), true),
                SourceError::NoSideTables { .. } => ("side_tables".to_owned(), true),
                SourceError::Server { again: false, .. } if params.filter.is_some() => {
                    ("where".to_owned(), true)
                }
                SourceError::Server { again: false, .. } => (source.to_owned(), true),
                _ => (source.to_owned(), false),
            };
            let keys = [key.as_str(), source];
            match is_wrong {
                true => found.error(&keys, error.to_string(), ""),
                false => found.warn(&keys, error.to_string(), ""),
            }
        }
    }
    found
}
