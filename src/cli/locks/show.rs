//! `locks show`: one lock in full, node by node.

use super::{
    super::{
        Failure,
        history::printable,
        print, print_json,
        status::{ask_within, nobody_was_here, place},
        table::Table,
    },
    PATIENCE,
};
use crate::{
    config::Config,
    lock::{LockError, Locks},
    status::{LockDetail, LockState, locks::NodeLock},
    worker::seeing,
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
        return Err(Failure::Failed(format!("no locks in {}", place(config))));
    }
    let keys = vec![key.to_owned()];
    let mut found = ask_within(PATIENCE, config, |locks| async move {
        details(&locks, keys).await
    })?;
    found
        .pop()
        .ok_or_else(|| Failure::Failed("no answer".to_owned()))
}

/// What every node shows of these locks, with the replicas that hold them.
pub(in crate::cli) async fn details(
    locks: &Locks,
    keys: Vec<String>,
) -> Result<Vec<LockDetail>, LockError> {
    let sightings = locks.look(keys).await?;
    let names: Vec<String> = locks.nodes().await?.into_iter().map(|n| n.name).collect();
    let holders = seeing::holders(locks).await;
    let details = sightings
        .iter()
        .map(|seen| LockDetail::from_nodes(&seen.key, &names, &seen.nodes, seen.expiry()))
        .map(|lock| lock.with_holder(&holders));
    Ok(details.collect())
}

pub(super) fn unknown(lock: &LockDetail, config: &Config) -> Failure {
    let hint = if lock.key.contains('/') || config.locks.raw_keys {
        String::new()
    } else {
        let key = &lock.key;
        format!("; did you mean job/{key}, lock/{key} or elect/{key}?")
    };
    Failure::Failed(format!("no node knows the lock {}{hint}", lock.key))
}

fn describe(lock: &LockDetail) -> String {
    let mut text = format!("{}: {}\n", lock.key, state(lock));
    if let Some(owner) = &lock.owner {
        text += &format!("owner      {owner}\n");
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
            (Some(why), _) => format!("ledger     unreadable: {why}\n"),
            (None, upto) => format!(
                "ledger     decided up to {}, {} runs open, {} ticks waiting\n",
                upto.map_or_else(|| "-".to_owned(), |at| at.to_string()),
                ledger.open,
                ledger.waiting
            ),
        };
    }
    let header = [
        "NODE",
        "KEY",
        "REMAINING",
        "RECORD OF",
        "OVER",
        "ROUND",
        "TOKEN",
        "BODY",
    ];
    let mut table = Table::new(&header);
    for node in &lock.by_node {
        table.row(node_row(node));
    }
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
            "orphaned on {on}: its keys have gone, and its holder may live; whoever wants it watches it for its ttl"
        ),
        LockState::Foreign => format!(
            "foreign on {on}: written by another Redlock client, waited for, and never taken or broken"
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
                let since = holder.since.map(|at| format!(", since {at}"));
                format!(
                    "{}, run by process {} on {}{}",
                    printable(command),
                    holder.pid,
                    printable(&holder.host),
                    since.unwrap_or_default()
                )
            }
            None => format!(
                "replica {} ({}), process {} on {}",
                printable(&holder.name),
                printable(&holder.id),
                holder.pid,
                printable(&holder.host)
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
