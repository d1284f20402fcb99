//! `import`: the rows of a file, put into the table of a job.
//!
//! # Invariants
//! - I1 A file that cannot be read to its end changes nothing, and one that changes meanwhile is no success.
//!   (a_file_with_a_fault_changes_nothing)
//! - I2 What is imported before a row that the table refuses is said, and need not be imported again.
//!   (a_row_that_is_refused_is_named_and_the_rest_goes_on_behind_it)
//! - I3 Rows that may be in the table are named, and no message says to import them again.
//!   (rows_that_may_be_in_the_table_are_not_imported_again)

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use watchkeeper::{Worker, terminal};

use super::{
    args::{Format, ImportArgs},
    change::progress_bar,
    failure::Failure,
    lines::{self, Line},
    show,
    which::{self, Mailing},
};
use crate::notifications::{operator::Operator, source::SourceError};

/// Rows of one transaction at most, and bytes.
const TOGETHER: usize = 1_000;
const BYTES: usize = 8 << 20;

/// What was done so far.
#[derive(Default)]
struct Done {
    imported: u64,
    /// Rows whose id was there.
    known: u64,
    /// The last line of which all is done.
    line: u64,
}

/// Why it did not come to its end.
enum Stop {
    /// Nothing from here on is in the table.
    Here(String),
    /// Whether the last rows are in the table is unknown.
    Unclear(String),
    /// All that was read is in the table, and it was not all.
    Changed(String),
}

/// Carries it out.
pub(super) async fn import(worker: &Worker, args: &ImportArgs) -> Result<(), Failure> {
    let (job, path) = match args.words.as_slice() {
        [path] => (None, path),
        [job, path, ..] => (Some(job.as_str()), path),
        [] => return Err(Failure::Usage("name the file".to_owned())),
    };
    let path = PathBuf::from(path);
    let format = args.format.or_else(|| lines::format_of(&path));
    let Some(format) = format else {
        let shown = path.display();
        let why = format!("{shown}: say --format csv or --format jsonl");
        return Err(Failure::Usage(why));
    };
    let mailing = which::one(worker, job)?;
    let rows = count(&path, format, args)?;
    let mut table = mailing.change().await?;
    let bar = progress_bar(rows);
    let mut done = Done {
        line: args.after_line,
        ..Done::default()
    };
    let mut outcome = Ok(());
    let mut together: Vec<Line> = Vec::new();
    let mut bytes = 0;
    let lines = lines::read(&path, format, &args.null).map_err(Failure::Failed)?;
    for line in lines {
        let line = match line {
            Ok(line) => line,
            Err(why) => {
                outcome = Err(Stop::Changed(format!("the file has changed: {why}")));
                break;
            }
        };
        if line.number <= args.after_line {
            continue;
        }
        let other = together
            .first()
            .is_some_and(|l| !l.row.keys().eq(line.row.keys()));
        if other || together.len() >= TOGETHER || bytes >= BYTES {
            outcome = insert(&mut *table, &together, &mut done).await;
            if outcome.is_err() {
                break;
            }
            bar.set_position(done.imported + done.known);
            (together, bytes) = (Vec::new(), 0);
        }
        bytes += line.row.values().map(length).sum::<usize>();
        together.push(line);
    }
    if outcome.is_ok() {
        outcome = insert(&mut *table, &together, &mut done).await;
    }
    bar.finish_and_clear();
    report(&mailing, &done, args.json);
    let seen = done.imported + done.known;
    if outcome.is_ok() && seen != rows {
        outcome = Err(Stop::Changed(format!(
            "the file has changed since it was counted: it had {rows} rows, and {seen} were read"
        )));
    }
    outcome.map_err(|stop| {
        Failure::Failed(match (stop, done.line) {
            (Stop::Here(why), 0) => format!("{why}; nothing before it"),
            (Stop::Here(why), line) => {
                format!("{why}; all before it is done: go on with --after-line {line}")
            }
            (Stop::Unclear(why), 0) => format!("{why}; nothing before them is"),
            (Stop::Unclear(why), line) => format!("{why}; all up to line {line} is"),
            (Stop::Changed(why), _) => why,
        })
    })
}

/// How many rows there are; every one of them can be read.
fn count(path: &Path, format: Format, args: &ImportArgs) -> Result<u64, Failure> {
    let mut rows = 0;
    for line in lines::read(path, format, &args.null).map_err(Failure::Failed)? {
        let line = line.map_err(|why| Failure::Failed(format!("{why}; nothing was imported")))?;
        rows += u64::from(line.number > args.after_line);
    }
    Ok(rows)
}

/// Rows that have the same columns, in one transaction. When the table refuses one of them, those before it go in without it.
async fn insert(table: &mut dyn Operator, lines: &[Line], done: &mut Done) -> Result<(), Stop> {
    let mut todo = vec![lines];
    while let Some(some) = todo.pop() {
        let (Some(first), Some(last)) = (some.first(), some.last()) else {
            continue;
        };
        let columns: Vec<String> = last.row.keys().cloned().collect();
        let rows: Vec<Value> = some
            .iter()
            .map(|line| Value::Object(line.row.clone()))
            .collect();
        match table.import(&columns, rows).await {
            Ok(imported) => {
                done.imported += imported;
                done.known += (some.len() as u64).saturating_sub(imported);
                done.line = last.number;
            }
            // Of these one is at fault.
            Err(error) if error.is_of_rows() && some.len() > 1 => {
                let (before, behind) = some.split_at(some.len() / 2);
                todo.extend([behind, before]);
            }
            Err(error) => {
                let place = match some.len() {
                    1 => format!("line {}", last.number),
                    _ => format!("lines {} to {}", first.number, last.number),
                };
                let cause = std::error::Error::source(&error);
                let cause = cause.map_or(String::new(), |cause| format!(": {cause}"));
                return Err(match error {
                    SourceError::Unclear { .. } => Stop::Unclear(format!(
                        "{error}; the rows of {place} may be in the table: look before you go on"
                    )),
                    _ => Stop::Here(format!("{place}: {error}{cause}")),
                });
            }
        }
    }
    Ok(())
}

fn report(mailing: &Mailing, done: &Done, json: bool) {
    if json {
        show::json(&json!({
            "job": mailing.job,
            "imported": done.imported,
            "known": done.known,
            "last_line": done.line,
        }));
        return;
    }
    let mut text = format!("{}: {} imported", mailing.job, done.imported);
    if done.known > 0 {
        text += &format!(", {} left out: their ids are there already", done.known);
    }
    terminal::out(&text);
}

fn length(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(_) | Value::Object(_) => value.to_string().len(),
        _ => 8,
    }
}
