//! Cases that take most of the machine. One of them runs at a time, with light ones beside it: two would starve each other's servers,
//! whose answers are late then, and asked for again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use libtest_mimic::Trial;

const HEAVY: [&str; 3] = [
    "storm::a_storm_of_faults_loses_and_doubles_no_tick",
    "storm::a_storm_of_faults_around_a_failover_doubles_no_tick_and_hides_no_loss",
    "commands::fifty_workers_die_or_freeze_and_no_two_commands_run_at_once",
];

static ONE: Mutex<()> = Mutex::new(());

/// Waits for its turn; it is over when this is dropped.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The same cases, in an order in which hardly one waits for another's turn.
pub(crate) fn spread(cases: Vec<Trial>) -> Vec<Trial> {
    let is_heavy = |case: &Trial| HEAVY.iter().any(|name| case.name().ends_with(name));
    let (heavy, light): (Vec<_>, Vec<_>) = cases.into_iter().partition(is_heavy);
    let between = light.len() / heavy.len().max(1);
    let mut light = light.into_iter();
    let mut all = Vec::new();
    for case in heavy {
        all.push(case);
        all.extend(light.by_ref().take(between));
    }
    all.extend(light);
    all
}
