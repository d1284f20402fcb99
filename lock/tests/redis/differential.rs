//! The Lua script against the node in memory: the same random calls must get the same answers.
//!
//! Leases do not end here by time (two clocks would differ); the common suite covers that. A seed is printed with
//! every failure; `WATCHKEEPER_SEED` repeats it.

use std::{collections::BTreeMap, time::Duration};

use watchkeeper_lock::{
    chance::Chance,
    clock::Clock,
    node::{
        Admission, Answer, Call, Doc, Eligibility, Expiry, GuardSettings, Kind, Node, Op, Record,
        RestartGuard, Seen, Take, Ticket, Token, Version, View, memory::MemoryNode,
        redis::RedisNodeSettings,
    },
};

use crate::{bench::*, server::RedisServer};

const CALLS: usize = 3_000;

pub(crate) fn the_script_answers_as_memory_does() {
    compare(GuardSettings::default());
}

pub(crate) fn the_guarded_script_answers_as_memory_does() {
    for mode in [RestartGuard::Call, RestartGuard::Connection] {
        compare(GuardSettings {
            mode,
            config: "one".to_owned(),
        });
    }
}

fn compare(guard: GuardSettings) {
    run(async {
        let seed = match std::env::var("WATCHKEEPER_SEED") {
            Ok(seed) => seed.parse().unwrap(),
            Err(_) => u64::from(std::process::id()),
        };
        let server = RedisServer::start();
        let redis = node(&RedisNodeSettings {
            guard: guard.clone(),
            ..settings(&server)
        });
        let guarded = guard.mode != RestartGuard::Off;
        let memory = MemoryNode::new("memory", Clock::system()).guarded(guard);
        let mut world = World::new(seed);
        let mut votes = 0;
        for n in 0..CALLS {
            let ops = world.ops();
            let call = || Call {
                not_after: None,
                ops: ops.clone(),
            };
            let expected = memory.call(call()).await.unwrap();
            let reply = redis.call(call()).await.unwrap();
            assert_eq!(
                reply.eligibility, expected.eligibility,
                "seed {seed}, call {n}"
            );
            let voting = matches!(
                reply.eligibility,
                Eligibility::Unguarded | Eligibility::Admitted
            );
            votes += usize::from(voting);
            let answers = reply.answers;
            for ((op, expected), answer) in ops.iter().zip(expected.answers).zip(answers) {
                world.remember(&expected);
                let (expected, answer) = (timeless(expected), timeless(answer));
                assert_eq!(answer, expected, "seed {seed}, call {n}: {op:?} of {ops:?}");
            }
        }
        assert!(
            !guarded || votes > CALLS / 10 && votes < CALLS,
            "seed {seed}: {votes} votes"
        );
    });
}

/// Draws operations on few names, so that they meet.
struct World {
    chance: Chance,
    /// An owner that is over stays so: from time to time others come.
    generation: u64,
    /// What was seen of each lock last.
    seen: BTreeMap<String, Seen>,
    /// A nomination has a nonce that was never used; then the one that stands counts.
    nonces: u64,
    standing: Option<String>,
}

// === impl World ===

impl World {
    fn new(seed: u64) -> Self {
        Self {
            chance: Chance::seeded(seed),
            generation: 0,
            seen: BTreeMap::new(),
            nonces: 0,
            standing: None,
        }
    }

    fn remember(&mut self, answer: &Answer) {
        if let Answer::Admission(admission) = answer {
            self.standing.clone_from(&admission.nonce);
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
        match &self.standing {
            Some(nonce) if self.chance.below(4) > 0 => nonce.clone(),
            _ => format!("nonce {}", self.chance.below(1 + self.nonces)),
        }
    }

    fn admission(&mut self) -> Op {
        let nonce = self.nonce();
        let counter = Token(self.chance.below(60));
        match self.chance.below(6) {
            0 => Op::Admission,
            1..3 => {
                self.nonces += 1;
                let nonce = format!("nonce {}", self.nonces);
                Op::Nominate { nonce }
            }
            3 => Op::Admit {
                nonce,
                config: ["one", "one", "one", "two"][self.draw(4)].to_owned(),
                counter,
                memory_loss: [None, Some(77)][self.draw(2)],
            },
            _ => Op::Merge {
                nonce,
                key: format!("l{}", self.chance.below(5)),
                counter,
                record: Record {
                    version: Version {
                        token: Token(self.chance.below(60)),
                        rev: self.chance.below(4),
                    },
                    body: "merged".to_owned(),
                },
            },
        }
    }

    fn ops(&mut self) -> Vec<Op> {
        let count = 1 + self.chance.below(4);
        (0..count).map(|_| self.op()).collect()
    }

    fn ticket(&mut self) -> Ticket {
        Ticket {
            id: format!("t{}", self.chance.below(3)),
            life: TTL * 10,
            polite: self.chance.hits(0.5),
        }
    }

    fn op(&mut self) -> Op {
        let (key, kind) = match self.chance.below(5) {
            n @ 0..3 => (format!("l{n}"), Kind::Lock),
            n => (format!("c{n}"), Kind::Claim),
        };
        let owner = self.owner();
        let token = self.chance.below(60);
        match self.chance.below(26) {
            0..6 => Op::Acquire {
                take: self.take(&key),
                key,
                owner,
                kind,
                ttl: TTL,
                floor: Token(self.chance.below(40)),
                clamp: TTL / 2,
                ticket: self.chance.hits(0.5).then(|| self.ticket()),
            },
            25 => Op::Leave {
                key,
                ticket: self.ticket().id,
            },
            6..8 => Op::Confirm {
                key,
                owner,
                kind,
                token: Token(token),
                expiry: self.expiry(),
            },
            8..11 => Op::Extend {
                take: self.take(&key),
                key,
                owner,
                kind,
                seq: 1 + self.chance.below(20),
                ttl: TTL,
                token: Token(token),
            },
            22 => Op::Records {
                after: ["", "l0", "l1"][self.draw(3)].to_owned(),
                limit: 2,
            },
            23..25 => self.admission(),
            11..14 => release_as(&key, &owner, kind, RETENTION),
            14..17 => self.write(key, owner, token),
            17 => read(&key),
            20..22 => Op::Break {
                key,
                owner,
                token: Token(token),
                ttl: TTL,
                retention: RETENTION,
                now: self.chance.below(3) == 0,
            },
            18 => Op::List {
                prefix: ["", "l", "c4"][self.draw(3)].to_owned(),
            },
            _ => self.document(),
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
        match self.chance.below(6) {
            0 => Op::RemoveDoc { name },
            3 => Op::DocNames {
                dir: ["", "a", "b/"][self.draw(3)].to_owned(),
                limit: [1, 9][self.draw(2)],
            },
            1 => Op::Docs {
                dir: ["", "a", "b/"][self.draw(3)].to_owned(),
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
        Answer::Views(views) => Answer::Views(sorted(views.into_iter().map(view), |v| &v.key)),
        Answer::Docs(docs) => Answer::Docs(sorted(docs.into_iter(), |d: &Doc| &d.name)),
        Answer::Admission(admission) => Answer::Admission(Admission {
            incarnation: String::new(),
            ..admission
        }),
        Answer::TooEarly { .. } => Answer::TooEarly { wall_ms: 0 },
        other => other,
    }
}

fn sorted<T>(items: impl Iterator<Item = T>, name: impl Fn(&T) -> &str) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.sort_by(|a, b| name(a).cmp(name(b)));
    items
}
