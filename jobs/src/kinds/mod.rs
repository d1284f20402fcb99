//! The kinds of stock jobs: one file or folder for each, which says what makes it, what checks it and what may be said of
//! it. A new kind is a file of its own, and a line in [`KINDS`].
//!
//! All that is wrong with the parameters of a job is found at once, each with its key. (`every_wrong_key_is_named_at_once`)

pub mod exec;
pub mod heartbeat;
pub mod http;
pub mod notifications;
mod web;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use watchkeeper::{Worker, config::Findings};

/// What is written as `%41` in an address and in a key: all that is not unreserved there.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A kind of stock job.
pub(crate) struct Kind {
    /// The configuration's name for it.
    pub(crate) name: &'static str,
    /// Adds what makes its jobs to a worker.
    make: fn(Worker) -> Worker,
    /// All that is wrong with the parameters of a job; keys are those of the parameters.
    check: fn(&Value) -> Findings,
    /// Parameters that the configuration alone may say: a trigger must not make a job run other programs, write other
    /// files or send secrets elsewhere.
    fixed: &'static [&'static str],
    /// Whether its runs say how far they are.
    tells_progress: bool,
}

/// All of them.
pub(crate) const KINDS: [Kind; 4] = [exec::KIND, heartbeat::KIND, http::KIND, notifications::KIND];

/// Has `worker` know the stock jobs, so that a configuration may have jobs of these kinds.
///
/// ```no_run
/// # fn main() -> watchkeeper::Result<()> {
/// let worker = watchkeeper_jobs::add_to(watchkeeper::Worker::from_env()?);
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn add_to(worker: Worker) -> Worker {
    KINDS.into_iter().fold(worker, |worker, kind| {
        let worker = (kind.make)(worker)
            .check_params(kind.name, kind.check)
            .fixed_params(kind.name, kind.fixed);
        match kind.tells_progress {
            true => worker,
            false => worker.tells_no_progress(kind.name),
        }
    })
}

/// Reads the parameters as `P` and checks them; when they cannot be read, says which keys are at fault.
fn read<P: DeserializeOwned>(params: &Value, check: fn(&P) -> Findings) -> Findings {
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
fn take<T>(found: &mut Findings, key: &str, read: Result<T, String>) -> Option<T> {
    read.map_err(|why| found.error(&[key], why, "")).ok()
}

/// The findings in one line, for the failure of a job that was made all the same.
fn in_a_line(found: &Findings) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Each finding: the parameter, and what is wrong with it.
    fn found(kind: &str, params: &Value) -> Vec<(String, String)> {
        let kind = KINDS.into_iter().find(|known| known.name == kind).unwrap();
        let found = (kind.check)(params).into_iter();
        found
            .map(|mut f| (f.keys.swap_remove(0), f.message))
            .collect()
    }

    #[test]
    fn every_wrong_key_is_named_at_once() {
        let params = json!({"tabel": "x", "batch_size": "many", "columns": {"idd": "id"}, "backoff": "soon"});
        let told = found("notifications", &params);
        let keys: Vec<&str> = told.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["backoff", "batch_size", "columns.idd", "tabel"]);
        assert!(told[3].1.contains("`table`"), "{}", told[3].1);
    }

    #[test]
    fn values_are_checked_when_all_keys_fit() {
        let told = found("notifications", &json!({"table": "t", "sink": "ftp://x"}));
        let keys: Vec<&str> = told.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["source", "sink"]);
    }

    #[test]
    fn a_heartbeat_needs_no_parameters() {
        assert!(found("heartbeat", &Value::Null).is_empty());
        assert!(found("heartbeat", &json!({})).is_empty());
        assert_eq!(found("heartbeat", &json!({"work": "soon"}))[0].0, "work");
    }

    #[test]
    fn a_duration_reads_as_everywhere_in_the_configuration_and_is_refused_without_its_text() {
        for right in ["200ms", "1m 30s", "1d"] {
            assert!(found("heartbeat", &json!({ "work": right })).is_empty());
        }
        for wrong in ["s3cret", "-2s"] {
            let told = found("http", &json!({ "timeout": wrong }));
            assert_eq!(told[0].0, "timeout");
            assert!(told[0].1.contains("such as \"10s\""), "{}", told[0].1);
            assert!(!told[0].1.contains(wrong), "{}", told[0].1);
        }
    }
}
