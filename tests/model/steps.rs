//! Which steps are possible in a state.

use crate::{
    node::{NOBODY, client_of, owner},
    rules::Rule,
    world::{Bounds, Client, Phase, Step, World},
};

// === impl Bounds ===

impl Bounds {
    pub(crate) fn steps<const N: usize>(&self, w: &World<N>, out: &mut Vec<Step>) {
        out.clear();
        out.push(Step::Tick);
        for i in 0..N {
            self.node_steps(w, i, out);
        }
        for c in 0..self.all() {
            self.client_steps(w, c, out);
        }
        for i in 0..N {
            if w.break_todo & (1 << i) != 0 {
                out.push(Step::BreakReaches(i));
            }
        }
    }

    fn node_steps<const N: usize>(&self, w: &World<N>, i: usize, out: &mut Vec<Step>) {
        let n = &w.nodes[i];
        if w.losses < self.losses {
            out.push(Step::Loses(i));
        }
        if w.saves < self.saves && n.saved.is_none() {
            out.push(Step::Saves(i));
        }
        if n.saved.is_some() {
            out.push(Step::Restores(i));
        }
        if n.key != NOBODY && (self.vanish || w.jumps < self.jumps && !self.back) {
            out.push(Step::KeyEnds(i));
        }
        if n.key != NOBODY && self.back && w.jumps < self.jumps && n.px <= self.law.ttl {
            out.push(Step::ClockBack(i));
        }
        if !n.admitted && (n.watched >= self.law.ttl || !self.has(Rule::G2Watch)) {
            out.push(Step::Admitted(i));
        }
        if n.released && w.forgets < self.forgets {
            out.push(Step::Forgets(i));
        }
        for c in 0..self.all() {
            for attempt in 1..=w.clients[c].attempt {
                let o = owner(c, attempt);
                let stands = n.key == o || n.own == o && !n.released;
                let mut late = w.clients[c].late.iter();
                let late = late.any(|l| l.owner == o && usize::from(l.node) == i + 1);
                let untold = late && n.over & (1 << o) == 0;
                let blind = !self.has(Rule::N6CompareOwner) && n.own != NOBODY && !n.released;
                // With the rule off the release leaves while its sender still believes.
                let early = !self.has(Rule::R11BeliefFirst) && w.clients[c].phase == Phase::Held;
                if (stands || untold || blind) && (w.is_over(o) || early) {
                    out.push(Step::Releases(o, i));
                }
            }
        }
    }

    fn client_steps<const N: usize>(&self, w: &World<N>, c: usize, out: &mut Vec<Step>) {
        let client = &w.clients[c];
        for (kind, late) in client.late.iter().enumerate() {
            if late.node > 0 {
                out.push(Step::Arrives(c, kind));
            }
        }
        match client.phase {
            Phase::Idle => {
                let begun: u8 = w.clients.iter().map(|k| k.tries).sum();
                if client.tries < self.attempts[c] && begun < self.total {
                    out.push(Step::Begins(c));
                }
                self.read_steps(w, c, out);
            }
            Phase::Held => {
                if client.extensions < self.extensions[c] {
                    out.push(Step::Extends(c));
                }
                if self.breaks && w.target == NOBODY {
                    out.push(Step::Breaks(c));
                }
                out.push(Step::Ends(c));
                self.read_steps(w, c, out);
            }
            Phase::Acquiring | Phase::Confirming | Phase::Extending => {
                for i in 0..N {
                    if client.todo & (1 << i) != 0 {
                        out.push(Step::Asks(c, i, true));
                        if self.lost {
                            out.push(Step::Asks(c, i, false));
                        }
                    }
                }
                let won = self.is_won(client);
                let mut end = |late| {
                    out.push(Step::Fails(c, late));
                    if won {
                        out.push(Step::Wins(c, late));
                    }
                };
                end(0);
                if self.late && client.phase != Phase::Confirming {
                    for i in 0..N {
                        if self.twice || client.todo & (1 << i) != 0 {
                            end(i as u8 + 1);
                        }
                    }
                }
            }
        }
    }

    fn read_steps<const N: usize>(&self, w: &World<N>, c: usize, out: &mut Vec<Step>) {
        // Only those watch that never hold in these scenarios.
        if !self.reads || self.extensions[c] > 0 {
            return;
        }
        for (i, (n, watch)) in w.nodes.iter().zip(&w.clients[c].watch).enumerate() {
            let ours = client_of(n.own) == c;
            let news = (n.own, n.seq) != (watch.own, watch.seq);
            if n.own != NOBODY && !n.released && !ours && news {
                out.push(Step::Reads(c, i));
            }
        }
    }

    /// Has this round its majority in time?
    fn is_won<const N: usize>(&self, client: &Client<N>) -> bool {
        let in_time = client.elapsed < self.law.ttl || !self.has(Rule::R3Validity);
        let enough = match client.phase {
            Phase::Confirming if !self.has(Rule::T2Configured) => {
                usize::from(client.granted) / 2 + 1
            }
            _ => World::<N>::QUORUM,
        };
        let held = client.valid > 0 || !self.has(Rule::R8OldDeadline);
        client.votes() >= enough && in_time && (client.phase != Phase::Extending || held)
    }
}
