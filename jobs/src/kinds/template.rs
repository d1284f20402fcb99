//! Texts with placeholders: `${name}`; `$${` stands for `${`.
//!
//! What may stand between the braces, and what is filled in for it, is the affair of each kind of job.

/// A text with placeholders of one sort.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Template<P>(Vec<Part<P>>);

/// A piece of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part<P> {
    /// What stands there.
    Text(String),
    /// What is filled in.
    Placeholder(P),
}

// === impl Template ===

impl<P> Template<P> {
    /// Reads a text. `placeholder` reads what stands between braces, and is told the text before them.
    ///
    /// # Errors
    /// A sentence for the reader of the configuration, about a placeholder that is unknown or not closed; `known` says which
    /// there are.
    pub(super) fn parse(
        text: &str,
        known: &str,
        mut placeholder: impl FnMut(&str, &str) -> Option<P>,
    ) -> Result<Self, String> {
        const PLAIN: &str = "`$${` stands for a plain `${`";
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, inner) = (&rest[..at], &rest[at + 2..]);
            if let Some(before) = before.strip_suffix('$') {
                parts.push(Part::Text(format!("{before}${{")));
                rest = inner;
                continue;
            }
            let Some((name, after)) = inner.split_once('}') else {
                return Err(format!("a placeholder is not closed; {known}; {PLAIN}"));
            };
            let Some(found) = placeholder(name, &text[..text.len() - rest.len() + at]) else {
                // Not more of it than a name is long: who knows what stands there.
                let name: String = name.chars().take(20).collect();
                return Err(format!(
                    "there is no placeholder `${{{name}}}`; {known}; {PLAIN}"
                ));
            };
            parts.extend([Part::Text(before.to_owned()), Part::Placeholder(found)]);
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        parts.retain(|part| !matches!(part, Part::Text(text) if text.is_empty()));
        Ok(Self(parts))
    }

    /// Its pieces in order.
    pub(super) fn parts(&self) -> &[Part<P>] {
        &self.0
    }

    /// Its placeholders in order.
    pub(super) fn placeholders(&self) -> impl Iterator<Item = &P> {
        self.0.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Placeholder(inner) => Some(inner),
        })
    }
}
