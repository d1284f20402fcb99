//! What the jobs' ledgers mean. Pure.

use std::time::Duration;

use jiff::Timestamp;

use super::finding::Finding;
use crate::{fleet::status::LockDetail, human::Span};

/// Jobs whose ticks are decided further than the clock shows.
pub(in crate::cli) fn ahead(locks: &[LockDetail], now: Timestamp, skew: Duration) -> Vec<Finding> {
    let mut found = Vec::new();
    for lock in locks {
        let (Some(job), Some(ledger)) = (lock.key.strip_prefix("job/"), &lock.ledger) else {
            continue;
        };
        let ahead = ledger.decided_upto.map(|upto| upto.duration_since(now));
        let ahead = ahead.and_then(|ahead| Duration::try_from(ahead).ok());
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
    use crate::fleet::status::locks::LedgerStatus;

    #[test]
    fn a_ledger_ahead_of_the_clock_is_a_warning_with_its_remedy() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let lock = |key: &str, upto| LockDetail {
            key: key.to_owned(),
            ledger: Some(LedgerStatus {
                decided_upto: Some(at(upto)),
                ..LedgerStatus::default()
            }),
            ..LockDetail::default()
        };
        let locks = [
            lock("job/late", 5000),
            lock("job/right", 1001),
            lock("lock/other", 5000),
            LockDetail::default(),
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
