//! What to send from where to where, and how carefully.

mod backoff;
mod lanes;
mod limits;
mod mail;

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use reqwest::Url;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use watchkeeper::{DurationExt, config::Findings, human::Span, secret::Secret};

use super::{
    digest_name::ITEMS,
    text::{Form, Text},
};
use crate::{kinds::kind::take, web::shown};
pub use backoff::Backoff;
#[cfg(feature = "postgres")]
pub(crate) use lanes::MOST_ROWS;
pub(crate) use lanes::{Behind, Lanes};
pub use lanes::{Dedupe, Digest, Order};
pub(crate) use limits::{By, Limit, read as read_limits};
#[cfg(feature = "smtp")]
pub(crate) use mail::Tls;
pub(crate) use mail::{MailParams, MailServer};
#[cfg(feature = "postgres")]
use watchkeeper::node::postgres::address::PgAddress;

/// Parameters of a job of kind `notifications`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NotificationsParams {
    /// The database: `sqlite://PATH` or `postgres://USER@HOST/DATABASE`.
    pub source: Address,
    /// A file that holds `source`, for an address with a password in it.
    pub source_file: Option<PathBuf>,
    /// A file that holds the password for PostgreSQL, read at each connection.
    pub password_file: Option<PathBuf>,
    /// The table; in PostgreSQL also `SCHEMA.TABLE`.
    pub table: String,
    /// The columns that matter.
    pub columns: Columns,
    /// Which rows are sent: a condition in SQL, put into queries as it is. Part of the name of the delivery.
    #[serde(rename = "where")]
    pub filter: Option<String>,
    /// The tables that are kept beside it.
    pub side_tables: SideTables,
    /// A channel of PostgreSQL: a `NOTIFY` on it begins the next look at once.
    pub listen: Option<String>,
    /// Where rows go: `http(s)://…`, `smtp(s)://…` or `file://PATH`.
    pub sink: Address,
    /// What is sent to a webhook, with `${COLUMN}` for columns; without it a JSON object of the row.
    pub body: Option<Secret>,
    /// Secrets that sign what is sent to a webhook, each `whsec_…`.
    #[serde(deserialize_with = "one_or_more")]
    pub secrets: Vec<Secret>,
    /// Files with such secrets.
    pub secret_files: Vec<PathBuf>,
    /// With `columns.url`, and for mails: rows under way to one host at a time, per replica.
    pub per_host: usize,
    /// With `columns.url`: whether addresses of the own machine and network may be called.
    pub allow_private: bool,
    /// What a mail says: a table with `from`, `to`, `subject`, `text`, `html` and more.
    pub mail: Value,
    /// Ids per cell; with text ids, rows sent in one go.
    pub batch_size: u32,
    /// Cells of a table whose ids are text: buckets of their hash.
    pub buckets: u32,
    /// Cells claimed in one go, at most.
    pub claim: usize,
    /// Cells worked on at once by one replica.
    pub concurrency: usize,
    /// Rows a second, at most, on all replicas together: a number, or a list of limits.
    pub rate: Value,
    /// What to do with a row that may have been sent.
    pub in_doubt: Option<InDoubt>,
    /// Whether rows of one recipient go one after the other.
    pub order: Option<Order>,
    /// Which rows are one message.
    pub dedupe: Option<Dedupe>,
    /// Whether rows of one recipient go together.
    pub digest: Option<Digest>,
    /// Sendings of one row before it is given up: dead, or parked where it may have been received.
    pub attempts: Option<u32>,
    /// Pause before the second sending, which doubles each time, up to an hour; or `standard`.
    pub backoff: Backoff,
    /// Time limit for one sending.
    pub timeout: Span,
}

/// Columns of the table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Columns {
    /// Unique; integers or text, in PostgreSQL also UUIDs.
    pub id: String,
    /// Null until the row was sent. Receives a time of the column's type, RFC 3339 text, or Unix seconds when the column
    /// holds integers.
    pub sent_at: String,
    /// Holds the body (JSON, or plain text); without it the body is all other columns.
    pub payload: Option<String>,
    /// Holds the address of the row's webhook; a row without one goes to `sink`.
    pub url: Option<String>,
    /// Holds the secrets that sign the row's webhook, with blanks between them; a row without any is signed by `secrets`.
    pub secret: Option<String>,
    /// Holds whom the row is for: rows with one value go in the order of their ids. A row without one goes as it comes.
    pub recipient: Option<String>,
    /// Holds the time before which the row is not sent, or null.
    pub send_after: Option<String>,
    /// Holds the time after which the row is not sent any more, or null.
    pub expires_at: Option<String>,
    /// Holds when the row was written: how old the oldest one is that waits is told by it.
    pub created_at: Option<String>,
}

/// The tables `watchkeeper_delivery`, `watchkeeper_delivery_intent` and `watchkeeper_delivery_source`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[doc(hidden)] // for configurations, whose reference has its keys
pub struct SideTables {
    /// The schema of PostgreSQL that they are in; that of the table unless it is named.
    pub schema: Option<String>,
    /// Make them where they are missing; without it, migrations of your own do, from what `watchkeeper notify schema` prints.
    pub create: bool,
}

/// What to do with an item that may or may not have been sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InDoubt {
    /// Send it again with the same key.
    #[default]
    Repeat,
    /// Leave it for a person to decide.
    Park,
}

/// An address that may hold credentials: shows nothing but scheme and host, or the path of a file.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Address(String);

/// Where rows come from.
#[derive(Clone, Debug)]
pub(crate) enum Database {
    /// A file.
    Sqlite(PathBuf),
    /// A server.
    #[cfg(feature = "postgres")]
    Postgres(PgAddress),
}

/// Where rows go.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A web service.
    Web(Url),
    /// A mail server.
    Mail(MailServer),
    /// A file of JSON lines.
    File(PathBuf),
}

// === impl NotificationsParams ===

impl Default for NotificationsParams {
    fn default() -> Self {
        Self {
            source: Address::default(),
            source_file: None,
            password_file: None,
            filter: None,
            side_tables: SideTables::default(),
            listen: None,
            table: String::new(),
            columns: Columns::default(),
            sink: Address::default(),
            body: None,
            secrets: Vec::new(),
            secret_files: Vec::new(),
            per_host: 4,
            allow_private: false,
            mail: Value::Null,
            batch_size: 50,
            buckets: 64,
            claim: 4,
            concurrency: 4,
            rate: Value::Null,
            in_doubt: None,
            order: None,
            dedupe: None,
            digest: None,
            attempts: None,
            backoff: Backoff::Doubling(2.secs()),
            timeout: Span(15.secs()),
        }
    }
}

impl Default for Columns {
    fn default() -> Self {
        Self {
            id: "id".to_owned(),
            sent_at: "sent_at".to_owned(),
            payload: None,
            url: None,
            secret: None,
            recipient: None,
            send_after: None,
            expires_at: None,
            created_at: None,
        }
    }
}

impl Default for SideTables {
    fn default() -> Self {
        Self {
            schema: None,
            create: true,
        }
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "{}", path.display()),
            #[cfg(feature = "postgres")]
            Self::Postgres(address) => write!(f, "{address}"),
        }
    }
}

impl NotificationsParams {
    /// The condition on rows.
    #[must_use]
    pub(crate) fn filter(&self) -> Option<&str> {
        self.filter.as_deref().map(str::trim)
    }

    /// The database; else the key at fault, and what is wrong with it, without the address itself.
    pub(crate) fn database(&self) -> Result<Database, (&'static str, String)> {
        let read = |path: &Path| {
            let text = fs::read_to_string(path);
            text.map_err(|why| format!("names {}, which cannot be read: {why}", path.display()))
        };
        let (key, address) = match &self.source_file {
            None => ("source", self.source.clone()),
            Some(_) if !self.source.0.is_empty() => {
                return Err((
                    "source_file",
                    "is given beside `source`: keep one".to_owned(),
                ));
            }
            Some(path) => {
                let text = read(path).map_err(|why| ("source_file", why))?;
                ("source_file", Address(text.trim().to_owned()))
            }
        };
        let database = address.database().map_err(|why| (key, why))?;
        match (&self.password_file, database) {
            (None, database) => Ok(database),
            (Some(_), Database::Sqlite(_)) => {
                let why = "is for postgres:// alone: a file has no password";
                Err(("password_file", why.to_owned()))
            }
            #[cfg(feature = "postgres")]
            (Some(path), Database::Postgres(address)) => {
                read(path).map_err(|why| ("password_file", why))?;
                let address = address.with_password_file(path.clone());
                let address = address.map_err(|why| ("password_file", why))?;
                Ok(Database::Postgres(address))
            }
        }
    }

    /// Which rows go one after the other.
    #[must_use]
    pub(crate) fn lanes(&self) -> Option<Lanes> {
        Lanes::of(
            self.order.unwrap_or_default(),
            self.columns.recipient.as_deref(),
            self.dedupe.as_ref(),
        )
    }

    /// Columns that are read for the sink, beside those that are the body; each with the key that names it.
    #[must_use]
    pub(crate) fn columns_read(&self) -> Vec<(&'static str, String)> {
        let mut columns: Vec<_> = self.named_for_sink().collect();
        let others = [
            ("columns.recipient", &self.columns.recipient),
            ("columns.send_after", &self.columns.send_after),
            ("columns.expires_at", &self.columns.expires_at),
        ];
        columns.extend(
            others
                .into_iter()
                .filter_map(|(key, c)| Some((key, c.clone()?))),
        );
        let digest = self.digest.iter();
        columns.extend(digest.map(|digest| ("digest.since", digest.since.clone())));
        let dedupe = self.dedupe.iter();
        columns.extend(dedupe.map(|dedupe| ("dedupe.column", dedupe.column.clone())));
        let texts = self.columns_of_texts().into_iter();
        // The rows of a digest are no column of theirs.
        columns.extend(texts.filter(|(_, column)| self.digest.is_none() || column != ITEMS));
        for limit in self.limits() {
            if let By::Columns(text, _) = &limit.by {
                columns.extend(text.columns().map(|column| ("rate", column.to_owned())));
            }
        }
        columns.sort_by(|a, b| a.1.cmp(&b.1));
        columns.dedup_by(|a, b| a.1 == b.1);
        columns
    }

    /// What stands in the texts that are written here, each with the key of its text.
    fn columns_of_texts(&self) -> Vec<(&'static str, String)> {
        let body = self.body.iter().map(|text| ("body", text.expose()));
        let mail = MailParams::deserialize(&self.mail).ok();
        let mail = mail.iter().flat_map(MailParams::texts);
        let mut columns = Vec::new();
        for (key, text) in body.chain(mail.map(|text| ("mail", text))) {
            // What cannot be read is told by the check.
            if let Ok(text) = Text::parse(text, Form::Plain) {
                columns.extend(text.columns().map(|column| (key, column.to_owned())));
            }
        }
        columns
    }

    /// How often the texts hold the rows of a digest.
    pub(crate) fn items_in_texts(&self) -> usize {
        let columns = self.columns_of_texts().into_iter();
        columns.filter(|(_, column)| column == ITEMS).count()
    }

    /// Columns that are for the sink alone: they stay out of what is sent.
    #[must_use]
    pub(crate) fn columns_hidden(&self) -> Vec<String> {
        self.named_for_sink().map(|(_, column)| column).collect()
    }

    fn named_for_sink(&self) -> impl Iterator<Item = (&'static str, String)> {
        let url = self.columns.url.iter().map(|c| ("columns.url", c));
        let secret = self.columns.secret.iter().map(|c| ("columns.secret", c));
        url.chain(secret).map(|(key, c)| (key, c.clone()))
    }

    /// The column that is sent as it stands there, where `body` is one column and nothing else.
    #[cfg_attr(
        not(feature = "postgres"),
        allow(dead_code, reason = "others keep JSON as text")
    )]
    pub(crate) fn whole_column(&self) -> Option<String> {
        let body = Text::parse(self.body.as_ref()?.expose(), Form::Plain).ok()?;
        let column = body.whole_column()?;
        (self.digest.is_none() || column != ITEMS).then(|| column.to_owned())
    }

    /// Whether what is sent is written here, and not the row as it is.
    #[must_use]
    pub(crate) fn has_text(&self) -> bool {
        self.body.is_some() || !self.mail.is_null()
    }

    /// Whether what would be sent of a row as it is has to be read: it is sent, or a text holds that of all rows of a digest.
    #[must_use]
    pub(crate) fn needs_payload(&self) -> bool {
        let names_items = || self.columns_of_texts().iter().any(|(_, c)| c == ITEMS);
        !self.has_text() || self.digest.is_some() && names_items()
    }

    /// What is wrong with these parameters; does not touch the database.
    #[must_use]
    pub(crate) fn check(&self) -> Findings {
        let mut found = Findings::default();
        let mut say = |key: &str, problem: Result<(), String>| {
            let _ = take(&mut found, key, problem);
        };
        let database = match self.database() {
            Ok(database) => Some(database),
            Err((key, why)) => {
                say(key, Err(why));
                None
            }
        };
        let in_a_file = matches!(database, Some(Database::Sqlite(_)));
        say("table", table_name(&self.table, in_a_file));
        say("columns.id", identifier(&self.columns.id));
        say("columns.sent_at", identifier(&self.columns.sent_at));
        let others = [
            ("columns.payload", &self.columns.payload),
            ("columns.url", &self.columns.url),
            ("columns.secret", &self.columns.secret),
            ("columns.recipient", &self.columns.recipient),
            ("columns.send_after", &self.columns.send_after),
            ("columns.expires_at", &self.columns.expires_at),
            ("columns.created_at", &self.columns.created_at),
        ];
        for (key, column) in others {
            say(key, column.as_deref().map_or(Ok(()), identifier));
        }
        let distinct = !self.columns.id.eq_ignore_ascii_case(&self.columns.sent_at);
        let same = ensure(distinct, "is the same column as `columns.id`");
        say("columns.sent_at", same);
        let ordered = matches!(self.order, Some(Order::Strict | Order::SkipDead));
        let order = ensure(
            !ordered || self.columns.recipient.is_some(),
            "needs `columns.recipient`: rows with one value there keep their order",
        );
        say("order", order);
        if let Some(digest) = &self.digest {
            let ordered = self.columns.recipient.is_some() && self.order != Some(Order::None);
            let stands_alone = self.dedupe.is_none() && self.columns.expires_at.is_none();
            let rules = [
                (
                    "digest",
                    ordered,
                    "needs `columns.recipient`, in an order: a message is that of one recipient",
                ),
                (
                    "digest",
                    stands_alone,
                    "stands beside `dedupe` or `columns.expires_at`, which are about single rows; keep one of them",
                ),
                (
                    "digest.every",
                    !digest.every.0.is_zero(),
                    "must be longer than nothing",
                ),
                (
                    "digest.at_most",
                    (1..=1000).contains(&digest.at_most),
                    "must be from 1 to 1000",
                ),
            ];
            for (key, right, otherwise) in rules {
                say(key, ensure(right, otherwise));
            }
            say("digest.since", identifier(&digest.since));
        }
        if let Some(dedupe) = &self.dedupe {
            say("dedupe.column", identifier(&dedupe.column));
            say("dedupe.within", dedupe.check_window());
        }
        let filter = ensure(self.filter() != Some(""), "is empty: leave it out");
        say("where", filter);
        if let Some(schema) = &self.side_tables.schema {
            let schema = match in_a_file {
                true => Err("is for postgres:// alone: a file has no schemas".to_owned()),
                false => identifier(schema),
            };
            say("side_tables.schema", schema);
        }
        if let Some(channel) = &self.listen {
            let channel = match in_a_file {
                true => Err("is for postgres:// alone: a file announces nothing".to_owned()),
                false => identifier(channel),
            };
            say("listen", channel);
        }
        // Rows that name their own address need no other.
        if self.columns.url.is_none() || !self.sink.0.is_empty() {
            say("sink", self.sink.target().map(drop));
        }
        let rules = [
            (
                "batch_size",
                (1..=10_000).contains(&self.batch_size),
                "must be from 1 to 10000",
            ),
            (
                "buckets",
                (1..=65_536).contains(&self.buckets),
                "must be from 1 to 65536",
            ),
            (
                "claim",
                (1..=1000).contains(&self.claim),
                "must be from 1 to 1000",
            ),
            (
                "concurrency",
                (1..=1000).contains(&self.concurrency),
                "must be from 1 to 1000",
            ),
            (
                "per_host",
                (1..=1000).contains(&self.per_host),
                "must be from 1 to 1000",
            ),
            ("attempts", self.attempts != Some(0), "must be at least 1"),
            (
                "timeout",
                !self.timeout.0.is_zero(),
                "must be longer than nothing",
            ),
        ];
        for (key, right, otherwise) in rules {
            say(key, ensure(right, otherwise));
        }
        limits::read(&self.rate, &mut found);
        found
    }

    /// How many rows may go in a second; what is wrong there is told by the check.
    #[must_use]
    pub(crate) fn limits(&self) -> Vec<Limit> {
        limits::read(&self.rate, &mut Findings::default())
    }
}

/// A list of texts, or one text, as the environment gives it; several stand in it with blanks between them.
pub(crate) fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Secret>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "secrets in quotes, in a list")]
    enum Given {
        One(String),
        More(Vec<String>),
    }
    Ok(match Given::deserialize(from)? {
        Given::One(text) => vec![Secret::new(text)],
        Given::More(texts) => texts.into_iter().map(Secret::new).collect(),
    })
}

pub(crate) fn ensure(right: bool, otherwise: &str) -> Result<(), String> {
    if right {
        Ok(())
    } else {
        Err(otherwise.to_owned())
    }
}

/// A table, which may be named with its schema unless it is in a file.
fn table_name(name: &str, in_a_file: bool) -> Result<(), String> {
    match name.split_once('.') {
        Some((schema, table)) if !in_a_file => {
            identifier(schema)?;
            identifier(table)
        }
        _ => identifier(name),
    }
}

/// Names of tables and columns are quoted wherever they are used; what is refused here would be a mistake at best.
fn identifier(name: &str) -> Result<(), String> {
    let first = name.chars().next().ok_or("is missing")?;
    let fits = (first.is_alphabetic() || first == '_')
        && name.chars().all(|c| c.is_alphanumeric() || c == '_')
        && name.chars().count() <= 63;
    ensure(
        fits,
        "must be a plain name: letters, digits and `_`, at most 63",
    )?;
    let lower = name.to_ascii_lowercase();
    let reserved = ["sqlite_", "watchkeeper_"]
        .iter()
        .find(|p| lower.starts_with(**p));
    match reserved {
        Some(prefix) => Err(format!("names that begin with `{prefix}` are reserved")),
        None => Ok(()),
    }
}

impl fmt::Debug for NotificationsParams {
    /// What a mail says may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotificationsParams")
            .field("source", &self.source)
            .field("table", &self.table)
            .field("columns", &self.columns)
            .field("sink", &self.sink)
            .field("secrets", &self.secrets)
            .field("batch_size", &self.batch_size)
            .finish_non_exhaustive()
    }
}

// === impl Address ===

impl Address {
    /// Where rows come from.
    ///
    /// An error is a sentence for the reader of the configuration, without the address itself.
    fn database(&self) -> Result<Database, String> {
        const FORMS: &str = "sqlite://PATH or postgres://USER@HOST/DATABASE";
        if let Some(path) = self.0.strip_prefix("sqlite://") {
            ensure(
                !path.is_empty(),
                "names no file; write sqlite:///var/lib/app/app.db",
            )?;
            return Ok(Database::Sqlite(PathBuf::from(path)));
        }
        if self.is_postgres() {
            #[cfg(feature = "postgres")]
            return PgAddress::parse(&self.0).map(Database::Postgres);
            #[cfg(not(feature = "postgres"))]
            return Err("needs the feature `postgres` of watchkeeper-jobs".to_owned());
        }
        match self.0.is_empty() {
            true => Err(format!("is missing; write {FORMS}")),
            false => Err(format!("must be {FORMS}")),
        }
    }

    fn is_postgres(&self) -> bool {
        self.0.starts_with("postgres://") || self.0.starts_with("postgresql://")
    }

    /// Where rows go.
    ///
    /// An error is a sentence for the reader of the configuration, without the address itself.
    pub(crate) fn target(&self) -> Result<Target, String> {
        const FORMS: &str = "http://…, https://…, smtp://…, smtps://… or file://PATH";
        if self.0.is_empty() {
            return Err(format!("is missing; write {FORMS}"));
        }
        if let Some(path) = self.0.strip_prefix("file://") {
            ensure(
                !path.is_empty(),
                "names no file; write file:///var/log/app/sent.jsonl",
            )?;
            return Ok(Target::File(PathBuf::from(path)));
        }
        if self.0.starts_with("smtp://") || self.0.starts_with("smtps://") {
            return MailServer::parse(&self.0).map(Target::Mail);
        }
        if !self.0.starts_with("http://") && !self.0.starts_with("https://") {
            return Err(format!("must be {FORMS}"));
        }
        let url = Url::parse(&self.0).map_err(|e| format!("is not a valid address: {e}"))?;
        ensure(url.has_host(), "names no host")?;
        Ok(Target::Web(url))
    }

    /// Whether none was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it is meant to be that of a web service.
    pub(crate) fn is_web(&self) -> bool {
        self.0.starts_with("http://") || self.0.starts_with("https://")
    }

    /// The address without what might be secret: credentials, path and query of a web address.
    #[must_use]
    pub(crate) fn shown(&self) -> String {
        #[cfg(feature = "postgres")]
        if self.is_postgres() {
            return PgAddress::parse(&self.0)
                .map_or("postgres://…".to_owned(), |a| a.to_string());
        }
        match self.target() {
            Ok(Target::Web(url)) => shown(&url),
            Ok(Target::Mail(server)) => server.shown(),
            _ if self.0.starts_with("file://") || self.0.starts_with("sqlite://") => self.0.clone(),
            _ => "…".to_owned(),
        }
    }
}

impl From<&str> for Address {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for Address {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.shown())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn good() -> NotificationsParams {
        NotificationsParams {
            source: "sqlite:///tmp/x.db".into(),
            table: "notifications".to_owned(),
            sink: "https://user:hunter2@example.org/hook/s3cret?key=s3cret".into(),
            ..NotificationsParams::default()
        }
    }

    fn keys(params: &NotificationsParams) -> Vec<String> {
        let found = params.check().into_iter();
        found.map(|mut f| f.keys.swap_remove(0)).collect()
    }

    #[test]
    fn good_parameters_have_no_findings() {
        assert!(good().check().is_empty());
    }

    #[test]
    fn hostile_names_are_refused() {
        for name in [
            "",
            "x\"; DROP TABLE users; --",
            "a b",
            "a.b",
            "1x",
            "x\0",
            "sqlite_master",
            "Watchkeeper_delivery",
            &"x".repeat(64),
        ] {
            let params = NotificationsParams {
                table: name.to_owned(),
                ..good()
            };
            assert_eq!(keys(&params), ["table"], "{name:?}");
        }
    }

    #[test]
    fn every_finding_names_its_key() {
        let params = NotificationsParams {
            source: "mysql://db".into(),
            sink: "ftp://x".into(),
            batch_size: 0,
            buckets: 0,
            claim: 0,
            concurrency: 0,
            rate: Value::from(0),
            attempts: Some(0),
            timeout: Span::default(),
            columns: Columns {
                id: "a".to_owned(),
                sent_at: "A".to_owned(),
                payload: Some(String::new()),
                url: Some("a b".to_owned()),
                secret: Some("\"".to_owned()),
                recipient: Some("a.b".to_owned()),
                send_after: Some(String::new()),
                expires_at: Some("a b".to_owned()),
                created_at: Some("a\"b".to_owned()),
            },
            per_host: 0,
            ..good()
        };
        let expected = [
            "source",
            "columns.payload",
            "columns.url",
            "columns.secret",
            "columns.recipient",
            "columns.send_after",
            "columns.expires_at",
            "columns.created_at",
            "columns.sent_at",
            "sink",
            "batch_size",
            "buckets",
            "claim",
            "concurrency",
            "per_host",
            "attempts",
            "timeout",
            "rate",
        ];
        assert_eq!(keys(&params), expected);
    }

    #[test]
    fn an_order_needs_a_recipient_and_a_window_has_its_bounds() {
        let of = |order, recipient: Option<&str>, within| {
            let dedupe = |secs| Dedupe {
                column: "key".to_owned(),
                within: Span(Duration::from_secs(secs)),
            };
            let dedupe = Option::<u64>::map(within, dedupe);
            let mut params = NotificationsParams {
                order,
                dedupe,
                ..good()
            };
            params.columns.recipient = recipient.map(str::to_owned);
            keys(&params)
        };
        let none = [""; 0];
        assert_eq!(of(None, None, None), none);
        assert_eq!(of(Some(Order::None), None, None), none);
        assert_eq!(of(Some(Order::Strict), Some("to"), Some(60)), none);
        assert_eq!(of(Some(Order::Strict), None, None), ["order"]);
        assert_eq!(of(Some(Order::SkipDead), None, Some(60)), ["order"]);
        assert_eq!(of(None, None, Some(0)), ["dedupe.within"]);
        assert_eq!(of(None, None, Some(u64::MAX)), ["dedupe.within"]);
    }

    #[test]
    fn a_schema_is_named_in_postgresql_alone() {
        let of = |source: &str, table: &str| {
            let table = table.to_owned();
            let source = source.into();
            keys(&NotificationsParams {
                source,
                table,
                side_tables: SideTables {
                    schema: Some("ops".to_owned()),
                    create: true,
                },
                ..good()
            })
        };
        let server = "postgres://me@db/app";
        assert_eq!(of(server, "app.mails"), [""; 0]);
        assert_eq!(of(server, "a.b.c"), ["table"]);
        assert_eq!(of(server, "app."), ["table"]);
        assert_eq!(of("sqlite://x.db", "a.b"), ["table", "side_tables.schema"]);
    }

    #[test]
    fn an_address_with_a_password_may_lie_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            Some(path)
        };
        let of = |source: &str, source_file, password_file| {
            let params = NotificationsParams {
                source: source.into(),
                source_file,
                password_file,
                ..good()
            };
            let problem = params.database().map(|_| ());
            problem.map_err(|(key, why)| {
                assert!(!why.contains("hunter2"), "{why}");
                key
            })
        };
        let whole = || file("source", "postgres://me:hunter2@db/app\n");
        let word = || file("word", "hunter2\n");
        let plain = "postgres://me@db/app";
        assert_eq!(of("", whole(), None), Ok(()));
        assert_eq!(of(plain, None, word()), Ok(()));
        assert_eq!(of(plain, whole(), None), Err("source_file"));
        assert_eq!(of("", Some("/nowhere".into()), None), Err("source_file"));
        assert_eq!(of("", file("bad", "hunter2"), None), Err("source_file"));
        assert_eq!(of("", whole(), word()), Err("password_file"));
        assert_eq!(of("sqlite://x.db", None, word()), Err("password_file"));
    }

    #[test]
    fn no_secret_of_an_address_is_shown() {
        let params = NotificationsParams {
            secrets: vec![Secret::new("whsec_s3cret")],
            mail: serde_json::json!({"password": "hunter2"}),
            body: Some(Secret::new("s3cret")),
            ..good()
        };
        let shown = format!("{params:?}");
        assert!(shown.contains("https://example.org"), "{shown}");
        assert!(
            !shown.contains("hunter2") && !shown.contains("s3cret"),
            "{shown}"
        );
        let broken = Address::from("https://user:hunter2@:99999999/s3cret");
        let text = format!("{broken:?} {:?}", broken.target().err());
        assert!(
            !text.contains("hunter2") && !text.contains("s3cret"),
            "{text}"
        );
    }
}
