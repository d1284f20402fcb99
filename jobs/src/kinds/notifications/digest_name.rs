//! What a digest is called, and its rows in texts: names alone, which sources and parameters know as well.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

use super::cell::ItemId;

/// What the rows of a digest are called in its body, and in texts.
pub(crate) const ITEMS: &str = "items";

/// The name of the digest of these rows: how many there are, and a hash of their ids.
#[must_use]
pub(crate) fn name_of(ids: &[ItemId]) -> String {
    let mut hash = Sha256::new();
    for id in ids {
        let id = id.to_string();
        hash.update(id.len().to_be_bytes());
        hash.update(id);
    }
    let mut name = format!("{}-", ids.len());
    for byte in hash.finalize().iter().take(16) {
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// How many rows a digest of this name has.
#[must_use]
pub(crate) fn size_of(name: &str) -> usize {
    let size = name.split_once('-').and_then(|(size, _)| size.parse().ok());
    size.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_rows_apart() {
        let number = ItemId::Int;
        assert!(name_of(&[number(1), number(2)]).starts_with("2-"));
        assert_eq!(size_of(&name_of(&[1, 2, 3].map(number))), 3);
        let text = |id: &str| ItemId::Text(id.to_owned());
        assert_ne!(
            name_of(&[text("a"), text("bc")]),
            name_of(&[text("ab"), text("c")])
        );
    }
}
