//! Licences as crates state them: `MIT OR Apache-2.0`, `(MIT OR Apache-2.0) AND Unicode-3.0`, `MIT/Apache-2.0`.

use std::{collections::BTreeSet, fmt};

/// An expression of SPDX, as far as crates use them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Licences {
    /// One licence, with its exception if it has one: `Apache-2.0 WITH LLVM-exception`.
    One(String),
    /// All of them apply.
    All(Vec<Licences>),
    /// The user of the crate chooses.
    Any(Vec<Licences>),
}

/// It cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_str() {
            "" => f.write_str("it states no licence"),
            text => write!(f, "its licence \"{text}\" cannot be read"),
        }
    }
}

impl std::error::Error for Malformed {}

impl fmt::Display for Licences {
    /// As SPDX writes it: without slashes, and with no more brackets than it needs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (parts, word) = match self {
            Self::One(name) => return f.write_str(name),
            Self::All(parts) => (parts, " AND "),
            Self::Any(parts) => (parts, " OR "),
        };
        for (at, part) in parts.iter().enumerate() {
            if at > 0 {
                f.write_str(word)?;
            }
            match (self, part) {
                (Self::All(_), Self::Any(_)) => write!(f, "({part})")?,
                _ => write!(f, "{part}")?,
            }
        }
        Ok(())
    }
}

// === impl Licences ===

impl Licences {
    /// Reads an expression. A slash means OR: crates wrote it so before there was a rule.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(text: &str) -> Result<Self, Malformed> {
        let spaced = text
            .replace('/', " OR ")
            .replace('(', " ( ")
            .replace(')', " ) ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let mut rest = words.as_slice();
        match any(&mut rest) {
            Some(found) if rest.is_empty() => Ok(found),
            _ => Err(Malformed(text.to_owned())),
        }
    }

    /// Whether it can be used under licences of this list alone.
    #[must_use]
    pub fn allowed(&self, list: &BTreeSet<String>) -> bool {
        match self {
            Self::One(name) => list.contains(name),
            Self::All(parts) => parts.iter().all(|part| part.allowed(list)),
            Self::Any(parts) => parts.iter().any(|part| part.allowed(list)),
        }
    }
}

fn any(rest: &mut &[&str]) -> Option<Licences> {
    several(
        rest,
        "OR",
        |rest| several(rest, "AND", one, Licences::All),
        Licences::Any,
    )
}

fn several(
    rest: &mut &[&str],
    word: &str,
    part: impl Fn(&mut &[&str]) -> Option<Licences>,
    join: impl Fn(Vec<Licences>) -> Licences,
) -> Option<Licences> {
    let mut parts = vec![part(rest)?];
    while let [first, after @ ..] = *rest
        && *first == word
    {
        *rest = after;
        parts.push(part(rest)?);
    }
    match parts.len() {
        1 => parts.pop(),
        _ => Some(join(parts)),
    }
}

fn one(rest: &mut &[&str]) -> Option<Licences> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    match *first {
        "(" => {
            let inner = any(rest)?;
            *rest = rest.strip_prefix(&[")"])?;
            Some(inner)
        }
        ")" | "OR" | "AND" | "WITH" => None,
        name => match *rest {
            ["WITH", exception, after @ ..] => {
                *rest = after;
                Some(Licences::One(format!("{name} WITH {exception}")))
            }
            _ => Some(Licences::One(name.to_owned())),
        },
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_licence_is_allowed_when_one_choice_of_it_is() {
        let list = ["MIT", "Unicode-3.0", "ISC"].map(str::to_owned).into();
        for (text, allowed) in [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT OR GPL-3.0", true),
            ("GPL-3.0/MIT", true),
            ("MIT AND GPL-3.0", false),
            ("Apache-2.0 AND ISC", false),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(GPL-3.0 OR Apache-2.0) AND Unicode-3.0", false),
            ("Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT", true),
            ("Apache-2.0 WITH LLVM-exception", false),
            // AND binds more tightly than OR.
            ("GPL-3.0 AND ISC OR MIT", true),
        ] {
            let found = Licences::parse(text).unwrap();
            assert_eq!(found.allowed(&list), allowed, "{text}: {found:?}");
        }
    }

    #[test]
    fn a_licence_is_written_as_spdx_does() {
        for (text, written) in [
            ("MIT", "MIT"),
            ("MIT/Apache-2.0", "MIT OR Apache-2.0"),
            (
                "(MIT OR Apache-2.0) AND Unicode-3.0",
                "(MIT OR Apache-2.0) AND Unicode-3.0",
            ),
            ("(MIT AND ISC) OR Zlib", "MIT AND ISC OR Zlib"),
            (
                "Apache-2.0 WITH LLVM-exception",
                "Apache-2.0 WITH LLVM-exception",
            ),
        ] {
            let found = Licences::parse(text).unwrap();
            assert_eq!(found.to_string(), written);
            assert_eq!(Licences::parse(written), Ok(found));
        }
    }

    #[test]
    fn what_cannot_be_read_is_no_licence() {
        for text in [
            "", "OR MIT", "MIT OR", "(MIT", "MIT)", "MIT ISC", "MIT WITH",
        ] {
            assert!(Licences::parse(text).is_err(), "{text}");
        }
    }
}
