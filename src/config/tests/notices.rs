//! `[notices.NAME]`, and the jobs that name them.

use super::*;

const JOB: &str = "[jobs.a]\nkind = \"heartbeat\"\nschedule = \"@daily\"\n";
const OPS: &str = "[notices.ops]\nkind = \"webhook\"\nurl = \"https://h.example/hunter2\"\n";

/// A program that sends notices.
fn sends(text: &str) -> Setup {
    let mut setup = Setup::file(text);
    setup.options.check_notice = Some(Arc::new(|settings| {
        let mut found = Findings::default();
        settings.check(&mut found);
        found
    }));
    setup
}

#[test]
fn a_name_that_is_not_there_is_refused_and_the_nearest_is_named() {
    let wrong = format!("[worker]\nnotify = [\"pos\"]\n{OPS}{JOB}notify = [\"ops\", \"pager\"]\n");
    assert_eq!(
        sends(&wrong).lines(),
        [
            "watchkeeper.toml:2:11: worker.notify[0]: there is no notice \"pos\"; did you mean \"ops\"?",
            "watchkeeper.toml:9:18: jobs.a.notify[1]: there is no notice \"pager\"; known notices: ops",
        ]
    );
    let none = format!("{JOB}notify = [\"ops\"]\n");
    let told = sends(&none).lines();
    assert!(told[0].contains("add a table [notices.ops]"), "{told:?}");
    let right = format!("[worker]\nnotify = [\"ops\"]\n{OPS}{JOB}notify = []\n");
    assert_eq!(sends(&right).lines(), [""; 0]);
    let config = sends(&right).loaded().config;
    assert_eq!(config.jobs["a"].notify.as_deref(), Some(&[][..]));
}

#[test]
fn what_a_receiver_lacks_is_told_where_it_stands() {
    let wrong = format!("[notices.ops]\nkind = \"mail\"\nsecret = \"whsec_x\"\n{JOB}");
    let told = sends(&wrong).lines();
    assert_eq!(told.len(), 4, "{told:?}");
    assert!(
        told.iter()
            .all(|line| line.starts_with("watchkeeper.toml:"))
    );
    for says in [
        "says not where to",
        "names no sender",
        "names no recipient",
        "has no meaning",
    ] {
        assert!(
            told.iter().any(|line| line.contains(says)),
            "{says}: {told:?}"
        );
    }
    let name = sends("[notices.Ops]\nkind = \"ping\"\nurl = \"https://h\"\n").lines();
    assert!(name[0].contains("this is no name for a notice"), "{name:?}");
    let kind = sends("[notices.ops]\nkind = \"pager\"\nurl = \"https://h\"\n").lines();
    assert!(
        kind[0].contains("webhook") && kind[0].contains("ping"),
        "{kind:?}"
    );
}

#[test]
fn a_program_that_sends_none_refuses_them() {
    let told = Setup::file(&format!("{OPS}{JOB}")).lines();
    assert!(
        told[0].contains("this program sends no notices"),
        "{told:?}"
    );
}

#[test]
fn an_address_is_in_no_message_and_no_listing() {
    let loaded = sends(&format!("{OPS}{JOB}")).loaded();
    for text in [
        loaded.render(false),
        loaded.render(true),
        format!("{:?}", loaded.config),
        format!("{:?}", loaded.config.notices),
    ] {
        assert!(!text.contains("hunter2"), "{text}");
    }
    for wrong in [
        "[notices.ops]\nkind = \"ping\"\nurl = [\"https://h/hunter2\"]\n",
        "[notices.ops]\nkind = \"https://h/hunter2\"\n",
        "[notices.ops]\nurl = https://h/hunter2\n",
    ] {
        let told = sends(wrong).lines();
        assert!(
            !told.is_empty() && !told.concat().contains("hunter2"),
            "{told:?}"
        );
    }
}

#[test]
fn variables_say_what_a_receiver_is() {
    let file = "[notices.on-call]\nkind = \"mail\"\nfrom = \"a@h\"\n";
    let setup = sends(file)
        .env("NOTICES__ON_CALL__URL", "smtp://h")
        .env("NOTICES__ON_CALL__TO", "b@h, c@h")
        .env("WORKER__NOTIFY", "on-call");
    assert_eq!(setup.lines(), [""; 0]);
    let config = setup.loaded().config;
    assert_eq!(config.notices["on-call"].to.as_slice(), ["b@h", "c@h"]);
    assert_eq!(config.worker.notify, ["on-call"]);
}

#[test]
fn batches_tell_nobody() {
    let file = format!(
        "{OPS}[jobs.a]\nkind = \"heartbeat\"\nschedule = \"continuous\"\ncoordination = \"batch\"\nnotify = [\"ops\"]\n"
    );
    let told = sends(&file).lines();
    assert!(
        told.iter()
            .any(|line| line.contains("warning: jobs.a.notify")),
        "{told:?}"
    );
}

#[test]
fn a_program_that_wants_the_locks_alone_is_not_concerned() {
    let wrong = format!("[worker]\nnotify = [\"pager\"]\n[notices.ops]\nkind = \"webhook\"\n{JOB}");
    let setup = Setup::file(&wrong);
    let loaded = load_without_jobs(&setup.options).unwrap();
    assert!(loaded.config.notices.is_empty(), "{:?}", loaded.problems);
}
