//! The kinds of stock jobs, and the check of their parameters: every finding at once, each with its key.

pub mod exec;
pub mod heartbeat;
pub mod http;
pub mod notifications;
mod web;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::{ExecParams, HeartbeatParams, HttpParams, NotificationsParams};

/// Kinds that the configuration may name.
pub const KINDS: [&str; 4] = ["exec", "heartbeat", "http", "notifications"];

/// Something wrong with one parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The parameter: `table`, `columns.id`; empty for the whole.
    pub key: String,
    /// What is wrong and what would be right; never a secret.
    pub message: String,
}

impl Finding {
    /// A finding about `key`.
    #[must_use]
    pub fn new(key: &str, message: &str) -> Self {
        Self {
            key: key.to_owned(),
            message: message.to_owned(),
        }
    }
}

/// Everything wrong with the parameters of a job of this kind, as (key, message); empty when it can start.
#[must_use]
pub fn check_params(kind: &str, params: &Value) -> Vec<(String, String)> {
    let findings = match kind {
        "exec" => read(params, ExecParams::check),
        "heartbeat" => read(params, HeartbeatParams::check),
        "http" => read(params, HttpParams::check),
        "notifications" => read(params, NotificationsParams::check),
        _ => vec![Finding::new(
            "",
            &format!("unknown kind `{kind}`; there are: {}", KINDS.join(", ")),
        )],
    };
    findings.into_iter().map(|f| (f.key, f.message)).collect()
}

/// Reads the parameters as `P` and checks them; when they cannot be read, says which keys are at fault.
fn read<P: DeserializeOwned>(params: &Value, check: fn(&P) -> Vec<Finding>) -> Vec<Finding> {
    // No parameters at all is a table without keys.
    let params = if params.is_null() { &json!({}) } else { params };
    match P::deserialize(params) {
        Ok(read) => check(&read),
        Err(whole) => {
            let mut findings = Vec::new();
            misfits::<P>(params, &mut Vec::new(), &mut findings);
            if findings.is_empty() {
                findings.push(Finding::new("", &whole.to_string()));
            }
            findings
        }
    }
}

/// Tries each key alone (all parameters have defaults), so that the one that does not fit is known by name and one
/// mistake does not hide the next.
fn misfits<P: DeserializeOwned>(part: &Value, path: &mut Vec<String>, findings: &mut Vec<Finding>) {
    let Value::Object(table) = part else { return };
    for (key, value) in table {
        path.push(key.clone());
        let alone = path
            .iter()
            .rev()
            .fold(value.clone(), |inner, key| json!({ key.as_str(): inner }));
        if let Err(misfit) = P::deserialize(&alone) {
            let before = findings.len();
            misfits::<P>(value, path, findings);
            if findings.len() == before {
                findings.push(Finding::new(
                    &path.join("."),
                    &told(&misfit.to_string(), value),
                ));
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

    #[test]
    fn every_wrong_key_is_named_at_once() {
        let params = json!({"tabel": "x", "batch_size": "many", "columns": {"idd": "id"}, "backoff": "soon"});
        let found = check_params("notifications", &params);
        let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["backoff", "batch_size", "columns.idd", "tabel"]);
        assert!(found[3].1.contains("`table`"), "{}", found[3].1);
    }

    #[test]
    fn values_are_checked_when_all_keys_fit() {
        let found = check_params("notifications", &json!({"table": "t", "sink": "ftp://x"}));
        let keys: Vec<&str> = found.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["source", "sink"]);
    }

    #[test]
    fn a_heartbeat_needs_no_parameters() {
        assert!(check_params("heartbeat", &Value::Null).is_empty());
        assert!(check_params("heartbeat", &json!({})).is_empty());
        assert_eq!(
            check_params("heartbeat", &json!({"work": "soon"}))[0].0,
            "work"
        );
    }

    #[test]
    fn a_duration_reads_as_everywhere_in_the_configuration_and_is_refused_without_its_text() {
        for right in ["200ms", "1m 30s", "1d"] {
            assert!(check_params("heartbeat", &json!({ "work": right })).is_empty());
        }
        for wrong in ["s3cret", "-2s"] {
            let found = check_params("http", &json!({ "timeout": wrong }));
            assert_eq!(found[0].0, "timeout");
            assert!(found[0].1.contains("such as \"10s\""), "{}", found[0].1);
            assert!(!found[0].1.contains(wrong), "{}", found[0].1);
        }
    }

    #[test]
    fn an_unknown_kind_lists_the_known_ones() {
        assert!(check_params("mail", &json!({}))[0].1.contains("heartbeat"));
    }
}
