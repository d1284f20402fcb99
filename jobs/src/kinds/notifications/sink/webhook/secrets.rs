//! Which secrets sign an item: those of its row, else those of the configuration and its files.

use std::{
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use serde_json::Value;
use tracing::warn;
use watchkeeper::clock::{Clock, Moment};

use super::signature::Keys;
use crate::{
    notifications::{delivery::Answer, source::Item},
    web::read_secret,
};

/// Where secrets come from.
pub(super) struct Secrets {
    fixed: Keys,
    files: Vec<PathBuf>,
    column: Option<String>,
    clock: Clock,
    /// What the files held, and when.
    read: Mutex<Option<(Moment, Keys)>>,
}

/// Files are read again after this time, so that a secret is replaced without a restart.
const FRESH: Duration = Duration::from_secs(30);
/// A file that cannot be read is no fault of the items: they wait so long.
const UNREADABLE: Duration = Duration::from_secs(60);

// === impl Secrets ===

impl Secrets {
    pub(super) fn new(
        fixed: Keys,
        files: Vec<PathBuf>,
        column: Option<String>,
        clock: Clock,
    ) -> Self {
        Self {
            fixed,
            files,
            column,
            clock,
            read: Mutex::new(None),
        }
    }

    /// The secrets for an item; none when nothing is to be signed.
    ///
    /// # Errors
    /// What becomes of an item that must be signed and cannot be. It is never sent unsigned.
    pub(super) async fn of(&self, item: &Item) -> Result<Keys, Answer> {
        let refused = |why| Answer::Refused { why };
        if let Some(column) = &self.column
            && let Some(Value::String(text)) = item.columns.get(column)
            && !text.trim().is_empty()
        {
            let keys = Keys::parse(text);
            return keys.map_err(|why| refused(format!("column `{column}` {why}")));
        }
        let in_files = self.read_files().await;
        let keys = in_files.and_then(|keys| self.fixed.clone().and(keys));
        let keys = keys.map_err(|why| Answer::Waits {
            why,
            after: UNREADABLE,
        })?;
        match &self.column {
            Some(column) if keys.is_empty() => {
                Err(refused(format!("column `{column}` holds no secret")))
            }
            _ => Ok(keys),
        }
    }

    async fn read_files(&self) -> Result<Keys, String> {
        if self.files.is_empty() {
            return Ok(Keys::default());
        }
        let now = self.clock.now();
        let known = self
            .read
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some((at, keys)) = &known
            && now.since(*at) < FRESH
        {
            return Ok(keys.clone());
        }
        let files = self.files.clone();
        let found = tokio::task::spawn_blocking(move || read_all(&files)).await;
        let found = found.map_err(|e| e.to_string()).and_then(|found| found);
        let keys = match (found, known) {
            (Ok(keys), _) => keys,
            (Err(why), Some((_, keys))) => {
                warn!(
                    why,
                    "a file with secrets cannot be read; those that were read before go on signing"
                );
                keys
            }
            (Err(why), None) => return Err(why),
        };
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, keys.clone()));
        Ok(keys)
    }
}

/// The secrets in files.
///
/// # Errors
/// A sentence with the file's name and without what it holds.
pub(super) fn read_all(files: &[PathBuf]) -> Result<Keys, String> {
    let mut keys = Keys::default();
    for path in files {
        let found = Keys::parse(&read_secret(path)?);
        let found = found.map_err(|why| format!("{}: {why}", path.display()))?;
        keys = keys.and(found)?;
    }
    Ok(keys)
}
