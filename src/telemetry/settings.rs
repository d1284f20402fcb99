//! `[telemetry]`: which log lines are written, and how.

use serde::{Deserialize, Serialize};

#[cfg(feature = "log")]
use super::log::directives::{LogError, filter};
use crate::finding::Findings;

/// `[telemetry]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetrySettings {
    /// Which log lines are written: levels and `target=level` pairs with commas between them, as `info,watchkeeper=debug`. A word
    /// that is no level is refused: as the name of a target it would silence all others.
    pub log: String,
    /// How they are written.
    pub format: LogFormat,
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// One line of text each.
    Text,
    /// One JSON object each.
    Json,
}

// === impl TelemetrySettings ===

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self {
            log: "info".to_owned(),
            format: LogFormat::Auto,
        }
    }
}

impl TelemetrySettings {
    /// Which log lines are written: a level, or `target=level` pairs with commas between them.
    #[must_use]
    pub fn log(lines: impl Into<String>) -> Self {
        Self {
            log: lines.into(),
            ..Self::default()
        }
    }

    /// How they are written.
    #[must_use]
    pub fn format(mut self, format: LogFormat) -> Self {
        self.format = format;
        self
    }

    /// Adds what is wrong. Keys are relative to `[telemetry]`.
    pub(crate) fn check(&self, found: &mut Findings) {
        #[cfg(feature = "log")]
        match filter(&self.log) {
            Ok(_) => {}
            Err(error @ LogError::Directive(_)) => {
                found.error(
                    &["log"],
                    error.to_string(),
                    "\"info,watchkeeper=debug\" is both",
                );
            }
            Err(error) => found.error(
                &["log"],
                error.to_string(),
                "write a level such as \"info\" or pairs such as \"info,watchkeeper=debug\"",
            ),
        }
        #[cfg(not(feature = "log"))]
        let _ = found;
    }
}

// === impl LogFormat ===

impl LogFormat {
    /// Whether lines are JSON, where standard error is a terminal or not.
    #[cfg(feature = "log")]
    pub(crate) fn json(self, terminal: bool) -> bool {
        match self {
            Self::Auto => !terminal,
            Self::Text => false,
            Self::Json => true,
        }
    }
}
