//! What the members tell of themselves, also those that are refused.

use std::time::Duration;

use futures_util::future::join_all;

use super::{error::Trouble, shared::Shared, wire::Status};
use crate::node::{MemberFacts, NodeError, NodeFacts};

/// They may take so long, all together: less than `doctor` waits for all nodes.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// So many endpoints are asked.
const MOST: usize = 32;

/// Asks every endpoint, all at one time. What is told of the node as a whole is what a member tells that takes part.
pub(super) async fn inspect(shared: &Shared) -> Result<NodeFacts, NodeError> {
    let count = shared.client.members().min(MOST);
    let answers = join_all((0..count).map(|member| ask(shared, member))).await;
    let told: Vec<&Status> = answers.iter().flatten().collect();
    let Some(cluster) = most(&told) else {
        let failed = answers.iter().filter_map(|answer| answer.as_ref().err());
        return Err(loudest(failed));
    };
    let ours = || {
        let all = told.iter().copied();
        all.filter(|status| status.header.cluster_id == cluster)
    };
    let votes = |status: &&Status| matches!(role(status), "leader" | "follower");
    let shown = ours().find(votes).or_else(|| ours().next());
    let all = complaints(told.iter().copied());
    let members = answers.iter().enumerate().map(|(member, answer)| {
        let address = shared.client.name_of(member).to_owned();
        match answer {
            Ok(status) => MemberFacts {
                address,
                stranger: status.header.cluster_id != cluster,
                ..member_facts(status, &all)
            },
            Err(why) => MemberFacts {
                address,
                error: Some(why.to_string()),
                ..MemberFacts::default()
            },
        }
    });
    let alarms = complaints(ours()).join(", ");
    Ok(NodeFacts {
        alarms: Some(alarms).filter(|alarms| !alarms.is_empty()),
        members: members.collect(),
        ..shown.map(node_facts).unwrap_or_default()
    })
}

/// Asks one of them.
async fn ask(shared: &Shared, member: usize) -> Result<Status, NodeError> {
    let (path, nothing) = ("/v3/maintenance/status", serde_json::json!({}));
    let client = &shared.client;
    let asking = client.ask_one(member, path, &nothing, PATIENCE);
    // It may have to log in before.
    match shared.clock.timeout(PATIENCE, asking).await {
        Ok(told) => told.map_err(Trouble::error),
        Err(_) => Err(NodeError::Timeout(PATIENCE)),
    }
}

/// The cluster of most members that answer; of several the first one.
fn most(told: &[&Status]) -> Option<u64> {
    let clusters = || told.iter().map(|status| status.header.cluster_id);
    let members = |of: u64| clusters().filter(|cluster| *cluster == of).count();
    // The last one of the largest is taken: from the end, that is the first.
    clusters().rev().max_by_key(|cluster| members(*cluster))
}

/// One that answers says more than one that is silent.
fn loudest<'e>(mut failed: impl Iterator<Item = &'e NodeError> + Clone) -> NodeError {
    let silent =
        |why: &&NodeError| matches!(why, NodeError::Unreachable(_) | NodeError::Timeout(_));
    let loud = failed.clone().find(|why| !silent(why));
    let why = loud.or_else(|| failed.next()).cloned();
    why.unwrap_or_else(|| NodeError::Unreachable("it has no members".to_owned()))
}

fn role(status: &Status) -> &'static str {
    match status.leader {
        _ if status.is_learner => "learner",
        0 => "without a leader",
        leader if leader == status.header.member_id => "leader",
        _ => "follower",
    }
}

/// What they complain of, each thing once.
fn complaints<'s>(members: impl Iterator<Item = &'s Status>) -> Vec<&'s str> {
    let mut all: Vec<&str> = Vec::new();
    for text in members.flat_map(|status| &status.errors) {
        let text = text.trim();
        if !text.is_empty() && !all.contains(&text) {
            all.push(text);
        }
    }
    all
}

fn node_facts(status: &Status) -> NodeFacts {
    NodeFacts {
        role: Some(role(status).to_owned()),
        version: version(status),
        run_id: Some(cluster(status)),
        size: bytes(status.db_size),
        in_use: bytes(status.db_size_in_use),
        ..NodeFacts::default()
    }
}

/// `all` is what all members complain of: an alarm names the member that has raised it, whichever of them tells of it.
fn member_facts(status: &Status, all: &[&str]) -> MemberFacts {
    let id = status.header.member_id.to_string();
    let own = |text: &&&str| match text.strip_prefix("memberID:") {
        Some(rest) => rest.split(' ').next() == Some(&*id),
        None => status.errors.iter().any(|own| own.trim() == **text),
    };
    let alarms: Vec<&str> = all.iter().filter(own).copied().collect();
    MemberFacts {
        role: Some(role(status).to_owned()),
        version: version(status),
        cluster: Some(cluster(status)),
        size: bytes(status.db_size),
        in_use: bytes(status.db_size_in_use),
        alarms: Some(alarms.join(", ")).filter(|alarms| !alarms.is_empty()),
        ..MemberFacts::default()
    }
}

fn version(status: &Status) -> Option<String> {
    Some(status.version.clone()).filter(|version| !version.is_empty())
}

fn cluster(status: &Status) -> String {
    format!("{:016x}", status.header.cluster_id)
}

fn bytes(size: i64) -> Option<u64> {
    u64::try_from(size).ok().filter(|size| *size > 0)
}
