//! Orders by forms: who may give them, and that no other page can.

use super::*;

/// What a browser sends with the sign-in `any name`, `open sesame`.
const BASIC: &str = "Authorization: Basic YW55IG5hbWU6b3BlbiBzZXNhbWU=\r\n";

const OURS: &str = "Origin: http://localhost\r\nSec-Fetch-Site: same-origin\r\n";

/// A form that was opened: its seal, and the cookie that came with it.
struct Opened {
    seal: String,
    cookie: String,
}

async fn open(server: &Server, path: &str) -> Opened {
    let answer = server.look(path, BASIC).await;
    assert_eq!(answer.status, 200, "{path}\n{}", answer.body);
    let (_, seal) = answer.body.split_once("name=\"seal\" value=\"").unwrap();
    let (_, cookie) = answer.head.split_once("set-cookie: ").unwrap();
    for word in ["httponly", "samesite=strict", "path=/orders"] {
        assert!(cookie.lines().next().unwrap().contains(word), "{cookie}");
    }
    Opened {
        seal: seal.split('"').next().unwrap().to_owned(),
        cookie: cookie.split(';').next().unwrap().to_owned(),
    }
}

async fn send(server: &Server, order: &str, head: &str, body: &str) -> Answer {
    let length = body.len();
    server
        .send(&format!(
            "POST /orders/{order} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {length}\r\n{head}\r\n{body}"
        ))
        .await
}

#[tokio::test]
async fn an_order_wants_the_token_our_origin_and_a_seal() {
    let source = Arc::new(Fake {
        fleet: fleet(),
        ..Fake::default()
    });
    let server = serving_shared(source.clone()).await;
    let opened = open(&server, "/orders/pause?job=report").await;
    let other = open(&server, "/orders/pause?job=mail").await;
    let cookie = format!("Cookie: {}\r\n", opened.cookie);
    let body = format!("seal={}&job=report&reason=it+moves", opened.seal);
    let good = format!("{BASIC}{OURS}{cookie}");
    let evil = "Origin: http://evil.example\r\nSec-Fetch-Site: cross-site\r\n";
    for (head, body, status) in [
        // Without the token; of another origin; of one that does not say where from.
        (format!("{OURS}{cookie}"), body.clone(), 401),
        (format!("{BASIC}{evil}{cookie}"), body.clone(), 403),
        (
            format!("{BASIC}Origin: null\r\n{cookie}"),
            body.clone(),
            403,
        ),
        (format!("{BASIC}{cookie}"), body.clone(), 403),
        // Another server of this machine is another origin, whose browser sends the same cookies.
        (
            format!("{BASIC}Origin: http://localhost:1\r\nSec-Fetch-Site: same-site\r\n{cookie}"),
            body.clone(),
            403,
        ),
        // Without its cookie, with another one, without a seal, with one for something else.
        (format!("{BASIC}{OURS}"), body.clone(), 403),
        (
            format!("{BASIC}{OURS}Cookie: {}\r\n", other.cookie),
            body.clone(),
            403,
        ),
        (good.clone(), "job=report&reason=x".to_owned(), 403),
        (good.clone(), body.replace("job=report", "job=mail"), 403),
        (
            good.clone(),
            format!("seal={}&job=report&reason=x", other.seal),
            403,
        ),
    ] {
        let answer = send(&server, "pause", &head, &body).await;
        assert_eq!(answer.status, status, "{head}{body}\n{}", answer.body);
        assert!(source.given.lock().unwrap().is_empty(), "{head}{body}");
    }
    // A seal is good for its own order alone.
    let answer = send(&server, "resume", &good, &body).await;
    assert_eq!(answer.status, 403, "{}", answer.body);

    let answer = send(&server, "pause", &good, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.body.contains("report is paused"), "{}", answer.body);
    let given = source.given.lock().unwrap().clone();
    let pause = Order::Pause {
        reason: "it moves".to_owned(),
    };
    assert_eq!(
        given,
        [Asked {
            who: "any name (by their own word)".to_owned(),
            reason: "it moves".to_owned(),
            what: What::Job("report".to_owned(), pause),
        }]
    );
    // Sent once more, as when a page is loaded again.
    let answer = send(&server, "pause", &good, &body).await;
    assert_eq!(answer.status, 409, "{}", answer.body);
    assert_eq!(source.given.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn a_server_that_changes_nothing_has_no_forms() {
    let server = serving(Fake {
        fleet: fleet(),
        read_only: true,
        ..Fake::default()
    })
    .await;
    let form = server.look("/orders/pause?job=report", BASIC).await;
    assert_eq!(form.status, 403, "{}", form.body);
    let answer = send(&server, "pause", &format!("{BASIC}{OURS}"), "job=report").await;
    assert_eq!(answer.status, 403, "{}", answer.body);
    assert!(answer.body.contains("read_only"), "{}", answer.body);
    for path in ["/", "/jobs/report", "/replicas", "/locks?key=x"] {
        let page = server.look(path, BASIC).await.body;
        assert!(!page.contains("href=\"/orders/"), "{path}\n{page}");
        assert!(page.contains("orders are not taken here"), "{path}\n{page}");
    }
    let mute = serving(Fake {
        fleet: fleet(),
        no_token: true,
        ..Fake::default()
    });
    let page = mute.await.look("/jobs/report", "").await.body;
    assert!(!page.contains("href=\"/orders/"), "{page}");
}

#[tokio::test]
async fn a_form_says_what_would_happen_and_asks_why() {
    let source = Arc::new(Fake {
        fleet: fleet(),
        ..Fake::default()
    });
    let server = serving_shared(source.clone()).await;
    for (path, says) in [
        (
            "/orders/pause?job=report",
            "Nothing of report starts on any replica",
        ),
        ("/orders/trigger?job=report", "report runs once"),
        ("/orders/resume?job=report", "goes on with its next tick"),
        (
            "/orders/resign?job=report",
            "alpha starts nothing more of report",
        ),
        ("/orders/drain?replica=host-7-a", "It leads 1 jobs"),
        // By the name of the replica, and not by its id.
        (
            "/orders/drain?replica=host-7-a",
            "<h2 class=\"title\">Drain alpha</h2>",
        ),
        (
            "/orders/pause?job=report",
            "an order of any name (by their own word).",
        ),
        (
            "/orders/retry?job=mail&id=17",
            "<button>Send again item 17 of mail</button>",
        ),
        (
            "/orders/discard?job=mail&all=dead",
            "<button class=\"bad\">Discard all items of mail that are dead</button>",
        ),
        (
            "/orders/pause_all?all=jobs",
            "Ticks that are skipped meanwhile never run, and it is meant",
        ),
        ("/orders/withdraw?id=t", "Trigger t does not start"),
        (
            "/orders/break?key=job%2Freport",
            "The holder of job/report is told",
        ),
        (
            "/orders/retry?job=mail&id=17",
            "Item 17 of mail is sent again.",
        ),
        (
            "/orders/retry?job=mail&all=dead",
            "All items of mail that are dead when it is carried out are sent again: 0 as last counted.",
        ),
        (
            "/orders/discard?job=mail&id=17",
            "Item 17 of mail is discarded.</p>\n<p>What is discarded is not sent, is counted no more",
        ),
        (
            "/orders/discard?job=mail&all=dead",
            "All items of mail that are dead when it is carried out are discarded: 0 as last counted.",
        ),
        (
            "/orders/discard?job=mail&all=discarded",
            "that are discarded when it is carried out are discarded.<",
        ),
        (
            "/orders/park?job=mail&id=%3Cb%3E",
            "Item &lt;b&gt; of mail is put aside",
        ),
        (
            "/orders/pause_all?all=jobs",
            "Nothing of any job starts on any replica until it is resumed",
        ),
        (
            "/orders/pause_all?all=jobs",
            "A job that comes later is not paused.",
        ),
        ("/orders/resume_all?all=jobs", "Every pause ends: 0 jobs"),
        (
            "/orders/pause?job=%3Cscript%3E",
            "No replica has &lt;script&gt; now",
        ),
    ] {
        let page = server.look(path, BASIC).await.body;
        assert!(page.contains(says), "{path}: {says}\n{page}");
        assert!(page.contains("name=\"reason\" required"), "{path}");
        assert!(page.contains("data-live=\"off\""), "{path}");
        assert!(!page.contains("http-equiv"), "{path}");
    }
    for (path, status) in [
        ("/orders/pause", 400),
        ("/orders/burn?job=report", 404),
        ("/orders/pause?job=report&tz=nowhere", 400),
        ("/orders/retry?job=mail", 400),
        ("/orders/retry?job=mail&id=17&all=dead", 400),
        ("/orders/park?job=mail&all=dead", 400),
        ("/orders/discard?job=mail", 400),
        ("/orders/discard?job=mail&id=17&all=dead", 400),
        ("/orders/retry?id=17", 400),
        ("/orders/pause_all", 400),
        ("/orders/pause_all?all=some", 400),
    ] {
        let answer = server.look(path, BASIC).await;
        assert_eq!(answer.status, status, "{path}\n{}", answer.body);
    }
    // What is missing is asked for again, with what was said.
    let opened = open(&server, "/orders/drain?replica=w0").await;
    let head = format!("{BASIC}{OURS}Cookie: {}\r\n", opened.cookie);
    let body = format!("seal={}&replica=w0&reason=%3Cb%3E", opened.seal);
    let answer = send(&server, "drain", &head, &body).await;
    assert_eq!(answer.status, 400, "{}", answer.body);
    assert!(
        answer.body.contains("value=\"&lt;b&gt;\""),
        "{}",
        answer.body
    );
    assert!(source.given.lock().unwrap().is_empty());
    let (_, seal) = answer.body.split_once("name=\"seal\" value=\"").unwrap();
    let seal = seal.split('"').next().unwrap();
    let body = format!("seal={seal}&replica=w0&reason=it+is+old&sure=yes");
    let answer = send(&server, "drain", &head, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let given = source.given.lock().unwrap();
    assert_eq!(given[0].what, What::Drain("w0".to_owned()));
}

#[tokio::test]
async fn what_is_refused_is_told_and_a_large_form_is_not_read() {
    let source = Arc::new(Fake {
        fleet: fleet(),
        ..Fake::default()
    });
    let server = serving_shared(source.clone()).await;
    let opened = open(&server, "/orders/resume?job=report").await;
    let head = format!("{BASIC}{OURS}Cookie: {}\r\n", opened.cookie);
    let body = format!("seal={}&job=report&reason=x", opened.seal);
    let answer = send(&server, "resume", &head, &body).await;
    assert_eq!(answer.status, 409, "{}", answer.body);
    assert!(answer.body.contains("not now"), "{}", answer.body);
    let large = format!("reason={}", "x".repeat(17 * 1024));
    let answer = send(&server, "pause", &head, &large).await;
    assert_eq!(answer.status, 413, "{}", answer.body);
}

#[tokio::test]
async fn an_order_goes_on_without_its_client_and_one_without_a_turn_can_be_sent_again() {
    let gate = Arc::new(Semaphore::new(0));
    let source = Arc::new(Fake {
        fleet: fleet(),
        gate: Some(gate.clone()),
        ..Fake::default()
    });
    let server = serving_shared(source.clone()).await;
    let opened = open(&server, "/orders/pause?job=report").await;
    let head = format!("{BASIC}{OURS}Cookie: {}\r\n", opened.cookie);
    let body = format!("seal={}&job=report&reason=x", opened.seal);
    // As many as there are turns for have begun, and their clients go.
    let trigger = format!(
        "POST /api/v1/jobs/report/trigger HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n{}\r\n",
        said()
    );
    for begun in 1..=4 {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(trigger.as_bytes()).await.unwrap();
        while source.given.lock().unwrap().len() < begun {
            assert_eq!(server.get("/livez").await.status, 200);
        }
    }
    let answer = send(&server, "pause", &head, &body).await;
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert!(
        answer.body.contains("nothing was asked for"),
        "{}",
        answer.body
    );
    assert_eq!(source.carried_out.load(Ordering::SeqCst), 0);
    gate.add_permits(5);
    // Its seal is as good as before.
    let answer = send(&server, "pause", &head, &body).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    while source.carried_out.load(Ordering::SeqCst) < 5 {
        assert_eq!(server.get("/livez").await.status, 200);
    }
}

#[tokio::test]
async fn an_order_is_refused_before_it_is_given_where_its_page_could_not_be_shown() {
    let source = Arc::new(Fake {
        fleet: fleet(),
        ..Fake::default()
    });
    let server = serving_shared(source.clone()).await;
    let key = "x".repeat(512);
    let opened = open(&server, &format!("/orders/break?key={key}&owner=o")).await;
    let head = format!("{BASIC}{OURS}Cookie: {}\r\n", opened.cookie);
    let said = format!("seal={}&key={key}&reason=x&sure=yes", opened.seal);
    let long = "y".repeat(513);
    let answer = send(&server, "break", &head, &format!("{said}&owner={long}")).await;
    assert_eq!(answer.status, 400, "{}", answer.body);
    assert!(source.given.lock().unwrap().is_empty());
    // A name that the API takes is taken here.
    let answer = send(&server, "break", &head, &format!("{said}&owner=o")).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

/// A form that promises to touch no other owner's lease is about the lease that it was opened for.
#[tokio::test]
async fn a_lease_is_ended_of_the_owner_alone_that_its_form_names() {
    let source = Arc::new(Fake {
        fleet: fleet(),
        ..Fake::default()
    });
    let server = serving_shared(source.clone()).await;
    for (named, sent) in [("&owner=a", "&owner=b"), ("&owner=a", ""), ("", "")] {
        let opened = open(&server, &format!("/orders/break?key=k{named}")).await;
        let head = format!("{BASIC}{OURS}Cookie: {}\r\n", opened.cookie);
        let body = format!("seal={}&key=k&reason=x&sure=yes{sent}", opened.seal);
        let answer = send(&server, "break", &head, &body).await;
        assert!(answer.status >= 400, "{named} {sent}: {}", answer.body);
    }
    assert!(source.given.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_named_proxy_says_who_asks() {
    for (named, who) in [
        (Some("X-Forwarded-User"), "ann"),
        (None, "any name (by their own word)"),
    ] {
        let source = Arc::new(Fake {
            fleet: fleet(),
            proxies: &["127.0.0.0/8"],
            hosts: &["keeper.example"],
            user_header: named,
            ..Fake::default()
        });
        let server = serving_shared(source.clone()).await;
        let proxy = "X-Forwarded-User: ann\r\nX-Forwarded-Host: keeper.example\r\nX-Forwarded-Proto: https\r\n";
        let answer = server
            .look("/orders/pause?job=report", &format!("{BASIC}{proxy}"))
            .await;
        assert!(answer.head.contains("; secure"), "{}", answer.head);
        let (_, seal) = answer.body.split_once("name=\"seal\" value=\"").unwrap();
        let (_, cookie) = answer.head.split_once("set-cookie: ").unwrap();
        let head = format!(
            "{BASIC}{proxy}Origin: https://keeper.example\r\nCookie: {}\r\n",
            cookie.split(';').next().unwrap()
        );
        let body = format!(
            "seal={}&job=report&reason=x",
            seal.split('"').next().unwrap()
        );
        let answer = send(&server, "pause", &head, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        assert_eq!(source.given.lock().unwrap()[0].who, who);
        // Of two names the first may be a client's own, where the proxy has added another.
        let two = format!("{BASIC}X-Forwarded-User: root\r\n{proxy}");
        let answer = server.look("/orders/pause?job=report", &two).await;
        let expected = if named.is_some() { 400 } else { 200 };
        assert_eq!(answer.status, expected, "{}", answer.body);
        assert_eq!(server.look("/livez", &two).await.status, 200);
    }
}

#[tokio::test]
async fn all_jobs_are_paused_by_one_order_that_says_who_has_not_heard_of_it() {
    let source = Arc::new(Fake {
        fleet: fleet(),
        ..Fake::default()
    });
    let server = serving_shared(source.clone()).await;
    let page = server.look("/", BASIC).await.body;
    let link = "<a href=\"/orders/pause_all?all=jobs\">pause all jobs</a>";
    assert!(page.contains(link), "{page}");
    let opened = open(&server, "/orders/pause_all?all=jobs").await;
    let head = format!("{BASIC}{OURS}Cookie: {}\r\n", opened.cookie);
    let seal = &opened.seal;
    // It is said that it is meant, and of all jobs and no other thing.
    for (more, status) in [("all=jobs", 400), ("all=some&sure=yes", 403)] {
        let body = format!("seal={seal}&{more}&reason=all+move");
        let answer = send(&server, "pause_all", &head, &body).await;
        assert_eq!(answer.status, status, "{more}\n{}", answer.body);
    }
    assert!(source.given.lock().unwrap().is_empty());
    let opened = open(&server, "/orders/pause_all?all=jobs").await;
    let head = format!("{BASIC}{OURS}Cookie: {}\r\n", opened.cookie);
    let body = format!("seal={}&all=jobs&reason=all+move&sure=yes", opened.seal);
    let answer = send(&server, "pause_all", &head, &body).await;
    assert_eq!(answer.status, 202, "{}", answer.body);
    let said = "All jobs: 2 jobs are paused now; not heard yet by beta.";
    assert!(answer.body.contains(said), "{}", answer.body);
    let given = source.given.lock().unwrap();
    assert_eq!(given.len(), 1);
    assert_eq!(given[0].what.words(), ("pause_all", "jobs"));
    assert_eq!(given[0].reason, "all move");
}

/// A form is made of few jobs, and its order is about all of them.
#[tokio::test]
async fn an_order_about_all_jobs_of_a_large_fleet_tells_how_many_they_are() {
    let mut many = fleet();
    let job = many.jobs[0].clone();
    let more = |n: usize| JobStatus {
        name: format!("job-{n:03}"),
        ..job.clone()
    };
    many.jobs.extend((0..200).map(more));
    let all = format!("until it is resumed: {} jobs, of which", many.jobs.len());
    let server = serving(Fake {
        fleet: many,
        ..Fake::default()
    })
    .await;
    let page = server.look("/orders/pause_all?all=jobs", BASIC).await.body;
    assert!(page.contains(&all), "{page}");
    let page = server.look("/?q=zzz", BASIC).await.body;
    assert!(page.contains("pause all jobs</a>"), "{page}");
}

#[tokio::test]
async fn an_order_about_items_is_for_those_of_its_form() {
    let source = Arc::new(Fake {
        fleet: fleet(),
        ..Fake::default()
    });
    let server = serving_shared(source.clone()).await;
    let opened = open(&server, "/orders/retry?job=mail&id=17").await;
    let head = format!("{BASIC}{OURS}Cookie: {}\r\n", opened.cookie);
    let of = |which: &str| {
        let seal = &opened.seal;
        format!("seal={seal}&job=mail&{which}&reason=it+is+mended&sure=yes")
    };
    for other in ["id=18", "id=17&all=dead", "id=&all=dead"] {
        let answer = send(&server, "retry", &head, &of(other)).await;
        assert_eq!(answer.status, 403, "{other}\n{}", answer.body);
    }
    assert!(source.given.lock().unwrap().is_empty());
    let answer = send(&server, "retry", &head, &of("id=17&all=")).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(
        answer.body.contains("Items of mail: 6 to be sent again."),
        "{}",
        answer.body
    );
    assert!(
        answer.body.contains("href=\"/batches?job=mail\">back"),
        "{}",
        answer.body
    );
    let given = source.given.lock().unwrap();
    assert_eq!(
        (given[0].what.words(), given[0].what.items().as_str()),
        (("retry", "mail"), "1 item: [\"17\"]")
    );
}

#[tokio::test]
async fn the_rest_of_a_state_is_ordered_behind_where_the_first_order_has_ended() {
    let source = Arc::new(Fake {
        fleet: fleet(),
        ..Fake::default()
    });
    let server = serving_shared(source.clone()).await;
    let all = "/orders/retry?job=mail&all=in_doubt";
    let opened = open(&server, all).await;
    let body = |opened: &Opened, after: &str| {
        let seal = &opened.seal;
        format!("seal={seal}&job=mail&id=&all=in_doubt&after={after}&reason=x&sure=yes")
    };
    let head = |opened: &Opened| format!("{BASIC}{OURS}Cookie: {}\r\n", opened.cookie);
    let answer = send(&server, "retry", &head(&opened), &body(&opened, "")).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let further = "href=\"/orders/retry?after=149&amp;all=in_doubt&amp;job=mail\"";
    assert!(answer.body.contains(further), "{}", answer.body);
    let opened = open(&server, &format!("{all}&after=149")).await;
    // The form is sealed with its place.
    for other in ["", "148"] {
        let answer = send(&server, "retry", &head(&opened), &body(&opened, other)).await;
        assert_eq!(answer.status, 403, "{other}\n{}", answer.body);
    }
    let answer = send(&server, "retry", &head(&opened), &body(&opened, "149")).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let given = source.given.lock().unwrap();
    let items = given.iter().map(|asked| asked.what.items());
    assert_eq!(
        items.collect::<Vec<_>>(),
        ["all that are in doubt", "all that are in doubt, behind 149"]
    );
}
