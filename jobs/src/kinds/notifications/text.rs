//! Texts with columns of a row in them: `${name}`, a field of JSON in it as `${name.field}`, and the JSON itself as
//! `${name:json}`; `$${` stands for `${`.
//!
//! A value is escaped by what it stands in, so that none can leave its place: between quotes of JSON, outside of them,
//! in HTML. A text that is one placeholder and nothing else takes the column as it is: the application has written the whole.
//!
//! The mechanism is that of the kind `http`, with columns instead of facts of a run. It has no conditions and no loops on
//! purpose: what needs them is written by the application, into a column.
//!
//! # Invariants
//! - X1 Whatever a row holds, a text of JSON stays JSON of the same shape, but where `:json` asks for more.
//!   (`no_value_leaves_its_place`)
//! - X2 A header is one line, or the row is refused.             (`a_header_is_one_line_or_nothing`)

use serde_json::{Map, Value};

use crate::kinds::template::{Part, Template};

/// What a text is, and what a value must not do in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// JSON.
    Json,
    /// HTML.
    #[cfg_attr(not(feature = "smtp"), allow(dead_code, reason = "for mails alone"))]
    Html,
    /// A header of a mail: one line.
    Header,
    /// Anything else: values as they are.
    Plain,
}

/// A text with placeholders for columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    form: Form,
    template: Template<Column>,
}

/// A placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Column {
    name: String,
    /// Fields of the JSON that the column holds.
    path: Vec<String>,
    /// Whether the JSON is wanted, and not a text.
    json: bool,
    /// Whether it stands between quotes of JSON.
    quoted: bool,
}

const KNOWN: &str = "write `${COLUMN}`, `${COLUMN.FIELD}` for a field of JSON in it, or `${COLUMN:json}` for that JSON";

// === impl Text ===

impl Text {
    /// Reads a text, and tries it with a made-up row.
    ///
    /// # Errors
    /// A sentence for the reader of the configuration.
    pub(crate) fn parse(text: &str, form: Form) -> Result<Self, String> {
        let template = Template::parse(text, KNOWN, |name, before| {
            Column::parse(name, form == Form::Json && ends_in_quotes(before))
        })?;
        let text = Self { form, template };
        if form == Form::Json && !text.is_one_column() {
            serde_json::from_str::<serde::de::IgnoredAny>(&text.sample()).map_err(|error| {
                format!(
                    "is not valid JSON at line {}, column {} (placeholders filled in)",
                    error.line(),
                    error.column()
                )
            })?;
        }
        if form == Form::Header && has_controls(&text.sample()) {
            return Err("holds a line break or another control character".to_owned());
        }
        Ok(text)
    }

    /// The columns that it needs.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &str> {
        self.template
            .placeholders()
            .map(|column| column.name.as_str())
    }

    /// The column that is the whole text, if it is one column and nothing else.
    #[cfg_attr(
        not(feature = "postgres"),
        allow(dead_code, reason = "others keep JSON as text")
    )]
    pub(crate) fn whole_column(&self) -> Option<&str> {
        match self.template.parts() {
            [Part::Placeholder(column)] if !column.json && column.path.is_empty() => {
                Some(&column.name)
            }
            _ => None,
        }
    }

    /// The text for one row.
    ///
    /// # Errors
    /// A sentence about the placeholder that this row cannot fill, without the value.
    pub(crate) fn fill(&self, row: &Map<String, Value>) -> Result<String, String> {
        let whole = self.is_one_column();
        let mut filled = String::new();
        for part in self.template.parts() {
            match part {
                Part::Text(text) => filled.push_str(text),
                Part::Placeholder(column) => {
                    let value = column.of(row)?;
                    filled.push_str(&column.written(value, self.form, whole));
                }
            }
        }
        if self.form == Form::Header && has_controls(&filled) {
            let named: Vec<String> = self.template.placeholders().map(Column::shown).collect();
            return Err(format!(
                "{} holds a line break or another control character, which a header cannot carry",
                named.join(" or ")
            ));
        }
        Ok(filled)
    }

    fn is_one_column(&self) -> bool {
        matches!(self.template.parts(), [Part::Placeholder(column)] if !column.json)
    }

    /// With something that could stand for each placeholder.
    fn sample(&self) -> String {
        let parts = self.template.parts().iter().map(|part| match part {
            Part::Text(text) => text.as_str(),
            Part::Placeholder(_) => "1",
        });
        parts.collect()
    }
}

// === impl Column ===

impl Column {
    fn parse(inner: &str, quoted: bool) -> Option<Self> {
        let (inner, json) = match inner.strip_suffix(":json") {
            Some(inner) => (inner, true),
            None => (inner, false),
        };
        let mut names = inner.split('.').map(str::to_owned);
        let name = names.next().filter(|name| is_name(name))?;
        let path: Vec<String> = names.collect();
        let sound = path.iter().all(|field| !field.is_empty());
        sound.then_some(Self {
            name,
            path,
            json,
            quoted,
        })
    }

    fn of(&self, row: &Map<String, Value>) -> Result<Value, String> {
        let fails = |why: &str| format!("the template's {} {why}", self.shown());
        let value = row.get(&self.name).cloned();
        let value = value.ok_or_else(|| fails("is no column of the row"))?;
        if self.path.is_empty() && !self.json {
            return Ok(value);
        }
        let mut value = match value {
            Value::String(text) => serde_json::from_str(&text)
                .map_err(|_| fails("needs JSON, and the column holds none"))?,
            other => other,
        };
        for field in &self.path {
            let inner = match &mut value {
                Value::Object(fields) => fields.remove(field),
                Value::Array(items) => {
                    let at = field.parse::<usize>().ok().filter(|at| *at < items.len());
                    at.map(|at| items.swap_remove(at))
                }
                _ => None,
            };
            value =
                inner.ok_or_else(|| fails(&format!("is not there: the row has no `{field}`")))?;
        }
        Ok(value)
    }

    fn written(&self, value: Value, form: Form, whole: bool) -> String {
        match form {
            Form::Json if !whole && !self.quoted => value.to_string(),
            Form::Json if !whole => {
                let quoted = Value::from(plain(value)).to_string();
                quoted[1..quoted.len() - 1].to_owned()
            }
            Form::Html if !whole => escaped_for_html(&plain(value)),
            _ => plain(value),
        }
    }

    fn shown(&self) -> String {
        let path: String = self.path.iter().map(|field| format!(".{field}")).collect();
        format!("`${{{}{path}}}`", self.name)
    }
}

/// A value as people write it; nothing for null.
fn plain(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

/// Whether `text`, the beginning of some JSON, ends between quotes.
fn ends_in_quotes(text: &str) -> bool {
    let (mut quoted, mut escaped) = (false, false);
    for c in text.chars() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
    }
    quoted
}

fn escaped_for_html(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

fn has_controls(text: &str) -> bool {
    // The separators of lines and paragraphs are line breaks to some programs.
    text.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'))
}

fn is_name(name: &str) -> bool {
    let first = name.chars().next();
    first.is_some_and(|c| c.is_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const HOSTILE: [&str; 5] = [
        "\", \"admin\": true, \"x\": \"",
        "a\\",
        "line\nbreak\u{0}",
        "<script>'&\"</script>",
        "${other}",
    ];

    fn row(name: &str) -> Map<String, Value> {
        let row = json!({
            "name": name, "n": 7, "nothing": null, "doc": "{\"to\": {\"city\": \"Rome\"}, \"list\": [1, 2]}",
        });
        row.as_object().unwrap().clone()
    }

    fn filled(text: &str, form: Form, name: &str) -> Result<String, String> {
        Text::parse(text, form).unwrap().fill(&row(name))
    }

    #[test]
    fn no_value_leaves_its_place() {
        for name in HOSTILE {
            let text = r#"{"a": "Dear \"${name}\"", "b": ${name}, "n": ${n}, "z": ${nothing}, "doc": ${doc}}"#;
            let read: Value =
                serde_json::from_str(&filled(text, Form::Json, name).unwrap()).unwrap();
            assert_eq!(read["a"], format!("Dear \"{name}\""));
            assert_eq!(
                (&read["b"], &read["n"], &read["z"]),
                (&json!(name), &json!(7), &json!(null))
            );
            assert!(
                read["doc"].is_string(),
                "JSON comes in when it is asked for"
            );
            assert_eq!(read.as_object().unwrap().len(), 5);
            let html = filled("<p title='${name}'>${name}</p>", Form::Html, name).unwrap();
            assert_eq!(html.matches(['<', '\'']).count(), 4, "{html}");
        }
    }

    #[test]
    fn json_comes_in_whole_or_by_its_fields() {
        let of = |text: &str| filled(text, Form::Json, "x");
        assert_eq!(
            of(r#"{"d": ${doc:json}}"#).unwrap(),
            r#"{"d": {"list":[1,2],"to":{"city":"Rome"}}}"#
        );
        assert_eq!(
            of(r#"["${doc.to.city}", ${doc.list.1}]"#).unwrap(),
            r#"["Rome", 2]"#
        );
        let error = of(r#"["${doc.to.street}"]"#).unwrap_err();
        assert!(
            error.contains("`${doc.to.street}`") && error.contains("no `street`"),
            "{error}"
        );
        let error = of("[${name:json}]").unwrap_err();
        assert!(error.contains("needs JSON"), "{error}");
    }

    #[test]
    fn a_text_of_one_column_is_that_column() {
        assert_eq!(filled("${name}", Form::Html, "<b>").unwrap(), "<b>");
        assert_eq!(filled("${doc}", Form::Json, "x").unwrap(), row("x")["doc"]);
        assert_eq!(filled("${nothing}", Form::Plain, "x").unwrap(), "");
    }

    #[test]
    fn a_header_is_one_line_or_nothing() {
        assert_eq!(
            filled("Order ${n} for ${name}", Form::Header, "Zoë").unwrap(),
            "Order 7 for Zoë"
        );
        for name in [
            "a\r\nBcc: all@example.org",
            "a\n",
            "\u{0}",
            "a\u{85}b",
            "a\u{2028}b",
        ] {
            let error = filled("${name}", Form::Header, name).unwrap_err();
            assert!(
                error.contains("`${name}`") && !error.contains("Bcc"),
                "{error}"
            );
        }
        assert!(Text::parse("two\nlines", Form::Header).is_err());
    }

    #[test]
    fn what_cannot_be_a_text_is_told_with_the_remedy() {
        for wrong in ["${}", "${a b}", "${a", "${a..b}", "${1}", "${a:xml}"] {
            let error = Text::parse(wrong, Form::Plain).unwrap_err();
            assert!(
                error.contains("${COLUMN}") && error.contains("$${"),
                "{error}"
            );
        }
        let error = Text::parse("{\"a\": \"${b}}", Form::Json).unwrap_err();
        assert!(error.contains("not valid JSON at line 1"), "{error}");
        let text = Text::parse("${b} ${a.c} $${d}", Form::Plain).unwrap();
        assert_eq!(text.columns().collect::<Vec<_>>(), ["b", "a"]);
    }
}
