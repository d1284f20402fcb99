//! Many documents, one picture of replicas and jobs. Pure: facts and `now` in, the picture out.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;

use super::{
    FleetStatus, JobPresence, JobStanding, JobStatus, JobTrouble, LastSeen, LeaderStatus,
    NodeStatus, Presence, ReplicaStatus, Role, RunStatus,
    definitions::DefinitionStatus,
    leaders::{Holding, Reading},
};
use crate::{
    fleet::presence::has_lock,
    node::{Token, tag::tag_of},
};

/// What one replica tells of one job.
type Report<'a> = (&'a Presence, &'a JobPresence);

/// What is known besides documents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen<'a> {
    /// What the locks of jobs say, by job. A job that is missing here was not asked about.
    pub(crate) records: BTreeMap<String, Reading>,
    /// The id of the replica that asks: of its own terms it knows by its own leases.
    pub(crate) me: Option<&'a str>,
    /// The replica that was seen to lead, as far as the asker remembers.
    pub(crate) remembered: BTreeMap<String, LastSeen>,
}

/// What others tell of jobs.
#[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
pub(crate) struct Words<'a> {
    pub(crate) names: BTreeSet<&'a str>,
    /// Of these they tell something else than last.
    pub(crate) moved: BTreeSet<String>,
    /// What each replica tells of a job.
    pub(crate) told: &'a dyn Fn(&str) -> Vec<(&'a str, JobPresence)>,
}

/// What was merged last, for a reader that merges again and again.
#[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
#[derive(Debug, Default)]
pub(crate) struct Merged {
    jobs: BTreeMap<String, Last>,
    /// The replicas, as far as they are named with their jobs.
    who: Vec<String>,
    /// How often a job was put together.
    #[cfg(test)]
    pub(super) anew: usize,
}

#[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
#[derive(Debug)]
struct Last {
    status: JobStatus,
    basis: Basis,
    /// Its next tick was still to come until then.
    until: Option<Timestamp>,
}

/// What the status of a job follows from, besides what others tell.
#[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
#[derive(Debug, PartialEq, Eq)]
struct Basis {
    mine: Option<JobPresence>,
    reading: Option<Reading>,
}

/// Who leads a job.
enum Led<'a> {
    By(LeaderStatus, Option<&'a Report<'a>>),
    Nobody,
    Unknown,
}

// === impl FleetStatus ===

impl FleetStatus {
    /// Merges what the replicas told into one picture at `now` (wall time). Who leads is not told by documents: it is not
    /// known here.
    #[cfg(test)]
    pub(crate) fn from_presences(
        presences: impl IntoIterator<Item = Presence>,
        nodes: Vec<NodeStatus>,
        now: Timestamp,
    ) -> Self {
        Self::merged(presences, nodes, now, &Seen::default())
    }

    /// The same, with what was read of the jobs' locks.
    pub(crate) fn merged(
        presences: impl IntoIterator<Item = Presence>,
        nodes: Vec<NodeStatus>,
        now: Timestamp,
        seen: &Seen<'_>,
    ) -> Self {
        let mut newest: BTreeMap<String, Presence> = BTreeMap::new();
        for presence in presences {
            let old = newest.get(&presence.id);
            // The time of writing decides between equal revisions, so that the order of documents does not.
            if old.is_none_or(|old| (old.rev, old.written_at) < (presence.rev, presence.written_at))
            {
                newest.insert(presence.id.clone(), presence);
            }
        }
        let tags = newest.values().filter(|p| !p.tag.is_empty());
        let tags: BTreeMap<&str, &Presence> = tags.map(|p| (p.tag.as_str(), p)).collect();
        let mut reports: BTreeMap<&str, Vec<Report<'_>>> = BTreeMap::new();
        for presence in newest.values() {
            for job in &presence.jobs {
                reports.entry(&job.name).or_default().push((presence, job));
            }
        }
        let jobs: Vec<JobStatus> = reports
            .iter()
            .map(|(name, reports)| job(name, reports, &tags, seen, now))
            .collect();
        Self {
            replicas: replicas(newest.values(), &jobs, now),
            jobs,
            nodes,
        }
    }
}

// === impl Merged ===

#[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
impl Merged {
    /// As [`FleetStatus::merged`], of what `others` tell of the jobs of these `heads`, and `me`, which is newer than what is told
    /// of it there. A job is put together anew where what is known of it has changed.
    pub(crate) fn again(
        &mut self,
        heads: &[Presence],
        others: &Words<'_>,
        me: &Presence,
        nodes: Vec<NodeStatus>,
        now: Timestamp,
        seen: &Seen<'_>,
    ) -> FleetStatus {
        let heads = heads.iter().filter(|head| head.id != me.id);
        let all: BTreeMap<&str, &Presence> =
            heads.chain([me]).map(|p| (p.id.as_str(), p)).collect();
        let tags = all.values().filter(|p| !p.tag.is_empty());
        let tags: BTreeMap<&str, &Presence> = tags.map(|p| (p.tag.as_str(), *p)).collect();
        let who = all
            .values()
            .map(|p| format!("{}\0{}\0{}\0{}\0{}", p.id, p.tag, p.name, p.host, p.pid));
        let who: Vec<String> = who.collect();
        // What a leader is called stands in the status of its jobs.
        if std::mem::replace(&mut self.who, who.clone()) != who {
            self.jobs.clear();
        }
        let mine: BTreeMap<&str, &JobPresence> =
            me.jobs.iter().map(|job| (job.name.as_str(), job)).collect();
        let names = others.names.iter().chain(mine.keys()).copied();
        let names: BTreeSet<&str> = names.collect();
        self.jobs.retain(|name, _| names.contains(name.as_str()));
        let mut jobs = Vec::with_capacity(names.len());
        for name in names {
            let mine = mine.get(name).copied();
            let reading = seen.records.get(name);
            let basis = Basis::of(mine, reading);
            let last = self.jobs.get(name).filter(|_| !others.moved.contains(name));
            if let Some(last) = last.filter(|last| last.stands(basis.as_ref(), now)) {
                let mut status = last.status.clone();
                if let (Some(leader), Some(Reading::Held(held))) = (&mut status.leader, reading) {
                    leader.remaining_ms = held.remaining_ms;
                }
                jobs.push(status);
                continue;
            }
            #[cfg(test)]
            {
                self.anew += 1;
            }
            let told = (others.told)(name);
            let told = told.iter().filter(|(id, _)| *id != me.id);
            let told = told.filter_map(|(id, job)| Some((*all.get(id)?, job)));
            let reports: Vec<Report<'_>> = told.chain(mine.map(|job| (me, job))).collect();
            if reports.is_empty() {
                continue;
            }
            let status = job(name, &reports, &tags, seen, now);
            jobs.push(status.clone());
            match basis {
                Some(basis) => {
                    let until = status.next_tick.filter(|at| *at >= now);
                    let last = Last {
                        status,
                        basis,
                        until,
                    };
                    self.jobs.insert(name.to_owned(), last);
                }
                None => drop(self.jobs.remove(name)),
            }
        }
        FleetStatus {
            replicas: replicas(all.into_values(), &jobs, now),
            jobs,
            nodes,
        }
    }
}

#[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
impl Last {
    fn stands(&self, basis: Option<&Basis>, now: Timestamp) -> bool {
        basis == Some(&self.basis) && self.until.is_none_or(|until| now <= until)
    }
}

#[cfg_attr(not(feature = "admin"), allow(dead_code, reason = "for the page"))]
impl Basis {
    /// None where the status of the job changes as time goes by: while it is not known who leads it.
    fn of(mine: Option<&JobPresence>, reading: Option<&Reading>) -> Option<Self> {
        let reading = match reading {
            Some(Reading::Held(held)) if !held.orphaned => Some(Reading::Held(Holding {
                remaining_ms: None,
                ..held.clone()
            })),
            Some(nobody @ Reading::Nobody { forgotten: false }) => Some(nobody.clone()),
            None => None,
            Some(_) => return None,
        };
        let mine = mine.map(|job| JobPresence {
            remaining_ms: None,
            lasts_ms: None,
            margin: None,
            ..job.clone()
        });
        let known = reading.is_some()
            || mine
                .as_ref()
                .is_some_and(|job| !has_lock(&job.coordination));
        known.then_some(Self { mine, reading })
    }
}

fn replicas<'a>(
    all: impl Iterator<Item = &'a Presence>,
    jobs: &[JobStatus],
    now: Timestamp,
) -> Vec<ReplicaStatus> {
    let leads = jobs.iter().filter_map(|job| match &job.leader {
        Some(leader) => Some(leader.replica.as_str()),
        None => {
            let last = job.last_seen.as_ref().filter(|_| !job.leader_known);
            Some(last?.replica.as_str())
        }
    });
    let leaders: BTreeSet<&str> = leads.collect();
    let mut replicas: Vec<_> = all.map(|p| replica(p, &leaders, now)).collect();
    replicas.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    replicas
}

fn replica(p: &Presence, leaders: &BTreeSet<&str>, now: Timestamp) -> ReplicaStatus {
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
        mode: p.mode.clone(),
        role: role(p, leaders),
        priority: p.priority,
        draining: p.draining,
        fit: unfit.is_none(),
        unfit,
        started: p.started,
        seen_ms_ago: ms_since(p.written_at, now),
        admin: p.admin.clone(),
        reload: p.reload.clone(),
        notices: p.notices.clone(),
    }
}

fn trouble(reports: &[Report<'_>]) -> Option<JobTrouble> {
    let mut told: Vec<(&str, &str)> = reports
        .iter()
        .filter_map(|(p, j)| Some((p.name.as_str(), j.trouble.as_deref()?)))
        .collect();
    told.sort_unstable();
    Some(JobTrouble {
        why: told.first()?.1.to_owned(),
        replicas: told.iter().map(|(name, _)| (*name).to_owned()).collect(),
    })
}

/// What a replica is follows from what it leads; its own word counts for jobs whose leader is not known.
fn role(p: &Presence, leaders: &BTreeSet<&str>) -> Role {
    if leaders.contains(p.id.as_str()) {
        return Role::Leader;
    }
    match p.role {
        // It has led lately, or is about to tell of its first term.
        Role::Leader => Role::Standby,
        other => other,
    }
}

/// `reports` is never empty.
fn job<'a>(
    name: &str,
    reports: &'a [Report<'a>],
    tags: &BTreeMap<&str, &'a Presence>,
    seen: &Seen<'_>,
    now: Timestamp,
) -> JobStatus {
    let latest = reports.iter().max_by_key(|(p, _)| (p.written_at, &p.id));
    // What cannot be led has no record to ask.
    let nobody_leads = latest.is_some_and(|(_, j)| !has_lock(&j.coordination));
    let led = match nobody_leads {
        true => Led::Nobody,
        false => led(name, reports, tags, seen, now),
    };
    let (leader, word, known) = match led {
        Led::By(leader, word) => (Some(leader), word, true),
        Led::Nobody => (None, None, true),
        Led::Unknown => (None, None, false),
    };
    // Settings come from the leader, which acts by them; else from the replica that spoke last.
    let speaker = word.or(latest);
    let said = |of: fn(&JobPresence) -> String| speaker.map(|(_, j)| of(j)).unwrap_or_default();

    let last = reports
        .iter()
        .filter(|(_, j)| j.last_tick.is_some())
        .max_by_key(|(p, j)| (j.last_tick, j.last_outcome.is_some(), p.written_at, &p.id));
    let last = last.or(speaker);
    // The latest end that any replica tells of; without times, what is told with the latest tick.
    let ended = reports.iter().filter(|(_, j)| j.last_ended.is_some());
    let ended = ended.max_by_key(|(p, j)| (j.last_ended, p.written_at, &p.id));
    let next = word.and_then(|(_, j)| j.next_tick).or_else(|| {
        let ticks = reports.iter().filter_map(|(_, j)| j.next_tick);
        ticks.clone().filter(|t| *t >= now).min().or(ticks.max())
    });
    let freshest_backlog = reports
        .iter()
        .filter(|(_, j)| j.backlog.is_some())
        .max_by_key(|(p, _)| (p.written_at, &p.id));
    let term = leader.as_ref().map(|leader| leader.token);
    JobStatus {
        name: said(|j| j.name.clone()),
        coordination: said(|j| j.coordination.clone()),
        schedule: said(|j| j.schedule.clone()),
        zone: speaker.and_then(|(_, j)| j.zone.clone()),
        definitions: definitions_of(reports.iter().copied()),
        leader,
        leader_known: known,
        last_seen: match known {
            true => None,
            false => last_seen(reports, seen.remembered.get(name), now),
        },
        last_tick: last.and_then(|(_, j)| j.last_tick),
        next_tick: next,
        last_outcome: ended.or(last).and_then(|(_, j)| j.last_outcome.clone()),
        last_ended: ended.and_then(|(_, j)| j.last_ended),
        // Until the intents are looked at: a replica that knows of a pause starts nothing.
        paused: reports.iter().any(|(_, j)| j.paused),
        paused_why: None,
        paused_by: None,
        paused_since: None,
        backlog: freshest_backlog.and_then(|(_, j)| j.backlog),
        backlog_since: freshest_backlog.and_then(|(_, j)| j.backlog_since),
        // From the same replica: what one says is of one moment.
        held: freshest_backlog.and_then(|(_, j)| j.held),
        trouble: trouble(reports),
        running: running(reports, term),
        ..JobStatus::default()
    }
}

/// The definitions of a job, the one that was loaded last first; none when all agree.
pub(super) fn definitions_of<'a>(
    reports: impl Iterator<Item = (&'a Presence, &'a JobPresence)>,
) -> Vec<DefinitionStatus> {
    let mut found: BTreeMap<&str, DefinitionStatus> = BTreeMap::new();
    for (presence, job) in reports.filter(|(_, job)| !job.definition.is_empty()) {
        let row = found.entry(&job.definition).or_default();
        row.definition.clone_from(&job.definition);
        row.replicas.push(presence.name.clone());
        row.loaded = row.loaded.max(job.loaded);
        row.leads |= job.standing == JobStanding::Leading;
        row.stands_back = row.stands_back.take().or_else(|| job.stands_back.clone());
    }
    if found.len() < 2 {
        return Vec::new();
    }
    let mut rows: Vec<DefinitionStatus> = found.into_values().collect();
    rows.iter_mut().for_each(|row| row.replicas.sort());
    rows.sort_by_key(|row| (Reverse(row.loaded), row.definition.clone()));
    rows
}

fn led<'a>(
    name: &str,
    reports: &'a [Report<'a>],
    tags: &BTreeMap<&str, &'a Presence>,
    seen: &Seen<'_>,
    now: Timestamp,
) -> Led<'a> {
    match seen.records.get(name).unwrap_or(&Reading::Unknown) {
        Reading::Held(held) => {
            let holder = tag_of(&held.owner).and_then(|tag| tags.get(tag)).copied();
            let word = reports
                .iter()
                .find(|(p, _)| holder.is_some_and(|h| h.id == p.id));
            // Of another term of the same replica it tells nothing.
            let claim = word.filter(|word| is_of(held, word));
            if held.orphaned && !claim.is_some_and(|word| leads_still(word, now)) {
                return Led::Nobody;
            }
            let told = |of: fn(&Presence) -> String| holder.map(of).unwrap_or_default();
            let leader = LeaderStatus {
                replica: told(|p| p.id.clone()),
                name: match held.foreign {
                    true => "a foreign client".to_owned(),
                    false => told(|p| p.name.clone()),
                },
                host: told(|p| p.host.clone()),
                pid: holder.map_or(0, |p| p.pid),
                token: claim.and_then(|(_, j)| j.token).unwrap_or(held.token),
                since: claim.and_then(|(_, j)| j.since),
                remaining_ms: held.remaining_ms,
                margin: (!held.orphaned).then_some(held.margin),
            };
            Led::By(leader, word)
        }
        Reading::Nobody { forgotten } => {
            // Nodes that have forgotten a leader cannot say that there is none, while that leader may believe in its lease.
            match *forgotten && reports.iter().any(|word| leads_still(word, now)) {
                true => Led::Unknown,
                false => Led::Nobody,
            }
        }
        Reading::Unknown => {
            let mine = |word: &&Report<'_>| Some(word.0.id.as_str()) == seen.me;
            let mine = reports.iter().find(mine);
            match mine.filter(|word| leads_still(word, now)) {
                Some(word) => Led::By(own_term(word, now), Some(word)),
                None => Led::Unknown,
            }
        }
    }
}

/// Whether the word is about the very lease that the lock shows.
fn is_of(held: &Holding, (_, j): &Report<'_>) -> bool {
    let token = j.token.filter(|_| j.standing == JobStanding::Leading);
    token.is_some_and(|token| held.token <= token && token <= held.at_most)
}

/// Whether the lease of which the word tells cannot have run out.
fn leads_still((p, j): &Report<'_>, now: Timestamp) -> bool {
    let lasts = |left| ms_since(p.written_at, now) < left;
    j.standing == JobStanding::Leading && j.token.is_some() && j.remaining_ms.is_some_and(lasts)
}

/// What a replica knows of its own term.
fn own_term((p, j): &Report<'_>, now: Timestamp) -> LeaderStatus {
    let age = ms_since(p.written_at, now);
    LeaderStatus {
        replica: p.id.clone(),
        name: p.name.clone(),
        host: p.host.clone(),
        pid: p.pid,
        token: j.token.unwrap_or_default(),
        since: j.since,
        remaining_ms: j.remaining_ms.map(|ms| ms.saturating_sub(age)),
        margin: j.margin,
    }
}

/// The replica that said last that it leads: the largest token counts, of what is told and what is remembered.
fn last_seen(
    reports: &[Report<'_>],
    remembered: Option<&LastSeen>,
    now: Timestamp,
) -> Option<LastSeen> {
    let said = reports.iter().filter_map(|(p, j)| LastSeen::said(p, j));
    let last = said
        .chain(remembered.cloned())
        .max_by(|a, b| (a.token, a.at, &a.replica).cmp(&(b.token, b.at, &b.replica)))?;
    Some(LastSeen {
        ms_ago: ms_since(last.at, now),
        ..last
    })
}

impl LastSeen {
    /// What a replica says of itself, if it says that it leads.
    pub(crate) fn said(p: &Presence, j: &JobPresence) -> Option<Self> {
        let token = j.token.filter(|_| j.standing == JobStanding::Leading)?;
        Some(Self {
            token,
            ..Self::of(p)
        })
    }

    /// The replica, without a term.
    pub(crate) fn of(p: &Presence) -> Self {
        Self {
            replica: p.id.clone(),
            name: p.name.clone(),
            host: p.host.clone(),
            pid: p.pid,
            token: Token(0),
            at: p.written_at,
            ms_ago: 0,
        }
    }
}

/// What runs under a lease before the present `term` is over, or was cut off with its replica.
fn running(reports: &[Report<'_>], term: Option<Token>) -> Vec<RunStatus> {
    let mut all: Vec<RunStatus> = reports
        .iter()
        .flat_map(|(p, j)| j.running.iter().map(move |run| (p, run)))
        .filter(|(_, run)| {
            run.token
                .is_none_or(|of| term.is_none_or(|term| term <= of))
        })
        .map(|(p, run)| RunStatus {
            replica: p.id.clone(),
            ..run.clone()
        })
        .collect();
    all.sort_by(|a, b| (a.started, &a.run_id).cmp(&(b.started, &b.run_id)));
    all
}

// === helpers ===

/// Zero when the writer's clock is ahead of ours.
fn ms_since(earlier: Timestamp, now: Timestamp) -> u64 {
    u64::try_from(now.as_millisecond() - earlier.as_millisecond()).unwrap_or(0)
}
