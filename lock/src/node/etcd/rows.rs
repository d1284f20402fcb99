//! The keys of a namespace: what is read before a call, and what is compared and written after it.
//!
//! Below `watchkeeper/NAMESPACE/` lie `node` (the counter's base and the guard's data), `lock/NAME` (a lock's row, its queue, and all
//! of its body but the text), `body/NAME` (that text), `doc/NAME` and `text/NAME` (a document, likewise), `news` (the last
//! releases, for those that watch it) and `swept`. Values are JSON that a person can read; texts stand as they are.
//!
//! What goes is first written empty, so that its revision tells that it was there: a key that was deleted looks like one that never
//! was. Empty ones are deleted later, together with a writing of `swept`; whoever has found a key missing compares that as well.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::wire::{
    Bytes, Compare, DeleteRange, Found, Is, KeyValue, Put, Range as WireRange, Step, Target,
};
use crate::node::{
    NodeMs, Token, Version,
    columns::{Columns, columns_of, int, queue_of, queue_text, ttl_ms},
    rules::{LAST, LIMIT, Row, Waiter, ceil_ms},
    sheet::{Changes, Part, Range, Sheet, SheetBody, SheetDoc, Text, Wanted},
};

/// Raised whenever the keys change in a way that an older program would not understand.
const LAYOUT: u64 = 1;
/// By so much the counter grows with each revision: by more than one step can grant, so that no step has to raise it by hand.
pub(super) const ROOM: i64 = 64;
/// Texts that are read ahead of the rules.
const AHEAD: usize = 16;
/// No queue of ours is longer.
const LONG: usize = 1024 * 1024;

/// The names of a namespace's keys.
#[derive(Debug)]
pub(super) struct Keys {
    prefix: String,
}

/// What stands under `node`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct NodeValue {
    layout: u64,
    /// The counter is this and [`ROOM`] times the revision.
    base: i64,
    gate: String,
}

/// What stands under `node`, as it was read.
#[derive(Clone, Debug)]
pub(super) struct Head {
    pub(super) layout: Option<u64>,
    base: i64,
    pub(super) gate: String,
    /// Another one when the key was made again.
    pub(super) made: i64,
    changed: i64,
}

/// What stands under `lock/NAME`. Each part stays as it is when another one is written, whatever it holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct LockValue {
    #[serde(skip_serializing_if = "Option::is_none")]
    row: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<Value>,
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

/// A key as it was read.
#[derive(Clone, Debug, Default)]
struct Stood<T> {
    value: T,
    /// When it was written; 0 where it does not stand.
    changed: i64,
    /// It was asked for by its name: what becomes of the call may depend on it.
    asked: bool,
}

/// What a call has read of a namespace, at one revision.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) revision: i64,
    pub(super) head: Option<Head>,
    locks: BTreeMap<String, Stood<LockValue>>,
    docs: BTreeMap<String, Stood<Option<SheetDoc>>>,
}

/// Something that stands under a key of ours and makes no sense as a whole.
#[derive(Debug)]
pub(super) struct Unreadable(pub(super) String);

/// What is read, in this order.
pub(super) struct Reads {
    wanted: Wanted,
    /// The rules go through texts from here on.
    texts_from: Option<(bool, String)>,
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

    /// What is there before the first call, at about this revision: counters begin small.
    pub(super) fn first_node(&self, revision: i64) -> Put {
        let value = NodeValue {
            layout: LAYOUT,
            base: revision.saturating_mul(ROOM).saturating_neg(),
            gate: String::new(),
        };
        self.put_node(&value)
    }

    /// Goes with each deletion: when the last one began.
    pub(super) fn sweep(&self, now: NodeMs) -> Put {
        Put {
            key: self.swept(),
            value: Bytes::from(&*now.0.to_string()),
        }
    }

    fn put_node(&self, value: &NodeValue) -> Put {
        Put {
            key: self.node(),
            value: json(value),
        }
    }

    fn name(&self, kind: &str, name: Option<&str>) -> Bytes {
        let mut key = format!("{}{kind}", self.prefix);
        if let Some(name) = name {
            key.push('/');
            key.push_str(name);
        }
        Bytes(key.into_bytes())
    }

    /// All names of a kind from one up to another, which is left out.
    fn range(&self, kind: &str, from: &str, to: Option<&str>, limit: usize) -> WireRange {
        let end = match to {
            Some(to) => self.name(kind, Some(to)),
            // The letter after '/'.
            None => Bytes(format!("{}{kind}0", self.prefix).into_bytes()),
        };
        WireRange {
            key: self.name(kind, Some(from)),
            range_end: Some(end),
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
            revision: 0,
        }
    }

    /// The name in a key of this kind; `None` where it is no text.
    fn name_of<'k>(&self, kind: &str, key: &'k Bytes) -> Option<&'k str> {
        let name = std::str::from_utf8(&key.0)
            .ok()?
            .strip_prefix(&self.prefix)?;
        name.strip_prefix(kind)?.strip_prefix('/')
    }

    // --- reading ---

    /// The first reads of a call.
    pub(super) fn first_reads(&self, wanted: Wanted) -> Reads {
        Reads {
            wanted,
            texts_from: None,
        }
    }

    /// The steps that read, the head first. `at` is the revision of what was read before.
    pub(super) fn steps(&self, reads: &Reads, at: i64) -> Vec<Step> {
        let mut all = Vec::new();
        let mut ask = |mut range: WireRange| {
            range.revision = at;
            all.push(Step::Range(range));
        };
        let one = |key: Bytes| WireRange {
            key,
            ..WireRange::default()
        };
        ask(one(self.node()));
        for (name, part) in &reads.wanted.locks {
            ask(one(self.name("lock", Some(name))));
            if *part == Part::Text {
                ask(one(self.name("body", Some(name))));
            }
        }
        for range in &reads.wanted.names {
            ask(self.range("lock", &range.from, range.to.as_deref(), range.count));
            if range.texts {
                ask(self.range("body", &range.from, range.to.as_deref(), ahead(range)));
            }
        }
        for name in &reads.wanted.docs {
            ask(one(self.name("doc", Some(name))));
            ask(one(self.name("text", Some(name))));
        }
        for range in &reads.wanted.doc_names {
            ask(self.range("doc", &range.from, range.to.as_deref(), range.count));
            if range.texts {
                ask(self.range("text", &range.from, range.to.as_deref(), ahead(range)));
            }
        }
        if let Some((of_docs, from)) = &reads.texts_from {
            let kind = if *of_docs { "text" } else { "body" };
            ask(self.range(kind, from, None, AHEAD));
        }
        all
    }

    /// Puts the answers to [`Keys::steps`] into the sheet.
    pub(super) fn fill(
        &self,
        sheet: &mut Sheet,
        view: &mut View,
        reads: &Reads,
        answers: &[Found],
    ) -> Result<(), Unreadable> {
        let mut answers = answers.iter();
        let mut next = || {
            let answer = answers.next();
            answer.ok_or_else(|| Unreadable("fewer answers than questions".to_owned()))
        };
        let head = next()?.kvs.first().map(head);
        view.head = view.head.take().or(head);
        for (name, part) in &reads.wanted.locks {
            let stood = stood(next()?.kvs.first(), true);
            let text = match part {
                Part::Text => Some(next()?.kvs.first()),
                Part::Row | Part::Whole => None,
            };
            add_lock(sheet, name, &stood.value, text);
            view.locks.insert(name.clone(), stood);
        }
        for range in &reads.wanted.names {
            let found = next()?;
            let texts = match range.texts {
                true => &next()?.kvs[..],
                false => &[],
            };
            for kv in &found.kvs {
                let Some(name) = self.name_of("lock", &kv.key) else {
                    continue;
                };
                // What was asked for by its name stays so.
                if !view.locks.contains_key(name) {
                    let stood = stood(Some(kv), false);
                    add_lock(sheet, name, &stood.value, None);
                    view.locks.insert(name.to_owned(), stood);
                }
            }
            let last = self.last("lock", &found.kvs)?;
            sheet.knows_rows(range, found.kvs.len(), last);
            sheet.knows_bodies(range, found.kvs.len(), last);
            self.add_texts(sheet, view, texts);
        }
        for name in &reads.wanted.docs {
            let stood = stood_doc(next()?.kvs.first(), true);
            let text = next()?.kvs.first();
            let doc = stood.value.clone().and_then(|doc| with_text(doc, text));
            sheet.add_doc(name, doc);
            view.docs.insert(name.clone(), stood);
        }
        for range in &reads.wanted.doc_names {
            let found = next()?;
            let texts = match range.texts {
                true => &next()?.kvs[..],
                false => &[],
            };
            for kv in &found.kvs {
                let Some(name) = self.name_of("doc", &kv.key) else {
                    continue;
                };
                if !view.docs.contains_key(name) {
                    let stood = stood_doc(Some(kv), false);
                    sheet.add_doc(name, stood.value.clone());
                    view.docs.insert(name.to_owned(), stood);
                }
            }
            let last = self.last("doc", &found.kvs)?;
            sheet.knows_docs(range, found.kvs.len(), last);
            self.add_doc_texts(sheet, view, texts);
        }
        if let Some((of_docs, _)) = &reads.texts_from {
            let texts = &next()?.kvs;
            match of_docs {
                true => self.add_doc_texts(sheet, view, texts),
                false => self.add_texts(sheet, view, texts),
            }
        }
        Ok(())
    }

    fn add_texts(&self, sheet: &mut Sheet, view: &View, texts: &[KeyValue]) {
        for kv in texts {
            if let Some(name) = self.name_of("body", &kv.key)
                && let Some(stood) = view.locks.get(name)
            {
                sheet.add_body(name, body(&stood.value, Some(Some(kv))));
            }
        }
    }

    fn add_doc_texts(&self, sheet: &mut Sheet, view: &View, texts: &[KeyValue]) {
        for kv in texts {
            if let Some(name) = self.name_of("text", &kv.key)
                && let Some(stood) = view.docs.get(name)
                && let Some(doc) = &stood.value
            {
                sheet.add_doc(name, with_text(doc.clone(), Some(kv)));
            }
        }
    }

    /// The last name of a page.
    fn last<'k>(&self, kind: &str, kvs: &'k [KeyValue]) -> Result<Option<&'k str>, Unreadable> {
        match kvs.iter().rev().find_map(|kv| self.name_of(kind, &kv.key)) {
            None if !kvs.is_empty() => {
                Err(Unreadable("a page of names that are no text".to_owned()))
            }
            last => Ok(last),
        }
    }

    // --- writing ---

    /// What is compared and what is written. Nothing that the call goes by may have changed: a key that stood has the revision that
    /// it had, and one that did not stand, still not, and nothing was swept meanwhile.
    pub(super) fn write(
        &self,
        view: &View,
        changes: &Changes<'_>,
        gate: Option<String>,
        news: Option<String>,
    ) -> (Vec<Compare>, Vec<Step>) {
        let mut written = BTreeMap::new();
        let rows = changes.rows.iter().chain(&changes.replaced_rows);
        for (name, row) in rows {
            let value = row.map(row_value);
            self.lock(view, &mut written, name).row = value;
        }
        let mut steps = Vec::new();
        for (name, body) in &changes.bodies {
            let key = self.name("body", Some(name));
            match body.map(|body| &body.text) {
                Some(Text::New(text)) => steps.push(put(key, Bytes::from(&**text))),
                Some(Text::Read(_) | Text::Unread) => {}
                // Its head says that it is gone.
                None => steps.push(Step::Delete(DeleteRange { key })),
            }
            let stood = self.lock(view, &mut written, name);
            stood.body = match body {
                // Its version may be damaged, and stays as it is.
                Some(body) if body.damaged => with_end(stood.body.take(), body.until),
                Some(body) => Some(body_value(body)),
                None => None,
            };
        }
        for (name, queue) in &changes.queues {
            let text = queue.map(|queue| Value::String(queue_text(queue)));
            self.lock(view, &mut written, name).queue = text;
        }
        let mut compare = vec![at(
            self.node(),
            view.head.as_ref().map_or(0, |head| head.changed),
        )];
        for (name, value) in &written {
            let nothing = value.row.is_none() && value.body.is_none() && value.queue.is_none();
            let value = match nothing {
                true => Bytes::default(),
                false => json(value),
            };
            steps.push(put(self.name("lock", Some(name)), value));
        }
        let asked = |stood: &Stood<LockValue>| stood.asked;
        for (name, stood) in &view.locks {
            if asked(stood) || written.contains_key(&**name) {
                compare.push(at(self.name("lock", Some(name)), stood.changed));
            }
        }
        // Known to be missing, by a range.
        for name in written
            .keys()
            .filter(|name| !view.locks.contains_key(**name))
        {
            compare.push(at(self.name("lock", Some(name)), 0));
        }
        let mut docs = Vec::new();
        for (name, doc) in &changes.docs {
            docs.push(*name);
            let text = self.name("text", Some(name));
            let (value, text) = match doc {
                Some(doc) => {
                    let value = DocValue {
                        rev: doc.rev,
                        ttl: ceil_ms(doc.ttl),
                        until: doc.until.0,
                    };
                    let text = match &doc.text {
                        Text::New(new) => Some(put(text, Bytes::from(&**new))),
                        Text::Read(_) | Text::Unread => None,
                    };
                    (json(&value), text)
                }
                None => (
                    Bytes::default(),
                    Some(Step::Delete(DeleteRange { key: text })),
                ),
            };
            steps.push(put(self.name("doc", Some(name)), value));
            steps.extend(text);
        }
        for (name, stood) in &view.docs {
            if stood.asked || docs.contains(&&**name) {
                compare.push(at(self.name("doc", Some(name)), stood.changed));
            }
        }
        for name in docs.iter().filter(|name| !view.docs.contains_key(**name)) {
            compare.push(at(self.name("doc", Some(name)), 0));
        }
        if let Some(head) = &view.head {
            let base = changes
                .forgotten
                .map_or(head.base, |counter| head.base_for(counter, view.revision));
            // The counter is raised by whatever is written, and by this where nothing is.
            if base != head.base || gate.is_some() || (steps.is_empty() && news.is_none()) {
                let value = NodeValue {
                    layout: LAYOUT,
                    base,
                    gate: gate.unwrap_or_else(|| head.gate.clone()),
                };
                steps.push(Step::Put(self.put_node(&value)));
            }
        }
        if let Some(news) = news {
            steps.push(put(self.news(), Bytes::from(&*news)));
        }
        if compare.iter().any(|one| one.mod_revision == 0) {
            compare.push(Compare {
                key: self.swept(),
                target: Target::Mod,
                result: Is::Less,
                mod_revision: view.revision + 1,
            });
        }
        (compare, steps)
    }

    fn lock<'w, 'n>(
        &self,
        view: &View,
        written: &'w mut BTreeMap<&'n str, LockValue>,
        name: &'n str,
    ) -> &'w mut LockValue {
        written.entry(name).or_insert_with(|| {
            let stood = view.locks.get(name);
            stood.map(|stood| stood.value.clone()).unwrap_or_default()
        })
    }

    // --- cleaning ---

    /// The next keys of a kind, for one who cleans.
    pub(super) fn to_clean(&self, kind: &str, from: &str, count: usize) -> WireRange {
        self.range(kind, from, None, count)
    }

    /// What of these keys is to be deleted: what was written empty, and documents and queues that have ended. And where to go on.
    pub(super) fn cleaned(
        &self,
        kind: &str,
        found: &Found,
        now: NodeMs,
    ) -> (Vec<(Compare, Vec<Step>)>, Option<String>) {
        let mut all = Vec::new();
        let mut last = None;
        for kv in &found.kvs {
            let Some(name) = self.name_of(kind, &kv.key) else {
                continue;
            };
            last = Some(format!("{name}\0"));
            let delete = |key: Bytes| Step::Delete(DeleteRange { key });
            let mut steps = Vec::new();
            let ended = match kind {
                "doc" => doc_value(kv).is_some_and(|doc| doc.until <= now),
                _ => only_an_ended_queue(kv, now),
            };
            if kv.value.0.is_empty() || ended {
                steps.push(delete(kv.key.clone()));
                if kind == "doc" {
                    steps.push(delete(self.name("text", Some(name))));
                }
                all.push((at(kv.key.clone(), kv.mod_revision), steps));
            }
        }
        (all, last)
    }
}

/// Texts that are read together with their heads.
fn ahead(range: &Range) -> usize {
    range.count.min(AHEAD)
}

fn at(key: Bytes, revision: i64) -> Compare {
    Compare {
        key,
        target: Target::Mod,
        result: Is::Equal,
        mod_revision: revision,
    }
}

fn put(key: Bytes, value: Bytes) -> Step {
    Step::Put(Put { key, value })
}

fn json(value: &impl Serialize) -> Bytes {
    // Numbers and texts only: nothing that cannot be written.
    Bytes(serde_json::to_vec(value).unwrap_or_default())
}

// === impl View ===

impl View {
    pub(super) fn at(revision: i64) -> Self {
        Self {
            revision,
            ..Self::default()
        }
    }
}

// === impl Reads ===

impl Reads {
    /// What the rules have missed. Where they go through texts, the next ones come along.
    pub(super) fn missed(missing: crate::node::sheet::Missing, goes_through: bool) -> Self {
        use crate::node::sheet::Missing;
        let texts_from = match &missing {
            Missing::Lock(name) if goes_through => Some((false, name.clone())),
            Missing::Doc(name) if goes_through => Some((true, name.clone())),
            _ => None,
        };
        Self {
            wanted: Wanted::missing(missing),
            texts_from,
        }
    }
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
    fn base_for(&self, counter: Token, revision: i64) -> i64 {
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

// === what was read ===

/// An object; a list of the right length is none.
fn object<T: DeserializeOwned>(value: &Bytes) -> Option<T> {
    let value: serde_json::Map<String, Value> = serde_json::from_slice(&value.0).ok()?;
    serde_json::from_value(Value::Object(value)).ok()
}

fn head(kv: &KeyValue) -> Head {
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

fn stood(kv: Option<&KeyValue>, asked: bool) -> Stood<LockValue> {
    let Some(kv) = kv else {
        return Stood {
            asked,
            ..Stood::default()
        };
    };
    let value = match kv.value.0.is_empty() {
        true => LockValue::default(),
        // What something else has written counts as a row that makes no sense, and stays.
        false => object(&kv.value).unwrap_or_else(|| LockValue {
            row: Some(Value::String(
                String::from_utf8_lossy(&kv.value.0).into_owned(),
            )),
            ..LockValue::default()
        }),
    };
    Stood {
        value,
        changed: kv.mod_revision,
        asked,
    }
}

/// Puts a lock into the sheet. `text` is the one of its body, if that was asked for.
fn add_lock(sheet: &mut Sheet, name: &str, value: &LockValue, text: Option<Option<&KeyValue>>) {
    let queue = value.queue.as_ref().and_then(Value::as_str);
    let queue = queue.filter(|queue| queue.len() <= LONG).map(queue_of);
    let row = value.row.as_ref().map(row);
    sheet.add_lock(name, row, body(value, text), queue.unwrap_or_default());
}

fn row(value: &Value) -> Row {
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

fn row_value(row: &Row) -> Value {
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

fn body(value: &LockValue, text: Option<Option<&KeyValue>>) -> Option<SheetBody> {
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

fn body_value(body: &SheetBody) -> Value {
    let mut value = serde_json::Map::new();
    value.insert("token".to_owned(), body.version.token.0.into());
    value.insert("rev".to_owned(), body.version.rev.into());
    if let Some(until) = body.until {
        value.insert("until".to_owned(), until.0.into());
    }
    Value::Object(value)
}

/// A body that is damaged keeps all but its end.
fn with_end(value: Option<Value>, until: Option<NodeMs>) -> Option<Value> {
    let mut value = value?;
    if let Some(object) = value.as_object_mut() {
        object.remove("until");
        if let Some(until) = until {
            object.insert("until".to_owned(), until.0.into());
        }
    }
    Some(value)
}

fn text_of(kv: &KeyValue) -> Option<String> {
    String::from_utf8(kv.value.0.clone()).ok()
}

/// A document; none where something else has changed it: it counts as absent.
fn stood_doc(kv: Option<&KeyValue>, asked: bool) -> Stood<Option<SheetDoc>> {
    Stood {
        value: kv.and_then(doc_value),
        changed: kv.map_or(0, |kv| kv.mod_revision),
        asked,
    }
}

fn doc_value(kv: &KeyValue) -> Option<SheetDoc> {
    let value: DocValue = object(&kv.value)?;
    Some(SheetDoc {
        rev: Some(value.rev).filter(|rev| *rev < LIMIT)?,
        ttl: Duration::from_millis(value.ttl),
        until: NodeMs(value.until),
        text: Text::Unread,
    })
}

fn with_text(doc: SheetDoc, text: Option<&KeyValue>) -> Option<SheetDoc> {
    let text = Text::Read(text_of(text?)?);
    Some(SheetDoc { text, ..doc })
}

/// Nothing but waiters whose time is up.
fn only_an_ended_queue(kv: &KeyValue, now: NodeMs) -> bool {
    let value = stood(Some(kv), false).value;
    let (None, None, Some(queue)) = (&value.row, &value.body, &value.queue) else {
        return false;
    };
    let ended = |waiter: &Waiter| waiter.until <= now;
    queue
        .as_str()
        .is_some_and(|queue| queue_of(queue).iter().all(ended))
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

    fn kv(key: &str, value: &str) -> KeyValue {
        KeyValue {
            key: key.into(),
            value: value.into(),
            create_revision: 1,
            mod_revision: 7,
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

    #[test]
    fn what_was_written_empty_and_what_has_ended_is_deleted_and_nothing_else() {
        let keys = Keys::new("n");
        let doc = |until: u64| format!("{{\"rev\":1,\"ttl\":9,\"until\":{until}}}");
        let cleaned = |kind: &str, kvs: Vec<KeyValue>| {
            let (all, next) = keys.cleaned(kind, &Found { kvs }, NodeMs(100));
            let keys: Vec<String> = all
                .iter()
                .map(|(compare, steps)| {
                    assert_eq!(compare.mod_revision, 7);
                    assert!(steps.iter().all(|step| matches!(step, Step::Delete(_))));
                    String::from_utf8(compare.key.0.clone()).unwrap()
                })
                .collect();
            (keys, next)
        };
        let locks = vec![
            kv("watchkeeper/n/lock/empty", ""),
            kv("watchkeeper/n/lock/held", "{\"row\":{\"state\":\"H\"}}"),
            kv("watchkeeper/n/lock/nonsense", "[]"),
            kv("watchkeeper/n/lock/waits", "{\"queue\":\"101 t\\n\"}"),
            kv("watchkeeper/n/lock/waited", "{\"queue\":\"100 t\\n\"}"),
        ];
        let gone = ["watchkeeper/n/lock/empty", "watchkeeper/n/lock/waited"].map(str::to_owned);
        assert_eq!(
            cleaned("lock", locks),
            (gone.to_vec(), Some("waited\0".to_owned()))
        );
        let docs = vec![
            kv("watchkeeper/n/doc/empty", ""),
            kv("watchkeeper/n/doc/ended", &doc(100)),
            kv("watchkeeper/n/doc/lives", &doc(101)),
        ];
        let gone = ["watchkeeper/n/doc/empty", "watchkeeper/n/doc/ended"].map(str::to_owned);
        assert_eq!(cleaned("doc", docs).0, gone);
    }
}
