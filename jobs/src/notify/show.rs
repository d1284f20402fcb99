//! What `notify` prints. Ids, reasons and names of tables are anybody's: what a terminal would obey is written out.

use std::io::{self, Write};

use jiff::Timestamp;
use serde_json::{Value, json};
use watchkeeper::cli::Table;
use watchkeeper_jobs::notifications::{
    cell::ItemId,
    delivery::State,
    operator::{Entry, RowState, Standing},
};

use super::which::Mailing;

/// Characters of a cell.
const CELL: usize = 100;

pub(super) fn standing_json((mailing, standing): &(&Mailing, Result<Standing, String>)) -> Value {
    let found = standing.as_ref().ok();
    json!({
        "job": mailing.job,
        "database": mailing.database,
        "table": mailing.params.table,
        "served": found.is_some_and(|s| s.served),
        "backlog": found.map(|s| s.backlog),
        "retry": found.map(|s| s.items.retry),
        "dead": found.map(|s| s.items.dead),
        "parked": found.map(|s| s.items.parked),
        "in_doubt": found.map(|s| s.items.in_doubt),
        "batches_open": found.map(|s| s.sending),
        "doubted_ever": found.map(|s| s.doubted_ever),
        "error": standing.as_ref().err(),
    })
}

pub(super) fn standings(found: &[(&Mailing, Result<Standing, String>)]) -> String {
    let mut table = Table::new(&[
        "JOB",
        "BACKLOG",
        "RETRY",
        "DEAD",
        "PARKED",
        "IN DOUBT",
        "BATCHES OPEN",
        "NOTE",
    ]);
    for (mailing, standing) in found {
        let job = cell(&mailing.job);
        let Ok(s) = standing else {
            let why = standing.as_ref().err().map(|why| cell(why));
            let unknown = || String::new();
            table.row([
                job,
                unknown(),
                unknown(),
                unknown(),
                unknown(),
                unknown(),
                unknown(),
                why.unwrap_or_default(),
            ]);
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
            s.sending.to_string(),
            cell(&note),
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
    standing: &Standing,
    limit: usize,
) -> String {
    let all: u64 = states.iter().map(|state| standing.items.of(*state)).sum();
    let words: Vec<&str> = states.iter().map(|state| state.word()).collect();
    let words = words.join(" or ");
    let Some(last) = entries.last() else {
        let never = match standing.served {
            true => "",
            false => " (no sender has served its table yet)",
        };
        return match all {
            0 => format!("{}: no item is {words}{never}", mailing.job),
            _ => format!("{}: no further item is {words}", mailing.job),
        };
    };
    let mut table = Table::new(&["ID", "STATE", "ATTEMPTS", "SINCE", "REASON"]);
    for entry in entries {
        let e = &entry.exception;
        let reason = match entry.row {
            RowState::Unsent => e.reason.clone(),
            RowState::Sent => format!("(its row is marked as sent) {}", e.reason),
            RowState::Gone => format!("(its row is gone) {}", e.reason),
        };
        table.row([
            id(&entry.id.to_string()),
            e.state.word().to_owned(),
            e.attempts.to_string(),
            since(&entry.updated),
            cell(&reason),
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
        Err(_) => cell(updated),
    }
}

/// An id as one word of a line.
pub(super) fn id(text: &str) -> String {
    cell(text)
}

/// One line, of a width that fits.
fn cell(text: &str) -> String {
    let shown = escaped(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    match shown.char_indices().nth(CELL) {
        Some((at, _)) => format!("{}…", &shown[..at]),
        None => shown,
    }
}

/// What a terminal would obey is written as `\u001b`; lines stay. JSON means the same afterwards.
fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        let directs = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}');
        if c != '\n' && (c.is_control() || directs) {
            shown += &format!("\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    shown
}

pub(super) fn json(value: &impl serde::Serialize) {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    out(&text);
}

pub(super) fn out(text: &str) {
    write(io::stdout().lock(), text);
}

pub(super) fn err(text: &str) {
    write(io::stderr().lock(), text);
}

/// A question: no newline follows it.
pub(super) fn ask(text: &str) {
    let mut to = io::stderr().lock();
    let _ = to.write_all(escaped(text).as_bytes());
    let _ = to.flush();
}

/// A reader that has gone away (`… | head`) is no failure of ours.
fn write(mut to: impl Write, text: &str) {
    let mut shown = escaped(text);
    if !shown.ends_with('\n') {
        shown.push('\n');
    }
    let _ = to.write_all(shown.as_bytes());
    let _ = to.flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out_and_json_keeps_its_meaning() {
        let hostile = "a\u{1b}[2J\u{9b}31m\u{202e}b\tc";
        let line = cell(hostile);
        assert!(!line.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{line}");
        let text = escaped(&json!([hostile]).to_string());
        assert!(!text.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{text}");
        let read: Vec<String> = serde_json::from_str(&text).unwrap();
        assert_eq!(read, [hostile]);
        assert_eq!(cell(&"x".repeat(100_000)).chars().count(), CELL + 1);
    }
}
