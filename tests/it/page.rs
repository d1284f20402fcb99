//! Parts of the book that are made from the code. Such a part stands between the comments `<!-- made: NAME -->` and
//! `<!-- end: NAME -->`, which no reader sees; the rest of its page is written by hand.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Mutex,
};

/// With this variable the parts are written; without it they are compared.
const WRITE: &str = "WATCHKEEPER_WRITE_DOCS";

/// Several parts lie in one page, and tests run side by side.
static PAGES: Mutex<()> = Mutex::new(());

/// Compares the part `name` of a page of `docs/` with `text`, or writes it. `command` runs the test that called.
pub(crate) fn made(page: &str, name: &str, text: &str, command: &str) {
    let _turn = PAGES.lock();
    let path = docs().join(page);
    let whole = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    let (begin, end) = (
        format!("<!-- made: {name} -->\n"),
        format!("<!-- end: {name} -->"),
    );
    let (before, rest) = whole
        .split_once(&begin)
        .unwrap_or_else(|| panic!("{page} has no {begin}"));
    let (old, after) = rest
        .split_once(&end)
        .unwrap_or_else(|| panic!("{page} has no {end}"));
    let text = format!("\n{}\n\n", text.trim());
    if old == text {
        return;
    }
    if env::var_os(WRITE).is_some() {
        fs::write(&path, format!("{before}{begin}{text}{end}{after}")).unwrap();
        return;
    }
    let differs = old.lines().zip(text.lines()).find(|(old, new)| old != new);
    let (old, new) = differs.unwrap_or(("one page is shorter", "than the other"));
    panic!(
        "docs/{page} is not what the code says:\n  page: {old}\n  code: {new}\n`{WRITE}=1 {command}` writes it"
    );
}

/// The text of a page of `docs/`.
pub(crate) fn read(page: &str) -> String {
    fs::read_to_string(docs().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// The folder of the book, from whichever crate's folder.
pub(crate) fn docs() -> PathBuf {
    root().join("docs")
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tops = here
        .ancestors()
        .filter(|folder| folder.join("Cargo.lock").exists());
    tops.last().unwrap_or(here).to_owned()
}

/// A table of Markdown. Bars in cells are written so that they separate nothing.
pub(crate) fn table(header: &[&str], rows: &[Vec<String>]) -> String {
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    let mut text = line(header.iter().map(|cell| (*cell).to_owned()).collect());
    text += &line(header.iter().map(|_| "---".to_owned()).collect());
    for row in rows {
        text += &line(row.iter().map(|cell| cell.replace('|', "\\|")).collect());
    }
    text
}
