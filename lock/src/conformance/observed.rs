//! Locks that are taken by their records, and what both modes share with them.

use super::*;
use crate::node::{Admission, Eligibility, Kind::Lock};

fn observe_for(key: &str, owner: &str, ttl: Duration, seen: Option<Seen>) -> Op {
    observed_take(take_for(key, owner, ttl), seen)
}

pub(crate) async fn an_observed_lease_outlives_its_end_by_the_nodes_clock_n8(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, observe_for("k", "a", SHORT, None)).await;
    wait_until_free(&*node, "k").await;
    let before = refused(&*node, observe("k", "b", None)).await;
    assert_eq!(
        (
            before.owner.as_deref(),
            before.holder.as_deref(),
            before.ttl_ms
        ),
        (Some("a"), None, 150)
    );
    assert!(before.named && !before.foreign && !before.released);
    // A client that watched exactly this may have it.
    let (next, _) = granted(&*node, observe("k", "b", Some(seen_in(&before)))).await;
    assert!(next > grant);
    let after = view(&*node, "k").await;
    assert_eq!(
        (after.owner.as_deref(), after.holder.as_deref(), after.seq),
        (Some("b"), Some("b"), 0)
    );
    refused(&*node, round("k", "a", 1, grant.0, None)).await;
}

pub(crate) async fn what_was_seen_must_stand_there_exactly_n8(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, observe("k", "a", None)).await;
    let before = seen_in(&view(&*node, "k").await);
    assert!(is_kept(
        &ask(&*node, round("k", "a", 1, grant.0, None)).await
    ));
    let now = seen_in(&view(&*node, "k").await);
    assert_eq!((before.seq, now.seq), (0, 1));
    for wrong in [
        before,
        Seen {
            seq: 2,
            ..now.clone()
        },
        Seen {
            owner: "b".into(),
            ..now.clone()
        },
        Seen {
            owner: String::new(),
            ..now.clone()
        },
        Seen {
            inc: "another".into(),
            ..now.clone()
        },
    ] {
        refused(&*node, observe("k", "b", Some(wrong.clone()))).await;
        refused(&*node, round("k", "b", 9, grant.0, Some(wrong))).await;
    }
    // Also while it still stands by the node's clock: it was not renewed for its whole life.
    assert_eq!(view(&*node, "k").await.holder.as_deref(), Some("a"));
    granted(&*node, observe("k", "b", Some(now))).await;
    assert_eq!(view(&*node, "k").await.holder.as_deref(), Some("b"));
}

pub(crate) async fn a_released_record_is_free_for_all_n8(lab: Lab) {
    let node = lab.client().await;
    granted(&*node, observe("k", "a", None)).await;
    // The same attempt sent again.
    granted(&*node, observe("k", "a", None)).await;
    ask(&*node, release(Lock, "k", "a")).await;
    refused(&*node, observe("k", "a", None)).await;
    refused(&*node, round("k", "a", 3, 1, None)).await;
    granted(&*node, observe("k", "b", None)).await;
    assert!(is_kept(&ask(&*node, round("k", "b", 1, FAR, None)).await));
    assert_eq!(view(&*node, "k").await.token, Token(FAR));
}

pub(crate) async fn an_observed_lease_is_kept_past_its_end_by_the_nodes_clock_r8(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, observe_for("k", "a", SHORT, None)).await;
    wait_until_free(&*node, "k").await;
    // Its votes count all the same.
    assert_eq!(
        ask(&*node, observed(confirm(Lock, "k", "a", grant.0 + 3))).await,
        Answer::Done
    );
    let body = observed(write("k", "a", (grant.0 + 3, 1), "ledger"));
    assert_eq!(ask(&*node, body).await, Answer::Done);
    refused(&*node, confirm(Lock, "k", "a", grant.0 + 3)).await;
    refused(&*node, write("k", "a", (grant.0 + 3, 2), "late")).await;
    refused(&*node, round("k", "a", 0, grant.0, None)).await;
    assert!(is_kept(
        &ask(&*node, round("k", "a", 1, grant.0, None)).await
    ));
    assert_eq!(view(&*node, "k").await.holder.as_deref(), Some("a"));
}

pub(crate) async fn an_ended_record_is_of_its_owner_alone_n6(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, observe_for("k", "a", SHORT, None)).await;
    wait_until_free(&*node, "k").await;
    refused(&*node, observed(confirm(Lock, "k", "b", grant.0 + 9))).await;
    refused(&*node, observed(write("k", "b", (grant.0 + 9, 1), "no"))).await;
    let after = view(&*node, "k").await;
    assert_eq!((after.token, after.record), (grant, Record::default()));
}

pub(crate) async fn a_released_record_is_nobodys_to_confirm_or_write_n4(lab: Lab) {
    let node = lab.client().await;
    let (grant, _) = granted(&*node, observe("k", "a", None)).await;
    ask(&*node, release(Lock, "k", "a")).await;
    refused(&*node, observed(confirm(Lock, "k", "a", grant.0 + 9))).await;
    refused(&*node, observed(write("k", "a", (grant.0 + 9, 1), "no"))).await;
    let after = view(&*node, "k").await;
    assert_eq!((after.token, after.record), (grant, Record::default()));
}

pub(crate) async fn a_round_heals_by_the_take_rule_r9(lab: Lab) {
    let node = lab.client().await;
    // Where there is nothing, and where an owner has let go.
    assert!(is_healed(
        &ask(&*node, round("empty", "a", 4, FAR, None)).await
    ));
    granted(&*node, observe("left", "x", None)).await;
    ask(&*node, release(Lock, "left", "x")).await;
    assert!(is_healed(
        &ask(&*node, round("left", "a", 4, FAR, None)).await
    ));
    assert!(is_kept(
        &ask(&*node, round("left", "a", 5, FAR, None)).await
    ));
    // The leftover of a dead owner only when it has been watched.
    granted(&*node, observe_for("orphan", "x", SHORT, None)).await;
    wait_until_free(&*node, "orphan").await;
    let seen = refused(&*node, round("orphan", "a", 4, FAR, None)).await;
    let answer = ask(&*node, round("orphan", "a", 4, FAR, Some(seen_in(&seen)))).await;
    assert!(is_healed(&answer), "{answer:?}");
    let after = view(&*node, "orphan").await;
    assert_eq!((after.owner.as_deref(), after.seq), (Some("a"), 4));
    // Never what was released here.
    ask(&*node, release(Lock, "empty", "a")).await;
    refused(&*node, round("empty", "a", 9, FAR, None)).await;
}

pub(crate) async fn the_clock_alone_decides_when_the_server_expires(lab: Lab) {
    let node = lab.client().await;
    granted(&*node, observe_for("k", "a", SHORT, None)).await;
    wait_until_free(&*node, "k").await;
    granted(&*node, take("k", "b")).await;
    refused(&*node, observe("k", "c", None)).await;
}

pub(crate) async fn a_broken_lease_is_not_free_before_it_let_go_or_was_watched_n7(lab: Lab) {
    let node = lab.client().await;
    for (key, lets_go) in [("k", true), ("l", false)] {
        granted(&*node, observe_for(key, "a", SHORT, None)).await;
        broken(&*node, force(key, "a", 50, false)).await;
        refused(&*node, round(key, "a", 1, 1, None)).await;
        refused(&*node, observed(confirm(Lock, key, "a", 50))).await;
        refused(&*node, observed(write(key, "a", (50, 1), "mine"))).await;
        wait_until_free(&*node, key).await;
        let seen = refused(&*node, observe(key, "b", None)).await;
        assert!(seen.broken && !seen.released, "{seen:?}");
        let next = if lets_go {
            ask(&*node, release(Lock, key, "a")).await;
            let after = view(&*node, key).await;
            assert!(after.released && !after.broken, "{after:?}");
            observe(key, "b", None)
        } else {
            observe(key, "b", Some(seen_in(&seen)))
        };
        assert!(granted(&*node, next).await.0 > Token(50));
    }
    granted(&*node, observe("now", "a", None)).await;
    broken(&*node, force("now", "a", 50, true)).await;
    assert!(view(&*node, "now").await.released);
    granted(&*node, observe("now", "b", None)).await;
}

pub(crate) async fn only_what_ends_by_the_clock_is_cut_to_the_longest_life_n10(lab: Lab) {
    let node = lab.client().await;
    let second = Duration::from_secs(1);
    let short = |mut op: Op| {
        if let Op::Acquire { clamp, .. } = &mut op {
            *clamp = second;
        }
        op
    };
    for (key, first, contender) in [
        ("server", take("server", "a"), take("server", "b")),
        (
            "observed",
            observe("observed", "a", None),
            observe("observed", "b", None),
        ),
        (
            "claim",
            claim_for("claim", "a", LONG),
            claim_for("claim", "b", LONG),
        ),
    ] {
        granted(&*node, first).await;
        let seen = refused(&*node, contender.clone()).await;
        assert!(seen.remaining_ms > Some(10_000), "{seen:?}");
        let seen = refused(&*node, short(contender)).await;
        // The holder of a named lock may have longer leases than the client that comes; of claims that is not known.
        let cut = key == "claim";
        let most = second + unknown_time(&*node);
        let most = u64::try_from(most.as_millis()).ok();
        assert_eq!(seen.remaining_ms <= most, cut, "{seen:?}");
        assert_eq!(view(&*node, key).await.remaining_ms <= most, cut);
    }
}

pub(crate) async fn what_nobody_guards_votes_and_needs_no_admission(lab: Lab) {
    let node = lab.client().await;
    let nonce = || "n".to_owned();
    let reply = ask_all(
        &*node,
        vec![
            observe("k", "a", None),
            Op::Nominate {
                nonce: nonce(),
                over: None,
            },
            Op::Admit {
                nonce: nonce(),
                config: "one".into(),
                roster: String::new(),
                counter: Token(90),
                memory_loss: None,
            },
            Op::Admission,
        ],
    )
    .await;
    assert_eq!(reply.eligibility, Eligibility::Unguarded);
    assert!(matches!(reply.answers[0], Answer::Granted { .. }));
    assert_eq!(reply.answers[2], Answer::Unadmitted);
    let plain = Admission {
        admitted: true,
        ..Admission::default()
    };
    for answer in [&reply.answers[1], &reply.answers[3]] {
        let Answer::Admission(shown) = answer else {
            panic!("{answer:?}")
        };
        let counter = shown.counter;
        is_counted(&*node, counter, 0);
        assert_eq!(
            *shown,
            Admission {
                counter,
                ..plain.clone()
            }
        );
    }
}

/// The same operation of an observed lease.
fn observed(op: Op) -> Op {
    match op {
        Op::Confirm {
            key,
            owner,
            kind,
            token,
            ..
        } => Op::Confirm {
            key,
            owner,
            kind,
            token,
            expiry: Expiry::Observed,
        },
        Op::Write {
            key,
            owner,
            version,
            body,
            not_before,
            ..
        } => Op::Write {
            key,
            owner,
            version,
            body,
            not_before,
            expiry: Expiry::Observed,
        },
        other => other,
    }
}
