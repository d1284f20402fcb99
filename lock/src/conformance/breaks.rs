//! Ending a lease by force.

use super::*;
use crate::node::Kind::Lock;

pub(crate) async fn a_broken_lease_is_over_but_its_key_stays_n7(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take("k", "a")).await;
    ask(&*node, extend(Lock, "k", "a", 1, grant.0)).await;
    let before = broken(&*node, force("k", "a", grant.0 + 7, false)).await;
    assert_eq!(
        (before.holder.as_deref(), before.released),
        (Some("a"), false)
    );
    // Nothing of it counts any more, however often it is tried.
    for seq in 2..4 {
        refused(&*node, extend(Lock, "k", "a", seq, grant.0)).await;
        refused(&*node, take("k", "a")).await;
        refused(&*node, confirm(Lock, "k", "a", grant.0)).await;
        refused(&*node, write("k", "a", (grant.0, seq), "mine")).await;
    }
    // No other owner is let in while it may believe.
    let seen = refused(&*node, take("k", "b")).await;
    assert_eq!(
        (seen.holder.as_deref(), seen.broken, seen.released),
        (Some("a"), true, false)
    );
    assert!(seen.remaining_ms.unwrap() > 1_000);
    assert_eq!(
        broken(&*node, force("k", "a", grant.0, false))
            .await
            .token
            .0,
        grant.0 + 7
    );
    // It has heard of it and released.
    assert_eq!(ask(&*node, release(Lock, "k", "a")).await, Answer::Done);
    let (next, _) = granted(&*node, take("k", "b")).await;
    assert!(next.0 > grant.0 + 7, "{next}");
    refused(&*node, extend(Lock, "k", "a", 9, grant.0)).await;
}

pub(crate) async fn a_broken_lease_goes_now_when_asked_n7(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take("k", "a")).await;
    broken(&*node, force("k", "a", grant.0 + 1, true)).await;
    let (next, _) = granted(&*node, take_for("k", "b", SHORT)).await;
    assert!(next.0 > grant.0 + 1);
    refused(&*node, extend(Lock, "k", "a", 1, grant.0)).await;
    // Nor when the successor is gone, too.
    wait_until_free(&*node, "k").await;
    refused(&*node, extend(Lock, "k", "a", 2, grant.0)).await;
    assert_eq!(view(&*node, "k").await.holder, None);
}

pub(crate) async fn a_break_touches_no_successor_n6(lab: Lab) {
    let node = lab.client().await;
    granted(&*node, take("k", "a")).await;
    ask(&*node, release(Lock, "k", "a")).await;
    let (grant, _) = granted(&*node, take("k", "b")).await;
    let before = view(&*node, "k").await;
    for (owner, now) in [("a", true), ("never here", true), ("never here", false)] {
        let seen = refused(&*node, force("k", owner, 1_000, now)).await;
        assert_eq!(seen.holder.as_deref(), Some("b"));
    }
    let after = view(&*node, "k").await;
    assert_eq!(
        (after.token, after.released, after.broken),
        (before.token, false, false)
    );
    assert!(is_kept(
        &ask(&*node, extend(Lock, "k", "b", 1, grant.0)).await
    ));
}

pub(crate) async fn b1_what_is_broken_is_watched_like_what_is_held(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take("k", "a")).await;
    let before = seen_in(&view(&*node, "k").await);
    broken(&*node, force("k", "a", grant.0 + 1, false)).await;
    refused(&*node, observe("k", "b", None)).await;
    refused(&*node, take("k", "b")).await;
    refused(&*node, round("k", "b", 1, grant.0 + 5, None)).await;
    // The break does not begin the watch anew.
    assert_eq!(seen_in(&view(&*node, "k").await), before);
    granted(&*node, observe("k", "b", Some(before))).await;
}

pub(crate) async fn b2_a_break_is_written_where_nothing_of_its_target_stands(lab: Lab) {
    let node = lab.client().await;
    let before = broken(&*node, force("k", "a", FAR + 50, false)).await;
    assert_eq!((before.owner, before.token), (None, Token(0)));
    let mark = view(&*node, "k").await;
    assert_eq!(
        (mark.owner.as_deref(), mark.seq, mark.broken, mark.token),
        (Some("a"), 0, true, Token(FAR + 50))
    );
    let most = u64::try_from((SHORT + unknown_time(&*node)).as_millis()).unwrap();
    assert!(
        mark.named && (150..=most).contains(&mark.ttl_ms),
        "{mark:?}"
    );
    refused(&*node, extend(Lock, "k", "a", 1, 7)).await;
    refused(&*node, round("k", "a", 1, FAR + 60, None)).await;
    refused(&*node, take("k", "a")).await;
    refused(&*node, observe("k", "b", None)).await;
    // It is watched like a lease.
    wait_until_free(&*node, "k").await;
    assert_eq!(granted(&*node, take("k", "b")).await.0, Token(FAR + 51));
}

pub(crate) async fn b2_a_break_is_written_over_the_release_of_another(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take("k", "contender")).await;
    ask(&*node, write("k", "contender", (grant.0, 1), "ledger")).await;
    ask(&*node, release(Lock, "k", "contender")).await;
    broken(&*node, force("k", "a", FAR + 50, false)).await;
    let mark = view(&*node, "k").await;
    assert_eq!(
        (mark.owner.as_deref(), mark.broken, mark.token),
        (Some("a"), true, Token(FAR + 50))
    );
    assert_eq!(mark.record.body, "ledger");
    // A smaller token lowers nothing.
    broken(&*node, force("k", "a", 3, false)).await;
    assert_eq!(view(&*node, "k").await.token, Token(FAR + 50));
}

pub(crate) async fn b4_a_break_now_is_written_where_nothing_of_its_target_stands(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take("left", "contender")).await;
    ask(&*node, release(Lock, "left", "contender")).await;
    for key in ["never", "left"] {
        broken(&*node, force(key, "a", FAR + 50, true)).await;
        let mark = view(&*node, key).await;
        assert_eq!(
            (mark.owner.as_deref(), mark.released, mark.token),
            (Some("a"), true, Token(FAR + 50))
        );
        refused(&*node, round(key, "a", 1, grant.0, None)).await;
        refused(&*node, observe(key, "a", None)).await;
        // It is free for all others.
        assert_eq!(granted(&*node, take(key, "b")).await.0, Token(FAR + 51));
    }
}

pub(crate) async fn b5_what_is_broken_is_taken_when_its_time_is_up(lab: Lab) {
    let node = lab.client().await;
    granted(&*node, take_for("k", "a", SHORT)).await;
    broken(&*node, force("k", "a", FAR + 9, false)).await;
    wait_until_free(&*node, "k").await;
    assert_eq!(granted(&*node, take("k", "b")).await.0, Token(FAR + 10));
}

pub(crate) async fn a_break_leaves_what_was_let_go(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take("k", "a")).await;
    ask(&*node, release(Lock, "k", "a")).await;
    for now in [false, true] {
        broken(&*node, force("k", "a", grant.0 + 20, now)).await;
        let seen = view(&*node, "k").await;
        assert!(seen.released && !seen.broken, "{seen:?}");
    }
    assert_eq!(granted(&*node, take("k", "b")).await.0.0, grant.0 + 21);
}
