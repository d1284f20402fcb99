//! `triggers`: what was asked for and is not done with, and how it is withdrawn.

use clap::{Args, Subcommand};
use serde_json::json;

use super::{
    ask::{PATIENCE, command, load},
    failure::Failure,
    output::{print, print_as, print_json},
    table::Table,
};
use crate::{
    Worker,
    config::Config,
    fleet::{FleetError, Trigger, TriggerState, WaitingTrigger},
    terminal::sentence,
};

/// What `triggers` shows or does.
#[derive(Clone, Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct TriggersArgs {
    /// What to do about them.
    #[command(subcommand)]
    pub command: Option<TriggersCommand>,
    /// Those of this job alone
    #[arg(value_name = "JOB")]
    pub job: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// What to do about triggers.
#[derive(Clone, Debug, Subcommand)]
pub enum TriggersCommand {
    /// Withdraw a trigger that has not started; with --all every such trigger of a job
    ///
    /// Exits with 1 when a run has started meanwhile: that one is not withdrawn.
    Withdraw {
        /// The id of the trigger; with --all the job
        #[arg(value_name = "ID|JOB")]
        what: String,
        /// All triggers of the job that have not started
        #[arg(long)]
        all: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub(super) fn triggers(worker: &Worker, args: TriggersArgs) -> Result<(), Failure> {
    let config = load(worker)?.config;
    match args.command {
        None => list(&config, args.job.as_deref(), args.json),
        Some(TriggersCommand::Withdraw { what, all, json }) => withdraw(&config, &what, all, json),
    }
}

fn list(config: &Config, job: Option<&str>, json: bool) -> Result<(), Failure> {
    let found = command(config, PATIENCE, |fleet| async move {
        fleet.triggers(job).await
    })?;
    print_as(json, &found, || show(&found))
}

pub(super) fn show(found: &[WaitingTrigger]) -> String {
    if found.is_empty() {
        return "no trigger is outstanding".to_owned();
    }
    let rows = found.iter().map(|trigger| {
        [
            trigger.id.clone(),
            trigger.job.clone(),
            // Without the fraction: it is looked for by eye.
            format!("{:.0}", trigger.asked),
            trigger.by.clone(),
            word(trigger.state).to_owned(),
            trigger.why.clone(),
            trigger.params.join(", "),
        ]
    });
    Table::text("ID | JOB | ASKED | BY | STATE | WHY | PARAMS", rows)
}

fn word(state: TriggerState) -> &'static str {
    match state {
        TriggerState::Asked | TriggerState::Accepted => "waiting",
        TriggerState::Withdrawing => "withdrawn",
        TriggerState::Started => "started",
        TriggerState::Ended => "done",
    }
}

fn withdraw(config: &Config, what: &str, all: bool, json: bool) -> Result<(), Failure> {
    let asked = command(config, PATIENCE, |fleet| async move {
        Ok::<_, FleetError>(match all {
            true => fleet.withdraw_all(what, PATIENCE).await?,
            false => Vec::from_iter(fleet.withdraw(what, PATIENCE).await?),
        })
    })?;
    if asked.is_empty() {
        return Err(Failure::Failed(nothing(what, all)));
    }
    if json {
        let shown = asked.iter().map(Trigger::shown);
        print_json(&json!(shown.collect::<Vec<_>>()))?;
    }
    let told = all_told(&asked);
    match (asked.iter().all(is_withdrawn), json) {
        (true, true) => {}
        (true, false) => print(&told),
        (false, true) => return Err(Failure::Told),
        (false, false) => return Err(Failure::Failed(told)),
    }
    Ok(())
}

fn nothing(what: &str, all: bool) -> String {
    match all {
        true => format!("{what} has no trigger that has not started"),
        false => format!(
            "no trigger {what} is outstanding: it has ended or was never asked for; `watchkeeper triggers` \
             lists those that are, `triggers withdraw JOB --all` withdraws all of a job"
        ),
    }
}

fn is_withdrawn(trigger: &Trigger) -> bool {
    match trigger.state {
        TriggerState::Ended => trigger.outcome == "withdrawn",
        state => state == TriggerState::Withdrawing,
    }
}

/// A line for each of them.
pub(super) fn all_told(asked: &[Trigger]) -> String {
    let told = asked.iter().map(|trigger| sentence(&told(trigger)));
    told.collect::<Vec<_>>().join("\n")
}

fn told(trigger: &Trigger) -> String {
    let Trigger {
        job, id, outcome, ..
    } = trigger;
    let why = match trigger.detail.as_str() {
        "" => String::new(),
        detail => format!(": {detail}"),
    };
    match trigger.state {
        TriggerState::Ended if outcome == "withdrawn" => format!("{job} {id} is withdrawn"),
        TriggerState::Ended => {
            format!("{job} {id} is not withdrawn: it has ended meanwhile: {outcome}{why}")
        }
        TriggerState::Started => format!(
            "{job} {id} is not withdrawn: it has started, as run {}{why}",
            trigger.run_id
        ),
        _ => format!(
            "{job} {id} is withdrawn, and no leader has said so yet: the next leader of {job} drops it, unless its start \
             stands in the ledger already"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trigger(state: TriggerState, outcome: &str) -> Trigger {
        Trigger {
            job: "report".to_owned(),
            id: "t".to_owned(),
            run_id: "r".to_owned(),
            state,
            outcome: outcome.to_owned(),
            ..Trigger::default()
        }
    }

    #[test]
    fn a_trigger_that_has_started_is_not_called_withdrawn() {
        let started = trigger(TriggerState::Started, "");
        assert!(!is_withdrawn(&started));
        assert!(told(&started).contains("not withdrawn: it has started, as run r"));
        assert!(!is_withdrawn(&trigger(TriggerState::Ended, "done")));
        assert!(is_withdrawn(&trigger(TriggerState::Ended, "withdrawn")));
        let unheard = trigger(TriggerState::Withdrawing, "");
        assert!(is_withdrawn(&unheard));
        assert!(told(&unheard).contains("no leader has said so yet"));
    }

    #[test]
    fn a_trigger_of_which_shards_have_started_says_how_many() {
        for (state, outcome) in [(TriggerState::Started, ""), (TriggerState::Ended, "done")] {
            let begun = Trigger {
                detail: "1 of 3 shards have started, the others are withdrawn".to_owned(),
                ..trigger(state, outcome)
            };
            assert!(!is_withdrawn(&begun));
            let told = told(&begun);
            assert!(told.contains("is not withdrawn"), "{told}");
            assert!(told.ends_with(": 1 of 3 shards have started, the others are withdrawn"));
        }
    }

    #[test]
    fn what_waits_is_listed_with_its_reason() {
        assert_eq!(show(&[]), "no trigger is outstanding");
        let shown = show(&[WaitingTrigger {
            id: "t".to_owned(),
            job: "report".to_owned(),
            by: "ann@host".to_owned(),
            asked: jiff::Timestamp::UNIX_EPOCH,
            state: TriggerState::Asked,
            why: "the job is disabled, and no replica runs it".to_owned(),
            params: vec!["pages".to_owned()],
            run_id: String::new(),
        }]);
        let row = shown.lines().nth(1).unwrap_or_default();
        assert!(
            row.starts_with("t   report  1970-01-01T00:00:00Z  ann@host  waiting"),
            "{row}"
        );
        assert!(row.ends_with("pages"), "{row}");
    }
}
