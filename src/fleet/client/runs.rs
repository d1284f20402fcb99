//! Reads the history of a job's runs.

use crate::{
    lock::{LockError, Locks},
    status::RunRecord,
};

/// The last `limit` runs of `job`, oldest first, with what they left to read.
pub(crate) async fn last(
    locks: &Locks,
    job: &str,
    limit: usize,
) -> Result<Vec<RunRecord>, LockError> {
    let docs = locks.docs(&RunRecord::directory(job)).await?;
    let read = docs.iter().filter_map(|doc| {
        let record = RunRecord::from_doc(job, doc)?;
        Some((record, RunRecord::output_beside(&doc.name)?))
    });
    let mut runs: Vec<(RunRecord, String)> = read.collect();
    runs.sort_by_key(|(run, _)| run.order());
    runs.drain(..runs.len().saturating_sub(limit));
    let mut shown = Vec::with_capacity(runs.len());
    // One after the other: all of them at once would be one large answer in the way of everything else.
    for (mut run, beside) in runs {
        if run.output_bytes > 0 {
            let doc = locks.doc(&beside).await?;
            // The place in the ring may belong to a newer run already.
            let doc = doc.filter(|doc| RunRecord::attempt_of(doc.rev) == run.seq);
            run.output = doc.map(|doc| doc.body);
        }
        shown.push(run);
    }
    Ok(shown)
}
