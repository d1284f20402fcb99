//! What stands under the keys, as it is written and as it is read: JSON that a person can read. What makes no sense costs its own
//! lock or document.

use std::time::Duration;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::wire::{Bytes, KeyValue};
use crate::node::{
    NodeMs, Token, Version,
    columns::{Columns, columns_of, int, queue_of, ttl_ms},
    rules::{LAST, LIMIT, Row, Waiter, ceil_ms},
    sheet::{SheetBody, SheetDoc, Text},
};

/// Raised whenever the keys change in a way that an older program would not understand.
pub(super) const LAYOUT: u64 = 1;
/// By so much the counter grows with each revision: by more than one step can grant, so that no step has to raise it by hand.
pub(super) const ROOM: i64 = 64;
/// No queue of ours is longer.
const LONG: usize = 1024 * 1024;

/// What stands under `node`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeValue {
    pub(super) layout: u64,
    /// The counter is this and [`ROOM`] times the revision.
    pub(super) base: i64,
    pub(super) gate: String,
}

/// What stands under `node`, as it was read.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) layout: Option<u64>,
    pub(super) base: i64,
    pub(super) gate: String,
    /// Another one when the key was made again.
    pub(super) made: i64,
    pub(super) changed: i64,
}

/// What stands under `lock/NAME`. Each part stays as it is when another one is written, whatever it holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LockValue {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) row: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) body: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) queue: Option<Value>,
}

#[derive(Serialize)]
struct RowValue<'r> {
    state: &'static str,
    owner: &'r str,
    granted: u64,
    inc: &'r str,
    until: u64,
    seq: u64,
    ttl: u64,
    counter: u64,
    token: u64,
    rev: u64,
    waits: u64,
}

/// What stands under `doc/NAME`.
#[derive(Serialize, Deserialize)]
struct DocValue {
    rev: u64,
    ttl: u64,
    until: u64,
}

// === impl Head ===

impl Head {
    /// The largest counter of what is gone: no grant was made that this does not reach. Out of range where the base makes no sense.
    pub(super) fn forgotten(&self, revision: i64) -> Token {
        let counter = self.base.saturating_add(revision.saturating_mul(ROOM));
        let counter = u64::try_from(counter).unwrap_or(LIMIT);
        Token(counter.min(LIMIT))
    }

    /// The base with which the counter reaches `counter` when something has been written after this revision.
    pub(super) fn base_for(&self, counter: Token, revision: i64) -> i64 {
        let reached = revision.saturating_add(1).saturating_mul(ROOM);
        let needed = int(counter.0).saturating_sub(reached);
        match self.forgotten(revision) <= LAST {
            true => self.base.max(needed),
            // One that makes no sense is taken anew.
            false => needed.saturating_add(ROOM),
        }
    }

    /// Whether this program understands the keys.
    pub(super) fn is_known(&self) -> bool {
        self.layout == Some(LAYOUT)
    }
}

// === writing ===

pub(super) fn json(value: &impl Serialize) -> Bytes {
    // Numbers and texts only: nothing that cannot be written.
    Bytes(serde_json::to_vec(value).unwrap_or_default())
}

pub(super) fn row_value(row: &Row) -> Value {
    let Some((state, entry)) = columns_of(row) else {
        // It is never put: it stays as it is.
        return Value::Null;
    };
    let value = RowValue {
        state,
        owner: &entry.owner,
        granted: entry.grant.0,
        inc: &entry.inc,
        until: entry.until.0,
        seq: entry.seq,
        ttl: ttl_ms(entry.ttl),
        counter: entry.counter.0,
        token: entry.version.token.0,
        rev: entry.version.rev,
        waits: entry.waits.0,
    };
    serde_json::to_value(value).unwrap_or_default()
}

pub(super) fn body_value(body: &SheetBody) -> Value {
    let mut value = serde_json::Map::new();
    value.insert("token".to_owned(), body.version.token.0.into());
    value.insert("rev".to_owned(), body.version.rev.into());
    if let Some(until) = body.until {
        value.insert("until".to_owned(), until.0.into());
    }
    Value::Object(value)
}

/// A body that is damaged keeps all but its end.
pub(super) fn with_end(value: Option<Value>, until: Option<NodeMs>) -> Option<Value> {
    let mut value = value?;
    if let Some(object) = value.as_object_mut() {
        object.remove("until");
        if let Some(until) = until {
            object.insert("until".to_owned(), until.0.into());
        }
    }
    Some(value)
}

/// A document but for its text.
pub(super) fn doc_json(doc: &SheetDoc) -> Bytes {
    json(&DocValue {
        rev: doc.rev,
        ttl: ceil_ms(doc.ttl),
        until: doc.until.0,
    })
}

// === what was read ===

/// An object; a list of the right length is none.
fn object<T: DeserializeOwned>(value: &Bytes) -> Option<T> {
    let value: serde_json::Map<String, Value> = serde_json::from_slice(&value.0).ok()?;
    serde_json::from_value(Value::Object(value)).ok()
}

pub(super) fn head(kv: &KeyValue) -> Head {
    let value: Option<NodeValue> = object(&kv.value);
    let changed = kv.mod_revision;
    let made = kv.create_revision;
    match value {
        Some(value) => Head {
            layout: Some(value.layout),
            base: value.base,
            gate: value.gate,
            made,
            changed,
        },
        None => Head {
            layout: None,
            base: 0,
            gate: String::new(),
            made,
            changed,
        },
    }
}

pub(super) fn lock_value(kv: &KeyValue) -> LockValue {
    match kv.value.0.is_empty() {
        true => LockValue::default(),
        // What something else has written counts as a row that makes no sense, and stays.
        false => object(&kv.value).unwrap_or_else(|| LockValue {
            row: Some(Value::String(
                String::from_utf8_lossy(&kv.value.0).into_owned(),
            )),
            ..LockValue::default()
        }),
    }
}

pub(super) fn queue(value: &LockValue) -> Vec<Waiter> {
    let queue = value.queue.as_ref().and_then(Value::as_str);
    let queue = queue.filter(|queue| queue.len() <= LONG).map(queue_of);
    queue.unwrap_or_default()
}

pub(super) fn row(value: &Value) -> Row {
    let number = |name: &str| value.get(name).and_then(Value::as_u64);
    let text = |name: &str| {
        let text = value.get(name).and_then(Value::as_str);
        text.filter(|text| text.len() <= 4096).map(str::to_owned)
    };
    let columns = Columns {
        state: text("state"),
        owner: text("owner"),
        granted: number("granted"),
        inc: text("inc"),
        until: number("until"),
        seq: number("seq"),
        ttl: number("ttl"),
        counter: number("counter"),
        token: number("token"),
        rev: number("rev"),
        waits: number("waits"),
    };
    columns.row()
}

/// A lock's body. `text` is its own, if that was asked for.
pub(super) fn body(value: &LockValue, text: Option<Option<&KeyValue>>) -> Option<SheetBody> {
    let head = value.body.as_ref()?;
    let number = |name: &str| head.get(name).and_then(Value::as_u64);
    let below = |name: &str| number(name).filter(|number| *number < LIMIT);
    let (token, rev) = (below("token"), below("rev"));
    let text = match text {
        None => Some(Text::Unread),
        Some(kv) => kv.and_then(text_of).map(Text::Read),
    };
    let (damaged, version, text) = match (token, rev, text) {
        (Some(token), Some(rev), Some(text)) => {
            let token = Token(token);
            (false, Version { token, rev }, text)
        }
        _ => (true, Version::default(), Text::Unread),
    };
    Some(SheetBody {
        version,
        text,
        // An end that makes no sense is none: it is kept until a sweep gives it another.
        until: number("until").map(NodeMs),
        damaged,
    })
}

fn text_of(kv: &KeyValue) -> Option<String> {
    String::from_utf8(kv.value.0.clone()).ok()
}

/// A document but for its text; none where something else has changed it: it counts as absent.
pub(super) fn doc_value(kv: &KeyValue) -> Option<SheetDoc> {
    let value: DocValue = object(&kv.value)?;
    Some(SheetDoc {
        rev: Some(value.rev).filter(|rev| *rev < LIMIT)?,
        ttl: Duration::from_millis(value.ttl),
        until: NodeMs(value.until),
        text: Text::Unread,
    })
}

pub(super) fn with_text(doc: SheetDoc, text: Option<&KeyValue>) -> Option<SheetDoc> {
    let text = Text::Read(text_of(text?)?);
    Some(SheetDoc { text, ..doc })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_revision(base: i64) -> Head {
        Head {
            layout: Some(LAYOUT),
            base,
            gate: String::new(),
            made: 1,
            changed: 1,
        }
    }

    #[test]
    fn the_counter_grows_with_the_revision_and_is_raised_where_it_falls_short() {
        let head = at_revision(-ROOM * 10);
        assert_eq!(head.forgotten(10), Token(0));
        assert_eq!(head.forgotten(12), Token(2 * 64));
        // What one step can grant is reached by its own revision.
        assert_eq!(head.base_for(Token(2 * 64 + 64), 12), head.base);
        let raised = at_revision(head.base_for(Token(1_000_000), 12));
        assert_eq!(raised.forgotten(13), Token(1_000_000));
        // One that makes no sense shows, and is taken anew.
        for nonsense in [i64::MAX, i64::MIN, -ROOM * 13] {
            let head = at_revision(nonsense);
            assert!(head.forgotten(12) > LAST, "{nonsense}");
            let mended = at_revision(head.base_for(Token(5_000), 12));
            assert_eq!(mended.forgotten(12), Token(5_000));
        }
    }
}
