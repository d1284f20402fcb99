//! What is gone is deleted in the end, so that what a server keeps does not grow with all that was ever locked.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use watchkeeper_lock::{
    clock::{Clock, Moment, TimeSource},
    node::{Answer, Kind::Lock, Op, etcd::EtcdNode},
    spawn::Spawn,
};

use crate::{
    it::conformance::{
        SHORT, ask, ask_all, claim_for, granted, pass, release_for, swept, take, write,
    },
    scene::{fresh, run, settings, until},
    server::EtcdServer,
};

/// Locks of one round.
const LOCKS: u32 = 30;

/// From one cleaning of a program to the next, and more.
const EVERY: Duration = Duration::from_secs(61);

/// The machine's clock, put forward by so many milliseconds.
#[derive(Clone, Default)]
struct Ahead(Arc<AtomicU64>);

impl Ahead {
    fn put_forward(&self, by: Duration) {
        let by = u64::try_from(by.as_millis()).unwrap();
        self.0.fetch_add(by, Ordering::SeqCst);
    }

    fn by(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
}

impl TimeSource for Ahead {
    fn now(&self) -> Moment {
        Clock::system().now() + self.by()
    }

    fn wall(&self) -> Timestamp {
        Clock::system().wall()
    }

    fn sleep_until(&self, deadline: Moment) -> BoxFuture<'static, ()> {
        let deadline = deadline.back(self.by());
        Box::pin(async move { Clock::system().sleep_until(deadline).await })
    }
}

/// Counted on the server: after each round as many keys as before the first one.
pub(crate) fn what_is_gone_is_deleted_and_the_keys_do_not_grow(server: &EtcdServer) {
    run(async {
        let (clock, namespace) = (Ahead::default(), fresh());
        let settings = settings(&server.url(), &namespace);
        let node = EtcdNode::new(settings, Clock::new(clock.clone()), Spawn::system()).unwrap();
        let of = |key: &str| format!("watchkeeper/{namespace}/{key}");
        let keys = || server.keys(&of("")).len();
        ask_all(&node, vec![]).await;
        // Programs clean one after the other: this one's turn has come.
        server.put(&of("swept"), "1");
        let before = keys();
        assert_eq!(before, 2, "the first key, and this one");
        for round in 0..3 {
            let name = |n: u32| format!("round {round}, number {n}");
            for n in 0..LOCKS {
                let (token, _) = granted(&node, take(&name(n), "a")).await;
                let body = write(&name(n), "a", (token.0, 1), "body");
                assert_eq!(ask(&node, body).await, Answer::Done);
                let over = release_for(Lock, &name(n), "a", SHORT, SHORT);
                assert_eq!(ask(&node, over).await, Answer::Done);
            }
            let claims = (LOCKS..LOCKS * 2).map(|n| claim_for(&name(n), "a", SHORT));
            ask_all(&node, claims.collect()).await;
            let docs = (0..LOCKS).map(|n| Op::PutDoc {
                name: name(n),
                rev: 1,
                ttl: SHORT,
                body: "body".to_owned(),
            });
            ask_all(&node, docs.collect()).await;
            assert!(keys() > 90, "{}", keys());
            pass(&node, SHORT * 4).await;
            // Each lock's row and body, and each claim.
            assert_eq!(swept(&node).await.1, LOCKS * 3);
            // Written empty first, each under its name.
            assert!(keys() > 60, "{}", keys());
            server.put(&of("swept"), "1");
            clock.put_forward(EVERY);
            ask_all(&node, vec![]).await;
            until("a cleaning", async || keys() <= before).await;
            let left = server.keys(&of(""));
            assert_eq!(left.len(), before, "{left:?}");
        }
    });
}
