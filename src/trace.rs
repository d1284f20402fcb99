//! Traces: which trace a piece of work belongs to, and what is told of it when it has ended.
//!
//! Ids are computed and not drawn. The attempts at one tick may be made by several replicas, the last of which says what became of
//! it: all must name the same trace without asking each other, and without a word of it in the ledger.
//!
//! ```text
//! run           (tick or trigger; told by the replica that writes how it ended)
//! ├─ ledger.write
//! ├─ attempt 1  (told by the replica that made it; `traceparent` of what it starts and asks)
//! │  └─ send, http, …
//! └─ attempt 2
//! ```
//!
//! Nothing here knows where spans go: `telemetry::traces` sends them, with the feature `otel`.
//!
//! # Invariants
//! - Y1 All attempts at one tick lie in one trace, whichever replicas make them.
//!   (attempts_of_one_run_share_a_trace_on_all_replicas)
//! - Y2 Whether a trace is kept is the same on all replicas.   (all_replicas_keep_the_same_traces)
//! - Y3 To tell of a span never waits: what finds no room is counted, and gone.   (what_finds_no_room_is_counted)
//! - Y4 A span holds ids and fixed words, cut to a length; never what a job says or is given.
//!   (what_a_span_says_is_cut)

#![cfg_attr(
    not(feature = "otel"),
    allow(dead_code, unused_imports, reason = "no spans are sent")
)]

mod context;
mod span;
mod tracer;

#[doc(hidden)] // for the command and the stock jobs
pub use self::{
    context::{TraceContext, current, within},
    span::Value,
    tracer::{AttemptTrace, Piece, Tracer},
};
pub(crate) use self::{
    span::{Span, failure},
    tracer::Recorded,
};

#[cfg(test)]
mod tests;
