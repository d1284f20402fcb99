//! What the book says is what the sources say: metrics, rules and the tests that hold them. Reads files alone;
//! all of it costs about a tenth of a second.
//!
//! A test that fails because the code was changed says which command writes the page anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use crate::page::{docs, made, read, root, table};

const COMMAND: &str = "cargo test --test it reference";

/// Folders with sources, as far as they are there.
pub(super) const SOURCES: [&str; 5] = ["lock", "src", "jobs", "tests", "supply"];

// === metrics ===

#[test]
fn the_metrics_are_those_of_the_code() {
    let text = source("src/telemetry/metrics/families.rs");
    // A text may go on in the next line.
    let text: String = text.split("\\\n").map(str::trim_start).collect();
    let kinds = kinds(&text);
    let mut rows = Vec::new();
    for (at, _) in text.match_indices(": r.") {
        let field = text[..at].rsplit(|c: char| !is_word(c)).next().unwrap();
        let call = text[at..].split_once("),\n").unwrap().0;
        let mut quoted: Vec<&str> = call.split('"').skip(1).step_by(2).collect();
        if field == "registry" {
            continue;
        }
        let (name, help) = (quoted.remove(0), quoted.pop().unwrap());
        let timed = call.starts_with(": r.seconds(") || call.contains("Unit::Seconds");
        let unit = if timed { "_seconds" } else { "" };
        let kind = kinds[field];
        let total = if kind == "counter" { "_total" } else { "" };
        let labels: Vec<_> = quoted.iter().map(|label| format!("`{label}`")).collect();
        rows.push(vec![
            format!("`{name}{unit}{total}`"),
            kind.to_owned(),
            labels.join(", "),
            help.to_owned(),
        ]);
    }
    assert_eq!(rows.len(), kinds.len(), "each family is registered once");
    let page = "reference/metrics.md";
    made(
        page,
        "metrics",
        &table(&["Metric", "Kind", "Labels", "Meaning"], &rows),
        COMMAND,
    );

    let page = read(page);
    let process = source("src/telemetry/metrics/process.rs");
    let others = process
        .split('"')
        .filter(|text| text.starts_with("process_"));
    for name in others.chain(["watchkeeper_build"]) {
        assert!(page.contains(&format!("`{name}")), "{name} is missing");
    }
}

/// The kind of each family.
fn kinds(text: &str) -> BTreeMap<&str, &'static str> {
    let inner = text.split_once("struct Families {").unwrap().1;
    let lines = inner.split_once("\n}").unwrap().0.lines();
    let fields = lines.filter_map(|line| line.trim().strip_prefix("pub(super) ")?.split_once(": "));
    let fields = fields.filter(|(name, _)| *name != "registry");
    let named = |of: &str| {
        let words = of.split(|c: char| !c.is_alphanumeric());
        words.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let kind = |of: &str| match named(of) {
        words if words.contains("Histogram") => "histogram",
        words if words.contains("Counter") => "counter",
        words if words.contains("Gauge") || words.contains("Seconds") => "gauge",
        _ => panic!("no kind of metric is known as {of}"),
    };
    fields.map(|(name, of)| (name, kind(of))).collect()
}

// === variables ===

/// Variables that are read or set: on the page of commands, or where the tests are told of.
#[test]
fn every_variable_is_told_of() {
    let pages = read("reference/commands.md") + &read("developing/tests.md");
    let mut found = BTreeSet::new();
    for (_, code) in sources() {
        let quoted = code.split('"').filter(|text| {
            let name = text.strip_prefix("WATCHKEEPER_").unwrap_or_default();
            let letters = |c: char| c.is_ascii_uppercase() || c == '_';
            !name.is_empty() && name.chars().all(letters) && !name.ends_with('_')
        });
        // Keys of the configuration have a rule, and children of tests a name of their own.
        let names = quoted.filter(|name| !name.contains("__") && !name.contains("_TEST_"));
        found.extend(names.map(str::to_owned));
    }
    // A misspelt key, in a test of the message about it.
    found.remove("WATCHKEEPER_ADMIN_TOKEN");
    assert!(found.len() > 10, "{found:?}");
    for name in found {
        assert!(
            pages.contains(&format!("`{name}`")),
            "{name} is told of nowhere"
        );
    }
}

// === the map of the code ===

/// Every folder that map and walk name is there, and every type and function.
#[test]
fn map_and_walk_name_what_is_there() {
    let sources = sources();
    let words: BTreeSet<&str> = sources
        .iter()
        .flat_map(|(_, code)| code.split(|c: char| !is_of_a_name(c)))
        .collect();
    for page in ["developing/map.md", "developing/walk.md"] {
        for (folder, named) in named_in(&read(page)) {
            let path = named.trim_end_matches('/');
            let below = root().join(&folder);
            let there = match (named.contains('/'), named.ends_with(".rs")) {
                (true, _) => root().join(path).exists() || below.join(path).exists(),
                (false, true) => sources
                    .iter()
                    .any(|(file, _)| file.ends_with(path) && file.starts_with(&folder)),
                (false, false) => words.contains(path),
            };
            assert!(there, "{page}: there is no {named} (below {folder:?})");
        }
    }
}

/// What stands in quotes outside of blocks and may be a path or a name, with the folder that the chapter's title names.
fn named_in(page: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let (mut folder, mut block) = (String::new(), false);
    for line in page.lines() {
        if line.starts_with("```") {
            block = !block;
        }
        if block {
            continue;
        }
        let quoted: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        if line.starts_with('#') {
            folder = quoted.first().copied().unwrap_or_default().to_owned();
        }
        for word in quoted {
            let word = word.trim_end_matches("()");
            let is_path =
                word.contains('/') && !word.contains([' ', ':']) && !word.starts_with('/');
            let is_file = word.ends_with(".rs") && !word.contains([' ', '*']);
            if is_path || is_file || word.chars().all(is_of_a_name) {
                found.push((folder.clone(), word.to_owned()));
            }
        }
    }
    found
}

/// Suites and tests in commands of the book are there.
#[test]
fn the_suites_that_the_book_runs_are_there() {
    let (sources, tests) = (sources(), tests());
    let mut pages = pages(&root().join("docs"));
    pages.push(root().join("README.md"));
    let mut seen = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        // Some pages give a long beginning a name first.
        let text = text.replace("$test ", "cargo test ");
        for line in text.lines().filter(|line| line.contains("cargo test ")) {
            let words: Vec<&str> = line
                .split(|c: char| c.is_whitespace() || c == '`')
                .skip_while(|word| *word != "test")
                .take_while(|word| *word != "--" && !word.is_empty())
                .collect();
            if let Some(at) = words.iter().position(|word| *word == "--lib")
                && let Some(wanted) = words.get(at + 1)
            {
                let wanted = wanted.trim_end_matches("::");
                let part = |path: &Path| path.iter().any(|part| part == wanted);
                let there = sources
                    .iter()
                    .any(|(path, _)| part(&path.with_extension("")))
                    || tests.keys().any(|name| name.contains(wanted));
                assert!(there, "{}: no library has {wanted}", page.display());
                seen += 1;
            }
            let Some(suite) = words.iter().position(|word| *word == "--test") else {
                continue;
            };
            let suite = words[suite + 1];
            let of_suite = |path: &Path| {
                let file = path.ends_with(format!("tests/{suite}.rs"));
                file || path.to_string_lossy().contains(&format!("tests/{suite}/"))
            };
            let there = sources.iter().any(|(path, _)| of_suite(path));
            assert!(there, "{}: there is no suite {suite}", page.display());
            seen += 1;
            // What follows is a part of the name of a test, or of a module with tests.
            let Some(wanted) = words.iter().skip_while(|word| **word != suite).nth(1) else {
                continue;
            };
            let module = |path: &Path| path.file_stem().is_some_and(|stem| stem == *wanted);
            let named = |(name, paths): (&String, &Vec<PathBuf>)| {
                name.contains(wanted) && paths.iter().any(|path| of_suite(path))
            };
            // Cases of a suite with servers are functions that its `main.rs` lists.
            let case = |(path, code): &(PathBuf, String)| {
                of_suite(path) && code.split("fn ").any(|f| f.starts_with(wanted))
            };
            let there = sources
                .iter()
                .any(|(path, _)| of_suite(path) && module(path))
                || tests.iter().any(named)
                || sources.iter().any(case);
            assert!(there, "{}: {suite} has no {wanted}", page.display());
        }
    }
    assert!(seen > 5, "{seen}");
}

/// Variables that commands of the book set for tests are read by a test or a script, and programs of the repository that they
/// run are there.
#[test]
fn what_commands_of_the_book_set_and_run_is_there() {
    let scripts = [
        "tests/run",
        "tests/pool",
        "tests/loaded",
        "tests/interop/install",
    ];
    let mut known: String = sources().into_iter().map(|(_, code)| code).collect();
    known.extend(scripts.map(source));
    let mut seen = 0;
    for page in pages(&root().join("docs/developing")) {
        let text = fs::read_to_string(&page).unwrap();
        let blocks = text.split("```").skip(1).step_by(2);
        for line in blocks
            .filter_map(|block| block.strip_prefix("sh\n"))
            .flat_map(str::lines)
        {
            let (set, rest): (Vec<&str>, Vec<&str>) = line
                .split(' ')
                .partition(|word| word.starts_with("WATCHKEEPER_") && word.contains('='));
            for variable in set {
                let (name, _) = variable.split_once('=').unwrap();
                assert!(
                    known.contains(name),
                    "{}: nothing reads {name}",
                    page.display()
                );
                seen += 1;
            }
            if let Some(program) = rest
                .first()
                .filter(|word| word.contains('/') && !word.contains('='))
            {
                assert!(
                    root().join(program).is_file(),
                    "{}: {program}",
                    page.display()
                );
                seen += 1;
            }
        }
    }
    assert!(seen > 5, "{seen}");
}

// === rules and their tests ===

/// A rule as the documentation of a module states it.
struct Rule {
    id: String,
    says: String,
    tests: Vec<String>,
}

#[test]
fn rules_and_tests_are_those_of_the_sources() {
    let tests = tests();
    // In this order: the tests that the rules name are among those that the book names.
    rules_of_the_modules(&tests);
    tests_of_the_book(&tests);
}

fn rules_of_the_modules(tests: &BTreeMap<String, Vec<PathBuf>>) {
    let mut text = String::new();
    for (path, code) in sources() {
        let rules = rules(&code);
        if rules.is_empty() {
            continue;
        }
        let mut rows = Vec::new();
        for rule in rules {
            for test in &rule.tests {
                assert!(
                    tests.contains_key(test),
                    "{}: there is no test {test}",
                    path.display()
                );
            }
            let held: Vec<String> = rule.tests.iter().map(|test| format!("`{test}`")).collect();
            rows.push(vec![rule.id, rule.says, held.join(", ")]);
        }
        text += &format!(
            "### `{}`\n\n{}\n",
            path.display(),
            table(&["Rule", "Says", "Test"], &rows)
        );
    }
    made("guarantees.md", "rules", &text, COMMAND);
}

fn tests_of_the_book(tests: &BTreeMap<String, Vec<PathBuf>>) {
    let mut named = BTreeSet::new();
    for page in pages(&docs()) {
        let text = fs::read_to_string(&page).unwrap();
        for test in tests_in_tables(&text) {
            assert!(
                tests.contains_key(&test),
                "{}: there is no test {test}",
                page.display()
            );
            named.insert(test);
        }
    }
    assert!(named.len() > 100, "{}", named.len());
    let mut files: BTreeMap<&Path, Vec<&str>> = BTreeMap::new();
    for test in &named {
        for file in &tests[test] {
            files.entry(file).or_default().push(test);
        }
    }
    let mut text = String::new();
    for (file, tests) in files {
        text += &format!("- `{}`\n", file.display());
        for test in tests {
            text += &format!("  - `{test}`\n");
        }
    }
    made("guarantees.md", "tests", &text, COMMAND);
}

#[test]
fn a_test_that_is_not_there_is_seen() {
    let page = "| Promise | Test |\n| --- | --- |\n| One holder | `there_is_no_such_test`, `nor_this_one` |\n\n`max_ttl`\n";
    let named = tests_in_tables(page);
    assert_eq!(named, ["there_is_no_such_test", "nor_this_one"]);
    assert!(named.iter().all(|test| !tests().contains_key(test)));
    let code = "//! # Invariants\n//! - X1 It holds,\n//!   always.  (`it_holds_here`,\n//!   and_always_so)\n//! - Silence proves nothing.\n";
    let rules = rules(code);
    assert_eq!(
        (rules[0].id.as_str(), rules[0].says.as_str()),
        ("X1", "It holds, always.")
    );
    assert_eq!(rules[0].tests, ["it_holds_here", "and_always_so"]);
    assert_eq!((rules[1].id.as_str(), rules[1].tests.len()), ("", 0));
}

/// The list below `# Invariants`, and any other list of rules with a letter and a number.
fn rules(code: &str) -> Vec<Rule> {
    let mut found: Vec<String> = Vec::new();
    let (mut invariants, mut inside) = (false, false);
    for line in code.lines() {
        let line = line.trim_start();
        let doc = line.strip_prefix("//!").or(line.strip_prefix("///"));
        let Some(doc) = doc else {
            (invariants, inside) = (false, false);
            continue;
        };
        if let Some(title) = doc.strip_prefix(" # ") {
            (invariants, inside) = (title.starts_with("Invariants"), false);
        } else if let Some(item) = doc.strip_prefix(" - ") {
            inside = invariants || !id(item).is_empty();
            if inside {
                found.push(item.to_owned());
            }
        } else if let Some(more) = doc.strip_prefix("   ").filter(|_| inside) {
            let rule = found.last_mut().unwrap();
            *rule += " ";
            *rule += more.trim();
        } else {
            inside = false;
        }
    }
    found.iter().map(|text| rule(text)).collect()
}

fn rule(text: &str) -> Rule {
    let id = id(text);
    let mut says = text[id.len()..].trim();
    let mut tests = Vec::new();
    if let Some((before, list)) = says.rsplit_once('(')
        && let Some(list) = list.trim_end_matches('.').strip_suffix(')')
    {
        let words = list
            .trim_start_matches("all: ")
            .split(',')
            .map(|word| word.trim().trim_matches('`'));
        let words: Vec<String> = words.map(str::to_owned).collect();
        if words.iter().all(|word| is_test(word)) {
            (says, tests) = (before.trim(), words);
        }
    }
    Rule {
        id: id.to_owned(),
        // Links that lead somewhere in the documentation of the crate alone.
        says: says.replace("[`", "`").replace("`]", "`"),
        tests,
    }
}

/// `R8`, where the text begins with it.
fn id(text: &str) -> &str {
    let word = text.split(' ').next().unwrap_or_default();
    let number = word.trim_start_matches(|c: char| c.is_ascii_uppercase());
    let letters = word.len() - number.len();
    match (1..=2).contains(&letters) && number.parse::<u32>().is_ok() {
        true => word,
        false => "",
    }
}

/// What stands in quotes in the last column of tables whose last column is called "Test".
fn tests_in_tables(text: &str) -> Vec<String> {
    let cells = |line: &str| -> Option<String> {
        let line = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        Some(line.rsplit(" | ").next()?.trim().to_owned())
    };
    let mut found = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        match cells(line) {
            None => inside = false,
            Some(last) if last == "Test" => inside = true,
            Some(last) if inside => {
                let quoted = last.split('`').skip(1).step_by(2);
                found.extend(quoted.map(str::to_owned));
            }
            Some(_) => {}
        }
    }
    found
}

/// Every test with the files that have one of this name: functions with such an attribute, and those of the folders of
/// tests, which have a harness of their own, and of the suite that every store is tried with.
fn tests() -> BTreeMap<String, Vec<PathBuf>> {
    let mut found: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for (path, code) in sources() {
        let in_tests = path
            .iter()
            .any(|part| part == "tests" || part == "conformance");
        let mut marked = false;
        for line in code.lines().map(str::trim) {
            if line.starts_with("#[") {
                marked |= line.contains("test");
                continue;
            }
            let name = line.split_once("fn ").map(|(_, rest)| rest);
            let name =
                name.map(|rest| rest.split(|c: char| !is_word(c)).next().unwrap_or_default());
            if let Some(name) = name.filter(|name| (marked || in_tests) && is_test(name)) {
                let files = found.entry(name.to_owned()).or_default();
                if !files.contains(&path) {
                    files.push(path.clone());
                }
            }
            // What lies between an attribute and its function: other attributes over several lines, and comments.
            marked &= line.starts_with(')')
                || line.starts_with("//")
                || line.contains(" = \"")
                || line.ends_with(',');
        }
    }
    found
}

fn is_test(word: &str) -> bool {
    word.chars().all(is_word) && word.matches('_').count() > 1
}

fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

fn is_word(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'
}

// === reading ===

fn source(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every source, in the order of its path from the root.
fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in SOURCES {
        walk(&root().join(folder), "rs", &mut found);
    }
    found.retain(|path| !path.components().any(|part| part.as_os_str() == "target"));
    let relative = |path: &Path| path.strip_prefix(root()).unwrap_or(path).to_owned();
    let read = |path: &PathBuf| (relative(path), fs::read_to_string(path).unwrap());
    found.iter().map(read).collect()
}

pub(super) fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(folder, "md", &mut found);
    found
}

pub(super) fn walk(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            walk(&path, extension, found);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
}
