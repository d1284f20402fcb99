//! The orders of a person about items: those of `watchkeeper notify`, and those that the page of a worker takes. Both carry them out
//! here.
//!
//! # Invariants
//! - A5 What the page of a worker lists and changes is what the command does.
//!   (`the_page_lists_and_changes_what_the_command_does`)

use std::{error::Error as _, future::Future, sync::Arc, time::Duration};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use watchkeeper::{
    clock::Clock,
    fleet::items::{
        HeldItem, ItemOrder, ItemPage, ItemState, ItemsAsked, ItemsChanged, KeptItems, LeftAlone,
        WhichItems,
    },
};

use super::{
    cell::ItemId,
    delivery::State,
    open,
    operator::{Did, Entry, FIRST_STEP, Operator, next_step},
    params::{Database, NotificationsParams},
    source::{Result, SourceError},
};

/// The items of the jobs of this kind, for the page of a worker.
#[derive(Clone, Copy, Debug)]
pub struct NotificationItems;

/// Items that are named, changed in one transaction.
const TOGETHER: usize = 100;
/// The shortest pause between two transactions, in which senders get their turn.
const PAUSE: Duration = Duration::from_millis(5);
/// For so long one order of the page has items of a state changed.
const ENOUGH: Duration = Duration::from_secs(2);
/// Bytes of an id and of a reason that a page shows.
const LONGEST: usize = 1024;

impl KeptItems for NotificationItems {
    fn list(&self, params: &Value, asked: &ItemsAsked) -> Result<ItemPage, String> {
        let (database, params) = read(params)?;
        blocking(async {
            let mut table = open::operator(&database, &params, false).await?;
            let states: Vec<State> = asked.states.iter().copied().map(state).collect();
            let after = match &asked.after {
                Some(word) => Some(table.place(word).await?),
                None => None,
            };
            // One more than are shown: whether there is another page.
            let limit = asked.limit.saturating_add(1);
            let entries = table.list(&states, after.as_ref(), limit).await?;
            let more = entries.len() > asked.limit;
            let items = entries.into_iter().take(asked.limit).map(shown).collect();
            Ok(ItemPage { items, more })
        })
    }

    fn change(
        &self,
        params: &Value,
        order: ItemOrder,
        which: &WhichItems,
    ) -> Result<ItemsChanged, String> {
        let (database, params) = read(params)?;
        let of_state = match (order, which) {
            (_, WhichItems::Named(_)) => None,
            (ItemOrder::Retry, WhichItems::All(of)) => Some(state(*of)),
            (ItemOrder::Park, WhichItems::All(_)) => {
                return Err("items are parked one by one: name them".to_owned());
            }
        };
        blocking(async {
            let mut table = open::operator(&database, &params, true).await?;
            let Some(of_state) = of_state else {
                let ids = match which {
                    WhichItems::Named(ids) => &ids[..],
                    WhichItems::All(_) => &[],
                };
                return by_name(&mut *table, ids, order).await;
            };
            let clock = Clock::system();
            let until = clock.now() + ENOUGH;
            let mut changed = ItemsChanged::default();
            let in_time = |_| clock.now() < until;
            retry_all(&mut *table, of_state, &clock, &mut changed, in_time).await?;
            Ok(changed)
        })
    }
}

/// What the worker is told of them.
pub(super) fn kept() -> Arc<dyn KeptItems> {
    Arc::new(NotificationItems)
}

/// Carries an order out about items that are named.
///
/// # Errors
/// [`SourceError`]; what was named before may be changed.
pub(crate) async fn by_name(
    table: &mut dyn Operator,
    words: &[String],
    order: ItemOrder,
) -> Result<ItemsChanged> {
    let mut changed = ItemsChanged::default();
    for some in words.chunks(TOGETHER) {
        let mut meant = Vec::with_capacity(some.len());
        for word in some {
            match table.find(word).await? {
                Some(id) => meant.push((word, id)),
                None => note(&mut changed, word, Did::Unknown),
            }
        }
        let ids: Vec<ItemId> = meant.iter().map(|(_, id)| id.clone()).collect();
        if ids.is_empty() {
            continue;
        }
        let dids = match order {
            ItemOrder::Retry => table.retry(&ids).await?,
            ItemOrder::Park => table.park(&ids).await?,
        };
        for ((word, _), did) in meant.iter().zip(dids) {
            note(&mut changed, word, did);
        }
    }
    Ok(changed)
}

/// Has all items of a state sent again, in short transactions. After each of them `goes_on` is told of how many items it was, and says
/// whether another one follows.
///
/// # Errors
/// [`SourceError`]; what was looked at before is changed.
pub(crate) async fn retry_all(
    table: &mut dyn Operator,
    state: State,
    clock: &Clock,
    changed: &mut ItemsChanged,
    mut goes_on: impl FnMut(u64) -> bool,
) -> Result<()> {
    let (mut place, mut size) = (None, FIRST_STEP);
    loop {
        let step = table.retry_step(state, place.as_ref(), size).await?;
        changed.changed += step.changed;
        changed.forgotten += step.forgotten;
        changed.sending += step.sending;
        let goes_on = goes_on(step.changed + step.forgotten + step.sending);
        if step.last.is_none() {
            return Ok(());
        }
        if !goes_on {
            changed.more = true;
            return Ok(());
        }
        size = next_step(size, step.took);
        clock.sleep(step.took.max(PAUSE)).await;
        place = step.last;
    }
}

/// Counts what became of an item that was named, and keeps why it was left alone.
fn note(changed: &mut ItemsChanged, id: &str, did: Did) {
    let count = match did {
        Did::Changed => &mut changed.changed,
        Did::AsItIs => &mut changed.unchanged,
        Did::Forgotten => &mut changed.forgotten,
        Did::Sending => &mut changed.sending,
        Did::Unknown => &mut changed.unknown,
    };
    *count += 1;
    let why = match did {
        Did::Sending => {
            "it is being sent, or its sender died in the act and the next one has not come yet: ask again in a moment"
        }
        Did::Unknown => "there is no unsent row and no item with this id",
        Did::Changed | Did::AsItIs | Did::Forgotten => return,
    };
    changed.left_alone.push(LeftAlone {
        id: id.to_owned(),
        why: why.to_owned(),
    });
}

// === helpers ===

fn read(params: &Value) -> Result<(Database, NotificationsParams), String> {
    let params = NotificationsParams::deserialize(params).map_err(|misfit| misfit.to_string())?;
    let database = params.database();
    let database = database.map_err(|(key, why)| format!("params.{key} {why}"))?;
    Ok((database, params))
}

/// On this thread, which may wait.
fn blocking<T>(work: impl Future<Output = Result<T>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(work).map_err(|error| told(&error))
}

fn told(error: &SourceError) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

const fn state(of: ItemState) -> State {
    match of {
        ItemState::Retry => State::Retry,
        ItemState::Dead => State::Dead,
        ItemState::InDoubt => State::InDoubt,
        ItemState::Parked => State::Parked,
    }
}

fn shown(entry: Entry) -> HeldItem {
    let Entry {
        id,
        exception,
        updated,
        key,
        row,
        ..
    } = entry;
    HeldItem {
        id: cut(&id.to_string()),
        state: match exception.state {
            State::Retry => ItemState::Retry,
            State::Dead => ItemState::Dead,
            State::InDoubt => ItemState::InDoubt,
            State::Parked => ItemState::Parked,
        },
        attempts: exception.attempts,
        since: updated.parse::<Timestamp>().ok(),
        reason: cut(&exception.reason),
        key: cut(&key),
        row: row.word().to_owned(),
    }
}

/// Other programs write there, too: as much as a page has room for.
fn cut(text: &str) -> String {
    match text.char_indices().find(|(at, _)| *at >= LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_program_wrote_is_cut_between_two_characters() {
        assert_eq!(cut("é"), "é");
        let most = "é".repeat(LONGEST / 2);
        assert_eq!(cut(&most), most);
        assert_eq!(cut(&format!("{most}é")), format!("{most}…"));
    }

    #[test]
    fn parameters_without_a_database_are_told_and_no_panic() {
        let asked = ItemsAsked {
            states: vec![ItemState::Dead],
            after: None,
            limit: 10,
        };
        for params in [Value::Null, serde_json::json!({"table": "t"})] {
            let why = NotificationItems.list(&params, &asked).unwrap_err();
            assert!(!why.is_empty(), "{params}");
        }
    }
}
