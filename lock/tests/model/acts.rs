//! What a step does, and which promise it may break.

use crate::{
    node::{Answer, Expiry, Law, Mark, NOBODY, Node, Owner, Saved, owner},
    rules::Rule,
    world::{Bounds, CLIENTS, Late, Phase, Step, Watch, World},
};

/// What a client asks of a node.
#[derive(Clone, Copy)]
struct Message {
    phase: Phase,
    owner: Owner,
    seq: u8,
    token: u8,
}

// === impl Bounds ===

impl Bounds {
    /// The world after a step, or the promise that it broke.
    pub(crate) fn act<const N: usize>(
        &self,
        w: &World<N>,
        step: Step,
    ) -> Result<World<N>, &'static str> {
        let mut t = *w;
        match step {
            Step::Tick => self.tick(&mut t),
            Step::Begins(c) => self.begin(&mut t, usize::from(c)),
            Step::Asks(c, i, heard) => self.ask(&mut t, usize::from(c), usize::from(i), heard)?,
            Step::Wins(c, leaves) => self.win(&mut t, usize::from(c), leaves)?,
            Step::Fails(c, leaves) => self.fail(&mut t, usize::from(c), leaves),
            Step::Extends(c) => {
                let c = usize::from(c);
                let broken = t.broken && t.target == owner(c, t.clients[c].attempt);
                let k = &mut t.clients[c];
                k.round(Phase::Extending);
                (k.elapsed, k.seq, k.broken) = (0, k.seq + 1, broken);
                k.extensions += 1;
            }
            Step::Verifies(c) => {
                let c = usize::from(c);
                let broken = t.broken && t.target == owner(c, t.clients[c].attempt);
                let k = &mut t.clients[c];
                k.round(Phase::Verifying);
                (k.verified, k.doubted, k.broken) = (true, k.interrupted, broken);
            }
            Step::Ends(c) => t.clients[usize::from(c)].give_up(),
            Step::Sleeps(c) => {
                let k = &mut t.clients[usize::from(c)];
                k.give_up();
                k.phase = Phase::Sleeping;
            }
            Step::Flags(c, i) => {
                let n = &mut t.nodes[usize::from(i)];
                n.flag |= n.is_taken();
                let k = &mut t.clients[usize::from(c)];
                k.unflagged &= !(1 << i);
                k.refused |= 1 << i;
            }
            Step::Reads(c, i) => self.note(&mut t, usize::from(c), usize::from(i)),
            Step::Restarts(c) => {
                let k = &mut t.clients[usize::from(c)];
                (k.floor, k.watch) = (0, [Watch::default(); N]);
            }
            Step::Crashes(c) => {
                let k = &mut t.clients[usize::from(c)];
                k.give_up();
                k.crashed = true;
                t.crashes += 1;
            }
            Step::Silence => {
                // What a round has not reached yet arrives late.
                for c in 0..self.clients {
                    self.keep_late(&mut t, c, true);
                    t.clients[c].give_up();
                    t.clients[c].crashed = true;
                }
                t.silent = 1;
            }
            Step::Arrives(c, kind, i) => {
                let (c, kind) = (usize::from(c), usize::from(kind));
                let late = t.clients[c].late[kind];
                t.clients[c].late[kind].nodes &= !(1 << i);
                let message = Message {
                    phase: [Phase::Acquiring, Phase::Extending][kind],
                    owner: owner(c, late.attempt),
                    seq: late.seq,
                    token: late.token,
                };
                self.execute(&mut t, c, usize::from(i), message)?;
            }
            Step::Releases(own, i) => self.release(&mut t, own, usize::from(i)),
            Step::Breaks(c) => {
                let c = usize::from(c);
                t.target = owner(c, t.clients[c].attempt);
                let known = w.nodes.iter().map(|n| self.law.base(n)).max();
                t.break_token = known.unwrap_or(0) + 1;
            }
            Step::BreakReaches(i) | Step::NowReaches(i) => {
                let now = matches!(step, Step::NowReaches(_));
                let n = &mut t.nodes[usize::from(i)];
                let (told, tells) = self.law.break_lock(n, w.target, w.break_token, now);
                n.told |= told;
                n.freed |= told && now;
                let all = t.nodes.iter().filter(|n| n.told).count();
                t.broken = all >= World::<N>::QUORUM;
                self.announce(&mut t, tells);
            }
            step => self.act_on_node(&mut t, step),
        }
        let clock = matches!(step, Step::ClockForward(_) | Step::ClockBack(_));
        let passive = clock || matches!(step, Step::Tick | Step::Loses(_) | Step::KeyEnds(_));
        let own = matches!(step, Step::Releases(own, _) if self.law.is_foreign(own));
        for (before, after) in w.nodes.iter().zip(&t.nodes) {
            let touched = (before.key, before.px) != (after.key, after.px);
            if self.law.is_foreign(before.key) && touched && !passive && !own {
                return Err("a foreign client's key was touched");
            }
        }
        for c in 0..CLIENTS {
            let other = (0..CLIENTS).any(|d| d != c && t.clients[d].believes());
            t.clients[c].doubted &= other;
        }
        self.tidy(&mut t);
        Ok(t)
    }

    /// Faults, admissions and sweeps.
    fn act_on_node<const N: usize>(&self, t: &mut World<N>, step: Step) {
        match step {
            Step::Loses(i) => {
                let i = usize::from(i);
                let early = self.others(t, i).into_iter().fold(0, u8::max);
                t.losses += 1;
                t.nodes[i] = Node {
                    early,
                    admitted: !self.guard,
                    saved: t.nodes[i].saved,
                    ..Node::default()
                };
            }
            Step::LosesTable(i) => {
                let n = &mut t.nodes[usize::from(i)];
                *n = Node {
                    key: n.key,
                    px: n.px,
                    ..Node::default()
                };
                t.tables += 1;
            }
            Step::KeyEnds(i) => {
                let n = &mut t.nodes[usize::from(i)];
                (n.key, n.px) = (NOBODY, 0);
                t.evictions += 1;
            }
            Step::ClockForward(i) => {
                let n = &mut t.nodes[usize::from(i)];
                (n.left, n.key, n.px) = (0, NOBODY, 0);
                t.jumps += 1;
            }
            Step::ClockBack(i) => {
                let n = &mut t.nodes[usize::from(i)];
                n.left = 7;
                n.px = if n.key == NOBODY { 0 } else { 7 };
                t.jumps += 1;
            }
            Step::Saves(i) => {
                let n = &mut t.nodes[usize::from(i)];
                n.saved = Some(Saved {
                    mark: n.mark,
                    own: n.own,
                    seq: n.seq,
                    counter: n.counter,
                    left: n.left,
                    forgot: n.forgot,
                });
                t.saves += 1;
            }
            Step::Restores(i) => {
                let i = usize::from(i);
                let early = self.others(t, i).into_iter().fold(0, u8::max);
                let n = &mut t.nodes[i];
                let saved = n.saved.unwrap_or_default();
                *n = Node {
                    mark: saved.mark,
                    own: saved.own,
                    seq: saved.seq,
                    counter: saved.counter,
                    left: saved.left,
                    forgot: saved.forgot,
                    // Without the marker it is not seen that this is another life of the memory.
                    current: !self.has(Rule::G1Marker) || !self.guard,
                    admitted: !self.guard,
                    early,
                    ..Node::default()
                };
            }
            Step::Gathers(i, j, half) => {
                let half = usize::from(half);
                let known = Law::halves(&t.nodes[usize::from(j)])[half];
                let n = &mut t.nodes[usize::from(i)];
                n.read[half] |= 1 << j;
                n.gathered = n.gathered.max(known);
            }
            Step::Admitted(i) => {
                let i = usize::from(i);
                let others = self.others(t, i);
                let enough = World::<N>::ENOUGH;
                let read = others.len() >= enough;
                let floor = match self.paged && read {
                    true => t.nodes[i].gathered,
                    false => self.law.admission(&t.nodes[i], &others, enough, t.used),
                };
                let n = &mut t.nodes[i];
                n.forgot = n.forgot.max(floor);
                // The nonce of this admission is the new incarnation: an older record names no owner.
                (n.admitted, n.current) = (true, false);
                (n.watched, n.early, n.read, n.gathered) = (0, 0, [0; 2], 0);
            }
            Step::Bumps(i) => {
                t.nodes[usize::from(i)].forgot += 1;
                t.bumps += 1;
            }
            Step::Lists(i) => t.nodes[usize::from(i)].listed = true,
            Step::Sweeps(i) => {
                let n = &mut t.nodes[usize::from(i)];
                let tells = self.law.sweep(n);
                n.listed = false;
                self.announce(t, tells);
            }
            _ => {}
        }
    }

    fn tick<const N: usize>(&self, t: &mut World<N>) {
        let ttl = self.law.longest();
        if t.silent > 0 {
            t.silent = (t.silent + 1).min(self.silence + 1);
        }
        for n in &mut t.nodes {
            n.age = (n.age + 1).min(ttl);
            n.watched = (n.watched + 1).min(ttl);
            n.left = n.left.saturating_sub(1);
            if let Some(saved) = &mut n.saved {
                saved.left = saved.left.saturating_sub(1);
            }
            n.px = n.px.saturating_sub(1);
            if n.px == 0 {
                n.key = NOBODY;
            }
        }
        let late_end = !self.has(Rule::R8OldDeadline);
        let rounds_end = self.has(Rule::R3Validity)
            && self.has(Rule::N2Bound)
            && self.has(Rule::N2Exclusive)
            && self.has(Rule::R4OneRound)
            && !self.wakes;
        for (c, k) in t.clients.iter_mut().enumerate() {
            for watch in &mut k.watch {
                watch.age = (watch.age + 1).min(ttl);
            }
            k.elapsed = (k.elapsed + 1).min(ttl + 1);
            for late in &mut k.late {
                late.age += 1;
                if self.law.is_too_late(late.age, self.law.ttls[c]) {
                    late.nodes = 0;
                }
            }
            let acquires = matches!(k.phase, Phase::Acquiring | Phase::Confirming);
            // It can no longer be won, and what it has sent is too late: nothing is left to decide.
            if acquires && rounds_end && k.elapsed >= self.law.ttls[c] {
                self.end(k);
            }
            if k.valid > 0 {
                k.valid -= 1;
                // The local deadline: whatever the network says.
                if k.valid == 0 && !(k.phase == Phase::Extending && late_end) {
                    k.give_up();
                }
            }
        }
    }

    /// An attempt ends without a lease. O3: with the rule off its release has nothing to do.
    fn end<const N: usize>(&self, k: &mut crate::world::Client<N>) {
        if self.free && !self.has(Rule::O3MarkReleased) {
            k.free |= 1 << k.attempt;
        }
        k.give_up();
    }

    fn begin<const N: usize>(&self, t: &mut World<N>, c: usize) {
        let mut ripe = 0;
        for i in 0..N {
            let n = &t.nodes[i];
            let looks = if self.reads {
                let watch = t.clients[c].watch[i];
                watch.own != NOBODY && watch.age >= self.watch_time(c, watch.own)
            } else {
                // Judged by the client, not compared by the node.
                let takable = !n.is_taken() || self.is_ripe(n, c) || self.knows_over(t, n.own);
                !self.has(Rule::O1Expected) && takable
            };
            ripe |= u8::from(looks) << i;
        }
        let after_break = t.broken && self.tokens;
        let k = &mut t.clients[c];
        if k.votes() > 0 {
            // R4 off: the old votes and the old owner value.
            let todo = (0..N).filter(|i| k.got[*i] == 0);
            k.todo = todo.fold(0, |nodes, i| nodes | 1 << i);
            (k.phase, k.elapsed) = (Phase::Acquiring, 0);
            return;
        }
        k.settle(Phase::Idle);
        k.attempt += 1;
        k.round(Phase::Acquiring);
        (k.ripe, k.released, k.broken) = (ripe, 0, after_break);
    }

    fn ask<const N: usize>(
        &self,
        t: &mut World<N>,
        c: usize,
        i: usize,
        heard: bool,
    ) -> Result<(), &'static str> {
        let k = t.clients[c];
        let message = Message {
            phase: k.phase,
            owner: owner(c, k.attempt),
            seq: k.seq,
            token: k.token,
        };
        let answer = self.execute(t, c, i, message)?;
        let known = self.law.base(&t.nodes[i]);
        let k = &mut t.clients[c];
        k.todo &= !(1 << i);
        if !heard {
            return Ok(());
        }
        match answer {
            Answer::Granted(grant) => k.got[i] = grant.max(1),
            Answer::Kept | Answer::Done => k.got[i] = 1,
            Answer::Healed if !self.has(Rule::R9NextRound) => k.got[i] = 1,
            Answer::Larger(token) => {
                // The token is raised and confirmed again, on all nodes.
                k.token = k.token.max(token);
                k.round(Phase::Confirming);
            }
            Answer::Refused => {
                if self.wakes && k.phase == Phase::Acquiring {
                    match self.has(Rule::W3Atomic) {
                        true => k.refused |= 1 << i,
                        false => k.unflagged |= 1 << i,
                    }
                }
                if self.floors {
                    k.floor = k.floor.max(known);
                }
                // A refusal shows the record, like a read.
                let looks = self.reads && k.phase != Phase::Verifying;
                if looks && self.is_news(t, c, i) {
                    self.note(t, c, i);
                }
            }
            Answer::Unadmitted if self.wakes && !self.has(Rule::W2Voters) => k.refused |= 1 << i,
            Answer::Healed | Answer::Unadmitted => {}
        }
        Ok(())
    }

    /// Has a message executed on a node.
    fn execute<const N: usize>(
        &self,
        t: &mut World<N>,
        c: usize,
        i: usize,
        message: Message,
    ) -> Result<Answer, &'static str> {
        let Message {
            phase,
            owner: me,
            seq,
            token,
        } = message;
        if self.is_foreign(c) {
            let n = &mut t.nodes[i];
            if n.key != NOBODY {
                return Ok(Answer::Refused);
            }
            (n.key, n.px) = (me, self.law.ttls[c]);
            return Ok(Answer::Granted(1));
        }
        let floor = t.clients[c].floor;
        let expected = self.expected(t, c, i);
        let n = &mut t.nodes[i];
        let dead = self.law.is_dead(n, me);
        let answer = match phase {
            Phase::Confirming => self.law.confirm(n, me, token),
            Phase::Verifying => self.law.shows(n, me),
            Phase::Extending => self.law.extend(n, me, seq, token, expected),
            _ => self.law.acquire(n, me, floor, expected, self.wakes),
        };
        if dead && matches!(answer, Answer::Granted(_) | Answer::Kept | Answer::Healed) {
            return Err("a released lease was revived");
        }
        Ok(answer)
    }

    fn release<const N: usize>(&self, t: &mut World<N>, own: Owner, i: usize) {
        let tells = self.law.release(&mut t.nodes[i], own);
        let k = &mut t.clients[usize::from(own >> 2)];
        if self.free && own & 3 == k.attempt {
            k.released |= 1 << i;
            if k.released == (1 << N) - 1 {
                k.free |= 1 << k.attempt;
            }
        }
        self.announce(t, tells);
    }

    /// All that sleep or try hear of it.
    fn announce<const N: usize>(&self, t: &mut World<N>, tells: bool) {
        let remembered = self.has(Rule::W5Remembered);
        for k in &mut t.clients {
            let tries = matches!(k.phase, Phase::Acquiring | Phase::Confirming) && remembered;
            k.called |= tells && self.wakes && (k.phase == Phase::Sleeping || tries);
        }
    }

    fn keep_late<const N: usize>(&self, t: &mut World<N>, c: usize, leaves: bool) {
        let nodes = self.under_way(&t.clients[c], c);
        let k = &mut t.clients[c];
        if !leaves || nodes == 0 {
            return;
        }
        let extends = k.phase == Phase::Extending;
        let bounded = self.has(Rule::N2Bound);
        k.late[usize::from(extends)] = Late {
            nodes,
            attempt: k.attempt,
            seq: if extends { k.seq } else { 0 },
            token: if extends { k.token } else { 0 },
            age: if bounded { k.elapsed } else { 0 },
        };
    }

    fn fail<const N: usize>(&self, t: &mut World<N>, c: usize, leaves: bool) {
        self.keep_late(t, c, leaves);
        let k = &mut t.clients[c];
        match k.phase {
            // A failed extension changes nothing.
            Phase::Extending | Phase::Verifying if k.valid > 0 => k.settle(Phase::Held),
            Phase::Extending | Phase::Verifying => k.give_up(),
            Phase::Acquiring if !self.has(Rule::R4OneRound) => {
                (k.phase, k.todo, k.elapsed) = (Phase::Idle, 0, 0);
            }
            _ => self.end(k),
        }
    }

    fn win<const N: usize>(
        &self,
        t: &mut World<N>,
        c: usize,
        leaves: bool,
    ) -> Result<(), &'static str> {
        self.keep_late(t, c, leaves);
        let k = &mut t.clients[c];
        if k.phase == Phase::Verifying {
            if k.doubted {
                return Err("a verification confirmed what another holds");
            }
            if k.broken {
                return Err("a verification confirmed a broken lease");
            }
            k.settle(Phase::Held);
            return Ok(());
        }
        let valid = match self.has(Rule::R3Validity) {
            true => self.law.ttls[c] - k.elapsed,
            false => self.law.ttls[c],
        };
        match k.phase {
            Phase::Extending => {
                // A break with `now` overrules a round that is under way: that one may still count.
                let overruled = self.now && t.target == owner(c, k.attempt);
                if k.broken {
                    return Err("a broken lease was extended");
                }
                if k.interrupted && self.exclusion && !overruled {
                    return Err("a lease went on over another holder's");
                }
                k.settle(Phase::Held);
                k.valid = valid;
                self.one_holder(t, c)
            }
            Phase::Acquiring => {
                let grants = || k.got.iter().copied().filter(|g| *g > 0);
                let same =
                    grants().find(|t| grants().filter(|g| g == t).count() >= World::<N>::QUORUM);
                let largest = grants().max().unwrap_or(0);
                k.granted = k.votes() as u8;
                match same {
                    // T1: one same number from a majority is the token.
                    Some(token) => self.hold(t, c, token, valid),
                    None if self.has(Rule::T2Confirm) => {
                        k.token = largest;
                        k.round(Phase::Confirming);
                        Ok(())
                    }
                    None => self.hold(t, c, largest, valid),
                }
            }
            _ => {
                let token = k.token;
                self.hold(t, c, token, valid)
            }
        }
    }

    fn hold<const N: usize>(
        &self,
        t: &mut World<N>,
        c: usize,
        token: u8,
        valid: u8,
    ) -> Result<(), &'static str> {
        let k = &mut t.clients[c];
        let after_break = k.broken;
        k.settle(Phase::Held);
        (k.valid, k.token, k.interrupted) = (valid, token, false);
        if self.floors {
            k.floor = k.floor.max(token);
        }
        if self.tokens && !self.is_foreign(c) {
            if t.tokens & 1 << token != 0 {
                return Err("a token was given twice");
            }
            if token <= t.used && self.exclusion {
                return Err("a token did not rise");
            }
            if after_break && token <= t.break_token {
                return Err("a token is not above the one that the break took");
            }
            t.used = t.used.max(token);
            if !self.exclusion {
                t.tokens |= 1 << token;
            }
        }
        for d in (0..CLIENTS).filter(|d| *d != c) {
            if t.clients[d].has_lease() {
                t.clients[d].interrupted = true;
            }
        }
        self.one_holder(t, c)
    }

    /// Takes note of what a node shows, as of now.
    fn note<const N: usize>(&self, t: &mut World<N>, c: usize, i: usize) {
        let n = &t.nodes[i];
        t.clients[c].watch[i] = Watch {
            own: n.own,
            seq: n.seq,
            // With the rule off the question left a tick ago, and the watch counts from there.
            age: u8::from(!self.has(Rule::O2FromReply)),
        };
    }

    fn one_holder<const N: usize>(&self, t: &World<N>, c: usize) -> Result<(), &'static str> {
        // A break with `now` overrules the holder, who believes until its next round or its deadline.
        if !self.exclusion {
            return Ok(());
        }
        let overruled =
            |d: usize| self.now && t.target != NOBODY && t.target == owner(d, t.clients[d].attempt);
        let mut others = (0..CLIENTS).filter(|d| *d != c && t.clients[*d].believes());
        match others.find(|d| !overruled(*d)) {
            Some(d) if !overruled(c) && (self.is_foreign(c) || self.is_foreign(d)) => {
                Err("two holders, one of them foreign")
            }
            Some(_) if !overruled(c) => Err("two holders"),
            _ => Ok(()),
        }
    }

    /// Forgets what can make no difference any more.
    fn tidy<const N: usize>(&self, t: &mut World<N>) {
        let counts = self.counts();
        let trusts_copies = self.trusts_copies();
        for n in &mut t.nodes {
            if n.mark == Mark::Nothing || !n.current && !trusts_copies {
                // Names no owner: only its counter is left of it.
                (n.own, n.seq, n.flag) = (NOBODY, 0, false);
                if n.mark != Mark::Nothing {
                    n.mark = Mark::Released;
                } else {
                    n.counter = 0;
                }
            }
            if n.mark == Mark::Released {
                n.seq = 0;
            }
            // Of a record that may be taken, only S0 asks how long it has stood.
            let watched = self.law.expiry == Expiry::Observed || self.sweeps_held;
            let ages = n.is_taken() && !self.reads && watched;
            let kept = n.mark == Mark::Released && self.keeps_releases();
            if !ages && !kept {
                n.age = 0;
            }
            let lives = matches!(n.mark, Mark::Held | Mark::Broken);
            if !self.clocks() || !lives || !n.current && !trusts_copies {
                n.left = 0;
            }
            // A grant is asked for only while its attempt is under way.
            let owner_of = usize::from(n.own >> 2);
            let k = &t.clients[owner_of];
            let asked = matches!(k.phase, Phase::Acquiring | Phase::Confirming);
            if n.own & 3 != k.attempt || !asked {
                n.grant = 0;
            }
            if n.admitted {
                n.watched = 0;
            }
            if !counts {
                (n.counter, n.grant, n.forgot, n.early) = (0, 0, 0, 0);
            }
            if let Some(saved) = &mut n.saved {
                if !trusts_copies {
                    let mark = saved.mark;
                    let none = mark == Mark::Nothing;
                    (saved.own, saved.seq, saved.left) = (NOBODY, 0, 0);
                    saved.mark = if none { mark } else { Mark::Released };
                }
                if !counts {
                    (saved.counter, saved.forgot) = (0, 0);
                }
            }
        }
        for k in &mut t.clients {
            if k.rests() || matches!(k.phase, Phase::Held | Phase::Verifying) {
                k.elapsed = 0;
            }
            for late in &mut k.late {
                if late.nodes == 0 {
                    *late = Late::default();
                }
                if !self.has(Rule::N2Bound) {
                    late.age = 0;
                }
            }
            for watch in &mut k.watch {
                if watch.own == NOBODY {
                    watch.age = 0;
                }
            }
        }
        if !counts {
            t.break_token = 0;
        }
    }
}
