//! Watchkeeper's stock jobs: jobs that need no code of yours, only a table in the configuration.
//!
//! They are written as jobs of yours would be, over the `watchkeeper` crate, so each of them is also an example of how to do that.
//! A program that has jobs of its own knows them, too, with [`add_to`]:
//!
//! ```no_run
//! use watchkeeper::{Outcome, Spec, Worker};
//!
//! # #[tokio::main]
//! # async fn main() -> watchkeeper::Result<()> {
//! watchkeeper_jobs::add_to(Worker::from_env()?)
//!     .job_fn("report", Spec::cron("0 8 * * *"), |_run| async { Ok(Outcome::Done) })
//!     .run()
//!     .await
//! # }
//! ```
//!
//! In reading order:
//! - [`add_to`]: has a worker know all kinds of stock jobs, and the receivers of notices.
//! - [`heartbeat`]: says that it ran; what tests and demonstrations count.
//! - [`http`]: calls a web service once per tick.
//! - [`notifications`]: sends the rows of a table, each at least once and each repeat announced.
//! - [`mod@exec`]: runs a command.
//! - The kind `stream`, known by its parameters alone: handles each message of a Redis stream once.
//! - Receivers of notices (`[notices.NAME]`), known by their settings alone: a webhook, a mail, a service that waits for pings.
//! - [`command()`]: the program `watchkeeper` itself.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod command;
// What the demonstration and the tests send, and to whom.
#[doc(hidden)] // for the demonstration and the tests
pub mod demo_table;
#[doc(hidden)] // for the commands, and the test that is a guard
pub mod guard;
mod kinds;
#[doc(hidden)] // for the demonstration and the tests
pub mod receiver;
mod web;

pub use kinds::{
    add_to,
    exec::{self, Exec, ExecParams},
    heartbeat::{self, Heartbeat, HeartbeatParams},
    http::{self, Http, HttpParams},
    notifications::{self, Notifications, NotificationsParams},
};

/// The `watchkeeper` command: the whole program, which ends with what this answers.
#[must_use]
pub fn command() -> std::process::ExitCode {
    command::main()
}

/// The code in the book that needs a database's driver is compiled with the doc tests.
#[cfg(all(doctest, feature = "postgres"))]
mod book {
    #[doc = include_str!("../../docs/guides/exactly-once.md")]
    struct ExactlyOnce;
}
