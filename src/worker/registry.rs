//! The jobs a worker knows: those of the code, and the kinds that configuration may use.

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ready::{Body, Ready};
#[cfg(feature = "admin")]
use crate::fleet::items::KeptItems;
use crate::{
    config::{Findings, KindlessCall, WorkFacts},
    error::Error,
    finding::Finding,
    job::{Health, Job, JobError, Outcome, Run, Spec, params},
    panics::caught,
};

/// Makes a job from its parameters, or says what is wrong with them.
type Make = Arc<dyn Fn(&Value) -> Result<Body, String> + Send + Sync>;
/// Looks at parameters without making anything.
type Check = Arc<dyn Fn(&Value) -> Findings + Send + Sync>;

/// A kind of job that configuration may use.
#[derive(Clone)]
pub(crate) struct KindEntry {
    make: Make,
    check: Check,
    /// Looks at what the parameters lead to: databases, files.
    look: Option<Check>,
    /// Lists and changes what is left of the work of its jobs.
    #[cfg(feature = "admin")]
    items: Option<Arc<dyn KeptItems>>,
    /// Parameters that no trigger may give.
    fixed: Vec<String>,
    work: WorkFacts,
}

/// A job of a kind: as configured, or made anew for a run whose trigger gives it parameters.
struct OfKind {
    configured: Arc<dyn Job>,
    entry: KindEntry,
}

/// Jobs and kinds by name.
#[derive(Clone, Default)]
pub(crate) struct Registry {
    jobs: BTreeMap<String, Arc<(Body, Arc<Spec>)>>,
    kinds: BTreeMap<String, KindEntry>,
    kindless: Vec<KindlessCall>,
}

impl Registry {
    pub(crate) fn add_job(&mut self, name: &str, body: Body, spec: Spec) {
        let job = Arc::new((body, Arc::new(spec)));
        self.jobs.insert(name.to_owned(), job);
    }

    pub(crate) fn add_kind<P: DeserializeOwned + 'static>(
        &mut self,
        kind: &str,
        batches: bool,
        make: impl Fn(P) -> Body + Send + Sync + 'static,
        check: impl Fn(&Value) -> Findings + Send + Sync + 'static,
    ) {
        // Both are the user's, and so is the type that they read.
        let of = kind.to_owned();
        let make = move |params: &Value| {
            let made = caught(|| params::read(params).map(&make));
            let made = made.map_err(|panic| format!("the kind `{of}` panicked: {panic}"))?;
            made.map_err(|misfit| misfit.to_string())
        };
        self.kinds.insert(
            kind.to_owned(),
            KindEntry {
                make: Arc::new(make),
                check: Arc::new(careful(check)),
                look: None,
                #[cfg(feature = "admin")]
                items: None,
                fixed: Vec::new(),
                work: WorkFacts {
                    batches,
                    ..WorkFacts::default()
                },
            },
        );
    }

    pub(crate) fn set_check(
        &mut self,
        kind: &str,
        check: impl Fn(&Value) -> Findings + Send + Sync + 'static,
    ) {
        if let Some(entry) = self.entry("check_params", kind) {
            entry.check = Arc::new(careful(check));
        }
    }

    pub(crate) fn set_look(
        &mut self,
        kind: &str,
        look: impl Fn(&Value) -> Findings + Send + Sync + 'static,
    ) {
        if let Some(entry) = self.entry("look_at", kind) {
            entry.look = Some(Arc::new(careful(look)));
        }
    }

    #[cfg(feature = "admin")]
    pub(crate) fn set_items(&mut self, kind: &str, items: Arc<dyn KeptItems>) {
        if let Some(entry) = self.entry("items_of", kind) {
            entry.items = Some(items);
        }
    }

    pub(crate) fn set_fixed(&mut self, kind: &str, keys: &[&str]) {
        if let Some(entry) = self.entry("fixed_params", kind) {
            entry.fixed = keys.iter().map(|key| (*key).to_owned()).collect();
        }
    }

    pub(crate) fn set_silent(&mut self, kind: &str) {
        if let Some(entry) = self.entry("tells_no_progress", kind) {
            entry.work.tells_nothing = true;
        }
    }

    /// What a `call` of the program is about. A kind that is not known is kept in mind, to be refused when all is checked.
    fn entry(&mut self, call: &'static str, kind: &str) -> Option<&mut KindEntry> {
        let found = self.kinds.get_mut(kind);
        if found.is_none() {
            self.kindless.push(KindlessCall {
                call,
                kind: kind.to_owned(),
            });
        }
        found
    }

    /// Calls that had no effect.
    pub(crate) fn kindless(&self) -> Vec<KindlessCall> {
        self.kindless.clone()
    }

    /// What is known of the work of a configured job.
    pub(crate) fn work_of(&self, name: &str, spec: &Spec) -> Option<WorkFacts> {
        if let Some(job) = self.jobs.get(name) {
            let (body, _) = &**job;
            return Some(WorkFacts {
                batches: body.is_batch(),
                ..WorkFacts::default()
            });
        }
        Some(self.kinds.get(spec.kind.as_deref()?)?.work)
    }

    /// Why no run of this kind can have these parameters, of which a trigger gives the `given`.
    #[cfg(any(test, feature = "cli", feature = "admin"))]
    pub(crate) fn misfit(&self, kind: &str, given: &[String], params: &Value) -> Option<String> {
        self.kinds.get(kind)?.misfit(given, params)
    }

    pub(crate) fn kinds(&self) -> Vec<String> {
        self.kinds.keys().cloned().collect()
    }

    pub(crate) fn specs(&self) -> BTreeMap<String, Spec> {
        self.jobs
            .iter()
            .map(|(name, job)| (name.clone(), Spec::clone(&job.1)))
            .collect()
    }

    /// That of the code, where the configuration has not changed it: one copy is enough.
    pub(super) fn shared(&self, name: &str, spec: Spec) -> Arc<Spec> {
        match self.jobs.get(name) {
            Some(job) if *job.1 == spec => job.1.clone(),
            _ => Arc::new(spec),
        }
    }

    pub(crate) fn check_params(&self, kind: &str, params: &Value) -> Findings {
        self.kinds
            .get(kind)
            .map(|entry| (entry.check)(params))
            .unwrap_or_default()
    }

    /// What the parameters lead to, where nothing is wrong with themselves.
    #[cfg(feature = "cli")]
    pub(crate) fn look_at(&self, kind: &str, params: &Value) -> Findings {
        let look = self.kinds.get(kind).and_then(|entry| entry.look.as_ref());
        look.map(|look| look(params)).unwrap_or_default()
    }

    /// What lists and changes the items of the jobs of this kind, where it has such.
    #[cfg(feature = "admin")]
    pub(super) fn items_of(&self, kind: &str) -> Option<Arc<dyn KeptItems>> {
        self.kinds.get(kind)?.items.clone()
    }

    /// The work of a configured job.
    pub(crate) fn body(&self, name: &str, spec: &Spec) -> Result<Body, String> {
        if let Some(job) = self.jobs.get(name) {
            return Ok(job.0.clone());
        }
        let kind = spec.kind.as_deref().unwrap_or_default();
        let entry = self
            .kinds
            .get(kind)
            .ok_or_else(|| format!("there is no kind `{kind}`"))?;
        Ok(match (entry.make)(&spec.params)? {
            Body::Job(configured) => Body::Job(Arc::new(OfKind {
                configured,
                entry: entry.clone(),
            })),
            batch => batch,
        })
    }

    /// A configured job, or its shards, ready to run. What fails here is a defect of the check before it, and nothing has
    /// started.
    pub(super) fn ready(&self, name: &str, spec: &Arc<Spec>) -> Result<Vec<Ready>, Error> {
        let failed = |why| Error::Job {
            name: name.to_owned(),
            why,
        };
        let body = self.body(name, spec).map_err(failed)?;
        Ready::all(name, body, spec).map_err(|error| failed(error.to_string()))
    }
}

impl KindEntry {
    /// Keys, what is wrong with them, and what to do.
    fn misfit(&self, given: &[String], params: &Value) -> Option<String> {
        if let Some(key) = given.iter().find(|key| self.fixed.contains(key)) {
            return Some(format!(
                "params.{key}: no trigger may give it; change it in the configuration"
            ));
        }
        let problems = (self.check)(params).into_iter().map(|problem| {
            if let Some(told) = self.no_such_parameter(given, &problem) {
                return told;
            }
            let key = first_key(&problem);
            let dot = if key.is_empty() { "" } else { "." };
            let remedy = match problem.remedy.as_str() {
                "" => String::new(),
                remedy => format!(" ({remedy})"),
            };
            format!("params{dot}{key}: {}{remedy}", problem.message)
        });
        let problems: Vec<String> = problems.collect();
        (!problems.is_empty()).then(|| problems.join("; "))
    }

    /// What a trigger may give instead of a parameter that the kind does not have. The list that serde makes has what only
    /// the configuration may say in it, too.
    fn no_such_parameter(&self, given: &[String], problem: &Finding) -> Option<String> {
        let (name, known) = problem
            .message
            .strip_prefix("unknown field `")?
            .split_once("`, expected ")?;
        // A check that tries each key alone may name one within it.
        let inner = first_key(problem).strip_prefix(name)?;
        let is_it = inner.is_empty() || inner.starts_with('.');
        given.iter().find(|given| is_it && *given == name)?;
        let known = known.split('`').skip(1).step_by(2);
        let (fixed, free): (Vec<&str>, Vec<&str>) =
            known.partition(|name| self.fixed.iter().any(|fixed| fixed == name));
        let may = match free.is_empty() {
            true => "a trigger may give none".to_owned(),
            false => format!("a trigger may give {}", and(&free)),
        };
        let rest = match fixed.len() {
            0 => String::new(),
            1 => format!(", and {} comes from the configuration alone", fixed[0]),
            _ => format!(", and {} come from the configuration alone", and(&fixed)),
        };
        Some(format!(
            "params.{name}: there is no such parameter: {may}{rest}"
        ))
    }
}

/// The parameter that a finding is about; empty when it is about all of them.
fn first_key(finding: &Finding) -> &str {
    finding.keys.first().map_or("", String::as_str)
}

/// `a`, `a and b`, `a, b and c`
fn and(names: &[&str]) -> String {
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
        None => String::new(),
    }
}

#[async_trait]
impl Job for OfKind {
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        if run.given().is_empty() {
            return self.configured.run(run).await;
        }
        let params = &run.facts().params;
        if let Some(why) = self.entry.misfit(run.given(), params) {
            return Err(JobError::fatal(why));
        }
        match (self.entry.make)(params).map_err(JobError::fatal)? {
            Body::Job(job) => job.run(run).await,
            Body::Batch(_) => Err(JobError::fatal("batches are not triggered")),
        }
    }

    async fn health(&self) -> Health {
        self.configured.health().await
    }
}

/// A check whose panic is a problem like others.
fn careful(
    check: impl Fn(&Value) -> Findings + Send + Sync + 'static,
) -> impl Fn(&Value) -> Findings + Send + Sync + 'static {
    move |params| {
        caught(|| check(params)).unwrap_or_else(|panic| {
            let mut found = Findings::default();
            found.error(
                &[""],
                format!("the check of the parameters panicked: {panic}"),
                "mend the program's check, or write parameters that it can take",
            );
            found
        })
    }
}

/// Says what is wrong with the parameters of a kind by reading them.
pub(crate) fn check_by_reading<P: DeserializeOwned>(params: &Value) -> Findings {
    let mut found = Findings::default();
    if let Err(misfit) = params::read::<P>(params) {
        let remedy = "write the parameters this kind takes";
        found.error(&[&misfit.key], misfit.why, remedy);
    }
    found
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("jobs", &self.jobs.keys())
            .field("kinds", &self.kinds.keys())
            .finish()
    }
}
