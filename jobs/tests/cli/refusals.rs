//! What cannot be, or has no effect, is said in words that help.

use super::{folder_with, run};

const PULSE: &str = r#"
[jobs.pulse]
kind = "heartbeat"
schedule = "at 2026-01-01T02:30"
progress_deadline = "5m"
"#;

const BACKUP: &str = r#"
[jobs.backup]
kind = "exec"
schedule = "@daily"
params = { command = ["true"] }
"#;

#[test]
fn check_warns_of_what_has_no_effect_on_stock_jobs() {
    let folder = folder_with(PULSE);
    let ran = run(folder.path(), &["check"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    for words in [
        "watchkeeper.toml:4:12: warning: jobs.pulse.schedule: it has passed: no tick lies ahead, the last one was \
         Thu 2026-01-01 02:30:00 +00:00",
        "watchkeeper.toml:5:21: warning: jobs.pulse.progress_deadline: jobs of the kind \"heartbeat\" tell no progress",
    ] {
        assert!(ran.out.contains(words), "{words}: {}", ran.out);
    }
    let mail = "[jobs.mail]\nkind = \"notifications\"\nschedule = \"@daily\"\n\
                params = { source = \"sqlite://app.db\", table = \"t\", sink = \"http://127.0.0.1:9\" }";
    let ran = run(folder_with(mail).path(), &["check"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.out
            .contains("watchkeeper.toml:2:8: jobs.mail.coordination: its work comes in batches"),
        "{}",
        ran.out
    );
}

#[test]
fn jobs_next_takes_a_day_and_says_how_a_time_is_written() {
    let folder = folder_with("[jobs.report]\nkind = \"heartbeat\"\nschedule = \"@daily\"");
    let next = |after: &str| {
        let args = ["jobs", "next", "report", "--count", "1", "--after", after];
        run(folder.path(), &args)
    };
    for after in ["2027-03-26", "2027-03-26T00:30", "2027-03-26T00:30:00Z"] {
        let ran = next(after);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert!(ran.out.contains("2027-03-2"), "{}", ran.out);
    }
    let ran = next("tomorrow");
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.err
            .contains("\"tomorrow\" is no time: write 2026-05-04T08:00:00Z")
            && ran
                .err
                .contains("or 2026-05-04 for this machine's time zone"),
        "{}",
        ran.err
    );
}

#[test]
fn a_trigger_is_told_which_parameters_it_may_give() {
    let folder = folder_with(BACKUP);
    let trigger = |param: &str| run(folder.path(), &["trigger", "backup", "--param", param]);
    let ran = trigger("day=monday");
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.err.contains(
            "params.day: there is no such parameter: a trigger may give done_on, skip_on and fatal_on, \
             and command, cwd, env and inherit_env come from the configuration alone"
        ),
        "{}",
        ran.err
    );
    let ran = trigger("day={\"of\": \"week\"}");
    assert!(
        ran.err.contains("params.day: there is no such parameter"),
        "{}",
        ran.err
    );
    let ran = trigger("command=rm");
    assert!(
        ran.err.contains("params.command: no trigger may give it"),
        "{}",
        ran.err
    );
    let ran = trigger("day\u{1b}[31m=monday");
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("control character"), "{}", ran.err);
    let raw = |c: char| c.is_control() && c != '\n';
    assert!(!ran.err.contains(raw), "{:?}", ran.err);
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 1, "no store was made");
}

const MAILS: &str = r#"
[jobs.mail]
kind = "notifications"
schedule = "continuous"
coordination = "batch"
params = { source = "sqlite://app.db", table = "t", sink = "http://127.0.0.1:9" }
[jobs.post]
kind = "notifications"
schedule = "continuous"
coordination = "batch"
params = { source = "sqlite://app.db", table = "u", sink = "http://127.0.0.1:9" }
[jobs.beat]
kind = "heartbeat"
schedule = "@daily"
"#;

#[test]
fn all_jobs_are_paused_when_that_is_meant_and_said_why() {
    let folder = folder_with("[jobs.beat]\nkind = \"heartbeat\"\nschedule = \"@daily\"");
    for (args, code, words) in [
        (&["pause"][..], 2, "JOB"),
        (&["pause", "beat", "--all"], 2, "cannot be used with"),
        (&["pause", "--all"], 2, "say why with --reason"),
        (
            &["pause", "--all", "--reason", "all move"],
            2,
            "say --yes to pause every job of the fleet",
        ),
        (
            &["resume", "--all"],
            2,
            "say --yes to end every pause of the fleet",
        ),
        (
            &["pause", "--all", "--reason", "all move", "--yes"],
            1,
            "store",
        ),
    ] {
        let ran = run(folder.path(), args);
        assert_eq!(ran.code, Some(code), "{args:?}: {}{}", ran.out, ran.err);
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
    }
}

#[test]
fn notify_says_which_jobs_it_could_mean() {
    let folder = folder_with(MAILS);
    for (args, code, words) in [
        (
            &["dead"][..],
            2,
            "name the job; jobs of this kind: mail, post",
        ),
        (
            &["dead", "mali"],
            1,
            "there is no job \"mali\"; jobs of this kind: mail, post",
        ),
        (
            &["status", "beat"],
            1,
            "job \"beat\" is of the kind \"heartbeat\"",
        ),
        (&["retry", "17"], 1, "there is no job \"17\""),
        (
            &["retry", "mail"],
            2,
            "say which: ids as `notify dead` lists them, --all, or --state dead",
        ),
        (&["retry", "mail", "3", "--all"], 2, "not both"),
        (
            &["retry", "mail", "--all", "--state", "dead"],
            2,
            "cannot be used with",
        ),
        (
            &["retry", "mail", "--state", "lost"],
            2,
            "retry, dead, in_doubt, parked",
        ),
        (&["park", "mail"], 2, "say which items of mail"),
        (&["park"], 2, "JOB|ID"),
        (&["dead", "mail", "--limit", "0"], 2, "--limit"),
        (&["dead", "mail"], 1, "no database at app.db"),
        (&["retry", "mail", "1"], 1, "no database at app.db"),
    ] {
        let ran = run(folder.path(), &[&["notify"], args].concat());
        assert_eq!(ran.code, Some(code), "{args:?}: {}{}", ran.out, ran.err);
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
    }
    // All of them are shown, with what is wrong with each.
    let ran = run(folder.path(), &["notify", "status", "--json"]);
    let rows: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(
        (ran.code, rows.as_array().map(Vec::len)),
        (Some(1), Some(2))
    );
    assert_eq!(rows[0]["error"], "no database at app.db");
    assert_eq!(rows[1]["backlog"], serde_json::Value::Null);

    let folder = folder_with("[jobs.beat]\nkind = \"heartbeat\"\nschedule = \"@daily\"");
    let ran = run(folder.path(), &["notify", "status"]);
    assert_eq!(ran.code, Some(1));
    assert!(
        ran.err.contains("no job of the kind \"notifications\""),
        "{}",
        ran.err
    );
    let folder = folder_with("[jobs.mail]\nkind = \"notifications\"\nschedule = \"@daily\"");
    let ran = run(folder.path(), &["notify", "dead"]);
    assert_eq!(
        ran.code,
        Some(2),
        "a configuration with faults: {}",
        ran.err
    );
    assert!(ran.err.contains("nothing was done"), "{}", ran.err);
}
