//! Looks at the others, and hands terms over to where they belong: to larger priorities, and to smaller shares.
//!
//! Slow on purpose: one term at a time, and only while all shares have stood still for a while.
//!
//! # Invariants
//! - Nothing moves before its minimum term is over.   (a_term_that_somebody_moved_stays_for_its_minimum_term)
//! - What came back after it was handed over stays longer each time, also when the configuration is reloaded meanwhile.
//!   (what_comes_back_stays_longer_each_time, a_reload_forgets_nothing_of_the_jobs_that_stay)

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    Context,
    spread::{HandOver, Held, Why},
};
use crate::{clock::Moment, fleet::presence, intent::Resign};

/// How long all shares must have stood still: every replica has heard of the last change then, and has told it.
const CALM: Duration = Duration::from_secs(5);
/// How long it is remembered what was handed over.
const MEMORY: Duration = Duration::from_secs(3600);
/// The minimum term is doubled so often at most.
const DOUBLINGS: u32 = 6;

/// When this replica handed which job over. Cheap to clone: it outlives the task that looks at the others.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandoverLog(Arc<Mutex<BTreeMap<String, Vec<Moment>>>>);

/// Looks and hands over until the worker drains. `min_terms` of the jobs that have a leader; nothing is asked of the others
/// unless this replica `bids` for any lock. What it hands over is noted in `log`.
pub(crate) async fn balance(
    ctx: Context,
    min_terms: BTreeMap<String, Duration>,
    bids: bool,
    log: HandoverLog,
) {
    if !ctx.peers.candidate || !(bids || ctx.peers.failover) {
        // It never bids.
        return;
    }
    let drain = ctx.gate.drain().clone();
    while !drain.is_cancelled() {
        // Nothing new when too few nodes answer: those heard of last count as gone soon.
        let looked = ctx.peers.look(&ctx.locks, &ctx.local_status).await;
        let news = match &looked {
            Ok(news) => *news,
            Err(_) => ctx
                .peers
                .saw_nothing(ctx.locks.enough_vote(), ctx.clock.now()),
        };
        if news {
            ctx.locks.watch_anew();
        }
        if looked.is_ok() {
            ctx.peers.definitions.tell(&ctx.local_status, &ctx.events);
            if !ctx.peers.failover {
                one(&ctx, &min_terms, &log).await;
            }
        }
        let next = ctx.beat(presence::INTERVAL);
        tokio::select! {
            biased;
            () = drain.cancelled() => {}
            () = ctx.clock.sleep_until(next) => {}
        }
    }
}

/// Hands one term over, if one is to go.
async fn one(ctx: &Context, min_terms: &BTreeMap<String, Duration>, log: &HandoverLog) {
    let now = ctx.clock.now();
    log.forget(now);
    if ctx.peers.calm_for(now) < CALM || ctx.peers.is_alone() {
        return;
    }
    let terms = held(ctx, min_terms, log, now);
    let under_way = |term: &Held| {
        let asked = ctx.intents.resign(&term.job);
        asked.is_some_and(|asked| Some(asked.token) >= ctx.local_status.token(&term.job))
    };
    if terms.iter().any(under_way) {
        return;
    }
    let found = ctx.peers.hand_over(&ctx.local_status, &terms);
    let Some(HandOver { job, to, why }) = found else {
        return;
    };
    // What an operator or a peer asks for comes first.
    let read = ctx.intents.refresh(&ctx.locks).await;
    let token = ctx.local_status.token(&job);
    let asked = ctx.intents.resign(&job).map(|asked| asked.token);
    let Some(token) = token.filter(|token| read.is_ok() && asked.is_none_or(|a| a < *token)) else {
        return;
    };
    let reason = match why {
        Why::Priority => "it has the larger priority",
        Why::Share => "it leads fewer jobs",
    };
    tracing::info!(job, to, reason, "hands its term over");
    log.note(&job, now);
    let chance = u16::try_from(ctx.chance.below(1 << 16)).unwrap_or(0);
    let resign = Resign {
        job,
        token,
        to: Some(to),
        by: ctx.replica.clone(),
        at: ctx.locks.wall(),
        between_runs: true,
    };
    ctx.intents.ask(resign, chance);
}

/// The terms of this replica.
fn held(
    ctx: &Context,
    min_terms: &BTreeMap<String, Duration>,
    log: &HandoverLog,
    now: Moment,
) -> Vec<Held> {
    let wall = ctx.locks.wall();
    let terms = ctx.local_status.terms().into_iter();
    let held = terms.filter_map(|term| {
        let min_term = *min_terms.get(&term.job)?;
        let until_tick = term.next_tick.map(|at| at.duration_since(wall));
        Some(Held {
            age: now.since(term.since),
            min_term: log.min_term(&term.job, min_term),
            idle: term.idle,
            until_tick: until_tick.map(|left| Duration::try_from(left).unwrap_or_default()),
            job: term.job,
        })
    });
    held.collect()
}

// === impl HandoverLog ===

impl HandoverLog {
    pub(crate) fn note(&self, job: &str, at: Moment) {
        self.jobs().entry(job.to_owned()).or_default().push(at);
    }

    /// The job is no more: one of the same name that comes later is another one.
    pub(crate) fn forget_job(&self, job: &str) {
        self.jobs().remove(job);
    }

    fn forget(&self, now: Moment) {
        let mut jobs = self.jobs();
        for times in jobs.values_mut() {
            times.retain(|at| now.since(*at) < MEMORY);
        }
        jobs.retain(|_, times| !times.is_empty());
    }

    /// A replica that was given a job and does not keep it gets it again later and later.
    pub(crate) fn min_term(&self, job: &str, min_term: Duration) -> Duration {
        let times = self.jobs().get(job).map_or(0, Vec::len);
        let doublings = u32::try_from(times).unwrap_or(DOUBLINGS).min(DOUBLINGS);
        min_term.saturating_mul(1 << doublings)
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Moment>>> {
        // Every change is complete before the lock is given back.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_stays_longer_each_time() {
        let at = |secs| Moment::from_boot(Duration::from_secs(secs));
        let minute = Duration::from_secs(60);
        let log = HandoverLog::default();
        assert_eq!(log.min_term("job", minute), minute);
        for n in 0..20 {
            log.note("job", at(n));
        }
        assert_eq!(log.min_term("job", minute), minute * 64);
        assert_eq!(log.min_term("mail", minute), minute);
        log.forget(at(3601));
        assert_eq!(log.min_term("job", minute), minute * 64);
        log.forget(at(3618));
        assert_eq!(log.min_term("job", minute), minute * 2);
        log.forget(at(3700));
        assert_eq!(log.min_term("job", minute), minute);
    }

    #[test]
    fn a_job_that_is_no_more_is_forgotten_and_no_other() {
        let (log, minute) = (HandoverLog::default(), Duration::from_secs(60));
        for job in ["job", "mail"] {
            log.clone().note(job, Moment::ZERO);
        }
        log.forget_job("job");
        assert_eq!(log.min_term("job", minute), minute);
        assert_eq!(log.min_term("mail", minute), minute * 2);
    }
}
