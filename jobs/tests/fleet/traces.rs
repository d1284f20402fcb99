//! Traces of real workers, at receivers that take them and at one that does not.

use std::{net::TcpListener, time::Duration};

use watchkeeper::clock::Clock;
use watchkeeper_jobs::demo_table::create_demo_table;

use crate::{
    fleet::{Fleet, TTL, pulse},
    spans::{ENDPOINT, Spans, said, traceparent},
    store::Store,
    wait::soon,
};

/// Its first attempt fails, its second one does not.
const TWICE: &str = r#"
[jobs.report]
kind = "exec"
schedule = "@every 2s"
retry = { attempts = 2, backoff = "100ms" }
[jobs.report.params]
command = ["sh", "-c", 'echo "$WATCHKEEPER_ATTEMPT $TRACEPARENT" >> $FOLDER/seen; test "$WATCHKEEPER_ATTEMPT" = 2']
"#;

/// A call, and a row to send.
const ASKS: &str = r#"
[jobs.call]
kind = "http"
schedule = "@every 1s"
params = { url = "$CALL", method = "POST" }
[jobs.mail]
kind = "notifications"
schedule = "continuous"
coordination = "batch"
params = { source = "sqlite://$FOLDER/app.db", table = "notifications", sink = "$SINK" }
"#;

fn with(endpoint: &str) -> Vec<(String, String)> {
    vec![(ENDPOINT.to_owned(), endpoint.to_owned())]
}

/// Which attempt has seen which value of `TRACEPARENT`.
fn seen(fleet: &Fleet) -> Vec<String> {
    let text = std::fs::read_to_string(fleet.file("seen")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The whole run is one trace, and what each attempt starts knows its place in it.
pub(crate) fn a_run_of_two_attempts_is_one_trace_and_its_commands_know_their_places(store: Store) {
    let receiver = Spans::receiver();
    let mut fleet = Fleet::new(store, TWICE);
    let worker = fleet.start_with(&with(&receiver.endpoint));
    let run = receiver.wait("run that ended well", |span| {
        span.name == "run report" && said(span, "watchkeeper.outcome") == "done"
    });
    assert_eq!(said(&run, "watchkeeper.attempts"), "2");
    assert_eq!(said(&run, "watchkeeper.replica"), fleet.replica(worker));
    let spans = receiver.beside(&run);
    let named = |name: &str| -> Vec<_> {
        let of = spans.iter().filter(|span| span.name == name);
        of.cloned().collect()
    };
    let attempts = named("attempt");
    assert_eq!(attempts.len(), 2, "{spans:?}");
    assert_eq!(
        named("ledger.write").len(),
        4,
        "start and end of each: {spans:?}"
    );
    assert!(attempts[0].links.is_empty(), "{:?}", attempts[0]);
    let links = attempts[1].links.iter().map(|link| &link.span_id);
    assert!(links.eq([&attempts[0].span_id]), "{:?}", attempts[1]);
    for (attempt, outcome) in attempts.iter().zip(["failed", "done"]) {
        assert_eq!(attempt.parent_span_id, run.span_id);
        assert_eq!(said(attempt, "watchkeeper.outcome"), outcome);
        assert_eq!(said(attempt, "watchkeeper.job"), "report");
        assert!(!said(attempt, "watchkeeper.run_id").is_empty());
        let token = said(attempt, "watchkeeper.token");
        assert!(token.parse::<u64>().is_ok_and(|token| token > 0), "{token}");
        let number = said(attempt, "watchkeeper.attempt");
        let line = format!("{number} {}", traceparent(attempt));
        assert!(seen(&fleet).contains(&line), "{line}: {:?}", seen(&fleet));
    }
    fleet.terminate(worker);
    assert!(fleet.wait_until_gone(worker));
}

/// A service that is called, and one that is sent a row, hear of the piece in which they are, below its attempt.
pub(crate) fn what_is_called_and_sent_to_knows_its_place(store: Store) {
    let receiver = Spans::receiver();
    let config = ASKS
        .replace("$CALL", &receiver.service("call"))
        .replace("$SINK", &receiver.service("sink"));
    let mut fleet = Fleet::new(store, &config);
    create_demo_table(&fleet.file("app.db"), 1).unwrap();
    let worker = fleet.start_with(&with(&receiver.endpoint));
    for (piece, service) in [("http", "call"), ("send", "sink")] {
        let span = receiver.wait(piece, |span| span.name == piece);
        let calls = receiver.calls(service);
        assert!(calls.contains(&traceparent(&span)), "{span:?}: {calls:?}");
        let above = receiver.wait("what it is a part of", |other| {
            other.trace_id == span.trace_id && other.span_id == span.parent_span_id
        });
        assert!(["attempt", "batch"].contains(&&*above.name), "{above:?}");
    }
    fleet.terminate(worker);
    assert!(fleet.wait_until_gone(worker));
}

/// Leases are extended, ticks run and the worker ends in time; what the receiver misses is counted.
pub(crate) fn a_receiver_of_traces_that_hangs_costs_no_lease_and_no_tick(store: Store) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let mut fleet = Fleet::new(store, &pulse());
    let worker = fleet.start_with(&with(&endpoint));
    let led = fleet.leader("pulse");
    let page = fleet.page(worker);
    soon("count of what the receiver has missed", || {
        let (_, metrics) = fleet.says(&page, "GET", "/metrics", "");
        let line = metrics
            .lines()
            .find(|line| line.starts_with("watchkeeper_spans_dropped_total{why=\"failed\"}"));
        line.is_some_and(|line| !line.ends_with(" 0"))
    });
    // It took three tries of five seconds each.
    let beats = fleet.beats().of("pulse");
    assert!(beats.iter().all(|beat| beat.token == led.token));
    let (first, last) = (beats.first().unwrap().tick, beats.last().unwrap().tick);
    let lasted = last.duration_since(first);
    assert!(
        lasted.as_secs() > 5 * i64::try_from(TTL.as_secs()).unwrap(),
        "{lasted:?}"
    );
    let ticks = beats.iter().filter(|beat| beat.event == "started").count();
    // On a busy machine two ticks may become one.
    let missing = lasted.as_secs() + 1 - i64::try_from(ticks).unwrap();
    assert!(missing <= 2, "{missing} are missing: {beats:?}");
    let clock = Clock::system();
    let asked = clock.now();
    fleet.terminate(worker);
    assert!(fleet.wait_until_gone(worker));
    let took = clock.now().since(asked);
    assert!(took < Duration::from_secs(10), "{took:?}");
    drop(listener);
}
