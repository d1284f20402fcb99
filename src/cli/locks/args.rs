//! The arguments of `locks`.

use clap::{Args, Subcommand};

use super::super::{ask::load, failure::Failure, store_args::StoreArgs};
use crate::{
    Worker,
    config::{Config, Flag, load_without_jobs},
};

/// `watchkeeper locks`
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct LocksArgs {
    /// What to do with one lock.
    #[command(subcommand)]
    pub command: Option<LocksCommand>,
    /// Only locks that no process will release, or perhaps none; takes a few seconds
    #[arg(long)]
    pub leaked: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which store.
    #[command(flatten)]
    pub at: At,
    /// Only keys that begin so, such as job/ or lock/
    #[arg(value_name = "PREFIX", default_value = "", hide_default_value = true)]
    pub prefix: String,
}

/// What to do with one lock.
#[derive(Clone, Debug, Subcommand)]
pub enum LocksCommand {
    /// Show everything about one lock, node by node
    Show {
        /// The lock, as `locks` lists it: job/NAME, lock/NAME
        #[arg(value_name = "KEY")]
        key: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
        /// Which store.
        #[command(flatten)]
        at: At,
    },
    /// Print the SQL that makes the tables of a PostgreSQL lock store
    ///
    /// For an owner of the database, where the worker's own user may not make them. It does no harm where they stand.
    Schema {
        /// Which store.
        #[command(flatten)]
        at: At,
    },
    /// End a lease by force, whichever process holds it
    ///
    /// The holder cannot extend its lease any more: it is told at its next renewal, within a third of its ttl, and
    /// stops. Until it has released the lock, or its time is up, no other process gets it, so that no two act. The
    /// next holder's token is larger. Exits with 1 when the lock was not held, or has changed hands meanwhile.
    Break(BreakArgs),
}

/// `watchkeeper locks break`
#[derive(Clone, Debug, Args)]
pub struct BreakArgs {
    /// The lock, as `locks` lists it: job/NAME, lock/NAME
    #[arg(value_name = "KEY")]
    pub key: String,
    /// Only this owner's lease, as `locks show` tells it [default: the owner on most nodes]
    #[arg(long, value_name = "OWNER")]
    pub owner: Option<String>,
    /// Wait until nothing of the lease can act any more, its ttl, and release it then: later candidates need not watch it
    #[arg(long)]
    pub now: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Which store.
    #[command(flatten)]
    pub at: At,
}

/// Where the locks are looked for.
#[derive(Clone, Debug, Default, Args)]
pub struct At {
    /// The store.
    #[command(flatten)]
    pub place: StoreArgs,
    /// KEY is the Redis key itself, shared with other Redlock clients (locks.raw_keys)
    #[arg(long)]
    pub raw: bool,
}

// === impl At ===

impl At {
    pub(super) fn config(&self, mut worker: Worker) -> Result<Config, Failure> {
        worker.options.flags.extend(self.place.flags());
        if self.raw {
            worker.options.flags.push(Flag {
                name: "--raw".to_owned(),
                key: "locks.raw_keys".to_owned(),
                value: "true".to_owned(),
            });
        }
        if self.place.is_named() {
            let loaded = load_without_jobs(&worker.options).map_err(Failure::Config)?;
            return Ok(loaded.config);
        }
        Ok(load(&worker)?.config)
    }
}
