//! Walks through a node's memory: listing, reading it for a successor, and forgetting.

use std::time::Duration;

use super::{Body, LEFT, Row, Rows, Turn, later};
use crate::node::{Answer, Cursor, Page, Seen};

/// The least name after it.
pub(super) fn after(name: &str) -> Cursor {
    Cursor(format!("{name}\0"))
}

impl<R: Rows> Turn<'_, R> {
    /// The names of a page, and where the next one begins.
    fn page(
        &mut self,
        prefix: &str,
        from: &Cursor,
        count: u32,
    ) -> Result<(Vec<String>, Option<Cursor>), R::Error> {
        let count = usize::try_from(count.max(1)).unwrap_or(usize::MAX);
        let names = self.rows.names(prefix, &from.0, count)?;
        let last = names.last().filter(|_| names.len() == count);
        let next = last.map(|last| after(last));
        Ok((names, next))
    }

    pub(super) fn list(
        &mut self,
        prefix: &str,
        from: &Cursor,
        count: u32,
    ) -> Result<Answer, R::Error> {
        let (names, next) = self.page(prefix, from, count)?;
        let mut page = Page {
            next,
            ..Page::default()
        };
        for name in names {
            let row = self.rows.row(&name)?;
            let shown = match &row {
                Some(Row::Record(_) | Row::Malformed(_)) => true,
                Some(Row::Claim(claim)) => self.now < claim.until,
                None => false,
            };
            if shown {
                page.views.push(self.view_of(&name, row.as_ref())?);
            }
        }
        Ok(Answer::Page(page))
    }

    pub(super) fn records(&mut self, from: &Cursor, count: u32) -> Result<Answer, R::Error> {
        let (names, next) = self.page("", from, count)?;
        let mut page = Page {
            next,
            ..Page::default()
        };
        for name in names {
            let row = self.rows.row(&name)?;
            if row.as_ref().is_some_and(|row| row.entry().is_some()) {
                page.views.push(self.view_of(&name, row.as_ref())?);
            }
            match self.body(&name)? {
                // Asked for by itself, it is refused by name.
                Some(Body { damaged: true, .. }) => page.large.push(name),
                Some(Body { record, .. }) => page.bodies.push((name, record)),
                None => {}
            }
        }
        Ok(Answer::Page(page))
    }

    /// S1: judged in the step that deletes.
    pub(super) fn sweep(&mut self, from: &Cursor, count: u32) -> Result<Answer, R::Error> {
        let mut page = Page::default();
        if !self.may_vote() {
            return Ok(Answer::Page(page));
        }
        if let Some(uncounted) = self.uncounted("")? {
            return Ok(uncounted);
        }
        let (names, next) = self.page("", from, count)?;
        page.next = next;
        for name in names {
            let row = self.rows.row(&name)?;
            let (until, is_lease) = match &row {
                // Of another incarnation it names no owner, and no contender watches it.
                Some(Row::Record(e)) => (Some(e.until), e.stands() && self.names(&e.inc)),
                Some(Row::Claim(claim)) => (Some(claim.until), false),
                Some(Row::Malformed(_)) | None => (None, false),
            };
            let ended = until.is_some_and(|until| until <= self.now);
            let mut bars_body = match &row {
                Some(Row::Record(e)) => e.stands(),
                // It may be a lease.
                Some(Row::Malformed(_)) => true,
                _ => false,
            };
            match (ended, is_lease) {
                // The node's clock does not end it (S2).
                (true, true) => page.views.push(self.view_of(&name, row.as_ref())?),
                (true, false) => {
                    if let Some(entry) = row.as_ref().and_then(Row::entry) {
                        self.raise(entry.counter)?;
                    }
                    self.drop_row(&name)?;
                    page.forgotten += 1;
                    bars_body = false;
                }
                (false, _) => {}
            }
            if bars_body {
                continue;
            }
            match self.rows.body(&name)? {
                Some(body) if body.until.is_none() => {
                    // Its lease was lost with its incarnation.
                    let until = Some(later(self.now, LEFT));
                    self.rows.keep_body(&name, self.now, until)?;
                }
                Some(body) if body.until.is_some_and(|until| until <= self.now) => {
                    self.rows.drop_body(&name)?;
                    page.forgotten += 1;
                }
                _ => {}
            }
        }
        Ok(Answer::Page(page))
    }

    /// S2: exactly what was watched.
    pub(super) fn forget(
        &mut self,
        key: &str,
        seen: &Seen,
        retention: Duration,
    ) -> Result<Answer, R::Error> {
        let entry = self.entry(key)?;
        let lease = entry.filter(|e| self.names(&e.inc) && e.stands());
        // A plain key that still stands would bar the lock without the record.
        let shown = self.plain(key)?.is_some();
        if let Some(lease) = lease
            && (lease.is(seen) || forgets_unwatched())
            && !shown
        {
            if let Some(uncounted) = self.uncounted(key)? {
                return Ok(uncounted);
            }
            self.raise(lease.counter)?;
            self.drop_row(key)?;
            self.end_body(key, retention)?;
            // W4.
            self.announce(key, &lease)?;
        }
        Ok(Answer::Done)
    }
}

#[cfg(not(any(test, feature = "testing")))]
const fn forgets_unwatched() -> bool {
    false
}

#[cfg(any(test, feature = "testing"))]
fn forgets_unwatched() -> bool {
    super::mutants::FORGET_UNWATCHED.get()
}
