//! The configuration file, read leaf by leaf so that every fault is found and has its line.

use std::{ops::Range, path::Path};

use serde_json::{Map, Number, Value};
use toml::de::{DeTable, DeValue};

use super::{
    layer::Layer,
    problem::{Problems, Source},
    schema::{self, Shape},
};
use crate::secret::tells;

/// Reads `text`, which is the content of `file`. What does not fit is reported and left out.
pub(super) fn read(file: &Path, text: &str, problems: &mut Problems) -> Layer {
    let mut reader = Reader {
        file,
        text,
        layer: Layer::named("file"),
        problems,
    };
    match DeTable::parse(text) {
        Ok(table) => reader.section(table.get_ref(), &mut Vec::new()),
        Err(error) => reader.syntax_error(&error),
    }
    reader.layer
}

struct Reader<'a> {
    file: &'a Path,
    text: &'a str,
    layer: Layer,
    problems: &'a mut Problems,
}

impl Reader<'_> {
    fn section(&mut self, table: &DeTable<'_>, path: &mut Vec<String>) {
        for (key, value) in table {
            path.push(key.get_ref().to_string());
            self.entry(path, key.span(), value.span(), value.get_ref());
            path.pop();
        }
    }

    fn entry(
        &mut self,
        path: &mut Vec<String>,
        key: Range<usize>,
        at: Range<usize>,
        value: &DeValue<'_>,
    ) {
        match (schema::shape(path), value) {
            (Shape::Unknown { siblings }, _) => {
                let source = self.place(key.start);
                if let Some(why) = schema::retired(path) {
                    return self.problems.warn(path.join("."), source, why, "remove it");
                }
                let hint = schema::suggest(path, &siblings);
                self.problems
                    .error(path.join("."), source, "there is no such key", hint);
            }
            (Shape::Section, DeValue::Table(table)) => {
                let source = self.place(key.start);
                self.layer.sections.insert(path.join("."), source);
                self.section(table, path);
            }
            (_, value) => self.leaf(path, at, value),
        }
    }

    fn leaf(&mut self, path: &[String], at: Range<usize>, value: &DeValue<'_>) {
        let source = self.place(at.start);
        let json = json(value);
        if let Err(why) = schema::fits(path, &json) {
            self.problems.error(path.join("."), source, why, "");
            return;
        }
        self.layer.set(path, json, source);
        self.places(&path.join("."), value);
    }

    /// Places of what stands inside a value.
    fn places(&mut self, key: &str, value: &DeValue<'_>) {
        let mut inner = Vec::new();
        match value {
            DeValue::Table(table) => {
                inner.extend(
                    table
                        .iter()
                        .map(|(name, v)| (format!("{key}.{}", name.get_ref()), v)),
                );
            }
            DeValue::Array(list) => {
                inner.extend(
                    list.iter()
                        .enumerate()
                        .map(|(i, v)| (format!("{key}[{i}]"), v)),
                );
            }
            _ => return,
        }
        for (key, value) in inner {
            let source = self.place(value.span().start);
            self.layer.places.insert(key.clone(), source);
            self.places(&key, value.get_ref());
        }
    }

    fn syntax_error(&mut self, error: &toml::de::Error) {
        let at = error.span().map_or(0, |span| span.start);
        let source = self.place(at);
        let message = error.message().trim().replace('\n', ", ");
        let line = self
            .text
            .get(..at)
            .unwrap_or_default()
            .matches('\n')
            .count();
        let snippet = self.text.lines().nth(line).unwrap_or_default();
        let message = format!("{message}, in the line `{}`", harmless(snippet));
        self.problems.error("", source, message, "");
    }

    fn place(&self, offset: usize) -> Source {
        let before = self.text.get(..offset).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before
            .rsplit('\n')
            .next()
            .unwrap_or_default()
            .chars()
            .count()
            + 1;
        Source::File {
            path: self.file.to_owned(),
            line,
            column,
        }
    }
}

/// A line that could not be read, without what could be a password.
fn harmless(line: &str) -> String {
    let line = line.trim().replace(char::is_control, "\u{fffd}");
    if !tells(&line) && !line.contains("://") && !line.contains('@') {
        return line;
    }
    let key = line.split_once('=').map_or("", |(key, _)| key);
    format!("{key}= \u{2026}")
}

/// A TOML value as JSON; dates become texts.
pub(super) fn json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::String(text.to_string()),
        // A number too large for the type stays a text, which then fits no number.
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map_or_else(|_| Value::String(number.as_str().to_owned()), Value::from),
        DeValue::Float(number) => {
            let float = number.as_str().parse().ok().and_then(Number::from_f64);
            float.map_or_else(|| Value::String(number.as_str().to_owned()), Value::Number)
        }
        DeValue::Boolean(truth) => Value::Bool(*truth),
        DeValue::Datetime(date) => Value::String(date.to_string()),
        DeValue::Array(list) => list.iter().map(|item| json(item.get_ref())).collect(),
        DeValue::Table(table) => {
            let entries = table
                .iter()
                .map(|(key, v)| (key.get_ref().to_string(), json(v.get_ref())));
            Value::Object(entries.collect::<Map<_, _>>())
        }
    }
}
