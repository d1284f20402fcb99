//! Sessions that announce rows, and those that listen.

use std::time::Duration;

use serde_json::json;
use watchkeeper::{batch::BatchJob, clock::Clock};
use watchkeeper_jobs::Notifications;

use crate::scene::Scene;

/// Whether the job is told of work soon.
pub(crate) async fn is_told(job: &Notifications, within: Duration) -> bool {
    Clock::system().timeout(within, job.woken()).await.is_ok()
}

pub(crate) const SOON: Duration = Duration::from_secs(10);
pub(crate) const NEVER: Duration = Duration::from_millis(300);

pub(crate) async fn an_announcement_begins_a_look() {
    let scene = Scene::with_rows(1).await;
    let job = scene.job(json!({"listen": "Mails"}));
    job.pending(1).await.unwrap();
    assert!(is_told(&job, SOON).await, "of what came before it listened");
    assert!(!is_told(&job, NEVER).await);
    scene.sql("NOTIFY mails; NOTIFY other");
    assert!(!is_told(&job, NEVER).await, "of other channels");
    scene.sql("NOTIFY \"Mails\"");
    assert!(is_told(&job, SOON).await);
    assert!(!is_told(&job, NEVER).await, "once");
    // Whoever announces does it with the rows: in their transaction, and not before they are there.
    let other = scene.session().await;
    let sql =
        "BEGIN; INSERT INTO notifications (recipient, body) VALUES ('a', 'b'); NOTIFY \"Mails\"";
    other.batch_execute(sql).await.unwrap();
    assert!(!is_told(&job, NEVER).await);
    other.batch_execute("COMMIT").await.unwrap();
    assert!(is_told(&job, SOON).await);
    // A connection that broke is told, too: a look makes another.
    scene.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%pg_listening_channels%'
        AND pid <> pg_backend_pid() AND datname = current_database()");
    assert!(is_told(&job, SOON).await);
    let silent = scene.job(json!({}));
    silent.pending(1).await.unwrap();
    assert!(!is_told(&silent, NEVER).await);
}
