//! What a node answers, as plain functions of its rows and its time: no clock, no I/O, no chance.
//!
//! Memory, the embedded file and PostgreSQL differ only in where their rows lie (`Rows`), so they cannot differ in meaning.
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

use serde::{Deserialize, Serialize};

use super::{
    Announcement, Answer, Call, NodeError, NodeMs, Op, Record, Refusal, Reply, Seen, Token, Version,
};

mod breaks;
mod gate;
mod leases;
mod records;
mod turn;
mod wait_queue;
mod walk;

pub(crate) use gate::{Gate, Guarded};
use turn::{Attempt, Force, Round, Turn};
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
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
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Row {
    /// Of a named lock.
    Record(Entry),
    /// Of a batch or a message.
    Claim(Claim),
    /// None that a node has written: something else changed it. Its lock counts as held.
    Malformed(Malformed),
}

/// What can be read of a row that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Malformed {
    /// The largest token known for the lock.
    pub counter: Option<Token>,
    /// The ttl of its lease.
    pub ttl: Duration,
}

/// What the holders of a lock leave for their successors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Body {
    pub(crate) record: Record,
    /// When it ends; `None` while a lease stands.
    pub(crate) until: Option<NodeMs>,
    /// Something else changed it: no heir takes it for what was left.
    pub(crate) damaged: bool,
}

/// The plain key beside a record: the wire format of other Redlock clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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

    /// The longest lease that the store has noted; `None` where it notes that of none, or does not know any more.
    fn longest_granted(&mut self) -> Result<Option<Duration>, Self::Error> {
        Ok(None)
    }

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
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "etcd"))]
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
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "etcd"))]
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
