//! How it stands with the receivers of notices.

use jiff::{Timestamp, Unit};
use serde::{Deserialize, Serialize};

/// A receiver of notices, as one replica has found it.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NoticeStatus {
    /// Its name in the configuration.
    pub name: String,
    /// Notices that wait for it here, or are on their way.
    pub waiting: usize,
    /// When it last took one from this replica, by the clock of that; `null` before the first.
    pub sent: Option<Timestamp>,
    /// Since when it takes none; `null` when it took the last one that was tried.
    pub failing: Option<Timestamp>,
}

impl NoticeStatus {
    /// What a person should know of it.
    #[cfg_attr(
        not(any(feature = "admin", feature = "cli")),
        allow(dead_code, reason = "for the page and the commands")
    )]
    pub(crate) fn trouble(&self) -> Option<String> {
        let since = self.failing?;
        let since = since.round(Unit::Second).unwrap_or(since);
        let (name, waiting) = (&self.name, self.waiting);
        Some(format!(
            "notices to {name} fail since {since}, and {waiting} wait"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_that_takes_none_is_told_with_since_when() {
        let mut notice = NoticeStatus {
            name: "ops".to_owned(),
            waiting: 3,
            ..NoticeStatus::default()
        };
        assert_eq!(notice.trouble(), None);
        notice.failing = "2026-05-04T08:00:00.4Z".parse().ok();
        let told = "notices to ops fail since 2026-05-04T08:00:00Z, and 3 wait";
        assert_eq!(notice.trouble().as_deref(), Some(told));
    }
}
