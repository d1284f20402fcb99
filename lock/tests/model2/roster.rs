//! Who the nodes of a fleet are: what is written on them, and how programs whose lists of addresses differ are kept apart.
//! Searched before it is built.
//!
//! A machine of its own: nodes that are new or have lost their memory, and two programs that look, write markers and vote. A
//! look is what two rounds of reading have shown alike; a write compares the marker with what was read. An acquisition is one
//! vote after another; a watch lasts until all votes that it found are over. There are no tokens, ttls, or late messages.
//!
//! # What stands on a node
//! Beside the nomination (`nonce`, `who`) it has `for`: the list of the complete fleet that is about to admit the node, or
//! nothing. The marker has, beside what it has today:
//! - `id`: the nonce under which the node was *first* admitted. It is kept when the node is admitted again with its memory, and
//!   lost with it.
//! - `list`: a hash of the addresses that the admitting program is configured with, sorted; and `roster`: in that order, the
//!   identities of all N nodes, with `?` for those that were not met yet.
//! - `stamp`: new with each change of the roster.
//! - `sealed`: all N nodes were once admitted, and named each other.
//!
//! These are no part of the configuration that has to be equal. A *member* is an admitted node of one's list that is not foreign
//! (I6).
//!
//! # The rules
//! Each is switched off in a test, which then finds what the third column says. The last one has the states that were visited,
//! and the steps of the trace; (*) is searched from the beginning of one.
//!
//! | rule | says | without it | found |
//! | --- | --- | --- | --- |
//! | I3 `Mutual` | Votes count together only of nodes that name each other in their rosters, as they were read with the vote. | two holders | 20,296 (14) |
//! | I3 `Distinct` | An identity counts once. Of two addresses that show it, that one counts at which the roster of its list has it; if none does, neither counts. | two holders: a node votes twice | 200 (9) |
//! | I4 `Complete` | A program counts no votes before it has seen q members that are sealed and name each other; or no node of its list that answers is without a marker, | two holders: the shared node belongs to the other fleet a moment later | 2,666 (14) |
//! | I4 `AllAgree` | ... and all members name each other. Once it has counted, a node without a marker does not stop it; a foreign one does, until q sealed members name each other. | two holders, where of two shared nodes each is in a majority | 1,241 (22)* |
//! | I5 `AllAsked` | Nothing is written or counted before each address has answered, or failed to. Nothing is written where fewer than q answer. | two holders | 27,277 (16) |
//! | I5 `Twice` | It is decided on what two rounds of reading have shown alike, the second begun after the first had ended. A marker is written only over the one that was read. | a living member is put out for a node that is no more | 29,713 (14) |
//! | I6 `Foreign` | An admitted node is foreign when its marker names another list, and more identities that no address shows than there are addresses that are silent or without a marker. While one is, nothing is written and nothing counts, but where q sealed members name each other: to those it is a node without a vote. | two fleets go on, although both have met the shared node | 7,557 (12) |
//! | I7 `WatchedAfter` | A node's watch begins when its nomination stands in the roster of *every* member that answers. Where there is no member, q nodes without a marker must answer: a new fleet. | two holders: an address led elsewhere, and what was there is alive | 48,682 (14) |
//! | I7 `ReadAgain` | When the watch is over all is read again, and each member's roster must be the one that was read when it began, by a stamp that each change renews; else it begins anew. The admission acts no later than max_ttl after that (N2). | the same | 36,574 (19) |
//! | I8 `SameList` | Only a program whose list a marker names may change the roster in it. A majority that shows its identities does not make up for that. | a living member is put out by another list | 25 (2) |
//! | I8 `Nominated` | Only a nomination takes the place of another identity: that which the address had, when no address shows it any more. An admitted node fills a `?`, and no more. | two holders: an address led elsewhere | 26,880 (15) |
//! | I8 `Reserved` | Programs of a complete fleet write their list into the nomination of a node that has lost its memory, at once; programs of another list then leave it alone, and an admission compares it. | another fleet admits it | 5,148 (13) |
//! | I9 `Closed` | A member that cannot come to name those it must agree with loses its marker, and is nominated and watched like a lost one. Where q members name each other, that is each one that contradicts them. Where they do not, of two it is the one that does not name the other but is named by it; if neither does, the one with the larger identity. | stuck: losses of memory while a node was down leave rosters of two generations | 1,293 (7) |
//! | I10 `Renamed` | A program whose addresses show all identities that a marker names writes its own list into it, and the roster in that order: once for each node while it runs. | after a change of the addresses alone, a node that loses its memory stays out | a run |
//! | I11 `Sealed` | Who sees all N members name each other seals each marker; and a node is admitted sealed where a member is. | stuck: one node that another fleet has got hold of stops a complete one | 165 (4) |
//! | I12 `Compared` | A vote names the marker that it was asked of, and every new connection reads it anew; votes of the identity before are void. | two holders | 206 (9) |
//!
//! What an admission writes: the roster of a member, or in a new fleet the nominations of all that answer. It fills in nothing
//! else. Filling (I8) is done to each member by each program that finds something missing.
//!
//! # Where this differs from what was proposed
//! - *A majority that shows identities may give a place to an empty node*: then {a,b,d} puts c out of {a,b,c}, and c is well. The
//!   list must be the same, always, and not only where the majority is empty. Hence I10, without which it could not be changed.
//! - *The watch before admission* is not enough where an address has come to lead elsewhere: the node that was there votes on,
//!   with members that have not heard of the other. Hence names come first (I7), and are what is watched.
//! - *`?` may stay*: while c is not admitted by either, {a,b} and {d,e} are both majorities. Hence I4.
//! - *A foreign node is refused*: where the fleet is not complete, that is too little, and the program is; where it is, one
//!   wrong address must not stop all others. Hence `sealed`.
//! - A list that is new may admit a node that lost its memory before the running fleet does (A19). Hence the reservation.
//! - Decisions on what was read at different times put out living nodes. Hence two rounds.
//!
//! # What an operator sees
//! - A foreign node: `NODE belongs to another fleet: it names X and Y, which none of the addresses here shows`, with the remedy
//!   `configure all programs with the same nodes, or stop all and run doctor --reconfigure`. Refused: the program, or where its
//!   fleet is complete, the node.
//! - `NODE is reserved for another fleet`: the same remedy.
//! - `NODE lost its memory, and the fleet knows its nodes by other addresses`: start one program with the addresses of before, or
//!   bring all nodes up once under the new ones (I10), or `doctor --reconfigure`.
//! - `A and B lead to the same node`: neither or one of them votes (I3).
//! - `NODE answers and is not admitted: a fleet that was never complete waits for it`: wait, repair it, or stop it (I4).
//! - `NODE was closed: it names other nodes than the fleet` at warning (I9). Again and again means that two programs find
//!   different nodes at one address.
//!
//! `doctor` shows for each node its identity, whether the roster has it, whether its list is the one configured, and `sealed`.
//! `doctor --reconfigure` refuses as today while something is held or runs. It wants all nodes to answer: one that does not would
//! come back as another fleet's. Then it takes marker, identity and reservation from each, and leaves `closed max_ttl=` with the
//! longest limit that it found. After that all are new, and watched (I7).
//!
//! # What cannot be promised
//! - Two fleets that come up while a node that they share is silent both have a majority
//!   (`a_shared_node_that_is_silent_keeps_nobody_apart`). When it is back and admitted by one of them, the other is refused
//!   (`i6_a_shared_node_that_is_back_ends_one_of_two_fleets`).
//! - The same where the shared node loses its memory before the fleet that has it is sealed, or while none of that fleet's
//!   programs runs to reserve it.
//! - A fleet whose addresses were changed, and a node of which lost its memory before all had been seen under the new ones,
//!   comes up with the others, but without that node.
//! - Where an address leads to different nodes for two programs that go on running, each takes the place for its own: it is safe,
//!   and neither node stays. (Here a node is closed twice at most in those scenes.)
//!
//! # What is not in it
//! - Nodes that come back with their memory, or an older one: they keep `id`, and are watched and admitted as today, with what
//!   stands in the marker. A copy of a node's memory on another node shows its identity twice, or in the wrong place: it has no
//!   vote (I3), and stays without one until its memory is taken.
//! - Messages that are late: every write compares, and an admission is bound by N2, which is argued (I7) and not searched.
//! - Programs that start again: one that has not looked yet stands for them. Where it is asked whether all come up, that is a
//!   new program, alone, with all nodes up or any one of three down.
//! - Lists of different lengths, and what else the marker must have in common: [`super::fleets`].
//! - Two lists under one name, which would be a collision of hashes, or addresses that name other hosts elsewhere.
//! - That each program of a complete fleet looks at least once within a watch is assumed (I8 `Reserved`).
//! - The order of a list plays no part: addresses are sorted.
//!
//! The larger bounds take a minute: `cargo test --test model2 -- roster --ignored`.

use std::{cell::RefCell, collections::HashSet};

use crate::shared::{Machine, Packed, expect_breaks, expect_holds};

const LIMIT: usize = 10_000_000;
/// Two lists of five that share one.
const NODES: usize = 9;
/// The longest list.
const MOST: usize = 5;
const CLIENTS: usize = 2;
/// A watch during which a marker was changed, which is noticed with the next look.
const SPOILT: u8 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    I3Mutual,
    I3Distinct,
    I4Complete,
    I4AllAgree,
    I5AllAsked,
    I5Twice,
    I6Foreign,
    I7WatchedAfter,
    I7ReadAgain,
    I8SameList,
    I8Reserved,
    I8Nominated,
    I9Closed,
    I10Renamed,
    I11Sealed,
    I12Compared,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Kind {
    /// Not asked yet.
    #[default]
    Unknown,
    Silent,
    /// Without a marker: its nomination is what will be its identity.
    Nominated,
    Admitted,
    /// Nominated by another, complete fleet.
    Reserved,
}

/// What a node shows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Shown {
    kind: Kind,
    id: u8,
    /// In the order of the list that is named beside it; 0 for a node that was not met.
    roster: [u8; MOST],
    list: u8,
    sealed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Node {
    shown: Shown,
    down: bool,
    /// Whose record stands here, a client's number plus one.
    own: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Client {
    seen: [Shown; MOST],
    /// 0 while it is not watched; else 1, and a bit for each client whose votes are from before.
    watch: [u8; MOST],
    got: u8,
    holds: bool,
    /// Has seen its fleet complete, or the rest of it silent.
    ready: bool,
    /// Markers that it has written its own list into.
    renamed: u8,
    /// How often its last address came to lead elsewhere, and back.
    moved: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct World {
    nodes: [Node; NODES],
    clients: [Client; CLIENTS],
    losses: u8,
    falls: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct List {
    /// Where its addresses lead, in the order of their names.
    nodes: &'static [u8],
    /// Stands for the hash of the addresses.
    name: u8,
    /// Nodes that it cannot reach.
    deaf: u16,
    /// Its last address may come to lead there.
    moves: Option<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Scene {
    without: Option<Rule>,
    lists: [List; CLIENTS],
    /// The first list is a complete fleet at the start.
    established: bool,
    losses: u8,
    falls: u8,
    moves: u8,
    /// Two programs find different nodes at one address.
    fights: bool,
    /// Lists whose programs must come up from every state, with any minority of nodes down.
    comes_up: u8,
    /// Of those, the ones that need no more than a majority of their nodes for it.
    of_most: u8,
    /// No living member of a complete fleet may be put out.
    keeps: bool,
    /// Nobody votes: it is asked who may go on.
    apart: bool,
    /// All programs run: what takes a watch is not quicker than they look.
    prompt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Looks(u8, u8),
    Edits(u8, u8),
    Asks(u8, u8),
    Wins(u8),
    Ends(u8),
    Loses(u8),
    Falls(u8),
    Rises(u8),
    Moves(u8),
}

/// What a client makes of all that it has seen.
struct Picture {
    seen: [Shown; MOST],
    nodes: usize,
    /// Addresses, a bit each.
    silent: u8,
    nominated: u8,
    reserved: u8,
    ours: u8,
    foreign: u8,
    /// The most of ours that all name each other.
    core: u8,
    settled: bool,
}

fn names(shown: &Shown, id: u8) -> bool {
    shown.roster.contains(&id)
}

fn mutual(a: &Shown, b: &Shown) -> bool {
    names(a, b.id) && names(b, a.id)
}

fn bits(mask: u8) -> impl Iterator<Item = usize> {
    (0..MOST).filter(move |i| mask >> i & 1 != 0)
}

// === impl Picture ===

impl Picture {
    fn shows(&self, id: u8) -> bool {
        self.seen.iter().any(|s| s.id == id)
    }

    fn aliens(&self, shown: &Shown) -> usize {
        let named = shown.roster[..self.nodes].iter();
        named.filter(|id| **id != 0 && !self.shows(**id)).count()
    }

    fn quorum(&self) -> usize {
        self.nodes / 2 + 1
    }

    fn all_mutual(&self, mask: u8) -> bool {
        bits(mask).all(|a| bits(mask).all(|b| mutual(&self.seen[a], &self.seen[b])))
    }

    /// Whether anything may be written at all.
    fn acts(&self) -> bool {
        let answered = self.nodes - self.silent.count_ones() as usize;
        answered >= self.quorum() && (self.foreign | self.reserved == 0 || self.settled)
    }

    fn has_room(&self, shown: &Shown) -> bool {
        shown.roster[..self.nodes].contains(&0)
    }
}

// === impl Scene ===

impl Scene {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    const fn without(self, rule: Rule) -> Self {
        Self {
            without: Some(rule),
            ..self
        }
    }

    /// Identities differ by node and by how often it has lost its memory.
    fn next_id(&self, id: u8) -> u8 {
        id + NODES as u8
    }

    fn route(&self, w: &World, c: usize, a: usize) -> usize {
        let list = &self.lists[c];
        let last = a + 1 == list.nodes.len();
        match list.moves {
            Some(to) if last && w.clients[c].moved % 2 == 1 => usize::from(to),
            _ => usize::from(list.nodes[a]),
        }
    }

    fn look(&self, w: &World, c: usize, a: usize) -> Shown {
        let i = self.route(w, c, a);
        if w.nodes[i].down || self.lists[c].deaf >> i & 1 != 0 {
            return Shown {
                kind: Kind::Silent,
                ..Shown::default()
            };
        }
        w.nodes[i].shown
    }

    fn picture(&self, client: &Client, list: &List) -> Option<Picture> {
        let nodes = list.nodes.len();
        let mut p = Picture {
            seen: client.seen,
            nodes,
            silent: 0,
            nominated: 0,
            reserved: 0,
            ours: 0,
            foreign: 0,
            core: 0,
            settled: false,
        };
        let unknown = p.seen[..nodes].iter().any(|s| s.kind == Kind::Unknown);
        if unknown && self.has(Rule::I5AllAsked) {
            return None;
        }
        for a in 0..nodes {
            let s = &client.seen[a];
            let twin = s.id != 0 && (0..nodes).any(|b| b != a && client.seen[b].id == s.id);
            let right = s.kind == Kind::Admitted && s.list == list.name && s.roster[a] == s.id;
            if twin && !right && self.has(Rule::I3Distinct) {
                p.seen[a] = Shown {
                    kind: Kind::Silent,
                    ..Shown::default()
                };
            }
        }
        for a in 0..nodes {
            let s = &p.seen[a];
            if s.kind == Kind::Nominated && s.sealed && s.list != list.name {
                // Another fleet is about to admit it.
                p.seen[a].kind = Kind::Reserved;
                p.reserved |= 1 << a;
            }
            match p.seen[a].kind {
                Kind::Unknown | Kind::Silent => p.silent |= 1 << a,
                Kind::Nominated => p.nominated |= 1 << a,
                Kind::Reserved | Kind::Admitted => {}
            }
        }
        for a in 0..nodes {
            let s = p.seen[a];
            if s.kind == Kind::Admitted {
                let unknown = (p.silent | p.nominated | p.reserved).count_ones() as usize;
                let kin = p.aliens(&s) <= unknown;
                if s.list == list.name || kin || !self.has(Rule::I6Foreign) {
                    p.ours |= 1 << a;
                } else {
                    p.foreign |= 1 << a;
                }
            }
        }
        for mask in 0..1_u8 << nodes {
            let larger = mask.count_ones() > p.core.count_ones();
            if mask & !p.ours == 0 && larger && p.all_mutual(mask) {
                p.core = mask;
            }
        }
        p.settled = p.core.count_ones() as usize >= p.quorum()
            && bits(p.core).any(|a| p.seen[a].sealed)
            && self.has(Rule::I11Sealed);
        Some(p)
    }

    fn is_watchable(&self, p: &Picture, a: usize) -> bool {
        if p.seen[a].kind != Kind::Nominated || !p.acts() {
            return false;
        }
        if p.ours == 0 {
            return p.nominated.count_ones() as usize >= p.quorum();
        }
        let named = bits(p.ours).all(|v| names(&p.seen[v], p.seen[a].id));
        named || !self.has(Rule::I7WatchedAfter)
    }

    /// What this client would write to the node at that address.
    fn plan(&self, client: &Client, list: &List, a: usize) -> Option<Shown> {
        let p = self.picture(client, list)?;
        if !p.acts() {
            return None;
        }
        let s = p.seen[a];
        match s.kind {
            Kind::Unknown | Kind::Silent | Kind::Reserved => None,
            Kind::Nominated => {
                let named = bits(p.core).any(|v| p.seen[v].list == list.name);
                if p.settled && named && !s.sealed && self.has(Rule::I8Reserved) {
                    return Some(Shown {
                        list: list.name,
                        sealed: true,
                        ..s
                    });
                }
                self.admit(client, list, &p, a)
            }
            Kind::Admitted if p.ours >> a & 1 == 0 => None,
            Kind::Admitted => {
                let majority = p.core.count_ones() as usize >= p.quorum();
                let lent = !self.has(Rule::I8SameList) && majority && p.core >> a & 1 != 0;
                if s.list == list.name || lent {
                    self.correct(&p, a)
                } else if client.renamed >> a & 1 == 0 && p.aliens(&s) == 0 {
                    if !self.has(Rule::I10Renamed) {
                        return None;
                    }
                    let mut roster = [0; MOST];
                    for (i, id) in roster.iter_mut().enumerate() {
                        *id = if p.seen[i].id != 0 && names(&s, p.seen[i].id) {
                            p.seen[i].id
                        } else {
                            0
                        };
                    }
                    Some(Shown {
                        roster,
                        list: list.name,
                        ..s
                    })
                } else {
                    None
                }
            }
        }
    }

    fn admit(&self, client: &Client, list: &List, p: &Picture, a: usize) -> Option<Shown> {
        if client.watch[a] != self.over() || !self.is_watchable(p, a) {
            return None;
        }
        let s = p.seen[a];
        let Some(first) = bits(p.core).next() else {
            let mut roster = [0; MOST];
            for (id, shown) in roster.iter_mut().zip(&p.seen) {
                *id = shown.id;
            }
            return Some(Shown {
                kind: Kind::Admitted,
                id: s.id,
                roster,
                list: list.name,
                sealed: false,
            });
        };
        if !bits(p.ours).all(|v| names(&p.seen[v], s.id)) {
            return None;
        }
        Some(Shown {
            kind: Kind::Admitted,
            id: s.id,
            sealed: bits(p.ours).any(|v| p.seen[v].sealed),
            ..p.seen[first]
        })
    }

    /// Whether this node of ours names other nodes than those it must agree with.
    fn is_to_close(&self, p: &Picture, a: usize) -> bool {
        let s = &p.seen[a];
        let lacks = |x: &Shown, y: &Shown| !names(x, y.id) && !p.has_room(x);
        if p.core.count_ones() as usize >= p.quorum() {
            let mut core = bits(p.core).map(|r| &p.seen[r]);
            return p.core >> a & 1 == 0 && core.any(|r| lacks(s, r) || lacks(r, s));
        }
        // Of two the one that is behind: the other was admitted when it stood there already.
        bits(p.ours)
            .map(|r| &p.seen[r])
            .any(|r| match (lacks(s, r), lacks(r, s)) {
                (true, true) => s.id > r.id,
                (true, false) => names(r, s.id),
                (false, _) => false,
            })
    }

    /// The marker of a node of ours as it should be.
    fn correct(&self, p: &Picture, a: usize) -> Option<Shown> {
        let s = p.seen[a];
        if self.has(Rule::I9Closed) && self.is_to_close(p, a) {
            return Some(Shown {
                kind: Kind::Nominated,
                id: self.next_id(s.id),
                ..Shown::default()
            });
        }
        let mut next = s;
        for b in 0..p.nodes {
            let other = &p.seen[b];
            let known = p.nominated >> b & 1 != 0 || p.ours >> b & 1 != 0;
            if !known || names(&next, other.id) {
                continue;
            }
            let room = (0..p.nodes).find(|i| next.roster[*i] == 0);
            let replaces = p.nominated >> b & 1 != 0 || !self.has(Rule::I8Nominated);
            let place = if next.roster[b] == 0 || replaces && !p.shows(next.roster[b]) {
                Some(b)
            } else if room.is_some() {
                room
            } else if replaces && p.silent == 0 {
                (0..p.nodes).find(|i| !p.shows(next.roster[*i]))
            } else {
                None
            };
            if let Some(place) = place {
                next.roster[place] = other.id;
            }
        }
        let all = (1_u8 << p.nodes) - 1;
        if p.core == all && !p.has_room(&next) && self.has(Rule::I11Sealed) {
            next.sealed = true;
        }
        (next != s).then_some(next)
    }

    fn counts(&self, client: &Client, list: &List, votes: u8) -> bool {
        let Some(p) = self.picture(client, list) else {
            return false;
        };
        let may = p.settled || client.ready && p.foreign == 0;
        let agreed = p.all_mutual(votes) || !self.has(Rule::I3Mutual);
        may && agreed && votes & !p.ours == 0
    }

    /// A client's picture has changed.
    fn reconsider(&self, t: &mut World, c: usize) {
        let active = (0..CLIENTS).filter(|c| t.clients[*c].got != 0);
        let active = active.fold(0_u8, |mask, c| mask | 2 << c);
        let list = &self.lists[c];
        // What it takes the markers to be, although they were changed since: the stamps will tell.
        let now: [Shown; MOST] = std::array::from_fn(|a| match a < list.nodes.len() {
            true => self.look(t, c, a),
            false => Shown::default(),
        });
        let client = &mut t.clients[c];
        let Some(p) = self.picture(client, list) else {
            client.watch = [0; MOST];
            return;
        };
        for a in 0..p.nodes {
            if !self.is_watchable(&p, a) {
                client.watch[a] = 0;
            } else if client.watch[a] == 0 {
                let id = p.seen[a].id;
                let stale = bits(p.ours).any(|v| names(&p.seen[v], id) && !names(&now[v], id));
                client.watch[a] = match stale && self.has(Rule::I7ReadAgain) {
                    true => SPOILT,
                    false => 1 | active,
                };
            }
        }
        let majority = p.core.count_ones() as usize >= p.quorum();
        let complete = p.nominated | p.reserved == 0 || !self.has(Rule::I4Complete);
        let agreed = p.core == p.ours || !self.has(Rule::I4AllAgree);
        client.ready |= majority && complete && agreed && p.foreign == 0;
    }

    /// A watch that is over: all has been read again after it.
    fn over(&self) -> u8 {
        if self.has(Rule::I7ReadAgain) { 8 } else { 1 }
    }

    fn is_whole(&self) -> bool {
        self.has(Rule::I5Twice) && self.has(Rule::I5AllAsked)
    }

    fn looks(&self, t: &mut World, c: usize, a: usize) {
        for watch in t.clients[c].watch.iter_mut().filter(|w| **w == SPOILT) {
            *watch = 0;
        }
        let watched = t.clients[c].watch;
        if self.is_whole() {
            for a in 0..self.lists[c].nodes.len() {
                self.looks_at(t, c, a);
            }
        } else {
            self.looks_at(t, c, a);
        }
        self.reconsider(t, c);
        for (watch, before) in t.clients[c].watch.iter_mut().zip(watched) {
            if *watch == 1 && before == 1 {
                *watch = self.over();
            }
        }
    }

    fn looks_at(&self, t: &mut World, c: usize, a: usize) {
        let shown = self.look(t, c, a);
        if t.clients[c].seen[a].id != shown.id {
            t.clients[c].watch[a] = 0;
            if !t.clients[c].holds {
                // A vote is one of the identity that gave it.
                t.clients[c].got &= !(1 << a);
            }
        }
        t.clients[c].seen[a] = shown;
    }

    fn may_edit(&self, w: &World, c: usize, a: usize) -> Option<Shown> {
        let client = &w.clients[c];
        let current = self.look(w, c, a);
        if client.seen[a] != current {
            return None;
        }
        let next = self.plan(client, &self.lists[c], a)?;
        let admits = current.kind == Kind::Nominated && next.kind == Kind::Admitted;
        if admits && self.prompt && self.would_reserve(w, 1 - c, self.route(w, c, a)) {
            return None;
        }
        Some(next)
    }

    /// Whether that client, had it looked during the watch, would have reserved the node.
    fn would_reserve(&self, w: &World, c: usize, i: usize) -> bool {
        let mut t = *w;
        let nodes = self.lists[c].nodes.len();
        for a in 0..nodes {
            self.looks_at(&mut t, c, a);
        }
        (0..nodes).filter(|a| self.route(w, c, *a) == i).any(|a| {
            let next = self.plan(&t.clients[c], &self.lists[c], a);
            next.is_some_and(|next| next.kind == Kind::Nominated && next.sealed)
        })
    }

    /// Whether this change of a marker puts out a living member.
    fn puts_out(&self, t: &World, c: usize, a: usize, next: &Shown) -> bool {
        let before = t.nodes[self.route(t, c, a)].shown;
        let gone = before.roster.iter().any(|id| {
            let living = t
                .nodes
                .iter()
                .any(|n| n.shown.id == *id && n.shown.kind == Kind::Admitted && n.shown.sealed);
            *id != 0 && living && !names(next, *id)
        });
        gone && before.sealed && self.keeps && next.kind == Kind::Admitted
    }

    fn edits(&self, t: &mut World, c: usize, a: usize, next: Shown) {
        let i = self.route(t, c, a);
        let before = t.nodes[i].shown;
        if before.kind == Kind::Admitted && next.kind == Kind::Nominated {
            t.nodes[i].own = 0;
        }
        if before.list != next.list && before.kind == Kind::Admitted {
            t.clients[c].renamed |= 1 << a;
        }
        t.nodes[i].shown = next;
        for client in &mut t.clients {
            for (seen, watch) in client.seen.iter().zip(&mut client.watch) {
                let unnamed = names(&before, seen.id) && !names(&next, seen.id);
                if *watch != 0 && unnamed && self.has(Rule::I7ReadAgain) {
                    *watch = SPOILT;
                }
            }
        }
        self.looks_at(t, c, a);
        self.reconsider(t, c);
    }

    fn may_ask(&self, w: &World, c: usize, a: usize) -> bool {
        let (client, list) = (&w.clients[c], &self.lists[c]);
        let i = self.route(w, c, a);
        let current = self.look(w, c, a);
        let known = client.seen[a] == current || !self.has(Rule::I12Compared);
        let free = w.nodes[i].own == 0 || w.nodes[i].own == c as u8 + 1;
        let enough = client.got.count_ones() as usize > list.nodes.len() / 2;
        known
            && current.kind == Kind::Admitted
            && free
            && !client.holds
            && !enough
            && client.got >> a & 1 == 0
            && self.counts(client, list, 1 << a)
    }

    fn rests(t: &mut World, c: usize) {
        (t.clients[c].got, t.clients[c].holds) = (0, false);
        for n in t.nodes.iter_mut().filter(|n| n.own == c as u8 + 1) {
            n.own = 0;
        }
        for client in &mut t.clients {
            for watch in &mut client.watch {
                *watch &= !(2 << c);
            }
        }
    }

    /// Whether two fleets have majorities, although their programs have seen all nodes as they are, and admitted.
    fn both_go_on(&self, w: &World) -> bool {
        (0..CLIENTS).all(|c| {
            let (client, list) = (&w.clients[c], &self.lists[c]);
            let seen = (0..list.nodes.len()).all(|a| {
                let shown = self.look(w, c, a);
                client.seen[a] == shown && shown.kind == Kind::Admitted
            });
            let majority = self.picture(client, list).map(|p| p.core);
            seen && majority.is_some_and(|core| {
                core.count_ones() as usize > list.nodes.len() / 2 && self.counts(client, list, core)
            })
        })
    }

    /// What becomes of the nodes with a new program of that list alone, while those nodes are down.
    fn alone(&self, w: &World, c: usize, down: u16) -> World {
        let mut t = *w;
        for (i, n) in t.nodes.iter_mut().enumerate() {
            n.down = down >> i & 1 != 0;
            n.own = 0;
        }
        t.clients = [Client::default(); CLIENTS];
        let nodes = self.lists[c].nodes.len();
        for _ in 0..12 {
            for a in 0..nodes {
                self.looks(&mut t, c, a);
            }
            for a in 0..nodes {
                if let Some(next) = self.may_edit(&t, c, a) {
                    self.edits(&mut t, c, a, next);
                }
            }
        }
        t
    }

    /// Whether it comes up.
    fn comes_up(&self, w: &World, c: usize, down: u16) -> bool {
        let t = self.alone(w, c, down);
        let client = &t.clients[c];
        let Some(p) = self.picture(client, &self.lists[c]) else {
            return false;
        };
        p.core.count_ones() as usize >= p.quorum() && self.counts(client, &self.lists[c], p.core)
    }
}

/// The scene, and which memories of the nodes were found to let every fleet come up.
struct Searched {
    scene: Scene,
    seen: RefCell<HashSet<u64>>,
}

fn pack(p: &mut Packed, s: &Shown) {
    p.put(s.kind as u8, 3).put(s.id, 6).put(s.list, 2);
    p.put(s.sealed.into(), 1);
    for id in s.roster {
        p.put(id, 6);
    }
}

fn pack_client(c: &Client, swapped: bool) -> Packed {
    let mut p = Packed::default();
    for s in &c.seen {
        pack(&mut p, s);
    }
    for watch in c.watch {
        let turned = watch & 25 | watch << 1 & 4 | watch >> 1 & 2;
        p.put(if swapped { turned } else { watch }, 5);
    }
    p.put(c.got, 5).put(c.renamed, 5);
    p.put(c.holds.into(), 1).put(c.ready.into(), 1);
    p.put(c.moved, 2);
    p
}

impl Machine for Searched {
    type State = World;
    type Step = Step;

    fn start(&self) -> World {
        let mut start = World::default();
        for (i, n) in start.nodes.iter_mut().enumerate() {
            n.shown.kind = Kind::Nominated;
            n.shown.id = i as u8 + 1;
        }
        if self.scene.established {
            let list = &self.scene.lists[0];
            let mut roster = [0; MOST];
            for (id, i) in roster.iter_mut().zip(list.nodes) {
                *id = i + 1;
            }
            for i in list.nodes {
                let shown = &mut start.nodes[usize::from(*i)].shown;
                shown.kind = Kind::Admitted;
                shown.sealed = self.scene.has(Rule::I11Sealed);
                (shown.roster, shown.list) = (roster, list.name);
            }
        }
        start
    }

    fn steps(&self, w: &World, out: &mut Vec<Step>) {
        out.clear();
        let scene = &self.scene;
        for i in 0..NODES as u8 {
            let used = scene.lists.iter().any(|l| l.nodes.contains(&i));
            let node = &w.nodes[usize::from(i)];
            if used && w.losses < scene.losses && !node.down {
                out.push(Step::Loses(i));
            }
            if used && w.falls < scene.falls && !node.down {
                out.push(Step::Falls(i));
            }
            if node.down {
                out.push(Step::Rises(i));
            }
        }
        for (c, list) in scene.lists.iter().enumerate() {
            let (client, me) = (&w.clients[c], c as u8);
            for a in 0..list.nodes.len() {
                let (at, current) = (a as u8, scene.look(w, c, a));
                if client.seen[a] != current
                    || client.watch[a] == 1 && scene.over() != 1
                    || client.watch[a] == SPOILT
                {
                    let whole = Step::Looks(me, 0);
                    if !scene.is_whole() {
                        out.push(Step::Looks(me, at));
                    } else if !out.contains(&whole) {
                        out.push(whole);
                    }
                }
                if scene.may_edit(w, c, a).is_some() {
                    out.push(Step::Edits(me, at));
                }
                if !scene.apart && scene.may_ask(w, c, a) {
                    out.push(Step::Asks(me, at));
                }
            }
            let enough = client.got.count_ones() as usize > list.nodes.len() / 2;
            if enough && !client.holds && scene.counts(client, list, client.got) {
                out.push(Step::Wins(me));
            }
            if client.got != 0 || w.nodes.iter().any(|n| n.own == me + 1) {
                out.push(Step::Ends(me));
            }
            if list.moves.is_some() && client.moved < scene.moves {
                out.push(Step::Moves(me));
            }
        }
    }

    fn act(&self, w: &World, step: Step) -> Result<World, &'static str> {
        let mut t = *w;
        let scene = &self.scene;
        match step {
            Step::Looks(c, a) => scene.looks(&mut t, c.into(), a.into()),
            Step::Edits(c, a) => {
                if let Some(next) = scene.may_edit(w, c.into(), a.into()) {
                    if scene.puts_out(w, c.into(), a.into(), &next) {
                        return Err("a living member is put out");
                    }
                    if next.id > if scene.fights { 2 } else { 5 } * NODES as u8 {
                        if scene.fights {
                            return Ok(*w);
                        }
                        return Err("closed again and again");
                    }
                    scene.edits(&mut t, c.into(), a.into(), next);
                }
            }
            Step::Asks(c, a) => {
                let i = scene.route(w, c.into(), a.into());
                t.nodes[i].own = c + 1;
                t.clients[usize::from(c)].got |= 1 << a;
            }
            Step::Wins(c) => {
                t.clients[usize::from(c)].holds = true;
                if t.clients.iter().all(|client| client.holds) {
                    return Err("two holders");
                }
            }
            Step::Ends(c) => Scene::rests(&mut t, c.into()),
            Step::Loses(i) => {
                let node = &mut t.nodes[usize::from(i)];
                node.own = 0;
                node.shown = Shown {
                    kind: Kind::Nominated,
                    id: scene.next_id(node.shown.id),
                    ..Shown::default()
                };
                t.losses += 1;
            }
            Step::Falls(i) => {
                t.nodes[usize::from(i)].down = true;
                t.falls += 1;
            }
            Step::Rises(i) => t.nodes[usize::from(i)].down = false,
            Step::Moves(c) => {
                let list = &scene.lists[usize::from(c)];
                let client = &mut t.clients[usize::from(c)];
                client.moved += 1;
                if scene.has(Rule::I12Compared) {
                    client.seen[list.nodes.len() - 1] = Shown::default();
                    scene.reconsider(&mut t, c.into());
                }
            }
        }
        Ok(t)
    }

    fn check(&self, w: &World) -> Option<&'static str> {
        if self.scene.apart && self.scene.both_go_on(w) {
            return Some("both go on");
        }
        if self.scene.comes_up == 0 {
            return None;
        }
        let mut p = Packed::default();
        for n in &w.nodes {
            pack(&mut p, &n.shown);
        }
        if !self.seen.borrow_mut().insert(p.hash()) {
            return None;
        }
        for (c, list) in self.scene.lists.iter().enumerate() {
            if self.scene.comes_up >> c & 1 == 0 {
                continue;
            }
            if !self.scene.comes_up(w, c, 0) {
                return Some("stuck");
            }
            if list.nodes.len() > 2 && self.scene.of_most >> c & 1 != 0 {
                for i in list.nodes {
                    if !self.scene.comes_up(w, c, 1 << i) {
                        return Some("stuck while a node is down");
                    }
                }
            }
        }
        None
    }

    fn name(&self, w: &World) -> u64 {
        let alike = self.scene.lists[0] == self.scene.lists[1];
        let named = |swapped: bool| {
            let mut p = Packed::default();
            for n in &w.nodes {
                pack(&mut p, &n.shown);
                let own = if swapped { (3 - n.own) % 3 } else { n.own };
                p.put(n.down.into(), 1).put(own, 2);
            }
            p.put(w.losses, 2).put(w.falls, 2);
            for c in 0..CLIENTS {
                let c = if swapped { 1 - c } else { c };
                p.put_wide(pack_client(&w.clients[c], swapped).hash());
            }
            p.hash()
        };
        if alike {
            named(false).min(named(true))
        } else {
            named(false)
        }
    }

    fn say(&self, before: &World, after: &World, step: Step) -> String {
        match step {
            Step::Edits(c, a) => {
                let i = self.scene.route(before, c.into(), a.into());
                let s = after.nodes[i].shown;
                let seal = if s.sealed { ", sealed" } else { "" };
                format!(
                    "client {c} writes to node {i}: {:?} {} of {:?} by list {}{seal}",
                    s.kind, s.id, s.roster, s.list
                )
            }
            Step::Looks(c, _) if self.scene.is_whole() => {
                let seen = after.clients[usize::from(c)].seen.map(|s| (s.kind, s.id));
                format!("client {c} looks: {seen:?}")
            }
            Step::Looks(c, a) => {
                let i = self.scene.route(before, c.into(), a.into());
                let s = after.clients[usize::from(c)].seen[usize::from(a)];
                format!("client {c} looks at node {i}: {:?} {}", s.kind, s.id)
            }
            Step::Wins(c) => format!("client {c} HOLDS"),
            step => format!("{step:?}"),
        }
    }
}

// === scenes ===

const THREE: List = List {
    nodes: &[0, 1, 2],
    name: 1,
    deaf: 0,
    moves: None,
};

const ALIKE: Scene = Scene {
    without: None,
    lists: [THREE; CLIENTS],
    established: false,
    losses: 0,
    falls: 0,
    moves: 1,
    fights: false,
    comes_up: 0b11,
    of_most: 0b11,
    keeps: true,
    apart: false,
    prompt: true,
};

const fn beside(nodes: &'static [u8]) -> Scene {
    Scene {
        lists: [
            THREE,
            List {
                nodes,
                name: 2,
                ..THREE
            },
        ],
        comes_up: 0,
        ..ALIKE
    }
}

const SHIFTED: Scene = beside(&[2, 3, 4]);
const REPLACED: Scene = beside(&[0, 1, 3]);
const RENAMED: Scene = Scene {
    comes_up: 0b11,
    ..beside(&[2, 0, 1])
};

/// A new fleet, and one that is complete.
const fn established(scene: Scene) -> Scene {
    Scene {
        established: true,
        ..scene
    }
}

const fn lost(scene: Scene) -> Scene {
    Scene { losses: 1, ..scene }
}

/// The fleet that is complete comes up whatever the other does.
const fn kept(scene: Scene) -> Scene {
    Scene {
        comes_up: 1,
        of_most: 1,
        ..lost(established(scene))
    }
}

/// The last address of the second program comes to lead there.
fn led_to(node: u8) -> Scene {
    let mut scene = Scene {
        keeps: false,
        comes_up: 0,
        fights: true,
        ..established(ALIKE)
    };
    scene.lists[1].moves = Some(node);
    scene
}

fn lists(first: &'static [u8], second: &'static [u8]) -> Scene {
    let mut scene = SHIFTED;
    (scene.lists[0].nodes, scene.lists[1].nodes) = (first, second);
    scene
}

fn machine(scene: &Scene) -> Searched {
    Searched {
        scene: *scene,
        seen: RefCell::default(),
    }
}

fn holds(name: &str, scene: &Scene) {
    expect_holds(name, &machine(scene), &[], LIMIT);
}

fn breaks(name: &str, scene: &Scene, promise: &str) {
    expect_breaks(name, &machine(scene), &[], LIMIT, promise);
}

fn needs(rule: Rule, scene: &Scene, promise: &str) {
    breaks(&format!("without {rule:?}"), &scene.without(rule), promise);
}

const TWO: &str = "two holders";
const OUT: &str = "a living member is put out";

#[test]
fn programs_that_are_alike_come_up() {
    holds("alike, new", &ALIKE);
    holds("alike, complete, a loss", &lost(established(ALIKE)));
}

#[test]
#[ignore = "minutes"]
fn programs_that_are_alike_come_up_whatever_is_lost() {
    let falls = |scene| Scene { falls: 1, ..scene };
    holds(
        "alike, complete, a loss and a fall",
        &falls(lost(established(ALIKE))),
    );
    let two = Scene {
        losses: 2,
        ..established(ALIKE)
    };
    holds("alike, complete, two losses", &two);
    holds("alike, new, a loss", &lost(ALIKE));
}

#[test]
fn programs_that_are_alike_come_up_where_each_reaches_others() {
    let mut scene = Scene {
        comes_up: 0,
        ..ALIKE
    };
    scene.lists[0].deaf = 1 << 0;
    scene.lists[1].deaf = 1 << 2;
    holds("each reaches two, new", &scene);
    holds(
        "each reaches two, complete, a loss",
        &lost(established(scene)),
    );
}

#[test]
fn programs_with_one_node_come_up() {
    let mut scene = Scene {
        losses: 2,
        comes_up: 0b11,
        ..lists(&[0], &[0])
    };
    holds("one node, other addresses", &scene);
    scene.lists[1].name = 1;
    holds("one node", &scene);
}

#[test]
fn the_same_nodes_under_other_addresses_are_one_fleet() {
    let few = Scene {
        of_most: 0,
        ..established(RENAMED)
    };
    holds("other addresses, complete", &few);
}

#[test]
#[ignore = "minutes"]
fn the_same_nodes_under_other_addresses_are_one_fleet_whatever_is_lost() {
    holds("other addresses, new", &RENAMED);
    let few = Scene {
        of_most: 0,
        ..lost(established(RENAMED))
    };
    holds("other addresses, complete, a loss", &few);
}

#[test]
fn i10_a_list_may_be_replaced_by_another_one() {
    let heals = |scene: Scene| {
        let (machine, c) = (machine(&scene), 1);
        let mut w = scene.alone(&machine.start(), c, 0);
        w = machine.act(&w, Step::Loses(0)).unwrap();
        let w = scene.alone(&w, c, 0);
        w.nodes[0].shown.kind == Kind::Admitted
    };
    let scene = lost(established(RENAMED));
    assert!(heals(scene));
    assert!(!heals(scene.without(Rule::I10Renamed)));
}

#[test]
fn lists_that_share_a_node_are_two_fleets() {
    holds("{a,b,c} and {c,d,e}, new", &SHIFTED);
    holds("{a,b,c}, then {c,d,e}, a loss", &kept(SHIFTED));
    for rule in [Rule::I4Complete, Rule::I5AllAsked] {
        needs(rule, &SHIFTED, TWO);
    }
    let scene = Scene {
        comes_up: 0,
        ..kept(SHIFTED)
    };
    needs(Rule::I8Reserved, &scene, TWO);
    needs(Rule::I11Sealed, &kept(SHIFTED), "stuck");
}

#[test]
fn lists_that_share_two_nodes_are_two_fleets() {
    holds("{a,b,c} and {a,b,d}, new", &REPLACED);
    holds("{a,b,c}, then {a,b,d}, a loss", &kept(REPLACED));
    needs(Rule::I8SameList, &kept(REPLACED), OUT);
}

const NEW_WITH_A_FALL: Scene = Scene {
    falls: 1,
    ..REPLACED
};

#[test]
fn i4_all_agree() {
    let scene = NEW_WITH_A_FALL.without(Rule::I4AllAgree);
    let prefix = [
        Step::Looks(0, 0),
        Step::Looks(0, 0),
        Step::Edits(0, 2),
        Step::Falls(2),
        Step::Looks(0, 0),
        Step::Rises(2),
        Step::Edits(0, 0),
        Step::Looks(0, 0),
        Step::Looks(1, 0),
        Step::Edits(1, 0),
        Step::Edits(1, 0),
        Step::Looks(1, 0),
    ];
    expect_breaks("without I4AllAgree", &machine(&scene), &prefix, LIMIT, TWO);
}

#[test]
#[ignore = "half a minute"]
fn lists_that_share_two_nodes_are_two_fleets_while_one_is_down() {
    holds("{a,b,c} and {a,b,d}, new, a fall", &NEW_WITH_A_FALL);
}

#[test]
fn five_that_share_one_are_two_fleets() {
    let scene = lists(&[0, 1, 2, 3, 4], &[4, 5, 6, 7, 8]);
    holds("five and five, new", &scene);
    holds("five, then five, a loss", &lost(established(scene)));
}

#[test]
fn what_was_read_at_one_time_is_decided_on() {
    let scene = Scene {
        comes_up: 0,
        ..lost(ALIKE)
    };
    needs(Rule::I5Twice, &scene, OUT);
}

#[test]
fn rosters_of_two_generations_are_led_together() {
    needs(Rule::I9Closed, &lost(ALIKE), "stuck");
}

#[test]
fn an_address_that_leads_elsewhere_has_one_vote() {
    let own = led_to(1);
    holds("led to another member", &own);
    needs(Rule::I3Distinct, &own, TWO);
    needs(Rule::I12Compared, &own, TWO);
}

#[test]
fn an_address_may_come_to_lead_to_a_new_node() {
    let new = led_to(3);
    holds("led to a new node", &new);
    for rule in [
        Rule::I3Mutual,
        Rule::I7WatchedAfter,
        Rule::I7ReadAgain,
        Rule::I8Nominated,
    ] {
        needs(rule, &new, TWO);
    }
}

#[test]
#[ignore = "a minute"]
fn an_address_may_come_to_lead_to_a_new_node_and_back() {
    let back = Scene {
        moves: 2,
        ..led_to(3)
    };
    holds("led to a new node and back", &back);
}

#[test]
fn a_shared_node_that_is_silent_keeps_nobody_apart() {
    let scene = Scene {
        falls: 1,
        ..SHIFTED
    };
    breaks("the shared node is silent", &scene, TWO);
}

#[test]
fn i6_a_shared_node_that_is_back_ends_one_of_two_fleets() {
    let scene = Scene {
        falls: 1,
        apart: true,
        ..SHIFTED
    };
    holds("the shared node is back", &scene);
    needs(Rule::I6Foreign, &scene, "both go on");
}
