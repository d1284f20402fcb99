//! `doctor`: looks for faults, and says what to do about each.
//!
//! Facts are gathered here; what they mean is decided by plain functions: [`nodes`] (one node, and all of them
//! together) and [`fleet`] (replicas, jobs, locks). A new kind of fact adds its findings there.

mod admission;
mod bootstrap;
pub(super) mod finding;
mod fleet;
mod guarded;
mod ledgers;
mod nodes;
mod probe;
mod reconfigure;
mod wait;

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::{
    ask::{Limits, ask, nobody_was_here, note_default, on_a_runtime, place},
    failure::Failure,
    output::print_painted,
    store_args::StoreArgs,
};
use crate::{
    Worker,
    clock::Clock,
    config::{self, Backend, Config, Problems, load_without_jobs},
    error::Error,
    worker::store,
};
use finding::{Finding, Severity, show};
use probe::NodeState;
#[cfg(test)]
pub(super) use {fleet::judge, ledgers::ahead};

/// `watchkeeper doctor`
#[derive(Clone, Debug, Default, Args)]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Wait until every node votes and every lease has its margin back: between the restarts of two nodes
    #[arg(long, group = "deed", conflicts_with = "json")]
    pub wait_admitted: bool,
    /// Give up after this long
    #[arg(long, value_name = "D", requires = "wait_admitted", value_parser = crate::human::duration::parse)]
    pub timeout: Option<Duration>,
    /// Let new nodes vote at once: all of them must be new, and nothing may run
    #[arg(long, group = "deed", conflicts_with = "json")]
    pub bootstrap: bool,
    /// Take the vote from nodes that keep locks for the configuration before: nothing may run
    #[arg(long, group = "deed", conflicts_with = "json")]
    pub reconfigure: bool,
    /// Which store.
    #[command(flatten)]
    pub place: StoreArgs,
}

pub(super) fn doctor(mut worker: Worker, args: &DoctorArgs) -> Result<(), Failure> {
    worker.options.flags.extend(args.place.flags());
    let orders = args.wait_admitted || args.bootstrap || args.reconfigure;
    let loaded = if args.place.is_named() {
        load_without_jobs(&worker.options).map_err(Error::Config)
    } else if orders {
        worker.load_to_ask()
    } else {
        worker.load()
    };
    if let Ok(loaded) = &loaded {
        note_default(loaded);
    }
    if orders {
        let config = loaded?.config;
        return if args.wait_admitted {
            wait::wait(&config, args.timeout)
        } else if args.bootstrap {
            bootstrap::bootstrap(&config)
        } else {
            reconfigure::reconfigure(&config)
        };
    }
    let (mut findings, states) = match loaded {
        Ok(loaded) => {
            let mut findings = configuration(&loaded.problems);
            let (more, states) = examine(&loaded.config)?;
            findings.extend(more);
            (findings, states)
        }
        // Nothing else can be asked without one.
        Err(Error::Config(problems)) => (configuration(&problems), Vec::new()),
        Err(other) => return Err(other.into()),
    };
    // The worst first; within one severity as they were found.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    let answer = json!({ "findings": findings, "nodes": states });
    print_painted(args.json, &answer, |paint| show(&findings, paint))?;
    if findings.iter().any(|f| f.severity == Severity::Error) {
        return Err(Failure::Told);
    }
    Ok(())
}

/// What the rules say of the configuration.
fn configuration(problems: &Problems) -> Vec<Finding> {
    let found = problems.iter().map(|problem| {
        let subject = match &problem.key {
            key if key.is_empty() => "configuration",
            key => key,
        };
        let finding = format!("{} ({})", problem.message, problem.source);
        match problem.severity {
            config::Severity::Error => Finding::error(subject, finding, &problem.remedy),
            config::Severity::Warning => Finding::warning(subject, finding, &problem.remedy),
        }
    });
    found.collect()
}

fn examine(config: &Config) -> Result<(Vec<Finding>, Vec<NodeState>), Failure> {
    if nobody_was_here(config) {
        let found = match config.locks.backend {
            Backend::Memory => Finding::ok(
                "memory",
                "each process has a store of its own; there is nothing to look at from outside",
            ),
            _ => Finding::ok(
                &config::shown_store_file(&config.locks),
                "there is no store yet: the first worker makes it",
            ),
        };
        return Ok((vec![found], Vec::new()));
    }
    let states = match look_at_nodes(config) {
        Ok(states) => states,
        Err(Failure::Failed(why)) => {
            let subject = place(config);
            let found = Finding::error(&subject, why, "every worker meets the same; see above");
            return Ok((vec![found], Vec::new()));
        }
        Err(other) => return Err(other),
    };
    let mut findings = nodes::judge(&states, &nodes::Limits::of(config));
    let up = states.iter().filter(|state| state.up).count();
    let written = |state: &&NodeState| state.up && state.write_error.is_none();
    let writes = states.iter().filter(written).count() > states.len() / 2;
    if up > states.len() / 2 {
        // It connects anew, and one connection may take longer than one call.
        let limits = Limits::reached(probe::to_reach(config.locks.backend), probe::PATIENCE);
        let seen = ask(config, limits, |fleet| async move { fleet.examine().await });
        findings.extend(match seen {
            Ok(seen) => {
                let mut found = admission::judge(&seen.admissions);
                found.extend(fleet::judge(&seen.status, &seen.locks));
                if !writes {
                    fleet::nothing_is_written(&mut found);
                }
                found.extend(ledgers::ahead(&seen.locks, seen.now, seen.skew));
                found
            }
            Err(Failure::Failed(why)) => vec![fleet::unseen(&why)],
            Err(other) => return Err(other),
        });
    }
    Ok((findings, states))
}

fn look_at_nodes(config: &Config) -> Result<Vec<NodeState>, Failure> {
    on_a_runtime(async {
        let clock = Clock::system();
        let nodes = store::nodes(&config.locks, &config.worker.namespace, &clock)?;
        let to_reach = probe::to_reach(config.locks.backend);
        let asked = nodes
            .iter()
            .map(|node| probe::look(&**node, &clock, to_reach));
        Ok(futures_util::future::join_all(asked).await)
    })
}

#[cfg(all(test, feature = "redis"))]
mod tests {
    use super::*;
    use crate::config::{Flag, LoadOptions};

    #[test]
    fn what_gives_up_a_promise_is_a_warning_with_its_remedy() {
        let said = |key: &str, value: &str| {
            let flag = |key: &str, value: &str| Flag {
                name: "test".into(),
                key: key.into(),
                value: value.into(),
            };
            let options = LoadOptions {
                flags: vec![
                    flag("locks.backend", "redis"),
                    flag("locks.redis.nodes", "redis://a"),
                    flag(key, value),
                ],
                root: "/nowhere".into(),
                ..LoadOptions::default()
            };
            configuration(&load_without_jobs(&options).unwrap().problems)
        };
        for (key, value) in [("locks.restart_guard", "off"), ("locks.expiry", "server")] {
            let found = said(key, value);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(
                (found[0].severity, &*found[0].subject),
                (Severity::Warning, key)
            );
            assert!(found[0].finding.contains("two may hold one lock"));
            assert!(found[0].has_its_remedy(), "{found:?}");
        }
        assert_eq!(said("locks.restart_guard", "call"), []);
    }
}
