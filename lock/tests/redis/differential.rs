//! The Lua scripts against the node in memory: the same random calls must get the same answers.
//!
//! Unguarded, memory answers at the very time at which the server did, so that leases may end in between, by the clock. A seed is printed
//! with every failure; `WATCHKEEPER_SEED` repeats it.

use std::{collections::BTreeMap, time::Duration};

use watchkeeper_lock::{
    chance::Chance,
    clock::Clock,
    node::{
        Admission, Announcements, Answer, Call, Card, Cursor, Eligibility, Expiry, GuardSettings,
        Kind, Node, Op, Page, Record, RestartGuard, Seen, Take, Ticket, Token, Version, View,
        memory::{MemoryNode, NodeState},
        redis::RedisNodeSettings,
    },
};

use crate::{bench::*, server::RedisServer};

const CALLS: usize = 4_000;

pub(crate) fn the_script_answers_as_memory_does() {
    run(async {
        let server = RedisServer::start();
        let lives = [TTL, TTL, Duration::from_millis(2), Duration::from_millis(9)];
        at_one_time(&server, NodeState::default(), false, lives).await;
    });
}

/// The server looks at the clock of plain keys at another moment: they do not end here.
pub(crate) fn the_script_answers_as_memory_does_with_raw_keys() {
    run(async {
        let server = RedisServer::start();
        at_one_time(&server, NodeState::raw(), true, [TTL; 4]).await;
    });
}

async fn at_one_time(
    server: &RedisServer,
    mut memory: NodeState,
    raw_keys: bool,
    lives: [Duration; 4],
) {
    let seed = seed();
    let redis = node(&RedisNodeSettings {
        raw_keys,
        ..settings(server)
    });
    let mut heard = redis.announcements().await.unwrap();
    let mut world = World::new(seed, lives);
    let mut told = 0;
    for n in 0..CALLS {
        let ops = world.ops();
        let call = Call {
            not_after: None,
            ops: ops.clone(),
        };
        let reply = redis.call(call.clone()).await.unwrap();
        let expected = memory.apply(reply.at, reply.wall_ms, &call).unwrap();
        for ((op, expected), answer) in ops.iter().zip(expected.answers).zip(reply.answers) {
            world.remember(&expected);
            let (expected, answer) = (sorted(expected), sorted(answer));
            let (expected, answer) = match raw_keys {
                true => (timeless(expected), timeless(answer)),
                false => (expected, answer),
            };
            assert_eq!(answer, expected, "seed {seed}, call {n}: {op:?} of {ops:?}");
        }
        for news in memory.take_announced() {
            told += 1;
            let it = next(&mut heard).await;
            assert_eq!(
                (it.key, it.owner),
                (news.key, news.owner),
                "seed {seed}, call {n}: {ops:?}"
            );
        }
    }
    assert!(told > CALLS / 1000, "seed {seed}: {told} announcements");
    let clock = Clock::system();
    let more = clock.timeout(Duration::from_millis(20), heard.recv());
    assert!(more.await.is_err(), "seed {seed}: more was announced");
}

async fn next(heard: &mut Announcements) -> watchkeeper_lock::node::Announcement {
    let clock = Clock::system();
    let soon = clock.timeout(PATIENT, heard.recv()).await;
    soon.expect("an announcement").unwrap()
}

pub(crate) fn seed() -> u64 {
    match std::env::var("WATCHKEEPER_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => u64::from(std::process::id()),
    }
}

/// Leases do not end here by time: two clocks would differ.
pub(crate) fn the_guarded_script_answers_as_memory_does() {
    for mode in [
        RestartGuard::Call,
        RestartGuard::Connection,
        RestartGuard::Off,
    ] {
        run(async {
            let config = "one".to_owned();
            guarded(GuardSettings { mode, config }).await;
        });
    }
}

async fn guarded(guard: GuardSettings) {
    let seed = seed();
    let server = RedisServer::start();
    let redis = node(&RedisNodeSettings {
        guard: guard.clone(),
        ..settings(&server)
    });
    let memory = MemoryNode::new("memory", Clock::system()).guarded(guard.clone());
    let mut world = World::new(seed, [TTL; 4]);
    world.guarded = guard.mode != RestartGuard::Off;
    let mut votes = 0;
    for n in 0..CALLS {
        let ops = world.ops();
        let call = || Call {
            not_after: None,
            ops: ops.clone(),
        };
        let expected = memory.call(call()).await.unwrap();
        let reply = redis.call(call()).await.unwrap();
        let same = match world.guarded {
            true => reply.eligibility == expected.eligibility,
            // The scripts tell configurations apart by their hash.
            false => unmarked(&reply.eligibility) == unmarked(&expected.eligibility),
        };
        assert!(
            same,
            "seed {seed}, call {n}: {:?} and {:?} of {ops:?}",
            reply.eligibility, expected.eligibility
        );
        votes += usize::from(reply.eligibility.is_admitted());
        for ((op, expected), answer) in ops.iter().zip(expected.answers).zip(reply.answers) {
            world.remember(&expected);
            let (mut expected, mut answer) = (timeless(sorted(expected)), timeless(sorted(answer)));
            for answer in [&mut expected, &mut answer] {
                if let (false, Answer::Admission(shown)) = (world.guarded, answer) {
                    shown.marker.clear();
                }
            }
            assert_eq!(answer, expected, "seed {seed}, call {n}: {op:?} of {ops:?}");
        }
    }
    // Without the guard nothing is watched.
    let all = guard.mode == RestartGuard::Off;
    assert!(
        votes > CALLS / 10 && (all || votes < CALLS),
        "seed {seed}: {votes} votes"
    );
}

fn unmarked(eligibility: &Eligibility) -> Eligibility {
    match eligibility {
        Eligibility::Admitted(_) => Eligibility::Admitted("".into()),
        other => other.clone(),
    }
}

/// Draws operations on few names, so that they meet.
struct World {
    chance: Chance,
    /// How long what is written may live.
    lives: [Duration; 4],
    /// An owner that is over stays so: from time to time others come.
    generation: u64,
    /// What was seen of each lock last.
    seen: BTreeMap<String, Seen>,
    /// A nomination has a nonce that was never used; then the one that stands counts.
    nonces: u64,
    shown: Admission,
    /// Nodes are enrolled and closed, too.
    guarded: bool,
    /// Who wanted the locks last that are asked for as on any day, and how often anybody did.
    wanted: BTreeMap<String, String>,
    times: u64,
}

// === impl World ===

impl World {
    fn new(seed: u64, lives: [Duration; 4]) -> Self {
        Self {
            chance: Chance::seeded(seed),
            lives,
            generation: 0,
            seen: BTreeMap::new(),
            nonces: 0,
            shown: Admission::default(),
            guarded: false,
            wanted: BTreeMap::new(),
            times: 0,
        }
    }

    fn remember(&mut self, answer: &Answer) {
        if let Answer::Admission(admission) = answer {
            self.shown.clone_from(admission);
        }
        let (Answer::Refused(view) | Answer::View(view) | Answer::Broken(view)) = answer else {
            return;
        };
        if let Some(owner) = view.owner.clone() {
            let (inc, seq) = (view.inc.clone(), view.seq);
            self.seen.insert(view.key.clone(), Seen { inc, owner, seq });
        }
    }

    /// Mostly by the record, and then mostly by what was seen.
    fn take(&mut self, key: &str) -> Take {
        let seen = self.seen.get(key).cloned();
        match self.chance.below(6) {
            0..2 => Take::Server,
            2 => Take::Observed(None),
            3 => Take::Observed(seen.map(|seen| Seen {
                seq: seen.seq + 1,
                ..seen
            })),
            _ => Take::Observed(seen),
        }
    }

    fn expiry(&mut self) -> Expiry {
        [Expiry::Server, Expiry::Observed][self.draw(2)]
    }

    /// Mostly the one that stands, else any that ever was.
    fn nonce(&mut self) -> String {
        match &self.shown.nonce {
            Some(nonce) if self.chance.below(4) > 0 => nonce.clone(),
            _ => format!("nonce-{}", self.chance.below(1 + self.nonces)),
        }
    }

    /// Mostly as it stands.
    fn card(&mut self) -> Card {
        let card = self.shown.card();
        match self.chance.below(8) {
            0 => Card::default(),
            1 => Card {
                nonce: self.nonce(),
                ..card
            },
            _ => card,
        }
    }

    fn life(&mut self) -> Duration {
        self.lives[self.draw(4)]
    }

    fn admission(&mut self) -> Op {
        let nonce = self.nonce();
        let counter = Token(self.chance.below(60));
        let kinds = if self.guarded { 9 } else { 6 };
        match self.chance.below(kinds) {
            0 => Op::Admission,
            1..3 => {
                self.nonces += 1;
                let nonce = format!("nonce-{}", self.nonces);
                let over = self.chance.hits(0.3).then(|| self.nonce());
                Op::Nominate { nonce, over }
            }
            3 => Op::Admit {
                nonce,
                config: ["one", "one", "one", "two"][self.draw(4)].to_owned(),
                roster: self.shown.roster.clone(),
                counter,
                memory_loss: [None, Some(77)][self.draw(2)],
            },
            6..8 => {
                self.nonces += 1;
                let roster = format!("{:016x} of three nodes", self.nonces);
                let was = self.card();
                Op::Enrol { was, roster }
            }
            8 => {
                self.nonces += 1;
                Op::Close {
                    was: self.card(),
                    nonce: format!("nonce-{}", self.nonces),
                    config: "closed max_ttl=5000".to_owned(),
                    forgets: self.chance.hits(0.3),
                }
            }
            _ => Op::Merge {
                nonce,
                key: format!("l{}", self.chance.below(5)),
                record: Record {
                    version: Version {
                        token: Token(self.chance.below(60)),
                        rev: self.chance.below(4),
                    },
                    body: "merged".to_owned(),
                },
                retention: RETENTION,
            },
        }
    }

    /// Often one alone: some have scripts of their own.
    fn ops(&mut self) -> Vec<Op> {
        let count = [1, 1, 2, 4, 0][self.draw(5)];
        match count {
            0 => self.usual(),
            count => (0..count).map(|_| self.op()).collect(),
        }
    }

    /// Many of a kind that mostly find what they expect, and sometimes one that does not.
    fn usual(&mut self) -> Vec<Op> {
        let kinds = [Kind::Lock, Kind::Lock, Kind::Claim];
        let (kind, first) = (kinds[self.draw(3)], self.draw(9));
        let (from, count) = (self.draw(3), 1 + self.draw(3));
        let (ttl, marked, retention) = (self.life(), self.life(), self.life());
        let (floor, token) = (
            Token(self.chance.below(40)),
            Token(self.chance.below(3) * 30),
        );
        let waits = [Duration::ZERO, Duration::ZERO, self.life()][self.draw(3)];
        self.times += 1;
        let times = self.times;
        let ops = (0..count).map(|i| {
            // The whole memory is one page: no names of their own.
            let key = match kind {
                Kind::Lock => format!("l{}", (first + i) % 3),
                Kind::Claim => format!("c{}", 3 + (first + i) % 2),
            };
            // Those of one call are of one owner, as claims are; at times they want what somebody has.
            let what = if from == 2 { i * 3 / count } else { from };
            let known = self.wanted.get(&key).cloned();
            let owner = match (what, known) {
                (0, _) | (_, None) => format!("u{times}"),
                (_, Some(known)) => known,
            };
            match what {
                0 => {
                    self.wanted.insert(key.clone(), owner.clone());
                    Op::Acquire {
                        key,
                        owner,
                        kind,
                        ttl,
                        floor,
                        take: Take::Observed(None),
                        clamp: TTL,
                        ticket: None,
                        waits,
                    }
                }
                1 => Op::Release {
                    key,
                    owner,
                    kind,
                    marked,
                    retention,
                },
                _ => Op::Extend {
                    key,
                    owner,
                    kind,
                    seq: times,
                    ttl,
                    token,
                    take: Take::Observed(None),
                },
            }
        });
        ops.collect()
    }

    fn ticket(&mut self) -> Ticket {
        Ticket {
            id: format!("t{}", self.chance.below(3)),
            life: self.life(),
            polite: self.chance.hits(0.5),
        }
    }

    fn op(&mut self) -> Op {
        let (key, mut kind) = match self.chance.below(5) {
            n @ 0..3 => (format!("l{n}"), Kind::Lock),
            n => (format!("c{n}"), Kind::Claim),
        };
        // They bar each other.
        if self.chance.hits(0.1) {
            kind = [Kind::Lock, Kind::Claim][self.draw(2)];
        }
        let owner = self.owner();
        let token = self.chance.below(60);
        match self.chance.below(31) {
            0..7 => Op::Acquire {
                take: self.take(&key),
                key,
                owner,
                kind,
                ttl: self.life(),
                floor: Token(self.chance.below(40)),
                clamp: [TTL / 2, TTL * 2][self.draw(2)],
                ticket: self.chance.hits(0.3).then(|| self.ticket()),
                waits: [Duration::ZERO, self.life()][self.draw(2)],
            },
            7 => Op::Leave {
                key,
                ticket: self.ticket().id,
            },
            8..10 => Op::Confirm {
                key,
                owner,
                kind,
                token: Token(token),
                expiry: self.expiry(),
            },
            10..14 => Op::Extend {
                take: self.take(&key),
                key,
                owner,
                kind,
                seq: 1 + self.chance.below(20),
                ttl: self.life(),
                token: Token(token),
            },
            14..17 => Op::Release {
                key,
                owner,
                kind,
                marked: self.life(),
                retention: self.life(),
            },
            17..20 => self.write(key, owner, token),
            20 => read(&key),
            21..23 => Op::Break {
                key,
                owner,
                token: Token(token),
                ttl: self.life(),
                marked: self.life(),
                retention: self.life(),
                now: self.chance.below(3) == 0,
            },
            23..26 => self.walk(),
            26 => Op::Forget {
                seen: self.seen.get(&key).cloned().unwrap_or(Seen {
                    inc: String::new(),
                    owner,
                    seq: 0,
                }),
                key,
                retention: self.life(),
            },
            27..29 => self.admission(),
            _ => self.document(),
        }
    }

    /// The whole memory is one page.
    fn walk(&mut self) -> Op {
        let (from, count) = (Cursor::default(), 100);
        match self.chance.below(3) {
            0 => Op::List {
                prefix: ["", "l", "c4"][self.draw(3)].to_owned(),
                from,
                count,
            },
            1 => Op::Records { from, count },
            _ => Op::Sweep { from, count },
        }
    }

    fn owner(&mut self) -> String {
        self.generation += u64::from(self.chance.below(8) == 0);
        format!("o{}", self.generation + self.chance.below(4))
    }

    fn write(&mut self, key: String, owner: String, token: u64) -> Op {
        let rev = self.chance.below(4);
        Op::Write {
            key,
            owner,
            version: Version {
                token: Token(token),
                rev,
            },
            body: format!("body {}", self.chance.below(2)),
            not_before: [None, Some(0), Some(i64::MAX / 1024)][self.draw(3)],
            expiry: self.expiry(),
        }
    }

    fn document(&mut self) -> Op {
        let name = ["a", "ab", "b/a", "b/a/b"][self.draw(4)].to_owned();
        match self.chance.below(8) {
            0 => Op::RemoveDoc { name },
            6 => Op::TouchDoc {
                name,
                rev: self.chance.below(12),
                ttl: Duration::from_secs(60),
            },
            7 => Op::Living {
                dir: ["", "a", "b/"][self.draw(3)].to_owned(),
                least: Duration::from_secs(30),
                most: Duration::from_secs(90),
                known: (0..self.chance.below(4))
                    .map(|_| self.chance.below(20))
                    .collect(),
            },
            3 => Op::DocNames {
                dir: ["", "a", "b/"][self.draw(3)].to_owned(),
                from: Cursor::default(),
                count: 9,
            },
            1 => Op::Docs {
                dir: ["", "a", "b/"][self.draw(3)].to_owned(),
                from: Cursor::default(),
                count: 9,
            },
            2 => Op::Doc { name },
            _ => Op::PutDoc {
                name,
                rev: self.chance.below(12),
                ttl: Duration::from_secs(60),
                body: format!("body {}", self.chance.below(3)),
            },
        }
    }

    fn draw(&self, bound: usize) -> usize {
        usize::try_from(self.chance.below(bound as u64)).unwrap()
    }
}

// === comparing ===

/// An answer without what two clocks cannot agree on.
fn timeless(answer: Answer) -> Answer {
    let view = |view: View| View {
        remaining_ms: view.remaining_ms.map(|_| 0),
        ..view
    };
    match answer {
        Answer::Refused(v) => Answer::Refused(view(v)),
        Answer::View(v) => Answer::View(view(v)),
        Answer::Broken(v) => Answer::Broken(view(v)),
        Answer::Page(page) => Answer::Page(Page {
            views: page.views.into_iter().map(view).collect(),
            ..page
        }),
        Answer::Lives {
            sum,
            parts,
            mut docs,
        } => {
            docs.sort();
            docs.iter_mut().for_each(|doc| doc.left_ms = 0);
            Answer::Lives { sum, parts, docs }
        }
        Answer::Admission(admission) => Answer::Admission(Admission {
            incarnation: String::new(),
            ..admission
        }),
        Answer::TooEarly { .. } => Answer::TooEarly { wall_ms: 0 },
        other => other,
    }
}

/// An answer in the order of names: stores walk as they like.
fn sorted(answer: Answer) -> Answer {
    match answer {
        Answer::Page(mut page) => {
            page.views.sort_by(|a, b| a.key.cmp(&b.key));
            page.bodies.sort_by(|a, b| a.0.cmp(&b.0));
            page.docs.sort_by(|a, b| a.name.cmp(&b.name));
            Answer::Page(page)
        }
        other => other,
    }
}
