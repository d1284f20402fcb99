//! What a command prints: text for people, or JSON.

use super::failure::Failure;
use crate::terminal;

/// To standard output.
pub(super) fn print(text: &str) {
    terminal::out(text);
}

pub(super) fn print_json(value: &impl serde::Serialize) -> Result<(), Failure> {
    print(&json_text(value)?);
    Ok(())
}

pub(super) fn json_text(value: &impl serde::Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map_err(Failure::of)
}

/// To standard error: what a command prints stays what it was asked for.
pub(super) fn note(text: &str) {
    terminal::err(&format!("note: {text}\n"));
}

/// What came of something, told as JSON already or as a sentence now.
pub(super) fn finish(told: Result<String, String>, json: bool) -> Result<(), Failure> {
    match told {
        Ok(_) if json => Ok(()),
        Ok(text) => {
            print(&terminal::sentence(&text));
            Ok(())
        }
        Err(_) if json => Err(Failure::Told),
        Err(why) => Err(Failure::of(why)),
    }
}
