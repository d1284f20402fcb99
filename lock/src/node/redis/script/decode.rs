//! Answers to values.

use std::sync::Arc;

use deadpool_redis::redis::Value;

use super::{
    encode::TIME,
    peer::Peer,
    row::{self, Plain, Row},
};
use crate::node::{
    Admission, Answer, Cursor, Doc, Eligibility, Life, NodeError, NodeMs, Op, Page, Record,
    Refusal, Token, Version, View, rules::LIMIT,
};

/// What has answered: whether it says how the node stands, or found it as the connection knows it.
#[derive(Clone, Copy)]
pub(super) enum Form {
    Whole,
    Short,
}

/// An answer to a call, taken apart.
pub(super) struct RawReply {
    pub(super) form: Form,
    /// The time on the node's clock.
    pub(super) at: u64,
    /// The answers, one for each operation.
    pub(super) found: Vec<Value>,
    pub(super) rest: Fields,
}

/// What all answers of a call have in common.
pub(super) struct Scene<'a> {
    at: NodeMs,
    table: &'a str,
    raw: bool,
    /// Keys that are none of ours by their type.
    pub(super) misfits: Vec<String>,
}

/// What an answer says of the marker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::node::redis) enum Marker {
    /// It is the one that was sent.
    Same,
    /// The server is admitted under this one, or under none.
    Now(Option<Arc<str>>),
}

// === impl Scene ===

impl<'a> Scene<'a> {
    pub(super) fn new(at: u64, table: &'a str, raw: bool) -> Self {
        Self {
            at: NodeMs(at),
            table,
            raw,
            misfits: Vec::new(),
        }
    }

    /// An answer that makes no sense is that of its operation alone.
    pub(super) fn answer(&mut self, value: Value, op: &Op) -> Answer {
        self.read(value, op).unwrap_or_else(Answer::Failed)
    }

    /// What stands in the table may be anything, and costs its own lock alone: it counts as held.
    fn read(&mut self, value: Value, op: &Op) -> Result<Answer, NodeError> {
        let refused = |key: &str| Answer::Refused(View::malformed(key));
        // What needs no more words.
        if let Value::Int(number) = value {
            return match (number, u64::try_from(number)) {
                (-1, _) => Ok(Answer::Kept {
                    version: Version::default(),
                }),
                (-2, _) => Ok(Answer::Unadmitted),
                (-5..-2, _) => Ok(Answer::Failed(self.refusal(number, key_of(op)))),
                (0, _) => Ok(Answer::Done),
                (_, Ok(grant)) if grant < LIMIT => Ok(Answer::Granted {
                    grant: Token(grant),
                    record: Record::default(),
                }),
                (_, Ok(_)) => Ok(refused(key_of(op))),
                (_, Err(_)) => Err(nonsense("an unknown kind of answer")),
            };
        }
        let key = key_of(op);
        let mut f = Fields::of(value)?;
        Ok(match f.int()? {
            1 => {
                let (grant, version, text) = (f.bytes()?, f.bytes()?, f.rest()?);
                match (row::number(&grant), row::body(&version, &text)) {
                    (Some(grant), Some(record)) => Answer::Granted {
                        grant: Token(grant),
                        record,
                    },
                    _ => refused(key),
                }
            }
            2 => match row::version(&f.bytes()?) {
                Some(version) => Answer::Kept { version },
                None => refused(key),
            },
            3 => match row::version(&f.bytes()?) {
                Some(version) => Answer::Healed { version },
                None => refused(key),
            },
            4 => match row::number(&f.bytes()?) {
                Some(grant) => Answer::Larger(Token(grant)),
                None => refused(key),
            },
            5 => Answer::Refused(self.view(key, &mut f)?),
            6 => Answer::TooEarly { wall_ms: f.int()? },
            8 => Answer::View(self.view(key, &mut f)?),
            9 => Answer::Page(self.page(&mut f)?),
            10 => {
                let docs = f.list()?.into_iter().map(doc).collect::<Result<_, _>>()?;
                self.misfits.extend(texts(f.list()?)?);
                Answer::Docs(docs)
            }
            14 => {
                let sum = f.unsigned()?;
                let part = |value| Fields(vec![value].into_iter()).unsigned();
                let parts = f.list()?.into_iter().map(part).collect::<Result<_, _>>()?;
                let docs = f.list()?.into_iter().map(life).collect::<Result<_, _>>()?;
                self.misfits.extend(texts(f.list_or_none()?)?);
                Answer::Lives { sum, parts, docs }
            }
            11 => Answer::Broken(self.view(key, &mut f)?),
            13 => Answer::Admission(admission(&mut f)?),
            _ => return Err(nonsense("an unknown kind of answer")),
        })
    }

    /// What the script has refused of one operation.
    fn refusal(&self, code: i64, key: &str) -> NodeError {
        let table = self.table;
        let (refusal, said) = match code {
            -4 => (Refusal::OutOfMemory, "OOM".to_owned()),
            -5 => {
                let said = format!("the body of `{key}` is not what {table} says");
                (Refusal::Damaged, said)
            }
            _ => {
                let said = match key.is_empty() {
                    true => format!("the counter in {table} is out of range"),
                    false => format!("a counter in {table} is out of range, for `{key}`"),
                };
                (Refusal::Damaged, said)
            }
        };
        NodeError::Refused { refusal, said }
    }

    fn view(&self, key: &str, f: &mut Fields) -> Result<View, NodeError> {
        let text = f.bytes()?;
        let named = f.int()? == 1;
        let ahead = u32::try_from(f.int()?).ok();
        let view = self.shown(key, &text, named, f)?;
        Ok(View { ahead, ..view })
    }

    /// A lock, with its body where it was asked for.
    fn shown(
        &self,
        key: &str,
        text: &[u8],
        named: bool,
        f: &mut Fields,
    ) -> Result<View, NodeError> {
        let (version, plain, body) = (f.bytes()?, f.plain()?, f.rest()?);
        let view = Row { text, named }.view(key, plain, self.at, self.raw);
        // The version of what is not shown stands in the record.
        Ok(match version.is_empty() {
            true => view,
            false => match row::body(&version, &body) {
                Some(record) => View { record, ..view },
                None => View::malformed(key),
            },
        })
    }

    fn page(&mut self, f: &mut Fields) -> Result<Page, NodeError> {
        let next = f.optional()?.map(Cursor);
        let mut views = Vec::new();
        for value in f.list()? {
            let mut f = Fields::of(value)?;
            let (key, text, named) = (f.text()?, f.bytes()?, f.int()? == 1);
            views.push(self.shown(&key, &text, named, &mut f)?);
        }
        let (mut bodies, mut damaged) = (Vec::new(), Vec::new());
        for value in f.list()? {
            let mut f = Fields::of(value)?;
            let (key, version, text) = (f.text()?, f.bytes()?, f.bytes()?);
            match row::body(&version, &text) {
                Some(record) => bodies.push((key, record)),
                None => damaged.push(key),
            }
        }
        let forgotten = u32::try_from(f.int()?).unwrap_or_default();
        let mut large = texts(f.list_or_none()?)?;
        // Asked for by itself, it is told to be damaged.
        large.append(&mut damaged);
        let docs = f.list_or_none()?.into_iter().map(doc);
        let docs = docs.collect::<Result<_, _>>()?;
        self.misfits.extend(texts(f.list_or_none()?)?);
        Ok(Page {
            next,
            views,
            bodies,
            docs,
            large,
            forgotten,
        })
    }
}

/// A short answer to a call of one operation in one text: the time, and the grant where it was an attempt.
pub(super) fn brief(text: &[u8]) -> Result<RawReply, NodeError> {
    let (at, grant) = text.split_at_checked(TIME).unwrap_or((text, &[]));
    let number = |digits| row::digits(digits).ok_or_else(|| nonsense("not a number"));
    let answer = match grant {
        [] => 0,
        grant => i64::try_from(number(grant)?).map_err(|_| nonsense("a number out of range"))?,
    };
    Ok(RawReply {
        form: Form::Short,
        at: number(at)?,
        found: vec![Value::Int(answer)],
        rest: Fields(Vec::new().into_iter()),
    })
}

/// Any other answer, to so many operations.
pub(super) fn told(value: Value, ops: usize) -> Result<RawReply, NodeError> {
    let mut rest = Fields::of(value)?;
    let (form, at) = (rest.int()?, rest.unsigned()?);
    let (form, found) = match form {
        0 => return Err(NodeError::Late { at: NodeMs(at) }),
        1 => (Form::Whole, rest.list()?),
        3 => (Form::Short, rest.runs(ops)?),
        _ => (Form::Short, vec![rest.next()?]),
    };
    Ok(RawReply {
        form,
        at,
        found,
        rest,
    })
}

/// The lock that an operation is about.
pub(super) fn key_of(op: &Op) -> &str {
    match op {
        Op::Acquire { key, .. }
        | Op::Leave { key, .. }
        | Op::Confirm { key, .. }
        | Op::Extend { key, .. }
        | Op::Release { key, .. }
        | Op::Break { key, .. }
        | Op::Write { key, .. }
        | Op::Read { key }
        | Op::Merge { key, .. }
        | Op::Forget { key, .. } => key,
        _ => "",
    }
}

fn texts(values: Vec<Value>) -> Result<Vec<String>, NodeError> {
    let text = |value: Value| Fields(vec![value].into_iter()).text();
    values.into_iter().map(text).collect()
}

fn doc(value: Value) -> Result<Doc, NodeError> {
    let mut f = Fields::of(value)?;
    Ok(Doc {
        name: f.text()?,
        rev: f.unsigned()?,
        body: f.text()?,
    })
}

fn life(value: Value) -> Result<Life, NodeError> {
    let mut f = Fields::of(value)?;
    Ok(Life {
        name: f.text()?,
        rev: f.unsigned()?,
        left_ms: f.unsigned()?,
    })
}

fn admission(f: &mut Fields) -> Result<Admission, NodeError> {
    let nonce = |stored: String| row::inc(stored.as_bytes());
    Ok(Admission {
        incarnation: f.text()?,
        nonce: f.optional()?.map(nonce),
        admitted: f.int()? == 1,
        inc: nonce(f.text()?),
        config: f.optional()?,
        counter: Token(f.unsigned()?),
        memory_loss: match f.optional()?.filter(|at| !at.is_empty()) {
            Some(at) => Some(at.parse().map_err(|_| nonsense("a time out of range"))?),
            None => None,
        },
        nominated_for: f.optional()?,
        marker: f.text()?,
        id: nonce(f.text()?),
        roster: f.text()?,
    })
}

/// The fields of one answer, taken from the left.
pub(super) struct Fields(std::vec::IntoIter<Value>);

impl Fields {
    fn of(value: Value) -> Result<Self, NodeError> {
        match value {
            Value::Array(fields) => Ok(Self(fields.into_iter())),
            _ => Err(nonsense("not a list")),
        }
    }

    fn next(&mut self) -> Result<Value, NodeError> {
        self.0.next().ok_or_else(|| nonsense("a field is missing"))
    }

    fn list(&mut self) -> Result<Vec<Value>, NodeError> {
        Self::of(self.next()?).map(|fields| fields.0.collect())
    }

    /// Answers, each followed by how often it comes; no more than there were operations.
    fn runs(&mut self, ops: usize) -> Result<Vec<Value>, NodeError> {
        let mut all = Vec::with_capacity(ops);
        while let Some(answer) = self.0.next() {
            let times = usize::try_from(self.unsigned()?).unwrap_or(usize::MAX);
            if times > ops - all.len() {
                return Err(nonsense("more answers than operations"));
            }
            all.extend(std::iter::repeat_n(answer, times));
        }
        Ok(all)
    }

    /// What is left out at the end is empty.
    fn list_or_none(&mut self) -> Result<Vec<Value>, NodeError> {
        match self.0.as_slice().is_empty() {
            true => Ok(Vec::new()),
            false => self.list(),
        }
    }

    fn int(&mut self) -> Result<i64, NodeError> {
        match self.next()? {
            Value::Int(int) => Ok(int),
            _ => Err(nonsense("not an integer")),
        }
    }

    fn unsigned(&mut self) -> Result<u64, NodeError> {
        u64::try_from(self.int()?).map_err(|_| nonsense("a negative number"))
    }

    /// Of a call of many operations.
    pub(super) fn eligibility(
        &mut self,
        sent_to: &Peer,
    ) -> Result<(Eligibility, Marker), NodeError> {
        let (eligibility, marker, config) = (self.int()?, self.text()?, self.text()?);
        Ok(match eligibility {
            0 => (Eligibility::Unguarded, Marker::Now(None)),
            1 => match &sent_to.marker {
                Some(same) if **same == *marker => {
                    (Eligibility::Admitted(same.clone()), Marker::Same)
                }
                _ => {
                    let marker = Arc::<str>::from(marker);
                    let admitted = Eligibility::Admitted(marker.clone());
                    (admitted, Marker::Now(Some(marker)))
                }
            },
            2 => (Eligibility::Unadmitted, Marker::Now(None)),
            // Asked for again with the next call, which tells its configuration, too.
            3 => (Eligibility::Configured(config), Marker::Now(None)),
            _ => return Err(nonsense("an unknown eligibility")),
        })
    }

    /// Of a call that one of the short scripts has answered: they are sent only to servers that were admitted.
    pub(super) fn short_eligibility(
        &self,
        answers: &[Answer],
        sent_to: &Peer,
    ) -> (Eligibility, Marker) {
        match &sent_to.marker {
            Some(same) if !answers.contains(&Answer::Unadmitted) && self.0.len() == 0 => {
                (Eligibility::Admitted(same.clone()), Marker::Same)
            }
            _ => (Eligibility::Unadmitted, Marker::Now(None)),
        }
    }

    /// -1 is a key without a time to live, -2 no key.
    fn plain(&mut self) -> Result<Plain, NodeError> {
        Ok(Plain {
            value: self.optional()?,
            left: u64::try_from(self.int()?).ok(),
        })
    }

    fn bytes(&mut self) -> Result<Vec<u8>, NodeError> {
        match self.next()? {
            Value::BulkString(bytes) => Ok(bytes),
            _ => Err(nonsense("not a text")),
        }
    }

    /// What may be left out at the end.
    fn rest(&mut self) -> Result<Vec<u8>, NodeError> {
        match self.0.as_slice().is_empty() {
            true => Ok(Vec::new()),
            false => self.bytes(),
        }
    }

    fn text(&mut self) -> Result<String, NodeError> {
        self.optional()?
            .ok_or_else(|| nonsense("a text is missing"))
    }

    fn optional(&mut self) -> Result<Option<String>, NodeError> {
        match self.next()? {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(row::text(&bytes))),
            _ => Err(nonsense("not a text")),
        }
    }
}

pub(super) fn nonsense(what: &str) -> NodeError {
    NodeError::Protocol(what.to_owned())
}
