//! `move`: what a fleet has decided of its ticks goes along to another store.
//!
//! # Invariants
//! - Nothing is written while a replica tells of itself in either store, a job is led in the old one, or a ledger cannot be read.
//!   (a_fleet_that_runs_is_not_moved, a_ledger_of_a_newer_version_is_not_moved, a_ledger_that_is_damaged_is_not_left_behind,
//!   a_pause_that_cannot_be_read_is_not_left_behind, what_a_node_without_a_vote_remembers_does_not_count)
//! - What is decided in the old store while the new one is waited for goes along; what is decided there later is told.
//!   (what_changes_in_the_old_store_meanwhile_is_told)
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
    output::{note, print, print_json},
    raw_nodes::{RawNodes, failed, living, no_sense},
    waiting,
};
use crate::{
    Worker,
    clock::Clock,
    config::{Backend, Config, LoadOptions, load_without_jobs},
    error::Error,
    human::Span,
    intent::{self, Intent},
    ledger::{Ledger, OpenRun, RunState},
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

/// Which store is meant.
const OLD: &str = "the old store";
const NEW: &str = "the new store";

/// What was done when a store is refused.
const NOTHING: &str = "nothing was moved";
const ALL_BUT: &str =
    "everything was carried over before, and what is decided there from now on is not";

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
#[derive(Debug, Default, PartialEq)]
struct Left {
    /// By the jobs' locks, as it stands there.
    ledgers: BTreeMap<String, (Ledger, Record)>,
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
    /// Runs that were under way when their replica went.
    open: usize,
    /// The smallest token under which a ledger was written.
    least: Option<Token>,
}

pub(super) fn move_fleet(worker: &Worker, args: &MoveArgs) -> Result<(), Failure> {
    let old = load(worker)?.config;
    let options = LoadOptions {
        file: Some(args.to.clone()),
        ..worker.options.clone()
    };
    let file = args.to.display().to_string();
    if !args.to.is_file() {
        let why = format!("--to: {file} is no file that can be read");
        return Err(Failure::Usage(why));
    }
    let loaded = load_without_jobs(&options).map_err(Error::Config)?;
    if loaded.store_by_default().is_some() {
        let why = format!("--to: {file} names no store: say locks.backend, and where it is");
        return Err(Failure::Usage(why));
    }
    let new = loaded.config;
    refuse_one_store(&old, &new, &file)?;
    if nobody_was_here(&old) {
        return Err(no_store(&old));
    }
    let (moved, above, places) = on_a_runtime(async {
        let (from, to) = (RawNodes::open(&old)?, RawNodes::open(&new)?);
        let places = [shown(&old, &from), shown(&new, &to)];
        let left = left_in(&from, NOTHING).await?;
        refuse_nothing(&left, &places[0])?;
        is_idle(&to, NEW, NOTHING).await?;
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
        // That took its time.
        let left = left_in(&from, NOTHING).await?;
        is_idle(&to, NEW, NOTHING).await?;
        let above = above.max(left.token);
        let moved = arrive(&locks, &left, &losses).await?;
        is_as_it_was(&left, &left_in(&from, ALL_BUT).await?)?;
        Ok((moved, above, places))
    })?;
    let anew = begins_anew(&moved, above);
    if args.json {
        return print_json(&json!({
            "ledgers": moved.ledgers,
            "already": moved.already,
            "pauses": moved.pauses,
            "triggers": moved.triggers,
            "open": moved.open,
            "tokens_begin_anew": anew.is_some(),
        }));
    }
    print(&told(&moved, &places));
    if let Some(anew) = anew {
        print(&anew);
    }
    Ok(())
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

/// What is told to a person where tokens do not go on. Pure.
fn begins_anew(moved: &Moved, above: Token) -> Option<String> {
    let least = moved.least.filter(|least| *least <= above)?;
    Some(format!(
        "fencing tokens begin anew there (at {}; the old store had {}): take away what receivers remember of them before the \
         workers start",
        least.0, above.0
    ))
}

fn told(moved: &Moved, [old, new]: &[String; 2]) -> String {
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
    format!(
        "carried over from {old} to {new}: ledgers of jobs: {ledgers}{before}, pauses: {pauses}, triggers: {triggers}\n{open}\
         start the workers there, and none on the old store any more"
    )
}

/// Refuses a store in which no job ever was: most likely another one is meant. Pure.
fn refuse_nothing(left: &Left, place: &str) -> Result<(), Failure> {
    match left.ledgers.is_empty() && left.intents.is_empty() {
        true => Err(Failure::of(format!(
            "no job was ever led in {place}: nothing was moved; name the old store with --config"
        ))),
        false => Ok(()),
    }
}

/// Refuses to call it done where the old store has changed since it was read. Pure.
fn is_as_it_was(then: &Left, now: &Left) -> Result<(), Failure> {
    let new = now
        .ledgers
        .iter()
        .find(|(key, ledger)| then.ledgers.get(*key) != Some(ledger));
    let changed = new.map(|(key, _)| key);
    let intent = || {
        let same = |name: &&String| now.intents.get(*name) != then.intents.get(*name);
        now.intents.keys().chain(then.intents.keys()).find(same)
    };
    match changed.or_else(intent) {
        Some(what) => Err(failed(
            what,
            "it has changed in the old store meanwhile, and what was carried over before is older: a worker or a person was there; \
             empty the new store, and move again",
        )),
        None => Ok(()),
    }
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

// === the old store ===

/// Everything that goes along, of a fleet that has ended its work; `done` is what was done where that cannot be read.
async fn left_in(nodes: &RawNodes, done: &str) -> Result<Left, Failure> {
    is_idle(nodes, OLD, done).await?;
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
    refuse_minority(nodes.nodes.len(), &silent, OLD, done)?;
    for (key, record) in records {
        let ledger = Ledger::from_body(&record.body);
        let ledger = ledger.map_err(|why| failed(&key, &format!("{why}; {done}")))?;
        if ledger.decided_upto().is_some() {
            left.ledgers.insert(key, (ledger, record));
        }
    }
    for (name, doc) in docs {
        let goes_along = match Intent::from_doc(&doc) {
            Some(Intent::Pause(pause)) => pause.paused,
            Some(Intent::Trigger(trigger)) => trigger.ended.is_none(),
            // They are about processes that have gone.
            Some(Intent::Resign(_) | Intent::Drain(_)) => false,
            None => {
                let why = "it cannot be read, or was asked for by a newer version";
                return Err(failed(&name, &format!("{why}; {done}")));
            }
        };
        if goes_along {
            left.intents.insert(name, doc);
        }
    }
    Ok(left)
}

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
                    let why = format!(
                        "{who}: end every worker on {which} first (the lease of a `move` that was killed ends by itself); {done}"
                    );
                    return Err(failed(node.name(), &why));
                }
            }
            Err(why) => silent.push(format!("{}: {why}", node.name())),
        }
    }
    refuse_minority(nodes.nodes.len(), &silent, which, done)
}

/// A job that a node shows to be led. Pure.
fn led(pages: &[Page]) -> Option<String> {
    let mut views = pages.iter().flat_map(|page| &page.views);
    let led = views.find(|view| view.holder.is_some())?;
    Some(format!("{} is held", led.key))
}

fn refuse_minority(
    nodes: usize,
    silent: &[String],
    which: &str,
    done: &str,
) -> Result<(), Failure> {
    match nodes - silent.len() >= majority(nodes) {
        true => Ok(()),
        false => Err(Failure::of(format!(
            "too few nodes of {which} answer and vote: {}; {done}",
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
    if nodes.guarded && !admission.admitted {
        return Err(NodeError::Unadmitted { left: None });
    }
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
    let mut told = false;
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
            Some((name, why, _)) => {
                if !std::mem::replace(&mut told, true) {
                    let limit = Span(Duration::from_secs(limit.as_secs()));
                    note(&terminal::sentence(&format!(
                        "{name}: {why}: waiting for up to {limit}"
                    )));
                }
                clock.sleep(LOOK).await;
            }
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
async fn arrive(locks: &Locks, left: &Left, losses: &[Timestamp]) -> Result<Moved, Failure> {
    let mut moved = Moved {
        ledgers: left.ledgers.len(),
        ..Moved::default()
    };
    let (mut missing, mut others) = (Vec::new(), 0);
    let ledgers: Vec<_> = left.ledgers.iter().collect();
    for some in ledgers.chunks(AT_ONCE) {
        let keys = some.iter().map(|(key, _)| (*key).clone()).collect();
        let seen = locks.look(keys).await.map_err(Failure::of)?;
        for ((key, (ledger, was)), state) in some.iter().zip(seen) {
            let running = |run: &&OpenRun| run.state == RunState::Running;
            moved.open += ledger.open().iter().filter(running).count();
            let mut ledger = ledger.clone();
            // It is written after them.
            ledger.note_memory_losses(losses);
            let there = state.record();
            if is_there(key, &ledger, &there.body)? {
                moved.already += 1;
                moved.saw(there.version.token);
                others += usize::from(there != *was);
            } else {
                missing.push(((*key).clone(), ledger));
            }
        }
    }
    // A store that was moved to has written each of them itself.
    if missing.is_empty() && !ledgers.is_empty() && others == 0 {
        return Err(Failure::Usage(
            "both configurations lead to one store, however they write where it is: nothing was moved".to_owned(),
        ));
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
            moved.saw(written?);
        }
    }
    Ok(moved)
}

impl Moved {
    /// A ledger stands in the new store under this token.
    fn saw(&mut self, token: Token) {
        self.least = Some(self.least.map_or(token, |least| least.min(token)));
    }
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
    // What a move has left that was killed is watched for as long as it may have been held.
    let timing = locks.timing();
    let patience = timing.watch_time(timing.max_ttl) + SLACK;
    let lease = locks.lock_key(key).wait(patience).acquire().await;
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
