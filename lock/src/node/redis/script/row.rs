//! What stands in the table of a lock: rows and bodies, as the scripts write them. Anything else is told to be malformed.

use crate::node::{NodeMs, Record, Token, Version, View, rules::LIMIT};

/// How a raw key is shown beside a row.
#[derive(Clone, Debug, Default)]
pub(super) struct Plain {
    /// What stands in it, whichever client wrote it.
    pub(super) value: Option<String>,
    /// What its life still is; `None` without a time to live.
    pub(super) left: Option<u64>,
}

/// A row as it stands.
pub(super) struct Row<'a> {
    pub(super) text: &'a [u8],
    /// Whether it is of the present incarnation.
    pub(super) named: bool,
}

/// What a row says, before it is known what time it is.
#[derive(Default)]
struct Shown {
    owner: Option<String>,
    /// Until when its owner counts as its holder.
    until: u64,
    view: View,
}

// === impl Row ===

impl Row<'_> {
    /// What it shows at this time of the node.
    pub(super) fn view(&self, key: &str, plain: Plain, at: NodeMs, raw: bool) -> View {
        let seen = match self.text.first() {
            None => Some(Shown::default()),
            Some(b'C') => self.claim(),
            Some(b'h' | b'r') => self.short(),
            Some(_) => self.record(),
        };
        let Some(Shown { owner, until, view }) = seen else {
            return View::malformed(key);
        };
        let key = key.to_owned();
        let foreign = plain.value.is_some() && plain.value != owner;
        if raw {
            return View {
                key,
                holder: plain.value,
                remaining_ms: plain.left,
                foreign,
                ..view
            };
        }
        let lives = until > at.0;
        View {
            key,
            holder: owner.filter(|_| lives),
            remaining_ms: lives.then(|| until - at.0),
            ..view
        }
    }

    fn claim(&self) -> Option<Shown> {
        Some(Shown {
            owner: Some(owner(self.text.get(46..)?)?),
            until: digits(self.text.get(17..30)?)?,
            view: View {
                token: Token(number(self.text.get(1..17)?)?),
                named: self.named,
                inc: inc(self.text.get(30..46)?),
                ..View::default()
            },
        })
    }

    /// A record without what few have.
    fn short(&self) -> Option<Shown> {
        let (owner, until) = (
            owner(self.text.get(72..)?)?,
            digits(self.text.get(17..30)?)?,
        );
        let released = self.text.first() == Some(&b'r');
        Some(Shown {
            owner: Some(owner.clone()),
            until: if released { 0 } else { until },
            view: View {
                owner: Some(owner),
                token: Token(number(self.text.get(1..17)?)?),
                ttl_ms: digits(self.text.get(30..40)?)?,
                seq: number(self.text.get(40..56)?)?,
                inc: inc(self.text.get(56..72)?),
                named: self.named,
                released,
                ..View::default()
            },
        })
    }

    fn record(&self) -> Option<Shown> {
        let state = *self.text.first()?;
        if !matches!(state, b'H' | b'R' | b'B') {
            return None;
        }
        let until = digits(self.text.get(33..46)?)?;
        _ = digits(self.text.get(46..59)?)?;
        let owner = Some(owner(self.text.get(133..)?)?);
        let view = View {
            owner: owner.clone(),
            token: Token(number(self.text.get(1..17)?)?),
            ttl_ms: digits(self.text.get(59..69)?)?,
            record: Record {
                version: version(self.text.get(69..101)?)?,
                body: String::new(),
            },
            seq: number(self.text.get(101..117)?)?,
            inc: inc(self.text.get(117..133)?),
            named: self.named,
            released: state == b'R',
            broken: state == b'B',
            ..View::default()
        };
        let until = if view.released { 0 } else { until };
        Some(Shown { owner, until, view })
    }
}

/// A body and its version; neither is there for none.
pub(super) fn body(version: &[u8], stored: &[u8]) -> Option<Record> {
    if version.is_empty() {
        return Some(Record::default());
    }
    Some(Record {
        version: self::version(version)?,
        body: text(stored),
    })
}

pub(super) fn version(stored: &[u8]) -> Option<Version> {
    Some(Version {
        token: Token(number(stored.get(..16)?)?),
        rev: number(stored.get(16..32)?)?,
    })
}

/// A number that can be counted with.
pub(super) fn number(stored: &[u8]) -> Option<u64> {
    digits(stored).filter(|number| *number < LIMIT)
}

/// Digits and nothing else.
pub(super) fn digits(stored: &[u8]) -> Option<u64> {
    if stored.is_empty() || !stored.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(stored).ok()?.parse().ok()
}

fn owner(stored: &[u8]) -> Option<String> {
    (!stored.is_empty()).then(|| text(stored))
}

/// A nonce without what it was brought to its length with.
pub(super) fn inc(stored: &[u8]) -> String {
    text(stored).trim_end_matches('-').to_owned()
}

/// A stranger's value may be any bytes: it is shown, never compared, so losing some of it does no harm.
pub(super) fn text(stored: &[u8]) -> String {
    String::from_utf8_lossy(stored).into_owned()
}
