//! What a fleet has left in its store when its last worker has gone.

use std::collections::BTreeMap;

use super::super::{
    failure::Failure,
    raw_nodes::{RawNodes, failed, living, no_sense},
};
use crate::{
    intent::{self, Intent},
    ledger::{Ledger, OpenRun, RunState},
    lock::tally::majority,
    node::{Answer, Doc, NodeError, Op, Page, Record, Token},
};

/// Locks that have a ledger.
pub(super) const JOBS: &str = "job/";
/// Larger tokens are taken for damage, as the nodes do: no counter comes there by counting.
pub(super) const DOUBTED: Token = Token((1 << 53) - (1 << 40));

/// Which store is meant.
pub(super) const OLD: &str = "the old store";
pub(super) const NEW: &str = "the new store";

/// What was done when a store is refused.
pub(super) const NOTHING: &str = "nothing was moved";
pub(super) const ALL_BUT: &str =
    "everything was carried over before, and what is decided there from now on is not";

/// What a fleet has left in its store.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Left {
    /// By the jobs' locks, as it stands there.
    pub(super) ledgers: BTreeMap<String, (Ledger, Record)>,
    /// Pauses, and triggers that are not done with.
    pub(super) intents: BTreeMap<String, Doc>,
    /// The largest token.
    pub(super) token: Token,
}

/// What one node remembers.
#[derive(Debug, Default)]
struct Remembered {
    records: Vec<(String, Record)>,
    docs: Vec<Doc>,
    token: Token,
}

/// Refuses a store in which no job ever was: most likely another one is meant. Pure.
pub(super) fn refuse_nothing(left: &Left, place: &str) -> Result<(), Failure> {
    match left.ledgers.is_empty() && left.intents.is_empty() {
        true => Err(Failure::of(format!(
            "no job was ever led in {place}: nothing was moved; name the old store with --config"
        ))),
        false => Ok(()),
    }
}

/// Refuses to call it done where the old store has changed since it was read; `remedy` is what to do then. Pure.
pub(super) fn is_as_it_was(then: &Left, now: &Left, remedy: &str) -> Result<(), Failure> {
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
            &format!(
                "it has changed in the old store meanwhile: a worker or a person was there; {remedy}"
            ),
        )),
        None => Ok(()),
    }
}

/// Everything that goes along, of a fleet that has ended its work; `done` is what was done where that cannot be read.
pub(super) async fn left_in(nodes: &RawNodes, done: &str) -> Result<Left, Failure> {
    is_idle(nodes, OLD, done).await?;
    let (mut records, mut docs) = (BTreeMap::new(), BTreeMap::new());
    let (mut token, mut silent) = (Token::default(), Vec::new());
    for (n, node) in nodes.nodes.iter().enumerate() {
        match remembered(nodes, n).await {
            Ok(its) => {
                for (key, record) in its.records {
                    keep_newest(&mut records, key, record, |record: &Record| record.version);
                }
                for doc in its.docs {
                    keep_newest(&mut docs, doc.name.clone(), doc, |doc: &Doc| doc.rev);
                }
                token = token.max(its.token);
            }
            Err(why) => silent.push(format!("{}: {why}", node.name())),
        }
    }
    refuse_minority(nodes.nodes.len(), &silent, OLD, done)?;
    Left::of(records, docs, token).map_err(|why| Failure::of(format!("{why}; {done}")))
}

/// Refuses a store in which a replica tells of itself, or a job is led.
pub(super) async fn is_idle(nodes: &RawNodes, which: &str, done: &str) -> Result<(), Failure> {
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

// === impl Left ===

impl Left {
    /// What goes along of all that there is: ledgers of jobs that were seen, pauses, and triggers that are not done with; or why it
    /// cannot be read. Pure.
    pub(super) fn of(
        records: BTreeMap<String, Record>,
        docs: BTreeMap<String, Doc>,
        token: Token,
    ) -> Result<Self, String> {
        let mut left = Self {
            token,
            ..Self::default()
        };
        for (key, record) in records {
            let ledger = Ledger::from_body(&record.body);
            let ledger = ledger.map_err(|why| format!("{key}: {why}"))?;
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
                    return Err(format!("{name}: {why}"));
                }
            };
            if goes_along {
                left.intents.insert(name, doc);
            }
        }
        Ok(left)
    }

    /// Runs that were under way when their replica went.
    pub(super) fn open(&self) -> usize {
        let running = |run: &&OpenRun| run.state == RunState::Running;
        let ledgers = self.ledgers.values();
        let open = ledgers.map(|(ledger, _)| ledger.open().iter().filter(running).count());
        open.sum()
    }

    /// How many pauses there are, and how many triggers.
    pub(super) fn intents_by_kind(&self) -> (usize, usize) {
        let is_pause = |doc: &&Doc| matches!(Intent::from_doc(doc), Some(Intent::Pause(_)));
        let pauses = self.intents.values().filter(is_pause).count();
        (pauses, self.intents.len() - pauses)
    }
}
