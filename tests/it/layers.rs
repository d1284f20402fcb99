//! The direction of the arrows between modules: which module may use which.
//!
//! The table is the architecture. It is written from the bottom to the top, and a module may use only what stands above
//! its line here, so there are no circles; what breaks that rule has a reason in [`EXCEPTIONS`]. A new edge is a
//! conversation: change the table in the same commit, and say why.
//!
//! Looked at are paths that begin with `crate::`, outside tests and comments.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Module, and the modules it may use. Bottom first.
const LAYERS: &[(&str, &[&str])] = &[
    // Handles and plain values: know nothing of each other, or nearly.
    ("chance", &[]),
    ("clock", &[]),
    ("escape", &[]),
    ("files", &[]),
    ("finding", &[]),
    ("human", &[]),
    ("network", &[]),
    ("owned", &[]),
    ("panics", &[]),
    ("seldom", &["clock"]),
    ("secret", &[]),
    ("signals", &[]),
    ("spawn", &[]),
    ("terminal", &["escape"]),
    ("backoff", &["chance"]),
    ("sim_clock", &["clock"]),
    // One lock server, and what is held on a majority of them.
    // Random pauses between attempts to connect, lest a fleet comes at one instant.
    // A store in a file asks whose file it is.
    (
        "node",
        &[
            "backoff", "chance", "clock", "files", "human", "owned", "seldom", "spawn",
        ],
    ),
    ("lease", &["clock", "node"]),
    ("term", &["lease", "node"]),
    ("event", &["lease", "node"]),
    // For the place of the effect, which may be a program without anything else of ours: a token, and texts.
    ("fence", &["node"]),
    // Ticks: pure decisions.
    ("schedule", &[]),
    // Ids of triggers draw from chance, so that two of one instant differ.
    ("ledger", &["chance", "node"]),
    ("due", &["ledger", "node", "schedule"]),
    // What a user writes.
    (
        "job",
        &["clock", "due", "human", "lease", "node", "schedule"],
    ),
    // The lock service of a process: no job, no election, no configuration.
    (
        "lock",
        &[
            "backoff", "chance", "clock", "event", "finding", "human", "lease", "node", "secret",
            "spawn",
        ],
    ),
    (
        "keeper",
        &[
            "backoff", "chance", "clock", "event", "lease", "lock", "node", "spawn",
        ],
    ),
    // What replicas tell of themselves, what people ask of them, and how: the one client of a fleet.
    (
        "fleet",
        &[
            "chance", "clock", "human", "job", "ledger", "lock", "node", "schedule", "spawn",
        ],
    ),
    ("election", &["backoff", "clock", "lock", "node", "term"]),
    // Runs of jobs under a term, and batches under claims.
    (
        "scheduler",
        &[
            "backoff", "chance", "clock", "due", "election", "event", "fleet", "human", "job",
            "lease", "ledger", "lock", "node", "panics", "schedule", "spawn", "term",
        ],
    ),
    (
        "batch",
        &[
            "backoff",
            "clock",
            "event",
            "fleet",
            "job",
            "lease",
            "lock",
            "node",
            "panics",
            "schedule",
            "scheduler",
            "seldom",
        ],
    ),
    // Around the worker: they read events and status, and decide nothing.
    (
        "telemetry",
        // The log is read on a terminal.
        &[
            "clock", "event", "fleet", "lease", "node", "seldom", "spawn", "terminal",
        ],
    ),
    // The page asks through the client of the fleet.
    (
        "admin",
        &["clock", "fleet", "network", "secret", "telemetry"],
    ),
    // Configuration is composed of the settings of those below; only the two above it read it.
    (
        "config",
        // The rules of ticks stand with those who decide by them. What the time is decides which jobs are over.
        &[
            "clock", "due", "files", "finding", "human", "job", "ledger", "lock", "network",
            "owned", "schedule", "secret",
        ],
    ),
    ("error", &["config", "escape", "lock"]),
    (
        "worker",
        &[
            "admin",
            "batch",
            "chance",
            "clock",
            "config",
            "due",
            "election",
            "error",
            "event",
            "files",
            "fleet",
            "human",
            "job",
            "lease",
            "ledger",
            "lock",
            "node",
            "owned",
            "panics",
            "schedule",
            "scheduler",
            "secret",
            "signals",
            "spawn",
            "telemetry",
            "term",
        ],
    ),
    // Whole replicas in tests: the worker without its process.
    (
        "testing",
        &[
            "batch",
            "chance",
            "clock",
            "event",
            "fleet",
            "human",
            "job",
            "lock",
            "node",
            "scheduler",
            "sim_clock",
            "spawn",
            "worker",
        ],
    ),
    (
        "cli",
        &[
            "chance",
            "clock",
            "config",
            "error",
            "fleet",
            "human",
            "lock",
            "node",
            "schedule",
            "telemetry",
            "terminal",
            "worker",
        ],
    ),
];

/// Edges against the direction, each with its reason. One that is no longer needed must go.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    (
        "lock",
        "keeper",
        "the handle of a process starts the keeper that it talks to",
    ),
    (
        "keeper",
        "telemetry",
        "before the process is aborted the last log lines are written out",
    ),
];

#[test]
fn modules_use_only_what_lies_below_them() {
    let allowed = |from: &str, to: &str| {
        let named = LAYERS
            .iter()
            .any(|(module, uses)| *module == from && uses.contains(&to));
        named || EXCEPTIONS.iter().any(|(a, b, _)| (*a, *b) == (from, to))
    };
    let found = edges();
    let wrong: Vec<String> = found
        .iter()
        .filter(|((from, to), _)| !allowed(from, to))
        .map(|((from, to), files)| format!("{from} -> {to} in {}", list(files)))
        .collect();
    assert!(
        wrong.is_empty(),
        "edges that the table does not allow:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn the_table_has_no_circles() {
    for (place, (module, uses)) in LAYERS.iter().enumerate() {
        let below: Vec<&str> = LAYERS[..place].iter().map(|(name, _)| *name).collect();
        for used in *uses {
            assert!(
                below.contains(used),
                "{module} uses {used}, which is not below it"
            );
        }
    }
}

#[test]
fn the_table_names_every_module() {
    let named: BTreeSet<&str> = LAYERS.iter().map(|(name, _)| *name).collect();
    let root = source();
    for entry in fs::read_dir(&root).unwrap() {
        let path = entry.unwrap().path();
        let module = module_of(path.strip_prefix(&root).unwrap());
        assert!(
            named.contains(module.as_str()) || ["lib", "sim"].contains(&module.as_str()),
            "{module} has no place in the table"
        );
    }
}

#[test]
fn every_exception_is_still_needed() {
    let found = edges();
    for (from, to, why) in EXCEPTIONS {
        let edge = ((*from).to_owned(), (*to).to_owned());
        assert!(
            found.contains_key(&edge),
            "{from} -> {to} is gone; take it off the list ({why})"
        );
    }
}

#[test]
fn paths_are_found_in_nested_uses_and_outside_them() {
    let text = "use crate::{\n    a::b,\n    c::{d, e},\n    f,\n};\n\
                // crate::comment\n\
                fn g() { crate::h::i(); $crate::j::k(); }\n\
                #[cfg(test)]\nmod tests {\n    use crate::l;\n}\n";
    assert_eq!(targets(text), ["a", "c", "f", "h"]);
}

// === reading the source

/// Which module uses which, and where.
fn edges() -> BTreeMap<(String, String), BTreeSet<String>> {
    let root = source();
    let reexports = reexports(&fs::read_to_string(root.join("lib.rs")).unwrap());
    let mut files = Vec::new();
    collect(&root, &mut files);
    assert!(
        files.len() > 50,
        "only {} files found in {}",
        files.len(),
        root.display()
    );
    let mut found: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for file in files {
        let inner = file.strip_prefix(&root).unwrap().to_owned();
        let from = module_of(&inner);
        for target in targets(&fs::read_to_string(&file).unwrap()) {
            // `crate::Worker` is a name that the root passes on.
            let to = reexports.get(&target).unwrap_or(&target).clone();
            if to != from {
                found
                    .entry((from.clone(), to))
                    .or_default()
                    .insert(inner.display().to_string());
            }
        }
    }
    found
}

/// The files of the library proper: not the root, and no module that is compiled for tests only.
fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut all = Vec::new();
    walk(folder, &mut all);
    let tests: Vec<PathBuf> = all.iter().flat_map(|file| test_modules(file)).collect();
    let test = |file: &PathBuf| {
        tests
            .iter()
            .any(|module| file.with_extension("").starts_with(module))
    };
    all.retain(|file| !test(file) && *file != folder.join("lib.rs"));
    found.extend(all);
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Where the modules lie that `file` declares as `#[cfg(test)] mod name;`, without their extension.
fn test_modules(file: &Path) -> Vec<PathBuf> {
    let root = file.ends_with("mod.rs") || file.ends_with("lib.rs");
    let folder = if root {
        file.parent().unwrap().to_owned()
    } else {
        file.with_extension("")
    };
    let text = fs::read_to_string(file).unwrap();
    let marked = text.split("#[cfg(test)]\n").skip(1);
    let names = marked.filter_map(|rest| {
        let (_, name) = rest.lines().next()?.split_once("mod ")?;
        name.strip_suffix(';')
    });
    names.map(|name| folder.join(name)).collect()
}

/// First segments of all paths from the root.
fn targets(text: &str) -> Vec<String> {
    let bare: String = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default())
        .fold(String::new(), |all, line| all + line + "\n");
    // By custom the tests of a file stand at its end.
    let tests = bare.match_indices("#[cfg(test)]\nmod ").find(|(at, _)| {
        bare[*at..]
            .lines()
            .nth(1)
            .is_some_and(|line| line.ends_with('{'))
    });
    let bare = &bare[..tests.map_or(bare.len(), |(at, _)| at)];
    let mut found = Vec::new();
    for (at, path) in bare.match_indices("crate::") {
        let other = bare[..at].ends_with(|c: char| c == '$' || c == '_' || c.is_alphanumeric());
        if other {
            continue;
        }
        let rest = &bare[at + path.len()..];
        match rest.strip_prefix('{') {
            Some(group) => found.extend(heads(group)),
            None => found.extend(word(rest)),
        }
    }
    found
}

/// The first word of each member of a group `a::b, c::{d, e}, f}…`.
fn heads(group: &str) -> Vec<String> {
    let mut depth = 0;
    let mut start = Some(0);
    let mut found = Vec::new();
    for (at, c) in group.char_indices() {
        if let Some(from) = start.filter(|_| ",:}".contains(c)) {
            found.extend(word(&group[from..at]));
            start = None;
        }
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => start = Some(at + 1),
            _ => {}
        }
    }
    found
}

fn word(text: &str) -> Option<String> {
    let text = text.trim_start();
    let end = text
        .find(|c: char| c != '_' && !c.is_alphanumeric())
        .unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_owned())
}

/// Names that `pub use module::{…}` lifts to the root, and where they come from.
fn reexports(root: &str) -> BTreeMap<String, String> {
    let lines = root.split(';').filter_map(|item| {
        let public = item.trim().rsplit_once("pub use ");
        public.or_else(|| item.trim().rsplit_once("pub(crate) use "))
    });
    let pairs = lines.filter_map(|(_, path)| path.split_once("::"));
    let mut found = BTreeMap::new();
    for (module, names) in pairs {
        for name in names
            .split(|c: char| c != '_' && !c.is_alphanumeric())
            .filter(|n| !n.is_empty())
        {
            found.insert(name.to_owned(), module.to_owned());
        }
    }
    found
}

fn module_of(inner: &Path) -> String {
    let first = inner
        .components()
        .next()
        .unwrap()
        .as_os_str()
        .to_str()
        .unwrap();
    first.trim_end_matches(".rs").to_owned()
}

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn list(files: &BTreeSet<String>) -> String {
    files.iter().cloned().collect::<Vec<_>>().join(", ")
}
