//! Shards: one definition, many jobs, each with a lock and a leader of its own.
//!
//! The shards of `reminders` are the jobs `reminders.0`, `reminders.1` and so on. No job of a configuration or of code has a
//! dot in its name, so that a shard is never taken for another job, and its name alone says whose shard it is: to
//! replicas and clients that know nothing of the definition, too.
//!
//! # Invariants
//! - A name is that of one shard, or of none: no two names mean the same.   (a_shard_is_known_by_its_name_alone)

use std::{borrow::Borrow, collections::BTreeMap};

use super::Spec;

/// The most shards of one job.
pub(crate) const MOST_SHARDS: usize = 10_000;

/// The name of a shard of `job`.
pub(crate) fn shard(job: &str, number: usize) -> String {
    format!("{job}.{number}")
}

/// Whose shard this is, and which; nothing for a job of its own.
pub(crate) fn shard_of(name: &str) -> Option<(&str, usize)> {
    let (job, number) = name.rsplit_once('.')?;
    let canonical = number == "0" || !number.starts_with(['0', '+']);
    let number = number
        .parse()
        .ok()
        .filter(|_| canonical && !job.is_empty())?;
    (number < MOST_SHARDS).then_some((job, number))
}

/// The job of which people speak: of a shard the one that it is a part of.
pub(crate) fn whole(name: &str) -> &str {
    shard_of(name).map_or(name, |(job, _)| job)
}

/// Whether `name` is `job`, or one of its shards.
pub(crate) fn is_of(name: &str, job: &str) -> bool {
    name == job || shard_of(name).is_some_and(|(of, _)| of == job)
}

/// The names under which a configured job runs: its own, or those of its shards.
pub(crate) fn names_of(job: &str, spec: &Spec) -> Vec<String> {
    match spec.shards {
        None => vec![job.to_owned()],
        Some(shards) => (0..shards).map(|number| shard(job, number)).collect(),
    }
}

/// What the configuration says of a job, of all shards of one, or of one of them.
pub(crate) fn spec_of<'a, S: Borrow<Spec>>(
    jobs: &'a BTreeMap<String, S>,
    name: &str,
) -> Option<&'a Spec> {
    if let Some(spec) = jobs.get(name) {
        return Some(spec.borrow());
    }
    let (job, number) = shard_of(name)?;
    let spec = jobs.get(job)?.borrow();
    spec.shards.filter(|shards| number < *shards).map(|_| spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_known_by_its_name_alone() {
        assert_eq!(shard("reminders", 7), "reminders.7");
        assert_eq!(shard_of("reminders.7"), Some(("reminders", 7)));
        assert_eq!(shard_of("reminders.0"), Some(("reminders", 0)));
        for none in [
            "reminders",
            "reminders.",
            "reminders.07",
            "reminders.+7",
            "reminders.-1",
            "reminders.x",
            ".7",
            "reminders.10000",
            "reminders.99999999999999999999",
            "reminders-7",
            "",
        ] {
            assert_eq!(shard_of(none), None, "{none}");
        }
        assert_eq!(
            (whole("reminders.7"), whole("report")),
            ("reminders", "report")
        );
        assert!(is_of("reminders.7", "reminders") && is_of("report", "report"));
        assert!(!is_of("reminders.7", "remind") && !is_of("reminders", "reminders.7"));
    }

    #[test]
    fn a_definition_is_found_by_its_name_and_by_those_of_its_shards() {
        let mut spec = Spec::on("manual");
        let plain = spec.clone();
        spec.shards = Some(2);
        assert_eq!(names_of("a", &spec), ["a.0", "a.1"]);
        assert_eq!(names_of("b", &plain), ["b"]);
        let jobs = BTreeMap::from([("a".to_owned(), spec), ("b".to_owned(), plain)]);
        let found = |name: &str| spec_of(&jobs, name).is_some();
        assert!(found("a") && found("a.0") && found("a.1") && found("b"));
        assert!(!found("a.2") && !found("b.0") && !found("c"));
    }
}
