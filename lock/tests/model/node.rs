//! What one lock node remembers and answers: plain functions that read like the specification.
//!
//! One lock only. Two ways to end the lease of a holder that has gone:
//! - [`Expiry::Server`]: the key's time to live on the node's own clock decides;
//! - [`Expiry::Observed`]: the record beside the key decides ([`Law::may_take`]), and the key may vanish at any time.

use crate::{
    rules::{Rule, Rules},
    world::CLIENTS,
};

/// An attempt's random value: the client (upper bits) and the number of its attempt (lower two, from 1).
pub(crate) type Owner = u8;
pub(crate) const NOBODY: Owner = 0;
/// Where the law says so, the third client knows only the key: another service's plain Redlock.
pub(crate) const FOREIGN: usize = 2;

pub(crate) fn owner(client: usize, attempt: u8) -> Owner {
    ((client as u8) << 2) | attempt
}
pub(crate) fn client_of(owner: Owner) -> usize {
    usize::from(owner >> 2)
}

/// What decides that a lease is over whose holder is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    Server,
    Observed,
}

/// The owner and round that a contender has watched, or knows to be over.
pub(crate) type Seen = (Owner, u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Node {
    /// The value in the key, and for how many ticks it stays.
    pub(crate) key: Owner,
    pub(crate) px: u8,
    /// The record: owner, round, whether it is released or broken, this attempt's grant.
    pub(crate) own: Owner,
    pub(crate) seq: u8,
    pub(crate) released: bool,
    /// Over for its owner by force (N7), who may not know yet.
    pub(crate) broken: bool,
    pub(crate) grant: u8,
    /// Whether the record's incarnation is the node's: a record of another one names no owner.
    pub(crate) named: bool,
    /// Short claims: the last attempt of each client that was granted here (lower two bits), and its grant.
    pub(crate) claimants: [u8; CLIENTS],
    /// For how many ticks (own, seq) has stood unchanged, up to the longest ttl.
    pub(crate) age: u8,
    /// The largest token known here.
    pub(crate) counter: u8,
    /// Owners that were released here, a bit each.
    pub(crate) over: u16,
    /// G1: whether the marker names this incarnation.
    pub(crate) admitted: bool,
    /// Ticks since the memory was lost, up to ttl: how long the newcomer's nonce has been watched.
    pub(crate) watched: u8,
    /// What the other nodes' counters showed when the memory was lost (read too early, with the rule off).
    pub(crate) early_floor: u8,
    /// A copy on disk or on a replica: (own, seq, released, counter).
    pub(crate) saved: Option<(Owner, u8, bool, u8)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted(u8),
    Kept,
    Healed,
    Done,
    Larger(u8),
    Refused,
    /// Not admitted: no vote at all.
    Unadmitted,
}

/// The law of a scenario: which rules hold, and what ends a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Law {
    pub(crate) rules: Rules,
    pub(crate) expiry: Expiry,
    /// Of each client's leases. The longest is max_ttl.
    pub(crate) ttls: [u8; CLIENTS],
    /// The third client is a stranger.
    pub(crate) foreign: bool,
    /// A short claim: key only, and one grant per owner.
    pub(crate) claim: bool,
    /// Whether nodes still remember who is over (N4), or what arrives late is later than that memory.
    pub(crate) memory: bool,
}

// === impl Law ===

impl Law {
    fn has(&self, rule: Rule) -> bool {
        self.rules.has(rule)
    }

    pub(crate) fn is_foreign(&self, key: Owner) -> bool {
        self.foreign && key != NOBODY && client_of(key) == FOREIGN
    }

    pub(crate) fn longest(&self) -> u8 {
        self.ttls.into_iter().fold(0, u8::max)
    }

    /// The ttl of this owner's leases: fixed per owner, so that it need not be kept beside it.
    pub(crate) fn ttl_of(&self, owner: Owner) -> u8 {
        self.ttls[client_of(owner)]
    }

    /// G2: for how long a node that lost its memory is watched.
    pub(crate) fn admission_watch(&self) -> u8 {
        match (self.has(Rule::G2Watch), self.has(Rule::G2LongestTtl)) {
            (false, _) => 0,
            (_, true) => self.longest(),
            (_, false) => self.ttls[..2].iter().copied().fold(u8::MAX, u8::min),
        }
    }

    /// G1: what is not admitted does not vote.
    fn may_vote(&self, node: &Node) -> bool {
        node.admitted || !self.has(Rule::G1Marker)
    }

    /// O1, O6: does a value stand in the key that is not of the one who asks, or not of the record?
    fn is_barred(&self, node: &Node, me: Owner) -> bool {
        if self.is_foreign(node.key) {
            return self.has(Rule::O6NoForeign);
        }
        match self.expiry {
            Expiry::Server => node.key != NOBODY && node.key != me,
            Expiry::Observed => node.key != NOBODY && node.key != node.own,
        }
    }

    /// The owner that the record names: `NOBODY` when it is of another incarnation of the node.
    fn named(node: &Node) -> Owner {
        if node.named { node.own } else { NOBODY }
    }

    /// O1, the take rule, for acquiring and healing: the record is missing, or released, or exactly what the caller
    /// watched for its whole life or knows to be over. Server expiry asks for the key alone.
    fn may_take(&self, node: &Node, me: Owner, expected: Option<Seen>) -> bool {
        if self.is_barred(node, me) {
            return false;
        }
        self.expiry == Expiry::Server
            || Self::named(node) == NOBODY
            || node.released
            || node.broken && !self.has(Rule::N7BrokenIsWatched)
            || expected == Some((node.own, node.seq))
    }

    /// N4: was this owner released here, as far as the node can know?
    fn remembers_over(&self, node: &Node, me: Owner) -> bool {
        self.memory && node.over & (1 << me) != 0
    }

    /// Would writing `me` here revive what was released here?
    pub(crate) fn is_dead(&self, node: &Node, me: Owner) -> bool {
        self.remembers_over(node, me) || Self::named(node) == me && node.released
    }

    /// The key shows `me` for at least its ttl from now.
    fn hold(&self, node: &mut Node, me: Owner) {
        let known = if node.key == me { node.px } else { 0 };
        (node.key, node.px) = (me, self.ttl_of(me).max(known));
    }

    fn put(&self, node: &mut Node, me: Owner, seq: u8, grant: u8) {
        self.hold(node, me);
        (node.own, node.seq, node.released, node.named) = (me, seq, false, true);
        (node.broken, node.grant, node.age) = (false, grant, 0);
    }

    /// N3, N4, T1: takes the lock where the take rule allows it; an attempt sent again is granted again.
    pub(crate) fn acquire(
        &self,
        node: &mut Node,
        me: Owner,
        floor: u8,
        expected: Option<Seen>,
    ) -> Answer {
        if !self.may_vote(node) {
            return Answer::Unadmitted;
        }
        if self.remembers_over(node, me) && self.has(Rule::N4Remembered) {
            return Answer::Refused;
        }
        let floor = if self.has(Rule::T1Floor) { floor } else { 0 };
        if self.claim {
            return self.acquire_claim(node, me, floor);
        }
        if Self::named(node) == me {
            let dead = (node.released || node.broken) && self.has(Rule::R9NoRevival);
            if dead || self.is_barred(node, me) {
                return Answer::Refused;
            }
            // A watching client sees no difference.
            let age = node.age;
            self.put(node, me, node.seq, node.grant);
            node.age = age;
            return Answer::Granted(node.grant);
        }
        if !self.may_take(node, me, expected) {
            self.clamp(node, me);
            return Answer::Refused;
        }
        let grant = node.counter.max(floor) + 1;
        self.put(node, me, 0, grant);
        if self.has(Rule::T1RaiseCounter) {
            node.counter = grant;
        }
        Answer::Granted(grant)
    }

    /// O6: a key of ours that outlives every lease is cut; `me` was refused.
    fn clamp(&self, node: &mut Node, me: Owner) {
        let ours = node.key != NOBODY && !self.is_foreign(node.key);
        let last = match self.has(Rule::O6ClampLongest) {
            true => self.longest(),
            false => self.ttl_of(me),
        };
        if ours && self.has(Rule::O6Clamp) {
            node.px = node.px.min(last);
        }
    }

    /// A key only. All claims of one owner share one grant: a call that is sent in parts may find its own.
    fn acquire_claim(&self, node: &mut Node, me: Owner, floor: u8) -> Answer {
        if node.key != NOBODY && node.key != me {
            self.clamp(node, me);
            return Answer::Refused;
        }
        let grant = self.claim_grant(node, me, floor);
        self.hold(node, me);
        Answer::Granted(grant)
    }

    /// The grant of an owner's claims, given with the first of them.
    pub(crate) fn claim_grant(&self, node: &mut Node, me: Owner, floor: u8) -> u8 {
        let known = Self::claimant(node, me);
        let again = known > 0 && !self.has(Rule::ClaimGrantIsFresh);
        let grant = if again {
            known
        } else {
            node.counter.max(floor) + 1
        };
        node.claimants[client_of(me)] = grant << 2 | me & 3;
        node.counter = node.counter.max(grant);
        grant
    }

    /// The grant that this owner's claims have here; 0 without one.
    pub(crate) fn claimant(node: &Node, me: Owner) -> u8 {
        let known = node.claimants[client_of(me)];
        if known & 3 == me & 3 { known >> 2 } else { 0 }
    }

    /// T2: raises the counter where the lock is still this attempt's, and says when its own grant was larger.
    pub(crate) fn confirm(&self, node: &mut Node, me: Owner, token: u8) -> Answer {
        if !self.may_vote(node) {
            return Answer::Unadmitted;
        }
        if self.remembers_over(node, me) && self.has(Rule::N4Remembered) {
            return Answer::Refused;
        }
        let gone = self.expiry == Expiry::Server && node.key != me;
        let over = Self::named(node) != me || node.released || node.broken;
        if gone || self.is_barred(node, me) || over && !self.claim {
            return Answer::Refused;
        }
        let grant = match self.claim {
            true => Self::claimant(node, me),
            false => node.grant,
        };
        if grant > token && self.has(Rule::T2GrantCheck) {
            return Answer::Larger(grant);
        }
        node.counter = node.counter.max(token);
        Answer::Done
    }

    /// R8, R9, O5: renews what is ours and older; writes anew by the take rule, which is no vote in this round.
    pub(crate) fn extend(
        &self,
        node: &mut Node,
        me: Owner,
        seq: u8,
        token: u8,
        expected: Option<Seen>,
    ) -> Answer {
        if !self.may_vote(node) {
            return Answer::Unadmitted;
        }
        if self.remembers_over(node, me) && self.has(Rule::N4Remembered) {
            return Answer::Refused;
        }
        if self.claim {
            let gone = node.key == NOBODY && !self.has(Rule::ClaimNotHealed);
            if node.key != me && !gone {
                return Answer::Refused;
            }
            self.hold(node, me);
            node.claimants[client_of(me)] = Self::claimant(node, me).max(token) << 2 | me & 3;
            node.counter = node.counter.max(token);
            return Answer::Kept;
        }
        let ours = Self::named(node) == me;
        if ours && self.is_foreign(node.key) && !self.has(Rule::R8NoForeignKey) {
            node.age = 0;
            return Answer::Kept;
        }
        let answer = if ours {
            let late = seq <= node.seq && self.has(Rule::O5Seq);
            let dead = (node.released || node.broken) && self.has(Rule::R9NoRevival);
            if late || dead || self.is_barred(node, me) {
                return Answer::Refused;
            }
            // Server expiry: while the key was gone a stranger may have come and left.
            let gone = self.expiry == Expiry::Server && node.key == NOBODY;
            self.put(node, me, seq, node.grant);
            if gone { Answer::Healed } else { Answer::Kept }
        } else {
            let blind = !self.has(Rule::R9Heal)
                && (self.expiry == Expiry::Server || node.key == NOBODY)
                && !self.is_foreign(node.key);
            if !blind && !self.may_take(node, me, expected) {
                return Answer::Refused;
            }
            self.put(node, me, seq, token);
            Answer::Healed
        };
        if self.has(Rule::T3Extend) {
            node.counter = node.counter.max(token);
        }
        answer
    }

    /// R11, N6, O3: deletes the key and marks the record released where they are this owner's.
    pub(crate) fn release(&self, node: &mut Node, me: Owner) {
        let any = !self.has(Rule::N6CompareOwner) && !self.is_foreign(node.key);
        if node.key == me || any {
            (node.key, node.px) = (NOBODY, 0);
        }
        if node.own == me || any && node.own != NOBODY {
            (node.released, node.broken) = (true, false);
        }
        node.over |= 1 << me;
    }

    /// `locks break` (N7): its owner is over here, but the key stays: its holder may still believe. `now` is a release in
    /// the holder's name. Where another value stands in the key nothing is changed, and `false` returned.
    pub(crate) fn break_lock(&self, node: &mut Node, target: Owner, token: u8, now: bool) -> bool {
        if node.key != NOBODY && (node.key != target || self.is_foreign(node.key)) {
            return false;
        }
        if now {
            self.release(node, target);
        } else if self.has(Rule::BreakMarks) {
            node.broken |= node.own == target && !node.released;
            node.over |= 1 << target;
        }
        if !self.has(Rule::N7KeyStays) {
            (node.key, node.px) = (NOBODY, 0);
        }
        node.counter = node.counter.max(token);
        true
    }

    /// Verify: whether this node shows the lease to be `me`'s.
    pub(crate) fn shows(&self, node: &Node, me: Owner) -> Answer {
        let own = !self.claim && node.own == me;
        let over = own && (node.released || node.broken) && self.has(Rule::V1Broken);
        let old = own && !(node.named && node.admitted) && self.has(Rule::V1Named);
        if node.key != NOBODY && node.key != me || over || old {
            return Answer::Refused;
        }
        match node.key == me || own {
            true => Answer::Done,
            false => Answer::Refused,
        }
    }

    /// G2, T5: the counter of a node that is admitted, from the counters of the *other* admitted nodes.
    /// `known` stands for a floor from outside (a clock, the user's store) when too few of them can be read.
    pub(crate) fn admission(&self, node: &Node, others: &[u8], enough: usize, known: u8) -> u8 {
        let enough = if self.has(Rule::G2MergeMajority) {
            enough
        } else {
            1
        };
        let floor = if others.len() < enough {
            known
        } else if !self.has(Rule::G2ReadAfter) {
            node.early_floor
        } else if !self.has(Rule::G2MergeMajority) {
            // One node read, the one that knows least.
            others.iter().copied().min().unwrap_or(0)
        } else {
            // What N - q + 1 nodes are sure to show: the worst choice of that many.
            let mut sorted = others.to_vec();
            sorted.sort_unstable();
            sorted.get(enough - 1).copied().unwrap_or(0)
        };
        node.counter.max(floor)
    }
}
