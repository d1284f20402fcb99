//! The client's side of the restart guard: brings nodes that are new, or have lost their memory, back to their vote.
//!
//! A node that has forgotten a vote could give it a second time. So it has none until everything that was granted
//! before is over. A nomination is put on it and watched for the longest lease on our own clock. Only then the node
//! is told what the others know, and admitted (`node::guard` has the node's side). Every process does this
//! for every node: any of them may finish it, several at once harmlessly, and the death of one costs nothing.
//!
//! What to do next is decided in `candidate`, what a node must be told in `knowledge`. Here the calls are made.
//!
//! # When things fail    A node that does not answer is asked again, as long as the process lives. Nothing here votes.
//! # Not promised        Ticks and tokens of a majority that lost its memory at once: see the memory loss in `knowledge`.

pub(crate) mod candidate;
pub(crate) mod knowledge;
mod report;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;

#[doc(hidden)]
pub use report::whole_seconds;
pub use report::{AdmissionReport, AdmissionState};

use self::{
    candidate::{Candidate, Next},
    knowledge::{Outside, Reading, merge},
};
use crate::{
    backoff::Backoff,
    node::{
        Admission, Answer, Cursor, Eligibility, NodeError, Op, Page, Reply, Token, View,
        closed_since, gather,
    },
    panics::caught,
    quorum::{
        cluster::Cluster,
        link::{Link, MOST_OPS},
    },
    settings::FleetConfig,
};

/// Intents are documents that no node may lack.
const INTENTS: &str = "intent/";

/// Records, or intents, asked for at once, and the least when they turn out to be large.
const PAGE: (u32, u32) = (250, 4);

/// Letters of bodies and documents that a node is told in one call.
const TOLD_AT_ONCE: usize = 64 * 1024;

/// Another voter that cannot be read is asked so often before we do without it, when enough others were read.
const TRIES: u32 = 4;

/// When too few were, those that are silent are asked for so long, but not for longer than the longest lease: one that
/// only stood still for a moment must not cost what all of them know.
const HICCUP: Duration = Duration::from_secs(5);

/// Where tokens go on when too few nodes remember them.
pub(crate) type TokenFloor = Arc<dyn Fn() -> Token + Send + Sync>;

/// What the clients of guarded nodes have in common.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) fleet: FleetConfig,
    pub(crate) token_floor: Option<TokenFloor>,
    /// Others bring nodes back.
    pub(crate) bystander: bool,
    /// That memory was lost for good is said once.
    pub(crate) memory_loss_said: Arc<AtomicBool>,
}

/// Tends one node, for ever: at the start of the process, and whenever its replies say that it has no vote.
pub(crate) async fn tend(cluster: Cluster, guard: Guard, node: usize) {
    let Some(link) = cluster.links.get(node) else {
        return;
    };
    let mut eligibility = link.eligibility();
    let mut candidate = Candidate::default();
    loop {
        let tended = Tended {
            cluster: &cluster,
            guard: &guard,
            node,
            link,
        };
        tended.bring_back(&mut candidate).await;
        // Replies that were under way must not keep us busy.
        cluster.clock.sleep(cluster.timing.node_timeout).await;
        if eligibility.wait_for(|now| !votes(now)).await.is_err() {
            return;
        }
    }
}

/// Whether a node of this eligibility votes.
pub(crate) fn votes(eligibility: &Eligibility) -> bool {
    match eligibility {
        Eligibility::Unguarded | Eligibility::Admitted => true,
        Eligibility::Unadmitted | Eligibility::Configured(_) => false,
    }
}

/// What another node says when it is read.
enum Read {
    /// It votes, and this is what it knows.
    Known(Reading),
    /// It does not vote, or has lost its memory while it was read: it has nothing to tell.
    NoVoter,
    /// It did not answer, and may know a lot.
    Silent,
}

struct Tended<'a> {
    cluster: &'a Cluster,
    guard: &'a Guard,
    node: usize,
    link: &'a Link,
}

// === impl Tended ===

impl Tended<'_> {
    /// Until it votes.
    async fn bring_back(&self, candidate: &mut Candidate) {
        let (clock, timing) = (&self.cluster.clock, &self.cluster.timing);
        let mut said = Said::default();
        let mut backoff = Backoff::new(timing.node_timeout, Duration::from_secs(1));
        let mut op = Op::Admission;
        let mut watch = None;
        let mut lost_before = 0;
        loop {
            self.link.up().await;
            // Asked before the node is: what it says now comes later.
            if self.link.take_vote() {
                candidate.has_vote();
            }
            let Some((shown, node_ms)) = admission(self.link.ask(vec![op]).await) else {
                clock.sleep(backoff.next(&self.cluster.chance)).await;
                op = Op::Admission;
                continue;
            };
            backoff.reset();
            // Read when the reply has arrived (G2).
            let now = clock.now();
            candidate.hears(self.stranger_elsewhere());
            let next = candidate.on(now, &shown, &self.guard.fleet, timing);
            self.link.set_watched(candidate.watched());
            self.link.set_rival(match &next {
                Next::Other(theirs, _) => Some(theirs.clone()),
                _ => None,
            });
            if watch != candidate.until() {
                watch = candidate.until();
                // What is lost was decided before: no vote of this node counts while it is watched.
                let skew = i64::try_from(timing.skew.as_millis()).unwrap_or(i64::MAX);
                lost_before = clock.wall().as_millisecond().max(node_ms) + skew;
            }
            said.tell(
                self,
                &shown,
                &next,
                candidate.until().map(|at| at.since(now)),
            );
            op = match next {
                Next::Rest => return,
                Next::Nominate(over) => Op::Nominate {
                    nonce: self.cluster.chance.nonce(),
                    over,
                },
                Next::Look(at) | Next::Other(_, at) => {
                    clock.sleep_until(at + self.spread()).await;
                    Op::Admission
                }
                Next::Admit(nonce) => {
                    if !self.admit(nonce, &shown, lost_before).await {
                        clock.sleep(backoff.next(&self.cluster.chance)).await;
                    }
                    Op::Admission
                }
            };
        }
    }

    /// The configuration of another fleet that another node keeps locks for, by its latest reply.
    fn stranger_elsewhere(&self) -> Option<String> {
        let links = self.cluster.links.iter().enumerate();
        let mut others = links.filter(|(node, _)| *node != self.node);
        others.find_map(|(_, link)| match &*link.eligibility().borrow() {
            Eligibility::Configured(theirs) if closed_since(theirs).is_none() => {
                Some(theirs.clone())
            }
            _ => None,
        })
    }

    /// Processes that have watched equally long need not all read everything: the first one's marker ends it.
    fn spread(&self) -> Duration {
        let most = self.cluster.timing.max_ttl / 50;
        self.cluster.chance.up_to(most.min(Duration::from_secs(1)))
    }

    /// Tells the node what the others know, then admits it. Whether it is admitted now.
    async fn admit(&self, nonce: String, shown: &Admission, lost_before: i64) -> bool {
        let readings = self.read_others().await;
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
            counter: merged.counter,
            memory_loss: merged.memory_loss,
        };
        let done = matches!(self.link.ask(vec![admit]).await,
            Ok(reply) if reply.answers == [Answer::Done]);
        if done && !merged.complete && !self.guard.memory_loss_said.swap(true, Ordering::SeqCst) {
            tracing::warn!(
                node = self.link.name(),
                read = readings.len(),
                needed = knowledge::enough(self.cluster.links.len()),
                tokens_from = merged.counter.0,
                "too few other nodes remember: tokens go on from there, and what was due before counts as decided, \
                 although nobody knows how"
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
    async fn read_others(&self) -> Vec<Reading> {
        let (clock, all) = (&self.cluster.clock, self.cluster.links.len());
        let until = clock.now() + HICCUP.min(self.cluster.timing.max_ttl);
        let mut readings = Vec::new();
        let mut missing: Vec<usize> = (0..all).filter(|other| *other != self.node).collect();
        loop {
            let read = join_all(missing.iter().map(|other| self.read(*other))).await;
            let mut silent = Vec::new();
            for (other, read) in missing.into_iter().zip(read) {
                match read {
                    Read::Known(reading) => readings.push(reading),
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

    async fn read(&self, other: usize) -> Read {
        let Some(link) = self.cluster.links.get(other) else {
            return Read::NoVoter;
        };
        let mut backoff = Backoff::new(self.cluster.timing.node_timeout, Duration::from_secs(1));
        for _ in 0..TRIES {
            match read_all(link).await {
                Ok(Some(reading)) => return Read::Known(reading),
                Ok(None) => return Read::NoVoter,
                Err(_) => {
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
async fn read_all(link: &Link) -> Result<Option<Reading>, NodeError> {
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
        for answer in reply.answers {
            match answer {
                Answer::Admission(shown) => {
                    if !is_same(&mut inc, &shown) {
                        return Ok(None);
                    }
                    reading.memory_loss = shown.memory_loss;
                    large.append(&mut page.large);
                    reading.has(std::mem::take(&mut page), shown.counter);
                }
                Answer::Page(shown) => {
                    next.clone_from(&shown.next);
                    page = shown;
                }
                other => return Err(NodeError::Protocol(format!("while reading: {other:?}"))),
            }
        }
        // One by one: each may take as long as a whole page.
        for key in large {
            for answer in link
                .ask(vec![Op::Admission, Op::Read { key }])
                .await?
                .answers
            {
                match answer {
                    Answer::Admission(shown) if is_same(&mut inc, &shown) => {}
                    Answer::Admission(_) => return Ok(None),
                    Answer::View(View { key, record, .. }) => reading.bodies.push((key, record)),
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
fn at_once(ops: &[Op]) -> usize {
    let mut room = TOLD_AT_ONCE;
    let fits = ops.iter().take_while(|op| {
        let text = match op {
            Op::Merge { record, .. } => record.body.len(),
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

/// With the node's wall clock.
fn admission(read: Result<Reply, NodeError>) -> Option<(Admission, i64)> {
    let mut reply = read.ok()?;
    match reply.answers.pop() {
        Some(Answer::Admission(shown)) => Some((shown, reply.wall_ms)),
        _ => None,
    }
}

/// What was said of a node's absence: its beginning once, its end once (G5).
#[derive(Default)]
struct Said {
    nonce: Option<String>,
    other: bool,
}

impl Said {
    fn tell(&mut self, of: &Tended<'_>, shown: &Admission, next: &Next, left: Option<Duration>) {
        let node = of.link.name();
        match next {
            Next::Rest if self.nonce.is_some() || self.other => {
                tracing::info!(node, "node votes again");
            }
            Next::Other(theirs, _) if !self.other => {
                self.other = true;
                let differs = of.guard.fleet.differs_from(theirs).unwrap_or_default();
                tracing::error!(
                    node,
                    differs,
                    "node does not vote for us: it keeps locks for a fleet that is configured differently; \
                     configure all alike, or stop all and see `doctor --reconfigure`"
                );
            }
            Next::Look(_) if self.nonce != shown.nonce => {
                self.nonce.clone_from(&shown.nonce);
                let why = if shown.admitted {
                    "its vote was taken away, to configure the fleet anew"
                } else if shown.inc.is_empty() {
                    "it is new or has lost its memory"
                } else {
                    "it was started again, or its data was replaced"
                };
                let alone = match of.cluster.links.len() {
                    1 => "; until then nobody gets a lock",
                    _ => "",
                };
                let left_ms = left.map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
                tracing::warn!(
                    node,
                    why,
                    left_ms,
                    "node does not vote before every lease that it may have forgotten is over{alone}"
                );
            }
            _ => {}
        }
    }
}
