//! The rules of `overlap` and `concurrency`, and what they leave to each way of coordination.

use crate::{
    due::Overlap,
    finding::Findings,
    job::{Coordination, Spec},
    ledger::MAX_OPEN,
    schedule::Schedule,
};

/// Adds what cannot hold, and what would have no effect. `schedule` is the job's, when it can be read. Keys are those of the
/// job.
pub(super) fn check(spec: &Spec, schedule: Option<&Schedule>, found: &mut Findings) {
    let continuous = spec.schedule.as_ref().is_some_and(|s| s.is("continuous"));
    let set = [
        ("overlap", spec.overlap != Overlap::Skip),
        ("concurrency", spec.concurrency.is_some()),
    ];
    let mut refuse = |why: &str, remedy: &str| {
        let set = set.into_iter().filter(|(_, set)| *set);
        let mut any = false;
        for (key, _) in set {
            any = true;
            found.error(&[key], why, format!("leave {key} out{remedy}"));
        }
        any
    };
    if spec.coordination == Coordination::Batch {
        let why =
            "a batch job has no ticks, and works on several batches at a time by a rule of its own";
        refuse(why, "; what goes on at a time stands in params.concurrency");
        return;
    }
    if continuous
        && refuse(
            "a continuous job has one run, which goes on for as long as its replica leads",
            "",
        )
    {
        return;
    }
    match spec.concurrency {
        Some(0) => found.error(
            &["concurrency"],
            "no run could ever start",
            "write 1, or enabled = false",
        ),
        Some(many) if many > MAX_OPEN => found.error(
            &["concurrency"],
            format!("{many} is not from 1 to {MAX_OPEN}: a ledger holds no more open runs"),
            format!("write {MAX_OPEN}, or spread the work over the replicas with coordination = \"batch\""),
        ),
        Some(1) if spec.overlap == Overlap::Allow => found.error(
            &["concurrency", "overlap"],
            "with one run at a time there is nothing to allow",
            format!("raise concurrency, or leave it out for {MAX_OPEN}"),
        ),
        _ => {}
    }
    if spec.coordination == Coordination::Tick {
        by_tick(spec, continuous, found);
    }
    // A schedule that cannot be read is told elsewhere.
    let no_ticks = schedule.is_some_and(|schedule| !schedule.has_ticks());
    if spec.overlap != Overlap::Skip && !continuous && no_ticks {
        found.warn(
            &["overlap"],
            "it has no effect: there are no ticks, and triggers wait for a place whatever the rule",
            "leave overlap out",
        );
    }
}

/// The lock is given back after each tick's work: one run at a time, to its end.
fn by_tick(spec: &Spec, continuous: bool, found: &mut Findings) {
    if continuous {
        found.error(
            &["coordination", "schedule"],
            "a continuous job has no ticks for which its lock could be taken",
            "write coordination = \"leader\"",
        );
        return;
    }
    if matches!(spec.overlap, Overlap::Allow | Overlap::CancelPrevious) {
        found.error(
            &["overlap", "coordination"],
            "with coordination = \"tick\" a tick's work ends before that of the next one begins",
            "write overlap = \"skip\" or \"queue\", or coordination = \"leader\"",
        );
    }
    if spec.concurrency.is_some_and(|many| many > 1) {
        found.error(
            &["concurrency", "coordination"],
            "with coordination = \"tick\" a tick's work ends before that of the next one begins",
            "leave concurrency out, or write coordination = \"leader\"",
        );
    }
}
