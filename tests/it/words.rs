//! Sentences for readers name who does something: a replica, a program, a caller, the operator.

use std::{fs, path::Path};

use super::{
    book::{prose, without_code},
    page::root,
    reference::{SOURCES, pages, walk},
};

/// They name nobody, and leave a reader to guess.
const VAGUE: [&str; 10] = [
    "whoever",
    "whomever",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "no one",
    "someone",
    "anyone",
    "everyone",
];

#[test]
fn documentation_names_who_does_something() {
    let mut faults = Vec::new();
    let mut all = pages(&root().join("docs"));
    all.push(root().join("README.md"));
    for page in &all {
        let text = fs::read_to_string(page).unwrap();
        look(page, prose(&text).map(without_code), &mut faults);
    }
    let mut files = Vec::new();
    for folder in SOURCES {
        walk(&root().join(folder), "rs", &mut files);
    }
    let is_for_readers = |path: &&Path| {
        let hidden = ["target", "tests", "sim", "benches"];
        let mut parts = path.strip_prefix(root()).unwrap_or(path).iter();
        !parts.any(|part| hidden.iter().any(|hidden| part == *hidden))
    };
    let files = files.iter().map(|file| file.as_path());
    let mut read = 0;
    for file in files.filter(is_for_readers) {
        read += 1;
        let text = fs::read_to_string(file).unwrap();
        let comments = text.lines().map(str::trim_start);
        let comments = comments.filter(|line| line.starts_with("//!") || line.starts_with("///"));
        look(file, comments.map(without_code), &mut faults);
    }
    assert!(
        all.len() > 50 && read > 300,
        "{} pages, {read} files",
        all.len()
    );
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn look(path: &Path, lines: impl Iterator<Item = String>, faults: &mut Vec<String>) {
    for line in lines {
        let words = format!(
            " {} ",
            line.to_lowercase()
                .replace(['.', ',', ';', ':', '(', ')'], " ")
        );
        let vague = VAGUE
            .iter()
            .find(|vague| words.contains(&format!(" {vague} ")));
        if let Some(vague) = vague {
            faults.push(format!("{}: {vague}: {}", path.display(), line.trim()));
        }
    }
}
