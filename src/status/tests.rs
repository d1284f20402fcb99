use super::*;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap()
}

fn presence(name: &str, rev: u64) -> Presence {
    Presence {
        id: replica_id("host", 7, name),
        name: name.into(),
        host: "host".into(),
        pid: 7,
        rev,
        written_at: at(1_000),
        ..Presence::default()
    }
}

fn leads(mut presence: Presence, job: &str, token: u64) -> Presence {
    presence.role = Role::Leader;
    presence.jobs.push(JobPresence {
        name: job.into(),
        coordination: "leader".into(),
        standing: Standing::Leading,
        token: Some(Token(token)),
        since: Some(at(500)),
        remaining_ms: Some(9_000),
        ..JobPresence::default()
    });
    presence
}

fn stands_by(mut presence: Presence, job: &str) -> Presence {
    presence.jobs.push(JobPresence {
        name: job.into(),
        coordination: "leader".into(),
        ..JobPresence::default()
    });
    presence
}

#[test]
fn the_newest_revision_of_a_replica_counts() {
    let docs = [
        leads(presence("a", 2), "report", 5),
        stands_by(presence("a", 3), "report"),
        leads(presence("a", 1), "report", 4),
    ];
    let fleet = FleetStatus::from_presences(docs, vec![], at(1_500));
    assert_eq!(fleet.replicas.len(), 1);
    assert_eq!(fleet.replicas[0].seen_ms_ago, 500);
    assert_eq!(fleet.job("report").unwrap().leader, None);
}

#[test]
fn the_larger_token_is_shown_as_leader() {
    let docs = [
        leads(presence("a", 9), "report", 5),
        leads(presence("b", 1), "report", 6),
        stands_by(presence("c", 1), "report"),
    ];
    let fleet = FleetStatus::from_presences(docs, vec![], at(2_000));
    let job = fleet.job("report").unwrap();
    let leader = job.leader.as_ref().unwrap();
    assert_eq!((leader.name.as_str(), leader.token), ("b", Token(6)));
    assert_eq!(leader.remaining_ms, Some(8_000));
    assert!(job.contested);
}

#[test]
fn a_claim_is_not_shown_after_its_end() {
    let mut doc = leads(presence("a", 1), "report", 5);
    doc.jobs[0].believe_ms = Some(3_000);
    let shown = |now| {
        let fleet = FleetStatus::from_presences([doc.clone()], vec![], at(now));
        fleet.jobs[0].leader.is_some()
    };
    assert!(shown(4_000));
    assert!(!shown(4_001));
    assert!(shown(0), "a writer whose clock is ahead is believed");
}

#[test]
fn the_order_of_documents_changes_nothing() {
    let mut docs = vec![
        leads(presence("a", 2), "report", 5),
        leads(presence("b", 1), "report", 5),
        stands_by(presence("a", 2), "mail"),
        stands_by(presence("c", 4), "mail"),
    ];
    docs[2].written_at = at(999);
    let forth = FleetStatus::from_presences(docs.clone(), vec![], at(1_000));
    docs.reverse();
    let back = FleetStatus::from_presences(docs, vec![], at(1_000));
    assert_eq!(forth, back);
}

#[test]
fn ticks_and_runs_of_all_replicas_meet_in_the_job() {
    let mut a = leads(presence("a", 1), "report", 5);
    a.jobs[0].next_tick = Some(at(60_000));
    let mut b = stands_by(presence("b", 1), "report");
    b.jobs[0].next_tick = Some(at(30_000));
    b.jobs[0].last_tick = Some(at(900));
    b.jobs[0].last_outcome = Some("done".into());
    b.jobs[0].running.push(RunStatus {
        run_id: "r1".into(),
        done: Some(3),
        total: Some(10),
        ..RunStatus::default()
    });
    let fleet = FleetStatus::from_presences([a, b], vec![], at(1_000));
    let job = fleet.job("report").unwrap();
    assert_eq!(job.next_tick, Some(at(60_000)), "the leader decides");
    assert_eq!(job.last_tick, Some(at(900)));
    assert_eq!(job.last_outcome.as_deref(), Some("done"));
    assert_eq!(job.running[0].replica, "host-7-b");
}

#[test]
fn the_json_has_the_promised_shape() {
    let node = NodeStatus {
        name: "embedded".into(),
        up: true,
        ..NodeStatus::default()
    };
    let docs = [leads(presence("a", 1), "report", 5)];
    let fleet = FleetStatus::from_presences(docs, vec![node], at(1_000));
    let json = serde_json::to_value(&fleet).unwrap();
    for field in ["id", "name", "host", "pid", "version", "role", "draining"] {
        assert!(json["replicas"][0].get(field).is_some(), "{field}");
    }
    let job = &json["jobs"][0];
    for field in ["name", "coordination", "last_tick", "next_tick", "paused"] {
        assert!(job.get(field).is_some(), "{field}");
    }
    assert_eq!(job["leader"]["token"], 5);
    assert_eq!(job["leader"]["since"], "1970-01-01T00:00:00.5Z");
    assert_eq!(json["replicas"][0]["role"], "leader");
    assert_eq!(json["nodes"][0]["up"], true);
}

#[test]
fn a_document_of_a_newer_version_is_understood() {
    let mut doc = leads(presence("a", 1), "report", 5);
    let mut json = serde_json::to_value(&doc).unwrap();
    json["mood"] = "good".into();
    json["role"] = "archivist".into();
    json["jobs"][0]["standing"] = "dreaming".into();
    doc.role = Role::Observer;
    doc.jobs[0].standing = Standing::Off;
    assert_eq!(Presence::from_json(&json.to_string()).unwrap(), doc);
}

#[test]
fn a_document_under_a_strange_name_is_left_out() {
    let presence = presence("a", 1);
    let doc = |name: &str, body: String| Doc {
        name: name.into(),
        rev: 8,
        body,
    };
    let docs = [
        doc(&presence.document_name(), presence.to_json().unwrap()),
        doc("presence/other", presence.to_json().unwrap()),
        doc("presence/", "{}".into()),
        doc("presence/x", "not json".into()),
    ];
    let read = Presence::from_docs(&docs);
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].rev, 8);
}

#[test]
fn margin_counts_configured_nodes() {
    let fleet = |up: &[bool]| FleetStatus {
        nodes: up
            .iter()
            .map(|up| NodeStatus {
                up: *up,
                ..NodeStatus::default()
            })
            .collect(),
        ..FleetStatus::default()
    };
    assert_eq!(fleet(&[]).node_margin(), None);
    assert_eq!(fleet(&[true]).node_margin(), Some(0));
    assert_eq!(
        fleet(&[true, true, true, false, true]).node_margin(),
        Some(1)
    );
    assert_eq!(fleet(&[true, false, false]).node_margin(), Some(-1));
}

#[test]
fn a_lock_names_its_replica_only_while_the_tokens_agree() {
    let docs = [leads(presence("a", 1), "report", 5)];
    let fleet = FleetStatus::from_presences(docs, vec![], at(1_000));
    let lock = |key: &str, token| LockStatus {
        key: key.into(),
        token: Token(token),
        ..LockStatus::default()
    };
    let replica = |lock: LockStatus| lock.with_replica(&fleet).replica;
    assert_eq!(replica(lock("job/report", 5)).as_deref(), Some("host-7-a"));
    assert_eq!(replica(lock("job/report", 6)), None);
    assert_eq!(replica(lock("lock/report", 5)), None);
}

fn view(holder: Option<&str>, owner: &str, token: u64, remaining_ms: u64) -> View {
    View {
        key: "job/report".into(),
        holder: holder.map(str::to_owned),
        remaining_ms: holder.map(|_| remaining_ms),
        owner: Some(owner.into()),
        token: Token(token),
        ..View::default()
    }
}

#[test]
fn a_lock_is_held_by_whom_a_majority_shows_for_as_long_as_a_majority_does() {
    let answers = [
        vec![view(Some("a"), "a", 7, 9_000)],
        vec![view(Some("a"), "a", 7, 8_000)],
        vec![view(Some("old"), "old", 9, 100)],
    ];
    let locks = LockStatus::from_views(&answers, 3);
    let expected = LockStatus {
        key: "job/report".into(),
        owner: "a".into(),
        token: Token(7),
        remaining_ms: Some(8_000),
        held: true,
        nodes: 2,
        released: false,
        replica: None,
    };
    assert_eq!(locks, [expected]);
    let of_five = LockStatus::from_views(&answers, 5);
    assert!(
        !of_five[0].held,
        "configured nodes count, not those that answered"
    );
    assert_eq!(of_five[0].remaining_ms, Some(9_000));
}

#[test]
fn a_released_lock_names_its_last_owner() {
    let mut released = view(None, "b", 8, 0);
    released.released = true;
    let answers = [vec![released], vec![view(None, "a", 7, 0)], vec![]];
    let lock = &LockStatus::from_views(&answers, 3)[0];
    assert_eq!((lock.owner.as_str(), lock.nodes), ("b", 0));
    assert!(lock.released && !lock.held);
    assert_eq!(lock.remaining_ms, None);
}
