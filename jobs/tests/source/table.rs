//! Tables as users have them: ids and times of every type, filters, schemas, rights.

use std::time::Duration;

use serde_json::json;
use watchkeeper::{batch::BatchJob, job::FailureKind};
use watchkeeper_jobs::notifications::operator;

use crate::{
    commands::{configure, notify},
    digest::key,
    rough::{Does, Request, Rough},
    scene::Scene,
    sending::oldest,
};

pub(crate) async fn every_type_of_id_is_sent_and_marked() {
    let scene = Scene::with_rows(0).await;
    for (i, (kind, id, layout)) in [
        ("smallint", "i::smallint", "50"),
        ("integer", "i * -1", "50"),
        ("bigint", "i + 9223372036854775707", "50"),
        ("uuid", "gen_random_uuid()", "p4"),
        ("text", "'ü/' || i", "p4"),
        ("varchar(9)", "'x' || i", "p4"),
        ("text COLLATE \"C\"", "'Ä' || i", "p4"),
    ]
    .into_iter()
    .enumerate()
    {
        let table = format!("letters_{i}");
        scene.sql(&format!(
            "CREATE TABLE {table} (uid {kind} PRIMARY KEY, body text, sent_at timestamptz);
             INSERT INTO {table} SELECT {id}, 'b' FROM generate_series(1, 100) AS i;"
        ));
        let before = scene.tally().accepted;
        let params =
            json!({"table": table, "buckets": 4, "batch_size": 50, "columns": {"id": "uid"}});
        let job = scene.job(params);
        let batches = job.pending(256).await.unwrap();
        let prefix = format!("{table}/{layout}/");
        assert!(
            batches.iter().all(|b| b.starts_with(&prefix)),
            "{batches:?}"
        );
        scene.send_all(&job, 1).await;
        assert_eq!(scene.tally().accepted - before, 100, "{kind}");
        let left = format!("SELECT count(*) FROM {table} WHERE sent_at IS NULL");
        assert_eq!((scene.number(&left), job.backlog().await.unwrap()), (0, 0));
    }
    assert_eq!(scene.tally().repeats_recognised, 0);
    assert!(scene.tally().items.contains_key("letters_4/ü/7"));
}

pub(crate) async fn a_time_of_every_type_tells_how_old_a_row_is() {
    let scene = Scene::with_rows(2).await;
    let born = json!({"payload": "body", "created_at": "born"});
    for (kind, value, other, second) in [
        ("timestamptz", "to_timestamp(5000)", "'-infinity'", 5_000),
        ("timestamp", "'1970-01-01 01:00'", "'infinity'", 3_600),
        ("date", "'1970-01-03'", "NULL", 172_800),
        ("integer", "5000", "6000", 5_000),
        ("bigint", "5000", "9223372036854775807", 5_000),
    ] {
        scene.sql(&format!(
            "ALTER TABLE notifications ADD COLUMN born {kind};
             UPDATE notifications SET born = CASE id WHEN 1 THEN {value}::{kind} ELSE {other}::{kind} END"
        ));
        assert_eq!(oldest(&scene, &born).await, (2, Some(second)), "{kind}");
        scene.sql("ALTER TABLE notifications DROP COLUMN born");
    }
    scene.sql("ALTER TABLE notifications ADD COLUMN born text");
    let job = scene.job(json!({ "columns": born }));
    let refused = job.pending(1).await.unwrap_err();
    assert_eq!(refused.kind(), FailureKind::Fatal);
    assert!(
        refused.to_string().contains("columns.created_at"),
        "{refused}"
    );
}

/// A collation of its own: the database has them in another order than their bytes.
pub(crate) async fn a_digest_of_texts_goes_again_in_the_order_of_the_database() {
    let scene = Scene::with_rows(0).await;
    scene.sql(
        "CREATE COLLATION words (provider = icu, locale = 'und');
         CREATE TABLE letters (uid text COLLATE words PRIMARY KEY, whom text, born timestamptz, sent_at timestamptz);
         INSERT INTO letters SELECT uid, 'r', '2026-01-01', CASE uid WHEN 'a' THEN now() END
             FROM unnest(ARRAY['a', 'B', 'c', 'D', 'e']) AS uid;",
    );
    let receiver = Rough::start(|request| match request.before {
        0 => Does::Breaks,
        _ => Does::Answers(204),
    })
    .await;
    let job = scene.job(json!({
        "table": "letters", "sink": receiver.url(""), "columns": {"id": "uid", "recipient": "whom"}, "buckets": 1,
        "digest": {"every": "1h", "at_most": 4, "since": "born"},
    }));
    let token = scene.send_all(&job, 1).await;
    // The first comes late, and leaves no room for all of the digest.
    scene.sql("UPDATE letters SET sent_at = NULL WHERE uid = 'a'");
    scene.advance(Duration::from_secs(60));
    scene.send_all(&job, token).await;
    let requests = receiver.requests();
    let ids = |of: &Request| {
        let items = of.json()["items"].as_array().unwrap().clone();
        let ids = items
            .iter()
            .map(|item| item["id"].as_str().unwrap().to_owned());
        ids.collect::<String>()
    };
    let sent: Vec<String> = requests.iter().map(ids).collect();
    assert_eq!(sent, ["BcDe", "BcDe", "a"]);
    assert_eq!(key(&requests[0]), key(&requests[1]));
}

pub(crate) async fn every_type_of_time_is_written() {
    let scene = Scene::with_rows(0).await;
    for (i, (kind, recent)) in [
        (
            "timestamptz",
            "at > now() - interval '1 minute' AND at < now() + interval '1 minute'",
        ),
        (
            "timestamp",
            "abs(extract(epoch FROM at - now() AT TIME ZONE 'UTC')) < 60",
        ),
        ("date", "abs(at - (now() AT TIME ZONE 'UTC')::date) <= 1"),
        ("bigint", "abs(at - extract(epoch FROM now())) < 60"),
        ("integer", "abs(at - extract(epoch FROM now())) < 60"),
        (
            "text",
            "abs(extract(epoch FROM at::timestamptz - now())) < 60",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let table = format!("letters_{i}");
        scene.sql(&format!(
            "CREATE TABLE {table} (id int PRIMARY KEY, at {kind}); INSERT INTO {table} VALUES (1), (2);"
        ));
        let job = scene.job(json!({"table": table, "columns": {"sent_at": "at"}}));
        let batches = job.pending(9).await.unwrap();
        assert_eq!(batches, [format!("public.{table}.at/50/0")]);
        scene.send_all(&job, 1).await;
        let written = format!("SELECT count(*) FROM {table} WHERE {recent}");
        assert_eq!(scene.number(&written), 2, "{kind}");
    }
}

pub(crate) async fn a_filter_makes_deliveries_of_one_table() {
    let scene = Scene::with_rows(0).await;
    scene.sql(
        "CREATE SCHEMA app; CREATE TABLE app.mixed (id int PRIMARY KEY, state text, sent_at timestamptz);
         INSERT INTO app.mixed SELECT i, CASE i % 2 WHEN 0 THEN 'mail' ELSE 'push' END FROM generate_series(1, 40) AS i;",
    );
    // The side table has a column of that name, too.
    let of = |channel: &str| {
        let filter = format!("state = '{channel}' -- a remark");
        scene.job(json!({"table": "app.mixed", "where": filter}))
    };
    let (mail, push) = (of("mail"), of("push"));
    assert_eq!(
        (mail.backlog().await.unwrap(), push.backlog().await.unwrap()),
        (20, 20)
    );
    let (one, other) = (
        mail.pending(9).await.unwrap(),
        push.pending(9).await.unwrap(),
    );
    assert!(
        one[0].starts_with("app.mixed?") && one != other,
        "{one:?} {other:?}"
    );
    scene.send_all(&mail, 1).await;
    assert_eq!(
        (scene.tally().accepted, push.backlog().await.unwrap()),
        (20, 20)
    );
    scene.send_all(&push, 1).await;
    let tally = scene.tally();
    assert_eq!((tally.accepted, tally.accepted_twice), (40, 0));
    let wrong = scene.job(json!({"table": "app.mixed", "where": "channel = 'mail'"}));
    let error = wrong.pending(1).await.unwrap_err();
    assert!(error.to_string().contains("`where`"), "{error}");
}

pub(crate) async fn columns_of_the_table_stay_as_they_are() {
    let scene = Scene::with_rows(60).await;
    let columns = || {
        scene.text(
            "SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod) || attnotnull, ',' ORDER BY attnum)
             FROM pg_attribute WHERE attrelid = 'notifications'::regclass",
        )
    };
    let before = columns();
    scene.send_all(&scene.job(json!({})), 1).await;
    assert_eq!((columns(), scene.unsent()), (before, 0));
    let others = scene.text(
        "SELECT string_agg(tablename, ',' ORDER BY tablename) FROM pg_tables WHERE schemaname = 'public'",
    );
    assert_eq!(
        others,
        "notifications,watchkeeper_delivery,watchkeeper_delivery_intent,watchkeeper_delivery_source"
    );
    let left = scene.number("SELECT count(*) FROM watchkeeper_delivery_intent");
    assert_eq!(left, 0);
}

pub(crate) async fn side_tables_lie_where_they_are_wanted_or_are_not_made() {
    let scene = Scene::with_rows(3).await;
    let none = scene.job(json!({"side_tables": {"create": false}}));
    let error = none.pending(1).await.unwrap_err();
    assert_eq!(error.kind(), FailureKind::Fatal);
    for word in [
        "no side tables in schema `public`",
        "notify schema",
        "`side_tables.create`",
    ] {
        assert!(error.to_string().contains(word), "{error}");
    }
    let missing = scene.job(json!({"side_tables": {"schema": "ops"}}));
    let error = missing.pending(1).await.unwrap_err();
    assert!(
        error.to_string().contains("schema \"ops\" does not exist"),
        "{error}"
    );
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = 'ops'";
    assert_eq!(scene.number(tables), 0);
    scene.sql("CREATE SCHEMA ops");
    scene.send_all(&missing, 1).await;
    assert_eq!((scene.number(tables), scene.unsent()), (3, 0));
}

/// As an earlier version has made them.
pub(crate) async fn side_tables_that_take_no_discarded_items_are_named_with_the_remedy() {
    const EARLIER: &str = "ALTER TABLE watchkeeper_delivery DROP CONSTRAINT watchkeeper_delivery_state_check,
         ADD CONSTRAINT watchkeeper_delivery_state_check CHECK (state IN ('retry', 'dead', 'in_doubt', 'parked'))";
    let scene = Scene::with_rows(2).await;
    configure(&scene, "");
    notify(&scene, &["park", "1", "2"]).await.ok();
    scene.sql(EARLIER);
    for order in [&["discard", "1"][..], &["discard", "--all", "--yes"]] {
        let refused = notify(&scene, order).await.with(1).err;
        let remedy = refused
            .split_once("have its owner run: ")
            .map(|(_, sql)| sql);
        let remedy = remedy.unwrap_or_else(|| panic!("{order:?}: {refused}"));
        scene.sql(remedy.trim());
        notify(&scene, order).await.ok();
        scene.sql("UPDATE watchkeeper_delivery SET state = 'parked'");
        scene.sql(EARLIER);
    }
}

pub(crate) async fn rows_with_ids_are_imported_and_later_ones_come_behind_them() {
    let scene = Scene::with_rows(0).await;
    let columns = ["id", "recipient"].map(str::to_owned);
    for kind in ["ALWAYS", "BY DEFAULT"] {
        scene.sql(&format!(
            "DROP TABLE IF EXISTS letters;
             CREATE TABLE letters (id bigint GENERATED {kind} AS IDENTITY PRIMARY KEY, recipient text, sent_at timestamptz)"
        ));
        let params = scene.params(json!({"table": "letters"}));
        let mut person = operator(&params, true).await.unwrap();
        let rows = || {
            vec![
                json!({"id": "7", "recipient": "a"}),
                json!({"id": 9, "recipient": "b"}),
            ]
        };
        assert_eq!(person.import(&columns, rows()).await.unwrap(), 2);
        assert_eq!(person.import(&columns, rows()).await.unwrap(), 0);
        let add = "INSERT INTO letters (recipient) VALUES ('c')";
        let last = || scene.number("SELECT max(id) FROM letters");
        scene.sql(add);
        assert_eq!(last(), 10, "{kind}");
        // A sequence that is ahead stays there.
        let between = vec![json!({"id": 8, "recipient": "d"})];
        assert_eq!(person.import(&columns, between).await.unwrap(), 1);
        scene.sql(add);
        assert_eq!(last(), 11, "{kind}");
    }
    // One without a sequence, and one that takes no such number.
    scene.sql(
        "DROP TABLE letters; CREATE TABLE letters (id int PRIMARY KEY, recipient text, sent_at timestamptz)",
    );
    let params = scene.params(json!({"table": "letters"}));
    let mut person = operator(&params, true).await.unwrap();
    let row = vec![json!({"id": 1, "recipient": "a"})];
    assert_eq!(person.import(&columns, row).await.unwrap(), 1);
}

/// A session that ends in the very moment of its COMMIT.
pub(crate) async fn rows_that_may_be_in_the_table_are_not_imported_again() {
    let scene = Scene::with_rows(0).await;
    configure(&scene, "");
    scene.sql(
        "CREATE FUNCTION ends() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END';
         CREATE CONSTRAINT TRIGGER ends AFTER INSERT ON notifications DEFERRABLE INITIALLY DEFERRED
             FOR EACH ROW WHEN (NEW.recipient = 'c') EXECUTE FUNCTION ends()",
    );
    let file = scene.folder.path().join("a.csv");
    std::fs::write(&file, "recipient,body\na,b\nb,b\nc,b\n").unwrap();
    let ran = notify(&scene, &["import", file.to_str().unwrap()])
        .await
        .with(1);
    for words in ["lines 2 to 4 may be in the table", "nothing before them is"] {
        assert!(ran.err.contains(words), "{words}: {}", ran.err);
    }
    assert!(!ran.err.contains("--after-line"), "{}", ran.err);
}

pub(crate) async fn what_does_not_fit_is_said_with_key_and_remedy() {
    let scene = Scene::with_rows(1).await;
    scene.sql(&format!(
        "CREATE TABLE money (id numeric PRIMARY KEY, sent_at timestamptz);
         CREATE TABLE doubled (id int, sent_at timestamptz);
         CREATE TABLE never (id int PRIMARY KEY, sent_at timestamptz NOT NULL);
         CREATE TABLE flag (id int PRIMARY KEY, sent_at boolean);
         CREATE TABLE short (id int PRIMARY KEY, sent_at varchar(20));
         CREATE DOMAIN instant AS varchar(23);
         CREATE TABLE shorter (id int PRIMARY KEY, sent_at instant);
         CREATE VIEW seen AS SELECT * FROM notifications;
         CREATE SCHEMA app; CREATE TABLE app.hidden (id int PRIMARY KEY, sent_at timestamptz);
         DROP ROLE IF EXISTS guest_{0}; CREATE ROLE guest_{0} LOGIN;",
        scene.database()
    ));
    let guest = scene.source().replace(
        "://watchkeeper@",
        &format!("://guest_{}@", scene.database()),
    );
    for (changes, words) in [
        (
            json!({"table": "notification"}),
            &["no table `notification`", "notifications", "app.hidden"][..],
        ),
        (
            json!({"table": "hidden"}),
            &["no table `hidden`", "app.hidden"],
        ),
        (
            json!({"columns": {"id": "key"}}),
            &["no column `key`", "there are: id, recipient"],
        ),
        (
            json!({"table": "money"}),
            &["`columns.id`", "numeric", "bigint"],
        ),
        (
            json!({"table": "doubled"}),
            &["neither its primary key nor unique"],
        ),
        (
            json!({"table": "never"}),
            &["`columns.sent_at`", "must be able to be null"],
        ),
        (json!({"table": "flag"}), &["`columns.sent_at`", "bool"]),
        (
            json!({"table": "short"}),
            &["`columns.sent_at`", "takes 20 characters"],
        ),
        (json!({"table": "shorter"}), &["takes 23 characters"]),
        (json!({"table": "seen"}), &["it is a view"]),
        (
            json!({"source": guest}),
            &[
                "may not be read",
                "GRANT SELECT ON \"public\".\"notifications\"",
            ],
        ),
    ] {
        let error = scene.job(changes).pending(1).await.unwrap_err();
        assert_eq!(error.kind(), FailureKind::Fatal, "{error}");
        for word in words {
            assert!(error.to_string().contains(word), "{word}: {error}");
        }
    }
    scene.sql(&format!(
        "GRANT SELECT ON notifications TO guest_{}",
        scene.database()
    ));
    let error = scene
        .job(json!({"source": guest}))
        .pending(1)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("GRANT UPDATE (\"sent_at\")"),
        "{error}"
    );
    scene.sql(&format!(
        "GRANT UPDATE (sent_at) ON notifications TO guest_{}",
        scene.database()
    ));
    let error = scene
        .job(json!({"source": guest}))
        .pending(1)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("could not be made"), "{error}");
    assert_eq!(scene.unsent(), 1);
    scene.sql(&format!(
        "GRANT CREATE ON SCHEMA public TO guest_{}",
        scene.database()
    ));
    // These rights are enough.
    scene
        .send_all(&scene.job(json!({"source": guest})), 1)
        .await;
    assert_eq!(scene.unsent(), 0);
}

/// Side tables that a person has made, who forgot a right.
pub(crate) async fn a_right_that_is_missing_on_the_side_tables_is_said_with_its_grant() {
    let scene = Scene::with_rows(3).await;
    scene.job(json!({})).pending(1).await.unwrap();
    let guest = format!("guest_{}", scene.database());
    scene.sql(&format!(
        "DROP ROLE IF EXISTS {guest}; CREATE ROLE {guest} LOGIN;
         GRANT SELECT, UPDATE (sent_at) ON notifications TO {guest};
         GRANT SELECT, INSERT, UPDATE ON watchkeeper_delivery, watchkeeper_delivery_intent, watchkeeper_delivery_source TO {guest};"
    ));
    let source = scene
        .source()
        .replace("://watchkeeper@", &format!("://{guest}@"));
    let changes = json!({"source": source, "side_tables": {"create": false}});
    let job = scene.job(changes.clone());
    let refused = job.pending(1).await.unwrap_err();
    assert_eq!(refused.kind(), FailureKind::Fatal, "{refused}");
    let of = |table: &str| format!("GRANT DELETE ON \"public\".\"{table}\" TO {guest};");
    let grants = [
        of("watchkeeper_delivery"),
        of("watchkeeper_delivery_intent"),
    ];
    assert!(refused.to_string().contains(&grants.join(" ")), "{refused}");
    let params = scene.params(changes);
    let mut person = operator(&params, false).await.unwrap();
    let told = person.look().await.unwrap_err().to_string();
    assert!(told.contains(&grants[1]), "{told}");
    // What is said to be missing is all that is missing.
    scene.sql(&grants.concat());
    assert_eq!(person.look().await.unwrap(), None);
    scene.send_all(&job, 1).await;
    assert_eq!((scene.unsent(), scene.tally().requests), (0, 3));
    // The schema, too, is to be entered.
    scene.sql("CREATE SCHEMA ops");
    let elsewhere = json!({"side_tables": {"schema": "ops"}});
    scene.job(elsewhere).pending(1).await.unwrap();
    let elsewhere = json!({"source": source, "side_tables": {"schema": "ops", "create": false}});
    let refused = scene.job(elsewhere).pending(1).await.unwrap_err();
    let grant = format!("GRANT USAGE ON SCHEMA \"ops\" TO {guest};");
    assert!(refused.to_string().contains(&grant), "{refused}");
}

/// What waits for a person may be much: another size of cells changes nothing of it.
pub(crate) async fn a_change_of_the_division_rewrites_what_differs_in_portions() {
    let scene = Scene::with_rows(12_000).await;
    let recipient = json!({"recipient": "recipient"});
    scene.job(json!({})).pending(1).await.unwrap();
    scene.note_all();
    scene.sql(
        "CREATE TABLE written (rows bigint);
         CREATE FUNCTION notes() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN INSERT INTO written SELECT count(*) FROM fresh; RETURN NULL; END';
         CREATE TRIGGER notes AFTER UPDATE ON watchkeeper_delivery REFERENCING NEW TABLE AS fresh
             FOR EACH STATEMENT EXECUTE FUNCTION notes();",
    );
    let in_force = || scene.text("SELECT layout FROM watchkeeper_delivery_source");
    let written = || {
        let written = scene.number("SELECT coalesce(sum(rows), 0) FROM written");
        let most = scene.number("SELECT coalesce(max(rows), 0) FROM written");
        scene.sql("TRUNCATE written");
        (written, most)
    };
    let divide = async |changes: serde_json::Value| {
        let before = in_force();
        let job = scene.job(changes);
        for _ in 0..20 {
            job.pending(1).await.unwrap();
            if in_force() != before {
                return written();
            }
        }
        panic!("{before} stays in force");
    };
    let named = "SELECT count(*) FROM watchkeeper_delivery WHERE recipient IS NOT NULL";
    assert_eq!(divide(json!({"batch_size": 20})).await, (0, 0));
    let ordered = json!({"columns": recipient, "order": "strict", "buckets": 8});
    let (all, most) = divide(ordered).await;
    assert_eq!((all, scene.number(named)), (12_000, 12_000));
    assert!(most <= 5_000, "{most} rows in one transaction");
    let ordered = json!({"columns": recipient, "order": "strict", "buckets": 16});
    assert_eq!(divide(ordered).await, (0, 0));
    let (all, most) = divide(json!({})).await;
    assert_eq!((all, scene.number(named)), (12_000, 0));
    assert!(most <= 5_000, "{most} rows in one transaction");
}
