//! Which file of a crate uses which, read from its source: from paths, and from what `use` makes of a name.
//!
//! Self-contained, so that the tests of other crates can include it with `#[path]`. Left out are comments, texts, and whatever
//! is compiled for tests alone. A file that passes a name on (`pub use`) does not use it: the file that defines it is used by
//! those who name it. What only methods lead to is not seen.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The files of one crate by their path from the root.
pub struct Source {
    files: BTreeMap<String, File>,
    /// Each module that is a file.
    modules: BTreeMap<String, String>,
}

/// Which files each file uses, and by which paths.
pub type Uses = BTreeMap<String, BTreeMap<String, BTreeSet<String>>>;

/// Whose names are followed to the file that defines them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Follow {
    /// Those that any module passes on.
    All,
    /// Those of the root alone: what else passes a name on is what is used.
    Root,
}

/// Words before the name of something that a file defines.
const DEFINED_BY: [&str; 9] = [
    "const",
    "enum",
    "fn",
    "macro_rules",
    "static",
    "struct",
    "trait",
    "type",
    "union",
];

/// What stands in a file.
#[derive(Default)]
struct File {
    /// Every path that is followed.
    paths: Vec<Vec<String>>,
    /// Names that `use` brings in, each with its path; `*` for all of a module.
    names: BTreeMap<String, Vec<Vec<String>>>,
    defines: BTreeSet<String>,
    /// Modules for tests alone.
    tests: Vec<String>,
}

// === impl Source ===

impl Source {
    /// The crate whose root file lies in `folder`.
    pub fn read(folder: &Path) -> Self {
        let mut texts = BTreeMap::new();
        collect(folder, folder, &mut texts);
        Self::of(&texts)
    }

    /// The crate that has these files.
    pub fn of(texts: &BTreeMap<String, String>) -> Self {
        let read = |(path, text): (&String, &String)| (path.clone(), File::read(text));
        let mut files: BTreeMap<String, File> = texts.iter().map(read).collect();
        let tests = files.iter().flat_map(|(path, file)| {
            let within = module_of(path);
            file.tests.iter().map(move |name| join(&within, name))
        });
        let tests: Vec<String> = tests.collect();
        files.retain(|path, _| {
            let module = module_of(path);
            let test = |test: &String| {
                let rest = module.strip_prefix(test.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
            };
            !tests.iter().any(test)
        });
        let modules = files.keys().map(|path| (module_of(path), path.clone()));
        Self {
            modules: modules.collect(),
            files,
        }
    }

    /// Which files each file uses.
    pub fn uses(&self, follow: Follow) -> Uses {
        let mut uses = Uses::new();
        for (from, file) in &self.files {
            let used = uses.entry(from.clone()).or_default();
            for path in &file.paths {
                if let Some(to) = self.resolve(&module_of(from), path, follow, 0)
                    && to != from
                {
                    used.entry(to.clone()).or_default().insert(path.join("::"));
                }
            }
        }
        uses
    }

    /// The file that defines what `path` names in `module`; none where that is another crate, or nothing that is found.
    fn resolve(
        &self,
        module: &str,
        path: &[String],
        follow: Follow,
        depth: usize,
    ) -> Option<&String> {
        if depth > 16 {
            return None;
        }
        let mut at = module.to_owned();
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                at.clear();
                rest = &path[1..];
            }
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|word| word == "super") {
                    at.truncate(at.rfind("::").unwrap_or(0));
                    rest = &rest[1..];
                }
            }
            name => {
                let child = self.modules.contains_key(&join(&at, name));
                let file = &self.files[self.modules.get(&at)?];
                if !child && !file.names.contains_key(name) {
                    return None;
                }
            }
        }
        while let Some(name) = rest.first() {
            let inner = join(&at, name);
            if self.modules.contains_key(&inner) {
                at = inner;
                rest = &rest[1..];
                continue;
            }
            let here = self.modules.get(&at)?;
            let file = &self.files[here];
            let passes_on = follow == Follow::All || here == "lib.rs";
            if !passes_on || file.defines.contains(name) {
                return Some(here);
            }
            if let Some(ways) = file.names.get(name) {
                // One name may be a type, a function and a module, from one place each.
                return ways.iter().find_map(|way| {
                    let way = [way.as_slice(), &rest[1..]].concat();
                    self.resolve(&at, &way, follow, depth + 1)
                });
            }
            let all = file.names.get("*").into_iter().flatten();
            let mut all = all.filter_map(|way| self.resolve(&at, way, follow, depth + 1));
            return all
                .find(|to| self.files[*to].defines.contains(name))
                .or(Some(here));
        }
        self.modules.get(&at)
    }
}

/// The largest sets of files that lead to each other.
pub fn circles(uses: &Uses) -> Vec<BTreeSet<&str>> {
    // What leads nowhere, or only to such, is in none.
    let mut open: BTreeSet<&str> = uses.keys().map(String::as_str).collect();
    loop {
        let before = open.len();
        let inner = open.clone();
        open.retain(|file| uses[*file].keys().any(|to| inner.contains(to.as_str())));
        if open.len() == before {
            break;
        }
    }
    let reach = open.iter().map(|file| (*file, reach(uses, file)));
    let reach: BTreeMap<&str, BTreeSet<&str>> = reach.collect();
    let mut found: Vec<BTreeSet<&str>> = Vec::new();
    for (file, there) in &reach {
        let back = |to: &&&str| reach.get(*to).is_some_and(|there| there.contains(file));
        let circle: BTreeSet<&str> = there.iter().filter(back).copied().collect();
        if !circle.is_empty() && !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

/// Where the uses of a file lead to: to itself only by way of another.
fn reach<'a>(uses: &'a Uses, file: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut open = vec![file];
    while let Some(file) = open.pop() {
        for to in uses[file].keys() {
            if found.insert(to.as_str()) {
                open.push(to);
            }
        }
    }
    found
}

// === impl File ===

impl File {
    fn read(text: &str) -> Self {
        let words = words(text);
        let mut file = Self::default();
        // Names that are passed on, with their paths: uses only where the file says them again itself.
        let mut passed: Vec<(String, Vec<String>)> = Vec::new();
        let mut said: BTreeSet<&str> = BTreeSet::new();
        // At which depth of braces each inline module ends.
        let mut inline: Vec<usize> = Vec::new();
        let (mut depth, mut at) = (0, 0);
        while at < words.len() {
            let before = at.checked_sub(1).map_or("", |before| words[before]);
            match words[at] {
                "#" if for_tests(&words[at..]) => {
                    at = file.skip(&words, at);
                    continue;
                }
                "{" => depth += 1,
                "}" => {
                    depth -= 1;
                    if inline.last() == Some(&depth) {
                        inline.pop();
                    }
                }
                "mod" => {
                    at += 1;
                    if words.get(at + 1) == Some(&"{") {
                        inline.push(depth);
                    }
                }
                "use" if words.get(at + 1) != Some(&"<") => {
                    let rest = &words[at + 1..];
                    let end = rest.iter().position(|word| *word == ";");
                    let tree = &rest[..end.unwrap_or(rest.len())];
                    for (name, path) in file.bring_in(tree, inline.len()) {
                        match ["pub", ")"].contains(&before) {
                            true => passed.push((name, path)),
                            false => file.paths.push(path),
                        }
                    }
                    at += tree.len();
                }
                word if is_name(word) => {
                    if DEFINED_BY.contains(&before) {
                        file.defines.insert(word.to_owned());
                    } else if !["::", ".", "$"].contains(&before) {
                        said.insert(word);
                        // `pub(in crate::…)` uses nothing.
                        if !words[..at].ends_with(&["pub", "(", "in"]) {
                            let path = path_from(&words[at..]);
                            file.paths
                                .extend(path.map(|path| outward(path, inline.len())));
                        }
                    }
                }
                _ => {}
            }
            at += 1;
        }
        passed.retain(|(name, _)| said.contains(name.as_str()));
        file.paths.extend(passed.into_iter().map(|(_, path)| path));
        file
    }

    /// Notes the names of a tree of `use`; answers with them and their paths.
    fn bring_in(&mut self, tree: &[&str], inline: usize) -> Vec<(String, Vec<String>)> {
        let mut found = Vec::new();
        expand(tree, &[], &mut found);
        for (name, path) in &mut found {
            // All of a module is named by the module.
            path.truncate(path.len() - usize::from(name == "*"));
            *path = outward(std::mem::take(path), inline);
            if inline == 0 {
                self.names
                    .entry(name.clone())
                    .or_default()
                    .push(path.clone());
            }
        }
        found
    }

    /// The place behind an item that is for tests alone.
    fn skip(&mut self, words: &[&str], from: usize) -> usize {
        let (mut depth, mut at) = (0, from);
        while at < words.len() {
            match words[at] {
                "(" | "[" | "{" => depth += 1,
                // The end of what the item stands in.
                ")" | "]" | "}" if depth == 0 => return at,
                "}" if depth == 1 => return at + 1,
                ")" | "]" | "}" => depth -= 1,
                ";" | "," if depth == 0 => return at + 1,
                "mod" if depth == 0 => self
                    .tests
                    .extend(words.get(at + 1).map(|name| (*name).to_owned())),
                _ => {}
            }
            at += 1;
        }
        at
    }
}

/// Whether an attribute begins here that is there in tests alone.
fn for_tests(words: &[&str]) -> bool {
    words.starts_with(&["#", "[", "cfg", "(", "test"])
        || words.starts_with(&["#", "[", "cfg", "(", "all", "(", "test"])
}

/// Each name that a tree of `use` brings in, and its path.
fn expand(tree: &[&str], before: &[String], found: &mut Vec<(String, Vec<String>)>) {
    let mut path = before.to_vec();
    let mut at = 0;
    while at < tree.len() {
        match tree[at] {
            "{" => {
                let (mut depth, mut from) = (0, at + 1);
                for (end, word) in tree.iter().enumerate().skip(at + 1) {
                    match *word {
                        "{" => depth += 1,
                        "," if depth == 0 => {
                            expand(&tree[from..end], &path, found);
                            from = end + 1;
                        }
                        "}" if depth == 0 => return expand(&tree[from..end], &path, found),
                        "}" => depth -= 1,
                        _ => {}
                    }
                }
                return;
            }
            "as" => {
                let name = tree.get(at + 1).copied().unwrap_or_default();
                return found.push((name.to_owned(), path));
            }
            "::" => {}
            // The module itself, within braces.
            "self" if !path.is_empty() => {}
            word => path.push(word.to_owned()),
        }
        at += 1;
    }
    if let Some(name) = path.last().filter(|_| !tree.is_empty()) {
        found.push((name.clone(), path.clone()));
    }
}

/// The path that begins here, if one does.
fn path_from(words: &[&str]) -> Option<Vec<String>> {
    if words.get(1) != Some(&"::") {
        return None;
    }
    let mut path = Vec::new();
    for pair in words.chunks(2).take_while(|pair| is_name(pair[0])) {
        path.push(pair[0].to_owned());
        if pair.get(1) != Some(&"::") {
            break;
        }
    }
    Some(path)
}

/// A path in an inline module, as the file would write it.
fn outward(mut path: Vec<String>, inline: usize) -> Vec<String> {
    let supers = path.iter().take_while(|word| *word == "super").count();
    path.drain(..supers.min(inline));
    if (1..=inline).contains(&supers) {
        path.insert(0, "self".to_owned());
    }
    path
}

/// Words and signs, without comments and texts.
fn words(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = |sign: &str| rest.find(sign).map_or(rest.len(), |at| at + sign.len());
        let length = if rest.starts_with("//") {
            end("\n")
        } else if rest.starts_with("/*") {
            end("*/")
        } else if first == '"' {
            quoted(rest)
        } else if let Some(length) = raw(rest) {
            length
        } else if first == '\'' {
            // A letter, or else the name of a lifetime.
            let mut letters = rest.char_indices().skip(1);
            match (letters.next(), letters.next()) {
                (Some((_, '\\')), Some((at, _))) => {
                    let after = at + rest[at..].chars().next().map_or(0, char::len_utf8);
                    after + rest[after..].find('\'').map_or(0, |at| at + 1)
                }
                (_, Some((at, '\''))) => at + 1,
                _ => 1,
            }
        } else {
            let word = rest.find(|c: char| !is_of_a_name(c)).unwrap_or(rest.len());
            let length = match word {
                0 if rest.starts_with("::") => 2,
                0 => first.len_utf8(),
                word => word,
            };
            if !first.is_whitespace() {
                found.push(&rest[..length]);
            }
            length
        };
        rest = &rest[length..];
    }
    found
}

/// How long a text in quotes is.
fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// How long a raw text is that begins here.
fn raw(text: &str) -> Option<usize> {
    let start = text.strip_prefix("br").or(text.strip_prefix('r'))?;
    let fence = start.len() - start.trim_start_matches('#').len();
    let inner = start[fence..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(fence));
    let begin = text.len() - inner.len();
    Some(begin + inner.find(&end).map_or(inner.len(), |at| at + end.len()))
}

fn is_of_a_name(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c == '_' || c.is_alphabetic())
}

/// `a::b` of `a/b.rs` and `a/b/mod.rs`; nothing of the root.
fn module_of(path: &str) -> String {
    let path = path.trim_end_matches(".rs");
    match path.strip_suffix("/mod").unwrap_or(path) {
        "lib" => String::new(),
        path => path.replace('/', "::"),
    }
}

fn join(module: &str, name: &str) -> String {
    match module {
        "" => name.to_owned(),
        module => format!("{module}::{name}"),
    }
}

fn collect(root: &Path, folder: &Path, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(root, &path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).unwrap().display().to_string();
            found.insert(name, fs::read_to_string(&path).unwrap());
        }
    }
}
