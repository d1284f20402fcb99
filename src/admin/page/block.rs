//! What a page consists of: tables whose rows have keys, and the rest.
//!
//! The page, and the stream that keeps it up to date, are made from the same rows. A row is sent again when its [`digest`] has changed:
//! what only grows older, and figures that are others at every look, are no part of that. What remains of a lease is none either, and
//! is sent again before the browser has counted it down ([`Row::left`]).

use std::hash::{DefaultHasher, Hash, Hasher};

use super::super::html::Html;

/// A page, as far as it differs from others.
#[derive(Clone, Debug)]
pub(in crate::admin) struct Page {
    pub(in crate::admin) title: String,
    pub(in crate::admin) live: Live,
    pub(in crate::admin) blocks: Vec<Block>,
}

/// How a page is kept up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::admin) enum Live {
    /// By a stream of its rows.
    Stream,
    /// By asking for it again: it shows what is read from the store.
    Poll,
    /// Not at all: a person is filling it in, or reads what one run has left.
    Off,
}

#[derive(Clone, Debug)]
pub(in crate::admin) enum Block {
    Rows(Part),
    /// An element that is put in the place of the one with its name.
    Piece(Piece),
    Plain(Html),
}

/// An element with `data-piece`, unique on its page.
#[derive(Clone, Debug)]
pub(in crate::admin) struct Piece {
    pub(in crate::admin) name: &'static str,
    pub(in crate::admin) html: Html,
}

/// A table.
#[derive(Clone, Debug)]
pub(in crate::admin) struct Part {
    /// Unique on its page.
    pub(in crate::admin) id: &'static str,
    title: &'static str,
    /// Their names, with ` | ` between them.
    columns: &'static str,
    pub(in crate::admin) rows: Vec<Row>,
    /// Beside the title.
    note: String,
    /// Below the table: where there is more.
    foot: Html,
    /// What stands there without rows.
    none: &'static str,
    /// Whether its rows are shown when they are asked for.
    folded: bool,
}

/// One row.
#[derive(Clone, Debug)]
pub(in crate::admin) struct Row {
    /// Unique in its table, and the same as long as the row is about the same.
    pub(in crate::admin) key: String,
    cells: Html,
}

// === impl Piece ===

impl Piece {
    /// What differs from one look to the next, or is not there at each of them, in an element of its own.
    pub(super) fn around(name: &'static str, inside: &Html) -> Self {
        let mut html = Html::default();
        html.markup("<div data-piece=\"").markup(name).markup("\">");
        html.append(inside).markup("</div>\n");
        Self { name, html }
    }
}

// === impl Part ===

impl Part {
    /// A table of these. `cells` begins each cell with [`cell`].
    pub(super) fn of<T>(
        (id, title): (&'static str, &'static str),
        columns: &'static str,
        items: impl IntoIterator<Item = T>,
        key: impl Fn(&T) -> String,
        cells: impl Fn(&mut Html, &T),
    ) -> Self {
        let row = |item: T| {
            let mut h = Html::default();
            cells(&mut h, &item);
            Row {
                key: key(&item),
                cells: with_nothing_marked(h),
            }
        };
        Self {
            id,
            title,
            columns,
            rows: items.into_iter().map(row).collect(),
            note: String::new(),
            foot: Html::default(),
            none: "none",
            folded: false,
        }
    }

    /// With words beside its title.
    pub(super) fn noted(self, note: impl Into<String>) -> Self {
        let note = note.into();
        Self { note, ..self }
    }

    /// With something below it.
    pub(super) fn footed(self, foot: Html) -> Self {
        Self { foot, ..self }
    }

    /// With what to say where it has no rows.
    pub(super) fn or_none(self, none: &'static str) -> Self {
        Self { none, ..self }
    }

    /// With its rows behind its title, where they are long and seldom read; without a script they are shown.
    pub(super) fn folded(self) -> Self {
        Self {
            folded: true,
            ..self
        }
    }

    pub(super) fn write(&self, h: &mut Html) {
        h.markup("<section aria-labelledby=\"title-")
            .markup(self.id);
        h.markup(match self.folded {
            // Open: without a script the page is loaded again every five seconds, and would fold it under its reader.
            true => "\"><details class=\"folds\" open><summary><h2 id=\"title-",
            false => "\"><h2 id=\"title-",
        });
        h.markup(self.id).markup("\">").markup(self.title);
        if !self.note.is_empty() {
            h.markup(" <span class=\"note\">").text(&self.note);
            h.markup("</span>");
        }
        h.markup(match self.folded {
            true => "</h2></summary>",
            false => "</h2>",
        });
        h.markup("<table data-part=\"").markup(self.id);
        h.markup("\"><caption>").markup(self.title);
        h.markup("</caption><thead><tr>");
        for column in self.columns.split(" | ") {
            h.markup(match FIGURES.contains(&column) {
                true => "<th scope=\"col\" class=\"figure\">",
                false => "<th scope=\"col\">",
            });
            h.markup(column).markup("</th>");
        }
        h.markup("</tr></thead><tbody>\n");
        for row in self.shown() {
            row.write(h);
        }
        h.markup("</tbody></table><div data-piece=\"foot-")
            .markup(self.id);
        h.markup("\">").append(&self.foot);
        h.markup(match self.folded {
            true => "</div></details></section>\n",
            false => "</div></section>\n",
        });
    }

    /// Its rows; where it has none, the one that says so.
    pub(in crate::admin) fn shown(&self) -> Vec<Row> {
        if !self.rows.is_empty() {
            return self.rows.clone();
        }
        let mut cells = Html::default();
        cells
            .markup("<td class=\"none\" colspan=\"")
            .text(self.columns.split(" | ").count());
        cells.markup("\">").markup(self.none);
        let key = String::new();
        vec![Row { key, cells }]
    }
}

// === impl Row ===

impl Row {
    pub(in crate::admin) fn write(&self, h: &mut Html) {
        h.markup("<tr data-key=\"").text(&self.key).markup("\">");
        h.append(&self.cells).markup("</tr>\n");
    }

    /// The same as long as nothing but time has passed.
    pub(in crate::admin) fn digest(&self) -> u64 {
        digest(self.cells.as_str())
    }

    /// What remains of the lease in it, in milliseconds.
    pub(in crate::admin) fn left(&self) -> Option<u64> {
        let (_, rest) = self.cells.as_str().split_once(LEFT)?;
        let (left, _) = rest.split_once('"')?;
        left.parse().ok()
    }
}

/// A number for a text of ours, without what grows older in it. Text from elsewhere is escaped: it has no elements.
pub(in crate::admin) fn digest(html: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    let mut rest = html;
    while let Some((at, open, close)) = first_fading(rest) {
        rest[..at].hash(&mut hasher);
        let element = &rest[at..];
        // When it was stays a part of it, and how long ago that is does not.
        let tag = element.split('>').next().unwrap_or_default();
        if open == TIME && !tag.contains("class=\"left\"") {
            tag.hash(&mut hasher);
        }
        match element.find(close) {
            Some(end) => rest = &element[end + close.len()..],
            None => break,
        }
    }
    rest.hash(&mut hasher);
    hasher.finish()
}

/// As [`left`](super::times::left) writes it.
const LEFT: &str = "<time class=\"left\" data-left=\"";
const TIME: &str = "<time ";
const FADING: [(&str, &str); 2] = [(TIME, "</time>"), ("<span class=\"fade\"", "</span>")];

fn first_fading(html: &str) -> Option<(usize, &'static str, &'static str)> {
    let found = FADING.iter().filter_map(|(open, close)| {
        let at = html.find(open)?;
        Some((at, *open, *close))
    });
    found.min_by_key(|(at, _, _)| *at)
}

/// Columns of figures, which stand to the right.
const FIGURES: [&str; 15] = [
    "Backlog",
    "Clock",
    "Dead",
    "In doubt",
    "In flight",
    "Late",
    "Nodes",
    "Oldest",
    "Oldest in flight",
    "Parked",
    "Rate",
    "Round trip",
    "Runs",
    "Sent again",
    "Took",
];

/// Cells without a value are marked: a narrow page leaves them out.
fn with_nothing_marked(cells: Html) -> Html {
    const NOTHING: &str = "\"><span class=\"nil\">–</span>";
    let marked = cells.replaced("\">–<td", "\"><span class=\"nil\">–</span><td");
    let before = marked.as_str().strip_suffix("\">–").map(str::len);
    match before {
        Some(bytes) => marked.with_end(bytes, NOTHING),
        None => marked,
    }
}

/// Begins a cell; the one before ends by itself, as HTML has it.
pub(super) fn cell<'a>(h: &'a mut Html, label: &'static str) -> &'a mut Html {
    h.markup(match FIGURES.contains(&label) {
        true => "<td class=\"figure\" data-label=\"",
        false => "<td data-label=\"",
    });
    h.markup(label).markup("\">")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(names: &[&str]) -> Part {
        Part::of(
            ("jobs", "Jobs"),
            "Job | Since",
            names.iter().copied(),
            |name| (*name).to_owned(),
            |h, name| {
                cell(h, "Job").text(name);
                cell(h, "Since").markup("–");
            },
        )
    }

    #[test]
    fn a_table_has_a_caption_and_rows_with_keys() {
        let mut h = Html::default();
        part(&["a\"<b>"]).write(&mut h);
        let html = h.into_string();
        for piece in [
            "<caption>Jobs</caption>",
            "<th scope=\"col\">Since</th>",
            "<tr data-key=\"a&quot;&lt;b&gt;\"><td data-label=\"Job\">a&quot;&lt;b&gt;<td",
        ] {
            assert!(html.contains(piece), "{piece}\n{html}");
        }
        let mut h = Html::default();
        part(&[]).or_none("nothing yet").write(&mut h);
        let html = h.into_string();
        assert!(html.contains("colspan=\"2\">nothing yet</tr>"), "{html}");
    }

    #[test]
    fn what_only_grows_older_is_no_change() {
        let row = |ago: &str, at: &str, rtt: &str, name: &str| {
            digest(&format!(
                "<td>{name}<td><time class=\"rel\" datetime=\"{at}\">{ago}</time><td><span class=\"fade\">{rtt}</span><td>x"
            ))
        };
        let before = row("1 s ago", "t0", "240 µs", "a");
        assert_eq!(before, row("2 s ago", "t0", "310 µs", "a"));
        assert_ne!(before, row("1 s ago", "t1", "240 µs", "a"));
        assert_ne!(before, row("1 s ago", "t0", "240 µs", "b"));
        let left = |ms: u64| {
            digest(&format!(
                "<td><time class=\"left\" data-left=\"{ms}\">{ms}</time>"
            ))
        };
        assert_eq!(left(9000), left(8000));
        // A text that was not closed is hashed as it is, and ends.
        assert_ne!(digest("<time a"), digest("<time b"));
    }
}
