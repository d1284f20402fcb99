//! Calls by chance, for stores that are to answer as memory does.

use std::time::Duration;

use proptest::prelude::*;

use super::{Cursor, Expiry, Kind, Op, Seen, Take, Ticket, Token, Version};

/// The wall clock of a node is so far ahead of its own.
pub(crate) const AHEAD: i64 = 5_000;

fn name() -> impl Strategy<Value = String> {
    prop_oneof![Just("a"), Just("ab"), Just("b"), Just("b/ü"), Just("b/c/d")]
        .prop_map(str::to_owned)
}

fn owner() -> impl Strategy<Value = String> {
    prop_oneof![Just("x"), Just("y"), Just("z")].prop_map(str::to_owned)
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![3 => Just(Kind::Lock), 2 => Just(Kind::Claim)]
}

fn expiry() -> impl Strategy<Value = Expiry> {
    prop_oneof![Just(Expiry::Server), Just(Expiry::Observed)]
}

fn seen() -> impl Strategy<Value = Seen> {
    (owner(), 0..6_u64).prop_map(|(owner, seq)| Seen {
        inc: String::new(),
        owner,
        seq,
    })
}

fn take() -> impl Strategy<Value = Take> {
    prop_oneof![
        Just(Take::Server),
        prop::option::of(seen()).prop_map(Take::Observed)
    ]
}

fn from() -> impl Strategy<Value = Cursor> {
    let name = prop::option::of(name());
    name.prop_map(|name| Cursor(name.unwrap_or_default()))
}

fn waits() -> impl Strategy<Value = Duration> {
    prop_oneof![Just(Duration::ZERO), ttl()]
}

fn ttl() -> impl Strategy<Value = Duration> {
    (1..60_u64).prop_map(Duration::from_millis)
}

fn token() -> impl Strategy<Value = Token> {
    (0..12_u64).prop_map(Token)
}

fn prefix() -> impl Strategy<Value = String> {
    prop_oneof![Just(""), Just("a"), Just("b/")].prop_map(str::to_owned)
}

fn body() -> impl Strategy<Value = String> {
    prop_oneof![Just(""), Just("one"), Just("two\0")].prop_map(str::to_owned)
}

fn ticket() -> impl Strategy<Value = Option<Ticket>> {
    let ticket = (prop_oneof![Just("t"), Just("u")], ttl(), any::<bool>());
    let ticket = ticket.prop_map(|(id, life, polite)| Ticket {
        id: id.to_owned(),
        life,
        polite,
    });
    prop::option::of(ticket)
}

fn op() -> impl Strategy<Value = Op> {
    let write = (
        name(),
        owner(),
        token(),
        0..4_u64,
        body(),
        prop::option::of(-90..90_i64),
        expiry(),
    );
    prop_oneof![
        4 => (name(), owner(), kind(), ttl(), token(), take(), ttl(), ticket(), waits()).prop_map(
            |(key, owner, kind, ttl, floor, take, clamp, ticket, waits)| {
                Op::Acquire { key, owner, kind, ttl, floor, take, clamp, ticket, waits }
            }
        ),
        1 => (name(), ticket()).prop_map(|(key, ticket)| {
            let ticket = ticket.map(|ticket| ticket.id).unwrap_or_default();
            Op::Leave { key, ticket }
        }),
        2 => (name(), owner(), kind(), token(), expiry()).prop_map(
            |(key, owner, kind, token, expiry)| Op::Confirm { key, owner, kind, token, expiry }
        ),
        3 => (name(), owner(), kind(), 1..6_u64, ttl(), token(), take()).prop_map(
            |(key, owner, kind, seq, ttl, token, take)| {
                Op::Extend { key, owner, kind, seq, ttl, token, take }
            }
        ),
        3 => (name(), owner(), kind(), ttl(), ttl()).prop_map(
            |(key, owner, kind, marked, retention)| {
                Op::Release { key, owner, kind, marked, retention }
            }
        ),
        2 => (name(), owner(), token(), ttl(), any::<bool>()).prop_map(
            |(key, owner, token, ttl, now)| {
                Op::Break { key, owner, token, ttl, marked: ttl * 2, retention: ttl * 3, now }
            }
        ),
        3 => write.prop_map(|(key, owner, token, rev, body, not_before, expiry)| Op::Write {
            key,
            owner,
            version: Version { token, rev },
            body,
            not_before: not_before.map(|ms| 1_000 + AHEAD + ms),
            expiry,
        }),
        2 => name().prop_map(|key| Op::Read { key }),
        1 => (from(), 0_u32..4).prop_map(|(from, count)| Op::Records { from, count }),
        2 => (from(), 0_u32..4).prop_map(|(from, count)| Op::Sweep { from, count }),
        2 => (name(), seen(), ttl()).prop_map(|(key, seen, retention)| {
            Op::Forget { key, seen, retention }
        }),
        1 => Just(Op::Admission),
        1 => (prefix(), from(), 0_u32..4).prop_map(|(prefix, from, count)| {
            Op::List { prefix, from, count }
        }),
        1 => (name(), 0..4_u64, ttl(), body()).prop_map(|(name, rev, ttl, body)| {
            Op::PutDoc { name, rev, ttl, body }
        }),
        // More than there are names: when a store removes what has ended is its own affair.
        1 => (prefix(), from()).prop_map(|(dir, from)| Op::Docs { dir, from, count: 9 }),
        1 => (prefix(), from()).prop_map(|(dir, from)| Op::DocNames { dir, from, count: 9 }),
        1 => name().prop_map(|name| Op::Doc { name }),
        1 => (name(), 0..4_u64, ttl()).prop_map(|(name, rev, ttl)| Op::TouchDoc { name, rev, ttl }),
        1 => (prefix(), ttl(), prop::collection::vec(0..9_u64, 0..4)).prop_map(|(dir, least, known)| {
            Op::Living { dir, least, most: least * 2, known }
        }),
        1 => name().prop_map(|name| Op::RemoveDoc { name }),
    ]
}

/// How long to wait, how much later the call may still act, what it does.
pub(crate) fn step() -> impl Strategy<Value = (u64, Option<i64>, Vec<Op>)> {
    let wait = prop_oneof![4 => 0..8_u64, 1 => 40..90_u64, 1 => Just(6_000)];
    (
        wait,
        prop::option::weighted(0.2, -2..3_i64),
        prop::collection::vec(op(), 1..5),
    )
}
