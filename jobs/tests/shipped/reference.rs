//! What the book says of keys and commands is what the command `watchkeeper` says of them. Costs about two seconds: the
//! command is run some eighty times.

use std::{collections::BTreeMap, env, fs, process::Command};

use serde_json::Value;

use crate::page::{made, read, root, table};

const COMMAND: &str = "cargo test -p watchkeeper-jobs --test shipped reference";

// === configuration ===

/// A key of the default file: its section, its name, and what is written above it.
struct Key {
    section: String,
    name: String,
    meaning: String,
}

#[test]
fn the_keys_of_the_configuration_are_those_of_the_code() {
    let keys = keys(&fs::read_to_string(root().join("config/default.toml")).unwrap());
    let defaults = defaults();
    let types = types(&keys);
    let mut text = String::new();
    let mut rows = Vec::new();
    for (i, key) in keys.iter().enumerate() {
        let full = format!("{}.{}", key.section, key.name);
        assert!(
            !key.meaning.is_empty(),
            "config/default.toml says nothing of {full}"
        );
        let default = match defaults.get(&full).map(String::as_str) {
            None | Some("\"heartbeat\"" | "\"@daily\"") => "none".to_owned(),
            Some(value) => format!("`{value}`"),
        };
        let kind = types.get(&full).cloned().unwrap_or_default();
        rows.push(vec![
            format!("`{full}`"),
            kind,
            default,
            escaped(&key.meaning),
        ]);
        if keys
            .get(i + 1)
            .is_none_or(|next| next.section != key.section)
        {
            let header = ["Key", "Type", "Default", "Meaning"];
            text += &format!("### `[{}]`\n\n{}\n", key.section, table(&header, &rows));
            rows.clear();
        }
    }
    made("reference/configuration.md", "keys", &text, COMMAND);
    let known = |key: &&String| {
        keys.iter()
            .any(|known| **key == format!("{}.{}", known.section, known.name))
    };
    assert!(
        defaults.keys().all(|key| known(&key)),
        "{:?}",
        defaults.keys()
    );
}

/// The keys of the default file, which a test of the library holds to be all there are, with their defaults.
fn keys(text: &str) -> Vec<Key> {
    let (mut section, mut meaning) = (String::new(), String::new());
    let mut found = Vec::new();
    for line in text.lines() {
        let inner = line.trim_start_matches(['#', ' ']);
        let header = inner
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'));
        let key = inner
            .split_once(" = ")
            .filter(|(key, _)| !key.contains(' '));
        if let Some(name) = header {
            section = name.to_owned();
            meaning.clear();
        } else if let Some((name, _)) = key {
            found.push(Key {
                section: section.clone(),
                name: name.to_owned(),
                meaning: std::mem::take(&mut meaning),
            });
        } else if line.is_empty() {
            meaning.clear();
        } else {
            let space = if meaning.is_empty() { "" } else { " " };
            meaning += &format!("{space}{inner}");
        }
    }
    found
}

/// What is in effect where nothing is set, as `config` prints it.
fn defaults() -> BTreeMap<String, String> {
    let text = run(
        &["config"],
        "[jobs.a]\nkind = \"heartbeat\"\nschedule = \"@daily\"\n",
    );
    let mut found = BTreeMap::from([("jobs.NAME.params".to_owned(), "{}".to_owned())]);
    let mut section = String::new();
    let mut retry = Vec::new();
    for line in text.lines() {
        if let Some(name) = line
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            section = name.replace("jobs.a", "jobs.NAME");
        } else if let Some((key, value)) = line.split_once(" = ") {
            match section.as_str() {
                "jobs.NAME.retry" => retry.push(line.to_owned()),
                _ => drop(found.insert(format!("{section}.{key}"), value.to_owned())),
            }
        }
    }
    found.insert(
        "jobs.NAME.retry".to_owned(),
        format!("{{ {} }}", retry.join(", ")),
    );
    found
}

/// What fits each key, as `check` says when something else stands there.
fn types(keys: &[Key]) -> BTreeMap<String, String> {
    let mut text = String::new();
    let mut section = "";
    for key in keys {
        if key.section != section {
            section = &key.section;
            text += &format!("[{}]\n", section.replace("NAME", "a"));
        }
        // A table with a key that no table has; what may be one wants something else.
        let wrong = match key.name.as_str() {
            "retry" | "params" => "\"no\"",
            _ => "{ no = 1 }",
        };
        text += &format!("{} = {wrong}\n", key.name);
    }
    let mut found = BTreeMap::new();
    for problem in check(&text) {
        let message = text_of(&problem, "message");
        let wanted = message
            .split_once(" is not ")
            .or(message.split_once("this must be "));
        let wanted = wanted.unwrap_or_else(|| panic!("{message}")).1;
        let kind = match wanted {
            "a text in quotes" => "text".to_owned(),
            "a text in quotes or a list of them" => "text or list of texts".to_owned(),
            "a list" => "list of texts".to_owned(),
            wanted if wanted.starts_with("a duration") => "duration".to_owned(),
            wanted => match wanted.strip_prefix("one of ") {
                Some(choices) => {
                    let choices = choices.split("; ").next().unwrap_or_default();
                    let choices = choices.split(", ").map(|choice| format!("`\"{choice}\"`"));
                    choices.collect::<Vec<_>>().join(", ")
                }
                None => wanted.trim_start_matches("a ").to_owned(),
            },
        };
        // A name of Rust says nothing to the author of a file.
        assert!(!kind.ends_with(|c: char| c.is_ascii_digit()), "{message}");
        found.insert(
            text_of(&problem, "key")
                .replace("jobs.a.", "jobs.NAME.")
                .replace("notices.a.", "notices.NAME."),
            kind,
        );
    }
    assert_eq!(found.len(), keys.len(), "{found:?}");
    found
}

/// Rules over several keys, each broken by a file. `J` stands for the head of a job.
const RULES: &[&str] = &[
    "locks.ttl = \"40s\"",
    "locks.ttl = \"0s\"",
    "locks.ttl = \"500ms\"\nlocks.backend = \"redis\"\nlocks.redis.nodes = [\"redis://a\"]",
    "locks.ttl = \"300ms\"",
    "locks.min_validity = \"2s\"",
    "locks.min_validity = \"10s\"",
    "locks.drift = 0.7",
    "locks.retention = \"10s\"",
    "locks.backend = \"redis\"",
    "locks.backend = \"redis\"\nlocks.redis.nodes = [\"redis://a\", \"redis://b\"]",
    "locks.backend = \"redis\"\nlocks.redis.nodes = [\"redis://a\", \"redis://a/1\"]",
    "locks.backend = \"redis\"\nlocks.redis.nodes = [\"redis://a\"]\nlocks.restart_guard = \"off\"",
    "locks.backend = \"redis\"\nlocks.redis.nodes = [\"redis://a\"]\nlocks.expiry = \"server\"",
    "worker.namespace = \"a/b\"",
    "worker.threads = 0",
    "worker.notify = [\"ops\"]",
    "notices.ops.kind = \"webhook\"",
    "notices.ops = { kind = \"ping\", url = \"http://example.org/key\" }",
    "admin.token = \"short\"",
    "admin.listen = \"0.0.0.0:8787\"",
    "admin.hosts = [\"https://example.org\"]",
    "J jitter = \"1h\"\nschedule = \"@every 1h\"",
    "J misfire_limit = 0",
    "J shards = 10001",
    "J shards = 4\ncoordination = \"everywhere\"",
    "J timeout = \"0s\"",
    "J retry = 0",
    "J retry = { backoff = \"2m\" }",
    "J max_term = \"5s\"",
    "J min_term = \"48h\"",
    "J grace = \"1m\"",
    "J unstoppable = \"abandon\"",
    "J concurrency = 17",
    "J overlap = \"allow\"\nconcurrency = 1",
    "J overlap = \"queue\"\nschedule = \"continuous\"",
    "J coordination = \"batch\"",
    "J coordination = \"tick\"\nschedule = \"continuous\"",
    "J coordination = \"tick\"\noverlap = \"cancel-previous\"",
    "J coordination = \"everywhere\"\nschedule = \"manual\"",
    "J coordination = \"everywhere\"\nttl = \"5s\"",
    "J coordination = \"tick\"\nmax_term = \"1h\"",
    "J retry = { attempts = 1, backoff = \"2s\" }",
    "J misfire_limit = 3",
    "J misfire = \"skip\"\nmisfire_window = \"1h\"",
    "J schedule = \"continuous\"\nzone = \"Europe/Rome\"",
    "J schedule = \"@every 1h\"\nzone = \"Europe/Rome\"",
    "J progress_deadline = \"1m\"",
    "J schedule = \"0 0 8 * * 1\"",
    "J until = \"2020-01-01\"",
];

#[test]
fn the_rules_of_the_configuration_are_those_of_the_code() {
    let mut rows = Vec::new();
    for rule in RULES {
        let (text, shown) = match rule.strip_prefix("J ") {
            Some(keys) => {
                let schedule = if keys.contains("schedule =") {
                    ""
                } else {
                    "schedule = \"@hourly\"\n"
                };
                (
                    format!("[jobs.a]\nkind = \"heartbeat\"\n{schedule}{keys}\n"),
                    keys,
                )
            }
            None => (format!("{rule}\n"), *rule),
        };
        let found = check(&text);
        let found: Vec<&Value> = found.iter().filter(|p| p["severity"] != "hint").collect();
        assert!(!found.is_empty(), "{rule} breaks no rule");
        for problem in found {
            rows.push(vec![
                shown
                    .split('\n')
                    .map(|line| format!("`{line}`"))
                    .collect::<Vec<_>>()
                    .join("<br>"),
                text_of(problem, "severity"),
                format!(
                    "{}: {}",
                    text_of(problem, "key").replace("jobs.a", "jobs.NAME"),
                    text_of(problem, "message")
                ),
                text_of(problem, "remedy"),
            ]);
        }
    }
    let header = ["Written", "Severity", "What `check` says", "Remedy"];
    made(
        "reference/configuration.md",
        "rules",
        &table(&header, &rows),
        COMMAND,
    );
}

/// The parameters of each stock job: what the page lists is what the job takes.
#[test]
fn the_parameters_of_stock_jobs_are_those_of_the_code() {
    let page = read("reference/configuration.md");
    let unknown = check("[jobs.a]\nkind = \"none\"\nschedule = \"@daily\"\n");
    let told = unknown.iter().map(|problem| text_of(problem, "remedy"));
    let mut kinds = told.filter_map(|text| Some(text.split_once("known kinds: ")?.1.to_owned()));
    let kinds = kinds.next_back().unwrap();
    for kind in kinds.split(", ") {
        let text = format!(
            "[jobs.a]\nkind = \"{kind}\"\nschedule = \"@daily\"\nparams = {{ no_such = 1 }}\n"
        );
        let found = check(&text);
        let problem = found.iter().find(|p| p["key"] == "jobs.a.params.no_such");
        let message = text_of(
            problem.unwrap_or_else(|| panic!("{kind}: {found:?}")),
            "message",
        );
        let (_, known) = message
            .split_once(", expected ")
            .unwrap_or_else(|| panic!("{message}"));
        let mut known: Vec<&str> = known.split('`').skip(1).step_by(2).collect();
        let chapter = page
            .split_once(&format!("### The job `{kind}`\n"))
            .unwrap()
            .1;
        let chapter = chapter.split("\n### ").next().unwrap();
        let rows = chapter.lines().filter_map(|line| line.strip_prefix("| `"));
        let listed = rows.map(|row| row.split('`').next().unwrap_or_default());
        // What has a dot is a part of a parameter.
        let mut listed: Vec<&str> = listed.filter(|key| !key.contains('.')).collect();
        known.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, known, "{kind}");
    }
}

// === commands ===

#[test]
fn the_commands_are_those_of_the_code() {
    let mut text = String::new();
    commands(&[], &mut text);
    made("reference/commands.md", "commands", &text, COMMAND);
}

/// The commands below `path`, each with its help.
fn commands(path: &[&str], text: &mut String) {
    let mut words = path.to_vec();
    words.push("--help");
    let help = run(&words, "");
    let (about, rest) = help.split_once("Usage: ").unwrap();
    if !path.is_empty() {
        *text += &format!("### `watchkeeper {}`\n\n", path.join(" "));
        let paragraphs = about.trim().split("\n\n").map(joined);
        *text += &format!("{}\n\n", paragraphs.collect::<Vec<_>>().join("\n\n"));
        let usage = rest.split("\n\n").next().unwrap();
        let usage: Vec<&str> = usage.lines().map(str::trim).collect();
        *text += &format!("```text\n{}\n```\n\n", usage.join("\n"));
        let rows = arguments(rest);
        if !rows.is_empty() {
            *text += &format!("{}\n", table(&["Argument or option", "Meaning"], &rows));
        }
    }
    let Some((_, list)) = rest.split_once("Commands:\n") else {
        return;
    };
    let list = list.split("\n\n").next().unwrap();
    let names = list.lines().filter_map(|line| line.strip_prefix("  "));
    let names = names.filter(|line| !line.starts_with(' '));
    for name in names.map(|line| line.split(' ').next().unwrap()) {
        if name != "help" {
            let mut inner = path.to_vec();
            inner.push(name);
            commands(&inner, text);
        }
    }
}

/// Arguments and options with their meaning; those that every command has are told once on the page.
fn arguments(help: &str) -> Vec<Vec<String>> {
    let mut rows: Vec<(String, String)> = Vec::new();
    let mut inside = false;
    for line in help.lines() {
        let indent = line.len() - line.trim_start().len();
        let line = line.trim();
        if indent == 0 && !line.is_empty() {
            inside = line == "Arguments:" || line == "Options:";
        } else if inside && !line.is_empty() && indent < 10 {
            // Where everything is short, meanings stand beside what they explain.
            let (name, meaning) = line.split_once("  ").unwrap_or((line, ""));
            rows.push((name.to_owned(), meaning.trim().to_owned()));
        } else if inside && !line.is_empty() {
            let (_, meaning) = rows.last_mut().unwrap();
            *meaning += if meaning.is_empty() { "" } else { " " };
            *meaning += line;
        }
    }
    const COMMON: [&str; 3] = ["-c, --config", "--color", "-h, --help"];
    let common = |name: &str| COMMON.iter().any(|option| name.starts_with(option));
    let rows = rows.into_iter().filter(|(name, _)| !common(name));
    rows.map(|(name, meaning)| vec![format!("`{name}`"), escaped(&meaning)])
        .collect()
}

fn joined(paragraph: &str) -> String {
    escaped(&paragraph.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Angle brackets are no markup here.
fn escaped(text: &str) -> String {
    text.replace('<', "&lt;").replace(
        "redis://[user:password@]host[:port][/db]",
        "`redis://[user:password@]host[:port][/db]`",
    )
}

// === asking ===

/// Standard output of the command in a folder with this configuration.
fn run(args: &[&str], configuration: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("watchkeeper.toml"), configuration).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_watchkeeper"));
    // What is in the environment of the test is no default, and the width of its terminal none of the page's business.
    for (name, _) in
        env::vars().filter(|(name, _)| name.starts_with("WATCHKEEPER_") || name == "COLUMNS")
    {
        command.env_remove(name);
    }
    let out = command
        .args(args)
        .current_dir(folder.path())
        .output()
        .unwrap();
    // Paths as they are written: where the folder of the test lies is none of the page's business, either.
    let whole = folder.path().canonicalize().unwrap();
    let whole = format!("{}/", whole.display());
    String::from_utf8(out.stdout).unwrap().replace(&whole, "")
}

/// What `check` finds in this configuration.
fn check(configuration: &str) -> Vec<Value> {
    serde_json::from_str(&run(&["check", "--json"], configuration)).unwrap()
}

fn text_of(problem: &Value, field: &str) -> String {
    problem[field].as_str().unwrap_or_default().to_owned()
}
