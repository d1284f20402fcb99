//! Answers to values.

use deadpool_redis::redis::Value;

use crate::node::{Admission, Answer, Doc, Eligibility, NodeError, Record, Token, Version, View};

/// Keys that are none of ours by their type are added to `misfits`.
pub(super) fn answer(value: Value, misfits: &mut Vec<String>) -> Result<Answer, NodeError> {
    // What needs no more words.
    if let Value::Int(number) = value {
        return match u64::try_from(number) {
            Ok(0) => Ok(Answer::Done),
            Ok(grant) => Ok(Answer::Granted {
                grant: Token(grant),
                record: Record::default(),
            }),
            Err(_) if number == -1 => Ok(Answer::Kept {
                version: Version::default(),
            }),
            Err(_) => Err(nonsense("an unknown kind of answer")),
        };
    }
    let mut f = Fields::of(value)?;
    Ok(match f.int()? {
        1 => Answer::Granted {
            grant: f.token()?,
            record: f.record()?,
        },
        2 => Answer::Kept {
            version: f.version()?,
        },
        3 => Answer::Healed {
            version: f.version()?,
        },
        4 => Answer::Larger(f.token()?),
        5 => Answer::Refused(view(f.next()?)?),
        6 => Answer::TooEarly { wall_ms: f.int()? },
        7 => Answer::Done,
        8 => Answer::View(view(f.next()?)?),
        9 => Answer::Views(f.list()?.into_iter().map(view).collect::<Result<_, _>>()?),
        10 => {
            let docs = f.list()?.into_iter().map(doc).collect::<Result<_, _>>()?;
            for key in f.list()? {
                misfits.push(Fields(vec![key].into_iter()).text()?);
            }
            Answer::Docs(docs)
        }
        11 => Answer::Broken(view(f.next()?)?),
        12 => Answer::Unadmitted,
        13 => Answer::Admission(Admission {
            incarnation: f.text()?,
            nonce: f.optional()?,
            admitted: f.int()? == 1,
            inc: f.text()?,
            config: f.optional()?,
            counter: f.token()?,
            memory_loss: match f.optional()?.filter(|at| !at.is_empty()) {
                Some(at) => Some(at.parse().map_err(|_| nonsense("a time out of range"))?),
                None => None,
            },
        }),
        _ => return Err(nonsense("an unknown kind of answer")),
    })
}

fn view(value: Value) -> Result<View, NodeError> {
    let mut f = Fields::of(value)?;
    let (key, holder) = (f.text()?, f.optional()?);
    // -1 is a key without a time to live, -2 no key.
    let remaining_ms = u64::try_from(f.int()?).ok();
    let (owner, seq, over) = (f.optional()?, f.unsigned()?, f.int()?);
    Ok(View {
        key,
        holder,
        remaining_ms,
        owner,
        seq,
        released: over == 1,
        broken: over == 2,
        token: f.token()?,
        record: f.record()?,
        ttl_ms: f.unsigned()?,
        named: f.int()? == 1,
        inc: f.text()?,
        foreign: f.int()? == 1,
        ahead: u32::try_from(f.int()?).ok(),
    })
}

fn doc(value: Value) -> Result<Doc, NodeError> {
    let mut f = Fields::of(value)?;
    Ok(Doc {
        name: f.text()?,
        rev: f.unsigned()?,
        body: f.text()?,
    })
}

/// The fields of one answer, taken from the left.
pub(super) struct Fields(std::vec::IntoIter<Value>);

impl Fields {
    pub(super) fn of(value: Value) -> Result<Self, NodeError> {
        match value {
            Value::Array(fields) => Ok(Self(fields.into_iter())),
            _ => Err(nonsense("not a list")),
        }
    }

    fn next(&mut self) -> Result<Value, NodeError> {
        self.0.next().ok_or_else(|| nonsense("a field is missing"))
    }

    pub(super) fn list(&mut self) -> Result<Vec<Value>, NodeError> {
        Self::of(self.next()?).map(|fields| fields.0.collect())
    }

    pub(super) fn int(&mut self) -> Result<i64, NodeError> {
        match self.next()? {
            Value::Int(int) => Ok(int),
            _ => Err(nonsense("not an integer")),
        }
    }

    pub(super) fn unsigned(&mut self) -> Result<u64, NodeError> {
        u64::try_from(self.int()?).map_err(|_| nonsense("a negative number"))
    }

    fn token(&mut self) -> Result<Token, NodeError> {
        self.unsigned().map(Token)
    }

    pub(super) fn eligibility(&mut self) -> Result<(Eligibility, Option<String>), NodeError> {
        let (eligibility, inc, config) = (self.int()?, self.text()?, self.text()?);
        Ok(match eligibility {
            1 => (Eligibility::Admitted, Some(inc)),
            2 => (Eligibility::Unadmitted, None),
            3 => (Eligibility::Configured(config), Some(inc)),
            _ => return Err(nonsense("an unknown eligibility")),
        })
    }

    fn version(&mut self) -> Result<Version, NodeError> {
        Ok(Version {
            token: self.token()?,
            rev: self.unsigned()?,
        })
    }

    fn record(&mut self) -> Result<Record, NodeError> {
        Ok(Record {
            version: self.version()?,
            body: self.text()?,
        })
    }

    fn text(&mut self) -> Result<String, NodeError> {
        self.optional()?
            .ok_or_else(|| nonsense("a text is missing"))
    }

    /// A stranger's value may be any bytes: it is shown, never compared, so losing some of it does no harm.
    fn optional(&mut self) -> Result<Option<String>, NodeError> {
        match self.next()? {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            _ => Err(nonsense("not a text")),
        }
    }
}

pub(super) fn nonsense(what: &str) -> NodeError {
    NodeError::Protocol(what.to_owned())
}
