//! What cannot be asked of a job, as the fleet and the client's configuration know it. Pure.

use std::collections::BTreeSet;

use super::{super::status::FleetStatus, error::FleetError};
use crate::job::{
    Spec,
    shard::{is_of, whole},
};

/// Names that a refusal lists: it is read by a person, and repeated wherever orders are.
const NAMED: usize = 20;

/// Refuses a job that neither a replica nor the configuration knows; it is most likely a misspelt one.
pub(crate) fn refuse_unknown<'a>(
    job: &str,
    fleet: &'a FleetStatus,
    configured: impl IntoIterator<Item = &'a String>,
) -> Result<(), FleetError> {
    let running = fleet.jobs.iter().map(|job| job.name.as_str());
    if running.clone().any(|name| is_of(name, job)) || fleet.job(job).is_some() {
        return Ok(());
    }
    let configured = configured.into_iter().map(String::as_str);
    let known: BTreeSet<&str> = running.map(whole).chain(configured).collect();
    // Which shards there are no replica says, and the configuration of another may have more.
    if known.contains(job) {
        return Ok(());
    }
    let known = match known.len() {
        0 => "no job is configured, and no replica runs one".to_owned(),
        _ => format!("known jobs: {}", some(&known)),
    };
    Err(FleetError::UnknownJob {
        job: job.to_owned(),
        known,
    })
}

/// The first of these names, and how many more there are.
pub(super) fn some(names: &BTreeSet<&str>) -> String {
    let first: Vec<&str> = names.iter().copied().take(NAMED).collect();
    let first = first.join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// Refuses a run of a job that is disabled in the configuration, and that no replica runs.
pub(super) fn refuse_disabled(
    job: &str,
    fleet: &FleetStatus,
    spec: Option<&Spec>,
) -> Result<(), FleetError> {
    let runs = fleet.jobs.iter().any(|known| is_of(&known.name, job));
    if spec.is_none_or(|spec| spec.enabled) || runs {
        return Ok(());
    }
    Err(FleetError::NotPossible(format!(
        "{job} is disabled (jobs.{}.enabled = false) and no replica runs it: enable it first",
        whole(job)
    )))
}

/// Refuses a run of its own, or a leader, for a job that has neither.
pub(super) fn refuse_unled(job: &str, coordination: &str) -> Result<(), FleetError> {
    let why = match coordination {
        "batch" => "works in batches on every replica: what is pending is done without being asked",
        "everywhere" => "runs on every replica: it has no leader",
        _ => return Ok(()),
    };
    Err(FleetError::NotPossible(format!("{job} {why}")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;
    use crate::fleet::status::{JobPresence, Presence};

    #[test]
    fn a_refusal_names_some_of_many_jobs() {
        let names = |count: usize| (0..count).map(|n| format!("job-{n:03}")).collect();
        let refused = |names: Vec<String>| {
            let error = refuse_unknown("reprot", &FleetStatus::default(), &names);
            error.unwrap_err().to_string()
        };
        let few = refused(names(2));
        assert!(few.ends_with("known jobs: job-000, job-001"), "{few}");
        let all = refused(names(NAMED));
        assert!(all.ends_with(", job-019"), "{all}");
        let many = refused(names(10_000));
        assert!(many.ends_with(", job-019 and 9980 more"), "{many}");
    }

    #[test]
    fn a_run_of_a_disabled_job_that_nobody_runs_is_refused() {
        let disabled = Spec::every(Duration::from_secs(60)).enabled(false);
        let nobody = FleetStatus::default();
        let why = refuse_disabled("report", &nobody, Some(&disabled)).unwrap_err();
        assert!(
            why.to_string().contains("jobs.report.enabled = false"),
            "{why}"
        );
        // Others may have another configuration.
        let runs = Presence {
            jobs: vec![JobPresence {
                name: "report".to_owned(),
                ..Default::default()
            }],
            ..Presence::default()
        };
        let fleet = FleetStatus::from_presences([runs], Vec::new(), Timestamp::UNIX_EPOCH);
        assert!(refuse_disabled("report", &fleet, Some(&disabled)).is_ok());
        let enabled = Spec::every(Duration::from_secs(60));
        assert!(refuse_disabled("report", &nobody, Some(&enabled)).is_ok());
    }
}
