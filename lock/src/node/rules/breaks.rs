//! Ending a lease by force.

use super::{Entry, Force, Key, Row, Rows, State, Turn, later};
use crate::node::Answer;

impl<R: Rows> Turn<'_, R> {
    /// N7: a broken lease is watched like a held one (B1), because its holder does not know yet: an owner that was granted
    /// now would be the second to believe. It hears of it at its next round.
    pub(super) fn break_lease(&mut self, key: &str, force: Force<'_>) -> Result<Answer, R::Error> {
        let row = self.rows.row(key)?;
        let before = self.view_of(key, row.as_ref())?;
        let plain = self.plain(key)?;
        // What a foreign client wrote has neither record nor grant.
        if before.foreign || plain.as_ref().is_some_and(|k| k.value != force.owner) {
            return Ok(Answer::Refused(before));
        }
        match &row {
            Some(Row::Record(e)) if self.names(&e.inc) && e.owner == force.owner => {
                self.break_record(key, e.clone(), force)?;
            }
            Some(Row::Record(e)) if self.names(&e.inc) && e.stands() => {
                return Ok(Answer::Refused(before));
            }
            Some(Row::Malformed(_)) => return Ok(Answer::Refused(before)),
            // It says nothing but whose it is: nothing would refuse its holder, which believes in it until then.
            Some(Row::Claim(claim)) if self.lives(claim) => {
                return Ok(Answer::Refused(before));
            }
            // B2, B4: else its next round would heal this node, and the one after it count it.
            other => {
                let named = other.as_ref().and_then(Row::entry);
                let named = named.is_some_and(|e| self.names(&e.inc));
                if !named && let Some(uncounted) = self.uncounted(key)? {
                    return Ok(uncounted);
                }
                self.mark(key, other.as_ref(), force)?;
            }
        }
        match plain {
            Some(_) if force.now => self.rows.drop_plain(key)?,
            Some(Key { value, until: None }) => {
                let until = Some(later(self.now, force.ttl));
                self.rows.put_plain(key, &Key { value, until })?;
            }
            _ => {}
        }
        Ok(Answer::Broken(before))
    }

    /// The target's own record.
    fn break_record(&mut self, key: &str, entry: Entry, force: Force<'_>) -> Result<(), R::Error> {
        let counter = entry.counter.max(force.token);
        let entry = Entry { counter, ..entry };
        if force.now && entry.stands() {
            // W4.
            return self.let_go(key, entry, force.marked, force.retention);
        }
        let state = match entry.state {
            State::Held => State::Broken,
            other => other,
        };
        self.rows
            .put_row(key, &Row::Record(Entry { state, ..entry }))
    }

    /// Writes a mark in the target's name where nothing stands that others must watch.
    fn mark(&mut self, key: &str, row: Option<&Row>, force: Force<'_>) -> Result<(), R::Error> {
        let (state, life) = match force.now {
            true => (State::Released, force.marked),
            false => (State::Broken, force.ttl),
        };
        let before = row.and_then(Row::entry);
        let mark = Entry {
            state,
            owner: force.owner.to_owned(),
            ttl: force.ttl,
            counter: self.base(row)?.max(force.token),
            inc: self.inc().unwrap_or_default().to_owned(),
            version: self.record(key)?.version,
            until: later(self.now, life),
            waits: before.map(|e| e.waits).unwrap_or_default(),
            ..Entry::default()
        };
        self.rows.put_row(key, &Row::Record(mark))?;
        match force.now {
            true => self.end_body(key, force.retention),
            false => Ok(()),
        }
    }
}
