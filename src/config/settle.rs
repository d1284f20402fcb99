//! What a parameter is that came as a text, from the environment or a flag: its job's kind decides.

use serde_json::Value;

use super::{
    Config, LoadOptions,
    problem::{Provenance, Source},
    text,
};

/// Texts given for parameters are tried in every reading up to this many of them.
const MOST_TEXTS: usize = 6;

/// Lets each kind decide whether a parameter that came as a text (from the environment or a flag) is a text, a number
/// or something else: the reading it likes best is taken.
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
        texts.truncate(MOST_TEXTS);
        // Not the first without a problem: the kind may have others to report.
        let mut fewest = check(kind, &spec.params).iter().count();
        let written = spec.params.clone();
        for choice in 1..1_u32 << texts.len() {
            if fewest == 0 {
                break;
            }
            let mut params = written.clone();
            for (i, (pointer, reading)) in texts.iter().enumerate() {
                if choice & (1 << i) != 0
                    && let Some(place) = params.pointer_mut(pointer)
                {
                    *place = reading.clone();
                }
            }
            let count = check(kind, &params).iter().count();
            if count < fewest {
                fewest = count;
                spec.params = params;
            }
        }
    }
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
