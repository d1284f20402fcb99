//! What arrives late for an owner that is over, and what is granted above it.

use super::*;
use crate::node::Kind::Lock;

pub(crate) async fn a1_an_owner_that_let_go_is_not_granted_again(lab: Lab) {
    let node = lab.client().await;
    granted(&*node, take("k", "a")).await;
    assert_eq!(ask(&*node, release(Lock, "k", "a")).await, Answer::Done);
    for attempt in [take("k", "a"), observe("k", "a", None)] {
        let seen = refused(&*node, attempt).await;
        assert_eq!(
            (seen.holder, seen.owner.as_deref(), seen.released),
            (None, Some("a"), true)
        );
    }
    // Nor with what it has seen there itself.
    let seen = seen_in(&view(&*node, "k").await);
    refused(&*node, observe("k", "a", Some(seen))).await;
    granted(&*node, take("k", "b")).await;
    // A release sent again does not touch the successor.
    assert_eq!(ask(&*node, release(Lock, "k", "a")).await, Answer::Done);
    assert_eq!(view(&*node, "k").await.holder.as_deref(), Some("b"));
}

pub(crate) async fn a1_an_owner_that_was_broken_is_not_granted_again(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take_for("k", "a", SHORT)).await;
    broken(&*node, force("k", "a", grant.0 + 1, false)).await;
    let seen = seen_in(&view(&*node, "k").await);
    for attempt in [take("k", "a"), observe("k", "a", Some(seen))] {
        refused(&*node, attempt.clone()).await;
        wait_until_free(&*node, "k").await;
        refused(&*node, attempt).await;
    }
}

pub(crate) async fn a2_an_acquire_behind_a_round_undoes_nothing(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take("k", "a")).await;
    ask(&*node, extend(Lock, "k", "a", 2, grant.0 + 9)).await;
    let before = view(&*node, "k").await;
    // It comes over another connection, and with another life.
    assert_eq!(
        granted(&*node, take_for("k", "a", SHORT)).await.0,
        grant,
        "what stands there"
    );
    assert_eq!(
        granted(&*node, observed_take(take_for("k", "a", SHORT), None))
            .await
            .0,
        grant
    );
    let after = view(&*node, "k").await;
    assert!(after.remaining_ms <= before.remaining_ms);
    assert!(after.remaining_ms > Some(10_000), "{after:?}");
    let left = |view: View| View {
        remaining_ms: None,
        ..view
    };
    assert_eq!(left(after), left(before));
}

pub(crate) async fn e2_a_round_revives_nothing(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take("left", "a")).await;
    ask(&*node, release(Lock, "left", "a")).await;
    granted(&*node, take_for("broken", "a", SHORT)).await;
    broken(&*node, force("broken", "a", grant.0, false)).await;
    wait_until_free(&*node, "broken").await;
    for key in ["left", "broken"] {
        refused(&*node, extend(Lock, key, "a", 9, grant.0 + 50)).await;
        refused(&*node, round(key, "a", 9, grant.0 + 50, None)).await;
        refused(&*node, confirm(Lock, key, "a", grant.0 + 50)).await;
        let seen = seen_in(&view(&*node, key).await);
        refused(&*node, round(key, "a", 9, grant.0 + 50, Some(seen))).await;
        assert_eq!(view(&*node, key).await.holder, None);
    }
}

/// Where a contender came and left, its counter is what keeps the dead out.
pub(crate) async fn e3_a_round_heals_nothing_that_was_granted_later(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take("k", "a")).await;
    ask(&*node, release(Lock, "k", "a")).await;
    granted(&*node, take("k", "b")).await;
    ask(&*node, release(Lock, "k", "b")).await;
    refused(&*node, extend(Lock, "k", "a", 9, grant.0)).await;
    refused(&*node, round("k", "a", 9, grant.0, None)).await;
    let seen = view(&*node, "k").await;
    refused(&*node, round("k", "a", 9, grant.0, Some(seen_in(&seen)))).await;
    assert_eq!((seen.owner.as_deref(), seen.released), (Some("b"), true));
}

pub(crate) async fn e3_a_round_heals_what_was_granted_before(lab: Lab) {
    let node = lab.client().await;
    // The holder's majority is elsewhere, and its token is the largest.
    let (grant, _) = granted(&*node, take("k", "before")).await;
    ask(&*node, release(Lock, "k", "before")).await;
    let version = Version::default();
    for (key, token) in [("k", grant.0), ("never", 1)] {
        let answer = ask(&*node, extend(Lock, key, "a", 2, token)).await;
        assert_eq!(answer, Answer::Healed { version });
        let seen = view(&*node, key).await;
        assert_eq!((seen.holder.as_deref(), seen.seq), (Some("a"), 2));
        refused(&*node, take(key, "other")).await;
        let answer = ask(&*node, extend(Lock, key, "a", 3, token)).await;
        assert_eq!(answer, Answer::Kept { version });
        // Its grant is the token that it came with.
        assert_eq!(granted(&*node, take(key, "a")).await.0, Token(token));
    }
}

pub(crate) async fn e3_a_release_now_is_not_undone_where_another_has_left(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take("k", "a")).await;
    broken(&*node, force("k", "a", grant.0 + 1, true)).await;
    granted(&*node, take("k", "b")).await;
    ask(&*node, release(Lock, "k", "b")).await;
    refused(&*node, extend(Lock, "k", "a", 5, grant.0)).await;
    assert_eq!(view(&*node, "k").await.owner.as_deref(), Some("b"));
}

pub(crate) async fn c2_what_is_healed_keeps_the_larger_counter(lab: Lab) {
    let node = lab.client().await;
    // The node has forgotten a lease of a larger token than the round's.
    let (grant, _) = granted(&*node, take("k", "before")).await;
    ask(&*node, confirm(Lock, "k", "before", grant.0 + FAR)).await;
    let seen = seen_in(&view(&*node, "k").await);
    ask(&*node, forget("k", seen)).await;
    let answer = ask(&*node, extend(Lock, "k", "a", 1, grant.0)).await;
    assert!(is_healed(&answer), "{answer:?}");
    is_counted(&*node, view(&*node, "k").await.token, grant.0 + FAR);
    ask(&*node, release(Lock, "k", "a")).await;
    assert!(granted(&*node, take("k", "b")).await.0.0 > grant.0 + FAR);
}

pub(crate) async fn c4_a_new_lock_begins_above_what_was_forgotten(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take("k", "a")).await;
    ask(&*node, confirm(Lock, "k", "a", grant.0 + FAR)).await;
    let seen = seen_in(&view(&*node, "k").await);
    ask(&*node, forget("k", seen)).await;
    is_next(
        &*node,
        granted(&*node, take("new", "b")).await.0,
        grant.0 + FAR,
    );
}
