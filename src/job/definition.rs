//! What a job's definition means for the fleet, as texts so short that every replica can tell them to the others.
//!
//! # Invariants
//! - Two replicas of different versions agree on a job that is written the same way: a key that stands at its default is left
//!   out, so that a new key with a default changes nothing.   (a_key_at_its_default_is_no_part_of_it)
//! - No parameter can be read in it.   (parameters_are_in_it_and_not_to_be_read)

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::spec::Spec;

/// Hashes of a definition, in hexadecimal digits; both are empty for one that is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    /// Of everything that two replicas must do alike.
    pub(crate) whole: String,
    /// Of what names the ticks: expressions, dialect, zone, starting, until, except.
    pub(crate) ticks: String,
}

/// The keys that name the ticks. Jitter delays their starts, and they keep their names.
const TICKS: [&str; 6] = ["schedule", "dialect", "zone", "starting", "until", "except"];
/// Where a job runs, before which others, who hears of it, and what is done about a disagreement are each replica's own affair.
const NO_PART: [&str; 4] = ["enabled", "definition", "priority", "notify"];

/// Digits of a hash: enough to tell the definitions of one job apart, and short enough for a ledger.
const DIGITS: usize = 16;

// === impl Spec ===

impl Spec {
    /// What two replicas compare.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let mut whole = differences(self);
        whole.retain(|key, _| !NO_PART.contains(&key.as_str()));
        let mut ticks = whole.clone();
        ticks.retain(|key, _| TICKS.contains(&key.as_str()));
        Fingerprint {
            whole: hash(whole),
            ticks: hash(ticks),
        }
    }
}

// === helpers ===

/// The keys that do not stand at their defaults.
fn differences(spec: &Spec) -> Map<String, Value> {
    let table = |spec: &Spec| match serde_json::to_value(spec) {
        Ok(Value::Object(table)) => table,
        _ => Map::new(),
    };
    let default = table(&Spec::default());
    let mut found = table(spec);
    if let Some(written) = found.get_mut("schedule") {
        even_out(written);
    }
    found.retain(|key, value| default.get(key) != Some(value));
    // The same for tables, whose keys may grow in number, too.
    for (key, value) in &mut found {
        if let (Value::Object(inner), Some(Value::Object(usual))) = (value, default.get(key)) {
            inner.retain(|key, value| usual.get(key) != Some(value));
        }
    }
    found
}

/// Spaces in an expression mean nothing.
fn even_out(written: &mut Value) {
    match written {
        Value::String(text) => *text = text.split_whitespace().collect::<Vec<_>>().join(" "),
        Value::Array(list) => list.iter_mut().for_each(even_out),
        _ => {}
    }
}

fn hash(table: Map<String, Value>) -> String {
    let mut text = String::new();
    write(&Value::Object(table), &mut text);
    let digest = Sha256::digest(text);
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    digits.chars().take(DIGITS).collect()
}

/// JSON with its keys in order, whatever order the table keeps them in.
fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(table) => {
            let mut keys: Vec<&String> = table.keys().collect();
            keys.sort();
            out.push('{');
            for key in keys {
                out.push_str(&Value::String(key.clone()).to_string());
                out.push(':');
                write(&table[key.as_str()], out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(list) => {
            out.push('[');
            for inner in list {
                write(inner, out);
                out.push(',');
            }
            out.push(']');
        }
        plain => out.push_str(&plain.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::job::{Coordination, Disagreement};

    fn hourly() -> Spec {
        Spec::on("0 * * * *")
    }

    #[test]
    fn it_is_the_same_in_every_version_and_on_every_machine() {
        let print = hourly().params(json!({"url": "http://localhost", "n": 1}));
        let print = print.fingerprint();
        assert_eq!(print.whole, "5208e0343591e727");
        assert_eq!(print.ticks, "6574deb2f66cecf3");
    }

    #[test]
    fn a_key_at_its_default_is_no_part_of_it() {
        let written = differences(&hourly().retry(5));
        let keys: Vec<&str> = written.keys().map(String::as_str).collect();
        let attempts = Spec::default().retry.attempts;
        assert_ne!(attempts, 5, "or this test tests nothing");
        assert_eq!(keys, ["retry", "schedule"]);
        assert_eq!(written["retry"], json!({"attempts": 5}));
        let spaced = Spec::on(" 0  * * * * ")
            .zone("UTC")
            .grace(Duration::from_secs(10));
        assert_eq!(spaced.fingerprint(), hourly().fingerprint());
    }

    #[test]
    fn what_names_the_ticks_is_told_apart_from_the_rest() {
        let was = hourly().fingerprint();
        let same_ticks = [
            hourly().retry(7),
            hourly().jitter(Duration::from_secs(5)),
            hourly().params(json!({"a": 1})),
            hourly().coordination(Coordination::Everywhere),
            hourly().ttl(Duration::from_secs(3)),
        ];
        for spec in same_ticks {
            let now = spec.fingerprint();
            assert_ne!(now.whole, was.whole, "{spec:?}");
            assert_eq!(now.ticks, was.ticks, "{spec:?}");
        }
        let others = [
            Spec::on("30 * * * *"),
            hourly().zone("Europe/Rome"),
            hourly().until("2027-01-01"),
            hourly().except(["Sun"]),
        ];
        for spec in others {
            assert_ne!(spec.fingerprint().ticks, was.ticks, "{spec:?}");
        }
    }

    #[test]
    fn where_it_runs_and_what_a_disagreement_does_are_no_part_of_it() {
        let was = hourly().fingerprint();
        assert_eq!(hourly().enabled(false).fingerprint(), was);
        let refuse = hourly().definition(Disagreement::Refuse);
        assert_eq!(refuse.fingerprint(), was);
        assert_eq!(hourly().priority(7).fingerprint(), was);
    }

    #[test]
    fn parameters_are_in_it_and_not_to_be_read() {
        let with = |word: &str| hourly().params(json!({"token": word})).fingerprint();
        assert_ne!(with("hunter2"), with("hunter3"));
        assert!(!format!("{:?}", with("hunter2")).contains("hunter"));
    }

    #[test]
    fn the_order_of_parameters_changes_nothing() {
        let one: Value = serde_json::from_str(r#"{"a": [1, {"x": 1, "y": 2}], "b": 2}"#).unwrap();
        let two: Value = serde_json::from_str(r#"{"b": 2, "a": [1, {"y": 2, "x": 1}]}"#).unwrap();
        let print = |params| hourly().params(params).fingerprint();
        assert_eq!(print(one), print(two));
    }
}
