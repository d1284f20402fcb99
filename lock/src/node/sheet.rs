//! The rows that one call needs, read from a store beforehand: the rules are executed on them in memory, and what they have
//! changed is written back in one step. So a store that is reached over a network needs no rules of its own.
//!
//! # How
//! A store reads what [`Wanted::by`] names, fills a [`Sheet`], and executes the rules on it. Rules that ask for a row which was
//! not read stop with [`Missing`]: the store reads that as well, *as part of the same step*, and executes them again from the
//! beginning. So a guess that was too small costs another read, and never a wrong answer.
//!
//! # Invariants
//! - H1 What was not read is never taken for absent.  (what_was_not_read_is_asked_for_and_never_absent)
//! - H2 On a sheet every call is answered as in memory, and so are those that come after it.
//!   (a_sheet_answers_as_memory_does)

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    time::Duration,
};

use super::{
    Announcement, Call, NodeMs, Op, Record, Token, Version,
    rules::{Body, DocName, Row, Rows, Stored, Waiter},
};

/// Names that are read at a time where a walk has no end of its own.
const STEP: usize = 4_096;

/// Rows of a call, as they were read and as they are to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sheet {
    forgotten: (Token, Option<Token>),
    rows: Table<Row>,
    bodies: Table<SheetBody>,
    queues: Table<Vec<Waiter>>,
    docs: Table<SheetDoc>,
    announced: Vec<Announcement>,
}

/// A body, of which the text may be left where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SheetBody {
    pub(crate) version: Version,
    pub(crate) text: Text,
    pub(crate) until: Option<NodeMs>,
    pub(crate) damaged: bool,
}

/// A document, likewise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SheetDoc {
    pub(crate) rev: u64,
    pub(crate) ttl: Duration,
    pub(crate) until: NodeMs,
    pub(crate) text: Text,
}

/// A text that may be large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    /// It was not read.
    Unread,
    /// As it stands in the store.
    Read(String),
    /// To be written.
    New(String),
}

/// What the rules have asked for and has not been read. To be read in the same step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// All of a lock, its body's text included.
    Lock(String),
    /// Names with a row or a body.
    Names(Range),
    /// A document with its text.
    Doc(String),
    /// Names of documents.
    DocNames(Range),
}

/// Some names in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// The first of them.
    pub(crate) from: String,
    /// The first one that is none of them; `None` where there is no end.
    pub(crate) to: Option<String>,
    /// How many are read at most.
    pub(crate) count: usize,
    /// With their texts.
    pub(crate) texts: bool,
}

/// What to read before a call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// Locks, and how much of each.
    pub(crate) locks: BTreeMap<String, Part>,
    /// Of locks of which more than a row is wanted also who waits for them: no look needs that.
    #[cfg(feature = "postgres")]
    pub(crate) queues: bool,
    pub(crate) names: Vec<Range>,
    pub(crate) docs: BTreeSet<String>,
    pub(crate) doc_names: Vec<Range>,
}

/// How much of a lock is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Its row alone: what an extension needs.
    Row,
    /// All but the text of its body.
    Whole,
    /// All.
    Text,
}

/// What to write after it: each name once; `None` for what goes.
#[derive(Debug)]
pub(crate) struct Changes<'s> {
    pub(crate) forgotten: Option<Token>,
    /// Those that may not stand there yet.
    pub(crate) rows: Vec<(&'s str, Option<&'s Row>)>,
    pub(crate) replaced_rows: Vec<Replaced<'s>>,
    pub(crate) bodies: Vec<(&'s str, Option<&'s SheetBody>)>,
    pub(crate) queues: Vec<(&'s str, Option<&'s Vec<Waiter>>)>,
    pub(crate) docs: Vec<(&'s str, Option<&'s SheetDoc>)>,
}

/// A row that takes the place of another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replaced<'s> {
    pub(crate) key: &'s str,
    /// As it was read in the same step.
    #[cfg_attr(
        not(feature = "postgres"),
        allow(dead_code, reason = "others write all of it")
    )]
    pub(crate) was: &'s Row,
    pub(crate) is: &'s Row,
}

/// One kind of rows by their names. `None` is a row of which is known that it does not stand.
#[derive(Clone, Debug)]
struct Table<T> {
    read: BTreeMap<String, Option<T>>,
    /// Where every row is known: from the first name up to the second, which is left out.
    known: Vec<(String, Option<String>)>,
    written: BTreeMap<String, Option<T>>,
}

/// Up to where every name is known.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Coverage {
    /// Up to this one, which is not.
    Before(String),
    All,
}

// === impl Wanted ===

impl Wanted {
    /// What the operations ask for, as far as they themselves say it.
    pub(crate) fn by(call: &Call) -> Self {
        let mut wanted = Self::default();
        #[cfg(feature = "postgres")]
        {
            wanted.queues = !call.ops.iter().all(|op| matches!(op, Op::Read { .. }));
        }
        for op in &call.ops {
            match op {
                Op::Acquire { key, .. }
                | Op::Read { key }
                | Op::Write { key, .. }
                | Op::Merge { key, .. } => wanted.lock(key, Part::Text),
                Op::Leave { key, .. }
                | Op::Release { key, .. }
                | Op::Break { key, .. }
                | Op::Forget { key, .. } => wanted.lock(key, Part::Whole),
                Op::Confirm { key, .. } | Op::Extend { key, .. } => wanted.lock(key, Part::Row),
                Op::List {
                    prefix,
                    from,
                    count,
                } => wanted.names.push(Range::of(prefix, &from.0, *count)),
                Op::Records { from, count } | Op::Sweep { from, count } => {
                    let range = Range::of("", &from.0, *count);
                    wanted.names.push(Range {
                        texts: true,
                        ..range
                    });
                }
                Op::PutDoc { name, .. }
                | Op::TouchDoc { name, .. }
                | Op::Doc { name }
                | Op::RemoveDoc { name } => _ = wanted.docs.insert(name.clone()),
                Op::Docs { dir, from, count } => {
                    let range = Range::of(dir, &from.0, *count);
                    wanted.doc_names.push(Range {
                        texts: true,
                        ..range
                    });
                }
                Op::DocNames { dir, from, count } => {
                    wanted.doc_names.push(Range::of(dir, &from.0, *count));
                }
                Op::Living { dir, .. } => wanted.doc_names.push(Range {
                    count: STEP,
                    ..Range::of(dir, "", 0)
                }),
                Op::Admission
                | Op::Nominate { .. }
                | Op::Enrol { .. }
                | Op::Close { .. }
                | Op::Admit { .. } => {}
            }
        }
        wanted
    }

    /// The same and what was missed.
    pub(crate) fn missing(missing: Missing) -> Self {
        let mut wanted = Self {
            #[cfg(feature = "postgres")]
            queues: true,
            ..Self::default()
        };
        match missing {
            Missing::Lock(key) => wanted.lock(&key, Part::Text),
            Missing::Names(range) => wanted.names.push(range),
            Missing::Doc(name) => _ = wanted.docs.insert(name),
            Missing::DocNames(range) => wanted.doc_names.push(range),
        }
        wanted
    }

    /// Whether single locks are all of it.
    pub(crate) fn only_locks(&self) -> bool {
        self.names.is_empty() && self.docs.is_empty() && self.doc_names.is_empty()
    }

    /// Whether of all locks the rows alone are wanted.
    #[cfg(feature = "postgres")]
    pub(crate) fn only_rows(&self) -> bool {
        self.locks.values().all(|part| *part == Part::Row)
    }

    /// Whether single documents are all of it.
    #[cfg(feature = "postgres")]
    pub(crate) fn only_docs(&self) -> bool {
        !self.docs.is_empty()
            && self.locks.is_empty()
            && self.names.is_empty()
            && self.doc_names.is_empty()
    }

    fn lock(&mut self, key: &str, part: Part) {
        let wanted = self.locks.entry(key.to_owned()).or_insert(part);
        *wanted = part.max(*wanted);
    }
}

// === impl Range ===

impl Range {
    fn of(prefix: &str, from: &str, count: u32) -> Self {
        Self {
            from: from.max(prefix).to_owned(),
            to: after_all(prefix),
            // One more costs little, and what follows need not be asked for by itself.
            count: usize::try_from(count.max(1)).unwrap_or(STEP).min(STEP) + 1,
            texts: false,
        }
    }
}

/// The first name after all that begin so.
fn after_all(prefix: &str) -> Option<String> {
    let mut letters: Vec<char> = prefix.chars().collect();
    while let Some(last) = letters.pop() {
        // The numbers in between are no letters.
        let next = match last {
            '\u{d7ff}' => Some('\u{e000}'),
            _ => char::from_u32(u32::from(last) + 1),
        };
        if let Some(next) = next {
            letters.push(next);
            return Some(letters.into_iter().collect());
        }
    }
    None
}

// === impl Sheet ===

impl Sheet {
    /// What was forgotten, as it was read.
    pub(crate) fn set_read_forgotten(&mut self, counter: Token) {
        self.forgotten = (counter, None);
    }

    /// A lock as it was read: all of it.
    pub(crate) fn add_lock(
        &mut self,
        key: &str,
        row: Option<Row>,
        body: Option<SheetBody>,
        queue: Vec<Waiter>,
    ) {
        self.rows.add(key, row);
        self.add_body(key, body);
        self.queues
            .add(key, Some(queue).filter(|queue| !queue.is_empty()));
    }

    /// The row of a lock: who waits for it is not known.
    #[cfg(feature = "postgres")]
    pub(crate) fn add_row(&mut self, key: &str, row: Option<Row>) {
        self.rows.add(key, row);
    }

    pub(crate) fn add_body(&mut self, key: &str, body: Option<SheetBody>) {
        let text_is_known = |b: &SheetBody| b.text != Text::Unread || b.damaged;
        let known = self.bodies.read.get(key).and_then(Option::as_ref);
        // It was read in the same step, so that it is the same.
        if !known.is_some_and(text_is_known) {
            self.bodies.add(key, body);
        }
    }

    pub(crate) fn add_doc(&mut self, name: &str, doc: Option<SheetDoc>) {
        let known = self.docs.read.get(name).and_then(Option::as_ref);
        if !known.is_some_and(|doc| doc.text != Text::Unread) {
            self.docs.add(name, doc);
        }
    }

    /// All rows of the range were read, or `found` of them, the last of which is this.
    pub(crate) fn knows_rows(&mut self, range: &Range, found: usize, last: Option<&str>) {
        self.rows.knows(range, found, last);
    }

    /// The same of bodies.
    pub(crate) fn knows_bodies(&mut self, range: &Range, found: usize, last: Option<&str>) {
        self.bodies.knows(range, found, last);
    }

    /// The same of documents.
    pub(crate) fn knows_docs(&mut self, range: &Range, found: usize, last: Option<&str>) {
        self.docs.knows(range, found, last);
    }

    /// Forgets what the rules have written: they begin again.
    pub(crate) fn begin_again(&mut self) {
        self.forgotten.1 = None;
        self.rows.written.clear();
        self.bodies.written.clear();
        self.queues.written.clear();
        self.docs.written.clear();
        self.announced.clear();
    }

    /// What is to be written.
    pub(crate) fn changes(&self) -> Changes<'_> {
        let (was, is) = self.forgotten;
        let (mut rows, mut replaced_rows) = (Vec::new(), Vec::new());
        for (key, row) in self.rows.changes() {
            match (self.rows.read.get(key), row) {
                (Some(Some(was)), Some(is)) => replaced_rows.push(Replaced { key, was, is }),
                _ => rows.push((key, row)),
            }
        }
        Changes {
            forgotten: is.filter(|is| *is != was),
            rows,
            replaced_rows,
            bodies: self.bodies.changes(),
            queues: self.queues.changes(),
            docs: self.docs.changes(),
        }
    }

    /// Releases to be told when it has been written.
    pub(crate) fn take_announced(&mut self) -> Vec<Announcement> {
        std::mem::take(&mut self.announced)
    }
}

impl<'s> Changes<'s> {
    /// All rows, whether others stood in their place or not.
    #[cfg(any(test, feature = "etcd"))]
    pub(crate) fn all_rows(&self) -> impl Iterator<Item = (&'s str, Option<&'s Row>)> {
        let replaced = self.replaced_rows.iter().map(|row| (row.key, Some(row.is)));
        self.rows.iter().copied().chain(replaced)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.forgotten.is_none()
            && self.rows.is_empty()
            && self.replaced_rows.is_empty()
            && self.bodies.is_empty()
            && self.queues.is_empty()
            && self.docs.is_empty()
    }
}

impl Rows for Sheet {
    type Error = Missing;

    fn forgotten(&mut self) -> Result<Token, Missing> {
        Ok(self.forgotten.1.unwrap_or(self.forgotten.0))
    }

    fn set_forgotten(&mut self, counter: Token) -> Result<(), Missing> {
        self.forgotten.1 = Some(counter);
        Ok(())
    }

    fn row(&mut self, key: &str) -> Result<Option<Row>, Missing> {
        let row = self.rows.get(key);
        row.map(Option::<&Row>::cloned)
            .ok_or_else(|| Missing::Lock(key.to_owned()))
    }

    fn put_row(&mut self, key: &str, row: &Row) -> Result<(), Missing> {
        // It stays as it is.
        if !matches!(row, Row::Malformed(_)) {
            self.rows.put(key, Some(row.clone()));
        }
        Ok(())
    }

    fn drop_row(&mut self, key: &str) -> Result<(), Missing> {
        self.rows.put(key, None);
        Ok(())
    }

    fn body(&mut self, key: &str) -> Result<Option<Body>, Missing> {
        let missing = || Missing::Lock(key.to_owned());
        let Some(body) = self.bodies.get(key).ok_or_else(missing)? else {
            return Ok(None);
        };
        let text = match &body.text {
            Text::Read(text) | Text::New(text) => text.clone(),
            Text::Unread if body.damaged => String::new(),
            Text::Unread => return Err(missing()),
        };
        Ok(Some(Body {
            record: Record {
                version: body.version,
                body: text,
            },
            until: body.until,
            damaged: body.damaged,
        }))
    }

    fn put_body(&mut self, key: &str, body: &Body) -> Result<(), Missing> {
        self.bodies.put(
            key,
            Some(SheetBody {
                version: body.record.version,
                text: Text::New(body.record.body.clone()),
                until: body.until,
                damaged: body.damaged,
            }),
        );
        Ok(())
    }

    fn keep_body(&mut self, key: &str, now: NodeMs, until: Option<NodeMs>) -> Result<(), Missing> {
        let missing = || Missing::Lock(key.to_owned());
        let body = self.bodies.get(key).ok_or_else(missing)?;
        let lives = |body: &&SheetBody| body.until.is_none_or(|end| now < end);
        if let Some(body) = body.filter(lives) {
            let body = SheetBody {
                until,
                ..body.clone()
            };
            self.bodies.put(key, Some(body));
        }
        Ok(())
    }

    fn drop_body(&mut self, key: &str) -> Result<(), Missing> {
        self.bodies.put(key, None);
        Ok(())
    }

    fn names(&mut self, prefix: &str, from: &str, count: usize) -> Result<Vec<String>, Missing> {
        let first = from.max(prefix);
        let coverage = self
            .rows
            .coverage_from(first)
            .min(self.bodies.coverage_from(first));
        let rows = self.rows.names(first, &coverage, count);
        let bodies = self.bodies.names(first, &coverage, count);
        let all: BTreeSet<&str> = rows.chain(bodies).collect();
        page(all.into_iter(), prefix, count, &coverage).map_err(Missing::Names)
    }

    fn doc(&mut self, name: &str) -> Result<Option<Stored>, Missing> {
        let missing = || Missing::Doc(name.to_owned());
        let Some(doc) = self.docs.get(name).ok_or_else(missing)? else {
            return Ok(None);
        };
        let (Text::Read(text) | Text::New(text)) = &doc.text else {
            return Err(missing());
        };
        Ok(Some(Stored {
            rev: doc.rev,
            ttl: doc.ttl,
            until: doc.until,
            body: text.clone(),
        }))
    }

    fn put_doc(&mut self, name: &str, row: &Stored) -> Result<(), Missing> {
        let same = |doc: &SheetDoc| matches!(&doc.text, Text::Read(text) if *text == row.body);
        let was = self.docs.read.get(name).and_then(Option::as_ref);
        let text = match was.is_some_and(same) {
            true => Text::Read(row.body.clone()),
            false => Text::New(row.body.clone()),
        };
        let doc = SheetDoc {
            rev: row.rev,
            ttl: row.ttl,
            until: row.until,
            text,
        };
        self.docs.put(name, Some(doc));
        Ok(())
    }

    fn drop_doc(&mut self, name: &str) -> Result<(), Missing> {
        self.docs.put(name, None);
        Ok(())
    }

    fn doc_names(
        &mut self,
        prefix: &str,
        from: &str,
        count: usize,
    ) -> Result<Vec<DocName>, Missing> {
        let first = from.max(prefix);
        let coverage = self.docs.coverage_from(first);
        let names = page(
            self.docs.names(first, &coverage, count),
            prefix,
            count,
            &coverage,
        )
        .map_err(Missing::DocNames)?;
        let header = |name: String| {
            let doc = self.docs.get(&name)??;
            let (rev, until) = (doc.rev, doc.until);
            Some(DocName { name, rev, until })
        };
        Ok(names.into_iter().filter_map(header).collect())
    }

    fn waiters(&mut self, key: &str) -> Result<Vec<Waiter>, Missing> {
        let queue = self.queues.get(key);
        let queue = queue.ok_or_else(|| Missing::Lock(key.to_owned()))?;
        Ok(queue.cloned().unwrap_or_default())
    }

    fn put_waiters(&mut self, key: &str, waiters: &[Waiter]) -> Result<(), Missing> {
        let queue = (!waiters.is_empty()).then(|| waiters.to_vec());
        if self.queues.get(key) != Some(queue.as_ref()) {
            self.queues.put(key, queue);
        }
        Ok(())
    }

    fn announce(&mut self, news: Announcement) -> Result<(), Missing> {
        self.announced.push(news);
        Ok(())
    }
}

/// `count` of these names at most; what to read where not so many are known.
fn page<'n>(
    names: impl Iterator<Item = &'n str>,
    prefix: &str,
    count: usize,
    coverage: &Coverage,
) -> Result<Vec<String>, Range> {
    let names = names.take_while(|name| name.starts_with(prefix));
    let names: Vec<String> = names.take(count).map(str::to_owned).collect();
    match coverage {
        Coverage::Before(next)
            if names.len() < count && (next.starts_with(prefix) || **next < *prefix) =>
        {
            Err(Range {
                from: next.clone(),
                to: after_all(prefix),
                // Many that are gone may lie in between.
                count: (count - names.len()).clamp(512, STEP),
                texts: false,
            })
        }
        Coverage::Before(_) | Coverage::All => Ok(names),
    }
}

// === impl Table ===

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            read: BTreeMap::new(),
            known: Vec::new(),
            written: BTreeMap::new(),
        }
    }
}

impl<T> Table<T> {
    fn add(&mut self, name: &str, row: Option<T>) {
        self.read.insert(name.to_owned(), row);
    }

    fn put(&mut self, name: &str, row: Option<T>) {
        self.written.insert(name.to_owned(), row);
    }

    /// The row; `None` where nothing is known of it.
    fn get(&self, name: &str) -> Option<Option<&T>> {
        let found = self.written.get(name).or_else(|| self.read.get(name));
        match found {
            Some(row) => Some(row.as_ref()),
            None => self.covers(name).then_some(None),
        }
    }

    fn covers(&self, name: &str) -> bool {
        self.known
            .iter()
            .any(|(from, to)| **from <= *name && to.as_deref().is_none_or(|to| name < to))
    }

    /// All rows of the range were read, or as many as were asked for.
    fn knows(&mut self, range: &Range, found: usize, last: Option<&str>) {
        let to = match last {
            Some(last) if found >= range.count => Some(format!("{last}\0")),
            _ => range.to.clone(),
        };
        self.known.push((range.from.clone(), to));
    }

    fn coverage_from(&self, first: &str) -> Coverage {
        let mut end = first.to_owned();
        // Ranges follow each other: from the end of one to that of the next.
        while let Some((_, to)) = self
            .known
            .iter()
            .find(|(from, to)| **from <= *end && to.as_deref().is_none_or(|to| *end < *to))
        {
            match to {
                Some(to) => end.clone_from(to),
                None => return Coverage::All,
            }
        }
        Coverage::Before(end)
    }

    /// The names with a row, in order, as far as all are known, so many at most.
    fn names<'t>(
        &'t self,
        first: &'t str,
        coverage: &'t Coverage,
        count: usize,
    ) -> impl Iterator<Item = &'t str> {
        let inside = move |name: &&str| match coverage {
            Coverage::Before(end) => **name < **end,
            Coverage::All => true,
        };
        let written = |name: &&str| !self.written.contains_key(*name);
        let stands = |(name, row): (&'t String, &'t Option<T>)| row.is_some().then_some(&**name);
        let read = self
            .read
            .range::<str, _>((Bound::Included(first), Bound::Unbounded))
            .filter_map(stands);
        let new = self
            .written
            .range::<str, _>((Bound::Included(first), Bound::Unbounded))
            .filter_map(stands);
        let read = read.take_while(inside).filter(written).take(count);
        let all: BTreeSet<&str> = read.chain(new.take_while(inside)).collect();
        all.into_iter().take(count)
    }

    fn changes(&self) -> Vec<(&str, Option<&T>)> {
        let stood = |name: &str| !matches!(self.read.get(name), Some(None));
        let written = self.written.iter();
        let all = written.map(|(name, row)| (&**name, row.as_ref()));
        // What never stood need not go.
        all.filter(|(name, row)| row.is_some() || stood(name))
            .collect()
    }
}

// === impl Coverage ===

impl Coverage {
    fn min(self, other: Self) -> Self {
        match (self, other) {
            (Self::Before(one), Self::Before(other)) => Self::Before(one.min(other)),
            (Self::Before(end), Self::All) | (Self::All, Self::Before(end)) => Self::Before(end),
            (Self::All, Self::All) => Self::All,
        }
    }
}

#[cfg(test)]
mod tests;
