//! `watchkeeper check` and `notify schema`, which ask the database.

use serde_json::{Value, json};

use crate::{
    announced::{SOON, is_told},
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
        for words in [words, scene.database()] {
            assert!(message.contains(words), "{words}: {message}");
        }
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

/// Blocks of the guide in the words of this database, statement by statement.
fn statements_of_the_guide() -> Vec<&'static str> {
    let guide = include_str!("../../../docs/guides/notifications.md");
    let blocks = guide.split("```postgresql\n").skip(1);
    let blocks = blocks.filter_map(|block| block.split("```").next());
    let statements = blocks.flat_map(|block| block.split(";\n"));
    statements.filter(|s| !s.trim().is_empty()).collect()
}

pub(crate) async fn the_tables_of_the_guide_are_served() {
    let scene = Scene::with_rows(0).await;
    scene.sql(
        "DROP TABLE notifications; CREATE SCHEMA shop;
         CREATE TABLE shop.notifications (id bigint PRIMARY KEY, channel text, payload text, sent_at timestamptz);
         DO $$ BEGIN CREATE ROLE app; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;",
    );
    let statements = statements_of_the_guide();
    assert!(statements.len() >= 4, "{statements:?}");
    for statement in statements {
        scene.sql(statement);
    }
    scene.sql(
        "INSERT INTO notifications (recipient, payload) VALUES ('a', '{\"n\": 1}');
         INSERT INTO shop.notifications VALUES (7, 'mail', 'b', NULL), (8, 'push', 'b', NULL);",
    );
    let columns = json!({"payload": "payload"});
    let job = scene.job(json!({ "columns": columns }));
    scene.send_all(&job, 1).await;
    let filtered =
        json!({"table": "shop.notifications", "columns": columns, "where": "channel = 'mail'"});
    scene.send_all(&scene.job(filtered), 1).await;
    let left = "SELECT count(*) FROM shop.notifications WHERE sent_at IS NULL";
    assert_eq!(
        (scene.tally().accepted, scene.unsent(), scene.number(left)),
        (2, 0, 1)
    );
}

pub(crate) async fn a_schema_that_is_printed_can_be_run() {
    let scene = Scene::with_rows(4).await;
    let more = "table = \"notifications\"\nside_tables = { schema = \"ops\", create = false }\nlisten = \"mails\"\n";
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
    let side_tables = json!({"schema": "ops", "create": false});
    let job = scene.job(json!({"side_tables": side_tables, "listen": "mails"}));
    scene.send_all(&job, 1).await;
    assert_eq!((scene.tally().accepted, scene.unsent()), (4, 0));
    // It has a trigger in it, which tells of new rows.
    assert!(is_told(&job, SOON).await, "of what came before it listened");
    scene.sql("INSERT INTO notifications (recipient, body) VALUES ('a', 'b')");
    assert!(is_told(&job, SOON).await);
}
