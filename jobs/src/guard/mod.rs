//! Programs under a lease: a command, a guard process that ends it in time, and the handle of its caller.
//!
//! ```text
//!   worker ---- socket: deadlines, "stop" ---->  guard  ---- signals ---->  command and all that it started
//!          <--- socket: "started", "ended" ----
//! ```
//!
//! The guard is this program executed again. It knows until when the lease is held, gets each later deadline, and ends
//! the command and every descendant of it before the lease does: SIGTERM first, SIGKILL when that was not enough. It
//! does so at once when the worker is gone, because the socket closes with it, and in time when the worker is merely
//! frozen.
//!
//! # Invariants
//! - G1 Nothing of a command is left when its lease ends, also when the worker was killed or frozen, and also when the
//!   command forks, leaves its session, ignores SIGTERM or closes its descriptors, whatever its programs are called.
//!   (`a_killed_workers_command_is_gone_in_time`, `a_frozen_workers_command_is_gone_in_time`,
//!   `a_command_whose_name_is_cut_within_a_letter_is_ended`). On a busy machine a killed process
//!   may be listed for a while: it executes nothing more, and waits for a processor to go.
//! - G2 The lease is not released before nothing is left, nor while that cannot be looked at.
//!   (`a_lease_is_held_until_nothing_is_left`, `a_lease_is_held_while_what_is_left_cannot_be_looked_for`)
//! - G3 A command that was not started leaves nothing behind.       (`a_start_that_fails_is_told_by_its_reason`)
//! - G4 A guard that is killed takes the command with it, and the worker ends what that has left.
//!   (`a_killed_guard_takes_its_command_along`)
//! - G5 A guard that fails ends what it guards before it goes.       (`a_guard_that_fails_ends_what_it_guards_first`)
//! - G6 The status of a command that had ended before its guard failed is told all the same.
//!   (`a_guard_that_fails_after_the_end_tells_how_its_command_ended`)
//! - G7 A guard knows when `/proc` does not show the processes of its PID namespace, and then starts nothing.
//!   (`another_namespaces_processes_are_known_by_our_own_numbers`)
//!
//! # Not promised
//! Processes that the system starts on behalf of the command are none of its descendants: containers of a daemon, units
//! of systemd, jobs of at(1). Processes that changed their user (`sudo`) cannot be signalled without that user's rights,
//! and processes in an uninterruptible wait for a device end when the wait does. When worker and guard are killed at the
//! same time, or the guard is killed while the worker is frozen, the command dies with the guard, but what it has forked
//! may live on; when the guard alone is killed, so may what has left its session (or shares a terminal) and has wiped its
//! environment, or hides it, as programs that keep secrets do (`PR_SET_DUMPABLE`: `ssh-agent`, and this command itself). A
//! guard that is frozen is killed by its worker in time, but by no process when the worker is killed, too. And a guard acts
//! as soon as the system lets it run: a machine on which it waits longer for a processor than two abort margins (a tenth of
//! the ttl, 200 ms at least) needs a longer ttl; the log, and who is told of the end, hear by how much a command has outlived
//! its lease. What has reached another machine is beyond any of this: give it the fencing token.
//!
//! # Example
//! ```no_run
//! use std::process::ExitCode;
//! use watchkeeper::lock::lease::LeaseView;
//! use watchkeeper_jobs::guard::{Command, serve_if_asked};
//!
//! fn main() -> ExitCode {
//!     if let Some(ended) = serve_if_asked() {
//!         return ended;
//!     }
//!     // What the program is for.
//!     ExitCode::SUCCESS
//! }
//!
//! async fn backup(lease: LeaseView) -> Result<(), Box<dyn std::error::Error>> {
//!     let dump = Command::new("pg_dump", ["--file".into(), "/backup/shop".into()]);
//!     let end = dump.start(vec![lease]).await?.ended().await;
//!     println!("{:?}, ended by {:?}", end.status, end.cause);
//!     Ok(())
//! }
//! ```

mod capture;
mod command;
mod end;
mod message;
mod procs;
mod role;
mod serve;
mod shim;
mod state;
mod timespec;
mod watch;

use std::{env, process::ExitCode};

pub use command::{Command, Guarded, Output, StartError};
pub use end::{Cause, End, Status};
pub(crate) use procs::own_group;
use role::{GUARD, SHIM};
pub(crate) use timespec::timespec;

/// Call it first thing in `main`, before threads and runtimes: when this process was started to guard a command, it
/// does that, and says with which status to end. Otherwise it returns at once. A program that does not call it cannot
/// start guarded commands.
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     if let Some(ended) = watchkeeper_jobs::guard::serve_if_asked() {
///         return ended;
///     }
///     // What the program is for.
///     std::process::ExitCode::SUCCESS
/// }
/// ```
#[must_use]
pub fn serve_if_asked() -> Option<ExitCode> {
    role::serves();
    let name = env::args_os().next()?;
    match name.to_str()? {
        GUARD => Some(serve::main()),
        SHIM => Some(shim::main()),
        _ => None,
    }
}
