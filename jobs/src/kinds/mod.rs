//! The kinds of stock jobs: one file or folder for each, which says what makes it, what checks it and what may be said of
//! it. A new kind is a file of its own, and a line in [`KINDS`].
//!
//! All that is wrong with the parameters of a job is found at once, each with its key. (`every_wrong_key_is_named_at_once`)

pub mod exec;
pub mod heartbeat;
pub mod http;
mod kind;
pub mod notifications;

use watchkeeper::Worker;

use kind::Kind;

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
        let worker = match kind.look {
            Some(look) => worker.look_at(kind.name, look),
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
