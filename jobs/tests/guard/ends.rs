//! How commands end.

use std::time::Duration;

use watchkeeper_jobs::guard::{Cause, Status};

use crate::{
    scene::{Scene, now, run},
    wait::soon,
    worker,
};

pub(crate) fn the_status_of_a_command_is_its_own() {
    let scene = Scene::new();
    for (script, status) in [
        ("exit 0", Status::Code(0)),
        ("exit 255", Status::Code(255)),
        ("kill -SEGV $$", Status::Signal(11)),
        ("kill -KILL $$", Status::Signal(9)),
        // What it does to its own group does not reach its guard.
        ("trap '' TERM; kill 0; exit 3", Status::Code(3)),
    ] {
        let end = run(async {
            let command = scene.shell(script).start(Vec::new()).await.unwrap();
            assert!(command.pid() > 1);
            command.ended().await
        });
        assert_eq!((end.status, end.cause), (status, Cause::Itself), "{script}");
        assert_eq!(end.left_behind, 0, "{script}");
    }
}

pub(crate) fn a_command_that_heeds_sigterm_ends_by_itself() {
    let scene = Scene::new();
    let script = r#"trap 'echo tidied; exit 5' TERM; echo >> "$1"; while :; do sleep 0.01; done"#;
    let end = run(async {
        let command = scene.shell(script).start(Vec::new()).await.unwrap();
        soon("the trap", || scene.path().join("ready").exists());
        command.terminate(Duration::from_secs(60));
        command.ended().await
    });
    assert_eq!((end.status, end.cause), (Status::Code(5), Cause::Asked));
    assert!(end.output.ends_with("tidied\n"), "{}", end.output);
}

pub(crate) fn a_command_that_ignores_sigterm_is_killed_after_its_grace() {
    let scene = Scene::new();
    run(async {
        let command = scene.stubborn().start(Vec::new()).await.unwrap();
        scene.wait_until_stubborn();
        let told = now();
        command.terminate(Duration::from_millis(300));
        let end = command.ended().await;
        let took = now().since(told);
        assert_eq!((end.status, end.cause), (Status::Signal(9), Cause::Asked));
        assert!(took >= Duration::from_millis(300), "{took:?}");
        assert_eq!(scene.left(), 0);
    });
}

pub(crate) fn a_handle_that_is_dropped_ends_its_command() {
    let scene = Scene::new();
    run(async {
        let command = scene.stubborn().start(Vec::new()).await.unwrap();
        scene.wait_until_stubborn();
        drop(command);
    });
    soon("the end of all parts", || scene.left() == 0);
}

pub(crate) fn what_a_command_leaves_behind_is_ended() {
    let scene = Scene::new();
    let script = r#"(setsid sleep 1000 >/dev/null 2>&1 &) ; sleep 1000 & echo left; exit 6"#;
    let end = run(async {
        let command = scene.shell(script).start(Vec::new()).await.unwrap();
        command.ended().await
    });
    assert_eq!((end.status, end.cause), (Status::Code(6), Cause::Itself));
    assert_eq!((end.left_behind, end.output.as_str()), (2, "left\n"));
    assert_eq!(scene.left(), 0);
}

/// A few hundred processes at most, and never fewer than some that are just forking.
pub(crate) fn what_forks_all_the_time_does_not_outrun_its_end() {
    let scene = Scene::new();
    // Each lives for a moment and starts one in its place: forty chains, one process each.
    let script = r#"
        trap '' TERM
        chain() { [ -e "$1" ] && (chain "$1" &) ; }
        : > "$1"; n=0; while [ $n -lt 40 ]; do chain "$1" & n=$((n + 1)); done
        echo >> "$1"; sleep 1000"#;
    run(async {
        let command = scene.shell(script).start(Vec::new()).await.unwrap();
        let ready = scene.path().join("ready");
        soon("the chains", || {
            std::fs::read(&ready).is_ok_and(|r| !r.is_empty())
        });
        let told = now();
        command.kill();
        let end = command.ended().await;
        println!("chains of forks ended after {:?}", now().since(told));
        // Should it have failed, nothing of it shall stay.
        std::fs::remove_file(&ready).unwrap();
        assert_eq!((end.status, end.cause), (Status::Signal(9), Cause::Asked));
        assert_eq!(scene.left(), 0);
    });
}

pub(crate) fn output_of_any_length_costs_bounded_memory() {
    let scene = Scene::new();
    let script = "echo first; head -c 100000000 /dev/zero | tr '\\0' x; echo; echo last";
    let end = run(async {
        let command = scene.shell(script).start(Vec::new()).await.unwrap();
        command.ended().await
    });
    assert_eq!(end.status, Status::Code(0));
    assert_eq!(end.written, 100_000_012);
    assert!(end.output.starts_with("first\nxxx"), "{}", end.output);
    assert!(end.output.ends_with("xxx\nlast\n"), "{}", end.output);
    assert!(end.output.len() < 5000);
    // The same in a process of its own, whose memory can be measured.
    let worker = worker::running(&scene, &scene.shell(script), Duration::from_secs(10));
    let peak = worker.wait_with_output().unwrap().stdout;
    let peak: usize = String::from_utf8(peak).unwrap().trim().parse().unwrap();
    println!("a worker whose command writes 100 MB: at most {peak} KiB of memory");
    assert!(peak < 40 * 1024, "{peak} KiB");
}

pub(crate) fn a_lease_is_held_until_nothing_is_left() {
    let scene = Scene::new();
    run(async {
        let locks = scene.locks(Duration::from_secs(10));
        let lease = locks.lock("k").acquire().await.unwrap();
        let command = scene
            .stubborn()
            .start(vec![lease.view().clone()])
            .await
            .unwrap();
        scene.wait_until_stubborn();
        command.terminate(Duration::from_millis(200));
        // Both at once: the release waits for the end of the command.
        let released = lease.release();
        drop(command);
        released.await;
        assert_eq!(scene.left(), 0);
        assert!(locks.lock("k").acquire().await.is_ok());
    });
}

pub(crate) fn a_command_whose_name_is_cut_within_a_letter_is_ended() {
    let scene = Scene::new();
    // Linux keeps fifteen bytes of a name, which is half of the last letter here.
    let script = r#"
        trap '' TERM HUP INT
        setsid sh -c '
            printf "datensicherung\303\244" > /proc/$$/comm
            echo >> "$1"
            while :; do sleep 0.2; done
        ' sh "$1" &
        printf 'datensicherung\303\244' > /proc/$$/comm
        echo >> "$1"
        while :; do sleep 0.2; done
    "#;
    let command = scene.shell(script);
    run(async {
        let command = command.start(Vec::new()).await.unwrap();
        let ready = scene.path().join("ready");
        soon("the program and its child", || {
            std::fs::read(&ready).unwrap_or_default().len() == 2
        });
        command.kill();
        let end = command.ended().await;
        assert_eq!((end.status, end.cause), (Status::Signal(9), Cause::Asked));
        assert_eq!(scene.left(), 0);
    });
}
