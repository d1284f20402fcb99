//! What a node can be asked to do.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::{Answer, Doc, NodeError};
use super::{Card, Expiry, Record, Seen, Take, Ticket, Token, Version};

/// How a lock is kept on a node.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A named lock: a record, with a counter of its own.
    Lock,
    /// A short claim of a batch or message: an owner and an end by the node's clock; the token comes from the node's counter,
    /// one per call and owner (all its claims share one grant); never healed.
    Claim,
}

/// One operation on a node.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Take the lock if it is free (N3, A1, A2). Answers [`Answer::Granted`] or [`Answer::Refused`].
    Acquire {
        /// The lock.
        key: String,
        /// New for every attempt, constant for the lease.
        owner: String,
        /// Lock with record, or short claim.
        kind: Kind,
        /// How long the lease lasts from now.
        ttl: Duration,
        /// The largest token this client has seen: the grant is above it.
        floor: Token,
        /// How a held lock is taken. A claim is always taken as with [`Take::Server`].
        take: Take,
        /// The longest life a lease may have: on a refusal, what would end later by the node's clock is cut to it (N10).
        clamp: Duration,
        /// A place in the lock's queue, taken or kept by this; it is left with the grant. Not for claims.
        ticket: Option<Ticket>,
        /// The sender waits: where it is refused by a record, that record says for so long, from now, that its end is to
        /// be announced (W3). Zero for a sender that does not wait. Not for claims.
        waits: Duration,
    },
    /// Leave a lock's queue without having taken the lock. Always [`Answer::Done`].
    Leave {
        /// The lock.
        key: String,
        /// The ticket's id.
        ticket: String,
    },
    /// Raise the lock's counter to `token` where the lock is still `owner`'s and its grant is not larger.
    /// Answers [`Answer::Done`], [`Answer::Larger`] or [`Answer::Refused`].
    Confirm {
        /// The lock.
        key: String,
        /// The attempt.
        owner: String,
        /// Lock with record, or short claim.
        kind: Kind,
        /// The largest grant of the round.
        token: Token,
        /// What ends leases. With [`Expiry::Observed`] its end by the node's clock, or its plain key's, changes nothing.
        expiry: Expiry,
    },
    /// Round `seq` of a held lease: renew where the record is `owner`'s, held, and older than `seq` ([`Answer::Kept`]); write it
    /// anew where another record or none stands, `take` allows it and no larger token is known here (E3;
    /// [`Answer::Healed`], kind `Lock` only); else [`Answer::Refused`]. Raises the lock's counter to `token`.
    Extend {
        /// The lock.
        key: String,
        /// The holder.
        owner: String,
        /// Lock with record, or short claim.
        kind: Kind,
        /// Grows with every round of this lease, starting at 1.
        seq: u64,
        /// How long the lease lasts from now.
        ttl: Duration,
        /// The lease's token.
        token: Token,
        /// How what is not ours here is written anew.
        take: Take,
    },
    /// Mark the record released where it is `owner`'s (N6), delete a claim; announce it where a client waits. Always
    /// [`Answer::Done`].
    Release {
        /// The lock.
        key: String,
        /// The owner whose lease or attempt is over.
        owner: String,
        /// Lock with record, or short claim.
        kind: Kind,
        /// How long the mark of the release stays at least: the longest ttl of the fleet (S0).
        marked: Duration,
        /// How long the body is kept, for successors.
        retention: Duration,
    },
    /// End `owner`'s lease by force (N7, B1 to B4): from here on nothing of it is granted, confirmed, extended or written
    /// here. Its record is marked broken; where none stands, or one of another incarnation or another's release, a broken
    /// one is written in its name. The record's counter is raised to `token`. `now` marks it released instead.
    /// Answers [`Answer::Broken`]; [`Answer::Refused`], with nothing changed, where another's lease stands, or a foreign
    /// client's key; [`Answer::Unadmitted`] on a node without a vote (B3).
    Break {
        /// The lock.
        key: String,
        /// Whose lease: the owner that was seen. A successor's is not touched.
        owner: String,
        /// Above every token of this lock that was seen: a receiver that remembers it refuses the broken holder.
        token: Token,
        /// The ttl of that lease: what is written in its name is watched for so long. Also the life of a plain key that has
        /// none.
        ttl: Duration,
        /// With `now`, how long the mark of the release stays at least.
        marked: Duration,
        /// With `now`, how long the body is kept.
        retention: Duration,
        /// Release it at once and announce it, although its holder may still believe in its lease.
        now: bool,
    },
    /// Replace the record's body: only where the lease is `owner`'s and `(token, rev)` is larger than what stands
    /// there (or equal with the same body). [`Answer::Done`], [`Answer::TooEarly`] or [`Answer::Refused`].
    Write {
        /// The lock.
        key: String,
        /// The holder.
        owner: String,
        /// Order of writes: the lease's token, then the holder's revision.
        version: Version,
        /// The new body.
        body: String,
        /// Unix milliseconds: the node refuses with [`Answer::TooEarly`] while its wall clock is before this.
        not_before: Option<i64>,
        /// What ends leases. With [`Expiry::Observed`] its end by the node's clock, or its plain key's, changes nothing.
        expiry: Expiry,
    },
    /// Look at a lock without changing anything. Answers [`Answer::View`].
    Read {
        /// The lock.
        key: String,
    },
    /// A page of all named locks and claims whose key starts with `prefix`, without bodies. What stands from the first page to
    /// the last is on one of them at least; what comes or goes meanwhile may be. Answers [`Answer::Page`].
    List {
        /// `""` for all.
        prefix: String,
        /// Where the page begins.
        from: Cursor,
        /// How much is looked at, about; what is found may be less, also nothing, before the last page.
        count: u32,
    },
    /// Store a document if its revision is larger than the stored one. Always [`Answer::Done`].
    PutDoc {
        /// The document's name, such as `presence/HOST-PID-NONCE`.
        name: String,
        /// The writer's revision; the largest wins.
        rev: u64,
        /// Lifetime.
        ttl: Duration,
        /// The content.
        body: String,
    },
    /// A page of the living documents of one directory, those of directories below it left out. What stands from the first
    /// page to the last is on one of them at least, as with [`Op::List`]. Answers [`Answer::Page`].
    Docs {
        /// Ends with `/`, as in `presence/`; `""` for documents whose names have none. Any other has no documents.
        dir: String,
        /// Where the page begins.
        from: Cursor,
        /// How much is looked at, about.
        count: u32,
    },
    /// The same with empty bodies: a look that costs little, however large they are.
    DocNames {
        /// As in [`Op::Docs`].
        dir: String,
        /// Where the page begins.
        from: Cursor,
        /// How much is looked at, about.
        count: u32,
    },
    /// Lets a document live on that stands at this revision: from now for `ttl`, without a word of what it says. One at a
    /// larger revision stays as it is. [`Answer::Done`]; [`Answer::Docs`] with none where it has to be stored anew.
    TouchDoc {
        /// The document's name.
        name: String,
        /// The writer's revision.
        rev: u64,
        /// Lifetime.
        ttl: Duration,
    },
    /// Which documents of one directory live for `least` more and `most` at most: so are those that were stored or touched
    /// of late. [Sums](super::sum_of) over their revisions stand for them, and they are named only where those are others than what
    /// its sender knows. [`MOST_LIVING`](super::MOST_LIVING) at most, those that end first. Answers [`Answer::Lives`].
    Living {
        /// As in [`Op::Docs`].
        dir: String,
        /// What ends sooner is left out.
        least: Duration,
        /// What ends later is left out: the node's clock was set back since it was stored, or it is none of these.
        most: Duration,
        /// What its sender knows. Nothing: all are named. One sum, over all: none is named, the answer's sum tells whether
        /// anything has changed. Several: the documents are shared out by their revision modulo the number of sums, and named
        /// where that of their part is another.
        known: Vec<u64>,
    },
    /// One document, when it lives. Answers [`Answer::Docs`] with one or none.
    Doc {
        /// The document's name.
        name: String,
    },
    /// Remove a document. Always [`Answer::Done`].
    RemoveDoc {
        /// The document's name.
        name: String,
    },
    /// Tell whether the node may vote, and what speaks for it. Answers [`Answer::Admission`].
    Admission,
    /// Nominate the present incarnation for the caller's fleet, unless it is admitted or a nomination stands. Answers
    /// [`Answer::Admission`].
    Nominate {
        /// New for every nomination.
        nonce: String,
        /// The nomination that this one takes the place of: that of another fleet.
        over: Option<String>,
    },
    /// A lock's body as another node has it, by the larger version. [`Answer::Done`], or [`Answer::Unadmitted`] where `nonce` is not
    /// the standing nomination.
    Merge {
        /// The nomination.
        nonce: String,
        /// The lock.
        key: String,
        /// What its holders left.
        record: Record,
        /// How long it is kept where no lease stands.
        retention: Duration,
    },
    /// Write who the nodes of the fleet are: on a node that is nominated as a proposal, on one that was admitted with its next
    /// calls in force. [`Answer::Done`], or [`Answer::Unadmitted`] where anything else stands than what was read, or where it is
    /// neither nominated for nor admitted to the caller's fleet.
    Enrol {
        /// What was read there.
        was: Card,
        /// The roster.
        roster: String,
    },
    /// Take the vote and the identity from a node: it is watched, and admitted anew as another one. It keeps what it
    /// knows, which counts as that of a node that has lost nothing, unless it `forgets`. [`Answer::Done`], or [`Answer::Unadmitted`] where anything else stands than what was read.
    Close {
        /// What was read there.
        was: Card,
        /// New; the incarnation of nothing.
        nonce: String,
        /// The configuration that no fleet has ([`super::closed`]).
        config: String,
        /// Others have voted in its place: it is told what they know, as if its memory was lost.
        forgets: bool,
    },
    /// Admit the present incarnation: write the marker and raise the counter. [`Answer::Done`], also when this was done
    /// before; [`Answer::Unadmitted`] where `nonce` is not the standing nomination, or is that of another fleet, or
    /// another roster stands there.
    Admit {
        /// The nomination; from now on the incarnation of what is written.
        nonce: String,
        /// The fleet's configuration.
        config: String,
        /// The roster that was proposed for it, or that it has come back with. Empty where none is compared.
        roster: String,
        /// The largest token known elsewhere.
        counter: Token,
        /// Unix milliseconds: what was known before this may be lost.
        memory_loss: Option<i64>,
    },
    /// A page of everything that a successor of this memory must know: as [`Op::List`] without a prefix, with the bodies of
    /// locks, also of those of which nothing else is left. The counter is asked for when the last page was read (G7).
    /// Answers [`Answer::Page`].
    Records {
        /// Where the page begins.
        from: Cursor,
        /// How much is looked at, about.
        count: u32,
    },
    /// Looks at a page of the memory and forgets what nothing needs any more: releases whose mark has stayed long enough, claims and
    /// bodies that have ended; the counter of what was forgotten is raised in the same step (C3). Answers [`Answer::Page`]
    /// with the leases that look orphaned by the node's clock, as a hint: they are forgotten only by [`Op::Forget`].
    Sweep {
        /// Where the page begins.
        from: Cursor,
        /// How much is looked at, about.
        count: u32,
    },
    /// Forgets a lease that its sender has watched unchanged for its whole ttl: where exactly that stands (S2). Announced
    /// where a client waits (W4). Always [`Answer::Done`].
    Forget {
        /// The lock.
        key: String,
        /// What was watched.
        seen: Seen,
        /// How long the body is kept.
        retention: Duration,
    },
}

/// A place in a walk through a node's memory: empty for its beginning, else as the last page told it. Only the node that told
/// it can read it.
#[doc(hidden)] // between the lock and its nodes
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Cursor(pub String);
