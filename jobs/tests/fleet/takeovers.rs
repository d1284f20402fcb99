//! The leader is killed: how soon another one works, and how long it says that nobody led.
//!
//! A handful of takeovers with a short ttl belongs to every run of the tests. Five for each mode with the ttl that people use
//! cost forty seconds each, side by side: `cargo test -p watchkeeper-jobs --test fleet five_takeovers -- --ignored
//! --nocapture`.

use std::time::Duration;

use watchkeeper::clock::{Clock, Moment};

use crate::{
    fleet::{Fleet, TTL, median},
    store::Store,
    wait::{SOON, less, pause, starved, takeover_limit},
};

/// Work that is always under way, so that the first run of a successor waits for no tick.
const SERVICE: &str = r#"
[worker]
mode = "$MODE"
[jobs.service]
kind = "heartbeat"
schedule = "continuous"
params = { file = "$BEATS", work = "10m" }
"#;

/// What people use.
const LONG: Duration = Duration::from_secs(5);

pub(crate) fn a_spare_replica_takes_over_within_a_ttl_and_a_third(store: Store) {
    takeovers(store, "failover", TTL, 3);
}

pub(crate) fn five_takeovers_of_a_failover_pair(store: Store) {
    takeovers(store, "failover", LONG, 5);
}

pub(crate) fn five_takeovers_by_a_candidate(store: Store) {
    takeovers(store, "shared", LONG, 5);
}

/// Two workers; the one that works is killed so often, and replaced by a new one.
fn takeovers(store: Store, mode: &str, ttl: Duration, rounds: u32) {
    let mut fleet = Fleet::new(store, &SERVICE.replace("$MODE", mode));
    let env = [(
        "WATCHKEEPER_LOCKS__TTL".to_owned(),
        format!("{}ms", ttl.as_millis()),
    )];
    for _ in 0..2 {
        let new = fleet.start_with(&env);
        fleet.wait_until_ready(new);
    }
    let mut active = fleet.leader("service").worker;
    let (mut gaps, mut undisturbed, mut said) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        // So long the other one has to have watched it, and another phase of the renewals each time.
        pause(ttl + ttl * round / 7);
        let mark = fleet.log.mark();
        let killed = fleet.kill(active);
        let renewed = match fleet.store.is_approximate() {
            true => None,
            false => last_renewal(&fleet, ttl, killed),
        };
        let leads = fleet
            .log
            .wait(mark, SOON, "leader", |l| l.is("leading", "service"));
        let run = fleet.log.wait(mark, SOON, "run", |l| {
            l.is("heartbeat", "service") && l.worker == leads.worker
        });
        let gap = run.at.since(killed);
        let starved = starved(killed, run.at);
        let most = takeover_limit(ttl) + starved;
        assert!(gap <= most, "first run after {gap:?}, starved {starved:?}");
        gaps.push(gap);
        undisturbed.push(less(gap, starved));

        // It cannot know when the other died, but when it was last heard of, and when it should have been again.
        let leaderless = Duration::from_millis(leads.number("leaderless_ms"));
        let since = |renewed: Moment| leads.at.since(renewed).saturating_sub(ttl / 6);
        let slack = Duration::from_millis(300) + starved;
        if let Some((first, last)) = renewed {
            let (most, least) = (since(first), since(last));
            assert!(
                leaderless + slack >= least && leaderless <= most + slack,
                "{leaderless:?}, and seen from outside {least:?} to {most:?}"
            );
        }
        let true_gap = leads.at.since(killed);
        assert!(
            leaderless.abs_diff(true_gap) <= ttl / 6 + slack,
            "{leaderless:?}, and it was killed {true_gap:?} before"
        );
        said.push((leaderless, true_gap));
        active = leads.worker;
        let new = fleet.start_with(&env);
        fleet.wait_until_ready(new);
    }
    fleet.measured(&format!("{mode}: first run after the kill"), &gaps);
    fleet.measured(
        &format!("{mode}: leaderless, said and since the kill"),
        &said,
    );
    let typical = median(undisturbed.clone());
    assert!(
        typical <= ttl.mul_f64(1.1),
        "{gaps:?}, and {undisturbed:?} without waiting for a processor"
    );
}

/// When the holder, which was killed just now, renewed its lease: between these moments. Its keys tell, and stand for half of a ttl:
/// who was kept from asking for so long has nothing to compare with.
fn last_renewal(fleet: &Fleet, ttl: Duration, killed: Moment) -> Option<(Moment, Moment)> {
    let clock = Clock::system();
    let asked = clock.now();
    let locks = fleet.command(&["locks", "--json"]);
    let answered = clock.now();
    let locks: Vec<serde_json::Value> = serde_json::from_str(&locks).expect("JSON");
    let lock = locks.iter().find(|lock| lock["key"] == "job/service");
    let left = lock.and_then(|lock| lock["remaining_ms"].as_u64());
    let late = answered.since(killed);
    let Some(left) = left else {
        assert!(late > ttl / 2, "its key has gone {late:?} after the kill");
        return None;
    };
    let gone = ttl.saturating_sub(Duration::from_millis(left));
    Some((asked.back(gone), answered.back(gone)))
}
