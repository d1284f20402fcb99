//! Values that come as texts: environment variables and flags. They stay texts where a text is wanted (a password of
//! digits is one), and are read as TOML or as a list with commas where something else is.

use std::{fmt, path::Path};

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

impl fmt::Debug for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Its value may be a password.
        f.debug_struct("Flag")
            .field("name", &self.name)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// Reads the variables that begin with `WATCHKEEPER_`; `__` stands between the parts of a key. `jobs` are the jobs that
/// are known so far.
pub(super) fn environment(
    variables: &[(String, String)],
    root: &Path,
    jobs: &[String],
    problems: &mut Problems,
) -> Layer {
    let mut layer = Layer::named("environment");
    // Sorted, so that what is reported does not depend on the shell.
    let mut variables: Vec<_> = variables.iter().collect();
    variables.sort();
    for (name, value) in &variables {
        let Some(rest) = name.strip_prefix(PREFIX) else {
            continue;
        };
        if !rest.contains("__") {
            single_underscore(name, rest, problems);
            continue;
        }
        let mut path: Vec<String> = rest.to_lowercase().split("__").map(str::to_owned).collect();
        known_job(&mut path, jobs);
        let source = Source::Env(name.clone());
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
                problems.error(
                    secret.join("."),
                    source,
                    message,
                    "check its path and permissions",
                );
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
    let items = text
        .split([',', '\n'])
        .map(str::trim)
        .filter(|item| !item.is_empty());
    let list: Value = items.collect();
    schema::fits(path, &list).map(|()| list).map_err(|_| why)
}

/// Shells export no name with a hyphen, so `NIGHTLY_REPORT` means the job `nightly-report` when that is the one there
/// is.
fn known_job(path: &mut [String], jobs: &[String]) {
    if let [section, name, ..] = path
        && section == "jobs"
        && !jobs.contains(name)
        && let Some(job) = jobs.iter().find(|job| job.replace('-', "_") == *name)
    {
        name.clone_from(job);
    }
}

/// The path of the secret when `path` is `SECRET_file`.
pub(super) fn secret_of(path: &[String]) -> Option<Vec<String>> {
    let joined = path.join(".");
    let secret = joined.strip_suffix("_file")?;
    let known = schema::SECRETS.contains(&secret);
    known.then(|| secret.split('.').map(str::to_owned).collect())
}

/// A variable without `__` is no key. It is left alone (a service called "watchkeeper" gets a dozen of them from
/// Kubernetes) unless it is a key with single underscores.
fn single_underscore(name: &str, rest: &str, problems: &mut Problems) {
    if TOLD.contains(&rest) {
        return;
    }
    let meant = schema::keys()
        .into_iter()
        .find(|key| key.join("_").to_uppercase() == rest);
    if let Some(key) = meant {
        let remedy = format!("write {PREFIX}{}", key.join("__").to_uppercase());
        let message = "two underscores stand between the parts of a key";
        problems.error(key.join("."), Source::Env(name.to_owned()), message, remedy);
    }
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
