//! Runs one job whose lock is taken for each tick by the replica that comes first: there is no leader between ticks.
//!
//! # States            asleep -> looking -> [ bidding -> leading while anything is open or near ] | watching -> asleep
//! # Invariants
//! - B1 A term of such a job is one like any other, which ends when nothing of the job is open and no retry is near: what a
//!   leader promises holds for it.   (every_tick_runs_once_and_ticks_spread_over_the_replicas,
//!   whatever_overlaps_starts_once_beside_no_more_than_may_and_nothing_is_lost)
//! - B2 Between ticks nothing is asked of the nodes; a replica that sees that the tick is decided does not bid. A replica that
//!   may not bid, as the spare one of a failover fleet, watches the lock together with the others that it may need.
//!   (a_replica_that_waits_for_a_tick_asks_nothing_of_the_nodes,
//!   the_run_of_a_tick_goes_on_with_the_failover_standby_as_soon)
//! - B3 What only a minority of the nodes shows is bid for and written back, and so is a record that would be forgotten
//!   before a replica needs it: released records have an end.   (what_only_a_minority_shows_is_bid_for,
//!   a_record_is_kept_through_the_time_between_two_rare_ticks)
//! - B4 A new definition is written down when it is taken up, not at its first tick: what a change of the schedule passes over
//!   ends before that.   (a_job_whose_lock_is_taken_for_each_tick_loses_none_by_a_reload)
//! - B5 An unfit replica leaves its ticks to others, and waits until it is fit.
//!   (an_unfit_replica_leaves_its_ticks_to_others_and_waits)
//! - B6 The candidates for a tick look one after another: three at the tick or a little later, one a second later, and the others
//!   only when none of these has given a sign of life since, or stands by no more.   (ticks_cost_no_more_in_a_larger_fleet,
//!   a_tick_whose_first_replicas_have_died_is_found_by_another)
//! - B7 Candidates that live and reach too few nodes to take the lock keep a tick from the others for [`HEARD`] and a second at
//!   most, and none once that is known of them.   (a_tick_whose_first_replicas_reach_too_few_nodes_is_found_by_another)
//! - B8 A run is watched by those of the first three for the last tick that live, whatever wakes the others: they look once.
//!   (a_long_run_is_watched_by_few_whatever_wakes_the_others, a_run_that_all_who_watched_it_have_left_goes_on_elsewhere)
//! # When things fail
//! A replica that has not heard of the others looks at the tick. All look when a replica has gone: it may have left a run. And
//! whatever else keeps those from a tick that come first, it is left to them for a minute by the next one, twice as long by the one
//! after it, and for ten minutes at most; so is a run to those that watch it.
//! A replica that looks while a run is open watches its holder, and takes the lock when the lease is over: the run is found
//! interrupted. A bid that fails is tried again after a random, growing time.
//!
//! # Why this is no campaign
//! A campaign of [`Elector`] wants the lock whenever it is free. Here a free lock is the usual case, and wanted only when a tick is
//! due and this replica's turn has come; between ticks nothing is watched, and what ends a sleep is a tick, an intent or a replica
//! that has gone. So the two share the steps (`look`, `bid`, `watch`, the back-off) and the rules in them, and each has the loop of
//! its own wishes: one loop for both would ask at each step whose it is.

use std::{collections::BTreeMap, time::Duration};

use jiff::{SignedDuration, Timestamp};

use super::{
    Shared, ahead,
    engine::Engine,
    peers::TickTurn,
    rest::{News, Until},
};
use crate::{
    backoff::Backoff,
    clock::Moment,
    due::{self, Decision, Facts, WhySkipped},
    election::Elector,
    fleet::presence::LIFETIME,
    ledger::{Ledger, LedgerError, RunState},
    lock::{LockState, tally::majority},
    node::Token,
    status::JobStanding,
    term::Term,
};

/// A retry that is due so soon is waited for with the lock in hand.
const NEAR: Duration = Duration::from_secs(1);

/// Replicas look at a tick's lock within this time of it, each at its own moment. Far less than the tolerance of a tick,
/// however patient the store's clients are.
const SPREAD: Duration = Duration::from_millis(50);

/// So many candidates look at a tick at once, one after another, and watch what is run from then on; one more a second later, for when
/// these have died together.
const FIRST: usize = 3;

/// The time between two of them.
const APART: Duration = Duration::from_millis(20);

/// The next one comes so much later, when the first ones have not come.
const NEXT: Duration = Duration::from_secs(1);

/// What is there still has given a sign of life since the tick.
const HEARD: Duration = LIFETIME;

/// A tick that others were to look at, and live, is looked at after this by the first one of the rest: for when something else than
/// the nodes keeps them from it.
const LEFT: Duration = Duration::from_secs(60);

/// What others are to look at, or to watch, is looked at by all after this.
const AT_LAST: Duration = Duration::from_secs(600);

/// How long a ledger that cannot be read is left alone.
const UNREADABLE: Duration = Duration::from_secs(10);

/// What a replica that waits does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// There is something to decide: take the lock.
    Bid,
    /// Another replica holds the lock, or too few nodes answer.
    Watch,
    /// All is decided, until then. While anything is `open`, such as a retry, a replica that has seen it stays with it; else it
    /// looks when it is its turn.
    Sleep {
        until: Option<Timestamp>,
        open: bool,
    },
}

/// When the job's lock was last taken, as far as this replica knows: its record is kept for a time after that.
#[derive(Clone, Copy, Debug)]
struct Taken {
    token: Token,
    looked: Option<Moment>,
    /// It was taken after this.
    after: Option<Moment>,
    /// Old enough to be taken for the record's sake.
    limit: Duration,
}

/// How long the candidate with this turn waits from the tick on before it looks.
fn waits(turn: usize) -> Duration {
    match turn {
        0..FIRST => APART * u32::try_from(turn).unwrap_or_default(),
        FIRST => NEXT,
        _ => HEARD,
    }
}

/// For how much longer the candidate with this turn leaves a tick to those that come first and live.
fn leaves(turn: usize) -> Duration {
    let after = u32::try_from(turn.saturating_sub(FIRST + 1)).unwrap_or(u32::MAX);
    LEFT.saturating_mul(1 << after.min(10)).min(AT_LAST)
}

/// Ticks spread over the replicas by it, as soon as a store answers; none of them is late for it.
fn spread(node_timeout: Duration) -> Duration {
    SPREAD.min(node_timeout * 2)
}

// === impl Taken ===

impl Taken {
    fn new(limit: Duration) -> Self {
        Self {
            token: Token(0),
            looked: None,
            after: None,
            limit,
        }
    }

    /// The nodes have shown `token`; they were asked at `asked`. They show none where the release was swept.
    fn see(&mut self, token: Token, asked: Moment) {
        if token > self.token {
            (self.token, self.after) = (token, self.looked);
        }
        self.looked = Some(asked);
    }

    /// When the lock is to be taken again. It cannot know how old a record is that it has not seen change.
    fn stale_at(&self) -> Moment {
        self.after.map_or(Moment::ZERO, |after| after + self.limit)
    }
}

// === impl Engine ===

impl Engine {
    /// Runs the job tick by tick, in whichever replica comes first, until the worker drains.
    pub(crate) async fn run_by_tick(&mut self) {
        let ctx = &self.ctx.clone();
        let retention = ctx.locks.timing().retention_of(&self.key());
        // Not all at the same time.
        let limit = retention / 3 + ctx.chance.up_to(retention / 30);
        let mut taken = Taken::new(limit);
        let mut stood_back = None;
        loop {
            // A replica that may not bid now is to find a holder that has died in a run over, once it may. Between ticks a replica
            // that waits for the next one asks nothing.
            let watching = self.keep_watching();
            let Some(pass) = ctx.gate.pass().await else {
                break;
            };
            self.take_up();
            let elector = self.elector();
            ctx.local_status.stands(&self.name, JobStanding::Standby);
            tokio::select! {
                biased;
                () = pass.over() => continue,
                () = self.wait_until_fit(&pass) => {}
            }
            if self.stand_back_for_definition(&pass).await {
                continue;
            }
            drop(watching);
            let term = tokio::select! {
                biased;
                () = pass.over() => continue,
                asked = self.stands_back(stood_back.as_ref()) => {
                    self.stand_back(&asked, &pass).await;
                    stood_back = Some(asked);
                    continue;
                }
                () = self.outvoted() => continue,
                term = self.wait_for_work(&elector, &mut taken) => term,
            };
            let Some(term) = term else { continue };
            taken.see(term.lease().token(), ctx.clock.now());
            let (why, ended) = self.lead_by_tick(term, &pass).await;
            if Self::lets_others_go_first(&why, ended) {
                drop(pass);
                self.pause(ctx.locks.timing().ttl / 2).await;
            }
        }
        ctx.local_status.stands(&self.name, JobStanding::Off);
    }

    /// Waits until there is something to decide, and takes the lock for it; `None` when the job says that it is unfit.
    async fn wait_for_work(&self, elector: &Elector, taken: &mut Taken) -> Option<Term> {
        let ctx = &self.ctx;
        let (locks, clock, chance) = (&ctx.locks, &ctx.clock, &ctx.chance);
        let timing = locks.timing();
        let ttl = self.spec.ttl.unwrap_or(timing.ttl);
        let mut releases = locks.releases_of(&self.key());
        let mut asked_of_it = ctx.intents.about(&self.name);
        let mut backoff = Backoff::new(timing.node_timeout / 5, ttl / 10);
        let mut one_first = false;
        loop {
            // Here, and not by going back to where the job alone is asked: that would turn in a circle without a pause, and
            // keep the runtime from the heartbeat that makes a stalled replica fit again.
            if locks.fitness().unfit().is_some() {
                let _watching = self.keep_watching();
                locks.fitness().fit().await;
            }
            let (asked, gone) = (clock.now(), ctx.peers.gone());
            let mut rests = false;
            let next = match elector.look().await {
                Ok(seen) => {
                    let mut next = self.next(&seen, taken, asked);
                    if next == Next::Watch && seen.shows_life() && !self.is_to_watch() {
                        // Others watch its run, and all look when a replica has gone.
                        rests = true;
                        let until = self.next_start();
                        next = Next::Sleep { until, open: false };
                    }
                    if next == Next::Watch {
                        one_first = false;
                        elector.watch(&seen, &mut releases).await;
                    }
                    next
                }
                Err(error) => {
                    tracing::error!(job = self.name, %error, "cannot look at the lock");
                    clock.sleep(Duration::from_secs(1)).await;
                    continue;
                }
            };
            match next {
                Next::Watch => {}
                Next::Bid => {
                    // Asked long ago, maybe.
                    let fit = ctx.why_unfit(|| self.job.health(), timing.ttl / 2).await;
                    if fit.is_some() {
                        return None;
                    }
                    match elector.bid(one_first).await {
                        Ok(Some(term)) => return Some(term),
                        Ok(None) => {}
                        Err(error) => {
                            tracing::error!(job = self.name, %error, "cannot bid for the lock");
                            clock.sleep(Duration::from_secs(1)).await;
                        }
                    }
                    // Those that bid together split the vote.
                    one_first = true;
                    clock.sleep(backoff.next(chance)).await;
                }
                Next::Sleep { until, open } => {
                    backoff.reset();
                    one_first = false;
                    // Whether this replica is one of those that look at the tick first.
                    let first = tokio::select! {
                        biased;
                        () = ctx.intents.changed_about(&self.name, &mut asked_of_it) => false,
                        () = ctx.recall.nodes_are_back() => false,
                        () = ctx.peers.any_gone(gone) => false,
                        () = clock.sleep(AT_LAST), if rests => false,
                        () = self.asleep(until, taken.stale_at()), if open => false,
                        first = self.in_turn(until, taken.stale_at()), if !open => first,
                    };
                    if !first {
                        // Ticks spread over the replicas, and most of them see that another one was quicker.
                        clock.sleep(chance.up_to(spread(timing.node_timeout))).await;
                    }
                }
            }
        }
    }

    /// Waits until it is this replica's turn to look at a tick, from the one at `until` on, or until `stale`; says whether it
    /// is one of the first to look.
    async fn in_turn(&self, mut until: Option<Timestamp>, stale: Moment) -> bool {
        let Shared {
            peers,
            locks,
            clock,
            chance,
            ..
        } = &*self.ctx;
        let mut later: BTreeMap<Moment, TickTurn> = BTreeMap::new();
        let mut at_last = Moment::NEVER;
        // What is no tick of the schedule is no other replica's turn.
        let is_tick = until.is_some() && until == self.next_start();
        loop {
            let next = later.keys().next().copied().unwrap_or(Moment::NEVER);
            let next = next.min(at_last);
            tokio::select! {
                biased;
                () = clock.sleep_until(next), if next < Moment::NEVER => {
                    let Some((_, left)) = later.pop_first().filter(|_| next < at_last) else {
                        return false;
                    };
                    let came = peers.any_stands_by(&left.first, &self.name, clock.now());
                    if left.turn == FIRST || !came {
                        return false;
                    }
                    at_last = at_last.min(next + leaves(left.turn));
                }
                () = self.asleep(until, stale) => {
                    let tick = until.filter(|at| is_tick && *at <= locks.wall());
                    let now = clock.now();
                    let found = tick.and_then(|at| peers.turn(&self.name, at, FIRST + 1, now));
                    match found {
                        // Replicas that do not know each other.
                        None => {
                            let spread = spread(locks.timing().node_timeout);
                            clock.sleep(chance.up_to(spread)).await;
                            return true;
                        }
                        Some(found) if found.turn < FIRST => {
                            clock.sleep(waits(found.turn)).await;
                            return true;
                        }
                        Some(found) => {
                            later.insert(now + waits(found.turn), found);
                            until = self.next_start();
                        }
                    }
                }
            }
        }
    }

    /// Whether this replica is one of those that watch what another one runs: the first ones for the last tick, of those that live.
    /// One that does not know the others watches.
    fn is_to_watch(&self) -> bool {
        let ctx = &self.ctx;
        let due = self.schedule.due_upto(ctx.locks.wall());
        let last = self.schedule.latest_upto(Timestamp::UNIX_EPOCH, due);
        let last = last.map_or(Timestamp::UNIX_EPOCH, |tick| self.schedule.starts(tick));
        let found = ctx.peers.turn(&self.name, last, FIRST, ctx.clock.now());
        found.is_none_or(|found| found.turn < FIRST)
    }

    /// When the next run would start by the schedule.
    fn next_start(&self) -> Option<Timestamp> {
        let due = self.schedule.due_upto(self.ctx.locks.wall());
        let tick = self.schedule.next_after(due)?;
        Some(self.schedule.starts(tick))
    }

    /// What the nodes show, judged as a leader would judge it.
    fn next(&self, seen: &LockState, taken: &mut Taken, asked: Moment) -> Next {
        let ctx = &self.ctx;
        if !seen.looks_free() {
            return Next::Watch;
        }
        taken.see(seen.token(), asked);
        if asked >= taken.stale_at() || !agreed(seen) {
            return Next::Bid;
        }
        let now = ctx.locks.wall();
        let ledger = match Ledger::from_body(&seen.record().body) {
            Ok(ledger) => ledger,
            Err(error) => return self.unreadable(&error, now),
        };
        let next_tick = self.next_tick(&ledger, now);
        ctx.local_status
            .ticks(&self.name, self.last_tick(&ledger), next_tick);
        if self.is_decided_otherwise(&ledger) {
            // Before its first tick: what lies before the change is passed over, and nothing after it may be.
            return Next::Bid;
        }
        let plan = due::decide(&Facts {
            ledger: &ledger,
            schedule: &self.schedule,
            policy: &self.policy,
            now,
            token: Token(u64::MAX),
            alive: &[],
            may_start: true,
            triggers: &self.triggers_to_run(&ledger),
            paused_upto: self.paused_upto(now),
        });
        match plan {
            Ok(plan) if plan.decisions.iter().any(is_worth_a_bid) => Next::Bid,
            // A client waits for it, and the next tick may be far away.
            Ok(_) if self.has_untold_trigger(&ledger) => Next::Bid,
            Ok(plan) => {
                let open = !ledger.open().is_empty();
                let until = match self.look_ahead(plan.ahead) {
                    ahead::Next::TakeBack(_) => return Next::Bid,
                    ahead::Next::Level => plan.wake,
                    ahead::Next::Say => now.checked_add(ahead::STANDS).ok(),
                    ahead::Next::Wait(left) => now.checked_add(left).ok(),
                };
                Next::Sleep { until, open }
            }
            Err(_) => Next::Bid,
        }
    }

    /// Whether the job was decided last under another definition than the one that is to decide next.
    fn is_decided_otherwise(&self, ledger: &Ledger) -> bool {
        let by = ledger.decided_by();
        // A job never seen before is written at its first sight; an older version writes no definition.
        ledger.decided_upto().is_some() && !by.is_unknown() && *by != self.decided()
    }

    fn unreadable(&self, error: &LedgerError, now: Timestamp) -> Next {
        tracing::error!(job = self.name, %error, "cannot read the ledger: leaving the job to others");
        let until = now.checked_add(UNREADABLE).ok();
        Next::Sleep { until, open: true }
    }

    /// Sleeps until `until` by the wall clock, or until `stale`; no longer when that clock is set back. It rests with all other
    /// jobs that have nothing to do.
    async fn asleep(&self, until: Option<Timestamp>, stale: Moment) {
        let Shared {
            locks,
            clock,
            resting,
            intents,
            peers,
            ..
        } = &*self.ctx;
        let news = || News::seen(intents, &peers.definitions);
        let (began, shown) = (clock.now(), locks.wall());
        while clock.now() < stale {
            let known = news();
            let wall = locks.wall();
            if until.is_some_and(|at| at <= wall) {
                return;
            }
            let passed = SignedDuration::try_from(clock.now().since(began));
            let back = passed.unwrap_or_default() - wall.duration_since(shown);
            if Duration::try_from(back).is_ok_and(|back| back > locks.timing().skew) {
                return;
            }
            let rests = Until {
                wall: until,
                moment: stale,
                lease: None,
            };
            resting.until(rests, known, news).await;
        }
    }
}

// === decisions ===

/// Whether a term that is to last no longer than its work may end: nothing runs, and no retry is due soon.
pub(super) fn is_done(ledger: &Ledger, now: Timestamp) -> bool {
    let near = now.checked_add(NEAR).unwrap_or(Timestamp::MAX);
    let waits = |run: &crate::ledger::OpenRun| {
        run.state == RunState::Retry && run.not_before.unwrap_or(run.tick) <= near
    };
    !ledger.open().iter().any(waits)
}

/// Whether a majority of the nodes shows the newest record: what fewer show may be gone with the next look.
fn agreed(seen: &LockState) -> bool {
    let newest = seen.record().version;
    let views = seen.nodes.iter().filter_map(|node| node.as_ref().ok());
    views.filter(|view| view.record.version == newest).count() >= majority(seen.nodes.len())
}

/// What fell into a pause is written down by the replica that comes first after it.
fn is_worth_a_bid(decision: &Decision) -> bool {
    let why = WhySkipped::Paused;
    !matches!(decision, Decision::Missed { why: missed, .. } if *missed == why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        due::TOLERANCE,
        node::{NodeError, Record, Version, View},
    };

    /// An embedded store is given a second for its answer.
    #[test]
    fn no_store_is_so_patient_that_a_tick_is_looked_at_late() {
        for patience in [50, 500, 1000, 5000].map(Duration::from_millis) {
            assert!(spread(patience) * 10 <= TOLERANCE, "{patience:?}");
        }
    }

    #[test]
    fn three_candidates_look_at_a_tick_before_its_tolerance_is_half_over() {
        let all: Vec<Duration> = (0..10).map(waits).collect();
        assert!(all[..FIRST].iter().all(|wait| *wait * 2 <= TOLERANCE));
        assert_eq!(all[FIRST], NEXT);
        assert!(all[FIRST + 1..].iter().all(|wait| *wait == HEARD));
    }

    #[test]
    fn a_tick_is_left_to_others_for_a_minute_and_by_none_for_longer_than_ten() {
        let all: Vec<Duration> = (FIRST + 1..100).map(leaves).collect();
        assert_eq!(all[..3], [LEFT, LEFT * 2, LEFT * 4]);
        assert!(all.is_sorted() && all.last() == Some(&AT_LAST));
    }

    fn shows(rev: u64) -> Result<View, NodeError> {
        let version = Version {
            rev,
            ..Version::default()
        };
        let record = Record {
            version,
            body: String::new(),
        };
        Ok(View {
            record,
            ..View::default()
        })
    }

    #[test]
    fn what_only_a_minority_shows_is_bid_for() {
        let down = || Err(NodeError::Unreachable("test".into()));
        let agreed = |nodes| agreed(&LockState::new("k", nodes));
        assert!(agreed(vec![shows(3), shows(3), shows(2)]));
        assert!(agreed(vec![shows(3), shows(3), down()]));
        assert!(!agreed(vec![shows(3), shows(2), shows(2)]));
        assert!(!agreed(vec![shows(3), shows(2), down()]));
    }

    #[test]
    fn a_record_is_renewed_before_it_is_forgotten() {
        let at = |secs| Moment::from_boot(Duration::from_secs(secs));
        let mut taken = Taken::new(Duration::from_secs(100));
        taken.see(Token(4), at(1000));
        assert!(taken.stale_at() <= at(1000), "it is unknown how old it is");
        taken.see(Token(4), at(1010));
        assert!(taken.stale_at() <= at(1010));
        taken.see(Token(5), at(1050));
        assert_eq!(taken.stale_at(), at(1110), "taken after the look before");
        taken.see(Token(5), at(1090));
        assert_eq!(taken.stale_at(), at(1110));
    }

    #[test]
    fn a_term_waits_for_a_retry_that_is_near() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut ledger = Ledger::default();
        ledger.first_sight(at(1000)).unwrap();
        assert!(is_done(&ledger, at(1001)));
        let key = ledger.start_tick(at(1010), Token(1)).unwrap().key();
        ledger.retry_later(&key, Token(1), at(1020)).unwrap();
        assert!(is_done(&ledger, at(1018)));
        assert!(!is_done(&ledger, at(1019)));
    }
}
