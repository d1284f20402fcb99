//! Calls a web service once per tick, from configuration alone.
//!
//! # The request
//! `${job}`, `${tick}`, `${attempt}`, `${token}`, `${run_id}`, `${replica}`, `${shard}` and `${shards}` may stand in path and query of the address,
//! in values of headers and in the body; `$${` stands for `${`. In addresses they are percent-encoded. In a body of JSON
//! they are escaped for a text in quotes, in any other they stand as they are. A body that begins with `{` or `[` is
//! JSON unless a `Content-Type` says otherwise.
//!
//! Sent always, unless the configuration has headers of these names: `Watchkeeper-Job`, `Watchkeeper-Tick` (RFC 3339 in
//! UTC), `Watchkeeper-Attempt`, `Watchkeeper-Token` (0 for a job that takes no lock), `Watchkeeper-Run-Id`,
//! `Watchkeeper-Replica`, and `Idempotency-Key`, which is the same for all attempts at one tick of one job and never holds
//! the token. A job that runs everywhere has a key for each replica, because each call is wanted.
//!
//! | answer | the run |
//! | --- | --- |
//! | as expected (any 2xx) | is done |
//! | 408, 425, 429, 5xx | is tried again, after `Retry-After` (a day at most) where there is one |
//! | 3xx | is tried again: the address has changed, and the configuration must follow |
//! | any other | has failed for good |
//! | no connection, a broken one, no answer in time | is tried again |
//!
//! # Invariants
//! - H1 What the check has passed can be sent: nothing of it fails later but files.  (`good_parameters_have_no_findings`)
//! - H2 Another attempt has the same key, another tick another.
//!   (`the_key_is_that_of_the_tick_whatever_the_attempt_and_the_token`)
//! - H3 No secret of a request is in an error, a log or the output kept with the run, though the service repeat it. Of a body of JSON or
//!   a form that is what names like `password` tell.
//!   (`a_service_that_repeats_a_request_betrays_no_secret`, `a_service_that_repeats_a_body_betrays_no_secret_of_it`)
//! - H4 A run that is to stop does not wait for an answer.             (`a_run_that_is_to_stop_abandons_its_request`)
//!
//! # Not promised
//! A request that was abandoned or got no answer may have arrived, and comes again: the service must know the key. Fleets
//! that call one service under the same name of a job send the same keys, too, unless they set headers of their own.
//!
//! In reading order: the job, then `params` (with `expected` and `header`), `template`, `answer`.
//!
//! # Example
//! ```
//! use watchkeeper::{Spec, Worker, config::Secret};
//! use watchkeeper_jobs::{Http, HttpParams};
//!
//! let call = HttpParams {
//!     url: Secret::new("https://shop.example/cleanup?tick=${tick}"),
//!     method: Some("POST".to_owned()),
//!     ..HttpParams::default()
//! };
//! let worker = Worker::builder().build().job("cleanup", Http::new(call), Spec::cron("@hourly"));
//! # let _ = worker;
//! ```

mod answer;
mod expected;
mod header;
mod params;
mod template;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use async_trait::async_trait;
use reqwest::{
    Client, Request, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use tracing::info;
use watchkeeper::{
    clock::Clock,
    job::{Job, JobError, MAX_OUTPUT, Outcome, Run},
    secret::tells,
    trace::Piece,
};

#[doc(hidden)] // named at the top of the crate
pub use params::HttpParams;

use super::kind::{Kind, in_a_line, read};
use crate::web::{self, NoClient};
use answer::{Hidden, Verdict, verdict};
use header::{header_value, read_header};
use params::Plan;
use template::{Destination, FACTS, Fact, Facts, escaped};

/// What the worker is told of it.
pub(super) const KIND: Kind = Kind {
    name: "http",
    make: |worker| worker.kind("http", Http::new),
    check: |params| read(params, HttpParams::check),
    look: None,
    items: None,
    fixed: &["url", "method", "headers", "header_files"],
    tells_progress: false,
};

/// The job.
pub struct Http {
    /// What to do, or what is wrong with it.
    plan: Result<Plan, String>,
    /// Made at first use, so that making the job cannot fail.
    client: OnceLock<Result<Client, NoClient>>,
    clock: Clock,
}

/// Bytes of an answer that are kept with the run, below its status.
const KEPT: usize = MAX_OUTPUT - 32;
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

// === impl Http ===

impl Http {
    /// The job as configured. Wrong parameters are told as a fatal failure of its runs.
    #[must_use]
    pub fn new(params: HttpParams) -> Self {
        let plan = params.plan().map_err(|found| in_a_line(&found));
        Self {
            plan,
            client: OnceLock::new(),
            clock: Clock::system(),
        }
    }

    fn plan(&self) -> Result<(&Plan, &Client), JobError> {
        let plan = self
            .plan
            .as_ref()
            .map_err(|text| JobError::fatal(text.clone()))?;
        let client = self
            .client
            .get_or_init(|| web::client(&plan.origin, plan.timeout));
        Ok((
            plan,
            client
                .as_ref()
                .map_err(|error| JobError::fatal(error.clone()))?,
        ))
    }
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http").finish_non_exhaustive()
    }
}

#[async_trait]
impl Job for Http {
    async fn run(&self, run: Run) -> Result<Outcome, JobError> {
        let (plan, client) = self.plan()?;
        let mut piece = run.piece("http").map(Piece::asking);
        if let Some(piece) = &mut piece {
            piece.fail("no answer");
        }
        let trace = piece.as_ref().map(|piece| piece.context().to_string());
        let (request, hidden) = request(plan, client, &run, trace).await?;
        let origin = web::shown(&plan.origin);
        let response = tokio::select! {
            // A run that was frozen past its lease must hear of that before it believes that it is done.
            biased;
            () = run.cancelled() => {
                run.check()?;
                return Err(JobError::retry("the run was told to stop"));
            }
            response = client.execute(request) => response.map_err(|error| failed(&origin, error))?,
        };
        let status = response.status().as_u16();
        let after = web::retry_after(response.headers(), self.clock.wall());
        let answer = tokio::select! {
            biased;
            // The status has said what there is to say.
            () = run.cancelled() => web::Beginning::default(),
            answer = web::read(response, KEPT) => answer,
        };
        let text = hidden.mask(&answer);
        let verdict = verdict(status, &plan.expected, after, &origin, &text);
        if let Some(mut piece) = piece {
            piece.say("http.response.status_code", u32::from(status));
            match verdict {
                Verdict::Done => piece.well(),
                _ => piece.fail("refused"),
            }
        }
        if let Verdict::Later { why, after } = &verdict {
            let pause_ms = after.as_millis();
            info!(job = run.job(), tick = %run.tick(), attempt = run.attempt(), pause_ms, why, "the service asks to wait");
        }
        // With the status, which the end of a run that is to come again does not tell.
        run.keep_output(format!("answered {status}\n{text}").trim_end());
        verdict.into_end()
    }
}

/// The request of one run, and what of it must not be repeated.
async fn request(
    plan: &Plan,
    client: &Client,
    run: &Run,
    trace: Option<String>,
) -> Result<(Request, Hidden), JobError> {
    let facts = Facts::of(run);
    let text = plan.url.fill(&facts, Destination::Url);
    // The check has seen the same with other facts, which are encoded so that they change nothing but themselves.
    let url = Url::parse(&text).map_err(|error| JobError::fatal(format!("params.url: {error}")))?;
    let headers = headers(plan, run, &facts, trace).await?;
    // Credentials of the address become a header here.
    let mut request = client
        .request(plan.method.clone(), url.clone())
        .headers(headers);
    if let Some(body) = &plan.body {
        request = request.body(body.text.fill(&facts, body.destination));
    }
    let request = request
        .build()
        .map_err(|error| JobError::fatal(web::plain(error)))?;
    let body = request.body().and_then(|body| body.as_bytes());
    let token = facts.get(Fact::Token);
    let hidden = Hidden::of(&url, request.headers(), body.unwrap_or_default(), token);
    Ok((request, hidden))
}

/// All headers: ours first, so that those of the configuration take their places.
async fn headers(
    plan: &Plan,
    run: &Run,
    facts: &Facts,
    trace: Option<String>,
) -> Result<HeaderMap, JobError> {
    let mut headers = HeaderMap::new();
    for (fact, _, name) in FACTS {
        let value = escaped(facts.get(fact), Destination::Header);
        headers.insert(HeaderName::from_static(name), checked(&value)?);
    }
    headers.insert(IDEMPOTENCY_KEY, checked(&idempotency_key(run, facts))?);
    if let Some(trace) = trace {
        headers.insert(TRACEPARENT, checked(&trace)?);
    }
    if let Some(content_type) = plan.body.as_ref().and_then(|body| body.content_type) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    }
    for (name, value) in &plan.headers {
        let mut value = checked(&value.fill(facts, Destination::Header))?;
        value.set_sensitive(tells(name.as_str()) && !name.as_str().starts_with("watchkeeper-"));
        headers.insert(name.clone(), value);
    }
    if plan.header_files.is_empty() {
        return Ok(headers);
    }
    let files = plan.header_files.clone();
    let read = move || {
        let values = files.into_iter().map(|file| {
            let value = read_header(&file.path);
            let value =
                value.map_err(|text| format!("params.header_files.{}: {text}", file.name))?;
            Ok((file.name, value))
        });
        values.collect::<Result<Vec<_>, String>>()
    };
    // A file that is being replaced may be back for the next attempt.
    headers.extend(
        tokio::task::spawn_blocking(read)
            .await?
            .map_err(JobError::retry)?,
    );
    Ok(headers)
}

/// The same for all attempts at one tick of one job, and for nothing else.
fn idempotency_key(run: &Run, facts: &Facts) -> String {
    let (job, tick) = (facts.get(Fact::Job), facts.get(Fact::Tick));
    match run.lease() {
        Some(_) => format!("{job}/{tick}"),
        // Without a lock every replica runs it, and each of the calls is wanted.
        None => format!(
            "{job}/{tick}/{}",
            escaped(facts.get(Fact::Replica), Destination::Header)
        ),
    }
}

/// A value that the check has seen with other facts.
fn checked(text: &str) -> Result<HeaderValue, JobError> {
    header_value(text).ok_or_else(|| JobError::fatal("a header cannot carry its value"))
}

/// No answer. Whether the request has arrived is not known, and need not be: it comes again with the same key.
fn failed(origin: &str, error: reqwest::Error) -> JobError {
    if error.is_builder() {
        return JobError::fatal(web::plain(error));
    }
    // Order matters: a connect timeout is both.
    let what = if error.is_connect() {
        "no connection to"
    } else if error.is_timeout() {
        "no answer in time from"
    } else {
        "no answer before the connection broke from"
    };
    JobError::retry(format!("{what} {origin}: {}", web::plain(error)))
}
