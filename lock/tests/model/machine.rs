//! The machine as the search sees it: its steps, the names of its states, and words for its traces.
//!
//! States that differ only in the names of nodes or of like clients count as one.

use crate::{
    node::{NOBODY, Node, Owner},
    promises::{check, shows},
    shared::{Machine, Packed},
    world::{Bounds, CLIENTS, Client, Phase, Step, World},
};

/// The machine with N nodes within these bounds.
pub(crate) struct Within<'a, const N: usize> {
    bounds: &'a Bounds,
    /// Orders of the clients that make no difference.
    orders: Vec<[usize; CLIENTS]>,
    /// Whether the owners of records of other incarnations matter.
    copies: bool,
}

// === impl Within ===

impl<'a, const N: usize> Within<'a, N> {
    pub(crate) fn new(bounds: &'a Bounds) -> Self {
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
            let ours = ours && !bounds.is_foreign(new) && !bounds.is_foreign(old);
            let same = bounds.attempts[new] == bounds.attempts[old]
                && bounds.extensions[new] == bounds.extensions[old]
                && bounds.law.ttls[new] == bounds.law.ttls[old];
            new == old || ours && same
        };
        let orders = ORDERS.into_iter();
        let orders = orders.filter(|o| o.iter().enumerate().all(|(new, old)| alike(new, *old)));
        Self {
            bounds,
            orders: orders.collect(),
            copies: bounds.trusts_copies(),
        }
    }

    fn ordered_name(&self, w: &World<N>, order: &[usize; CLIENTS]) -> u64 {
        let bounds = self.bounds;
        let mut place = [0_u8; CLIENTS];
        for (new, old) in order.iter().enumerate() {
            place[*old] = new as u8;
        }
        let rename = |own: Owner| match own {
            NOBODY => NOBODY,
            own => place[usize::from(own >> 2)] << 2 | own & 3,
        };
        let used = &order[..bounds.clients];

        let mut words = [0_u64; N];
        for (i, word) in words.iter_mut().enumerate() {
            let mut p = Packed::default();
            self.pack_node(&mut p, &w.nodes[i], rename);
            if bounds.paged {
                // Which node was read: by its place. Nodes of a paged admission keep their names.
                p.put(i as u8, 3);
            }
            for c in used {
                self.pack_node_of(&mut p, &w.clients[*c], i, rename);
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
            self.pack_client(&mut p, &w.clients[*c]);
        }
        p.put(w.losses, 3).put(w.saves, 3).put(w.bumps, 3);
        p.put(w.evictions, 2).put(w.tables, 2).put(w.jumps, 2);
        p.put(w.crashes, 3).put(w.used, 5).put(w.silent, 3);
        if !bounds.exclusion {
            p.put_wide(w.tokens.into());
        }
        if bounds.breaks {
            p.put(rename(w.target), 4)
                .put(w.broken.into(), 1)
                .put(w.break_token, 5);
        }
        p.hash()
    }

    fn pack_node(&self, p: &mut Packed, n: &Node, rename: impl Fn(Owner) -> Owner) {
        let bounds = self.bounds;
        p.put(n.mark as u8, 2).put(rename(n.own), 4).put(n.seq, 3);
        p.put(n.current.into(), 1)
            .put(n.age, 2)
            .put(n.listed.into(), 1);
        p.put(n.counter, 5).put(n.grant, 5).put(n.forgot, 5);
        if bounds.law.raw {
            p.put(rename(n.key), 4).put(n.px, 3);
        }
        if bounds.clocks() {
            p.put(n.left, 3);
        }
        if bounds.losses + bounds.saves + bounds.tables > 0 {
            p.put(n.admitted.into(), 1)
                .put(n.watched, 2)
                .put(n.early, 5);
            p.put(n.gathered, 5).put(n.read[0], 5).put(n.read[1], 5);
        }
        if let Some(saved) = n.saved {
            p.put(1, 1).put(saved.mark as u8, 2);
            p.put(saved.counter, 5).put(saved.forgot, 5);
            if self.copies {
                p.put(rename(saved.own), 4).put(saved.seq, 3);
                p.put(saved.left, 3);
            }
        }
        if bounds.breaks {
            p.put(n.told.into(), 1).put(n.freed.into(), 1);
        }
        p.put(n.flag.into(), 1);
    }

    fn pack_node_of(
        &self,
        p: &mut Packed,
        k: &Client<N>,
        i: usize,
        rename: impl Fn(Owner) -> Owner,
    ) {
        let bounds = self.bounds;
        p.put(k.todo >> i & 1, 1).put(k.got[i], 5);
        p.put(k.ripe >> i & 1, 1);
        if bounds.late {
            for late in &k.late {
                p.put(late.nodes >> i & 1, 1);
            }
        }
        if bounds.free {
            p.put(k.released >> i & 1, 1);
        }
        if bounds.wakes {
            p.put(k.refused >> i & 1, 1).put(k.unflagged >> i & 1, 1);
        }
        if bounds.reads {
            let watch = k.watch[i];
            p.put(rename(watch.own), 4)
                .put(watch.seq, 3)
                .put(watch.age, 2);
        }
    }

    fn pack_client(&self, p: &mut Packed, k: &Client<N>) {
        p.put(k.phase as u8, 3).put(k.attempt, 2).put(k.elapsed, 3);
        p.put(k.granted, 3).put(k.token, 5).put(k.valid, 2);
        p.put(k.seq, 3).put(k.extensions, 3);
        p.put(k.interrupted.into(), 1).put(k.broken.into(), 1);
        p.put(k.verified.into(), 1).put(k.doubted.into(), 1);
        p.put(k.floor, 5).put(k.free, 4);
        p.put(k.called.into(), 1).put(k.crashed.into(), 1);
        if self.bounds.late {
            for late in &k.late {
                p.put(late.attempt, 2).put(late.seq, 3);
                p.put(late.token, 5).put(late.age, 3);
            }
        }
    }
}

impl<const N: usize> Machine for Within<'_, N> {
    type State = World<N>;
    type Step = Step;

    fn start(&self) -> World<N> {
        World::new()
    }

    fn steps(&self, state: &World<N>, out: &mut Vec<Step>) {
        self.bounds.steps(state, out);
    }

    fn act(&self, state: &World<N>, step: Step) -> Result<World<N>, &'static str> {
        self.bounds.act(state, step)
    }

    fn check(&self, state: &World<N>) -> Option<&'static str> {
        check(self.bounds, state)
    }

    fn name(&self, state: &World<N>) -> u64 {
        let orders = self.orders.iter();
        let names = orders.map(|order| self.ordered_name(state, order));
        names.min().unwrap_or(0)
    }

    fn say(&self, before: &World<N>, after: &World<N>, step: Step) -> String {
        let node = |i: u8| shows(&self.bounds.law, &after.nodes[usize::from(i)]);
        let client = |c: u8| &after.clients[usize::from(c)];
        let left = |leaves: bool| {
            if leaves {
                "; the rest is under way"
            } else {
                ""
            }
        };
        match step {
            Step::Tick => "a tick".to_owned(),
            Step::Loses(i) => format!("node {i} loses its memory"),
            Step::LosesTable(i) => format!("node {i} loses its table, and not the plain key"),
            Step::KeyEnds(i) => format!("node {i}: the plain key ends early"),
            Step::ClockForward(i) => format!("node {i}: the clock goes forward: {}", node(i)),
            Step::ClockBack(i) => format!("node {i}: the clock goes back: {}", node(i)),
            Step::Saves(i) => format!("node {i} is copied: {}", node(i)),
            Step::Restores(i) => format!("node {i} comes back as that copy: {}", node(i)),
            Step::Gathers(i, j, 0) => format!("for node {i} the records of node {j} are read"),
            Step::Gathers(i, j, _) => format!("for node {i} `c` of node {j} is read"),
            Step::Admitted(i) => {
                let forgot = after.nodes[usize::from(i)].forgot;
                format!("node {i} is admitted, c {forgot}: {}", node(i))
            }
            Step::Bumps(i) => format!("node {i} forgets another lock: {}", node(i)),
            Step::Lists(i) => format!("a sweep reads node {i}"),
            Step::Sweeps(i) => format!("node {i} is swept: {}", node(i)),
            Step::Begins(c) => format!("c{c} begins attempt {}", client(c).attempt),
            Step::Asks(c, i, heard) => {
                let phase = before.clients[usize::from(c)].phase;
                let vote = match client(c).got[usize::from(i)] {
                    _ if !heard => "not heard".to_owned(),
                    0 => "no vote".to_owned(),
                    number if phase == Phase::Acquiring => format!("granted {number}"),
                    _ => "yes".to_owned(),
                };
                format!("c{c} {phase:?} on node {i}: {vote}; {}", node(i))
            }
            Step::Wins(c, leaves) => {
                let k = client(c);
                let what = match k.phase {
                    Phase::Confirming => format!("must confirm token {}", k.token),
                    _ => format!("HOLDS, token {}, for {} ticks", k.token, k.valid),
                };
                format!("c{c} {what}{}", left(leaves))
            }
            Step::Fails(c, leaves) => {
                let phase = before.clients[usize::from(c)].phase;
                format!("c{c} fails in {phase:?}{}", left(leaves))
            }
            Step::Sleeps(c) => format!("c{c} fails, and sleeps"),
            Step::Flags(c, i) => format!("node {i} hears that c{c} waits: {}", node(i)),
            Step::Extends(c) => format!("c{c} extends, round {}", client(c).seq),
            Step::Verifies(c) => format!("c{c} verifies its lease"),
            Step::Ends(c) => format!("c{c} ends its lease"),
            Step::Reads(c, i) => format!("c{c} reads node {i}: {}", node(i)),
            Step::Restarts(c) => format!("c{c} is started again"),
            Step::Silence => "all clients stop for good".to_owned(),
            Step::Crashes(c) => format!("c{c} stops for good"),
            Step::Arrives(c, kind, i) => {
                let what = ["acquire", "extension"][usize::from(kind)];
                format!("a late {what} of c{c} reaches node {i}: {}", node(i))
            }
            Step::Releases(own, i) => {
                format!(
                    "the release of c{}.{} reaches node {i}: {}",
                    own >> 2,
                    own & 3,
                    node(i)
                )
            }
            Step::Breaks(c) => format!("c{c}'s lease is to be broken"),
            Step::BreakReaches(i) => format!("the break reaches node {i}: {}", node(i)),
            Step::NowReaches(i) => format!("`now` reaches node {i}: {}", node(i)),
        }
    }

    fn say_last(&self, before: &World<N>, step: Step) -> String {
        match step {
            Step::Wins(c, _) => {
                let phase = before.clients[usize::from(c)].phase;
                format!("c{c} has its majority in {phase:?}")
            }
            Step::Arrives(_, _, i) | Step::Asks(_, i, _) => {
                let n = &before.nodes[usize::from(i)];
                format!("{step:?} finds {}", shows(&self.bounds.law, n))
            }
            step => self.say(before, before, step),
        }
    }
}
