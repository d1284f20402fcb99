//! Who is let in: users and passwords, tokens that a server has forgotten, certificates.

use watchkeeper_lock::{
    clock::Clock,
    node::{Kind::Lock, Node, NodeError, etcd::EtcdNodeSettings},
};

use crate::{
    it::conformance::{LONG, ask, extend, granted, refused, release, take, waiting},
    papers::Papers,
    scene::{PATIENT, fresh, node, run, send, settings, trouble, until},
    server::{EtcdServer, Host, WORKER},
};

/// What the tests' users may read and write.
const OURS: &str = "watchkeeper/";

/// A server that asks for a password, and compares it with little work.
fn locked(prefix: &str) -> EtcdServer {
    let mut server = EtcdServer::start_with(&["--bcrypt-cost", "4"]);
    server.lock_up(prefix);
    server
}

fn login(server: &EtcdServer, password: &str) -> EtcdNodeSettings {
    EtcdNodeSettings {
        username: Some(WORKER.0.to_owned()),
        password: Some(password.to_owned().into()),
        ..settings(&server.url(), "n")
    }
}

/// A whole life of a lock, announcement included.
async fn works(settings: EtcdNodeSettings) {
    let node = node(settings);
    let mut heard = node.announcements().await.expect("it has some");
    let (token, _) = granted(&node, take("k", "a")).await;
    ask(&node, extend(Lock, "k", "a", 1, token.0)).await;
    refused(&node, waiting(take("k", "b"), LONG)).await;
    ask(&node, release(Lock, "k", "a")).await;
    let news = Clock::system().timeout(PATIENT, heard.recv()).await;
    let news = news.expect("it is told").expect("it goes on");
    assert_eq!(news.key, "k");
}

/// Why the node does not let us in.
async fn kept_out(settings: EtcdNodeSettings) -> String {
    match trouble(&node(settings), take("k", "a")).await {
        NodeError::Auth(why) => why,
        other => panic!("not for want of rights: {other:?}"),
    }
}

pub(crate) fn a_user_with_the_right_password_is_let_in_and_a_wrong_one_is_shown_to_nobody() {
    let server = locked(OURS);
    run(async {
        works(login(&server, WORKER.1)).await;
        let why = kept_out(login(&server, "swordfish")).await;
        assert!(why.contains("locks.etcd.password"), "{why}");
        assert!(!why.contains("swordfish"), "{why}");
        let why = kept_out(settings(&server.url(), "n")).await;
        assert!(why.contains("locks.etcd.username"), "{why}");
    });
}

pub(crate) fn a_user_is_let_in_where_nobody_has_to_log_in(server: &EtcdServer) {
    run(async {
        let namespace = fresh();
        works(EtcdNodeSettings {
            namespace,
            ..login(server, WORKER.1)
        })
        .await;
    });
}

pub(crate) fn missing_rights_are_named_and_used_as_soon_as_they_are_given() {
    let server = locked("another/");
    run(async {
        let node = node(login(&server, WORKER.1));
        let why = match trouble(&node, take("k", "a")).await {
            NodeError::Auth(why) => why,
            other => panic!("not for want of rights: {other:?}"),
        };
        assert!(why.contains("permission"), "{why}");
        assert!(why.contains(OURS), "{why}");
        let name = WORKER.0;
        server.etcdctl(&[
            "role",
            "grant-permission",
            name,
            "readwrite",
            OURS,
            "--prefix",
        ]);
        granted(&node, take("k", "a")).await;
    });
}

/// A server that was started again knows none of the tokens that it gave.
pub(crate) fn a_token_that_the_server_has_forgotten_is_asked_for_again() {
    let mut server = locked(OURS);
    run(async {
        let node = node(login(&server, WORKER.1));
        granted(&node, take("k", "a")).await;
        server.kill();
        server.start_again();
        until("the server", async || match send(&node, vec![]).await {
            Ok(_) => true,
            Err(why) => {
                assert!(!matches!(why, NodeError::Auth(_)), "{why}");
                false
            }
        })
        .await;
        let seen = refused(&node, take("k", "b")).await;
        assert_eq!(seen.owner.as_deref(), Some("a"));
    });
}

/// A change of the users' rights makes all tokens old.
pub(crate) fn a_change_of_rights_ends_no_login() {
    let server = locked(OURS);
    run(async {
        let node = node(login(&server, WORKER.1));
        granted(&node, take("k", "a")).await;
        server.etcdctl(&["user", "add", "another:password"]);
        granted(&node, take("l", "a")).await;
    });
}

// === TLS ===

/// A server behind TLS, and what it was made with.
struct Secure {
    papers: Papers,
    server: EtcdServer,
}

impl Secure {
    fn start(options: impl FnOnce(&Papers) -> Vec<String>) -> Self {
        let host = Host::new();
        let papers = Papers::new(host.name());
        let options = options(&papers);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let server = EtcdServer::start_at(&host, &options);
        Self { papers, server }
    }

    fn settings(&self) -> EtcdNodeSettings {
        let mut settings = settings(&self.server.url(), "n");
        settings.tls.ca = Some(self.papers.path("ca.crt"));
        settings
    }
}

/// Why there is no connection that can be trusted.
async fn not_trusted(settings: EtcdNodeSettings) -> String {
    match trouble(&node(settings), take("k", "a")).await {
        NodeError::Tls(why) => why,
        other => panic!("not refused by TLS: {other:?}"),
    }
}

pub(crate) fn locks_live_behind_tls_and_another_ca_is_refused_with_the_remedy() {
    let secure = Secure::start(Papers::options);
    run(async {
        works(secure.settings()).await;
        let strangers = Papers::new("127.0.0.1");
        let mut settings = secure.settings();
        settings.tls.ca = Some(strangers.path("ca.crt"));
        let why = not_trusted(settings).await;
        assert!(why.contains("locks.etcd.tls.ca"), "{why}");
        // Nor do those of the system know it.
        let mut settings = secure.settings();
        settings.tls.ca = None;
        not_trusted(settings).await;
    });
}

pub(crate) fn another_name_than_the_certificates_is_refused() {
    let host = Host::new();
    let papers = Papers::new("127.0.0.1");
    let options = papers.options();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let server = EtcdServer::start_at(&host, &options);
    run(async {
        let mut settings = settings(&server.url(), "n");
        settings.tls.ca = Some(papers.path("ca.crt"));
        not_trusted(settings).await;
    });
}

pub(crate) fn a_client_certificate_is_shown_where_one_is_wanted() {
    let secure = Secure::start(Papers::demanding_options);
    run(async {
        let mut settings = secure.settings();
        settings.tls.cert = Some(secure.papers.path("client.crt"));
        settings.tls.key = Some(secure.papers.path("client.key"));
        works(settings).await;
        let why = trouble(&node(secure.settings()), take("l", "a")).await;
        assert!(why.is_down(), "{why:?}");
    });
}

pub(crate) fn a_port_without_tls_never_serves(server: &EtcdServer) {
    let papers = Papers::new("127.0.0.1");
    run(async {
        let url = server.url().replace("http:", "https:");
        let mut settings = settings(&url, "n");
        settings.tls.ca = Some(papers.path("ca.crt"));
        let why = trouble(&node(settings), take("k", "a")).await;
        assert!(why.is_down(), "{why:?}");
    });
}
