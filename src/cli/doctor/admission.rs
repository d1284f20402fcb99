//! Which nodes vote, and what to do about the others. Pure.

use super::finding::Finding;
use crate::{
    lock::{AdmissionReport, AdmissionState},
    node::NodeError,
};

pub(super) fn judge(nodes: &[AdmissionReport]) -> Vec<Finding> {
    let mut found: Vec<Finding> = nodes.iter().filter_map(one).collect();
    let voters = nodes.iter().filter(|node| node.state.votes()).count();
    let forgetful = nodes
        .iter()
        .any(|node| matches!(node.state, AdmissionState::Watched { .. }));
    let waits = nodes
        .iter()
        .any(|node| matches!(node.state, AdmissionState::Waits { .. }));
    let needed = nodes.len() / 2 + 1;
    if voters < needed && waits {
        found.push(Finding::error(
            "nodes",
            "there is no fleet on them before all of them answer: no program gets a lock",
            "bring all nodes up once, or give the list that the fleet had (locks.redis.nodes); then they are watched for max_ttl",
        ));
    } else if voters < needed && forgetful {
        found.push(Finding::error(
            "nodes",
            format!(
                "{voters} of {} vote, {needed} needed: no lock is granted before more do",
                nodes.len()
            ),
            "wait for them (doctor --wait-admitted); servers that never kept a lock may be let in at once (doctor --bootstrap)",
        ));
    }
    found
}

fn one(node: &AdmissionReport) -> Option<Finding> {
    let said = node.state.to_string();
    match &node.state {
        AdmissionState::Admitted => Some(Finding::ok(&node.name, "is admitted: its votes count")),
        AdmissionState::Watched { left: Some(_) } => Some(Finding::warning(
            &node.name,
            said,
            "nothing to do but wait; leave the other nodes alone until then (doctor --wait-admitted)",
        )),
        AdmissionState::Watched { left: None } => Some(Finding::warning(
            &node.name,
            said,
            "start a worker, or wait with doctor --wait-admitted, which watches it, too",
        )),
        AdmissionState::Elsewhere => Some(Finding::warning(
            &node.name,
            said,
            "give the addresses of before; or stop all programs of the fleet, and run doctor --reconfigure with the new ones",
        )),
        AdmissionState::Waits { .. } => Some(Finding::warning(
            &node.name,
            said,
            "start what it waits for; where a server is gone for good, start an empty one at its address",
        )),
        AdmissionState::Configured { differs } => Some(Finding::error(
            &node.name,
            said,
            NodeError::to_agree(differs),
        )),
        // Said of the configuration, where it was chosen; other stores want no guard.
        AdmissionState::Unguarded => None,
        // Found by the check that looks at the nodes themselves.
        AdmissionState::Silent(_) => None,
        _ => Some(Finding::warning(
            &node.name,
            said,
            "see the release notes of the lock",
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{super::finding::Severity, *};
    use crate::node::NodeError;

    fn node(state: AdmissionState) -> AdmissionReport {
        AdmissionReport {
            nomination: None,
            name: "n".into(),
            state,
            memory_loss: None,
        }
    }

    fn lost() -> AdmissionReport {
        node(AdmissionState::Watched {
            left: Some(Duration::from_millis(11_200)),
        })
    }

    #[test]
    fn g5_a_node_that_lost_its_memory_is_named_with_the_time_it_takes() {
        let admitted = || node(AdmissionState::Admitted);
        let found = judge(&[admitted(), admitted(), lost()]);
        assert_eq!(found[2].severity, Severity::Warning);
        assert!(found[2].finding.contains("in 12s"), "{}", found[2].finding);
        assert_eq!(found.len(), 3, "the others are a majority");
        let found = judge(&[admitted(), lost(), lost()]);
        assert_eq!(found.last().map(|f| f.severity), Some(Severity::Error));
        assert!(found.iter().all(Finding::has_its_remedy), "{found:?}");
        let unwatched = judge(&[node(AdmissionState::Watched { left: None })]);
        assert!(unwatched.iter().all(Finding::has_its_remedy));
    }

    #[test]
    fn i2_a_fleet_that_waits_for_its_nodes_says_for_which() {
        let waits_for = vec!["lock-b:6379".to_owned()];
        let waits = || {
            node(AdmissionState::Waits {
                waits_for: waits_for.clone(),
            })
        };
        let silent = node(AdmissionState::Silent(NodeError::Unreachable("x".into())));
        let found = judge(&[waits(), waits(), silent]);
        assert!(found[0].finding.ends_with("it waits for lock-b:6379"));
        assert_eq!(found.last().map(|f| f.severity), Some(Severity::Error));
        assert!(found.iter().all(Finding::has_its_remedy), "{found:?}");
    }

    #[test]
    fn g4_another_configuration_is_an_error() {
        let differs = "max_ttl is 5s there and 30s here".to_owned();
        let found = judge(&[node(AdmissionState::Configured { differs })]);
        assert_eq!(found[0].severity, Severity::Error);
        assert!(found[0].finding.contains("5s there and 30s here"));
        assert!(found[0].has_its_remedy());
        assert!(found[0].remedy.contains("doctor --reconfigure"));
        // What another version has left there would be lost.
        let differs = "the layout of keys is 1 there and 2 here".to_owned();
        let found = judge(&[node(AdmissionState::Configured { differs })]);
        assert!(found[0].remedy.contains("move --out FILE"));
        assert!(!found[0].remedy.contains("--reconfigure"));
    }
}
