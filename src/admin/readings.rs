//! What is read of the store for pages and lists, shared by all who look at the same.
//!
//! A page asks again and again, in each browser that shows it, and what it asks for passes through the thread that renews leases. So
//! locks, orders and the runs of one job are read as `shared_reading` has it: seldom, and once for all.
//!
//! # Invariants
//! - W1 However many look at the fleet, it is read for one of them. Those who follow are shown what was found a moment ago; a page of few
//!   jobs what is found after it was asked for, so that no leader is named whose successor has run.
//!   (one_reading_of_the_fleet_serves_all_who_follow, a_page_of_few_jobs_shows_the_present)
//! - W13 Of many jobs all are looked at in the background, seldom, and no page waits for it: those that a page shows are looked at for it,
//!   once for all who are shown the same.   (a_page_of_many_jobs_waits_for_its_rows_alone, many_who_follow_cost_what_one_costs)
//! - W9 So many jobs are read at a time or wait to be, and no more.
//!   (clients_that_ask_for_ever_other_jobs_and_go_queue_no_more_than_so_many_readings)

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use tokio::sync::Semaphore;

use super::{
    backlogs::{Backlogs, Growth},
    page::{
        address::Address,
        all::{Choose, Chosen, Looked, Totals},
        fleet::totals,
    },
    rights::Seen,
    round_trips::{RoundTrips, Spreads},
    shared_reading::{Reader, SharedReading},
    source::{AdminSource, OrderError, RecentAsked},
    withhold::withhold,
};
use crate::{
    clock::Moment,
    fleet::{
        JobFacts,
        audit::{AuditEntry, InForce},
        client::recent::RecentRuns,
        items::{ItemPage, ItemsAsked},
        status::{FleetStatus, LockStatus},
    },
};

/// A fleet with more jobs, shards counted, is large: all of them are not looked at for each page.
const FEW: usize = 100;

/// For so long what was looked at serves those who follow: less than there is between two of their looks.
const SERVES: Duration = Duration::from_millis(400);

/// For so many times as long as it took a look serves: at some jobs, or at few, of which people want to know at once that another
/// replica leads; and at all of many.
const TIMES: u32 = 4;
const TIMES_OF_MANY: u32 = 29;

/// For so long a page waits for all jobs where nothing is known of them yet.
const WORTH: Duration = Duration::from_millis(50);

/// Choices of jobs that are remembered for one look at all of them.
const CHOICES: usize = 64;

/// For so long the failure to list items serves, which may have taken long: the database may be there again.
const FAILED: Duration = Duration::from_secs(3);

/// Things of one kind that are read at one time, or wait for it.
const MOST: usize = 256;
/// What a client is told that asks for one more.
const TOO_MANY: &str = "as many jobs are being looked at as may be: do it again";

/// Every lock; why they cannot be listed.
pub(super) type Locks = Result<Vec<LockStatus>, String>;

/// What was asked for and still stands, and the orders that are remembered; why they cannot be read.
pub(super) type Orders = Result<(Vec<InForce>, Vec<AuditEntry>), String>;

/// What there is to know of a job, where one is known; why it cannot be read.
pub(super) type Facts = Result<Option<JobFacts>, String>;

/// The last runs of all jobs; why they cannot be read.
pub(super) type Recent = Result<RecentRuns, String>;

/// Items of a job; why they cannot be listed.
pub(super) type Items = Result<ItemPage, OrderError>;

/// What was read last, of each kind.
pub(super) struct Readings {
    reader: Reader,
    /// Waits for no turn at the store: the source has turns of its own at the databases of jobs.
    of_items: Reader,
    source: Arc<dyn AdminSource>,
    fleet: SharedReading<Fleet>,
    /// How many jobs were found last, shards counted.
    jobs: Arc<AtomicUsize>,
    /// What this replica knows by itself.
    own: SharedReading<Fleet>,
    /// By the names of the jobs.
    some: Mutex<BTreeMap<BTreeSet<String>, SharedReading<Fleet>>>,
    noted: Arc<Mutex<Noted>>,
    locks: SharedReading<Locks>,
    orders: SharedReading<Orders>,
    /// By job.
    facts: Mutex<BTreeMap<String, SharedReading<Facts>>>,
    /// By what was asked.
    recent: Mutex<BTreeMap<RecentAsked, SharedReading<Recent>>>,
    /// By job, and what was asked of it.
    items: Mutex<BTreeMap<(String, ItemsAsked), SharedReading<FoundItems>>>,
}

/// What was found of items, and when.
struct FoundItems {
    items: Arc<Items>,
    at: Moment,
}

/// What was noted of backlogs and of answers of nodes, and what the last reading has made of it.
#[derive(Default)]
struct Noted {
    backlogs: Backlogs,
    growth: Arc<Growth>,
    round_trips: RoundTrips,
    spreads: Arc<Spreads>,
}

/// The fleet, or a part of it, as it was looked at once.
pub(super) struct Fleet {
    full: Arc<FleetStatus>,
    /// How many jobs there are, shards counted.
    jobs: usize,
    looked: Looked,
    /// Without what only the token shows, once that was asked for.
    shown: OnceLock<Arc<FleetStatus>>,
    /// What its jobs come to, once that was asked for.
    totals: OnceLock<Totals>,
    /// The jobs that pages show of it, by their addresses.
    chosen: Mutex<BTreeMap<String, Arc<Chosen>>>,
}

// === impl Readings ===

impl Readings {
    pub(super) fn new(reader: Reader, source: Arc<dyn AdminSource>) -> Self {
        let turns = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        Self {
            of_items: Reader {
                turns,
                ..reader.clone()
            },
            reader,
            source,
            fleet: SharedReading::serving(SERVES, Fleet::times),
            jobs: Arc::default(),
            own: SharedReading::default(),
            some: Mutex::default(),
            noted: Arc::default(),
            locks: SharedReading::default(),
            orders: SharedReading::default(),
            facts: Mutex::default(),
            recent: Mutex::default(),
            items: Mutex::default(),
        }
    }

    /// The fleet for one who follows it: the same one again while it is not read anew.
    pub(super) async fn fleet(&self) -> Arc<Fleet> {
        self.fleet_if(|_| true).await
    }

    /// The fleet for one who looks.
    pub(super) async fn fleet_now(&self) -> Arc<Fleet> {
        self.fleet_if(Fleet::is_large).await
    }

    async fn fleet_if(&self, serves: impl Fn(&Fleet) -> bool) -> Arc<Fleet> {
        let read = || {
            let (source, noted) = (self.source.clone(), self.noted.clone());
            let (clock, jobs) = (self.reader.clock.clone(), self.jobs.clone());
            async move {
                let at = source.wall();
                let fleet = source.fleet().await;
                let now = clock.now();
                note(&noted, |noted| {
                    noted.growth = Arc::new(noted.backlogs.note(&fleet, now));
                    noted.spreads = Arc::new(noted.round_trips.note(&fleet, now));
                });
                let mut fleet = Fleet::of(fleet, Looked::Now);
                if fleet.is_large() {
                    fleet.looked = Looked::At(at);
                }
                jobs.store(fleet.jobs, Ordering::Relaxed);
                fleet
            }
            .boxed()
        };
        let jobs = self.jobs.load(Ordering::Relaxed);
        if jobs.max(self.source.jobs()) <= FEW {
            let fleet = self.fleet.get(&self.reader, |fleet, _| serves(fleet), read);
            return fleet.await;
        }
        if let Some(fleet) = self.fleet.at_hand(&self.reader, read) {
            return fleet;
        }
        // It is being read, and what is quickly read is worth the wait.
        let all = self.fleet.get(&self.reader, |_, _| true, read);
        match self.reader.clock.timeout(WORTH, all).await {
            Ok(fleet) => fleet,
            Err(_) => self.own().await,
        }
    }

    /// What this replica knows by itself.
    async fn own(&self) -> Arc<Fleet> {
        let read = || {
            let source = self.source.clone();
            async move { Fleet::of(source.known(), Looked::NotYet) }.boxed()
        };
        // It asks nothing of the store, and waits for no turn there.
        self.own.get(&self.of_items, |_, _| true, read).await
    }

    /// The replicas and nodes of a moment ago, and these jobs, by their names or those of their shards; `None` where that cannot be
    /// told.
    pub(super) async fn some(&self, names: &BTreeSet<String>) -> Option<Arc<Fleet>> {
        let read = || {
            let (source, names) = (self.source.clone(), names.clone());
            let (noted, clock) = (self.noted.clone(), self.reader.clock.clone());
            async move {
                let some = source.some(&names).await;
                note(&noted, |noted| {
                    noted.spreads = Arc::new(noted.round_trips.note(&some, clock.now()));
                });
                Fleet::of(some, Looked::Now)
            }
            .boxed()
        };
        let such = one_of(&self.some, names.clone(), || {
            SharedReading::serving(SERVES, |_| TIMES)
        })?;
        let some = such.get(&self.reader, |_, _| true, read).await;
        Some(some).filter(|some| !some.full.replicas.is_empty())
    }

    /// What was found of some jobs is news: all of them are looked at sooner.
    pub(super) fn has_news(&self) {
        self.fleet.has_news();
    }

    /// How fast backlogs grow, as far as readings tell.
    pub(super) fn growth(&self) -> Arc<Growth> {
        note(&self.noted, |noted| noted.growth.clone())
    }

    /// How the nodes have answered, as far as readings tell.
    pub(super) fn spreads(&self) -> Arc<Spreads> {
        note(&self.noted, |noted| noted.spreads.clone())
    }

    /// Every lock.
    pub(super) async fn locks(&self) -> Arc<Locks> {
        let read = || {
            let source = self.source.clone();
            async move { source.locks().await }.boxed()
        };
        self.locks.get(&self.reader, is_good_or_new, read).await
    }

    /// What people have asked for.
    pub(super) async fn orders(&self) -> Arc<Orders> {
        let read = || orders_of(self.source.clone()).boxed();
        self.orders.get(&self.reader, is_good_or_new, read).await
    }

    /// What there is to know of this job.
    pub(super) async fn facts(&self, job: &str) -> Arc<Facts> {
        let read = || {
            let (source, job) = (self.source.clone(), job.to_owned());
            async move { source.facts(&job).await }.boxed()
        };
        let Some(of_job) = one_of(&self.facts, job.to_owned(), SharedReading::default) else {
            return Arc::new(Err(TOO_MANY.to_owned()));
        };
        of_job.get(&self.reader, is_good_or_new, read).await
    }

    /// The last runs of all jobs.
    pub(super) async fn recent(&self, asked: RecentAsked) -> Arc<Recent> {
        let read = || {
            let (source, asked) = (self.source.clone(), asked.clone());
            async move { source.recent(asked).await }.boxed()
        };
        let Some(such) = one_of(&self.recent, asked.clone(), SharedReading::default) else {
            return Arc::new(Err(TOO_MANY.to_owned()));
        };
        such.get(&self.reader, is_good_or_new, read).await
    }

    /// Items of this job that do not go by themselves.
    pub(super) async fn items(&self, job: &str, asked: ItemsAsked) -> Arc<Items> {
        let read = || {
            let (source, job, asked) = (self.source.clone(), job.to_owned(), asked.clone());
            let clock = self.reader.clock.clone();
            async move {
                let items = Arc::new(source.items(&job, asked).await);
                let at = clock.now();
                FoundItems { items, at }
            }
            .boxed()
        };
        let clock = &self.reader.clock;
        let serves = |found: &FoundItems, _| found.items.is_ok() || clock.now() < found.at + FAILED;
        let this = (job.to_owned(), asked.clone());
        let Some(of_job) = one_of(&self.items, this, SharedReading::default) else {
            return Arc::new(Err(OrderError::NoItems(TOO_MANY.to_owned())));
        };
        let found = of_job.get(&self.of_items, serves, read).await;
        found.items.clone()
    }
}

/// Each change is complete.
fn note<T>(noted: &Mutex<Noted>, note: impl FnOnce(&mut Noted) -> T) -> T {
    note(&mut noted.lock().unwrap_or_else(PoisonError::into_inner))
}

/// A failure is not shown for longer than what was found: the store may be there again.
fn is_good_or_new<T, E>(found: &Result<T, E>, is_old: bool) -> bool {
    found.is_ok() || !is_old
}

/// The reading of one thing, unless too many others are under way: a client that asks for ever other ones and goes away must not keep
/// the store busy.
fn one_of<K: Ord, T: Send + Sync + 'static>(
    all: &Mutex<BTreeMap<K, SharedReading<T>>>,
    of: K,
    new: fn() -> SharedReading<T>,
) -> Option<SharedReading<T>> {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|_, reading| reading.is_used());
    let under_way = |all: &BTreeMap<K, SharedReading<T>>| {
        all.values()
            .filter(|reading| reading.is_under_way())
            .count()
    };
    let has_room = all.len() < MOST || all.contains_key(&of) || under_way(&all) < MOST;
    has_room.then(|| all.entry(of).or_insert_with(new).clone())
}

async fn orders_of(source: Arc<dyn AdminSource>) -> Orders {
    Ok((source.in_force().await?, source.audit().await?))
}

// === impl Fleet ===

impl Fleet {
    fn of(full: FleetStatus, looked: Looked) -> Self {
        let rows = full.jobs.iter().map(|job| job.by_shard.len().max(1));
        Self {
            jobs: rows.sum(),
            full: Arc::new(full),
            looked,
            shown: OnceLock::new(),
            totals: OnceLock::new(),
            chosen: Mutex::default(),
        }
    }

    fn times(&self) -> u32 {
        match self.is_large() {
            true => TIMES_OF_MANY,
            false => TIMES,
        }
    }

    /// Whether it has so many jobs that those which a page shows are looked at by themselves.
    pub(super) fn is_large(&self) -> bool {
        self.jobs > FEW || self.looked == Looked::NotYet
    }

    /// All that is known of it.
    pub(super) fn full(&self) -> &FleetStatus {
        &self.full
    }

    pub(super) fn looked(&self) -> Looked {
        self.looked
    }

    /// What its jobs come to.
    pub(super) fn totals(&self) -> &Totals {
        self.totals.get_or_init(|| totals(&self.full.jobs))
    }

    /// The jobs of it that a page shows.
    pub(super) fn chosen(&self, choose: Choose, address: &Address) -> Arc<Chosen> {
        let choice = address.choice();
        if let Some(known) = self.choices().get(&choice) {
            return known.clone();
        }
        let found = Arc::new(Chosen::of(&self.full.jobs, choose, address));
        let mut choices = self.choices();
        if choices.len() >= CHOICES {
            choices.clear();
        }
        choices.insert(choice, found.clone());
        found
    }

    fn choices(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Chosen>>> {
        // Each change is complete.
        self.chosen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As far as this client may see it.
    pub(super) fn seen_by(&self, seen: Seen) -> Arc<FleetStatus> {
        if seen.token {
            return self.full.clone();
        }
        let shown = self.shown.get_or_init(|| {
            let mut fleet = FleetStatus::clone(&self.full);
            withhold(&mut fleet);
            Arc::new(fleet)
        });
        shown.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::{
        admin::tests::Fake,
        fleet::{
            items::ItemState,
            status::{JobStatus, ReplicaStatus},
        },
        sim_clock::SimTime,
        spawn::Spawn,
    };

    const ALL: Seen = Seen { token: true };
    const LITTLE: Seen = Seen { token: false };

    /// A fleet of so many jobs that is looked at.
    fn looking(jobs: usize) -> (Arc<Fake>, Readings, Reader) {
        let unfit = ReplicaStatus {
            unfit: Some("disk: hunter2".to_owned()),
            ..ReplicaStatus::default()
        };
        let source = Arc::new(Fake::of(FleetStatus {
            replicas: vec![unfit],
            jobs: vec![JobStatus::default(); jobs],
            ..FleetStatus::default()
        }));
        let reader = Reader {
            clock: SimTime::new().clock(),
            spawn: Spawn::system(),
            turns: Arc::new(Semaphore::new(4)),
        };
        let readings = Readings::new(reader.clone(), source.clone());
        (source, readings, reader)
    }

    #[tokio::test(start_paused = true)]
    async fn one_reading_of_the_fleet_serves_all_who_follow() {
        let (source, readings, reader) = looking(1);
        let (first, second) = (readings.fleet().await, readings.fleet().await);
        let (full, shown) = (first.seen_by(ALL), second.seen_by(LITTLE));
        let why = |fleet: &FleetStatus| fleet.replicas[0].unfit.clone().unwrap();
        assert_eq!(why(&full), "disk: hunter2");
        assert!(!why(&shown).contains("hunter2"));
        // A stream that gets the same one again has nothing to compare.
        let third = readings.fleet().await;
        assert!(Arc::ptr_eq(&full, &third.seen_by(ALL)));
        assert!(Arc::ptr_eq(&shown, &third.seen_by(LITTLE)));
        assert_eq!(source.readings.load(Ordering::SeqCst), 1);
        // It is another one when they look next.
        reader.clock.sleep(Duration::from_millis(500)).await;
        assert!(!Arc::ptr_eq(&full, &readings.fleet().await.seen_by(ALL)));
        assert_eq!(source.readings.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_of_few_jobs_shows_the_present() {
        for (jobs, readings_of_three) in [(FEW, 3), (FEW + 1, 1)] {
            let (source, readings, reader) = looking(jobs);
            for _ in 0..3 {
                readings.fleet_now().await;
                reader.clock.sleep(Duration::from_millis(100)).await;
            }
            let read = source.readings.load(Ordering::SeqCst);
            assert_eq!(read, readings_of_three, "{jobs} jobs");
        }
    }

    /// Jobs with these names, led by a replica.
    fn jobs(names: impl Iterator<Item = usize>) -> FleetStatus {
        let job = |n| JobStatus {
            name: format!("job-{n:05}"),
            leader_known: true,
            ..JobStatus::default()
        };
        FleetStatus {
            replicas: vec![ReplicaStatus::default()],
            jobs: names.map(job).collect(),
            ..FleetStatus::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_of_many_jobs_waits_for_its_rows_alone() {
        let clock = SimTime::new().clock();
        let slow = (clock.clone(), Duration::from_secs(2));
        let source = Arc::new(Fake::slowly(jobs(0..10_000), jobs(0..9_000), slow));
        let reader = Reader {
            clock: clock.clone(),
            spawn: Spawn::system(),
            turns: Arc::new(Semaphore::new(4)),
        };
        let readings = Readings::new(reader, source.clone());
        // Nothing was read yet: a page shows what this replica knows by itself.
        let asked = clock.now();
        let own = readings.fleet_now().await;
        assert_eq!(clock.now().since(asked), WORTH);
        assert_eq!(
            (own.looked(), own.full().jobs.len()),
            (Looked::NotYet, 9_000)
        );
        let names: BTreeSet<String> = (0..50).map(|n| format!("job-{n:05}")).collect();
        let some = readings.some(&names).await.unwrap();
        assert_eq!(some.full().jobs.len(), 50);
        // All jobs are read meanwhile, once, however many ask.
        clock.sleep(Duration::from_secs(3)).await;
        let asked = clock.now();
        for _ in 0..100 {
            let all = readings.fleet_now().await;
            assert!(matches!(all.looked(), Looked::At(_)));
            assert_eq!(all.full().jobs.len(), 10_000);
        }
        assert_eq!(clock.now(), asked);
        clock.sleep(Duration::from_secs(50)).await;
        readings.fleet_now().await;
        assert_eq!(source.readings.load(Ordering::SeqCst), 1);
        // Old, and shown while it is read anew.
        clock.sleep(Duration::from_secs(10)).await;
        let asked = clock.now();
        readings.fleet_now().await;
        assert_eq!(clock.now(), asked);
        clock.sleep(Duration::from_secs(3)).await;
        assert_eq!(source.readings.load(Ordering::SeqCst), 2);
        assert_eq!(*source.looks.lock().unwrap(), [50]);
    }

    #[tokio::test(start_paused = true)]
    async fn many_who_follow_cost_what_one_costs() {
        let mut costs = Vec::new();
        for viewers in [1, 40] {
            let clock = SimTime::new().clock();
            let slow = (clock.clone(), Duration::from_secs(1));
            let source = Arc::new(Fake::slowly(jobs(0..1_000), jobs(0..1_000), slow));
            let reader = Reader {
                clock: clock.clone(),
                spawn: Spawn::system(),
                turns: Arc::new(Semaphore::new(4)),
            };
            let readings = Readings::new(reader, source.clone());
            let names: BTreeSet<String> = (0..50).map(|n| format!("job-{n:05}")).collect();
            for _ in 0..20 {
                let all = (0..viewers).map(async |_| {
                    readings.fleet().await;
                    readings.some(&names).await
                });
                let shown = futures_util::future::join_all(all).await;
                let first = shown[0].as_ref().unwrap();
                let is_first = |one: &Option<Arc<Fleet>>| Arc::ptr_eq(one.as_ref().unwrap(), first);
                assert!(shown.iter().all(is_first));
                clock.sleep(Duration::from_millis(500)).await;
            }
            let looks = source.looks.lock().unwrap().clone();
            costs.push((source.readings.load(Ordering::SeqCst), looks));
        }
        assert_eq!(costs[0], costs[1]);
        assert_eq!(costs[0], (1, vec![50; 20]));
    }

    #[tokio::test(start_paused = true)]
    async fn of_jobs_that_nobody_looks_at_nothing_is_kept() {
        let (_, readings, reader) = looking(1);
        // Each is over when the next one is asked for, so that no number of them is too many.
        for n in 0..MOST + 50 {
            let found = readings.facts(&format!("job-{n}")).await;
            assert_ne!(*found, Err(TOO_MANY.to_owned()));
        }
        reader.clock.sleep(Duration::from_secs(1)).await;
        readings.facts("report").await;
        assert_eq!(readings.facts.lock().unwrap().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_ask_for_ever_other_jobs_and_go_queue_no_more_than_so_many_readings() {
        let turns = Arc::new(Semaphore::new(0));
        let reader = Reader {
            clock: SimTime::new().clock(),
            spawn: Spawn::system(),
            turns: turns.clone(),
        };
        let fake = Fake::without_items(reader.clock.clone(), Duration::ZERO);
        let readings = Readings::new(reader.clone(), Arc::new(fake));
        for n in 0..MOST {
            let job = format!("job {n}");
            let asked = readings.facts(&job);
            let left = reader.clock.timeout(Duration::from_millis(1), asked).await;
            assert!(left.is_err(), "{n}");
        }
        let refused = Err(TOO_MANY.to_owned());
        assert_eq!(*readings.facts("another").await, refused);
        turns.add_permits(4);
        assert_ne!(*readings.facts("job 0").await, refused);
        reader.clock.sleep(Duration::from_secs(60)).await;
        assert_ne!(*readings.facts("another").await, refused);
    }

    /// However long it took: a database that is there again is seen soon.
    #[tokio::test(start_paused = true)]
    async fn a_failure_to_list_items_does_not_serve_for_long() {
        let reader = Reader {
            clock: SimTime::new().clock(),
            spawn: Spawn::system(),
            turns: Arc::new(Semaphore::new(4)),
        };
        let gone = Fake::without_items(reader.clock.clone(), Duration::from_millis(3_500));
        let source = Arc::new(gone);
        let readings = Readings::new(reader.clone(), source.clone());
        let asked = ItemsAsked {
            states: vec![ItemState::Dead],
            after: None,
            limit: 10,
        };
        for (pause, times) in [(0, 1), (2_000, 1), (1_500, 2)] {
            reader.clock.sleep(Duration::from_millis(pause)).await;
            let found = readings.items("mail", asked.clone()).await;
            assert!(found.is_err());
            assert_eq!(source.readings.load(Ordering::SeqCst), times);
        }
    }
}
