//! What a server's refusal means for a lock.

use std::{error::Error as _, time::Duration};

use tokio_postgres::{Error, error::SqlState};

use crate::node::{NodeError, Refusal};

/// Why a call was not executed. Before its end is asked for, nothing of it stands.
pub(super) fn of(error: &Error) -> NodeError {
    let Some(said) = error.as_db_error() else {
        return NodeError::Unreachable(chain(error));
    };
    let text = said.message().to_owned();
    refusal(said.code(), &text).unwrap_or(NodeError::Unfit(text))
}

/// Why there is no connection.
pub(super) fn no_connection(error: &Error) -> NodeError {
    let text = chain(error);
    match error.as_db_error() {
        Some(_) => of(error),
        None if text.contains("certificate") || text.contains("TLS") || text.contains("tls") => {
            NodeError::Tls(format!("{text}; see locks.postgres.url"))
        }
        None => NodeError::Unreachable(text),
    }
}

fn refusal(code: &SqlState, text: &str) -> Option<NodeError> {
    let refused = |refusal| {
        Some(NodeError::Refused {
            refusal,
            said: text.to_owned(),
        })
    };
    let access = |remedy: &str| Some(NodeError::Auth(format!("{text}; {remedy}")));
    match *code {
        // A standby takes no transaction that writes, and its functions have no end of a log to tell of.
        SqlState::READ_ONLY_SQL_TRANSACTION
        | SqlState::FEATURE_NOT_SUPPORTED
        | SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE => refused(Refusal::ReadOnly),
        SqlState::CANNOT_CONNECT_NOW | SqlState::CRASH_SHUTDOWN | SqlState::ADMIN_SHUTDOWN => {
            refused(Refusal::Loading)
        }
        SqlState::TOO_MANY_CONNECTIONS => refused(Refusal::Clients),
        SqlState::INVALID_CATALOG_NAME => refused(Refusal::Database),
        SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION => access(
            "see the user in locks.postgres.url, and the password there or in locks.postgres.password",
        ),
        SqlState::INSUFFICIENT_PRIVILEGE => access(
            "grant it to the user of locks.postgres.url; `watchkeeper locks schema` prints what makes our tables",
        ),
        SqlState::UNDEFINED_TABLE
        | SqlState::UNDEFINED_COLUMN
        | SqlState::INVALID_SCHEMA_NAME
        | SqlState::DATATYPE_MISMATCH
        | SqlState::UNDEFINED_FUNCTION => refused(Refusal::Tables),
        SqlState::DISK_FULL | SqlState::OUT_OF_MEMORY => refused(Refusal::OutOfMemory),
        // Of a first connection to a database: it names neither the file nor that the disk is full.
        SqlState::INTERNAL_ERROR if text.contains("could not write init file") => {
            refused(Refusal::OutOfMemory)
        }
        SqlState::LOCK_NOT_AVAILABLE => Some(NodeError::Unfit(format!(
            "{text}: another program holds the namespace's row for too long"
        ))),
        _ => None,
    }
}

/// Whether the connection is of no use after it.
pub(super) fn ends_the_connection(error: &NodeError) -> bool {
    match error {
        NodeError::Unreachable(_) | NodeError::Timeout(_) | NodeError::Protocol(_) => true,
        NodeError::Refused { refusal, .. } => refusal.refuses_everything(),
        _ => false,
    }
}

/// Its end was asked for, and not told: it may have been executed.
pub(super) fn unknown(limit: Duration) -> NodeError {
    NodeError::Timeout(limit)
}

/// Whether what the connection asked for in its greeting may have been refused, and not who it is or where it wants to go.
#[doc(hidden)] // for the stock jobs
#[must_use]
pub fn is_of_greeting(state: &str) -> bool {
    const OTHER: [&str; 4] = ["28", "3D", "53", "57"];
    !state.is_empty() && !OTHER.iter().any(|class| state.starts_with(class))
}

/// The error and its causes.
#[doc(hidden)] // for the stock jobs
#[must_use]
pub fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    if text.contains("invalid peer certificate") {
        text += "; name the file of its CA as `sslrootcert` in the address, or write sslmode=disable where the network is trusted";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_known_however_the_server_says_it() {
        let cause = |code: &SqlState, text: &str| refusal(code, text).map(|why| why.cause());
        for (code, text) in [
            (
                SqlState::DISK_FULL,
                "could not extend file \"base/5/16384\": No space left on device",
            ),
            (SqlState::INTERNAL_ERROR, "could not write init file"),
        ] {
            assert_eq!(cause(&code, text), Some("oom"), "{text}");
        }
        let other = "cache lookup failed for relation 16384";
        assert_eq!(cause(&SqlState::INTERNAL_ERROR, other), None);
    }
}
