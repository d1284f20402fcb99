//! Another server takes over, or nobody says which one is in charge.

use std::time::Duration;

use watchkeeper_lock::{clock::Clock, node::Answer};

use super::{
    TRUST,
    deployment::{Deployment, Sentinel},
};
use crate::{
    bench::{acquire, granted, read, run, send},
    failover::{
        LEASE, NAME, answer, client, founded, in_time, leads_to, locks, next_after, rivals, taken,
        through, trouble,
    },
};

pub(crate) fn a_killed_master_is_replaced_and_nothing_is_granted_before_its_leases_are_over() {
    run(async {
        let mut deployment = Deployment::start().await;
        let settings = through(&deployment.url(), LEASE);
        let (_one, other, lease) = rivals(&settings).await;
        deployment.servers[0].kill();
        let next = next_after(&lease, &other).await;
        assert_eq!(deployment.master(), Some(1));
        assert_eq!(next.release().await.nodes, 1);
    });
}

pub(crate) fn a_frozen_master_that_comes_back_late_grants_nothing() {
    run(async {
        let clock = Clock::system();
        let deployment = Deployment::start().await;
        let url = deployment.url();
        let settings = founded(&url, LEASE).await;
        let connected = client(&url);
        let before = granted(&answer(&connected, acquire("before", "a")).await);
        let old = &deployment.servers[0];
        old.freeze();
        let next = deployment.another_than(0).await;
        // As long as the old one may still be asked.
        clock.sleep(TRUST).await;
        old.thaw();
        in_time("the old master", async || old.info("role") == "master").await;
        let scripts = old.scripts();
        for node in [connected, client(&url)] {
            let vote = answer(&node, acquire("after", "b")).await;
            assert_eq!(vote, Answer::Unadmitted);
            assert_eq!(node.run_id(), Some(deployment.servers[next].run_id()));
        }
        assert_eq!(old.scripts(), scripts, "it was asked");
        // When nothing of the old one can be held any more, the lock is to be had from the new one.
        let lease = taken(&locks(&settings)).await;
        assert!(before < lease.token().0);
        assert_eq!(old.scripts(), scripts, "it was asked");
    });
}

/// Sentinels promote a server that never heard that another one was in charge: it lives the same life, with the memory of then.
pub(crate) fn a_master_that_is_put_back_in_charge_has_lost_what_was_granted_meanwhile() {
    run(async {
        let mut deployment = Deployment::start().await;
        let url = deployment.url();
        let settings = founded(&url, LEASE).await;
        let (one, other) = (locks(&settings), locks(&settings));
        taken(&one).await.release().await;
        deployment.servers[0].freeze();
        assert_eq!(deployment.another_than(0).await, 1);
        let lease = taken(&one).await;
        deployment.servers[0].thaw();
        // Before its sentinels make it a replica, which takes them eight seconds.
        deployment.servers[1].kill();
        assert_eq!(deployment.another_than(1).await, 0);
        let vote = answer(&client(&url), acquire("other", "a")).await;
        assert_eq!(vote, Answer::Unadmitted);
        next_after(&lease, &other).await.release().await;
    });
}

pub(crate) fn a_planned_failover_moves_the_clients() {
    run(async {
        let deployment = Deployment::start().await;
        let url = deployment.url();
        let (one, other, lease) = rivals(&through(&url, LEASE)).await;
        let node = client(&url);
        leads_to(&node, &deployment.servers[0]).await;
        // The old one believes in itself for some seconds.
        let next = deployment.fail_over().await;
        next_after(&lease, &other).await.release().await;
        leads_to(&node, &deployment.servers[next]).await;
        assert_eq!(taken(&one).await.release().await.nodes, 1);
    });
}

pub(crate) fn without_a_majority_of_sentinels_no_vote_is_asked_for_and_it_comes_back() {
    run(async {
        let clock = Clock::system();
        let deployment = Deployment::start().await;
        let url = deployment.url();
        founded(&url, LEASE).await;
        let (node, master) = (client(&url), &deployment.servers[0]);
        granted(&answer(&node, acquire(NAME, "a")).await);
        let began = clock.now();
        let silent = &deployment.sentinels[1..];
        silent.iter().for_each(Sentinel::freeze);
        in_time("the end of the trust", async || {
            send(&node, vec![read(NAME)]).await.is_err()
        })
        .await;
        let waited = clock.now().since(began);
        assert!(waited < TRUST + Duration::from_secs(2), "{waited:?}");
        trouble(&node, "1 of 3").await;
        let scripts = master.scripts();
        for _ in 0..50 {
            let refused = send(&node, vec![acquire("other", "b")]).await;
            assert!(refused.is_err(), "{refused:?}");
            clock.sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(master.scripts(), scripts, "it was asked");
        silent[0].thaw();
        let Answer::View(seen) = answer(&node, read(NAME)).await else {
            panic!("not a view")
        };
        // Nothing was lost meanwhile, and nothing has to be watched.
        assert_eq!(seen.owner.as_deref(), Some("a"));
        granted(&answer(&node, acquire("other", "b")).await);
        silent[1].thaw();
    });
}
