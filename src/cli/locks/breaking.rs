//! `locks break`: ends a lease by force, once its user has said that it is meant.

use std::{
    io::{self, BufRead, IsTerminal},
    time::Duration,
};

use serde_json::json;

use super::{
    super::{
        ask::{Limits, PATIENCE, ask},
        failure::Failure,
        output::{print, print_json},
        table::Table,
        waiting,
    },
    args::BreakArgs,
    show::{find, holder, state, unknown},
};
use crate::{
    config::{Config, LockSettings},
    fleet::{
        client::locks::breakable,
        status::{LockDetail, LockState, NodeLock},
    },
    lock::{BreakReport, BreakVote, Broken, Timing},
    terminal,
};

pub(super) fn break_lock(config: &Config, args: &BreakArgs) -> Result<(), Failure> {
    let lock = find(config, &args.key)?;
    if lock.state == LockState::Unknown && lock.has_quorum() {
        return Err(unknown(&lock, config));
    }
    let owner = breakable(&lock, args.owner.as_deref()).map_err(Failure::of)?;
    if !args.yes && !confirmed(&lock, &owner, args.now)? {
        return Err(Failure::Failed("nothing was changed".to_owned()));
    }
    let (key, broken_owner) = (&args.key, &owner);
    let patience = patience(&config.locks, args.now);
    let report = ask(config, Limits::nodes(patience), |fleet| async move {
        let broken = fleet.break_lock(key, broken_owner, args.now);
        waiting::shown("waiting for the end of the lease", patience, broken).await
    })?;
    let told = outcome(&report);
    if args.json {
        print_json(&as_json(&report, args.now))?;
    } else {
        print(&node_results(&report));
        if let Ok(text) = &told {
            print(&terminal::sentence(text));
        }
    }
    told.map(drop).map_err(Failure::Failed)
}

/// With `--now` it is waited for until nothing of the lease can act any more: its ttl, and what clocks may drift meanwhile.
fn patience(settings: &LockSettings, now: bool) -> Duration {
    match now {
        true => PATIENCE + Timing::of(settings).watch_time(settings.max_ttl),
        false => PATIENCE,
    }
}

fn confirmed(lock: &LockDetail, owner: &str, now: bool) -> Result<bool, Failure> {
    let life = lock.by_node.iter().filter(|n| n.stands() == Some(owner));
    let life: Option<Vec<u64>> = life.map(NodeLock::life_ms).collect();
    let life = life.and_then(|all| all.into_iter().max()).map_or_else(
        || "for max_ttl, because it has no end of its own".to_owned(),
        |ms| format!("for {ms} ms"),
    );
    let text = format!(
        "{}: {}\nholder: {}; owner {}, token {}\n{}",
        terminal::cell(&lock.key),
        state(lock),
        holder(lock),
        terminal::cell(owner),
        lock.token,
        warning(now, &life)
    );
    terminal::err(&text);
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "there is no terminal to ask on: say --yes to break it".to_owned(),
        ));
    }
    terminal::ask("Break it? [y/N] ");
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(Failure::of)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn warning(now: bool, life: &str) -> String {
    let then = match now {
        true => {
            " With --now the command waits until nothing of the lease can act any more, its ttl, and then frees the lock."
        }
        false => "",
    };
    format!(
        "Its holder is told at its next renewal, within a third of its ttl, and stops its work. It may go on until \
         then, and {life} at most when it cannot be told; no other process gets the lock before.{then}"
    )
}

/// What came of it; an error when there was nothing to break, or not enough nodes know.
fn outcome(report: &BreakReport) -> Result<String, String> {
    let key = &report.key;
    match report.outcome() {
        Broken::Final => {
            let within = report.remaining().map_or_else(
                || "max_ttl".to_owned(),
                |life| format!("{} ms", life.as_millis()),
            );
            let token = report.token;
            Ok(match &report.released {
                Some(_) if report.is_released() => format!(
                    "broken, under token {token}, and released when nothing of the lease could act any more: {key} is free, \
                     unless another client has taken it since"
                ),
                Some(_) => format!(
                    "broken, under token {token}, but too few nodes answered when it was to be released: those that want {key} \
                     watch it for its ttl"
                ),
                None => format!(
                    "broken, under token {token}: {key} is free when its holder has released it, within {within} at the latest"
                ),
            })
        }
        Broken::Gone => Err(format!("{key} was not held any more: its lease had ended")),
        Broken::ChangedHands => Err(format!(
            "{key} has changed hands meanwhile: nothing of its new holder was changed"
        )),
        Broken::Unsure => Err(format!(
            "too few nodes answered: {key} may be broken or not; do it again when a majority answers"
        )),
    }
}

pub(in crate::cli) fn node_results(report: &BreakReport) -> String {
    // The last answer of each node.
    let votes = report.released.as_ref().unwrap_or(&report.nodes);
    let rows = votes.iter().map(|(name, vote)| {
        let (word, why) = result(vote);
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        [name.clone(), format!("{word}{why}")]
    });
    Table::text("NODE | RESULT", rows)
}

fn result(vote: &BreakVote) -> (&'static str, Option<String>) {
    match vote {
        BreakVote::Over(_) => ("over", None),
        BreakVote::Refused(view) => (
            "refused",
            view.holder.clone().map(|by| format!("it shows {by}")),
        ),
        BreakVote::Failed(why) => ("failed", Some(why.to_string())),
    }
}

fn as_json(report: &BreakReport, now: bool) -> serde_json::Value {
    let votes = |votes: &[(String, BreakVote)]| -> Vec<_> {
        let row = |(name, vote): &(String, BreakVote)| {
            let (word, why) = result(vote);
            json!({ "node": name, "result": word, "detail": why })
        };
        votes.iter().map(row).collect()
    };
    // Released, it has outlasted whatever its holder could believe.
    let remaining = report.remaining().filter(|_| report.released.is_none());
    let outcome = match report.outcome() {
        Broken::Final => "final",
        Broken::Gone => "gone",
        Broken::ChangedHands => "changed-hands",
        Broken::Unsure => "unsure",
    };
    json!({
        "key": report.key,
        "owner": report.owner,
        "token": report.token,
        "outcome": outcome,
        "now": now,
        "remaining_ms": remaining.map(|life| u64::try_from(life.as_millis()).unwrap_or(u64::MAX)),
        "nodes": votes(&report.nodes),
        "released": report.released.as_deref().map(votes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_lease_is_waited_for_with_the_drift_that_is_configured() {
        let settings = LockSettings {
            max_ttl: Duration::from_secs(60),
            drift: 0.4,
            ..LockSettings::default()
        };
        assert!(patience(&settings, true) > Duration::from_secs(84) + PATIENCE);
        assert_eq!(patience(&settings, false), PATIENCE);
    }
}
