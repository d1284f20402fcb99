//! From parameters to a table: the one way in which the job and the commands open a source.

use std::{error::Error as _, sync::Arc};

use serde::Deserialize;
use serde_json::Value;
use watchkeeper::config::Findings;

#[cfg(feature = "postgres")]
use super::source::postgres::{PgOperator, PgSource};
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
            Ok(table.schema(params))
        }
    }
}

/// What is found where the parameters lead to, for `watchkeeper check`. A file that is not there may come later; all else that
/// keeps the job from its work is an error.
pub(crate) fn look(params: &Value) -> Findings {
    let mut found = Findings::default();
    let Ok(params) = NotificationsParams::deserialize(params) else {
        return found;
    };
    let Ok(database) = params.database() else {
        return found;
    };
    if let Database::Sqlite(path) = &database {
        if path.exists() && !path.is_file() {
            let helps = "name the file of the database";
            found.error(&["source"], format!("{database} is no file"), helps);
            return found;
        }
        // It may come later.
        if !path.is_file() {
            return found;
        }
        if let Err(why) = std::fs::OpenOptions::new().append(true).open(path) {
            let said = format!("{database} cannot be written: {why}");
            let helps = "let the user of this program write the file and its folder";
            found.error(&["source"], said, helps);
            return found;
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let Ok(runtime) = runtime else { return found };
    let looking = async {
        let mut table = operator(&database, &params, false).await?;
        Ok((table.look().await?, table.ids_come_back().await?))
    };
    match runtime.block_on(looking) {
        Ok((index, ids_come_back)) => {
            if let Some(index) = index {
                found.error(
                    &["table"],
                    format!("is large in {database}, and the search for unsent rows has no index: it would read rows that were sent"),
                    index,
                );
            }
            if ids_come_back {
                found.warn(
                    &["table"],
                    format!("gives ids of deleted rows to new ones in {database}: their receivers would take them for repeats"),
                    "declare the id as INTEGER PRIMARY KEY AUTOINCREMENT, unless your program gives ids that never come back",
                );
            }
        }
        Err(error) => {
            let source = match params.source_file {
                Some(_) => "source_file",
                None => "source",
            };
            let (key, remedy) = match &error {
                SourceError::NoTable { .. } | SourceError::Unfit { .. } => ("table", ""),
                SourceError::NoColumn { key, .. } => (*key, ""),
                SourceError::NoSideTables { .. } | SourceError::NoRights { .. } => {
                    ("side_tables", "")
                }
                SourceError::Server { again: false, .. } if params.filter.is_some() => {
                    ("where", "")
                }
                SourceError::Server { again: true, .. } => {
                    (source, "check where it can be reached, or with `--offline`")
                }
                _ => (source, ""),
            };
            found.error(&[key, source], within(&database, &error), remedy);
        }
    }
    found
}

/// What went wrong and why, with the source in which it did.
fn within(database: &Database, error: &SourceError) -> String {
    let (mut why, place) = (error.to_string(), database.to_string());
    let mut cause = error.source();
    while let Some(inner) = cause {
        why = format!("{why}: {inner}");
        cause = inner.source();
    }
    match why.contains(&place) {
        true => why,
        false => format!("{why} (in {place})"),
    }
}
