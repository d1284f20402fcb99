//! What is sent for a call, and what is made of answers.

use std::time::Duration;

use super::{
    encode::{LONGEST_MS, millis},
    *,
};
use crate::node::*;

fn bulk(text: &str) -> Value {
    Value::BulkString(text.as_bytes().to_vec())
}

fn prepared(ops: Vec<Op>) -> Prepared {
    Prepared::new(
        &Arc::new(Layout::new("app", false, GuardSettings::default())),
        Call {
            not_after: None,
            ops,
        },
    )
}

#[test]
fn a_late_call_is_an_error_with_the_nodes_clock() {
    let reply = Value::Array(vec![Value::Int(0), Value::Int(1_795_189_257_541)]);
    let late = prepared(vec![Op::Read { key: "k".into() }]).decode(reply);
    assert_eq!(
        late,
        Err(NodeError::Late {
            at: NodeMs(1_795_189_257_541)
        })
    );
}

#[test]
fn nonsense_is_a_protocol_error_and_never_a_panic() {
    let call = prepared(vec![Op::Read { key: "k".into() }]);
    for reply in [
        Value::Nil,
        Value::Array(vec![]),
        Value::Array(vec![Value::Int(1), Value::Int(-4), Value::Array(vec![])]),
        Value::Array(vec![Value::Int(1), Value::Int(4), Value::Array(vec![])]),
        Value::Array(vec![
            Value::Int(1),
            Value::Int(4),
            Value::Array(vec![Value::Array(vec![Value::Int(8), bulk("x")])]),
        ]),
    ] {
        assert!(matches!(call.decode(reply), Err(NodeError::Protocol(_))));
    }
}

#[test]
fn the_scripts_can_be_read_without_their_comments() {
    for source in [&USUAL, &WHOLE] {
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
fn what_shares_a_head_is_sent_as_a_group() {
    let claim = |key: &str, owner: &str| Op::Release {
        key: key.into(),
        owner: owner.into(),
        kind: Kind::Claim,
        retention: Duration::from_secs(1),
    };
    let call = prepared(vec![claim("a", "x"), claim("b", "x"), claim("c", "y")]);
    let packed = call.by_digest(&Peer::default()).get_packed_command();
    let words = String::from_utf8(packed).unwrap();
    let words: Vec<_> = words
        .split("\r\n")
        .filter(|w| !w.starts_with('$'))
        .collect();
    let sent = words.join(" ");
    assert!(
        sent.ends_with("release claim x 1000 2 a b release claim y 1000 1 c "),
        "{sent}"
    );
}

#[test]
fn the_shortest_life_is_a_millisecond() {
    assert_eq!(millis(Duration::ZERO), "1");
    assert_eq!(millis(Duration::MAX), LONGEST_MS.to_string());
}
