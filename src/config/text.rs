//! Values that come as texts: environment variables and flags. They stay texts where a text is wanted (a password of
//! digits is one), and are read as TOML or as a list with commas where something else is.

use std::{collections::BTreeMap, fmt, io, path::Path};

use serde_json::Value;
use toml::de::DeValue;

use super::{
    document,
    layer::Layer,
    problem::{Problems, Source},
    schema::{self, Shape},
};
use crate::files;

/// A value given on the command line.
#[derive(Clone)]
pub struct Flag {
    /// The flag as it was written: `--listen`.
    pub name: String,
    /// The key it sets: `admin.listen`.
    pub key: String,
    /// The value.
    pub value: String,
}

pub(super) const PREFIX: &str = "WATCHKEEPER_";

/// What commands under a lease find in their environment, and so a `watchkeeper` that they start: no keys.
pub(super) const TOLD: [&str; 8] = [
    "ATTEMPT", "GUARD", "JOB", "KEY", "REPLICA", "RUN_ID", "TICK", "TOKEN",
];

/// The variable that names the file.
pub(super) const FILE: &str = "WATCHKEEPER_CONFIG";

/// What our own tests and benches are told, whole or by its beginning or end: no keys either.
const TESTS: [&str; 7] = [
    "LONG",
    "POSTGRES_BIN",
    "REDIS_SERVER",
    "REQUIRE",
    "SEED",
    "TAKEOVERS",
    "WRITE_DOCS",
];
const TESTS_BEGIN: [&str; 2] = ["BENCH_", "TEST_"];
const TESTS_END: [&str; 4] = ["_CASES", "_SCHEDULES", "_SECS", "_SEED"];

impl fmt::Debug for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its value may be a password.
        f.debug_struct("Flag")
            .field("name", &self.name)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Reads the variables that begin with `WATCHKEEPER_`; `__` stands between the parts of a key. `named` are the sections whose tables
/// have names, with the names that are known so far.
pub(super) fn environment(
    variables: &[(String, String)],
    root: &Path,
    named: &[(&str, Vec<String>)],
    problems: &mut Problems,
) -> Layer {
    let mut layer = Layer::named("environment");
    let mut said: BTreeMap<Vec<String>, &str> = BTreeMap::new();
    // Sorted, so that what is reported does not depend on the shell.
    let mut variables: Vec<_> = variables.iter().collect();
    variables.sort();
    for (name, value) in &variables {
        let Some(rest) = name.strip_prefix(PREFIX) else {
            prefix_in_lower_case(name, problems);
            continue;
        };
        if !rest.contains("__") {
            single_underscore(name, rest, problems);
            continue;
        }
        let mut path: Vec<String> = rest.to_lowercase().split("__").map(str::to_owned).collect();
        known_name(&mut path, named);
        let source = Source::Env(name.clone());
        // Names that differ in their case alone.
        if let Some(other) = said.insert(path.clone(), name) {
            let remedy = format!("unset one; {other} is set, too");
            problems.error(path.join("."), source, "the value is given twice", remedy);
            continue;
        }
        let Some(secret) = secret_of(&path) else {
            take(&mut layer, &path, value, source, problems);
            continue;
        };
        let direct = name.trim_end_matches("_FILE");
        if variables.iter().any(|(other, _)| other == direct) {
            let remedy = format!("unset one; {direct} is set, too");
            problems.error(secret.join("."), source, "the value is given twice", remedy);
            continue;
        }
        match files::read_to_string(&root.join(value)) {
            Ok(text) => take(
                &mut layer,
                &secret,
                text.trim_end_matches(['\r', '\n']),
                source,
                problems,
            ),
            Err(cause) => {
                let message = match is_like_a_path(value, root) {
                    true => format!("the file {value} cannot be read: {cause}"),
                    // The secret itself, by mistake.
                    false => format!("the file that it names cannot be read: {cause}"),
                };
                problems.error(secret.join("."), source, message, remedy_of(&cause));
            }
        }
    }
    layer
}

/// Reads what the command line gives.
pub(super) fn flags(flags: &[Flag], problems: &mut Problems) -> Layer {
    let mut layer = Layer::named("flags");
    for flag in flags {
        let path: Vec<String> = flag.key.split('.').map(str::to_owned).collect();
        let source = Source::Flag(flag.name.clone());
        take(&mut layer, &path, &flag.value, source, problems);
    }
    layer
}

/// What else `text` may be: a number, a truth, a list, a table.
pub(super) fn as_toml(text: &str) -> Option<Value> {
    DeValue::parse(text)
        .ok()
        .map(|value| document::json(value.get_ref()))
}

/// Whether this names a place that is there, but for its last part: then it may be shown.
fn is_like_a_path(value: &str, root: &Path) -> bool {
    let folder = Path::new(value).parent();
    folder.is_some_and(|folder| !folder.as_os_str().is_empty() && root.join(folder).is_dir())
}

fn take(layer: &mut Layer, path: &[String], text: &str, source: Source, problems: &mut Problems) {
    match schema::shape(path) {
        Shape::Unknown { siblings } => {
            if let Some(why) = schema::retired(path) {
                return problems.warn(path.join("."), source, why, "remove it");
            }
            let hint = schema::suggest(path, &siblings);
            problems.error(path.join("."), source, "there is no such key", hint);
        }
        // A job's parameters stay texts until the job's kind has been asked.
        Shape::Free if path.len() > 3 => layer.set(path, Value::String(text.to_owned()), source),
        _ => match typed(path, text) {
            Ok(value) => layer.set(path, value, source),
            Err(why) => problems.error(path.join("."), source, why, ""),
        },
    }
}

/// The first reading of `text` that fits the key.
fn typed(path: &[String], text: &str) -> Result<Value, String> {
    let plain = Value::String(text.to_owned());
    let Err(mut why) = schema::fits(path, &plain) else {
        return Ok(plain);
    };
    if let Some(value) = as_toml(text) {
        match schema::fits(path, &value) {
            Ok(()) => return Ok(value),
            // The better message: about the value, not about its being a text.
            Err(better) if why.starts_with("string ") => why = better,
            Err(_) => {}
        }
    }
    let list: Value = items(text).iter().map(String::as_str).collect();
    schema::fits(path, &list).map(|()| list).map_err(|_| why)
}

/// The items of a list. Commas stand between them, and between the hosts of one address: `sentinel://a,b/orders`.
fn items(text: &str) -> Vec<String> {
    let several = ["sentinel://", "sentinels://", "cluster://", "clusters://"];
    let has_hosts = |item: &str| several.iter().any(|scheme| item.starts_with(scheme));
    let mut items: Vec<String> = Vec::new();
    let words = text.split([',', '\n']).map(str::trim);
    for word in words.filter(|word| !word.is_empty()) {
        match items.last_mut() {
            Some(last) if has_hosts(last) && !word.contains("://") => {
                last.push(',');
                last.push_str(word);
            }
            _ => items.push(word.to_owned()),
        }
    }
    items
}

/// Shells export no name with a hyphen, so `NIGHTLY_REPORT` means the job `nightly-report` when that is the one there
/// is.
fn known_name(path: &mut [String], named: &[(&str, Vec<String>)]) {
    if let [section, name, ..] = path
        && let Some((_, known)) = named.iter().find(|(of, _)| of == section)
        && !known.contains(name)
        && let Some(meant) = known.iter().find(|one| one.replace('-', "_") == *name)
    {
        name.clone_from(meant);
    }
}

/// The path of the secret when `path` is `SECRET_file`.
pub(super) fn secret_of(path: &[String]) -> Option<Vec<String>> {
    let joined = path.join(".");
    let secret = joined.strip_suffix("_file")?;
    let known = schema::SECRETS.contains(&secret);
    known.then(|| secret.split('.').map(str::to_owned).collect())
}

/// What to do about a file that cannot be read.
pub(super) fn remedy_of(cause: &io::Error) -> &'static str {
    match cause.kind() {
        io::ErrorKind::InvalidData => "save it as UTF-8",
        _ => "check its path and permissions",
    }
}

/// A variable of ours that is no text.
pub(super) fn no_text(name: &str, problems: &mut Problems) {
    let rest = name.strip_prefix(PREFIX).unwrap_or(name);
    let key = rest.to_lowercase().replace("__", ".");
    let message = "the variable is no text in UTF-8";
    problems.error(
        key,
        Source::Env(name.to_owned()),
        message,
        "write it in UTF-8, or unset it",
    );
}

/// Whether a program that is started reads variables of this name.
pub(super) fn is_ours(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// Variables are written as they are documented: a person would not miss one of another case.
fn prefix_in_lower_case(name: &str, problems: &mut Problems) {
    let upper = name.to_uppercase();
    let meant = upper
        .strip_prefix(PREFIX)
        .is_some_and(|rest| rest.contains("__") || upper == FILE);
    if meant {
        no_such(name, format!("write {upper}"), problems);
    }
}

/// A variable without `__` is no key, and refused as one that is misspelt, unless it is another program's business.
fn single_underscore(name: &str, rest: &str, problems: &mut Problems) {
    if name == FILE || TOLD.contains(&rest) || is_for_tests(rest) || is_of_kubernetes(rest) {
        return;
    }
    let (word, keys) = (rest.to_lowercase(), schema::keys());
    let variable = |key: &[String]| format!("{PREFIX}{}", key.join("__").to_uppercase());
    if let Some(key) = keys.iter().find(|key| key.join("_") == word) {
        let remedy = format!("write {}", variable(key));
        let message = "two underscores stand between the parts of a key";
        problems.error(key.join("."), Source::Env(name.to_owned()), message, remedy);
        return;
    }
    let section = |key: &&Vec<String>| (1..key.len()).any(|n| key[..n].join("_") == word);
    if let Some(key) = keys.iter().find(section) {
        let remedy = format!(
            "name a key in it, as {}",
            variable(key).replace('*', "NAME")
        );
        let message = "this is a table, and no value";
        problems.error(word, Source::Env(name.to_owned()), message, remedy);
        return;
    }
    let ours = keys
        .iter()
        .filter(|key| !schema::NAMED.contains(&key[0].as_str()));
    let last = |key: &&Vec<String>| key.last().is_some_and(|last| *last == word);
    if let Some(key) = ours.clone().find(last) {
        return no_such(name, format!("did you mean {}?", variable(key)), problems);
    }
    let known: Vec<String> = ours
        .map(|key| variable(key))
        .chain([FILE.to_owned()])
        .collect();
    let upper = name.to_uppercase();
    let remedy = match super::words::nearest(&upper, known.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("unset it: names that begin with {PREFIX} are keys, as {PREFIX}LOCKS__TTL"),
    };
    no_such(name, remedy, problems);
}

fn no_such(name: &str, remedy: String, problems: &mut Problems) {
    let rest = name.get(PREFIX.len()..).unwrap_or_default();
    let key = rest.to_lowercase().replace("__", ".");
    let source = Source::Env(name.to_owned());
    problems.error(key, source, "there is no such variable", remedy);
}

fn is_for_tests(rest: &str) -> bool {
    TESTS.contains(&rest)
        || TESTS_BEGIN.iter().any(|begin| rest.starts_with(begin))
        || TESTS_END.iter().any(|end| rest.ends_with(end))
}

/// A service called "watchkeeper" or "watchkeeper-…" gives every container beside it a dozen of these: `SERVICE_HOST`,
/// `SERVICE_PORT_HTTP`, `PORT`, `PORT_8787_TCP_ADDR`, with the rest of its name before them.
fn is_of_kubernetes(rest: &str) -> bool {
    let parts: Vec<&str> = rest.split('_').collect();
    let number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    parts.last() == Some(&"PORT")
        || parts.windows(2).any(|pair| match pair {
            ["SERVICE", "HOST" | "PORT"] => true,
            ["PORT", part] => number(part),
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_commands_are_told_is_never_taken_for_a_key() {
        let told = TOLD.map(|name| (format!("{PREFIX}{name}"), "x".to_owned()));
        let mut problems = Problems::default();
        let layer = environment(&told, Path::new("."), &[], &mut problems);
        assert!(problems.is_empty() && layer.values.is_empty(), "{problems}");
    }
}
