//! What the replicas' documents and the locks mean. Pure.

use std::collections::BTreeSet;

use super::finding::Finding;
use crate::fleet::status::{FleetStatus, LockDetail};

pub(in crate::cli) fn judge(fleet: &FleetStatus, locks: &[LockDetail]) -> Vec<Finding> {
    let mut found = replicas(fleet);
    found.extend(jobs(fleet));
    found.extend(margins(locks));
    found
}

const NO_REPLICA: &str = "no replica runs";

/// Where most nodes write nothing, replicas that run cannot say so.
pub(super) fn nothing_is_written(found: &mut [Finding]) {
    for finding in found.iter_mut().filter(|f| f.finding == NO_REPLICA) {
        finding.finding =
            "whether replicas run is not known: they say so in the nodes, which do not write"
                .to_owned();
        finding.remedy = "see the nodes' own findings".to_owned();
    }
}

/// Nodes answer, and of the fleet nothing could be read: whether it is well was not found out.
pub(super) fn unseen(why: &str) -> Finding {
    Finding::error(
        "fleet",
        format!("what it does could not be read: {why}"),
        "run doctor again; where that stays so, see what it says of the nodes, and how long their calls take",
    )
}

fn replicas(fleet: &FleetStatus) -> Vec<Finding> {
    let mut found = Vec::new();
    match fleet.replicas.len() {
        0 => found.push(Finding::warning(
            "fleet",
            NO_REPLICA,
            "start one: watchkeeper run (programs under `lock` and `elect` need none)",
        )),
        1 => found.push(Finding::warning(
            "fleet",
            "one replica runs: no other takes over from it",
            "start a second one with the same configuration",
        )),
        n => found.push(Finding::ok("fleet", format!("{n} replicas run"))),
    }
    let versions: BTreeSet<&str> = fleet.replicas.iter().map(|r| r.version.as_str()).collect();
    if versions.len() > 1 {
        let list: Vec<&str> = versions.into_iter().collect();
        found.push(Finding::warning(
            "fleet",
            format!("its replicas have different versions: {}", list.join(", ")),
            "fine during an update; bring the others to the newest",
        ));
    }
    let modes = fleet.replicas.iter().map(|r| r.mode.as_str());
    let modes: BTreeSet<&str> = modes.filter(|mode| !mode.is_empty()).collect();
    if modes.len() > 1 {
        found.push(Finding::warning(
            "fleet",
            "some replicas run in shared mode, others in failover mode: no replica does everything",
            "give all of them the same worker.mode",
        ));
    }
    for replica in &fleet.replicas {
        if let Some(why) = &replica.unfit {
            found.push(Finding::warning(
                &replica.name,
                format!("it is unfit: {why}"),
                "it leads nothing until that is cured; look at its log",
            ));
        }
        if let Some(reload) = replica.reload.as_ref().filter(|reload| !reload.ok) {
            found.push(Finding::warning(
                &replica.name,
                reload.to_string(),
                "run watchkeeper check with its configuration, then reload it again (SIGHUP)",
            ));
        }
        if let Some(reload) = &replica.reload
            && !reload.needs_restart.is_empty()
        {
            let keys = reload.needs_restart.join(", ");
            found.push(Finding::warning(
                &replica.name,
                format!("it runs with older values of {keys}"),
                "restart it: these keys are read at the start alone",
            ));
        }
        if replica.is_silent() {
            found.push(Finding::warning(
                &replica.name,
                format!("it was last heard of {} s ago", replica.seen_ms_ago / 1000),
                "it is frozen, gone, or cannot reach the nodes; when its clock differs from ours, set both",
            ));
        }
    }
    found
}

fn jobs(fleet: &FleetStatus) -> Vec<Finding> {
    let mut found = Vec::new();
    let candidates = fleet.replicas.iter().any(|r| r.fit && !r.draining);
    for job in fleet.jobs.iter().filter(|job| !job.definitions.is_empty()) {
        found.push(Finding::warning(
            &job.name,
            format!(
                "its replicas disagree on its definition: {}",
                job.disagreement().join("; ")
            ),
            "fine during an update; bring the others to the newest and reload them (SIGHUP)",
        ));
    }
    for job in &fleet.jobs {
        if let Some(trouble) = &job.trouble {
            found.push(Finding::error(
                &job.name,
                trouble.to_string(),
                "nothing of it is done there until that is cured; see the logs of these replicas",
            ));
        }
    }
    let shards = fleet.jobs.iter().filter(|job| job.coordination == "leader");
    for (job, all) in shards.filter_map(|job| Some((job, job.shards?))) {
        if !job.leader_known {
            found.push(Finding::warning(
                &job.name,
                "it is not known who leads all of its shards: too few lock nodes answer",
                "see the findings about the nodes; look again when a majority of them answers",
            ));
        } else if job.shards_led < all && candidates {
            found.push(Finding::error(
                &job.name,
                format!("no replica leads {} of its {all} shards", all - job.shards_led),
                "look again in one ttl, which a takeover needs; then see which (watchkeeper status --shards) and the \
                 replicas' logs",
            ));
        }
    }
    for job in fleet.jobs.iter().filter(|job| job.wants_leader()) {
        if !job.leader_known {
            found.push(Finding::warning(
                &job.name,
                "it is not known who leads it: too few lock nodes answer",
                "see the findings about the nodes; look again when a majority of them answers",
            ));
        } else if job.leader.is_none() && candidates {
            found.push(Finding::error(
                &job.name,
                "no replica leads it",
                "look again in one ttl, which a takeover needs; then see the lock (watchkeeper locks show job/NAME) and \
                 the replicas' logs",
            ));
        }
    }
    found
}

fn margins(locks: &[LockDetail]) -> Vec<Finding> {
    let tight = locks
        .iter()
        .filter(|lock| lock.configured > 1 && lock.is_held() && lock.margin == Some(0));
    let finding = |lock: &LockDetail| {
        Finding::warning(
            &lock.key,
            format!(
                "it stands on {} of {} nodes, and needs them all: it is lost with the next one",
                lock.nodes, lock.configured
            ),
            "bring the other nodes back; its holder takes them within a third of its ttl",
        )
    };
    tight.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::finding::Severity, *};
    use crate::fleet::status::{
        DefinitionStatus, JobStatus, JobTrouble, LeaderStatus, LockState, ReloadStatus,
        ReplicaStatus,
    };

    fn replica(name: &str, version: &str) -> ReplicaStatus {
        ReplicaStatus {
            name: name.into(),
            version: version.into(),
            fit: true,
            ..ReplicaStatus::default()
        }
    }

    fn job(leader: Option<LeaderStatus>) -> JobStatus {
        JobStatus {
            name: "beat".into(),
            coordination: "leader".into(),
            leader,
            leader_known: true,
            ..JobStatus::default()
        }
    }

    #[test]
    fn two_modes_in_one_fleet_are_told() {
        let of = |modes: [&str; 2]| {
            let replica = |mode: &str| ReplicaStatus {
                mode: mode.into(),
                ..replica(mode, "1")
            };
            let fleet = FleetStatus {
                replicas: modes.map(replica).to_vec(),
                ..FleetStatus::default()
            };
            let found = judge(&fleet, &[]);
            found.iter().any(|f| f.remedy.contains("worker.mode"))
        };
        assert!(of(["shared", "failover"]));
        assert!(!of(["failover", "failover"]));
        assert!(!of(["shared", ""]), "another version tells none");
    }

    #[test]
    fn a_fleet_that_cannot_be_read_is_an_error() {
        let found = unseen("no majority of the lock nodes answered");
        assert_eq!(
            (found.severity, &*found.subject),
            (Severity::Error, "fleet")
        );
        assert!(found.finding.contains("no majority") && found.has_its_remedy());
    }

    #[test]
    fn a_whole_fleet_is_ok() {
        let fleet = FleetStatus {
            replicas: vec![replica("a", "1"), replica("b", "1")],
            jobs: vec![job(Some(LeaderStatus::default()))],
            ..FleetStatus::default()
        };
        let found = judge(&fleet, &[]);
        assert!(
            found.iter().all(|f| f.severity == Severity::Ok),
            "{found:?}"
        );
    }

    #[test]
    fn a_job_without_leader_is_an_error_while_somebody_could_lead() {
        let mut fleet = FleetStatus {
            replicas: vec![replica("a", "1"), replica("b", "2")],
            jobs: vec![job(None)],
            ..FleetStatus::default()
        };
        let worst = |fleet: &FleetStatus| judge(fleet, &[]).iter().map(|f| f.severity).max();
        assert_eq!(worst(&fleet), Some(Severity::Error));
        assert!(judge(&fleet, &[])[1].finding.contains("1, 2"));
        fleet.replicas.clear();
        assert_eq!(worst(&fleet), Some(Severity::Warning));
    }

    #[test]
    fn a_lock_without_a_node_to_spare_is_shown() {
        let lock = |margin, configured| LockDetail {
            state: LockState::Held,
            margin: Some(margin),
            configured,
            ..LockDetail::default()
        };
        let locks = [lock(0, 3), lock(1, 3), lock(0, 1)];
        let found = margins(&locks);
        assert_eq!(found.len(), 1);
        assert!(found[0].has_its_remedy());
    }

    #[test]
    fn every_fault_of_a_fleet_has_its_remedy() {
        type Change = fn(&mut FleetStatus);
        let faults: [(Change, Severity, &str, &str); 12] = [
            (
                |f| f.replicas.clear(),
                Severity::Warning,
                "no replica runs",
                "watchkeeper run",
            ),
            (
                |f| f.replicas.truncate(1),
                Severity::Warning,
                "one replica runs",
                "start a second",
            ),
            (
                |f| f.replicas[0].version = "2".into(),
                Severity::Warning,
                "1, 2",
                "bring the others",
            ),
            (
                |f| f.replicas[0].unfit = Some("its disk is full".into()),
                Severity::Warning,
                "unfit: its disk is full",
                "log",
            ),
            (
                |f| f.replicas[0].seen_ms_ago = 4_001,
                Severity::Warning,
                "last heard of 4 s ago",
                "cannot reach the nodes",
            ),
            (
                |f| {
                    f.replicas[0].reload = Some(ReloadStatus {
                        error: Some("worker.toml:3:1: no such key".into()),
                        ..ReloadStatus::default()
                    });
                },
                Severity::Warning,
                "failed, and changed nothing: worker.toml:3:1",
                "watchkeeper check",
            ),
            (
                |f| {
                    f.replicas[0].reload = Some(ReloadStatus {
                        ok: true,
                        needs_restart: vec!["locks.ttl".into()],
                        ..ReloadStatus::default()
                    });
                },
                Severity::Warning,
                "older values of locks.ttl",
                "restart",
            ),
            (
                |f| {
                    f.jobs[0].trouble = Some(JobTrouble {
                        replicas: vec!["a".to_owned()],
                        why: "no such table: mail".to_owned(),
                    });
                },
                Severity::Error,
                "a cannot look for work: no such table: mail",
                "logs",
            ),
            (
                |f| f.jobs[0].definitions = vec![DefinitionStatus::default(); 2],
                Severity::Warning,
                "disagree on its definition",
                "reload",
            ),
            (
                |f| (f.jobs[0].leader, f.jobs[0].leader_known) = (None, false),
                Severity::Warning,
                "not known who leads it",
                "majority",
            ),
            (
                |f| (f.jobs[0].shards, f.jobs[0].shards_led) = (Some(64), 61),
                Severity::Error,
                "no replica leads 3 of its 64 shards",
                "status --shards",
            ),
            (
                |f| f.jobs[0].leader = None,
                Severity::Error,
                "no replica leads",
                "locks show",
            ),
        ];
        for (change, severity, finding, remedy) in faults {
            let mut fleet = FleetStatus {
                replicas: vec![replica("a", "1"), replica("b", "1")],
                jobs: vec![job(Some(LeaderStatus::default()))],
                ..FleetStatus::default()
            };
            change(&mut fleet);
            let mut found = judge(&fleet, &[]);
            found.retain(|f| f.severity != Severity::Ok);
            assert_eq!(found.len(), 1, "{found:?}");
            assert_eq!(found[0].severity, severity, "{found:?}");
            assert!(
                found[0].finding.contains(finding) && found[0].remedy.contains(remedy),
                "{found:?}"
            );
        }
    }

    #[test]
    fn replicas_that_cannot_say_that_they_run_are_not_told_to_be_started() {
        let mut found = judge(&FleetStatus::default(), &[]);
        assert!(found.iter().any(|f| f.remedy.contains("start one")));
        nothing_is_written(&mut found);
        assert!(found.iter().all(|f| !f.remedy.contains("start one")));
        let told = found.iter().find(|f| f.finding.contains("do not write"));
        assert!(
            told.is_some_and(|f| f.remedy.contains("nodes")),
            "{found:?}"
        );
    }
}
