//! The kinds of stock jobs: one file or folder for each, which says what makes it, what checks it and what may be said of
//! it. `kind.rs` and `template.rs` are what they share; `notices/` are the receivers of notices, which are no jobs. A new kind is
//! a file of its own, and a line in [`KINDS`].
//!
//! All that is wrong with the parameters of a job is found at once, each with its key. (`every_wrong_key_is_named_at_once`)

pub mod exec;
pub mod heartbeat;
pub mod http;
mod kind;
mod notices;
pub mod notifications;
mod stream;
mod template;

use watchkeeper::Worker;

use kind::Kind;

/// All of them.
pub(crate) const KINDS: [Kind; 5] = [
    exec::KIND,
    heartbeat::KIND,
    http::KIND,
    notifications::KIND,
    stream::KIND,
];

/// Has `worker` know the stock jobs, so that a configuration may have jobs of these kinds, and send notices of any job
/// (`[notices.NAME]`).
///
/// ```no_run
/// # fn main() -> watchkeeper::Result<()> {
/// let worker = watchkeeper_jobs::add_to(watchkeeper::Worker::from_env()?);
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn add_to(worker: Worker) -> Worker {
    let worker = worker.carrier(notices::Carriers);
    KINDS.into_iter().fold(worker, |worker, kind| {
        let worker = (kind.make)(worker)
            .check_params(kind.name, kind.check)
            .fixed_params(kind.name, kind.fixed);
        let worker = match kind.look {
            Some(look) => worker.look_at(kind.name, look),
            None => worker,
        };
        let worker = match kind.items {
            Some(items) => worker.items_of(kind.name, items()),
            None => worker,
        };
        match kind.tells_progress {
            true => worker,
            false => worker.tells_no_progress(kind.name),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

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

    /// The keys that a table of parameters may have, as the complaint about one that it has not says.
    fn keys_of(kind: &str, table: Option<&str>) -> BTreeSet<String> {
        let unknown = json!({ "?": 0 });
        let params = match table {
            Some(table) => json!({ table: unknown }),
            None => unknown,
        };
        let told = found(kind, &params);
        let (_, expected) = told[0].1.rsplit_once(", expected ").unwrap();
        let quoted = expected.split('`').skip(1).step_by(2);
        let prefix = table.map_or(String::new(), |table| format!("{table}."));
        quoted.map(|key| format!("{prefix}{key}")).collect()
    }

    #[test]
    fn the_reference_has_each_parameter_of_each_kind_and_says_which_are_fixed() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../docs/reference/configuration.md"
        );
        let reference = std::fs::read_to_string(path).unwrap();
        for kind in KINDS {
            let head = format!("\n### The job `{}`\n", kind.name);
            let (_, section) = reference.split_once(&head).unwrap();
            let section = section.split("\n#").next().unwrap();
            let rows = section.lines().filter_map(|line| {
                let (names, _) = line.strip_prefix("| `")?.split_once(" | ")?;
                Some((names.split('`').step_by(2), names.ends_with('†')))
            });
            let (mut free, mut fixed) = (BTreeSet::new(), BTreeSet::new());
            for (names, is_fixed) in rows {
                let names = names.map(str::to_owned);
                match is_fixed {
                    true => fixed.extend(names),
                    false => free.extend(names),
                }
            }
            // Tables that are read by themselves, by the tests of which their keys are held.
            free.retain(|name| !name.starts_with("mail.") && !name.starts_with("rate[]"));
            let mut keys = keys_of(kind.name, None);
            if kind.name == "notifications" {
                keys.extend(
                    ["columns", "side_tables"]
                        .into_iter()
                        .flat_map(|table| keys_of(kind.name, Some(table))),
                );
            }
            let really: BTreeSet<String> = kind.fixed.iter().map(ToString::to_string).collect();
            assert_eq!(fixed, really, "marked in the table of {}", kind.name);
            free.extend(fixed);
            assert_eq!(free, keys, "in the table of {}", kind.name);
        }
    }

    #[test]
    fn values_are_checked_when_all_keys_fit() {
        let told = found("notifications", &json!({"table": "t", "sink": "ftp://x"}));
        let keys: Vec<&str> = told.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["source", "sink"]);
    }

    #[test]
    fn what_a_sink_lacks_is_told_by_its_key() {
        let web = "https://h.example/hook";
        for (more, key, says) in [
            (
                json!({"sink": web, "body": "{\"a\": \"${b\"}"}),
                "body",
                "there is no placeholder",
            ),
            (
                json!({"sink": web, "body": "{\"a\": ${b}"}),
                "body",
                "not valid JSON",
            ),
            (
                json!({"sink": web, "secrets": ["s3cret"]}),
                "secrets",
                "openssl rand",
            ),
            (
                json!({"sink": web, "secrets": "s3cret"}),
                "secrets",
                "openssl rand",
            ),
            (
                json!({"sink": web, "secret_files": ["/nowhere/s"]}),
                "secret_files",
                "/nowhere/s",
            ),
            (
                json!({"sink": web, "mail": {"from": "a@h"}}),
                "mail",
                "smtp://",
            ),
            (
                json!({"sink": "file:///x", "columns": {"url": "u"}}),
                "columns.url",
                "webhooks",
            ),
            (
                json!({"sink": "file:///x", "body": "x"}),
                "body",
                "webhooks",
            ),
            (
                json!({"columns": {"url": "u"}, "secrets": [format!("whsec_{}", "a".repeat(32))]}),
                "secrets",
                "every receiver",
            ),
        ] {
            let mut params = json!({"source": "sqlite:///x.db", "table": "t"});
            let more = more.as_object().unwrap().clone();
            params.as_object_mut().unwrap().extend(more);
            let told = found("notifications", &params);
            assert_eq!(told.len(), 1, "{params}: {told:?}");
            assert_eq!(told[0].0, key, "{params}");
            assert!(told[0].1.contains(says), "{told:?}");
            assert!(!told[0].1.contains("s3cret"), "{told:?}");
        }
    }

    #[test]
    #[cfg(feature = "smtp")]
    fn mails_need_a_choice_and_their_texts() {
        let params = json!({"source": "sqlite:///x.db", "table": "t", "sink": "smtp://h.example"});
        let keys: Vec<String> = found("notifications", &params)
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        assert_eq!(keys, ["in_doubt", "mail"]);
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
