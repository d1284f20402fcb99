//! The same where others name the master: `sentinels://` and `clusters://`.

use watchkeeper_lock::node::redis::TlsFiles;

use super::Papers;
use crate::{
    bench::run,
    cluster::RedisCluster,
    failover::{Endpoint, LEASE, programs::client_with, quiet_port, rivals, through, trouble},
    sentinel::deployment::{Deployment, MASTER, Passwords},
};

/// What stands in the addresses in the place of a password: the user `default` of a server without one takes any.
const WORD: &str = "secret-word";

impl Papers {
    /// An endpoint whose TLS port is the one by which others know it. Without TLS only the case asks.
    fn endpoint(&self) -> Endpoint {
        let (port, known) = (quiet_port(), quiet_port());
        let path = |name: &str| self.path(name).display().to_string();
        Endpoint {
            settings: vec![
                ("tls-port", known.clone()),
                ("tls-cert-file", path("server.crt")),
                ("tls-key-file", path("server.key")),
                ("tls-ca-cert-file", path("ca.crt")),
                ("tls-auth-clients", "no".to_owned()),
                ("tls-replication", "yes".to_owned()),
            ],
            port,
            known,
        }
    }
}

pub(super) fn sentinels_and_their_master_are_asked_over_tls() {
    run(async {
        let papers = Papers::new();
        let deployment = Deployment::at(|| papers.endpoint(), 2, Passwords::default()).await;
        let addresses = deployment.addresses();
        let url = format!(
            "sentinels://default:{WORD}@{}/{MASTER}?sentinel_user=default&sentinel_password={WORD}",
            addresses.join(",")
        );
        is_asked_over_tls(&url, &addresses, &papers).await;
    });
}

pub(super) fn the_nodes_of_a_cluster_are_asked_over_tls() {
    run(async {
        let papers = Papers::new();
        let endpoint = || {
            let mut endpoint = papers.endpoint();
            endpoint.settings.push(("tls-cluster", "yes".to_owned()));
            endpoint
        };
        let cluster = RedisCluster::at(endpoint).await;
        let addresses = cluster.addresses();
        let url = format!("clusters://default:{WORD}@{}", addresses.join(","));
        is_asked_over_tls(&url, &addresses, &papers).await;
    });
}

/// A lock is had from there with the CA. Without it the error says who has shown which certificate, and no secret.
async fn is_asked_over_tls(url: &str, addresses: &[String], papers: &Papers) {
    let strangers = Papers::new();
    for ca in [Some(strangers.path("ca.crt")), None] {
        let files = TlsFiles {
            ca,
            ..TlsFiles::default()
        };
        // A system may have no CA at all, and then there is no client.
        let Ok(node) = client_with(url, files) else {
            continue;
        };
        let said = trouble(&node, "the server's certificate").await;
        let is_named = addresses.iter().any(|address| said.contains(address));
        assert!(is_named && !said.contains(WORD), "{said}");
    }
    let mut settings = through(url, LEASE);
    settings.redis.tls.ca = Some(papers.path("ca.crt"));
    let (_one, _other, lease) = rivals(&settings).await;
    assert_eq!(lease.release().await.nodes, 1);
}
