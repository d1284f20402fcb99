//! `locks break`: ends a lease by force, once its user has said that it is meant.

use std::io::{self, BufRead, IsTerminal};

use serde_json::json;

use super::{
    super::{
        ask::{Limits, PATIENCE, ask},
        failure::Failure,
        output::{print, print_json},
        table::Table,
    },
    args::BreakArgs,
    show::{find, holder, state, unknown},
};
use crate::{
    config::Config,
    fleet::{
        breakable,
        status::{LockDetail, LockState, locks::NodeLock},
    },
    lock::{BreakReport, BreakVote, Broken},
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
    let report = ask(config, Limits::nodes(PATIENCE), |fleet| async move {
        fleet.break_lock(key, broken_owner, args.now).await
    })?;
    let told = outcome(&report, args.now);
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
    if now {
        format!(
            "With --now the lock is free at once. Its holder is told at its next renewal, and may go on {life}: two may \
             act, unless what they change compares tokens."
        )
    } else {
        format!(
            "Its holder is told at its next renewal, within a third of its ttl, and stops its work. It may go on until \
             then, and {life} at most when it cannot be told; nobody else gets the lock before."
        )
    }
}

/// What came of it; an error when there was nothing to break, or not enough nodes know.
fn outcome(report: &BreakReport, now: bool) -> Result<String, String> {
    let key = &report.key;
    match report.outcome() {
        Broken::Final => {
            let within = report.remaining().map_or_else(
                || "max_ttl".to_owned(),
                |life| format!("{} ms", life.as_millis()),
            );
            let token = report.token;
            Ok(if now {
                format!(
                    "broken, under token {token}: {key} is free; its old holder may act for up to {within}"
                )
            } else {
                format!(
                    "broken, under token {token}: {key} is free when its holder has released it, within {within} at the latest"
                )
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
    let rows = report.nodes.iter().map(|(name, vote)| {
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
    let nodes = report.nodes.iter().map(|(name, vote)| {
        let (word, why) = result(vote);
        json!({ "node": name, "result": word, "detail": why })
    });
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
        "remaining_ms": report.remaining().map(|life| u64::try_from(life.as_millis()).unwrap_or(u64::MAX)),
        "nodes": nodes.collect::<Vec<_>>(),
    })
}
