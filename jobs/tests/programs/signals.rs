//! What is asked of us reaches the command, and the store.

use std::time::Duration;

use rustix::process::Signal;

use crate::{scene::Scene, store::Store};

/// With and without a chance to end well; the lock is free when we are gone, and not before the command is.
pub(crate) fn a_command_is_told_to_stop_and_the_lock_released(store: Store) {
    let scene = Scene::new(store);
    for (verb, signal) in [
        ("lock", Signal::TERM),
        ("elect", Signal::HUP),
        ("elect --restart", Signal::INT),
    ] {
        let (verb, option) = verb.split_once(' ').unwrap_or((verb, ""));
        let script =
            "trap 'sleep 0.3; echo over; exit 9' TERM; echo held; while true; do sleep 0.02; done";
        let holder = scene.spawn(&format!("{verb} k {option}"), script);
        holder.wait_for_line("held");
        holder.signal(signal);
        assert_eq!(holder.done().with(9).out, "held\nover\n");
        scene.run(&format!("{verb} k --wait 0s"), "true").with(0);

        let holder = scene.holder(&format!("{verb} k {option}"));
        holder.signal(signal);
        holder.done().with(143);
    }
}

pub(crate) fn whoever_asks_twice_means_it(store: Store) {
    let scene = Scene::new(store);
    let script = "trap 'echo no' TERM; echo held; while true; do sleep 0.02; done";
    let holder = scene.spawn("lock k --grace 60s", script);
    holder.wait_for_line("held");
    holder.signal(Signal::TERM);
    holder.wait_for_line("no");
    holder.signal(Signal::HUP);
    let done = holder.done().with(137);
    assert!(
        done.undisturbed < Duration::from_secs(8),
        "before its grace: {done:?}"
    );

    let holder = scene.spawn("lock k --grace 300ms", script);
    holder.wait_for_line("held");
    holder.signal(Signal::TERM);
    holder.done().with(137);
}

pub(crate) fn a_wait_ends_at_once_and_leaves_nothing(store: Store) {
    let scene = Scene::new(store);
    let holder = scene.holder("lock k");
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let waiter = scene.spawn("lock k", "echo never");
        waiter.wait_for_line("waiting for the lock k");
        waiter.signal(signal);
        assert_eq!(waiter.done().with(status).out, "");
    }
    holder.signal(Signal::TERM);
    holder.done().with(143);
    scene.run("lock k --wait 0s", "true").with(0);
}
