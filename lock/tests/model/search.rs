//! Breadth-first search through every state within the bounds, so that the first violation found is a shortest one.
//!
//! States that differ only in the names of nodes or of like clients count as one. Of a visited state only a 64-bit
//! hash is kept (two of ten million states collide with a chance of about 1 in 400,000), and who came before it; a
//! trace is found by walking forward again.

use std::{
    collections::HashSet,
    hash::{BuildHasherDefault, Hasher},
};

use crate::{
    node::{NOBODY, Owner},
    quiet,
    world::{Bounds, CLIENTS, Step, World},
};

/// How a search ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) states: usize,
    /// The promise that was broken, and how.
    pub(crate) violation: Option<(&'static str, Vec<String>)>,
    /// Every state within the bounds was visited.
    pub(crate) complete: bool,
}

/// Searches from the state that `prefix` leads to.
///
/// # Panics
/// When a step of the prefix is not possible, or breaks a promise itself.
pub(crate) fn search<const N: usize>(bounds: &Bounds, prefix: &[Step], limit: usize) -> Outcome {
    let mut start = World::<N>::new();
    let mut steps = Vec::new();
    let mut lines = Vec::new();
    for step in prefix {
        bounds.steps(&start, &mut steps);
        assert!(
            steps.contains(step),
            "{step:?} is not possible after {lines:#?}"
        );
        start = match bounds.act(&start, *step) {
            Ok(next) => {
                lines.push(say(bounds, &start, &next, *step));
                next
            }
            Err(broken) => panic!("the prefix breaks a promise: {broken}"),
        };
    }

    let mut seen: HashSet<u64, BuildHasherDefault<Same>> = HashSet::default();
    seen.insert(name(bounds, &start));
    // Who came before, and by which step; index 0 is the start.
    let mut parents: Vec<(u32, Step)> = vec![(0, Step::Tick)];
    let mut layer = vec![(start, 0_u32)];
    let mut next_layer = Vec::new();
    while !layer.is_empty() {
        for (world, id) in layer.drain(..) {
            if let Some(broken) = bounds
                .liveness
                .then(|| quiet::check(bounds, &world))
                .flatten()
            {
                let trace = trace(bounds, start, lines, &parents, id, None);
                return Outcome {
                    states: parents.len(),
                    violation: Some((broken, trace)),
                    complete: false,
                };
            }
            bounds.steps(&world, &mut steps);
            for step in &steps {
                match bounds.act(&world, *step) {
                    Ok(next) => {
                        if seen.insert(name(bounds, &next)) {
                            next_layer.push((next, parents.len() as u32));
                            parents.push((id, *step));
                        }
                    }
                    Err(broken) => {
                        let trace = trace(bounds, start, lines, &parents, id, Some(*step));
                        return Outcome {
                            states: parents.len(),
                            violation: Some((broken, trace)),
                            complete: false,
                        };
                    }
                }
            }
            if parents.len() >= limit {
                return Outcome {
                    states: parents.len(),
                    violation: None,
                    complete: false,
                };
            }
        }
        std::mem::swap(&mut layer, &mut next_layer);
    }
    Outcome {
        states: parents.len(),
        violation: None,
        complete: true,
    }
}

/// The steps to a state in words, and the step that broke the promise.
fn trace<const N: usize>(
    bounds: &Bounds,
    start: World<N>,
    mut lines: Vec<String>,
    parents: &[(u32, Step)],
    mut id: u32,
    last: Option<Step>,
) -> Vec<String> {
    let mut path = Vec::new();
    while id != 0 {
        let (before, step) = parents[id as usize];
        path.push(step);
        id = before;
    }
    let mut world = start;
    for step in path.iter().rev() {
        if let Ok(next) = bounds.act(&world, *step) {
            lines.push(say(bounds, &world, &next, *step));
            world = next;
        }
    }
    lines.extend(last.map(|step| match step {
        Step::Wins(c, _) => format!(
            "{} has its majority in {:?}",
            who(bounds, c),
            world.clients[c].phase
        ),
        step => say(bounds, &world, &world, step),
    }));
    lines
}

// === names of states ===

/// The hash of a state, the same for states that differ only in names.
fn name<const N: usize>(bounds: &Bounds, world: &World<N>) -> u64 {
    const ORDERS: [[usize; CLIENTS]; 6] = [
        [0, 1, 2],
        [1, 0, 2],
        [0, 2, 1],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    let alike = |new: usize, old: usize| {
        let ours = new < bounds.clients && old < bounds.clients;
        let same = bounds.attempts[new] == bounds.attempts[old]
            && bounds.extensions[new] == bounds.extensions[old]
            && bounds.law.ttls[new] == bounds.law.ttls[old];
        new == old || ours && same
    };
    let orders = ORDERS.iter();
    let orders = orders.filter(|order| order.iter().enumerate().all(|(new, old)| alike(new, *old)));
    let names = orders.map(|order| ordered_name(bounds, world, order));
    names.min().unwrap_or(0)
}

fn ordered_name<const N: usize>(bounds: &Bounds, w: &World<N>, order: &[usize; CLIENTS]) -> u64 {
    let mut place = [0_u8; CLIENTS];
    for (new, old) in order.iter().enumerate() {
        place[*old] = new as u8;
    }
    let rename = |o: Owner| {
        if o == NOBODY {
            o
        } else {
            place[usize::from(o >> 2)] << 2 | o & 3
        }
    };
    let used = &order[..bounds.all()];

    let mut words = [0_u64; N];
    for (i, word) in words.iter_mut().enumerate() {
        let n = &w.nodes[i];
        let mut p = Packed::default();
        p.put(rename(n.key), 4)
            .put(n.px, 3)
            .put(rename(n.own), 4)
            .put(n.seq, 3);
        p.put(n.released.into(), 1)
            .put(n.broken.into(), 1)
            .put(n.grant, 4)
            .put(n.named.into(), 1)
            .put(n.age, 2);
        p.put(n.counter, 4)
            .put(n.admitted.into(), 1)
            .put(n.watched, 2)
            .put(n.early_floor, 4);
        p.put(w.break_todo >> i & 1, 1);
        if bounds.now {
            p.put(w.told >> i & 1, 1);
        }
        if bounds.law.claim {
            for c in used {
                p.put(n.claimants[*c], 6);
            }
        }
        if let Some((own, seq, released, counter)) = n.saved {
            p.put(1, 1)
                .put(rename(own), 4)
                .put(seq, 3)
                .put(released.into(), 1)
                .put(counter, 4);
        }
        // Bits that stay are few: only those of messages under way (see `tidy`).
        let mut over = 0_u16;
        for o in 1..12_u8 {
            over |= (n.over >> o & 1) << rename(o);
        }
        p.next().put_wide(over.into());
        for c in used {
            let k = &w.clients[*c];
            p.put(k.todo >> i & 1, 1)
                .put(k.got[i], 4)
                .put(k.ripe >> i & 1, 1);
            for late in &k.late {
                p.put((usize::from(late.node) == i + 1).into(), 1);
            }
            if bounds.reads {
                let watch = k.watch[i];
                p.put(rename(watch.own), 4)
                    .put(watch.seq, 3)
                    .put(watch.age, 2);
            }
        }
        *word = p.hash();
    }
    // Sorted, the words forget which node is which.
    words.sort_unstable();

    let mut p = Packed::default();
    for word in words {
        p.put_wide(word);
    }
    for c in used {
        let k = &w.clients[*c];
        p.next()
            .put(k.phase as u8, 3)
            .put(k.attempt, 2)
            .put(k.tries, 3)
            .put(k.won, 4);
        p.put(k.elapsed, 2)
            .put(k.granted, 3)
            .put(k.token, 4)
            .put(k.valid, 2)
            .put(k.seq, 3);
        p.put(k.extensions, 3)
            .put(k.interrupted.into(), 1)
            .put(k.broken.into(), 1)
            .put(k.verified.into(), 1)
            .put(k.doubted.into(), 1)
            .put(k.floor, 4);
        for late in &k.late {
            p.put(late.owner & 3, 2).put(late.seq, 3).put(late.token, 4);
        }
    }
    p.next()
        .put(w.losses, 3)
        .put(w.saves, 3)
        .put(w.jumps, 3)
        .put(w.forgets, 3)
        .put(w.used, 4);
    p.put(rename(w.target), 4)
        .put(w.broken.into(), 1)
        .put(w.break_token, 4)
        .put_wide(w.tokens.into());
    p.hash()
}

/// Numbers packed into words, which are hashed as they fill.
#[derive(Default)]
struct Packed {
    hash: u64,
    word: u64,
    bits: u32,
}

// === impl Packed ===

impl Packed {
    fn put(&mut self, value: u8, bits: u32) -> &mut Self {
        debug_assert!(
            u32::from(value) < 1 << bits,
            "{value} needs more than {bits} bits"
        );
        if self.bits + bits > 64 {
            self.next();
        }
        self.word = self.word << bits | u64::from(value);
        self.bits += bits;
        self
    }

    fn next(&mut self) -> &mut Self {
        let word = self.word;
        (self.word, self.bits) = (0, 0);
        self.put_wide(word)
    }

    /// A round of a multiply-and-fold hash.
    fn put_wide(&mut self, word: u64) -> &mut Self {
        let x = (self.hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        self.hash = (x ^ x >> 29)
            .rotate_left(17)
            .wrapping_add(0x632b_e59b_d9b4_e019);
        self
    }

    fn hash(&mut self) -> u64 {
        self.next().hash
    }
}

/// For keys that are hashes already.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

// === words ===

fn who(bounds: &Bounds, client: usize) -> String {
    if bounds.is_foreign(client) {
        "F".to_owned()
    } else {
        format!("c{client}")
    }
}

fn lease(bounds: &Bounds, o: Owner) -> String {
    let client = who(bounds, usize::from(o >> 2));
    format!("{client}'s attempt {}", o & 3)
}

/// One line about a step.
fn say<const N: usize>(bounds: &Bounds, before: &World<N>, after: &World<N>, step: Step) -> String {
    let late = |node: u8| match node {
        0 => String::new(),
        node => format!(", its message to node {} is under way", node - 1),
    };
    match step {
        Step::Tick => "a tick".to_owned(),
        Step::Loses(i) => format!("node {i} loses its memory"),
        Step::Saves(i) => format!("node {i} is copied"),
        Step::Restores(i) => format!("node {i} comes back as that older copy"),
        Step::KeyEnds(i) => format!("node {i}: the key ends early"),
        Step::ClockBack(i) => format!("node {i}: the clock goes back, the key stays"),
        Step::Admitted(i) => format!("node {i} is admitted, counter {}", after.nodes[i].counter),
        Step::Forgets(i) => format!("node {i} forgets the released record"),
        Step::Begins(c) => format!(
            "{} begins attempt {}",
            who(bounds, c),
            after.clients[c].attempt
        ),
        Step::Asks(c, i, heard) => {
            let (old, new) = (&before.nodes[i], &after.nodes[i]);
            let wrote = (old.key, old.own, old.seq, old.px, old.age)
                != (new.key, new.own, new.seq, new.px, new.age);
            let vote = match after.clients[c].got[i] {
                0 if !heard => "the reply is lost".to_owned(),
                0 if wrote => "no vote, written anew".to_owned(),
                0 => "no vote".to_owned(),
                number if before.clients[c].phase as u8 == 1 => format!("granted {number}"),
                _ => "yes".to_owned(),
            };
            format!(
                "{} {:?} on node {i}: {vote}",
                who(bounds, c),
                before.clients[c].phase
            )
        }
        Step::Wins(c, node) => {
            let k = &after.clients[c];
            let what = match k.phase as u8 {
                2 => format!("must confirm token {}", k.token),
                _ if k.valid > 0 => format!("HOLDS token {} for {} ticks", k.token, k.valid),
                _ => "has its majority".to_owned(),
            };
            format!("{} {what}{}", who(bounds, c), late(node))
        }
        Step::Fails(c, node) => format!(
            "{} fails in {:?}{}",
            who(bounds, c),
            before.clients[c].phase,
            late(node)
        ),
        Step::Verifies(c) => format!("{} verifies its lease", who(bounds, c)),
        Step::Restarts(c) => format!("{} is started again", who(bounds, c)),
        Step::Precedes(c, i) => format!(
            "the first part of {}'s call reaches node {i}: granted {}",
            who(bounds, c),
            after.nodes[i].claimants[c] >> 2
        ),
        Step::Extends(c) => format!("{} extends, round {}", who(bounds, c), after.clients[c].seq),
        Step::Ends(c) => format!("{} ends its lease", who(bounds, c)),
        Step::Reads(c, i) => format!("{} reads node {i}", who(bounds, c)),
        Step::Arrives(c, kind) => {
            let message = before.clients[c].late[kind];
            let what = ["acquire", "extension"][kind];
            format!(
                "the late {what} of {} reaches node {}",
                lease(bounds, message.owner),
                message.node - 1
            )
        }
        Step::Releases(o, i) => format!("the release of {} reaches node {i}", lease(bounds, o)),
        Step::Breaks(c) => format!("somebody breaks {}'s lease", who(bounds, c)),
        Step::BreakReaches(i) => format!("the break reaches node {i}"),
    }
}
