//! The configuration file, read leaf by leaf so that every fault is found and has its line.

use std::{ops::Range, path::Path};

use serde_json::{Map, Number, Value};
use toml::de::{DeTable, DeValue};

use super::{
    effort,
    layer::Layer,
    problem::{Problems, Source},
    schema::{self, Shape},
};
use crate::secret::tells;

/// Reads `text`, which is the content of `file`. What does not fit is reported and left out.
pub(super) fn read(file: &Path, text: &str, problems: &mut Problems) -> Layer {
    let mut reader = Reader {
        file,
        lines: Lines::of(text),
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
    lines: Lines<'a>,
    layer: Layer,
    problems: &'a mut Problems,
}

/// Where the lines of a text begin: every key asks for its own, and a file may have thousands.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
    /// Columns are bytes then.
    ascii: bool,
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
        let message = match harmless(self.lines.around(at)) {
            Some(shown) => format!("{message}, in the line `{shown}`"),
            None => message,
        };
        self.problems.error("", source, message, "");
    }

    fn place(&self, offset: usize) -> Source {
        let (line, column) = self.lines.place(offset);
        Source::File {
            path: self.file.to_owned(),
            line,
            column,
        }
    }
}

// === impl Lines ===

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Self {
        effort::looked_at(text.len());
        let after = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            text,
            starts: [0].into_iter().chain(after).collect(),
            ascii: text.is_ascii(),
        }
    }

    /// The number and the beginning of the line in which `offset` lies.
    fn line(&self, offset: usize) -> (usize, usize) {
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = line.checked_sub(1).and_then(|at| self.starts.get(at));
        (line, start.copied().unwrap_or(0))
    }

    /// Line and column of `offset`, from 1, the column in characters.
    fn place(&self, offset: usize) -> (usize, usize) {
        let (line, start) = self.line(offset);
        if self.ascii {
            return (line, offset.min(self.text.len()).saturating_sub(start) + 1);
        }
        let before = self.text.get(start..offset).unwrap_or_default();
        effort::looked_at(before.len());
        (line, before.chars().count() + 1)
    }

    /// The line in which `offset` lies.
    fn around(&self, offset: usize) -> &'a str {
        let (_, start) = self.line(offset);
        let rest = self.text.get(start..).unwrap_or_default();
        rest.lines().next().unwrap_or_default()
    }
}

/// Of a line that could not be read what is no secret for certain: the header of a section, or a key that there is, with its
/// value where that is no secret. All else may be part of a value, also where it stands on a line of its own.
fn harmless(line: &str) -> Option<String> {
    let line = line.trim();
    let known = |name: &str, at: Option<usize>| {
        let name = name.trim().trim_matches('"');
        schema::keys().iter().any(|key| match at {
            Some(at) => key.get(at).is_some_and(|part| part == name),
            None => key.last().is_some_and(|part| part == name),
        })
    };
    if let Some((key, _)) = line.split_once('=') {
        let last = key.rsplit('.').next().unwrap_or_default().trim();
        let secret = schema::SECRETS.iter().any(|secret| secret.ends_with(last));
        let shown =
            match secret || tells(line) || line.contains(['@', '\\']) || line.contains("://") {
                true => format!("{} = \u{2026}", key.trim()),
                false => line.replace(char::is_control, "\u{fffd}"),
            };
        return known(last, None).then_some(shown);
    }
    let mut parts = line.trim_matches(['[', ']']).split('.');
    let section = line.starts_with('[') && parts.next().is_some_and(|part| known(part, Some(0)));
    // The name of a job is shown wherever there is one.
    let sections = parts
        .all(|part| line.starts_with("[jobs.") || known(part, Some(1)) || known(part, Some(2)));
    let plain = |c: char| c.is_ascii_alphanumeric() || "[]._-\"' ".contains(c);
    (section && sections && line.len() <= 100 && line.chars().all(plain)).then(|| line.to_owned())
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
