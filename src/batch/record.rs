//! What of a batch job's work goes into the history, so that it tells something and costs little whatever the rate.
//!
//! Batches come by the hundred a second, and a history holds a hundred records. So what went well is told together: one
//! record for some seconds of work, with how many batches and items it was. What did not, or left items that do not go
//! by themselves, is told batch by batch, the first few of each summary; the rest is counted in it, with the last reason.
//! While work goes on summaries become longer, up to a minute: a hundred of them are more than an hour and a half.
//!
//! # Invariants
//! - R1 However many batches end, at most [`SINGLES`] records and a summary are written in the time of a summary, which
//!   is never shorter than [`FIRST`].                              (`the_rate_of_records_does_not_grow_with_that_of_batches`)
//! - R2 Every batch is told once: singly, or in one summary.       (`every_batch_is_told_once`)

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;

use crate::{
    clock::Moment,
    job::Run,
    run::Ended,
    status::{RunRecord, runs::BatchCounts},
};

/// Records of single batches in the time of one summary.
const SINGLES: u32 = 5;
/// How long the first summary lasts, and how long after the last batch one ends.
const FIRST: Duration = Duration::from_secs(5);
/// How long the longest one lasts.
const LONGEST: Duration = Duration::from_secs(60);
/// Outcomes of items that make a batch worth a record.
const NOTABLE: [&str; 4] = ["dead", "failed", "in_doubt", "parked"];

/// What is to be told of one job's batches.
#[derive(Default)]
pub(super) struct Records {
    open: Option<Summary>,
    /// When the last one ended, and how long it could have lasted.
    last: Option<(Moment, Duration)>,
}

/// Batches that are told together.
struct Summary {
    run_id: String,
    opened: Moment,
    span: Duration,
    /// When the last batch ended.
    ended: Moment,
    from: Timestamp,
    to: Timestamp,
    singles: u32,
    counts: BatchCounts,
    items: BTreeMap<String, u64>,
    /// Why the last batch did not end well that is not told singly.
    why: String,
}

impl Records {
    /// The run of a batch, which began then by both clocks, has ended now; the record of it, if it gets one of its own.
    pub(super) fn ended(
        &mut self,
        run: &Run,
        (since, at): (Moment, Timestamp),
        ended: &Ended,
        (now, wall): (Moment, Timestamp),
    ) -> Option<RunRecord> {
        let (word, mut why) = (ended.word(), ended.detail());
        if why.is_empty() {
            why = run.item_reasons();
        }
        let items = run.items();
        let well = matches!(ended, Ended::Done | Ended::Skipped(_));
        let notable = |word: &&'static str| items.get(*word).is_some_and(|n| *n > 0);
        let single = !well || NOTABLE.iter().any(notable);
        let last = self.last;
        let summary = self
            .open
            .get_or_insert_with(|| Summary::open(run.id(), last, now, at));
        (summary.ended, summary.to) = (now, wall);
        if single && summary.singles < SINGLES {
            summary.singles += 1;
            return Some(RunRecord {
                run_id: run.id().to_owned(),
                job: run.job().to_owned(),
                tick: at,
                attempt: run.attempt(),
                token: run.lease().map(|_| run.token()),
                outcome: word.to_owned(),
                detail: why,
                started: Some(at),
                ended: Some(wall),
                took_ms: Some(millis(now.since(since))),
                batch: run.batch().map(str::to_owned),
                items,
                trace_id: run.trace_id(),
                ..RunRecord::default()
            });
        }
        summary.from = summary.from.min(at);
        match (well, word) {
            (_, "done") => summary.counts.done += 1,
            (_, "skipped") => summary.counts.skipped += 1,
            _ => summary.counts.failed += 1,
        }
        for (word, n) in items {
            *summary.items.entry(word).or_insert(0) += n;
        }
        if !well {
            let batch = run.batch().unwrap_or_default();
            summary.why = format!("{batch} {word}: {why}");
        }
        None
    }

    /// The summary, when its time is over or nothing has happened for a while: `at_work` says whether batches are in flight.
    /// In any case with `all`.
    pub(super) fn summary(
        &mut self,
        job: &str,
        now: Moment,
        at_work: bool,
        all: bool,
    ) -> Option<RunRecord> {
        let open = self.open.as_ref()?;
        let at_rest = !at_work && now.since(open.ended) >= FIRST;
        if !all && !at_rest && now.since(open.opened) < open.span {
            return None;
        }
        let summary = self.open.take()?;
        self.last = Some((now, summary.span));
        summary.record(job)
    }
}

impl Summary {
    /// Longer than the last one when that ended just now.
    fn open(run_id: &str, last: Option<(Moment, Duration)>, now: Moment, at: Timestamp) -> Self {
        let span = match last {
            Some((ended, span)) if now.since(ended) <= span => (span * 2).min(LONGEST),
            _ => FIRST,
        };
        Self {
            run_id: run_id.to_owned(),
            opened: now,
            span,
            ended: now,
            from: at,
            to: at,
            singles: 0,
            counts: BatchCounts::default(),
            items: BTreeMap::new(),
            why: String::new(),
        }
    }

    /// Nothing when all batches were told singly.
    fn record(self, job: &str) -> Option<RunRecord> {
        let counts = self.counts;
        if counts == BatchCounts::default() {
            return None;
        }
        let took = self.to.duration_since(self.from);
        let took = Duration::try_from(took).unwrap_or_default();
        Some(RunRecord {
            run_id: self.run_id,
            job: job.to_owned(),
            tick: self.from,
            attempt: 1,
            outcome: match counts {
                BatchCounts { failed: 1.., .. } => "failed",
                BatchCounts { done: 0, .. } => "skipped",
                _ => "done",
            }
            .to_owned(),
            detail: self.why,
            started: Some(self.from),
            ended: Some(self.to),
            took_ms: Some(millis(took)),
            batches: Some(counts),
            items: self.items,
            ..RunRecord::default()
        })
    }
}

fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{clock::Clock, job::RunFacts};

    const SECOND: Duration = Duration::from_secs(1);

    struct Fixture {
        records: Records,
        began: Moment,
        written: Vec<RunRecord>,
        n: u64,
    }

    impl Fixture {
        fn new() -> Self {
            Self {
                records: Records::default(),
                began: Clock::system().now(),
                written: Vec::new(),
                n: 0,
            }
        }

        fn batch(&mut self, at: Duration, ended: &Ended, items: &[(&'static str, u64)]) {
            self.n += 1;
            let batch = self.n.to_string();
            let facts = RunFacts {
                job: "mail".to_owned(),
                id: format!("r-{batch}"),
                tick: Timestamp::UNIX_EPOCH,
                attempt: 1,
                replica: "a".to_owned(),
                batch: Some(batch.clone()),
                shard: 0,
                shards: 1,
                params: serde_json::Value::Null,
                checkpoint: None,
            };
            let run = Run::new(facts, Clock::system(), None, Duration::ZERO, Moment::NEVER);
            for (word, n) in items {
                run.count_items(word, *n);
            }
            let (now, wall) = (self.began + at, wall(at));
            let single = self.records.ended(&run, (now, wall), ended, (now, wall));
            self.written.extend(single);
            self.look(at);
        }

        fn look(&mut self, at: Duration) {
            let summary = self.records.summary("mail", self.began + at, false, false);
            self.written.extend(summary);
        }

        fn finish(mut self, at: Duration) -> Vec<RunRecord> {
            let last = self.records.summary("mail", self.began + at, false, true);
            self.written.extend(last);
            self.written
        }
    }

    fn wall(at: Duration) -> Timestamp {
        Timestamp::UNIX_EPOCH + jiff::SignedDuration::try_from(at).unwrap()
    }

    fn failed() -> Ended {
        Ended::TimedOut
    }

    #[test]
    fn the_rate_of_records_does_not_grow_with_that_of_batches() {
        for per_second in [1_u32, 100, 10_000] {
            for bad in [false, true] {
                let mut fixture = Fixture::new();
                let seconds = if per_second > 1_000 { 30 } else { 600 };
                for i in 0..seconds * per_second {
                    let at = SECOND * i / per_second;
                    let ended = if bad { failed() } else { Ended::Done };
                    fixture.batch(at, &ended, &[("sent", 50)]);
                }
                let written = fixture.finish(SECOND * seconds).len();
                // Summaries of 5, 10, 20, 40, 60, 60 … seconds, each with five batches besides.
                let summaries = if seconds == 600 { 14 } else { 3 };
                let most = summaries * if bad { 6 } else { 1 };
                assert!(
                    written <= most,
                    "{per_second}/s, bad {bad}: {written} of {most}"
                );
            }
        }
    }

    #[test]
    fn every_batch_is_told_once() {
        let mut fixture = Fixture::new();
        for i in 0..2_000_u32 {
            let at = SECOND * i / 50;
            match i % 10 {
                0 => fixture.batch(at, &failed(), &[]),
                1 => fixture.batch(at, &Ended::Done, &[("sent", 48), ("dead", 2)]),
                2 => fixture.batch(at, &Ended::Skipped("nothing to send".into()), &[]),
                _ => fixture.batch(at, &Ended::Done, &[("sent", 50)]),
            }
        }
        let written = fixture.finish(SECOND * 40);
        let of = |record: &RunRecord| {
            let counts = record.batches.unwrap_or_default();
            u64::from(record.batch.is_some()) + counts.done + counts.skipped + counts.failed
        };
        assert_eq!(written.iter().map(of).sum::<u64>(), 2_000);
        let items = |word: &str| -> u64 {
            let some = written.iter().filter_map(|record| record.items.get(word));
            some.sum()
        };
        assert_eq!((items("sent"), items("dead")), (200 * 48 + 1_400 * 50, 400));
        let single = written
            .iter()
            .find(|record| record.items.contains_key("dead"));
        assert!(
            single.unwrap().batch.is_some(),
            "the first of them is told singly"
        );
    }

    #[test]
    fn a_summary_ends_soon_after_the_work() {
        let mut fixture = Fixture::new();
        fixture.batch(Duration::ZERO, &Ended::Done, &[]);
        fixture.look(SECOND * 4);
        assert_eq!(fixture.written.len(), 0);
        fixture.look(SECOND * 5);
        let record = &fixture.written[0];
        assert_eq!(record.outcome, "done");
        assert_eq!(record.batches.map(|counts| counts.done), Some(1));
        // A burst on its own begins anew.
        for i in 0..30 {
            fixture.batch(SECOND * (100 + i), &Ended::Done, &[]);
        }
        fixture.look(SECOND * 134);
        let done: u64 = fixture.written[1..]
            .iter()
            .filter_map(|record| record.batches)
            .map(|counts| counts.done)
            .sum();
        assert_eq!(done, 30, "{:?}", fixture.written);
    }
}
