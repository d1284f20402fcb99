//! The jobs a worker knows: those of the code, and the kinds that configuration may use.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    batch::BatchJob,
    config::ParamProblem,
    job::{Job, Spec},
};

/// What runs: one run per tick, or batches.
#[derive(Clone)]
pub(crate) enum Body {
    /// A job.
    Job(Arc<dyn Job>),
    /// A batch job.
    Batch(Arc<dyn BatchJob>),
}

/// Makes a job from its parameters, or says what is wrong with them.
type Make = Arc<dyn Fn(&Value) -> Result<Body, String> + Send + Sync>;
/// Looks at parameters without making anything.
type Check = Arc<dyn Fn(&Value) -> Vec<ParamProblem> + Send + Sync>;

/// A kind of job that configuration may use.
#[derive(Clone)]
pub(crate) struct KindEntry {
    make: Make,
    check: Check,
}

/// Jobs and kinds by name.
#[derive(Clone, Default)]
pub(crate) struct Registry {
    jobs: BTreeMap<String, (Body, Spec)>,
    kinds: BTreeMap<String, KindEntry>,
}

impl Registry {
    pub(crate) fn add_job(&mut self, name: &str, body: Body, spec: Spec) {
        self.jobs.insert(name.to_owned(), (body, spec));
    }

    pub(crate) fn add_kind<P: DeserializeOwned + 'static>(
        &mut self,
        kind: &str,
        make: impl Fn(P) -> Body + Send + Sync + 'static,
        check: impl Fn(&Value) -> Vec<ParamProblem> + Send + Sync + 'static,
    ) {
        let make = move |params: &Value| {
            serde_json::from_value(params.clone())
                .map(&make)
                .map_err(|error| error.to_string())
        };
        self.kinds.insert(
            kind.to_owned(),
            KindEntry {
                make: Arc::new(make),
                check: Arc::new(check),
            },
        );
    }

    pub(crate) fn set_check(
        &mut self,
        kind: &str,
        check: impl Fn(&Value) -> Vec<ParamProblem> + Send + Sync + 'static,
    ) {
        if let Some(entry) = self.kinds.get_mut(kind) {
            entry.check = Arc::new(check);
        }
    }

    pub(crate) fn kinds(&self) -> Vec<String> {
        self.kinds.keys().cloned().collect()
    }

    pub(crate) fn specs(&self) -> BTreeMap<String, Spec> {
        self.jobs
            .iter()
            .map(|(name, (_, spec))| (name.clone(), spec.clone()))
            .collect()
    }

    pub(crate) fn check_params(&self, kind: &str, params: &Value) -> Vec<ParamProblem> {
        self.kinds
            .get(kind)
            .map(|entry| (entry.check)(params))
            .unwrap_or_default()
    }

    /// The work of a configured job.
    pub(crate) fn body(&self, name: &str, spec: &Spec) -> Result<Body, String> {
        if let Some((body, _)) = self.jobs.get(name) {
            return Ok(body.clone());
        }
        let kind = spec.kind.as_deref().unwrap_or_default();
        let entry = self
            .kinds
            .get(kind)
            .ok_or_else(|| format!("there is no kind `{kind}`"))?;
        (entry.make)(&spec.params)
    }
}

impl Body {
    pub(crate) fn is_batch(&self) -> bool {
        matches!(self, Self::Batch(_))
    }
}

/// Says what is wrong with the parameters of a kind by reading them.
pub(crate) fn check_by_reading<P: DeserializeOwned>(params: &Value) -> Vec<ParamProblem> {
    let read = serde_json::from_value::<P>(params.clone());
    let problem = |error: serde_json::Error| ParamProblem {
        key: String::new(),
        message: error.to_string(),
        remedy: "write the parameters this kind takes".to_owned(),
    };
    read.err().map(problem).into_iter().collect()
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("jobs", &self.jobs.keys())
            .field("kinds", &self.kinds.keys())
            .finish()
    }
}
