//! The API without a socket: every route, every answer, and what is refused.

use std::collections::{BTreeMap, BTreeSet};

use axum::{
    body::BodyDataStream,
    http::{Method, StatusCode},
};
use futures_util::{FutureExt, StreamExt, future::join_all};
use jiff::Timestamp;
use serde_json::{Value, json};

mod sample;
mod validator;

use sample::{AT, Answered, Sample, ask, get, send};
use validator::faults;

use super::{ROUTES, events, read, runs};
use crate::{
    admin::{
        event_documents::tell,
        parameter::{Location, Takes},
        problem::Kind,
        rights::Want,
        route::{Content, Handler, Route, Verb},
        routes::routes,
        shared::Shared,
        stream::SLOTS,
    },
    event::Event,
    lease::Loss,
    node::Token,
    sim_clock::SimTime,
    telemetry::Seen,
};

fn description(shared: &Shared) -> Value {
    serde_json::from_slice(&shared.description).unwrap()
}

/// What the description says of an answer.
fn response<'a>(told: &'a Value, route: &Route, status: u16) -> &'a Value {
    let method = route.method.name().to_ascii_lowercase();
    let response = &told["paths"][route.path][&method]["responses"][status.to_string()];
    assert!(
        response.is_object(),
        "{method} {} is not described as {status}",
        route.path
    );
    response
}

/// That the answer is one of those that are described.
fn fits(told: &Value, route: &Route, answer: &Answered) {
    let response = response(told, route, answer.status);
    let kind = answer.header("content-type");
    if response["content"].is_null() {
        assert_eq!((kind, answer.body.as_str()), ("", ""), "{}", route.path);
        return;
    }
    let schema = &response["content"][kind]["schema"];
    assert!(
        schema.is_object(),
        "{}: {kind} is not described",
        route.path
    );
    let found = faults(told, schema, &answer.json());
    assert!(found.is_empty(), "{}: {found:#?}", route.path);
}

fn problem(answer: &Answered) -> String {
    let told = answer.json();
    assert_eq!(answer.header("content-type"), "application/problem+json");
    assert_eq!(told["status"], answer.status);
    let kind = told["type"].as_str().unwrap();
    kind.trim_start_matches("urn:watchkeeper:problem:")
        .to_owned()
}

fn method(route: &Route) -> Method {
    match route.method {
        Verb::Get => Method::GET,
        Verb::Post => Method::POST,
    }
}

/// A body that the route takes, where it needs one.
fn said(route: &Route) -> &'static str {
    match route.path {
        "/api/v1/jobs/{job}/items/retry" | "/api/v1/jobs/{job}/items/discard" => {
            r#"{"state": "dead", "reason": "it is mended", "sure": true}"#
        }
        "/api/v1/jobs/{job}/items/park" => r#"{"ids": ["17"]}"#,
        "/api/v1/locks/{key}/break" => r#"{"reason": "its process hangs", "sure": true}"#,
        "/api/v1/pause" | "/api/v1/resume" => r#"{"reason": "all move", "sure": true}"#,
        _ => "",
    }
}

/// An address that the route takes, about something that is there.
fn address(route: &Route) -> String {
    let mut path = route.path.to_owned();
    for (name, value) in [
        ("{job}", "report"),
        ("{replica}", "alpha"),
        ("{id}", "t1"),
        ("{key}", "job%2Freport"),
    ] {
        path = path.replace(name, value);
    }
    let needed = route.parameters.iter().filter(|known| known.needed);
    let of_query = needed.filter(|known| known.location == Location::Query);
    let pairs: Vec<String> = of_query
        .map(|known| format!("{}=report", known.name))
        .collect();
    match pairs.is_empty() {
        true => path,
        false => format!("{path}?{}", pairs.join("&")),
    }
}

// === the table ===

#[tokio::test]
async fn every_route_is_answered_as_it_is_described() {
    for (heard, status) in [(true, 200), (false, 202)] {
        let sample = Sample {
            heard,
            ..Sample::default()
        };
        let (_, shared) = sample.shared();
        let told = description(&shared);
        for route in ROUTES {
            let address = address(route);
            if let Content::Events(_) = route.answers[0].content {
                let answer = send(&shared, Method::GET, &address, &[], "").await;
                let kind = answer.headers()["content-type"].to_str().unwrap();
                assert_eq!((answer.status().as_u16(), kind), (200, "text/event-stream"));
                assert!(response(&told, route, 200)["content"][kind].is_object());
                continue;
            }
            let answer = ask(&shared, method(route), &address, &[], said(route)).await;
            // What nobody has to hear of is done when it is answered.
            let may_wait = route.answers.iter().any(|answer| answer.status == 202);
            let expected = if may_wait { status } else { 200 };
            assert_eq!(answer.status, expected, "{address}: {}", answer.body);
            fits(&told, route, &answer);
        }
    }
}

#[tokio::test]
async fn every_answer_fits_its_schema() {
    let (_, shared) = Sample::default().shared();
    let told = description(&shared);
    for (path, at) in [
        ("/api/v1/fleet?shards=true", "/api/v1/fleet"),
        ("/api/v1/jobs?shards=true", "/api/v1/jobs"),
        ("/api/v1/jobs/report?shards=true", "/api/v1/jobs/{job}"),
        ("/api/v1/jobs/report.0", "/api/v1/jobs/{job}"),
        ("/api/v1/runs?job=report&limit=100", "/api/v1/runs"),
        ("/api/v1/runs?limit=2", "/api/v1/runs"),
    ] {
        let answer = get(&shared, path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        let mut routes = ROUTES.iter();
        let route = routes.find(|route| route.path == at).unwrap();
        fits(&told, route, &answer);
    }
    let (_, empty) = Sample::of_jobs(std::iter::once("bare".to_owned())).shared();
    for path in ["/api/v1/fleet", "/api/v1/jobs"] {
        let route = ROUTES.iter().find(|route| route.path == path).unwrap();
        fits(&told, route, &get(&empty, path).await);
    }
}

#[tokio::test]
async fn what_orders_are_answered_is_what_the_types_say() {
    use crate::fleet::{
        DrainAnswer, PauseAnswer, ResignAnswer, Trigger, TriggerState, WaitingTrigger,
        audit::AuditEntry,
    };

    let (_, shared) = Sample::default().shared();
    let told = description(&shared);
    let pause = PauseAnswer {
        job: "report".to_owned(),
        paused: true,
        changed: true,
        reason: "it moves".to_owned(),
        heard_by: vec!["alpha".to_owned()],
        unheard_by: Vec::new(),
        known: true,
    };
    let resign = ResignAnswer {
        job: "report".to_owned(),
        from: "alpha".to_owned(),
        token: Token(41),
        leader: None,
        leader_token: None,
    };
    let drain = DrainAnswer {
        replica: "h-7-a".to_owned(),
        name: "alpha".to_owned(),
        heard: true,
        gone: false,
    };
    let asked = Trigger::default();
    let withdrawn = Trigger {
        withdrawn_by: "bob".to_owned(),
        state: TriggerState::Ended,
        ended: AT.parse().ok(),
        ..Trigger::default()
    };
    let waiting = WaitingTrigger {
        id: "t1".to_owned(),
        job: "report".to_owned(),
        by: "ann".to_owned(),
        asked: AT.parse().unwrap(),
        state: TriggerState::Withdrawing,
        why: String::new(),
        params: Vec::new(),
        run_id: String::new(),
    };
    let entry = AuditEntry {
        order: "break".to_owned(),
        ..AuditEntry::default()
    };
    for (name, value) in [
        ("Paused", serde_json::to_value(pause).unwrap()),
        ("Resigned", serde_json::to_value(resign).unwrap()),
        ("Drained", serde_json::to_value(drain).unwrap()),
        ("Triggered", asked.shown()),
        ("Triggered", withdrawn.shown()),
        ("WaitingTrigger", serde_json::to_value(waiting).unwrap()),
        ("AuditEntry", serde_json::to_value(entry).unwrap()),
    ] {
        let schema = json!({"$ref": format!("#/components/schemas/{name}")});
        let found = faults(&told, &schema, &value);
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}

#[test]
fn the_description_is_whole() {
    let (_, shared) = Sample::default().shared();
    let told = description(&shared);
    assert_eq!(told["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    let mut described = 0;
    for (path, methods) in told["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            described += 1;
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id), "{id} is there twice");
            assert!(operation["summary"].is_string(), "{method} {path}");
            let parameters = operation["parameters"].as_array().into_iter().flatten();
            let in_path: BTreeSet<&str> = parameters
                .filter(|known| known["in"] == "path")
                .map(|known| known["name"].as_str().unwrap())
                .collect();
            let named: BTreeSet<&str> = path
                .split('/')
                .filter_map(|word| word.strip_prefix('{')?.strip_suffix('}'))
                .collect();
            assert_eq!(in_path, named, "{path}");
        }
    }
    let of_api = routes().into_iter();
    let of_api = of_api.filter(|route| !route.answers.is_empty());
    assert_eq!(described, of_api.count());
    // Every reference leads somewhere.
    let text = told.to_string();
    for part in text.split("\"$ref\":\"#").skip(1) {
        let place = part.split('"').next().unwrap();
        assert!(told.pointer(place).is_some(), "there is no {place}");
    }
}

// === refusals ===

#[tokio::test]
async fn what_an_order_is_refused_for_is_told_as_a_problem() {
    let (_, shared) = Sample::default().shared();
    let told = description(&shared);
    for (of, status) in [
        ("unknown", 404),
        ("misfit", 400),
        ("not-possible", 409),
        ("too-many", 429),
        ("unavailable", 503),
        ("not-known", 503),
    ] {
        let path = format!("/api/v1/jobs/{of}/trigger");
        let answer = ask(&shared, Method::POST, &path, &[], "").await;
        assert_eq!((answer.status, problem(&answer)), (status, of.to_owned()));
        let again = answer.header("retry-after");
        assert_eq!(again, if status == 503 { "2" } else { "" });
        assert!(answer.json()["detail"].as_str().unwrap().starts_with(of));
        let mut routes = ROUTES.iter();
        let route = routes
            .find(|route| route.path.ends_with("/trigger"))
            .unwrap();
        fits(&told, route, &answer);
    }
    for (path, said, kind) in [
        ("/api/v1/jobs/report/pause", "[]", "bad-body"),
        (
            "/api/v1/jobs/report/pause",
            "{\"reasons\": \"\"}",
            "bad-body",
        ),
        ("/api/v1/jobs/report/pause", "{\"reason\": 7}", "bad-body"),
        ("/api/v1/jobs/report/pause", "{", "bad-body"),
        ("/api/v1/jobs/report/resume", "{\"to\": \"b\"}", "bad-body"),
        (
            "/api/v1/jobs/report/trigger",
            "{\"params\": []}",
            "bad-body",
        ),
        ("/api/v1/replicas/alpha/drain", "\"why\"", "bad-body"),
        ("/api/v1/triggers/t1/withdraw", "null", "bad-body"),
        ("/api/v1/jobs/report/items/retry", "", "bad-body"),
        (
            "/api/v1/jobs/report/items/retry",
            "{\"ids\": []}",
            "bad-body",
        ),
        (
            "/api/v1/jobs/report/items/retry",
            "{\"ids\": [\"\"]}",
            "bad-body",
        ),
        (
            "/api/v1/jobs/report/items/retry",
            "{\"ids\": [17]}",
            "bad-body",
        ),
        (
            "/api/v1/jobs/report/items/retry",
            "{\"state\": \"sent\"}",
            "bad-body",
        ),
        (
            "/api/v1/jobs/report/items/retry",
            "{\"state\": \"dead\", \"ids\": [\"17\"]}",
            "bad-body",
        ),
        // What is about all of a state is said to be meant, as in the form.
        (
            "/api/v1/jobs/report/items/retry",
            "{\"state\": \"dead\", \"reason\": \"it is mended\"}",
            "bad-body",
        ),
        (
            "/api/v1/jobs/report/items/retry",
            "{\"state\": \"dead\", \"sure\": true}",
            "bad-body",
        ),
        (
            "/api/v1/jobs/report/items/retry",
            "{\"ids\": [\"17\"], \"after\": \"16\"}",
            "bad-body",
        ),
        (
            "/api/v1/jobs/report/items/park",
            "{\"state\": \"dead\"}",
            "bad-body",
        ),
        (
            "/api/v1/jobs/report/items/discard",
            "{\"state\": \"dead\", \"sure\": true}",
            "bad-body",
        ),
        (
            "/api/v1/jobs/report/items/discard",
            "{\"state\": \"dead\", \"reason\": \"it is not wanted\"}",
            "bad-body",
        ),
        (
            "/api/v1/jobs/unknown/items/discard",
            "{\"ids\": [\"17\"]}",
            "unknown",
        ),
        (
            "/api/v1/jobs/unknown/items/park",
            "{\"ids\": [\"17\"]}",
            "unknown",
        ),
        ("/api/v1/locks/lock%2F001/break", "", "bad-body"),
        // All jobs are said to be meant, and why.
        ("/api/v1/pause", "", "bad-body"),
        ("/api/v1/pause", "{\"sure\": true}", "bad-body"),
        ("/api/v1/pause", "{\"reason\": \"all move\"}", "bad-body"),
        ("/api/v1/resume", "{\"reason\": \"all moved\"}", "bad-body"),
        // It is said why, and that it is meant, as in the form.
        (
            "/api/v1/locks/lock%2F001/break",
            "{\"sure\": true}",
            "bad-body",
        ),
        (
            "/api/v1/locks/lock%2F001/break",
            "{\"sure\": true, \"reason\": \" \"}",
            "bad-body",
        ),
        (
            "/api/v1/locks/lock%2F001/break",
            "{\"reason\": \"it hangs\"}",
            "bad-body",
        ),
        (
            "/api/v1/locks/lock%2F001/break",
            "{\"sure\": \"yes\", \"reason\": \"it hangs\"}",
            "bad-body",
        ),
        (
            "/api/v1/locks/lock%2F001/break",
            "{\"sure\": true, \"reason\": \"it hangs\", \"owner\": \"\"}",
            "bad-body",
        ),
        (
            "/api/v1/locks/not-possible/break",
            "{\"sure\": true, \"reason\": \"it hangs\", \"owner\": \"o\"}",
            "not-possible",
        ),
        // Too few nodes answered: it may be broken.
        (
            "/api/v1/locks/not-known/break",
            "{\"sure\": true, \"reason\": \"it hangs\", \"owner\": \"o\"}",
            "not-known",
        ),
        ("/api/v1/locks/lock/001/break", "", "no-such-path"),
        ("/api/v1/triggers/not-possible/withdraw", "", "not-possible"),
        ("/api/v1/replicas/unknown/drain", "", "unknown"),
    ] {
        let answer = ask(&shared, Method::POST, path, &[], said).await;
        assert_eq!(problem(&answer), kind, "{path} {said}");
    }
    let long = format!("{{\"reason\": \"{}\"}}", "x".repeat(1025));
    let pause = "/api/v1/jobs/report/pause";
    let answer = ask(&shared, Method::POST, pause, &[], &long).await;
    assert_eq!(problem(&answer), "bad-body");
    let many = json!({"ids": vec!["17"; 101]}).to_string();
    let retry = "/api/v1/jobs/report/items/retry";
    let answer = ask(&shared, Method::POST, retry, &[], &many).await;
    assert_eq!(problem(&answer), "bad-body");
    let large = " ".repeat(super::BODY + 1);
    let answer = ask(&shared, Method::POST, pause, &[], &large).await;
    assert_eq!(
        (answer.status, problem(&answer)),
        (413, "too-large".to_owned())
    );
    let most = " ".repeat(super::BODY);
    assert!(read(most.into()).await.is_ok());
}

/// What it had begun to write may stand.
#[tokio::test]
async fn an_order_whose_task_has_died_is_not_told_to_be_refused() {
    let (_, shared) = Sample::default().shared();
    let path = "/api/v1/jobs/dies/trigger";
    let answer = ask(&shared, Method::POST, path, &[], "").await;
    assert_eq!(
        (answer.status, problem(&answer)),
        (503, "not-known".to_owned())
    );
    // So it is with every order.
    for route in ROUTES.iter().filter(|route| route.want == Want::Change) {
        assert!(route.problems.contains(&Kind::NotKnown), "{}", route.path);
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_told_as_a_problem() {
    let sample = Sample {
        down: true,
        ..Sample::default()
    };
    let (_, shared) = sample.shared();
    for path in ["locks", "triggers", "audit", "runs?job=report"] {
        let answer = get(&shared, &format!("/api/v1/{path}")).await;
        assert_eq!(
            (answer.status, problem(&answer)),
            (503, "unavailable".to_owned())
        );
        assert_eq!(answer.json()["detail"], "no majority");
    }
    let answer = get(&shared, "/api/v1/jobs/report/items").await;
    assert_eq!(
        (answer.status, problem(&answer)),
        (503, "no-items".to_owned())
    );
    let (_, shared) = Sample::default().shared();
    for (path, kind) in [
        ("/api/v1/jobs/reprot", "unknown"),
        ("/api/v1/jobs/unknown/items", "unknown"),
        ("/api/v1/runs?job=reprot", "unknown"),
        ("/api/v1/nothing", "no-such-path"),
        ("/api/v1/jobs/", "no-such-path"),
        ("/api/v1/jobs/report/", "no-such-path"),
        ("/api/v2/jobs", "no-such-path"),
    ] {
        let answer = get(&shared, path).await;
        assert_eq!(
            (answer.status, problem(&answer)),
            (404, kind.to_owned()),
            "{path}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_order_that_gets_no_turn_has_asked_for_nothing() {
    let (_, shared) = Sample::default().timed_by(SimTime::new().clock());
    let pause = "/api/v1/jobs/report/pause";
    // Those who read have turns of their own, and take none from an order.
    let readers = shared.store.clone().acquire_many_owned(4).await.unwrap();
    assert_eq!(ask(&shared, Method::POST, pause, &[], "").await.status, 200);
    drop(readers);
    let _all = shared.orders.clone().acquire_many_owned(4).await.unwrap();
    let answer = ask(&shared, Method::POST, pause, &[], "").await;
    assert_eq!((answer.status, problem(&answer)), (503, "busy".to_owned()));
}

/// A database of a job that hangs keeps no pause and no drain waiting.
#[tokio::test(start_paused = true)]
async fn orders_about_items_have_turns_of_their_own() {
    let (_, shared) = Sample::default().timed_by(SimTime::new().clock());
    let items = shared.item_orders.clone();
    let _all = items.acquire_many_owned(2).await.unwrap();
    let park = "/api/v1/jobs/report/items/park";
    let answer = ask(&shared, Method::POST, park, &[], "{\"ids\": [\"17\"]}").await;
    assert_eq!((answer.status, problem(&answer)), (503, "busy".to_owned()));
    let pause = "/api/v1/jobs/report/pause";
    assert_eq!(ask(&shared, Method::POST, pause, &[], "").await.status, 200);
}

#[test]
fn what_an_order_needs_is_described_as_needed() {
    let (_, shared) = Sample::default().shared();
    let told = description(&shared);
    for (path, needed) in [
        ("/api/v1/jobs/{job}/pause", false),
        ("/api/v1/jobs/{job}/items/retry", true),
        ("/api/v1/jobs/{job}/items/park", true),
        ("/api/v1/jobs/{job}/items/discard", true),
        ("/api/v1/locks/{key}/break", true),
        ("/api/v1/pause", true),
        ("/api/v1/resume", true),
    ] {
        let body = &told["paths"][path]["post"]["requestBody"];
        assert_eq!(body["required"], needed, "{path}");
    }
    let schemas = &told["components"]["schemas"];
    assert_eq!(schemas["Break"]["required"], json!(["sure", "reason"]));
    let with_state = &schemas["RetryItems"]["dependentRequired"]["state"];
    assert_eq!(*with_state, json!(["reason", "sure"]));
}

/// However slowly a client reads, the bodies of no more than some are kept for it.
#[tokio::test]
async fn no_more_whole_fleets_are_sent_at_one_time_than_there_are_places() {
    let (_, shared) = Sample::default().shared();
    let whole = "/api/v1/fleet";
    // The body is not read: it lies with the server.
    let unread = || send(&shared, Method::GET, whole, &[], "");
    let mut bodies = Vec::new();
    loop {
        let answer = unread().await;
        if answer.status() != StatusCode::OK {
            assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
            break;
        }
        bodies.push(answer);
        assert!(bodies.len() < 100, "it has no end");
    }
    let answer = get(&shared, whole).await;
    assert_eq!((answer.status, problem(&answer)), (503, "busy".to_owned()));
    assert_eq!(get(&shared, "/api/v1/jobs").await.status, 200);
    bodies.pop();
    assert_eq!(get(&shared, whole).await.status, 200);
}

#[tokio::test]
async fn other_methods_are_told_what_the_path_takes() {
    let (_, shared) = Sample::default().shared();
    for (path, allowed) in [
        ("/api/v1/jobs", "GET, HEAD, OPTIONS"),
        ("/api/v1/jobs/report/pause", "POST, OPTIONS"),
        ("/api/v1/events", "GET, HEAD, OPTIONS"),
    ] {
        let options = ask(&shared, Method::OPTIONS, path, &[], "").await;
        assert_eq!((options.status, options.header("allow")), (204, allowed));
        for method in [Method::PUT, Method::DELETE, Method::PATCH, Method::TRACE] {
            let answer = ask(&shared, method, path, &[], "").await;
            assert_eq!((answer.status, answer.header("allow")), (405, allowed));
            assert_eq!(problem(&answer), "no-such-method");
        }
    }
    let wrong = ask(&shared, Method::GET, "/api/v1/jobs/report/pause", &[], "").await;
    assert_eq!(
        (wrong.status, wrong.header("allow")),
        (405, "POST, OPTIONS")
    );
    let wrong = ask(&shared, Method::POST, "/api/v1/jobs", &[], "").await;
    assert_eq!(wrong.status, 405);
}

/// Every parameter of every route, with what it may not be.
#[tokio::test]
async fn hostile_parameters_are_refused_by_name() {
    let (_, shared) = Sample::default().shared();
    let refused = async |route: &Route, name: &str, said: &str| {
        let base = address(route);
        let sign = if base.contains('?') { '&' } else { '?' };
        let path = format!("{base}{sign}{said}");
        let answer = ask(&shared, method(route), &path, &[], "").await;
        assert_eq!(
            (answer.status, problem(&answer)),
            (400, "bad-parameter".to_owned()),
            "{path}"
        );
        let told = answer.json();
        assert_eq!(told["parameter"], name, "{path}: {told}");
    };
    for route in ROUTES {
        for unknown in ["q=1", "%71=1", "q", "q=%00", "limt=5&limit=5"] {
            let name = if unknown.starts_with("limt") {
                "limt"
            } else {
                "q"
            };
            refused(route, name, unknown).await;
        }
        let of_query = route
            .parameters
            .iter()
            .filter(|known| known.location == Location::Query);
        for known in of_query {
            let name = known.name;
            let bad: &[&str] = match known.takes {
                Takes::Number { .. } => &["", "0", "-1", "1e3", "99999", "18446744073709551616"],
                Takes::Flag => &["", "yes", "1"],
                Takes::Time => &["", "now", "2026-13-01T00:00:00Z"],
                Takes::Word(_) | Takes::Words(_) => &["", "nothing", "%00"],
                Takes::Text(_) => &["", "%00", "a%0Ab", "%1b%5b2J"],
            };
            for said in bad {
                refused(route, name, &format!("{name}={said}")).await;
            }
            if let Takes::Text(longest) = known.takes {
                let long = "x".repeat(longest + 1);
                refused(route, name, &format!("{name}={long}")).await;
            }
        }
    }
    let both = get(&shared, "/api/v1/runs?job=report&name=rep").await;
    assert_eq!(
        (both.status, &both.json()["parameter"]),
        (400, &json!("name"))
    );
    let long = format!("/api/v1/jobs/{}", "x".repeat(513));
    assert_eq!(problem(&get(&shared, &long).await), "bad-parameter");
    let control = get(&shared, "/api/v1/jobs/a%0Ab").await;
    assert_eq!(problem(&control), "bad-parameter");
    // Said twice, what fits is no less in doubt.
    let twice = get(&shared, "/api/v1/jobs?limit=5&limit=5").await;
    assert_eq!(twice.json()["parameter"], "limit");
}

#[test]
fn every_problem_is_one_that_a_route_can_have() {
    let all: BTreeSet<&str> = routes()
        .into_iter()
        .flat_map(Route::refusals)
        .map(|kind| kind.facts().name)
        .collect();
    // These two have no route.
    let others = [Kind::NoSuchPath, Kind::NoSuchMethod];
    for kind in Kind::ALL.into_iter().filter(|kind| !others.contains(kind)) {
        let name = kind.facts().name;
        assert!(all.contains(name), "{name}");
    }
}

// === pages ===

/// Goes on until there is no next page; `between` is called before each.
async fn walk(shared: &Shared, first: &str, mut between: impl FnMut(usize)) -> Vec<Value> {
    let mut found = Vec::new();
    let mut next = Some(first.to_owned());
    for page in 0.. {
        let Some(path) = next.take() else { break };
        assert!(page < 2_000, "it has no end");
        between(page);
        let answer = get(shared, &path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        let told = answer.json();
        let items = told["items"].as_array().unwrap();
        assert!(!items.is_empty() || page == 0, "a page for nothing: {path}");
        found.extend(items.iter().cloned());
        let link = answer.header("link");
        let link = link.strip_prefix('<').and_then(|link| link.split_once('>'));
        next = link.map(|(address, _)| address.to_owned());
        assert_eq!(next.is_some(), told["next"].is_string(), "{path}");
    }
    found
}

fn names(items: &[Value]) -> Vec<&str> {
    items
        .iter()
        .map(|item| item["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_walk_through_a_thousand_jobs_meets_each_once() {
    let all: Vec<String> = (0..1000).map(|n| format!("job é/{n:04}&x")).collect();
    let (sample, shared) = Sample::of_jobs(all.iter().cloned()).shared();
    for limit in [7, 100, 500] {
        let first = format!("/api/v1/jobs?limit={limit}");
        let found = walk(&shared, &first, |_| {}).await;
        assert_eq!(names(&found), all, "{limit} a page");
    }
    let found = walk(&shared, "/api/v1/jobs?limit=7&name=07", |_| {}).await;
    let wanted: Vec<&String> = all.iter().filter(|name| name.contains("07")).collect();
    assert_eq!(names(&found), wanted, "the choice goes with the link");

    // Others come and go: the first of all, and what was seen or is still to be seen.
    let churn = |page: usize| {
        let mut fleet = sample.fleet.lock().unwrap();
        fleet.jobs.retain(|job| !job.name.starts_with("job é/0500"));
        for name in [format!("a new {page}"), format!("z new {page:04}")] {
            let mut job = fleet.jobs[0].clone();
            job.name = name;
            fleet.jobs.push(job);
        }
    };
    let found = walk(&shared, "/api/v1/jobs?limit=50", churn).await;
    let met = names(&found);
    let once: BTreeSet<&str> = met.iter().copied().collect();
    assert_eq!(met.len(), once.len(), "none is met twice");
    for name in all.iter().filter(|name| !name.contains("0500")) {
        assert!(
            once.contains(name.as_str()),
            "{name} was there all the while"
        );
    }
}

#[tokio::test]
async fn every_list_is_walked_through_to_its_end() {
    let sample = Sample {
        locks: 25,
        orders: 25,
        items: 25,
        ..Sample::default()
    };
    let (_, shared) = sample.shared();
    for (path, count) in [
        ("/api/v1/jobs?limit=3", 1),
        ("/api/v1/replicas?limit=3", 1),
        ("/api/v1/nodes?limit=3", 1),
        ("/api/v1/locks?limit=3", 25),
        ("/api/v1/locks?limit=3&held=true", 13),
        ("/api/v1/locks?prefix=nothing", 0),
        // Six of them go by themselves.
        ("/api/v1/jobs/report/items?limit=3", 19),
        ("/api/v1/jobs/report/items?limit=3&state=retry", 6),
        ("/api/v1/jobs/report/items?state=parked,dead", 13),
        ("/api/v1/triggers?limit=7", 30),
        ("/api/v1/audit?limit=7", 25),
        ("/api/v1/audit?limit=7&who=bob", 12),
        ("/api/v1/runs?job=report&limit=7", 100),
        ("/api/v1/runs?job=report&limit=7&outcome=failed", 10),
        ("/api/v1/runs?job=report&outcome=failed,done", 100),
        ("/api/v1/runs?job=report&replica=beta", 0),
        ("/api/v1/runs?job=report&since=2026-11-26T08:50:00Z", 1),
        // Of all jobs.
        ("/api/v1/runs?limit=7", 100),
        ("/api/v1/runs?limit=7&outcome=failed", 10),
        ("/api/v1/runs?name=rep&since=2026-11-26T08:50:00Z", 1),
        ("/api/v1/runs?name=nothing", 0),
    ] {
        let found = walk(&shared, path, |_| {}).await;
        assert_eq!(found.len(), count, "{path}");
        let each: BTreeSet<String> = found.iter().map(Value::to_string).collect();
        assert_eq!(each.len(), count, "{path}: each once");
    }
    let runs = walk(&shared, "/api/v1/runs?job=report&limit=7", |_| {}).await;
    let numbers: Vec<u64> = runs
        .iter()
        .map(|run| run["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(
        numbers,
        (1..=100).rev().collect::<Vec<_>>(),
        "the newest first"
    );
    assert_eq!(walk(&shared, "/api/v1/runs?limit=9", |_| {}).await, runs);
    let some = get(&shared, "/api/v1/runs?limit=9").await.json();
    assert_eq!(some["unread"], 3, "what was not looked at is told");
    let of_job = get(&shared, "/api/v1/runs?job=report").await.json();
    assert!(of_job.get("unread").is_none(), "{of_job}");
    let orders = walk(&shared, "/api/v1/audit?limit=7", |_| {}).await;
    assert_eq!(
        (&orders[0]["id"], &orders[24]["id"]),
        (&json!("a024"), &json!("a000"))
    );
}

#[tokio::test]
async fn jobs_are_chosen_by_what_they_are() {
    let (sample, shared) =
        Sample::of_jobs(["mail", "report"].map(str::to_owned).into_iter()).shared();
    {
        let mut fleet = sample.fleet.lock().unwrap();
        fleet.jobs[0].paused = true;
        fleet.jobs[0].coordination = "batch".to_owned();
        fleet.jobs[1].last_outcome = Some("failed".to_owned());
        fleet.jobs[1].leader = serde_json::from_value(json!({"name": "alpha"})).unwrap();
    }
    for (said, name) in [
        ("paused=true", "mail"),
        ("paused=false", "report"),
        ("coordination=batch", "mail"),
        ("outcome=failed", "report"),
        ("leader=alpha", "report"),
        ("name=epo", "report"),
        ("name=mail&paused=true", "mail"),
    ] {
        let found = walk(&shared, &format!("/api/v1/jobs?{said}"), |_| {}).await;
        assert_eq!(names(&found), [name], "{said}");
    }
    let none = walk(&shared, "/api/v1/jobs?leader=beta", |_| {}).await;
    assert!(none.is_empty());
}

// === tags ===

#[tokio::test]
async fn a_document_that_the_client_has_is_not_sent_again() {
    let (sample, shared) = Sample::default().shared();
    for route in ROUTES.iter().filter(|route| route.method == Verb::Get) {
        if let Content::Events(_) = route.answers[0].content {
            continue;
        }
        let path = address(route);
        let first = get(&shared, &path).await;
        let tag = first.header("etag").to_owned();
        assert!(tag.starts_with('"') && tag.len() == 34, "{path}: {tag}");
        // What runs have left to read must not reach the disk of a client.
        let kept = match route.want {
            Want::Outputs => "no-store",
            _ => "private, no-cache",
        };
        assert_eq!(first.header("cache-control"), kept, "{path}");
        for said in [
            tag.clone(),
            format!("W/{tag}"),
            format!("\"other\", {tag}"),
            "*".to_owned(),
        ] {
            let said = [("if-none-match", said.as_str())];
            let again = ask(&shared, Method::GET, &path, &said, "").await;
            assert_eq!(
                (again.status, again.body.as_str()),
                (304, ""),
                "{path} {said:?}"
            );
            assert_eq!(again.header("etag"), tag);
        }
        let other = [("if-none-match", "\"other\"")];
        let again = ask(&shared, Method::GET, &path, &other, "").await;
        assert_eq!((again.status, &again.body), (200, &first.body));
        let head = ask(&shared, Method::HEAD, &path, &[], "").await;
        assert_eq!((head.status, head.body.as_str()), (200, ""));
        assert_eq!(head.header("etag"), tag);
        assert_eq!(head.header("content-length"), first.body.len().to_string());
    }
    let tag = get(&shared, "/api/v1/jobs").await.header("etag").to_owned();
    sample.fleet.lock().unwrap().jobs[0].backlog = Some(8);
    let said = [("if-none-match", tag.as_str())];
    let changed = ask(&shared, Method::GET, "/api/v1/jobs", &said, "").await;
    assert_eq!(changed.status, 200);
    assert_ne!(changed.header("etag"), tag);
    // What was ordered, or refused, is kept by no cache.
    for path in ["/api/v1/jobs/report/pause", "/api/v1/jobs/unknown/pause"] {
        let answer = ask(&shared, Method::POST, path, &[], "").await;
        assert_eq!(answer.header("etag"), "");
    }
}

// === events ===

/// One of each event, but for those that are not told.
fn one_of_each() -> Vec<Event> {
    let (job, at) = ("report".to_owned(), AT.parse::<Timestamp>().unwrap());
    let (run_id, took) = ("r1".to_owned(), std::time::Duration::from_millis(7));
    let (job, batch) = (|| job.clone(), || "cell-9".to_owned());
    vec![
        Event::Backlog {
            job: job(),
            items: 7,
            since: Some(at),
        },
        Event::BatchClaimed {
            job: job(),
            batch: batch(),
            token: Token(41),
        },
        Event::BatchEnded {
            job: job(),
            batch: batch(),
            outcome: "done",
            took,
        },
        Event::Definitions {
            job: job(),
            count: 2,
        },
        Event::Draining,
        Event::EngineDied {
            job: job(),
            why: "why".to_owned(),
            pause: took,
        },
        Event::Fitness {
            job: job(),
            unfit: Some("disk".to_owned()),
        },
        Event::Fitness {
            job: job(),
            unfit: None,
        },
        Event::HeldItems {
            job: job(),
            retry: 1,
            dead: 2,
            in_doubt: 3,
            parked: 4,
        },
        Event::Items {
            job: job(),
            outcome: "sent",
            count: 7,
        },
        Event::Leading {
            job: job(),
            token: Token(41),
            leaderless: Some(took),
        },
        Event::Leading {
            job: job(),
            token: Token(41),
            leaderless: None,
        },
        Event::NodeUp {
            node: "redis-1".to_owned(),
            up: false,
            cause: "timeout",
        },
        Event::NodeDamaged {
            node: "redis-1".to_owned(),
            what: "marker".to_owned(),
        },
        Event::Notice {
            notice: "ops".to_owned(),
            job: job(),
            about: "failed",
            outcome: "dropped",
            why: "too many wait for this receiver".to_owned(),
        },
        Event::Reloaded { ok: true, at },
        Event::RunEnded {
            job: job(),
            run_id: run_id.clone(),
            tick: at,
            attempt: 1,
            outcome: "failed",
            detail: "a\nb\r\n\"<script>".to_owned(),
            took,
        },
        Event::RunStarted {
            job: job(),
            run_id,
            tick: at,
            attempt: 1,
            token: Token(41),
            delay: took,
        },
        Event::StandingBy {
            job: job(),
            why: Loss::Unfit("disk".to_owned()),
        },
        Event::TicksSkipped {
            job: job(),
            first: at,
            last: at,
            count: 2,
            why: "misfire",
        },
    ]
}

/// What a client reads of a stream.
struct Reader(BodyDataStream);

/// One event of it.
#[derive(Debug)]
struct Heard {
    id: Option<String>,
    kind: String,
    data: Value,
}

impl Reader {
    async fn of(shared: &Shared, path: &str, last: Option<&str>) -> Self {
        let said: Vec<_> = last.map(|id| ("last-event-id", id)).into_iter().collect();
        let answer = send(shared, Method::GET, path, &said, "").await;
        assert_eq!(answer.status(), StatusCode::OK);
        Self(answer.into_body().into_data_stream())
    }

    /// What can be read now, and whether the stream has ended.
    async fn now(&mut self) -> (Vec<Heard>, bool) {
        // A task that never waits is let run only so far.
        tokio::task::yield_now().await;
        let mut text = String::new();
        let mut over = false;
        while let Some(part) = self.0.next().now_or_never() {
            let Some(part) = part else {
                over = true;
                break;
            };
            text += std::str::from_utf8(&part.unwrap()).unwrap();
        }
        let heard = text.split("\n\n").filter_map(|block| {
            let field = |name: &str| {
                let mut lines = block.lines();
                lines
                    .find_map(|line| line.strip_prefix(name))
                    .map(str::to_owned)
            };
            Some(Heard {
                id: field("id: "),
                kind: field("event: ")?,
                data: serde_json::from_str(&field("data: ")?).unwrap(),
            })
        });
        (heard.collect(), over)
    }

    async fn ids(&mut self) -> Vec<String> {
        self.now()
            .await
            .0
            .into_iter()
            .filter_map(|heard| heard.id)
            .collect()
    }
}

fn happen(shared: &Shared, event: Event) {
    tell(&shared.events, Seen::Event(event), AT.parse().unwrap());
}

#[tokio::test]
async fn every_event_is_told_as_it_is_described() {
    let (_, shared) = Sample::default().shared();
    let told = description(&shared);
    let mut reader = Reader::of(&shared, "/api/v1/events", None).await;
    assert!(reader.now().await.0.is_empty());
    one_of_each()
        .into_iter()
        .for_each(|event| happen(&shared, event));
    tell(&shared.events, Seen::Missed(3), AT.parse().unwrap());
    let (heard, over) = reader.now().await;
    assert!(!over);
    assert_eq!(heard.len(), one_of_each().len() + 1);
    let schema = &told["paths"]["/api/v1/events"]["get"]["responses"]["200"]["content"]["text/event-stream"]
        ["x-event"];
    let mut kinds = BTreeMap::new();
    for (n, heard) in heard.iter().enumerate() {
        assert_eq!(
            heard.id.as_deref(),
            Some(format!("h-7-a-{}", n + 1).as_str())
        );
        assert_eq!(heard.data["id"].as_str(), heard.id.as_deref());
        assert_eq!(heard.data["type"], heard.kind);
        let found = faults(&told, schema, &heard.data);
        assert!(found.is_empty(), "{}: {found:#?}", heard.data);
        kinds.insert(heard.kind.as_str(), ());
    }
    assert_eq!(kinds.into_keys().collect::<Vec<_>>(), events::TYPES);
}

#[tokio::test]
async fn a_client_that_comes_back_misses_nothing_or_is_told() {
    let (_, shared) = Sample::default().shared();
    for _ in 0..5 {
        happen(&shared, Event::Draining);
    }
    let events = "/api/v1/events";
    let mut back = Reader::of(&shared, events, Some("h-7-a-3")).await;
    assert_eq!(back.ids().await, ["h-7-a-4", "h-7-a-5"]);
    let mut back = Reader::of(&shared, &format!("{events}?after=h-7-a-4"), None).await;
    assert_eq!(back.ids().await, ["h-7-a-5"]);
    let both = format!("{events}?after=h-7-a-1");
    let mut back = Reader::of(&shared, &both, Some("h-7-a-5")).await;
    assert!(back.ids().await.is_empty(), "the header says it");
    // What another life of the process has told is over, and so is what was never told.
    for last in [
        "h-7-b-3",
        "h-7-a-77",
        "nonsense",
        "",
        "-1",
        "h-7-a-18446744073709551616",
    ] {
        let mut back = Reader::of(&shared, events, Some(last)).await;
        let (heard, _) = back.now().await;
        assert_eq!(heard.len(), 6, "{last}: {heard:?}");
        assert_eq!((heard[0].kind.as_str(), &heard[0].id), ("gap", &None));
        assert_eq!(heard[1].id.as_deref(), Some("h-7-a-1"));
        assert_eq!(heard[0].data["data"], json!({"missed": null}));
    }
}

#[tokio::test]
async fn a_client_hears_what_it_has_asked_for() {
    let (_, shared) = Sample::default().shared();
    let path = "/api/v1/events?type=run_ended,draining&job=mail";
    let mut reader = Reader::of(&shared, path, None).await;
    let of = |job: &str| Event::Items {
        job: job.to_owned(),
        outcome: "sent",
        count: 1,
    };
    happen(&shared, of("mail"));
    one_of_each()
        .into_iter()
        .for_each(|event| happen(&shared, event));
    assert!(
        reader.now().await.0.is_empty(),
        "of another job, or of no job"
    );
    let mut reader = Reader::of(&shared, "/api/v1/events?job=mail", None).await;
    for job in ["mail", "mail.3", "mailer", "report"] {
        happen(&shared, of(job));
    }
    tell(&shared.events, Seen::Missed(1), AT.parse().unwrap());
    let (heard, _) = reader.now().await;
    let jobs: Vec<&Value> = heard.iter().map(|heard| &heard.data["job"]).collect();
    assert_eq!(jobs, [&json!("mail"), &json!("mail.3"), &Value::Null]);
    assert_eq!(heard[2].kind, "gap", "what is missing may be anything");
}

#[tokio::test]
async fn a_slow_reader_is_dropped_and_holds_nobody_up() {
    let (_, shared) = Sample::default().shared();
    let mut slow = Reader::of(&shared, "/api/v1/events", None).await;
    let mut quick = Reader::of(&shared, "/api/v1/events", None).await;
    // The first texts are taken, and nothing after them.
    assert!(slow.now().await.0.is_empty() && quick.now().await.0.is_empty());
    let mut heard = 0;
    for _ in 0..50 {
        for _ in 0..100 {
            happen(&shared, Event::Draining);
        }
        heard += quick.now().await.0.len();
    }
    assert_eq!(heard, 5_000, "none of them waits for the slow one");
    let (heard, over) = slow.now().await;
    assert!(over && heard.is_empty(), "{heard:?}");
    // It comes back, and is told.
    let mut back = Reader::of(&shared, "/api/v1/events", Some("h-7-a-1")).await;
    let (heard, _) = back.now().await;
    assert_eq!(heard[0].kind, "gap");
    assert_eq!(heard.last().unwrap().id.as_deref(), Some("h-7-a-5000"));
}

#[tokio::test]
async fn more_clients_than_may_follow_are_told_to_come_again() {
    let (_, shared) = Sample::default().shared();
    let follow = || Reader::of(&shared, "/api/v1/events", None);
    let mut following = join_all((0..SLOTS).map(|_| follow())).await;
    let answer = get(&shared, "/api/v1/events").await;
    assert_eq!(
        (answer.status, problem(&answer)),
        (503, "too-many-streams".to_owned())
    );
    assert_eq!(answer.header("retry-after"), "2");
    following.pop();
    follow().await;
}

#[test]
fn every_outcome_of_a_run_can_be_asked_for() {
    let described = "running done skipped retry failed timeout cancelled panicked interrupted";
    assert_eq!(runs::OUTCOMES.join(" "), described);
}

#[test]
fn every_route_of_the_api_is_one_of_the_api() {
    for route in ROUTES {
        assert!(route.path.starts_with("/api/v1/"), "{}", route.path);
        assert!(matches!(route.handler, Handler::Api(_)), "{}", route.path);
        assert!(!route.answers.is_empty() && !route.about.ends_with('.'));
    }
}
