//! One lock in full, and which locks nobody will release. Pure: what the nodes show in, what it means out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::FleetStatus;
use crate::{
    ledger::Ledger,
    node::{NodeError, Token, View},
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
    /// Remaining life: on a majority if it is held, else the longest leftover; `null` when free or without an end.
    pub remaining_ms: Option<u64>,
    /// Nodes that show the owner in the key.
    pub nodes: usize,
    /// Nodes that it takes.
    pub needed: usize,
    /// Nodes configured.
    pub configured: usize,
    /// Nodes beyond the majority that hold it; `null` when it is not held.
    pub margin: Option<i64>,
    /// The replica that holds it, where a presence document tells.
    pub replica: Option<HolderStatus>,
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
    /// A majority shows it, and it has been ended by force: it is refused from now on, and its key runs out.
    Broken,
    /// A value that is none of ours stands on a majority: another Redlock client's.
    Foreign,
    /// It stands on too few nodes: left over, or of one that the others cannot see.
    Minority,
    /// Nobody holds it; the last holder has released it, or was broken.
    Released,
    /// Nobody holds it; its last holder never released it.
    Unreleased,
    /// No node knows it.
    #[default]
    Unknown,
}

/// Which replica holds a lock.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HolderStatus {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
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
    /// The largest token known there.
    pub token: Token,
    /// Whether the record's owner is over: released, or broken.
    pub released: bool,
    /// Token of the lease that wrote the record's body.
    pub body_token: Token,
    /// Revision of the record's body.
    pub rev: u64,
}

/// A lock that nobody will release, or may not, as `locks --leaked` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leak {
    /// The lock.
    pub key: String,
    /// What kind of leak.
    pub kind: LeakKind,
    /// Whose value or record it is.
    pub owner: String,
    /// The nodes that show it.
    pub nodes: Vec<String>,
    /// When it ends by itself; `null` when it does not.
    pub remaining_ms: Option<u64>,
    /// What it means.
    pub finding: String,
    /// What to do about it.
    pub remedy: String,
}

/// How a lock can be left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LeakKind {
    /// A key of ours without a time to live.
    Endless,
    /// A foreign key without a time to live.
    ForeignEndless,
    /// A job's lock whose holder is no living replica, and which nobody extends.
    NoReplica,
    /// A lock of a program, of which nothing tells whether it lives; nobody extended it while it was watched.
    UnknownHolder,
    /// A value that stands on a minority only.
    Minority,
    /// A record whose holder has gone without releasing; the lock is free.
    Unreleased,
}

// === impl LockDetail ===

impl LockDetail {
    /// What the nodes of these `names` show of the lock `key`.
    #[must_use]
    pub fn from_nodes(key: &str, names: &[String], nodes: &[Result<View, NodeError>]) -> Self {
        let by_node: Vec<NodeLock> = names
            .iter()
            .zip(nodes)
            .map(|(name, shown)| NodeLock::new(name, shown))
            .collect();
        let configured = nodes.len();
        let needed = configured / 2 + 1;
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for holder in by_node.iter().filter_map(|n| n.holder.as_deref()) {
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
                .filter(|n| n.holder.is_some() && n.holder == owner)
        };
        let over = |n: &NodeLock| n.released && n.owner == owner;
        let state = if count >= needed {
            if standing().filter(|n| n.foreign).count() >= needed {
                LockState::Foreign
            } else if by_node.iter().filter(|n| over(n)).count() >= needed {
                LockState::Broken
            } else {
                LockState::Held
            }
        } else if count > 0 {
            LockState::Minority
        } else if by_node.iter().any(over) {
            LockState::Released
        } else if owner.is_some() {
            LockState::Unreleased
        } else {
            LockState::Unknown
        };
        let mut lives: Vec<u64> = standing().filter_map(|n| n.remaining_ms).collect();
        lives.sort_unstable_by_key(|ms| std::cmp::Reverse(*ms));
        let decides = if count >= needed { needed - 1 } else { 0 };
        let body = nodes.iter().flatten().map(|view| &view.record);
        let body = body.max_by_key(|record| record.version);
        Self {
            key: key.to_owned(),
            state,
            token: by_node.iter().map(|n| n.token).max().unwrap_or_default(),
            remaining_ms: lives.get(decides).copied(),
            nodes: count,
            needed,
            configured,
            margin: (count >= needed).then(|| signed(count) - signed(needed)),
            replica: None,
            ledger: body
                .filter(|record| key.starts_with("job/") && !record.body.is_empty())
                .map(|record| LedgerStatus::from_body(&record.body)),
            owner,
            by_node,
        }
    }

    /// Says which replica holds it, where the fleet's leaders tell.
    #[must_use]
    pub fn with_replica(mut self, fleet: &FleetStatus) -> Self {
        let leader = self
            .key
            .strip_prefix("job/")
            .and_then(|name| fleet.job(name))
            .and_then(|job| job.leader.as_ref())
            .filter(|leader| leader.token == self.token && self.nodes > 0);
        self.replica = leader.map(|leader| HolderStatus {
            id: leader.replica.clone(),
            name: leader.name.clone(),
            host: leader.host.clone(),
            pid: leader.pid,
        });
        self
    }

    /// Whether a majority shows a holder of ours that has not been ended.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.state == LockState::Held
    }

    fn showing(&self, wanted: impl Fn(&NodeLock) -> bool) -> Vec<String> {
        let nodes = self.by_node.iter().filter(|n| wanted(n));
        nodes.map(|n| n.node.clone()).collect()
    }

    /// Whether its holder has extended it since `earlier`.
    fn extended_since(&self, earlier: &Self) -> bool {
        let pairs = self.by_node.iter().zip(&earlier.by_node);
        let mut same =
            pairs.filter(|(now, then)| now.holder.is_some() && now.holder == then.holder);
        same.any(|(now, then)| now.seq > then.seq || now.remaining_ms > then.remaining_ms)
    }
}

impl NodeLock {
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
                    token: view.token,
                    released: view.released,
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
                waiting: ledger.waiting().len(),
                error: None,
            },
            Err(why) => Self {
                error: Some(why.to_string()),
                ..Self::default()
            },
        }
    }
}

// === leaks ===

/// Whether a second look, after a while, would tell more of this lock: a presence document is written a moment after
/// a lock is taken, and whoever extends a lock lives.
#[must_use]
pub fn wants_second_look(lock: &LockDetail) -> bool {
    lock.state == LockState::Minority || lock.is_held() && lock.replica.is_none()
}

/// Which locks nobody will release, or may not: what stood in `then` and stands `now`, a few seconds later.
#[must_use]
pub fn leaks(then: &[LockDetail], now: &[LockDetail]) -> Vec<Leak> {
    let earlier: BTreeMap<&str, &LockDetail> = then.iter().map(|d| (d.key.as_str(), d)).collect();
    let mut found: Vec<Leak> = now
        .iter()
        .flat_map(|lock| leaks_of(lock, earlier.get(lock.key.as_str()).copied()))
        .collect();
    found.sort_by(|a, b| (a.kind, &a.key).cmp(&(b.kind, &b.key)));
    found
}

fn leaks_of(lock: &LockDetail, then: Option<&LockDetail>) -> Vec<Leak> {
    let mut found = Vec::new();
    let leak = |kind, owner: &str, nodes, remaining_ms, finding: String, remedy: String| Leak {
        key: lock.key.clone(),
        kind,
        owner: owner.to_owned(),
        nodes,
        remaining_ms,
        finding,
        remedy,
    };
    let mut endless: BTreeMap<(&str, bool), Vec<String>> = BTreeMap::new();
    for node in lock.by_node.iter().filter(|n| n.endless) {
        let owner = node.holder.as_deref().unwrap_or_default();
        let nodes = endless.entry((owner, node.foreign)).or_default();
        nodes.push(node.node.clone());
    }
    for ((owner, foreign), nodes) in endless {
        let on = nodes.join(", ");
        found.push(if foreign {
            leak(
                LeakKind::ForeignEndless,
                owner,
                nodes,
                None,
                format!("a foreign value without a time to live stands on {on}: it never ends"),
                "find the program that wrote it; it is waited for, and never taken by us: when that program has gone, \
                 remove the key by hand with DEL"
                    .to_owned(),
            )
        } else {
            leak(
                LeakKind::Endless,
                owner,
                nodes,
                None,
                format!("the key has no time to live on {on}: it outlives its holder"),
                format!("watchkeeper locks break {} --owner {owner}", lock.key),
            )
        });
    }
    let owner = lock.owner.as_deref().unwrap_or_default();
    let stays = then.is_none_or(|then| then.owner == lock.owner && !lock.extended_since(then));
    let nodes = lock.showing(|n| n.holder.as_deref() == Some(owner));
    let ends = lock
        .remaining_ms
        .map(|ms| format!("it ends by itself in {}", span(ms)));
    let Some(ends) = ends else {
        if lock.state == LockState::Unreleased {
            found.push(leak(
                LeakKind::Unreleased,
                owner,
                lock.showing(|n| n.owner.as_deref() == Some(owner)),
                None,
                format!("its last holder, under token {}, went without releasing it; nobody holds it", lock.token),
                "nothing to do: the next holder takes it over; the record stays, so that tokens go on growing"
                    .to_owned(),
            ));
        }
        return found;
    };
    let force = format!("{ends}; sooner: watchkeeper locks break {}", lock.key);
    let (kind, finding, remedy) = match lock.state {
        LockState::Minority if stays => (
            LeakKind::Minority,
            format!(
                "it stands on {} of {} nodes only: what an attempt or a dead holder left, and it keeps nobody out",
                lock.nodes, lock.configured
            ),
            ends,
        ),
        LockState::Held if lock.replica.is_some() || !stays => return found,
        LockState::Held if lock.key.starts_with("job/") => (
            LeakKind::NoReplica,
            "no living replica says that it holds it, and nobody extends it: its holder is dead or frozen".to_owned(),
            force,
        ),
        LockState::Held => (
            LeakKind::UnknownHolder,
            "unknown holder: programs tell nothing of themselves, and nobody extended it while it was watched".to_owned(),
            force,
        ),
        _ => return found,
    };
    found.push(leak(kind, owner, nodes, lock.remaining_ms, finding, remedy));
    found
}

/// `2.5 s`
fn span(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}

fn signed(n: usize) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        ["a", "b", "c"].map(str::to_owned).into()
    }

    fn ours(owner: &str, seq: u64, ms: Option<u64>) -> Result<View, NodeError> {
        Ok(View {
            holder: Some(owner.into()),
            owner: Some(owner.into()),
            remaining_ms: ms,
            seq,
            token: Token(7),
            ..View::default()
        })
    }

    fn detail(key: &str, nodes: [Result<View, NodeError>; 3]) -> LockDetail {
        LockDetail::from_nodes(key, &names(), &nodes)
    }

    fn free() -> Result<View, NodeError> {
        Ok(View::default())
    }

    fn kinds(then: &LockDetail, now: &LockDetail) -> Vec<LeakKind> {
        let found = leaks(std::slice::from_ref(then), std::slice::from_ref(now));
        found.into_iter().map(|leak| leak.kind).collect()
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

    #[test]
    fn whoever_extends_a_lock_lives() {
        let held = |seq, ms| {
            detail(
                "job/x",
                [ours("o", seq, Some(ms)), ours("o", seq, Some(ms)), free()],
            )
        };
        assert!(wants_second_look(&held(1, 900)));
        assert_eq!(kinds(&held(1, 900), &held(1, 400)), [LeakKind::NoReplica]);
        assert_eq!(kinds(&held(1, 900), &held(2, 950)), []);
        let held = |ms| {
            detail(
                "lock/x",
                [ours("o", 1, Some(ms)), ours("o", 1, Some(ms)), free()],
            )
        };
        let found = leaks(&[held(900)], &[held(400)]);
        assert_eq!(found[0].kind, LeakKind::UnknownHolder);
        assert!(found[0].remedy.contains("in 0.4 s"), "{}", found[0].remedy);
    }

    #[test]
    fn a_key_without_end_names_the_break_that_ends_it() {
        let lock = detail(
            "lock/x",
            [ours("o", 1, None), ours("o", 1, Some(9)), free()],
        );
        let found = leaks(&[], &[lock]);
        let endless: Vec<_> = found
            .iter()
            .filter(|l| l.kind == LeakKind::Endless)
            .collect();
        assert_eq!(endless[0].nodes, ["a"]);
        assert!(endless[0].remedy.ends_with("locks break lock/x --owner o"));
    }

    #[test]
    fn leftovers_and_old_records_are_told_apart() {
        let left = detail("job/x", [ours("o", 1, Some(900)), free(), free()]);
        assert_eq!(kinds(&left, &left), [LeakKind::Minority]);
        let record = ours("o", 1, None).map(|view| View {
            holder: None,
            ..view
        });
        let gone = detail("job/x", [record, free(), free()]);
        assert_eq!(gone.state, LockState::Unreleased);
        assert_eq!(kinds(&gone, &gone), [LeakKind::Unreleased]);
    }
}
