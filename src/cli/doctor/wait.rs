//! `doctor --wait-admitted`: until the next node may be restarted.

use std::time::Duration;

use super::super::{ask::on_a_runtime, failure::Failure, output::print};
use crate::{
    clock::Clock,
    config::Config,
    fleet::{Fleet, FleetError, status::LockDetail},
    human::Span,
    lock::{AdmissionReport, Locks},
    worker::store,
};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(250);

pub(super) fn wait(config: &Config, timeout: Option<Duration>) -> Result<(), Failure> {
    on_a_runtime(async {
        let (clock, namespace) = (Clock::system(), &config.worker.namespace);
        // Takes part in bringing nodes back to their vote, for as long as it takes.
        let locks = store::open(&config.locks, namespace, &clock, Duration::ZERO)?;
        let locks = locks.start().map_err(Failure::of)?;
        let until = timeout.map(|timeout| clock.now() + timeout);
        let mut said = Vec::new();
        loop {
            let missing = match look(&locks).await {
                Ok((nodes, leases)) => missing(&nodes, &leases),
                Err(error) => vec![error.to_string()],
            };
            if missing.is_empty() {
                print("every node votes, and every lease stands on all of them");
                return Ok(());
            }
            if let (Some(at), Some(timeout)) = (until, timeout)
                && clock.now() >= at
            {
                let why = missing.join("; ");
                return Err(Failure::Failed(format!(
                    "not within {}: {why}",
                    Span(timeout)
                )));
            }
            // Each of them once, not each second that it lasts.
            let names = missing
                .iter()
                .map(|line| subject(line).to_owned())
                .collect();
            if said != names {
                print(&missing.join("\n"));
                said = names;
            }
            clock.sleep(PAUSE).await;
        }
    })
}

async fn look(locks: &Locks) -> Result<(Vec<AdmissionReport>, Vec<LockDetail>), FleetError> {
    let nodes = locks.admissions().await?;
    let leases = Fleet::over(locks, "doctor").all_details().await?;
    Ok((nodes, leases))
}

/// What the next restart has to wait for, a sentence each. Pure.
fn missing(nodes: &[AdmissionReport], leases: &[LockDetail]) -> Vec<String> {
    let nodes = nodes
        .iter()
        .filter(|node| !node.state.votes())
        .map(|node| format!("{}: {}", node.name, node.state));
    // Claims of batches and messages are short: what they lack is over before it matters.
    let leases = leases
        .iter()
        .filter(|lock| lock.is_held() && lock.nodes < lock.configured && !is_claim(&lock.key))
        .map(|lock| {
            let (nodes, of) = (lock.nodes, lock.configured);
            format!("{}: held on {nodes} of {of} nodes", lock.key)
        });
    nodes.chain(leases).collect()
}

fn is_claim(key: &str) -> bool {
    key.starts_with("batch/") || key.starts_with("once/")
}

fn subject(line: &str) -> &str {
    line.split_once(": ").map_or(line, |(subject, _)| subject)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{fleet::status::LockState, lock::AdmissionState};

    fn lease(key: &str, nodes: usize) -> LockDetail {
        LockDetail {
            key: key.into(),
            state: LockState::Held,
            nodes,
            configured: 5,
            ..LockDetail::default()
        }
    }

    #[test]
    fn g5_the_next_restart_waits_for_votes_and_margins() {
        let node = |state| AdmissionReport {
            nomination: None,
            name: "n1".into(),
            state,
            memory_loss: None,
        };
        let votes = [node(AdmissionState::Admitted)];
        assert_eq!(missing(&votes, &[lease("job/a", 5)]), [""; 0]);
        let short = [lease("job/a", 4), lease("batch/b/1", 3)];
        assert_eq!(missing(&votes, &short), ["job/a: held on 4 of 5 nodes"]);
        let lost = [node(AdmissionState::Watched { left: None })];
        assert_eq!(missing(&lost, &[]).len(), 1);
    }
}
