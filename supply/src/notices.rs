//! The notices that go with the command: every crate in it, and every text that its licence wants to be passed on.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
    path::Path,
};

use crate::Krate;

/// How files begin that hold a licence or a notice.
const NAMES: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
];

const HEAD: &str = "THIRD-PARTY NOTICES

The command `watchkeeper` contains the crates below, each under its own licence, and the standard library of Rust (MIT OR
Apache-2.0, https://github.com/rust-lang/rust). SQLite, which one of them brings, is in the public domain. The texts of the
licences follow the list; one that several crates share stands there once.
";

const RULE: &str =
    "================================================================================";

/// The text of Apache-2.0.
const APACHE: &str = include_str!("../../LICENSE-APACHE");

/// The notices about these crates.
///
/// # Errors
/// When a crate brings no text of its licence, or one that cannot be read.
pub fn notices(crates: &[&Krate]) -> Result<String, String> {
    let mut text = format!("{HEAD}\n");
    let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for krate in crates {
        let _ = writeln!(text, "- {krate}: {}, {}", krate.licence, krate.repository);
        let mut found = licences(&krate.folder).map_err(|why| format!("{krate}: {why}"))?;
        // Its text is the same in all crates, so that it counts also where one does not bring it along.
        if found.is_empty() && krate.licence == "Apache-2.0" {
            found.push(APACHE.trim().to_owned());
        }
        if found.is_empty() {
            return Err(format!("{krate} brings no text of its licence"));
        }
        for found in found {
            texts.entry(found).or_default().insert(krate.to_string());
        }
    }
    // By the first crate of each, so that a new crate moves nothing else.
    let mut texts: Vec<_> = texts.into_iter().collect();
    texts.sort_by(|(a, of_a), (b, of_b)| (of_a, a).cmp(&(of_b, b)));
    for (licence, of) in texts {
        let of: Vec<String> = of.into_iter().collect();
        let _ = write!(text, "\n{RULE}\n{}\n{RULE}\n\n{licence}\n", of.join(", "));
    }
    Ok(text)
}

/// The texts in a crate's folder, without blanks around them, in the order of their files.
fn licences(folder: &Path) -> Result<Vec<String>, String> {
    let entries = fs::read_dir(folder).map_err(|why| format!("{}: {why}", folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|why| why.to_string())?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_uppercase();
        let code = path.extension().is_some_and(|extension| extension == "rs");
        if NAMES.iter().any(|start| name.starts_with(start)) && path.is_file() && !code {
            files.push(path);
        }
    }
    files.sort();
    let mut texts = Vec::new();
    for path in files {
        let bytes = fs::read(&path).map_err(|why| format!("{}: {why}", path.display()))?;
        let text = String::from_utf8_lossy(&bytes).replace("\r\n", "\n");
        texts.push(text.trim().to_owned());
    }
    texts.retain(|text| !text.is_empty());
    Ok(texts)
}
