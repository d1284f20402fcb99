//! What a term tells of its runs as parts of their traces.
//!
//! # Invariants
//! - Y5 A run is told once, by the replica that wrote how it ended. (a_run_with_two_attempts_on_two_replicas_is_one_trace)

use jiff::Timestamp;

use super::term::TermLoop;
use crate::{
    job::shard::whole,
    ledger::{Ledger, RunKey, is_trigger_id},
    lock::WriteError,
    trace::{AttemptTrace, Piece, Span, Value, failure},
};

impl TermLoop<'_> {
    /// The trace of an attempt, below that of its run.
    pub(super) fn attempt_trace(&self, key: &RunKey) -> Option<AttemptTrace> {
        let engine = self.engine;
        let id = self.id_in_trace(&key.id);
        engine.ctx.tracer.attempt(&engine.name, &id, key.attempt)
    }

    /// Writes the ledger, and tells that as a part of these runs.
    pub(super) async fn write_of(
        &self,
        runs: &[&str],
        ledger: &Ledger,
        not_before: Option<Timestamp>,
    ) -> Result<(), WriteError> {
        // Without a lock nothing is asked of the nodes.
        let mut pieces: Vec<Piece> = match self.lease {
            Some(_) => runs.iter().filter_map(|id| self.writing(id)).collect(),
            None => Vec::new(),
        };
        // Unless it comes to its end.
        pieces
            .iter_mut()
            .for_each(|piece| piece.fail("not written"));
        let written = self.write(ledger, not_before).await;
        if written.is_ok() {
            pieces.iter_mut().for_each(Piece::well);
        }
        written
    }

    /// Tells of a run that has come to its end with this word; `tick` is when it was due, `attempts` how many it took.
    pub(super) fn tell_run(&self, id: &str, tick: Timestamp, attempts: u32, outcome: &'static str) {
        let engine = self.engine;
        let ctx = &engine.ctx;
        let Some(context) = ctx.tracer.run(&engine.name, &self.id_in_trace(id)) else {
            return;
        };
        let job = whole(&engine.name);
        let mut says = vec![
            ("watchkeeper.job", Value::from(job)),
            ("watchkeeper.tick", Value::from(tick.to_string())),
            ("watchkeeper.attempts", Value::from(attempts)),
            ("watchkeeper.outcome", Value::from(outcome)),
            ("watchkeeper.replica", Value::from(ctx.replica.as_str())),
            ("watchkeeper.token", Value::from(self.token().0)),
        ];
        if is_trigger_id(id) {
            says.push(("watchkeeper.trigger", Value::from(id)));
        }
        let end = ctx.clock.wall();
        ctx.tracer.tell(Span {
            name: format!("run {job}").into(),
            context,
            parent: None,
            follows: None,
            asks: false,
            // From when it was due: what it waited for its leader and its turn is a part of it.
            start: tick.min(end),
            end,
            says,
            failure: failure(outcome),
        });
    }

    fn writing(&self, id: &str) -> Option<Piece> {
        let ctx = &self.engine.ctx;
        let run = ctx.tracer.run(&self.engine.name, &self.id_in_trace(id))?;
        let mut piece = ctx.tracer.begin("ledger.write", run, &ctx.clock)?;
        piece.say("watchkeeper.replica", ctx.replica.as_str());
        piece.say("watchkeeper.token", self.token().0);
        Some(piece)
    }

    /// Without a lock each replica has a run of its own at a tick.
    fn id_in_trace(&self, id: &str) -> String {
        match self.lease {
            Some(_) => id.to_owned(),
            None => format!("{id} {}", self.engine.ctx.replica),
        }
    }
}
