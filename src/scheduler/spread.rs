//! Who leads what: how soon a candidate bids, and when a leader hands a term over. Plain functions of what replicas tell of
//! themselves.
//!
//! # Invariants
//! - F1 A sole candidate bids at once, and no candidate waits longer than [`longest_wait`].
//!   (a_sole_candidate_bids_at_once_and_nobody_waits_long)
//! - F2 From any start the hand-overs come to an end, and nothing moves from then on.
//!   (from_any_start_terms_come_to_rest)
//! - F3 At rest candidates of one priority differ by one term at most, where all can do all jobs.
//!   (from_any_start_terms_come_to_rest)
//! - F4 A term goes to a larger priority or to a smaller share, never the other way.
//!   (a_term_never_goes_to_a_smaller_priority)
//! - F5 Among candidates of one priority each watches about as many jobs as another one.
//!   (a_fleets_candidates_share_what_is_to_be_watched)
//! # When things fail
//! What is told is some seconds old. A wrong guess costs a wait that is short beside the ttl, or a term that moves once
//! more, after its minimum term.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;

use crate::{
    fleet::presence::replicas::{Own, Telling},
    hash::{liking, mixed},
    status::{JobPresence, JobStanding, Role},
};

/// What the standbys of a failover fleet stand by for. No job has this name.
pub(crate) const WHOLE_REPLICA: &str = "worker/failover";

/// The schedule whose run never ends by itself.
const CONTINUOUS: &str = "continuous";

/// How many terms more than a peer make a replica give one away. With one it would come back at once.
const TOO_MANY: usize = 2;

/// So many candidates watch the lock of a job. The others rest.
pub(crate) const WATCHERS: usize = 3;

/// While no replica leads a job, twice as many candidates bid for it after each time of this length.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a candidate does about a lock that another replica holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attention {
    /// It watches, and tells the nodes that it waits.
    Watches,
    /// It watches, because no replica has led for so long that the better ones, which tell the nodes, should have long since.
    Helps,
    /// It looks rarely: better ones watch.
    Rests,
}

/// One replica, as far as elections go.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Peer {
    pub(crate) id: String,
    pub(crate) priority: i32,
    /// The jobs that it leads, and whether it could ever give them away between two runs.
    pub(crate) leads: BTreeMap<String, bool>,
    /// The jobs that it would take over now.
    pub(crate) stands_by: StandsBy,
    /// It is the active one of a failover fleet.
    pub(crate) is_active: bool,
}

/// What a replica would take over: all of what the reader knows but some. Most would take over nearly everything, and so that
/// everything is kept once.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct StandsBy {
    all: Arc<BTreeSet<String>>,
    but: BTreeSet<String>,
}

/// A term of this replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) job: String,
    /// How long it has lasted.
    pub(crate) age: Duration,
    /// How long it is to last at least.
    pub(crate) min_term: Duration,
    /// No run of it is in flight.
    pub(crate) idle: bool,
    /// The time to its next tick; `None` when it has none.
    pub(crate) until_tick: Option<Duration>,
}

/// A term to be handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HandOver {
    pub(crate) job: String,
    /// The id of the replica that is to lead.
    pub(crate) to: String,
    pub(crate) why: Why,
}

/// Why a term is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Priority,
    Share,
}

// === impl Peer ===

impl Peer {
    /// What a replica tells one that has the jobs `own`. Replicas in failover mode have one thing to stand by for; one that
    /// reaches too few lock nodes stands by for nothing, where the reader `reaches` enough.
    pub(crate) fn of(told: &Telling, own: &Own, failover: bool, reaches: bool) -> Self {
        let presence = &told.presence;
        let of_mode = (presence.mode == "failover") == failover;
        let able = of_mode
            && !presence.draining
            && presence.unfit.is_none()
            && !(presence.cut_off && reaches)
            && presence.role != Role::Observer;
        // A lock that is taken for a tick is no replica's share.
        let leads = presence.jobs.iter().filter(|j| j.is_led());
        let leads = leads.map(|j| (j.name.clone(), j.schedule != CONTINUOUS));
        let stands_by = match (able, failover) {
            (false, _) => StandsBy::default(),
            (true, false) => StandsBy::told(told, own),
            (true, true) => match presence.role {
                Role::Standby => StandsBy::from_iter([WHOLE_REPLICA.to_owned()]),
                _ => StandsBy::default(),
            },
        };
        Self {
            id: presence.id.clone(),
            priority: presence.priority,
            is_active: failover && of_mode && presence.role == Role::Leader,
            leads: leads.collect(),
            stands_by,
        }
    }

    /// Whether what it leads, and who it is, are the same. Who would take over may change all the time.
    pub(super) fn has_share_of(&self, other: &Self) -> bool {
        let share = |peer: &Self| (peer.priority, peer.is_active);
        share(self) == share(other) && self.id == other.id && self.leads == other.leads
    }

    /// What it leads; what all of a failover fleet stand by for among it.
    pub(super) fn all_led(&self) -> impl Iterator<Item = &str> {
        let whole = self.is_active.then_some(WHOLE_REPLICA);
        self.leads.keys().map(String::as_str).chain(whole)
    }
}

// === impl StandsBy ===

impl StandsBy {
    fn told(told: &Telling, own: &Own) -> Self {
        let jobs = &told.presence.jobs;
        let stands_by = |job: &&JobPresence| job.standing == JobStanding::Standby;
        let all = &own.locked;
        let but = if told.others_rest {
            let not = jobs.iter().filter(|job| !stands_by(job));
            let names = not.map(|job| &job.name);
            names.filter(|name| all.contains(*name)).cloned().collect()
        } else {
            let names = jobs.iter().filter(stands_by).map(|job| &job.name);
            let names: BTreeSet<&String> = names.collect();
            if names.is_empty() {
                return Self::default();
            }
            all.iter()
                .filter(|job| !names.contains(job))
                .cloned()
                .collect()
        };
        let all = all.clone();
        Self { all, but }
    }

    pub(crate) fn contains(&self, what: &str) -> bool {
        self.all.contains(what) && !self.but.contains(what)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        let all = self.all.iter().filter(|what| !self.but.contains(*what));
        all.map(String::as_str)
    }

    /// What only one of the two holds, looking at no more than differs, where both leave out of the same.
    pub(super) fn differences<'a>(
        &'a self,
        other: &'a Self,
    ) -> Option<impl Iterator<Item = &'a str>> {
        let of_the_same = Arc::ptr_eq(&self.all, &other.all);
        let differ = || self.but.symmetric_difference(&other.but);
        of_the_same.then(|| differ().map(String::as_str))
    }

    #[cfg(test)]
    pub(super) fn all_but(all: &Arc<BTreeSet<String>>, but: &[&str]) -> Self {
        Self {
            all: all.clone(),
            but: but.iter().map(|what| (*what).to_owned()).collect(),
        }
    }

    /// Names that are kept for this alone.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.but.len()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len() - self.but.len()
    }
}

impl FromIterator<String> for StandsBy {
    fn from_iter<T: IntoIterator<Item = String>>(all: T) -> Self {
        Self {
            all: Arc::new(all.into_iter().collect()),
            but: BTreeSet::new(),
        }
    }
}

// === decisions ===

/// The longest wait before a bid, in a lease of this ttl.
#[cfg(test)]
pub(crate) fn longest_wait(ttl: Duration) -> Duration {
    for_priority(ttl) + ttl / 20
}

/// A larger priority goes first. With observed expiry two watchers may see the end of one lease so far apart.
fn for_priority(ttl: Duration) -> Duration {
    ttl / 10
}

/// Whether the candidate `other` of `job` comes before `me`, each with its priority.
pub(super) fn is_better(job: &str, other: (&str, i32), me: (&str, i32)) -> bool {
    rank(job, other.0, other.1) < rank(job, me.0, me.1)
}

/// For how long a candidate that so many better ones live beside leaves a job without a leader to them.
pub(super) fn patience(better: usize) -> Duration {
    match better / WATCHERS {
        0 => Duration::ZERO,
        times => PATIENCE * (times.ilog2() + 1),
    }
}

/// Smaller is better, and the same on every replica.
fn rank<'a>(job: &str, id: &'a str, priority: i32) -> (Reverse<i32>, u64, &'a str) {
    (Reverse(priority), liking(id, job), id)
}

/// The candidates that watch the job's lock beside `me`.
fn rivals<'a>(job: &str, me: &Peer, others: &'a [Peer]) -> Vec<&'a Peer> {
    let mut rivals: Vec<&Peer> = others
        .iter()
        .filter(|o| o.stands_by.contains(job))
        .collect();
    rivals.sort_by_cached_key(|o| rank(job, &o.id, o.priority));
    let mine = rank(job, &me.id, me.priority);
    let watches = |place: usize| match rivals.get(place) {
        Some(rival) => mine < rank(job, &rival.id, rival.priority),
        None => true,
    };
    let places = match watches(WATCHERS - 1) {
        true => WATCHERS - 1,
        false => WATCHERS,
    };
    rivals.truncate(places);
    rivals
}

/// The ids of those that stand by for the work of this instant and come before `me`, in their order. It is another one each
/// time, so that ticks spread over the replicas.
pub(crate) fn turn<'a>(job: &str, at: Timestamp, me: &str, others: &'a [Peer]) -> Vec<&'a str> {
    let salt = i128::from(liking(job, "")) ^ at.as_nanosecond();
    let mine = (mixed(me, salt), me);
    let stand_by = others.iter().filter(|o| o.stands_by.contains(job));
    let mut before: Vec<(u64, &str)> = stand_by
        .map(|o| (mixed(&o.id, salt), &*o.id))
        .filter(|place| *place < mine)
        .collect();
    before.sort_unstable();
    before.into_iter().map(|(_, id)| id).collect()
}

/// How long `me` waits before a bid for `job` that looks free: longer with more terms than others that watch it.
pub(crate) fn bid_after(
    job: &str,
    (me, mine): (&Peer, usize),
    others: &[Peer],
    ttl: Duration,
) -> Duration {
    let rivals = rivals(job, me, others);
    let rivals = || rivals.iter().copied();
    let first = match rivals().any(|rival| rival.priority > me.priority) {
        true => for_priority(ttl),
        false => Duration::ZERO,
    };
    let equals = || rivals().filter(|rival| rival.priority == me.priority);
    let shares = equals().map(|rival| rival.leads.len());
    let (Some(least), Some(most)) = (shares.clone().min(), shares.max()) else {
        return first;
    };
    // One of several that are as good bids first; jobs that become free together go to different ones.
    let turn = ttl / 100;
    let (least, most) = (least.min(mine), most.max(mine));
    if mine > least {
        let part = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let more =
            (ttl / 20 - turn) * part(mine - least).min(1 << 10) / part(most - least).min(1 << 10);
        return first + turn + more.min(ttl / 20 - turn);
    }
    let sooner =
        |rival: &Peer| rival.leads.len() == least && liking(&rival.id, job) < liking(&me.id, job);
    match equals().any(sooner) {
        true => first + turn,
        false => first,
    }
}

/// Which of its terms `me` is to hand over now, if any: to a larger priority first, else to a much smaller share.
pub(crate) fn hand_over(me: &Peer, terms: &[Held], others: &[Peer]) -> Option<HandOver> {
    let mut free: Vec<&Held> = terms
        .iter()
        .filter(|term| term.idle && term.age >= term.min_term)
        .collect();
    // The one with the longest time to its next tick is missed least.
    free.sort_by_key(|term| (Reverse(term.until_tick.unwrap_or(Duration::MAX)), &term.job));
    let better = free.iter().find_map(|term| {
        let rivals = others.iter().filter(|o| o.stands_by.contains(&term.job));
        let above = rivals.filter(|rival| rival.priority > me.priority);
        let to = above.min_by_key(|o| (Reverse(o.priority), place(&term.job, o)))?;
        Some((term, to, Why::Priority))
    });
    let found = better.or_else(|| {
        free.iter().find_map(|term| {
            let rivals = others.iter().filter(|o| o.stands_by.contains(&term.job));
            let equals = rivals.filter(|rival| rival.priority == me.priority);
            let to = equals.min_by_key(|o| place(&term.job, o))?;
            // Others may decide the same at this moment: as if they had moved already.
            let enough = to.leads.len() + TOO_MANY + givers_before(me, to, others);
            (me.leads.len() >= enough).then_some((term, to, Why::Share))
        })
    });
    found.map(|(term, to, why)| HandOver {
        job: term.job.clone(),
        to: to.id.clone(),
        why,
    })
}

/// How many of `others` give something to `to` before `me` does.
fn givers_before(me: &Peer, to: &Peer, others: &[Peer]) -> usize {
    let order = |peer: &Peer| (Reverse(peer.leads.len()), peer.id.clone());
    let gives = |peer: &&Peer| {
        let movable = |(job, movable): (&String, &bool)| *movable && to.stands_by.contains(job);
        peer.priority == to.priority
            && peer.leads.len() >= to.leads.len() + TOO_MANY
            && peer.leads.iter().any(movable)
    };
    let before = others.iter().filter(gives);
    before.filter(|peer| order(peer) < order(me)).count()
}

/// Smaller goes first: the fewest terms, then by chance that is the same on every replica.
fn place<'a>(job: &str, peer: &'a Peer) -> (usize, u64, &'a str) {
    (peer.leads.len(), liking(&peer.id, job), &peer.id)
}

#[cfg(test)]
mod tests;
