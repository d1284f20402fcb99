//! The file of `move --out`: what a fleet has left, on its way to another store.
//!
//! Lines of JSON: what the file is and how much there is of it, a line for each ledger and for each pause or trigger, and last a
//! hash of all lines before. `docs/developing/versioning.md` describes it for those who read it otherwise.
//!
//! # Invariants
//! - F1 A file of this name is whole: it is written under another one, for its user alone, and renamed when it is on the disk. What was
//!   there before stays.   (a_file_is_whole_or_not_there)
//! - F2 Of a file that was cut, changed in one byte, or goes on behind its end nothing arrives.
//!   (what_was_cut_or_damaged_is_refused_as_a_whole)
//! - F3 A file of a later format, or of something else, is refused by name; one that is too large is not read.
//!   (what_is_of_a_later_version_or_of_something_else_is_refused, what_is_too_large_is_not_read)

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::super::failure::Failure;
use super::left::{DOUBTED, JOBS, Left, NOTHING};
use crate::{
    chance::Chance,
    files, intent,
    node::{Doc, Record, Token, Version},
};

#[cfg(test)]
mod tests;

/// The format that is written, and the only one that is known.
const FORMAT: u64 = 1;

/// The longest line: as much as any file that a user names.
const LONGEST: u64 = files::MOST;

/// The largest file: a hundred thousand jobs of ten kilobytes each.
const MOST: u64 = 1 << 30;

/// What the first line says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    /// The format. It stands first, and shows what the file is.
    watchkeeper_move: u64,
    /// The version of the program that wrote it.
    pub(super) program: String,
    /// When the store was read, by the clock of that machine.
    pub(super) written: Timestamp,
    /// Where the store is.
    pub(super) from: String,
    ledgers: usize,
    intents: usize,
    /// The largest token of the old store.
    token: Token,
}

/// What any other line says.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    /// The record of a job's lock.
    Ledger {
        key: String,
        version: Version,
        body: String,
    },
    /// The document of a pause or trigger.
    Intent {
        name: String,
        rev: u64,
        body: String,
    },
    /// The hash of all lines before; the last line.
    Sha256(String),
}

/// Why a file is not taken.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("it cannot be read: {0}")]
    Unreadable(#[from] io::Error),
    #[error("it is no file that `watchkeeper move --out` has written")]
    Foreign,
    #[error(
        "it has format {0}, and this version knows format {FORMAT}: carry it in with the version that wrote it, or a later one"
    )]
    Newer(u64),
    #[error(
        "it was cut or damaged after it was written: take another copy, or write it again with `watchkeeper move --out`"
    )]
    Damaged,
    #[error("it is larger than {MOST} bytes, which is the most that is read")]
    TooLarge,
    /// What it holds is whole, and nothing for this version.
    #[error("{0}: carry it in with the version that wrote it, or a later one")]
    NotOurs(String),
}

/// A file that is whole, and not there yet under its name. What is not kept goes.
#[derive(Debug)]
pub(super) struct Draft {
    draft: PathBuf,
    file: PathBuf,
}

/// Refuses a name under which there is something.
pub(super) fn refuse_taken(file: &Path) -> Result<(), Failure> {
    match fs::symlink_metadata(file) {
        Ok(_) => Err(Failure::Usage(format!(
            "--out: {} is there already: nothing was written; give another name, or move it away",
            file.display()
        ))),
        Err(_) => Ok(()),
    }
}

/// Reads what a fleet has left; or says why nothing of it is taken, and that nothing was moved.
pub(super) fn read(file: &Path) -> Result<(Head, Left), Failure> {
    let opened = files::open(file).map_err(|why| {
        let file = file.display();
        Failure::Usage(format!("--in: {file} cannot be read: {why}"))
    })?;
    let length = opened.metadata().map_err(Failure::of)?.len();
    let read = match length > MOST {
        true => Err(Fault::TooLarge),
        false => read_from(BufReader::new(opened.take(MOST))),
    };
    read.map_err(|fault| Failure::of(format!("{}: {fault}; {NOTHING}", file.display())))
}

fn read_from(mut from: impl BufRead) -> Result<(Head, Left), Fault> {
    let mut hash = Sha256::new();
    let first = next_line(&mut from)?.ok_or(Fault::Foreign)?;
    let head = head(&first)?;
    hash.update(&first);
    let (mut records, mut docs) = (BTreeMap::new(), BTreeMap::new());
    loop {
        let line = next_line(&mut from)?.ok_or(Fault::Damaged)?;
        let said: Line = serde_json::from_slice(&line).map_err(|_| Fault::Damaged)?;
        match said {
            Line::Ledger { key, version, body } if key.starts_with(JOBS) => {
                records.insert(key, Record { version, body });
            }
            // A revision near the end of its numbers could be followed by none.
            Line::Intent { name, rev, body }
                if name.starts_with(intent::DIRECTORY) && rev < DOUBTED.0 =>
            {
                docs.insert(name.clone(), Doc { name, rev, body });
            }
            Line::Sha256(of_all) => {
                let is_end = from.fill_buf()?.is_empty();
                if of_all != shown(hash) || !is_end {
                    return Err(Fault::Damaged);
                }
                break;
            }
            Line::Ledger { .. } | Line::Intent { .. } => return Err(Fault::Damaged),
        }
        hash.update(&line);
    }
    if (records.len(), docs.len()) != (head.ledgers, head.intents) || head.token >= DOUBTED {
        return Err(Fault::Damaged);
    }
    let left = Left::of(records, docs, head.token).map_err(Fault::NotOurs)?;
    Ok((head, left))
}

fn head(line: &[u8]) -> Result<Head, Fault> {
    #[derive(Deserialize)]
    struct Format {
        watchkeeper_move: u64,
    }
    // The format alone first: nothing else need be readable to us in a later one.
    let format: Format = serde_json::from_slice(line).map_err(|_| Fault::Foreign)?;
    match format.watchkeeper_move {
        FORMAT => serde_json::from_slice(line).map_err(|_| Fault::Damaged),
        later if later > FORMAT => Err(Fault::Newer(later)),
        _ => Err(Fault::Foreign),
    }
}

/// With its end; nothing where the text ends, or a line has none.
fn next_line(from: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    from.take(LONGEST).read_until(b'\n', &mut line)?;
    Ok(line.ends_with(b"\n").then_some(line))
}

fn shown(hash: Sha256) -> String {
    let mut shown = String::with_capacity(64);
    for byte in hash.finalize() {
        // Writing to a string does not fail.
        let _ = write!(shown, "{byte:02x}");
    }
    shown
}

/// Writes all of it; answers with its size.
fn write_to(to: &mut impl Write, left: &Left, from: &str, written: Timestamp) -> io::Result<u64> {
    let (mut hash, mut size) = (Sha256::new(), 0);
    let mut put = |line: Vec<u8>| {
        hash.update(&line);
        size += line.len() as u64;
        to.write_all(&line)
    };
    put(line(&Head {
        watchkeeper_move: FORMAT,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        written,
        from: from.to_owned(),
        ledgers: left.ledgers.len(),
        intents: left.intents.len(),
        token: left.token,
    })?)?;
    for (key, (_, record)) in &left.ledgers {
        put(line(&Line::Ledger {
            key: key.clone(),
            version: record.version,
            body: record.body.clone(),
        })?)?;
    }
    for doc in left.intents.values() {
        let Doc { name, rev, body } = doc.clone();
        put(line(&Line::Intent { name, rev, body })?)?;
    }
    let end = line(&Line::Sha256(shown(hash)))?;
    to.write_all(&end)?;
    Ok(size + end.len() as u64)
}

fn line(line: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    match text.len() as u64 > LONGEST {
        true => Err(io::Error::other(format!(
            "a line of it would be longer than {LONGEST} bytes, which is the most that is read"
        ))),
        false => Ok(text),
    }
}

// === impl Draft ===

impl Draft {
    /// Writes all of it to the disk, beside the file.
    pub(super) fn write(
        file: &Path,
        left: &Left,
        from: &str,
        written: Timestamp,
    ) -> Result<Self, Failure> {
        let mut draft = file.as_os_str().to_owned();
        draft.push(format!(".{}", Chance::system().id()));
        let draft = PathBuf::from(draft);
        let failed = |why| cannot_write(file, &why);
        let made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)
            .map_err(failed)?;
        // From here on it goes where it is not kept.
        let draft = Self {
            draft,
            file: file.to_owned(),
        };
        let mut to = BufWriter::new(made);
        let size = write_to(&mut to, left, from, written).map_err(failed)?;
        if size > MOST {
            let why =
                format!("it would be larger than {MOST} bytes, which is the most that is read");
            return Err(failed(io::Error::other(why)));
        }
        let made = to.into_inner().map_err(|why| failed(why.into_error()))?;
        made.sync_all().map_err(failed)?;
        Ok(draft)
    }

    /// Gives it its name.
    pub(super) fn keep(self) -> Result<(), Failure> {
        let failed = |why| cannot_write(&self.file, &why);
        refuse_taken(&self.file)?;
        fs::rename(&self.draft, &self.file).map_err(failed)?;
        let folder = match self.file.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let folder = File::open(folder).map_err(failed)?;
        folder.sync_all().map_err(failed)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // It is not there when it was kept.
        let _ = fs::remove_file(&self.draft);
    }
}

fn cannot_write(file: &Path, why: &io::Error) -> Failure {
    let file = file.display();
    Failure::of(format!("--out: {file} cannot be written: {why}"))
}
