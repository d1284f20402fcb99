//! The job against a real service.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, Method, StatusCode, Uri},
    response::IntoResponse,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::Notify, task::JoinHandle};
use watchkeeper::{
    Locks,
    clock::{Clock, Moment},
    job::{FailureKind, Job, JobError, Outcome, Run, RunFacts},
    lease::LeaseView,
    node::memory::MemoryNode,
    spawn::Spawn,
};

use super::{Http, HttpParams, KEPT};

/// A service that remembers the last request, and answers as it was told.
struct Service {
    address: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    answer: Mutex<Answer>,
    got: Mutex<Vec<Got>>,
    arrived: Notify,
}

#[derive(Clone, Default)]
struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
    hang: bool,
}

#[derive(Clone)]
struct Got {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: String,
}

impl Got {
    fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

impl Service {
    async fn start(status: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared::default());
        let app = Router::new()
            .fallback(serve)
            .with_state(Arc::clone(&shared));
        let task = Spawn::system().spawn(async move { axum::serve(listener, app).await.unwrap() });
        let service = Self {
            address,
            shared,
            task,
        };
        service.says(status, &[], "");
        service
    }

    fn says(&self, status: u16, headers: &[(&'static str, &str)], body: &str) {
        let headers = headers
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()));
        let answer = Answer {
            status,
            headers: headers.collect(),
            body: body.to_owned(),
            hang: false,
        };
        *self.shared.answer.lock().unwrap() = answer;
    }

    fn hangs(&self) {
        self.shared.answer.lock().unwrap().hang = true;
    }

    fn last(&self) -> Got {
        self.shared.got.lock().unwrap().last().unwrap().clone()
    }

    /// A job that calls this service, with `more` parameters; all of them pass the check.
    fn job(&self, path: &str, more: Value) -> Http {
        let mut params = json!({ "url": format!("http://{}{path}", self.address) });
        params
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        job(params)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> impl IntoResponse {
    let body = String::from_utf8(body.to_vec()).unwrap();
    shared.got.lock().unwrap().push(Got {
        method,
        uri,
        headers,
        body,
    });
    shared.arrived.notify_one();
    let answer = shared.answer.lock().unwrap().clone();
    if answer.hang {
        std::future::pending::<()>().await;
    }
    let mut headers = HeaderMap::new();
    for (name, value) in answer.headers {
        headers.insert(name, value.parse().unwrap());
    }
    (
        StatusCode::from_u16(answer.status).unwrap(),
        headers,
        answer.body,
    )
}

fn job(params: Value) -> Http {
    let found = (super::KIND.check)(&params);
    assert!(found.is_empty(), "{found:?}");
    Http::new(serde_json::from_value::<HttpParams>(params).unwrap())
}

fn facts(attempt: u32, tick: &str) -> RunFacts {
    RunFacts {
        job: "call".to_owned(),
        id: format!("r-{attempt}"),
        tick: tick.parse().unwrap(),
        attempt,
        replica: "host-1-ü".to_owned(),
        batch: None,
        shard: 0,
        shards: 1,
        params: Value::Null,
        checkpoint: None,
    }
}

const TICK: &str = "2026-01-02T03:04:05Z";

fn run() -> Run {
    run_of(1, TICK, None)
}

fn run_of(attempt: u32, tick: &str, lease: Option<LeaseView>) -> Run {
    Run::new(
        facts(attempt, tick),
        Clock::system(),
        lease,
        Duration::ZERO,
        Moment::NEVER,
    )
}

/// The error of a run that failed, and whether another attempt makes sense.
async fn failure(job: &Http) -> (FailureKind, String) {
    let error: JobError = job.run(run()).await.unwrap_err();
    (error.kind(), error.to_string())
}

#[tokio::test]
async fn a_call_needs_nothing_but_an_address() {
    let service = Service::start(204).await;
    assert_eq!(
        service.job("/a", json!({})).run(run()).await.unwrap(),
        Outcome::Done
    );
    let got = service.last();
    assert_eq!(
        (got.method.as_str(), got.uri.to_string(), got.body.as_str()),
        ("GET", "/a".to_owned(), "")
    );
    for (name, value) in [
        ("watchkeeper-job", "call"),
        ("watchkeeper-tick", TICK),
        ("watchkeeper-attempt", "1"),
        ("watchkeeper-token", "0"),
        ("watchkeeper-run-id", "r-1"),
        ("watchkeeper-replica", "host-1-%C3%BC"),
    ] {
        assert_eq!(got.header(name), value, "{name}");
    }
    assert!(got.header("user-agent").starts_with("watchkeeper/"));
    assert_eq!(got.header("content-type"), "");
}

#[tokio::test]
async fn facts_of_the_run_are_filled_in() {
    let service = Service::start(200).await;
    let params = json!({
        "headers": { "X-Of": "${job} ${attempt} $${job}", "Content-Type": "application/vnd.x+json" },
        "body": "{\"by\": \"${replica}\", \"token\": ${token}}",
    });
    service
        .job("/${run_id}/${replica}?at=${tick}", params)
        .run(run())
        .await
        .unwrap();
    let got = service.last();
    assert_eq!(got.method, Method::POST);
    assert_eq!(got.uri, "/r-1/host-1-%C3%BC?at=2026-01-02T03%3A04%3A05Z");
    assert_eq!(got.header("x-of"), "call 1 ${job}");
    assert_eq!(got.header("content-type"), "application/vnd.x+json");
    assert_eq!(got.body, "{\"by\": \"host-1-ü\", \"token\": 0}");
}

#[tokio::test]
async fn a_body_is_sent_as_what_it_looks_like() {
    let service = Service::start(200).await;
    for (body, content_type) in [
        ("[1]", "application/json"),
        ("a=1", "text/plain; charset=utf-8"),
        ("", ""),
    ] {
        let params = json!({ "body": body, "method": "put" });
        service.job("/", params).run(run()).await.unwrap();
        let got = service.last();
        assert_eq!(
            (
                got.method.as_str(),
                got.header("content-type"),
                got.body.as_str()
            ),
            ("PUT", content_type, body)
        );
    }
}

#[tokio::test]
async fn the_key_is_that_of_the_tick_whatever_the_attempt_and_the_token() {
    let locks = Locks::over(vec![Arc::new(MemoryNode::new("node", Clock::system()))])
        .start()
        .unwrap();
    let service = Service::start(200).await;
    let job = service.job("/", json!({}));
    let mut seen = Vec::new();
    for (attempt, tick) in [(1, TICK), (2, TICK), (1, "2026-01-02T03:05:05Z")] {
        let lease = locks.lock("call").acquire().await.unwrap();
        let run = run_of(attempt, tick, Some(lease.view().clone()));
        job.run(run).await.unwrap();
        let got = service.last();
        let token: u64 = got.header("watchkeeper-token").parse().unwrap();
        assert_eq!(token, lease.token().0);
        seen.push((got.header("idempotency-key").to_owned(), token));
        lease.release().await;
    }
    assert_eq!(seen[0].0, "call/2026-01-02T03:04:05Z");
    assert_eq!(seen[0].0, seen[1].0);
    assert_ne!(seen[0].0, seen[2].0);
    assert!(seen[0].1 < seen[1].1 && seen[1].1 < seen[2].1, "{seen:?}");
}

#[tokio::test]
async fn without_a_lock_each_replica_has_a_key_of_its_own() {
    let service = Service::start(200).await;
    service.job("/", json!({})).run(run()).await.unwrap();
    assert_eq!(
        service.last().header("idempotency-key"),
        "call/2026-01-02T03:04:05Z/host-1-%C3%BC"
    );
}

#[tokio::test]
async fn headers_of_the_configuration_take_the_place_of_ours() {
    let service = Service::start(200).await;
    let headers = json!({ "idempotency-key": "mine-${tick}", "Watchkeeper-Job": "other", "User-Agent": "me" });
    service
        .job("/", json!({ "headers": headers }))
        .run(run())
        .await
        .unwrap();
    let got = service.last();
    assert_eq!(got.header("idempotency-key"), format!("mine-{TICK}"));
    assert_eq!(got.headers.get_all("idempotency-key").iter().count(), 1);
    assert_eq!(
        (got.header("watchkeeper-job"), got.header("user-agent")),
        ("other", "me")
    );
}

#[tokio::test]
async fn a_file_is_read_at_each_run() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "Bearer one\n").unwrap();
    let service = Service::start(200).await;
    let job = service.job("/", json!({ "header_files": { "Authorization": file } }));
    job.run(run()).await.unwrap();
    assert_eq!(service.last().header("authorization"), "Bearer one");
    std::fs::write(&file, "Bearer two").unwrap();
    job.run(run()).await.unwrap();
    assert_eq!(service.last().header("authorization"), "Bearer two");
    std::fs::remove_file(&file).unwrap();
    let (kind, text) = failure(&job).await;
    assert_eq!(kind, FailureKind::Retry);
    assert!(
        text.contains("header_files.authorization") && text.contains(&file.display().to_string()),
        "{text}"
    );
}

#[tokio::test]
async fn credentials_of_the_address_become_a_header_and_are_never_told() {
    let service = Service::start(401).await;
    let url = format!("http://me:hunter2@{}/?api_key=s3cret", service.address);
    let job = job(json!({ "url": url, "body": r#"{"password": "0f-m1ne"}"# }));
    service.says(
        401,
        &[],
        "who is me:hunter2 (Basic bWU6aHVudGVyMg==) with s3cret and 0f-m1ne?",
    );
    let run = run();
    let text = job.run(run.clone()).await.unwrap_err().to_string();
    assert_eq!(
        service.last().header("authorization"),
        "Basic bWU6aHVudGVyMg=="
    );
    assert_eq!(service.last().uri, "/?api_key=s3cret");
    let told = format!("{text} {job:?} {:?}", run.kept_output());
    for secret in ["hunter2", "s3cret", "bWU6", "0f-m1ne"] {
        assert!(!told.contains(secret), "{told}");
    }
    assert!(
        text.contains("answered 401, expected was 2xx: who is me:***"),
        "{text}"
    );
}

#[tokio::test]
async fn statuses_mean_what_the_table_says() {
    let service = Service::start(200).await;
    let job = service.job("/", json!({}));
    for status in [200, 201, 204] {
        service.says(status, &[], "");
        assert_eq!(job.run(run()).await.unwrap(), Outcome::Done, "{status}");
    }
    for status in [301, 304, 408, 425, 429, 500, 503] {
        service.says(status, &[], "");
        assert_eq!(failure(&job).await.0, FailureKind::Retry, "{status}");
    }
    for status in [400, 401, 404, 410, 422] {
        service.says(status, &[], "");
        assert_eq!(failure(&job).await.0, FailureKind::Fatal, "{status}");
    }
}

#[tokio::test]
async fn what_is_expected_is_done_and_nothing_else() {
    let service = Service::start(404).await;
    let job = service.job("/", json!({ "expect": [404, "5xx"] }));
    for status in [404, 500, 599] {
        service.says(status, &[], "");
        assert_eq!(job.run(run()).await.unwrap(), Outcome::Done, "{status}");
    }
    service.says(200, &[], "");
    let (kind, text) = failure(&job).await;
    assert_eq!(kind, FailureKind::Fatal);
    assert!(
        text.ends_with("answered 200, expected was 404, 5xx"),
        "{text}"
    );
}

#[tokio::test]
async fn a_redirection_is_not_followed_and_says_what_to_do() {
    let service = Service::start(302).await;
    service.says(302, &[("location", "/elsewhere")], "");
    let (_, text) = failure(&service.job("/", json!({}))).await;
    assert!(text.contains("name the new address as `url`"), "{text}");
    assert_eq!(service.shared.got.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_service_that_asks_to_wait_is_heard() {
    let service = Service::start(429).await;
    let job = service.job("/", json!({}));
    for (after, seconds) in [
        ("7", 7),
        ("0", 0),
        ("99999999999", 24 * 60 * 60),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 37),
    ] {
        let headers = [
            ("retry-after", after),
            ("date", "Sun, 06 Nov 1994 08:49:00 GMT"),
        ];
        service.says(503, &headers, "busy");
        let outcome = job.run(run()).await.unwrap();
        assert_eq!(
            outcome,
            Outcome::RetryAfter(Duration::from_secs(seconds)),
            "{after}"
        );
    }
    service.says(404, &[("retry-after", "7")], "");
    assert_eq!(failure(&job).await.0, FailureKind::Fatal);
}

#[tokio::test]
async fn the_beginning_of_an_answer_is_kept_with_the_run() {
    let service = Service::start(200).await;
    let job = service.job("/", json!({}));
    service.says(200, &[], "42 rows");
    let done = run();
    job.run(done.clone()).await.unwrap();
    assert_eq!(done.kept_output().as_deref(), Some("answered 200\n42 rows"));
    // A failure quotes less of it; and what was too long does not keep the next call from using the connection.
    service.says(500, &[], &"no \n".repeat(100_000));
    let failed = run();
    let error = job.run(failed.clone()).await.unwrap_err().to_string();
    let kept = failed.kept_output().unwrap();
    assert!(kept.starts_with("answered 500\nno \nno"), "{kept}");
    assert!(
        (KEPT / 2..=KEPT + 20).contains(&kept.len()),
        "{}",
        kept.len()
    );
    assert!(
        error.contains("answered 500: no no no") && error.len() < 300,
        "{error}"
    );
    assert_eq!(error.lines().count(), 1);
}

#[tokio::test]
async fn a_refused_connection_is_worth_retrying() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let url = format!("http://me:hunter2@{address}/hook?key=s3cret");
    let (kind, text) = failure(&job(json!({ "url": url }))).await;
    assert_eq!(kind, FailureKind::Retry);
    assert!(
        text.starts_with(&format!("no connection to http://{address}: ")),
        "{text}"
    );
    assert!(
        !text.contains("hunter2") && !text.contains("s3cret"),
        "{text}"
    );
}

#[tokio::test]
async fn no_answer_in_time_is_worth_retrying() {
    let service = Service::start(200).await;
    service.hangs();
    let (kind, text) = failure(&service.job("/", json!({ "timeout": "100ms" }))).await;
    assert_eq!(kind, FailureKind::Retry);
    assert!(
        text.starts_with("no answer in time from http://127."),
        "{text}"
    );
}

#[tokio::test]
async fn a_connection_that_breaks_is_worth_retrying() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let job = job(json!({ "url": format!("http://{}/", listener.local_addr().unwrap()) }));
    let server = async {
        use tokio::io::AsyncReadExt;
        let (mut socket, _) = listener.accept().await.unwrap();
        let _ = socket.read(&mut [0; 1024]).await;
    };
    let ((kind, text), ()) = tokio::join!(failure(&job), server);
    assert_eq!(kind, FailureKind::Retry);
    assert!(
        text.starts_with("no answer before the connection broke"),
        "{text}"
    );
}

#[tokio::test]
async fn a_run_that_is_to_stop_abandons_its_request() {
    let service = Service::start(200).await;
    service.hangs();
    let job = service.job("/", json!({}));
    let run = run();
    let stop = async {
        service.shared.arrived.notified().await;
        run.stop("the lease is over");
    };
    let (ended, ()) = tokio::join!(job.run(run.clone()), stop);
    assert_eq!(ended.unwrap_err().to_string(), "stopped: the lease is over");
}

#[tokio::test]
async fn parameters_that_nobody_checked_fail_for_good() {
    let params = serde_json::from_value(json!({ "url": "ftp://h", "method": "FETCH" })).unwrap();
    let (kind, text) = failure(&Http::new(params)).await;
    assert_eq!(kind, FailureKind::Fatal);
    assert!(
        text.contains("params.url must be") && text.contains("params.method"),
        "{text}"
    );
}
