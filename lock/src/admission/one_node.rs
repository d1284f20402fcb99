//! Admits one node: reads what the others know, tells it, and gives it back its vote.

use std::{collections::BTreeMap, sync::atomic::Ordering, time::Duration};

use futures_util::future::join_all;

use super::{
    guard::Guard,
    knowledge::{self, Outside, Reading, merge},
    roster::Roster,
};
use crate::{
    backoff::Backoff,
    node::{Admission, Answer, Cursor, NodeError, Op, Page, Refusal, Token, Version, View, gather},
    panics::caught,
    quorum::{
        cluster::Cluster,
        link::{Link, MOST_OPS},
    },
};

/// Intents are documents that no node may lack.
const INTENTS: &str = "intent/";

/// Records, or intents, asked for at once, and the least when they turn out to be large.
const PAGE: (u32, u32) = (250, 4);

/// Letters of bodies and documents that a node is told in one call.
const TOLD_AT_ONCE: usize = 64 * 1024;

/// Another voter that cannot be read is asked so often before we do without it, when enough others were read.
const TRIES: u32 = 4;

/// When too few were, those that are silent are asked for so long, but not for longer than half of the longest lease: one that
/// only stood still for a moment must not cost what all of them know.
const HICCUP: Duration = Duration::from_secs(5);

/// A node whose pages have no end is read for no longer.
const LONGEST_READING: Duration = Duration::from_secs(600);

/// What another node says when it is read.
enum Read {
    /// It votes, and this is what it knows.
    Known(Reading),
    /// It does not vote, or has lost its memory while it was read: it has nothing to tell.
    NoVoter,
    /// It did not answer, and may know a lot.
    Silent,
}

/// One node that is admitted.
pub(super) struct OneNode<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) guard: &'a Guard,
    pub(super) node: usize,
    pub(super) link: &'a Link,
}

// === impl OneNode ===

impl OneNode<'_> {
    /// Tells the node what the others know, then admits it. Whether it is admitted now.
    pub(super) async fn admit(&self, nonce: String, shown: &Admission, lost_before: i64) -> bool {
        let members = Roster::read(&shown.roster, self.cluster.links.len());
        let readings = self.read_others(members.as_ref()).await;
        let merged = merge(
            &nonce,
            self.cluster.links.len(),
            &readings,
            self.outside(shown, lost_before),
            |key| self.cluster.timing.retention_of(key),
        );
        let mut page = MOST_OPS;
        let mut ops = merged.ops.as_slice();
        while !ops.is_empty() {
            let (now, later) = ops.split_at(page.min(at_once(ops)));
            match self.link.ask(now.to_vec()).await {
                Ok(reply) if reply.answers.iter().all(|a| *a == Answer::Done) => ops = later,
                // Large bodies: less of them at once.
                Err(NodeError::Timeout(_)) if page > 1 => page = (page / 4).max(1),
                // Nominated anew, or silent: it starts again with what stands there then.
                Ok(_) | Err(_) => return false,
            }
        }
        let admit = Op::Admit {
            nonce,
            config: self.guard.fleet.to_string(),
            roster: shown.roster.clone(),
            counter: merged.counter,
            memory_loss: merged.memory_loss,
        };
        let done = matches!(self.link.ask(vec![admit]).await,
            Ok(reply) if reply.answers == [Answer::Done]);
        let nodes = self.cluster.links.len();
        if done && !merged.complete && readings.is_empty() && Roster::is_first(&shown.roster, nodes)
        {
            tracing::info!(
                node = self.link.name(),
                tokens_from = merged.counter.0,
                "this fleet is new, as far as its nodes know: tokens begin there"
            );
        } else if done
            && !merged.complete
            && !self.guard.memory_loss_said.swap(true, Ordering::SeqCst)
        {
            tracing::warn!(
                node = self.link.name(),
                read = readings.len(),
                needed = knowledge::enough(nodes),
                tokens_from = merged.counter.0,
                "too few other nodes remember: tokens go on from there, and what was due before counts as decided, \
                 although it is unknown how"
            );
        }
        done
    }

    fn outside(&self, shown: &Admission, lost_before: i64) -> Outside {
        let wall = self.cluster.clock.wall();
        let micros = u64::try_from(wall.as_microsecond()).unwrap_or(0);
        let said = self.guard.token_floor.as_ref().and_then(|floor| {
            let said = caught(|| floor());
            let told = |panic: &String| {
                tracing::warn!(
                    panic,
                    "the token floor panicked: tokens go on from the clock"
                )
            };
            said.inspect_err(told).ok()
        });
        Outside {
            lost_before,
            floor: said.unwrap_or(Token(micros)),
            seen: self.cluster.seen(),
            intact: shown.admitted.then_some(shown.memory_loss),
        }
    }

    /// What the other voters know, after the watch. What is decided while they are read one after the other is no
    /// matter: a majority of the voters takes note of it, as if this node were silent.
    async fn read_others(&self, members: Option<&Roster>) -> Vec<Reading> {
        let (clock, all) = (&self.cluster.clock, self.cluster.links.len());
        let until = clock.now() + HICCUP.min(self.cluster.timing.max_ttl / 2);
        let mut readings = Vec::new();
        let mut missing: Vec<usize> = (0..all).filter(|other| *other != self.node).collect();
        loop {
            let reads = missing.iter().map(|other| self.read(*other, members));
            let read = join_all(reads).await;
            let mut silent = Vec::new();
            for (other, read) in missing.into_iter().zip(read) {
                match read {
                    Read::Known(reading) => {
                        let known = |one: &Reading| !one.id.is_empty() && one.id == reading.id;
                        // Two addresses of one node are one voter.
                        if !readings.iter().any(known) {
                            readings.push(reading);
                        }
                    }
                    Read::NoVoter => {}
                    Read::Silent => silent.push(other),
                }
            }
            missing = silent;
            let enough = readings.len() >= knowledge::enough(all);
            if enough || missing.is_empty() || clock.now() >= until {
                return readings;
            }
        }
    }

    async fn read(&self, other: usize, members: Option<&Roster>) -> Read {
        let Some(link) = self.cluster.links.get(other) else {
            return Read::NoVoter;
        };
        let mut backoff = Backoff::new(self.cluster.timing.node_timeout, Duration::from_secs(1));
        for _ in 0..TRIES {
            let reading = read_all(link, members);
            match self.cluster.clock.timeout(LONGEST_READING, reading).await {
                Ok(Ok(Some(reading))) => return Read::Known(reading),
                Ok(Ok(None)) => return Read::NoVoter,
                Ok(Err(_)) | Err(_) => {
                    let pause = backoff.next(&self.cluster.chance);
                    self.cluster.clock.sleep(pause).await;
                }
            }
        }
        Read::Silent
    }
}

/// Everything that one voter knows; `None` when it is none, or was not the same from the first page to the last. `c` comes
/// with each page, and that of the last one counts: it is read when all records are (G7).
async fn read_all(link: &Link, members: Option<&Roster>) -> Result<Option<Reading>, NodeError> {
    let mut reading = Reading::default();
    let (mut next, mut inc, mut count) = (Some(Cursor::default()), None, PAGE.0);
    while let Some(from) = next {
        let ops = vec![
            Op::Records {
                from: from.clone(),
                count,
            },
            Op::Admission,
        ];
        let reply = match link.ask(ops).await {
            Err(NodeError::Timeout(_)) if count > PAGE.1 => {
                (next, count) = (Some(from), (count / 4).max(PAGE.1));
                continue;
            }
            reply => reply?,
        };
        next = None;
        let mut page = Page::default();
        let mut large = Vec::new();
        let mut versions: BTreeMap<String, Version> = BTreeMap::new();
        for answer in reply.answers {
            match answer {
                Answer::Admission(shown) => {
                    if !is_same(&mut inc, &shown) {
                        return Ok(None);
                    }
                    if members.is_some_and(|members| !members.names(&shown.id)) {
                        // The one that is meant may know a lot: as if it were silent.
                        return Err(NodeError::Unfit("of another fleet".to_owned()));
                    }
                    reading.id.clone_from(&shown.id);
                    reading.memory_loss = shown.memory_loss;
                    large.append(&mut page.large);
                    reading.has(std::mem::take(&mut page), shown.counter);
                }
                Answer::Page(shown) => {
                    next.clone_from(&shown.next);
                    let views = shown.views.iter();
                    versions = views
                        .map(|view| (view.key.clone(), view.record.version))
                        .collect();
                    page = shown;
                }
                other => return Err(NodeError::Protocol(format!("while reading: {other:?}"))),
            }
        }
        // One by one: each may take as long as a whole page.
        for key in large {
            for answer in link
                .ask(vec![Op::Admission, Op::Read { key: key.clone() }])
                .await?
                .answers
            {
                match answer {
                    Answer::Admission(shown) if is_same(&mut inc, &shown) => {}
                    Answer::Admission(_) => return Ok(None),
                    Answer::View(View { key, record, .. }) => reading.bodies.push((key, record)),
                    // What was left of this one lock is not known here; all else that this node knows is.
                    Answer::Failed(NodeError::Refused {
                        refusal: Refusal::Damaged,
                        ..
                    }) => reading
                        .torn
                        .push((key.clone(), versions.get(&key).copied())),
                    other => return Err(NodeError::Protocol(format!("while reading: {other:?}"))),
                }
            }
        }
    }
    let (mut next, mut count, mut intents) = (Some(Cursor::default()), PAGE.0, BTreeMap::new());
    while let Some(from) = next {
        let page = Op::Docs {
            dir: INTENTS.to_owned(),
            from: from.clone(),
            count,
        };
        let reply = match link.ask(vec![Op::Admission, page]).await {
            Err(NodeError::Timeout(_)) if count > PAGE.1 => {
                (next, count) = (Some(from), (count / 4).max(PAGE.1));
                continue;
            }
            reply => reply?,
        };
        next = None;
        let mut answers = reply.answers;
        let mut large = Vec::new();
        loop {
            for answer in answers {
                match answer {
                    Answer::Admission(shown) if is_same(&mut inc, &shown) => {}
                    Answer::Admission(_) => return Ok(None),
                    Answer::Page(shown) => {
                        next = shown.next;
                        large = shown.large;
                        gather(&mut intents, shown.docs);
                    }
                    Answer::Docs(docs) => gather(&mut intents, docs),
                    other => return Err(NodeError::Protocol(format!("while reading: {other:?}"))),
                }
            }
            let Some(name) = large.pop() else { break };
            answers = link
                .ask(vec![Op::Admission, Op::Doc { name }])
                .await?
                .answers;
        }
    }
    reading.docs = intents.into_values().collect();
    Ok(Some(reading))
}

/// How many of these are told in one call: a server does nothing else while it takes them in. At least one.
pub(crate) fn at_once(ops: &[Op]) -> usize {
    let mut room = TOLD_AT_ONCE;
    let fits = ops.iter().take_while(|op| {
        let text = match op {
            Op::Merge { record, .. } => record.body.len(),
            Op::Write { body, .. } => body.len(),
            Op::PutDoc { body, .. } => body.len(),
            _ => 0,
        };
        let fits = text <= room;
        room = room.saturating_sub(text);
        fits
    });
    fits.count().max(1)
}

/// Whether this is a voter, and the one that was read before.
fn is_same(inc: &mut Option<String>, shown: &Admission) -> bool {
    // Whatever it was admitted for, it has lost nothing since.
    shown.admitted
        && inc
            .replace(shown.inc.clone())
            .is_none_or(|before| before == shown.inc)
}
