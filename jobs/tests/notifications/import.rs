//! `watchkeeper notify import`; the same on every database.

use serde_json::{Value, json};

use crate::{
    command::Ran,
    commands::{configure, notify, number},
    scene::Scene,
};

async fn import(scene: &Scene, name: &str, text: &str, more: &[&str]) -> Ran {
    let path = scene.folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    let mut args = vec!["import", path.to_str().unwrap()];
    args.extend(more);
    notify(scene, &args).await
}

fn rows(scene: &Scene, rest: &str) -> i64 {
    scene.number(&format!("SELECT count(*) FROM notifications {rest}"))
}

pub(crate) async fn rows_of_a_file_are_imported_and_known_ids_left_out() {
    let scene = Scene::with_rows(2).await;
    configure(&scene, "");
    let csv = "id,recipient,body\n2,a,known\n3,\"b, c\",\"d\ne\"\n4,f,g\n";
    let ran = import(&scene, "a.csv", csv, &["--null", "-"]).await.ok();
    let said = "mail: 2 imported, 1 left out: their ids are there already\n";
    assert_eq!(ran.out, said);
    assert_eq!(
        rows(&scene, "WHERE recipient = 'b, c' AND sent_at IS NULL"),
        1
    );
    let again = import(&scene, "a.csv", csv, &["--json"]).await.ok().json();
    assert_eq!(
        (number(&again, "imported"), number(&again, "known")),
        (0, 3)
    );

    // More than one transaction has, of two sorts of rows.
    let line = |i: i64| match i % 3 {
        0 => json!({"id": i, "recipient": "x", "body": {"a": [i]}}),
        _ => json!({"id": i, "recipient": "y", "body": "b", "sent_at": null}),
    };
    let lines: Vec<String> = (1_001..=3_500).map(|i| line(i).to_string()).collect();
    let ran = import(&scene, "a.jsonl", &lines.join("\n"), &["--json"]).await;
    let ran = ran.ok().json();
    assert_eq!(
        (number(&ran, "imported"), number(&ran, "last_line")),
        (2_500, 2_500)
    );
    assert_eq!(
        (rows(&scene, ""), rows(&scene, "WHERE sent_at IS NULL")),
        (2_504, 2_504)
    );
    assert_eq!(ran["job"], Value::from("mail"));
}

pub(crate) async fn a_file_with_a_fault_changes_nothing() {
    let scene = Scene::with_rows(1).await;
    configure(&scene, "");
    let good = "{\"recipient\": \"a\", \"body\": \"b\"}\n".repeat(1_500);
    for (name, text, words) in [
        ("a.jsonl", format!("{good}{{\"recip"), "line 1501"),
        ("a.csv", "recipient,body\na,b\nc\n".to_owned(), "line: 3"),
        (
            "a.csv",
            "recipient,body\na,b\nc,\"d\ne,f\n".to_owned(),
            "line 3: the quote",
        ),
        ("a.csv", "recipient,colour\na,b\n".to_owned(), "colour"),
        ("a.txt", "a".to_owned(), "--format csv"),
    ] {
        let ran = import(&scene, name, &text, &[]).await;
        assert_ne!(ran.code, Some(0), "{}", ran.out);
        assert!(ran.err.contains(words), "{words}: {}", ran.err);
    }
    // A pipe would be read once, and be empty then.
    let ran = notify(&scene, &["import", "/dev/null", "--format", "csv"]).await;
    assert_eq!(ran.code, Some(1), "{}", ran.out);
    assert!(ran.err.contains("no regular file"), "{}", ran.err);
    let ran = notify(&scene, &["import", "mail", "nowhere.csv"]).await;
    assert!(ran.err.contains("nowhere.csv"), "{}", ran.err);
    assert_eq!(rows(&scene, ""), 1);
}

pub(crate) async fn a_row_that_is_refused_is_named_and_the_rest_goes_on_behind_it() {
    let scene = Scene::with_rows(0).await;
    configure(&scene, "");
    let mut lines = vec!["recipient,body".to_owned()];
    lines.extend((2..=30).map(|i| match i {
        // The column takes no null.
        17 => "nobody,".to_owned(),
        i => format!("user{i},text"),
    }));
    let text = lines.join("\n");
    let ran = import(&scene, "a.csv", &text, &[]).await.with(1);
    assert!(ran.err.contains("line 17"), "{}", ran.err);
    assert!(
        ran.err.contains("go on with --after-line 16"),
        "{}",
        ran.err
    );
    assert_eq!(rows(&scene, ""), 15);
    let ran = import(&scene, "a.csv", &text, &["--after-line", "17"]).await;
    assert_eq!(ran.ok().out, "mail: 13 imported\n");
    assert_eq!(rows(&scene, ""), 28);
}
