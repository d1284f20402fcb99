//! The rule for one lock or claim is written twice: in a short script or the quick way, and in the loop for many. Here both get
//! the same rows and the same operation, and must answer and leave the same. A seed is printed with every failure; `WATCHKEEPER_SEED` repeats it.

use std::time::Duration;

use watchkeeper_lock::{
    chance::Chance,
    node::{
        Answer, GuardSettings, Kind, Op, RestartGuard, Seen, Take, Token, View,
        redis::{RedisNode, RedisNodeSettings},
    },
};

use crate::{
    bench::*, differential::seed, it::conformance::admission::admitted, server::RedisServer,
};

const ROUNDS: usize = 1_500;

/// Two namespaces of one server.
const NAMESPACES: [&str; 2] = ["short", "many"];

pub(crate) fn the_short_scripts_do_as_the_loop_does() {
    for guarded in [false, true] {
        run(async {
            let server = RedisServer::start();
            let nodes = NAMESPACES.map(|namespace| {
                let mode = match guarded {
                    true => RestartGuard::Connection,
                    false => RestartGuard::Off,
                };
                node(&RedisNodeSettings {
                    namespace: namespace.to_owned(),
                    guard: GuardSettings {
                        mode,
                        config: "one".to_owned(),
                    },
                    ..settings(&server)
                })
            });
            if guarded {
                for node in &nodes {
                    admitted(node, "now", "one").await;
                }
            }
            let seed = seed();
            let world = World {
                chance: Chance::seeded(seed),
                now: now(&nodes[0]).await.0,
            };
            for round in 0..ROUNDS {
                let (fields, body) = world.memory();
                for namespace in NAMESPACES {
                    plant(&server, namespace, &fields, body.as_deref());
                }
                let op = world.op(fields.iter().find(|(name, _)| name == "lk"));
                let about = format!("seed {seed}, round {round}: {op:?} on {fields:?}, {body:?}");
                let [short, many] = [0, 1].map(|n| &nodes[n]);
                let by_short = answer(short, vec![op.clone()]).await;
                // Beside another operation it goes to the loop.
                let other = match is_of_a_claim(&op) {
                    true => Op::Read {
                        key: "nobody's".into(),
                    },
                    false => release("nobody's", "nobody"),
                };
                let by_loop = answer(many, vec![op, other]).await;
                assert_eq!(by_short, by_loop, "{about}");
                let [short, many] = NAMESPACES.map(|namespace| memory(&server, namespace));
                assert_eq!(short.len(), many.len(), "{about}: {short:?} {many:?}");
                for (short, many) in short.iter().zip(&many) {
                    assert!(alike(short, many), "{about}: {short} {many}");
                }
            }
        });
    }
}

fn is_of_a_claim(op: &Op) -> bool {
    let (Op::Acquire { kind, .. } | Op::Release { kind, .. }) = op else {
        return false;
    };
    *kind == Kind::Claim
}

async fn answer(node: &RedisNode, ops: Vec<Op>) -> Answer {
    use watchkeeper_lock::node::{Call, Node};
    let not_after = None;
    let reply = node.call(Call { not_after, ops }).await.unwrap();
    let view = |view: View| View {
        remaining_ms: view.remaining_ms.map(|ms| ms / 5_000),
        ..view
    };
    match reply.answers.into_iter().next().unwrap() {
        Answer::Refused(seen) => Answer::Refused(view(seen)),
        // The name of the table is in the text.
        Answer::Failed(trouble) => {
            let text = trouble.to_string().replace("{short}", "{many}");
            panic_unless_damaged(&text);
            Answer::Docs(vec![watchkeeper_lock::node::Doc {
                name: text,
                rev: 0,
                body: String::new(),
            }])
        }
        other => other,
    }
}

fn panic_unless_damaged(text: &str) {
    assert!(text.contains("its memory was changed"), "{text}");
}

fn plant(server: &RedisServer, namespace: &str, fields: &[(String, String)], body: Option<&str>) {
    let (table, bodies) = (
        format!("{{{namespace}}}:2:t"),
        format!("{{{namespace}}}:2:b"),
    );
    server.raw(&["HDEL", &table, "lk", "ek", "c"]);
    server.raw(&["DEL", &bodies]);
    if !fields.is_empty() {
        let mut words = vec!["HSET", &table];
        for (name, value) in fields {
            words.extend([name.as_str(), value.as_str()]);
        }
        server.raw(&words);
    }
    if let Some(body) = body {
        server.raw(&["HSET", &bodies, "k", body]);
    }
}

/// What stands there: the row, what is known of the body, the counter, and the body.
fn memory(server: &RedisServer, namespace: &str) -> Vec<String> {
    let table = format!("{{{namespace}}}:2:t");
    let bodies = format!("{{{namespace}}}:2:b");
    let mut found = vec![server.raw(&["HGET", &bodies, "k"])];
    found.extend(["lk", "ek", "c"].map(|field| server.raw(&["HGET", &table, field])));
    found
}

/// As a row stands in short, where it can: what says so in long says the same.
fn in_short(row: &str) -> String {
    let can = row.is_ascii()
        && row.len() >= 134
        && row.starts_with(['H', 'R'])
        && row[46..59] == "0".repeat(13)
        && row[69..101] == "0".repeat(32)
        && row[1..17] == row[17..33];
    match can {
        true => [
            &row[..1].to_lowercase(),
            &row[1..17],
            &row[33..46],
            &row[59..69],
            &row[101..],
        ]
        .concat(),
        false => row.to_owned(),
    }
}

/// Equal but for some seconds in the times, which stand where rows and bodies have them.
fn alike(one: &str, two: &str) -> bool {
    let (Some(a), Some(b)) = (value(one), value(two)) else {
        return one == two;
    };
    let (a, b) = (&*in_short(a), &*in_short(b));
    let places: &[(usize, usize)] = match (a.len(), a.as_bytes().first()) {
        (55, _) => &[(0, 13)],
        (_, Some(b'C')) => &[(17, 30)],
        (73.., Some(b'h' | b'r')) => &[(17, 30)],
        (134.., _) => &[(33, 46), (46, 59)],
        _ => &[],
    };
    let masked = |text: &str| {
        let mut text = text.to_owned();
        for (from, to) in places {
            text.replace_range(from..to, "time");
        }
        text
    };
    let times = |text: &str| -> Option<Vec<u64>> {
        let times = places
            .iter()
            .map(|(from, to)| text[*from..*to].parse().ok());
        times.collect()
    };
    a == b
        || a.len() == b.len()
            && masked(a) == masked(b)
            && match (times(a), times(b)) {
                (Some(one), Some(two)) => one
                    .iter()
                    .zip(&two)
                    .all(|(one, two)| one.abs_diff(*two) < 5_000),
                _ => false,
            }
}

fn value(reply: &str) -> Option<&str> {
    reply.strip_prefix('$')?.split("\r\n").nth(1)
}

struct World {
    chance: Chance,
    now: u64,
}

// === impl World ===

impl World {
    fn pick<'a>(&self, of: &[&'a str]) -> &'a str {
        of[usize::try_from(self.chance.below(of.len() as u64)).unwrap()]
    }

    /// Well before, well after, or none.
    fn time(&self) -> String {
        let (before, after) = (self.now - 600_000, self.now + 600_000);
        match self.chance.below(5) {
            0 => "0".repeat(13),
            1 | 2 => format!("{before:013}"),
            _ => format!("{after:013}"),
        }
    }

    fn number(&self) -> String {
        match self.chance.below(12) {
            0 => "9007199254740990".to_owned(),
            1 => "9007199254740991".to_owned(),
            2 => "9007199254740989".to_owned(),
            _ => format!("{:016}", self.chance.below(40)),
        }
    }

    fn inc(&self) -> &'static str {
        self.pick(&[
            "now-------------",
            "now-------------",
            "----------------",
            "----------------",
            "before----------",
        ])
    }

    fn row(&self) -> String {
        let owner = self.pick(&["a", "a", "b"]);
        if self.chance.below(6) == 0 {
            return format!("C{}{}{}{owner}", self.number(), self.time(), self.inc());
        }
        if self.chance.below(3) == 0 {
            return format!(
                "{}{}{}{:010}{:016}{}{owner}",
                self.pick(&["h", "h", "r", "b"]),
                self.number(),
                self.time(),
                [1_000, 30_000, 900_000][usize::try_from(self.chance.below(3)).unwrap()],
                self.chance.below(3),
                self.inc(),
            );
        }
        format!(
            "{}{}{:016}{}{}{:010}{:016}{:016}{:016}{}{owner}",
            self.pick(&["H", "H", "R", "B"]),
            self.number(),
            self.chance.below(40),
            self.time(),
            self.time(),
            [1_000, 30_000, 900_000][usize::try_from(self.chance.below(3)).unwrap()],
            [0, 3][usize::try_from(self.chance.below(2)).unwrap()],
            [0, 1][usize::try_from(self.chance.below(2)).unwrap()],
            self.chance.below(3),
            self.inc(),
        )
    }

    /// Mostly as we write it.
    fn memory(&self) -> (Vec<(String, String)>, Option<String>) {
        let mut fields = Vec::new();
        let spoilt = |text: String| match self.chance.below(12) {
            0 => text.replacen('0', "x", 1 + usize::try_from(self.chance.below(4)).unwrap()),
            1 => text[..text.len() / 2].to_owned(),
            2 if self.chance.below(4) == 0 => text + &"y".repeat(5_000),
            3 => self.pick(&["x", "H", "C", "R1", " "]).to_owned(),
            _ => text,
        };
        if self.chance.below(5) > 0 {
            fields.push(("lk".to_owned(), spoilt(self.row())));
        }
        let mut body = None;
        if self.chance.below(2) == 0 {
            let text = self.pick(&["", "left", "more than that"]);
            let until = match self.chance.below(3) {
                0 => "9".repeat(13),
                _ => self.time(),
            };
            let known = format!("{until}{:016}{:016}{:010}", 2, 1, text.len());
            fields.push(("ek".to_owned(), spoilt(known)));
            body = match self.chance.below(8) {
                0 => None,
                1 => Some(format!("{text}.")),
                _ => Some(text.to_owned()),
            };
        }
        match self.chance.below(4) {
            0 => {}
            1 => fields.push(("c".to_owned(), spoilt(self.number()))),
            _ => fields.push(("c".to_owned(), format!("{:016}", self.chance.below(40)))),
        }
        (fields, body)
    }

    fn op(&self, row: Option<&(String, String)>) -> Op {
        let owner = self.pick(&["a", "b", "c"]);
        let kind = match self.chance.below(3) {
            0 => Kind::Claim,
            _ => Kind::Lock,
        };
        if self.chance.below(3) == 0 {
            return release_as("k", owner, kind, RETENTION);
        }
        let seen = row
            .map(|(_, row)| (row, if row.starts_with(['h', 'r']) { 40 } else { 101 }))
            .filter(|(row, at)| row.len() > at + 32 && row.is_ascii())
            .map(|(row, at)| Seen {
                inc: row[at + 16..at + 32].trim_end_matches('-').to_owned(),
                owner: row[at + 32..].to_owned(),
                seq: row[at..at + 16].parse().unwrap_or(0),
            });
        let take = match self.chance.below(4) {
            0 => Take::Observed(None),
            1 => Take::Observed(seen.map(|seen| Seen {
                seq: seen.seq + 1,
                ..seen
            })),
            2 => Take::Observed(seen),
            _ => Take::Server,
        };
        let waits = match self.chance.below(2) {
            0 => Duration::ZERO,
            _ => Duration::from_secs(1_200),
        };
        Op::Acquire {
            key: "k".into(),
            owner: owner.into(),
            kind,
            ttl: TTL,
            floor: match self.chance.below(6) {
                0 => Token(9_007_199_254_740_990),
                1 => Token(30),
                _ => Token(0),
            },
            take,
            clamp: TTL,
            ticket: None,
            waits,
        }
    }
}
