//! Lists: what is looked for, which state is chosen, in which order and which part is shown, by the server and of all of it.

use super::*;

/// The keys of the rows of a table, in their order; one that is empty says that there are none.
fn rows(page: &str, part: &str) -> Vec<String> {
    let begin = format!("data-part=\"{part}\"");
    let table = page.split(&begin).nth(1).unwrap_or_default();
    let table = table.split("</table>").next().unwrap_or_default();
    let rows = table.split("<tr data-key=\"").skip(1);
    let keys = rows.filter_map(|row| row.split('"').next());
    keys.map(str::to_owned).collect()
}

async fn shows(server: &Server, (path, part): (&str, &str), cases: &[(&str, &[&str])]) {
    for (query, keys) in cases {
        let page = server.get(&format!("{path}?{query}")).await.body;
        assert_eq!(rows(&page, part), *keys, "{path}?{query}\n{page}");
    }
}

#[tokio::test]
async fn replicas_are_chosen_by_name_host_and_state_and_put_in_order() {
    let mut fleet = fleet();
    let alpha = fleet.replicas[0].clone();
    let of = |id: &str, role, started, seen_ms_ago| ReplicaStatus {
        id: id.to_owned(),
        name: id.to_owned(),
        host: format!("host-of-{id}"),
        role,
        started: Timestamp::from_second(started).unwrap(),
        seen_ms_ago,
        ..alpha.clone()
    };
    fleet.replicas = vec![
        of("alpha", Role::Leader, 1_000, 100),
        of("beta", Role::Standby, 3_000, 9_000),
        of("gamma", Role::Observer, 2_000, 200),
    ];
    fleet.replicas[1].unfit = Some("its check fails".to_owned());
    fleet.replicas[2].draining = true;
    let server = serving(Fake::of(fleet)).await;
    shows(
        &server,
        ("/replicas", "replicas"),
        &[
            ("", &["alpha", "beta", "gamma"]),
            ("q=ALP", &["alpha"]),
            ("q=of-gamma", &["gamma"]),
            ("q=delta", &[""]),
            ("state=leader", &["alpha"]),
            ("state=standby", &["beta"]),
            ("state=observer", &["gamma"]),
            ("state=unfit", &["beta"]),
            ("state=draining", &["gamma"]),
            ("state=silent", &["beta"]),
            ("state=silent&q=gamma", &[""]),
            ("sort=name", &["alpha", "beta", "gamma"]),
            ("sort=-name", &["gamma", "beta", "alpha"]),
            ("sort=started", &["beta", "gamma", "alpha"]),
            ("sort=-started", &["alpha", "gamma", "beta"]),
            ("sort=seen", &["beta", "gamma", "alpha"]),
            ("sort=-seen", &["alpha", "gamma", "beta"]),
            ("size=2", &["alpha", "beta"]),
            ("size=2&page=2", &["gamma"]),
        ],
    )
    .await;
    let page = server.get("/replicas?tz=Europe%2FRome").await.body;
    for link in [
        "<a href=\"/?leader=beta&amp;tz=Europe%2FRome\">beta</a>",
        "<a href=\"/runs?replica=beta&amp;tz=Europe%2FRome\">its runs</a>",
        "1970-01-01 01:50:00",
    ] {
        assert!(page.contains(link), "{link}\n{page}");
    }
    let first = server.get("/").await.body;
    let alarm = "<b>3</b><strong class=\"bad\">1 not fit</strong></a>";
    assert!(first.contains(alarm), "{first}");
}

#[tokio::test]
async fn locks_are_chosen_by_key_holder_and_state_and_put_in_order() {
    let lock = |key: &str, owner: &str, remaining_ms, held, released| LockStatus {
        key: key.to_owned(),
        owner: owner.to_owned(),
        remaining_ms,
        held,
        released,
        ..LockStatus::default()
    };
    let server = serving(Fake {
        fleet: fleet(),
        known_locks: vec![
            lock("job/a", "x/alpha", Some(900), true, false),
            lock("job/b", "y/beta", None, false, true),
            lock("lock/c", "z/gamma", Some(100), false, false),
        ],
        ..Fake::default()
    })
    .await;
    shows(
        &server,
        ("/locks", "locks"),
        &[
            ("", &["job/a", "job/b", "lock/c"]),
            ("q=JOB/", &["job/a", "job/b"]),
            ("q=gamma", &["lock/c"]),
            ("state=held", &["job/a"]),
            ("state=released", &["job/b"]),
            ("state=left", &["lock/c"]),
            ("state=left&q=job", &[""]),
            ("sort=key", &["job/a", "job/b", "lock/c"]),
            ("sort=-key", &["lock/c", "job/b", "job/a"]),
            ("sort=remaining", &["lock/c", "job/a", "job/b"]),
            ("sort=-remaining", &["job/b", "job/a", "lock/c"]),
            ("size=1&page=3", &["lock/c"]),
        ],
    )
    .await;
    let page = server.get("/locks?state=left").await.body;
    let label = "<option value=\"left\" selected>not released</option>";
    assert!(page.contains(label), "{page}");
}

#[tokio::test]
async fn orders_are_chosen_by_text_and_kind_and_put_in_order() {
    let entry = |id: &str, at: i64, who: &str, order: &str, of: &str| AuditEntry {
        id: id.to_owned(),
        at: Timestamp::from_second(at).unwrap(),
        who: who.to_owned(),
        order: order.to_owned(),
        of: of.to_owned(),
        reason: format!("for {who}"),
        ..AuditEntry::default()
    };
    let server = serving(Fake {
        fleet: fleet(),
        // The latest first.
        orders: vec![
            entry("3", 300, "carol", "break", "job/a"),
            entry("2", 200, "ann", "park", "mail"),
            entry("1", 100, "bob", "pause_all", "jobs"),
        ],
        ..Fake::default()
    })
    .await;
    shows(
        &server,
        ("/audit", "orders"),
        &[
            ("", &["3", "2", "1"]),
            ("q=CAROL", &["3"]),
            ("q=for+bob", &["1"]),
            ("state=park", &["2"]),
            ("state=park&q=carol", &[""]),
            ("sort=when", &["3", "2", "1"]),
            ("sort=-when", &["1", "2", "3"]),
            ("sort=who", &["2", "1", "3"]),
            ("sort=-who", &["3", "1", "2"]),
            ("sort=order", &["3", "2", "1"]),
            ("sort=of", &["3", "1", "2"]),
            ("size=2&page=2", &["1"]),
        ],
    )
    .await;
    // In the words of the buttons.
    let page = server.get("/audit").await.body;
    for words in [
        "data-label=\"Order\">end by force<",
        "data-label=\"Order\">put aside<",
        "data-label=\"Order\">pause all jobs<",
        "<option value=\"resign\">hand over</option>",
    ] {
        assert!(page.contains(words), "{words}\n{page}");
    }
}

#[tokio::test]
async fn jobs_with_batches_are_chosen_by_name_and_state_and_put_in_order() {
    let job = |name: &str, backlog, dead, trouble: Option<&str>| JobStatus {
        name: name.to_owned(),
        coordination: "batch".to_owned(),
        backlog: Some(backlog),
        held: Some(HeldItems {
            dead,
            ..HeldItems::default()
        }),
        trouble: trouble.map(|why| JobTrouble {
            replicas: vec!["alpha".to_owned()],
            why: why.to_owned(),
        }),
        ..JobStatus::default()
    };
    let server = serving(Fake::of(FleetStatus {
        jobs: vec![
            job("cards", 0, 7, None),
            job("mail", 90, 0, None),
            job("post", 20, 1, Some("no such table")),
        ],
        ..fleet()
    }))
    .await;
    shows(
        &server,
        ("/batches", "batches"),
        &[
            ("", &["cards", "mail", "post"]),
            ("q=MA", &["mail"]),
            ("state=backlog", &["mail", "post"]),
            ("state=dead", &["cards", "post"]),
            ("state=parked", &[""]),
            ("state=trouble", &["post"]),
            ("sort=name", &["cards", "mail", "post"]),
            ("sort=-name", &["post", "mail", "cards"]),
            ("sort=backlog", &["mail", "post", "cards"]),
            ("sort=-backlog", &["cards", "post", "mail"]),
            ("sort=dead", &["cards", "post", "mail"]),
            ("size=1&page=2", &["mail"]),
        ],
    )
    .await;
}
