//! Reads parameters as a type. What does not fit is told by its key and by what was expected, never by its value: the
//! text goes to logs and histories, and a parameter may be a secret.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// A parameter does not fit the type that the job reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", place(key))]
pub(crate) struct Misfit {
    /// Which one; empty when it is not known.
    pub(crate) key: String,
    /// What is wrong with it.
    pub(crate) why: String,
}

/// Reads the parameters.
pub(crate) fn read<P: DeserializeOwned>(params: &Value) -> Result<P, Misfit> {
    P::deserialize(params).map_err(|error| misfit::<P>(params, &error.to_string()))
}

fn place(key: &str) -> String {
    match key {
        "" => "params".to_owned(),
        key => format!("params.{key}"),
    }
}

fn misfit<P: DeserializeOwned>(params: &Value, text: &str) -> Misfit {
    // These name a key, and no value.
    for begin in ["missing field `", "unknown field `", "duplicate field `"] {
        if let Some((key, _)) = text.strip_prefix(begin).and_then(|t| t.split_once('`')) {
            let (key, why) = (key.to_owned(), text.to_owned());
            return Misfit { key, why };
        }
    }
    let key = culprit::<P>(params, text).unwrap_or_default();
    let of = params.get(&key).unwrap_or(params);
    let why = match text.rsplit_once(", expected ") {
        // What stands before it tells the value.
        Some((_, expected)) => format!("expected {expected}"),
        None if shows(text, of) => "it does not fit".to_owned(),
        None => text.to_owned(),
    };
    Misfit { key, why }
}

/// The key without which the complaint is another one.
fn culprit<P: DeserializeOwned>(params: &Value, text: &str) -> Option<String> {
    let all = params.as_object()?;
    let without = |key: &&String| {
        let mut others = all.clone();
        others.remove(key.as_str());
        match P::deserialize(&Value::Object(others)) {
            Ok(_) => true,
            Err(other) => other.to_string() != text,
        }
    };
    all.keys().find(without).cloned()
}

/// Whether the text has any of the values in it.
fn shows(text: &str, value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) => false,
        Value::Number(number) => text.contains(&number.to_string()),
        Value::String(value) => !value.is_empty() && text.contains(value.as_str()),
        Value::Array(values) => values.iter().any(|value| shows(text, value)),
        Value::Object(values) => values.values().any(|value| shows(text, value)),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code, reason = "read alone")]
    struct Params {
        pages: u64,
        #[serde(default)]
        how: How,
        host: Option<Ipv4Addr>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum How {
        #[default]
        Fast,
        Careful,
    }

    fn refused(params: &Value) -> String {
        read::<Params>(params).unwrap_err().to_string()
    }

    #[test]
    fn a_parameter_that_does_not_fit_is_named_without_its_value() {
        let cases = [
            (json!({"pages": "hunter2"}), "params.pages: expected u64"),
            (json!({"pages": -7}), "params.pages: expected u64"),
            (
                json!({"pages": 1, "how": "hunter2, expected"}),
                "params.how: expected `fast` or `careful`",
            ),
            (
                json!({"how": "fast"}),
                "params.pages: missing field `pages`",
            ),
        ];
        for (params, said) in cases {
            assert_eq!(refused(&params), said);
        }
        let unknown = refused(&json!({"pages": 1, "page": "hunter2"}));
        assert!(
            unknown.starts_with("params.page: unknown field `page`"),
            "{unknown}"
        );
        let host = refused(&json!({"pages": 1, "host": "hunter2"}));
        assert!(host.starts_with("params.host: "), "{host}");
        for text in [
            unknown,
            host,
            refused(&json!(["hunter2"])),
            refused(&json!("hunter2")),
        ] {
            assert!(!text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn what_fits_is_read() {
        let read = read::<Params>(&json!({"pages": 3})).unwrap();
        assert_eq!(read.pages, 3);
    }
}
