//! Which definitions of a job a fleet has, and what became of the last reload of a replica.

use std::{cmp::Reverse, collections::BTreeMap, fmt};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{JobPresence, JobStatus, Presence, Standing};

/// One of several definitions of a job.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DefinitionStatus {
    /// A hash of what it means.
    pub definition: String,
    /// Names of the replicas that have it.
    pub replicas: Vec<String>,
    /// When the last of them loaded it.
    pub loaded: Option<Timestamp>,
    /// Whether the job is led under it now.
    pub leads: bool,
    /// Why replicas that have it stand back from the job, and what to do about it; `null` when they do not.
    pub stands_back: Option<String>,
}

/// What became of a reload.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReloadStatus {
    /// When, by the fleet's time.
    pub at: Timestamp,
    /// Whether the configuration that was read is in effect; nothing has changed otherwise.
    pub ok: bool,
    /// The first fault, and how many there are; `null` when ok.
    pub error: Option<String>,
    /// Keys that were changed and need a restart to take effect.
    pub needs_restart: Vec<String>,
}

/// The definitions of a job, the one that was loaded last first; none when all agree.
pub(super) fn of<'a>(
    words: impl Iterator<Item = (&'a Presence, &'a JobPresence)>,
) -> Vec<DefinitionStatus> {
    let mut found: BTreeMap<&str, DefinitionStatus> = BTreeMap::new();
    for (presence, job) in words.filter(|(_, job)| !job.definition.is_empty()) {
        let row = found.entry(&job.definition).or_default();
        row.definition.clone_from(&job.definition);
        row.replicas.push(presence.name.clone());
        row.loaded = row.loaded.max(job.loaded);
        row.leads |= job.standing == Standing::Leading;
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

// === impl JobStatus ===

impl JobStatus {
    /// What the replicas disagree about, in sentences; none when they agree.
    #[must_use]
    pub fn disagreement(&self) -> Vec<String> {
        self.definitions.iter().map(ToString::to_string).collect()
    }
}

impl fmt::Display for DefinitionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "definition {} on {}",
            self.definition,
            self.replicas.join(", ")
        )?;
        if let Some(loaded) = self.loaded {
            write!(f, ", loaded {loaded}")?;
        }
        if self.leads {
            f.write_str(", leads")?;
        }
        match &self.stands_back {
            Some(why) => write!(f, "; stands back: {why}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ReloadStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.error, self.needs_restart.is_empty()) {
            (Some(why), _) => write!(
                f,
                "the reload of {} failed, and changed nothing: {why}",
                self.at
            ),
            (None, true) => write!(f, "reloaded {}", self.at),
            (None, false) => write!(
                f,
                "reloaded {}; not in effect before a restart: {}",
                self.at,
                self.needs_restart.join(", ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn presence(name: &str, definition: &str, loaded: i64) -> Presence {
        Presence {
            id: name.to_owned(),
            name: name.to_owned(),
            jobs: vec![JobPresence {
                name: "job".to_owned(),
                definition: definition.to_owned(),
                loaded: Timestamp::from_second(loaded).ok(),
                ..JobPresence::default()
            }],
            ..Presence::default()
        }
    }

    fn rows(all: &[Presence]) -> Vec<(String, String)> {
        let words = all.iter().map(|p| (p, &p.jobs[0]));
        let rows = of(words).into_iter();
        rows.map(|row| (row.definition, row.replicas.join(",")))
            .collect()
    }

    #[test]
    fn a_disagreement_is_shown_with_who_has_which_the_newest_first() {
        let all = [
            presence("c", "x", 10),
            presence("b", "y", 20),
            presence("a", "x", 5),
        ];
        let shown = |definition: &str, names: &str| (definition.to_owned(), names.to_owned());
        assert_eq!(rows(&all), [shown("y", "b"), shown("x", "a,c")]);
    }

    #[test]
    fn replicas_that_agree_or_do_not_tell_show_nothing() {
        assert_eq!(rows(&[presence("a", "x", 1), presence("b", "x", 2)]), []);
        assert_eq!(rows(&[presence("a", "x", 1), presence("b", "", 2)]), []);
    }
}
