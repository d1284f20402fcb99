//! What is shipped beside the code agrees with it: the README, its configurations and tables, and `deploy/`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

#[path = "shipped/first.rs"]
mod first;
#[path = "../../tests/it/page.rs"]
mod page;
#[path = "shipped/reference.rs"]
mod reference;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use serde_json::Value;
use watchkeeper::config::{
    Config, LoadOptions, Loaded, ParamProblem, Problems, SYSTEM_PLACE, Spec, load,
};
use watchkeeper_jobs::{KINDS, check_params};

// === configurations

#[test]
fn every_configuration_in_the_readme_loads() {
    let snippets = blocks(&read("README.md"), "toml");
    assert_eq!(snippets.len(), 5, "failover, scaled, batch, exec, http");
    for snippet in snippets {
        let loaded = load_text(&snippet).unwrap_or_else(|problems| panic!("{snippet}\n{problems}"));
        assert!(loaded.problems.is_empty(), "{snippet}\n{}", loaded.problems);
        assert!(!loaded.config.jobs.is_empty(), "{snippet}");
    }
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
    assert_eq!(nodes.len(), 5);
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

#[test]
fn the_configuration_table_is_that_of_the_code() {
    let readme = read("README.md");
    let rows = table(&readme, "| key | default | meaning |");
    let mut shown: BTreeMap<String, String> = BTreeMap::new();
    for row in &rows {
        let before = shown.insert(bare(&row[0]), bare(&row[1]));
        assert!(before.is_none(), "{} stands there twice", row[0]);
        assert!(!row[2].is_empty(), "{} has no meaning", row[0]);
    }
    let expected = defaults();
    for (key, default) in &expected {
        assert_eq!(shown.get(key), Some(default), "{key}");
    }
    let unknown: Vec<_> = shown
        .keys()
        .filter(|key| !expected.contains_key(*key))
        .collect();
    assert!(unknown.is_empty(), "no such keys: {unknown:?}");
}

#[test]
fn the_metrics_table_is_that_of_the_code() {
    let readme = read("README.md");
    let rows = table(&readme, "| name | labels | meaning |");
    let mut shown: Vec<String> = rows.iter().map(|row| stem(&bare(&row[0]))).collect();
    let source = read("src/telemetry/metrics/families.rs");
    let mut registered: Vec<String> = source
        .split('"')
        .filter(|text| text.starts_with("watchkeeper_") || text.starts_with("distributed_lock_"))
        .map(stem)
        .collect();
    shown.sort();
    registered.sort();
    assert_eq!(shown, registered);
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
    assert_eq!(lines.len(), 2, "ExecStartPre and ExecStart");
    let list = compose
        .lines()
        .find_map(|line| line.trim().strip_prefix("command: [")?.strip_suffix(']'))
        .unwrap();
    lines.push(list.replace(['"', ','], ""));
    for text in [read("README.md"), unit.clone()] {
        lines.extend(blocks(&text, "sh").iter().flat_map(|block| {
            let commands = block
                .lines()
                .filter_map(|line| line.strip_prefix("watchkeeper "));
            commands
                .map(|line| line.split(" #").next().unwrap().to_owned())
                .collect::<Vec<_>>()
        }));
    }
    assert!(lines.len() >= 7, "{lines:?}");
    for line in lines {
        understood(&line);
    }
}

/// Asks for help in place of doing it: an unknown command or flag would be told.
fn understood(line: &str) {
    // What stands after `--` is the business of another program.
    let line = line.split(" -- ").next().unwrap();
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
        named.len() >= 3,
        "how to install it, and two commands: {named:?}"
    );
    assert!(named.iter().all(|word| *word == SYSTEM_PLACE), "{named:?}");
    let compose = read("deploy/compose.yaml");
    assert!(compose.contains(&format!("./worker.toml:{SYSTEM_PLACE}:ro")));
    assert!(compose.contains(&format!("\"--config\", \"{SYSTEM_PLACE}\"")));
    // Without an argument the image runs what stands there.
    assert!(read("deploy/Dockerfile").ends_with("CMD [\"run\"]\n"));
    let places = LoadOptions::from_process().places;
    assert_eq!(places.last().unwrap(), Path::new(SYSTEM_PLACE));
    let readme = read("README.md");
    for place in places {
        assert!(
            readme.contains(&format!("`{}`", place.display())),
            "{place:?}"
        );
    }
}

#[test]
fn time_to_stop_is_the_drain_timeout_and_ten_seconds() {
    let drain = Config::default().worker.drain_timeout.as_secs();
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

/// Files and headings: a link within a page that leads nowhere is as broken as one to a page that is not there.
#[test]
fn links_of_the_documents_lead_somewhere() {
    let mut links = 0;
    for name in ["README.md", "CHANGELOG.md", "benches/README.md"] {
        let text = read(name);
        for (at, _) in text.match_indices("](") {
            let link = text[at + 2..].split(')').next().unwrap();
            if link.starts_with("http") {
                continue;
            }
            links += 1;
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let here = root().join(name);
            let target = match file {
                "" => here,
                file => here.parent().unwrap().join(file),
            };
            assert!(target.exists(), "{name}: {link}");
            if !heading.is_empty() {
                let headings = headings(&fs::read_to_string(&target).unwrap());
                assert!(headings.iter().any(|h| h == heading), "{name}: {link}");
            }
        }
    }
    assert!(links > 8, "{links}");
}

/// The headings of a page, as links name them.
fn headings(text: &str) -> Vec<String> {
    let prose = text.split("```").step_by(2);
    let lines = prose.flat_map(str::lines);
    let titles = lines.filter_map(|line| {
        line.trim_start_matches('#')
            .strip_prefix(' ')
            .filter(|_| line.starts_with('#'))
    });
    let letter = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c.to_ascii_lowercase()),
        _ => None,
    };
    titles
        .map(|title| title.trim().chars().filter_map(letter).collect())
        .collect()
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
            let exact = version.split('.').all(|part| part.parse::<u32>().is_ok());
            assert!(exact && version.contains('.'), "{line}: no version");
            named.insert(format!("${{{name}}}"), image.to_owned());
        }
    }
    assert_eq!(named.len(), 3, "{named:?}");
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
    for file in fs::read_dir(root().join("deploy")).unwrap() {
        let path = file.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains(":latest"), "{}", path.display());
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

fn load_text(text: &str) -> Result<Loaded, Problems> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("watchkeeper.toml"), text).unwrap();
    let check = |kind: &str, params: &Value| {
        let found = check_params(kind, params).into_iter();
        let problem = |(key, message)| ParamProblem {
            key,
            message,
            remedy: String::new(),
        };
        found.map(problem).collect()
    };
    load(&LoadOptions {
        root: folder.path().to_owned(),
        kinds: KINDS.map(str::to_owned).to_vec(),
        check_params: Some(Arc::new(check)),
        ..LoadOptions::default()
    })
}

/// Code blocks of one language.
fn blocks(text: &str, language: &str) -> Vec<String> {
    let opening = format!("```{language}\n");
    let found = text.split(&opening).skip(1);
    found
        .map(|rest| rest.split("```").next().unwrap().to_owned())
        .collect()
}

/// The rows below a header, cell by cell.
fn table(text: &str, header: &str) -> Vec<Vec<String>> {
    let rows = text.lines().skip_while(|line| *line != header).skip(2);
    let rows: Vec<Vec<String>> = rows
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            line.split('|')
                .skip(1)
                .map(|cell| cell.trim().to_owned())
                .collect()
        })
        .collect();
    assert!(rows.len() > 10, "{header}");
    rows
}

fn bare(cell: &str) -> String {
    cell.trim_matches('`').to_owned()
}

/// A metric's name as it is registered: the encoder adds unit and kind.
fn stem(name: &str) -> String {
    let mut stem = name;
    for ending in ["_total", "_info", "_seconds"] {
        stem = stem.strip_suffix(ending).unwrap_or(stem);
    }
    stem.to_owned()
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

/// Every key with its default, written as in the table.
fn defaults() -> BTreeMap<String, String> {
    fn walk(key: String, value: &Value, found: &mut BTreeMap<String, String>) {
        match value {
            Value::Object(table) if !key.ends_with(".params") => {
                for (inner, value) in table {
                    let dot = if key.is_empty() { "" } else { "." };
                    walk(format!("{key}{dot}{inner}"), value, found);
                }
            }
            Value::Null => drop(found.insert(key, "none".to_owned())),
            value => drop(found.insert(key, value.to_string())),
        }
    }
    let mut config = Config::default();
    config.jobs.insert("NAME".to_owned(), Spec::default());
    let mut found = BTreeMap::new();
    walk(
        String::new(),
        &serde_json::to_value(&config).unwrap(),
        &mut found,
    );
    found
}
