//! The whole machine: nodes, clients, messages under way, faults, and what must always be true.
//!
//! Time goes in ticks, the same for all: clock rates are equal, drift is zero. A client may pause between any two of
//! its steps, for any number of ticks. Each client sends one round at a time; of a finished round one message may
//! still be under way and arrive at any later moment, or never (an acquire and an extension per client). The release
//! of an attempt that is over may reach each node at any time, in any order, or never: that covers crashes, partial
//! releases and releases that overtake what they release. A node that stands still is one whose messages are late, a
//! `try` an attempt that is not repeated.

use crate::{
    node::{Law, NOBODY, Node, Owner, Seen, client_of, owner},
    rules::Rule,
};

/// Three of our own, or two of our own and a foreign one.
pub(crate) const CLIENTS: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Phase {
    #[default]
    Idle,
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

/// A message of a finished round that is still under way to `node` (0: none, else its number plus one).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Late {
    pub(crate) node: u8,
    pub(crate) owner: Owner,
    pub(crate) seq: u8,
    pub(crate) token: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client<const N: usize> {
    pub(crate) phase: Phase,
    /// The present attempt, or the last one.
    pub(crate) attempt: u8,
    /// Attempts begun.
    pub(crate) tries: u8,
    /// Attempts that became a lease, a bit each.
    pub(crate) won: u8,
    /// Ticks since the round's first byte.
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
    /// This round began after the lease was broken.
    pub(crate) broken: bool,
    /// Has verified once; while it does, whether a client that held after it has believed all the time since it
    /// asked.
    pub(crate) verified: bool,
    pub(crate) doubted: bool,
    pub(crate) floor: u8,
    /// Nodes that looked takable when the attempt began (O1 off), or whose watch was complete (explicit watches).
    pub(crate) ripe: u8,
    pub(crate) late: [Late; 2],
    pub(crate) watch: [Watch; N],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct World<const N: usize> {
    pub(crate) nodes: [Node; N],
    pub(crate) clients: [Client<N>; CLIENTS],
    /// Faults so far.
    pub(crate) losses: u8,
    pub(crate) saves: u8,
    pub(crate) jumps: u8,
    pub(crate) forgets: u8,
    /// The largest token that was ever held, and all of them, a bit each.
    pub(crate) used: u8,
    pub(crate) tokens: u32,
    /// `locks break`: its target, the token it takes, nodes still to reach, those that know, whether a majority does.
    pub(crate) target: Owner,
    pub(crate) break_token: u8,
    pub(crate) break_todo: u8,
    pub(crate) told: u8,
    pub(crate) broken: bool,
}

/// The bounds of one search, and what it checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) law: Law,
    /// Of our own, one to three; with a stranger in the law one or two, and the third is the stranger.
    pub(crate) clients: usize,
    /// Attempts of each client, and of all together.
    pub(crate) attempts: [u8; CLIENTS],
    pub(crate) total: u8,
    /// Extension rounds of each lease, by client.
    pub(crate) extensions: [u8; CLIENTS],
    /// Nodes that lose their memory: restart empty, FLUSHALL.
    pub(crate) losses: u8,
    /// Whether such nodes must be admitted again.
    pub(crate) guard: bool,
    /// Old copies that come back: a promoted replica that lagged, a restored snapshot.
    pub(crate) saves: u8,
    /// Keys that end early (the node's clock goes forward), and keys that stay too long (it goes back).
    pub(crate) jumps: u8,
    pub(crate) back: bool,
    /// Keys may vanish at any moment, without limit, and never end by themselves (observed expiry).
    pub(crate) vanish: bool,
    /// Released records whose retention ends.
    pub(crate) forgets: u8,
    /// An operator breaks a lease, and removes its keys at once.
    pub(crate) breaks: bool,
    pub(crate) now: bool,
    /// Holders verify their leases once.
    pub(crate) verifies: bool,
    /// Claims are sent in parts: a node may grant another claim of the attempt first.
    pub(crate) parts: bool,
    /// Clients forget all that they have seen: they are started again, or try once and leave.
    pub(crate) restarts: bool,
    /// Replies may be lost, messages may be late, late messages may have been executed before.
    pub(crate) lost: bool,
    pub(crate) late: bool,
    pub(crate) twice: bool,
    /// Tokens are counted; clients remember the largest seen.
    pub(crate) tokens: bool,
    pub(crate) floors: bool,
    /// Watches are explicit reads by the client; otherwise every client polls without a gap.
    pub(crate) reads: bool,
    /// One holder and rising tokens; off where only the uniqueness of tokens is asked.
    pub(crate) exclusion: bool,
    pub(crate) liveness: bool,
}

/// One step of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Tick,
    /// Node: its memory is lost; saved; an older copy comes back; its key ends early or stays; it is admitted; a
    /// released record's retention ends.
    Loses(usize),
    Saves(usize),
    Restores(usize),
    KeyEnds(usize),
    ClockBack(usize),
    Admitted(usize),
    Forgets(usize),
    /// Client: begins an attempt; has this round's message executed on a node, and hears of it or does not.
    Begins(usize),
    Asks(usize, usize, bool),
    /// Another part of this attempt's call, with claims of other locks, is executed on a node.
    Precedes(usize, usize),
    /// The round is won; it failed or was given up; a message to that node (plus one) is still under way.
    Wins(usize, u8),
    Fails(usize, u8),
    Extends(usize),
    Verifies(usize),
    Restarts(usize),
    Ends(usize),
    Reads(usize, usize),
    /// An old message of this kind (0 acquire, 1 extend) arrives.
    Arrives(usize, usize),
    /// The release of this owner reaches a node.
    Releases(Owner, usize),
    Breaks(usize),
    BreakReaches(usize),
}

// === impl Client ===

impl<const N: usize> Default for Client<N> {
    fn default() -> Self {
        Self {
            phase: Phase::Idle,
            attempt: 0,
            tries: 0,
            won: 0,
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
        }
    }
}

impl<const N: usize> Client<N> {
    pub(crate) fn believes(&self) -> bool {
        self.has_lease() && self.valid > 0
    }

    pub(crate) fn has_lease(&self) -> bool {
        matches!(
            self.phase,
            Phase::Held | Phase::Extending | Phase::Verifying
        )
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
    }

    /// Never again believes in this attempt.
    pub(crate) fn give_up(&mut self) {
        self.settle(Phase::Idle);
        (
            self.token,
            self.valid,
            self.seq,
            self.extensions,
            self.interrupted,
            self.verified,
        ) = (0, 0, 0, 0, false, false);
    }
}

// === impl World ===

impl<const N: usize> World<N> {
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
            jumps: 0,
            forgets: 0,
            used: 0,
            tokens: 0,
            target: NOBODY,
            break_token: 0,
            break_todo: 0,
            told: 0,
            broken: false,
        }
    }

    pub(crate) const QUORUM: usize = N / 2 + 1;

    /// Is this attempt over for good, so that its release may be told and known?
    pub(crate) fn is_over(&self, owner: Owner) -> bool {
        let client = &self.clients[client_of(owner)];
        let attempt = owner & 3;
        attempt < client.attempt || client.phase == Phase::Idle && client.votes() == 0
    }
}

// === impl Bounds ===

impl Bounds {
    pub(crate) fn has(&self, rule: Rule) -> bool {
        self.law.rules.has(rule)
    }

    pub(crate) fn is_foreign(&self, client: usize) -> bool {
        self.law.is_foreign(owner(client, 1))
    }

    pub(crate) fn all(&self) -> usize {
        if self.law.foreign {
            CLIENTS
        } else {
            self.clients
        }
    }

    /// O2: what this client may send as `expected` to this node, in this attempt.
    pub(crate) fn expected<const N: usize>(
        &self,
        w: &World<N>,
        c: usize,
        node: usize,
    ) -> Option<Seen> {
        let (n, client) = (&w.nodes[node], &w.clients[c]);
        let stands = (n.own, n.seq);
        let ttl = |own| self.watch_time(c, own);
        if self.reads {
            let watch = client.watch[node];
            let ripe = match client.phase {
                Phase::Acquiring => client.ripe & (1 << node) != 0,
                _ => watch.own != NOBODY && watch.age >= ttl(watch.own),
            };
            return ripe.then_some((watch.own, watch.seq));
        }
        if !self.has(Rule::O1Expected) && client.ripe & (1 << node) != 0 {
            return Some(stands);
        }
        // A perfect poller's watch is as long as the value has stood: a client that watched less sends less.
        let short = !self.has(Rule::O2FullTtl) || !self.has(Rule::O2FromReply);
        let watched = n.age + u8::from(short) >= ttl(n.own);
        let silent = !self.has(Rule::O2NotBySilence)
            && n.own != NOBODY
            && w.clients[client_of(n.own)].phase != Phase::Held;
        (watched || silent || self.knows_over(w, n.own)).then_some(stands)
    }

    /// O2: how long this client watches a record of `own`.
    pub(crate) fn watch_time(&self, c: usize, own: Owner) -> u8 {
        if own == NOBODY {
            return self.law.longest();
        }
        match self.has(Rule::O2RecordTtl) {
            true => self.law.ttl_of(own),
            false => self.law.ttls[c],
        }
    }

    /// O2: a release seen on any node or announced, or one of our own attempts: more than any real client can know.
    pub(crate) fn knows_over<const N: usize>(&self, w: &World<N>, own: Owner) -> bool {
        // A break that removes the keys at once announces the lease as over.
        let announced = self.now && own == w.target && w.told != 0;
        own != NOBODY && self.has(Rule::O2KnownOver) && (announced || w.is_over(own))
    }
}
