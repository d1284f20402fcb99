//! Watchkeeper runs background jobs on several replicas of a program: each job on one of them at a time, or spread over
//! all of them in batches. Replicas agree through locks on independent Redis masters (Redlock), on a single one, in a
//! PostgreSQL database, in an etcd cluster, or in an SQLite file; every lock comes with a lease that ends by itself and a
//! fencing token that only grows. A replica that dies is replaced within about one ttl, one that is told to stop hands over
//! at once.
//!
//! **Work that cannot be stopped ends the process.** A run that goes on when its lease is about to end is told to stop,
//! then dropped at its next `.await`. Code that blocks a thread can be neither told nor dropped: the process logs it and
//! calls [`std::process::abort`] shortly before the lease ends, because another replica is about to begin the same work.
//! [`lock::LocksBuilder::on_unstoppable`] changes that for programs that use the locks alone.
//!
//! # Promised
//! - At any instant at most one replica believes that it holds a lock, as long as clocks run at nearly the same rate. Wall
//!   clocks of Redis servers may jump (but see [`lock::node::Expiry`] and short claims of batches). A Redis server that lost its
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
//! For a program with jobs:
//! - [`job`]: what one writes, and what a run gets. [`schedule`]: which instants are ticks.
//! - [`batch`]: the same for work that comes in units, spread over all replicas.
//! - [`worker`]: one process, from its configuration to its drain. [`config`], [`cli`]: every key and its rules; the commands.
//! - [`fence`]: what stands where the effect happens, and refuses a stale holder.
//! - `testing`, with the feature of that name: a whole fleet in one process under a virtual clock, and single runs.
//!
//! For operators, and for programs that do their work:
//! - [`fleet`]: who leads, what ran and why; pause, trigger, hand over, drain.
//! - [`event`]: everything worth knowing, as one stream. [`telemetry`]: how it is logged.
//!
//! For a program without jobs:
//! - [`lock`]: locks, leases and elections alone. They are a crate of their own, `watchkeeper-lock`, for programs that want
//!   nothing else.
//!
//! What is hidden here is for the stock jobs and the command in the same repository, and may change with any release.
//!
//! # Features
//! The first five are on by default. Without any of them this is the lock, the elector and the scheduler over a store in memory.
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `cli` | the commands for your own binary, and `log` |
//! | `admin` | health, metrics and the status page over HTTP |
//! | `log` | [`Worker::run`] writes the log of `[telemetry]` where the program has installed no subscriber of `tracing` |
//! | `sqlite` | the embedded store: one SQLite file, shared by the processes of one machine |
//! | `redis` | locks on independent Redis masters, or on a single one |
//! | `redis-tls` | `rediss://` addresses, with rustls and ring |
//! | `postgres` | locks in a PostgreSQL database, with TLS |
//! | `etcd` | locks in an etcd cluster, with TLS |
//! | `otel` | the traces of runs for a receiver of OTLP, with rustls and ring |
//! | `testing` | for dev-dependencies: the module `testing`, and the virtual clock of tokio |
//!
//! Without `log` lines go to the program's subscriber alone, and a program without one is told so on standard error, once.
//! `sqlite` cannot stand beside another crate that links SQLite (sqlx-sqlite, diesel, another version of rusqlite): leave it out,
//! and name Redis masters. If the process has not installed a provider of cryptography for rustls, ring becomes it with `redis-tls`.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "admin")]
pub(crate) mod admin;
pub mod batch;
#[cfg(feature = "cli")]
pub mod cli;
pub mod config;
mod due;
mod error;
mod escape;
pub mod event;
pub mod fleet;
pub mod job;
mod ledger;
mod network;
#[doc(hidden)] // for the stock jobs, which bring the receivers
pub mod notice;
mod run;
pub mod schedule;
pub(crate) mod scheduler;
mod signals;
#[cfg(test)]
mod sim;
pub mod telemetry;
#[cfg(feature = "log")]
#[doc(hidden)] // for the command and the stock jobs
pub mod terminal;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[doc(hidden)] // for the command and the stock jobs
pub mod trace;
pub mod worker;

/// Locks, leases and elections, without jobs, and the clocks, stores and tokens that they are made of.
///
/// ```
/// use std::sync::Arc;
/// use watchkeeper::{
///     Elector, Locks,
///     lock::{clock::Clock, node::memory::MemoryNode},
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // In production `SqliteNode::open(…)`, or a `RedisNode` for each master.
/// let node = MemoryNode::new("one", Clock::system());
/// let locks = Locks::over(vec![Arc::new(node)]).start()?;
///
/// let lease = locks.lock("report").acquire().await?;
/// assert!(lease.is_held() && locks.lock("report").acquire().await.is_err());
/// lease.release().await;
///
/// let term = Elector::new(&locks, "reconciler").campaign().await?;
/// assert!(term.is_leading());
/// term.resign().await;
/// # Ok(())
/// # }
/// ```
pub mod lock {
    #[doc(inline)]
    pub use watchkeeper_lock::lock::*;
    #[doc(hidden)] // for the worker
    pub use watchkeeper_lock::open;
    #[doc(inline)]
    pub use watchkeeper_lock::{clock, election, keeper, lease, node, once, spawn};
}
#[doc(inline)]
pub use watchkeeper_lock::fence;
// Other names of what stands in `lock`, and what the commands and the stock jobs are built on as the worker is.
#[doc(hidden)] // for the stock jobs and the command
pub use watchkeeper_lock::{
    backoff, chance, clock, election, files, finding, hash, human, keeper, latest, lease, node,
    once, owned, secret, sim_clock, spawn, term,
};
use watchkeeper_lock::{panics, seldom};

pub use batch::BatchJob;
pub use election::Elector;
pub use error::{Error, Result};
pub(crate) use fleet::{intent, status};
pub use human::DurationExt;
pub use job::{Health, Job, JobError, Outcome, Run, RunHook, Spec};
#[doc(hidden)] // for the demonstration of the command
pub use ledger::Ledger;
pub use lock::Locks;
pub use worker::Worker;

/// The code in the README and in the book is compiled with the doc tests.
#[cfg(all(doctest, feature = "cli"))]
mod book {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../docs/guides/customers.md")]
    struct Customers;
    #[doc = include_str!("../docs/guides/first-job.md")]
    struct FirstJob;
    #[doc = include_str!("../docs/guides/locks.md")]
    struct Locks;
    #[doc = include_str!("../docs/guides/moving-from-tokio-cron-scheduler.md")]
    struct MovingFromTokioCronScheduler;
    #[doc = include_str!("../docs/guides/runs.md")]
    struct Runs;
    #[doc = include_str!("../docs/guides/settings-in-code.md")]
    struct SettingsInCode;
    #[doc = include_str!("../docs/guides/streams.md")]
    struct Streams;
    #[doc = include_str!("../docs/guides/testing.md")]
    struct Testing;
    #[doc = include_str!("../docs/operations/commanding.md")]
    struct Commanding;
}
