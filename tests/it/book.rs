//! The README and the book in `docs/` hold together: links and anchors lead somewhere, the table of contents names every
//! page once, and code in them is compiled. It stands for `mdbook build docs`, which need not be installed.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use crate::page::root;

/// Documents outside the book.
const OTHERS: [&str; 5] = [
    "README.md",
    "CHANGELOG.md",
    "benches/README.md",
    "lock/README.md",
    "jobs/README.md",
];
/// What a first reader reads.
const README_LINES: usize = 300;
/// Where mdBook finds the pages, and that it leaves `README.md` its name: links to one would be dead.
const SETTINGS: [&str; 2] = ["src = \".\"", "use-default-preprocessors = false"];

#[test]
fn the_book_and_the_readme_hold_together() {
    let faults = faults(&root());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_kind_of_fault_in_a_book_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("src/lib.rs", "#[doc = include_str!(\"../docs/a.md\")]");
    write("docs/book.toml", &SETTINGS.join("\n"));
    write(
        "docs/SUMMARY.md",
        "# Summary\n\n[A](a.md)\n\n- [B](sub/b.md)\n",
    );
    write(
        "docs/a.md",
        "# A\n\n## `x` and y\n\n[b](sub/b.md#more)\n\n```rust\nlet x = \"](no.md)\";\n```\n",
    );
    write(
        "docs/sub/b.md",
        "# B\n\n## More\n## More\n\n[a](../a.md#x-and-y), [again](#more-1), `[c](c.md)`\n",
    );
    write(
        "README.md",
        "[the book](docs/a.md) and [a site](https://example.org/no.md)\n",
    );
    for name in &OTHERS[1..] {
        write(name, "nothing\n");
    }
    assert_eq!(faults(folder.path()), Vec::<String>::new());

    write("README.md", &"[a](docs/none.md)\n".repeat(README_LINES + 1));
    write("CHANGELOG.md", "[b](docs/sub/b.md#less)\n");
    write("docs/a.md", "[out](../README.md) [gone](sub/c.md)\n");
    write("docs/unlisted.md", "# Unlisted\n\n```rust,no_run\n```\n");
    write(
        "docs/SUMMARY.md",
        "# Summary\n\n- [A](a.md)\n- [A](a.md)\n   - [A](a.md)\n- [B](sub/b.md)\n- [D](d.md)\n\nWords.\n",
    );
    write("docs/book.toml", "[book]\n");
    let found: BTreeSet<String> = faults(folder.path()).into_iter().collect();
    let expected = [
        "README.md has 301 lines, more than 300",
        "README.md: docs/none.md is not there",
        "CHANGELOG.md: docs/sub/b.md has no heading #less",
        "docs/a.md: ../README.md leads out of the book",
        "docs/a.md: sub/c.md is not there",
        "docs/sub/b.md: ../a.md has no heading #x-and-y",
        "docs/SUMMARY.md: a.md is listed twice",
        "docs/SUMMARY.md: d.md is not there",
        "docs/SUMMARY.md does not list unlisted.md",
        "docs/SUMMARY.md: mdBook does not read \"   - [A](a.md)\"",
        "docs/SUMMARY.md: mdBook does not read \"Words.\"",
        "docs/unlisted.md has Rust in it, and neither src/lib.rs nor jobs/src/lib.rs includes it",
        "docs/book.toml does not say src = \".\"",
        "docs/book.toml does not say use-default-preprocessors = false",
    ];
    assert_eq!(found, expected.map(str::to_owned).into());
}

/// What is wrong with the documents below `root`, a sentence each.
fn faults(root: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    let mut pages = BTreeMap::new();
    collect(root, &root.join("docs"), &mut pages);
    for name in OTHERS {
        let text = fs::read_to_string(root.join(name)).unwrap_or_default();
        pages.insert(PathBuf::from(name), text);
    }
    let readme = pages[Path::new("README.md")].lines().count();
    if readme > README_LINES {
        faults.push(format!(
            "README.md has {readme} lines, more than {README_LINES}"
        ));
    }
    for (name, text) in &pages {
        let dead = links(text).into_iter().filter_map(|link| {
            let why = dead(root, &pages, name, &link)?;
            Some(format!("{}: {why}", name.display()))
        });
        faults.extend(dead.collect::<BTreeSet<_>>());
    }
    contents(&pages, &mut faults);
    compiled(root, &pages, &mut faults);
    let settings = fs::read_to_string(root.join("docs/book.toml")).unwrap_or_default();
    for setting in SETTINGS {
        if !settings.lines().any(|line| line == setting) {
            faults.push(format!("docs/book.toml does not say {setting}"));
        }
    }
    faults
}

/// All pages below `folder`, by their path from `root`.
fn collect(root: &Path, folder: &Path, pages: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(root, &path, pages);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            let text = fs::read_to_string(&path).unwrap();
            pages.insert(path.strip_prefix(root).unwrap().to_owned(), text);
        }
    }
}

// === links ===

/// Why a link leads nowhere; none where it leads somewhere, or to another site.
fn dead(root: &Path, pages: &BTreeMap<PathBuf, String>, page: &Path, link: &str) -> Option<String> {
    if link.starts_with("https://") || link.starts_with("http://") {
        return None;
    }
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let target = match file {
        "" => page.to_owned(),
        file => plain(&page.parent()?.join(file)),
    };
    // The README leads into the book. A link out of it would be dead on the site that is made of the book.
    if page.starts_with("docs") && !target.starts_with("docs") {
        return Some(format!("{file} leads out of the book"));
    }
    if !root.join(&target).exists() {
        return Some(format!("{file} is not there"));
    }
    let there = pages.get(&target).map(|text| headings(text));
    let known = there.is_some_and(|there| there.iter().any(|known| known == heading));
    if !heading.is_empty() && !known {
        return Some(format!("{file} has no heading #{heading}"));
    }
    None
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    path.components()
        .fold(PathBuf::new(), |mut plain, part| match part {
            Component::ParentDir => {
                plain.pop();
                plain
            }
            part => plain.join(part),
        })
}

/// Where the links and pictures of a page lead.
fn links(text: &str) -> Vec<String> {
    let prose: String = prose(text).map(|line| without_code(line) + "\n").collect();
    let ends = prose.split("](").skip(1);
    ends.filter_map(|rest| Some(rest.split_once(')')?.0.to_owned()))
        .collect()
}

/// The headings of a page, as links name them: on GitHub and in mdBook alike.
fn headings(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let titles = prose(text).filter(|line| line.starts_with('#'));
    titles
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' '))
        .map(|title| {
            let letter = |c: char| match c {
                ' ' => Some('-'),
                '-' | '_' => Some(c),
                c => c.is_alphanumeric().then(|| c.to_ascii_lowercase()),
            };
            let name: String = title.trim().chars().filter_map(letter).collect();
            let before = seen.entry(name.clone()).or_default();
            *before += 1;
            match *before {
                1 => name,
                again => format!("{name}-{}", again - 1),
            }
        })
        .collect()
}

/// The lines of a page that stand in no block of code.
pub(super) fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// A line without what stands in it as code.
pub(super) fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

// === the table of contents ===

/// `SUMMARY.md` lists every page once, in the lines that mdBook reads.
fn contents(pages: &BTreeMap<PathBuf, String>, faults: &mut Vec<String>) {
    let summary = Path::new("docs/SUMMARY.md");
    let Some(text) = pages.get(summary) else {
        return faults.push("docs/SUMMARY.md is not there".to_owned());
    };
    let mut fault = |why: String| faults.push(format!("docs/SUMMARY.md{why}"));
    let mut listed = BTreeSet::new();
    let mut deeper = 0;
    for line in text.lines().filter(|line| !line.is_empty()) {
        let indent = line.len() - line.trim_start().len();
        let entry = line.trim_start();
        let entry = entry.strip_prefix("- ").unwrap_or(entry);
        let chapter = entry
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(')')?.split_once("]("));
        if line.starts_with("# ") {
            deeper = 0;
        } else if let Some((_, page)) = chapter.filter(|_| indent % 2 == 0 && indent <= deeper) {
            deeper = indent + 2;
            if !listed.insert(page.to_owned()) {
                fault(format!(": {page} is listed twice"));
            }
        } else {
            fault(format!(": mdBook does not read {line:?}"));
        }
    }
    for page in pages.keys().filter(|page| *page != summary) {
        if let Ok(page) = page.strip_prefix("docs") {
            let page = page.display().to_string();
            if !listed.contains(&page) {
                fault(format!(" does not list {page}"));
            }
        }
    }
}

/// Rust in a page is compiled with the doc tests.
fn compiled(root: &Path, pages: &BTreeMap<PathBuf, String>, faults: &mut Vec<String>) {
    // What needs a crate of the stock jobs is compiled with these.
    let library = ["src/lib.rs", "jobs/src/lib.rs"]
        .map(|file| fs::read_to_string(root.join(file)).unwrap_or_default())
        .concat();
    let ours = |page: &Path| page.starts_with("docs") || page == Path::new("README.md");
    for (page, text) in pages.iter().filter(|(page, _)| ours(page)) {
        let page = page.display();
        let rust = text.lines().any(|line| line.starts_with("```rust"));
        if rust && !library.contains(&format!("../{page}\")")) {
            faults.push(format!(
                "{page} has Rust in it, and neither src/lib.rs nor jobs/src/lib.rs includes it"
            ));
        }
    }
}
