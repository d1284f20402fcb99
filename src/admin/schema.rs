//! Schemas of what is answered and taken, in the words of JSON Schema as OpenAPI 3.1 has it.
//!
//! They are written by hand, each beside the handler that answers it. The tests hold them to the types: an object has every field
//! of its schema and no other, so that neither can change alone.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// What a value looks like.
#[derive(Clone, Copy, Debug)]
pub(super) enum Schema {
    Text,
    /// One of these.
    Word(&'static [&'static str]),
    /// An instant, as RFC 3339 has it.
    Time,
    /// An integer from 0 on.
    Count,
    Integer,
    /// A number from 0 on.
    Number,
    Flag,
    /// This, or `null`.
    OrNull(&'static Schema),
    List(&'static Schema),
    /// An object whose keys are data.
    Map(&'static Schema),
    /// An object of which a job decides what is in it.
    Any,
    Named(&'static Named),
    /// One page of a list.
    Page(&'static Schema),
    /// The same of a list that may be too long to be looked through.
    PageOfSome(&'static Schema),
    /// One of these: the first field of each is its own word.
    OneOf(&'static [Variant]),
}

/// An object with a name.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) fields: &'static [Field],
}

/// One field of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) schema: Schema,
    /// It is never absent.
    pub(super) always: bool,
    /// Where it is there, these are as well.
    pub(super) with: &'static [&'static str],
}

/// An object that is told from others by the word in its field `type`, and has its own fields in `data`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Variant {
    pub(super) word: &'static str,
    pub(super) about: &'static str,
    /// What is the same for all of them.
    pub(super) around: &'static [Field],
    pub(super) data: &'static [Field],
}

/// A field that is never absent.
pub(super) const fn field(name: &'static str, about: &'static str, schema: Schema) -> Field {
    Field {
        name,
        about,
        schema,
        always: true,
        with: &[],
    }
}

/// A field that may be absent.
pub(super) const fn maybe(name: &'static str, about: &'static str, schema: Schema) -> Field {
    Field {
        name,
        about,
        schema,
        always: false,
        with: &[],
    }
}

const ITEMS: Field = field("items", "What stands on this page.", Schema::Text);
const NEXT: Field = field(
    "next",
    "Where the next page begins: the value of `after`. `null` on the last page.",
    Schema::OrNull(&Schema::Text),
);
const UNREAD: Field = maybe(
    "unread",
    "Jobs that may have some of these and were not looked at: so many are, and no more, for one answer.",
    Schema::Count,
);

// === impl Schema ===

impl Schema {
    pub(super) fn to_json(self) -> Value {
        match self {
            Self::Text => json!({"type": "string"}),
            Self::Word(words) => json!({"type": "string", "enum": words}),
            Self::Time => json!({"type": "string", "format": "date-time"}),
            Self::Count => json!({"type": "integer", "minimum": 0}),
            Self::Integer => json!({"type": "integer"}),
            Self::Number => json!({"type": "number", "minimum": 0}),
            Self::Flag => json!({"type": "boolean"}),
            Self::OrNull(inner) => or_null(inner.to_json()),
            Self::List(inner) => json!({"type": "array", "items": inner.to_json()}),
            Self::Map(inner) => {
                json!({"type": "object", "additionalProperties": inner.to_json()})
            }
            Self::Any => json!({"type": "object"}),
            Self::Named(named) => json!({"$ref": reference(named.name)}),
            Self::Page(inner) => object(
                "One page of the list.",
                &[ITEMS, NEXT],
                [("items", json!({"type": "array", "items": inner.to_json()}))],
            ),
            Self::PageOfSome(inner) => object(
                "One page of the list.",
                &[ITEMS, NEXT, UNREAD],
                [("items", json!({"type": "array", "items": inner.to_json()}))],
            ),
            Self::OneOf(variants) => {
                let variants: Vec<Value> = variants.iter().copied().map(Variant::to_json).collect();
                json!({"oneOf": variants})
            }
        }
    }

    /// Adds every object with a name that this one leads to.
    pub(super) fn collect(self, into: &mut BTreeMap<&'static str, Value>) {
        match self {
            Self::OrNull(inner)
            | Self::List(inner)
            | Self::Map(inner)
            | Self::Page(inner)
            | Self::PageOfSome(inner) => {
                inner.collect(into);
            }
            Self::Named(named) => named.collect(into),
            Self::OneOf(variants) => {
                for variant in variants {
                    let fields = variant.around.iter().chain(variant.data);
                    fields.for_each(|field| field.schema.collect(into));
                }
            }
            Self::Text
            | Self::Word(_)
            | Self::Time
            | Self::Count
            | Self::Integer
            | Self::Number
            | Self::Flag
            | Self::Any => {}
        }
    }
}

// === impl Field ===

impl Field {
    /// Where it is there, these are as well.
    pub(super) const fn with(self, others: &'static [&'static str]) -> Self {
        Self {
            with: others,
            ..self
        }
    }
}

// === impl Named ===

impl Named {
    /// Whether something must be said in it, always or with what is chosen.
    pub(super) fn is_needed(&self) -> bool {
        let mut fields = self.fields.iter();
        fields.any(|field| field.always || !field.with.is_empty())
    }

    /// Adds this object, and every other one that it leads to.
    pub(super) fn collect(&self, into: &mut BTreeMap<&'static str, Value>) {
        // An object may lead to itself.
        if into.contains_key(self.name) {
            return;
        }
        into.insert(self.name, object(self.about, self.fields, []));
        for field in self.fields {
            field.schema.collect(into);
        }
    }
}

// === impl Variant ===

impl Variant {
    fn to_json(self) -> Value {
        object(
            self.about,
            self.around,
            [
                ("type", json!({"type": "string", "const": self.word})),
                ("data", object(self.about, self.data, [])),
            ],
        )
    }
}

// === helpers ===

/// Where the object of this name stands in the description.
fn reference(name: &str) -> String {
    format!("#/components/schemas/{name}")
}

/// An object with these fields and no others; some of them have another schema here.
fn object<const N: usize>(
    about: &str,
    fields: &[Field],
    instead: [(&'static str, Value); N],
) -> Value {
    let mut instead = BTreeMap::from(instead);
    let mut properties = Map::new();
    let (mut required, mut dependent) = (Vec::new(), Map::new());
    for field in fields {
        let mut schema = match instead.remove(field.name) {
            Some(other) => other,
            None => field.schema.to_json(),
        };
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("description".to_owned(), field.about.into());
        }
        properties.insert(field.name.to_owned(), schema);
        if field.always {
            required.push(field.name);
        }
        if !field.with.is_empty() {
            dependent.insert(field.name.to_owned(), json!(field.with));
        }
    }
    let mut object = json!({
        "type": "object",
        "description": about,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    });
    if !dependent.is_empty() {
        object["dependentRequired"] = dependent.into();
    }
    object
}

fn or_null(schema: Value) -> Value {
    let simple = schema["type"].as_str().filter(|_| schema["enum"].is_null());
    match simple {
        Some(of) => {
            let both = json!([of, "null"]);
            let mut schema = schema;
            schema["type"] = both;
            schema
        }
        None => json!({"anyOf": [schema, {"type": "null"}]}),
    }
}
