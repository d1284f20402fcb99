//! Many documents, one picture. Pure: facts and `now` in, the picture out.

use std::{cmp::Reverse, collections::BTreeMap};

use jiff::Timestamp;

use super::{
    FleetStatus, JobPresence, JobStatus, LeaderStatus, LockStatus, NodeStatus, Presence,
    ReplicaStatus, RunStatus, Standing, definitions,
};
use crate::node::View;

/// One replica's word about one job.
type Word<'a> = (&'a Presence, &'a JobPresence);

pub(super) fn fleet(
    presences: Vec<Presence>,
    nodes: Vec<NodeStatus>,
    now: Timestamp,
) -> FleetStatus {
    let mut newest: BTreeMap<String, Presence> = BTreeMap::new();
    for presence in presences {
        let old = newest.get(&presence.id);
        // The time of writing decides between equal revisions, so that the order of documents does not.
        if old.is_none_or(|old| (old.rev, old.written_at) < (presence.rev, presence.written_at)) {
            newest.insert(presence.id.clone(), presence);
        }
    }
    let mut words: BTreeMap<&str, Vec<Word<'_>>> = BTreeMap::new();
    for presence in newest.values() {
        for job in &presence.jobs {
            words.entry(&job.name).or_default().push((presence, job));
        }
    }
    let jobs = words.values().map(|words| job(words, now)).collect();
    let mut replicas: Vec<_> = newest.values().map(|p| replica(p, now)).collect();
    replicas.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    FleetStatus {
        replicas,
        jobs,
        nodes,
    }
}

fn replica(p: &Presence, now: Timestamp) -> ReplicaStatus {
    let dead = p.jobs.iter().find_map(|job| {
        let why = job.engine_died.as_ref()?;
        Some(format!(
            "the engine of {} has died, and begins again: {why}",
            job.name
        ))
    });
    let unfit = p.unfit.clone().or(dead);
    ReplicaStatus {
        id: p.id.clone(),
        name: p.name.clone(),
        host: p.host.clone(),
        pid: p.pid,
        version: p.version.clone(),
        role: p.role,
        priority: p.priority,
        draining: p.draining,
        fit: unfit.is_none(),
        unfit,
        started: p.started,
        seen_ms_ago: ms_since(p.written_at, now),
        admin: p.admin.clone(),
        reload: p.reload.clone(),
    }
}

/// `words` is never empty.
fn job(words: &[Word<'_>], now: Timestamp) -> JobStatus {
    let mut claims: Vec<&Word<'_>> = words
        .iter()
        .filter(|(p, j)| claims_to_lead(p, j, now))
        .collect();
    claims.sort_by_key(|(p, j)| Reverse((j.token, p.written_at, &p.id)));
    let leader = claims.first().copied();
    // Settings come from the leader, who acts by them; else from whoever spoke last.
    let speaker = leader.or_else(|| words.iter().max_by_key(|(p, _)| (p.written_at, &p.id)));
    let said = |of: fn(&JobPresence) -> String| speaker.map(|(_, j)| of(j)).unwrap_or_default();

    let last = words
        .iter()
        .filter(|(_, j)| j.last_tick.is_some())
        .max_by_key(|(p, j)| (j.last_tick, j.last_outcome.is_some(), p.written_at, &p.id));
    let last = last.or(speaker);
    let next = leader.and_then(|(_, j)| j.next_tick).or_else(|| {
        let ticks = words.iter().filter_map(|(_, j)| j.next_tick);
        ticks.clone().filter(|t| *t >= now).min().or(ticks.max())
    });
    let freshest_backlog = words
        .iter()
        .filter(|(_, j)| j.backlog.is_some())
        .max_by_key(|(p, _)| (p.written_at, &p.id));
    JobStatus {
        name: said(|j| j.name.clone()),
        coordination: said(|j| j.coordination.clone()),
        schedule: said(|j| j.schedule.clone()),
        zone: speaker.and_then(|(_, j)| j.zone.clone()),
        definitions: definitions::of(words.iter().copied()),
        leader: leader.map(|(p, j)| leader_status(p, j, now)),
        contested: claims.len() > 1,
        last_tick: last.and_then(|(_, j)| j.last_tick),
        next_tick: next,
        last_outcome: last.and_then(|(_, j)| j.last_outcome.clone()),
        // Until the intents are looked at: whoever knows of a pause starts nothing.
        paused: words.iter().any(|(_, j)| j.paused),
        paused_why: None,
        backlog: freshest_backlog.and_then(|(_, j)| j.backlog),
        // From the same replica: what one says is of one moment.
        held: freshest_backlog.and_then(|(_, j)| j.held),
        running: running(words),
    }
}

fn claims_to_lead(p: &Presence, j: &JobPresence, now: Timestamp) -> bool {
    let believed = j
        .believe_ms
        .is_none_or(|ms| ms_since(p.written_at, now) <= ms);
    j.standing == Standing::Leading && j.token.is_some() && believed
}

fn leader_status(p: &Presence, j: &JobPresence, now: Timestamp) -> LeaderStatus {
    let age = ms_since(p.written_at, now);
    LeaderStatus {
        replica: p.id.clone(),
        name: p.name.clone(),
        host: p.host.clone(),
        pid: p.pid,
        token: j.token.unwrap_or_default(),
        since: j.since.unwrap_or(p.written_at),
        remaining_ms: j.remaining_ms.map(|ms| ms.saturating_sub(age)),
        margin: j.margin,
    }
}

fn running(words: &[Word<'_>]) -> Vec<RunStatus> {
    let mut all: Vec<RunStatus> = words
        .iter()
        .flat_map(|(p, j)| j.running.iter().map(move |run| (p, run)))
        .map(|(p, run)| RunStatus {
            replica: p.id.clone(),
            ..run.clone()
        })
        .collect();
    all.sort_by(|a, b| (a.started, &a.run_id).cmp(&(b.started, &b.run_id)));
    all
}

// === locks ===

pub(super) fn locks(answers: &[Vec<View>], configured: usize) -> Vec<LockStatus> {
    let mut by_key: BTreeMap<&str, Vec<&View>> = BTreeMap::new();
    for view in answers.iter().flatten() {
        by_key.entry(&view.key).or_default().push(view);
    }
    let majority = configured / 2 + 1;
    by_key.values().map(|views| lock(views, majority)).collect()
}

/// `views` is never empty.
fn lock(views: &[&View], majority: usize) -> LockStatus {
    let shown_on = |owner: &str| {
        let shown = views
            .iter()
            .filter(move |v| v.holder.as_deref() == Some(owner));
        shown.copied().collect::<Vec<_>>()
    };
    // Whoever stands in most keys; in none, the owner of the latest lease.
    let holders = views.iter().filter_map(|v| v.holder.as_deref());
    let latest = || views.iter().max_by_key(|v| (v.token, &v.owner));
    let owner = holders
        .max_by_key(|owner| (shown_on(owner).len(), *owner))
        .or_else(|| latest().and_then(|v| v.owner.as_deref()))
        .unwrap_or_default();
    let keys = shown_on(owner);
    let held = keys.len() >= majority;
    let mut left: Vec<u64> = keys.iter().filter_map(|v| v.remaining_ms).collect();
    left.sort_unstable_by_key(|ms| Reverse(*ms));
    let last_of_majority = if held { majority - 1 } else { 0 };
    let theirs: Vec<_> = views
        .iter()
        .filter(|v| v.holder.as_deref().or(v.owner.as_deref()) == Some(owner))
        .collect();
    LockStatus {
        key: views.first().map(|v| v.key.clone()).unwrap_or_default(),
        owner: owner.to_owned(),
        token: theirs.iter().map(|v| v.token).max().unwrap_or_default(),
        remaining_ms: left.get(last_of_majority).copied(),
        held,
        nodes: keys.len(),
        released: keys.is_empty() && theirs.iter().any(|v| v.released),
        replica: None,
    }
}

// === helpers ===

/// Zero when the writer's clock is ahead of ours.
fn ms_since(earlier: Timestamp, now: Timestamp) -> u64 {
    u64::try_from(now.as_millisecond() - earlier.as_millisecond()).unwrap_or(0)
}
