//! What to read and what to do with it, as the configuration says it.

use std::{path::PathBuf, time::Duration};

use serde::Deserialize;
use watchkeeper::{
    DurationExt,
    clock::Clock,
    config::{Findings, Secret},
    files,
    human::Span,
    node::redis::{self, TlsFiles},
};

use super::handler::{Handler, Plan};
use crate::kinds::{
    exec::ExecParams,
    kind::{in_a_line, take},
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
    /// What is wrong with these parameters; connects to nobody.
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
        Plan::read(self, &mut found);
        found
    }

    /// What handles messages.
    ///
    /// # Errors
    /// What is wrong, in a line.
    pub(super) fn handler(&self, clock: &Clock) -> Result<Handler, String> {
        let mut found = Findings::default();
        let plan = Plan::read(self, &mut found);
        match plan {
            Some(plan) => plan.open(clock),
            None => Err(in_a_line(&found)),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn found(more: &Value) -> Vec<(String, String)> {
        let mut params = json!({
            "url": "redis://user:hunter2@h.example/1",
            "stream": "orders",
            "sink": "https://h.example/hook",
        });
        let more = more.as_object().unwrap().clone();
        params.as_object_mut().unwrap().extend(more);
        let params: StreamParams = serde_json::from_value(params).unwrap();
        let found = params.check().into_iter();
        found
            .map(|mut f| (f.keys.swap_remove(0), f.message))
            .collect()
    }

    #[test]
    fn good_parameters_have_no_findings() {
        assert_eq!(found(&json!({})), []);
        assert_eq!(found(&json!({"mode": "group", "group": "shop"})), []);
        assert_eq!(
            found(&json!({"sink": "", "exec": {"command": ["true"]}})),
            []
        );
        let body = json!({"body": "{\"order\": \"${order}\"}", "dead": "lost"});
        assert_eq!(found(&body), []);
    }

    #[test]
    fn what_is_wrong_is_told_by_its_key_and_with_the_remedy() {
        for (more, key, says) in [
            (json!({"url": ""}), "url", "redis://HOST:PORT"),
            (json!({"url": "http://h"}), "url", "redis://HOST:PORT"),
            (
                json!({"url_file": "/nowhere/u"}),
                "url_file",
                "beside `url`",
            ),
            (
                json!({"url": "", "url_file": "/nowhere/u"}),
                "url_file",
                "/nowhere/u",
            ),
            (json!({"stream": ""}), "stream", "key of the stream"),
            (
                json!({"mode": "group"}),
                "group",
                "name of a consumer group",
            ),
            (json!({"group": "shop"}), "group", "mode = \"group\""),
            (json!({"dead": "orders"}), "dead", "name another"),
            (
                json!({"retention": "0s"}),
                "retention",
                "longer than nothing",
            ),
            (json!({"attempts": 0}), "attempts", "at least 1"),
            (json!({"claim": 251}), "claim", "1 to 250"),
            (json!({"read_ahead": 0}), "read_ahead", "1 to 10000"),
            (json!({"sink": ""}), "sink", "exec"),
            (json!({"exec": {"command": ["true"]}}), "exec", "keep one"),
            (
                json!({"sink": "", "exec": {"command": ["/nowhere/x"]}}),
                "exec.command",
                "/nowhere/x",
            ),
            (json!({"sink": "smtp://h"}), "sink", "http://"),
            (json!({"secrets": ["x"]}), "secrets", "openssl rand"),
        ] {
            let told = found(&more);
            assert_eq!(told.len(), 1, "{more}: {told:?}");
            assert_eq!(told[0].0, key, "{more}");
            assert!(told[0].1.contains(says), "{more}: {told:?}");
            assert!(!told[0].1.contains("hunter2"), "{told:?}");
        }
    }
}
