//! Pages: complete without a script, chosen by their address, no larger with more jobs.

use std::collections::BTreeSet;

use super::*;
use crate::{
    admin::{page::layout::VIEWS, rights::is_page},
    fleet::{
        JobTicks, TickStatus,
        status::{DefinitionStatus, ReplicaStatus},
        terms::TermRecord,
    },
};

const PAGES: [&str; 8] = [
    "/",
    "/jobs/report",
    "/runs",
    "/batches",
    "/replicas",
    "/nodes",
    "/locks",
    "/audit",
];

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

/// Three terms, of which leaders have told two, and a run that said something.
fn facts() -> JobFacts {
    let run = |seq: u64, token: u64, replica: &str, outcome: &str| RunRecord {
        run_id: format!("run-{seq}"),
        job: "report".into(),
        seq,
        attempt: 1,
        token: Some(Token(token)),
        replica_name: replica.into(),
        outcome: outcome.into(),
        detail: "a secret of a run".into(),
        tick: at(60 * i64::try_from(seq).unwrap()),
        started: Some(at(60 * i64::try_from(seq).unwrap() + 2)),
        ended: Some(at(60 * i64::try_from(seq).unwrap() + 12)),
        took_ms: Some(10_000),
        output: Some("<b>the answer is 42".into()),
        output_bytes: 19,
        params: vec!["a name of a parameter".into()],
        ..RunRecord::default()
    };
    let tick = |seconds, verdict: &str| TickStatus {
        at: at(seconds),
        local: "in its zone".into(),
        verdict: verdict.into(),
        sentences: vec!["It did not run: a secret of a run.".into()],
        oddity: Some("02:30 comes twice".into()),
    };
    JobFacts {
        runs: vec![
            run(1, 7, "alpha", "done"),
            run(2, 7, "alpha", "interrupted"),
            run(3, 9, "beta", "failed"),
        ],
        ticks: Some(Ok(JobTicks {
            words: "at 08:00, Monday to Friday".into(),
            zone: Some("Europe/Rome".into()),
            changes: vec!["The clocks of Europe/Rome go back soon.".into()],
            decided_upto: Some(at(180)),
            last: vec![tick(60, "misfire"), tick(120, "done")],
            next: vec![tick(9_000_000, "future")],
        })),
        shard: None,
        terms: vec![
            TermRecord {
                token: Token(5),
                name: "gamma".into(),
                began: at(0),
                ended: Some(at(40)),
                why: "unfit".into(),
                detail: "a secret of a run".into(),
                ..TermRecord::default()
            },
            TermRecord {
                token: Token(7),
                name: "alpha".into(),
                began: at(50),
                ..TermRecord::default()
            },
        ],
    }
}

async fn server() -> Server {
    serving(Fake {
        fleet: fleet(),
        facts: facts(),
        ..Fake::default()
    })
    .await
}

fn links(page: &str) -> Vec<String> {
    let found = page.split("href=\"").skip(1);
    let found = found.filter_map(|rest| rest.split('"').next());
    found.map(|link| link.replace("&amp;", "&")).collect()
}

#[tokio::test]
async fn every_link_of_a_page_is_answered() {
    let mut fleet = with_held();
    fleet.jobs[1].name = "<a&b \"c\"/d?e=f#g%41".into();
    fleet.jobs[2].running.push(RunStatus::default());
    fleet.jobs[2].paused = true;
    let server = serving(Fake {
        fleet,
        facts: facts(),
        ..Fake::default()
    })
    .await;
    let (mut seen, mut next) = (BTreeSet::new(), vec!["/?tz=Europe/Rome".to_owned()]);
    while let Some(path) = next.pop() {
        // The choices of a page are many; that each is answered is shown by some.
        if seen.len() > 150 || !seen.insert(path.clone()) {
            continue;
        }
        let answer = server.get(&path).await;
        assert_eq!(answer.status, 200, "{path}\n{}", answer.body);
        if answer.head.contains("text/html") {
            let found = links(&answer.body).into_iter();
            next.extend(found.filter(|link| link.starts_with('/')));
        }
    }
    assert!(seen.len() > 20, "{seen:?}");
    for path in [
        "/jobs/%3Ca%26b%20%22c%22%2Fd%3Fe%3Df%23g%2541?",
        "/orders/pause?",
    ] {
        assert!(
            seen.iter().any(|link| link.starts_with(path)),
            "{path}: {seen:?}"
        );
    }
}

#[tokio::test]
async fn a_page_is_complete_and_can_be_heard() {
    let server = server().await;
    for path in PAGES {
        let answer = server.get(path).await;
        let page = answer.body;
        assert_eq!(answer.status, 200, "{path}\n{page}");
        assert_eq!(
            page.matches("<table").count(),
            page.matches("<caption>").count(),
            "{path}: each table says what it is\n{page}"
        );
        assert_eq!(page.matches("<h1>").count(), 1, "{path}");
        for part in [
            "<html lang=\"en\"",
            "<a class=\"skip\" href=\"#main\">",
            "<main id=\"main\">",
            "<nav aria-label=\"Views\">",
            "role=\"status\" aria-live=\"polite\"",
            "<noscript><meta http-equiv=\"refresh\"",
            "<link rel=\"icon\" type=\"image/svg+xml\" href=\"/icon.svg?v=",
            "<script src=\"/app.js?v=",
            "\" type=\"module\"></script>",
        ] {
            assert!(page.contains(part), "{path}: {part}\n{page}");
        }
        assert_eq!(page.matches("<script").count(), 1, "{path}");
        for never in [
            " style=\"",
            " onclick=",
            "javascript:",
            "http://",
            "https://",
        ] {
            assert!(!page.contains(never), "{path}: {never}\n{page}");
        }
    }
    let icon = server.look("/icon.svg", "").await;
    assert_eq!(icon.status, 200);
    assert!(icon.head.contains("content-type: image/svg+xml"));
    let page = server.get("/").await.body;
    let (_, address) = page.split_once("<script src=\"").unwrap();
    let script = server.look(address.split('"').next().unwrap(), "").await;
    assert_eq!(script.status, 200);
    assert!(script.head.contains("content-type: text/javascript"));
    assert!(script.head.contains("immutable"), "{}", script.head);
    assert!(!script.head.contains("no-store"), "{}", script.head);
    for never in [
        "eval(",
        "insertAdjacentHTML",
        "outerHTML =",
        "document.write",
    ] {
        assert!(!script.body.contains(never), "{never}");
    }
    assert_eq!(
        script.body.matches(".innerHTML =").count(),
        script
            .body
            .matches(".innerHTML = policy.createHTML(")
            .count(),
        "markup goes through the policy"
    );
    assert!(script.body.len() < 12_000, "{}", script.body.len());
    let style = server.get("/style.css").await;
    assert!(style.body.len() < 12_000, "{}", style.body.len());
    // Tabs that cannot agree on one stream have none: a seventh connection would wait for ever.
    let body = &script.body;
    assert_eq!(body.matches("openStream()").count(), 2, "under the lock");
    assert!(body.contains("in window && navigator.locks) startStream();"));
}

#[tokio::test]
async fn what_was_chosen_survives_in_links_and_fields() {
    let server = server().await;
    let page = server
        .get("/?q=e&tz=Europe%2FRome&sort=-name&size=1")
        .await
        .body;
    for part in [
        "name=\"q\" maxlength=\"512\" value=\"e\"",
        "<option value=\"-name\" selected>name, the other way round",
        "<a rel=\"next\" href=\"/?page=2&amp;q=e&amp;size=1&amp;sort=-name&amp;tz=Europe%2FRome\">",
        "<a href=\"/runs?tz=Europe%2FRome\"",
        "<input type=\"hidden\" name=\"size\" value=\"1\">",
        "Times in Europe/Rome.",
        " +0",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    let second = server.get("/?page=2&q=e&size=1&sort=-name").await.body;
    assert!(second.contains("rel=\"prev\""), "{second}");
    assert!(second.contains("2–2 of"), "{second}");
    let found = server.get("/?q=ORPH").await.body;
    assert!(found.contains("/jobs/orphan") && !found.contains("/jobs/unseen"));
    let found = server.get("/?state=unled").await.body;
    assert!(found.contains("/jobs/orphan") && !found.contains("/jobs/report"));
}

#[tokio::test]
async fn hostile_parameters_are_refused_and_named() {
    let server = server().await;
    let long = "x".repeat(513);
    for path in PAGES {
        for (name, said) in [
            ("page", "0"),
            ("page", "-1"),
            ("page", "99999999999999999999999"),
            ("size", "101"),
            ("tz", "..%2F..%2Fetc%2Fpasswd"),
            ("q", long.as_str()),
            ("q", "a%00b"),
            ("state", "%3Cscript%3E"),
            ("sort", "%27%3B--"),
        ] {
            let answer = server.get(&format!("{path}?{name}={said}")).await;
            assert_eq!(answer.status, 400, "{path} {name}\n{}", answer.body);
            assert!(
                answer.body.contains(&format!("{name}: ")),
                "{}",
                answer.body
            );
            assert!(!answer.body.contains("<script>"), "{}", answer.body);
        }
        // What is not known changes nothing, and is not repeated.
        let answer = server.get(&format!("{path}?evil=%22%3E%3Cb%3E")).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(!answer.body.contains("evil"), "{path}\n{}", answer.body);
    }
    let none = server.get("/jobs/reprot").await;
    assert_eq!(none.status, 404, "{}", none.body);
}

#[tokio::test]
async fn ten_thousand_jobs_make_no_larger_page_than_a_hundred() {
    let of = async |count: usize| {
        let job = |n: usize| JobStatus {
            name: format!("job-{n:05}"),
            coordination: "leader".into(),
            leader: Some(LeaderStatus::default()),
            leader_known: true,
            backlog: Some(1),
            last_outcome: Some("done".into()),
            running: vec![RunStatus {
                run_id: format!("r-{n:05}"),
                ..RunStatus::default()
            }],
            ..JobStatus::default()
        };
        let server = serving(Fake {
            fleet: FleetStatus {
                jobs: (0..count).map(job).collect(),
                ..FleetStatus::default()
            },
            ..Fake::default()
        })
        .await;
        let mut sizes = Vec::new();
        for path in ["/", "/runs", "/batches"] {
            let page = server.get(path).await.body;
            sizes.push((page.matches("<tr data-key=").count(), page.len()));
        }
        sizes
    };
    let (few, many) = (of(200).await, of(10_000).await);
    for ((rows, size), (more, larger)) in few.into_iter().zip(many) {
        assert_eq!(rows, more);
        assert!(rows <= 250, "{rows}");
        assert!(larger < size + 1_000, "{size} {larger}");
    }
}

#[tokio::test]
async fn a_job_shows_its_schedule_its_ticks_and_who_led_it() {
    let server = server().await;
    let page = server.get("/jobs/report").await.body;
    for part in [
        "Runs at 08:00, Monday to Friday (Europe/Rome).",
        "Notices of it go to ops, &lt;pager&gt;.",
        "<dt>misfire</dt><dd>&lt;once&gt;</dd>",
        "<small>token <a href=\"/locks?key=job%2Freport\">41</a>",
        "The clocks of Europe/Rome go back soon.",
        "02:30 comes twice",
        "<span class=\"warn\">misfire</span>",
        "<figcaption>The last 2 ticks and the next 1, in their order: 1 done, 0 in trouble</figcaption>",
        "UTC: misfire</title>",
        "UTC: to come</title>",
        "<rect class=\"edge\"",
        "It did not run: a secret of a run.",
        "to come",
        "<figcaption>Durations of the last 3 runs, 10 s at most</figcaption>",
        "<rect class=\"bad\"",
        "its last run was interrupted",
        "leads now",
        "<td data-label=\"Replica\">gamma<td",
        "<span class=\"bad\">its replica was not fit to go on</span><small>a secret of a run</small>",
        "<title>no leader for 10 s: its replica was not fit to go on</title>",
        "<td data-label=\"Without a leader before\">10 s<td",
        "at the latest: seen by its runs",
        "data-label=\"Late\">2.0 s",
        "<div class=\"trouble\"><p><strong>failed</strong> <time",
        "2 runs in a row, for <time",
        "<a href=\"/jobs/report?run=run-3\">this run</a></p><p>a secret of a run</p>",
        "<a href=\"/jobs/report?run=run-2\">attempt 1</a> on alpha, 10 s, interrupted",
        "<details class=\"folds\" open><summary><h2 id=\"title-last\">Last ticks</h2></summary>",
        "<a href=\"/jobs/report?run=run-3\">",
        "<a href=\"/orders/trigger?job=report\">run now</a>",
        "<a href=\"/orders/resign?job=report\">hand over</a>",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    let run = server.get("/jobs/report?run=run-3").await.body;
    assert!(run.contains("&lt;b&gt;the answer is 42</pre>"), "{run}");
    // What one run has left is not read again every five seconds, but what one is doing.
    assert!(run.contains("data-live=\"off\""), "{run}");
    let mut under_way = facts();
    under_way.runs[1].outcome = "running".to_owned();
    let live = serving(Fake {
        fleet: fleet(),
        facts: under_way,
        ..Fake::default()
    });
    let run = live.await.get("/jobs/report?run=run-2").await.body;
    assert!(
        run.contains("data-live=\"poll\"") && run.contains("data-piece=\"run\""),
        "{run}"
    );
    let failed = server.get("/jobs/report?state=failed").await.body;
    // Its ticks name others.
    let failed = failed.split("data-part=\"runs\"").nth(1).unwrap();
    let failed = failed.split("</table>").next().unwrap();
    assert!(failed.contains("run=run-3") && !failed.contains("run=run-1"));
    // A store that does not answer takes nothing from what the fleet tells.
    let blind = serving(Fake {
        fleet: fleet(),
        no_locks: true,
        ..Fake::default()
    });
    let page = blind.await.get("/jobs/report").await.body;
    assert!(
        page.contains("no majority") && page.contains("<b>alpha</b>"),
        "{page}"
    );
}

#[tokio::test]
async fn without_the_token_no_page_quotes_a_run() {
    let server = server().await;
    for path in ["/jobs/report", "/jobs/report?run=run-3", "/runs?job=report"] {
        let (shut, open) = (server.look(path, "").await, server.get(path).await);
        assert_eq!(shut.status, 200, "{path}");
        for secret in [
            "a secret of a run",
            "the answer is 42",
            "a name of a parameter",
        ] {
            assert!(!shut.body.contains(secret), "{path}\n{}", shut.body);
        }
        assert!(
            open.body.contains("a secret of a run"),
            "{path}\n{}",
            open.body
        );
        assert!(shut.body.contains("sign in to see why"), "{path}");
    }
    assert_eq!(server.look("/audit", "").await.status, 401);
    assert_eq!(
        server.look("/orders/pause?job=report", "").await.status,
        401
    );
}

#[tokio::test]
async fn the_runs_of_all_jobs_are_put_in_order_and_shown_page_by_page() {
    let runs = |page: &str| {
        let table = page.split("data-part=\"runs\"").nth(1).unwrap_or_default();
        let table = table.split("</table>").next().unwrap_or_default();
        let names = table.split("<a href=\"/runs?job=").skip(1);
        let names = names.filter_map(|rest| rest.split('"').next());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let server = server().await;
    let latest_first = server.get("/runs").await.body;
    assert_eq!(runs(&latest_first), ["report", "mail"]);
    assert!(!latest_first.contains("class=\"pager\""), "{latest_first}");
    for (order, names) in [
        ("started", ["report", "mail"]),
        ("-started", ["mail", "report"]),
        ("took", ["mail", "report"]),
        ("-took", ["report", "mail"]),
    ] {
        let page = server.get(&format!("/runs?sort={order}")).await.body;
        assert_eq!(runs(&page), names, "{order}");
    }
    let first = server.get("/runs?size=1").await.body;
    assert_eq!(runs(&first), ["report"]);
    assert!(first.contains("1–1 of at least 2"), "{first}");
    let further = "<a rel=\"next\" href=\"/runs?page=2&amp;size=1\">";
    assert!(first.contains(further), "{first}");
    assert!(first.contains("Last run of each job"), "{first}");
    let second = server.get("/runs?page=2&size=1").await.body;
    assert_eq!(runs(&second), ["mail"]);
    assert!(second.contains("2–2 of 2") && !second.contains("rel=\"next\""));
    assert!(!second.contains("Last run of each job"), "{second}");
    let longest = server.get("/runs?size=1&sort=took").await.body;
    assert_eq!(runs(&longest), ["mail"], "the longest of all");
    assert!(longest.contains("1–1 of 2"), "{longest}");
}

#[tokio::test]
async fn the_last_runs_of_all_jobs_are_chosen_by_job_outcome_and_replica() {
    let server = server().await;
    let each = "Last run of each job";
    let job = |name: &str| format!("<a href=\"/runs?job={name}\">{name}</a>");
    let shown = |page: &str| {
        let table = page.split("data-part=\"runs\"").nth(1).unwrap_or_default();
        let table = table
            .split("</table>")
            .next()
            .unwrap_or_default()
            .to_owned();
        (table.contains(&job("report")), table.contains(&job("mail")))
    };
    let all = server.get("/runs").await.body;
    assert_eq!(shown(&all), (true, true), "{all}");
    assert!(all.contains(each) && all.contains("7 jobs that may have such runs were not read"));
    let of_replica = server.get("/runs?replica=alpha").await.body;
    assert_eq!(shown(&of_replica), (true, false), "{of_replica}");
    assert!(!of_replica.contains(each), "{of_replica}");
    let done = server.get("/runs?state=done").await.body;
    assert_eq!(shown(&done), (false, true), "{done}");
    let of_job = server.get("/runs?q=rep").await.body;
    assert_eq!(shown(&of_job), (true, false), "{of_job}");
    let shut = server.look("/runs", "").await.body;
    assert!(!shut.contains("a secret of a run") && shut.contains("sign in to see why"));
    let blind = serving(Fake {
        fleet: fleet(),
        no_locks: true,
        ..Fake::default()
    });
    let page = blind.await.get("/runs").await.body;
    assert!(
        page.contains("no majority") && page.contains(each),
        "{page}"
    );
}

#[tokio::test]
async fn more_orders_that_stand_than_are_shown_are_counted() {
    for (count, note) in [
        (100, "by whichever way it was asked for"),
        (101, "the first 100 of 101, by whichever way"),
    ] {
        let one = |n: i64| InForce {
            at: at(n),
            by: "a person".into(),
            order: "trigger",
            of: "report".into(),
            reason: String::new(),
            id: format!("t-{n}"),
        };
        let server = serving(Fake {
            in_force: (0..count).map(one).collect(),
            ..Fake::default()
        })
        .await;
        let page = server.get("/audit").await.body;
        assert!(page.contains(note), "{page}");
    }
}

#[tokio::test]
async fn a_page_can_be_linked_to_from_elsewhere_and_a_form_cannot() {
    let server = server().await;
    let link =
        "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n";
    for path in PAGES {
        let answer = server.look(path, &format!("{}{link}", said())).await;
        assert_eq!(answer.status, 200, "{path}");
    }
    for path in [
        "/orders/pause?job=report",
        "/events?path=/",
        "/api/v1/fleet",
    ] {
        let answer = server.look(path, &format!("{}{link}", said())).await;
        assert_eq!(answer.status, 403, "{path}");
    }
}

#[test]
fn every_view_is_a_page_that_a_link_may_lead_to() {
    let routes = crate::admin::routes::routes();
    for (path, name) in VIEWS {
        assert!(routes.iter().any(|route| route.path == path), "{name}");
        assert!(is_page(path), "{name}");
    }
}

#[tokio::test]
async fn a_replica_that_defines_jobs_otherwise_than_most_is_marked() {
    let definition = |definition: &str, replicas: &[&str], leads| DefinitionStatus {
        definition: definition.to_owned(),
        replicas: replicas.iter().map(|name| (*name).to_owned()).collect(),
        leads,
        ..DefinitionStatus::default()
    };
    let page = async |definitions: Vec<DefinitionStatus>, jobs: usize| {
        let mut fleet = fleet();
        let alpha = fleet.replicas[0].clone();
        let job = fleet.jobs.remove(0);
        fleet.jobs = (0..jobs)
            .map(|n| JobStatus {
                name: format!("job{n}"),
                definitions: definitions.clone(),
                ..job.clone()
            })
            .collect();
        fleet.replicas = ["alpha", "beta", "gamma"]
            .map(|name| ReplicaStatus {
                id: name.to_owned(),
                name: name.to_owned(),
                ..alpha.clone()
            })
            .into();
        let fake = Fake {
            fleet,
            ..Fake::default()
        };
        serving(fake).await.get("/replicas").await.body
    };
    let marks = |page: &str| -> Vec<String> {
        let rows = page.split("<tr data-key=\"").skip(1);
        let odd = rows.filter(|row| row.contains("defines otherwise than most"));
        odd.map(|row| row.split('"').next().unwrap().to_owned())
            .collect()
    };
    assert_eq!(marks(&page(Vec::new(), 1).await), [""; 0]);
    let two = vec![
        definition("new", &["beta"], true),
        definition("old", &["alpha", "gamma"], false),
    ];
    let odd = page(two, 5).await;
    assert_eq!(marks(&odd), ["beta"], "the others are more");
    let told = "<a href=\"/jobs/job0\">job0</a>, <a href=\"/jobs/job1\">job1</a>, \
                <a href=\"/jobs/job2\">job2</a> and 2 more jobs</small>";
    assert!(odd.contains(told), "{odd}");
    // Of as many on both sides the one that leads counts, then the one that comes first.
    for (leads, expected) in [(true, "beta"), (false, "alpha")] {
        let two = vec![
            definition("new", &["beta"], false),
            definition("old", &["alpha"], leads),
        ];
        assert_eq!(marks(&page(two, 1).await), [expected]);
    }
}

#[tokio::test]
async fn the_page_of_a_run_leads_to_its_trace() {
    let of = async |trace_id: &str, trace_link| {
        let mut facts = facts();
        facts.runs[2].trace_id = Some(trace_id.to_owned());
        let server = serving(Fake {
            fleet: fleet(),
            facts,
            trace_link,
            ..Fake::default()
        });
        server.await.get("/jobs/report?run=run-3").await
    };
    let id = "0af7651916cd43dd8448eb211c80319c";
    let page = of(id, None).await.body;
    assert!(page.contains(&format!("<dd>{id}</dd>")), "{page}");
    let link = "https://tempo.example.org/a?x=1&id={trace_id}";
    let answer = of(id, Some(link)).await;
    let leads = format!(
        "<a rel=\"noreferrer\" href=\"https://tempo.example.org/a?x=1&amp;id={id}\">{id}</a>"
    );
    assert!(answer.body.contains(&leads), "{}", answer.body);
    let policy = "content-security-policy: default-src 'none'; script-src 'self';";
    assert!(answer.head.contains(policy), "{}", answer.head);
    // Whatever stands in the store is no part of an address.
    for hostile in [
        "../../drop",
        "\"><script>",
        "0AF7651916CD43DD8448EB211C80319C",
        "",
    ] {
        let page = of(hostile, Some(link)).await.body;
        assert!(!page.contains("tempo.example.org"), "{hostile}: {page}");
        assert!(!page.contains("<dt>Trace</dt>"), "{hostile}: {page}");
    }
}

#[tokio::test]
async fn a_run_in_flight_leads_to_its_page() {
    let mut fleet = fleet();
    let run = |run_id: &str, attempt| RunStatus {
        run_id: run_id.to_owned(),
        attempt,
        batch: Some(format!("b{attempt}")),
        ..RunStatus::default()
    };
    // One of a version that does not tell its id.
    fleet.jobs[0].running = vec![run("run/1", 1), run("run/2", 2), run("", 3)];
    let name = fleet.jobs[0].name.clone();
    let server = serving(Fake::of(fleet)).await;
    let page = server.get("/").await.body;
    for part in [
        format!("<a href=\"/jobs/{name}?run=run%2F1\">batch b1</a><td"),
        format!("<a href=\"/jobs/{name}?run=run%2F2\">batch b2</a><small>attempt 2</small>"),
        "data-label=\"Run\">batch b3<small>attempt 3</small>".to_owned(),
    ] {
        assert!(page.contains(&part), "{part}\n{page}");
    }
}

#[tokio::test]
async fn runs_are_chosen_by_when_they_began_in_the_zone_of_the_page() {
    let server = server().await;
    // They began at 22:14:22, 22:15:22 and 22:16:22 UTC.
    for (query, count) in [
        ("since=2023-11-14T22:14:00Z", 3),
        ("since=2023-11-14+22:15&until=2023-11-14+22:16", 1),
        ("since=2023-11-14+23:16&tz=Europe%2FRome", 1),
        ("until=2023-11-14", 0),
    ] {
        let page = server.get(&format!("/runs?job=report&{query}")).await.body;
        let shown = page.matches("<tr data-key=\"report/").count();
        assert_eq!(shown, count, "{query}\n{page}");
    }
    let page = server.get("/runs?since=2023-11-14").await.body;
    assert!(!page.contains("Last run of each job"), "{page}");
    let answer = server.get("/runs?since=yesterday").await;
    assert_eq!(answer.status, 400);
    assert!(answer.body.contains("2026-05-04 08:00"), "{}", answer.body);
}

#[tokio::test]
async fn what_waits_for_a_person_and_how_many_nodes_may_fail_is_said() {
    let mut fleet = fleet();
    let mail = fleet.jobs.iter_mut().find(|job| job.name == "mail");
    mail.unwrap().held = Some(
        serde_json::from_value(serde_json::json!({"dead": 6, "in_doubt": 2, "parked": 1})).unwrap(),
    );
    let server = serving(Fake {
        fleet,
        ..Fake::default()
    })
    .await;
    let page = server.get("/batches?state=dead").await.body;
    for part in [
        "data-label=\"Dead\"><strong class=\"bad\"><a href=\"/batches?job=mail&amp;state=dead\">6</a></strong>",
        "data-label=\"In doubt\"><strong class=\"bad\"><a href=\"/batches?job=mail&amp;state=doubt\">2</a></strong>",
        "data-label=\"Rate\">2.0/s",
        "notify dead JOB",
        "data-live=\"stream\"",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    let page = server.get("/nodes").await.body;
    assert!(page.contains("A lock needs 2 of 3 nodes: <strong class=\"warn\">none more may fail"));
    let drawn =
        "<figcaption>2 of 3 nodes vote, a lock needs 2: those to the left of the edge</figcaption>";
    assert!(page.contains(drawn), "{page}");
    let page = server.get("/locks?key=job%2Freport").await.body;
    assert!(
        page.contains("/orders/break?key=job%2Freport&amp;owner=its%20value"),
        "{page}"
    );
}

/// A fleet whose job `mail` has items that wait for a person.
fn with_held() -> FleetStatus {
    let mut fleet = fleet();
    let mail = fleet.jobs.iter_mut().find(|job| job.name == "mail");
    mail.unwrap().held = Some(
        serde_json::from_value(serde_json::json!({"dead": 6, "in_doubt": 2, "parked": 1})).unwrap(),
    );
    fleet
}

#[tokio::test]
async fn items_are_shown_with_their_reasons_and_can_be_sent_again() {
    let server = serving(Fake {
        fleet: with_held(),
        ..Fake::default()
    })
    .await;
    let page = server.get("/batches?job=mail").await.body;
    for part in [
        "<tr data-key=\"17\"><td data-label=\"Item\">17",
        "a secret of a &lt;b&gt;receiver<small>db/letters/17</small>",
        "<span class=\"bad\">in doubt</span>",
        ">5 min ago</time>",
        "<a href=\"/orders/retry?id=17&amp;job=mail\">send again</a>",
        "<a href=\"/orders/park?id=17&amp;job=mail\">put aside</a>",
        "<a href=\"/orders/discard?id=17&amp;job=mail\">discard</a>",
        "<a href=\"/orders/retry?all=dead&amp;job=mail\">send all 6 again that are dead</a>",
        "<a href=\"/orders/discard?all=dead&amp;job=mail\">discard all 6 that are dead</a>",
        "<a rel=\"next\" href=\"/batches?after=a%20b%2Fc%3Fd%3De%26f&amp;job=mail\">next page</a>",
        // What the database of a job tells is asked for, and not followed.
        "data-live=\"poll\"",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    assert!(
        !page.contains("data-key=\"later\""),
        "it goes by itself: {page}"
    );
    // One that no address can name is shown, and the command can name it.
    assert!(page.contains("data-key=\"#1\">"), "{page}");
    assert_eq!(page.matches("put aside</a>").count(), 1, "{page}");
    let retry = server.get("/batches?job=mail&state=retry").await.body;
    assert!(retry.contains("data-key=\"later\""), "{retry}");
    assert!(!retry.contains("data-key=\"17\""), "{retry}");
    assert!(!page.contains("done with"), "it waits for nothing: {page}");
    let discarded = server.get("/batches?job=mail&state=discarded").await.body;
    for part in [
        "<a href=\"/orders/retry?id=done%20with&amp;job=mail\">send again</a></small>",
        "<span class=\"soft\">discarded</span>",
    ] {
        assert!(discarded.contains(part), "{part}\n{discarded}");
    }
    let none = server.get("/batches?job=report").await.body;
    assert!(none.contains("report has no items"), "{none}");
    let blind = serving(Fake {
        fleet: with_held(),
        no_locks: true,
        ..Fake::default()
    });
    let page = blind.await.get("/batches?job=mail").await.body;
    assert!(
        page.contains("no database at") && page.contains(">6</a>"),
        "{page}"
    );
}

#[tokio::test]
async fn items_are_shown_with_the_token_alone_and_without_orders_where_none_are_taken() {
    let server = serving(Fake {
        fleet: with_held(),
        read_only: true,
        ..Fake::default()
    })
    .await;
    let (shut, open) = (
        server.look("/batches?job=mail", "").await.body,
        server.get("/batches?job=mail").await.body,
    );
    assert!(!shut.contains("a secret of a"), "{shut}");
    assert!(shut.contains("Sign in to see its items"), "{shut}");
    assert!(open.contains("a secret of a"), "{open}");
    assert!(!open.contains("href=\"/orders/"), "{open}");
    let list = server.look("/api/v1/jobs/mail/items", "").await;
    assert_eq!(list.status, 401, "{}", list.body);
}

#[tokio::test]
async fn what_is_refused_is_told_to_a_browser_as_a_page_and_to_others_as_a_problem() {
    let server = server().await;
    let browser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";
    for (path, more, status, told) in [
        (
            "/jobs/%3Cb%3E",
            said(),
            404,
            "there is no job &quot;&lt;b&gt;&quot;",
        ),
        ("/nowhere", said(), 404, "there is no such page"),
        ("/?state=burning", said(), 400, "state: one of "),
        ("/audit", String::new(), 401, "Any name will do"),
        (
            "/orders/pause?job=report",
            String::new(),
            401,
            "Any name will do",
        ),
    ] {
        let page = server.look(path, &format!("{more}{browser}")).await;
        assert_eq!(page.status, status, "{path}\n{}", page.body);
        for part in [
            "content-type: text/html; charset=utf-8\r\n",
            "vary: accept\r\n",
            "content-security-policy: default-src 'none';",
            "cache-control: no-store",
        ] {
            assert!(page.head.contains(part), "{path}: {part}\n{}", page.head);
        }
        assert!(!page.head.contains("problem+json"), "{}", page.head);
        assert_eq!(
            page.head.matches("\ncontent-type").count(),
            1,
            "{}",
            page.head
        );
        for part in [
            told,
            "<a href=\"/\">to the fleet</a>",
            "<link rel=\"stylesheet\"",
        ] {
            assert!(page.body.contains(part), "{path}: {part}\n{}", page.body);
        }
        assert!(
            !page.body.contains("<b>") && !page.body.contains("alpha"),
            "{}",
            page.body
        );
        // Of the same kind for all others, and with the same headers.
        let asks = |head: &str| head.matches("www-authenticate: ").count();
        for accept in ["", "Accept: */*\r\n", "Accept: application/json\r\n"] {
            let problem = server.look(path, &format!("{more}{accept}")).await;
            assert_eq!(problem.status, status, "{path}");
            let kind = "content-type: application/problem+json";
            assert!(problem.head.contains(kind), "{}", problem.head);
            assert_eq!(asks(&problem.head), asks(&page.head), "{path}");
            assert_eq!(asks(&problem.head), if status == 401 { 2 } else { 0 });
        }
    }
    let asked = format!("{}{browser}", said());
    let api = server.look("/api/v1/jobs/none", &asked).await;
    assert_eq!(api.status, 404);
    let kind = "content-type: application/problem+json";
    assert!(api.head.contains(kind), "{}", api.head);
}

#[tokio::test]
async fn jobs_are_counted_by_state_and_each_number_leads_to_them() {
    let server = server().await;
    let page = server.get("/?q=e&tz=Europe%2FRome").await.body;
    for part in [
        "<a href=\"/?q=e&amp;tz=Europe%2FRome\" aria-current=\"true\">All <b>",
        "<a class=\"bad\" href=\"/?q=e&amp;state=unled&amp;tz=Europe%2FRome\">No leader <b>1</b></a>",
        "<a class=\"zero\" href=\"/?q=e&amp;state=failing&amp;tz=Europe%2FRome\">Failing <b>0</b></a>",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    let page = server.get("/?state=unled").await.body;
    let chosen =
        "<a class=\"bad\" href=\"/?state=unled\" aria-current=\"true\">No leader <b>1</b></a>";
    assert!(page.contains(chosen), "{page}");
    assert_eq!(page.matches("aria-current=\"true\"").count(), 1, "{page}");
}

#[tokio::test]
async fn what_all_attempts_of_a_tick_said_is_said_once() {
    let known = async |details: [&str; 3]| {
        let mut facts = facts();
        let run = facts.runs.remove(2);
        facts.runs = (1_u32..)
            .zip(details)
            .map(|(attempt, detail)| RunRecord {
                run_id: format!("run-{attempt}"),
                attempt,
                detail: detail.into(),
                tick: at(120),
                ..run.clone()
            })
            .collect();
        let server = serving(Fake {
            fleet: fleet(),
            facts,
            ..Fake::default()
        })
        .await;
        let page = server.get("/jobs/report").await.body;
        let table = page.split("data-part=\"last\"").nth(1).unwrap();
        table.split("</table>").next().unwrap().to_owned()
    };
    let alike = known(["it broke"; 3]).await;
    assert_eq!(alike.matches("it broke").count(), 1, "{alike}");
    assert!(alike.contains("<small>each: it broke</small>"), "{alike}");
    assert_eq!(alike.matches("attempt ").count(), 3, "{alike}");
    let other = known(["it broke", "", "it broke"]).await;
    assert!(other.contains("<small>it broke</small>"), "{other}");
    let several = known(["it broke", "no way", "it broke"]).await;
    for part in ["<small>it broke</small>", "<small>no way</small>"] {
        assert_eq!(several.matches(part).count(), 1, "{several}");
    }
}

/// With the time before each, which a person finds where it is pointed at.
#[tokio::test]
async fn the_attempts_of_a_tick_are_drawn_on_one_line() {
    let mut facts = facts();
    let run = facts.runs.remove(2);
    let attempt = |attempt: u32, outcome: &str, from: i64, to: i64| RunRecord {
        run_id: format!("run-{attempt}"),
        attempt,
        outcome: outcome.into(),
        tick: at(120),
        started: Some(at(120 + from)),
        ended: Some(at(120 + to)),
        ..run.clone()
    };
    // Replicas tell of them in any order.
    facts.runs = vec![attempt(2, "done", 14, 20), attempt(1, "failed", 2, 4)];
    let server = serving(Fake {
        fleet: fleet(),
        facts,
        ..Fake::default()
    })
    .await;
    let page = server.get("/jobs/report?run=run-2").await.body;
    let figure = page.split("<figure class=\"line\">").nth(1).unwrap();
    let figure = figure.split("</figure>").next().unwrap();
    for part in [
        "<figcaption>2 attempts in 20 s since it was due, and the time before each</figcaption>",
        "<rect class=\"notch\" x=\"0\" y=\"0\" height=\"100\" width=\"100\"><title>waited 2.0 s</title>",
        "<rect class=\"bad\" x=\"100\" y=\"0\" height=\"100\" width=\"100\"><title>attempt 1: failed, 2.0 s</title>",
        "<rect class=\"notch\" x=\"200\" y=\"0\" height=\"100\" width=\"500\"><title>waited 10 s</title>",
        "<rect class=\"good\" x=\"700\" y=\"0\" height=\"100\" width=\"300\"><title>attempt 2: done, 6.0 s</title>",
    ] {
        assert!(figure.contains(part), "{part}\n{figure}");
    }
}
