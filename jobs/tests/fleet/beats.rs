//! The evidence: what heartbeat jobs wrote, in the order in which they wrote it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use jiff::Timestamp;
use serde::Deserialize;
use watchkeeper::clock::Clock;

use crate::wait::pause;

/// One line of a heartbeat.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Beat {
    /// `started`, `ended` or `cancelled`.
    pub(crate) event: String,
    pub(crate) job: String,
    pub(crate) tick: Timestamp,
    pub(crate) attempt: u32,
    pub(crate) token: u64,
    pub(crate) replica: String,
    pub(crate) run_id: String,
    pub(crate) at: Timestamp,
}

/// The file that all replicas append to.
#[derive(Clone, Debug)]
pub(crate) struct Beats(PathBuf);

// === impl Beats ===

impl Beats {
    pub(crate) fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Every line so far. Of one that is being written across two pages of the file the first part can be seen alone: it is
    /// read when it has its end.
    pub(crate) fn all(&self) -> Vec<Beat> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
        whole
            .lines()
            .map(|line| serde_json::from_str(line).expect("a heartbeat writes whole lines"))
            .collect()
    }

    /// The lines of one job.
    pub(crate) fn of(&self, job: &str) -> Vec<Beat> {
        let mut all = self.all();
        all.retain(|beat| beat.job == job);
        all
    }

    /// The last line of this kind in this term.
    pub(crate) fn last(&self, event: &str, token: u64) -> Beat {
        let mut all = self.all().into_iter();
        all.rfind(|beat| beat.event == event && beat.token == token)
            .expect("a run that was told of its end")
    }

    /// Waits until the first line for which `wanted` holds.
    pub(crate) fn wait(&self, limit: Duration, what: &str, wanted: impl Fn(&Beat) -> bool) -> Beat {
        let clock = Clock::system();
        let until = clock.now() + limit;
        loop {
            if let Some(beat) = self.all().into_iter().find(|beat| wanted(beat)) {
                return beat;
            }
            assert!(clock.now() < until, "no {what} within {limit:?}");
            pause(Duration::from_millis(5));
        }
    }
}

/// How often each attempt of each tick was started.
pub(crate) fn starts(beats: &[Beat]) -> BTreeMap<(Timestamp, u32), usize> {
    let mut starts = BTreeMap::new();
    for beat in beats.iter().filter(|beat| beat.event == "started") {
        *starts.entry((beat.tick, beat.attempt)).or_default() += 1;
    }
    starts
}
