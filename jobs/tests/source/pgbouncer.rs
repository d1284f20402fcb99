//! A table behind a real PgBouncer in transaction mode, which gives each transaction another connection of the server.

use libtest_mimic::Trial;
use serde_json::json;
use watchkeeper::{batch::BatchJob, job::Outcome};

use crate::{
    announced::{NEVER, SOON, is_told},
    pooler::{self, Pooler},
    scene::{self, Scene, connect},
    sender::{listed, send},
    server::Shared,
};

const ROWS: u64 = 200;

/// The case, where the pooler is.
pub(crate) fn trial(server: &Shared) -> Trial {
    let server = server.clone();
    let name = "pgbouncer::rows_are_sent_once_and_found_without_announcements";
    pooler::trial(name, move || {
        let server = server.get();
        let pooler = Pooler::start(server);
        scene::play(
            server,
            rows_are_sent_once_and_found_without_announcements(&pooler),
        );
    })
}

/// No connection that the pooler has to the server was left with an ear that others would hear by. As many are held at one time as
/// it may have.
async fn nobody_listens(url: &str) {
    let mut held = Vec::new();
    for _ in 0..20 {
        let client = connect(url).await;
        client.batch_execute("BEGIN").await.unwrap();
        let listening = "SELECT count(*) FROM pg_listening_channels()";
        let rows = client.query_typed(listening, &[]).await.unwrap();
        assert_eq!(rows[0].get::<_, i64>(0), 0, "a session listens");
        held.push(client);
    }
    for client in held {
        client.batch_execute("COMMIT").await.unwrap();
    }
}

async fn rows_are_sent_once_and_found_without_announcements(pooler: &Pooler) {
    let scene = Scene::with_rows(usize::try_from(ROWS).unwrap()).await;
    let behind = json!({
        "source": pooler.url(scene.database()), "listen": "mails", "batch_size": 10,
    });
    let jobs = [(); 3].map(|()| scene.job(behind.clone()));
    let batches = jobs[0].pending(100).await.unwrap();
    assert_eq!(batches.len(), 21);
    nobody_listens(&pooler.url(scene.database())).await;
    // Of three senders each has its own connections to the pooler, which share those to the server.
    let works = (1..).zip(&batches).map(|(token, batch)| {
        let job = &jobs[usize::try_from(token).unwrap() % jobs.len()];
        send(job, token, batch)
    });
    let outcomes = futures_util::future::join_all(works).await;
    assert!(outcomes.iter().all(|o| *o == Outcome::Done), "{outcomes:?}");
    let (tally, left) = (scene.tally(), listed(&jobs[1]).await);
    assert_eq!((tally.requests, tally.accepted), (ROWS, ROWS));
    assert_eq!(
        (scene.unsent(), left.doubted_ever, left.items.len()),
        (0, 0, 0)
    );
    let open = scene.number("SELECT count(*) FROM watchkeeper_delivery_intent");
    assert_eq!(open, 0);

    let add = "INSERT INTO notifications (recipient, body) VALUES ('a', 'b'); NOTIFY mails";
    // That a connection has ended on which nothing is heard may be told, once.
    is_told(&jobs[0], NEVER).await;
    scene.sql(add);
    assert!(!is_told(&jobs[0], NEVER).await, "nothing is heard there");
    scene.send_all(&jobs[0], 1_000).await;
    assert_eq!((scene.tally().accepted, scene.unsent()), (ROWS + 1, 0));

    // Without the pooler the same is heard.
    let direct = scene.job(json!({"listen": "mails", "batch_size": 10}));
    direct.pending(1).await.unwrap();
    assert!(
        is_told(&direct, SOON).await,
        "of what came before it listened"
    );
    scene.sql(add);
    assert!(is_told(&direct, SOON).await);
    scene.send_all(&direct, 2_000).await;
    let tally = scene.tally();
    assert_eq!((tally.accepted, tally.accepted_twice), (ROWS + 2, 0));
}
