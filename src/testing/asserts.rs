//! What a test finds out about its fleet, and how a failure reads.

use std::collections::BTreeMap;

use jiff::{Timestamp, tz::TimeZone};

use super::{
    BatchRecord, Fleet, Told,
    recorder::Entry,
    report::{self, written},
    sim::at,
};
use crate::{
    job::shard::is_of,
    status::{RunRecord, runs::RUNNING},
};

impl Fleet {
    /// All runs of the job so far, in the order of their starts, with what they left to read: one record per attempt. Of
    /// jobs that run everywhere those of all replicas, of jobs with shards those of all shards. Unlike the history of a fleet it knows the true time, and runs whose
    /// process has died at once: they are `interrupted`.
    ///
    /// # Panics
    /// When the fleet has no such job.
    #[must_use]
    #[track_caller]
    pub fn runs(&self, job: &str) -> Vec<RunRecord> {
        self.zone(job);
        let recorded = self.recorder().read();
        let of_job = recorded.runs.iter().filter(|run| is_of(&run.job, job));
        of_job.cloned().collect()
    }

    /// All batches of the job so far, in the order in which they were begun.
    ///
    /// # Panics
    /// When the fleet has no such job.
    #[must_use]
    #[track_caller]
    pub fn batches(&self, job: &str) -> Vec<BatchRecord> {
        self.zone(job);
        let recorded = self.recorder().read();
        let of_job = recorded.batches.iter().filter(|batch| batch.job == job);
        of_job.cloned().collect()
    }

    /// Whether a run of the job, or a batch, is under way.
    #[must_use]
    pub fn is_running(&self, job: &str) -> bool {
        let recorded = self.recorder().read();
        let mut runs = recorded.runs.iter().filter(|run| is_of(&run.job, job));
        let mut batches = recorded.batches.iter().filter(|batch| batch.job == job);
        runs.any(|run| run.outcome == RUNNING) || batches.any(|batch| batch.outcome == RUNNING)
    }

    /// Everything that the replicas have told so far.
    #[must_use]
    pub fn events(&self) -> Vec<Told> {
        let recorded = self.recorder().read();
        let told = recorded.story.iter().filter_map(|entry| match entry {
            Entry::Told(told) => Some(told.clone()),
            Entry::Did(..) => None,
        });
        told.collect()
    }

    /// The job was run to its end (`done`) for exactly these ticks, once each: `["2026-03-27T08:00:00+01:00"]`, or with
    /// `[Europe/Rome]`, in any order. Runs that ended otherwise do not count.
    ///
    /// # Panics
    /// When that is not so: with the ticks that are missing or too much, and with all runs.
    #[track_caller]
    pub fn assert_runs(&self, job: &str, ticks: &[&str]) {
        let runs = self.runs(job);
        let zone = self.zone(job);
        if let Some(differs) = differs(&runs, ticks, &zone) {
            let runs = report::runs(job, &runs, &zone);
            panic!("{job} was not run for the expected ticks\n{differs}{runs}");
        }
    }

    /// No tick was run to its end (`done`) more than once, and no attempt was started twice. The first half holds only as
    /// far as outcomes can be written: of a leader that is cut off at the end of a run the work is done again.
    ///
    /// # Panics
    /// When that is not so: with all runs.
    #[track_caller]
    pub fn assert_once_per_tick(&self, job: &str) {
        let (runs, zone) = (self.runs(job), self.zone(job));
        let mut done: BTreeMap<(Timestamp, &str), u32> = BTreeMap::new();
        for run in runs.iter().filter(|run| run.outcome == "done") {
            *done.entry((run.tick, &run.job)).or_default() += 1;
        }
        self.assert_rules(job);
        if let Some(((tick, _), times)) = done.into_iter().find(|(_, times)| *times > 1) {
            let (tick, runs) = (written(tick, &zone), report::runs(job, &runs, &zone));
            panic!("{job} was run to its end {times} times for the tick {tick}\n{runs}");
        }
    }

    /// At no time a run of the job began while another one was under way: of a batch job, of the same batch. Runs whose
    /// process was frozen do not count: what they do after that, only fencing tokens can refuse. Checked for all jobs at
    /// the end, unless with [`Sim::unchecked`](super::Sim::unchecked); jobs that run everywhere have no such rule.
    ///
    /// # Panics
    /// When that is not so: with who began what.
    #[track_caller]
    pub fn assert_no_two_at_once(&self, job: &str) {
        self.zone(job);
        self.assert_rules(job);
    }

    /// What holds for every job in every story.
    #[track_caller]
    pub(super) fn check_all(&self) {
        for (job, _) in self.zones() {
            self.assert_rules(&job);
        }
    }

    #[track_caller]
    fn assert_rules(&self, job: &str) {
        let recorded = self.recorder().read();
        let found = recorded
            .violations
            .iter()
            .find(|(of, _)| is_of(of, job))
            .cloned();
        drop(recorded);
        if let Some((_, what)) = found {
            panic!("{job}: {what}");
        }
    }

    #[track_caller]
    fn zone(&self, job: &str) -> TimeZone {
        let zones = self.zones();
        match zones.iter().find(|(name, _)| is_of(name, job)) {
            Some((_, zone)) => zone.clone(),
            None => {
                let names: Vec<&str> = zones.iter().map(|(name, _)| name.as_str()).collect();
                panic!(
                    "the fleet has no job {job:?}; its jobs: {}",
                    names.join(", ")
                )
            }
        }
    }
}

/// Which ticks are missing, and which too much; `None` when none is.
fn differs(runs: &[RunRecord], ticks: &[&str], zone: &TimeZone) -> Option<String> {
    let mut missing: Vec<Timestamp> = ticks.iter().map(|tick| at(tick)).collect();
    let mut surplus = Vec::new();
    for run in runs.iter().filter(|run| run.outcome == "done") {
        match missing.iter().position(|tick| *tick == run.tick) {
            Some(place) => drop(missing.remove(place)),
            None => surplus.push(run.tick),
        }
    }
    let list = |word: &str, ticks: &[Timestamp]| {
        let lines = ticks.iter();
        let lines = lines.map(|tick| format!("  {word}: {}\n", written(*tick, zone)));
        lines.collect::<String>()
    };
    let said = list("missing", &missing) + &list("too much", &surplus);
    (!said.is_empty()).then_some(said)
}
