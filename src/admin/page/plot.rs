//! Drawings: bars of lengths of time, and a line of terms. SVG with attributes alone, each with a sentence that says the same.

use super::super::html::Html;

/// The drawing area, in its own units.
const WIDTH: u64 = 1000;
const HEIGHT: u64 = 100;

/// One bar.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    /// What it stands for; it is shown where it is pointed at.
    pub(super) label: String,
    pub(super) value: u64,
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

/// Bars side by side, the highest as high as the drawing; nothing without any.
pub(super) fn bars(h: &mut Html, title: &str, bars: &[Bar]) {
    if bars.is_empty() {
        return;
    }
    let highest = bars.iter().map(|bar| bar.value).max().unwrap_or(0).max(1);
    let count = u64::try_from(bars.len()).unwrap_or(u64::MAX);
    let step = (WIDTH / count).max(1);
    // As few bars are not broader than it takes to see them.
    let step = step.min(20);
    begin(h, title);
    for (n, bar) in (0_u64..).zip(bars) {
        // What took no time is seen, too.
        let height = scaled(bar.value, highest, HEIGHT).max(1);
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
        h.markup("\" y=\"30\" height=\"40\" width=\"");
        h.text(to.saturating_sub(from).max(2));
        h.markup("\"><title>").text(&stretch.label);
        h.markup("</title></rect>");
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
            value,
            class: "good",
        };
        let mut h = Html::default();
        bars(&mut h, "Durations", &[bar(0), bar(50), bar(u64::MAX)]);
        let svg = h.into_string();
        assert!(
            svg.contains("height=\"1\"><title>&lt;b&gt;</title>"),
            "{svg}"
        );
        assert!(svg.contains("x=\"980\" y=\"0\""), "{svg}");
        assert!(!svg.contains("style="), "{svg}");
        let mut h = Html::default();
        bars(&mut h, "Durations", &[]);
        assert_eq!(h.into_string(), "");
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
            svg.contains("x=\"0\" y=\"30\" height=\"40\" width=\"250\""),
            "{svg}"
        );
        assert!(
            svg.contains("x=\"250\" y=\"30\" height=\"40\" width=\"750\""),
            "{svg}"
        );
    }
}
