//! A fleet as its operators see it: one client that asks it, and the documents in which it tells of itself.
//!
//! [`Fleet`] shows who leads what, what ran and why, and which locks are held. It pauses jobs, runs them now, hands them over,
//! and drains replicas. The commands and the status page ask through it, and so may any program that can reach the lock
//! nodes; no replica need be reachable.
//!
//! ```no_run
//! use std::time::Duration;
//! use watchkeeper::{
//!     config::Config,
//!     fleet::{Fleet, TriggerParams, TriggerState},
//! };
//!
//! # async fn migrate(config: Config) -> Result<(), Box<dyn std::error::Error>> {
//! let fleet = Fleet::connect(&config).await?.asking_as("migration of May");
//! let patience = Duration::from_secs(5);
//!
//! let paused = fleet.pause("report", "its tables move", patience).await?;
//! println!("heard by {}", paused.heard_by.join(", "));
//! // … the migration …
//! fleet.resume("report", patience).await?;
//!
//! let asked = fleet.trigger("report", TriggerParams::default()).await?;
//! let ended = fleet.follow(asked, TriggerState::Ended, Duration::from_secs(600)).await;
//! println!("{} {}", ended.run_id, ended.outcome);
//!
//! for job in fleet.status().await?.jobs {
//!     let leader = job.leader.map(|leader| leader.name);
//!     println!("{} is led by {}", job.name, leader.as_deref().unwrap_or("no replica"));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # What it tells
//! - [`status`]: who leads what by the records of the locks, and what replicas tell of themselves; one lock in full, and which
//!   locks nothing will release.
//! - [`Trigger`]: a run that was asked for, and what became of it. [`RunRecord`]: one attempt at a run.
//! - [`Explanation`]: why a tick ran, or why not.

#[cfg(feature = "admin")]
pub(crate) mod audit;
#[cfg_attr(
    not(any(feature = "cli", feature = "admin")),
    allow(dead_code, reason = "the commands and the page ask for more")
)]
pub(crate) mod client;
pub(crate) mod explain;
pub(crate) mod history;
#[doc(hidden)] // for the command
pub mod holding;
pub(crate) mod intent;
#[cfg(feature = "admin")]
#[doc(hidden)] // for the stock jobs
pub mod items;
pub(crate) mod presence;
pub mod status;
pub(crate) mod terms;
#[cfg_attr(
    not(any(feature = "cli", feature = "admin")),
    allow(dead_code, reason = "the dump shows less than people ask for")
)]
pub(crate) mod view;

#[cfg(feature = "admin")]
pub(crate) use client::facts::JobFacts;
#[cfg(feature = "cli")]
pub(crate) use client::refusals::refuse_unknown;
#[cfg(feature = "admin")]
pub(crate) use client::runs::RunFilter;
pub use client::{
    Fleet,
    error::FleetError,
    handover::{DrainAnswer, ResignAnswer, Until},
    locks::Leaks,
    pausing::PauseAnswer,
    triggers::WaitingTrigger,
};
pub use explain::Explanation;
#[cfg(feature = "admin")]
pub(crate) use explain::ticks::{JobTicks, TickStatus};
pub use history::{BatchCounts, Resumed, RunRecord};
pub use intent::{Trigger, TriggerParams, TriggerParamsError, TriggerState};
