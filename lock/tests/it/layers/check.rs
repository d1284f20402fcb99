//! What the tests of the direction of imports are made of: which module may use which, and which files may use each other.
//!
//! Self-contained, so that other crates can include it with `#[path]`.

#[path = "source.rs"]
mod source;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use source::{Follow, Source, Uses, circles};

/// Module, and the modules it may use. Bottom first.
pub type Layers = &'static [(&'static str, &'static [&'static str])];

/// Edges against the direction, each with its reason.
pub type Exceptions = &'static [(&'static str, &'static str, &'static str)];

/// Files that lead to each other, and the reason. Every file of a circle is named, and no other.
pub type Circles = &'static [(&'static [&'static str], &'static str)];

/// Files, and all below them, that only the module uses in which they lie; and the door that others take.
pub type Inner = &'static [(&'static str, &'static str)];

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
    for entry in fs::read_dir(root()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let module = module_of(&name);
        assert!(
            named.contains(module) || ["lib", "main", "sim"].contains(&module),
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

/// Files use each other in no circle but those that are allowed, each of which is still there.
pub fn files_use_each_other_in_no_circle(allowed: Circles) {
    let uses = source().uses(Follow::All);
    let faults = faults(&uses, allowed);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // Of a source that was not understood nothing would be found.
    let edges: usize = uses.values().map(BTreeMap::len).sum();
    let files = uses.len();
    assert!(
        edges > 2 * files,
        "only {edges} uses found in {files} files"
    );
}

/// Circles that no line of the list allows, and lines that no circle needs.
fn faults(uses: &Uses, allowed: Circles) -> Vec<String> {
    let circles = circles(uses);
    let lines = allowed
        .iter()
        .map(|(files, why)| (files.iter().copied().collect::<BTreeSet<_>>(), why));
    let lines: BTreeMap<BTreeSet<&str>, _> = lines.collect();
    let new = circles.iter().filter(|circle| !lines.contains_key(*circle));
    let new = new.map(|circle| {
        let inner = circle.iter().flat_map(|from| {
            let inner = uses[*from].iter();
            let inner = inner.filter(|(to, _)| circle.contains(to.as_str()));
            inner.map(move |(to, by)| format!("  {from} uses {to}: {}\n", list(by)))
        });
        let inner: String = inner.collect();
        format!("a circle that is not in the list: {circle:?}\n{inner}")
    });
    let gone = lines.iter().filter(|(files, _)| !circles.contains(files));
    let gone = gone.map(|(files, why)| {
        format!("no longer a circle, or another one: {files:?}; take it off the list ({why})")
    });
    new.chain(gone).collect()
}

/// No other module reaches behind the door of one. What the module passes on by name is at the door.
pub fn what_is_inner_is_used_by_its_module_alone(inner: Inner) {
    let uses = source().uses(Follow::Root);
    let mut wrong = Vec::new();
    for (path, door) in inner {
        let within =
            |file: &str| file == format!("{path}.rs") || file.starts_with(&format!("{path}/"));
        assert!(
            uses.keys().any(|file| within(file)),
            "{path} is gone; take it off the list"
        );
        for (from, used) in &uses {
            let outside = module_of(from) != module_of(path);
            for (to, by) in used.iter().filter(|(to, _)| outside && within(to)) {
                wrong.push(format!("{from} uses {to} by {}: {door}", list(by)));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The test of the test, with crates that are made up.
pub fn a_circle_is_found_wherever_it_hides() {
    let ab: Circles = &[(&["a.rs", "b/mod.rs"], "they are made for it")];
    let of = |a: &str, b: &str, allowed| {
        let lib = "mod a; mod b; pub use a::One; pub use b::{inner::Three, Two};";
        let inner = "pub struct Three;";
        let files = [
            ("lib.rs", lib),
            ("a.rs", a),
            ("b/mod.rs", b),
            ("b/inner.rs", inner),
        ];
        let files = files.map(|(path, text)| (path.to_owned(), text.to_owned()));
        faults(&Source::of(&files.into()).uses(Follow::All), allowed).join("\n")
    };
    let b = "mod inner; pub use inner::Three; pub struct Two(super::a::One);";
    for a in [
        "use crate::b::Two; pub struct One;",
        "use crate::{b::{Three, Two as Other}, One as Me}; pub struct One;",
        "use super::b; pub struct One; fn f() -> b::Two { todo!() }",
        "pub struct One; fn f() { for _ in crate::b::Two::all() {} }",
        // By the name at the root.
        "use crate::Two; pub struct One;",
        "pub struct One; mod deep { use super::super::b::*; }",
        "pub struct One; #[cfg(test)] mod tests { use crate::c; } use crate::b::Two;",
        "pub struct One; const QUOTE: char = '\"'; use crate::b::Two; const OTHER: char = '\"';",
    ] {
        assert!(of(a, b, &[]).contains("a.rs uses b/mod.rs"), "{a}");
        assert_eq!(of(a, b, ab), "", "{a}");
    }
    for a in [
        "pub struct One;",
        // It lies in another file.
        "use crate::b::Three; pub struct One; fn f(_: super::b::inner::Three) {}",
        "use crate::Three; pub struct One;",
        "pub use crate::b::Two; pub struct One;",
        "pub struct One; #[cfg(test)] mod tests { use crate::b::Two; }",
        "pub struct One; // crate::b::Two\n const TEXT: &str = \"crate::b::Two\";",
        "pub struct One; mod deep { pub(in crate::b) fn f(_: super::One) {} }",
    ] {
        assert_eq!(of(a, b, &[]), "", "{a}");
        assert!(
            of(a, b, ab).contains("take it off the list (they are made for it)"),
            "{a}"
        );
    }
    assert_eq!(
        of(
            "pub struct One;",
            "mod inner; struct Two; use inner::Three;",
            &[]
        ),
        ""
    );
    let parent = "pub use inner::Three; mod inner; pub struct Two; fn f(_: Three) {}";
    assert_eq!(
        of("pub struct One;", parent, &[]),
        "",
        "the child does not use it"
    );
}

// === reading the source

/// Which module uses which, and where.
fn edges() -> BTreeMap<(String, String), BTreeSet<String>> {
    let mut found: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for (from, uses) in &source().uses(Follow::Root) {
        // The root passes the names of its modules on, and belongs to none of them.
        for to in uses.keys().filter(|_| from != "lib.rs") {
            let edge = (module_of(from).to_owned(), module_of(to).to_owned());
            if edge.0 != edge.1 {
                found.entry(edge).or_default().insert(from.clone());
            }
        }
    }
    assert!(found.len() > 4, "only {} edges found", found.len());
    found
}

fn module_of(path: &str) -> &str {
    let first = path.split('/').next().unwrap_or_default();
    first.trim_end_matches(".rs")
}

fn source() -> &'static Source {
    static READ: OnceLock<Source> = OnceLock::new();
    READ.get_or_init(|| Source::read(&root()))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn list(names: &BTreeSet<String>) -> String {
    names.iter().cloned().collect::<Vec<_>>().join(", ")
}
