//! Whether the user of a connection may do what locks need, found out before the first of them is asked for.

use deadpool_redis::redis::{Cmd, Value};

use super::script::Layout;
use crate::node::{NodeError, Refusal};

const SOURCE: &str = include_str!("rights.lua");

/// What a user may not do, in the words of `ACL SETUSER`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Missing(Vec<String>);

/// Asks the server what the user may not do.
pub(super) fn ask(layout: &Layout) -> Cmd {
    let mut cmd = Cmd::new();
    cmd.arg("EVAL").arg(SOURCE).arg(1).arg(&layout.table);
    cmd.arg(if layout.raw { "1" } else { "0" });
    cmd
}

// === impl Missing ===

impl Missing {
    /// Reads the server's answer. One that makes no sense says nothing: the calls will.
    pub(super) fn read(answer: &Value) -> Self {
        let Value::Array(words) = answer else {
            return Self::default();
        };
        let text = |word: &Value| match word {
            Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            _ => None,
        };
        Self(words.iter().filter_map(text).collect())
    }

    /// One right that was found missing otherwise.
    pub(super) fn of(word: &str) -> Self {
        Self(vec![word.to_owned()])
    }

    /// Adds one more.
    pub(super) fn add(&mut self, word: &str) {
        self.0.push(word.to_owned());
    }

    /// Splits off what locks can do without: announcements only save waiting.
    pub(super) fn split(self) -> (Self, Self) {
        let spare = |word: &String| word == "+publish" || word.starts_with('&');
        let (spare, needed) = self.0.into_iter().partition(spare);
        (Self(needed), Self(spare))
    }

    /// The rights, as one would write them.
    pub(super) fn words(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join(" "))
    }

    /// A refusal that names them.
    pub(super) fn refuse(&self) -> Result<(), NodeError> {
        match self.words() {
            None => Ok(()),
            Some(words) => Err(NodeError::Refused {
                refusal: Refusal::NoPerm,
                said: format!("NOPERM: the user lacks {words}"),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(words: &[&str]) -> Missing {
        let bulk = |word: &&str| Value::BulkString(word.as_bytes().to_vec());
        Missing::read(&Value::Array(words.iter().map(bulk).collect()))
    }

    #[test]
    fn what_is_missing_is_named_with_the_remedy() {
        let (needed, spare) = missing(&["+zadd", "+publish", "&{app}:2:ch"]).split();
        let text = needed.refuse().unwrap_err().to_string();
        assert!(
            text.contains("lacks +zadd:") && text.contains("ACL SETUSER"),
            "{text}"
        );
        assert_eq!(spare.words().unwrap(), "+publish &{app}:2:ch");
    }

    #[test]
    fn who_may_do_everything_and_who_answers_nonsense_is_let_in() {
        assert!(missing(&[]).refuse().is_ok());
        assert!(Missing::read(&Value::Int(3)).refuse().is_ok());
    }

    /// What a server takes in one piece from a client that it does not know yet; it hangs up on longer ones, and it
    /// would not be seen that the password is wrong.
    const STRANGERS_LIMIT: usize = 16 * 1024;

    #[test]
    fn a_server_takes_the_question_from_a_stranger() {
        assert!(SOURCE.len() < STRANGERS_LIMIT, "{}", SOURCE.len());
    }

    #[test]
    fn every_command_of_the_script_is_tried() {
        let script = concat!(
            include_str!("ops/acquire.lua"),
            include_str!("ops/release.lua"),
            include_str!("ops/prologue.lua"),
            include_str!("ops/rare.lua"),
            include_str!("ops/quick.lua"),
            include_str!("ops/loop.lua"),
        );
        for line in script.lines() {
            for call in line.split("call('").skip(1) {
                let command = call.split('\'').next().unwrap();
                let tried = format!("try('{command}'");
                assert!(SOURCE.contains(&tried), "{command}");
            }
        }
    }
}
