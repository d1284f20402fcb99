//! What every node must do, on a real ZooKeeper: `WATCHKEEPER_ZOOKEEPER=127.0.0.1:2181 cargo test`. Without the variable every case is
//! ignored and says why. Each has a znode of its own below `/watchkeeper-tests`, which is left there.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]

use std::{sync::Arc, time::Duration};

use watchkeeper_lock::{
    chance::Chance,
    conformance::{self, Lab},
    node::{Call, Node, NodeError},
};
use watchkeeper_zookeeper::{Client, ZooKeeperNode};

/// Longer than any pause of a busy machine: the cases are about answers, not about time.
const PATIENT: Duration = Duration::from_secs(3);

watchkeeper_lock::conformance!(
    zookeeper,
    crate::lab,
    #[cfg_attr(not(zookeeper), ignore = "WATCHKEEPER_ZOOKEEPER names no server")]
);

/// An empty node.
async fn lab() -> Lab {
    let path = fresh();
    Lab::new((), move || {
        let client: Arc<dyn Node> = Arc::new(node(&path));
        Box::pin(async move { client })
    })
    .without_announcements()
}

/// A path that no other case has.
fn fresh() -> String {
    format!("/watchkeeper-tests/{}", Chance::system().id())
}

fn node(path: &str) -> ZooKeeperNode {
    ZooKeeperNode::new(Client::connector(), servers(), path, PATIENT)
}

fn servers() -> String {
    std::env::var("WATCHKEEPER_ZOOKEEPER").expect("WATCHKEEPER_ZOOKEEPER=HOST:PORT")
}

#[tokio::test]
#[cfg_attr(not(zookeeper), ignore = "WATCHKEEPER_ZOOKEEPER names no server")]
async fn what_was_deleted_is_no_memory_for_those_who_knew_it() {
    let path = fresh();
    let (knows, new) = (node(&path), node(&path));
    conformance::granted(&knows, conformance::take("k", "a")).await;
    let other = Client::connect(&servers()).await.unwrap();
    other.delete(&path, None).await.unwrap();
    conformance::granted(&new, conformance::take("k", "b")).await;
    for _ in 0..2 {
        let call = Call {
            not_after: None,
            ops: vec![conformance::take("k", "a")],
        };
        let gone = knows.call(call).await;
        assert!(matches!(gone, Err(NodeError::Gone(_))), "{gone:?}");
    }
}
