//! `explain`: why a job ran at a time, or why it did not. Reads only.

use super::{
    Failure, load,
    moment::moment,
    print, print_json,
    status::{ask_answer, nobody_was_here, place},
};
use crate::{
    Worker,
    clock::Clock,
    explain::{Facts, explain as explained},
    fleet::{
        client::{self as asking, AskError, runs},
        view as seeing,
    },
    intent::{self, Intent, Pause},
    ledger::Ledger,
    schedule::Schedule,
    status::{JobStatus, RunRecord},
    terminal::sentence,
};

/// Everything that a history keeps.
const ALL: usize = 1000;

/// What the store tells of a job.
#[derive(Default)]
struct Told {
    coordination: Option<String>,
    schedule: Option<(String, Option<String>)>,
    leader: Option<String>,
    ledger: Option<String>,
    runs: Vec<RunRecord>,
    pause: Option<Pause>,
    /// On its definition.
    disagreement: Vec<String>,
}

pub(super) fn explain(
    worker: &Worker,
    job: &str,
    at: Option<&str>,
    json: bool,
) -> Result<(), Failure> {
    let config = load(worker)?.config;
    let now = Clock::system().wall();
    let at = at.map_or(Ok(now), moment)?;
    let configured: Vec<String> = config.jobs.keys().cloned().collect();
    let told = if nobody_was_here(&config) {
        Told::default()
    } else {
        ask_answer(&config, |locks| async move {
            let fleet = seeing::fleet_of(&locks, job).await?;
            asking::refuse_unknown(job, &fleet, &configured)?;
            let key = format!("job/{job}");
            let views = locks.list(&key).await?;
            // The record of the latest writing that any node shows: the truth, or what the next leader makes it.
            let records = views.into_iter().flatten().filter(|view| view.key == key);
            let newest = records.max_by_key(|view| view.record.version);
            let asked = locks.doc(&intent::pause_document(job)).await?;
            let pause = match asked.as_ref().and_then(Intent::from_doc) {
                Some(Intent::Pause(pause)) => Some(pause),
                _ => None,
            };
            let running = fleet.job(job);
            Ok::<_, AskError>(Told {
                coordination: running.map(|job| job.coordination.clone()),
                schedule: running.map(|job| (job.schedule.clone(), job.zone.clone())),
                leader: running.and_then(|job| match &job.leader {
                    Some(leader) => Some(leader.shown().to_owned()),
                    None if job.leader_known => None,
                    None => Some("a replica that cannot be seen now".to_owned()),
                }),
                ledger: newest.map(|view| view.record.body),
                runs: runs::last(&locks, job, ALL).await?,
                pause,
                disagreement: running.map(JobStatus::disagreement).unwrap_or_default(),
            })
        })?
    };
    let failed = |why: String| Failure::Failed(why);
    let spec = config.jobs.get(job);
    if spec.is_none() && told.schedule.is_none() {
        return Err(failed(format!(
            "there is no job {job:?} in the configuration, and nobody runs it in {}",
            place(&config)
        )));
    }
    let (text, zone) = told.schedule.unwrap_or_default();
    let schedule = match spec {
        Some(spec) => spec
            .schedule_of(job)
            .map_err(|error| failed(error.to_string()))?,
        // What its leader says must do.
        None => Schedule::parse(&text, None, zone.as_deref())
            .map_err(|error| failed(error.to_string()))?,
    };
    let ledger = told.ledger.as_deref().map(Ledger::from_body).transpose();
    let ledger = ledger.map_err(|error| failed(error.to_string()))?;
    let coordination = spec.map(|spec| spec.coordination.to_string());
    let coordination = coordination.or(told.coordination).unwrap_or_default();
    let answer = explained(&Facts {
        job,
        coordination: &coordination,
        enabled: spec.is_none_or(|spec| spec.enabled),
        schedule: &schedule,
        ledger: ledger.as_ref(),
        runs: &told.runs,
        pause: told.pause.as_ref(),
        leader: told.leader.as_deref(),
        at,
        now,
    });
    let mut answer = answer;
    answer.sentences.extend(
        told.disagreement
            .into_iter()
            .map(|line| format!("The replicas disagree on {job}: {line}.")),
    );
    if json {
        return print_json(&answer);
    }
    print(&in_lines(&answer.sentences));
    Ok(())
}

/// A line for each sentence.
pub(super) fn in_lines(sentences: &[String]) -> String {
    let lines: Vec<String> = sentences.iter().map(|line| sentence(line)).collect();
    lines.join("\n")
}
