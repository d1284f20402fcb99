//! What a node can be asked to do.

use std::time::Duration;

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::{Answer, Doc, NodeError};
use super::{Expiry, Record, Take, Ticket, Token, Version};

/// How a lock is kept on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A named lock: key and record; the counter stands in the record (and the node's is raised with it).
    Lock,
    /// A short claim of a batch or message: key only; the token comes from the node's counter, one per call
    /// and owner (all claims of one owner share one grant); never healed.
    Claim,
}

/// One operation on a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Take the lock if it is free (N3, N4, N8). Answers [`Answer::Granted`] or [`Answer::Refused`].
    Acquire {
        /// The lock.
        key: String,
        /// New for every attempt, constant for the lease.
        owner: String,
        /// Lock with record, or short claim.
        kind: Kind,
        /// The key's time to live.
        ttl: Duration,
        /// The largest token this client has seen: the grant is above it.
        floor: Token,
        /// How a held lock is taken. A claim is always taken as with [`Take::Server`].
        take: Take,
        /// The longest life a key of ours may have: on a refusal, a key of ours that lives longer is cut to it.
        clamp: Duration,
        /// A place in the lock's queue, taken or kept by this; it is left with the grant. Not for claims.
        ticket: Option<Ticket>,
    },
    /// Leave a lock's queue without having taken the lock. Always [`Answer::Done`].
    Leave {
        /// The lock.
        key: String,
        /// The ticket's id.
        ticket: String,
    },
    /// Raise the counter to `token` where the lock is still `owner`'s and its grant is not larger.
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
        /// What ends leases. With [`Expiry::Observed`] the key may have vanished.
        expiry: Expiry,
    },
    /// Round `seq` of a held lease: renew where the record is `owner`'s, unreleased, older than `seq` and no other
    /// value stands in the key ([`Answer::Kept`], observed also where the key has vanished); write it anew where `take`
    /// allows it and this owner was not released here ([`Answer::Healed`], kind `Lock` only); else [`Answer::Refused`].
    /// Raises counters to `token`.
    Extend {
        /// The lock.
        key: String,
        /// The holder.
        owner: String,
        /// Lock with record, or short claim.
        kind: Kind,
        /// Grows with every round of this lease, starting at 1.
        seq: u64,
        /// The key's new time to live, from now.
        ttl: Duration,
        /// The lease's token.
        token: Token,
        /// How what is not ours here is written anew.
        take: Take,
    },
    /// Compare-and-delete the key, mark the record released, announce that this owner is over. Always [`Answer::Done`].
    Release {
        /// The lock.
        key: String,
        /// The owner whose lease or attempt is over.
        owner: String,
        /// Lock with record, or short claim.
        kind: Kind,
        /// How long the released record is remembered.
        retention: Duration,
    },
    /// End `owner`'s lease by force (N7): from here on nothing of it is granted, confirmed, extended or written; its
    /// record is marked broken and counters are raised to `token`. The key is left to run out; `now` removes it and marks
    /// the record released.
    /// Answers [`Answer::Broken`]; [`Answer::Refused`], with nothing changed, where another value stands in the key or
    /// where the value is none of ours (a foreign client's).
    Break {
        /// The lock.
        key: String,
        /// Whose lease: the owner that was seen. A successor's is not touched.
        owner: String,
        /// Above every token of this lock that was seen: a receiver that remembers it refuses the broken holder.
        token: Token,
        /// The life of a key that has none: it would never run out.
        ttl: Duration,
        /// How long the released record, and that this owner is over, is remembered.
        retention: Duration,
        /// Remove the key at once and announce it, although its holder may still believe in its lease.
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
        /// What ends leases. With [`Expiry::Observed`] the key may have vanished.
        expiry: Expiry,
    },
    /// Look at a lock without changing anything. Answers [`Answer::View`].
    Read {
        /// The lock.
        key: String,
    },
    /// Look at every named lock and claim whose key starts with `prefix`. Answers [`Answer::Views`].
    List {
        /// `""` for all.
        prefix: String,
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
    /// The living documents of one directory, those of directories below it left out. Answers [`Answer::Docs`].
    Docs {
        /// Ends with `/`, as in `presence/`; `""` for documents whose names have none. Any other has no documents.
        dir: String,
    },
    /// Names and revisions of the living documents of one directory, as [`Op::Docs`] has it, in the order of their names and
    /// without their bodies: a look that costs little, however large they are. Answers [`Answer::Docs`] with empty bodies.
    DocNames {
        /// As in [`Op::Docs`].
        dir: String,
        /// How many at most.
        limit: u32,
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
    /// Nominate the present incarnation, unless it is admitted or a nomination stands. Answers [`Answer::Admission`].
    Nominate {
        /// New for every nomination.
        nonce: String,
    },
    /// What another node knows of a named lock, by maximum: counter and body, without an owner. [`Answer::Done`], or
    /// [`Answer::Unadmitted`] where `nonce` is not the standing nomination.
    Merge {
        /// The nomination.
        nonce: String,
        /// The lock.
        key: String,
        /// The largest token known elsewhere.
        counter: Token,
        /// What its holders left.
        record: Record,
    },
    /// Admit the present incarnation: write the marker and raise the counter. [`Answer::Done`], also when this was done
    /// before; [`Answer::Unadmitted`] where `nonce` is not the standing nomination.
    Admit {
        /// The nomination; from now on the incarnation of what is written.
        nonce: String,
        /// The fleet's configuration.
        config: String,
        /// The largest token known elsewhere.
        counter: Token,
        /// Unix milliseconds: what was known before this may be lost.
        memory_loss: Option<i64>,
    },
    /// Named locks with a record whose names come after `after`, by name. Answers [`Answer::Views`].
    Records {
        /// `""` for the first.
        after: String,
        /// How many at most.
        limit: u32,
    },
}
