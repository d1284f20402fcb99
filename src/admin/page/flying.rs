//! Runs and batches in flight.

use super::{
    super::html::Html,
    address::job_path,
    block::{Part, cell},
    view::View,
};
use crate::fleet::status::{JobStatus, RunStatus};

/// The name of their table.
pub(super) const PART: &str = "flying";

const COLUMNS: &str = "Job | Run | Replica | Started | Progress";

/// A run and its job.
pub(super) type Flying<'a> = (&'a JobStatus, &'a RunStatus);

/// Everything that runs, of these jobs.
pub(super) fn of<'a>(
    jobs: impl IntoIterator<Item = &'a JobStatus>,
) -> impl Iterator<Item = Flying<'a>> {
    let jobs = jobs.into_iter();
    jobs.flat_map(|job| job.running.iter().map(move |run| (job, run)))
}

/// These runs as a table.
pub(super) fn part<'a>(view: &View<'_>, runs: impl IntoIterator<Item = Flying<'a>>) -> Part {
    let name = (PART, "Runs and batches in flight");
    Part::of(name, COLUMNS, runs, key, |h, (job, run)| {
        cells(h, view, job, run);
    })
}

fn key((job, run): &Flying<'_>) -> String {
    match run.run_id.as_str() {
        // Of a version that does not tell it.
        "" => format!("{}/{}/{}", job.name, run.tick, run.attempt),
        id => id.to_owned(),
    }
}

fn cells(h: &mut Html, view: &View<'_>, job: &JobStatus, run: &RunStatus) {
    cell(h, "Job").link(&view.address.to_job(&job.name), &job.name);
    cell(h, "Run");
    let what = match &run.batch {
        Some(batch) => format!("batch {batch}"),
        None => view.times.short(run.tick),
    };
    match run.run_id.as_str() {
        "" => h.text(what),
        id => h.link(&view.address.to(&job_path(&job.name), &[("run", id)]), what),
    };
    if run.attempt > 1 {
        h.small(format_args!("attempt {}", run.attempt));
    }
    cell(h, "Replica").text(view.name_of(&run.replica));
    if let Some(token) = run.token {
        h.small(format_args!("token {token}"));
    }
    cell(h, "Started");
    view.times.moment(h, Some(run.started));
    cell(h, "Progress");
    progress(h, run);
}

fn progress(h: &mut Html, run: &RunStatus) {
    counted(h, run);
    let told = run.progress();
    for line in [told.pace(), told.message.unwrap_or_default()] {
        if !line.is_empty() {
            h.small(line);
        }
    }
}

fn counted(h: &mut Html, run: &RunStatus) {
    match (run.done, run.total) {
        (Some(done), Some(total)) => {
            h.markup("<progress value=\"").text(done.min(total));
            h.markup("\" max=\"").text(total.max(1));
            h.markup("\" aria-label=\"done\"></progress><small>");
            h.text(done);
            h.markup(" of ").text(total).markup("</small>");
        }
        (Some(done), None) => {
            h.text(done).markup(" done");
        }
        _ => {
            h.markup("–");
        }
    }
}
