//! Claims of batches, which stand beside the table in a hash of their own: an owner and an end by the server's clock, with the
//! counter in the same hash. A machine of its own, for one claim on three nodes.
//!
//! | rule | says | without it |
//! | --- | --- | --- |
//! | `OwnMarker` | the claims' hash has a marker of its own, written by an admission and compared by every call | it is lost alone, by eviction or `DEL`, and the node votes on as if nothing had been claimed: two holders |
//! | `Watched` | a node whose claims were lost is watched for the longest ttl before it is admitted | two holders |
//! | `ReadAfter` | its counter is raised to what others show, read after that watch | a token does not rise |
//! | `CounterStays` | the counter stays when the last claim is deleted | a token does not rise |
//! | `NotHealed` | an extension renews what is there, and writes nothing where nothing is | a released claim is revived |
//! | `Ordered` | a release follows its claim on one connection, or comes when it is too late (N4') | a released claim is revived |
//! | `Bound` | no call acts a ttl after it was sent, or later (N2) | with a release that comes when its claim ought to be too late: a released claim is revived |
//! | `ComparesOwner` | a release deletes only its owner's (N6) | two holders |

use crate::shared::{Machine, Packed, expect_breaks, expect_holds};

const LIMIT: usize = 20_000_000;
const N: usize = 3;
const QUORUM: usize = 2;
const TTL: u8 = 2;
const CLIENTS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    OwnMarker,
    Watched,
    ReadAfter,
    CounterStays,
    NotHealed,
    Ordered,
    Bound,
    ComparesOwner,
}

#[derive(Clone, Copy, Debug)]
struct Scene {
    without: Option<Rule>,
    attempts: [u8; CLIENTS],
    /// An extension of the first client's claim.
    extends: bool,
    /// How often a node loses its claims, alone or with all else.
    losses: u8,
    late: bool,
    tokens: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Node {
    /// The claim: its owner (0 for none), and the ticks until it ends.
    own: u8,
    left: u8,
    counter: u8,
    /// Whether the marker of the claims, and that of the table, is of this life of the memory.
    marked: bool,
    table: bool,
    watched: u8,
    early: u8,
    /// Owners whose release came here, a bit each: what the checker knows, and no node.
    over: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Phase {
    #[default]
    Idle,
    Claiming,
    Confirming,
    Held,
    Extending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Client {
    phase: Phase,
    attempt: u8,
    extended: bool,
    elapsed: u8,
    todo: u8,
    got: [u8; N],
    token: u8,
    valid: u8,
    /// Claims and extensions that are under way: to which nodes, of which attempt, for how many ticks.
    late: [(u8, u8, u8); 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct World {
    nodes: [Node; N],
    clients: [Client; CLIENTS],
    losses: u8,
    used: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    /// The node loses its claims alone, or all that it has.
    LosesClaims(u8),
    LosesAll(u8),
    Admitted(u8),
    Begins(u8),
    Asks(u8, u8),
    Wins(u8),
    Fails(u8),
    Extends(u8),
    Ends(u8),
    Arrives(u8, u8, u8),
    Releases(u8, u8),
}

fn owner(client: usize, attempt: u8) -> u8 {
    (client as u8) << 2 | attempt
}

// === impl Scene ===

impl Scene {
    fn has(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn votes(&self, n: &Node) -> bool {
        match self.has(Rule::OwnMarker) {
            true => n.marked,
            false => n.table,
        }
    }

    fn claim(&self, n: &mut Node, me: u8) -> u8 {
        if !self.votes(n) || n.own != 0 && n.own != me {
            return 0;
        }
        (n.own, n.left) = (me, TTL);
        n.counter += 1;
        n.counter
    }

    fn extend(&self, n: &mut Node, me: u8, token: u8) -> bool {
        let gone = n.own == 0 && !self.has(Rule::NotHealed);
        if !self.votes(n) || n.own != me && !gone {
            return false;
        }
        (n.own, n.left) = (me, TTL);
        n.counter = n.counter.max(token);
        true
    }

    fn confirm(&self, n: &mut Node, me: u8, token: u8) -> bool {
        if !self.votes(n) || n.own != me {
            return false;
        }
        n.counter = n.counter.max(token);
        true
    }

    fn is_over(&self, w: &World, own: u8) -> bool {
        let k = &w.clients[usize::from(own >> 2)];
        own & 3 < k.attempt || k.phase == Phase::Idle
    }

    /// Has a call executed: its vote.
    fn execute(
        &self,
        t: &mut World,
        c: usize,
        i: usize,
        late: Option<(Phase, u8)>,
    ) -> Result<u8, &'static str> {
        let k = t.clients[c];
        let (phase, attempt) = late.unwrap_or((k.phase, k.attempt));
        let me = owner(c, attempt);
        let n = &mut t.nodes[i];
        let token = if late.is_some() { 0 } else { k.token };
        let vote = match phase {
            Phase::Claiming => self.claim(n, me),
            Phase::Confirming => self.confirm(n, me, token).into(),
            _ => self.extend(n, me, token).into(),
        };
        if vote > 0 && n.over >> me & 1 == 1 {
            return Err("a released claim was revived");
        }
        Ok(vote)
    }

    fn win(&self, t: &mut World, c: usize) -> Result<(), &'static str> {
        self.leave(t, c);
        let k = &mut t.clients[c];
        let grants = k.got.into_iter().filter(|g| *g > 0);
        let largest = grants.clone().max().unwrap_or(0);
        let alike = grants.clone().filter(|g| *g == largest).count();
        if k.phase == Phase::Claiming && alike < QUORUM && grants.clone().count() >= QUORUM {
            let same = grants
                .clone()
                .find(|g| grants.clone().filter(|h| h == g).count() >= QUORUM);
            if same.is_none() {
                (k.phase, k.token) = (Phase::Confirming, largest);
                (k.todo, k.got) = ((1 << N) - 1, [0; N]);
                return Ok(());
            }
            k.token = same.unwrap_or(0);
        } else if k.phase == Phase::Claiming {
            k.token = largest;
        }
        let extends = k.phase == Phase::Extending;
        (k.phase, k.valid) = (Phase::Held, TTL - k.elapsed);
        (k.todo, k.got, k.elapsed) = (0, [0; N], 0);
        if self.tokens && !extends {
            if k.token <= t.used {
                return Err("a token did not rise");
            }
            t.used = k.token;
        }
        if t.clients.iter().filter(|k| k.valid > 0).count() > 1 {
            return Err("two holders");
        }
        Ok(())
    }

    /// What a finished round's calls have not reached stays under way.
    fn leave(&self, t: &mut World, c: usize) {
        let k = &mut t.clients[c];
        let kind = match k.phase {
            Phase::Claiming => 0,
            Phase::Extending => 1,
            _ => return,
        };
        if self.late && k.todo != 0 {
            k.late[kind] = (k.todo, k.attempt, k.elapsed);
        }
    }

    fn give_up(k: &mut Client) {
        *k = Client {
            attempt: k.attempt,
            late: k.late,
            ..Client::default()
        };
    }

    fn tick(&self, t: &mut World) {
        for n in &mut t.nodes {
            n.left = n.left.saturating_sub(1);
            if n.left == 0 {
                n.own = 0;
            }
            n.watched = (n.watched + 1).min(TTL);
        }
        for k in &mut t.clients {
            k.elapsed = (k.elapsed + 1).min(TTL);
            for late in &mut k.late {
                late.2 = (late.2 + 1).min(TTL);
                if late.2 >= TTL && self.has(Rule::Bound) {
                    late.0 = 0;
                }
            }
            k.valid = k.valid.saturating_sub(1);
            let acquires = matches!(k.phase, Phase::Claiming | Phase::Confirming);
            let holds = matches!(k.phase, Phase::Held | Phase::Extending);
            if acquires && k.elapsed >= TTL || holds && k.valid == 0 {
                Self::give_up(k);
            }
        }
    }

    /// `alone`: the table's marker stays.
    fn lose(&self, t: &mut World, i: usize, alone: bool) {
        let others = t.nodes.iter().enumerate();
        let others = others.filter(|(j, n)| *j != i && n.marked);
        let early = others.map(|(_, n)| n.counter).max().unwrap_or(0);
        t.losses += 1;
        t.nodes[i] = Node {
            table: alone,
            early,
            over: t.nodes[i].over,
            ..Node::default()
        };
    }
}

impl Machine for Scene {
    type State = World;
    type Step = Step;

    fn start(&self) -> World {
        let node = Node {
            marked: true,
            table: true,
            ..Node::default()
        };
        World {
            nodes: [node; N],
            clients: [Client::default(); CLIENTS],
            losses: 0,
            used: 0,
        }
    }

    fn steps(&self, w: &World, out: &mut Vec<Step>) {
        out.clear();
        out.push(Step::Tick);
        for (i, n) in w.nodes.iter().enumerate() {
            let node = i as u8;
            if w.losses < self.losses {
                out.extend([Step::LosesClaims(node), Step::LosesAll(node)]);
            }
            let watch = if self.has(Rule::Watched) { TTL } else { 0 };
            if !n.marked && n.watched >= watch {
                out.push(Step::Admitted(node));
            }
            for (c, k) in w.clients.iter().enumerate() {
                for attempt in 1..=k.attempt {
                    let own = owner(c, attempt);
                    let sent = k.late[0];
                    let under_way = sent.1 == attempt && sent.0 >> i & 1 == 1;
                    // When it ought to be too late, its claim is waited for no longer.
                    let early = under_way && sent.2 < TTL && self.has(Rule::Ordered);
                    let any = n.own != 0 && !self.has(Rule::ComparesOwner);
                    let owed = n.over >> own & 1 == 0 || n.own == own || any;
                    if self.is_over(w, own) && owed && !early {
                        out.push(Step::Releases(own, node));
                    }
                }
            }
        }
        for (c, k) in w.clients.iter().enumerate() {
            let me = c as u8;
            for (kind, late) in k.late.iter().enumerate() {
                for i in (0..N).filter(|i| late.0 >> i & 1 == 1) {
                    out.push(Step::Arrives(me, kind as u8, i as u8));
                }
            }
            match k.phase {
                Phase::Idle if k.attempt < self.attempts[c] => out.push(Step::Begins(me)),
                Phase::Idle => {}
                Phase::Held => {
                    out.push(Step::Ends(me));
                    if self.extends && c == 0 && !k.extended {
                        out.push(Step::Extends(me));
                    }
                }
                _ => {
                    for i in (0..N).filter(|i| k.todo >> i & 1 == 1) {
                        out.push(Step::Asks(me, i as u8));
                    }
                    out.push(Step::Fails(me));
                    if k.got.iter().filter(|g| **g > 0).count() >= QUORUM {
                        out.push(Step::Wins(me));
                    }
                }
            }
        }
    }

    fn act(&self, w: &World, step: Step) -> Result<World, &'static str> {
        let mut t = *w;
        match step {
            Step::Tick => self.tick(&mut t),
            Step::LosesClaims(i) => self.lose(&mut t, usize::from(i), true),
            Step::LosesAll(i) => self.lose(&mut t, usize::from(i), false),
            Step::Admitted(i) => {
                let others = w.nodes.iter().enumerate();
                let others = others.filter(|(j, n)| *j != usize::from(i) && n.marked);
                let mut counters: Vec<u8> = others.map(|(_, n)| n.counter).collect();
                counters.sort_unstable();
                let n = &mut t.nodes[usize::from(i)];
                let floor = match self.has(Rule::ReadAfter) {
                    true => counters.get(N - QUORUM).copied().unwrap_or(w.used),
                    false => n.early,
                };
                n.counter = n.counter.max(floor);
                (n.marked, n.table, n.early) = (true, true, 0);
            }
            Step::Begins(c) => {
                let k = &mut t.clients[usize::from(c)];
                (k.phase, k.attempt, k.elapsed) = (Phase::Claiming, k.attempt + 1, 0);
                (k.todo, k.got) = ((1 << N) - 1, [0; N]);
            }
            Step::Asks(c, i) => {
                let vote = self.execute(&mut t, usize::from(c), usize::from(i), None)?;
                let k = &mut t.clients[usize::from(c)];
                k.todo &= !(1 << i);
                k.got[usize::from(i)] = vote;
            }
            Step::Wins(c) => self.win(&mut t, usize::from(c))?,
            Step::Fails(c) => {
                let c = usize::from(c);
                self.leave(&mut t, c);
                let k = &mut t.clients[c];
                match k.phase {
                    Phase::Extending => {
                        (k.phase, k.todo, k.got, k.elapsed) = (Phase::Held, 0, [0; N], 0);
                    }
                    _ => Self::give_up(k),
                }
            }
            Step::Extends(c) => {
                let k = &mut t.clients[usize::from(c)];
                (k.phase, k.extended, k.elapsed) = (Phase::Extending, true, 0);
                (k.todo, k.got) = ((1 << N) - 1, [0; N]);
            }
            Step::Ends(c) => Self::give_up(&mut t.clients[usize::from(c)]),
            Step::Arrives(c, kind, i) => {
                let c = usize::from(c);
                let attempt = t.clients[c].late[usize::from(kind)].1;
                t.clients[c].late[usize::from(kind)].0 &= !(1 << i);
                let phase = [Phase::Claiming, Phase::Extending][usize::from(kind)];
                self.execute(&mut t, c, usize::from(i), Some((phase, attempt)))?;
            }
            Step::Releases(own, i) => {
                let n = &mut t.nodes[usize::from(i)];
                if n.own == own || !self.has(Rule::ComparesOwner) {
                    (n.own, n.left) = (0, 0);
                    if !self.has(Rule::CounterStays) {
                        n.counter = 0;
                    }
                }
                n.over |= 1 << own;
            }
        }
        for n in t.nodes.iter_mut().filter(|n| n.marked) {
            n.watched = 0;
        }
        for k in &mut t.clients {
            for late in k.late.iter_mut().filter(|late| late.0 == 0) {
                *late = (0, 0, 0);
            }
            if matches!(k.phase, Phase::Idle | Phase::Held) {
                k.elapsed = 0;
            }
        }
        if !self.tokens {
            for n in &mut t.nodes {
                (n.counter, n.early) = (0, 0);
            }
        }
        Ok(t)
    }

    fn check(&self, _: &World) -> Option<&'static str> {
        None
    }

    fn name(&self, w: &World) -> u64 {
        let mut words = [0; N];
        for (i, n) in w.nodes.iter().enumerate() {
            let mut p = Packed::default();
            p.put(n.own, 4)
                .put(n.left, 2)
                .put(n.counter, 5)
                .put(n.early, 5);
            p.put(n.marked.into(), 1)
                .put(n.table.into(), 1)
                .put(n.watched, 2);
            for k in &w.clients {
                p.put(k.todo >> i & 1, 1).put(k.got[i], 5);
                p.put(k.late[0].0 >> i & 1, 1).put(k.late[1].0 >> i & 1, 1);
            }
            words[i] = p.next().put_wide(n.over.into()).hash();
        }
        words.sort_unstable();
        let mut p = Packed::default();
        for word in words {
            p.put_wide(word);
        }
        for k in &w.clients {
            p.put(k.phase as u8, 3)
                .put(k.attempt, 2)
                .put(k.extended.into(), 1);
            p.put(k.elapsed, 2).put(k.token, 5).put(k.valid, 2);
            for late in k.late {
                p.put(late.1, 2).put(late.2, 2);
            }
        }
        p.put(w.losses, 2).put(w.used, 5).hash()
    }

    fn say(&self, before: &World, after: &World, step: Step) -> String {
        match step {
            Step::Asks(c, i) => {
                let phase = before.clients[usize::from(c)].phase;
                let vote = after.clients[usize::from(c)].got[usize::from(i)];
                format!("c{c} {phase:?} on node {i}: {vote}")
            }
            Step::Wins(c) => {
                let k = &after.clients[usize::from(c)];
                format!("c{c} has its majority: {:?}, token {}", k.phase, k.token)
            }
            step => format!("{step:?}"),
        }
    }
}

// === scenes ===

/// Two clients, an attempt each.
const CLAIM: Scene = Scene {
    without: None,
    attempts: [1, 1],
    extends: false,
    losses: 0,
    late: false,
    tokens: false,
};

const LATE: Scene = Scene {
    late: true,
    ..CLAIM
};
const LOSS: Scene = Scene { losses: 1, ..CLAIM };
const TOKENS: Scene = Scene {
    tokens: true,
    ..CLAIM
};

fn holds(name: &str, scene: &Scene) {
    expect_holds(name, scene, &[], LIMIT);
}

fn caught(rule: Rule, scene: Scene, promise: &str) {
    let without = Scene {
        without: Some(rule),
        ..scene
    };
    expect_breaks(
        &format!("claims without {rule:?}"),
        &without,
        &[],
        LIMIT,
        promise,
    );
}

#[test]
fn claims_beside_the_table_keep_one_holder() {
    let extends = Scene {
        extends: true,
        ..LATE
    };
    holds("claims, late, an extension", &extends);
    holds("claims, a loss", &LOSS);
}

#[test]
fn claims_beside_the_table_keep_tokens_rising() {
    holds("claims, tokens", &TOKENS);
    let lossy = Scene {
        losses: 1,
        ..TOKENS
    };
    holds("claims, tokens, a loss", &lossy);
}

#[test]
fn a_hash_of_claims_has_a_marker_of_its_own() {
    caught(Rule::OwnMarker, LOSS, "two holders");
    caught(Rule::Watched, LOSS, "two holders");
}

#[test]
fn a_hash_of_claims_keeps_its_counter() {
    caught(Rule::CounterStays, TOKENS, "a token did not rise");
    let lossy = Scene {
        losses: 1,
        ..TOKENS
    };
    caught(Rule::ReadAfter, lossy, "a token did not rise");
}

#[test]
fn a_claim_that_is_released_is_over() {
    let extends = Scene {
        extends: true,
        ..LATE
    };
    caught(Rule::NotHealed, extends, "a released claim was revived");
    caught(Rule::Ordered, LATE, "a released claim was revived");
    caught(Rule::Bound, LATE, "a released claim was revived");
}

#[test]
fn a_claims_release_compares_its_owner() {
    let again = Scene {
        attempts: [1, 2],
        ..CLAIM
    };
    caught(Rule::ComparesOwner, again, "two holders");
}
