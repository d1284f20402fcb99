//! `locks show`, `locks --leaked` and `locks break`: one lock in full, what nobody will release, and ending a lease.

use std::{
    io::{self, BufRead, IsTerminal, Write},
    time::Duration,
};

use clap::{Args, Subcommand};
use serde_json::json;

use super::{
    Failure,
    place::Place,
    print, print_json,
    status::{self, ask_within, nobody_was_here, place},
    table::Table,
};
use crate::{
    Worker,
    config::{Config, Flag, load_without_jobs},
    lock::{BreakReport, BreakVote, Broken, LockError, Locks},
    status::{
        LockDetail, LockState,
        locks::{Leak, NodeLock, leaks, wants_second_look},
    },
    worker::presence,
};

/// The store is asked for at most this long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Between two looks for leaks: longer than a replica takes to tell what it holds.
const LOOK_AGAIN: Duration = Duration::from_millis(2_500);

/// `watchkeeper locks`
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct LocksArgs {
    /// What to do with one lock.
    #[command(subcommand)]
    pub command: Option<LocksCommand>,
    /// Only what nobody will release, or may not; takes a few seconds
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
    /// End a lease by force, whoever holds it
    ///
    /// The holder cannot extend its lease any more: it is told at its next renewal, within a third of its ttl, and
    /// stops. Until it has released the lock, or its time is up, nobody else gets it, so that no two act. The next
    /// holder's token is larger. Exits with 1 when the lock was not held, or has changed hands meanwhile.
    Break(BreakArgs),
}

/// `watchkeeper locks break`
#[derive(Clone, Debug, Args)]
pub struct BreakArgs {
    /// The lock, as `locks` lists it: job/NAME, lock/NAME
    #[arg(value_name = "KEY")]
    pub key: String,
    /// Only this owner's lease, as `locks show` tells it [default: whoever stands on most nodes]
    #[arg(long, value_name = "OWNER")]
    pub owner: Option<String>,
    /// Free the lock at once. Two may act then, for as long as the lease had left
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
    pub place: Place,
    /// KEY is the Redis key itself, shared with other Redlock clients (locks.raw_keys)
    #[arg(long)]
    pub raw: bool,
}

// === impl At ===

impl At {
    fn config(&self, mut worker: Worker) -> Result<Config, Failure> {
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
        Ok(super::load(&worker)?.config)
    }
}

pub(super) fn locks(worker: Worker, args: LocksArgs) -> Result<(), Failure> {
    match args.command {
        Some(LocksCommand::Show { key, json, at }) => show(&at.config(worker)?, &key, json),
        Some(LocksCommand::Break(args)) => {
            let config = args.at.config(worker)?;
            break_lock(&config, &args)
        }
        None if args.leaked => leaked(&args.at.config(worker)?, &args.prefix, args.json),
        None => status::locks(&args.at.config(worker)?, &args.prefix, args.json),
    }
}

// === show ===

fn show(config: &Config, key: &str, json: bool) -> Result<(), Failure> {
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

fn find(config: &Config, key: &str) -> Result<LockDetail, Failure> {
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
pub(super) async fn details(
    locks: &Locks,
    keys: Vec<String>,
) -> Result<Vec<LockDetail>, LockError> {
    let sightings = locks.look(keys).await?;
    let names: Vec<String> = locks.nodes().await?.into_iter().map(|n| n.name).collect();
    // Who holds it is news, and may be missing.
    let fleet = presence::fleet(locks, None).await.unwrap_or_default();
    let details = sightings
        .iter()
        .map(|seen| LockDetail::from_nodes(&seen.key, &names, &seen.nodes).with_replica(&fleet));
    Ok(details.collect())
}

fn unknown(lock: &LockDetail, config: &Config) -> Failure {
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

fn state(lock: &LockDetail) -> String {
    let on = format!(
        "{} of {} nodes, {} needed",
        lock.nodes, lock.configured, lock.needed
    );
    match lock.state {
        LockState::Held => format!("held on {on}; margin {}", lock.margin.unwrap_or(0)),
        LockState::Broken => {
            format!("broken on {on}: it cannot be extended, and its key runs out")
        }
        LockState::Foreign => format!(
            "foreign on {on}: written by another Redlock client, waited for, and never taken or broken"
        ),
        LockState::Minority => format!("not held; left over on {on}"),
        LockState::Released => "free, released".to_owned(),
        LockState::Unreleased => "free; its last holder never released it".to_owned(),
        LockState::Unknown => "unknown".to_owned(),
    }
}

fn holder(lock: &LockDetail) -> String {
    match &lock.replica {
        Some(replica) => format!(
            "replica {} ({}), process {} on {}",
            replica.name, replica.id, replica.pid, replica.host
        ),
        None if lock.state == LockState::Foreign => "a foreign client".to_owned(),
        None => "unknown: no replica says that it is the holder".to_owned(),
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

// === leaked ===

fn leaked(config: &Config, prefix: &str, json: bool) -> Result<(), Failure> {
    let found: Vec<Leak> = if nobody_was_here(config) {
        Vec::new()
    } else {
        let prefix = prefix.to_owned();
        ask_within(PATIENCE + LOOK_AGAIN, config, |locks| async move {
            let views = locks.list(&prefix).await?;
            let keys = views.iter().filter_map(|views| views.first());
            let keys: Vec<String> = keys.map(|view| view.key.clone()).collect();
            let then = details(&locks, keys.clone()).await?;
            if !then.iter().any(wants_second_look) {
                return Ok(leaks(&then, &then));
            }
            locks.clock().sleep(LOOK_AGAIN).await;
            Ok(leaks(&then, &details(&locks, keys).await?))
        })?
    };
    if json {
        return print_json(&found);
    }
    if found.is_empty() {
        print(&format!("nothing leaked in {}", place(config)));
        return Ok(());
    }
    let mut text = String::new();
    for leak in &found {
        text += &format!(
            "{} ({}): {}\n  -> {}\n",
            leak.key,
            leak.nodes.join(", "),
            leak.finding,
            leak.remedy
        );
    }
    print(&text);
    Ok(())
}

// === break ===

fn break_lock(config: &Config, args: &BreakArgs) -> Result<(), Failure> {
    let lock = find(config, &args.key)?;
    let owner = whose(&lock, args, config)?;
    if !args.yes && !confirmed(&lock, &owner, args.now)? {
        return Err(Failure::Failed("nothing was changed".to_owned()));
    }
    let (key, broken_owner, now) = (args.key.clone(), owner.clone(), args.now);
    let report = ask_within(PATIENCE, config, |locks| async move {
        locks.break_lease(&key, &broken_owner, now).await
    })?;
    let told = outcome(&report, args.now);
    if args.json {
        print_json(&as_json(&report, args.now))?;
    } else {
        print(&node_results(&report));
        if let Ok(text) = &told {
            print(text);
        }
    }
    told.map(drop).map_err(Failure::Failed)
}

/// Whose lease is to be ended, if there is one that may be.
fn whose(lock: &LockDetail, args: &BreakArgs, config: &Config) -> Result<String, Failure> {
    let failed = |why: String| Err(Failure::Failed(why));
    let key = &lock.key;
    let down: Vec<String> = lock
        .by_node
        .iter()
        .filter_map(|n| Some(format!("{}: {}", n.node, n.error.as_ref()?)))
        .collect();
    if down.len() > lock.configured - lock.needed {
        return failed(format!(
            "a break needs {} of {} nodes: {}",
            lock.needed,
            lock.configured,
            down.join("; ")
        ));
    }
    if lock.state == LockState::Unknown {
        return Err(unknown(lock, config));
    }
    let standing = |owner: &str| {
        let rows = lock.by_node.iter();
        rows.filter(|n| n.holder.as_deref() == Some(owner))
            .collect::<Vec<_>>()
    };
    let Some(owner) = args.owner.as_ref().or(lock.owner.as_ref()) else {
        return failed(format!("{key} is not held"));
    };
    let shown = standing(owner);
    if shown.is_empty() {
        return failed(match (&args.owner, &lock.owner) {
            (Some(_), Some(other)) if lock.nodes > 0 => {
                format!("{key} has changed hands: {other} stands there, not {owner}")
            }
            _ => format!("{key} is not held"),
        });
    }
    if shown.iter().all(|n| n.foreign) {
        return failed(format!(
            "{key} shows {owner}, a value of another Redlock client: such are never broken, because nothing tells us \
             what its program does; stop that program, or remove the key by hand when it has gone"
        ));
    }
    Ok(owner.clone())
}

fn confirmed(lock: &LockDetail, owner: &str, now: bool) -> Result<bool, Failure> {
    let mut err = io::stderr().lock();
    let life = lock
        .by_node
        .iter()
        .filter(|n| n.holder.as_deref() == Some(owner));
    let life: Option<Vec<u64>> = life.map(|n| n.remaining_ms).collect();
    let life = life.and_then(|all| all.into_iter().max()).map_or_else(
        || "for max_ttl, because it has no end of its own".to_owned(),
        |ms| format!("for {ms} ms"),
    );
    let text = format!(
        "{}: {}\nholder: {}; owner {owner}, token {}\n{}",
        lock.key,
        state(lock),
        holder(lock),
        lock.token,
        warning(now, &life)
    );
    let _ = writeln!(err, "{text}");
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "there is no terminal to ask on: say --yes to break it".to_owned(),
        ));
    }
    let _ = write!(err, "Break it? [y/N] ");
    let _ = err.flush();
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Failure::Failed(error.to_string()))?;
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

fn node_results(report: &BreakReport) -> String {
    let mut table = Table::new(&["NODE", "RESULT"]);
    for (name, vote) in &report.nodes {
        let (word, why) = result(vote);
        let why = why.map(|why| format!(": {why}")).unwrap_or_default();
        table.row([name.clone(), format!("{word}{why}")]);
    }
    table.to_string()
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
