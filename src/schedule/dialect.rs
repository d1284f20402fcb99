//! The two dialects of cron expressions.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// How weekday numbers and the two day fields of a cron expression are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// 0 and 7 are Sunday; day of month OR day of week when both are restricted.
    #[default]
    Crontab,
    /// 1 is Sunday; day of month AND day of week.
    Quartz,
}

// === impl Dialect ===

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Crontab => "crontab",
            Self::Quartz => "quartz",
        })
    }
}

impl FromStr for Dialect {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "crontab" => Ok(Self::Crontab),
            "quartz" => Ok(Self::Quartz),
            _ => Err(format!(
                "unknown dialect {word:?}: known are \"crontab\" and \"quartz\""
            )),
        }
    }
}
