//! One layer of configuration: values, and where each of them stands.

use std::collections::BTreeMap;

use figment::{
    Error, Metadata, Profile, Provider,
    value::{Dict, Map as Profiles, Value as FigmentValue},
};
use serde_json::{Map, Value};

use super::problem::{Source, is_in};

/// Values of one origin; only such that fit their keys.
#[derive(Default)]
pub(super) struct Layer {
    pub(super) name: &'static str,
    pub(super) values: Map<String, Value>,
    pub(super) places: BTreeMap<String, Source>,
    /// Where tables begin; a later layer does not move them.
    pub(super) sections: BTreeMap<String, Source>,
}

// === impl Layer ===

impl Layer {
    pub(super) fn named(name: &'static str) -> Self {
        Self {
            name,
            ..Self::default()
        }
    }

    /// Drops a section.
    pub(super) fn forget(&mut self, section: &str) {
        self.values.remove(section);
        self.places.retain(|key, _| !is_in(key, section));
        self.sections.retain(|key, _| !is_in(key, section));
    }

    /// Sets `path`, over whatever this layer had there.
    pub(super) fn set(&mut self, path: &[String], value: Value, source: Source) {
        let Some((last, sections)) = path.split_last() else {
            return;
        };
        let mut at = &mut self.values;
        for (depth, section) in sections.iter().enumerate() {
            let key = path[..=depth].join(".");
            self.sections.entry(key).or_insert_with(|| source.clone());
            let next = at
                .entry(section.clone())
                .or_insert_with(|| Value::Object(Map::new()));
            if !next.is_object() {
                *next = Value::Object(Map::new());
            }
            let Value::Object(table) = next else { return };
            at = table;
        }
        // `retry = 3` must leave the pauses alone that a layer below has set.
        let value = match value {
            Value::Number(_) if is_retry(path) => serde_json::json!({ "attempts": value }),
            other => other,
        };
        place(&mut self.places, &path.join("."), &value, &source);
        at.insert(last.clone(), value);
    }
}

fn is_retry(path: &[String]) -> bool {
    path.len() == 3 && path[0] == "jobs" && path[2] == "retry"
}

/// Records `source` for a value and everything in it.
fn place(places: &mut BTreeMap<String, Source>, key: &str, value: &Value, source: &Source) {
    if let Value::Object(table) = value {
        for (name, inner) in table {
            place(places, &format!("{key}.{name}"), inner, source);
        }
    }
    places.insert(key.to_owned(), source.clone());
}

impl Provider for &Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.name)
    }

    fn data(&self) -> Result<Profiles<Profile, Dict>, Error> {
        let dict = FigmentValue::serialize(&self.values)?
            .into_dict()
            .unwrap_or_default();
        Ok(Profile::Default.collect(dict))
    }
}
