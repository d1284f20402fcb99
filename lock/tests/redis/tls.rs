//! TLS to real servers, with certificates made for the occasion.

mod failover;

use std::{fs, net::TcpListener, path::PathBuf};

use libtest_mimic::Trial;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use watchkeeper_lock::node::{
    Node, NodeError,
    redis::{RedisNodeSettings, TlsFiles},
};

use crate::{
    bench::*,
    server::{self, RedisServer},
};

/// The cases; ignored, with the reason, where the server is built without TLS.
pub(crate) fn cases() -> Vec<Trial> {
    let cases: [(&str, fn()); 7] = [
        ("locks_live_behind_tls", locks_live_behind_tls),
        (
            "a_wrong_ca_is_refused_with_the_remedy",
            a_wrong_ca_is_refused_with_the_remedy,
        ),
        (
            "a_client_certificate_is_shown_where_one_is_wanted",
            a_client_certificate_is_shown_where_one_is_wanted,
        ),
        (
            "another_name_than_the_certificates_is_refused",
            another_name_than_the_certificates_is_refused,
        ),
        (
            "a_port_without_tls_never_serves",
            a_port_without_tls_never_serves,
        ),
        (
            "sentinels_and_their_master_are_asked_over_tls",
            failover::sentinels_and_their_master_are_asked_over_tls,
        ),
        (
            "the_nodes_of_a_cluster_are_asked_over_tls",
            failover::the_nodes_of_a_cluster_are_asked_over_tls,
        ),
    ];
    let able = server::knows_tls();
    let reason = "this redis-server is built without TLS";
    let cases = cases.into_iter().map(|(name, case)| {
        let name = format!("tls::{name}");
        server::trial_where(able, reason, &name, case)
    });
    cases.collect()
}

/// A CA, a certificate for a server at 127.0.0.1, and one for a client, in files.
struct Papers {
    dir: TempDir,
}

impl Papers {
    fn new() -> Self {
        let papers = Self {
            dir: TempDir::with_prefix("wk-tls-").unwrap(),
        };
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        // Names of their own: who is named like his issuer counts as signed by himself.
        authority
            .distinguished_name
            .push(DnType::CommonName, "tests");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority =
            CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        papers.write("ca.crt", &authority.pem());
        for (name, host) in [("server", "127.0.0.1"), ("client", "worker")] {
            let key = KeyPair::generate().unwrap();
            let mut certificate = CertificateParams::new(vec![host.to_owned()]).unwrap();
            certificate
                .distinguished_name
                .push(DnType::CommonName, name);
            let certificate = certificate.signed_by(&key, &authority).unwrap();
            papers.write(&format!("{name}.crt"), &certificate.pem());
            papers.write(&format!("{name}.key"), &key.serialize_pem());
        }
        papers
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

struct Scene {
    papers: Papers,
    port: u16,
    server: RedisServer,
}

impl Scene {
    fn new(want_clients: bool) -> Self {
        let papers = Papers::new();
        // A port that was free a moment ago.
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let path = |name: &str| papers.path(name).display().to_string();
        let server = RedisServer::start_with(&[
            "--tls-port",
            &port.to_string(),
            "--tls-cert-file",
            &path("server.crt"),
            "--tls-key-file",
            &path("server.key"),
            "--tls-ca-cert-file",
            &path("ca.crt"),
            "--tls-auth-clients",
            if want_clients { "yes" } else { "no" },
        ]);
        Self {
            papers,
            port,
            server,
        }
    }

    fn settings(&self) -> RedisNodeSettings {
        RedisNodeSettings {
            url: format!("rediss://127.0.0.1:{}", self.port).into(),
            tls: TlsFiles {
                ca: Some(self.papers.path("ca.crt")),
                ..TlsFiles::default()
            },
            ..settings(&self.server)
        }
    }

    fn with_certificate(&self) -> RedisNodeSettings {
        let mut settings = self.settings();
        settings.tls.cert = Some(self.papers.path("client.crt"));
        settings.tls.key = Some(self.papers.path("client.key"));
        settings
    }
}

/// A whole life of a lock, announcement included.
async fn works(settings: &RedisNodeSettings) {
    let node = node(settings);
    let mut heard = node.announcements().await.unwrap();
    granted(&ask(&node, acquire("k", "a")).await);
    ask(
        &node,
        extend("k", "a", watchkeeper_lock::node::Kind::Lock, 1, 1),
    )
    .await;
    crate::bench::refused(&ask(&node, await_end("k", "b")).await);
    ask(&node, release("k", "a")).await;
    assert_eq!(heard.recv().await.unwrap().key, "k");
}

async fn refused(settings: &RedisNodeSettings) -> String {
    match send(&node(settings), vec![read("k")]).await.unwrap_err() {
        NodeError::Tls(why) => why,
        other => panic!("not refused by TLS: {other:?}"),
    }
}

fn locks_live_behind_tls() {
    run(async { works(&Scene::new(false).settings()).await });
}

fn a_wrong_ca_is_refused_with_the_remedy() {
    run(async {
        let scene = Scene::new(false);
        let strangers = Papers::new();
        let mut settings = scene.settings();
        settings.tls.ca = Some(strangers.path("ca.crt"));
        let why = refused(&settings).await;
        assert!(
            why.contains("locks.redis.tls.ca") || why.contains("not acceptable"),
            "{why}"
        );
        // Nor do those of the system know it.
        settings.tls.ca = None;
        if let Ok(node) = watchkeeper_lock::node::redis::RedisNode::new(
            &settings,
            watchkeeper_lock::clock::Clock::system(),
            watchkeeper_lock::spawn::Spawn::system(),
        ) {
            let error = send(&node, vec![read("k")]).await.unwrap_err();
            assert_eq!(error.cause(), "tls", "{error}");
        }
    });
}

fn a_client_certificate_is_shown_where_one_is_wanted() {
    run(async {
        let scene = Scene::new(true);
        works(&scene.with_certificate()).await;
        let why = refused(&scene.settings()).await;
        assert!(why.contains("locks.redis.tls.cert"), "{why}");
    });
}

fn another_name_than_the_certificates_is_refused() {
    run(async {
        let scene = Scene::new(false);
        let mut settings = scene.settings();
        settings.url = format!("rediss://localhost:{}", scene.port).into();
        let why = refused(&settings).await;
        assert!(why.contains("another name"), "{why}");
    });
}

fn a_port_without_tls_never_serves() {
    run(async {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let plain = RedisServer::start_with(&["--port", &port.to_string()]);
        let papers = Papers::new();
        let settings = RedisNodeSettings {
            url: format!("rediss://127.0.0.1:{port}").into(),
            tls: TlsFiles {
                ca: Some(papers.path("ca.crt")),
                ..TlsFiles::default()
            },
            ..settings(&plain)
        };
        // It waits for the end of what it takes for a command, and we for its answer.
        let error = send(&node(&settings), vec![read("k")]).await.unwrap_err();
        assert!(error.is_down(), "{error:?}");
    });
}
