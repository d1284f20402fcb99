//! What has ended workers or forgotten ticks elsewhere, and must not: restarts, slow replies, a store that comes and goes.

use std::time::Duration;

use super::{
    acts::{Starts, leader, ms, quick},
    world::TTL,
};
use crate::{
    due::Misfire,
    job::{Coordination, Spec},
    testing::{cluster::Cluster, members::Member},
};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_job_that_is_due_more_seldom_than_its_workers_restart_runs_all_the_same() {
    let (fleet, starts) = (Cluster::new(3), Starts::default());
    let spec = || Spec::every(SECOND * 120).misfire(Misfire::Once);
    let join = |n: u32| fleet.join(&format!("worker-{n}"), quick(&starts), spec());
    // Four restarts between two ticks, of one worker that is alone; some of them stop and kill it at a tick.
    for n in 0..40 {
        let worker = join(n);
        fleet.sleep(SECOND * 25).await;
        if n % 3 == 0 {
            worker.tasks.crash();
        } else {
            worker.drain();
            worker.ended().await;
        }
        fleet.sleep(SECOND * 2).await;
    }
    let ticks = starts.ticks();
    assert!(ticks.len() >= 8, "{ticks:?} in 18 minutes");
    for pair in ticks.windows(2) {
        let apart = pair[1].duration_since(pair[0]);
        assert_eq!(apart.as_secs(), 120, "one was left out: {ticks:?}");
    }
    starts.assert_once();
}

/// The replica still works: it runs every tick of the next ten seconds.
async fn works(fleet: &Cluster, member: &Member, starts: &Starts, after: &str) {
    leader(fleet, &[member]).await;
    fleet.sleep(SECOND * 2).await;
    let before = starts.len();
    fleet.sleep(SECOND * 10).await;
    let ran = starts.len() - before;
    assert!((9..=11).contains(&ran), "{ran} of 10 runs after {after}");
}

#[tokio::test(start_paused = true)]
async fn slow_replies_and_a_restart_of_the_store_end_no_worker() {
    for nodes in [1, 3] {
        let (fleet, starts) = (Cluster::new(nodes), Starts::default());
        let member = fleet.join("a", quick(&starts), Spec::every(SECOND));
        works(&fleet, &member, &starts, "the start").await;
        let all = || fleet.nodes.iter().map(|node| node.faults());
        // Longer than a call waits for a reply, and longer than a lease lasts.
        all().for_each(|faults| faults.delay_replies(ms(500), ms(500)));
        fleet.sleep(TTL * 4).await;
        all().for_each(|faults| faults.clear());
        works(&fleet, &member, &starts, "slow replies").await;
        all().for_each(|faults| faults.crash());
        fleet.sleep(TTL * 4).await;
        all().for_each(|faults| faults.restart_keeping_data());
        works(&fleet, &member, &starts, "a restart").await;
        all().for_each(|faults| faults.fail_all());
        fleet.sleep(TTL * 4).await;
        all().for_each(|faults| faults.fail_none());
        works(&fleet, &member, &starts, "nothing but errors").await;
        assert_eq!(*member.aborts.lock().unwrap(), 0);
        starts.assert_once();
    }
}

#[tokio::test(start_paused = true)]
async fn ticks_that_nobody_can_decide_are_shown_as_overdue() {
    for coordination in [Coordination::Tick, Coordination::Leader] {
        let (fleet, starts) = (Cluster::new(3), Starts::default());
        let spec = Spec::every(SECOND * 2).coordination(coordination);
        let member = fleet.join("a", quick(&starts), spec);
        fleet.sleep(SECOND * 10).await;
        let overdue = || member.ctx.local_status.overdue(fleet.clock().wall());
        let late = |jobs: &[(String, Duration)]| jobs.iter().map(|(_, late)| *late).max();
        assert!(late(&overdue()) <= Some(ms(200)), "{:?}", overdue());
        assert_eq!(overdue().len(), 1);
        fleet.nodes.iter().for_each(|node| node.faults().freeze());
        fleet.sleep(SECOND * 10).await;
        match coordination {
            Coordination::Tick => assert!(late(&overdue()) >= Some(SECOND * 7)),
            // No leader: that has a metric of its own.
            _ => assert_eq!(overdue(), []),
        }
        fleet.nodes.iter().for_each(|node| node.faults().thaw());
        fleet.sleep(SECOND * 10).await;
        assert!(late(&overdue()) <= Some(ms(200)), "{:?}", overdue());
    }
}
