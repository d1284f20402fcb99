//! Members that are killed, moved and frozen while locks are taken and kept.

use std::time::Duration;

use watchkeeper_lock::node::{Answer, Kind::Lock, MemberFacts, Node, Op, etcd::EtcdNodeSettings};

use crate::{
    it::conformance::{ask, granted, release, take},
    members::EtcdCluster,
    scene::{node, over, put_doc, run, send, settings, until},
    server::EtcdServer,
    turns,
};

pub(crate) fn no_two_hold_a_lock_while_the_only_member_is_killed() {
    let mut server = EtcdServer::start();
    turns::beside(&[server.url()], |turns| {
        for _ in 0..3 {
            turns.go_on("before it is killed");
            server.kill();
            server.start_again();
        }
        turns.go_on("after it was killed");
    });
}

pub(crate) fn no_lease_is_lost_while_one_member_after_the_other_is_killed() {
    let mut cluster = EtcdCluster::start();
    let is_kept = turns::beside(&cluster.urls(), |turns| {
        for member in 0..3 {
            turns.go_on("before a member is killed");
            cluster.kill(member);
            turns.go_on("without it");
            cluster.start_again(member);
        }
        turns.go_on("with all of them");
    });
    assert!(is_kept, "a lease was lost with a member");
}

pub(crate) fn no_lease_is_lost_while_the_leader_moves_and_stands_still() {
    let cluster = EtcdCluster::start();
    let is_kept = turns::beside(&cluster.urls(), |turns| {
        for _ in 0..3 {
            cluster.move_leader();
            turns.go_on("after the leader has moved");
        }
        for _ in 0..2 {
            let leader = cluster.leader();
            cluster.freeze(leader);
            turns.go_on("beside a leader that stands still");
            cluster.thaw(leader);
            turns.go_on("after it goes on");
        }
    });
    assert!(is_kept, "a lease was lost with the leader");
}

pub(crate) fn without_a_majority_of_members_nothing_is_granted() {
    let mut cluster = EtcdCluster::start();
    run(async {
        let node = node(EtcdNodeSettings {
            node_timeout: Duration::from_millis(300),
            ..over(&cluster.urls(), "n")
        });
        granted(&node, take("k", "a")).await;
        cluster.kill(1);
        cluster.kill(2);
        for _ in 0..3 {
            let refused = send(&node, vec![take("l", "a")]).await;
            assert!(refused.is_err(), "{refused:?}");
        }
        cluster.start_again(1);
        until("a majority", async || {
            let taken = send(&node, vec![take("l", "a")]).await;
            taken.is_ok_and(|reply| matches!(reply.answers[0], Answer::Granted { .. }))
        })
        .await;
        let Answer::Refused(seen) = ask(&node, take("k", "b")).await else {
            panic!("it has forgotten")
        };
        assert_eq!(seen.owner.as_deref(), Some("a"));
    });
}

/// Also one that is not there, and one of another cluster.
pub(crate) fn every_endpoint_is_inspected() {
    let mut cluster = EtcdCluster::start();
    let other = EtcdServer::start();
    let endpoints = [cluster.urls(), vec![other.url()]].concat();
    run(async {
        let node = node(over(&endpoints, "n"));
        cluster.leader();
        let facts = node.inspect().await.unwrap();
        let roles: Vec<_> = facts.members.iter().map(|m| m.role.as_deref()).collect();
        let leaders = roles[..3].iter().filter(|role| **role == Some("leader"));
        assert_eq!(leaders.count(), 1, "{roles:?}");
        assert!(!roles[..3].contains(&Some("without a leader")), "{roles:?}");
        let strange: Vec<bool> = facts.members.iter().map(|m| m.stranger).collect();
        assert_eq!(strange, [false, false, false, true]);
        let addresses: Vec<&str> = facts.members.iter().map(|m| &*m.address).collect();
        assert_eq!(addresses, endpoints);
        for member in &facts.members {
            assert!(
                member.version.is_some() && member.size.is_some(),
                "{member:?}"
            );
        }
        let ours = facts.members[0].cluster.clone();
        assert!(ours.is_some() && facts.run_id == ours, "{facts:?}");
        cluster.kill(2);
        cluster.leader();
        let facts = node.inspect().await.unwrap();
        let failed = |member: &MemberFacts| member.error.is_some();
        let failed: Vec<bool> = facts.members.iter().map(failed).collect();
        assert_eq!(failed, [false, false, true, false]);
        assert!(facts.role.is_some(), "the others speak for it");
    });
}

/// Its own memory is old until it has heard from the leader: it answers when it has.
pub(crate) fn a_member_that_stood_still_shows_nothing_old() {
    let cluster = EtcdCluster::start();
    let leader = cluster.leader();
    let late = (leader + 1) % 3;
    let urls = cluster.urls();
    run(async {
        let behind = node(settings(&urls[late], "n"));
        let ahead = node(settings(&urls[leader], "n"));
        granted(&behind, take("k", "a")).await;
        granted(&ahead, take("l", "a")).await;
        cluster.freeze(late);
        ask(&ahead, release(Lock, "k", "a")).await;
        granted(&ahead, take("k", "b")).await;
        for rev in 1..=50 {
            ask(&ahead, put_doc("d", rev)).await;
        }
        cluster.thaw(late);
        let mut seen = None;
        until("an answer", async || {
            let read = Op::Read {
                key: "k".to_owned(),
            };
            let answered = send(&behind, vec![read]).await;
            seen = answered.ok().and_then(|mut reply| reply.answers.pop());
            seen.is_some()
        })
        .await;
        let Some(Answer::View(view)) = seen else {
            panic!("{seen:?}")
        };
        assert_eq!(view.owner.as_deref(), Some("b"));
        // What one member has shown is nothing that another one lacks.
        let both = node(over(&[urls[leader].clone(), urls[late].clone()], "n"));
        granted(&both, take("m", "a")).await;
        cluster.freeze(leader);
        until("the other member", async || {
            let taken = send(&both, vec![take("m", "a")]).await;
            taken.is_ok_and(|reply| matches!(reply.answers[0], Answer::Granted { .. }))
        })
        .await;
    });
}
