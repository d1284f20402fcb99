//! What a fleet has in common and the restart guard, for every node that has them. `Guarded` connects clients of fleets with this
//! configuration; those whose begins with `off` go without the guard.

use super::*;
use crate::node::{Admission, Eligibility, Kind::Lock};

/// Connects a client of a fleet with this configuration to one node.
pub type Guarded<'a> = &'a (dyn Fn(&str) -> Arc<dyn Node> + Sync);

/// What the node says of its admission.
pub async fn admission(node: &dyn Node) -> Admission {
    told(ask(node, Op::Admission).await)
}

fn told(answer: Answer) -> Admission {
    match answer {
        Answer::Admission(admission) => admission,
        other => panic!("{other:?}"),
    }
}

/// What is shown, with this counter.
fn counting(shown: Admission, counter: Token) -> Admission {
    Admission { counter, ..shown }
}

/// Whether the node may vote.
pub async fn eligibility(node: &dyn Node) -> Eligibility {
    ask_all(node, vec![]).await.eligibility
}

fn nominate(nonce: &str) -> Op {
    Op::Nominate {
        nonce: nonce.to_owned(),
        over: None,
    }
}

fn admit_as(nonce: &str, config: &str, counter: u64) -> Op {
    Op::Admit {
        nonce: nonce.to_owned(),
        config: config.to_owned(),
        roster: String::new(),
        counter: Token(counter),
        memory_loss: Some(12),
    }
}

/// Nominates for its own fleet, and admits for another one.
async fn admitted_as(node: &dyn Node, nonce: &str, config: &str) {
    let reply = ask_all(node, vec![nominate(nonce), admit_as(nonce, config, 0)]).await;
    assert_eq!(reply.answers[1], Answer::Done);
}

/// Nominates and admits at once, as no fleet does.
pub async fn admitted(node: &dyn Node, nonce: &str, config: &str) {
    let reply = ask_all(node, vec![nominate(nonce), admit_as(nonce, config, 0)]).await;
    assert_eq!(reply.answers[1], Answer::Done);
    assert!(reply.eligibility.is_admitted());
}

/// All that does not need a fault.
pub async fn every_rule(fresh: impl Fn() -> Box<dyn Fn(&str) -> Arc<dyn Node> + Sync>) {
    an_unadmitted_node_votes_for_nobody_and_does_the_rest(&*fresh()).await;
    only_the_standing_nomination_is_admitted(&*fresh()).await;
    what_is_merged_is_the_body_alone(&*fresh()).await;
    another_configuration_is_named_and_gets_no_vote(&*fresh()).await;
    a_nomination_is_that_of_its_fleet(&*fresh()).await;
    unguarded_the_first_vote_makes_the_fleet(&*fresh()).await;
    with_and_without_the_guard_each_names_the_other(&*fresh()).await;
    unguarded_a_vote_that_was_taken_away_comes_back_by_admission(&*fresh()).await;
    a_record_of_an_earlier_admission_names_nobody(&*fresh()).await;
    c1_a_grant_is_above_what_the_node_was_admitted_with(&*fresh()).await;
    e1_a_round_keeps_only_what_is_of_this_admission(&*fresh()).await;
    b3_a_node_without_a_vote_is_told_of_no_break(&*fresh()).await;
    what_is_of_an_earlier_admission_is_swept_when_its_time_is_up(&*fresh()).await;
}

async fn an_unadmitted_node_votes_for_nobody_and_does_the_rest(guarded: Guarded<'_>) {
    let node = guarded("one");
    let doc = Op::PutDoc {
        name: "d".into(),
        rev: 1,
        ttl: LONG,
        body: "x".into(),
    };
    let ops = vec![
        take("k", "a"),
        confirm(Lock, "k", "a", 1),
        extend(Lock, "k", "a", 1, 1),
        write("k", "a", (1, 1), "x"),
        claim_for("c", "a", LONG),
        force("k", "a", 1, true),
        forget(
            "k",
            Seen {
                inc: String::new(),
                owner: "a".into(),
                seq: 0,
            },
        ),
        release(Lock, "k", "a"),
        doc,
        Op::Read { key: "k".into() },
        Op::Sweep {
            from: Cursor::default(),
            count: 9,
        },
    ];
    let reply = ask_all(&*node, ops).await;
    assert_eq!(reply.eligibility, Eligibility::Unadmitted);
    assert_eq!(reply.answers[..7], vec![Answer::Unadmitted; 7]);
    assert_eq!(reply.answers[7..9], [Answer::Done, Answer::Done]);
    assert_eq!(reply.answers[10], Answer::Page(Page::default()));
    let Answer::View(seen) = &reply.answers[9] else {
        panic!("{reply:?}")
    };
    assert_eq!((&seen.owner, &seen.holder), (&None, &None));
}

async fn only_the_standing_nomination_is_admitted(guarded: Guarded<'_>) {
    let node = guarded("one");
    assert_eq!(
        ask(&*node, admit_as("n", "one", 1)).await,
        Answer::Unadmitted
    );
    let first = told(ask(&*node, nominate("n")).await);
    assert_eq!((first.nonce.as_deref(), first.admitted), (Some("n"), false));
    assert!(!first.incarnation.is_empty());
    // One that stands is not replaced.
    let second = told(ask(&*node, nominate("m")).await);
    is_counted(&*node, second.counter, first.counter.0);
    let counter = second.counter;
    assert_eq!(second, counting(first.clone(), counter));
    assert_eq!(
        ask(&*node, admit_as("m", "one", 1)).await,
        Answer::Unadmitted
    );
    assert_eq!(eligibility(&*node).await, Eligibility::Unadmitted);
    assert_eq!(
        ask(&*node, admit_as("n", "one", FAR + 70)).await,
        Answer::Done
    );
    // By two who watched it, or sent again.
    assert_eq!(
        ask(&*node, admit_as("n", "one", FAR + 80)).await,
        Answer::Done
    );
    let after = admission(&*node).await;
    let wanted = Admission {
        nonce: None,
        nominated_for: None,
        admitted: true,
        inc: "n".into(),
        marker: format!("{:-<16}{}", "n", "0".repeat(16)),
        config: Some("one".into()),
        memory_loss: Some(12),
        ..first
    };
    is_counted(&*node, after.counter, FAR + 80);
    let counter = after.counter;
    assert_eq!(after, counting(wanted, counter));
    assert!(eligibility(&*node).await.is_admitted());
    assert!(granted(&*node, take("k", "a")).await.0 > Token(FAR + 80));
    let seen = view(&*node, "k").await;
    assert_eq!((seen.inc.as_str(), seen.named), ("n", true));
    // What is admitted needs no other.
    assert_eq!(told(ask(&*node, nominate("m")).await).nonce, None);
}

async fn what_is_merged_is_the_body_alone(guarded: Guarded<'_>) {
    let node = guarded("one");
    ask(&*node, nominate("n")).await;
    let merge = |nonce: &str, key: &str, version: (u64, u64), body: &str, retention| Op::Merge {
        nonce: nonce.to_owned(),
        key: key.to_owned(),
        record: Record {
            version: Version {
                token: Token(version.0),
                rev: version.1,
            },
            body: body.to_owned(),
        },
        retention,
    };
    assert_eq!(
        ask(&*node, merge("m", "k", (9, 9), "no", LONG)).await,
        Answer::Unadmitted
    );
    for (version, body) in [((30, 2), "new"), ((30, 1), "old")] {
        let merged = merge("n", "k", version, body, LONG);
        assert_eq!(ask(&*node, merged).await, Answer::Done);
    }
    ask(&*node, merge("n", "short", (5, 5), "ends", SHORT)).await;
    let seen = view(&*node, "k").await;
    assert_eq!((seen.token, seen.record.body.as_str()), (Token(0), "new"));
    assert_eq!((seen.owner, seen.named, seen.holder), (None, false, None));
    let listed = walk(&*node, |from, count| Op::Records { from, count }).await;
    assert_eq!(listed.bodies[0].0, "k", "also for the next that is merged");
    ask(&*node, admit_as("n", "one", FAR)).await;
    assert_eq!(
        ask(&*node, merge("n", "k", (99, 9), "late", LONG)).await,
        Answer::Unadmitted
    );
    let (grant, record) = granted(&*node, take("k", "a")).await;
    is_next(&*node, grant, FAR);
    assert_eq!(record.body, "new");
    pass(&*node, SHORT).await;
    assert_eq!(view(&*node, "short").await.record, Record::default());
}

async fn another_configuration_is_named_and_gets_no_vote(guarded: Guarded<'_>) {
    let (one, two) = (guarded("one"), guarded("two"));
    admitted(&*one, "n", "one").await;
    let reply = ask_all(&*two, vec![take("k", "b"), release(Lock, "k", "c")]).await;
    assert_eq!(reply.eligibility, Eligibility::Configured("one".into()));
    assert_eq!(reply.answers, [Answer::Unadmitted, Answer::Done]);
    granted(&*one, take("k", "a")).await;
    assert!(view(&*two, "k").await.named, "it is read all the same");
}

async fn a_nomination_is_that_of_its_fleet(guarded: Guarded<'_>) {
    let (one, two) = (guarded("one"), guarded("two"));
    let shown = told(ask(&*two, nominate("n")).await);
    assert_eq!(shown.nominated_for.as_deref(), Some("two"));
    // No other fleet admits it, or says what it must know.
    assert_eq!(
        ask(&*one, admit_as("n", "one", 1)).await,
        Answer::Unadmitted
    );
    let over = |nonce: &str, other: &str| Op::Nominate {
        nonce: nonce.to_owned(),
        over: Some(other.to_owned()),
    };
    let shown = told(ask(&*one, over("m", "another")).await);
    assert_eq!(shown.nonce.as_deref(), Some("n"), "only what was seen");
    let shown = told(ask(&*one, over("m", "n")).await);
    let found = (shown.nonce.as_deref(), shown.nominated_for.as_deref());
    assert_eq!(found, (Some("m"), Some("one")));
    let late = ask(&*two, admit_as("n", "two", 1)).await;
    assert_eq!(late, Answer::Unadmitted);
    assert_eq!(ask(&*one, admit_as("m", "one", 1)).await, Answer::Done);
    assert_eq!(admission(&*one).await.nominated_for, None);
}

async fn unguarded_the_first_vote_makes_the_fleet(guarded: Guarded<'_>) {
    let (one, two) = (guarded("off one"), guarded("off two"));
    let looked = ask_all(&*two, vec![Op::Read { key: "k".into() }]).await;
    assert_eq!(looked.eligibility, Eligibility::Unguarded);
    assert_eq!(admission(&*one).await.config, None, "a look makes none");
    granted(&*one, take("k", "a")).await;
    assert!(eligibility(&*one).await.is_admitted());
    assert_eq!(view(&*one, "k").await.inc, "", "of no incarnation");
    let reply = ask_all(&*two, vec![take("k", "b")]).await;
    assert_eq!(reply.eligibility, Eligibility::Configured("off one".into()));
    assert_eq!(reply.answers, [Answer::Unadmitted]);
    refused(&*one, take("k", "b")).await;
    let on = guarded("one");
    let reply = ask_all(&*on, vec![take("k", "b")]).await;
    assert_eq!(reply.eligibility, Eligibility::Configured("off one".into()));
    assert_eq!(reply.answers, [Answer::Unadmitted]);
}

async fn with_and_without_the_guard_each_names_the_other(guarded: Guarded<'_>) {
    let (off, on) = (guarded("off one"), guarded("one"));
    // Also before the one that watches has admitted it.
    ask(&*on, nominate("n")).await;
    for admits in [false, true] {
        if admits {
            assert_eq!(ask(&*on, admit_as("n", "one", 0)).await, Answer::Done);
            granted(&*on, take("k", "a")).await;
        }
        let reply = ask_all(&*off, vec![take("k", "b")]).await;
        let named = Eligibility::Configured("one".into());
        assert_eq!(
            (reply.eligibility, &reply.answers[..]),
            (named, &[Answer::Unadmitted][..])
        );
    }
}

/// As `doctor --reconfigure` does.
async fn unguarded_a_vote_that_was_taken_away_comes_back_by_admission(guarded: Guarded<'_>) {
    let (before, after) = (guarded("off one"), guarded("off two"));
    granted(&*before, take("k", "a")).await;
    ask(&*before, release(Lock, "k", "a")).await;
    admitted_as(&*after, "n", "closed").await;
    for node in [&before, &after] {
        // A connection that has seen the marker misses it first.
        ask(&**node, take("k", "b")).await;
        assert_eq!(ask(&**node, take("k", "b")).await, Answer::Unadmitted);
    }
    admitted(&*after, "m", "off two").await;
    granted(&*after, take("k", "b")).await;
    ask(&*before, take("k", "c")).await;
    assert_eq!(ask(&*before, take("k", "c")).await, Answer::Unadmitted);
}

async fn a_record_of_an_earlier_admission_names_nobody(guarded: Guarded<'_>) {
    let (one, two) = (guarded("one"), guarded("two"));
    admitted(&*one, "n", "one").await;
    let observed = |owner: &str| observe("k", owner, None);
    let (grant, _) = granted(&*one, observed("a")).await;
    ask(&*one, write("k", "a", (grant.0, 1), "ledger")).await;
    refused(&*one, observed("b")).await;
    admitted(&*two, "m", "two").await;
    // A connection that has seen the marker misses it first, and then looks at what stands there.
    assert!(!eligibility(&*one).await.is_admitted());
    assert_eq!(
        eligibility(&*one).await,
        Eligibility::Configured("two".into())
    );
    let seen = view(&*two, "k").await;
    assert_eq!((seen.named, seen.inc.as_str()), (false, "n"));
    refused(&*two, confirm(Lock, "k", "a", grant.0)).await;
    let (next, record) = granted(&*two, observed("b")).await;
    assert!(next > grant);
    assert_eq!(record.body, "ledger");
    // Its owner still lets go of what is its own, and of nothing else.
    ask(&*one, release(Lock, "k", "a")).await;
    assert_eq!(view(&*two, "k").await.holder.as_deref(), Some("b"));
}

/// Also where a record of an earlier admission knows no more than what was true then.
async fn c1_a_grant_is_above_what_the_node_was_admitted_with(guarded: Guarded<'_>) {
    let (one, two) = (guarded("one"), guarded("two"));
    admitted(&*one, "n", "one").await;
    assert!(granted(&*one, take("k", "a")).await.0 < Token(FAR));
    ask(&*one, release(Lock, "k", "a")).await;
    ask_all(&*two, vec![nominate("m"), admit_as("m", "two", FAR)]).await;
    is_next(&*two, granted(&*two, take("k", "b")).await.0, FAR);
}

async fn e1_a_round_keeps_only_what_is_of_this_admission(guarded: Guarded<'_>) {
    let (one, two) = (guarded("one"), guarded("two"));
    admitted(&*one, "n", "one").await;
    let (grant, _) = granted(&*one, observe("k", "a", None)).await;
    let claimed = granted(&*one, claim_for("c", "a", LONG)).await.0;
    admitted(&*two, "m", "two").await;
    // For all others it names nobody, and so it is no vote.
    let answer = ask(&*two, round("k", "a", 1, grant.0, None)).await;
    assert!(is_healed(&answer), "{answer:?}");
    let seen = view(&*two, "k").await;
    assert_eq!((seen.named, seen.inc.as_str(), seen.seq), (true, "m", 1));
    assert!(is_kept(
        &ask(&*two, round("k", "a", 2, grant.0, None)).await
    ));
    refused(&*two, extend(Kind::Claim, "c", "a", 1, claimed.0)).await;
    assert!(granted(&*two, claim_for("c", "b", LONG)).await.0 > claimed);
}

async fn b3_a_node_without_a_vote_is_told_of_no_break(guarded: Guarded<'_>) {
    let (one, two) = (guarded("one"), guarded("two"));
    admitted(&*one, "n", "one").await;
    let (grant, _) = granted(&*one, take("k", "a")).await;
    for now in [false, true] {
        for key in ["k", "never"] {
            let answer = ask(&*two, force(key, "a", grant.0 + 9, now)).await;
            assert_eq!(answer, Answer::Unadmitted);
        }
    }
    let seen = view(&*one, "k").await;
    assert_eq!(
        (seen.holder.as_deref(), seen.broken, seen.token),
        (Some("a"), false, grant)
    );
    assert_eq!(view(&*one, "never").await.owner, None);
}

async fn what_is_of_an_earlier_admission_is_swept_when_its_time_is_up(guarded: Guarded<'_>) {
    let (one, two) = (guarded("one"), guarded("two"));
    admitted(&*one, "n", "one").await;
    let (grant, _) = granted(&*one, take_for("short", "a", SHORT)).await;
    ask(&*one, confirm(Lock, "short", "a", grant.0 + FAR)).await;
    granted(&*one, take("long", "a")).await;
    admitted(&*two, "m", "two").await;
    pass(&*two, SHORT).await;
    assert_eq!(swept(&*two).await, (vec![], 1));
    assert_eq!(view(&*two, "short").await.owner, None);
    assert_eq!(view(&*two, "long").await.owner.as_deref(), Some("a"));
    is_counted(&*two, admission(&*two).await.counter, grant.0 + FAR);
}
