//! What a fleet costs its lock nodes, counted: for tests of how that grows with jobs and replicas.

use std::{
    ops::Sub,
    sync::{Arc, Mutex},
};

use super::cluster::Cluster;
use crate::node::{Answer, Op, Reply, memory::Executed};

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
        let Ok(Reply { answers, .. }) = executed.result else {
            return;
        };
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
        }
    }
}
