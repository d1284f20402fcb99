//! One at a time, and nobody is forgotten.

use std::time::Duration;

use watchkeeper::clock::Clock;

use crate::{
    process::Running,
    scene::Scene,
    store::Store,
    wait::{AT_ONCE, takeover_limit, undisturbed, until},
};

/// Every command begins after the one before has ended, and well before a lease could have. How soon is measured, and told.
pub(crate) fn twenty_at_once_take_turns(store: Store) {
    let scene = Scene::new(store);
    let script =
        "echo begin $$ $(date +%s%N) >> $F/log; sleep 1; echo end $$ $(date +%s%N) >> $F/log";
    let all: Vec<Running> = (0..20)
        .map(|_| scene.spawn("lock k --quiet", script))
        .collect();
    for one in all {
        one.done().with(0);
    }
    let lines = scene.lines("log");
    assert_eq!(lines.len(), 40, "{lines:#?}");
    let words: Vec<Vec<&str>> = lines.iter().map(|l| l.split(' ').collect()).collect();
    for turn in words.chunks(2) {
        assert_eq!([turn[0][0], turn[1][0]], ["begin", "end"], "{lines:#?}");
        assert_eq!(turn[0][1], turn[1][1], "{lines:#?}");
    }
    let at = |i: usize| words[i][2].parse::<u64>().expect("nanoseconds");
    let ends = (1..39).step_by(2);
    let gaps = ends.map(|end| Duration::from_nanos(at(end + 1).saturating_sub(at(end))));
    let mut gaps: Vec<Duration> = gaps.collect();
    gaps.sort_unstable();
    scene.measured("hand-over, median", &gaps[gaps.len() / 2]);
    scene.measured("hand-over, longest", &gaps.last());
    assert!(gaps[gaps.len() / 2] <= AT_ONCE, "{gaps:?}");
}

/// As a scheduler on several machines would start them: all at the same instant, none willing to wait.
pub(crate) fn of_several_that_try_once_one_wins(store: Store) {
    let scene = Scene::new(store);
    let tries = (0..6).map(|_| {
        scene.spawn(
            "lock k --wait 0s",
            "until [ -e $F/over ]; do sleep 0.02; done",
        )
    });
    let mut all: Vec<Running> = tries.collect();
    let mut lost = Vec::new();
    let known = until(|| {
        lost.extend(all.extract_if(.., |one| one.has_ended()));
        lost.len() == 5
    });
    assert!(known, "{} of 6 have lost", lost.len());
    for one in lost {
        one.done().with(3);
    }
    scene.write("over", "");
    all.remove(0).done().with(0);
}

/// Also by a process that is started after the death, and never before the old command is gone.
pub(crate) fn a_killed_holder_is_followed_within_one_ttl(store: Store) {
    let scene = Scene::new(store);
    let ttl = Duration::from_secs(2);
    let waiter_script = "echo mine";
    let holder = scene.holder("lock k --ttl 2s");
    holder.kill();
    let done = scene.run("lock k --ttl 2s", waiter_script).with(0);
    scene.measured("had after", &done.took);
    // The start of the process and the guard's are in it.
    assert!(done.undisturbed <= takeover_limit(ttl), "{done:?}");
}

/// As a scheduler would start them: each try is a process of its own, which has seen nothing of those before.
pub(crate) fn a_try_gives_up_on_the_living_and_follows_the_dead_within_one_ttl(store: Store) {
    let scene = Scene::new(store);
    let ttl = Duration::from_secs(2);
    // The start of the processes is in what they took, on a busy machine.
    let slack = Duration::from_secs(1);
    let (tried, clock) = ("lock k --ttl 2s --wait 0s", Clock::system());
    let mut holder = scene.holder("lock k --ttl 2s");
    let refused = scene.run(tried, "echo mine").with(3);
    assert!(refused.out.is_empty(), "{refused:?}");
    assert!(refused.undisturbed < ttl / 2 + slack / 2, "{refused:?}");
    assert!(!holder.has_ended());

    let died = holder.kill();
    let mut refused = 0;
    let done = loop {
        let done = scene.run(tried, "echo mine");
        if done.code == Some(0) {
            break done;
        }
        // As long as its key stands the holder may be living.
        let done = done.with(3);
        refused += 1;
        assert!(done.undisturbed < ttl / 2 + slack / 2, "{done:?}");
        let held = undisturbed(died, clock.now());
        assert!(held <= takeover_limit(ttl), "still refused after {held:?}");
    };
    assert!(done.out.contains("mine"), "{done:?}");
    scene.measured("refused after the death", &refused);
    scene.measured("had by the last try within", &done.took);
    assert!(done.undisturbed <= takeover_limit(ttl), "{done:?}");
    if scene.store.is_observed() {
        // Nothing but its record is left, which this process has to watch for as long as its holder might live.
        assert!(done.took >= ttl, "{done:?}");
    }
}
