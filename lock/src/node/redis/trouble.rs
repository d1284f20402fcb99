//! The client library's errors, sorted by what they mean for a vote, without secrets.

use std::time::Duration;

use deadpool_redis::{
    PoolError,
    redis::{ErrorKind, RedisError, ServerErrorKind},
};
use secrecy::{ExposeSecret, SecretString};

use crate::node::{NodeError, Refusal};

/// What stands in an error, and what it says. Redis before 7 hides the code inside `ERR Error running script`, so the
/// whole text is looked at; the first that fits counts.
const WORDS: [(&str, Refusal); 26] = [
    ("LOADING", Refusal::Loading),
    ("READONLY", Refusal::ReadOnly),
    ("MASTERDOWN", Refusal::ReadOnly),
    ("OOM ", Refusal::OutOfMemory),
    ("MISCONF", Refusal::Misconf),
    ("NOREPLICAS", Refusal::NoReplicas),
    ("BUSY ", Refusal::Busy),
    ("NOAUTH", Refusal::NoAuth),
    ("WRONGPASS", Refusal::WrongPass),
    ("ERR AUTH", Refusal::WrongPass),
    // Keys before commands: Redis 6.2 names both in one sentence, and later ones say NOPERM of both.
    ("one of the keys", Refusal::NoKey),
    ("permissions to access a key", Refusal::NoKey),
    ("NOPERM", Refusal::NoPerm),
    ("can't run this command", Refusal::NoPerm),
    ("CLUSTERDOWN", Refusal::ClusterDown),
    ("MOVED ", Refusal::Moved),
    ("ASK ", Refusal::Moved),
    ("CROSSSLOT", Refusal::Moved),
    ("TRYAGAIN", Refusal::Moved),
    ("non-local key", Refusal::Moved),
    ("max number of clients", Refusal::Clients),
    ("NOSCRIPT", Refusal::NoScript),
    ("refused to switch database", Refusal::Database),
    ("DB index", Refusal::Database),
    ("Script killed", Refusal::Busy),
    ("WRONGTYPE", Refusal::WrongType),
];

/// What stands in the text of a failed TLS connection, and what to do about it.
const TLS: [(&str, &str); 9] = [
    (
        "UnknownIssuer",
        "no CA that we trust has signed the server's certificate: set locks.redis.tls.ca",
    ),
    (
        "not valid for name",
        "the server's certificate is for another name than the one in the address",
    ),
    (
        "NotValidForName",
        "the server's certificate is for another name than the one in the address",
    ),
    (
        "expired",
        "the server's certificate has expired: renew it, or compare the clocks",
    ),
    (
        "CertificateRequired",
        "the server wants a client certificate: set locks.redis.tls.cert and locks.redis.tls.key",
    ),
    (
        "received fatal alert: ",
        "the server does not accept our certificate or our TLS: look at its log",
    ),
    (
        "invalid peer certificate",
        "the server's certificate is not acceptable: make it anew",
    ),
    (
        "corrupt message",
        "the server does not speak TLS at this port: use redis://, or its tls-port",
    ),
    (
        "peer is incompatible",
        "the server's TLS is too old: allow TLS 1.2 or 1.3 there",
    ),
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
        // The client keeps the server's own words to itself.
        ErrorKind::AuthenticationFailed => {
            return Trouble::Answered(refused(Refusal::WrongPass, &text));
        }
        ErrorKind::Io if error.is_timeout() => return Trouble::Slow,
        ErrorKind::Io => {
            return match tls(&text) {
                Some(why) => Trouble::Answered(NodeError::Tls(why)),
                None => Trouble::Broken(text),
            };
        }
        ErrorKind::Parse | ErrorKind::UnexpectedReturnType => {
            return Trouble::Broken(format!("not the protocol of Redis: {text}"));
        }
        _ => {}
    }
    // The library turns some codes into phrases of its own.
    let code = error.code().unwrap_or_default();
    let full = format!("{code} {}", error.detail().unwrap_or(&text));
    Trouble::Answered(match refusal(&full).or_else(|| refusal(&text)) {
        Some(refusal) => refused(refusal, &scrub.clean(full.trim_start())),
        None => NodeError::Protocol(text),
    })
}

/// What a server's error says, if it is one of those that servers are known to give.
pub(super) fn refusal(text: &str) -> Option<Refusal> {
    let found = WORDS.iter().find(|(word, _)| text.contains(word));
    found.map(|&(_, refusal)| refusal)
}

fn refused(refusal: Refusal, text: &str) -> NodeError {
    // What follows is the script's digest and line: of no use to the reader.
    let said = match text.rsplit_once(" script: ") {
        Some((said, place)) if place.contains(", on ") => said,
        _ => text,
    };
    let said = said.trim_end_matches(['.', ' ', ',']);
    NodeError::Refused {
        refusal,
        said: said.to_owned(),
    }
}

/// What a failed TLS connection means; `None` when it failed otherwise.
fn tls(text: &str) -> Option<String> {
    let found = TLS.iter().find(|(word, _)| text.contains(word));
    found.map(|(_, remedy)| format!("{remedy} ({text})"))
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
        // It broke under a request that had left.
        Trouble::Answered(NodeError::Tls(_)) => NodeError::Timeout(waited),
        Trouble::Answered(refusal) => refusal,
        Trouble::NoScript => forgotten(),
        Trouble::Slow | Trouble::Broken(_) => NodeError::Timeout(waited),
    }
}

/// The server does not know the script, and it is too late to send it again.
pub(super) fn forgotten() -> NodeError {
    refused(Refusal::NoScript, "NOSCRIPT")
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

    fn refused_as(line: &str) -> Refusal {
        match sorted(line) {
            Trouble::Answered(NodeError::Refused { refusal, .. }) => refusal,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn refusals_are_sorted_by_their_words() {
        for (line, refusal) in [
            ("NOAUTH Authentication required.", Refusal::NoAuth),
            (
                "WRONGPASS invalid username-password pair",
                Refusal::WrongPass,
            ),
            (
                "NOPERM this user has no permissions to run the 'zadd' command",
                Refusal::NoPerm,
            ),
            (
                "NOPERM this user has no permissions to access one of the keys used as arguments",
                Refusal::NoKey,
            ),
            ("NOPERM No permissions to access a key", Refusal::NoKey),
            (
                "NOPERM ACL failure in script: No permissions to access a key",
                Refusal::NoKey,
            ),
            (
                "NOPERM ACL failure in script: User a has no permissions to run the 'set' command",
                Refusal::NoPerm,
            ),
            (
                "LOADING Redis is loading the dataset in memory",
                Refusal::Loading,
            ),
            (
                "READONLY You can't write against a read only replica.",
                Refusal::ReadOnly,
            ),
            (
                "OOM command not allowed when used memory > 'maxmemory'.",
                Refusal::OutOfMemory,
            ),
            (
                "MISCONF Redis is configured to save RDB snapshots",
                Refusal::Misconf,
            ),
            ("BUSY Redis is busy running a script.", Refusal::Busy),
            (
                "NOREPLICAS Not enough good replicas to write.",
                Refusal::NoReplicas,
            ),
            ("CLUSTERDOWN Hash slot not served", Refusal::ClusterDown),
            ("MOVED 3999 127.0.0.1:6381", Refusal::Moved),
            ("ERR max number of clients reached", Refusal::Clients),
            (
                "WRONGTYPE Operation against a key holding the wrong kind of value",
                Refusal::WrongType,
            ),
            (
                "ERR Error running script (call to f_ab): @user_script:1: -READONLY You can't write",
                Refusal::ReadOnly,
            ),
        ] {
            assert_eq!(refused_as(line), refusal, "{line}");
        }
        assert_eq!(sorted("NOSCRIPT No matching script."), Trouble::NoScript);
        assert!(matches!(
            sorted("ERR unknown command"),
            Trouble::Answered(NodeError::Protocol(_))
        ));
    }

    #[test]
    fn a_refusal_says_what_to_do_and_not_where_in_the_script() {
        let line = "OOM command not allowed. script: 65e2, on @user_script:65.";
        let Trouble::Answered(error) = sorted(line) else {
            panic!("not answered")
        };
        assert_eq!(error.cause(), "oom");
        let text = error.to_string();
        assert!(
            text.contains("OOM") && text.contains("raise maxmemory"),
            "{text}"
        );
        assert!(!text.contains("user_script"), "{text}");
    }

    #[test]
    fn a_failed_tls_connection_says_what_to_do() {
        for (said, remedy) in [
            ("invalid peer certificate: UnknownIssuer", "tls.ca"),
            (
                "invalid peer certificate: certificate not valid for name \"a\"",
                "another name",
            ),
            ("received fatal alert: CertificateRequired", "tls.cert"),
            (
                "received corrupt message of type InvalidContentType",
                "redis://",
            ),
        ] {
            let error = RedisError::from(io::Error::other(said));
            match no_connection(&error, &Scrub::default()) {
                NodeError::Tls(why) => assert!(why.contains(remedy), "{why}"),
                other => panic!("{said}: {other:?}"),
            }
        }
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
        let Trouble::Answered(error) = sort(&server("WRONGPASS s3cret no"), &scrub) else {
            panic!("not an access error");
        };
        assert!(!format!("{error} {error:?}").contains("s3cret"));
        assert!(!format!("{scrub:?}").contains("s3cret"));
    }
}
