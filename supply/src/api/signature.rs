//! Types and signatures as rustdoc's JSON has them, in the words of Rust.

use serde_json::Value;

/// What is behind the name of a function: `<T>(self, of: T) -> Result<(), Error> where T: Clone = async`.
pub(super) fn signature(function: &Value) -> String {
    let (header, said) = (&function["header"], &function["sig"]);
    let inputs = joined(list(&said["inputs"]), |input| {
        let (name, ty) = (text(&input[0]), ty(&input[1]));
        match (name.as_str(), ty.as_str()) {
            ("self", "Self") => name,
            ("self", ty) if ty.starts_with('&') && ty.ends_with("Self") => {
                ty.replace("Self", "self")
            }
            _ => format!("{name}: {ty}"),
        }
    });
    let marks = [
        ("is_const", " const"),
        ("is_async", " async"),
        ("is_unsafe", " unsafe"),
    ];
    let marks = marks.into_iter().filter(|(key, _)| header[key] == true);
    let marks: String = marks.map(|(_, mark)| mark).collect();
    let generics = &function["generics"];
    let bound = list(&generics["where_predicates"]);
    let bound = bound.filter_map(|predicate| predicate.get("bound_predicate"));
    let conditions = joined(bound, |said| {
        format!("{}: {}", ty(&said["type"]), bounds(&said["bounds"]))
    });
    [
        self::generics(generics),
        format!("({inputs})"),
        output(&said["output"]),
        framed(" where ", &conditions, ""),
        framed(" =", &marks, ""),
    ]
    .concat()
}

/// `<'a, T: Bound>`, without what `impl Trait` in an argument stands for.
pub(super) fn generics(value: &Value) -> String {
    let named = list(&value["params"]).filter(|it| it["kind"]["type"]["is_synthetic"] != true);
    let all = joined(named, |param| {
        let (name, kind) = (text(&param["name"]), &param["kind"]);
        match kind.get("const") {
            Some(constant) => format!("const {name}: {}", ty(&constant["type"])),
            None => name + &framed(": ", &bounds(&kind["type"]["bounds"]), ""),
        }
    });
    framed("<", &all, ">")
}

/// `A + B + 'a`
pub(super) fn bounds(value: &Value) -> String {
    let each = list(value).filter_map(|bound| {
        let said = &bound["trait_bound"];
        let maybe = if said["modifier"] == "maybe" { "?" } else { "" };
        match bound["outlives"].as_str() {
            Some(lifetime) => Some(lifetime.to_owned()),
            None => Some(format!("{maybe}{}", resolved(said.get("trait")?))),
        }
    });
    each.collect::<Vec<_>>().join(" + ")
}

/// The last name of a path, with its arguments.
pub(super) fn resolved(path: &Value) -> String {
    // It was `name` once.
    let name = path["path"].as_str().or(path["name"].as_str());
    let name = name.unwrap_or_default().rsplit("::").next();
    format!("{}{}", name.unwrap_or_default(), arguments(&path["args"]))
}

fn arguments(args: &Value) -> String {
    if let Some(round) = args.get("parenthesized") {
        let inputs = joined(list(&round["inputs"]), ty);
        return format!("({inputs}){}", output(&round["output"]));
    }
    let angle = &args["angle_bracketed"];
    let plain = list(&angle["args"]).map(|arg| match of_a_kind(arg) {
        Some(("type", said)) => ty(said),
        Some(("lifetime", said)) => text(said),
        Some((_, said)) => text(&said["expr"]),
        None => "_".to_owned(),
    });
    let bound = list(&angle["constraints"]).map(|it| {
        let (name, said) = (text(&it["name"]), &it["binding"]);
        match said.get("equality") {
            Some(equal) => format!("{name} = {}", ty(&equal["type"])),
            None => format!("{name}: {}", bounds(&said["constraint"])),
        }
    });
    let all: Vec<_> = plain.chain(bound).collect();
    framed("<", &all.join(", "), ">")
}

/// A type.
pub(super) fn ty(value: &Value) -> String {
    let Some((kind, said)) = of_a_kind(value) else {
        return "_".to_owned();
    };
    let inner = || ty(&said["type"]);
    let mutable = said["is_mutable"] == true;
    match kind {
        "resolved_path" => resolved(said),
        "primitive" if said == "never" => "!".to_owned(),
        "generic" | "primitive" => text(said),
        "tuple" => format!("({})", joined(list(said), ty)),
        "slice" => format!("[{}]", ty(said)),
        "array" => format!("[{}; {}]", inner(), text(&said["len"])),
        "impl_trait" => format!("impl {}", bounds(said)),
        "dyn_trait" => {
            let traits = list(&said["traits"]).map(|it| resolved(&it["trait"]));
            let all: Vec<_> = traits
                .chain(said["lifetime"].as_str().map(str::to_owned))
                .collect();
            format!("dyn {}", all.join(" + "))
        }
        "borrowed_ref" => {
            let lifetime = framed("", &text(&said["lifetime"]), " ");
            format!(
                "&{lifetime}{}{}",
                if mutable { "mut " } else { "" },
                inner()
            )
        }
        "raw_pointer" => format!("*{} {}", if mutable { "mut" } else { "const" }, inner()),
        "function_pointer" => {
            let inputs = joined(list(&said["sig"]["inputs"]), |input| ty(&input[1]));
            format!("fn({inputs}){}", output(&said["sig"]["output"]))
        }
        "qualified_path" => {
            let (of, name) = (ty(&said["self_type"]), text(&said["name"]));
            match resolved(&said["trait"]) {
                by if by.is_empty() => format!("{of}::{name}"),
                by => format!("<{of} as {by}>::{name}"),
            }
        }
        _ => "_".to_owned(),
    }
}

fn output(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        value => format!(" -> {}", ty(value)),
    }
}

/// `{"kind": said}`
pub(super) fn of_a_kind(value: &Value) -> Option<(&str, &Value)> {
    let (kind, said) = value.as_object()?.iter().next()?;
    Some((kind, said))
}

/// What stands in a list; nothing where there is none.
pub(super) fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn joined<'a>(values: impl Iterator<Item = &'a Value>, each: fn(&Value) -> String) -> String {
    values.map(each).collect::<Vec<_>>().join(", ")
}

/// Nothing around nothing.
pub(super) fn framed(before: &str, text: &str, after: &str) -> String {
    match text {
        "" => String::new(),
        text => format!("{before}{text}{after}"),
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
