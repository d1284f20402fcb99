//! `locks show`: one lock in full, node by node.

use super::super::{
    ask::{Limits, PATIENCE, ask, no_store, nobody_was_here},
    failure::Failure,
    output::{print, print_json},
    table::Table,
};
use crate::{
    config::Config,
    fleet::status::{LockDetail, LockState, locks::NodeLock},
    human::At,
    terminal::cell,
};

pub(super) fn show(config: &Config, key: &str, json: bool) -> Result<(), Failure> {
    let lock = find(config, key)?;
    if json {
        print_json(&lock)?;
    } else {
        print(&describe(&lock));
    }
    if lock.by_node.iter().all(|node| node.error.is_some()) {
        return Err(Failure::Failed("no node answered".to_owned()));
    }
    if lock.state == LockState::Unknown {
        return Err(unknown(&lock, config));
    }
    Ok(())
}

pub(super) fn find(config: &Config, key: &str) -> Result<LockDetail, Failure> {
    if nobody_was_here(config) {
        return Err(no_store(config));
    }
    ask(config, Limits::nodes(PATIENCE), |fleet| async move {
        fleet.lock(key).await
    })
}

/// No node knows it. Of the names it may have been meant for those are said that there are.
pub(super) fn unknown(lock: &LockDetail, config: &Config) -> Failure {
    let key = &lock.key;
    let mut meant = Vec::new();
    if !key.contains('/') && !config.locks.raw_keys {
        let keys = ["job", "lock", "elect"].map(|family| format!("{family}/{key}"));
        let found = ask(config, Limits::nodes(PATIENCE), |fleet| async move {
            fleet.details(keys.into()).await
        });
        // Only a hint: a command that is not told one has lost nothing.
        meant = found.unwrap_or_default();
        meant.retain(|other| other.state != LockState::Unknown);
    }
    let meant: Vec<String> = meant.iter().map(|other| cell(&other.key)).collect();
    let hint = match meant.is_empty() {
        true => "`locks` lists those there are".to_owned(),
        false => format!("did you mean {}?", meant.join(" or ")),
    };
    Failure::Failed(format!("no node knows the lock {}; {hint}", cell(key)))
}

pub(in crate::cli) fn describe(lock: &LockDetail) -> String {
    let mut text = format!("{}: {}\n", cell(&lock.key), state(lock));
    if let Some(owner) = &lock.owner {
        text += &format!("owner      {}\n", cell(owner));
    }
    text += &format!("token      {}\n", lock.token);
    if let Some(ms) = lock.remaining_ms {
        text += &format!("remaining  {ms} ms, unless it is extended\n");
    }
    if lock.nodes > 0 {
        text += &format!("holder     {}\n", holder(lock));
    }
    if let Some(ledger) = &lock.ledger {
        text += &match (&ledger.error, &ledger.decided_upto) {
            (Some(why), _) => format!("ledger     unreadable: {}\n", cell(why)),
            (None, upto) => format!(
                "ledger     decided up to {}, {} runs open, {} ticks waiting\n",
                upto.map_or_else(|| "-".to_owned(), |at| At(at).to_string()),
                ledger.open,
                ledger.waiting
            ),
        };
    }
    let header = "NODE | KEY | REMAINING | RECORD OF | OVER | ROUND | TOKEN | BODY";
    let table = Table::text(header, lock.by_node.iter().map(node_row));
    text + &format!("\n{table}")
}

pub(super) fn state(lock: &LockDetail) -> String {
    let on = format!(
        "{} of {} nodes, {} needed",
        lock.nodes, lock.configured, lock.needed
    );
    match lock.state {
        LockState::Held => format!("held on {on}; margin {}", lock.margin.unwrap_or(0)),
        LockState::Broken => {
            format!("broken on {on}: it cannot be extended, and its key runs out")
        }
        LockState::Orphaned => format!(
            "orphaned on {on}: its keys have gone, and its holder may live; the next candidate watches it for its ttl"
        ),
        LockState::Foreign => format!(
            "foreign on {on}: written by another Redlock client, which is waited for, never taken and never broken; or damaged, which \
             counts as held until the longest lease is over"
        ),
        LockState::Minority => format!("not held; left over on {on}"),
        LockState::Released => "free, released".to_owned(),
        LockState::Unreleased => "free; its last holder never released it".to_owned(),
        LockState::Unknown => "unknown".to_owned(),
    }
}

pub(super) fn holder(lock: &LockDetail) -> String {
    match &lock.holder {
        Some(holder) => match &holder.command {
            Some(command) => {
                let since = holder.since.map(|at| format!(", since {}", At(at)));
                format!(
                    "{}, run by process {} on {}{}",
                    cell(command),
                    holder.pid,
                    cell(&holder.host),
                    since.unwrap_or_default()
                )
            }
            None => format!(
                "replica {} ({}), process {} on {}",
                cell(&holder.name),
                cell(&holder.id),
                holder.pid,
                cell(&holder.host)
            ),
        },
        None if lock.state == LockState::Foreign => "a foreign client".to_owned(),
        None => "unknown: no process says that it is the holder".to_owned(),
    }
}

fn node_row(node: &NodeLock) -> [String; 8] {
    if let Some(why) = &node.error {
        let mut row = [const { String::new() }; 8];
        row[0].clone_from(&node.node);
        row[1] = format!("({why})");
        return row;
    }
    let key = match &node.holder {
        Some(holder) if node.foreign => format!("{holder} (foreign)"),
        Some(holder) => holder.clone(),
        None => "free".to_owned(),
    };
    let remaining = match node.remaining_ms {
        Some(ms) => format!("{ms} ms"),
        None if node.endless => "never ends".to_owned(),
        None => String::new(),
    };
    let over = if node.released { "yes" } else { "no" };
    let body = format!("{}.{}", node.body_token, node.rev);
    [
        node.node.clone(),
        key,
        remaining,
        node.owner.clone().unwrap_or_default(),
        node.owner
            .as_ref()
            .map_or(String::new(), |_| over.to_owned()),
        node.seq.to_string(),
        node.token.to_string(),
        body,
    ]
}
