//! Who is told of the end of a lease.

use super::*;
use crate::node::{Announcement, Kind::Lock, Ticket};

fn told(key: &str, owner: &str) -> Option<Announcement> {
    Some(Announcement {
        key: key.to_owned(),
        owner: owner.to_owned(),
        next: None,
    })
}

/// Everything that was announced until now: what follows the release of a lock of its own.
async fn heard(node: &dyn Node, news: &mut Announcements) -> Vec<String> {
    granted(node, take("last", "z")).await;
    refused(node, waiting(take("last", "y"), LONG)).await;
    broken(node, force("last", "z", 1, true)).await;
    let mut keys = Vec::new();
    loop {
        let key = soon(news.recv()).await.unwrap().key;
        if key == "last" {
            return keys;
        }
        keys.push(key);
    }
}

pub(crate) async fn w1_whatever_takes_the_place_of_a_record_keeps_the_wait(lab: Lab) {
    let node = lab.client().await;
    let Some(mut news) = lab.news(&*node).await else {
        return;
    };
    let (grant, _) = granted(&*node, take("k", "a")).await;
    refused(&*node, waiting(take("k", "sleeper"), LONG)).await;
    // Extended, broken, taken over, healed: each in the place of the one before.
    ask(&*node, extend(Lock, "k", "a", 1, grant.0)).await;
    broken(&*node, force("k", "a", grant.0, false)).await;
    let seen = seen_in(&view(&*node, "k").await);
    granted(&*node, observe("k", "b", Some(seen))).await;
    let seen = seen_in(&view(&*node, "k").await);
    let healed = ask(&*node, round("k", "c", 7, grant.0 + 9, Some(seen))).await;
    assert!(is_healed(&healed), "{healed:?}");
    ask(&*node, release(Lock, "k", "c")).await;
    assert_eq!(soon(news.recv()).await, told("k", "c"));
    // Another has it before the sleeper comes, who goes on waiting.
    granted(&*node, take("k", "d")).await;
    ask(&*node, release(Lock, "k", "d")).await;
    assert_eq!(soon(news.recv()).await, told("k", "d"));
    // Also over a mark that a break writes.
    broken(&*node, force("k", "e", grant.0, false)).await;
    ask(&*node, release(Lock, "k", "e")).await;
    assert_eq!(soon(news.recv()).await, told("k", "e"));
}

pub(crate) async fn w3_a_refusal_says_that_a_client_waits(lab: Lab) {
    let node = lab.client().await;
    let Some(mut news) = lab.news(&*node).await else {
        return;
    };
    for (key, life) in [("short", SHORT), ("long", LONG), ("none", Duration::ZERO)] {
        granted(&*node, take(key, "a")).await;
        refused(&*node, waiting(take(key, "b"), life)).await;
    }
    // A shorter wait does not end a longer one.
    refused(&*node, waiting(take("long", "c"), SHORT)).await;
    pass(&*node, SHORT).await;
    for key in ["short", "none", "long"] {
        ask(&*node, release(Lock, key, "a")).await;
    }
    assert_eq!(heard(&*node, &mut news).await, ["long"]);
}

pub(crate) async fn w4_what_is_forgotten_or_broken_now_is_announced(lab: Lab) {
    let node = lab.client().await;
    let Some(mut news) = lab.news(&*node).await else {
        return;
    };
    for key in ["swept", "now"] {
        granted(&*node, take(key, "a")).await;
        refused(&*node, waiting(observe(key, "b", None), LONG)).await;
    }
    let seen = seen_in(&view(&*node, "swept").await);
    ask(&*node, forget("swept", seen)).await;
    assert_eq!(soon(news.recv()).await, told("swept", "a"));
    broken(&*node, force("now", "a", 1, false)).await;
    broken(&*node, force("now", "a", 1, true)).await;
    assert_eq!(soon(news.recv()).await, told("now", "a"));
    // Once.
    broken(&*node, force("now", "a", 1, true)).await;
    assert_eq!(heard(&*node, &mut news).await, [""; 0]);
}

pub(crate) async fn w6_a_release_is_announced_to_every_client(lab: Lab) {
    let (first, second) = (lab.client().await, lab.client().await);
    let (near, far) = (lab.news(&*first).await, lab.news(&*second).await);
    let (Some(mut near), Some(mut far)) = (near, far) else {
        return;
    };
    for key in ["k", "j"] {
        granted(&*first, take(key, "a")).await;
        refused(&*second, waiting(take(key, "b"), LONG)).await;
        ask(&*first, release(Lock, key, "a")).await;
        assert_eq!(soon(near.recv()).await, told(key, "a"));
        assert_eq!(soon(far.recv()).await, told(key, "a"));
    }
    // Once.
    ask(&*first, release(Lock, "j", "a")).await;
    assert_eq!(heard(&*first, &mut near).await, [""; 0]);
}

pub(crate) async fn a_release_that_no_client_waits_for_is_announced_to_none(lab: Lab) {
    let node = lab.client().await;
    let Some(mut news) = lab.news(&*node).await else {
        return;
    };
    granted(&*node, take("k", "a")).await;
    ask(&*node, release(Lock, "k", "a")).await;
    granted(&*node, take("now", "a")).await;
    broken(&*node, force("now", "a", 1, true)).await;
    // Nothing of it stands there.
    ask(&*node, release(Lock, "never", "a")).await;
    granted(&*node, claim_for("claim", "a", LONG)).await;
    ask(&*node, release(Kind::Claim, "claim", "a")).await;
    assert_eq!(heard(&*node, &mut news).await, [""; 0]);
}

/// A place of this owner in the queue of `k`, kept for so long.
fn queued(owner: &str, life: Duration, polite: bool) -> Op {
    let mut op = take("k", owner);
    if let Op::Acquire { ticket, .. } = &mut op {
        *ticket = Some(Ticket {
            id: format!("place-of-{owner}"),
            life,
            polite,
        });
    }
    op
}

pub(crate) async fn w9_a_waiter_that_is_gone_is_passed_by_and_forgotten(lab: Lab) {
    let node = lab.client().await;
    let Some(mut news) = lab.news(&*node).await else {
        return;
    };
    let life = SHORT * 16;
    granted(&*node, take("k", "h")).await;
    refused(&*node, waiting(take("k", "sleeper"), LONG)).await;
    for owner in ["gone", "alive", "a", "b", "c"] {
        refused(&*node, queued(owner, life, true)).await;
    }
    let mut holder = "h";
    // Each time the first one is called, and another comes.
    for (first, next) in [("gone", "a"), ("alive", "b")] {
        ask(&*node, release(Lock, "k", holder)).await;
        let called = soon(news.recv()).await.unwrap().next;
        assert_eq!(called, Some(format!("place-of-{first}")));
        granted(&*node, queued(next, life, false)).await;
        holder = next;
        // One of them is only late, and says that it is there.
        refused(&*node, queued("alive", life, true)).await;
        pass(&*node, SHORT).await;
        // Whoever asks for its place finds those that have ended gone.
        refused(&*node, queued("c", life, true)).await;
    }
    ask(&*node, release(Lock, "k", holder)).await;
    let called = soon(news.recv()).await.unwrap().next;
    assert_eq!(called.as_deref(), Some("place-of-alive"));
}

/// The queue knows who waits, also where the refusal of before stood on a record that is gone.
pub(crate) async fn whoever_is_still_in_the_queue_goes_on_waiting_w1(lab: Lab) {
    let node = lab.client().await;
    let Some(mut news) = lab.news(&*node).await else {
        return;
    };
    granted(&*node, take("k", "h")).await;
    for owner in ["a", "b"] {
        refused(&*node, queued(owner, LONG, true)).await;
    }
    // No refusal has said so: the grant does.
    ask(&*node, release(Lock, "k", "h")).await;
    granted(&*node, queued("a", LONG, true)).await;
    ask(&*node, release(Lock, "k", "a")).await;
    let next = soon(news.recv()).await.unwrap();
    assert_eq!(
        (next.owner.as_str(), next.next.as_deref()),
        ("a", Some("place-of-b"))
    );
}
