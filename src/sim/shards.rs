//! Shards whose number changes while the fleet runs.

use std::time::Duration;

use super::{
    acts::ms,
    reload::{Diary, Line},
};
use crate::{
    due::Misfire,
    job::{Spec, shard::shard},
    testing::{cluster::Cluster, members::Member},
    worker::ready::Body,
};

const SECOND: Duration = Duration::from_secs(1);

/// A replica whose configuration says so many shards.
fn join(fleet: &Cluster, diary: &Diary, name: &str, shards: usize) -> Member {
    let names: Vec<String> = (0..shards).map(|n| shard("job", n)).collect();
    let spec = Spec::every(SECOND * 2).misfire(Misfire::All).shards(shards);
    let jobs: Vec<(&str, Body, Spec)> = names
        .iter()
        .map(|name| {
            (
                name.as_str(),
                diary.job(fleet.clock(), ms(200)),
                spec.clone(),
            )
        })
        .collect();
    let member = fleet.join_with(name, jobs, false);
    member.publish();
    member
}

/// The ticks of a shard, in seconds, and who began them.
fn begun(diary: &Diary, shard: &str) -> Vec<(i64, String)> {
    let lines = diary.of(shard).into_iter();
    let began = lines.filter(|line: &Line| line.what == "began");
    began.map(|line| (line.second, line.replica)).collect()
}

#[tokio::test(start_paused = true)]
async fn the_number_of_shards_grows_replica_by_replica_and_no_tick_is_lost_or_run_twice() {
    let (fleet, diary) = (Cluster::new(3), Diary::default());
    let old = join(&fleet, &diary, "old", 2);
    fleet.sleep(SECOND * 21).await;
    let new = join(&fleet, &diary, "new", 3);
    fleet.sleep(SECOND * 10).await;
    let mark = diary.len();
    fleet.sleep(SECOND * 20).await;
    // The newest definition counts: the old replica stands back from the shards that both have.
    let since = diary.all().split_off(mark);
    assert!(since.iter().all(|line| line.replica == "new"), "{since:?}");
    for n in 0..3 {
        let ticks = begun(&diary, &shard("job", n));
        let gaps = ticks.windows(2).all(|pair| pair[1].0 - pair[0].0 == 2);
        assert!(gaps && ticks.len() > 12, "{n}: {ticks:?}");
    }
    drop((old, new));
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_newer_replicas_do_not_have_stays_with_the_old_ones_until_they_go() {
    let (fleet, diary) = (Cluster::new(3), Diary::default());
    let old = join(&fleet, &diary, "old", 3);
    fleet.sleep(SECOND * 21).await;
    let new = join(&fleet, &diary, "new", 2);
    fleet.sleep(SECOND * 20).await;
    let last = |n| begun(&diary, &shard("job", n)).last().unwrap().1.clone();
    assert_eq!([last(0), last(1), last(2)], ["new", "new", "old"]);
    old.drain();
    fleet.sleep(SECOND * 10).await;
    let mark = diary.len();
    fleet.sleep(SECOND * 20).await;
    let since = diary.all().split_off(mark);
    assert!(
        since
            .iter()
            .all(|line| line.job != "job.2" && line.replica == "new"),
        "{since:?}"
    );
    for n in 0..2 {
        let ticks = begun(&diary, &shard("job", n));
        let gaps = ticks.windows(2).all(|pair| pair[1].0 - pair[0].0 == 2);
        assert!(gaps, "{n}: {ticks:?}");
    }
    drop(new);
}
