//! Who leads, who stands by.

use std::time::Duration;

use rustix::process::Signal;
use watchkeeper::clock::Clock;

use crate::{scene::Scene, store::Store};

pub(crate) fn a_standby_takes_over_when_the_command_ends(store: Store) {
    let scene = Scene::new(store);
    let mut takeovers = Vec::new();
    for round in 0..3 {
        let leader = scene.spawn(
            "elect k",
            &format!("echo held; until [ -e $F/{round} ]; do sleep 0.01; done"),
        );
        leader.wait_for_line("held");
        let standby = scene.spawn("elect k", "echo mine");
        standby.wait_for_line("standing by for k");
        let ended = Clock::system().now();
        scene.write(&round.to_string(), "");
        standby.wait_for_line("mine");
        takeovers.push(Clock::system().now().since(ended));
        leader.done().with(0);
        standby.done().with(0);
    }
    takeovers.sort_unstable();
    scene.measured("takeover, from the order to end", &takeovers);
    assert!(takeovers[1] <= Duration::from_millis(300), "{takeovers:?}");
}

pub(crate) fn a_restart_lets_others_go_first(store: Store) {
    let scene = Scene::new(store);
    let leader = scene.spawn(
        "elect k --restart",
        "echo first >> $F/log; until [ -e $F/over ]; do sleep 0.01; done; exit 5",
    );
    scene.wait_for_lines("log", 1);
    let other = scene.spawn("elect k", "echo other >> $F/log");
    other.wait_for_line("standing by for k");
    scene.write("over", "");
    other.done().with(0);
    let lines = scene.wait_for_lines("log", 3);
    assert_eq!(lines[..3], ["first", "other", "first"]);
    leader.wait_for_line("the command ended with status 5; standing by for k again in 2s");
    leader.signal(Signal::TERM);
    leader.done().with(0);
}

pub(crate) fn a_standby_that_is_told_to_stop_has_not_failed(store: Store) {
    let scene = Scene::new(store);
    let _leader = scene.holder("elect k");
    let standby = scene.spawn("elect k", "echo never");
    standby.wait_for_line("standing by for k");
    standby.signal(Signal::TERM);
    assert_eq!(standby.done().with(0).out, "");
}
