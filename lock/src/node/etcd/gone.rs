//! Which keys nothing needs any more.

use super::{
    keys::Keys,
    values::{doc_value, lock_value},
    wire::{Bytes, Compare, DeleteRange, Found, KeyValue, Range, Step},
    write::at,
};
use crate::node::{NodeMs, columns::queue_of, rules::Waiter};

// === impl Keys ===

impl Keys {
    /// The next keys of a kind, for one who cleans.
    pub(super) fn to_clean(&self, kind: &str, from: &str, count: usize) -> Range {
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

/// Nothing but waiters whose time is up.
fn only_an_ended_queue(kv: &KeyValue, now: NodeMs) -> bool {
    let value = lock_value(kv);
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

    fn kv(key: &str, value: &str) -> KeyValue {
        KeyValue {
            key: key.into(),
            value: value.into(),
            create_revision: 1,
            mod_revision: 7,
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
