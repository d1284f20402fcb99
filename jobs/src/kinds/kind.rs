//! What a kind of stock job is, and how its parameters are read.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use watchkeeper::{Worker, config::Findings, fleet::items::KeptItems};

/// A kind of stock job.
pub(crate) struct Kind {
    /// The configuration's name for it.
    pub(crate) name: &'static str,
    /// Adds what makes its jobs to a worker.
    pub(super) make: fn(Worker) -> Worker,
    /// All that is wrong with the parameters of a job; keys are those of the parameters.
    pub(super) check: fn(&Value) -> Findings,
    /// What they lead to, for `watchkeeper check`: may ask servers.
    pub(super) look: Option<fn(&Value) -> Findings>,
    /// What lists and changes items of its jobs that do not go by themselves, where there are such.
    pub(super) items: Option<fn() -> Arc<dyn KeptItems>>,
    /// Parameters that the configuration alone may say: a trigger must not make a job run other programs, write other
    /// files or send secrets elsewhere.
    pub(super) fixed: &'static [&'static str],
    /// Whether its runs say how far they are.
    pub(super) tells_progress: bool,
}

/// Reads the parameters as `P` and checks them; when they cannot be read, says which keys are at fault.
pub(super) fn read<P: DeserializeOwned>(params: &Value, check: fn(&P) -> Findings) -> Findings {
    // No parameters at all is a table without keys.
    let params = if params.is_null() { &json!({}) } else { params };
    match P::deserialize(params) {
        Ok(read) => check(&read),
        Err(whole) => {
            let mut found = Findings::default();
            misfits::<P>(params, &mut Vec::new(), &mut found);
            if found.is_empty() {
                found.error(&[""], whole.to_string(), "");
            }
            found
        }
    }
}

/// What was read of a parameter; else notes why it cannot be read.
pub(super) fn take<T>(found: &mut Findings, key: &str, read: Result<T, String>) -> Option<T> {
    read.map_err(|why| found.error(&[key], why, "")).ok()
}

/// The findings in one line, for the failure of a job that was made all the same.
pub(super) fn in_a_line(found: &Findings) -> String {
    let told = found
        .iter()
        .map(|f| format!("params.{} {}", f.keys.join(", params."), f.message));
    told.collect::<Vec<_>>().join("; ")
}

/// Tries each key alone (all parameters have defaults), so that the one that does not fit is known by name and one
/// mistake does not hide the next.
fn misfits<P: DeserializeOwned>(part: &Value, path: &mut Vec<String>, found: &mut Findings) {
    let Value::Object(table) = part else { return };
    for (key, value) in table {
        path.push(key.clone());
        let alone = path
            .iter()
            .rev()
            .fold(value.clone(), |inner, key| json!({ key.as_str(): inner }));
        if let Err(misfit) = P::deserialize(&alone) {
            let before = found.iter().count();
            misfits::<P>(value, path, found);
            if found.iter().count() == before {
                let why = told(&misfit.to_string(), value);
                found.error(&[&path.join(".")], why, "");
            }
        }
        path.pop();
    }
}

/// A complaint about a value, without the value: it may be a secret, and what is said here goes to terminals and logs.
fn told(complaint: &str, value: &Value) -> String {
    match complaint.rsplit_once(", expected ") {
        Some((_, expected)) if complaint.starts_with("invalid ") => {
            return format!("expected {expected}");
        }
        _ => {}
    }
    let quoted = value.as_str().map(|text| format!("\"{text}\" "));
    let rest = quoted.and_then(|quoted| complaint.strip_prefix(&quoted));
    rest.unwrap_or(complaint).to_owned()
}
