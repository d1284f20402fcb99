//! A run as a part of a trace.

use super::Run;
use crate::{
    job::shard::whole,
    trace::{AttemptTrace, Piece, Span, Value, failure},
};

impl Run {
    /// What to pass on to whatever this run starts or asks, so that its spans stand below this attempt: the value of `traceparent`
    /// by W3C Trace Context. `None` where no traces are told.
    ///
    /// ```
    /// # use watchkeeper::Run;
    /// # fn ask(run: &Run) -> Vec<(&'static str, String)> {
    /// // For a client of yours, whatever it is.
    /// let headers = run.traceparent().map(|value| ("traceparent", value));
    /// headers.into_iter().collect()
    /// # }
    /// ```
    #[must_use]
    pub fn traceparent(&self) -> Option<String> {
        let context = self.attempt_trace()?.context();
        Some(context.to_string())
    }

    /// The id of the trace that it is a part of; `None` where no traces are told, or this one is not kept.
    pub(crate) fn trace_id(&self) -> Option<String> {
        self.attempt_trace()?.context().kept_id()
    }

    /// A piece of its work begins; it is told as a child of this attempt. `None` where no traces are told.
    #[doc(hidden)] // for the stock jobs
    #[must_use]
    pub fn piece(&self, name: &'static str) -> Option<Piece> {
        let trace = self.attempt_trace()?;
        trace
            .tracer()
            .begin(name, trace.context(), &self.0.setup.clock)
    }

    /// Tells of this attempt, which has ended with this word.
    pub(crate) fn tell_attempt(&self, outcome: &'static str) {
        let Some(trace) = self.attempt_trace() else {
            return;
        };
        let setup = &self.0.setup;
        let took = setup.clock.now().since(setup.begins);
        let end = setup.clock.wall();
        let mut says = self.names();
        says.push(("watchkeeper.outcome", Value::from(outcome)));
        trace.tracer().tell(Span {
            name: "attempt".into(),
            context: trace.context(),
            parent: trace.run(),
            follows: trace.follows(),
            asks: false,
            start: end.checked_sub(took).unwrap_or(end),
            end,
            says,
            failure: failure(outcome),
        });
    }

    /// Its ids.
    fn names(&self) -> Vec<(&'static str, Value)> {
        let facts = self.facts();
        let mut names = vec![
            ("watchkeeper.job", Value::from(whole(&facts.job))),
            ("watchkeeper.run_id", Value::from(facts.id.as_str())),
            ("watchkeeper.tick", Value::from(facts.tick.to_string())),
            ("watchkeeper.attempt", Value::from(facts.attempt)),
            ("watchkeeper.replica", Value::from(facts.replica.as_str())),
            ("watchkeeper.token", Value::from(self.token().0)),
        ];
        if facts.shards > 1 {
            let shard = u64::try_from(facts.shard).unwrap_or(u64::MAX);
            names.push(("watchkeeper.shard", Value::from(shard)));
        }
        if let Some(batch) = self.batch() {
            names.push(("watchkeeper.batch", Value::from(batch)));
        }
        names
    }

    fn attempt_trace(&self) -> Option<&AttemptTrace> {
        self.0.setup.trace.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        job::{RunFacts, RunSetup},
        sim_clock::SimTime,
        trace::Tracer,
    };

    #[tokio::test(start_paused = true)]
    async fn an_attempt_tells_its_ids_its_times_and_no_parameter() {
        let clock = SimTime::new().clock();
        let (tracer, mut recorded) = Tracer::new("shop", "a", 1.0, 8);
        let facts = RunFacts {
            job: "report.3".to_owned(),
            id: "run-1".to_owned(),
            tick: "2026-05-04T08:00:00Z".parse().unwrap(),
            attempt: 2,
            replica: "host-1-a".to_owned(),
            batch: None,
            shard: 3,
            shards: 8,
            params: serde_json::json!({"password": "hunter2"}),
            checkpoint: Some("hunter2".into()),
        };
        let trace = tracer.attempt("report.3", "2026-05-04T08:00:00Z", 2);
        let run = Run::of(RunSetup {
            trace,
            ..RunSetup::new(facts, clock.clone())
        });
        let began = clock.wall();
        let traceparent = run.traceparent().unwrap();
        let piece = run.piece("send").unwrap();
        clock.sleep(Duration::from_secs(2)).await;
        drop(piece);
        run.tell_attempt("timeout");
        let piece = recorded.spans.try_recv().unwrap();
        let span = recorded.spans.try_recv().unwrap();
        assert_eq!(span.context.to_string(), traceparent);
        assert_eq!(piece.parent, Some(span.context));
        assert_eq!(span.failure, Some("timeout"));
        let first = tracer.attempt("report.3", "2026-05-04T08:00:00Z", 1);
        assert_eq!(span.follows, first.map(|first| first.context()));
        assert_eq!(span.end.duration_since(span.start).as_secs(), 2);
        assert_eq!(span.end.duration_since(began).as_secs(), 2);
        let said = format!("{span:?}");
        for word in ["report", "run-1", "2026-05-04T08:00:00Z", "host-1-a"] {
            assert!(said.contains(word), "{said}");
        }
        assert!(!said.contains("hunter2"), "{said}");
        assert!(!said.contains("report.3"), "one name for all shards");
    }

    #[test]
    fn without_traces_a_run_passes_nothing_on() {
        let facts = RunFacts {
            job: "report".to_owned(),
            id: "run-1".to_owned(),
            tick: jiff::Timestamp::UNIX_EPOCH,
            attempt: 1,
            replica: "a".to_owned(),
            batch: None,
            shard: 0,
            shards: 1,
            params: serde_json::Value::Null,
            checkpoint: None,
        };
        let run = Run::of(RunSetup::new(facts, SimTime::new().clock()));
        assert_eq!(run.traceparent(), None);
        assert!(run.piece("send").is_none());
        run.tell_attempt("done");
    }
}
