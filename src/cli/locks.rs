//! `locks`: which of [`list`], [`show`], [`leaked`], [`schema`] and [`breaking`] the arguments ask for.

mod args;
mod breaking;
mod leaked;
mod list;
mod schema;
mod show;

#[cfg(test)]
pub(super) use self::{
    breaking::node_results, leaked::show as show_leaks, list::show as show_locks, show::describe,
};
use super::failure::Failure;
use crate::Worker;

pub use args::{At, BreakArgs, LocksArgs, LocksCommand};

pub(super) fn locks(worker: Worker, args: LocksArgs) -> Result<(), Failure> {
    match args.command {
        Some(LocksCommand::Show { key, json, at }) => show::show(&at.config(worker)?, &key, json),
        Some(LocksCommand::Schema { at }) => schema::schema(&at.config(worker)?),
        Some(LocksCommand::Break(args)) => {
            let config = args.at.config(worker)?;
            breaking::break_lock(&config, &args)
        }
        None if args.leaked => leaked::leaked(&args.at.config(worker)?, &args.prefix, args.json),
        None => list::list(&args.at.config(worker)?, &args.prefix, args.json),
    }
}
