//! Shards as people see them: one line for each job, with how many shards it has and how they fare.
//!
//! Replicas, locks and documents know shards alone. What shows a fleet to people puts them together here, last of all, and
//! nothing below this knows of it.
//!
//! # Invariants
//! - H1 However many shards a job has it is one row, and nothing of them is lost: [`JobStatus::by_shard`] has them all.
//!   (shards_are_one_row_with_their_numbers)
//! - H2 A shard is found by its own name as before.   (a_shard_is_found_by_its_own_name)

use std::collections::{BTreeMap, BTreeSet};

use super::{FleetStatus, HeldItems, JobStatus, JobTrouble};
use crate::job::shard::shard_of;

// === impl FleetStatus ===

impl FleetStatus {
    /// The same with all shards of a job in one row.
    #[must_use]
    pub(crate) fn gathered(mut self) -> Self {
        let mut parts: BTreeMap<String, Vec<(usize, JobStatus)>> = BTreeMap::new();
        let mut jobs = Vec::with_capacity(self.jobs.len());
        for job in self.jobs {
            match shard_of(&job.name) {
                Some((whole, number)) => {
                    let whole = whole.to_owned();
                    parts.entry(whole).or_default().push((number, job));
                }
                None => jobs.push(job),
            }
        }
        for (name, mut shards) in parts {
            shards.sort_by_key(|(number, _)| *number);
            let shards = shards.into_iter().map(|(_, job)| job).collect();
            jobs.push(together(name, shards));
        }
        jobs.sort_by(|a, b| a.name.cmp(&b.name));
        self.jobs = jobs;
        self
    }

    /// The same without a row for each shard.
    #[cfg(any(test, feature = "cli", feature = "admin"))]
    pub(crate) fn forget_shards(&mut self) {
        self.jobs.iter_mut().for_each(|job| job.by_shard.clear());
    }
}

// === impl JobStatus ===

impl JobStatus {
    /// `64 shards, 63 led, 2 failing`; nothing for a job without shards.
    #[cfg(any(test, feature = "cli", feature = "admin"))]
    #[must_use]
    pub(crate) fn in_shards(&self) -> Option<String> {
        let mut text = format!("{} shards", self.shards?);
        if self.coordination == "leader" {
            text += &match self.leader_known {
                true => format!(", {} led", self.shards_led),
                false => format!(", {} known to be led", self.shards_led),
            };
        }
        let more = [
            (self.shards_failing, "failing"),
            (self.shards_paused, "paused"),
        ];
        for (count, word) in more.iter().filter(|(count, _)| *count > 0) {
            text += &format!(", {count} {word}");
        }
        Some(text)
    }

    /// Whether its last run ended badly.
    fn fails(&self) -> bool {
        let outcome = self.last_outcome.as_deref();
        outcome.is_some_and(|outcome| !matches!(outcome, "done" | "skipped"))
    }
}

/// One row of these, which are never none.
fn together(name: String, shards: Vec<JobStatus>) -> JobStatus {
    let count = |what: fn(&JobStatus) -> bool| shards.iter().filter(|shard| what(shard)).count();
    let paused = count(|shard| shard.paused);
    let all_paused = paused == shards.len();
    let first = shards.first().cloned().unwrap_or_default();
    let ended = shards.iter().max_by_key(|shard| shard.last_ended);
    let disagrees = shards.iter().find(|shard| !shard.definitions.is_empty());
    let backlogs = shards.iter().filter_map(|shard| shard.backlog);
    JobStatus {
        name,
        coordination: first.coordination,
        schedule: first.schedule,
        zone: first.zone,
        definitions: disagrees.map_or_else(Vec::new, |shard| shard.definitions.clone()),
        leader: None,
        leader_known: shards.iter().all(|shard| shard.leader_known),
        last_seen: None,
        last_tick: shards.iter().filter_map(|shard| shard.last_tick).max(),
        next_tick: shards.iter().filter_map(|shard| shard.next_tick).min(),
        last_outcome: ended.and_then(|shard| shard.last_outcome.clone()),
        last_ended: ended.and_then(|shard| shard.last_ended),
        paused: all_paused,
        paused_why: first.paused_why.filter(|_| all_paused),
        paused_by: first.paused_by.filter(|_| all_paused),
        paused_since: first.paused_since.filter(|_| all_paused),
        backlog: backlogs.reduce(u64::saturating_add),
        backlog_since: shards.iter().filter_map(|shard| shard.backlog_since).min(),
        held: held(&shards),
        trouble: trouble(&shards),
        running: shards
            .iter()
            .flat_map(|s| s.running.iter().cloned())
            .collect(),
        shards: Some(shards.len()),
        shards_led: count(|shard| shard.leader.is_some()),
        shards_failing: count(JobStatus::fails),
        shards_paused: paused,
        by_shard: shards,
    }
}

fn held(shards: &[JobStatus]) -> Option<HeldItems> {
    let held = shards.iter().filter_map(|shard| shard.held);
    held.reduce(|a, b| HeldItems {
        retry: a.retry.saturating_add(b.retry),
        dead: a.dead.saturating_add(b.dead),
        in_doubt: a.in_doubt.saturating_add(b.in_doubt),
        parked: a.parked.saturating_add(b.parked),
    })
}

fn trouble(shards: &[JobStatus]) -> Option<JobTrouble> {
    let told = || shards.iter().filter_map(|shard| shard.trouble.as_ref());
    let replicas: BTreeSet<&String> = told().flat_map(|told| &told.replicas).collect();
    Some(JobTrouble {
        why: told().next()?.why.clone(),
        replicas: replicas.into_iter().cloned().collect(),
    })
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::fleet::status::{LeaderStatus, RunStatus};

    fn shard(name: &str, led: bool, outcome: &str) -> JobStatus {
        JobStatus {
            name: name.to_owned(),
            coordination: "leader".to_owned(),
            leader: led.then(LeaderStatus::default),
            leader_known: true,
            last_outcome: Some(outcome.to_owned()).filter(|outcome| !outcome.is_empty()),
            ..JobStatus::default()
        }
    }

    fn fleet(jobs: Vec<JobStatus>) -> FleetStatus {
        FleetStatus {
            jobs,
            ..FleetStatus::default()
        }
    }

    #[test]
    fn shards_are_one_row_with_their_numbers() {
        let mut shards: Vec<JobStatus> = (0..12)
            .map(|n| shard(&format!("mail.{n}"), n != 3, "done"))
            .collect();
        shards[5].last_outcome = Some("failed".to_owned());
        shards[7].paused = true;
        shards[7].backlog = Some(4);
        shards[8].backlog = Some(5);
        (shards[7].backlog_since, shards[8].backlog_since) =
            (Some(Timestamp::MAX), Some(Timestamp::UNIX_EPOCH));
        shards[8].running.push(RunStatus::default());
        // As they come, by their names.
        shards.sort_by(|a, b| a.name.cmp(&b.name));
        let mut jobs = vec![
            shard("mail", true, ""),
            shard("mail-x", true, ""),
            shard("zeta", false, ""),
        ];
        jobs.extend(shards);
        let fleet = fleet(jobs[1..].to_vec()).gathered();
        let names: Vec<&str> = fleet.jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["mail", "mail-x", "zeta"]);
        let mail = &fleet.jobs[0];
        assert_eq!(
            mail.in_shards().unwrap(),
            "12 shards, 11 led, 1 failing, 1 paused"
        );
        assert_eq!(
            (mail.backlog, mail.running.len(), mail.paused),
            (Some(9), 1, false)
        );
        assert_eq!(mail.backlog_since, Some(Timestamp::UNIX_EPOCH));
        assert!(!mail.wants_leader(), "it has none of its own");
        let numbers: Vec<&str> = mail.by_shard.iter().map(|s| s.name.as_str()).collect();
        assert_eq!((numbers[2], numbers[11]), ("mail.2", "mail.11"));
        assert_eq!(fleet.jobs[1].in_shards(), None);
        // A job without shards of the same name, in the middle of an update, is a row of its own.
        let both = super::tests::fleet(jobs).gathered();
        assert_eq!(both.jobs.len(), 4);
    }

    #[test]
    fn a_shard_is_found_by_its_own_name() {
        let mut fleet =
            fleet(vec![shard("mail.0", true, ""), shard("mail.1", false, "")]).gathered();
        assert!(fleet.job("mail").unwrap().shards == Some(2));
        assert!(fleet.job("mail.1").unwrap().leader.is_none());
        assert!(fleet.job("mail.2").is_none());
        fleet.forget_shards();
        assert!(fleet.job("mail.1").is_none() && fleet.job("mail").is_some());
    }

    #[test]
    fn a_job_that_is_paused_as_a_whole_says_by_whom() {
        let paused = |name: &str| JobStatus {
            paused: true,
            paused_by: Some("root@h".to_owned()),
            ..shard(name, true, "done")
        };
        let fleet = fleet(vec![paused("mail.0"), paused("mail.1")]).gathered();
        assert!(fleet.jobs[0].paused);
        assert_eq!(fleet.jobs[0].paused_by.as_deref(), Some("root@h"));
    }
}
