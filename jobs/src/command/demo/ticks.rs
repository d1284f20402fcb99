//! What became of the ticks: counted from the lines that the runs left, and from the ledger.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use watchkeeper::Ledger;

use super::scene::BEAT;

/// Ticks are this far apart.
const EVERY: SignedDuration = SignedDuration::from_secs(1);

/// The tally of the ticks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// Runs that were started.
    pub(crate) fired: u64,
    /// Runs beyond the first of their tick: the next attempt after a run that died with its replica.
    pub(crate) repeated: u64,
    /// Ticks between the first and the last that were never started, and that no replica would start any more.
    pub(crate) missed: Vec<Timestamp>,
    /// Runs that were started although the same attempt had been. Must be zero.
    pub(crate) doubled: u64,
}

/// One line of the heartbeat; other fields do not matter here.
#[derive(Deserialize)]
struct Beat {
    event: String,
    tick: Timestamp,
    attempt: u32,
}

/// Counts the `lines` of the heartbeat up to the last tick that the `ledger` calls decided.
pub(crate) fn count(lines: &str, ledger: &Ledger) -> Ticks {
    let mut starts: BTreeMap<(Timestamp, u32), u64> = BTreeMap::new();
    for line in lines.lines() {
        // A line that cannot be read was cut by a kill while it was being written.
        if let Ok(beat) = serde_json::from_str::<Beat>(line)
            && beat.event == "started"
        {
            *starts.entry((beat.tick, beat.attempt)).or_default() += 1;
        }
    }
    let ticks: BTreeSet<Timestamp> = starts.keys().map(|(tick, _)| *tick).collect();
    let fired: u64 = starts.values().sum();
    let doubled = starts.values().map(|n| n - 1).sum();
    let (Some(&first), Some(&last)) = (ticks.first(), ticks.last()) else {
        return Ticks::default();
    };
    let last = ledger.decided_upto().map_or(last, |upto| upto.max(last));
    let open = ledger.open().iter().map(|run| run.tick);
    let waiting: BTreeSet<Timestamp> = ledger.waiting().iter().copied().chain(open).collect();
    let mut missed = Vec::new();
    let mut tick = first;
    while tick <= last {
        if !ticks.contains(&tick) && !waiting.contains(&tick) {
            missed.push(tick);
        }
        tick += EVERY;
    }
    Ticks {
        fired,
        repeated: fired - ticks.len() as u64,
        missed,
        doubled,
    }
}

/// What a replica's log says of why `tick` was not started: a bounded word such as `overlap`.
pub(crate) fn why_skipped(log: &str, tick: Timestamp) -> Option<String> {
    #[derive(Deserialize)]
    struct Skipped {
        job: String,
        first: Timestamp,
        last: Timestamp,
        why: String,
    }
    let lines = log.lines().filter(|line| line.contains("ticks skipped"));
    let mut skipped = lines.filter_map(|line| serde_json::from_str::<Skipped>(line).ok());
    let told = skipped.find(|s| s.job == BEAT && s.first <= tick && tick <= s.last);
    told.map(|skipped| skipped.why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(starts: &[(u32, u32)]) -> String {
        let line = |(second, attempt): &(u32, u32)| {
            let tick = format!("2026-01-02T03:04:{second:02}Z");
            format!(r#"{{"event":"started","tick":"{tick}","attempt":{attempt},"token":7}}"#)
        };
        starts.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    fn counted(starts: &[(u32, u32)]) -> Ticks {
        count(&lines(starts), &Ledger::default())
    }

    #[test]
    fn every_tick_once_is_all_well() {
        let ticks = counted(&[(1, 1), (2, 1), (3, 1)]);
        assert_eq!(
            (ticks.fired, ticks.repeated, ticks.missed),
            (3, 0, Vec::new())
        );
    }

    #[test]
    fn a_second_attempt_is_a_repeat_and_no_double() {
        let ticks = counted(&[(1, 1), (2, 1), (2, 2), (3, 1)]);
        assert_eq!((ticks.repeated, ticks.doubled), (1, 0));
    }

    #[test]
    fn the_same_attempt_twice_is_a_double() {
        let ticks = counted(&[(1, 1), (1, 1)]);
        assert_eq!((ticks.repeated, ticks.doubled), (1, 1));
    }

    #[test]
    fn a_second_without_a_start_is_missed() {
        assert_eq!(counted(&[(1, 1), (4, 1)]).missed.len(), 2);
    }

    #[test]
    fn a_tick_that_was_decided_and_not_started_is_missed_at_the_end_too() {
        let body = r#"{"v":1,"decided_upto":"2026-01-02T03:04:06Z"}"#;
        let ledger = Ledger::from_body(body).unwrap();
        assert_eq!(count(&lines(&[(4, 1)]), &ledger).missed.len(), 2);
    }

    #[test]
    fn a_tick_that_is_open_is_the_next_leaders_to_start() {
        let open = r#"{"id":"2026-01-02T03:04:05Z","tick":"2026-01-02T03:04:05Z","attempt":1,"state":"running","token":7}"#;
        let body = format!(r#"{{"v":1,"decided_upto":"2026-01-02T03:04:05Z","open":[{open}]}}"#);
        let ledger = Ledger::from_body(&body).unwrap();
        assert_eq!(count(&lines(&[(4, 1)]), &ledger).missed, []);
    }

    #[test]
    fn a_log_tells_why_a_tick_was_skipped() {
        let log = r#"{"level":"INFO","message":"leading","job":"heartbeat","token":1}
{"level":"WARN","message":"ticks skipped","job":"heartbeat","first":"2026-01-02T03:04:05Z","last":"2026-01-02T03:04:06Z","count":2,"why":"overlap"}"#;
        let why = |tick: &str| why_skipped(log, tick.parse().unwrap());
        assert_eq!(why("2026-01-02T03:04:06Z").as_deref(), Some("overlap"));
        assert_eq!(why("2026-01-02T03:04:07Z"), None);
    }

    #[test]
    fn a_line_that_was_cut_is_not_counted() {
        let text = format!("{}\n{{\"event\":\"sta", lines(&[(1, 1)]));
        assert_eq!(count(&text, &Ledger::default()).fired, 1);
    }
}
