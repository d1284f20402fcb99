//! `retry`, `park` and `discard`.

use std::io::{self, BufRead, IsTerminal};

use crate::notifications::{
    delivery::State,
    items::{all_of, by_name},
    source::SourceError,
};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use watchkeeper::{
    Worker,
    clock::Clock,
    fleet::items::{ItemOrder, ItemsChanged},
    terminal,
};

use super::{
    args::{OrderArgs, ParkArgs},
    failure::Failure,
    show,
    which::{self, Mailing},
};

/// More items than this are asked about first.
const FEW: usize = 10;

/// `retry` and `discard`, which may be about all items of a state.
pub(super) async fn some_or_all(
    worker: &Worker,
    order: ItemOrder,
    args: &OrderArgs,
) -> Result<(), Failure> {
    let (mailing, words) = which::with_ids(worker, &args.words)?;
    let states = match args.all {
        true => &[State::Dead, State::Parked][..],
        false => args.state.as_slice(),
    };
    match (words.is_empty(), states.is_empty()) {
        (true, true) => Err(Failure::Usage(
            "say which: ids as `notify dead` lists them, --all, or --state dead".to_owned(),
        )),
        (false, false) => Err(Failure::Usage(
            "name items, or all of a state: not both".to_owned(),
        )),
        (false, true) => {
            confirm(words.len(), &mailing, order, args.yes)?;
            let mut table = mailing.change().await?;
            let mut changed = ItemsChanged::default();
            let ended = by_name(&mut *table, words, order, &mut changed).await;
            tell(&mailing, &changed, order, args.json, ended)
        }
        (true, false) => of_states(&mailing, order, states, args).await,
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
    let order = ItemOrder::Park;
    confirm(words.len(), &mailing, order, args.yes)?;
    let mut table = mailing.change().await?;
    let mut changed = ItemsChanged::default();
    let ended = by_name(&mut *table, words, order, &mut changed).await;
    tell(&mailing, &changed, order, args.json, ended)
}

/// All items of these states, in short transactions.
async fn of_states(
    mailing: &Mailing,
    order: ItemOrder,
    states: &[State],
    args: &OrderArgs,
) -> Result<(), Failure> {
    let mut table = mailing.change().await?;
    let items = table.status().await?.items;
    let all: u64 = states.iter().map(|state| items.of(*state)).sum();
    if all == 0 {
        let states: Vec<&str> = states.iter().map(|state| state.word()).collect();
        let (verb, again) = said(order);
        return Err(Failure::Failed(format!(
            "no item of {} is {}: nothing to {verb}{again}",
            mailing.job,
            states.join(" or ")
        )));
    }
    // They were not named one by one: it is always asked.
    let many = usize::try_from(all).unwrap_or(usize::MAX);
    confirm(many.max(FEW + 1), mailing, order, args.yes)?;
    let clock = Clock::system();
    let bar = progress_bar(all);
    let (mut changed, mut ended) = (ItemsChanged::default(), Ok(()));
    for state in states {
        let stepped = |items| {
            bar.inc(items);
            true
        };
        ended = all_of(
            &mut *table,
            order,
            *state,
            None,
            &clock,
            &mut changed,
            stepped,
        )
        .await;
        if ended.is_err() {
            break;
        }
    }
    bar.finish_and_clear();
    tell(mailing, &changed, order, args.json, ended)
}

/// On standard error, where that is a terminal.
pub(super) fn progress_bar(items: u64) -> ProgressBar {
    let bar = ProgressBar::new(items);
    if let Ok(style) = ProgressStyle::with_template("{pos} of {len} items [{bar:40}] {eta} left") {
        bar.set_style(style);
    }
    bar
}

/// The verb of an order, and what comes behind it.
const fn said(order: ItemOrder) -> (&'static str, &'static str) {
    match order {
        ItemOrder::Retry => ("send", " again"),
        ItemOrder::Park => ("park", ""),
        ItemOrder::Discard => ("discard", ""),
    }
}

/// Asks whether so many are meant.
fn confirm(items: usize, mailing: &Mailing, order: ItemOrder, yes: bool) -> Result<(), Failure> {
    let (verb, again) = said(order);
    if yes || items <= FEW {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(format!(
            "there is no terminal to ask on: say --yes to {verb} many items of {} at once",
            mailing.job
        )));
    }
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

/// Reports what was changed, also where it was not all of it.
fn tell(
    mailing: &Mailing,
    changed: &ItemsChanged,
    order: ItemOrder,
    json: bool,
    ended: Result<(), SourceError>,
) -> Result<(), Failure> {
    let Err(error) = ended else {
        return report(mailing, changed, order, json);
    };
    let counts = [changed.changed, changed.unchanged, changed.forgotten];
    if counts.iter().any(|n| *n > 0) || !changed.left_alone.is_empty() {
        // What was left alone is told here, and the error says more.
        let _ = report(mailing, changed, order, json);
    }
    Err(error.into())
}

fn report(
    mailing: &Mailing,
    changed: &ItemsChanged,
    order: ItemOrder,
    json: bool,
) -> Result<(), Failure> {
    if json {
        let alone = changed.left_alone.iter();
        let alone: Vec<_> = alone
            .map(|left| json!({"id": left.id, "why": left.why}))
            .collect();
        show::json(&json!({
            "job": mailing.job,
            "order": order.word(),
            "changed": changed.changed,
            "unchanged": changed.unchanged,
            "forgotten": changed.forgotten,
            "sending": changed.sending,
            "unknown": changed.unknown,
            "left_alone": alone,
        }));
    } else {
        let (done, as_it_is) = match order {
            ItemOrder::Park => ("parked", "parked already"),
            ItemOrder::Discard => ("discarded", "discarded already"),
            ItemOrder::Retry => ("to be sent again", "waiting to be sent anyway"),
        };
        let some = [
            (changed.changed, done),
            (changed.unchanged, as_it_is),
            (
                changed.forgotten,
                "listed no more: the row was sent or deleted by another hand",
            ),
            (changed.sending, "left alone: being sent"),
            (changed.unknown, "left alone: not there, or sent"),
        ];
        let said = some.iter().filter(|(n, _)| *n > 0);
        let said: Vec<String> = said
            .map(|(n, what)| format!("{}: {n} {what}", mailing.job))
            .collect();
        terminal::out(&said.join("\n"));
        for left in &changed.left_alone {
            terminal::err(&format!("{}: {}", terminal::cell(&left.id), left.why));
        }
    }
    match changed.sending + changed.unknown {
        0 => Ok(()),
        _ => Err(Failure::Told),
    }
}
