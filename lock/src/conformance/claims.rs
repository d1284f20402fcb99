//! Short claims of batches and messages.

use super::*;
use crate::node::Kind::{Claim, Lock};

fn claim(key: &str, owner: &str) -> Op {
    claim_for(key, owner, LONG)
}

fn claim_above(key: &str, owner: &str, floor: u64) -> Op {
    above(claim(key, owner), floor)
}

fn take_above(key: &str, owner: &str, floor: u64) -> Op {
    above(take(key, owner), floor)
}

fn above(op: Op, above: u64) -> Op {
    match op {
        Op::Acquire {
            key,
            owner,
            kind,
            ttl,
            take,
            clamp,
            ticket,
            waits,
            ..
        } => Op::Acquire {
            key,
            owner,
            kind,
            ttl,
            floor: Token(above),
            take,
            clamp,
            ticket,
            waits,
        },
        other => other,
    }
}

pub(crate) async fn claims_of_one_owner_in_a_call_share_one_grant(lab: Lab) {
    let node = lab.client().await;
    let reply = ask_all(
        &*node,
        vec![claim("1", "a"), claim("2", "a"), claim("3", "b")],
    )
    .await;
    let grants: Vec<Token> = reply.answers.iter().map(grant_of).collect();
    assert_eq!(grants[0], grants[1]);
    assert!(grants[2] > grants[0]);
    // What is sent again is what stands there; a later call has a grant of its own.
    assert_eq!(granted(&*node, claim("1", "a")).await.0, grants[0]);
    assert!(granted(&*node, claim("4", "a")).await.0 > grants[2]);
    // A lock that was here is never followed by a smaller number.
    granted(&*node, take_above("8", "e", FAR + 90)).await;
    ask(&*node, release(Lock, "8", "e")).await;
    let after = vec![claim("9", "f"), claim("8", "f"), claim("10", "f")];
    let reply = ask_all(&*node, after).await;
    let grants: Vec<Token> = reply.answers.iter().map(grant_of).collect();
    assert!(
        grants[0] < Token(FAR + 90) && grants[1] > Token(FAR + 91),
        "{grants:?}"
    );
    assert_eq!(grants[1], grants[2]);
    // Nor by one that its sender has seen.
    let floors = vec![claim("11", "g"), claim_above("12", "g", 2 * FAR)];
    let reply = ask_all(&*node, floors).await;
    assert!(grant_of(&reply.answers[1]) > Token(2 * FAR), "{reply:?}");
    let between = vec![claim("5", "c"), claim("6", "d"), claim("7", "c")];
    let reply = ask_all(&*node, between).await;
    assert_eq!(grant_of(&reply.answers[0]), grant_of(&reply.answers[2]));
}

pub(crate) async fn a_held_claim_is_refused_and_the_others_granted(lab: Lab) {
    let (first, second) = (lab.client().await, lab.client().await);
    granted(&*first, claim("2", "a")).await;
    let ops = ["1", "2", "3"].map(|key| claim(key, "b")).to_vec();
    let reply = ask_all(&*second, ops).await;
    assert_eq!(grant_of(&reply.answers[0]), grant_of(&reply.answers[2]));
    let Answer::Refused(seen) = &reply.answers[1] else {
        panic!("{reply:?}")
    };
    assert_eq!(
        (seen.key.as_str(), seen.holder.as_deref()),
        ("2", Some("a"))
    );
    assert!(seen.remaining_ms.is_some());
}

pub(crate) async fn a_released_claim_is_nobodys(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, claim("1", "a")).await;
    granted(&*node, claim("2", "a")).await;
    assert_eq!(ask(&*node, release(Claim, "1", "a")).await, Answer::Done);
    refused(&*node, extend(Claim, "1", "a", 1, grant.0)).await;
    refused(&*node, confirm(Claim, "1", "a", grant.0)).await;
    assert_eq!(view(&*node, "1").await.holder, None);
    // What the owner still holds is untouched, and others may have the rest.
    let kept = ask(&*node, extend(Claim, "2", "a", 1, grant.0)).await;
    assert!(matches!(kept, Answer::Kept { .. }), "{kept:?}");
    assert!(granted(&*node, claim("1", "b")).await.0 > grant);
    assert_eq!(ask(&*node, release(Claim, "1", "a")).await, Answer::Done);
    assert_eq!(view(&*node, "1").await.holder.as_deref(), Some("b"));
}

pub(crate) async fn a_claim_is_kept_while_held_and_never_healed(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, claim_for("1", "a", LONG / 4)).await;
    let kept = ask(&*node, extend(Claim, "1", "a", 1, grant.0)).await;
    assert!(matches!(kept, Answer::Kept { .. }), "{kept:?}");
    let left = view(&*node, "1").await.remaining_ms.unwrap();
    assert!(Duration::from_millis(left) > LONG / 2);
    let (grant, _) = granted(&*node, claim_for("2", "b", SHORT)).await;
    wait_until_free(&*node, "2").await;
    refused(&*node, extend(Claim, "2", "b", 1, grant.0)).await;
    refused(&*node, extend(Claim, "3", "b", 1, grant.0)).await;
    assert_eq!(view(&*node, "2").await.holder, None);
    assert_eq!(view(&*node, "3").await.holder, None);
}

pub(crate) async fn claims_are_confirmed_like_locks(lab: Lab) {
    let node = lab.client().await;
    granted(&*node, claim("1", "before")).await;
    let (grant, _) = granted(&*node, claim("2", "a")).await;
    let smaller = ask(&*node, confirm(Claim, "2", "a", grant.0 - 1)).await;
    assert_eq!(smaller, Answer::Larger(grant));
    assert_eq!(
        ask(&*node, confirm(Claim, "2", "a", grant.0 + 10)).await,
        Answer::Done
    );
    refused(&*node, confirm(Claim, "2", "b", grant.0 + 10)).await;
    refused(&*node, confirm(Claim, "3", "a", grant.0 + 10)).await;
    assert!(granted(&*node, claim("3", "b")).await.0 > Token(grant.0 + 10));
}

pub(crate) async fn claims_raise_what_new_locks_begin_above(lab: Lab) {
    let node = lab.client().await;
    let (claimed, _) = granted(&*node, claim("claim", "b")).await;
    let (lock, _) = granted(&*node, take("lock", "a")).await;
    assert!(lock > claimed);
    // A lock counts by itself while its record stands, and a claim is above those that are gone.
    ask(&*node, confirm(Lock, "lock", "a", lock.0 + FAR)).await;
    let seen = seen_in(&view(&*node, "lock").await);
    ask(&*node, forget("lock", seen)).await;
    let second = granted(&*node, claim("claim 2", "d")).await.0;
    is_next(&*node, second, lock.0 + FAR);
    ask(&*node, release(Claim, "claim 2", "d")).await;
    is_next(&*node, granted(&*node, take("new", "c")).await.0, second.0);
    // So do its rounds.
    let kept = ask(&*node, extend(Claim, "claim", "b", 1, lock.0 + 2 * FAR)).await;
    assert!(is_kept(&kept), "{kept:?}");
    let newer = granted(&*node, take("newer", "c")).await.0;
    is_next(&*node, newer, lock.0 + 2 * FAR);
}

pub(crate) async fn a_claim_and_a_lock_of_one_name_bar_each_other(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, take_for("k", "a", SHORT)).await;
    let seen = seen_in(&view(&*node, "k").await);
    refused(&*node, claim("k", "b")).await;
    wait_until_free(&*node, "k").await;
    // What it takes the place of is forgotten.
    assert!(granted(&*node, claim("k", "b")).await.0 > grant);
    for attempt in [
        take("k", "c"),
        observe("k", "c", None),
        observe("k", "c", Some(seen)),
        extend(Lock, "k", "a", 1, 90),
        round("k", "a", 1, 90, None),
    ] {
        let seen = refused(&*node, attempt).await;
        assert_eq!((seen.holder.as_deref(), seen.owner), (Some("b"), None));
    }
    ask(&*node, release(Claim, "k", "b")).await;
    assert!(granted(&*node, take("k", "c")).await.0.0 > grant.0 + 1);
    ask(&*node, release(Lock, "k", "c")).await;
    granted(&*node, claim("k", "d")).await;
}

fn grant_of(answer: &Answer) -> Token {
    match answer {
        Answer::Granted { grant, record } => {
            assert_eq!(*record, Record::default());
            *grant
        }
        other => panic!("not granted: {other:?}"),
    }
}

/// Nothing would refuse its holder, which believes in it until its end: another owner would be the second to believe.
pub(crate) async fn a_claim_is_not_broken_n7(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, claim("1", "a")).await;
    for (owner, now) in [("b", true), ("a", false), ("a", true)] {
        let before = refused(&*node, force("1", owner, grant.0 + 3, now)).await;
        assert_eq!(before.holder.as_deref(), Some("a"));
    }
    refused(&*node, claim("1", "b")).await;
    let kept = ask(&*node, extend(Claim, "1", "a", 1, grant.0)).await;
    assert!(is_kept(&kept), "{kept:?}");
}

pub(crate) async fn a_grant_of_claims_is_above_the_floor(lab: Lab) {
    let node = lab.client().await;
    let mut above = claim("1", "a");
    if let Op::Acquire { floor, .. } = &mut above {
        *floor = Token(FAR + 60);
    }
    assert_eq!(granted(&*node, above).await.0, Token(FAR + 61));
    assert!(granted(&*node, claim("2", "b")).await.0 > Token(FAR + 61));
}
