//! What a decision is made from, and what it says.

use std::{borrow::Cow, time::Duration};

use jiff::Timestamp;
use serde_json::Value;

use super::policy::{Interrupted, Policy};
use crate::{
    ledger::{Ledger, RunKey, Skipped},
    node::Token,
    schedule::Schedule,
};

/// How long after the start of the latest tick was due it still counts as on time.
pub(crate) const TOLERANCE: Duration = Duration::from_secs(1);
/// How long after its last start a continuous job that has ended is started again.
pub(crate) const RESTART_PAUSE: Duration = Duration::from_secs(1);
/// How long ticks that fall into a pause may be collected before they are written down.
pub(crate) const PAUSED_PAUSE: Duration = Duration::from_secs(10);
/// How long overlapping ticks may be collected before they are written down.
pub(crate) const OVERLAP_PAUSE: Duration = Duration::from_secs(1);
/// Ticks that will not run are counted up to this number.
pub(crate) const COUNT_LIMIT: u64 = 10_000;

/// What a decision is made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    /// The job's ledger as it stands on a majority of nodes.
    pub(crate) ledger: &'a Ledger,
    /// The job's schedule.
    pub(crate) schedule: &'a Schedule,
    /// The job's rules.
    pub(crate) policy: &'a Policy,
    /// Civil time.
    pub(crate) now: Timestamp,
    /// The token of the lease under which the plan will be carried out.
    pub(crate) token: Token,
    /// The runs that this replica has started and whose outcome it has not recorded yet.
    pub(crate) alive: &'a [RunKey],
    /// Whether anything may start: not while the holder winds down. What fell due beside a free place is left to the
    /// next decision then.
    pub(crate) may_start: bool,
    /// Ids of triggers that ask for a run, oldest first; those that were started before are passed over.
    pub(crate) triggers: &'a [String],
    /// Ticks that are undecided up to here have fallen into a pause. The job is paused while this lies ahead.
    pub(crate) paused_upto: Option<Timestamp>,
}

/// What to do now, and when to ask again.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// What was decided, in the order in which it is to be reported; starts come last.
    pub(crate) decisions: Vec<Decision>,
    /// The ledger with all of it recorded. When there are decisions, write it before acting on them.
    pub(crate) ledger: Ledger,
    /// When to ask again at the latest; absent when only an event can bring work.
    pub(crate) wake: Option<Timestamp>,
    /// How far the ledger is ahead of the clock; until then no tick is due.
    pub(crate) ahead: Option<Duration>,
}

/// One thing that was decided.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// The job was never seen before.
    FirstSight {
        /// Nothing up to here runs.
        upto: Timestamp,
    },
    /// Start this attempt.
    Start {
        /// The tick in RFC 3339, or the trigger's id.
        id: String,
        /// The scheduled instant.
        tick: Timestamp,
        /// 1 for the first.
        attempt: u32,
        /// The attempt before died with its holder.
        interrupted: bool,
        /// What the attempt before left.
        checkpoint: Option<Value>,
    },
    /// These ticks were found too late and will not run.
    Missed {
        /// Which.
        ticks: Ticks,
        /// By which rule.
        why: WhySkipped,
    },
    /// These ticks fell due while all places were taken and will not run.
    Overlap {
        /// Which.
        ticks: Ticks,
    },
    /// These ticks fell due while all places were taken and run when one is free.
    Queued {
        /// Which.
        ticks: Ticks,
    },
    /// A newer tick takes the place of this run: tell it to stop. No other attempt of it follows.
    Replaced {
        /// Which attempt.
        key: RunKey,
        /// The tick that waits for its place.
        by: Timestamp,
    },
    /// A run was found whose holder died.
    Interrupted {
        /// As in `Start`.
        id: String,
        /// The scheduled instant.
        tick: Timestamp,
        /// The attempt that died.
        attempt: u32,
        /// What becomes of it.
        action: Interrupted,
        /// It is left because no attempt remains.
        exhausted: bool,
    },
}

/// Ticks in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticks {
    /// The first.
    pub(crate) from: Timestamp,
    /// The last.
    pub(crate) to: Timestamp,
    /// How many; [`COUNT_LIMIT`] stands for that many or more.
    pub(crate) count: u64,
}

/// By which rule a tick does not run. Each has a word, which stands in ledgers, events, metrics and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum WhySkipped {
    /// Found late, and the job skips late ticks.
    Misfire,
    /// Found late, and older than the window.
    Window,
    /// Found late, and later ticks took the places.
    Limit,
    /// All places were taken when it fell due.
    Overlap,
    /// The job was paused.
    Paused,
    /// Its run died with its replica or was told to stop, and does not run again. Told, but in no ledger.
    Interrupted,
    /// The lock nodes have forgotten what became of it.
    Unknown,
    /// The schedule was changed, and it lies before the change.
    Changed,
    /// It has run ahead of its time, or may have. Told, but in no ledger.
    Ahead,
}

/// A schedule as a ledger sees it.
pub(crate) trait WithoutSpans {
    /// Without the ticks that have run ahead of their time.
    fn without_spans(&self, ledger: &Ledger) -> Cow<'_, Schedule>;
}

impl WithoutSpans for Schedule {
    fn without_spans(&self, ledger: &Ledger) -> Cow<'_, Schedule> {
        self.without(ledger.ran_ahead().iter().map(|span| (span.from, span.to)))
    }
}

// === impl Ticks, Plan, WhySkipped ===

impl Ticks {
    /// One tick.
    pub(crate) fn single(tick: Timestamp) -> Self {
        Self {
            from: tick,
            to: tick,
            count: 1,
        }
    }

    /// As the ledger remembers them.
    pub(crate) fn skipped(self, why: WhySkipped) -> Skipped {
        let Self { from, to, count } = self;
        Skipped {
            from,
            to,
            count,
            why: why.as_str().to_owned(),
        }
    }
}

impl Plan {
    /// The runs to start, once the ledger is written.
    pub(crate) fn starts(&self) -> impl Iterator<Item = &Decision> {
        let starts = |d: &&Decision| matches!(d, Decision::Start { .. });
        self.decisions.iter().filter(starts)
    }
}

impl WhySkipped {
    /// All of them.
    const ALL: [Self; 9] = [
        Self::Misfire,
        Self::Window,
        Self::Limit,
        Self::Overlap,
        Self::Paused,
        Self::Interrupted,
        Self::Unknown,
        Self::Changed,
        Self::Ahead,
    ];

    /// Its word.
    #[must_use]
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Misfire => "misfire",
            Self::Window => "window",
            Self::Limit => "limit",
            Self::Overlap => "overlap",
            Self::Paused => "paused",
            Self::Interrupted => "interrupted",
            Self::Unknown => "unknown",
            Self::Changed => "changed",
            Self::Ahead => "ahead",
        }
    }

    /// The rule behind this word; `None` for one of a newer version.
    pub(crate) fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.as_str() == word)
    }
}

#[cfg(test)]
mod tests {
    use super::WhySkipped;

    #[test]
    fn every_word_of_a_skipped_tick_is_told_in_the_documentation() {
        let line = |text: &'static str, begins: &str| {
            let found = text.lines().find(|line| line.contains(begins));
            found.unwrap_or_else(|| panic!("{begins}"))
        };
        let metrics = include_str!("../../docs/reference/metrics.md");
        let label = line(metrics, "| `why` of ticks |");
        let rows = include_str!("../../docs/operations/troubleshooting.md");
        let (_, event) = include_str!("../event.rs")
            .split_once("/// Ticks that will not run, and why:")
            .unwrap();
        let (event, _) = event.split_once("TicksSkipped").unwrap();
        for why in WhySkipped::ALL {
            let word = format!("`{}`", why.as_str());
            assert!(label.contains(&word), "{word} of the metric");
            assert!(event.contains(&word), "{word} of the event");
            line(rows, &format!("| {word} |"));
            assert_eq!(WhySkipped::of(why.as_str()), Some(why));
        }
        assert_eq!(label.matches('`').count(), 2 + 2 * WhySkipped::ALL.len());
        assert_eq!(event.matches('`').count(), 2 * WhySkipped::ALL.len());
    }
}
