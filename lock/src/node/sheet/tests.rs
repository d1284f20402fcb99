//! A store that is read and written through sheets alone, in pages of two, beside memory.

use proptest::prelude::*;

use super::*;
use crate::node::{
    NodeMs, Reply,
    calls::{AHEAD, step},
    memory::NodeState,
    rules,
};

/// Pages are so small that every walk has several.
const PAGE: usize = 2;

/// What stands in a store.
#[derive(Default)]
struct Store {
    forgotten: Token,
    rows: BTreeMap<String, Row>,
    bodies: BTreeMap<String, SheetBody>,
    queues: BTreeMap<String, Vec<Waiter>>,
    docs: BTreeMap<String, SheetDoc>,
    reads: usize,
    announced: Vec<Announcement>,
}

impl Store {
    fn read(&mut self, sheet: &mut Sheet, wanted: &Wanted) {
        self.reads += 1;
        let read = |text: &Text, is_wanted: bool| match (is_wanted, text) {
            (true, Text::New(text) | Text::Read(text)) => Text::Read(text.clone()),
            _ => Text::Unread,
        };
        let body = |body: &SheetBody, texts: bool| SheetBody {
            text: read(&body.text, texts),
            ..body.clone()
        };
        let doc = |doc: &SheetDoc, texts: bool| SheetDoc {
            text: read(&doc.text, texts),
            ..doc.clone()
        };
        for (key, part) in &wanted.locks {
            let row = self.rows.get(key).cloned();
            if *part == Part::Row {
                sheet.add_row(key, row);
                continue;
            }
            let queue = self.queues.get(key).cloned().unwrap_or_default();
            let body = self.bodies.get(key).map(|b| body(b, *part == Part::Text));
            sheet.add_lock(key, row, body, queue);
        }
        for range in &wanted.names {
            let range = &small(range);
            let rows = inside(&self.rows, range);
            rows.iter()
                .for_each(|(key, row)| sheet.add_row(key, Some((*row).clone())));
            sheet.knows_rows(range, rows.len(), rows.last().map(|(key, _)| *key));
            let bodies = inside(&self.bodies, range);
            for (key, found) in &bodies {
                sheet.add_body(key, Some(body(found, range.texts)));
            }
            sheet.knows_bodies(range, bodies.len(), bodies.last().map(|(key, _)| *key));
        }
        for name in &wanted.docs {
            sheet.add_doc(name, self.docs.get(name).map(|d| doc(d, true)));
        }
        for range in &wanted.doc_names {
            let range = &small(range);
            let docs = inside(&self.docs, range);
            for (name, found) in &docs {
                sheet.add_doc(name, Some(doc(found, range.texts)));
            }
            sheet.knows_docs(range, docs.len(), docs.last().map(|(name, _)| *name));
        }
    }

    fn write(&mut self, changes: &Changes<'_>) {
        fn put<T: Clone>(table: &mut BTreeMap<String, T>, name: &str, row: Option<T>) {
            match row {
                Some(row) => _ = table.insert(name.to_owned(), row),
                None => _ = table.remove(name),
            }
        }
        self.forgotten = changes.forgotten.unwrap_or(self.forgotten);
        for (key, row) in changes.all_rows() {
            put(&mut self.rows, key, row.cloned());
        }
        for (key, queue) in &changes.queues {
            put(&mut self.queues, key, queue.cloned());
        }
        for (key, body) in &changes.bodies {
            // What was not read keeps the text that stands there.
            let stood = self.bodies.get(*key).map(|b| b.text.clone());
            let body = body.map(|body| SheetBody {
                text: match &body.text {
                    Text::New(text) => Text::New(text.clone()),
                    Text::Read(_) | Text::Unread => stood.unwrap_or(Text::Unread),
                },
                ..body.clone()
            });
            put(&mut self.bodies, key, body);
        }
        for (name, doc) in &changes.docs {
            put(&mut self.docs, name, doc.cloned());
        }
    }

    fn apply(
        &mut self,
        now: NodeMs,
        wall_ms: i64,
        call: &Call,
    ) -> Result<Reply, crate::node::NodeError> {
        rules::admit(now, call)?;
        self.docs.retain(|_, doc| now < doc.until);
        let (mut sheet, mut wanted) = (Sheet::default(), Wanted::by(call));
        for _ in 0..1_000 {
            self.read(&mut sheet, &wanted);
            sheet.begin_again();
            sheet.set_read_forgotten(self.forgotten);
            match rules::execute(&mut sheet, now, wall_ms, call) {
                Ok(reply) => {
                    self.announced.extend(sheet.take_announced());
                    self.write(&sheet.changes());
                    return Ok(reply);
                }
                Err(missing) => wanted = Wanted::missing(missing),
            }
        }
        panic!("it has no end: {call:?}");
    }
}

fn small(range: &Range) -> Range {
    Range {
        count: range.count.min(PAGE),
        ..range.clone()
    }
}

fn inside<'t, T>(table: &'t BTreeMap<String, T>, range: &Range) -> Vec<(&'t str, &'t T)> {
    let ends = |name: &str| range.to.as_deref().is_some_and(|to| to <= name);
    let from = table.range::<str, _>((Bound::Included(&*range.from), Bound::Unbounded));
    let all = from.map(|(name, row)| (&**name, row));
    all.take_while(|(name, _)| !ends(name))
        .take(range.count)
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_sheet_answers_as_memory_does(steps in prop::collection::vec(step(), 1..40)) {
        let (mut store, mut memory) = (Store::default(), NodeState::default());
        let mut now = 1_000_u64;
        for (wait, not_after, ops) in steps {
            now += wait;
            let wall = now.cast_signed() + AHEAD;
            let not_after = not_after.map(|by| NodeMs(now.saturating_add_signed(by)));
            let call = Call { not_after, ops };
            let expected = memory.apply(NodeMs(now), wall, &call);
            prop_assert_eq!(store.apply(NodeMs(now), wall, &call), expected, "{:?}", call);
            let kept = memory.clone().take_announced();
            prop_assert_eq!(&kept, &store.announced);
        }
    }
}

#[test]
fn what_was_not_read_is_asked_for_and_never_absent() {
    let mut sheet = Sheet::default();
    let range = |from: &str, to: Option<&str>, count| Range {
        from: from.to_owned(),
        to: to.map(str::to_owned),
        count,
        texts: false,
    };
    assert_eq!(sheet.row("k"), Err(Missing::Lock("k".to_owned())));
    assert_eq!(sheet.body("k"), Err(Missing::Lock("k".to_owned())));
    assert_eq!(sheet.waiters("k"), Err(Missing::Lock("k".to_owned())));
    assert_eq!(sheet.doc("d"), Err(Missing::Doc("d".to_owned())));
    sheet.add_lock("k", None, None, Vec::new());
    assert_eq!(sheet.row("k"), Ok(None));
    // A body without its text does for its end, and not for its heir.
    let body = SheetBody {
        version: Version::default(),
        text: Text::Unread,
        until: None,
        damaged: false,
    };
    sheet.add_lock("l", None, Some(body), Vec::new());
    assert_eq!(sheet.keep_body("l", NodeMs(1), Some(NodeMs(9))), Ok(()));
    assert_eq!(sheet.body("l"), Err(Missing::Lock("l".to_owned())));
    // A page that is full says nothing of what comes after its last name.
    let lease = Row::Malformed(crate::node::rules::Malformed::default());
    for key in ["a", "b"] {
        sheet.add_row(key, Some(lease.clone()));
    }
    sheet.knows_rows(&range("a", None, 2), 2, Some("b"));
    sheet.knows_bodies(&range("a", None, 2), 0, None);
    assert_eq!(
        sheet.names("", "a", 2),
        Ok(vec!["a".to_owned(), "b".to_owned()])
    );
    let Err(Missing::Names(next)) = sheet.names("", "a", 3) else {
        panic!("it knows no more than two")
    };
    assert_eq!((&*next.from, next.to), ("b\0", None));
    sheet.knows_rows(&range("b\0", None, 2), 0, None);
    let all: Vec<&str> = vec!["a", "b", "l"];
    assert_eq!(
        sheet.names("", "a", 9),
        Ok(all.into_iter().map(str::to_owned).collect())
    );
}

#[test]
fn the_first_name_after_all_that_begin_so_begins_otherwise() {
    for (prefix, after) in [
        ("", None),
        ("a", Some("b")),
        ("a/", Some("a0")),
        ("a\u{10ffff}", Some("b")),
        ("\u{d7ff}", Some("\u{e000}")),
        ("\u{10ffff}", None),
    ] {
        assert_eq!(after_all(prefix).as_deref(), after, "{prefix:?}");
    }
}
