//! How far runs in flight are, as the fleet tells it.

pub use crate::job::{Rate, RunProgress};

#[cfg(test)]
mod tests {
    use crate::fleet::{
        history::{RUNNING, RunRecord},
        presence::RunStatus,
        status::{FleetStatus, JobStatus},
    };

    #[test]
    fn a_run_in_flight_gets_the_progress_that_the_fleet_tells() {
        let record = |id: &str, outcome: &str| RunRecord {
            run_id: id.to_owned(),
            job: "report".to_owned(),
            outcome: outcome.to_owned(),
            ..RunRecord::default()
        };
        let flying = |id: &str, done| RunStatus {
            run_id: id.to_owned(),
            done,
            ..RunStatus::default()
        };
        let fleet = FleetStatus {
            jobs: vec![JobStatus {
                name: "report".to_owned(),
                running: vec![
                    flying("a", Some(1)),
                    flying("b", Some(2)),
                    flying("c", None),
                ],
                ..JobStatus::default()
            }],
            ..FleetStatus::default()
        };
        let mut runs = [
            record("a", "done"),
            record("b", RUNNING),
            record("c", RUNNING),
        ];
        RunRecord::add_progress(&mut runs, &fleet);
        let done = runs.map(|run| run.progress.and_then(|told| told.done));
        assert_eq!(done, [None, Some(2), None]);
    }
}
