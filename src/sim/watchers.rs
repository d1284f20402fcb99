//! Few replicas watch what one leads: what becomes of a job when they go.

use std::{collections::BTreeSet, time::Duration};

use super::{
    growth::{cluster, fleet},
    unrest::play,
};
use crate::{
    chance::Chance,
    event::Event,
    scheduler::{
        Attention, WHOLE_REPLICA,
        mutants::{BY_CHANCE, RESTS_FOR_EVER},
    },
    testing::{cluster::Cluster, members::Member},
};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(10);
const REPLICAS: usize = 8;
const JOBS: usize = 3;
/// Within this every job is led again: what a presence document counts, a ttl, and an election.
const LED_AGAIN: Duration = Duration::from_secs(20);

/// What happens to a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Killed,
    Frozen,
    CutOff,
}

impl Fate {
    fn befalls(self, member: &Member) {
        match self {
            Self::Killed => member.tasks.crash(),
            Self::Frozen => member.tasks.freeze(),
            Self::CutOff => member.cut(true),
        }
    }

    fn is_over(self, member: &Member) {
        match self {
            Self::Killed => {}
            Self::Frozen => member.tasks.thaw(),
            Self::CutOff => member.cut(false),
        }
    }
}

fn holds(member: &Member, job: &str) -> bool {
    let leases = member.ctx.local_status.leases();
    let held = |(of, lease): &(String, crate::lease::LeaseView)| of == job && lease.is_held();
    !member.tasks.is_crashed() && leases.iter().any(held)
}

fn attention(member: &Member, of: &str) -> Attention {
    let (attention, _) = member.ctx.peers.attention(of, None, member.ctx.clock.now());
    attention
}

/// The replica that leads the job, those that watch it, and the others.
fn parts(members: &[Member], failover: bool) -> (&Member, Vec<&Member>, Vec<&Member>) {
    let of = if failover { WHOLE_REPLICA } else { "job-0" };
    let leader = members
        .iter()
        .find(|m| holds(m, "job-0"))
        .expect("it is led");
    let others = members.iter().filter(|m| m.me.id != leader.me.id);
    let (watch, rest): (Vec<_>, Vec<_>) =
        others.partition(|m| attention(m, of) == Attention::Watches);
    assert!(rest.iter().all(|m| attention(m, of) == Attention::Rests));
    (leader, watch, rest)
}

/// A fleet of which some rest.
async fn settled(seed: u64, failover: bool) -> (Cluster, Vec<Member>) {
    let cluster = cluster(seed);
    let members = fleet(&cluster, JOBS, REPLICAS, failover).await;
    // In any phase of renewals and documents.
    let phase = Chance::seeded(seed).up_to(TTL / 2);
    cluster.sleep(SECOND * 12 + phase).await;
    (cluster, members)
}

/// Waits until one of `members` leads every job; at no instant are there two.
async fn led_by(cluster: &Cluster, all: &[Member], members: &[&Member], limit: Duration) -> bool {
    let jobs: Vec<String> = (0..JOBS).map(|n| format!("job-{n}")).collect();
    let until = cluster.clock().now() + limit;
    while cluster.clock().now() < until {
        for job in &jobs {
            let holders = all.iter().filter(|m| holds(m, job)).count();
            assert!(holders <= 1, "{job} is held by {holders}");
        }
        if jobs.iter().all(|job| members.iter().any(|m| holds(m, job))) {
            return true;
        }
        cluster.sleep(Duration::from_millis(100)).await;
    }
    false
}

/// All that watch a job go, and its leader with them or soon after.
async fn schedule(seed: u64) {
    let failover = seed % 4 == 3;
    let (cluster, members) = settled(seed, failover).await;
    let (leader, watch, rest) = parts(&members, failover);
    assert_eq!((watch.len(), rest.len()), (3, REPLICAS - 4));
    let chance = Chance::seeded(seed ^ 0xfa7e);
    let fate =
        || [Fate::Killed, Fate::Frozen, Fate::CutOff][usize::try_from(chance.below(3)).unwrap()];
    let mut fates = Vec::new();
    for member in &watch {
        let fate = fate();
        fate.befalls(member);
        fates.push((*member, fate));
    }
    if chance.hits(0.5) {
        cluster.sleep(chance.up_to(SECOND * 9)).await;
    }
    let fate = fate();
    fate.befalls(leader);
    fates.push((leader, fate));
    let led = led_by(&cluster, &members, &rest, LED_AGAIN).await;
    assert!(
        led,
        "seed {seed}: no replica leads after {:?}",
        fates.iter().map(|(_, fate)| fate).collect::<Vec<_>>()
    );
    // They come back, and all is at rest again.
    for (member, fate) in fates {
        fate.is_over(member);
    }
    cluster.sleep(TTL).await;
    let living: Vec<&Member> = members.iter().filter(|m| !m.tasks.is_crashed()).collect();
    assert!(
        led_by(&cluster, &members, &living, TTL).await,
        "seed {seed}"
    );
}

#[test]
fn whatever_becomes_of_those_that_watch_a_job_is_led_again() {
    for seed in 0..8 {
        play(schedule(seed));
    }
}

#[test]
#[ignore = "minutes: a thousand fleets"]
fn whatever_becomes_of_those_that_watch_a_job_is_led_again_a_thousand_times() {
    // Each by itself: what is left of a fleet would go on beside the next one.
    for seed in 0..1000 {
        play(schedule(seed));
    }
}

/// The mutant: it is seen that the others are needed.
#[tokio::test(start_paused = true)]
async fn with_others_that_never_look_a_job_stays_without_a_leader() {
    RESTS_FOR_EVER.set(true);
    let (cluster, members) = settled(1, false).await;
    let (leader, watch, rest) = parts(&members, false);
    for member in watch.into_iter().chain([leader]) {
        member.tasks.crash();
    }
    let led = led_by(&cluster, &members, &rest, LED_AGAIN * 3).await;
    RESTS_FOR_EVER.set(false);
    assert!(!led, "nothing is shown");
}

/// The other mutant: who watches decides nothing. With each part given out by chance, and given out anew all the time, a job is led
/// later than it could be, and never by two.
#[test]
fn whoever_watches_by_chance_makes_no_second_leader() {
    let mut led_anew = 0;
    for seed in 0..4 {
        led_anew += play(async {
            BY_CHANCE.set(Some(seed));
            let (cluster, members) = settled(seed, seed == 3).await;
            let chance = Chance::seeded(seed);
            let mut seen = BTreeSet::new();
            for round in 0..12 {
                let fate = [Fate::Killed, Fate::Frozen, Fate::CutOff][round % 3];
                let leader = members.iter().find(|member| holds(member, "job-0"));
                // The last ones live.
                let victim = leader.filter(|_| fate != Fate::Killed || seen.len() < REPLICAS / 2);
                if let Some(victim) = victim {
                    seen.insert(victim.me.id.clone());
                    fate.befalls(victim);
                }
                let until = cluster.clock().now() + TTL + chance.up_to(TTL);
                while cluster.clock().now() < until {
                    for job in 0..JOBS {
                        let job = format!("job-{job}");
                        let holders = members.iter().filter(|m| holds(m, &job)).count();
                        assert!(holders <= 1, "seed {seed}: {job} is held by {holders}");
                    }
                    cluster.sleep(Duration::from_millis(100)).await;
                }
                if let Some(victim) = victim {
                    fate.is_over(victim);
                }
            }
            BY_CHANCE.set(None);
            seen.len()
        });
    }
    assert!(led_anew >= 8, "{led_anew}: nothing is shown");
}

/// As long as one of those that watch lives, it takes no longer than with all of them.
#[tokio::test(start_paused = true)]
async fn one_of_those_that_watch_is_enough_to_take_over_in_time() {
    for seed in 0..4 {
        let (cluster, members) = settled(seed, seed == 3).await;
        let (leader, watch, rest) = parts(&members, seed == 3);
        watch[0].tasks.crash();
        watch[1].tasks.crash();
        leader.tasks.crash();
        let living: Vec<&Member> = rest.into_iter().chain([watch[2]]).collect();
        let limit = TTL + TTL / 5;
        assert!(
            led_by(&cluster, &members, &living, limit).await,
            "seed {seed}"
        );
        assert!(holds(watch[2], "job-0"), "seed {seed}");
    }
}

/// A release wakes those that watch, as ever.
#[tokio::test(start_paused = true)]
async fn a_leader_that_goes_is_succeeded_at_once_by_one_that_watches() {
    let (cluster, members) = settled(5, false).await;
    let (leader, watch, _) = parts(&members, false);
    leader.drain();
    let living: Vec<&Member> = members.iter().filter(|m| m.me.id != leader.me.id).collect();
    assert!(led_by(&cluster, &members, &living, SECOND).await);
    assert!(watch.iter().any(|m| holds(m, "job-0")));
}

/// A replica that rests is handed a job like any other.
#[tokio::test(start_paused = true)]
async fn a_job_is_handed_to_a_replica_that_rests() {
    let (cluster, members) = settled(2, false).await;
    let (leader, _, rest) = parts(&members, false);
    let client = leader.client();
    let asked = cluster.clock().now();
    let answer = client
        .hand_over("job-0", Some(&rest[0].me.id), SECOND * 10)
        .await;
    assert_eq!(
        answer.unwrap().leader.as_deref(),
        Some(rest[0].me.id.as_str())
    );
    let took = cluster.clock().now().since(asked);
    assert!(took < SECOND * 6, "{took:?}");
    assert!(led_by(&cluster, &members, &[rest[0], leader], SECOND).await);
}

#[tokio::test(start_paused = true)]
async fn a_replica_rests_again_when_another_one_leads() {
    let (cluster, members) = settled(6, false).await;
    let (leader, watch, rest) = parts(&members, false);
    leader.tasks.crash();
    let living: Vec<&Member> = watch.iter().chain(&rest).copied().collect();
    assert!(led_by(&cluster, &members, &living, TTL * 2).await);
    cluster.sleep(TTL).await;
    let (_, watch, rest) = parts(&members[1..], false);
    assert_eq!((watch.len(), rest.len()), (3, REPLICAS - 5));
    let elected = |e: &Event| matches!(e, Event::Leading { .. });
    assert!(
        !rest
            .iter()
            .any(|m| m.heard(elected) && !holds(m, "job-1") && !holds(m, "job-2"))
    );
}
