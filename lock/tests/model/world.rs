//! The whole machine: nodes, clients, messages under way, faults, and the bounds of a search.
//!
//! Time goes in ticks, the same for all: clock rates are equal, drift is zero. A client may pause between any two of its
//! steps. Each client sends one round at a time; what a finished round's messages have not reached stays under way and may
//! arrive at any later moment that N2 leaves, in any order, or never (of an acquire and of an extension per client). The
//! release of an attempt that is over may reach each node at any time, in any order, or never: that covers crashes, partial
//! releases and releases that overtake what they release.

use crate::{
    node::{Expiry, Law, NOBODY, Node, Owner, Seen, client_of, owner},
    rules::Rule,
};

pub(crate) const CLIENTS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    #[default]
    Idle,
    /// Until it is told, or its own watch is complete.
    Sleeping,
    Acquiring,
    Confirming,
    Held,
    Extending,
    /// Asks a majority whether the lease is still shown as its own.
    Verifying,
}

/// What a client last read on a node, and for how many ticks it has known it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Watch {
    pub(crate) own: Owner,
    pub(crate) seq: u8,
    pub(crate) age: u8,
}

/// The messages of a finished round that are still under way, to `nodes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Late {
    pub(crate) nodes: u8,
    pub(crate) attempt: u8,
    pub(crate) seq: u8,
    pub(crate) token: u8,
    /// Ticks since they were sent.
    pub(crate) age: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client<const N: usize> {
    pub(crate) phase: Phase,
    /// The present attempt, or the last one.
    pub(crate) attempt: u8,
    /// Ticks since the attempt's first byte, and after it since the round's.
    pub(crate) elapsed: u8,
    /// Nodes that have not executed this round's message.
    pub(crate) todo: u8,
    /// Acquiring: the grant by node. Confirming, extending: 1 is a vote.
    pub(crate) got: [u8; N],
    pub(crate) granted: u8,
    pub(crate) token: u8,
    /// Ticks until the local deadline; above 0 the client believes.
    pub(crate) valid: u8,
    pub(crate) seq: u8,
    pub(crate) extensions: u8,
    /// Another client held the lock since this lease began.
    pub(crate) interrupted: bool,
    /// This round began after a majority had been told of the break.
    pub(crate) broken: bool,
    /// Has verified once; while it does, whether another that held after it has believed ever since it asked.
    pub(crate) verified: bool,
    pub(crate) doubted: bool,
    pub(crate) floor: u8,
    /// O1 off: nodes that looked takable when the attempt began. Explicit watches: whose watch was complete.
    pub(crate) ripe: u8,
    /// Acquire, extension.
    pub(crate) late: [Late; 2],
    pub(crate) watch: [Watch; N],
    /// Nodes that have executed the release of the last attempt, and attempts that all of them have.
    pub(crate) released: u8,
    pub(crate) free: u8,
    /// Nodes whose refusal was heard; with W3 off, those that still have to be told that the client waits.
    pub(crate) refused: u8,
    pub(crate) unflagged: u8,
    /// Told that something was released since the attempt began.
    pub(crate) called: bool,
    pub(crate) crashed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct World<const N: usize> {
    pub(crate) nodes: [Node; N],
    pub(crate) clients: [Client<N>; CLIENTS],
    /// Faults so far.
    pub(crate) losses: u8,
    pub(crate) saves: u8,
    pub(crate) bumps: u8,
    pub(crate) crashes: u8,
    pub(crate) evictions: u8,
    pub(crate) tables: u8,
    pub(crate) jumps: u8,
    /// The largest token that was ever held, and all of them, a bit each, where only that they differ is asked.
    pub(crate) used: u8,
    pub(crate) tokens: u32,
    /// All clients have stopped: one more than the ticks since.
    pub(crate) silent: u8,
    /// `locks break`: its target, the token it takes, whether a majority was told.
    pub(crate) target: Owner,
    pub(crate) break_token: u8,
    pub(crate) broken: bool,
}

/// The bounds of one search, and what it checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) law: Law,
    pub(crate) clients: usize,
    /// Attempts of each client, and of all together.
    pub(crate) attempts: [u8; CLIENTS],
    pub(crate) total: u8,
    /// Extension rounds of each lease, by client.
    pub(crate) extensions: [u8; CLIENTS],
    /// Nodes that lose their memory, copies that come back, `c` raised by other locks, clients that stop for good.
    pub(crate) losses: u8,
    pub(crate) saves: u8,
    pub(crate) bumps: u8,
    pub(crate) crashes: u8,
    /// Whether nodes that lost their memory must be admitted again.
    pub(crate) guard: bool,
    /// Clocks of nodes that jump: forward, or `back`.
    pub(crate) jumps: u8,
    pub(crate) back: bool,
    /// Admissions read node by node, in two halves.
    pub(crate) paged: bool,
    /// Released records are swept, and held ones that were watched.
    pub(crate) sweeps: bool,
    pub(crate) sweeps_held: bool,
    /// Raw keys that are evicted, or end early; tables that are lost without the keys beside them.
    pub(crate) evictions: u8,
    pub(crate) tables: u8,
    /// An operator breaks a lease; with `now`.
    pub(crate) breaks: bool,
    pub(crate) now: bool,
    /// Holders verify their leases once.
    pub(crate) verifies: bool,
    /// Replies may be lost, messages may be late, late messages may have been executed before.
    pub(crate) lost: bool,
    pub(crate) late: bool,
    pub(crate) twice: bool,
    /// Tokens must rise; clients remember the largest seen, and forget it.
    pub(crate) tokens: bool,
    pub(crate) floors: bool,
    pub(crate) restarts: bool,
    /// Watches are explicit reads by the client; otherwise every client polls without a gap.
    pub(crate) reads: bool,
    /// A lock whose releases have been answered is free.
    pub(crate) free: bool,
    /// All clients may stop for good; so many ticks later a newcomer that watches acquires (0: not asked).
    pub(crate) silence: u8,
    /// Refused clients sleep until they are told.
    pub(crate) wakes: bool,
    /// One holder and rising tokens; off where only that tokens differ is asked.
    pub(crate) exclusion: bool,
    pub(crate) liveness: bool,
}

/// One step of the machine. Clients and nodes by their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Tick,
    /// Node: its memory is lost; copied; an older copy comes back.
    Loses(u8),
    LosesTable(u8),
    KeyEnds(u8),
    Saves(u8),
    Restores(u8),
    /// The node's clock jumps, forward past the end of what stands there, or back.
    ClockForward(u8),
    ClockBack(u8),
    /// An admission of a node reads half of another; the node is admitted.
    Gathers(u8, u8, u8),
    Admitted(u8),
    /// Another lock's record is forgotten here, and raises `c`.
    Bumps(u8),
    /// A released record is read for a sweep (S1 off); swept.
    Lists(u8),
    Sweeps(u8),
    /// Client: begins an attempt; has this round's message executed on a node, and hears of it or does not.
    Begins(u8),
    Asks(u8, u8, bool),
    /// The round is won; it failed or was given up. `true`: what is still under way takes the place of older messages.
    Wins(u8, bool),
    Fails(u8, bool),
    /// The attempt failed, and the client sleeps. A node is told late that it waits (W3 off).
    Sleeps(u8),
    Flags(u8, u8),
    Extends(u8),
    Verifies(u8),
    Ends(u8),
    Reads(u8, u8),
    Restarts(u8),
    Crashes(u8),
    /// All clients stop for good.
    Silence,
    /// An old message of this kind (0 acquire, 1 extend) arrives at a node.
    Arrives(u8, u8, u8),
    /// The release of this owner reaches a node.
    Releases(Owner, u8),
    Breaks(u8),
    BreakReaches(u8),
    /// ... and what `now` does after it.
    NowReaches(u8),
}

// === impl Client ===

impl<const N: usize> Default for Client<N> {
    fn default() -> Self {
        Self {
            phase: Phase::Idle,
            attempt: 0,
            elapsed: 0,
            todo: 0,
            got: [0; N],
            granted: 0,
            token: 0,
            valid: 0,
            seq: 0,
            extensions: 0,
            interrupted: false,
            broken: false,
            verified: false,
            doubted: false,
            floor: 0,
            ripe: 0,
            late: [Late::default(); 2],
            watch: [Watch::default(); N],
            released: 0,
            free: 0,
            refused: 0,
            unflagged: 0,
            called: false,
            crashed: false,
        }
    }
}

impl<const N: usize> Client<N> {
    pub(crate) fn has_lease(&self) -> bool {
        matches!(
            self.phase,
            Phase::Held | Phase::Extending | Phase::Verifying
        )
    }

    pub(crate) fn believes(&self) -> bool {
        self.has_lease() && self.valid > 0
    }

    /// No attempt and no lease.
    pub(crate) fn rests(&self) -> bool {
        matches!(self.phase, Phase::Idle | Phase::Sleeping)
    }

    pub(crate) fn votes(&self) -> usize {
        self.got.iter().filter(|g| **g > 0).count()
    }

    /// A new round: its clock is read before the first byte leaves.
    pub(crate) fn round(&mut self, phase: Phase) {
        self.phase = phase;
        self.todo = (1 << N) - 1;
        self.got = [0; N];
    }

    pub(crate) fn settle(&mut self, phase: Phase) {
        self.phase = phase;
        (self.elapsed, self.todo, self.got, self.granted) = (0, 0, [0; N], 0);
        (self.ripe, self.broken, self.doubted) = (0, false, false);
        (self.refused, self.unflagged, self.called) = (0, 0, false);
    }

    /// Never again believes in this attempt.
    pub(crate) fn give_up(&mut self) {
        self.settle(Phase::Idle);
        (self.token, self.valid, self.seq) = (0, 0, 0);
        (self.extensions, self.interrupted, self.verified) = (0, false, false);
    }
}

// === impl World ===

impl<const N: usize> World<N> {
    pub(crate) const QUORUM: usize = N / 2 + 1;
    /// Any majority meets one of so many.
    pub(crate) const ENOUGH: usize = N - Self::QUORUM + 1;

    pub(crate) fn new() -> Self {
        let node = Node {
            admitted: true,
            ..Node::default()
        };
        Self {
            nodes: [node; N],
            clients: [Client::default(); CLIENTS],
            losses: 0,
            saves: 0,
            bumps: 0,
            crashes: 0,
            evictions: 0,
            tables: 0,
            jumps: 0,
            used: 0,
            tokens: 0,
            silent: 0,
            target: NOBODY,
            break_token: 0,
            broken: false,
        }
    }

    /// Is this attempt over for good, so that its release may be told and known?
    pub(crate) fn is_over(&self, own: Owner) -> bool {
        let client = &self.clients[client_of(own)];
        (own & 3) < client.attempt || client.rests() && client.votes() == 0
    }
}

// === impl Bounds ===

impl Bounds {
    #[inline(always)]
    pub(crate) fn has(&self, rule: Rule) -> bool {
        self.law.rules.has(rule)
    }

    pub(crate) fn is_foreign(&self, client: usize) -> bool {
        self.law.is_foreign(owner(client, 1))
    }

    /// Whether a rule is off with which records of another incarnation show nothing.
    pub(crate) fn trusts_copies(&self) -> bool {
        let rules = [Rule::E1Incarnation, Rule::G1Marker, Rule::V1Named];
        !self.guard || rules.into_iter().any(|rule| !self.has(rule))
    }

    /// Whether it makes a difference when a record ends by its node's clock.
    pub(crate) fn clocks(&self) -> bool {
        self.law.expiry == Expiry::Server || self.back
    }

    /// Counters make a difference to tokens, and to what is healed.
    pub(crate) fn counts(&self) -> bool {
        self.tokens || self.breaks || self.extensions.iter().any(|n| *n > 0)
    }

    /// S0: whether it makes a difference for how long a release is kept.
    pub(crate) fn keeps_releases(&self) -> bool {
        self.sweeps && (self.free || self.now)
    }

    /// O2: what this client may send as `expected` to this node, in this attempt.
    pub(crate) fn expected<const N: usize>(
        &self,
        w: &World<N>,
        c: usize,
        i: usize,
    ) -> Option<Seen> {
        let (n, client) = (&w.nodes[i], &w.clients[c]);
        let stands = (n.own, n.seq);
        if self.reads {
            let watch = client.watch[i];
            let ripe = match client.phase {
                Phase::Acquiring => client.ripe & 1 << i != 0,
                _ => watch.own != NOBODY && watch.age >= self.watch_time(c, watch.own),
            };
            return ripe.then_some((watch.own, watch.seq));
        }
        if !n.is_taken() {
            return None;
        }
        if !self.has(Rule::O1Expected) && client.ripe & 1 << i != 0 {
            return Some(stands);
        }
        (self.is_ripe(n, c) || self.knows_over(w, n.own)).then_some(stands)
    }

    /// A perfect poller's watch is as long as the value has stood: a contender that watched less sends less.
    pub(crate) fn is_ripe(&self, n: &Node, c: usize) -> bool {
        n.age + u8::from(!self.has(Rule::O2FullTtl)) >= self.watch_time(c, n.own)
    }

    /// Whether a contender that polls without a gap may take what stands here.
    pub(crate) fn may_be_taken(&self, n: &Node, c: usize) -> bool {
        match self.law.expiry {
            Expiry::Server => n.left == 0,
            Expiry::Observed => self.is_ripe(n, c),
        }
    }

    /// O2: how long this client watches a record of `own`.
    pub(crate) fn watch_time(&self, c: usize, own: Owner) -> u8 {
        match self.has(Rule::O2RecordTtl) {
            true => self.law.ttl_of(own),
            false => self.law.ttls[c],
        }
    }

    /// O2: a release seen on any node or announced, or one of our own attempts: more than any real client can know.
    pub(crate) fn knows_over<const N: usize>(&self, w: &World<N>, own: Owner) -> bool {
        let silent = w.clients[client_of(own)].phase != Phase::Held;
        if silent && !self.has(Rule::O2NotBySilence) {
            return true;
        }
        // What a break with `now` writes is a release to those who see it.
        let freed = self.now && own == w.target && w.nodes.iter().any(|n| n.freed);
        self.has(Rule::O2KnownOver) && (freed || w.is_over(own))
    }

    /// Whether a message of this owner's acquire is still under way, to this node or to any.
    pub(crate) fn acquires<const N: usize>(
        &self,
        w: &World<N>,
        own: Owner,
        node: Option<usize>,
    ) -> bool {
        let client = &w.clients[client_of(own)];
        let late = client.late[0];
        let nodes = node.map_or(u8::MAX, |i| 1 << i);
        owner(client_of(own), late.attempt) == own && late.nodes & nodes != 0
    }
}
