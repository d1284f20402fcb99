//! Taking, confirming, extending and ending leases.

use std::time::Duration;

use super::{Entry, Force, Key, Rows, Turn, later};
use crate::node::{Answer, Kind, Record, Token, Version, View};

/// A release is remembered beside the record at most this long; calls that are still under way are younger.
const OVER_MEMORY: Duration = Duration::from_secs(60);

impl<R: Rows> Turn<'_, R> {
    pub(super) fn acquire(
        &mut self,
        key: &str,
        owner: &str,
        kind: Kind,
        ttl: Duration,
        floor: Token,
    ) -> Result<Answer, R::Error> {
        let taken = self.holder(key)?.is_some_and(|k| k.value != owner);
        if taken || self.over(key, owner)? {
            return self.refused(key);
        }
        match kind {
            Kind::Lock => self.grant_lock(key, owner, ttl, floor),
            Kind::Claim => self.grant_claim(key, owner, ttl, floor),
        }
    }

    fn grant_lock(
        &mut self,
        key: &str,
        owner: &str,
        ttl: Duration,
        floor: Token,
    ) -> Result<Answer, R::Error> {
        let entry = self.entry(key)?;
        if let Some(own) = entry.as_ref().filter(|e| e.owner == owner) {
            if own.released {
                return self.refused(key);
            }
            // The same attempt sent again: nobody was granted in between, or the record would name them.
            let (grant, record) = (own.grant, own.record.clone());
            self.hold(key, owner, ttl)?;
            return Ok(Answer::Granted { grant, record });
        }
        let grant = Token(self.base(entry.as_ref())?.max(floor).0 + 1);
        let record = entry.map(|e| e.record).unwrap_or_default();
        let taken = Entry {
            owner: owner.to_owned(),
            ttl,
            grant,
            counter: grant,
            record: record.clone(),
            ..Entry::default()
        };
        self.hold(key, owner, ttl)?;
        self.rows.put_entry(key, &taken)?;
        self.raise(grant)?;
        Ok(Answer::Granted { grant, record })
    }

    fn grant_claim(
        &mut self,
        key: &str,
        owner: &str,
        ttl: Duration,
        floor: Token,
    ) -> Result<Answer, R::Error> {
        let grant = match self.claimant(owner)? {
            Some(claimant) => claimant.grant,
            None => Token(self.rows.counter()?.max(floor).0 + 1),
        };
        self.hold(key, owner, ttl)?;
        self.remember(owner, grant, ttl)?;
        self.raise(grant)?;
        let record = Record::default();
        Ok(Answer::Granted { grant, record })
    }

    pub(super) fn confirm(
        &mut self,
        key: &str,
        owner: &str,
        kind: Kind,
        token: Token,
    ) -> Result<Answer, R::Error> {
        if self.holder(key)?.is_none_or(|k| k.value != owner) || self.over(key, owner)? {
            return self.refused(key);
        }
        let entry = self.entry(key)?.filter(|e| e.owner == owner && !e.released);
        let grant = match (kind, &entry) {
            (Kind::Lock, Some(entry)) => entry.grant,
            (Kind::Lock, None) => return self.refused(key),
            (Kind::Claim, _) => self.claimant(owner)?.map_or(Token(0), |c| c.grant),
        };
        if grant > token {
            return Ok(Answer::Larger(grant));
        }
        if let (Kind::Lock, Some(entry)) = (kind, entry) {
            let counter = entry.counter.max(token);
            self.rows.put_entry(key, &Entry { counter, ..entry })?;
        }
        self.raise(token)?;
        Ok(Answer::Done)
    }

    pub(super) fn extend_lock(
        &mut self,
        key: &str,
        owner: &str,
        seq: u64,
        ttl: Duration,
        token: Token,
    ) -> Result<Answer, R::Error> {
        let holder = self.holder(key)?;
        let taken = holder.as_ref().is_some_and(|k| k.value != owner);
        if taken || (self.over(key, owner)? && !revives()) {
            return self.refused(key);
        }
        let entry = self.entry(key)?;
        let counter = self.base(entry.as_ref())?.max(token);
        let entry = entry.unwrap_or_default();
        let version = entry.record.version;
        let ours = entry.owner == owner;
        if ours && (entry.released && !revives() || entry.seq >= seq) {
            return self.refused(key);
        }
        let renewed = Entry {
            owner: owner.to_owned(),
            seq,
            ttl,
            grant: if ours { entry.grant } else { token },
            counter,
            record: entry.record,
            ..Entry::default()
        };
        self.hold(key, owner, ttl)?;
        self.rows.put_entry(key, &renewed)?;
        self.raise(token)?;
        // While the key was gone a stranger may have come and left, also where the record is still ours.
        Ok(if ours && holder.is_some() {
            Answer::Kept { version }
        } else {
            Answer::Healed { version }
        })
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
        // Repeated releases, and those of attempts that got nothing here, are no news.
        let news = held || ours.is_some();
        if held {
            self.rows.drop_key(key)?;
        }
        if let Some(entry) = ours {
            let (released, until) = (true, Some(later(self.now, retention)));
            let over = Entry {
                released,
                retention,
                until,
                ..entry
            };
            self.rows.put_entry(key, &over)?;
        }
        // Also when it never got here: its `Acquire` may still be under way.
        let until = later(self.now, retention.min(OVER_MEMORY));
        self.rows.put_over(key, owner, until)?;
        if news {
            self.rows.announce(key, owner)?;
        }
        Ok(Answer::Done)
    }

    /// The key is not removed, because its holder does not know yet: whoever is granted now would be the second to
    /// believe. It hears of it at its next round, and ends no later than its key.
    pub(super) fn break_lease(
        &mut self,
        key: &str,
        owner: &str,
        force: &Force,
    ) -> Result<Answer, R::Error> {
        let before = self.view(key)?;
        let holder = self.holder(key)?;
        let entry = self.entry(key)?;
        let recorded = entry.as_ref().is_some_and(|e| e.owner == owner);
        // What a foreign client wrote has neither record nor grant.
        let ours = |k: &Key| k.value == owner && (recorded || before_is_claim(&before));
        if holder.as_ref().is_some_and(|k| !ours(k)) {
            return Ok(Answer::Refused(before));
        }
        self.rows
            .put_over(key, owner, later(self.now, force.retention))?;
        if let Some(entry) = entry {
            let counter = entry.counter.max(force.token);
            let raised = Entry { counter, ..entry };
            let over = if recorded && !raised.released {
                Entry {
                    released: true,
                    retention: force.retention,
                    until: Some(later(self.now, force.retention)),
                    ..raised
                }
            } else {
                raised
            };
            self.rows.put_entry(key, &over)?;
        }
        self.raise(force.token)?;
        match holder {
            Some(_) if force.now => {
                self.rows.drop_key(key)?;
                self.rows.announce(key, owner)?;
            }
            Some(Key { value, until: None }) => {
                let until = Some(later(self.now, force.ttl));
                self.rows.put_key(key, &Key { value, until })?;
            }
            _ => {}
        }
        Ok(Answer::Broken(before))
    }
}

/// A held key without a record, whose owner was granted claims here.
fn before_is_claim(before: &View) -> bool {
    before.owner.is_none() && before.token > Token(0)
}

#[cfg(not(test))]
const fn revives() -> bool {
    false
}

#[cfg(test)]
fn revives() -> bool {
    super::REVIVE_RELEASED.get()
}
