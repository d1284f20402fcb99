//! Which steps are possible in a state.

use crate::{
    node::{Law, Mark, NOBODY, Node, owner},
    rules::Rule,
    world::{Bounds, Client, Phase, Step, Watch, World},
};

// === impl Bounds ===

impl Bounds {
    pub(crate) fn steps<const N: usize>(&self, w: &World<N>, out: &mut Vec<Step>) {
        out.clear();
        out.push(Step::Tick);
        if w.silent > 0 {
            self.arrivals(w, out);
            return;
        }
        if self.silence > 0 {
            out.push(Step::Silence);
        }
        for i in 0..N {
            self.node_steps(w, i, out);
            if w.target != NOBODY {
                self.break_steps(w, i, out);
            }
        }
        self.arrivals(w, out);
        for c in (0..self.clients).filter(|c| !w.clients[*c].crashed) {
            self.client_steps(w, c, out);
        }
    }

    fn arrivals<const N: usize>(&self, w: &World<N>, out: &mut Vec<Step>) {
        for (c, k) in w.clients.iter().enumerate() {
            for (kind, late) in k.late.iter().enumerate() {
                for i in (0..N).filter(|i| late.nodes & 1 << i != 0) {
                    out.push(Step::Arrives(c as u8, kind as u8, i as u8));
                }
            }
        }
    }

    fn node_steps<const N: usize>(&self, w: &World<N>, i: usize, out: &mut Vec<Step>) {
        let n = &w.nodes[i];
        let node = i as u8;
        if w.losses < self.losses {
            out.push(Step::Loses(node));
        }
        if w.tables < self.tables {
            out.push(Step::LosesTable(node));
        }
        if w.evictions < self.evictions && n.key != NOBODY {
            out.push(Step::KeyEnds(node));
        }
        if w.jumps < self.jumps {
            let longest = self.law.longest();
            let shows = n.is_taken() || n.key != NOBODY;
            if self.back && shows && n.left.max(n.px) <= longest {
                out.push(Step::ClockBack(node));
            }
            if !self.back && shows && n.left + n.px > 0 {
                out.push(Step::ClockForward(node));
            }
        }
        if w.saves < self.saves {
            out.push(Step::Saves(node));
        }
        if n.saved.is_some() {
            out.push(Step::Restores(node));
        }
        if w.bumps < self.bumps {
            out.push(Step::Bumps(node));
        }
        if !n.admitted && n.watched >= self.law.admission_watch() {
            self.admission_steps(w, i, out);
        }
        if n.admitted {
            self.sweep_steps(w, i, out);
        }
        if n.mark == Mark::Nothing && n.key == NOBODY && !self.free {
            return;
        }
        for c in 0..self.clients {
            let client = &w.clients[c];
            for attempt in 1..=client.attempt {
                let own = owner(c, attempt);
                let taken = matches!(n.mark, Mark::Held | Mark::Broken);
                let stands = taken && (n.own == own || !self.has(Rule::N6CompareOwner));
                let stands = stands || n.key == own;
                let last = self.free && attempt == client.attempt;
                let owed = if last {
                    client.released & 1 << i == 0
                } else {
                    stands
                };
                // N4': only after its acquire. Elsewhere any order is searched.
                let early =
                    self.free && self.has(Rule::N4Ordered) && self.acquires(w, own, Some(i));
                // With the rule off the release leaves while its sender still believes.
                let held = !self.has(Rule::R11BeliefFirst) && client.phase == Phase::Held;
                if owed && !early && !client.crashed && (w.is_over(own) || held) {
                    out.push(Step::Releases(own, node));
                }
            }
        }
    }

    fn admission_steps<const N: usize>(&self, w: &World<N>, i: usize, out: &mut Vec<Step>) {
        if !self.paged {
            out.push(Step::Admitted(i as u8));
            return;
        }
        let n = &w.nodes[i];
        let others = (0..N).filter(|j| *j != i && w.nodes[*j].admitted);
        let order = if self.has(Rule::G7RecordsFirst) {
            [0, 1]
        } else {
            [1, 0]
        };
        let mut ready = 0;
        for j in others.clone() {
            let read = order.map(|half| n.read[half] & 1 << j != 0);
            ready += usize::from(read[1]);
            if !read[1] {
                let half = order[usize::from(read[0])];
                out.push(Step::Gathers(i as u8, j as u8, half as u8));
            }
        }
        if ready >= World::<N>::ENOUGH.min(others.count()) {
            out.push(Step::Admitted(i as u8));
        }
    }

    fn sweep_steps<const N: usize>(&self, w: &World<N>, i: usize, out: &mut Vec<Step>) {
        let n = &w.nodes[i];
        if !self.sweeps || n.mark == Mark::Nothing {
            return;
        }
        if n.is_taken() {
            // The key would bar the lock without the record.
            if n.key != NOBODY {
                return;
            }
            // The node's own clock says that it is old: a clock may say anything.
            let old = !self.has(Rule::S2SweepWatched) || self.is_ripe(n, 0);
            if self.sweeps_held && old || n.listed {
                out.push(Step::Sweeps(i as u8));
            }
            return;
        }
        let kept =
            self.keeps_releases() && self.has(Rule::S0Retention) && n.age < self.law.longest();
        if !kept {
            out.push(Step::Sweeps(i as u8));
            if !self.has(Rule::S1SweepCompares) && !n.listed {
                out.push(Step::Lists(i as u8));
            }
        }
    }

    fn break_steps<const N: usize>(&self, w: &World<N>, i: usize, out: &mut Vec<Step>) {
        let n = &w.nodes[i];
        let waits = self.has(Rule::B6Waits);
        if !n.told && (!self.now || waits) {
            out.push(Step::BreakReaches(i as u8));
        }
        let too_late = w.broken && !self.acquires(w, w.target, None);
        if self.now && !n.freed && (!waits || too_late) {
            out.push(Step::NowReaches(i as u8));
        }
    }

    fn client_steps<const N: usize>(&self, w: &World<N>, c: usize, out: &mut Vec<Step>) {
        let k = &w.clients[c];
        let me = c as u8;
        if w.crashes < self.crashes && k.attempt > 0 {
            out.push(Step::Crashes(me));
        }
        match k.phase {
            Phase::Idle | Phase::Sleeping => {
                let begun: u8 = w.clients.iter().map(|k| k.attempt).sum();
                let again = k.votes() > 0; // R4 off.
                let woken = k.phase == Phase::Idle || k.called || self.has_something_ripe(w, c);
                if k.attempt < self.attempts[c] && begun < self.total && woken || again {
                    out.push(Step::Begins(me));
                }
                let knows = k.floor > 0 || k.watch != [Watch::default(); N];
                if self.restarts && knows {
                    out.push(Step::Restarts(me));
                }
                self.read_steps(w, c, out);
            }
            Phase::Held => {
                if k.extensions < self.extensions[c] {
                    out.push(Step::Extends(me));
                }
                if self.verifies && !k.verified {
                    out.push(Step::Verifies(me));
                }
                if self.breaks && w.target == NOBODY {
                    out.push(Step::Breaks(me));
                }
                out.push(Step::Ends(me));
                self.read_steps(w, c, out);
            }
            Phase::Acquiring | Phase::Confirming | Phase::Extending | Phase::Verifying => {
                self.round_steps(w, c, out);
            }
        }
    }

    fn round_steps<const N: usize>(&self, w: &World<N>, c: usize, out: &mut Vec<Step>) {
        let k = &w.clients[c];
        let me = c as u8;
        let bounded = matches!(k.phase, Phase::Acquiring | Phase::Extending);
        let too_late = bounded && self.law.is_too_late(k.elapsed, self.law.ttls[c]);
        for i in (0..N).filter(|i| k.todo & 1 << i != 0 && !too_late) {
            out.push(Step::Asks(me, i as u8, true));
            if self.lost {
                out.push(Step::Asks(me, i as u8, false));
            }
        }
        for i in (0..N).filter(|i| k.unflagged & 1 << i != 0) {
            out.push(Step::Flags(me, i as u8));
        }
        if self.wakes && k.phase == Phase::Acquiring && !k.called {
            let enough = if self.has(Rule::W2Enough) {
                World::<N>::ENOUGH
            } else {
                1
            };
            if k.refused.count_ones() as usize >= enough {
                out.push(Step::Sleeps(me));
            }
        }
        let (left, older) = (self.under_way(k, c), self.older(k));
        let won = self.is_won(k, c);
        for leaves in [false, true] {
            let possible = if leaves {
                left != 0
            } else {
                left == 0 || older
            };
            if possible {
                out.push(Step::Fails(me, leaves));
                if won {
                    out.push(Step::Wins(me, leaves));
                }
            }
        }
    }

    /// The nodes that this round's messages may still reach when it has ended.
    pub(crate) fn under_way<const N: usize>(&self, k: &Client<N>, c: usize) -> u8 {
        let kept = matches!(k.phase, Phase::Acquiring | Phase::Extending);
        if !kept || !self.late || self.law.is_too_late(k.elapsed, self.law.ttls[c]) {
            return 0;
        }
        if self.twice { (1 << N) - 1 } else { k.todo }
    }

    /// Whether older messages of the same kind are under way.
    fn older<const N: usize>(&self, k: &Client<N>) -> bool {
        let kind = usize::from(k.phase == Phase::Extending);
        k.late[kind].nodes != 0
    }

    /// What a sleeping client watches has stood for its ttl.
    fn has_something_ripe<const N: usize>(&self, w: &World<N>, c: usize) -> bool {
        let takable = |n: &Node| n.is_taken() && self.may_be_taken(n, c);
        w.nodes.iter().any(takable)
    }

    fn read_steps<const N: usize>(&self, w: &World<N>, c: usize, out: &mut Vec<Step>) {
        // Only those watch that never hold in these scenarios.
        if !self.reads || self.extensions[c] > 0 {
            return;
        }
        for i in (0..N).filter(|i| self.is_news(w, c, *i)) {
            out.push(Step::Reads(c as u8, i as u8));
        }
    }

    /// Does this node show another lease than this client has watched there?
    pub(crate) fn is_news<const N: usize>(&self, w: &World<N>, c: usize, i: usize) -> bool {
        let (n, watch) = (&w.nodes[i], &w.clients[c].watch[i]);
        let ours = n.own == owner(c, w.clients[c].attempt);
        n.is_taken() && !ours && (n.own, n.seq) != (watch.own, watch.seq)
    }

    /// Has this round its majority in time?
    fn is_won<const N: usize>(&self, k: &Client<N>, c: usize) -> bool {
        let in_time = k.elapsed < self.law.ttls[c] || !self.has(Rule::R3Validity);
        let enough = match k.phase {
            Phase::Confirming if !self.has(Rule::T2Configured) => usize::from(k.granted) / 2 + 1,
            _ => World::<N>::QUORUM,
        };
        let held = k.valid > 0 || !self.has(Rule::R8OldDeadline);
        k.votes() >= enough && in_time && (held || !k.has_lease())
    }

    /// What enough other nodes show, by halves that are read at one time.
    pub(crate) fn others<const N: usize>(&self, w: &World<N>, i: usize) -> Vec<u8> {
        let others = w.nodes.iter().enumerate();
        let others = others.filter(|(j, n)| *j != i && n.admitted);
        let larger = |n| Law::halves(n).into_iter().fold(0, u8::max);
        others.map(|(_, n)| larger(n)).collect()
    }
}
