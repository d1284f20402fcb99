//! Bodies and documents.

use std::time::Duration;

use super::{Body, DocName, Entry, Row, Rows, Stored, Turn, directory, later, walk::after};
use crate::node::{Answer, Cursor, Doc, Life, MOST_LIVING, Page, Record, Version, sum_of};

/// Names of a directory that are looked at in one step.
const STEP: usize = 500;

/// Letters of bodies in one page of documents, about.
const MUCH: usize = 256 * 1024;

impl<R: Rows> Turn<'_, R> {
    /// `entry` is held by the writer.
    pub(super) fn write(
        &mut self,
        key: &str,
        entry: Entry,
        version: Version,
        body: &str,
        not_before: Option<i64>,
    ) -> Result<Answer, R::Error> {
        if not_before.is_some_and(|from| self.wall_ms < from) {
            return Ok(Answer::TooEarly {
                wall_ms: self.wall_ms,
            });
        }
        let stored = self.record(key)?;
        if version == stored.version && body == stored.body {
            return Ok(Answer::Done);
        }
        if version <= stored.version {
            return self.refused(key);
        }
        let record = Record {
            version,
            body: body.to_owned(),
        };
        let body = Body {
            record,
            until: None,
            damaged: false,
        };
        self.rows.put_body(key, &body)?;
        self.rows
            .put_row(key, &Row::Record(Entry { version, ..entry }))?;
        Ok(Answer::Done)
    }

    pub(super) fn put_doc(
        &mut self,
        name: &str,
        rev: u64,
        ttl: Duration,
        body: &str,
    ) -> Result<Answer, R::Error> {
        let stored = self.rows.doc(name)?.filter(|d| self.now < d.until);
        if stored.is_none_or(|d| d.rev < rev) {
            let until = later(self.now, ttl);
            self.rows.put_doc(
                name,
                &Stored {
                    rev,
                    ttl,
                    until,
                    body: body.to_owned(),
                },
            )?;
        }
        Ok(Answer::Done)
    }

    pub(super) fn touch_doc(
        &mut self,
        name: &str,
        rev: u64,
        ttl: Duration,
    ) -> Result<Answer, R::Error> {
        let stored = self.rows.doc(name)?.filter(|d| self.now < d.until);
        let Some(stored) = stored.filter(|d| d.rev >= rev) else {
            return Ok(Answer::Docs(Vec::new()));
        };
        if stored.rev == rev {
            let until = later(self.now, ttl);
            let stored = Stored {
                ttl,
                until,
                ..stored
            };
            self.rows.put_doc(name, &stored)?;
        }
        Ok(Answer::Done)
    }

    pub(super) fn living(
        &mut self,
        dir: &str,
        (least, most): (Duration, Duration),
        known: &[u64],
    ) -> Result<Answer, R::Error> {
        let (first, last) = (later(self.now, least), later(self.now, most));
        let (mut found, mut from) = (Vec::new(), Some(String::new()));
        while let Some(next) = from.take() {
            let names = self.rows.doc_names(dir, &next, STEP)?;
            let last_name = names.last().filter(|_| names.len() == STEP);
            from = last_name.map(|last| after(&last.name).0);
            found.extend(names.into_iter().filter(|doc| {
                let lives = self.now < doc.until && first <= doc.until && doc.until <= last;
                lives && directory(&doc.name) == dir
            }));
        }
        let sum = sum_of(found.iter().map(|doc| doc.rev));
        let (all, of) = (known.is_empty(), known.len() as u64);
        let parts: Vec<u64> = match known {
            [] | [_] => Vec::new(),
            _ => {
                let sum_in = |part| {
                    let revisions = found.iter().map(|doc| doc.rev);
                    sum_of(revisions.filter(|rev| rev % of == part))
                };
                let parts = (0..).zip(known);
                let others = parts.filter(|(part, known)| sum_in(*part) != **known);
                others.map(|(part, _)| part).collect()
            }
        };
        found.retain(|doc| all || parts.contains(&(doc.rev % of)));
        found.sort_by(|a, b| (a.until, &a.name).cmp(&(b.until, &b.name)));
        found.truncate(MOST_LIVING);
        let life = |doc: DocName| Life {
            left_ms: doc.until.0.saturating_sub(self.now.0),
            name: doc.name,
            rev: doc.rev,
        };
        let docs = found.into_iter().map(life).collect();
        Ok(Answer::Lives { sum, parts, docs })
    }

    pub(super) fn doc(&mut self, name: &str) -> Result<Answer, R::Error> {
        let stored = self.rows.doc(name)?.filter(|d| self.now < d.until);
        let doc = stored.map(|d| Doc {
            name: name.to_owned(),
            rev: d.rev,
            body: d.body,
        });
        Ok(Answer::Docs(doc.into_iter().collect()))
    }

    /// A page of a directory, with the bodies or without. It ends early where they are much.
    pub(super) fn docs(
        &mut self,
        dir: &str,
        from: &Cursor,
        count: u32,
        with_bodies: bool,
    ) -> Result<Answer, R::Error> {
        let count = usize::try_from(count.max(1)).unwrap_or(usize::MAX);
        let names = self.rows.doc_names(dir, &from.0, count)?;
        let last = names.last().filter(|_| names.len() == count);
        let mut page = Page {
            next: last.map(|last| after(&last.name)),
            ..Page::default()
        };
        let mut room = MUCH;
        for DocName { name, rev, until } in names {
            if directory(&name) != dir || until <= self.now {
                continue;
            }
            let body = match with_bodies {
                true => match self.rows.doc(&name)? {
                    Some(doc) => doc.body,
                    // It cannot be read.
                    None => continue,
                },
                false => String::new(),
            };
            if body.len() > room && !page.docs.is_empty() {
                page.next = Some(Cursor(name));
                break;
            }
            room = room.saturating_sub(body.len());
            page.docs.push(Doc { name, rev, body });
        }
        Ok(Answer::Page(page))
    }
}
