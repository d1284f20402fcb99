//! Who is let in, as raw requests.

use super::*;

const OUTPUTS: &str = "/api/v1/runs?job=report";
const LISTS: [&str; 6] = [
    "/",
    "/api/v1/fleet",
    "/api/v1/jobs",
    "/api/v1/replicas",
    "/api/v1/nodes",
    "/api/v1/locks",
];
const HEALTH: [&str; 4] = ["/livez", "/readyz", "/leaderz", "/metrics"];

/// What a browser sends with the sign-in `any name`, `open sesame`.
const BASIC: &str = "Authorization: Basic YW55IG5hbWU6b3BlbiBzZXNhbWU=\r\n";

async fn server() -> Server {
    serving(Fake::default()).await
}

#[tokio::test]
async fn what_changes_and_what_shows_outputs_want_the_token() {
    let server = server().await;
    for (said, status) in [
        ("", 401),
        ("Authorization: Bearer open sesam\r\n", 401),
        ("Authorization: Bearer open sesamee\r\n", 401),
        ("Authorization: Bearer \r\n", 401),
        ("Authorization: Basic open sesame\r\n", 401),
        ("Authorization: Bearer open sesame\r\n", 200),
    ] {
        let asked = server.ask("report/pause", said, "").await;
        let looked = server.look(OUTPUTS, said).await;
        let waiting = server.look("/api/v1/triggers", said).await;
        let orders = server.look("/api/v1/audit", said).await;
        for answer in [asked, looked, waiting, orders] {
            assert_eq!(answer.status, status, "{said}");
            assert!(!answer.body.contains("open sesam"), "{}", answer.body);
        }
        for path in LISTS.into_iter().chain(HEALTH) {
            assert_eq!(server.look(path, said).await.status, 200, "{path} {said}");
        }
    }
    // What is not there is no secret, but whatever comes is shut unless it is said to be open.
    assert_eq!(server.look("/api/v1/later", "").await.status, 401);
    assert_eq!(server.get("/api/v1/later").await.status, 404);
    let shut = serving(Fake {
        read_only: true,
        ..Fake::default()
    });
    let answer = shut.await.post("report/pause", "", "").await;
    assert_eq!(answer.status, 403);
    assert!(answer.body.contains("admin.read_only"), "{}", answer.body);
}

#[tokio::test]
async fn a_sign_in_shows_and_does_not_change() {
    let server = server().await;
    let answer = server.look("/login", "").await;
    assert_eq!(answer.status, 401);
    assert!(
        answer.head.contains("www-authenticate: basic realm="),
        "{}",
        answer.head
    );
    let answer = server.look("/login", BASIC).await;
    assert_eq!(answer.status, 303);
    assert!(answer.head.contains("location: /\r\n"), "{}", answer.head);
    assert_eq!(server.look(OUTPUTS, BASIC).await.status, 200);
    // A browser says it by itself, for any page that makes it ask.
    let answer = server.ask("report/pause", BASIC, "").await;
    assert_eq!(answer.status, 401);
    assert!(!answer.head.contains("basic"), "{}", answer.head);
}

#[tokio::test]
async fn without_the_token_runs_say_nothing_of_themselves() {
    let server = serving(Fake {
        fleet: fleet(),
        ..Fake::default()
    })
    .await;
    for path in ["/", "/api/v1/fleet", "/api/v1/jobs", "/api/v1/jobs/mail"] {
        let (shut, open) = (server.look(path, "").await, server.get(path).await);
        assert!(!shut.body.contains("sending"), "{path}\n{}", shut.body);
        assert!(open.body.contains("sending"), "{path}\n{}", open.body);
        assert!(shut.body.contains("mail"), "{path}\n{}", shut.body);
    }
    assert!(server.look("/", "").await.body.contains("href=\"/login\""));
    assert!(!server.get("/").await.body.contains("href=\"/login\""));
}

#[tokio::test]
async fn without_the_token_neither_panics_nor_checks_are_quoted() {
    let why = "the engine of mail has died, and begins again: hunter2: so it goes";
    let mut fleet = fleet();
    fleet.replicas[0].unfit = Some("disk: hunter2".into());
    fleet.replicas[0].fit = false;
    fleet.jobs[0].trouble = Some(
        serde_json::from_value(serde_json::json!({"replicas": ["a"], "why": "hunter2"})).unwrap(),
    );
    let server = serving(Fake {
        fleet,
        unready: Some(why),
        ..Fake::default()
    })
    .await;
    for path in ["/readyz", "/", "/api/v1/fleet"] {
        let (shut, open) = (server.look(path, "").await, server.get(path).await);
        assert!(!shut.body.contains("hunter2"), "{path}\n{}", shut.body);
        assert!(open.body.contains("hunter2"), "{path}\n{}", open.body);
    }
    let shut = server.look("/readyz", "").await;
    assert_eq!(shut.status, 503);
    assert_eq!(
        shut.body,
        "the engine of mail has died, and begins again: sign in to see why\n"
    );
    let fleet = server.look("/api/v1/fleet", "").await.body;
    assert!(fleet.contains("disk: sign in to see why"), "{fleet}");
    // What says nothing of anybody's is shown.
    let server = serving(Fake {
        unready: Some("no store was reached yet"),
        ..Fake::default()
    });
    let shut = server.await.look("/readyz", "").await;
    assert_eq!(shut.body, "no store was reached yet\n");
}

#[tokio::test]
async fn without_any_token_nobody_asks() {
    let server = serving(Fake {
        no_token: true,
        ..Fake::default()
    })
    .await;
    for said in ["", "Authorization: Bearer \r\n", BASIC] {
        let answer = server.ask("report/pause", said, "").await;
        assert_eq!(answer.status, 403, "{said}");
        assert!(answer.body.contains("admin.token"), "{}", answer.body);
        assert_eq!(server.look(OUTPUTS, said).await.status, 403);
        assert_eq!(server.look("/", said).await.status, 200);
    }
}

#[tokio::test]
async fn where_other_machines_come_all_but_health_wants_the_token() {
    let server = serving(Fake {
        reachable: true,
        ..Fake::default()
    })
    .await;
    for path in LISTS {
        assert_eq!(server.look(path, "").await.status, 401, "{path}");
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
    for path in HEALTH {
        assert_eq!(server.look(path, "").await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn a_foreign_host_is_refused_everywhere() {
    for reachable in [false, true] {
        let server = serving(Fake {
            reachable,
            hosts: &["keeper.example", "Machine"],
            ..Fake::default()
        })
        .await;
        for (host, status) in [
            ("localhost", 200),
            ("LOCALHOST:8787", 200),
            ("127.0.0.1:8787", 200),
            ("10.1.2.3", 200),
            ("[::1]:8787", 200),
            ("a.localhost", 200),
            ("keeper.example", 200),
            ("Keeper.Example.:443", 200),
            ("machine:8787", 200),
            ("evil.example", 421),
            ("evil.example:8787", 421),
            ("localhost.evil.example", 421),
            ("127.0.0.1.evil.example", 421),
            ("a.keeper.example", 421),
            ("evil.example\r\nHost: localhost", 421),
            ("localhost\r\nHost: evil.example", 421),
            ("\u{e9}", 421),
        ] {
            let request = format!("GET /livez HTTP/1.1\r\nHost: {host}\r\n\r\n");
            assert_eq!(server.send(&request).await.status, status, "{host}");
        }
        let whole = "GET http://evil.example/livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
        assert_eq!(server.send(whole).await.status, 421);
    }
}

#[tokio::test]
async fn a_page_of_another_origin_gets_nothing() {
    let server = server().await;
    let port = server.address.port();
    for told in [
        // What fetch, a form and an image of a stranger's page send.
        "Origin: http://evil.example\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: cors\r\nSec-Fetch-Dest: empty\r\n",
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: image\r\n",
        "Origin: http://evil.example\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n",
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n",
        // Another server of this machine, and browsers that do not say where from.
        "Origin: http://localhost:1\r\nSec-Fetch-Site: same-site\r\nSec-Fetch-Mode: cors\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Origin: http://localhost\r\n",
        "Origin: https://localhost:PORT\r\n",
        "Origin: null\r\n",
        "Origin: http://localhost:PORT\r\nOrigin: http://evil.example\r\n",
        "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Site: cross-site\r\n",
        "Origin: \u{e9}\r\n",
    ] {
        let told = told.replace("PORT", &port.to_string());
        let host = format!("Host: localhost:{port}\r\n");
        for (said, token) in [("", false), (BASIC, false), (&*said(), true)] {
            let paths = LISTS.into_iter().chain(HEALTH).chain([OUTPUTS, "/login"]);
            for path in paths {
                let request = format!("GET {path} HTTP/1.1\r\n{host}{said}{told}\r\n");
                let answer = server.send(&request).await;
                assert_eq!(answer.status, 403, "{path} {told} {token}");
                assert!(!answer.head.contains("access-control-"), "{}", answer.head);
                assert!(!answer.head.contains("www-authenticate"), "{}", answer.head);
            }
            let request = format!(
                "POST /api/v1/jobs/report/pause HTTP/1.1\r\n{host}{said}{told}Content-Length: 0\r\n\r\n"
            );
            assert_eq!(server.send(&request).await.status, 403, "{told} {token}");
        }
        let asks_first = format!(
            "OPTIONS /api/v1/runs HTTP/1.1\r\n{host}{told}Access-Control-Request-Headers: authorization\r\n\r\n"
        );
        assert_eq!(server.send(&asks_first).await.status, 403, "{told}");
    }
    // Our own page, an address that a person has typed, and a link that is followed.
    for told in [
        "Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: navigate\r\n",
        "Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n",
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n",
        "Origin: http://localhost:PORT\r\nSec-Fetch-Site: same-origin\r\n",
    ] {
        let told = told.replace("PORT", &port.to_string());
        let request = format!("GET / HTTP/1.1\r\nHost: localhost:{port}\r\n{told}\r\n");
        assert_eq!(server.send(&request).await.status, 200, "{told}");
    }
}

#[tokio::test]
async fn only_a_named_proxy_is_believed() {
    let stranger = server().await;
    let named = serving(Fake {
        proxies: &["127.0.0.0/8", "10.0.0.0/8"],
        hosts: &["keeper.example"],
        ..Fake::default()
    })
    .await;
    let front = "X-Forwarded-Host: keeper.example\r\nX-Forwarded-Proto: https\r\n";
    for (told, status) in [
        ("", 200),
        // Also where the proxy says that it is a browser of this machine: a page of a stranger may have led it here.
        ("X-Forwarded-For: ::1\r\n", 401),
        ("X-Forwarded-For: ::1, 10.0.0.9\r\n", 401),
        (
            "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: localhost\r\n",
            401,
        ),
        ("X-Forwarded-For: 203.0.113.7\r\n", 401),
        ("X-Forwarded-For: nonsense\r\n", 401),
        ("X-Forwarded-For: \r\n", 401),
        ("X-Forwarded-Host: localhost\r\n", 401),
        ("Forwarded: for=127.0.0.1\r\n", 401),
        ("Via: 1.1 proxy\r\n", 401),
        ("X-Real-IP: 127.0.0.1\r\n", 401),
    ] {
        let shown = stranger.look("/", told).await.status;
        assert_eq!(shown, status, "not named: {told}");
        assert_eq!(named.look("/", told).await.status, status, "named: {told}");
        // A client with the token may look from anywhere.
        assert_eq!(
            stranger
                .look("/", &format!("{told}{}", said()))
                .await
                .status,
            200,
            "{told}"
        );
    }
    // Its name and scheme are those that the browser knows, where they are believed.
    let origin = format!("{front}Origin: https://keeper.example\r\n{}", said());
    assert_eq!(named.look(OUTPUTS, &origin).await.status, 200);
    assert_eq!(stranger.look(OUTPUTS, &origin).await.status, 403);
    let foreign = format!("X-Forwarded-Host: evil.example\r\n{}", said());
    assert_eq!(named.look(OUTPUTS, &foreign).await.status, 421);
}

#[tokio::test]
async fn a_request_without_rights_is_refused_before_its_body_is_read() {
    let server = server().await;
    // The body never comes: who waited for it would not answer.
    let head = "Host: localhost\r\nContent-Length: 2000000\r\nExpect: 100-continue\r\n";
    for (more, status) in [("", 401), ("Origin: http://evil.example\r\n", 403)] {
        let request = format!("POST /api/v1/jobs/report/pause HTTP/1.1\r\n{head}{more}\r\n");
        let answer = server.send(&request).await;
        assert_eq!(answer.status, status);
        assert!(!answer.head.contains("100 continue"), "{}", answer.head);
    }
}

#[tokio::test]
async fn a_body_is_no_larger_than_16_kib() {
    let server = server().await;
    let padded = |length: usize| format!("{{\"reason\": \"\"{}}}", " ".repeat(length - 14));
    let fits = server.post("report/pause", "", &padded(16 * 1024)).await;
    assert_eq!(fits.status, 200, "{}", fits.body);
    let long = server
        .post("report/pause", "", &padded(16 * 1024 + 1))
        .await;
    assert_eq!(long.status, 413, "{}", long.body);
    let told: serde_json::Value = serde_json::from_str(&long.body).unwrap();
    assert_eq!(told["type"], "urn:watchkeeper:problem:too-large");
    // Also one that does not say its length.
    let chunk = "1000\r\n".to_owned() + &" ".repeat(0x1000) + "\r\n";
    let request = format!(
        "POST /api/v1/jobs/report/pause HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n{}\r\n{}0\r\n\r\n",
        said(),
        chunk.repeat(5)
    );
    assert_eq!(server.send(&request).await.status, 413);
}

#[tokio::test]
async fn a_body_is_an_object_and_no_list_of_its_words() {
    let server = server().await;
    for list in ["[]", " [\"why\"]", "null", "\"why\""] {
        let answer = server.post("report/pause", "", list).await;
        assert_eq!(answer.status, 400, "{list}: {}", answer.body);
        assert!(answer.body.contains("must be an object"), "{}", answer.body);
    }
    let answer = server.post("report/pause", "", "\n {}").await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[tokio::test]
async fn a_head_without_end_is_cut_off() {
    let server = server().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    let line = format!("X: {}\r\n", "x".repeat(8000));
    let mut sent = 0;
    // The connection goes away while this is written.
    while sent < 4_000_000 && stream.write_all(line.as_bytes()).await.is_ok() {
        sent += line.len();
    }
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(!rest.starts_with(b"HTTP/1.1 200"), "after {sent} bytes");
}
