//! Members of a fleet that differ from the others: each must be refused, or be harmless. A new way to differ is one more variant.

use std::time::Duration;

use watchkeeper_lock::{
    lock::Timing,
    node::{Expiry, RestartGuard, redis::RedisNodeSettings},
};

use crate::rules::Rules;

/// In what it differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Member {
    /// It does not ask whether nodes remember.
    WithoutGuard,
    /// Two of its three nodes are others.
    WithOtherNodes,
    /// It knows fewer nodes.
    WithFewerNodes,
    WithAnotherMaxTtl,
    WithAnotherExpiry,
    /// Named locks stand in the same table; short claims are not tried here.
    WithRawKeys,
}

/// Every one of them.
pub(crate) const REFUSED: &[Member] = &[
    Member::WithoutGuard,
    Member::WithOtherNodes,
    Member::WithFewerNodes,
    Member::WithAnotherMaxTtl,
    Member::WithAnotherExpiry,
    Member::WithRawKeys,
];

impl Member {
    /// What it is told instead of what the others are told. `others` are nodes that the others do not know.
    pub(crate) fn told(
        self,
        rules: Rules,
        timing: &Timing,
        nodes: &[RedisNodeSettings],
        others: &[RedisNodeSettings],
    ) -> (Rules, Timing, Vec<RedisNodeSettings>) {
        let (mut rules, mut timing, mut nodes) = (rules, timing.clone(), nodes.to_vec());
        match self {
            Self::WithoutGuard => rules.guard = RestartGuard::Off,
            Self::WithOtherNodes => {
                nodes.truncate(1);
                nodes.extend_from_slice(others);
            }
            Self::WithFewerNodes => nodes.truncate(1),
            Self::WithAnotherMaxTtl => timing.max_ttl += Duration::from_millis(100),
            Self::WithAnotherExpiry => rules.expiry = Expiry::Server,
            Self::WithRawKeys => nodes.iter_mut().for_each(|node| node.raw_keys = true),
        }
        (rules, timing, nodes)
    }
}
