//! Servers that restart, take no writes, or ask who one is.

use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use serde_json::json;
use watchkeeper::{
    batch::BatchJob,
    clock::Clock,
    job::{FailureKind, Outcome},
    node::Token,
};
use watchkeeper_jobs::receiver::Faults;

use crate::{
    scene::{Scene, connect},
    sender::{listed, run},
    server::{PostgresServer, USER},
};

/// A table in a database of its own on this server.
async fn scene_on(server: &PostgresServer) -> Scene {
    let scene = Scene::on(server.url(USER, "")).await;
    scene.sql(
        "CREATE TABLE notifications (id int PRIMARY KEY, body text, sent_at timestamptz);
         INSERT INTO notifications SELECT i, 'b' FROM generate_series(1, 10) AS i;",
    );
    scene
}

pub(crate) async fn a_server_that_restarts_is_found_again() {
    let mut server = PostgresServer::start();
    let scene = scene_on(&server).await;
    let job = scene.job(json!({}));
    assert_eq!(job.pending(9).await.unwrap(), ["notifications/50/0"]);
    server.stop();
    for _ in 0..3 {
        let error = job.pending(9).await.unwrap_err();
        assert_eq!(error.kind(), FailureKind::Retry);
        assert!(error.to_string().contains(scene.database()), "{error}");
    }
    server.start_again();
    assert_eq!(job.pending(9).await.unwrap(), ["notifications/50/0"]);
    scene.send_all(&job, 1).await;
    assert_eq!((scene.tally().accepted, scene.unsent()), (10, 0));
}

pub(crate) async fn a_server_that_restarts_before_rows_are_marked_leaves_none_in_doubt() {
    let mut server = PostgresServer::start();
    let scene = scene_on(&server).await;
    let job = scene.job(json!({}));
    scene.receiver.behave(Faults {
        hang_next: 8,
        ..Faults::default()
    });
    let mut tally = scene.receiver.watch();
    let run = run();
    let sending = job.process_under(Token(1), "notifications/50/0", &run);
    let restarting = async {
        drop(tally.wait_for(|t| t.requests >= 8).await.unwrap());
        server.stop();
        scene.receiver.release();
        drop(tally.wait_for(|t| t.accepted >= 10).await.unwrap());
        server.start_again();
    };
    let (outcome, ()) = tokio::join!(sending, restarting);
    assert_eq!(outcome.unwrap(), Outcome::Done);
    let left = listed(&job).await;
    assert_eq!((scene.unsent(), left.doubted_ever), (0, 0));
    assert_eq!((scene.tally().requests, scene.tally().accepted), (10, 10));
}

pub(crate) async fn a_standby_is_refused_by_name_and_the_next_host_is_tried() {
    let mut standby = PostgresServer::start();
    scene_on(&standby).await;
    let primary = PostgresServer::start();
    let scene = scene_on(&primary).await;
    standby.stop();
    PostgresServer::put(&standby.folder().join("data"), "standby.signal", "");
    standby.start_again();
    let folder = standby.folder().display().to_string();
    let job = scene.job(json!({"source": standby.url(USER, "postgres")}));
    let error = job.pending(9).await.unwrap_err();
    assert_eq!(error.kind(), FailureKind::Retry);
    for word in [&folder, "standby", "name the primary in `source`"] {
        assert!(error.to_string().contains(word), "{error}");
    }
    let place = |server: &PostgresServer| {
        let folder = server.folder().display().to_string();
        folder.replace('/', "%2F")
    };
    let (one, other) = (place(&standby), place(&primary));
    let both = format!("postgres://{USER}@{one},{other}/{}", scene.database());
    let job = scene.job(json!({"source": both}));
    assert_eq!(job.pending(9).await.unwrap(), ["notifications/50/0"]);

    let only_reads = format!(
        "ALTER DATABASE {} SET default_transaction_read_only = on",
        scene.database()
    );
    scene.sql(&only_reads);
    let error = scene.job(json!({})).pending(9).await.unwrap_err();
    assert!(error.to_string().contains("it is read-only"), "{error}");
}

/// It was stopped before the other one was promoted, and does not know of that: what it has was perhaps sent.
pub(crate) async fn a_table_is_not_that_of_an_old_primary_that_starts_again() {
    // What it has committed is not forgotten when it ends.
    let durable = ["fsync=on", "synchronous_commit=on", "full_page_writes=on"];
    let mut primary = PostgresServer::start_with(&durable, |_| {});
    let scene = scene_on(&primary).await;
    let mut standby = primary.standby();
    let (one, other) = (primary.host(), standby.host());
    let of_both = format!("postgres://{USER}@{one},{other}/{}", scene.database());
    let job = || scene.job(json!({"source": of_both}));
    let living = job();
    let all = ["notifications/50/0"];
    assert_eq!(living.pending(9).await.unwrap(), all);
    primary.stop();
    let of_standby = standby.url(USER, scene.database());
    let copy = connect(&of_standby).await;
    copy.batch_execute("SELECT pg_promote()").await.unwrap();
    // A connection that broke is told of, where it is not seen before.
    let again = async || match living.pending(9).await {
        Ok(found) => Ok(found),
        Err(_) => living.pending(9).await,
    };
    assert_eq!(again().await.unwrap(), all);
    copy.batch_execute("UPDATE notifications SET sent_at = now()")
        .await
        .unwrap();
    primary.start_again();
    for job in [&living, &job()] {
        assert!(job.pending(9).await.unwrap().is_empty());
    }
    // Alone, it is refused by those that have seen the other.
    standby.stop();
    let error = again().await.unwrap_err();
    assert_eq!(error.kind(), FailureKind::Retry);
    let why = "was promoted in its place";
    assert!(error.to_string().contains(why), "{error}");
}

/// Nothing breaks: who speaks to it would never be told that another one was promoted, and mark there what others send again.
pub(crate) async fn a_table_is_left_whose_primary_lives_on_beside_its_successor() {
    let durable = ["fsync=on", "synchronous_commit=on", "full_page_writes=on"];
    let mut primary = PostgresServer::start_with(&durable, |_| {});
    let scene = scene_on(&primary).await;
    let standby = primary.standby();
    let (one, other) = (primary.host(), standby.host());
    let of_both = format!("postgres://{USER}@{one},{other}/{}", scene.database());
    let job = scene.job(json!({"source": of_both}));
    assert_eq!(job.pending(9).await.unwrap(), ["notifications/50/0"]);
    let copy = connect(&standby.url(USER, scene.database())).await;
    copy.batch_execute("SELECT pg_promote()").await.unwrap();
    copy.batch_execute("UPDATE notifications SET sent_at = now()")
        .await
        .unwrap();
    let clock = Clock::system();
    let end = clock.now() + Duration::from_secs(15);
    while !job.pending(9).await.unwrap().is_empty() {
        assert!(clock.now() < end, "it speaks to the old one");
        clock.sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) async fn a_password_and_a_certificate_are_asked_for_and_never_shown() {
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned()];
    let certificate = CertificateParams::new(names)
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let settings = [
        "listen_addresses=localhost",
        &format!("port={port}"),
        "ssl=on",
        "ssl_cert_file=../cert.pem",
        "ssl_key_file=../key.pem",
    ];
    let server = PostgresServer::start_with(&settings, |folder| {
        PostgresServer::put(folder, "cert.pem", &certificate.pem());
        PostgresServer::put(folder, "key.pem", &key.serialize_pem());
        let asked = "local all all trust\nhostssl all all all scram-sha-256\n";
        PostgresServer::put(&folder.join("data"), "pg_hba.conf", asked);
    });
    // The socket's name has the port in it.
    let by_socket = server.url(USER, "");
    let scene = Scene::on(format!("{}:{port}/", by_socket.trim_end_matches('/'))).await;
    scene.sql(
        "CREATE ROLE app LOGIN PASSWORD 'hunter2'; CREATE TABLE notifications (id int PRIMARY KEY, sent_at timestamptz);
         INSERT INTO notifications VALUES (1); GRANT ALL ON notifications TO app; GRANT ALL ON SCHEMA public TO app;",
    );
    let root = scene.folder.path().join("ca.pem");
    std::fs::write(&root, certificate.pem()).unwrap();
    let word = scene.folder.path().join("word");
    let of =
        |host: &str, tls: &str| format!("postgres://app@{host}:{port}/{}?{tls}", scene.database());
    let verified = format!("sslmode=verify-full&sslrootcert={}", root.display());
    for (source, password, words) in [
        (
            of("localhost", &verified),
            "wr0ng",
            "password authentication failed",
        ),
        (
            of("localhost", "sslmode=require"),
            "hunter2",
            "name the file of its CA as `sslrootcert`",
        ),
        (
            of("127.0.0.1", &verified),
            "hunter2",
            "invalid peer certificate",
        ),
        (
            of("localhost", "sslmode=disable"),
            "hunter2",
            "no encryption",
        ),
        (
            of("localhost", "sslmode=verify-full&sslrootcert=/nowhere"),
            "hunter2",
            "/nowhere cannot be read",
        ),
    ] {
        std::fs::write(&word, password).unwrap();
        let job = scene.job(json!({"source": source, "password_file": word}));
        let error = job.pending(9).await.unwrap_err();
        let told = format!("{error} {error:?} {job:?}");
        assert!(error.to_string().contains(words), "{words}: {told}");
        assert!(!told.contains(password), "{told}");
    }
    // A new password holds from the next connection on, without a restart.
    std::fs::write(&word, "old").unwrap();
    let job = scene.job(json!({"source": of("localhost", &verified), "password_file": word}));
    assert!(job.pending(9).await.is_err());
    std::fs::write(&word, "hunter2\n").unwrap();
    assert_eq!(job.pending(9).await.unwrap(), ["notifications/50/0"]);
    scene.send_all(&job, 1).await;
    assert_eq!(scene.tally().accepted, 1);
}
