//! What every store must do, and what the parts do together.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test may fail by panic"
)]

#[macro_use]
mod conformance;
#[cfg(feature = "sqlite")]
mod embedded;
#[cfg(feature = "sqlite")]
mod fences;
#[cfg(feature = "sqlite")]
mod holders;
mod layers;

conformance!(memory, crate::conformance::memory);
#[cfg(feature = "sqlite")]
conformance!(sqlite, crate::conformance::sqlite);

#[tokio::test]
async fn every_rule_of_admission_holds_in_memory() {
    use std::sync::Arc;
    use watchkeeper::{
        clock::Clock,
        node::{GuardSettings, Node, RestartGuard, memory::MemoryNode},
    };
    conformance::admission::every_rule(|| {
        let node = MemoryNode::new("memory", Clock::system());
        Box::new(move |config| {
            let guard = GuardSettings {
                mode: RestartGuard::Call,
                config: config.to_owned(),
            };
            Arc::new(node.clone().guarded(guard)) as Arc<dyn Node>
        })
    })
    .await;
}
