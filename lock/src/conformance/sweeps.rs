//! Forgetting, and walking through what is there.

use super::*;
use crate::node::Kind::{Claim, Lock};

pub(crate) async fn s0_a_release_is_kept_for_as_long_as_its_sender_said(lab: Lab) {
    let node = lab.client().await;
    for (key, marked) in [("short", SHORT), ("long", LONG)] {
        granted(&*node, take(key, "a")).await;
        ask(&*node, release_for(Lock, key, "a", marked, SHORT)).await;
    }
    assert_eq!(swept(&*node).await, (vec![], 0));
    pass(&*node, SHORT).await;
    assert!(view(&*node, "short").await.released, "only a sweep ends it");
    assert_eq!(swept(&*node).await, (vec![], 1));
    assert_eq!(view(&*node, "short").await.owner, None);
    assert!(view(&*node, "long").await.released);
}

pub(crate) async fn s1_a_sweep_judges_what_stands_and_deletes_no_lease(lab: Lab) {
    let node = lab.client().await;
    granted(&*node, take("k", "a")).await;
    ask(&*node, release_for(Lock, "k", "a", SHORT, SHORT)).await;
    pass(&*node, SHORT).await;
    // What a client has read there may be another's lease by now.
    granted(&*node, take("k", "b")).await;
    granted(&*node, take_for("held", "c", SHORT)).await;
    granted(&*node, take_for("broken", "d", SHORT)).await;
    broken(&*node, force("broken", "d", FAR, false)).await;
    pass(&*node, SHORT).await;
    // Leases whose time is up by the node's clock are told, and stay.
    for _ in 0..2 {
        let orphans = vec!["broken".to_owned(), "held".to_owned()];
        assert_eq!(swept(&*node).await, (orphans, 0));
    }
    let owner = async |key: &str| view(&*node, key).await.owner;
    assert_eq!(owner("k").await.as_deref(), Some("b"));
    assert_eq!(owner("held").await.as_deref(), Some("c"));
    assert_eq!(owner("broken").await.as_deref(), Some("d"));
}

pub(crate) async fn s2_a_lease_is_forgotten_where_exactly_what_was_watched_stands(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take("k", "a")).await;
    let before = seen_in(&view(&*node, "k").await);
    ask(&*node, extend(Lock, "k", "a", 1, grant.0)).await;
    let now = seen_in(&view(&*node, "k").await);
    for wrong in [
        before,
        Seen {
            owner: "b".into(),
            ..now.clone()
        },
        Seen {
            inc: "another".into(),
            ..now.clone()
        },
    ] {
        assert_eq!(ask(&*node, forget("k", wrong)).await, Answer::Done);
        assert_eq!(view(&*node, "k").await.holder.as_deref(), Some("a"));
    }
    // A break does not change what was watched.
    broken(&*node, force("k", "a", FAR, false)).await;
    for _ in 0..2 {
        assert_eq!(ask(&*node, forget("k", now.clone())).await, Answer::Done);
        let seen = view(&*node, "k").await;
        assert_eq!((seen.owner, seen.holder), (None, None));
    }
    is_next(&*node, granted(&*node, take("k", "b")).await.0, FAR);
}

pub(crate) async fn s2_what_was_let_go_is_no_lease_to_forget(lab: Lab) {
    let node = lab.client().await;
    granted(&*node, take("k", "a")).await;
    let seen = seen_in(&view(&*node, "k").await);
    ask(&*node, release(Lock, "k", "a")).await;
    ask(&*node, forget("k", seen)).await;
    assert!(view(&*node, "k").await.released);
}

pub(crate) async fn c3_what_is_forgotten_is_remembered_as_a_number(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take("k", "a")).await;
    ask(&*node, confirm(Lock, "k", "a", grant.0 + FAR)).await;
    ask(&*node, release_for(Lock, "k", "a", SHORT, SHORT)).await;
    pass(&*node, SHORT).await;
    assert_eq!(swept(&*node).await.1, 1);
    for key in ["k", "new"] {
        is_next(
            &*node,
            granted(&*node, take(key, "b")).await.0,
            grant.0 + FAR,
        );
    }
}

pub(crate) async fn ended_claims_are_swept(lab: Lab) {
    let node = lab.client().await;
    let ops = vec![claim_for("1", "a", SHORT), claim_for("2", "a", LONG)];
    ask_all(&*node, ops).await;
    pass(&*node, SHORT).await;
    let keys: Vec<_> = list(&*node, "").await.into_iter().map(|v| v.key).collect();
    assert_eq!(keys, ["2"]);
    assert_eq!(swept(&*node).await, (vec![], 1));
    let kept = ask(&*node, extend(Claim, "2", "a", 1, 1)).await;
    assert!(is_kept(&kept), "{kept:?}");
}

pub(crate) async fn a_body_is_kept_for_its_retention(lab: Lab) {
    let node = lab.client().await;
    let left = async |key: &str, marked, retention| {
        let (grant, _) = granted(&*node, take(key, "a")).await;
        ask(&*node, write(key, "a", (grant.0, 1), "body")).await;
        ask(&*node, release_for(Lock, key, "a", marked, retention)).await;
    };
    left("long", SHORT, LONG).await;
    left("short", LONG, SHORT).await;
    left("taken", SHORT, SHORT).await;
    assert_eq!(granted(&*node, take("taken", "b")).await.1.body, "body");
    pass(&*node, SHORT).await;
    // Longer than the record.
    assert_eq!(swept(&*node).await, (vec![], 2));
    let long = view(&*node, "long").await;
    assert_eq!((long.owner, long.record.body.as_str()), (None, "body"));
    // Shorter than the record.
    let short = view(&*node, "short").await;
    assert_eq!((short.released, short.record.body.as_str()), (true, ""));
    // Taken in time, it stays with its new owner.
    assert_eq!(view(&*node, "taken").await.record.body, "body");
    assert_eq!(granted(&*node, take("long", "b")).await.1.body, "body");
    let none = granted(&*node, take("short", "b")).await.1;
    assert_eq!(none, Record::default());
}

pub(crate) async fn a_walk_shows_everything_page_by_page(lab: Lab) {
    let node = lab.client().await;
    let names: Vec<String> = (0..23).map(|n| format!("job/{n:02}")).collect();
    let ops = names.iter().map(|name| take(name, "a")).collect();
    ask_all(&*node, ops).await;
    granted(&*node, take("other", "a")).await;
    let keys = async |prefix: &str| {
        let mut keys: Vec<_> = list(&*node, prefix)
            .await
            .into_iter()
            .map(|view| view.key)
            .collect();
        // What stands all the while is on one page at least.
        keys.dedup();
        keys
    };
    assert_eq!(keys("job/").await, names);
    assert_eq!(keys("other").await, ["other"]);
    assert_eq!(keys("").await.len(), 24);
    // A page of none is a page of one at least: the walk comes to its end.
    let slow = |from, _| Op::List {
        prefix: "job/0".to_owned(),
        from,
        count: 0,
    };
    assert!(walk(&*node, slow).await.views.len() >= 10);
}

pub(crate) async fn records_are_read_with_their_bodies_page_by_page(lab: Lab) {
    let node = lab.client().await;
    for key in ["c", "a", "b", "gone"] {
        let (grant, _) = granted(&*node, take(key, "x")).await;
        ask(&*node, write(key, "x", (grant.0, 1), key)).await;
    }
    granted(&*node, take("plain", "x")).await;
    granted(&*node, claim_for("claim", "y", LONG)).await;
    ask(&*node, release(Lock, "b", "x")).await;
    // The body is left, when nothing else is.
    let seen = seen_in(&view(&*node, "gone").await);
    ask(&*node, forget("gone", seen)).await;
    let all = walk(&*node, |from, count| Op::Records { from, count }).await;
    let keys: Vec<_> = all.views.iter().map(|view| view.key.as_str()).collect();
    assert_eq!(keys, ["a", "b", "c", "plain"]);
    assert!(all.views.iter().all(|view| view.record.body.is_empty()));
    let bodies = all.bodies.iter().map(|(key, record)| {
        assert_eq!(*key, record.body);
        key.as_str()
    });
    assert_eq!(bodies.collect::<Vec<_>>(), ["a", "b", "c", "gone"]);
}
