//! What a node answers, as plain functions of its rows and its time: no clock, no I/O, no chance.
//!
//! Memory and the embedded file differ only in where their rows lie (`Rows`), so they cannot differ in meaning.
//! Redis says the same in Lua; the conformance suite holds all of them together.
//!
//! # What is remembered, and for how long
//! - Per lock at most one *row*: a [`Entry`] of a named lock, which is held, released or broken, or a [`Claim`]. A released one
//!   goes when a sweep finds its mark old enough, a held or broken one when a client has watched it for its ttl; either may
//!   take its place before.
//! - Beside it a *body*, from its first write until `retention` after the release of its last lease.
//! - `c`, the *forgotten* counter: the largest counter of all rows that are gone. A claim's grant raises it at once, a
//!   record's when the record goes. Nothing else is remembered of an owner that is over.
//!
//! # Order
//! Every operation judges the owner first and touches rows after (N6). Claims and documents past their end count as absent,
//! whether or not they have been swept, and so do bodies; records stand until they are.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    Announcement, Answer, Call, Kind, MALFORMED, NodeError, NodeMs, Op, Record, Refusal, Reply,
    Seen, Token, Version, View,
};

mod breaks;
mod gate;
mod leases;
mod records;
mod wait_queue;
mod walk;

pub(crate) use gate::{Gate, Guarded};
pub(crate) use wait_queue::Waiter;

/// Rules that tests switch off, to show that the simulation notices.
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)] // for the tests
pub mod mutants {
    use std::cell::Cell;

    thread_local! {
        /// E2 off: a late extension revives what its owner released, or what was broken.
        pub static REVIVE_RELEASED: Cell<bool> = const { Cell::new(false) };
        /// E3 off: an extension heals over what was granted later.
        pub static HEAL_OVER_LATER: Cell<bool> = const { Cell::new(false) };
        /// S2 off: a lease is forgotten whatever was watched.
        pub static FORGET_UNWATCHED: Cell<bool> = const { Cell::new(false) };
    }
}

/// Tokens, rounds and revisions stay below this: Lua's numbers are exact only up to here.
pub(crate) const LIMIT: u64 = 1 << 53;

/// The largest token: a lock or node whose counter stands there grants no more.
pub(crate) const LAST: Token = Token(LIMIT - 2);

/// No lease on Redis or in a file is longer (115 days): a row has ten digits for its ttl.
pub(crate) const LONGEST_TTL_MS: u64 = 9_999_999_999;

/// From here on a token of one node is not believed unless a majority tells such ones: it is far above every clock and every
/// count, and what is left behind it is enough for a million grants a second for twelve days.
pub(crate) const DOUBTED: Token = Token(LIMIT - (1 << 40));

/// How long a body is kept whose lease was lost with its incarnation, so that no release has said it.
const LEFT: Duration = Duration::from_secs(30 * 24 * 3600);

/// What became of a recorded lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum State {
    /// Its owner may believe in it.
    #[default]
    Held,
    /// Its owner has let go.
    Released,
    /// Over, and its owner may not know.
    Broken,
}

/// The record of a named lock.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Entry {
    /// What became of it.
    pub state: State,
    /// Owner of the present or of the last lease.
    pub owner: String,
    /// Its round.
    pub seq: u64,
    /// Its time to live.
    pub ttl: Duration,
    /// What this node granted to this attempt.
    pub grant: Token,
    /// The largest token known here for this lock while this stands.
    pub counter: Token,
    /// The incarnation it was written under.
    pub inc: String,
    /// Version of the body beside it.
    pub version: Version,
    /// Held and broken: when its ttl ends. Released: until when the mark stays.
    pub until: NodeMs,
    /// Until when a client waits for its end; in the past when none does.
    pub waits: NodeMs,
}

/// A short claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Whose it is.
    pub owner: String,
    /// What this node granted to it.
    pub grant: Token,
    /// The incarnation it was written under.
    pub inc: String,
    /// When it ends.
    pub until: NodeMs,
}

/// What stands for one lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Row {
    /// Of a named lock.
    Record(Entry),
    /// Of a batch or a message.
    Claim(Claim),
    /// None that a node has written: something else changed it. Its lock counts as held.
    Malformed(Malformed),
}

/// What can be read of a row that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Malformed {
    /// The largest token known for the lock.
    pub counter: Option<Token>,
    /// The ttl of its lease.
    pub ttl: Duration,
}

/// What the holders of a lock leave for their successors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    pub(crate) record: Record,
    /// When it ends; `None` while a lease stands.
    pub(crate) until: Option<NodeMs>,
    /// Something else changed it: no heir takes it for what was left.
    pub(crate) damaged: bool,
}

/// The plain key beside a record: the wire format of other Redlock clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// The holder's random value, or whatever a foreign client wrote.
    pub value: String,
    /// When it ends; `None` for a key without a time to live.
    pub until: Option<NodeMs>,
}

// === impl Entry ===

impl Entry {
    /// Whether its lease has not been let go.
    #[must_use]
    pub fn stands(&self) -> bool {
        self.state != State::Released
    }

    /// Whether it is exactly what a contender has seen. Not the state: a break does not restart a watch.
    fn is(&self, seen: &Seen) -> bool {
        seen.inc == self.inc && seen.owner == self.owner && seen.seq == self.seq
    }
}

// === impl Row ===

impl Row {
    /// The record, if it is one.
    #[must_use]
    pub fn entry(&self) -> Option<&Entry> {
        match self {
            Self::Record(entry) => Some(entry),
            Self::Claim(_) | Self::Malformed(_) => None,
        }
    }

    fn inc(&self) -> &str {
        match self {
            Self::Record(entry) => &entry.inc,
            Self::Claim(claim) => &claim.inc,
            Self::Malformed(_) => "",
        }
    }
}

/// A stored document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) rev: u64,
    pub(crate) ttl: Duration,
    pub(crate) until: NodeMs,
    pub(crate) body: String,
}

/// What a listing needs of a document before it shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DocName {
    pub(crate) name: String,
    pub(crate) rev: u64,
    pub(crate) until: NodeMs,
}

/// Where a node's rows lie. Reads may return rows that have ended; the rules judge that.
pub(crate) trait Rows {
    /// What goes wrong while reading or writing rows.
    type Error;

    /// `c`: the largest counter of what was forgotten.
    fn forgotten(&mut self) -> Result<Token, Self::Error>;
    fn set_forgotten(&mut self, counter: Token) -> Result<(), Self::Error>;

    fn row(&mut self, key: &str) -> Result<Option<Row>, Self::Error>;
    fn put_row(&mut self, key: &str, row: &Row) -> Result<(), Self::Error>;
    fn drop_row(&mut self, key: &str) -> Result<(), Self::Error>;

    fn body(&mut self, key: &str) -> Result<Option<Body>, Self::Error>;
    fn put_body(&mut self, key: &str, body: &Body) -> Result<(), Self::Error>;
    /// The body, where one stands that has not ended at `now`, ends then; its text is not touched, which may be large.
    fn keep_body(
        &mut self,
        key: &str,
        now: NodeMs,
        until: Option<NodeMs>,
    ) -> Result<(), Self::Error>;
    fn drop_body(&mut self, key: &str) -> Result<(), Self::Error>;

    /// Names with a row or a body that start with `prefix`, in order, from `from` on, `count` at most.
    fn names(&mut self, prefix: &str, from: &str, count: usize)
    -> Result<Vec<String>, Self::Error>;

    /// Whether every lease shows in a plain key, too.
    fn is_raw(&self) -> bool {
        false
    }
    /// What stands in the plain key.
    fn plain(&mut self, _key: &str) -> Result<Option<Key>, Self::Error> {
        Ok(None)
    }
    fn put_plain(&mut self, _key: &str, _row: &Key) -> Result<(), Self::Error> {
        Ok(())
    }
    fn drop_plain(&mut self, _key: &str) -> Result<(), Self::Error> {
        Ok(())
    }

    fn doc(&mut self, name: &str) -> Result<Option<Stored>, Self::Error>;
    fn put_doc(&mut self, name: &str, row: &Stored) -> Result<(), Self::Error>;
    fn drop_doc(&mut self, name: &str) -> Result<(), Self::Error>;
    /// Documents whose names start with `prefix`, in order, from `from` on, `count` at most.
    fn doc_names(
        &mut self,
        prefix: &str,
        from: &str,
        count: usize,
    ) -> Result<Vec<DocName>, Self::Error>;

    /// The waiters in a lock's queue, in order.
    fn waiters(&mut self, key: &str) -> Result<Vec<Waiter>, Self::Error>;
    fn put_waiters(&mut self, key: &str, waiters: &[Waiter]) -> Result<(), Self::Error>;

    /// Tells the waiters that a lease is over.
    fn announce(&mut self, news: Announcement) -> Result<(), Self::Error>;
}

/// May this call act at all? Nothing has been executed when it may not.
pub(crate) fn admit(now: NodeMs, call: &Call) -> Result<(), NodeError> {
    if call.not_after.is_some_and(|last| now >= last) {
        return Err(NodeError::Late { at: now });
    }
    let refused = |what: String| Err(NodeError::Protocol(what));
    for op in &call.ops {
        let (token, number) = match op {
            Op::Acquire { floor, .. } => (*floor, 0),
            Op::Confirm { token, .. } | Op::Break { token, .. } => (*token, 0),
            Op::Extend { seq, token, .. } => (*token, *seq),
            Op::Write { version, .. } => (version.token, version.rev),
            Op::PutDoc { rev, .. } | Op::TouchDoc { rev, .. } => (Token(0), *rev),
            Op::Merge { record, .. } => (record.version.token, record.version.rev),
            Op::Forget { seen, .. } => (Token(0), seen.seq),
            Op::Admit { counter, .. } => (*counter, 0),
            _ => (Token(0), 0),
        };
        if token > LAST || number >= LIMIT {
            return refused(format!("number out of range: {}", token.0.max(number)));
        }
        // It would be the incarnation of a node without a guard.
        if let Op::Nominate { nonce, .. }
        | Op::Merge { nonce, .. }
        | Op::Close { nonce, .. }
        | Op::Admit { nonce, .. } = op
            && nonce.is_empty()
        {
            return refused("a nonce without letters".to_owned());
        }
    }
    Ok(())
}

/// Executes a call that is in time, on a node without a guard. No others bring its memory back: a counter that makes no sense
/// is told to what needs it in this call, and goes on from the clock for the next one.
#[cfg(feature = "sqlite")]
pub(crate) fn execute<R: Rows>(
    rows: &mut R,
    now: NodeMs,
    wall_ms: i64,
    call: &Call,
) -> Result<Reply, R::Error> {
    let reply = execute_guarded(rows, (&mut Gate::default(), None), now, wall_ms, call)?;
    let is_damage = |answer: &Answer| {
        let refusal = Refusal::Damaged;
        matches!(answer, Answer::Failed(NodeError::Refused { refusal: why, .. }) if *why == refusal)
    };
    let writes = !call.ops.iter().all(only_looks);
    if writes && reply.answers.iter().any(is_damage) && rows.forgotten()? > LAST {
        rows.set_forgotten(above_all(wall_ms))?;
    }
    Ok(reply)
}

/// Whether it changes nothing.
#[cfg(feature = "sqlite")]
pub(crate) fn only_looks(op: &Op) -> bool {
    matches!(
        op,
        Op::Read { .. }
            | Op::List { .. }
            | Op::Docs { .. }
            | Op::DocNames { .. }
            | Op::Doc { .. }
            | Op::Living { .. }
            | Op::Admission
            | Op::Records { .. }
    )
}

/// A token above all that can have been counted: the microseconds of the wall clock.
fn above_all(wall_ms: i64) -> Token {
    let ms = u64::try_from(wall_ms).unwrap_or(0);
    Token(ms.saturating_mul(1_000)).min(LAST)
}

/// Executes a call that is in time.
pub(crate) fn execute_guarded<R: Rows>(
    rows: &mut R,
    (gate, guarded): (&mut Gate, Option<Guarded<'_>>),
    now: NodeMs,
    wall_ms: i64,
    call: &Call,
) -> Result<Reply, R::Error> {
    if let Some(guarded) = guarded.filter(|g| g.incarnation.is_empty())
        && call.ops.iter().any(votes)
    {
        gate.mark(guarded);
    }
    let mut turn = Turn {
        rows,
        gate,
        guarded,
        now,
        wall_ms,
        claimed: BTreeMap::new(),
        gone: BTreeSet::new(),
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

/// Whether it needs a node with a vote: its answer counts towards a majority, or what it writes must be of an incarnation.
pub(crate) fn votes(op: &Op) -> bool {
    matches!(
        op,
        Op::Acquire { .. }
            | Op::Confirm { .. }
            | Op::Extend { .. }
            | Op::Write { .. }
            | Op::Break { .. }
            | Op::Forget { .. }
    )
}

/// A counter is at its end, or none of ours: what needs it is refused, and is no vote.
fn out_of_range(key: &str) -> Answer {
    Answer::Failed(NodeError::Refused {
        refusal: Refusal::Damaged,
        said: format!("a counter is out of range, for `{key}`"),
    })
}

/// What was left for an heir is not what it was.
fn bare(key: &str) -> Answer {
    Answer::Failed(NodeError::Refused {
        refusal: Refusal::Damaged,
        said: format!("the body of `{key}` is damaged"),
    })
}

/// The directory of a document: its name up to the last slash, empty without one.
pub(crate) fn directory(name: &str) -> &str {
    &name[..name.rfind('/').map_or(0, |slash| slash + 1)]
}

/// An attempt on a lock.
#[derive(Clone, Copy)]
struct Attempt<'a> {
    owner: &'a str,
    ttl: Duration,
    floor: Token,
}

/// One round of a held lease.
#[derive(Clone, Copy)]
struct Round<'a> {
    owner: &'a str,
    seq: u64,
    ttl: Duration,
    token: Token,
}

/// How a lease is broken.
#[derive(Clone, Copy)]
struct Force<'a> {
    owner: &'a str,
    token: Token,
    ttl: Duration,
    marked: Duration,
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
    /// What each owner's claims were granted in this call: they share it.
    claimed: BTreeMap<String, Token>,
    /// Locks whose rows have gone in this call.
    gone: BTreeSet<String>,
}

// === impl Turn ===

impl<R: Rows> Turn<'_, R> {
    fn answer(&mut self, op: &Op) -> Result<Answer, R::Error> {
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
    fn entry(&mut self, key: &str) -> Result<Option<Entry>, R::Error> {
        Ok(match self.rows.row(key)? {
            Some(Row::Record(entry)) => Some(entry),
            _ => None,
        })
    }

    /// The record, where it names this owner.
    fn own(&mut self, key: &str, owner: &str) -> Result<Option<Entry>, R::Error> {
        let entry = self.entry(key)?;
        Ok(entry.filter(|e| self.names(&e.inc) && e.owner == owner))
    }

    /// Whether a claim bars others.
    fn lives(&self, claim: &Claim) -> bool {
        self.names(&claim.inc) && self.now < claim.until
    }

    /// What stands in the plain key.
    fn plain(&mut self, key: &str) -> Result<Option<Key>, R::Error> {
        let plain = self.rows.plain(key)?;
        Ok(plain.filter(|k| k.until.is_none_or(|until| self.now < until)))
    }

    /// The body beside a row, until it has ended.
    fn body(&mut self, key: &str) -> Result<Option<Body>, R::Error> {
        let now = self.now;
        let body = self.rows.body(key)?;
        Ok(body.filter(|b| b.until.is_none_or(|until| now < until)))
    }

    /// The same, as its reader sees it.
    fn record(&mut self, key: &str) -> Result<Record, R::Error> {
        Ok(self.body(key)?.map(|b| b.record).unwrap_or_default())
    }

    /// What the next grant of this lock is above: its record's counter (C2), where that is of another incarnation also `c`
    /// (C1), and `c` where no record stands (C4).
    fn base(&mut self, row: Option<&Row>) -> Result<Token, R::Error> {
        match row.and_then(Row::entry) {
            Some(entry) if self.names(&entry.inc) => Ok(entry.counter),
            Some(entry) => Ok(self.rows.forgotten()?.max(entry.counter)),
            None => self.rows.forgotten(),
        }
    }

    /// Why nothing can be granted, forgotten or written anew above `c`: it is none that could be counted with.
    fn uncounted(&mut self, key: &str) -> Result<Option<Answer>, R::Error> {
        let counts = self.rows.forgotten()? <= LAST;
        Ok((!counts).then(|| out_of_range(key)))
    }

    fn view(&mut self, key: &str) -> Result<View, R::Error> {
        let row = self.rows.row(key)?;
        self.view_of(key, row.as_ref())
    }

    /// What a row shows, without its body.
    fn view_of(&mut self, key: &str, row: Option<&Row>) -> Result<View, R::Error> {
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

    fn refused(&mut self, key: &str) -> Result<Answer, R::Error> {
        Ok(Answer::Refused(self.view(key)?))
    }

    // --- writing ---

    fn drop_row(&mut self, key: &str) -> Result<(), R::Error> {
        self.gone.insert(key.to_owned());
        self.rows.drop_row(key)
    }

    /// Tells the clients that wait, if any does (W6).
    fn announce(&mut self, key: &str, entry: &Entry) -> Result<(), R::Error> {
        if entry.waits <= self.now {
            return Ok(());
        }
        let next = self.head(key)?;
        let (key, owner) = (key.to_owned(), entry.owner.clone());
        self.rows.announce(Announcement { key, owner, next })
    }

    /// The body ends `retention` from now.
    fn end_body(&mut self, key: &str, retention: Duration) -> Result<(), R::Error> {
        let until = Some(later(self.now, retention));
        self.rows.keep_body(key, self.now, until)
    }

    /// A row that makes no sense may have been a lease: it becomes one of no owner that is broken, and ends by the clock when the
    /// longest lease of before is over. What its own holder does meanwhile is refused.
    fn mend(&mut self, key: &str, longest: Duration) -> Result<(), R::Error> {
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
    fn raise(&mut self, token: Token) -> Result<(), R::Error> {
        if self.rows.forgotten()? < token {
            self.rows.set_forgotten(token)
        } else {
            Ok(())
        }
    }
}
