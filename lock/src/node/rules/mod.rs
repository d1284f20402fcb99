//! What a node answers, as plain functions of its rows and its time: no clock, no I/O, no chance.
//!
//! Memory and the embedded file differ only in where their rows lie (`Rows`), so they cannot differ in meaning.
//! Redis says the same in Lua; the conformance suite holds all of them together.
//!
//! # What is remembered, and for how long
//! - A *key* until its time to live ends or its owner releases it.
//! - A *record* of a named lock until `retention` after its owner's release; unreleased, broken and merged ones stay.
//! - The *grant* of a claiming owner until the longest of its claims would have ended.
//! - That an owner is *over* for `retention`, a minute at most, per lock: its late `Acquire` or `Extend` is refused
//!   even when its record has a new owner by then, or when its release came first. After a break the whole
//!   `retention`: that holder does not know, and would go on for as long as it is let.
//!
//! # Order
//! Every operation judges the owner first and touches rows after (N6). Rows past their end count as absent,
//! whether or not they have been swept.

use std::time::Duration;

use super::{
    Announcement, Answer, Call, Kind, NodeError, NodeMs, Op, Record, Reply, Take, Token, View,
};

mod gate;
mod leases;
mod records;
mod wait_queue;

pub(crate) use gate::{Gate, Guarded};
pub(crate) use wait_queue::Waiter;

#[cfg(any(test, feature = "testing"))]
thread_local! {
    /// Switches off the rule that a released lease is never revived, to show that the simulation notices.
    #[doc(hidden)]
    pub static REVIVE_RELEASED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Tokens, rounds and revisions stay below this: Lua's numbers are exact only up to here.
pub(crate) const LIMIT: u64 = 1 << 53;

/// The value that stands in a lock's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The holder's random value, or whatever a foreign client wrote.
    pub value: String,
    /// When it ends; `None` for a key without a time to live.
    pub until: Option<NodeMs>,
}

/// The record beside a named lock.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Entry {
    /// Owner of the present or of the last lease.
    pub owner: String,
    /// Its round.
    pub seq: u64,
    /// Its time to live.
    pub ttl: Duration,
    /// What this node granted to this attempt.
    pub grant: Token,
    /// The incarnation it was written under.
    pub inc: String,
    /// Whether the owner has let go.
    pub released: bool,
    /// Whether the owner is over and does not know.
    pub broken: bool,
    /// The largest token known here for this lock.
    pub counter: Token,
    /// What the holders leave for their successors.
    pub record: Record,
    /// How long a released record is kept.
    pub retention: Duration,
    /// When a released record ends.
    pub until: Option<NodeMs>,
}

// === impl Entry ===

impl Entry {
    /// Whether this value is its owner's; what was merged in has no owner.
    fn is_of(&self, value: &str) -> bool {
        !self.owner.is_empty() && self.owner == value
    }
}

/// What a claiming owner was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claimant {
    pub(crate) grant: Token,
    pub(crate) until: NodeMs,
}

/// A stored document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) rev: u64,
    pub(crate) ttl: Duration,
    pub(crate) until: NodeMs,
    pub(crate) body: String,
}

/// Where a node's rows lie. Reads may return rows that have ended; the rules judge that.
pub(crate) trait Rows {
    /// What goes wrong while reading or writing rows.
    type Error;

    fn counter(&mut self) -> Result<Token, Self::Error>;
    fn set_counter(&mut self, counter: Token) -> Result<(), Self::Error>;

    fn key(&mut self, key: &str) -> Result<Option<Key>, Self::Error>;
    fn put_key(&mut self, key: &str, row: &Key) -> Result<(), Self::Error>;
    fn drop_key(&mut self, key: &str) -> Result<(), Self::Error>;

    fn entry(&mut self, key: &str) -> Result<Option<Entry>, Self::Error>;
    fn put_entry(&mut self, key: &str, row: &Entry) -> Result<(), Self::Error>;
    /// Names of all keys and records that start with `prefix`, in order, each once.
    fn names(&mut self, prefix: &str) -> Result<Vec<String>, Self::Error>;

    fn claimant(&mut self, owner: &str) -> Result<Option<Claimant>, Self::Error>;
    fn put_claimant(&mut self, owner: &str, row: Claimant) -> Result<(), Self::Error>;
    /// Until when this owner is remembered as over for this lock.
    fn over(&mut self, key: &str, owner: &str) -> Result<Option<NodeMs>, Self::Error>;
    fn put_over(&mut self, key: &str, owner: &str, until: NodeMs) -> Result<(), Self::Error>;

    fn doc(&mut self, name: &str) -> Result<Option<Stored>, Self::Error>;
    fn put_doc(&mut self, name: &str, row: &Stored) -> Result<(), Self::Error>;
    fn drop_doc(&mut self, name: &str) -> Result<(), Self::Error>;
    /// Documents whose [`directory`] is `dir`, in order.
    fn docs(&mut self, dir: &str) -> Result<Vec<(String, Stored)>, Self::Error>;
    /// Names and revisions of what [`Rows::docs`] shows of what lives at `now`, `limit` at most.
    fn doc_names(
        &mut self,
        dir: &str,
        now: NodeMs,
        limit: usize,
    ) -> Result<Vec<(String, u64)>, Self::Error>;

    /// The waiters in a lock's queue, in order.
    fn waiters(&mut self, key: &str) -> Result<Vec<Waiter>, Self::Error>;
    fn put_waiters(&mut self, key: &str, waiters: &[Waiter]) -> Result<(), Self::Error>;

    /// Tells the waiters that a lease is over.
    fn announce(&mut self, news: Announcement) -> Result<(), Self::Error>;
}

/// May this call act at all? Nothing has been executed when it may not.
pub(crate) fn admit(now: NodeMs, call: &Call) -> Result<(), NodeError> {
    if call.not_after.is_some_and(|last| now > last) {
        return Err(NodeError::Late { at: now });
    }
    let largest = call.ops.iter().map(|op| match op {
        Op::Acquire { floor, .. } => floor.0,
        Op::Confirm { token, .. } | Op::Break { token, .. } => token.0,
        Op::Extend { seq, token, .. } => token.0.max(*seq),
        Op::Write { version, .. } => version.token.0.max(version.rev),
        Op::PutDoc { rev, .. } => *rev,
        Op::Merge {
            counter, record, ..
        } => counter
            .0
            .max(record.version.token.0)
            .max(record.version.rev),
        Op::Admit { counter, .. } => counter.0,
        _ => 0,
    });
    match largest.max() {
        Some(number) if number >= LIMIT => Err(NodeError::Protocol(format!(
            "number out of range: {number}"
        ))),
        _ => Ok(()),
    }
}

/// Executes a call that is in time, on a node without a guard.
#[cfg(feature = "sqlite")]
pub(crate) fn execute<R: Rows>(
    rows: &mut R,
    now: NodeMs,
    wall_ms: i64,
    call: &Call,
) -> Result<Reply, R::Error> {
    execute_guarded(rows, (&mut Gate::default(), None), now, wall_ms, call)
}

/// Executes a call that is in time.
pub(crate) fn execute_guarded<R: Rows>(
    rows: &mut R,
    (gate, guarded): (&mut Gate, Option<Guarded<'_>>),
    now: NodeMs,
    wall_ms: i64,
    call: &Call,
) -> Result<Reply, R::Error> {
    let mut turn = Turn {
        rows,
        gate,
        guarded,
        now,
        wall_ms,
    };
    let answers = call
        .ops
        .iter()
        .map(|op| turn.answer(op))
        .collect::<Result<_, _>>()?;
    Ok(Reply {
        at: now,
        wall_ms,
        eligibility: turn.eligibility(),
        answers,
    })
}

/// `by` after `now`, rounded up to a millisecond, within what every store can keep.
pub(crate) fn later(now: NodeMs, by: Duration) -> NodeMs {
    NodeMs(
        now.0
            .saturating_add(ceil_ms(by))
            .min(i64::MAX.unsigned_abs()),
    )
}

/// Milliseconds, rounded up: a lease must not end early on its node.
pub(crate) fn ceil_ms(d: Duration) -> u64 {
    let ms = d.as_nanos().div_ceil(1_000_000);
    u64::try_from(ms)
        .unwrap_or(u64::MAX)
        .min(i64::MAX.unsigned_abs())
}

/// Whether the answer counts towards a majority.
fn votes(op: &Op) -> bool {
    matches!(
        op,
        Op::Acquire { .. } | Op::Confirm { .. } | Op::Extend { .. } | Op::Write { .. }
    )
}

/// The directory of a document: its name up to the last slash, empty without one.
pub(crate) fn directory(name: &str) -> &str {
    &name[..name.rfind('/').map_or(0, |slash| slash + 1)]
}

/// One round of a held lease.
#[derive(Clone, Copy)]
struct Round {
    seq: u64,
    ttl: Duration,
    token: Token,
}

/// How a lease is broken.
struct Force {
    token: Token,
    ttl: Duration,
    retention: Duration,
    now: bool,
}

/// One call being executed.
struct Turn<'a, R> {
    rows: &'a mut R,
    gate: &'a mut Gate,
    guarded: Option<Guarded<'a>>,
    now: NodeMs,
    wall_ms: i64,
}

// === impl Turn ===

impl<R: Rows> Turn<'_, R> {
    fn answer(&mut self, op: &Op) -> Result<Answer, R::Error> {
        if votes(op) && !self.may_vote() {
            return Ok(Answer::Unadmitted);
        }
        match op {
            Op::Acquire {
                key,
                owner,
                kind,
                ttl,
                floor,
                take,
                clamp,
                ticket,
            } => {
                let ticket = ticket.as_ref().filter(|_| *kind == Kind::Lock);
                let ahead = match ticket {
                    Some(ticket) if !self.is_own(key, owner)? => Some(self.queue(key, ticket)?),
                    _ => None,
                };
                let steps_back = ahead.is_some_and(|n| n > 0) && ticket.is_some_and(|t| t.polite);
                let answer = match (kind, take) {
                    _ if steps_back => None,
                    (Kind::Claim, _) => self.acquire_claim(key, owner, *ttl, *floor)?,
                    (Kind::Lock, take) => self.acquire_lock(key, owner, *ttl, *floor, take)?,
                };
                match answer {
                    Some(granted) => {
                        if let Some(ticket) = ticket {
                            self.leave(key, &ticket.id)?;
                        }
                        Ok(granted)
                    }
                    None => {
                        self.clamp(key, *clamp)?;
                        let view = self.view(key)?;
                        Ok(Answer::Refused(View { ahead, ..view }))
                    }
                }
            }
            Op::Leave { key, ticket } => {
                self.leave(key, ticket)?;
                Ok(Answer::Done)
            }
            Op::Confirm {
                key,
                owner,
                kind,
                token,
                expiry,
            } => self.confirm(key, owner, *kind, *token, *expiry),
            Op::Extend {
                key,
                owner,
                kind: Kind::Lock,
                seq,
                ttl,
                token,
                take,
            } => {
                let round = Round {
                    seq: *seq,
                    ttl: *ttl,
                    token: *token,
                };
                match take {
                    Take::Server => self.extend_by_key(key, owner, round),
                    Take::Observed(seen) => self.extend_by_record(key, owner, round, seen.as_ref()),
                }
            }
            Op::Extend {
                key,
                owner,
                kind: Kind::Claim,
                ttl,
                token,
                ..
            } => self.extend_claim(key, owner, *ttl, *token),
            Op::Release {
                key,
                owner,
                kind,
                retention,
            } => self.release(key, owner, *kind, *retention),
            Op::Break {
                key,
                owner,
                token,
                ttl,
                retention,
                now,
            } => self.break_lease(
                key,
                owner,
                &Force {
                    token: *token,
                    ttl: *ttl,
                    retention: *retention,
                    now: *now,
                },
            ),
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
            Op::Read { key } => Ok(Answer::View(self.view(key)?)),
            Op::List { prefix } => self.list(prefix),
            Op::PutDoc {
                name,
                rev,
                ttl,
                body,
            } => self.put_doc(name, *rev, *ttl, body),
            Op::Docs { dir } => self.docs(dir),
            Op::DocNames { dir, limit } => self.doc_names(dir, *limit),
            Op::Doc { name } => self.doc(name),
            Op::RemoveDoc { name } => self.rows.drop_doc(name).map(|()| Answer::Done),
            Op::Admission => self.admission(),
            Op::Nominate { nonce } => self.nominate(nonce),
            Op::Merge {
                nonce,
                key,
                counter,
                record,
            } => self.merge(nonce, key, *counter, record),
            Op::Admit {
                nonce,
                config,
                counter,
                memory_loss,
            } => self.admit(nonce, config, *counter, *memory_loss),
            Op::Records { after, limit } => self.records(after, *limit),
        }
    }

    // --- rows as they count now ---

    fn holder(&mut self, key: &str) -> Result<Option<Key>, R::Error> {
        Ok(self
            .rows
            .key(key)?
            .filter(|k| k.until.is_none_or(|until| self.now < until)))
    }

    fn entry(&mut self, key: &str) -> Result<Option<Entry>, R::Error> {
        Ok(self
            .rows
            .entry(key)?
            .filter(|e| e.until.is_none_or(|until| self.now < until)))
    }

    fn claimant(&mut self, owner: &str) -> Result<Option<Claimant>, R::Error> {
        Ok(self.rows.claimant(owner)?.filter(|c| self.now < c.until))
    }

    /// Whether this owner has been released here, on this lock.
    fn over(&mut self, key: &str, owner: &str) -> Result<bool, R::Error> {
        let until = self.rows.over(key, owner)?;
        Ok(until.is_some_and(|until| self.now < until))
    }

    /// What the next grant of this lock is above: its record's counter, or the node's when there is no record. A record
    /// of another incarnation may be older than what the node was admitted with.
    fn base(&mut self, entry: Option<&Entry>) -> Result<Token, R::Error> {
        match entry {
            Some(entry) if self.names(entry) => Ok(entry.counter),
            Some(entry) => Ok(self.rows.counter()?.max(entry.counter)),
            None => self.rows.counter(),
        }
    }

    /// Whether the record names this owner already.
    fn is_own(&mut self, key: &str, owner: &str) -> Result<bool, R::Error> {
        let entry = self.entry(key)?;
        Ok(entry.is_some_and(|e| self.names(&e) && e.owner == owner))
    }

    fn announce(&mut self, key: &str, owner: &str) -> Result<(), R::Error> {
        let next = self.head(key)?;
        let (key, owner) = (key.to_owned(), owner.to_owned());
        self.rows.announce(Announcement { key, owner, next })
    }

    /// Whether the key's value is of a lease of ours: of the record's owner, or of a claim.
    fn is_ours(&mut self, holder: &Key, entry: Option<&Entry>) -> Result<bool, R::Error> {
        let recorded = entry.is_some_and(|e| e.is_of(&holder.value));
        Ok(recorded || self.claimant(&holder.value)?.is_some())
    }

    fn view(&mut self, key: &str) -> Result<View, R::Error> {
        let holder = self.holder(key)?;
        let entry = self.entry(key)?;
        let foreign = match &holder {
            Some(holder) => !self.is_ours(holder, entry.as_ref())?,
            None => false,
        };
        let token = match (&entry, &holder) {
            (Some(entry), _) => entry.counter,
            (None, Some(key)) => self.claimant(&key.value)?.map_or(Token(0), |c| c.grant),
            (None, None) => Token(0),
        };
        let until = holder.as_ref().and_then(|k| k.until);
        let named = entry.as_ref().is_some_and(|entry| self.names(entry));
        let entry = entry.unwrap_or_default();
        Ok(View {
            key: key.to_owned(),
            ahead: None,
            holder: holder.map(|k| k.value),
            remaining_ms: until.map(|until| until.0 - self.now.0),
            owner: Some(entry.owner).filter(|owner| !owner.is_empty()),
            seq: entry.seq,
            released: entry.released,
            token,
            record: entry.record,
            ttl_ms: ceil_ms(entry.ttl),
            named,
            inc: entry.inc,
            broken: entry.broken,
            foreign,
        })
    }

    fn refused(&mut self, key: &str) -> Result<Answer, R::Error> {
        Ok(Answer::Refused(self.view(key)?))
    }

    // --- writing ---

    /// O6: a key of ours that lives longer than any lease, because a clock was set back, is cut. A foreign one may.
    fn clamp(&mut self, key: &str, longest: Duration) -> Result<(), R::Error> {
        let Some(holder) = self.holder(key)? else {
            return Ok(());
        };
        let entry = self.entry(key)?;
        // A holder whose leases may be longer than the caller's knows best.
        let own = entry.as_ref().filter(|e| e.is_of(&holder.value));
        let last = later(self.now, own.map_or(longest, |e| e.ttl.max(longest)));
        if holder.until.is_some_and(|until| until <= last)
            || !self.is_ours(&holder, entry.as_ref())?
        {
            return Ok(());
        }
        let until = Some(last);
        self.rows.put_key(key, &Key { until, ..holder })
    }

    /// The key shows `owner` for at least `ttl` from now.
    fn hold(&mut self, key: &str, owner: &str, ttl: Duration) -> Result<(), R::Error> {
        let own = self.holder(key)?.filter(|k| k.value == owner);
        let known = own.and_then(|k| k.until).unwrap_or_default();
        let until = Some(later(self.now, ttl).max(known));
        let value = owner.to_owned();
        self.rows.put_key(key, &Key { value, until })
    }

    fn remember(&mut self, owner: &str, grant: Token, ttl: Duration) -> Result<(), R::Error> {
        let known = self.claimant(owner)?.map(|c| c.until);
        let until = known.unwrap_or_default().max(later(self.now, ttl));
        self.rows.put_claimant(owner, Claimant { grant, until })
    }

    fn raise(&mut self, token: Token) -> Result<(), R::Error> {
        if self.rows.counter()? < token {
            self.rows.set_counter(token)
        } else {
            Ok(())
        }
    }
}
