//! `move`: what a fleet has decided of its ticks goes along to another store.
//!
//! # Invariants
//! - Nothing is written while a replica tells of itself in either store, a job is led in the old one, or a ledger cannot be read.
//!   (a_fleet_that_runs_is_not_moved, a_ledger_of_a_newer_version_is_not_moved, a_ledger_that_is_damaged_is_not_left_behind)
//! - A ledger that the new store has is never replaced; what was moved before is left as it is. (a_move_can_be_given_again,
//!   a_ledger_of_the_new_store_is_left_alone)
//! - What was moved was written after the new store's last loss of memory: nothing of it counts as unknown.
//!   (what_was_moved_is_not_taken_for_forgotten)
//! - Tokens of a new store that this command admits begin above all that the old one knew; where they do not go on it is said. A run that
//!   is open counts as started under a token of the new one. (tokens_of_the_new_store_begin_above_those_of_the_old_one,
//!   tokens_that_begin_anew_are_told, a_run_that_is_open_goes_on_under_a_token_of_the_new_store)

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use clap::Args;
use futures_util::future::join_all;
use jiff::Timestamp;
use serde_json::json;

use super::{
    ask::{load, no_store, nobody_was_here, on_a_runtime, place},
    failure::Failure,
    output::{print, print_json},
    raw_nodes::{RawNodes, failed, living, no_sense},
    waiting,
};
use crate::{
    Worker,
    clock::Clock,
    config::{Backend, Config, LoadOptions, load_without_jobs},
    error::Error,
    intent::{self, Intent},
    ledger::Ledger,
    lock::{AdmissionReport, AdmissionState, LockError, Locks, tally::majority},
    node::{Answer, Doc, NodeError, Op, Page, Record, Token},
    terminal,
    worker::{connect, store},
};

/// Locks that have a ledger.
const JOBS: &str = "job/";
/// Ledgers that are looked at, or written, at a time.
const AT_ONCE: usize = 32;
/// Between two looks whether every node votes.
const LOOK: Duration = Duration::from_millis(200);
/// On top of the time for which a new node is watched: to reach it, to tell it what others know, and to hear that it votes.
const SLACK: Duration = Duration::from_secs(15);
/// Larger tokens are taken for damage, as the nodes do: no counter comes there by counting.
const DOUBTED: Token = Token((1 << 53) - (1 << 40));
/// How long a lock of the new store is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// `watchkeeper move`
#[derive(Clone, Debug, Args)]
pub struct MoveArgs {
    /// The configuration with the new store; --config names that with the old one
    #[arg(long, value_name = "FILE")]
    pub to: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What a fleet has left in its store.
#[derive(Debug, Default)]
struct Left {
    /// By the jobs' locks.
    ledgers: BTreeMap<String, Ledger>,
    /// Pauses, and triggers that are not done with.
    intents: BTreeMap<String, Doc>,
    /// The largest token.
    token: Token,
}

/// What one node remembers.
#[derive(Debug, Default)]
struct Remembered {
    records: Vec<(String, Record)>,
    docs: Vec<Doc>,
    token: Token,
}

/// What was carried over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Moved {
    ledgers: usize,
    /// Of these: there from an earlier move.
    already: usize,
    pauses: usize,
    triggers: usize,
    /// The smallest token under which one was written, where any was.
    least: Option<Token>,
}

pub(super) fn move_fleet(worker: &Worker, args: &MoveArgs) -> Result<(), Failure> {
    let old = load(worker)?.config;
    let options = LoadOptions {
        file: Some(args.to.clone()),
        ..worker.options.clone()
    };
    let new = load_without_jobs(&options).map_err(Error::Config)?.config;
    refuse_one_store(&old, &new, &args.to.display().to_string())?;
    if nobody_was_here(&old) {
        return Err(no_store(&old));
    }
    let (moved, above) = on_a_runtime(async {
        let from = RawNodes::open(&old)?;
        let left = left_in(&from).await?;
        is_idle(&RawNodes::open(&new)?, "the new store", NOTHING).await?;
        let clock = Clock::system();
        let settings = connect::patient(&new.locks);
        let locks = store::open(&settings, &new.worker.namespace, &clock, Duration::ZERO)?;
        let above = left.token;
        let locks = locks.token_floor(move || floor(above, &clock));
        let locks = locks.start().map_err(Error::Process)?;
        let watched = new
            .locks
            .fleet()
            .map_or(Duration::ZERO, |fleet| fleet.watched());
        let limit = locks.timing().watch_time(watched) + SLACK;
        let voting = until_all_vote(&locks, limit);
        let losses = waiting::shown("waiting until the new store votes", limit, voting).await?;
        let moved = arrive(&locks, left, &losses).await?;
        is_idle(&from, "the old store", ALL_BUT).await?;
        Ok((moved, above))
    })?;
    let anew = begins_anew(&moved, above);
    if args.json {
        return print_json(&json!({
            "ledgers": moved.ledgers,
            "already": moved.already,
            "pauses": moved.pauses,
            "triggers": moved.triggers,
            "tokens_begin_anew": anew.is_some(),
        }));
    }
    print(&told(&moved, &terminal::cell(&place(&new))));
    if let Some(anew) = anew {
        print(&anew);
    }
    Ok(())
}

/// What is told to a person where tokens do not go on. Pure.
fn begins_anew(moved: &Moved, above: Token) -> Option<String> {
    let least = moved.least.filter(|least| *least <= above)?;
    Some(format!(
        "fencing tokens begin anew there (at {}; the old store had {}): take away what receivers remember of them before the \
         workers start",
        least.0, above.0
    ))
}

fn told(moved: &Moved, new: &str) -> String {
    let Moved {
        ledgers,
        already,
        pauses,
        triggers,
        ..
    } = moved;
    let before = match already {
        0 => String::new(),
        n => format!(" ({n} were there from an earlier move)"),
    };
    format!(
        "carried over to {new}: the ledgers of {ledgers} jobs{before}, {pauses} pauses, {triggers} triggers\n\
         start the workers there, and none on the old store any more"
    )
}

/// Where the tokens of a new store begin: by the clock as everywhere, and above those of the old one.
fn floor(above: Token, clock: &Clock) -> Token {
    let micros = u64::try_from(clock.wall().as_microsecond()).unwrap_or(0);
    Token(micros.max(above.0.saturating_add(1)))
}

/// Refuses configurations that lead to one place. Pure.
fn refuse_one_store(old: &Config, new: &Config, file: &str) -> Result<(), Failure> {
    if new.locks.backend == Backend::Memory || old.locks.backend == Backend::Memory {
        return Err(Failure::Usage(
            "a store in memory is private to each process: nothing moves from it, or there"
                .to_owned(),
        ));
    }
    let of = |config: &Config| {
        let locks = &config.locks;
        let addresses = match locks.backend {
            // However it is written.
            Backend::Embedded => json!(std::path::absolute(&locks.embedded.path).ok()),
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

// === the old store ===

/// Everything that goes along, of a fleet that has ended its work.
async fn left_in(nodes: &RawNodes) -> Result<Left, Failure> {
    is_idle(nodes, "the old store", NOTHING).await?;
    let (mut records, mut docs) = (BTreeMap::new(), BTreeMap::new());
    let (mut left, mut silent) = (Left::default(), Vec::new());
    for (n, node) in nodes.nodes.iter().enumerate() {
        match remembered(nodes, n).await {
            Ok(its) => {
                for (key, record) in its.records {
                    keep_newest(&mut records, key, record, |record: &Record| record.version);
                }
                for doc in its.docs {
                    keep_newest(&mut docs, doc.name.clone(), doc, |doc: &Doc| doc.rev);
                }
                left.token = left.token.max(its.token);
            }
            Err(why) => silent.push(format!("{}: {why}", node.name())),
        }
    }
    refuse_minority(nodes.nodes.len(), &silent, NOTHING)?;
    for (key, record) in records {
        let ledger = Ledger::from_body(&record.body);
        let ledger = ledger.map_err(|why| failed(&key, &format!("{why}; nothing was moved")))?;
        if ledger.decided_upto().is_some() {
            left.ledgers.insert(key, ledger);
        }
    }
    let goes_along = |doc: &Doc| match Intent::from_doc(doc) {
        Some(Intent::Pause(pause)) => pause.paused,
        Some(Intent::Trigger(trigger)) => trigger.ended.is_none(),
        _ => false,
    };
    docs.retain(|_, doc| goes_along(doc));
    left.intents = docs;
    Ok(left)
}

/// What was done when a store is refused.
const NOTHING: &str = "nothing was moved";
const ALL_BUT: &str =
    "everything was carried over before, and what is decided there from now on is not";

/// Refuses a store in which a replica tells of itself, or a job is led.
async fn is_idle(nodes: &RawNodes, which: &str, done: &str) -> Result<(), Failure> {
    let mut silent = Vec::new();
    for (n, node) in nodes.nodes.iter().enumerate() {
        let list = |from, count| Op::List {
            prefix: JOBS.to_owned(),
            from,
            count,
        };
        let shown = async {
            let replicas = nodes.presence_on(n).await?;
            Ok::<_, NodeError>((replicas, nodes.pages_of(n, list).await?))
        };
        match shown.await {
            Ok((replicas, pages)) => {
                if let Some(who) = living(&replicas).or_else(|| led(&pages)) {
                    let why = format!("{who}: end every worker on {which} first; {done}");
                    return Err(failed(node.name(), &why));
                }
            }
            Err(why) => silent.push(format!("{}: {why}", node.name())),
        }
    }
    refuse_minority(nodes.nodes.len(), &silent, done)
}

/// A job that a node shows to be led. Pure.
fn led(pages: &[Page]) -> Option<String> {
    let mut views = pages.iter().flat_map(|page| &page.views);
    let led = views.find(|view| view.holder.is_some())?;
    Some(format!("{} is held", led.key))
}

fn refuse_minority(nodes: usize, silent: &[String], done: &str) -> Result<(), Failure> {
    match nodes - silent.len() >= majority(nodes) {
        true => Ok(()),
        false => Err(Failure::of(format!(
            "a majority of the nodes must answer: {}; {done}",
            silent.join("; ")
        ))),
    }
}

fn keep_newest<T, V: Ord>(
    found: &mut BTreeMap<String, T>,
    name: String,
    one: T,
    version: impl Fn(&T) -> V,
) {
    match found.get(&name) {
        Some(known) if version(known) >= version(&one) => {}
        _ => {
            found.insert(name, one);
        }
    }
}

/// What one node remembers of jobs' ledgers, of what people asked for, and of tokens. One that cannot tell all of it tells nothing.
async fn remembered(nodes: &RawNodes, n: usize) -> Result<Remembered, NodeError> {
    let mut found = Remembered::default();
    let kept = |from, count| Op::Records { from, count };
    for page in nodes.pages_of(n, kept).await? {
        found.tokens(page.views.iter().map(|view| view.token));
        let of_jobs = page.bodies.into_iter();
        let of_jobs = of_jobs.filter(|(key, _)| key.starts_with(JOBS));
        found.records.extend(of_jobs);
        // Too large for a page, or damaged.
        for key in page.large.into_iter().filter(|key| key.starts_with(JOBS)) {
            let read = Op::Read { key: key.clone() };
            let Answer::View(view) = nodes.ask_one(n, read).await? else {
                return Err(no_sense());
            };
            found.records.push((key, view.record));
        }
    }
    let versions: Vec<Token> = found.records.iter().map(|(_, r)| r.version.token).collect();
    found.tokens(versions.into_iter());
    // Of what was forgotten since.
    let Answer::Admission(admission) = nodes.ask_one(n, Op::Admission).await? else {
        return Err(no_sense());
    };
    found.tokens([admission.counter].into_iter());
    let asked = |from, count| Op::Docs {
        dir: intent::DIRECTORY.to_owned(),
        from,
        count,
    };
    for page in nodes.pages_of(n, asked).await? {
        found.docs.extend(page.docs);
        for name in page.large {
            let Answer::Docs(docs) = nodes.ask_one(n, Op::Doc { name }).await? else {
                return Err(no_sense());
            };
            found.docs.extend(docs);
        }
    }
    Ok(found)
}

impl Remembered {
    fn tokens(&mut self, tokens: impl Iterator<Item = Token>) {
        let sane = tokens.filter(|token| *token < DOUBTED);
        self.token = sane.fold(self.token, Token::max);
    }
}

// === the new store ===

/// Waits until every node votes; answers with the losses of memory that they tell of.
async fn until_all_vote(locks: &Locks, limit: Duration) -> Result<Vec<Timestamp>, Failure> {
    let clock = locks.clock();
    let until = clock.now() + limit;
    loop {
        let reports = locks.admissions().await.map_err(Failure::of)?;
        let missing = reports.iter().find_map(without_a_vote);
        match missing {
            None => {
                let losses = reports.iter().filter_map(|report| report.memory_loss);
                return Ok(losses
                    .filter_map(|at| Timestamp::from_millisecond(at).ok())
                    .collect());
            }
            Some((name, why, is_final)) if is_final || clock.now() >= until => {
                return Err(failed(&name, &format!("{why}; nothing was moved")));
            }
            Some(_) => clock.sleep(LOOK).await,
        }
    }
}

/// Which node has no vote and why, and whether waiting cannot help. Pure.
fn without_a_vote(report: &AdmissionReport) -> Option<(String, String, bool)> {
    let (why, is_final) = match &report.state {
        AdmissionState::Unguarded | AdmissionState::Admitted | AdmissionState::Elsewhere => {
            return None;
        }
        AdmissionState::Watched { .. } => ("it is new and does not vote yet".to_owned(), false),
        AdmissionState::Waits { waits_for } => (
            format!(
                "it does not vote before it has heard of {}",
                waits_for.join(", ")
            ),
            false,
        ),
        AdmissionState::Configured { differs } => (
            format!("it keeps locks for a fleet that is configured differently: {differs}"),
            true,
        ),
        AdmissionState::Silent(why) => (why.to_string(), false),
        _ => ("it does not vote".to_owned(), false),
    };
    Some((report.name.clone(), why, is_final))
}

/// Writes what was left: nothing of it before all was looked at.
async fn arrive(locks: &Locks, left: Left, losses: &[Timestamp]) -> Result<Moved, Failure> {
    let mut moved = Moved::default();
    let mut ledgers: Vec<(String, Ledger)> = left.ledgers.into_iter().collect();
    for (_, ledger) in &mut ledgers {
        // It is written after them.
        ledger.note_memory_losses(losses);
    }
    moved.ledgers = ledgers.len();
    let mut missing = Vec::new();
    let mut ledgers = ledgers.into_iter().peekable();
    while ledgers.peek().is_some() {
        let some: Vec<_> = ledgers.by_ref().take(AT_ONCE).collect();
        let keys = some.iter().map(|(key, _)| key.clone()).collect();
        let seen = locks.look(keys).await.map_err(Failure::of)?;
        for ((key, ledger), state) in some.into_iter().zip(seen) {
            match is_there(&key, &ledger, &state.record().body)? {
                true => moved.already += 1,
                false => missing.push((key, ledger)),
            }
        }
    }
    for doc in left.intents.values() {
        let Some(intent) = Intent::from_doc(doc) else {
            continue;
        };
        let Some(life) = intent.remaining(locks.wall()) else {
            continue;
        };
        let Doc { name, rev, body } = doc.clone();
        match locks.doc(&name).await.map_err(Failure::of)? {
            // What was said there since is left as it is.
            Some(there) if there.body != body => continue,
            Some(_) => {}
            None => {
                let written = locks.spread_doc(&name, rev, life, body).await;
                enough(locks, written).await?;
            }
        }
        match intent {
            Intent::Pause(_) => moved.pauses += 1,
            _ => moved.triggers += 1,
        }
    }
    // Last: from here on a worker would begin.
    for some in missing.chunks(AT_ONCE) {
        let written = some.iter().map(|(key, ledger)| write(locks, key, ledger));
        for written in join_all(written).await {
            let token = written?;
            moved.least = moved.least.map_or(token, |least| least.min(token)).into();
        }
    }
    Ok(moved)
}

/// Whether the ledger was moved before; refuses one of the new store's own. Pure.
fn is_there(key: &str, ledger: &Ledger, body: &str) -> Result<bool, Failure> {
    if body.is_empty() {
        return Ok(false);
    }
    let own = || {
        failed(
            key,
            "the new store has a ledger of this job already, and it is not the one that would be moved: take another namespace \
             or an empty store",
        )
    };
    let apart_from_tokens = |mut ledger: Ledger| {
        ledger.open_under(Token(0));
        ledger
    };
    match Ledger::from_body(body) {
        Ok(found) if apart_from_tokens(found.clone()) == apart_from_tokens(ledger.clone()) => {
            Ok(true)
        }
        // Of a job that was never seen before.
        Ok(found) if found.decided_upto().is_none() => Ok(false),
        _ => Err(own()),
    }
}

async fn enough(locks: &Locks, written: Result<usize, LockError>) -> Result<(), Failure> {
    let nodes = locks.nodes().await.map_err(Failure::of)?.len();
    let answered = written.map_err(Failure::of)?;
    match answered >= majority(nodes) {
        true => Ok(()),
        false => Err(Failure::of(format!(
            "only {answered} of {nodes} nodes of the new store answered: give the command again when a majority answers"
        ))),
    }
}

/// Under the job's lock, as its leader would; answers with the token of that.
async fn write(locks: &Locks, key: &str, ledger: &Ledger) -> Result<Token, Failure> {
    let lease = locks.lock_key(key).wait(PATIENCE).acquire().await;
    let lease = lease.map_err(|why| failed(key, &why.to_string()))?;
    let token = lease.token();
    let written = match is_there(key, ledger, &lease.record().body) {
        Ok(true) => Ok(token),
        Ok(false) => {
            let mut ledger = ledger.clone();
            ledger.open_under(token);
            let written = locks.write(lease.view(), ledger.to_body(), None).await;
            written
                .map(|()| token)
                .map_err(|why| failed(key, &why.to_string()))
        }
        Err(own) => Err(own),
    };
    lease.release().await;
    written
}
