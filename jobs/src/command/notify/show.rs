//! What `notify` prints. Ids, reasons and names of tables are texts of others.

use crate::notifications::{
    cell::ItemId,
    delivery::State,
    operator::{Entry, RowState, TableStatus},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use watchkeeper::{
    cli::Table,
    terminal::{cell, out},
};

use super::which::Mailing;

pub(super) fn status_json((mailing, status): &(&Mailing, Result<TableStatus, String>)) -> Value {
    let found = status.as_ref().ok();
    json!({
        "job": mailing.job,
        "database": mailing.database.to_string(),
        "table": mailing.params.table,
        "served": found.is_some_and(|s| s.served),
        "backlog": found.map(|s| s.backlog),
        "retry": found.map(|s| s.items.retry),
        "dead": found.map(|s| s.items.dead),
        "parked": found.map(|s| s.items.parked),
        "in_doubt": found.map(|s| s.items.in_doubt),
        "discarded": found.map(|s| s.items.discarded),
        "batches_open": found.map(|s| s.sending),
        "doubted_ever": found.map(|s| s.doubted_ever),
        "error": status.as_ref().err(),
    })
}

pub(super) fn statuses(found: &[(&Mailing, Result<TableStatus, String>)]) -> String {
    let mut table = Table::new(
        "JOB | BACKLOG | RETRY | DEAD | PARKED | IN DOUBT | DISCARDED | BATCHES OPEN | NOTE",
    );
    for (mailing, status) in found {
        let job = mailing.job.clone();
        let Ok(s) = status else {
            let why = status.as_ref().err().cloned();
            let unknown = std::iter::repeat_n(String::new(), 7);
            table.row([job].into_iter().chain(unknown).chain(why));
            continue;
        };
        let note = match (s.served, s.items.dead + s.items.parked) {
            (false, _) => "no sender has served this table yet".to_owned(),
            (true, 0) => String::new(),
            (true, _) => format!("notify dead {}", mailing.job),
        };
        table.row([
            job,
            s.backlog.to_string(),
            s.items.retry.to_string(),
            s.items.dead.to_string(),
            s.items.parked.to_string(),
            s.items.in_doubt.to_string(),
            s.items.discarded.to_string(),
            s.sending.to_string(),
            note,
        ]);
    }
    table.to_string()
}

pub(super) fn entry_json(mailing: &Mailing, entry: &Entry) -> Value {
    let Entry { exception: e, .. } = entry;
    json!({
        "job": mailing.job,
        "id": entry.id,
        "state": e.state.word(),
        "attempts": e.attempts,
        "reason": e.reason,
        "not_before": not_before(entry),
        "key": entry.key,
        "batch": entry.batch,
        "token": entry.token,
        "updated": entry.updated,
        "row": entry.row.word(),
    })
}

pub(super) fn entries(
    mailing: &Mailing,
    states: &[State],
    entries: &[Entry],
    status: &TableStatus,
    limit: usize,
) -> String {
    let all: u64 = states.iter().map(|state| status.items.of(*state)).sum();
    let words: Vec<&str> = states.iter().map(|state| state.word()).collect();
    let words = words.join(" or ");
    let Some(last) = entries.last() else {
        let never = match status.served {
            true => "",
            false => " (no sender has served its table yet)",
        };
        let job = cell(&mailing.job);
        return match all {
            0 => format!("{job}: no item is {words}{never}"),
            _ => format!("{job}: no further item is {words}"),
        };
    };
    let mut table = Table::new("ID | STATE | ATTEMPTS | SINCE | REASON");
    for entry in entries {
        let e = &entry.exception;
        let reason = match entry.row {
            RowState::Unsent => e.reason.clone(),
            RowState::Sent => format!("(its row is marked as sent) {}", e.reason),
            RowState::Gone => format!("(its row is gone) {}", e.reason),
        };
        table.row([
            entry.id.to_string(),
            e.state.word().to_owned(),
            e.attempts.to_string(),
            since(&entry.updated),
            reason,
        ]);
    }
    let mut text = table.to_string();
    if entries.len() >= limit && all > entries.len() as u64 {
        let behind = match &last.id {
            ItemId::Int(id) => id.to_string(),
            ItemId::Text(id) => format!("{:?}", cell(id)),
        };
        text += &format!("{} of {all}; the next: --after {behind}\n", entries.len());
    }
    text
}

/// When it may go again; nothing for what waits for a person, and for what may go now.
fn not_before(entry: &Entry) -> Option<Timestamp> {
    let waits = matches!(entry.exception.state, State::Retry | State::InDoubt);
    let at = entry.exception.not_before_ms;
    Timestamp::from_millisecond(at)
        .ok()
        .filter(|_| waits && at > 0)
}

/// To the second; as it stands there when it is no time.
fn since(updated: &str) -> String {
    match updated.parse::<Timestamp>() {
        Ok(at) => at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        Err(_) => updated.to_owned(),
    }
}

pub(super) fn json(value: &impl serde::Serialize) {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    out(&text);
}

#[cfg(test)]
mod tests {
    use crate::notifications::{
        NotificationsParams, delivery::Exception, params::Database, source::Counts,
    };
    use watchkeeper::{node::Token, terminal};

    use super::*;

    #[test]
    fn what_others_wrote_commands_no_terminal_and_every_row_stays_a_row() {
        let own = |text: &str| text.to_owned();
        for hostile in [
            "a\u{1b}[2J\u{9b}31m\u{7}",
            "a\nb\r\n\tc",
            "\u{202e}\u{200b}\u{2028}\u{feff}",
            "\u{ad}\u{2060}\u{e0041}",
        ] {
            let mailing = Mailing {
                job: own(hostile),
                params: NotificationsParams::default(),
                database: Database::Sqlite(hostile.into()),
            };
            let entry = |id| Entry {
                id,
                exception: Exception {
                    state: State::Dead,
                    attempts: 3,
                    not_before_ms: 0,
                    reason: own(hostile),
                    doubted: false,
                },
                token: Token(1),
                batch: own(hostile),
                updated: own(hostile),
                key: own(hostile),
                row: RowState::Gone,
            };
            let found = [entry(ItemId::Int(1)), entry(ItemId::Text(own(hostile)))];
            let status = TableStatus {
                served: true,
                items: Counts {
                    dead: 9,
                    ..Counts::default()
                },
                ..TableStatus::default()
            };
            let listed = entries(&mailing, &[State::Dead], &found, &status, 2);
            assert_eq!(terminal::lines(&listed), listed);
            assert_eq!(listed.lines().count(), 4, "{listed}");
            let none = entries(&mailing, &[State::Dead], &[], &status, 2);
            assert_eq!(terminal::line(&none), none);
            let counted = statuses(&[(&mailing, Ok(status)), (&mailing, Err(own(hostile)))]);
            assert_eq!(terminal::lines(&counted), counted);
            assert_eq!(counted.lines().count(), 3, "{counted}");
        }
    }
}
