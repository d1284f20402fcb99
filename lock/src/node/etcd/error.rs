//! What an answer that is none means for a lock.

use std::{error::Error as _, time::Duration};

use super::wire::Refused;
use crate::node::{NodeError, Refusal};

/// Codes of gRPC, in which etcd says why.
mod code {
    pub(super) const INVALID_ARGUMENT: i64 = 3;
    pub(super) const PERMISSION_DENIED: i64 = 7;
    pub(super) const RESOURCE_EXHAUSTED: i64 = 8;
    pub(super) const FAILED_PRECONDITION: i64 = 9;
    pub(super) const OUT_OF_RANGE: i64 = 11;
    pub(super) const UNIMPLEMENTED: i64 = 12;
    pub(super) const DATA_LOSS: i64 = 15;
    pub(super) const UNAUTHENTICATED: i64 = 16;
}

/// Why a request was not answered as asked.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// It has not left, or was refused before anything was executed.
    Nothing(NodeError),
    /// Nothing was executed, and another member may serve.
    Elsewhere(NodeError),
    /// It may have been executed.
    Unknown(NodeError),
    /// The token of our user is of no use any more; nothing was executed.
    Token,
}

// === impl Trouble ===

impl Trouble {
    pub(super) fn error(self) -> NodeError {
        match self {
            Self::Nothing(why) | Self::Elsewhere(why) | Self::Unknown(why) => why,
            Self::Token => NodeError::Auth(
                "it wants a user: set locks.etcd.username and locks.etcd.password".to_owned(),
            ),
        }
    }

    /// The same, with the member that it is about.
    pub(super) fn at(self, member: &str) -> Self {
        match self {
            Self::Nothing(why) => Self::Nothing(named(why, member)),
            Self::Elsewhere(why) => Self::Elsewhere(named(why, member)),
            Self::Unknown(why) => Self::Unknown(named(why, member)),
            Self::Token => Self::Nothing(named(self.error(), member)),
        }
    }

    /// What a member said.
    pub(super) fn said(status: u16, refused: &Refused) -> Self {
        let text = match refused.message.is_empty() {
            true => &refused.error,
            false => &refused.message,
        };
        // Whoever answers may say what it likes.
        let text: String = text.chars().take(300).collect();
        let has = |words: &str| text.contains(words);
        let refused_as = |refusal| NodeError::Refused {
            refusal,
            said: text.clone(),
        };
        match refused.code {
            code::UNAUTHENTICATED => Self::Token,
            // Rights have changed meanwhile.
            code::INVALID_ARGUMENT if has("revision of auth store is old") => Self::Token,
            code::INVALID_ARGUMENT if has("invalid user ID or password") => {
                Self::Nothing(NodeError::Auth(format!(
                    "{text}; see locks.etcd.username and locks.etcd.password"
                )))
            }
            // It wants a user by now: the login tells more.
            code::INVALID_ARGUMENT if has("user name is empty") => Self::Token,
            // Of one that has just been added, or is cut off.
            _ if has("not capable") || has("not supported for learner") || has("no leader") => {
                Self::Elsewhere(NodeError::Unfit(text))
            }
            code::PERMISSION_DENIED => Self::Nothing(NodeError::Auth(format!(
                "{text}; let our user read and write what begins with `watchkeeper/` (`etcdctl role grant-permission ROLE \
                 readwrite watchkeeper/ --prefix`)"
            ))),
            code::RESOURCE_EXHAUSTED if has("space exceeded") => {
                Self::Nothing(refused_as(Refusal::OutOfMemory))
            }
            code::RESOURCE_EXHAUSTED if has("larger than max") => {
                Self::Nothing(NodeError::Protocol(text))
            }
            code::RESOURCE_EXHAUSTED => Self::Nothing(NodeError::Unfit(text)),
            code::INVALID_ARGUMENT => Self::Nothing(NodeError::Protocol(text)),
            code::OUT_OF_RANGE | code::FAILED_PRECONDITION | code::DATA_LOSS => {
                Self::Nothing(NodeError::Unfit(text))
            }
            // Other members may know it: a call went on to this one when the one before was away.
            code::UNIMPLEMENTED => Self::Elsewhere(refused_as(Refusal::Version)),
            // What came before it made sense.
            _ if status == 404 => Self::Elsewhere(NodeError::Refused {
                refusal: Refusal::Version,
                said: "no gateway of etcd 3.4 or later answers there".to_owned(),
            }),
            // "request timed out", "leader changed": it may still come to pass.
            _ if text.is_empty() => {
                Self::Unknown(NodeError::Unfit(format!("HTTP status {status}")))
            }
            _ => Self::Unknown(NodeError::Unfit(text)),
        }
    }

    /// What kept the request from its answer.
    pub(super) fn of(error: &reqwest::Error, limit: Duration) -> Self {
        let text = chain(error);
        if error.is_connect() {
            let trust = ["certificate", "tls", "TLS", "handshake"];
            // As a proxy does that has nowhere to pass it on to: that is no matter of certificates, and passes.
            let closed = text.contains("handshake eof");
            return Self::Elsewhere(match trust.iter().any(|word| text.contains(word)) {
                true if closed => NodeError::Unreachable(format!(
                    "{text}; or it speaks no TLS: see https:// in locks.etcd.endpoints"
                )),
                true => NodeError::Tls(text),
                false => NodeError::Unreachable(text),
            });
        }
        // Whatever broke, it may have been executed.
        Self::Unknown(NodeError::Timeout(limit))
    }
}

/// The error with the member that it is about, where it has room for a text.
fn named(why: NodeError, member: &str) -> NodeError {
    let at = |text: String| format!("{member}: {text}");
    match why {
        NodeError::Unreachable(text) => NodeError::Unreachable(at(text)),
        NodeError::Tls(text) => NodeError::Tls(at(text)),
        NodeError::Auth(text) => NodeError::Auth(at(text)),
        NodeError::Unfit(text) => NodeError::Unfit(at(text)),
        NodeError::Protocol(text) => NodeError::Protocol(at(text)),
        NodeError::Refused { refusal, said } => NodeError::Refused {
            refusal,
            said: at(said),
        },
        other => other,
    }
}

/// The error and its causes, without the address.
fn chain(error: &reqwest::Error) -> String {
    let mut texts = Vec::new();
    let mut cause = error.source();
    while let Some(inner) = cause {
        texts.push(inner.to_string());
        cause = inner.source();
    }
    if texts.is_empty() {
        texts.push("the connection broke".to_owned());
    }
    texts.dedup();
    let text = texts.join(": ");
    let of_another_ca = ["UnknownIssuer", "BadSignature"];
    match of_another_ca.iter().any(|word| text.contains(word)) {
        true => format!("{text}; name the file of its CA in locks.etcd.tls.ca"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(code: i64, message: &str) -> Trouble {
        Trouble::said(
            400,
            &Refused {
                code,
                message: message.to_owned(),
                ..Refused::default()
            },
        )
    }

    #[test]
    fn what_may_have_been_executed_is_told_apart_from_what_was_not() {
        let nothing = [
            (3, "etcdserver: request is too large"),
            (3, "etcdserver: too many operations in txn request"),
            (7, "etcdserver: permission denied"),
            (8, "etcdserver: mvcc: database space exceeded"),
            (11, "etcdserver: mvcc: required revision has been compacted"),
        ];
        for (code, message) in nothing {
            assert!(
                matches!(said(code, message), Trouble::Nothing(_)),
                "{message}"
            );
        }
        for message in [
            "etcdserver: request timed out",
            "etcdserver: leader changed",
            "",
        ] {
            assert!(
                matches!(said(14, message), Trouble::Unknown(_)),
                "{message}"
            );
        }
        assert!(matches!(
            said(14, "etcdserver: no leader"),
            Trouble::Elsewhere(_)
        ));
        assert!(matches!(
            said(16, "etcdserver: invalid auth token"),
            Trouble::Token
        ));
        let named = said(8, "etcdserver: mvcc: database space exceeded").at("http://a:2379");
        assert!(matches!(named, Trouble::Nothing(_)), "{named:?}");
        let full = named.error();
        assert!(full.to_string().starts_with("http://a:2379: "), "{full}");
        assert!(
            matches!(
                full,
                NodeError::Refused {
                    refusal: Refusal::OutOfMemory,
                    ..
                }
            ),
            "{full}"
        );
    }
}
