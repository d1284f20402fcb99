//! The search for work in tables that are large, or full of rows that wait for a person.

use serde_json::json;
use watchkeeper::batch::BatchJob;
use watchkeeper_jobs::notifications::{ItemId, operator};

use crate::{scene::Scene, sender::send};

/// More rows than one look examines, all of them dead.
async fn many_dead(table: &str, id: &str) -> Scene {
    let scene = Scene::with_rows(0).await;
    scene.sql(&format!(
        "CREATE TABLE {table} (id {} PRIMARY KEY, sent_at timestamptz);
         INSERT INTO {table} SELECT {id} FROM generate_series(1, 25000) AS i WHERE i <> 12345;
         CREATE INDEX ON {table} (id) WHERE sent_at IS NULL; ANALYZE {table};",
        if id == "i" { "bigint" } else { "text" }
    ));
    scene.job(json!({"table": table})).pending(1).await.unwrap();
    scene.sql(&format!(
        "INSERT INTO watchkeeper_delivery SELECT '{table}', id::text, {}, 'dead', 1, 0, '', 1, '', now(), NULL, NULL FROM {table};
         ANALYZE watchkeeper_delivery;",
        if id == "i" { "id" } else { "NULL" }
    ));
    scene
}

pub(crate) async fn a_look_takes_few_steps_past_many_rows_that_are_held_back() {
    let scene = many_dead("held", "i").await;
    let job = scene.job(json!({"table": "held"}));
    scene.sql("INSERT INTO held VALUES (30001)");
    let mut looks = 1;
    while job.pending(9).await.unwrap().is_empty() {
        looks += 1;
        assert!(looks < 20, "no look finds it");
    }
    assert!(looks > 5, "{looks} looks: each is bounded");
    let batch = ["held/50/600".to_owned()];
    assert_eq!(job.pending(9).await.unwrap(), batch);
    // Whatever lies before it, what is new is found at once.
    scene.send_all(&job, 1).await;
    scene.sql("INSERT INTO held VALUES (40001)");
    assert_eq!(job.pending(9).await.unwrap(), ["held/50/800"]);
    scene.send_all(&job, 100).await;
    // What a person has freed, too.
    let params = scene.params(json!({"table": "held"}));
    let mut person = operator(&params, true).await.unwrap();
    person.retry(&[ItemId::Int(20_000)]).await.unwrap();
    assert_eq!(job.pending(9).await.unwrap(), ["held/50/400"]);
    scene.send_all(&job, 200).await;
    // And what was committed late among them, when its turn comes.
    scene.sql("INSERT INTO held VALUES (12345)");
    let mut looks = 1;
    while job.pending(9).await.unwrap() != ["held/50/246"] {
        looks += 1;
        assert!(looks < 30, "the sweep does not come there");
    }
    scene.send_all(&job, 300).await;
    assert_eq!(scene.tally().accepted, 4);
}

/// Such as rows that were deleted while they waited to be sent again.
pub(crate) async fn items_without_rows_hide_none_whose_time_has_come() {
    let scene = many_dead("held", "i").await;
    let job = scene.job(json!({"table": "held"}));
    // Looks pass the dead ones by.
    for _ in 0..15 {
        assert!(job.pending(9).await.unwrap().is_empty());
    }
    scene.sql(
        "INSERT INTO watchkeeper_delivery SELECT 'held', i::text, i, 'in_doubt', 1, -1, '', 1, '', now(), NULL, NULL
         FROM generate_series(100001, 125000) AS i; ANALYZE watchkeeper_delivery;",
    );
    // More than are looked at, and all of them before it.
    let params = scene.params(json!({"table": "held"}));
    let mut person = operator(&params, true).await.unwrap();
    person.retry(&[ItemId::Int(20_000)]).await.unwrap();
    let looks = [job.pending(9).await.unwrap(), job.pending(9).await.unwrap()];
    assert!(
        looks.concat().contains(&"held/50/400".to_owned()),
        "{looks:?}"
    );
    scene.send_all(&job, 1).await;
    // As many as are looked at do not even need a second look.
    scene.sql("DELETE FROM watchkeeper_delivery WHERE number > 105000");
    for id in [20_001, 20_051] {
        person.retry(&[ItemId::Int(id)]).await.unwrap();
        let batch = format!("held/50/{}", id / 50);
        assert_eq!(job.pending(9).await.unwrap(), [batch]);
        scene.send_all(&job, 100).await;
    }
    assert_eq!(scene.tally().accepted, 3);
}

pub(crate) async fn buckets_of_texts_are_found_past_rows_that_are_held_back() {
    let scene = many_dead("texts", "to_char(i, '00000')").await;
    let job = scene.job(json!({"table": "texts", "buckets": 8}));
    scene.sql("INSERT INTO texts VALUES ('zzz')");
    let mut looks = 1;
    while job.pending(9).await.unwrap().is_empty() {
        looks += 1;
        assert!(looks < 20, "no look finds it");
    }
    assert!(looks > 1, "each is bounded");
    scene.send_all(&job, 1).await;
    scene.sql("INSERT INTO texts VALUES ('zzzz'), (' 12345')");
    for token in 2..20 {
        scene.send_all(&job, token * 10).await;
    }
    assert_eq!(scene.tally().accepted, 3);
}

pub(crate) async fn many_rows_of_one_recipient_hide_none_of_the_others() {
    let scene = Scene::with_rows(0).await;
    scene.sql(
        "CREATE TABLE crowd (id bigint PRIMARY KEY, whom text, sent_at timestamptz);
         INSERT INTO crowd SELECT i, 'many' FROM generate_series(1, 35000) AS i;
         INSERT INTO crowd SELECT i, 'r' || i FROM generate_series(35001, 35100) AS i;
         CREATE INDEX ON crowd (id) WHERE sent_at IS NULL; ANALYZE crowd;",
    );
    let params = json!({"table": "crowd", "columns": {"recipient": "whom"}, "buckets": 8});
    let job = scene.job(params);
    let mut looks = 1;
    while job.pending(9).await.unwrap().len() < 8 {
        looks += 1;
        assert!(looks < 20, "no look finds them");
    }
    assert!(looks > 1, "each is bounded");
}

/// More than a batch looks at, and two rows that could go behind them: which of them is the first, only the database knows.
pub(crate) async fn an_ordered_bucket_of_texts_is_sent_behind_however_many_rows_at_rest() {
    let scene = Scene::with_rows(0).await;
    scene.sql(
        "CREATE TABLE crowd (id text PRIMARY KEY, whom text, sent_at timestamptz);
         INSERT INTO crowd SELECT to_char(i, '000000'), 'many' FROM generate_series(1, 50010) AS i;
         CREATE INDEX ON crowd (id) WHERE sent_at IS NULL; CREATE INDEX ON crowd (whom) WHERE sent_at IS NULL; ANALYZE crowd;",
    );
    let params = json!({"table": "crowd", "columns": {"recipient": "whom"}, "buckets": 1});
    let job = scene.job(params);
    job.pending(1).await.unwrap();
    scene.sql(
        "INSERT INTO watchkeeper_delivery SELECT 'crowd', id, NULL, 'dead', 1, 0, '', 1, '', now(), NULL, NULL FROM crowd;
         ANALYZE watchkeeper_delivery;",
    );
    // Looks come to the end of them.
    for _ in 0..12 {
        assert_eq!(job.pending(9).await.unwrap(), [""; 0]);
    }
    scene.sql(
        "INSERT INTO crowd VALUES ('zzz', 'new');
         UPDATE watchkeeper_delivery SET state = 'retry' WHERE item = ' 050009'",
    );
    for token in 1..5 {
        for batch in job.pending(9).await.unwrap() {
            send(&job, token, &batch).await;
        }
    }
    assert_eq!(scene.tally().accepted, 2);
}

/// Looks go round through a large table, and see a later row of a recipient where an earlier one was seen before.
pub(crate) async fn a_later_row_that_is_seen_first_does_not_go_first() {
    let scene = Scene::with_rows(0).await;
    scene.sql(
        "CREATE TABLE crowd (id bigint PRIMARY KEY, whom text, sent_at timestamptz);
         INSERT INTO crowd SELECT i, CASE WHEN i IN (15000, 25000) THEN 'two' ELSE 'many' END FROM generate_series(1, 35000) AS i;
         CREATE INDEX ON crowd (id) WHERE sent_at IS NULL; CREATE INDEX ON crowd (whom) WHERE sent_at IS NULL; ANALYZE crowd;",
    );
    // Each look is another beginning: whatever it sees, the order is kept.
    for looks in 1..=4 {
        scene.sql("UPDATE crowd SET sent_at = NULL WHERE whom = 'two'");
        let job = scene.job(
            json!({"table": "crowd", "columns": {"recipient": "whom"}, "buckets": 512, "batch_size": 1}),
        );
        let mut batches = Vec::new();
        for _ in 0..looks {
            batches = job.pending(9).await.unwrap();
        }
        for (token, batch) in (looks * 10..).zip(&batches) {
            send(&job, token, batch).await;
        }
        let unsent = "SELECT count(*) FROM crowd WHERE sent_at IS NULL AND id = ";
        let (first, second) = (
            scene.number(&format!("{unsent}15000")),
            scene.number(&format!("{unsent}25000")),
        );
        assert!(
            first <= second,
            "after {looks} looks the second one went before the first"
        );
    }
}

pub(crate) async fn the_search_for_work_uses_the_partial_index() {
    let scene = Scene::with_rows(0).await;
    scene.sql(
        "CREATE TABLE old (id bigint PRIMARY KEY, channel text, sent_at timestamptz);
         INSERT INTO old SELECT i, 'mail', now() FROM generate_series(1, 150000) AS i;
         INSERT INTO old SELECT i, 'mail', NULL FROM generate_series(150001, 150010) AS i; ANALYZE old;",
    );
    let params = scene.params(json!({"table": "old", "where": "channel = 'mail'"}));
    let mut person = operator(&params, false).await.unwrap();
    let missing = person.look().await.unwrap().expect("it is missing");
    assert!(
        missing.starts_with("CREATE INDEX CONCURRENTLY \"old_unsent\""),
        "{missing}"
    );
    scene.sql(&missing);
    scene.sql("ANALYZE old");
    let mut person = operator(&params, false).await.unwrap();
    assert_eq!(person.look().await.unwrap(), None);
    // Rows that were sent are not read, by any of the statements of a look and a batch.
    let job = scene.job(json!({"table": "old", "where": "channel = 'mail'"}));
    job.pending(9).await.unwrap();
    let read = "SELECT pg_stat_get_tuples_returned('old'::regclass) + pg_stat_get_tuples_fetched('old'::regclass)
        + (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE relname = 'old')";
    let before = scene.number(read);
    scene.send_all(&job, 1).await;
    assert_eq!(scene.tally().accepted, 10);
    let read = scene.number(read) - before;
    assert!(read < 5_000, "{read} rows were read");
}
