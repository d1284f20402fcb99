//! The orders of a person about items: those of `watchkeeper notify`, and those that the page of a worker takes. Both carry them out
//! here.
//!
//! # Invariants
//! - A5 What the page of a worker lists and changes is what the command does.
//!   (`the_page_lists_and_changes_what_the_command_does`)

use std::{collections::BTreeSet, error::Error as _, future::Future, sync::Arc, time::Duration};

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
        if let (ItemOrder::Park, WhichItems::All { .. }) = (order, which) {
            return Err("items are parked one by one: name them".to_owned());
        }
        blocking(async {
            let mut table = open::operator(&database, &params, true).await?;
            let mut changed = ItemsChanged::default();
            let ended = match which {
                WhichItems::Named(ids) => by_name(&mut *table, ids, order, &mut changed).await,
                WhichItems::All { state: of, after } => {
                    let after = match after {
                        Some(word) => Some(table.place(word).await?),
                        None => None,
                    };
                    let clock = Clock::system();
                    let until = clock.now() + ENOUGH;
                    let in_time = |_| clock.now() < until;
                    let of = state(*of);
                    all_of(&mut *table, order, of, after, &clock, &mut changed, in_time).await
                }
            };
            so_far(changed, ended)
        })
    }
}

/// What the worker is told of them.
pub(super) fn kept() -> Arc<dyn KeptItems> {
    Arc::new(NotificationItems)
}

/// What came of an order: also of one that has ended with an error, where something was changed before, or where that is unknown.
fn so_far(changed: ItemsChanged, ended: Result<()>) -> Result<ItemsChanged> {
    let Err(error) = ended else {
        return Ok(changed);
    };
    let unclear = matches!(error, SourceError::Unclear { .. });
    match unclear || changed.changed + changed.forgotten > 0 {
        true => Ok(ItemsChanged {
            more: true,
            stopped: Some(told(&error)),
            ..changed
        }),
        false => Err(error),
    }
}

/// Carries an order out about items that are named, each once.
///
/// # Errors
/// [`SourceError`]; what is counted is changed.
pub(crate) async fn by_name(
    table: &mut dyn Operator,
    words: &[String],
    order: ItemOrder,
    changed: &mut ItemsChanged,
) -> Result<()> {
    let mut named = BTreeSet::new();
    for some in words.chunks(TOGETHER) {
        let mut meant = Vec::with_capacity(some.len());
        for word in some {
            match table.find(word).await? {
                Some(id) => {
                    // Two words may mean one item.
                    if named.insert(id.clone()) {
                        meant.push((word, id));
                    }
                }
                None => note(changed, word, Did::Unknown),
            }
        }
        let ids: Vec<ItemId> = meant.iter().map(|(_, id)| id.clone()).collect();
        if ids.is_empty() {
            continue;
        }
        let dids = match order {
            ItemOrder::Retry => table.retry(&ids).await?,
            ItemOrder::Park => table.park(&ids).await?,
            ItemOrder::Discard => table.discard(&ids).await?,
        };
        for ((word, _), did) in meant.iter().zip(dids) {
            note(changed, word, did);
        }
    }
    Ok(())
}

/// Carries an order out about all items of a state, those behind `after`, in short transactions. After each of them `goes_on` is told
/// of how many items it was, and says whether another one follows. Items are parked by their names alone.
///
/// # Errors
/// [`SourceError`]; what is counted is changed.
pub(crate) async fn all_of(
    table: &mut dyn Operator,
    order: ItemOrder,
    state: State,
    after: Option<ItemId>,
    clock: &Clock,
    changed: &mut ItemsChanged,
    mut goes_on: impl FnMut(u64) -> bool,
) -> Result<()> {
    let (mut place, mut size) = (after, FIRST_STEP);
    loop {
        let behind = place.as_ref();
        let step = match order {
            ItemOrder::Retry => table.retry_step(state, behind, size).await,
            ItemOrder::Discard => table.discard_step(state, behind, size).await,
            ItemOrder::Park => return Ok(()),
        };
        let step = step.inspect_err(|_| changed.next = place.as_ref().map(ToString::to_string))?;
        changed.changed += step.changed;
        changed.forgotten += step.forgotten;
        changed.sending += step.sending;
        let goes_on = goes_on(step.changed + step.forgotten + step.sending);
        let Some(last) = step.last else {
            return Ok(());
        };
        if !goes_on {
            changed.more = true;
            changed.next = Some(last.to_string());
            return Ok(());
        }
        size = next_step(size, step.took);
        clock.sleep(step.took.max(PAUSE)).await;
        place = Some(last);
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
        ItemState::Discarded => State::Discarded,
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
            State::Discarded => ItemState::Discarded,
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
    use async_trait::async_trait;

    use super::*;
    use crate::notifications::operator::{Step, TableStatus};

    /// Items with the ids 1 to `items`, which stay in their state. What begins behind one of them fails.
    struct Fake {
        items: i64,
        fails_behind: i64,
        error: fn() -> SourceError,
        /// What was asked for by name, all at one time.
        named: Vec<Vec<ItemId>>,
    }

    impl Fake {
        fn of(items: i64) -> Self {
            Self {
                items,
                fails_behind: i64::MAX,
                error: || SourceError::Unfinished,
                named: Vec::new(),
            }
        }
    }

    #[async_trait]
    impl Operator for Fake {
        async fn status(&mut self) -> Result<TableStatus> {
            Ok(TableStatus::default())
        }

        async fn list(
            &mut self,
            _states: &[State],
            _after: Option<&ItemId>,
            _limit: usize,
        ) -> Result<Vec<Entry>> {
            Ok(Vec::new())
        }

        async fn find(&mut self, word: &str) -> Result<Option<ItemId>> {
            Ok(word.parse().ok().map(ItemId::Int))
        }

        async fn place(&mut self, word: &str) -> Result<ItemId> {
            Ok(ItemId::Text(word.to_owned()))
        }

        async fn retry(&mut self, ids: &[ItemId]) -> Result<Vec<Did>> {
            if ids.iter().any(|id| *id > ItemId::Int(self.fails_behind)) {
                return Err((self.error)());
            }
            self.named.push(ids.to_vec());
            Ok(vec![Did::Changed; ids.len()])
        }

        async fn retry_step(
            &mut self,
            _state: State,
            after: Option<&ItemId>,
            items: usize,
        ) -> Result<Step> {
            let place = match after {
                Some(ItemId::Int(place)) => *place,
                Some(ItemId::Text(_)) | None => 0,
            };
            if place >= self.fails_behind {
                return Err((self.error)());
            }
            let last = self.items.min(place + i64::try_from(items).unwrap());
            Ok(Step {
                changed: u64::try_from(last - place).unwrap(),
                last: (last > place).then_some(ItemId::Int(last)),
                ..Step::default()
            })
        }

        async fn discard_step(
            &mut self,
            state: State,
            after: Option<&ItemId>,
            items: usize,
        ) -> Result<Step> {
            self.retry_step(state, after, items).await
        }

        async fn import(&mut self, _columns: &[String], _rows: Vec<Value>) -> Result<u64> {
            Ok(0)
        }

        async fn look(&mut self) -> Result<Option<String>> {
            Ok(None)
        }

        async fn park(&mut self, ids: &[ItemId]) -> Result<Vec<Did>> {
            self.retry(ids).await
        }

        async fn discard(&mut self, ids: &[ItemId]) -> Result<Vec<Did>> {
            self.retry(ids).await
        }
    }

    fn lost() -> SourceError {
        SourceError::Unclear {
            server: "db".to_owned(),
            why: "it went away".to_owned(),
        }
    }

    async fn all_again(
        fake: &mut Fake,
        after: Option<ItemId>,
        goes_on: impl FnMut(u64) -> bool,
    ) -> Result<ItemsChanged> {
        let (mut changed, clock) = (ItemsChanged::default(), Clock::system());
        let order = ItemOrder::Retry;
        let ended = all_of(
            fake,
            order,
            State::InDoubt,
            after,
            &clock,
            &mut changed,
            goes_on,
        )
        .await;
        so_far(changed, ended)
    }

    /// Items that are sent again stay in doubt: a repeat from the first one on would never come to the others.
    #[tokio::test]
    async fn an_order_given_again_goes_on_where_the_one_before_has_ended() {
        let mut fake = Fake::of(250);
        let first = all_again(&mut fake, None, |_| false).await.unwrap();
        assert_eq!((first.changed, first.more), (100, true));
        assert_eq!(first.next.as_deref(), Some("100"));
        let after = fake.find("100").await.unwrap();
        let second = all_again(&mut fake, after, |_| true).await.unwrap();
        assert_eq!(
            (second.changed, second.more, second.next),
            (150, false, None)
        );
    }

    #[tokio::test]
    async fn what_was_changed_before_an_order_stopped_is_told() {
        let mut fake = Fake::of(1_000);
        fake.fails_behind = 300;
        // In steps of 100 and 200.
        let half = all_again(&mut fake, None, |_| true).await.unwrap();
        assert_eq!((half.changed, half.more), (300, true));
        assert_eq!(half.next.as_deref(), Some("300"));
        let why = SourceError::Unfinished.to_string();
        assert_eq!(half.stopped, Some(why));
        fake.fails_behind = 0;
        assert!(all_again(&mut fake, None, |_| true).await.is_err());
        // Nothing is counted, and it may be written all the same.
        fake.error = lost;
        let unclear = all_again(&mut fake, None, |_| true).await.unwrap();
        assert_eq!((unclear.changed, unclear.more), (0, true));
        assert!(unclear.stopped.unwrap().contains("not known"));
    }

    #[tokio::test]
    async fn two_words_for_one_item_are_one_order() {
        let mut fake = Fake::of(20);
        let words = ["17", "017", "18", "17"].map(str::to_owned);
        let mut changed = ItemsChanged::default();
        let order = ItemOrder::Retry;
        let ended = by_name(&mut fake, &words, order, &mut changed).await;
        assert_eq!((ended.is_ok(), changed.changed), (true, 2));
        assert_eq!(fake.named, [vec![ItemId::Int(17), ItemId::Int(18)]]);
    }

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
