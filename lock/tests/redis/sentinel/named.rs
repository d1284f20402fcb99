//! A master is named: by how many sentinels, and which passwords are wanted.

use watchkeeper_lock::{
    clock::Clock,
    node::{Node, NodeFacts},
};

use super::{
    TRUST,
    deployment::{Deployment, MASTER, Passwords, Sentinel, listing},
};
use crate::{
    bench::{acquire, granted, read, run},
    failover::{
        LEASE, NAME, answer, client, founded, in_time, is_refused, leads_to, locks, rivals, taken,
        through, trouble, values,
    },
};

pub(crate) fn a_master_is_found_and_its_lock_kept() {
    run(async {
        let deployment = Deployment::start().await;
        let settings = through(&deployment.url(), LEASE);
        let (_one, other, lease) = rivals(&settings).await;
        let before = connections(&deployment);
        // Longer than what was heard of the master is believed.
        let ends = Clock::system().timeout(TRUST * 2, lease.lost()).await;
        assert!(ends.is_err(), "{ends:?}");
        // They are asked every second, over connections that stay, also those whose answer is not waited for.
        let made: Vec<u64> = connections(&deployment)
            .iter()
            .zip(&before)
            .map(|(now, before)| now - before)
            .collect();
        assert!(made.iter().all(|made| *made <= 5), "{made:?}");
        is_refused(&other).await;
        let first = lease.token();
        assert_eq!(lease.release().await.nodes, 1);
        assert!(first < taken(&other).await.token());
    });
}

/// How many connections each sentinel was asked for so far.
fn connections(deployment: &Deployment) -> Vec<u64> {
    let count = |sentinel: &Sentinel| {
        let told = sentinel.ask(&["INFO", "stats"]).unwrap_or_default();
        let mut lines = told.lines();
        let found = lines.find_map(|line| line.strip_prefix("total_connections_received:"));
        found.and_then(|count| count.parse().ok()).expect("a count")
    };
    deployment.sentinels.iter().map(count).collect()
}

pub(crate) fn one_listed_sentinel_of_three_is_no_majority() {
    run(async {
        let deployment = Deployment::of(1, Passwords::default()).await;
        let one = client(&listing(&deployment.addresses()[..1]));
        trouble(&one, "1 of 3").await;
        assert_eq!(deployment.servers[0].scripts(), 0);
        let two = client(&listing(&deployment.addresses()[..2]));
        answer(&two, read(NAME)).await;
    });
}

/// What `doctor` shows of them.
pub(crate) fn each_sentinel_is_inspected_also_one_that_is_silent() {
    run(async {
        let deployment = Deployment::of(1, Passwords::default()).await;
        let node = client(&deployment.url());
        let of = |facts: NodeFacts| -> Vec<_> {
            let members = facts.members.into_iter();
            members.map(|m| (m.names, m.of, m.error)).collect()
        };
        let told = of(node.inspect().await.unwrap());
        assert_eq!(told.len(), 3);
        let (name, known, _) = told[0].clone();
        assert!(name.is_some() && known == Some(3), "{told:?}");
        assert!(told.iter().all(|one| *one == told[0]), "{told:?}");
        deployment.sentinels[2].freeze();
        let told = of(node.inspect().await.unwrap());
        assert_eq!(
            told[..2],
            [(name.clone(), known, None), (name, known, None)]
        );
        let silent = told[2].2.as_deref().unwrap_or_default();
        assert!(silent.contains("no answer in time"), "{told:?}");
        deployment.sentinels[2].thaw();
    });
}

pub(crate) fn a_sentinel_that_is_listed_twice_counts_once() {
    run(async {
        let deployment = Deployment::of(1, Passwords::default()).await;
        let first = deployment.addresses().swap_remove(0);
        let again = first.replace("127.0.0.1", "127.0.0.2");
        trouble(&client(&listing(&[first, again])), "1 of 3").await;
        assert_eq!(deployment.servers[0].scripts(), 0);
    });
}

/// As after a start with an empty file, or `SENTINEL RESET`: until it hears of the others it counts itself alone.
pub(crate) fn a_sentinel_that_has_forgotten_the_others_is_no_majority() {
    run(async {
        let deployment = Deployment::of(1, Passwords::default()).await;
        let [first, others @ ..] = &deployment.sentinels[..] else {
            panic!("no sentinel")
        };
        others.iter().for_each(Sentinel::freeze);
        // What they have said last is heard within a moment.
        in_time("it to know no other", async || {
            first.ask(&["SENTINEL", "RESET", MASTER]);
            let told = first.ask(&["SENTINEL", "MASTER", MASTER]);
            told.is_some_and(|told| values(&told, "num-other-sentinels") == ["0"])
        })
        .await;
        trouble(&client(&deployment.url()), "1 of 3").await;
        assert_eq!(deployment.servers[0].scripts(), 0);
    });
}

pub(crate) fn an_unknown_master_name_is_named() {
    run(async {
        let deployment = Deployment::of(1, Passwords::default()).await;
        let url = deployment.url().replace(&format!("/{MASTER}"), "/nowhere");
        trouble(&client(&url), "No such").await;
    });
}

pub(crate) fn a_sentinel_that_wants_a_password_is_named() {
    run(async {
        let passwords = Passwords {
            sentinels: Some("right-word"),
            ..Passwords::default()
        };
        let deployment = Deployment::of(1, passwords).await;
        let url = deployment.url();
        let wrong = format!("{url}?sentinel_password=wrong-word");
        for url in [&url, &wrong] {
            let said = trouble(&client(url), "sentinel_password").await;
            assert!(!said.contains("-word"), "{said}");
            let mut addresses = deployment.addresses().into_iter();
            assert!(addresses.any(|one| said.contains(&one)), "{said}");
        }
        let right = format!("{url}?sentinel_password=right-word");
        founded(&right, LEASE).await;
        granted(&answer(&client(&right), acquire(NAME, "a")).await);
    });
}

pub(crate) fn a_master_that_wants_a_password_gets_it() {
    run(async {
        let passwords = Passwords {
            servers: Some("right-word"),
            ..Passwords::default()
        };
        let deployment = Deployment::of(2, passwords).await;
        let url = deployment.url();
        let with = |password: &str| url.replace("sentinel://", &format!("sentinel://:{password}@"));
        for (url, words) in [
            (url.clone(), "NOAUTH"),
            (with("wrong-word"), "user and password"),
        ] {
            let said = trouble(&client(&url), words).await;
            assert!(!said.contains("-word"), "{said}");
        }
        let right = with("right-word");
        let settings = founded(&right, LEASE).await;
        granted(&answer(&client(&right), acquire("other", "a")).await);
        // The one that takes over wants the same.
        let locks = locks(&settings);
        taken(&locks).await.release().await;
        let next = deployment.fail_over().await;
        taken(&locks).await.release().await;
        leads_to(&client(&right), &deployment.servers[next]).await;
    });
}

/// It would go on with an old master, and take what a new one has got for its own.
pub(crate) fn a_program_with_the_address_of_the_master_is_refused_by_name() {
    run(async {
        let deployment = Deployment::of(1, Passwords::default()).await;
        let settings = founded(&deployment.url(), LEASE).await;
        let direct = format!("redis://127.0.0.1:{}", deployment.servers[0].known);
        let direct = locks(&through(&direct, LEASE));
        in_time("the reason", async || {
            let refused = direct.lock(NAME).acquire().await;
            let why = refused.expect_err("it is of another fleet").to_string();
            why.contains("Sentinel or Cluster in redis.nodes is true there and false here")
        })
        .await;
        taken(&locks(&settings)).await.release().await;
    });
}

/// Programs that list the same sentinels differently bring the same master back to its vote.
pub(crate) fn however_its_sentinels_are_listed_a_fleet_is_one() {
    run(async {
        let deployment = Deployment::start().await;
        founded(&deployment.url(), LEASE).await;
        let mut backwards = deployment.addresses();
        backwards.reverse();
        let other = locks(&through(&listing(&backwards), LEASE));
        taken(&other).await.release().await;
        deployment.fail_over().await;
        taken(&other).await.release().await;
    });
}
