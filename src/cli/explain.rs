//! `explain`: why a job ran at a time, or why it did not. Reads only.

use super::{
    ask::{Limits, PATIENCE, ask, load, nobody_was_here, place},
    failure::Failure,
    moment::moment,
    output::print_as,
};
use crate::{Worker, clock::Clock, fleet::Fleet, job::shard::spec_of, terminal::sentence};

pub(super) fn explain(
    worker: &Worker,
    job: &str,
    at: Option<&str>,
    json: bool,
) -> Result<(), Failure> {
    let config = load(worker)?.config;
    let at = at.map(moment).transpose()?;
    let answer = if nobody_was_here(&config) {
        let Some(spec) = spec_of(&config.jobs, job) else {
            return Err(Failure::Failed(format!(
                "there is no job {job:?} in the configuration, and no replica runs it in {}",
                place(&config)
            )));
        };
        let now = Clock::system().wall();
        Fleet::explain_unasked(job, spec, at, now).map_err(Failure::of)?
    } else {
        ask(&config, Limits::command(PATIENCE), |fleet| async move {
            fleet.explain(job, at).await
        })?
    };
    print_as(json, &answer, || in_lines(&answer.sentences))
}

/// A line for each sentence.
pub(super) fn in_lines(sentences: &[String]) -> String {
    let lines: Vec<String> = sentences.iter().map(|line| sentence(line)).collect();
    lines.join("\n")
}
