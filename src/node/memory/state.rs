//! What one node knows, as a pure state machine: no clock, no I/O.
//!
//! The rules of [`super::super`] stand here once; the embedded store applies the same functions to its rows, and the
//! script of the Redis node is compared with them by the conformance suite.

use std::collections::BTreeMap;

use crate::node::{
    Answer, Call, Doc, Kind, NodeError, NodeMs, Op, Record, Reply, Token, Version, View,
};

/// How long a released claim's owner is remembered, so that its late calls change nothing.
const REMEMBER_MS: u64 = 60_000;

/// Everything a node knows.
#[derive(Clone, Debug, Default)]
pub struct NodeState {
    counter: Token,
    locks: BTreeMap<String, LockRow>,
    claimers: BTreeMap<String, Claimer>,
    docs: BTreeMap<String, DocRow>,
}

/// One lock: its key and its record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LockRow {
    /// The key's value and the end of its life.
    pub holder: Option<(String, u64)>,
    /// The record; claims have none.
    pub record: Option<RecordRow>,
}

/// The record beside a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RecordRow {
    /// Of the present or last lease.
    pub owner: String,
    /// The holder's round.
    pub seq: u64,
    /// The attempt's number on this node.
    pub grant: Token,
    /// The lock's counter.
    pub counter: Token,
    /// The end of its life once it is released.
    pub gone_at: Option<u64>,
    /// What the holders leave for their successors.
    pub record: Record,
}

/// What is remembered of an owner of claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Claimer {
    grant: Token,
    released: bool,
    until: u64,
}

#[derive(Clone, Debug)]
struct DocRow {
    rev: u64,
    until: u64,
    body: String,
}

impl NodeState {
    /// Executes a call.
    ///
    /// # Errors
    /// [`NodeError::Late`]; nothing has changed then.
    pub fn apply(&mut self, now: NodeMs, wall_ms: i64, call: &Call) -> Result<Reply, NodeError> {
        if call.not_after.is_some_and(|limit| now > limit) {
            return Err(NodeError::Late { at: now });
        }
        self.forget(now.0);
        let answers = call
            .ops
            .iter()
            .map(|op| self.op(now.0, wall_ms, op))
            .collect();
        Ok(Reply {
            at: now,
            wall_ms,
            answers,
        })
    }

    /// Releases that the operations of a call announce: `(key, owner)`.
    pub fn announced(call: &Call) -> impl Iterator<Item = (&str, &str)> {
        call.ops.iter().filter_map(|op| match op {
            Op::Release { key, owner, .. } => Some((key.as_str(), owner.as_str())),
            _ => None,
        })
    }

    /// The value that stands in a key now.
    #[must_use]
    pub fn holder(&self, key: &str, now: NodeMs) -> Option<&str> {
        let (owner, until) = self.locks.get(key)?.holder.as_ref()?;
        (*until > now.0).then_some(owner)
    }

    /// Drops what has expired.
    fn forget(&mut self, now: u64) {
        for row in self.locks.values_mut() {
            if row.holder.as_ref().is_some_and(|(_, until)| *until <= now) {
                row.holder = None;
            }
            if row
                .record
                .as_ref()
                .and_then(|r| r.gone_at)
                .is_some_and(|at| at <= now)
            {
                // Its successor starts from the node's counter, which was raised with every grant.
                row.record = None;
            }
        }
        self.locks
            .retain(|_, row| row.holder.is_some() || row.record.is_some());
        self.claimers.retain(|_, c| c.until > now);
        self.docs.retain(|_, d| d.until > now);
    }

    fn op(&mut self, now: u64, wall_ms: i64, op: &Op) -> Answer {
        match op {
            Op::Acquire {
                key,
                owner,
                kind,
                ttl,
                floor,
            } => self.acquire(now, key, owner, *kind, millis(*ttl), *floor),
            Op::Confirm {
                key,
                owner,
                kind,
                token,
            } => self.confirm(now, key, owner, *kind, *token),
            Op::Extend {
                key,
                owner,
                kind,
                seq,
                ttl,
                token,
            } => self.extend(now, key, owner, *kind, (*seq, millis(*ttl), *token)),
            Op::Release {
                key,
                owner,
                kind,
                retention,
            } => {
                self.release(now, key, owner, *kind, millis(*retention));
                Answer::Done
            }
            Op::Write {
                key,
                owner,
                version,
                body,
                not_before,
            } => {
                if not_before.is_some_and(|at| wall_ms < at) {
                    return Answer::TooEarly { wall_ms };
                }
                self.write(now, key, owner, *version, body)
            }
            Op::Read { key } => Answer::View(self.view(now, key)),
            Op::List { prefix } => {
                let keys = self.locks.keys().filter(|k| k.starts_with(prefix.as_str()));
                Answer::Views(keys.map(|key| self.view(now, key)).collect())
            }
            Op::PutDoc {
                name,
                rev,
                ttl,
                body,
            } => {
                if self.docs.get(name).is_none_or(|doc| doc.rev < *rev) {
                    let row = DocRow {
                        rev: *rev,
                        until: now + millis(*ttl),
                        body: body.clone(),
                    };
                    self.docs.insert(name.clone(), row);
                }
                Answer::Done
            }
            Op::Docs { prefix } => {
                let found = self
                    .docs
                    .iter()
                    .filter(|(name, _)| name.starts_with(prefix.as_str()));
                let docs = found.map(|(name, doc)| Doc {
                    name: name.clone(),
                    rev: doc.rev,
                    body: doc.body.clone(),
                });
                Answer::Docs(docs.collect())
            }
            Op::RemoveDoc { name } => {
                self.docs.remove(name);
                Answer::Done
            }
        }
    }

    fn acquire(
        &mut self,
        now: u64,
        key: &str,
        owner: &str,
        kind: Kind,
        ttl: u64,
        floor: Token,
    ) -> Answer {
        let view = self.view(now, key);
        let row = self.locks.entry(key.to_owned()).or_default();
        let over = match kind {
            Kind::Lock => row
                .record
                .as_ref()
                .is_some_and(|r| r.owner == owner && r.gone_at.is_some()),
            Kind::Claim => self.claimers.get(owner).is_some_and(|c| c.released),
        };
        let resent = view.holder.as_deref() == Some(owner);
        if over || (view.holder.is_some() && !resent) {
            return Answer::Refused(view);
        }
        match kind {
            Kind::Lock => {
                let record = row.record.get_or_insert_with(RecordRow::default);
                if !resent {
                    let base = if record.owner.is_empty() {
                        self.counter
                    } else {
                        record.counter
                    };
                    let grant = Token(base.max(floor).0 + 1);
                    *record = RecordRow {
                        owner: owner.to_owned(),
                        seq: 0,
                        grant,
                        counter: grant,
                        gone_at: None,
                        record: std::mem::take(&mut record.record),
                    };
                    self.counter = self.counter.max(grant);
                    row.holder = Some((owner.to_owned(), now + ttl));
                }
                Answer::Granted {
                    grant: record.grant,
                    record: record.record.clone(),
                }
            }
            Kind::Claim => {
                let next = Token(self.counter.max(floor).0 + 1);
                let claimer = self.claimers.entry(owner.to_owned()).or_insert(Claimer {
                    grant: next,
                    released: false,
                    until: 0,
                });
                claimer.until = claimer.until.max(now + ttl + REMEMBER_MS);
                self.counter = self.counter.max(claimer.grant);
                if !resent {
                    row.holder = Some((owner.to_owned(), now + ttl));
                }
                Answer::Granted {
                    grant: claimer.grant,
                    record: Record::default(),
                }
            }
        }
    }

    fn confirm(&mut self, now: u64, key: &str, owner: &str, kind: Kind, token: Token) -> Answer {
        let view = self.view(now, key);
        if view.holder.as_deref() != Some(owner) {
            return Answer::Refused(view);
        }
        let record = self.locks.get_mut(key).and_then(|row| row.record.as_mut());
        let grant = match kind {
            Kind::Lock => record
                .as_ref()
                .filter(|r| r.owner == owner)
                .map(|r| r.grant),
            Kind::Claim => self.claimers.get(owner).map(|c| c.grant),
        };
        match grant {
            None => Answer::Refused(view),
            Some(grant) if grant > token => Answer::Larger(grant),
            Some(_) => {
                if let Some(record) = record {
                    record.counter = record.counter.max(token);
                }
                self.counter = self.counter.max(token);
                Answer::Done
            }
        }
    }

    fn extend(
        &mut self,
        now: u64,
        key: &str,
        owner: &str,
        kind: Kind,
        to: (u64, u64, Token),
    ) -> Answer {
        let (seq, ttl, token) = to;
        let view = self.view(now, key);
        let foreign = view.holder.as_deref().is_some_and(|holder| holder != owner);
        if kind == Kind::Claim {
            if view.holder.as_deref() != Some(owner) {
                return Answer::Refused(view);
            }
            self.counter = self.counter.max(token);
            if let Some(row) = self.locks.get_mut(key) {
                row.holder = Some((owner.to_owned(), now + ttl));
            }
            if let Some(claimer) = self.claimers.get_mut(owner) {
                claimer.until = claimer.until.max(now + ttl + REMEMBER_MS);
            }
            return Answer::Kept {
                version: Version::default(),
            };
        }
        let row = self.locks.entry(key.to_owned()).or_default();
        let (ours, over) = match &row.record {
            Some(r) if r.owner == owner => (true, r.gone_at.is_some() || seq <= r.seq),
            _ => (false, false),
        };
        if foreign || over {
            return Answer::Refused(view);
        }
        let record = row.record.get_or_insert_with(RecordRow::default);
        record.counter = record
            .counter
            .max(token)
            .max(if ours { Token(0) } else { self.counter });
        if !ours {
            // The node was away, or its key has expired here: written anew, no vote in this round (R9).
            (record.owner, record.grant, record.gone_at) = (owner.to_owned(), token, None);
        }
        record.seq = seq;
        self.counter = self.counter.max(token);
        row.holder = Some((owner.to_owned(), now + ttl));
        let version = record.record.version;
        if ours {
            Answer::Kept { version }
        } else {
            Answer::Healed { version }
        }
    }

    fn release(&mut self, now: u64, key: &str, owner: &str, kind: Kind, retention: u64) {
        if let Some(row) = self.locks.get_mut(key) {
            if row
                .holder
                .as_ref()
                .is_some_and(|(holder, _)| holder == owner)
            {
                row.holder = None;
            }
            if let Some(record) = row.record.as_mut().filter(|r| r.owner == owner) {
                record.gone_at.get_or_insert(now + retention.max(1));
                self.counter = self.counter.max(record.counter);
            }
        }
        if kind == Kind::Claim {
            let still = self.locks.values().any(|row| {
                row.record.is_none()
                    && row
                        .holder
                        .as_ref()
                        .is_some_and(|(holder, _)| holder == owner)
            });
            // One owner may hold several claims: it is over when the last of them is.
            if let Some(claimer) = self.claimers.get_mut(owner) {
                claimer.released = !still;
            }
        }
    }

    fn write(&mut self, now: u64, key: &str, owner: &str, version: Version, body: &str) -> Answer {
        let view = self.view(now, key);
        let record = self.locks.get_mut(key).and_then(|row| row.record.as_mut());
        match record {
            Some(r) if r.owner == owner && view.holder.as_deref() == Some(owner) => {
                let newer = version > r.record.version;
                if newer {
                    r.record = Record {
                        version,
                        body: body.to_owned(),
                    };
                }
                let same = r.record.version == version && r.record.body == body;
                if same {
                    Answer::Done
                } else {
                    Answer::Refused(view)
                }
            }
            _ => Answer::Refused(view),
        }
    }

    fn view(&self, now: u64, key: &str) -> View {
        let row = self.locks.get(key).cloned().unwrap_or_default();
        let holder = row.holder.filter(|(_, until)| *until > now);
        let record = row.record.unwrap_or_default();
        View {
            key: key.to_owned(),
            remaining_ms: holder.as_ref().map(|(_, until)| until - now),
            owner: (!record.owner.is_empty()).then(|| record.owner.clone()),
            seq: record.seq,
            released: record.gone_at.is_some(),
            token: match &holder {
                Some((owner, _)) if record.owner.is_empty() => {
                    self.claimers.get(owner).map_or(Token(0), |c| c.grant)
                }
                _ => record.counter,
            },
            record: record.record,
            holder: holder.map(|(owner, _)| owner),
        }
    }
}

fn millis(d: std::time::Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX / 4)
}
