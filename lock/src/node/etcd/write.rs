//! What is compared and written after a call.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    keys::Keys,
    values::{LAYOUT, LockValue, NodeValue, ROOM, body_value, doc_json, json, row_value, with_end},
    view::View,
    wire::{Bytes, Compare, DeleteRange, Is, Put, Step, Target},
};
use crate::node::{
    NodeMs,
    columns::queue_text,
    sheet::{Changes, Text},
};

// === impl Keys ===

impl Keys {
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

    /// What may write, as etcd sees it, and writes nothing: a majority of the members has to agree on it.
    pub(super) fn writes_nothing(&self) -> Step {
        let key = self.nothing();
        Step::Delete(DeleteRange { key })
    }

    fn put_node(&self, value: &NodeValue) -> Put {
        Put {
            key: self.node(),
            value: json(value),
        }
    }

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
        for (name, row) in changes.all_rows() {
            let value = row.map(row_value);
            lock(view, &mut written, name).row = value;
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
            let stood = lock(view, &mut written, name);
            stood.body = match body {
                // Its version may be damaged, and stays as it is.
                Some(body) if body.damaged => with_end(stood.body.take(), body.until),
                Some(body) => Some(body_value(body)),
                None => None,
            };
        }
        for (name, queue) in &changes.queues {
            let text = queue.map(|queue| Value::String(queue_text(queue)));
            lock(view, &mut written, name).queue = text;
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
        for (name, stood) in &view.locks {
            if stood.asked || written.contains_key(&**name) {
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
                    let text = match &doc.text {
                        Text::New(new) => Some(put(text, Bytes::from(&**new))),
                        Text::Read(_) | Text::Unread => None,
                    };
                    (doc_json(doc), text)
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
}

/// What is to stand under a lock's key, beginning with what stands there.
fn lock<'w, 'n>(
    view: &View,
    written: &'w mut BTreeMap<&'n str, LockValue>,
    name: &'n str,
) -> &'w mut LockValue {
    written.entry(name).or_insert_with(|| {
        let stood = view.locks.get(name);
        stood.map(|stood| stood.value.clone()).unwrap_or_default()
    })
}

/// The key has this revision; 0 of one that does not stand.
pub(super) fn at(key: Bytes, revision: i64) -> Compare {
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
