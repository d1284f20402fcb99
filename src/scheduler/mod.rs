//! Runs one job: stands for election, decides which ticks are due, runs them, keeps the ledger.
//!
//! # States            waiting for the gate -> campaigning -> leading (-> running) -> winding down -> standing by
//! # Invariants
//! - P4 A tick is started at most once per attempt: the start is written to q nodes before it happens.
//!   (a_tick_is_written_before_it_runs)
//! - A term's first act is to write back what it found, so that a minority write of a dead leader is decided for good.
//!   (a_new_leader_writes_back_what_it_found)
//! - Work goes first, then the lease: a term is resigned after its runs have ended.   (a_term_is_resigned_after_its_run,
//!   a_term_is_resigned_after_all_its_runs)
//! - The lock of every job that this replica may come to lead is watched, whatever keeps it from being a candidate now: a closed
//!   gate, unfitness, another definition; unless it rests, because better candidates watch.   (a_failover_standby_takes_over_within_one_ttl_and_a_third,
//!   whoever_gets_well_after_the_leaders_death_takes_over_at_once)
//! - D3 Never more than `concurrency` runs of a job at a time, whichever replica leads.
//!   (whatever_overlaps_starts_once_beside_no_more_than_may_and_nothing_is_lost)
//! - A ledger that a later version has written stays as it is, and its job is left to replicas that can read it.
//!   (replicas_of_two_versions_start_no_tick_twice_and_lose_nothing_of_each_other)
//! # Map
//! An `engine` is one job of this replica. It is run `led`, `by_tick` or `everywhere`; each holds a `term`, in which the
//! `term_loop` decides and writes (`acts`), begins attempts (`start`, `ready`), and hears of triggers (`triggers`), intents
//! (`resign`), what people are told (`notices`) and other definitions (`stand_back`). First it accounts for what has changed, was forgotten or was decided
//! ahead of time (`changed`, `memory_loss`, `take_back`). A `context` is what all engines share: `local_status`, `peers`,
//! `intents`, `history`, `recall`; what they ask of the nodes again and again leaves at each `beat`. Of ten thousand jobs nearly all
//! are at rest at any time: `rest` wakes those whose time has come, and `health` asks the led ones whether this replica is fit, each
//! with one timer for all. `balance` moves terms between replicas by the rules of `spread`; who of them watches a lock that
//! another one holds is said in `watchers`.
//!
//! # When things fail
//! A ledger that cannot be written starts nothing. An outcome that cannot be written leaves the run open: the next leader
//! finds it interrupted and says so.

mod acts;
mod ahead;
mod balance;
pub(crate) mod beat;
mod by_tick;
mod changed;
mod checkpoints;
pub(crate) mod context;
mod definitions;
mod engine;
mod everywhere;
mod health;
mod history;
pub(crate) mod intents;
mod led;
mod ledger_store;
mod limits;
mod local_status;
mod memory_loss;
mod next_definition;
mod notices;
mod peers;
mod ranks;
mod ready;
mod recall;
mod resign;
mod rest;
mod spread;
mod stand_back;
mod start;
mod start_order;
mod take_back;
mod term;
mod term_loop;
#[cfg(test)]
mod tests;
mod traced;
mod triggers;
mod watchers;

pub(crate) use balance::{HandoverLog, balance};
pub(crate) use context::{Context, MOST_BEGINNINGS, Shared};
pub(crate) use engine::Engine;
pub(crate) use health::{HealthRounds, ToldUnfit};
pub(crate) use history::{Author, History};
pub(crate) use intents::Intents;
pub(crate) use local_status::LocalStatus;
pub(crate) use next_definition::{Definition, NextDefinition};
pub(crate) use peers::{Peers, reach_enough};
pub(crate) use recall::Recall;
pub(crate) use rest::Resting;
#[cfg(test)]
pub(crate) use spread::Attention;
pub(crate) use spread::WHOLE_REPLICA;
pub(crate) use start_order::StartOrder;
#[cfg(test)]
pub(crate) use watchers::mutants;
pub(crate) use watchers::{Vacancy, Watcher};
