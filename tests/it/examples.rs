//! Every public module shows how it is used. The modules are those of the recorded interfaces in `tests/api/`.

use std::{fs, path::Path};

use crate::page::root;

/// Crates, their sources, and the folders from whose modules they re-export some under their own name.
const CRATES: [(&str, &str, &[&str]); 3] = [
    ("watchkeeper_lock", "lock/src", &["base"]),
    ("watchkeeper", "src", &[]),
    ("watchkeeper_jobs", "jobs/src", &["kinds"]),
];

#[test]
fn every_public_module_has_an_example() {
    let mut modules = 0;
    for (krate, sources, folders) in CRATES {
        let sources = root().join(sources);
        modules += 1;
        assert!(has_example(&head(&sources.join("lib.rs"))), "{krate}");
        let recorded = root().join(format!("tests/api/{}.txt", krate.replace('_', "-")));
        for line in read(&recorded).lines() {
            let Some(path) = line.strip_prefix(&format!("mod {krate}::")) else {
                continue;
            };
            modules += 1;
            let docs = docs_of(&sources, folders, path);
            assert!(has_example(&docs), "{krate}::{path} shows no example");
        }
    }
    assert!(modules > 30, "{modules}");
}

#[test]
fn an_example_is_compiled_or_is_none() {
    assert!(has_example("```\nlet x = 1;\n```"));
    assert!(has_example("text\n\n```no_run\nlet x = 1;\n```"));
    assert!(!has_example("```ignore\nlet x = 1;\n```"));
    assert!(!has_example("```text\na -> b\n```\n```sql\nSELECT 1\n```"));
    assert!(!has_example("text alone"));
}

/// Whether one of the blocks of code is compiled: it is Rust, and not ignored.
fn has_example(docs: &str) -> bool {
    let fences = docs.lines().filter_map(|line| line.strip_prefix("```"));
    // The first of two opens a block.
    let opening = fences.step_by(2).map(str::trim);
    let mut compiled = opening.filter(|kind| ["", "rust", "no_run", "rust,no_run"].contains(kind));
    compiled.next().is_some()
}

/// The documentation of a module: at the head of its file, or above it where it is written in `lib.rs`.
fn docs_of(sources: &Path, folders: &[&str], path: &str) -> String {
    let below = path.replace("::", "/");
    let folders = folders.iter().map(|folder| sources.join(folder));
    let places = std::iter::once(sources.to_owned()).chain(folders);
    let mut files = places.flat_map(|place| {
        let file = place.join(format!("{below}.rs"));
        [file, place.join(&below).join("mod.rs")]
    });
    match files.find(|file| file.exists()) {
        Some(file) => head(&file),
        None => above(&sources.join("lib.rs"), &format!("pub mod {path} {{")),
    }
}

/// The lines `//!` of a file, without that; `#![doc]` stands for what a feature makes of it.
fn head(file: &Path) -> String {
    let text = read(file);
    let with_feature = "#![cfg_attr(feature = \"sqlite\", doc = \"```\")]";
    let lines = text.lines().filter_map(|line| match line {
        line if line == with_feature => Some("```"),
        line => line.strip_prefix("//!").map(str::trim_start),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The lines `///` above the line `item`, without that.
fn above(file: &Path, item: &str) -> String {
    let text = read(file);
    let before = text.lines().take_while(|line| *line != item);
    let before: Vec<_> = before.collect();
    let docs = before
        .iter()
        .rev()
        .map_while(|line| line.strip_prefix("///"));
    let mut docs: Vec<_> = docs.map(str::trim_start).collect();
    docs.reverse();
    docs.join("\n")
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}
