//! Watchkeeper runs background jobs on several replicas of a program: each job on one of them at a time, or spread over
//! all of them in batches. Replicas agree through locks on independent Redis masters (Redlock), on a single one, or on
//! an SQLite file; every lock comes with a lease that ends by itself and a fencing token that only grows. A replica that
//! dies is replaced within about one ttl, one that is told to stop hands over at once.
//!
//! **Work that cannot be stopped ends the process.** A run that goes on when its lease is about to end is told to stop,
//! then dropped at its next `.await`. Code that blocks a thread can be neither told nor dropped: the process logs it and
//! calls [`std::process::abort`] shortly before the lease ends, because another replica is about to begin the same work.
//! [`lock::LocksBuilder::on_unstoppable`] changes that for those who use the locks alone.
//!
//! # Promised
//! - At any instant at most one replica believes that it holds a lock, as long as clocks run at nearly the same rate. Wall
//!   clocks of Redis servers may jump (but see [`node::Expiry`] and short claims of batches). A Redis server that lost its
//!   memory is noticed, and has no vote before every lease that it may have forgotten is over.
//! - A holder stops believing at its own deadline, whatever the network says; its work hears of it earlier.
//! - Every acquisition has a fencing token larger than all earlier ones of that lock.
//! - A tick is started at most once per attempt in the whole fleet; runs that died and ticks that were missed are found
//!   and treated by the rule that the job states.
//! - A replica that is not fit (its runtime stalls, a health check fails) stops starting work, ends what runs, and gives
//!   its leases up, though its process lives.
//!
//! # Not promised
//! - That code which does not check a token cannot act after a freeze longer than its lease.
//! - Effects exactly once, on a receiver that ignores tokens and idempotency keys.
//! - What a majority of lock nodes has forgotten: tokens go on from a clock then, and which ticks have fired only replicas
//!   that still live remember.
//!
//! # Example
//! ```no_run
//! use watchkeeper::{Job, JobError, Outcome, Run, Spec, Worker};
//!
//! struct Report;
//!
//! #[async_trait::async_trait]
//! impl Job for Report {
//!     async fn run(&self, run: Run) -> Result<Outcome, JobError> {
//!         for page in 1..=12 {
//!             run.check()?; // an error once this run is to stop
//!             println!("page {page} of {}, fenced by {}", run.tick(), run.token());
//!             run.progress(page, 12);
//!         }
//!         Ok(Outcome::Done)
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> watchkeeper::Result<()> {
//!     let every_workday = Spec::cron("0 8 * * Mon-Fri").zone("Europe/Rome");
//!     Worker::from_env()?.job("report", Report, every_workday).run().await
//! }
//! ```
//!
//! # The modules, in reading order
//! What a user meets:
//! - [`job`]: what one writes, and what a run gets.
//! - [`batch`]: the same for work that comes in units, spread over all replicas.
//! - [`worker`]: one process, from its configuration to its drain.
//! - [`lock`], [`lease`]: the lock alone.
//! - [`election`], [`term`]: the elector alone.
//! - [`fence`]: what stands where the effect happens, and refuses a stale holder.
//! - [`fleet`]: who leads, what ran and why; pause, trigger, hand over, drain: for operators, and for programs.
//! - [`config`], [`cli`]: every key and its rules; the commands.
//!
//! How it works, from below:
//! - [`node`]: one lock server as a machine that executes short lists of operations; in Redis, SQLite or memory.
//! - [`keeper`]: the one thread that does all lock traffic and owns every lease.
//! - [`schedule`]: which instants are ticks. [`ledger`]: what was decided about them. [`due`]: what to do now.
//! - [`event`]: everything worth knowing, as one stream. [`telemetry`]: how it is counted and logged.
//! - [`clock`], [`chance`], [`spawn`]: time, randomness and tasks, handed in and never fetched.
//!
//! The locks are a crate of their own, `watchkeeper-lock`, for programs that want nothing else; its modules stand here as well.
//!
//! For tests of one's own jobs there is `testing`, with the feature of that name: a whole fleet in one process under a virtual
//! clock, and single runs.
//!
//! # Features
//! `cli`, `admin`, `log`, `sqlite` and `redis` are on by default. Without any of them this is the lock, the elector and the
//! scheduler over a store in memory. `log` lets [`Worker::run`] write the log of `[telemetry]` where the program has installed no
//! subscriber of `tracing`; without it lines go to the program's subscriber alone, and a program without one is told so on
//! standard error, once. `sqlite` cannot stand beside another crate that links SQLite (sqlx-sqlite, diesel, another version of
//! rusqlite): leave it out, and name Redis masters. `redis-tls` adds `rediss://` addresses, with rustls and ring; if the process has not
//! installed a provider of cryptography for rustls, ring becomes it. `testing` is for dev-dependencies: it adds the module
//! `testing`, and the virtual clock of tokio.
#![forbid(unsafe_code)]

#[cfg(feature = "admin")]
pub(crate) mod admin;
pub mod batch;
#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
pub mod due;
mod error;
mod escape;
pub mod event;
pub mod fleet;
pub mod job;
pub mod ledger;
#[doc(hidden)]
pub mod network;
mod run;
pub mod schedule;
pub(crate) mod scheduler;
mod signals;
#[cfg(test)]
mod sim;
pub mod telemetry;
#[cfg(feature = "log")]
#[doc(hidden)]
pub mod terminal;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod worker;

#[doc(hidden)]
pub use watchkeeper_lock::{backoff, files, finding, hash, human, owned, secret, sim_clock};
#[doc(inline)]
pub use watchkeeper_lock::{
    chance, clock, election, fence, keeper, lease, lock, node, spawn, term,
};
use watchkeeper_lock::{panics, seldom};

pub use batch::BatchJob;
pub use election::Elector;
pub use error::{Error, Result};
pub(crate) use fleet::{intent, status};
pub use human::DurationExt;
pub use job::{Health, Job, JobError, Outcome, Run, RunHook, Spec};
pub use lock::Locks;
pub use worker::Worker;

/// The code in the README and in the book is compiled with the doc tests.
#[cfg(all(doctest, feature = "cli"))]
mod book {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/guides/first-job.md")]
    struct FirstJob;
    #[doc = include_str!("../docs/guides/locks.md")]
    struct Locks;
    #[doc = include_str!("../docs/guides/runs.md")]
    struct Runs;
    #[doc = include_str!("../docs/guides/settings-in-code.md")]
    struct SettingsInCode;
    #[doc = include_str!("../docs/guides/testing.md")]
    struct Testing;
    #[doc = include_str!("../docs/operations/commanding.md")]
    struct Commanding;
}
