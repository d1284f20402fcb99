//! What this repository is built from keeps the rules of `deny.toml`, and the notices and the bill of materials name all of it; its
//! crates say what a registry wants to know; a change of a public interface is seen.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use serde_json::Value;
use watchkeeper_supply::{Api, Krate, Metadata, Rules, bom, notices, unlisted};

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn metadata() -> Metadata {
    Metadata::read(root()).unwrap()
}

fn krate(licence: &str, source: &str) -> Krate {
    Krate {
        name: "a".to_owned(),
        version: "1.0.0".to_owned(),
        licence: licence.to_owned(),
        source: source.to_owned(),
        repository: String::new(),
        folder: root().to_owned(),
    }
}

#[test]
fn every_licence_and_source_is_allowed() {
    let found = metadata();
    let crates = found.foreign();
    assert!(crates.len() > 100, "{}", crates.len());
    let broken = Rules::read(root()).unwrap().broken_by(&crates);
    assert_eq!(broken, Vec::<String>::new());
}

#[test]
fn what_breaks_a_rule_is_named() {
    let rules = Rules::read(root()).unwrap();
    let index = "registry+https://github.com/rust-lang/crates.io-index";
    for (licence, source, said) in [
        ("MIT", index, None),
        ("GPL-3.0-only", index, Some("\"GPL-3.0-only\" is not among")),
        ("", index, Some("states no licence")),
        (
            "MIT",
            "git+https://example.org/a",
            Some("git+https://example.org/a"),
        ),
        ("MIT", "", Some("does not allow")),
    ] {
        let broken = rules.broken_by(&[&krate(licence, source)]);
        match said {
            None => assert!(broken.is_empty(), "{broken:?}"),
            Some(said) => assert!(broken[0].contains(said), "{broken:?}"),
        }
    }
}

/// A licence that no crate has any more is one that somebody could bring back unseen.
#[test]
fn every_licence_that_is_allowed_is_used() {
    let found = metadata();
    let all: String = found
        .foreign()
        .iter()
        .map(|krate| format!("{} ", krate.licence))
        .collect();
    for licence in Rules::read(root()).unwrap().licences {
        assert!(all.contains(&licence), "{licence}");
    }
}

/// A program that takes the locks alone is spared what a worker needs.
#[test]
fn the_lock_needs_nothing_of_what_the_worker_needs() {
    let features = ["redis", "sqlite", "redis,sqlite", "redis-tls"];
    for features in features {
        let alone = ["--no-default-features", "--features", features];
        let needs = tree("watchkeeper-lock", &alone);
        assert!(needs.len() > 30, "{needs:?}");
        for of_the_worker in [
            "axum",
            "clap",
            "cron",
            "figment",
            "prometheus-client",
            "toml",
            "tracing-subscriber",
        ] {
            let found = needs.iter().find(|krate| {
                let name = krate.split(' ').next();
                name == Some(of_the_worker)
            });
            assert_eq!(found, None, "with {features}");
        }
    }
}

/// What goes into a program of the member, as cargo's own tree has it: a line `NAME VERSION` for each crate of a registry.
fn tree(member: &str, features: &[&str]) -> BTreeSet<String> {
    let asked = ["tree", "--edges", "normal", "--prefix", "none"];
    let output = Command::new(env!("CARGO"))
        .args(asked)
        .args(["--package", member])
        .args(["--format", "{p}", "--locked", "--offline"])
        .args(features)
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let tree = String::from_utf8(output.stdout).unwrap();
    tree.lines()
        .filter(|line| !line.contains(&*root().canonicalize().unwrap().to_string_lossy()))
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some(format!(
                "{} {}",
                words.next()?,
                words.next()?.strip_prefix('v')?
            ))
        })
        .collect()
}

/// Against cargo's own tree of the program, which is another way to the same list.
#[test]
fn the_notices_name_every_crate_of_the_command_with_its_licence() {
    let named = tree("watchkeeper-jobs", &[]);
    assert!(named.len() > 100, "{named:?}");

    let found = metadata();
    let crates = found.shipped_with("watchkeeper-jobs");
    let text = notices(&crates).unwrap();
    for name in named {
        assert!(
            text.contains(&format!("\n- {name}: ")),
            "{name} is not listed"
        );
        let titled = |line: &str| line.split(", ").any(|krate| krate == name);
        assert!(text.lines().any(titled), "{name} has no text");
    }
    // Of some of them whose wording must be there.
    for words in [
        "Copyright",
        "Permission is hereby granted",
        "Apache License",
        "Unicode",
    ] {
        assert!(text.contains(words), "{words}");
    }
}

/// Against cargo's own tree, too, and with what `Cargo.lock` knows of each.
#[test]
fn the_bill_of_materials_names_all_that_is_in_the_command() {
    let found = metadata();
    let made = |time| bom(&found, root(), ("watchkeeper", "watchkeeper-jobs"), time).unwrap();
    let text = made(None);
    assert_eq!(text, made(None), "the same again");
    assert!(made(Some("2026-11-26T12:00:00Z")).contains("\"timestamp\": \"2026-11-26T12:00:00Z\""));
    let bill: Value = serde_json::from_str(&text).unwrap();
    let of = |component: &Value| component["bom-ref"].as_str().unwrap().to_owned();
    let components = bill["components"].as_array().unwrap();
    let mut refs: BTreeSet<String> = components.iter().map(of).collect();
    assert_eq!(refs.len(), components.len(), "each once");
    let named = tree("watchkeeper-jobs", &[]);
    for krate in &named {
        let (name, version) = krate.split_once(' ').unwrap();
        let purl = format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"));
        let component = components.iter().find(|component| of(component) == purl);
        let component = component.unwrap_or_else(|| panic!("{krate} is not in it"));
        assert_eq!(component["purl"], purl.as_str());
        let sum = component["hashes"][0]["content"].as_str().unwrap();
        assert_eq!(sum.len(), 64, "{krate}");
        let licence = component["licenses"][0]["expression"].as_str().unwrap();
        assert!(!licence.is_empty() && !licence.contains('/'), "{krate}");
    }
    // Two of ours beside the program itself, and what is no crate.
    assert!(components.len() >= named.len() + 3);
    let program = &bill["metadata"]["component"];
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        (program["type"].as_str(), program["name"].as_str()),
        (Some("application"), Some("watchkeeper"))
    );
    assert!(refs.insert(of(program)));
    for ours in ["watchkeeper", "watchkeeper-lock"] {
        assert!(
            refs.contains(&format!("pkg:cargo/{ours}@{version}")),
            "{ours}"
        );
    }
    let sqlite = refs
        .iter()
        .find(|name| name.starts_with("pkg:generic/sqlite@3."));
    let sqlite = sqlite.unwrap();
    // Who needs whom is said of each once, and names nothing else.
    let mut told = BTreeSet::new();
    let mut needed = BTreeSet::new();
    for dependency in bill["dependencies"].as_array().unwrap() {
        told.insert(dependency["ref"].as_str().unwrap().to_owned());
        let needs = dependency["dependsOn"].as_array().into_iter().flatten();
        needed.extend(needs.map(|name| name.as_str().unwrap().to_owned()));
    }
    assert_eq!(told, refs);
    assert!(needed.contains(sqlite) && needed.is_subset(&refs));
    needed.insert(of(program));
    assert_eq!(needed, refs, "nothing is in it that nothing needs");
}

#[test]
fn the_crates_say_what_a_registry_wants_to_know() {
    let ours = PUBLISHED.map(|(name, _)| name);
    assert_eq!(unlisted(root(), &ours).unwrap(), Vec::<String>::new());
    let others = unlisted(root(), &["watchkeeper-lock", "none"]).unwrap();
    let said = [
        "watchkeeper: publish is not false",
        "watchkeeper-jobs: publish is not false",
        "none: no such crate",
    ];
    assert_eq!(
        others.into_iter().collect::<BTreeSet<_>>(),
        said.map(str::to_owned).into()
    );
}

/// The crates that are published, each with its folder from the root.
const PUBLISHED: [(&str, &str); 3] = [
    ("watchkeeper-lock", "lock"),
    ("watchkeeper", "."),
    ("watchkeeper-jobs", "jobs"),
];

/// Without building them, which `deploy/release --dry-run` does.
#[test]
fn a_registry_gets_what_programs_need_and_all_that_it_is_built_from() {
    for (name, folder) in PUBLISHED {
        let files = packed(name);
        for wanted in [
            "Cargo.toml",
            "Cargo.lock",
            "README.md",
            "LICENSE-MIT",
            "LICENSE-APACHE",
            "src/lib.rs",
        ] {
            assert!(files.contains(wanted), "{name}: no {wanted}");
        }
        let mut folders: BTreeSet<&str> = files
            .iter()
            .filter_map(|file| file.split_once('/'))
            .map(|(folder, _)| folder)
            .collect();
        assert!(folders.remove("src"), "{name}");
        assert_eq!(folders, BTreeSet::from(["examples"]), "{name}");
        assert_eq!(gone(folder, &files), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn a_file_that_would_be_missing_is_named() {
    let mut files = packed("watchkeeper");
    assert!(files.remove("src/admin/icon.svg"));
    assert_eq!(gone(".", &files), ["src/admin/assets.rs reads icon.svg"]);
    // Also below what only tests have.
    let mut files = packed("watchkeeper-lock");
    assert!(files.remove("src/node/redis/ops/acquire.lua"));
    assert_eq!(
        gone("lock", &files),
        ["src/node/redis/script.rs reads ops/acquire.lua"]
    );
}

/// What would be uploaded of a crate.
fn packed(name: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "package",
            "--list",
            "--offline",
            "--allow-dirty",
            "--package",
            name,
        ])
        .current_dir(root())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let list = String::from_utf8(output.stdout).unwrap();
    list.lines().map(str::to_owned).collect()
}

/// What the sources of a crate take in that is not among these files. Tests stay here, and examples of the book are compiled here
/// alone.
fn gone(folder: &str, files: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| file.ends_with(".rs")) {
        let of_tests = |part: &str| part == "tests" || part == "tests.rs";
        if file.split('/').any(of_tests) {
            continue;
        }
        let text = fs::read_to_string(root().join(folder).join(file)).unwrap();
        let code = text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default();
        let lines = code
            .lines()
            .filter(|line| !line.trim().starts_with("#[doc = "));
        for line in lines {
            let takes = ["include_str!(\"", "include_bytes!(\""].into_iter();
            for rest in takes.flat_map(|take| line.split(take).skip(1)) {
                let taken = rest.split('"').next().unwrap_or_default();
                let (beside, _) = file.rsplit_once('/').unwrap();
                if taken.starts_with("..") || !files.contains(&format!("{beside}/{taken}")) {
                    found.push(format!("{file} reads {taken}"));
                }
            }
        }
    }
    found
}

#[test]
fn a_crate_without_a_text_is_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let bare = Krate {
        folder,
        ..krate("MIT", "")
    };
    let why = notices(&[&bare]).unwrap_err();
    assert_eq!(why, "a 1.0.0 brings no text of its licence");
}

/// The images that are built and started carry the notices, and the command that makes them is the documented one.
#[test]
fn the_notices_are_shipped() {
    let dockerfile = fs::read_to_string(root().join("deploy/Dockerfile")).unwrap();
    let command = "cargo run --release --locked --package watchkeeper-supply -- notices";
    assert!(dockerfile.contains(command), "{dockerfile}");
    assert!(
        dockerfile.contains("COPY --from=build /src/THIRD-PARTY-NOTICES"),
        "{dockerfile}"
    );
    let page = "docs/operations/deploying.md";
    assert!(
        fs::read_to_string(root().join(page))
            .unwrap()
            .contains("cargo run --package watchkeeper-supply -- notices"),
        "{page}"
    );
}

/// What rustdoc says of a crate with this source.
fn api_of(name: &str, source: &str) -> Api {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = folder.join(format!("{name}.rs"));
    fs::write(&file, source).unwrap();
    let status = Command::new(root().join("supply/rustdoc"))
        .args([
            "--edition",
            "2024",
            "-Zunstable-options",
            "--output-format=json",
            "--out-dir",
        ])
        .args([folder, &file])
        .status()
        .unwrap();
    assert!(status.success());
    let told = fs::read(folder.join(format!("{name}.json"))).unwrap();
    Api::of(&serde_json::from_slice(&told).unwrap()).unwrap()
}

#[test]
fn what_programs_can_name_is_told_and_nothing_else() {
    let api = api_of(
        "shown",
        r#"
        mod inner {
            /// Documented, and named below.
            #[derive(Clone, Debug)]
            pub struct Lease<'a, T: Ord> { pub key: &'a str, secret: T }
            impl<T: Ord> Lease<'_, T> {
                pub async fn release(self, wait: impl Into<Option<u64>>) -> Result<(), String> { drop(self.secret); drop(wait); Ok(()) }
                #[doc(hidden)]
                pub fn hidden(&self) {}
                fn private(&self) {}
            }
            pub struct Unnamed;
        }
        pub mod locks {
            pub use super::inner::Lease;
            pub const MOST: usize = 2;
            pub struct Token(pub u64, ());
            pub trait Node: Send { fn name(&self) -> &dyn ToString; fn known(&mut self) -> [u8; 2] { [0, 0] } }
            pub enum Loss { Expired, Broken(String), Closed { why: &'static str } }
        }
        #[doc(hidden)]
        pub mod hidden { pub struct Gone; }
        pub use locks::Lease;
        pub use std::time::Duration;
        pub fn call(work: impl Fn(u8) -> Option<u8> + 'static, list: &mut [Box<dyn Fn() + Send>]) where { drop((work(1), list)) }
        "#,
    );
    let said = "\
use shown::Duration = std::time::Duration
use shown::Lease = shown::locks::Lease
fn shown::call(work: impl Fn(u8) -> Option<u8> + 'static, list: &mut [Box<dyn Fn() + Send>])
mod shown::locks
struct shown::locks::Lease<'a, T: Ord>: Clone + Debug
field shown::locks::Lease::key: &'a str
fn shown::locks::Lease::release(self, wait: impl Into<Option<u64>>) -> Result<(), String> = async
enum shown::locks::Loss
variant shown::locks::Loss::Broken(String)
variant shown::locks::Loss::Closed
field shown::locks::Loss::Closed::why: &'static str
variant shown::locks::Loss::Expired
const shown::locks::MOST: usize
trait shown::locks::Node: Send
required shown::locks::Node::known(&mut self) -> [u8; 2] { .. }
required shown::locks::Node::name(&self) -> &dyn ToString
struct shown::locks::Token(u64, _)
";
    assert_eq!(api.to_string(), said);
    assert_eq!((api.items, api.modules), (7, 1));
}

#[test]
fn a_change_of_an_interface_is_seen() {
    let before = api_of("before", "pub fn acquire(ttl: u64) {} pub fn release() {}");
    let recorded = before.to_string();
    assert_eq!(before.differs_from(&recorded), Vec::<String>::new());
    let changed = recorded
        .replace("u64", "u32")
        .replace("fn before::release()\n", "");
    let seen = [
        "- fn before::acquire(ttl: u32)",
        "+ fn before::acquire(ttl: u64)",
        "+ fn before::release()",
    ];
    assert_eq!(before.differs_from(&changed), seen);
}

/// Rustdoc changes its form now and then: better told than read wrongly.
#[test]
fn another_form_of_rustdocs_is_refused() {
    let other = serde_json::json!({"format_version": 999, "items": []});
    let why = Api::of(&other).unwrap_err();
    assert!(why.contains("version 999"), "{why}");
}
