//! What is read before a call, and what it is put into for the rules.

use std::collections::BTreeMap;

use super::{
    keys::Keys,
    values::{Head, LockValue, body, doc_value, head, lock_value, queue, row, with_text},
    wire::{Bytes, Found, KeyValue, Range as WireRange, Step},
};
use crate::node::sheet::{Missing, Part, Range, Sheet, SheetDoc, Wanted};

/// Texts that are read ahead of the rules.
const AHEAD: usize = 16;

/// A key as it was read.
#[derive(Clone, Debug, Default)]
pub(super) struct Stood<T> {
    pub(super) value: T,
    /// When it was written; 0 where it does not stand.
    pub(super) changed: i64,
    /// It was asked for by its name: what becomes of the call may depend on it.
    pub(super) asked: bool,
}

/// What a call has read of a namespace, at one revision.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) revision: i64,
    pub(super) head: Option<Head>,
    pub(super) locks: BTreeMap<String, Stood<LockValue>>,
    pub(super) docs: BTreeMap<String, Stood<Option<SheetDoc>>>,
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
    /// The first reads of a call.
    pub(super) fn first(wanted: Wanted) -> Self {
        Self {
            wanted,
            texts_from: None,
        }
    }

    /// What the rules have missed. Where they go through texts, the next ones come along.
    pub(super) fn missed(missing: Missing, goes_through: bool) -> Self {
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

// === impl Keys ===

impl Keys {
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
}

/// Texts that are read together with their heads.
fn ahead(range: &Range) -> usize {
    range.count.min(AHEAD)
}

fn stood(kv: Option<&KeyValue>, asked: bool) -> Stood<LockValue> {
    Stood {
        value: kv.map(lock_value).unwrap_or_default(),
        changed: kv.map_or(0, |kv| kv.mod_revision),
        asked,
    }
}

fn stood_doc(kv: Option<&KeyValue>, asked: bool) -> Stood<Option<SheetDoc>> {
    Stood {
        value: kv.and_then(doc_value),
        changed: kv.map_or(0, |kv| kv.mod_revision),
        asked,
    }
}

/// Puts a lock into the sheet. `text` is the one of its body, if that was asked for.
fn add_lock(sheet: &mut Sheet, name: &str, value: &LockValue, text: Option<Option<&KeyValue>>) {
    let row = value.row.as_ref().map(row);
    sheet.add_lock(name, row, body(value, text), queue(value));
}
