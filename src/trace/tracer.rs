//! Where spans are told: one for each replica, or none.

use std::{
    borrow::Cow,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::sync::mpsc;

use super::{
    context::TraceContext,
    span::{Span, Value},
};
use crate::clock::{Clock, Moment};

/// Where spans are told. Without traces nothing is, and nothing is computed. Cheap to clone.
#[derive(Clone, Default)]
pub struct Tracer(Option<Arc<Inner>>);

struct Inner {
    /// What all replicas of the fleet have in common, and no other fleet.
    fleet: String,
    /// This process alone.
    me: String,
    /// The share of traces that is kept.
    ratio: f64,
    to: mpsc::Sender<Span>,
    lost: Arc<AtomicU64>,
    /// Pieces that have begun here: no two have the same number.
    begun: AtomicU64,
}

/// Where spans come out.
pub(crate) struct Recorded {
    pub(crate) spans: mpsc::Receiver<Span>,
    lost: Arc<AtomicU64>,
}

/// A piece of work that goes on. Its span is told when it is dropped.
pub struct Piece {
    tracer: Tracer,
    clock: Clock,
    began: Moment,
    context: TraceContext,
    /// Until it has ended.
    span: Option<Span>,
}

/// Where one attempt stands in its trace.
#[derive(Clone)]
pub struct AttemptTrace {
    tracer: Tracer,
    context: TraceContext,
    /// The run that it is an attempt at; none for a batch, which is a trace of its own.
    run: Option<TraceContext>,
    /// The attempt before it.
    follows: Option<TraceContext>,
}

// === impl Tracer ===

impl Tracer {
    /// Spans of `fleet` from `me`, of which `room` may wait at one time.
    pub(crate) fn new(fleet: &str, me: &str, ratio: f64, room: usize) -> (Self, Recorded) {
        let (to, spans) = mpsc::channel(room);
        let lost = Arc::new(AtomicU64::new(0));
        let inner = Inner {
            fleet: fleet.to_owned(),
            me: me.to_owned(),
            ratio,
            to,
            lost: lost.clone(),
            begun: AtomicU64::new(0),
        };
        (Self(Some(Arc::new(inner))), Recorded { spans, lost })
    }

    /// The run of a tick or trigger: what its attempts are children of.
    pub(crate) fn run(&self, job: &str, id: &str) -> Option<TraceContext> {
        let inner = self.0.as_deref()?;
        Some(TraceContext::computed(
            &["run", &inner.fleet, job, id],
            inner.ratio,
        ))
    }

    /// The trace of an attempt at it. Of one attempt there is one alone in the fleet, so that its number tells it from the others.
    pub(crate) fn attempt(&self, job: &str, id: &str, attempt: u32) -> Option<AttemptTrace> {
        let run = self.run(job, id)?;
        let number = |attempt: u32| run.child(&["attempt", &attempt.to_string()]);
        Some(AttemptTrace {
            tracer: self.clone(),
            context: number(attempt),
            run: Some(run),
            follows: (attempt > 1).then(|| number(attempt - 1)),
        })
    }

    /// The trace of a batch: it is claimed again and again under one name, and its run is a trace of its own.
    pub(crate) fn batch(&self, job: &str, run_id: &str) -> Option<AttemptTrace> {
        let inner = self.0.as_deref()?;
        Some(AttemptTrace {
            tracer: self.clone(),
            context: TraceContext::computed(&["batch", &inner.fleet, job, run_id], inner.ratio),
            run: None,
            follows: None,
        })
    }

    /// A piece of work begins, as a child of `above`.
    pub(crate) fn begin(
        &self,
        name: &'static str,
        above: TraceContext,
        clock: &Clock,
    ) -> Option<Piece> {
        let inner = self.0.as_deref()?;
        let number = inner.begun.fetch_add(1, Ordering::Relaxed).to_string();
        let context = above.child(&[name, &inner.me, &number]);
        Some(self.piece(name, context, Some(above), clock))
    }

    /// A piece of work begins that others may have a part in: as a child of what its caller says of itself, if it says so, else as a
    /// trace of its own.
    #[must_use]
    pub fn begin_for(
        &self,
        caller: Option<TraceContext>,
        name: &'static str,
        clock: &Clock,
    ) -> Option<Piece> {
        if let Some(caller) = caller {
            return self.begin(name, caller, clock);
        }
        let inner = self.0.as_deref()?;
        let number = inner.begun.fetch_add(1, Ordering::Relaxed).to_string();
        let at = clock.wall().to_string();
        let parts = [name, inner.fleet.as_str(), &inner.me, &number, &at];
        let context = TraceContext::computed(&parts, inner.ratio);
        Some(self.piece(name, context, None, clock))
    }

    fn piece(
        &self,
        name: &'static str,
        context: TraceContext,
        parent: Option<TraceContext>,
        clock: &Clock,
    ) -> Piece {
        let now = clock.wall();
        let span = Span {
            name: Cow::Borrowed(name),
            context,
            parent,
            follows: None,
            asks: false,
            start: now,
            end: now,
            says: Vec::new(),
            failure: None,
        };
        Piece {
            tracer: self.clone(),
            clock: clock.clone(),
            began: clock.now(),
            context,
            span: Some(span),
        }
    }

    /// Tells of a span, unless its trace is not kept. Never waits: a receiver of spans must not hold up a lease.
    pub(crate) fn tell(&self, span: Span) {
        let Some(inner) = &self.0 else { return };
        if span.context.is_sampled() && inner.to.try_send(span).is_err() {
            inner.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Some(_) => "Tracer(on)",
            None => "Tracer(off)",
        })
    }
}

// === impl Piece ===

impl Piece {
    /// What is passed on to whatever this piece starts or asks.
    #[must_use]
    pub fn context(&self) -> TraceContext {
        self.context
    }

    /// Something is asked by it that may have spans of its own.
    #[must_use]
    pub fn asking(mut self) -> Self {
        if let Some(span) = &mut self.span {
            span.asks = true;
        }
        self
    }

    /// Says something of it: an id, a count, a fixed word.
    pub fn say(&mut self, name: &'static str, value: impl Into<Value>) {
        if let Some(span) = &mut self.span {
            span.says.push((name, value.into()));
        }
    }

    /// It has failed, unless something else is said of it later; a fixed word says how. Texts of errors stay in the history and in
    /// the log.
    pub fn fail(&mut self, why: &'static str) {
        if let Some(span) = &mut self.span {
            span.failure = Some(why);
        }
    }

    /// It has not failed.
    pub fn well(&mut self) {
        if let Some(span) = &mut self.span {
            span.failure = None;
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let Some(mut span) = self.span.take() else {
            return;
        };
        let took = self.clock.now().since(self.began);
        span.end = span.start.checked_add(took).unwrap_or(span.start);
        self.tracer.tell(span);
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Piece").field(&self.context).finish()
    }
}

// === impl AttemptTrace ===

impl AttemptTrace {
    pub(crate) fn context(&self) -> TraceContext {
        self.context
    }

    pub(crate) fn run(&self) -> Option<TraceContext> {
        self.run
    }

    pub(crate) fn follows(&self) -> Option<TraceContext> {
        self.follows
    }

    pub(crate) fn tracer(&self) -> &Tracer {
        &self.tracer
    }
}

// === impl Recorded ===

impl Recorded {
    /// How many found no room since this was asked last.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}
