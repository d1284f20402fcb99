//! What a parameter is that came as a text, from the environment or a flag: its job's kind decides.

use serde_json::Value;

use crate::finding::Findings;

use super::{
    Config, LoadOptions,
    problem::{Provenance, Source},
    text,
};

/// Lets each kind decide whether a parameter that came as a text (from the environment or a flag) is a text, a number
/// or something else: a text that its check complains of is read the other way where that helps.
pub(super) fn settle_params(config: &mut Config, options: &LoadOptions, provenance: &Provenance) {
    let Some(check) = &options.check_params else {
        return;
    };
    for (name, spec) in &mut config.jobs {
        let Some(kind) = spec.kind.as_deref() else {
            continue;
        };
        let mut texts = Vec::new();
        find_texts(&spec.params, "", &mut texts);
        texts.retain(|(pointer, _)| {
            let key = format!("jobs.{name}.params{}", pointer.replace('/', "."));
            matches!(provenance.of(&key), Source::Env(_) | Source::Flag(_))
        });
        let mut problems = check(kind, &spec.params);
        let mut no_help = Vec::new();
        while let Some(at) = texts.iter().position(|text| about(&problems, &text.0)) {
            let text = texts.remove(at);
            let params = read_otherwise(&spec.params, [&text]);
            let found = check(kind, &params);
            // A check that stops at the first problem complains of the next one then.
            let next = count(&found) == count(&problems) && !about(&found, &text.0);
            if count(&found) < count(&problems) || next {
                (spec.params, problems) = (params, found);
            } else {
                no_help.push(text);
            }
        }
        // One problem may have several causes.
        let params = read_otherwise(&spec.params, &no_help);
        if !no_help.is_empty() && count(&check(kind, &params)) < count(&problems) {
            spec.params = params;
        }
    }
}

fn count(found: &Findings) -> usize {
    found.iter().count()
}

/// Whether any of the problems is about the text at this place, or about what it is part of.
fn about(problems: &Findings, pointer: &str) -> bool {
    let place = format!("{}.", pointer.replace('/', "."));
    let mut keys = problems.iter().flat_map(|problem| &problem.keys);
    keys.any(|key| key.is_empty() || place.starts_with(&format!(".{key}.")))
}

/// The parameters with these texts in their other readings.
fn read_otherwise<'a>(
    params: &Value,
    texts: impl IntoIterator<Item = &'a (String, Value)>,
) -> Value {
    let mut params = params.clone();
    for (pointer, reading) in texts {
        if let Some(place) = params.pointer_mut(pointer) {
            *place = reading.clone();
        }
    }
    params
}

/// Texts within `value` that have another reading, by JSON pointer.
fn find_texts(value: &Value, pointer: &str, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(table) => {
            for (key, inner) in table {
                find_texts(inner, &format!("{pointer}/{key}"), found);
            }
        }
        Value::String(written) => {
            let reading = text::as_toml(written).filter(|reading| !reading.is_string());
            found.extend(reading.map(|reading| (pointer.to_owned(), reading)));
        }
        _ => {}
    }
}
