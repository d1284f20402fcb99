//! Which steps are possible in a state.

use crate::{
    node::{Law, NOBODY, owner},
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
        if n.key != NOBODY && self.back && w.jumps < self.jumps && n.px <= self.law.longest() {
            out.push(Step::ClockBack(i));
        }
        if !n.admitted && n.watched >= self.law.admission_watch() {
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
                let knows = client.floor > 0 || client.watch.iter().any(|w| w.own != NOBODY);
                if self.restarts && knows {
                    out.push(Step::Restarts(c));
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
                if self.verifies && !client.verified {
                    out.push(Step::Verifies(c));
                }
                out.push(Step::Ends(c));
                self.read_steps(w, c, out);
            }
            Phase::Acquiring | Phase::Confirming | Phase::Extending | Phase::Verifying => {
                for i in 0..N {
                    if client.todo & (1 << i) != 0 {
                        let me = owner(c, client.attempt);
                        let first = self.parts && client.phase == Phase::Acquiring;
                        if first && Law::claimant(&w.nodes[i], me) == 0 {
                            out.push(Step::Precedes(c, i));
                        }
                        out.push(Step::Asks(c, i, true));
                        if self.lost {
                            out.push(Step::Asks(c, i, false));
                        }
                    }
                }
                let won = self.is_won(client, c);
                let mut end = |late| {
                    out.push(Step::Fails(c, late));
                    if won {
                        out.push(Step::Wins(c, late));
                    }
                };
                end(0);
                let kept = matches!(client.phase, Phase::Acquiring | Phase::Extending);
                if self.late && kept {
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
        for i in (0..N).filter(|i| self.is_news(w, c, *i)) {
            out.push(Step::Reads(c, i));
        }
    }

    /// Does this node show another lease than this client has watched there?
    pub(crate) fn is_news<const N: usize>(&self, w: &World<N>, c: usize, i: usize) -> bool {
        let (n, watch) = (&w.nodes[i], &w.clients[c].watch[i]);
        let ours = n.own == owner(c, w.clients[c].attempt);
        let news = (n.own, n.seq) != (watch.own, watch.seq);
        n.own != NOBODY && !n.released && !ours && news
    }

    /// Has this round its majority in time?
    fn is_won<const N: usize>(&self, client: &Client<N>, c: usize) -> bool {
        let in_time = client.elapsed < self.law.ttls[c] || !self.has(Rule::R3Validity);
        let enough = match client.phase {
            Phase::Confirming if !self.has(Rule::T2Configured) => {
                usize::from(client.granted) / 2 + 1
            }
            _ => World::<N>::QUORUM,
        };
        let held = client.valid > 0 || !self.has(Rule::R8OldDeadline);
        let leased = matches!(client.phase, Phase::Extending | Phase::Verifying);
        client.votes() >= enough && in_time && (held || !leased)
    }
}
