//! What a node answers, as plain functions of its rows and its time: no clock, no I/O, no chance.
//!
//! Memory and the embedded file differ only in where their rows lie ([`Rows`]), so they cannot differ in meaning.
//! Redis says the same in Lua; the conformance suite holds all of them together.
//!
//! # What is remembered, and for how long
//! - A *key* until its time to live ends or its owner releases it.
//! - A *record* of a named lock until `retention` after its owner's release; unreleased ones stay.
//! - The *grant* of a claiming owner until the longest of its claims would have ended.
//! - A *released claim* for `retention`, a minute at most: a late `Acquire` of the same owner is refused. For
//!   named locks the record does that for the last owner; earlier ones are kept out by `not_after`.
//!
//! # Order
//! Every operation judges the owner first and touches rows after (N6). Rows past their end count as absent,
//! whether or not they have been swept.

use std::time::Duration;

use super::{Answer, Call, Doc, Kind, NodeError, NodeMs, Op, Record, Reply, Token, Version, View};

/// Tokens, rounds and revisions stay below this: Lua's numbers are exact only up to here.
pub(crate) const LIMIT: u64 = 1 << 53;

/// A released claim is remembered at most this long; late calls are younger, records are not kept for claims.
const CLAIM_MEMORY: Duration = Duration::from_secs(60);

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
    /// Whether the owner is over.
    pub released: bool,
    /// The largest token known here for this lock.
    pub counter: Token,
    /// What the holders leave for their successors.
    pub record: Record,
    /// How long a released record is kept.
    pub retention: Duration,
    /// When a released record ends.
    pub until: Option<NodeMs>,
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
    /// Until when this claim of this owner is remembered as released.
    fn over(&mut self, key: &str, owner: &str) -> Result<Option<NodeMs>, Self::Error>;
    fn put_over(&mut self, key: &str, owner: &str, until: NodeMs) -> Result<(), Self::Error>;

    fn doc(&mut self, name: &str) -> Result<Option<Stored>, Self::Error>;
    fn put_doc(&mut self, name: &str, row: &Stored) -> Result<(), Self::Error>;
    fn drop_doc(&mut self, name: &str) -> Result<(), Self::Error>;
    /// Documents whose name starts with `prefix`, in order.
    fn docs(&mut self, prefix: &str) -> Result<Vec<(String, Stored)>, Self::Error>;

    /// Tells whoever waits that `owner`'s lease of `key` is over.
    fn announce(&mut self, key: &str, owner: &str) -> Result<(), Self::Error>;
}

/// May this call act at all? Nothing has been executed when it may not.
pub(crate) fn admit(now: NodeMs, call: &Call) -> Result<(), NodeError> {
    if call.not_after.is_some_and(|last| now > last) {
        return Err(NodeError::Late { at: now });
    }
    let largest = call.ops.iter().map(|op| match op {
        Op::Acquire { floor, .. } => floor.0,
        Op::Confirm { token, .. } => token.0,
        Op::Extend { seq, token, .. } => token.0.max(*seq),
        Op::Write { version, .. } => version.token.0.max(version.rev),
        Op::PutDoc { rev, .. } => *rev,
        _ => 0,
    });
    match largest.max() {
        Some(number) if number >= LIMIT => Err(NodeError::Protocol(format!(
            "number out of range: {number}"
        ))),
        _ => Ok(()),
    }
}

/// Executes an admitted call.
pub(crate) fn execute<R: Rows>(
    rows: &mut R,
    now: NodeMs,
    wall_ms: i64,
    call: &Call,
) -> Result<Reply, R::Error> {
    let mut turn = Turn { rows, now, wall_ms };
    let answers = call
        .ops
        .iter()
        .map(|op| turn.answer(op))
        .collect::<Result<_, _>>()?;
    Ok(Reply {
        at: now,
        wall_ms,
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

/// One call being executed.
struct Turn<'a, R> {
    rows: &'a mut R,
    now: NodeMs,
    wall_ms: i64,
}

// === impl Turn ===

impl<R: Rows> Turn<'_, R> {
    fn answer(&mut self, op: &Op) -> Result<Answer, R::Error> {
        match op {
            Op::Acquire {
                key,
                owner,
                kind: Kind::Lock,
                ttl,
                floor,
            } => self.acquire_lock(key, owner, *ttl, *floor),
            Op::Acquire {
                key,
                owner,
                kind: Kind::Claim,
                ttl,
                floor,
            } => self.acquire_claim(key, owner, *ttl, *floor),
            Op::Confirm {
                key,
                owner,
                kind,
                token,
            } => self.confirm(key, owner, *kind, *token),
            Op::Extend {
                key,
                owner,
                kind: Kind::Lock,
                seq,
                ttl,
                token,
            } => self.extend_lock(key, owner, *seq, *ttl, *token),
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
            Op::Write {
                key,
                owner,
                version,
                body,
                not_before,
            } => self.write(key, owner, *version, body, *not_before),
            Op::Read { key } => Ok(Answer::View(self.view(key)?)),
            Op::List { prefix } => self.list(prefix),
            Op::PutDoc {
                name,
                rev,
                ttl,
                body,
            } => self.put_doc(name, *rev, *ttl, body),
            Op::Docs { prefix } => self.docs(prefix),
            Op::RemoveDoc { name } => self.rows.drop_doc(name).map(|()| Answer::Done),
        }
    }

    fn acquire_lock(
        &mut self,
        key: &str,
        owner: &str,
        ttl: Duration,
        floor: Token,
    ) -> Result<Answer, R::Error> {
        let entry = self.entry(key)?;
        let holder = self.holder(key)?;
        let own = entry.as_ref().filter(|e| e.owner == owner);
        if own.is_some_and(|e| e.released) || holder.as_ref().is_some_and(|k| k.value != owner) {
            return self.refused(key);
        }
        self.hold(key, owner, ttl)?;
        if let Some(own) = own {
            // The same attempt sent again: nobody was granted in between, or the record would name them.
            return Ok(Answer::Granted {
                grant: own.grant,
                record: own.record.clone(),
            });
        }
        let base = self.base(entry.as_ref())?;
        let grant = Token(base.max(floor).0 + 1);
        let record = entry.map(|e| e.record).unwrap_or_default();
        self.put_entry(
            key,
            &Entry {
                owner: owner.to_owned(),
                ttl,
                grant,
                counter: grant,
                record: record.clone(),
                ..Entry::default()
            },
        )?;
        self.raise(grant)?;
        Ok(Answer::Granted { grant, record })
    }

    fn acquire_claim(
        &mut self,
        key: &str,
        owner: &str,
        ttl: Duration,
        floor: Token,
    ) -> Result<Answer, R::Error> {
        let over = self
            .rows
            .over(key, owner)?
            .is_some_and(|until| self.now < until);
        if over || self.holder(key)?.is_some_and(|k| k.value != owner) {
            return self.refused(key);
        }
        self.hold(key, owner, ttl)?;
        let grant = match self.claimant(owner)? {
            Some(claimant) => claimant.grant,
            None => {
                let grant = Token(self.rows.counter()?.max(floor).0 + 1);
                self.raise(grant)?;
                grant
            }
        };
        self.remember(owner, grant, ttl)?;
        Ok(Answer::Granted {
            grant,
            record: Record::default(),
        })
    }

    fn confirm(
        &mut self,
        key: &str,
        owner: &str,
        kind: Kind,
        token: Token,
    ) -> Result<Answer, R::Error> {
        if self.holder(key)?.is_none_or(|k| k.value != owner) {
            return self.refused(key);
        }
        match kind {
            Kind::Lock => {
                let Some(entry) = self.entry(key)?.filter(|e| e.owner == owner && !e.released)
                else {
                    return self.refused(key);
                };
                if entry.grant > token {
                    return Ok(Answer::Larger(entry.grant));
                }
                self.put_entry(
                    key,
                    &Entry {
                        counter: entry.counter.max(token),
                        ..entry
                    },
                )?;
            }
            Kind::Claim => match self.claimant(owner)? {
                Some(claimant) if claimant.grant > token => {
                    return Ok(Answer::Larger(claimant.grant));
                }
                _ => {}
            },
        }
        self.raise(token)?;
        Ok(Answer::Done)
    }

    fn extend_lock(
        &mut self,
        key: &str,
        owner: &str,
        seq: u64,
        ttl: Duration,
        token: Token,
    ) -> Result<Answer, R::Error> {
        let entry = self.entry(key)?;
        if self.holder(key)?.is_some_and(|k| k.value != owner) {
            return self.refused(key);
        }
        let base = self.base(entry.as_ref())?;
        let entry = entry.unwrap_or_default();
        let version = entry.record.version;
        if entry.owner == owner {
            if entry.released || entry.seq >= seq {
                return self.refused(key);
            }
            // The key may have ended by this node's clock: while the record is still ours nobody took it since.
            self.hold(key, owner, ttl)?;
            let counter = entry.counter.max(token);
            self.put_entry(
                key,
                &Entry {
                    seq,
                    ttl,
                    counter,
                    ..entry
                },
            )?;
            self.raise(token)?;
            return Ok(Answer::Kept { version });
        }
        self.hold(key, owner, ttl)?;
        let healed = Entry {
            owner: owner.to_owned(),
            seq,
            ttl,
            grant: token,
            released: false,
            counter: base.max(token),
            record: entry.record,
            ..Entry::default()
        };
        self.put_entry(key, &healed)?;
        self.raise(token)?;
        Ok(Answer::Healed { version })
    }

    fn extend_claim(
        &mut self,
        key: &str,
        owner: &str,
        ttl: Duration,
        token: Token,
    ) -> Result<Answer, R::Error> {
        if self.holder(key)?.is_none_or(|k| k.value != owner) {
            return self.refused(key);
        }
        self.hold(key, owner, ttl)?;
        let grant = self.claimant(owner)?.map_or(token, |c| c.grant);
        self.remember(owner, grant, ttl)?;
        self.raise(token)?;
        Ok(Answer::Kept {
            version: Version::default(),
        })
    }

    fn release(
        &mut self,
        key: &str,
        owner: &str,
        kind: Kind,
        retention: Duration,
    ) -> Result<Answer, R::Error> {
        let held = self.holder(key)?.is_some_and(|k| k.value == owner);
        let mut news = held;
        if held {
            self.rows.drop_key(key)?;
        }
        match kind {
            Kind::Lock => {
                if let Some(entry) = self.entry(key)?.filter(|e| e.owner == owner && !e.released) {
                    let until = Some(later(self.now, retention));
                    self.put_entry(
                        key,
                        &Entry {
                            released: true,
                            retention,
                            until,
                            ..entry
                        },
                    )?;
                    news = true;
                }
            }
            // Also when it never got here: its `Acquire` may still be under way.
            Kind::Claim => {
                let until = later(self.now, retention.min(CLAIM_MEMORY));
                self.rows.put_over(key, owner, until)?;
            }
        }
        if news {
            self.rows.announce(key, owner)?;
        }
        Ok(Answer::Done)
    }

    fn write(
        &mut self,
        key: &str,
        owner: &str,
        version: Version,
        body: &str,
        not_before: Option<i64>,
    ) -> Result<Answer, R::Error> {
        let held = self.holder(key)?.is_some_and(|k| k.value == owner);
        let entry = self
            .entry(key)?
            .filter(|e| held && e.owner == owner && !e.released);
        let Some(entry) = entry else {
            return self.refused(key);
        };
        if not_before.is_some_and(|from| self.wall_ms < from) {
            return Ok(Answer::TooEarly {
                wall_ms: self.wall_ms,
            });
        }
        let stored = &entry.record;
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
        self.put_entry(key, &Entry { record, ..entry })?;
        Ok(Answer::Done)
    }

    fn list(&mut self, prefix: &str) -> Result<Answer, R::Error> {
        let mut views = Vec::new();
        for name in self.rows.names(prefix)? {
            let view = self.view(&name)?;
            if view.holder.is_some() || view.owner.is_some() {
                views.push(view);
            }
        }
        Ok(Answer::Views(views))
    }

    fn put_doc(
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

    fn docs(&mut self, prefix: &str) -> Result<Answer, R::Error> {
        let stored = self.rows.docs(prefix)?;
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

    /// What the next grant of this lock is above: its record's counter, or the node's when there is no record.
    fn base(&mut self, entry: Option<&Entry>) -> Result<Token, R::Error> {
        match entry {
            Some(entry) => Ok(entry.counter),
            None => self.rows.counter(),
        }
    }

    fn view(&mut self, key: &str) -> Result<View, R::Error> {
        let holder = self.holder(key)?;
        let entry = self.entry(key)?;
        let token = self.base(entry.as_ref())?;
        let until = holder.as_ref().and_then(|k| k.until);
        let entry = entry.unwrap_or_default();
        Ok(View {
            key: key.to_owned(),
            holder: holder.map(|k| k.value),
            remaining_ms: until.map(|until| until.0 - self.now.0),
            owner: Some(entry.owner).filter(|owner| !owner.is_empty()),
            seq: entry.seq,
            released: entry.released,
            token,
            record: entry.record,
        })
    }

    fn refused(&mut self, key: &str) -> Result<Answer, R::Error> {
        Ok(Answer::Refused(self.view(key)?))
    }

    // --- writing ---

    fn hold(&mut self, key: &str, owner: &str, ttl: Duration) -> Result<(), R::Error> {
        let until = Some(later(self.now, ttl));
        self.rows.put_key(
            key,
            &Key {
                value: owner.to_owned(),
                until,
            },
        )
    }

    fn put_entry(&mut self, key: &str, entry: &Entry) -> Result<(), R::Error> {
        self.rows.put_entry(key, entry)
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
