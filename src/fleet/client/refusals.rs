//! What cannot be asked of a job, as the fleet and the client's configuration know it. Pure.

use std::collections::BTreeSet;

use super::{super::status::FleetStatus, error::FleetError};
use crate::job::{
    Spec,
    shard::{is_of, whole},
};

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
    let known: Vec<&str> = known.into_iter().collect();
    let known = match known.is_empty() {
        true => "no job is configured, and no replica runs one".to_owned(),
        false => format!("known jobs: {}", known.join(", ")),
    };
    Err(FleetError::UnknownJob {
        job: job.to_owned(),
        known,
    })
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
