//! What is sent for a call, and what is made of answers.

use std::time::Duration;

use super::{
    encode::{LONGEST_MS, life, literal, millis},
    *,
};
use crate::node::*;

const ROW: &str = concat!(
    "H",
    "0000000000000012",
    "0000000000000011",
    "0000000002000",
    "0000000000000",
    "0000030000",
    "0000000000000009",
    "0000000000000001",
    "0000000000000003",
    "nonce-----------",
    "a"
);

fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn guarded(mode: RestartGuard, ops: Vec<Op>) -> Prepared {
    let config = "one".to_owned();
    let layout = Layout::new("app", false, GuardSettings { mode, config });
    let not_after = None;
    Prepared::new(&Arc::new(layout), Call { not_after, ops })
}

fn prepared(ops: Vec<Op>) -> Prepared {
    let layout = Layout::new("app", false, GuardSettings::default());
    let not_after = None;
    Prepared::new(&Arc::new(layout), Call { not_after, ops })
}

fn read() -> Op {
    Op::Read { key: "k".into() }
}

fn claim(key: &str, owner: &str) -> Op {
    release(key, owner, Kind::Claim)
}

fn release(key: &str, owner: &str, kind: Kind) -> Op {
    Op::Release {
        key: key.into(),
        owner: owner.into(),
        kind,
        marked: Duration::from_secs(2),
        retention: Duration::from_secs(1),
    }
}

/// The words of a command.
fn sent(call: &Prepared, peer: &Peer) -> Vec<String> {
    let packed = call.by_digest(peer).get_packed_command();
    let words = String::from_utf8(packed).unwrap();
    let words = words.split("\r\n").filter(|w| !w.starts_with('$')).skip(1);
    words.map(str::to_owned).collect()
}

/// What is shown of a lock where this stands.
fn shown(row: &str) -> View {
    let fields = [Value::Int(8), bulk(row), Value::Int(1), Value::Int(-1)];
    let rest = [bulk(""), Value::Nil, Value::Int(-2)];
    let answer = Value::Array(fields.into_iter().chain(rest).collect());
    let reply = vec![Value::Int(1), Value::Int(1000), Value::Array(vec![answer])];
    let (reply, _) = prepared(vec![read()])
        .decode(Value::Array(reply), &Peer::default())
        .unwrap();
    match reply.answers.into_iter().next() {
        Some(Answer::View(view)) => view,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_late_call_is_an_error_with_the_nodes_clock() {
    let reply = Value::Array(vec![Value::Int(0), Value::Int(1_795_189_257_541)]);
    let late = prepared(vec![read()]).decode(reply, &Peer::default());
    assert_eq!(
        late.unwrap_err(),
        NodeError::Late {
            at: NodeMs(1_795_189_257_541)
        }
    );
}

#[test]
fn nonsense_is_a_protocol_error_and_never_a_panic() {
    let call = prepared(vec![read()]);
    let all = |answers| Value::Array(vec![Value::Int(1), Value::Int(4), Value::Array(answers)]);
    for reply in [
        Value::Nil,
        Value::Array(vec![]),
        Value::Array(vec![Value::Int(1), Value::Int(-4), Value::Array(vec![])]),
        all(vec![]),
    ] {
        assert!(matches!(
            call.decode(reply, &Peer::default()),
            Err(NodeError::Protocol(_))
        ));
    }
    // That of one operation costs this one alone.
    for answer in [
        Value::Int(-9),
        Value::Array(vec![Value::Int(8), Value::Int(1)]),
        Value::Array(vec![Value::Int(99), bulk("x")]),
    ] {
        let two = prepared(vec![read(), read()]);
        let (reply, _) = two
            .decode(all(vec![answer, Value::Int(0)]), &Peer::default())
            .unwrap();
        assert!(
            matches!(
                reply.answers[..],
                [Answer::Failed(NodeError::Protocol(_)), Answer::Done]
            ),
            "{reply:?}"
        );
    }
}

#[test]
fn a_row_is_read_by_its_places() {
    let view = shown(ROW);
    assert_eq!(
        (view.holder.as_deref(), view.remaining_ms),
        (Some("a"), Some(1000))
    );
    assert_eq!(
        (view.owner.as_deref(), view.inc.as_str()),
        (Some("a"), "nonce")
    );
    assert_eq!((view.token, view.seq, view.ttl_ms), (Token(12), 3, 30_000));
    let version = Version {
        token: Token(9),
        rev: 1,
    };
    assert_eq!(view.record.version, version);
    let ended = ROW.replace("0000000002000", "0000000001000");
    assert_eq!(shown(&ended).holder, None);
}

#[test]
fn a_row_of_another_shape_is_held_by_nobody_known() {
    let digits = ROW.replace("0000000000000012", "00000000000000xy");
    let large = ROW.replace("0000000000000012", "9999999999999999");
    for row in [
        "H",
        "C12",
        "x",
        "C00000000000000091795403799690----------------",
        &ROW[..130],
        &digits,
        &large,
    ] {
        let view = shown(row);
        assert_eq!(view.holder.as_deref(), Some("(malformed)"), "{row}");
        assert!(view.key == "k" && view.owner.is_none());
    }
}

#[test]
fn the_scripts_can_be_read_without_their_comments() {
    for source in [&ACQUIRE, &RELEASE, &USUAL, &WHOLE] {
        assert!(
            !source.text.contains("[["),
            "a line may not be part of a text"
        );
        assert!(
            !source.text.contains(" -- "),
            "comments stand in lines of their own"
        );
    }
}

#[test]
fn the_quick_way_comes_before_anything_is_made_for_the_loop() {
    let (before, after) = around_the_quick_way();
    let begins = "local changed";
    assert!(!before.contains(begins) && after.contains(begins));
}

#[test]
fn what_shares_a_head_is_sent_as_a_group() {
    let call = prepared(vec![claim("a", "x"), claim("b", "x"), claim("c", "y")]);
    let sent = sent(&call, &Peer::default()).join(" ");
    assert!(
        sent.ends_with("3 la lb lc release claim x 2000 1000 2 release claim y 2000 1000 1 "),
        "{sent}"
    );
}

#[test]
fn attempts_and_releases_share_all_that_is_alike() {
    let acquire = |key: &str, owner: &str, floor| Op::Acquire {
        key: key.into(),
        owner: owner.into(),
        kind: Kind::Lock,
        ttl: Duration::from_secs(10),
        floor: Token(floor),
        take: Take::Observed(None),
        clamp: Duration::from_secs(30),
        ticket: None,
        waits: Duration::ZERO,
    };
    let release = |key: &str, owner: &str| release(key, owner, Kind::Lock);
    let (a, b) = (acquire("a", "x", 3), acquire("b", "y", 3));
    let call = prepared(vec![a, b, release("c", "z"), release("d", "z")]);
    let words = sent(&call, &Peer::default()).join(" ");
    let heads = "acquires 0000010000 0000000000000004  30000 0 2 x y";
    let expected = format!("6 la ea lb eb lc ld {heads} releases 2000 1000 2 z z ");
    assert!(words.ends_with(&expected), "{words}");
    let extend = |key: &str, owner: &str, seq| Op::Extend {
        key: key.into(),
        owner: owner.into(),
        kind: Kind::Lock,
        seq,
        ttl: Duration::from_secs(10),
        token: Token(7),
        take: Take::Observed(None),
    };
    let call = prepared(vec![extend("a", "x", 1), extend("b", "y", 2)]);
    let words = sent(&call, &Peer::default()).join(" ");
    let rounds = [1, 2].map(|seq| format!("{seq:016}{:016}", 7));
    let expected = format!(
        "2 la lb extends 0000010000  2 x {} y {} ",
        rounds[0], rounds[1]
    );
    assert!(words.ends_with(&expected), "{words}");
    let wanted = |name: &str, by: &str| {
        let mut op = acquire(name, by, 3);
        if let Op::Acquire { kind, .. } = &mut op {
            *kind = Kind::Claim;
        }
        op
    };
    let claims = vec![wanted("a", "x"), wanted("b", "y"), claim("c", "z")];
    let words = sent(&prepared(claims), &Peer::default()).join(" ");
    let heads = "claims 0000010000 0000000000000003 30000 2 x y unclaims 1 z ";
    assert!(words.ends_with(&format!("3 la lb lc {heads}")), "{words}");
    // With anything else in the call there is no short form, and none where an owner claims twice.
    let read = Op::Read { key: "b".into() };
    let twice = vec![acquire("a", "x", 3), wanted("b", "y"), wanted("c", "y")];
    for ops in [vec![acquire("a", "x", 3), read], twice] {
        let words = sent(&prepared(ops), &Peer::default()).join(" ");
        assert!(!words.contains("acquires"), "{words}");
    }
}

#[test]
fn a_call_says_whether_it_names_each_lock_once() {
    let words = |keys: &[&str]| {
        let ops = keys.iter().map(|key| claim(key, "x")).collect();
        sent(&prepared(ops), &Peer::default()).swap_remove(5)
    };
    assert_eq!(words(&["a", "b", "c"]), "2");
    assert_eq!(words(&["a", "b", "a"]), "0");
}

#[test]
fn a_short_answer_is_one_text_or_says_how_often_each_comes() {
    let lock = |key: &str| Op::Acquire {
        key: key.into(),
        owner: "a".into(),
        kind: Kind::Lock,
        ttl: Duration::from_secs(10),
        floor: Token(3),
        take: Take::Server,
        clamp: Duration::from_secs(30),
        ticket: None,
        waits: Duration::ZERO,
    };
    let granted = |grant| Answer::Granted {
        grant: Token(grant),
        record: Record::default(),
    };
    let call = prepared(vec![lock("a")]);
    let (reply, _) = call
        .decode(bulk("17954036997900000000000000007"), &Peer::default())
        .unwrap();
    assert_eq!(
        (reply.at, &reply.answers[..]),
        (NodeMs(1_795_403_699_790), &[granted(7)][..])
    );
    for nonsense in ["", "17954036997x", "1795403699790x", "1795403699790-7"] {
        assert!(
            call.decode(bulk(nonsense), &Peer::default()).is_err(),
            "{nonsense}"
        );
    }
    let call = prepared(vec![release("a", "x", Kind::Lock)]);
    let (reply, _) = call
        .decode(bulk("1795403699790"), &Peer::default())
        .unwrap();
    assert_eq!(reply.answers, [Answer::Done]);

    let call = prepared(vec![lock("a"), lock("b"), claim("c", "x")]);
    let runs = |runs: &[i64]| {
        let head = [3, 1_795_403_699_790];
        let told = head.iter().chain(runs).map(|n| Value::Int(*n)).collect();
        call.decode(Value::Array(told), &Peer::default())
    };
    let (reply, _) = runs(&[7, 2, 0, 1]).unwrap();
    assert_eq!(reply.answers, [granted(7), granted(7), Answer::Done]);
    for nonsense in [
        &[7, 2][..],
        &[7, 4],
        &[7],
        &[7, 2, 0],
        &[7, -1, 0, 4],
        &[7, i64::MAX],
    ] {
        assert!(runs(nonsense).is_err(), "{nonsense:?}");
    }
}

#[test]
fn a_short_row_is_read_by_its_places() {
    let row = format!(
        "h{:016}{:013}{:010}{:016}{:-<16}{}",
        12, 2_000, 30_000, 3, "nonce", "a"
    );
    let view = shown(&row);
    let owner = Some("a".to_owned());
    assert_eq!(
        (&view.holder, &view.owner, view.remaining_ms),
        (&owner, &owner, Some(1000))
    );
    assert_eq!((view.token, view.seq, view.ttl_ms), (Token(12), 3, 30_000));
    assert_eq!((view.inc.as_str(), view.released), ("nonce", false));
    let released = shown(&row.replace('h', "r"));
    assert_eq!(
        (released.holder, released.owner, released.released),
        (None, owner, true)
    );
    for row in [
        row.replace("12", "1x"),
        row[..72].to_owned(),
        row.replace('h', "b"),
    ] {
        assert_eq!(shown(&row).holder.as_deref(), Some("(malformed)"), "{row}");
    }
}

#[test]
fn one_lock_has_a_script_of_its_own_once_the_marker_was_seen() {
    let digest = |call: &Prepared, inc: Option<&str>| {
        let peer = Peer {
            server: "r/0".into(),
            marker: inc.map(Into::into),
        };
        sent(call, &peer).swap_remove(1)
    };
    let op = || vec![release("k", "a", Kind::Lock)];
    let (short, usual) = (RELEASE.script.get_hash(), USUAL.script.get_hash());
    assert_eq!(digest(&prepared(op()), None), short);
    for mode in [RestartGuard::Connection, RestartGuard::Call] {
        let guarded = guarded(mode, op());
        assert_eq!(digest(&guarded, None), usual);
        assert_eq!(digest(&guarded, Some("nonce-----------")), short);
    }
    let unguarded = guarded(RestartGuard::Off, op());
    assert_eq!(digest(&unguarded, None), usual);
    assert_eq!(digest(&unguarded, Some("-0123456789abcde")), short);
}

#[test]
fn unguarded_what_only_looks_makes_no_fleet() {
    let asks = |ops| sent(&guarded(RestartGuard::Off, ops), &Peer::default()).swap_remove(6);
    assert_eq!(asks(vec![read()]), "~");
    let confirm = Op::Confirm {
        key: "k".into(),
        owner: "a".into(),
        kind: Kind::Lock,
        token: Token(1),
        expiry: Expiry::Server,
    };
    assert_eq!(asks(vec![read(), confirm]), "+");
}

#[test]
fn a_nonce_that_does_not_fit_is_refused_unsent() {
    let of = |nonce: &str| Call {
        not_after: None,
        ops: vec![Op::Nominate {
            nonce: nonce.into(),
            over: None,
        }],
    };
    assert!(check(&of("n")).is_ok() && check(&of("0123456789abcdef")).is_ok());
    for nonce in ["0123456789abcdefg", "ends-", "-begins", "ü", "a b", "a,b"] {
        assert!(matches!(check(&of(nonce)), Err(NodeError::Protocol(_))));
    }
}

#[test]
fn a_grant_that_cannot_be_counted_with_is_told_as_damage() {
    let claim = claim("k", "a");
    let answer = |grant| {
        let mut scene = Scene::new(0, "t", false);
        scene.answer(Value::Int(grant), &claim)
    };
    let granted = |answer: &Answer| matches!(answer, Answer::Granted { .. });
    assert!(granted(&answer((1 << 53) - 1)));
    for grant in [1 << 53, i64::MAX] {
        let Answer::Refused(view) = answer(grant) else {
            panic!("{grant}")
        };
        assert!(view.is_malformed() && view.key == "k", "{view:?}");
    }
}

#[test]
fn a_body_whose_version_cannot_be_counted_with_is_asked_for_by_itself() {
    let body = |key: &str, token: &str| {
        let version = bulk(&format!("{token}0000000000000001"));
        Value::Array(vec![bulk(key), version, bulk("left")])
    };
    let bodies = vec![
        body("sound", "0000000000000009"),
        body("damaged", "9007199254740992"),
    ];
    let none = || Value::Array(Vec::new());
    let page = vec![
        Value::Int(9),
        Value::Nil,
        none(),
        Value::Array(bodies),
        Value::Int(0),
        Value::Array(vec![bulk("large")]),
    ];
    let records = Op::Records {
        from: Cursor::default(),
        count: 9,
    };
    let mut scene = Scene::new(0, "t", false);
    let Answer::Page(page) = scene.answer(Value::Array(page), &records) else {
        panic!("not a page")
    };
    assert_eq!(page.bodies.len(), 1);
    assert_eq!(page.large, ["large", "damaged"]);
}

#[test]
fn the_shortest_life_is_a_millisecond() {
    assert_eq!(&*millis(Duration::ZERO), "1");
    assert_eq!(*millis(Duration::MAX), LONGEST_MS.to_string());
    assert_eq!(&*life(Duration::ZERO), "0000000001");
    assert_eq!(*life(Duration::MAX), rules::LONGEST_TTL_MS.to_string());
}

#[test]
fn a_prefix_is_no_pattern() {
    assert_eq!(literal("a*[b]?^"), r"a\*\[b\]\?\^");
}
