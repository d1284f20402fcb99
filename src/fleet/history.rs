//! The history of a job's runs, as every surface shows it: `history JOB --json`, `/api/v1/runs?job=JOB`.
//!
//! Every attempt that starts gets the next number of its job, `seq`, and a document `history/JOB/NN` with
//! `NN = seq mod 100`: a ring, so that the last [`KEPT_RUNS`] runs are kept and nothing has to be pruned. It is written
//! when the attempt starts and again when it ends. What the run left to read lies apart, in `output/JOB/NN`, so that
//! listing a hundred runs does not move their output over the connection that renews leases; it is read run by run. What a run in
//! flight has left so far is in `live/JOB/NN` ([`LiveText`]), and becomes its output where it is found dead.
//!
//! Jobs that run everywhere have no shared numbers: each replica has a ring of its own, `history/JOB/NAME-NN`. So have
//! batches, of which what went well is told together: a record is one batch ([`RunRecord::batch`]) or the work of up to a
//! minute ([`RunRecord::batches`]).
//!
//! # Invariants
//! - H1 Of two writings about one attempt the later state counts, whichever arrives last: running, ended, interrupted.
//!   (a_later_state_of_a_run_wins)
//! - H2 A newer run takes the place of an older one in the ring, never the other way round. (a_newer_run_takes_the_place)
//!
//! # Not promised
//! This is news, not authority: what may start is decided by the ledger alone. A document that could not be written is
//! missing, and one of a replica that died stays `running` until its successor has seen it. What a replica has not told yet
//! of its batches dies with it.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::status::progress::RunProgress;
use crate::node::{Doc, Token};

/// Runs that are kept per job; of a job that runs everywhere, per replica.
pub(crate) const KEPT_RUNS: u64 = 100;

/// How long a run is remembered at least. The ring bounds the number, so this only clears away jobs that are gone:
/// long enough for a yearly one.
pub(crate) const HISTORY_LIFETIME: Duration = Duration::from_secs(400 * 24 * 3600);

/// The same for runs of jobs that run everywhere: rings of replicas that are gone are never written over.
pub(crate) const EVERYWHERE_LIFETIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long what a run in flight has left is kept after it was told: long enough for a successor to find it.
pub(crate) const LIVE_LIFETIME: Duration = Duration::from_secs(3600);

/// One attempt at one run.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunRecord {
    /// Unique and sortable; empty when the run's replica died before it could tell.
    pub run_id: String,
    /// The job.
    pub job: String,
    /// The scheduled instant.
    pub tick: Timestamp,
    /// 1 for the first.
    pub attempt: u32,
    /// The fencing token it ran under; `null` for a job without a lock.
    pub token: Option<Token>,
    /// The id of the replica that ran it.
    pub replica: String,
    /// The name of that replica.
    pub replica_name: String,
    /// `running`, then `done`, `skipped`, `retry`, `failed`, `timeout`, `cancelled` or `panicked`; `interrupted` when a
    /// successor found that it had died with its replica or lost its lease.
    pub outcome: String,
    /// Why; empty when there is nothing to say.
    pub detail: String,
    /// When it started, by its replica's wall clock; `null` when that is not known.
    pub started: Option<Timestamp>,
    /// When it ended, or was found interrupted; `null` while it runs.
    pub ended: Option<Timestamp>,
    /// How long it took, in milliseconds; `null` while it runs and when it was interrupted.
    pub took_ms: Option<u64>,
    /// What it left to read, and while it runs what it has left so far; `null` when nothing, or when it could not be read.
    pub output: Option<String>,
    /// Bytes that it left to read; 0 while it runs.
    pub output_bytes: u64,
    /// Names of the parameters that its trigger gave it; never their values.
    pub params: Vec<String>,
    /// The checkpoint of an earlier attempt that it went on from; `null` when there was none.
    pub resumed: Option<Resumed>,
    /// How far it is; `null` when it does not run any more, or tells nothing. Not kept: added when the run is shown.
    pub progress: Option<RunProgress>,
    /// Its number among the runs of its job: grows with every start.
    pub seq: u64,
    /// The batch, where the record tells of a single one. Absent elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// How many batches this replica worked on from `started` to `ended`, without those that have records of their own.
    /// Absent where the record tells of one run or batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batches: Option<BatchCounts>,
    /// Items of these batches by what became of them (`sent`, `retry`, `dead`, `in_doubt`, `parked`), as far as the job
    /// counts them. Absent where nothing was counted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub items: BTreeMap<String, u64>,
    /// The id of the trace that it is a part of, in hexadecimal digits. Absent where no traces are sent, or this one is not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
}

/// Batches that are told together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BatchCounts {
    /// Done.
    pub done: u64,
    /// Found to have nothing to do, or to belong to another holder.
    pub skipped: u64,
    /// Failed, stopped or to be tried again; `detail` says what the last of them said.
    pub failed: u64,
}

/// A checkpoint that an attempt began with. What is in it is not told.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Resumed {
    /// Its size as JSON.
    pub bytes: u64,
    /// When it was left, by the clock of ticks; `null` when that is not known.
    pub saved: Option<Timestamp>,
}

/// What a run in flight has left to read so far.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct LiveText {
    pub(crate) run_id: String,
    pub(crate) text: String,
}

/// What is known of an attempt. A later state writes over an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Running = 0,
    Ended = 1,
    Interrupted = 2,
}

/// Revisions that one attempt may use.
const STAGES: u64 = 4;

/// The outcome of a run that has not ended.
pub(crate) const RUNNING: &str = "running";
/// The outcome of a run that a successor found dead.
pub(crate) const INTERRUPTED: &str = "interrupted";

// === impl RunRecord ===

impl RunRecord {
    /// The directory of a job's history.
    #[must_use]
    pub(crate) fn directory(job: &str) -> String {
        format!("history/{job}/")
    }

    /// The documents of one attempt: its record, and what it left to read. `ring` names the replica for jobs that run
    /// everywhere.
    pub(crate) fn documents(job: &str, ring: Option<&str>, seq: u64) -> (String, String) {
        let slot = seq % KEPT_RUNS;
        let place = match ring {
            // A slash would put it into another directory.
            Some(ring) => format!("{job}/{}-{slot:02}", ring.replace('/', "_")),
            None => format!("{job}/{slot:02}"),
        };
        (format!("history/{place}"), format!("output/{place}"))
    }

    /// Whether the record lies in a ring of its replica's own: what no ledger counts.
    pub(crate) fn is_of_replica(&self) -> bool {
        self.token.is_none() || self.batch.is_some() || self.batches.is_some()
    }

    /// The number of the last record in the ring of this replica, among the documents of the job's history.
    pub(crate) fn last_of_ring(job: &str, ring: &str, docs: &[Doc]) -> u64 {
        let (first, _) = Self::documents(job, Some(ring), 0);
        let names = first.strip_suffix("00").unwrap_or(&first);
        let ours = docs.iter().filter(|doc| {
            let slot = doc.name.strip_prefix(names);
            slot.is_some_and(|slot| slot.len() == 2 && slot.bytes().all(|b| b.is_ascii_digit()))
        });
        ours.map(|doc| Self::attempt_of(doc.rev)).max().unwrap_or(0)
    }

    /// The same in words: `12 batches done, 2 failed; 600 sent, 3 dead`. Empty for a run.
    #[must_use]
    pub(crate) fn batch_words(&self) -> String {
        let some = |all: &[(u64, &str)]| {
            let words: Vec<String> = all
                .iter()
                .filter(|(n, _)| *n > 0)
                .map(|(n, word)| format!("{n} {word}"))
                .collect();
            words.join(", ")
        };
        let batches = match (&self.batch, self.batches) {
            (Some(batch), _) => format!("batch {batch}"),
            (None, Some(all)) => {
                let counts = [
                    (all.done, "done"),
                    (all.skipped, "skipped"),
                    (all.failed, "failed"),
                ];
                format!("batches: {}", some(&counts))
            }
            (None, None) => return String::new(),
        };
        let items: Vec<(u64, &str)> = self.items.iter().map(|(w, n)| (*n, w.as_str())).collect();
        match items.is_empty() {
            true => batches,
            false => format!("{batches}; items: {}", some(&items)),
        }
    }

    /// The document with what the run left to read, beside the one named `record`.
    pub(crate) fn output_beside(record: &str) -> Option<String> {
        Some(format!("output/{}", record.strip_prefix("history/")?))
    }

    /// The document with what the run has left so far, beside the record of this name.
    pub(crate) fn live_beside(record: &str) -> String {
        let place = record.split_once('/').map_or(record, |(_, place)| place);
        format!("live/{place}")
    }

    /// The revision of the documents of attempt `seq` in this state.
    pub(crate) fn revision(seq: u64, stage: Stage) -> u64 {
        seq.saturating_mul(STAGES).saturating_add(stage as u64)
    }

    /// The attempt that wrote a document with this revision.
    pub(crate) fn attempt_of(revision: u64) -> u64 {
        revision / STAGES
    }

    /// A document's content, without the output.
    pub(crate) fn to_body(&self) -> String {
        let mut body = serde_json::to_value(self).unwrap_or_default();
        if let Some(fields) = body.as_object_mut() {
            fields.remove("output");
            fields.remove("progress");
        }
        body.to_string()
    }

    /// Reads a document; `None` when it is no record of this job. Unknown fields are ignored: a newer version may be
    /// running beside this one.
    pub(crate) fn from_doc(job: &str, doc: &Doc) -> Option<Self> {
        let record: Self = serde_json::from_str(&doc.body).ok()?;
        let ours = record.job == job && Self::attempt_of(doc.rev) == record.seq;
        ours.then_some(record)
    }

    /// What becomes of the record when a successor finds at `now` that the attempt did not survive.
    pub(crate) fn interrupt(&mut self, now: Timestamp) {
        // It did end, but that came too late to be written into the ledger: another attempt may follow all the same.
        if self.outcome != RUNNING && self.outcome != INTERRUPTED && !self.outcome.is_empty() {
            let said = format!("ended as {} too late to count", self.outcome);
            self.detail = match self.detail.as_str() {
                "" => said,
                why => format!("{said}: {why}"),
            };
        }
        INTERRUPTED.clone_into(&mut self.outcome);
        self.ended.get_or_insert(now);
    }

    /// The order in which runs are shown, newest last: by the start, then by the number.
    pub(crate) fn order(&self) -> (Timestamp, u64) {
        (self.started.unwrap_or(self.tick), self.seq)
    }

    /// The same as a text that no other run has: where a list of runs goes on.
    pub(crate) fn place(&self) -> String {
        let (began, seq) = self.order();
        let began = u128::try_from(began.as_nanosecond()).unwrap_or(0);
        // As many digits as the largest has, so that texts compare as numbers do.
        format!(
            "{began:021}.{seq:020}.{}.{}.{}",
            self.job, self.replica, self.run_id
        )
    }
}

// === impl LiveText ===

impl LiveText {
    /// The revision of a text that is told at this time, after one with that revision: of a run, and of those that have its place
    /// later.
    pub(crate) fn revision(at: Timestamp, last: u64) -> u64 {
        let at = u64::try_from(at.as_millisecond()).unwrap_or(0);
        at.max(last.saturating_add(1))
    }

    pub(crate) fn to_body(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What the run of this id has left, if the document is about it: its place may be a newer run's by then.
    pub(crate) fn of_run(run_id: &str, doc: &Doc) -> Option<String> {
        let told: Self = serde_json::from_str(&doc.body).ok()?;
        let is_its = !run_id.is_empty() && told.run_id == run_id && !told.text.is_empty();
        is_its.then_some(told.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seq: u64) -> RunRecord {
        RunRecord {
            job: "report".to_owned(),
            outcome: RUNNING.to_owned(),
            seq,
            ..RunRecord::default()
        }
    }

    fn doc(record: &RunRecord, stage: Stage) -> Doc {
        Doc {
            name: RunRecord::documents(&record.job, None, record.seq).0,
            rev: RunRecord::revision(record.seq, stage),
            body: record.to_body(),
        }
    }

    #[test]
    fn the_last_hundred_runs_lie_in_a_ring() {
        let name = |seq| RunRecord::documents("report", None, seq).0;
        assert_eq!(name(7), "history/report/07");
        assert_eq!(name(107), name(7));
        let all: std::collections::BTreeSet<_> = (1000..1100).map(name).collect();
        assert_eq!(all.len(), 100);
        let (record, output) = RunRecord::documents("report", Some("a/b"), 7);
        assert_eq!(record, "history/report/a_b-07");
        assert_eq!(RunRecord::output_beside(&record), Some(output));
        assert!(name(7).starts_with(&RunRecord::directory("report")));
    }

    #[test]
    fn a_replica_goes_on_in_its_own_ring() {
        let doc = |ring: &str, seq| Doc {
            name: RunRecord::documents("mail", Some(ring), seq).0,
            rev: RunRecord::revision(seq, Stage::Ended),
            body: String::new(),
        };
        let docs = [doc("a", 7), doc("a", 108), doc("a-b", 500), doc("b", 300)];
        assert_eq!(RunRecord::last_of_ring("mail", "a", &docs), 108);
        assert_eq!(RunRecord::last_of_ring("mail", "c", &docs), 0);
    }

    #[test]
    fn places_of_runs_have_the_order_of_the_runs() {
        let run = |second, seq, job: &str| RunRecord {
            started: Timestamp::from_second(second).ok(),
            job: job.to_owned(),
            ..record(seq)
        };
        let runs = [
            run(9, 900, "a"),
            run(10, 7, "a"),
            run(10, 10, "a"),
            run(10, 10, "b"),
            run(1_000_000_000, 1, "a"),
        ];
        let places = runs.map(|run| run.place());
        assert!(
            places.windows(2).all(|pair| pair[0] < pair[1]),
            "{places:?}"
        );
    }

    #[test]
    fn a_record_of_a_run_has_no_fields_of_batches() {
        let body = record(7).to_body();
        assert!(!body.contains("batch") && !body.contains("items"), "{body}");
    }

    #[test]
    fn a_later_state_of_a_run_wins() {
        let revision = |stage| RunRecord::revision(7, stage);
        assert!(revision(Stage::Running) < revision(Stage::Ended));
        assert!(revision(Stage::Ended) < revision(Stage::Interrupted));
        assert!(RunRecord::attempt_of(revision(Stage::Interrupted)) == 7);
    }

    #[test]
    fn a_newer_run_takes_the_place() {
        let last = RunRecord::revision(7, Stage::Interrupted);
        assert!(last < RunRecord::revision(107, Stage::Running));
        assert!(last < RunRecord::revision(8, Stage::Running));
    }

    #[test]
    fn a_record_reads_back_without_its_output() {
        let mut run = record(7);
        run.output = Some("secret-sized".to_owned());
        let doc = doc(&run, Stage::Ended);
        assert!(!doc.body.contains("secret-sized"));
        let read = RunRecord::from_doc("report", &doc).unwrap();
        assert_eq!(read, record(7));
        assert_eq!(RunRecord::from_doc("mail", &doc), None, "another job's");
        let other = Doc {
            rev: RunRecord::revision(8, Stage::Ended),
            ..doc
        };
        assert_eq!(RunRecord::from_doc("report", &other), None);
    }

    #[test]
    fn an_interrupted_record_keeps_what_the_dead_had_said() {
        let now = Timestamp::from_second(100).unwrap();
        let mut run = record(7);
        run.interrupt(now);
        assert_eq!(
            (run.outcome.as_str(), run.detail.as_str()),
            (INTERRUPTED, "")
        );
        assert_eq!(run.ended, Some(now));

        let mut run = record(7);
        run.outcome = "cancelled".to_owned();
        run.detail = "the lease has ended".to_owned();
        run.ended = Some(Timestamp::from_second(50).unwrap());
        run.interrupt(now);
        assert_eq!(
            run.detail,
            "ended as cancelled too late to count: the lease has ended"
        );
        assert_eq!(run.ended, Some(Timestamp::from_second(50).unwrap()));
    }
}
