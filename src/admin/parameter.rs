//! What a request may say in its address and in its head: names, types and bounds, checked and described by the same table.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::problem::Problem;

/// Bytes of a name that is quoted back.
const QUOTED: usize = 64;

/// One parameter of a path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) location: Location,
    pub(super) about: &'static str,
    pub(super) takes: Takes,
    /// Without it there is no answer.
    pub(super) needed: bool,
}

/// Where it stands: what OpenAPI calls `in`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Path,
    Query,
    Header,
}

/// What it may be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Takes {
    /// Text of so many bytes at most, without control characters.
    Text(usize),
    /// One of these.
    Word(&'static [&'static str]),
    /// Some of these, with commas.
    Words(&'static [&'static str]),
    Flag,
    /// An instant, as RFC 3339 has it.
    Time,
    /// From `least` to `most`.
    Number {
        least: u64,
        most: u64,
        /// Where nothing is said.
        usual: u64,
    },
}

/// What one request has said, checked.
#[derive(Debug)]
pub(super) struct Asked {
    parameters: &'static [Parameter],
    said: Vec<(&'static str, String)>,
}

// === impl Parameter ===

impl Parameter {
    /// A word of the path.
    pub(super) const fn of_path(name: &'static str, about: &'static str, longest: usize) -> Self {
        Self {
            name,
            location: Location::Path,
            about,
            takes: Takes::Text(longest),
            needed: true,
        }
    }

    /// A parameter of the query that may be left out.
    pub(super) const fn of_query(name: &'static str, about: &'static str, takes: Takes) -> Self {
        Self {
            name,
            location: Location::Query,
            about,
            takes,
            needed: false,
        }
    }

    /// How many items a page has.
    pub(super) const fn limit(usual: u64, most: u64) -> Self {
        let takes = Takes::Number {
            least: 1,
            most,
            usual,
        };
        Self::of_query("limit", "How many items the page has at most.", takes)
    }

    /// Where a page begins.
    pub(super) const AFTER: Self = Self::of_query(
        "after",
        "Where the page begins: what the page before it says as `next`.",
        Takes::Text(1024),
    );

    /// As OpenAPI describes it.
    pub(super) fn to_json(self) -> Value {
        let location = match self.location {
            Location::Path => "path",
            Location::Query => "query",
            Location::Header => "header",
        };
        let mut described = json!({
            "name": self.name,
            "in": location,
            "description": self.about,
            "required": self.needed,
            "schema": self.takes.to_json(),
        });
        if let Takes::Words(_) = self.takes {
            // With commas, and not by saying it twice.
            described["style"] = "form".into();
            described["explode"] = false.into();
        }
        described
    }
}

// === impl Takes ===

impl Takes {
    fn check(self, text: &str) -> Result<(), String> {
        let one_of = |words: &[&str]| format!("one of {}", words.join(", "));
        let fits = match self {
            Self::Text(longest) => {
                let plain = !text.is_empty() && !text.chars().any(char::is_control);
                plain && text.len() <= longest
            }
            Self::Word(words) => words.contains(&text),
            Self::Words(words) => text.split(',').all(|word| words.contains(&word)),
            Self::Flag => matches!(text, "true" | "false"),
            Self::Time => text.parse::<Timestamp>().is_ok(),
            Self::Number { least, most, .. } => {
                let digits = text.bytes().all(|byte| byte.is_ascii_digit());
                let number = text.parse().ok().filter(|_| digits);
                number.is_some_and(|number: u64| (least..=most).contains(&number))
            }
        };
        if fits {
            return Ok(());
        }
        Err(match self {
            Self::Text(longest) => {
                format!("a text of 1 to {longest} bytes without control characters")
            }
            Self::Word(words) => one_of(words),
            Self::Words(words) => format!("{}, or several with commas", one_of(words)),
            Self::Flag => "true or false".to_owned(),
            Self::Time => "an instant such as 2026-11-26T08:00:00Z".to_owned(),
            Self::Number { least, most, .. } => format!("a number from {least} to {most}"),
        })
    }

    fn to_json(self) -> Value {
        match self {
            // Counted in characters there, which are never more than bytes.
            Self::Text(longest) => {
                json!({"type": "string", "minLength": 1, "maxLength": longest})
            }
            Self::Word(words) => json!({"type": "string", "enum": words}),
            Self::Words(words) => json!({
                "type": "array",
                "minItems": 1,
                "items": {"type": "string", "enum": words},
            }),
            Self::Flag => json!({"type": "boolean"}),
            Self::Time => json!({"type": "string", "format": "date-time"}),
            Self::Number { least, most, usual } => json!({
                "type": "integer",
                "minimum": least,
                "maximum": most,
                "default": usual,
            }),
        }
    }

    /// In words, for the book.
    #[cfg(test)]
    pub(super) fn in_words(self) -> String {
        match self {
            Self::Text(longest) => format!("text of at most {longest} bytes"),
            Self::Word(words) => format!("`{}`", words.join("`, `")),
            Self::Words(words) => format!("some of `{}`, with commas", words.join("`, `")),
            Self::Flag => "`true` or `false`".to_owned(),
            Self::Time => "an instant, as RFC 3339 has it".to_owned(),
            Self::Number { least, most, usual } => {
                format!("{least} to {most}; {usual} where nothing is said")
            }
        }
    }
}

// === impl Asked ===

impl Asked {
    /// What was said in the path, and in the pairs of the query.
    ///
    /// # Errors
    /// Which parameter does not fit.
    pub(super) fn read(
        parameters: &'static [Parameter],
        path: Vec<(String, String)>,
        query: Vec<(String, String)>,
    ) -> Result<Self, Problem> {
        let mut said: Vec<(&'static str, String)> = Vec::new();
        let in_path = path.into_iter().map(|pair| (Location::Path, pair));
        let in_query = query.into_iter().map(|pair| (Location::Query, pair));
        for (location, (name, value)) in in_path.chain(in_query) {
            let known = parameters
                .iter()
                .find(|p| p.location == location && p.name == name);
            let Some(known) = known else {
                return Err(unknown(&name, parameters));
            };
            if said.iter().any(|(other, _)| *other == known.name) {
                return Err(Problem::parameter(known.name, "say it once"));
            }
            if let Err(wanted) = known.takes.check(&value) {
                return Err(Problem::parameter(known.name, &wanted));
            }
            said.push((known.name, value));
        }
        let missing = parameters.iter().find(|known| {
            let here = known.needed && known.location != Location::Header;
            here && !said.iter().any(|(name, _)| *name == known.name)
        });
        match missing {
            Some(known) => Err(Problem::parameter(known.name, "this is needed")),
            None => Ok(Self { parameters, said }),
        }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let mut said = self.said.iter();
        let found = said.find(|(known, _)| *known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// One that is needed; empty where the table does not have it.
    pub(super) fn needed(&self, name: &str) -> &str {
        self.text(name).unwrap_or_default()
    }

    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        self.text(name).map(|text| text == "true")
    }

    pub(super) fn time(&self, name: &str) -> Option<Timestamp> {
        self.text(name)?.parse().ok()
    }

    /// A number, or what it is where nothing is said.
    pub(super) fn number(&self, name: &str) -> usize {
        let said = self.text(name).and_then(|text| text.parse().ok());
        let usual = || {
            let known = self.parameters.iter().find(|known| known.name == name)?;
            match known.takes {
                Takes::Number { usual, .. } => usize::try_from(usual).ok(),
                _ => None,
            }
        };
        said.or_else(usual).unwrap_or_default()
    }

    /// The pairs of the query but for this one.
    pub(super) fn query_without(&self, name: &str) -> impl Iterator<Item = (&'static str, &str)> {
        let of_query = |name: &str| {
            let mut known = self.parameters.iter();
            known.any(|known| known.name == name && known.location == Location::Query)
        };
        let pairs = self.said.iter();
        let others = pairs.filter(move |(known, _)| *known != name && of_query(known));
        others.map(|(known, value)| (*known, value.as_str()))
    }
}

fn unknown(name: &str, parameters: &[Parameter]) -> Problem {
    let of_query = parameters.iter().filter(|p| p.location == Location::Query);
    let names: Vec<&str> = of_query.map(|known| known.name).collect();
    let taken = match names.is_empty() {
        true => "the path takes none".to_owned(),
        false => format!("the path takes {}", names.join(", ")),
    };
    let quoted: String = name.chars().take(QUOTED).collect();
    Problem::parameter(&quoted, &format!("there is no such parameter: {taken}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_by_the_bounds_that_are_described() {
        let number = Takes::Number {
            least: 1,
            most: 500,
            usual: 100,
        };
        let cases: [(Takes, &[&str], &[&str]); 6] = [
            (
                number,
                &["1", "500", "007"],
                &[
                    "",
                    "0",
                    "501",
                    "-1",
                    "+1",
                    "1.0",
                    "many",
                    "99999999999999999999",
                ],
            ),
            (Takes::Flag, &["true", "false"], &["", "1", "TRUE"]),
            (
                Takes::Time,
                &["2026-11-26T08:00:00Z", "2026-11-26T08:00:00.5+01:00"],
                &["", "now", "2026-11-26", "2026-11-26T08:00:00"],
            ),
            (
                Takes::Text(4),
                &["a", "abcd", "é"],
                &["", "abcde", "a\n", "\u{0}", "ééé"],
            ),
            (Takes::Word(&["a", "b"]), &["a"], &["", "c", "a,b"]),
            (Takes::Words(&["a", "b"]), &["a", "b,a"], &["", "a,", "a,c"]),
        ];
        for (takes, fits, not) in cases {
            for text in fits {
                assert_eq!(takes.check(text), Ok(()), "{takes:?} {text:?}");
            }
            for text in not {
                assert!(takes.check(text).is_err(), "{takes:?} {text:?}");
            }
            assert!(!takes.in_words().is_empty());
        }
    }
}
