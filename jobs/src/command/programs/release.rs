//! The end of a lease that is ours to end.

use std::time::Duration;

use watchkeeper::{Locks, lease::Lease, lock::LockState};

/// How long we stay for a majority to know of a release.
const LONGEST: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(20);

/// Releases, and stays until a majority knows: when we are gone no process repeats it to nodes that were slow, and the
/// next candidate would wait for the end of the lease.
pub(super) async fn release(locks: &Locks, lease: Lease) {
    let view = lease.view().clone();
    let held = view.is_held();
    let report = lease.release().await;
    if !held || report.nodes > report.of / 2 {
        return;
    }
    let clock = locks.clock();
    let known = async {
        loop {
            let seen = locks.look(vec![view.key().to_owned()]).await;
            let seen = seen.unwrap_or_default();
            if seen
                .first()
                .is_none_or(|seen| is_let_go(seen, view.owner()))
            {
                return;
            }
            clock.sleep(PAUSE).await;
        }
    };
    let known = clock.timeout(view.ttl().min(LONGEST), known).await;
    if known.is_err() {
        tracing::warn!(
            key = view.key(),
            "too few nodes know of the release: the lease runs out"
        );
    }
}

/// Whether a majority answers that this owner does not hold the lock.
fn is_let_go(seen: &LockState, owner: &str) -> bool {
    let views = seen.nodes.iter().filter_map(|node| node.as_ref().ok());
    let without = views.filter(|view| view.holder.as_deref() != Some(owner));
    without.count() > seen.nodes.len() / 2
}

#[cfg(test)]
mod tests {
    use watchkeeper::node::{NodeError, View};

    use super::*;

    fn let_go(nodes: [Option<&str>; 3]) -> bool {
        let node = |holder: Option<&str>| match holder {
            Some("down") => Err(NodeError::Unreachable("test".to_owned())),
            holder => Ok(View {
                holder: holder.map(str::to_owned),
                ..View::default()
            }),
        };
        let seen = LockState::new("k", nodes.map(node).into());
        is_let_go(&seen, "me")
    }

    #[test]
    fn a_release_is_known_when_a_majority_says_so() {
        assert!(let_go([None, None, Some("me")]));
        assert!(let_go([Some("next"), None, Some("down")]));
        assert!(!let_go([None, Some("me"), Some("me")]));
        assert!(!let_go([None, Some("down"), Some("down")]));
    }
}
