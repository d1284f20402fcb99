//! One call being executed: to which rule each operation goes, and the rows as they count now.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    super::{Announcement, Answer, Kind, MALFORMED, NodeMs, Op, Record, Token, View},
    Body, Claim, Entry, Gate, Guarded, Key, LAST, Malformed, Row, Rows, State, above_all, bare,
    ceil_ms, later, out_of_range, votes,
};

/// An attempt on a lock.
#[derive(Clone, Copy)]
pub(super) struct Attempt<'a> {
    pub(super) owner: &'a str,
    pub(super) ttl: Duration,
    pub(super) floor: Token,
}

/// One round of a held lease.
#[derive(Clone, Copy)]
pub(super) struct Round<'a> {
    pub(super) owner: &'a str,
    pub(super) seq: u64,
    pub(super) ttl: Duration,
    pub(super) token: Token,
}

/// How a lease is broken.
#[derive(Clone, Copy)]
pub(super) struct Force<'a> {
    pub(super) owner: &'a str,
    pub(super) token: Token,
    pub(super) ttl: Duration,
    pub(super) marked: Duration,
    pub(super) retention: Duration,
    pub(super) now: bool,
}

/// One call being executed.
pub(super) struct Turn<'a, R> {
    pub(super) rows: &'a mut R,
    pub(super) gate: &'a mut Gate,
    pub(super) guarded: Option<Guarded<'a>>,
    pub(super) now: NodeMs,
    pub(super) wall_ms: i64,
    /// What each owner's claims were granted in this call: they share it.
    pub(super) claimed: BTreeMap<String, Token>,
    /// Locks whose rows have gone in this call.
    pub(super) gone: BTreeSet<String>,
}

// === impl Turn ===

impl<R: Rows> Turn<'_, R> {
    pub(super) fn answer(&mut self, op: &Op) -> Result<Answer, R::Error> {
        if votes(op) && !self.may_vote() {
            return Ok(Answer::Unadmitted);
        }
        match op {
            Op::Acquire { .. } => self.acquire(op),
            Op::Leave { key, ticket } => {
                self.leave(key, ticket)?;
                Ok(Answer::Done)
            }
            Op::Confirm {
                key,
                owner,
                kind: Kind::Lock,
                token,
                expiry,
            } => self.confirm_lock(key, owner, *token, *expiry),
            Op::Confirm {
                key, owner, token, ..
            } => self.confirm_claim(key, owner, *token),
            Op::Extend {
                key,
                owner,
                kind,
                seq,
                ttl,
                token,
                take,
            } => {
                let round = Round {
                    owner,
                    seq: *seq,
                    ttl: *ttl,
                    token: *token,
                };
                match kind {
                    Kind::Lock => self.extend_lock(key, round, take),
                    Kind::Claim => self.extend_claim(key, round),
                }
            }
            Op::Release {
                key,
                owner,
                kind: Kind::Lock,
                marked,
                retention,
            } => self.release_lock(key, owner, *marked, *retention),
            Op::Release { key, owner, .. } => self.release_claim(key, owner),
            Op::Break {
                key,
                owner,
                token,
                ttl,
                marked,
                retention,
                now,
            } => {
                let force = Force {
                    owner,
                    token: *token,
                    ttl: *ttl,
                    marked: *marked,
                    retention: *retention,
                    now: *now,
                };
                self.break_lease(key, force)
            }
            Op::Write {
                key,
                owner,
                version,
                body,
                not_before,
                expiry,
            } => {
                let Some(entry) = self.held(key, owner, *expiry)? else {
                    return self.refused(key);
                };
                self.write(key, entry, *version, body, *not_before)
            }
            Op::Read { key } => {
                let view = self.view(key)?;
                if self.body(key)?.is_some_and(|body| body.damaged) {
                    return Ok(bare(key));
                }
                let record = self.record(key)?;
                Ok(Answer::View(View { record, ..view }))
            }
            Op::List {
                prefix,
                from,
                count,
            } => self.list(prefix, from, *count),
            Op::PutDoc {
                name,
                rev,
                ttl,
                body,
            } => self.put_doc(name, *rev, *ttl, body),
            Op::Docs { dir, from, count } => self.docs(dir, from, *count, true),
            Op::DocNames { dir, from, count } => self.docs(dir, from, *count, false),
            Op::TouchDoc { name, rev, ttl } => self.touch_doc(name, *rev, *ttl),
            Op::Living {
                dir,
                least,
                most,
                known,
            } => self.living(dir, (*least, *most), known),
            Op::Doc { name } => self.doc(name),
            Op::RemoveDoc { name } => self.rows.drop_doc(name).map(|()| Answer::Done),
            Op::Admission => self.admission(),
            Op::Nominate { nonce, over } => self.nominate(nonce, over.as_deref()),
            Op::Merge {
                nonce,
                key,
                record,
                retention,
            } => self.merge(nonce, key, record, *retention),
            Op::Enrol { was, roster } => Ok(self.enrol(was, roster)),
            Op::Close {
                was,
                nonce,
                config,
                forgets,
            } => Ok(self.close(was, nonce, config, *forgets)),
            Op::Admit {
                nonce,
                config,
                roster,
                counter,
                memory_loss,
            } => self.admit(nonce, (config, roster), *counter, *memory_loss),
            Op::Records { from, count } => self.records(from, *count),
            Op::Sweep { from, count } => self.sweep(from, *count),
            Op::Forget {
                key,
                seen,
                retention,
            } => self.forget(key, seen, *retention),
        }
    }

    // --- rows as they count now ---

    /// The record, if the row is one.
    pub(super) fn entry(&mut self, key: &str) -> Result<Option<Entry>, R::Error> {
        Ok(match self.rows.row(key)? {
            Some(Row::Record(entry)) => Some(entry),
            _ => None,
        })
    }

    /// The record, where it names this owner.
    pub(super) fn own(&mut self, key: &str, owner: &str) -> Result<Option<Entry>, R::Error> {
        let entry = self.entry(key)?;
        Ok(entry.filter(|e| self.names(&e.inc) && e.owner == owner))
    }

    /// Whether a claim bars others.
    pub(super) fn lives(&self, claim: &Claim) -> bool {
        self.names(&claim.inc) && self.now < claim.until
    }

    /// What stands in the plain key.
    pub(super) fn plain(&mut self, key: &str) -> Result<Option<Key>, R::Error> {
        let plain = self.rows.plain(key)?;
        Ok(plain.filter(|k| k.until.is_none_or(|until| self.now < until)))
    }

    /// The body beside a row, until it has ended.
    pub(super) fn body(&mut self, key: &str) -> Result<Option<Body>, R::Error> {
        let now = self.now;
        let body = self.rows.body(key)?;
        Ok(body.filter(|b| b.until.is_none_or(|until| now < until)))
    }

    /// The same, as its reader sees it.
    pub(super) fn record(&mut self, key: &str) -> Result<Record, R::Error> {
        Ok(self.body(key)?.map(|b| b.record).unwrap_or_default())
    }

    /// What the next grant of this lock is above: its record's counter (C2), where that is of another incarnation also `c`
    /// (C1), and `c` where no record stands (C4).
    pub(super) fn base(&mut self, row: Option<&Row>) -> Result<Token, R::Error> {
        match row.and_then(Row::entry) {
            Some(entry) if self.names(&entry.inc) => Ok(entry.counter),
            Some(entry) => Ok(self.rows.forgotten()?.max(entry.counter)),
            None => self.rows.forgotten(),
        }
    }

    /// Why nothing can be granted, forgotten or written anew above `c`: it is none that could be counted with.
    pub(super) fn uncounted(&mut self, key: &str) -> Result<Option<Answer>, R::Error> {
        let counts = self.rows.forgotten()? <= LAST;
        Ok((!counts).then(|| out_of_range(key)))
    }

    pub(super) fn view(&mut self, key: &str) -> Result<View, R::Error> {
        let row = self.rows.row(key)?;
        self.view_of(key, row.as_ref())
    }

    /// What a row shows, without its body.
    pub(super) fn view_of(&mut self, key: &str, row: Option<&Row>) -> Result<View, R::Error> {
        if let Some(Row::Malformed(_)) = row {
            return Ok(View::malformed(key));
        }
        let plain = self.plain(key)?;
        let (shown, until) = match row {
            _ if self.rows.is_raw() => (None, NodeMs(0)),
            Some(Row::Claim(claim)) => (Some(&claim.owner), claim.until),
            Some(Row::Record(e)) if e.stands() => (Some(&e.owner), e.until),
            _ => (None, NodeMs(0)),
        };
        let living = shown.filter(|_| self.now < until);
        let (holder, until) = match &plain {
            Some(plain) => (Some(&plain.value), plain.until),
            None => (living, living.map(|_| until)),
        };
        let entry = row.and_then(Row::entry);
        let token = match row {
            Some(Row::Record(entry)) => entry.counter,
            Some(Row::Claim(claim)) => claim.grant,
            Some(Row::Malformed(_)) | None => Token(0),
        };
        let version = match entry {
            Some(entry) => entry.version,
            None => self.record(key)?.version,
        };
        let foreign = match (&plain, row) {
            (None, _) => false,
            (Some(plain), Some(Row::Record(entry))) => entry.owner != plain.value,
            (Some(plain), Some(Row::Claim(claim))) => claim.owner != plain.value,
            (Some(_), Some(Row::Malformed(_)) | None) => true,
        };
        Ok(View {
            key: key.to_owned(),
            ahead: None,
            holder: holder.cloned(),
            remaining_ms: until.map(|until| until.0 - self.now.0),
            owner: entry.map(|e| e.owner.clone()),
            seq: entry.map_or(0, |e| e.seq),
            released: entry.is_some_and(|e| e.state == State::Released),
            broken: entry.is_some_and(|e| e.state == State::Broken),
            token,
            record: Record {
                version,
                body: String::new(),
            },
            ttl_ms: entry.map_or(0, |e| ceil_ms(e.ttl)),
            named: row.is_some_and(|row| self.names(row.inc())),
            inc: row.map(|row| row.inc().to_owned()).unwrap_or_default(),
            foreign,
        })
    }

    pub(super) fn refused(&mut self, key: &str) -> Result<Answer, R::Error> {
        Ok(Answer::Refused(self.view(key)?))
    }

    // --- writing ---

    pub(super) fn drop_row(&mut self, key: &str) -> Result<(), R::Error> {
        self.gone.insert(key.to_owned());
        self.rows.drop_row(key)
    }

    /// Tells the clients that wait, if any does (W6).
    pub(super) fn announce(&mut self, key: &str, entry: &Entry) -> Result<(), R::Error> {
        if entry.waits <= self.now {
            return Ok(());
        }
        let next = self.head(key)?;
        let (key, owner) = (key.to_owned(), entry.owner.clone());
        self.rows.announce(Announcement { key, owner, next })
    }

    /// The body ends `retention` from now.
    pub(super) fn end_body(&mut self, key: &str, retention: Duration) -> Result<(), R::Error> {
        let until = Some(later(self.now, retention));
        self.rows.keep_body(key, self.now, until)
    }

    /// A row that makes no sense may have been a lease: it becomes one of no owner that is broken, and ends by the clock when the
    /// longest lease of before is over. What its own holder does meanwhile is refused.
    pub(super) fn mend(&mut self, key: &str, longest: Duration) -> Result<(), R::Error> {
        let Some(Row::Malformed(Malformed { counter, ttl })) = self.rows.row(key)? else {
            return Ok(());
        };
        let ttl = ttl.max(longest);
        let counter = counter.unwrap_or_else(|| above_all(self.wall_ms));
        let broken = Entry {
            state: State::Broken,
            owner: MALFORMED.to_owned(),
            ttl,
            counter,
            inc: self.inc().unwrap_or_default().to_owned(),
            version: self.record(key)?.version,
            until: later(self.now, ttl),
            ..Entry::default()
        };
        self.rows.put_row(key, &Row::Record(broken))
    }

    /// C3: what is forgotten is remembered as a number.
    pub(super) fn raise(&mut self, token: Token) -> Result<(), R::Error> {
        if self.rows.forgotten()? < token {
            self.rows.set_forgotten(token)
        } else {
            Ok(())
        }
    }
}
