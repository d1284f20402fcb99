//! Where items come from: the seam between the method and a database.
//!
//! In reading order: `table` (what of a table is the same in every database), `sqlite`, `postgres`.

#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod sqlite;
mod table;

use std::{collections::BTreeMap, path::PathBuf};

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use watchkeeper::{job::JobError, node::Token};

use super::{
    cell::ItemId,
    delivery::{Exception, Mark, Policy, State},
    digest_name,
};

/// A table whose rows are sent.
#[async_trait]
pub(crate) trait Source: Send + Sync + 'static {
    /// Batches with work at `now_ms` (Unix milliseconds), at most `limit`: cells with unsent rows that may go now, and
    /// cells in which a sender left an intent.
    ///
    /// # Errors
    /// [`SourceError`].
    async fn pending(&self, now_ms: i64, limit: usize) -> Result<Vec<String>>;

    /// Begins a batch, in one transaction: lists what the last holder left in doubt, reads the cell's unsent rows that
    /// may go now, writes down that `token` of `job` is about to send them.
    ///
    /// # Errors
    /// [`SourceError`]; nothing was written then.
    async fn begin(
        &self,
        job: &str,
        batch: &str,
        token: Token,
        policy: Policy,
        now_ms: i64,
    ) -> Result<Begin>;

    /// Ends a batch, in one transaction, if the intent is still that of `token`: marks what was sent, records the
    /// exceptions, removes the intent. Otherwise writes nothing. What was sent and cannot be marked is listed as `policy` says.
    ///
    /// # Errors
    /// [`SourceError`]; nothing was written then.
    async fn finish(
        &self,
        batch: &str,
        token: Token,
        policy: Policy,
        marks: Vec<(ItemId, Mark)>,
        now_ms: i64,
    ) -> Result<Finish>;

    /// Unsent items that are in the side table.
    ///
    /// # Errors
    /// [`SourceError`].
    async fn exceptions(&self) -> Result<Exceptions>;

    /// Items that are still to be sent: unsent, neither dead nor parked nor discarded.
    ///
    /// # Errors
    /// [`SourceError`].
    async fn backlog(&self) -> Result<Backlog>;

    /// Returns when there may be new work before the next look would find it. Never, where nothing tells.
    async fn woken(&self) {
        std::future::pending().await
    }

    /// Items in the side table by state, counted about once a second: cheap, whatever there is in the table itself.
    ///
    /// # Errors
    /// [`SourceError`].
    async fn counts(&self) -> Result<Counts> {
        Ok(self.exceptions().await?.counts)
    }
}

/// What is still to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Backlog {
    /// How many items.
    pub(crate) items: u64,
    /// Since when the oldest of them could go, in Unix milliseconds, where the table tells.
    pub(crate) oldest_ms: Option<i64>,
}

/// Items by state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// Waiting for their time.
    pub retry: u64,
    /// Given up.
    pub dead: u64,
    /// In doubt and to be repeated.
    pub in_doubt: u64,
    /// In doubt, or put aside, and left to a person.
    pub parked: u64,
    /// Not sent, because a person has said so.
    pub discarded: u64,
}

/// How a batch began.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Begin {
    /// Send these. May be none.
    Send(Work),
    /// A holder with this larger token has begun: our claim is old.
    Lost(Token),
    /// A sender of this other job has begun: its tokens and ours say nothing of each other.
    OtherJob(String),
    /// The table is divided into other cells now: this batch is no more.
    OtherCells(String),
}

/// What a sender writes down before it sends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Intent {
    /// Its job.
    pub(crate) job: String,
    /// The token of its claim.
    pub(crate) token: Token,
    /// What it is about to send.
    pub(crate) items: Named,
}

/// What an intent names: items, and such as go as one message.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Named(Vec<OneOrMore>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(ItemId),
    More(Vec<ItemId>),
}

/// The work of one batch.
#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) struct Work {
    /// What to send.
    pub items: Vec<Item>,
    /// Items that the last holder left in doubt.
    pub in_doubt: u64,
    /// Those of them that were parked instead.
    pub parked: u64,
    /// Rows that are too large to be sent, and dead from now on.
    pub dead: u64,
}

/// One row.
#[derive(Clone, PartialEq)]
pub struct Item {
    /// Its id.
    pub id: ItemId,
    /// The key by which a receiver knows a repeat.
    pub key: String,
    /// What is sent: `id`, `table` and the payload.
    pub body: Map<String, Value>,
    /// Columns that the sink asked for, under the names by which it did. May be secret.
    #[doc(hidden)] // for the sinks of this crate
    pub columns: Map<String, Value>,
    /// What happened to it before.
    #[doc(hidden)] // for the method
    pub prior: Option<Exception>,
    /// The same message was sent before.
    #[doc(hidden)] // for the method
    pub is_repeat: bool,
    /// The rows that it stands for, where they are several, and what happened to each of them before.
    #[doc(hidden)] // for the method
    pub members: Vec<(ItemId, Option<Exception>)>,
    /// The name of the digest that it is, or that it was sent in.
    #[doc(hidden)] // for the method
    pub digest: Option<String>,
}

#[cfg(test)]
impl Item {
    /// With nothing but these columns.
    pub(crate) fn for_tests(id: ItemId, columns: Map<String, Value>) -> Self {
        Self {
            id,
            key: String::new(),
            body: Map::new(),
            columns,
            prior: None,
            is_repeat: false,
            members: Vec::new(),
            digest: None,
        }
    }
}

/// How a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// Everything is written.
    Written(Unmarked),
    /// The intent is no longer ours: nothing is written. The holder now, if there is one.
    Lost(Option<Token>),
}

/// Rows that were sent and could not be marked: other programs held them, or the database refused the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Unmarked {
    /// Listed as in doubt, to be sent again.
    pub in_doubt: u64,
    /// Parked.
    pub parked: u64,
}

/// The exceptions of a table.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Exceptions {
    /// How many there are.
    pub counts: Counts,
    /// Doubts recorded since the table was first served: an upper bound for the repeats that a receiver saw.
    pub doubted_ever: u64,
    /// The items, by id, the first 10,000.
    pub items: Vec<Listed>,
}

/// One item of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its id.
    pub id: ItemId,
    /// Where it stands and why.
    pub exception: Exception,
}

/// Why a source could not answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// There is no such file.
    #[error("no database at {}", .0.display())]
    NoDatabase(PathBuf),
    /// There is no such table.
    #[error("no table `{table}` in {database}; there are: {found}")]
    NoTable {
        /// Where.
        database: String,
        /// Which.
        table: String,
        /// What there is instead.
        found: String,
    },
    /// There is no such column.
    #[error("no column `{column}` in table `{table}`; there are: {found}")]
    NoColumn {
        /// The key of the parameters that names it.
        key: &'static str,
        /// In which table.
        table: String,
        /// Which.
        column: String,
        /// What there is instead.
        found: String,
    },
    /// The table cannot be served as it is.
    #[error("table `{table}` cannot be served: {why}")]
    Unfit {
        /// Which.
        table: String,
        /// Why, and what would help.
        why: String,
    },
    /// Not a batch of this source.
    #[error("`{0}` is not a batch of this table")]
    NoBatch(String),
    /// The side table holds what this version does not understand.
    #[error("the side table holds `{0}`, which this version does not understand")]
    Unreadable(String),
    /// The side tables are missing, and are not ours to make.
    #[error("no side tables in {place}: `watchkeeper notify schema` prints what makes them{why}")]
    NoSideTables {
        /// The database, or the schema in it.
        place: String,
        /// Why they were not made, after a colon or semicolon.
        why: String,
    },
    /// The side tables are there, and the user of `source` may not do with them what senders do.
    #[error("the user of `source` lacks rights on the side tables in {place}: {grants}")]
    NoRights {
        /// The schema, in which database.
        place: String,
        /// The statements that give them.
        grants: String,
    },
    /// The side tables were made by a version that discards nothing.
    #[error(
        "the side tables of {place} were made by an earlier version and take no discarded items; when every replica is of this one, {remedy}"
    )]
    OldSideTables {
        /// The database, or the table in it.
        place: String,
        /// What to do.
        remedy: String,
    },
    /// The database failed.
    #[error("the database{place} failed{}", helps(error))]
    Sqlite {
        /// Which, with a space before it.
        place: String,
        /// What it said.
        #[source]
        error: rusqlite::Error,
    },
    /// A server could not be asked, or refused.
    #[error("{server}: {why}")]
    Server {
        /// Which, without anything secret.
        server: String,
        /// What it said, and what helps.
        why: String,
        /// Whether another attempt may come out otherwise.
        again: bool,
        /// The SQLSTATE of what it refused; empty when it said nothing.
        state: String,
    },
    /// The answer to a COMMIT was lost.
    #[error("{server}: {why}: whether it was written is not known")]
    Unclear {
        /// Which, without anything secret.
        server: String,
        /// What became of the connection.
        why: String,
    },
    /// The thread that worked on the database ended.
    #[error("the database call was not finished")]
    Unfinished,
}

/// What asking a source comes to.
pub(crate) type Result<T, E = SourceError> = std::result::Result<T, E>;

// === impl SourceError ===

impl From<rusqlite::Error> for SourceError {
    fn from(error: rusqlite::Error) -> Self {
        let place = String::new();
        Self::Sqlite { place, error }
    }
}

impl SourceError {
    /// The same of this file.
    pub(crate) fn in_file(self, path: &std::path::Path) -> Self {
        match self {
            Self::Sqlite { place, error } if place.is_empty() => Self::Sqlite {
                place: format!(" {}", path.display()),
                error,
            },
            other => other,
        }
    }

    /// A server that did not answer, or was not asked.
    #[cfg(feature = "postgres")]
    pub(crate) const fn unanswered(server: String, why: String, again: bool) -> Self {
        Self::Server {
            server,
            why,
            again,
            state: String::new(),
        }
    }

    /// The same, of a COMMIT. One that was refused for its rows wrote nothing; after any other trouble that is unknown.
    #[cfg(feature = "postgres")]
    pub(crate) fn of_commit(self) -> Self {
        match self {
            Self::Server { server, why, .. } if !self.is_of_rows() => Self::Unclear { server, why },
            other => other,
        }
    }

    /// Whether a value that stands in a row was refused: by its type, a constraint, a trigger, a policy.
    #[must_use]
    pub(crate) fn is_of_rows(&self) -> bool {
        use rusqlite::{Error::SqliteFailure, ErrorCode};
        match self {
            Self::Sqlite {
                error: SqliteFailure(error, _),
                ..
            } => matches!(
                error.code,
                ErrorCode::ConstraintViolation | ErrorCode::TypeMismatch | ErrorCode::TooBig
            ),
            // Data, constraints; `RAISE` in a trigger; a policy of rows, which has no number of its own.
            Self::Server { state, .. } => {
                ["22", "23"].iter().any(|class| state.starts_with(class))
                    || ["P0001", "42501"].contains(&state.as_str())
            }
            _ => false,
        }
    }

    /// Whether this, said of the statement that marks rows, is of the rows: what the table, or a trigger of it, makes of the mark.
    /// All else is of the server, the connection or the moment: nothing said, cut off, at odds with another transaction, out of
    /// room, held, stopped, broken; a statement that is no longer prepared.
    #[must_use]
    pub(crate) fn is_of_marking(&self) -> bool {
        use rusqlite::{Error, ErrorCode};
        const OF_THE_MOMENT: [&str; 8] = ["08", "25", "26", "40", "53", "57", "58", "XX"];
        match self {
            // A trigger that cannot do its work has no code of its own.
            Self::Sqlite {
                error: Error::SqliteFailure(error, _) | Error::SqlInputError { error, .. },
                ..
            } if error.code == ErrorCode::Unknown => true,
            Self::Server { state, .. } => {
                !state.is_empty()
                    && state != "55P03"
                    && !OF_THE_MOMENT.iter().any(|class| state.starts_with(class))
            }
            other => other.is_of_rows(),
        }
    }

    /// Whether the same may be answered otherwise in a moment.
    #[must_use]
    pub(crate) fn may_pass(&self) -> bool {
        self.is_passing() && !self.is_of_rows()
    }

    const fn is_passing(&self) -> bool {
        matches!(
            self,
            Self::Sqlite { .. } | Self::Unfinished | Self::Server { again: true, .. }
        )
    }

    /// Whether the state of an item was refused by the side table.
    pub(crate) fn is_of_state(&self) -> bool {
        match self {
            Self::Server { state, why, .. } => {
                state == "23514" && why.contains("watchkeeper_delivery_state_check")
            }
            Self::Sqlite { error, .. } => {
                error.to_string().contains("CHECK constraint failed: state")
            }
            _ => false,
        }
    }

    /// What the database said.
    #[must_use]
    pub(crate) fn said(&self) -> String {
        match self {
            Self::Server { why, .. } => why.clone(),
            Self::Sqlite { error, .. } => error.to_string(),
            other => other.to_string(),
        }
    }

    /// As the engine is told: what another attempt would meet again is fatal.
    #[must_use]
    pub(crate) fn into_job_error(self) -> JobError {
        match self.is_passing() {
            true => JobError::retry(self),
            false => JobError::fatal(self),
        }
    }
}

// === impl Named ===

impl Named {
    /// What is about to be sent.
    pub(crate) fn of(items: &[Item]) -> Self {
        let of = |item: &Item| match &item.digest {
            None => OneOrMore::One(item.id.clone()),
            Some(_) => OneOrMore::More(item.members.iter().map(|(id, _)| id.clone()).collect()),
        };
        Self(items.iter().map(of).collect())
    }

    /// Those of them that are still open. What is left of a message of several rows is a message again: it comes again as one, with
    /// nothing else in it.
    pub(crate) fn only(&self, is_open: impl Fn(&ItemId) -> bool) -> Self {
        let open = self.0.iter().filter_map(|named| match named {
            OneOrMore::One(id) => is_open(id).then(|| named.clone()),
            OneOrMore::More(ids) => {
                let open: Vec<ItemId> = ids.iter().filter(|id| is_open(id)).cloned().collect();
                (!open.is_empty()).then_some(OneOrMore::More(open))
            }
        });
        Self(open.collect())
    }

    /// What the pause of an item goes by: one of a message of several rows waits as long as the others of it.
    pub(crate) fn pause_keys(&self) -> BTreeMap<&ItemId, String> {
        let mut keys = BTreeMap::new();
        for named in &self.0 {
            match named {
                OneOrMore::One(id) => {
                    keys.insert(id, id.to_string());
                }
                OneOrMore::More(ids) => {
                    let name = digest_name::name_of(ids);
                    keys.extend(ids.iter().map(|id| (id, name.clone())));
                }
            }
        }
        keys
    }

    /// All of them.
    pub(crate) fn ids(&self) -> impl Iterator<Item = &ItemId> {
        self.0.iter().flat_map(|named| match named {
            OneOrMore::One(id) => std::slice::from_ref(id),
            OneOrMore::More(ids) => ids,
        })
    }

    /// Those that go as one message.
    pub(crate) fn digests(&self) -> impl Iterator<Item = &[ItemId]> {
        self.0.iter().filter_map(|named| match named {
            OneOrMore::One(_) => None,
            OneOrMore::More(ids) => Some(&ids[..]),
        })
    }
}

// === impl Intent ===

impl Intent {
    /// Why a holder of this job and token may not begin; none when it may, also under its own token: an earlier run under this
    /// claim did not come to its end.
    pub(crate) fn keeps_out(&self, job: &str, token: Token) -> Option<Begin> {
        if self.job != job {
            return Some(Begin::OtherJob(self.job.clone()));
        }
        (self.token > token).then_some(Begin::Lost(self.token))
    }
}

// === impl Backlog ===

impl Backlog {
    /// With a further part of it.
    pub(crate) fn add(&mut self, part: Self) {
        self.items += part.items;
        self.oldest_ms = self.oldest_ms.into_iter().chain(part.oldest_ms).min();
    }

    /// Since when the oldest item could go.
    pub(crate) fn since(&self) -> Option<Timestamp> {
        Timestamp::from_millisecond(self.oldest_ms?).ok()
    }
}

// === impl Unmarked ===

impl Unmarked {
    /// And these.
    #[cfg(feature = "postgres")]
    pub(crate) const fn add(&mut self, others: Self) {
        self.in_doubt += others.in_doubt;
        self.parked += others.parked;
    }

    /// Counts what became of one row.
    pub(crate) const fn count(&mut self, exception: &Exception) {
        match exception.state {
            State::Parked => self.parked += 1,
            _ => self.in_doubt += 1,
        }
    }
}

// === impl Item ===

impl std::fmt::Debug for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Item")
            .field("id", &self.id)
            .field("key", &self.key)
            .field("prior", &self.prior)
            .finish_non_exhaustive()
    }
}

// === impl Counts ===

impl Counts {
    /// Those in this state.
    #[must_use]
    pub(crate) const fn of(&self, state: State) -> u64 {
        match state {
            State::Retry => self.retry,
            State::Dead => self.dead,
            State::InDoubt => self.in_doubt,
            State::Parked => self.parked,
            State::Discarded => self.discarded,
        }
    }

    pub(crate) const fn of_mut(&mut self, state: State) -> &mut u64 {
        match state {
            State::Retry => &mut self.retry,
            State::Dead => &mut self.dead,
            State::InDoubt => &mut self.in_doubt,
            State::Parked => &mut self.parked,
            State::Discarded => &mut self.discarded,
        }
    }
}

// === impl Exceptions ===

impl Exceptions {
    /// Ids of the items in this state.
    #[must_use]
    pub fn ids(&self, state: State) -> Vec<ItemId> {
        let of_state = self.items.iter().filter(|i| i.exception.state == state);
        of_state.map(|i| i.id.clone()).collect()
    }
}
/// What a person does about it, in brackets; nothing where that is not known.
fn helps(error: &rusqlite::Error) -> &'static str {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            " (let the user of this program write the file and its folder)"
        }
        Some(ErrorCode::CannotOpen) => " (let the user of this program read and write the file)",
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            " (another program keeps it locked)"
        }
        Some(ErrorCode::DiskFull) => " (make room on its disk)",
        Some(ErrorCode::NotADatabase) => " (see the file in `source`)",
        Some(ErrorCode::DatabaseCorrupt) => " (bring a backup back)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_is_wrong_with_a_file_names_it_and_what_helps() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.db");
        let make = "CREATE TABLE t (a)";
        rusqlite::Connection::open(&path)
            .unwrap()
            .execute_batch(make)
            .unwrap();
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let db = rusqlite::Connection::open_with_flags(&path, flags).unwrap();
        let refused = db.execute_batch("DROP TABLE t").unwrap_err();
        let told = SourceError::from(refused).in_file(&path).to_string();
        let file = path.display();
        let helps = "let the user of this program write the file and its folder";
        assert_eq!(told, format!("the database {file} failed ({helps})"));
        let other = SourceError::Unfinished.in_file(Path::new("x"));
        assert!(matches!(other, SourceError::Unfinished));
    }
}
