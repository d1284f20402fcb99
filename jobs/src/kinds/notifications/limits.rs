//! How many rows go in a second, on all replicas together: of the whole job, for each receiver, for each value of a column.
//!
//! A row goes when each of its limits has a turn, and uses one of each. A limit is a [`Rate`] of the worker's locks, so that it
//! is never exceeded; see there how replicas share it.
//!
//! # Invariants
//! - T1 A row that waits for a limit holds up none that does not.   (`a_row_that_waits_for_its_limit_holds_up_no_other`,
//!   `a_tenant_at_its_limit_holds_up_no_other_however_many_rows_it_has`)
//! - T2 No turn of one limit is used up while another has none.      (`a_turn_is_used_only_when_all_limits_have_one`)
//! - T3 Rows cannot fill the memory, nor the lock nodes: beyond so many values at a time the others share one limit.
//!   (`values_beyond_the_most_share_a_limit`)
//! - T4 A row that is not sent, because it comes too late or was sent before, uses no turn.   (`rows_that_are_not_sent_use_no_turn`)
//!
//! # Not promised
//! Which values share a limit each replica decides by what it sends. One that has its own on one replica, and shares that of the
//! others on another, goes at up to twice its limit.

mod here;
mod places;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use sha2::{Digest, Sha256};
use tokio::sync::watch;
use watchkeeper::{
    Locks,
    clock::Moment,
    lock::{LockError, Rate},
    spawn::Spawn,
};

pub(crate) use self::places::Places;
use super::{
    params::{By, Limit},
    sink::Admission,
    source::Item,
};

/// The limits of one job.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    limits: Vec<Limit>,
    /// The job's name, and the locks under which its limits are shared; without them they are of this replica.
    shared: OnceLock<(String, Locks)>,
    // Limits stand in enums beside what is small.
    memory: Box<Memory>,
    /// Changes when there may be a turn that could not be foreseen.
    news: watch::Sender<()>,
}

/// What is remembered of values and of rows that wait.
#[derive(Debug, Default)]
struct Memory {
    kept: Mutex<BTreeMap<(usize, String), Kept>>,
    places: Places,
}

/// When a row has a turn, as far as is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Now.
    Now,
    /// Then, by a limit that other rows do not have; the row behind it so much later.
    Apart(Moment, Duration),
    /// Later, by a limit that all rows have.
    Common,
}

/// What a row must have a turn of: a value for each limit.
pub(crate) type Keys = Vec<String>;

#[derive(Debug)]
struct Kept {
    pace: Pace,
    used: Moment,
}

#[derive(Clone, Debug)]
enum Pace {
    Shared(Rate),
    Here(Arc<here::Rate>),
}

/// A limit of a value for which nothing has been asked for so long, or for so many of its turns, is forgotten.
const FORGOTTEN: (Duration, f64) = (Duration::from_secs(60), 3.0);
/// The value of those that are too many. No column's value is kept as it is, so that none is the same.
const OTHERS: &str = "others";

// === impl Limits ===

impl Limits {
    pub(crate) fn new(limits: Vec<Limit>) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// From now on they are shared with all replicas that have this job. The first call counts.
    pub(crate) fn share(&self, job: &str, locks: &Locks) {
        if !self.limits.is_empty() {
            self.shared.get_or_init(|| (job.to_owned(), locks.clone()));
        }
    }

    /// The value of this row for each limit.
    pub(crate) fn keys(&self, item: &Item, host: &str) -> Keys {
        let key = |limit: &Limit| match &limit.by {
            By::All => String::new(),
            By::Host => hashed(host),
            // A row that has no such value is of the same kind as others that have none.
            By::Columns(text, _) => hashed(&text.fill(&item.columns).unwrap_or_default()),
        };
        self.limits.iter().map(key).collect()
    }

    /// Whether a row may go as far as the limits say, and then what `go` says. A turn is used when that is yes.
    pub(crate) fn admit(
        &self,
        keys: &Keys,
        now: Moment,
        go: impl FnOnce() -> Admission,
    ) -> Admission {
        if self.limits.is_empty() {
            return go();
        }
        let mut kept = self.kept();
        let mut wake = None;
        let mut paces = Vec::with_capacity(keys.len());
        for (n, key) in keys.iter().enumerate() {
            let Some(pace) = self.pace(&mut kept, n, key, now) else {
                // Nothing may go under a limit that cannot be kept.
                return Admission::Full;
            };
            if let Err(at) = pace.ready(now) {
                wake = wake.max(Some(at));
            }
            paces.push(pace);
        }
        match wake {
            Some(Moment::NEVER) => return Admission::Full,
            Some(at) => return Admission::At(at),
            None => {}
        }
        let admission = go();
        if matches!(admission, Admission::Go(_)) {
            // A lease may have ended in this moment: what is not counted does not go.
            let mut used = paces.iter().map(|pace| pace.take(now));
            if !used.all(|used| used) {
                return Admission::Full;
            }
        }
        admission
    }

    /// When a row has a turn. Uses none.
    pub(crate) fn turn(&self, keys: &Keys, now: Moment) -> Turn {
        let mut kept = self.kept();
        let (mut apart, mut common) = (None, false);
        for (n, (key, limit)) in keys.iter().zip(&self.limits).enumerate() {
            let pace = self.pace(&mut kept, n, key, now);
            let Err(at) = pace.map_or(Err(Moment::NEVER), |pace| pace.ready(now)) else {
                continue;
            };
            if matches!(limit.by, By::All) {
                common = true;
                continue;
            }
            let step = Duration::try_from_secs_f64(1.0 / limit.per_second);
            let (latest, slowest) = apart.unwrap_or((at, Duration::ZERO));
            apart = Some((at.max(latest), slowest.max(step.unwrap_or(Duration::MAX))));
        }
        match apart {
            Some((at, step)) => Turn::Apart(at, step),
            None if common => Turn::Common,
            None => Turn::Now,
        }
    }

    /// Where rows wait that are put aside.
    pub(crate) fn places(&self) -> &Places {
        &self.memory.places
    }

    /// Changes when there may be a turn that could not be foreseen.
    pub(crate) fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    fn pace(
        &self,
        kept: &mut BTreeMap<(usize, String), Kept>,
        n: usize,
        key: &str,
        now: Moment,
    ) -> Option<Pace> {
        let limit = self.limits.get(n)?;
        let mut place = (n, key.to_owned());
        if !kept.contains_key(&place) {
            kept.retain(|(n, _), kept| {
                let limit = self.limits.get(*n);
                limit.is_some_and(|limit| now.since(kept.used) < forgotten(limit))
            });
            let of_limit = (n, String::new())..(n + 1, String::new());
            if kept.range(of_limit).count() >= limit.most {
                OTHERS.clone_into(&mut place.1);
            }
        }
        if let Some(known) = kept.get_mut(&place) {
            known.used = now;
            return Some(known.pace.clone());
        }
        let pace = match self.shared.get() {
            None => Pace::Here(Arc::new(here::Rate::new(limit.per_second))),
            Some((job, locks)) => match self.rate(limit, job, &place.1, locks) {
                Ok(rate) => Pace::Shared(rate),
                Err(error) => {
                    tracing::warn!(job, %error, "a limit cannot be kept: nothing goes");
                    return None;
                }
            },
        };
        let known = Kept {
            pace: pace.clone(),
            used: now,
        };
        kept.insert(place, known);
        Some(pace)
    }

    fn rate(&self, limit: &Limit, job: &str, key: &str, locks: &Locks) -> Result<Rate, LockError> {
        let name = match &limit.name {
            Some(name) => name.clone(),
            None => format!("job/{job}"),
        };
        // One name says one thing: a limit for each value of one column is none of another column.
        let name = match &limit.by {
            By::All => name,
            By::Host => format!("{name}/host/{key}"),
            By::Columns(_, word) => format!("{name}/{}/{key}", hashed(word)),
        };
        let news = Some(self.news.clone());
        locks.rate_on(&name, limit.per_second, &Spawn::system(), news)
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<(usize, String), Kept>> {
        self.memory
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Pace ===

impl Pace {
    fn ready(&self, now: Moment) -> Result<(), Moment> {
        match self {
            Self::Shared(rate) => rate.ready(),
            Self::Here(rate) => rate.ready(now),
        }
    }

    fn take(&self, now: Moment) -> bool {
        match self {
            Self::Shared(rate) => rate.try_take().is_ok(),
            Self::Here(rate) => {
                rate.take(now);
                true
            }
        }
    }
}

fn forgotten(limit: &Limit) -> Duration {
    let turns = Duration::try_from_secs_f64(FORGOTTEN.1 / limit.per_second);
    FORGOTTEN.0.max(turns.unwrap_or(Duration::MAX))
}

/// Values may be long, and the lock nodes need not know them.
pub(crate) fn hashed(value: &str) -> String {
    let digest = Sha256::digest(value.as_bytes());
    digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::notifications::{
        cell::ItemId,
        queue::{Next, Queue},
        text::{Form, Text},
    };

    fn at(ms: u64) -> Moment {
        Moment::from_boot(Duration::from_secs(100) + Duration::from_millis(ms))
    }

    fn limit(per_second: f64, by: By) -> Limit {
        Limit {
            name: None,
            per_second,
            by,
            most: 3,
        }
    }

    fn by_tenant() -> By {
        let text = Text::parse("${tenant}", Form::Plain).unwrap();
        By::Columns(text, "${tenant}".to_owned())
    }

    fn row(tenant: &str) -> Item {
        let columns = json!({ "tenant": tenant });
        let columns = columns.as_object().unwrap().clone();
        Item::for_tests(ItemId::Int(1), columns)
    }

    fn goes(limits: &Limits, item: &Item, host: &str, ms: u64) -> bool {
        let keys = limits.keys(item, host);
        let admission = limits.admit(&keys, at(ms), Admission::free);
        matches!(admission, Admission::Go(_))
    }

    #[test]
    fn without_limits_the_receiver_alone_decides() {
        let limits = Limits::default();
        assert!((0..100).all(|_| goes(&limits, &row("a"), "h", 0)));
        let full = limits.admit(&Keys::new(), at(0), || Admission::Full);
        assert!(matches!(full, Admission::Full));
    }

    #[test]
    fn each_value_has_a_limit_of_its_own() {
        let limits = Limits::new(vec![limit(1.0, by_tenant())]);
        assert!(goes(&limits, &row("a"), "", 0));
        assert!(!goes(&limits, &row("a"), "", 10));
        assert!(goes(&limits, &row("b"), "", 10));
        assert!(goes(&limits, &row("a"), "", 1010));
        let limits = Limits::new(vec![limit(1.0, By::Host)]);
        assert!(goes(&limits, &row("a"), "one", 0));
        assert!(!goes(&limits, &row("b"), "one", 0));
        assert!(goes(&limits, &row("a"), "two", 0));
    }

    #[test]
    fn a_turn_is_used_only_when_all_limits_have_one() {
        let limits = Limits::new(vec![limit(1.0, by_tenant()), limit(10.0, By::All)]);
        assert!(goes(&limits, &row("a"), "", 0));
        assert!((1..10).all(|n| !goes(&limits, &row("a"), "", n * 10)));
        // The tenant that had no turn has used none of the other limit, nor has a receiver that is full.
        let keys = limits.keys(&row("b"), "");
        let full = limits.admit(&keys, at(110), || Admission::Full);
        assert!(matches!(full, Admission::Full));
        assert!(goes(&limits, &row("b"), "", 110));
        assert!(!goes(&limits, &row("c"), "", 120), "ten a second for all");
    }

    #[test]
    fn a_row_that_waits_for_its_limit_holds_up_no_other() {
        let limits = Limits::new(vec![limit(1.0, by_tenant())]);
        let rows = ["a", "a", "a", "b", "c"].map(row);
        let mut queue = Queue::new(rows.iter().map(|row| (limits.keys(row, ""), None)));
        let mut begun = Vec::new();
        let wait = loop {
            let admit = |keys: &Keys| limits.admit(keys, at(0), Admission::free);
            match queue.next(|_| None, admit) {
                Next::Begin(i, _) => begun.push(i),
                Next::Settled(items) => panic!("{items:?}"),
                Next::Wait(until) => break until,
            }
        };
        begun.sort_unstable();
        assert_eq!((begun, wait), (vec![0, 3, 4], at(1000)));
    }

    #[test]
    fn a_turn_is_told_and_not_used() {
        let limits = Limits::new(vec![limit(2.0, by_tenant()), limit(4.0, By::All)]);
        let turn = |tenant: &str, ms| limits.turn(&limits.keys(&row(tenant), ""), at(ms));
        assert_eq!((turn("a", 0), turn("a", 0)), (Turn::Now, Turn::Now));
        assert!(goes(&limits, &row("a"), "", 0));
        let half = Duration::from_millis(500);
        assert_eq!(turn("a", 10), Turn::Apart(at(500), half));
        assert_eq!(turn("b", 10), Turn::Common);
        assert_eq!((turn("a", 500), turn("b", 250)), (Turn::Now, Turn::Now));
    }

    #[test]
    fn values_beyond_the_most_share_a_limit() {
        let limits = Limits::new(vec![limit(1.0, by_tenant())]);
        assert!(goes(&limits, &row("a"), "", 0));
        assert!(goes(&limits, &row("b"), "", 0));
        assert!(goes(&limits, &row("c"), "", 0));
        assert!(goes(&limits, &row("d"), "", 0), "the first of the others");
        assert!(!goes(&limits, &row("e"), "", 0), "with d");
        for n in 0..1000 {
            goes(&limits, &row(&format!("tenant {n}")), "", 1);
        }
        assert_eq!(limits.kept().len(), 4);
        // What nothing has gone for is forgotten.
        let later = 61_000;
        assert!(goes(&limits, &row("f"), "", later));
        assert_eq!(limits.kept().len(), 1);
    }
}
