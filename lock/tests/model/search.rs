//! The machine of this model, as the search sees it: its steps, the names of its states, and words for its traces.
//!
//! States that differ only in the names of nodes or of like clients count as one.

use crate::{
    node::{NOBODY, Owner},
    quiet,
    shared::{Machine, Packed},
    world::{Bounds, CLIENTS, Step, World},
};

/// The machine with N nodes within these bounds.
pub(crate) struct Within<'a, const N: usize>(pub(crate) &'a Bounds);

// === impl Within ===

impl<const N: usize> Machine for Within<'_, N> {
    type State = World<N>;
    type Step = Step;

    fn start(&self) -> World<N> {
        World::new()
    }

    fn steps(&self, state: &World<N>, out: &mut Vec<Step>) {
        self.0.steps(state, out);
    }

    fn act(&self, state: &World<N>, step: Step) -> Result<World<N>, &'static str> {
        self.0.act(state, step)
    }

    fn check(&self, state: &World<N>) -> Option<&'static str> {
        self.0
            .liveness
            .then(|| quiet::check(self.0, state))
            .flatten()
    }

    fn name(&self, state: &World<N>) -> u64 {
        name(self.0, state)
    }

    fn say(&self, before: &World<N>, after: &World<N>, step: Step) -> String {
        say(self.0, before, after, step)
    }

    fn say_last(&self, before: &World<N>, step: Step) -> String {
        match step {
            Step::Wins(c, _) => format!(
                "{} has its majority in {:?}",
                who(self.0, c),
                before.clients[c].phase
            ),
            step => say(self.0, before, before, step),
        }
    }
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
