//! How what was left arrives in another store.

use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;

use super::super::{
    failure::Failure,
    output::note,
    raw_nodes::{RawNodes, failed},
    waiting::{self, Count},
};
use super::left::{Left, NEW, NOTHING, is_idle};
use crate::{
    clock::Clock,
    config::Config,
    error::Error,
    human::Span,
    intent::Intent,
    ledger::Ledger,
    lock::{AdmissionReport, AdmissionState, LockError, Locks, tally::majority},
    node::{Doc, NodeError, Token},
    terminal,
    worker::{connect, store},
};

/// Ledgers that are looked at, or written, at a time.
const AT_ONCE: usize = 32;
/// Between two looks whether every node votes.
const LOOK: Duration = Duration::from_millis(200);
/// On top of the time for which a new node is watched: to reach it, to tell it what others know, and to hear that it votes.
const SLACK: Duration = Duration::from_secs(15);

/// What was carried over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) ledgers: usize,
    /// Of these: there from an earlier move.
    pub(super) already: usize,
    pub(super) pauses: usize,
    pub(super) triggers: usize,
    /// Runs that were under way when their replica went.
    pub(super) open: usize,
    /// The smallest token under which a ledger was written.
    pub(super) least: Option<Token>,
}

/// What is told to a person where tokens do not go on. Pure.
pub(super) fn begins_anew(moved: &Moved, above: Token) -> Option<String> {
    let least = moved.least.filter(|least| *least <= above)?;
    Some(format!(
        "fencing tokens begin anew there (at {}; the old store had {}): take away what receivers remember of them before the \
         workers start",
        least.0, above.0
    ))
}

/// Where the tokens of a new store begin: by the clock as everywhere, and above those of the old one.
pub(super) fn floor(above: Token, clock: &Clock) -> Token {
    let micros = u64::try_from(clock.wall().as_microsecond()).unwrap_or(0);
    Token(micros.max(above.0.saturating_add(1)))
}

/// The new store when all of it votes, and the losses of memory that its nodes tell of. Tokens that begin there do so above this one.
pub(super) async fn opened(
    new: &Config,
    nodes: &RawNodes,
    above: Token,
) -> Result<(Locks, Vec<Timestamp>), Failure> {
    is_idle(nodes, NEW, NOTHING).await?;
    let clock = Clock::system();
    let settings = connect::patient(&new.locks);
    let locks = store::open(&settings, &new.worker.namespace, &clock, Duration::ZERO)?;
    let locks = locks.token_floor(move || floor(above, &clock));
    let locks = locks.start().map_err(Error::Process)?;
    let watched = new
        .locks
        .fleet()
        .map_or(Duration::ZERO, |fleet| fleet.watched());
    let limit = locks.timing().watch_time(watched) + SLACK;
    let voting = until_all_vote(&locks, limit);
    let losses = waiting::shown("waiting until the new store votes", limit, voting).await?;
    Ok((locks, losses))
}

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
            format!(
                "it keeps locks for a fleet that is configured differently: {differs}; {}",
                NodeError::to_agree(differs)
            ),
            true,
        ),
        AdmissionState::Silent(why) => (why.to_string(), false),
        _ => ("it does not vote".to_owned(), false),
    };
    Some((report.name.clone(), why, is_final))
}

/// Writes what was left: nothing of it before all was looked at. `one_store` is what is said where it seems to have been read from this
/// very store: where all of it is there under the same versions. Of a file that is nothing wrong.
pub(super) async fn arrive(
    locks: &Locks,
    left: &Left,
    losses: &[Timestamp],
    one_store: Option<&str>,
    count: &Count,
) -> Result<Moved, Failure> {
    let mut moved = Moved {
        ledgers: left.ledgers.len(),
        open: left.open(),
        ..Moved::default()
    };
    let (mut missing, mut others) = (Vec::new(), 0);
    let ledgers: Vec<_> = left.ledgers.iter().collect();
    count.begin("looking at the new store", ledgers.len());
    for some in ledgers.chunks(AT_ONCE) {
        let keys = some.iter().map(|(key, _)| (*key).clone()).collect();
        let seen = locks.look(keys).await.map_err(Failure::of)?;
        for ((key, (ledger, was)), state) in some.iter().zip(seen) {
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
        count.more(some.len());
    }
    // A store that was moved to has written each of them itself.
    let is_same = missing.is_empty() && !ledgers.is_empty() && others == 0;
    if let Some(why) = one_store.filter(|_| is_same) {
        return Err(Failure::Usage(format!("{why}: {NOTHING}")));
    }
    count.begin("carrying over pauses and triggers", left.intents.len());
    for doc in left.intents.values() {
        match carry(locks, doc).await? {
            Some(Intent::Pause(_)) => moved.pauses += 1,
            Some(_) => moved.triggers += 1,
            None => {}
        }
        count.more(1);
    }
    // Last: from here on a worker would begin.
    count.begin("carrying over ledgers", missing.len());
    for some in missing.chunks(AT_ONCE) {
        let written = some.iter().map(|(key, ledger)| async move {
            let written = write(locks, key, ledger).await;
            count.more(1);
            written
        });
        for written in join_all(written).await {
            moved.saw(written?);
        }
    }
    Ok(moved)
}

/// Writes what was asked for, as far as it still is; nothing where something else was said in the new store since.
async fn carry(locks: &Locks, doc: &Doc) -> Result<Option<Intent>, Failure> {
    let Some(intent) = Intent::from_doc(doc) else {
        return Ok(None);
    };
    let Some(life) = intent.remaining(locks.wall()) else {
        return Ok(None);
    };
    let Doc { name, rev, body } = doc.clone();
    match locks.doc(&name).await.map_err(Failure::of)? {
        // What was said there since is left as it is.
        Some(there) if there.body != body => return Ok(None),
        Some(_) => {}
        None => {
            let written = locks.spread_doc(&name, rev, life, body).await;
            enough(locks, written).await?;
        }
    }
    Ok(Some(intent))
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
