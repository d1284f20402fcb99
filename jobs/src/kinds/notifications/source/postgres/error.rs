//! What a server's refusal means, in words that help.

use tokio_postgres::{Error, error::SqlState};

use watchkeeper::node::postgres::error::chain;

use crate::notifications::source::SourceError;

/// What the server said, or why it could not be asked.
pub(super) fn of(server: &str, error: &Error) -> SourceError {
    let state = error.code().map_or("", SqlState::code).to_owned();
    let (why, again) = match error.as_db_error() {
        None => (chain(error), true),
        Some(said) => {
            let (remedy, again) = meaning(said.code());
            let message = said.message();
            let why = match (remedy, said.hint()) {
                ("", None) => message.to_owned(),
                ("", Some(hint)) => format!("{message}; {hint}"),
                (remedy, _) => format!("{message}; {remedy}"),
            };
            (why, again)
        }
    };
    SourceError::Server {
        server: server.to_owned(),
        why,
        again,
        state,
    }
}

/// What helps, and whether another attempt may come out otherwise.
fn meaning(code: &SqlState) -> (&'static str, bool) {
    match *code {
        SqlState::INSUFFICIENT_PRIVILEGE => ("grant it to the user of `source`", false),
        SqlState::UNDEFINED_TABLE
        | SqlState::UNDEFINED_COLUMN
        | SqlState::UNDEFINED_FUNCTION
        | SqlState::SYNTAX_ERROR => (
            "see `table`, `columns` and `where` of the job's parameters",
            false,
        ),
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => (
            "see the user in `source`, and the password there or in `password_file`",
            true,
        ),
        SqlState::INVALID_CATALOG_NAME => ("see the database in `source`", true),
        SqlState::READ_ONLY_SQL_TRANSACTION => {
            ("it is read-only; name the primary in `source`", true)
        }
        SqlState::QUERY_CANCELED => ("it took too long, see `watchkeeper check`", true),
        SqlState::LOCK_NOT_AVAILABLE => ("another session holds what was needed", true),
        _ => ("", true),
    }
}
