//! What the facts about nodes mean. Pure.

use std::{collections::BTreeSet, time::Duration};

use super::{finding::Finding, probe::NodeState};
use crate::{
    config::Config,
    human::{Brief, Span},
    lock::tally::majority,
    node::{MemberFacts, Refusal},
};

#[cfg(test)]
mod tests;

/// What those are that name the master of a Redis.
const SENTINEL: &str = "sentinel";
const SENTINELS: &str = "sentinels";
const CLUSTER_NODE: &str = "node of the cluster";
/// Less free space than this is soon used up.
const LITTLE_SPACE: u64 = 64 << 20;

/// What the facts are held against.
pub(super) struct Limits {
    pub(super) node_timeout: Option<Duration>,
    pub(super) skew: Duration,
    /// Whether others take the place of its server, by Sentinel or in a Cluster.
    pub(super) failover: bool,
}

// === impl Limits ===

impl Limits {
    pub(super) fn of(config: &Config) -> Self {
        Self {
            node_timeout: config.locks.node_timeout(),
            skew: config.locks.skew,
            failover: config.locks.fleet().is_some_and(|fleet| fleet.failover),
        }
    }
}

pub(super) fn judge(nodes: &[NodeState], limits: &Limits) -> Vec<Finding> {
    let mut found = Vec::new();
    for node in nodes {
        let faults = one(node, limits);
        if faults.is_empty() {
            found.push(Finding::ok(&node.name, summary(node)));
        }
        found.extend(faults);
    }
    found.extend(together(nodes, limits));
    found
}

fn summary(node: &NodeState) -> String {
    let facts = &node.facts;
    let mut text = match node.latency_us {
        Some(us) => format!("answers within {}.{} ms", us / 1000, us % 1000 / 100),
        None => "answers".to_owned(),
    };
    for part in [
        facts.role.clone(),
        facts.version.as_ref().map(|v| format!("version {v}")),
        facts.path.clone(),
        facts.file_system.clone(),
        facts.journal.as_ref().map(|mode| format!("journal {mode}")),
        facts.size.map(|bytes| format!("{} KiB", bytes / 1024)),
        facts
            .in_use
            .map(|bytes| format!("{} KiB of them in use", bytes / 1024)),
        (facts.members.len() > 1)
            .then(|| format!("{} {}", facts.members.len(), several(&facts.members))),
    ] {
        text += &part.map(|part| format!(", {part}")).unwrap_or_default();
    }
    text
}

/// What is wrong with one node.
fn one(node: &NodeState, limits: &Limits) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(identity(node));
    found.extend(stopped(node));
    if let (Some(why), true) = (&node.error, found.is_empty()) {
        found.push(unreachable(node, why));
    }
    found.extend(rights(node));
    found.extend(persistence(node));
    found.extend(room(node));
    found.extend(alarms(node));
    found.extend(members(node));
    found.extend(replicas(node, limits));
    found.extend(damaged(node));
    found.extend(latency(node, limits));
    found.extend(clock(node, limits));
    found
}

fn identity(node: &NodeState) -> Vec<Finding> {
    let facts = &node.facts;
    let mut found = Vec::new();
    let voters = ["master", "primary", "leader", "follower"];
    let votes = |role: &&String| voters.contains(&role.as_str());
    let outlived = facts
        .role
        .as_ref()
        .and_then(|role| role.strip_prefix("primary beside "));
    if let Some(other) = outlived {
        found.push(Finding::error(
            &node.name,
            format!("{other} takes writes, too, although another server was promoted in its place: programs that reach it alone lock there"),
            "stop it, and make it a standby of the other (pg_rewind) before it starts again",
        ));
    } else if let Some(role) = facts.role.as_ref().filter(|role| !votes(role)) {
        found.push(Finding::error(
            &node.name,
            format!("its role is {role}: it does not vote"),
            match role.as_str() {
                "standby" => "give the address of the primary, or of all servers (locks.postgres.url)",
                "learner" => "promote it (etcdctl member promote), or give the other members (locks.etcd.endpoints)",
                "without a leader" => "start its other members, and let them reach each other: a majority of them elects one",
                _ => "give the address of a master, independent of the other nodes (locks.redis.nodes)",
            },
        ));
    }
    let limited = facts.memory_limit.is_some_and(|limit| limit > 0);
    if let Some(policy) = facts
        .eviction
        .as_ref()
        .filter(|p| limited && *p != "noeviction")
    {
        found.push(Finding::error(
            &node.name,
            format!("it evicts keys when its memory is full ({policy}), locks too, and is refused"),
            "set maxmemory-policy noeviction",
        ));
    }
    found
}

fn unreachable(node: &NodeState, why: &str) -> Finding {
    let (what, remedy) = match node.wants {
        _ if node.denied => ("access refused", RIGHTS),
        Some(wants) => ("it does not serve", wants),
        None if why.starts_with("cannot serve") => (
            "it does not answer",
            "do as it says; it is asked again by itself",
        ),
        None => (
            "it does not answer",
            "start it, let this machine reach it, or correct its address (locks.redis.nodes, locks.postgres.url, \
             locks.etcd.endpoints)",
        ),
    };
    let why = without_remedy(why, remedy);
    Finding::error(&node.name, format!("{what}: {why}"), remedy)
}

/// What a server said, where its remedy is said beside it.
fn without_remedy<'w>(why: &'w str, remedy: &str) -> &'w str {
    let said = why.strip_suffix(remedy);
    said.and_then(|said| said.strip_suffix(": ")).unwrap_or(why)
}

const RIGHTS: &str = "correct locks.redis.username and password (or locks.postgres.url and password, or locks.etcd.username and password), \
                      or give that user the rights that the book names: the line ACL SETUSER in docs/operations/redis.md, GRANT in \
                      docs/operations/postgres.md, or grant-permission in docs/operations/etcd.md";

fn rights(node: &NodeState) -> Option<Finding> {
    let lacking = |lacks: &String| {
        let why = format!("its user lacks {lacks}: what needs it is refused");
        Finding::error(&node.name, why, RIGHTS)
    };
    let Some(why) = &node.write_error else {
        return node.facts.lacks.as_ref().map(lacking);
    };
    let remedy = match node.wants {
        _ if node.denied => RIGHTS,
        // It says itself why it does not write.
        _ if node.facts.alarms.is_some() => return None,
        Some(wants) => wants,
        None => "make it writable: a node that cannot write cannot vote",
    };
    let why = without_remedy(why, remedy);
    Some(Finding::error(
        &node.name,
        format!("it answers, but does not write: {why}"),
        remedy,
    ))
}

fn persistence(node: &NodeState) -> Option<Finding> {
    let facts = &node.facts;
    let lost = "token counters and the memory of fired ticks";
    match (facts.append_only?, facts.fsync.as_deref()) {
        (false, _) => Some(Finding::warning(
            &node.name,
            format!("it writes no append-only file: a restart loses {lost}"),
            "set appendonly yes and appendfsync always",
        )),
        (true, _) if facts.append_ok == Some(false) => Some(Finding::error(
            &node.name,
            "its last write to the append-only file failed",
            "look at its disk and its log",
        )),
        (true, Some(fsync)) if fsync != "always" => Some(Finding::warning(
            &node.name,
            format!(
                "appendfsync is {fsync}: a power cut loses the last votes, and with them {lost}"
            ),
            "set appendfsync always",
        )),
        (true, None) => Some(Finding::warning(
            &node.name,
            format!(
                "appendfsync cannot be read: unless it is always, a power cut loses the last votes, and with them {lost}"
            ),
            "give the user of locks.redis.username the right +config|get, or look at the server yourself that appendfsync is always",
        )),
        (true, Some(_)) => None,
    }
}

fn room(node: &NodeState) -> Vec<Finding> {
    let facts = &node.facts;
    let mut found = Vec::new();
    if let (Some(used), Some(limit @ 1..)) = (facts.memory_used, facts.memory_limit)
        && used > limit / 10 * 8
    {
        found.push(Finding::warning(
            &node.name,
            format!(
                "{} of {} MiB of its memory are used: when it is full it refuses to vote",
                used >> 20,
                limit >> 20
            ),
            "raise maxmemory, or give the locks a server of their own",
        ));
    }
    if let Some(free) = facts.free.filter(|free| *free < LITTLE_SPACE) {
        found.push(Finding::warning(
            &node.name,
            format!(
                "{} MiB are free on its file system: when it is full no replica leads",
                free >> 20
            ),
            "make room",
        ));
    }
    if let Some(mode) = facts.journal.as_ref().filter(|mode| *mode != "wal") {
        found.push(Finding::warning(
            &node.name,
            format!("its journal mode is {mode}: readers and writers keep each other waiting"),
            "restart the workers, which set it to wal; find out who changed it",
        ));
    }
    found
}

fn alarms(node: &NodeState) -> Option<Finding> {
    let alarms = node.facts.alarms.as_ref()?;
    let remedy = match alarms {
        // Before the other: what is damaged is not mended by room.
        said if said.contains("CORRUPT") => {
            "its members differ, and one of them is damaged: look at their logs, remove that member and add it again empty, then \
             etcdctl alarm disarm"
        }
        said if said.contains("NOSPACE") => {
            "compact it (etcdctl compact), defragment each member (etcdctl defrag), then etcdctl alarm disarm; set \
             --auto-compaction-retention, or raise --quota-backend-bytes"
        }
        _ => "look at its log, and at its other members (etcdctl endpoint status)",
    };
    let mut finding = format!("it reports {}, and refuses to write", alarms.trim());
    let members = node.facts.members.iter();
    let by = members.filter(|member| member.alarms.is_some() && !member.stranger);
    let by: Vec<&str> = by.map(|member| member.address.as_str()).collect();
    if !by.is_empty() {
        finding += &format!("; see {}", by.join(", "));
    }
    Some(Finding::error(&node.name, finding, remedy))
}

/// What these are called together.
fn several(members: &[MemberFacts]) -> &'static str {
    match members.first().and_then(|member| member.role.as_deref()) {
        Some(SENTINEL) => SENTINELS,
        Some(CLUSTER_NODE) => "nodes of the cluster",
        _ => "endpoints",
    }
}

/// What is wrong with those that name the master of a Redis.
fn namers(node: &NodeState) -> Vec<Finding> {
    let members = &node.facts.members;
    let who = several(members);
    let told = || members.iter().filter(|member| member.error.is_none());
    // One may be listed twice, under two addresses.
    let ids: BTreeSet<&str> = told().filter_map(|member| member.id.as_deref()).collect();
    let silent = members.len() - told().count();
    let listed = ids.len() + silent;
    let known = told().filter_map(|member| member.of).max().unwrap_or(0);
    let (left, all) = (ids.len(), known.max(members.len()));
    let needed = majority(all);
    let mut found = Vec::new();
    for member in members {
        let Some(why) = &member.error else { continue };
        let remedy = match (why.starts_with("unreachable"), who) {
            (false, _) => "do as it says, or correct its address (locks.redis.nodes)",
            (true, SENTINELS) => {
                "start it, or let this machine reach it; one that is gone for good is taken out of locks.redis.nodes in all \
                 programs, and SENTINEL RESET is given to the others, one after the other"
            }
            (true, _) => {
                "start it, or let this machine reach it; one that is gone for good is taken out of locks.redis.nodes in all \
                 programs, and CLUSTER FORGET is given to the others"
            }
        };
        let address = &member.address;
        let finding = format!(
            "{address} does not tell who the master is: {why}; {left} of {all} {who} do, and without {needed} no replica leads"
        );
        found.push(Finding::warning(&node.name, finding, remedy));
    }
    let named = |name: &str| told().filter(|m| m.names.as_deref() == Some(name)).count();
    let names = told().filter_map(|member| member.names.as_deref());
    if let Some(most) = names.max_by_key(|name| named(name)) {
        for member in told().filter(|m| m.names.as_deref() != Some(most)) {
            let (address, other) = (&member.address, member.names.as_deref());
            let other = other.unwrap_or_default();
            found.push(Finding::warning(
                &node.name,
                format!("{address} names {other} as the master, and most others {most}"),
                "ask again in a moment; if it stays so, let them reach each other, and look at its log",
            ));
        }
    }
    if known > listed {
        found.push(Finding::warning(
            &node.name,
            format!("there are {known} {who}, and locks.redis.nodes names {listed} of them"),
            "name all of them; those that are gone for good are forgotten by SENTINEL RESET, or CLUSTER FORGET",
        ));
    }
    found
}

/// What is wrong with single members of a cluster, which is one node.
fn members(node: &NodeState) -> Vec<Finding> {
    let facts = &node.facts;
    if several(&facts.members) != "endpoints" {
        return namers(node);
    }
    let found = facts.members.iter().filter_map(|member| {
        let address = &member.address;
        if let Some(why) = &member.error {
            return Some(Finding::warning(
                &node.name,
                format!("its member {address} does not answer: {why}"),
                "start it, let this machine reach it, or correct locks.etcd.endpoints",
            ));
        }
        if member.stranger {
            let shown = |cluster: &Option<String>| cluster.clone().unwrap_or_default();
            let (its, ours) = (shown(&member.cluster), shown(&facts.run_id));
            return Some(Finding::error(
                &node.name,
                format!(
                    "{address} is of another cluster ({its}) than the other endpoints ({ours})"
                ),
                "name members of one cluster (locks.etcd.endpoints)",
            ));
        }
        // What is true of all of them was said of the node.
        let role = member.role.as_deref();
        let (what, remedy) = match role.filter(|_| member.role != facts.role)? {
            "learner" => (
                "is a learner, which does not serve",
                "promote it (etcdctl member promote), or leave it out of locks.etcd.endpoints",
            ),
            "without a leader" => (
                "hears of no leader, and does not serve",
                "let it reach the other members, and look at its log",
            ),
            _ => return None,
        };
        Some(Finding::warning(
            &node.name,
            format!("its member {address} {what}"),
            remedy,
        ))
    });
    found.collect()
}

fn stopped(node: &NodeState) -> Option<Finding> {
    let pid = node.facts.stopped_writer?;
    Some(Finding::error(
        &node.name,
        format!(
            "process {pid} is stopped in the middle of a write and keeps the file locked: no replica leads"
        ),
        format!("let it go on (kill -CONT {pid}), or end it (kill -KILL {pid})"),
    ))
}

fn replicas(node: &NodeState, limits: &Limits) -> Option<Finding> {
    let count = node.facts.replicas?;
    if limits.failover {
        return (count == 0).then(|| {
            Finding::warning(
                &node.name,
                "no replica follows it: nothing takes its place when it dies".to_owned(),
                "start one, with replicaof",
            )
        });
    }
    if count == 0 {
        return None;
    }
    if node.facts.role.as_deref() == Some("primary") {
        return standbys(node, count);
    }
    Some(Finding::warning(
        &node.name,
        format!(
            "{count} replica(s) follow it: a failover to one forgets votes, and two may hold a lock"
        ),
        "take the replicas away, or let nothing promote them",
    ))
}

/// A promotion is noticed and waited for; what it cannot make good is a primary that lives on beside its successor.
fn standbys(node: &NodeState, count: u64) -> Option<Finding> {
    if node.facts.synchronous_standbys.is_some() {
        return None;
    }
    Some(Finding::warning(
        &node.name,
        format!(
            "{count} standby(s) follow it asynchronously: a promotion may lose the last leases (nothing is granted for max_ttl \
             then), and a primary that lives on in a partition of its own goes on to grant"
        ),
        "set synchronous_standby_names, or see to it that the old primary is stopped before another is promoted",
    ))
}

/// Only what needs it is refused, so that without this a lock or two would be missed.
fn damaged(node: &NodeState) -> Option<Finding> {
    let mut what = node.damage.found.clone();
    if what.is_empty() {
        return None;
    }
    if node.damage.more > 0 {
        what.push(format!("and {} more", node.damage.more));
    }
    Some(Finding::error(
        &node.name,
        format!("a part of its memory is damaged: {}", what.join(", ")),
        Refusal::Damaged.remedy(),
    ))
}

fn latency(node: &NodeState, limits: &Limits) -> Option<Finding> {
    let limit = limits.node_timeout?;
    let (median, slowest) = (
        Duration::from_micros(node.latency_us?),
        Duration::from_micros(node.slowest_us?),
    );
    if median * 2 <= limit && slowest <= limit {
        return None;
    }
    Some(Finding::warning(
        &node.name,
        format!(
            "calls take {} and up to {}, node_timeout is {}: many will count as no answer",
            Brief(median),
            Brief(slowest),
            Span(limit)
        ),
        "look at its load and the way to it, or raise its node_timeout (ttl/20 at most, so raise ttl with it)",
    ))
}

fn clock(node: &NodeState, limits: &Limits) -> Option<Finding> {
    let (offset, error) = (node.offset_ms?, node.offset_error_ms.unwrap_or(0));
    let sure = offset.unsigned_abs().saturating_sub(error.unsigned_abs());
    if sure <= millis(limits.skew) {
        return None;
    }
    let way = if offset > 0 { "ahead of" } else { "behind" };
    Some(Finding::warning(
        &node.name,
        format!(
            "its clock is {} ms {way} this machine's (skew allows {})",
            offset.unsigned_abs(),
            Span(limits.skew)
        ),
        "let NTP set both clocks; a server's clock that jumps ends short claims of batches early, and with \
         locks.expiry = \"server\" every lease",
    ))
}

/// What is wrong with the nodes together.
fn together(nodes: &[NodeState], limits: &Limits) -> Vec<Finding> {
    let mut found = Vec::new();
    for (i, node) in nodes.iter().enumerate() {
        let twin = node.facts.run_id.as_ref().and_then(|id| {
            let mut before = nodes[..i].iter();
            before.find(|other| other.facts.run_id.as_ref() == Some(id))
        });
        if let Some(twin) = twin {
            found.push(Finding::error(
                &node.name,
                format!(
                    "it is the same server as {}: it would vote twice",
                    twin.name
                ),
                "name each server once (locks.redis.nodes)",
            ));
        }
    }
    found.extend(far(nodes));
    let offsets = || {
        nodes
            .iter()
            .filter_map(|node| Some((node.offset_ms?, &node.name)))
    };
    if let (Some((low, slow)), Some((high, fast))) = (offsets().min(), offsets().max()) {
        let error: i64 = nodes
            .iter()
            .filter_map(|n| n.offset_error_ms)
            .max()
            .unwrap_or(0);
        let apart = high
            .saturating_sub(low)
            .saturating_sub(error.saturating_mul(2));
        if u64::try_from(apart).unwrap_or(0) > millis(limits.skew) {
            found.push(Finding::warning(
                "nodes",
                format!(
                    "the clocks of {fast} and {slow} are {} ms apart",
                    high - low
                ),
                "let NTP set both",
            ));
        }
    }
    let up = nodes.iter().filter(|node| node.up).count();
    let (all, needed) = (nodes.len(), nodes.len() / 2 + 1);
    if up < needed {
        found.push(Finding::error(
            "nodes",
            format!("{up} of {all} nodes answer, {needed} are needed: no lock can be held"),
            "see the nodes' own findings",
        ));
    } else if up == needed && all > 1 {
        found.push(Finding::warning(
            "nodes",
            format!("{up} of {all} nodes answer, and all of them are needed: no node to spare"),
            "bring the others back",
        ));
    }
    found
}

/// Q5: numbers far above all others, which are not taken over.
fn far(nodes: &[NodeState]) -> Vec<Finding> {
    let told = |node: &&NodeState| node.damage.far.is_some();
    let most = nodes.iter().filter(told).count();
    let few = nodes.iter().filter(|_| most <= nodes.len() / 2);
    let found = few.filter_map(|node| {
        let (token, place) = node.damage.far.as_ref()?;
        Some(Finding::error(
            &node.name,
            format!(
                "a part of its memory is damaged: {place} is {token}, far above those of the other nodes"
            ),
            Refusal::Damaged.remedy(),
        ))
    });
    found.collect()
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}
