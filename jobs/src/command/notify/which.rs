//! Which job is meant, and where its table is.

use crate::{
    NotificationsParams,
    notifications::{open, operator::Operator, params::Database},
};
use serde::Deserialize;
use watchkeeper::{Worker, config::Config};

use super::failure::Failure;

/// The kind of job that these commands are for.
const KIND: &str = "notifications";

/// A job that sends the rows of a table.
#[derive(Debug)]
pub(super) struct Mailing {
    pub(super) job: String,
    pub(super) params: NotificationsParams,
    pub(super) database: Database,
}

impl Mailing {
    /// To look: what is opened cannot write.
    pub(super) async fn look(&self) -> Result<Box<dyn Operator>, Failure> {
        Ok(open::operator(&self.database, &self.params, false).await?)
    }

    /// To change something.
    pub(super) async fn change(&self) -> Result<Box<dyn Operator>, Failure> {
        Ok(open::operator(&self.database, &self.params, true).await?)
    }
}

/// The job of this name; without one the only one there is.
pub(super) fn one(worker: &Worker, job: Option<&str>) -> Result<Mailing, Failure> {
    let config = worker.load_to_ask()?.config;
    let name = choose(&config, job)?;
    mailing(&config, &name)
}

/// The job of this name; without one all there are.
pub(super) fn all(worker: &Worker, job: Option<&str>) -> Result<Vec<Mailing>, Failure> {
    let config = worker.load_to_ask()?.config;
    let names = match job {
        Some(job) => vec![choose(&config, Some(job))?],
        None => names(&config),
    };
    if names.is_empty() {
        return Err(none());
    }
    names.iter().map(|name| mailing(&config, name)).collect()
}

/// The job and the ids behind it. The first word is the job where one is called so, of whatever kind; else an id, if only
/// one job can be meant.
pub(super) fn with_ids<'w>(
    worker: &Worker,
    words: &'w [String],
) -> Result<(Mailing, &'w [String]), Failure> {
    let config = worker.load_to_ask()?.config;
    let names = names(&config);
    let (job, ids) = match words.split_first() {
        Some((first, rest)) if config.jobs.contains_key(first) || names.len() > 1 => {
            (Some(first.as_str()), rest)
        }
        _ => (None, words),
    };
    let name = choose(&config, job)?;
    Ok((mailing(&config, &name)?, ids))
}

fn names(config: &Config) -> Vec<String> {
    let ours = config
        .jobs
        .iter()
        .filter(|(_, spec)| spec.kind.as_deref() == Some(KIND));
    ours.map(|(name, _)| name.clone()).collect()
}

fn choose(config: &Config, job: Option<&str>) -> Result<String, Failure> {
    let names = names(config);
    let known = || format!("jobs of this kind: {}", names.join(", "));
    let Some(job) = job else {
        return match names.as_slice() {
            [] => Err(none()),
            [one] => Ok(one.clone()),
            _ => Err(Failure::Usage(format!("name the job; {}", known()))),
        };
    };
    if names.iter().any(|name| name == job) {
        return Ok(job.to_owned());
    }
    if names.is_empty() {
        return Err(none());
    }
    Err(Failure::Failed(match config.jobs.get(job) {
        Some(spec) => format!(
            "job {job:?} is of the kind {:?} and has no notifications; {}",
            spec.kind.as_deref().unwrap_or_default(),
            known()
        ),
        None => format!("there is no job {job:?}; {}", known()),
    }))
}

fn none() -> Failure {
    Failure::Failed(format!(
        "the configuration has no job of the kind {KIND:?}: name the file with --config, or WATCHKEEPER_CONFIG"
    ))
}

fn mailing(config: &Config, name: &str) -> Result<Mailing, Failure> {
    let unfit = |why: String| Failure::Usage(format!("jobs.{name}.params: {why}"));
    let params = config.jobs.get(name).map(|spec| &spec.params);
    // Checked when the configuration was read, so that what is said here is said to programs with checks of their own.
    let params = NotificationsParams::deserialize(params.unwrap_or(&serde_json::Value::Null))
        .map_err(|misfit| unfit(misfit.to_string()))?;
    let database = params.database();
    let database = database.map_err(|(key, why)| unfit(format!("{key} {why}")))?;
    Ok(Mailing {
        job: name.to_owned(),
        params,
        database,
    })
}
