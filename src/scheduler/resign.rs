//! What a leader does about the intent that it gives up its term.
//!
//! # Invariants
//! - A job that is to go to a replica which does not take it goes to another one a ttl later.
//!   (a_job_handed_to_a_dead_replica_goes_to_another_one)

use std::time::Duration;

use super::{intents, term::TermLoop};
use crate::{clock::Moment, intent::Resign, node::Token};

/// What a leader waits for before it gives up a job that is to go to a certain replica: the others must have heard of it.
const HEARD_BY_ALL: Duration = intents::INTERVAL.saturating_mul(2);

/// How long a leader waits for the end of a run before it keeps a job that it was to give away between two runs.
const RUNS_ON: Duration = Duration::from_secs(30);

/// An intent that this term is given up, and from when on it is done.
#[derive(Debug, Default)]
pub(super) struct Notice(Option<(Resign, Moment)>);

/// What a leader does about such an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    /// It resigns.
    Now,
    /// Not yet.
    Wait,
    /// It stays, and says so: replicas that stand back need not any more.
    Stay,
}

/// `since_due`: since all replicas have heard of it, `None` before that.
fn leave(asked: &Resign, since_due: Option<Duration>, busy: bool, taker: bool) -> Leave {
    let Some(waited) = since_due else {
        return Leave::Wait;
    };
    match (asked.between_runs, busy) {
        (false, _) => Leave::Now,
        (true, _) if !taker => Leave::Stay,
        (true, false) => Leave::Now,
        (true, true) if waited >= RUNS_ON => Leave::Stay,
        (true, true) => Leave::Wait,
    }
}

impl TermLoop<'_> {
    /// Whether this term is to be given up now, as an operator or a peer asks. `busy`: a run is in flight.
    pub(super) fn leaves(&self, notice: &mut Notice, busy: bool) -> bool {
        let Some(asked) = self.asked_to_resign() else {
            *notice = Notice::default();
            return false;
        };
        let (ctx, now) = (&self.engine.ctx, self.clock().now());
        let known = notice.0.as_ref().filter(|(known, _)| *known == asked);
        let due = known.map_or_else(
            || match asked.to {
                // Where it shall go to a certain one the others stand back first.
                Some(_) => now + HEARD_BY_ALL,
                None => now,
            },
            |(_, due)| *due,
        );
        notice.0 = Some((asked.clone(), due));
        let to = asked.to.as_deref().unwrap_or_default();
        let taker = ctx.peers.stands_by(to, &self.engine.name);
        match leave(&asked, (now >= due).then(|| now.since(due)), busy, taker) {
            Leave::Now => true,
            Leave::Wait => false,
            Leave::Stay => {
                tracing::info!(job = self.engine.name, to, "keeps its term after all");
                let chance = u16::try_from(ctx.chance.below(1 << 16)).unwrap_or(0);
                let (token, to) = (Token(0), None);
                ctx.intents.ask(Resign { token, to, ..asked }, chance);
                false
            }
        }
    }

    /// The intent that this term is given up, unless this replica is the one that shall lead.
    pub(super) fn asked_to_resign(&self) -> Option<Resign> {
        let ctx = &self.engine.ctx;
        // In failover mode every job is where the replica lock is.
        let lease = self
            .lease
            .as_ref()
            .filter(|_| self.pass.lease().is_none())?;
        let asked = ctx.intents.resign(&self.engine.name)?;
        let to_me = asked.to.as_ref() == Some(&ctx.replica);
        (asked.token >= lease.token() && !to_me).then_some(asked)
    }
}

impl Notice {
    /// When there is something to decide again that no change of a run or of an intent tells of.
    pub(super) fn wake(&self, now: Moment) -> Moment {
        match &self.0 {
            Some((_, due)) if now < *due => *due,
            Some((asked, due)) if asked.between_runs && now < *due + RUNS_ON => *due + RUNS_ON,
            _ => Moment::NEVER,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leader_leaves_when_all_have_heard_and_between_two_runs_where_that_is_asked() {
        let now = Some(Duration::ZERO);
        let person = Resign::default();
        assert_eq!(leave(&person, None, false, true), Leave::Wait);
        assert_eq!(leave(&person, now, true, false), Leave::Now);
        let fleet = Resign {
            between_runs: true,
            ..Resign::default()
        };
        assert_eq!(leave(&fleet, None, false, false), Leave::Wait);
        assert_eq!(leave(&fleet, now, false, true), Leave::Now);
        assert_eq!(leave(&fleet, now, true, true), Leave::Wait);
        assert_eq!(leave(&fleet, Some(RUNS_ON), true, true), Leave::Stay);
        assert_eq!(leave(&fleet, now, false, false), Leave::Stay, "it has gone");
    }
}
