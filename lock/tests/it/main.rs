//! What every store must do, and the locks over it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test may fail by panic"
)]

#[cfg(feature = "sqlite")]
mod embedded;
#[cfg(feature = "sqlite")]
mod fences;
#[cfg(feature = "sqlite")]
mod holders;
mod labs;
mod layers;
#[macro_use]
mod locks;

use watchkeeper_lock::conformance;

conformance!(memory, crate::labs::memory);
#[cfg(feature = "sqlite")]
conformance!(sqlite, crate::labs::sqlite);

#[tokio::test]
async fn every_rule_of_admission_holds_in_memory() {
    use std::sync::Arc;
    use watchkeeper_lock::{
        clock::Clock,
        node::{GuardSettings, Node, RestartGuard, memory::MemoryNode},
    };
    conformance::admission::every_rule(|| {
        let node = MemoryNode::new("memory", Clock::system());
        Box::new(move |config| {
            let guard = GuardSettings {
                mode: match config.starts_with("off") {
                    true => RestartGuard::Off,
                    false => RestartGuard::Call,
                },
                config: config.to_owned(),
            };
            Arc::new(node.clone().guarded(guard)) as Arc<dyn Node>
        })
    })
    .await;
}

/// Time is paused: no case costs any.
macro_rules! locks_in_memory {
    ($($name:ident: $nodes:literal $expiry:ident,)*) => {$(
        lock_conformance!(
            $name,
            tokio::test(start_paused = true),
            crate::locks::memory($nodes).expiring(watchkeeper_lock::node::Expiry::$expiry),
            faults: true
        );
    )*};
}

locks_in_memory! {
    locks_of_one_node: 1 Server,
    locks_of_three_nodes: 3 Server,
    locks_of_five_nodes: 5 Server,
    observed_locks_of_one_node: 1 Observed,
    observed_locks_of_three_nodes: 3 Observed,
    observed_locks_of_five_nodes: 5 Observed,
}

#[cfg(feature = "sqlite")]
lock_conformance!(
    locks_of_a_file,
    tokio::test,
    crate::locks::sqlite(),
    faults: false
);
#[cfg(feature = "sqlite")]
lock_conformance!(
    observed_locks_of_a_file,
    tokio::test,
    crate::locks::sqlite().expiring(watchkeeper_lock::node::Expiry::Observed),
    faults: false
);
