//! In which boot the file's times count, and when leases of another one are over.
//!
//! A file that names another boot was left behind by a machine that has restarted, or another machine uses it: a virtual one,
//! or a container with a kernel or a clock of its own. Both look alike. So leases of another boot are over when the file has
//! stood still, on our clock, for as long as the longest of them could live at its last change; whatever changes meanwhile
//! shows that its machine lives. A lease that is damaged counts as the longest that was granted in that boot.

use std::time::Duration;

use crate::node::NodeMs;

/// The present boot. Processes with another offset of the clock (a time namespace) are in another one.
pub(super) fn name(boot_id: &str, timens_offsets: Option<&str>) -> String {
    let boot_id = boot_id.trim();
    let offset = timens_offsets
        .into_iter()
        .flat_map(str::lines)
        .find_map(|line| {
            // boottime        3600         0
            let offset = line.trim().strip_prefix("boottime")?;
            let offset: Vec<&str> = offset.split_whitespace().collect();
            (offset != ["0", "0"]).then(|| offset.join("."))
        });
    match offset {
        Some(offset) => format!("{boot_id}+{offset}"),
        None => boot_id.to_owned(),
    }
}

/// What the file says of its use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Use {
    /// The boot in which its times count.
    pub(super) boot: String,
    /// How often it was changed.
    pub(super) changes: u64,
    /// The longest that a lease could live at its last change.
    pub(super) longest: Duration,
}

/// A file of another boot, watched.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    shown: Use,
    since: NodeMs,
    /// Whether it has changed under our eyes.
    pub(super) lives: bool,
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takeover {
    /// No lease of that boot can live any more.
    Now,
    /// Not before so long.
    In(Duration),
}

// === impl Watch ===

impl Watch {
    /// Goes on watching, or begins.
    pub(super) fn on(before: Option<Self>, shown: Use, now: NodeMs) -> Self {
        match before {
            Some(before) if before.shown == shown => before,
            before => Self {
                shown,
                since: now,
                lives: before.is_some(),
            },
        }
    }

    /// The boot that it names.
    pub(super) fn boot(&self) -> &str {
        &self.shown.boot
    }

    pub(super) fn judge(&self, now: NodeMs) -> Takeover {
        let longest = self.shown.longest;
        // Clocks of two machines run at nearly the same rate: a fiftieth is more than is allowed for leases.
        let wait = longest + longest / 50;
        let stood = Duration::from_millis(now.0.saturating_sub(self.since.0));
        match wait.checked_sub(stood) {
            None | Some(Duration::ZERO) => Takeover::Now,
            Some(left) => Takeover::In(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(changes: u64, longest_ms: u64) -> Use {
        Use {
            boot: "other".to_owned(),
            changes,
            longest: Duration::from_millis(longest_ms),
        }
    }

    #[test]
    fn leases_of_another_boot_are_over_when_nothing_changes_for_the_longest_of_them() {
        let watch = Watch::on(None, shown(7, 10_000), NodeMs(500));
        let left = Duration::from_millis(10_200);
        assert_eq!(watch.judge(NodeMs(500)), Takeover::In(left));
        let watch = Watch::on(Some(watch), shown(7, 10_000), NodeMs(9_000));
        assert!(!watch.lives);
        let left = Duration::from_millis(1);
        assert_eq!(watch.judge(NodeMs(10_699)), Takeover::In(left));
        assert_eq!(watch.judge(NodeMs(10_700)), Takeover::Now);
    }

    #[test]
    fn a_sign_of_life_of_another_boot_begins_the_watch_anew() {
        let watch = Watch::on(None, shown(7, 10_000), NodeMs(0));
        let watch = Watch::on(Some(watch), shown(8, 10_000), NodeMs(10_000));
        assert!(watch.lives);
        assert!(matches!(watch.judge(NodeMs(20_000)), Takeover::In(_)));
        assert_eq!(watch.judge(NodeMs(20_200)), Takeover::Now);
    }

    #[test]
    fn without_a_lease_another_boot_is_over_at_once() {
        let watch = Watch::on(None, shown(7, 0), NodeMs(3));
        assert_eq!(watch.judge(NodeMs(3)), Takeover::Now);
    }

    #[test]
    fn a_clock_with_an_offset_is_that_of_another_boot() {
        let usual = "monotonic           0         0\nboottime            0         0\n";
        assert_eq!(name("abc\n", Some(usual)), "abc");
        assert_eq!(name("abc\n", None), "abc");
        let moved = "monotonic           0         0\nboottime         3600         5\n";
        assert_eq!(name("abc\n", Some(moved)), "abc+3600.5");
    }
}
