//! Named locks: grants, tokens, rounds, releases.

use super::*;
use crate::node::{Kind::Lock, NodeError, Ticket};

pub(crate) async fn an_absent_key_is_granted_and_a_held_one_refused_n3(lab: Lab) {
    let (first, second) = (lab.client().await, lab.client().await);
    let (grant, record) = granted(&*first, take("k", "a")).await;
    assert!(grant > Token(0));
    assert_eq!(record, Record::default());
    let seen = refused(&*second, take("k", "b")).await;
    assert_eq!(
        (seen.key.as_str(), seen.holder.as_deref()),
        ("k", Some("a"))
    );
    assert_eq!(
        (seen.owner.as_deref(), seen.released, seen.token),
        (Some("a"), false, grant)
    );
    let left = Duration::from_millis(seen.remaining_ms.unwrap());
    assert!(
        left > LONG / 2 && left <= LONG + unknown_time(&*second),
        "{left:?}"
    );
}

pub(crate) async fn the_same_attempt_sent_again_gets_the_same_grant_a2(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take("k", "a")).await;
    granted(&*node, take("other", "b")).await;
    assert_eq!(granted(&*node, take("k", "a")).await.0, grant);
    ask(&*node, confirm(Lock, "k", "a", grant.0 + 5)).await;
    assert_eq!(granted(&*node, take("k", "a")).await.0, grant);
    // Also past its end, as long as no other owner was granted.
    let (grant, _) = granted(&*node, take_for("s", "a", SHORT)).await;
    wait_until_free(&*node, "s").await;
    assert_eq!(granted(&*node, take("s", "a")).await.0, grant);
}

pub(crate) async fn an_attempt_sent_again_shortens_nothing_a2(lab: Lab) {
    let node = lab.client().await;
    let of_claim = |ttl| claim_for("c", "a", ttl);
    let of_lock = |ttl| take_for("l", "a", ttl);
    for (key, long, short) in [
        ("l", of_lock(LONG), of_lock(SHORT)),
        ("c", of_claim(LONG), of_claim(SHORT)),
    ] {
        granted(&*node, long).await;
        granted(&*node, short).await;
        let left = view(&*node, key).await.remaining_ms.unwrap();
        assert!(Duration::from_millis(left) > LONG / 2, "{left}");
    }
}

pub(crate) async fn a_late_call_changes_nothing_n2(lab: Lab) {
    let node = lab.client().await;
    let now = ask_all(&*node, vec![take("seen", "a")]).await.at;
    let not_after = Some(NodeMs(now.0 - 1));
    let late = node
        .call(Call {
            not_after,
            ops: vec![take("k", "a")],
        })
        .await;
    assert!(
        matches!(late, Err(NodeError::Late { at }) if at >= now),
        "{late:?}"
    );
    let late = node
        .call(Call {
            not_after,
            ops: vec![release(Lock, "seen", "a")],
        })
        .await;
    assert!(matches!(late, Err(NodeError::Late { .. })), "{late:?}");
    assert_eq!(view(&*node, "k").await.holder, None);
    assert_eq!(view(&*node, "seen").await.holder.as_deref(), Some("a"));
    let not_after = Some(NodeMs(now.0 + 60_000));
    assert!(
        node.call(Call {
            not_after,
            ops: vec![take("k", "a")]
        })
        .await
        .is_ok()
    );
}

pub(crate) async fn a_call_at_its_very_end_is_late_n2(lab: Lab) {
    let node = lab.client().await;
    for _ in 0..20 {
        let not_after = Some(ask_all(&*node, vec![]).await.at);
        let ops = vec![take("k", "a")];
        let late = node.call(Call { not_after, ops }).await;
        assert!(matches!(late, Err(NodeError::Late { .. })), "{late:?}");
    }
    assert_eq!(view(&*node, "k").await.owner, None);
}

pub(crate) async fn tokens_rise_over_release_expiry_and_retention_n5(lab: Lab) {
    let node = lab.client().await;
    let (first, _) = granted(&*node, take("k", "a")).await;
    ask(&*node, release(Lock, "k", "a")).await;
    let (second, _) = granted(&*node, take_for("k", "b", SHORT)).await;
    assert!(second > first, "over a release: {first} {second}");
    wait_until_free(&*node, "k").await;
    let (third, _) = granted(&*node, take("k", "c")).await;
    assert!(third > second, "over an expiry: {second} {third}");
    ask(&*node, release_for(Lock, "k", "c", SHORT, SHORT)).await;
    pass(&*node, SHORT).await;
    assert_eq!(swept(&*node).await.1, 1);
    assert_eq!(view(&*node, "k").await.owner, None);
    let (fourth, _) = granted(&*node, take("k", "d")).await;
    assert!(fourth > third, "over a forgotten record: {third} {fourth}");
}

pub(crate) async fn strangers_change_nothing_n6(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take("k", "a")).await;
    let before = view(&*node, "k").await;
    assert_eq!(ask(&*node, release(Lock, "k", "b")).await, Answer::Done);
    refused(&*node, confirm(Lock, "k", "b", grant.0 + 100)).await;
    refused(&*node, extend(Lock, "k", "b", 7, grant.0 + 100)).await;
    refused(&*node, write("k", "b", (grant.0 + 100, 1), "mine")).await;
    let after = view(&*node, "k").await;
    assert!(after.remaining_ms <= before.remaining_ms);
    assert_eq!(
        View {
            remaining_ms: None,
            ..after
        },
        View {
            remaining_ms: None,
            ..before
        }
    );
    // A lock that was never taken has no holder either.
    refused(&*node, confirm(Lock, "free", "b", 5)).await;
    refused(&*node, write("free", "b", (5, 1), "mine")).await;
    assert_eq!(ask(&*node, release(Lock, "free", "b")).await, Answer::Done);
}

pub(crate) async fn a_grant_is_above_the_floor(lab: Lab) {
    let node = lab.client().await;
    let mut high = take("k", "a");
    if let Op::Acquire { floor, .. } = &mut high {
        *floor = Token(5_000_000_000_000);
    }
    assert_eq!(granted(&*node, high).await.0, Token(5_000_000_000_001));
    assert_eq!(view(&*node, "k").await.token, Token(5_000_000_000_001));
}

pub(crate) async fn a_lease_ends_after_its_ttl(lab: Lab) {
    let node = lab.client().await;
    let clock = Clock::system();
    let before = clock.now();
    granted(&*node, take_for("k", "a", SHORT)).await;
    wait_until_free(&*node, "k").await;
    // Redis counts in whole milliseconds.
    assert!(clock.now().since(before) + Duration::from_millis(2) >= SHORT);
    let seen = view(&*node, "k").await;
    assert_eq!((seen.owner.as_deref(), seen.released), (Some("a"), false));
    refused(&*node, confirm(Lock, "k", "a", 100)).await;
    granted(&*node, take("k", "b")).await;
}

pub(crate) async fn confirm_raises_the_counter(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take("k", "a")).await;
    let token = grant.0 + 40;
    assert_eq!(
        ask(&*node, confirm(Lock, "k", "a", token)).await,
        Answer::Done
    );
    assert_eq!(
        ask(&*node, confirm(Lock, "k", "a", token - 20)).await,
        Answer::Done
    );
    assert_eq!(view(&*node, "k").await.token, Token(token));
    ask(&*node, release(Lock, "k", "a")).await;
    assert_eq!(granted(&*node, take("k", "b")).await.0, Token(token + 1));
}

pub(crate) async fn confirm_tells_a_larger_grant(lab: Lab) {
    let node = lab.client().await;
    for round in 0..3 {
        let owner = format!("before-{round}");
        granted(&*node, take("k", &owner)).await;
        ask(&*node, release(Lock, "k", &owner)).await;
    }
    let (grant, _) = granted(&*node, take("k", "a")).await;
    let smaller = confirm(Lock, "k", "a", grant.0 - 1);
    assert_eq!(ask(&*node, smaller).await, Answer::Larger(grant));
    assert_eq!(
        ask(&*node, confirm(Lock, "k", "a", grant.0)).await,
        Answer::Done
    );
}

pub(crate) async fn extend_keeps_a_held_lease(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take_for("k", "a", LONG / 4)).await;
    let token = grant.0 + 9;
    let version = Version {
        token: grant,
        rev: 3,
    };
    ask(&*node, write("k", "a", (grant.0, 3), "body")).await;
    assert_eq!(
        ask(&*node, extend(Lock, "k", "a", 1, token)).await,
        Answer::Kept { version }
    );
    let seen = view(&*node, "k").await;
    assert!(Duration::from_millis(seen.remaining_ms.unwrap()) > LONG / 2);
    assert_eq!(
        (seen.seq, seen.token, seen.released),
        (1, Token(token), false)
    );
    assert_eq!(
        seen.record,
        Record {
            version,
            body: "body".to_owned()
        }
    );
    ask(&*node, release(Lock, "k", "a")).await;
    assert!(granted(&*node, take("k", "b")).await.0 > Token(token));
}

pub(crate) async fn extend_wants_a_newer_round(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take("k", "a")).await;
    let kept = Answer::Kept {
        version: Version::default(),
    };
    assert_eq!(ask(&*node, extend(Lock, "k", "a", 3, grant.0)).await, kept);
    for old in [0, 2, 3] {
        let seen = refused(&*node, extend(Lock, "k", "a", old, grant.0)).await;
        assert_eq!((seen.holder.as_deref(), seen.seq), (Some("a"), 3));
    }
    assert_eq!(ask(&*node, extend(Lock, "k", "a", 4, grant.0)).await, kept);
}

pub(crate) async fn extend_keeps_an_expired_lease_that_nobody_took(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take_for("k", "a", SHORT)).await;
    wait_until_free(&*node, "k").await;
    let kept = Answer::Kept {
        version: Version::default(),
    };
    assert_eq!(ask(&*node, extend(Lock, "k", "a", 1, grant.0)).await, kept);
    assert_eq!(view(&*node, "k").await.holder.as_deref(), Some("a"));
    refused(&*node, extend(Lock, "k", "a", 1, grant.0)).await;
    assert_eq!(ask(&*node, extend(Lock, "k", "a", 2, grant.0)).await, kept);
    refused(&*node, take("k", "b")).await;
}

pub(crate) async fn extend_heals_a_lost_lease_and_keeps_it_next_time(lab: Lab) {
    let node = lab.client().await;
    let version = Version::default();
    // As on a node that was restarted empty: it has never heard of this owner.
    assert_eq!(
        ask(&*node, extend(Lock, "k", "a", 7, FAR + 30)).await,
        Answer::Healed { version }
    );
    let seen = view(&*node, "k").await;
    assert_eq!(
        (seen.holder.as_deref(), seen.owner.as_deref()),
        (Some("a"), Some("a"))
    );
    assert_eq!((seen.seq, seen.token), (7, Token(FAR + 30)));
    assert_eq!(
        ask(&*node, extend(Lock, "k", "a", 8, FAR + 30)).await,
        Answer::Kept { version }
    );
    refused(&*node, extend(Lock, "k", "b", 9, FAR + 31)).await;
    ask(&*node, release(Lock, "k", "a")).await;
    refused(&*node, extend(Lock, "k", "a", 9, FAR + 30)).await;
    assert!(granted(&*node, take("k", "c")).await.0 > Token(FAR + 30));
}

pub(crate) async fn whoever_is_polite_lets_those_before_him_pass_r7(lab: Lab) {
    let node = lab.client().await;
    let queued = |owner: &str, polite| {
        let mut op = take("k", owner);
        if let Op::Acquire { ticket, .. } = &mut op {
            *ticket = Some(Ticket {
                id: format!("place of {owner}"),
                life: LONG,
                polite,
            });
        }
        op
    };
    granted(&*node, take("k", "h")).await;
    for (ahead, owner) in (0..).zip(["a", "b", "c", "d"]) {
        let seen = refused(&*node, queued(owner, true)).await;
        assert_eq!(seen.ahead, Some(ahead));
    }
    ask(&*node, release(Lock, "k", "h")).await;
    // It is free, and not their turn.
    let seen = refused(&*node, queued("b", true)).await;
    assert_eq!((seen.ahead, seen.holder), (Some(1), None));
    granted(&*node, queued("a", true)).await;
    ask(&*node, release(Lock, "k", "a")).await;
    // With the grant the place before them went.
    let seen = refused(&*node, queued("c", true)).await;
    assert_eq!(seen.ahead, Some(1));
    granted(&*node, queued("b", true)).await;
    ask(&*node, release(Lock, "k", "b")).await;
    // A waiter that has lost patience with those before it does not ask for its turn.
    granted(&*node, queued("d", false)).await;
    assert_eq!(refused(&*node, queued("c", true)).await.ahead, Some(0));
}
