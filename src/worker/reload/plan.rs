//! What a reload changes: decided from two configurations alone.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    config::{Config, Secret, SecretUrl},
    job::Spec,
};

/// What is to be done, by names of jobs and keys, each in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reload {
    /// Jobs that begin.
    pub(crate) added: Vec<String>,
    /// Jobs that end.
    pub(crate) removed: Vec<String>,
    /// Jobs that go on under another definition.
    pub(crate) changed: Vec<String>,
    /// Jobs that do not hear of it.
    pub(crate) unchanged: Vec<String>,
    /// Keys outside of jobs whose values differ: they are not in effect before a restart.
    pub(crate) needs_restart: Vec<String>,
}

/// Compares the configuration in effect with a new one. A job that is disabled is none.
pub(crate) fn plan(old: &Config, new: &Config) -> Reload {
    let (was, is) = (enabled(old), enabled(new));
    let mut reload = Reload::default();
    for (name, spec) in &is {
        let list = match was.get(name) {
            None => &mut reload.added,
            Some(old) if old == spec => &mut reload.unchanged,
            Some(_) => &mut reload.changed,
        };
        list.push((*name).clone());
    }
    let gone = was.keys().filter(|name| !is.contains_key(*name));
    reload.removed = gone.map(|name| (*name).clone()).collect();
    reload.needs_restart = needs_restart(old, new);
    reload
}

fn enabled(config: &Config) -> BTreeMap<&String, &Spec> {
    config
        .jobs
        .iter()
        .filter(|(_, spec)| spec.enabled)
        .collect()
}

fn needs_restart(old: &Config, new: &Config) -> Vec<String> {
    let settings = |config: &Config| {
        let mut value = serde_json::to_value(config).unwrap_or_default();
        if let Value::Object(sections) = &mut value {
            sections.remove("jobs");
        }
        value
    };
    let mut found = Vec::new();
    differences("", &settings(old), &settings(new), &mut found);
    // Written as stars, they all look the same.
    let secret = |of: &Option<Secret>| of.as_ref().map(|secret| secret.expose().to_owned());
    let nodes = |config: &Config| {
        let urls = config.locks.redis.nodes.iter();
        urls.map(|url: &SecretUrl| url.expose().to_owned())
            .collect::<Vec<_>>()
    };
    let database = |config: &Config| {
        let url = |url: &Option<SecretUrl>| url.as_ref().map(|url| url.expose().to_owned());
        let of = &config.locks.postgres;
        (url(&of.url), url(&of.listen_url), secret(&of.password))
    };
    let token = |config: &Config| secret(&config.admin.token);
    let password = |config: &Config| secret(&config.locks.redis.password);
    let of_etcd = |config: &Config| secret(&config.locks.etcd.password);
    let headers = |config: &Config| secret(&config.telemetry.otlp_headers);
    let secrets = [
        ("admin.token", token(old) != token(new)),
        ("locks.redis.password", password(old) != password(new)),
        ("locks.redis.nodes", nodes(old) != nodes(new)),
        ("locks.postgres.url", database(old).0 != database(new).0),
        (
            "locks.postgres.listen_url",
            database(old).1 != database(new).1,
        ),
        (
            "locks.postgres.password",
            database(old).2 != database(new).2,
        ),
        ("locks.etcd.password", of_etcd(old) != of_etcd(new)),
        ("telemetry.otlp_headers", headers(old) != headers(new)),
    ];
    for (name, was) in &old.notices {
        if let Some(is) = new.notices.get(name) {
            let of = [
                ("url", secret(&was.url) != secret(&is.url)),
                ("secret", secret(&was.secret) != secret(&is.secret)),
                ("password", secret(&was.password) != secret(&is.password)),
            ];
            let differ = of.iter().filter(|(_, differ)| *differ);
            found.extend(differ.map(|(key, _)| format!("notices.{name}.{key}")));
        }
    }
    let secrets = secrets.iter().filter(|(_, differ)| *differ);
    found.extend(secrets.map(|(key, _)| (*key).to_owned()));
    found.sort();
    found.dedup();
    found
}

fn differences(at: &str, old: &Value, new: &Value, found: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(was), Value::Object(is)) => {
            let keys: BTreeSet<&String> = was.keys().chain(is.keys()).collect();
            for key in keys {
                let dot = if at.is_empty() { "" } else { "." };
                differences(&format!("{at}{dot}{key}"), &old[key], &new[key], found);
            }
        }
        (was, is) if was != is => found.push(at.to_owned()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn config(jobs: &[(&str, Spec)]) -> Config {
        let jobs = jobs
            .iter()
            .map(|(name, spec)| ((*name).to_owned(), spec.clone()));
        Config {
            jobs: jobs.collect(),
            ..Config::default()
        }
    }

    fn hourly() -> Spec {
        Spec::on("@hourly")
    }

    #[test]
    fn jobs_are_added_removed_changed_or_left_alone() {
        let old = config(&[("a", hourly()), ("b", hourly()), ("c", hourly())]);
        let new = config(&[
            ("b", hourly().params(json!({"n": 1}))),
            ("c", hourly()),
            ("d", hourly()),
        ]);
        let reload = plan(&old, &new);
        let names = |list: &[String]| list.join(",");
        assert_eq!(names(&reload.added), "d");
        assert_eq!(names(&reload.removed), "a");
        assert_eq!(names(&reload.changed), "b");
        assert_eq!(names(&reload.unchanged), "c");
        assert_eq!(names(&reload.needs_restart), "");
    }

    #[test]
    fn a_job_that_is_switched_off_or_on_ends_or_begins() {
        let (on, off) = (
            config(&[("a", hourly())]),
            config(&[("a", hourly().enabled(false))]),
        );
        assert_eq!(plan(&on, &off).removed, ["a"]);
        assert_eq!(plan(&off, &on).added, ["a"]);
        assert_eq!(plan(&off, &off), Reload::default());
    }

    #[test]
    fn every_key_of_a_definition_counts() {
        let was = config(&[("a", hourly())]);
        let others = [
            hourly().retry(9),
            hourly().ttl(Duration::from_secs(5)),
            hourly().zone("Europe/Rome"),
            hourly().definition(crate::job::Disagreement::Refuse),
        ];
        for spec in others {
            assert_eq!(plan(&was, &config(&[("a", spec)])).changed, ["a"]);
        }
    }

    #[test]
    fn what_is_no_job_needs_a_restart_and_is_named_without_its_value() {
        let old = config(&[]);
        let mut new = config(&[]);
        new.worker.namespace = "other".to_owned();
        new.locks.ttl = Duration::from_secs(7);
        new.locks.redis.password = Some(Secret::new("hunter2"));
        let found = plan(&old, &new).needs_restart;
        assert_eq!(
            found,
            ["locks.redis.password", "locks.ttl", "worker.namespace"]
        );
        let mut newer = new.clone();
        newer.locks.redis.password = Some(Secret::new("hunter3"));
        assert_eq!(plan(&new, &newer).needs_restart, ["locks.redis.password"]);
        newer.locks.etcd.password = Some(Secret::new("hunter2"));
        let mut newest = newer.clone();
        newest.locks.etcd.password = Some(Secret::new("hunter3"));
        assert_eq!(plan(&newer, &newest).needs_restart, ["locks.etcd.password"]);
        assert_eq!(plan(&newer, &newer.clone()), Reload::default());
    }
}
