//! What a command prints: text for people, or JSON.

use super::failure::Failure;
use crate::terminal::{self, Paint};

/// To standard output.
pub(super) fn print(text: &str) {
    terminal::out(text);
}

pub(super) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    print(&json_text(value)?);
    Ok(())
}

/// An answer as JSON, or as text for people.
pub(super) fn print_as(
    json: bool,
    answer: &impl serde::Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    let text = if json { json_text(answer)? } else { text() };
    print(&text);
    Ok(())
}

/// The same with colours, where standard output has them.
pub(super) fn print_painted(
    json: bool,
    answer: &impl serde::Serialize,
    text: impl FnOnce(Paint) -> String,
) -> Result<(), Failure> {
    if json {
        return print_json(answer);
    }
    let paint = Paint::of_output();
    // A reader that has gone away is no failure of ours.
    let _ = terminal::out_in(paint, &text(paint));
    Ok(())
}

pub(super) fn json_text(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map_err(Failure::of)
}

/// JSON on one line, for an answer of many of them. What cannot be written so is an empty object.
pub(super) fn json_line(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_else(|_| "{}".to_owned())
}

/// To standard error: what a command prints stays what it was asked for.
pub(super) fn note(text: &str) {
    terminal::err(&format!("note: {text}\n"));
}

/// What came of something: the whole answer as JSON, or a sentence.
pub(super) fn finish(
    json: bool,
    answer: &impl serde::Serialize,
    told: Result<String, String>,
) -> Result<(), Failure> {
    if json {
        print_json(answer)?;
        return told.map(drop).map_err(|_| Failure::Told);
    }
    print(&terminal::sentence(&told.map_err(Failure::of)?));
    Ok(())
}
