//! What is done with a message: it is sent as a notification is, or a command is run for it as a job of kind `exec` runs one.

use std::{ffi::OsString, sync::Arc, time::Duration};

use percent_encoding::utf8_percent_encode;
use serde_json::{Map, Value};
use watchkeeper::{
    clock::Clock,
    config::{Findings, Severity},
    job::{FailureKind, JobError, Run},
};

use super::{message::Message, params::StreamParams};
use crate::{
    kinds::{
        exec::Exec,
        kind::take,
        notifications::{
            NotificationsParams,
            cell::ItemId,
            delivery::Answer,
            limits::Limits,
            params::{Target, read_limits},
            sending::{Sending, Sent},
            sink::{self, Sink},
            source::Item,
            times::Times,
        },
    },
    web::RESERVED,
};

/// A handler to be.
pub(super) enum Plan {
    Sink(Box<(sink::Plan, NotificationsParams)>, String),
    Exec(Box<Exec>),
}

/// What handles messages.
pub(super) enum Handler {
    Sink {
        sink: Arc<dyn Sink>,
        limits: Limits,
        times: Times,
        clock: Clock,
        stream: String,
    },
    Exec(Box<Exec>),
}

/// What came of handling a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Handled {
    Done,
    /// Not now, through no fault of its own: not before this pause.
    Waits(Duration),
    /// It has failed, and may be tried again.
    Failed(String),
    /// It would fail again.
    Never(String),
}

/// What a variable of a command may hold; the system takes 128 KiB.
const MOST_OF_A_VARIABLE: usize = 120 * 1024;

// === impl Plan ===

impl Plan {
    /// Reads the parameters, and notes what is wrong with them.
    pub(super) fn read(params: &StreamParams, found: &mut Findings) -> Option<Self> {
        let before = errors(found);
        let plan = match (&params.exec, params.sink.target()) {
            (Some(exec), _) => {
                if !params.sink.is_empty() {
                    let why = "stands beside `sink`; keep one of them";
                    found.error(&["exec"], why, "");
                }
                let webhooks = [
                    ("body", params.body.is_some()),
                    ("secrets", !params.secrets.is_empty()),
                    ("secret_files", !params.secret_files.is_empty()),
                    ("rate", !params.rate.is_null()),
                ];
                for (key, _) in webhooks.into_iter().filter(|(_, given)| *given) {
                    found.error(&[key], "is for a `sink`, and there is none", "");
                }
                found.nest("exec", exec.check());
                Self::Exec(Box::new(Exec::new(exec.clone())))
            }
            (None, Ok(Target::Web(_) | Target::File(_))) => {
                let sending = NotificationsParams {
                    table: params.stream.clone(),
                    sink: params.sink.clone(),
                    body: params.body.clone(),
                    secrets: params.secrets.clone(),
                    secret_files: params.secret_files.clone(),
                    timeout: params.timeout,
                    rate: params.rate.clone(),
                    ..NotificationsParams::default()
                };
                read_limits(&params.rate, found);
                let plan = sink::Plan::read(&sending, found)?;
                Self::Sink(Box::new((plan, sending)), params.stream.clone())
            }
            (None, wrong) => {
                const FORMS: &str = "http://…, https://… or file://PATH";
                let why = match wrong {
                    Err(_) if params.sink.is_empty() => {
                        format!("is missing; write {FORMS}, or name a command as `exec`")
                    }
                    Err(why) if params.sink.is_web() => why,
                    _ => format!("must be {FORMS}"),
                };
                let _ = take::<()>(found, "sink", Err(why));
                return None;
            }
        };
        (errors(found) == before).then_some(plan)
    }

    /// Makes the handler. Opens no connection.
    ///
    /// # Errors
    /// A sentence, for instance when the system has no root certificates.
    pub(super) fn open(self, clock: &Clock) -> Result<Handler, String> {
        Ok(match self {
            Self::Sink(plan, stream) => {
                let (plan, params) = *plan;
                Handler::Sink {
                    sink: plan.open(&params, clock)?,
                    limits: Limits::new(params.limits()),
                    times: Times::default(),
                    clock: clock.clone(),
                    stream,
                }
            }
            Self::Exec(exec) => Handler::Exec(exec),
        })
    }
}

/// All that is wrong with the parameters of a job; opens no connection.
pub(super) fn check(params: &StreamParams) -> Findings {
    let mut found = params.check();
    Plan::read(params, &mut found);
    found
}

/// How much of what was found is an error.
pub(super) fn errors(found: &Findings) -> usize {
    let errors = found.iter().filter(|f| f.severity == Severity::Error);
    errors.count()
}

// === impl Handler ===

impl Handler {
    /// Handles one message under the run's lease.
    ///
    /// # Errors
    /// The run was told to stop.
    pub(super) async fn handle(&self, message: &Message, run: &Run) -> Result<Handled, JobError> {
        match self {
            Self::Sink {
                sink,
                limits,
                times,
                clock,
                stream,
            } => {
                if let Some(locks) = run.locks() {
                    limits.share(run.job(), locks);
                }
                let sending = Sending {
                    lanes: None,
                    dedupe: None,
                    sink: sink.as_ref(),
                    limits,
                    times,
                    clock,
                };
                let items = [item(message, stream)];
                let Sent {
                    mut answers,
                    rest,
                    limited,
                } = sending.all(&items, run.token(), run).await;
                match answers.remove(&0) {
                    Some(Answer::Accepted) => Ok(match sink.flush().await {
                        Ok(()) => Handled::Done,
                        Err(error) => {
                            Handled::Failed(format!("accepted, but perhaps not kept: {error}"))
                        }
                    }),
                    Some(answer) => of_answer(answer, run),
                    None => {
                        run.check()?;
                        Ok(Handled::Waits(rest.max(limited).unwrap_or_default()))
                    }
                }
            }
            Self::Exec(exec) => {
                let variables = match variables(message) {
                    Ok(variables) => variables,
                    Err(why) => return Ok(Handled::Never(why)),
                };
                match exec.run_with(run, variables).await {
                    Ok(_) => Ok(Handled::Done),
                    Err(error) => {
                        run.check()?;
                        Ok(match error.kind() {
                            FailureKind::Retry => Handled::Failed(error.to_string()),
                            FailureKind::Fatal => Handled::Never(error.to_string()),
                        })
                    }
                }
            }
        }
    }
}

/// What an answer means for a message. One that may have been received comes again with its key.
fn of_answer(answer: Answer, run: &Run) -> Result<Handled, JobError> {
    Ok(match answer {
        Answer::Accepted | Answer::Duplicate => Handled::Done,
        Answer::Waits { after, .. }
        | Answer::Later {
            after: Some(after), ..
        } => Handled::Waits(after),
        Answer::Later { why, after: None } | Answer::Unknown { why } => Handled::Failed(why),
        Answer::Refused { why } => Handled::Never(why),
        Answer::CutOff { why } => {
            run.check()?;
            Handled::Failed(why)
        }
    })
}

/// A message as what is sent.
fn item(message: &Message, stream: &str) -> Item {
    let id = message.id.to_string();
    let mut body = Map::new();
    body.insert("id".to_owned(), id.as_str().into());
    body.insert("stream".to_owned(), stream.into());
    body.insert("fields".to_owned(), message.fields.clone().into());
    let key = format!("{}/{id}", utf8_percent_encode(stream, RESERVED));
    let mut columns = message.fields.clone();
    columns.entry("id").or_insert_with(|| id.as_str().into());
    Item {
        id: ItemId::Text(id),
        key,
        body,
        columns,
        prior: None,
        is_repeat: false,
        members: Vec::new(),
        digest: None,
    }
}

/// A message as a command's variables.
fn variables(message: &Message) -> Result<[(OsString, OsString); 2], String> {
    let fields = Value::Object(message.fields.clone()).to_string();
    if fields.len() > MOST_OF_A_VARIABLE {
        return Err(format!(
            "it has {} bytes as JSON, and a command takes {MOST_OF_A_VARIABLE}",
            fields.len()
        ));
    }
    Ok([
        (
            "WATCHKEEPER_MESSAGE_ID".into(),
            message.id.to_string().into(),
        ),
        ("WATCHKEEPER_MESSAGE".into(), fields.into()),
    ])
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use watchkeeper::{clock::Moment, job::RunFacts};

    use super::*;

    fn message(fields: Value) -> Message {
        let Value::Object(fields) = fields else {
            panic!("fields are an object");
        };
        Message {
            id: "1700000000000-3".parse().unwrap(),
            fields,
        }
    }

    #[test]
    fn a_message_is_sent_under_a_key_of_stream_and_id() {
        let item = item(&message(json!({"order": "7"})), "a/b");
        assert_eq!(item.key, "a%2Fb/1700000000000-3");
        assert_eq!(
            Value::Object(item.body),
            json!({"id": "1700000000000-3", "stream": "a/b", "fields": {"order": "7"}})
        );
        assert_eq!(
            Value::Object(item.columns),
            json!({"id": "1700000000000-3", "order": "7"})
        );
    }

    /// What a worker without locks does with each of these messages.
    async fn handled(params: Value, fields: &[Value]) -> Vec<Handled> {
        let params: StreamParams = serde_json::from_value(params).unwrap();
        let mut found = Findings::default();
        let plan = Plan::read(&params, &mut found);
        assert!(found.is_empty(), "{found:?}");
        let handler = plan.unwrap().open(&Clock::system()).unwrap();
        let mut all = Vec::new();
        for fields in fields {
            let facts = RunFacts {
                job: "orders".to_owned(),
                id: "r-1".to_owned(),
                tick: jiff::Timestamp::UNIX_EPOCH,
                attempt: 1,
                replica: "a".to_owned(),
                batch: None,
                shard: 0,
                shards: 1,
                params: Value::Null,
                checkpoint: None,
            };
            let run = Run::new(facts, Clock::system(), None, Duration::ZERO, Moment::NEVER);
            let message = message(fields.clone());
            all.push(handler.handle(&message, &run).await.unwrap());
        }
        all
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_waits_for_its_limit_and_for_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let sink = format!("file://{}", folder.path().join("sent").display());
        let params = json!({"stream": "s", "sink": sink, "rate": [{"limit": 1, "per": "10m", "by": "${tenant}"}]});
        let [a, b] = ["a", "b"].map(|tenant| json!({ "tenant": tenant }));
        let all = handled(params, &[a.clone(), a, b]).await;
        assert_eq!((&all[0], &all[2]), (&Handled::Done, &Handled::Done));
        assert!(
            matches!(all[1], Handled::Waits(pause) if !pause.is_zero()),
            "{all:?}"
        );
    }

    #[test]
    fn what_is_wrong_with_a_rate_is_told_by_its_key() {
        let keys = |params: Value| {
            let params: StreamParams = serde_json::from_value(params).unwrap();
            let mut found = Findings::default();
            Plan::read(&params, &mut found);
            let keys = found.into_iter().map(|mut f| f.keys.swap_remove(0));
            keys.collect::<Vec<_>>()
        };
        let web = "https://example.org/hook";
        assert_eq!(
            keys(json!({"stream": "s", "sink": web, "rate": 20})),
            [""; 0]
        );
        assert_eq!(
            keys(json!({"stream": "s", "sink": web, "rate": 0})),
            ["rate"]
        );
        let command = json!({"command": ["true"]});
        assert_eq!(
            keys(json!({"stream": "s", "exec": command, "rate": 20})),
            ["rate"]
        );
    }

    #[test]
    fn a_command_gets_the_message_unless_it_is_too_large() {
        let [id, fields] = variables(&message(json!({"order": "7"}))).unwrap();
        assert_eq!(id.1, "1700000000000-3");
        assert_eq!(fields.1, "{\"order\":\"7\"}");
        let large = message(json!({"order": "7".repeat(MOST_OF_A_VARIABLE)}));
        assert!(variables(&large).is_err());
    }

    fn found(more: &Value) -> Vec<(String, String)> {
        let mut params = json!({
            "url": "redis://user:hunter2@h.example/1",
            "stream": "orders",
            "sink": "https://h.example/hook",
        });
        let more = more.as_object().unwrap().clone();
        params.as_object_mut().unwrap().extend(more);
        let params: StreamParams = serde_json::from_value(params).unwrap();
        let found = check(&params).into_iter();
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
