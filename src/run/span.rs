//! The span of a run: every line that is logged within it says which run it belongs to.

use tracing::{Span, field};

use crate::job::Run;

/// The span of this run. It has the level of errors, so that it stands with lines of every level that is logged; a filter
/// that switches this library off takes it away as well. Parameters are not in it. Where traces are told it names the run's.
pub(super) fn of(run: &Run) -> Span {
    let facts = run.facts();
    let span = tracing::error_span!(
        target: "watchkeeper::run",
        "run",
        job = facts.job,
        run_id = facts.id,
        tick = %facts.tick,
        attempt = facts.attempt,
        token = run.token().0,
        replica = facts.replica,
        batch = field::Empty,
        trace_id = field::Empty,
    );
    if let Some(batch) = run.batch() {
        span.record("batch", batch);
    }
    if let Some(trace) = run.trace_id() {
        span.record("trace_id", trace);
    }
    span
}
