//! HTML that cannot be injected into: markup is written by literals only, everything else is escaped.

use std::fmt::{Display, Write};

/// A page under construction, or a part of one.
#[derive(Clone, Debug, Default)]
pub(super) struct Html(String);

// === impl Html ===

impl Html {
    /// Markup: a literal of this program. Attributes filled by [`Html::text`] must stand in double quotes.
    pub(super) fn markup(&mut self, literal: &'static str) -> &mut Self {
        self.0.push_str(literal);
        self
    }

    /// Anything else.
    pub(super) fn text(&mut self, text: impl Display) -> &mut Self {
        // Writing to a string does not fail.
        let _ = write!(Escaped(&mut self.0), "{text}");
        self
    }

    /// A line of small text.
    pub(super) fn small(&mut self, text: impl Display) -> &mut Self {
        self.markup("<small>").text(text).markup("</small>")
    }

    /// A line of small text that tells of trouble.
    pub(super) fn bad(&mut self, text: impl Display) -> &mut Self {
        self.markup("<small class=\"bad\">").text(text);
        self.markup("</small>")
    }

    /// Everything that another one has.
    pub(super) fn append(&mut self, other: &Self) -> &mut Self {
        self.0.push_str(&other.0);
        self
    }

    /// A link to a page of ours.
    pub(super) fn link(&mut self, address: &str, text: impl Display) -> &mut Self {
        self.markup("<a href=\"").text(address).markup("\">");
        self.text(text).markup("</a>")
    }

    /// The same with one piece of markup in the place of another: both are literals, and text has neither.
    pub(super) fn replaced(self, from: &'static str, to: &'static str) -> Self {
        Self(self.0.replace(from, to))
    }

    /// The same with this markup behind so many bytes.
    pub(super) fn with_end(mut self, bytes: usize, end: &'static str) -> Self {
        self.0.truncate(bytes);
        self.0.push_str(end);
        self
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn into_string(self) -> String {
        self.0
    }
}

struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for c in text.chars() {
            match c {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                // Direction marks could make one name look like another.
                '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => self.0.push('\u{fffd}'),
                c if c.is_control() && c != '\n' && c != '\t' => self.0.push('\u{fffd}'),
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_never_becomes_markup() {
        let mut html = Html::default();
        html.markup("<p title=\"")
            .text("\"><script>")
            .markup("\">")
            .text("a & 'b' <c>\u{0}\u{202e}");
        let expected =
            "<p title=\"&quot;&gt;&lt;script&gt;\">a &amp; &#39;b&#39; &lt;c&gt;\u{fffd}\u{fffd}";
        assert_eq!(html.into_string(), expected);
    }
}
