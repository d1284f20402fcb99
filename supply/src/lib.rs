//! What goes in and out of Watchkeeper: which crates it is built from, under which licences, with the notices and the bill of
//! materials that go with it; and what its own crates show to their users, and to the registry that has them.
//!
//! All of the former is read from this machine: `cargo metadata` without a network, `deny.toml` at the root of the repository (which
//! `cargo deny` reads, too), and the files that each crate brings. Known faults of crates are another matter: they stand in a
//! database that has to be fetched, see `tests/run`.

mod api;
mod bom;
mod expression;
mod listing;
mod metadata;
mod notices;

use std::{collections::BTreeSet, fs, path::Path};

pub use api::Api;
pub use bom::bom;
pub use expression::{Licences, Malformed};
pub use listing::unlisted;
pub use metadata::{Krate, Metadata};
pub use notices::notices;

/// What `deny.toml` allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Licences by their SPDX names.
    pub licences: BTreeSet<String>,
    /// Registries, as `https://…`.
    pub registries: BTreeSet<String>,
}

// === impl Rules ===

impl Rules {
    /// Reads `deny.toml`.
    ///
    /// # Errors
    /// When it cannot be read, or allows nothing.
    pub fn read(root: &Path) -> Result<Self, String> {
        let path = root.join("deny.toml");
        let text = fs::read_to_string(&path).map_err(|why| format!("{}: {why}", path.display()))?;
        let table: toml::Table = text.parse().map_err(|why| format!("deny.toml: {why}"))?;
        let list = |section: &str, key: &str| -> BTreeSet<String> {
            let found = table.get(section).and_then(|section| section.get(key));
            let found = found.and_then(toml::Value::as_array).into_iter().flatten();
            found
                .filter_map(|item| Some(item.as_str()?.to_owned()))
                .collect()
        };
        let rules = Self {
            licences: list("licenses", "allow"),
            registries: list("sources", "allow-registry"),
        };
        match rules.licences.is_empty() || rules.registries.is_empty() {
            true => Err("deny.toml allows no licence or no registry".to_owned()),
            false => Ok(rules),
        }
    }

    /// What these crates break, a sentence each.
    #[must_use]
    pub fn broken_by(&self, crates: &[&Krate]) -> Vec<String> {
        let mut found = Vec::new();
        for krate in crates {
            let name = krate.to_string();
            match Licences::parse(&krate.licence) {
                Ok(licences) if licences.allowed(&self.licences) => {}
                Ok(_) => found.push(format!(
                    "{name}: its licence \"{}\" is not among those that deny.toml allows",
                    krate.licence
                )),
                Err(why) => found.push(format!("{name}: {why}")),
            }
            let registry = krate.source.strip_prefix("registry+");
            if !registry.is_some_and(|registry| self.registries.contains(registry)) {
                found.push(format!(
                    "{name}: it comes from {}, which deny.toml does not allow",
                    krate.source
                ));
            }
        }
        found
    }
}
