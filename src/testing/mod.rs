//! Tests of your own jobs: a whole fleet in one process under a virtual clock, and single runs without one.
//!
//! A feature of a dev-dependency, not of the program:
//! `watchkeeper = { version = "0.1", features = ["testing"] }` in `[dev-dependencies]`.
//!
//! # A fleet
//! [`Sim`] says what there is, [`Sim::run`] plays a story with the [`Fleet`]: whole replicas with elections, leases, ledgers
//! and drains, as processes have them, over lock nodes in memory that behave as masters of Redis do. What costs a real
//! fleet hours takes seconds, because time jumps to the next thing that happens.
//!
//! ```
//! use watchkeeper::{DurationExt, Job, JobError, Outcome, Run, Spec, testing::Sim};
//!
//! struct Report;
//!
//! #[async_trait::async_trait]
//! impl Job for Report {
//!     async fn run(&self, _: Run) -> Result<Outcome, JobError> { Ok(Outcome::Done) }
//! }
//!
//! let every_morning = Spec::cron("0 8 * * *").zone("Europe/Rome");
//! Sim::new()
//!     .starting("2026-03-27T07:59:00[Europe/Rome]")
//!     .job("report", |_replica| Report, every_morning)
//!     .run(|fleet| async move {
//!         fleet.kill(fleet.replica(1));
//!         fleet.advance(2.hours()).await;
//!         fleet.assert_runs("report", &["2026-03-27T08:00:00+01:00"]);
//!     });
//! ```
//!
//! - Time: [`Fleet::advance`], [`Fleet::advance_until`]. Only what is awaited lets time pass; faults act at once.
//! - Faults: [`kill`](Fleet::kill), [`freeze`](Fleet::freeze), [`stop`](Fleet::stop), [`start`](Fleet::start),
//!   [`partition`](Fleet::partition), [`clock_ahead`](Fleet::clock_ahead), [`lose_node`](Fleet::lose_node),
//!   [`restart_node_empty`](Fleet::restart_node_empty).
//! - What people do: [`trigger`](Fleet::trigger), [`pause`](Fleet::pause), [`resume`](Fleet::resume),
//!   [`resign`](Fleet::resign).
//! - What came of it: [`leader`](Fleet::leader), [`runs`](Fleet::runs), [`assert_runs`](Fleet::assert_runs),
//!   [`assert_once_per_tick`](Fleet::assert_once_per_tick), [`events`](Fleet::events). That no attempt is started twice and no
//!   more runs of a job are under way at once than it allows is checked at the end of every story.
//!
//! A failure shows what was expected, the runs of all jobs, what happened, and the seed. `WATCHKEEPER_SIM_SEED=17` plays
//! seed 17 in every simulation; a loop over [`Sim::seed`] plays many.
//!
//! A panic of a job fails its run (`panicked`), as in a fleet, and not the test: assert on [`Fleet::runs`].
//!
//! # One run
//! [`run`] calls a job once, with the parameters, the attempt and the checkpoint that the test gives, and shows what it left.
//! A panic of the job fails the test.
//!
//! # Time
//! The virtual clock is tokio's paused time: whenever every task waits, it jumps to the next timer. So jobs may use
//! `tokio::time` as they like, and [`Clock`](crate::clock::Clock) goes with it. What does not:
//! - `std::time` and `jiff::Timestamp::now()` tell the real time. Take [`Run::tick`](crate::Run::tick), or `tokio::time::Instant`.
//! - `std::thread::sleep`, or any call that blocks, stops the world for as long, in real time, and no virtual time passes.
//! - [`Run::blocking`](crate::Run::blocking) works; virtual time stands still while the work lasts. It goes on in its thread when its
//!   replica is killed or frozen, because a test has one process.
//! - Real sockets: while a job waits for an answer nothing else happens, so time jumps on, to its timeouts first. Give the
//!   job a fake of what it calls, or put the call into `Run::blocking`.
//! - A job without any `.await` that never ends hangs the test.
//!
//! # The same story again
//! Everything runs on one thread, and all chance comes from the seed. Not in our hands are `tokio::select!` without `biased`,
//! the order in hash maps, random numbers of the job's own, and blocking work.
//!
//! # Not as in a fleet
//! Replicas tell of themselves once a minute unless something changes, and look as often for what people ask, or when the test
//! asks: a day of real chatter would cost minutes. Nodes are admitted when the story begins. Tasks that a job starts by
//! itself (`tokio::spawn`) are neither frozen nor killed with its replica. A process that is aborted is not started again.
//! Configuration is not read: the spec is what the code says.
//!
//! # What it costs
//! A virtual day of three replicas over three nodes costs some seconds; long leases make it cheaper ([`Sim::ttl`]), and so does
//! optimized code: `[profile.dev.package.watchkeeper] opt-level = 1`, the same for `tokio`.

mod alone;
mod asks;
mod asserts;
pub(crate) mod cluster;
#[cfg(test)]
pub(crate) mod counts;
mod fleet;
#[cfg(test)]
pub(crate) mod members;
mod play;
pub(crate) mod process;
pub(crate) mod process_tasks;
mod recorder;
mod report;
mod sim;

use std::fmt;

pub use alone::{OneRun, Ran, batch, run};
pub use fleet::Fleet;
pub use recorder::{BatchRecord, Told};
pub use sim::Sim;

/// A replica of a simulated fleet: `r1` is the first. It keeps its name when its process is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Replica(u32);

impl Replica {
    /// Its number; the first is 1.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}", self.0)
    }
}
