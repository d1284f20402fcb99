//! Appends items to a file: one JSON line each, with the key, in a single write, so that replicas may share it.
//!
//! Key and token stand beside the row as `idempotency_key` and `token`; where the row has a column of that name, as `watchkeeper_key` and
//! `watchkeeper_token`, and the column stays.
//!
//! Nothing is kept open: a file that was moved away (log rotation) is begun anew with the next item.

use std::{
    fs::File,
    io::{self, Write},
    path::{Path, PathBuf},
};

use async_trait::async_trait;
use serde_json::Value;
use watchkeeper::{files, node::Token};

use super::Sink;
use crate::notifications::{delivery::Answer, source::Item};

/// The sink.
#[derive(Clone, Debug)]
pub(crate) struct Lines {
    path: PathBuf,
}

// === impl Lines ===

impl Lines {
    /// Appends to the file at `path`, which need not be there.
    #[must_use]
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }
}

#[async_trait]
impl Sink for Lines {
    fn name(&self) -> String {
        format!("file://{}", self.path.display())
    }

    async fn send(&self, item: &Item, token: Token) -> Answer {
        let mut line = item.body.clone();
        let ours = [
            (
                "idempotency_key",
                "watchkeeper_key",
                Value::from(item.key.as_str()),
            ),
            ("token", "watchkeeper_token", token.0.into()),
        ];
        for (name, otherwise, value) in ours {
            let name = if line.contains_key(name) {
                otherwise
            } else {
                name
            };
            line.insert(name.to_owned(), value);
        }
        let line = format!("{}\n", Value::Object(line));
        let path = self.path.clone();
        let written = tokio::task::spawn_blocking(move || append(&path, line.as_bytes())).await;
        written.unwrap_or_else(|e| Answer::Unknown { why: e.to_string() })
    }

    async fn flush(&self) -> io::Result<()> {
        let path = self.path.clone();
        tokio::task::spawn_blocking(move || sync(&path))
            .await
            .map_err(io::Error::other)?
    }
}

fn append(path: &Path, line: &[u8]) -> Answer {
    match files::append(path).and_then(|mut file| file.write(line)) {
        Ok(n) if n == line.len() => Answer::Accepted,
        Ok(n) => Answer::Unknown {
            why: format!("{n} of {} bytes were written", line.len()),
        },
        Err(error) => Answer::Later {
            why: error.to_string(),
            after: None,
        },
    }
}

/// What was appended, through whatever handle, and the file's name survive a power cut.
fn sync(path: &Path) -> io::Result<()> {
    files::append(path)?.sync_all()?;
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notifications::cell::ItemId;

    fn item(id: i64) -> Item {
        let mut body = serde_json::Map::new();
        body.insert("id".to_owned(), id.into());
        Item {
            id: ItemId::Int(id),
            key: format!("d/t/{id}"),
            body,
            columns: serde_json::Map::new(),
            prior: None,
            is_repeat: false,
            members: Vec::new(),
            digest: None,
        }
    }

    #[tokio::test]
    async fn each_item_is_one_line_with_its_key() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sent.jsonl");
        let lines = Lines::new(path.clone());
        for id in [1, 2] {
            assert_eq!(lines.send(&item(id), Token(9)).await, Answer::Accepted);
        }
        lines.flush().await.unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let read: Vec<Value> = text
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        assert_eq!(read.len(), 2);
        assert_eq!(read[1]["idempotency_key"], "d/t/2");
        assert_eq!(read[1]["token"], 9);
    }

    #[tokio::test]
    async fn a_column_of_the_row_is_replaced_by_nothing_of_ours() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sent.jsonl");
        let mut item = item(1);
        item.body.insert("token".to_owned(), "of the user".into());
        Lines::new(path.clone()).send(&item, Token(9)).await;
        item.body.insert("idempotency_key".to_owned(), 7.into());
        Lines::new(path.clone()).send(&item, Token(9)).await;
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                r#"{"id":1,"idempotency_key":"d/t/1","token":"of the user","watchkeeper_token":9}"#,
                r#"{"id":1,"idempotency_key":7,"token":"of the user","watchkeeper_key":"d/t/1","watchkeeper_token":9}"#,
            ]
        );
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_opened_is_tried_again() {
        let lines = Lines::new("/nowhere/at/all".into());
        assert!(matches!(
            lines.send(&item(1), Token(1)).await,
            Answer::Later { .. }
        ));
        assert!(lines.flush().await.is_err());
    }
}
