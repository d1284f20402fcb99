//! Rows of a file: CSV, or JSON lines.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::Path,
};

use serde_json::{Map, Value};

use super::{args::Format, records::Records};

/// One row, and the line it begins in.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) row: Map<String, Value>,
}

/// The longest line or record that is read.
const LONGEST: usize = 64 << 20;

/// By the name of the file.
pub(super) fn format_of(path: &Path) -> Option<Format> {
    let end = path.extension()?.to_str()?.to_ascii_lowercase();
    match end.as_str() {
        "csv" => Some(Format::Csv),
        "jsonl" | "ndjson" => Some(Format::Jsonl),
        _ => None,
    }
}

/// The rows of a file, one after the other. A field of CSV that reads as `null` is null. Only a regular file reads the same
/// when it is read again.
pub(super) fn read(
    path: &Path,
    format: Format,
    null: &str,
) -> Result<Box<dyn Iterator<Item = Result<Line, String>>>, String> {
    let shown = path.display();
    let facts = path.metadata().map_err(|why| format!("{shown}: {why}"))?;
    if !facts.is_file() {
        return Err(format!(
            "{shown} is no regular file: write what comes from it into one"
        ));
    }
    let file = File::open(path).map_err(|why| format!("{shown}: {why}"))?;
    match format {
        Format::Csv => csv(file, null.to_owned()),
        Format::Jsonl => Ok(Box::new(jsonl(BufReader::new(file)))),
    }
}

fn csv(file: File, null: String) -> Result<Box<dyn Iterator<Item = Result<Line, String>>>, String> {
    let mut reader = csv::Reader::from_reader(Records::new(file, LONGEST));
    let names = reader
        .headers()
        .map_err(|why| format!("line 1: {}", said(&why)))?;
    let names: Vec<String> = names.iter().map(str::to_owned).collect();
    if let Some(twice) = names
        .iter()
        .enumerate()
        .find(|(i, n)| names[..*i].contains(n))
    {
        return Err(format!(
            "line 1: the column {:?} stands there twice",
            twice.1
        ));
    }
    Ok(Box::new(reader.into_records().map(move |record| {
        // Its message names the line.
        let record = record.map_err(|why| said(&why))?;
        let number = record.position().map_or(0, csv::Position::line);
        let value = |text: &str| match text == null {
            true => Value::Null,
            false => Value::from(text),
        };
        let row = names
            .iter()
            .cloned()
            .zip(record.iter().map(value))
            .collect();
        Ok(Line { number, row })
    })))
}

/// What was wrong, without the name of the library.
fn said(error: &csv::Error) -> String {
    match error.kind() {
        csv::ErrorKind::Io(why) => why.to_string(),
        _ => error.to_string(),
    }
}

fn jsonl(mut from: impl BufRead) -> impl Iterator<Item = Result<Line, String>> {
    let mut number = 0;
    let next = move || loop {
        number += 1;
        let mut text = Vec::new();
        let wrong = |why: &str| Some(Err(format!("line {number}: {why}")));
        // A line without end must not fill the memory.
        let mut limited = std::io::Read::take(&mut from, LONGEST as u64 + 1);
        match limited.read_until(b'\n', &mut text) {
            Ok(0) => return None,
            Ok(_) if text.len() > LONGEST => return wrong("it is longer than 64 MiB"),
            Ok(_) if text.trim_ascii().is_empty() => continue,
            Ok(_) => {}
            Err(why) => return wrong(&why.to_string()),
        }
        return match serde_json::from_slice(&text) {
            Ok(Value::Object(row)) if !row.is_empty() => Some(Ok(Line { number, row })),
            Ok(_) => wrong("it is no object with the names of columns"),
            Err(why) => wrong(&format!("it is no JSON: {why}")),
        };
    };
    std::iter::from_fn(next)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rows(name: &str, text: &str, null: &str) -> Vec<Result<(u64, Value), String>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        match read(&path, format_of(&path).unwrap(), null) {
            Ok(lines) => lines
                .map(|line| line.map(|l| (l.number, Value::Object(l.row))))
                .collect(),
            Err(why) => vec![Err(why)],
        }
    }

    #[test]
    fn fields_of_csv_are_texts_or_null() {
        let text = "id,body\n1,\"a\n\"\"b\"\"\"\n2,\n";
        let read = rows("a.csv", text, "");
        assert_eq!(read[0], Ok((2, json!({"id": "1", "body": "a\n\"b\""}))));
        assert_eq!(read[1], Ok((4, json!({"id": "2", "body": null}))));
        let read = rows("a.csv", "id,body\n2,\n3,-\n", "-");
        assert_eq!(read[0], Ok((2, json!({"id": "2", "body": ""}))));
        assert_eq!(read[1], Ok((3, json!({"id": "3", "body": null}))));
    }

    #[test]
    fn what_cannot_be_read_is_named_by_its_line() {
        for (name, text, words) in [
            ("a.csv", "id,id\n1,2\n", "line 1"),
            ("a.csv", "id,body\n1,2\n3\n", "line: 3"),
            ("a.csv", "id,body\n1,2\n3,\"4\n5,6\n", "line 3"),
            ("a.jsonl", "{\"id\": 1}\n\n{\"id\"\n", "line 3"),
            ("a.jsonl", "{\"id\": 1}\n[1]\n", "line 2"),
            ("a.jsonl", "{}\n", "line 1"),
        ] {
            let read = rows(name, text, "");
            let wrong = read.into_iter().find_map(Result::err).unwrap();
            assert!(wrong.contains(words), "{wrong}");
        }
    }
}
