//! The commands of people to a running fleet: `pause`, `resume`, `trigger`, `resign`, `drain`. The store is asked and nothing else: no
//! replica need be reachable.
//!
//! Their arguments: `args.rs`. How the fleet is asked: `ask.rs`. What became of a run: `follow.rs`; of triggers: `triggers.rs`.

use std::{
    io::{self, BufRead, IsTerminal, Read},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    ask::{PATIENCE, command, load},
    failure::{Failure, paragraph},
    output::{finish, print_as},
    waiting,
};
use crate::{
    Worker,
    clock::{Clock, Moment},
    config::Config,
    fleet::{
        DrainAnswer, FleetError, PauseAnswer, ResignAnswer, Trigger, TriggerParams, TriggerState,
        Until, client::pausing_all::AllPaused, intent::TRIGGER_LIFETIME,
    },
    job::shard::spec_of,
    terminal::{self, sentence},
    worker::given,
};

/// How long a leader is waited for that ends its run first.
const HAND_OVER: Duration = Duration::from_secs(40);

pub(super) fn pause(worker: &Worker, job: &str, reason: &str, json: bool) -> Result<(), Failure> {
    let config = load(worker)?.config;
    let answer = command(&config, PATIENCE, |fleet| async move {
        fleet.pause(job, reason, PATIENCE).await
    })?;
    show_paused(&answer, json)
}

pub(super) fn resume(worker: &Worker, job: &str, json: bool) -> Result<(), Failure> {
    let config = load(worker)?.config;
    let answer = command(&config, PATIENCE, |fleet| async move {
        fleet.resume(job, PATIENCE).await
    })?;
    show_paused(&answer, json)
}

pub(super) fn pause_all(
    worker: &Worker,
    reason: &str,
    yes: bool,
    json: bool,
) -> Result<(), Failure> {
    if reason.trim().is_empty() {
        let why = "say why with --reason: it is shown to all who look at the fleet";
        return Err(Failure::Usage(why.to_owned()));
    }
    let config = load(worker)?.config;
    if !yes {
        confirm("pause every job", &config)?;
    }
    let answer = command(&config, PATIENCE, |fleet| async move {
        fleet.pause_all(reason, PATIENCE).await
    })?;
    show_all(&answer, json)
}

pub(super) fn resume_all(worker: &Worker, yes: bool, json: bool) -> Result<(), Failure> {
    let config = load(worker)?.config;
    if !yes {
        confirm("end every pause", &config)?;
    }
    let answer = command(&config, PATIENCE, |fleet| async move {
        fleet.resume_all(PATIENCE).await
    })?;
    show_all(&answer, json)
}

/// Asks whether the whole fleet is meant.
fn confirm(what: &str, config: &Config) -> Result<(), Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::Usage(format!(
            "there is no terminal to ask on: say --yes to {what} of the fleet"
        )));
    }
    let fleet = terminal::cell(&config.worker.namespace);
    terminal::ask(&format!("{what} of the fleet {fleet}? [y/N] "));
    let mut answer = String::new();
    let mut input = io::stdin().lock();
    input.read_line(&mut answer).map_err(Failure::of)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure::Failed("nothing was changed".to_owned())),
    }
}

fn show_all(answer: &AllPaused, json: bool) -> Result<(), Failure> {
    let said = answer.in_words();
    finish(
        json,
        answer,
        if answer.left == 0 {
            Ok(said)
        } else {
            Err(said)
        },
    )
}

fn show_paused(answer: &PauseAnswer, json: bool) -> Result<(), Failure> {
    print_as(json, answer, || paragraph(&paused_text(answer)))
}

/// What a command line gives a run.
pub(super) fn params(json: Option<String>, pairs: &[String]) -> Result<TriggerParams, Failure> {
    let json = match json {
        Some(text) if text == "-" => {
            let mut text = String::new();
            // More than is allowed is refused below.
            let read = io::stdin().take(1 << 20).read_to_string(&mut text);
            read.map_err(|error| Failure::Failed(format!("standard input: {error}")))?;
            Some(text)
        }
        other => other,
    };
    TriggerParams::read(json.as_deref(), pairs).map_err(|error| Failure::Usage(error.to_string()))
}

pub(super) fn trigger(
    worker: &Worker,
    job: &str,
    params: TriggerParams,
    wait: Option<Duration>,
    json: bool,
) -> Result<(), Failure> {
    let config = may_trigger(worker, job, &params)?;
    let names = params.names();
    let began = Clock::system().now();
    let patience = wait.unwrap_or(PATIENCE);
    let (found, replica) = command(&config, patience, |fleet| async move {
        let trigger = fleet.trigger(job, params).await?;
        // A limit that was given is for all of it.
        let (state, patience) = match wait {
            Some(limit) => (TriggerState::Ended, rest(began, limit)),
            None => (TriggerState::Accepted, PATIENCE),
        };
        let what = format!("waiting for {job}");
        let followed = fleet.follow(trigger, state, patience);
        let found = waiting::shown(&what, patience, followed).await;
        let replica = match found.replica.is_empty() {
            true => String::new(),
            false => fleet.name_of(&found.replica).await,
        };
        Ok::<_, FleetError>((found, replica))
    })?;
    let answer = trigger_answer(&found, &replica, &names);
    let told = trigger_text(&found, &replica, wait.is_some());
    finish(json, &answer, told)
}

/// The configuration of a fleet whose job may be given these parameters, as far as that can be told here.
pub(super) fn may_trigger(
    worker: &Worker,
    job: &str,
    params: &TriggerParams,
) -> Result<Config, Failure> {
    let config = load(worker)?.config;
    given::refuse_misfit(&worker.registry, job, spec_of(&config.jobs, job), params)
        .map_err(Failure::Usage)?;
    Ok(config)
}

/// What became of a trigger, as JSON.
pub(super) fn trigger_answer(found: &Trigger, replica: &str, params: &[String]) -> Value {
    json!({
        "job": found.job,
        "id": found.id,
        "params": params,
        "state": found.state,
        "replica": found.replica,
        "replica_name": replica,
        "run_id": found.run_id,
        "outcome": found.outcome,
        "detail": found.detail,
    })
}

pub(super) fn resign(
    worker: &Worker,
    job: &str,
    to: Option<&str>,
    json: bool,
) -> Result<(), Failure> {
    let config = load(worker)?.config;
    let what = format!("waiting until another replica leads {job}");
    let answer = command(&config, PATIENCE, |fleet| async move {
        let resigned = fleet.resign(job, to, HAND_OVER);
        waiting::shown(&what, HAND_OVER, resigned).await
    })?;
    finish(json, &answer, resign_text(&answer))
}

pub(super) fn drain(
    worker: &Worker,
    replica: &str,
    wait: Option<Duration>,
    json: bool,
) -> Result<(), Failure> {
    let config = load(worker)?.config;
    let (until, patience) = match wait {
        Some(limit) => (Until::Gone, limit),
        None => (Until::Heard, PATIENCE),
    };
    let began = Clock::system().now();
    let what = format!("waiting for {replica}");
    let answer = command(&config, patience, |fleet| async move {
        let drained = fleet.drain(replica, until, rest(began, patience));
        waiting::shown(&what, patience, drained).await
    })?;
    finish(json, &answer, drain_text(&answer, until))
}

/// What is left of the time that a command may wait, the time to connect counted in.
fn rest(began: Moment, limit: Duration) -> Duration {
    limit.saturating_sub(Clock::system().now().since(began))
}

pub(super) fn paused_text(answer: &PauseAnswer) -> String {
    let PauseAnswer {
        job,
        paused,
        changed,
        heard_by,
        unheard_by,
        known,
        ..
    } = answer;
    let word = match (paused, changed) {
        (true, true) => "is paused: nothing of it starts, and its ticks do not run",
        (true, false) => "was paused already",
        (false, true) => "goes on with its next tick",
        (false, false) => "was not paused",
    };
    let mut text = format!("{job} {word}");
    // Replicas are named by others.
    let names = |names: &[String]| {
        let cells = names.iter().map(|name| terminal::cell(name));
        cells.collect::<Vec<_>>().join(", ")
    };
    match (heard_by.is_empty(), unheard_by.is_empty()) {
        (true, true) if !known => {
            text += "\nit is written; too few lock nodes answer to tell who has heard of it";
        }
        (true, true) => text += "\nno replica runs it now; those that start find this",
        (_, true) => text += &format!("\nheard by {}", names(heard_by)),
        (_, false) => {
            text += &format!(
                "\nnot heard yet by {}: they find it when they answer again",
                names(unheard_by)
            );
        }
    }
    text
}

/// What became of it; an error when no leader has accepted it, or when it was waited for and has not ended well.
pub(super) fn trigger_text(found: &Trigger, replica: &str, waited: bool) -> Result<String, String> {
    let Trigger {
        job,
        id,
        run_id,
        outcome,
        detail,
        ..
    } = found;
    let why = match detail.is_empty() {
        true => String::new(),
        false => format!(": {}", sentence(detail)),
    };
    match found.state {
        TriggerState::Asked => Err(format!(
            "no replica has accepted {job} {id} yet: it runs once a replica leads {job}, within {} h",
            TRIGGER_LIFETIME.as_secs() / 3600
        )),
        TriggerState::Withdrawing => Err(format!(
            "{job} {id} was withdrawn by {} before it was known to start",
            terminal::cell(&found.withdrawn_by)
        )),
        TriggerState::Accepted | TriggerState::Started if waited => {
            Err(format!("{job} {id} has not ended yet, on {replica}"))
        }
        TriggerState::Accepted => Ok(format!(
            "{replica} has accepted {job} {id}: it runs as soon as nothing else of {job} does"
        )),
        TriggerState::Started => Ok(format!("{replica} runs {job} {id}, as run {run_id}")),
        TriggerState::Ended => {
            let text = format!("{job} {id} ended on {replica}: {outcome}{why}");
            match outcome.as_str() {
                "done" | "skipped" => Ok(text),
                _ if !waited && !run_id.is_empty() => Ok(text),
                _ => Err(text),
            }
        }
    }
}

pub(super) fn resign_text(answer: &ResignAnswer) -> Result<String, String> {
    let ResignAnswer {
        job,
        from,
        leader,
        leader_token,
        ..
    } = answer;
    match (leader, leader_token) {
        (Some(leader), Some(token)) => Ok(format!(
            "{leader} leads {job} after {from}, under token {token}"
        )),
        _ => Err(format!(
            "{from} was asked to give {job} up, and no replica leads it in a later term yet: see `status`"
        )),
    }
}

pub(super) fn drain_text(answer: &DrainAnswer, until: Until) -> Result<String, String> {
    let DrainAnswer {
        replica,
        name,
        heard,
        gone,
    } = answer;
    match (until, gone, heard) {
        (_, true, true) => Ok(format!("{name} has ended its work and gone ({replica})")),
        (_, true, false) => Ok(format!(
            "{name} has gone: nothing was heard of it for so long ({replica})"
        )),
        (Until::Heard, false, true) => Ok(format!(
            "{name} drains: what runs there ends, and others lead its jobs ({replica})"
        )),
        (Until::Gone, false, true) => Err(format!("{name} drains, and has not gone yet")),
        (_, false, false) => Err(format!(
            "{name} was asked to drain and has not said that it does: it finds this when it answers again, \
             within 10 minutes ({replica})"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_is_told_who_has_heard() {
        let mut answer = PauseAnswer {
            job: "report".to_owned(),
            paused: true,
            changed: true,
            reason: String::new(),
            heard_by: vec!["a".to_owned()],
            unheard_by: vec![],
            known: true,
        };
        assert!(paused_text(&answer).ends_with("\nheard by a"));
        answer.unheard_by = vec!["b".to_owned()];
        assert!(paused_text(&answer).contains("not heard yet by b"));
        answer = PauseAnswer {
            heard_by: vec![],
            unheard_by: vec![],
            ..answer
        };
        assert!(paused_text(&answer).contains("no replica runs it now"));
        answer.known = false;
        assert!(paused_text(&answer).contains("it is written"));
    }

    #[test]
    fn the_name_of_a_replica_makes_no_line_of_its_own() {
        let hostile = vec!["a\nheard by everybody".to_owned()];
        let answer = |heard_by: &[String], unheard_by: &[String]| PauseAnswer {
            job: "report".to_owned(),
            paused: true,
            changed: true,
            reason: String::new(),
            heard_by: heard_by.to_vec(),
            unheard_by: unheard_by.to_vec(),
            known: true,
        };
        for answer in [answer(&hostile, &[]), answer(&[], &hostile)] {
            let shown = paused_text(&answer);
            assert_eq!(shown.lines().count(), 2, "{shown}");
        }
    }

    #[test]
    fn a_drain_that_was_waited_for_must_have_come_to_its_end() {
        let mut answer = DrainAnswer {
            replica: "h-1-x".to_owned(),
            name: "w0".to_owned(),
            heard: false,
            gone: false,
        };
        assert!(drain_text(&answer, Until::Heard).is_err());
        answer.heard = true;
        assert!(drain_text(&answer, Until::Heard).is_ok());
        assert!(drain_text(&answer, Until::Gone).is_err());
        answer.gone = true;
        assert!(drain_text(&answer, Until::Gone).is_ok());
    }

    #[test]
    fn a_trigger_that_nobody_has_accepted_is_a_failure() {
        let mut found = Trigger {
            job: "report".to_owned(),
            id: "t".to_owned(),
            ..Trigger::default()
        };
        assert!(trigger_text(&found, "", false).is_err());
        found.state = TriggerState::Accepted;
        assert!(trigger_text(&found, "a", false).is_ok());
        assert!(trigger_text(&found, "a", true).is_err());
        found.state = TriggerState::Ended;
        found.outcome = "failed".to_owned();
        found.run_id = "r".to_owned();
        assert!(trigger_text(&found, "a", false).is_ok(), "it was accepted");
        assert!(trigger_text(&found, "a", true).is_err());
        found.outcome = "done".to_owned();
        assert!(trigger_text(&found, "a", true).is_ok());
    }
}
