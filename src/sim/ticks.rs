//! P4 over whole fleets: kills, freezes, drains and partitions while a job ticks every second.

use std::time::Duration;

use super::acts::{Act, Starts};
use crate::testing::{cluster::Cluster, members::Member};
use crate::{
    chance::Chance,
    due::Misfire,
    event::Event,
    job::{Job, Outcome, Run, Spec},
    node::memory::Cut,
};

const SECOND: Duration = Duration::from_secs(1);

fn job(starts: &Starts, chance: &Chance) -> impl Job + use<> {
    let (starts, chance) = (starts.clone(), chance.clone());
    Act(move |run: Run| {
        starts.note(&run);
        let work = chance.up_to(Duration::from_millis(700));
        Box::pin(async move {
            let clock = run.lease().ok_or("no lease")?.clock().clone();
            tokio::select! {
                biased;
                () = run.cancelled() => Err("stopped".into()),
                () = clock.sleep(work) => Ok(Outcome::Done),
            }
        }) as _
    })
}

/// One schedule of a fleet of three; every start is noted, every tick accounted for.
fn schedule(seed: u64, nodes: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async move {
        let fleet = Cluster::seeded(nodes, seed);
        let (starts, chance) = (Starts::default(), Chance::seeded(seed));
        let spec = || {
            Spec::every(SECOND)
                .misfire(Misfire::All)
                .misfire_limit(60)
                .retry(5)
        };
        let mut born = 0;
        let mut member = || {
            born += 1;
            fleet.join(&format!("m{born}"), job(&starts, &chance), spec())
        };
        let mut members: Vec<Member> = (0..3).map(|_| member()).collect();
        let mut all = members.clone();
        while fleet.time.elapsed() < SECOND * 40 {
            fleet.sleep(chance.up_to(SECOND * 4)).await;
            let victim = usize::try_from(chance.below(3)).unwrap();
            match chance.below(8) {
                0 | 1 => members[victim].tasks.crash(),
                2 => members[victim].tasks.freeze(),
                3 => members[victim].drain(),
                4 => fleet.nodes[usize::try_from(chance.below(nodes as u64)).unwrap()]
                    .faults()
                    .partition(Cut::Hang),
                5 => {
                    let skew = i64::try_from(chance.below(1600)).unwrap() - 800;
                    members[victim].time.set_wall_offset(skew);
                    continue;
                }
                _ => {
                    fleet.nodes.iter().for_each(|n| n.faults().heal());
                    members.iter().for_each(|m| m.tasks.thaw());
                    continue;
                }
            }
            let fresh = member();
            all.push(fresh.clone());
            // The frozen one stays around, to act late if it can.
            members[victim] = fresh;
        }
        fleet.nodes.iter().for_each(|n| n.faults().heal());
        all.iter().for_each(|m| m.tasks.thaw());
        fleet.sleep(SECOND * 12).await;
        starts.assert_once();
        accounted(&all, &starts);
    });
}

/// Every second between the first and the last started tick was started, or reported as skipped by somebody.
fn accounted(all: &[Member], starts: &Starts) {
    let ticks = starts.ticks();
    assert!(ticks.len() > 20, "only {} ticks started", ticks.len());
    let mut skipped = Vec::new();
    for member in all {
        for event in &*member.told.lock().unwrap() {
            if let Event::RunEnded { detail, took, .. } = event {
                // A run that starts when its lease is about to end is an attempt lost for nothing.
                let in_vain = took.is_zero() && detail.contains("about to end");
                assert!(!in_vain, "{event:?}");
            }
            if let Event::TicksSkipped { first, last, .. } = event {
                skipped.push((*first, *last));
            }
        }
    }
    let mut tick = ticks[0];
    while tick <= ticks[ticks.len() - 1] {
        let started = ticks.binary_search(&tick).is_ok();
        let reported = skipped
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&tick));
        // A replica that was crashed between writing and telling reported it to nobody that is left; its ledger
        // entry is what the next leader found. Such a tick is open there and is started again as the next attempt.
        assert!(
            started || reported,
            "{tick} is neither started nor reported"
        );
        tick = tick.checked_add(SECOND).unwrap();
    }
}

#[test]
fn every_tick_is_started_once_per_attempt_whatever_dies() {
    let only = std::env::var("WATCHKEEPER_SIM_SEED")
        .ok()
        .and_then(|n| n.parse::<u64>().ok());
    for seed in only.map_or(0..40, |seed| seed..seed + 1) {
        for nodes in [1, 3, 5] {
            println!("WATCHKEEPER_SIM_SEED={seed}, {nodes} nodes");
            schedule(seed, nodes);
        }
    }
    assert!(Starts::default().len() == 0);
}
