//! The fleet of a simulation, and what can happen to it.
//!
//! # Invariants
//! - F1 Time passes only while the test awaits; every other verb acts at once, at the instant at which the fleet stands.

use std::{
    fmt,
    future::Future,
    panic::Location,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use super::{
    Replica, Sim,
    cluster::Cluster,
    process::{Plan, Process},
    process_tasks::ProcessTasks,
    recorder::Recorder,
};
use crate::{
    chance::Chance,
    clock::Clock,
    human::Span,
    lock::{AdmissionState, FleetConfig, LockSettings, Locks, settings::Backend},
    node::{
        Expiry, RestartGuard,
        memory::{Cut, MemoryNode},
    },
    scheduler::Intents,
    sim_clock::SimTime,
    spawn::Spawn,
    worker::{assemble::Setup, presence::Pace, store, supervisor::no_changes},
};

/// How often replicas tell of themselves and look for what people ask, when nothing happens: seldom, because a day of it
/// costs. When the test asks something they look at once.
const CHATTER: Duration = Duration::from_secs(60);

/// How often a condition is looked at when nothing happens.
const LOOK: Duration = Duration::from_millis(100);

/// A simulated fleet, in the hands of a test. Cheap to clone.
#[derive(Clone)]
pub struct Fleet(Arc<Inner>);

struct Inner {
    sim: Sim,
    cluster: Cluster,
    chance: Chance,
    /// The connections of the people who ask something of the fleet.
    operator: Locks,
    recorder: Recorder,
    seats: Mutex<Vec<Seat>>,
}

/// A machine, and the process on it.
struct Seat {
    replica: Replica,
    time: SimTime,
    starts: u32,
    /// Whether it is cut off from all lock nodes.
    cut: bool,
    /// How often it was frozen: a thaw that was promised for an earlier freeze does not end a later one.
    freezes: u64,
    process: Option<Process>,
}

// === impl Fleet ===

impl Fleet {
    pub(super) async fn begin(sim: Sim) -> Self {
        let settings = LockSettings {
            backend: Backend::Redis,
            ttl: sim.ttl,
            max_ttl: sim.ttl.max(LockSettings::default().max_ttl),
            ..LockSettings::default()
        };
        let graces = sim.jobs.iter().map(|job| job.spec.grace);
        let grace = graces.max().unwrap_or(Duration::from_secs(10));
        let timing = store::timing(&settings, grace);
        let guard = FleetConfig {
            layout: 2,
            nodes: sim.nodes,
            max_ttl: settings.max_ttl,
            expiry: Expiry::Observed,
            generation: 1,
            guard: RestartGuard::Call,
            raw_keys: false,
            drift_ppm: 10_000,
            failover: false,
        };
        // Empty nodes vote after they were watched for the longest lease: that has happened when the story begins.
        let before = settings.max_ttl + settings.max_ttl / 3 + Duration::from_secs(5);
        let before = SignedDuration::try_from(before).unwrap_or_default();
        let time = SimTime::at(sim.starting - before);
        let cluster = Cluster::over(time, sim.nodes, sim.seed, timing, guard.expiry).guarded(guard);
        cluster.latency(sim.latency);
        let chance = Chance::seeded(cluster.seed);
        let draw = || Chance::seeded(chance.below(u64::MAX));
        let (starting, clock) = (sim.starting, cluster.time.clock());
        let locks = |spawn| cluster.locks(cluster.connections(), clock.clone(), draw(), spawn);
        let usher = ProcessTasks::default();
        let ushers = started(locks(usher.spawn()).start());
        let until = async |instant: Timestamp| {
            let left = instant.duration_since(clock.wall());
            clock
                .sleep(Duration::try_from(left).unwrap_or_default())
                .await;
        };
        // To look takes a moment, too.
        until(starting - SignedDuration::from_secs(1)).await;
        let shown = ushers.admissions().await.unwrap_or_default();
        let admitted = |state: &AdmissionState| *state == AdmissionState::Admitted;
        if let Some(node) = shown.iter().find(|node| !admitted(&node.state)) {
            panic!(
                "{} does not vote when the story begins: {:?}",
                node.name, node.state
            );
        }
        usher.crash();
        until(starting).await;
        let operator = started(locks(Spawn::system()).bystander().start());
        let seats = (1..=sim.replicas).map(|number| Seat {
            replica: Replica(number),
            time: cluster.time.sibling(),
            starts: 0,
            cut: false,
            freezes: 0,
            process: None,
        });
        let fleet = Self(Arc::new(Inner {
            recorder: Recorder::new(clock),
            seats: Mutex::new(seats.collect()),
            sim,
            cluster,
            chance,
            operator,
        }));
        for replica in fleet.replicas() {
            fleet.start(replica);
        }
        fleet
    }

    // === Who is there ===

    /// All replicas, also those that are down.
    #[must_use]
    pub fn replicas(&self) -> Vec<Replica> {
        self.seats().iter().map(|seat| seat.replica).collect()
    }

    /// The replica with this number; the first is 1.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn replica(&self, number: u32) -> Replica {
        self.at(Replica(number), |seat| seat.replica)
    }

    /// Whether its process lives, frozen or not.
    #[must_use]
    pub fn is_up(&self, replica: Replica) -> bool {
        self.at(replica, |seat| seat.is_up())
    }

    /// The replica that leads the job: its process lives and holds the lease.
    #[must_use]
    pub fn leader(&self, job: &str) -> Option<Replica> {
        let seats = self.seats();
        let leads = |seat: &&Seat| match &seat.process {
            Some(process) if !process.tasks.is_crashed() => {
                let leases = process.ctx.local_status.leases();
                leases
                    .iter()
                    .any(|(of, lease)| of == job && lease.is_held())
            }
            _ => false,
        };
        seats.iter().find(leads).map(|seat| seat.replica)
    }

    // === Time ===

    /// The true civil time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.0.recorder.now()
    }

    /// The true clocks, for code that takes a [`Clock`].
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.0.cluster.time.clock()
    }

    /// Lets so much time pass, with all that happens in it.
    pub async fn advance(&self, time: Duration) {
        self.clock().sleep(time).await;
    }

    /// Lets time pass until `what` is so, looking whenever something was told and every 100 milliseconds.
    ///
    /// # Panics
    /// When it is not so after `limit`.
    #[track_caller]
    pub fn advance_until(
        &self,
        what: impl Fn(&Self) -> bool,
        limit: Duration,
    ) -> impl Future<Output = ()> {
        let place = Location::caller();
        async move {
            let mut news = self.0.recorder.news();
            let clock = self.clock();
            let until = clock.now() + limit;
            while !what(self) {
                let now = clock.now();
                assert!(
                    now < until,
                    "{place}: what was waited for has not come within {}",
                    Span(limit)
                );
                let look = (now + LOOK).min(until);
                tokio::select! {
                    biased;
                    _ = news.changed() => {}
                    () = clock.sleep_until(look) => {}
                }
            }
        }
    }

    // === Processes ===

    /// The process is gone at once, with everything it had in memory, as by `SIGKILL` or a cable that was pulled, without
    /// a word. Nothing happens to a process that is gone already.
    pub fn kill(&self, replica: Replica) {
        self.0.recorder.did(format!("kill({replica})"));
        self.at(replica, |seat| {
            if let Some(process) = &seat.process {
                process.tasks.crash();
            }
        });
        self.0.recorder.died(replica, "its process was killed");
    }

    /// The process stands still, as by `SIGSTOP` or a machine that is suspended, and goes on by itself after so long. Its
    /// clocks go on.
    pub fn freeze(&self, replica: Replica, time: Duration) {
        self.0
            .recorder
            .did(format!("freeze({replica}, {})", Span(time)));
        let freeze = self.at(replica, |seat| {
            seat.freezes += 1;
            if let Some(process) = &seat.process {
                process.tasks.freeze();
            }
            seat.freezes
        });
        self.0.recorder.froze(replica);
        let fleet = Arc::downgrade(&self.0);
        let clock = self.clock();
        Spawn::system().spawn(async move {
            clock.sleep(time).await;
            let Some(fleet) = fleet.upgrade().map(Self) else {
                return;
            };
            if fleet.at(replica, |seat| seat.freezes) == freeze {
                fleet.thaw(replica);
            }
        });
    }

    /// A frozen process goes on.
    pub fn thaw(&self, replica: Replica) {
        self.0.recorder.did(format!("thaw({replica})"));
        self.at(replica, |seat| {
            seat.freezes += 1;
            if let Some(process) = &seat.process {
                process.tasks.thaw();
            }
        });
    }

    /// The process is told to end, as by `SIGTERM`: it starts nothing new, lets its runs end within the drain timeout, and
    /// hands over. Returns at once: [`Fleet::is_up`] says when it has ended.
    pub fn stop(&self, replica: Replica) {
        self.0.recorder.did(format!("stop({replica})"));
        self.at(replica, |seat| {
            if let Some(process) = &seat.process {
                process.ctx.gate.drain().cancel();
            }
        });
    }

    /// A new process on a machine whose last one was killed or has ended; its jobs are made anew.
    ///
    /// # Panics
    /// When its process still lives.
    pub fn start(&self, replica: Replica) {
        let inner = &self.0;
        assert!(
            !self.is_up(replica),
            "{replica} is running: kill or stop it first"
        );
        inner.recorder.did(format!("start({replica})"));
        let jobs = inner.sim.jobs.iter().map(|job| {
            let most = job.most_at_once();
            job.ready(replica, |body| inner.recorder.watch(body, replica, most))
        });
        let (starts, time) = self.at(replica, |seat| {
            seat.starts += 1;
            (seat.starts, seat.time.clone())
        });
        let id = match starts {
            1 => replica.to_string(),
            again => format!("{replica}-{again}"),
        };
        let (recorder, heard) = (inner.recorder.clone(), inner.recorder.clone());
        let setup = Setup {
            failover: inner.sim.failover,
            intents: Intents::every(CHATTER),
            drain_timeout: inner.sim.drain_timeout,
            ..Setup::of(&id, &replica.to_string(), &time, jobs.collect())
        };
        let plan = Plan {
            setup,
            time,
            chance: Chance::seeded(inner.chance.below(u64::MAX)),
            changes: no_changes(),
            pace: Some(Pace {
                interval: CHATTER,
                lifetime: CHATTER * 3,
            }),
            look_every: Some(inner.sim.ttl / 20),
            told: Box::new(move |event| heard.told(replica, event)),
            aborted: Box::new(move || {
                let why = "its process was aborted: work would have outlived its lease";
                recorder.did(format!("(not the test) {replica}: {why}"));
                recorder.died(replica, why);
            }),
        };
        let process = started(Process::start(&inner.cluster, plan));
        let (ending, recorder) = (process.clone(), inner.recorder.clone());
        process.ctx.spawn.spawn(async move {
            ending.ended().await;
            recorder.did(format!("(not the test) {} has ended", ending.me.name));
            ending.tasks.crash();
        });
        self.at(replica, |seat| {
            process.cut(seat.cut);
            seat.process = Some(process);
        });
    }

    // === Machines and the network ===

    /// The machine reaches no lock node any more, and nothing of what was under way arrives. Also its next process.
    pub fn partition(&self, replica: Replica) {
        self.0.recorder.did(format!("partition({replica})"));
        self.at(replica, |seat| seat.cut(true));
    }

    /// Ends [`Fleet::partition`].
    pub fn heal(&self, replica: Replica) {
        self.0.recorder.did(format!("heal({replica})"));
        self.at(replica, |seat| seat.cut(false));
    }

    /// The wall clock of the machine is ahead of the true time by so much; zero sets it right.
    pub fn clock_ahead(&self, replica: Replica, by: Duration) {
        let text = Span(by);
        self.0
            .recorder
            .did(format!("clock_ahead({replica}, {text})"));
        self.set_clock(replica, i64::try_from(by.as_millis()).unwrap_or(i64::MAX));
    }

    /// The wall clock of the machine is behind the true time by so much.
    pub fn clock_behind(&self, replica: Replica, by: Duration) {
        let text = Span(by);
        self.0
            .recorder
            .did(format!("clock_behind({replica}, {text})"));
        let ms = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        self.set_clock(replica, -ms);
    }

    // === Lock nodes ===

    /// The lock node is gone: no process reaches it. The first is 1.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn lose_node(&self, number: usize) {
        self.0.recorder.did(format!("lose_node({number})"));
        self.node(number).faults().partition(Cut::Refuse);
    }

    /// The lock node is there again with everything it knew, after [`Fleet::lose_node`] or without. It has restarted,
    /// and may have lost something: it has no vote for the longest lease (30 seconds unless the ttl is longer).
    ///
    /// # Panics
    /// When there is no such node.
    pub fn restart_node(&self, number: usize) {
        self.0.recorder.did(format!("restart_node({number})"));
        let faults = self.node(number).faults();
        faults.heal();
        faults.restart_keeping_data();
    }

    /// The same, but it has lost its memory.
    ///
    /// # Panics
    /// When there is no such node.
    pub fn restart_node_empty(&self, number: usize) {
        self.0.recorder.did(format!("restart_node_empty({number})"));
        let faults = self.node(number).faults();
        faults.heal();
        faults.crash();
    }

    // === helpers ===

    /// All replicas look for what people ask, and tell of themselves.
    pub(super) fn look(&self) {
        for seat in self.seats().iter().filter(|seat| seat.is_up()) {
            if let Some(process) = &seat.process {
                process.ctx.intents.look();
                process.ctx.local_status.told();
            }
        }
    }

    pub(super) fn recorder(&self) -> &Recorder {
        &self.0.recorder
    }

    pub(crate) fn operator(&self) -> &Locks {
        &self.0.operator
    }

    /// The jobs, each with the zone of its schedule.
    pub(super) fn zones(&self) -> Vec<(String, TimeZone)> {
        let jobs = self.0.sim.jobs.iter();
        jobs.map(|job| {
            let zone = TimeZone::get(&job.spec.zone).unwrap_or(TimeZone::UTC);
            (job.name.clone(), zone)
        })
        .collect()
    }

    fn seats(&self) -> MutexGuard<'_, Vec<Seat>> {
        self.0.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn at<T>(&self, replica: Replica, f: impl FnOnce(&mut Seat) -> T) -> T {
        let mut seats = self.seats();
        let all = seats.len();
        let place = usize::try_from(replica.0).unwrap_or(0).wrapping_sub(1);
        match seats.get_mut(place) {
            Some(seat) => f(seat),
            None => panic!("there is no {replica}: the fleet has {all} replicas, from 1"),
        }
    }

    fn node(&self, number: usize) -> &MemoryNode {
        let nodes = &self.0.cluster.nodes;
        match nodes.get(number.wrapping_sub(1)) {
            Some(node) => node,
            None => panic!(
                "there is no node n{number}: the fleet has {}, from 1",
                nodes.len()
            ),
        }
    }

    fn set_clock(&self, replica: Replica, ms: i64) {
        self.at(replica, |seat| seat.time.set_wall_offset(ms));
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet")
            .field("now", &self.now())
            .field("sim", &self.0.sim)
            .finish_non_exhaustive()
    }
}

impl Seat {
    fn is_up(&self) -> bool {
        let process = self.process.as_ref();
        process.is_some_and(|process| !process.tasks.is_crashed())
    }

    fn cut(&mut self, cut: bool) {
        self.cut = cut;
        if let Some(process) = &self.process {
            process.cut(cut);
        }
    }
}

fn started<T>(start: std::io::Result<T>) -> T {
    match start {
        Ok(started) => started,
        Err(error) => panic!("the keeper cannot be started: {error}"),
    }
}
