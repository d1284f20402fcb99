//! What a step does, and which promise it may break.

use crate::{
    node::{Answer, Expiry, NOBODY, Node, Owner, client_of, owner},
    rules::Rule,
    world::{Bounds, CLIENTS, Client, Late, Phase, Step, Watch, World},
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
            Step::Loses(i) => {
                let others = t
                    .nodes
                    .iter()
                    .enumerate()
                    .filter(|(j, n)| *j != i && n.admitted);
                let early_floor = others.map(|(_, n)| n.counter).max().unwrap_or(0);
                t.losses += 1;
                t.nodes[i] = Node {
                    early_floor,
                    saved: t.nodes[i].saved,
                    admitted: !self.guard,
                    ..Node::default()
                };
            }
            Step::Saves(i) => {
                let n = &mut t.nodes[i];
                n.saved = Some((n.own, n.seq, n.released, n.counter));
                t.saves += 1;
            }
            Step::Restores(i) => {
                let n = &mut t.nodes[i];
                if let Some((own, seq, released, counter)) = n.saved.take() {
                    *n = Node {
                        own,
                        seq,
                        released,
                        counter,
                        named: true,
                        admitted: !self.guard,
                        ..Node::default()
                    };
                }
            }
            Step::KeyEnds(i) => {
                (t.nodes[i].key, t.nodes[i].px) = (NOBODY, 0);
                t.jumps += u8::from(!self.vanish);
            }
            Step::ClockBack(i) => {
                t.nodes[i].px = 7;
                t.jumps += 1;
            }
            Step::Admitted(i) => {
                let others = t
                    .nodes
                    .iter()
                    .enumerate()
                    .filter(|(j, n)| *j != i && n.admitted);
                let others: Vec<u8> = others.map(|(_, n)| n.counter).collect();
                let enough = N - World::<N>::QUORUM + 1;
                let n = &mut t.nodes[i];
                n.counter = self.law.admission(n, &others, enough, w.used);
                // The nonce of this admission is the new incarnation: an older record names no owner.
                (n.admitted, n.named, n.watched, n.early_floor) = (true, false, 0, 0);
            }
            Step::Forgets(i) => {
                let n = &mut t.nodes[i];
                (n.own, n.seq, n.released, n.grant, n.age) = (NOBODY, 0, false, 0, 0);
                n.broken = false;
                if !self.has(Rule::T4NodeCounter) {
                    n.counter = 0;
                }
                t.forgets += 1;
            }
            Step::Begins(c) => self.begin(&mut t, c),
            Step::Precedes(c, i) => {
                let (me, floor) = (owner(c, t.clients[c].attempt), t.clients[c].floor);
                self.law.claim_grant(&mut t.nodes[i], me, floor);
            }
            Step::Asks(c, i, heard) => self.ask(&mut t, c, i, heard)?,
            Step::Wins(c, late) => self.win(&mut t, c, late)?,
            Step::Fails(c, late) => self.fail(&mut t, c, late),
            Step::Extends(c) => {
                let broken = t.broken && t.target == owner(c, t.clients[c].attempt);
                let k = &mut t.clients[c];
                k.round(Phase::Extending);
                (k.elapsed, k.seq, k.extensions, k.broken) =
                    (0, k.seq + 1, k.extensions + 1, broken);
            }
            Step::Verifies(c) => {
                let broken = t.broken && t.target == owner(c, t.clients[c].attempt);
                let k = &mut t.clients[c];
                k.round(Phase::Verifying);
                (k.verified, k.doubted, k.broken) = (true, k.interrupted, broken);
            }
            Step::Restarts(c) => {
                let k = &mut t.clients[c];
                (k.floor, k.watch) = (0, [Watch::default(); N]);
            }
            Step::Ends(c) => t.clients[c].give_up(),
            Step::Reads(c, i) => {
                self.note(&mut t, c, i);
            }
            Step::Arrives(c, kind) => self.arrive(&mut t, c, kind)?,
            Step::Releases(o, i) => {
                let n = &mut t.nodes[i];
                if self.law.is_foreign(o) {
                    (n.key, n.px) = (NOBODY, 0);
                } else {
                    self.law.release(n, o);
                }
            }
            Step::Breaks(c) => {
                t.target = owner(c, t.clients[c].attempt);
                t.break_todo = (1 << N) - 1;
                if self.tokens {
                    t.break_token = w.nodes.iter().map(|n| n.counter).max().unwrap_or(0) + 1;
                }
            }
            Step::BreakReaches(i) => {
                let n = &mut t.nodes[i];
                let knows = self.law.break_lock(n, w.target, w.break_token, self.now);
                t.break_todo &= !(1 << i);
                t.told |= u8::from(knows) << i;
                t.broken = t.told.count_ones() as usize >= World::<N>::QUORUM;
            }
        }
        for (before, after) in w.nodes.iter().zip(&t.nodes) {
            let ours = !matches!(step, Step::Tick | Step::Loses(_) | Step::Restores(_));
            let ours = ours && !matches!(step, Step::KeyEnds(_) | Step::Releases(_, _));
            if ours
                && self.law.is_foreign(before.key)
                && (after.key, after.px) != (before.key, before.px)
            {
                return Err("a foreign client's key was touched");
            }
        }
        self.still_doubted(&mut t);
        self.tidy(&mut t);
        Ok(t)
    }

    fn tick<const N: usize>(&self, t: &mut World<N>) {
        let ttl = self.law.longest();
        for n in &mut t.nodes {
            if n.px > 0 && !self.vanish {
                n.px -= 1;
                if n.px == 0 {
                    n.key = NOBODY;
                }
            }
            n.age = (n.age + 1).min(ttl);
            n.watched = (n.watched + 1).min(ttl);
        }
        let late_end = !self.has(Rule::R8OldDeadline);
        for k in &mut t.clients {
            for watch in &mut k.watch {
                watch.age = (watch.age + 1).min(ttl);
            }
            k.elapsed = (k.elapsed + 1).min(ttl);
            if k.valid > 0 {
                k.valid -= 1;
                // The local deadline: whatever the network says.
                if k.valid == 0 && !(k.phase == Phase::Extending && late_end) {
                    k.give_up();
                }
            }
        }
    }

    fn begin<const N: usize>(&self, t: &mut World<N>, c: usize) {
        let again = t.clients[c].votes() > 0; // R4 off: the old votes and the old owner value.
        let after_break = t.broken && self.tokens;
        let k = &mut t.clients[c];
        k.tries += 1;
        if again {
            k.phase = Phase::Acquiring;
            k.todo = (0..N).filter(|i| k.got[*i] == 0).fold(0, |m, i| m | 1 << i);
        } else {
            k.attempt += 1;
            k.round(Phase::Acquiring);
            k.broken = after_break;
        }
        k.elapsed = 0;
        k.ripe = 0;
        let mut ripe = 0;
        for i in 0..N {
            let n = &t.nodes[i];
            let looks = if self.reads {
                let watch = t.clients[c].watch[i];
                watch.own != NOBODY && watch.age >= self.watch_time(c, watch.own)
            } else {
                // Judged by the client, not compared by the node.
                let ripe = n.age >= self.watch_time(c, n.own);
                let takable = n.own == NOBODY || n.released || ripe;
                !self.has(Rule::O1Expected) && (takable || self.knows_over(t, n.own))
            };
            ripe |= u8::from(looks) << i;
        }
        t.clients[c].ripe = ripe;
    }

    fn ask<const N: usize>(
        &self,
        t: &mut World<N>,
        c: usize,
        i: usize,
        heard: bool,
    ) -> Result<(), &'static str> {
        let k = t.clients[c];
        let me = owner(c, k.attempt);
        let message = Message {
            phase: k.phase,
            owner: me,
            seq: k.seq,
            token: k.token,
        };
        let answer = self.execute(t, c, i, message)?;
        let node_counter = t.nodes[i].counter;
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
                if self.floors {
                    k.floor = k.floor.max(node_counter);
                }
                // A refusal shows the record, like a read.
                let looks = self.reads && k.phase != Phase::Verifying;
                let news = looks && self.is_news(t, c, i);
                if news {
                    self.note(t, c, i);
                }
            }
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
        if self.is_foreign(c) {
            let n = &mut t.nodes[i];
            if n.key != NOBODY {
                return Ok(Answer::Refused);
            }
            (n.key, n.px) = (message.owner, self.law.ttls[c]);
            return Ok(Answer::Granted(1));
        }
        let Message {
            phase,
            owner: me,
            seq,
            token,
        } = message;
        let floor = t.clients[c].floor;
        let expected = self.expected(t, c, i);
        let n = &mut t.nodes[i];
        // A claim has no record to tell from: what a late acquire finds after the memory of releases is all it knows.
        let told = n.over & (1 << me) != 0 && phase == Phase::Extending;
        let dead = self.law.is_dead(n, me) || self.law.claim && told;
        let answer = match phase {
            Phase::Confirming => self.law.confirm(n, me, token),
            Phase::Verifying => self.law.shows(n, me),
            Phase::Extending => self.law.extend(n, me, seq, token, expected),
            _ => self.law.acquire(n, me, floor, expected),
        };
        if dead && matches!(answer, Answer::Granted(_) | Answer::Kept | Answer::Healed) {
            return Err("a released lease was revived");
        }
        Ok(answer)
    }

    fn arrive<const N: usize>(
        &self,
        t: &mut World<N>,
        c: usize,
        kind: usize,
    ) -> Result<(), &'static str> {
        let late = t.clients[c].late[kind];
        t.clients[c].late[kind] = Late::default();
        let message = Message {
            phase: [Phase::Acquiring, Phase::Extending][kind],
            owner: late.owner,
            seq: late.seq,
            token: late.token,
        };
        let i = usize::from(late.node) - 1;
        self.execute(t, c, i, message).map(|_| ())
    }

    fn keep_late<const N: usize>(&self, k: &mut Client<N>, c: usize, late: u8) {
        let kind = match k.phase {
            Phase::Acquiring => 0,
            Phase::Extending => 1,
            _ => return,
        };
        if late > 0 {
            k.late[kind] = Late {
                node: late,
                owner: owner(c, k.attempt),
                seq: if kind == 1 { k.seq } else { 0 },
                token: if kind == 1 { k.token } else { 0 },
            };
        }
    }

    fn fail<const N: usize>(&self, t: &mut World<N>, c: usize, late: u8) {
        let k = &mut t.clients[c];
        self.keep_late(k, c, late);
        match k.phase {
            // A failed extension changes nothing.
            Phase::Extending | Phase::Verifying if k.valid > 0 => k.settle(Phase::Held),
            Phase::Acquiring if !self.has(Rule::R4OneRound) => {
                (k.phase, k.todo, k.elapsed) = (Phase::Idle, 0, 0);
            }
            _ => k.give_up(),
        }
    }

    fn win<const N: usize>(
        &self,
        t: &mut World<N>,
        c: usize,
        late: u8,
    ) -> Result<(), &'static str> {
        self.keep_late(&mut t.clients[c], c, late);
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
        let counts_from_now = !self.has(Rule::R3Validity);
        let valid = if counts_from_now {
            self.law.ttls[c]
        } else {
            self.law.ttls[c] - k.elapsed
        };
        match k.phase {
            Phase::Extending => {
                // A break that removes the keys at once overrules a round that is under way: that one may still
                // count.
                let overruled = self.now && t.target != NOBODY && t.target == owner(c, k.attempt);
                if k.interrupted && self.exclusion && !overruled {
                    return Err("a lease went on over another holder's");
                }
                if k.broken {
                    return Err("a broken lease was extended");
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
        let foreign = self.is_foreign(c);
        let k_after_break = t.clients[c].broken;
        let k = &mut t.clients[c];
        k.settle(Phase::Held);
        (k.valid, k.token, k.interrupted) = (valid, token, false);
        k.won |= 1 << k.attempt;
        if self.floors {
            k.floor = k.floor.max(token);
        }
        if self.tokens && !foreign {
            if t.tokens & (1 << token) != 0 {
                return Err("a token was given twice");
            }
            if token <= t.used && self.exclusion {
                return Err("a token did not rise");
            }
            if k_after_break && token <= t.break_token {
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

    /// Whether another client has believed ever since a verification began.
    fn still_doubted<const N: usize>(&self, t: &mut World<N>) {
        for c in 0..CLIENTS {
            let other = (0..CLIENTS).any(|d| d != c && t.clients[d].believes());
            t.clients[c].doubted &= other;
        }
    }

    fn one_holder<const N: usize>(&self, t: &World<N>, c: usize) -> Result<(), &'static str> {
        // A break that removes the keys at once overrules the holder, which believes until its next round or its
        // deadline.
        let broken =
            |d: usize| self.now && t.target != NOBODY && t.target == owner(d, t.clients[d].attempt);
        if broken(c) {
            return Ok(());
        }
        let other = (0..CLIENTS).find(|d| *d != c && t.clients[*d].believes() && !broken(*d));
        match other {
            Some(d) if self.exclusion && (self.is_foreign(c) || self.is_foreign(d)) => {
                Err("two holders, one of them foreign")
            }
            Some(_) if self.exclusion => Err("two holders"),
            _ => Ok(()),
        }
    }

    /// Forgets what can make no difference any more.
    fn tidy<const N: usize>(&self, t: &mut World<N>) {
        for (i, n) in t.nodes.iter_mut().enumerate() {
            let mut matters = 0;
            for k in &t.clients {
                for late in k.late.iter().filter(|l| usize::from(l.node) == i + 1) {
                    matters |= 1 << late.owner;
                }
            }
            if t.target != NOBODY && t.clients[client_of(t.target)].believes() {
                matters |= 1 << t.target;
            }
            n.over &= matters;
            let unwatched = self.law.expiry == Expiry::Server || self.reads;
            if unwatched || n.own == NOBODY || n.released {
                n.age = 0;
            }
            if n.admitted {
                n.watched = 0;
            }
            if self.vanish {
                n.px = 0;
            }
            if !self.tokens {
                (n.counter, n.grant, n.early_floor) = (0, 0, 0);
                n.claimants = [0; CLIENTS];
            }
        }
        for k in &mut t.clients {
            if !matches!(
                k.phase,
                Phase::Acquiring | Phase::Confirming | Phase::Extending
            ) {
                k.elapsed = 0;
            }
            for watch in &mut k.watch {
                if watch.own == NOBODY {
                    watch.age = 0;
                }
            }
        }
    }
}
