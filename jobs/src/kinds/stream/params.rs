//! What to read and what to do with it, as the configuration says it.

use std::{path::PathBuf, time::Duration};

use serde::Deserialize;
use serde_json::Value;
use watchkeeper::{
    DurationExt,
    config::{Findings, Secret},
    files,
    human::Span,
    node::redis::{self, TlsFiles},
};

use crate::kinds::{
    exec::ExecParams,
    kind::take,
    notifications::{
        Address,
        params::{ensure, one_or_more},
    },
};

/// Parameters of a job of kind `stream`.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct StreamParams {
    /// The server: `redis://[USER[:PASSWORD]@]HOST[:PORT][/DB]`, `rediss://…` or `unix:///PATH`.
    pub(super) url: Secret,
    /// A file with that address.
    pub(super) url_file: Option<PathBuf>,
    /// The CA that has signed the server's certificate; those of the system unless set.
    pub(super) tls_ca: Option<PathBuf>,
    /// The stream's key.
    pub(super) stream: String,
    /// How replicas share the messages.
    pub(super) mode: Mode,
    /// The consumer group.
    pub(super) group: Option<String>,
    /// For how long it is remembered that a message was handled; older ones are refused.
    pub(super) retention: Span,
    /// Where messages are sent: a web service, or a file.
    pub(super) sink: Address,
    /// What is sent to a web service, with `${FIELD}` for fields.
    pub(super) body: Option<Secret>,
    /// Secrets that sign what is sent.
    #[serde(deserialize_with = "one_or_more")]
    pub(super) secrets: Vec<Secret>,
    /// Files with such secrets.
    pub(super) secret_files: Vec<PathBuf>,
    /// Messages that are sent in a second, at most, by all replicas together: a number, or a list of limits.
    pub(super) rate: Value,
    /// Time limit for one request.
    pub(super) timeout: Span,
    /// A command that is run for each message.
    pub(super) exec: Option<ExecParams>,
    /// Attempts at a message before it goes to the dead list.
    pub(super) attempts: u32,
    /// The stream of dead messages.
    pub(super) dead: Option<String>,
    /// Messages that are read and not done yet, at most.
    pub(super) read_ahead: usize,
    /// Messages claimed in one go, at most.
    pub(super) claim: usize,
    /// Messages handled at once by one replica.
    pub(super) concurrency: usize,
    /// In a group: how long another member's message is left alone.
    pub(super) take_over_after: Span,
}

/// How replicas share the messages of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Mode {
    /// Each reads all of them.
    #[default]
    EveryReader,
    /// The server deals them out to the members of a group.
    Group,
}

// === impl StreamParams ===

impl Default for StreamParams {
    fn default() -> Self {
        Self {
            url: Secret::new(""),
            url_file: None,
            tls_ca: None,
            stream: String::new(),
            mode: Mode::default(),
            group: None,
            retention: Span(12.hours()),
            sink: Address::default(),
            body: None,
            secrets: Vec::new(),
            secret_files: Vec::new(),
            rate: Value::Null,
            timeout: Span(15.secs()),
            exec: None,
            attempts: 10,
            dead: None,
            read_ahead: 500,
            claim: 16,
            concurrency: 16,
            take_over_after: Span(30.secs()),
        }
    }
}

impl StreamParams {
    /// What is wrong with these parameters, but for what is done with messages; opens no connection.
    #[must_use]
    pub(super) fn check(&self) -> Findings {
        let mut found = Findings::default();
        take(&mut found, self.url_key(), self.client().map(drop));
        let mut say = |key: &str, right: bool, otherwise: &str| {
            let _ = take(&mut found, key, ensure(right, otherwise));
        };
        say(
            "stream",
            !self.stream.is_empty(),
            "is missing; write the key of the stream",
        );
        match self.mode {
            Mode::Group => say(
                "group",
                self.group.as_ref().is_some_and(|group| !group.is_empty()),
                "is missing; mode = \"group\" needs the name of a consumer group",
            ),
            Mode::EveryReader => say(
                "group",
                self.group.is_none(),
                "is for mode = \"group\"; set that, or leave the group out",
            ),
        }
        say(
            "dead",
            self.dead_list() != self.stream,
            "is the stream itself; name another",
        );
        let lengths = [
            ("retention", self.retention),
            ("timeout", self.timeout),
            ("take_over_after", self.take_over_after),
        ];
        for (key, length) in lengths {
            say(key, !length.0.is_zero(), "must be longer than nothing");
        }
        say("attempts", self.attempts >= 1, "must be at least 1");
        let numbers = [
            ("read_ahead", self.read_ahead, 10_000),
            ("claim", self.claim, 250),
            ("concurrency", self.concurrency, 1_000),
        ];
        for (key, number, most) in numbers {
            let otherwise = format!("must be from 1 to {most}");
            say(key, (1..=most).contains(&number), &otherwise);
        }
        found
    }

    /// A client of the server, and its name for people.
    pub(super) fn client(&self) -> Result<(deadpool_redis::redis::Client, String), String> {
        const FORMS: &str = "write redis://HOST:PORT, or name a file that holds it as `url_file`";
        let url = match (&self.url_file, self.url.expose()) {
            (Some(_), url) if !url.is_empty() => {
                return Err("stands beside `url`; keep one of them".to_owned());
            }
            (Some(file), _) => files::read_to_string(file)
                .map_err(|error| format!("{} cannot be read: {error}", file.display()))?,
            (None, "") => return Err(format!("is missing; {FORMS}")),
            (None, url) => url.to_owned(),
        };
        let tls = TlsFiles {
            ca: self.tls_ca.clone(),
            ..TlsFiles::default()
        };
        redis::client(url.trim(), tls).map_err(|error| error.to_string())
    }

    fn url_key(&self) -> &'static str {
        match self.url_file {
            Some(_) => "url_file",
            None => "url",
        }
    }

    /// The stream of dead messages.
    pub(super) fn dead_list(&self) -> String {
        let usual = || format!("{}:dead", self.stream);
        self.dead.clone().unwrap_or_else(usual)
    }

    /// How often messages of others are looked for.
    pub(super) fn look_every(&self) -> Duration {
        (self.take_over_after.0 / 4).max(200.millis())
    }
}
