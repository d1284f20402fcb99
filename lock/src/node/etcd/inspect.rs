//! What a member tells of itself, also one that is refused.

use std::time::Duration;

use super::{shared::Shared, wire::Status};
use crate::node::{NodeError, NodeFacts};

/// It may take so long.
const PATIENCE: Duration = Duration::from_secs(3);

/// Asks the first member that answers.
pub(super) async fn inspect(shared: &Shared) -> Result<NodeFacts, NodeError> {
    let nothing = serde_json::json!({});
    let asked = shared
        .client
        .ask("/v3/maintenance/status", &nothing, PATIENCE);
    let (_, status): (usize, Status) = asked.await?;
    let role = match status.leader {
        _ if status.is_learner => "learner",
        0 => "without a leader",
        leader if leader == status.header.member_id => "leader",
        _ => "follower",
    };
    let bytes = |size: i64| u64::try_from(size).ok().filter(|size| *size > 0);
    Ok(NodeFacts {
        role: Some(role.to_owned()),
        version: Some(status.version).filter(|version| !version.is_empty()),
        run_id: Some(format!("{:016x}", status.header.cluster_id)),
        size: bytes(status.db_size),
        in_use: bytes(status.db_size_in_use),
        alarms: Some(status.errors.join(", ")).filter(|alarms| !alarms.is_empty()),
        ..NodeFacts::default()
    })
}
