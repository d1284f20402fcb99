//! Columns of text, as wide as their widest cell. Any program may have written what stands in a cell: it is shown on one line, and cut.

use std::fmt;

use crate::terminal::{Ink, Paint, cell, columns};

/// Rows under a header; written without trailing blanks.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<(String, Ink)>>,
}

impl Table {
    /// A table with these columns, written as `JOB | NOTE`.
    #[must_use]
    pub fn new(header: &str) -> Self {
        let header = header.split(" | ");
        let header = header.map(|name| (name.to_owned(), Ink::Strong));
        Self {
            rows: vec![header.collect()],
        }
    }

    /// What a table with these columns and rows looks like.
    #[must_use]
    pub fn text<const N: usize>(
        header: &str,
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> String {
        let mut table = Self::new(header);
        rows.into_iter().for_each(|row| table.row(row));
        table.to_string()
    }

    /// Adds a row; an empty cell is shown as a dash.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.inked_row(cells.into_iter().map(|cell| (cell, Ink::Plain)));
    }

    /// The same with cells in ink.
    pub fn inked_row(&mut self, cells: impl IntoIterator<Item = (String, Ink)>) {
        let shown = |(text, ink): (String, Ink)| match text.is_empty() {
            true => ("-".to_owned(), Ink::Plain),
            false => (cell(&text), ink),
        };
        self.rows.push(cells.into_iter().map(shown).collect());
    }

    /// What it looks like in these colours.
    #[must_use]
    pub fn painted(&self, paint: Paint) -> String {
        let mut widths: Vec<usize> = Vec::new();
        for row in &self.rows {
            for (column, (cell, _)) in row.iter().enumerate() {
                match widths.get_mut(column) {
                    Some(width) => *width = columns(cell).max(*width),
                    None => widths.push(columns(cell)),
                }
            }
        }
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for ((cell, ink), &width) in row.iter().zip(&widths) {
                line += &paint.ink(*ink, cell);
                // Not by the formatter, whose widths end at 65,535 and count characters.
                line.extend(std::iter::repeat_n(' ', width - columns(cell) + 2));
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.painted(Paint::PLAIN))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new("JOB | NOTE");
        table.row(["nightly-report".to_owned(), String::new()]);
        table.row(["ü".to_owned(), "x".to_owned()]);
        let expected = "JOB             NOTE\nnightly-report  -\nü               x\n";
        assert_eq!(table.to_string(), expected);
    }

    #[test]
    fn colours_take_no_room() {
        let mut table = Table::new("STATE | ON");
        let row = [("failed", Ink::Bad), ("w", Ink::Plain)];
        table.inked_row(row.map(|(cell, ink)| (cell.to_owned(), ink)));
        let painted = table.painted(Paint::COLOURED);
        let row = painted.lines().nth(1).unwrap();
        assert_eq!(row, "\u{1b}[31mfailed\u{1b}[0m  w");
        let bare = painted
            .replace("\u{1b}[31m", "")
            .replace("\u{1b}[1m", "")
            .replace("\u{1b}[0m", "");
        assert_eq!(bare, table.to_string());
    }

    #[test]
    fn a_cell_that_is_far_too_wide_or_commands_the_terminal_leaves_the_table_in_order() {
        let mut table = Table::new("OWNER | TOKEN");
        table.row(["x".repeat(100_000), "1".to_owned()]);
        table.row(["漢\n\u{1b}[2J".to_owned(), "2".to_owned()]);
        let text = table.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        let cut = "x".repeat(crate::terminal::CELL - 1) + "…";
        assert_eq!(lines[1], format!("{cut}  1"));
        assert!(lines[2].starts_with("漢\\n\\u001b[2J "), "{}", lines[2]);
        let at = columns(lines[2].strip_suffix('2').unwrap());
        assert_eq!(at, crate::terminal::CELL + 2);
    }
}
