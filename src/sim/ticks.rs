//! P4 over whole fleets: kills, freezes, drains and partitions while a job ticks every second.

use std::time::Duration;

use super::{
    acts::{Act, Starts},
    unrest::{Unrest, play, play_all},
};
use crate::testing::{cluster::Cluster, members::Member};
use crate::{
    chance::Chance,
    due::Misfire,
    event::Event,
    job::{Job, Outcome, Run, Spec},
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
    play(async move {
        let fleet = Cluster::seeded(nodes, seed);
        let (starts, chance) = (Starts::default(), Chance::seeded(seed));
        let spec = Spec::every(SECOND)
            .misfire(Misfire::All)
            .misfire_limit(60)
            .retry(5);
        let mut unrest = Unrest::begin(&fleet, &chance, |name| {
            fleet.join(name, job(&starts, &chance), spec.clone())
        });
        while fleet.time.elapsed() < SECOND * 40 {
            fleet.sleep(chance.up_to(SECOND * 4)).await;
            unrest.strike();
        }
        unrest.recover(SECOND * 12).await;
        starts.assert_once();
        accounted(&unrest.all, &starts);
    });
}

/// Every second between the first and the last started tick was started, or reported as skipped by a member.
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
        // A replica that was crashed between writing and telling reported it to no member that is left; its ledger
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
    play_all(40, schedule);
}
