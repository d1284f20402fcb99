//! What ends by a member's clock, and was promised, ends later by as much as is not known of that clock, and never earlier.
//!
//! A member's time is known by the dates of its answers, which name a second and no part of it (`civil.rs`). What begins by it goes by
//! the time that has come for certain. An end that is counted from there would come early by the rest, up to a second for a
//! worker's first moments. So the rest is added to each end that is a promise: of leases and claims that end by the node's clock, of
//! a break (B1), of the mark of a release (S0), and of the bodies that are left for successors.
//!
//! # What may end early
//! - Documents. What is left of one tells when it was last touched: with a longer life a replica that has died would look alive.
//!   What a document asks for (a pause, a trigger) says its own end within, and a replica that has read it goes by that.
//! - Places in a queue, and the wait for an announcement, which decide nothing. A dead waiter at the head of a queue would hold up
//!   those behind it for longer, and a release that is not told is found by the next look.

use std::time::Duration;

use crate::node::{Call, Kind, Op, Take};

/// The call with its promised ends put off by what is not known of the time.
pub(super) fn longer(call: &Call, more: Duration) -> Call {
    let mut call = call.clone();
    // Other leases are watched by those who wait.
    let by_the_node = |kind: Kind, take: &Take| kind == Kind::Claim || matches!(take, Take::Server);
    let put_off = |end: &mut Duration| *end = end.saturating_add(more);
    for op in &mut call.ops {
        match op {
            Op::Acquire {
                kind,
                take,
                ttl,
                clamp,
                ..
            } if by_the_node(*kind, take) => {
                put_off(ttl);
                put_off(clamp);
            }
            Op::Extend {
                kind, take, ttl, ..
            } if by_the_node(*kind, take) => put_off(ttl),
            Op::Release {
                marked, retention, ..
            } => {
                put_off(marked);
                put_off(retention);
            }
            Op::Break {
                ttl,
                marked,
                retention,
                ..
            } => {
                put_off(ttl);
                put_off(marked);
                put_off(retention);
            }
            Op::Forget { retention, .. } | Op::Merge { retention, .. } => put_off(retention),
            // What was touched just now seems to live longer by what this one does not know, and is left out of nothing.
            Op::Living { most, .. } => put_off(most),
            _ => {}
        }
    }
    call
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Record, Seen, Ticket, Token};

    const ASKED: Duration = Duration::from_secs(10);
    const MORE: Duration = Duration::from_millis(900);
    const LATER: Duration = Duration::from_millis(10_900);

    fn acquire(kind: Kind, take: Take) -> Op {
        Op::Acquire {
            key: "k".to_owned(),
            owner: "a".to_owned(),
            kind,
            ttl: ASKED,
            floor: Token(0),
            take,
            clamp: ASKED,
            ticket: Some(Ticket {
                id: "t".to_owned(),
                life: ASKED,
                polite: true,
            }),
            waits: ASKED,
        }
    }

    fn extend(kind: Kind, take: Take) -> Op {
        Op::Extend {
            key: "k".to_owned(),
            owner: "a".to_owned(),
            kind,
            seq: 1,
            ttl: ASKED,
            token: Token(1),
            take,
        }
    }

    /// The ends in an operation, as they are put off.
    fn ends(op: Op) -> Vec<Duration> {
        let call = Call {
            not_after: None,
            ops: vec![op],
        };
        match longer(&call, MORE).ops.remove(0) {
            Op::Acquire {
                ttl,
                clamp,
                ticket,
                waits,
                ..
            } => vec![ttl, clamp, ticket.unwrap().life, waits],
            Op::Extend { ttl, .. } | Op::PutDoc { ttl, .. } | Op::TouchDoc { ttl, .. } => vec![ttl],
            Op::Release {
                marked, retention, ..
            } => vec![marked, retention],
            Op::Break {
                ttl,
                marked,
                retention,
                ..
            } => vec![ttl, marked, retention],
            Op::Forget { retention, .. } | Op::Merge { retention, .. } => vec![retention],
            Op::Living { least, most, .. } => vec![least, most],
            other => panic!("it has no end: {other:?}"),
        }
    }

    #[test]
    fn ends_that_are_promised_are_put_off_and_no_others() {
        let (key, owner) = (|| "k".to_owned(), || "a".to_owned());
        for (kind, take) in [
            (Kind::Lock, Take::Server),
            (Kind::Claim, Take::Server),
            (Kind::Claim, Take::Observed(None)),
        ] {
            let put_off = ends(acquire(kind, take.clone()));
            assert_eq!(put_off, [LATER, LATER, ASKED, ASKED], "{kind:?}");
            assert_eq!(ends(extend(kind, take)), [LATER], "{kind:?}");
        }
        let watched = || Take::Observed(None);
        assert_eq!(ends(acquire(Kind::Lock, watched())), [ASKED; 4]);
        assert_eq!(ends(extend(Kind::Lock, watched())), [ASKED]);
        let release = Op::Release {
            key: key(),
            owner: owner(),
            kind: Kind::Lock,
            marked: ASKED,
            retention: ASKED,
        };
        assert_eq!(ends(release), [LATER; 2]);
        let by_force = Op::Break {
            key: key(),
            owner: owner(),
            token: Token(1),
            ttl: ASKED,
            marked: ASKED,
            retention: Duration::MAX,
            now: true,
        };
        assert_eq!(ends(by_force), [LATER, LATER, Duration::MAX]);
        let seen = Seen {
            inc: String::new(),
            owner: owner(),
            seq: 1,
        };
        let forget = Op::Forget {
            key: key(),
            seen,
            retention: ASKED,
        };
        assert_eq!(ends(forget), [LATER]);
        let merge = Op::Merge {
            nonce: "n".to_owned(),
            key: key(),
            record: Record::default(),
            retention: ASKED,
        };
        assert_eq!(ends(merge), [LATER]);
        let put = Op::PutDoc {
            name: "d".to_owned(),
            rev: 1,
            ttl: ASKED,
            body: String::new(),
        };
        assert_eq!(ends(put), [ASKED]);
        let touch = Op::TouchDoc {
            name: "d".to_owned(),
            rev: 1,
            ttl: ASKED,
        };
        assert_eq!(ends(touch), [ASKED]);
        let living = Op::Living {
            dir: String::new(),
            least: ASKED,
            most: ASKED,
            known: Vec::new(),
        };
        assert_eq!(ends(living), [ASKED, LATER]);
    }
}
