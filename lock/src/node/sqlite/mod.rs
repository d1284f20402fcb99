//! A SQLite file as a node: the embedded store, shared by the processes of one machine.
//!
//! # How
//! One thread per store owns one connection; calls reach it through a bounded queue. A call that changes anything is
//! one `BEGIN IMMEDIATE` transaction, so it is atomic between processes and survives `kill -9` whole or not at all.
//! What is answered is decided by the same rules as for the node in memory.
//!
//! # Time
//! Leases count on `CLOCK_BOOTTIME`, which all processes of a machine share: steps of the wall clock do no harm. The
//! file names the boot it belongs to. After a reboot leases in it are void, while counters, records and documents stay: at once
//! where no lease was held, and otherwise when the file has stood still for as long as the longest of them could live, because
//! a second machine on the file would look the same.
//!
//! # When things fail
//! A busy, full or read-only file answers [`NodeError::Unfit`]: nothing was executed. A commit that fails answers
//! [`NodeError::Timeout`]: it may have been. Before every call the three files are looked at, which costs a few microseconds.
//! When they are not those that were opened, because one was removed, moved, replaced or taken back from a backup, the answer
//! is [`NodeError::Gone`] from then on: a process that opens what stands there knows nothing of leases here, so they end at
//! their next renewal.
//!
//! # What something else has written
//! A row that makes no sense costs its own lock, and is told: it counts as held until an acquire has met it and the longest
//! lease is over since. What a body was is not guessed: it is inherited by none. In a file of another boot it is waited for as the
//! longest lease that was granted in that boot, which the file knows.
//!
//! # Invariants
//! - I1 No lease outlives by a renewal that its file is another.      (a_lease_ends_when_its_file_is_gone)
//! - I2 While a process has the file open, no other uses another file, log or shared memory under that name.
//!   (a_new_process_waits_for_those_of_a_removed_file)
//! - I3 A file under two names, or mounted alone, is refused.         (a_file_with_two_names_is_refused)
//! - I4 Leases of another boot are void only when the file stood still for the longest of them.
//!   (a_second_machine_on_the_file_voids_no_living_lease)
//! - I5 No damage of one row makes that wait longer than the longest lease that was granted in that boot, or shorter than a lease that
//!   lives.  (a_damaged_lease_keeps_a_file_of_another_boot_shut_as_long_as_the_longest_that_was_granted)
//!
//! # Whose file it is
//! A file, or one of those that SQLite keeps beside it, that belongs to another user, that others can write, or that
//! is a symbolic link is refused, and so is one in such a folder: its owner could grant locks at will. New files are
//! for their owner alone, and so is the folder when it is made here. (a_store_of_somebody_else_is_refused)
//!
//! # Not promised
//! A leader while one process is stopped (SIGSTOP, a debugger) in the middle of a transaction: it keeps the file
//! locked until it goes on or is killed. Transactions take milliseconds, and there is no leader meanwhile, so nothing
//! runs twice. More than one machine. What other programs than SQLite write over the file's content in place. That a
//! folder which was removed or moved away is noticed by a new process that does not see the old ones, in another container or
//! because of `hidepid`: these notice at their next call. What a killed process left running under its lease, when the file is removed as well.
//!
//! # Example
//! ```no_run
//! use std::sync::Arc;
//! use watchkeeper_lock::{Locks, clock::Clock, node::sqlite::SqliteNode};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = SqliteNode::open("locks.db", Clock::system())?;
//! let locks = Locks::over(vec![Arc::new(node)]).start()?;
//! # let _ = locks;
//! # Ok(())
//! # }
//! ```

use std::{
    fmt,
    path::Path,
    sync::mpsc::{SyncSender, TrySendError, sync_channel},
};

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::{Announcements, Call, Expiry, Node, NodeError, NodeFacts, Reply};
use crate::clock::Clock;

mod boot;
mod error;
mod inspect;
mod layout;
mod open;
mod place;
mod rows;
mod store;
#[cfg(test)]
mod tests;
mod users;
mod worker;

pub use error::OpenError;
use worker::Job;

/// Calls that may wait for the store's thread.
const QUEUE: usize = 1024;

/// The embedded store; clones share one connection.
#[derive(Clone)]
pub struct SqliteNode {
    name: String,
    jobs: SyncSender<Job>,
}

// === impl SqliteNode ===

impl SqliteNode {
    /// Opens the store, and makes the file (readable by its owner alone) and its folder when they are missing.
    /// `clock` must be the machine's: other processes compare their times with ours.
    ///
    /// Blocks while the disk works, and for about a second while another process keeps the file locked that has to be made
    /// first; call it before the runtime matters, or on a blocking thread. A file that is made is opened beside any writer.
    ///
    /// # Errors
    /// [`OpenError`], with a sentence for the operator.
    pub fn open(path: impl AsRef<Path>, clock: Clock) -> Result<Self, OpenError> {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets").ok();
        let boot = boot::name(&boot_id.map_err(OpenError::NoBootId)?, offsets.as_deref());
        let store = store::Store::open(path.as_ref(), clock, boot)?;
        let (jobs, queue) = sync_channel(QUEUE);
        std::thread::Builder::new()
            .name("watchkeeper-store".to_owned())
            .spawn(move || worker::run(store, &queue))
            .map_err(OpenError::Thread)?;
        Ok(Self {
            name: "embedded".to_owned(),
            jobs,
        })
    }

    fn post(&self, job: Job) -> Result<(), NodeError> {
        self.jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => NodeError::Unfit("its queue is full".to_owned()),
            TrySendError::Disconnected(_) => NodeError::Unreachable("its thread ended".to_owned()),
        })
    }
}

#[async_trait]
impl Node for SqliteNode {
    fn name(&self) -> &str {
        &self.name
    }

    /// Its clock is that of the machine since its start.
    fn expiry(&self) -> Expiry {
        Expiry::Server
    }

    async fn call(&self, call: Call) -> Result<Reply, NodeError> {
        let (answer, answered) = oneshot::channel();
        self.post(Job::Call(call, answer))?;
        match answered.await {
            Ok(result) => result,
            // The thread died with the call in hand: it may have been executed.
            Err(_) => Err(NodeError::Timeout(open::BUSY_TIMEOUT)),
        }
    }

    async fn inspect(&self) -> Result<NodeFacts, NodeError> {
        let (answer, answered) = oneshot::channel();
        self.post(Job::Inspect(answer))?;
        let gone = |_| NodeError::Unreachable("its thread ended".to_owned());
        answered.await.map_err(gone)
    }

    async fn announcements(&self) -> Option<Announcements> {
        let (answer, answered) = oneshot::channel();
        self.post(Job::Subscribe(answer)).ok()?;
        answered.await.ok()
    }
}

impl fmt::Debug for SqliteNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteNode")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
