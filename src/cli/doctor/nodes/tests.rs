use super::{super::finding::Severity, *};
use crate::node::{MemberFacts, NodeFacts, Token};

fn limits() -> Limits {
    Limits {
        node_timeout: Some(Duration::from_millis(50)),
        skew: Duration::from_secs(1),
        failover: false,
    }
}

#[test]
fn replicas_are_a_danger_to_a_master_and_wanted_where_it_is_replaced() {
    let with = |count, failover| {
        let mut node = good("a");
        node.facts.replicas = Some(count);
        let found = one(
            &node,
            &Limits {
                failover,
                ..limits()
            },
        );
        found
            .into_iter()
            .map(|f| f.finding)
            .collect::<Vec<_>>()
            .join("; ")
    };
    assert!(with(1, false).contains("two may hold a lock"));
    assert_eq!(with(0, false), "");
    assert_eq!(with(1, true), "");
    assert!(with(0, true).contains("nothing takes its place"));
}

fn good(name: &str) -> NodeState {
    NodeState {
        name: name.into(),
        up: true,
        latency_us: Some(300),
        slowest_us: Some(900),
        offset_ms: Some(2),
        offset_error_ms: Some(1),
        facts: NodeFacts {
            role: Some("master".into()),
            run_id: Some(name.into()),
            append_only: Some(true),
            fsync: Some("always".into()),
            eviction: Some("allkeys-lru".into()),
            memory_limit: Some(0),
            ..NodeFacts::default()
        },
        ..NodeState::default()
    }
}

/// The one fault of a node that is good but for this.
fn fault(change: impl FnOnce(&mut NodeState)) -> (Severity, String, String) {
    let mut node = good("a");
    change(&mut node);
    let mut found = one(&node, &limits());
    assert_eq!(found.len(), 1, "{found:?}");
    let found = found.remove(0);
    (found.severity, found.finding, found.remedy)
}

#[test]
fn a_good_node_is_ok_and_says_how_it_does() {
    let found = judge(&[good("a"), good("b"), good("c")], &limits());
    assert!(
        found.iter().all(|f| f.severity == Severity::Ok),
        "{found:?}"
    );
    assert_eq!(found[0].finding, "answers within 0.3 ms, master");
    let mut node = good("a");
    node.facts.role = Some("follower".into());
    (node.facts.size, node.facts.in_use) = (Some(20 << 20), Some(1 << 20));
    let found = judge(&[node], &limits());
    assert_eq!(
        found[0].finding,
        "answers within 0.3 ms, follower, 20480 KiB, 1024 KiB of them in use"
    );
}

#[test]
fn every_fault_of_a_node_has_its_remedy() {
    type Change = fn(&mut NodeState);
    let faults: [(Change, Severity, &str, &str); 28] = [
        (
            |n| {
                n.damage.found = vec!["the row of `a` is malformed".into()];
                n.damage.more = 2;
            },
            Severity::Error,
            "damaged: the row of `a` is malformed, and 2 more",
            "empty it",
        ),
        (
            |n| n.facts.role = Some("slave".into()),
            Severity::Error,
            "slave",
            "a master",
        ),
        (
            |n| n.facts.role = Some("primary beside postgres://a/app".into()),
            Severity::Error,
            "postgres://a/app takes writes, too",
            "pg_rewind",
        ),
        (
            |n| n.facts.lacks = Some("INSERT on queue".into()),
            Severity::Error,
            "lacks INSERT on queue",
            "GRANT in",
        ),
        (
            |n| n.facts.role = Some("learner".into()),
            Severity::Error,
            "learner",
            "locks.etcd.endpoints",
        ),
        (
            |n| n.facts.role = Some("without a leader".into()),
            Severity::Error,
            "without a leader",
            "its other members",
        ),
        (
            |n| n.facts.alarms = Some("memberID:42 alarm:NOSPACE ".into()),
            Severity::Error,
            "alarm:NOSPACE, and",
            "compact it",
        ),
        (
            |n| n.facts.alarms = Some("alarm:NOSPACE, alarm:CORRUPT".into()),
            Severity::Error,
            "alarm:CORRUPT, and",
            "its members differ",
        ),
        (
            |n| n.facts.alarms = Some("etcdserver: no leader".into()),
            Severity::Error,
            "no leader, and",
            "its log",
        ),
        (
            |n| n.facts.memory_limit = Some(1 << 30),
            Severity::Error,
            "evicts",
            "noeviction",
        ),
        (
            |n| n.facts.append_only = Some(false),
            Severity::Warning,
            "restart",
            "appendonly yes",
        ),
        (
            |n| n.facts.fsync = None,
            Severity::Warning,
            "appendfsync cannot be read",
            "+config|get",
        ),
        (
            |n| n.facts.fsync = Some("everysec".into()),
            Severity::Warning,
            "power cut",
            "always",
        ),
        (
            |n| n.facts.append_ok = Some(false),
            Severity::Error,
            "failed",
            "disk",
        ),
        (
            |n| {
                n.facts.eviction = Some("noeviction".into());
                n.facts.memory_limit = Some(100 << 20);
                n.facts.memory_used = Some(81 << 20);
            },
            Severity::Warning,
            "81 of 100 MiB",
            "maxmemory",
        ),
        (
            |n| n.facts.journal = Some("delete".into()),
            Severity::Warning,
            "delete",
            "restart the workers",
        ),
        (
            |n| n.facts.replicas = Some(1),
            Severity::Warning,
            "failover",
            "promote",
        ),
        (
            |n| n.latency_us = Some(30_000),
            Severity::Warning,
            "30ms",
            "node_timeout",
        ),
        (
            |n| n.offset_ms = Some(-1_500),
            Severity::Warning,
            "1500 ms behind",
            "NTP",
        ),
        (
            |n| n.facts.free = Some(1 << 20),
            Severity::Warning,
            "1 MiB",
            "room",
        ),
        (
            |n| n.facts.stopped_writer = Some(42),
            Severity::Error,
            "stopped",
            "kill -CONT 42",
        ),
        (
            |n| n.write_error = Some("OOM".into()),
            Severity::Error,
            "OOM",
            "writable",
        ),
        (
            |n| {
                n.write_error = Some("No space left: it is full".into());
                n.wants = Some("it is full");
            },
            Severity::Error,
            "it answers, but does not write: No space left",
            "it is full",
        ),
        (
            |n| {
                n.write_error = Some("space exceeded".into());
                n.facts.alarms = Some("alarm:NOSPACE".into());
            },
            Severity::Error,
            "alarm:NOSPACE",
            "etcdctl alarm disarm",
        ),
        (
            |n| {
                n.write_error = Some("NOPERM".into());
                n.denied = true;
            },
            Severity::Error,
            "does not write: NOPERM",
            "ACL SETUSER",
        ),
        (
            |n| n.error = Some("refused".into()),
            Severity::Error,
            "refused",
            "start it",
        ),
        (
            |n| {
                n.error = Some("WRONGPASS".into());
                n.denied = true;
            },
            Severity::Error,
            "access refused: WRONGPASS",
            "locks.redis.username",
        ),
        (
            |n| {
                n.error = Some("lacks +set".into());
                n.wants = Some("allow it with ACL SETUSER");
            },
            Severity::Error,
            "does not serve: lacks +set",
            "ACL SETUSER",
        ),
    ];
    for (change, severity, finding, remedy) in faults {
        let found = fault(change);
        assert_eq!(found.0, severity, "{found:?}");
        assert!(
            found.1.contains(finding) && found.2.contains(remedy),
            "{found:?}"
        );
    }
}

#[test]
fn a_remedy_is_said_once() {
    for change in [
        |n: &mut NodeState| n.write_error = Some("no space: it is full".into()),
        |n: &mut NodeState| n.error = Some("no space: it is full".into()),
    ] {
        let (_, finding, remedy) = fault(|n| {
            change(n);
            n.wants = Some("it is full");
        });
        assert_eq!(remedy, "it is full");
        assert!(finding.ends_with(": no space"), "{finding}");
    }
}

/// A node of three members; the third one is changed.
fn of_three(change: impl FnOnce(&mut MemberFacts)) -> NodeState {
    let member = |(n, role): (usize, &str)| MemberFacts {
        address: format!("http://m{n}:2379"),
        role: Some(role.into()),
        cluster: Some("ours".into()),
        ..MemberFacts::default()
    };
    let roles = ["leader", "follower", "follower"];
    let mut members: Vec<MemberFacts> = roles.into_iter().enumerate().map(member).collect();
    change(&mut members[2]);
    let mut node = good("etcd");
    node.facts = NodeFacts {
        role: Some("leader".into()),
        run_id: Some("ours".into()),
        members,
        ..NodeFacts::default()
    };
    node
}

#[test]
fn a_member_of_a_cluster_is_named_with_what_is_wrong_with_it() {
    let well = judge(&[of_three(|_| {})], &limits());
    assert_eq!(
        well[0].finding,
        "answers within 0.3 ms, leader, 3 endpoints"
    );
    assert_eq!(well.len(), 1, "{well:?}");
    type Change = fn(&mut MemberFacts);
    let faults: [(Change, Severity, &str, &str); 4] = [
        (
            |m| {
                m.role = None;
                m.error = Some("unreachable: refused".into());
            },
            Severity::Warning,
            "http://m2:2379 does not answer: unreachable: refused",
            "start it",
        ),
        (
            |m| {
                m.cluster = Some("theirs".into());
                m.stranger = true;
                m.alarms = Some("alarm:NOSPACE".into());
            },
            Severity::Error,
            "http://m2:2379 is of another cluster (theirs) than the other endpoints (ours)",
            "locks.etcd.endpoints",
        ),
        (
            |m| m.role = Some("learner".into()),
            Severity::Warning,
            "http://m2:2379 is a learner",
            "promote it",
        ),
        (
            |m| m.role = Some("without a leader".into()),
            Severity::Warning,
            "http://m2:2379 hears of no leader",
            "its log",
        ),
    ];
    for (change, severity, finding, remedy) in faults {
        let found = one(&of_three(change), &limits());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].severity, severity, "{found:?}");
        let says = found[0].finding.contains(finding) && found[0].remedy.contains(remedy);
        assert!(says, "{found:?}");
    }
    // An alarm is that of the cluster, and says who has raised it.
    let mut node = of_three(|m| m.alarms = Some("memberID:42 alarm:NOSPACE".into()));
    node.facts.alarms = Some("memberID:42 alarm:NOSPACE".into());
    let found = one(&node, &limits());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].finding.ends_with("to write; see http://m2:2379"),
        "{found:?}"
    );
}

#[test]
fn an_offset_counts_only_beyond_its_error() {
    let off = |offset_ms, error| {
        let mut node = good("a");
        (node.offset_ms, node.offset_error_ms) = (Some(offset_ms), Some(error));
        one(&node, &limits()).len()
    };
    assert_eq!(
        [
            off(1_000, 0),
            off(1_001, 0),
            off(1_400, 500),
            off(-2_000, 500)
        ],
        [0, 1, 0, 1]
    );
    let mut pair = [good("a"), good("b"), good("c")];
    (pair[0].offset_ms, pair[1].offset_ms) = (Some(-700), Some(700));
    let found = together(&pair, &limits());
    assert!(
        found[0].finding.contains("b and a are 1400 ms apart"),
        "{found:?}"
    );
    assert!(found.iter().all(Finding::has_its_remedy), "{found:?}");
}

#[test]
fn two_addresses_of_one_server_are_found_and_nodes_to_spare_counted() {
    let mut nodes = [good("a"), good("b"), good("c")];
    nodes[2].facts.run_id = Some("a".into());
    let found = together(&nodes, &limits());
    assert!(found[0].finding.contains("same server as a"), "{found:?}");
    assert!(found.iter().all(Finding::has_its_remedy), "{found:?}");
    nodes[2] = good("c");
    nodes[2].up = false;
    let found = together(&nodes, &limits());
    assert_eq!(found[0].severity, Severity::Warning);
    assert!(found.iter().all(Finding::has_its_remedy), "{found:?}");
    nodes[1].up = false;
    let found = together(&nodes, &limits());
    assert_eq!(found[0].severity, Severity::Error);
    assert!(found.iter().all(Finding::has_its_remedy), "{found:?}");
}

#[test]
fn a_number_far_above_those_of_the_others_is_damage_of_its_node() {
    let nodes = |far: [bool; 3]| {
        let node = |(name, far): (&str, bool)| {
            let mut node = good(name);
            node.damage.far = far.then(|| (Token((1 << 53) - 5), "the counter of `a`".into()));
            node
        };
        ["a", "b", "c"]
            .into_iter()
            .zip(far)
            .map(node)
            .collect::<Vec<_>>()
    };
    let found = |far| {
        let found = judge(&nodes(far), &limits()).into_iter();
        let damaged = found.filter(|f| f.finding.contains("damaged"));
        damaged.map(|f| (f.subject, f.remedy)).collect::<Vec<_>>()
    };
    let one = found([false, true, false]);
    assert_eq!(one[0].0, "b");
    assert!(one[0].1.contains("empty it") && one.len() == 1);
    // A majority cannot be told from a fleet that has counted so far.
    assert_eq!(found([true, true, false]), []);
}

/// A Redis behind three sentinels; the third one is changed.
fn behind_sentinels(change: impl FnOnce(&mut MemberFacts)) -> NodeState {
    let sentinel = |n: usize| MemberFacts {
        address: format!("s{n}:26379"),
        role: Some("sentinel".into()),
        id: Some(format!("id{n}")),
        names: Some("db:6379".into()),
        of: Some(3),
        ..MemberFacts::default()
    };
    let mut members: Vec<MemberFacts> = (0..3).map(sentinel).collect();
    change(&mut members[2]);
    let mut node = good("redis");
    node.facts.members = members;
    node
}

#[test]
fn a_sentinel_that_is_silent_or_differs_is_named() {
    let well = judge(&[behind_sentinels(|_| {})], &limits());
    assert!(well[0].finding.ends_with(", 3 sentinels"), "{well:?}");
    assert_eq!(well.len(), 1, "{well:?}");
    type Change = fn(&mut MemberFacts);
    let faults: [(Change, &str, &str); 5] = [
        (
            |m| {
                (m.id, m.names, m.of) = (None, None, None);
                m.error = Some("unreachable: no answer in time".into());
            },
            "s2:26379 does not tell who the master is: unreachable: no answer in time; 2 of 3 sentinels do, and without 2 no \
             replica leads",
            "SENTINEL RESET",
        ),
        (
            |m| {
                (m.id, m.names, m.of) = (None, None, None);
                m.error = Some("unexpected answer: it is about to name another master".into());
            },
            "about to name another",
            "do as it says",
        ),
        (
            |m| m.id = Some("id0".into()),
            "there are 3 sentinels, and locks.redis.nodes names 2 of them",
            "name all of them",
        ),
        (
            |m| m.names = Some("old:6379".into()),
            "s2:26379 names old:6379 as the master, and most others db:6379",
            "look at its log",
        ),
        (
            |m| m.of = Some(5),
            "there are 5 sentinels, and locks.redis.nodes names 3 of them",
            "name all of them",
        ),
    ];
    for (change, finding, remedy) in faults {
        let found = judge(&[behind_sentinels(change)], &limits());
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].severity, Severity::Warning);
        assert!(found[0].finding.contains(finding), "{found:?}");
        assert!(found[0].remedy.contains(remedy), "{found:?}");
    }
}
