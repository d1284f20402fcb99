//! Ten jobs a second on five replicas, some with a leader and some whose lock is taken for each tick; one of the
//! replicas is killed, frozen or told to go every three seconds, and where a server may be replaced, it is meanwhile. And replicas
//! whose wall clocks are far off.
//!
//! `WATCHKEEPER_STORM_SECS=120 cargo test -p watchkeeper-jobs --test fleet storm` makes it longer than the half
//! minute of every run of the tests; `WATCHKEEPER_STORM_SEED` repeats a schedule of faults.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use watchkeeper::{
    chance::Chance,
    clock::{Clock, Moment},
};

use crate::{
    beats::{Beat, starts},
    fleet::Fleet,
    heavy,
    redis_failover::WATCHED,
    shim::NodeClock,
    store::Store,
    ticks::{reported, vanished},
    wait::{SOON, pause, soon, until},
};

const JOBS: usize = 10;
/// The first of them have no leader: whoever comes first takes a tick.
const BY_TICK: usize = 3;
/// The next one works for most of its second, so that many a fault meets a run of it.
const LONG: usize = BY_TICK;
/// How often a tick is tried at most.
const ATTEMPTS: u32 = 5;
const REPLICAS: usize = 5;
/// From one fault to the next.
const LULL: Duration = Duration::from_secs(3);
/// Long enough for the lease to end and another replica to lead.
const FROZEN: Duration = Duration::from_secs(4);
/// What a replica has begun so long before its end may not have been told.
const UNTOLD: SignedDuration = SignedDuration::from_secs(2);

/// Short work, so that some of the faults meet a run; every tick found late is made up for.
fn config() -> String {
    let job = |n| {
        let (own, work) = match n {
            0..BY_TICK => ("coordination = \"tick\"\n", "300ms"),
            LONG => ("interrupted = \"rerun\"\n", "600ms"),
            _ => ("", "300ms"),
        };
        format!(
            "[jobs.job{n}]\nkind = \"heartbeat\"\nschedule = \"@every 1s\"\nmisfire = \"all\"\nmisfire_limit = 100\n\
             overlap = \"queue\"\nretry = {ATTEMPTS}\n{own}params = {{ file = \"$BEATS\", work = \"{work}\" }}\n"
        )
    };
    (0..JOBS).map(job).collect()
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

/// A fleet that has gone through faults, all of whose replicas are well now.
struct Storm {
    fleet: Fleet,
    seed: u64,
    /// The first tick of all.
    first: Timestamp,
}

/// Faults of replicas, one every [`LULL`]; in the middle of them what the caller wants.
fn rage(store: Store, halfway: impl FnOnce(&Fleet)) -> Storm {
    let seed = number("WATCHKEEPER_STORM_SEED").unwrap_or_else(|| Chance::system().below(1 << 32));
    let length = Duration::from_secs(number("WATCHKEEPER_STORM_SECS").unwrap_or(30));
    println!("storm: WATCHKEEPER_STORM_SEED={seed}");
    let chance = Chance::seeded(seed);
    let mut fleet = Fleet::of(REPLICAS, store, &config());
    let beats = fleet.beats();
    let first = beats
        .wait(SOON, "first tick", |b| b.event == "started")
        .tick;
    let clock = Clock::system();
    let began = clock.now();
    let mut halfway = Some(halfway);
    // One fault meets a run for certain.
    let running = beats.wait(SOON, "run", |b| b.event == "started" && b.tick > first);
    let names = fleet.workers().into_iter().map(|w| (fleet.replica(w), w));
    let of: BTreeMap<String, usize> = names.collect();
    fleet.kill(of[&running.replica]);
    fleet.start();
    let mut faults = BTreeMap::from([("killed", 1)]);
    let mut kinds = Vec::new();
    let mut frozen: Vec<(usize, Moment)> = Vec::new();
    let mut leaving = Vec::new();
    while clock.now() < began + length {
        pause(LULL);
        if clock.now() >= began + length / 2
            && let Some(halfway) = halfway.take()
        {
            halfway(&fleet);
        }
        // Those that were frozen long enough go on, before others are taken: a majority of replicas does no harm, but
        // proves nothing.
        frozen.retain(|(worker, until)| {
            let still = clock.now() < *until;
            if !still {
                fleet.thaw(*worker);
            }
            still
        });
        let awake: Vec<usize> = fleet
            .workers()
            .into_iter()
            .filter(|w| !leaving.contains(w) && frozen.iter().all(|(other, _)| other != w))
            .collect();
        let victim = awake[usize::try_from(chance.below(awake.len() as u64)).unwrap()];
        // Every kind comes, in an order of chance.
        if kinds.is_empty() {
            kinds = vec![0, 1, 2];
        }
        let kind = usize::try_from(chance.below(kinds.len() as u64)).unwrap();
        let fault = match kinds.swap_remove(kind) {
            0 => {
                fleet.kill(victim);
                fleet.start();
                "killed"
            }
            1 => {
                fleet.freeze(victim);
                frozen.push((victim, clock.now() + FROZEN));
                "frozen"
            }
            _ => {
                fleet.terminate(victim);
                leaving.push(victim);
                fleet.start();
                "told to go"
            }
        };
        *faults.entry(fault).or_default() += 1;
    }
    for (worker, _) in frozen {
        fleet.thaw(worker);
    }
    for worker in leaving {
        assert!(
            fleet.wait_until_gone(worker),
            "a drained worker ends well (seed {seed})"
        );
    }
    fleet.measured("faults", &faults);
    Storm { fleet, seed, first }
}

/// Waits until a tick of each job has ended that falls due after this, and says until when all were due.
fn wait_until_over(fleet: &Fleet, limit: Duration) -> Timestamp {
    let last = Clock::system().wall();
    let last_whole = Timestamp::from_second(last.as_second()).unwrap();
    let beats = fleet.beats();
    for n in 0..JOBS {
        let name = format!("job{n}");
        beats.wait(limit, "a tick after the storm", |b| {
            b.job == name && b.event == "ended" && b.tick > last_whole
        });
    }
    last_whole
}

/// P4: every tick of every job is started once per attempt, none is missing, each is tried until it is done, and the
/// history tells the same.
pub(crate) fn a_storm_of_faults_loses_and_doubles_no_tick(store: Store) {
    let _turn = heavy::turn();
    let Storm { fleet, seed, first } = rage(store, |_| {});
    let beats = fleet.beats();
    let living = fleet.workers().into_iter().map(|w| fleet.replica(w));
    let living: BTreeSet<String> = living.collect();
    // Whatever was due by now has been started when a later tick of every job has ended.
    let last_whole = wait_until_over(&fleet, SOON);
    let mut again = [0; JOBS];
    for (n, again) in again.iter_mut().enumerate() {
        let job = format!("job{n}");
        soon("the end of every tick", || {
            every_tick_is_done(&beats.of(&job), last_whole)
        });
        let seen = beats.of(&job);
        *again = every_tick_once(&job, &seen, first, last_whole, seed);
        the_history_tells_the_same(&fleet, &job, &seen, (last_whole, &living), seed);
    }
    let (by_tick, led) = again.split_at(BY_TICK);
    fleet.measured("attempts after an interruption, without a leader", &by_tick);
    fleet.measured("attempts after an interruption, with one", &led);
    let again: usize = again.iter().sum();
    assert!(again > 0, "no fault met a run (seed {seed})");
    let all = beats.all();
    fleet.measured("runs", &all.iter().filter(|b| b.event == "started").count());
}

/// The same while the server that keeps the locks is killed, and another one takes its place. What was written last may be lost with
/// it: no attempt is started twice, and each tick is started, or its loss reported. A run that was open then is not repeated.
pub(crate) fn a_storm_of_faults_around_a_failover_doubles_no_tick_and_hides_no_loss(store: Store) {
    let _turn = heavy::turn();
    let Storm { fleet, seed, .. } = rage(store, |fleet| fleet.store.crash());
    // The other server is watched before it votes, and its time may have begun just now.
    let last = wait_until_over(&fleet, WATCHED + SOON);
    let mut lost = 0;
    for n in 0..JOBS {
        let job = format!("job{n}");
        let seen = fleet.beats().of(&job);
        for ((tick, attempt), times) in &starts(&seen) {
            assert_eq!(
                *times, 1,
                "{job}: attempt {attempt} of tick {tick} (seed {seed})"
            );
        }
        let first = seen.iter().map(|b| b.tick).min().expect("it has started");
        let mut left = Vec::new();
        let told = until(|| {
            left = vanished(&fleet, &job, first, last);
            left.is_empty()
        });
        assert!(
            told,
            "{job}: neither started nor reported: {left:?} (seed {seed})"
        );
        lost += reported(&fleet, &job).len();
    }
    fleet.measured("ticks of which it is said that nothing is known", &lost);
}

/// Whether each tick up to `last` that was started has ended once, or has used up its attempts.
fn every_tick_is_done(seen: &[Beat], last: Timestamp) -> bool {
    let ended: BTreeSet<_> = seen
        .iter()
        .filter(|b| b.event == "ended")
        .map(|b| b.tick)
        .collect();
    let used_up = |b: &&Beat| b.attempt == ATTEMPTS;
    let used_up: BTreeSet<_> = seen.iter().filter(used_up).map(|b| b.tick).collect();
    let due = seen.iter().map(|b| b.tick).filter(|tick| *tick <= last);
    let mut due = due.filter(|tick| !ended.contains(tick) && !used_up.contains(tick));
    due.next().is_none()
}

/// How many attempts beyond the first there were.
fn every_tick_once(
    job: &str,
    seen: &[Beat],
    first: Timestamp,
    last: Timestamp,
    seed: u64,
) -> usize {
    let starts = starts(seen);
    for ((tick, attempt), times) in &starts {
        assert_eq!(
            *times, 1,
            "{job}: attempt {attempt} of tick {tick} (seed {seed})"
        );
    }
    let ticks: BTreeSet<Timestamp> = starts.keys().map(|(tick, _)| *tick).collect();
    // A job's own first tick may be a second later than that of the first job.
    let mut tick = *ticks.first().expect("it has started");
    assert!(
        tick <= first + SignedDuration::from_secs(5),
        "{job} came late"
    );
    while tick <= last {
        assert!(
            ticks.contains(&tick),
            "{job}: tick {tick} is missing (seed {seed})"
        );
        tick += SignedDuration::from_secs(1);
    }
    starts.keys().filter(|(_, attempt)| *attempt > 1).count()
}

/// As far as the history reaches back, each attempt that was started stands in it, once.
fn the_history_tells_the_same(
    fleet: &Fleet,
    job: &str,
    seen: &[Beat],
    (last, living): (Timestamp, &BTreeSet<String>),
    seed: u64,
) {
    let text = fleet.command(&["history", job, "--json", "--limit", "100"]);
    let rows: Vec<Value> = serde_json::from_str(&text).expect("rows");
    let of = |row: &Value| {
        let tick: Timestamp = row["tick"]
            .as_str()
            .expect("a tick")
            .parse()
            .expect("a time");
        (tick, row["attempt"].as_u64().expect("a number"))
    };
    let mut told = BTreeMap::new();
    for row in &rows {
        *told.entry(of(row)).or_insert(0) += 1;
    }
    for (attempt, times) in &told {
        assert_eq!(*times, 1, "{job}: {attempt:?} in the history (seed {seed})");
    }
    // The oldest may have been pushed out while it was read.
    let reaches_to =
        rows.iter().map(|row| of(row).0).min().expect("a row") + SignedDuration::from_secs(5);
    // A single node that a busy machine lets answer late is asked again, and what a replica has not told by then dies with it.
    let all = fleet.beats().all();
    let untold = |beat: &Beat| {
        let of_its = all.iter().filter(|other| other.replica == beat.replica);
        let end = of_its.map(|other| other.at).max();
        let at_its_end = end.is_some_and(|end| end <= beat.at + UNTOLD);
        fleet.store.is_one_database() && !living.contains(&beat.replica) && at_its_end
    };
    let started = seen.iter().filter(|beat| beat.event == "started");
    let unknown = started.filter(|beat| {
        let known = told.contains_key(&(beat.tick, u64::from(beat.attempt)));
        let within = beat.tick <= last && (rows.len() < 100 || beat.tick >= reaches_to);
        !known && within && !untold(beat)
    });
    let unknown: Vec<_> = unknown.collect();
    assert!(
        unknown.is_empty(),
        "{job}: attempts that are not in the history (seed {seed}): {unknown:?}"
    );
}

/// A tick that is late by more than a second is left out, so that whatever starts is on time.
const PUNCTUAL: &str = r#"
[jobs.tick]
kind = "heartbeat"
schedule = "@every 1s"
misfire = "skip"
params = { file = "$BEATS" }
"#;

/// Three replicas: one with the right time, one 90 s ahead, one 90 s behind. Whoever leads starts each tick within a
/// second of the nodes' time.
pub(crate) fn wrong_wall_clocks_of_replicas_move_no_tick(store: Store) {
    let mut fleet = Fleet::new(store, PUNCTUAL);
    let mut clocks = Vec::new();
    for (n, seconds) in [0, 90, -90].into_iter().enumerate() {
        let clock = NodeClock::new(fleet.folder(), &format!("clock-{n}"));
        clock.set(seconds);
        fleet.start_with(&clock.env());
        fleet.wait_until_ready(n);
        clocks.push(clock);
    }
    let beats = fleet.beats();
    let mut lates = Vec::new();
    for worker in [0, 1, 2, 1] {
        let replica = fleet.replica(worker);
        let led = fleet.leader("tick");
        if led.worker != worker {
            let mark = fleet.log.mark();
            fleet.command(&["resign", "tick", "--to", &replica]);
            assert_eq!(fleet.next_leader(mark, "tick").worker, worker);
        }
        // What was written while nobody read has no time of ours.
        let (mut read, mut ticks, mut last) = (beats.all().len(), 0, None);
        let until = Clock::system().now() + SOON;
        while ticks < 3 {
            assert!(
                Clock::system().now() < until,
                "no ticks under replica {worker}"
            );
            // Read as it comes, by our clock, which is the nodes'.
            let (now, all) = (Clock::system().wall(), beats.all());
            for beat in all[read..].iter().filter(|b| b.event == "started") {
                let late = now.duration_since(beat.tick).as_secs_f64();
                assert!(
                    (-0.01..1.0).contains(&late),
                    "tick {} was started {late:.3} s late by {}",
                    beat.tick,
                    beat.replica
                );
                lates.push(Duration::try_from_secs_f64(late.max(0.0)).expect("a small number"));
                if beat.replica == replica {
                    let next = last.map(|last: Timestamp| last + SignedDuration::from_secs(1));
                    assert!(
                        next.is_none_or(|next| next == beat.tick),
                        "a tick is missing"
                    );
                    (ticks, last) = (ticks + 1, Some(beat.tick));
                }
            }
            read = all.len();
            pause(Duration::from_millis(2));
        }
    }
    fleet.measured("latest start", lates.iter().max().expect("ticks"));
}
