//! Two programs that are configured differently, on the same nodes or on some of them: the marker refuses one of them.
//!
//! A machine of its own, with one client of each configuration. The marker that an admission writes carries what safety
//! depends on; here it is the number of the configuration, and a switch says that it does not carry what differs. A record
//! is an owner, its ttl and its age; there are no tokens, no breaks, and no late messages.
//!
//! | rule | says | without it |
//! | --- | --- | --- |
//! | `NamesTtl` | the marker names max_ttl | the shorter fleet admits a node before a longer lease is over |
//! | `NamesMode` | it names what a client sees of others' records: guard, expiry, raw keys | what one has taken is nothing to the other |
//! | `MarksAlways` | it stands also where the guard is off, and nothing is granted without it | a guarded fleet admits nodes on which others have leases that it does not see |
//! | `NamesNodes` | it names who the nodes are, by identities that they keep themselves: how, is in [`super::roster`] | a node votes in two fleets |
//! | `AdmissionAsks` | an admission reads the markers of the other nodes, and does not admit where one names another fleet | the others' nodes are made one's own |
//! | `AsksAll` | ... of *all* other nodes of the list, not of N - q + 1 | of five nodes the shared one is not asked |
//! | `LongestOfAll` | lost memory is waited out for the longest max_ttl that any member may have | nothing is left that could say it |
//! | `IdentityCompared` | a connection is refused whose node is not the one of that address | a node votes twice |
//!
//! An admission reads and writes in one step here. Two fleets that begin at one moment on new nodes may each admit some of
//! them: then neither has a majority, and both are refused by name.
//!
//! What the marker cannot do: two fleets that share fewer nodes than N - q + 1 have majorities that do not meet. Only
//! admission keeps them apart, while the shared nodes answer (`an_admission_that_cannot_ask_lets_two_fleets_in`). A single
//! node that has lost everything cannot say whose it was (`a_lone_node_cannot_say_how_long_to_wait`).

use crate::shared::{Machine, Packed, expect_breaks, expect_holds};

const LIMIT: usize = 10_000_000;
/// Two lists of five that share one.
const NODES: usize = 9;
const SIDES: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    NamesTtl,
    NamesMode,
    MarksAlways,
    NamesNodes,
    AdmissionAsks,
    AsksAll,
    LongestOfAll,
    IdentityCompared,
}

/// One side's configuration.
#[derive(Clone, Copy, Debug)]
struct Config {
    /// Its addresses, and where they lead.
    nodes: &'static [u8],
    ttl: u8,
    max_ttl: u8,
    /// Whether it sees what the other side has taken.
    sees: bool,
    /// Whether it waits for an admission at all.
    guard: bool,
}

#[derive(Clone, Copy, Debug)]
struct Scene {
    without: Option<Rule>,
    sides: [Config; SIDES],
    /// What the sides differ in, if their markers do.
    differs: Option<Rule>,
    /// Nodes that side 0 has admitted when it begins, a bit each, and those that never answer an admission.
    admitted: u16,
    silent: u16,
    losses: u8,
    /// The last address of side 1 leads to the node of the one before it.
    rerouted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Node {
    /// Whose marker stands here, whose record, a side's number plus one; for how long the record has stood, and how long
    /// it is since the memory was lost.
    marker: u8,
    own: u8,
    age: u8,
    watched: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Side {
    begun: bool,
    elapsed: u8,
    todo: u8,
    got: u8,
    valid: u8,
    /// Has met another fleet, and asks for nothing any more.
    refused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Fleets {
    nodes: [Node; NODES],
    sides: [Side; SIDES],
    losses: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    Loses(u8),
    /// The side admits the node.
    Admits(u8, u8),
    Begins(u8),
    /// The side asks the node at its address.
    Asks(u8, u8),
    Wins(u8),
    Ends(u8),
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

    fn longest(&self) -> u8 {
        self.sides.iter().map(|s| s.max_ttl).fold(0, u8::max)
    }

    /// Whether this marker is one of another fleet to that side, as far as it carries what differs.
    fn is_foreign(&self, side: usize, marker: u8) -> bool {
        let carried = self.differs.is_some_and(|rule| self.has(rule));
        carried && marker != 0 && marker != side as u8 + 1
    }

    /// Where this side's address leads.
    fn route(&self, side: usize, address: usize) -> usize {
        let nodes = self.sides[side].nodes;
        let moved = self.rerouted && side == 1 && address + 1 == nodes.len();
        usize::from(nodes[if moved { address - 1 } else { address }])
    }

    fn quorum(&self, side: usize) -> usize {
        self.sides[side].nodes.len() / 2 + 1
    }

    fn may_admit(&self, w: &Fleets, side: usize, i: usize) -> bool {
        let (n, config) = (&w.nodes[i], &self.sides[side]);
        let watch = match (config.guard, self.has(Rule::LongestOfAll)) {
            // Where the marker stands also without the guard, an admission without it waits for nothing.
            (false, _) => 0,
            (true, true) => self.longest(),
            (true, false) => config.max_ttl,
        };
        if n.marker != 0 || n.watched < watch || w.sides[side].refused {
            return false;
        }
        if !self.has(Rule::AdmissionAsks) {
            return true;
        }
        let others = config.nodes.iter().map(|j| usize::from(*j));
        let others = others.filter(|j| *j != i && self.silent >> *j & 1 == 0);
        let (foreign, own): (Vec<usize>, Vec<usize>) =
            others.partition(|j| self.is_foreign(side, w.nodes[*j].marker));
        let enough = config.nodes.len() - self.quorum(side) + 1;
        // Those that are asked may be the right ones.
        let chosen = !self.has(Rule::AsksAll) && own.len() >= enough;
        foreign.is_empty() || chosen
    }

    /// Has the side's message executed by the node, and counts its vote.
    fn ask(&self, t: &mut Fleets, side: usize, address: usize) {
        let i = self.route(side, address);
        let (me, config) = (side as u8 + 1, &self.sides[side]);
        t.sides[side].todo &= !(1 << address);
        let moved = i != usize::from(config.nodes[address]);
        if moved && self.has(Rule::IdentityCompared) {
            return;
        }
        let n = &mut t.nodes[i];
        if self.is_foreign(side, n.marker) {
            t.sides[side].refused = true;
            return;
        }
        let unmarked = self.has(Rule::NamesMode) && self.has(Rule::MarksAlways);
        let ignores = !config.guard && !unmarked;
        if n.marker == 0 && !ignores {
            return;
        }
        let stands = n.own != 0 && n.own != me;
        let ripe = stands && n.age >= self.sides[usize::from(n.own) - 1].ttl;
        if stands && config.sees && !ripe {
            return;
        }
        if n.own != me {
            (n.own, n.age) = (me, 0);
        }
        t.sides[side].got |= 1 << address;
    }

    fn tick(&self, t: &mut Fleets) {
        for n in &mut t.nodes {
            n.age = (n.age + 1).min(3);
            n.watched = (n.watched + 1).min(3);
        }
        for (side, config) in t.sides.iter_mut().zip(&self.sides) {
            side.elapsed = (side.elapsed + 1).min(3);
            side.valid = side.valid.saturating_sub(1);
            let acquires = side.begun && side.todo | side.got != 0;
            if acquires && side.elapsed >= config.ttl {
                (side.todo, side.got) = (0, 0);
            }
        }
    }
}

impl Machine for Scene {
    type State = Fleets;
    type Step = Step;

    fn start(&self) -> Fleets {
        let mut start = Fleets::default();
        for (i, n) in start.nodes.iter_mut().enumerate() {
            n.marker = (self.admitted >> i & 1) as u8;
        }
        start
    }

    fn steps(&self, w: &Fleets, out: &mut Vec<Step>) {
        out.clear();
        out.push(Step::Tick);
        for i in 0..NODES {
            let used = self.sides.iter().any(|s| s.nodes.contains(&(i as u8)));
            if used && w.losses < self.losses && w.nodes[i].marker != 0 {
                out.push(Step::Loses(i as u8));
            }
        }
        for (c, config) in self.sides.iter().enumerate() {
            let (side, me) = (&w.sides[c], c as u8);
            for i in config.nodes {
                if self.may_admit(w, c, usize::from(*i)) {
                    out.push(Step::Admits(me, *i));
                }
            }
            if !side.begun && !side.refused {
                out.push(Step::Begins(me));
            }
            for address in (0..config.nodes.len()).filter(|a| side.todo >> a & 1 != 0) {
                if !side.refused {
                    out.push(Step::Asks(me, address as u8));
                }
            }
            let in_time = side.elapsed < config.ttl && !side.refused;
            if in_time && side.got.count_ones() as usize >= self.quorum(c) {
                out.push(Step::Wins(me));
            }
            if side.valid > 0 {
                out.push(Step::Ends(me));
            }
        }
    }

    fn act(&self, w: &Fleets, step: Step) -> Result<Fleets, &'static str> {
        let mut t = *w;
        match step {
            Step::Tick => self.tick(&mut t),
            Step::Loses(i) => {
                t.nodes[usize::from(i)] = Node::default();
                t.losses += 1;
            }
            Step::Admits(c, i) => {
                t.nodes[usize::from(i)].marker = c + 1;
            }
            Step::Begins(c) => {
                let c = usize::from(c);
                let side = &mut t.sides[c];
                (side.begun, side.elapsed) = (true, 0);
                side.todo = (1 << self.sides[c].nodes.len()) - 1;
            }
            Step::Asks(c, address) => self.ask(&mut t, usize::from(c), usize::from(address)),
            Step::Wins(c) => {
                let c = usize::from(c);
                let side = &mut t.sides[c];
                side.valid = self.sides[c].ttl - side.elapsed;
                (side.todo, side.got, side.elapsed) = (0, 0, 0);
                if t.sides.iter().all(|side| side.valid > 0) {
                    return Err("two holders");
                }
            }
            Step::Ends(c) => {
                let side = &mut t.sides[usize::from(c)];
                side.valid = 0;
                for n in t.nodes.iter_mut().filter(|n| n.own == c + 1) {
                    (n.own, n.age) = (0, 0);
                }
            }
        }
        for n in t.nodes.iter_mut().filter(|n| n.own == 0) {
            n.age = 0;
        }
        for n in t.nodes.iter_mut().filter(|n| n.marker != 0) {
            n.watched = 0;
        }
        Ok(t)
    }

    fn check(&self, _: &Fleets) -> Option<&'static str> {
        None
    }

    fn name(&self, w: &Fleets) -> u64 {
        let mut p = Packed::default();
        for n in &w.nodes {
            p.put(n.marker, 2)
                .put(n.own, 2)
                .put(n.age, 2)
                .put(n.watched, 2);
        }
        for s in &w.sides {
            p.put(s.todo, 5)
                .put(s.got, 5)
                .put(s.elapsed, 2)
                .put(s.valid, 2);
            p.put(s.begun.into(), 1).put(s.refused.into(), 1);
        }
        p.put(w.losses, 2).hash()
    }

    fn say(&self, _: &Fleets, after: &Fleets, step: Step) -> String {
        match step {
            Step::Asks(c, address) => {
                let (side, i) = (usize::from(c), usize::from(address));
                let vote = match after.sides[side].got >> address & 1 {
                    0 => "no vote",
                    _ => "granted",
                };
                let route = self.route(side, i);
                format!("side {c} asks node {route} at its address {address}: {vote}")
            }
            Step::Wins(c) => format!("side {c} HOLDS"),
            step => format!("{step:?}"),
        }
    }
}

// === scenes ===

const THREE: Config = Config {
    nodes: &[0, 1, 2],
    ttl: 2,
    max_ttl: 2,
    sees: true,
    guard: true,
};

/// Both sides alike, on three nodes of theirs.
const ALIKE: Scene = Scene {
    without: None,
    sides: [THREE; SIDES],
    differs: None,
    admitted: 0b111,
    silent: 0,
    losses: 1,
    rerouted: false,
};

/// Leases of side 0 last longer than side 1 believes that any does.
const LONGER: Scene = Scene {
    sides: [
        Config {
            ttl: 3,
            max_ttl: 3,
            ..THREE
        },
        THREE,
    ],
    differs: Some(Rule::NamesTtl),
    ..ALIKE
};

/// Side 1 goes without the guard: it waits for no admission, and what side 0 has taken is of an incarnation unknown to it.
const UNGUARDED: Scene = Scene {
    sides: [
        THREE,
        Config {
            guard: false,
            sees: false,
            ..THREE
        },
    ],
    differs: Some(Rule::NamesMode),
    ..ALIKE
};

/// The same on new nodes, and side 0 does not see what side 1 has taken either.
const UNMARKED: Scene = Scene {
    sides: [
        Config {
            sees: false,
            ..THREE
        },
        UNGUARDED.sides[1],
    ],
    admitted: 0,
    losses: 0,
    ..UNGUARDED
};

const fn lists(second: &'static [u8]) -> Scene {
    Scene {
        sides: [
            THREE,
            Config {
                nodes: second,
                ..THREE
            },
        ],
        differs: Some(Rule::NamesNodes),
        losses: 0,
        ..ALIKE
    }
}

/// One of three is another one; two of three are.
const REPLACED: Scene = lists(&[0, 1, 3]);
const SHIFTED: Scene = lists(&[2, 3, 4]);

/// Two lists of five that share one node.
const FIVE: Scene = Scene {
    sides: [
        Config {
            nodes: &[0, 1, 2, 3, 4],
            ..THREE
        },
        Config {
            nodes: &[4, 5, 6, 7, 8],
            ..THREE
        },
    ],
    differs: Some(Rule::NamesNodes),
    admitted: 0b1_1111,
    losses: 0,
    ..ALIKE
};

/// A single node, which both fleets use.
const LONE: Scene = Scene {
    sides: [
        Config {
            nodes: &[0],
            ttl: 3,
            max_ttl: 3,
            ..THREE
        },
        Config {
            nodes: &[0],
            ..THREE
        },
    ],
    admitted: 1,
    ..LONGER
};

fn holds(name: &str, scene: &Scene) {
    expect_holds(name, scene, &[], LIMIT);
}

fn breaks(name: &str, scene: &Scene) {
    expect_breaks(name, scene, &[], LIMIT, "two holders");
}

fn decided(name: &str, rule: Rule, scene: Scene) {
    breaks(&format!("{name}, without {rule:?}"), &scene.without(rule));
    holds(name, &scene);
}

#[test]
fn fleets_that_are_alike_share_their_nodes() {
    holds("alike", &ALIKE);
}

#[test]
fn a_fleet_of_another_max_ttl_is_refused() {
    holds("another max_ttl", &LONGER);
    // Either is enough: both are wanted, because what is longest is known only to those who were told.
    holds(
        "another max_ttl, without NamesTtl",
        &LONGER.without(Rule::NamesTtl),
    );
    let short = LONGER.without(Rule::LongestOfAll);
    holds("another max_ttl, without LongestOfAll", &short);
    // Side 1 waits as long as it knows, and the marker does not carry it.
    let neither = Scene {
        differs: None,
        ..short
    };
    breaks("another max_ttl, neither", &neither);
}

#[test]
fn a_fleet_without_the_guard_is_refused() {
    decided("another mode", Rule::NamesMode, UNGUARDED);
    decided("new nodes, another mode", Rule::MarksAlways, UNMARKED);
}

#[test]
fn a_fleet_with_another_list_is_refused() {
    decided("one node replaced", Rule::NamesNodes, REPLACED);
    decided("one node shared", Rule::NamesNodes, SHIFTED);
}

#[test]
fn an_admission_asks_whose_the_other_nodes_are() {
    decided("one node shared", Rule::AdmissionAsks, SHIFTED);
}

#[test]
fn an_admission_asks_all_other_nodes() {
    let few = FIVE.without(Rule::AsksAll);
    let mut prefix = vec![Step::Tick, Step::Tick];
    prefix.extend([5, 6, 7].map(|i| Step::Admits(1, i)));
    expect_breaks("five, without AsksAll", &few, &prefix, LIMIT, "two holders");
    holds("five, one node shared", &FIVE);
    // Of three, N - q + 1 others are all others.
    holds("three, without AsksAll", &SHIFTED.without(Rule::AsksAll));
}

#[test]
fn an_admission_that_cannot_ask_lets_two_fleets_in() {
    let silent = Scene {
        silent: 1 << 2,
        ..SHIFTED
    };
    breaks("the shared node is silent", &silent);
    let silent = Scene {
        silent: 1,
        ..REPLACED
    };
    holds("one of two shared nodes is silent", &silent);
}

#[test]
fn a_lone_node_cannot_say_how_long_to_wait() {
    decided("one node", Rule::LongestOfAll, LONE);
}

#[test]
fn an_address_that_leads_elsewhere_has_no_vote() {
    let scene = Scene {
        rerouted: true,
        losses: 0,
        ..ALIKE
    };
    decided("rerouted", Rule::IdentityCompared, scene);
}
