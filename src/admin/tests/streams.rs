//! Pages that are kept up to date.

use super::*;
use crate::admin::stream::OPEN_SLOTS;

/// Follows a page.
pub(super) async fn follow(server: &Server, path: &str, more: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Reads on until `wanted` finds something in what has come.
async fn read_for<T>(stream: &mut TcpStream, wanted: impl Fn(&str) -> Option<T>) -> (T, String) {
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    loop {
        // A letter of several bytes may come in two parts.
        let seen = String::from_utf8_lossy(&bytes).into_owned();
        if let Some(found) = wanted(&seen) {
            return (found, seen);
        }
        let read = stream.read(&mut part).await.unwrap();
        assert!(read > 0, "it ends: {seen}");
        bytes.extend_from_slice(&part[..read]);
    }
}

/// The id that was told last, once its line is complete.
fn id(seen: &str) -> Option<String> {
    let (_, rest) = seen.rsplit_once("\nid: ")?;
    let (id, _) = rest.split_once('\n')?;
    Some(id.to_owned())
}

#[tokio::test]
async fn one_that_comes_back_is_sent_the_difference() {
    let server = serving(Fake {
        fleet: fleet(),
        ..Fake::default()
    })
    .await;
    let mut stream = follow(&server, "/events?path=/&tz=Europe/Rome", "").await;
    let (first, seen) = read_for(&mut stream, id).await;
    let head = seen.to_ascii_lowercase();
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    for part in [
        "event: hello\ndata: {\"version\":",
        "<tr data-key=\"report\">",
        "event: order\n",
        "event: piece\n",
    ] {
        assert!(seen.contains(part), "{part}\n{seen}");
    }
    assert!(
        !seen.contains("sending"),
        "without the token runs say nothing"
    );
    drop(stream);

    let back = format!("Last-Event-ID: {first}\r\n");
    let mut stream = follow(&server, "/events?path=/&tz=Europe/Rome", &back).await;
    let (second, seen) = read_for(&mut stream, id).await;
    assert!(!seen.contains("event: rows"), "nothing has changed: {seen}");
    // Of another page, and of nothing that is known, everything is sent.
    for (path, known) in [
        ("/events?path=/", second.as_str()),
        ("/events?path=/&tz=Europe/Rome", "x-1"),
    ] {
        let back = format!("Last-Event-ID: {known}\r\n");
        let mut stream = follow(&server, path, &back).await;
        let (_, seen) = read_for(&mut stream, id).await;
        assert!(seen.contains("event: rows"), "{path} {known}: {seen}");
    }
}

/// By several, and on the page of the fleet as well.
#[tokio::test]
async fn the_page_of_a_job_is_followed() {
    let source = Arc::new(Fake {
        fleet: fleet(),
        ..Fake::default()
    });
    let server = serving_shared(source.clone()).await;
    let page = server.get("/jobs/report").await.body;
    assert!(page.contains("data-live=\"stream\""), "{page}");
    let (job, all) = ("/events?path=/jobs/report", "/events?path=/");
    let mut streams = Vec::new();
    for path in [job, all, job, all] {
        let mut stream = follow(&server, path, "").await;
        let (_, seen) = read_for(&mut stream, id).await;
        assert!(seen.contains("<b>alpha</b>"), "{path}: {seen}");
        let parts = "event: parts\ndata: jobs flying runs terms\n";
        assert_eq!(seen.contains(parts), path == job, "{path}: {seen}");
        streams.push((path, stream));
    }
    let mut later = fleet();
    let report = later.jobs.iter_mut().find(|job| job.name == "report");
    let leader = report.and_then(|job| job.leader.as_mut());
    leader.unwrap().name = "gamma".into();
    source.becomes(later);
    for (path, stream) in &mut streams {
        // What the store tells of the job is read again, too.
        let told = |seen: &str| {
            let all = seen.contains("<b>gamma</b>");
            (all && (*path != job || seen.contains("run-later"))).then_some(())
        };
        read_for(stream, told).await;
    }
}

#[tokio::test]
async fn no_more_follow_a_page_than_there_are_places() {
    let server = serving(Fake {
        fleet: fleet(),
        ..Fake::default()
    })
    .await;
    let mut streams = Vec::new();
    for _ in 0..OPEN_SLOTS {
        let mut stream = follow(&server, "/events?path=/nodes", "").await;
        let greeted = |seen: &str| seen.contains("event: hello").then_some(());
        read_for(&mut stream, greeted).await;
        streams.push(stream);
    }
    let answer = server.look("/events?path=/nodes", "").await;
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert!(answer.head.contains("retry-after: "), "{}", answer.head);
    // The page itself is there for all, and a client with the token has a place.
    assert_eq!(server.look("/nodes", "").await.status, 200);
    let mut stream = follow(&server, "/events?path=/nodes", &said()).await;
    let greeted = |seen: &str| seen.contains("event: hello").then_some(());
    read_for(&mut stream, greeted).await;
    server.stop.cancel();
    server.task.await.unwrap();
}

#[tokio::test]
async fn only_views_of_the_fleet_are_followed_and_only_as_they_are_chosen() {
    let server = serving(Fake::default()).await;
    for (query, name) in [
        ("?path=/runs", "path"),
        ("?path=/jobs/", "path"),
        ("?path=/jobs/a/b", "path"),
        ("?path=/jobs/report&state=x", "state"),
        ("?path=/api/v1/fleet", "path"),
        ("?path=/&page=0", "page"),
        ("?path=/nodes&state=x", "state"),
    ] {
        let answer = server.get(&format!("/events{query}")).await;
        assert_eq!(answer.status, 400, "{query}");
        assert!(
            answer.body.contains(&format!("{name}: ")),
            "{}",
            answer.body
        );
    }
    let reachable = serving(Fake {
        reachable: true,
        ..Fake::default()
    });
    let answer = reachable.await.look("/events?path=/", "").await;
    assert_eq!(answer.status, 401, "{}", answer.body);
}
