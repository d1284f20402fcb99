//! The client library's errors, sorted by what they mean for a vote, without secrets.

use std::time::Duration;

use deadpool_redis::{
    PoolError,
    redis::{ErrorKind, RedisError, ServerErrorKind},
};
use secrecy::{ExposeSecret, SecretString};

use crate::node::NodeError;

/// Words by which a server says that it does not let us in.
const CLOSED: [&str; 4] = ["NOAUTH", "WRONGPASS", "NOPERM", "ERR AUTH"];

/// Words by which a server says that it cannot serve now. Redis before 7 hides them inside `ERR Error running script`.
const UNFIT: [&str; 13] = [
    "LOADING",
    "READONLY",
    "OOM",
    "MISCONF",
    "BUSY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "NOREPLICAS",
    "MOVED",
    "ASK ",
    "CROSSSLOT",
    "TRYAGAIN",
    "max number of clients",
];

/// What an error means, before it is known whether a request was on its way.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The server does not know the script: nothing was executed.
    NoScript,
    /// The server answered with a refusal; the connection is good.
    Answered(NodeError),
    /// No answer in time.
    Slow,
    /// No connection, or a broken one.
    Broken(String),
}

/// Takes passwords out of texts, wherever they come from.
#[derive(Clone, Debug, Default)]
pub(super) struct Scrub(Option<SecretString>);

// === impl Scrub ===

impl Scrub {
    pub(super) fn new(secret: Option<&str>) -> Self {
        Self(secret.filter(|s| !s.is_empty()).map(SecretString::from))
    }

    pub(super) fn clean(&self, text: &str) -> String {
        match &self.0 {
            Some(secret) => text.replace(secret.expose_secret(), "***"),
            None => text.to_owned(),
        }
    }
}

// === sorting ===

pub(super) fn sort(error: &RedisError, scrub: &Scrub) -> Trouble {
    let text = scrub.clean(&error.to_string());
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::NoScript) => return Trouble::NoScript,
        ErrorKind::AuthenticationFailed => return Trouble::Answered(NodeError::Auth(text)),
        ErrorKind::Io if error.is_timeout() => return Trouble::Slow,
        ErrorKind::Io => return Trouble::Broken(text),
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
            return Trouble::Broken(format!("not the protocol of Redis: {text}"));
        }
        _ => {}
    }
    let says = |words: &[&str]| {
        let code = error.code().unwrap_or_default();
        words
            .iter()
            .any(|word| code == word.trim_end() || text.contains(word))
    };
    Trouble::Answered(if says(&CLOSED) {
        NodeError::Auth(text)
    } else if says(&UNFIT) {
        NodeError::Unfit(text)
    } else {
        NodeError::Protocol(text)
    })
}

/// Why no connection came about. Nothing was executed.
pub(super) fn no_connection(error: &RedisError, scrub: &Scrub) -> NodeError {
    match sort(error, scrub) {
        Trouble::Answered(refusal) => refusal,
        Trouble::NoScript => NodeError::Protocol("no script where none was called".to_owned()),
        Trouble::Slow => NodeError::Unreachable("no answer to the first commands".to_owned()),
        Trouble::Broken(why) => NodeError::Unreachable(why),
    }
}

/// As [`no_connection`], for what the pool adds.
pub(super) fn no_pooled(error: &PoolError, scrub: &Scrub) -> NodeError {
    match error {
        PoolError::Backend(error) => no_connection(error, scrub),
        PoolError::Timeout(_) => NodeError::Unreachable("no connection in time".to_owned()),
        other => NodeError::Unreachable(scrub.clean(&other.to_string())),
    }
}

/// What becomes of a request that was on its way: a connection that broke under it may have carried it.
pub(super) fn maybe_executed(trouble: Trouble, waited: Duration) -> NodeError {
    match trouble {
        Trouble::Answered(refusal) => refusal,
        Trouble::NoScript => NodeError::Unfit("the server forgot the script".to_owned()),
        Trouble::Slow | Trouble::Broken(_) => NodeError::Timeout(waited),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    fn server(line: &str) -> RedisError {
        let mut parser = deadpool_redis::redis::Parser::new();
        parser
            .parse_value(format!("-{line}\r\n").as_bytes())
            .and_then(deadpool_redis::redis::Value::extract_error)
            .unwrap_err()
    }

    fn sorted(line: &str) -> Trouble {
        sort(&server(line), &Scrub::default())
    }

    #[test]
    fn refusals_are_sorted_by_their_code() {
        for line in [
            "NOAUTH Authentication required.",
            "NOPERM no",
            "WRONGPASS invalid",
        ] {
            assert!(
                matches!(sorted(line), Trouble::Answered(NodeError::Auth(_))),
                "{line}"
            );
        }
        for line in [
            "LOADING Redis is loading the dataset in memory",
            "READONLY You can't write against a read only replica.",
            "OOM command not allowed when used memory > 'maxmemory'.",
            "MISCONF Redis is configured to save RDB snapshots",
            "BUSY Redis is busy running a script.",
            "ERR max number of clients reached",
            "ERR Error running script (call to f_ab): @user_script:1: -READONLY You can't write",
        ] {
            assert!(
                matches!(sorted(line), Trouble::Answered(NodeError::Unfit(_))),
                "{line}"
            );
        }
        assert_eq!(sorted("NOSCRIPT No matching script."), Trouble::NoScript);
        assert!(matches!(
            sorted("ERR unknown command"),
            Trouble::Answered(NodeError::Protocol(_))
        ));
    }

    #[test]
    fn a_connection_that_breaks_under_a_request_may_have_carried_it() {
        let broken = RedisError::from(io::Error::from(io::ErrorKind::ConnectionReset));
        let waited = Duration::from_millis(3);
        let trouble = sort(&broken, &Scrub::default());
        assert_eq!(maybe_executed(trouble, waited), NodeError::Timeout(waited));
        assert!(matches!(
            no_connection(&broken, &Scrub::default()),
            NodeError::Unreachable(_)
        ));
    }

    #[test]
    fn passwords_never_reach_a_text() {
        let scrub = Scrub::new(Some("s3cret"));
        let Trouble::Answered(NodeError::Auth(text)) = sort(&server("WRONGPASS s3cret no"), &scrub)
        else {
            panic!("not an access error");
        };
        assert!(!text.contains("s3cret"));
        assert!(!format!("{scrub:?}").contains("s3cret"));
    }
}
