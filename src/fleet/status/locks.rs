//! One lock in full, and how its nodes differ. Pure: what the nodes show in, what it means out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::holders::{HolderStatus, Holders};
use crate::{
    ledger::Ledger,
    node::{Expiry, NodeError, Token, View},
};

/// One lock, as `locks show KEY --json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LockDetail {
    /// The lock.
    pub key: String,
    /// What it amounts to.
    pub state: LockState,
    /// The value that stands in most keys; without one the owner of the latest lease.
    pub owner: Option<String>,
    /// The largest token that any node shows.
    pub token: Token,
    /// Remaining life: on a majority if it is held, else the longest leftover; `null` when free or without an end. Of a record
    /// without its key the ttl, for which its owner may still live.
    pub remaining_ms: Option<u64>,
    /// Nodes that show the owner: in the key, or in the record where that decides and its key has gone.
    pub nodes: usize,
    /// Nodes that it takes.
    pub needed: usize,
    /// Nodes configured.
    pub configured: usize,
    /// Nodes beyond the majority that hold it; `null` when it is not held.
    pub margin: Option<i64>,
    /// The process that holds it, where it tells of itself: a replica, or a program under `lock` or `elect`.
    pub holder: Option<HolderStatus>,
    /// What a job's record says of its runs.
    pub ledger: Option<LedgerStatus>,
    /// What each node shows, in the order of the configuration.
    pub by_node: Vec<NodeLock>,
}

/// What the nodes together say of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LockState {
    /// A majority shows the owner.
    Held,
    /// A majority shows the owner, but not in its keys: they have run out, or vanished because a clock jumped. It may live, and
    /// those that want the lock watch it for its ttl. Only with observed expiry.
    Orphaned,
    /// A majority shows it, and it has been ended by force: it is refused from now on, and its key runs out.
    Broken,
    /// A value that is none of ours stands on a majority: another Redlock client's.
    Foreign,
    /// It stands on too few nodes: left over, or of one that the others cannot see.
    Minority,
    /// It is free; the last holder has released it, or was broken.
    Released,
    /// It is free; its last holder never released it.
    Unreleased,
    /// No node knows it.
    #[default]
    Unknown,
}

/// A job's ledger in short.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LedgerStatus {
    /// Every tick up to here is decided.
    pub decided_upto: Option<jiff::Timestamp>,
    /// Runs that have started and not ended.
    pub open: usize,
    /// Ticks that will run late.
    pub waiting: usize,
    /// Why it cannot be read.
    pub error: Option<String>,
}

/// What one node shows of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeLock {
    /// The node.
    pub node: String,
    /// Why it shows nothing.
    pub error: Option<String>,
    /// The value in the key.
    pub holder: Option<String>,
    /// Whether that value is none of ours: it has neither record nor grant here.
    pub foreign: bool,
    /// Remaining life of the key.
    pub remaining_ms: Option<u64>,
    /// The key has no time to live: it never ends by itself.
    pub endless: bool,
    /// The record's owner.
    pub owner: Option<String>,
    /// The record's round.
    pub seq: u64,
    /// How long those that want the lock watch the record's owner, whose key has gone here: the record's ttl. Only with
    /// observed expiry, and while that owner was not seen released.
    pub watched_ms: Option<u64>,
    /// The largest token known there.
    pub token: Token,
    /// Whether the record's owner is over: released, or broken.
    pub released: bool,
    /// Token of the lease that wrote the record's body.
    pub body_token: Token,
    /// Revision of the record's body.
    pub rev: u64,
}

// === impl LockDetail ===

impl LockDetail {
    /// What the nodes of these `names` show of the lock `key`, whose silent holder is over as `expiry` says.
    #[must_use]
    pub(crate) fn from_nodes(
        key: &str,
        names: &[String],
        nodes: &[Result<View, NodeError>],
        expiry: Expiry,
    ) -> Self {
        let mut by_node: Vec<NodeLock> = names
            .iter()
            .zip(nodes)
            .map(|(name, shown)| NodeLock::new(name, shown))
            .collect();
        let configured = nodes.len();
        let needed = configured / 2 + 1;
        if expiry == Expiry::Observed {
            watch_records(&mut by_node, nodes, needed);
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for holder in by_node.iter().filter_map(NodeLock::stands) {
            *counts.entry(holder).or_default() += 1;
        }
        let most = counts
            .into_iter()
            .max_by_key(|(owner, count)| (*count, *owner));
        let recorded = || by_node.iter().filter(|n| n.owner.is_some());
        let latest = || recorded().max_by_key(|n| (n.token, &n.owner));
        let owner = most
            .map(|(owner, _)| owner.to_owned())
            .or_else(|| latest().and_then(|n| n.owner.clone()));
        let count = most.map_or(0, |(_, count)| count);
        let standing = || {
            by_node
                .iter()
                .filter(|n| owner.is_some() && n.stands() == owner.as_deref())
        };
        let in_keys = standing().filter(|n| n.holder.is_some()).count();
        let over = |n: &NodeLock| n.released && n.owner == owner;
        // What is left of it when its release was swept.
        let known = |n: &NodeLock| n.body_token > Token(0);
        let state = if count >= needed {
            if standing().filter(|n| n.foreign).count() >= needed {
                LockState::Foreign
            } else if by_node.iter().filter(|n| over(n)).count() >= needed {
                LockState::Broken
            } else if in_keys < needed {
                LockState::Orphaned
            } else {
                LockState::Held
            }
        } else if count > 0 {
            LockState::Minority
        } else if by_node.iter().any(over) {
            LockState::Released
        } else if owner.is_some() {
            LockState::Unreleased
        } else if by_node.iter().any(known) {
            LockState::Released
        } else {
            LockState::Unknown
        };
        let lives = standing().filter_map(NodeLock::life_ms);
        let decides = if count >= needed { needed } else { 1 };
        let remaining_ms = tally(lives, decides);
        let body = nodes.iter().flatten().map(|view| &view.record);
        let body = body.max_by_key(|record| record.version);
        let tokens = by_node.iter().map(|n| n.token.max(n.body_token));
        Self {
            key: key.to_owned(),
            state,
            token: tokens.max().unwrap_or_default(),
            remaining_ms,
            nodes: count,
            needed,
            configured,
            margin: (in_keys >= needed).then(|| signed(in_keys) - signed(needed)),
            holder: None,
            ledger: body
                .filter(|record| key.starts_with("job/") && !record.body.is_empty())
                .map(|record| LedgerStatus::from_body(&record.body)),
            owner,
            by_node,
        }
    }

    /// Says which process holds it, where it tells of itself.
    #[must_use]
    pub(crate) fn with_holder(mut self, holders: &Holders) -> Self {
        let owner = self.owner.as_deref().filter(|_| self.nodes > 0);
        self.holder = owner.and_then(|owner| holders.holder(owner)).cloned();
        self
    }

    /// Whether as many nodes answer as it takes to change anything.
    #[cfg(any(test, feature = "cli", feature = "admin"))]
    pub(crate) fn has_quorum(&self) -> bool {
        let answer = self.by_node.iter().filter(|node| node.error.is_none());
        answer.count() >= self.needed
    }

    /// Whether a majority shows a holder of ours that has not been ended.
    #[must_use]
    pub(crate) fn is_held(&self) -> bool {
        self.state == LockState::Held
    }

    pub(super) fn showing(&self, wanted: impl Fn(&NodeLock) -> bool) -> Vec<String> {
        let nodes = self.by_node.iter().filter(|n| wanted(n));
        nodes.map(|n| n.node.clone()).collect()
    }

    /// Whether its holder has extended it since `earlier`.
    pub(super) fn extended_since(&self, earlier: &Self) -> bool {
        let pairs = self.by_node.iter().zip(&earlier.by_node);
        let mut same =
            pairs.filter(|(now, then)| now.holder.is_some() && now.holder == then.holder);
        same.any(|(now, then)| now.seq > then.seq || now.remaining_ms > then.remaining_ms)
    }
}

impl NodeLock {
    /// The owner that may believe to hold it, as far as this node shows: the value in the key, or the record's owner that is watched.
    #[must_use]
    pub(crate) fn stands(&self) -> Option<&str> {
        let recorded = self.owner.as_deref().filter(|_| self.watched_ms.is_some());
        self.holder.as_deref().or(recorded)
    }

    /// For how long, at most; `None` without an end, or without such an owner.
    #[must_use]
    pub(crate) fn life_ms(&self) -> Option<u64> {
        match self.holder {
            Some(_) => self.remaining_ms,
            None => self.watched_ms,
        }
    }

    fn new(node: &str, shown: &Result<View, NodeError>) -> Self {
        let node = node.to_owned();
        match shown {
            Err(trouble) => Self {
                node,
                error: Some(trouble.to_string()),
                ..Self::default()
            },
            Ok(view) => {
                let claim = view.owner.is_none() && view.token > Token(0);
                let recorded = view.owner == view.holder;
                Self {
                    node,
                    error: None,
                    foreign: view.holder.is_some() && !recorded && !claim,
                    endless: view.holder.is_some() && view.remaining_ms.is_none(),
                    holder: view.holder.clone(),
                    remaining_ms: view.remaining_ms,
                    owner: view.owner.clone(),
                    seq: view.seq,
                    watched_ms: None,
                    token: view.token,
                    released: view.released || view.broken,
                    body_token: view.record.version.token,
                    rev: view.record.version.rev,
                }
            }
        }
    }
}

impl LedgerStatus {
    fn from_body(body: &str) -> Self {
        match Ledger::from_body(body) {
            Ok(ledger) => Self {
                decided_upto: ledger.decided_upto(),
                open: ledger.open().len(),
                waiting: ledger.waiting().len() + ledger.queued().len(),
                error: None,
            },
            Err(why) => Self {
                error: Some(why.to_string()),
                ..Self::default()
            },
        }
    }
}

// === helpers ===

/// Marks the records whose owner may live without its key. Fewer than a majority with its keys are what was left of a lost
/// attempt, and an owner that has released anywhere is over everywhere (O2).
fn watch_records(by_node: &mut [NodeLock], nodes: &[Result<View, NodeError>], needed: usize) {
    let views = || nodes.iter().flatten();
    let shown = |owner: &str| {
        let shown = views().filter(|view| view.holder_by(Expiry::Observed) == Some(owner));
        shown.count()
    };
    let over = |owner: &str| views().any(|v| v.released && v.owner.as_deref() == Some(owner));
    for (row, view) in by_node.iter_mut().zip(nodes) {
        let Ok(view) = view else { continue };
        let recorded = view
            .holder_by(Expiry::Observed)
            .filter(|_| view.holder.is_none());
        let may_live = recorded.is_some_and(|owner| shown(owner) >= needed && !over(owner));
        row.watched_ms = may_live.then_some(view.ttl_ms);
    }
}

/// The `nth` longest of these lives, from 1.
pub(super) fn tally(lives: impl Iterator<Item = u64>, nth: usize) -> Option<u64> {
    let mut lives: Vec<u64> = lives.collect();
    lives.sort_unstable_by_key(|ms| std::cmp::Reverse(*ms));
    lives.get(nth - 1).copied()
}

fn signed(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::{
        fleet::status::leaks::{LeakKind, tests::kinds},
        node::{Record, Version},
    };

    pub(in crate::fleet::status) fn names() -> Vec<String> {
        ["a", "b", "c"].map(str::to_owned).into()
    }

    pub(in crate::fleet::status) fn ours(
        owner: &str,
        seq: u64,
        ms: Option<u64>,
    ) -> Result<View, NodeError> {
        Ok(View {
            holder: Some(owner.into()),
            owner: Some(owner.into()),
            remaining_ms: ms,
            seq,
            token: Token(7),
            ..View::default()
        })
    }

    pub(in crate::fleet::status) fn detail(
        key: &str,
        nodes: [Result<View, NodeError>; 3],
    ) -> LockDetail {
        LockDetail::from_nodes(key, &names(), &nodes, Expiry::Server)
    }

    /// A record whose key has gone.
    fn record(owner: &str, released: bool) -> Result<View, NodeError> {
        Ok(View {
            owner: Some(owner.into()),
            named: true,
            ttl_ms: 900,
            token: Token(7),
            released,
            ..View::default()
        })
    }

    pub(in crate::fleet::status) fn free() -> Result<View, NodeError> {
        Ok(View::default())
    }

    #[test]
    fn a_held_lock_shows_its_margin_and_the_life_that_decides() {
        let lock = detail(
            "lock/x",
            [ours("o", 1, Some(900)), ours("o", 1, Some(300)), free()],
        );
        assert_eq!((lock.state, lock.margin), (LockState::Held, Some(0)));
        assert_eq!(
            (lock.remaining_ms, lock.nodes, lock.needed),
            (Some(300), 2, 2)
        );
    }

    #[test]
    fn the_newest_record_of_a_job_tells_its_ledger() {
        let shows = |second, rev| {
            let at = jiff::Timestamp::from_second(second).unwrap();
            let mut ledger = Ledger::default();
            ledger.first_sight(at).unwrap();
            let version = Version {
                rev,
                ..Version::default()
            };
            let body = ledger.to_body();
            Ok(View {
                record: Record { version, body },
                ..View::default()
            })
        };
        let lock = detail("job/report", [shows(900, 1), shows(5000, 2), free()]);
        let upto = lock.ledger.unwrap().decided_upto;
        assert_eq!(upto, jiff::Timestamp::from_second(5000).ok());
    }

    #[test]
    fn a_value_without_record_or_grant_is_foreign() {
        let foreign = || {
            Ok(View {
                holder: Some("theirs".into()),
                owner: Some("ours, long ago".into()),
                released: true,
                token: Token(3),
                ..View::default()
            })
        };
        let lock = detail("orders", [foreign(), foreign(), free()]);
        assert_eq!(lock.state, LockState::Foreign);
        assert_eq!(kinds(&lock, &lock), [LeakKind::ForeignEndless]);
        let claim = Ok(View {
            holder: Some("o".into()),
            token: Token(3),
            remaining_ms: Some(5),
            ..View::default()
        });
        assert!(!detail("batch/x/1", [claim, free(), free()]).by_node[0].foreign);
    }

    #[test]
    fn a_holder_whose_keys_have_gone_is_shown_where_records_decide() {
        let observed = |nodes: [Result<View, NodeError>; 3]| {
            LockDetail::from_nodes("lock/x", &names(), &nodes, Expiry::Observed)
        };
        let living = || record("o", false);
        let lock = observed([living(), living(), free()]);
        assert_eq!(lock.state, LockState::Orphaned);
        assert_eq!(
            (lock.nodes, lock.remaining_ms, lock.margin),
            (2, Some(900), None)
        );
        assert_eq!(kinds(&lock, &lock), [LeakKind::Unreleased]);
        assert!(!lock.is_held());
        let some = observed([living(), ours("o", 1, Some(5)), free()]);
        assert_eq!((some.state, some.nodes), (LockState::Orphaned, 2));
        let broken = || {
            living().map(|view| View {
                broken: true,
                ..view
            })
        };
        let broken = observed([broken(), broken(), free()]);
        assert_eq!(broken.state, LockState::Broken);

        // Over on every node, or never had by a majority, or its keys decide.
        let released = observed([living(), record("o", true), living()]);
        assert_eq!((released.state, released.nodes), (LockState::Released, 0));
        let left = observed([living(), free(), free()]);
        assert_eq!((left.state, left.nodes), (LockState::Unreleased, 0));
        let by_keys = detail("lock/x", [living(), living(), living()]);
        assert_eq!(by_keys.state, LockState::Unreleased);
    }

    #[test]
    fn a_broken_lock_shows_that_it_is() {
        let over = || {
            ours("o", 1, Some(900)).map(|view| View {
                released: true,
                ..view
            })
        };
        assert_eq!(
            detail("job/x", [over(), over(), free()]).state,
            LockState::Broken
        );
    }
}
