//! How commands start, and how they do not.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use watchkeeper_jobs::guard::{Command, Output, StartError, Status};

use crate::{
    scene::{Scene, run},
    worker,
};

pub(crate) fn a_command_gets_its_arguments_environment_and_directory() {
    let scene = Scene::new();
    let mut command =
        scene.shell(r#"printf '%s|' "$PWD" "$GIVEN" "${TAKEN-none}" "${HOME:+home}" "$2"; exit 4"#);
    command.args.push("two words".into());
    command.cwd = Some(scene.path().to_owned());
    command.env.push(("GIVEN".into(), "a gift".into()));
    command.without_env.push("TAKEN".into());
    let end = run(async { command.start(Vec::new()).await.unwrap().ended().await });
    assert_eq!(end.status, Status::Code(4));
    let folder = scene.path().display();
    assert_eq!(end.output, format!("{folder}|a gift|none|home|two words|"));
}

pub(crate) fn a_cleared_environment_holds_what_is_given_only() {
    let scene = Scene::new();
    let mut command = Command::new("/usr/bin/env", []);
    command.output = Output::Capture(4096);
    command.clear_env = true;
    command.env = vec![("GIVEN".into(), "1".into())];
    let end = run(async { command.start(Vec::new()).await.unwrap().ended().await });
    let mut names: Vec<_> = end
        .output
        .lines()
        .map(|l| l.split('=').next().unwrap())
        .collect();
    names.sort_unstable();
    // The mark by which the command's processes are found is always there.
    assert_eq!(names, ["GIVEN", "WATCHKEEPER_GUARD"]);
    assert_eq!(scene.left(), 0);
}

pub(crate) fn a_start_that_fails_is_told_by_its_reason() {
    let scene = Scene::new();
    let plain = scene.path().join("plain");
    fs::write(&plain, "#!/bin/sh\n").unwrap();
    let orphan = scene.path().join("orphan");
    fs::write(&orphan, "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(&orphan, fs::Permissions::from_mode(0o755)).unwrap();
    let start = |program: &str, cwd: Option<&str>| {
        let mut command = scene.shell("");
        (command.program, command.args) = (program.into(), Vec::new());
        command.cwd = cwd.map(Into::into);
        let error = run(command.start(Vec::new())).unwrap_err();
        (error.exit_code(), error.to_string())
    };
    let (code, text) = start("no-such-program-here", None);
    assert_eq!(code, 127);
    assert_eq!(text, "there is no program no-such-program-here in PATH");
    assert_eq!(start("/no/such/program", None).0, 127);
    let (code, text) = start(orphan.to_str().unwrap(), None);
    assert_eq!(code, 127);
    assert!(text.contains("interpreter"), "{text}");
    let (code, text) = start(plain.to_str().unwrap(), None);
    assert_eq!(code, 126);
    assert!(text.contains("ermission denied"), "{text}");
    assert_eq!(start(scene.path().to_str().unwrap(), None).0, 126);
    let (code, text) = start("true", Some("/no/such/folder"));
    assert_eq!(code, 125);
    assert!(
        text.starts_with("the working directory /no/such/folder"),
        "{text}"
    );
    assert_eq!(scene.left(), 0);
}

pub(crate) fn nothing_starts_under_a_lease_that_is_over() {
    let scene = Scene::new();
    run(async {
        let locks = scene.locks(Duration::from_secs(2));
        let lease = locks.lock("k").acquire().await.unwrap();
        let view = lease.view().clone();
        lease.release().await;
        let refused = scene.shell("echo >> \"$1\"").start(vec![view]).await;
        assert!(matches!(refused, Err(StartError::LeaseOver)), "{refused:?}");
    });
    assert!(!scene.path().join("ready").exists());
}

pub(crate) fn input_is_empty_when_output_is_captured() {
    let scene = Scene::new();
    let end = run(async {
        let command = scene.shell("cat; echo done");
        command.start(Vec::new()).await.unwrap().ended().await
    });
    assert_eq!(end.output, "done\n");
}

pub(crate) fn what_a_caller_wants_ignored_stays_ignored() {
    let scene = Scene::new();
    let command = scene.shell("grep SigIgn /proc/self/status > \"$1\"");
    let mut worker = worker::without_hangups(&scene, &command, Duration::from_secs(5));
    worker.wait().unwrap();
    let line = fs::read_to_string(scene.path().join("ready")).unwrap();
    let mask = line.split_whitespace().nth(1).unwrap();
    let mask = u64::from_str_radix(mask, 16).unwrap();
    // SIGHUP is, SIGTERM is not.
    assert_eq!(mask & (1 | 1 << 14), 1, "{line}");
}
