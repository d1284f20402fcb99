//! How far runs in flight are, as the fleet tells it.

use super::{FleetStatus, RunRecord, RunStatus, runs::RUNNING};

pub use crate::job::{Rate, RunProgress};

// === impl RunStatus, RunRecord ===

impl RunStatus {
    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> RunProgress {
        RunProgress {
            done: self.done,
            total: self.total,
            per_second: self.per_second,
            left_ms: self.left_ms,
            message: self.message.clone(),
        }
    }
}

impl RunRecord {
    /// Says how far those of the runs are that are in flight, where the fleet tells.
    pub fn add_progress(runs: &mut [Self], fleet: &FleetStatus) {
        for run in runs.iter_mut().filter(|run| run.outcome == RUNNING) {
            let job = fleet.job(&run.job);
            let mut flying = job.into_iter().flat_map(|job| &job.running);
            let same = flying.find(|flying| flying.run_id == run.run_id);
            run.progress = same
                .map(RunStatus::progress)
                .filter(|told| !told.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::JobStatus;

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
