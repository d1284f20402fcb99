//! What is drawn on a terminal in its place: a picture of as many columns and rows as there are, or one line at the bottom.
//!
//! What is drawn is made by plain functions of a text and a size; [`Canvas`] and [`BottomLine`] write it.
//!
//! # Invariants
//! - S6 A picture is never larger than its terminal: nothing wraps, and nothing scrolls.   (a_picture_fits_its_terminal)
//! - S7 A drawn text commands no terminal, as all else.   (what_is_drawn_holds_no_command_of_others)

use std::{
    env,
    io::{self, IsTerminal, Write},
};

use rustix::termios::tcgetwinsize;
use unicode_width::UnicodeWidthChar;

use super::{
    colour,
    colours::{RESET, is_dumb},
    line, painted,
};

/// Where nothing tells the size of a terminal.
const USUAL: Size = Size {
    columns: 80,
    rows: 24,
};

/// To the left corner at the top.
const HOME: &str = "\u{1b}[H";
/// To the end of the line, and to the end of the screen.
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";
const HIDE_CURSOR: &str = "\u{1b}[?25l";
const SHOW_CURSOR: &str = "\u{1b}[?25h";

/// How large a terminal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters beside each other.
    pub columns: usize,
    /// Lines below each other.
    pub rows: usize,
}

/// Where text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Output,
    /// Standard error.
    Errors,
}

/// The screen of standard output while a picture is drawn on it again and again: its cursor is out of sight until this is dropped.
#[derive(Debug)]
pub struct Canvas(());

/// A line that is written over, below all others; on a terminal alone.
#[derive(Debug)]
pub struct BottomLine {
    to: Stream,
    /// Whether there is a terminal.
    seen: bool,
    /// Whether it stands there now.
    shown: bool,
}

/// A text of lines as far as it fits on a terminal of this size: lines are cut, and those too many are counted in the last one.
#[must_use]
pub fn frame(text: &str, size: Size) -> String {
    let lines: Vec<&str> = text.lines().collect();
    // The last column stays free: terminals differ in what becomes of a cursor that stands behind it.
    let columns = size.columns.saturating_sub(1);
    let all = lines.len() <= size.rows;
    let most = match all {
        true => lines.len(),
        false => size.rows.saturating_sub(1),
    };
    let shown = lines.iter().take(most);
    let mut shown: Vec<String> = shown.map(|line| clipped(line, columns)).collect();
    if !all && size.rows > 0 {
        let more = format!("… {} more lines", lines.len() - most);
        shown.push(clipped(&more, columns));
    }
    shown.join("\n")
}

/// A line as far as it fits into so many columns; one that is cut ends with `…`. Colours take no room, and end with the line.
#[must_use]
pub fn clipped(line: &str, most: usize) -> String {
    if width(line) <= most {
        return line.to_owned();
    }
    if most == 0 {
        return String::new();
    }
    let (mut kept, mut taken, mut coloured) = (String::new(), 0, false);
    let mut rest = line;
    while let Some(c) = rest.chars().next() {
        let length = colour(rest);
        if length > 0 {
            let (mark, after) = rest.split_at(length);
            coloured = mark != RESET;
            kept.push_str(mark);
            rest = after;
            continue;
        }
        let wide = c.width().unwrap_or(0);
        // One column is for the mark of the cut.
        if taken + wide >= most {
            break;
        }
        taken += wide;
        kept.push(c);
        rest = &rest[c.len_utf8()..];
    }
    if coloured {
        kept.push_str(RESET);
    }
    kept + "…"
}

/// Columns of a line, its colours left out.
fn width(line: &str) -> usize {
    let (mut columns, mut rest) = (0, line);
    while let Some(c) = rest.chars().next() {
        let length = match colour(rest) {
            0 => {
                columns += c.width().unwrap_or(0);
                c.len_utf8()
            }
            length => length,
        };
        rest = &rest[length..];
    }
    columns
}

/// What draws a picture over the last one. It is never cleared first: that is what flickers.
fn over_the_last(picture: &str) -> String {
    let picture = painted(picture, true);
    let lines: Vec<&str> = picture.lines().collect();
    let lines = lines.join(&format!("{CLEAR_LINE}\n"));
    format!("{HOME}{lines}{CLEAR_LINE}{CLEAR_BELOW}")
}

/// What draws a line over the one in which the cursor stands.
fn over_the_line(text: &str, columns: usize) -> String {
    let text = clipped(&line(text), columns.saturating_sub(1));
    format!("\r{text}{CLEAR_LINE}")
}

/// `told`: rows and columns by the terminal itself, which may not know them.
fn size_of(told: Option<(u16, u16)>, variable: impl Fn(&str) -> Option<String>) -> Size {
    let (rows, columns) = told.unwrap_or_default();
    let known = |told: u16, name: &str, usual: usize| match told {
        0 => {
            let said = variable(name).and_then(|said| said.parse::<usize>().ok());
            said.filter(|said| *said > 0).unwrap_or(usual)
        }
        told => usize::from(told),
    };
    Size {
        columns: known(columns, "COLUMNS", USUAL.columns),
        rows: known(rows, "LINES", USUAL.rows),
    }
}

// === impl Stream ===

impl Stream {
    /// How large the terminal at the other end is; `None` where there is none, or one that draws nothing in its place.
    #[must_use]
    pub fn size(self) -> Option<Size> {
        let (terminal, told) = match self {
            Self::Output => (io::stdout().is_terminal(), tcgetwinsize(io::stdout())),
            Self::Errors => (io::stderr().is_terminal(), tcgetwinsize(io::stderr())),
        };
        if !terminal || is_dumb() {
            return None;
        }
        let told = told.ok().map(|size| (size.ws_row, size.ws_col));
        Some(size_of(told, |name| env::var(name).ok()))
    }

    /// As it is, and at once.
    fn write(self, text: &str) -> io::Result<()> {
        fn whole(mut to: impl Write, text: &str) -> io::Result<()> {
            to.write_all(text.as_bytes())?;
            to.flush()
        }
        match self {
            Self::Output => whole(io::stdout().lock(), text),
            Self::Errors => whole(io::stderr().lock(), text),
        }
    }
}

// === impl Canvas ===

impl Canvas {
    /// Begins to draw on standard output.
    ///
    /// # Errors
    /// Those of writing to it.
    pub fn begin() -> io::Result<Self> {
        let canvas = Self(());
        canvas.take()?;
        Ok(canvas)
    }

    /// Draws a picture, which was made by [`frame`].
    ///
    /// # Errors
    /// Those of writing: the terminal has gone.
    pub fn draw(&self, picture: &str) -> io::Result<()> {
        Stream::Output.write(&over_the_last(picture))
    }

    /// Takes the screen after [`Canvas::leave`].
    ///
    /// # Errors
    /// Those of writing: the terminal has gone.
    pub fn take(&self) -> io::Result<()> {
        Stream::Output.write(HIDE_CURSOR)
    }

    /// Leaves the screen to others, below the picture: this process is about to be stopped or to end.
    pub fn leave(&self) {
        // Nothing to be done about a terminal that is gone.
        let _ = Stream::Output.write(&format!("{SHOW_CURSOR}\n"));
    }
}

impl Drop for Canvas {
    fn drop(&mut self) {
        self.leave();
    }
}

// === impl BottomLine ===

impl BottomLine {
    /// Below what is written to this stream.
    #[must_use]
    pub fn of(to: Stream) -> Self {
        Self {
            to,
            seen: to.size().is_some(),
            shown: false,
        }
    }

    /// Whether there is a terminal that shows it.
    #[must_use]
    pub fn is_seen(&self) -> bool {
        self.seen
    }

    /// Writes it, over what it was.
    pub fn show(&mut self, text: &str) {
        let Some(size) = self.to.size().filter(|_| self.seen) else {
            return;
        };
        // A terminal that is gone shows nothing.
        let _ = self.to.write(&over_the_line(text, size.columns));
        self.shown = true;
    }

    /// Takes it away: something is to be written in its place.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = self.to.write(&format!("\r{CLEAR_LINE}"));
        }
    }
}

impl Drop for BottomLine {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::terminal::{Ink, Paint};

    const TEXT: &str = "JOB     LEADER\nreport  alpha\n漢字漢字漢字  beta\nmail    gamma\n";

    #[test]
    fn a_picture_fits_its_terminal() {
        for columns in 0..20 {
            for rows in 0..6 {
                let shown = frame(TEXT, Size { columns, rows });
                assert!(shown.lines().count() <= rows, "{columns}x{rows}: {shown}");
                let widest = shown.lines().map(width).max().unwrap_or(0);
                assert!(
                    widest <= columns.saturating_sub(1),
                    "{columns}x{rows}: {shown}"
                );
            }
        }
        let large = Size {
            columns: 80,
            rows: 4,
        };
        assert_eq!(frame(TEXT, large), TEXT.trim_end());
        let small = Size {
            columns: 12,
            rows: 3,
        };
        assert_eq!(frame(TEXT, small), "JOB     LE…\nreport  al…\n… 2 more l…");
    }

    #[test]
    fn a_cut_line_ends_its_colour() {
        let line = format!("a {} end", Paint::COLOURED.ink(Ink::Bad, "failed"));
        assert_eq!(width(&line), 12);
        assert_eq!(clipped(&line, 12), line);
        assert_eq!(clipped(&line, 6), "a \u{1b}[31mfai\u{1b}[0m…");
        assert_eq!(clipped(&line, 10), "a \u{1b}[31mfailed\u{1b}[0m …");
        assert_eq!(clipped(&line, 0), "");
    }

    #[test]
    fn a_picture_is_drawn_over_the_last_one_without_clearing_it() {
        assert_eq!(
            over_the_last("one\ntwo"),
            "\u{1b}[Hone\u{1b}[K\ntwo\u{1b}[K\u{1b}[J"
        );
        assert_eq!(over_the_line("12 of 40", 6), "\r12 o…\u{1b}[K");
    }

    #[test]
    fn what_is_drawn_holds_no_command_of_others() {
        let hostile = "a\u{1b}[2Jb\u{7}\u{202e}c";
        let drawn = over_the_last(hostile);
        assert!(drawn.contains("a\\u001b[2Jb\\u0007\\u202ec"), "{drawn:?}");
        let drawn = over_the_line("a\u{1b}[2J\nb", 80);
        assert_eq!(drawn, "\ra\\u001b[2J\\nb\u{1b}[K");
    }

    #[test]
    fn a_terminal_that_does_not_know_its_size_is_asked_by_its_variables() {
        let none = |_: &str| None;
        let said = |name: &str| match name {
            "LINES" => Some("10".to_owned()),
            _ => Some("0".to_owned()),
        };
        let size = |columns, rows| Size { columns, rows };
        assert_eq!(size_of(Some((30, 120)), said), size(120, 30));
        assert_eq!(size_of(Some((0, 0)), said), size(80, 10));
        assert_eq!(size_of(None, none), USUAL);
    }
}
