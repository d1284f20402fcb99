//! The one way by which text reaches a terminal.
//!
//! Much of what commands show was written by others: owners of locks, names of replicas, errors of servers, output of
//! jobs. A terminal obeys some of it: escape sequences move its cursor, rename its window or answer in its user's place;
//! direction marks show a text in another order than it has. So nothing goes out as it came: [`out`] and [`err`] write
//! such characters as `\u001b`, whatever stands at the other end, a terminal, a file or a pipe. JSON stays the same value,
//! because the escape is JSON's own. Colours of ours pass, where a text is written by [`out_in`]: [`Paint`] says whether there
//! are any. What is drawn in its place goes by a [`Canvas`] or a [`BottomLine`].
//!
//! # Invariants
//! - S1 What is written holds no control character but newline, tab and what is coloured and drawn with here, and nothing invisible
//!   or that turns the direction of text.   (what_a_terminal_would_obey_is_shown)
//! - S2 A cell stays on its line and within [`CELL`] columns.   (a_cell_is_one_line_and_not_too_wide)
//! - S3 JSON means the same afterwards.   (json_keeps_its_meaning)
//! - S4 What a panic says is written like all else.   (a_panic_commands_no_terminal)

mod colours;
mod screen;

use std::{
    backtrace::{Backtrace, BacktraceStatus},
    borrow::Cow,
    io::{self, Write},
};

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::escape::{self, escape, is_obeyed, push_escaped};

pub use self::{
    colours::{Ink, Paint, When, prefer},
    screen::{BottomLine, Canvas, Size, Stream, clipped, frame},
};

/// Columns of a cell of a table, or of a name within a sentence.
pub const CELL: usize = 200;

/// Columns of a sentence that quotes others.
pub const SENTENCE: usize = 2_000;

/// Writes `text` and a newline, if it has none, to standard output. A reader that has gone away (`… | head`) is no failure
/// of ours.
pub fn out(text: &str) {
    let _ = write(io::stdout().lock(), lines(text));
}

/// The same to standard error.
pub fn err(text: &str) {
    let _ = write(io::stderr().lock(), lines(text));
}

/// As [`out`], for a text that `paint` has coloured. What others wrote in it was escaped before: a colour of theirs would pass.
///
/// # Errors
/// Those of writing, for a command that goes on and on: its reader has gone away.
pub fn out_in(paint: Paint, text: &str) -> io::Result<()> {
    write(io::stdout().lock(), painted(text, paint.is_coloured()))
}

/// Panics of this process are told on standard error like all else: what they quote may have been written by others. In the place
/// of the standard library's hook, with the same words; a hook that is set later takes its place.
pub fn tame_panics() {
    std::panic::set_hook(Box::new(|panic| err(&told_of(panic))));
}

fn told_of(panic: &std::panic::PanicHookInfo<'_>) -> String {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or("<unnamed>");
    let trace = Backtrace::capture();
    match trace.status() {
        BacktraceStatus::Captured => format!("thread '{name}' {panic}\n{trace}"),
        _ => format!("thread '{name}' {panic}"),
    }
}

/// A question on standard error: no newline follows it.
pub fn ask(text: &str) {
    let mut to = io::stderr().lock();
    let _ = to.write_all(lines(text).as_bytes());
    let _ = to.flush();
}

fn write(mut to: impl Write, shown: Cow<'_, str>) -> io::Result<()> {
    let mut shown = shown.into_owned();
    if !shown.ends_with('\n') {
        shown.push('\n');
    }
    // At once: what others write to the same terminal must not stand within it.
    to.write_all(shown.as_bytes())?;
    to.flush()
}

/// `text` with what a terminal would obey written out; lines and tabs stay. Also for JSON as a whole.
#[must_use]
pub fn lines(text: &str) -> Cow<'_, str> {
    escape::lines(text)
}

/// `text` as one line, with newlines and tabs written out, too.
#[must_use]
pub fn line(text: &str) -> Cow<'_, str> {
    escape(text, is_obeyed)
}

/// A value that others wrote, as one line of [`CELL`] columns at most.
#[must_use]
pub fn cell(text: &str) -> String {
    cut(text, CELL)
}

/// A sentence that quotes others, as one line of [`SENTENCE`] columns at most.
#[must_use]
pub fn sentence(text: &str) -> String {
    cut(text, SENTENCE)
}

/// How many columns `text` takes, which is what [`line`] or [`cell`] has answered.
#[must_use]
pub fn columns(text: &str) -> usize {
    text.width()
}

/// One line of the log, with the newline at its end. The log's own colours may pass; it writes those of others out itself.
#[must_use]
pub fn log_line(line: &str, colours: bool) -> Cow<'_, str> {
    let (body, end) = match line.strip_suffix('\n') {
        Some(body) => (body, "\n"),
        None => (line, ""),
    };
    if !body.contains(is_obeyed) {
        return Cow::Borrowed(line);
    }
    let mut shown = with_colours(body, colours, is_obeyed);
    shown.push_str(end);
    Cow::Owned(shown)
}

/// `text` as [`lines`] has it, but for colours: those may pass where there are `colours`.
#[must_use]
pub fn painted(text: &str, colours: bool) -> Cow<'_, str> {
    let wrong = |c: char| is_obeyed(c) && c != '\n' && c != '\t';
    match text.contains(wrong) {
        true => Cow::Owned(with_colours(text, colours, wrong)),
        false => Cow::Borrowed(text),
    }
}

/// `text` with what is `wrong` written out, but for colours where those may pass.
fn with_colours(text: &str, colours: bool, wrong: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(at) = rest.find(&wrong) {
        let (before, from) = rest.split_at(at);
        shown.push_str(before);
        let colour = if colours { colour(from) } else { 0 };
        let taken = match colour {
            0 => from.chars().next().map_or(0, char::len_utf8),
            length => length,
        };
        let (taken, after) = from.split_at(taken);
        match colour {
            0 => taken.chars().for_each(|c| push_escaped(&mut shown, c)),
            _ => shown.push_str(taken),
        }
        rest = after;
    }
    shown.push_str(rest);
    shown
}

/// The length of the colour or style with which `text` begins: `ESC [ 1 ; 31 m`.
fn colour(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\u{1b}[") else {
        return 0;
    };
    let number = |c: char| c.is_ascii_digit() || c == ';';
    let end = rest.find(|c| !number(c)).unwrap_or(rest.len());
    match rest[end..].starts_with('m') {
        true => 2 + end + 1,
        false => 0,
    }
}

/// Reads no more of `text` than it needs: a value may be as long as a store allows.
fn cut(text: &str, most: usize) -> String {
    let head = match text.char_indices().nth(most + 1) {
        Some((at, _)) => &text[..at],
        None => text,
    };
    let shown = line(head);
    if head.len() == text.len() && columns(&shown) <= most {
        return shown.into_owned();
    }
    let mut taken = 0;
    let mut kept = String::new();
    for c in shown.chars() {
        taken += c.width().unwrap_or(0);
        if taken >= most {
            break;
        }
        kept.push(c);
    }
    kept + "…"
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: &str = "WATCHKEEPER_TEST_PANIC_CHILD";

    /// Panics only in the child process of the test below.
    #[test]
    fn a_panic_in_a_child() {
        if std::env::var_os(CHILD).is_some() {
            tame_panics();
            panic!("\u{1b}[2J\u{202e}gone");
        }
    }

    #[test]
    fn a_panic_commands_no_terminal() {
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "terminal::tests::a_panic_in_a_child",
                "--exact",
                "--nocapture",
            ])
            .env(CHILD, "1")
            .env("RUST_BACKTRACE", "0")
            .output()
            .unwrap();
        let said = String::from_utf8(child.stderr).unwrap();
        assert!(said.contains("\\u001b[2J\\u202egone"), "{said}");
        assert!(!said.contains(['\u{1b}', '\u{202e}']), "{said}");
        assert!(said.contains("src/terminal.rs:"), "where it was: {said}");
    }

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        let hostile = "a\u{1b}[2J\u{7}\u{7f}\u{9b}31m\u{202e}b\u{200b}\u{2028}\u{feff}\u{e0041}c";
        let shown = lines(hostile);
        assert_eq!(
            shown,
            "a\\u001b[2J\\u0007\\u007f\\u009b31m\\u202eb\\u200b\\u2028\\ufeff\\udb40\\udc41c"
        );
        assert_eq!(lines("one\n\ttwo ü 漢"), "one\n\ttwo ü 漢");
        assert_eq!(line("one\r\n\ttwo"), "one\\r\\n\\ttwo");
    }

    #[test]
    fn a_cell_is_one_line_and_not_too_wide() {
        for c in ['a', 'ü', '漢', '\n', '\u{1b}', '\u{301}'] {
            for length in [1, CELL / 8, CELL - 1, CELL, CELL + 1, 100_000] {
                let shown = cell(&c.to_string().repeat(length));
                assert!(columns(&shown) <= CELL, "{c:?} x {length}");
                assert_eq!(shown.lines().count(), 1);
            }
        }
        assert_eq!(cell(&"a".repeat(CELL)), "a".repeat(CELL));
        assert_eq!(cell(&"a".repeat(CELL + 1)), "a".repeat(CELL - 1) + "…");
    }

    #[test]
    fn json_keeps_its_meaning() {
        let value = serde_json::json!({ "a\u{202e}": ["\u{7f}\u{9b}\n", "\u{e0041}", "\\\u{1b}"] });
        let text = serde_json::to_string_pretty(&value).unwrap();
        let shown = lines(&text);
        assert_ne!(shown, text);
        let read: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(read, value);
    }

    #[test]
    fn a_painted_text_keeps_its_colours_and_its_lines_alone() {
        let said = "\u{1b}[31mone\u{1b}[0m\n\ttwo\u{1b}[2J\r\u{202e}\n";
        assert_eq!(
            painted(said, true),
            "\u{1b}[31mone\u{1b}[0m\n\ttwo\\u001b[2J\\r\\u202e\n"
        );
        assert_eq!(painted(said, false), lines(said));
        assert_eq!(painted("plain\n", true), "plain\n");
    }

    #[test]
    fn a_line_of_the_log_keeps_its_own_colours_alone() {
        let said = "\u{1b}[2mnow\u{1b}[0m \u{1b}[1;31mx\u{1b}[2J\ny\u{202e}\n";
        assert_eq!(
            log_line(said, true),
            "\u{1b}[2mnow\u{1b}[0m \u{1b}[1;31mx\\u001b[2J\\ny\\u202e\n"
        );
        assert_eq!(log_line("\u{1b}[2mnow\n", false), "\\u001b[2mnow\n");
        assert_eq!(log_line("plain\n", false), "plain\n");
    }
}
