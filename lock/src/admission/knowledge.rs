//! What a node must be told before it votes again, from what the others show. Pure.
//!
//! # Invariants
//! - G2 N - q + 1 other voters know whatever a majority took note of.  (g2_enough_others_know_everything)
//! - G2 Counters and bodies are merged by maximum; ownership never is.   (g2_the_largest_of_everything_is_merged)
//! - G7 What a node knows of tokens is the largest of its records' counters, read first, and of `c`, read when the last of them
//!   was: what is swept between two pages has raised `c`.              (g7_the_counter_is_read_behind_the_records)
//! - Q5 A counter far above all others is not spread.                (q5_a_damaged_counter_is_not_spread)
//! - G3 Fewer of them: what was known before the watch may be lost, and the counter goes on from a clock or from what the user
//!   says.                                                              (g3_too_few_others_mean_a_memory_loss)
//! - G3 A body that is damaged where it is read is a memory loss, unless another voter has it.
//!   (g3_a_damaged_body_that_no_other_has_is_a_memory_loss)
//! - G3 A memory loss is handed on with what is read from a node that has had one.   (g3_a_memory_loss_is_handed_on)

use std::{collections::BTreeMap, time::Duration};

use crate::{
    node::{
        Doc, Op, Page, Record, Token, Version,
        rules::{DOUBTED, LAST},
    },
    quorum::tally::majority,
};

/// How long a document lives that was taken over: its writer's own limit is not known.
const DOC_LIFE: Duration = Duration::from_secs(24 * 3600);

/// What one other voter knew, read after the watch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    /// The identity of the node.
    pub(crate) id: String,
    /// The largest token that it knows of: its records' and `c`.
    pub(crate) counter: Token,
    /// It tells numbers that are out of range, so that what it knows of tokens is not known.
    pub(crate) doubted: Option<Token>,
    /// What it may have forgotten itself.
    pub(crate) memory_loss: Option<i64>,
    /// What the holders of its locks left for their successors.
    pub(crate) bodies: Vec<(String, Record)>,
    /// Locks of which it cannot say what was left, and the version of that where it is known.
    pub(crate) torn: Vec<(String, Option<Version>)>,
    /// Intents, which every client must find.
    pub(crate) docs: Vec<Doc>,
}

/// What is known without the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outside {
    /// Unix milliseconds, when the watch began: what this node has forgotten was decided before.
    pub(crate) lost_before: i64,
    /// Where tokens go on when too few nodes remember them: what the user says, else the clock in microseconds.
    pub(crate) floor: Token,
    /// The largest token that this client has seen.
    pub(crate) seen: Token,
    /// The node has lost nothing, only its vote was taken away: what it may have forgotten earlier, if anything.
    pub(crate) intact: Option<Option<i64>>,
}

/// What a node is told when it is admitted.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Merged {
    /// Locks and documents, to be merged in before.
    pub(crate) ops: Vec<Op>,
    /// Its counter is raised to this.
    pub(crate) counter: Token,
    /// What was known before this may be lost here.
    pub(crate) memory_loss: Option<i64>,
    /// Whether enough others were read.
    pub(crate) complete: bool,
}

// === impl Reading ===

impl Reading {
    /// Takes in a page of its records, and its `c` as it was with that page or behind it (G7).
    pub(crate) fn has(&mut self, page: Page, c: Token) {
        for token in page.views.iter().map(|view| view.token).chain([c]) {
            match token < DOUBTED {
                true => self.counter = self.counter.max(token),
                false => self.doubted = self.doubted.max(Some(token)),
            }
        }
        self.bodies.extend(page.bodies);
    }
}

/// How many other voters must be read, of `nodes` configured.
pub(crate) fn enough(nodes: usize) -> usize {
    nodes - majority(nodes) + 1
}

/// What a node is told that is to be admitted under `nonce`. `retention` says how long the body of a lock is kept.
pub(crate) fn merge(
    nonce: &str,
    nodes: usize,
    readings: &[Reading],
    outside: Outside,
    retention: impl Fn(&str) -> Duration,
) -> Merged {
    let complete = readings.len() >= enough(nodes) || outside.intact.is_some();
    let mut bodies: BTreeMap<&str, &Record> = BTreeMap::new();
    let mut docs: BTreeMap<&str, &Doc> = BTreeMap::new();
    for reading in readings {
        for (key, record) in &reading.bodies {
            let known = bodies.entry(key).or_insert(record);
            if record.version > known.version {
                *known = record;
            }
        }
        for doc in &reading.docs {
            let known = docs.entry(&doc.name).or_insert(doc);
            if doc.rev > known.rev {
                *known = doc;
            }
        }
    }
    // Of one that is damaged somewhere the others must have what it was, or something newer.
    let lacks = |(key, version): &(String, Option<Version>)| {
        let known = bodies.get(&**key).map(|record| record.version);
        known.is_none() || version.is_none() || known < *version
    };
    let torn = readings.iter().flat_map(|r| &r.torn).any(lacks);
    let bodies = bodies.into_iter().map(|(key, record)| Op::Merge {
        nonce: nonce.to_owned(),
        key: key.to_owned(),
        record: record.clone(),
        retention: retention(key),
    });
    let docs = docs.into_values().map(|doc| Op::PutDoc {
        name: doc.name.clone(),
        rev: doc.rev,
        ttl: DOC_LIFE,
        body: doc.body.clone(),
    });
    let counters = readings.iter().map(|r| r.counter).max();
    let counter = counters.unwrap_or_default().max(outside.seen);
    // What one node tells far above all others is taken for damage: then the clock goes on, which is above all that it can have
    // known. What a majority tells is so.
    let doubted = || readings.iter().filter_map(|reading| reading.doubted);
    let counter = match doubted().count() {
        0 => counter,
        many if many >= majority(nodes) => {
            counter.max(doubted().max().unwrap_or_default().min(LAST))
        }
        _ => counter.max(outside.floor),
    };
    let inherited = readings.iter().filter_map(|r| r.memory_loss).max();
    let (counter, memory_loss) = if let Some(own) = outside.intact {
        (counter, own)
    } else if complete && !torn {
        (counter, inherited)
    } else {
        let lost = outside.lost_before;
        let counter = match complete {
            true => counter,
            false => counter.max(outside.floor),
        };
        let stamp = inherited.map_or(lost, |before| told_apart(before, lost));
        (counter, Some(stamp))
    };
    Merged {
        ops: bodies.chain(docs).collect(),
        counter,
        memory_loss,
        complete,
    }
}

/// The stamp of a loss that is no earlier than `lost`, and later than one before it. Where the clock was ahead at that one, it
/// bears a stamp of its own nevertheless: ledgers note by their stamps which losses they have accounted for. (g3_a_loss_has_a_stamp_of_its_own)
fn told_apart(before: i64, lost: i64) -> i64 {
    const HOUR: i64 = 3_600_000;
    // Nodes that lost their memory together have one stamp.
    if before <= lost {
        return lost;
    }
    // Which stamps other losses bear, or bore, is not known: hardly these. Where clocks are right, a second does not
    // matter.
    let room = match before.saturating_sub(lost) > HOUR {
        true => HOUR,
        false => 1_000,
    };
    before.saturating_add(1 + lost.rem_euclid(room))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::View;

    const KEPT: Duration = Duration::from_secs(60);

    const OUTSIDE: Outside = Outside {
        lost_before: 1_000,
        floor: Token(1_000_000),
        seen: Token(0),
        intact: None,
    };

    fn body(key: &str, token: u64, rev: u64) -> (String, Record) {
        let version = Version {
            token: Token(token),
            rev,
        };
        let body = format!("{token}.{rev}");
        (key.into(), Record { version, body })
    }

    fn knows(counter: u64, bodies: &[(String, Record)]) -> Reading {
        Reading {
            counter: Token(counter),
            bodies: bodies.to_vec(),
            ..Reading::default()
        }
    }

    fn merged(nodes: usize, readings: &[Reading], outside: Outside) -> Merged {
        merge("n", nodes, readings, outside, |_| KEPT)
    }

    #[test]
    fn g7_the_counter_is_read_behind_the_records() {
        let record = |key: &str, token| View {
            key: key.into(),
            token: Token(token),
            ..View::default()
        };
        let page = |views: &[View]| Page {
            views: views.to_vec(),
            ..Page::default()
        };
        // "a" is swept when it was not read yet: the page after that comes with a larger `c`.
        let mut swept = Reading::default();
        swept.has(page(&[record("b", 3)]), Token(0));
        swept.has(page(&[]), Token(9));
        assert_eq!(swept.counter, Token(9));
        let mut stands = Reading::default();
        stands.has(page(&[record("a", 9)]), Token(0));
        stands.has(page(&[record("b", 3)]), Token(0));
        assert_eq!(stands.counter, Token(9));
    }

    #[test]
    fn q5_a_damaged_counter_is_not_spread() {
        let mut damaged = Reading::default();
        damaged.has(Page::default(), LAST);
        assert_eq!((damaged.counter, damaged.doubted), (Token(0), Some(LAST)));
        let told = merged(3, &[knows(7, &[]), damaged.clone()], OUTSIDE);
        assert_eq!((told.complete, told.memory_loss), (true, None));
        assert_eq!(told.counter, OUTSIDE.floor);
        let both = [damaged.clone(), damaged];
        assert_eq!(merged(3, &both, OUTSIDE).counter, LAST);
    }

    #[test]
    fn g3_a_damaged_body_that_no_other_has_is_a_memory_loss() {
        let version = |token, rev| Version {
            token: Token(token),
            rev,
        };
        let torn = |version| Reading {
            torn: vec![("a".to_owned(), version)],
            ..knows(9, &[])
        };
        let told = |version, other: &[(String, Record)]| {
            let told = merged(3, &[torn(version), knows(7, other)], OUTSIDE);
            assert_eq!((told.complete, told.counter), (true, Token(9)));
            told.memory_loss
        };
        let lost = Some(OUTSIDE.lost_before);
        assert_eq!(told(Some(version(5, 1)), &[body("a", 5, 1)]), None);
        assert_eq!(told(Some(version(5, 1)), &[body("a", 5, 2)]), None);
        assert_eq!(told(Some(version(5, 1)), &[body("a", 4, 9)]), lost);
        assert_eq!(told(Some(version(5, 1)), &[]), lost);
        assert_eq!(told(None, &[body("a", 5, 1)]), lost, "of no known version");
    }

    #[test]
    fn g2_enough_others_know_everything() {
        // Any q nodes, and any N - q + 1, have one in common.
        for (nodes, others) in [(1, 1), (3, 2), (5, 3), (7, 4)] {
            assert_eq!(enough(nodes), others);
        }
        let merged = merged(3, &[knows(7, &[]), knows(9, &[])], OUTSIDE);
        assert!(merged.complete);
        assert_eq!((merged.counter, merged.memory_loss), (Token(9), None));
    }

    #[test]
    fn g2_the_largest_of_everything_is_merged() {
        let one = knows(7, &[body("a", 5, 2), body("b", 1, 1)]);
        let two = knows(9, &[body("a", 6, 1)]);
        let doc = |rev| Doc {
            name: "intent/x".into(),
            rev,
            body: rev.to_string(),
        };
        let one = Reading {
            docs: vec![doc(3)],
            ..one
        };
        let two = Reading {
            docs: vec![doc(4)],
            ..two
        };
        let merged = merged(3, &[one, two], OUTSIDE);
        let told: Vec<String> = merged
            .ops
            .iter()
            .map(|op| match op {
                Op::Merge { key, record, .. } => format!("{key} {}", record.body),
                Op::PutDoc { name, rev, .. } => format!("{name} {rev}"),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(told, ["a 6.1", "b 1.1", "intent/x 4"]);
        assert_eq!(merged.counter, Token(9));
    }

    #[test]
    fn g3_too_few_others_mean_a_memory_loss() {
        for (nodes, readings) in [(1, vec![]), (3, vec![knows(7, &[body("a", 5, 1)])])] {
            let known = readings.len();
            let merged = merged(nodes, &readings, OUTSIDE);
            assert!(!merged.complete);
            assert_eq!(merged.memory_loss, Some(1_000));
            assert_eq!(merged.counter, Token(1_000_000));
            assert_eq!(merged.ops.len(), known, "what can be known is merged");
        }
        let seen = Outside {
            seen: Token(2_000_000),
            ..OUTSIDE
        };
        assert_eq!(merged(1, &[], seen).counter, Token(2_000_000));
    }

    #[test]
    fn g3_a_node_that_only_lost_its_vote_has_no_memory_loss() {
        let closed = Outside {
            intact: Some(Some(300)),
            ..OUTSIDE
        };
        let merged = merged(3, &[], closed);
        assert_eq!((merged.complete, merged.memory_loss), (true, Some(300)));
        assert_eq!(merged.counter, Token(0), "its own counter stands");
    }

    #[test]
    fn g3_a_loss_has_a_stamp_of_its_own() {
        let day = 86_400_000;
        let ahead = Reading {
            memory_loss: Some(day),
            ..knows(1, &[])
        };
        let stamps: Vec<i64> = [1_000, 61_234, 3_599_000]
            .iter()
            .filter_map(|lost_before| {
                let outside = Outside {
                    lost_before: *lost_before,
                    ..OUTSIDE
                };
                merged(3, std::slice::from_ref(&ahead), outside).memory_loss
            })
            .collect();
        assert_eq!(stamps, [day + 1_001, day + 61_235, day + 3_599_001]);
    }

    #[test]
    fn g3_a_memory_loss_is_handed_on() {
        let forgetful = Reading {
            memory_loss: Some(500),
            ..knows(1, &[])
        };
        let merged = merged(3, &[knows(2, &[]), forgetful], OUTSIDE);
        assert_eq!((merged.complete, merged.memory_loss), (true, Some(500)));
    }
}
