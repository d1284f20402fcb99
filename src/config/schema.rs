//! Which keys there are and what fits them, asked of the settings themselves: no second list that could differ. The keys live with
//! their owners: see `mod.rs`.

use std::sync::OnceLock;

use serde_json::{Map, Value};

use super::{
    Config, NoticeSettings, Spec,
    words::{explain, nearest, without_value},
};

/// What stands at a key.
pub(super) enum Shape {
    /// A table with known keys.
    Section,
    /// A value.
    Leaf,
    /// A table whose keys are not known here.
    Free,
    /// There is no such key; these stand beside it.
    Unknown { siblings: Vec<String> },
}

/// Secrets, for which `…_FILE` names a file that holds the value.
pub(super) const SECRETS: [&str; 8] = [
    "locks.redis.password",
    "locks.redis.nodes",
    "locks.postgres.url",
    "locks.postgres.listen_url",
    "locks.postgres.password",
    "locks.etcd.password",
    "admin.token",
    "telemetry.otlp_headers",
];

/// Sections that are tables of tables, each under a name of its own.
pub(super) const NAMED: [&str; 2] = ["jobs", "notices"];

/// Keys that earlier versions knew, and why they have gone. Files that have them are read as if they had not.
const RETIRED: [(&[&str], &str); 1] = [(
    &["locks", "redis", "pool_size"],
    "has no effect: one connection for each node carries all calls",
)];

/// Why there is no such key any more.
pub(super) fn retired(path: &[String]) -> Option<&'static str> {
    let same = |(key, _): &&(&[&str], &str)| key.iter().eq(path.iter());
    RETIRED.iter().find(same).map(|(_, why)| *why)
}

/// The shape of `path`.
pub(super) fn shape(path: &[String]) -> Shape {
    let mut at = template();
    for (depth, key) in path.iter().enumerate() {
        let Value::Object(table) = at else {
            return Shape::Unknown {
                siblings: Vec::new(),
            };
        };
        let any_name = depth == 1 && NAMED.contains(&path[0].as_str());
        match table.get(if any_name { "*" } else { key }) {
            Some(next) => at = next,
            None => {
                return Shape::Unknown {
                    siblings: table.keys().cloned().collect(),
                };
            }
        }
        if is_params(&path[..=depth]) {
            return Shape::Free;
        }
    }
    match at {
        Value::Object(_) => Shape::Section,
        _ => Shape::Leaf,
    }
}

/// Whether `value` fits `path`, and if not, why.
pub(super) fn fits(path: &[String], value: &Value) -> Result<(), String> {
    // Serde would also take a list for a table, value by value.
    let table =
        matches!(shape(path), Shape::Section) && path.last().is_none_or(|key| key != "retry");
    if table && !value.is_object() {
        return Err("this must be a table".to_owned());
    }
    let mut nested = value.clone();
    for key in path.iter().rev() {
        nested = Value::Object(Map::from_iter([(key.clone(), nested)]));
    }
    match serde_json::from_value::<Config>(nested) {
        Ok(_) => Ok(()),
        Err(error) if may_hold_secret(path) || holds_password(value) => {
            Err(without_value(&error.to_string()))
        }
        Err(error) => Err(explain(&error.to_string())),
    }
}

/// "did you mean …?", or an empty text when nothing is near.
pub(super) fn suggest(path: &[String], siblings: &[String]) -> String {
    let Some((key, above)) = path.split_last() else {
        return String::new();
    };
    if let Some(near) = nearest(key, siblings.iter().map(String::as_str)) {
        return format!("did you mean \"{near}\"?");
    }
    // The right name in the wrong section.
    let elsewhere = keys().into_iter().find(|known| {
        known.last() == Some(key)
            && (!NAMED.contains(&known[0].as_str()) || above.first() == known.first())
    });
    elsewhere.map_or_else(String::new, |known| {
        format!("did you mean {}?", known.join(".").replace(".*.", ".NAME."))
    })
}

/// Every key there is, jobs and notices under the name `*`.
pub(super) fn keys() -> Vec<Vec<String>> {
    fn walk(at: &Value, path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
        match at {
            Value::Object(table) if !is_params(path) => {
                for (key, next) in table {
                    path.push(key.clone());
                    walk(next, path, found);
                    path.pop();
                }
            }
            _ => found.push(path.clone()),
        }
    }
    let mut found = Vec::new();
    walk(template(), &mut Vec::new(), &mut found);
    found
}

/// Whether `path` is a job's own parameters or stands above nothing else.
pub(super) fn is_params(path: &[String]) -> bool {
    path.len() >= 3 && path[0] == "jobs" && path[2] == "params"
}

/// All settings with their defaults, and one job and one notice to stand for all.
fn template() -> &'static Value {
    static TEMPLATE: OnceLock<Value> = OnceLock::new();
    TEMPLATE.get_or_init(|| {
        let mut config = Config::default();
        config.jobs.insert("*".to_owned(), Spec::default());
        let notice = NoticeSettings::default();
        config.notices.insert("*".to_owned(), notice);
        serde_json::to_value(&config).unwrap_or_default()
    })
}

/// Whether a value at `path` could be a secret, or a table that ought to hold one.
fn may_hold_secret(path: &[String]) -> bool {
    let key = path.join(".");
    is_params(path) || path[0] == "notices" || SECRETS.iter().any(|secret| secret.starts_with(&key))
}

/// Whether a text in `value` looks like an address with a password: at the wrong key it is one all the same.
fn holds_password(value: &Value) -> bool {
    match value {
        Value::String(text) => crate::secret::redact(text) != *text,
        Value::Array(list) => list.iter().any(holds_password),
        Value::Object(table) => table.values().any(holds_password),
        _ => false,
    }
}
