//! Records, documents, and looking at them.

use super::*;
use crate::node::{Doc, Kind::Lock, Life, sum_of};

pub(crate) async fn a_record_is_handed_to_the_successor(lab: Lab) {
    let node = lab.client().await;
    let (grant, record) = granted(&*node, take("k", "a")).await;
    assert_eq!(record, Record::default());
    assert_eq!(
        ask(&*node, write("k", "a", (grant.0, 1), "ledger")).await,
        Answer::Done
    );
    let left = Record {
        version: Version {
            token: grant,
            rev: 1,
        },
        body: "ledger".to_owned(),
    };
    assert_eq!(view(&*node, "k").await.record, left);
    let seen = refused(&*node, take("k", "b")).await.record;
    assert_eq!((seen.version, seen.body.as_str()), (left.version, ""));
    ask(&*node, release(Lock, "k", "a")).await;
    assert_eq!(granted(&*node, take_for("k", "b", SHORT)).await.1, left);
    wait_until_free(&*node, "k").await;
    assert_eq!(granted(&*node, take("k", "c")).await.1, left);
}

pub(crate) async fn writes_are_ordered_by_version(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take("k", "a")).await;
    let t = grant.0;
    assert_eq!(
        ask(&*node, write("k", "a", (t, 9), "nine")).await,
        Answer::Done
    );
    // Ten is more than nine: versions are numbers.
    assert_eq!(
        ask(&*node, write("k", "a", (t, 10), "ten")).await,
        Answer::Done
    );
    assert_eq!(
        ask(&*node, write("k", "a", (t, 10), "ten")).await,
        Answer::Done
    );
    refused(&*node, write("k", "a", (t, 10), "another ten")).await;
    refused(&*node, write("k", "a", (t, 9), "nine")).await;
    // The token comes first.
    assert_eq!(
        ask(&*node, write("k", "a", (t + 1, 1), "new")).await,
        Answer::Done
    );
    let seen = refused(&*node, write("k", "a", (t, 11), "eleven")).await;
    assert_eq!(view(&*node, "k").await.record.body, "new");
    assert_eq!(
        seen.record.version,
        Version {
            token: Token(t + 1),
            rev: 1
        }
    );
}

pub(crate) async fn a_write_before_its_time_is_too_early(lab: Lab) {
    let node = lab.client().await;
    let reply = ask_all(&*node, vec![take("k", "a")]).await;
    let timed = |rev, by| match write("k", "a", (1_000, rev), "tick") {
        Op::Write {
            key,
            owner,
            version,
            body,
            ..
        } => Op::Write {
            key,
            owner,
            version,
            body,
            not_before: Some(reply.wall_ms + by),
            expiry: Expiry::Server,
        },
        other => other,
    };
    let answer = ask(&*node, timed(1, 3_600_000)).await;
    let Answer::TooEarly { wall_ms } = answer else {
        panic!("{answer:?}")
    };
    assert!((wall_ms - reply.wall_ms).abs() < 60_000);
    assert_eq!(view(&*node, "k").await.record, Record::default());
    assert_eq!(ask(&*node, timed(1, -1)).await, Answer::Done);
}

pub(crate) async fn only_the_holder_writes_n6(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take_for("k", "a", SHORT)).await;
    wait_until_free(&*node, "k").await;
    refused(&*node, write("k", "a", (grant.0, 1), "expired")).await;
    let (grant, _) = granted(&*node, take("k", "b")).await;
    refused(&*node, write("k", "a", (grant.0 + 1, 1), "taken")).await;
    ask(&*node, release(Lock, "k", "b")).await;
    refused(&*node, write("k", "b", (grant.0, 1), "released")).await;
    assert_eq!(view(&*node, "k").await.record, Record::default());
}

pub(crate) async fn the_largest_revision_of_a_document_wins(lab: Lab) {
    let (first, second) = (lab.client().await, lab.client().await);
    assert_eq!(ask(&*first, put("d", 9, LONG, "nine")).await, Answer::Done);
    assert_eq!(ask(&*second, put("d", 10, LONG, "ten")).await, Answer::Done);
    assert_eq!(
        ask(&*first, put("d", 9, LONG, "nine again")).await,
        Answer::Done
    );
    assert_eq!(
        ask(&*first, put("d", 10, LONG, "ten again")).await,
        Answer::Done
    );
    assert_eq!(docs(&*first, "").await, [doc("d", 10, "ten")]);
}

pub(crate) async fn a_document_ends_after_its_lifetime_or_when_removed(lab: Lab) {
    let node = lab.client().await;
    ask_all(
        &*node,
        vec![put("short", 5, SHORT, ""), put("long", 1, LONG, "")],
    )
    .await;
    granted(&*node, take_for("clock", "x", SHORT * 2)).await;
    wait_until_free(&*node, "clock").await;
    assert_eq!(docs(&*node, "").await, [doc("long", 1, "")]);
    // A document that has ended leaves no revision behind.
    ask(&*node, put("short", 1, LONG, "new")).await;
    assert_eq!(one_doc(&*node, "short").await, [doc("short", 1, "new")]);
    for name in ["long", "long", "never there"] {
        assert_eq!(
            ask(
                &*node,
                Op::RemoveDoc {
                    name: name.to_owned()
                }
            )
            .await,
            Answer::Done
        );
    }
    assert_eq!(docs(&*node, "").await, [doc("short", 1, "new")]);
}

pub(crate) async fn documents_lie_in_directories(lab: Lab) {
    let node = lab.client().await;
    let names = ["presence/a", "presence/b", "presence/b/c", "pause/job", "p"];
    ask_all(&*node, names.map(|name| put(name, 1, LONG, name)).to_vec()).await;
    let of = |name: &str| doc(name, 1, name);
    assert_eq!(
        docs(&*node, "presence/").await,
        [of("presence/a"), of("presence/b")]
    );
    assert_eq!(docs(&*node, "presence/b/").await, [of("presence/b/c")]);
    assert_eq!(docs(&*node, "").await, [of("p")]);
    // Not directories, whatever begins so.
    for other in ["pres", "presence", "presence/b", "/", "x/"] {
        assert_eq!(docs(&*node, other).await, [], "{other}");
    }
    let remove = Op::RemoveDoc {
        name: "presence/b".to_owned(),
    };
    ask(&*node, remove).await;
    assert_eq!(docs(&*node, "presence/").await, [of("presence/a")]);
    assert_eq!(docs(&*node, "presence/b/").await, [of("presence/b/c")]);
}

pub(crate) async fn the_names_of_a_directory_are_listed_without_what_they_hold(lab: Lab) {
    let node = lab.client().await;
    let names = ["a/c", "a/b", "a/a", "a/b/c", "b/a"];
    ask_all(
        &*node,
        names.map(|name| put(name, 7, LONG, "body")).to_vec(),
    )
    .await;
    ask(&*node, put("a/short", 1, SHORT, "body")).await;
    let all = ["a/a", "a/b", "a/c"].map(|name| doc(name, 7, ""));
    granted(&*node, take_for("clock", "x", SHORT * 2)).await;
    wait_until_free(&*node, "clock").await;
    assert_eq!(doc_names(&*node, "a/", 100).await.0, all);
}

pub(crate) async fn a_directory_is_read_page_by_page(lab: Lab) {
    const MANY: usize = 1_000;
    let node = lab.client().await;
    let mut all: Vec<Doc> = (0..MANY)
        .map(|n| doc(&format!("a/{n:04}"), 7, "body"))
        .collect();
    let mut puts: Vec<Op> = all
        .iter()
        .map(|doc| put(&doc.name, 7, LONG, "body"))
        .collect();
    // Neither what lies elsewhere is on a page, nor what has ended.
    puts.extend((0..MANY / 10).map(|n| put(&format!("a/b/{n}"), 1, LONG, "")));
    puts.extend((0..MANY / 2).map(|n| put(&format!("a/short {n}"), 1, SHORT, "")));
    for some in puts.chunks(250) {
        ask_all(&*node, some.to_vec()).await;
    }
    granted(&*node, take_for("clock", "x", SHORT * 2)).await;
    wait_until_free(&*node, "clock").await;
    for count in [1, 7, 100] {
        let (named, largest) = doc_names(&*node, "a/", count).await;
        let bare = all.iter().map(|d| doc(&d.name, 7, ""));
        assert!(named.into_iter().eq(bare), "by {count}");
        // A store may look at a little more than it was asked to.
        assert!(largest <= count as usize + 100, "{largest} by {count}");
        if count > 1 {
            assert_eq!(docs_by(&*node, "a/", count).await, all, "by {count}");
        }
    }
    // What stands all the while is read, also when others come and go.
    let (mut seen, mut next) = (Vec::new(), Some(Cursor::default()));
    let mut gone = all.split_off(MANY / 2).into_iter();
    let mut come = 0;
    while let Some(from) = next {
        let op = Op::DocNames {
            dir: "a/".to_owned(),
            from,
            count: 50,
        };
        let Answer::Page(page) = ask(&*node, op).await else {
            panic!("no page");
        };
        seen.extend(page.docs.into_iter().map(|doc| doc.name));
        next = page.next;
        for doc in gone.by_ref().take(40) {
            ask(&*node, Op::RemoveDoc { name: doc.name }).await;
        }
        come += 1;
        ask(&*node, put(&format!("a/new {come}"), 1, LONG, "")).await;
    }
    assert!(all.iter().all(|doc| seen.contains(&doc.name)));
}

pub(crate) async fn large_documents_are_read_whole_and_apart(lab: Lab) {
    let node = lab.client().await;
    let sizes = [10, 400_000, 0, 300_000, 100_000, 200_000, 20];
    let all: Vec<Doc> = sizes
        .iter()
        .enumerate()
        .map(|(n, size)| doc(&format!("a/{n}"), 1, &"x".repeat(*size)))
        .collect();
    for doc in &all {
        ask(&*node, put(&doc.name, 1, LONG, &doc.body)).await;
    }
    assert!(docs_by(&*node, "a/", 100).await == all);
    let op = Op::Docs {
        dir: "a/".to_owned(),
        from: Cursor::default(),
        count: 100,
    };
    let Answer::Page(page) = ask(&*node, op).await else {
        panic!("no page");
    };
    let text: usize = page.docs.iter().map(|doc| doc.body.len()).sum();
    assert!(text <= 400_010, "{text} in one page");
}

pub(crate) async fn one_document_is_read_by_its_name(lab: Lab) {
    let node = lab.client().await;
    ask_all(
        &*node,
        vec![put("a/b", 7, LONG, "body"), put("short", 1, SHORT, "")],
    )
    .await;
    assert_eq!(one_doc(&*node, "a/b").await, [doc("a/b", 7, "body")]);
    for other in ["a/", "a", "b", ""] {
        assert_eq!(one_doc(&*node, other).await, [], "{other}");
    }
    granted(&*node, take_for("clock", "x", SHORT * 2)).await;
    wait_until_free(&*node, "clock").await;
    assert_eq!(one_doc(&*node, "short").await, []);
}

pub(crate) async fn a_directory_outlives_its_short_lived_documents(lab: Lab) {
    let node = lab.client().await;
    ask(&*node, put("a/long", 1, LONG, "")).await;
    ask(&*node, put("a/short", 1, SHORT, "")).await;
    granted(&*node, take_for("clock", "x", SHORT * 2)).await;
    wait_until_free(&*node, "clock").await;
    assert_eq!(docs(&*node, "a/").await, [doc("a/long", 1, "")]);
}

pub(crate) async fn a_touched_document_lives_on_and_says_what_it_said(lab: Lab) {
    let node = lab.client().await;
    ask(&*node, put("a/b", 7, SHORT, "body")).await;
    assert_eq!(touch(&*node, "a/b", 7).await, Answer::Done);
    granted(&*node, take_for("clock", "x", SHORT * 2)).await;
    wait_until_free(&*node, "clock").await;
    assert_eq!(one_doc(&*node, "a/b").await, [doc("a/b", 7, "body")]);
    assert_eq!(docs(&*node, "a/").await, [doc("a/b", 7, "body")]);
}

pub(crate) async fn what_cannot_be_touched_has_to_be_stored_anew(lab: Lab) {
    let node = lab.client().await;
    let anew = Answer::Docs(Vec::new());
    assert_eq!(touch(&*node, "a/b", 7).await, anew, "it is not there");
    ask(&*node, put("a/b", 6, SHORT, "older")).await;
    assert_eq!(touch(&*node, "a/b", 7).await, anew, "it is older");
    assert_eq!(touch(&*node, "a/b", 5).await, Answer::Done, "it is newer");
    granted(&*node, take_for("clock", "x", SHORT * 2)).await;
    wait_until_free(&*node, "clock").await;
    assert_eq!(touch(&*node, "a/b", 6).await, anew, "it has ended");
    assert_eq!(one_doc(&*node, "a/b").await, []);
}

pub(crate) async fn a_directory_tells_who_lives_and_at_rest_a_sum_alone(lab: Lab) {
    let node = lab.client().await;
    let (least, most) = (SHORT * 2, LONG);
    let ops = vec![
        put("a/one", 100, LONG, "body"),
        put("a/two", 2_000, LONG, ""),
        put("a/too-short", 1, SHORT, ""),
        put("a/too-long", 1, LONG * 2, ""),
        put("a/below/it", 1, LONG, ""),
    ];
    ask_all(&*node, ops).await;
    let (sum, _, mut found) = living(&*node, (least, most), vec![]).await;
    found.sort();
    let told: Vec<_> = found.iter().map(|life| (&*life.name, life.rev)).collect();
    assert_eq!(told, [("a/one", 100), ("a/two", 2_000)]);
    assert_eq!(sum, sum_of([2_000, 100]));
    let most_ms = u64::try_from(most.as_millis()).unwrap();
    assert!(found.iter().all(|life| life.left_ms <= most_ms));
    assert!(found.iter().all(|life| life.left_ms > most_ms / 2));
    let sum = async || {
        let (sum, parts, found) = living(&*node, (least, most), vec![7]).await;
        assert_eq!((parts, found), (vec![], vec![]), "a sum alone");
        sum
    };
    for _ in 0..2 {
        assert_eq!(sum().await, sum_of([100, 2_000]));
    }
    assert_eq!(touch(&*node, "a/one", 100).await, Answer::Done);
    assert_eq!(sum().await, sum_of([100, 2_000]));
    ask(&*node, put("a/one", 101, LONG, "new")).await;
    assert_eq!(sum().await, sum_of([101, 2_000]));
    let name = "a/two".to_owned();
    ask(&*node, Op::RemoveDoc { name }).await;
    assert_eq!(sum().await, sum_of([101]));
    // Who is touched again is there again, and who is not has gone.
    assert_eq!(touch(&*node, "a/too-long", 1).await, Answer::Done);
    assert_eq!(sum().await, sum_of([101, 1]));
    ask(&*node, put("a/one", 102, SHORT, "")).await;
    assert_eq!(sum().await, sum_of([1]));
    granted(&*node, take_for("clock", "x", SHORT * 2)).await;
    wait_until_free(&*node, "clock").await;
    ask(&*node, put("a/one", 103, LONG, "")).await;
    assert_eq!(sum().await, sum_of([1, 103]));
    let (none, _, found) = living(&*node, (most * 3, most * 4), vec![]).await;
    assert_eq!((none, found), (0, vec![]));
}

pub(crate) async fn of_a_directory_those_parts_are_named_in_which_anything_has_changed(lab: Lab) {
    let node = lab.client().await;
    let life = (SHORT, LONG);
    let name = |rev: u64| format!("a/{}", rev % 100);
    let puts = (100..140).map(|rev| put(&name(rev), rev, LONG, ""));
    ask_all(&*node, puts.collect()).await;
    let sums = |known: &[u64]| -> Vec<u64> {
        let part = |part| sum_of(known.iter().copied().filter(|rev| rev % 8 == part));
        (0..8).map(part).collect()
    };
    let mut known: Vec<u64> = (100..140).collect();
    let (sum, parts, found) = living(&*node, life, sums(&known)).await;
    assert_eq!((sum, parts, found), (sum_of(known.clone()), vec![], vec![]));
    // One is another, one has gone, one is new.
    ask(&*node, put(&name(107), 207, LONG, "")).await;
    let gone = name(104);
    ask(&*node, Op::RemoveDoc { name: gone }).await;
    ask(&*node, put("a/new", 328, LONG, "")).await;
    let (sum, parts, found) = living(&*node, life, sums(&known)).await;
    assert_eq!(parts, [0, 3, 7], "those of 328 and 104, of 107, of 207");
    known.retain(|rev| !parts.contains(&(rev % 8)));
    known.extend(found.iter().map(|life| life.rev));
    known.sort_unstable();
    let others = (100..140).filter(|rev| ![104, 107].contains(rev));
    let all: Vec<u64> = others.chain([207, 328]).collect();
    assert_eq!((sum, &known), (sum_of(all.clone()), &all));
    assert!(found.len() < 20, "{} names", found.len());
}

pub(crate) async fn a_list_shows_locks_and_claims_by_prefix(lab: Lab) {
    let node = lab.client().await;
    let ops = vec![
        take("job/a", "x"),
        take("job/b", "y"),
        claim_for("job/c", "z", LONG),
    ];
    ask_all(&*node, [ops, vec![take("elect/a", "x")]].concat()).await;
    let jobs = list(&*node, "job/").await;
    let held: Vec<_> = jobs
        .iter()
        .map(|view| (view.key.as_str(), view.holder.as_deref()))
        .collect();
    let expected = [
        ("job/a", Some("x")),
        ("job/b", Some("y")),
        ("job/c", Some("z")),
    ];
    assert_eq!(held, expected);
    assert_eq!(
        jobs[0],
        View {
            remaining_ms: jobs[0].remaining_ms,
            ..view(&*node, "job/a").await
        }
    );
    assert_eq!(list(&*node, "").await.len(), 4);
    assert_eq!(list(&*node, "nobody").await, []);
    // What is free is shown while its record is remembered.
    ask(&*node, release(Lock, "elect/a", "x")).await;
    let seen = list(&*node, "elect/").await;
    assert!(
        seen.iter()
            .all(|view| view.holder.is_none() && view.released),
        "{seen:?}"
    );
}

pub(crate) async fn reading_changes_nothing(lab: Lab) {
    let node = lab.client().await;
    let seen = view(&*node, "k").await;
    assert_eq!(
        (seen.key.as_str(), seen.holder, seen.owner),
        ("k", None, None)
    );
    assert_eq!(
        (seen.seq, seen.released, seen.record),
        (0, false, Record::default())
    );
    assert_eq!(list(&*node, "").await, []);
    let (grant, _) = granted(&*node, take("k", "a")).await;
    for _ in 0..3 {
        view(&*node, "k").await;
        list(&*node, "").await;
    }
    assert_eq!(view(&*node, "k").await.token, grant);
}

pub(crate) async fn names_and_bodies_may_contain_anything(lab: Lab) {
    let node = lab.client().await;
    let odd = [
        "a*",
        "ab",
        "a[b]?",
        "tab\there",
        "ünï·código",
        "{tag}",
        "\"'; --",
        "new\nline",
        "folder/new\nline",
        "nul\0in/a name",
        "",
    ];
    for (index, key) in odd.iter().enumerate() {
        let owner = format!("owner-{index}");
        let (grant, _) = granted(&*node, take(key, &owner)).await;
        let body = format!("{key}\0\r\n{{\"json\": [1, 2]}}");
        let written = ask(&*node, write(key, &owner, (grant.0, 1), &body)).await;
        assert_eq!(written, Answer::Done);
        let seen = view(&*node, key).await;
        assert_eq!((seen.holder, seen.record.body), (Some(owner), body));
        ask(&*node, put(key, 1, LONG, key)).await;
    }
    let found: Vec<String> = list(&*node, "a*")
        .await
        .into_iter()
        .map(|view| view.key)
        .collect();
    assert_eq!(found, ["a*"]);
    for name in odd {
        assert_eq!(one_doc(&*node, name).await, [doc(name, 1, name)]);
        let dir = name.rfind('/').map_or("", |slash| &name[..=slash]);
        let there = docs(&*node, dir).await;
        assert!(there.contains(&doc(name, 1, name)), "{name:?} in {dir:?}");
    }
    assert_eq!(list(&*node, "").await.len(), odd.len());
}

async fn touch(node: &dyn Node, name: &str, rev: u64) -> Answer {
    let op = Op::TouchDoc {
        name: name.to_owned(),
        rev,
        ttl: LONG,
    };
    ask(node, op).await
}

async fn living(
    node: &dyn Node,
    (least, most): (Duration, Duration),
    known: Vec<u64>,
) -> (u64, Vec<u64>, Vec<Life>) {
    let dir = "a/".to_owned();
    let op = Op::Living {
        dir,
        least,
        most,
        known,
    };
    match ask(node, op).await {
        Answer::Lives { sum, parts, docs } => (sum, parts, docs),
        other => panic!("no lives: {other:?}"),
    }
}

fn put(name: &str, rev: u64, ttl: Duration, body: &str) -> Op {
    Op::PutDoc {
        name: name.to_owned(),
        rev,
        ttl,
        body: body.to_owned(),
    }
}

fn doc(name: &str, rev: u64, body: &str) -> Doc {
    Doc {
        name: name.to_owned(),
        rev,
        body: body.to_owned(),
    }
}

/// By name: nodes may answer in any order.
async fn docs(node: &dyn Node, dir: &str) -> Vec<Doc> {
    docs_by(node, dir, 100).await
}

async fn docs_by(node: &dyn Node, dir: &str, count: u32) -> Vec<Doc> {
    let (page, _) = pages(node, |from| Op::Docs {
        dir: dir.to_owned(),
        from,
        count,
    })
    .await;
    let mut docs = page.docs;
    for name in page.large {
        docs.extend(one_doc(node, &name).await);
    }
    docs.sort_by(|a, b| a.name.cmp(&b.name));
    docs
}

/// And how many were on the largest page.
async fn doc_names(node: &dyn Node, dir: &str, count: u32) -> (Vec<Doc>, usize) {
    let (mut page, largest) = pages(node, |from| Op::DocNames {
        dir: dir.to_owned(),
        from,
        count,
    })
    .await;
    page.docs.sort_by(|a, b| a.name.cmp(&b.name));
    (page.docs, largest)
}

async fn pages(node: &dyn Node, op: impl Fn(Cursor) -> Op) -> (Page, usize) {
    let (mut all, mut largest, mut next) = (Page::default(), 0, Some(Cursor::default()));
    while let Some(from) = next {
        let page = match ask(node, op(from)).await {
            Answer::Page(page) => page,
            other => panic!("no page: {other:?}"),
        };
        largest = largest.max(page.docs.len());
        all.docs.extend(page.docs);
        all.large.extend(page.large);
        next = page.next;
    }
    (all, largest)
}

async fn one_doc(node: &dyn Node, name: &str) -> Vec<Doc> {
    let name = name.to_owned();
    match ask(node, Op::Doc { name }).await {
        Answer::Docs(docs) => docs,
        other => panic!("not documents: {other:?}"),
    }
}
