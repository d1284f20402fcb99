//! Taking, confirming, extending and releasing leases.

use std::time::Duration;

use super::{
    Attempt, Claim, Entry, Key, LAST, LONGEST_TTL_MS, Round, Row, Rows, State, Turn, bare, ceil_ms,
    later, out_of_range,
};
use crate::node::{Answer, Expiry, Kind, NodeMs, Op, Record, Take, Ticket, Token, Version, View};

impl<R: Rows> Turn<'_, R> {
    /// Queues, takes, and tells a caller that comes too early what stands there.
    pub(super) fn acquire(&mut self, op: &Op) -> Result<Answer, R::Error> {
        let Op::Acquire {
            key,
            owner,
            kind,
            ttl,
            floor,
            take,
            clamp,
            ticket,
            waits,
        } = op
        else {
            return Ok(Answer::Unadmitted);
        };
        let attempt = Attempt {
            owner,
            ttl: *ttl,
            floor: *floor,
        };
        if *kind == Kind::Claim {
            return match self.acquire_claim(key, attempt)? {
                Some(granted) => Ok(granted),
                None => self.cut_claim(key, *clamp),
            };
        }
        let ticket = ticket.as_ref();
        let ahead = match ticket {
            Some(ticket) if self.own(key, owner)?.is_none() => Some(self.queue(key, ticket)?),
            _ => None,
        };
        let steps_back = ahead.is_some_and(|n| n > 0) && ticket.is_some_and(|t| t.polite);
        let granted = match steps_back {
            true => None,
            false => self.acquire_lock(key, attempt, take, ticket)?,
        };
        match granted {
            Some(granted) => Ok(granted),
            None => {
                let refused = self.held_by_other(key, *clamp, *waits)?;
                Ok(match refused {
                    Answer::Refused(view) => Answer::Refused(View { ahead, ..view }),
                    other => other,
                })
            }
        }
    }

    /// `None` is a refusal.
    fn acquire_lock(
        &mut self,
        key: &str,
        attempt: Attempt<'_>,
        take: &Take,
        ticket: Option<&Ticket>,
    ) -> Result<Option<Answer>, R::Error> {
        let row = self.rows.row(key)?;
        if let Some(own) = self.own(key, attempt.owner)? {
            // A1: what is over for this owner is never given to it again. A2: nothing is written, so that no round is undone.
            let foreign = self.plain(key)?.is_some_and(|k| k.value != own.owner);
            if own.state != State::Held || foreign {
                return Ok(None);
            }
            if self.body(key)?.is_some_and(|body| body.damaged) {
                return Ok(Some(bare(key)));
            }
            ticket.map_or(Ok(()), |ticket| self.leave(key, &ticket.id))?;
            let record = self.record(key)?;
            let grant = own.grant;
            return Ok(Some(Answer::Granted { grant, record }));
        }
        if !self.may_take(key, row.as_ref(), take)? {
            return Ok(None);
        }
        let above = self.base(row.as_ref())?.max(attempt.floor);
        if above >= LAST {
            return Ok(Some(out_of_range(key)));
        }
        if self.body(key)?.is_some_and(|body| body.damaged) {
            return Ok(Some(bare(key)));
        }
        let grant = Token(above.0 + 1);
        ticket.map_or(Ok(()), |ticket| self.take_turn(key, ticket))?;
        let others = match ticket {
            Some(_) => self.last_waiter(key)?,
            None => NodeMs(0),
        };
        let taken = Entry {
            state: State::Held,
            owner: attempt.owner.to_owned(),
            seq: 0,
            ttl: attempt.ttl,
            grant,
            counter: grant,
            waits: others,
            ..Entry::default()
        };
        let record = self.put(key, row.as_ref(), taken)?;
        Ok(Some(Answer::Granted { grant, record }))
    }

    /// Writes a lease over what stands there: its incarnation, its end and its body's version are those of now, and clients
    /// that waited go on waiting (W1). What the predecessors left.
    fn put(&mut self, key: &str, row: Option<&Row>, entry: Entry) -> Result<Record, R::Error> {
        let body = self.body(key)?;
        if body.as_ref().is_some_and(|body| body.until.is_some()) {
            self.rows.keep_body(key, self.now, None)?;
        }
        let record = body.map(|body| body.record).unwrap_or_default();
        let waits = row.and_then(Row::entry).map_or(NodeMs(0), |e| e.waits);
        self.show(key, &entry.owner, entry.ttl)?;
        let entry = Entry {
            inc: self.inc().unwrap_or_default().to_owned(),
            version: record.version,
            until: later(self.now, entry.ttl),
            waits: entry.waits.max(waits),
            ..entry
        };
        self.rows.put_row(key, &Row::Record(entry))?;
        Ok(record)
    }

    /// The plain key shows the owner for its ttl from now.
    fn show(&mut self, key: &str, owner: &str, ttl: Duration) -> Result<(), R::Error> {
        if !self.rows.is_raw() {
            return Ok(());
        }
        let until = Some(later(self.now, ttl));
        let value = owner.to_owned();
        self.rows.put_plain(key, &Key { value, until })
    }

    /// O1, for acquiring and for healing alike; O6, of a plain key.
    fn may_take(&mut self, key: &str, row: Option<&Row>, take: &Take) -> Result<bool, R::Error> {
        let entry = row.and_then(Row::entry);
        if let Some(plain) = self.plain(key)? {
            let own = entry.is_some_and(|e| e.owner == plain.value);
            if !own || *take == Take::Server {
                return Ok(false);
            }
        }
        Ok(match row {
            None => true,
            Some(Row::Malformed(_)) => false,
            Some(Row::Claim(claim)) => !self.lives(claim),
            Some(Row::Record(e)) if !self.names(&e.inc) || !e.stands() => true,
            // What is broken may still be believed in (B1), and comes free like what is held (B5).
            Some(Row::Record(e)) => match take {
                Take::Server => e.until <= self.now,
                Take::Observed(seen) => seen.as_ref().is_some_and(|seen| e.is(seen)),
            },
        })
    }

    /// A refusal: W3, in the same step the record says that a client waits; N10, what lives longer than any lease, because
    /// a clock was set back, is cut. Where others watch it, too: those who try once leave while a holder is shown.
    fn held_by_other(
        &mut self,
        key: &str,
        longest: Duration,
        waits: Duration,
    ) -> Result<Answer, R::Error> {
        let Some(before) = self.entry(key)? else {
            // Shown as it was found, so that it is told of.
            let refused = self.refused(key)?;
            self.mend(key, longest)?;
            return Ok(refused);
        };
        // A holder whose leases may be longer than the caller's knows best.
        let last = later(self.now, before.ttl.max(longest));
        let mut entry = before.clone();
        if entry.stands() {
            entry.until = entry.until.min(last);
        }
        if !waits.is_zero() && self.names(&entry.inc) {
            entry.waits = entry.waits.max(later(self.now, waits));
        }
        let own = self.plain(key)?.filter(|k| k.value == entry.owner);
        if let Some(plain) = own
            && plain.until.is_none_or(|until| until > last)
        {
            let until = Some(last);
            self.rows.put_plain(key, &Key { until, ..plain })?;
        }
        if entry != before {
            self.rows.put_row(key, &Row::Record(entry))?;
        }
        self.refused(key)
    }

    /// N10, of claims.
    fn cut_claim(&mut self, key: &str, longest: Duration) -> Result<Answer, R::Error> {
        // Where programs need not agree on the longest lease the caller knows no limit, and the store knows how long that was.
        let longest = match ceil_ms(longest) >= LONGEST_TTL_MS {
            true => self.rows.longest_granted()?.unwrap_or(longest),
            false => longest,
        };
        let until = later(self.now, longest);
        if let Some(Row::Claim(claim)) = self.rows.row(key)?
            && claim.until > until
        {
            let own = self.plain(key)?.filter(|k| k.value == claim.owner);
            self.rows
                .put_row(key, &Row::Claim(Claim { until, ..claim }))?;
            if let Some(plain) = own {
                let until = Some(until);
                self.rows.put_plain(key, &Key { until, ..plain })?;
            }
        }
        let refused = self.refused(key)?;
        self.mend(key, longest)?;
        Ok(refused)
    }

    /// `None` is a refusal. Nothing but the node's clock ends a claim, nor a lock in its way.
    fn acquire_claim(
        &mut self,
        key: &str,
        attempt: Attempt<'_>,
    ) -> Result<Option<Answer>, R::Error> {
        let plain = self.plain(key)?;
        let foreign = plain.as_ref().is_some_and(|k| k.value != attempt.owner);
        let record = Record::default();
        let row = self.rows.row(key)?;
        if let Some(Row::Malformed(_)) = row {
            return Ok(None);
        }
        if let Some(Row::Claim(claim)) = &row
            && self.lives(claim)
        {
            let grant = claim.grant;
            let own = claim.owner == attempt.owner && !foreign;
            return Ok(own.then_some(Answer::Granted { grant, record }));
        }
        if plain.is_some() {
            return Ok(None);
        }
        if let Some(Row::Record(entry)) = &row
            && self.names(&entry.inc)
            && entry.stands()
            && self.now < entry.until
        {
            return Ok(None);
        }
        let forgotten = self.rows.forgotten()?;
        // What was known of this one: `c` was below what is shared, unless its row has gone in this call.
        let known = match row.as_ref().and_then(Row::entry) {
            Some(entry) => entry.counter,
            None if row.is_none() && self.gone.contains(key) => forgotten,
            None => Token(0),
        };
        let above = forgotten.max(known).max(attempt.floor);
        let shared = self.claimed.get(attempt.owner).copied();
        let grant = match shared.filter(|shared| *shared >= known && *shared > attempt.floor) {
            _ if forgotten > LAST => return Ok(Some(out_of_range(key))),
            Some(shared) => shared,
            None if above >= LAST => return Ok(Some(out_of_range(key))),
            None => Token(above.0 + 1),
        };
        self.claimed.insert(attempt.owner.to_owned(), grant);
        self.raise(grant)?;
        let claim = Claim {
            owner: attempt.owner.to_owned(),
            grant,
            inc: self.inc().unwrap_or_default().to_owned(),
            until: later(self.now, attempt.ttl),
        };
        self.show(key, attempt.owner, attempt.ttl)?;
        self.rows.put_row(key, &Row::Claim(claim))?;
        Ok(Some(Answer::Granted { grant, record }))
    }

    /// The record, where its lease is this owner's and counts.
    pub(super) fn held(
        &mut self,
        key: &str,
        owner: &str,
        expiry: Expiry,
    ) -> Result<Option<Entry>, R::Error> {
        let by_clock = expiry == Expiry::Server;
        let shown = match self.plain(key)? {
            Some(plain) => plain.value == owner,
            None => !(by_clock && self.rows.is_raw()),
        };
        let own = self.own(key, owner)?.filter(|_| shown);
        let now = self.now;
        Ok(own.filter(|e| e.state == State::Held && !(by_clock && e.until <= now)))
    }

    /// The claim, where it is this owner's and counts.
    fn claim(&mut self, key: &str, owner: &str) -> Result<Option<Claim>, R::Error> {
        let shown = match self.plain(key)? {
            Some(plain) => plain.value == owner,
            None => !self.rows.is_raw(),
        };
        Ok(match self.rows.row(key)? {
            Some(Row::Claim(claim)) if shown && self.lives(&claim) && claim.owner == owner => {
                Some(claim)
            }
            _ => None,
        })
    }

    pub(super) fn confirm_lock(
        &mut self,
        key: &str,
        owner: &str,
        token: Token,
        expiry: Expiry,
    ) -> Result<Answer, R::Error> {
        let Some(entry) = self.held(key, owner, expiry)? else {
            return self.refused(key);
        };
        if entry.grant > token {
            return Ok(Answer::Larger(entry.grant));
        }
        let counter = entry.counter.max(token);
        self.rows
            .put_row(key, &Row::Record(Entry { counter, ..entry }))?;
        Ok(Answer::Done)
    }

    pub(super) fn confirm_claim(
        &mut self,
        key: &str,
        owner: &str,
        token: Token,
    ) -> Result<Answer, R::Error> {
        let Some(claim) = self.claim(key, owner)? else {
            return self.refused(key);
        };
        if claim.grant > token {
            return Ok(Answer::Larger(claim.grant));
        }
        if let Some(uncounted) = self.uncounted(key)? {
            return Ok(uncounted);
        }
        self.raise(token)?;
        Ok(Answer::Done)
    }

    /// What shows owner and incarnation is kept (E1); anything else is written anew by the take rule.
    pub(super) fn extend_lock(
        &mut self,
        key: &str,
        round: Round<'_>,
        take: &Take,
    ) -> Result<Answer, R::Error> {
        let Some(own) = self.own(key, round.owner)? else {
            return self.heal(key, round, take);
        };
        // E2: what was released or broken is not revived. O5: an older round changes nothing.
        let over = own.state != State::Held && !revives();
        let plain = self.plain(key)?;
        let foreign = plain.as_ref().is_some_and(|k| k.value != round.owner);
        if over || round.seq <= own.seq || foreign {
            return self.refused(key);
        }
        // While the key was gone, a stranger may have come and left.
        let gone = self.rows.is_raw() && *take == Take::Server && plain.is_none();
        let version = own.version;
        self.show(key, round.owner, round.ttl)?;
        let kept = Entry {
            state: State::Held,
            seq: round.seq,
            ttl: round.ttl,
            counter: own.counter.max(round.token),
            until: later(self.now, round.ttl).max(own.until),
            ..own
        };
        self.rows.put_row(key, &Row::Record(kept))?;
        Ok(match gone {
            false => Answer::Kept { version },
            true => Answer::Healed { version },
        })
    }

    /// E3: not over what was granted later, which has a larger counter.
    fn heal(&mut self, key: &str, round: Round<'_>, take: &Take) -> Result<Answer, R::Error> {
        let row = self.rows.row(key)?;
        let named = row.as_ref().and_then(Row::entry);
        let named = named.filter(|e| self.names(&e.inc));
        let is_later = named.is_some_and(|e| e.counter > round.token) && !heals_over_later();
        if is_later || !self.may_take(key, row.as_ref(), take)? {
            return self.refused(key);
        }
        if named.is_none()
            && let Some(uncounted) = self.uncounted(key)?
        {
            return Ok(uncounted);
        }
        let counter = self.base(row.as_ref())?.max(round.token);
        let healed = Entry {
            state: State::Held,
            owner: round.owner.to_owned(),
            seq: round.seq,
            ttl: round.ttl,
            grant: round.token,
            counter,
            ..Entry::default()
        };
        let version = self.put(key, row.as_ref(), healed)?.version;
        Ok(Answer::Healed { version })
    }

    pub(super) fn extend_claim(&mut self, key: &str, round: Round<'_>) -> Result<Answer, R::Error> {
        let Some(claim) = self.claim(key, round.owner)? else {
            return self.refused(key);
        };
        if let Some(uncounted) = self.uncounted(key)? {
            return Ok(uncounted);
        }
        self.show(key, round.owner, round.ttl)?;
        let until = later(self.now, round.ttl).max(claim.until);
        self.rows
            .put_row(key, &Row::Claim(Claim { until, ..claim }))?;
        self.raise(round.token)?;
        let version = Version::default();
        Ok(Answer::Kept { version })
    }

    pub(super) fn release_lock(
        &mut self,
        key: &str,
        owner: &str,
        marked: Duration,
        retention: Duration,
    ) -> Result<Answer, R::Error> {
        self.drop_own_plain(key, owner)?;
        let entry = self.entry(key)?;
        if let Some(own) = entry.filter(|e| e.owner == owner && e.stands()) {
            self.let_go(key, own, marked, retention)?;
        }
        Ok(Answer::Done)
    }

    /// The mark of a release, of which waiting clients are told.
    pub(super) fn let_go(
        &mut self,
        key: &str,
        entry: Entry,
        marked: Duration,
        retention: Duration,
    ) -> Result<(), R::Error> {
        self.announce(key, &entry)?;
        self.end_body(key, retention)?;
        let released = Entry {
            state: State::Released,
            until: later(self.now, marked),
            ..entry
        };
        self.rows.put_row(key, &Row::Record(released))
    }

    fn drop_own_plain(&mut self, key: &str, owner: &str) -> Result<(), R::Error> {
        match self.plain(key)?.is_some_and(|k| k.value == owner) {
            true => self.rows.drop_plain(key),
            false => Ok(()),
        }
    }

    pub(super) fn release_claim(&mut self, key: &str, owner: &str) -> Result<Answer, R::Error> {
        self.drop_own_plain(key, owner)?;
        if let Some(Row::Claim(claim)) = self.rows.row(key)?
            && claim.owner == owner
        {
            self.drop_row(key)?;
        }
        Ok(Answer::Done)
    }
}

#[cfg(not(any(test, feature = "testing")))]
const fn revives() -> bool {
    false
}

#[cfg(any(test, feature = "testing"))]
fn revives() -> bool {
    super::mutants::REVIVE_RELEASED.get()
}

#[cfg(not(any(test, feature = "testing")))]
const fn heals_over_later() -> bool {
    false
}

#[cfg(any(test, feature = "testing"))]
fn heals_over_later() -> bool {
    super::mutants::HEAL_OVER_LATER.get()
}
