//! Who the nodes of a fleet are: what is written on them, and how programs whose lists of addresses differ, or lead elsewhere,
//! are kept apart.
//!
//! A machine of its own: nodes that are new, have lost their memory, or have come back with it, and two programs that look,
//! write and vote. A write compares all that was read at that node, and nothing else. An acquisition is one vote after another; a
//! watch lasts until all votes that it found are over. There are no tokens, ttls, or late votes.
//!
//! # What a node shows
//! - *nominated*: it has no vote and no memory. Its `id` is the nonce of its first nomination, and is lost with its memory. It
//!   may carry the roster that is *proposed* for it.
//! - *admitted*: it has its `id` and the *roster*, and votes.
//! - *returned*: the same, come back with its memory, or with an older one. It has no vote until it is admitted again, under a
//!   new nomination. Both, returned and admitted, are *members*.
//!
//! A roster is `list` (a hash of the addresses of the program that wrote it), the ids of all N nodes in the order of these
//! addresses, a generation, and `before`: the stamp of the roster that it replaced, or nothing. The stamp is a hash of all
//! that, so that two programs that find the same write the same.
//!
//! # What is decided
//! From one look, in which all was true at one time (two rounds of reading that are alike, the second begun after the first had
//! ended). *R* is the roster that q different members, which it names, show alike. *T* is what ought to stand:
//! 1. R, if it is of one's own list. A member that shows a roster whose `before` is R: then that one, the change is begun.
//!    Otherwise R with each node that is new in the place of its address, if no address shows what had this place.
//! 2. There is no R, but a roster that some member shows, and q members that it names show it or the one before: that one.
//! 3. Neither, and all N addresses answer with different nodes, and none is of another list: a *founding*. If all of them show
//!    one roster that names them all, that one. Otherwise every member is closed first, and then their N ids are proposed.
//!
//! Another list's R: nothing is written, votes count.
//!
//! T is written to the nodes that it names: first to the new ones, as a proposal; then to members that show T's `before`; then, when
//! q members show T, to all members. When q members show it, or, while founding, all N nodes, the watch of each nomination in it
//! begins. After the watch all is looked at again; if T still stands so, the node is admitted. A member of one's own list that R does
//! not name is *closed*: it is nominated anew.
//!
//! # The rules
//! Each is switched off in a test, which then finds what the third column says. The last one has the states that were visited,
//! and the steps of the trace.
//!
//! | rule | says | without it | found |
//! | --- | --- | --- | --- |
//! | I1 `Alike` | Votes count together only of q nodes that show one roster, which names them. | two holders | 3,736 (14) |
//! | I1 `Once` | An identity counts once. | two holders: a node votes twice | 200 (9) |
//! | I1 `Compared` | A vote names the identity and the stamp that it was asked of, and the node compares them. | two holders | 229 (9) |
//! | I2 `All` | Where no majority has its memory, all N must answer. | two holders, where a shared node is silent | 29,813 (19) |
//! | I2 `Foreign` | A founding leaves nodes of another list alone, and fails. | two holders | 21,240 (20) |
//! | I2 `Proposed` | What is founded stands on all N nodes before the watch begins, and the admission compares it. | two holders: two lists, or an address that leads elsewhere | 812 (14) |
//! | I3 `SameList` | Only a program of the roster's list writes. | a living member is put out by another list | 88 (3) |
//! | I3 `Gone` | A new node takes the place of its address, and only if no address shows what was there. | a living member is put out | 22 (3) |
//! | I3 `BegunFirst` | A change that was begun is completed before another is. | two holders | 77,693 (15) |
//! | I3 `Completed` | Others complete it, without its author. | stuck while a node is down, although two members are well | 120 (4) |
//! | I4 `OneLook` | It is decided on one look. | two holders, while founding | 3,569,928 (27) |
//! | I4 `FreshFirst` | Members are told of a new node only when it carries the proposal. | two holders: a node that was passed over once is admitted late, when it is named again | 3,454,953 (27) |
//! | I5 `Stands` | The watch begins when T stands. | two holders: an address led elsewhere, and what was there votes on | 6,561 (13) |
//! | I5 `Watched` | A watch lasts until all votes from before it are over. | two holders | 2,768 (14) |
//! | I5 `ReadAgain` | T must still stand when the watch is over. | two holders | 2,884 (14) |
//! | I5 `Nonce` | The watch is one of a nomination, and so is the admission. | two holders: a second node comes back in the middle of the watch | 5,573 (14) |
//! | I6 `Closed` | A member that R does not name is closed. | stuck: a node to which an address leads again stays out | 171 (4) |
//! | I6 `Kept` | A fleet that has R takes a node that it lost back from another list's proposal. | two holders | 2,019 (15) |
//!
//! A write acts whenever it arrives: nothing here needs a bound on its age.
//!
//! # What is promised
//! - One holder among all programs, and no living member is put out of a roster that q members show, by a program that finds
//!   the same nodes at its addresses; except, safely, while it is founded, or after the second of two losses.
//! - With all nodes of a list up, and no other list that has any of them, its fleet comes up with all of them.
//! - With one of three down, it comes up while the other two are members of its list; but if those two show rosters of two changes
//!   that were begun at once, it waits for all (not with one loss of memory).
//!
//! # What is not
//! - Two fleets that share a node may both go on if the complete one loses that node's memory and none of its programs looks, and
//!   writes, for a whole watch (`a_fleet_without_programs_may_lose_its_node_to_another`).
//! - Two lists that overlap and are founded at one time may stop each other: neither comes up, and `doctor --reconfigure` is
//!   wanted.
//! - The same nodes under other addresses are another list: its programs vote, and nothing is repaired until there are programs
//!   with the list of before, or `doctor --reconfigure`.
//! - Two programs for which q or more addresses lead to different nodes are two fleets. Where it is one address, each takes the
//!   place for its own: it is safe, and neither node stays.
//!
//! # What is not in it
//! - A third program; five nodes (but where two lists share one). That a member moves only from T's `before`, or to what q show, is
//!   argued for five: of three, the search needs no such rule.
//! - Lists of different lengths, and what else the marker must have in common: [`super::fleets`].
//! - Two lists under one name, which would be a collision of hashes.
//! - What is merged into a node when it is admitted (G2, G7). In a founding that is what stands on any of the N nodes.
//!
//! The larger bounds take some minutes: `cargo test --test model -- roster --ignored`.

use std::{cell::RefCell, collections::HashSet};

use crate::shared::{Machine, Packed, expect_breaks, expect_holds};

const LIMIT: usize = 10_000_000;
/// Two lists of five that share one.
const NODES: usize = 9;
/// The longest list.
const MOST: usize = 5;
const CLIENTS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    I1Alike,
    I1Once,
    I1Compared,
    I2All,
    I2Foreign,
    I2Proposed,
    I3SameList,
    I3Gone,
    I3BegunFirst,
    I3Completed,
    I4FreshFirst,
    I4OneLook,
    I5Stands,
    I5Watched,
    I5ReadAgain,
    I5Nonce,
    I6Closed,
    I6Kept,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Kind {
    /// Not asked yet.
    #[default]
    Unknown,
    Silent,
    /// Without a vote: its nomination is what will be its identity.
    Nominated,
    /// Has come back with its memory, and has no vote until it is admitted again.
    Returned,
    Admitted,
}

/// The members of a fleet, in the order of the addresses of that list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Roster {
    list: u8,
    /// Rises with each change.
    generation: u8,
    /// The stamp of the one that it replaced.
    before: u32,
    ids: [u8; MOST],
}

/// What a node shows of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Shown {
    kind: Kind,
    id: u8,
    /// New with each nomination.
    nonce: u8,
    /// Nothing, or what is proposed, while it is nominated.
    roster: Roster,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Node {
    shown: Shown,
    down: bool,
    /// Whose record stands here, a client's number plus one.
    own: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Watch {
    on: bool,
    /// Clients that have votes from before it; a bit each.
    votes: u8,
    /// All was read again after it.
    over: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Client {
    seen: [Shown; MOST],
    watch: Watch,
    got: u8,
    holds: bool,
    /// How often its last address came to lead elsewhere, and back.
    moved: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct World {
    nodes: [Node; NODES],
    clients: [Client; CLIENTS],
    losses: u8,
    falls: u8,
    closings: u8,
    returns: u8,
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
    closings: u8,
    returns: u8,
    /// Two programs find different nodes at one address.
    fights: bool,
    /// Lists whose programs must come up from every state.
    comes_up: u8,
    /// Of those, the ones that need no more than q members for it.
    of_most: u8,
    /// No living member is put out.
    keeps: bool,
    /// A complete fleet looks at least once within a watch.
    prompt: bool,
    /// The last generation that is searched.
    generations: u8,
    /// How many identities a node may have.
    lives: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Looks(u8, u8),
    Edits(u8, u8),
    Asks(u8, u8),
    Wins(u8),
    Ends(u8),
    Loses(u8),
    Returns(u8),
    Falls(u8),
    Rises(u8),
    Moves(u8),
    /// All nodes forget: `doctor --reconfigure`.
    Closes,
}

/// What a client makes of all that it has seen.
struct Picture {
    seen: [Shown; MOST],
    nodes: usize,
    list: u8,
    /// What q members show alike.
    present: Option<Roster>,
    /// What ought to stand on all that it names.
    target: Option<Roster>,
    /// It is yet to be founded.
    anew: bool,
}

// === impl Roster ===

impl Roster {
    fn names(&self, id: u8) -> bool {
        id != 0 && self.ids.contains(&id)
    }

    /// What a vote names, and the next roster.
    fn stamp(&self) -> u32 {
        let mut p = Packed::default();
        p.put(self.list, 2).put(self.generation, 5);
        p.put_wide(self.before.into());
        for id in self.ids {
            p.put(id, 6);
        }
        p.hash() as u32
    }

    fn next(&self, ids: [u8; MOST]) -> Self {
        Self {
            list: self.list,
            generation: self.generation + 1,
            before: self.stamp(),
            ids,
        }
    }
}

fn bits(mask: u8) -> impl Iterator<Item = usize> {
    (0..MOST).filter(move |i| mask >> i & 1 != 0)
}

// === impl Picture ===

impl Picture {
    fn quorum(&self) -> usize {
        self.nodes / 2 + 1
    }

    /// How many have to answer where no majority has its memory.
    fn least(&self, scene: &Scene) -> usize {
        if scene.has(Rule::I2All) {
            self.nodes
        } else {
            self.quorum()
        }
    }

    fn shown(&self) -> &[Shown] {
        &self.seen[..self.nodes]
    }

    fn members(&self) -> impl Iterator<Item = &Shown> {
        self.shown().iter().filter(|s| s.kind >= Kind::Returned)
    }

    fn answers(&self) -> impl Iterator<Item = &Shown> {
        let answers = |s: &&Shown| s.kind >= Kind::Nominated;
        self.shown().iter().filter(answers)
    }

    /// How many members satisfy this, each counted once.
    fn count(&self, is: impl Fn(&Shown) -> bool) -> usize {
        let mut ids: Vec<u8> = self.members().filter(|s| is(s)).map(|s| s.id).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.len()
    }

    fn shows(&self, id: u8) -> bool {
        self.shown().iter().any(|s| s.id == id)
    }

    /// Whether T stands wherever it has to, so that a watch may begin.
    fn stands(&self, scene: &Scene, target: &Roster) -> bool {
        let most = self.count(|s| s.roster == *target && target.names(s.id)) >= self.quorum();
        let all = self.answers().count() >= self.least(scene)
            && self.answers().all(|s| {
                target.names(s.id)
                    && (s.roster == *target
                        || s.kind == Kind::Nominated && !scene.has(Rule::I2Proposed))
            });
        most || all
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

    fn picture(&self, client: &Client, list: &List) -> Picture {
        let nodes = list.nodes.len();
        let mut p = Picture {
            seen: client.seen,
            nodes,
            list: list.name,
            present: None,
            target: None,
            anew: false,
        };
        if p.shown().iter().any(|s| s.kind == Kind::Unknown) && self.has(Rule::I4OneLook) {
            return p;
        }
        if self.has(Rule::I1Once) {
            for a in 0..nodes {
                let s = &client.seen[a];
                let twin = s.id != 0 && (0..nodes).any(|b| b != a && client.seen[b].id == s.id);
                let right = s.kind >= Kind::Returned
                    && s.roster.list == list.name
                    && s.roster.ids[a] == s.id;
                if twin && !right {
                    p.seen[a] = Shown {
                        kind: Kind::Silent,
                        ..Shown::default()
                    };
                }
            }
        }
        let present = p
            .members()
            .map(|s| s.roster)
            .find(|r| p.count(|s| s.roster == *r && r.names(s.id)) >= p.quorum());
        p.present = present;
        let (target, anew) = self.target(&p);
        (p.target, p.anew) = (target, anew);
        p
    }

    /// T, and whether it is to be founded.
    fn target(&self, p: &Picture) -> (Option<Roster>, bool) {
        let own = |s: &&Shown| s.roster.list == p.list;
        let largest = |rosters: &mut dyn Iterator<Item = Roster>| {
            rosters.max_by_key(|r| (r.generation, r.ids, r.before))
        };
        if let Some(present) = p.present {
            if present.list != p.list && self.has(Rule::I3SameList) {
                return (None, false);
            }
            let tips = p.members().filter(own).map(|s| s.roster);
            let mut tips = tips.filter(|r| r.before == present.stamp());
            if let Some(tip) = largest(&mut tips).filter(|_| self.has(Rule::I3BegunFirst)) {
                return (Some(tip), false);
            }
            let mut ids = present.ids;
            for (a, s) in p.shown().iter().enumerate() {
                let gone = !p.shows(ids[a]) || !self.has(Rule::I3Gone);
                if s.kind == Kind::Nominated && !present.names(s.id) && gone {
                    ids[a] = s.id;
                }
            }
            if ids == present.ids {
                return (Some(present), false);
            }
            return (Some(present.next(ids)), false);
        }
        // A change that another has begun.
        let tips = p.members().filter(own).map(|s| s.roster);
        let mut tips = tips.filter(|r| {
            p.count(|s| r.names(s.id) && (s.roster == *r || s.roster.stamp() == r.before))
                >= p.quorum()
        });
        if let Some(tip) = largest(&mut tips).filter(|_| self.has(Rule::I3Completed)) {
            return (Some(tip), false);
        }
        let answers = p.answers().count();
        if answers < p.least(self) {
            return (None, false);
        }
        let foreign = p
            .answers()
            .any(|s| s.roster.list != 0 && s.roster.list != p.list);
        if foreign && self.has(Rule::I2Foreign) {
            return (None, false);
        }
        let mut ids = [0; MOST];
        for (id, s) in ids.iter_mut().zip(p.shown()) {
            *id = s.id;
        }
        let highest = p.answers().filter(own).map(|s| s.roster.generation).max();
        let highest = highest.unwrap_or(0);
        // It stands already: what is left is to admit.
        let begun = p.answers().next().map(|s| s.roster).unwrap_or_default();
        if begun.ids == ids && p.answers().all(|s| s.roster == begun) {
            return (Some(begun), false);
        }
        if !self.has(Rule::I2Proposed) {
            let begun = p.members().map(|s| s.roster).find(|r| r.ids == ids);
            if begun.is_some() {
                return (begun, false);
            }
        }
        let mut begun = p.answers().map(|s| s.roster).filter(|r| {
            r.generation == highest && r.list == p.list && r.ids == ids && r.before == 0
        });
        let target = largest(&mut begun).unwrap_or(Roster {
            list: p.list,
            generation: highest + 1,
            before: 0,
            ids,
        });
        (Some(target), true)
    }

    /// What this client would write to the node at that address.
    fn plan(&self, client: &Client, list: &List, a: usize) -> Option<Shown> {
        let p = self.picture(client, list);
        let s = p.seen[a];
        if s.kind < Kind::Nominated {
            return None;
        }
        let own = s.roster.list == p.list;
        // In a founding no member may keep its vote: those of two rosters would be a majority at once.
        let member = s.kind >= Kind::Returned;
        let stale = p
            .present
            .is_some_and(|r| r.list == p.list && !r.names(s.id));
        if member && (own && stale && self.has(Rule::I6Closed) || p.anew) {
            return Some(self.nominated(&s, self.next_id(s.id)));
        }
        let target = p.target?;
        if !target.names(s.id) || p.anew && p.members().next().is_some() {
            return None;
        }
        if s.kind < Kind::Admitted && self.may_admit(client, &p, &target, &s) {
            return Some(Shown {
                kind: Kind::Admitted,
                roster: target,
                ..s
            });
        }
        let foreign = member && !own && p.present.map(|r| r.list) != Some(s.roster.list);
        let reserved = !member && s.roster.list != 0 && !own;
        if foreign || reserved && !self.has(Rule::I6Kept) || s.roster == target {
            return None;
        }
        if s.kind == Kind::Nominated && !self.has(Rule::I2Proposed) {
            return None;
        }
        let proposed = p
            .answers()
            .all(|s| s.kind != Kind::Nominated || !target.names(s.id) || s.roster == target);
        if member && !proposed && self.has(Rule::I4FreshFirst) && self.has(Rule::I2Proposed) {
            return None;
        }
        // A member leaves a roster only for its successor, or for what has come to be the fleet's.
        let most = p.count(|s| s.roster == target && target.names(s.id)) >= p.quorum();
        let from = s.roster.stamp() == target.before || !member || most;
        if !from {
            return None;
        }
        Some(Shown {
            roster: target,
            ..s
        })
    }

    fn nominated(&self, s: &Shown, id: u8) -> Shown {
        Shown {
            kind: Kind::Nominated,
            id,
            nonce: s.nonce + 1,
            roster: Roster::default(),
        }
    }

    fn may_admit(&self, client: &Client, p: &Picture, target: &Roster, s: &Shown) -> bool {
        let w = &client.watch;
        let over = w.over || !self.has(Rule::I5ReadAgain) && w.on && w.votes == 0;
        let proposed =
            s.roster == *target || s.kind == Kind::Nominated && !self.has(Rule::I2Proposed);
        let stands =
            p.stands(self, target) || !self.has(Rule::I5Stands) || !self.has(Rule::I5ReadAgain);
        over && proposed && stands
    }

    /// The roster that stands where it has to, while there is something to admit, and the nominations that are.
    fn watched(&self, client: &Client, list: &List) -> Option<(Roster, [u8; MOST])> {
        let p = self.picture(client, list);
        let target = p.target?;
        let fresh = p
            .answers()
            .any(|s| s.kind < Kind::Admitted && target.names(s.id));
        let stands = p.stands(self, &target) || !self.has(Rule::I5Stands);
        let nonces = p.seen.map(|s| match s.kind {
            Kind::Nominated | Kind::Returned if target.names(s.id) => s.nonce + 1,
            _ => 0,
        });
        (fresh && stands).then_some((target, nonces))
    }

    fn counts(&self, client: &Client, list: &List, votes: u8) -> bool {
        let p = self.picture(client, list);
        let given: Vec<Shown> = bits(votes).map(|a| p.seen[a]).collect();
        if !self.has(Rule::I1Once) {
            return given.len() >= p.quorum();
        }
        if !self.has(Rule::I1Alike) {
            return given.len() >= p.quorum();
        }
        let Some(present) = p.present else {
            return false;
        };
        let mut ids: Vec<u8> = given
            .iter()
            .filter(|s| s.kind == Kind::Admitted && s.roster == present && present.names(s.id))
            .map(|s| s.id)
            .collect();
        ids.sort_unstable();
        ids.dedup();
        ids.len() >= p.quorum()
    }

    /// A client's picture has changed.
    fn reconsider(
        &self,
        t: &mut World,
        c: usize,
        before: Option<(Roster, [u8; MOST])>,
        again: bool,
    ) {
        let alien = self.lists[0].name != self.lists[1].name;
        let taken = again && alien && self.prompt && self.would_take(t, 1 - c, c);
        let after = self.watched(&t.clients[c], &self.lists[c]);
        let votes = (0..CLIENTS).filter(|k| t.clients[*k].got != 0 || t.clients[*k].holds);
        let votes = votes.fold(0_u8, |mask, k| mask | 1 << k);
        let watch = &mut t.clients[c].watch;
        let goes_on = before.zip(after).is_some_and(|(b, a)| {
            b.0 == a.0 && b.1.iter().zip(a.1).all(|(b, a)| a == 0 || *b == a)
        });
        if after.is_none() {
            *watch = Watch::default();
        } else if !watch.on || !goes_on {
            *watch = Watch {
                on: true,
                votes: if self.has(Rule::I5Watched) { votes } else { 0 },
                over: false,
            };
        } else if again && watch.votes == 0 && !taken {
            watch.over = true;
        }
    }

    fn looks(&self, t: &mut World, c: usize, a: usize) {
        let before = self.watched(&t.clients[c], &self.lists[c]);
        if self.has(Rule::I4OneLook) {
            for a in 0..self.lists[c].nodes.len() {
                self.looks_at(t, c, a);
            }
        } else {
            self.looks_at(t, c, a);
        }
        self.reconsider(t, c, before, true);
    }

    fn looks_at(&self, t: &mut World, c: usize, a: usize) {
        let shown = self.look(t, c, a);
        let client = &mut t.clients[c];
        let seen = client.seen[a];
        // A vote is one of the identity and the roster of which it was asked.
        if seen != shown && !client.holds {
            client.got &= !(1 << a);
            if client.got == 0 {
                for client in &mut t.clients {
                    client.watch.votes &= !(1 << c);
                }
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
        Some(next)
    }

    /// Whether that client, had it looked during the watch, would have taken back a node that the other is about to admit.
    fn would_take(&self, w: &World, c: usize, other: usize) -> bool {
        if !self.has(Rule::I6Kept) {
            return false;
        }
        let mut t = *w;
        let nodes = self.lists[c].nodes.len();
        for a in 0..nodes {
            self.looks_at(&mut t, c, a);
        }
        let p = self.picture(&t.clients[c], &self.lists[c]);
        let own = |r: &Roster| r.list == p.list;
        p.target.is_some_and(|r| own(&r))
            && p.count(|s| own(&s.roster)) >= p.quorum()
            && (0..nodes).any(|a| {
                let i = self.route(w, c, a);
                let s = w.nodes[i].shown;
                s.kind == Kind::Nominated
                    && s.roster.list == self.lists[other].name
                    && p.seen[a] == s
            })
    }

    /// Whether this change of a roster puts out a living member.
    fn puts_out(&self, t: &World, c: usize, a: usize, next: &Shown) -> bool {
        let before = t.nodes[self.route(t, c, a)].shown;
        let named = |n: &&Node| {
            let s = &n.shown;
            s.kind >= Kind::Returned && s.roster == before.roster && before.roster.names(s.id)
        };
        let members = t.nodes.iter().filter(named);
        let most = members.clone().count() > self.lists[c].nodes.len() / 2;
        let mut kept = members.map(|n| n.shown.id);
        let gone = kept.any(|id| match next.kind {
            Kind::Nominated => id == before.id,
            _ => !next.roster.names(id),
        });
        self.keeps && before.kind >= Kind::Returned && most && gone
    }

    fn edits(&self, t: &mut World, c: usize, a: usize, next: Shown) {
        let i = self.route(t, c, a);
        let before = t.nodes[i].shown;
        if before.kind == Kind::Admitted && next.kind == Kind::Nominated {
            t.nodes[i].own = 0;
        }
        let watched = self.watched(&t.clients[c], &self.lists[c]);
        t.nodes[i].shown = next;
        self.looks_at(t, c, a);
        self.reconsider(t, c, watched, false);
    }

    fn may_ask(&self, w: &World, c: usize, a: usize) -> bool {
        let (client, list) = (&w.clients[c], &self.lists[c]);
        let i = self.route(w, c, a);
        let current = self.look(w, c, a);
        if client.holds || client.got >> a & 1 != 0 || current.kind != Kind::Admitted {
            return false;
        }
        let known = client.seen[a] == current
            || !self.has(Rule::I1Compared) && client.seen[a].kind == Kind::Admitted;
        let free = w.nodes[i].own == 0 || w.nodes[i].own == c as u8 + 1;
        let enough = client.got.count_ones() as usize > list.nodes.len() / 2;
        if !known || !free || enough {
            return false;
        }
        if !self.has(Rule::I1Alike) {
            return true;
        }
        let p = self.picture(client, list);
        let s = client.seen[a];
        p.present.is_some_and(|r| s.roster == r && r.names(s.id))
    }

    fn rests(t: &mut World, c: usize) {
        (t.clients[c].got, t.clients[c].holds) = (0, false);
        for n in t.nodes.iter_mut().filter(|n| n.own == c as u8 + 1) {
            n.own = 0;
        }
        for client in &mut t.clients {
            client.watch.votes &= !(1 << c);
        }
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

    /// Whether it comes up: with a majority, and with each node that is up.
    fn comes_up(&self, w: &World, c: usize, down: u16) -> bool {
        let alone = Scene {
            prompt: false,
            ..*self
        };
        let t = alone.alone(w, c, down);
        let p = self.picture(&t.clients[c], &self.lists[c]);
        let Some(present) = p.present else {
            return false;
        };
        p.answers()
            .all(|s| s.kind == Kind::Admitted && s.roster == present && present.names(s.id))
    }
}

/// The scene, and which memories of the nodes were found to let every fleet come up.
struct Searched {
    scene: Scene,
    seen: RefCell<HashSet<u64>>,
}

fn pack(p: &mut Packed, s: &Shown) {
    p.put(s.kind as u8, 3)
        .put(s.id, 6)
        .put(s.nonce, 4)
        .put(s.roster.list, 2);
    p.put(s.roster.generation, 5);
    p.put_wide(s.roster.before.into());
    for id in s.roster.ids {
        p.put(id, 6);
    }
}

fn pack_client(c: &Client, swapped: bool) -> Packed {
    let mut p = Packed::default();
    for s in &c.seen {
        pack(&mut p, s);
    }
    let turned = |mask: u8| {
        if swapped {
            mask >> 1 & 1 | mask << 1 & 2
        } else {
            mask
        }
    };
    p.put(turned(c.watch.votes), 2);
    p.put(c.watch.on.into(), 1).put(c.watch.over.into(), 1);
    p.put(c.got, 5).put(c.holds.into(), 1).put(c.moved, 2);
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
            let mut roster = Roster {
                list: list.name,
                generation: 1,
                before: 0,
                ids: [0; MOST],
            };
            for (id, i) in roster.ids.iter_mut().zip(list.nodes) {
                *id = i + 1;
            }
            for i in list.nodes {
                let shown = &mut start.nodes[usize::from(*i)].shown;
                shown.kind = Kind::Admitted;
                shown.roster = roster;
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
            if used && w.returns < scene.returns && !node.down && node.shown.kind >= Kind::Returned
            {
                out.push(Step::Returns(i));
            }
            if used && w.falls < scene.falls && !node.down {
                out.push(Step::Falls(i));
            }
            if node.down {
                out.push(Step::Rises(i));
            }
        }
        if w.closings < scene.closings {
            out.push(Step::Closes);
        }
        for (c, list) in scene.lists.iter().enumerate() {
            let (client, me) = (&w.clients[c], c as u8);
            let waits = client.watch.on && !client.watch.over && client.watch.votes == 0;
            let mut whole = false;
            for a in 0..list.nodes.len() {
                let (at, current) = (a as u8, scene.look(w, c, a));
                if client.seen[a] != current || waits {
                    if !scene.has(Rule::I4OneLook) {
                        out.push(Step::Looks(me, at));
                    } else if !whole {
                        out.push(Step::Looks(me, 0));
                        whole = true;
                    }
                }
                if scene.may_edit(w, c, a).is_some() {
                    out.push(Step::Edits(me, at));
                }
                if scene.may_ask(w, c, a) {
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
                    if next.roster.generation > scene.generations
                        || next.id > scene.lives * NODES as u8
                    {
                        if scene.fights {
                            return Ok(*w);
                        }
                        return Err("changed again and again");
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
                scene.loses(&mut t, i.into());
                t.losses += 1;
            }
            Step::Returns(i) => {
                let node = &mut t.nodes[usize::from(i)];
                node.own = 0;
                node.shown.kind = Kind::Returned;
                if scene.has(Rule::I5Nonce) {
                    node.shown.nonce += 1;
                }
                t.returns += 1;
            }
            Step::Closes => {
                for i in 0..NODES {
                    scene.loses(&mut t, i);
                }
                t.closings += 1;
            }
            Step::Falls(i) => {
                t.nodes[usize::from(i)].down = true;
                t.falls += 1;
            }
            Step::Rises(i) => t.nodes[usize::from(i)].down = false,
            Step::Moves(c) => t.clients[usize::from(c)].moved += 1,
        }
        Ok(t)
    }

    fn check(&self, w: &World) -> Option<&'static str> {
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
            if self.scene.of_most >> c & 1 == 0 {
                continue;
            }
            for i in list.nodes {
                let up = list.nodes.iter().filter(|j| *j != i);
                let members = up.filter(|j| {
                    let s = w.nodes[usize::from(**j)].shown;
                    s.kind >= Kind::Returned && s.roster.list == list.name
                });
                if members.count() > list.nodes.len() / 2 && !self.scene.comes_up(w, c, 1 << i) {
                    return Some("stuck while a node is down");
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
            p.put(w.losses, 2)
                .put(w.falls, 2)
                .put(w.closings, 1)
                .put(w.returns, 2);
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
                format!(
                    "client {c} writes to node {i}: {:?} {}/{} list {} gen {} after {:x} {:?}",
                    s.kind,
                    s.id,
                    s.nonce,
                    s.roster.list,
                    s.roster.generation,
                    s.roster.before & 0xff,
                    s.roster.ids
                )
            }
            Step::Looks(c, _) => {
                let seen = after.clients[usize::from(c)]
                    .seen
                    .map(|s| format!("{:?} {}/{}@{}", s.kind, s.id, s.nonce, s.roster.generation))
                    .into_iter()
                    .filter(|s| !s.starts_with("Unk"))
                    .collect::<Vec<_>>()
                    .join(", ");
                let w = after.clients[usize::from(c)].watch;
                let watch = if w.on {
                    format!("watch {} {}", w.votes, w.over)
                } else {
                    String::new()
                };
                format!("client {c} looks: {seen} {watch}")
            }
            Step::Wins(c) => format!("client {c} HOLDS"),
            step => format!("{step:?}"),
        }
    }
}

impl Scene {
    fn loses(&self, t: &mut World, i: usize) {
        let node = &mut t.nodes[i];
        node.own = 0;
        node.shown = self.nominated(&node.shown, self.next_id(node.shown.id));
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
    closings: 0,
    returns: 0,
    fights: false,
    comes_up: 0b11,
    of_most: 0b11,
    keeps: true,
    prompt: true,
    generations: 12,
    lives: 5,
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
        of_most: 0,
        ..ALIKE
    }
}

const SHIFTED: Scene = beside(&[2, 3, 4]);
const REPLACED: Scene = beside(&[0, 1, 3]);

const fn established(scene: Scene) -> Scene {
    Scene {
        established: true,
        ..scene
    }
}

const fn lost(scene: Scene) -> Scene {
    Scene { losses: 1, ..scene }
}

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
        generations: 4,
        lives: 2,
        ..established(ALIKE)
    };
    scene.lists[1].moves = Some(node);
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

/// What is searched is that there is one holder, and no more.
const fn fought(scene: Scene) -> Scene {
    Scene {
        keeps: false,
        comes_up: 0,
        fights: true,
        generations: 3,
        lives: 2,
        ..scene
    }
}

const fn falls(scene: Scene) -> Scene {
    Scene { falls: 1, ..scene }
}

const fn new(scene: Scene) -> Scene {
    Scene {
        established: false,
        ..scene
    }
}

const TWO: &str = "two holders";
const DOWN: &str = "stuck while a node is down";
const OUT: &str = "a living member is put out";

#[test]
fn programs_that_are_alike_come_up() {
    holds("new", &ALIKE);
    holds("complete, a loss", &lost(established(ALIKE)));
    holds(
        "closed by hand",
        &Scene {
            closings: 1,
            ..established(ALIKE)
        },
    );
    needs(Rule::I5Watched, &lost(established(ALIKE)), TWO);
    needs(Rule::I3Completed, &lost(established(ALIKE)), DOWN);
}

#[test]
#[ignore = "a minute"]
fn programs_that_are_alike_come_up_whatever_is_lost() {
    holds(
        "complete, a loss and a fall",
        &falls(lost(established(ALIKE))),
    );
    for losses in [2, 3] {
        let scene = Scene {
            losses,
            keeps: false,
            of_most: 0,
            ..established(ALIKE)
        };
        holds(&format!("complete, {losses} losses"), &scene);
    }
    let three = Scene {
        returns: 3,
        ..established(ALIKE)
    };
    holds("complete, three return", &three);
    let one = Scene {
        returns: 1,
        ..lost(established(ALIKE))
    };
    holds("complete, one returns, a loss", &one);
    let mut five = SHIFTED;
    (five.lists[0].nodes, five.lists[1].nodes) = (&[0, 1, 2, 3, 4], &[4, 5, 6, 7, 8]);
    holds("five, then five, a loss", &lost(established(five)));
}

#[test]
#[ignore = "seconds"]
fn a_founding_may_be_broken_off_anywhere() {
    holds(
        "new, a loss",
        &Scene {
            keeps: false,
            ..lost(ALIKE)
        },
    );
}

#[test]
fn nodes_come_back_with_their_memory() {
    let returns = |returns, scene| Scene { returns, ..scene };
    holds("complete, two return", &returns(2, established(ALIKE)));
    holds("new, one returns", &returns(1, ALIKE));
    holds("one returns, {c,d,e} beside it", &returns(1, kept(SHIFTED)));
    needs(Rule::I5Nonce, &returns(2, established(ALIKE)), TWO);
}

#[test]
fn programs_that_are_alike_come_up_where_each_reaches_others() {
    let mut scene = Scene {
        comes_up: 0,
        ..lost(established(ALIKE))
    };
    scene.lists[0].deaf = 1 << 0;
    scene.lists[1].deaf = 1 << 2;
    holds("each reaches two, a loss", &scene);
}

#[test]
fn lists_that_share_a_node_are_two_fleets() {
    holds("{a,b,c} and {c,d,e}, new", &SHIFTED);
    holds("{a,b,c} and {c,d,e}, new, a fall", &falls(SHIFTED));
    holds("{a,b,c}, then {c,d,e}, a loss", &kept(SHIFTED));
    needs(Rule::I2Proposed, &fought(SHIFTED), TWO);
    needs(Rule::I2Foreign, &fought(SHIFTED), TWO);
    needs(Rule::I6Kept, &fought(kept(SHIFTED)), TWO);
    let few = Scene {
        generations: 1,
        lives: 1,
        ..fought(falls(SHIFTED))
    };
    needs(Rule::I2All, &few, TWO);
}

#[test]
fn lists_that_share_two_nodes_are_two_fleets() {
    holds("{a,b,c} and {a,b,d}, new", &REPLACED);
    holds("{a,b,c} and {a,b,d}, new, a fall", &falls(REPLACED));
    holds("{a,b,c}, then {a,b,d}, a loss", &kept(REPLACED));
    needs(Rule::I3SameList, &kept(REPLACED), OUT);
}

#[test]
fn five_that_share_one_are_two_fleets() {
    let mut scene = SHIFTED;
    (scene.lists[0].nodes, scene.lists[1].nodes) = (&[0, 1, 2, 3, 4], &[4, 5, 6, 7, 8]);
    holds("five and five, new", &scene);
    holds("five, then five", &established(scene));
}

#[test]
fn a_fleet_without_programs_may_lose_its_node_to_another() {
    let scene = Scene {
        prompt: false,
        ..fought(kept(SHIFTED))
    };
    breaks("not prompt", &scene, TWO);
}

#[test]
fn the_same_nodes_under_other_addresses_have_votes() {
    let scene = beside(&[2, 0, 1]);
    holds(
        "other addresses",
        &Scene {
            comes_up: 1,
            ..lost(established(scene))
        },
    );
    let (machine, c) = (machine(&established(scene)), 1);
    let w = scene.alone(&machine.start(), c, 0);
    assert_eq!(w.nodes, machine.start().nodes);
    assert!(scene.counts(&w.clients[c], &scene.lists[c], 0b11));
}

#[test]
fn an_address_that_leads_to_another_member_has_one_vote() {
    let own = led_to(1);
    holds("led to another member", &own);
    needs(Rule::I1Once, &own, TWO);
    needs(Rule::I1Compared, &own, TWO);
}

#[test]
fn an_address_may_come_to_lead_to_a_new_node() {
    let new = led_to(3);
    holds("led to a new node", &new);
    for rule in [
        Rule::I1Alike,
        Rule::I1Compared,
        Rule::I5Stands,
        Rule::I5Watched,
    ] {
        needs(rule, &new, TWO);
    }
}

#[test]
fn a_node_to_which_an_address_leads_again_is_taken_back() {
    let back = Scene {
        comes_up: 0b11,
        of_most: 0,
        moves: 2,
        ..led_to(3)
    };
    holds("led to a new node and back", &back);
    needs(Rule::I6Closed, &back, "stuck");
}

#[test]
fn an_address_that_leads_elsewhere_founds_no_second_fleet() {
    needs(Rule::I2Proposed, &new(led_to(3)), TWO);
}

#[test]
fn an_address_that_leads_to_two_nodes_in_turn_puts_none_out() {
    let mut scene = Scene {
        keeps: true,
        ..led_to(3)
    };
    scene.lists[1] = List {
        nodes: &[0, 2, 3],
        ..THREE
    };
    holds("two addresses lead elsewhere", &scene);
    needs(Rule::I3Gone, &scene, OUT);
}

#[test]
#[ignore = "a minute"]
fn an_address_may_lead_elsewhere_while_a_node_is_lost() {
    let new = led_to(3);
    holds("led to a new node, a loss", &lost(new));
    holds("led to a new node, a fall", &falls(new));
    holds(
        "led to a new node, one returns",
        &Scene { returns: 1, ..new },
    );
    needs(Rule::I3BegunFirst, &lost(new), TWO);
    needs(Rule::I5ReadAgain, &lost(new), TWO);
}

#[test]
#[ignore = "minutes"]
fn an_address_may_lead_elsewhere_while_a_fleet_is_founded() {
    let new = new(led_to(3));
    holds("new, led to a new node", &new);
    needs(Rule::I4OneLook, &new, TWO);
    let back = Scene {
        generations: 3,
        moves: 2,
        ..new
    };
    holds("new, led to a new node and back", &back);
    needs(Rule::I4FreshFirst, &back, TWO);
}

#[test]
fn the_complete_fleet_is_looked_at_again() {
    needs(Rule::I5ReadAgain, &fought(kept(SHIFTED)), TWO);
}
