//! The server that keeps the locks is killed while ticks fall due, and another one takes its place. Costs about half a minute, most
//! of it spent waiting: a server is watched when the fleet begins, and the other one when it is named.

use std::{collections::BTreeSet, iter::successors, time::Duration};

use jiff::{SignedDuration, Timestamp};
use watchkeeper::clock::{Clock, Moment};

use crate::{
    beats::starts,
    fleet::{Fleet, Led, TTL, beat},
    log::Line,
    store::Store,
    ticks::{reported, vanished},
    wait::{SOON, starved, takeover_limit, until},
};

const JOBS: [&str; 3] = ["a", "b", "c"];

/// Every tick that is found late is made up for, and no replica hands a term to another one: whoever begins to lead takes over.
const BUSY: &str = "misfire = \"all\"\nmisfire_limit = 100\noverlap = \"queue\"\nmin_term = \"1h\"";

const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// So long after it has heard from a majority a replica has to have heard again which server is in charge.
const TRUST: Duration = Duration::from_secs(5);

/// The servers are asked one after the other: replicas may have heard of the new one so long before this test.
const NOTICED: Duration = Duration::from_secs(1);

/// Memory is lost when the watch begins, give or take the second by which clocks may differ. What falls due so long before a job is
/// led comes later than that, by two seconds.
fn surely_late(fleet: &Fleet) -> Duration {
    fleet
        .store()
        .watched()
        .saturating_sub(Duration::from_secs(3))
}

/// When another server was named.
struct Named {
    at: Moment,
    /// The same on the wall clock, which heartbeats show.
    wall: Timestamp,
}

// === impl Named ===

impl Named {
    fn new(at: Moment) -> Self {
        let clock = Clock::system();
        let wall = clock.wall() - clock.now().since(at);
        Self { at, wall }
    }
}

/// Leases end with the master. No job is led before the other server was watched, and then each is. What fell due before the watch
/// may have run, and is reported; what fell due during the watch is made up for; nothing is started twice.
pub(crate) fn a_killed_master_costs_its_leases_and_no_tick_runs_twice(store: Store) {
    let jobs = JOBS.map(|job| beat(job, "400ms", BUSY)).concat();
    let fleet = Fleet::of(3, store, &jobs);
    let beats = fleet.beats();
    let first = beats.wait(SOON, "first tick", |b| b.event == "started");
    let third = first.tick + SECOND * 2;
    // The work of one tick is under way: the kill meets runs.
    for job in JOBS {
        beats.wait(SOON, "a third tick", |b| {
            b.job == job && b.event == "started" && b.tick >= third
        });
    }
    let named = Named::new(fleet.store.replace_master());

    let led = JOBS.map(|job| led_after(&fleet, job, &named));
    let gaps = led.map(|led| led.at.since(named.at));
    fleet.measured("led after another server was named", &gaps);
    let watched = fleet.store().watched();
    let (least, most) = (watched - NOTICED, watched + TRUST + takeover_limit(TTL));
    for ((job, gap), led) in JOBS.into_iter().zip(gaps).zip(&led) {
        assert!(
            gap >= least,
            "{job}: led {gap:?} after another server was named, which was not watched"
        );
        assert!(
            gap <= most + starved(named.at, led.at),
            "{job}: led {gap:?} after another server was named"
        );
    }

    let mut unknown = Vec::new();
    for (job, led) in JOBS.into_iter().zip(&led) {
        the_leader_before_knew(&fleet, job, &named, led);
        every_tick_is_accounted_for(&fleet, job, led);
        unknown.push(reported(&fleet, job).len());
        beats.wait(SOON, "a tick after the watch", |b| {
            b.job == job && b.event == "ended" && b.tick > led.said
        });
    }
    fleet.measured("ticks that were reported", &unknown);
    // Its standby was behind by more than a tick: what the primary decided since then is lost.
    #[cfg(feature = "postgres")]
    if matches!(fleet.store, Store::Postgres(_)) {
        assert!(unknown.iter().all(|ticks| *ticks > 0), "{unknown:?}");
    }
    for (job, led) in JOBS.into_iter().zip(&led) {
        nothing_is_started_again(&fleet, job, &named, led);
    }
}

/// The first who leads the job after another server was named.
fn led_after(fleet: &Fleet, job: &str, named: &Named) -> Led {
    let leads = |line: &Line| line.is("leading", job) && line.at > named.at;
    Led::from(&fleet.log.wait(0, SOON, "leader after the failover", leads))
}

/// The lease of the leader before has ended by its own clock, and not because the other server knew of no lease: as it expired, or a little
/// sooner, where this busy machine let its keeper wait, which could then ask no server about it.
fn the_leader_before_knew(fleet: &Fleet, job: &str, named: &Named, next: &Led) {
    let lines = fleet.log.since(0);
    let led = |line: &&Line| line.is("leading", job) && line.at <= named.at;
    let before = lines.iter().rfind(led).map(Led::from);
    let before = before.expect("it was led before");
    let stands_by = |line: &&Line| {
        line.is("standing by", job) && line.worker == before.worker && line.at > before.at
    };
    let stood = lines.iter().find(stands_by);
    let stood = stood.expect("a leader says when it leads no more");
    let waited = |detail: &str| detail.contains("this process was frozen");
    let by_its_clock = match stood.text("reason") {
        "expired" => true,
        "unfit" => waited(stood.text("detail")),
        _ => false,
    };
    assert!(by_its_clock, "{job}: {stood:?}");
    // Another server is named no sooner than a second after the kill.
    let told = stood.at.since(named.at);
    assert!(
        told < TTL,
        "{job}: {told:?} after another server was named its leader still led"
    );
    assert!(
        before.token < next.token,
        "{job}: {next:?} after {before:?}"
    );
}

/// Each tick until the job is led is started or reported, and what fell due in the last seconds of the watch is started.
fn every_tick_is_accounted_for(fleet: &Fleet, job: &str, led: &Led) {
    let beats = fleet.beats();
    let first = beats.of(job).iter().map(|b| b.tick).min();
    let first = first.expect("it has started");
    let mut left = Vec::new();
    let told = until(|| {
        left = vanished(fleet, job, first, led.said);
        left.is_empty()
    });
    assert!(told, "{job}: neither started nor reported: {left:?}");
    let seen = starts(&beats.of(job));
    let started: BTreeSet<Timestamp> = seen.keys().map(|(tick, _)| *tick).collect();
    let all = successors(Some(first), |tick| Some(*tick + SECOND));
    let surely_late = surely_late(fleet);
    let late = all
        .skip_while(|tick| *tick <= led.said - surely_late)
        .take_while(|tick| *tick <= led.said);
    let lost: Vec<Timestamp> = late.filter(|tick| !started.contains(tick)).collect();
    assert!(
        lost.is_empty(),
        "{job}: due while the server was watched, and not made up for: {lost:?}"
    );
}

/// No attempt is started twice, none in a term that is over, and no tick that may have run before the master was killed, whether a run
/// of it was open or not.
fn nothing_is_started_again(fleet: &Fleet, job: &str, named: &Named, led: &Led) {
    let seen = fleet.beats().of(job);
    for ((tick, attempt), times) in &starts(&seen) {
        assert_eq!(*times, 1, "{job}: attempt {attempt} of tick {tick}");
    }
    // The memory that was lost reaches to the watch, which may have begun before the other server was seen to be named.
    let settled = named.wall - NOTICED;
    let later = seen
        .iter()
        .filter(|b| b.event == "started" && b.at > named.wall);
    for beat in later {
        assert!(beat.token >= led.token, "in a term that was over: {beat:?}");
        assert!(beat.tick > settled, "it may have run before: {beat:?}");
    }
}
