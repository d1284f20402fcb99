//! What the tests of the direction of imports are made of: which module uses which, read from the source.
//!
//! Self-contained, so that other crates can include it with `#[path]`. Looked at are paths that begin with `crate::`, outside
//! tests and comments.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// Module, and the modules it may use. Bottom first.
pub type Layers = &'static [(&'static str, &'static [&'static str])];

/// Edges against the direction, each with its reason.
pub type Exceptions = &'static [(&'static str, &'static str, &'static str)];

/// Every edge of the source is in the table, or an exception.
pub fn modules_use_only_what_lies_below_them(layers: Layers, exceptions: Exceptions) {
    let allowed = |from: &str, to: &str| {
        let named = layers
            .iter()
            .any(|(module, uses)| *module == from && uses.contains(&to));
        named || exceptions.iter().any(|(a, b, _)| (*a, *b) == (from, to))
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

/// What stands above a line of the table does not use what stands below it.
pub fn the_table_has_no_circles(layers: Layers) {
    for (place, (module, uses)) in layers.iter().enumerate() {
        let below: Vec<&str> = layers[..place].iter().map(|(name, _)| *name).collect();
        for used in *uses {
            assert!(
                below.contains(used),
                "{module} uses {used}, which is not below it"
            );
        }
    }
}

/// Every module of the source has a line.
pub fn the_table_names_every_module(layers: Layers) {
    let named: BTreeSet<&str> = layers.iter().map(|(name, _)| *name).collect();
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

/// Exceptions are taken off the list with what needed them.
pub fn every_exception_is_still_needed(exceptions: Exceptions) {
    let found = edges();
    for (from, to, why) in exceptions {
        let edge = ((*from).to_owned(), (*to).to_owned());
        assert!(
            found.contains_key(&edge),
            "{from} -> {to} is gone; take it off the list ({why})"
        );
    }
}

// === reading the source

/// The crate below: all of it may be used.
const OTHER: &str = "watchkeeper_lock";

/// Which module uses which, and where.
fn edges() -> BTreeMap<(String, String), BTreeSet<String>> {
    let root = source();
    let reexports = reexports(&fs::read_to_string(root.join("lib.rs")).unwrap());
    let mut files = Vec::new();
    collect(&root, &mut files);
    assert!(
        files.len() > 40,
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
            let to = reexports.get(&target).unwrap_or(&target);
            let to = reexports.get(to).unwrap_or(to).clone();
            if to != from && to != OTHER {
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
pub fn targets(text: &str) -> Vec<String> {
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
    let bare: String = root
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .fold(String::new(), |all, line| all + line + "\n");
    let lines = bare
        .split(';')
        .filter_map(|item| item.trim().rsplit_once("use "));
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
