//! What is shipped beside the code agrees with it: the README, the book with its configurations and commands, and `deploy/`.
//! Beside that, the direction of imports.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "shipped/commands.rs"]
mod commands;
#[path = "shipped/deploy.rs"]
mod deploy;
#[path = "shipped/first.rs"]
mod first;
#[path = "shipped/layers.rs"]
mod layers;
#[path = "../../tests/it/page.rs"]
mod page;
#[path = "shipped/reference.rs"]
mod reference;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use watchkeeper::{
    Spec, Worker,
    config::{Config, LoadOptions, Loaded, Problems, SYSTEM_PLACE},
};

// === configurations

#[test]
fn every_configuration_in_the_documents_loads() {
    let mut found = BTreeMap::new();
    for (page, text) in documents() {
        for snippet in blocks(&text, "toml") {
            let loaded = load_text(&snippet)
                .unwrap_or_else(|problems| panic!("{page}: {snippet}\n{problems}"));
            let problems = loaded.problems;
            assert!(problems.is_empty(), "{page}: {snippet}\n{problems}");
            assert!(!loaded.config.jobs.is_empty(), "{page}: {snippet}");
            *found.entry(page.clone()).or_insert(0) += 1;
        }
    }
    for (page, least) in [
        ("README.md", 3),
        ("docs/guides/failover-pair.md", 3),
        ("docs/guides/moving-from-cron.md", 2),
        ("docs/guides/moving-from-sidekiq.md", 1),
        ("docs/guides/notifications.md", 1),
        ("docs/guides/programs.md", 2),
        ("docs/guides/scaling-out.md", 1),
    ] {
        assert!(found.get(page) >= Some(&least), "{page}: {found:?}");
    }
}

/// All that is wrong with them is that the first of the files is not there.
#[test]
fn the_settings_of_tls_are_those_of_the_code() {
    let page = read("docs/operations/redis.md");
    let (_, section) = page.split_once("## TLS\n").unwrap();
    let text = blocks(section, "text").remove(0);
    let Err(problems) = load_text(&text) else {
        panic!("no file is there: {text}")
    };
    let keys: Vec<&str> = problems.iter().map(|told| told.key.as_str()).collect();
    assert_eq!(keys, ["locks.redis.tls.ca"], "{problems}");
    assert!(
        problems.to_string().contains("cannot be read"),
        "{problems}"
    );
}

/// In a database with the tables that the pages speak of.
#[test]
fn every_sql_statement_in_the_documents_is_understood() {
    let db = rusqlite::Connection::open_in_memory().unwrap();
    db.execute_batch(
        "CREATE TABLE account (id, balance, fence); CREATE TABLE notifications (id, sent_at);",
    )
    .unwrap();
    let mut tried = 0;
    for (page, text) in documents() {
        for statement in blocks(&text, "sql") {
            db.execute_batch(&statement)
                .unwrap_or_else(|error| panic!("{page}: {statement}\n{error}"));
            tried += 1;
        }
    }
    assert!(tried >= 3, "{tried}");
}

#[test]
fn the_statement_that_books_payments_is_that_of_the_example() {
    let words = |text: &str| {
        text.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let page = read("docs/guides/exactly-once.md");
    let statement = blocks(&page, "text").remove(0);
    let statement = words(statement.trim_end().trim_end_matches(';')).join(" ");
    let example = words(&read("jobs/examples/postings.rs")).join(" ");
    assert!(example.contains(&statement), "{statement}");
}

#[test]
fn the_configuration_of_the_composition_loads() {
    let loaded =
        load_text(&read("deploy/worker.toml")).unwrap_or_else(|problems| panic!("{problems}"));
    // A container is reached from outside of it, which is told wherever it is so.
    let told: Vec<&str> = loaded
        .problems
        .iter()
        .map(|told| told.key.as_str())
        .collect();
    assert_eq!(told, ["admin.listen"], "{}", loaded.problems);
    let nodes = &loaded.config.locks.redis.nodes;
    assert_eq!(nodes.len(), 3);
    // Every node is a service of the composition, and the other way round.
    let compose = read("deploy/compose.yaml");
    let services = services(&compose);
    for node in nodes {
        let host = node
            .expose()
            .trim_start_matches("redis://")
            .trim_end_matches(":6379");
        assert!(
            services.contains(&host.to_owned()),
            "{host} is not in {services:?}"
        );
    }
    let masters = services
        .iter()
        .filter(|name| name.starts_with("redis"))
        .count();
    assert_eq!(masters, nodes.len());
}

// === commands

#[test]
fn every_command_line_that_is_shipped_is_understood() {
    let unit = read("deploy/watchkeeper@.service");
    let compose = read("deploy/compose.yaml");
    let mut lines: Vec<String> = Vec::new();
    for line in unit.lines() {
        if let Some((_, command)) = line
            .split_once("/usr/local/bin/watchkeeper ")
            .filter(|_| line.starts_with("Exec"))
        {
            lines.push(command.to_owned());
        }
    }
    assert_eq!(lines.len(), 1, "ExecStart");
    let list = compose
        .lines()
        .find_map(|line| line.trim().strip_prefix("command: [")?.strip_suffix(']'))
        .unwrap();
    lines.push(list.replace(['"', ','], ""));
    for (_, text) in documents() {
        lines.extend(blocks(&text, "sh").iter().flat_map(|block| {
            let commands = block
                .lines()
                .filter_map(|line| line.trim().strip_prefix("watchkeeper "));
            commands
                .map(|line| line.split(" #").next().unwrap().to_owned())
                .collect::<Vec<_>>()
        }));
        // Times and a user stand before the command.
        lines.extend(blocks(&text, "crontab").iter().flat_map(|block| {
            let commands = block
                .lines()
                .filter_map(|line| line.split_once("/watchkeeper "));
            commands
                .map(|(_, command)| command.to_owned())
                .collect::<Vec<_>>()
        }));
    }
    assert!(lines.len() >= 30, "{lines:?}");
    for line in lines {
        understood(&line);
    }
}

/// Asks for help in place of doing it: an unknown command or flag would be told.
fn understood(line: &str) {
    // What stands after these is the business of another program.
    let line = [" -- ", " || ", " > ", " 2> "]
        .iter()
        .fold(line, |line, end| line.split(end).next().unwrap());
    let said = Command::new(env!("CARGO_BIN_EXE_watchkeeper"))
        .args(line.split_whitespace())
        .arg("--help")
        .output()
        .unwrap();
    assert!(
        said.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&said.stderr)
    );
    // Help is given whatever stands before it, so look that each flag is one of its own.
    let help = String::from_utf8_lossy(&said.stdout);
    for flag in line
        .split_whitespace()
        .filter(|word| word.starts_with("--"))
    {
        assert!(help.contains(flag), "{line}: there is no {flag}");
    }
}

#[test]
fn unit_and_composition_keep_the_configuration_where_it_is_looked_for() {
    let unit = read("deploy/watchkeeper@.service");
    let named = unit
        .split_whitespace()
        .filter(|word| word.starts_with("/etc/"));
    let named: Vec<&str> = named.filter(|word| word.ends_with(".toml")).collect();
    assert!(
        named.len() >= 2,
        "how to install it, and the command: {named:?}"
    );
    assert!(named.iter().all(|word| *word == SYSTEM_PLACE), "{named:?}");
    let compose = read("deploy/compose.yaml");
    assert!(compose.contains(&format!("./worker.toml:{SYSTEM_PLACE}:ro")));
    assert!(compose.contains(&format!("\"--config\", \"{SYSTEM_PLACE}\"")));
    // The memory of a worker holds passwords.
    assert!(unit.lines().any(|line| line == "LimitCORE=0"));
    // Without an argument the image runs what stands there.
    assert!(read("deploy/Dockerfile").ends_with("CMD [\"run\"]\n"));
    let places = LoadOptions::from_process().places;
    assert_eq!(places.last().unwrap(), Path::new(SYSTEM_PLACE));
    let page = read("docs/reference/configuration.md");
    for place in places {
        assert!(
            page.contains(&format!("`{}`", place.display())),
            "{place:?}"
        );
    }
}

#[test]
fn time_to_stop_is_the_drain_timeout_and_a_grace_and_ten_seconds() {
    let drain = Config::default().worker.drain_timeout + Spec::on("manual").grace;
    let drain = drain.as_secs();
    let stop = format!("TimeoutStopSec={}s", drain + 10);
    assert!(
        read("deploy/watchkeeper@.service")
            .lines()
            .any(|line| line == stop),
        "{stop}"
    );
    let stop = format!("stop_grace_period: {}s", drain + 10);
    assert!(
        read("deploy/compose.yaml")
            .lines()
            .any(|line| line.trim() == stop),
        "{stop}"
    );
}

#[test]
fn files_that_are_named_exist() {
    for file in ["tests/run", ".ci/run", "CHANGELOG.md", "deploy/Dockerfile"] {
        assert!(root().join(file).exists(), "{file}");
    }
}

/// Whatever is built or started says its version, and says it in one place.
#[test]
fn images_are_named_by_version_in_one_place() {
    let dockerfile = read("deploy/Dockerfile");
    let mut named = BTreeMap::new();
    for line in dockerfile.lines() {
        if let Some((name, image)) = line
            .strip_prefix("ARG ")
            .and_then(|line| line.split_once('='))
        {
            let (_, tag) = image.split_once(':').unwrap_or_else(|| panic!("{line}"));
            let version = tag.split('-').next().unwrap();
            let version = version.strip_prefix('v').unwrap_or(version);
            let exact = version.split('.').all(|part| part.parse::<u32>().is_ok());
            assert!(exact && version.contains('.'), "{line}: no version");
            named.insert(format!("${{{name}}}"), image.to_owned());
        }
    }
    assert_eq!(named.len(), 5, "{named:?}");
    let from: Vec<&str> = dockerfile
        .lines()
        .filter_map(|line| line.strip_prefix("FROM "))
        .collect();
    let stages: Vec<&str> = from
        .iter()
        .map(|line| line.split_once(" AS ").unwrap().1)
        .collect();
    for line in &from {
        let image = line.split(' ').next().unwrap();
        assert!(named.contains_key(image), "{line}");
    }
    for copied in dockerfile
        .split("--from=")
        .skip(1)
        .map(|rest| rest.split(' ').next().unwrap())
    {
        assert!(stages.contains(&copied), "{copied}");
    }
    // What is started is built here, so that no version stands there.
    let compose = read("deploy/compose.yaml");
    let field = |name: &str| -> Vec<String> {
        let found = compose
            .lines()
            .filter_map(|line| line.trim().strip_prefix(name));
        found.map(|value| value.trim().to_owned()).collect()
    };
    let (images, targets) = (field("image:"), field("target:"));
    assert_eq!(images.len(), targets.len(), "{images:?}, {targets:?}");
    assert!(
        images.iter().all(|image| image.ends_with(":local")),
        "{images:?}"
    );
    for target in targets {
        assert!(stages.contains(&&*target), "{target}");
    }
    for (file, text) in deploy::files() {
        assert!(!text.contains(":latest"), "{file}");
    }
}

// === reading

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The README and every page of the book, each with its path.
fn documents() -> BTreeMap<String, String> {
    let mut found = BTreeMap::from([("README.md".to_owned(), read("README.md"))]);
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap().flatten() {
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.path().is_dir() {
                folders.push(name);
            } else if name.ends_with(".md") {
                found.insert(name.clone(), read(&name));
            }
        }
    }
    found
}

fn load_text(text: &str) -> Result<Loaded, Problems> {
    load_with(text, Vec::new())
}

/// A file with this text, and these variables.
fn load_with(text: &str, env: Vec<(String, String)>) -> Result<Loaded, Problems> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("watchkeeper.toml"), text).unwrap();
    let options = LoadOptions {
        root: folder.path().to_owned(),
        env,
        ..LoadOptions::default()
    };
    match watchkeeper_jobs::add_to(Worker::with(options)).load() {
        Ok(loaded) => Ok(loaded),
        Err(watchkeeper::Error::Config(problems)) => Err(problems),
        Err(other) => panic!("{other}"),
    }
}

/// Code blocks of one language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let opening = format!("```{language}\n");
    let found = text.split(&opening).skip(1);
    found
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect()
}

/// The names below `services:`.
fn services(compose: &str) -> Vec<String> {
    let lines = compose
        .lines()
        .skip_while(|line| *line != "services:")
        .skip(1);
    let lines = lines.take_while(|line| line.is_empty() || line.starts_with(' '));
    let names = lines.filter(|line| line.starts_with("  ") && !line[2..].starts_with(' '));
    names
        .filter_map(|line| Some(line.trim().strip_suffix(':')?.to_owned()))
        .collect()
}
