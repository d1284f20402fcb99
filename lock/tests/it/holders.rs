//! Two holders of one lock, one after the other: what every test of a fence begins with.
//!
//! Self-contained, so that other suites can include it with `#[path]`.

use std::{sync::Arc, time::Duration};

use watchkeeper_lock::{
    Locks,
    lease::Lease,
    node::{Answer, Call, Kind, Node, Op, Take, Token},
};

/// The lock, which is the resource as well.
pub(crate) const ACCOUNT: &str = "account";

/// Longer than any pause of a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Holders {
    /// The token of the one whose time is over, and who does not know it.
    pub(crate) stale: Token,
    /// The lease of the one who came after.
    pub(crate) present: Lease,
}

/// The first was frozen: its lease was not extended, and has ended by itself.
pub(crate) async fn after_expiry(node: Arc<dyn Node>) -> Holders {
    let attempt = Call {
        not_after: None,
        ops: vec![Op::Acquire {
            key: format!("lock/{ACCOUNT}"),
            owner: "frozen".to_owned(),
            kind: Kind::Lock,
            ttl: Duration::from_millis(50),
            floor: Token(0),
            take: Take::Server,
            clamp: PATIENCE,
            ticket: None,
            waits: Duration::ZERO,
        }],
    };
    let answer = node.call(attempt).await.unwrap().answers.remove(0);
    let Answer::Granted { grant: stale, .. } = answer else {
        panic!("not granted: {answer:?}");
    };
    let locks = Locks::over(vec![node]).start().unwrap();
    succession(stale, acquire(&locks).await)
}

/// The first has released its lock, with a write still under way.
pub(crate) async fn after_release(node: Arc<dyn Node>) -> Holders {
    let locks = Locks::over(vec![node]).start().unwrap();
    let first = acquire(&locks).await;
    let stale = first.token();
    first.release().await;
    succession(stale, acquire(&locks).await)
}

async fn acquire(locks: &Locks) -> Lease {
    let lock = locks.lock(ACCOUNT).wait(PATIENCE);
    lock.acquire().await.unwrap()
}

fn succession(stale: Token, present: Lease) -> Holders {
    assert!(stale < present.token(), "{stale} {}", present.token());
    Holders { stale, present }
}
