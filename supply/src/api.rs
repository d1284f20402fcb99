//! What a crate shows to the programs of its users, one line per item, from the JSON of rustdoc.
//!
//! A line holds the kind of the item, its path and its signature, in which types stand by their last names. What is marked
//! `#[doc(hidden)]`, and what cannot be named from outside of the crate, has none. Of the traits of a type those are told that the
//! crate itself implements or derives.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt, fs,
    path::Path,
    process::Command,
};

use serde_json::Value;

use crate::metadata::{of_no_package, run};
use signature::{bounds, framed, generics, list, of_a_kind, resolved, signature, ty};

mod signature;

/// The public interface of one crate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Api {
    lines: BTreeSet<Line>,
    /// Types, traits, functions, methods, constants and macros. Not counted are the modules in which they stand, their parts (fields,
    /// variants, what a trait asks for), and second names of what stands elsewhere.
    pub items: usize,
    /// Modules directly under the crate.
    pub modules: usize,
}

/// By path, so that a type stands before what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    path: String,
    kind: &'static str,
    rest: String,
}

/// A way through the items of a crate, from its root.
struct Walk<'a> {
    index: &'a Value,
    paths: &'a Value,
    /// Where each item was found first.
    found: BTreeMap<String, String>,
    /// Re-exports: the module that has it, and what it says. Looked at last: what they name may have a path of its own, else it
    /// belongs to the module that lies next to it.
    again: Vec<(String, &'a Value)>,
    api: Api,
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines
            .iter()
            .try_for_each(|line| writeln!(f, "{} {}{}", line.kind, line.path, line.rest))
    }
}

// === impl Api ===

impl Api {
    /// Has rustdoc tell of these members of the workspace, with all features that their tests are built with.
    ///
    /// # Errors
    /// When it fails, in its words.
    pub fn of_crates(root: &Path, target: &Path, names: &[&str]) -> Result<Vec<Self>, String> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        of_no_package(&mut command);
        // As the tests are built, or half of the crates would be built again.
        command.args(["doc", "--workspace", "--features", "watchkeeper/testing"]);
        run(command
            .args(["--lib", "--no-deps"])
            .current_dir(root)
            .env("RUSTDOC", root.join("supply/rustdoc"))
            .env("RUSTDOCFLAGS", "-Zunstable-options --output-format=json"))?;
        let of_crate = |name: &&str| {
            let file = format!("doc/{}.json", name.replace('-', "_"));
            let file = target.join(file);
            let told = fs::read(&file).map_err(|why| format!("{}: {why}", file.display()))?;
            Self::of(&serde_json::from_slice(&told).map_err(|why| why.to_string())?)
        };
        names.iter().map(of_crate).collect()
    }

    /// Reads what rustdoc wrote of a crate.
    ///
    /// # Errors
    /// When it is of another form: rustdoc changes it from time to time.
    pub fn of(rustdoc: &Value) -> Result<Self, String> {
        Walk::through(rustdoc).ok_or_else(|| {
            let version = &rustdoc["format_version"];
            format!("rustdoc writes JSON in another form (version {version})")
        })
    }

    /// What differs from `recorded`: lines that are gone with a `-`, new ones with a `+`.
    #[must_use]
    pub fn differs_from(&self, recorded: &str) -> Vec<String> {
        let now = self.to_string();
        let (before, now): (BTreeSet<_>, BTreeSet<_>) =
            (recorded.lines().collect(), now.lines().collect());
        let gone = before.difference(&now).map(|line| format!("- {line}"));
        let new = now.difference(&before).map(|line| format!("+ {line}"));
        gone.chain(new).collect()
    }
}

// === impl Walk ===

impl<'a> Walk<'a> {
    fn through(rustdoc: &'a Value) -> Option<Api> {
        let mut walk = Self {
            index: rustdoc.get("index")?,
            paths: rustdoc.get("paths")?,
            found: BTreeMap::new(),
            again: Vec::new(),
            api: Api::default(),
        };
        let root = walk.item(rustdoc.get("root")?)?;
        let name = root.get("name")?.as_str()?;
        for child in list(&root["inner"]["module"]["items"]) {
            walk.visit(child, name, None);
        }
        // A re-export of a whole module may bring others.
        while let Some(next) = (0..walk.again.len()).max_by_key(|at| walk.nearness(*at)) {
            let (module, said) = walk.again.remove(next);
            walk.name_again(&module, said);
        }
        let top = |line: &&Line| line.kind == "mod" && line.path.matches("::").count() == 1;
        walk.api.modules = walk.api.lines.iter().filter(top).count();
        Some(walk.api)
    }

    /// How many modules a re-export shares with where the item was written; then those that come first.
    fn nearness(&self, at: usize) -> (usize, Reverse<usize>) {
        let (module, said) = &self.again[at];
        let written = list(&self.paths[key(&said["id"])]["path"]);
        let shared = written.zip(module.split("::")).take_while(|(a, b)| *a == b);
        (shared.count(), Reverse(at))
    }

    fn item(&self, id: &Value) -> Option<&'a Value> {
        self.index.get(key(id))
    }

    /// Tells of an item that stands in `module`, under another name if one is given.
    fn visit(&mut self, id: &Value, module: &str, name: Option<&str>) {
        let Some(item) = self.item(id) else { return };
        let Some((kind, inner)) = of_a_kind(&item["inner"]) else {
            return;
        };
        if kind == "use" {
            self.again.push((module.to_owned(), inner));
            return;
        }
        let name = name.or(item["name"].as_str()).unwrap_or_default();
        let path = format!("{module}::{name}");
        self.found.insert(key(id), path.clone());
        let generics = generics(&inner["generics"]);
        match kind {
            // Private or hidden, and mentioned for what others show of it.
            "module" if inner["is_stripped"] == true => {}
            "module" => {
                self.tell("mod", &path, "");
                for child in list(&inner["items"]) {
                    self.visit(child, &path, None);
                }
            }
            "struct" => {
                let shape = &inner["kind"];
                let fields = list(&shape["tuple"]).map(|id| self.type_of(id).unwrap_or("_".into()));
                let tuple = fields.collect::<Vec<_>>().join(", ");
                let rest = framed("(", &tuple, ")") + &self.traits(inner);
                self.count("struct", &path, &(generics + &rest));
                self.fields(list(&shape["plain"]["fields"]), &path);
                self.methods(inner, &path);
            }
            "union" | "enum" => {
                let kind = if kind == "enum" { "enum" } else { "union" };
                self.count(kind, &path, &format!("{generics}{}", self.traits(inner)));
                self.fields(list(&inner["fields"]), &path);
                for id in list(&inner["variants"]) {
                    self.variant(id, &path);
                }
                self.methods(inner, &path);
            }
            "trait" => {
                let bounds = framed(": ", &bounds(&inner["bounds"]), "");
                self.count("trait", &path, &(generics + &bounds));
                for part in list(&inner["items"]) {
                    self.part_of_trait(part, &path);
                }
            }
            "function" => self.count("fn", &path, &signature(inner)),
            "constant" | "static" => {
                let kind = if kind == "static" { "static" } else { "const" };
                self.count(kind, &path, &format!(": {}", ty(&inner["type"])));
            }
            "assoc_const" => self.count("const", &path, &format!(": {}", ty(&inner["type"]))),
            "type_alias" => {
                self.count(
                    "type",
                    &path,
                    &format!("{generics} = {}", ty(&inner["type"])),
                );
            }
            "macro" | "proc_macro" => self.count("macro", &path, ""),
            _ => {}
        }
    }

    /// A re-export: the only way to its target, or a second one.
    fn name_again(&mut self, module: &str, said: &'a Value) {
        let (id, name) = (&said["id"], said["name"].as_str().unwrap_or_default());
        let glob = said["is_glob"].as_bool().unwrap_or_default();
        let path = format!("{module}::{}", if glob { "*" } else { name });
        if let Some(target) = self.item(id) {
            let inside = &target["inner"]["module"]["items"];
            match self.found.get(&key(id)).cloned() {
                Some(first) => self.tell("use", &path, &format!(" = {first}")),
                None if glob => list(inside).for_each(|child| self.visit(child, module, None)),
                None => self.visit(id, module, Some(name)),
            }
        } else if self.paths[key(id)]["crate_id"].as_u64() != Some(0) {
            let source = said["source"].as_str().unwrap_or_default();
            self.tell("use", &path, &format!(" = {source}"));
        }
    }

    fn methods(&mut self, of: &'a Value, path: &str) {
        for id in list(&of["impls"]) {
            let block = self.item(id).map(|item| &item["inner"]["impl"]);
            let Some(block) = block.filter(|block| block["trait"].is_null()) else {
                continue;
            };
            for id in list(&block["items"]) {
                if self
                    .item(id)
                    .is_some_and(|item| item["visibility"] == "public")
                {
                    self.visit(id, path, None);
                }
            }
        }
    }

    /// What the crate implements for a type, as `: A + B`.
    fn traits(&self, of: &Value) -> String {
        let mut found = BTreeSet::new();
        for id in list(&of["impls"]) {
            let Some(block) = self.item(id).map(|item| &item["inner"]["impl"]) else {
                continue;
            };
            let name = resolved(&block["trait"]);
            let by_itself = block["is_synthetic"] == true || !block["blanket_impl"].is_null();
            match (name.as_str(), block["is_negative"] == true) {
                ("" | "StructuralPartialEq", _) => {}
                ("Send" | "Sync", true) => {
                    found.insert(format!("!{name}"));
                }
                _ if by_itself => {}
                _ => {
                    found.insert(name);
                }
            }
        }
        let found = found.into_iter().collect::<Vec<_>>().join(" + ");
        framed(": ", &found, "")
    }

    fn fields(&mut self, ids: impl Iterator<Item = &'a Value>, path: &str) {
        for id in ids {
            let name = self.item(id).and_then(|field| field["name"].as_str());
            if let (Some(name), Some(ty)) = (name, self.type_of(id)) {
                self.tell("field", &format!("{path}::{name}"), &format!(": {ty}"));
            }
        }
    }

    fn type_of(&self, field: &Value) -> Option<String> {
        Some(ty(self.item(field)?["inner"].get("struct_field")?))
    }

    fn variant(&mut self, id: &'a Value, path: &str) {
        let Some(item) = self.item(id) else { return };
        let path = format!("{path}::{}", item["name"].as_str().unwrap_or_default());
        let kind = &item["inner"]["variant"]["kind"];
        let tuple = list(&kind["tuple"]).map(|id| self.type_of(id).unwrap_or("_".into()));
        let tuple = tuple.collect::<Vec<_>>().join(", ");
        self.tell("variant", &path, &framed("(", &tuple, ")"));
        self.fields(list(&kind["struct"]["fields"]), &path);
    }

    fn part_of_trait(&mut self, id: &Value, path: &str) {
        let Some(item) = self.item(id) else { return };
        let path = format!("{path}::{}", item["name"].as_str().unwrap_or_default());
        let inner = &item["inner"];
        if let Some(function) = inner.get("function") {
            let given = if function["has_body"] == true {
                " { .. }"
            } else {
                ""
            };
            self.tell(
                "required",
                &path,
                &format!("{}{given}", signature(function)),
            );
        } else if let Some(constant) = inner.get("assoc_const") {
            self.tell("required", &path, &format!(": {}", ty(&constant["type"])));
        } else if let Some(assoc) = inner.get("assoc_type") {
            self.tell(
                "required",
                &path,
                &format!(": {}", bounds(&assoc["bounds"])),
            );
        }
    }

    fn count(&mut self, kind: &'static str, path: &str, rest: &str) {
        self.api.items += 1;
        self.tell(kind, path, rest);
    }

    fn tell(&mut self, kind: &'static str, path: &str, rest: &str) {
        self.api.lines.insert(Line {
            path: path.to_owned(),
            kind,
            rest: rest.to_owned(),
        });
    }
}

/// Ids were texts once, and are numbers now; keys are texts.
fn key(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}
