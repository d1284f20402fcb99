//! The names of a namespace's keys.
//!
//! Below `watchkeeper/NAMESPACE/` lie `node` (the counter's base and the guard's data), `lock/NAME` (a lock's row, its queue, and all
//! of its body but the text), `body/NAME` (that text), `doc/NAME` and `text/NAME` (a document, likewise), `news` (the last
//! releases, for those that watch it) and `swept`. Values are JSON that a person can read (`values.rs`); texts stand as they are.
//!
//! What goes is first written empty, so that its revision tells that it was there: a key that was deleted looks like one that never
//! was. Empty ones are deleted later, together with a writing of `swept`; a caller that has found a key missing compares
//! that as well.

use super::wire::{Bytes, Range};

/// The names of a namespace's keys.
#[derive(Debug)]
pub(super) struct Keys {
    prefix: String,
}

// === impl Keys ===

impl Keys {
    pub(super) fn new(namespace: &str) -> Self {
        Self {
            prefix: format!("watchkeeper/{namespace}/"),
        }
    }

    /// For people.
    pub(super) fn node_name(&self) -> String {
        format!("{}node", self.prefix)
    }

    pub(super) fn node(&self) -> Bytes {
        self.name("node", None)
    }

    pub(super) fn news(&self) -> Bytes {
        self.name("news", None)
    }

    pub(super) fn swept(&self) -> Bytes {
        self.name("swept", None)
    }

    /// Where nothing ever stands.
    pub(super) fn nothing(&self) -> Bytes {
        self.name("nothing", None)
    }

    pub(super) fn name(&self, kind: &str, name: Option<&str>) -> Bytes {
        let mut key = format!("{}{kind}", self.prefix);
        if let Some(name) = name {
            key.push('/');
            key.push_str(name);
        }
        Bytes(key.into_bytes())
    }

    /// All names of a kind from one up to another, which is left out.
    pub(super) fn range(&self, kind: &str, from: &str, to: Option<&str>, limit: usize) -> Range {
        let end = match to {
            Some(to) => self.name(kind, Some(to)),
            // The letter after '/'.
            None => Bytes(format!("{}{kind}0", self.prefix).into_bytes()),
        };
        Range {
            key: self.name(kind, Some(from)),
            range_end: Some(end),
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
            revision: 0,
        }
    }

    /// The name in a key of this kind; `None` where it is no text.
    pub(super) fn name_of<'k>(&self, kind: &str, key: &'k Bytes) -> Option<&'k str> {
        let name = std::str::from_utf8(&key.0)
            .ok()?
            .strip_prefix(&self.prefix)?;
        name.strip_prefix(kind)?.strip_prefix('/')
    }
}
