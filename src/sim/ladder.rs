//! Fit or gone: runs that make no progress, leaders that lead for long, and work that does not end.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use super::{
    acts::{Act, Moody, Ran, leader, ms, patient},
    overlaps::ledger,
    world::TTL,
};
use crate::{
    due::Interrupted,
    event::Event,
    fleet::presence::{LIFETIME, teller::write_all},
    job::{Job, JobError, Run, Spec},
    lease::{Loss, Unstoppable, Work},
    status::{JobPresence, JobStanding, Presence},
    testing::{cluster::Cluster, members::Member},
};

const SECOND: Duration = Duration::from_secs(1);

/// Says something so often, and goes on until it is told to stop.
fn talkative(
    pause: Duration,
    clock: crate::clock::Clock,
) -> Act<impl Fn(Run) -> Ran + Send + Sync> {
    Act(move |run: Run| {
        let clock = clock.clone();
        Box::pin(async move {
            while run.check().is_ok() {
                run.progress(1, 2);
                clock.sleep(pause).await;
            }
            Err(JobError::from("stopped"))
        }) as _
    })
}

fn stands_by_for(member: &Member, wanted: fn(&Loss) -> bool) -> bool {
    member.heard(|e| matches!(e, Event::StandingBy { why, .. } if wanted(why)))
}

#[tokio::test(start_paused = true)]
async fn a_run_without_progress_is_stopped_and_the_job_goes_elsewhere() {
    let fleet = Cluster::new(3);
    let spec = || Spec::continuous().progress_deadline(SECOND * 2);
    let (a, b) = (
        fleet.join("a", patient(), spec()),
        fleet.join("b", patient(), spec()),
    );
    let first = leader(&fleet, &[&a, &b]).await;
    let other = if std::ptr::eq(first, &a) { &b } else { &a };
    let start = fleet.time.elapsed();
    leader(&fleet, &[other]).await;
    let took = fleet.time.elapsed() - start;
    assert!(took >= SECOND * 2 - ms(50) && took < SECOND * 3, "{took:?}");
    assert!(stands_by_for(
        first,
        |why| matches!(why, Loss::Unfit(why) if why.contains("progress"))
    ));
    assert_eq!(*first.aborts.lock().unwrap(), 0);
}

/// The lease goes when the work is over, but not before the next leader can read how it ended.
#[tokio::test(start_paused = true)]
async fn how_a_run_without_progress_ended_is_written_before_its_lease_goes() {
    let fleet = Cluster::new(3);
    // An outcome that is not written is an interruption, which is told.
    let spec = || {
        Spec::every(SECOND * 10)
            .progress_deadline(SECOND * 2)
            .interrupted(Interrupted::Skip)
    };
    let (a, b) = (
        fleet.join("a", patient(), spec()),
        fleet.join("b", patient(), spec()),
    );
    let first = leader(&fleet, &[&a, &b]).await;
    let other = if std::ptr::eq(first, &a) { &b } else { &a };
    leader(&fleet, &[other]).await;
    fleet.sleep(SECOND * 2).await;
    let cancelled =
        |e: &Event| matches!(e, Event::RunEnded { outcome, .. } if *outcome == "cancelled");
    assert!(first.heard(cancelled));
    assert!(ledger(other).await.open().is_empty());
    let lost = |e: &Event| matches!(e, Event::TicksSkipped { why, .. } if *why == "interrupted");
    assert!(!other.heard(lost), "its outcome was lost");
}

#[tokio::test(start_paused = true)]
async fn progress_keeps_a_run_going_and_a_freeze_is_no_lack_of_it() {
    let fleet = Cluster::new(3);
    let spec = Spec::continuous().progress_deadline(ms(450));
    let member = fleet.join("a", talkative(ms(200), fleet.clock()), spec);
    leader(&fleet, &[&member]).await;
    for _ in 0..5 {
        fleet.sleep(SECOND).await;
        member.tasks.freeze();
        fleet.sleep(ms(400)).await;
        member.tasks.thaw();
    }
    fleet.sleep(SECOND * 5).await;
    assert!(member.leads());
    assert!(!member.heard(|e| matches!(e, Event::RunEnded { .. })));
}

/// Tells the fleet that `member` stands by for the job, as its worker would.
async fn announce(member: &Member) {
    let presence = Presence {
        id: member.ctx.replica.clone(),
        jobs: vec![JobPresence {
            name: "job".to_owned(),
            standing: JobStanding::Standby,
            ..JobPresence::default()
        }],
        ..Presence::default()
    };
    write_all(&member.ctx.locks, &presence, LIFETIME).await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_hands_over_after_max_term_only_if_another_stands_by() {
    let fleet = Cluster::new(3);
    let spec = || Spec::continuous().max_term(SECOND * 5);
    let a = fleet.join("a", patient(), spec());
    leader(&fleet, &[&a]).await;
    // Its own document is not another's.
    announce(&a).await;
    fleet.sleep(SECOND * 12).await;
    assert!(a.leads());
    assert!(
        !a.heard(|e| matches!(e, Event::RunEnded { .. })),
        "the work went on"
    );
    let b = fleet.join("b", patient(), spec());
    announce(&b).await;
    let start = fleet.time.elapsed();
    leader(&fleet, &[&b]).await;
    let took = fleet.time.elapsed() - start;
    assert!(took < SECOND * 6, "{took:?}");
    assert!(stands_by_for(&a, |why| *why == Loss::MaxTerm));
    // It lets others go first for a while, which no drain waits for.
    let start = fleet.time.elapsed();
    a.drain();
    a.ended().await;
    let took = fleet.time.elapsed() - start;
    assert!(took < SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_with_an_end_is_let_finish_when_its_leader_hands_over() {
    let fleet = Cluster::new(3);
    let spec = || Spec::every(SECOND * 4).max_term(SECOND * 5);
    let job = |fleet: &Cluster| {
        let clock = fleet.clock();
        Act(move |run: Run| {
            let clock = clock.clone();
            Box::pin(async move {
                clock.sleep(ms(2_500)).await;
                run.check()?;
                Ok(crate::job::Outcome::Done)
            }) as _
        })
    };
    let a = fleet.join("a", job(&fleet), spec());
    leader(&fleet, &[&a]).await;
    let b = fleet.join("b", job(&fleet), spec());
    announce(&b).await;
    leader(&fleet, &[&b]).await;
    fleet.sleep(SECOND * 3).await;
    for member in [&a, &b] {
        let bad = |e: &Event| matches!(e, Event::RunEnded { outcome, .. } if *outcome != "done");
        assert!(!member.heard(bad));
    }
}

/// A job whose run ends when told, but leaves work behind that does not: as a blocking call does.
fn stubborn(
    left: &Arc<Mutex<Vec<Work>>>,
    unfit: &Arc<Mutex<Option<String>>>,
) -> Moody<impl Job + use<>> {
    let left = left.clone();
    let act = Act(move |run: Run| {
        let work = run.lease().map(crate::lease::LeaseView::begin_work);
        left.lock().unwrap().extend(work);
        Box::pin(async move {
            run.cancelled().await;
            Err(JobError::from("stopped"))
        }) as _
    });
    Moody {
        job: act,
        unfit: unfit.clone(),
    }
}

struct Stubborn {
    fleet: Cluster,
    member: Member,
    left: Arc<Mutex<Vec<Work>>>,
    unfit: Arc<Mutex<Option<String>>>,
}

/// A leader that has become unfit while its work does not end.
async fn unfit_and_working(unstoppable: Unstoppable) -> Stubborn {
    let fleet = Cluster::new(3);
    let left: Arc<Mutex<Vec<Work>>> = Arc::default();
    let unfit: Arc<Mutex<Option<String>>> = Arc::default();
    let spec = Spec::continuous()
        .grace(ms(300))
        .fenced()
        .unstoppable(unstoppable);
    let member = fleet.join("a", stubborn(&left, &unfit), spec);
    leader(&fleet, &[&member]).await;
    while left.lock().unwrap().is_empty() {
        fleet.sleep(ms(5)).await;
    }
    *unfit.lock().unwrap() = Some("it feels bad".to_owned());
    while !member.heard(|e| matches!(e, Event::Fitness { .. })) {
        fleet.sleep(ms(5)).await;
    }
    Stubborn {
        fleet,
        member,
        left,
        unfit,
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_well_when_it_is_asked_again_is_told_to_be_fit_again() {
    let scene = unfit_and_working(Unstoppable::Hold).await;
    *scene.unfit.lock().unwrap() = None;
    scene.left.lock().unwrap().clear();
    let again = |e: &Event| matches!(e, Event::Fitness { unfit: None, .. });
    scene.fleet.sleep(TTL * 4).await;
    assert!(scene.member.heard(again));
}

#[tokio::test(start_paused = true)]
async fn by_default_work_that_outlives_its_grace_ends_the_process() {
    let scene = unfit_and_working(Unstoppable::Abort).await;
    scene.fleet.sleep(TTL * 2).await;
    assert_eq!(*scene.member.aborts.lock().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn held_work_keeps_its_lease_for_as_long_as_it_lasts() {
    let scene = unfit_and_working(Unstoppable::Hold).await;
    let member = &scene.member;
    let (_, lease) = member.ctx.local_status.leases().remove(0);
    scene.fleet.sleep(TTL * 10).await;
    assert!(lease.is_held() && !lease.may_start());
    assert_eq!(*member.aborts.lock().unwrap(), 0);
    scene.left.lock().unwrap().clear();
    scene.fleet.sleep(ms(200)).await;
    assert!(!lease.is_held(), "handed over when it had ended");
    assert!(stands_by_for(member, |why| matches!(why, Loss::Unfit(_))));
}

#[tokio::test(start_paused = true)]
async fn held_work_that_loses_its_nodes_ends_the_process_all_the_same() {
    let scene = unfit_and_working(Unstoppable::Hold).await;
    scene.fleet.nodes.iter().for_each(|n| n.faults().freeze());
    scene.fleet.sleep(TTL * 2).await;
    assert_eq!(*scene.member.aborts.lock().unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn abandoned_work_is_left_alone_and_its_lock_is_free() {
    let scene = unfit_and_working(Unstoppable::Abandon).await;
    let start = scene.fleet.time.elapsed();
    let other = scene.fleet.join("b", patient(), Spec::continuous());
    leader(&scene.fleet, &[&other]).await;
    let took = scene.fleet.time.elapsed() - start;
    assert!(took < TTL, "released, not expired: {took:?}");
    assert_eq!(*scene.member.aborts.lock().unwrap(), 0);
    assert_eq!(scene.left.lock().unwrap().len(), 1, "it goes on");
}
