//! Where the lock lives, when no option says it.

use std::process::Command;

use crate::{process::Running, scene::Scene, store::Store};

pub(crate) fn a_configuration_of_another_program_will_do(store: Store) {
    let scene = Scene::new(store);
    let settings = scene.settings();
    let file = format!(
        "[locks]\n{settings}[jobs.theirs]\nkind = \"of their own\"\nschedule = \"@daily\"\n"
    );
    scene.write("other.toml", &file);
    let words = [
        "lock",
        "k",
        "--wait",
        "0s",
        "-c",
        "other.toml",
        "--",
        "true",
    ];
    Running::start(patient(&scene, &words)).done().with(0);
    // It is the same lock as the one that options lead to.
    let _holder = scene.holder("lock k");
    Running::start(patient(&scene, &words)).done().with(3);
    let unnamed = ["lock", "k", "--wait", "0s", "--", "true"];
    let mut command = patient(&scene, &unnamed);
    command.env("WATCHKEEPER_CONFIG", "other.toml");
    Running::start(command).done().with(3);
    scene.write("watchkeeper.toml", &file);
    Running::start(patient(&scene, &unnamed)).done().with(3);
}

/// It tries once, with a connection that is made for it: on a busy machine that takes longer than a node has elsewhere.
fn patient(scene: &Scene, words: &[&str]) -> Command {
    let mut command = scene.bare(words);
    for store in ["REDIS", "POSTGRES", "ETCD"] {
        command.env(format!("WATCHKEEPER_LOCKS__{store}__NODE_TIMEOUT"), "500ms");
    }
    command
}

pub(crate) fn a_place_that_nobody_named_is_refused(store: Store) {
    let scene = Scene::new(store);
    for verb in ["lock", "elect"] {
        let done = scene.run_bare(&[verb, "k", "--", "true"]).with(125);
        done.says(&["--nodes", "--embedded", "--config"]);
    }
    let left = std::fs::read_dir(scene.file(""))
        .expect("the folder")
        .count();
    assert_eq!(left, 0, "nothing was made");
}

pub(crate) fn a_watchkeeper_inside_a_command_is_not_confused(store: Store) {
    let scene = Scene::new(store);
    let options = scene.store.options(&scene.file("")).join(" ");
    let program = env!("CARGO_BIN_EXE_watchkeeper");
    let mut command = scene.command(
        "lock outer",
        &format!("\"{program}\" lock inner {options} -- sh -c 'echo $WATCHKEEPER_KEY'"),
    );
    for name in ["JOB", "TICK", "ATTEMPT", "RUN_ID"] {
        command.env(format!("WATCHKEEPER_{name}"), "x");
    }
    let done = Running::start(command).done().with(0);
    assert_eq!((done.out.as_str(), done.err.as_str()), ("inner\n", ""));
}

/// The guard is the parent of CMD, and holds what it was started with for as long as CMD runs.
pub(crate) fn a_command_and_its_guard_get_none_of_our_secrets(store: Store) {
    let scene = Scene::new(store);
    for verb in ["lock", "elect"] {
        let script = "env; tr '\\0' '\\n' < /proc/$PPID/environ";
        let mut command = scene.command(&format!("{verb} k"), script);
        for name in [
            "LOCKS__REDIS__PASSWORD",
            "ADMIN__TOKEN",
            "JOBS__MAIL__PARAMS__KEY",
        ] {
            command.env(format!("WATCHKEEPER_{name}"), "hunter2-hunter2-hunter2");
        }
        let done = Running::start(command).done().with(0);
        assert!(!done.out.contains("hunter2"), "{}", done.out);
        // Both are there, with all that is no secret.
        let kept = "WATCHKEEPER_LOCKS__RESTART_GUARD=off";
        assert_eq!(done.out.matches(kept).count(), 2, "{}", done.out);
    }
}
