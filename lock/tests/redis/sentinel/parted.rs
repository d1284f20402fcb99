//! The network is cut in two: the master with one sentinel and some programs on the one side, most sentinels with all others on the
//! other. Nothing tells those who are cut off that another master is in charge.

use std::{future::Future, pin::pin, time::Duration};

use watchkeeper_lock::{
    Locks,
    clock::{Clock, Moment},
};

use super::{
    LATE, TRUST,
    deployment::{Deployment, FAR, NEAR, side_of},
};
use crate::failover::{
    Contest, LEASE, Network, PATIENCE, Party, Server, ask, beside, found, in_time, is_refused,
    locks, next_after, overlaps, taken, through, unguarded, without_the_guard,
};

/// A lease that outlasts every failover.
const MINUTE: Duration = Duration::from_secs(60);

/// What a program that wants another lock, and gives it back at once, has got.
#[derive(Default)]
struct Sought {
    /// Until when it could have been held, each time.
    deadlines: Vec<Moment>,
    /// When it was asked for last.
    last: Moment,
}

// === impl Sought ===

impl Sought {
    /// Asks for it all the time, until this is done.
    async fn beside<T>(&mut self, locks: &Locks, done: impl Future<Output = T>) -> T {
        let mut done = pin!(done);
        loop {
            tokio::select! {
                biased;
                done = &mut done => return done,
                () = self.ask(locks) => {}
            }
        }
    }

    async fn ask(&mut self, locks: &Locks) {
        let clock = Clock::system();
        self.last = clock.now();
        if let Ok(lease) = locks.lock("sought").acquire().await {
            self.deadlines.push(lease.deadline());
            lease.release().await;
        }
        clock.sleep(LEASE / 100).await;
    }
}

/// On the side of a master that was cut off nothing lasts longer than it is trusted, although it goes on to serve; on the other side its
/// successor grants nothing before. Two programs that each believe one sentinel hold their lock at once meanwhile.
pub(crate) fn a_master_that_is_cut_off_serves_its_side_no_longer_than_it_is_trusted() {
    beside(async {
        let clock = Clock::system();
        let (deployment, network) = Deployment::in_network(2).await;
        let [near, far] = [NEAR, FAR].map(|party| through(&deployment.url_of(party), LEASE));
        found(&near).await;
        let (near, far) = (locks(&near), locks(&far));
        let lease = taken(&far).await;
        is_refused(&near).await;
        let naive = Contest::naive(deployment.naive_pair(LEASE));
        naive.go_on("before the cut").await;

        network.cut_off(&side_of(0));
        let cut = clock.now();
        let mut sought = Sought::default();
        let next = sought.beside(&far, next_after(&lease, &near)).await;

        // The last question that most sentinels have answered had left before the cut.
        let (least, most) = (cut + LEASE, cut + TRUST + LEASE);
        let ends = sought.deadlines.iter().copied().max();
        for end in [Some(lease.deadline()), ends] {
            let end = end.expect("a lease");
            assert!(least < end, "the old master serves its side");
            let late = end.since(most);
            assert!(late.is_zero(), "{late:?} longer than it is trusted");
        }
        assert!(most < sought.last, "nobody asked when it was over");
        let watched = next.since().since(cut);
        assert!(LATE + LEASE <= watched, "watched for {watched:?} at most");
        let twice = overlaps(&naive.end().await);
        println!("[sentinel] who believes one sentinel: {twice} overlaps in one cut");
        assert!(
            twice > 0,
            "two holders where nothing prevents them are not found"
        );

        network.heal();
        is_refused(&far).await;
        let token = next.token();
        assert_eq!(next.release().await.nodes, 1);
        assert!(token < taken(&far).await.token());
    });
}

/// Why no program goes without the guard here, whatever its settings: the successor never heard of what was granted behind the cut, votes as soon as it is
/// named, and grants it once more. The same two programs that are kept apart in the case above.
pub(crate) fn without_the_guard_a_master_that_is_cut_off_and_its_successor_have_a_holder_each() {
    beside(async {
        let (deployment, network) = Deployment::in_network(2).await;
        let [near, far] = [NEAR, FAR].map(|party| {
            let (settings, why) = without_the_guard(through(&deployment.url_of(party), MINUTE));
            assert!(why.contains("restart_guard, redis.nodes: "), "{why}");
            unguarded(&settings)
        });
        // Both have found the master.
        for locks in [&near, &far] {
            let found = locks.lock("before").wait(PATIENCE).acquire().await;
            found.unwrap().release().await;
        }

        network.cut_off(&side_of(0));
        let lease = taken(&far).await;
        let next = taken(&near).await;
        assert!(
            lease.is_held() && next.is_held(),
            "two holders are not found where nothing prevents them: {lease:?}, {next:?}"
        );
        assert_eq!(deployment.master(), Some(1));
    });
}

/// What the cases of this file rest on.
pub(crate) fn a_cut_lets_nothing_through_in_either_direction() {
    beside(async {
        let network = Network::new();
        let start = async |n| {
            let endpoint = network.endpoint(Party::server(n)).await;
            Server::start(endpoint, None, &[])
        };
        let (master, replica) = (start(0).await, start(1).await);
        replica.follow(&master);
        in_time("the replica", async || replica.follows(&master)).await;
        let asked =
            async |party: Party, server: &Server| ask(party, &server.known, &["GET", "x"]).await;
        let nothing = Some("$-1\r\n".to_owned());
        let written = Some("$1\r\n1\r\n".to_owned());

        network.cut_off(&[Party::server(1), FAR]);
        master.tell(&["SET", "x", "1"]);
        assert_eq!(asked(NEAR, &master).await, written);
        assert_eq!(asked(FAR, &replica).await, nothing);
        assert_eq!(asked(FAR, &master).await, None);
        assert_eq!(asked(NEAR, &replica).await, None);
        // A second later: each waited for half of one in vain.
        assert_eq!(asked(FAR, &replica).await, nothing);

        network.heal();
        in_time("what was written", async || {
            asked(FAR, &replica).await == written
        })
        .await;
        assert_eq!(asked(FAR, &master).await, written);
    });
}
