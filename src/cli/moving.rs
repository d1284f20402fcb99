//! `move`: what a fleet has decided of its ticks goes along to another store, from one to the other or by way of a file.
//!
//! # Invariants
//! - Nothing is written while a replica tells of itself in either store, a job is led in the old one, or a ledger cannot be read.
//!   (a_fleet_that_runs_is_not_moved, a_ledger_of_a_newer_version_is_not_moved, a_ledger_that_is_damaged_is_not_left_behind,
//!   a_pause_that_cannot_be_read_is_not_left_behind, what_a_node_without_a_vote_remembers_does_not_count)
//! - What is decided in the old store while the new one is waited for goes along; what is decided there later, or while a file is
//!   written, is told. (what_changes_in_the_old_store_meanwhile_is_told)
//! - A ledger that the new store has is never replaced; what was moved before is left as it is. (a_move_can_be_given_again,
//!   a_move_that_was_killed_is_finished_by_the_next_one, a_ledger_of_the_new_store_is_left_alone)
//! - What was moved was written after the new store's last loss of memory: nothing of it counts as unknown.
//!   (what_was_moved_is_not_taken_for_forgotten)
//! - Tokens of a new store that this command admits begin above all that the old one knew; where they do not go on it is said. A run that
//!   is open counts as started under a token of the new one. (tokens_of_the_new_store_begin_above_those_of_the_old_one,
//!   tokens_that_begin_anew_are_told, a_run_that_is_open_goes_on_under_a_token_of_the_new_store)
//! - By way of a file the same arrives. (what_was_left_is_read_back_as_it_was)

mod arrival;
mod carried;
mod left;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    ask::{load, no_store, nobody_was_here, on_a_runtime, place},
    failure::Failure,
    output::{print, print_json},
    raw_nodes::RawNodes,
    waiting::{Count, counted},
};
use crate::{
    Worker,
    clock::Clock,
    config::{Backend, Config, LoadOptions, Loaded, load_without_jobs},
    error::Error,
    node::Token,
    terminal,
};
use arrival::{Moved, arrive, begins_anew, opened};
use carried::Draft;
use left::{ALL_BUT, NEW, NOTHING, is_as_it_was, is_idle, left_in, refuse_nothing};

/// What is said where all that would be moved stands there under the same versions.
const ONE_STORE: &str = "both configurations lead to one store, however they write where it is";

/// What to do where the old store has changed.
const MOVE_AGAIN: &str =
    "what was carried over before is older: empty the new store, and move again";
const WRITE_AGAIN: &str = "nothing was written: end every worker, and give the command again";

/// `watchkeeper move`
#[derive(Clone, Debug, Args)]
pub struct MoveArgs {
    /// Where to, or by way of which file.
    #[command(flatten)]
    pub(super) way: Way,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// One of these.
#[derive(Clone, Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct Way {
    /// The configuration with the new store; --config names that with the old one
    #[arg(long, value_name = "FILE")]
    to: Option<PathBuf>,
    /// Write into this file what goes along, for another version to carry in; --config names the old store
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Carry in what this file has; --config names the new store
    #[arg(long = "in", value_name = "FILE")]
    from: Option<PathBuf>,
}

pub(super) fn move_fleet(worker: &Worker, args: &MoveArgs) -> Result<(), Failure> {
    match &args.way {
        Way { to: Some(to), .. } => move_to(worker, to, args.json),
        Way { out: Some(out), .. } => write_out(worker, out, args.json),
        Way {
            from: Some(from), ..
        } => carry_in(worker, from, args.json),
        Way { .. } => Err(Failure::Usage("say --to, --out or --in".to_owned())),
    }
}

/// From one store to the other.
fn move_to(worker: &Worker, to: &Path, json: bool) -> Result<(), Failure> {
    let old = load(worker)?.config;
    let options = LoadOptions {
        file: Some(to.to_owned()),
        ..worker.options.clone()
    };
    let file = to.display().to_string();
    if !to.is_file() {
        let why = format!("--to: {file} is no file that can be read");
        return Err(Failure::Usage(why));
    }
    let loaded = load_without_jobs(&options).map_err(Error::Config)?;
    refuse_default(&loaded, &format!("--to: {file}"))?;
    let new = loaded.config;
    refuse_one_store(&old, &new, &file)?;
    if nobody_was_here(&old) {
        return Err(no_store(&old));
    }
    let count = Count::default();
    let (moved, above, places) = on_a_runtime(async {
        let (from, to) = (RawNodes::open(&old)?, RawNodes::open(&new)?);
        let places = [shown(&old, &from), shown(&new, &to)];
        let reading = |done| {
            count.begin("reading the old store", 0);
            counted(&count, left_in(&from, done))
        };
        let left = reading(NOTHING).await?;
        refuse_nothing(&left, &places[0])?;
        let above = left.token;
        let (locks, losses) = opened(&new, &to, above).await?;
        // That took its time.
        let left = reading(NOTHING).await?;
        is_idle(&to, NEW, NOTHING).await?;
        let above = above.max(left.token);
        let arriving = arrive(&locks, &left, &losses, Some(ONE_STORE), &count);
        let moved = counted(&count, arriving).await?;
        is_as_it_was(&left, &reading(ALL_BUT).await?, MOVE_AGAIN)?;
        Ok((moved, above, places))
    })?;
    tell(&moved, above, &places, json)
}

/// Into a file, which another version may carry in.
fn write_out(worker: &Worker, file: &Path, json: bool) -> Result<(), Failure> {
    let old = load(worker)?.config;
    if nobody_was_here(&old) {
        return Err(no_store(&old));
    }
    carried::refuse_taken(file)?;
    let count = Count::default();
    let (left, place) = on_a_runtime(async {
        let from = RawNodes::open(&old)?;
        let place = shown(&old, &from);
        // Before it is read: what is decided later is not in it.
        let now = Clock::system().wall();
        let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
        count.begin("reading the store", 0);
        let left = counted(&count, left_in(&from, NOTHING)).await?;
        refuse_nothing(&left, &place)?;
        let draft = Draft::write(file, &left, &place, now)?;
        let again = counted(&count, left_in(&from, NOTHING)).await?;
        is_as_it_was(&left, &again, WRITE_AGAIN)?;
        draft.keep()?;
        Ok((left, place))
    })?;
    let (pauses, triggers) = left.intents_by_kind();
    let moved = Moved {
        ledgers: left.ledgers.len(),
        pauses,
        triggers,
        open: left.open(),
        ..Moved::default()
    };
    let file = terminal::sentence(&file.display().to_string());
    if json {
        let mut told = told_as_json(&moved);
        told["file"] = json!(file);
        return print_json(&told);
    }
    print(&format!(
        "written to {file}, from {place}: {}start no worker on this store any more: what it decides is not in the file. Carry it in with \
         `watchkeeper move --in {file}`, and the configuration with the new store",
        counts(&moved)
    ));
    Ok(())
}

/// From a file, which another version may have written.
fn carry_in(worker: &Worker, file: &Path, json: bool) -> Result<(), Failure> {
    let loaded = worker.load_to_ask()?;
    let config = loaded.file.as_ref().map(|file| file.display().to_string());
    let config = config.unwrap_or_else(|| "the configuration".to_owned());
    refuse_default(&loaded, &config)?;
    let new = loaded.config;
    refuse_memory(&new)?;
    // All of it, before there is anything of a new store.
    let (head, left) = carried::read(file)?;
    let count = Count::default();
    let (moved, places) = on_a_runtime(async {
        let to = RawNodes::open(&new)?;
        let from = format!(
            "{} (written {} by version {}, from {})",
            file.display(),
            head.written,
            head.program,
            head.from
        );
        let places = [terminal::sentence(&from), shown(&new, &to)];
        let (locks, losses) = opened(&new, &to, left.token).await?;
        is_idle(&to, NEW, NOTHING).await?;
        let arriving = arrive(&locks, &left, &losses, None, &count);
        Ok((counted(&count, arriving).await?, places))
    })?;
    tell(&moved, left.token, &places, json)?;
    if !json {
        print(
            "ticks that have run after it was written are not in it: they would run once more, as late ones",
        );
    }
    Ok(())
}

/// Refuses a configuration that leaves open where the new store is. Pure.
fn refuse_default(loaded: &Loaded, file: &str) -> Result<(), Failure> {
    match loaded.store_by_default() {
        Some(_) => Err(Failure::Usage(format!(
            "{file} names no store: say locks.backend, and where it is"
        ))),
        None => Ok(()),
    }
}

/// What was carried over, and what is to be done now. `above` is the largest token of the old store.
fn tell(moved: &Moved, above: Token, places: &[String; 2], json: bool) -> Result<(), Failure> {
    let anew = begins_anew(moved, above);
    if json {
        let mut told = told_as_json(moved);
        told["already"] = json!(moved.already);
        told["tokens_begin_anew"] = json!(anew.is_some());
        return print_json(&told);
    }
    print(&told(moved, places));
    if let Some(anew) = anew {
        print(&anew);
    }
    Ok(())
}

fn told_as_json(moved: &Moved) -> Value {
    json!({
        "ledgers": moved.ledgers,
        "pauses": moved.pauses,
        "triggers": moved.triggers,
        "open": moved.open,
    })
}

fn told(moved: &Moved, [old, new]: &[String; 2]) -> String {
    format!(
        "carried over from {old} to {new}: {}start the workers there, and none on the old store any more",
        counts(moved)
    )
}

/// How much there was, and what is to be made sure of.
fn counts(moved: &Moved) -> String {
    let Moved {
        ledgers,
        already,
        pauses,
        triggers,
        open,
        ..
    } = moved;
    let before = match already {
        0 => String::new(),
        n => format!(" ({n} of them there from an earlier move)"),
    };
    let open = match open {
        0 => String::new(),
        n => format!(
            "runs that were under way when their replicas went: {n}. Make sure that these have ended: one that was frozen would go on, \
             on the old store\n"
        ),
    };
    format!("ledgers of jobs: {ledgers}{before}, pauses: {pauses}, triggers: {triggers}\n{open}")
}

/// Where a store is, so that a person can tell it from another one.
fn shown(config: &Config, nodes: &RawNodes) -> String {
    let place = match config.locks.backend {
        Backend::Redis => {
            let names: Vec<&str> = nodes.nodes.iter().map(|node| node.name()).collect();
            format!("{}, namespace {}", names.join(" "), config.worker.namespace)
        }
        _ => place(config),
    };
    terminal::sentence(&place)
}

/// Refuses configurations that lead to one place. Pure.
fn refuse_one_store(old: &Config, new: &Config, file: &str) -> Result<(), Failure> {
    refuse_memory(old)?;
    refuse_memory(new)?;
    let of = |config: &Config| {
        let locks = &config.locks;
        let addresses = match locks.backend {
            // However it is written.
            Backend::Embedded => {
                let path = &locks.embedded.path;
                json!(
                    path.canonicalize()
                        .or_else(|_| std::path::absolute(path))
                        .ok()
                )
            }
            Backend::Redis => {
                let nodes = locks.redis.nodes.iter().map(|node| json!(node).to_string());
                json!(nodes.collect::<std::collections::BTreeSet<_>>())
            }
            Backend::Postgres => json!([locks.postgres.url, locks.postgres.schema]),
            Backend::Etcd => json!(locks.etcd.endpoints),
            Backend::Memory => json!(null),
        };
        json!([locks.backend, addresses, config.worker.namespace])
    };
    match of(old) == of(new) {
        true => Err(Failure::Usage(format!(
            "{file} names the store in which the fleet is now: give --to the configuration with the new one (variables of the \
             environment go before both files)"
        ))),
        false => Ok(()),
    }
}

/// Refuses a store in memory. Pure.
fn refuse_memory(config: &Config) -> Result<(), Failure> {
    match config.locks.backend {
        Backend::Memory => Err(Failure::Usage(
            "a store in memory is private to each process: nothing moves from it, or there"
                .to_owned(),
        )),
        _ => Ok(()),
    }
}
