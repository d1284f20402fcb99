//! Taking, confirming, extending and ending leases.

use std::time::Duration;

use super::{Entry, Force, Key, Round, Rows, Turn, later};
use crate::node::{Answer, Expiry, Kind, Record, Seen, Take, Token, Version};

/// A release is remembered beside the record at most this long; calls that are still under way are younger.
const OVER_MEMORY: Duration = Duration::from_secs(60);

impl<R: Rows> Turn<'_, R> {
    /// `None` is a refusal.
    pub(super) fn acquire_lock(
        &mut self,
        key: &str,
        owner: &str,
        ttl: Duration,
        floor: Token,
        take: &Take,
    ) -> Result<Option<Answer>, R::Error> {
        let entry = self.entry(key)?;
        let named = entry.as_ref().filter(|entry| self.names(entry));
        let own = named.filter(|e| e.owner == owner);
        // Taken away, or never to be given to this owner again.
        if own.is_some_and(|e| e.released || e.broken) || self.over(key, owner)? {
            return Ok(None);
        }
        let free = match (take, own) {
            (Take::Server, _) => self.holder(key)?.is_none_or(|k| k.value == owner),
            // The same attempt sent again.
            (Take::Observed(_), Some(own)) => !self.is_barred(key, Some(own))?,
            (Take::Observed(seen), None) => self.may_take(key, entry.as_ref(), seen.as_ref())?,
        };
        if !free {
            return Ok(None);
        }
        if let Some(own) = own {
            // No other owner was granted in between, or the record would name it.
            let (grant, record) = (own.grant, own.record.clone());
            self.hold(key, owner, ttl)?;
            return Ok(Some(Answer::Granted { grant, record }));
        }
        let grant = Token(self.base(entry.as_ref())?.max(floor).0 + 1);
        let record = entry.map(|e| e.record).unwrap_or_default();
        let taken = Entry {
            owner: owner.to_owned(),
            ttl,
            grant,
            counter: grant,
            record: record.clone(),
            inc: self.inc().unwrap_or_default().to_owned(),
            ..Entry::default()
        };
        self.hold(key, owner, ttl)?;
        self.rows.put_entry(key, &taken)?;
        self.raise(grant)?;
        Ok(Some(Answer::Granted { grant, record }))
    }

    /// O1, for acquiring and for healing alike.
    fn may_take(
        &mut self,
        key: &str,
        entry: Option<&Entry>,
        seen: Option<&Seen>,
    ) -> Result<bool, R::Error> {
        if self.is_barred(key, entry)? {
            return Ok(false);
        }
        // What is broken and not released may still be believed in.
        let held = entry.filter(|e| self.names(e) && !e.released);
        Ok(held.is_none_or(|e| {
            seen.is_some_and(|s| s.inc == e.inc && s.owner == e.owner && s.seq == e.seq)
        }))
    }

    /// O6: a value stands in the key that is not the record's owner's, whatever its incarnation.
    fn is_barred(&mut self, key: &str, entry: Option<&Entry>) -> Result<bool, R::Error> {
        let holder = self.holder(key)?;
        Ok(holder.is_some_and(|k| entry.is_none_or(|e| !e.is_of(&k.value))))
    }

    /// The record, where its lease is this owner's and counts.
    pub(super) fn held(
        &mut self,
        key: &str,
        owner: &str,
        expiry: Expiry,
    ) -> Result<Option<Entry>, R::Error> {
        let holder = self.holder(key)?;
        let here = match (&holder, expiry) {
            (Some(holder), _) => holder.value == owner,
            (None, expiry) => expiry == Expiry::Observed,
        };
        let entry = self.entry(key)?.filter(|e| here && self.names(e));
        Ok(entry.filter(|e| e.owner == owner && !e.released && !e.broken))
    }

    /// `None` is a refusal.
    pub(super) fn acquire_claim(
        &mut self,
        key: &str,
        owner: &str,
        ttl: Duration,
        floor: Token,
    ) -> Result<Option<Answer>, R::Error> {
        let taken = self.holder(key)?.is_some_and(|k| k.value != owner);
        if taken || self.over(key, owner)? {
            return Ok(None);
        }
        let grant = match self.claimant(owner)? {
            Some(claimant) => claimant.grant,
            None => Token(self.rows.counter()?.max(floor).0 + 1),
        };
        self.hold(key, owner, ttl)?;
        self.remember(owner, grant, ttl)?;
        self.raise(grant)?;
        let record = Record::default();
        Ok(Some(Answer::Granted { grant, record }))
    }

    pub(super) fn confirm(
        &mut self,
        key: &str,
        owner: &str,
        kind: Kind,
        token: Token,
        expiry: Expiry,
    ) -> Result<Answer, R::Error> {
        if self.over(key, owner)? {
            return self.refused(key);
        }
        let (grant, entry) = match kind {
            Kind::Lock => match self.held(key, owner, expiry)? {
                Some(entry) => (entry.grant, Some(entry)),
                None => return self.refused(key),
            },
            Kind::Claim if self.holder(key)?.is_some_and(|k| k.value == owner) => {
                let claimant = self.claimant(owner)?;
                (claimant.map_or(Token(0), |c| c.grant), None)
            }
            Kind::Claim => return self.refused(key),
        };
        if grant > token {
            return Ok(Answer::Larger(grant));
        }
        if let Some(entry) = entry {
            let counter = entry.counter.max(token);
            self.rows.put_entry(key, &Entry { counter, ..entry })?;
        }
        self.raise(token)?;
        Ok(Answer::Done)
    }

    /// The key decides: while it was gone a stranger may have come and left, also where the record is still ours.
    pub(super) fn extend_by_key(
        &mut self,
        key: &str,
        owner: &str,
        round: Round,
    ) -> Result<Answer, R::Error> {
        let holder = self.holder(key)?;
        let taken = holder.as_ref().is_some_and(|k| k.value != owner);
        if taken || (self.over(key, owner)? && !revives()) {
            return self.refused(key);
        }
        let entry = self.entry(key)?;
        let ours = match self.own_round(entry.as_ref(), owner, round.seq) {
            Some(false) => return self.refused(key),
            ours => ours.is_some(),
        };
        let version = self.renew(key, owner, entry, round)?;
        Ok(if ours && holder.is_some() {
            Answer::Kept { version }
        } else {
            Answer::Healed { version }
        })
    }

    /// The record decides: no foreign value stands in the key, and what is ours is kept, also when the key has vanished.
    pub(super) fn extend_by_record(
        &mut self,
        key: &str,
        owner: &str,
        round: Round,
        seen: Option<&Seen>,
    ) -> Result<Answer, R::Error> {
        let entry = self.entry(key)?;
        let ours = self.own_round(entry.as_ref(), owner, round.seq);
        let may = match ours {
            Some(newer) => newer && !self.is_barred(key, entry.as_ref())?,
            None => self.may_take(key, entry.as_ref(), seen)?,
        };
        if !may || (self.over(key, owner)? && !revives()) {
            return self.refused(key);
        }
        let version = self.renew(key, owner, entry, round)?;
        Ok(match ours {
            Some(_) => Answer::Kept { version },
            None => Answer::Healed { version },
        })
    }

    /// Whether the record is this owner's and, if so, whether it counts and the round is newer (O5).
    fn own_round(&self, entry: Option<&Entry>, owner: &str, seq: u64) -> Option<bool> {
        let own = entry.filter(|e| self.names(e) && e.owner == owner)?;
        let over = (own.released || own.broken) && !revives();
        Some(!over && own.seq < seq)
    }

    fn renew(
        &mut self,
        key: &str,
        owner: &str,
        entry: Option<Entry>,
        round: Round,
    ) -> Result<Version, R::Error> {
        let counter = self.base(entry.as_ref())?.max(round.token);
        let ours = entry.as_ref().filter(|e| self.names(e) && e.owner == owner);
        let grant = ours.map_or(round.token, |e| e.grant);
        let record = entry.map(|e| e.record).unwrap_or_default();
        let version = record.version;
        let renewed = Entry {
            owner: owner.to_owned(),
            seq: round.seq,
            ttl: round.ttl,
            grant,
            counter,
            record,
            inc: self.inc().unwrap_or_default().to_owned(),
            ..Entry::default()
        };
        self.hold(key, owner, round.ttl)?;
        self.rows.put_entry(key, &renewed)?;
        self.raise(round.token)?;
        Ok(version)
    }

    pub(super) fn extend_claim(
        &mut self,
        key: &str,
        owner: &str,
        ttl: Duration,
        token: Token,
    ) -> Result<Answer, R::Error> {
        if self.holder(key)?.is_none_or(|k| k.value != owner) || self.over(key, owner)? {
            return self.refused(key);
        }
        let grant = self.claimant(owner)?.map_or(token, |c| c.grant);
        self.hold(key, owner, ttl)?;
        self.remember(owner, grant, ttl)?;
        self.raise(token)?;
        let version = Version::default();
        Ok(Answer::Kept { version })
    }

    pub(super) fn release(
        &mut self,
        key: &str,
        owner: &str,
        kind: Kind,
        retention: Duration,
    ) -> Result<Answer, R::Error> {
        let held = self.holder(key)?.is_some_and(|k| k.value == owner);
        let entry = self.entry(key)?;
        let ours = entry.filter(|e| kind == Kind::Lock && e.owner == owner && !e.released);
        if held {
            self.rows.drop_key(key)?;
        }
        if let Some(entry) = ours {
            let over = self.released(entry, retention);
            self.rows.put_entry(key, &over)?;
        }
        // Also when it never got here: its `Acquire` may still be under way.
        let until = later(self.now, retention.min(OVER_MEMORY));
        self.rows.put_over(key, owner, until)?;
        // Also when it held nothing here: a client that watches its record on another node need not wait for it to
        // ripen.
        self.announce(key, owner)?;
        Ok(Answer::Done)
    }

    fn released(&self, entry: Entry, retention: Duration) -> Entry {
        Entry {
            released: true,
            broken: false,
            retention,
            until: Some(later(self.now, retention)),
            ..entry
        }
    }

    /// The key is not removed, because its holder does not know yet: an owner that was granted now would be the
    /// second to believe. It hears of it at its next round, and ends no later than its key.
    pub(super) fn break_lease(
        &mut self,
        key: &str,
        owner: &str,
        force: &Force,
    ) -> Result<Answer, R::Error> {
        let before = self.view(key)?;
        let holder = self.holder(key)?;
        // What a foreign client wrote has neither record nor grant.
        if holder.is_some() && (before.foreign || before.holder.as_deref() != Some(owner)) {
            return Ok(Answer::Refused(before));
        }
        self.rows
            .put_over(key, owner, later(self.now, force.retention))?;
        let mut ends = force.now && holder.is_some();
        if let Some(entry) = self.entry(key)? {
            let counter = entry.counter.max(force.token);
            let unreleased = entry.owner == owner && !entry.released;
            let raised = Entry { counter, ..entry };
            let over = match (unreleased, force.now) {
                (true, true) => self.released(raised, force.retention),
                (true, false) => Entry {
                    broken: true,
                    ..raised
                },
                (false, _) => raised,
            };
            ends |= unreleased && force.now;
            self.rows.put_entry(key, &over)?;
        }
        self.raise(force.token)?;
        match holder {
            Some(_) if force.now => self.rows.drop_key(key)?,
            Some(Key { value, until: None }) => {
                let until = Some(later(self.now, force.ttl));
                self.rows.put_key(key, &Key { value, until })?;
            }
            _ => {}
        }
        if ends {
            self.announce(key, owner)?;
        }
        Ok(Answer::Broken(before))
    }
}

#[cfg(not(any(test, feature = "testing")))]
const fn revives() -> bool {
    false
}

#[cfg(any(test, feature = "testing"))]
fn revives() -> bool {
    super::REVIVE_RELEASED.get()
}
