//! The software bill of materials of the command: what is in it, from where and under which licence, and what needs what. In the
//! words of CycloneDX 1.5, which scanners read.
//!
//! The same for the same sources: it has no serial number, and no time unless one is given. Cargo joins the features that all of the
//! workspace asks for, so that a crate may be named which only a test switches on; none is left out.

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::{Map, Value, json};

use crate::{Krate, Licences, Metadata};

/// The crate that brings the sources of SQLite.
const BRINGS_SQLITE: &str = "libsqlite3-sys";

/// The bill of the program `program`, which the member `member` makes, for the machine that `found` was asked about. `time` is in
/// the form `2026-11-26T12:00:00Z`.
///
/// # Errors
/// When `Cargo.lock`, a licence or the version of SQLite cannot be read.
pub fn bom(
    found: &Metadata,
    root: &Path,
    (program, member): (&str, &str),
    time: Option<&str>,
) -> Result<String, String> {
    let sums = sums(&root.join("Cargo.lock"))?;
    let mut metadata = Map::new();
    if let Some(time) = time {
        metadata.insert("timestamp".to_owned(), time.into());
    }
    let tool = json!({
        "type": "application", "name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION"),
    });
    metadata.insert("tools".to_owned(), json!({ "components": [tool] }));
    let (mut components, mut dependencies) = (Vec::new(), Vec::new());
    for (krate, needs) in found.parts_of(member) {
        let mut component = component(krate, &sums)?;
        let mut needs: Vec<String> = needs.into_iter().map(purl).collect();
        if krate.name == BRINGS_SQLITE {
            let sqlite = sqlite(krate)?;
            needs.extend(sqlite["purl"].as_str().map(str::to_owned));
            dependencies.push(json!({ "ref": sqlite["purl"] }));
            components.push(sqlite);
        }
        dependencies.push(json!({ "ref": purl(krate), "dependsOn": needs }));
        if krate.name == member {
            component["type"] = "application".into();
            component["name"] = program.into();
            metadata.insert("component".to_owned(), component);
        } else {
            components.push(component);
        }
    }
    if !metadata.contains_key("component") {
        return Err(format!("there is no {member} in this workspace"));
    }
    let bom = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": metadata,
        "components": components,
        "dependencies": dependencies,
    });
    let text = serde_json::to_string_pretty(&bom).map_err(|why| why.to_string())?;
    Ok(text + "\n")
}

/// The name by which scanners know a crate.
fn purl(krate: &Krate) -> String {
    let version = krate.version.replace('+', "%2B");
    format!("pkg:cargo/{}@{version}", krate.name)
}

fn component(krate: &Krate, sums: &BTreeMap<(String, String), String>) -> Result<Value, String> {
    let licence = Licences::parse(&krate.licence).map_err(|why| format!("{krate}: {why}"))?;
    let mut component = json!({
        "type": "library",
        "bom-ref": purl(krate),
        "name": krate.name,
        "version": krate.version,
        "licenses": [{ "expression": licence.to_string() }],
        "purl": purl(krate),
    });
    // A crate of this workspace has none: it is built from the sources that lie here.
    if let Some(sum) = sums.get(&(krate.name.clone(), krate.version.clone())) {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    if krate.repository.starts_with("https://") {
        component["externalReferences"] = json!([{ "type": "vcs", "url": krate.repository }]);
    }
    Ok(component)
}

/// SQLite itself, which is no crate, and which those who look for known faults look for.
fn sqlite(krate: &Krate) -> Result<Value, String> {
    let header = krate.folder.join("sqlite3/sqlite3.h");
    let text = fs::read_to_string(&header).map_err(|why| format!("{}: {why}", header.display()))?;
    let mut lines = text.lines();
    let version = lines.find_map(|line| line.strip_prefix("#define SQLITE_VERSION "));
    let version = version.map(|version| version.trim().trim_matches('"'));
    let version = version.ok_or_else(|| format!("{} names no version", header.display()))?;
    let purl = format!("pkg:generic/sqlite@{version}");
    Ok(json!({
        "type": "library",
        "bom-ref": purl,
        "name": "sqlite",
        "version": version,
        "licenses": [{ "expression": "blessing" }],
        "cpe": format!("cpe:2.3:a:sqlite:sqlite:{version}:*:*:*:*:*:*:*"),
        "purl": purl,
    }))
}

/// The sums of what is fetched, by name and version.
fn sums(lock: &Path) -> Result<BTreeMap<(String, String), String>, String> {
    let told = |why: &dyn std::fmt::Display| format!("{}: {why}", lock.display());
    let text = fs::read_to_string(lock).map_err(|why| told(&why))?;
    let table: toml::Table = text.parse().map_err(|why| told(&why))?;
    let packages = table.get("package").and_then(toml::Value::as_array);
    let of = |package: &toml::Value, key: &str| Some(package.get(key)?.as_str()?.to_owned());
    let sums = packages.into_iter().flatten().filter_map(|package| {
        let name = (of(package, "name")?, of(package, "version")?);
        Some((name, of(package, "checksum")?))
    });
    Ok(sums.collect())
}
