//! `retry` and `park`.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, IsTerminal},
    time::Duration,
};

use crate::notifications::{
    cell::ItemId,
    delivery::State,
    operator::{Did, FIRST_STEP, next_step},
};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use watchkeeper::{Worker, clock::Clock, terminal};

use super::{
    args::{ParkArgs, RetryArgs},
    failure::Failure,
    show,
    which::{self, Mailing},
};

/// More items than this are asked about first.
const FEW: usize = 10;
/// Items that are named, changed in one transaction.
const TOGETHER: usize = 100;
/// The shortest pause between two transactions, in which senders get their turn.
const PAUSE: Duration = Duration::from_millis(5);

/// What is to become of items that are named.
#[derive(Clone, Copy)]
enum Order {
    Retry,
    Park,
}

/// What came of an order.
#[derive(Default)]
struct Outcomes {
    /// Items by what became of them.
    counts: BTreeMap<&'static str, u64>,
    /// Items that were named and left alone: the word and why.
    alone: Vec<(String, String)>,
}

pub(super) async fn retry(worker: &Worker, args: &RetryArgs) -> Result<(), Failure> {
    let (mailing, words) = which::with_ids(worker, &args.words)?;
    let states = match args.all {
        true => vec![State::Dead, State::Parked],
        false => args.state.clone(),
    };
    match (words.is_empty(), states.is_empty()) {
        (true, true) => Err(Failure::Usage(
            "say which: ids as `notify dead` lists them, --all, or --state dead".to_owned(),
        )),
        (false, false) => Err(Failure::Usage(
            "name items, or all of a state: not both".to_owned(),
        )),
        (false, true) => {
            confirm(words.len(), &mailing, "send", args.yes)?;
            let outcomes = by_name(&mailing, words, Order::Retry).await?;
            report(&mailing, outcomes, "retry", args.json)
        }
        (true, false) => retry_states(&mailing, &states, args).await,
    }
}

pub(super) async fn park(worker: &Worker, args: &ParkArgs) -> Result<(), Failure> {
    let (mailing, words) = which::with_ids(worker, &args.words)?;
    if words.is_empty() {
        return Err(Failure::Usage(format!(
            "say which items of {} to put aside",
            mailing.job
        )));
    }
    confirm(words.len(), &mailing, "park", args.yes)?;
    let outcomes = by_name(&mailing, words, Order::Park).await?;
    report(&mailing, outcomes, "park", args.json)
}

/// Some items, each named.
async fn by_name(mailing: &Mailing, words: &[String], order: Order) -> Result<Outcomes, Failure> {
    let mut table = mailing.change().await?;
    let mut outcomes = Outcomes::default();
    for some in words.chunks(TOGETHER) {
        let mut meant = Vec::with_capacity(some.len());
        for word in some {
            match table.find(word).await? {
                Some(id) => meant.push((word, id)),
                None => outcomes.add(word, Did::Unknown),
            }
        }
        let ids: Vec<ItemId> = meant.iter().map(|(_, id)| id.clone()).collect();
        if ids.is_empty() {
            continue;
        }
        let dids = match order {
            Order::Retry => table.retry(&ids).await?,
            Order::Park => table.park(&ids).await?,
        };
        for ((word, _), did) in meant.iter().zip(dids) {
            outcomes.add(word, did);
        }
    }
    Ok(outcomes)
}

/// All items of these states, in short transactions.
async fn retry_states(
    mailing: &Mailing,
    states: &[State],
    args: &RetryArgs,
) -> Result<(), Failure> {
    let mut table = mailing.change().await?;
    let items = table.standing().await?.items;
    let all: u64 = states.iter().map(|state| items.of(*state)).sum();
    if all == 0 {
        let states: Vec<&str> = states.iter().map(|state| state.word()).collect();
        return Err(Failure::Failed(format!(
            "no item of {} is {}: nothing to send again",
            mailing.job,
            states.join(" or ")
        )));
    }
    // They were not named one by one: it is always asked.
    let many = usize::try_from(all).unwrap_or(usize::MAX);
    confirm(many.max(FEW + 1), mailing, "send", args.yes)?;
    let clock = Clock::system();
    let bar = progress_bar(all);
    let mut outcomes = Outcomes::default();
    for state in states {
        let (mut place, mut size) = (None, FIRST_STEP);
        loop {
            let step = table.retry_step(*state, place.as_ref(), size).await?;
            outcomes.count(Did::Changed, step.changed);
            outcomes.count(Did::Forgotten, step.forgotten);
            outcomes.count(Did::Sending, step.sending);
            bar.inc(step.changed + step.forgotten + step.sending);
            if step.last.is_none() {
                break;
            }
            place = step.last;
            size = next_step(size, step.took);
            clock.sleep(step.took.max(PAUSE)).await;
        }
    }
    bar.finish_and_clear();
    report(mailing, outcomes, "retry", args.json)
}

/// On standard error, where that is a terminal.
pub(super) fn progress_bar(items: u64) -> ProgressBar {
    let bar = ProgressBar::new(items);
    if let Ok(style) = ProgressStyle::with_template("{pos} of {len} items [{bar:40}] {eta} left") {
        bar.set_style(style);
    }
    bar
}

/// Asks whether so many are meant.
fn confirm(items: usize, mailing: &Mailing, verb: &str, yes: bool) -> Result<(), Failure> {
    if yes || items <= FEW {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(format!(
            "there is no terminal to ask on: say --yes to {verb} many items of {} at once",
            mailing.job
        )));
    }
    let again = if verb == "send" { " again" } else { "" };
    terminal::ask(&format!(
        "{verb} {items} items of {}{again}? [y/N] ",
        mailing.job
    ));
    let mut answer = String::new();
    let _ = io::stdin().lock().read_line(&mut answer);
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::Failed("nothing was changed".to_owned())),
    }
}

fn report(mailing: &Mailing, outcomes: Outcomes, order: &str, json: bool) -> Result<(), Failure> {
    let n = |did| outcomes.counts.get(word(did)).copied().unwrap_or(0);
    if json {
        let alone: Vec<_> = outcomes
            .alone
            .iter()
            .map(|(id, why)| json!({"id": id, "why": why}))
            .collect();
        show::json(&json!({
            "job": mailing.job,
            "order": order,
            "changed": n(Did::Changed),
            "unchanged": n(Did::AsItIs),
            "forgotten": n(Did::Forgotten),
            "sending": n(Did::Sending),
            "unknown": n(Did::Unknown),
            "left_alone": alone,
        }));
    } else {
        let (done, as_it_is) = match order {
            "park" => ("parked", "parked already"),
            _ => ("to be sent again", "waiting to be sent anyway"),
        };
        let some = [
            (n(Did::Changed), done),
            (n(Did::AsItIs), as_it_is),
            (
                n(Did::Forgotten),
                "listed no more: the row was sent or deleted by another hand",
            ),
            (n(Did::Sending), "left alone: being sent"),
            (n(Did::Unknown), "left alone: not there, or sent"),
        ];
        let said = some.iter().filter(|(n, _)| *n > 0);
        let said: Vec<String> = said
            .map(|(n, what)| format!("{}: {n} {what}", mailing.job))
            .collect();
        terminal::out(&said.join("\n"));
        for (id, why) in &outcomes.alone {
            terminal::err(&format!("{}: {why}", terminal::cell(id)));
        }
    }
    match n(Did::Sending) + n(Did::Unknown) {
        0 => Ok(()),
        _ => Err(Failure::Told),
    }
}

const fn word(did: Did) -> &'static str {
    match did {
        Did::Changed => "changed",
        Did::AsItIs => "unchanged",
        Did::Forgotten => "forgotten",
        Did::Sending => "sending",
        Did::Unknown => "unknown",
    }
}

// === impl Outcomes ===

impl Outcomes {
    fn count(&mut self, did: Did, n: u64) {
        *self.counts.entry(word(did)).or_insert(0) += n;
    }

    fn add(&mut self, id: &str, did: Did) {
        self.count(did, 1);
        let why = match did {
            Did::Sending => {
                "it is being sent, or its sender died in the act and the next one has not come yet: ask again in a moment"
            }
            Did::Unknown => "there is no unsent row and no item with this id",
            Did::Changed | Did::AsItIs | Did::Forgotten => return,
        };
        self.alone.push((id.to_owned(), why.to_owned()));
    }
}
