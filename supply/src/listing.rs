//! What a registry shows of our crates, and takes of them: whether all of it is there before one of them is published.
//!
//! Not looked at is where their sources are (`repository`): a fork has another place, and `deploy/release` wants it said before
//! anything is published.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{Licences, metadata::asked};

/// Files that go with each crate, whatever else does.
const WITH_EACH: [&str; 3] = ["/src", "/README.md", "/LICENSE-*"];
/// The texts of the licence, in the folder of each crate.
const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];
/// What a registry takes of each list.
const MOST_WORDS: usize = 5;
/// How long a keyword may be.
const LONGEST_WORD: usize = 20;

/// What is missing before these crates of the workspace can be published, and none but them: a sentence each.
///
/// # Errors
/// When cargo or a manifest cannot be read.
pub fn unlisted(root: &Path, names: &[&str]) -> Result<Vec<String>, String> {
    let answer = asked(root, &["--no-deps"])?;
    let mut found = Vec::new();
    let mut missing = names.to_vec();
    for package in answer["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let kept = package["publish"].as_array().is_some_and(Vec::is_empty);
        missing.retain(|wanted| *wanted != name);
        match (names.contains(&name), kept) {
            (true, true) => found.push(format!("{name}: publish is false")),
            (false, false) => found.push(format!("{name}: publish is not false")),
            (false, true) => {}
            (true, false) => {
                let path = PathBuf::from(package["manifest_path"].as_str().unwrap_or_default());
                let told = |why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
                let text = fs::read_to_string(&path).map_err(|why| told(&why))?;
                let manifest: toml::Table = text.parse().map_err(|why| told(&why))?;
                let folder = path.parent().unwrap_or(root);
                let faults = faults(package, &manifest, |file| folder.join(file).is_file());
                found.extend(faults.into_iter().map(|fault| format!("{name}: {fault}")));
            }
        }
    }
    found.extend(missing.iter().map(|name| format!("{name}: no such crate")));
    Ok(found)
}

/// What is missing in one crate, of which `has` says which files it has.
fn faults(package: &Value, manifest: &toml::Table, has: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for key in ["description", "license", "readme", "rust_version"] {
        if package[key].as_str().is_none_or(str::is_empty) {
            found.push(format!("no {}", key.replace('_', "-")));
        }
    }
    if let Some(licence) = package["license"].as_str()
        && let Err(why) = Licences::parse(licence)
    {
        found.push(why.to_string());
    }
    let readme = package["readme"].as_str();
    for file in readme.into_iter().chain(LICENCES) {
        if !has(file) {
            found.push(format!("{file} is not in its folder"));
        }
    }
    for key in ["keywords", "categories"] {
        let words: Vec<&str> = texts(&package[key]).collect();
        if words.is_empty() || words.len() > MOST_WORDS {
            found.push(format!("{} {key}, not 1 to {MOST_WORDS}", words.len()));
        }
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_+:".contains(c);
        for word in words {
            let long = key == "keywords" && word.len() > LONGEST_WORD;
            if long || !word.chars().all(plain) {
                found.push(format!("{word:?} is none of its {key}"));
            }
        }
    }
    if package["metadata"]["docs"]["rs"]["all-features"] != true {
        found.push("docs.rs would not show all of its features".to_owned());
    }
    let include = manifest.get("package").and_then(|of| of.get("include"));
    let include = include.and_then(toml::Value::as_array);
    let included = |wanted: &&str| {
        let mut patterns = include.into_iter().flatten();
        patterns.any(|pattern| pattern.as_str() == Some(*wanted))
    };
    for wanted in WITH_EACH.iter().filter(|wanted| !included(wanted)) {
        found.push(format!("include does not name {wanted}"));
    }
    let version = package["version"].as_str().unwrap_or_default();
    for needed in package["dependencies"].as_array().into_iter().flatten() {
        // What only tests need from a folder is left out of what is published.
        if needed["path"].is_null() || needed["kind"] == "dev" {
            continue;
        }
        let req = needed["req"].as_str().unwrap_or_default();
        if req != format!("^{version}") {
            let name = needed["name"].as_str().unwrap_or_default();
            found.push(format!("it needs {name} {req}, and not {version}"));
        }
    }
    found
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use serde_json::json;

    use super::*;

    fn whole() -> Value {
        json!({
            "description": "Locks", "license": "MIT OR Apache-2.0", "readme": "README.md", "rust_version": "1.89",
            "keywords": ["lock"], "categories": ["asynchronous"], "version": "0.2.0",
            "metadata": { "docs": { "rs": { "all-features": true } } },
            "dependencies": [
                { "name": "serde", "req": "^1", "kind": null },
                { "name": "ours", "req": "^0.2.0", "kind": null, "path": "/lock" },
                { "name": "ours", "req": "*", "kind": "dev", "path": "/lock" },
            ],
        })
    }

    fn manifest(include: &str) -> toml::Table {
        format!("[package]\ninclude = {include}").parse().unwrap()
    }

    #[test]
    fn every_kind_of_fault_in_a_manifest_is_found() {
        let all = manifest(r#"["/src", "/README.md", "/LICENSE-*"]"#);
        assert_eq!(faults(&whole(), &all, |_| true), Vec::<String>::new());
        type Change = fn(&mut Value);
        let changes: [(Change, &str); 8] = [
            (|p| p["description"] = "".into(), "no description"),
            (|p| p["rust_version"] = Value::Null, "no rust-version"),
            (|p| p["license"] = "MIT OR".into(), "cannot be read"),
            (|p| p["keywords"] = json!([]), "0 keywords, not 1 to 5"),
            (
                |p| p["keywords"] = json!(["a-word-that-is-too-long"]),
                "none of its keywords",
            ),
            (
                |p| p["categories"] = json!(["Lock things"]),
                "none of its categories",
            ),
            (|p| p["metadata"] = Value::Null, "docs.rs"),
            (
                |p| p["dependencies"][1]["req"] = "^0.1.0".into(),
                "it needs ours ^0.1.0, and not 0.2.0",
            ),
        ];
        for (change, said) in changes {
            let mut package = whole();
            change(&mut package);
            let found = faults(&package, &all, |_| true).join(", ");
            assert!(found.contains(said), "{found:?} instead of {said:?}");
        }
        let bare = faults(&whole(), &manifest(r#"["/src"]"#), |file| {
            file == "README.md"
        });
        assert_eq!(
            bare,
            [
                "LICENSE-MIT is not in its folder",
                "LICENSE-APACHE is not in its folder",
                "include does not name /README.md",
                "include does not name /LICENSE-*",
            ]
        );
    }
}
