//! The fleet as it is seen now: documents, and the records of the jobs' locks.
//!
//! # Invariants
//! - Who leads is read after the documents were: a replica that has run since a takeover is named, and never its predecessor.
//! - However many jobs there are, a lock node is occupied by [`PAGE`] of them at a time.
//! # When things fail
//! What cannot be read is unknown, and said to be.

#[cfg(feature = "admin")]
pub(crate) mod shared;

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

#[cfg(feature = "admin")]
use super::status::{
    LastSeen,
    merge::{Merged, Words},
};
use super::{
    intent::{self, Intent, Pause},
    presence::{
        has_lock,
        replicas::{Replicas, Wanted},
    },
    status::{
        FleetStatus, HOLDER_PREFIX, Holders, LockDetail, LockStatus, NodeStatus, Presence,
        leaders::Reading, merge::Seen,
    },
};
use crate::{
    job::shard,
    lock::{AdmissionReport, AdmissionState, LockError, Locks, NodeReport},
    node::NodeError,
};

/// Records that are asked for in one call: a server does nothing else meanwhile, for one or two milliseconds.
const PAGE: usize = 100;

/// What documents and nodes tell.
struct FleetDocuments {
    presences: Vec<Presence>,
    nodes: Vec<NodeReport>,
    /// Which nodes vote, where any does not.
    admissions: Vec<AdmissionReport>,
    pauses: Vec<Pause>,
}

/// The fleet as the store tells it: what documents say, and by the record of every job's lock who leads it.
pub(crate) async fn fleet(
    locks: &Locks,
    replicas: &mut Replicas,
) -> Result<FleetStatus, LockError> {
    let mut told = FleetDocuments::read(locks, replicas).await?;
    let records = records(locks, &told.led(), &told.memory_loss()).await?;
    told.introduce(locks, replicas, &records).await;
    Ok(told.merge_all(locks, records))
}

/// The same, with the leader of this job alone.
pub(crate) async fn fleet_of(
    locks: &Locks,
    replicas: &mut Replicas,
    job: &str,
) -> Result<FleetStatus, LockError> {
    let mut told = FleetDocuments::read(locks, replicas).await?;
    let records = records(locks, &[job.to_owned()], &told.memory_loss()).await?;
    told.introduce(locks, replicas, &records).await;
    Ok(told.merge_all(locks, records))
}

/// The same, with this job or its shards alone, as far as replicas tell of them: however many others there are.
#[cfg(feature = "admin")]
pub(crate) async fn alone(
    locks: &Locks,
    replicas: &mut Replicas,
    job: &str,
) -> Result<FleetStatus, LockError> {
    let of_it = |name: &str| shard::is_of(name, job);
    let paused = |name: &str| of_it(name) || name == shard::whole(job);
    let mut told = FleetDocuments::read_with(locks, replicas, of_it, paused).await?;
    let records = records(locks, &[job.to_owned()], &told.memory_loss()).await?;
    told.introduce(locks, replicas, &records).await;
    // Who was introduced tells of all of its jobs.
    for presence in &mut told.presences {
        presence.jobs.retain(|known| shard::is_of(&known.name, job));
    }
    Ok(told.merge_all(locks, records))
}

/// What documents say: no leaders.
pub(crate) async fn told(locks: &Locks, replicas: &mut Replicas) -> Result<FleetStatus, LockError> {
    let told = FleetDocuments::read(locks, replicas).await?;
    Ok(told.merge_all(locks, BTreeMap::new()))
}

/// Every process that tells of itself, and may hold locks.
async fn holders(locks: &Locks) -> Holders {
    // Who holds a lock is news, and may be missing.
    let mut replicas = Replicas::default();
    let _ = replicas.look(locks, Wanted::Replicas).await;
    let programs = locks.docs(HOLDER_PREFIX).await.unwrap_or_default();
    Holders::of(&replicas.presences(locks.wall()), &programs)
}

/// Every lock as the nodes show it, with who holds it.
pub(crate) async fn locks(locks: &Locks, prefix: &str) -> Result<Vec<LockStatus>, LockError> {
    let views = locks.list(prefix).await?;
    // After the locks: a process that has just taken one tells it with the lock, or soon.
    let holders = holders(locks).await;
    let rows = LockStatus::from_views(&views, locks.nodes().await?.len());
    Ok(rows
        .into_iter()
        .map(|row| row.with_holder(&holders))
        .collect())
}

/// What every node shows of these locks, with the processes that hold them.
pub(crate) async fn details(
    locks: &Locks,
    keys: Vec<String>,
) -> Result<Vec<LockDetail>, LockError> {
    let states = locks.look(keys).await?;
    let names: Vec<String> = locks.nodes().await?.into_iter().map(|n| n.name).collect();
    let holders = holders(locks).await;
    let details = states
        .iter()
        .map(|seen| LockDetail::from_nodes(&seen.key, &names, &seen.nodes, seen.expiry()))
        .map(|lock| lock.with_holder(&holders));
    Ok(details.collect())
}

/// Which nodes vote: with the time that the watcher of longest standing knows.
pub(crate) async fn admissions(
    locks: &Locks,
    presences: &[Presence],
) -> Result<Vec<AdmissionReport>, LockError> {
    let mut reports = locks.admissions().await?;
    let watched: Vec<(String, Duration)> = locks
        .nodes()
        .await?
        .into_iter()
        .filter_map(|node| node.watched)
        .collect();
    let now = locks.wall();
    for report in &mut reports {
        if let AdmissionState::Watched {
            left: left @ Some(_),
        } = &mut report.state
            && let Some(nomination) = &report.nomination
        {
            *left = least_left(nomination, &watched, presences, now).or(*left);
        }
    }
    Ok(reports)
}

/// How much longer a nomination is watched until the first of its watchers has done so for long enough.
fn least_left(
    nomination: &str,
    own: &[(String, Duration)],
    presences: &[Presence],
    now: Timestamp,
) -> Option<Duration> {
    let own = own.iter().filter(|(of, _)| of == nomination);
    let told = presences.iter().flat_map(|presence| &presence.watches);
    let told = told.filter(|watch| watch.nomination == nomination);
    let told = told.map(|watch| {
        watch
            .until
            .duration_since(now)
            .try_into()
            .unwrap_or_default()
    });
    own.map(|(_, left)| *left).chain(told).min()
}

/// What the locks of these jobs say, a page at a time. Once no majority has answered the others are not asked.
async fn records(
    locks: &Locks,
    jobs: &[String],
    memory_loss: &[bool],
) -> Result<BTreeMap<String, Reading>, LockError> {
    let mut records = BTreeMap::new();
    for page in jobs.chunks(PAGE) {
        let keys = page.iter().map(|job| format!("job/{job}")).collect();
        let mut silent = false;
        for state in locks.look(keys).await? {
            let answered = state.nodes.iter().filter(|node| node.is_ok()).count();
            silent |= answered <= state.nodes.len() / 2;
            let reading = Reading::of(&state.nodes, state.expiry(), memory_loss);
            if let Some(job) = state.key.strip_prefix("job/") {
                records.insert(job.to_owned(), reading);
            }
        }
        if silent {
            break;
        }
    }
    Ok(records)
}

/// What was said of pauses of these jobs, and nothing else that is asked of the fleet: that may be much.
async fn pauses(locks: &Locks, wanted: impl Fn(&str) -> bool) -> Result<Vec<Pause>, LockError> {
    let names = locks.doc_names(intent::DIRECTORY);
    let first = intent::pause_document("");
    let names = names.await?.docs.into_iter().map(|(doc, _)| doc.name);
    let of_these = |name: &String| name.strip_prefix(&first).is_some_and(&wanted);
    let names: Vec<String> = names.filter(of_these).collect();
    let read = locks.docs_of(&names).await?;
    let said = read.iter().filter_map(Intent::from_doc);
    let pauses = said.filter_map(|intent| match intent {
        Intent::Pause(pause) => Some(pause),
        _ => None,
    });
    Ok(pauses.collect())
}

// === impl FleetDocuments ===

impl FleetDocuments {
    async fn read(locks: &Locks, replicas: &mut Replicas) -> Result<Self, LockError> {
        Self::read_with(locks, replicas, |_| true, |_| true).await
    }

    /// The same, with what replicas tell of these jobs alone.
    async fn read_with(
        locks: &Locks,
        replicas: &mut Replicas,
        wanted: impl Fn(&str) -> bool,
        paused: impl Fn(&str) -> bool,
    ) -> Result<Self, LockError> {
        replicas.look(locks, Wanted::Jobs).await?;
        let presences = replicas.presences_with(locks.wall(), wanted);
        let pauses = pauses(locks, paused).await.unwrap_or_default();
        let told = Self::beside(locks, &presences, pauses).await?;
        Ok(Self { presences, ..told })
    }

    /// What there is to know beside what replicas tell.
    async fn beside(
        locks: &Locks,
        presences: &[Presence],
        pauses: Vec<Pause>,
    ) -> Result<Self, LockError> {
        let nodes = locks.nodes().await?;
        let admissions = match nodes.iter().any(does_not_vote) {
            true => admissions(locks, presences).await?,
            false => Vec::new(),
        };
        Ok(Self {
            presences: Vec::new(),
            nodes,
            admissions,
            pauses,
        })
    }

    /// Looks once more at what replicas tell when a lock names a replica of which nothing was read: it may have been too busy a moment.
    async fn introduce(
        &mut self,
        locks: &Locks,
        replicas: &mut Replicas,
        records: &BTreeMap<String, Reading>,
    ) {
        let known = |tag: &str| self.presences.iter().any(|p| p.tag == tag);
        let mut tags = records.values().filter_map(Reading::tag);
        if tags.all(known) {
            return;
        }
        if replicas.look(locks, Wanted::Jobs).await.is_ok() {
            self.presences.extend(replicas.presences(locks.wall()));
        }
    }

    /// The jobs that one replica leads.
    fn led(&self) -> Vec<String> {
        let jobs = self.presences.iter().flat_map(|p| &p.jobs);
        let led = jobs.filter(|job| has_lock(&job.coordination));
        let mut names: Vec<String> = led.map(|job| job.name.clone()).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Which nodes may have forgotten what they granted.
    fn memory_loss(&self) -> Vec<bool> {
        self.nodes.iter().map(does_not_vote).collect()
    }

    fn merge_all(mut self, locks: &Locks, records: BTreeMap<String, Reading>) -> FleetStatus {
        let seen = Seen {
            records,
            ..Seen::default()
        };
        let presences = std::mem::take(&mut self.presences);
        let fleet = FleetStatus::merged(presences, self.statuses(), locks.wall(), &seen);
        self.pause(fleet)
    }

    /// The same again and again, by a replica that knows of itself and `remembered` who led.
    #[cfg(feature = "admin")]
    #[allow(clippy::too_many_arguments, reason = "it is what a page is made from")]
    fn merge(
        self,
        locks: &Locks,
        heads: &[Presence],
        others: &Words<'_>,
        merged: &mut Merged,
        me: &Presence,
        records: BTreeMap<String, Reading>,
        remembered: BTreeMap<String, LastSeen>,
    ) -> FleetStatus {
        let seen = Seen {
            records,
            me: Some(&me.id),
            remembered,
        };
        let fleet = merged.again(heads, others, me, self.statuses(), locks.wall(), &seen);
        self.pause(fleet)
    }

    fn statuses(&self) -> Vec<NodeStatus> {
        let nodes = self.nodes.iter().cloned().enumerate();
        nodes
            .map(|(n, report)| node_status(report, self.admissions.get(n)))
            .collect()
    }

    fn pause(self, mut fleet: FleetStatus) -> FleetStatus {
        let pauses = self.pauses.iter().map(|pause| (pause.job.as_str(), pause));
        let pauses: BTreeMap<&str, &Pause> = pauses.collect();
        if pauses.is_empty() {
            return fleet;
        }
        for job in &mut fleet.jobs {
            // That of all shards of a job stands above that of one.
            let all = pauses
                .get(shard::whole(&job.name))
                .filter(|pause| pause.paused);
            if let Some(pause) = all.or_else(|| pauses.get(job.name.as_str())) {
                // What was asked for last; replicas follow.
                job.paused = pause.paused;
                job.paused_why = pause.paused.then(|| pause.reason.clone());
                job.paused_by = pause.paused.then(|| pause.by.clone());
                job.paused_since = pause.paused.then_some(pause.at);
            }
        }
        fleet
    }
}

/// Whether a node answers and has no vote.
fn does_not_vote(node: &NodeReport) -> bool {
    node.answers && node.trouble.is_some()
}

fn node_status(node: NodeReport, admission: Option<&AdmissionReport>) -> NodeStatus {
    let state = admission.map(|report| &report.state);
    // It has its memory, and too few others have.
    let waits = matches!(state, Some(AdmissionState::Waits { .. }));
    // Asked a moment later, it may vote by now.
    let had_none = matches!(
        node.trouble,
        Some(NodeError::Unadmitted { .. } | NodeError::Unfounded { .. })
    );
    let votes_by_now = had_none && state.is_some_and(AdmissionState::votes);
    let trouble = node.trouble.as_ref().filter(|_| !votes_by_now);
    let votes = node.answers && trouble.is_none() && !waits;
    let state = state.filter(|state| !votes && !matches!(state, AdmissionState::Silent(_)));
    let left = match state {
        Some(AdmissionState::Watched { left }) => *left,
        _ => None,
    };
    let error = match (trouble, state) {
        (Some(_), Some(state)) => Some(state.to_string()),
        (None, Some(state)) if waits => Some(state.to_string()),
        (trouble, _) => trouble.map(ToString::to_string),
    };
    NodeStatus {
        name: node.name,
        up: node.answers,
        votes,
        votes_in_ms: left.map(millis),
        cause: trouble
            .map(NodeError::cause)
            .or(waits.then_some("unadmitted"))
            .map(str::to_owned),
        error,
        rtt_us: node
            .round_trip
            .map(|d| u64::try_from(d.as_micros()).unwrap_or(u64::MAX)),
        offset_ms: node.ahead_ms,
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::status::NodeWatch;

    fn watches(until_ms: i64) -> Presence {
        Presence {
            watches: vec![NodeWatch {
                nomination: "n".into(),
                until: Timestamp::from_millisecond(until_ms).unwrap(),
            }],
            ..Presence::default()
        }
    }

    #[test]
    fn the_time_left_is_that_of_whoever_is_first_to_have_watched_long_enough() {
        let now = Timestamp::from_millisecond(10_000).unwrap();
        let presences = [watches(22_000), watches(39_000)];
        let left = |of: &str, own: &[(String, Duration)]| least_left(of, own, &presences, now);
        assert_eq!(left("n", &[]), Some(Duration::from_secs(12)));
        assert_eq!(left("other", &[]), None);
        let own = [("n".to_owned(), Duration::from_secs(5))];
        assert_eq!(left("n", &own), Some(Duration::from_secs(5)));
    }
}
