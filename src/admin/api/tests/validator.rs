//! Whether a value fits a schema: as much of JSON Schema as the description of the API uses. A word that this does not know is a
//! fault, lest a schema be passed over.

use jiff::Timestamp;
use serde_json::Value;

/// What does not fit, each with its place.
pub(super) fn faults(description: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let validator = Validator { description };
    validator.compare(schema, value, "", &mut found);
    found
}

struct Validator<'a> {
    description: &'a Value,
}

// === impl Validator ===

impl Validator<'_> {
    fn compare(&self, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
        let Some(words) = schema.as_object() else {
            found.push(format!("{at}: {schema} is no schema"));
            return;
        };
        for (word, says) in words {
            let fits = match word.as_str() {
                "description" | "required" | "properties" | "additionalProperties" => true,
                "dependentRequired" => {
                    let mut rules = says.as_object().into_iter().flatten();
                    rules.all(|(name, others)| {
                        let mut others = others.as_array().into_iter().flatten();
                        let is_there = |of: &str| !value[of].is_null();
                        !is_there(name) || others.all(|other| other.as_str().is_some_and(is_there))
                    })
                }
                "$ref" => {
                    let place = says.as_str().unwrap_or_default().trim_start_matches('#');
                    match self.description.pointer(place) {
                        Some(named) => self.compare(named, value, at, found),
                        None => found.push(format!("{at}: there is no {says}")),
                    }
                    true
                }
                "type" => is_of(says, value),
                "enum" => says.as_array().is_some_and(|all| all.contains(value)),
                "const" => says == value,
                "format" => fits_format(says, value),
                "minimum" => value.as_f64().is_none_or(|n| says.as_f64() <= Some(n)),
                "anyOf" => self.fitting(says, value) >= 1,
                "oneOf" => self.fitting(says, value) == 1,
                "items" => {
                    for (n, item) in value.as_array().into_iter().flatten().enumerate() {
                        self.compare(says, item, &format!("{at}/{n}"), found);
                    }
                    true
                }
                _ => false,
            };
            if !fits {
                found.push(format!("{at}: {value} does not fit {word}: {says}"));
            }
        }
        if let Some(fields) = value.as_object() {
            self.compare_fields(schema, fields, at, found);
        }
    }

    fn compare_fields(
        &self,
        schema: &Value,
        fields: &serde_json::Map<String, Value>,
        at: &str,
        found: &mut Vec<String>,
    ) {
        for name in schema["required"].as_array().into_iter().flatten() {
            if !fields.contains_key(name.as_str().unwrap_or_default()) {
                found.push(format!("{at}: there is no {name}"));
            }
        }
        for (name, field) in fields {
            let at = format!("{at}/{name}");
            match (
                &schema["properties"][name.as_str()],
                &schema["additionalProperties"],
            ) {
                (Value::Null, Value::Bool(false)) => found.push(format!("{at}: is not described")),
                (Value::Null, Value::Null) => {}
                (Value::Null, other) => self.compare(other, field, &at, found),
                (known, _) => self.compare(known, field, &at, found),
            }
        }
    }

    /// How many of these schemas it fits.
    fn fitting(&self, schemas: &Value, value: &Value) -> usize {
        let schemas = schemas.as_array().into_iter().flatten();
        let fitting = schemas.filter(|schema| {
            let mut found = Vec::new();
            self.compare(schema, value, "", &mut found);
            found.is_empty()
        });
        fitting.count()
    }
}

fn is_of(says: &Value, value: &Value) -> bool {
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    };
    match says {
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is),
        _ => false,
    }
}

/// Of a value that may also be `null`, a format is said of its text.
fn fits_format(says: &Value, value: &Value) -> bool {
    let Some(text) = value.as_str() else {
        return true;
    };
    says == "date-time" && text.parse::<Timestamp>().is_ok()
}

#[test]
fn what_does_not_fit_is_found() {
    use serde_json::json;

    let description = json!({"components": {"schemas": {"Point": {
        "type": "object",
        "properties": {"x": {"type": "integer", "minimum": 0}},
        "required": ["x"],
        "additionalProperties": false,
    }}}});
    let point = json!({"$ref": "#/components/schemas/Point"});
    let or_null = json!({"anyOf": [point, {"type": "null"}]});
    for (schema, value, fits) in [
        (&point, json!({"x": 1}), true),
        (&point, json!({"x": -1}), false),
        (&point, json!({"x": 1.5}), false),
        (&point, json!({}), false),
        (&point, json!({"x": 1, "y": 1}), false),
        (&or_null, json!(null), true),
        (&or_null, json!({"y": 1}), false),
        (&json!({"type": ["string", "null"]}), json!(7), false),
        (
            &json!({"type": "string", "format": "date-time"}),
            json!("now"),
            false,
        ),
        (
            &json!({"type": "array", "items": {"type": "string"}}),
            json!(["a", 1]),
            false,
        ),
        (
            &json!({"oneOf": [{"type": "string"}, {"const": "a"}]}),
            json!("a"),
            false,
        ),
        (
            &json!({"$ref": "#/components/schemas/Line"}),
            json!({}),
            false,
        ),
        (&json!({"unheardOf": true}), json!({}), false),
    ] {
        let found = faults(&description, schema, &value);
        assert_eq!(found.is_empty(), fits, "{schema} {value}: {found:?}");
    }
}
