//! Which definitions of a job a fleet has, and what became of the last reload of a replica.

use std::fmt;

use jiff::{Timestamp, Unit};
use serde::{Deserialize, Serialize};

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

impl fmt::Display for DefinitionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "definition {} on {}",
            self.definition,
            self.replicas.join(", ")
        )?;
        if let Some(loaded) = self.loaded {
            write!(f, ", loaded {}", shown(loaded))?;
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

/// An instant as people read it: to the millisecond.
fn shown(at: Timestamp) -> Timestamp {
    at.round(Unit::Millisecond).unwrap_or(at)
}

impl fmt::Display for ReloadStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.error, self.needs_restart.is_empty()) {
            (Some(why), _) => write!(
                f,
                "the reload of {} failed, and changed nothing: {why}",
                shown(self.at)
            ),
            (None, true) => write!(f, "reloaded {}", shown(self.at)),
            (None, false) => write!(
                f,
                "reloaded {}; not in effect before a restart: {}",
                shown(self.at),
                self.needs_restart.join(", ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_read_goes_to_the_millisecond() {
        let at: Timestamp = "2026-11-22T20:55:36.756945143Z".parse().unwrap();
        let row = DefinitionStatus {
            loaded: Some(at),
            ..DefinitionStatus::default()
        };
        let reload = |error: Option<&str>, keys: &[&str]| ReloadStatus {
            at,
            error: error.map(str::to_owned),
            needs_restart: keys.iter().map(|key| (*key).to_owned()).collect(),
            ..ReloadStatus::default()
        };
        let reloads = [
            reload(None, &[]),
            reload(Some("x"), &[]),
            reload(None, &["k"]),
        ];
        let shown = reloads.iter().map(ToString::to_string);
        for text in shown.chain([row.to_string()]) {
            assert!(text.contains("20:55:36.757Z"), "{text}");
        }
    }
}
