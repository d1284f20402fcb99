//! Drawings: bars of lengths of time, a line of terms, and things in a row. SVG with attributes alone, each with a sentence that says the same.

use super::super::html::Html;

/// The drawing area, in its own units.
const WIDTH: u64 = 1000;
const HEIGHT: u64 = 100;

/// How broad one of several things is drawn at most.
pub(super) const BROADEST: u64 = 50;

/// One bar.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    /// What it stands for; it is shown where it is pointed at.
    pub(super) label: String,
    /// Nothing where it is not known: its place is empty.
    pub(super) value: Option<u64>,
    /// `good`, `bad` or `soft`.
    pub(super) class: &'static str,
}

/// One stretch of a line: from where to where, of `whole`.
#[derive(Clone, Debug)]
pub(super) struct Stretch {
    pub(super) label: String,
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) class: &'static str,
}

/// One of some things in a row. What is wrong is seen by its shape, too.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) label: String,
    /// `good`, `soft`, `warn` or `bad`; nothing for what is still to come.
    pub(super) class: Option<&'static str>,
}

/// Whether so many things take all of the drawing.
pub(super) fn is_whole(count: usize) -> bool {
    u64::try_from(count).is_ok_and(|count| count * BROADEST > WIDTH - BROADEST)
}

/// Bars side by side, the highest as high as the drawing; nothing without any.
pub(super) fn bars(h: &mut Html, title: &str, bars: &[Bar]) {
    if bars.is_empty() {
        return;
    }
    let known = bars.iter().filter_map(|bar| bar.value);
    let highest = known.max().unwrap_or(0).max(1);
    let count = u64::try_from(bars.len()).unwrap_or(u64::MAX);
    let step = (WIDTH / count).max(1);
    // As few bars are not broader than it takes to see them.
    let step = step.min(BROADEST);
    begin(h, title);
    for (n, bar) in (0_u64..).zip(bars) {
        let Some(value) = bar.value else {
            continue;
        };
        // What took no time is seen, too.
        let height = scaled(value, highest, HEIGHT).max(1);
        h.markup("<rect class=\"").markup(bar.class);
        // The newest is at the right.
        h.markup("\" x=\"")
            .text(WIDTH.saturating_sub((count - n) * step));
        h.markup("\" y=\"").text(HEIGHT - height);
        h.markup("\" width=\"").text(step.saturating_sub(2).max(1));
        h.markup("\" height=\"").text(height);
        h.markup("\"><title>")
            .text(&bar.label)
            .markup("</title></rect>");
    }
    h.markup("</svg>");
}

/// Stretches of one line, from 0 to `whole`.
pub(super) fn line(h: &mut Html, title: &str, stretches: &[Stretch], whole: u64) {
    if stretches.is_empty() {
        return;
    }
    let whole = whole.max(1);
    begin(h, title);
    for stretch in stretches {
        let from = scaled(stretch.from.min(whole), whole, WIDTH);
        let to = scaled(stretch.to.min(whole), whole, WIDTH);
        h.markup("<rect class=\"").markup(stretch.class);
        h.markup("\" x=\"").text(from);
        h.markup("\" y=\"0\" height=\"100\" width=\"");
        h.text(to.saturating_sub(from).max(2));
        h.markup("\"><title>").text(&stretch.label);
        h.markup("</title></rect>");
    }
    h.markup("</svg>");
}

/// Things in a row, each as broad as the others and no broader than that, with an edge behind so many of them; nothing without any.
pub(super) fn row(h: &mut Html, title: &str, cells: &[Cell], edge: usize, most: u64) {
    if cells.is_empty() {
        return;
    }
    let whole = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    let step = (WIDTH / whole(cells.len())).clamp(1, most);
    // The space between two, in which the edge stands.
    let gap = (step / 5).min(8);
    begin(h, title);
    for (n, cell) in (0_u64..).zip(cells) {
        let height = match cell.class {
            Some("good" | "bad") => HEIGHT,
            Some("warn") => 80,
            Some(_) => 60,
            None => 30,
        };
        let width = step.saturating_sub(gap).max(1);
        h.markup("<rect class=\"")
            .markup(cell.class.unwrap_or("soft"));
        h.markup("\" x=\"").text(n * step);
        h.markup("\" y=\"").text(HEIGHT - height);
        h.markup("\" width=\"").text(width);
        h.markup("\" height=\"").text(height);
        h.markup("\"><title>").text(&cell.label);
        h.markup("</title></rect>");
        if cell.class == Some("bad") {
            // With a piece broken out.
            h.markup("<rect class=\"notch\" x=\"")
                .text(n * step + width / 5 * 2);
            h.markup("\" y=\"0\" width=\"").text(width / 5);
            h.markup("\" height=\"40\"/>");
        }
    }
    if edge > 0 && edge < cells.len() {
        h.markup("<rect class=\"edge\" x=\"")
            .text((whole(edge) * step).saturating_sub(gap / 2 + 1));
        h.markup("\" y=\"0\" width=\"2\" height=\"100\"/>");
    }
    h.markup("</svg>");
}

fn begin(h: &mut Html, title: &str) {
    h.markup(
        "<svg role=\"img\" viewBox=\"0 0 1000 100\" preserveAspectRatio=\"none\" aria-label=\"",
    );
    h.text(title).markup("\"><title>").text(title);
    h.markup("</title>");
}

fn scaled(value: u64, most: u64, to: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(to) / u128::from(most.max(1));
    u64::try_from(scaled).unwrap_or(to).min(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_high_as_its_share_of_the_highest() {
        let bar = |value| Bar {
            label: "<b>".to_owned(),
            value: Some(value),
            class: "good",
        };
        let mut h = Html::default();
        bars(&mut h, "Durations", &[bar(0), bar(50), bar(u64::MAX)]);
        let svg = h.into_string();
        assert!(
            svg.contains("height=\"1\"><title>&lt;b&gt;</title>"),
            "{svg}"
        );
        assert!(svg.contains("x=\"950\" y=\"0\""), "{svg}");
        assert!(!svg.contains("style="), "{svg}");
        let mut h = Html::default();
        bars(&mut h, "Durations", &[]);
        assert_eq!(h.into_string(), "");
    }

    #[test]
    fn what_is_wrong_in_a_row_is_seen_by_its_shape() {
        let cell = |class| Cell {
            label: "<b>".to_owned(),
            class,
        };
        let cells = [Some("good"), Some("bad"), Some("soft"), None].map(cell);
        let mut h = Html::default();
        row(&mut h, "Ticks", &cells, 3, 1000);
        let svg = h.into_string();
        for part in [
            "<rect class=\"good\" x=\"0\" y=\"0\" width=\"242\" height=\"100\"><title>&lt;b&gt;</title>",
            "<rect class=\"bad\" x=\"250\" y=\"0\" width=\"242\" height=\"100\">",
            "</rect><rect class=\"notch\" x=\"346\" y=\"0\" width=\"48\" height=\"40\"/>",
            "<rect class=\"soft\" x=\"500\" y=\"40\" width=\"242\" height=\"60\">",
            "<rect class=\"soft\" x=\"750\" y=\"70\" width=\"242\" height=\"30\">",
            "<rect class=\"edge\" x=\"745\" y=\"0\" width=\"2\" height=\"100\"/>",
        ] {
            assert!(svg.contains(part), "{part}\n{svg}");
        }
        assert_eq!(svg.matches("notch").count(), 1, "{svg}");
        for (cells, edge) in [(&cells[..], 0), (&cells[..], 4), (&cells[..1], 1)] {
            let mut h = Html::default();
            row(&mut h, "Ticks", cells, edge, 1000);
            let svg = h.into_string();
            assert!(!svg.contains("edge"), "{svg}");
        }
        let mut h = Html::default();
        row(&mut h, "Ticks", &[], 0, 1000);
        assert_eq!(h.into_string(), "");
        // More than there is room for: drawn over each other, and no panic.
        let mut h = Html::default();
        row(&mut h, "Ticks", &vec![cell(None); 2_000], 1_000, 40);
        assert!(h.into_string().ends_with("</svg>"));
    }

    #[test]
    fn a_stretch_lies_where_its_time_lies() {
        let stretch = |from, to| Stretch {
            label: String::new(),
            from,
            to,
            class: "soft",
        };
        let mut h = Html::default();
        line(&mut h, "Terms", &[stretch(0, 50), stretch(50, 900)], 200);
        let svg = h.into_string();
        assert!(
            svg.contains("x=\"0\" y=\"0\" height=\"100\" width=\"250\""),
            "{svg}"
        );
        assert!(
            svg.contains("x=\"250\" y=\"0\" height=\"100\" width=\"750\""),
            "{svg}"
        );
    }
}
