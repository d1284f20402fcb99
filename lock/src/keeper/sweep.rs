//! Sweeping: what nothing needs any more is forgotten, a page of a node's memory at a time.
//!
//! A lock that is used once leaves its release behind, and a holder that died its lease. Without an end of that a node's memory
//! would grow with every new name. So a keeper walks through the memory of each node that votes, page by page. The node
//! judges what is over by its own clock ([`Op::Sweep`]): releases whose mark has stayed long enough, claims and bodies that
//! have ended. What looks like the lease of a dead holder it only shows. That is watched here for its whole ttl, like every
//! other holder, and forgotten where exactly that stands then ([`Op::Forget`]).
//!
//! # What it costs
//! However many processes there are, one of them walks through a node. Before a walk it looks for the document [`SWEEPER`] of the
//! node; that of another process that lives keeps it from walking, and else it writes its own with each page, which lives
//! until its next walk is overdue. Two that begin in the same moment do both walk, once: the next time one of them finds the
//! other's. While nothing is found, the pauses between walks grow to [`REST`], and so do those between two looks for the
//! document. A walk takes a page of [`COUNT`] a second, faster only while there is much to forget. So a node has from all together
//! - at rest: two calls every four minutes, and one from each further process;
//! - a page a second during a walk;
//! - with much to forget: up to five hundred pages a second, which is twelve thousand locks.
//!
//! A process that lives shortly takes part as long as it lives: the first look comes at a random time within [`FIRST`], so that
//! where there are only such processes, one of them sweeps now and then.
//!
//! # Invariants
//! - C3, S1 The node compares and raises its counter in the step that forgets; here nothing is deleted that was read before.
//! - S2 A lease is forgotten only where exactly that stood still for its ttl on our clock.
//!   (s2_an_orphan_is_forgotten_when_it_was_watched_for_its_ttl)
//! - However many keepers there are, one walks.                        (of_many_keepers_one_sweeps)
//! - At rest the pauses grow.                                          (a_walk_that_finds_nothing_is_followed_by_a_longer_rest)
//! # When things fail  It is tried again with the next walk. A node that sweeps nothing works all the same, and grows.
//! # Not promised      When something is forgotten. Nothing of safety or speed rests on it.

use std::{collections::VecDeque, time::Duration};

use super::shared::Shared;
use crate::{
    clock::Moment,
    node::{Answer, Cursor, Op, Page},
    quorum::{
        cluster::Cluster,
        link::{Link, MOST_OPS},
    },
};

/// How much of a node's memory is looked at in one call: the server does nothing else meanwhile.
const COUNT: u32 = 25;

/// Between two pages with nothing to forget, some, and much.
const PAUSES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_millis(50),
    Duration::from_millis(2),
];

/// Between two walks, from and to.
const REST: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(240)];

/// The first walk of a process comes within this time.
const FIRST: Duration = Duration::from_secs(30);

/// Leases that are watched at one time, at most: the others are found by a later walk.
const MOST_ORPHANS: usize = 1000;

/// The document that names the process which sweeps a node.
const SWEEPER: &str = "keeper/sweeper";

/// How fast to go on. Pure.
#[derive(Debug)]
struct Pace {
    /// The pause after this walk.
    rest: Duration,
    /// Whether this walk has found anything.
    found: bool,
}

/// What is watched until it may be forgotten, the longest watched first.
#[derive(Debug, Default)]
struct Orphans(VecDeque<Orphan>);

#[derive(Debug, PartialEq, Eq)]
struct Orphan {
    key: String,
    ripe: Moment,
}

/// Sweeps one node, for ever.
pub(super) async fn sweep(shared: Shared, node: usize) {
    let cluster = &shared.cluster;
    let Some(link) = cluster.links.get(node) else {
        return;
    };
    let me = cluster.chance.id();
    let mut pace = Pace::default();
    let mut orphans = Orphans::default();
    cluster.clock.sleep(cluster.chance.up_to(FIRST)).await;
    loop {
        link.up().await;
        if link.no_vote().is_none() && is_ours(link, &me).await {
            walk(cluster, node, link, &me, &mut pace, &mut orphans).await;
        }
        let rest = pace.rest();
        let end = cluster.clock.now() + rest + cluster.chance.up_to(rest / 4);
        // Orphans become ripe meanwhile.
        while let Some(ripe) = orphans.next().filter(|ripe| *ripe < end) {
            cluster.clock.sleep_until(ripe).await;
            forget(cluster, node, link, &mut orphans).await;
        }
        cluster.clock.sleep_until(end).await;
    }
}

/// Whether no other process sweeps this node.
async fn is_ours(link: &Link, me: &str) -> bool {
    let name = SWEEPER.to_owned();
    match link.send(vec![Op::Doc { name }]).await.as_deref() {
        Ok([Answer::Docs(docs)]) => docs.iter().all(|doc| doc.body == me),
        _ => false,
    }
}

/// From the first page to the last, or to the first trouble.
async fn walk(
    cluster: &Cluster,
    node: usize,
    link: &Link,
    me: &str,
    pace: &mut Pace,
    orphans: &mut Orphans,
) {
    let clock = &cluster.clock;
    let mut next = Some(Cursor::default());
    while let Some(from) = next {
        let now = clock.now();
        let mine = Op::PutDoc {
            name: SWEEPER.to_owned(),
            rev: u64::try_from(now.since_boot().as_millis()).unwrap_or(u64::MAX),
            // Until the next walk has surely begun.
            ttl: pace.longest_rest() * 2,
            body: me.to_owned(),
        };
        let page = Op::Sweep { from, count: COUNT };
        // In this order: a node whose memory is full may refuse the document, and must be swept all the same.
        let page = match link.send(vec![page, mine]).await {
            Ok(answers) => answers.into_iter().next(),
            Err(_) => return,
        };
        let Some(Answer::Page(page)) = page else {
            return;
        };
        orphans.take(cluster, node, &page);
        let pause = pace.after(&page);
        next = page.next;
        if next.is_some() {
            clock.sleep(pause).await;
            forget(cluster, node, link, orphans).await;
        }
    }
}

/// Forgets what is ripe.
async fn forget(cluster: &Cluster, node: usize, link: &Link, orphans: &mut Orphans) {
    let now = cluster.clock.now();
    let mut ops = Vec::new();
    while let Some(key) = orphans.ripe(now) {
        let seen = cluster.watch().expected(node, &key, now, &cluster.timing);
        // One that has changed meanwhile is found by a later walk, if it is an orphan again.
        if let Some(seen) = seen {
            let retention = cluster.timing.retention_of(&key);
            ops.push(Op::Forget {
                key,
                seen,
                retention,
            });
        }
    }
    for part in ops.chunks(MOST_OPS) {
        // What is not forgotten now is found by a later walk.
        let _ = link.send(part.to_vec()).await;
    }
}

// === impl Pace ===

impl Default for Pace {
    fn default() -> Self {
        let [rest, _] = REST;
        Self { rest, found: false }
    }
}

impl Pace {
    /// The pause after a page, unless it was the last.
    fn after(&mut self, page: &Page) -> Duration {
        self.found |= page.forgotten > 0 || !page.views.is_empty();
        let [nothing, some, much] = PAUSES;
        match page.forgotten {
            0 => nothing,
            found if found < COUNT / 4 => some,
            _ => much,
        }
    }

    /// The longest pause that may follow this walk.
    fn longest_rest(&self) -> Duration {
        let [_, most] = REST;
        (self.rest * 2).min(most)
    }

    /// The pause after a walk, or after another process was found to sweep.
    fn rest(&mut self) -> Duration {
        let [least, _] = REST;
        if std::mem::take(&mut self.found) {
            self.rest = least;
            return least;
        }
        let rest = self.rest;
        self.rest = self.longest_rest();
        rest
    }
}

// === impl Orphans ===

impl Orphans {
    /// Begins to watch what looks orphaned on a page that has just arrived.
    fn take(&mut self, cluster: &Cluster, node: usize, page: &Page) {
        let now = cluster.clock.now();
        for view in &page.views {
            cluster.was_told(node, view.token);
            let known = self.0.iter().any(|orphan| orphan.key == view.key);
            if known || self.0.len() >= MOST_ORPHANS {
                continue;
            }
            cluster.watch().note(node, view, now);
            let ttl = Duration::from_millis(view.ttl_ms);
            let ripe = now + cluster.timing.watch_time(ttl);
            let key = view.key.clone();
            let after = self.0.partition_point(|orphan| orphan.ripe <= ripe);
            self.0.insert(after, Orphan { key, ripe });
        }
    }

    /// When the first of them is ripe.
    fn next(&self) -> Option<Moment> {
        self.0.front().map(|orphan| orphan.ripe)
    }

    /// One that is ripe.
    fn ripe(&mut self, now: Moment) -> Option<String> {
        self.next().filter(|ripe| *ripe <= now)?;
        self.0.pop_front().map(|orphan| orphan.key)
    }
}

#[cfg(test)]
mod tests;
