//! What is wrong with a database is named with the remedy, and nothing is granted by halves.

use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;
use watchkeeper_lock::{
    clock::Clock,
    node::{
        Answer, Node, NodeError, Refusal,
        postgres::{PostgresNodeSettings, address::PgAddress},
    },
};

use crate::{
    it::conformance::{granted, take},
    node::{DURABLE, client, fresh, node, run, send, settings, until, url},
    paper::Paper,
    server::{PostgresServer, USER},
};

/// What was refused, and why.
fn refused<T: std::fmt::Debug>(answer: Result<T, NodeError>) -> (Refusal, String) {
    match answer {
        Err(NodeError::Refused { refusal, said }) => (refusal, said),
        other => panic!("not refused: {other:?}"),
    }
}

/// A server that says of itself that it is an old one.
pub(crate) fn an_old_server_is_refused_by_its_version(_: &PostgresServer) {
    let server = PostgresServer::start_with(&DURABLE, |_| {});
    run(async {
        let owner = client(&url(&server)).await;
        owner
            .batch_execute(
                "CREATE SCHEMA old; \
                 CREATE FUNCTION old.current_setting(text) RETURNS text LANGUAGE sql AS $$ \
                     SELECT CASE $1 WHEN 'server_version_num' THEN '120022' ELSE pg_catalog.current_setting($1) END $$; \
                 ALTER DATABASE postgres SET search_path = old, pg_catalog",
            )
            .await
            .unwrap();
        let node = node(&settings(&url(&server), &fresh()));
        let (refusal, said) = refused(send(&node, vec![take("k", "a")]).await);
        assert_eq!(
            (refusal, said.as_str()),
            (Refusal::Version, "PostgreSQL 12")
        );
        assert!(refusal.remedy().contains("PostgreSQL to 13"));
        let made = owner.query(
            "SELECT 1 FROM pg_namespace WHERE nspname = 'watchkeeper'",
            &[],
        );
        assert!(made.await.unwrap().is_empty(), "nothing was made there");
    });
}

/// A person's trigger, or rule, that says nothing of it.
pub(crate) fn a_row_that_is_left_out_grants_nothing(_: &PostgresServer) {
    let server = PostgresServer::start_with(&DURABLE, |_| {});
    run(async {
        let node = node(&settings(&url(&server), "n"));
        granted(&node, take("k", "a")).await;
        let owner = client(&url(&server)).await;
        owner
            .batch_execute(
                "CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; \
                 CREATE TRIGGER leave_out BEFORE INSERT ON watchkeeper.lease FOR EACH ROW EXECUTE FUNCTION leave_out()",
            )
            .await
            .unwrap();
        let answered = send(&node, vec![take("l", "a")]).await;
        assert!(answered.is_err(), "{answered:?}");
    });
}

/// Nothing is granted by tables whose meaning is not known, and nothing in them is changed.
pub(crate) fn tables_of_another_layout_are_refused_and_left_alone(server: &PostgresServer) {
    run(async {
        let namespace = fresh();
        let node = node(&settings(&url(server), &namespace));
        granted(&node, take("k", "a")).await;
        let owner = client(&url(server)).await;
        let set = "UPDATE watchkeeper.node SET layout = $2 WHERE namespace = $1";
        for layout in [2_i32, 0] {
            owner.execute(set, &[&namespace, &layout]).await.unwrap();
            for key in ["k", "l"] {
                let (refusal, said) = refused(send(&node, vec![take(key, "b")]).await);
                let named = format!("the tables are of layout {layout}, this program knows 1");
                assert_eq!((refusal, said), (Refusal::Layout, named));
                assert!(refusal.remedy().contains("move --out FILE"));
            }
        }
        owner.execute(set, &[&namespace, &1_i32]).await.unwrap();
        let answers = send(&node, vec![take("k", "b"), take("l", "b")]).await;
        let answers = answers.unwrap().answers;
        assert!(matches!(answers[0], Answer::Refused(_)), "{answers:?}");
        assert!(matches!(answers[1], Answer::Granted { .. }), "{answers:?}");
    });
}

/// The database answers as it does when its disk is full, to whatever writes our rows.
pub(crate) fn a_full_database_grants_nothing_and_votes_when_there_is_room(_: &PostgresServer) {
    let server = PostgresServer::start_with(&DURABLE, |_| {});
    run(async {
        let node = node(&settings(&url(&server), "n"));
        granted(&node, take("k", "a")).await;
        let owner = client(&url(&server)).await;
        owner
            .batch_execute(
                "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                     RAISE EXCEPTION 'could not extend file \"base/5/16384\": No space left on device' USING ERRCODE = 'disk_full'; \
                 END $$; \
                 CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON watchkeeper.lease \
                     FOR EACH STATEMENT EXECUTE FUNCTION full_disk()",
            )
            .await
            .unwrap();
        let (refusal, said) = refused(send(&node, vec![take("l", "a"), take("m", "a")]).await);
        assert_eq!(refusal, Refusal::OutOfMemory, "{said}");
        assert!(said.contains("No space left"), "{said}");
        assert!(
            refusal
                .remedy()
                .contains("PostgreSQL: make room on its disk")
        );
        owner
            .batch_execute("DROP TRIGGER full_disk ON watchkeeper.lease")
            .await
            .unwrap();
        let held = owner
            .query(
                "SELECT convert_from(key, 'UTF8') FROM watchkeeper.lease ORDER BY key",
                &[],
            )
            .await
            .unwrap();
        let held: Vec<String> = held.iter().map(|row| row.get(0)).collect();
        assert_eq!(held, ["k"], "nothing stands by halves");
        let answers = send(&node, vec![take("l", "a"), take("k", "b")])
            .await
            .unwrap()
            .answers;
        assert!(matches!(answers[0], Answer::Granted { .. }), "{answers:?}");
        assert!(!matches!(answers[1], Answer::Granted { .. }), "{answers:?}");
    });
}

pub(crate) fn a_certificate_that_is_not_trusted_is_refused_with_the_remedy(_: &PostgresServer) {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let key = KeyPair::generate().unwrap();
    let names = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = names.self_signed(&key).unwrap();
    let port_setting = format!("port={port}");
    let own = [
        "listen_addresses=localhost",
        &port_setting,
        "ssl=on",
        "ssl_cert_file=../cert.pem",
        "ssl_key_file=../key.pem",
    ];
    let all = [&DURABLE[..], &own[..]].concat();
    let _server = PostgresServer::start_with(&all, |folder| {
        PostgresServer::put(folder, "cert.pem", &certificate.pem());
        PostgresServer::put(folder, "key.pem", &key.serialize_pem());
        let asked = "local all all trust\nhostssl all all all trust\n";
        PostgresServer::put(&folder.join("data"), "pg_hba.conf", asked);
    });
    let folder = TempDir::with_prefix("wk-ca-").unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, certificate.pem()).unwrap();
    let at = |host: &str, tls: &str| format!("postgres://{USER}@{host}:{port}/postgres?{tls}");
    let trusted = format!("sslmode=verify-full&sslrootcert={}", ca.display());
    run(async {
        for (url, words) in [
            (
                at("localhost", "sslmode=require"),
                "name the file of its CA as `sslrootcert`",
            ),
            (at("127.0.0.1", &trusted), "invalid peer certificate"),
        ] {
            let answer = send(&node(&settings(&url, "n")), vec![take("k", "a")]).await;
            let Err(NodeError::Tls(why)) = &answer else {
                panic!("{url}: {answer:?}")
            };
            assert!(why.contains(words), "{url}: {why}");
        }
        granted(
            &node(&settings(&at("localhost", &trusted), "n")),
            take("k", "a"),
        )
        .await;
    });
}

/// Locks work without announcements: nothing but the log tells what is wrong with the address to listen at.
pub(crate) fn a_wrong_password_to_listen_with_is_told_once(_: &PostgresServer) {
    let server = PostgresServer::start_with(&DURABLE, |folder| {
        let rules = format!("local all {USER} trust\nlocal all all scram-sha-256\n");
        PostgresServer::put(folder, "data/pg_hba.conf", &rules);
    });
    let (paper, _reading) = Paper::reading(tracing::Level::DEBUG);
    run(async {
        let wrong = format!("postgres://listener:swordfish@{}/postgres", server.host());
        let node = node(&PostgresNodeSettings {
            listen: Some(PgAddress::parse(&wrong).unwrap()),
            node_timeout: Duration::from_millis(100),
            ..settings(&url(&server), "n")
        });
        let _heard = node.announcements().await;
        let lines = || -> Vec<String> {
            let text = paper.text();
            let lines = text
                .lines()
                .filter(|line| line.contains("no announcements"));
            lines.map(str::to_owned).collect()
        };
        let clock = Clock::system();
        let end = clock.now() + Duration::from_secs(15);
        while lines().len() < 3 {
            assert!(clock.now() < end, "it is tried again: {:?}", lines());
            clock.sleep(Duration::from_millis(10)).await;
        }
        let lines = lines();
        let (first, rest) = lines.split_first().unwrap();
        for words in [
            "WARN",
            "password authentication failed",
            "locks.postgres.listen_url",
        ] {
            assert!(first.contains(words), "{words}: {first}");
        }
        assert!(rest.iter().all(|line| line.contains("DEBUG")), "{rest:?}");
        assert!(lines.iter().all(|line| !line.contains("swordfish")));
    });
}

/// Each attempt costs it a process: those that ask for much do not ask for many.
pub(crate) fn a_refused_connection_is_not_tried_again_with_each_call(_: &PostgresServer) {
    let server = PostgresServer::start_with(&DURABLE, |_| {});
    run(async {
        let clock = Clock::system();
        let node = node(&settings(&server.url("stranger", "postgres"), &fresh()));
        let began = clock.now();
        for _ in 0..100 {
            let answer = send(&node, vec![take("k", "a")]).await;
            assert!(matches!(answer, Err(NodeError::Auth(_))), "{answer:?}");
        }
        let most = 1 + clock.now().since(began).as_millis() / 500;
        let refused = "role \"stranger\" does not exist";
        let tried = server.log().matches(refused).count();
        assert!(
            u128::try_from(tried).unwrap() <= most,
            "{tried} of {most} attempts"
        );
        // It is let in as soon as that is over.
        let owner = client(&url(&server)).await;
        owner
            .batch_execute("CREATE ROLE stranger LOGIN SUPERUSER")
            .await
            .unwrap();
        until("a vote", async || {
            send(&node, vec![take("k", "a")]).await.is_ok()
        })
        .await;
    });
}
