//! The keeper: one thread that owns every lease of the process, and does all lock traffic but that for which a caller waits.
//!
//! Busy jobs, a blocked runtime or a full connection pool cannot starve renewals: the keeper has an OS thread, a
//! single-threaded runtime and connections of its own. To acquire and to let go is done where the caller is (`front`). Each round extends all due leases in one call per node (250
//! leases at most, 500 over PostgreSQL), every third of a ttl.
//!
//! # States of a lease   held -> (cordoned) -> over, then released on all nodes
//! # Invariants          R8 here, R11 in `shared`, K1-K4 in `lease_table`, F1-F5 in `ladder`, V1-V3 in `verify`, Z1-Z2 in `freeze`, W1-W3 in `watchlist`
//! - R8 An extension counts when q nodes kept the lease before its *old* deadline; the new one counts from the round's
//!   first byte. A failed round changes nothing.              (an_extension_counts_from_its_first_byte)
//! - R12 What a process says before it is aborted takes half of the rest of its lease at most, whether it is read or not.
//!   (the_last_words_take_half_of_what_is_left_of_the_lease)
//! # When things fail
//! Unsure means not leading. Expiry is the safety net; releasing only makes it quicker. A keeper that panics with leases in
//! its care ends the process, because work could outlive them unseen.
//!
//! # Example
//! What the program says of its own health: while it is unfit it is no candidate, and gives up what it leads.
//! ```
//! # use std::sync::Arc;
//! # use watchkeeper_lock::{Locks, clock::Clock, node::memory::MemoryNode};
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let node = MemoryNode::new("one", Clock::system());
//! # let locks = Locks::over(vec![Arc::new(node)]).start()?;
//! let fitness = locks.fitness();
//! fitness.report("database", Err("no connection".to_owned()));
//! // … and when it answers again:
//! fitness.report("database", Ok(()));
//! # Ok(())
//! # }
//! ```

mod announce;
mod command;
mod fitness;
mod freeze;
mod front;
pub(crate) mod ladder;
pub(crate) mod lease_table;
mod looks;
mod read_batcher;
mod releases;
mod renew;
mod requests;
mod shared;
mod sweep;
#[cfg(test)]
mod tests;
mod verify;
mod watchlist;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use tokio::sync::mpsc;

pub use command::NodeReport;
pub(crate) use command::{Command, Which};
#[doc(hidden)] // for the worker
pub use command::{DocsRead, Lives};
pub use fitness::Fitness;
pub(crate) use front::Front;
pub(crate) use releases::ReleaseListeners;
#[doc(hidden)] // for the worker
pub use releases::Releases;
pub use watchlist::Watching;
pub(crate) use watchlist::Watchlist;

use crate::{
    admission::{self, Guard},
    chance::Chance,
    clock::{Clock, Moment},
    event::Events,
    latest,
    lease::{LeaseView, Note, Pulse},
    node::{Expiry, Node},
    quorum::{
        FleetClock, Subscriptions, Votes,
        cluster::{Cluster, Parts},
        link::Link,
        members::Members,
    },
    settings::Timing,
    spawn::Spawn,
};
use freeze::{lateness, look_every};
use lease_table::LeaseTable;
use shared::Shared;
use verify::Asked;

/// What to do when work outlives its lease.
pub(crate) type OnUnstoppable = Arc<dyn Fn(&LeaseView) + Send + Sync>;

/// Where the keeper lives.
pub(crate) enum Seat {
    /// On an OS thread of its own.
    Thread,
    /// As tasks of the caller.
    Here(Spawn),
}

/// A keeper before it starts.
pub(crate) struct Keeper {
    pub(crate) nodes: Vec<Arc<dyn Node>>,
    pub(crate) timing: Timing,
    pub(crate) expiry: Expiry,
    pub(crate) clock: Clock,
    pub(crate) chance: Chance,
    pub(crate) events: Events,
    /// Both ends of the way on which notes come.
    pub(crate) notes: (mpsc::UnboundedSender<Note>, mpsc::UnboundedReceiver<Note>),
    pub(crate) releases: ReleaseListeners,
    pub(crate) fitness: Fitness,
    pub(crate) watchlist: Arc<Watchlist>,
    pub(crate) wall: FleetClock,
    pub(crate) votes: Arc<Votes>,
    pub(crate) on_unstoppable: OnUnstoppable,
    pub(crate) guard: Option<Guard>,
    /// Whether it forgets what nothing needs any more on the nodes.
    pub(crate) sweeps: bool,
    /// How often its leases are looked at, where it is not as often as a freeze wants.
    pub(crate) look_every: Option<Duration>,
    /// What the owner values of this process end with.
    pub(crate) tag: Option<String>,
    #[cfg(any(test, feature = "testing"))]
    pub(crate) mutant: crate::quorum::mutant::Mutant,
}

/// The default for work that outlives its lease: log, then `std::process::abort`.
pub(crate) fn abort_process() -> OnUnstoppable {
    Arc::new(|lease| {
        tracing::error!(
            key = lease.key(),
            token = lease.token().0,
            "work outlives its lease and cannot be stopped: aborting the process, so that no two run"
        );
        abort(for_last_words(lease))
    })
}

/// What this process does before it is aborted, and how long that may take.
static LAST_WORDS: OnceLock<fn(Duration)> = OnceLock::new();

/// How long the last words of a process may take whose lease is over already: enough to write a line.
const A_LINE: Duration = Duration::from_millis(20);

/// Has `last` called before this process is aborted, so that a log which is written behind can be written out: the line
/// that says why must not die with the process. It is told how long it may take. The first caller's stays.
#[doc(hidden)] // for the worker
pub fn before_abort(last: fn(Duration)) {
    let _ = LAST_WORDS.set(last);
}

/// How long a process that ends because of this lease may take to say why: a log that is not read must not keep it beyond the end of
/// the lease.
#[doc(hidden)] // for the worker
#[must_use]
pub fn for_last_words(lease: &LeaseView) -> Duration {
    last_words_until(lease.deadline(), lease.clock().now())
}

/// Half of what is left. After that the lease is over, and the end is late already.
fn last_words_until(deadline: Moment, now: Moment) -> Duration {
    if now < deadline {
        deadline.since(now) / 2
    } else {
        A_LINE
    }
}

fn abort(words: Duration) -> ! {
    if let Some(last) = LAST_WORDS.get() {
        last(words);
    }
    std::process::abort()
}

/// The keeper has panicked. A holder would hear of the end of its lease from the clock alone, and work that does not
/// ask would outlive it unseen. So the process ends, unless there are no leases; then it only takes no locks any
/// more, and [`Fitness::keeper_silence`] grows.
fn died(table: &Mutex<LeaseTable>) {
    let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
    // In the same step: an attempt that is under way may win yet.
    table.orphan();
    let leases = table.at_stake().count();
    if let Some(lease) = table.at_stake().min_by_key(|lease| lease.deadline()) {
        tracing::error!(
            key = lease.key(),
            leases,
            "the lock keeper has panicked and its leases are no longer extended: aborting the process, so that no two run"
        );
        abort(for_last_words(lease))
    }
    tracing::error!("the lock keeper has panicked: this process takes no locks any more");
}

// === impl Keeper ===

impl Keeper {
    pub(crate) fn start(
        self,
        seat: Seat,
        inbox: mpsc::Receiver<Command>,
    ) -> std::io::Result<Arc<Front>> {
        match seat {
            Seat::Here(spawn) => {
                let (run, front) = self.share(&spawn, &spawn);
                spawn.spawn(run.run(inbox, front.clone()));
                Ok(front)
            }
            Seat::Thread => {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()?;
                let spawn = Spawn::onto(runtime.handle().clone());
                let (run, front) = self.share(&spawn, &Spawn::system());
                let here = front.clone();
                std::thread::Builder::new()
                    .name("watchkeeper-keeper".to_owned())
                    .spawn(move || {
                        let table = Arc::clone(&here.0.table);
                        runtime.spawn(run.fitness.clone().keeper_beats());
                        let run = run.run(inbox, here);
                        // Nothing of the keeper is used afterwards but the lease table, which is changed by short,
                        // complete steps.
                        let ended = catch_unwind(AssertUnwindSafe(|| runtime.block_on(run)));
                        if ended.is_err() {
                            died(&table);
                        }
                    })?;
                Ok(front)
            }
        }
    }

    /// What it shares with its tasks, and with callers, whose tasks are started by `of_callers`.
    fn share(mut self, spawn: &Spawn, of_callers: &Spawn) -> (Self, Arc<Front>) {
        let links: Vec<Link> = std::mem::take(&mut self.nodes)
            .into_iter()
            .enumerate()
            .map(|(number, node)| {
                let (clock, chance) = (self.clock.clone(), self.chance.clone());
                Link::new(
                    (number, node, self.wall.clone()),
                    self.timing.node_timeout,
                    clock,
                    chance,
                    self.events.clone(),
                    self.votes.clone(),
                )
            })
            .collect();
        if let Some(guard) = &self.guard {
            links.iter().for_each(|link| link.is_of(guard.fleet));
        }
        let nodes = links.len();
        let shared = Shared {
            cluster: Cluster::new(Parts {
                of_callers: Link::of_callers(&links, of_callers),
                links,
                timing: self.timing.clone(),
                clock: self.clock.clone(),
                chance: self.chance.clone(),
                spawn: spawn.clone(),
                events: self.events.clone(),
                floor: std::sync::atomic::AtomicU64::new(0),
                expiry: self.expiry,
                watch: Mutex::default(),
                members: latest::Sender::new(Arc::new(match &self.guard {
                    Some(guard) if guard.fleet.is_guarded() => Members::default(),
                    Some(guard) => {
                        Members::unguarded(&vec![None; nodes], &guard.fleet, false, false)
                    }
                    None => Members::all(),
                })),
                subscriptions: Subscriptions::of(nodes),
                tag: self.tag.take(),
                busy: Arc::default(),
                repeats: Arc::default(),
                #[cfg(any(test, feature = "testing"))]
                mutant: self.mutant.clone(),
            }),
            table: Arc::default(),
            bell: Arc::default(),
            notes: self.notes.0.clone(),
            pulse: Pulse::default(),
            reads: Arc::default(),
            watchlist: self.watchlist.clone(),
            votes: self.votes.clone(),
            guard: self.guard.clone(),
        };
        (self, Arc::new(Front(shared)))
    }

    async fn run(self, mut inbox: mpsc::Receiver<Command>, front: Arc<Front>) {
        let shared = &front.0;
        let mut background = Vec::new();
        let (spawn, mut noted) = (shared.cluster.spawn.clone(), self.notes.1);
        for link in &shared.cluster.links {
            background.push(spawn.spawn(link.clone().pump()));
            background.push(spawn.spawn(link.clone().probe()));
        }
        background.push(spawn.spawn(shared.clone().keep_watch()));
        for (number, link) in shared.cluster.links.iter().enumerate() {
            let (cluster, node) = (shared.cluster.clone(), link.node().clone());
            let (to, list) = (self.releases.clone(), shared.watchlist.clone());
            let forward = announce::forward(cluster, number, node, to, list);
            background.push(spawn.spawn(forward));
        }
        for node in (0..shared.cluster.links.len()).filter(|_| self.sweeps) {
            background.push(spawn.spawn(sweep::sweep(shared.clone(), node)));
        }
        if let Some(guard) = self.guard {
            let tending = admission::tend(shared.cluster.clone(), guard);
            background.push(spawn.spawn(tending));
        }
        let mut open = true;
        let look_every = self.look_every.unwrap_or_else(|| look_every(&self.timing));
        let mut asked = Asked::default();
        loop {
            let now = self.clock.now();
            let late = lateness(shared.table().looks_at(), now);
            let doubted = shared.table().doubt(late, now, &self.timing);
            if !doubted.is_empty() {
                tracing::warn!(
                    late_ms = late.as_millis(),
                    leases = doubted.len(),
                    "this process was frozen: its leases are verified before anything starts under them"
                );
                // Before the fitness is asked below: a heart that could not beat is not ill.
                self.fitness.thaw(now);
                spawn.spawn(verify::settle(shared.clone(), doubted, now));
            }
            // After the doubt: a holder that finds that we have looked finds the doubt as well.
            shared.pulse.beat(now);
            if !asked.is_empty() {
                spawn.spawn(verify::answer(shared.clone(), std::mem::take(&mut asked)));
            }
            let (unfit, most) = (self.fitness.unfit(), shared.cluster.most_extensions());
            let plan = {
                let mut table = shared.table();
                table.carries(most);
                table.plan(now, unfit.as_ref(), &self.timing)
            };
            for lease in &plan.abort {
                (self.on_unstoppable)(lease);
            }
            for lease in &plan.abandon {
                tracing::error!(
                    key = lease.key(),
                    token = lease.token().0,
                    "work does not end and is abandoned: another runner may start beside it"
                );
            }
            for (view, done) in plan.release {
                shared.release(view, done);
            }
            if !plan.renew.is_empty() {
                spawn.spawn(renew::round(shared.clone(), plan.renew));
            }
            if !open && shared.table().is_empty() {
                break;
            }
            let wake = shared.table().rest(now, look_every);
            tokio::select! {
                biased;
                Some(note) = noted.recv() => {
                    take(shared, note, &mut asked);
                    // What comes at once is looked at once.
                    while let Ok(note) = noted.try_recv() {
                        take(shared, note, &mut asked);
                    }
                }
                command = inbox.recv(), if open => match command {
                    Some(command) => drop(spawn.spawn(shared.clone().serve(command))),
                    None => open = false,
                },
                () = shared.bell.notified() => {}
                () = self.clock.sleep_until(wake.unwrap_or_default()), if wake.is_some() => {}
            }
        }
        // A waiter that was the last to need us may have left its queue in this very moment.
        while let Ok(note) = noted.try_recv() {
            take(shared, note, &mut asked);
        }
        shared.cluster.settled().await;
        shared.cluster.of_callers.iter().for_each(Link::close);
        background.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

fn take(shared: &Shared, note: Note, asked: &mut Asked) {
    match note {
        Note::Changed(id) => shared.table().touch(id),
        Note::Back(back) => shared.table().hand_back(&back.view, back.done),
        Note::Verify { view, reply } => asked.add(view, reply),
        Note::Leave { key, ticket } => shared.leave(key, ticket),
    }
}
