//! What one node remembers and answers in layout 2: plain functions that read like the specification.
//!
//! A node has all of its memory or none of it: for each lock a record, for the namespace `c` (the largest counter of a record
//! that was forgotten) and the marker of the incarnation that was admitted. Here is one lock.

use crate::{
    rules::{Rule, Rules},
    world::CLIENTS,
};

/// An attempt's random value: the client (upper bits) and the number of its attempt (lower two, from 1).
pub(crate) type Owner = u8;
pub(crate) const NOBODY: Owner = 0;

pub(crate) fn owner(client: usize, attempt: u8) -> Owner {
    ((client as u8) << 2) | attempt
}
pub(crate) fn client_of(owner: Owner) -> usize {
    usize::from(owner >> 2)
}

/// With raw keys the third client knows only the key: another service's plain Redlock.
pub(crate) const FOREIGN: usize = 2;

/// What ends the lease of a holder that is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// The end that stands in the record, by the node's own clock.
    Server,
    /// A contender that has watched it for its ttl.
    Observed,
}

/// The state of the record, if one stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Mark {
    #[default]
    Nothing,
    Held,
    Released,
    Broken,
}

/// The owner and round that a contender has watched, or knows to be over. Not the state: a break does not restart a watch.
pub(crate) type Seen = (Owner, u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Node {
    /// The record: state, owner, round, this attempt's grant, the largest token known of the lock.
    pub(crate) mark: Mark,
    pub(crate) own: Owner,
    pub(crate) seq: u8,
    pub(crate) grant: u8,
    pub(crate) counter: u8,
    /// Whether the record's incarnation is the node's: a record of another one names no owner.
    pub(crate) current: bool,
    /// Whether a client waits for the end of this lease.
    pub(crate) flag: bool,
    /// For how many ticks (own, seq) has stood unchanged, up to the longest ttl.
    pub(crate) age: u8,
    /// Ticks until the record ends by the node's clock; 0 once it has. Kept where a search asks for it.
    pub(crate) left: u8,
    /// `c`: the largest counter of a record that was forgotten.
    pub(crate) forgot: u8,
    /// G1: whether the marker names this incarnation.
    pub(crate) admitted: bool,
    /// Ticks since the memory was lost, up to the longest ttl.
    pub(crate) watched: u8,
    /// What the other nodes' counters showed when the memory was lost (read too early, with the rule off).
    pub(crate) early: u8,
    /// An admission under way: the nodes whose records, and whose `c`, were read, and the largest number among them.
    pub(crate) read: [u8; 2],
    pub(crate) gathered: u8,
    /// With S1 off: a released record was read here, to be deleted by another call.
    pub(crate) listed: bool,
    /// The break, and what it frees at once, were executed here and answered so.
    pub(crate) told: bool,
    pub(crate) freed: bool,
    /// Raw keys: the value in the plain key, and for how many ticks it stays.
    pub(crate) key: Owner,
    pub(crate) px: u8,
    /// A copy on disk or on a replica.
    pub(crate) saved: Option<Saved>,
}

/// What a copy holds: the record and `c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Saved {
    pub(crate) mark: Mark,
    pub(crate) own: Owner,
    pub(crate) seq: u8,
    pub(crate) counter: u8,
    pub(crate) left: u8,
    pub(crate) forgot: u8,
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

/// The law of a scenario: which rules hold, and how long leases last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Law {
    pub(crate) rules: Rules,
    pub(crate) expiry: Expiry,
    /// Of each client's leases. The longest is max_ttl.
    pub(crate) ttls: [u8; CLIENTS],
    /// A plain key stands beside the record, for the third client, which is a stranger.
    pub(crate) raw: bool,
}

// === impl Node ===

impl Node {
    /// Whether a record stands that names its owner for everybody.
    pub(crate) fn is_named(&self) -> bool {
        self.mark != Mark::Nothing && self.current
    }

    /// Whether a lease stands here that others must watch.
    pub(crate) fn is_taken(&self) -> bool {
        self.current && matches!(self.mark, Mark::Held | Mark::Broken)
    }
}

// === impl Law ===

impl Law {
    #[inline(always)]
    pub(crate) fn has(&self, rule: Rule) -> bool {
        self.rules.has(rule)
    }

    pub(crate) fn longest(&self) -> u8 {
        self.ttls.into_iter().fold(0, u8::max)
    }

    /// The ttl of this owner's leases: fixed per owner, so that it need not be kept in the record.
    pub(crate) fn ttl_of(&self, owner: Owner) -> u8 {
        self.ttls[client_of(owner)]
    }

    /// G2: for how long a node that lost its memory is watched.
    pub(crate) fn admission_watch(&self) -> u8 {
        match (self.has(Rule::G2Watch), self.has(Rule::G2LongestTtl)) {
            (false, _) => 0,
            (_, true) => self.longest(),
            (_, false) => self.ttls.into_iter().fold(u8::MAX, u8::min),
        }
    }

    pub(crate) fn is_foreign(&self, key: Owner) -> bool {
        self.raw && key != NOBODY && client_of(key) == FOREIGN
    }

    /// Whether a lease stands that keeps others out, whatever they have watched.
    pub(crate) fn stands(&self, n: &Node) -> bool {
        n.is_taken() && !self.has_ended(n)
    }

    /// By the node's clock, where that decides.
    pub(crate) fn has_ended(&self, n: &Node) -> bool {
        self.expiry == Expiry::Server && n.left == 0
    }

    /// O6: does a key stand that is a stranger's, or not that of the record?
    fn is_barred(&self, n: &Node) -> bool {
        match self.is_foreign(n.key) {
            true => self.has(Rule::O6NoForeign),
            false => n.key != NOBODY && n.key != n.own,
        }
    }

    /// The plain key shows `me` for at least its ttl from now.
    fn show(&self, n: &mut Node, me: Owner) {
        if self.raw {
            (n.key, n.px) = (me, self.ttl_of(me));
        }
    }

    /// N2: may a message of this ttl, sent so long ago, act no more?
    pub(crate) fn is_too_late(&self, since: u8, ttl: u8) -> bool {
        let last = self.has(Rule::N2Exclusive) && since == ttl;
        self.has(Rule::N2Bound) && (since > ttl || last)
    }

    /// G1: what is not admitted does not vote.
    fn may_vote(&self, n: &Node) -> bool {
        n.admitted || !self.has(Rule::G1Marker)
    }

    /// The counter that a grant must exceed: the record's where it is of this incarnation, else (also) `c`.
    pub(crate) fn base(&self, n: &Node) -> u8 {
        match (n.mark, n.current) {
            (Mark::Nothing, _) if self.has(Rule::C4FreshFromC) => n.forgot,
            (Mark::Nothing, _) => 0,
            (_, true) => n.counter,
            (_, false) if self.has(Rule::C1OldWithC) => n.counter.max(n.forgot),
            (_, false) => n.counter,
        }
    }

    /// O1, the take rule, for acquiring and healing: no record, or one of another incarnation, or released by another, or
    /// exactly what the caller watched for its whole life or knows to be over. With server expiry, what has ended by the
    /// node's clock, and never beside a plain key.
    fn may_take(&self, n: &Node, expected: Option<Seen>) -> bool {
        let over = match self.expiry {
            Expiry::Server if n.key != NOBODY && !self.is_foreign(n.key) => return false,
            Expiry::Server => n.left == 0,
            Expiry::Observed => expected == Some((n.own, n.seq)),
        };
        match n.mark {
            _ if !n.current => true,
            Mark::Nothing | Mark::Released => true,
            Mark::Held => over,
            Mark::Broken => !self.has(Rule::B1Watched) || over && self.has(Rule::B5Taken),
        }
    }

    /// Would writing `me` here as held revive what was released here?
    pub(crate) fn is_dead(&self, n: &Node, me: Owner) -> bool {
        n.is_named() && n.own == me && n.mark == Mark::Released
    }

    /// Writes a record anew. W1: the flag stays where it stood on a lease.
    fn put(&self, n: &mut Node, mark: Mark, me: Owner, seq: u8, counter: u8) {
        n.flag &= matches!(n.mark, Mark::Held | Mark::Broken) && self.has(Rule::W1KeepFlag);
        (n.mark, n.own, n.seq, n.counter) = (mark, me, seq, counter);
        (n.current, n.age, n.left) = (true, 0, self.ttl_of(me));
    }

    /// N10, of a refusal to `me`.
    fn cut(&self, n: &mut Node, me: Owner) {
        if !self.has(Rule::N10Clamp) {
            return;
        }
        let last = match self.has(Rule::N10Longest) {
            true => self.longest(),
            false => self.ttl_of(me),
        };
        n.left = n.left.min(last);
        if n.key != NOBODY && n.key == n.own {
            n.px = n.px.min(last);
        }
    }

    /// Takes the lock where the take rule allows it; an attempt sent again is granted again. `waits`: the client would wait.
    pub(crate) fn acquire(
        &self,
        n: &mut Node,
        me: Owner,
        floor: u8,
        expected: Option<Seen>,
        waits: bool,
    ) -> Answer {
        if !self.may_vote(n) {
            return Answer::Unadmitted;
        }
        if n.is_named() && n.own == me {
            match n.mark {
                Mark::Held if self.is_barred(n) => return Answer::Refused,
                Mark::Held => {
                    if !self.has(Rule::A2NoRewrite) && n.seq != 0 {
                        (n.seq, n.age) = (0, 0);
                    }
                    return Answer::Granted(n.grant);
                }
                Mark::Released if !self.has(Rule::A1OwnOver) => {}
                _ => return Answer::Refused,
            }
        }
        if self.is_barred(n) || !self.may_take(n, expected) {
            n.flag |= waits && self.has(Rule::W3Atomic);
            self.cut(n, me);
            return Answer::Refused;
        }
        let base = self.base(n).max(floor);
        let raised = if self.has(Rule::T1Raise) {
            base + 1
        } else {
            base
        };
        self.put(n, Mark::Held, me, 0, raised);
        self.show(n, me);
        n.grant = base + 1;
        Answer::Granted(n.grant)
    }

    /// T2: raises the counter where the lock is still this attempt's, and says when its own grant was larger.
    pub(crate) fn confirm(&self, n: &mut Node, me: Owner, token: u8) -> Answer {
        if !self.may_vote(n) {
            return Answer::Unadmitted;
        }
        let own = n.is_named() && n.own == me && n.mark == Mark::Held;
        let gone = self.expiry == Expiry::Server && self.raw && n.key == NOBODY;
        let ended = self.has_ended(n) && self.has(Rule::T2Living);
        if !own || gone || ended || self.is_barred(n) {
            return Answer::Refused;
        }
        if n.grant > token && self.has(Rule::T2GrantCheck) {
            return Answer::Larger(n.grant);
        }
        n.counter = n.counter.max(token);
        Answer::Done
    }

    /// Renews what is ours and older; writes anew by the take rule, which is no vote in this round.
    pub(crate) fn extend(
        &self,
        n: &mut Node,
        me: Owner,
        seq: u8,
        token: u8,
        expected: Option<Seen>,
    ) -> Answer {
        if !self.may_vote(n) {
            return Answer::Unadmitted;
        }
        let shown = n.current || !self.has(Rule::E1Incarnation);
        if n.mark != Mark::Nothing && n.own == me && shown {
            let over = n.mark != Mark::Held && self.has(Rule::E2NoRevival);
            let late = seq <= n.seq && self.has(Rule::O5Seq);
            let foreign = self.is_foreign(n.key);
            if over || late || self.is_barred(n) && !foreign {
                return Answer::Refused;
            }
            if foreign && self.has(Rule::R8NoForeignKey) {
                return Answer::Refused;
            }
            // Server expiry: while the plain key was gone, a stranger may have come and left.
            let gone = self.expiry == Expiry::Server && self.raw && n.key == NOBODY;
            if !foreign {
                self.show(n, me);
            }
            n.left = n.left.max(self.ttl_of(me));
            n.flag &= self.has(Rule::W1KeepFlag);
            (n.mark, n.seq, n.age) = (Mark::Held, seq, 0);
            if self.has(Rule::T3Extend) {
                n.counter = n.counter.max(token);
            }
            return if gone { Answer::Healed } else { Answer::Kept };
        }
        let later = n.is_named() && n.counter > token && self.has(Rule::E3Counter);
        let blind = !self.has(Rule::R9Heal) && !self.is_foreign(n.key);
        let takes = blind || !self.is_barred(n) && self.may_take(n, expected);
        if later || !takes {
            return Answer::Refused;
        }
        let base = if self.has(Rule::C2HealBase) {
            self.base(n)
        } else {
            0
        };
        let token_too = if self.has(Rule::T3Extend) { token } else { 0 };
        self.put(n, Mark::Held, me, seq, base.max(token_too));
        self.show(n, me);
        n.grant = token;
        Answer::Healed
    }

    /// Whether this node shows the lease to be `me`'s.
    pub(crate) fn shows(&self, n: &Node, me: Owner) -> Answer {
        let own = n.mark != Mark::Nothing && n.own == me;
        let over = n.mark != Mark::Held && self.has(Rule::V1Broken);
        let old = !(n.current && n.admitted) && self.has(Rule::V1Named);
        match own && !over && !old && !self.has_ended(n) && !self.is_foreign(n.key) {
            true => Answer::Done,
            false => Answer::Refused,
        }
    }

    /// Marks the record released where it is this owner's. Whether it is announced.
    pub(crate) fn release(&self, n: &mut Node, me: Owner) -> bool {
        if n.key == me {
            (n.key, n.px) = (NOBODY, 0);
        }
        let any = !self.has(Rule::N6CompareOwner);
        let stands = matches!(n.mark, Mark::Held | Mark::Broken);
        if !stands || n.own != me && !any {
            return false;
        }
        let waits = std::mem::take(&mut n.flag);
        (n.mark, n.age) = (Mark::Released, 0);
        waits && self.has(Rule::W6ReleaseTells)
    }

    /// `locks break`: its target is over here, but others must watch the mark: the target may still believe. `now` is a
    /// release in the target's name. Whether the node was told, and whether it is announced.
    pub(crate) fn break_lock(
        &self,
        n: &mut Node,
        target: Owner,
        token: u8,
        now: bool,
    ) -> (bool, bool) {
        let mark = if now { Mark::Released } else { Mark::Broken };
        let token = if self.has(Rule::BreakRaises) {
            token
        } else {
            0
        };
        if !n.admitted {
            if self.has(Rule::B3Admitted) {
                return (false, false);
            }
            let counter = self.base(n).max(token);
            self.put(n, mark, target, 0, counter);
            // What is written without a marker is of no incarnation that will count.
            n.current = false;
            return (true, false);
        }
        if self.is_foreign(n.key) {
            return (false, false);
        }
        if (now || !self.has(Rule::N7KeyStays)) && n.key == target {
            (n.key, n.px) = (NOBODY, 0);
        }
        if n.is_named() && n.own == target {
            n.counter = n.counter.max(token);
            let marks = now || self.has(Rule::N7Marks);
            if marks && (n.mark == Mark::Held || n.mark == Mark::Broken && now) {
                n.mark = mark;
                n.left = if self.has(Rule::N7EndStays) {
                    n.left
                } else {
                    0
                };
                n.age = if now { 0 } else { n.age };
                n.flag &= now || self.has(Rule::W1KeepFlag);
            }
            let waits = now && std::mem::take(&mut n.flag);
            return (true, waits && self.has(Rule::W4NowTells));
        }
        if n.is_taken() {
            return (false, false);
        }
        let rule = if now {
            Rule::B4NowEverywhere
        } else {
            Rule::B2Everywhere
        };
        if self.has(rule) {
            let counter = self.base(n).max(token);
            self.put(n, mark, target, 0, counter);
        }
        (true, false)
    }

    /// Forgets the record. C3: `c` is raised in the same step. Whether it is announced.
    pub(crate) fn sweep(&self, n: &mut Node) -> bool {
        let counter = if self.has(Rule::C3SweepRaises) {
            n.counter
        } else {
            0
        };
        let waits = n.is_taken() && std::mem::take(&mut n.flag);
        n.forgot = n.forgot.max(counter);
        (n.mark, n.flag, n.current) = (Mark::Nothing, false, false);
        waits && self.has(Rule::W4SweepTells)
    }

    /// Both halves of what an admission reads of another node: its records, and `c`.
    pub(crate) fn halves(n: &Node) -> [u8; 2] {
        let record = if n.mark == Mark::Nothing {
            0
        } else {
            n.counter
        };
        [record, n.forgot]
    }

    /// G2, T5: what the newcomer's `c` is raised to, from the *other* admitted nodes. `known` stands for a floor from
    /// outside when too few of them can be read.
    pub(crate) fn admission(&self, n: &Node, others: &[u8], enough: usize, known: u8) -> u8 {
        let least = !self.has(Rule::G2Majority);
        if others.len() < if least { 1 } else { enough } {
            known
        } else if !self.has(Rule::G2ReadAfter) {
            n.early
        } else if least {
            // One node read, the one that knows least.
            others.iter().copied().min().unwrap_or(0)
        } else {
            // What N - q + 1 nodes are sure to show: the worst choice of that many.
            let mut sorted = others.to_vec();
            sorted.sort_unstable();
            sorted.get(enough - 1).copied().unwrap_or(0)
        }
    }
}
