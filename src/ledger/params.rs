//! What a trigger gives its run besides the configuration: parameters by name, few and small.
//!
//! They may hold secrets. They are kept in the trigger's document and in the ledger's row of its run, and shown by name
//! alone: `Debug` prints names, too.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Bytes that the parameters of a trigger may have as JSON.
pub(crate) const MAX_TRIGGER_PARAMS: usize = 4 * 1024;

/// Parameters of one trigger.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TriggerParams(Map<String, Value>);

/// Parameters cannot be given like this. Says nothing of their values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TriggerParamsError {
    /// They are too large.
    #[error(
        "the parameters have {bytes} bytes as JSON: {MAX_TRIGGER_PARAMS} are allowed; give a name or a path instead of the contents"
    )]
    TooLarge {
        /// What they have.
        bytes: usize,
    },
    /// A pair without its sign.
    #[error("a parameter has no `=`: write KEY=VALUE")]
    NoPair,
    /// A pair without its key.
    #[error("a parameter has no name before `=`: write KEY=VALUE")]
    NoKey,
    /// A name that would not stay what it is where it is shown.
    #[error(
        "the name of a parameter has a control character: write names in letters, digits, `_` and `-`"
    )]
    ControlCharacter,
    /// Two pairs have the same key.
    #[error("the parameter `{key}` is given twice: give it once")]
    Twice {
        /// Which.
        key: String,
    },
    /// A text that is no JSON object.
    #[error("the parameters are no JSON object: write {{\"KEY\": VALUE}}")]
    NoObject,
}

// === impl TriggerParams ===

impl TriggerParams {
    /// These parameters.
    ///
    /// # Errors
    /// [`TriggerParamsError::TooLarge`], [`TriggerParamsError::ControlCharacter`].
    pub fn new(params: Map<String, Value>) -> Result<Self, TriggerParamsError> {
        if params.is_empty() {
            return Ok(Self::default());
        }
        let params = Value::Object(params);
        if !are_printable(&params) {
            return Err(TriggerParamsError::ControlCharacter);
        }
        let bytes = params.to_string().len();
        match params {
            Value::Object(params) if bytes <= MAX_TRIGGER_PARAMS => Ok(Self(params)),
            _ => Err(TriggerParamsError::TooLarge { bytes }),
        }
    }

    /// As a command line says it: an object as JSON, and pairs `KEY=VALUE` that are laid over it. A value is read as JSON
    /// where it is JSON, and is a text elsewhere.
    ///
    /// # Errors
    /// [`TriggerParamsError`].
    #[doc(hidden)] // for the commands
    pub fn read<'a>(
        json: Option<&str>,
        pairs: impl IntoIterator<Item = &'a String>,
    ) -> Result<Self, TriggerParamsError> {
        let mut params: Map<String, Value> = match json {
            Some(text) => serde_json::from_str(text).map_err(|_| TriggerParamsError::NoObject)?,
            None => Map::new(),
        };
        let mut said = Map::new();
        for pair in pairs {
            let (key, value) = pair.split_once('=').ok_or(TriggerParamsError::NoPair)?;
            if key.is_empty() {
                return Err(TriggerParamsError::NoKey);
            }
            let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
            if key.chars().any(char::is_control) {
                return Err(TriggerParamsError::ControlCharacter);
            }
            if said.insert(key.to_owned(), value).is_some() {
                let key = key.to_owned();
                return Err(TriggerParamsError::Twice { key });
            }
        }
        params.extend(said);
        Self::new(params)
    }

    /// Whether there are none.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Their names, sorted.
    #[must_use]
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.0.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// The parameters of a job with these in the place of its own of the same name.
    #[must_use]
    pub(crate) fn over(&self, params: &Value) -> Value {
        if self.is_empty() {
            return params.clone();
        }
        let mut all = params.as_object().cloned().unwrap_or_default();
        all.extend(self.0.clone());
        Value::Object(all)
    }
}

/// Whether no name in it, however deep, has control characters: names are shown.
fn are_printable(value: &Value) -> bool {
    match value {
        Value::Object(table) => table
            .iter()
            .all(|(name, inner)| !name.chars().any(char::is_control) && are_printable(inner)),
        Value::Array(values) => values.iter().all(are_printable),
        _ => true,
    }
}

impl fmt::Debug for TriggerParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TriggerParams").field(&self.names()).finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(json: Option<&str>, pairs: &[&str]) -> Result<TriggerParams, TriggerParamsError> {
        let pairs: Vec<String> = pairs.iter().map(|pair| (*pair).to_owned()).collect();
        TriggerParams::read(json, &pairs)
    }

    #[test]
    fn a_value_is_json_where_it_is_json_and_a_text_elsewhere() {
        let pairs = [
            "pages=12",
            "day=2026-05-04",
            "dry=true",
            "to=[\"a\"]",
            "q=a=b",
            "none=",
        ];
        let given = read(None, &pairs).unwrap();
        assert_eq!(
            given.over(&Value::Null),
            json!({"pages": 12, "day": "2026-05-04", "dry": true, "to": ["a"], "q": "a=b", "none": ""})
        );
    }

    #[test]
    fn pairs_are_laid_over_the_object_and_both_over_the_configuration() {
        let given = read(Some(r#"{"a": 1, "b": 2}"#), &["b=3"]).unwrap();
        let over = given.over(&json!({"b": {"deep": 0}, "c": 4}));
        assert_eq!(over, json!({"a": 1, "b": 3, "c": 4}));
        let none = read(None, &[]).unwrap();
        assert_eq!(none.over(&Value::Null), Value::Null);
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_its_value() {
        let refused = |json, pairs: &[&str]| read(json, pairs).unwrap_err();
        assert_eq!(refused(None, &["hunter2"]), TriggerParamsError::NoPair);
        assert_eq!(refused(None, &["=hunter2"]), TriggerParamsError::NoKey);
        assert_eq!(refused(Some("[1]"), &[]), TriggerParamsError::NoObject);
        let twice = refused(None, &["a=1", "a=2"]);
        assert!(twice.to_string().contains("`a`"), "{twice}");
    }

    #[test]
    fn a_name_that_would_command_a_terminal_is_refused() {
        let refused = |json, pairs: &[&str]| read(json, pairs).unwrap_err();
        for error in [
            refused(None, &["a\u{1b}[31m=1"]),
            refused(None, &["a\r=1", "a\r=2"]),
            refused(Some(r#"{"a": [{"b\u009b": 1}]}"#), &[]),
        ] {
            assert_eq!(error, TriggerParamsError::ControlCharacter);
            assert!(!error.to_string().contains(char::is_control), "{error}");
        }
        assert!(
            read(None, &["text=a\u{1b}b"]).is_ok(),
            "a value may have them"
        );
    }

    #[test]
    fn too_much_is_refused_with_the_limit() {
        let fits = format!("a={}", "x".repeat(MAX_TRIGGER_PARAMS - r#"{"a":""}"#.len()));
        assert!(read(None, &[&fits]).is_ok());
        let error = read(None, &[&format!("{fits}x")]).unwrap_err();
        assert_eq!(error, TriggerParamsError::TooLarge { bytes: 4097 });
        assert!(error.to_string().contains("4096 are allowed"), "{error}");
    }

    #[test]
    fn only_names_are_printed() {
        let given = read(None, &["token=hunter2"]).unwrap();
        assert_eq!(format!("{given:?}"), r#"TriggerParams(["token"])"#);
    }
}
