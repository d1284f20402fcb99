//! Wall clocks of replicas that are wrong, and what people are shown.

use std::time::Duration;

use super::{
    acts::{Starts, leader, patient, quick},
    unrest::play,
};
use crate::{
    chance::Chance,
    due::Misfire,
    event::Event,
    job::{Coordination, Spec},
    testing::{cluster::Cluster, members::Member},
};

const SECOND: Duration = Duration::from_secs(1);
const DAY_MS: i64 = 86_400_000;

/// News is judged by its age: by the clock of one machine a leader would be long gone, or lead since tomorrow.
#[tokio::test(start_paused = true)]
async fn who_leads_is_shown_by_the_nodes_clocks_whichever_replica_is_wrong() {
    for off in [3_600_000, -3_600_000] {
        for wrong in [0, 1] {
            let fleet = Cluster::new(3);
            let members = ["a", "b"].map(|name| fleet.join(name, patient(), Spec::continuous()));
            members[wrong].time.set_wall_offset(off);
            members.iter().for_each(Member::publish);
            leader(&fleet, &[&members[0], &members[1]]).await;
            fleet.sleep(Duration::from_secs(5)).await;
            for member in &members {
                let seen = member.client().each().await;
                let seen = seen.unwrap();
                let case = format!("{wrong} is {off} ms ahead: {seen:?}");
                let job = seen.job("job").unwrap();
                let led = job.leader.as_ref().expect(&case);
                let since = fleet.clock().wall().duration_since(led.since.expect(&case));
                assert!((-50..8_000).contains(&since.as_millis()), "{case}");
                let ages = seen.replicas.iter().map(|replica| replica.seen_ms_ago);
                assert!(ages.max().unwrap() < 5_000, "{case}");
            }
        }
    }
}

fn set_nodes(fleet: &Cluster, ms: i64) {
    fleet
        .nodes
        .iter()
        .for_each(|node| node.faults().clock_offset(ms));
}

fn ahead(members: &[Member]) -> usize {
    let shown = members
        .iter()
        .map(|member| member.ctx.local_status.ahead_of_clock().len());
    shown.sum()
}

/// One node, whose clock jumps a day ahead for some seconds: shown at once, and ticks go on half a minute later.
#[tokio::test(start_paused = true)]
async fn a_clock_that_jumped_ahead_is_told_and_its_ticks_run_when_they_are_due() {
    for coordination in [Coordination::Leader, Coordination::Tick] {
        for misfire in [Misfire::Once, Misfire::All, Misfire::Skip] {
            let case = format!("{coordination}, {misfire:?}");
            let fleet = Cluster::new(1);
            let starts = Starts::default();
            let spec = Spec::every(SECOND * 10)
                .misfire(misfire)
                .coordination(coordination);
            let join = |name| fleet.join(name, quick(&starts), spec.clone());
            let members = ["a", "b"].map(join);
            fleet.sleep(SECOND * 25).await;
            set_nodes(&fleet, DAY_MS);
            fleet.sleep(SECOND * 12).await;
            set_nodes(&fleet, 0);
            fleet.sleep(SECOND * 12).await;
            assert!(ahead(&members) > 0, "{case}: it is shown");
            let before = starts.len();
            fleet.sleep(SECOND * 50).await;
            assert_eq!(ahead(&members), 0, "{case}: taken back");
            let since = starts.len() - before;
            assert!(since >= 2, "{case}: {since} starts");
            starts.assert_once();
            let ran_ahead =
                |event: &Event| matches!(event, Event::TicksSkipped { why: "ahead", .. });
            let told = members.iter().any(|member| member.heard(ran_ahead));
            let tomorrow = fleet.clock().wall() + SECOND * 3600;
            let any = starts.ticks().iter().any(|tick| *tick > tomorrow);
            assert_eq!(told, any, "{case}");
            members.iter().for_each(|member| member.tasks.crash());
        }
    }
}

/// Clocks of one or three nodes and of replicas jump about, and replicas die.
#[test]
fn no_tick_starts_twice_whatever_the_clocks_of_nodes_and_replicas_do() {
    for seed in 0..12 {
        play(jumps(seed));
    }
}

async fn jumps(seed: u64) {
    let nodes = if seed.is_multiple_of(2) { 1 } else { 3 };
    let fleet = Cluster::seeded(nodes, seed);
    let chance = Chance::seeded(seed);
    let starts = Starts::default();
    let pick = |n: u64| usize::try_from(chance.below(n)).unwrap();
    let misfire = [Misfire::Once, Misfire::All, Misfire::Skip][pick(3)];
    let coordination = [Coordination::Leader, Coordination::Tick][pick(2)];
    let spec = Spec::every(SECOND * 3)
        .misfire(misfire)
        .misfire_limit(5)
        .coordination(coordination);
    let mut born = 0;
    let mut member = || {
        born += 1;
        fleet.join(&format!("m{born}"), quick(&starts), spec.clone())
    };
    let mut members = [member(), member()];
    for _ in 0..25 {
        fleet.sleep(chance.up_to(SECOND * 20)).await;
        let off = i64::try_from(chance.below(7_200_000)).unwrap() - 1_800_000;
        let off = [0, 0, off, DAY_MS][pick(4)];
        match pick(6) {
            0..=2 => fleet.nodes[pick(nodes as u64)].faults().clock_offset(off),
            3 => set_nodes(&fleet, off),
            4 => members[pick(2)].time.set_wall_offset(off),
            _ => {
                let victim = pick(2);
                members[victim].tasks.crash();
                members[victim] = member();
            }
        }
    }
    set_nodes(&fleet, 0);
    members.iter().for_each(|m| m.time.set_wall_offset(0));
    starts.assert_once();
    // The clocks were just set, and what was last read of them may be some seconds old.
    fleet.sleep(SECOND * 60).await;
    starts.assert_once();
    let now = fleet.clock().wall();
    let of_late = |tick: &jiff::Timestamp| *tick > now - SECOND * 7 && *tick <= now;
    let goes_on = starts.ticks().iter().any(of_late);
    assert!(
        goes_on,
        "seed {seed}: no tick of the last seconds: {misfire:?}, {coordination}"
    );
}
