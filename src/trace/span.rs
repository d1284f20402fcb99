//! What is told of a piece of work that has ended.

use std::borrow::Cow;

use jiff::Timestamp;

use super::context::TraceContext;

/// A span that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) name: Cow<'static, str>,
    pub(crate) context: TraceContext,
    pub(crate) parent: Option<TraceContext>,
    /// What was tried before it, and is no part of it.
    pub(crate) follows: Option<TraceContext>,
    /// Whether something is asked that may have spans of its own.
    pub(crate) asks: bool,
    pub(crate) start: Timestamp,
    pub(crate) end: Timestamp,
    pub(crate) says: Vec<(&'static str, Value)>,
    /// A fixed word for what went wrong.
    pub(crate) failure: Option<&'static str>,
}

/// What a span says under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text, which is cut.
    Text(String),
    /// A number.
    Number(i64),
}

/// Characters of a text that are kept.
const LONGEST: usize = 200;

/// How a run has failed that ended with this word; none where it has not, or asks for another attempt.
pub(crate) fn failure(outcome: &'static str) -> Option<&'static str> {
    let well = matches!(outcome, "done" | "skipped" | "retry");
    (!well).then_some(outcome)
}

// === impl Value ===

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        match text.char_indices().nth(LONGEST) {
            Some((end, _)) => Self::Text(format!("{}\u{2026}", &text[..end])),
            None => Self::Text(text.to_owned()),
        }
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}
