//! Refuses parameters of a trigger that its job cannot take, before anything is written.

use super::registry::Registry;
use crate::{intent::TriggerParams, job::Spec};

/// Why `job`, as configured here, cannot run with these parameters: keys and remedies. A job that is not known here, or that
/// the program registered itself, says so when it runs.
pub(crate) fn refuse_misfit(
    registry: &Registry,
    job: &str,
    spec: Option<&Spec>,
    given: &TriggerParams,
) -> Result<(), String> {
    let kind = spec.and_then(|spec| Some((spec.kind.as_ref()?, &spec.params)));
    let Some((kind, params)) = kind.filter(|_| !given.is_empty()) else {
        return Ok(());
    };
    match registry.misfit(kind, &given.names(), &given.over(params)) {
        Some(why) => Err(format!("{job} cannot run with these parameters: {why}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;
    use crate::{
        Worker,
        config::LoadOptions,
        job::{Job, JobError, Outcome, Run},
    };

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "read alone")]
    struct Params {
        pages: u64,
        #[serde(default)]
        command: String,
    }

    struct Pages;

    #[async_trait::async_trait]
    impl Job for Pages {
        async fn run(&self, _: Run) -> Result<Outcome, JobError> {
            Ok(Outcome::Done)
        }
    }

    fn refused(pairs: &[&str]) -> Result<(), String> {
        let worker = Worker::with(LoadOptions::default())
            .kind("pages", |_: Params| Pages)
            .fixed_params("pages", &["command"]);
        let mut spec = Spec::every(std::time::Duration::from_secs(60)).params(json!({"pages": 1}));
        spec.kind = Some("pages".to_owned());
        let pairs: Vec<String> = pairs.iter().map(|pair| (*pair).to_owned()).collect();
        let given = TriggerParams::read(None, &pairs).unwrap();
        refuse_misfit(&worker.registry, "report", Some(&spec), &given)
    }

    #[test]
    fn what_the_kind_cannot_read_is_refused_by_key_with_a_remedy() {
        assert_eq!(refused(&[]), Ok(()));
        assert_eq!(refused(&["pages=7"]), Ok(()));
        let why = refused(&["pages=hunter2"]).unwrap_err();
        assert!(why.contains("params.pages: expected u64"), "{why}");
        assert!(!why.contains("hunter2"), "{why}");
        let why = refused(&["page=7"]).unwrap_err();
        assert!(
            why.ends_with(
                "params.page: there is no such parameter: a trigger may give pages, \
                 and command comes from the configuration alone"
            ),
            "{why}"
        );
    }

    #[test]
    fn what_only_the_configuration_may_say_is_refused() {
        let why = refused(&["command=rm"]).unwrap_err();
        assert!(
            why.contains("params.command: ") && why.contains("configuration"),
            "{why}"
        );
    }
}
