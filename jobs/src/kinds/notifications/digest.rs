//! Rows of one recipient that go as one message: which rows that are, and under which key.
//!
//! A digest is what one batch has of a recipient. It is named by its rows alone, so that one which may have been received is
//! sent again with exactly these rows under the same key, and rows that came meanwhile wait for the next.
//!
//! # Invariants
//! - U1 A digest in doubt is repeated with the same rows, and nothing of its recipient goes before it; also where other programs held
//!   its rows, or a batch had no room for all of them.
//!   (`a_digest_in_doubt_goes_again_with_the_same_rows_under_the_same_key`,
//!   `a_digest_whose_rows_stay_held_comes_again_as_it_was`, `a_digest_in_doubt_is_read_whole_beside_a_row_that_is_before_it`)
//! - U2 A recipient gets one digest in the time between two.          (`a_digest_goes_when_its_oldest_row_is_old_enough`)
//! - U3 Rows that could be sent alone make no digest that is too large to be sent.
//!   (`a_digest_takes_as_many_rows_as_a_service_takes_bytes`)
//! - U4 A row that cannot be sent for its own times takes no other with it.  (`a_row_whose_time_is_none_is_dead_alone`)
//! - U5 What may have been received goes again as it went, also after `digest` was switched on or off: a row that went alone goes alone, under
//!   its own key, and a message of several rows waits for a replica that makes such.
//!   (`a_row_in_doubt_that_went_alone_goes_alone_again`, `a_message_in_doubt_waits_for_replicas_that_make_such`)
//! - U6 A row is given up after its own attempts, whatever joins its message and whatever message it joins. Where that may have been
//!   received, all its rows count as sent as often as that of them which was sent most often.
//!   (`rows_of_a_message_that_is_refused_have_attempts_of_their_own`, `a_row_that_joins_a_message_has_its_own_attempts`)
//!
//! # Not promised
//! Rows count as they are in the texts of the sink. What else the texts hold of the oldest row does not: where that has more than a
//! tenth of what is sent at most, a digest may be too large although its rows were not.
//!
//! Where a row of a digest in doubt was deleted or marked by another hand, the others are sent under a key of their own; so are those
//! that could not be marked where the others could.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    cell::ItemId,
    delivery::{Exception, State},
    digest_name::{ITEMS, name_of, size_of},
    source::Item,
};

/// Bytes of the rows of a digest, in all texts of a message: with what else is in its body, it is below what a web service is sent.
const MOST: usize = 900_000;

/// Names of digests in doubt of which not all rows are among these: those that a batch cut off, or that are gone.
#[must_use]
pub(crate) fn cut(items: &[Item]) -> Vec<String> {
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for name in items.iter().filter_map(|item| item.digest.as_deref()) {
        *found.entry(name).or_default() += 1;
    }
    let cut = found.iter().filter(|(name, rows)| size_of(name) > **rows);
    cut.map(|(name, _)| (*name).to_owned()).collect()
}

/// Makes one item of each recipient's rows, which come in the order of their ids. `recipient` is the column that says it;
/// `key` makes a key of a digest's name. Rows that are kept for their times are no part of others' digests. The texts of a message
/// hold its rows so many times; without such texts it is made of them.
#[must_use]
pub(crate) fn fold(
    items: Vec<Item>,
    recipient: &str,
    is_kept: impl Fn(&Item) -> bool,
    in_texts: usize,
    key: impl Fn(&str) -> String,
) -> Vec<Item> {
    let (kept, items): (Vec<_>, Vec<_>) = items.into_iter().partition(is_kept);
    let mut groups: Vec<Vec<Item>> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for item in items {
        // A row that is for nobody is a digest of its own.
        let name = match item.columns.get(recipient) {
            None | Some(Value::Null) => format!("i{}", item.id),
            Some(recipient) => format!("r{recipient}"),
        };
        let place = *places.entry(name).or_insert(groups.len());
        match groups.get_mut(place) {
            Some(group) => group.push(item),
            None => groups.push(vec![item]),
        }
    }
    let mut folded = Vec::new();
    for group in groups {
        // What went alone before there were messages of several rows goes alone again, and first; the others come in another batch.
        if group.iter().any(went_alone) {
            let alone = group.into_iter().filter(went_alone);
            folded.extend(alone.filter_map(|item| alone_again(item, recipient)));
            continue;
        }
        let doubt = group.iter().find_map(|item| item.digest.clone());
        let group: Vec<Item> = match &doubt {
            // What may have been received goes alone, and first.
            Some(name) => group
                .into_iter()
                .filter(|item| item.digest.as_ref() == Some(name))
                .collect(),
            None => those_that_fit(group, in_texts),
        };
        // The rest was looked for: it is gone, or its time has not come. That comes first in another batch.
        let is_cut = doubt.is_some_and(|name| size_of(&name) > group.len());
        if is_cut && !folded.is_empty() {
            continue;
        }
        folded.extend(one_of(group, recipient, &key));
    }
    // Each is looked at by itself, and behind the others: what waits keeps back what comes after it.
    let alone = kept.into_iter().map(|item| match went_alone(&item) {
        true => alone_again(item, recipient),
        false => one_of(vec![item], recipient, &key),
    });
    folded.extend(alone.flatten());
    folded
}

/// Whether a row may have been received, and not as a part of a message of several rows.
fn went_alone(item: &Item) -> bool {
    let in_doubt = |prior: &Exception| prior.state == State::InDoubt;
    item.digest.is_none() && item.prior.as_ref().is_some_and(in_doubt)
}

/// In the form of today, and under the key of old.
fn alone_again(item: Item, recipient: &str) -> Option<Item> {
    let key = item.key.clone();
    let mut alone = one_of(vec![item], recipient, |_| key.clone())?;
    alone.digest = None;
    alone.members = Vec::new();
    Some(alone)
}

/// The first rows of a group, as many as one message holds, and one in any case. The others wait for the next.
fn those_that_fit(mut group: Vec<Item>, in_texts: usize) -> Vec<Item> {
    let mut bytes = 0_usize;
    let sizes = group.iter().map(|item| {
        let size = serde_json::to_vec(&item.body).map_or(usize::MAX, |body| match in_texts {
            0 => body.len(),
            times => times.saturating_mul(body.into_iter().map(most_written).sum()),
        });
        bytes = bytes.saturating_add(size).saturating_add(1);
        bytes
    });
    let fit = sizes.take_while(|bytes| *bytes <= MOST).count();
    group.truncate(fit.max(1));
    group
}

/// Bytes that one of JSON takes at most in a text, whatever that is: in quotes of JSON, or in HTML.
const fn most_written(byte: u8) -> usize {
    match byte {
        b'"' => 6,
        b'&' | b'\'' => 5,
        b'<' | b'>' => 4,
        b'\\' => 2,
        _ => 1,
    }
}

fn one_of(group: Vec<Item>, recipient: &str, key: impl Fn(&str) -> String) -> Option<Item> {
    let ids: Vec<ItemId> = group.iter().map(|item| item.id.clone()).collect();
    let name = name_of(&ids);
    let bodies: Vec<Value> = group
        .iter()
        .map(|item| Value::Object(item.body.clone()))
        .collect();
    let priors = group.iter().map(|item| item.prior.clone());
    let members: Vec<(ItemId, Option<Exception>)> = ids.into_iter().zip(priors).collect();
    let mut first = group.into_iter().next()?;
    // A doubt about one of them is one about the message, which was sent as often as that of them which was sent most often.
    let priors = members.iter().filter_map(|(_, prior)| prior.as_ref());
    let prior = priors.max_by_key(|prior| (prior.state == State::InDoubt, prior.attempts));
    first.prior = prior.cloned();
    let mut body = Map::new();
    let whom = first.columns.get(recipient).cloned().unwrap_or_default();
    body.insert("recipient".to_owned(), whom);
    if let Some(table) = first.body.get("table") {
        body.insert("table".to_owned(), table.clone());
    }
    body.insert(ITEMS.to_owned(), Value::Array(bodies.clone()));
    first.columns.insert(ITEMS.to_owned(), bodies.into());
    first.key = key(&name);
    first.body = body;
    first.members = members;
    first.digest = Some(name);
    Some(first)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::notifications::text::{Form, Text};

    fn row(id: i64, recipient: Value, digest: Option<&str>) -> Item {
        let Value::Object(columns) = json!({ "to": recipient }) else {
            panic!("an object");
        };
        let mut item = Item::for_tests(ItemId::Int(id), columns);
        item.body.insert("id".to_owned(), id.into());
        item.digest = digest.map(str::to_owned);
        item
    }

    fn folded(rows: Vec<Item>) -> Vec<(String, Vec<i64>)> {
        let number = |id: &ItemId| match id {
            ItemId::Int(id) => *id,
            ItemId::Text(_) => panic!("a text"),
        };
        let is_kept = |item: &Item| item.columns.get("kept") == Some(&json!(true));
        fold(rows, "to", is_kept, 0, |name| format!("d/{name}"))
            .into_iter()
            .map(|item| {
                (
                    item.key,
                    item.members.iter().map(|(id, _)| number(id)).collect(),
                )
            })
            .collect()
    }

    fn ids(of: &[i64]) -> Vec<ItemId> {
        of.iter().copied().map(ItemId::Int).collect()
    }

    #[test]
    fn rows_of_one_recipient_are_one_message_with_a_key_of_their_own() {
        let a = || json!("a");
        let rows = vec![
            row(1, a(), None),
            row(2, json!("b"), None),
            row(3, a(), None),
            row(4, Value::Null, None),
            row(5, Value::Null, None),
        ];
        let all = folded(rows.clone());
        let groups: Vec<&[i64]> = all.iter().map(|(_, ids)| &ids[..]).collect();
        assert_eq!(groups, [&[1, 3][..], &[2], &[4], &[5]]);
        assert_eq!(all[0].0, format!("d/{}", name_of(&ids(&[1, 3]))));
        let item = fold(rows, "to", |_| false, 0, |_| String::new()).remove(0);
        assert_eq!(
            Value::Object(item.body),
            json!({"recipient": "a", "items": [{"id": 1}, {"id": 3}]})
        );
        assert_eq!(item.columns["items"], json!([{"id": 1}, {"id": 3}]));
    }

    #[test]
    fn rows_that_are_kept_are_no_part_of_a_digest() {
        let mut rows: Vec<Item> = (1..=4).map(|id| row(id, json!("a"), None)).collect();
        for i in [0, 2] {
            rows[i].columns.insert("kept".to_owned(), json!(true));
        }
        let groups: Vec<_> = folded(rows).into_iter().map(|(_, ids)| ids).collect();
        assert_eq!(groups, [&[2, 4][..], &[1], &[3]]);
    }

    #[test]
    fn what_is_in_doubt_goes_alone_and_whole() {
        let a = || json!("a");
        let name = name_of(&ids(&[1, 3]));
        let doubt = |id| row(id, a(), Some(&name));
        let rows = vec![doubt(1), row(2, a(), None), doubt(3)];
        assert_eq!(folded(rows), [(format!("d/{name}"), vec![1, 3])]);
        // Cut by the limits of a batch it waits for another one.
        let rows = vec![row(0, json!("b"), None), doubt(1)];
        let groups: Vec<_> = folded(rows).into_iter().map(|(_, ids)| ids).collect();
        assert_eq!(groups, [[0]]);
        // Cut although it is the first, a row has gone.
        assert_ne!(folded(vec![doubt(1)])[0].0, format!("d/{name}"));
    }

    #[test]
    fn a_row_in_doubt_that_went_alone_goes_alone_again() {
        let of = |state| Exception {
            state,
            ..Exception::dead(String::new())
        };
        let mut rows: Vec<Item> = (1..=5)
            .map(|id| row(id, json!(["a", "b"][usize::from(id == 5)]), None))
            .collect();
        for item in &mut rows {
            item.key = format!("row/{}", item.id);
        }
        for (i, state) in [(1, State::InDoubt), (2, State::Retry), (3, State::InDoubt)] {
            rows[i].prior = Some(of(state));
        }
        rows[3].columns.insert("kept".to_owned(), json!(true));
        let is_kept = |item: &Item| item.columns.contains_key("kept");
        let key = |name: &str| format!("d/{name}");
        let all = fold(rows.clone(), "to", is_kept, 0, key);
        let keys: Vec<&str> = all.iter().map(|item| item.key.as_str()).collect();
        let of_b = format!("d/{}", name_of(&ids(&[5])));
        assert_eq!(keys, ["row/2", &of_b, "row/4"]);
        assert!(all[0].digest.is_none() && all[0].members.is_empty());
        assert_eq!(all[0].id, ItemId::Int(2));
        assert_eq!(all[0].body["items"], json!([{"id": 2}]));

        // A doubt about one of several rows is one about their message.
        let mut rows = vec![row(1, json!("a"), None), row(2, json!("a"), None)];
        rows[0].prior = Some(of(State::Retry));
        let item = one_of(rows.clone(), "to", |_| String::new()).unwrap();
        assert_eq!(item.prior, rows[0].prior);
        rows[1].prior = Some(of(State::InDoubt));
        let item = one_of(rows.clone(), "to", |_| String::new()).unwrap();
        assert_eq!(item.prior, rows[1].prior);
        // Without one it was sent as often as that of them which was sent most often, and each row keeps what happened to it.
        rows[0].prior = None;
        rows[1].prior = Some(Exception {
            attempts: 5,
            ..of(State::Retry)
        });
        let item = one_of(rows.clone(), "to", |_| String::new()).unwrap();
        assert_eq!(item.prior, rows[1].prior);
        let priors = item.members.into_iter().map(|(_, prior)| prior);
        assert!(priors.eq(rows.into_iter().map(|row| row.prior)));
    }

    #[test]
    fn a_digest_takes_as_many_rows_as_a_service_takes_bytes() {
        let large = |id, bytes: usize, digest| {
            let mut item = row(id, json!("a"), digest);
            item.body
                .insert("text".to_owned(), "x".repeat(bytes).into());
            item
        };
        let sent = |rows| folded(rows).remove(0).1;
        let rows = (1..=20).map(|id| large(id, 99_000, None)).collect();
        assert_eq!(sent(rows), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
        // One that is too large alone says so itself.
        assert_eq!(
            sent(vec![large(1, 2_000_000, None), large(2, 1, None)]),
            [1]
        );
        // As they are in the texts of a message: twice, and with `&quot;` for each quote.
        let rows: Vec<Item> = (1..=20).map(|id| large(id, 99_000, None)).collect();
        let fit = |times| {
            fold(rows.clone(), "to", |_| false, times, |_| String::new())[0]
                .members
                .len()
        };
        assert_eq!((fit(1), fit(2)), (9, 4));
        let mut rows = rows;
        for row in &mut rows {
            row.body
                .insert("text".to_owned(), vec!["<\""; 5_000].into());
        }
        for form in [Form::Json, Form::Html, Form::Plain] {
            let text = match form {
                Form::Json => r#"{"a": "${items:json}", "b": ${items:json}}"#,
                _ => "${items:json} ${items:json}",
            };
            let text = Text::parse(text, form).unwrap();
            let item = fold(rows.clone(), "to", |_| false, 2, |_| String::new()).remove(0);
            let bytes = text.fill(&item.columns).unwrap().len();
            assert!(
                item.members.len() > 1 && bytes < 1_000_000,
                "{form:?} {bytes}"
            );
        }
        // What may have been received goes as it went.
        let name = name_of(&ids(&[1, 2]));
        let rows = vec![
            large(1, 600_000, Some(&name)),
            large(2, 600_000, Some(&name)),
        ];
        assert_eq!(sent(rows), [1, 2]);
    }
}
