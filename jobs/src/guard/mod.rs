//! Programs under a lease: a command, a guard process that ends it in time, and the handle of whoever started it.
//!
//! ```text
//!   worker ---- socket: deadlines, "stop" ---->  guard  ---- signals ---->  command and all that it started
//!          <--- socket: "started", "ended" ----
//! ```
//!
//! The guard is this program executed again (see `serve_if_asked`). It knows until when the
//! lease is held, gets each later deadline, and ends the command and every descendant of it before the lease does:
//! SIGTERM first, SIGKILL when that was not enough. It does so at once when the worker is gone, because the socket
//! closes with it, and in time when the worker is merely frozen.
mod command;

pub use command::{Cause, Command, End, Guarded, Output, StartError, Status};
