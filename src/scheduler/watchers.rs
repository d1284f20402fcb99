//! Which replicas watch a lock that another one holds: the first three candidates. The others rest.
//!
//! A standby watches a lock by looking at it with each renewal of its holder. If every replica of a fleet did that for every
//! job, the nodes would answer jobs x replicas reads all the time. So for each job the candidates are ranked, by priority and
//! then by a hash of the replica and the job, as far as their presence documents tell of them; the first
//! [`WATCHERS`](super::spread::WATCHERS) watch as every standby would, and tell the nodes that they wait, so that a release wakes
//! them. A candidate that rests does not campaign. It looks about every ten minutes, together with all that it rests from.
//!
//! It ceases to rest as soon as it finds itself among the first, and when it is told that it shall lead next. While no living
//! replica tells that it leads the job, or a look has shown no living holder, the others come to help: the next three after five
//! seconds, the next six after ten, and so on: of two hundred replicas that have heard of each other three bid for each job. Time in
//! which too few nodes vote does not count. In failover mode the one lock that is campaigned for is that of the replica, and the
//! locks of all jobs are watched, or not, with it.
//!
//! # States            watching or helping <-> resting
//! # Invariants
//! - F6 A candidate rests only while it knows three better ones that live, and another replica that lives and leads, or that has
//!   ceased to for less than its own patience.   (a_candidate_rests_only_while_better_ones_watch_and_a_replica_leads,
//!   what_is_not_known_is_watched)
//! - F7 Whatever becomes of the leader and of all that watch, the job is led again within the time for which a presence
//!   document counts, and a ttl; where those that watch go after the leader, from when they go.
//!   (whatever_becomes_of_those_that_watch_a_job_is_led_again, with_others_that_never_look_a_job_stays_without_a_leader)
//! - F8 As long as one of those that watch lives, a takeover takes no longer than where all do.
//!   (one_of_those_that_watch_is_enough_to_take_over_in_time, a_leader_that_goes_is_succeeded_at_once_by_one_that_watches)
//! - F9 What a fleet at rest reads does not grow with its replicas.   (reads_do_not_grow_with_the_replicas,
//!   thirty_replicas_with_three_hundred_jobs_read_as_much_as_four)
//! # Why this cannot hurt
//! Who watches decides nothing (whoever_watches_by_chance_makes_no_second_leader). Whether a lock may be taken the nodes decide, each by what stands in its record (O1, O2):
//! a candidate that looks later, or with others, or in vain is a candidate like any other, and one that never looks is
//! a candidate that is not there. So no wrong view of the fleet, of whatever age or version, can make a second leader. It can
//! make a late one: all that a candidate goes by while it rests is news that ends by itself, when a document is not
//! written anew, or cannot be read although enough nodes vote.
//! # When things fail
//! A replica that has heard of no other yet, or cannot read the documents although enough nodes vote, watches. One that has lost
//! its own term does not wait before it helps. One that was thawed does so until it has
//! read them. A replica of a version that tells of itself in another way is not known: it counts for nothing, and watches what it
//! watches.

use std::{sync::Arc, time::Duration};

use super::{Context, Shared, spread::Attention};
use crate::{
    clock::Moment,
    election::{Elected, Elector},
    hash::liking,
    latest,
    lock::{LockError, LockState, Watching},
};

/// How long what rests is left alone at most.
const RARELY: Duration = Duration::from_secs(600);

/// A replica whose view of the others has ended without a word sees it then.
const AGAIN: Duration = Duration::from_secs(60);

/// For how long the first bid of all waits until the others were asked for.
const FIRST_NEWS: Duration = Duration::from_secs(1);

/// One lock that this replica may come to need, and its part in watching it.
pub(crate) struct Watcher<'a> {
    pub(crate) ctx: &'a Context,
    /// What candidates are ranked for: the job, or the whole replica.
    pub(crate) of: &'a str,
    pub(crate) vacancy: &'a Vacancy,
}

/// Since when looks at a lock have shown no living holder; `None` where the last one did. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Vacancy(Arc<latest::Sender<Option<Moment>>>);

// === impl Watcher ===
impl Watcher<'_> {
    /// Keeps the lock on the list of what this replica may need, at the pace that its part asks for, and tells `to` of all that
    /// is seen of it.
    pub(crate) fn keep_watching(
        &self,
        key: &str,
        ttl: Option<Duration>,
        to: impl Fn(&LockState) + Send + Sync + 'static,
    ) -> Watching {
        let (ctx, of) = (self.ctx.clone(), self.of.to_owned());
        let vacancy = self.vacancy.clone();
        let rarely = rarely(&self.ctx.replica);
        let (seen_vacant, clock) = (vacancy.clone(), self.ctx.clock.clone());
        let pace = move || {
            let (vacant, now) = (seen_vacant.since(), ctx.clock.now());
            let (attention, _) = ctx.peers.attention(&of, vacant, now);
            (attention == Attention::Rests).then_some(rarely)
        };
        let shows = move |seen: &LockState| {
            vacancy.shown(seen, clock.now());
            to(seen);
        };
        let watching = self.ctx.locks.keep_watching(key, ttl);
        watching.at_pace(pace).showing(shows)
    }

    /// The same candidate, which tells the nodes that it waits only where it is one of the first.
    pub(crate) fn candidate(&self, elector: Elector) -> Elector {
        let (ctx, of) = (self.ctx.clone(), self.of.to_owned());
        elector.telling(move || {
            let called = ctx.peers.is_called(&of, &ctx.intents);
            called || ctx.peers.attention(&of, None, ctx.clock.now()).0 == Attention::Watches
        })
    }

    /// By its rank and what the nodes have shown; and when that changes by itself.
    fn attention(&self) -> (Attention, Option<Duration>) {
        let (peers, now) = (&self.ctx.peers, self.ctx.clock.now());
        match peers.is_called(self.of, &self.ctx.intents) {
            true => (Attention::Watches, None),
            false => peers.attention(self.of, self.vacancy.since(), now),
        }
    }

    /// Campaigns whenever this replica does not rest.
    pub(crate) async fn campaign(&self, elector: &Elector) -> Result<Elected, LockError> {
        // Of many replicas that start together few need to bid.
        let asked = self.ctx.peers.were_asked();
        let _ = self.ctx.clock.timeout(FIRST_NEWS, asked).await;
        let mut rested = false;
        loop {
            rested |= self.rests_no_more().await;
            let campaign = elector.clone().looking_first(rested);
            tokio::select! {
                biased;
                elected = campaign.campaign_timed() => return elected,
                () = self.rests() => rested = true,
            }
        }
    }

    /// Completes when this replica does not rest; says whether it did.
    pub(super) async fn rests_no_more(&self) -> bool {
        let rested = self.attention().0 == Attention::Rests;
        self.until(|attention| attention != Attention::Rests).await;
        rested
    }

    /// Completes when this replica rests.
    pub(super) async fn rests(&self) {
        self.until(|attention| attention == Attention::Rests).await;
    }

    async fn until(&self, wanted: impl Fn(Attention) -> bool) {
        let Shared {
            peers,
            intents,
            clock,
            ..
        } = &**self.ctx;
        let mut asked = intents.seen();
        loop {
            let (seen, mut vacancy) = (peers.seen(), self.vacancy.0.subscribe());
            let (attention, changes_in) = self.attention();
            if wanted(attention) {
                return;
            }
            #[cfg(test)]
            if mutants::RESTS_FOR_EVER.get() && attention == Attention::Rests {
                std::future::pending::<()>().await;
            }
            let again = changes_in.map_or(AGAIN, |changes| changes.min(AGAIN));
            // What makes no difference wakes nothing: those that are to bid together go on in the order of their looks.
            let by_vacancy = matches!(attention, Attention::Rests | Attention::Helps);
            tokio::select! {
                biased;
                () = peers.changed(seen) => {}
                () = intents.changed(&mut asked) => {}
                _ = vacancy.changed(), if by_vacancy => {}
                () = clock.sleep(again), if attention == Attention::Rests => {
                    if peers.failover && self.attention().0 != Attention::Rests {
                        // It may need all that it rests from.
                        self.ctx.locks.watch_anew();
                    }
                }
            }
        }
    }
}

// === impl Vacancy ===

impl Vacancy {
    fn shown(&self, seen: &LockState, now: Moment) {
        let vacant = !seen.shows_life();
        self.0.send_if_modified(|known| {
            let was = known.is_some();
            *known = vacant.then(|| known.unwrap_or(now));
            was != vacant
        });
    }

    fn since(&self) -> Option<Moment> {
        *self.0.borrow()
    }
}

/// Not all replicas at the same time, but of one replica all together.
fn rarely(replica: &str) -> Duration {
    let parts = u32::try_from(liking(replica, "rarely") % 256).unwrap_or(0);
    RARELY - RARELY / 1024 * parts
}

/// Rules that tests switch off, to show that the simulation notices.
#[cfg(test)]
pub(crate) mod mutants {
    use std::cell::Cell;

    use std::time::Duration;

    use super::Attention;
    use crate::{clock::Moment, hash::liking};

    thread_local! {
        /// F6 off: what rests does so for ever.
        pub(crate) static RESTS_FOR_EVER: Cell<bool> = const { Cell::new(false) };
        /// All rules of attention off: each replica watches, helps or rests by chance, of this seed.
        pub(crate) static BY_CHANCE: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// For so long chance leaves a replica to its part.
    const TURN: Duration = Duration::from_secs(2);

    pub(crate) fn by_chance(
        replica: &str,
        of: &str,
        now: Moment,
    ) -> Option<(Attention, Option<Duration>)> {
        let seed = BY_CHANCE.get()?;
        let turn = now.since(Moment::ZERO).as_secs() / TURN.as_secs();
        let attention = match liking(replica, &format!("{of} {seed} {turn}")) % 3 {
            0 => Attention::Watches,
            1 => Attention::Helps,
            _ => Attention::Rests,
        };
        Some((attention, Some(TURN)))
    }
}
