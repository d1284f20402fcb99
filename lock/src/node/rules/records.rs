//! Bodies and documents.

use std::time::Duration;

use super::{Body, Entry, Row, Rows, Stored, Turn, later};
use crate::node::{Answer, Doc, Record, Version};

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
        let until = None;
        self.rows.put_body(key, &Body { record, until })?;
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

    pub(super) fn doc(&mut self, name: &str) -> Result<Answer, R::Error> {
        let stored = self.rows.doc(name)?.filter(|d| self.now < d.until);
        let doc = stored.map(|d| Doc {
            name: name.to_owned(),
            rev: d.rev,
            body: d.body,
        });
        Ok(Answer::Docs(doc.into_iter().collect()))
    }

    pub(super) fn doc_names(&mut self, dir: &str, limit: u32) -> Result<Answer, R::Error> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let found = self.rows.doc_names(dir, self.now, limit)?.into_iter();
        let nameless = found.map(|(name, rev)| Doc {
            name,
            rev,
            body: String::new(),
        });
        Ok(Answer::Docs(nameless.collect()))
    }

    pub(super) fn docs(&mut self, dir: &str) -> Result<Answer, R::Error> {
        let stored = self.rows.docs(dir)?;
        let living = stored.into_iter().filter(|(_, d)| self.now < d.until);
        Ok(Answer::Docs(
            living
                .map(|(name, d)| Doc {
                    name,
                    rev: d.rev,
                    body: d.body,
                })
                .collect(),
        ))
    }
}
