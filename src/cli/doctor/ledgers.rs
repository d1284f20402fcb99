//! What the jobs' ledgers mean. Pure.

use std::time::Duration;

use jiff::Timestamp;

use super::Finding;
use crate::{human::Span, ledger::Ledger, node::View};

/// Jobs whose ticks are decided further than the clock shows, from the locks as each node shows them.
pub(in crate::cli) fn ahead(locks: &[Vec<View>], now: Timestamp, skew: Duration) -> Vec<Finding> {
    let mut found = Vec::new();
    for views in locks {
        let newest = views.iter().max_by_key(|view| view.record.version);
        let job = newest.and_then(|view| Some((view.key.strip_prefix("job/")?, view)));
        let Some((job, view)) = job else { continue };
        let ledger = Ledger::from_body(&view.record.body).ok();
        let decided = ledger.and_then(|ledger| ledger.decided_upto());
        let ahead = decided.and_then(|upto| Duration::try_from(upto.duration_since(now)).ok());
        let Some(ahead) = ahead.filter(|ahead| *ahead > skew) else {
            continue;
        };
        let ahead = Span(Duration::from_secs(ahead.as_secs()));
        found.push(Finding::warning(
            job,
            format!("its ticks are decided {ahead} further than the clock shows: none is due before that"),
            "a clock had jumped ahead, or one has gone back: set the lock nodes' clocks right; the job's leader takes it back \
             when it has stood for half a minute",
        ));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Record, Version};

    #[test]
    fn a_ledger_ahead_of_the_clock_is_a_warning_with_its_remedy() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let view = |key: &str, upto, rev| {
            let mut ledger = Ledger::default();
            ledger.first_sight(at(upto)).unwrap();
            let version = Version {
                rev,
                ..Version::default()
            };
            let body = ledger.to_body();
            View {
                key: key.to_owned(),
                record: Record { version, body },
                ..View::default()
            }
        };
        let locks = [
            vec![view("job/late", 900, 1), view("job/late", 5000, 2)],
            vec![view("job/right", 1001, 1)],
            vec![view("lock/other", 5000, 1)],
            vec![View::default()],
        ];
        let found = ahead(&locks, at(1000), Duration::from_secs(1));
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].subject, "late");
        assert!(
            found[0].finding.contains("1h 6m 40s") && found[0].has_its_remedy(),
            "{found:?}"
        );
    }
}
