//! Sends items to web services: one POST each.
//!
//! Headers: `Idempotency-Key`, by which the service knows a repeat, and `Watchkeeper-Token`, which grows with every
//! holder of the batch; with secrets also `webhook-id`, `webhook-timestamp` and `webhook-signature` of Standard Webhooks; and
//! `traceparent` where traces are sent.
//! The bytes that are signed are those that are sent. The service answers 2xx once it has the item; it should answer the
//! same to a repeat.
//!
//! | answer | the item | its host |
//! | --- | --- | --- |
//! | 2xx | sent | |
//! | 429, 502, 503, 504 | later | is left alone for `Retry-After`, or a growing while, then sent to at half the pace |
//! | 408, 425, other 5xx | later; `Retry-After` is honoured | |
//! | 3xx | later: the address has changed, and the configuration must follow | |
//! | 410 | dead | that address is off for an hour: rows that name it are dead, those that fall back to it wait; one for all is left alone |
//! | other 4xx | dead | |
//! | no connection | later | is left alone after five in a row |
//! | connection but no answer | in doubt | the same |
//!
//! # Invariants
//! - W1 The address of a row reaches nothing private, unless the configuration allows it, and is never shown.
//!   (`an_address_of_the_own_machine_is_refused_with_the_reason`)
//! - W2 What is signed is what is sent, and the key knows nothing of the token.  (`what_is_signed_is_what_is_sent`)
//! - W3 A body that no service takes makes its item dead, and no other.  (`a_body_that_is_too_large_is_dead`)
//! - W4 An address that is gone keeps back no row of another one, on the same host either.
//!   (`rows_without_an_address_wait_for_a_sink_that_is_gone`)

mod gone;
mod plan;
mod secrets;
mod signature;

pub(super) use plan::Plan;
pub(crate) use signature::Keys;
pub(super) use signature::message_id;

use std::{
    error::Error,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use async_trait::async_trait;
use reqwest::{Client, StatusCode, Url, header::CONTENT_TYPE};
use serde_json::Value;
use tracing::warn;
use watchkeeper::{
    clock::{Clock, Moment},
    node::Token,
    trace,
};

use self::{gone::Gone, secrets::Secrets};
use super::{
    Sink,
    hosts::Hosts,
    pace::Heard,
    reach::{self, Forbidden},
};
use crate::{
    notifications::{delivery::Answer, source::Item, text::Text},
    web::{self, Meaning, NoClient, plain, shown},
};

/// The sink.
pub(crate) struct Webhook {
    /// For the address of the configuration, which may be anywhere.
    client: Client,
    to: To,
    text: Option<Text>,
    secrets: Secrets,
    hosts: Hosts,
    gone: Gone,
    /// When the log was last told of a large body, in seconds.
    told_of_size: AtomicU64,
    clock: Clock,
}

/// Whom items go to.
enum To {
    /// All to this address.
    One(Url),
    /// Each to the address of its row, if it has one, else to the other.
    Each { rows: Rows, otherwise: Option<Url> },
}

/// Addresses of rows.
struct Rows {
    column: String,
    allow_private: bool,
    /// Reaches nothing private, unless that is allowed.
    client: Client,
}

/// A larger body is said to be large, now and then.
const LARGE: usize = 20_000;
const TOLD_EVERY: u64 = 60;
/// A larger body is not sent.
const MOST: usize = 1_000_000;
/// How long an address that is gone is left alone.
const GONE_FOR: Duration = Duration::from_secs(3600);

// === impl Webhook ===

impl Webhook {
    /// Posts as planned, within `timeout` each.
    ///
    /// # Errors
    /// [`NoClient`], for instance when the system has no root certificates.
    pub(super) fn new(plan: Plan, timeout: Duration, clock: Clock) -> Result<Self, NoClient> {
        let anywhere = match &plan.sink {
            Some(url) => web::client(url, timeout)?,
            None => web::client_to_anybody(timeout, None)?,
        };
        let (to, hosts) = match (plan.url_column, plan.sink) {
            (None, Some(url)) => {
                // The job's own limits count.
                let hosts = Hosts::single(&shown(&url), usize::MAX);
                (To::One(url), hosts)
            }
            (column, otherwise) => {
                let resolver = (!plan.allow_private).then(reach::resolver);
                let rows = Rows {
                    column: column.unwrap_or_default(),
                    allow_private: plan.allow_private,
                    client: web::client_to_anybody(timeout, resolver)?,
                };
                let hosts = Hosts::many(plan.per_host);
                (To::Each { rows, otherwise }, hosts)
            }
        };
        Ok(Self {
            client: anywhere,
            to,
            text: plan.text,
            secrets: Secrets::new(
                plan.keys,
                plan.secret_files,
                plan.secret_column,
                clock.clone(),
            ),
            hosts,
            gone: Gone::default(),
            told_of_size: AtomicU64::new(0),
            clock,
        })
    }

    /// The address of an item, the client for it, and whether its row named it.
    fn address(&self, item: &Item) -> Result<(Url, &Client, bool), String> {
        match &self.to {
            To::One(url) => Ok((url.clone(), &self.client, false)),
            To::Each { rows, otherwise } => match (rows.address(item)?, otherwise) {
                (Some(url), _) => Ok((url, &rows.client, true)),
                (None, Some(url)) => Ok((url.clone(), &self.client, false)),
                (None, None) => Err(format!("column `{}` names no address", rows.column)),
            },
        }
    }

    /// What is sent, and as what.
    fn body(&self, item: &Item) -> Result<(Vec<u8>, &'static str), String> {
        const JSON: &str = "application/json";
        let (body, kind) = match &self.text {
            None => (
                serde_json::to_vec(&item.body).map_err(|e| e.to_string())?,
                JSON,
            ),
            Some(text) => {
                let text = text.fill(&item.columns)?;
                let kind = match text.trim_start().starts_with(['{', '[']) {
                    true => JSON,
                    false => "text/plain; charset=utf-8",
                };
                (text.into_bytes(), kind)
            }
        };
        let size = body.len();
        if size > MOST {
            return Err(format!(
                "its body has {size} bytes, and no more than {MOST} are sent"
            ));
        }
        if size > LARGE && self.is_time_to_tell() {
            let key = &item.key;
            warn!(key, size, "many receivers refuse a body this large");
        }
        Ok((body, kind))
    }

    fn is_time_to_tell(&self) -> bool {
        let now = self.clock.now().since_boot().as_secs();
        let due = |last: u64| (last == 0 || now >= last + TOLD_EVERY).then_some(now.max(1));
        let told = &self.told_of_size;
        told.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due)
            .is_ok()
    }

    /// What the answer says of the receiver.
    fn tell(&self, url: &Url, left: Moment, heard: Heard, why: &str) {
        let host = self.host(url);
        self.hosts.heard(&host, left, heard, why, self.clock.now());
    }

    fn host(&self, url: &Url) -> String {
        match self.to {
            To::One(_) => String::new(),
            To::Each { .. } => shown(url),
        }
    }

    async fn post(
        &self,
        (url, client): (&Url, &Client),
        item: &Item,
        token: Token,
    ) -> Result<Answer, Answer> {
        let keys = self.secrets.of(item).await?;
        let (body, kind) = self.body(item).map_err(|why| Answer::Refused { why })?;
        let mut request = client
            .post(url.clone())
            .header(CONTENT_TYPE, kind)
            .header("idempotency-key", &item.key)
            .header("watchkeeper-token", token.0);
        if let Some(context) = trace::current() {
            request = request.header("traceparent", context.to_string());
        }
        if !keys.is_empty() {
            let (id, seconds) = (message_id(&item.key), self.clock.wall().as_second());
            request = request
                .header("webhook-signature", keys.sign(&id, seconds, &body))
                .header("webhook-id", id)
                .header("webhook-timestamp", seconds);
        }
        let left = self.clock.now();
        match request.body(body).send().await {
            Ok(response) => {
                let after = web::retry_after(response.headers(), self.clock.wall());
                let status = response.status();
                let answer = of_status(status, after);
                self.tell(
                    url,
                    left,
                    heard(status, after),
                    &format!("answered {}", status.as_u16()),
                );
                web::read(response, 0).await;
                if status == StatusCode::GONE {
                    self.is_gone(url);
                }
                Ok(answer)
            }
            Err(error) => {
                let silent = !error.is_builder() && forbidden(&error).is_none();
                let answer = of_error(error);
                if let (true, Answer::Later { why, .. } | Answer::Unknown { why }) =
                    (silent, &answer)
                {
                    self.tell(url, left, Heard::Silence, why);
                }
                Ok(answer)
            }
        }
    }

    /// An address that says it is no more must not be asked for every row.
    fn is_gone(&self, url: &Url) {
        let (now, why) = (self.clock.now(), "answered 410: the receiver is gone");
        match &self.to {
            // The rows are not to blame, and need a new address in the configuration.
            To::One(_) => self.hosts.pause("", GONE_FOR, why, now),
            To::Each { .. } => {
                warn!(
                    host = shown(url),
                    "an address answered 410 and is off for an hour"
                );
                self.gone.add(url, now + GONE_FOR, now);
            }
        }
    }
}

#[async_trait]
impl Sink for Webhook {
    fn name(&self) -> String {
        match &self.to {
            To::One(url) => shown(url),
            To::Each { rows, .. } => format!("the addresses in column {}", rows.column),
        }
    }

    fn hosts(&self) -> Option<&Hosts> {
        Some(&self.hosts)
    }

    fn host_of(&self, item: &Item) -> String {
        // Without an address it goes nowhere: there is no need to wait for that.
        self.address(item)
            .map_or_else(|_| String::new(), |(url, ..)| self.host(&url))
    }

    async fn send(&self, item: &Item, token: Token) -> Answer {
        let (url, client, is_own) = match self.address(item) {
            Ok(found) => found,
            Err(why) => return Answer::Refused { why },
        };
        let now = self.clock.now();
        if let Some(until) = self.gone.until(&url, now) {
            let why = "its address answered 410 (gone) within the last hour, and is off".to_owned();
            return match is_own {
                true => Answer::Refused { why },
                // It is not to blame, and needs a new address in the configuration.
                false => Answer::Waits {
                    why,
                    after: until.since(now),
                },
            };
        }
        let answered = self.post((&url, client), item, token).await;
        answered.unwrap_or_else(|unsent| unsent)
    }
}

// === impl Rows ===

impl Rows {
    /// The address that a row names, if it does.
    fn address(&self, item: &Item) -> Result<Option<Url>, String> {
        let column = &self.column;
        let text = match item.columns.get(column) {
            Some(Value::String(text)) if !text.trim().is_empty() => text.trim(),
            _ => return Ok(None),
        };
        let url = Url::parse(text)
            .map_err(|e| format!("the address in column `{column}` is not valid: {e}"))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(format!(
                "the address in column `{column}` is neither http:// nor https://"
            ));
        }
        if !self.allow_private {
            reach::check(&url).map_err(|e| e.to_string())?;
        }
        Ok(Some(url))
    }
}

/// What a status says about the item.
fn of_status(status: StatusCode, after: Option<Duration>) -> Answer {
    let why = format!("answered {}", status.as_u16());
    match web::meaning(status.as_u16()) {
        Meaning::Good => Answer::Accepted,
        Meaning::Later => Answer::Later { why, after },
        Meaning::Moved => Answer::Later {
            why: format!("{why}, a redirection: name the new address"),
            after: None,
        },
        Meaning::Refused if status == StatusCode::GONE => Answer::Refused {
            why: format!("{why}: its address is gone, and off"),
        },
        Meaning::Refused => Answer::Refused { why },
        Meaning::Unknown => Answer::Unknown { why },
    }
}

/// What a status says about the receiver.
fn heard(status: StatusCode, after: Option<Duration>) -> Heard {
    match status.as_u16() {
        429 | 502..=504 => Heard::Busy(after),
        _ => Heard::Well,
    }
}

/// What a failure says about the item.
fn of_error(error: reqwest::Error) -> Answer {
    if let Some(forbidden) = forbidden(&error) {
        return Answer::Refused {
            why: forbidden.to_string(),
        };
    }
    if error.is_builder() {
        return Answer::Refused { why: plain(error) };
    }
    // Order matters: a connect timeout is both, and nothing has left then.
    if error.is_connect() {
        return Answer::Later {
            why: format!("no connection: {}", plain(error)),
            after: None,
        };
    }
    let what = if error.is_timeout() {
        "no answer in time"
    } else {
        "the connection broke before an answer"
    };
    Answer::Unknown {
        why: format!("{what}: {}", plain(error)),
    }
}

/// Whether the name led to an address that must not be reached.
fn forbidden(error: &reqwest::Error) -> Option<Forbidden> {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(found) = inner.downcast_ref::<Forbidden>() {
            return Some(found.clone());
        }
        cause = inner.source();
    }
    None
}

#[cfg(test)]
mod tests;
