//! Shards whose number changes while the fleet runs.

use std::time::Duration;

use super::{
    acts::{Starts, ms, quick},
    reload::{Diary, Line},
};
use crate::{
    due::Misfire,
    intent::{Intent, NEWS_LIFETIME, TriggerParams, TriggerState},
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

/// What is told of the first to end is not written any more when the last one ends.
#[tokio::test(start_paused = true)]
async fn a_shard_that_failed_long_before_the_last_one_ends_is_not_forgotten() {
    let fleet = Cluster::new(3);
    let off = Spec::every(SECOND).enabled(false);
    let person = fleet.join("person", quick(&Starts::default()), off);
    let (client, locks) = (person.client(), &person.ctx.locks);
    let shards = vec![shard("mail", 0), shard("mail", 1)];
    let given = TriggerParams::default();
    let asked = client.ask_for_all("mail", shards, given).await.unwrap();
    let end = async |n: usize, outcome: &str| {
        let mut ended = asked.clone();
        ended.job = shard("mail", n);
        ended.state = TriggerState::Ended;
        ended.outcome = outcome.to_owned();
        ended.ended = Some(fleet.clock().wall());
        let doc = Intent::Trigger(ended).to_doc(TriggerState::Ended as u64);
        let put = locks.put_doc(&doc.name, doc.rev, NEWS_LIFETIME, doc.body);
        put.await.unwrap();
    };
    let ends = async {
        fleet.sleep(SECOND).await;
        end(0, "failed").await;
        fleet.sleep(NEWS_LIFETIME + SECOND * 60).await;
        let left = client.outstanding(None).await.unwrap();
        assert_eq!(left.len(), 1);
        end(1, "done").await;
    };
    let follows = client.follow(asked.clone(), TriggerState::Ended, NEWS_LIFETIME * 2);
    let (known, ()) = futures_util::future::join(follows, ends).await;
    assert_eq!(
        (known.state, known.outcome.as_str()),
        (TriggerState::Ended, "failed")
    );
    assert_eq!(known.detail, "1 of 2 shards, first mail.0");
}
