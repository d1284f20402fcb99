//! `watchkeeper check` and `notify schema`, which ask the database.

use serde_json::{Value, json};

use crate::{
    command::{Ran, watchkeeper},
    scene::Scene,
};

fn configure(scene: &Scene, source: &str, more: &str) {
    let toml = format!(
        "[worker]\nname = \"a\"\n[locks.embedded]\npath = \"store.db\"\n[jobs.mail]\nkind = \"notifications\"\n\
         schedule = \"continuous\"\ncoordination = \"batch\"\n[jobs.mail.params]\nsource = \"{source}\"\n\
         sink = \"{}\"\n{more}",
        scene.receiver.url()
    );
    std::fs::write(scene.folder.path().join("watchkeeper.toml"), toml).unwrap();
}

fn ran(scene: &Scene, args: &[&str]) -> Ran {
    let mut command = watchkeeper(scene.folder.path());
    command.args(args).output().unwrap().into()
}

/// Severity, key and message of what `check` finds.
fn found(scene: &Scene, code: i32) -> Vec<(String, String, String)> {
    let told = ran(scene, &["check", "--json"]).with(code).json();
    let text = |problem: &Value, key: &str| problem[key].as_str().unwrap().to_owned();
    let problems = told.as_array().unwrap().iter();
    let problems = problems.map(|p| {
        let message = format!("{} {}", text(p, "message"), text(p, "remedy"));
        (text(p, "severity"), text(p, "key"), message)
    });
    problems.collect()
}

pub(crate) async fn check_says_what_differs_in_the_database() {
    let scene = Scene::with_rows(1).await;
    scene.sql("CREATE TABLE money (id numeric PRIMARY KEY, sent_at timestamptz)");
    configure(&scene, &scene.source(), "table = \"notifications\"\n");
    let things = scene.things();
    assert_eq!(found(&scene, 0), []);
    for (more, key, words) in [
        (
            "table = \"notification\"",
            "table",
            "there are: money, notifications",
        ),
        ("table = \"money\"", "table", "numeric"),
        (
            "table = \"notifications\"\ncolumns = { id = \"key\" }",
            "columns",
            "no column `key`",
        ),
        (
            "table = \"notifications\"\nbody = '{\"to\": \"${greeting}\"}'",
            "body",
            "no column `greeting`",
        ),
        (
            "table = \"notifications\"\ncolumns = { url = \"hook\" }\nallow_private = true",
            "columns",
            "no column `hook`",
        ),
        (
            "table = \"notifications\"\nwhere = \"channel = 1\"",
            "where",
            "\"channel\" does not exist",
        ),
        (
            "table = \"notifications\"\nside_tables = { create = false }",
            "side_tables",
            "notify schema",
        ),
    ] {
        configure(&scene, &scene.source(), more);
        let found = found(&scene, 2);
        assert_eq!(found.len(), 1, "{found:?}");
        let (severity, place, message) = &found[0];
        assert_eq!(severity, "error", "{message}");
        assert!(
            place.starts_with(&format!("jobs.mail.params.{key}")),
            "{place}"
        );
        assert!(message.contains(words), "{message}");
    }
    // Where no database can be reached the configuration alone is checked.
    configure(
        &scene,
        "postgres://me:hunter2@127.0.0.1:9/app",
        "table = \"t\"\n",
    );
    let away = found(&scene, 2);
    assert_eq!(
        (away[0].0.as_str(), away[0].1.as_str()),
        ("error", "jobs.mail.params.source")
    );
    assert!(
        away[0].2.contains("postgres://127.0.0.1:9/app: "),
        "{away:?}"
    );
    assert!(away[0].2.contains("`--offline`"), "{away:?}");
    assert!(!away[0].2.contains("hunter2"), "{away:?}");
    ran(&scene, &["check", "--offline"]).ok();
    let shown = ran(&scene, &["config"]).ok().out;
    assert!(
        shown.contains("postgres://me") && !shown.contains("hunter2"),
        "{shown}"
    );
    assert_eq!(scene.things(), things, "looking makes nothing");
}

pub(crate) async fn a_schema_that_is_printed_can_be_run() {
    let scene = Scene::with_rows(4).await;
    let more = "table = \"notifications\"\nside_tables = { schema = \"ops\", create = false }\n";
    configure(&scene, &scene.source(), more);
    let sql = ran(&scene, &["notify", "schema"]).ok().out;
    assert!(
        sql.contains("CREATE INDEX CONCURRENTLY \"notifications_unsent\""),
        "{sql}"
    );
    // As a migration does it: one transaction for all but the index, which is there.
    let (tables, _) = sql.split_once("CREATE INDEX CONCURRENTLY").unwrap();
    scene.sql(tables);
    scene.sql(tables);
    let job = scene.job(json!({"side_tables": {"schema": "ops", "create": false}}));
    scene.send_all(&job, 1).await;
    assert_eq!((scene.tally().accepted, scene.unsent()), (4, 0));
}
