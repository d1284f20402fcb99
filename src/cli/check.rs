//! `check`: every problem of the configuration at once, or what would run.

use std::{collections::BTreeMap, process::ExitCode};

use serde_json::json;

use super::{
    failure::{Failure, listed},
    hints::hints,
    jobs::kind,
    output::{print, print_json},
    table::Table,
};
use crate::{
    Worker,
    clock::Clock,
    config::{Backend, Config, Loaded, Problems, Severity, shown_store_file},
    error::Error,
};

/// Jobs that are named in one line.
const MOST_JOBS: usize = 10;

pub(super) fn check(worker: &Worker, offline: bool, json: bool) -> ExitCode {
    let read = match offline {
        true => worker.load(),
        false => worker.load_to_check(),
    };
    let (problems, loaded) = match read {
        Ok(loaded) => (loaded.problems.clone(), Some(loaded)),
        Err(Error::Config(problems)) => (problems, None),
        Err(error) => return Failure::from(error).tell(),
    };
    let hints = loaded.as_ref().map_or_else(Vec::new, |loaded| {
        hints(&loaded.config, Clock::system().wall())
    });
    if json {
        if let Err(failure) = print_json(&as_json(&problems, &hints)) {
            return failure.tell();
        }
    } else {
        // What a check finds is its product: it goes to standard output.
        let mut text = listed(&problems);
        text += &match &loaded {
            Some(loaded) => summary(loaded),
            None => problems.tally(),
        };
        for hint in hints {
            text += &format!("hint: {hint}\n");
        }
        print(&text);
    }
    if loaded.is_some() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(2)
    }
}

fn summary(loaded: &Loaded) -> String {
    let config = &loaded.config;
    let file = match &loaded.file {
        Some(path) => path.display().to_string(),
        None => "no file, defaults".to_owned(),
    };
    let store = match config.locks.backend {
        Backend::Embedded => format!("embedded, {}", shown_store_file(&config.locks)),
        Backend::Memory => "memory, this process alone".to_owned(),
        Backend::Redis => match config.locks.redis.nodes.len() {
            1 => "one Redis master".to_owned(),
            n => format!("{n} Redis masters, {} needed", n / 2 + 1),
        },
        Backend::Postgres => "PostgreSQL".to_owned(),
        Backend::Etcd => "etcd".to_owned(),
    };
    let mut text = format!("ok: {file}; store: {store}");
    if !loaded.problems.is_empty() {
        text += &format!("; {}", loaded.problems.tally());
    }
    text.push('\n');
    if config.jobs.is_empty() {
        return text + "no jobs\n";
    }
    let mut table = Table::new("JOB | KIND | SCHEDULE | COORDINATION");
    for (name, spec) in &config.jobs {
        let schedule = spec.schedule.clone().unwrap_or_default().to_string();
        let kind = kind(spec.kind.as_deref(), spec.shards);
        let coordination = if spec.enabled {
            spec.coordination.to_string()
        } else {
            "disabled".to_owned()
        };
        table.row([name.clone(), kind, schedule, coordination]);
    }
    text + &table.to_string() + &notices(config)
}

/// Which receivers are told of which jobs, a line for each; nothing where there is none.
fn notices(config: &Config) -> String {
    let mut text = String::new();
    let mut by_names: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (name, spec) in config.jobs.iter().filter(|(_, spec)| spec.enabled) {
        let told = config.told_of(spec);
        if !told.is_empty() {
            by_names.entry(told.join(", ")).or_default().push(name);
        }
    }
    for (names, jobs) in by_names {
        let shown = jobs.iter().take(MOST_JOBS).copied().collect::<Vec<_>>();
        let more = match jobs.len().saturating_sub(MOST_JOBS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        text += &format!("notices of {}{more}: {names}\n", shown.join(", "));
    }
    text
}

pub(super) fn as_json(problems: &Problems, hints: &[String]) -> serde_json::Value {
    let problem = |problem: &crate::config::Problem| {
        json!({
            "severity": if problem.severity == Severity::Error { "error" } else { "warning" },
            "key": problem.key,
            "source": problem.source.to_string(),
            "message": problem.message,
            "remedy": problem.remedy,
        })
    };
    let hint = |hint: &String| json!({ "severity": "hint", "key": "jobs", "source": "", "message": hint, "remedy": "" });
    let hints = hints.iter().map(hint);
    problems.iter().map(problem).chain(hints).collect()
}
