//! What a fleet costs its lock nodes, counted: for tests of how that grows with jobs and replicas.
//!
//! Bytes are estimated: what a Redis server would receive and send, as words with their lengths. A call weighs [`CALL`] on its
//! way there and [`REPLY`] back; an operation its names and bodies and [`OPERATION`]; an answer what it tells and [`ANSWER`]. The
//! weights are guessed by the scripts' arguments and not measured: what matters here is how it grows.

use std::{
    ops::{Div, Sub},
    sync::{Arc, Mutex},
};

use super::cluster::Cluster;
use crate::node::{Answer, Doc, Op, Reply, memory::Executed};

/// The script's name, the table's, the time, the guard's marker and the fleet's configuration, with all lengths.
const CALL: usize = 330;
/// The node's time, its marker and the fleet's configuration.
const REPLY: usize = 60;
/// Its code, times, tokens, rounds and owner.
const OPERATION: usize = 90;
/// Where it is more than a number: tokens, times and owner.
const ANSWER: usize = 100;
/// The revision and the rest of a life of a document that is named.
const LIFE: usize = 40;
/// A sum over revisions.
const SUM: usize = 17;

/// What one node was asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) calls: u64,
    /// Calls with a look at a lock.
    pub(crate) looks: u64,
    /// Locks that were looked at.
    pub(crate) reads: u64,
    pub(crate) extends: u64,
    pub(crate) acquires: u64,
    /// Bodies of records.
    pub(crate) writes: u64,
    /// Documents that were put, and the bytes of their bodies.
    pub(crate) puts: u64,
    pub(crate) bytes_put: u64,
    /// Documents that were handed out, and the bytes of their bodies.
    pub(crate) docs: u64,
    pub(crate) bytes_read: u64,
    /// About what a server would have received and sent.
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

/// Counts what the first node of a cluster is asked: the others are asked the same. Takes the place of the node's observer.
#[derive(Clone, Default)]
pub(crate) struct Counters(Arc<Mutex<Counts>>);

// === impl Counters ===

impl Counters {
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let counters = Self::default();
        let counts = counters.0.clone();
        cluster.nodes[0].observe(move |executed| counts.lock().unwrap().count(executed));
        counters
    }

    /// Until now.
    pub(crate) fn now(&self) -> Counts {
        *self.0.lock().unwrap()
    }
}

// === impl Counts ===

impl Counts {
    /// There and back.
    pub(crate) fn bytes(&self) -> u64 {
        self.received + self.sent
    }

    fn count(&mut self, executed: &Executed<'_>) {
        self.calls += 1;
        let mut looks = false;
        for op in &executed.call.ops {
            match op {
                Op::Read { .. } => {
                    self.reads += 1;
                    looks = true;
                }
                Op::Extend { .. } => self.extends += 1,
                Op::Acquire { .. } => self.acquires += 1,
                Op::Write { .. } => self.writes += 1,
                Op::PutDoc { body, .. } => {
                    self.puts += 1;
                    self.bytes_put += body.len() as u64;
                }
                _ => {}
            }
        }
        self.looks += u64::from(looks);
        let ops = executed.call.ops.iter().map(weight);
        self.received += (CALL + ops.sum::<usize>()) as u64;
        let Ok(Reply { answers, .. }) = executed.result else {
            return;
        };
        let told = answers.iter().map(weight_of_answer);
        self.sent += (REPLY + told.sum::<usize>()) as u64;
        for answer in answers {
            let docs = match answer {
                Answer::Docs(docs) => docs,
                Answer::Page(page) => &page.docs,
                _ => continue,
            };
            self.docs += docs.len() as u64;
            self.bytes_read += docs.iter().map(|doc| doc.body.len() as u64).sum::<u64>();
        }
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            calls: self.calls - before.calls,
            looks: self.looks - before.looks,
            reads: self.reads - before.reads,
            extends: self.extends - before.extends,
            acquires: self.acquires - before.acquires,
            writes: self.writes - before.writes,
            puts: self.puts - before.puts,
            bytes_put: self.bytes_put - before.bytes_put,
            docs: self.docs - before.docs,
            bytes_read: self.bytes_read - before.bytes_read,
            received: self.received - before.received,
            sent: self.sent - before.sent,
        }
    }
}

impl Div<u64> for Counts {
    type Output = Self;

    fn div(self, by: u64) -> Self {
        Self {
            calls: self.calls / by,
            looks: self.looks / by,
            reads: self.reads / by,
            extends: self.extends / by,
            acquires: self.acquires / by,
            writes: self.writes / by,
            puts: self.puts / by,
            bytes_put: self.bytes_put / by,
            docs: self.docs / by,
            bytes_read: self.bytes_read / by,
            received: self.received / by,
            sent: self.sent / by,
        }
    }
}

/// About what an operation is on its way to a server.
fn weight(op: &Op) -> usize {
    let said = match op {
        Op::Acquire { key, .. }
        | Op::Extend { key, .. }
        | Op::Confirm { key, .. }
        | Op::Release { key, .. }
        | Op::Read { key } => key.len(),
        Op::Write { key, body, .. } => key.len() + body.len(),
        Op::PutDoc { name, body, .. } => name.len() + body.len(),
        Op::TouchDoc { name, .. } | Op::Doc { name } | Op::RemoveDoc { name } => name.len(),
        Op::Living { dir, known, .. } => dir.len() + known.len() * SUM,
        Op::DocNames { dir, .. } | Op::Docs { dir, .. } => dir.len(),
        _ => 0,
    };
    said + OPERATION
}

/// About what an answer is on its way from a server.
fn weight_of_answer(answer: &Answer) -> usize {
    let of_doc = |doc: &Doc| doc.name.len() + doc.body.len() + LIFE;
    match answer {
        Answer::Done | Answer::Kept { .. } | Answer::Unadmitted => 4,
        Answer::Granted { record, .. } => record.body.len() + ANSWER,
        Answer::Docs(docs) => docs.iter().map(of_doc).sum::<usize>() + 4,
        Answer::Page(page) => page.docs.iter().map(of_doc).sum::<usize>() + ANSWER / 2,
        Answer::Lives { parts, docs, .. } => {
            let lives = docs.iter().map(|life| life.name.len() + LIFE);
            lives.sum::<usize>() + parts.len() * 5 + ANSWER / 2
        }
        Answer::View(view) | Answer::Refused(view) => {
            view.key.len() + view.record.body.len() + ANSWER
        }
        _ => ANSWER,
    }
}
